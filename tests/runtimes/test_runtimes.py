"""Runtimes, fusion and morsel sizes change no row and no order of rows. (``test_schedulers`` shows
the order in which each runtime calls operators.)"""

from __future__ import annotations

import datetime as dt
import itertools
from decimal import Decimal
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import cql
from cql.session.session import Session
from tests.support.runtime_queries import QUERIES, ROWS, open_session
from tests.support.runtimes import (
    ONE_THREAD,
    OPERATORS,
    ORDERED,
    RUNTIMES,
    Settings,
    apply,
    named,
    share,
)


@pytest.fixture(scope="module")
def session(seed: int) -> Session:
    return open_session(seed)


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("query", QUERIES)
def test_one_answer(session: Session, query: str, seed: int, full: bool) -> None:
    answers = {}
    parted = list(itertools.product((True, False), (1, 7, 65_536), ORDERED))
    chosen = [
        *itertools.product((True, False), (1, 7, 65_536), RUNTIMES[: len(ONE_THREAD)]),
        *share(parted, list(QUERIES).index(query), 6, seed, full=full),
    ]
    for fuse, rows, runtime in chosen:
        apply(session, {"fuse": fuse, "morsel_rows": rows}, runtime)
        run = session.sql(QUERIES[query])
        table = run.to_arrow()
        bad = run.bad_rows().num_rows
        late = run.late()
        pairs = late.filter(pc.equal(late["kind"], "pairs"))["count"].to_pylist()
        answers[named(runtime), fuse, rows] = (table, bad, pairs)
    expected = answers["depth_first", True, 65_536]
    assert expected[0].num_rows > 5
    different = [key for key, answer in answers.items() if not answer[0].equals(expected[0])]
    assert different == []
    assert [key for key, answer in answers.items() if answer[1:] != expected[1:]] == []


#: Aggregates whose rows can be subtracted again, and aggregates where this is impossible.
EXACT = """count(*) AS n, count(k) AS some, count_if(v > 50) AS many, sum(v) AS total,
    avg(CAST(v AS DECIMAL(9, 2))) AS mean, sum(v) FILTER (WHERE v > 90) AS few"""
OTHERS = """min(x) AS low, max(name) AS high, first(v) AS first, last(name) AS last,
    bool_or(v > 97) AS any, round(stddev(v), 9) AS spread"""
EVERY = f"{EXACT}, {OTHERS}"


@pytest.mark.slow
def test_all_operators_give_one_answer(session: Session) -> None:
    operators = [name for name in OPERATORS if name != "subtract"]
    one_answer(session, "RANGE 40 SLIDE 7", EVERY, operators)


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("window", ["RANGE 40 SLIDE 10", "RANGE 40 SLIDE 7", "RANGE 31 SLIDE 2"])
def test_what_can_be_subtracted_is(session: Session, window: str) -> None:
    one_answer(session, window, EXACT, ["wid", "subtract"])


def one_answer(session: Session, window: str, calls: str, operators: list[str]) -> None:
    """All ``operators`` give the same rows and late pairs. A late row is in only some windows of
    its pane, and every aggregate is merged."""
    text = f"""
        SELECT k, name, {calls}, window_end
        FROM a [{window} WA ts] WHERE v > 5 GROUP BY k, name"""
    session.set("fuse", True)
    answers, tables = [], []
    names = {name for settings in OPERATORS.values() for name in settings}
    before = {name: session.settings[name] for name in names}
    for operator in operators:
        for rows in (1, 7, 65_536):
            for name, value in {
                **before,
                **OPERATORS[operator],
                "runtime": "depth_first",
                "morsel_rows": rows,
            }.items():
                session.set(name, value)
            run = session.sql(text)
            table = run.to_arrow()
            tables.append((operator, table))
            late = run.late().to_pydict()["count"]
            answers.append((sorted(map(repr, table.to_pylist())), late))
    for name, value in before.items():
        session.set(name, value)
    for (one, table), (other, again) in pairwise(tables):
        if one == other != "adaptive":
            assert table.equals(again), "the order of rows depends on the morsels"
    assert answers[0][1][1] > 20
    assert all(answer == answers[0] for answer in answers)


