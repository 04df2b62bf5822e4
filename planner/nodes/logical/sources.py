"""Where rows come from: scans and constants."""

from __future__ import annotations

from dataclasses import dataclass, field

from cql.base.model import NO_COLUMNS, Schema
from cql.errors import Position
from cql.planner.nodes.catalog import Relation
from cql.planner.nodes.expr import Expr, Literal
from cql.planner.nodes.logical.base import NoInput, first_time
from cql.planner.nodes.logical.parts import RefreshItem
from cql.planner.nodes.logical.progress import ProgressInfo, Progressing


@dataclass(frozen=True, slots=True)
class Scan(NoInput):
    """Reads a stream or table; ``columns`` are indices into the relation's schema. ``alias`` is the
    relation's name in the query. ``refresh``: REFRESH of an update stream."""

    relation: Relation
    columns: tuple[int, ...]
    pos: Position | None = field(default=None, compare=False)
    alias: str = field(default="", compare=False)
    refresh: tuple[RefreshItem, ...] = ()
    schema: Schema = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        schema = self.relation.schema.part(self.columns, self.alias)
        object.__setattr__(self, "schema", schema)

    @property
    def queued_by(self) -> frozenset[int]:
        """The columns, among ``columns``, that the queue of an update stream needs: the update key,
        and the time by which a row of a key follows another."""
        spec, schema = self.relation.stream, self.relation.schema
        if spec is None or not spec.is_queued:
            return frozenset()
        names = [*(spec.update_key or ()), *(p.column for p in spec.progress[:1])]
        found = (schema.find(name) for name in names)
        return frozenset(self.columns.index(c) for c in found if c in self.columns)

    @property
    def update_key(self) -> tuple[int, ...] | None:
        spec, schema = self.relation.stream, self.relation.schema
        if spec is None or not spec.is_updates:
            return None
        places = [schema.find(name) for name in spec.update_key or ()]
        found = tuple(self.columns.index(c) for c in places if c in self.columns)
        return found if len(found) == len(places) else None

    @property
    def update_time(self) -> int | None:
        spec = self.relation.stream
        if spec is None or not spec.is_updates or not spec.progress:
            return None
        at = self.relation.schema.find(spec.progress[0].column)
        return self.columns.index(at) if at in self.columns else None

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return ()

    @property
    def progressing(self) -> Progressing:
        if self.relation.stream is None:
            return {}
        schema = self.relation.schema
        found: dict[int, ProgressInfo] = {}
        for progress in self.relation.stream.progress:
            index = schema.find(progress.column)
            if index is not None and index in self.columns:
                at = self.columns.index(index)
                found.setdefault(at, ProgressInfo(progress.unit, progress.declared))
        return found

    @property
    def times(self) -> tuple[int, ...] | None:
        return first_time(self)

    @property
    def is_bounded(self) -> bool:
        return self.relation.bounded

    @property
    def is_table(self) -> bool:
        spec = self.relation.stream
        return self.relation.bounded and not (spec is not None and spec.progress)

    @property
    def is_stream(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class Values(NoInput):
    """Rows of constants. SELECT without FROM reads one row without columns."""

    schema: Schema = NO_COLUMNS
    rows: tuple[tuple[Literal, ...], ...] = ((),)
    pos: Position | None = field(default=None, compare=False)

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return ()

    @property
    def is_stream(self) -> bool:
        return True
