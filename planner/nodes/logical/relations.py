"""Windows, aggregates, and streams of relations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from cql.base.model import Field, Schema
from cql.base.types import BIGINT, DataType
from cql.base.window import Window
from cql.errors import Position
from cql.planner.nodes.expr import Expr
from cql.planner.nodes.logical.base import LogicalNode, OneInput, SameColumns
from cql.planner.nodes.logical.parts import TIME, WINDOW_COLUMNS, AggregateCall, Partitioning
from cql.planner.nodes.rewrite import replace

if TYPE_CHECKING:
    from cql.planner.nodes.logical import Logical


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

    @property
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


@dataclass(frozen=True, slots=True)
class RelationToStream(OneInput):
    """ISTREAM, DSTREAM or RSTREAM (``kind``): the input's columns, then the instant."""

    kind: str
    time: DataType
    pos: Position | None = field(default=None, compare=False)

    @property
    def schema(self) -> Schema:
        return Schema((*self.input.schema, Field(TIME, self.time, False)))

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return ()


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
