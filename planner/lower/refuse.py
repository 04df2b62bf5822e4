"""Refuses what this version cannot run, naming the clause and its position."""

from __future__ import annotations

from cql.base.types import Kind
from cql.base.window import Window, WindowKind
from cql.errors import NotSupportedError, PlanError, Position
from cql.planner.lower.joins.relation_join import refuse_join
from cql.planner.nodes.catalog import StreamSpec
from cql.planner.nodes.logical import (
    Aggregate,
    Bucket,
    Concat,
    Filter,
    Join,
    Limit,
    Logical,
    Process,
    Project,
    Rewindow,
    RowNumber,
    Running,
    Scan,
    Sync,
    Unnest,
    Unsupported,
    Windowed,
)
from cql.planner.optimize.changelog import is_append_only, is_relation

_WINDOW_CLAUSES = {
    WindowKind.RANGE: "RANGE without SLIDE",
    WindowKind.NOW: "[NOW]",
    WindowKind.UNBOUNDED: "[RANGE UNBOUNDED]",
    WindowKind.ROWS: "ROWS",
}


NUMBERED_ROWS = (
    "ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY …) numbers the rows of a"
    " windowed aggregate or of a window function; over a window without SLIDE it numbers what that"
    " holds"
)
_CLAUSES = {
    "Aggregate": "an aggregate, GROUP BY or DISTINCT",
    "Join": "JOIN",
    "Newest": "a window over them",
    "Bucket": "a window over them",
    "Windowed": "a window over them, or EMIT",
    "Number": "PARTITION BY",
    "RelationToStream": "ISTREAM, DSTREAM or RSTREAM",
    "RowNumber": "ROW_NUMBER",
    "SetOperation": "EXCEPT or INTERSECT",
    "Sort": "ORDER BY",
    "SubqueryJoin": "a subquery in an expression",
    "Union": "UNION",
    "Unnest": "UNNEST",
}
_LONELY = {
    WindowKind.SLIDING: "a window with SLIDE",
    WindowKind.CUMULATE: "a window with CUMULATE",
    WindowKind.SESSION: "a session window",
}


def refuse(node: Logical, *, under_window: bool = False) -> None:
    """Raises for the outermost clause that this version cannot run."""
    match node:
        case Scan():
            _refuse_stream(node, under_window)
        case Unsupported():
            raise refusal(node.clause, node.pos, node.hint)
        case Join():
            refuse_join(node)
        case Windowed():
            _refuse_window(node)
        case RowNumber() if node.window is not None and not is_append_only(node.input):
            raise refusal("OVER a relation", node.pos, NUMBERED_ROWS)
        case Unnest() if is_relation(node.input):
            hint = "the arrays of windows with SLIDE and of sessions are unnested"
            raise refusal("UNNEST over a relation", node.pos, hint)
        case Aggregate() | Bucket():
            if node.window is not None and node.window.kind is WindowKind.SESSION:
                _refuse_session(node)
            elif node.window is not None and not node.window.has_number:
                raise _refuse_kind(node.window, node.pos)
            if node.window is not None and not is_append_only(node.input):
                raise NotSupportedError(
                    "a window with SLIDE over a relation is not supported: its rows also leave, and"
                    " a window only takes rows that come",
                    position=node.pos,
                    hint="ISTREAM(…) of the relation is the stream of the rows that enter",
                )
    _refuse_segments(node)
    under_window = under_window or getattr(node, "window", None) is not None
    for child in node.inputs:
        refuse(child, under_window=under_window)


def _refuse_segments(node: Logical) -> None:
    """Refuses an operator that would keep or compare segments of signals."""
    if isinstance(node, Filter | Project | Limit | Process | Rewindow | Running | Sync | Concat):
        return
    for child in node.inputs:
        for f in child.schema:
            if f.type.kind is Kind.SIGNAL:
                raise NotSupportedError(
                    f"an operator over rows with segments of a signal ({f.name}) is not supported"
                    f" by this version: {_CLAUSES.get(type(node).__name__, type(node).__name__)}",
                    position=node.pos,
                    hint="select functions of the segments, such as stddev(x) AS s, in a subquery",
                )


def _refuse_session(node: Aggregate | Bucket) -> None:
    if isinstance(node, Bucket):
        raise _lonely("a session window", node.pos)


def _lonely(what: str, pos: Position | None) -> NotSupportedError:
    return NotSupportedError(
        f"{what} needs an aggregate over it",
        position=pos,
        hint="add an aggregate and GROUP BY, or leave the window out to read the rows",
    )


def _refuse_stream(scan: Scan, under_window: bool) -> None:
    """Refuses a stream whose declaration needs what this version does not support."""
    spec = scan.relation.stream
    wanted = [] if spec is None else _not_run(spec, under_window)
    if wanted:
        clauses = " and ".join([", ".join(wanted[:-1]), wanted[-1]] if wanted[1:] else wanted)
        name = ".".join(scan.relation.name)
        raise NotSupportedError(
            f"{clauses} of stream {name} {'are' if wanted[1:] else 'is'} not supported by this"
            " version",
            position=scan.pos,
            hint=f"CREATE OR REPLACE STREAM {name} … without {'them' if wanted[1:] else 'it'}",
        )


def _not_run(spec: StreamSpec, under_window: bool) -> list[str]:
    """The clauses that this version does not run and that would change a result. The mode of
    windows counts only under a window."""
    found = []
    if spec.lazy_windows is not None and under_window and not spec.is_queued:
        found.append(f"WINDOWS {'LAZY' if spec.lazy_windows else 'EAGER'}")
    return found + [text for _, text in spec.deferred]


def _refuse_window(node: Windowed) -> None:
    inner = _inner_refusal(node.input)
    if inner is not None:
        raise inner
    window = node.window
    if window.kind in _LONELY:
        raise _lonely(_LONELY[window.kind], node.pos)
    if window.slide is not None or (window.kind is WindowKind.ROWS and window.range is not None):
        raise _refuse_kind(window, node.pos)
    if window.wa is None:
        raise PlanError(
            "a relation needs a clock, and no column of the window's input has a watermark",
            position=node.pos,
            hint="declare ORDERED BY or WATERMARK on every input of the query",
        )


def _inner_refusal(node: Logical) -> NotSupportedError | None:
    try:
        refuse(node)
    except NotSupportedError as error:
        return error
    return None


def _refuse_kind(window: Window, pos: Position | None) -> NotSupportedError:
    clause = _WINDOW_CLAUSES[window.kind]
    if window.partition_by:
        clause = f"PARTITION BY … {clause}"
    hint = "windows of RANGE with SLIDE run: [RANGE 10 MINUTES SLIDE 1 MINUTE]"
    if window.kind is WindowKind.ROWS and window.range is not None:
        hint = "a window of ROWS, or one of RANGE"
        return refusal(f"{clause} together with RANGE", pos, hint)
    return refusal(f"{clause} window", pos, hint)


def refusal(clause: str, pos: Position | None, hint: str | None) -> NotSupportedError:
    """The error for a clause that this version cannot run."""
    return NotSupportedError(f"{clause} is not supported by this version", position=pos, hint=hint)
