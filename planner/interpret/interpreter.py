"""Slow, exact evaluation of one expression over one row, in plain Python.

The interpreter serves constant folding, text functions (which run once per new dictionary entry)
and tests, which compare generated kernels with it. Values are in storage form (see ``Literal``);
NULL is None.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

from cql.base.types import DOUBLE, DataType, Kind
from cql.errors import unreachable
from cql.planner.interpret import nested, signals
from cql.planner.interpret import text as texts
from cql.planner.interpret import time as times
from cql.planner.interpret.entries import read_array, write_array, write_struct
from cql.planner.interpret.error import EvaluationError
from cql.planner.nodes.expr import Call, Case, Cast, Column, Expr, Literal, Value

__all__ = ["EvaluationError", "convert", "evaluate"]

_BITS = {Kind.TINYINT: 8, Kind.SMALLINT: 16, Kind.INT: 32, Kind.BIGINT: 64, Kind.DATE: 32}
SECOND = 1_000_000
DAY = 86_400 * SECOND


def evaluate(expr: Expr, row: Sequence[Value]) -> Value:
    """The value of ``expr`` over the input columns ``row``. Raises EvaluationError for the rows
    that fail in the kernels."""
    match expr:
        case Column():
            return row[expr.index]
        case Literal(value=bytes(entry)) if expr.type.kind is Kind.SIGNAL:
            return read_array(entry, DOUBLE)  # type: ignore[return-value]
        case Literal():
            return expr.value
        case Cast():
            return _cast(expr, row)
        case Case():
            for condition, value in expr.branches:
                if evaluate(condition, row):
                    return evaluate(value, row)
            return None if expr.otherwise is None else evaluate(expr.otherwise, row)
        case Call(function=function) if function is not None:
            return function.evaluate([evaluate(a, row) for a in expr.args])
        case Call():
            special = _SPECIAL.get(expr.fn)
            if special is not None:
                return special(expr, row)
            args = [evaluate(a, row) for a in expr.args]
            if any(a is None for a in args):
                return None
            return _STRICT[expr.fn](expr, args)
    return unreachable(expr)


def _cast(expr: Cast, row: Sequence[Value]) -> Value:
    value = evaluate(expr.arg, row)
    if value is None:
        return None
    try:
        return convert(value, expr.arg.type, expr.type)
    except EvaluationError:
        if expr.safe:
            return None
        raise


# -- ranges ------------------------------------------------------------------------------------


def fit(value: int, to: DataType, what: str) -> int:
    """``value``. Raises EvaluationError (overflow) if it does not fit the storage of ``to``."""
    if to.kind is Kind.DECIMAL:
        fits = abs(value) < 10**to.precision
    else:
        bits = _BITS.get(to.kind, 64)
        fits = -(1 << (bits - 1)) <= value < 1 << (bits - 1)
    if not fits:
        raise EvaluationError("overflow", f"{to} overflow in {what}")
    return value


def single(value: float) -> float:
    """``value`` rounded to binary32."""
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def _real(value: float, to: DataType) -> float:
    return single(value) if to.kind is Kind.FLOAT else value


def truncated(a: int, b: int) -> int:
    """a / b towards zero."""
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


def half_up(a: int, b: int) -> int:
    """a / b rounded, ties away from zero; b > 0."""
    q = (2 * abs(a) + b) // (2 * b)
    return -q if a < 0 else q


def rescale(value: int, by: int) -> int:
    """An unscaled decimal ``value`` with a scale that is ``by`` larger. A negative ``by`` rounds
    half up."""
    return value * 10**by if by >= 0 else half_up(value, 10**-by)


# -- casts -------------------------------------------------------------------------------------


def convert(value: Value, source: DataType, to: DataType) -> Value:
    """The ANSI cast of a value that is not NULL. Raises EvaluationError if it does not convert."""
    what = f"CAST({source} AS {to})"
    if source == to:
        return value
    if source.is_nested:
        return _convert_nested(value, source, to)
    if to.kind is Kind.STRING:
        return texts.to_text(value, source)
    if source.kind is Kind.STRING:
        assert isinstance(value, str)
        return texts.from_text(value, to)
    assert isinstance(value, bool | int | float)
    if to.kind is Kind.BOOLEAN:
        return value != 0
    if source.is_timestamp or source.kind is Kind.DATE:
        return _convert_time(int(value), source, to, what)
    if to.kind is Kind.DECIMAL:
        return _to_decimal(value, source, to, what)
    if to.is_timestamp:
        scaled = value * SECOND
        return fit(_whole(scaled, to, what), to, what)
    if to.is_fraction:
        real = value / 10**source.scale if source.kind is Kind.DECIMAL else float(value)
        return _real(real, to)
    if source.kind is Kind.DECIMAL:
        return fit(truncated(int(value), 10**source.scale), to, what)
    return fit(_whole(value, to, what), to, what)


def _convert_nested(value: Value, source: DataType, to: DataType) -> Value:
    """An array or a struct, part by part; as a text in Spark's form: [1, null], {a, 1}."""

    def converted(part: Value, of: DataType, to: DataType) -> Value:
        return None if part is None else convert(part, of, to)

    assert isinstance(value, bytes)
    parts = nested.parts_of(value, source)
    if to.kind is Kind.STRING:
        shown = ((converted(part, of, to), of) for part, of in parts)
        text = ", ".join("null" if part is None else str(part) for part, _ in shown)
        return f"[{text}]" if source.kind is Kind.ARRAY else f"{{{text}}}"
    if to.element is not None:
        element = to.element
        return write_array([converted(part, of, element) for part, of in parts], element)
    pairs = zip(parts, to.fields, strict=True)
    return write_struct([converted(part, of, kind) for (part, of), (_, kind) in pairs], to)


