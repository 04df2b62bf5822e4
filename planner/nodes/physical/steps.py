"""Operators that pass, compute or repeat rows, each row on its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Self

from cql.base.model import Field, Schema
from cql.base.types import BIGINT, DataType
from cql.base.window import Window, WindowKind
from cql.errors import Position
from cql.planner.functions.folding import can_fail
from cql.planner.nodes.expr import Column, Expr, Literal
from cql.planner.nodes.logical import SEQUENCE
from cql.planner.nodes.physical.base import OneInput, PassesRows, SameColumns
from cql.planner.nodes.physical.columns import forwarded_columns, wanted_of, window_fields
from cql.planner.nodes.rewrite import replace
from cql.planner.nodes.watermarks import (
    Wanted,
    add_wanted,
    first_columns,
    progress_origin,
    wanted_below,
    window_ends,
)


@dataclass(frozen=True, slots=True)
class FilterExec(PassesRows):
    condition: Expr
    why: str = ""

    def comes_in_order(self, column: int, *, guarded: bool = False) -> bool:
        return self.input.comes_in_order(column, guarded=guarded)

    def joined_in_order(self, column: int) -> bool:
        return self.input.joined_in_order(column)

    def late_out_of_order(self, column: int, *, guarded: bool) -> bool:
        return self.input.late_out_of_order(column, guarded=guarded)

    def needs_order(self, matters: bool) -> bool:
        return matters or can_fail(self.condition)

    def enters_at(self, column: int) -> bool:
        return self.input.enters_at(column)

    @property
    def unique(self) -> list[set[int]] | None:
        return self.input.unique

    @property
    def never_shrinks(self) -> bool:
        return self.input.never_shrinks

    @property
    def is_raw(self) -> bool:
        return self.input.is_raw

    @property
    def is_net(self) -> bool:
        return self.input.is_net

    def showing(self, kind: str) -> Self | None:
        below = self.input.showing(kind)
        return None if below is None else replace(self, input=below)

    @property
    def equal_columns(self) -> frozenset[int]:
        return self.input.equal_columns

    def first_in_first_out(self, keys: frozenset[int]) -> bool:
        return self.input.first_in_first_out(keys)

    @property
    def early_end(self) -> int | None:
        return self.input.early_end


@dataclass(frozen=True, slots=True)
class ProjectExec(OneInput):
    """``in_blocks``: the source below computes the columns, block by block, and passes its own ones
    first (the executor makes such nodes)."""

    exprs: tuple[Expr, ...]
    names: tuple[str, ...]
    why: str = ""
    in_blocks: bool = False

    def enters_at(self, column: int) -> bool:
        expr = self.exprs[column]
        return isinstance(expr, Column) and self.input.enters_at(expr.index)

    @property
    def schema(self) -> Schema:
        pairs = zip(self.names, self.exprs, strict=True)
        return Schema(tuple(Field(n, e.type, e.nullable) for n, e in pairs))

    @property
    def progressing(self) -> tuple[int, ...]:
        return self._functions_of(self.input.progressing)

    @property
    def window_columns(self) -> tuple[int, ...]:
        return self._functions_of(self.input.window_columns)

    def _functions_of(self, live: tuple[int, ...]) -> tuple[int, ...]:
        """The output columns that rise with a column of ``live``."""
        return tuple(k for k, e in enumerate(self.exprs) if progress_origin(e, live) is not None)

    def origin(self, column: int) -> int | None:
        """The progressing input column with which output ``column`` rises, if any."""
        return progress_origin(self.exprs[column], self.input.progressing)

    def wants(self, wanted: Wanted) -> Sequence[Wanted]:
        below: Wanted = {}
        for column, boundaries in wanted.items():
            origin = self.origin(column)
            if origin is not None:
                add_wanted(below, origin, wanted_below(self.exprs[column], boundaries))
        return [below]

    def wanted_order(self, wanted: int | None) -> tuple[int | None, ...]:
        return (None if wanted is None else self.origin(wanted),)

    def comes_in_order(self, column: int, *, guarded: bool = False) -> bool:
        origin = self.origin(column)
        return origin is not None and self.input.comes_in_order(origin, guarded=guarded)

    def joined_in_order(self, column: int) -> bool:
        origin = self.origin(column)
        return origin is not None and self.input.joined_in_order(origin)

    def late_out_of_order(self, column: int, *, guarded: bool) -> bool:
        origin = self.origin(column)
        return origin is not None and self.input.late_out_of_order(origin, guarded=guarded)

    def needs_order(self, matters: bool) -> bool:
        return matters or any(map(can_fail, self.exprs))

    @property
    def unique(self) -> list[set[int]] | None:
        below = self.input.unique
        columns = [(k, e.index) for k, e in enumerate(self.exprs) if isinstance(e, Column)]
        found = [{k for k, c in columns if c in places} for places in below or ()]
        return found if below is not None and all(found) else None

    @property
    def is_raw(self) -> bool:
        return self.input.is_raw

    @property
    def is_net(self) -> bool:
        # Two rows may become equal when columns are dropped or computed.
        return self._keeps_differences and self.input.is_net

    def showing(self, kind: str) -> Self | None:
        below = self.input.showing(kind) if self._keeps_differences else None
        return None if below is None else replace(self, input=below)

    @property
    def _keeps_differences(self) -> bool:
        """Whether changes of one instant that differ still differ: the projection keeps all
        columns, or drops such as are equal in them."""
        kept = {e.index for e in self.exprs if isinstance(e, Column)}
        return len(kept | self.input.equal_columns) == len(self.input.schema)

    @property
    def equal_columns(self) -> frozenset[int]:
        below, columns = self.input.equal_columns, enumerate(self.exprs)
        return frozenset(k for k, e in columns if isinstance(e, Column) and e.index in below)

    @property
    def never_shrinks(self) -> bool:
        return isinstance(self.exprs[-1], Literal) or self.input.never_shrinks

    def first_in_first_out(self, keys: frozenset[int]) -> bool:
        exprs = [self.exprs[k] for k in keys]
        below = frozenset(e.index for e in exprs if isinstance(e, Column))
        return self.input.first_in_first_out(below)

    @property
    def early_end(self) -> int | None:
        below = self.input.early_end
        if below is None:
            return None
        columns = (e.index if isinstance(e, Column) else None for e in self.exprs)
        return next((k for k, c in enumerate(columns) if c == below), None)


@dataclass(frozen=True, slots=True)
class BucketExec(OneInput):
    """Each row once per window that contains the row (WID's Bucket)."""

    window: Window
    why: str = ""

    @property
    def schema(self) -> Schema:
        return Schema((*self.input.schema, *window_fields(self.input.schema, self.window)))

    @property
    def progressing(self) -> tuple[int, ...]:
        live, width = self.input.progressing, len(self.input.schema)
        return (*live, *range(width, width + 3)) if self.window.wa in live else live

    @property
    def window_columns(self) -> tuple[int, ...]:
        return self.progressing[-3:] if self.window.wa in self.input.progressing else ()

    @property
    def windows_apart(self) -> bool:
        return self.window.kind is WindowKind.SLIDING and self.window.overlap == 1

    def wants(self, wanted: Wanted) -> Sequence[Wanted]:
        width = len(self.input.schema)
        below = first_columns(wanted, width)
        if any(c >= width for c in wanted):
            add_wanted(below, self.window.wa, window_ends(self.window))
        return [below]

    def wanted_order(self, wanted: int | None) -> tuple[int | None, ...]:
        inside = wanted is None or wanted < len(self.input.schema)
        return (wanted if inside else self.window.wa,)


@dataclass(frozen=True, slots=True)
class NumberExec(OneInput):
    """Appends to each row its number in the input, from 0."""

    why: str = ""

    @property
    def schema(self) -> Schema:
        return Schema((*self.input.schema, Field(SEQUENCE, BIGINT, False)))

    @property
    def progressing(self) -> tuple[int, ...]:
        return (*self.input.progressing, len(self.input.schema))

    @property
    def window_columns(self) -> tuple[int, ...]:
        return self.input.window_columns

    def wants(self, wanted: Wanted) -> Sequence[Wanted]:
        return [first_columns(wanted, len(self.input.schema))]

    def wanted_order(self, wanted: int | None) -> tuple[int | None, ...]:
        inside = wanted is not None and wanted < len(self.input.schema)
        return (wanted if inside else None,)  # numbers rise with the rows


@dataclass(frozen=True, slots=True)
class UnnestExec(OneInput):
    """Each row of the input once per element of its array (column ``array``), in the order of the
    elements. The element is behind the input's columns; the output has ``columns`` of these, under
    ``names``. ``kind``: inner, or left (a row without elements passes once)."""

    array: int
    kind: str
    columns: tuple[int, ...]
    names: tuple[str, ...]
    why: str = ""

    @property
    def width(self) -> int:
        """The number of columns of the input."""
        return len(self.input.schema)

    @property
    def element(self) -> DataType:
        kind = self.input.schema[self.array].type.element
        assert kind is not None
        return kind

    @property
    def schema(self) -> Schema:
        all_ = (*self.input.schema, Field("", self.element, self.kind == "left"))
        named = zip(self.columns, self.names, strict=True)
        return Schema(tuple(replace(all_[c], name=name) for c, name in named))

    def forwarded(self, columns: Iterable[int]) -> dict[int, int]:
        """The input's ``columns`` that are in the output, by their indices there."""
        return forwarded_columns(self.columns, columns)

    @property
    def progressing(self) -> tuple[int, ...]:
        return tuple(self.forwarded(self.input.progressing))

    @property
    def window_columns(self) -> tuple[int, ...]:
        return tuple(self.forwarded(self.input.window_columns))

    def wants(self, wanted: Wanted) -> Sequence[Wanted]:
        return [wanted_of(self.forwarded(range(self.width)), wanted)]

    def wanted_order(self, wanted: int | None) -> tuple[int | None, ...]:
        return (None if wanted is None else self.forwarded(range(self.width)).get(wanted),)

    def needs_order(self, matters: bool) -> bool:
        return matters


@dataclass(frozen=True, slots=True)
class LimitExec(PassesRows):
    """Skips ``offset`` rows, passes the next ``limit`` rows in their order of arrival, and then
    reports the end of its input: sources that feed only this operator are read no further.
    ``limit`` None: passes all rows after ``offset``."""

    limit: int | None
    offset: int
    why: str = ""

    @property
    def bounded(self) -> bool:
        return self.limit is not None or self.input.bounded

    def comes_in_order(self, column: int, *, guarded: bool = False) -> bool:
        return self.input.comes_in_order(column, guarded=guarded)


@dataclass(frozen=True, slots=True)
class LateRowsExec(PassesRows):
    """Passes rows on, and copies to LATE OUTPUT the late rows that ``window``, right above, leaves
    out."""

    window: Window
    why: str = ""
    pos: Position | None = field(default=None, compare=False)


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

    @property
    def progressing(self) -> tuple[int, ...]:
        return (self.attribute,)

    @property
    def window_columns(self) -> tuple[int, ...]:
        below = self.input.window_columns
        return tuple(c for c in self.progressing if c in below)

    def wants(self, wanted: Wanted) -> Sequence[Wanted]:
        return [{}]  # the watermark is made from the rows alone

    def wanted_order(self, wanted: int | None) -> tuple[int | None, ...]:
        return (self.attribute,)


@dataclass(frozen=True, slots=True)
class DupelimExec(SameColumns):
    """Duplicate elimination over a stream (out-of-order paper §5.4): passes the first of equal rows
    on arrival. The operator forgets a row when column ``by`` has passed the row's value: by
    punctuation or, if the input is ``in_order`` of this column, by later rows."""

    by: int
    in_order: bool = False
    why: str = ""

    @property
    def progressing(self) -> tuple[int, ...]:
        return self.input.progressing

    @property
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
