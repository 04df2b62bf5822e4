"""Session windows: every interleaving of the inputs gives the sessions of the reference, in bounded
memory; rows in order give DuckDB's sessions."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any, cast

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import cql
from cql.dialect import parse_one
from cql.errors import CqlError
from cql.executor.operators.stage.session_windows import SessionOperator
from cql.planner.bind.context import Context
from cql.planner.bind.statement import bind
from cql.planner.nodes.catalog import Catalog, Progress, Relation, StreamSpec
from cql.planner.nodes.statements import Query as Bound
from tests.reference.naive import evaluate
from tests.reference.naive_compare import assert_same
from tests.reference.naive_rows import Answer
from tests.reference.naive_sessions import Point, linked, sessions
from tests.reference.naive_tables import NaiveRelation, fields_of
from tests.support.operator_tools import (
    Admissions,
    Recorder,
    admit_all,
    graph_of,
    plan_of,
    refresh,
    runtime_of,
    session_over,
    workspace_of,
)

pytestmark = pytest.mark.usefixtures("shared_kernels")

COLUMNS = "ts bigint, k int, v bigint"
QUERY = """
    SELECT k, count(*) AS n, sum(v) AS total, first(v) AS f, last(v) AS l, min(v) AS low,
           window_start, window_end
    FROM {source} [SESSION {gap}, WA ts] GROUP BY k"""
#: Aggregates that keep all values of a session.
VALUES = """
    SELECT k, count(DISTINCT v % 5) AS n, sum(DISTINCT v % 7) AS total, mode(v % 3) AS o,
           first(v) AS f, last(v) AS l, median(v) AS m, array_agg(v ORDER BY v DESC) AS a,
           avg(DISTINCT v) FILTER (WHERE v % 2 = 0) AS e, window_start, window_end
    FROM {source} [SESSION {gap}, WA ts] GROUP BY k"""
#: Lists and different values, which kernels compute; HAVING reads one of the results.
LISTS = """
    SELECT k, array_agg(v) AS a, collect_set(v % 5) AS s, collect_set(v % 4) AS t,
           array_agg(v % 4) AS u, count(DISTINCT v % 4) AS n, collect_set(v % 3 = 0) AS b,
           array_agg(DISTINCT CAST(v % 6 AS DOUBLE) / 4) AS d, window_start, window_end,
           sum(DISTINCT CAST(v % 6 AS DOUBLE) / 4) AS e, collect_set(CAST(v % 9 AS TINYINT)) AS i,
           array_agg(CAST(v AS FLOAT) / 4) FILTER (WHERE v % 2 = 0) AS r
    FROM {source} [SESSION {gap}, WA ts] GROUP BY k
    HAVING collect_set(v % 3) IS NOT NULL AND count(DISTINCT v % 4) < 4"""
ASKED = pytest.mark.parametrize("asked", [QUERY, VALUES, LISTS], ids=["sums", "values", "lists"])


class _Catalog:
    def __init__(self, slacks: dict[str, int]) -> None:
        self._relations = {
            name: NaiveRelation((name,), fields_of(COLUMNS), StreamSpec((Progress("ts", slack),)))
            for name, slack in slacks.items()
        }

    def find(self, name: tuple[str, ...]) -> Relation | None:
        return self._relations.get(name[-1])

    def names(self) -> list[tuple[str, ...]]:
        return [(name,) for name in self._relations]


Rows = list[tuple[int, int | None, int]]


def reference(text: str, slacks: dict[str, int], rows: dict[str, Rows]) -> tuple[Answer, Any]:
    bound = bind(parse_one(text), cast(Catalog, _Catalog(slacks)), Context())
    assert isinstance(bound, Bound)
    return evaluate(bound.plan, rows), bound.plan


def as_table(rows: Rows) -> pa.Table:
    types = (pa.int64(), pa.int32(), pa.int64())
    columns = zip(*rows, strict=True) if rows else ((), (), ())
    arrays = [pa.array(c, t) for c, t in zip(columns, types, strict=True)]
    return pa.table(arrays, names=["ts", "k", "v"])


def random_rows(rng: random.Random, count: int) -> Rows:
    """Rows that are dense enough to join sessions; some rows lag far behind."""
    time, rows = rng.randint(-50, 50), []
    for i in range(count):
        time += rng.choice((0, 1, 1, 2, 3, 9, 30))
        behind = rng.choice((0, 0, 0, 2, 5, 12, 25, 60))
        rows.append((time - behind, rng.choice((None, 0, 1, 2)), i))
    return rows


@pytest.mark.sampled
@pytest.mark.parametrize("count", [1, 2, 3])
@ASKED
def test_unions_of_uneven_watermarks_equal_the_reference(
    asked: str, count: int, seed: int, full: bool
) -> None:
    rng = random.Random(f"sessions {count} {seed}")
    # the order of a list depends on the replay order of several streams
    names = list("abc")[: 1 if asked is LISTS else count]
    for _ in range(400 if full else 15):
        gap = rng.choice((1, 3, 8, 20))
        slacks = {name: rng.choice((0, 0, 3, 15)) for name in names}
        rows = {name: random_rows(rng, rng.choice((0, 3, 30, 90))) for name in names}
        text = asked.format(source=" UNION ".join(names) + " AS u", gap=gap)
        if count > 1:  # so do first and last
            text = text.replace("first(v) AS f, last(v) AS l, ", "")
        answer, plan = reference(text, slacks, rows)
        with cql.connect(
            morsel_rows=rng.choice((1, 2, 7, 64)),
            runtime=rng.choice(("depth_first", "fifo", "fifo_slice", "run_to_completion")),
            fuse=rng.random() < 0.5,
        ) as session:
            for name in names:
                table = as_table(rows[name])
                session.create_stream(name, table, ordered_by="ts", slack=slacks[name])
            query = session.sql(text)
            assert_same(answer, query.to_arrow(), plan)
            late = [e["count"] for e in query.late().to_pylist() if e["kind"] == "pairs"]
            assert sum(late) == answer.late_pairs


def test_any_interleaving_of_the_inputs_gives_the_same_sessions(seed: int) -> None:
    """The runtime reads the input that is furthest behind; operators must not rely on this
    order."""
    rng = random.Random(f"interleaved sessions {seed}")
    for _ in range(20):
        tables = {name: as_table(random_rows(rng, 60)) for name in "ab"}
        text = "SELECT k, count(*) AS n, sum(v) AS v, window_start, window_end FROM a UNION b AS u"
        plan = plan_of(session_over(tables, slack=4), f"{text} [SESSION 8, WA ts] GROUP BY k")
        answers = []
        for order in range(6):
            workspace = workspace_of(rng.choice((1, 5, 64)))
            graph = graph_of(plan.root, workspace)
            admissions = Admissions.of(plan.root, workspace, order)
            recorder = Recorder(graph.schemas[graph.sinks[0]], workspace.dictionary)
            refresh(graph)
            runtime = runtime_of("depth_first", graph, recorder, workspace)
            admit_all(runtime, graph, admissions.morsels)
            late = [op.counters()["late_pairs"] for op in graph.operators if "agg" in op.name]
            answers.append((sorted(map(repr, recorder.rows)), late))
        assert all(answer == answers[0] for answer in answers)


def test_they_leave_by_end_and_first_contribution() -> None:
    """The order does not depend on the morsel size."""
    rows: Rows = [(5, 1, 1), (5, 0, 2), (1, 2, 3), (9, 0, 4), (9, 1, 5), (9, None, 6), (40, 0, 7)]
    answers = set()
    for morsel in (1, 2, 64):
        with cql.connect(morsel_rows=morsel) as session:
            session.create_stream("s", as_table(rows), ordered_by="ts", slack=10)
            answers.add(str(session.sql(QUERY.format(source="s", gap=4)).to_arrow().to_pydict()))
    (answer,) = answers
    assert "'k': [2, 1, 0, None, 0]" in answer
    assert "'window_end': [5, 13, 13, 13, 44]" in answer


def test_a_row_that_comes_late_joins_two_sessions() -> None:
    rows: Rows = [(0, 1, 1), (20, 1, 2), (10, 1, 4)]
    with cql.connect() as session:
        session.create_stream("s", as_table(rows), ordered_by="ts", slack=20)
        answer = session.sql(QUERY.format(source="s", gap=10)).to_arrow().to_pylist()
    assert [(r["n"], r["total"], r["window_start"], r["window_end"]) for r in answer] == [
        (3, 7, 0, 30)
    ]


@pytest.mark.parametrize("case", range(30))
def test_sessions_of_a_group_do_not_overlap(case: int) -> None:
    """The operator's chain of sessions relies on this property; the test checks the definition."""
    rng = random.Random(f"overlap {case}")
    gap, mark, points = rng.choice((2, 5, 9)), 0, list[Point]()
    for _ in range(25):
        mark += rng.randint(0, 4)
        time = mark + rng.randint(1 - gap, 6)
        points.append((time, mark))
    rng.shuffle(points)
    spans = sorted((start, end - gap) for start, end, _ in sessions(points, gap))
    assert all(a[1] < b[0] for a, b in pairwise(spans))
    for a in points:  # if linked, b's end is not below a's row watermark
        for b in points:
            assert not linked(a, b, gap) or b[0] + gap >= (a[1] or 0)


