"""Joins, subqueries and set operations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from cql.base.model import Field, Schema
from cql.base.types import BOOLEAN
from cql.errors import Position
from cql.planner.nodes.abstract import cached_property
from cql.planner.nodes.expr import Expr
from cql.planner.nodes.logical.base import LogicalNode, TwoInputs
from cql.planner.nodes.logical.parts import Partitioning
from cql.planner.nodes.logical.progress import Progressing
from cql.planner.nodes.logical.steps import Union
from cql.planner.nodes.rewrite import replace

if TYPE_CHECKING:
    from cql.planner.nodes.logical import Logical


#: The kinds of joins that join each left row with the nearest right row.
ASOF = ("asof", "asof left")


@dataclass(frozen=True, slots=True)
class Join(TwoInputs):
    """A join. Output: the columns of the left, then of the right. ``kind`` is inner, left, right,
    full, semi, anti, cross, asof or asof left. ``order`` is the reason for the order of the inputs,
    if the planner chose the order."""

    kind: str
    condition: Expr | None
    pos: Position | None = field(default=None, compare=False)
    order: str = field(default="", compare=False)
    partitioning: Partitioning | None = None

    @cached_property
    def schema(self) -> Schema:
        if self.kind in ("semi", "anti"):
            return self.left.schema
        loose_left, loose_right = (
            self.kind in ("right", "full"),
            self.kind in ("left", "full", "asof left"),
        )
        left, right = self.left.schema.padded(loose_left), self.right.schema.padded(loose_right)
        return Schema((*left, *right))

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return () if self.condition is None else (self.condition,)

    @property
    def looks_up(self) -> bool:
        """Whether the join emits a stream's rows, each with its partners in a table. Such a join
        keeps the order, the watermark and the late rows of the stream."""
        match self.kind:
            case "inner" | "cross":
                return self.left.is_table or self.right.is_table
            case "left" | "semi" | "anti":
                return self.right.is_table
            case "right":
                return self.left.is_table
            case _:
                return False

    @property
    def progressing(self) -> Progressing:
        # Both inputs' times stay, and both progress (out-of-order paper §3.2), except on the side
        # that an outer join pads with NULL.
        left = self.left.progressing if self.kind not in ("right", "full") else {}
        if self.kind in ("semi", "anti", "left", "full", *ASOF):
            return left
        width = len(self.left.schema)
        return {**left, **{width + at: info for at, info in self.right.progressing.items()}}

    @property
    def times(self) -> tuple[int, ...] | None:
        if not is_inner(self) or self.looks_up:
            return None
        left, right = self.left.times, self.right.times
        if left is None or right is None:
            return None
        return (*left, *(len(self.left.schema) + c for c in right))

    @property
    def is_stream(self) -> bool:
        once = self.looks_up or self.kind in ("inner", "cross", *ASOF)
        return once and self.left.is_stream and self.right.is_stream


def is_inner(node: Join) -> bool:
    """Whether all output rows of ``node`` are pairs."""
    return node.kind in ("inner", "cross")


@dataclass(frozen=True, slots=True)
class SubqueryJoin(LogicalNode):
    """The input with a subquery's answer to each row as its last column (mark join and single
    join). ``kind`` is exists or in (whether ``query`` has a row equal to ``keys``, which are over
    the input) or scalar (the value of the only row of ``query``). ``condition`` is a further
    condition of exists, over the columns of the input, then of the query."""

    input: Logical
    query: Logical
    kind: str
    keys: tuple[Expr, ...]
    name: str
    pos: Position | None = field(default=None, compare=False)
    condition: Expr | None = None

    @cached_property
    def schema(self) -> Schema:
        type_ = self.query.schema[0].type if self.kind == "scalar" else BOOLEAN
        return Schema((*self.input.schema, Field(self.name, type_, self.kind != "exists")))

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return self.keys

    @property
    def inputs(self) -> tuple[Logical, ...]:
        return (self.input, self.query)

    def with_inputs(self, new: tuple[Logical, ...]) -> Self:
        child, query = new
        return replace(self, input=child, query=query)

    @property
    def progressing(self) -> Progressing:
        below = self.input.progressing
        if self.query.is_constant:
            return below
        # rows leave in the order of one time: that of the instants
        return dict([*below.items()][:1])

    @property
    def is_stream(self) -> bool:
        return self.query.is_constant and self.input.is_stream


@dataclass(frozen=True, slots=True)
class SetOperation(TwoInputs):
    """EXCEPT or INTERSECT (``kind``) of two relations with equal column types; ``distinct``: as
    sets, else as bags."""

    kind: str
    distinct: bool
    pos: Position | None = field(default=None, compare=False)

    @cached_property
    def schema(self) -> Schema:
        return Union((self.left, self.right)).schema

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return ()

    @property
    def makes_relation(self) -> bool | None:
        return True
