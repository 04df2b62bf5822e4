"""Q7 of the out-of-order paper: a band join of two streams on four columns, counted by window."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks import bare, peers
from benchmarks.harness import Benchmark, Contender, Ratio
from benchmarks.ours import Ours, integers
from benchmarks.workloads import (
    BAND,
    FULL_SIDE,
    WIDTH,
    Answer,
    Workload,
    checksum,
    flows,
    load,
    rare_flows,
    to_arrow,
)

QUERY = """
SELECT window_start, count(*) AS n [RANGE 10 seconds, SLIDE 10 seconds, WA m1.ts]
FROM m1, m2
WHERE m1.ts >= m2.ts - INTERVAL 1 SECOND AND m1.ts <= m2.ts + INTERVAL 1 SECOND
  AND m1.srcIP = m2.destIP AND m1.destIP = m2.srcIP
  AND m1.srcPort = m2.destPort AND m1.destPort = m2.srcPort
"""
#: Each stream, and the prefix of its columns.
SIDES = {"m1": "l_", "m2": "r_"}
#: Pairs of equal columns: of m1, of m2.
KEYS = {"srcIP": "destIP", "destIP": "srcIP", "srcPort": "destPort", "destPort": "srcPort"}


def matches(table: Any) -> Answer:
    """The answer of a result (window_start, n)."""
    return checksum(integers(table.column(0)), integers(table.column(1)))


def q7(rows: int | None = None, folder: Path | None = None) -> Benchmark:
    """Each flow has packets all the time, so the band is selective."""
    return _q7(flows, "20 packets a flow", rows, folder)


def q7_rare(rows: int | None = None, folder: Path | None = None) -> Benchmark:
    """Each flow has one packet each way, so the equalities are selective."""
    return _q7(rare_flows, "1 packet a flow", rows, folder)


def _q7(
    make: Callable[[int], Workload], what: str, rows: int | None, folder: Path | None
) -> Benchmark:
    workload = load(make, rows or FULL_SIDE, folder)
    kernel = bare.q7(workload)
    m1, m2 = (_side(workload, side) for side in SIDES.values())
    ours, both = (Ours(QUERY, workers, **streams(workload)) for workers in (1, 2))
    contenders = [
        Contender("bare kernel", kernel.run, kernel.answer, pinned=True),
        Contender("ours", ours.run, matches, notes=ours.notes, pinned=True),
        Contender("ours, 2 workers", both.run, matches, notes=both.notes),
    ]
    ratios = [Ratio("ours", "bare kernel", 0.5), Ratio("ours, 2 workers", "ours")]
    for name, run in _duckdb(m1, m2).items():
        contenders.append(Contender(name, run, matches))
        ratios += Ratio("ours, 2 workers", name, 2), Ratio("ours", name)
    for name, run in peers.polars_runs(_polars, m1, m2).items():
        contenders.append(Contender(name, run, matches))
        ratios.append(Ratio("ours", name))
    return Benchmark(
        make.__name__.replace("rare_flows", "q7-rare").replace("flows", "q7"),
        f"Q7 from memory: {workload.rows:,} packets each way, {what}, 1 s either way",
        2 * workload.rows,
        workload.answers["matches"],
        contenders,
        ratios,
    )


def streams(workload: Workload) -> Mapping[str, Any]:
    names = [*KEYS, "ts"]
    return {stream: to_arrow(workload, side).select(names) for stream, side in SIDES.items()}


def _side(workload: Workload, side: str) -> pa.Table:
    names = [*KEYS, "ts"]
    return pa.table({name: workload.columns[side + name] for name in names})


def _duckdb(m1: pa.Table, m2: pa.Table) -> peers.Runs:
    keys = " AND ".join(f"l.{a} = r.{b}" for a, b in KEYS.items())
    query = f"""
        SELECT l.ts // {WIDTH} * {WIDTH} AS w, count(*) AS n FROM {{m1}} l JOIN {{m2}} r
        ON {keys} AND l.ts BETWEEN r.ts - {BAND} AND r.ts + {BAND} GROUP BY ALL"""
    return peers.duckdb_runs(query, m1=m1, m2=m2)


def _polars(pl: Any, left: Any, right: Any) -> Any:
    pairs = left.lazy().join(right.lazy(), left_on=list(KEYS), right_on=list(KEYS.values()))
    near = pairs.filter((pl.col("ts") - pl.col("ts_right")).abs() <= BAND)
    window = pl.col("ts") // WIDTH * WIDTH
    return near.group_by(window.alias("w")).agg(pl.len().cast(pl.Int64).alias("n")).collect()
