"""What the columns of a plan are in a picture: samples or spectra of a known rate, and bounds of
windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from fractions import Fraction
from typing import TypeAlias

from cql.base.types import Kind
from cql.errors import Position
from cql.planner.nodes.expr import Call, Cast, Column, Expr, Literal
from cql.planner.nodes.logical import WINDOW_COLUMNS
from cql.planner.nodes.logical.running import first_segment
from cql.planner.nodes.physical import (
    ConcatExec,
    FilterExec,
    LimitExec,
    Physical,
    ProcessExec,
    ProjectExec,
    RewindowExec,
    RunningExec,
    SegmentsExec,
    SourceExec,
)
from cql.planner.nodes.physical.base import PassesRows, SameColumns
from cql.planner.nodes.physical.walk import sources


class Values(Enum):
    """What the values of a segment are."""

    SAMPLES = "samples"
    COMPLEX = "complex spectrum"
    MAGNITUDE = "magnitude"
    POWER = "power"


@dataclass(frozen=True, slots=True)
class Segment:
    """A column of segments. ``rate`` of the samples, in hertz. ``count``: the number of samples of
    each window, for a spectrum of those that it was computed of; None: it differs. ``first``: the
    number of the first value that the segment has; ``length``: the number of its values, None: all
    that follow."""

    rate: Fraction
    count: int | None
    values: Values = Values.SAMPLES
    first: int = 0
    length: int | None = None

    @property
    def is_whole(self) -> bool:
        return self.first == 0 and self.length is None


@dataclass(frozen=True, slots=True)
class Bound:
    """A column with a bound of windows: its start is ``behind`` microseconds before. ``size`` and
    ``slide`` of the windows in microseconds. ``rate`` of the signal, in hertz. ``by_time``: the
    first sample of a window is the first one at its start or after it; ``numbered``: sample 0 is at
    time 0."""

    behind: Fraction
    size: Fraction
    slide: Fraction
    rate: Fraction
    by_time: bool
    numbered: bool


Meaning: TypeAlias = Segment | Bound | None


@dataclass(frozen=True, slots=True)
class Samples:
    """Rows that are the samples of a signal, of ``rate`` hertz. ``time``: the column with their
    times; None: sample ``first`` is the first row. ``tolerance`` of the times in microseconds."""

    rate: Fraction
    time: int | None
    tolerance: int | None = None
    first: int = 0


@dataclass(frozen=True, slots=True)
class Lost:
    """Rows that are samples whose times are unknown, with the reason and the remedy."""

    why: str
    hint: str


# -- rows that are samples -------------------------------------------------------------------------


def samples_of(node: Physical) -> Samples | Lost | None:
    """The signal whose samples the rows of a plan are; None: they are no samples."""
    match node:
        case SourceExec():
            return _samples_of_source(node)
        case LimitExec():
            below = samples_of(node.input)
            if isinstance(below, Samples) and below.time is None:
                return replace(below, first=below.first + node.offset)
            return below
        case RunningExec():
            return samples_of(node.input)
        case ProjectExec():
            return _projected(node)
        case SameColumns():
            below = samples_of(node.input)
            in_place = isinstance(node, PassesRows) and not isinstance(node, FilterExec)
            if isinstance(below, Samples) and below.time is None and not in_place:
                return Lost(
                    "some samples are left out, and the signal has no column with their times",
                    "declare it ORDERED BY a column, or leave WHERE and ORDER BY out",
                )
            return below
    return None


def _samples_of_source(node: SourceExec) -> Samples | None:
    spec = node.relation.stream
    if node.signal is not None or spec is None or spec.rate is None or spec.is_queued:
        return None
    if spec.computed_progress is not None:
        return None
    if not spec.progress:
        return Samples(spec.rate, None)
    name = spec.progress[0].column
    stored = node.relation.schema.find(name)
    if stored is None or not node.relation.schema[stored].type.is_timestamp:
        return None  # without a unit, numbers are no times of samples
    at = node.schema.find(name)
    # Column pruning drops times that the query does not read; -1 is none of its columns.
    return Samples(spec.rate, -1 if at is None else at, spec.tolerance)


def _projected(node: ProjectExec) -> Samples | Lost | None:
    below = samples_of(node.input)
    if not isinstance(below, Samples) or below.time is None:
        return below
    shown = [e.index if isinstance(e, Column) else None for e in node.exprs]
    return replace(below, time=shown.index(below.time) if below.time in shown else -1)


def time_column(node: Physical) -> str:
    """The name of the column with the times of the signal that a plan reads."""
    found = (s.relation.stream for s in sources(node))
    return next((s.progress[0].column for s in found if s and s.rate and s.progress), "time")


def is_numbered(node: Physical) -> bool:
    """Whether a plan reads a signal without times: its times are seconds from sample 0 on."""
    streams = (s.relation.stream for s in sources(node))
    return any(
        s is not None and s.rate is not None and not s.progress and s.computed_progress is None
        for s in streams
    )


# -- columns ---------------------------------------------------------------------------------------


def meanings(node: Physical) -> list[Meaning]:
    """What each column of a plan is."""
    if isinstance(node, RewindowExec):
        return _of_windows(node)
    below = [meanings(i) for i in node.inputs]
    if isinstance(node, ProjectExec):
        return [_of(e, below[0]) for e in node.exprs]
    if isinstance(node, SameColumns):
        return below[0]
    if isinstance(node, ProcessExec):
        return [_processed(node, c, below) for c in range(len(node.schema))]
    return [_passed(node, c, below) for c in range(len(node.schema))]


def position(node: Physical, column: int) -> Position | None:
    """The place in the query's text of the expression of a column, or of what it is read from."""
    while isinstance(node, SameColumns):
        node = node.input
    if isinstance(node, ProjectExec):
        return node.exprs[column].pos
    return node.pos if isinstance(node, SourceExec) else None


