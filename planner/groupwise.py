"""Group-wise punctuation (out-of-order paper A.1.1): PUNCTUATE BY gives each value of a column
progress of its own. A window aggregate by window id (WID) over the stream or a union of several
(A.2.1), grouped by that column, lets a value's groups go as soon as that value's progress has
passed their window; what else asks for progress needs one for all rows, and is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from cql.planner.physical_progress import progress_origin, progressing, value_origin
from cql.planner.physical_window_join import WindowJoinExec
from cql.planner.progress import apart
from cql.window import WindowKind

_CONSUMERS = {
    MergeUnionExec: "a union in order",
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
    """``root``, with the aggregates and unions that follow group-wise punctuation.

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
    if isinstance(node, WidAggregateExec) and any(column_of(s) for s in _reached(node.input)):
        above = None  # without a window, groups wait for the end of the input
        node = node if node.window is None else _by_value(node, settings)
    elif not isinstance(node, FilterExec | ProjectExec | UnionExec):
        above = node
    return with_input(node, tuple(_settled(child, above, settings) for child in inputs(node)))


def _reached(node: Physical) -> list[SourceExec]:
    """The sources of which rows come as they are read."""
    match node:
        case SourceExec():
            return [node]
        case FilterExec() | ProjectExec():
            return _reached(node.input)
        case UnionExec():
            return [s for child in node.inputs for s in _reached(child)]
        case _:
            return []


def _origins(node: Physical, column: int | None, *, time: bool = False) -> list[int | None]:
    """For each of the sources reached, its column that a column is, unchanged; or (a ``time``) that
    it rises with."""
    match node:
        case SourceExec():
            return [column]
        case FilterExec():
            return _origins(node.input, column, time=time)
        case ProjectExec():
            below = None
            if column is not None and time:
                below = progress_origin(node.exprs[column], progressing(node.input))
            elif column is not None:
                below = value_origin(node.exprs[column])
            return _origins(node.input, below, time=time)
        case UnionExec():
            return [c for child in node.inputs for c in _origins(child, column, time=time)]
        case _:
            return []


def _is_column(node: Physical, column: int) -> bool:
    """Whether a column is one of the source, or of the union below, unchanged."""
    while isinstance(node, FilterExec | ProjectExec):
        if isinstance(node, ProjectExec):
            expr = node.exprs[column]
            if not isinstance(expr, Column):
                return False
            column = expr.index
        node = node.input
    return True


def _by_value(node: WidAggregateExec, settings: Mapping[str, Any]) -> WidAggregateExec:
    window, reached = node.window, _reached(node.input)
    assert window is not None
    assert window.wa is not None
    columns = [None if (by := column_of(s)) is None else s.schema.find(by) for s in reached]
    source = next(s for s in reached if column_of(s) is not None)
    name = column_of(source)
    if window.kind is not WindowKind.SLIDING:
        raise _refused(source, _WINDOWS.get(window.kind, "such windows"))
    if window.zone is not None:
        raise _refused(source, "windows of days of a time zone")
    own: dict[int, set[int]] = {}  # by key: the sources that it tells the values of apart
    for k, key in enumerate(node.keys):
        found = enumerate(_origins(node.input, value_origin(key)))
        own[k] = {n for n, c in found if c is not None and c == columns[n]}
    first = max(own, key=lambda k: len(own[k]), default=None)
    if first is None or not own[first]:
        raise _refused(source, f"an aggregate that is not grouped by {name}", f"GROUP BY {name}")
    if not _is_column(node.input, window.wa):
        what = f"windows over {node.input.schema[window.wa].name}, which is computed,"
        raise _refused(source, what, "windows over a column of the stream")
    wanted = str(settings["window_operator"])
    if wanted not in ("auto", "wid"):
        raise _refused(source, f"SET window_operator = '{wanted}'", "SET window_operator = 'auto'")
    if settings["adaptive_windows"]:
        hint = "SET adaptive_windows = off"
        raise _refused(source, "SET adaptive_windows = on", hint)
    behind = [
        _behind(s, time)
        for s, time in zip(reached, _origins(node.input, window.wa, time=True), strict=True)
    ]
    if window.wa not in progressing(node.input):
        return node  # all groups wait for the end
    why = (
        f"{_whose(node, reached, own[first], behind)}, and its groups leave as that passes their"
        " window (PUNCTUATE BY: out-of-order paper A.1.1); groups by window id need no order"
    )
    if wanted != "auto":
        why += f" (SET window_operator = '{wanted}')"
    value = value_origin(node.keys[first])
    assert value is not None
    below, operator = _promising(node.input, window.wa, value), WindowOperator.WID
    return replace(node, input=below, operator=operator, pane=None, flush=None, by=first, why=why)


