"""Casts between types that a kernel computes itself (casts of texts are dictionary tables)."""

from __future__ import annotations

from cql.base.types import DataType, Kind
from cql.executor.codegen.expressions.scope import (
    Code,
    ErrorSite,
    Scope,
    fail_if,
    let,
    real,
    stored,
    wide,
    zero,
)
from cql.planner.functions.coercion import cast_can_fail
from cql.planner.nodes.expr import Cast
from cql.planner.nodes.show import show

SECOND = 1_000_000
DAY = 86_400 * SECOND


def emit_cast(cast: Cast, arg: Code, scope: Scope) -> Code:
    source, to = cast.arg.type, cast.type
    if source.kind is Kind.NULL:
        return Code(zero(to), let(scope, "False", "v"))
    if source == to or source.is_text:  # string to binary: the same code
        return arg
    if source.is_timestamp and to.is_timestamp:
        return arg
    if not cast_can_fail(source, to):
        return Code(let(scope, _always(source, to, arg.value)), arg.valid)
    return _checked(cast, arg, scope)


def _always(source: DataType, to: DataType, x: str) -> str:
    """A cast that fits every value, as text."""
    if to.kind is Kind.BOOLEAN:
        return f"{x} != 0"
    if to.is_fraction:
        if source.kind is Kind.DECIMAL:
            return stored(f"{x} / {10.0**source.scale!r}", to)
        if source.is_timestamp:
            return stored(f"{x} / {float(SECOND)!r}", to)
        return f"{to.storage}({x})"
    if source.is_timestamp:
        return f"int32({x} // {DAY})" if to.kind is Kind.DATE else f"{x} // {SECOND}"
    if to.kind is Kind.DECIMAL:
        if source.kind is Kind.DECIMAL:
            return _rescaled(x, source.scale, to.scale)
        return f"int64({x}) * int64({10**to.scale})"
    if source.kind is Kind.DECIMAL:
        return stored(f"divide({x}, int64({10**source.scale}))", to)
    return f"{to.storage}({x})"


def _rescaled(x: str, scale: int, to: int) -> str:
    """A decimal of another scale, half up; the product is known to fit."""
    if to >= scale:
        return x if to == scale else f"{x} * int64({10 ** (to - scale)})"
    return f"round_units({x}, int64({10 ** (scale - to)}), False)"


def _checked(cast: Cast, arg: Code, scope: Scope) -> Code:
    """Computes in int64 with a flag ``bad``; TRY_CAST turns the flag into NULL."""
    source, to = cast.arg.type, cast.type
    if to.kind is Kind.DECIMAL:
        x, bad = _to_decimal(source, to, arg.value, scope)
    elif to.is_timestamp:
        x, bad = _to_timestamp(source, arg.value, scope)
    elif source.is_fraction:
        x, bad = _flagged(scope, f"whole({real(arg.value, source)})")
    elif source.is_timestamp:
        x, bad = let(scope, f"{arg.value} // {SECOND}"), ""
    elif source.kind is Kind.DECIMAL:
        x, bad = let(scope, f"divide({arg.value}, int64({10**source.scale}))"), ""
    else:
        x, bad = wide(arg.value, source), ""
    bad = _with_range(x, bad, to)
    site = ErrorSite("cast", f"the value does not fit {to.with_limit}: {show(cast)}", cast.pos)
    if not cast.safe:
        fail_if(scope, bad, arg.valid, site)
        return Code(let(scope, stored(x, to)), arg.valid)
    valid = f"not ({bad})" if arg.valid is None else f"{arg.valid} & (not ({bad}))"
    return Code(let(scope, stored(x, to)), let(scope, valid, "v"))


def _flagged(scope: Scope, text: str) -> tuple[str, str]:
    x, bad = scope.temp("x"), scope.temp("o")
    scope.line(f"{x}, {bad} = {text}")
    return x, bad


def _with_range(x: str, bad: str, to: DataType) -> str:
    """Adds the range of the target's storage, or of its digits, to a condition."""
    tests = [bad] if bad else []
    if to.kind is Kind.DECIMAL:
        limit = 10**to.precision
        tests.append(f"{x} <= {-limit} or {x} >= {limit}")
    elif to.storage not in ("int64", "bool"):
        tests.append(f"{x} != int64({to.storage}({x}))")
    return " or ".join(tests)


def _to_decimal(source: DataType, to: DataType, x: str, scope: Scope) -> tuple[str, str]:
    if source.is_fraction:
        narrow = source.kind is Kind.FLOAT
        return _flagged(scope, f"real_to_decimal({real(x, source)}, {10.0**to.scale!r}, {narrow})")
    scale = source.scale if source.kind is Kind.DECIMAL else 0
    if to.scale > scale:
        return _flagged(scope, f"mul_flagged({wide(x, source)}, int64({10 ** (to.scale - scale)}))")
    return let(scope, _rescaled(wide(x, source), scale, to.scale)), ""


def _to_timestamp(source: DataType, x: str, scope: Scope) -> tuple[str, str]:
    if source.kind is Kind.DATE:
        return _flagged(scope, f"mul_flagged({wide(x, source)}, int64({DAY}))")
    if source.is_fraction:
        return _flagged(scope, f"whole({real(x, source)} * {float(SECOND)!r})")
    return _flagged(scope, f"mul_flagged({wide(x, source)}, int64({SECOND}))")
