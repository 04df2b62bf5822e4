"""A sum fails the query only if its own value does not fit: neither the order of rows nor an
operator's partial sums matter."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from decimal import ROUND_HALF_UP, Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import cql
from cql.errors import RunError
from cql.executor.kernels.lib.scalar import mean_half_up
from tests.support.results import rows

TOP, LOW = (1 << 63) - 1, -(1 << 63)
OPERATORS = ("wid", "panes", "two_stacks", "subtract", "buffered", "two_level")
WIDE = 10**18 - 1  # the largest unscaled DECIMAL
#: A sum of a few of these values overflows 64 bits, and further values bring it back.
VALUES = (TOP, TOP, LOW, LOW, TOP - 5, LOW + 3, 1, -1, 17)
RANGE, SLIDE = 4, 2


def outcome(query: Any) -> Any:
    """The sorted rows, or the overflow that the error names."""
    try:
        return sorted(rows(query), key=str)
    except RunError as error:
        said = str(error)
    return next(fn for fn in ("overflow in sum", "overflow in avg") if fn in said)


def windows(values: Sequence[Any]) -> dict[int, list[Any]]:
    """The values of each window, by window start; value number i has time i."""
    found: dict[int, list[Any]] = {}
    for t, value in enumerate(values):
        for start in range((t // SLIDE) * SLIDE, t - RANGE, -SLIDE):
            found.setdefault(start, []).append(value)
    return found


def series(seed: int, fits: bool) -> list[int]:
    """Values whose window sums fit although partial sums overflow; without ``fits``, some window
    sum overflows."""
    rng = random.Random(seed)
    while True:
        values = [rng.choice(VALUES) for _ in range(rng.choice((4, 6, 8)))]
        sums = [sum(w) for w in windows(values).values()]
        wraps = any(not LOW <= sum(w[:k]) <= TOP for w in windows(values).values() for k in (2, 3))
        if wraps and all(LOW <= s <= TOP for s in sums) == fits:
            return values


@pytest.fixture
def session() -> Iterator[cql.Session]:
    with cql.connect(spark=False) as made:
        yield made


def stream(session: cql.Session, values: Sequence[Any], kind: pa.DataType, name: str = "w") -> None:
    data = pa.table(
        {
            "t": list(range(len(values))),
            "v": pa.array(values, kind),
            "k": [t % 2 for t in range(len(values))],
        }
    )
    session.create_stream(name, data, ordered_by="t", unit="seconds", replace=True)


@pytest.mark.sampled
@pytest.mark.parametrize("fits", [True, False])
@pytest.mark.parametrize("operator", OPERATORS)
def test_all_operators_fail_for_the_same_windows(
    session: cql.Session, operator: str, fits: bool
) -> None:
    text = f"SELECT sum(v) AS s, window_start AS w FROM w [RANGE {RANGE} SLIDE {SLIDE}]"
    for seed in range(12):
        values = series(seed, fits)
        stream(session, values, pa.int64())
        hinted = text.replace("SELECT", f"SELECT /*+ window_operator({operator}) */")
        expected: Any = "overflow in sum"
        if fits:
            expected = sorted(((sum(w), at) for at, w in windows(values).items()), key=str)
        assert outcome(session.sql(hinted, morsel_rows=1 + seed % 3)) == expected, values


@pytest.mark.sampled
@pytest.mark.parametrize("operator", OPERATORS)
def test_groups_with_null_and_decimals(session: cql.Session, operator: str) -> None:
    """Sums and means of DECIMAL(18, 0), whose limit is below that of 64 bits; a partial sum reaches
    twice the largest value."""
    near, some = Decimal(WIDE), Decimal(7)
    fitting = [-near, -near, near, near, None, near, near, -near, -near, None, some, None]
    text = (
        f"SELECT /*+ window_operator({operator}) */ k, sum(v) AS s, avg(v) AS a, count(v) AS n,"
        f" window_start AS w FROM w [RANGE 8 SLIDE 2] GROUP BY k"
    )
    for values in (fitting, [*fitting, near, near, near, near]):
        stream(session, values, pa.decimal128(18, 0))
        expected: list[tuple[Any, ...]] = []
        for start in range(-6, len(values), 2):
            for k in (0, 1):
                inside = [v for t, v in enumerate(values) if start <= t < start + 8 and t % 2 == k]
                known = [v for v in inside if v is not None]
                total = sum(known) if known else None
                mean = None if total is None else half_up(Fraction(total) / len(known), 0)
                expected += [(k, total, mean, len(known), start)] if inside else []
        fits = all(total is None or abs(total) <= WIDE for _, total, *_ in expected)
        assert fits == (values is fitting)
        wanted = sorted(expected, key=str) if fits else "overflow in sum"
        assert outcome(session.sql(text)) == wanted


def test_a_mean_fits_where_its_sum_does_not(session: cql.Session) -> None:
    values = [Decimal(WIDE)] * 9 + [Decimal(WIDE - 40)]
    stream(session, values, pa.decimal128(18, 0))
    mean = Decimal(WIDE - 4)
    assert outcome(session.sql("SELECT avg(v) AS a FROM w")) == [(mean,)]
    text = "SELECT /*+ window_operator(subtract) */ avg(v) AS a FROM w [RANGE 12 SLIDE 1]"
    assert (mean,) in outcome(session.sql(text))


def half_up(value: Fraction, scale: int) -> Decimal:
    with localcontext() as context:
        context.prec = 60
        exact = Decimal(value.numerator) / Decimal(value.denominator)
        return exact.quantize(Decimal(1).scaleb(-scale), rounding=ROUND_HALF_UP)


#: Queries that form the groups in other ways.
OTHERS = {
    "whole input": "SELECT sum(v) AS s FROM w",
    "groups": "SELECT k - k AS g, sum(v) AS s FROM w GROUP BY k - k",
    "sessions": "SELECT sum(v) AS s FROM w [SESSION 3 SECONDS]",
    "cumulating": "SELECT sum(v) AS s FROM w [RANGE 8 SECONDS CUMULATE 8 SECONDS]",
    "rows": "SELECT sum(v) AS s FROM w [ROWS 6 SLIDE 6]",
    "a relation": "SELECT sum(v) AS s FROM w [RANGE UNBOUNDED]",
    "a filter": "SELECT sum(v) FILTER (WHERE k >= 0) AS s FROM w",
    "distinct": "SELECT sum(DISTINCT v) AS s FROM w",
}
FITS = [TOP, 3, 4, LOW + 9, -3, 5]
BEYOND = [TOP, -1, 3, 4, 5, -8]


@pytest.mark.sampled
@pytest.mark.parametrize("name", OTHERS)
def test_other_groups(session: cql.Session, name: str) -> None:
    """The rule also holds for the sums of sessions, relations and other groups."""
    text = OTHERS[name]
    for values, fits in ((FITS, True), (BEYOND, False), ([*BEYOND[:-1], -12], True)):
        stream(session, values, pa.int64())
        if name == "a relation":
            partial = [sum(values[: n + 1]) for n in range(len(values))]
            fits = all(LOW <= s <= TOP for s in partial)  # the relation outputs every partial sum
        found = outcome(session.sql(text))
        if not fits:
            assert found == "overflow in sum"
        else:
            assert found[-1][-1] == sum(values) or (sum(values),) in [r[-1:] for r in found]


@pytest.mark.parametrize("text", ["SELECT sum(v) AS s FROM w", OTHERS["rows"]])
def test_no_row_of_a_sum_is_left_out(session: cql.Session, text: str) -> None:
    """ON BAD ROW KEEP does not help, with or without a window: no single row is at fault."""
    stream(session, BEYOND, pa.int64())
    for policy, helps in ((" ON BAD ROW KEEP", False), ("", True)):
        query = session.sql(text + policy)
        with pytest.raises(RunError, match="overflow in sum") as caught:
            query.to_arrow()
        assert ("ON BAD ROW KEEP does not help" in str(caught.value.hint)) != helps
        assert "DOUBLE" in str(caught.value.hint)


def test_a_sum_of_changes(session: cql.Session) -> None:
    """Rows leave the window: the sum at an instant covers only the rows that are present then."""
    values = [TOP, -5, 3, LOW, 7, TOP - 3, LOW + 1, 2]
    stream(session, values, pa.int64())
    for window, length in (("[RANGE 1 SECOND]", 2), ("[ROWS 2]", 2), ("[ROWS 3]", 3)):
        text = f"SELECT ISTREAM(s) FROM (SELECT sum(v) AS s FROM w {window})"
        shown = [sum(values[max(0, t + 1 - length) : t + 1]) for t in range(len(values))]
        found = outcome(session.sql(text))
        if all(LOW <= s <= TOP for s in shown):
            assert {r[0] for r in found} >= set(shown)
        else:
            assert found == "overflow in sum"


@pytest.mark.parametrize("window", ["[RANGE 2]", "[PARTITION BY k ROWS 2]", "[ROWS 3]"])
def test_values_leave_a_sum(session: cql.Session, window: str) -> None:
    """Sums of BIGINT and means of DECIMAL follow the rows of a relation, with NULLs, with FILTER
    and after all values have left."""
    values = [TOP, None, LOW, 5, None, None, None, None, 8, TOP, LOW, -2, 2, TOP - 9, LOW + 9]
    data = pa.table(
        {
            "t": list(range(len(values))),
            "v": pa.array(values, pa.int64()),
            "d": pa.array(
                [None if v is None else Decimal(v % WIDE) for v in values], pa.decimal128(18, 0)
            ),
            "k": [t % 2 for t in range(len(values))],
        }
    )
    session.create_stream("w", data, ordered_by="t", unit="seconds", replace=True)
    text = (
        f"SELECT RSTREAM(k, sum(v) AS s, avg(d) AS a, sum(v) FILTER (WHERE v > 0) AS f)"
        f" FROM w {window} GROUP BY k"
    )
    made = session.sql(text)
    assert "taken out of the state" in made.explain()
    every = data.to_pylist()
    expected: list[list[tuple[Any, ...]]] = [[]]
    for now in range(len(values) + 3):  # the last rows leave, too
        come = every[: now + 1]
        if window == "[RANGE 2]":
            there = [r for r in come if r["t"] >= now - 2]
        elif window == "[ROWS 3]":
            there = come[-3:]
        else:
            there = [r for k in (0, 1) for r in [c for c in come if c["k"] == k][-2:]]
        shown: list[tuple[Any, ...]] = []
        for k in sorted({r["k"] for r in there}):
            known = [r for r in there if r["k"] == k and r["v"] is not None]
            above = [r["v"] for r in known if r["v"] > 0]
            mean = half_up(Fraction(sum(r["d"] for r in known)) / len(known), 0) if known else None
            total = sum(r["v"] for r in known) if known else None
            shown.append((k, total, mean, sum(above) if above else None))
        if shown != expected[-1]:  # RSTREAM shows a relation that has changed
            expected.append(shown)
    found = [(r["k"], r["s"], r["a"], r["f"]) for r in made.to_arrow().to_pylist()]
    assert sorted(found, key=str) == sorted((row for at in expected for row in at), key=str)


@pytest.mark.parametrize("parts", [1, 4, 100])
def test_in_partitions(session: cql.Session, parts: int) -> None:
    values = [TOP, LOW, TOP, LOW, LOW, TOP, -TOP, TOP - 8]
    stream(session, values, pa.int64())
    text = (
        f"SELECT k, sum(v) AS s, window_start AS w FROM w [RANGE 8 SLIDE 8] GROUP BY k"
        f" PARTITION BY HASH(k) INTO {parts}"
    )
    expected = [(k, sum(values[k::2]), 0) for k in (0, 1)]
    assert all(LOW <= s <= TOP for _, s, _ in expected)
    for workers in (1, 2):
        query = session.sql(text, runtime="ordered", workers=workers, morsel_rows=1)
        assert outcome(query) == expected


def test_integers_and_intervals_that_are_summed(session: cql.Session) -> None:
    stream(session, [2**31 - 1, -(2**31), 2**31 - 1], pa.int32())
    assert outcome(
        session.sql("SELECT sum(v) AS s, sum(CAST(v % 100 AS TINYINT)) AS t FROM w")
    ) == [(2**31 - 2, 47 - 48 + 47)]
    half = 1 << 62
    stream(session, [half, half, -half], pa.duration("us"))
    found = session.sql("SELECT sum(v) AS s FROM w").to_arrow()["s"].cast(pa.int64()).to_pylist()
    assert found == [half]
    stream(session, [half, half], pa.duration("us"))
    assert outcome(session.sql("SELECT sum(v) AS s FROM w")) == "overflow in sum"


def test_the_mean_of_decimals_is_exact(full: bool) -> None:
    """The mean equals Python's exact arithmetic, also for sums of up to 127 bits."""
    rng = random.Random(7)
    for _ in range(100_000 if full else 5_000):
        count = rng.choice((1, 2, 3, 7, 1000, (1 << 40) + 1, rng.randrange(1, 1 << 61)))
        most = 10 ** rng.randrange(1, 19)
        total = rng.randrange(-most, most) * count + rng.randrange(-count, count + 1)
        factor = 10 ** rng.randrange(0, 5)
        high, low = total >> 64, total & ((1 << 64) - 1)
        signed = low - (1 << 64) if low >> 63 else low
        if not -(1 << 63) <= high < 1 << 63:
            continue
        got, beyond = mean_half_up(np.int64(high), np.int64(signed), np.int64(count), factor)
        wanted = int(half_up(Fraction(abs(total) * factor, count), 0)) * (-1 if total < 0 else 1)
        if abs(wanted) < 10**18:
            assert not beyond
            assert got == wanted, (total, count, factor)
        else:
            assert beyond or abs(got) >= 10**18
