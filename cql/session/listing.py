"""SHOW and DESCRIBE: the objects of a session as small tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from cql.base.settings import SETTINGS, Settings
from cql.base.types import INTERVAL, TIMESTAMP
from cql.errors import BindError, CatalogError, PlanError, did_you_mean
from cql.planner.nodes.catalog import SAMPLE_TIME, key_of
from cql.planner.nodes.expr import Literal
from cql.planner.nodes.show import refresh_clause
from cql.planner.nodes.show import show as show_value
from cql.query.query import Query
from cql.query.result import Result
from cql.show import render

if TYPE_CHECKING:
    from cql.planner.nodes import statements as st
    from cql.planner.nodes.catalog import Progress, Relation, StreamSpec
    from cql.session.session import Session

Row = tuple[Any, ...]


def show(session: Session, bound: st.Show) -> Result:
    """SHOW … [LIKE pattern]; the pattern selects rows by their first column."""
    what = bound.what.lower()
    if what in ("late", "bad rows"):
        return _ledger(session, what, bound)
    if what == "staleness":
        return _staleness(session, bound)
    columns: tuple[str, ...]
    rows: Iterable[Row]
    match what:
        case "streams":
            columns, rows = ("stream", "columns", "watermark", "ends"), _streams(session)
        case "tables":
            columns, rows = ("table", "columns", "rows"), _tables(session, bound)
        case "databases" | "schemas":
            columns = ("database",)
            rows = [(name,) for name in session._catalog.databases(bound.place, bound.pos)]
        case "materialized views":
            columns = ("view", "query", "freshness", "refreshed")
            rows = session._listed_views(bound.place, bound.pos)
        case "views":
            columns, rows = ("view", "query"), _views(session)
        case "queries":
            columns = ("query", "status", "rows", "late", "bad", "event_time", "statement")
            rows = _queries(session)
        case "functions":
            columns, rows = ("function", "category", "usage", "help"), _functions(session)
        case "constants":
            columns, rows = ("constant", "type", "value"), _constants(session)
        case "settings":
            return _filtered(settings(session.settings, None), bound.like)
        case _:
            raise PlanError(f"SHOW {bound.what} is not known", position=bound.pos)
    return _filtered(Result(columns, tuple(rows)), bound.like)


def settings(current: Settings, name: str | None) -> Result:
    """One setting, or all: value, default, allowed values, category, effect."""
    chosen = [s for s in SETTINGS.values() if name is None or s.name == name]
    rows = (
        (s.name, s.format(current[s.name]), s.format(s.default), s.takes(), s.category, s.help)
        for s in chosen
    )
    return Result(("setting", "value", "default", "takes", "category", "help"), tuple(rows))


def describe(session: Session, bound: st.Describe) -> Result:
    """DESCRIBE name: one row per column. DESCRIBE MATERIALIZED VIEW name: one row per property."""
    if bound.materialized:
        return session._views(bound.name, bound.pos).describe(bound)
    name = ".".join(bound.name)
    schema = session._schema_of(bound.name)
    if schema is None:
        raise BindError(
            f"there is no stream, table or view {name}",
            position=bound.pos,
            hint=did_you_mean(name, session._names(), what="known"),
        )
    named, relation = session._definitions.query_of(bound.name), None
    declared = dict[str, str]()
    if named is not None and named.updates is not None:
        declared = {key.lower(): "update key" for key in named.updates.update_key or ()}
    elif named is None and (relation := session._catalog.find(bound.name)) is not None:
        declared = _declared(relation)
    rows = (
        (
            f.name,
            str(f.type),
            "" if f.nullable else "not null",
            declared.get(f.name.lower(), ""),
            f.comment or "",
        )
        for f in schema
    )
    left_out = relation.unsupported if relation is not None else {}
    others = ((column, "", "", f"cannot be used: {why}", "") for column, why in left_out.items())
    times = () if relation is None else _numbered_times(relation)
    return Result(("column", "type", "null", "role", "comment"), (*rows, *times, *others))


def _declared(relation: Relation) -> dict[str, str]:
    spec = relation.stream
    if spec is None:
        return {column.lower(): "primary key" for column in key_of(relation)}
    roles: dict[str, list[str]] = {}
    for column in spec.computed:
        roles.setdefault(column.name.lower(), []).append(f"computed AS {column.text}")
    for progress in _progress_of(spec):
        roles.setdefault(progress.column.lower(), []).append(_progress(progress))
    if spec.by is not None:
        roles.setdefault(spec.by.lower(), []).append("a watermark per value (PUNCTUATE BY)")
    if spec.changelog is not None and spec.changelog.column is not None:
        roles.setdefault(spec.changelog.column.lower(), []).append("operation codes")
    for name, role in _of_signal(relation, spec):
        roles.setdefault(name.lower(), []).append(role)
    for number, key in enumerate(spec.update_key or ()):
        refreshed = f" ({refresh_clause(spec.refresh)})" if spec.refresh and not number else ""
        roles.setdefault(key.lower(), []).append(f"update key{refreshed}")
    return {column: ", ".join(said) for column, said in roles.items()}


def _of_signal(relation: Relation, spec: StreamSpec) -> Iterator[tuple[str, str]]:
    """The columns of a signal with their roles: the times of the samples, and the channels."""
    if spec.rate_hz is None:
        return
    times = {p.column.lower() for p in _progress_of(spec)}
    for f in relation.schema:
        if f.name.lower() in times:
            yield f.name, f"times of samples ({_rate(spec)}; a gap beyond {_tolerance(spec)})"
        elif f.type.is_sample:
            yield f.name, "channel"


def _numbered_times(relation: Relation) -> tuple[Row, ...]:
    """The times of a signal without a column for them, which ranges of it compare."""
    spec = relation.stream
    if spec is None or spec.rate_hz is None or _progress_of(spec):
        return ()
    role = f"times of samples, for ranges ({_rate(spec)}, numbered from 1970 on; no gaps)"
    return ((SAMPLE_TIME, str(TIMESTAMP), "not null", role, ""),)


def _rate(spec: StreamSpec) -> str:
    return f"RATE {spec.rate_hz:.15g} HZ"


def _tolerance(spec: StreamSpec) -> str:
    if spec.tolerance is None:
        return "half a period"
    return show_value(Literal(spec.tolerance, INTERVAL)).removeprefix("INTERVAL ").lower()


def _progress_of(spec: StreamSpec) -> tuple[Progress, ...]:
    computed = spec.computed_progress
    return spec.progress if computed is None else (*spec.progress, computed)


def _progress(progress: Progress) -> str:
    unit = f" in {progress.unit.value}" if progress.unit else ""
    return f"watermark ({progress.declared}{unit})"


def _filtered(result: Result, like: str | None) -> Result:
    if like is None:
        return result
    from cql.planner.interpret.text import ilike

    # The pattern has no escape character: names have backslashes more often than patterns need one.
    rows = tuple(r for r in result.rows if ilike(str(r[0]), like, ""))
    return Result(result.columns, rows)


def _relations(
    session: Session, names: Iterable[tuple[str, ...]] | None = None
) -> Iterator[tuple[str, Relation | CatalogError]]:
    """The relations that are known without starting Spark (or those of ``names``), sorted by name;
    for a relation that cannot be read, its error."""
    for name in sorted(session._catalog.running() if names is None else names):
        try:
            relation = session._catalog.find(name)
        except CatalogError as error:
            yield ".".join(name), error
            continue
        if relation is not None:  # None: another session has dropped the relation meanwhile
            yield ".".join(name), relation


def _streams(session: Session) -> Iterable[Row]:
    for _, relation in _relations(session):
        if isinstance(relation, CatalogError) or relation.stream is None:
            continue
        spec = relation.stream
        progress = ", ".join(f"{p.column} {p.declared}" for p in _progress_of(spec))
        ends = "yes" if relation.bounded else "no"
        columns = list(map(str, relation.schema))
        for column in spec.computed:
            at = len(columns) if column.at is None else column.at
            columns.insert(at, f"{column.name} AS {column.text}")
        yield ".".join(relation.name), ", ".join(columns), progress, ends
    for name, named in session._named_queries().items():
        if named.kind == "stream":
            p = named.progress
            declared = "" if p is None else f"{p.column} {p.declared}"
            yield ".".join(name), named.text, declared, ""


def _tables(session: Session, bound: st.Show) -> Iterable[Row]:
    place = bound.place
    names = session._catalog.tables_in(place, bound.pos) if place is not None else None
    for name, relation in _relations(session, names):
        if isinstance(relation, CatalogError):
            yield name, f"cannot be read: {relation.message}", None
        elif relation.stream is None:
            columns = [*map(str, relation.schema), *_key(key_of(relation))]
            yield name, ", ".join(columns), _row_count(relation)


def _key(columns: tuple[str, ...]) -> tuple[str, ...]:
    return (f"primary key ({', '.join(columns)})",) if columns else ()


def _row_count(relation: Relation) -> int | None:
    """The number of rows; None if it is unknown, or the table's files cannot be read now."""
    try:
        return relation.statistics.rows
    except CatalogError:
        return None


