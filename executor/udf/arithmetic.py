"""Python's arithmetic in compiled user functions: raises where numba wraps or returns NaN.

numba computes in 64-bit words, as C does. A function must not give one answer compiled and another
in Python: integer overflow beyond 64 bits, conversion of NaN and ``math.sqrt(-1)`` raise here.
Python raises for the last two as well; for a longer integer the engine refuses the result.
``OPERATORS`` and ``FUNCTIONS`` map each replaced operator or function to its replacement
(``udf.compile``).

(int / int and int against float are computed in doubles, as in numba: within an ulp.)
"""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable
from functools import partial
from typing import Any

from numba import types
from numba.core.errors import TypingError
from numba.extending import overload

from cql.executor.kernels.lib.intrinsics import add_flagged, mul_flagged, sub_flagged

_MIN = -(2**63)
_BEYOND = 2.0**63


#: ``overload`` for annotated functions: strict mode would want equal annotations on both sides.
_overload = partial(overload, strict=False)


def _signed(kind: Any) -> bool:
    if isinstance(kind, types.Integer) and not kind.signed and kind.bitwidth == 64:
        raise TypingError("an integer without a sign")  # numba makes unsigned with signed a double
    return isinstance(kind, types.Integer) and kind.signed


def _flagged(plain: Callable[[Any, Any], Any], intrinsic: Any) -> Callable[[Any, Any], Any]:
    """``plain`` on two signed integers; raises OverflowError if the result exceeds 64 bits."""

    def checked(a: Any, b: Any) -> Any:
        return plain(a, b)

    @_overload(checked)
    def _(a: Any, b: Any) -> Any:
        if not (_signed(a) and _signed(b)):
            return lambda a, b: plain(a, b)

        def whole(a: Any, b: Any) -> Any:
            value, beyond = intrinsic(types.int64(a), types.int64(b))
            if beyond:
                raise OverflowError
            return value

        return whole

    return checked


checked_add = _flagged(operator.add, add_flagged)
checked_sub = _flagged(operator.sub, sub_flagged)
checked_mul = _flagged(operator.mul, mul_flagged)


def checked_floordiv(a: Any, b: Any) -> Any:
    return a // b


@_overload(checked_floordiv)
def _floordiv(a: Any, b: Any) -> Any:
    if not (_signed(a) and _signed(b)):
        return lambda a, b: a // b

    def whole(a: Any, b: Any) -> Any:
        if b == -1:
            if a == _MIN:
                raise OverflowError
            return -a
        return a // b

    return whole


def checked_mod(a: Any, b: Any) -> Any:
    return a % b


@_overload(checked_mod)
def _mod(a: Any, b: Any) -> Any:
    if not (_signed(a) and _signed(b)):
        return lambda a, b: a % b

    def whole(a: Any, b: Any) -> Any:
        return 0 if b == -1 else a % b

    return whole


def checked_lshift(a: Any, b: Any) -> Any:
    return a << b


@_overload(checked_lshift)
def _lshift(a: Any, b: Any) -> Any:
    if not (_signed(a) and _signed(b)):
        return lambda a, b: a << b

    def whole(a: Any, b: Any) -> Any:
        if b < 0 or (b > 63 and a != 0):
            raise OverflowError
        moved = a << min(b, 63)
        if moved >> min(b, 63) != a:
            raise OverflowError
        return moved

    return whole


def checked_rshift(a: Any, b: Any) -> Any:
    return a >> b


@_overload(checked_rshift)
def _rshift(a: Any, b: Any) -> Any:
    if not (_signed(a) and _signed(b)):
        return lambda a, b: a >> b

    def whole(a: Any, b: Any) -> Any:
        if b < 0:
            raise ValueError
        return a >> min(b, 63)

    return whole


def checked_pow(a: Any, b: Any) -> Any:
    return a**b


@_overload(checked_pow)
def _pow(a: Any, b: Any) -> Any:
    if isinstance(a, types.Integer) and isinstance(b, types.Integer):
        # Python's result has no single type: 2 ** 3 is an int, 2 ** -3 a float.
        raise TypingError("an int to the power of an int that is not a constant")
    if isinstance(a, types.Float | types.Integer) and isinstance(b, types.Float | types.Integer):

        def real(a: Any, b: Any) -> Any:
            if a == 0 and b < 0:
                raise ZeroDivisionError
            value = float(a) ** float(b)
            if (math.isnan(value) and not (math.isnan(a) or math.isnan(b))) or (
                math.isinf(value) and not (math.isinf(a) or math.isinf(b))
            ):
                raise OverflowError
            return value

        return real
    return lambda a, b: a**b


def checked_power(a: Any, b: Any) -> Any:
    """``a ** b`` for a non-negative constant ``b``."""
    return a**b


@_overload(checked_power)
def _power(a: Any, b: Any) -> Any:
    if not _signed(a):
        return lambda a, b: checked_pow(a, b)

    def whole(a: Any, b: Any) -> Any:
        value = types.int64(1)
        factor = types.int64(a)
        left = b
        while left > 0:
            if left & 1:
                value, beyond = mul_flagged(value, factor)
                if beyond:
                    raise OverflowError
            left >>= 1
            if left > 0:
                factor, beyond = mul_flagged(factor, factor)
                if beyond:
                    raise OverflowError
        return value

    return whole


