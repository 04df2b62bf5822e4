"""The slow twins of functions over segments of signals: a segment is a sequence of numbers."""

from __future__ import annotations

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
}
