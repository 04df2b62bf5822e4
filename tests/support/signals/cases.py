"""Random signals, their declarations, and what the slow model says of their windows."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from cql.query.query import Query
from cql.session.session import Session
from tests.reference.naive_signals import NaiveSignal, NaiveWindow, Row

RATES = ("1", "10", "0.5", "29.97", "8000", "44100", "1000000", "3000000", "0.1")
TYPES = ("int8", "int16", "int32", "int64", "float32", "float64")
_SQL = {"int8": "TINYINT", "int16": "SMALLINT", "int32": "INT", "int64": "BIGINT"}
_SQL |= {"float32": "FLOAT", "float64": "DOUBLE"}
_ORIGINS = (0, 1_600_000_000_123_456, -86_400_000_001, 999_999)


@dataclass
class Case:
    """A signal ``s`` with channels ``a``, ``b``, …; ``window``: the text of its window."""

    rate: str
    timed: bool
    types: tuple[str, ...]
    rows: list[Row]
    by_time: bool
    size: int
    slide: int
    rests: bool = False
    tolerance: int | None = None  # in microseconds

    @property
    def window(self) -> str:
        unit = " MICROSECONDS" if self.by_time else ""
        kind = "RANGE" if self.by_time else "ROWS"
        rests = " WITH RESTS" if self.rests else ""
        return f"[{kind} {self.size}{unit} SLIDE {self.slide}{unit}{rests}]"

    @property
    def time(self) -> str:
        """The name of the times."""
        return "ts" if self.timed else "time"

    @property
    def names(self) -> list[str]:
        return ["abcdefgh"[k] for k in range(len(self.types))]

    @property
    def table(self) -> pa.Table:
        kinds = [pa.from_numpy_dtype(np.dtype(t)) for t in self.types]
        columns = [pa.array([row[1][k] for row in self.rows], kind) for k, kind in enumerate(kinds)]
        names = self.names
        if self.timed:
            times = pa.array([row[0] for row in self.rows], pa.timestamp("us", "UTC"))
            columns, names = [times, *columns], ["ts", *names]
        return pa.table(dict(zip(names, columns, strict=True)))

    def declare(self, session: Session, *, pushed: bool) -> None:
        if not pushed:
            order: Any = {"ordered_by": "ts"} if self.timed else {}
            if self.tolerance is not None:
                order["tolerance"] = timedelta(microseconds=self.tolerance)
            session.create_stream("s", self.table, rate=float(self.rate), **order, replace=True)
            return
        columns = [f"{n} {_SQL[t]}" for n, t in zip(self.names, self.types, strict=True)]
        if self.timed:
            columns = ["ts TIMESTAMP", *columns]
        order_by = " ORDERED BY ts" if self.timed else ""
        text = f"CREATE OR REPLACE STREAM s ({', '.join(columns)}){order_by} RATE {self.rate} HZ"
        if self.tolerance is not None:
            text += f" TOLERANCE {self.tolerance} MICROSECONDS"
        session.sql(text)

    def expected(self) -> tuple[list[NaiveWindow], NaiveSignal]:
        signal = NaiveSignal(Fraction(self.rate), self.timed, self.tolerance)
        signal.read(self.rows)
        windows = signal.by_time if self.by_time else signal.by_rows
        return list(windows(self.size, self.slide, rests=self.rests)), signal

    def check(self, query: Query, found: pa.Table) -> None:
        """Checks all rows of ``SELECT *``, and the metrics."""
        windows, signal = self.expected()
        metrics = {row["operator"]: row for row in query.metrics()}
        bounds = [found.column(f"window_{w}").cast(pa.int64()).to_pylist() for w in _BOUNDS]
        assert list(zip(*bounds, strict=True)) == [(w.start, w.end, w.end - 1) for w in windows]
        assert all(b == sorted(b) for b in bounds), "windows are not in order"
        for k, name in enumerate(self.names):
            own = pa.table({"x": pa.array([r[1][k] for r in self.rows], self.table[name].type)})
            assert found.column(name).type == pa.list_(
                pa.field("element", own.schema.field(0).type, nullable=False)
            )
            assert found.column(name).to_pylist() == [[r[1][k] for r in w.rows] for w in windows]
        own_counts = ("samples", "gaps", "overlapping", "missing")
        source = next(row for row in metrics.values() if "missing" in row)
        assert {c: source[c] for c in own_counts} == {c: getattr(signal, c) for c in own_counts}
        cut = metrics["rewindow#0"]
        assert (cut["runs"], cut["rests"], cut["samples_in"], cut["rows_out"]) == (
            len(signal.runs),
            signal.rests,
            signal.samples,
            len(windows),
        )


_BOUNDS = ("start", "end", "time")


def random_case(choice: random.Random) -> Case:
    rate, timed = choice.choice(RATES), choice.random() < 0.75
    types = tuple(choice.choice(TYPES) for _ in range(choice.choice((1, 1, 2, 3))))
    n = choice.choice((0, 1, 7, 40, 100, 200))
    nulls = choice.choice((0.0, 0.0, 0.02, 0.3))
    rows = [
        (time, tuple(_sample(choice, t, nulls) for t in types))
        for time in (_times(choice, Fraction(rate), n, nulls) if timed else [None] * n)
    ]
    by_time, period = choice.random() < 0.5, 1_000_000 / Fraction(rate)
    size = choice.choice((1, 2, 3, 5, 8, 13, 30, 250))
    slide = choice.choice((1, size, max(1, size // 2), size + 1, 3 * size, 7))
    if by_time:
        size, slide = (max(1, int(period * n + choice.random() * period)) for n in (size, slide))
        size = max(size, math.ceil(period))  # a shorter one may hold no sample
    size = max(size, math.ceil(1 / period))  # a shorter one is shorter than a microsecond
    case = Case(rate, timed, types, rows, by_time, size, slide, choice.random() < 0.5)
    half = int(period / 2)
    if timed and half and choice.random() < 0.4:
        case.tolerance = choice.choice((half, max(1, half // 2), max(1, half // 50), 1))
    return case


def _times(choice: random.Random, rate: Fraction, n: int, nulls: float) -> Sequence[int | None]:
    """Times in microseconds: with jitter, gaps, times that go back, and a clock that drifts."""
    period = 1_000_000 / rate
    jitter = choice.choice((0, 0, 0.2, 0.49, 0.7))
    speed = choice.choice((1, 1, 1, Fraction(101, 100), Fraction(97, 100), Fraction(1, 2)))
    events = choice.choice((0, 0, 0.02, 0.1))
    at = Fraction(choice.choice(_ORIGINS))
    found: list[int | None] = []
    for _ in range(n):
        if choice.random() < events:
            jump = choice.choice((1, 2, 0.5, 0.75, 50, 12345.6, -1, -2.5, -20))
            at += period * Fraction(jump)
        time = int(at + period * Fraction(jitter * choice.uniform(-1, 1)))
        found.append(None if choice.random() < nulls / 4 else time)
        at += period * speed
    return found


def _sample(choice: random.Random, kind: str, nulls: float) -> Any:
    if choice.random() < nulls:
        return None
    if kind.startswith("float"):
        return float(np.float32(choice.choice((0.0, -0.0, 1.5, 1e30, choice.gauss(0, 100)))))
    ends = np.iinfo(kind)
    return choice.choice((int(ends.min), int(ends.max), 0, choice.randint(-100, 100)))
