"""Signals: streams of samples at regular times, windows of them, and their samples in ranges."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cql.base.model import Field
from cql.base.types import TIMESTAMP, signal
from cql.errors import NotSupportedError, PlanError, Position
from cql.planner.lower.choose import duration
from cql.planner.lower.joins.pair_columns import with_columns
from cql.planner.lower.struct_samples import fields_of, has_structs, put_together, taken_apart
from cql.planner.nodes.expr import Column
from cql.planner.nodes.logical import (
    Concat,
    Fill,
    Gaps,
    Logical,
    Rewindow,
    Samples,
    Scan,
    Sync,
    Zip,
    samples_of,
)
from cql.planner.nodes.physical import (
    ConcatExec,
    FillExec,
    GapsExec,
    Physical,
    ProjectExec,
    RewindowExec,
    SamplesExec,
    SegmentsExec,
    SignalInput,
    SourceExec,
    SyncExec,
    ZipExec,
)
from cql.planner.nodes.physical.columns import column_at
from cql.planner.nodes.show import show

#: What segments do with samples under each value of the setting ``segments``.
_SHARING = {
    "lazy": "which share the samples",
    "realloc": "which share the samples, and append by realloc",
    "refcount_copy": "which share the samples, and append by a copy",
    "copy_always": "which copy the samples",
}
Lower = Callable[[Logical], Physical]


def _sharing(settings: Mapping[str, Any]) -> str:
    rows = " in rows" if settings["sample_order"] == "rows" else ""
    return _SHARING[settings["segments"]] + rows


def rewindow(node: Rewindow, lower: Lower, settings: Mapping[str, Any]) -> Physical:
    """The windows of a signal, as segments."""
    source = _segments(node.input, node.channels, node.time, lower, node.pos)
    if node.by_time:
        size, slide = (duration(n, node.schema.fields[-1].type) for n in (node.size, node.slide))
    else:
        size, slide = f"{node.size:,} samples", f"{node.slide:,}"
    rests = " and the rests of runs" if node.rests else ""
    sharing = _sharing(settings)
    why = f"segments of {size} every {slide}{rests}, {sharing} (XStream paper §III)"
    return RewindowExec(source, node.size, node.slide, node.by_time, node.rests, why)


def gaps(node: Gaps, lower: Lower) -> Physical:
    """The gaps of a signal."""
    source = _segments(node.input, node.channels, node.time, lower, node.pos, node.tolerance)
    return GapsExec(source, "a row for each gap, when the first sample behind it comes")


def sync(node: Sync, lower: Lower, settings: Mapping[str, Any]) -> Physical:
    """The samples of a signal in the ranges of ``left``.

    Raises PlanError if nothing says up to which time no more ranges begin."""
    width, names = len(node.left.schema), node.schema.names
    left, (begin, end) = with_columns(lower(node.left), [node.begin, node.end])
    if begin not in left.progressing:
        raise PlanError(
            f"nothing says from which time on no range begins, as {show(node.begin)} has no"
            " watermark: all samples would be kept for ever",
            position=node.pos,
            hint="a range begins at a column with a watermark, such as window_start",
        )
    right = _segments(node.right, node.channels, node.time, lower, node.pos)
    ranges = f"{show(node.begin)} to {show(node.end)}"
    sharing = _sharing(settings)
    why = f"segments of the ranges {ranges}, {sharing} (XStream paper §II)"
    made = SyncExec(left, right, begin, end, node.after, node.before, why)
    if len(left.schema) == width:
        return made
    fields, behind = made.schema.fields, len(left.schema)
    shown = (*range(width), *range(behind, len(fields)))
    columns = tuple(Column(k, fields[k].name, fields[k].type, fields[k].nullable) for k in shown)
    return ProjectExec(made, columns, names)


def samples(node: Concat | Fill | Zip, lower: Lower) -> Physical:
    """The samples of the signal that a function in FROM makes, as rows."""
    found = samples_of(node)
    assert found is not None
    made, own = _made(node, found, lower)
    columns = range(len(node.schema))
    channels = tuple(own.index(c) for c in columns if c != found.time)
    times = "" if found.time is None else f", at the times of {node.schema[found.time].name}"
    why = f"a row for each sample of the segments{times}"
    fields = node.schema.fields
    if not has_structs(fields):
        return SamplesExec(made, fields, channels, found.time, why)
    parts, time = fields_of(fields), found.time
    if time is not None:
        time = len(fields_of(fields[:time]))
    shown = taken_apart(_selected(made, channels))
    rows = SamplesExec(shown, parts, tuple(range(len(shown.schema))), time, why)
    return put_together(rows, fields)


def _selected(child: Physical, columns: Sequence[int], why: str = "") -> Physical:
    """These columns of ``child``."""
    if tuple(columns) == tuple(range(len(child.schema))):
        return child
    shown = tuple(column_at(child.schema, c) for c in columns)
    return ProjectExec(child, shown, tuple(c.name for c in shown), why)


def _segments(
    plan: Logical,
    channels: Sequence[int],
    time: int | None,
    lower: Lower,
    pos: Position | None,
    tolerance: int | None = None,
) -> Physical:
    """The ``channels`` of a signal, as segments: those of its source, or of rows that are its
    samples. ``tolerance``: instead of that of the signal."""
    found = samples_of(plan)
    assert found is not None
    if isinstance(plan, Concat | Fill | Zip):
        made, own = _made(plan, found, lower)
        return _selected(made, [own.index(c) for c in channels], "the channels that are read")
    scan, spec = found.scan, found.spec
    if isinstance(scan, Scan) and spec.is_queued:
        raise NotSupportedError(
            f"segments of the signal {'.'.join(scan.relation.name)} with UPDATE KEY or QUEUE are"
            " not supported: a signal has a sample for each of its times",
            position=pos,
        )
    times = "numbered from 1970 on" if time is None else f"at the times of {plan.schema[time].name}"
    if tolerance is None:
        tolerance = spec.tolerance
    if tolerance is not None:
        times += f", within {duration(tolerance, TIMESTAMP)}"
    why = f"segments of samples at {float(found.rate):,.15g} Hz, {times}"
    if isinstance(plan, Scan):
        given = signal_input(found, time, tolerance)
        return SourceExec(
            plan.relation, plan.columns, why, plan.pos, alias=plan.alias, signal=given
        )
    columns = (*channels, *(() if time is None else (time,)))
    child = _selected(lower(plan), columns, "the channels and times of the signal")
    fields = child.schema.fields
    if has_structs(fields):
        child = taken_apart(child)
    count = len(child.schema) - (time is not None)
    given = signal_input(found, None if time is None else count, tolerance)
    made = SegmentsExec(child, given, found.name, f"{why}, computed of the samples")
    if not has_structs(fields):
        return made
    segments = [Field(f.name, signal(f.type), False) for f in fields[: len(channels)]]
    return put_together(made, segments)


def _made(
    plan: Concat | Fill | Zip, found: Samples, lower: Lower
) -> tuple[Physical, tuple[int, ...]]:
    """The segments that a function in FROM makes, and the channels of ``plan`` that they are."""
    rate = found.rate
    if isinstance(plan, Concat):
        child = lower(plan.input)
        child = _selected(child, plan.channels, "the segments")
        hertz = f"{float(rate):,.15g} Hz"
        why = (
            f"the segments of {plan.name} as a signal of {hertz}, each at its own times"
            if plan.in_time
            else f"the segments of {plan.name} one behind the other, as a signal of {hertz} without"
            " gaps, numbered from 1970 on"
        )
        made = ConcatExec(child, rate.numerator, rate.denominator, plan.name, plan.in_time, why)
        return made, tuple(k for k in range(len(plan.schema)) if k != found.time)
    if isinstance(plan, Fill):
        below = _segments(plan.input, plan.channels, plan.time, lower, plan.pos)
        how = "along a line" if plan.linear else "with the sample before them"
        why = f"gaps of at most {plan.longest:,} samples are filled {how}"
        fields = below.schema.fields
        if not has_structs(fields):
            return FillExec(below, plan.longest, plan.linear, why), plan.channels
        filled = FillExec(taken_apart(below), plan.longest, plan.linear, why)
        return put_together(filled, fields), plan.channels
    left = _segments(plan.left, plan.channels, plan.time, lower, plan.pos)
    right = _segments(plan.right, plan.beside, plan.time_beside, lower, plan.pos)
    tolerance = min(_tolerance(plan.left), _tolerance(plan.right))
    why = (
        f"two signals of {float(rate):,.15g} Hz side by side, where both have samples, at most"
        f" {tolerance / 1000:,.9g} microseconds apart"
    )
    first = 0 if plan.time is None else 1
    channels = tuple(range(first, len(plan.schema)))
    return ZipExec(left, right, tolerance, why), channels


def _tolerance(plan: Logical) -> int:
    """How far a sample of a signal may be from where the rate says, in nanoseconds."""
    found = samples_of(plan)
    assert found is not None
    half = int(500_000_000 / found.rate) + 1
    return half if found.spec.tolerance is None else min(1_000 * found.spec.tolerance, half)


def signal_input(samples: Samples, time: int | None, tolerance: int | None) -> SignalInput:
    """A signal whose times are in column ``time`` of the rows, at most ``tolerance`` microseconds
    from where the rate says."""
    return SignalInput(samples.rate.numerator, samples.rate.denominator, time, tolerance)