def checked_neg(a: Any) -> Any:
    return -a


@_overload(checked_neg)
def _neg(a: Any) -> Any:
    if not _signed(a):
        return lambda a: -a

    def whole(a: Any) -> Any:
        if a == _MIN:
            raise OverflowError
        return -a

    return whole


def checked_abs(a: Any) -> Any:
    return abs(a)


@_overload(checked_abs)
def _abs(a: Any) -> Any:
    if not _signed(a):
        return lambda a: abs(a)

    def whole(a: Any) -> Any:
        if a == _MIN:
            raise OverflowError
        return abs(a)

    return whole


# -- from doubles to integers ------------------------------------------------------------------


def _to_whole(plain: Callable[[Any], Any], rounded: Callable[[float], float]) -> Any:
    """``plain`` (int, floor, …) of a double; raises OverflowError if 64 bits cannot hold it."""

    def checked(a: Any) -> Any:
        return plain(a)

    @_overload(checked)
    def _(a: Any) -> Any:
        if not isinstance(a, types.Float):
            return lambda a: plain(a)

        def whole(a: Any) -> Any:
            value = rounded(float(a))
            if not -_BEYOND <= value < _BEYOND:
                raise OverflowError
            return types.int64(value)

        return whole

    return checked


def _as_float(numpy_function: str) -> Callable[[float], float]:
    import numpy as np

    found: Callable[[float], float] = getattr(np, numpy_function)
    return found


checked_int = _to_whole(int, _as_float("trunc"))
checked_floor = _to_whole(math.floor, _as_float("floor"))
checked_ceil = _to_whole(math.ceil, _as_float("ceil"))
checked_trunc = _to_whole(math.trunc, _as_float("trunc"))


def checked_round(a: Any, digits: Any = None) -> Any:
    return round(a, digits)


@_overload(checked_round)
def _round(a: Any, digits: Any = None) -> Any:
    if digits is None or isinstance(digits, types.NoneType | types.Omitted):
        if not isinstance(a, types.Float):
            return lambda a, digits=None: a
        rint = _as_float("rint")

        def whole(a: Any, digits: Any = None) -> Any:
            value = rint(float(a))
            if not -_BEYOND <= value < _BEYOND:
                raise OverflowError
            return types.int64(value)

        return whole
    if not isinstance(a, types.Float):
        raise TypingError("round(int, digits)")
    return lambda a, digits=None: round(a, digits)


# -- mathematics -------------------------------------------------------------------------------


def _of_reals(plain: Callable[..., Any], count: int) -> Callable[..., Any]:
    """``plain``, a function of ``math``, that raises as in Python if the result is NaN or infinite
    and no argument is."""
    if count == 1:

        def checked(a: Any) -> Any:
            return plain(a)

        @_overload(checked)
        def _one(a: Any) -> Any:
            def real(a: Any) -> Any:
                value = plain(a)
                if (math.isnan(value) and not math.isnan(a)) or (
                    math.isinf(value) and not math.isinf(a)
                ):
                    raise ValueError
                return value

            return real

        return checked

    def checked_two(a: Any, b: Any) -> Any:
        return plain(a, b)

    @_overload(checked_two)
    def _two(a: Any, b: Any) -> Any:
        def real(a: Any, b: Any) -> Any:
            value = plain(a, b)
            if (math.isnan(value) and not (math.isnan(a) or math.isnan(b))) or (
                math.isinf(value) and not (math.isinf(a) or math.isinf(b))
            ):
                raise ValueError
            return value

        return real

    return checked_two


_ONE = """
    sqrt exp expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh
    gamma lgamma
"""
_TWO = "pow fmod hypot"

#: Replacements of operators, and of functions by identity.
OPERATORS: dict[Callable[..., Any], Callable[..., Any]] = {
    operator.add: checked_add,
    operator.sub: checked_sub,
    operator.mul: checked_mul,
    operator.floordiv: checked_floordiv,
    operator.mod: checked_mod,
    operator.lshift: checked_lshift,
    operator.rshift: checked_rshift,
    operator.pow: checked_pow,
    operator.neg: checked_neg,
    operator.iadd: checked_add,
    operator.isub: checked_sub,
    operator.imul: checked_mul,
    operator.ifloordiv: checked_floordiv,
    operator.imod: checked_mod,
    operator.ilshift: checked_lshift,
    operator.irshift: checked_rshift,
    operator.ipow: checked_pow,
}
FUNCTIONS: dict[int, Callable[..., Any]] = {
    id(builtins.abs): checked_abs,
    id(builtins.int): checked_int,
    id(builtins.round): checked_round,
    id(builtins.pow): checked_pow,
    id(math.floor): checked_floor,
    id(math.ceil): checked_ceil,
    id(math.trunc): checked_trunc,
    **{id(getattr(math, name)): _of_reals(getattr(math, name), 1) for name in _ONE.split()},
    **{id(getattr(math, name)): _of_reals(getattr(math, name), 2) for name in _TWO.split()},
}
