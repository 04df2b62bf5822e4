"""DISTINCT over a stream as Dupelim (out-of-order paper §5.4): the first of equal rows leaves at
once, because no later row can change it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from cql.planner.lower import ordering, partitioned_watermark
from cql.planner.lower.joins.oop_join import projected
from cql.planner.nodes.expr import Column
from cql.planner.nodes.logical import Aggregate
from cql.planner.nodes.physical import (
    DupelimExec,
    FilterExec,
    OnTimeExec,
    Physical,
    ProjectExec,
    WidAggregateExec,
    sources,
)


def dupelim(node: Aggregate, child: Physical, settings: Mapping[str, Any]) -> Physical | None:
    """Dupelim over ``child``, a stream. None if no output column progresses, because Dupelim could
    then never forget a row, and None if a source has a partitioned watermark (PUNCTUATE BY)."""
    if not node.distinct or any(
        partitioned_watermark.column_of(s) is not None for s in sources(child)
    ):
        return None
    live = child.progressing
    found = next(((at, c) for at, c in _closing(node) if c in live), None)
    if found is None:
        return None
    at, column = found
    unit = node.input.progressing[column].unit
    child = ordering.before_window(child, column, unit, settings, node.pos)
    child = _selected(child, node)
    if child.schema[at].nullable or not _never_late(child):
        why = "the rows that a late one is equal to may be forgotten"
        child = OnTimeExec(child, at, why)
    return ordering.purged(DupelimExec(child, at))


def _closing(node: Aggregate) -> Iterator[tuple[int, int]]:
    """(key, column) pairs whose key rises with a progressing column: first the key that closes
    groups, then the keys that are the times of a join."""
    closing = node.closing_key
    if closing is not None:
        yield closing
    for time in node.closing_pair or ():
        yield from (
            (at, time)
            for at, key in enumerate(node.keys)
            if isinstance(key, Column) and key.index == time
        )


def _selected(child: Physical, node: Aggregate) -> Physical:
    plain = [key.index if isinstance(key, Column) else None for key in node.keys]
    if plain == list(range(len(child.schema))) and node.names == child.schema.names:
        return child
    made = projected(child, node.keys, node.names)
    if isinstance(made, ProjectExec):
        return replace(made, why="what rows are equal in")
    return made


def _never_late(node: Physical) -> bool:
    """Whether ``node`` has dropped its late rows already, as joins and windowed aggregates do."""
    while isinstance(node, FilterExec | ProjectExec):
        node = node.input
    return not node.emits_late_rows or isinstance(node, WidAggregateExec)