def is_segment(node: Physical, column: int) -> bool:
    return node.schema[column].type.kind is Kind.SIGNAL


def _passed(node: Physical, column: int, below: Sequence[Sequence[Meaning]]) -> Meaning:
    carried = node.carried_from(column) or ()
    found = {below[i][c] for i, c in carried}
    return found.pop() if len(found) == 1 else None


def _processed(node: ProcessExec, column: int, below: Sequence[Sequence[Meaning]]) -> Meaning:
    """Segments that an operator of the user returns are at the rate of the row's first one."""
    if node.columns[column] < len(node.input.schema) or not is_segment(node, column):
        return _passed(node, column, below)
    anchor = first_segment(node.input.schema, node.given)
    x = None if anchor is None else below[0][anchor]
    return Segment(x.rate, None) if isinstance(x, Segment) else None


def _of_windows(node: RewindowExec) -> list[Meaning]:
    rate, numbered = _signal_of(node.input)
    unit = Fraction(1) if node.by_time else 1_000_000 / rate
    size, slide = node.size * unit, node.slide * unit
    count = size * rate / 1_000_000
    exact = count.denominator == 1 and not node.rests
    segment = Segment(rate, int(count) if exact else None)
    behind = {"window_start": Fraction(0), "window_end": size, "window_time": size - 1}
    kind = node.by_time, numbered
    bounds = [Bound(behind[n], size, slide, rate, *kind) for n in WINDOW_COLUMNS]
    return [*[segment] * len(node.input.schema), *bounds]


def _signal_of(node: Physical) -> tuple[Fraction, bool]:
    """The rate of the signal that a plan gives as segments, and whether its samples are numbered
    from 1970 on. Of signals side by side the first has the times."""
    match node:
        case SourceExec() | SegmentsExec():
            assert node.signal is not None
            return Fraction(node.signal.rate, node.signal.per), node.signal.time is None
        case ConcatExec():
            return Fraction(node.rate, node.per), not node.in_time or _signal_of(node.input)[1]
    return _signal_of(node.inputs[0])


def _of(expr: Expr, given: Sequence[Meaning]) -> Meaning:
    """What the value of an expression over columns is."""
    match expr:
        case Column():
            return given[expr.index]
        case Cast() if expr.type == expr.arg.type:
            return _of(expr.arg, given)
        case Call() if expr.args:
            args = [_of(a, given) for a in expr.args]
            segment = next((a for a in args if isinstance(a, Segment)), None)
            rule = _RULES.get(expr.fn)
            return rule(expr, segment) if rule is not None and segment is not None else None
    return None


def _scaled(expr: Call, x: Segment) -> Meaning:
    """Arithmetic: with samples they are samples; with a spectrum, its decibels are other ones."""
    return x if x.values is Values.SAMPLES else None


def _spectrum(values: Values) -> Callable[[Call, Segment], Meaning]:
    def of(expr: Call, x: Segment) -> Meaning:
        if x.values is not Values.SAMPLES:
            return None
        count = x.count
        if not x.is_whole:
            known = x.length is not None and count is not None and x.first + x.length <= count
            count = x.length if known else None
        return Segment(x.rate, count, values)

    return of


def _magnitude(expr: Call, x: Segment) -> Meaning:
    return replace(x, values=Values.MAGNITUDE) if x.values is Values.COMPLEX else None


def _back(expr: Call, x: Segment) -> Meaning:
    """The samples of a spectrum, at the rate of those that it was computed of."""
    if x.values is not Values.COMPLEX or not x.is_whole:
        return None
    even = x.count is not None and x.count % 2 == 0
    return Segment(x.rate, x.count if even or len(expr.args) > 1 else None)


def _part(expr: Call, x: Segment) -> Meaning:
    first, length = expr.args[1:]
    if not (isinstance(first, Literal) and isinstance(length, Literal)):
        return None
    if not (isinstance(first.value, int) and isinstance(length.value, int)):
        return None
    if first.value < 0 or length.value < 0:
        return None
    rest = length.value if x.length is None else min(length.value, x.length - first.value)
    return replace(x, first=x.first + first.value, length=max(0, rest))


def _resampled(expr: Call, x: Segment) -> Meaning:
    up, down = (a.value for a in expr.args[1:] if isinstance(a, Literal))
    assert isinstance(up, int)
    assert isinstance(down, int)
    if x.values is not Values.SAMPLES or not x.is_whole:
        return None
    count = None if x.count is None else -(-x.count * up // down)
    return Segment(x.rate * up / down, count)


_RULES: dict[str, Callable[[Call, Segment], Meaning]] = {
    "hann": _scaled,
    "samples_field": lambda expr, x: x,
    **dict.fromkeys(("samples_add", "samples_sub", "samples_mul", "samples_div"), _scaled),
    "fft": _spectrum(Values.COMPLEX),
    "power_spectrum": _spectrum(Values.POWER),
    "magnitude": _magnitude,
    "ifft": _back,
    "subseg": _part,
    "resample": _resampled,
}