@pytest.mark.sampled
@ASKED
def test_keys_and_sessions_without_end_take_bounded_memory(asked: str) -> None:
    def state(rows: int) -> tuple[int, SessionOperator]:
        ts = np.arange(rows, dtype=np.int64)
        data = pa.table({"ts": ts, "k": pa.array(ts, pa.int64()), "v": ts})
        plan = plan_of(session_over({"a": data}), asked.format(source="a", gap=50))
        workspace = workspace_of(64)
        graph = graph_of(plan.root, workspace)
        admissions = Admissions.of(plan.root, workspace, 0)
        recorder = Recorder(graph.schemas[graph.sinks[0]], workspace.dictionary)
        admit_all(runtime_of("depth_first", graph, recorder, workspace), graph, admissions.morsels)
        assert len(recorder.rows) == rows
        (operator,) = (op for op in graph.operators if isinstance(op, SessionOperator))
        return operator.nbytes, operator

    small, _ = state(2_000)
    large, operator = state(40_000)
    assert small == large
    assert operator.scalars()["open"] == 0
    assert not operator.state["index"].any()


@pytest.mark.parametrize("seed_", range(5))
def test_rows_in_order_give_duckdbs_sessions(seed_: int) -> None:
    rng = random.Random(f"duckdb sessions {seed_}")
    rows = sorted(random_rows(rng, 500), key=lambda row: row[0])
    gap = rng.choice((1, 3, 8))
    table = as_table(rows)
    with cql.connect() as session:
        session.create_stream("s", table, ordered_by="ts")
        text = QUERY.format(source="s", gap=gap).replace("first(v) AS f, last(v) AS l, ", "")
        mine = session.sql(text).to_arrow()
    connection = duckdb.connect()
    connection.register("s", table)
    theirs = connection.sql(f"""
        WITH marked AS (SELECT *, coalesce(ts - lag(ts) OVER w > {gap}, true)::int AS begins
                        FROM s WINDOW w AS (PARTITION BY k ORDER BY ts)),
        numbered AS (SELECT *, sum(begins) OVER (PARTITION BY k ORDER BY ts) AS number FROM marked)
        SELECT k, count(*) AS n, sum(v)::bigint AS total, min(v) AS low, min(ts) AS window_start,
               max(ts) + {gap} AS window_end
        FROM numbered GROUP BY k, number""").to_arrow_table()
    assert sorted(map(repr, mine.to_pylist())) == sorted(map(repr, theirs.to_pylist()))


