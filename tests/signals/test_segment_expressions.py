"""Functions of segments inside other expressions: large ones, and those that are NULL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import cql
from cql.session.session import Session
from tests.support.runtimes import RUNTIMES, Settings, apply, named

SAMPLES = np.random.default_rng(5).integers(-1000, 1000, 64 * 50).astype(np.int16)


@pytest.fixture
def session() -> Iterator[Session]:
    with cql.connect(spark=False) as made:
        made.create_stream("s", pa.table({"x": SAMPLES}), rate=100)
        yield made


def _windows() -> Any:
    return SAMPLES.reshape(-1, 64).astype(float)


def _many(count: int) -> str:
    """Too large for one function: a sum of ``count`` parts."""
    return " + ".join(f"max(power_spectrum(hann(x))) * {k + 1} / {k + 2.5}" for k in range(count))


def _power(x: Any) -> Any:
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(64) / 64)
    return (np.abs(np.fft.rfft(x * hann)) ** 2).max()


@pytest.mark.parametrize("runtime", RUNTIMES, ids=named)
@pytest.mark.parametrize("place", ["select", "where"])
def test_a_large_expression(place: str, runtime: Settings, session: Session) -> None:
    """Its functions that make segments are in functions of their own, and know the morsel."""
    apply(session, runtime, {"morsel_rows": 3})
    factor = sum((k + 1) / (k + 2.5) for k in range(60))
    expected = [_power(x) * factor for x in _windows()]
    limit = float(np.median(expected))
    query: Any = session.sql(
        f"SELECT {_many(60)} AS p FROM s [ROWS 64 SLIDE 64]"
        if place == "select"
        else f"SELECT max(power_spectrum(hann(x))) AS p FROM s [ROWS 64 SLIDE 64]"
        f" WHERE {_many(60)} > {limit}"
    )
    found = query.to_arrow()["p"].to_pylist()
    if place == "where":
        expected = [p / factor for p in expected if p > limit]
    assert found == pytest.approx(expected, rel=1e-9)


def test_many_columns(session: Session) -> None:
    """Together too large for one function."""
    calls = [f"max(power_spectrum(subseg(x, {k}, 16 * 2))) * {k} + {k} AS c{k}" for k in range(99)]
    query: Any = session.sql(f"SELECT {', '.join(calls)} FROM s [ROWS 64 SLIDE 640]")
    for x, row in zip(_windows()[::10], query.to_arrow().to_pylist(), strict=True):
        for k in range(33):
            power = (np.abs(np.fft.rfft(x[k : k + 32])) ** 2).max() * k + k
            assert row[f"c{k}"] == pytest.approx(power, rel=1e-9)


@pytest.mark.parametrize("call", ["avg", "count", "max", "stddev", "rms", "zero_crossings"])
def test_a_segment_that_is_null(call: str, session: Session) -> None:
    some = "CASE WHEN max(x) > 980 THEN x END"
    query: Any = session.sql(
        f"SELECT {call}({some}) AS a, max(power_spectrum(hann(subseg({some}, 1, 8)))) AS p,"
        f" subseg({some}, 0, 3) AS part, subseg(x, nullif(max(x), 999), 3) AS none, {some} AS s,"
        f" max(x) AS most, {call}(x) AS whole FROM s [ROWS 64 SLIDE 64]"
    )
    rows = query.to_arrow().to_pylist()
    for x, row in zip(_windows(), rows, strict=True):
        there = row["most"] > 980
        assert row["a"] == (row["whole"] if there else None)
        assert (row["p"] is not None) == there
        assert row["part"] == (x[:3].tolist() if there else None)
        assert row["s"] == (x.tolist() if there else None)
        assert row["none"] == (None if row["most"] == 999 else [])
    assert {row["a"] is None for row in rows} == {True, False}
