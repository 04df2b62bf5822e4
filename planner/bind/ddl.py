"""CREATE STREAM, CREATE TABLE, CREATE VIEW and CREATE CONSTANT."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from sqlglot import exp

from cql.base.model import Field, Schema, is_channel, of_table
from cql.base.types import DOUBLE
from cql.dialect import nodes, to_sql
from cql.planner.bind import computed as bind_computed
from cql.planner.bind.context import Binder, Bound, Env, find_column
from cql.planner.bind.expressions.expression import ExprBinder
from cql.planner.bind.expressions.literals import data_type
from cql.planner.bind.inserted import stored
from cql.planner.bind.relations import refresh, watermark
from cql.planner.bind.relations.derived_stream import refuse_relation
from cql.planner.bind.relations.from_clause import declared, find_relation, name_of
from cql.planner.bind.scope import Scope
from cql.planner.functions import registry
from cql.planner.nodes.catalog import (
    CHANGE,
    LEAST_RATE,
    LOG,
    MOST_RATE,
    REWRITE,
    UPSERT,
    Changelog,
    Progress,
    Queue,
    StreamDefinition,
    StreamSpec,
    TableFiles,
    TableLayout,
    refuse_computed,
)
from cql.planner.nodes.expr import Expr, Literal
from cql.planner.nodes.statements import (
    CreateConstant,
    CreateMaterializedView,
    CreateStream,
    CreateTable,
    CreateView,
    NamedQuery,
    Query,
)

_QUEUES = {
    "APPEND": Queue.APPEND,
    "FIFO": Queue.FIFO,
    "IN-PLACE": Queue.IN_PLACE,
    "LINECUTTING": Queue.LINECUTTING,
    "ADAPTIVE": Queue.ADAPTIVE,
}
#: Clauses that a stream keeps; a query that reads the stream is refused.
_DEFERRED = {"late_output": "LATE OUTPUT"}
_STREAM_ONLY = (
    *("changelog", "refresh", "rate", "punctuate", "idle_after", "heartbeat", "late_output"),
    *("on_bad_row", "from_table", "format", "with_options"),
)


# ------------------------------------------------------------------ columns


def columns(binder: Binder, defined: Sequence[exp.Expr]) -> Schema | None:
    """The schema of a column list; None without one."""
    stored = (c for c in defined if isinstance(c, exp.ColumnDef) and c.args.get("kind"))
    fields = [_field(binder, c) for c in stored]
    return Schema(tuple(fields)) if fields else None


def _field(binder: Binder, node: exp.ColumnDef) -> Field:
    kind = node.args["kind"]
    type_ = data_type(kind, binder.pos(kind) or binder.pos(node))
    nullable, comment = True, None
    for constraint in node.args.get("constraints") or ():
        match constraint.args["kind"]:
            case exp.NotNullColumnConstraint() as found:
                nullable = bool(found.args.get("allow_null"))
            case exp.PrimaryKeyColumnConstraint():
                nullable = False
            case exp.CommentColumnConstraint() as found:
                comment = found.this.name
    return Field(node.name, type_, nullable, comment)


def _primary_key(binder: Binder, defined: Sequence[exp.Expr]) -> list[exp.Expr]:
    """The Identifiers of PRIMARY KEY, behind a column or as an element of the column list. Raises
    BindError for a second PRIMARY KEY."""
    found: list[list[exp.Expr]] = []
    for part in defined:
        if isinstance(part, nodes.PrimaryKey):
            found.append(part.expressions)
        elif isinstance(part, exp.ColumnDef) and any(
            isinstance(c.args["kind"], exp.PrimaryKeyColumnConstraint)
            for c in part.args.get("constraints") or ()
        ):
            found.append([part.this])
    if len(found) > 1:
        hint = "PRIMARY KEY (column, column) is one key of two columns"
        raise binder.error("there are two PRIMARY KEYs", found[1][0], hint=hint)
    return found[0] if found else []


def options(binder: Binder, given: Sequence[exp.Expr]) -> dict[str, Any]:
    """The values of OPTIONS or WITH, by name."""
    return {o.this.name: constant_value(binder, o.expression) for o in given}


def constant_value(binder: Binder, node: exp.Expr) -> str | int | float | bool | None:
    """The value of a setting or an option; words and durations stay text."""
    match node:
        case exp.Literal() if node.is_string:
            return node.name
        case exp.Literal():
            return int(node.name) if node.name.isdecimal() else float(node.name)
        case exp.Boolean():
            return bool(node.this)
        case exp.Null():
            return None
        case exp.Neg():
            inner = constant_value(binder, node.this)
            if isinstance(inner, int | float):
                return -inner
        case nodes.Duration():
            return f"{node.this.name} {node.unit.lower()}"
        case exp.Var():
            return node.name
    raise binder.error(f"{to_sql(node)} is not a constant", node)


# ------------------------------------------------------------------ CREATE STREAM


def create_stream(binder: Binder, node: nodes.CreateStream) -> CreateStream | CreateView:
    if node.args.get("query") is not None:
        return _intermediate(binder, node)
    schema = columns(binder, node.expressions)
    table, format_, given = _origin(binder, node)
    known = schema
    if node.args.get("from_table") is not None:
        relation = find_relation(binder, node.args["from_table"])
        what, at = f"stream {'.'.join(name_of(node.this))}", node.args["from_table"]
        refuse_computed(relation, what, binder.pos(at))
        known = schema or relation.schema
    spec = _spec(binder, node, known)
    if schema is not None:
        schema = _for_changes(schema, spec)
    definition = StreamDefinition(schema, spec, table, format_, given)
    return CreateStream(
        name_of(node.this),
        definition,
        bool(node.args.get("exists")),
        bool(node.args.get("replace")),
        binder.pos(node.this),
    )


def _origin(
    binder: Binder, node: nodes.CreateStream
) -> tuple[tuple[str, ...] | None, str | None, Mapping[str, Any]]:
    """The table, or the format and its options, that the stream's rows come from."""
    table = node.args.get("from_table")
    behind = options(binder, node.args.get("options") or ())
    if table is not None:
        return name_of(table), None, behind
    if node.args.get("format") is not None:
        return None, node.args["format"].name.lower(), behind
    given = options(binder, node.args.get("with_options") or ())
    if not given:
        return None, None, {}
    folded = {k.lower(): k for k in given}
    key = folded.get("format") or folded.get("connector")
    if key is None:
        raise binder.error(
            "WITH names no format", node.args["with_options"][0], hint="add 'format' = 'csv'"
        )
    format_ = str(given[key]).lower()
    rest = {k: v for k, v in given.items() if k.lower() not in ("format", "connector")}
    return None, format_, rest


