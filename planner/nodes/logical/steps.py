"""Operators that pass, compute, repeat or number rows of a stream or relation."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Self

from cql.base.model import Field, Schema
from cql.base.types import BIGINT, INT
from cql.base.window import Window
from cql.errors import Position
from cql.planner.functions.folding import monotone
from cql.planner.nodes.abstract import cached_property
from cql.planner.nodes.catalog import Progress
from cql.planner.nodes.expr import Column, Expr, columns_of
from cql.planner.nodes.logical.base import (
    LogicalNode,
    PassesRows,
    first_time,
)
from cql.planner.nodes.logical.parts import SEQUENCE, WINDOW_COLUMNS, KeyWindows, SortKey
from cql.planner.nodes.logical.progress import (
    ProgressInfo,
    Progressing,
    end_of_pair,
    in_both,
    of_window,
    unit_of,
)
from cql.planner.nodes.rewrite import replace

if TYPE_CHECKING:
    from cql.planner.nodes.logical import Logical


@dataclass(frozen=True, slots=True)
class Filter(PassesRows):
    condition: Expr
    pos: Position | None = field(default=None, compare=False)

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return (self.condition,)

    @property
    def update_key(self) -> tuple[int, ...] | None:
        return self.input.update_key

    @property
    def answer_key(self) -> tuple[int, ...] | None:
        return self.input.answer_key

    @property
    def update_time(self) -> int | None:
        return self.input.update_time

    @property
    def times(self) -> tuple[int, ...] | None:
        return self.input.times


@dataclass(frozen=True, slots=True)
class Project(PassesRows):
    exprs: tuple[Expr, ...]
    names: tuple[str, ...]
    pos: Position | None = field(default=None, compare=False)

    @cached_property
    def schema(self) -> Schema:
        pairs = zip(self.names, self.exprs, strict=True)
        return Schema(tuple(Field(n, e.type, e.nullable) for n, e in pairs))

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return self.exprs

    @property
    def progressing(self) -> Progressing:
        below = self.input.progressing
        found: dict[int, ProgressInfo] = {}
        for column, info in below.items():
            for at, expr in enumerate(self.exprs):
                if columns_of(expr) == {column} and monotone(expr, column):
                    found.setdefault(at, replace(info, unit=unit_of(expr, info.unit)))
        for at, expr in enumerate(self.exprs):
            end = end_of_pair(expr)
            if end is not None and end[0] == self.input.times and set(end[0]) <= below.keys():
                found[at] = below[end[0][0]]
        return found

    @property
    def update_key(self) -> tuple[int, ...] | None:
        return self._shown(self.input.update_key)

    @property
    def answer_key(self) -> tuple[int, ...] | None:
        return self._shown(self.input.answer_key)

    def _shown(self, below: tuple[int, ...] | None) -> tuple[int, ...] | None:
        """Where the columns ``below`` are in the output; None if it lacks one."""
        shown = [e.index if isinstance(e, Column) else None for e in self.exprs]
        found = tuple(shown.index(c) for c in below or () if c in shown)
        return None if below is None or len(found) < len(below) else found

    @property
    def update_time(self) -> int | None:
        below = self.input.update_time
        shown = None if below is None else self._shown((below,))
        return None if shown is None else shown[0]

    @property
    def times(self) -> tuple[int, ...] | None:
        below = self.input.times
        shown = [e.index if isinstance(e, Column) else None for e in self.exprs]
        places = [shown.index(c) for c in below or () if c in shown]
        return tuple(places) if below is not None and len(places) == len(below) else None


@dataclass(frozen=True, slots=True)
class Union(LogicalNode):
    """Bag union. The inputs have the same column types (``bind`` casts them); the output has the
    names of the first input."""

    inputs: tuple[Logical, ...] = field()
    pos: Position | None = field(default=None, compare=False)

    @cached_property
    def schema(self) -> Schema:
        first = self.inputs[0].schema
        merged = (
            Field(f.name, f.type, any(i.schema[k].nullable for i in self.inputs))
            for k, f in enumerate(first)
        )
        return Schema(tuple(merged))

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return ()

    def with_inputs(self, new: tuple[Logical, ...]) -> Self:
        return replace(self, inputs=new)

    @property
    def progressing(self) -> Progressing:
        return reduce(in_both, (child.progressing for child in self.inputs))

    @property
    def is_stream(self) -> bool:
        return all(child.is_stream for child in self.inputs)


@dataclass(frozen=True, slots=True)
class Newest(PassesRows):
    """The union of update streams (UpStream report, section 3.2): the rows of ``input``, their bag
    union, without each row that is not newer than the newest one of its key so far. ``key``: the
    columns of the update key; ``time``: the column of the time."""

    key: tuple[int, ...]
    time: int
    pos: Position | None = field(default=None, compare=False)

    @property
    def update_key(self) -> tuple[int, ...] | None:
        return self.key

    @property
    def update_time(self) -> int | None:
        return self.time

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return ()

    @property
    def makes_relation(self) -> bool | None:
        return False


@dataclass(frozen=True, slots=True)
class Bucket(PassesRows):
    """WID's Bucket (out-of-order paper §4.1): each row once per window that contains the row, with
    ``window_start``, ``window_end``, ``window_time`` appended (Flink's window table functions)."""

    window: Window
    pos: Position | None = field(default=None, compare=False)

    @cached_property
    def schema(self) -> Schema:
        assert self.window.wa is not None
        wa = self.input.schema[self.window.wa].type
        kind = wa if not wa.is_integer else BIGINT
        return Schema((*self.input.schema, *(Field(n, kind, False) for n in WINDOW_COLUMNS)))

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return ()

    @property
    def progressing(self) -> Progressing:
        below = self.input.progressing
        return {**below, **of_window(below, self.window.wa, len(self.input.schema))}

    @property
    def makes_relation(self) -> bool | None:
        return False


@dataclass(frozen=True, slots=True)
class Unnest(PassesRows):
    """Each row of the input once per element of ``array``, in the order of the elements, with the
    element as its last column; ``outer``: a row without elements leaves once, with NULL."""

    array: Expr
    name: str
    outer: bool = False
    pos: Position | None = field(default=None, compare=False)

    @cached_property
    def schema(self) -> Schema:
        assert self.array.type.element is not None
        nullable = self.outer or self.array.type.contains_null
        element = Field(self.name, self.array.type.element, nullable)
        return Schema((*self.input.schema, element))

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return (self.array,)

    @property
    def makes_relation(self) -> bool | None:
        return False


@dataclass(frozen=True, slots=True)
class Number(PassesRows):
    """The input with the number of each row appended, which windows of ROWS with SLIDE count. With
    ``windows`` (per key), the output has each row once per window that contains the row; the rows
    of a window leave together, when its last row has arrived or the input has ended."""

    pos: Position | None = field(default=None, compare=False)
    windows: KeyWindows | None = None

    @cached_property
    def schema(self) -> Schema:
        if self.windows is not None:
            return Schema((*self.input.schema, *self.windows.fields()))
        return Schema((*self.input.schema, Field(SEQUENCE, BIGINT, False)))

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return ()

    @property
    def progressing(self) -> Progressing:
        if self.windows is not None:
            return {len(self.schema) - 1: ProgressInfo(None, "the order of windows")}
        numbers = {len(self.input.schema): ProgressInfo(None, "the order of arrival")}
        return {**self.input.progressing, **numbers}

    @property
    def makes_relation(self) -> bool | None:
        return False


@dataclass(frozen=True, slots=True)
class Watermark(PassesRows):
    """The input (a stream) with a watermark on ``column`` alone, deduced from the order of arrival.
    ``progress`` has the slack, and the advance above which a row needs confirmation."""

    column: int
    progress: Progress
    pos: Position | None = field(default=None, compare=False)

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return ()

    @property
    def progressing(self) -> Progressing:
        return {self.column: ProgressInfo(self.progress.unit, self.progress.declared)}

    @property
    def times(self) -> tuple[int, ...] | None:
        return first_time(self)

    @property
    def makes_relation(self) -> bool | None:
        return False


@dataclass(frozen=True, slots=True)
class Sort(PassesRows):
    """ORDER BY … [LIMIT n] [OFFSET m]. ``window_end`` is the column of the window within which rows
    are ordered; None orders the whole input (bounded input only). Without ``keys`` (LIMIT … PER
    WINDOW), rows keep their order of arrival. ``clause`` is the clause that requires the sort: an
    ORDER BY, or a clause that holds rows until the watermark has passed them."""

    keys: tuple[SortKey, ...]
    limit: int | None
    offset: int
    window_end: int | None
    pos: Position | None = field(default=None, compare=False)
    clause: str = "ORDER BY"

    @property
    def holds(self) -> bool:
        """Whether the sort only holds rows until the watermark has passed them: no ORDER BY
        requires their order."""
        return self.clause != "ORDER BY"

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return tuple(key.expr for key in self.keys)


@dataclass(frozen=True, slots=True)
class Limit(PassesRows):
    """LIMIT and OFFSET without ORDER BY: skips ``offset`` rows and passes the next ``limit`` rows
    in their order of arrival; the input ends with the last passed row. ``limit`` None: passes all
    rows after ``offset``."""

    limit: int | None
    offset: int
    pos: Position | None = field(default=None, compare=False)

    @property
    def update_key(self) -> tuple[int, ...] | None:
        return self.input.update_key

    @property
    def update_time(self) -> int | None:
        return self.input.update_time

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return ()

    @property
    def is_bounded(self) -> bool:
        return self.limit is not None or self.input.is_bounded


@dataclass(frozen=True, slots=True)
class RowNumber(PassesRows):
    """``ROW_NUMBER() OVER (PARTITION BY … ORDER BY …)``: the input with the number of each row,
    from 1, among the rows with equal ``partition`` columns. ``window`` is a progressing column of
    these: a partition is complete when the watermark has passed its value. None: the input is a
    relation, and the numbers change with the relation."""

    partition: tuple[int, ...]
    keys: tuple[SortKey, ...]
    window: int | None
    name: str
    pos: Position | None = field(default=None, compare=False)

    @cached_property
    def schema(self) -> Schema:
        return Schema((*self.input.schema, Field(self.name, INT, False)))

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return tuple(key.expr for key in self.keys)

    @property
    def makes_relation(self) -> bool | None:
        return self.window is None
