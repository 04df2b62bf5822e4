"""The slow twins of functions over segments of signals: a segment is a sequence of numbers."""

from __future__ import annotations

import cmath
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from cql.planner.nodes.expr import Call

Strict: TypeAlias = Callable[[Call, Sequence[Any]], Any]


def _of(fn: Callable[[Sequence[Any]], Any]) -> Strict:
    return lambda call, args: fn(args[0])


def _mean(x: Sequence[Any]) -> float:
    return math.fsum(x) / len(x) if len(x) else math.nan


def _squares(x: Sequence[Any]) -> float:
    """The sum of the squared distances from the mean."""
    mean = _mean(x)
    return math.fsum((v - mean) ** 2 for v in x)


def _variance(x: Sequence[Any], less: int) -> float:
    return _squares(x) / (len(x) - less) if len(x) > less else math.nan


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
    "sum": _of(lambda x: sum(x) if isinstance(x[0], int) else math.fsum(x)),
    "avg": _of(_mean),
    "min": _of(min),
    "max": _of(max),
    "stddev_samp": _of(lambda x: math.sqrt(_variance(x, 1))),
    "stddev_pop": _of(lambda x: math.sqrt(_variance(x, 0))),
    "var_samp": _of(lambda x: _variance(x, 1)),
    "var_pop": _of(lambda x: _variance(x, 0)),
    "rms": _of(lambda x: math.sqrt(math.fsum(v * v for v in x) / len(x)) if len(x) else math.nan),
    "zero_crossings": _of(_crossings),
    "hann": _of(_hann),
    "power_spectrum": _of(_power),
    "subseg": lambda call, args: _part(*args),
}
