"""ISTREAM of a join of ``a [NOW]`` with ``b [PARTITION BY k ROWS n]`` as a join of streams.

A row of ``a [NOW]`` is there at its own instant only. So its pairs are those with the last n rows
of its key at that instant, and what happens to them later is of no concern: the join needs the
rows of ``b``, not the changes of the relation (``AsofJoinExec`` with ``rows``).
"""

from __future__ import annotations

from dataclasses import replace

from cql.base.window import WindowKind
from cql.planner.nodes.expr import Column, conjunction
from cql.planner.nodes.physical import (
    AsofJoinExec,
    FilterExec,
    Physical,
    ProjectExec,
    RelationExec,
    RelationJoinExec,
    StreamExec,
    sources,
)

_KINDS = ("inner", "left")


def with_latest_rows(stream: StreamExec) -> Physical:
    """``stream`` or, where a join of streams has the same result, that join."""
    above: list[FilterExec | ProjectExec] = []
    node = stream.input
    while isinstance(node, FilterExec | ProjectExec):
        above.append(node)
        node = node.input
    if stream.kind != "istream" or not isinstance(node, RelationJoinExec):
        return stream
    joined = _joined(node)
    if joined is None or not _shows_instant(node, above):
        return stream
    for outer in reversed(above):
        if isinstance(outer, ProjectExec):  # without the weight
            names = outer.names[:-1]
            joined = replace(outer, input=joined, exprs=outer.exprs[:-1], names=names)
        else:
            joined = replace(outer, input=joined)
    return joined


def _joined(node: RelationJoinExec) -> Physical | None:
    """The columns of the join of relations, then the instant; None if the rule does not apply."""
    left, right = node.left, node.right
    if not (isinstance(left, RelationExec) and isinstance(right, RelationExec)):
        return None
    now, last = left.window, right.window
    if now.kind is not WindowKind.NOW or last.kind is not WindowKind.ROWS or last.slide is not None:
        return None
    if last.change is not None:
        return None
    by = sorted(key for _, key in node.keys)
    if not by or by != sorted(last.partition_by) or node.kind not in _KINDS:
        return None
    if node.kind == "left" and node.rest:
        return None
    assert now.wa is not None
    assert last.wa is not None
    instant = left.schema[len(left.schema) - 2]
    if left.input.schema[now.wa].type != instant.type or not _idle_together(left, right):
        return None
    pair = node.pair
    made: Physical = AsofJoinExec(
        left.input,
        right.input,
        node.keys,
        (now.wa, last.wa),
        backward=True,
        shift=0,
        tolerance=None,
        pads=node.kind == "left",
        columns=tuple(range(len(pair))),
        why="a row that is there for one instant needs the rows of that instant only",
        rows=last.rows or 0,
        pos=node.pos,
    )
    if node.rest:
        made = FilterExec(made, conjunction(node.rest))
    columns = [Column(c, pair[c].name, pair[c].type, pair[c].nullable) for c in node.columns]
    columns.append(Column(now.wa, instant.name, instant.type, instant.nullable))
    return ProjectExec(made, tuple(columns), tuple(c.name for c in columns))


def _idle_together(left: Physical, right: Physical) -> bool:
    """Whether no side can be idle while the other one goes on: the relations would count late rows
    otherwise."""
    inputs = {s.name for side in (left, right) for s in sources(side)}
    return len(inputs) == 1 or (left.bounded and right.bounded)


def _shows_instant(node: RelationJoinExec, above: list[FilterExec | ProjectExec]) -> bool:
    """Whether the output has the time of the left row: then no row is equal to one of the instant
    before, which ISTREAM would leave out."""
    assert isinstance(node.left, RelationExec)
    wa = node.left.window.wa
    found = {k for k, c in enumerate(node.columns) if c == wa}
    for outer in reversed(above):
        if isinstance(outer, ProjectExec):
            shown = enumerate(outer.exprs[:-2])
            found = {k for k, e in shown if isinstance(e, Column) and e.index in found}
    return bool(found)
