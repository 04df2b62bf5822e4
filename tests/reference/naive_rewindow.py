"""Signals in the reference: segments are tuples of samples."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from cql.planner.nodes.logical import Rewindow, Sync, samples_of
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
        return math.floor(self.origin + (self.number + ahead) * _SECOND / self.rate)


def _runs(node: Rewindow | Sync, rows: Sequence[Row]) -> list[list[Sample]]:
    """The parts of a signal without a gap."""
    signal = samples_of(node.input if isinstance(node, Rewindow) else node.right)
    assert signal is not None
    rate = signal.rate
    period, runs = _SECOND / rate, list[list[Sample]]()
    open_, origin, number, latest = False, None, 0, None
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
                origin, number, open_ = Fraction(time), 0, False
            elif abs(origin + number * period - time) > math.floor(period / 2) + 1:
                nearest = round((time - origin) / period)
                agrees = abs(origin + nearest * period - time) <= math.floor(period / 2) + 1
                open_ = False
                if nearest > number and agrees:
                    number = nearest
                else:
                    origin, number = Fraction(time), 0
            latest = time
        if not open_:
            runs.append([])
            open_ = True
        runs[-1].append(Sample(number, origin, rate, values))
        number += 1
    return runs


def rewindowed(node: Rewindow, rows: Sequence[Row]) -> Iterator[Row]:
    """The windows of the runs, each whole."""
    for run in _runs(node, rows):
        if node.by_time:
            first, last = run[0].time() // node.slide, run[-1].time() // node.slide
            windows = [(k * node.slide, k * node.slide + node.size) for k in range(first, last + 1)]
            for start, end in windows:
                inside = [s for s in run if start <= s.time() < end]
                if run[0].time() <= start and run[-1].time(1) >= end:
                    yield _window(inside, node, start, end)
        else:
            for k in range(0, len(run) - node.size + 1, node.slide):
                inside = run[k : k + node.size]
                yield _window(inside, node, inside[0].time(), inside[-1].time(1))


def _window(inside: Sequence[Sample], node: Rewindow, start: int, end: int) -> Row:
    segments = tuple(zip(*(s.values for s in inside), strict=True))
    segments = segments or ((),) * len(node.channels)
    marks = (*(None for _ in segments), start, end, end - 1)
    return Row((*segments, start, end, end - 1), marks)


def synced(node: Sync, left: Sequence[Row], right: Sequence[Row]) -> Iterator[Row]:
    """Each row with the samples in its range, once for each run."""
    runs = _runs(node, right)
    for row in left:
        begin, end = value_of(node.begin, row.values), value_of(node.end, row.values)
        if begin is None or end is None:
            continue
        begin, end = begin + node.after, end - node.before
        for run in runs:
            inside = [s.values for s in run if begin <= s.time() <= end]
            if inside:
                segments = tuple(zip(*inside, strict=True))
                yield Row((*row.values, *segments), (*row.marks, *(None for _ in segments)))
