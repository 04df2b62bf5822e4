"""TPCx-BB's queries 1 to 4 on two workers, compared with one worker, depth first, and bare kernels.

The profile of one worker bounds the gain from a second one: only time at operators that several
workers can run is shared; all other time is serial (reading, writing, operators that are one task,
planning). This is Amdahl's bound for a plan whose operators are split where possible. Two workers
should be 1.8 times as fast as one if less than 8% is serial, else reach 90% of the bound. They may
exceed the bound if the planner leaves operators whole and a serial one runs beside another. One
worker should lose at most a tenth against depth first if a row costs 50 ns or more."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

import cql
from benchmarks import tpcxbb, tpcxbb_bare
from benchmarks.bare import Bare
from benchmarks.harness import Benchmark, Contender, Ratio
from benchmarks.ours import integers
from benchmarks.workloads import Answer, checksum

QUERIES = Path(__file__).resolve().parent.parent / "queries" / "tpcxbb"
#: For each query: its stream and its kernel.
KERNELS: Mapping[int, tuple[str, Callable[[Any], Bare]]] = {
    1: ("store_sales", tpcxbb_bare.q1),
    2: ("web_clickstreams", tpcxbb_bare.q2),
    3: ("web_clickstreams", tpcxbb_bare.q3),
    4: ("web_clickstreams", tpcxbb_bare.q4),
}
ROWS = 2_000_000
WORKERS = 2
#: Partitions of the profile: the default for two workers.
PARTITIONS = WORKERS
BARE, DEPTH_FIRST, ONE, TWO = "bare kernel", "depth first", "1 worker", f"{WORKERS} workers"
#: Below this serial share two workers should reach FULL, else NEAR of the bound.
FEW, FULL, NEAR = 0.08, 1.8, 0.9
#: From this cost per row (nanoseconds) on, one worker should reach ALONE of depth first.
HEAVY, ALONE = 50, 1 / 1.1


class Query:
    """A query over its stream; a run goes from the query text to a whole Arrow result."""

    def __init__(self, number: int, name: str, table: Any) -> None:
        self.text = (QUERIES / f"q{number:02}.cql").read_text(encoding="utf-8")
        self.session = cql.connect(spark=False)
        self.session.create_stream(name, table, ordered_by="ts", slack=timedelta(minutes=1))

    def run(self) -> Any:
        return self.session.sql(self.text).to_arrow()

    def under(self, runtime: str, workers: int, partitions: int = 0) -> None:
        settings = {"runtime": runtime, "workers": workers, "partitions": partitions}
        for name, value in settings.items():
            self.session.set(name, value)

    def parallel(self) -> dict[str, float]:
        """Seconds at each operator that several workers could run, measured on one worker."""
        self.under("ordered", 1, PARTITIONS)
        query = self.session.sql(self.text)
        assert isinstance(query, cql.Query)
        query.explain("analyze")
        timed = [of for of in query.metrics() if "reorder" in of]
        return {of["operator"]: of["nanoseconds"] / 1e9 for of in timed}


def scaling(number: int, rows: int | None = None, folder: Path | None = None) -> Benchmark:
    name, make = KERNELS[number]
    table = tpcxbb.TABLES[name](rows or ROWS, 1)
    bare, query = make(table), Query(number, name, table)
    expected = bare.answer(bare.run())
    query.parallel()  # compiles
    taken, shared = _least_shared(query)
    serial = 1 - shared / taken
    bound = 1 / (serial + (1 - serial) / WORKERS)
    contenders = [Contender(BARE, bare.run, bare.answer, pinned=True)]
    kinds = ((DEPTH_FIRST, "depth_first", 1), (ONE, "ordered", 1), (TWO, "ordered", WORKERS))
    for what, runtime, workers in kinds:
        prepare = _prepared(query, runtime, workers)
        pinned = workers == 1
        contenders.append(Contender(what, query.run, answer, prepare, pinned=pinned))
    heavy = taken / table.num_rows * 1e9 >= HEAVY
    goal = FULL if serial < FEW else NEAR * bound
    ratios = [
        Ratio(TWO, ONE, goal),
        Ratio(ONE, DEPTH_FIRST, ALONE if heavy else None),
        Ratio(TWO, DEPTH_FIRST),
        Ratio(DEPTH_FIRST, BARE),
    ]
    title = (
        f"TPCx-BB query {number}, {table.num_rows:,} rows: {serial:.0%} of the work is serial, "
        f"Amdahl's bound for {WORKERS} workers is {bound:.2f}"
    )
    return Benchmark(
        f"tpcxbb-q{number}",
        title,
        table.num_rows,
        expected,
        contenders,
        ratios,
        bandwidth=False,
        threads=WORKERS,
    )


def _least_shared(query: Query) -> tuple[float, float]:
    """The fastest of three one-worker runs: its seconds, and the seconds that workers could
    share."""
    found = []
    for _ in range(3):
        began = time.perf_counter()
        shared = sum(query.parallel().values())
        found.append((time.perf_counter() - began, shared))
    return min(found)


def _prepared(query: Query, runtime: str, workers: int) -> Callable[[], None]:
    return lambda: query.under(runtime, workers)


def answer(table: Any) -> Answer:
    """The answer of a result; doubles count by their bits."""
    columns = []
    for column in table.columns:
        if str(column.type) == "double":
            columns.append(np.ascontiguousarray(column.to_numpy()).view(np.int64))
        else:
            columns.append(integers(column))
    return checksum(*columns)
