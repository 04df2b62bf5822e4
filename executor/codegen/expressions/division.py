"""Division and remainder. Division by a constant becomes a multiplication by magic numbers, which
are parameters of the kernel like any constant: 1 ns, where an idiv takes 5 to 10 ns."""

from __future__ import annotations

from collections.abc import Sequence

from cql.base.types import BIGINT, Kind
from cql.executor.codegen.expressions.scope import (
    Code,
    ErrorSite,
    Scope,
    fail_if,
    fit,
    let,
    overflow,
    stored,
    when,
    wide,
)
from cql.planner.nodes.expr import Call, Expr, Literal
from cql.planner.nodes.show import show

_MIN = -(2**63)


def magic(divisor: int) -> tuple[int, int]:
    """(multiplier M as int64, shift) with, for every int64 n and |divisor| = d >= 2,
    n / d = floor(n * M / 2**(64 + shift)) + (1 if n < 0 else 0), truncating.

    With 2**(l - 1) < d <= 2**l, M = floor(2**(63 + l) / d) + 1 lies in (2**63, 2**64) and exceeds
    the exact multiplier by e / d, 0 < e <= d. So |n| * e <= 2**(63 + l), which keeps the product
    above the true quotient and less than one step away."""
    size = abs(divisor)
    length = (size - 1).bit_length()
    return (1 << (63 + length)) // size + 1 - (1 << 64), length - 1


def emit_division(call: Call, args: Sequence[Code], valid: str | None, scope: Scope) -> str:
    divisor = call.args[1]
    if call.type.is_fraction:
        return _real(call, args, valid, scope)
    if call.type.kind is Kind.INTERVAL:
        return _interval(call, args, valid, scope)
    if call.fn == "div":
        return _decimal(call, args, valid, scope)
    constant = divisor.value if isinstance(divisor, Literal) else None
    if isinstance(constant, int) and constant not in (0, 1, -1):
        return _by_constant(call, args, constant, valid, scope)
    a, b = (wide(c.value, e.type) for c, e in zip(args, call.args, strict=True))
    x = let(scope, "int64(0)")
    with when(scope, valid):
        _refuse_zero(call, b, scope)
        if call.fn == "int_div" and call.type.storage == "int64":
            fail_if(scope, f"{b} == -1 and {a} == {_MIN}", None, overflow(call, show(call)))
        function = {"int_div": "divide", "mod": "modulo", "pmod": "positive_modulo"}[call.fn]
        scope.line(f"{x} = {function}({a}, {b})")
    return _narrowed(call, x, valid, scope)


def _refuse_zero(call: Call, b: str, scope: Scope) -> None:
    site = ErrorSite("division by zero", f"division by zero in {show(call)}", call.pos)
    fail_if(scope, f"{b} == 0", None, site)


def _narrowed(call: Call, x: str, valid: str | None, scope: Scope) -> str:
    """A quotient or remainder in its storage: it fits the operands' type, except for the least
    integer divided by -1."""
    if call.fn == "int_div" and call.type.storage != "int64":
        return fit(scope, x, call.type, valid, overflow(call, show(call)))
    if call.type.kind is Kind.DECIMAL or call.type.storage == "int64":
        return x
    return let(scope, stored(x, call.type))


def _by_constant(
    call: Call, args: Sequence[Code], divisor: int, valid: str | None, scope: Scope
) -> str:
    a = wide(args[0].value, call.args[0].type)
    x = let(scope, _quotient(a, *(scope.extra_constant(v) for v in magic(divisor))))
    if call.fn == "int_div":
        return _narrowed(call, x if divisor > 0 else let(scope, f"-{x}"), valid, scope)
    size = wide(args[1].value, call.args[1].type)
    x = let(scope, f"{a} - {x} * {size}" if divisor > 0 else f"{a} + {x} * {size}")
    if call.fn == "pmod" and divisor > 0:
        x = let(scope, f"{x} + ({size} & ({x} >> 63))")
    return _narrowed(call, x, valid, scope)


def _quotient(n: str, multiplier: str, shift: str) -> str:
    """The quotient by ``magic`` as text. M is negative as an int64, so that n has to be added."""
    return f"((mul_high({n}, {multiplier}) + {n}) >> {shift}) + int64(uint64({n}) >> uint64(63))"


def scaled(call: Call) -> tuple[Call, Expr, Literal, int] | None:
    """``x * m / d`` of bigints with positive constants: (the product, x, m, d)."""
    product, *rest = call.args
    divisor = rest[0].value if rest and isinstance(rest[0], Literal) else None
    if call.fn != "int_div" or call.type != BIGINT or not isinstance(product, Call):
        return None
    if product.fn != "mul" or product.type != BIGINT or not isinstance(divisor, int):
        return None
    x, m = product.args if isinstance(product.args[1], Literal) else product.args[::-1]
    if not isinstance(m, Literal) or not isinstance(m.value, int) or m.value < 1 or divisor < 2:
        return None
    return product, x, m, divisor


