"""What the variants of the soak share: rows at a rate, readers of endless queries, and samples of
memory."""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks import machine
from benchmarks.figure import Check, Figure, slope
from benchmarks.workloads import SECOND, T0
from cql.executor.morsel.buffers import POOL

#: The largest slope of memory after the warm-up, in MB per minute.
SLOPE = 1.0
WARM_UP = 1 / 3
POINTS = 20
SAMPLE = 1.0
#: Rows per second of each query, and the disorder in seconds (some rows exceed it).
RATE, DISORDER = 5_000, 2.0
BATCH = 500
#: Start and end, in seconds.
Span: TypeAlias = tuple[float, float]
NEVER: Span = (math.inf, math.inf)


def paced(batch: Callable[[int], pa.RecordBatch], silence: Span = NEVER) -> Iterator[Any]:
    """The batches of BATCH rows from row number 0, BATCH, 2 BATCH, … on, at RATE rows a second.
    No rows come in the ``silence``."""
    begun = time.monotonic()
    for first in itertools.count(0, BATCH):
        second = first / RATE
        time.sleep(max(0.0, begun + second - time.monotonic()))
        if not silence[0] <= second < silence[1]:
            yield batch(first)


def times(numbers: npt.NDArray[np.int64], rng: np.random.Generator) -> pa.Array:
    """The times of rows by their numbers: up to DISORDER seconds out of order, one row in a
    thousand even later."""
    late = rng.integers(0, int(DISORDER * SECOND), numbers.size)
    late += (rng.random(numbers.size) < 1e-3) * 3 * SECOND
    return pa.array(T0 + numbers * SECOND // RATE - late).view(pa.timestamp("us", "UTC"))


@dataclass(slots=True)
class Samples:
    """Samples of a run, one per second: MB resident, MB in use, MB of state by query.

    In use is what Arrow and C's allocator have handed out, without the free buffers of the pool. It
    tells a leak from free memory that allocators keep."""

    seconds: list[float] = field(default_factory=list)
    resident: list[float] = field(default_factory=list)
    in_use: list[float] = field(default_factory=list)
    state: dict[str, list[float]] = field(default_factory=dict)

    def add(self, second: float, queries: Mapping[str, Any]) -> None:
        self.seconds.append(second)
        self.resident.append(machine.resident_mb())
        arrow = pa.total_allocated_bytes() - POOL.kept
        self.in_use.append(machine.allocated_mb() + arrow / 1e6)
        for name, query in queries.items():
            self.state.setdefault(name, []).append(state_mb(query))

    def slope(self, values: Sequence[float]) -> float:
        """The slope per minute, after the warm-up."""
        warm = int(np.searchsorted(self.seconds, self.seconds[-1] * WARM_UP))
        return slope([s / 60 for s in self.seconds[warm:]], values[warm:])[0]

    def checks(self) -> list[Check]:
        whole = self.slope(self.resident)
        slopes = {name: self.slope(values) for name, values in self.state.items()}
        most = max(slopes, key=lambda name: slopes[name])
        in_use = self.slope(self.in_use)
        goal = f"under {SLOPE:g} MB a minute"
        held = math.isnan(in_use) or in_use < SLOPE  # the system may not report it
        return [
            Check("slope of resident memory after warm-up", whole, goal, whole < SLOPE),
            Check("slope of memory in use after warm-up", in_use, goal, held),
            Check(f"slope of state, most ({most})", slopes[most], goal, slopes[most] < SLOPE),
        ]

    def drawn(
        self, name: str, title: str, checks: Sequence[Check], *, right: bool = True
    ) -> Figure:
        """A figure of twenty points, each a mean."""
        count = len(self.seconds)
        parts = np.array_split(np.arange(count), min(POINTS, count))

        def means(values: Sequence[float]) -> list[float]:
            return [float(np.mean(np.asarray(values)[part])) for part in parts]

        minutes = [round(s / 60, 2) for s in means(self.seconds)]
        total = [sum(values) for values in zip(*self.state.values(), strict=True)]
        series = {
            "resident": means(self.resident),
            "in use": means(self.in_use),
            "state": means(total),
        }
        return Figure(name, title, (), "minutes", minutes, "MB", series, checks, right)


class Reader:
    """Reads a query to its end in a thread; after ``stall[0]`` seconds the reader stops for
    ``stall[1]`` seconds. ``batches`` are the results, if kept. ``longest_gap`` is the longest
    silence between two results, in seconds."""

    def __init__(self, query: Any, *, stall: Span = NEVER, keeps: bool = False) -> None:
        self.rows = self.late = 0
        self.longest_gap = 0.0
        self.batches: list[Any] = []
        self.started, self.over = threading.Event(), threading.Event()
        self.error: BaseException | None = None
        self._query, self._stall, self._keeps = query, stall, keeps
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._read()
            self.late = self._query.progress().late
        except BaseException as error:  # ``stop`` raises it again
            self.error = error
        finally:
            self.started.set()
            self.over.set()

    def _read(self) -> None:
        begun = last = math.inf
        for given in self._query.batches():
            now = time.monotonic()
            begun = min(begun, now)
            self.longest_gap = max(self.longest_gap, now - last)
            last = now
            self.rows += given.num_rows
            if self._keeps:
                self.batches.append(given)
            self.started.set()
            after, pause = self._stall
            if now - begun >= after:
                self._stall = NEVER
                time.sleep(pause)

    def stop(self) -> None:
        self._query.stop()
        self._thread.join()
        if self.error is not None:
            raise self.error


def sampled(
    queries: Mapping[str, Any], readers: Mapping[str, Reader], seconds: float = math.inf
) -> Samples:
    """Samples from the first result of the last query (everything is compiled then) until all
    queries have ended, or for ``seconds``; then stops them."""
    samples = Samples()
    for reader in readers.values():
        reader.started.wait()
    begun = time.monotonic()
    try:
        while (now := time.monotonic() - begun) < seconds:
            samples.add(now, queries)
            if all(each.over.is_set() for each in readers.values()):
                break
            if any(each.error for each in readers.values()):
                break
            time.sleep(SAMPLE)
    finally:
        for reader in readers.values():
            reader.stop()
    return samples


def read(name: str, title: str, queries: Mapping[str, Any], seconds: float) -> Figure:
    """Reads all ``queries`` at once for ``seconds``, each in a thread and over rows of its own."""
    readers = {name: Reader(query) for name, query in queries.items()}
    samples = sampled(queries, readers, seconds)
    least = min(readers, key=lambda name: readers[name].rows)
    given = readers[least].rows
    late = sum(reader.late for reader in readers.values())
    checks = [
        *samples.checks(),
        Check(f"rows given, least ({least})", given, "above 0", given > 0),
        Check("late rows", late, "above 0", late > 0),
    ]
    return samples.drawn(name, title, checks)


def state_mb(query: Any) -> float:
    state: int = sum(entry.get("state_bytes", 0) for entry in query.metrics())
    return state / 1e6
