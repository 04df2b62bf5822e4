"""Measured times of operators and workers (EXPLAIN ANALYZE)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from cql.executor.kernels.lib.clock import NANOSECONDS, OF, PASSED_ON, SCRATCH, TOOK


@dataclass(frozen=True, slots=True)
class OperatorTime:
    """``punctuation_in`` and ``punctuation_out``: items of punctuation that an operator received
    and sent: watermarks, idleness, ends of inputs. ``queue`` and ``longest``: average and maximal
    number of morsels that waited for the operator, sampled whenever a worker began a slice.
    ``reorder``: average nanoseconds that the outputs of a morsel waited for the outputs of earlier
    morsels. None where morsels or outputs cannot wait."""

    nanoseconds: int
    punctuation_in: int
    punctuation_out: int
    queue: float | None = None
    longest: int | None = None
    reorder: float | None = None


@dataclass(frozen=True, slots=True)
class WorkerTime:
    """Nanoseconds that a worker spent on tasks, and asleep for want of work."""

    busy: int
    asleep: int


@dataclass(frozen=True, slots=True)
class MarkerTime:
    """Latency in nanoseconds: from the moment at which the first operator began with a morsel until
    all outputs of this morsel had left the last operator (ordered-multicore paper, section 7).
    Mean, median and 99th percentile over ``morsels`` marked morsels."""

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
    """The table of ``kernels.lib.clock`` for the runtimes of one thread; ``address`` is 0 if times
    are not measured."""

    def __init__(self, operators: int, timed: bool) -> None:
        self._table = np.zeros(SCRATCH + OF * operators, np.int64)
        self.address = int(self._table.ctypes.data) if timed else 0

    @contextmanager
    def of(self, operator: int) -> Iterator[None]:
        """A context that adds the time of Python's work in it to the time of an operator."""
        began = time.perf_counter_ns()
        yield
        self._table[SCRATCH + OF * operator + NANOSECONDS] += time.perf_counter_ns() - began

    def times(self) -> Times | None:
        """None if times are not measured."""
        if not self.address:
            return None
        words = self._table[SCRATCH:].reshape(-1, OF)[:, [NANOSECONDS, TOOK, PASSED_ON]]
        return Times(tuple(OperatorTime(*map(int, of)) for of in words))