@pytest.mark.parametrize("runtime", RUNTIMES, ids=named)
def test_one_row_without_from(session: Session, runtime: Settings) -> None:
    """The one row of a query without FROM ends like any input, so that an aggregate and a sort over
    it emit their result."""
    apply(session, runtime)
    assert session.sql("SELECT 1 + 1 AS n").to_arrow().to_pydict() == {"n": [2]}
    assert session.sql("SELECT count(*) AS n").to_arrow().to_pydict() == {"n": [1]}
    assert session.sql("SELECT 7 AS n ORDER BY n LIMIT 1").to_arrow().to_pydict() == {"n": [7]}


def test_values_of_every_type() -> None:
    text = """SELECT * FROM (VALUES
        (1, 2.5, 'a', true, TIMESTAMP '2024-01-01 00:00:00', DATE '2024-02-29', X'ff', -0.5D, 1Y),
        (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
        (3L, 10, 'b', 1 > 2, DATE '2024-01-02', DATE '1969-12-31', X'', 1 + 1, 2Y)
    ) AS v (i, d, s, b, t, day, raw, x, y)"""
    day = dt.date
    with cql.connect(False, morsel_rows=2) as session:
        rows = session.sql(text).to_arrow()
        assert list(zip(*rows.to_pydict().values(), strict=True)) == [
            (1, Decimal("2.5"), "a", True, dt.datetime(2024, 1, 1, tzinfo=dt.UTC),
             day(2024, 2, 29), b"\xff", -0.5, 1),
            (None,) * 9,
            (3, Decimal(10), "b", False, dt.datetime(2024, 1, 2, tzinfo=dt.UTC),
             day(1969, 12, 31), b"", 2.0, 2),
        ]  # fmt: skip
        session.sql("CREATE TABLE t (n BIGINT, s STRING)")
        session.sql("INSERT INTO t VALUES (1, 'x'), (2, NULL)")
        session.sql("INSERT INTO t (s) VALUES (upper('y'))")
        read = session.sql("SELECT * FROM t").to_arrow().to_pydict()
        assert read == {"n": [1, 2, None], "s": ["x", None, "Y"]}


def test_a_wide_query_compiles(session: Session) -> None:
    """80 columns that can fail, and a CASE of 90 branches: together they once took minutes to
    compile."""
    columns = ", ".join(f"v * {i} + ts AS c{i}" for i in range(80))
    branches = " ".join(f"WHEN v = {i} THEN {2 * i}" for i in range(90))
    query = f"SELECT ts, v, {columns}, CASE {branches} ELSE -1 END AS b FROM a"
    rows = session.sql(query).to_arrow().to_pylist()
    assert len(rows) == ROWS
    for row in rows:
        assert [row[f"c{i}"] for i in range(80)] == [row["v"] * i + row["ts"] for i in range(80)]
        assert row["b"] == (2 * row["v"] if row["v"] < 90 else -1)


@pytest.mark.auto_runtime
def test_small_results_of_a_bounded_query_leave_together() -> None:
    """Small results of bounded input are collected until they fill half a morsel. Results of
    unbounded input leave at once, and so do rows that pass by reference."""
    rows = [{"ts": i, "v": i} for i in range(1_000)]
    with cql.connect(False, morsel_rows=100) as session:
        session.create_stream("a", pa.Table.from_pylist(rows), ordered_by="ts")
        session.create_stream("live", lambda: iter(rows), ordered_by="ts", bounded=False)
        filtered = "SELECT v FROM {} WHERE v % 10 = 0"
        assert [b.num_rows for b in session.sql(filtered.format("a"))] == [50, 50]
        assert {b.num_rows for b in session.sql(filtered.format("live"))} == {10}
        assert [b.num_rows for b in session.sql("SELECT v FROM a")] == [100] * 10
