"""Aggregates over windows of update streams, in which windows are updates (UpStream report, section
6).

The source of such an aggregate adds a column with the start of the window for which the queue gives
a row, WINDOW_OF_ROW. The aggregate has windows of one slide over this column, and computes the
bounds of the real windows from theirs. Keys of several columns or none, and of fractions, have a
number in the column KEY_OF_ROW, by which the aggregate groups, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any

from cql.base.model import Schema
from cql.base.types import BIGINT, DATE, INT, INTERVAL, Kind
from cql.base.window import Window, WindowKind
from cql.errors import NotSupportedError, PlanError
from cql.planner.functions.operators import arithmetic
from cql.planner.lower.choose import duration, why_source
from cql.planner.lower.ordering import MICROSECONDS
from cql.planner.lower.updates.queue import (
    of_windows,
    update_queue,
    updates_below,
    why_queue,
)
from cql.planner.nodes.catalog import Queue, StreamSpec, TimeUnit
from cql.planner.nodes.expr import Column, Expr, Literal
from cql.planner.nodes.logical import (
    WINDOW_COLUMNS,
    Aggregate,
    Filter,
    Logical,
    Project,
    Scan,
    is_pulled,
)
from cql.planner.nodes.physical import (
    FilterExec,
    Physical,
    ProjectExec,
    SourceExec,
    UpdateWindows,
    WidAggregateExec,
)
from cql.planner.nodes.watermarks import value_origin


def over_windows(node: Aggregate, settings: Mapping[str, Any]) -> Physical | None:
    """The operators of an aggregate over windows of an update stream; None for another aggregate.

    Raises NotSupportedError for windows that cannot be updates, PlanError for a GROUP BY without
    the update key."""
    scan = updates_below(node.input, settings)
    window = node.window
    if scan is None or window is None or is_pulled(scan.relation):
        return None
    spec = scan.relation.stream
    assert spec is not None
    queue = update_queue(scan, settings)
    assert queue is not None
    _check_windows(node, scan, spec, queue.queue, settings)
    assert window.range is not None
    assert window.slide is not None
    time = _place(scan, spec.progress[0].column)
    eager, mode = _mode(scan, spec, window.slide, time)
    windows = UpdateWindows(window.range, window.slide, eager, time)
    queue = replace(of_windows(queue), windows=windows)
    size, slide = (duration(n, scan.schema[time].type) for n in (window.range, window.slide))
    updates = f"windows of {size} every {slide} as updates, {mode} (UpStream report §6)"
    why = "; ".join((why_source(scan), why_queue(scan, settings, windows=True), updates))
    source = SourceExec(scan.relation, scan.columns, why, scan.pos, alias=scan.alias, updates=queue)
    child = _with_start(node.input, source)
    start, *numbers = _added(child, node.input)
    grouped = WidAggregateExec(
        child,
        Window(WindowKind.SLIDING, start.index, window.slide, window.slide),
        (*numbers, *node.keys),
        node.calls,
        (*(c.name for c in numbers), *node.names),
    )
    columns = _columns(grouped.schema)[len(numbers) :]
    first = columns[len(node.names)]
    bounds = [first, _moved(first, window.range), _moved(first, window.range - 1)]
    return ProjectExec(
        grouped, (*columns[: len(node.names)], *bounds), (*node.names, *WINDOW_COLUMNS)
    )


def _columns(schema: Schema) -> list[Column]:
    return [Column(k, f.name, f.type, f.nullable) for k, f in enumerate(schema)]


def _added(below: Physical, node: Logical) -> list[Column]:
    """The columns that ``below`` has behind those of ``node``: WINDOW_OF_ROW, and KEY_OF_ROW if
    keys are numbered."""
    return _columns(below.schema)[len(node.schema) :]


def _moved(time: Column, by: int) -> Expr:
    """A time that is ``by`` units later."""
    kind = BIGINT if time.type.is_integer else INT if time.type == DATE else INTERVAL
    return arithmetic("add")((time, Literal(by, kind)), None)


def _with_start(node: Logical, source: SourceExec) -> Physical:
    """The filters and projections of ``node`` over ``source``, with the columns that this adds."""
    match node:
        case Scan():
            return source
        case Filter():
            return FilterExec(_with_start(node.input, source), node.condition)
        case Project():
            below = _with_start(node.input, source)
            added = _added(below, node.input)
            names = (*node.names, *(column.name for column in added))
            return ProjectExec(below, (*node.exprs, *added), names)
    raise AssertionError(node)


def _mode(scan: Scan, spec: StreamSpec, slide: int, time: int) -> tuple[bool, str]:
    """Whether windows are EAGER, and why. EAGER results are newer where the rows of a key come all
    the time; where there are gaps, a window waits for the row that ends it (section 6.3.2)."""
    eager = spec.lazy_windows is False
    why = "declared"
    gap = _gap(scan, spec, time) if spec.lazy_windows is None else None
    if gap is not None:
        eager = 2 * gap <= slide
        much = duration(round(gap), scan.schema[time].type)
        why = f"rows of a key are {much} apart, {'at most' if eager else 'more than'} half a slide"
    elif spec.lazy_windows is None:
        why = "how far the rows of a key are apart is not known"
    if eager:
        return True, f"EAGER: one is taken with its first row ({why})"
    return False, f"LAZY: one is taken when it has fully arrived ({why})"


def _gap(scan: Scan, spec: StreamSpec, time: int) -> float | None:
    """The time between two rows of a key, on average, in units of the column ``time``; None:
    unknown."""
    known, kind = scan.relation.statistics, scan.schema[time].type
    keys = [known.distinct.get(name) for name in spec.update_key or ()]
    unit = spec.progress[0].unit if kind.is_integer else TimeUnit.MICROSECONDS
    unit = TimeUnit.DAYS if kind.kind is Kind.DATE else unit
    counted = [n for n in keys if n is not None]
    if not known.rate or len(counted) < len(keys) or unit is None:
        return None
    return prod(counted) / known.rate * 1_000_000 / MICROSECONDS[unit]


def _check_windows(
    node: Aggregate, scan: Scan, spec: StreamSpec, queue: Queue, settings: Mapping[str, Any]
) -> None:
    window, name, key = node.window, ".".join(scan.relation.name), spec.update_key or ()
    assert window is not None
    wrong = None
    if window.kind is not WindowKind.SLIDING or window.zone is not None or window.offset:
        wrong = "a window other than RANGE with SLIDE"
    elif node.late_output:
        wrong = "LATE OUTPUT"
    elif spec.refresh:
        wrong = "REFRESH with a window"
    elif spec.heartbeat is not None:
        wrong = "HEARTBEAT with a window"
    elif not spec.progress or not _is_first_time(node.input, window.wa, scan, spec):
        wrong = "a window over another column than the first time of the stream"
    elif spec.progress[0].marked_by is not None:
        wrong = "PUNCTUATE ON with rows that are punctuation, with a window"
    elif queue is Queue.APPEND_SHED_RANDOM:
        wrong = "a window with QUEUE APPEND SHED RANDOM"
    elif queue is Queue.ADAPTIVE and spec.queue is Queue.ADAPTIVE:
        wrong = "a window with QUEUE ADAPTIVE"
    elif settings["window_operator"] not in ("auto", "wid"):
        wrong = f"window_operator = {settings['window_operator']}"
    if wrong is not None:
        raise NotSupportedError(
            f"{wrong} over the update stream {name} is not supported by this version",
            position=node.pos or scan.pos,
        )
    grouped = {_origin(node.input, value_origin(k)) for k in node.keys}
    if not grouped.issuperset(_place(scan, column) for column in key):
        raise PlanError(
            f"an aggregate over the update stream {name} must be grouped by its update key, so that"
            " each result has a key that newer ones replace",
            position=node.pos or scan.pos,
            hint=f"GROUP BY {', '.join(key)}, …",
        )


def _place(scan: Scan, column: str) -> int:
    at = scan.relation.schema.find(column)
    assert at is not None
    return scan.columns.index(at)


def _origin(node: Logical, column: int | None) -> int | None:
    """The column of the stream below filters and projections that ``column`` is, unchanged."""
    while isinstance(node, Filter | Project) and column is not None:
        column = value_origin(node.exprs[column]) if isinstance(node, Project) else column
        node = node.input
    return column


def _is_first_time(node: Logical, wa: int | None, scan: Scan, spec: StreamSpec) -> bool:
    if wa is None or not spec.progress:
        return False
    return _origin(node, wa) == _place(scan, spec.progress[0].column)
