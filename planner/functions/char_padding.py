"""CHAR(n) in comparisons: as Spark's analyzer does it, the shorter side is filled with blanks.

A column of CHAR(n) holds n characters. Beside a constant text or another CHAR column it compares
padded; beside a STRING, a VARCHAR or a computed text it compares as it is (Spark 4.3,
``ApplyCharTypePadding``). An IN list is padded as a whole: constants without NULL, or CHAR columns.
"""

from __future__ import annotations

from collections.abc import Sequence

from cql.base.types import INT, STRING
from cql.planner.interpret.interpreter import EvaluationError, evaluate
from cql.planner.nodes.expr import Call, Column, Expr, Literal, columns_of, walk
from cql.planner.nodes.rewrite import replace


def padded(args: Sequence[Expr]) -> tuple[Expr, ...]:
    """The operands of a comparison, or the value and the candidates of an IN list, filled with
    blanks to one length where a CHAR column stands beside constants or other CHAR columns."""
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
    """``expr`` as a plain text, if it is computed: only columns have a CHAR type."""
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
    """The text that an expression is in every row; None where it is no text, NULL or varies."""
    if columns_of(expr) or any(isinstance(e, Call) and e.function for e in walk(expr)):
        return None
    try:
        value = evaluate(expr, ())
    except EvaluationError:
        return None
    return value if isinstance(value, str) and expr.type == STRING else None
