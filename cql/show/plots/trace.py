"""The curve of one channel: all its samples while they are few, then the least and the greatest of
each step, so that no peak is lost and memory is bounded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Numbers: TypeAlias = NDArray[np.float64]

#: The greatest number of steps of a curve; it has at least half of them. A picture has fewer
#: columns of pixels.
STEPS = 4_000


@dataclass(frozen=True, slots=True)
class Curve:
    """Samples at ``places`` in sample periods; NaN between two is a gap."""

    places: Numbers
    values: Numbers


@dataclass(frozen=True, slots=True)
class Envelope:
    """The least and the greatest sample between each two ``edges``; NaN: there is none."""

    edges: Numbers
    low: Numbers
    high: Numbers


class Trace:
    """The samples of one channel, as they come. Their places are in sample periods. Two samples are
    neighbours if they are one period apart, within ``tolerance`` periods."""

    def __init__(self, tolerance: float = 0.5, steps: int = STEPS) -> None:
        self.samples = 0
        self._tolerance = tolerance
        self._steps = steps
        self._few: list[tuple[Numbers, Numbers]] | None = []
        self._width = 1  # of a step, in periods
        self._first = 0  # the number of the first step
        self._low: Numbers = np.empty(0)
        self._high: Numbers = np.empty(0)

    def add(self, places: NDArray[Any], values: Numbers) -> None:
        self.samples += len(values)
        if self._few is None:
            self._count(places, values)
            return
        self._few.append((places.astype(np.float64), values))
        if self.samples > self._steps:
            kept, self._few = self._few, None
            for at, of in kept:
                self._count(at, of)

    def drawn(self) -> Curve | Envelope:
        if self._few is None:
            edges = self._first + np.arange(len(self._low) + 1, dtype=np.float64)
            return Envelope(edges * self._width, self._low, self._high)
        nothing = [np.empty(0)]
        places = np.concatenate([p for p, _ in self._few] or nothing)
        values = np.concatenate([v for _, v in self._few] or nothing)
        breaks = np.flatnonzero(np.abs(np.diff(places) - 1) > self._tolerance + 1e-6) + 1
        return Curve(np.insert(places, breaks, np.nan), np.insert(values, breaks, np.nan))

    def _count(self, places: NDArray[Any], values: Numbers) -> None:
        known = ~np.isnan(values)
        places, values = places[known], values[known]
        if not len(values):
            return
        self._make_room(float(places.min()), float(places.max()))
        step = np.floor(places / self._width).astype(np.int64) - self._first
        begins = np.flatnonzero(np.diff(step, prepend=step[0] - 1))
        np.fmin.at(self._low, step[begins], np.minimum.reduceat(values, begins))
        np.fmax.at(self._high, step[begins], np.maximum.reduceat(values, begins))

    def _make_room(self, least: float, greatest: float) -> None:
        """Extends the steps to these places, and doubles their width until they are few enough."""
        while True:
            first, last = int(least // self._width), int(greatest // self._width)
            if len(self._low):
                first = min(first, self._first)
                last = max(last, self._first + len(self._low) - 1)
            if last - first < self._steps:
                break
            self._double()
        before = self._first - first if len(self._low) else 0
        after = last - first + 1 - before - len(self._low)
        self._low, self._high = (
            np.pad(a, (before, after), constant_values=np.nan) for a in (self._low, self._high)
        )
        self._first = first

    def _double(self) -> None:
        odd = self._first % 2
        rest = (len(self._low) + odd) % 2
        pairs = [
            np.pad(a, (odd, rest), constant_values=np.nan).reshape(-1, 2)
            for a in (self._low, self._high)
        ]
        self._low, self._high = np.fmin.reduce(pairs[0], 1), np.fmax.reduce(pairs[1], 1)
        self._first //= 2
        self._width *= 2
