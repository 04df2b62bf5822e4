"""User code that a query calls (functions, aggregates, iterables, sinks) may act on that query: the
query ends, and no thread waits for itself."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from cql.catalog.sinks import MemorySink
from cql.errors import CqlError, RunError
from cql.query.query import Query
from cql.session.session import Session
from tests.support.runtimes import apply, named

ROWS = 400
#: One runtime of each kind. With workers, functions run on other threads than the reader's.
RUNTIMES: tuple[dict[str, Any], ...] = (
    {"runtime": "depth_first"},
    {"runtime": "fifo"},
    {"runtime": "ordered", "partitions": 4, "workers": 2},
)
#: Actions that a query refuses from within itself, each with the message of its RunError.
REFUSED: dict[str, tuple[Callable[[Query], object], str]] = {
    "pause": (lambda q: q.pause(), "cannot be paused by what it calls itself"),
    "await": (lambda q: q.await_termination(), "cannot be awaited by what it calls itself"),
    "await a second": (lambda q: q.await_termination(1), "cannot be awaited by what it calls"),
    "read": (lambda q: next(iter(q)), "is running already"),
    "whole": (lambda q: q.to_arrow(), "is running already"),
    "show": (lambda q: q.show(), "is running already"),
    "analyze": (lambda q: q.explain("analyze"), "is running already"),
}
SELECT = "SELECT ts, called(v) AS w FROM s WHERE v >= 0"
GROUPS = "SELECT k, acting(v) AS n, window_end FROM s [RANGE 30 SLIDE 30 WA ts] GROUP BY k"


class Actor:
    """Each call performs the next of ``actions`` and keeps its result or error in ``came``."""

    def __init__(self) -> None:
        self.actions: list[Callable[[], object]] = []
        self.came: list[object] = []
        self.calls = 0
        self._lock = threading.Lock()

    def will(self, *actions: Callable[[], object]) -> None:
        self.actions, self.came = list(actions), []

    def __call__(self) -> None:
        with self._lock:
            self.calls += 1
            action = self.actions.pop(0) if self.actions else None
        if action is not None:
            try:
                self.came.append(action())
            except CqlError as error:
                self.came.append(error)

    def was_refused(self, *messages: str) -> None:
        for error, message in zip(self.came, messages, strict=True):
            assert isinstance(error, RunError)
            assert message in error.message
            assert error.hint is not None


@pytest.fixture
def actor() -> Actor:
    return Actor()


@pytest.fixture
def session(actor: Actor) -> Iterator[Session]:
    session = Session(False)

    def called(v: int) -> int:
        actor()
        return v + 1

    class Acting:
        """Counts."""

        @staticmethod
        def init() -> tuple[int]:
            return (0,)

        @staticmethod
        def update(state: tuple[int], v: int) -> tuple[int]:
            actor()
            return (state[0] + 1,)

        @staticmethod
        def merge(a: tuple[int], b: tuple[int]) -> tuple[int]:
            return (a[0] + b[0],)

        @staticmethod
        def final(state: tuple[int]) -> int:
            return state[0]

    session.register_function("called", called, ["bigint"], "bigint")
    session.register_function("acting", Acting, ["bigint"], "bigint")
    session.create_stream("s", _table(), ordered_by="ts", unit="seconds")
    session.set("morsel_rows", 16)
    yield session
    session.close()


def _table() -> pa.Table:
    numbers = list(range(ROWS))
    return pa.table({"ts": numbers, "k": [n % 3 for n in numbers], "v": numbers})


@pytest.mark.sampled
@pytest.mark.parametrize("settings", RUNTIMES, ids=named)
@pytest.mark.parametrize("text", [SELECT, GROUPS], ids=["function", "aggregate"])
def test_what_would_wait_for_itself_is_refused(
    session: Session, actor: Actor, text: str, settings: dict[str, Any]
) -> None:
    """The refusal comes at once; if the function continues, the query continues."""
    apply(session, settings)
    query = session.sql(text)
    assert isinstance(query, Query)
    actor.will(*(partial(act, query) for act, _ in REFUSED.values()))
    assert query.to_arrow().num_rows == (ROWS if text == SELECT else 3 * 14)
    assert query.status == "finished"
    actor.was_refused(*(message for _, message in REFUSED.values()))


@pytest.mark.parametrize("settings", RUNTIMES, ids=named)
@pytest.mark.parametrize(
    ("text", "by"),
    [(SELECT, "stop"), (SELECT, "statement"), (SELECT, "close"), (GROUPS, "stop")],
    ids=["stop", "statement", "close", "aggregate"],
)
def test_stop_is_obeyed_after_the_call(
    session: Session, actor: Actor, text: str, by: str, settings: dict[str, Any]
) -> None:
    apply(session, settings)
    session.set("morsel_rows", 1)
    rows = iter([pa.table({"ts": [i], "k": [i], "v": [i]}) for i in range(200)])
    session.create_stream("s", rows, ordered_by="ts", unit="seconds", replace=True)
    query = session.sql(text)
    assert isinstance(query, Query)
    actions: dict[str, Callable[[], object]] = {
        "stop": lambda: query.stop(timeout=None),
        "statement": lambda: session.sql(f"STOP QUERY {query.name}").message,
        "close": session.close,
    }
    actor.will(actions[by])
    if by == "close":
        with pytest.raises(RunError, match="the session was closed before all rows had been read"):
            query.to_arrow()
    else:
        query.to_arrow()
        assert query.status == "stopped"
    assert actor.came == [{"stop": False, "statement": f"{query.name} is stopping"}.get(by)]
    assert actor.calls < 150


def test_an_uncaught_refusal_fails_the_query(session: Session) -> None:
    query: list[Query] = []
    session.register_function("pausing", lambda v: query[0].pause() and v, ["bigint"], "bigint")
    query.append(session.sql("SELECT pausing(v) AS w FROM s"))
    with pytest.raises(RunError, match="pausing raised RunError: query q1 cannot be paused"):
        query[0].to_arrow()
    assert query[0].status == "failed"


@pytest.mark.parametrize("settings", RUNTIMES, ids=named)
def test_statements_from_within(session: Session, actor: Actor, settings: dict[str, Any]) -> None:
    """Also while the session runs a statement that calls the function."""
    apply(session, settings)

    def statements() -> list[int]:
        shown = session.sql("SHOW QUERIES").to_arrow().num_rows
        counted = session.sql("SELECT count(*) AS n FROM s WHERE v > 10").to_arrow()
        session.sql("CREATE VIEW seen AS SELECT k FROM s")
        session.sql("DROP VIEW seen")
        return [shown, counted.column("n")[0].as_py()]

    for run in (
        lambda: session.sql(SELECT).to_arrow(),
        lambda: session.sql(f"EXPLAIN ANALYZE {SELECT}"),
        lambda: session.sql(f"CREATE TABLE t AS {SELECT}"),
    ):
        actor.will(statements)
        run()
        assert actor.came == [[1, ROWS - 11]]


@pytest.mark.parametrize("settings", RUNTIMES, ids=named)
def test_within_a_query_of_a_function(
    session: Session, actor: Actor, settings: dict[str, Any]
) -> None:
    """A function in an inner query that another function runs is inside both queries."""
    apply(session, settings)
    outer = session.sql(SELECT)
    session.register_function("pausing", lambda v: outer.pause() and v, ["bigint"], "bigint")
    actor.will(lambda: session.sql("SELECT pausing(v) AS w FROM s").to_arrow())
    assert outer.to_arrow().num_rows == ROWS
    actor.was_refused(f"query {outer.name} cannot be paused by what it calls itself")


def test_another_query_pauses_and_resumes(session: Session, actor: Actor) -> None:
    """An action on another query, which waits for nothing of this one, works as usual."""
    other = session.sql("SELECT ts FROM s")
    batches = other.batches()
    next(batches)
    actor.will(lambda: [other.pause().status, other.resume().status, other.stop()])
    assert session.sql(SELECT).to_arrow().num_rows == ROWS
    assert actor.came == [["paused", "running", False]]
    list(batches)
    assert other.status == "stopped"


@pytest.mark.parametrize("bounded", [True, False], ids=["bounded", "live"])
@pytest.mark.parametrize("settings", RUNTIMES, ids=named)
def test_an_iterable_acts_on_its_query(
    session: Session, actor: Actor, bounded: bool, settings: dict[str, Any]
) -> None:
    apply(session, settings)

    def rows() -> Iterator[dict[str, int]]:
        for i in range(50):
            actor()
            yield {"ts": i, "v": i}

    session.create_stream("rows", rows, ordered_by="ts", unit="seconds", bounded=bounded)
    query = session.sql("SELECT ts FROM rows WHERE v >= 0")
    assert isinstance(query, Query)
    actor.will(query.pause, query.await_termination)
    assert sum(batch.num_rows for batch in query) == 50
    actor.was_refused(REFUSED["pause"][1], REFUSED["await"][1])
    actor.will(lambda: query.stop(timeout=None))
    for _ in query:
        pass
    assert (query.status, actor.came) == ("stopped", [False])


@pytest.mark.parametrize("step", ["write", "commit"])
@pytest.mark.parametrize("settings", RUNTIMES, ids=named)
def test_a_sink_acts_on_its_query(
    session: Session,
    actor: Actor,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    settings: dict[str, Any],
) -> None:
    """On any thread: an endless INSERT commits on a thread of its own."""
    apply(session, settings)
    own = getattr(MemorySink, step)
    monkeypatch.setattr(MemorySink, step, lambda sink, *given: (actor(), own(sink, *given))[1])
    session.sql("CREATE TABLE t (ts BIGINT)")
    query = next(iter(session._statements("INSERT INTO t SELECT ts FROM s WHERE v >= 0")))
    assert isinstance(query, Query)
    for name in ("pause", "await"):
        act, message = REFUSED[name]
        actor.will(partial(act, query))
        query.start().await_termination()
        actor.was_refused(message)
        assert query.row_count == ROWS


@pytest.mark.parametrize("settings", RUNTIMES, ids=named)
def test_an_endless_insert_stops_itself(
    session: Session, actor: Actor, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    """A stop works from the thread that publishes epochs and from a function in the background."""
    apply(session, settings)
    over = threading.Event()
    own = MemorySink.commit
    monkeypatch.setattr(MemorySink, "commit", lambda sink: (actor(), own(sink))[1])

    def rows() -> Iterator[dict[str, int]]:
        yield {"ts": 1, "v": 1}
        over.wait(60)

    session.create_stream("rows", rows, ordered_by="ts", unit="seconds", bounded=False)
    session.sql("CREATE TABLE t (w BIGINT)")
    session.set("epoch_ms", 10)
    for text in ("SELECT v AS w FROM rows", "SELECT called(v) AS w FROM rows"):
        query = next(iter(session._statements(f"INSERT INTO t {text}")))
        assert isinstance(query, Query)
        actor.will(partial(query.stop, timeout=None))
        assert query.start().await_termination(60)
        assert (query.status, actor.came) == ("stopped", [False])
    over.set()


def test_queries_that_run_together(session: Session, actor: Actor) -> None:
    """A function of one query must not pause the other queries of its set: they pause together."""
    queries = session.query_set(f"{SELECT}; SELECT ts, k FROM s WHERE v > 5")
    actor.will(queries.queries[1].pause, queries.await_termination)
    assert [t.num_rows for t in queries.to_arrow()] == [ROWS, ROWS - 6]
    actor.was_refused(REFUSED["pause"][1], REFUSED["await"][1])
