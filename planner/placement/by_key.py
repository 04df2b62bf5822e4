"""Keys by which tasks can share a plan: rows with different values of a key never meet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from cql.base.types import DataType, Kind
from cql.planner.nodes.catalog import Relation
from cql.planner.nodes.expr import Cast, Column, Expr
from cql.planner.nodes.physical import (
    AsofJoinExec,
    DupelimExec,
    FilterExec,
    KeyWindowsExec,
    LookupExec,
    OnTimeExec,
    OopJoinExec,
    Physical,
    ProjectExec,
    SourceExec,
    TableJoinExec,
    UnionExec,
    UnnestExec,
    WidAggregateExec,
    sources,
    walk,
)
from cql.planner.nodes.physical.numbers import SourceNumbers
from cql.planner.placement.broadcast import looks_up, tables

#: One column of each source below an operator, as (index in ``physical.sources``, index in the
#: schema of the relation), whose values become the same values of the operator's rows.
Key: TypeAlias = frozenset[tuple[int, int]]
#: Types whose values tasks send to each other, and tell by their content.
KINDS = frozenset(
    (
        Kind.BOOLEAN,
        Kind.TINYINT,
        Kind.SMALLINT,
        Kind.INT,
        Kind.BIGINT,
        Kind.FLOAT,
        Kind.DOUBLE,
        Kind.DECIMAL,
        Kind.DATE,
        Kind.TIMESTAMP,
        Kind.TIMESTAMP_NTZ,
        Kind.STRING,
        Kind.BINARY,
    )
)


@dataclass(frozen=True, slots=True)
class _Keys:
    """``held``: keys by which the operators so far can be shared. ``seen``: those of them that are
    columns of the output, by their index."""

    held: frozenset[Key]
    seen: Mapping[int, Key]

    def only(self, seen: Mapping[int, Key]) -> _Keys:
        """With the keys ``seen`` alone: an operator compares the rows by their values."""
        return _Keys(frozenset(seen.values()), seen)


def columns_of(root: Physical) -> tuple[tuple[int, ...], ...]:
    """For each of ``physical.sources`` the columns of a key of several columns (indices in the
    schema of the relation) by which tasks can share the plan; columns at one place of two sources
    have equal values in rows that meet. A broadcast table has no columns. Empty: there is no such
    key."""
    found, whole = sources(root), tables(root)
    places = SourceNumbers(root)
    keys = _keys(root, places)
    split = [places[source] for source in found if source not in whole]
    chosen = sorted(sorted(key) for key in keys.held if _is_usable(key, found, split))
    if not chosen:
        return ()
    columns = {n: tuple(dict(key)[n] for key in chosen) for n in split}
    return tuple(columns.get(n, ()) for n in range(len(found)))


def _is_usable(key: Key, found: tuple[SourceExec, ...], split: list[int]) -> bool:
    """Whether the key names each shared source once and, of a relation that is read twice, one
    column."""
    columns: dict[tuple[str, ...], int] = {}
    for n, column in key:
        if columns.setdefault(found[n].relation.name, column) != column:
            return False
    return sorted(n for n, _ in key) == split


_NONE = _Keys(frozenset(), {})


def _keys(node: Physical, places: SourceNumbers) -> _Keys:
    match node:
        case SourceExec():
            return _of_source(node.relation, node.columns, places[node])
        case FilterExec() | OnTimeExec():
            return _keys(node.input, places)
        case DupelimExec():
            below = _keys(node.input, places)
            return below.only(below.seen)
        case ProjectExec():
            below = _keys(node.input, places)
            return _Keys(below.held, _seen(below, node.exprs))
        case UnnestExec() | TableJoinExec() if not isinstance(node, TableJoinExec) or looks_up(
            node
        ):
            below = _keys(node.input, places)
            return _Keys(below.held, _moved(below.seen, node.columns))
        case LookupExec():
            below = _keys(node.input, places)
            return _Keys(below.held, {c: key for c, key in below.seen.items() if c < node.width})
        case UnionExec(keyed_watermark=None):
            return _of_union([_keys(child, places) for child in node.inputs])
        case WidAggregateExec(by=None) if in_any_order(node) or _keeps_order(node.input):
            below = _keys(node.input, places)
            return below.only(_seen(below, node.keys))
        case KeyWindowsExec() if _keeps_order(node.input):
            below = _keys(node.input, places)
            return below.only({c: below.seen[c] for c in node.windows.by if c in below.seen})
        case OopJoinExec():
            pads = node.loose(0), node.loose(1)
            return _of_join(node, node.left, node.right, pads, places)
        case AsofJoinExec() if _keeps_order(node.right):
            return _of_join(node, node.left, node.right, (False, node.pads), places)
        case TableJoinExec():
            return _of_join(node, node.input, node.table, (False, node.kind == "left"), places)
    return _NONE


def _of_source(relation: Relation, columns: Iterable[int], place: int) -> _Keys:
    seen = {
        n: frozenset({(place, c)})
        for n, c in enumerate(columns)
        if relation.schema[c].type.kind in KINDS and not relation.schema[c].type.length
    }
    return _Keys(frozenset(seen.values()), seen)


def _seen(below: _Keys, exprs: Iterable[Expr]) -> dict[int, Key]:
    """The keys among computed columns: columns as they are, and integers that became wider."""
    made = {}
    for n, expr in enumerate(exprs):
        if isinstance(expr, Cast) and _is_wider(expr.type, expr.arg.type):
            expr = expr.arg
        if isinstance(expr, Column) and expr.index in below.seen:
            made[n] = below.seen[expr.index]
    return made


def _is_wider(after: DataType, before: DataType) -> bool:
    both = after.is_integer and before.is_integer
    return both and np.can_cast(before.storage, after.storage)


def _moved(seen: Mapping[int, Key], columns: Iterable[int]) -> dict[int, Key]:
    return {n: seen[c] for n, c in enumerate(columns) if c in seen}


def _of_union(below: list[_Keys]) -> _Keys:
    """A key that is one column of the union has a column of each input."""
    everywhere = set.intersection(*(set(keys.seen) for keys in below))
    seen = {c: frozenset().union(*(keys.seen[c] for keys in below)) for c in everywhere}
    return _NONE.only(seen)


def _of_join(
    node: OopJoinExec | AsofJoinExec | TableJoinExec,
    left: Physical,
    right: Physical,
    pads: tuple[bool, bool],
    places: SourceNumbers,
) -> _Keys:
    """``pads``: whether the columns of the left and of the right are NULL in rows without a
    partner: the same NULL of several keys."""
    keys, others, width = _keys(left, places), _keys(right, places), len(left.schema)
    pair: dict[int, Key] = {}
    for a, b in node.keys:
        if a in keys.seen and b in others.seen:
            pair[a] = pair[width + b] = keys.seen[a] | others.seen[b]
    shown = {c: key for c, key in pair.items() if not pads[c >= width]}
    return _Keys(frozenset(pair.values()), _moved(shown, node.columns))


def _keeps_order(node: Physical) -> bool:
    """Whether the rows with one value of a key come in their order in the source."""
    return all(isinstance(found, _IN_ORDER) for found in walk(node))


_IN_ORDER = (
    SourceExec,
    FilterExec,
    ProjectExec,
    OnTimeExec,
    UnnestExec,
    DupelimExec,
    KeyWindowsExec,
)


def in_any_order(node: WidAggregateExec) -> bool:
    """Whether the results are the same in any order of the rows (sums of fractions: but for
    rounding). A user's aggregate promises that itself."""
    return all(
        call.function is not None or (call.fn in _ANY_ORDER and call.beside is None)
        for call in node.calls
    )


_ANY_ORDER = frozenset(("count", "count_if", "min", "max", "bool_and", "bool_or", "sum", "avg"))


def names_of(found: Iterable[SourceExec], columns: Iterable[tuple[int, ...]]) -> Iterator[str]:
    """The names of a key's columns, for EXPLAIN."""
    shared = [(source, of) for source, of in zip(found, columns, strict=True) if of]
    for place in zip(*(of for _, of in shared), strict=True):
        named = {s.relation.schema[c].name: None for (s, _), c in zip(shared, place, strict=True)}
        yield " = ".join(named)
