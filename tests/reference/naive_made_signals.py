"""CONCAT, SIGNAL, FILL and ZIP in the reference: the samples of the signal that each makes, as
rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from cql.base.types import DataType, Kind
from cql.planner.nodes.logical import Concat, Fill, Zip, samples_of
from tests.reference.naive_rewindow import SampleRow, runs_of
from tests.reference.naive_rows import Row
from tests.reference.naive_samples import Sample
from tests.reference.naive_values import to_float32

_SECOND = 1_000_000_000
Runs = list[list[Sample]]


def concatenated(node: Concat, rows: Sequence[Row]) -> Iterator[Row]:
    """The samples of the segments of the rows: numbered from 1970 on, or those at times that none
    of an earlier row has passed."""
    if node.in_time:
        yield from _in_time(node, rows)
        return
    number = 0
    for row in rows:
        for values in zip(*(row.values[c] for c in node.channels), strict=True):
            sample = Sample(number, Fraction(0), node.rate, values)
            yield SampleRow(values, (None,) * len(values), sample=sample)
            number += 1


def _in_time(node: Concat, rows: Sequence[Row]) -> Iterator[Row]:
    last: Sample | None = None
    for row in rows:
        given = [row.values[c] for c in node.channels]
        due = None if last is None else last.nanoseconds(1)
        for k, values in enumerate(zip(*given, strict=True)):
            first = given[0].first
            sample = replace(first, number=first.number + k, values=values)
            if due is None or sample.nanoseconds() >= due:
                last = sample
                yield _row(sample, range(1, 1 + len(values)), 0)


def filled(node: Fill, rows: Sequence[Row]) -> Iterator[Row]:
    """The samples, with new ones in gaps of at most ``longest``."""
    made, due = Runs(), 0
    kinds = [node.schema[c].type for c in node.channels]
    for run in runs_of(node.input, node, rows):
        begins, n = run[0].nanoseconds(), 0
        if made and begins > due:
            late = max(begins - made[-1][-1].nanoseconds(1), 0)
            n = math.floor(late * run[0].rate / _SECOND + Fraction(1, 2))
        due = run[-1].nanoseconds(1)
        if not made or n > node.longest:
            made.append(list(run))
            continue
        last, first = made[-1][-1], run[0]
        between = (
            tuple(
                _between(kind, before, behind, k, n) if node.linear else before
                for kind, before, behind in zip(kinds, last.values, first.values, strict=True)
            )
            for k in range(1, n + 1)
        )
        values = (*between, *(sample.values for sample in run))
        made[-1] += [
            replace(last, number=last.number + k, values=each) for k, each in enumerate(values, 1)
        ]
    for sample in (sample for run in made for sample in run):
        yield _row(sample, node.channels, node.time)


def _between(kind: DataType, before: Any, behind: Any, part: int, n: int) -> Any:
    exact = float(before) + (float(behind) - float(before)) * part / (n + 1)
    if kind.is_fraction:
        return to_float32(exact) if kind.kind is Kind.FLOAT else exact
    low, high = min(before, behind), max(before, behind)
    return high if exact >= float(high) else low if exact <= float(low) else round(exact)


def _row(sample: Sample, channels: Sequence[int], time: int | None) -> SampleRow:
    """The row of a sample, with its values in the columns ``channels``."""
    values = dict(zip(channels, sample.values, strict=True))
    if time is not None:
        values[time] = sample.time()
    columns = range(len(values))
    marks = tuple(values[c] if c == time else None for c in columns)
    return SampleRow(tuple(values[c] for c in columns), marks, sample=sample)


@dataclass(frozen=True)
class _Right:
    channels: tuple[int, ...]
    time: int | None


def zipped(node: Zip, left: Sequence[Row], right: Sequence[Row]) -> Iterator[Row]:
    """Each sample of ``left`` with the nearest one of ``right``, at most half a period away."""
    signal = samples_of(node.left)
    assert signal is not None
    if signal.spec.tolerance is not None:
        raise NotImplementedError("the reference does not evaluate ZIP with a TOLERANCE yet")
    half, first = int(_SECOND / 2 / signal.rate), 0
    runs = runs_of(node.right, _Right(node.beside, node.time_beside), right)
    others = [sample for run in runs for sample in run]
    width = len(node.channels) + len(node.beside)
    time = None if node.time is None else 0
    for sample in (sample for run in runs_of(node.left, node, left) for sample in run):
        while first < len(others) and _shift(sample, others[first], half) < 0:
            first += 1
        if first < len(others) and _shift(sample, others[first], half) == 0:
            both = replace(sample, values=sample.values + others[first].values)
            channels = range(width) if time is None else range(1, width + 1)
            yield _row(both, channels, time)
            first += 1


def _shift(sample: Sample, other: Sample, half: int) -> int:
    """By how many samples ``other`` comes later than the partner of ``sample`` does. The first
    sample of its timebase from half a period before sample 0 of the other one is the partner of
    that one."""
    begin = 1000 * sample.origin - half
    number = math.floor((begin - 1000 * other.origin) * other.rate / _SECOND) - 2
    while replace(other, number=number).nanoseconds() < begin:
        number += 1
    return other.number - number - sample.number