def emit_scaled(product: Call, x: Code, factor: Literal, divisor: int, scope: Scope) -> Code:
    """One comparison proves that x is not negative and that the product fits, so that neither
    needs a check of its own: 0.5 ns a row where multiply, check, divide take 0.8."""
    assert isinstance(factor.value, int)
    m = scope.constant(factor)
    limit = scope.extra_constant((2**63 - 1) // factor.value)
    multiplier, shift = (scope.extra_constant(v) for v in magic(divisor))
    y = let(scope, "int64(0)")
    with when(scope, f"uint64({x.value}) <= uint64({limit})"):
        scope.line(f"{y} = unsigned_mul_high({x.value} * {m}, {multiplier}) >> {shift}")
    scope.line("else:")
    with scope.block():
        n, bad = scope.temp("x"), scope.temp("o")
        scope.line(f"{n}, {bad} = mul_flagged({x.value}, {m})")
        fail_if(scope, bad, x.valid, overflow(product, show(product)))
        scope.line(f"{y} = {_quotient(n, multiplier, shift)}")
    return Code(y, x.valid)


def divisible(call: Call) -> tuple[Expr, int] | None:
    """``x % d = 0`` and its negation over integers, d a constant: (x, d)."""
    if call.fn not in ("eq", "ne"):
        return None
    for remainder, zero in (call.args, call.args[::-1]):
        if not isinstance(zero, Literal) or zero.value != 0 or not isinstance(remainder, Call):
            continue
        divisor = remainder.args[-1]
        if remainder.fn not in ("mod", "pmod") or not remainder.type.is_integer:
            continue
        if isinstance(divisor, Literal) and isinstance(divisor.value, int) and divisor.value:
            return remainder.args[0], abs(divisor.value)
    return None


def emit_divisible(fn: str, arg: Expr, x: Code, divisor: int, scope: Scope) -> Code:
    """Tests divisibility without a division. For an odd d, a multiple of d times the inverse of d
    modulo 2**64 is the quotient, which lies between the quotients of the least and the greatest
    int64. The product for any other number lies outside, since the multiplication is one to one.
    Powers of two are tested by the low bits. This takes one low product; the remainder takes one
    high and two low products."""
    n = wide(x.value, arg.type)
    twos = divisor & -divisor
    odd = divisor // twos
    tests = []
    if twos > 1:
        tests.append(f"({n} & {scope.extra_constant(twos - 1)}) == 0")
    if odd > 1:
        least, most = -(2**63 // odd), (2**63 - 1) // odd
        inverse = scope.extra_constant(_signed(pow(odd, -1, 2**64)))
        first, span = scope.extra_constant(least), scope.extra_constant(_signed(most - least))
        tests.append(f"uint64({n} * {inverse} - {first}) <= uint64({span})")
    held = " & ".join(f"({test})" for test in tests) or "True"
    return Code(let(scope, held if fn == "eq" else f"not ({held})"), x.valid)


def _signed(word: int) -> int:
    """An unsigned word of 64 bits as int64."""
    return word - 2**64 if word >= 2**63 else word


def _real(call: Call, args: Sequence[Code], valid: str | None, scope: Scope) -> str:
    a, b = (c.value for c in args)
    text = {
        "div": f"{a} / {b}",
        "mod": f"real_modulo({a}, {b})",
        "pmod": f"positive_fmod({a}, {b})",
    }[call.fn]
    dtype = call.type.storage
    x = let(scope, f"{dtype}(0.0)")
    with when(scope, valid):
        _refuse_zero(call, b, scope)
        scope.line(f"{x} = {dtype}({text})")
    return x


def _interval(call: Call, args: Sequence[Code], valid: str | None, scope: Scope) -> str:
    a, b = (c.value for c in args)
    site = overflow(call, show(call))
    x = let(scope, "int64(0)")
    with when(scope, valid):
        _refuse_zero(call, b, scope)
        if call.args[1].type.is_fraction:
            bad = scope.temp("o")
            scope.line(f"{x}, {bad} = whole(round_real({a} / {b}, 1.0, True, False, False))")
            fail_if(scope, bad, None, site)
        else:
            fail_if(scope, f"{b} == -1 and {a} == {_MIN}", None, site)
            scope.line(f"{x} = divide_half_up({a}, {b})")
    return x


def _decimal(call: Call, args: Sequence[Code], valid: str | None, scope: Scope) -> str:
    a, b = (c.value for c in args)
    left, right = (e.type.scale for e in call.args)
    factor = 10 ** (call.type.scale - left + right)
    limit = 10**call.type.precision
    x = let(scope, "int64(0)")
    with when(scope, valid):
        _refuse_zero(call, b, scope)
        bad = scope.temp("o")
        scope.line(f"{x}, {bad} = decimal_quotient({a}, {b}, int64({factor}))")
        outside = f"{bad} or {x} <= {-limit} or {x} >= {limit}"
        fail_if(scope, outside, None, overflow(call, show(call)))
    return x
