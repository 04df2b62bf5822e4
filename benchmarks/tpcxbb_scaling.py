"""TPCx-BB's queries 1 to 4 on two workers, beside one worker, depth first, and bare kernels.

What a second worker can give is known from the profile of one: the time at operators that several
workers run is shared, all other time is not (reading, writing, operators that are one task, and
planning). That is Amdahl's bound, of a plan whose operators are split where they can be. Two
workers should come to 1.8 times one where less than 8% is serial, else to 90% of the bound; they
may come beyond it where the planner leaves operators whole, and a serial one runs beside another.
One worker should lose no more than a tenth against depth first where a row costs 50 ns and more."""

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
#: Of each query: the stream that it reads, and its kernel.
KERNELS: Mapping[int, tuple[str, Callable[[Any], Bare]]] = {
    1: ("store_sales", tpcxbb_bare.q1),
    2: ("web_clickstreams", tpcxbb_bare.q2),
    3: ("web_clickstreams", tpcxbb_bare.q3),
    4: ("web_clickstreams", tpcxbb_bare.q4),
}
ROWS = 2_000_000
WORKERS = 2
#: Partitions of the profile: those that two workers have here.
PARTITIONS = WORKERS
BARE, DEPTH_FIRST, ONE, TWO = "bare kernel", "depth first", "1 worker", f"{WORKERS} workers"
#: Under this serial share two workers should come to FULL; else to NEAR of the bound.
FEW, FULL, NEAR = 0.08, 1.8, 0.9
#: Nanoseconds a row from which on one worker should come to ALONE of depth first.
HEAVY, ALONE = 50, 1 / 1.1


class Query:
    """A query over its stream; a run is from its text to a whole Arrow result."""

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
        """Seconds at each operator that several workers could run, on one worker."""
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
    query.parallel()  # it compiles
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
    """Of three runs by one worker the fastest: its seconds, and those that workers could share."""
    found = []
    for _ in range(3):
        began = time.perf_counter()
        shared = sum(query.parallel().values())
        found.append((time.perf_counter() - began, shared))
    return min(found)


def _prepared(query: Query, runtime: str, workers: int) -> Callable[[], None]:
    return lambda: query.under(runtime, workers)


def answer(table: Any) -> Answer:
    """Of a result: doubles by their bits."""
    columns = []
    for column in table.columns:
        if str(column.type) == "double":
            columns.append(np.ascontiguousarray(column.to_numpy()).view(np.int64))
        else:
            columns.append(integers(column))
    return checksum(*columns)
