"""The slow model of signals: runs of samples, and their windows, from what the documentation says.

A row is its time in microseconds and its samples; None in one of them: the row has no sample.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

Row = tuple[int | None, tuple[Any, ...]]


@dataclass
class NaiveRun:
    """Samples without a gap: the number of the first, and the rows."""

    first: int
    rows: list[Row] = field(default_factory=list)

    @property
    def last(self) -> int:
        return self.first + len(self.rows)


@dataclass
class NaiveWindow:
    start: int
    end: int
    rows: list[Row]


@dataclass
class NaiveSignal:
    """A signal of ``rate`` hertz; ``timed``: its rows have times."""

    rate: Fraction
    timed: bool
    origin: int = 0
    samples: int = 0
    gaps: int = 0
    overlapping: int = 0
    missing: int = 0
    rests: int = 0
    runs: list[NaiveRun] = field(default_factory=list)

    def time_of(self, number: int) -> int:
        """The time of a sample, in nanoseconds."""
        return self.origin + number * 1_000_000_000 * self.rate.denominator // self.rate.numerator

    def read(self, rows: Sequence[Row]) -> None:
        for place, row in enumerate(rows):
            if (self.timed and row[0] is None) or None in row[1]:
                self.missing += 1
                continue
            number = self._number(row) if self.timed else place
            if number is None:
                self.overlapping += 1
                continue
            self.samples += 1
            if not self.runs or self.runs[-1].last != number:
                self.gaps += bool(self.runs) and self.timed
                self.runs.append(NaiveRun(number))
            self.runs[-1].rows.append(row)

    def _number(self, row: Row) -> int | None:
        """The number of a sample with a time; None: it is too early."""
        assert row[0] is not None
        time, half = 1000 * row[0], Fraction(1_000_000_000, 2) / self.rate
        if not self.runs:
            self.origin = time
            return 0
        following = self.runs[-1].last
        early = self.time_of(following) - time
        if abs(early) <= int(half) + 1000:
            return following
        return None if early > 0 else round((time - self.origin) * self.rate / 1_000_000_000)

    def by_rows(self, size: int, slide: int) -> Iterator[NaiveWindow]:
        for run in self.runs:
            first = run.first
            while first + size <= run.last:
                start, end = self.time_of(first) // 1000, self.time_of(first + size) // 1000
                at = first - run.first
                yield NaiveWindow(start, end, run.rows[at : at + size])
                first += slide
            covered = run.first if first == run.first else first - slide + size
            self.rests += max(0, run.last - max(first, covered))

    def by_time(self, size: int, slide: int) -> Iterator[NaiveWindow]:
        """``size`` and ``slide`` in microseconds."""
        for run in self.runs:
            times = [self.time_of(number) for number in range(run.first, run.last)]
            start = -(-times[0] // (1000 * slide)) * slide
            self.rests += sum(t < 1000 * start for t in times)
            covered = 1000 * start
            while self.time_of(run.last) >= 1000 * (start + size):
                of = [1000 * start <= t < 1000 * (start + size) for t in times]
                yield NaiveWindow(
                    start, start + size, [r for r, here in zip(run.rows, of, strict=True) if here]
                )
                covered = 1000 * (start + size)
                start += slide
            self.rests += sum(t >= max(covered, 1000 * start) for t in times)
