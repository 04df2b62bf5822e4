"""Signals that functions in FROM make (CONCAT, FILL, ZIP), in windows and as rows: random signals
against the slow model, in every runtime."""

from __future__ import annotations

import datetime as dt
import itertools
import math
import random
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import cql
from cql.dialect import parse_one
from cql.errors import CqlError
from cql.planner.bind.context import Context
from cql.planner.bind.statement import bind
from cql.planner.nodes.statements import Query as Bound
from cql.session.session import Session
from tests.reference.naive import evaluate
from tests.reference.naive_signals import NaiveRun, NaiveSignal, Row
from tests.support.catalog_tools import blocks_of_eight
from tests.support.results import results
from tests.support.runtimes import RUNTIMES, apply, named
from tests.support.signals.cases import Case, random_case

QUICK, FULL = 20, 2000
_MORSELS = (1, 2, 7, 4096)


@pytest.fixture
def session() -> Iterator[Session]:
    with cql.connect(spark=False) as made:
        yield made


def _cases(what: str, full: bool, seed: int) -> Iterator[tuple[random.Random, Case]]:
    for i in range(FULL if full else QUICK):
        choice = random.Random(f"{what} {seed + i}")
        yield choice, random_case(choice)


def _stored(case: Case) -> list[tuple[Any, ...]]:
    return [(time, *values) if case.timed else values for time, values in case.rows]


def _reference(
    session: Session, text: str, inputs: dict[str, list[tuple[Any, ...]]]
) -> list[tuple[Any, ...]]:
    """The rows that the reference interpreter gives, with segments as lists."""
    context = Context(views=session._named_queries())
    bound = bind(parse_one(text), session._catalog, context)
    assert isinstance(bound, Bound)
    rows = evaluate(bound.plan, inputs).rows
    return [tuple(list(v) if isinstance(v, tuple) else v for v in row) for row in rows]


def _check(
    session: Session,
    text: str,
    names: Sequence[str],
    signal: NaiveSignal,
    choice: random.Random,
    inputs: dict[str, list[tuple[Any, ...]]],
    time: str = "ts",
) -> dict[str, Any]:
    """Compares the windows and the rows of FROM ``text`` with those of the runs of ``signal``, and
    with the reference over ``inputs``; returns the metrics of the operator that makes the
    signal."""
    size = max(choice.choice((1, 4, 9)), math.ceil(signal.rate / 1_000_000))
    slide, rests = choice.choice((1, size, size + 2)), choice.random() < 0.6
    runtime, morsel = choice.choice(RUNTIMES), choice.choice(_MORSELS)
    session.sql("RESET")
    apply(session, runtime, {"morsel_rows": morsel})
    window = f"[ROWS {size} SLIDE {slide}{' WITH RESTS' if rests else ''}]"
    with blocks_of_eight() if choice.random() < 0.7 else nullcontext():
        query: Any = session.sql(f"SELECT * FROM {text} AS made {window}")
        found: pa.Table = query.to_arrow()
    where = f"{named(runtime)}, {morsel} rows, {text} {window}, {signal}"
    windows = list(signal.by_rows(size, slide, rests=rests))
    bounds = [found.column(f"window_{w}").cast(pa.int64()).to_pylist() for w in ("start", "end")]
    assert list(zip(*bounds, strict=True)) == [(w.start, w.end) for w in windows], where
    for k, name in enumerate(names):
        assert found[name].to_pylist() == [[r[1][k] for r in w.rows] for w in windows], where
    rows = session.sql(f"SELECT * FROM {text} AS made").to_arrow()
    samples = [row for run in signal.runs for row in run.rows]
    for k, name in enumerate(names):
        assert rows[name].to_pylist() == [row[1][k] for row in samples], where
    assert rows.column_names == [*([time] if signal.timed else []), *names]
    if signal.timed:
        times = rows[time].cast(pa.int64()).to_pylist()
        assert times == [
            run.time_of(n) // 1000 for run in signal.runs for n in range(run.first, run.last)
        ], where
        assert times == sorted(times)
    for each, table in (("", rows), (window, found)):
        columns = [c.cast(pa.int64()) if pa.types.is_timestamp(c.type) else c for c in table]
        made = list(zip(*(c.to_pylist() for c in columns), strict=True))
        assert _reference(session, f"SELECT * FROM {text} AS made {each}", inputs) == made, where
    metrics: list[dict[str, Any]] = query.metrics()
    word = text.split("(")[0].lower()
    return next(row for row in metrics if row["operator"].startswith(f"{word}#"))


