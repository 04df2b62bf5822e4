"""PARTITION BY in a plan: the operators that it splits, those that it cannot split, and the source
columns of the keys, whose lowest and highest values divide a RANGE."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from cql.base.window import WindowKind, WindowOperator
from cql.errors import NotSupportedError, PlanError, Position
from cql.planner.nodes.expr import Cast, Column, Expr
from cql.planner.nodes.logical import Aggregate, Join, Logical, Partitioning
from cql.planner.nodes.physical import (
    AsofJoinExec,
    OopJoinExec,
    Physical,
    SourceExec,
    WidAggregateExec,
    walk,
)
from cql.planner.nodes.rewrite import replace
from cql.planner.nodes.show import show
from cql.planner.optimize.changelog import is_relation
from cql.planner.optimize.join_condition import key_column

#: Operators that PARTITION BY may name.
Split: TypeAlias = WidAggregateExec | OopJoinExec | AsofJoinExec


def of_join(node: Join, keys: Sequence[tuple[Expr, Expr]]) -> Partitioning | None:
    """The partitioning of a join with these ``keys``.

    Raises PlanError for a column that is no key of the join."""
    split, width = node.partitioning, len(node.left.schema)
    if split is None:
        return None
    places = []
    for column in split.keys:
        at = [
            k
            for k, (left, right) in enumerate(keys)
            if _is(left, column) or _is(right, column - width)
        ]
        if not at:
            pairs = (f"{show(left)} = {show(right)}" for left, right in keys)
            shown = ", ".join(pairs) or "it has none"
            name = node.schema[column].name
            raise PlanError(
                f"{name} is not among the keys of this join ({shown})",
                position=split.pos,
                hint="rows are split by what ON or WHERE says to be equal in both inputs",
            )
        places.append(at[0])
    return replace(split, keys=tuple(places))


def without(split: Partitioning | None, at: int) -> Partitioning | None:
    """The partitioning of an aggregate without key ``at``, which closes its groups.

    Raises PlanError if that key is one of PARTITION BY."""
    if split is None:
        return None
    if at in split.keys:
        raise PlanError(
            "a key that rises and closes groups splits none: those of a time are together",
            position=split.pos,
            hint="PARTITION BY another key of GROUP BY",
        )
    return replace(split, keys=tuple(k - (k > at) for k in split.keys))


def check(logical: Logical, root: Physical, settings: Mapping[str, Any]) -> None:
    """Raises NotSupportedError if PARTITION BY names what a plan for ``logical`` cannot split."""
    found = [n for n in walk(root) if isinstance(n, Split) and n.partitioning is not None]
    kept = {n.partitioning.pos for n in found if n.partitioning is not None}
    for node in _asking(logical):
        if node.partitioning is not None and node.partitioning.pos not in kept:
            raise _refusal(*_lost(node, settings), node.partitioning.pos)
    for split in found:
        assert split.partitioning is not None
        whole = _whole(split)
        if whole is not None:
            raise _refusal(*whole, split.partitioning.pos)
        if split.partitioning.scheme == "RANGE":
            _check_range(split, split.partitioning)


def _asking(node: Logical) -> Iterator[Aggregate | Join]:
    if isinstance(node, Aggregate | Join) and node.partitioning is not None:
        yield node
    for child in node.inputs:
        yield from _asking(child)


def _lost(node: Aggregate | Join, settings: Mapping[str, Any]) -> tuple[str, str]:
    """A phrase for an operator that has nothing to split, and a remedy."""
    whole = "leave the clause out: it only says how work is shared"
    if isinstance(node, Aggregate):
        return "an aggregate of a relation that changes", whole
    if node.looks_up:
        return "a join with a table", whole
    if is_relation(node):
        return "a join of relations that change", whole
    return f"the operator of SET join_operator = '{settings['join_operator']}'", (
        "SET join_operator = 'oop_join'"
    )


def _whole(node: Split) -> tuple[str, str] | None:
    """A phrase for an operator that cannot be split, and a remedy; None if it can be split."""
    whole = "leave the clause out: it only says how work is shared"
    if isinstance(node, OopJoinExec | AsofJoinExec):
        if node.can_split:
            return None
        if isinstance(node, AsofJoinExec):
            if node.keys:
                return "an ASOF join with the next row", whole
        elif node.keys:
            return f"{_article(node.kind)} {node.kind} join", whole
        return "a join without keys", "ON a.k = b.k says what is equal in both inputs"
    if node.can_split:
        return None
    if not node.keys:
        return "an aggregate without keys beside the one that closes its groups", whole
    if node.by is not None:
        return "an aggregate with a watermark of each value (PUNCTUATE BY)", whole
    if node.adaptive:
        return "windows of SET adaptive_windows = on", "SET adaptive_windows = off"
    kind = node.window.kind if node.window is not None else None
    if kind is WindowKind.SESSION:
        return "session windows", whole
    if kind is WindowKind.CUMULATE:
        return "windows with CUMULATE", whole
    if node.operator is not WindowOperator.WID:
        return f"windows by {node.operator}", "SET window_operator = 'panes'"
    return "this aggregate", whole


def _article(word: str) -> str:
    return "an" if word[0] in "aeiou" else "a"


def _check_range(node: Split, split: Partitioning) -> None:
    if all(origins(below, key) for below, key in ranged(node, split)):
        return
    raise NotSupportedError(
        "PARTITION BY RANGE of a key that no input has as it is, is not supported: nothing is known"
        " of its lowest and highest value",
        position=split.pos,
        hint="PARTITION BY HASH(…)",
    )


def ranged(node: Split, split: Partitioning) -> list[tuple[Physical, Expr]]:
    """Each input of the operator, with the key of a RANGE over it."""
    (at,) = split.keys
    if isinstance(node, WidAggregateExec):
        return [(node.input, node.keys[at])]
    sides = zip((node.left, node.right), node.keys[at], strict=True)
    return [
        (side, Column(c, side.schema[c].name, side.schema[c].type, side.schema[c].nullable))
        for side, c in sides
    ]


def origins(node: Physical, key: Expr) -> list[tuple[SourceExec, int]]:
    """The source columns from which all values of a key come unchanged; empty if some values do
    not. An integer may have become wider."""
    if isinstance(key, Cast) and key.type.is_integer and key.arg.type.is_integer:
        key = key.arg
    if not isinstance(key, Column):
        return []
    if isinstance(node, SourceExec):
        return [(node, key.index)]
    found = [origins(node.inputs[port], expr) for port, expr in node.values_from(key.index)]
    return [place for places in found for place in places] if all(found) else []


def text(node: Split, runtime: str) -> str | None:
    """How an operator is split, for EXPLAIN; None without PARTITION BY."""
    split = node.partitioning
    if split is None:
        return None
    if runtime != "ordered":
        return f"not split: {runtime} (PARTITION BY)"
    if isinstance(node, WidAggregateExec):
        named = [show(key) for key in node.keys]
    else:
        named = [node.left.schema[a].name for a, _ in node.keys]
    chosen = [named[k] for k in split.keys] or named
    many = f"{split.parts} part{'' if split.parts == 1 else 's'}"
    return f"{many} by {split.scheme.lower()} of {', '.join(chosen)} (PARTITION BY)"


def _is(expr: Expr, column: int) -> bool:
    expr = key_column(expr)
    return isinstance(expr, Column) and expr.index == column


def _refusal(what: str, remedy: str, pos: Position | None) -> NotSupportedError:
    return NotSupportedError(f"PARTITION BY of {what} is not supported", position=pos, hint=remedy)
