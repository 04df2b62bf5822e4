"""Typed expressions: a closed union that ``bind`` makes and that rules, kernels and the reference
read.

Nodes are frozen. Equality ignores the position in the query, which nodes keep for error messages.
Arguments have exactly the types that the function takes: ``bind`` inserts every cast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from cql.base.types import BOOLEAN, DataType
from cql.errors import Position
from cql.planner.nodes.rewrite import replace

if TYPE_CHECKING:
    from cql.planner.functions.user.functions import UserFunction

Value: TypeAlias = bool | int | float | str | bytes | None


@dataclass(frozen=True, slots=True)
class Column:
    """Column ``index`` of the node's single input."""

    index: int
    name: str
    type: DataType
    nullable: bool = True
    pos: Position | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant in storage form: timestamps and intervals in microseconds, dates in days, decimals
    scaled; strings and bytes as they are; arrays, also where they stand for segments of a signal,
    as the bytes of their entry in the dictionary. ``None`` is NULL."""

    value: Value
    type: DataType
    pos: Position | None = field(default=None, compare=False)

    @property
    def nullable(self) -> bool:
        return self.value is None


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a function or operator, by its name in ``cql.planner.functions.registry``, or of a
    user's ``function``. ``word`` is the operator as written, if ``show`` would print another
    one."""

    fn: str
    args: tuple[Expr, ...]
    type: DataType
    nullable: bool = True
    pos: Position | None = field(default=None, compare=False)
    function: UserFunction | None = None
    word: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Case:
    """A searched CASE; conditions are evaluated from left to right. ``otherwise`` None means
    NULL."""

    branches: tuple[tuple[Expr, Expr], ...]
    otherwise: Expr | None
    type: DataType
    nullable: bool = True
    pos: Position | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Cast:
    """An ANSI cast, which fails on a value that does not fit; ``safe`` is TRY_CAST, which gives
    NULL instead."""

    arg: Expr
    type: DataType
    nullable: bool = True
    safe: bool = False
    pos: Position | None = field(default=None, compare=False)


Expr: TypeAlias = Column | Literal | Call | Case | Cast


def children(expr: Expr) -> tuple[Expr, ...]:
    match expr:
        case Column() | Literal():
            return ()
        case Call():
            return expr.args
        case Case():
            parts = tuple(e for branch in expr.branches for e in branch)
            return parts if expr.otherwise is None else (*parts, expr.otherwise)
        case Cast():
            return (expr.arg,)


def rebuild(expr: Expr, fn: Callable[[Expr], Expr]) -> Expr:
    """``expr`` with ``fn`` applied to each child. (Lists, not generators: these would take a frame
    of C for each level of the expression.)"""
    match expr:
        case Column() | Literal():
            return expr
        case Call():
            return replace(expr, args=tuple([fn(a) for a in expr.args]))
        case Case():
            branches = tuple([(fn(c), fn(v)) for c, v in expr.branches])
            return replace(
                expr, branches=branches, otherwise=fn(expr.otherwise) if expr.otherwise else None
            )
        case Cast():
            return replace(expr, arg=fn(expr.arg))


def walk(expr: Expr) -> Iterator[Expr]:
    """``expr`` and all expressions in it, left to right, each before its children."""
    waiting = [expr]
    while waiting:
        found = waiting.pop()
        yield found
        waiting += reversed(children(found))


def columns_of(*exprs: Expr) -> frozenset[int]:
    """The indices of the input columns that the expressions read."""
    found, waiting = set(), [*exprs]
    while waiting:
        expr = waiting.pop()
        if isinstance(expr, Column):
            found.add(expr.index)
        else:
            waiting += children(expr)
    return frozenset(found)


def substitute(expr: Expr, columns: tuple[Expr, ...]) -> Expr:
    """``expr`` with column *i* replaced by ``columns[i]`` (moves ``expr`` below a projection)."""
    if isinstance(expr, Column):
        return columns[expr.index]
    return rebuild(expr, lambda e: substitute(e, columns))


def conjuncts(condition: Expr) -> list[Expr]:
    """The operands of AND, left to right."""
    if isinstance(condition, Call) and condition.fn == "and":
        return [part for arg in condition.args for part in conjuncts(arg)]
    return [condition]


def conjunction(parts: Sequence[Expr]) -> Expr:
    """The ``parts`` (at least one) joined by AND."""
    result = parts[0]
    for part in parts[1:]:
        nullable = result.nullable or part.nullable
        result = Call("and", (result, part), BOOLEAN, nullable, result.pos)
    return result
