"""The reference's functions of segments, which are tuples of samples."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.signal import get_window, lfilter

from cql.planner.nodes.expr import Call
from tests.reference.naive_registry import function
from tests.reference.naive_samples import Segment, placed
from tests.reference.naive_values import BadRowError


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
def _spread(call: Call, x: Sequence[Any]) -> float | None:
    less = call.fn.endswith("_samp")
    if len(x) == less:
        return None
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
    if len(x) == 1:
        return placed(x, map(float, x))
    return placed(x, (v * math.sin(math.pi * i / len(x)) ** 2 for i, v in enumerate(x)))


@function("hamming", "blackman")
def _window(call: Call, x: Sequence[Any]) -> tuple[float, ...]:
    weights = get_window(call.fn, len(x)) if x else []
    return placed(x, [v * float(w) for v, w in zip(x, weights, strict=True)])


@function("append")
def _append(call: Call, x: Any, y: Any) -> Sequence[Any]:
    if x.first.exact(len(x)) != y.first.exact():
        raise BadRowError("append")
    return placed(x, [*x, *y])


@function("power_spectrum")
def _power(call: Call, x: Sequence[Any]) -> tuple[float, ...]:
    return tuple((np.abs(np.fft.rfft(np.asarray(x, float))) ** 2).tolist()) if x else ()


@function("fft")
def _fft(call: Call, x: Sequence[Any]) -> tuple[complex, ...]:
    return tuple(np.fft.rfft(np.asarray(x, float)).tolist()) if x else ()


@function("ifft")
def _ifft(call: Call, x: Sequence[Any], *given: int) -> tuple[float, ...]:
    n = given[0] if given else max(2 * len(x) - 2, 0)
    if len(x) != (n // 2 + 1 if n > 0 else 0) or n < 0:
        raise BadRowError("ifft")
    return tuple(np.fft.irfft(x, n).tolist()) if n else ()


@function("real", "imag", "magnitude", "phase")
def _part_of(call: Call, x: Sequence[complex]) -> tuple[float, ...]:
    parts = {"real": np.real, "imag": np.imag, "magnitude": np.abs, "phase": np.angle}
    return tuple(np.asarray(parts[call.fn](np.array(x, complex))).tolist())


@function("conj")
def _conjugate(call: Call, x: Sequence[complex]) -> tuple[complex, ...]:
    return tuple(np.conjugate(np.array(x, complex)).tolist())


@function("peak")
def _peak(call: Call, x: Sequence[Any]) -> int | None:
    return int(np.argmax(x)) if x else None


@function("trough")
def _trough(call: Call, x: Sequence[Any]) -> int | None:
    return int(np.argmin(x)) if x else None


@function("sample")
def _sample(call: Call, x: Sequence[Any], number: int) -> Any:
    if number < 0 or number >= len(x):
        raise BadRowError("sample")
    return x[number]


@function("timestamp_ns")
def _time(call: Call, x: Any, number: int) -> int:
    """Of segments that say where they begin (``naive_rewindow.Segment``)."""
    if not 0 <= number <= len(x):
        raise BadRowError("timestamp_ns")
    return int(x.time_of(number))


@function("fir", "iir")
def _filtered(call: Call, x: Sequence[Any], b: Any, *a: Any) -> Sequence[Any]:
    made = lfilter(b, a[0] if a else [1.0], np.asarray(x, float)) if x else []
    return placed(x, [float(v) for v in made])


@function("samples_field")
def _field(call: Call, x: Sequence[Any], number: int) -> Sequence[Any]:
    return placed(x, [sample[number] for sample in x])


@function("samples_struct")
def _struct(call: Call, *given: Sequence[Any]) -> Sequence[Any]:
    if len(set(map(len, given))) > 1:
        raise BadRowError("struct")
    return placed(given[0], zip(*given, strict=True))


@function("dot")
def _dot(call: Call, x: Sequence[Any], y: Sequence[Any]) -> float:
    if len(x) != len(y):
        raise BadRowError("dot")
    return math.fsum(float(a) * float(b) for a, b in zip(x, y, strict=True))


@function("samples_add", "samples_sub", "samples_mul", "samples_div")
def _arithmetic(call: Call, x: Any, y: Any) -> tuple[float, ...]:
    a, b = (np.asarray(v) * 1.0 for v in (x, y))
    if a.ndim == b.ndim and len(a) != len(b):
        raise BadRowError("arithmetic")
    operations = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}
    with np.errstate(all="ignore"):
        made = np.asarray(operations[call.fn.removeprefix("samples_")](a, b)).tolist()
        return placed(x if isinstance(x, Segment) else y, made)


def _correlated(x: Sequence[Any], y: Sequence[Any], most: int) -> Any:
    if not x or not y:
        return np.zeros(2 * most + 1)
    a, b = np.asarray(x, float), np.asarray(y, float)
    around = np.pad(np.correlate(b, a, "full"), most)
    return around[len(a) - 1 : len(a) + 2 * most]


@function("xcorr")
def _xcorr(call: Call, x: Sequence[Any], y: Sequence[Any], most: int) -> tuple[float, ...]:
    return tuple(_correlated(x, y, most).tolist())


@function("delay")
def _delay(call: Call, x: Sequence[Any], y: Sequence[Any], most: int) -> int | None:
    return int(np.argmax(_correlated(x, y, most))) - most if x and y else None


@function("resample")
def _resample(call: Call, x: Sequence[Any], up: int, down: int) -> tuple[float, ...]:
    if not x:
        return ()
    widest = max(up, down)
    half = 10 * widest
    taps = np.kaiser(2 * half + 1, 5.0) * np.sinc(np.arange(-half, half + 1) / widest)
    spread = np.zeros(len(x) * up)
    spread[::up] = x
    filtered = np.convolve(spread, up * taps / taps.sum())
    return placed(x, filtered[half : half + len(spread) : down].tolist(), 0, up, down)


@function("haarwavelet")
def _haar(call: Call, x: Sequence[Any], levels: int) -> tuple[float, ...]:
    """The inner products with the Haar functions."""
    n, found = len(x), list[float]()
    if n % 2**levels:
        raise BadRowError("haarwavelet")
    for level in [levels, *range(levels, 0, -1)]:
        size, sign = 2**level, -1 if found else 1
        for at in range(0, n, size):
            first, second = x[at : at + size // 2], x[at + size // 2 : at + size]
            found.append((math.fsum(first) + sign * math.fsum(second)) / math.sqrt(size))
    return tuple(found)


@function("band_energy")
def _band_energy(call: Call, x: Sequence[Any], level: int) -> float:
    n = len(x) >> level
    return math.fsum(v * v for v in _haar(call, x, level)[n : 2 * n])


@function("subseg")
def _subseg(call: Call, x: Sequence[Any], start: int, length: int) -> Sequence[Any]:
    part = [v for i, v in enumerate(x) if start <= i < start + length]
    return placed(x, part, min(max(start, 0), len(x)))
