"""Functions of segments against their slow twins, through compiled kernels and in queries."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import cql
from cql.base.types import BIGINT, DOUBLE, FLOAT, INT, SMALLINT, TINYINT, DataType, signal
from cql.executor.kernels.signals.of_segments import values
from cql.executor.kernels.signals.of_segments.values import segment_sum_fits
from cql.executor.operators.signals.segment_store import SegmentStore, Timebase
from cql.planner.functions.signals import over_segment
from cql.planner.interpret.error import EvaluationError
from cql.planner.interpret.signals import MAY_FAIL, NEVER_FAIL
from cql.planner.nodes.expr import Call, Column
from tests.support.signals.stores import Unlimited

KINDS = {
    "int8": TINYINT,
    "int16": SMALLINT,
    "int32": INT,
    "int64": BIGINT,
    "float32": FLOAT,
    "float64": DOUBLE,
}
#: By function: the kernel for integers, and that for fractions.
_KERNELS: dict[str, tuple[Callable[[int], Any], Callable[[int], Any]]] = {
    "count": (values.segment_count, values.segment_count),
    "sum": (values.segment_sum, values.segment_real_sum),
    "avg": (values.segment_mean, values.segment_mean),
    "min": (values.segment_min, values.segment_real_min),
    "max": (values.segment_max, values.segment_real_max),
    "var_samp": (lambda g: values.segment_variance(g, 1),) * 2,
    "var_pop": (lambda g: values.segment_variance(g, 0),) * 2,
    "rms": (values.segment_rms, values.segment_rms),
    "zero_crossings": (values.segment_crossings, values.segment_crossings),
}
_EXACT = ("count", "min", "max", "zero_crossings")


@pytest.fixture
def store() -> Iterator[SegmentStore]:
    made = SegmentStore(Unlimited())
    yield made
    assert made.counts["segments"] == 0
    made.close()


def _twin(fn: str, samples: Sequence[Any]) -> Any:
    call = Call(fn, (Column(0, "x", signal(DOUBLE), False),), DOUBLE, False, None)
    return {**NEVER_FAIL, **MAY_FAIL}[fn](call, [samples])


def _check(store: SegmentStore, samples: Any, near: float = 1e-9) -> None:
    base = store.number_of(Timebase(Fraction(10), 0))
    g = store.make(base, 0, samples)
    values, whole = samples.tolist(), samples.dtype.kind == "i"
    for fn, kernels in _KERNELS.items():
        try:
            found, expected = kernels[not whole](g), _twin(fn, values)
        except EvaluationError:
            assert not segment_sum_fits(g)
            continue
        if expected is None:
            continue  # too few samples, which the generated code sees
        where = f"{fn} of {len(values)} {samples.dtype}: {found} is not {expected}"
        if fn in _EXACT or (fn == "sum" and whole):
            same = found == expected or (math.isnan(found) and math.isnan(expected))
        else:
            least = 0.0 if whole else 1e-12 * _largest(values) * max(1.0, _largest(values))
            same = math.isclose(found, expected, rel_tol=near, abs_tol=least) or (
                math.isnan(found) and math.isnan(expected)
            )
        assert same, where
    store.release([g])


def _largest(values: Sequence[float]) -> float:
    return max((abs(v) for v in values if math.isfinite(v)), default=0.0)


@pytest.mark.parametrize("kind", KINDS)
def test_random_samples(kind: str, store: SegmentStore, full: bool, seed: int) -> None:
    for i in range(3000 if full else 100):
        choice = np.random.default_rng([seed + i, len(kind)])
        n = int(choice.choice([1, 1, 2, 3, 5, 8, 33, 200]))
        _check(store, _random(kind, n, choice))


def _random(kind: str, n: int, choice: np.random.Generator) -> Any:
    if kind.startswith("float"):
        scale = float(choice.choice([1.0, 1e-3, 1e6]))
        middle = float(choice.choice([0, 0, 100 * scale]))
        found = choice.normal(middle, scale, n).astype(kind)
        if choice.random() < 0.3:
            ends = [math.nan, math.inf, -math.inf, -0.0, 0.0]
            found[choice.integers(0, n, 2)] = choice.choice(ends, 2)
        return found
    ends = np.iinfo(kind)
    if choice.random() < 0.3:
        return choice.choice(np.array([ends.min, ends.max, 0, -1, 1], kind), n)
    spread = int(choice.choice([1, 3, 100, int(ends.max)]))
    near = random.Random(int(choice.integers(2**60)))
    at = near.choice([0, int(ends.min) + spread, int(ends.max) - spread])
    low, high = max(at - spread, int(ends.min)), min(at + spread, int(ends.max))
    return choice.integers(low, high, n, kind, endpoint=True)


@pytest.mark.parametrize("kind", KINDS)
def test_ends(kind: str, store: SegmentStore) -> None:
    """The least numbers, the greatest, and both."""
    if kind.startswith("float"):
        for values in ([-0.0], [0.0, -0.0], [math.nan], [math.inf, -math.inf], [-math.inf] * 3):
            _check(store, np.array(values, kind))
        return
    ends = np.iinfo(kind)
    for values in ([ends.min] * 3, [ends.max] * 3, [ends.min, ends.max], [ends.min], [0]):
        _check(store, np.array(values, kind))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [65_535, 65_536, 65_537, 200_001])
def test_long_segments(kind: str, n: int, store: SegmentStore) -> None:
    choice = np.random.default_rng(n)
    if kind.startswith("int"):
        ends = np.iinfo(kind)
        _check(store, np.full(n, ends.min, kind))
        _check(store, choice.integers(ends.min, ends.max, n, kind, endpoint=True))
    else:
        _check(store, choice.normal(5, 1, n).astype(kind))


@pytest.mark.parametrize("offset", [2**31 - 200, -(2**31), 2**53 + 1, 2**62, -(2**63), 2**63 - 101])
def test_variance_far_from_zero(offset: int, store: SegmentStore) -> None:
    """Exact to 1e-9, as that of the same samples near zero."""
    choice = np.random.default_rng(7)
    kind = "int32" if abs(offset) <= 2**31 else "int64"
    near = choice.integers(0, 100, 50_000)
    base = store.number_of(Timebase(Fraction(10), 0))
    for samples in (near, near == 0, np.arange(50_000) == 7):
        far = np.array([offset + int(v) for v in samples.astype(int)], kind)
        g = store.make(base, 0, far)
        expected = float(np.var(samples.astype(float), ddof=1))
        assert values.segment_variance(g, 1) == pytest.approx(expected, rel=1e-9)
        store.release([g])


def test_the_types_of_results() -> None:
    for kind in KINDS.values():
        segment = Column(0, "x", signal(kind), False)
        whole = kind.is_integer
        for fn, to in (("avg", DOUBLE), ("count", BIGINT), ("min", kind), ("stddev", DOUBLE)):
            assert over_segment(fn, segment, None).type == to
        expected: DataType = BIGINT if whole else DOUBLE
        assert over_segment("sum", segment, None).type == expected


@pytest.mark.parametrize("kind", KINDS)
def test_in_queries(kind: str, seed: int) -> None:
    choice = random.Random(f"{kind} {seed}")
    n = 3000
    samples = _random(kind, n, np.random.default_rng(seed))
    if kind == "int64":
        samples >>= 12  # the sum of a window fits
    names = [*_KERNELS, "stddev", "stddev_pop"]
    size, slide = choice.randint(1, 700), choice.randint(1, 400)
    with cql.connect(spark=False) as session:
        session.create_stream("s", pa.table({"x": samples}), rate=100)
        calls = ", ".join(f"{fn}(x) AS {fn}" for fn in names)
        query: Any = session.sql(f"SELECT {calls} FROM s [ROWS {size} SLIDE {slide}]")
        found = query.to_arrow().to_pylist()
    firsts = range(0, n - size + 1, slide)
    assert len(found) == len(firsts)
    for first, row in zip(firsts, found, strict=True):
        values = samples[first : first + size].tolist()
        for fn in names:
            own = "stddev_samp" if fn == "stddev" else fn
            close = pytest.approx(_twin(own, values), rel=1e-9, abs=1e-9, nan_ok=True)
            assert row[fn] == close, fn
