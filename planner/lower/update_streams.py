"""Update streams: the queue in which their rows wait, and the operators that may read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cql.errors import NotSupportedError
from cql.planner.nodes.catalog import Queue, StreamSpec
from cql.planner.nodes.logical import Filter, Limit, Logical, Project, Scan
from cql.planner.nodes.physical import UpdateQueue

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
    "Unnest": "UNNEST",
    "Windowed": "a window",
}
_QUEUES = {queue.name.lower(): queue for queue in Queue}


def update_queue(scan: Scan, settings: Mapping[str, Any]) -> UpdateQueue | None:
    """The queue of a stream whose rows wait in one."""
    spec, schema = scan.relation.stream, scan.relation.schema
    if spec is None or not spec.is_queued:
        return None
    places = [schema.find(name) for name in spec.update_key or ()]
    keys = tuple(scan.columns.index(c) for c in places if c is not None)
    return UpdateQueue(_chosen(spec, settings), keys)


def _chosen(spec: StreamSpec, settings: Mapping[str, Any]) -> Queue:
    wanted = str(settings["queue"])
    if wanted != "auto":
        return _QUEUES[wanted]
    return Queue.IN_PLACE if spec.queue is None else spec.queue


def why_queue(scan: Scan, settings: Mapping[str, Any]) -> str:
    """The reason for the queue of a stream, "" for a stream without."""
    queue = update_queue(scan, settings)
    spec = scan.relation.stream
    if queue is None or spec is None:
        return ""
    key = ", ".join(spec.update_key or ()) or "no key: each row updates the one before it"
    if str(settings["queue"]) != "auto":
        why = f"queue = {settings['queue']}"
    elif spec.queue is None:
        why = "least staleness if keys are updated equally often"
    else:
        why = "declared"
    pulled = ", unused: a bounded input is read as fast as the query takes its rows"
    bounded = pulled if scan.relation.bounded else ""
    return f"queue {queue.queue.value} by {key} ({why}{bounded})"


def refuse_over_updates(node: Logical) -> None:
    """Raises NotSupportedError for the outermost operator that reads an update stream and must see
    every row of it."""
    queued = _queued_below(node)
    if queued is None or isinstance(node, Filter | Project | Limit | Scan):
        for child in node.inputs:
            refuse_over_updates(child)
        return
    name, clause = ".".join(queued.relation.name), _CLAUSES.get(type(node).__name__, "this")
    raise NotSupportedError(
        f"{clause} over the update stream {name} is not supported by this"
        " version: newer rows take the place of older ones, and it would not see them all",
        position=queued.pos,
        hint="WHERE and a select list of expressions are supported",
    )


def _queued_below(node: Logical) -> Scan | None:
    """The first update stream that ``node`` reads."""
    if isinstance(node, Scan):
        spec = node.relation.stream
        return node if spec is not None and spec.is_queued else None
    return next((found for n in node.inputs if (found := _queued_below(n)) is not None), None)
