"""Static analysis of expressions: constant folding, possible failures, and monotonicity."""

from __future__ import annotations

from math import isfinite
from typing import assert_never

from cql.base.types import BOOLEAN, DataType, Kind
from cql.errors import unreachable
from cql.planner.functions.coercion import cast_can_fail
from cql.planner.interpret.interpreter import NEVER_FAIL, NOT_STRICT, EvaluationError, evaluate
from cql.planner.interpret.text import FAILS_BY, extraction
from cql.planner.nodes.expr import (
    Call,
    Case,
    Cast,
    Column,
    Expr,
    Literal,
    children,
    columns_of,
    rebuild,
)
from cql.planner.nodes.rewrite import replace


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# -- failures ----------------------------------------------------------------------------------


def can_fail(expr: Expr) -> bool:
    """Whether evaluating ``expr`` can fail on some row. The answer False is always right; True may
    be wrong."""
    return _fails(expr) or any(can_fail(c) for c in children(expr))


def only_overflows(expr: Expr) -> bool:
    """Whether the only possible errors of ``expr`` are overflows: of a sum, a difference or a
    negation, or of a cast between integer and decimal types."""
    if not all(only_overflows(c) for c in children(expr)):
        return False
    match expr:
        case Call(fn="add" | "sub" | "neg"):
            return True
        case Cast():
            exact = (t.is_integer or t.kind is Kind.DECIMAL for t in (expr.type, expr.arg.type))
            return not _fails(expr) or all(exact)
        case Column() | Literal() | Call() | Case():
            return not _fails(expr)
        case _:
            assert_never(expr)


def _fails(expr: Expr) -> bool:
    match expr:
        case Column() | Literal() | Case():
            return False
        case Cast():
            return not expr.safe and cast_can_fail(expr.arg.type, expr.type)
        case Call():
            return expr.fn not in NEVER_FAIL and _call_fails(expr)
    return unreachable(expr)


def _call_fails(call: Call) -> bool:
    to = call.type
    match call.fn:
        case "add" | "sub" | "mul" | "neg" | "abs" if to.is_fraction:
            return False
        case "add" | "sub" | "mul" if to.kind is Kind.DECIMAL:
            return _digits_needed(call) > to.precision
        case "neg" | "abs":
            return to.kind is not Kind.DECIMAL
        case "floor" | "ceil":
            return call.args[0].type.is_fraction
        case "round" | "bround":
            return not to.is_fraction and to.precision in (0, 18)
        case "div" | "int_div" | "mod" | "pmod":
            return _division_fails(call)
        case "regexp_extract":
            return not _has_group(*call.args[1:])
    constant = FAILS_BY.get(call.fn)
    if constant is None:
        return True
    # A constant pattern is valid: ``resolve`` has checked it.
    argument = call.args[constant]
    if call.fn == "split_part":
        return not (isinstance(argument, Literal) and argument.value != 0)
    return not isinstance(argument, Literal)


def _has_group(pattern: Expr, group: Expr) -> bool:
    """Whether a constant pattern, which is valid, has a constant group."""
    match pattern, group:
        case Literal(value=str(text)), Literal(value=int(number)):
            try:
                extraction(text, (number,))
            except EvaluationError:
                return False
            return True
    return False


def _digits_needed(call: Call) -> int:
    a, b = (x.type for x in call.args)
    if call.fn == "mul":
        return a.precision + b.precision
    return max(a.precision, b.precision) + 1


def _division_fails(call: Call) -> bool:
    divisor = call.args[1]
    if not (isinstance(divisor, Literal) and divisor.value not in (None, 0)):
        return True
    if call.fn in ("mod", "pmod") or call.type.is_fraction:
        return False
    return call.fn == "div" or divisor.value == -1 or divisor.type.kind is Kind.DECIMAL


# -- constants ---------------------------------------------------------------------------------


def fold(expr: Expr) -> Expr:
    """``expr`` with constant parts computed. A part that fails stays as it is, so that only a row
    that evaluates the part fails, and guards keep their effect."""
    folded = rebuild(expr, fold)
    match folded:
        case Column() | Literal():
            return folded
        case Case():
            return _fold_case(folded)
        case Call(fn="and") | Call(fn="or"):
            return _fold_logic(folded)
        case Call(fn="coalesce"):
            return _fold_coalesce(folded)
        case Cast() if (
            folded.arg.type == folded.type and folded.arg.type.declared == folded.type.declared
        ):
            return folded.arg
        case Cast() | Call():
            return _fold_strict(folded)
    return unreachable(folded)


def _fold_strict(expr: Call | Cast) -> Expr:
    args = children(expr)
    own = expr.function if isinstance(expr, Call) else None
    if own is None and all(isinstance(a, Literal) for a in args):
        try:
            return Literal(evaluate(expr, ()), expr.type, expr.pos)
        except EvaluationError:
            return expr
    strict = isinstance(expr, Cast) or expr.fn not in NOT_STRICT
    if own is not None:  # user functions are called for rows only, never while planning
        strict = not own.sees_null
    if strict and any(_is_null(a) for a in args) and not any(can_fail(a) for a in args):
        return Literal(None, expr.type, expr.pos)
    return expr