# -- CONCAT ----------------------------------------------------------------------------------------


def test_random_concat(session: Session, full: bool, seed: int) -> None:
    for choice, case in _cases("concat", full, seed):
        case.declare(session, pushed=False)
        session.sql(f"CREATE OR REPLACE VIEW v AS SELECT * FROM s {case.window}")
        rows = [row for window in case.expected()[0] for row in window.rows]
        rate = Fraction(case.rate)
        signal = NaiveSignal(rate, False, runs=[NaiveRun(0, rate, 0, rows)] if rows else [])
        told = _check(session, "CONCAT(v)", case.names, signal, choice, {"s": _stored(case)})
        assert told["samples"] == len(rows)


def _parts(run: NaiveRun, kept: set[int]) -> Iterator[NaiveRun]:
    """The parts of a run whose rows have their ids in ``kept``."""
    numbered = enumerate(run.rows, run.first)
    for has, rows in itertools.groupby(numbered, lambda at: id(at[1]) in kept):
        part = list(rows)
        if has:
            yield NaiveRun(part[0][0], run.rate, run.origin, [row for _, row in part])


def test_random_signal(session: Session, full: bool, seed: int) -> None:
    """Windows at their own times: those that overlap have each sample once, and what lies between
    those that are apart is a gap."""
    for choice, case in _cases("signal", full, seed):
        case.declare(session, pushed=False)
        session.sql(f"CREATE OR REPLACE VIEW v AS SELECT * FROM s {case.window}")
        windows, given = case.expected()
        inside = [id(row) for window in windows for row in window.rows]
        kept = set(inside)
        signal = NaiveSignal(Fraction(case.rate), True)
        for run in given.runs:
            signal.runs += _parts(run, kept)
        inputs = {"s": _stored(case)}
        told = _check(session, "SIGNAL(v)", case.names, signal, choice, inputs, "time")
        assert told["samples"] == len(kept)
        assert told["overlapping"] == len(inside) - len(kept)