def _behind(source: SourceExec, time: int | None) -> str:
    """How far a value of a source may lie behind the rows furthest ahead, as a phrase.

    Raises PlanError where nobody says so, and its progress as a whole would never come."""
    name, stream = column_of(source), source.relation.stream
    if name is None or stream is None or time is None:
        return ""
    progress = next(p for p in stream.progress if source.schema.find(p.column) == time)
    most = apart(source.relation, progress)
    if most is None and not source.relation.bounded:
        raise PlanError(
            f"PUNCTUATE BY {name} over input without an end does not say how far its values may be"
            f" apart, and {progress.column} has no unit of which a day could be the default",
            position=source.pos,
            hint=f"PUNCTUATE BY {name} WITHIN 1000, or ORDERED BY {progress.column} IN SECONDS",
        )
    return "" if most is None else f", at most {duration(most, source.schema[time].type)} behind"


def _whose(
    node: WidAggregateExec, reached: Sequence[SourceExec], own: set[int], behind: Sequence[str]
) -> str:
    """What the progress of a value is made of."""
    first = reached[min(own)]
    if len(reached) == 1:
        return f"each {column_of(first)} has progress of its own{behind[0]}"
    single = [
        f"{reached[n].name}{behind[n].replace(', ', ' (', 1)}{')' * bool(behind[n])}"
        for n in sorted(own)
    ]
    whole = [s.name for n, s in enumerate(reached) if n not in own]
    of_all = f" and {', '.join(dict.fromkeys(whole))} of all rows" if whole else ""
    least = f"the least of what {', '.join(dict.fromkeys(single))} promise of it{of_all}"
    return f"each {column_of(first)} has progress of its own, {least} (A.2.1)"


def _promising(node: Physical, attribute: int, by: int) -> Physical:
    """``node`` with the unions that pass on what is promised of single values of column ``by``."""
    match node:
        case UnionExec() if attribute in progressing(node):
            below = tuple(_promising(child, attribute, by) for child in node.inputs)
            name = node.schema[by].name
            why = f"{node.why}; of each {name} besides, while that is ahead of the others (A.2.1)"
            return replace(node, inputs=below, promised=(attribute, by), why=why)
        case FilterExec():
            return replace(node, input=_promising(node.input, attribute, by))
        case ProjectExec():
            time = progress_origin(node.exprs[attribute], progressing(node.input))
            value = value_origin(node.exprs[by])
            if time is None or value is None:
                return node
            return replace(node, input=_promising(node.input, time, value))
        case _:
            return node


def _refused(source: SourceExec, what: str, hint: str | None = None) -> NotSupportedError:
    name = column_of(source)
    return NotSupportedError(
        f"PUNCTUATE BY {name} of stream {source.name} with {what} is not supported by this version:"
        " only windows [RANGE r SLIDE s] over the stream, or a union, let its values go one by one",
        position=source.pos,
        hint=hint
        or f"FROM {source.name} [RANGE r SLIDE s] … GROUP BY {name}; or declare the"
        " stream without it",
    )
