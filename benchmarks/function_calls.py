"""User functions on two workers, compared with one: numpy releases the interpreter lock while it
works, Python code holds it, and compiled code never takes it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import cql
from benchmarks.harness import Benchmark, Contender, Ratio
from benchmarks.tpcxbb_scaling import answer

WORKERS = 2
DEPTH_FIRST, ONE, TWO = "depth first", "1 worker", f"{WORKERS} workers"
_NOISE = np.random.default_rng(1).random(5_000)


def sorts(n: int) -> float:
    """About 50 microseconds, nearly all without the interpreter lock."""
    return float(np.sort(_NOISE * (n % 7 + 1))[n % 5_000])


def counts_digits(n: int) -> int:
    """About 10 microseconds of Python."""
    return sum(len(str(n + k)) for k in range(64))


def mixes(n: int) -> int:
    """About 10 microseconds, compiled."""
    for k in range(2_000):
        n = (n * 31 + k) % 1_000_003
    return n


#: By kind: a function, its ``parallel`` declaration, and a number of rows.
FUNCTIONS: dict[str, tuple[Callable[[int], Any], bool | None, int]] = {
    "numpy": (sorts, True, 10_000),
    "python": (counts_digits, None, 40_000),
    "python, declared parallel": (counts_digits, True, 40_000),
    "compiled": (mixes, None, 100_000),
}


def calls(kind: str, rows: int | None = None, folder: Path | None = None) -> Benchmark:
    """``folder`` is unused: the rows are generated numbers."""
    function, parallel, count = FUNCTIONS[kind]
    numbers = np.arange(rows or count)
    session = cql.connect(spark=False, functions=[cql.function(parallel=parallel)(function)])
    table = pa.table({"ts": numbers, "n": numbers})
    session.create_stream("s", table, ordered_by="ts")
    made = pa.table({"n": numbers, "made": [function(n) for n in numbers.tolist()]})

    def run() -> Any:
        return session.sql(f"SELECT n, {function.__name__}(n) AS made FROM s").to_arrow()

    def under(runtime: str, workers: int) -> Callable[[], None]:
        def prepare() -> None:
            session.set("runtime", runtime)
            session.set("workers", workers)

        return prepare

    kinds = ((DEPTH_FIRST, "depth_first", 1), (ONE, "ordered", 1), (TWO, "ordered", WORKERS))
    return Benchmark(
        f"calls-{kind.replace(', ', '-').replace(' ', '-')}",
        f"A function of a user, {kind}, over {len(numbers):,} rows",
        len(numbers),
        answer(made),
        [
            Contender(what, run, answer, under(runtime, workers), pinned=workers == 1)
            for what, runtime, workers in kinds
        ],
        [Ratio(TWO, ONE), Ratio(ONE, DEPTH_FIRST)],
        bandwidth=False,
        close=session.close,
    )
