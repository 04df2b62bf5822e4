"""Joins of relations as physical operators over changelogs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cql.base.types import BOOLEAN
from cql.base.window import WindowKind
from cql.errors import NotSupportedError, PlanError, Position
from cql.planner.lower.joins.pair_columns import with_columns
from cql.planner.lower.joins.pair_condition import Below
from cql.planner.lower.net_changes import as_stream
from cql.planner.nodes.expr import Call, Column, Expr, conjunction, conjuncts
from cql.planner.nodes.logical import (
    ASOF,
    Filter,
    Join,
    Logical,
    Project,
    SubqueryJoin,
    Windowed,
)
from cql.planner.nodes.physical import (
    FilterExec,
    Physical,
    ProjectExec,
    RelationJoinExec,
    sources,
)
from cql.planner.optimize.join_condition import Sides, by_one_side, split_condition


def relation_join(node: Join, left: Physical, right: Physical, grows: Sequence[bool]) -> Physical:
    """A join of two changelogs. ``grows`` holds for each side whether its rows never leave.

    Raises PlanError for an endless side that grows, and for sides whose times differ in type."""
    _refuse_clocks(node, left, right)
    for side, forever in zip((left, right), grows, strict=True):
        if forever and not side.bounded:
            raise _kept_for_ever(side, node.pos)
    parts = [] if node.condition is None else conjuncts(node.condition)
    sides = _sides(left, node.left, node.right)
    if node.kind in ("semi", "anti"):
        return _filtered_by_mark(
            node.kind, made_join("mark", parts, left, right, sides, node.pos, "partner")
        )
    kind = "inner" if node.kind == "cross" else node.kind
    return made_join(kind, parts, left, right, sides, node.pos, order=node.order)


def mark_join(node: SubqueryJoin, left: Physical, right: Physical, *, grows: bool) -> Physical:
    """EXISTS with more than equalities, over changelogs. ``grows``: rows of the subquery never
    leave.

    Raises PlanError for an endless subquery that grows."""
    if grows and not right.bounded:
        raise _kept_for_ever(right, node.pos)
    width, fields = len(left.schema) - 2, right.schema.fields
    equal = [
        Call("eq", (key, Column(width + k, fields[k].name, fields[k].type)), BOOLEAN, True)
        for k, key in enumerate(node.keys)
    ]
    parts = [] if node.condition is None else conjuncts(node.condition)
    sides = _sides(left, node.input, node.query)
    return made_join("mark", [*equal, *parts], left, right, sides, node.pos, node.name)


def _sides(changed: Physical, left: Logical, right: Logical) -> Sides:
    """``changed`` is the changelog of the left side."""
    width = len(changed.schema) - 2
    return Sides(width, tuple(left.progressing), tuple(right.progressing))


def _filtered_by_mark(kind: str, marked: Physical) -> Physical:
    """The left rows that have a partner (semi) or that have none (anti)."""
    columns = [Column(k, f.name, f.type, f.nullable) for k, f in enumerate(marked.schema)]
    mark = columns.pop(len(columns) - 3)
    wanted = mark if kind == "semi" else Call("not", (mark,), BOOLEAN, False)
    names = tuple(c.name for c in columns)
    return ProjectExec(FilterExec(marked, wanted), tuple(columns), names, f"{kind} join")


def made_join(
    kind: str, parts: Sequence[Expr], left: Physical, right: Physical, sides: Sides,
    pos: Position | None,
    name: str = "",
    order: str = "",
) -> Physical:  # fmt: skip
    """The join of two changelogs; ``parts`` are its conditions over the columns of ``sides``."""
    width, others = sides.width, len(right.schema) - 2
    if kind != "inner":  # a filter above an inner join can evaluate conditions that may fail
        parts = [e for part in parts for e in by_one_side(part, sides)]
    terms = split_condition(parts, [], Sides(width, (), ()))  # rows of relations have no band
    left, lefts = with_columns(left, [a for a, _ in terms.keys], last=2)
    right, rights = with_columns(right, [b for _, b in terms.keys], last=2)
    below = Below(left, right, sides, kind, last=2, of_texts=_OF_TEXTS)
    rest = [below.on_pair(e) for e in terms.rest]
    inside = tuple(e for e in rest if e is not None)
    above = [e for e, there in zip(terms.rest, rest, strict=True) if there is None]
    columns = tuple(range(width))
    if kind != "mark":
        columns += tuple(width + below.more + k for k in range(others))
    keys = tuple(zip(lefts, rights, strict=True))
    why = {
        "inner": "of each instant the pairs that come and go",
        "mark": "of each row whether it has a partner, at each instant",
    }.get(kind, "of each instant the pairs that come and go, and the rows without a partner")
    why = f"{why}; {order}" if order else why
    inside = tuple(below.behind(e) for e in inside)
    made = RelationJoinExec(below.left, below.right, kind, keys, inside, columns, name, why, pos)
    return FilterExec(made, conjunction(above)) if above else made


#: Functions on texts that a relation join evaluates itself.
_OF_TEXTS = frozenset(("eq", "ne", "lt", "le", "gt", "ge", "null_safe_eq", "is_distinct_from"))


def each_pair_once(node: Join, changed: Physical) -> Physical:
    """A join at the top of a query or below a window: each pair once, at the instant at which it
    enters. ``changed`` is the join's changelog. The times of both rows distinguish equal pairs."""
    for side in (node.left, node.right):
        for window in _windows_in(side):
            _refuse_without_time(side, window)
    why = "each pair once: nothing above asks what leaves"
    stream = as_stream(changed, "istream", why)
    fields = stream.schema.fields[:-1]
    columns = tuple(Column(k, f.name, f.type, f.nullable) for k, f in enumerate(fields))
    return ProjectExec(stream, columns, node.schema.names)


