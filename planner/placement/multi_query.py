"""Queries that start together share their common parts: the scan of a stream, and the state of
operators with equal inputs.

The plans of a query set become one acyclic graph. The first mentions of a relation in all queries
share one scan, the second mentions another, and so on. A shared scan reads the columns and awaits
the punctuation of all its mentions. Above the scans, equal nodes over equal inputs become one node.
Two mentions within one query stay two: a query sees the same rows as when it runs alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from cql.base.recursion import deep_stack
from cql.errors import Position
from cql.planner.nodes.expr import Column
from cql.planner.nodes.physical import (
    Awaited,
    LateRowsExec,
    Physical,
    PhysicalPlan,
    ProjectExec,
    QuerySetPlan,
    SourceExec,
    ValuesExec,
    WindowJoinExec,
    sources,
)
from cql.planner.nodes.physical.numbers import NodeNumbers
from cql.planner.nodes.watermarks import fewest
from cql.planner.placement.choose_runtime import choose_runtime
from cql.planner.placement.shared_panes import share_windows

#: A relation, ``SourceExec.ahead``, ``refresh`` and whether it gives no segments; a place adds the
#: mention's number in its query.
_Mention = tuple[tuple[str, ...], int, int | None, bool]
_Place = tuple[_Mention, int]


@deep_stack()
def plan_query_set(
    plans: Sequence[PhysicalPlan], settings: Mapping[str, Any], *, panes: bool, cores: int = 1
) -> QuerySetPlan:
    """The plans with their common parts as common objects, and one runtime. ``panes`` also shares
    windows that differ only in RANGE, SLIDE and OFFSET. ``cores``: as in ``lower.plan``."""
    # A common part has the positions of the first query, and its errors name these. So queries that
    # fail for bad rows come before queries that keep them.
    order = sorted(range(len(plans)), key=lambda k: plans[k].keep_bad_rows)
    shared = _scans([plans[k] for k in order])
    known: list[Physical] = []
    roots = []
    for k in order:
        mentions: Counter[_Mention] = Counter()
        roots.append(_joined(plans[k].root, shared, mentions, known))
    if panes:
        roots = share_windows(roots)
    placed = dict(zip(order, roots, strict=True))
    runtime = choose_runtime([placed[k] for k in range(len(plans))], settings, cores)
    made = (replace(p, root=placed[k], runtime=runtime) for k, p in enumerate(plans))
    return QuerySetPlan(tuple(made))


def _scans(plans: Sequence[PhysicalPlan]) -> dict[_Place, SourceExec]:
    """Each scan, with the columns that any query reads. That of an update stream stays as it is:
    rows wait in the queue of one query, until it takes them."""
    found: dict[_Place, list[SourceExec]] = {}
    for plan in plans:
        mentions: Counter[_Mention] = Counter()
        for source in sources(plan.root):
            if source.updates is None:
                found.setdefault(_place(source, mentions), []).append(source)
    return {place: _scan(given) for place, given in found.items()}


def _place(source: SourceExec, mentions: Counter[_Mention]) -> _Place:
    mention = source.relation.name, source.ahead, source.refresh, source.signal is None
    mentions[mention] += 1
    return mention, mentions[mention]


def _scan(given: list[SourceExec]) -> SourceExec:
    columns = tuple(sorted({c for source in given for c in source.columns}))
    awaited: dict[int, set[tuple[int, int]] | None] = {}
    for source in given:
        for wanted in source.awaited or ():
            column = columns.index(source.columns[wanted.column])
            before = awaited.setdefault(column, set())
            more = wanted.boundaries
            awaited[column] = None if before is None or more is None else before | set(more)
    named = tuple(
        Awaited(c, None if b is None else fewest(frozenset(b))) for c, b in sorted(awaited.items())
    )
    whole = any(source.awaited is None for source in given)
    made = replace(given[0], columns=columns, awaited=None if whole else named)
    signal = given[0].signal
    if signal is None or signal.time is None:
        return made
    time = columns.index(given[0].columns[signal.time])
    return replace(made, signal=replace(signal, time=time))


def _joined(
    node: Physical,
    shared: dict[_Place, SourceExec],
    mentions: Counter[_Mention],
    known: list[Physical],
) -> Physical:
    """``node`` over shared scans, or a ``known`` node that does the same."""
    if isinstance(node, SourceExec) and node.updates is None:
        scan = shared[_place(node, mentions)]
        made = _narrowed(scan, node)
        if made is scan:
            return scan
    elif isinstance(node, ValuesExec):
        return node
    elif isinstance(node, SourceExec):
        made = node
    else:
        below = tuple(_joined(i, shared, mentions, known) for i in node.inputs)
        made = node.with_inputs(below)
    for other in known if not isinstance(made, LateRowsExec) else ():  # each has its own table
        if _same(other, made):
            return other
    known.append(made)
    return made


def _narrowed(scan: SourceExec, node: SourceExec) -> Physical:
    """The columns of ``node`` from a scan that reads more."""
    if scan.columns == node.columns:
        return scan
    places = (scan.shown.index(c) for c in node.shown)
    exprs = tuple(
        Column(p, f.name, f.type, f.nullable) for p, f in zip(places, node.schema, strict=True)
    )
    return ProjectExec(scan, exprs, node.schema.names)


def join_once(node: Physical) -> Physical:
    """``node`` with one scan for all mentions of a relation within a join: the result does not
    depend on how far one mention is ahead of another."""
    if not node.rows_wait or isinstance(node, WindowJoinExec):
        return node.with_inputs(tuple(map(join_once, node.inputs)))
    groups: list[list[SourceExec]] = []
    for source in sources(node):
        mentioned = (g for g in groups if _is_mentioned(source, g[0]))
        group = next(mentioned, None)
        if group is None:
            groups.append([source])
        else:
            group.append(source)
    numbers = NodeNumbers(node)
    scans: dict[int, SourceExec] = {}
    for mentions in groups:
        scan = mentions[0]
        if len(mentions) > 1:
            made = _scan(mentions)
            scan = replace(made, why=f"{made.why}; read once for its {len(mentions)} mentions")
        scans |= {numbers[source]: scan for source in mentions}
    return _over(node, lambda source: scans[numbers[source]], [])[0]


def _is_mentioned(source: SourceExec, other: SourceExec) -> bool:
    same = source.relation is other.relation or source.relation == other.relation
    same = same and (source.signal is None) == (other.signal is None)
    return same and (source.ahead, source.refresh) == (other.ahead, other.refresh)


def _over(
    node: Physical,
    scan_of: Callable[[SourceExec], SourceExec],
    made: list[tuple[Position, Physical]],
) -> tuple[Physical, Position | None]:
    """``node`` over the scans of its sources, and the position of the mention in it, if there is
    only one. Equal nodes over one mention become one node (NOT IN looks for equal values, and for
    unknown ones), so that their bad and late rows count once. ``made`` are these nodes so far."""
    if isinstance(node, SourceExec):
        return _narrowed(scan_of(node), node), node.pos
    below = [_over(child, scan_of, made) for child in node.inputs]
    node = node.with_inputs(tuple(child for child, _ in below))
    place = below[0][1] if len(below) == 1 else None
    if place is None:
        return node, None
    for where, other in made:
        if where == place and _same(node, other):
            return other, place
    made.append((place, node))
    return node, place


def _same(one: Physical, other: Physical) -> bool:
    """Whether two nodes do the same with the very same inputs."""
    if type(one) is not type(other):
        return False
    for f in fields(one):
        if f.name in ("input", "inputs", "query", "table", "left", "right") or not f.compare:
            continue
        if getattr(one, f.name) != getattr(other, f.name):
            return False
    pairs = zip(one.inputs, other.inputs, strict=False)
    return len(one.inputs) == len(other.inputs) and all(a is b for a, b in pairs)
