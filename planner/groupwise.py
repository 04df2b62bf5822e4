"""Group-wise punctuation (out-of-order paper A.1.1): PUNCTUATE BY gives each value of a column
progress of its own. A window aggregate by window id (WID) right over the stream, grouped by that
column, lets a value's groups go as soon as that value's progress has passed their window; what else
asks for progress needs one for all rows, and is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cql.errors import NotSupportedError, PlanError
from cql.planner.choose import duration
from cql.planner.expr import Column
from cql.planner.physical import (
    FilterExec,
    KeyWindowsExec,
    LateRowsExec,
    LimitExec,
    MergeUnionExec,
    NumberExec,
    Physical,
    ProjectExec,
    PunctuatedSortExec,
    SlackExec,
    SortExec,
    SourceExec,
    TopExec,
    UnionExec,
    WidAggregateExec,
    WindowOperator,
    inputs,
    sources,
    with_input,
)
from cql.planner.physical_joins import (
    AsofJoinExec,
    LookupExec,
    OopJoinExec,
    RelationJoinExec,
    SubqueryJoinExec,
    TableJoinExec,
)
from cql.planner.physical_window_join import WindowJoinExec
from cql.planner.progress import apart
from cql.window import WindowKind

_CONSUMERS = {
    UnionExec: "a union",
    MergeUnionExec: "a union",
    LateRowsExec: "LATE OUTPUT",
    LimitExec: "LIMIT",
    SortExec: "ORDER BY",
    PunctuatedSortExec: "ORDER BY",
    TopExec: "ORDER BY … LIMIT",
    SlackExec: "SET slack or WATERMARK behind a query",
    NumberExec: "a window of ROWS",
    KeyWindowsExec: "a window of ROWS",
    SubqueryJoinExec: "a subquery",
    LookupExec: "a subquery",
    OopJoinExec: "a join",
    WindowJoinExec: "a join",
    RelationJoinExec: "a join",
    TableJoinExec: "a join",
    AsofJoinExec: "a join",
}
_WINDOWS = {
    WindowKind.SESSION: "session windows",
    WindowKind.CUMULATE: "windows with CUMULATE",
}


def settle(root: Physical, settings: Mapping[str, Any]) -> Physical:
    """``root``, with the aggregates that follow group-wise punctuation.

    Raises NotSupportedError where something else would have to."""
    if all(column_of(s) is None for s in sources(root)):
        return root
    return _settled(root, None, settings)


def column_of(source: SourceExec) -> str | None:
    """The column of PUNCTUATE BY."""
    return source.relation.stream.by if source.relation.stream is not None else None


def _settled(node: Physical, above: Physical | None, settings: Mapping[str, Any]) -> Physical:
    """``above`` is the operator that takes its rows, if it asks for progress."""
    if isinstance(node, SourceExec):
        if above is not None and column_of(node) is not None:
            raise _refused(node, _CONSUMERS.get(type(above), "a relation"))
        return node
    if isinstance(node, WidAggregateExec):
        found = _right_below(node)
        if found is not None and column_of(found) is not None:
            # without a window, groups wait for the end of the input
            return node if node.window is None else _by_value(node, found, settings)
    if not isinstance(node, FilterExec | ProjectExec):
        above = node
    return with_input(node, tuple(_settled(child, above, settings) for child in inputs(node)))


def _right_below(node: WidAggregateExec) -> SourceExec | None:
    below = node.input
    while isinstance(below, FilterExec | ProjectExec):
        below = below.input
    return below if isinstance(below, SourceExec) else None


def _origin(node: Physical, column: int) -> int | None:
    """The column of the source that a column is, unchanged."""
    while not isinstance(node, SourceExec):
        if isinstance(node, ProjectExec):
            expr = node.exprs[column]
            if not isinstance(expr, Column):
                return None
            column = expr.index
        else:
            assert isinstance(node, FilterExec)
        node = node.input
    return column


def _by_value(
    node: WidAggregateExec, source: SourceExec, settings: Mapping[str, Any]
) -> WidAggregateExec:
    window, name = node.window, column_of(source)
    assert window is not None
    assert window.wa is not None
    assert name is not None
    if window.kind is not WindowKind.SLIDING:
        raise _refused(source, _WINDOWS.get(window.kind, "such windows"))
    if window.zone is not None:
        raise _refused(source, "windows of days of a time zone")
    column = source.schema.find(name)
    keys = [_origin(node.input, k.index) if isinstance(k, Column) else None for k in node.keys]
    if column is None or column not in keys:
        raise _refused(source, f"an aggregate that is not grouped by {name}", f"GROUP BY {name}")
    wa = _origin(node.input, window.wa)
    if wa is None:
        what = f"windows over {node.input.schema[window.wa].name}, which is computed,"
        raise _refused(source, what, "windows over a column of the stream")
    progress = (
        next(p for p in source.relation.stream.progress if source.schema.find(p.column) == wa)
        if source.relation.stream
        else None
    )
    assert progress is not None
    wanted = str(settings["window_operator"])
    if wanted not in ("auto", "wid"):
        raise _refused(source, f"SET window_operator = '{wanted}'", "SET window_operator = 'auto'")
    if settings["adaptive_windows"]:
        hint = "SET adaptive_windows = off"
        raise _refused(source, "SET adaptive_windows = on", hint)
    most = apart(source.relation, progress)
    if most is None and not source.relation.bounded:
        raise PlanError(
            f"PUNCTUATE BY {name} over input without an end does not say how far its values may be"
            f" apart, and {progress.column} has no unit of which a day could be the default",
            position=source.pos,
            hint=f"PUNCTUATE BY {name} WITHIN 1000, or ORDERED BY {progress.column} IN SECONDS",
        )
    kind = source.schema[wa].type
    behind = "" if most is None else f", at most {duration(most, kind)} behind"
    why = (
        f"each {name} has progress of its own{behind}, and its groups leave as that passes their"
        " window (PUNCTUATE BY: out-of-order paper A.1.1); groups by window id need no order"
    )
    if wanted != "auto":
        why += f" (SET window_operator = '{wanted}')"
    by, operator = keys.index(column), WindowOperator.WID
    return replace(node, operator=operator, pane=None, flush=None, by=by, why=why)


def _refused(source: SourceExec, what: str, hint: str | None = None) -> NotSupportedError:
    name = column_of(source)
    return NotSupportedError(
        f"PUNCTUATE BY {name} of stream {source.name} with {what} is not supported by this version:"
        " only windows [RANGE r SLIDE s] right over the stream let its values go one by one",
        position=source.pos,
        hint=hint
        or f"FROM {source.name} [RANGE r SLIDE s] … GROUP BY {name}; or declare the"
        " stream without it",
    )