def _whole(value: float | int, to: DataType, what: str) -> int:
    if isinstance(value, float) and not math.isfinite(value):
        raise EvaluationError("overflow", f"{to} overflow in {what}")
    return int(value)


def _to_decimal(value: float | int, source: DataType, to: DataType, what: str) -> int:
    if not source.is_fraction:
        scale = source.scale if source.kind is Kind.DECIMAL else 0
        return fit(rescale(int(value), to.scale - scale), to, what)
    if not math.isfinite(value):
        raise EvaluationError("overflow", f"{to} overflow in {what}")
    whole = _rounded_units(abs(value), to.scale, False, source.kind is Kind.FLOAT)
    return fit(int(math.copysign(1, value)) * whole, to, what)


def _convert_time(value: int, source: DataType, to: DataType, what: str) -> Value:
    if source.kind is Kind.DATE:
        return fit(value * DAY, to, what)
    if to.kind is Kind.DATE:
        return value // DAY
    if to.is_timestamp:
        return value
    if to.is_fraction:
        return _real(value / SECOND, to)
    return fit(value // SECOND, to, what)


# -- rounding of floats ------------------------------------------------------------------------


def _rounded_units(x: float, digits: int, even: bool, narrow: bool) -> int:
    """``x`` (not negative) in units of 10**-digits, rounded. As in Spark, the shortest decimal text
    of x is rounded: x is compared with the float nearest to the midpoint of k and k + 1 units.
    ``even`` rounds ties to even; ``narrow``: x is a binary32 value."""
    p = 10.0 ** abs(digits)
    y = x * p if digits >= 0 else x / p
    if y == math.inf:
        return int(x) * int(10**digits)
    if y >= (2.0**23 if narrow else 2.0**52):
        return math.floor(y + 0.5) if narrow else int(y)  # y has no fraction
    k = math.floor(y)
    middle = (2.0 * k + 1.0) / (2.0 * p) if digits >= 0 else (k + 0.5) * p
    if narrow:
        middle = single(middle)
    up = x > middle or (x == middle and (not even or k % 2 == 1))
    return k + int(up)


def round_real(x: float, digits: int, even: bool, narrow: bool) -> float:
    """round(x, digits) for -22 <= digits <= 22."""
    if not math.isfinite(x):
        return x
    p = 10.0 ** abs(digits)
    a = abs(x)
    if (a * p if digits >= 0 else a / p) >= (2.0**23 if narrow else 2.0**52):
        return x
    k = float(_rounded_units(a, digits, even, narrow))
    r = k / p if digits >= 0 else k * p
    if r == 0:
        return 0.0
    return math.copysign(single(r) if narrow else r, x)


# -- arithmetic --------------------------------------------------------------------------------


def _arithmetic(whole: Callable[[int, int], int], real: Callable[[float, float], float]) -> Strict:
    def run(call: Call, args: list[Value]) -> Value:
        a, b = args
        assert isinstance(a, int | float)
        assert isinstance(b, int | float)
        if call.type.is_fraction:
            return _real(real(a, b), call.type)
        return fit(whole(int(a), int(b)), call.type, call.fn)

    return run


def _nonzero(b: float | int) -> float | int:
    if b == 0:
        raise EvaluationError("division by zero", "division by zero")
    return b


def _div(call: Call, args: list[Value]) -> Value:
    a, b = args
    assert isinstance(a, int | float)
    assert isinstance(b, int | float)
    _nonzero(b)
    if call.type.kind is Kind.DECIMAL:
        left, right = (x.type.scale for x in call.args)
        power = call.type.scale - left + right
        numerator, denominator = int(a) * 10 ** max(power, 0), int(b) * 10 ** max(-power, 0)
        sign = 1 if denominator > 0 else -1
        return fit(half_up(numerator * sign, denominator * sign), call.type, "/")
    if call.type.kind is Kind.INTERVAL:
        if isinstance(b, float):
            rounded = round_real(float(a) / b, 0, False, False)
            return fit(_whole(rounded, call.type, "/"), call.type, "/")
        sign = 1 if b > 0 else -1
        return fit(half_up(int(a) * sign, b * sign), call.type, "/")
    return _real(a / b, call.type)


def _mod_real(a: float, b: float) -> float:
    _nonzero(b)
    try:
        return math.fmod(a, b)
    except ValueError:
        return math.nan


def _mod_whole(a: int, b: int) -> int:
    _nonzero(b)
    return a - b * truncated(a, b)


def _pmod_real(a: float, b: float) -> float:
    r = _mod_real(a, b)
    return _mod_real(r + b, b) if r < 0 else r


def _pmod_whole(a: int, b: int) -> int:
    r = _mod_whole(a, b)
    return _mod_whole(r + b, b) if r < 0 else r


def _int_div(a: int, b: int) -> int:
    _nonzero(b)
    return truncated(a, b)


def _unary(whole: Callable[[int], int], real: Callable[[float], float]) -> Strict:
    def run(call: Call, args: list[Value]) -> Value:
        (a,) = args
        assert isinstance(a, int | float)
        if call.type.is_fraction:
            return real(a)
        return fit(whole(int(a)), call.type, call.fn)

    return run


def _round(even: bool) -> Strict:
    def run(call: Call, args: list[Value]) -> Value:
        a, digits = args
        assert isinstance(a, int | float)
        assert isinstance(digits, int)
        source = call.args[0].type
        if source.is_fraction:
            return round_real(a, digits, even, source.kind is Kind.FLOAT)
        places = source.scale - digits
        unit, out = 10 ** max(places, 0), 10 ** max(call.type.scale - digits, 0)
        q, r = divmod(abs(int(a)), unit)
        q += int(2 * r > unit or (2 * r == unit and (not even or q % 2 == 1)))
        return fit((q if a >= 0 else -q) * out, call.type, call.fn)

    return run


def _toward(real: Callable[[float], int], up: bool) -> Strict:
    def run(call: Call, args: list[Value]) -> Value:
        (a,) = args
        assert isinstance(a, int | float)
        source = call.args[0].type
        if source.kind is Kind.DECIMAL:
            unit = 10**source.scale
            return fit(-(-int(a) // unit) if up else int(a) // unit, call.type, call.fn)
        if isinstance(a, float) and not math.isfinite(a):
            raise EvaluationError("overflow", f"{call.type} overflow in {call.fn}")
        return fit(real(a), call.type, call.fn)

    return run


# -- comparison --------------------------------------------------------------------------------


def order(a: Value, b: Value) -> int:
    """-1, 0 or 1 for the order of ``a`` and ``b``. NaN equals itself and is above all numbers;
    strings compare by their UTF-8 bytes."""
    if isinstance(a, str) and isinstance(b, str):
        a, b = a.encode(), b.encode()
    if isinstance(a, float) and isinstance(b, float):
        if a != a or b != b:
            return int(a != a) - int(b != b)
        return int(a > b) - int(a < b)
    x: Any = a
    y: Any = b
    return int(x > y) - int(x < y)


def _compared(test: Callable[[int], bool]) -> Strict:
    return lambda call, args: test(order(args[0], args[1]))


# -- functions that see NULL, or do not evaluate all arguments -----------------------------------


def _and(call: Call, row: Sequence[Value]) -> Value:
    seen: Value = True
    for arg in call.args:
        value = evaluate(arg, row)
        if value is False:
            return False
        seen = None if value is None else seen
    return seen


def _or(call: Call, row: Sequence[Value]) -> Value:
    seen: Value = False
    for arg in call.args:
        value = evaluate(arg, row)
        if value is True:
            return True
        seen = None if value is None else seen
    return seen


def _coalesce(call: Call, row: Sequence[Value]) -> Value:
    for arg in call.args:
        value = evaluate(arg, row)
        if value is not None:
            return value
    return None


def _in_list(call: Call, row: Sequence[Value]) -> Value:
    values = [evaluate(a, row) for a in call.args]
    if values[0] is None:
        return None
    if any(v is not None and order(values[0], v) == 0 for v in values[1:]):
        return True
    return None if None in values[1:] else False


def _same(a: Value, b: Value) -> bool:
    if a is None or b is None:
        return a is b
    return order(a, b) == 0


def _pair(call: Call, row: Sequence[Value]) -> tuple[Value, Value]:
    return evaluate(call.args[0], row), evaluate(call.args[1], row)


def _extreme(sign: int) -> Special:
    def run(call: Call, row: Sequence[Value]) -> Value:
        best: Value = None
        for arg in call.args:
            value = evaluate(arg, row)
            if value is not None and (best is None or order(value, best) * sign > 0):
                best = value
        return best

    return run


def _constructed(make: Callable[[Call, Sequence[Value]], Value]) -> Special:
    return lambda call, row: make(call, [evaluate(a, row) for a in call.args])


def _concat_ws(call: Call, row: Sequence[Value]) -> Value:
    separator, *parts = (evaluate(a, row) for a in call.args)
    if separator is None:
        return None
    return str(separator).join(str(p) for p in parts if p is not None)


def _isnan(call: Call, row: Sequence[Value]) -> Value:
    value = evaluate(call.args[0], row)
    return value is not None and value != value


# -- mathematics -------------------------------------------------------------------------------


def _libm(fn: Callable[[float], float], overflow: Callable[[float], float]) -> Strict:
    """A function of C's libm: NaN outside the domain, ``overflow(x)`` if no double holds the
    result."""

    def run(call: Call, args: list[Value]) -> Value:
        (x,) = args
        assert isinstance(x, float)
        try:
            return fn(x)
        except ValueError:
            return math.nan
        except OverflowError:
            return overflow(x)

    return run


def _log(fn: Callable[[float], float]) -> Strict:
    def run(call: Call, args: list[Value]) -> Value:
        (x,) = args
        assert isinstance(x, float)
        return None if x <= 0 else fn(x)

    return run


def _log_base(call: Call, args: list[Value]) -> Value:
    base, x = args
    assert isinstance(base, float)
    assert isinstance(x, float)
    if base <= 0 or x <= 0:
        return None
    bottom = math.log(base)
    if bottom == 0:
        top = math.log(x)
        return math.nan if top == 0 or top != top else math.copysign(math.inf, top)
    return math.log(x) / bottom


def _pow(call: Call, args: list[Value]) -> Value:
    a, b = args
    assert isinstance(a, float)
    assert isinstance(b, float)
    odd = math.isfinite(b) and math.fmod(b, 2.0) in (1.0, -1.0)
    try:
        return math.pow(a, b)
    except OverflowError:
        return -math.inf if a < 0 and odd else math.inf
    except ValueError:
        if a == 0:
            return -math.inf if odd and math.copysign(1, a) < 0 else math.inf
        return math.nan


def _atan2(call: Call, args: list[Value]) -> Value:
    y, x = args
    assert isinstance(y, float)
    assert isinstance(x, float)
    return math.atan2(y + 0.0, x + 0.0)  # ignores the sign of zeros, as in Spark


def _sign(x: float) -> float:
    return x if x != x or x == 0 else math.copysign(1.0, x)


def _bits(fn: Callable[[int, int], int]) -> Strict:
    return lambda call, args: fn(int(args[0] or 0), int(args[1] or 0))


def _wrapped(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def _shift(left: bool) -> Strict:
    def run(call: Call, args: list[Value]) -> Value:
        a, n = args
        assert isinstance(a, int)
        assert isinstance(n, int)
        bits = _BITS[call.type.kind]
        n &= bits - 1
        return _wrapped(a << n, bits) if left else a >> n

    return run


def _time(fn: Callable[..., int]) -> Strict:
    """A calendar function over stored values; raises EvaluationError if the result does not fit
    its type."""
    return lambda call, args: fit(fn(*args), call.type, call.fn)


def _text(fn: Callable[..., Any]) -> Strict:
    return lambda call, args: fn(*args)


Strict = Callable[[Call, list[Value]], Value]
Special = Callable[[Call, Sequence[Value]], Value]

#: Functions that evaluate their arguments themselves. None fails where its arguments do not.
_SPECIAL: dict[str, Special] = {
    "and": _and,
    "or": _or,
    "coalesce": _coalesce,
    "in_list": _in_list,
    "is_null": lambda call, row: evaluate(call.args[0], row) is None,
    "is_not_null": lambda call, row: evaluate(call.args[0], row) is not None,
    "null_safe_eq": lambda call, row: _same(*_pair(call, row)),
    "is_distinct_from": lambda call, row: not _same(*_pair(call, row)),
    "least": _extreme(-1),
    "greatest": _extreme(1),
    "concat_ws": _concat_ws,
    "isnan": _isnan,
    **{name: _constructed(make) for name, make in nested.CONSTRUCTORS.items()},
}


def _up(x: float) -> float:
    return math.inf


def _odd(x: float) -> float:
    return math.copysign(math.inf, x)


#: Strict functions that never raise EvaluationError.
_NEVER_FAIL: dict[str, Strict] = {
    "sign": _unary(lambda a: (a > 0) - (a < 0), _sign),
    "eq": _compared(lambda o: o == 0),
    "ne": _compared(lambda o: o != 0),
    "lt": _compared(lambda o: o < 0),
    "le": _compared(lambda o: o <= 0),
    "gt": _compared(lambda o: o > 0),
    "ge": _compared(lambda o: o >= 0),
    "not": lambda call, args: not args[0],
    "cbrt": _libm(math.cbrt, _up),
    "exp": _libm(math.exp, _up),
    "ln": _log(math.log),
    "log2": _log(math.log2),
    "log10": _log(math.log10),
    "log": _log_base,
    "pow": _pow,
    "sin": _libm(math.sin, _up),
    "cos": _libm(math.cos, _up),
    "tan": _libm(math.tan, _up),
    "asin": _libm(math.asin, _up),
    "acos": _libm(math.acos, _up),
    "atan": _libm(math.atan, _up),
    "sinh": _libm(math.sinh, _odd),
    "cosh": _libm(math.cosh, _up),
    "tanh": _libm(math.tanh, _up),
    "atan2": _atan2,
    "degrees": _libm(lambda x: x * (180.0 / math.pi), _up),
    "radians": _libm(lambda x: x * (math.pi / 180.0), _up),
    "bit_and": _bits(lambda a, b: a & b),
    "bit_or": _bits(lambda a, b: a | b),
    "bit_xor": _bits(lambda a, b: a ^ b),
    "bit_not": lambda call, args: ~int(args[0] or 0),
    "shiftleft": _shift(True),
    "shiftright": _shift(False),
    **{name: _time(fn) for name, fn in times.NEVER_FAIL.items()},
    **{name: _text(fn) for name, fn in texts.NEVER_FAIL.items()},
    **signals.NEVER_FAIL,
    **nested.never_fail(order),
}
#: Strict functions that may raise EvaluationError, for some types or values.
_MAY_FAIL: dict[str, Strict] = {
    "add": _arithmetic(lambda a, b: a + b, lambda a, b: a + b),
    "sub": _arithmetic(lambda a, b: a - b, lambda a, b: a - b),
    "mul": _arithmetic(lambda a, b: a * b, lambda a, b: a * b),
    "mod": _arithmetic(_mod_whole, _mod_real),
    "pmod": _arithmetic(_pmod_whole, _pmod_real),
    "int_div": _arithmetic(_int_div, lambda a, b: a / b),
    "div": _div,
    "neg": _unary(lambda a: -a, lambda a: -a),
    "abs": _unary(abs, abs),
    "floor": _toward(math.floor, False),
    "ceil": _toward(math.ceil, True),
    "round": _round(False),
    "bround": _round(True),
    "sqrt": _libm(math.sqrt, _up),
    **{name: _time(fn) for name, fn in times.MAY_FAIL.items()},
    **{name: _text(fn) for name, fn in texts.MAY_FAIL.items()},
    **nested.MAY_FAIL,
    **signals.MAY_FAIL,
}
_STRICT = {**_NEVER_FAIL, **_MAY_FAIL}

#: Functions that see NULL arguments, or that leave some arguments unevaluated.
NOT_STRICT = frozenset(_SPECIAL)
#: Functions that never fail. ``folding.can_fail`` decides about the others by types and constants.
NEVER_FAIL = NOT_STRICT | frozenset(_NEVER_FAIL)
