"""The reference's arithmetic, comparisons and mathematical functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from cql.base.types import Kind
from cql.planner.nodes.expr import Call
from tests.reference.naive_registry import FUNCTIONS, function
from tests.reference.naive_values import (
    BITS,
    DAY,
    BadRowError,
    number,
    order_key,
    round_half_up,
    stored,
    truncate,
)

# Arithmetic ---------------------------------------------------------------------------------------


def _numbers(call: Call, values: tuple[Any, ...]) -> list[Any]:
    """The arguments as numbers; a date with an interval counts in microseconds."""
    dated = any(a.type.kind is Kind.INTERVAL for a in call.args)
    pairs = zip(values, call.args, strict=True)
    return [v * DAY if dated and a.type.kind is Kind.DATE else number(v, a.type) for v, a in pairs]


def _fit(call: Call, value: Any) -> Any:
    if call.type.kind is Kind.DATE and any(a.type.kind is Kind.INTERVAL for a in call.args):
        value //= DAY
    return stored(value, call.type)


@function("add")
def _add(call: Call, *values: Any) -> Any:
    a, b = _numbers(call, values)
    return _fit(call, a + b)


@function("sub")
def _sub(call: Call, *values: Any) -> Any:
    a, b = _numbers(call, values)
    return _fit(call, a - b)


@function("mul")
def _mul(call: Call, *values: Any) -> Any:
    a, b = _numbers(call, values)
    return _rounded(call, a * b)


def _rounded(call: Call, value: Any) -> Any:
    """Rounds an interval times or divided by a float to whole microseconds, halves away from
    zero."""
    if call.type.kind is Kind.INTERVAL and isinstance(value, float):
        value = round_half_up(Fraction(value)) if math.isfinite(value) else value
    return _fit(call, value)


def _nonzero(divisor: Any) -> None:
    if divisor == 0:
        raise BadRowError("division by zero")


@function("div", "int_div")
def _div(call: Call, *values: Any) -> Any:
    """Division. Integers give an integer, truncated towards zero; a float by zero fails too
    (ANSI)."""
    a, b = _numbers(call, values)
    _nonzero(b)
    if isinstance(a, float) or isinstance(b, float):
        return _rounded(call, a / b)
    exact = Fraction(a) / Fraction(b)
    if call.type.kind is Kind.INTERVAL:
        return _fit(call, round_half_up(exact))
    whole = call.type.kind is not Kind.DECIMAL and not call.type.is_fraction
    return _fit(call, truncate(exact) if whole else exact)


@function("mod")
def _mod(call: Call, *values: Any) -> Any:
    """The remainder with the sign of the dividend."""
    a, b = _numbers(call, values)
    _nonzero(b)
    if isinstance(a, float) or isinstance(b, float):
        return math.nan if math.isinf(a) or math.isnan(a) else stored(math.fmod(a, b), call.type)
    return stored(a - b * truncate(Fraction(a) / Fraction(b)), call.type)


@function("pmod")
def _pmod(call: Call, *values: Any) -> Any:
    """The remainder, not negative for a positive divisor."""
    rest = _mod(call, *values)
    if rest >= 0 or rest != rest:
        return rest
    kinds = [a.type for a in call.args]
    a, b = number(rest, call.type), number(values[1], kinds[1])
    if not call.type.is_fraction:
        return stored((a + b) - b * truncate(Fraction(a + b) / Fraction(b)), call.type)
    return math.nan if math.isinf(a + b) else stored(math.fmod(a + b, b), call.type)


@function("neg")
def _neg(call: Call, value: Any) -> Any:
    return stored(-number(value, call.args[0].type), call.type)


@function("abs")
def _abs(call: Call, value: Any) -> Any:
    exact: Any = number(value, call.args[0].type)
    return stored(abs(exact), call.type)


@function("sign")
def _sign(call: Call, value: Any) -> Any:
    if isinstance(value, float) and math.isnan(value):
        return value
    return stored((value > 0) - (value < 0), call.type)


def _whole(call: Call, value: Any, rounded: Callable[[Any], int]) -> Any:
    exact = number(value, call.args[0].type)
    if isinstance(exact, float) and not math.isfinite(exact):
        if call.type.is_fraction:
            return exact
        raise BadRowError(f"overflow of {call.type}")
    return stored(rounded(exact), call.type)


@function("floor")
def _floor(call: Call, value: Any) -> Any:
    return _whole(call, value, math.floor)


@function("ceil")
def _ceil(call: Call, value: Any) -> Any:
    return _whole(call, value, math.ceil)


@function("round")
def _round(call: Call, value: Any, digits: int = 0) -> Any:
    """Rounds halves away from zero; a float rounds as its printed decimal (Spark)."""
    exact = number(value, call.args[0].type)
    if isinstance(exact, float):
        if not math.isfinite(exact):
            return exact
        exact = Fraction(repr(exact))
    scale = Fraction(10) ** digits
    return stored(round_half_up(exact * scale) / scale, call.type)


@function("bround")
def _bround(call: Call, value: Any, digits: int = 0) -> Any:
    """Rounds halves to the even neighbour."""
    exact = number(value, call.args[0].type)
    if isinstance(exact, float):
        if not math.isfinite(exact):
            return exact
        exact = Fraction(repr(exact))
    scale = Fraction(10) ** digits
    return stored(round(exact * scale) / scale, call.type)


def _float_function(name: str, fn: Callable[[float], float]) -> None:
    def run(call: Call, value: Any) -> Any:
        try:
            return stored(fn(value), call.type)
        except OverflowError:
            return math.copysign(math.inf, value) if name == "sinh" else math.inf
        except ValueError:
            return math.nan

    FUNCTIONS[name] = run


for _name, _fn in {
    "sqrt": math.sqrt,
    "exp": math.exp,
    "sin": math.sin,
    "cos": math.cos,
    "tan": math.tan,
    "asin": math.asin,
    "acos": math.acos,
    "atan": math.atan,
    "sinh": math.sinh,
    "cosh": math.cosh,
    "tanh": math.tanh,
    "cbrt": math.cbrt,
    "degrees": math.degrees,
    "radians": math.radians,
}.items():
    _float_function(_name, _fn)


@function("ln", "log10", "log2")
def _log(call: Call, value: Any) -> Any:
    """The natural logarithm; NULL for zero and negative values (Spark)."""
    if value <= 0:
        return None
    return {"ln": math.log, "log10": math.log10, "log2": math.log2}[call.fn](value)


@function("log")
def _log_base(call: Call, base: Any, value: Any) -> Any:
    if base <= 0 or value <= 0:
        return None
    top, bottom = math.log(value), math.log(base)
    if bottom == 0:
        return math.nan if top == 0 or math.isnan(top) else math.copysign(math.inf, top)
    return top / bottom


@function("pow")
def _pow(call: Call, base: Any, exponent: Any) -> Any:
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return -math.inf if base < 0 and math.fmod(exponent, 2) else math.inf
    except ValueError:  # 0 ** -n, or a fraction of a negative number
        if base != 0:
            return math.nan
        odd = math.fmod(exponent, 2) != 0 and float(exponent).is_integer()
        return math.copysign(math.inf, base) if odd else math.inf


@function("atan2")
def _atan2(call: Call, y: Any, x: Any) -> Any:
    """Adds 0.0 to both arguments, like Spark, so that -0.0 counts as 0.0."""
    return math.atan2(y + 0.0, x + 0.0)


# Comparison and logic -----------------------------------------------------------------------------


def _keys(call: Call, *values: Any) -> list[Any]:
    pairs = zip(values, call.args, strict=True)
    return [order_key(number(v, a.type) if a.type.is_numeric else v) for v, a in pairs]


@function("eq")
def _eq(call: Call, *values: Any) -> Any:
    """NaN equals NaN and -0.0 equals 0.0.

    >>> from cql.planner.nodes.expr import Literal
    >>> from cql.base.types import BOOLEAN, DOUBLE
    >>> nan = Literal(math.nan, DOUBLE)
    >>> _eq(Call("eq", (nan, nan), BOOLEAN), math.nan, math.nan)
    True
    """
    a, b = _keys(call, *values)
    return a == b


@function("ne")
def _ne(call: Call, *values: Any) -> Any:
    return not _eq(call, *values)


@function("lt")
def _lt(call: Call, *values: Any) -> Any:
    a, b = _keys(call, *values)
    return a < b


@function("le")
def _le(call: Call, *values: Any) -> Any:
    a, b = _keys(call, *values)
    return a <= b


@function("gt")
def _gt(call: Call, *values: Any) -> Any:
    return not _le(call, *values)


@function("ge")
def _ge(call: Call, *values: Any) -> Any:
    return not _lt(call, *values)


@function("null_safe_eq", nulls=True)
def _null_safe_eq(call: Call, a: Any, b: Any) -> Any:
    if a is None or b is None:
        return a is b
    return _eq(call, a, b)


@function("is_distinct_from", nulls=True)
def _is_distinct_from(call: Call, a: Any, b: Any) -> Any:
    return not _null_safe_eq(call, a, b)


@function("not")
def _not(call: Call, value: Any) -> Any:
    return not value


@function("is_null", nulls=True)
def _is_null(call: Call, value: Any) -> Any:
    return value is None


@function("is_not_null", nulls=True)
def _is_not_null(call: Call, value: Any) -> Any:
    return value is not None


@function("isnan", nulls=True)
def _isnan(call: Call, value: Any) -> Any:
    """False for NULL (Spark)."""
    return value is not None and math.isnan(value)


@function("in_list", nulls=True)
def _in(call: Call, value: Any, *candidates: Any) -> Any:
    """Three-valued IN: NULL if no candidate is equal and one candidate is NULL."""
    if value is None:
        return None
    kind = call.args[0].type
    meant = order_key(number(value, kind) if kind.is_numeric else value)
    others = [
        order_key(number(c, a.type) if a.type.is_numeric else c)
        for c, a in zip(candidates, call.args[1:], strict=True)
        if c is not None
    ]
    if meant in others:
        return True
    return None if len(others) < len(candidates) else False


@function("least", nulls=True)
def _least(call: Call, *values: Any) -> Any:
    """The least value that is not NULL."""
    return min((v for v in values if v is not None), key=order_key, default=None)


@function("greatest", nulls=True)
def _greatest(call: Call, *values: Any) -> Any:
    return max((v for v in values if v is not None), key=order_key, default=None)


@function("nanvl")
def _nanvl(call: Call, a: Any, b: Any) -> Any:
    return b if math.isnan(a) else a


# Bits ---------------------------------------------------------------------------------------------


def _wrapped(value: int, bits: int) -> int:
    """``value`` wrapped to ``bits`` bits, in two's complement."""
    return (value + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))


@function("bit_and")
def _bit_and(call: Call, a: Any, b: Any) -> Any:
    return a & b


@function("bit_or")
def _bit_or(call: Call, a: Any, b: Any) -> Any:
    return a | b


@function("bit_xor")
def _bit_xor(call: Call, a: Any, b: Any) -> Any:
    return a ^ b


@function("bit_not")
def _bit_not(call: Call, a: Any) -> Any:
    return -a - 1


@function("shiftleft")
def _shiftleft(call: Call, a: Any, count: Any) -> Any:
    bits = BITS[call.type.kind]
    return _wrapped(a * 2 ** (count % bits), bits)


@function("shiftright")
def _shiftright(call: Call, a: Any, count: Any) -> Any:
    return a // 2 ** (count % BITS[call.type.kind])