def _windows_in(node: Logical) -> Iterator[Windowed]:
    match node:
        case Windowed():
            yield node
        case Filter() | Project():
            yield from _windows_in(node.input)
        case Join():
            yield from _windows_in(node.left)
            yield from _windows_in(node.right)


def _refuse_without_time(side: Logical, window: Windowed) -> None:
    if not side.progressing and window.progressing:
        raise NotSupportedError(
            "a join of a subquery that leaves out the time of its window is not supported by this"
            " version",
            position=window.pos,
            hint="select it in the subquery as well",
        )


# -- refusals ------------------------------------------------------------------------------------


def _refuse_clocks(node: Join, left: Physical, right: Physical) -> None:
    one, other = left.schema[-2].type, right.schema[-2].type
    if one != other:
        raise PlanError(
            f"the inputs of this join count time differently: {one} and {other}",
            position=node.pos,
            hint="CAST the event time of one of them in a subquery",
        )


def _kept_for_ever(side: Physical, pos: Position | None) -> PlanError:
    names = ", ".join(s.name for s in sources(side))
    return PlanError(
        f"a join of relations would keep all rows of the endless input {names} for ever",
        position=pos,
        hint=f"give {names} a window: [RANGE 10 MINUTES]; or the latest row of each key:"
        " [PARTITION BY key ROWS 1]",
    )


def refuse_join(node: Join) -> None:
    """Raises NotSupportedError for a join that this version cannot run."""
    if node.kind in ASOF:
        for window in (*_windows_in(node.left), *_windows_in(node.right)):
            raise NotSupportedError(
                "ASOF JOIN of a window without SLIDE is not supported by this version",
                position=window.pos or node.pos,
                hint="say how far apart rows may lie: AND a.ts - b.ts <= INTERVAL 10 MINUTES",
            )
        return
    if node.looks_up:
        return
    windows = [*_windows_in(node.left), *_windows_in(node.right)]
    for window in windows:
        if window.window.slide is not None or window.window.has_bounds:
            raise NotSupportedError(
                "a join of a window with SLIDE is not supported: it needs an aggregate over it",
                position=window.pos or node.pos,
                hint="a window of a join says how long rows stay: [RANGE 10 MINUTES], [ROWS 5]",
            )


def holds_rows(node: Join) -> bool:
    """Whether rows of the join come from a ROWS window: the time of a row then does not say how
    long the row stays."""
    windows = (*_windows_in(node.left), *_windows_in(node.right))
    return any(w.window.kind is WindowKind.ROWS for w in windows)
