"""The slow twins of functions over segments of signals: a segment is a sequence of numbers."""

from __future__ import annotations

import cmath
import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, TypeAlias

from cql.planner.nodes.expr import Call

Strict: TypeAlias = Callable[[Call, Sequence[Any]], Any]


def _of(fn: Callable[[Sequence[Any]], Any]) -> Strict:
    return lambda call, args: fn(args[0])


def _total(x: Sequence[Any]) -> float:
    """The sum, rounded once; beyond doubles, and of infinities, as addition gives it."""
    try:
        return math.fsum(x)
    except (OverflowError, ValueError):
        return math.nan if -math.inf in x and math.inf in x else sum(map(float, x))


def _sum(x: Sequence[Any]) -> Any:
    if x and isinstance(x[0], int):
        return (sum(x) + 2**63) % 2**64 - 2**63
    return _total(x)


def _mean(x: Sequence[Any]) -> float:
    if not x:
        return math.nan
    return sum(x) / len(x) if isinstance(x[0], int) else _total(x) / len(x)


def _variance(x: Sequence[Any], less: int) -> float:
    if len(x) <= less:
        return math.nan
    if isinstance(x[0], int):
        n = len(x)
        distances: int = n * sum(v * v for v in x) - sum(x) ** 2
        return distances / (n * (n - less))
    if not all(map(math.isfinite, x)):
        return math.nan
    exact = [Fraction(v) for v in x]
    mean = sum(exact, Fraction()) / len(exact)
    squares = sum(((v - mean) ** 2 for v in exact), Fraction())
    try:
        return float(squares / (len(x) - less))
    except OverflowError:
        return math.inf


def _rms(x: Sequence[Any]) -> float:
    return math.sqrt(_total([float(v) * float(v) for v in x]) / len(x)) if x else math.nan


def _lowest(x: Sequence[Any]) -> Any:
    """NaN is above all numbers."""
    return min((v for v in x if v == v), default=math.nan)


def _highest(x: Sequence[Any]) -> Any:
    return max(x) if all(v == v for v in x) else math.nan


def _crossings(x: Sequence[Any]) -> int:
    return sum((a < 0) != (b < 0) for a, b in itertools.pairwise(x))


def _hann(x: Sequence[Any]) -> tuple[float, ...]:
    n = len(x)
    return tuple(v * (0.5 - 0.5 * math.cos(2 * math.pi * i / n)) for i, v in enumerate(x))


def _power(x: Sequence[Any]) -> tuple[float, ...]:
    n = 1 << (len(x) - 1).bit_length() if len(x) else 0
    bins = range(n // 2 + 1 if n else 0)
    turns = ((k, [cmath.exp(-2j * math.pi * k * i / n) for i in range(len(x))]) for k in bins)
    return tuple(abs(sum(v * t for v, t in zip(x, turn, strict=True))) ** 2 for _, turn in turns)


def _part(x: Sequence[Any], start: int, length: int) -> Sequence[Any]:
    start = min(max(start, 0), len(x))
    return x[start : start + max(length, 0)]


#: Functions of segments; none fails.
NEVER_FAIL: dict[str, Strict] = {
    "count": _of(len),
    "sum": _of(_sum),
    "avg": _of(_mean),
    "min": _of(_lowest),
    "max": _of(_highest),
    "stddev_samp": _of(lambda x: math.sqrt(_variance(x, 1))),
    "stddev_pop": _of(lambda x: math.sqrt(_variance(x, 0))),
    "var_samp": _of(lambda x: _variance(x, 1)),
    "var_pop": _of(lambda x: _variance(x, 0)),
    "rms": _of(_rms),
    "zero_crossings": _of(_crossings),
    "hann": _of(_hann),
    "power_spectrum": _of(_power),
    "subseg": lambda call, args: _part(*args),
}
