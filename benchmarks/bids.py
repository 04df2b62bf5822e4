"""Nexmark's q1 (a projection over every bid) and q2 (a filter that passes one in 121)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks import bare, peers
from benchmarks.harness import Benchmark, Contender, Ratio
from benchmarks.ours import Ours, integers
from benchmarks.workloads import FULL, Answer, bids, checksum, load, sums, to_arrow

Q1 = "SELECT auction, price * 908 / 1000 AS price, bidder, ts FROM bid"
Q2 = "SELECT auction, price FROM bid WHERE auction % 123 = 0"


def q1(rows: int | None = None, folder: Path | None = None) -> Benchmark:
    """Compares with two kernels: one writes all columns, the other only the price. Our engine and
    polars pass the other columns on unchanged, like the second kernel."""
    workload = load(bids, rows or FULL, folder)
    table = to_arrow(workload)
    copied, by_reference = bare.q1(workload), bare.q1_by_reference(workload)
    ours = Ours(Q1, bid=table)
    duckdb = "SELECT auction, price * 908 // 1000 AS price, bidder, ts FROM {m}"
    runs = {
        **peers.polars_runs(
            lambda pl, f: f.select("auction", pl.col("price") * 908 // 1000, "bidder", "ts"), table
        ),
        **peers.duckdb_runs(duckdb, m=table),
    }
    contenders = [
        Contender("bare kernel", copied.run, copied.answer, pinned=True),
        Contender("bare kernel, price only", by_reference.run, by_reference.answer, pinned=True),
        Contender("ours", ours.run, _q1_answer, pinned=True),
        *(Contender(name, run, _q1_answer) for name, run in runs.items()),
    ]
    ratios = [
        Ratio("ours", "bare kernel", 0.6),
        Ratio("ours", "bare kernel, price only", 0.6),
        *(Ratio("ours", name) for name in runs),
    ]
    title = f"Nexmark q1 from memory: {workload.rows:,} bids, {Q1}"
    return Benchmark("bids-q1", title, workload.rows, workload.answers["q1"], contenders, ratios)


def q2(rows: int | None = None, folder: Path | None = None) -> Benchmark:
    workload = load(bids, rows or FULL, folder)
    table = to_arrow(workload)
    kernel = bare.q2(workload)
    ours = Ours(Q2, bid=table)
    runs = {
        **peers.polars_runs(
            lambda pl, f: f.filter(pl.col("auction") % 123 == 0).select("auction", "price"), table
        ),
        **peers.duckdb_runs("SELECT auction, price FROM {m} WHERE auction % 123 = 0", m=table),
    }
    contenders = [
        Contender("bare kernel", kernel.run, kernel.answer, pinned=True),
        Contender("ours", ours.run, _q2_answer, pinned=True),
        *(Contender(name, run, _q2_answer) for name, run in runs.items()),
    ]
    ratios = [Ratio("ours", "bare kernel", 0.6), *(Ratio("ours", name) for name in runs)]
    title = f"Nexmark q2 from memory: {workload.rows:,} bids, {Q2}"
    return Benchmark("bids-q2", title, workload.rows, workload.answers["q2"], contenders, ratios)


def _q1_answer(table: Any) -> Answer:
    return sums(*(integers(table.column(i)) for i in range(4)))


def _q2_answer(table: Any) -> Answer:
    return checksum(integers(table.column(0)), integers(table.column(1)))
