"""Partitioned operators restore the order of their outputs only where the result depends on it
(``planner.placement.order_sensitivity``); the result equals depth-first's, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import cql
from cql.executor.graph.graph import Graph
from cql.executor.operators.flow.replicas import PartitionedOperator
from cql.executor.run.execution import Execution

WINDOW = "[RANGE 40 SLIDE 20 WA ts]"
COUNTED = f"SELECT k, g, count(*) AS n, window_end FROM s {WINDOW} GROUP BY k, g"
INNER = COUNTED.replace(", window_end", "")
PAIRS = (
    "SELECT a.v, b.v AS w, greatest(a.ts, b.ts) AS ts FROM s AS a JOIN s AS b"
    " ON a.k = b.k AND a.v < b.v AND b.ts BETWEEN a.ts - 9 AND a.ts + 9"
)
OF_PAIRS = "SELECT v, w, {call} AS n, window_end FROM ({pairs}) [RANGE 20 SLIDE 20] GROUP BY v, w"
COUNTED_PAIRS = OF_PAIRS.format(call="count(*)", pairs=PAIRS)
#: A query, and for each of its partitioned operators whether the operator restores order.
QUERIES: dict[str, list[bool]] = {
    COUNTED: [True],
    f"{COUNTED} ORDER BY n DESC, k, g LIMIT 7": [False],
    f"{COUNTED} ORDER BY n DESC, g LIMIT 7": [True],  # some rows are equal in n and g
    f"SELECT g, n, window_end FROM ({COUNTED}) ORDER BY n DESC, g LIMIT 7": [True],
    f"SELECT k + 1 AS j, g, n, window_end FROM ({COUNTED}) ORDER BY n, j, g LIMIT 7": [True],
    "SELECT *, ROW_NUMBER() OVER (PARTITION BY window_end, k ORDER BY n, g) AS p"
    f" FROM ({COUNTED})": [False],
    f"SELECT max(n) AS m, window_end FROM ({INNER}) [RANGE 20 SLIDE 20]": [False],
    f"SELECT avg(n) AS m, window_end FROM ({INNER}) [RANGE 20 SLIDE 20]": [True],
    f"SELECT max(100 / n) AS m, window_end FROM ({INNER}) [RANGE 20 SLIDE 20]": [True],
    PAIRS: [True],
    COUNTED_PAIRS: [True, True],
    f"{COUNTED_PAIRS} ORDER BY n DESC, v, w LIMIT 5": [False, False],
    f"{COUNTED_PAIRS} ORDER BY n DESC, v LIMIT 5": [True, True],
    OF_PAIRS.format(call="first(v)", pairs=PAIRS) + " ORDER BY n, v, w LIMIT 5": [True, False],
    "SELECT u.x, count(*) AS n, window_end FROM ("
    "  SELECT g, collect_set(k) AS ks FROM s [SESSION 2] GROUP BY g"
    ") [RANGE 40 SLIDE 40] AS q, UNNEST(q.ks) AS u (x) GROUP BY u.x ORDER BY n DESC, x LIMIT 3": [
        False,
        False,
    ],
}


@pytest.fixture(scope="module")
def session() -> cql.Session:
    rng, n = np.random.default_rng(5), 1500
    columns = {
        "ts": np.sort(rng.integers(0, 300, n)),
        "k": rng.integers(0, 7, n).astype(np.int32),
        "g": rng.integers(0, 9, n),
        "v": rng.integers(0, 30, n),
    }
    session = cql.connect(spark=False, workers=2)
    session.create_stream("s", pa.table(columns), ordered_by="ts", unit="seconds")
    return session


def answer(session: cql.Session, text: str, runtime: str) -> pa.Table:
    session.set("runtime", runtime)
    return session.sql(text).to_arrow()


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("text", QUERIES)
def test_only_what_can_be_seen_is_put_in_order(
    session: cql.Session, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    graphs: list[Graph] = []
    make = Execution._make_runtime

    def noting(self: Execution, graph: Graph) -> Any:
        graphs.append(graph)
        return make(self, graph)

    monkeypatch.setattr(Execution, "_make_runtime", noting)
    for parts, unit in ((2, 700), (3, 50)):
        session.set("partitions", parts)
        session.set("morsel_rows", unit)
        expected, found = (answer(session, text, how) for how in ("depth_first", "ordered"))
        assert found.num_rows > 0
        assert found.equals(expected)
        parted = [o for o in graphs.pop().operators if isinstance(o, PartitionedOperator)]
        assert [o.order_columns > 0 for o in parted] == QUERIES[text]
