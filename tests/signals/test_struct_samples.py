"""Segments of structs: they give the same as their fields, under every runtime and manager."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import timedelta
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import cql
from cql.errors import BindError, NotSupportedError, PlanError, RunError
from cql.executor.operators.signals.segment_store import MANAGERS, SegmentStore
from cql.session.session import Session
from tests.support.runtimes import RUNTIMES, apply, named
from tests.support.signals.cases import Case, random_case
from tests.support.signals.ranges import OPERATORS, random_ranges

ROWS = 60
VALUES = np.arange(ROWS) * 1.5
TIMES = pa.array(np.arange(ROWS) * 10_000, pa.timestamp("us"))


def _structs(**fields: Any) -> pa.StructArray:
    return pa.StructArray.from_arrays([pa.array(f) for f in fields.values()], names=[*fields])


@pytest.fixture
def session() -> Iterator[Session]:
    with cql.connect(spark=False) as made:
        number, small = np.arange(ROWS), np.arange(ROWS, dtype=np.int8)
        inner = _structs(x=small, y=VALUES.astype(np.float32))
        deep = _structs(a=small, inner=inner, at=TIMES)
        columns = {"p": _structs(time=number, value=VALUES), "deep": deep, "c": small}
        made.create_stream("s", pa.table(columns), rate=100)
        made.sql("CREATE VIEW w AS SELECT p, c FROM s [ROWS 4 SLIDE 4] WHERE max(p.value) > 8")
        yield made


def _rows(session: Session, text: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = session.sql(text).to_arrow().to_pylist()
    return found


def _pair(k: int) -> dict[str, Any]:
    return {"time": k, "value": 1.5 * k}


EXPRESSIONS = {
    "p": [_pair(k) for k in range(4, 8)],
    "p.value": [6.0, 7.5, 9.0, 10.5],
    "p.time": [4, 5, 6, 7],
    "s.p.value": [6.0, 7.5, 9.0, 10.5],
    "p['value']": [6.0, 7.5, 9.0, 10.5],
    "p[1]": _pair(5),
    "p[1].value": 7.5,
    "count(p)": 4,
    "size(p)": 4,
    "avg(p.value)": 8.25,
    "subseg(p, 1, 2)": [_pair(5), _pair(6)],
    "subseg(p, 1, 2).value": [7.5, 9.0],
    "append(subseg(p, 0, 1), subseg(p, 1, 2))": [_pair(4), _pair(5), _pair(6)],
    "append(subseg(p, 0, 1), subseg(p, 1, 2)).time": [4, 5, 6],
    "append(subseg(p.time, 0, 1), subseg(p.time, 1, 2))": [4, 5, 6],
    "timestamp_ns(p, 1)": 50_000_000,
    "sample_at(p, TIMESTAMP '1970-01-01 00:00:00.06')": 2,
    "CASE WHEN max(p.value) > 100 THEN p END": None,
    "(CASE WHEN max(p.value) > 100 THEN p END)[0]": None,
    "(CASE WHEN max(p.value) > 1 THEN p END)[0]": _pair(4),
    "deep.inner.y": [6.0, 7.5, 9.0, 10.5],
    "deep.inner[3]": {"x": 7, "y": 10.5},
    "deep.inner": [{"x": k, "y": 1.5 * k} for k in range(4, 8)],
    "deep.at[1]": TIMES[5].as_py(),
    "subseg(deep.at, 2, 1)": [TIMES[6].as_py()],
    "count(deep.at)": 4,
    "dot(p.time, p.value)": sum(1.5 * k * k for k in range(4, 8)),
    "p.value - p.time": [0.5 * k for k in range(4, 8)],
    "struct(c AS a, p.value AS b)": [{"a": k, "b": 1.5 * k} for k in range(4, 8)],
    "struct(c AS a, p.value AS b).b": [6.0, 7.5, 9.0, 10.5],
    "named_struct('a', c, 'b', p)[2]": {"a": 6, "b": _pair(6)},
    "struct(p.value * 2 AS double, c).double[0]": 12.0,
    "fft(p.value).re[0]": 33.0,
    "fft(p.value)[0]": {"re": 33.0, "im": 0.0},
    "first_sample(p)": 4,
    "first_sample(subseg(p, 2, 2))": 6,
    "p[NULL] IS NULL": True,
    "p[nullif(count(p), 4)]": None,
    "p[nullif(count(p), 4)] IS NULL": True,
    "struct(c, CASE WHEN max(c) > 99 THEN c END AS d).c": None,
    "struct(c, CASE WHEN max(c) > 1 THEN c END AS d).c": [4, 5, 6, 7],
    "struct(p.value AS re, p.value * 2 AS im)[1]": {"re": 7.5, "im": 15.0},
    "imag(struct(p.value AS re, p.value * 2 AS im))": [12.0, 15.0, 18.0, 21.0],
    "timebase(p)": {"rate": 100, "per": 1, "origin": 0, "phase": 0},
    "timebase(p).rate": 100,
    "timebase(p) = timebase(c)": True,
    "timebase(resample(p.value, 3, 2))": {"rate": 150, "per": 1, "origin": 0, "phase": 0},
}


@pytest.mark.parametrize("order", ["columns", "rows"])
@pytest.mark.parametrize("manager", MANAGERS)
def test_expressions(session: Session, manager: str, order: str) -> None:
    session.set("segments", manager)
    session.set("sample_order", order)
    listed = ", ".join(f"{text} AS c{k}" for k, text in enumerate(EXPRESSIONS))
    row = _rows(session, f"SELECT {listed} FROM s [ROWS 4 SLIDE 4]")[1]
    assert dict(zip(EXPRESSIONS, row.values(), strict=True)) == EXPRESSIONS


REFUSED = {
    "avg(p)": ("avg does not take segments of structs", "p.time, p.value"),
    "p + 1": ("+ does not take segments of structs", "p.time, p.value"),
    "fft(deep)": ("fft does not take segments of structs", "deep.a"),
    "max(deep.at)": ("max does not take segments of timestamp_ntz samples", "timestamp_ns"),
    "p.nothing": ("there is no field nothing in signal<struct<time:bigint,value:double>>", "time"),
    "struct(p, 1)": ("a struct of segments has a segment in each field", "columns of their own"),
    "array(p)": ("a segment of a signal inside an array", "a column of its own"),
    "timebase(p).hertz": ("there is no field hertz", "rate"),
    "append(p, deep)": ("append takes two segments of one type", ""),
    "struct(c, subseg(c, 0, 2))": ("takes as many samples on both sides", ""),
    "timebase(fft(p.value))": ("at the times of the signal, and these are of a transform", ""),
    "first_sample(power_spectrum(c))": ("these are of a transform", ""),
    "timebase(1)": ("timebase does not take (int)", "timebase(segment)"),
}


@pytest.mark.parametrize("text", REFUSED)
def test_refusals(session: Session, text: str) -> None:
    message, hint = REFUSED[text]
    with pytest.raises((BindError, NotSupportedError)) as raised:
        session.sql(f"SELECT {text} AS x FROM s [ROWS 4 SLIDE 4]")
    told = f"{raised.value.message} {raised.value.hint}"
    assert message in told
    assert hint in told


@pytest.mark.parametrize("part", ["", ".c"])
def test_lengths_differ_in_a_row(part: str, session: Session) -> None:
    text = (
        f"SELECT struct(c, subseg(c, 0, first_sample(c)) AS d){part} AS x FROM s [ROWS 4 SLIDE 4]"
    )
    with pytest.raises(RunError, match="the segments have 4 and 0 samples"):
        session.sql(text).to_arrow()


@pytest.mark.parametrize("order", ["columns", "rows"])
@pytest.mark.parametrize(
    "inside",
    [("int8",), ("int8", "int16"), ("float32",), ("int32", "int8"), ("int16", "float32", "int8")],
)
def test_small_fields(inside: tuple[str, ...], order: str) -> None:
    """Structs of a few bytes, beside channels that make rows of no whole words."""
    fields = {f"f{k}": np.arange(12).astype(kind) for k, kind in enumerate(inside)}
    with cql.connect(spark=False, sample_order=order) as session:
        for beside in ("int8", "int16", "int32", "float32"):
            columns = {"p": _structs(**fields), "c": np.arange(12).astype(beside)}
            session.create_stream("s", pa.table(columns), rate=100, replace=True)
            text = "SELECT p, c, struct(p AS q, c, p AS r) AS t FROM s [ROWS 5 SLIDE 3]"
            rows = _rows(session, text)
            assert len(rows) == 3
            for k, row in enumerate(rows):
                numbers = range(3 * k, 3 * k + 5)
                structs = [dict.fromkeys(fields, i) for i in numbers]
                assert row["c"] == [*numbers]
                assert row["p"] == structs
                both = zip(structs, numbers, strict=True)
                assert row["t"] == [{"q": one, "c": i, "r": one} for one, i in both]


@pytest.mark.parametrize("count", [249])
def test_many_fields(count: int) -> None:
    names = [f"f{k}" for k in range(count)]
    rows = pa.array([dict.fromkeys(names, k) for k in range(8)])
    times = pa.array(np.r_[0:4, 5:9] * 10_000, pa.timestamp("us"))
    with cql.connect(spark=False) as session:
        session.create_stream("s", pa.table({"ts": times, "p": rows}), rate=100, ordered_by="ts")
        text = "SELECT p.f7 AS x, struct(p AS a, p AS b)[1].b.f9 AS y, p FROM {} [ROWS 4 SLIDE 4]"
        found = _rows(session, text.format("s"))
        assert [(row["x"], row["y"]) for row in found] == [([0, 1, 2, 3], 1), ([4, 5, 6, 7], 5)]
        assert found[1]["p"] == [dict.fromkeys(names, k) for k in range(4, 8)]
        filled = text.format("FILL(s, 'prev', INTERVAL 1 SECOND) AS f")
        assert [row["x"] for row in _rows(session, filled)] == [[0, 1, 2, 3], [3, 4, 5, 6]]


def test_too_many_fields() -> None:
    rows = pa.array([{f"f{k}": 1 for k in range(10_001)}] * 4)
    with cql.connect(spark=False) as session:
        session.create_stream("s", pa.table({"p": rows}), rate=100)
        with pytest.raises(NotSupportedError, match="10,001 values in each sample"):
            session.sql("SELECT p FROM s [ROWS 4 SLIDE 4]")


def test_complex_samples(session: Session) -> None:
    """A source may have them, too; operators of users get complex numbers."""
    rows = pa.array([{"re": 1.0 * k, "im": -0.5 * k} for k in range(24)])
    session.create_stream("z", pa.table({"f": rows}), rate=100)

    @session.operator({"most": "double"})
    def strongest(state: Any, row: Any, emit: Any) -> None:
        emit(abs(row.f).max())

    for text in ("z [ROWS 4 SLIDE 4]", "(SELECT fft(p.value) AS f FROM s [ROWS 4 SLIDE 4])"):
        known = _rows(session, f"SELECT max(magnitude(f)) AS most FROM {text}")
        found = _rows(session, f"SELECT most FROM strongest(TABLE {text}) AS x")
        assert found == [{"most": pytest.approx(row["most"])} for row in known]
    whole = "WITH w AS (SELECT f FROM z [ROWS 4 SLIDE 4]) SELECT f FROM CONCAT(w) AS c"
    assert [row["f"] for row in _rows(session, whole)] == rows.to_pylist()
    assert _rows(session, f"{whole} [ROWS 6 SLIDE 6]")[1]["f"] == rows.to_pylist()[6:12]
    values = "SELECT f, f.im AS i, f[1] AS g, timestamp_ns(f.re, 1) AS t FROM z [ROWS 4 SLIDE 4]"
    assert _rows(session, values)[1] == {
        "f": rows.to_pylist()[4:8],
        "i": [-2.0, -2.5, -3.0, -3.5],
        "g": {"re": 5.0, "im": -2.5},
        "t": 50_000_000,
    }


def test_all_fields_by_a_star(session: Session) -> None:
    text = "SELECT c, p.* FROM s [ROWS 4 SLIDE 4]"
    assert _rows(session, text)[1] == {
        "c": [4, 5, 6, 7],
        "time": [4, 5, 6, 7],
        "value": [6.0, 7.5, 9.0, 10.5],
    }


def test_pictures(session: Session) -> None:
    assert session.sql("SELECT window_start, p.value AS v FROM s [ROWS 4 SLIDE 4]").plot()
    with pytest.raises(PlanError, match="no picture of p, whose samples are structs") as raised:
        session.sql("SELECT window_start, p FROM s [ROWS 4 SLIDE 4]").plot()
    assert "p.time, p.value" in str(raised.value.hint)


def test_operators_return_fields(session: Session) -> None:
    def made(state: Any, row: Any, emit: Any) -> None:
        emit(row.p)

    with pytest.raises(BindError, match="is a signal of struct<a:double>") as raised:
        session.operator({"m": "signal<struct<a: double>>"})(made)
    assert "struct(a, b)" in str(raised.value.hint)


def test_columns_that_are_no_samples() -> None:
    texts = _structs(value=VALUES, name=["a"] * ROWS)
    with cql.connect(spark=False) as session:
        session.create_stream("s", pa.table({"p": texts}), rate=100)
        with pytest.raises(NotSupportedError, match="column p is a struct<") as raised:
            session.sql("SELECT p FROM s [ROWS 4 SLIDE 4]")
        assert "SELECT p.value AS value FROM s" in str(raised.value.hint)


# -- against the fields as columns of their own -------------------------------------------------

TEXTS = (
    "SELECT {x} AS x, {y} AS y, window_end FROM {s}",
    "SELECT max({x}) AS m, subseg({y}, 1, 3) AS y, {x}[0] AS f FROM {s}",
    "SELECT {x} AS x, {y} AS y FROM s, (SELECT window_start, window_end FROM {s}"
    " WHERE max({x}) > 0) AS w WHERE s.{t} >= w.window_start AND s.{t} < w.window_end",
    "SELECT d.k, {x} AS x, {y} AS y FROM d, s WHERE {d}",
    "WITH w AS (SELECT {all} FROM {s}) SELECT {x} AS x, {y} AS y FROM CONCAT(w) AS c"
    " [ROWS 9 SLIDE 9 WITH RESTS]",
    "WITH w AS (SELECT {all} FROM {s}) SELECT {x} AS x, {y} AS y FROM SIGNAL(w) AS c",
    "SELECT {x} AS x, {y} AS y FROM {fill} AS f [ROWS 5 SLIDE 3 WITH RESTS]",
    "SELECT {x} AS x, {y} AS y FROM {fill} AS f",
    "SELECT {times}{x} AS x, {y} AS y FROM s WHERE {x} > 0",
    "SELECT {x} AS x, {y} AS y FROM (SELECT {times}{all} FROM s) AS f [ROWS 5 SLIDE 3]",
    "WITH o AS (SELECT {times2}{other} FROM s)"
    " SELECT {x} AS x, {y} AS y, z FROM ZIP(s, o) AS z [ROWS 5 SLIDE 3 WITH RESTS]",
)


def _in_structs(case: Case) -> pa.Table:
    """The channels of a case as a column of structs, some of which are NULL."""
    table = case.table
    fields = [table[n].combine_chunks() for n in case.names]
    missing = pa.array([not fields[0][k].is_valid for k in range(len(table))], pa.bool_())
    made = pa.StructArray.from_arrays(fields, names=case.names, mask=missing)
    return pa.table({**({"ts": table["ts"]} if case.timed else {}), "p": made})


def _answers(case: Case, text: str, seed: str, *, structs: bool, settings: Any) -> Any:
    gap = int(20_000_000 / Fraction(case.rate)) + 1
    x, y = (f"p.{n}" if structs else n for n in (case.names[0], case.names[-1]))
    text = text.format(
        s=f"s {case.window}",
        t=case.time,
        x=x,
        y=y,
        all="p" if structs else ", ".join(case.names),
        other="p AS z" if structs else "a AS z" if len(case.names) == 1 else "b AS z",
        times="ts, " if case.timed else "",
        times2="ts AS ts2, " if case.timed else "",
        fill=f"FILL(s, 'linear', INTERVAL {gap} MICROSECONDS)" if case.timed else "s",
        d=OPERATORS[0][0].format(t=case.time),
    )
    if structs:
        text = text.replace(", z FROM", f", z.{case.names[min(1, len(case.names) - 1)]} AS z FROM")
    with cql.connect(spark=False) as session:
        apply(session, settings, {"morsel_rows": 7})
        order: Any = {"ordered_by": "ts"} if case.timed else {}
        if case.tolerance is not None:
            order["tolerance"] = timedelta(microseconds=case.tolerance)
        table = _in_structs(case) if structs else case.table
        session.create_stream("s", table, rate=float(case.rate), **order)
        random_ranges(random.Random(seed), case).declare(session)
        return session.sql(text).to_arrow().to_pylist()


@pytest.mark.parametrize("text", range(len(TEXTS)))
def test_like_their_fields(text: int, full: bool) -> None:
    rows = 0
    for k in range(60 if full else 6):
        choice = random.Random(f"structs {text}:{k}")
        case = random_case(choice)
        case.rows = [  # a NULL in a field is a sample that is missing, also of others
            (time, values if None not in values else (None,) * len(values))
            for time, values in case.rows
        ]
        settings = {**choice.choice(RUNTIMES), "segments": choice.choice([*MANAGERS])}
        seed = str(k)
        found = _answers(case, TEXTS[text], seed, structs=True, settings=settings)
        known = _answers(case, TEXTS[text], seed, structs=False, settings=settings)
        assert found == known, (case, settings)
        rows += len(found)
    assert rows > 10


def test_missing_samples() -> None:
    """A struct that is NULL, and one with a field that is, are samples that are missing."""
    values = [{"a": k, "b": {"c": 1.0 * k}} for k in range(12)]
    rows: list[Any] = [*values[:3], None, *values[4:6], {"a": 6, "b": None}, *values[7:9]]
    rows += [{"a": 9, "b": {"c": None}}, *values[10:]]
    kind = pa.struct({"a": pa.int32(), "b": pa.struct({"c": pa.float64()})})
    table = pa.table({"ts": TIMES[:12], "p": pa.array(rows, kind)})
    with cql.connect(spark=False) as session:
        session.create_stream("s", table.slice(1), rate=100, ordered_by="ts")
        query = session.sql("SELECT p FROM s [ROWS 2 SLIDE 2 WITH RESTS]")
        found = [row["p"] for row in query.to_arrow().to_pylist()]
        assert found == [values[k : k + 2] for k in (1, 4, 7, 10)]
        assert query.metrics()[0]["missing"] == 3
        again = _rows(session, "SELECT p FROM (SELECT ts, p FROM s) AS x [ROWS 2 SLIDE 2]")
        assert [row["p"] for row in again] == found


@pytest.mark.parametrize("settings", RUNTIMES, ids=named)
def test_runtimes(settings: dict[str, Any], session: Session) -> None:
    text = "SELECT p, p.value AS v, deep.inner AS i FROM s [ROWS 8 SLIDE 3]"
    known = _rows(session, text)
    assert len(known) == 18
    assert known[2]["p"] == [_pair(k) for k in range(6, 14)]
    apply(session, settings, {"morsel_rows": 2})
    assert _rows(session, text) == known


def test_a_field_shares_the_samples(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows of structs and windows of a field copy nothing."""
    stores = list[SegmentStore]()
    made = SegmentStore.__init__

    def init(self: SegmentStore, *args: Any, **more: Any) -> None:
        made(self, *args, **more)
        stores.append(self)

    monkeypatch.setattr(SegmentStore, "__init__", init)
    text = "SELECT count(p) AS n, p.value[1] AS v, count(p.time) AS m FROM s [ROWS 8 SLIDE 3]"
    assert len(_rows(session, text)) == 18
    assert stores[0].counts["copied"] == 8 * 8 * 18  # p.value[1] brings a window together


