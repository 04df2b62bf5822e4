"""Strict calls, which are NULL if an argument is: arithmetic, comparison, mathematics, calendar."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cql.base.types import Kind
from cql.executor.codegen.expressions.division import emit_division
from cql.executor.codegen.expressions.logic import emit_order
from cql.executor.codegen.expressions.scope import (
    Code,
    ErrorSite,
    Scope,
    all_valid,
    fail_if,
    fit,
    let,
    overflow,
    real,
    stored,
    when,
    wide,
)
from cql.executor.codegen.expressions.signals import SEGMENTS, emit_segments, over_segments
from cql.planner.interpret.time import DAY, MICROS, MONTHS, SECOND
from cql.planner.nodes.expr import Call, Literal
from cql.planner.nodes.show import show

_COMPARISONS = frozenset(("eq", "ne", "lt", "le", "gt", "ge"))
_ARITHMETIC = {"add": "+", "sub": "-", "mul": "*"}
_BITWISE = {"bit_and": "&", "bit_or": "|", "bit_xor": "^"}

#: Functions of doubles that have a value everywhere: text with {0} and {1} for the arguments.
_REALS = {
    "sqrt": "math.sqrt({0})",
    "cbrt": "cube_root({0})",
    "exp": "math.exp({0})",
    "pow": "math.pow({0}, {1})",
    "sign": "sign_of({0})",
    "sin": "math.sin({0})",
    "cos": "math.cos({0})",
    "tan": "math.tan({0})",
    "asin": "math.asin({0})",
    "acos": "math.acos({0})",
    "atan": "math.atan({0})",
    "sinh": "math.sinh({0})",
    "cosh": "math.cosh({0})",
    "tanh": "math.tanh({0})",
    "atan2": "math.atan2({0} + 0.0, {1} + 0.0)",
    "degrees": "{0} * 57.29577951308232",
    "radians": "{0} * 0.017453292519943295",
}
_LOGARITHMS = {
    "ln": "math.log({0})",
    "log2": "math.log2({0})",
    "log10": "math.log10({0})",
    "log": "log_base({0}, {1})",
}
#: Calendar functions that always have a value; arguments as int64, result in int64.
_CALENDAR = {
    "year": "year_of({0})",
    "quarter": "quarter_of({0})",
    "month": "month_of({0})",
    "day": "day_of({0})",
    "dayofweek": "dayofweek_of({0})",
    "weekday": "weekday_of({0})",
    "dayofyear": "dayofyear_of({0})",
    "week": "week_of({0})",
    "hour": f"({{0}} // {3600 * SECOND}) % 24",
    "minute": f"({{0}} // {60 * SECOND}) % 60",
    "second": f"({{0}} // {SECOND}) % 60",
    "millisecond": "({0} // 1000) % 1000",
    "last_day": "last_day_of({0})",
    "whole_months": "whole_months({0}, {1})",
    "unix_seconds": f"{{0}} // {SECOND}",
    "unix_millis": "{0} // 1000",
    "unix_micros": "{0}",
    "timestamp_micros": "{0}",
}
#: Calendar functions whose result may not fit its storage.
_CALENDAR_CHECKED = {
    "date_add": "{0} + {1}",
    "date_sub": "{0} - {1}",
    "datediff": "{0} - {1}",
    "add_months": "add_months_days({0}, {1})",
}
#: Functions that return (value, flag), and the meaning of the flag.
_FLAGGED = {
    "timestamp_seconds": (f"mul_flagged({{0}}, int64({SECOND}))", "overflow"),
    "timestamp_millis": ("mul_flagged({0}, int64(1000))", "overflow"),
    "timestamp_add_months": ("add_months_micros({0}, {1})", "overflow"),
    "make_date": ("make_date_days({0}, {1}, {2})", "value"),
}


def emit_call(call: Call, args: Sequence[Code], scope: Scope) -> Code:
    """A strict call over emitted arguments."""
    valid = all_valid(scope, *args)
    fn, to = call.fn, call.type
    if fn in _COMPARISONS:
        return _comparison(call, args, valid, scope)
    if fn in _ARITHMETIC:
        return Code(_arithmetic(call, args, valid, scope), valid)
    if fn in ("div", "int_div", "mod", "pmod"):
        return Code(emit_division(call, args, valid, scope), valid)
    if fn in _REALS:
        return Code(let(scope, _REALS[fn].format(*(a.value for a in args))), valid)
    if over_segments(call):
        return emit_segments(call, args, valid, scope)
    if fn in _LOGARITHMS:
        return _logarithm(call, args, valid, scope)
    if fn in _BITWISE:
        text = f"{args[0].value} {_BITWISE[fn]} {args[1].value}"
        return Code(let(scope, f"{to.storage}({text})"), valid)
    ints = [wide(a.value, e.type) for a, e in zip(args, call.args, strict=True) if e.type.kind is
            not Kind.STRING and not e.type.is_fraction]  # fmt: skip
    if fn in _CALENDAR:
        return Code(let(scope, stored(_CALENDAR[fn].format(*ints), to)), valid)
    if fn in _CALENDAR_CHECKED:
        x = let(scope, _CALENDAR_CHECKED[fn].format(*ints))
        return Code(fit(scope, x, to, valid, overflow(call, show(call))), valid)
    if fn in _FLAGGED:
        return _flagged(call, ints, valid, scope)
    return Code(_OTHERS[fn](call, args[0].value if args else "", args, valid, scope), valid)


# -- comparison and arithmetic -----------------------------------------------------------------


def _comparison(call: Call, args: Sequence[Code], valid: str | None, scope: Scope) -> Code:
    a, b = (c.value for c in args)
    ordered = call.args[0].type.is_text and call.fn not in ("eq", "ne")
    if not ordered or valid is None:
        return Code(let(scope, emit_order(call.fn, call.args, a, b, scope)), valid)
    result = let(scope, "False")
    with when(scope, valid):
        scope.line(f"{result} = {emit_order(call.fn, call.args, a, b, scope)}")
    return Code(result, valid)


def _arithmetic(call: Call, args: Sequence[Code], valid: str | None, scope: Scope) -> str:
    to, (a, b) = call.type, (c.value for c in args)
    symbol = _ARITHMETIC[call.fn]
    site = overflow(call, show(call))
    if to.is_fraction:
        return let(scope, f"{to.storage}({a} {symbol} {b})")
    if to.kind is Kind.DECIMAL:
        return _decimal(call, a, b, valid, site, scope)
    if to.storage != "int64":
        x = let(scope, f"int64({a}) {symbol} int64({b})")
        return fit(scope, x, to, valid, site)
    x, bad = scope.temp("x"), scope.temp("o")
    scope.line(f"{x}, {bad} = {call.fn}_flagged({a}, {b})")
    fail_if(scope, bad, valid, site)
    return x


def _decimal(call: Call, a: str, b: str, valid: str | None, site: ErrorSite, scope: Scope) -> str:
    """Operands of at most 18 digits: sums cannot leave an int64, products can."""
    to = call.type
    left, right = (x.type.precision for x in call.args)
    if call.fn == "mul":
        if left + right <= to.precision:
            return let(scope, f"{a} * {b}")
        x, bad = scope.temp("x"), scope.temp("o")
        scope.line(f"{x}, {bad} = mul_flagged({a}, {b})")
        limit = 10**to.precision
        fail_if(scope, f"{bad} or {x} <= {-limit} or {x} >= {limit}", valid, site)
        return x
    x = let(scope, f"{a} {_ARITHMETIC[call.fn]} {b}")
    return x if max(left, right) < to.precision else fit(scope, x, to, valid, site)


def _logarithm(call: Call, args: Sequence[Code], valid: str | None, scope: Scope) -> Code:
    """A logarithm is NULL if its argument or its base is at most zero."""
    tests = [f"(not ({a.value} <= 0.0))" for a in args]
    ok = let(scope, " & ".join([valid, *tests] if valid else tests), "v")
    text = _LOGARITHMS[call.fn].format(*(a.value for a in args))
    return Code(let(scope, f"{text} if {ok} else 0.0"), ok)


def _flagged(call: Call, ints: Sequence[str], valid: str | None, scope: Scope) -> Code:
    template, kind = _FLAGGED[call.fn]
    x, bad = scope.temp("x"), scope.temp("o")
    scope.line(f"{x}, {bad} = {template.format(*ints)}")
    site = overflow(call, show(call))
    if kind == "value":
        site = ErrorSite("value", f"{call.fn}: there is no such date", call.pos)
    fail_if(scope, bad, valid, site)
    return Code(let(scope, stored(x, call.type)), valid)


# -- others ------------------------------------------------------------------------------------

_Other = Callable[[Call, str, Sequence[Code], "str | None", Scope], str]


def _not(call: Call, a: str, args: Sequence[Code], valid: str | None, scope: Scope) -> str:
    return let(scope, f"not {a}")


def _neg(call: Call, a: str, args: Sequence[Code], valid: str | None, scope: Scope) -> str:
    return _signed(call, a, valid, scope, "-{0}")


def _abs(call: Call, a: str, args: Sequence[Code], valid: str | None, scope: Scope) -> str:
    if call.type.is_fraction:
        return let(scope, f"{call.type.storage}(abs({a}))")
    return _signed(call, a, valid, scope, "(-{0} if {0} < 0 else {0})")


def _signed(call: Call, a: str, valid: str | None, scope: Scope, text: str) -> str:
    """neg and abs, which overflow for the least integer."""
    to = call.type
    if to.is_fraction:
        return let(scope, text.format(a))
    if to.storage == "int64" and to.kind is not Kind.DECIMAL:
        fail_if(scope, f"{a} == {-(2**63)}", valid, overflow(call, show(call)))
    x = let(scope, text.format(wide(a, to)))
    if to.storage == "int64":
        return x
    return fit(scope, x, to, valid, overflow(call, show(call)))


def _bit_not(call: Call, a: str, args: Sequence[Code], valid: str | None, scope: Scope) -> str:
    return let(scope, f"{call.type.storage}(-1 - int64({a}))")


def _shift(call: Call, a: str, args: Sequence[Code], valid: str | None, scope: Scope) -> str:
    mask = 63 if call.type.storage == "int64" else 31
    n = f"(int64({args[1].value}) & {mask})"
    x = wide(a, call.type)
    text = f"shift_left({x}, {n})" if call.fn == "shiftleft" else f"{x} >> {n}"
    return let(scope, stored(text, call.type))


def _toward(call: Call, a: str, args: Sequence[Code], valid: str | None, scope: Scope) -> str:
    """floor and ceil."""
    source, up = call.args[0].type, call.fn == "ceil"
    if source.kind is Kind.DECIMAL:
        unit = f"int64({10**source.scale})"
        return let(scope, f"-((-{a}) // {unit})" if up else f"{a} // {unit}")
    x, bad = scope.temp("x"), scope.temp("o")
    # numba's math.floor gives an int64 even if none fits: truncates with a check, then corrects
    scope.line(f"{x}, {bad} = whole({a})")
    fail_if(scope, bad, valid, overflow(call, show(call)))
    if up:
        return let(scope, f"{x} + 1 if {a} > {x} else {x}")
    return let(scope, f"{x} - 1 if {a} < {x} else {x}")


def _digits(call: Call) -> int:
    digits = call.args[1]
    assert isinstance(digits, Literal)
    assert isinstance(digits.value, int)
    return digits.value


def _round(call: Call, a: str, args: Sequence[Code], valid: str | None, scope: Scope) -> str:
    source, to, digits = call.args[0].type, call.type, _digits(call)
    even = call.fn == "bround"
    if source.is_fraction:
        p = repr(10.0 ** abs(digits))
        narrow = source.kind is Kind.FLOAT
        text = f"round_real({real(a, source)}, {p}, {digits >= 0}, {even}, {narrow})"
        return let(scope, f"{to.storage}({text})")
    places = source.scale - digits
    if places > 18:
        return let(scope, "int64(0)" if to.storage == "int64" else f"{to.storage}(0)")
    x = let(scope, f"round_units({wide(a, source)}, int64({10 ** max(places, 0)}), {even})")
    site = overflow(call, show(call))
    if to.scale > digits:
        y, bad = scope.temp("x"), scope.temp("o")
        scope.line(f"{y}, {bad} = mul_flagged({x}, int64({10 ** (to.scale - digits)}))")
        fail_if(scope, bad, valid, site)
        x = y
    return fit(scope, x, to, valid, site)


def _unit(call: Call, index: int) -> str:
    unit = call.args[index]
    assert isinstance(unit, Literal)
    return str(unit.value)


def _trunc_days(x: str, unit: str) -> str:
    return f"trunc_week({x})" if unit == "week" else f"trunc_months({x}, {MONTHS[unit]})"


def _date_trunc(call: Call, a: str, args: Sequence[Code], valid: str | None, scope: Scope) -> str:
    unit, x = _unit(call, 0), args[1].value
    if unit in MICROS:
        return let(scope, f"({x} // {MICROS[unit]}) * {MICROS[unit]}")
    return let(scope, f"{_trunc_days(f'{x} // {DAY}', unit)} * {DAY}")


def _trunc(call: Call, a: str, args: Sequence[Code], valid: str | None, scope: Scope) -> str:
    return let(scope, f"int32({_trunc_days(f'int64({a})', _unit(call, 1))})")


_OTHERS: dict[str, _Other] = {
    "not": _not,
    "neg": _neg,
    "abs": _abs,
    "bit_not": _bit_not,
    "shiftleft": _shift,
    "shiftright": _shift,
    "floor": _toward,
    "ceil": _toward,
    "round": _round,
    "bround": _round,
    "date_trunc": _date_trunc,
    "trunc": _trunc,
}

#: Every function that the kernels compute (a test holds it against the registry).
COMPILED = (
    frozenset((*_COMPARISONS, *_ARITHMETIC, *_REALS, *_LOGARITHMS, *_BITWISE, *_CALENDAR))
    | frozenset((*_CALENDAR_CHECKED, *_FLAGGED, *_OTHERS))
    | SEGMENTS
    | frozenset(("div", "int_div", "mod", "pmod"))
)
