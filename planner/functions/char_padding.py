"""CHAR(n) in comparisons: pads the shorter side with blanks, as Spark's analyzer does.

A column of CHAR(n) holds n characters. A comparison with a constant text or another CHAR column
pads; a comparison with a STRING, a VARCHAR or a computed text does not (Spark 4.3,
``ApplyCharTypePadding``). An IN list is padded as a whole, if it consists of constants without NULL
or of CHAR columns.
"""

from __future__ import annotations

from collections.abc import Sequence

from cql.base.types import INT, STRING
from cql.planner.interpret.interpreter import EvaluationError, evaluate
from cql.planner.nodes.expr import Call, Column, Expr, Literal, columns_of, walk
from cql.planner.nodes.rewrite import replace


def padded(args: Sequence[Expr]) -> tuple[Expr, ...]:
    """The operands of a comparison, or the value and the candidates of an IN list. If a CHAR column
    is compared with constants or other CHAR columns, all operands are padded to one length."""
    if not any(_length(a) for a in args):
        return tuple(args)
    if all(_length(a) for a in args):
        longest = max(_length(a) for a in args)
        return tuple(_filled(a, longest) for a in args)
    sides = [args[1:], args[:1]] if _length(args[0]) else [args[:1], args[1:]]
    texts = [_constant(a) for a in sides[0]]
    if not all(_length(a) for a in sides[1]) or None in texts:
        return tuple(args)
    least = _length(sides[1][0])
    known = [t.rstrip(" ").ljust(least) for t in texts if t is not None]
    longest = max(map(len, known))
    constants = [
        Literal(t.ljust(longest), STRING, a.pos) for t, a in zip(known, sides[0], strict=True)
    ]
    columns = [_filled(a, longest) for a in sides[1]]
    return (*columns, *constants) if _length(args[0]) else (*constants, *columns)


def forget_length(expr: Expr) -> Expr:
    """``expr`` with the type STRING if it is a computed CHAR: only columns have a CHAR type."""
    if not expr.type.length or isinstance(expr, Column):
        return expr
    return replace(expr, type=expr.type.without_length)


def _length(expr: Expr) -> int:
    return expr.type.length if isinstance(expr, Column) else 0


def _filled(column: Expr, length: int) -> Expr:
    if _length(column) == length:
        return column
    return Call("rpad", (column, Literal(length, INT)), STRING, column.nullable, column.pos)


def _constant(expr: Expr) -> str | None:
    """The text of a constant expression; None for NULL, other types and expressions that vary."""
    if columns_of(expr) or any(isinstance(e, Call) and e.function for e in walk(expr)):
        return None
    try:
        value = evaluate(expr, ())
    except EvaluationError:
        return None
    return value if isinstance(value, str) and expr.type == STRING else None