def _spec(binder: Binder, node: nodes.CreateStream, stored: Schema | None) -> StreamSpec:
    args = node.args
    computed, schema = bind_computed.declared(binder, node, stored)

    def find(binder: Binder, node: exp.Expr, schema: Schema | None) -> Field | None:
        bind_computed.refuse_computed(binder, node, computed)
        return find_column(binder, node, schema)

    for key in _primary_key(binder, node.expressions):
        find(binder, key, schema)
    progress = watermark.progress(binder, node, schema, find)
    own, computed_progress = bind_computed.separate(binder, node, progress, computed)
    keep = args.get("on_bad_row")
    rate = args.get("rate")
    in_blocks = any(is_channel(f.type) for f in stored or ())
    if computed_progress is not None and rate is not None and in_blocks:
        raise binder.unsupported(
            f"{computed_progress.column}, which is computed, as the time of rows that are blocks of"
            " samples,",
            rate,
            "ORDERED BY names the stored time of a row's first sample",
        )
    update_key = _update_key(binder, node, schema, find)
    return StreamSpec(
        progress=own,
        update_key=update_key,
        queue=_queue(node),
        lazy_windows=_lazy_windows(node),
        staleness=_staleness(binder, node),
        refresh=refresh.declared(binder, node, schema, update_key),
        rate_hz=None if rate is None else _rate(binder, rate),
        tolerance=None if rate is None else _tolerance(binder, rate),
        keep_bad_rows=None if keep is None else keep.this == "KEEP",
        idle_after=watermark.idle_after(binder, args.get("idle_after")),
        heartbeat=watermark.heartbeat(binder, node, schema, find),
        deferred=tuple(_deferred(node)),
        by=watermark.punctuated_by(binder, node, schema, find),
        computed=computed,
        computed_progress=computed_progress,
        changelog=_changelog(binder, node, schema, find),
    )