def _is_null(expr: Expr) -> bool:
    return isinstance(expr, Literal) and expr.value is None


def _fold_logic(call: Call) -> Expr:
    """AND or OR without neutral constants, and without the operands to the right of a constant that
    decides the result."""
    deciding = call.fn == "or"
    kept: list[Expr] = []
    for arg in call.args:
        if isinstance(arg, Literal) and arg.value is (not deciding):
            continue
        kept.append(arg)
        if isinstance(arg, Literal) and arg.value is deciding:
            break
    if kept and isinstance(kept[-1], Literal) and kept[-1].value is deciding:
        while len(kept) > 1 and not can_fail(kept[-2]):
            del kept[-2]
    if not kept:
        return Literal(not deciding, BOOLEAN, call.pos)
    if len(kept) == 1:
        return kept[0]
    return replace(call, args=tuple(kept), nullable=any(a.nullable for a in kept))


def _fold_coalesce(call: Call) -> Expr:
    kept: list[Expr] = []
    for arg in call.args:
        if _is_null(arg):
            continue
        kept.append(arg)
        if not arg.nullable:
            break
    if not kept:
        return Literal(None, call.type, call.pos)
    if len(kept) == 1:
        return kept[0]
    return replace(call, args=tuple(kept), nullable=all(a.nullable for a in kept))


def _fold_case(case: Case) -> Expr:
    branches: list[tuple[Expr, Expr]] = []
    otherwise = case.otherwise
    for condition, value in case.branches:
        if isinstance(condition, Literal):
            if not condition.value:
                continue
            otherwise = value
            break
        branches.append((condition, value))
    if not branches:
        return Literal(None, case.type, case.pos) if otherwise is None else otherwise
    nullable = otherwise is None or otherwise.nullable or any(v.nullable for _, v in branches)
    return replace(case, branches=tuple(branches), otherwise=otherwise, nullable=nullable)


# -- monotonicity ------------------------------------------------------------------------------

_RISING = _words(
    """
    floor ceil round bround date_trunc trunc year last_day unix_seconds unix_millis
    unix_micros timestamp_seconds timestamp_millis timestamp_micros add_months
    timestamp_add_months date_add cbrt exp sinh tanh atan degrees radians sign
    """
)


#: All names with a meaning in this module, whether users can call the functions or not.
KNOWN_BY_NAME = NEVER_FAIL | _RISING | frozenset(FAILS_BY)


def monotone(expr: Expr, column: int) -> bool:
    """Whether ``expr`` is monotone (non-decreasing) in ``column`` and reads no other column."""
    if columns_of(expr) != {column}:
        return False
    return _rises(expr)


def _rises(expr: Expr) -> bool:
    match expr:
        case Column():
            return True
        case Literal():
            return False
        case Cast():
            return _keeps_order(expr.arg.type, expr.type) and _rises(expr.arg)
        case Case():
            return False
        case Call():
            return _call_rises(expr)
    return unreachable(expr)


def _keeps_order(source: DataType, to: DataType) -> bool:
    ordered = (Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ)
    return (source.is_numeric and to.is_numeric) or (
        (source.kind in ordered or source.is_numeric) and (to.kind in ordered or to.is_numeric)
    )


def _positive(expr: Expr) -> bool:
    """Whether ``expr`` is a constant finite number above zero."""
    if not isinstance(expr, Literal) or not isinstance(expr.value, int | float):
        return False
    return expr.value > 0 and isfinite(expr.value)


def _constant(expr: Expr) -> bool:
    """Whether ``expr`` reads no column. A float must be a finite literal: an infinite value would
    turn some values into NaN."""
    if not expr.type.is_fraction:
        return not columns_of(expr)
    return isinstance(expr, Literal) and isinstance(expr.value, float) and isfinite(expr.value)


def _is_rest(expr: Expr, of: Expr) -> bool:
    """Whether ``expr`` is ``x % 60``, as in ``x - x % 60``, which rounds x down."""
    match expr:
        case Call(fn="mod" | "pmod", args=(arg, by)):
            return arg == of and arg.type.is_integer and _positive(by)
    return False


def _call_rises(call: Call) -> bool:
    args = call.args
    match call.fn:
        case "add" if call.type.is_fraction:
            return any(_rises(a) and _constant(b) for a, b in (args, args[::-1]))
        case "add" | "least" | "greatest":
            return all(_rises(a) or _constant(a) for a in args)
        case "sub" if _is_rest(args[1], args[0]):
            return _rises(args[0])
        case "sub" | "date_sub":
            return _rises(args[0]) and _constant(args[1])
        case "whole_months":
            return _constant(args[0]) and _rises(args[1])
        case "mul":
            return any(_rises(a) and _positive(b) for a, b in (args, args[::-1]))
        case "div" | "int_div":
            return _rises(args[0]) and _positive(args[1])
    return call.fn in _RISING and all(_rises(a) or _constant(a) for a in args)
