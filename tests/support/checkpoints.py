"""Queries that stop between two morsels, and continue from a checkpoint of their operators."""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from cql.executor.graph.graph import Graph
from cql.executor.operators.contract import Operator
from cql.executor.operators.workspace import Workspace
from cql.executor.state.checkpoint import Checkpoint, checkpoint, from_ipc, restore, to_ipc
from cql.planner.nodes.physical import Physical
from tests.support import growing_streams
from tests.support.operator_tools import (
    Admissions,
    Chunk,
    Recorder,
    admit_all,
    graph_of,
    plan_of,
    refresh,
    runtime_of,
    session_over,
    workspace_of,
)

#: Each kind of window, join and relation whose operators are saved.
QUERIES = growing_streams.QUERIES | {
    "panes": "SELECT k, sum(v) AS s, window_end FROM a [RANGE 60 SLIDE 3 WA ts] GROUP BY k",
    "two keys": """
        SELECT k, name, count(*) AS n, max(x) AS x, window_end FROM a [RANGE 20 SLIDE 20 WA ts]
        GROUP BY k, name""",
    "medians": """
        SELECT k, median(v) AS m, count(DISTINCT name) AS d, window_end FROM a
        [RANGE 30 SLIDE 10 WA ts] GROUP BY k""",
    "cumulate": """
        SELECT k, count(*) AS n, window_end FROM a [RANGE 60 CUMULATE 10 WA ts] GROUP BY k""",
    "join": """
        SELECT a.ts, a.k, a.name, b.name AS other FROM a, b
        WHERE a.k = b.k AND a.ts BETWEEN b.ts - 5 AND b.ts + 5""",
    "outer join": """
        SELECT a.ts, a.name, b.name AS other FROM a LEFT JOIN b
        ON a.name = b.name AND a.ts BETWEEN b.ts - 30 AND b.ts + 30""",
    "join to wid": """
        SELECT a.k, count(*) AS n, window_end [RANGE 20 SLIDE 20 WA a.ts] FROM a JOIN b
        ON a.k = b.k AND a.ts BETWEEN b.ts - 5 AND b.ts + 5 GROUP BY a.k""",
    "asof": """
        SELECT a.ts, a.k, a.name, b.name AS other FROM a ASOF JOIN b
        ON a.k = b.k AND a.ts >= b.ts""",
    "asof forward": """
        SELECT a.ts, a.k, a.name, b.name AS other FROM a ASOF LEFT JOIN b
        ON a.k = b.k AND a.ts <= b.ts""",
    "relation": "SELECT ISTREAM k, count(*) AS n FROM a [RANGE 20 WA ts] GROUP BY k",
    "relation of rows": """
        SELECT ISTREAM k, name, v FROM a [PARTITION BY k ROWS 3 WA ts]""",
    "names of a relation": """
        SELECT ISTREAM name, count(*) AS n, max(x) AS x FROM a [RANGE 20 WA ts] GROUP BY name""",
    "values of a relation": """
        SELECT ISTREAM k, median(v) AS m, mode(name) AS most, count(DISTINCT name) AS n,
               array_agg(name) AS names, time_weighted_avg(x, v) AS w
               FROM a [RANGE 5 WA ts] GROUP BY k""",
    "values without keys": """
        SELECT ISTREAM array_agg(name) AS names, sum(DISTINCT v) AS s, avg(DISTINCT x) AS x,
               percentile_disc(0.3) WITHIN GROUP (ORDER BY v) AS p FROM a [ROWS 9 WA ts]""",
    "arrays and structs": """
        SELECT xs, s.n AS n, first(s) AS f, count(DISTINCT get(xs, 1)) AS d, window_end FROM (
            SELECT ts, array(name, IF(v > 50, name, NULL)) AS xs, struct(k AS n, name) AS s
            FROM a) AS w [RANGE 30 SLIDE 10 WA ts] GROUP BY xs, s.n""",
    "elements of structs": """
        SELECT e.k, e.name, count(*) AS n, window_end FROM (
            SELECT ts, array(struct(k, name), NULL) AS xs FROM a) [RANGE 20 SLIDE 20 WA ts] AS w,
        UNNEST(w.xs) AS e (k, name) GROUP BY e.k, e.name""",
    "distinct": "SELECT ISTREAM DISTINCT k, v FROM a [RANGE 10 WA ts]",
    "numbered": """
        SELECT k, name, v FROM (SELECT ts, k, name, v, row_number() OVER (
            PARTITION BY k ORDER BY v DESC, name) AS n FROM a [RANGE 20 WA ts]) AS r
        WHERE n <= 2""",
    "first row of each": """
        SELECT k, name, v FROM (SELECT ts, k, name, v, row_number() OVER (
            PARTITION BY k ORDER BY ts) AS n FROM a) AS r WHERE n = 1""",
    "top of a relation": """
        SELECT ISTREAM name, v FROM a [RANGE 20 WA ts] ORDER BY v DESC, name LIMIT 3""",
    "whole relation": "SELECT RSTREAM name FROM a [RANGE 2 WA ts]",
    "relations joined": """
        SELECT ISTREAM a.name, b.name AS other, a.v FROM a [RANGE 10 WA ts], b [RANGE 10 WA ts]
        WHERE a.k = b.k AND a.name < b.name""",
    "left join of relations": """
        SELECT ISTREAM a.name, b.name AS other FROM a [RANGE 10 WA ts]
        LEFT JOIN b [RANGE 10 WA ts] ON a.k = b.k""",
    "names in a relation": """
        SELECT ISTREAM name FROM a [RANGE 10 WA ts]
        WHERE k IN (SELECT k FROM b [RANGE 5 WA ts])""",
    "rows with a partner": """
        SELECT ISTREAM name, v FROM a [RANGE 10 WA ts] AS a
        WHERE NOT EXISTS (SELECT 1 FROM b [RANGE 3 WA ts] AS b WHERE b.k = a.k AND b.v > 50)""",
    "names of one relation in another": """
        SELECT ISTREAM k, name IN (SELECT name FROM b [RANGE 30 WA ts]) AS there
        FROM a [RANGE 10 WA ts]""",
    "highest name": """
        SELECT ISTREAM k, name, (SELECT max(name) FROM b [RANGE 3 WA ts]) AS most
        FROM a [RANGE 4 WA ts]""",
    "except": """
        SELECT ISTREAM k, v FROM a [RANGE 20 WA ts] EXCEPT SELECT k, v FROM b [RANGE 20 WA ts]""",
    "rows that slide": "SELECT k, count(*) AS n, min(name) AS first FROM a"
    " [PARTITION BY k ROWS 5 SLIDE 2] GROUP BY k",
    "dupelim": "SELECT DISTINCT ts, k, name FROM a",
    "limit": "SELECT ts, name FROM a LIMIT 300",
    "running functions": """
        SELECT ts, name, iir(v, array(0.5, 0.1), array(1, -0.5)) AS f, fir(x, 1, 0.5, 0.2) AS g,
               sta_lta(v, 3, 20) AS r, recursive_sta_lta(v, 3, 20) AS rr, cfar(v, 2) AS c,
               trigger(fir(v, 0.5, 0.5), 60, 40) AS h FROM a""",
    "newest": "SELECT * FROM a UNION ALL SELECT * FROM b",
    "newest names": "SELECT ts, name, v FROM a UNION ALL SELECT ts, name, v FROM b",
}
#: The update keys of the streams of a query.
UPDATE_KEYS = {"newest": "k", "newest names": "name"}
#: Queries again, under settings that choose other operators.
VARIANTS = {
    ("panes", "wid"): {"window_operator": "wid"},
    ("panes", "two stacks"): {"window_operator": "two_stacks"},
    ("panes", "subtract"): {"window_operator": "subtract"},
    ("panes", "buffered"): {"window_operator": "buffered"},
    ("panes", "two levels"): {"window_operator": "two_level"},
    ("panes", "adaptive"): {"adaptive_windows": "on"},
    ("join", "sync filter"): {"join_operator": "sync_filter"},
    ("join", "filter order"): {"join_operator": "filter_order"},
    ("join", "adaptive"): {"join_operator": "adaptive"},
    ("newest", "truth"): {"union_truth": "first_input"},
}
CASES = (*QUERIES, *(f"{query}, {kind}" for query, kind in VARIANTS))


