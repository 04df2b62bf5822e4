"""Where rows come from: sources and constants."""

from __future__ import annotations

from dataclasses import dataclass, field

from cql.base.model import NO_COLUMNS, Schema
from cql.errors import Position
from cql.planner.nodes.catalog import Progress, Queue, Relation
from cql.planner.nodes.expr import Literal
from cql.planner.nodes.physical.base import NoInput
from cql.planner.nodes.progress import max_advance


@dataclass(frozen=True, slots=True)
class Awaited:
    """The punctuation on a column that some consumer can use: the values ``offset`` plus a multiple
    of ``step``, for each pair (step, offset) of ``boundaries``; None: any value."""

    column: int
    boundaries: tuple[tuple[int, int], ...] | None


@dataclass(frozen=True, slots=True)
class UpdateQueue:
    """The queue in which the rows of an update stream wait (UpStream report, section 4). ``keys``:
    the columns of the update key, among those that the source reads; without any, each row updates
    the one before it."""

    queue: Queue
    keys: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SourceExec(NoInput):
    """Reads blocks, marks late rows and makes punctuation (out-of-order paper §5.1). ``awaited``:
    by column, the punctuation that the plan above can use (``planner.lower.watermark_demand``);
    None: any. ``ahead``: the nesting depth of the source in tables and subqueries that rows are
    looked up in; deeper sources are read to their end before the others. ``refresh``: the interval,
    in microseconds, at which the source is read again. ``alias`` is the relation's name in the
    query. ``updates``: where rows wait that come faster than the query takes them; None: at the
    source."""

    relation: Relation
    columns: tuple[int, ...]
    why: str = ""
    pos: Position | None = field(default=None, compare=False)
    awaited: tuple[Awaited, ...] | None = None
    ahead: int = 0
    refresh: int | None = None
    alias: str = field(default="", compare=False)
    updates: UpdateQueue | None = None
    schema: Schema = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        schema = self.relation.schema.part(self.columns, self.alias)
        object.__setattr__(self, "schema", schema)

    def awaited_on(self, column: int) -> tuple[tuple[int, int], ...] | None:
        """The boundaries of the awaited punctuation on ``column``; None: any punctuation; (): no
        consumer awaits punctuation on the column."""
        if self.awaited is None:
            return None
        return next((a.boundaries for a in self.awaited if a.column == column), ())

    @property
    def progress(self) -> tuple[tuple[int, Progress], ...]:
        """The progressing columns (index and declaration) that the source reads."""
        spec, whole = self.relation.stream, self.relation.schema
        found = [(whole.find(p.column), p) for p in (spec.progress if spec else ())]
        return tuple(
            (self.columns.index(c), p) for c, p in found if c is not None and c in self.columns
        )

    @property
    def name(self) -> str:
        return ".".join(self.relation.name)

    @property
    def progressing(self) -> tuple[int, ...]:
        return tuple(sorted(column for column, _ in self.progress))

    @property
    def bounded(self) -> bool:
        return self.relation.bounded

    def late_out_of_order(self, column: int, *, guarded: bool) -> bool:
        declared = dict(self.progress).get(column)
        if declared is None or not declared.by_rows or declared.slack:
            return False
        if self.relation.stream is not None and self.relation.stream.by is not None:
            return False  # only the rows of one value are in order
        sparse = declared.every is not None or declared.marked_by is not None
        return not sparse and (guarded or max_advance(self.relation, declared) is None)


@dataclass(frozen=True, slots=True)
class ValuesExec(NoInput):
    """Rows of constants. The default is one row without columns, which SELECT without FROM reads.
    ``ahead`` as in SourceExec."""

    schema: Schema = NO_COLUMNS
    rows: tuple[tuple[Literal, ...], ...] = ((),)
    why: str = ""
    ahead: int = 0

    @property
    def progressing(self) -> tuple[int, ...]:
        return ()

    @property
    def bounded(self) -> bool:
        return True
