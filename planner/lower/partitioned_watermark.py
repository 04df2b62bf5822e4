"""Partitioned watermarks, the paper's group-wise punctuation (out-of-order paper A.1.1): PUNCTUATE
BY keeps a watermark for each value of a column.

A window aggregate by window id (WID) over the stream or over a union of several (A.2.1), grouped by
that column, emits the groups of a value as soon as the value's watermark has passed their window.
Other operators use the least watermark of all values, which is correct but later. A row is late by
the watermark of its own value in either case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from cql.base.window import WindowKind, WindowOperator
from cql.errors import PlanError
from cql.planner.lower.choose import duration
from cql.planner.nodes.catalog import Progress
from cql.planner.nodes.expr import Column
from cql.planner.nodes.logical import NUMBERED
from cql.planner.nodes.physical import (
    BucketExec,
    FilterExec,
    LateRowsExec,
    LimitExec,
    LookupExec,
    Physical,
    ProjectExec,
    SourceExec,
    TableJoinExec,
    UnionExec,
    UnnestExec,
    WidAggregateExec,
    sources,
)
from cql.planner.nodes.physical.late import BY_ARRIVAL
from cql.planner.nodes.progress import max_skew
from cql.planner.nodes.watermarks import progress_origin, value_origin

_WINDOWS = {
    WindowKind.SESSION: "session windows",
    WindowKind.CUMULATE: "windows with CUMULATE",
}
#: Operators between a window and the stream that keep the window from using the values' watermarks.
_BETWEEN = {
    LateRowsExec: "a window with LATE OUTPUT",
    LimitExec: "a window behind LIMIT",
    LookupExec: "a window behind a subquery",
    TableJoinExec: "a window behind a join",
    UnnestExec: "a window behind UNNEST",
    BucketExec: "a window over windows",
}


def apply(root: Physical, settings: Mapping[str, Any]) -> Physical:
    """``root`` with the aggregates and unions that use partitioned watermarks, and with a note on
    each source whose values share one watermark."""
    if all(column_of(s) is None for s in sources(root)):
        return root
    return _applied(root, None, settings)


def check(root: Physical) -> None:
    """Raises PlanError if the common watermark of all values of a PUNCTUATE BY stream is awaited
    but would never advance, because nothing limits how far one value may lie behind the others."""
    for source in sources(root):
        for column, progress in source.progress if column_of(source) is not None else ():
            if source.awaited_on(column) != () and _never_passes(source, progress):
                name = column_of(source)
                raise PlanError(
                    f"PUNCTUATE BY {name} over input without an end does not say how far its values"
                    f" may be apart, and {progress.column} has no unit of which a day could be the"
                    " default",
                    position=source.pos,
                    hint=f"PUNCTUATE BY {name} WITHIN 1000, or ORDERED BY {progress.column} IN"
                    " SECONDS",
                )


def column_of(source: SourceExec) -> str | None:
    """The column whose values have a watermark each; None: there is none."""
    return source.by


def _never_passes(source: SourceExec, progress: Progress) -> bool:
    endless = not source.relation.bounded and progress.by_rows
    return endless and max_skew(source.relation, progress) is None


def _applied(node: Physical, consumer: str | None, settings: Mapping[str, Any]) -> Physical:
    """``consumer`` names the operator above that uses one watermark for all values, if there is
    one."""
    if isinstance(node, SourceExec):
        if consumer is None or column_of(node) is None or not node.progress:
            return node
        return _together(node, consumer)
    below = node.common_watermark(consumer)
    if isinstance(node, WidAggregateExec):
        node, consumer = _aggregate(node, settings)
        below = (consumer,)
    pairs = zip(node.inputs, below, strict=True)
    return node.with_inputs(tuple([_applied(child, above, settings) for child, above in pairs]))


def _together(source: SourceExec, consumer: str) -> SourceExec:
    """``source`` with the note that ``consumer`` uses one watermark for all its values."""
    if consumer == BY_ARRIVAL:
        return replace(source, why=f"{source.why}, asked by {consumer}")
    why = f"{source.why}, but all together for {consumer}"
    column, progress = source.progress[0]
    most = max_skew(source.relation, progress)
    if progress.by_rows and most is None:
        why += ": no watermark before the end, without WITHIN"
    elif progress.by_rows:
        far = duration((most or 0) + progress.slack, source.schema[column].type)
        why += f": the watermark is {far} behind the row furthest ahead"
    return replace(source, why=why)


def _aggregate(
    node: WidAggregateExec, settings: Mapping[str, Any]
) -> tuple[WidAggregateExec, str | None]:
    """``node``, and the reason why it uses one watermark for all values; None if it does not."""
    window = node.window
    if window is None or window.wa is None:
        return node, None  # groups wait for the end of the input
    if node.input.schema[window.wa].name in NUMBERED:
        return node, None
    if any(column_of(s) is not None for s in _reached(node.input)):
        return _by_value(node, settings)
    return node, _behind_what(node.input)


def _behind_what(node: Physical) -> str:
    while isinstance(node, FilterExec | ProjectExec):
        node = node.input
    if isinstance(node, UnionExec):
        found = (_behind_what(i) for i in node.inputs)
        return next((f for f in found if f != "a window"), "a window")
    return _BETWEEN.get(type(node), "a window")


def _reached(node: Physical) -> list[SourceExec]:
    """The sources whose rows come through filters, projections and unions only."""
    if isinstance(node, SourceExec):
        return [node]
    passes = isinstance(node, FilterExec | ProjectExec | UnionExec)
    return [s for child in node.inputs for s in _reached(child)] if passes else []


def _origins(node: Physical, column: int | None, *, time: bool = False) -> list[int | None]:
    """For each source reached, its column whose values ``column`` holds unchanged or, with
    ``time``, its column with which ``column`` rises."""
    if isinstance(node, SourceExec):
        return [column]
    if not isinstance(node, FilterExec | ProjectExec | UnionExec):
        return []
    if isinstance(node, ProjectExec) and column is not None:
        expr = node.exprs[column]
        column = progress_origin(expr, node.input.progressing) if time else value_origin(expr)
    return [c for child in node.inputs for c in _origins(child, column, time=time)]


def _is_column(node: Physical, column: int) -> bool:
    """Whether ``column`` is a column of the source or union below, unchanged."""
    while isinstance(node, FilterExec | ProjectExec):
        if isinstance(node, ProjectExec):
            expr = node.exprs[column]
            if not isinstance(expr, Column):
                return False
            column = expr.index
        node = node.input
    return True


def _by_value(
    node: WidAggregateExec, settings: Mapping[str, Any]
) -> tuple[WidAggregateExec, str | None]:
    """``node`` by the watermarks of single values; or unchanged, with the reason why it uses one
    watermark for all values."""
    window, reached = node.window, _reached(node.input)
    assert window is not None
    assert window.wa is not None
    columns = [None if (by := column_of(s)) is None else s.schema.find(by) for s in reached]
    name = next(column_of(s) for s in reached if column_of(s) is not None)
    wanted = str(settings["window_operator"])
    if window.wa not in node.input.progressing:
        return node, None  # all groups wait for the end
    if window.kind is not WindowKind.SLIDING:
        return node, _WINDOWS.get(window.kind, "such windows")
    if window.zone is not None:
        return node, "windows of days of a time zone"
    own: dict[int, set[int]] = {}  # by key: the sources whose PUNCTUATE BY column the key is
    for k, key in enumerate(node.keys):
        found = enumerate(_origins(node.input, value_origin(key)))
        own[k] = {n for n, c in found if c is not None and c == columns[n]}
    first = max(own, key=lambda k: len(own[k]), default=None)
    if first is None or not own[first]:
        return node, f"an aggregate that is not grouped by {name}"
    if not _is_column(node.input, window.wa):
        return node, f"windows over {node.input.schema[window.wa].name}, which is computed"
    if wanted not in ("auto", "wid"):
        return node, f"SET window_operator = '{wanted}'"
    if node.adaptive:
        return node, "SET adaptive_windows = on"
    behind = [
        _behind(s, time)
        for s, time in zip(reached, _origins(node.input, window.wa, time=True), strict=True)
    ]
    why = (
        f"{_origin(reached, own[first], behind)}, and its groups leave as that passes their"
        " window (PUNCTUATE BY: out-of-order paper A.1.1); groups by window id need no order"
    )
    if wanted != "auto":
        why += f" (SET window_operator = '{wanted}')"
    value = value_origin(node.keys[first])
    assert value is not None
    below, operator = _with_keyed_watermark(node.input, window.wa, value), WindowOperator.WID
    made = replace(node, input=below, operator=operator, pane=None, flush=None, by=first, why=why)
    return made, None


def _behind(source: SourceExec, time: int | None) -> str:
    """A phrase with the most by which a value may lie behind the row furthest ahead."""
    if column_of(source) is None or time is None:
        return ""
    most = max_skew(source.relation, dict(source.progress)[time])
    return "" if most is None else f", at most {duration(most, source.schema[time].type)} behind"


def _origin(reached: Sequence[SourceExec], own: set[int], behind: Sequence[str]) -> str:
    """A phrase with the origin of a value's watermark."""
    first = reached[min(own)]
    if len(reached) == 1:
        return f"each {column_of(first)} has its own watermark{behind[0]}"
    single = [
        f"{reached[n].name}{behind[n].replace(', ', ' (', 1)}{')' * bool(behind[n])}"
        for n in sorted(own)
    ]
    whole = [s.name for n, s in enumerate(reached) if n not in own]
    of_all = f" and {', '.join(dict.fromkeys(whole))} of all rows" if whole else ""
    least = f"the least of what {', '.join(dict.fromkeys(single))} say of it{of_all}"
    return f"each {column_of(first)} has its own watermark, {least} (A.2.1)"


def _with_keyed_watermark(node: Physical, attribute: int, by: int) -> Physical:
    """``node`` with unions that pass on the watermarks of single values of column ``by``, as far as
    filters and projections pass them."""
    if isinstance(node, UnionExec) and attribute in node.progressing:
        below = tuple(_with_keyed_watermark(child, attribute, by) for child in node.inputs)
        name = node.schema[by].name
        why = f"{node.why}; of each {name} besides, while that is ahead of the others (A.2.1)"
        return replace(node, inputs=below, keyed_watermark=(attribute, by), why=why)
    if isinstance(node, FilterExec):
        return replace(node, input=_with_keyed_watermark(node.input, attribute, by))
    if not isinstance(node, ProjectExec):
        return node
    time = progress_origin(node.exprs[attribute], node.input.progressing)
    value = value_origin(node.exprs[by])
    if time is None or value is None:
        return node
    return replace(node, input=_with_keyed_watermark(node.input, time, value))