def plan_of_case(case: str) -> Physical:
    """The plan of one of ``CASES``."""
    name, _, kind = case.partition(", ")
    settings = VARIANTS[name, kind] if kind else growing_streams.SETTINGS.get(name)
    streams = {"a": growing_streams.stream(1), "b": growing_streams.stream(2)}
    key = UPDATE_KEYS.get(name)
    session = session_over(streams, slack=5, settings=settings, update_key=key)
    return plan_of(session, QUERIES[name]).root


class Part:
    """A graph that runs some of the morsels of ``root``. Its dictionary knows ``texts`` before, so
    that it numbers those of the rows otherwise."""

    def __init__(self, root: Physical, morsel_rows: int, texts: Sequence[str] = ()) -> None:
        self.workspace: Workspace = workspace_of(morsel_rows)
        if texts:
            self.workspace.dictionary.encode(pa.array(texts), np.zeros(len(texts), np.int32))
        self.graph: Graph = graph_of(root, self.workspace, fuse=True)
        self.morsels = Admissions.of(root, self.workspace, 7)
        sink = self.graph.schemas[self.graph.sinks[0]]
        self.recorder = Recorder(sink, self.workspace.dictionary)
        refresh(self.graph)

    def run(self, first: int, end: int | None = None) -> list[Chunk]:
        runtime = runtime_of("depth_first", self.graph, self.recorder, self.workspace)
        admit_all(runtime, self.graph, self.morsels.morsels[first:end])
        return self.recorder.chunks

    def checkpoint(self) -> Checkpoint:
        return checkpoint(self._operators(), self.workspace.dictionary)

    def restore(self, saved: Checkpoint) -> None:
        restore(saved, self._operators(), self.workspace.dictionary)
        refresh(self.graph)

    def _operators(self) -> dict[str, Operator]:
        return {f"{k} {one.name}": one for k, one in enumerate(self.graph.running())}


