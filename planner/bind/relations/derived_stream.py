"""Binds streams that are queries with an update queue behind them (CREATE STREAM … UPDATE KEY …
AS): a query that uses the name reads the results of another query, which runs by itself."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from cql.planner.bind.context import Binder, Bound
from cql.planner.bind.scope import column_of
from cql.planner.nodes.catalog import Progress, StreamSpec
from cql.planner.nodes.logical import WINDOW_COLUMNS, DerivedStream, Logical, Project, Scan
from cql.planner.nodes.statements import Name
from cql.planner.optimize.changelog import changes


def read(
    binder: Binder, name: Name, spec: StreamSpec, bound: Bound, node: exp.Expr, alias: str
) -> Bound:
    """The scan of the stream ``name``, whose query is ``bound`` and whose queue has the clauses
    ``spec``."""
    query, hidden = _timed(bound)
    for key in spec.update_key or ():
        if query.schema.find(key) is None:
            raise binder.error(f"stream {'.'.join(name)} has no column {key} (any more)", node)
    progress = tuple(
        Progress(query.schema[c].name, 0, info.unit, info.declared, by_rows=False)
        for c, info in query.progressing.items()
    )
    relation = DerivedStream(name, query, replace(spec, progress=progress))
    scan = Scan(relation, tuple(range(len(query.schema))), binder.pos(node), alias)
    return Bound(scan, hidden)


def _timed(bound: Bound) -> tuple[Logical, int]:
    """The query with its columns and, if none of them progresses, the pseudo-column
    ``window_time``; the number of pseudo-columns."""
    shown, live = bound.shown(), bound.plan.progressing
    named = {name.lower() for name in shown.schema.names}
    time = WINDOW_COLUMNS[-1]
    hidden = (c for c in live if c >= bound.width and bound.plan.schema[c].name == time)
    at = next(hidden, None)
    if shown.progressing or at is None or time in named:
        return shown, 0
    columns = (*range(bound.width), at)
    names = tuple(bound.plan.schema[c].name for c in columns)
    return Project(bound.plan, tuple(column_of(bound.plan, c) for c in columns), names), 1


def refuse_relation(
    binder: Binder, plan: Logical, at: exp.Expr, *, emits: bool, clause: str = "UPDATE KEY"
) -> None:
    """Raises NotSupportedError if the rows of a query also leave it: an update queue takes rows
    that come. ``emits``: the query has EMIT CHANGES. ``clause`` declares the queue."""
    if not changes(plan) and not emits:
        return
    what = "a relation, whose rows also leave," if changes(plan) else "EMIT CHANGES"
    raise binder.unsupported(
        f"{clause} over {what}",
        at,
        "ISTREAM(SELECT …) is the stream of the rows that enter; an aggregate over a window with"
        " SLIDE gives each row once",
    )