def _rate(binder: Binder, node: nodes.Rate) -> float:
    hertz = float(node.hertz)
    if hertz <= 0:
        raise binder.error("RATE must be above zero", node)
    if not LEAST_RATE <= hertz <= MOST_RATE:
        raise binder.error(f"RATE must be from {LEAST_RATE:f} to {MOST_RATE:,} HZ", node)
    return hertz


def _tolerance(binder: Binder, node: nodes.Rate) -> int | None:
    """The microseconds of TOLERANCE, at most half a period of the rate; or None."""
    given = node.args.get("tolerance")
    if given is None:
        return None
    found = watermark.elapsed(binder, given, "TOLERANCE")
    half = 500_000 / Fraction(node.hertz)
    if found is not None and found > half:
        raise binder.error(
            f"TOLERANCE {to_sql(given)} is more than half the time from a sample to the next",
            given,
            f"at {float(node.hertz):,.15g} HZ it is at most {float(half):,.9g} microseconds",
        )
    return found


def _deferred(node: nodes.CreateStream) -> list[tuple[str, str]]:
    return [
        (clause, to_sql(node.args[key]))
        for key, clause in _DEFERRED.items()
        if node.args.get(key) is not None
    ]


def _update_key(
    binder: Binder,
    node: nodes.CreateStream,
    schema: Schema | None,
    find: watermark.Find,
) -> tuple[str, ...] | None:
    clause = node.args.get("update_key")
    if clause is None:
        return None
    named = clause.expressions or _primary_key(binder, node.expressions)
    if not named:
        hint = "UPDATE KEY (column, …), or a PRIMARY KEY among the columns"
        raise binder.error("UPDATE KEY names no column", clause, hint=hint)
    keys = []
    for key in named:
        field = find(binder, key, schema)
        keys.append(field.name if field else key.name)
    return tuple(keys)


def _changelog(
    binder: Binder, node: nodes.CreateStream, schema: Schema | None, find: watermark.Find
) -> Changelog | None:
    clause = node.args.get("changelog")
    if clause is None:
        return None
    if schema is not None and schema.find(CHANGE) is not None:
        raise binder.error(
            f"a changelog cannot have a column {CHANGE}", clause, hint="name it otherwise"
        )
    column = None
    if clause.this is not None:
        field = find(binder, clause.this, schema)
        column = field.name if field else clause.this.name
        if field is not None and not (field.type.is_text or field.type.is_integer):
            raise binder.error(
                f"column {column} is {field.type}, and operation codes are texts or integers",
                clause.this,
            )
        times = [p for p in node.args.get("ordered_by") or () if p.this.name == column]
        keys = (node.args["update_key"].expressions if node.args.get("update_key") else ()) or ()
        if times or any(key.name == column for key in keys):
            raise binder.error(f"{column} has the operation codes, and is no part of a row", clause)
    return Changelog(column, tuple(f.name for f in schema or () if not f.nullable))


def _for_changes(schema: Schema, spec: StreamSpec) -> Schema:
    """The columns of a source whose rows are changes: a row that leaves may be known by its key
    alone."""
    if spec.changelog is None:
        return schema
    keys = {name.lower() for name in spec.update_key or ()}
    relaxed = (f if f.name.lower() in keys else replace(f, nullable=True) for f in schema)
    return Schema(tuple(relaxed))


def _queue(node: nodes.CreateStream) -> Queue | None:
    clause = node.args.get("queue")
    if clause is None:
        return None
    return Queue.APPEND_SHED_RANDOM if clause.args.get("shed") else _QUEUES[str(clause.this)]


