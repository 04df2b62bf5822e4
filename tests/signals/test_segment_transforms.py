"""Transforms, correlations and arithmetic of segments: kernels against the reference and the slow
twins, over all kinds of samples, many lengths, and samples in several parts."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.signal import resample_poly

from cql.base.types import DOUBLE, signal
from cql.errors import RunError
from cql.executor.kernels.signals import segments
from cql.executor.kernels.signals.layout import (
    FULL,
    KINDS,
    MOST_TIMEBASES,
    PREPARED_BYTES,
    USED_TIMEBASES,
)
from cql.executor.kernels.signals.of_segments import (
    fourier,
    pairs,
    prepared,
    rates,
    spectra,
    values,
)
from cql.executor.kernels.signals.of_segments import transforms as cut
from cql.executor.kernels.signals.of_segments.times import segment_sample_at, segment_time
from cql.executor.kernels.signals.timebase import MOST_RATE, USES
from cql.executor.operators.signals.segment_store import SegmentStore, Timebase
from cql.planner.functions.signals import COMPLEX
from cql.planner.interpret.signals import MAY_FAIL, NEVER_FAIL
from cql.planner.nodes.expr import Call, Column
from tests.reference import naive_segments
from tests.reference.naive_registry import FUNCTIONS
from tests.support.signals.stores import Unlimited

NUMBERS = KINDS[:6]
LENGTHS = (0, 1, 2, 3, 4, 5, 7, 8, 13, 31, 32, 45, 60, 64, 97)
LONG = (1000, 4096, 4099, 65_536, 65_537)

Kernel = Callable[..., Any]
#: By function, kernels of one segment and constants.
_ONE: dict[str, Kernel] = {
    "hann": lambda g, serial: cut.segment_window(g, 0, serial),
    "hamming": lambda g, serial: cut.segment_window(g, 1, serial),
    "blackman": lambda g, serial: cut.segment_window(g, 2, serial),
    "fft": fourier.segment_fft,
    "power_spectrum": fourier.segment_power,
}
_OPERATIONS = {
    "samples_add": (pairs.ADD, pairs.ADD),
    "samples_sub": (pairs.SUBTRACT, pairs.SUBTRACT_FROM),
    "samples_mul": (pairs.MULTIPLY, pairs.MULTIPLY),
    "samples_div": (pairs.DIVIDE, pairs.DIVIDE_INTO),
}
assert naive_segments.__name__  # registers its functions


class Segments:
    """Segments in a store, and what functions make of them."""

    def __init__(self) -> None:
        self.store = SegmentStore(Unlimited())
        self.base = self.store.number_of(Timebase(Fraction(10), 0))
        self.held: list[int] = []

    def of(self, samples: Any, choice: random.Random | None = None) -> int:
        """A segment, of several parts if ``choice`` wants it."""
        parts = [samples]
        if choice is not None and choice.random() < 0.6 and len(samples) > 1:
            at = sorted(choice.sample(range(1, len(samples)), min(3, len(samples) - 1)))
            parts = np.split(samples, at)
        start = 1000
        made = self.store.make(self.base, start, parts[0])
        for part in parts[1:]:
            start += len(part)
            more = self.store.make(self.base, start, part)
            made = segments.append(made, more)
            segments.release(more)
        self.held.append(made)
        return made

    def samples(self, g: int) -> list[Any]:
        found: list[Any] = self.store.samples(g).tolist()
        return found

    def close(self) -> None:
        self.store.release(self.held)
        self.store.sweep(1 << 40)
        assert self.store.counts["segments"] == 0
        assert self.store.counts["bytes"] == 0
        self.store.close()


@pytest.fixture
def made() -> Iterator[Segments]:
    segments_ = Segments()
    yield segments_
    segments_.close()


def random_samples(kind: str, n: int, choice: random.Random) -> Any:
    numbers = np.random.default_rng(choice.getrandbits(60))
    if kind.startswith("float"):
        return numbers.normal(choice.choice((0, 50)), choice.choice((1, 1000)), n).astype(kind)
    most = min(np.iinfo(kind).max, 1 << 40)
    return numbers.integers(-most - 1, most, n, kind, endpoint=True)


def twins(fn: str, *args: Any) -> list[Any]:
    """The results of the reference and of the slow evaluator."""
    call = Call(fn, (Column(0, "x", signal(DOUBLE), False),), DOUBLE, False, None)
    given = [tuple(a.tolist()) if isinstance(a, np.ndarray) else a for a in args]
    return [FUNCTIONS[fn](call, *given), (NEVER_FAIL | MAY_FAIL)[fn](call, given)]


def near(found: Any, expected: Any, where: object, scale: float | None = None) -> None:
    """Equal but for rounding: 1e-9 of the greatest magnitude."""
    if expected is None or isinstance(expected, int):
        assert found == expected, where
        return
    one, other = np.atleast_1d(np.asarray(found)), np.atleast_1d(np.asarray(expected))
    assert one.shape == other.shape, where
    finite = np.abs(other[np.isfinite(other)])
    least = scale or max(float(finite.max(initial=0.0)), 1e-300)
    np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9 * least, err_msg=str(where))


def _check(fn: str, found: Any, *args: Any, scale: float | None = None) -> None:
    for expected in twins(fn, *args):
        near(found, expected, (fn, [getattr(a, "dtype", a) for a in args], args), scale)


@pytest.mark.parametrize("kind", NUMBERS)
def test_random_segments(kind: str, made: Segments, full: bool, seed: int) -> None:
    for i in range(400 if full else 30):
        choice = random.Random(f"{kind} {seed + i}")
        n = choice.choice(LENGTHS)
        x = random_samples(kind, n, choice)
        g = made.of(x, choice)
        for fn, kernel in _ONE.items():
            _check(fn, made.samples(kernel(g, 1)), x)
        _check("peak", _or_none(values.segment_peak(g), -1), x)
        _check("trough", _or_none(values.segment_trough(g), -1), x)
        _check_pairs(made, g, x, choice)
        _check_spectrum(made, g, x)
        _check_rates(made, g, x, choice)
        for number in range(-1, n + 1):
            there = 0 <= number < n
            assert values.segment_has(g, number) == there
            if there:
                read = values.segment_real_sample if x.dtype.kind == "f" else (
                    values.segment_sample)  # fmt: skip
                assert read(g, number) == x[number]
    made.store.sweep(1)


def _or_none(found: int, none: int) -> int | None:
    return None if found == none else found


def _check_pairs(made: Segments, g: int, x: Any, choice: random.Random) -> None:
    kind = choice.choice(NUMBERS)
    y = random_samples(kind, choice.choice((len(x), len(x), choice.choice(LENGTHS))), choice)
    h, most = made.of(y, choice), choice.choice((0, 1, 5, 100))
    scale = float(np.abs(x.astype(float)).sum() * np.abs(y.astype(float)).max(initial=1.0)) or 1.0
    _check("xcorr", made.samples(pairs.segment_correlation(g, h, most, 1)), x, y, most, scale=scale)
    _check("delay", _or_none(pairs.segment_delay(g, h, most), pairs.NO_LAG), x, y, most)
    assert pairs.segment_as_long(g, h) == (len(x) == len(y))
    value = choice.choice((2.0, -0.5, 0.0, math.inf))
    for fn, (forward, exchanged) in _OPERATIONS.items():
        with np.errstate(all="ignore"):
            _check(fn, made.samples(pairs.segment_with(g, value, forward, 1)), x, value)
            _check(fn, made.samples(pairs.segment_with(g, value, exchanged, 1)), value, x)
            if len(x) == len(y):
                _check(fn, made.samples(pairs.segment_combined(g, h, forward, 1)), x, y)
    if len(x) == len(y):
        _check("dot", pairs.segment_dot(g, h), x, y, scale=scale)


def _check_spectrum(made: Segments, g: int, x: Any) -> None:
    h, n = fourier.segment_fft(g, 1), len(x)
    spectrum = made.store.samples(h)
    assert spectrum.dtype == np.complex128
    for part, fn in enumerate(("real", "imag", "magnitude")):
        _check(fn, made.samples(spectra.segment_of_complex(h, part, 1)), spectrum)
    phases = made.samples(spectra.segment_of_complex(h, 3, 1))
    for expected in twins("phase", spectrum):
        assert phases == pytest.approx(list(expected), abs=1e-12)
    scale = float(np.abs(x.astype(float)).max(initial=1e-300))
    inverse = made.samples(fourier.segment_inverse(h, n, 1))
    near(inverse, x.astype(float), ("ifft", x), scale)
    _check("ifft", inverse, spectrum, n, scale=scale)
    even = fourier.segment_even(h)
    assert even == (n - n % 2 if n > 1 else 0)
    if even > 0:
        _check("ifft", made.samples(fourier.segment_inverse(h, even, 1)), spectrum, scale=scale)
    for other in range(-2, n + 4):
        fits = other >= 0 and len(spectrum) == (other // 2 + 1 if other else 0)
        assert fourier.segment_is_spectrum(h, other) == fits


def _check_rates(made: Segments, g: int, x: Any, choice: random.Random) -> None:
    up, down = choice.choice(((1, 1), (2, 1), (1, 2), (3, 2), (2, 7), (11, 5), (1, 20)))
    scale = float(np.abs(x.astype(float)).max(initial=1e-300))
    found = made.samples(rates.segment_resampled(g, up, down, 1))
    _check("resample", found, x, up, down, scale=scale)
    for levels in range(1, 8):
        fits = len(x) % 2**levels == 0
        assert rates.segment_halves(g, levels) == fits
        if fits:
            found = made.samples(rates.segment_haar(g, levels, 1))
            _check("haarwavelet", found, x, levels)
            near(math.fsum(v * v for v in found), math.fsum(float(v) ** 2 for v in x), "energy")
            energy = rates.segment_band_energy(g, levels)
            _check("band_energy", energy, x, levels, scale=scale * scale * max(len(x), 1))


@pytest.mark.parametrize("n", LONG)
def test_long_transforms(n: int, made: Segments) -> None:
    x = np.random.default_rng(n).normal(size=n)
    g = made.of(x)
    h = fourier.segment_fft(g, 1)
    expected = np.fft.rfft(x)
    near(made.store.samples(h), expected, n)
    near(made.store.samples(fourier.segment_power(g, 1)), np.abs(expected) ** 2, n)
    near(made.store.samples(fourier.segment_inverse(h, n, 1)), x, n)


def test_transforms_as_numpy(made: Segments) -> None:
    """Real samples are transformed by pairs: within 1e-12 of the greatest value, whatever the
    number of samples has as divisors."""
    for n in (*range(1, 131), 192, 256, 500, 512, 1000, 1022, 1024, 4096, 6561, 8192, 1 << 17):
        x = np.random.default_rng(n).normal(size=n)
        g, expected = made.of(x), np.fft.rfft(x)
        most = float(np.abs(expected).max())
        found = made.store.samples(fourier.segment_fft(g, 1))
        power = made.store.samples(fourier.segment_power(g, 1))
        assert len(found) == len(power) == len(expected)
        assert np.abs(found - expected).max() <= 1e-12 * most, n
        assert np.abs(power - np.abs(expected) ** 2).max() <= 1e-12 * most * most, n


@pytest.mark.parametrize(("up", "down"), [(160, 147), (147, 160), (1, 100), (441, 80), (7, 7)])
def test_resampling_as_scipy(up: int, down: int, made: Segments) -> None:
    x = np.random.default_rng(up).normal(size=1000)
    common = math.gcd(up, down)
    found = rates.segment_resampled(made.of(x), up // common, down // common, 1)
    near(made.store.samples(found), resample_poly(x, up, down), (up, down))


@pytest.mark.parametrize("most", [20, 10_000])
def test_times_at_another_rate(most: int, made: Segments) -> None:
    """They are rounded down from exact ones, also of segments that are resampled again; a phase for
    which 64 bits do not do is rounded once."""
    choice, store, exacts = random.Random(most), made.store, 0
    for _ in range(200):
        rate = choice.choice((Fraction(10), Fraction(44_100), Fraction(30_000, 1001)))
        phase = choice.choice((Fraction(0), Fraction(1, 3), 1 / rate / 7))
        origin, start = choice.randrange(-(10**18), 10**18), choice.randrange(10**9)
        base = Timebase(rate, origin, phase)
        g = store.make(store.number_of(base), start, np.zeros(8))
        made.held.append(g)
        begins = origin + 1_000_000_000 * (start / rate + phase)
        for _ in range(choice.randrange(1, 4)):
            up, down = choice.randrange(1, most), choice.randrange(1, most)
            up, down = Fraction(up, down).as_integer_ratio()
            if max((rate * up / down).as_integer_ratio()) > MOST_RATE or up > 50 * down:
                continue
            rate = rate * up / down
            g = rates.segment_resampled(g, up, down, 1)
        now = store.timebase(g)
        assert now.rate == rate
        exact = begins == now.origin + 1_000_000_000 * (store.start(g) / rate + now.phase)
        exacts += exact
        for i in range(-1, store.length(g) + 1):
            found = segment_time(g, i)
            least = begins + i * 1_000_000_000 / rate
            assert found == math.floor(least) if exact else abs(found - least) < 4
        for i in range(store.length(g)):
            nearest = round((begins + i * 1_000_000_000 / rate) / 1000)
            if rate < 100_000:
                assert segment_sample_at(g, nearest) == i
        store.sweep(1)
    assert exacts > (190 if most < 100 else 50)


def test_timebases_that_are_equal_are_one(made: Segments) -> None:
    """However they are written, and whichever kernel enters them."""
    store = made.store
    known = store.number_of(Timebase(Fraction(44_100), 7, Fraction(1, 3)))
    assert store.number_of(Timebase(Fraction(88_200, 2), 7, Fraction(2, 6))) == known
    for phase in (Fraction(0), Fraction(1, 44_100), Fraction(5, 7)):
        base = Timebase(Fraction(30_000, 1001), -3, phase)
        assert Timebase.of(base.words) == base
    base = store.number_of(Timebase(Fraction(44_100), 5))
    lower = store.number_of(Timebase(Fraction(11_025), 5))
    g = store.make(base, 400, np.zeros(8))
    h = rates.segment_resampled(g, 1, 4, 1)
    assert (store.start(h), store.timebase(h)) == (100, Timebase(Fraction(11_025), 5))
    assert store.number_of(store.timebase(h)) == lower
    made.held.append(g)
    store.sweep(1)


def test_too_many_timebases(made: Segments) -> None:
    """Those that no segment is in make room."""
    store = made.store
    g = store.make(made.base, 0, np.zeros(64))
    made.held.append(g)
    for k in range(store.words[MOST_TIMEBASES] + 10):
        part = segments.subseg(g, k % 64, 0)
        for down in (2, 3):
            rates.segment_resampled(part, 1, down, 1)
        segments.release(part)
        store.leave(store.number_of(Timebase(Fraction(7), k)))
        if k % 100 == 0:
            store.sweep(1)
    store.sweep(1)
    assert store.timebases[:, USES].tolist() == [2, *[0] * (len(store.timebases) - 1)]
    assert store.words[USED_TIMEBASES] < 10
    used = store.words[USED_TIMEBASES] = store.words[MOST_TIMEBASES]
    store.timebases[: int(used), USES] += 1
    with pytest.raises(RunError, match="more than 65,536 timebases"):
        store.number_of(Timebase(Fraction(3)))
    store.timebases[: int(used), USES] -= 1
    store.words[FULL] = 0


def test_products_of_bytes(made: Segments) -> None:
    """They are exact, also of more than 32 bits."""
    g, h = (made.of(np.full(n, -128, np.int8)) for n in (200_001, 200_000))
    assert pairs.segment_dot(g, h) == 200_000 * 128**2
    x = np.random.default_rng(1).integers(-128, 128, 300).astype(np.int8)
    one, other = made.of(x), made.of(np.r_[x[5:], x[:9]])
    assert pairs.segment_delay(one, other, 20) == -5
    assert pairs.segment_delay(one, other, 4) != -5
    assert pairs.segment_delay(made.of(x[:0]), one, 2) == pairs.NO_LAG


def test_not_a_number(made: Segments) -> None:
    """NaN is above all numbers, as max and min have it."""
    nan, inf = math.nan, math.inf
    cases: Sequence[tuple[list[float], int, int]] = (
        ([1, nan, 2, nan], 1, 0),
        ([nan, 3, 2], 0, 2),
        ([nan, nan], 0, 0),
        ([-inf, inf, -inf], 1, 0),
        ([0.0, -0.0], 0, 0),
        ([nan, -inf], 0, 1),
    )
    for samples, peak, trough in cases:
        for kind in ("float32", "float64"):
            g = made.of(np.array(samples, kind))
            assert values.segment_peak(g) == peak, samples
            assert values.segment_trough(g) == trough, samples
            assert NEVER_FAIL["peak"](_call(), [samples]) == peak
            assert NEVER_FAIL["trough"](_call(), [samples]) == trough


def _call() -> Call:
    return Call("peak", (Column(0, "x", signal(COMPLEX), False),), DOUBLE, False, None)


def test_prepared_tables_are_bounded(made: Segments) -> None:
    """Beyond their bound, tables are made for each call."""
    s = made.store
    for n in range(3, 20_000, 997):
        x = np.random.default_rng(n).normal(size=n)
        g = s.make(made.base, 0, x)
        h = fourier.segment_power(g, 1)
        near(s.samples(h), np.abs(np.fft.rfft(x)) ** 2, n)
        s.release([g])
        s.sweep(1)
    assert 0 < int(s.words[PREPARED_BYTES]) <= prepared.MOST_BYTES
    before = int(s.words[PREPARED_BYTES])
    for n in ((1 << 19) - 1,) * 2:
        g = s.make(made.base, 0, np.ones(n, np.int8))
        assert s.samples(fourier.segment_power(g, 1))[0] == pytest.approx(n * n)
        s.release([g])
    assert int(s.words[PREPARED_BYTES]) == before
