"""Sliding windows of several queries that differ only in RANGE, SLIDE or OFFSET share their panes.

A row is aggregated once for all queries, in a pane as long as the greatest common divisor of their
lengths; the windows of each query are merged from runs of these panes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cql.base.types import BOOLEAN, INT
from cql.base.window import MAX_EVENT_TIME, Window, WindowKind, WindowOperator
from cql.planner.functions import registry
from cql.planner.lower.choose import MANY, duration
from cql.planner.nodes.expr import Call, Column, Expr, Literal, substitute
from cql.planner.nodes.logical import WINDOW_COLUMNS, AggregateCall
from cql.planner.nodes.physical import (
    FilterExec,
    Physical,
    ProjectExec,
    SharedPanesExec,
    WidAggregateExec,
    walk,
)
from cql.planner.nodes.physical.numbers import NodeNumbers


def share_windows(roots: Sequence[Physical]) -> list[Physical]:
    """The graph with one operator in place of the aggregates that can share panes. Windows over
    windows are shared from the top down."""
    shared = list(roots)
    while made := _sharings(numbers := NodeNumbers(*shared)):
        shared = [_rebuilt(root, numbers, made) for root in shared]
    return shared


def _sharings(nodes: NodeNumbers) -> dict[int, Physical]:
    """The replacements of the aggregates that have common panes, by the numbers of the
    aggregates."""
    sets: list[list[_Plain]] = []
    for node in filter(_has_panes, nodes):
        assert isinstance(node, WidAggregateExec)
        plain = _plain(node)
        alike = next((s for s in sets if s[0].matches(plain)), None)
        if alike is None:
            sets.append([plain])
        else:
            alike.append(plain)
    made: dict[int, Physical] = {}
    for plains in sets:
        made |= {nodes[node]: part for node, part in _shared(plains)}
    return made


def _has_panes(node: Physical) -> bool:
    """Whether the groups of the windows are kept by panes, or could be."""
    if not isinstance(node, WidAggregateExec) or isinstance(node, SharedPanesExec):
        return False
    window = node.window
    if window is None or window.kind is not WindowKind.SLIDING or window.zone or node.adaptive:
        return False
    if node.by is not None or node.partitioning is not None:
        return False
    mergeable = not any(c.beside or (c.function and not c.function.merge) for c in node.calls)
    return (
        mergeable
        and node.operator in (WindowOperator.WID, WindowOperator.PANES)
        and (window.slide or 0) <= (window.range or 0)
    )


@dataclass(frozen=True, slots=True)
class _Plain:
    """An aggregate over ``base``. Its expressions take in the filters and the projections of plain
    columns that lie between."""

    node: WidAggregateExec
    base: Physical
    conditions: tuple[Expr, ...]
    keys: tuple[Expr, ...]
    calls: tuple[AggregateCall, ...]
    window: Window

    def matches(self, other: _Plain) -> bool:
        return (
            self.base is other.base
            and self.conditions == other.conditions
            and self.keys == other.keys
            and self.window.wa == other.window.wa
            and self.fallible == other.fallible
        )

    @property
    def fallible(self) -> frozenset[Expr]:
        """Expressions of the calls that can fail. A row on which one of them fails is bad for all
        queries that share it."""
        given = (e for c in self.calls for e in (*c.args, *((c.where,) if c.where else ())))
        return frozenset(e for e in given if registry.can_fail(e))


def _plain(node: WidAggregateExec) -> _Plain:
    steps: list[FilterExec | ProjectExec] = []
    base = node.input
    while isinstance(base, FilterExec) or (
        isinstance(base, ProjectExec) and all(isinstance(e, Column) for e in base.exprs)
    ):
        steps.append(base)
        base = base.input
    columns: tuple[Expr, ...] = tuple(
        Column(i, f.name, f.type, f.nullable) for i, f in enumerate(base.schema)
    )
    conditions = []
    for step in reversed(steps):
        if isinstance(step, FilterExec):
            conditions.append(substitute(step.condition, columns))
        else:
            columns = tuple(substitute(e, columns) for e in step.exprs)
    assert node.window is not None
    assert node.window.wa is not None
    wa = columns[node.window.wa]
    assert isinstance(wa, Column)
    keys = tuple(substitute(k, columns) for k in node.keys)
    calls = tuple(
        replace(
            call,
            args=tuple(substitute(a, columns) for a in call.args),
            where=None if call.where is None else substitute(call.where, columns),
        )
        for call in node.calls
    )
    window = replace(node.window, wa=wa.index)
    return _Plain(node, base, tuple(conditions), keys, calls, window)


def _shared(alike: list[_Plain]) -> list[tuple[Physical, Physical]]:
    """Each aggregate with its replacement; empty if sharing panes is not worth it."""
    windows = tuple(dict.fromkeys(p.window for p in alike))
    if len(alike) < 2:
        return []
    first = windows[0]
    pane = 0
    for w in windows:
        pane = math.gcd(pane, w.range or 0, w.slide or 0, w.offset - first.offset)
    if any((w.range or 0) >= MANY * (w.slide or 0) for w in windows) or not _fits(windows, pane):
        return []
    source: Physical = alike[0].base
    for condition in alike[0].conditions:
        source = FilterExec(source, condition)
    named: dict[AggregateCall, str] = {}
    for plain in alike:
        names = plain.node.names[len(plain.keys) :]
        for call, name in zip(plain.calls, names, strict=True):
            named.setdefault(call, name)
    calls = list(named)
    kind = source.schema[first.wa or 0].type
    shared = SharedPanesExec(
        source,
        replace(first, range=pane, slide=pane),
        alike[0].keys,
        tuple(calls),
        (*alike[0].node.names[: len(alike[0].keys)], *named.values()),
        pane=pane,
        operator=WindowOperator.PANES,
        windows=windows,
        why=f"{len(alike)} queries share panes of {duration(pane, kind)}, in which rows are"
        f" aggregated once, and which are merged into the windows of each",
    )
    return [(p.node, _part_of(shared, p, windows.index(p.window), calls)) for p in alike]


def _fits(windows: Sequence[Window], pane: int) -> bool:
    """Whether the ids of all regions fit in 64 bits."""
    longest = max(w.range or 0 for w in windows)
    return (len(windows) + 1) * ((MAX_EVENT_TIME + longest) // pane + 2) < 1 << 63


def _part_of(
    shared: SharedPanesExec, plain: _Plain, number: int, calls: list[AggregateCall]
) -> Physical:
    """The rows of one query, with the columns of that query."""
    schema, keys = shared.schema, len(shared.keys)
    query = Column(len(schema) - 1, schema.names[-1], INT, False)
    mine = FilterExec(shared, Call("eq", (query, Literal(number, INT)), BOOLEAN, False))
    places = [*range(keys), *(keys + calls.index(c) for c in plain.calls)]
    places += range(keys + len(calls), keys + len(calls) + len(WINDOW_COLUMNS))
    exprs = tuple(Column(i, schema[i].name, schema[i].type, schema[i].nullable) for i in places)
    return ProjectExec(mine, exprs, (*plain.node.names, *WINDOW_COLUMNS))


def own_windows(root: Physical) -> dict[int, list[int]]:
    """By the id of an operator with windows of several queries: the numbers of the windows that
    this plan reads."""
    found: dict[int, list[int]] = {}
    for node in walk(root):
        match node:
            case FilterExec(SharedPanesExec() as shared, Call(args=(_, Literal(int() as number)))):
                found.setdefault(id(shared), []).append(number)
    return found


def _rebuilt(node: Physical, numbers: NodeNumbers, made: dict[int, Physical]) -> Physical:
    """The graph with the replacements ``made``, by number. Unchanged nodes and shared nodes stay
    the same objects."""
    known = made.get(numbers[node])
    if known is None:
        before = node.inputs
        after = tuple(_rebuilt(i, numbers, made) for i in before)
        changed = any(a is not b for a, b in zip(after, before, strict=True))
        known = made[numbers[node]] = node.with_inputs(after) if changed else node
    return known