def _views(session: Session) -> Iterable[Row]:
    for name, named in session._named_queries().items():
        if named.kind == "view":
            yield ".".join(name), named.text


def _queries(session: Session) -> Iterable[Row]:
    for query in session.queries():
        text = " ".join(query.text.split())
        yield query.name, query.status, query.row_count, *_state(query), text


def _state(query: Query) -> Row:
    if not query._has_run:
        return None, None, None
    progress = query.progress()
    time = render.event_time_text(progress.event_time, query._event_time_type)
    return progress.late, progress.bad, time


def _functions(session: Session) -> Iterable[Row]:
    from cql.planner.functions.aggregates import AGGREGATES
    from cql.planner.functions.registry import FUNCTIONS
    from cql.planner.functions.running import RUNNING

    own = [function.signature for function in session._functions.values()]
    known = (*AGGREGATES.values(), *FUNCTIONS.values(), *RUNNING.values(), *own)
    for function in sorted(known, key=lambda f: f.name.lower()):
        yield function.name, function.category, function.usage, function.help


def _constants(session: Session) -> Iterable[Row]:
    from cql.planner.nodes.show import show as text

    for name, value in sorted(session._constants().items()):
        yield name, str(value.type), text(value)


def _ledger(session: Session, what: str, bound: st.Show) -> Result:
    """The late or bad rows of the named query, else of the query that ran last."""
    named = bound.query
    query = session._latest_query() if named is None else session._find_run(named, bound.pos)
    table = query.late() if what == "late" else query.bad_rows()
    columns = [table.column(i).to_pylist() for i in range(table.num_columns)]
    return Result(tuple(table.column_names), tuple(zip(*columns, strict=True)))


def _staleness(session: Session, bound: st.Show) -> Result:
    """The queues of the update streams of the named query, else of the query that ran last and of
    those that run. Times are in seconds, to a microsecond."""
    named = bound.query
    queries = [session._latest_query() if named is None else session._find_run(named, bound.pos)]
    if named is None:
        queries += [query for query in session.queries() if query not in queries]
    counts = ("rows_in", "superseded", "shed", "held", "resting")
    times = ("queue_staleness", "staleness", "worst_staleness")
    rows = (
        (
            query.name,
            of["operator"],
            of["scheduler"].replace("_", "-"),
            *(of.get(name, 0) for name in counts),
            *(round(of[name], 6) for name in times),
            of.get("goal"),
        )
        for query in queries
        if query._has_run
        for of in query.metrics()
        if "queue_staleness" in of
    )
    return Result(("query", "stream", "queue", *counts, *times, "goal"), tuple(rows))