def _lazy_windows(node: nodes.CreateStream) -> bool | None:
    clause = node.args.get("windows")
    return None if clause is None else clause.this == "LAZY"


def _staleness(binder: Binder, node: nodes.CreateStream) -> int | None:
    """The microseconds of STALENESS UNDER, or None. Raises BindError without an update queue."""
    clause = node.args.get("staleness")
    queue = node.args.get("queue")
    if clause is not None and node.args.get("update_key") is None and queue is None:
        raise binder.error(
            "STALENESS UNDER is a goal for an update stream",
            clause,
            hint="add UPDATE KEY (column, …)",
        )
    return watermark.elapsed(binder, None if clause is None else clause.this, "STALENESS UNDER")


def _intermediate(binder: Binder, node: nodes.CreateStream) -> CreateView:
    """CREATE STREAM … AS SELECT: a named intermediate stream, expanded wherever it is used. ORDERED
    BY or WATERMARK declares that a time which the query computes progresses. With an update queue,
    the query runs by itself instead (``bind.relations.derived_stream``)."""
    for key in _STREAM_ONLY:
        found = node.args.get(key)
        if found:
            at = found[0] if isinstance(found, list) else found
            clause = key.split("_")[0].upper() if key != "from_table" else "FROM TABLE"
            raise binder.unsupported(
                f"{clause} on a stream that is a query", at, "declare it on the query's inputs"
            )
    if node.expressions:
        raise binder.unsupported(
            "a column list on a stream that is a query", node.expressions[0], "name columns with AS"
        )
    return _named(binder, node, "stream", ())


def _progress(binder: Binder, node: nodes.CreateStream, bound: Bound) -> Progress | None:
    """The progress that CREATE STREAM … AS declares for a time of its query, or None."""
    found = watermark.progress(binder, node, bound.shown().schema, find_column)
    if not found:
        return None
    clauses = [*(node.args.get("ordered_by") or ()), *(node.args.get("watermark") or ())]
    if len(found) > 1:
        raise binder.unsupported(
            "a second time with a watermark on a stream that is a query",
            clauses[1],
            f"keep {found[0].declared}",
        )
    declared(binder, bound, found[0], clauses[0])
    return found[0]


def _updates(binder: Binder, node: nodes.CreateStream, bound: Bound) -> StreamSpec | None:
    """The clauses of the queue that CREATE STREAM … AS declares behind its query, or None. Raises
    BindError for WINDOWS without a queue that may leave rows out."""
    schema = bound.shown().schema
    spec = StreamSpec(
        update_key=_update_key(binder, node, schema, find_column),
        queue=_queue(node),
        lazy_windows=_lazy_windows(node),
        staleness=_staleness(binder, node),
    )
    if spec.is_queued:
        what = "UPDATE KEY" if spec.update_key is not None else "QUEUE"
        clause = node.args["update_key" if spec.update_key is not None else "queue"]
        refuse_relation(binder, bound.plan, clause, emits=bool(binder.emitting), clause=what)
        return spec
    for key, what in (("windows", "WINDOWS"), ("staleness", "STALENESS UNDER")):
        if node.args.get(key) is not None:
            hint = "add UPDATE KEY (column, …)"
            raise binder.error(f"{what} is for an update stream", node.args[key], hint=hint)
    return None  # QUEUE APPEND: each reader sees all rows, as without the clause


# ------------------------------------------------------------------ views, tables, constants


def create_view(binder: Binder, node: nodes.CreateView) -> CreateView:
    return _named(binder, node, "view", tuple(c.name for c in node.expressions))


def create_materialized_view(
    binder: Binder, node: nodes.CreateMaterializedView, query: Query
) -> CreateMaterializedView:
    check_names(binder, query.schema, node.args["query"])
    comment = node.args.get("comment")
    return CreateMaterializedView(
        name_of(node.this),
        query,
        int(node.meta["query_start"]),
        None if comment is None else comment.name,
        watermark.elapsed(binder, node.args.get("freshness"), "FRESHNESS", zero=True),
        bool(node.args.get("exists")),
        bool(node.args.get("replace")),
        binder.pos(node.this),
    )


