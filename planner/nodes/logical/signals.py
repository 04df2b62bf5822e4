"""Windows over signals: streams of samples at regular times (XStream paper, section III.A)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from cql.base.model import Field, Schema
from cql.base.types import BIGINT, TIMESTAMP, signal
from cql.errors import Position
from cql.planner.nodes.abstract import cached_property
from cql.planner.nodes.catalog import SAMPLE_TIME, StreamSpec
from cql.planner.nodes.expr import Column, Expr
from cql.planner.nodes.logical.base import OneInput, TwoInputs, first_time
from cql.planner.nodes.logical.parts import WINDOW_COLUMNS
from cql.planner.nodes.logical.progress import ProgressInfo, Progressing
from cql.planner.nodes.logical.running import Running
from cql.planner.nodes.logical.sources import Scan
from cql.planner.nodes.logical.steps import Filter, Project

if TYPE_CHECKING:
    from cql.planner.nodes.logical import Logical


@dataclass(frozen=True, slots=True)
class _OfSignal(OneInput):
    """Rows of a stream about parts of the signal ``input``."""

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return ()

    @property
    def times(self) -> tuple[int, ...] | None:
        return first_time(self)

    @property
    def is_table(self) -> bool:
        return False

    @property
    def is_stream(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class Rewindow(_OfSignal):
    """The signal ``input`` in windows of ``size`` samples every ``slide`` samples; ``by_time``:
    both in microseconds. Each window is a row, with a segment of each column in ``channels``;
    ``rests``: also the samples at the ends of runs that no whole window covers.
    ``time``: the column with the times of the samples; None: they follow from their number."""

    channels: tuple[int, ...]
    time: int | None
    size: int
    slide: int
    by_time: bool
    rests: bool = False
    pos: Position | None = field(default=None, compare=False)

    @cached_property
    def schema(self) -> Schema:
        samples = 0 if self.by_time or self.rests else self.size
        return Schema((*_segments(self.input, self.channels, samples), *window_fields()))

    @property
    def progressing(self) -> Progressing:
        first = len(self.channels)
        return {first + k: ProgressInfo(None, "RATE") for k in range(len(WINDOW_COLUMNS))}


@dataclass(frozen=True, slots=True)
class Concat(_OfSignal):
    """The segments of the columns ``channels`` of the rows of ``input`` as a signal of ``rate``
    hertz: one row behind the other without gaps, numbered from 1970 on, or (``in_time``) each at
    its own times, which are the first column. ``name``: that of the rows, for errors."""

    channels: tuple[int, ...]
    rate: Fraction
    name: str
    in_time: bool = False
    pos: Position | None = field(default=None, compare=False)

    @property
    def schema(self) -> Schema:
        times = (Field(SAMPLE_TIME, TIMESTAMP, False),) if self.in_time else ()
        return Schema((*times, *(_samples(self.input.schema[c]) for c in self.channels)))

    @property
    def progressing(self) -> Progressing:
        return {0: ProgressInfo(None, "RATE")} if self.in_time else {}


def _samples(segments: Field) -> Field:
    assert segments.type.element is not None
    return Field(segments.name, segments.type.element, False)


@dataclass(frozen=True, slots=True)
class Fill(_OfSignal):
    """The signal ``input``, whose gaps of at most ``longest`` samples become samples: on a line
    between the samples beside the gap (``linear``), or like the sample before it. ``channels`` and
    ``time`` are as in Rewindow."""

    channels: tuple[int, ...]
    time: int | None
    linear: bool
    longest: int
    pos: Position | None = field(default=None, compare=False)

    @property
    def schema(self) -> Schema:
        return self.input.schema

    @property
    def progressing(self) -> Progressing:
        return self.input.progressing


@dataclass(frozen=True, slots=True)
class Zip(TwoInputs):
    """The signals ``left`` and ``right``, of one rate, as one signal with the channels of both,
    where both have samples. The columns are the times of ``left``, if there are any, and the
    channels; ``channels`` and ``time`` are columns of ``left`` as in Rewindow, ``beside`` and
    ``time_beside`` those of ``right``."""

    channels: tuple[int, ...]
    time: int | None
    beside: tuple[int, ...]
    time_beside: int | None
    pos: Position | None = field(default=None, compare=False)

    @property
    def schema(self) -> Schema:
        one, other = self.left.schema, self.right.schema
        times = () if self.time is None else (one[self.time],)
        return Schema((*times, *(one[c] for c in self.channels), *(other[c] for c in self.beside)))

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return ()

    @property
    def progressing(self) -> Progressing:
        return {} if self.time is None else {0: ProgressInfo(None, "RATE")}

    @property
    def times(self) -> tuple[int, ...] | None:
        return first_time(self)

    @property
    def is_table(self) -> bool:
        return False

    @property
    def is_stream(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class Samples:
    """What the rows of a plan are that are the samples of the signal ``scan``. ``time``: the column
    with their times; None: they follow from their number. ``is_filtered``: some may be left out."""

    scan: Scan | Concat
    time: int | None
    is_filtered: bool = False

    @property
    def spec(self) -> StreamSpec:
        if isinstance(self.scan, Concat):
            return StreamSpec()
        assert self.scan.relation.stream is not None
        return self.scan.relation.stream

    @property
    def rate(self) -> Fraction:
        """In hertz."""
        if isinstance(self.scan, Concat):
            return self.scan.rate
        assert self.spec.rate is not None
        return self.spec.rate

    @property
    def name(self) -> str:
        scan = self.scan
        return scan.name if isinstance(scan, Concat) else scan.relation.name[-1]


def samples_of(plan: Logical) -> Samples | None:
    """The signal whose samples the rows of ``plan`` are, with what was computed of each; None if
    they are none, or lack the times that the signal has."""
    match plan:
        case Scan():
            spec = plan.relation.stream
            if spec is None or spec.rate is None:
                return None
            at = plan.schema.find(spec.progress[0].column) if spec.progress else None
            return Samples(plan, at)
        case Concat():
            return Samples(plan, 0 if plan.in_time else None)
        case Zip():
            below = samples_of(plan.left)
            return None if below is None else replace(below, time=None if plan.time is None else 0)
        case Running() | Fill():
            return samples_of(plan.input)
        case Filter():
            below = samples_of(plan.input)
            return None if below is None else replace(below, is_filtered=True)
        case Project():
            below = samples_of(plan.input)
            if below is None or below.time is None:
                return below
            shown = [e.index if isinstance(e, Column) else None for e in plan.exprs]
            has_time = below.time in shown
            return replace(below, time=shown.index(below.time)) if has_time else None
    return None


def _segments(plan: Logical, channels: tuple[int, ...], samples: int = 0) -> tuple[Field, ...]:
    """The ``channels`` of a signal as segments; ``samples``: of each, if it is known."""
    given, found = plan.schema, samples_of(plan)
    rate = None if found is None else found.rate.as_integer_ratio()
    return tuple(
        Field(given[c].name, signal(given[c].type, samples, rate), False) for c in channels
    )


@dataclass(frozen=True, slots=True)
class Gaps(_OfSignal):
    """The gaps of the signal ``input``: a row when the first sample behind a gap comes.
    ``channels`` and ``time`` are as in Rewindow; ``tolerance``: how far times may be from the rate,
    in microseconds, None: as the signal declares it."""

    channels: tuple[int, ...]
    time: int | None
    tolerance: int | None = None
    pos: Position | None = field(default=None, compare=False)

    @cached_property
    def schema(self) -> Schema:
        return Schema(gap_fields())

    @property
    def progressing(self) -> Progressing:
        return dict.fromkeys(range(2), ProgressInfo(None, "RATE"))


def gap_fields() -> tuple[Field, ...]:
    """When the next sample was due, when it came, and how many samples would lie between."""
    times = (Field(name, TIMESTAMP, False) for name in ("gap_start", "gap_end"))
    return (*times, Field("missing", BIGINT, False))


def window_fields() -> tuple[Field, ...]:
    """The bounds of a window: its first sample, the one behind its last, and a microsecond before
    that."""
    return tuple(Field(name, TIMESTAMP, False) for name in WINDOW_COLUMNS)


@dataclass(frozen=True, slots=True)
class Sync(TwoInputs):
    """Each row of ``left`` with a segment of each channel of the signal ``right``: the samples from
    the time ``begin`` to ``end``, both expressions over ``left``. A row whose range has a gap comes
    once for each run in it. ``after``, ``before``: whether the sample at ``begin``, at ``end`` is
    not in the range. ``channels`` and ``time`` are columns of ``right``, as in Rewindow."""

    channels: tuple[int, ...]
    time: int | None
    begin: Expr
    end: Expr
    after: bool
    before: bool
    pos: Position | None = field(default=None, compare=False)

    @cached_property
    def schema(self) -> Schema:
        return Schema((*self.left.schema, *_segments(self.right, self.channels)))

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return (self.begin, self.end)

    @property
    def progressing(self) -> Progressing:
        return self.left.progressing

    @property
    def times(self) -> tuple[int, ...] | None:
        return first_time(self)

    @property
    def is_table(self) -> bool:
        return False

    @property
    def is_stream(self) -> bool:
        return self.left.is_stream
