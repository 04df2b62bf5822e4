"""The order in which more than two inputs are joined, if all their joins are inner.

Inputs join one by one: first the two with the fewest expected pairs, then always the input that
keeps the pairs fewest. The estimates come from the statistics (System R: Selinger et al., "Access
Path Selection in a Relational Database Management System", SIGMOD 1979, section 4): an equality
keeps one of n pairs, where n is the number of distinct values of the side that has more. The
written order stays unless the other order is expected to be clearly better.

Streams with bands stay as written if each input has a band with one before it. Otherwise an order
is taken in which each input has one, because bands bound the state (out-of-order paper §5.3).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeGuard, assert_never

from cql.base.window import WindowKind
from cql.planner.bind.scope import column_of
from cql.planner.functions import registry
from cql.planner.nodes.expr import (
    Call,
    Case,
    Cast,
    Column,
    Expr,
    Literal,
    columns_of,
    conjunction,
    conjuncts,
    rebuild,
)
from cql.planner.nodes.logical import (
    Aggregate,
    Filter,
    Join,
    Logical,
    Project,
    Scan,
    Values,
    Windowed,
    is_inner,
)
from cql.planner.nodes.rewrite import replace
from cql.planner.optimize.changelog import is_relation
from cql.planner.optimize.join_condition import Sides, Terms, compares_equal, split_condition

#: Assumed rows of an input without statistics, and the share of rows inside a window of RANGE.
_ROWS, _LIVE = 100_000.0, 0.01
#: Assumed keys of a window with PARTITION BY, without statistics.
_KEYS = 100.0
#: Share of rows or pairs that a condition other than an equality keeps.
_KEPT = 1 / 3
#: Largest share of the written order's pairs that another order may have to be chosen.
_BETTER = 0.7
#: The inputs, as numbered in the query, in the order in which they join; and the reason.
_Chosen: TypeAlias = tuple[tuple[int, ...], str]


@dataclass(frozen=True, slots=True)
class _Chain:
    """The inputs as they are written, and the conditions over all their columns in that order."""

    leaves: tuple[Logical, ...]
    parts: tuple[Expr, ...]

    @property
    def firsts(self) -> tuple[int, ...]:
        """The place of the first column of each input."""
        found = [0]
        for leaf in self.leaves:
            found.append(found[-1] + len(leaf.schema))
        return tuple(found[:-1])

    def place(self, column: int) -> tuple[int, int]:
        """The input of a column, and the column's place in that input."""
        at = max(k for k, first in enumerate(self.firsts) if first <= column)
        return at, column - self.firsts[at]

    def read(self, part: Expr) -> frozenset[int]:
        """The inputs that a condition reads."""
        return frozenset(self.place(c)[0] for c in columns_of(part))


def order_joins(plan: Logical) -> Logical:
    """``plan`` with its inner joins in another order, if that order is better or the only one that
    can run. The columns keep their order."""
    if _moves(plan) and (chosen := _chosen(chain := _chain(plan))) is not None:
        order, why = chosen
        leaves = tuple(map(order_joins, chain.leaves))
        return _joined(replace(chain, leaves=leaves), order, plan, why)
    return plan.map_inputs(order_joins)


def _chosen(chain: _Chain) -> _Chosen | None:
    """The order in which the inputs join; None: as written. Another order must not change which
    rows are bad or late (lookups in tables pass late rows), unless endless streams have to join in
    it."""
    if len(chain.leaves) < 3:
        return None
    held = all(is_relation(leaf) or leaf.is_bounded for leaf in chain.leaves)
    if held and any(leaf.is_table for leaf in chain.leaves):
        return None
    if held and not any(registry.can_fail(part) for part in chain.parts):
        return _of_few_pairs(chain)
    if any(map(is_relation, chain.leaves)):
        return None
    return _of_bands(chain) if not held or all(_is_safe(chain, p) for p in chain.parts) else None


def joins_several(plan: Logical) -> bool:
    """Whether some inner join has more than two inputs, which join in an order."""
    if _moves(plan) and len(_chain(plan).leaves) > 2:
        return True
    return any(map(joins_several, plan.inputs))


def _moves(node: Logical) -> TypeGuard[Join]:
    """Whether ``node`` is a join whose inputs may move. PARTITION BY fixes the join as written."""
    return isinstance(node, Join) and is_inner(node) and node.partitioning is None


