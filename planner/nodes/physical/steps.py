"""Operators that pass, compute or repeat rows, each row on its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from cql.base.model import Field, Schema
from cql.base.types import BIGINT, DataType
from cql.base.window import Window, WindowKind
from cql.planner.functions.folding import can_fail
from cql.planner.nodes.abstract import cached_property
from cql.planner.nodes.expr import Call, Column, Expr, Literal
from cql.planner.nodes.logical import SEQUENCE
from cql.planner.nodes.physical.base import OneInput, PassesRows, WidensRows
from cql.planner.nodes.physical.columns import (
    coded_in,
    wanted_of,
    window_fields,
)
from cql.planner.nodes.rewrite import replace
from cql.planner.nodes.watermarks import (
    Wanted,
    add_wanted,
    first_columns,
    one_to_one,
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

    @property
    def in_windows(self) -> bool:
        return self.input.in_windows

    def encodes(self, needed: frozenset[int]) -> Sequence[frozenset[int]]:
        return [needed | coded_in((self.condition,), self.input.schema)]

    @property
    def keeps_instants(self) -> bool:
        return True


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

    @cached_property
    def schema(self) -> Schema:
        pairs = zip(self.names, self.exprs, strict=True)
        return Schema(tuple(Field(n, e.type, e.nullable) for n, e in pairs))

    @cached_property
    def progressing(self) -> tuple[int, ...]:
        return self._functions_of(self.input.progressing)

    @cached_property
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
        kept = {found for e in self.exprs if (found := one_to_one(e)) is not None}
        return len(kept | self.input.equal_columns) == len(self.input.schema)

    @property
    def equal_columns(self) -> frozenset[int]:
        below, columns = self.input.equal_columns, enumerate(self.exprs)
        return frozenset(k for k, e in columns if one_to_one(e) in below)

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

    @property
    def in_windows(self) -> bool:
        return self.input.in_windows

    def columns_below(self, column: int) -> dict[int, int]:
        shown = self.exprs[column]
        below = self.input.columns_below(shown.index) if isinstance(shown, Column) else {}
        places = [(k, e.index) for k, e in enumerate(self.exprs) if isinstance(e, Column)]
        return {column: 0} | {k: below[c] for k, c in places if c in below}

    def common_watermark(self, consumer: str | None) -> tuple[str | None, ...]:
        return (consumer,)

    def carried_from(self, column: int) -> Sequence[tuple[int, int]] | None:
        place = column if self.in_blocks else _passed(self.exprs[column])
        return None if place is None else ((0, place),)

    def values_from(self, column: int) -> Sequence[tuple[int, Expr]]:
        return ((0, self.exprs[column]),)

    def encodes(self, needed: frozenset[int]) -> Sequence[frozenset[int]]:
        if self.in_blocks:
            return [needed]
        places = [(e, _passed(e)) for e in self.exprs]
        passed = {c for i in needed if (c := places[i][1]) is not None}
        computed = [e for e, place in places if place is None]
        return [coded_in(computed, self.input.schema) | passed]

    @property
    def keeps_instants(self) -> bool:
        return True


def _passed(expr: Expr) -> int | None:
    """The input column that ``expr`` passes on, at most after a check; None for what computes."""
    if isinstance(expr, Call) and expr.fn in ("checked_cast", "checked_value"):
        value = expr.args[0]
        return value.index if isinstance(value, Column) and value.type.is_coded else None
    return expr.index if isinstance(expr, Column) else None


@dataclass(frozen=True, slots=True)
class BucketExec(OneInput):
    """Each row once per window that contains the row (WID's Bucket)."""

    window: Window
    why: str = ""

    @cached_property
    def schema(self) -> Schema:
        return Schema((*self.input.schema, *window_fields(self.input.schema, self.window)))

    @cached_property
    def progressing(self) -> tuple[int, ...]:
        live, width = self.input.progressing, len(self.input.schema)
        return (*live, *range(width, width + 3)) if self.window.wa in live else live

    @cached_property
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

    @property
    def in_windows(self) -> bool:
        return True

    @property
    def leaves_out_late_rows(self) -> bool:
        return True

    def common_watermark(self, consumer: str | None) -> tuple[str | None, ...]:
        return (consumer,)

    def carried_from(self, column: int) -> Sequence[tuple[int, int]] | None:
        return ((0, column),) if column < len(self.input.schema) else None

    def encodes(self, needed: frozenset[int]) -> Sequence[frozenset[int]]:
        return [needed]


@dataclass(frozen=True, slots=True)
class NumberExec(OneInput):
    """Appends to each row its number in the input, from 0."""

    why: str = ""

    @cached_property
    def schema(self) -> Schema:
        return Schema((*self.input.schema, Field(SEQUENCE, BIGINT, False)))

    @cached_property
    def progressing(self) -> tuple[int, ...]:
        return (*self.input.progressing, len(self.input.schema))

    @cached_property
    def window_columns(self) -> tuple[int, ...]:
        return self.input.window_columns

    def wants(self, wanted: Wanted) -> Sequence[Wanted]:
        return [first_columns(wanted, len(self.input.schema))]

    def wanted_order(self, wanted: int | None) -> tuple[int | None, ...]:
        inside = wanted is not None and wanted < len(self.input.schema)
        return (wanted if inside else None,)  # numbers rise with the rows

    def common_watermark(self, consumer: str | None) -> tuple[str | None, ...]:
        return (consumer,)

    def carried_from(self, column: int) -> Sequence[tuple[int, int]] | None:
        return ((0, column),) if column < len(self.input.schema) else None

    def encodes(self, needed: frozenset[int]) -> Sequence[frozenset[int]]:
        return [needed]


@dataclass(frozen=True, slots=True)
class UnnestExec(WidensRows, OneInput):
    """Each row of the input once per element of its array (column ``array``), in the order of the
    elements. The element is behind the input's columns; the output has ``columns`` of these, under
    ``names``. ``kind``: inner, or left (a row without elements passes once)."""

    array: int
    kind: str
    columns: tuple[int, ...]
    names: tuple[str, ...]
    why: str = ""

    @property
    def element(self) -> DataType:
        kind = self.input.schema[self.array].type.element
        assert kind is not None
        return kind

    @property
    def contains_null(self) -> bool:
        """Whether elements may be NULL."""
        return self.input.schema[self.array].type.contains_null

    @cached_property
    def schema(self) -> Schema:
        nullable = self.contains_null or self.kind == "left"
        all_ = (*self.input.schema, Field("", self.element, nullable))
        named = zip(self.columns, self.names, strict=True)
        return Schema(tuple(replace(all_[c], name=name) for c, name in named))

    def wants(self, wanted: Wanted) -> Sequence[Wanted]:
        return [wanted_of(self.forwarded(range(self.width)), wanted)]

    def wanted_order(self, wanted: int | None) -> tuple[int | None, ...]:
        return (None if wanted is None else self.forwarded(range(self.width)).get(wanted),)

    def needs_order(self, matters: bool) -> bool:
        return matters

    def common_watermark(self, consumer: str | None) -> tuple[str | None, ...]:
        return (consumer,)

    def encodes(self, needed: frozenset[int]) -> Sequence[frozenset[int]]:
        return [frozenset({self.array, *(self.columns[c] for c in needed)} - {self.width})]

    @property
    def row_cost(self) -> float:
        return 6.0

    @property
    def rows_per_row(self) -> float:
        return 5.0  # elements of an array


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

    @property
    def in_windows(self) -> bool:
        return self.input.in_windows

    @property
    def own_columns(self) -> frozenset[int] | None:
        return frozenset()

    @property
    def row_cost(self) -> float:
        return 0.1
