"""Windows, aggregates, and streams of relations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from cql.base.model import Field, Schema
from cql.base.types import BIGINT, DataType
from cql.base.window import Window, WindowKind
from cql.errors import Position
from cql.planner.functions.folding import monotone
from cql.planner.nodes.abstract import cached_property
from cql.planner.nodes.expr import Column, Expr, columns_of
from cql.planner.nodes.logical.base import (
    LogicalNode,
    OneInput,
    PassesRows,
    SameColumns,
    first_time,
)
from cql.planner.nodes.logical.joins import Join
from cql.planner.nodes.logical.parts import TIME, WINDOW_COLUMNS, AggregateCall, Partitioning
from cql.planner.nodes.logical.progress import (
    UNKNOWN,
    ProgressInfo,
    Progressing,
    of_window,
    unit_of,
)
from cql.planner.nodes.logical.steps import Project
from cql.planner.nodes.rewrite import replace

if TYPE_CHECKING:
    from cql.planner.nodes.logical import Logical

#: Windows without SLIDE whose rows leave by their time.
_BY_TIME = (WindowKind.RANGE, WindowKind.NOW, WindowKind.UNBOUNDED)
#: Windows that make a relation of a stream.
_OF_RELATIONS = (*_BY_TIME, WindowKind.ROWS, WindowKind.EARLY)


@dataclass(frozen=True, slots=True)
class Aggregate(OneInput):
    """Groups rows within each window. Output: the keys, the aggregates, then (for sliding windows
    and sessions) ``window_start``, ``window_end`` and ``window_time`` (= end - 1 unit) in the type
    of the window attribute. ``window`` None: one set of groups over the whole (bounded) input.
    ``late_output``: LATE OUTPUT takes the late rows that the aggregate leaves out, with all their
    columns. ``distinct``: the node is a DISTINCT; its output rows consist of keys alone and
    therefore need not wait until their groups close."""

    window: Window | None
    keys: tuple[Expr, ...]
    calls: tuple[AggregateCall, ...]
    names: tuple[str, ...]  # names of the keys, then of the calls
    pos: Position | None = field(default=None, compare=False)
    late_output: bool = False
    partitioning: Partitioning | None = None
    distinct: bool = False

    @cached_property
    def schema(self) -> Schema:
        typed = [(e.type, e.nullable) for e in (*self.keys, *self.calls)]
        fields = [Field(n, t, o) for n, (t, o) in zip(self.names, typed, strict=True)]
        if self.window is not None and self.window.has_bounds:
            assert self.window.wa is not None
            wa = self.input.schema[self.window.wa].type
            fields += [Field(n, wa if not wa.is_integer else BIGINT, False) for n in WINDOW_COLUMNS]
        return Schema(tuple(fields))

    @property
    def expressions(self) -> tuple[Expr, ...]:
        given = (e for call in self.calls for e in call.read)
        return (*self.keys, *given)

    @property
    def answer_key(self) -> tuple[int, ...] | None:
        return tuple(range(len(self.keys)))

    @property
    def closing_keys(self) -> Iterator[tuple[int, int]]:
        """The keys that close the groups of an aggregate without a window, each with the
        progressing column with which the key rises. No row can come for a group that punctuation
        has passed (out-of-order paper §5.2)."""
        if self.window is not None or not self.input.is_stream:
            return
        below = self.input.progressing
        for at, key in enumerate(self.keys):
            for column in columns_of(key):
                if column in below and key.type.can_progress and monotone(key, column):
                    yield at, column

    @property
    def closing_key(self) -> tuple[int, int] | None:
        """The first of ``closing_keys``; None if groups stay open."""
        return next(self.closing_keys, None)

    @property
    def closing_pair(self) -> tuple[int, int] | None:
        """The times of both inputs of a join, if each group holds one of each: the rows of a group
        come together, and would leave the windows together (out-of-order paper §7, Q3)."""
        if self.window is not None:
            return None
        times = self.input.times
        keys = {key.index for key in self.keys if isinstance(key, Column)}
        if times is None or len(times) != 2 or not keys.issuperset(times):
            return None
        return times[0], times[1]

    @property
    def progressing(self) -> Progressing:
        closing = self.closing_key
        if closing is not None and self.distinct:
            return Project(self.input, self.keys, self.names).progressing
        if closing is not None and self.closing_pair is None:
            at, column = closing
            info = self.input.progressing[column]
            return {at: replace(info, unit=unit_of(self.keys[at], info.unit))}
        if self.window is None or not self.window.has_bounds:
            return {}
        first = len(self.keys) + len(self.calls)
        columns = dict(of_window(self.input.progressing, self.window.wa, first))
        if self.window.kind is WindowKind.SESSION:
            del columns[first]  # sessions leave by their ends, however long ago they began
        return columns

    @property
    def times(self) -> tuple[int, ...] | None:
        return first_time(self)

    @property
    def is_stream(self) -> bool:
        return self.window is not None or self.input.is_stream

    @property
    def makes_relation(self) -> bool | None:
        return None if self.window is None else False


@dataclass(frozen=True, slots=True)
class Windowed(SameColumns):
    """An input under a window without an aggregate that takes the window: a relation of CQL.
    ``late_output`` as in Aggregate."""

    window: Window
    pos: Position | None = field(default=None, compare=False)
    late_output: bool = False

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return ()

    @property
    def progressing(self) -> Progressing:
        return self.input.progressing

    @property
    def answer_key(self) -> tuple[int, ...] | None:
        key, window = self.input.update_key, self.window
        last = window.kind is WindowKind.ROWS and window.rows == 1 and window.range is None
        return key if key is not None and last and set(window.partition_by) == set(key) else None

    @property
    def times(self) -> tuple[int, ...] | None:
        by_time = self.window.kind in _BY_TIME and not isinstance(self.input, Join)
        return (self.window.wa,) if by_time and self.window.wa is not None else None

    @property
    def instants(self) -> ProgressInfo:
        live = self.input.progressing
        if self.window.wa is not None:
            return live.get(self.window.wa, UNKNOWN)
        return next(iter(live.values())) if live else self.input.instants

    @property
    def is_constant(self) -> bool:
        return False

    @property
    def makes_relation(self) -> bool | None:
        return self.window.kind in _OF_RELATIONS


@dataclass(frozen=True, slots=True)
class RelationToStream(PassesRows):
    """ISTREAM, DSTREAM or RSTREAM (``kind``): the input's columns, then the instant."""

    kind: str
    time: DataType
    pos: Position | None = field(default=None, compare=False)

    @cached_property
    def schema(self) -> Schema:
        return Schema((*self.input.schema, Field(TIME, self.time, False)))

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return ()

    @property
    def progressing(self) -> Progressing:
        return {len(self.input.schema): self.input.instants}

    @property
    def makes_relation(self) -> bool | None:
        return False


@dataclass(frozen=True, slots=True)
class Unsupported(LogicalNode):
    """A clause with known output columns that this version cannot run."""

    inputs: tuple[Logical, ...] = field()
    clause: str
    schema: Schema = field()
    hint: str | None = None
    pos: Position | None = field(default=None, compare=False)

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return ()

    def with_inputs(self, new: tuple[Logical, ...]) -> Self:
        return replace(self, inputs=new)

    @property
    def progressing(self) -> Progressing:
        # The clause appends columns to its first input, or makes a relation of its own.
        if not self.inputs:
            return {}
        below = self.inputs[0].schema.fields
        if self.schema.fields[: len(below)] != below:
            return {}
        return self.inputs[0].progressing

    @property
    def makes_relation(self) -> bool | None:
        return False
