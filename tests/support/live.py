"""Sources that follow a script of rows and punctuations, and the clock that they advance."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from cql import Punctuation
from cql.base.model import Field, Schema
from cql.base.types import TIMESTAMP
from cql.executor.protocols import Block, Offset, Reader
from cql.executor.run.execution import Execution
from cql.planner.nodes.catalog import Statistics
from cql.query.query import Query
from cql.session.session import Session

SECOND = 1_000_000


def at(seconds: float) -> datetime.datetime:
    """``seconds`` after midnight of 1 March 2020."""
    start = datetime.datetime(2020, 3, 1, tzinfo=datetime.UTC)
    return start + datetime.timedelta(seconds=seconds)


def _count(row: Mapping[str, Any]) -> tuple[int, float]:
    end = row["window_end"]
    return row["n"], end if isinstance(end, int) else (end - at(0)).total_seconds()


@dataclass
class Clock:
    """A clock in seconds that the sources advance."""

    time: float = 100.0

    def __call__(self) -> float:
        return self.time


@dataclass
class Script:
    """An unbounded source that ends with its script. ``events`` are pairs of a clock time, in
    seconds from the opening, and the items that arrive then: the event times of rows, or
    punctuations, both in seconds."""

    clock: Clock
    events: Sequence[tuple[float, Sequence[float | Punctuation]]]
    bounded: bool = False
    stops: bool = True
    schema: Schema = field(default_factory=lambda: Schema((Field("ts", TIMESTAMP),)))
    unsupported: Mapping[str, str] = field(default_factory=dict)

    def statistics(self) -> Statistics:
        return Statistics()

    def open(self, columns: Sequence[str], offset: Offset | None = None) -> Reader:
        assert list(columns) == ["ts"]
        return _Reader(self, self.clock.time)


@dataclass
class _Reader:
    source: Script
    start: float
    given: int = 0

    def next(self, timeout: float | None = None) -> Block | None:
        events, clock = self.source.events, self.source.clock
        if self.given == len(events):
            return None
        time, rows = events[self.given]
        if clock.time < self.start + time:
            clock.time += min(timeout or 0.0, self.start + time - clock.time)
            return Block(self._batch([]), {})
        self.given += 1
        data = [r for r in rows if not isinstance(r, Punctuation)]
        row_punctuation = [
            (sum(not isinstance(r, Punctuation) for r in rows[:k]), "ts", _micros(r.value))
            for k, r in enumerate(rows)
            if isinstance(r, Punctuation)
        ]
        return Block(self._batch(data), {}, row_punctuation=tuple(row_punctuation))

    def _batch(self, seconds: Sequence[Any]) -> pa.RecordBatch:
        times = pa.array([at(s) for s in seconds], TIMESTAMP.to_arrow())
        return pa.record_batch([times], names=["ts"])

    def close(self) -> None:
        pass


def _micros(seconds: float) -> int:
    return int(at(seconds).timestamp() * SECOND)


@dataclass
class Live:
    """A session whose streams follow scripts."""

    clock: Clock = field(default_factory=Clock)
    notices: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.session = Session(
            False, run=lambda plan, settings: Execution(plan, settings, self.clock).queries[0]
        )
        self.session.on_notice = self.notices.append

    def stream(
        self, name: str, events: Sequence[tuple[float, Sequence[Any]]], clauses: str = ""
    ) -> None:
        from cql.planner.nodes.catalog import StreamSpec

        script = Script(self.clock, events)
        base = f"{name}_rows"
        self.session._catalog.local.add_source((base,), script, StreamSpec())
        self.session.sql(f"CREATE STREAM {name} FROM TABLE {base} ORDERED BY ts {clauses}")

    def run(self, text: str) -> tuple[list[tuple[int, int, float]], Query]:
        """The results as (clock time, ``n``, window end), and the query. The clock time is in
        seconds from the start of the run, the window end in seconds."""
        query = self.session.sql(text)
        assert isinstance(query, Query)
        start, found = self.clock.time, []
        for batch in query:
            passed = round(self.clock.time - start)
            found += [(passed, *_count(row)) for row in batch.to_pylist()]
        return found, query


def late(query: Query) -> dict[tuple[str, str], int]:
    return {(row["place"], row["kind"]): row["count"] for row in query.late().to_pylist()}


STEADY = [(t, [t]) for t in range(60)]