def _named(binder: Binder, node: exp.Expr, kind: str, names: tuple[str, ...]) -> CreateView:
    name, query = name_of(node.this), node.args["query"]
    bound = binder.define(name, query)
    plan = bound.shown()
    if names and len(names) != bound.width:
        raise binder.error(
            f"{len(names)} names cannot name {bound.width} columns", node.expressions[0]
        )
    fields = plan.schema.fields
    if names:
        fields = tuple(replace(f, name=n) for f, n in zip(fields, names, strict=True))
    check_names(binder, Schema(fields), query)
    progress, updates = None, None
    if isinstance(node, nodes.CreateStream):
        progress, updates = _progress(binder, node, bound), _updates(binder, node, bound)
    return CreateView(
        name,
        NamedQuery(kind, query, to_sql(query), names, progress, updates),
        Schema(fields),
        bool(node.args.get("exists")),
        bool(node.args.get("replace")),
        binder.pos(node.this),
    )


def check_names(binder: Binder, schema: Schema, at: exp.Expr) -> None:
    """Raises BindError for columns of the same name in a table, a view or a stream."""
    seen: set[str] = set()
    for f in schema:
        if f.name.lower() in seen:
            raise binder.error(f"two columns are called {f.name}", at, hint="name them with AS")
        seen.add(f.name.lower())


def create_table(binder: Binder, node: nodes.CreateTable, query: Query | None) -> CreateTable:
    schema = columns(binder, node.expressions)
    for column in node.expressions:
        kinds = column.args["kind"].find_all(exp.DataType) if column.args.get("kind") else ()
        limited = (k for k in kinds if k.expressions and k.this in exp.DataType.TEXT_TYPES)
        kind = next(limited, None)
        if kind is not None:
            raise binder.unsupported(
                f"{kind.sql()} as a column of a table",
                column,
                "write STRING; Spark's own CREATE TABLE makes a table whose limit INSERT keeps",
            )
    if query is not None:
        if schema is None:
            schema = of_table(query.schema)
            check_names(binder, schema, node.args["query"])
        else:
            query = replace(query, plan=stored(binder, query.plan, schema, node.args["query"]))
    key = _table_key(binder, node, schema)
    format_, place = _table_format(node)
    return CreateTable(
        name_of(node.this),
        schema,
        format_,
        query,
        bool(node.args.get("exists")),
        bool(node.args.get("replace")),
        binder.pos(node.this),
        _files(binder, node, format_, schema if node.expressions else None),
        binder.pos(place),
        key,
        _layout(binder, node, schema, key),
    )


def _table_key(binder: Binder, node: nodes.CreateTable, schema: Schema | None) -> tuple[str, ...]:
    """The columns of the PRIMARY KEY; ``schema`` None: the files of the table know its columns."""
    named = _primary_key(binder, node.expressions)
    if not named:
        return ()
    if schema is None and not (node.args.get("options") or node.args.get("with_options")):
        hint = "(column TYPE, …, PRIMARY KEY (column)), or AS and a query"
        raise binder.error("a table needs columns", named[0], hint=hint)
    key: list[str] = []
    for column in named:
        field = find_column(binder, column, schema)
        name = column.name if field is None else field.name
        if name.lower() in (other.lower() for other in key):
            raise binder.error(f"column {name} is twice in the PRIMARY KEY", column)
        key.append(name)
    return tuple(key)


def _table_format(node: nodes.CreateTable) -> tuple[str | None, exp.Expr]:
    """The format that USING or WITH names, or None, and the node that names it."""
    named = node.args.get("format")
    if named is not None:
        return named.name.lower(), named
    for option in node.args.get("with_options") or ():
        if option.key_name.lower() == "format":
            return option.value.lower(), option
    return None, node.this


