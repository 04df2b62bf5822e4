"""Divides large expressions into functions of bounded size: compile time grows with the square of a
function's size, and Python limits the depth of indentation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cql.executor.codegen.expressions.lookup import LEAST, choice, membership
from cql.executor.codegen.expressions.text import is_text_node
from cql.planner.nodes.expr import Call, Case, Expr, children, rebuild
from cql.planner.nodes.rewrite import replace

#: An expression stays whole within both limits: nodes, and levels of nested blocks.
WHOLE = 200
WHOLE_LEVELS = 40
#: An expression becomes a part if it reaches one of these: nodes, levels of nested blocks.
PART = 80
LEVELS = 20
#: The size of a part's call, in nodes.
CALL = 6
#: The size of a text function, in nodes.
TEXT = 5
#: Calls whose arguments can be nested in groups.
_GROUPED = frozenset(("and", "or", "least", "greatest"))


class Divided(NamedTuple):
    """An expression, and its subexpressions that become functions, by their ``id``."""

    whole: Expr
    parts: dict[int, Expr]


class _Size(NamedTuple):
    """The size of an expression in nodes and in levels of nested blocks: with a part counted as its
    call, and as a whole (``all_``)."""

    expr: Expr
    nodes: int
    levels: int
    all_nodes: int
    all_levels: int


def divide(expr: Expr) -> Divided:
    """Divides ``expr``, or an equivalent expression, into parts. Text functions stay as they are:
    their arguments are divided where they are computed."""
    divider = _Divider()
    found = divider.of(expr)
    if found.all_nodes <= WHOLE and found.all_levels <= WHOLE_LEVELS:
        return Divided(expr, {})
    divider.parts.pop(id(found.expr), None)
    return Divided(found.expr, divider.parts)


def size(expr: Expr) -> int:
    """The number of nodes of ``expr`` that are compiled: a table of constants counts as the value
    that is looked up."""
    return TEXT if is_text_node(expr) else _Divider().of(expr).all_nodes


@dataclass(slots=True)
class _Divider:
    parts: dict[int, Expr] = field(default_factory=dict)
    _known: dict[int, tuple[_Size, Expr]] = field(default_factory=dict)

    def of(self, expr: Expr) -> _Size:
        """The size of ``expr``. A shared expression is measured, and becomes a function, once."""
        known = self._known.get(id(expr))
        if known is None:
            # keeps the expression alive, so that no other expression gets its id
            known = self._known[id(expr)] = self._divided(expr), expr
        return known[0]

    def _divided(self, expr: Expr) -> _Size:
        if is_text_node(expr) or not children(expr):
            return _Size(expr, 1, 0, 1, 0)
        match expr:
            case Case():
                table = choice(expr)
                return self._case(expr) if table is None else self._table(expr, table.value)
            case Call(fn="and" | "or" | "in_list" | "not"):
                test = membership(expr)
                if test is not None and len(test.keys) >= LEAST:
                    return self._table(expr, test.value)
        if isinstance(expr, Call) and expr.function is None:
            if expr.fn in _GROUPED:
                return self._grouped(expr)
            if expr.fn == "coalesce":
                return self._coalesce(expr)
        below = [self.of(child) for child in children(expr)]
        given = iter(below)
        return self._made(rebuild(expr, lambda _: next(given).expr), below)

    def _made(self, expr: Expr, below: Sequence[_Size], blocks: int = 0) -> _Size:
        """The size of an expression over ``below``, which stand in ``blocks`` nested blocks of it;
        a large expression becomes a part."""
        nodes = 1 + sum(b.nodes for b in below)
        levels = blocks + max(b.levels for b in below)
        all_nodes = 1 + sum(b.all_nodes for b in below)
        all_levels = blocks + max(b.all_levels for b in below)
        if nodes >= PART or levels >= LEVELS:
            self.parts[id(expr)] = expr
            nodes, levels = CALL, 1
        return _Size(expr, nodes, levels, all_nodes, all_levels)

    def _table(self, expr: Expr, value: Expr) -> _Size:
        """The size of a table of constants: only the value that is looked up, and the ELSE of a
        CASE, are compiled."""
        size = self.of(value)
        below = [size]
        if isinstance(expr, Case) and expr.otherwise is not None:
            otherwise = self.of(expr.otherwise)
            below.append(otherwise)
            expr = replace(expr, otherwise=otherwise.expr)
        return self._made(expr, below, 2)

    def _grouped(self, call: Call) -> _Size:
        """Nests arguments in groups, and groups in groups, in their order from left to right."""
        below = [self.of(arg) for arg in call.args]
        guarded = int(call.fn in ("and", "or"))
        while sum(b.nodes for b in below) > 2 * PART:
            groups = _groups(below)
            if len(groups) == len(below) or len(groups) == 1:
                break
            below = [
                group[0] if len(group) == 1 else self._made(_over(call, group), group, guarded)
                for group in groups
            ]
        return self._made(_over(call, below), below, guarded)

    def _coalesce(self, call: Call) -> _Size:
        """Nests arguments in groups: the last argument of a group is the next group."""
        *groups, last = _groups([self.of(arg) for arg in call.args])
        made = self._made(_over(call, last), last, 1)
        for group in reversed(groups):
            made = self._made(_over(call, [*group, made]), [*group, made], 1)
        return made

    def _case(self, case: Case) -> _Size:
        """Nests branches in groups: the ELSE of a group is the next group."""
        branches = [(self.of(c), self.of(r)) for c, r in case.branches]
        otherwise = None if case.otherwise is None else self.of(case.otherwise)
        sizes = [_both(c, r) for c, r in branches]
        at = len(branches)
        for group in reversed(_groups(sizes)):
            mine = branches[at - len(group) : at]
            at -= len(group)
            below = [*group, *([] if otherwise is None else [otherwise])]
            made = replace(
                case,
                branches=tuple((c.expr, r.expr) for c, r in mine),
                otherwise=None if otherwise is None else otherwise.expr,
            )
            otherwise = self._made(made, below, 2)
        assert otherwise is not None
        return otherwise


def _both(condition: _Size, result: _Size) -> _Size:
    return _Size(
        condition.expr,
        condition.nodes + result.nodes,
        max(condition.levels, result.levels),
        condition.all_nodes + result.all_nodes,
        max(condition.all_levels, result.all_levels),
    )


def _over(call: Call, below: Sequence[_Size]) -> Call:
    """The same call with other arguments."""
    args = tuple(b.expr for b in below)
    some = any if call.fn in ("and", "or") else all
    nullable = call.nullable and some(arg.nullable for arg in args)
    return replace(call, args=args, nullable=nullable)


def _groups(sizes: Sequence[_Size]) -> list[list[_Size]]:
    """Runs of neighbours that are about as large as a part, with at least two in each run."""
    groups: list[list[_Size]] = [[]]
    nodes = 0
    for size in sizes:
        if nodes >= PART and len(groups[-1]) > 1:
            groups.append([])
            nodes = 0
        groups[-1].append(size)
        nodes += size.nodes
    return groups
