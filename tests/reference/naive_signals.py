"""The slow model of signals: runs of samples, and their windows, from what the documentation says.

A row is its time in microseconds and its samples; None in one of them: the row has no sample.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

Row = tuple[int | None, tuple[Any, ...]]


@dataclass
class NaiveRun:
    """Samples without a gap: the number of the first, and the rows. ``origin``: the time of sample
    0 in nanoseconds."""

    first: int
    rate: Fraction
    origin: int
    rows: list[Row] = field(default_factory=list)

    @property
    def last(self) -> int:
        return self.first + len(self.rows)

    def time_of(self, number: int) -> int:
        """The time of a sample, in nanoseconds."""
        return self.origin + number * 1_000_000_000 * self.rate.denominator // self.rate.numerator


@dataclass
class NaiveWindow:
    start: int
    end: int
    rows: list[Row]


@dataclass
class NaiveSignal:
    """A signal of ``rate`` hertz; ``timed``: its rows have times. ``tolerance`` in microseconds."""

    rate: Fraction
    timed: bool
    tolerance: int | None = None
    origin: int = 0
    samples: int = 0
    gaps: int = 0
    overlapping: int = 0
    missing: int = 0
    rests: int = 0
    runs: list[NaiveRun] = field(default_factory=list)

    def read(self, rows: Sequence[Row]) -> None:
        for place, row in enumerate(rows):
            if (self.timed and row[0] is None) or None in row[1]:
                self.missing += 1
                continue
            found = self._place(row) if self.timed else (place, 0)
            if found is None:
                self.overlapping += 1
                continue
            number, origin = found
            self.samples += 1
            if not self.runs or (self.runs[-1].last, self.runs[-1].origin) != found:
                self.gaps += bool(self.runs) and self.timed
                self.runs.append(NaiveRun(number, self.rate, origin))
            self.runs[-1].rows.append(row)

    def _place(self, row: Row) -> tuple[int, int] | None:
        """The number of a sample with a time, and the time of sample 0; None: it is too early."""
        assert row[0] is not None
        time, period = 1000 * row[0], 1_000_000_000 / self.rate
        half = int(period / 2)
        within = 1000 + (half if self.tolerance is None else 1000 * self.tolerance)
        if not self.runs:
            self.origin = time
            return 0, time
        run = self.runs[-1]
        early = run.time_of(run.last) - time
        if abs(early) <= within:
            return run.last, run.origin
        if early > 0:
            return None
        nearest = round((time - run.origin) / period)
        if self.tolerance is None or abs(run.time_of(nearest) - time) <= within:
            return nearest, run.origin
        number = math.floor((time - self.origin) / period)
        behind = time - self.origin - math.floor(number * period)
        step = 1000 * self.tolerance
        return number, self.origin + step * math.floor(Fraction(behind, step) + Fraction(1, 2))

    def by_rows(self, size: int, slide: int, *, rests: bool = False) -> Iterator[NaiveWindow]:
        for run in self.runs:
            first, covered = run.first, run.first
            while first + size <= run.last:
                yield self._window(run, first, first + size, first + size)
                covered = first + size
                first += slide
            yield from self._rest(run, max(first, covered), run.last, first + size, rests)

    def by_time(self, size: int, slide: int, *, rests: bool = False) -> Iterator[NaiveWindow]:
        """``size`` and ``slide`` in microseconds."""
        for run in self.runs:
            start = -(-run.time_of(run.first) // (1000 * slide)) * slide
            lead = min(start, start - slide + size)
            behind = self._first_at(run, 1000 * lead)
            yield from self._in_time(
                self._rest(run, run.first, behind, 0, rests), start - slide + size
            )
            covered = self._first_at(run, 1000 * start)
            while run.time_of(run.last) >= 1000 * (start + size):
                first, end = (self._first_at(run, 1000 * t) for t in (start, start + size))
                rows = run.rows[first - run.first : end - run.first]
                yield NaiveWindow(start, start + size, rows)
                covered = end
                start += slide
            rest = max(covered, self._first_at(run, 1000 * start))
            yield from self._in_time(self._rest(run, rest, run.last, 0, rests), start + size)

    @staticmethod
    def _in_time(windows: Iterator[NaiveWindow], end: int) -> Iterator[NaiveWindow]:
        return (replace(window, end=end) for window in windows)

    def _first_at(self, run: NaiveRun, time: int) -> int:
        """The number of the first sample of a run at a time (nanoseconds) or later."""
        found = (n for n in range(run.first, run.last) if run.time_of(n) >= time)
        return next(found, run.last)

    def _rest(
        self, run: NaiveRun, first: int, last: int, end: int, rests: bool
    ) -> Iterator[NaiveWindow]:
        """The samples from ``first`` to ``last`` as a rest of a window that ends at ``end``."""
        self.rests += max(0, last - first)
        if rests and first < last:
            yield self._window(run, first, last, end)

    def _window(self, run: NaiveRun, first: int, last: int, end: int) -> NaiveWindow:
        start, stop = run.time_of(first) // 1000, run.time_of(end) // 1000
        return NaiveWindow(start, stop, run.rows[first - run.first : last - run.first])
