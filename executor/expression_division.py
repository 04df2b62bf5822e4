"""Division and remainder. A constant divisor becomes a multiplication by magic numbers, which are
parameters of the kernel like any constant: an idiv costs 5 to 10 ns, this 1."""

from __future__ import annotations

from collections.abc import Sequence

from cql.executor.expression_scope import (
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
from cql.planner.expr import Call, Literal
from cql.planner.show import show
from cql.types import Kind

_MIN = -(2**63)


def magic(divisor: int) -> tuple[int, int, int]:
    """(multiplier, shift, correction) for |divisor| as the branch-free signed division of
    libdivide has them: with q = mulhi(n, multiplier) + n,
    n / |divisor| = (q + (correction if q < 0 else 0)) >> shift."""
    size = abs(divisor)
    shift = size.bit_length() - 1
    if size & (size - 1) == 0:
        return 0, shift, (1 << shift) - 1
    # floor(2**(64 + shift) / size) + 1 lies in (2**64, 2**65): its 64 low bits, as signed
    multiplier = ((1 << (64 + shift)) // size + 1) & ((1 << 64) - 1)
    return multiplier - ((multiplier >> 63) << 64), shift, 1 << shift


def emit_division(call: Call, args: Sequence[Code], valid: str | None, scope: Scope) -> str:
    divisor = call.args[1]
    if call.type.is_fraction:
        return _real(call, args, valid, scope)
    if call.type.kind is Kind.INTERVAL:
        return _interval(call, args, valid, scope)
    if call.fn == "div":
        return _decimal(call, args, valid, scope)
    constant = divisor.value if isinstance(divisor, Literal) else None
    if isinstance(constant, int) and constant not in (0, -1):
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
    """Quotients and remainders fit their operands' type, but for the least integer by -1."""
    if call.fn == "int_div" and call.type.storage != "int64":
        return fit(scope, x, call.type, valid, overflow(call, show(call)))
    if call.type.kind is Kind.DECIMAL or call.type.storage == "int64":
        return x
    return let(scope, stored(x, call.type))


def _by_constant(
    call: Call, args: Sequence[Code], divisor: int, valid: str | None, scope: Scope
) -> str:
    multiplier, shift, correction = magic(divisor)
    m, s, c = (scope.extra_constant(v) for v in (multiplier, shift, correction))
    a = wide(args[0].value, call.args[0].type)
    q = let(scope, f"mul_high({a}, {m}) + {a}", "q")
    x = let(scope, f"({q} + (({q} >> 63) & {c})) >> {s}")
    if call.fn == "int_div":
        return _narrowed(call, x if divisor > 0 else let(scope, f"-{x}"), valid, scope)
    size = wide(args[1].value, call.args[1].type)
    x = let(scope, f"{a} - {x} * {size}" if divisor > 0 else f"{a} + {x} * {size}")
    if call.fn == "pmod" and divisor > 0:
        x = let(scope, f"{x} + ({size} & ({x} >> 63))")
    return _narrowed(call, x, valid, scope)


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
            scope.line(f"{x}, {bad} = whole({a} / {b})")
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
