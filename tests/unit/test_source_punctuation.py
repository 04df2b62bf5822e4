"""Rows that are punctuation are removed from a block, for every type of column and any pattern of
such rows."""

from __future__ import annotations

import datetime
import decimal
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cql.query.query import Query
from cql.session.session import Session

COLUMNS = {
    "t": pa.int64(),
    "a": pa.int8(),
    "b": pa.int16(),
    "c": pa.int32(),
    "d": pa.date32(),
    "e": pa.timestamp("us", "UTC"),
    "f": pa.float32(),
    "g": pa.float64(),
    "h": pa.bool_(),
    "i": pa.decimal128(9, 2),
    "j": pa.string(),
    "k": pa.string(),
}


@pytest.fixture
def session() -> Iterator[Session]:
    with Session(spark=False) as opened:
        yield opened


def value(kind: pa.DataType, n: int) -> Any:
    if pa.types.is_date(kind):
        return datetime.date(2020, 1, 1) + datetime.timedelta(days=n % 99)
    if pa.types.is_timestamp(kind):
        return datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(seconds=n)
    if pa.types.is_boolean(kind):
        return n % 3 == 0
    if pa.types.is_decimal(kind):
        return decimal.Decimal(n) / 4
    if pa.types.is_string(kind):
        return f"text {n % 7}"
    return float(n) if pa.types.is_floating(kind) else n % 100


def rows(n: int, share: float, nulls: float, seed: int) -> pa.Table:
    draw = random.Random(seed)
    columns = {
        name: pa.array(
            [None if draw.random() < nulls else value(kind, i) for i in range(n)], type=kind
        )
        for name, kind in COLUMNS.items()
    }
    columns["t"] = pa.array(range(n), pa.int64())
    marks = [None if draw.random() < 0.1 else draw.random() < share for _ in range(n)]
    return pa.table({**columns, "mark": pa.array(marks, type=pa.bool_())})


def asked(session: Session, text: str) -> pa.Table:
    query = session.sql(text)
    assert isinstance(query, Query)
    return query.to_arrow()


@pytest.mark.parametrize(
    ("n", "share", "nulls", "morsel_rows"),
    [
        *((n, 0.3, 0.2, rows) for n in (0, 1, 7, 8, 9, 64, 200) for rows in (1, 7, 65_536)),
        (200, 0.0, 0.2, 64),
        (200, 1.0, 0.2, 64),
        (200, 0.3, 0.0, 64),
        (200, 0.9, 1.0, 64),
        (70_000, 0.1, 0.2, 65_536),  # memory from the pool
    ],
)
@pytest.mark.parametrize("runtime", ["depth_first", "fifo"])
def test_what_is_left(
    session: Session, n: int, share: float, nulls: float, morsel_rows: int, runtime: str
) -> None:
    table = rows(n, share, nulls, seed=n)
    session.set("morsel_rows", morsel_rows)
    session.set("runtime", runtime)
    session.create_stream("s", table, punctuated={"t": "mark"})
    names = ", ".join(COLUMNS)
    kept = table.filter(pa.compute.invert(pa.compute.fill_null(table["mark"], False)))
    assert asked(session, f"SELECT {names} FROM s").equals(kept.select(list(COLUMNS)))
    shorter = kept.filter(pa.compute.greater(kept["t"], 50)).select(["j", "g", "k", "t"])
    assert asked(session, "SELECT j, g, k, t FROM s WHERE t > 50").equals(shorter)
    texts = kept.filter(pa.compute.equal(kept["j"], "text 3")).select(["j", "k"])
    assert asked(session, "SELECT j, k FROM s WHERE j = 'text 3'").equals(texts)


def test_two_columns_with_marks_of_their_own(session: Session) -> None:
    """A row that is punctuation on one column does not raise the watermark of the other column."""
    n = 1000
    rng = np.random.default_rng(3)
    marks = {"x": rng.random(n) < 0.2, "y": rng.random(n) < 0.2}
    a, b = np.arange(n) + rng.integers(0, 9, n), np.arange(n) + rng.integers(0, 9, n)
    table = pa.table({"a": a, "b": b, "x": marks["x"], "y": marks["y"]})
    session.create_stream("s", table, punctuated={"a": "x", "b": "y"})
    kept = ~(marks["x"] | marks["y"])
    for column, times in (("a", a), ("b", b)):
        query = session.sql(f"SELECT count(*) AS n FROM s [RANGE 100 SLIDE 100 WA {column}]")
        assert isinstance(query, Query)
        late = floor = 0
        own = marks["x" if column == "a" else "y"]
        for i in range(n):
            if own[i]:
                floor = max(floor, times[i])
            elif kept[i] and times[i] // 100 * 100 + 100 <= floor:
                late += 1
        assert sum(query.to_arrow().column("n").to_pylist()) == kept.sum() - late
