"""The reference's functions of segments, which are tuples of samples."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np

from cql.planner.nodes.expr import Call
from tests.reference.naive_registry import function


@function("count")
def _count(call: Call, x: Sequence[Any]) -> int:
    return len(x)


@function("sum")
def _sum(call: Call, x: Sequence[Any]) -> Any:
    return sum(x)


@function("avg")
def _avg(call: Call, x: Sequence[Any]) -> float:
    return statistics.fmean(x)


@function("min")
def _min(call: Call, x: Sequence[Any]) -> Any:
    return min(x)


@function("max")
def _max(call: Call, x: Sequence[Any]) -> Any:
    return max(x)


@function("stddev_samp", "stddev_pop", "var_samp", "var_pop")
def _spread(call: Call, x: Sequence[Any]) -> float:
    less = call.fn.endswith("_samp")
    if len(x) == less:
        return math.nan
    mean = statistics.fmean(x)
    variance = math.fsum((v - mean) ** 2 for v in x) / (len(x) - less)
    return variance if call.fn.startswith("var") else math.sqrt(variance)


@function("rms")
def _rms(call: Call, x: Sequence[Any]) -> float:
    return math.sqrt(math.fsum(v * v for v in x) / len(x))


@function("zero_crossings")
def _crossings(call: Call, x: Sequence[Any]) -> int:
    return sum((a < 0) != (b < 0) for a, b in itertools.pairwise(x))


@function("hann")
def _hann(call: Call, x: Sequence[Any]) -> tuple[float, ...]:
    return tuple(v * math.sin(math.pi * i / len(x)) ** 2 for i, v in enumerate(x))


@function("power_spectrum")
def _power(call: Call, x: Sequence[Any]) -> tuple[float, ...]:
    size = 1
    while size < len(x):
        size *= 2
    return tuple((np.abs(np.fft.rfft(np.asarray(x, float), size)) ** 2).tolist()) if x else ()


@function("subseg")
def _subseg(call: Call, x: Sequence[Any], start: int, length: int) -> Sequence[Any]:
    return [v for i, v in enumerate(x) if i >= start][: max(length, 0)]
