"""Joins with tables: a table is read before the stream, whose rows find their partners as they
pass. Nothing of the stream waits, so that its order, its progress and its late rows stay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from cql.errors import NotSupportedError
from cql.planner import functions
from cql.planner.expr import Column, Expr, rebuild
from cql.planner.join_condition import Sides, take_apart
from cql.planner.logical import Filter, Join, Logical, Project, Scan, Values
from cql.planner.pairs import behind, runs_inside, with_columns
from cql.planner.physical import FilterExec, Physical, read_ahead, sources
from cql.planner.physical_joins import TableJoinExec
from cql.planner.properties import is_table
from cql.planner.rules import conjunction, conjuncts
from cql.planner.show import show

Lower: TypeAlias = Callable[[Logical], Physical]


def table_join(node: Join, lower: Lower) -> Physical:
    """A join of which one side ``looks_up`` the other."""
    turned = _table_is_left(node)
    stream, table = (node.right, node.left) if turned else (node.left, node.right)
    kind = {"right": "left", "cross": "inner"}.get(node.kind, node.kind)
    own, width = len(stream.schema), len(node.left.schema)
    parts = [] if node.condition is None else conjuncts(node.condition)
    if turned:
        parts = [_turned(e, width, own) for e in parts]
    sides = Sides(own, (), ())  # nothing that waits needs a band
    terms = take_apart(parts, (), sides)
    left, lefts = with_columns(lower(stream), [a for a, _ in terms.keys])
    right, rights = with_columns(read_ahead(lower(table)), [b for _, b in terms.keys])
    above = [e for e in terms.rest if kind == "inner" and not runs_inside(e)]
    below = [e for e in terms.rest if kind != "inner" and not runs_inside(e)]
    for e in below:
        _refuse_condition(node, e, sides)
    left, mine = with_columns(left, [sides.own(e) for e in below if sides.of(e) == 0])
    right, theirs = with_columns(right, [sides.own(e) for e in below if sides.of(e) == 1])
    first = len(left.schema)
    inside = [behind(e, own, first - own) for e in terms.rest if runs_inside(e)]
    fields = (*left.schema, *right.schema)
    inside += [
        Column(c, fields[c].name, fields[c].type, fields[c].nullable)
        for c in (*mine, *(first + c for c in theirs))
    ]
    columns = range(own), range(first, first + len(table.schema))
    if kind in ("semi", "anti"):
        shown: tuple[int, ...] = tuple(columns[0])
    else:
        shown = (*columns[turned], *columns[not turned])
    keys = tuple(zip(lefts, rights, strict=True))
    why = _why(right, bool(keys))
    made = TableJoinExec(left, right, kind, keys, tuple(inside), shown, why, node.pos)
    if not above:
        return made
    if turned:
        above = [_turned(e, own, width) for e in above]
    return FilterExec(made, conjunction(above))


def _table_is_left(node: Join) -> bool:
    """Which side is looked up in: the one that is a table; of two, the smaller if that is known,
    else the right one."""
    if node.kind in ("left", "semi", "anti"):
        return False
    if node.kind == "right" or not is_table(node.right):
        return True
    if not is_table(node.left):
        return False
    left, right = _rows(node.left), _rows(node.right)
    return left is not None and right is not None and left < right


def _rows(node: Logical) -> int | None:
    """At most so many, where that is known."""
    match node:
        case Scan():
            return node.relation.statistics.rows
        case Values():
            return len(node.rows)
        case Filter() | Project():
            return _rows(node.input)
        case _:
            return None


def _turned(expr: Expr, width: int, own: int) -> Expr:
    """``expr`` over ``width`` columns and ``own`` behind them, when these come first."""
    if isinstance(expr, Column):
        at = expr.index
        return replace(expr, index=at + own if at < width else at - width)
    return rebuild(expr, lambda e: _turned(e, width, own))


def _refuse_condition(node: Join, expr: Expr, sides: Sides) -> None:
    """Whether a row has a partner must be known before it passes."""
    kind = {"semi": "SEMI JOIN", "anti": "ANTI JOIN"}.get(node.kind, f"{node.kind.upper()} JOIN")
    if functions.can_fail(expr):
        raise NotSupportedError(
            f"a condition of {kind} that can fail is not supported by this version: {show(expr)}",
            position=expr.pos or node.pos,
            hint="compute it in a subquery of the side that it reads, or by try_cast, try_divide",
        )
    if sides.of(expr) is None:
        raise NotSupportedError(
            f"this condition of {kind} over both sides is not supported by this version:"
            f" {show(expr)}",
            position=expr.pos or node.pos,
            hint="comparisons of columns, and of what subqueries compute from one side, run",
        )


def _why(table: Physical, by_key: bool) -> str:
    names = ", ".join(dict.fromkeys(s.name for s in sources(table))) or "the table"
    how = "by key" if by_key else "all of it for each row: no equality"
    return f"{names} is read before the first row and looked up in, {how}; rows pass as they come"
