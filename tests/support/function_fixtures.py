"""User functions, and a stream whose columns are their arguments."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa

import cql

ROWS = 40
STREAM = pa.table(
    {
        "ts": pa.array(range(ROWS), pa.int64()),
        "n": pa.array([None if i % 7 == 3 else i * 3 - 20 for i in range(ROWS)], pa.int64()),
        "x": pa.array([None if i % 5 == 2 else i / 4 - 3 for i in range(ROWS)], pa.float64()),
        "w": pa.array([None if i % 6 == 1 else "abcde"[i % 5] for i in range(ROWS)]),
        "b": pa.array([i % 3 == 0 for i in range(ROWS)]),
        "i": pa.array(range(ROWS), pa.int32()),
        "at": pa.array([i * 3_600_000_000 for i in range(ROWS)], pa.timestamp("us", tz="UTC")),
        "d": pa.array(range(ROWS), pa.int32()).cast(pa.date32()),
        "m": pa.array([Decimal(i) / 4 for i in range(ROWS)], pa.decimal128(10, 2)),
    }
)


def session_of(**settings: Any) -> cql.Session:
    session = cql.connect(spark=False, **settings)
    session.create_stream("s", STREAM, ordered_by="ts")
    return session


def values(query: Any) -> list[Any]:
    """The first column of the query's result."""
    return query.to_arrow().column(0).to_pylist()


def column(name: str) -> list[Any]:
    return STREAM[name].to_pylist()


def collatz(n: int) -> int:
    steps = 0
    while n > 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps


def hypotenuse(a: float, b: float) -> float:
    return math.sqrt(a * a + b * b)


def later(at: dt.datetime, days: int) -> dt.date:
    return (at + dt.timedelta(days=days)).date()


def shout(w: str) -> str:
    return w.upper() + "!"


def repeated(w: str, n: int) -> str:
    return w * max(0, n)


def in_python(n: int) -> int:
    return len({"a": n}) + n


def doubled(m):
    return m * 2


def forever(n: int) -> int:
    return forever(n + 1)


def in_turn(n: int) -> int:
    return forever_in_turn(n)


def forever_in_turn(n: int) -> int:
    return in_turn(n + 1)


FUNCTIONS = [
    *(collatz, hypotenuse, later, shout, repeated, in_python),
    cql.function("decimal(12,2)", args=["decimal(10,2)"])(doubled),
]
