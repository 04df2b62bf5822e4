"""Unions, and operators that put rows in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from cql.base.model import Field, Schema
from cql.base.types import BIGINT, INT, DataType, Kind
from cql.planner.nodes.abstract import cached_property
from cql.planner.nodes.expr import Column, Expr
from cql.planner.nodes.logical import SortKey
from cql.planner.nodes.physical.base import OneInput, PhysicalNode, SameColumns
from cql.planner.nodes.physical.columns import column_at
from cql.planner.nodes.rewrite import replace
from cql.planner.nodes.watermarks import Wanted, add_wanted

if TYPE_CHECKING:
    from cql.planner.nodes.physical import Physical


@dataclass(frozen=True, slots=True)
class UnionExec(PhysicalNode):
    """Pass-through union: keeps no rows; its watermark is the minimum over the inputs (out-of-order
    paper §5.4). ``keyed_watermark``: (time, key): the union also passes on the watermark on column
    ``time`` of each value of column ``key`` (A.2.1)."""

    inputs: tuple[Physical, ...] = field()
    names: tuple[str, ...]
    why: str = ""
    keyed_watermark: tuple[int, int] | None = None

    @property
    def is_raw(self) -> bool:
        return all(child.is_raw for child in self.inputs)

    @cached_property
    def schema(self) -> Schema:
        schemas = [i.schema for i in self.inputs]
        fields = (
            Field(name, schemas[0][k].type, any(s[k].nullable for s in schemas))
            for k, name in enumerate(self.names)
        )
        return Schema(tuple(fields))

    def with_inputs(self, new: tuple[Physical, ...]) -> Self:
        return replace(self, inputs=new)

    @property
    def bounded(self) -> bool:
        return all(child.bounded for child in self.inputs)

    @property
    def rows_wait(self) -> bool:
        return False

    @cached_property
    def progressing(self) -> tuple[int, ...]:
        # a table holds the watermark back until it has been read, and not from then on
        found = [(set(child.progressing), child) for child in self.inputs]
        kept = [columns for columns, child in found if columns or not child.bounded]
        return tuple(sorted(set.intersection(*kept))) if kept else ()

    @cached_property
    def window_columns(self) -> tuple[int, ...]:
        return tuple(sorted(_common_windows(self.inputs)))

    def wants(self, wanted: Wanted) -> Sequence[Wanted]:
        return [wanted for _ in self.inputs]

    def wanted_order(self, wanted: int | None) -> tuple[int | None, ...]:
        return (wanted,) * len(self.inputs)

    @property
    def never_shrinks(self) -> bool:
        return all(child.never_shrinks for child in self.inputs)

    @property
    def in_windows(self) -> bool:
        return all(child.in_windows for child in self.inputs)

    def common_watermark(self, consumer: str | None) -> tuple[str | None, ...]:
        return (consumer,) * len(self.inputs)

    @property
    def own_columns(self) -> frozenset[int] | None:
        return frozenset()

    def carried_from(self, column: int) -> Sequence[tuple[int, int]] | None:
        return tuple((port, column) for port in range(len(self.inputs)))

    def values_from(self, column: int) -> Sequence[tuple[int, Expr]]:
        return _in_all(self.inputs, column)

    def encodes(self, needed: frozenset[int]) -> Sequence[frozenset[int]]:
        return [needed] * len(self.inputs)

    @property
    def row_cost(self) -> float:
        return 0.1

    @property
    def keeps_instants(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class MergeUnionExec(PhysicalNode):
    """Order-preserving union, IOP's Merge (out-of-order paper §2): rows wait until the watermark of
    every input has passed their time (column ``order``), and leave in the order of time.
    ``refuses_null``: a row without a time is a bad row, as in a sort; otherwise such a row leaves
    first."""

    inputs: tuple[Physical, ...] = field()
    names: tuple[str, ...]
    order: int
    refuses_null: bool = False
    why: str = ""

    @cached_property
    def schema(self) -> Schema:
        return UnionExec(self.inputs, self.names).schema

    def with_inputs(self, new: tuple[Physical, ...]) -> Self:
        return replace(self, inputs=new)

    @property
    def bounded(self) -> bool:
        return all(child.bounded for child in self.inputs)

    @property
    def rows_wait(self) -> bool:
        return False

    @cached_property
    def progressing(self) -> tuple[int, ...]:
        return (self.order,)  # a waiting row may lie below the watermarks of other columns

    @cached_property
    def window_columns(self) -> tuple[int, ...]:
        return tuple(c for c in (self.order,) if c in _common_windows(self.inputs))

    def wants(self, wanted: Wanted) -> Sequence[Wanted]:
        return [{self.order: None} for _ in self.inputs]  # rows wait for each value of the time

    def wanted_order(self, wanted: int | None) -> tuple[int | None, ...]:
        return (self.order,) * len(self.inputs)

    def comes_in_order(self, column: int, *, guarded: bool = False) -> bool:
        return self.order == column

    @property
    def leaves_out_late_rows(self) -> bool:
        return True

    def common_watermark(self, consumer: str | None) -> tuple[str | None, ...]:
        return ("a union in order",) * len(self.inputs)

    def values_from(self, column: int) -> Sequence[tuple[int, Expr]]:
        return _in_all(self.inputs, column)

    @property
    def row_cost(self) -> float:
        return 20.0

    @property
    def word(self) -> str:
        return "merge"


def _in_all(inputs: tuple[Physical, ...], column: int) -> Sequence[tuple[int, Expr]]:
    """``column`` of each input, as in ``values_from``."""
    return tuple((port, column_at(child.schema, column)) for port, child in enumerate(inputs))


def _common_windows(inputs: tuple[Physical, ...]) -> set[int]:
    """The columns that close together with windows in all inputs."""
    return set.intersection(*(set(child.window_columns) for child in inputs))


@dataclass(frozen=True, slots=True)
class PunctuatedSortExec(SameColumns):
    """Orders a stream: rows wait until punctuation has passed their time, column ``order`` ("first
    sorting the input. (Punctuation can unblock sort.)", out-of-order paper §5.5). ``keys`` order
    the rows of one time."""

    order: int
    keys: tuple[SortKey, ...] = ()
    why: str = ""

    @cached_property
    def progressing(self) -> tuple[int, ...]:
        return (self.order,)  # a waiting row may lie below the watermarks of other columns

    @cached_property
    def window_columns(self) -> tuple[int, ...]:
        below = self.input.window_columns
        return tuple(c for c in self.progressing if c in below)

    def wants(self, wanted: Wanted) -> Sequence[Wanted]:
        return [{self.order: None}]  # rows wait for each value of the time

    def wanted_order(self, wanted: int | None) -> tuple[int | None, ...]:
        return (self.order,)

    def comes_in_order(self, column: int, *, guarded: bool = False) -> bool:
        return self.order == column

    @property
    def leaves_out_late_rows(self) -> bool:
        return True

    def common_watermark(self, consumer: str | None) -> tuple[str | None, ...]:
        return ("a sort by time",)

    @property
    def row_cost(self) -> float:
        return 45.0

    @property
    def word(self) -> str:
        return "sort"


@dataclass(frozen=True, slots=True)
class SortExec(OneInput):
    """Orders the rows of each window when punctuation closes the window, and keeps the first
    ``limit`` rows after ``offset``; ``window_end`` None: orders the whole input at its end.
    ``number`` is the name of an appended column: the number of each row, from 1, among the rows of
    its window with equal ``partition`` columns; ``limit`` then counts these rows."""

    keys: tuple[SortKey, ...]
    limit: int | None
    offset: int
    window_end: int | None
    why: str = ""
    partition: tuple[int, ...] = ()
    number: str | None = None

    @cached_property
    def schema(self) -> Schema:
        if self.number is None:
            return self.input.schema
        return Schema((*self.input.schema, Field(self.number, INT, False)))

    @cached_property
    def progressing(self) -> tuple[int, ...]:
        # Rows wait for their window's end, so only the watermarks of window columns still hold.
        return () if self.window_end is None else self.input.window_columns

    @cached_property
    def window_columns(self) -> tuple[int, ...]:
        return self.input.window_columns

    def wants(self, wanted: Wanted) -> Sequence[Wanted]:
        below = dict(wanted)
        add_wanted(below, self.window_end, None)
        return [below]

    def wanted_order(self, wanted: int | None) -> tuple[int | None, ...]:
        return (self.window_end,)

    def needs_order(self, matters: bool) -> bool:
        return not self.is_total

    @property
    def is_total(self) -> bool:
        """Whether no two rows of a window are equal in the keys."""
        unique = self.input.unique
        keys = {key.expr.index for key in self.keys if isinstance(key.expr, Column)}
        keys |= {*self.partition, *([] if self.window_end is None else [self.window_end])}
        return unique is not None and all(places & keys for places in unique)

    @property
    def in_windows(self) -> bool:
        return self.input.in_windows

    def common_watermark(self, consumer: str | None) -> tuple[str | None, ...]:
        return (None if self.window_end is None else "ORDER BY",)

    def values_from(self, column: int) -> Sequence[tuple[int, Expr]]:
        inside = column < len(self.input.schema)
        return ((0, column_at(self.input.schema, column)),) if inside else ()

    @property
    def split_columns(self) -> tuple[int, ...]:
        # Rows leave by window, then by the first column of the partition: numbers by which the rows
        # of several instances are merged. A bit of the window's number says whether that is NULL.
        if self.number is None or self.window_end is None or not self.partition:
            return ()
        fields = self.input.schema
        first, end = fields[self.partition[0]], fields[self.window_end].type
        texts = any(key.expr.type.is_text for key in self.keys)
        texts |= any(fields[column].type.is_text for column in self.partition)
        merges = _is_number(first.type) and (not first.nullable or end != BIGINT)
        return self.partition[:1] if merges and not texts else ()

    @property
    def row_cost(self) -> float:
        return 180.0


def _is_number(kind: DataType) -> bool:
    return kind.is_integer or kind.is_timestamp or kind.kind is Kind.DATE
