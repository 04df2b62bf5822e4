"""Two threads in a nogil loop give the depth-first answer: the operator contract carries an ordered
runtime."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from operator_tools import (
    Admissions,
    Recorder,
    graph_of,
    plan_of,
    refresh,
    run_depth_first,
    session_over,
    workspace_of,
)
from two_thread_loop import FAILED, NEEDS, PYTHON, TwoThreads

from cql.executor.runtimes.protocol import Failure
from cql.planner.physical import Physical

ROWS = 800
QUERIES = {
    "filter to wid": """
        SELECT k, n, total, low, window_end FROM (
            SELECT k, count(*) AS n, sum(v) AS total, min(x) AS low, window_end
            FROM (SELECT * FROM a WHERE v > 10) AS f [RANGE 40 SLIDE 10 WA ts] GROUP BY k) AS g
        WHERE n > 0""",
    "union to wid": """
        SELECT k, count(*) AS n, sum(x) AS total, first(v) AS v, window_end FROM (
            SELECT ts, k, v, x FROM a WHERE v % 3 <> 0
            UNION ALL SELECT ts, k, v, x FROM b WHERE v > 20) AS m [RANGE 30 SLIDE 10 WA ts]
        GROUP BY k""",
    "nothing passes": """
        SELECT k, count(*) AS n, window_end
        FROM (SELECT * FROM a WHERE v < -1) AS f [RANGE 40 SLIDE 10 WA ts] GROUP BY k""",
    "expander": """
        SELECT ts, k, window_start FROM TABLE(
            HOP(TABLE a, DESCRIPTOR(ts), INTERVAL '1' SECOND, INTERVAL '50' SECOND)) AS h
        WHERE (window_start + v) % 7 < 3""",
    "growing keys": """
        SELECT s, count(*) AS n, min(t) AS low, max(s) AS high, window_end FROM (
            SELECT ts, concat(upper(name), CAST(v AS STRING)) AS s,
                   concat(name, CAST(ts AS STRING)) AS t FROM a) AS c
        [RANGE 400 SLIDE 20 WA ts] GROUP BY s""",
    "computed text": """
        SELECT ts, v, CASE WHEN v > 50 THEN s LIKE '%7%' END AS seven FROM (
            SELECT ts, v, concat(name, CAST(v AS STRING)) AS s FROM a) AS c""",
    "bad rows": """
        SELECT k, count(*) AS n, window_end FROM (SELECT ts, k, 100 / (v % 5) AS d FROM a) AS f
        [RANGE 40 SLIDE 10 WA ts] GROUP BY k""",
    "sessions": """
        SELECT k, count(*) AS n, sum(v) AS total, min(x) AS low, window_end FROM (
            SELECT ts, k, v, x FROM a WHERE v % 3 <> 0
            UNION ALL SELECT ts, k, v, x FROM b WHERE v > 20) AS m
        [SESSION 3, WA ts] GROUP BY k""",
    "sort": """
        SELECT k, count(*) AS n, window_end FROM a [RANGE 40 SLIDE 20 WA ts] GROUP BY k
        ORDER BY n DESC, k LIMIT 3""",
    "sort by time": "SELECT ts, k, name, x FROM a ORDER BY ts, name DESC, k NULLS LAST, x",
    "merge": """
        SELECT ts, k, name FROM (SELECT ts, k, concat(name, 'a') AS name FROM a WHERE v > 10
            UNION ALL SELECT ts, k, concat(name, 'b') AS name FROM b WHERE v > 3) AS m
        ORDER BY ts""",
    "merge to wid": """
        SELECT k, count(*) AS n, sum(x) AS total, last(v) AS v, window_end
        FROM a UNION b AS m [RANGE 30 SLIDE 10 WA ts] GROUP BY k""",
    "slack to wid": """
        SELECT k, count(*) AS n, sum(x) AS total, window_end
        FROM a [RANGE 30 SLIDE 10 WA ts] WHERE v > 5 GROUP BY k""",
}
SETTINGS = {
    "merge to wid": {"union_operator": "merge", "order_enforcement": "sort"},
    "slack to wid": {"slack": "4 rows", "order_enforcement": "sort"},
}


def stream(seed: int) -> pa.Table:
    """Out of order by up to 8 seconds (5 are promised), NULL keys, ever new names."""
    r = random.Random(seed)
    ts = [i // 2 + r.randrange(8) for i in range(ROWS)]
    return pa.table(
        {
            "ts": pa.array(ts, pa.int64()),
            "k": pa.array([r.choice([None, *range(9)]) for _ in ts], pa.int32()),
            "v": pa.array([r.randrange(100) for _ in ts], pa.int64()),
            "x": pa.array([r.uniform(-1, 1) for _ in ts], pa.float64()),
            "name": pa.array([f"n{r.randrange(10_000)}" for _ in ts]),
        }
    )


def plan(query: str, seed: int) -> Physical:
    tables = {"a": stream(seed), "b": stream(seed + 1)}
    session = session_over(tables, slack=5, settings=SETTINGS.get(query))
    return plan_of(session, QUERIES[query]).root


def run_two_threads(root: Physical, unit_rows: int, seed: int) -> tuple[Recorder, TwoThreads]:
    workspace = workspace_of(unit_rows)
    graph = graph_of(root, workspace)
    admissions = Admissions.of(root, workspace, seed)
    recorder = Recorder(graph.schemas[graph.sinks[0]], workspace.dictionary)
    refresh(graph)
    loop = TwoThreads(graph, admissions, recorder, workspace, seed)
    loop.run()
    return recorder, loop


@pytest.mark.parametrize("unit_rows", [1, 7, 256])
@pytest.mark.parametrize("query", QUERIES)
def test_two_threads_give_the_depth_first_answer(
    query: str, unit_rows: int, seed: int, full: bool
) -> None:
    for k in range(10 if full else 2):
        root = plan(query, seed + k)
        expected, graph = run_depth_first(root, unit_rows, seed=k)
        actual, loop = run_two_threads(root, unit_rows, k)
        assert actual.chunks == expected.chunks
        assert sorted(actual.bad) == sorted(expected.bad)
        for i, operator in enumerate(graph.operators):
            assert loop.counters(i) == operator.counters()
        assert min(loop.calls) > 0


@pytest.mark.parametrize(
    ("query", "event", "least"),
    [("growing keys", NEEDS, 10), ("bad rows", FAILED, 50), ("sort", PYTHON, 20)],
)
def test_python_is_asked_in_mid_run(query: str, event: int, least: int, seed: int) -> None:
    """The queries above do leave the loop for what they are here to show."""
    _, loop = run_two_threads(plan(query, seed), 64 if event == NEEDS else 7, seed)
    assert loop.events[event] >= least


def test_a_failing_query_ends_both_threads(seed: int) -> None:
    workspace = workspace_of(7)
    root = plan("bad rows", seed)
    graph = graph_of(root, workspace)
    admissions = Admissions.of(root, workspace)
    recorder = Strict(graph.schemas[graph.sinks[0]], workspace.dictionary)
    loop = TwoThreads(graph, admissions, recorder, workspace, seed)
    with pytest.raises(ZeroDivisionError):
        loop.run()


class Strict(Recorder):
    def failed(self, failure: Failure) -> None:
        raise ZeroDivisionError(failure.site.message)
