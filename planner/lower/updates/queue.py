"""Update streams: the queue in which their rows wait, and the operators that may read them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from cql.base.types import BOOLEAN, TIMESTAMP
from cql.errors import NotSupportedError
from cql.planner.lower.choose import duration
from cql.planner.nodes.catalog import Queue, StreamSpec
from cql.planner.nodes.expr import Column, Expr, Literal
from cql.planner.nodes.logical import (
    Aggregate,
    Filter,
    Join,
    Limit,
    Logical,
    Newest,
    Project,
    Scan,
    SubqueryJoin,
    Union,
    Unnest,
    is_pulled,
)
from cql.planner.nodes.physical import (
    FilterExec,
    LimitExec,
    LookupExec,
    NewestExec,
    OnTimeExec,
    Physical,
    ProjectExec,
    SourceExec,
    TableJoinExec,
    UnionExec,
    UnnestExec,
    UpdateQueue,
    sources,
    walk,
)
from cql.planner.nodes.show import refresh_clause
from cql.planner.optimize.changelog import is_last_rows

#: What users write, by the class of the node that it becomes.
_CLAUSES = {
    "Aggregate": "an aggregate",
    "Bucket": "a window",
    "Distinct": "DISTINCT",
    "Join": "JOIN",
    "Number": "a window of ROWS",
    "RowNumber": "ROW_NUMBER()",
    "Sort": "ORDER BY",
    "Union": "UNION",
    "Windowed": "a window",
}
#: The goal of an adaptive queue without one, in microseconds.
_GOAL = 200_000
#: Operators to which late rows are rows like others.
ANY_ROWS = (
    *(SourceExec, FilterExec, ProjectExec, LimitExec, UnionExec, NewestExec, UnnestExec),
    *(TableJoinExec, LookupExec),
)
_QUEUES = {queue.name.lower(): queue for queue in Queue}


def update_queue(scan: Scan, settings: Mapping[str, Any]) -> UpdateQueue | None:
    """The queue of a stream whose rows wait in one."""
    spec, schema = scan.relation.stream, scan.relation.schema
    if spec is None or not spec.is_queued:
        return None
    places = [schema.find(name) for name in spec.update_key or ()]
    keys = tuple(scan.columns.index(c) for c in places if c is not None)
    queue, declared = _chosen(spec, settings)
    goal = _GOAL if queue is Queue.ADAPTIVE and spec.staleness is None else spec.staleness
    free = queue is Queue.ADAPTIVE or not declared
    return UpdateQueue(queue, keys, goal=goal, is_fixed=not free, refresh=scan.refresh)


def _chosen(spec: StreamSpec, settings: Mapping[str, Any]) -> tuple[Queue, bool]:
    """The queue of a stream, and whether it is declared or set."""
    wanted = str(settings["queue"])
    if wanted != "auto":
        return _QUEUES[wanted], True
    if spec.queue is not None:
        return spec.queue, True
    return Queue.IN_PLACE if spec.staleness is None else Queue.ADAPTIVE, False


def _elapsed(micros: int) -> str:
    return duration(micros, TIMESTAMP)


def why_queue(scan: Scan, settings: Mapping[str, Any], *, windows: bool = False) -> str:
    """The reason for the queue of a stream, "" for a stream without. ``windows``: whether
    windows are updates."""
    queue = update_queue(scan, settings)
    if windows and queue is not None:
        queue = of_windows(queue)
    spec = scan.relation.stream
    if queue is None or spec is None:
        return ""
    key = ", ".join(spec.update_key or ()) or "no key: each row updates the one before it"
    if str(settings["queue"]) != "auto":
        why = f"queue = {settings['queue']}"
    elif spec.queue is not None:
        why = "declared"
    elif queue.goal is None:
        why = (
            "least staleness if keys are updated equally often; linecutting while their"
            " frequencies differ"
        )
        why = why.partition(";")[0] if queue.is_fixed else why
    else:
        why = f"STALENESS UNDER {_elapsed(queue.goal)}"
    if queue.queue is Queue.ADAPTIVE and queue.goal is not None:
        half = _elapsed(queue.goal // 2)
        why += f": all rows, until one has waited {half}; then the newest of each key"
    elif queue.goal is not None and spec.queue is not None:
        why += f"; goal: STALENESS UNDER {_elapsed(queue.goal)}"
    pulled = ", unused: a bounded input is read as fast as the query takes its rows"
    bounded = pulled if is_pulled(scan.relation) else ""
    said = f"queue {queue.queue.value} by {key} ({why}{bounded})"
    if spec.refresh:
        said += f"; {refresh_clause(spec.refresh)}: the least time between two updates of a key"
    return said


def of_windows(queue: UpdateQueue) -> UpdateQueue:
    """``queue`` for windows as updates: an older window is always superseded."""
    if queue.queue is not Queue.ADAPTIVE:
        return replace(queue, is_fixed=True)
    return replace(queue, queue=Queue.IN_PLACE, is_fixed=True)


def newest(
    node: Newest, settings: Mapping[str, Any], lower: Callable[[Logical], Physical]
) -> Physical:
    """The union of update streams: rows as they come, and above them the newest of each key."""
    by = node.schema[node.time].name
    why = f"only rows with a later {by} than the newest one of their key pass, as they come"
    why += " (UpStream report §3.2)"
    judged = settings["union_truth"] == "first_input"
    if judged:
        why += f"; at the same {by}, the first input is the truth (union_truth = first_input)"
    below = _with_truth(node.input) if judged else node.input
    return NewestExec(lower(below), node.key, node.time, judged, why)


def _with_truth(node: Logical) -> Logical:
    """A union, under filters or not, with a last column that is true of the rows of its first
    input."""
    if isinstance(node, Filter):
        return replace(node, input=_with_truth(node.input))
    assert isinstance(node, Union)
    inputs = []
    for k, child in enumerate(node.inputs):
        columns = [Column(c, f.name, f.type, f.nullable) for c, f in enumerate(child.schema)]
        exprs: tuple[Expr, ...] = (*columns, Literal(k == 0, BOOLEAN))
        inputs.append(Project(child, exprs, (*child.schema.names, "_truth")))
    return replace(node, inputs=tuple(inputs))


def without_idle_queues(root: Physical) -> Physical:
    """``root``, in which sources have append queues only below filters, projections and unions of
    update streams: other operators need what a queue does not pass on, such as the order of the
    rows of two inputs."""
    if not any(s.updates is not None for s in sources(root)):
        return root
    passing: tuple[type, ...] = (FilterExec, ProjectExec, LimitExec, SourceExec)
    if any(isinstance(n, NewestExec) for n in walk(root)):
        passing = (*passing, NewestExec, UnionExec)
    if all(isinstance(n, passing) for n in walk(root)):
        return root
    return _without_append(root)


def unions_on_time(root: Physical) -> Physical:
    """``root``, in which unions of update streams leave late rows out below operators that must
    know which rows are late: the unions do not pass that on."""
    return _on_time(root, False) if any(isinstance(n, NewestExec) for n in walk(root)) else root


def _on_time(node: Physical, asked: bool) -> Physical:
    """``asked``: whether an operator above must know which rows are late."""
    asked = asked or not isinstance(node, ANY_ROWS)
    made = node.with_inputs(tuple(_on_time(child, asked) for child in node.inputs))
    if asked and isinstance(made, NewestExec) and made.time in made.input.progressing:
        why = "late rows are left out: the operators above must know them"
        return replace(made, input=OnTimeExec(made.input, made.time, why))
    return made


def _without_append(node: Physical) -> Physical:
    if isinstance(node, SourceExec):
        appends = node.updates is not None and node.updates.queue is Queue.APPEND
        return replace(node, updates=None) if appends else node
    return node.with_inputs(tuple(map(_without_append, node.inputs)))


def refuse_over_updates(node: Logical, settings: Mapping[str, Any]) -> None:
    """Raises NotSupportedError for the outermost operator that reads an update stream and must see
    every row of it."""
    queued = updates_below(node, settings)
    if queued is None:
        return
    spec = queued.relation.stream
    if spec is not None and spec.by is not None:
        raise NotSupportedError(
            f"PUNCTUATE BY of the update stream {'.'.join(queued.relation.name)} is not supported"
            " by this version",
            position=queued.pos,
        )
    passes = isinstance(node, Filter | Project | Limit | Newest | Scan | Unnest)
    if passes or _takes_windows(node) or _looks_up(node):
        for child in _united(node.input) if isinstance(node, Newest) else node.inputs:
            refuse_over_updates(child, settings)
        return
    name, clause = ".".join(queued.relation.name), _CLAUSES.get(type(node).__name__, "this clause")
    raise NotSupportedError(
        f"{clause} over the update stream {name} is not supported by this"
        " version: newer rows take the place of older ones, and it would not see them all",
        position=queued.pos,
        hint="WHERE, expressions in the select list, UNION ALL of update streams, aggregates over a"
        " window of RANGE with SLIDE, and what reads the last row of each key as a relation are"
        " supported",
    )


def _looks_up(node: Logical) -> bool:
    """Whether ``node`` gives each row of its stream, with what tables say of it."""
    if isinstance(node, SubqueryJoin):
        return node.query.is_constant
    return isinstance(node, Join) and node.looks_up


def _united(node: Logical) -> tuple[Logical, ...]:
    """The inputs of a union, under filters or not."""
    while isinstance(node, Filter):
        node = node.input
    return node.inputs


def _takes_windows(node: Logical) -> bool:
    """Whether ``node`` is an aggregate over windows of the rows of a stream."""
    if not isinstance(node, Aggregate) or node.window is None:
        return False
    below = node.input
    while isinstance(below, Filter | Project):
        below = below.input
    return isinstance(below, Scan)


def updates_below(node: Logical, settings: Mapping[str, Any]) -> Scan | None:
    """The first stream that ``node`` reads whose queue may leave rows out, other than as the
    relation of the last row of each key."""
    if isinstance(node, Scan):
        queue = update_queue(node, settings)
        return None if queue is None or queue.queue is Queue.APPEND else node
    found = (updates_below(n, settings) for n in node.inputs)
    first = next((scan for scan in found if scan is not None), None)
    whole = first is None or first.relation.stream is None or first.relation.stream.by is None
    return None if whole and is_last_rows(node) else first
