"""Where rows come from: scans and constants."""

from __future__ import annotations

from dataclasses import dataclass, field

from cql.base.model import NO_COLUMNS, Schema
from cql.errors import Position
from cql.planner.nodes.catalog import Relation
from cql.planner.nodes.expr import Expr, Literal
from cql.planner.nodes.logical.base import NoInput


@dataclass(frozen=True, slots=True)
class Scan(NoInput):
    """Reads a stream or table; ``columns`` are indices into the relation's schema. ``alias`` is the
    relation's name in the query."""

    relation: Relation
    columns: tuple[int, ...]
    pos: Position | None = field(default=None, compare=False)
    alias: str = field(default="", compare=False)
    schema: Schema = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        schema = self.relation.schema.part(self.columns, self.alias)
        object.__setattr__(self, "schema", schema)

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return ()


@dataclass(frozen=True, slots=True)
class Values(NoInput):
    """Rows of constants. SELECT without FROM reads one row without columns."""

    schema: Schema = NO_COLUMNS
    rows: tuple[tuple[Literal, ...], ...] = ((),)
    pos: Position | None = field(default=None, compare=False)

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return ()