def _files(
    binder: Binder, node: nodes.CreateTable, format_: str | None, schema: Schema | None
) -> TableFiles | None:
    """The files of a table as OPTIONS, WITH and LOCATION declare them; None: no files declared."""
    given = node.args.get("options") or node.args.get("with_options") or ()
    if not given:
        return None
    found = {k.lower(): v for k, v in options(binder, given).items()}
    found.pop("format", None) if node.args.get("with_options") else None
    if "path" not in found:
        if not found.keys() - {UPSERT}:
            return None
        hint = "add path 'folder': the table is then one of files, in that folder"
        raise binder.error("these options name no path", given[0], hint=hint)
    return TableFiles(format_, found, schema)


def _layout(
    binder: Binder, node: nodes.CreateTable, schema: Schema | None, key: Sequence[str]
) -> TableLayout:
    """PARTITIONED BY, and the option upsert of a table without a path."""
    partitions = _partitions(binder, node, schema)
    given = node.args.get("options") or node.args.get("with_options") or ()
    files = any(option.key_name.lower() == "path" for option in given)
    upsert = next((option for option in given if option.key_name.lower() == UPSERT), None)
    log = False
    if upsert is not None:
        value = constant_value(binder, upsert.expression)
        if value not in (REWRITE, LOG):
            hint = f"'{REWRITE}' (as without it) or '{LOG}'"
            raise binder.error(f"the option upsert is {value!r}", upsert, hint=hint)
        if not key:
            hint = "add PRIMARY KEY (column, …) to the columns, or leave the option out"
            raise binder.error("the option upsert needs a table with a key", upsert, hint=hint)
        log = value == LOG
    if not partitions:
        return TableLayout(log=log and not files, pos=binder.pos(upsert or node))
    first = node.args["partitioned_by"][0]
    if files or log:
        raise binder.unsupported(
            "PARTITIONED BY of a table of files" if files else "PARTITIONED BY with upsert 'log'",
            first,
            "leave it out; a table of Spark takes PARTITIONED BY: CREATE TABLE db.t (…)",
        )
    return TableLayout(partitions, pos=binder.pos(first))


def _partitions(binder: Binder, node: nodes.CreateTable, schema: Schema | None) -> tuple[str, ...]:
    """The columns of PARTITIONED BY."""
    named: Sequence[exp.Expr] = node.args.get("partitioned_by") or ()
    found: list[str] = []
    for column in named:
        field = find_column(binder, column, schema)
        name = column.name if field is None else field.name
        if name.lower() in (other.lower() for other in found):
            raise binder.error(f"column {name} is twice in PARTITIONED BY", column)
        found.append(name)
    if found and schema is not None and len(found) == len(schema):
        raise binder.error("a table needs a column that is not of PARTITIONED BY", named[0])
    return tuple(found)


def create_constant(binder: Binder, node: nodes.CreateConstant) -> CreateConstant:
    value = node.expression
    if isinstance(value, exp.Var):
        raise binder.error(
            f"{value.name} is not a constant", value, hint=f"write '{value.name}' for a string"
        )
    values = ExprBinder(binder, Scope(binder, (), (), Env()), None, "CREATE CONSTANT")
    made = _numbers(values, value) if isinstance(value, exp.Array) else values.bind(value)
    bound = registry.fold(made)
    if not isinstance(bound, Literal):
        raise binder.error("a constant needs a constant value", value)
    return CreateConstant(node.name, bound, bool(node.args.get("replace")), binder.pos(node))


def _numbers(values: ExprBinder, node: exp.Array) -> Expr:
    """A list of numbers: whole ones, or doubles. The common type of decimals may lack their
    digits."""
    elements = [values.bind(each) for each in node.expressions]
    for element, each in zip(elements, node.expressions, strict=True):
        if isinstance(each, exp.Null):
            raise values.binder.error("the list of a constant has numbers, not NULL", node)
        if not element.type.is_numeric:
            raise values.binder.error(
                f"the list of a constant has numbers, and this is a {element.type}", each
            )
    if not all(element.type.is_integer for element in elements):
        elements = [registry.cast(element, DOUBLE, element.pos) for element in elements]
    return registry.resolve("array", elements, values.binder.pos(node))
