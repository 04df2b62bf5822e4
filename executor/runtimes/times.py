"""How long operators and workers took, for who wants to know (EXPLAIN ANALYZE)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from cql.executor.kernels.lib.clock import NANOSECONDS, OF, PASSED_ON, SCRATCH, TOOK


@dataclass(frozen=True, slots=True)
class OperatorTime:
    """``punctuation_in`` and ``punctuation_out``: items of punctuation that an operator took, and
    passed on: promises, silence, ends of inputs. ``queue`` and ``longest``: morsels that waited to
    be worked on, on average and at most, whenever a worker took a slice of time. ``reorder``:
    nanoseconds that the outputs of a morsel waited on average for those of the morsels before it.
    None where nothing waits."""

    nanoseconds: int
    punctuation_in: int
    punctuation_out: int
    queue: float | None = None
    longest: int | None = None
    reorder: float | None = None


@dataclass(frozen=True, slots=True)
class WorkerTime:
    """Nanoseconds at operators, and asleep for want of work."""

    busy: int
    asleep: int


@dataclass(frozen=True, slots=True)
class MarkerTime:
    """Nanoseconds from when an operator began with a morsel until all that came of it had left the
    last one (ordered-multicore paper, section 7): of ``morsels`` that were marked, on average, and
    of the longest of 50% and 99% of them."""

    morsels: int
    mean: float
    p50: float
    p99: float


@dataclass(frozen=True, slots=True)
class Times:
    """``operators`` are in the order of the graph."""

    operators: tuple[OperatorTime, ...]
    workers: tuple[WorkerTime, ...] = ()
    markers: MarkerTime | None = None


class OperatorClock:
    """The table of ``kernels.lib.clock`` for the runtimes of one thread; ``address`` is 0 if nobody
    asked for times."""

    def __init__(self, operators: int, timed: bool) -> None:
        self._table = np.zeros(SCRATCH + OF * operators, np.int64)
        self.address = int(self._table.ctypes.data) if timed else 0

    @contextmanager
    def of(self, operator: int) -> Iterator[None]:
        """While Python works for an operator."""
        began = time.perf_counter_ns()
        yield
        self._table[SCRATCH + OF * operator + NANOSECONDS] += time.perf_counter_ns() - began

    def times(self) -> Times | None:
        """None if nobody asked."""
        if not self.address:
            return None
        words = self._table[SCRATCH:].reshape(-1, OF)[:, [NANOSECONDS, TOOK, PASSED_ON]]
        return Times(tuple(OperatorTime(*map(int, of)) for of in words))
