"""The slow twins of functions over segments of signals: a segment is a sequence of numbers."""

from __future__ import annotations

import cmath
import itertools
import math
import operator
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, TypeAlias

from cql.planner.interpret.error import EvaluationError
from cql.planner.nodes.expr import Call

Strict: TypeAlias = Callable[[Call, Sequence[Any]], Any]


def _of(fn: Callable[[Sequence[Any]], Any], least: int = 0) -> Strict:
    """A function of one segment, which is NULL of fewer than ``least`` samples."""
    return lambda call, args: fn(args[0]) if len(args[0]) >= least else None


def _total(x: Sequence[Any]) -> float:
    """The sum, rounded once; beyond doubles, and of infinities, as addition gives it."""
    try:
        return math.fsum(x)
    except (OverflowError, ValueError):
        return math.nan if -math.inf in x and math.inf in x else sum(map(float, x))


def _sum(x: Sequence[Any]) -> Any:
    if not isinstance(x[0], int):
        return _total(x)
    total = sum(x)
    if not -(2**63) <= total < 2**63:
        raise EvaluationError("value", f"the sum of the {len(x):,} samples has more than 64 bits")
    return total


def _mean(x: Sequence[Any]) -> float:
    return sum(x) / len(x) if isinstance(x[0], int) else _total(x) / len(x)


def _variance(x: Sequence[Any], less: int) -> float:
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
    return math.sqrt(_total([float(v) * float(v) for v in x]) / len(x))


def _lowest(x: Sequence[Any]) -> Any:
    """NaN is above all numbers."""
    return min((v for v in x if v == v), default=math.nan)


def _highest(x: Sequence[Any]) -> Any:
    return max(x) if all(v == v for v in x) else math.nan


def _crossings(x: Sequence[Any]) -> int:
    return sum((a < 0) != (b < 0) for a, b in itertools.pairwise(x))


def _window(mean: float, once: float, twice: float = 0) -> Callable[[Sequence[Any]], Any]:
    def weight(turn: float) -> float:
        return mean - once * math.cos(turn) + twice * math.cos(2 * turn)

    def window(x: Sequence[Any]) -> tuple[float, ...]:
        n = len(x)
        if n == 1:
            return (float(x[0]),)
        return tuple(v * weight(2 * math.pi * i / n) for i, v in enumerate(x))

    return window


def _appended(call: Call, args: Sequence[Any]) -> tuple[Any, ...]:
    """Of segments that say where they begin: ``x.time_of(number)``."""
    x, y = args
    ends, begins = x.time_of(len(x)), y.time_of(0)
    if ends != begins:
        raise EvaluationError("value", f"the first segment ends at {ends}, and not at {begins}")
    return (*x, *y)


def _transform(x: Sequence[Any]) -> list[complex]:
    """The discrete Fourier transform, by its definition."""
    n = len(x)
    turns = [cmath.exp(-2j * math.pi * i / n) for i in range(n)]
    return [sum(v * turns[k * i % n] for i, v in enumerate(x)) for k in range(n)]