def _chain(node: Logical) -> _Chain:
    if not _moves(node):
        return _Chain((node,), ())
    left, right, width = _chain(node.left), _chain(node.right), len(node.left.schema)
    own = () if node.condition is None else tuple(conjuncts(node.condition))
    moved = tuple(_shifted(part, width) for part in right.parts)
    return _Chain((*left.leaves, *right.leaves), (*left.parts, *moved, *own))


def _shifted(expr: Expr, by: int) -> Expr:
    if isinstance(expr, Column):
        return replace(expr, index=expr.index + by)
    return rebuild(expr, lambda e: _shifted(e, by))


# -- bands -----------------------------------------------------------------------------------------


def _of_bands(chain: _Chain) -> _Chosen | None:
    """The order closest to the written one in which each stream has a band with one before it.
    Tables, which are looked up, come last."""
    tables = [k for k, leaf in enumerate(chain.leaves) if leaf.is_table]
    first, *rest = (k for k in range(len(chain.leaves)) if k not in tables)
    order: tuple[int, ...] = (first,)
    while rest:
        near = [k for k in rest if any(_is_near(chain, j, k) for j in order)]
        if not near:
            return None
        order = (*order, near[0])
        rest.remove(near[0])
    if list(order) == sorted(order):
        return None
    order = (*order, *tables)
    names = ", ".join(_name(chain.leaves[k]) for k in order)
    return order, f"order {names}: each has a band with one before it, not so as written"


def _is_near(chain: _Chain, one: int, other: int) -> bool:
    """Whether two inputs have a band that bounds the state of a join of them."""
    return (band := _terms(chain, chain.parts, one, other).band) is not None and band.closed


def _is_safe(chain: _Chain, part: Expr) -> bool:
    """Whether a condition cannot fail. A band cannot: the join compares it without computing it."""
    if not registry.can_fail(part):
        return True
    read = sorted(chain.read(part))
    return len(read) == 2 and _terms(chain, [part], read[0], read[1]).band is not None


def _terms(chain: _Chain, parts: Sequence[Expr], one: int, other: int) -> Terms:
    """The terms of the conditions that read exactly these two inputs."""
    left, right = chain.leaves[one], chain.leaves[other]
    width = len(left.schema)
    now = dict([*_places(chain, one, 0), *_places(chain, other, width)])
    here = [_moved(part, now) for part in parts if chain.read(part) == {one, other}]
    return split_condition(
        here, [], Sides(width, tuple(left.progressing), tuple(right.progressing))
    )


# -- fewest pairs --------------------------------------------------------------------------------


def _of_few_pairs(chain: _Chain) -> _Chosen | None:
    """The order that is expected to have the fewest pairs, if they are clearly fewer."""
    order = _order(chain)
    before, after = _pairs(chain, range(len(chain.leaves))), _pairs(chain, order)
    if sum(after) > _BETTER * sum(before):
        return None
    names = ", ".join(_name(chain.leaves[k]) for k in order)
    why = f"order {names}: about {sum(after):,.0f} pairs at a time, as written {sum(before):,.0f}"
    return order, why


def _order(chain: _Chain) -> tuple[int, ...]:
    """A greedy order. Inputs that are related to those already joined come first."""
    rest = set(range(len(chain.leaves)))
    pairs = [(a, b) for a in rest for b in rest if a < b]
    related = [p for p in pairs if _related(chain, (p[0],), p[1])] or pairs
    first = min(related, key=lambda p: (_size(chain, p), p))
    small = sorted(first, key=lambda k: (_rows(chain.leaves[k]), k))
    order = tuple(small)
    rest -= {*order}
    while rest:
        near = [k for k in rest if _related(chain, order, k)] or sorted(rest)
        following = min(near, key=lambda k: (_size(chain, (*order, k)), k))
        order = (*order, following)
        rest.discard(following)
    return order


def _related(chain: _Chain, joined: Sequence[int], leaf: int) -> bool:
    known = {*joined, leaf}
    reads = (chain.read(part) for part in chain.parts)
    return any(leaf in read and len(read) > 1 and read <= known for read in reads)


def _pairs(chain: _Chain, order: Sequence[int]) -> list[float]:
    """Expected number of rows of each join but the last, which is the same in all orders."""
    return [_size(chain, order[:k]) for k in range(2, len(order))]


def _size(chain: _Chain, leaves: Sequence[int]) -> float:
    size, inside = 1.0, frozenset(leaves)
    for k in leaves:
        size *= _rows(chain.leaves[k])
    for part in chain.parts:
        read = chain.read(part)
        if read <= inside:
            size *= _kept(chain, part)
    return size


