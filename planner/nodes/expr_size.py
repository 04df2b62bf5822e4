"""How large an expression is: aliases, BETWEEN and projections repeat what they stand for."""

from __future__ import annotations

from dataclasses import dataclass, field

from cql.planner.nodes.expr import Expr, children

#: Nodes in one expression, and from its root to a leaf, once its aliases are expanded.
MAX_NODES = 40_000
MAX_DEPTH = 1_500


@dataclass(slots=True)
class Sizes:
    """Nodes and depth of expressions as trees, each shared part measured once."""

    _known: dict[int, tuple[int, int, Expr]] = field(default_factory=dict)

    def of(self, expr: Expr) -> tuple[int, int]:
        known = self._known.get(id(expr))
        if known is None:
            nodes = depth = 1
            for child in children(expr):
                more, below = self.of(child)
                nodes, depth = nodes + more, max(depth, below + 1)
            # the expression is kept, or another one might be given its id
            known = self._known[id(expr)] = (nodes, depth, expr)
        return known[0], known[1]

    def fits(self, expr: Expr, nodes: int = MAX_NODES, depth: int = MAX_DEPTH) -> bool:
        size = self.of(expr)
        return size[0] <= nodes and size[1] <= depth
