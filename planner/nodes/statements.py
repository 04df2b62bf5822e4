"""Bound statements: a closed union of plain, frozen data, which ``bind`` makes.

Names are tuples of one to three parts, as written (the catalog folds case). Every node that a later
error may point at keeps its position.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from sqlglot import exp

from cql.base.model import Schema
from cql.errors import Position
from cql.planner.nodes.catalog import (
    PLAIN,
    Progress,
    StreamDefinition,
    StreamSpec,
    TableFiles,
    TableLayout,
)
from cql.planner.nodes.expr import Literal
from cql.planner.nodes.logical import Logical

Name: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Hint:
    """``/*+ name(args) */``: a setting for this query alone; the settings table checks it."""

    name: str
    args: tuple[str, ...]
    pos: Position | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class LateTarget:
    """LATE OUTPUT INTO ``name``."""

    name: Name
    pos: Position | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Query:
    """A bound SELECT. ``keep_bad_rows`` None means the default of its inputs; ``emit_changes`` is
    the position of EMIT CHANGES."""

    plan: Logical
    hints: tuple[Hint, ...] = ()
    keep_bad_rows: bool | None = None
    emit_changes: Position | None = field(default=None, compare=False)
    pos: Position | None = field(default=None, compare=False)
    late_output: LateTarget | None = None

    @property
    def schema(self) -> Schema:
        return self.plan.schema


@dataclass(frozen=True, slots=True)
class Insert:
    """INSERT INTO ``target``. The plan's columns have the names and types of the target's columns
    that they fill (``columns``, in this order); the sink fills the other columns with NULL.
    ``files``, ``schema``, ``key`` and ``layout`` (see CreateTable) are those of the table that the
    statement creates."""

    target: Name
    columns: tuple[str, ...]
    query: Query
    pos: Position | None = field(default=None, compare=False)
    files: TableFiles | None = None
    schema: Schema | None = None
    key: tuple[str, ...] = ()
    layout: TableLayout = PLAIN


@dataclass(frozen=True, slots=True)
class CreateStream:
    name: Name
    definition: StreamDefinition
    if_not_exists: bool = False
    replace: bool = False
    pos: Position | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class NamedQuery:
    """A view, or a named intermediate stream (CREATE STREAM … AS SELECT; ``kind`` "stream"). Its
    parsed ``query`` is expanded wherever a query uses the name. ``columns`` renames all of its
    columns; ``text`` is the printed query, for SHOW. ``progress`` is the declared progress of a
    time that the query computes; its watermark follows the rows' order of arrival. ``updates`` are
    the clauses of a queue between the query and each query that uses the name: the query is then
    not expanded, but runs by itself."""

    kind: str
    query: exp.Expr
    text: str
    columns: tuple[str, ...] = ()
    progress: Progress | None = None
    updates: StreamSpec | None = None


@dataclass(frozen=True, slots=True)
class CreateView:
    """CREATE VIEW or CREATE STREAM … AS: the session keeps ``definition`` under ``name``;
    ``schema`` is its present schema."""

    name: Name
    definition: NamedQuery
    schema: Schema
    if_not_exists: bool = False
    replace: bool = False
    pos: Position | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class CreateMaterializedView:
    """CREATE MATERIALIZED VIEW: a table with the rows of ``query``, whose text begins at the offset
    ``begin`` of the whole text. ``freshness`` is a number of microseconds."""

    name: Name
    query: Query
    begin: int
    comment: str | None = None
    freshness: int | None = None
    if_not_exists: bool = False
    replace: bool = False
    pos: Position | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class RefreshView:
    """REFRESH MATERIALIZED VIEW ``name``; ``full``: computes all rows anew. ``every``: again and
    again in the background, so many microseconds apart."""

    name: Name
    full: bool = False
    pos: Position | None = field(default=None, compare=False)
    every: int | None = None


@dataclass(frozen=True, slots=True)
class CreateTable:
    """CREATE TABLE; with ``query``, the statement inserts the query's rows. A table has either
    ``files`` or a ``schema``, and perhaps a ``format`` and a ``layout``, which only Spark knows.
    ``key`` are the columns of its PRIMARY KEY."""

    name: Name
    schema: Schema | None
    format: str | None
    query: Query | None = None
    if_not_exists: bool = False
    replace: bool = False
    pos: Position | None = field(default=None, compare=False)
    files: TableFiles | None = None
    format_pos: Position | None = field(default=None, compare=False)
    key: tuple[str, ...] = ()
    layout: TableLayout = PLAIN


@dataclass(frozen=True, slots=True)
class CreateConstant:
    name: str
    value: Literal
    replace: bool = False
    pos: Position | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Drop:
    """DROP ``name``; ``kind`` is stream, table, view, materialized view or constant."""

    kind: str
    name: Name
    if_exists: bool = False
    pos: Position | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Set:
    """SET name = value; ``value`` None shows the setting, and ``name`` None shows all settings.
    ``pos`` is the place of the name."""

    name: str | None
    value: str | int | float | bool | None
    pos: Position | None = field(default=None, compare=False)
    value_pos: Position | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Reset:
    """RESET name; ``name`` None resets all settings."""

    name: str | None
    pos: Position | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Explain:
    """EXPLAIN of a ``statement``, or of the session's query named ``query``. ``mode`` is in lower
    case: logical, physical (the default), analyze, …"""

    mode: str
    statement: Statement | None
    pos: Position | None = field(default=None, compare=False)
    query: str | None = None


@dataclass(frozen=True, slots=True)
class Show:
    """SHOW STREAMS | TABLES | QUERIES | FUNCTIONS | … (``what``, lower case) [IN place] [LIKE
    pattern]; ``place`` is a database, or the catalog of databases. SHOW LATE | BAD ROWS [query]."""

    what: str
    like: str | None = None
    pos: Position | None = field(default=None, compare=False)
    place: Name | None = None
    query: str | None = None


@dataclass(frozen=True, slots=True)
class Use:
    """USE database (or catalog, or catalog.database)."""

    name: Name
    pos: Position | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Describe:
    """DESCRIBE ``name``; ``materialized``: DESCRIBE MATERIALIZED VIEW."""

    name: Name
    pos: Position | None = field(default=None, compare=False)
    materialized: bool = False


@dataclass(frozen=True, slots=True)
class StopQuery:
    name: str
    pos: Position | None = field(default=None, compare=False)


Statement: TypeAlias = (
    Query
    | Insert
    | CreateStream
    | CreateView
    | CreateMaterializedView
    | RefreshView
    | CreateTable
    | CreateConstant
    | Drop
    | Set
    | Reset
    | Explain
    | Show
    | Use
    | Describe
    | StopQuery
)
