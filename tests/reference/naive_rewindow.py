"""Signals in the reference: segments are tuples of samples."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import pairwise
from typing import Protocol

from cql.planner.nodes.logical import Concat, Fill, Gaps, Logical, Rewindow, Sync, Zip, samples_of
from tests.reference.naive_expr import evaluate as value_of
from tests.reference.naive_rows import Row
from tests.reference.naive_samples import Sample, Segment
from tests.reference.naive_signals import NaiveSignal

_SECOND = 1_000_000


class Reads(Protocol):
    """What reads a signal: the columns of its channels, and the one of its times."""

    @property
    def channels(self) -> tuple[int, ...]: ...
    @property
    def time(self) -> int | None: ...


@dataclass(frozen=True)
class SampleRow(Row):
    """A sample of a signal that a function in FROM makes, as a row."""

    sample: Sample = field(default_factory=lambda: Sample(0, Fraction(0), Fraction(1), ()))


def _segments(inside: Sequence[Sample]) -> tuple[Segment, ...]:
    made = tuple(map(Segment, zip(*(s.values for s in inside), strict=True)))
    for segment in made:
        segment.first = inside[0]
    return made


def runs_of(source: Logical, node: Reads, rows: Sequence[Row]) -> list[list[Sample]]:
    """The parts of the signal ``source``, which ``node`` reads, without a gap."""
    signal = samples_of(source)
    assert signal is not None
    if isinstance(source, Concat | Fill | Zip):
        return _made(node, rows)
    read = NaiveSignal(signal.rate, node.time is not None, signal.spec.tolerance)
    read.read(
        [
            (
                None if node.time is None else row.values[node.time],
                tuple(row.values[c] for c in node.channels),
            )
            for row in rows
        ]
    )
    return [
        [
            Sample(number, Fraction(run.origin, 1000), run.rate, values)
            for number, (_, values) in enumerate(run.rows, run.first)
        ]
        for run in read.runs
    ]


def _made(node: Reads, rows: Sequence[Row]) -> list[list[Sample]]:
    runs = list[list[Sample]]()
    for row in rows:
        assert isinstance(row, SampleRow)
        sample = replace(row.sample, values=tuple(row.values[c] for c in node.channels))
        last = runs[-1][-1] if runs else None
        if last is None or last.exact(1) != sample.exact():
            runs.append([])
        runs[-1].append(sample)
    return runs


def rewindowed(node: Rewindow, rows: Sequence[Row]) -> Iterator[Row]:
    """The windows of the runs, each whole, and the rests of the runs if the node wants them."""
    for run in runs_of(node.input, node, rows):
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
            lead = node.by_time and 1000 * start < run[0].nanoseconds()
            whole = not lead and run[-1].time(1) >= end
            if whole if node.by_time else len(inside) == node.size:
                covered |= {s.number for s in inside}
                yield _window(inside, node, start, end)
            elif node.rests:
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
    runs = runs_of(node.input, node, rows)
    for before, behind in pairwise(runs):
        start, end = before[-1].exact(1), behind[0].exact()
        missing = math.floor((end - start) * behind[0].rate / _SECOND + Fraction(1, 2))
        values = math.floor(start), math.floor(end), missing
        yield Row(values, (*values[:2], None))


def synced(node: Sync, left: Sequence[Row], right: Sequence[Row]) -> Iterator[Row]:
    """Each row with the samples in its range, once for each run."""
    runs = runs_of(node.right, node, right)
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
