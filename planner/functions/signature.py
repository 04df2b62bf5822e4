"""The signature of a registered function, and helpers to build signatures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from cql.base.types import DOUBLE, DataType, Kind
from cql.errors import BindError, Position
from cql.planner.functions.coercion import cast
from cql.planner.nodes.expr import Call, Expr, Literal

Builder: TypeAlias = Callable[[tuple[Expr, ...], Position | None], Expr]


@dataclass(frozen=True, slots=True)
class Signature:
    """A function's description for users (SHOW FUNCTIONS, completion); ``build`` types its calls.

    ``arity`` is the least and the largest number of arguments (None: no limit)."""

    name: str
    category: str
    usage: str
    help: str
    arity: tuple[int, int | None] = field(repr=False)
    build: Builder = field(repr=False, compare=False)


def wrong(usage: str, args: Sequence[Expr], pos: Position | None) -> BindError:
    """The error for arguments that no form of the function takes."""
    given = ", ".join(str(a.type) for a in args) or "no arguments"
    name = usage.split("(", 1)[0]
    return BindError(f"{name} does not take ({given})", position=pos, hint=f"{name} is {usage}")


def argument(expr: Expr, to: DataType, usage: str, number: int, pos: Position | None) -> Expr:
    """``expr`` implicitly cast to a parameter's type. Raises BindError, which names argument and
    usage."""
    try:
        return cast(expr, to, expr.pos or pos, implicit=True)
    except BindError:
        name = usage.split("(", 1)[0]
        needed = "a number" if to == DOUBLE else str(to)
        raise BindError(
            f"argument {number} of {name} must be {needed}, but is {expr.type}",
            position=expr.pos or pos,
            hint=f"usage: {usage}",
        ) from None


def check_ordered(expr: Expr, what: str, pos: Position | None) -> None:
    """Raises BindError if the values of ``expr`` have no order."""
    if expr.type.is_nested or expr.type.kind is Kind.SIGNAL:
        raise BindError(
            f"{what}: values of type {expr.type} have no order", position=expr.pos or pos
        )


def refuse_segment(expr: Expr, what: str, pos: Position | None) -> None:
    """Raises BindError if ``expr`` is a segment of a signal, which ``what`` cannot compare."""
    if expr.type.kind is Kind.SIGNAL:
        raise BindError(
            f"{what} cannot compare values of type {expr.type}",
            position=expr.pos or pos,
            hint="compare a function of the segment, such as stddev(x) or max(x)",
        )


def strict(
    fn: str, args: Sequence[Expr], to: DataType, pos: Position | None, *, nullable: bool = False
) -> Call:
    """A call that is NULL if an argument is NULL (``nullable``: perhaps also for other
    arguments)."""
    return Call(fn, tuple(args), to, nullable or any(a.nullable for a in args), pos)


def fixed(
    fn: str,
    category: str,
    usage: str,
    help: str,
    params: Sequence[DataType],
    to: DataType,
    *,
    least: int | None = None,
    nullable: bool = False,
) -> Signature:
    """The signature of a strict function with fixed parameter types; a call may leave out the
    parameters from index ``least`` on."""

    def build(args: tuple[Expr, ...], pos: Position | None) -> Expr:
        typed = [
            argument(a, p, usage, k, pos)
            for k, (a, p) in enumerate(zip(args, params, strict=False), 1)
        ]
        return strict(fn, typed, to, pos, nullable=nullable)

    name = usage.split("(", 1)[0]
    arity = (len(params) if least is None else least, len(params))
    return Signature(name, category, usage, help, arity, build)


def literal_text(expr: Expr, what: str, pos: Position | None) -> str:
    """The value of a constant string argument. Raises BindError for any other argument."""
    if isinstance(expr, Literal) and isinstance(expr.value, str):
        return expr.value
    raise BindError(f"{what} must be a constant string", position=expr.pos or pos)


def literal_int(expr: Expr, what: str, pos: Position | None) -> int:
    if isinstance(expr, Literal) and expr.type.is_integer and isinstance(expr.value, int):
        return expr.value
    raise BindError(f"{what} must be a constant whole number", position=expr.pos or pos)
