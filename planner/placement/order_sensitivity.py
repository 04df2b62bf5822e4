"""Nodes whose rows may come in any order within a morsel. Partitions then need not put their
outputs in order (ordered-multicore paper §4), and the result is still bit-identical.

An aggregate whose state is the same in any order hides the order of its input, but its groups leave
in the order in which they began. A sort hides that order if no two rows are equal in its keys. An
expression that can fail shows the order by the row that its error names.
"""

from __future__ import annotations

from collections.abc import Iterable

from cql.planner.nodes.physical import Physical
from cql.planner.nodes.physical.numbers import NodeNumbers


def in_order(roots: Iterable[Physical], nodes: NodeNumbers) -> frozenset[int]:
    """The numbers of the nodes whose rows must be in order."""
    found: set[int] = set()
    others: set[int] = set()  # reached where the order does not matter

    def visit(node: Physical, matters: bool) -> None:
        number = nodes[node]
        if number in found or (not matters and number in others):
            return
        (found if matters else others).add(number)
        for child in node.inputs:
            visit(child, node.needs_order(matters))

    for root in roots:
        visit(root, True)
    return frozenset(found)
