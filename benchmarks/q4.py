"""Q4 of the out-of-order paper: packets per pair of addresses and window of 10 s."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks import bare, peers
from benchmarks.harness import Benchmark, Contender, Ratio
from benchmarks.ours import Ours, integers
from benchmarks.workloads import FULL, WIDTH, Answer, Workload, checksum, load, packets, to_arrow

QUERY = """
SELECT window_start, srcIP, destIP, count(*) AS packets
FROM m [WA ts, RANGE 10 seconds, SLIDE 10 seconds]
GROUP BY srcIP, destIP
"""


def counts(table: Any) -> Answer:
    """The answer of a result (window_start, srcIP, destIP, packets)."""
    return checksum(*(integers(table.column(i)) for i in range(4)))


def q4(rows: int | None = None, folder: Path | None = None) -> Benchmark:
    workload = load(packets, rows or FULL, folder)
    kernel = bare.q4(workload)
    ours = Ours(QUERY, m=to_arrow(workload))
    contenders = [
        Contender("bare kernel", kernel.run, kernel.answer, pinned=True),
        Contender("ours", ours.run, counts, notes=ours.notes, pinned=True),
    ]
    ratios = [Ratio("ours", "bare kernel", 0.6)]
    for name, run in _duckdb(workload).items():
        contenders.append(Contender(name, run, counts))
        ratios.append(Ratio("ours", name, 1.5))
    full = workload.rows == FULL
    return Benchmark(
        "q4",
        f"Q4 from memory: {workload.rows:,} packets, 65,536 groups, 10 windows",
        workload.rows,
        workload.answers["counts"],
        contenders,
        ratios,
        kernel="bare kernel" if full else None,
        kernel_rows_per_s=bare.DESIGN_Q4_ROWS_PER_S if full else None,
    )


def _duckdb(workload: Workload) -> peers.Runs:
    """A batch query without a notion of time, over DuckDB's own table and over our Arrow table. The
    time is a plain integer, because DuckDB's timestamps are slower to cut into windows."""
    query = f"""
        SELECT ts // {WIDTH} * {WIDTH} AS w, srcIP, destIP, count(*) AS packets
        FROM {{m}} GROUP BY ALL"""
    table = to_arrow(workload)
    plain = table.set_column(table.schema.get_field_index("ts"), "ts", table["ts"].cast("int64"))
    return peers.duckdb_runs(query, m=plain)
