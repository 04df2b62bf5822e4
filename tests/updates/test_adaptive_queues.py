"""Queues that change while their query runs: by the time that rows have waited, and by how often
keys are updated."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import cql
from cql.errors import BindError, NotSupportedError
from cql.executor.operators.updates.choice import Choice
from cql.executor.operators.updates.queue_state import QueueState, Scheduler
from cql.executor.operators.updates.update_feed import UpdateFeed
from cql.executor.run import inputs
from cql.session.session import Session
from tests.support.runtimes import RUNTIMES, Settings, apply, named
from tests.support.updates.traces import Unlimited

QUOTES = "CREATE STREAM quotes (ts BIGINT, symbol STRING, price INT) ORDERED BY ts"
ROWS = [(k, "ab"[k % 2], k) for k in range(8)]
MS = 1_000_000


@pytest.fixture
def session() -> Iterator[Session]:
    with cql.connect(spark=False) as made:
        yield made


def clock_with(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Each look at the clock of an update queue takes ``step`` nanoseconds."""
    ticks = partial(next, itertools.count(0, step))
    monkeypatch.setattr(inputs, "_update_feed", lambda _: partial(UpdateFeed, clock=ticks))


def prices(session: Session, query: str = "SELECT * FROM quotes") -> tuple[list[int], Any]:
    asked: Any = session.sql(query)
    session.push("quotes", ROWS)
    read = iter(asked)
    found = [next(read)]
    session.end("quotes")
    return [row["price"] for b in [*found, *read] for row in b.to_pylist()], asked.metrics()[0]


@pytest.mark.parametrize("settings", RUNTIMES, ids=named)
@pytest.mark.parametrize("clause", ["", "QUEUE ADAPTIVE "])
def test_within_the_goal_all_rows_are_used(
    clause: str, settings: Settings, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply(session, settings)
    clock_with(monkeypatch, MS)
    session.sql(f"{QUOTES} UPDATE KEY (symbol) {clause}STALENESS UNDER 200 ms")
    found, told = prices(session)
    assert found == list(range(8))
    assert (told["scheduler"], told["superseded"]) == ("append", 0)


@pytest.mark.parametrize("settings", RUNTIMES, ids=named)
def test_beyond_it_the_newest_row_of_each_key(
    settings: Settings, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply(session, settings)
    clock_with(monkeypatch, 60 * MS)
    session.sql(f"{QUOTES} UPDATE KEY (symbol) STALENESS UNDER 100 ms")
    found, told = prices(session)
    assert found == [6, 7]
    assert (told["rows_in"], told["superseded"], told["rows_out"]) == (8, 6, 2)


def test_the_queue_is_append_again_once_no_row_waits() -> None:
    queue = QueueState("queue", Unlimited(), Scheduler.APPEND)
    choice = Choice(queue, 100, by_frequency=False)
    ids, events = np.array([0, 1, 0, 0]), np.arange(4)
    queue.enqueue(ids, events, 0)
    choice.adapt(50)
    assert queue.scheduler is Scheduler.APPEND
    choice.adapt(51)
    assert (queue.scheduler, queue.counters()["held"]) == (Scheduler.IN_PLACE, 2)
    queue.enqueue(ids, events + 4, 52)
    assert queue.counters()["superseded"] == 6
    queue.dequeue(1, 60)
    choice.adapt(60)
    assert queue.scheduler is Scheduler.IN_PLACE
    queue.dequeue(1, 61)
    choice.adapt(61)
    assert (queue.scheduler, choice.switches) == (Scheduler.APPEND, 2)
    queue.enqueue(ids, events + 8, 62)
    assert queue.counters()["held"] == 4


@pytest.mark.parametrize(
    ("often", "chosen"),
    [([1] * 10, "IN_PLACE"), ([10] * 2 + [1] * 8, "LINECUTTING"), ([5], "IN_PLACE")],
)
def test_linecutting_is_chosen_where_frequencies_differ(often: list[int], chosen: str) -> None:
    queue = QueueState("queue", Unlimited(), Scheduler.IN_PLACE)
    choice = Choice(queue, None, by_frequency=True)
    ids = np.repeat(np.arange(len(often)), often)
    for turn in range(2 * Choice.APART // len(ids) + 2):
        queue.enqueue(ids, np.full(len(ids), turn), turn)
        choice.adapt(turn)
    assert queue.scheduler.name == chosen


def test_explain_says_why(session: Session) -> None:
    session.sql(f"{QUOTES} UPDATE KEY (symbol) STALENESS UNDER 1 s")
    told = str(session.sql("EXPLAIN SELECT price FROM quotes"))
    why = "queue adaptive by symbol (STALENESS UNDER 1 second: all rows, until one has waited"
    assert f"{why} 500 milliseconds; then the newest of each key" in told
    told = str(
        session.sql("EXPLAIN SELECT symbol, count(*) FROM quotes [RANGE 5 SLIDE 5] GROUP BY symbol")
    )
    assert "queue in-place by symbol (STALENESS UNDER 1 second)" in told


def test_a_goal_needs_an_update_stream(session: Session) -> None:
    with pytest.raises(BindError, match="STALENESS UNDER is a goal for an update stream") as found:
        session.sql(f"{QUOTES} STALENESS UNDER 1 s")
    assert found.value.hint == "add UPDATE KEY (column, …)"


def test_windows_have_no_adaptive_queue(session: Session) -> None:
    session.sql(f"{QUOTES} UPDATE KEY (symbol) QUEUE ADAPTIVE")
    with pytest.raises(NotSupportedError, match="a window with QUEUE ADAPTIVE"):
        session.sql("SELECT symbol, count(*) FROM quotes [RANGE 5 SLIDE 5] GROUP BY symbol")


def test_the_same_in_python(session: Session) -> None:
    session.create_stream(
        "s", [{"ts": 1, "k": 1}], ordered_by="ts", update_key="k", staleness="200 ms", bounded=False
    )
    found = session._catalog.find(("s",))
    assert found is not None
    assert found.stream is not None
    assert found.stream.staleness == 200_000