def _kept(chain: _Chain, part: Expr) -> float:
    match compares_equal(part):
        case (Column() as a, Column() as b, _):
            places = (chain.place(c.index) for c in (a, b))
            return 1 / max(_distinct(chain.leaves[leaf], c) for leaf, c in places)
        case None:
            return _KEPT
        case _:
            return 0.1


# -- what is expected of an input ----------------------------------------------------------------


def _rows(node: Logical) -> float:
    """Expected number of rows that are held at a time."""
    match node:
        case Scan():
            rows = node.relation.statistics.expected_rows
            return _ROWS if rows is None else max(1.0, float(rows))
        case Values():
            return max(1.0, float(len(node.rows)))
        case Filter():
            kept = 1.0
            for part in conjuncts(node.condition):
                kept *= _selected(node.input, part)
            return max(1.0, kept * _rows(node.input))
        case Windowed():
            return _in_window(node)
        case Aggregate():
            below, groups = _rows(node.input), 1.0
            for key in node.keys:
                groups *= _distinct(node.input, key.index) if isinstance(key, Column) else below
            return max(1.0, min(below, groups))
    return max((_rows(child) for child in node.inputs), default=1.0)


def _in_window(node: Windowed) -> float:
    window, rows = node.window, _rows(node.input)
    match window.kind:
        case WindowKind.NOW:
            return 1.0
        case WindowKind.RANGE:
            return max(1.0, _LIVE * rows)
        case WindowKind.ROWS:
            keys = 1.0
            for column in window.partition_by:
                known = _known(node.input, column)
                keys *= _KEYS if known is None else known
            return rows if window.rows is None else min(rows, window.rows * keys)
        case _:
            return rows


def _selected(node: Logical, part: Expr) -> float:
    match part:
        case Call(fn="eq", args=(Column() as c, Literal())):
            return 1 / _distinct(node, c.index)
        case Column() | Literal() | Call() | Case() | Cast():
            return _KEPT
        case _:
            assert_never(part)


def _distinct(node: Logical, column: int) -> float:
    """Expected number of values of a column; without statistics a tenth of the rows."""
    rows, known = _rows(node), _known(node, column)
    return max(1.0, rows / 10 if known is None else min(rows, known))


def _known(node: Logical, column: int) -> float | None:
    match node:
        case Scan():
            distinct = node.relation.statistics.distinct
            known = distinct.get(node.schema[column].name)
            return None if known is None else float(known)
        case Filter() | Windowed():
            return _known(node.input, column)
        case Project():
            expr = node.exprs[column]
            return _known(node.input, expr.index) if isinstance(expr, Column) else None
    return None


# -- the plan ------------------------------------------------------------------------------------


def _joined(chain: _Chain, order: Sequence[int], written: Join, why: str) -> Logical:
    """A left-deep join in the ``order``. Each condition is at the first join that has all its
    columns, or at the last join if it can fail. A projection restores the columns' order."""
    now: dict[int, int] = {}  # a column as written → where it is
    made = chain.leaves[order[0]]
    now |= _places(chain, order[0], 0)
    left = list(chain.parts)
    for k in range(1, len(order)):
        now |= _places(chain, order[k], len(made.schema))
        inside = frozenset(order[: k + 1])
        last = k == len(order) - 1
        here = [p for p in left if chain.read(p) <= inside and (last or _is_safe(chain, p))]
        left = [part for part in left if part not in here]
        condition = conjunction([_moved(part, now) for part in here]) if here else None
        kind = "inner" if here else "cross"
        right = chain.leaves[order[k]]
        made = Join(made, right, kind, condition, written.pos, why if last else "")
    exprs = tuple(
        replace(column_of(made, now[c]), name=f.name) for c, f in enumerate(written.schema)
    )
    return Project(made, exprs, written.schema.names, written.pos)


def _places(chain: _Chain, leaf: int, first: int) -> Iterator[tuple[int, int]]:
    width = len(chain.leaves[leaf].schema)
    return ((chain.firsts[leaf] + k, first + k) for k in range(width))


def _moved(expr: Expr, places: Mapping[int, int]) -> Expr:
    if isinstance(expr, Column):
        return replace(expr, index=places[expr.index])
    return rebuild(expr, lambda e: _moved(e, places))


def _name(node: Logical) -> str:
    while not isinstance(node, Scan) and node.inputs:
        node = node.inputs[0]
    return node.relation.name[-1] if isinstance(node, Scan) else "a subquery"
