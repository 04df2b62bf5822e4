"""Nodes whose rows may come in any order within a morsel. Partitions then need not put their
outputs in order (ordered-multicore paper §4), and the result is still bit-identical.

An aggregate whose state is the same in any order hides the order of its input, but its groups leave
in the order in which they began. A sort hides that order if no two rows are equal in its keys. An
expression that can fail shows the order by the row that its error names.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cql.base.window import WindowKind
from cql.planner.functions.folding import can_fail
from cql.planner.nodes.expr import Column, Expr
from cql.planner.nodes.logical import AggregateCall
from cql.planner.nodes.physical import (
    DupelimExec,
    FilterExec,
    Physical,
    ProjectExec,
    SortExec,
    WidAggregateExec,
    inputs,
)
from cql.planner.nodes.physical_join import UnnestExec

_ANY_ORDER = frozenset(("count", "count_if", "min", "max", "bool_and", "bool_or"))


def in_order(roots: Iterable[Physical]) -> frozenset[int]:
    """The ids of the nodes whose rows must be in order."""
    found: set[int] = set()
    others: set[int] = set()  # reached where the order does not matter

    def visit(node: Physical, matters: bool) -> None:
        if id(node) in found or (not matters and id(node) in others):
            return
        (found if matters else others).add(id(node))
        for child in inputs(node):
            visit(child, _needs_order(node, matters))

    for root in roots:
        visit(root, True)
    return frozenset(found)


def _needs_order(node: Physical, matters: bool) -> bool:
    """Whether a node needs the rows of its inputs in order; ``matters``: whether its own rows must
    be in order."""
    match node:
        case SortExec():
            return not is_total(node)
        case WidAggregateExec():
            exact = all(_is_exact(call) for call in node.calls)
            read = (*node.keys, *(e for c in node.calls for e in _read_by(c)))
            free = exact and _sliding(node) and not any(map(can_fail, read))
            return not free or (matters and bool(node.keys))
        case FilterExec():
            return matters or can_fail(node.condition)
        case ProjectExec():
            return matters or any(map(can_fail, node.exprs))
        case UnnestExec() | DupelimExec():  # equal rows are the same, whichever comes first
            return matters
        case _:
            return True


def _sliding(node: WidAggregateExec) -> bool:
    if type(node) is not WidAggregateExec or node.by is not None or node.adaptive:
        return False
    return node.window is None or node.window.kind is WindowKind.SLIDING


def _is_exact(call: AggregateCall) -> bool:
    """Whether the result of ``call`` is the same in any order of rows."""
    plain = call.fn in _ANY_ORDER and call.beside is None and call.function is None
    return plain and not any(arg.type.is_fraction for arg in call.args)


def _read_by(call: AggregateCall) -> Sequence[Expr]:
    return call.args if call.where is None else (*call.args, call.where)


def is_total(node: SortExec) -> bool:
    """Whether no two rows of a window are equal in its keys."""
    unique = _unique(node.input)
    keys = {key.expr.index for key in node.keys if isinstance(key.expr, Column)}
    keys |= {*node.partition, *([] if node.window_end is None else [node.window_end])}
    return unique is not None and all(places & keys for places in unique)


def _unique(node: Physical) -> list[set[int]] | None:
    """Columns in which together no two rows are equal, each as the set of its places in the output;
    None: no such columns are known."""
    match node:
        case FilterExec():
            return _unique(node.input)
        case DupelimExec():
            return [{k} for k in range(len(node.schema))]
        case ProjectExec():
            below = _unique(node.input)
            columns = [(k, e.index) for k, e in enumerate(node.exprs) if isinstance(e, Column)]
            found = [{k for k, c in columns if c in places} for places in below or ()]
            return found if below is not None and all(found) else None
        case WidAggregateExec() if _sliding(node):
            bounds = len(node.keys) + len(node.calls)  # of its window: the start and the end
            keys = [{k} for k in range(len(node.keys))]
            return keys if node.window is None else [*keys, {bounds, bounds + 1}]
        case _:
            return None
