"""Signals in the reference: segments are tuples of samples."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

from cql.planner.nodes.logical import Gaps, Rewindow, Sync, samples_of
from tests.reference.naive_expr import evaluate as value_of
from tests.reference.naive_rows import Row

_SECOND = 1_000_000


@dataclass(frozen=True)
class Sample:
    """A sample of all channels; ``number`` counts from ``origin`` (microseconds) at the rate."""

    number: int
    origin: Fraction
    rate: Fraction
    values: tuple[Any, ...]

    def time(self, ahead: int = 0) -> int:
        """The time in microseconds, rounded down; ``ahead`` samples later."""
        return math.floor(self.exact(ahead))

    def exact(self, ahead: int = 0) -> Fraction:
        return self.origin + (self.number + ahead) * _SECOND / self.rate


class Segment(tuple[Any, ...]):
    """Samples of a channel, and when the first one was."""

    first: Sample

    def time_of(self, number: int) -> int:
        """In nanoseconds."""
        return math.floor(1000 * self.first.exact(number))


def _segments(inside: Sequence[Sample]) -> tuple[Segment, ...]:
    made = tuple(map(Segment, zip(*(s.values for s in inside), strict=True)))
    for segment in made:
        segment.first = inside[0]
    return made


def _runs(node: Rewindow | Sync | Gaps, rows: Sequence[Row]) -> list[list[Sample]]:
    """The parts of a signal without a gap."""
    signal = samples_of(node.right if isinstance(node, Sync) else node.input)
    assert signal is not None
    rate = signal.rate
    period, runs = _SECOND / rate, list[list[Sample]]()
    step = signal.spec.tolerance
    within = (math.floor(period / 2) if step is None else step) + 1
    open_, origin, number, latest, first = False, None, 0, None, Fraction(0)
    for k, row in enumerate(rows):
        values = tuple(row.values[c] for c in node.channels)
        if any(v is None for v in values):
            open_ = False
            continue
        if node.time is None:
            number, origin = k, Fraction(0)
        else:
            time = row.values[node.time]
            if latest is not None and time <= latest:
                continue
            if origin is None:
                first = Fraction(time)
                origin, number, open_ = Fraction(time), 0, False
            elif step is not None and origin + number * period - time > within:
                continue
            elif abs(origin + number * period - time) > within:
                nearest = round((time - origin) / period)
                agrees = abs(origin + nearest * period - time) <= within
                open_ = False
                if nearest > number and agrees:
                    number = nearest
                elif step is None:
                    origin, number = Fraction(time), 0
                else:
                    number = math.floor((time - first) / period)
                    behind = time - first - number * period
                    origin = first + step * math.floor(behind / step + Fraction(1, 2))
            latest = time
        if not open_:
            runs.append([])
            open_ = True
        runs[-1].append(Sample(number, origin, rate, values))
        number += 1
    return runs


def rewindowed(node: Rewindow, rows: Sequence[Row]) -> Iterator[Row]:
    """The windows of the runs, each whole, and the rests of the runs if the node wants them."""
    for run in _runs(node, rows):
        covered = set[int]()
        if node.by_time:
            first, last = run[0].time() // node.slide, run[-1].time() // node.slide
            windows = [(k * node.slide, k * node.slide + node.size) for k in range(first, last + 1)]
            spans = [([s for s in run if start <= s.time() < end], start, end)
                     for start, end in windows]  # fmt: skip
        else:
            firsts = range(0, len(run), node.slide)
            spans = [_counted(run[k : k + node.size], node.size) for k in firsts]
        for inside, start, end in spans:
            if run[0].time() <= start and run[-1].time(1) >= end:
                covered |= {s.number for s in inside}
                yield _window(inside, node, start, end)
            elif node.rests:
                lead = start < run[0].time()
                rest = [s for s in inside if s.number not in covered]
                if lead:  # but what the next window has
                    rest = [s for s in rest if s.time() < start + node.slide]
                covered |= {s.number for s in rest}
                if rest:
                    yield _window(rest, node, rest[0].time(), end)


def _counted(inside: Sequence[Sample], size: int) -> tuple[Sequence[Sample], int, int]:
    return inside, inside[0].time(), inside[0].time(size)


def _window(inside: Sequence[Sample], node: Rewindow, start: int, end: int) -> Row:
    segments = _segments(inside) or ((),) * len(node.channels)
    marks = (*(None for _ in segments), start, end, end - 1)
    return Row((*segments, start, end, end - 1), marks)


def gaps(node: Gaps, rows: Sequence[Row]) -> Iterator[Row]:
    """A row for each gap between two runs."""
    runs = _runs(node, rows)
    for before, behind in pairwise(runs):
        start, end = before[-1].exact(1), behind[0].exact()
        missing = math.floor((end - start) * behind[0].rate / _SECOND + Fraction(1, 2))
        values = math.floor(start), math.floor(end), missing
        yield Row(values, (*values[:2], None))


def synced(node: Sync, left: Sequence[Row], right: Sequence[Row]) -> Iterator[Row]:
    """Each row with the samples in its range, once for each run."""
    runs = _runs(node, right)
    for row in left:
        begin, end = value_of(node.begin, row.values), value_of(node.end, row.values)
        if begin is None or end is None:
            continue
        begin, end = begin + node.after, end - node.before
        for run in runs:
            inside = [s for s in run if begin <= s.time() <= end]
            if inside:
                segments = _segments(inside)
                yield Row((*row.values, *segments), (*row.marks, *(None for _ in segments)))
