"""Percentiles of groups by definition: sorted values, and places that are computed as fractions."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

import cql
from cql.base.types import BIGINT, DOUBLE, DataType, decimal
from cql.executor.kernels.windows import percentiles as kernel
from cql.executor.operators.aggregates.percentiles import fraction, percentiles, places_of
from cql.executor.operators.relations.group_index import canonical
from cql.planner.nodes.expr import Column, Literal
from cql.planner.nodes.logical import AggregateCall

Words = npt.NDArray[np.int64]
LEAST, MOST = -(1 << 63), (1 << 63) - 1
SPECIAL = [math.nan, -math.nan, math.inf, -math.inf, 0.0, -0.0, float(LEAST), float(MOST), 5e-324]
SHARES = [
    *(Literal(n, decimal(2, 2)) for n in (0, 1, 7, 25, 33, 50, 66, 75, 90, 99, 100)),
    Literal(123456789012345679, decimal(18, 18)),
    Literal(1e-300, DOUBLE),
    Literal(0.1, DOUBLE),
]
LARGE = 200_000


def call_of(fn: str, kind: DataType, shares: Sequence[Literal], descending: bool) -> AggregateCall:
    return AggregateCall(
        fn,
        (Column(0, "v", kind),),
        kind,
        True,
        constants=tuple(shares),
        order=((descending, True),),
    )


def place_of(fn: str, p: Fraction, n: int) -> Fraction:
    return p * (n - 1) if fn == "percentile" else Fraction(max(0, math.ceil(p * n) - 1))


def expected(fn: str, ordered: Sequence[float], p: Fraction) -> float:
    place = place_of(fn, p, len(ordered))
    low, share = math.floor(place), float(place - math.floor(place))
    a = ordered[low]
    b = ordered[low + 1] if share else a
    return a if a == b or not share else (1 - share) * a + share * b


def in_order(values: Sequence[float], descending: bool) -> list[float]:
    """NaN is the greatest value."""
    return sorted(values, key=lambda v: (math.isnan(v), v), reverse=descending)


def words_of(values: Sequence[float], kind: DataType) -> Words:
    if kind.is_fraction:
        return canonical(np.array(values, np.float64))
    return np.array(values, np.int64)


def check(call: AggregateCall, groups: int, group: Sequence[int], values: Sequence[float]) -> None:
    kind, (descending, _) = call.args[0].type, call.order[0]
    words = words_of(values, kind)
    # a log's columns are fields of records
    records = np.stack([np.array(group, np.int64), words], axis=1)
    found, some = percentiles(call, groups, records[:, 0], records[:, 1])
    kept: list[list[float]] = [[] for _ in range(groups)]
    for g, value in zip(group, words.view(np.float64) if kind.is_fraction else words, strict=True):
        kept[g].append(value.item())
    assert some.tolist() == [bool(of) for of in kept]
    for g in np.flatnonzero(some):
        ordered = in_order(kept[g], descending)
        for at, share in enumerate(call.constants):
            want = words_of([expected(call.fn, ordered, fraction(share))], kind)[0]
            got = found[g, at]
            if kind.is_fraction and np.isnan(got.view(np.float64)):
                got = canonical(got.view(np.float64)[None])[0]
            assert got == want, (call, ordered, share)


def values_of(rng: random.Random, kind: DataType, n: int) -> list[float]:
    if kind == BIGINT:
        few = rng.random() < 0.5
        return [
            rng.choice(
                (LEAST, MOST, 0, -1, rng.randrange(9) if few else rng.randrange(LEAST, MOST))
            )
            for _ in range(n)
        ]
    odd, width = rng.choice((0, 0.1, 0.9)), rng.choice((2, 10, 1 << 60))
    return [
        rng.choice(SPECIAL) if rng.random() < odd else rng.randrange(-width, width) / 4
        for _ in range(n)
    ]


@pytest.mark.parametrize(
    ("fn", "kind"),
    [("percentile", DOUBLE), ("percentile_disc", DOUBLE), ("percentile_disc", BIGINT)],
    ids=str,
)
def test_percentiles_of_groups(fn: str, kind: DataType, seed: int) -> None:
    rng = random.Random(f"{fn} {kind} {seed}")
    for _ in range(60):
        groups = rng.choice((1, 2, 7, 40))
        n = rng.choice((0, 1, 5, 30, 200, 2000))
        most = rng.randrange(1, groups + 1)  # the groups behind it are empty
        group = [rng.randrange(most) for _ in range(n)]
        shares = rng.sample(SHARES, rng.choice((1, 1, 2, 5)))
        check(call_of(fn, kind, shares, rng.random() < 0.5), groups, group, values_of(rng, kind, n))


@pytest.mark.parametrize(
    "values",
    [
        [1.5] * LARGE,
        [math.nan] * LARGE,
        range(LARGE),
        range(LARGE, 0, -1),
        [*range(LARGE // 2), *range(LARGE // 2, 0, -1)],
        [*range(LARGE // 2, 0, -1), *range(LARGE // 2)],
        [n % 2 for n in range(LARGE)],
        [n * n % 1009 for n in range(LARGE)],
        [MOST >> (n % 60) for n in range(LARGE)],
    ],
    ids=["equal", "nan", "up", "down", "pipe", "valley", "two", "saw", "powers"],
)
def test_large_groups_in_any_order(values: Sequence[float]) -> None:
    shares = [Literal(n, decimal(3, 3)) for n in (999, 500, 0, 1000, 1, 501, 500)]
    for descending in (False, True):
        check(call_of("percentile", DOUBLE, shares, descending), 1, [0] * len(values), values)


@pytest.mark.parametrize("bad", [min, max])
@pytest.mark.parametrize("kind", ["different", "few", "far"])
def test_bad_pivots_take_few_rounds(
    bad: Callable[[Words], int], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The selection ends after a number of rounds that is logarithmic, whatever the samples are."""
    rng, n, rounds = random.Random(kind), 500, 0
    part = kernel._part.py_func

    def counted(keys: Words, first: int, end: int, pivot: int) -> int:
        nonlocal rounds
        rounds += 1
        return int(part(keys, first, end, pivot))

    monkeypatch.setattr(kernel, "_part", counted)
    monkeypatch.setattr(kernel, "_sampled", lambda keys, first, end: bad(keys[first:end]))
    most = {"different": 1 << 40, "few": 2, "far": MOST}[kind]
    for place in (0, 1, n // 2, n - 2, n - 1):
        keys = np.array([rng.randrange(-most - 1, most) for _ in range(n)], np.int64)
        ordered, rounds = np.sort(keys), 0
        kernel._select.py_func(keys, 0, n, place)
        assert keys[place] == ordered[place]
        assert np.array_equal(np.sort(keys[:place]), ordered[:place])
        assert np.array_equal(np.sort(keys), ordered)
        assert rounds <= 8 + 2 * n.bit_length() + 65


@pytest.mark.parametrize("fn", ["percentile", "percentile_disc"])
def test_places_are_exact(fn: str, seed: int) -> None:
    rng = random.Random(f"places {fn} {seed}")
    shares = [*SHARES, *(Literal(rng.randrange(10**d + 1), decimal(d, d)) for d in range(1, 19))]
    for share in shares:
        counts = [rng.randrange(1, 1 << rng.randrange(1, 50)) for _ in range(20)]
        low, rest = places_of(call_of(fn, DOUBLE, [share], False), np.array(counts))
        exact = [place_of(fn, fraction(share), n) for n in counts]
        assert low[0].tolist() == [math.floor(x) for x in exact]
        assert rest[0].tolist() == [float(x - math.floor(x)) for x in exact]


def test_zeros_and_null_groups_of_windows() -> None:
    """-0.0 equals 0.0 and becomes 0.0; NaN is the greatest; NULLs do not count."""
    data = pa.table(
        {
            "ts": range(12),
            "k": [n % 4 for n in range(12)],
            "v": [-0.0, 1.0, None, math.nan, 0.0, 2.0, None, 1.0, -0.0, None, None, -math.inf],
        }
    )
    text = (
        "SELECT k, median(v) AS m, percentile_disc(0.5) WITHIN GROUP (ORDER BY v DESC) AS d,"
        " percentile(v, array(1, 0, 0.5)) AS a FROM s [RANGE 12 SLIDE 12 WA ts] GROUP BY k"
    )
    with cql.connect(False, morsel_rows=5) as session:
        session.create_stream("s", data, ordered_by="ts")
        rows = {row["k"]: row for row in session.sql(text).to_arrow().to_pylist()}
    assert str(rows[0]["m"]) == str(rows[0]["d"]) == "0.0"
    assert (rows[1]["m"], rows[1]["d"], rows[1]["a"]) == (1.5, 2.0, [2.0, 1.0, 1.5])
    assert (rows[2]["m"], rows[2]["d"], rows[2]["a"]) == (None, None, None)
    assert (rows[3]["m"], rows[3]["d"]) == (1.0, 1.0)
    assert math.isnan(rows[3]["a"][0])
    assert rows[3]["a"][1:] == [-math.inf, 1.0]
