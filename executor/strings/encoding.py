"""Which text columns of the sources must be encoded, and which are only carried to the result.

A carried column travels as row numbers into its source block and is read from the block at the end,
at no cost per row in the kernels. A column that is compared, grouped by, computed on or kept in
state is encoded in the query's dictionary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cql.base.recursion import deep_stack
from cql.planner.nodes.physical import Physical, SourceExec, sources
from cql.planner.nodes.physical.columns import coded_columns
from cql.planner.nodes.physical.numbers import SourceNumbers

Place = tuple[int, int]  # (source, column of that source)


@dataclass(frozen=True, slots=True)
class TextColumns:
    """``encoded``: the source columns to encode. ``carried``: per plan, for each carried output
    column, the column of each source that it is read from."""

    encoded: frozenset[Place]
    carried: tuple[dict[int, dict[int, int]], ...]


@deep_stack()
def analyse(roots: Sequence[Physical]) -> TextColumns:
    order = SourceNumbers(*roots)
    encoded: set[Place] = set()
    outputs: list[dict[int, set[Place]]] = []
    for source in sources(*roots):
        if source.updates is not None:  # its queue mixes rows of several blocks
            encoded |= {(order[source], c) for c in coded_columns(source.schema)}
    for root in roots:
        _demand(root, frozenset(), order, encoded)
        forwarded: dict[int, set[Place]] = {}
        for i in coded_columns(root.schema):
            places = _origin(root, i, order)
            if places is None:
                _demand(root, frozenset({i}), order, encoded)
            else:
                forwarded[i] = places
        outputs.append(forwarded)
    grown = True
    while grown:
        grown = False
        for places in (p for forwarded in outputs for p in forwarded.values()):
            if places & encoded and not places <= encoded:
                encoded |= places
                grown = True
    carried = (
        {i: dict(sorted(p)) for i, p in forwarded.items() if not p & encoded}
        for forwarded in outputs
    )
    return TextColumns(frozenset(encoded), tuple(carried))


def _origin(node: Physical, column: int, order: SourceNumbers) -> set[Place] | None:
    """The source columns that an output column passes on unchanged; None if it is computed. At most
    one column per source, so that a row's source determines the column."""
    if isinstance(node, SourceExec):
        return {(order[node], column)}
    passed = node.carried_from(column)
    if passed is None:
        return None
    found: set[Place] = set()
    for port, below in passed:
        places = _origin(node.inputs[port], below, order)
        if places is None:
            return None
        found |= places
    return found


def _demand(
    node: Physical, needed: frozenset[int], order: SourceNumbers, encoded: set[Place]
) -> None:
    """Adds to ``encoded`` the source columns that the ``needed`` output columns, or the operators
    below, need as codes."""
    if isinstance(node, SourceExec):
        encoded |= {(order[node], c) for c in needed}
    for child, below in zip(node.inputs, node.encodes(needed), strict=True):
        _demand(child, below, order, encoded)
