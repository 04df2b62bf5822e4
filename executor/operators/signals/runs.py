"""Runs: the parts of a signal without a gap, found from the times of its samples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from cql.executor.operators.signals.segment_store import Timebase

_SECOND, _MICROSECOND = 1_000_000_000, 1_000
#: Samples whose times are compared together.
_FEWEST, _MOST = 256, 1 << 14
#: From the beginning of a timebase to a sample behind a gap, in nanoseconds: 36 years.
_LONGEST = 1 << 60


@dataclass(frozen=True, slots=True)
class Run:
    """``samples`` samples from place ``first`` of a block on; ``start`` is the number of the first
    in its timebase."""

    first: int
    samples: int
    start: int
    base: Timebase


@dataclass(slots=True)
class Runs:
    """Follows a signal of ``rate`` hertz. A sample belongs to the run if its time is within
    ``tolerance`` nanoseconds (None: half a period) of where the rate says it should be, and a
    microsecond, as times are rounded. An earlier sample overlaps the run, and is left out. A later
    one is behind a gap: its number is that of the nearest time of the timebase, so that runs come
    in the order of their times.

    A timebase whose nearest time is not within the tolerance is left for one that begins later by
    a multiple of the tolerance: so there are few. A gap of many years begins a new one, too, since
    the numbers of samples have 64 bits."""

    rate: Fraction
    tolerance: int | None = None
    base: Timebase | None = None
    origin: int = 0  # of the timebase from which others begin later
    following: int = 0  # the number of the next sample
    gaps: int = 0
    overlapping: int = 0  # samples left out since they are too early
    missing: int = 0  # rows without a sample
    samples: int = 0

    # -- checkpoints -----------------------------------------------------------------------------

    @property
    def words(self) -> list[int]:
        """The state, of which ``continued`` makes such runs again."""
        own = 0 if self.base is None else self.base.origin
        counts = (self.gaps, self.overlapping, self.missing, self.samples)
        return [self.base is not None, own, self.origin, self.following, *counts]

    def continued(self, words: Sequence[int]) -> Runs:
        """Runs of this rate that go on with the state ``words``."""
        base = Timebase(self.rate, words[1]) if words[0] else None
        return Runs(self.rate, self.tolerance, base, *words[2:])

    # -- blocks ----------------------------------------------------------------------------------

    @property
    def _tolerance(self) -> int:
        half = int(_SECOND / self.rate / 2)
        return (half if self.tolerance is None else self.tolerance) + _MICROSECOND

    def of(
        self, n: int, times: npt.NDArray[np.int64] | None, valid: npt.NDArray[np.bool_] | None
    ) -> list[Run]:
        """The runs of a block of ``n`` rows. ``times``: in microseconds; None: there are no gaps.
        ``valid``: whether a row has a sample (None: each has)."""
        found: list[Run] = []
        there, before = 0, self.following
        for first, last in _ranges(n, valid):
            there += last - first
            if times is None:
                self.base = self.base or Timebase(self.rate)
                found.append(Run(first, last - first, before + first, self.base))
            else:
                found += self._timed(first, times[first:last])
        self.missing += n - there
        self.samples += sum(run.samples for run in found)
        if times is None:
            self.following = before + n
        return found

    def _timed(self, first: int, times: npt.NDArray[np.int64]) -> list[Run]:
        found: list[Run] = []
        at, n = 0, len(times)
        while at < n:
            fits = self._fitting(times[at:])
            if fits:
                assert self.base is not None
                found.append(Run(first + at, fits, self.following, self.base))
                self.following += fits
                at += fits
            else:
                at += self._jump(times[at:])
        return found

    def _fitting(self, times: npt.NDArray[np.int64]) -> int:
        """How many samples go on where the run is."""
        if self.base is None:
            return 0
        period = float(_SECOND / self.rate)
        first = int(times[0])
        late = first * _MICROSECOND - self._time_of(self.following)
        for at, stop in _pieces(len(times)):
            ahead = (times[at:stop] - first) * float(_MICROSECOND)
            ahead += late
            ahead -= np.arange(at, stop) * period
            off = np.abs(ahead, out=ahead) > self._tolerance
            if off.any():
                return at + int(np.argmax(off))
        return len(times)

    def _jump(self, times: npt.NDArray[np.int64]) -> int:
        """Leaves out the samples that are too early, or moves to the time of the first one, over a
        gap. Returns how many samples are left out."""
        time = int(times[0]) * _MICROSECOND
        if self.base is None:
            self.base, self.origin = Timebase(self.rate, time), time
            return 0
        due = self._time_of(self.following) - self._tolerance
        if time < due:
            left = _first_from(times, -(-due // _MICROSECOND))
            self.overlapping += left
            return left
        self.gaps += 1
        if time - self.origin > _LONGEST:
            self.base, self.origin, self.following = Timebase(self.rate, time), time, 0
        else:
            self._place(time)
        return 0

    def _place(self, time: int) -> None:
        """Moves to the sample at ``time``, over a gap."""
        assert self.base is not None
        self.following = round((time - self.base.origin) * self.rate / _SECOND)
        off = abs(time - self._time_of(self.following))
        if self.tolerance is None or off <= self._tolerance:
            return
        self.base = Timebase(self.rate, self.origin)
        self.following = int((time - self.origin) * self.rate // _SECOND)
        times, rest = divmod(time - self._time_of(self.following), self.tolerance)
        times += 2 * rest >= self.tolerance
        self.base = Timebase(self.rate, self.origin + times * self.tolerance)

    def _time_of(self, number: int) -> int:
        assert self.base is not None
        return self.base.origin + int(number * _SECOND / self.rate)


def _first_from(times: npt.NDArray[np.int64], least: int) -> int:
    """The number of the first time that is not before ``least``."""
    for at, stop in _pieces(len(times)):
        found = times[at:stop] >= least
        if found.any():
            return at + int(np.argmax(found))
    return len(times)


def _pieces(n: int) -> Iterator[tuple[int, int]]:
    """Ranges of rows to look at one after the other: each stays in the cache, and a search that
    ends soon costs no look at the others."""
    at, together = 0, _FEWEST
    while at < n:
        stop = min(at + together, n)
        yield at, stop
        at, together = stop, min(2 * together, _MOST)


def _ranges(n: int, valid: npt.NDArray[np.bool_] | None) -> list[tuple[int, int]]:
    """The ranges of rows that have samples."""
    if n == 0:
        return []
    if valid is None or valid.all():
        return [(0, n)]
    edges = np.flatnonzero(np.diff(np.concatenate([[0], valid.astype(np.int8), [0]])))
    pairs: list[list[int]] = edges.reshape(-1, 2).tolist()
    return [(a, b) for a, b in pairs]
