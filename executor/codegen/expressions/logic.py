"""Comparisons as text, and which expressions are cheap enough to evaluate without a guard."""

from __future__ import annotations

from collections.abc import Sequence

from cql.base.types import Kind
from cql.executor.codegen.expressions.scope import Scope, when
from cql.executor.codegen.expressions.text import is_text_node
from cql.planner.functions.folding import can_fail
from cql.planner.nodes.expr import Call, Case, Expr, Literal, walk

_SYMBOLS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_CHEAP = frozenset(
    (*_SYMBOLS, "and", "or", "not", "is_null", "is_not_null", "isnan", "add", "sub", "mul", "neg")
)
_CHEAP_NODES = 16


def is_cheap(expr: Expr) -> bool:
    """Whether a few instructions without branches compute ``expr``, and it cannot fail."""
    nodes = list(walk(expr))
    if len(nodes) > _CHEAP_NODES or can_fail(expr):
        return False
    for node in nodes:
        if is_text_node(node) or isinstance(node, Case):
            return False
        if isinstance(node, Call):
            ordered = node.fn in ("lt", "le", "gt", "ge") and node.args[0].type.is_text
            if node.fn not in _CHEAP or ordered:
                return False
    return True


def _number(expr: Expr) -> bool:
    """Whether ``expr`` is a constant other than NaN."""
    return isinstance(expr, Literal) and expr.value == expr.value


def compared(fn: str, args: Sequence[Expr], a: str, b: str) -> str:
    """Boolean text for a comparison of stored values; text is compared for equality only."""
    kind = args[0].type
    if not kind.is_fraction:
        if kind.kind is Kind.BOOLEAN and fn not in ("eq", "ne"):
            a, b = f"int64({a})", f"int64({b})"
        return f"{a} {_SYMBOLS[fn]} {b}"
    if fn in ("gt", "ge"):
        return compared({"gt": "lt", "ge": "le"}[fn], (args[1], args[0]), b, a)
    if fn == "ne":
        return f"not ({compared('eq', args, a, b)})"
    if fn == "eq":
        plain = _number(args[0]) or _number(args[1])
        return f"{a} == {b}" if plain else f"real_eq({a}, {b})"
    if _number(args[1]):  # a NaN on the left is the larger one
        return f"{a} {_SYMBOLS[fn]} {b}"
    if _number(args[0]):  # a NaN on the right is the larger one
        return f"not ({b} {'<=' if fn == 'lt' else '<'} {a})"
    return f"real_{fn}({a}, {b})"


def emit_order(fn: str, args: Sequence[Expr], a: str, b: str, scope: Scope) -> str:
    """``compared``, with texts compared by rank; for use only where both values are valid codes."""
    if args[0].type.is_text and fn not in ("eq", "ne"):
        rank = scope.rank()
        with when(scope, f"{a} >= {rank}.size or {b} >= {rank}.size"):
            scope.line(scope.need_rank())
        return f"{rank}[{a}] {_SYMBOLS[fn]} {rank}[{b}]"
    return compared(fn, args, a, b)
