"""Operators over signals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cql.base.model import Field, Schema
from cql.base.types import signal
from cql.planner.nodes.abstract import cached_property
from cql.planner.nodes.expr import Expr
from cql.planner.nodes.logical import WINDOW_COLUMNS
from cql.planner.nodes.logical.signals import gap_fields, window_fields
from cql.planner.nodes.physical.base import OneInput, PhysicalNode, TwoInputs
from cql.planner.nodes.physical.columns import coded_columns, column_at
from cql.planner.nodes.physical.sources import SignalInput
from cql.planner.nodes.watermarks import Wanted


@dataclass(frozen=True, slots=True)
class _OfSignal(OneInput):
    """An operator over the samples of one signal, whose times are in their timebase: it takes no
    punctuation, and no sample is late."""

    def wants(self, wanted: Wanted) -> Sequence[Wanted]:
        return [{}]

    def common_watermark(self, consumer: str | None) -> tuple[str | None, ...]:
        return (consumer,)

    @property
    def emits_late_rows(self) -> bool:
        return False

    @property
    def row_cost(self) -> float:
        return 50.0


class _ToSignal(PhysicalNode):
    """An operator whose rows are a signal as segments: no column has a watermark."""

    __slots__ = ()

    @property
    def progressing(self) -> tuple[int, ...]:
        return ()


@dataclass(frozen=True, slots=True)
class SegmentsExec(_ToSignal, _OfSignal):
    """Rows that are the samples of a ``signal`` as segments, without the times: a row for each part
    of a morsel without a gap. ``name`` of the signal, for errors."""

    signal: SignalInput
    name: str
    why: str = ""

    @cached_property
    def schema(self) -> Schema:
        fields = (f for k, f in enumerate(self.input.schema) if k != self.signal.time)
        return Schema(tuple(Field(f.name, signal(f.type), False) for f in fields))

    @property
    def runs_python(self) -> bool:
        return True

    @property
    def state(self) -> str:
        return "the time of the next sample"

    @property
    def row_cost(self) -> float:
        return 5.0


@dataclass(frozen=True, slots=True)
class RewindowExec(_OfSignal):
    """Cuts a signal into windows of ``size`` samples every ``slide`` samples; ``by_time``: both in
    microseconds. ``rests``: what no whole window covers at the ends of a run are rows, too."""

    size: int
    slide: int
    by_time: bool
    rests: bool
    why: str = ""

    @cached_property
    def schema(self) -> Schema:
        return Schema((*self.input.schema, *window_fields()))

    @cached_property
    def progressing(self) -> tuple[int, ...]:
        first = len(self.input.schema)
        return tuple(range(first, first + len(WINDOW_COLUMNS)))

    @cached_property
    def window_columns(self) -> tuple[int, ...]:
        return () if self.rests else self.progressing

    @property
    def windows_apart(self) -> bool:
        return self.slide >= self.size and not self.rests

    @property
    def in_windows(self) -> bool:
        return not self.rests

    def comes_in_order(self, column: int, *, guarded: bool = False) -> bool:
        return column >= len(self.input.schema)

    @property
    def state(self) -> str:
        return "the samples that later windows need"


@dataclass(frozen=True, slots=True)
class ConcatExec(_ToSignal, _OfSignal):
    """The segments of rows as a signal of ``rate`` / ``per`` hertz: one row behind the other, or
    (``in_time``) each at its own times. ``name`` of the rows, for errors."""

    rate: int
    per: int
    name: str
    in_time: bool = False
    why: str = ""

    @property
    def title(self) -> str:
        return "Signal" if self.in_time else "Concat"

    @property
    def schema(self) -> Schema:
        return self.input.schema

    @property
    def state(self) -> str:
        return "the time of the next sample" if self.in_time else "the number of the next sample"


@dataclass(frozen=True, slots=True)
class FillExec(_ToSignal, _OfSignal):
    """A signal whose gaps of at most ``longest`` samples become samples, on a line (``linear``) or
    like the sample before the gap."""

    longest: int
    linear: bool
    why: str = ""

    @property
    def schema(self) -> Schema:
        return self.input.schema

    @property
    def state(self) -> str:
        return "the last sample, and the time of the next one"


@dataclass(frozen=True, slots=True)
class ZipExec(_ToSignal, TwoInputs):
    """The channels of two signals side by side, where both have samples, at most ``tolerance``
    nanoseconds apart."""

    tolerance: int
    why: str = ""

    @property
    def schema(self) -> Schema:
        return Schema((*self.left.schema, *self.right.schema))

    def wants(self, wanted: Wanted) -> Sequence[Wanted]:
        return [{}, {}]

    @property
    def emits_late_rows(self) -> bool:
        return False

    @property
    def state(self) -> str:
        return "the samples of each signal that the other one has not reached"

    @property
    def row_cost(self) -> float:
        return 50.0


@dataclass(frozen=True, slots=True)
class SamplesExec(_OfSignal):
    """The samples of segments as rows with the columns ``fields``: column ``time`` has the time of
    each sample (None: there is none), the others are the ``channels`` of the input."""

    fields: tuple[Field, ...]
    channels: tuple[int, ...]
    time: int | None
    why: str = ""

    @cached_property
    def schema(self) -> Schema:
        return Schema(self.fields)

    @property
    def progressing(self) -> tuple[int, ...]:
        return () if self.time is None else (self.time,)

    def comes_in_order(self, column: int, *, guarded: bool = False) -> bool:
        return column == self.time

    @property
    def state(self) -> str:
        return "the time of the last sample"


@dataclass(frozen=True, slots=True)
class GapsExec(_OfSignal):
    """The gaps of a signal."""

    why: str = ""

    @cached_property
    def schema(self) -> Schema:
        return Schema(gap_fields())

    @cached_property
    def progressing(self) -> tuple[int, ...]:
        return (0, 1)

    def comes_in_order(self, column: int, *, guarded: bool = False) -> bool:
        return column in self.progressing

    @property
    def state(self) -> str:
        return "the time of the next sample"


@dataclass(frozen=True, slots=True)
class SyncExec(TwoInputs):
    """The segments of the signal ``right`` for the ranges of ``left``: from column ``begin`` to
    column ``end``; ``after``, ``before``: without the time of the column itself."""

    begin: int
    end: int
    after: bool
    before: bool
    why: str = ""

    @cached_property
    def schema(self) -> Schema:
        return Schema((*self.left.schema, *self.right.schema))

    @cached_property
    def progressing(self) -> tuple[int, ...]:
        return self.left.progressing

    @property
    def in_windows(self) -> bool:
        return self.left.in_windows

    def wants(self, wanted: Wanted) -> Sequence[Wanted]:
        return [dict.fromkeys(self.left.progressing), {}]

    @property
    def leaves_out_late_rows(self) -> bool:
        return True

    @property
    def emits_late_rows(self) -> bool:
        return False

    def values_from(self, column: int) -> Sequence[tuple[int, Expr]]:
        width = len(self.left.schema)
        return ((0, column_at(self.left.schema, column)),) if column < width else ()

    def encodes(self, needed: frozenset[int]) -> Sequence[frozenset[int]]:
        return [coded_columns(self.left.schema), frozenset()]

    @property
    def state(self) -> str:
        begin = self.left.schema[self.begin].name
        return (
            f"the ranges that the signal has not passed, and the samples from the least {begin} on"
            " that may follow"
        )

    @property
    def row_cost(self) -> float:
        return 100.0