def _fft(x: Sequence[Any]) -> tuple[complex, ...]:
    return tuple(_transform(x)[: len(x) // 2 + 1])


def _power(x: Sequence[Any]) -> tuple[float, ...]:
    return tuple(abs(v) ** 2 for v in _fft(x))


def _inverse(call: Call, args: Sequence[Any]) -> tuple[float, ...]:
    x = args[0]
    n = args[1] if len(args) > 1 else max(2 * (len(x) - 1), 0)
    if n < 0 or len(x) != (n // 2 + 1 if n else 0):
        raise EvaluationError("value", f"{len(x)} values are no transform of {n} samples")
    if n == 0:
        return ()
    ends = (0, n // 2) if n % 2 == 0 else (0,)
    half = [complex(v.real, 0.0) if k in ends else v for k, v in enumerate(x)]
    whole = half + [half[n - k].conjugate() for k in range(len(half), n)]
    return tuple(v.real / n for v in _transform([v.conjugate() for v in whole]))


def _as_long(x: Sequence[Any], y: Sequence[Any]) -> None:
    if len(x) != len(y):
        raise EvaluationError("value", f"segments of {len(x)} and of {len(y)} samples")


def _dot(call: Call, args: Sequence[Any]) -> float:
    _as_long(*args)
    return _total([float(a) * float(b) for a, b in zip(*args, strict=True)])


def _divided(a: Any, b: Any) -> Any:
    if isinstance(a, complex) or isinstance(b, complex):
        return a / b if b else complex(math.nan, math.nan)
    if b == 0.0:
        return math.nan if a == 0.0 or a != a else math.copysign(math.inf, a) * math.copysign(1, b)
    return a / b


def _number(value: Any) -> Any:
    return value if isinstance(value, complex) else float(value)


def _arithmetic(operation: Callable[[Any, Any], Any]) -> Strict:
    def evaluate(call: Call, args: Sequence[Any]) -> tuple[Any, ...]:
        a, b = args
        if not isinstance(a, Sequence):
            a = [a] * len(b)
        elif not isinstance(b, Sequence):
            b = [b] * len(a)
        _as_long(a, b)
        return tuple(operation(_number(v), _number(w)) for v, w in zip(a, b, strict=True))

    return evaluate


def _rank(value: float) -> tuple[bool, float]:
    return value != value, 0.0 if value != value else value


def _peak(x: Sequence[Any]) -> int:
    """NaN is above all numbers."""
    return int(max(range(len(x)), key=lambda i: _rank(x[i])))


def _trough(x: Sequence[Any]) -> int:
    numbers = [i for i, v in enumerate(x) if v == v]
    return int(min(numbers or range(len(x)), key=lambda i: x[i]))


def _sample(call: Call, args: Sequence[Any]) -> Any:
    x, number = args
    if not 0 <= number < len(x):
        raise EvaluationError(
            "value", f"a segment of {len(x)} samples has no sample number {number}, from 0 on"
        )
    return x[number]


def _time(call: Call, args: Sequence[Any]) -> int:
    """Of segments that say where they begin: ``x.time_of(number)``."""
    x, number = args
    if not 0 <= number <= len(x):
        raise EvaluationError(
            "value", f"a segment of {len(x)} samples has no sample number {number}, from 0 on"
        )
    return int(x.time_of(number))


def _sample_at(call: Call, args: Sequence[Any]) -> int | None:
    """Of segments that say where they begin: ``x.time_of(number)``."""
    x, time = args
    near = [(abs(x.time_of(k) - time * 1000), k) for k in range(-1, len(x) + 1)]
    number = min(near)[1]
    return number if 0 <= number < len(x) else None


def _correlation(x: Sequence[Any], y: Sequence[Any], most: int) -> tuple[float, ...]:
    return tuple(
        _total([float(v) * float(y[i + lag]) for i, v in enumerate(x) if 0 <= i + lag < len(y)])
        for lag in range(-most, most + 1)
    )


def _delay(call: Call, args: Sequence[Any]) -> int | None:
    x, y, most = args
    if not x or not y:
        return None
    return (_peak(_correlation(x, y, most)) or 0) - int(most)


def _field(call: Call, args: Sequence[Any]) -> tuple[Any, ...]:
    x, number = args
    return tuple(sample[number] for sample in x)


def _structs(call: Call, args: Sequence[Any]) -> tuple[Any, ...]:
    for other in args[1:]:
        _as_long(args[0], other)
    return tuple(zip(*args, strict=True))


def _filtered(call: Call, args: Sequence[Any]) -> tuple[float, ...]:
    """By the definition: sums of products with earlier samples, and with earlier results."""
    x, b = args[:2]
    a = args[2] if len(args) > 2 else (1.0,)
    made = list[float]()
    for i in range(len(x)):
        value = _total([c * float(x[i - k]) for k, c in enumerate(b) if k <= i])
        made.append(value - _total([c * made[i - k] for k, c in enumerate(a) if 0 < k <= i]))
    return tuple(made)


def _first_sample(call: Call, args: Sequence[Any]) -> int:
    """Of segments that say where they begin: ``x.first_sample``."""
    return int(args[0].first_sample)


def _timebase_word(call: Call, args: Sequence[Any]) -> int:
    """Of segments that say where they begin: ``x.timebase``, four numbers."""
    x, number = args
    return int(x.timebase[number])


def _bessel(x: float) -> float:
    """The modified Bessel function of the first kind, of order 0."""
    return math.fsum((x * x / 4) ** k / math.factorial(k) ** 2 for k in range(60))


def _resampled(call: Call, args: Sequence[Any]) -> tuple[float, ...]:
    x, up, down = args
    widest = max(up, down)
    half = 10 * widest
    taps = [
        (math.sin(math.pi * i / widest) / (math.pi * i) if i else 1 / widest)
        * _bessel(5 * math.sqrt(1 - (i / half) ** 2))
        for i in range(-half, half + 1)
    ]
    total, n = math.fsum(taps), -(-len(x) * up // down)
    places = [k * down + half for k in range(n)]
    return tuple(
        _total(
            [
                x[i] * up * taps[at - i * up] / total
                for i in range(max(0, -(-(at - 2 * half) // up)), min(len(x), at // up + 1))
            ]
        )
        for at in places
    )


def _haar(call: Call, args: Sequence[Any]) -> tuple[float, ...]:
    x, levels = args
    rest, details = [float(v) for v in x], list[float]()
    if len(x) % 2**levels:
        raise EvaluationError("value", f"{len(x)} samples are no multiple of 2 to {levels}")
    for _ in range(levels):
        even, odd = rest[::2], rest[1::2]
        rest = [(a + b) / math.sqrt(2) for a, b in zip(even, odd, strict=True)]
        details = [(a - b) / math.sqrt(2) for a, b in zip(even, odd, strict=True)] + details
    return tuple(rest + details)


def _band_energy(call: Call, args: Sequence[Any]) -> float:
    x, level = args
    n = len(x) >> level
    return _total([v * v for v in _haar(call, (x, level))[n : 2 * n]])


def _part(x: Sequence[Any], start: int, length: int) -> Sequence[Any]:
    return x[max(start, 0) : max(start + length, 0)]


#: Functions of segments that never fail.
NEVER_FAIL: dict[str, Strict] = {
    "count": _of(len),
    "avg": _of(_mean, 1),
    "min": _of(_lowest, 1),
    "max": _of(_highest, 1),
    "stddev_samp": _of(lambda x: math.sqrt(_variance(x, 1)), 2),
    "stddev_pop": _of(lambda x: math.sqrt(_variance(x, 0)), 1),
    "var_samp": _of(lambda x: _variance(x, 1), 2),
    "var_pop": _of(lambda x: _variance(x, 0), 1),
    "rms": _of(_rms, 1),
    "zero_crossings": _of(_crossings),
    "hann": _of(_window(0.5, 0.5)),
    "hamming": _of(_window(0.54, 0.46)),
    "blackman": _of(_window(0.42, 0.5, 0.08)),
    "power_spectrum": _of(_power),
    "peak": _of(_peak, 1),
    "trough": _of(_trough, 1),
    "fft": _of(_fft),
    "real": _of(lambda x: tuple(v.real for v in x)),
    "imag": _of(lambda x: tuple(v.imag for v in x)),
    "conj": _of(lambda x: tuple(v.conjugate() for v in x)),
    "magnitude": _of(lambda x: tuple(map(abs, x))),
    "phase": _of(lambda x: tuple(map(cmath.phase, x))),
    "resample": _resampled,
    "xcorr": lambda call, args: _correlation(*args),
    "delay": _delay,
    "subseg": lambda call, args: _part(*args),
    "sample_at": _sample_at,
    "samples_field": _field,
    "fir": _filtered,
    "iir": _filtered,
    "first_sample": _first_sample,
    "timebase_word": _timebase_word,
}
#: Functions that fail for segments of some lengths, and a sum that needs more than 64 bits.
MAY_FAIL: dict[str, Strict] = {
    "sum": _of(_sum, 1),
    "dot": _dot,
    "append": _appended,
    "sample": _sample,
    "timestamp_ns": _time,
    "ifft": _inverse,
    "haarwavelet": _haar,
    "band_energy": _band_energy,
    "samples_struct": _structs,
    "samples_add": _arithmetic(operator.add),
    "samples_sub": _arithmetic(operator.sub),
    "samples_mul": _arithmetic(operator.mul),
    "samples_div": _arithmetic(_divided),
}
