"""Joins with tables: a table is read before the stream, whose rows find their partners as they
pass. Nothing of the stream waits, so that its order, its progress and its late rows stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from cql.planner.lower.joins.pair_columns import with_columns
from cql.planner.lower.joins.pair_condition import Below
from cql.planner.nodes.expr import Column, Expr, conjunction, conjuncts, rebuild
from cql.planner.nodes.logical import Filter, Join, Logical, Project, Scan, Values
from cql.planner.nodes.physical import FilterExec, Physical, read_ahead, sources
from cql.planner.nodes.physical_join import TableJoinExec
from cql.planner.nodes.rewrite import replace
from cql.planner.optimize.join_condition import Sides, take_apart
from cql.planner.optimize.progress import is_table

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
    below = Below(left, right, sides, kind)
    placed = [below.placed(e) for e in terms.rest]
    above = [e for e, inside in zip(terms.rest, placed, strict=True) if inside is None]
    asked = tuple(below.behind(e) for e in placed if e is not None)
    left, right = below.left, below.right
    first = len(left.schema)
    columns = range(own), range(first, first + len(table.schema))
    if kind in ("semi", "anti"):
        shown: tuple[int, ...] = tuple(columns[0])
    else:
        shown = (*columns[turned], *columns[not turned])
    keys = tuple(zip(lefts, rights, strict=True))
    why = _why(right, bool(keys))
    made = TableJoinExec(left, right, kind, keys, asked, shown, why, node.pos)
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


def _why(table: Physical, by_key: bool) -> str:
    names = ", ".join(dict.fromkeys(s.name for s in sources(table))) or "the table"
    how = "by key" if by_key else "all of it for each row: no equality"
    return f"{names} is read before the first row and looked up in, {how}; rows pass as they come"
