"""Joins with tables: the table is read before the stream, and each stream row looks up its partners
as it passes. No stream row waits, so the stream keeps its order, watermark and late rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from cql.planner.lower.joins.pair_columns import with_columns
from cql.planner.lower.joins.pair_condition import Below
from cql.planner.nodes.expr import Column, Expr, conjunction, conjuncts, rebuild
from cql.planner.nodes.logical import (
    Filter,
    Join,
    Logical,
    Project,
    Scan,
    Values,
)
from cql.planner.nodes.physical import FilterExec, Physical, TableJoinExec, read_ahead, sources
from cql.planner.nodes.rewrite import replace
from cql.planner.optimize.join_condition import Sides, split_condition

Lower: TypeAlias = Callable[[Logical], Physical]


def table_join(node: Join, lower: Lower) -> Physical:
    """A join in which one side looks up rows of the other (``looks_up``)."""
    turned = _table_is_left(node)
    stream, table = (node.right, node.left) if turned else (node.left, node.right)
    kind = {"right": "left", "cross": "inner"}.get(node.kind, node.kind)
    own, width = len(stream.schema), len(node.left.schema)
    parts = [] if node.condition is None else conjuncts(node.condition)
    if turned:
        parts = [_turned(e, width, own) for e in parts]
    sides = Sides(own, (), ())  # no progressing columns: no row waits, so no band is needed
    terms = split_condition(parts, (), sides)
    left, lefts = with_columns(lower(stream), [a for a, _ in terms.keys])
    right, rights = with_columns(read_ahead(lower(table)), [b for _, b in terms.keys])
    below = Below(left, right, sides, kind)
    on_pair = [below.on_pair(e) for e in terms.rest]
    above = [e for e, inside in zip(terms.rest, on_pair, strict=True) if inside is None]
    rest = tuple(below.behind(e) for e in on_pair if e is not None)
    left, right = below.left, below.right
    first = len(left.schema)
    columns = range(own), range(first, first + len(table.schema))
    if kind in ("semi", "anti"):
        shown: tuple[int, ...] = tuple(columns[0])
    else:
        shown = (*columns[turned], *columns[not turned])
    keys = tuple(zip(lefts, rights, strict=True))
    why = _why(right, bool(keys))
    made = TableJoinExec(left, right, kind, keys, rest, shown, why, node.pos)
    if not above:
        return made
    if turned:
        above = [_turned(e, own, width) for e in above]
    return FilterExec(made, conjunction(above))


def _table_is_left(node: Join) -> bool:
    """Whether the left side is the table to look up in. Of two tables it is the smaller one, if
    both row counts are known, else the right one."""
    if node.kind in ("left", "semi", "anti"):
        return False
    if node.kind == "right" or not node.right.is_table:
        return True
    if not node.left.is_table:
        return False
    left, right = _rows(node.left), _rows(node.right)
    return left is not None and right is not None and left < right


def _rows(node: Logical) -> int | None:
    """Upper bound of the number of rows, perhaps estimated; None if unknown."""
    match node:
        case Scan():
            return node.relation.statistics.expected_rows
        case Values():
            return len(node.rows)
        case Filter() | Project():
            return _rows(node.input)
    return None


def _turned(expr: Expr, width: int, own: int) -> Expr:
    """``expr`` after the first ``width`` columns have moved behind the ``own`` columns that follow
    them."""
    if isinstance(expr, Column):
        at = expr.index
        return replace(expr, index=at + own if at < width else at - width)
    return rebuild(expr, lambda e: _turned(e, width, own))


def _why(table: Physical, by_key: bool) -> str:
    names = ", ".join(dict.fromkeys(s.name for s in sources(table))) or "the table"
    how = "by key" if by_key else "all of it for each row: no equality"
    return f"{names} is read before the first row and looked up in, {how}; rows pass as they come"