SPELLINGS = (
    "FROM s [SESSION 10 SECONDS] GROUP BY k",
    "FROM s [SESSION 10 SECONDS, WA ts] GROUP BY k",
    "FROM s GROUP BY k, session_window(ts, '10 seconds')",
    "FROM s GROUP BY k, SESSION(ts, INTERVAL '10' SECOND)",
    "FROM TABLE(SESSION(TABLE s PARTITION BY k, DESCRIPTOR(ts), INTERVAL '10' SECOND))"
    " GROUP BY k, window_start, window_end",
)


@pytest.mark.parametrize("tail", SPELLINGS)
def test_every_spelling_is_the_same_window(tail: str) -> None:
    seconds = [0, 10, 21, 3]
    ts = pa.array([s * 1_000_000 for s in seconds], pa.timestamp("us", "UTC"))
    table = pa.table({"ts": ts, "k": ["a", "a", "a", "b"]})
    with cql.connect() as session:
        session.create_stream("s", table, ordered_by="ts", slack="30 seconds")
        answer = session.sql(f"SELECT k, count(*) AS n, window_time {tail}").to_arrow()
    ends = [t.timestamp() for t in answer["window_time"].to_pylist()]
    assert list(zip(answer["k"].to_pylist(), answer["n"].to_pylist(), ends, strict=True)) == [
        ("b", 1, 12.999999),
        ("a", 2, 19.999999),
        ("a", 1, 30.999999),
    ]


def test_dates() -> None:
    days = pa.array([10, 12, 15, 19], pa.int32()).cast(pa.date32())
    with cql.connect() as session:
        session.create_stream("s", pa.table({"d": days}), ordered_by="d")
        text = "SELECT count(*) AS n, window_start AS a, window_end AS b FROM s [SESSION 3 DAYS]"
        answer = session.sql(text).to_arrow()
    assert answer["n"].to_pylist() == [3, 1]
    assert answer["b"].cast(pa.int32()).to_pylist() == [18, 22]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT k FROM s [SESSION 10, WA ts]", "a session window needs an aggregate over it"),
        ("SELECT count(*) FROM s [SESSION 0, WA ts]", "longer than zero"),
        ("SELECT count(*) FROM s [SESSION 1.5, WA ts]", "not a whole number"),
        (
            "SELECT k, count(*) FROM TABLE(SESSION(TABLE s, DESCRIPTOR(ts), 10))"
            " GROUP BY k, window_start",
            "sessions with no PARTITION BY under GROUP BY of other columns",
        ),
        (
            "SELECT * FROM TABLE(SESSION(TABLE s PARTITION BY k, DESCRIPTOR(ts), 10))",
            "a session window needs an aggregate over it",
        ),
        (
            "SELECT n, count(*) FROM (SELECT count(*) AS n, window_start FROM s"
            " [SESSION 10, WA ts] GROUP BY k) AS q [RANGE 10 SLIDE 10 WA window_start] GROUP BY n",
            "has no watermark",
        ),
    ],
)
def test_bad_input_gets_one_clear_error(text: str, message: str) -> None:
    with cql.connect() as session:
        session.create_stream("s", as_table([(1, 1, 1)]), ordered_by="ts")
        with pytest.raises(CqlError) as caught:
            session.sql(text).to_arrow()
    assert message in str(caught.value)
    assert caught.value.position is not None
