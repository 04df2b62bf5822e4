"""Measures the size of expressions: aliases, BETWEEN and projections repeat subexpressions."""

from __future__ import annotations

from dataclasses import dataclass, field

from cql.planner.nodes.expr import Expr, children

#: The most nodes in one expression, and on a path from its root to a leaf, with aliases expanded.
MAX_NODES = 40_000
MAX_DEPTH = 1_500


@dataclass(slots=True)
class Sizes:
    """Counts nodes and depth of expressions as trees; measures each shared part once."""

    _known: dict[int, tuple[int, int, Expr]] = field(default_factory=dict)

    def of(self, expr: Expr) -> tuple[int, int]:
        known = self._known.get(id(expr))
        if known is None:
            nodes = depth = 1
            for child in children(expr):
                more, below = self.of(child)
                nodes, depth = nodes + more, max(depth, below + 1)
            # Keeps the expression alive: a new expression could otherwise get the same id.
            known = self._known[id(expr)] = (nodes, depth, expr)
        return known[0], known[1]

    def fits(self, expr: Expr, nodes: int = MAX_NODES, depth: int = MAX_DEPTH) -> bool:
        size = self.of(expr)
        return size[0] <= nodes and size[1] <= depth