def test_silence_filter(session: Session) -> None:
    """The sound of loud ranges, as one signal; its other columns are left out."""
    x = np.random.default_rng(3).integers(-1000, 1000, 600).astype(np.int16)
    x[100:300] //= 100
    session.create_stream("audio", pa.table({"l": x, "r": -x}), rate=44_100)
    session.sql(
        "CREATE VIEW spoken AS SELECT a.l, loud.window_start AS at, a.r * 2 AS r"
        " FROM (SELECT window_start, window_end FROM audio [ROWS 50 SLIDE 50]"
        " WHERE stddev(l) > 50) AS loud, audio AS a"
        " WHERE a.time >= loud.window_start AND a.time < loud.window_end"
    )
    query: Any = session.sql(
        "SELECT l, r, timestamp_ns(l) AS ns FROM CONCAT(spoken) AS s [ROWS 64 SLIDE 64 WITH RESTS]"
    )
    expected = np.r_[x[:100], x[300:]]
    found = query.to_arrow()
    assert np.concatenate(found["l"].to_pylist()).tolist() == expected.tolist()
    assert np.concatenate(found["r"].to_pylist()).tolist() == (-2.0 * expected).tolist()
    assert found["ns"].to_pylist() == [64 * k * 10**9 // 44_100 for k in range(7)]
    ranges: Any = session.sql(
        "SELECT s.l FROM (SELECT window_start AS t FROM audio [ROWS 100 SLIDE 100]) AS d,"
        " CONCAT(spoken) AS s"
        " WHERE s.time >= d.t AND s.time < d.t + INTERVAL 1 MILLISECOND"
    )
    assert [len(v) for v in ranges.to_arrow()["l"].to_pylist()] == [45] * 4
    assert "as a signal of 44,100 Hz without gaps" in str(
        session.sql("EXPLAIN SELECT l FROM CONCAT(spoken) AS s [ROWS 64 SLIDE 64]")
    )


def test_segments_at_another_rate(session: Session) -> None:
    """Their signal has that rate: its windows and times do."""
    session.create_stream("s", pa.table({"x": np.arange(400, dtype=np.int16)}), rate=100)
    session.sql(
        "CREATE VIEW slow AS SELECT resample(x, 1, 4) AS y FROM s [ROWS 80 SLIDE 80];"
        " CREATE VIEW fast AS SELECT x * 1 AS x, resample(y, 8, 2) AS y"
        " FROM (SELECT x, resample(x, 1, 4) AS y FROM s [ROWS 80 SLIDE 80]) AS w"
    )
    second = results(session, "SELECT y FROM CONCAT(slow) AS c [RANGE 1 SECOND SLIDE 1 SECOND]")
    parts = results(session, "SELECT y FROM slow")
    joined = [v for (part,) in parts for v in part]
    assert [len(y) for (y,) in second] == [25] * 4
    assert [v for (y,) in second for v in y] == joined
    told = results(session, "SELECT count(x), count(y) FROM CONCAT(fast) AS c [ROWS 400 SLIDE 400]")
    assert told == [(400, 400)]


def test_a_filter_in_time(session: Session) -> None:
    """A signal of windows at a quarter of the rate, in which windows and ranges are at the times of
    the first signal."""
    times = np.r_[0:400, 700:1100] * 10_000
    table = pa.table({"ts": pa.array(times, pa.timestamp("us")), "x": np.arange(800)})
    session.create_stream("s", table, rate=100, ordered_by="ts")
    session.sql("CREATE VIEW slow AS SELECT resample(x, 1, 4) AS y, x FROM s [ROWS 40 SLIDE 40];"
                " CREATE VIEW y AS SELECT y FROM slow")  # fmt: skip
    windows = results(
        session,
        "SELECT window_start, timestamp_ns(y, 1) AS t, size(y) AS n FROM SIGNAL(y) AS c"
        " [ROWS 30 SLIDE 30 WITH RESTS]",
    )
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    begins = [epoch + dt.timedelta(seconds=s) for s in (0, 1.2, 2.4, 3.6, 7, 8.2)]
    assert [row[0] for row in windows[:6]] == begins
    assert [row[2] for row in windows] == [30, 30, 30, 10] * 2
    assert [row[1] for row in windows[:5]] == [10**9 * 7 // 175 + 10**6 * t for t in
                                               (0, 1200, 2400, 3600, 7000)]  # fmt: skip
    filled = results(session, "SELECT count(*) FROM (SELECT * FROM SIGNAL(y) AS c"
                              " WHERE time >= TIMESTAMP '1970-01-01 00:00:07') AS w")  # fmt: skip
    assert filled[-1][0] == 100
    with pytest.raises(CqlError, match="SIGNAL of y and x, which have different rates"):
        session.sql("SELECT * FROM SIGNAL(slow) AS c [ROWS 4 SLIDE 4]")


def test_channels_at_different_times(session: Session) -> None:
    session.create_stream("s", pa.table({"x": np.arange(90)}), rate=10)
    session.sql("CREATE VIEW v AS SELECT x, subseg(x, 1, 5) AS later, subseg(x, 0, 5) AS same"
                " FROM s [ROWS 9 SLIDE 9]; CREATE VIEW w AS SELECT same, later FROM v")  # fmt: skip
    with pytest.raises(CqlError, match=r"later begins \+100,000,000 ns from same"):
        session.sql("SELECT * FROM SIGNAL(w) AS c [ROWS 4 SLIDE 4]").to_arrow()
    with pytest.raises(CqlError, match="takes as many samples of each channel"):
        session.sql("SELECT * FROM SIGNAL(v) AS c [ROWS 4 SLIDE 4]").to_arrow()


# -- FILL ------------------------------------------------------------------------------------------


def _between(kind: str, before: Any, behind: Any, part: int, n: int, linear: bool) -> Any:
    if not linear:
        return before
    exact = float(before) + (float(behind) - float(before)) * part / (n + 1)
    if kind.startswith("float"):
        return float(np.dtype(kind).type(exact))
    low, high = min(before, behind), max(before, behind)
    return high if exact >= float(high) else low if exact <= float(low) else round(exact)


def _filled(case: Case, signal: NaiveSignal, longest: int, linear: bool) -> tuple[int, int]:
    """Fills the gaps of ``signal``; returns how many were filled and how many were left."""
    made, due, filled, left = list[NaiveRun](), 0, 0, 0
    for run in signal.runs:
        begins, late = run.time_of(run.first), 0
        if made and begins > due:  # else the run goes on
            late = max(begins - made[-1].time_of(made[-1].last), 0)
        n = math.floor(late * signal.rate / 1_000_000_000 + Fraction(1, 2))
        due = run.time_of(run.last)
        if not made or n > longest:
            left += bool(made)
            made.append(NaiveRun(run.first, run.rate, run.origin, list(run.rows)))
            continue
        filled += n > 0
        pair = made[-1].rows[-1][1], run.rows[0][1]
        for k in range(1, n + 1):
            ends = zip(case.types, *pair, strict=True)
            values = tuple(_between(kind, a, b, k, n, linear) for kind, a, b in ends)
            made[-1].rows.append((None, values))
        made[-1].rows += run.rows
    signal.runs = made
    return filled, left


def test_random_fill(session: Session, full: bool, seed: int) -> None:
    for choice, case in _cases("fill", full, seed):
        if not case.timed:
            continue
        case.declare(session, pushed=False)
        signal, linear = case.expected()[1], choice.random() < 0.6
        longest = choice.choice((1, 2, 60, 1000))
        period = 1_000_000 / Fraction(case.rate)
        gap = math.ceil(longest * period)
        counts = _filled(case, signal, int(gap / period), linear)
        text = f"FILL(s, '{'linear' if linear else 'prev'}', INTERVAL {gap} MICROSECONDS)"
        told = _check(session, text, case.names, signal, choice, {"s": _stored(case)})
        assert (told["filled"], told["left"]) == counts


def test_filled_gaps_do_not_add_up(session: Session) -> None:
    """The times of samples behind many filled gaps are at most half a period off."""
    steps = [10] * 4 + [26, 24, 26, 26, 33, 10, 14, 26] * 12  # 10 Hz; in hundredths of a second
    times = np.cumsum(steps) * 10_000
    table = pa.table({"ts": pa.array(times, pa.timestamp("us")), "k": np.arange(len(times))})
    session.create_stream("g", table, rate=10, ordered_by="ts", tolerance="20 ms")
    text = "SELECT ts, k FROM FILL(g, 'prev', INTERVAL 1 SECOND)"
    found: pa.Table = session.sql(text).to_arrow()
    at, k = found["ts"].cast(pa.int64()).to_numpy(), found["k"].to_numpy()
    assert set(np.diff(at)) == {100_000}
    first = np.r_[0, np.flatnonzero(np.diff(k)) + 1]
    assert np.abs(at[first] - times[k[first]]).max() <= 50_000


def test_rows_of_made_signals(session: Session) -> None:
    """They are rows as those of any stream, with a watermark on their times; a signal of them is
    one, too."""
    times = np.r_[0:10, 13:20, 50:55] * 100_000
    table = pa.table({"ts": pa.array(times, pa.timestamp("us")), "z": np.arange(22)})
    session.create_stream("g", table, rate=10, ordered_by="ts")
    fill = "FILL(g, 'prev', INTERVAL 1 SECOND)"
    session.sql("CREATE VIEW v AS SELECT z, z + 0.5 AS y FROM g [ROWS 3 SLIDE 4]")
    z = [*range(10), 9, 9, 9, *range(10, 22)]
    runs = [z[:20], z[20:]]
    for rows in (1, 4, 4096):
        session.set("morsel_rows", rows)
        by_second = f"SELECT sum(z), count(*) FROM {fill} AS f GROUP BY date_trunc('second', ts)"
        assert sorted(results(session, by_second)) == [(45, 10), (95, 5), (118, 10)]
        ordered = f"SELECT z FROM {fill} WHERE z % 2 = 1 ORDER BY ts, z LIMIT 7"
        assert results(session, ordered) == [(k,) for k in (1, 3, 5, 7, 9, 9, 9)]
        differences = f"SELECT fir(z, 1, -1) AS d FROM {fill} AS f"
        assert results(session, differences) == [
            (float(b - a),) for run in runs for a, b in zip([0, *run], run, strict=False)
        ]
        again = f"SELECT d FROM (SELECT z * 2 AS d, ts FROM {fill} AS f) AS x [ROWS 5 SLIDE 5]"
        assert results(session, again) == [
            ([2 * k for k in run[at : at + 5]],) for run in runs for at in range(0, len(run), 5)
        ]
        parts = (*range(3), *range(4, 7), *range(10, 13), *range(14, 20))
        concatenated = [(k, k + 0.5) for k in parts]
        assert results(session, "SELECT * FROM CONCAT(v)") == concatenated
        windows = "SELECT d FROM (SELECT z * 2 AS d FROM CONCAT(v) AS c) AS x [ROWS 4 SLIDE 4]"
        assert results(session, windows) == [
            ([2 * k for k, _ in concatenated[at : at + 4]],) for at in (0, 4, 8)
        ]
    assert "a row for each sample of the segments, at the times of ts" in str(
        session.sql(f"EXPLAIN SELECT z FROM {fill} AS f")
    )


# -- ZIP -------------------------------------------------------------------------------------------


def _zipped(one: NaiveSignal, other: NaiveSignal) -> NaiveSignal:
    """A sample of ``one`` with the nearest of ``other``."""
    made = NaiveSignal(one.rate, one.timed)
    half = int(500_000_000 / one.rate)
    through = dict.fromkeys(range(len(other.runs)), 0)
    for run in one.runs:
        done, opened = run.first, False
        for k, beside in enumerate(other.runs):
            exact = (run.time_of(0) - half - beside.origin) * one.rate / 1_000_000_000
            shift = math.floor(exact) - 2
            while beside.time_of(shift) < run.time_of(0) - half:
                shift += 1
            first = max(done, beside.first - shift, through[k])
            last = min(run.last, beside.last - shift)
            if first >= last:
                continue
            rows: list[Row] = [
                (None, run.rows[i - run.first][1] + beside.rows[i + shift - beside.first][1])
                for i in range(first, last)
            ]
            if opened and made.runs[-1].last == first:
                made.runs[-1].rows += rows
            else:
                made.runs.append(NaiveRun(first, run.rate, run.origin, rows))
            done, opened = last, True
            through[k] = 0
            beside.rows = beside.rows[last + shift - beside.first :]
            beside.first = last + shift
    return made


def test_random_zip(session: Session, full: bool, seed: int) -> None:
    for choice, case in _cases("zip", full, seed):
        case.tolerance = None
        beside = random_case(choice)
        while (beside.timed, beside.rate) != (case.timed, case.rate):
            beside = random_case(choice)
        beside.tolerance = None
        times = [[t for t, _ in c.rows if t is not None] for c in (case, beside)]
        if all(times):  # both begin at about the same time
            moved = times[0][0] - times[1][0] + int(
                choice.choice((0, 0.3, -3.2, 7)) * 1_000_000 / Fraction(case.rate)
            )  # fmt: skip
            beside.rows = [(t if t is None else t + moved, row) for t, row in beside.rows]
        beside.declare(session, pushed=False)
        names = [f"{n}2" for n in beside.names]
        columns = (["ts AS ts2"] if case.timed else []) + [
            f"{a} AS {b}" for a, b in zip(beside.names, names, strict=True)
        ]
        table = beside.table
        renamed = table.rename_columns([c.split(" AS ")[1] for c in columns])
        order: Any = {"ordered_by": "ts2"} if case.timed else {}
        session.create_stream("s2", renamed, rate=float(case.rate), **order, replace=True)
        case.declare(session, pushed=False)
        signal = _zipped(case.expected()[1], beside.expected()[1])
        inputs = {"s": _stored(case), "s2": _stored(beside)}
        told = _check(session, "ZIP(s, s2)", [*case.names, *names], signal, choice, inputs)
        paired = sum(len(run.rows) for run in signal.runs)
        assert told["left_alone"] == case.expected()[1].samples - paired
        assert told["right_alone"] == beside.expected()[1].samples - paired


@pytest.mark.parametrize(
    ("text", "stepwise"),
    [
        (
            "SELECT * FROM ZIP(a, b, c) AS z {w}",
            "WITH ab AS (SELECT * FROM ZIP(a, b) AS z) SELECT * FROM ZIP(ab, c) AS z {w}",
        ),
        (
            "SELECT * FROM ZIP(a, FILL(b, 'prev', {gap})) AS z {w}",
            "WITH f AS (SELECT * FROM FILL(b, 'prev', {gap}) AS f)"
            " SELECT * FROM ZIP(a, f) AS z {w}",
        ),
        (
            "SELECT * FROM FILL(ZIP(a, b), 'linear', {gap}) AS f",
            "WITH z AS (SELECT * FROM ZIP(a, b) AS z) SELECT * FROM FILL(z, 'linear', {gap}) AS f",
        ),
        (
            "WITH v AS (SELECT x FROM a [ROWS 3 SLIDE 3]) SELECT * FROM GAPS(SIGNAL(v)) AS g",
            "WITH v AS (SELECT x FROM a [ROWS 3 SLIDE 3]), s AS (SELECT * FROM SIGNAL(v) AS s)"
            " SELECT * FROM GAPS(s) AS g",
        ),
    ],
)
def test_inside_one_another(session: Session, text: str, stepwise: str) -> None:
    times = np.r_[0:20, 25:40, 60:80]
    for k, name in enumerate("abc"):
        own = pa.array(times[times % (11 + k) != 0] * 100_000, pa.timestamp("us"))
        table = pa.table({f"t{name}": own, "xyz"[k]: np.arange(len(own))})
        session.create_stream(name, table, rate=10, ordered_by=f"t{name}")
    given = {"w": "[ROWS 3 SLIDE 3 WITH RESTS]", "gap": "INTERVAL 1 SECOND"}
    found, known = (
        session.sql(each.format(**given)).to_arrow().to_pylist() for each in (text, stepwise)
    )
    assert len(found) > 3
    assert found == known


# -- what is refused -------------------------------------------------------------------------------

_W = "[ROWS 4 SLIDE 4]"


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        (f"SELECT * FROM CONCAT(a) AS c {_W}", "takes rows with segments, and a has none", "a"),
        (f"SELECT * FROM CONCAT(a, b) AS c {_W}", "CONCAT takes the name of a view", "CONCAT"),
        (f"SELECT * FROM SIGNAL(a) AS c {_W}", "SIGNAL takes rows with segments, and a has", "a"),
        (f"SELECT * FROM SIGNAL(spectra) AS c {_W}", "SIGNAL of f, whose samples are those", ""),
        (f"SELECT * FROM SIGNAL(named) AS c {_W}", "SIGNAL has a column time with the times", ""),
        (f"SELECT * FROM CONCAT(spectra) AS c {_W}", "CONCAT of f, whose samples are those", ""),
        (f"SELECT * FROM CONCAT(maybe) AS c {_W}", "CONCAT of x, which may be NULL,", ""),
        (f"SELECT * FROM CONCAT(nothing) AS c {_W}", "there is no stream or table nothing", ""),
        (f"SELECT * FROM FILL(a, 'prev') AS c {_W}", "FILL takes the name of a signal, a", ""),
        (f"SELECT * FROM FILL(a, 'best', INTERVAL 1 SECOND) AS c {_W}", "FILL fills with", ""),
        (f"SELECT * FROM FILL(a, 'prev', 3) AS c {_W}", "gap that FILL fills is an interval", "3"),
        (f"SELECT * FROM FILL(a, 'prev', INTERVAL 1 MILLISECOND) AS c {_W}", "here 0", ""),
        (f"SELECT * FROM FILL(a, 'prev', INTERVAL 9999999 SECOND) AS c {_W}", "here 99,999,9", ""),
        (f"SELECT * FROM FILL(plain, 'prev', INTERVAL 1 SECOND) AS c {_W}", "plain has none", ""),
        (f"SELECT * FROM FILL(v, 'prev', INTERVAL 1 SECOND) AS c {_W}", "FILL takes a signal", ""),
        (f"SELECT * FROM ZIP(a, fast) AS c {_W}", "one rate: a has 10 Hz, fast 20 Hz", "fast"),
        (f"SELECT * FROM ZIP(a, plain) AS c {_W}", "a has times, plain has none", "plain"),
        (f"SELECT * FROM ZIP(a, a) AS c {_W}", "both signals of ZIP have a column x", "a"),
    ],
)  # fmt: skip
def test_refused(text: str, message: str, place: str, session: Session) -> None:
    times = pa.array(np.arange(9) * 100_000, pa.timestamp("us"))
    for name, column, rate in (("a", "x", 10), ("b", "y", 10), ("fast", "z", 20)):
        table = pa.table({"ts": times, column: np.arange(9)})
        session.create_stream(name, table, rate=rate, ordered_by="ts")
    session.create_stream("plain", pa.table({"p": np.arange(9)}), rate=10)
    session.sql("CREATE VIEW v AS SELECT x FROM a [ROWS 3 SLIDE 3]")
    session.sql("CREATE VIEW spectra AS SELECT fft(x) AS f FROM a [ROWS 3 SLIDE 3]")
    session.sql("CREATE VIEW named AS SELECT x AS Time FROM a [ROWS 3 SLIDE 3]")
    session.sql("CREATE VIEW maybe AS SELECT nullif(max(x), 3) AS m,"
                " CASE WHEN max(x) > 3 THEN x END AS x FROM a [ROWS 3 SLIDE 3]")  # fmt: skip
    with pytest.raises(CqlError) as caught:
        session.sql(text).to_arrow()
    assert message in caught.value.message
    at = caught.value.position
    assert at is not None
    if place:
        assert text[at.column - 1 : at.column - 1 + len(place)] == place


def test_rows_that_do_not_fit(session: Session) -> None:
    table = pa.table({"x": np.arange(90), "y": np.arange(90)})
    session.create_stream("s", table, rate=10)
    session.sql("CREATE VIEW v AS SELECT x, subseg(y, 0, size(x) - 1) AS y FROM s [ROWS 9 SLIDE 9]")
    with pytest.raises(CqlError, match=r"a row has 9 of x and 8 of y"):
        session.sql(f"SELECT * FROM CONCAT(v) AS c {_W}").to_arrow()
    times = pa.array(np.arange(9) * 100_000, pa.timestamp("us"))
    later = pa.array(np.arange(9) * 100_000 + 3_000, pa.timestamp("us"))
    for name, column, at in (("a", "k", times), ("b", "m", later)):
        table = pa.table({"ts" + column: at, column: np.arange(9)})
        session.create_stream(name, table, rate=10, ordered_by="ts" + column, tolerance="2 ms")
    with pytest.raises(CqlError, match=r"3,000 microseconds apart, more than their TOLERANCE of"):
        session.sql(f"SELECT * FROM ZIP(a, b) AS c {_W}").to_arrow()
