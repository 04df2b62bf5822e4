"""Operators that decide by the time of a row: whether it is late, equal to an earlier one, or newer
than those of its key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from cql.base.model import Schema
from cql.base.window import Window
from cql.errors import Position
from cql.planner.nodes.abstract import cached_property
from cql.planner.nodes.expr import Expr
from cql.planner.nodes.physical.base import OneInput, PassesRows, SameColumns
from cql.planner.nodes.physical.columns import (
    coded_columns,
    column_at,
)
from cql.planner.nodes.watermarks import (
    Wanted,
    add_wanted,
)


@dataclass(frozen=True, slots=True)
class LateRowsExec(PassesRows):
    """Passes rows on, and copies to LATE OUTPUT the late rows that ``window``, right above, leaves
    out."""

    window: Window
    why: str = ""
    pos: Position | None = field(default=None, compare=False)

    @property
    def own_columns(self) -> frozenset[int] | None:
        return frozenset()

    def carried_from(self, column: int) -> Sequence[tuple[int, int]] | None:
        return None  # LATE OUTPUT keeps whole rows

    def encodes(self, needed: frozenset[int]) -> Sequence[frozenset[int]]:
        return [coded_columns(self.schema)]

    @property
    def row_cost(self) -> float:
        return 2.0


@dataclass(frozen=True, slots=True)
class OnTimeExec(PassesRows):
    """Leaves out and counts the late rows of column ``wa``. ``within``: a column and two bounds;
    leaves out, without counting them, on-time rows below the first bound or not below the
    second (None: no bound)."""

    wa: int
    why: str = ""
    within: tuple[int, int | None, int | None] | None = None

    def comes_in_order(self, column: int, *, guarded: bool = False) -> bool:
        late = self.wa == column and self.input.late_out_of_order(column, guarded=guarded)
        return late or self.input.comes_in_order(column, guarded=guarded)

    def late_out_of_order(self, column: int, *, guarded: bool) -> bool:
        return self.input.late_out_of_order(column, guarded=guarded)

    @property
    def leaves_out_late_rows(self) -> bool:
        return True


#: The words of ``common_watermark`` for an operator that ignores the watermark of its input.
BY_ARRIVAL = (
    "no one: the watermark is made of the order of arrival (SET slack, WATERMARK behind a query)"
)


@dataclass(frozen=True, slots=True)
class SlackExec(SameColumns):
    """Deduces the watermark of column ``attribute`` from the order of arrival (out-of-order paper
    §2, option 2): the highest time so far less ``interval``, or the highest time that more than
    ``rows`` rows have reached. With an interval, an advance above ``max_advance`` needs
    confirmation (None: no advance does)."""

    attribute: int
    interval: int | None
    rows: int | None
    why: str = ""
    max_advance: int | None = None

    @cached_property
    def progressing(self) -> tuple[int, ...]:
        return (self.attribute,)

    @cached_property
    def window_columns(self) -> tuple[int, ...]:
        below = self.input.window_columns
        return tuple(c for c in self.progressing if c in below)

    def wants(self, wanted: Wanted) -> Sequence[Wanted]:
        return [{}]  # the watermark is made from the rows alone

    def wanted_order(self, wanted: int | None) -> tuple[int | None, ...]:
        return (self.attribute,)

    def common_watermark(self, consumer: str | None) -> tuple[str | None, ...]:
        return (BY_ARRIVAL,)

    @property
    def own_columns(self) -> frozenset[int] | None:
        return frozenset()

    def carried_from(self, column: int) -> Sequence[tuple[int, int]] | None:
        return ((0, column),)

    def encodes(self, needed: frozenset[int]) -> Sequence[frozenset[int]]:
        return [needed]

    @property
    def row_cost(self) -> float:
        return 4.0


@dataclass(frozen=True, slots=True)
class DupelimExec(SameColumns):
    """Duplicate elimination over a stream (out-of-order paper §5.4): passes the first of equal rows
    on arrival. The operator forgets a row when column ``by`` has passed the row's value: by
    punctuation or, if the input is ``in_order`` of this column, by later rows."""

    by: int
    in_order: bool = False
    why: str = ""

    @cached_property
    def progressing(self) -> tuple[int, ...]:
        return self.input.progressing

    @cached_property
    def window_columns(self) -> tuple[int, ...]:
        return self.progressing  # each value is a window

    def wants(self, wanted: Wanted) -> Sequence[Wanted]:
        below = dict(wanted)
        add_wanted(below, self.by, None)
        return [below]

    def wanted_order(self, wanted: int | None) -> tuple[int | None, ...]:
        return (self.by if wanted is None else wanted,)

    def comes_in_order(self, column: int, *, guarded: bool = False) -> bool:
        return self.input.comes_in_order(column, guarded=guarded)

    def joined_in_order(self, column: int) -> bool:
        return self.input.joined_in_order(column)

    def needs_order(self, matters: bool) -> bool:
        return matters  # equal rows are the same, whichever comes first

    @property
    def unique(self) -> list[set[int]] | None:
        return [{k} for k in range(len(self.schema))]

    @property
    def in_windows(self) -> bool:
        return True

    def common_watermark(self, consumer: str | None) -> tuple[str | None, ...]:
        return (consumer or "a relation",)

    @property
    def row_cost(self) -> float:
        return 25.0


@dataclass(frozen=True, slots=True)
class NewestExec(OneInput):
    """The union of update streams (UpStream report §3.2), over their bag union: a row passes on
    arrival if its ``time`` is after that of the newest row so far that is equal in the columns
    ``key``. The operator forgets a key when the watermark has passed its newest row.

    ``judged``: the last column of the input is true of the rows of a source of truth: such a row
    also passes if it has the time of the newest one, and other values."""

    key: tuple[int, ...]
    time: int
    judged: bool = False
    why: str = ""

    @cached_property
    def schema(self) -> Schema:
        fields = self.input.schema.fields
        return Schema(fields[:-1]) if self.judged else self.input.schema

    @cached_property
    def progressing(self) -> tuple[int, ...]:
        return self.input.progressing

    def wants(self, wanted: Wanted) -> Sequence[Wanted]:
        below = dict(wanted)
        if self.time in self.progressing:
            add_wanted(below, self.time, None)
        return [below]

    def values_from(self, column: int) -> Sequence[tuple[int, Expr]]:
        return ((0, column_at(self.schema, column)),)

    def common_watermark(self, consumer: str | None) -> tuple[str | None, ...]:
        return (consumer or "UNION ALL of update streams",)

    @property
    def split_columns(self) -> tuple[int, ...]:
        return self.key

    @property
    def row_cost(self) -> float:
        return 25.0