def test_blocks_of_structs_and_tables(session: Session) -> None:
    """Structs of windows in a table are blocks of samples again."""
    session.sql("CREATE TABLE kept AS SELECT window_start AS start, p FROM s [ROWS 20 SLIDE 20]")
    session.sql("CREATE STREAM again FROM TABLE kept ORDERED BY start RATE 100 HZ")
    found = _rows(session, "SELECT p, window_start FROM again [ROWS 30 SLIDE 30]")
    assert found == _rows(session, "SELECT p, window_start FROM s [ROWS 30 SLIDE 30]")
    rows = _rows(session, "SELECT p FROM again")
    assert [row["p"] for row in rows] == [_pair(k) for k in range(ROWS)]


def test_operators_of_users(session: Session) -> None:
    kept = []

    @session.operator({"total": "double", "last": "bigint"})
    def sums(state: Any, row: Any, emit: Any) -> None:
        emit(row.p["value"].sum(), row.p["time"][-1])

    @session.operator({"n": "bigint"})
    def keeps(state: Any, row: Any, emit: Any) -> None:
        kept.append(row.p["value"])
        emit(1)

    rows = _rows(session, "SELECT * FROM sums(TABLE s [ROWS 4 SLIDE 4]) AS x")
    assert (rows[1]["total"], rows[1]["last"]) == (33.0, 7)
    with pytest.raises(RunError, match="keeps the samples of a segment"):
        _rows(session, "SELECT * FROM keeps(TABLE s [ROWS 4 SLIDE 4]) AS x")


def test_the_words_of_a_timebase() -> None:
    """The times of all samples follow from the timebase, with gaps, phases and odd rates."""
    text = (
        "SELECT timebase(x) AS base, first_sample(x) AS first, timestamp_ns(x, 0) AS t,"
        " timestamp_ns(x, 1) AS u FROM (SELECT {x} AS x FROM s [ROWS 3 SLIDE 2])"
    )
    seen = set()
    for k in range(40):
        choice = random.Random(f"timebase {k}")
        case = random_case(choice)
        with cql.connect(spark=False) as session:
            case.declare(session, pushed=False)
            if Fraction(case.rate) > 1_000_000:
                continue
            for x in ("a", "resample(a, 3, 2)"):
                for row in _rows(session, text.format(x=x)):
                    base, first = row["base"], row["first"]
                    for i, time in enumerate((row["t"], row["u"])):
                        since = (first + i) * base["per"] + base["phase"]
                        assert base["origin"] + 10**9 * since // base["rate"] == time
                    seen.add(base["phase"] > 0)
    assert seen == {False, True}