def stop_and_continue(root: Physical, morsel_rows: int, choice: random.Random) -> None:
    """Asserts that the query stopped at one morsel, and continued from its checkpoint, gives the
    rows, the bad rows and the counts of one that never stopped."""
    whole = Part(root, morsel_rows)
    expected, at = whole.run(0), choice.randrange(len(whole.morsels.morsels) + 1)
    before = Part(root, morsel_rows)
    given = before.run(0, at)
    saved = from_ipc(to_ipc(before.checkpoint()))
    after = Part(root, morsel_rows, [f"n{choice.randrange(10_000)}" for _ in range(500)])
    after.restore(saved)
    assert rows_of([*given, *after.run(at)]) == rows_of(expected), at
    assert [*before.recorder.bad, *after.recorder.bad] == whole.recorder.bad, at
    assert ledgers(after.graph) == ledgers(whole.graph), at


def rows_of(chunks: list[Chunk]) -> list[tuple[object, ...]]:
    return [row for chunk in chunks for row in chunk.rows]


def ledgers(graph: Graph) -> list[dict[str, int]]:
    """What each operator has counted."""
    return [operator.counters() for operator in graph.running()]


def continue_elsewhere(case: str, morsel_rows: int, at: int, folder: str) -> None:
    """Reads ``state.arrow``, runs the morsels from ``at`` on, and writes what came of it."""
    part = Part(plan_of_case(case), morsel_rows, [f"other {k}" for k in range(100)])
    part.restore(from_ipc(Path(folder, "state.arrow").read_bytes()))
    rows = rows_of(part.run(at))
    Path(folder, "rest").write_text(repr((rows, ledgers(part.graph))), "utf-8")


if __name__ == "__main__":
    continue_elsewhere(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
