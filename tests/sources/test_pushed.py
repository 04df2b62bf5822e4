"""Streams of pushed rows: running queries read all rows, none hangs, memory is bounded."""

from __future__ import annotations

import datetime as dt
import signal
import threading
from collections.abc import Iterator
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import cql
from cql.catalog.memory.pushed import PushedSource, _Feed
from cql.errors import BindError, CatalogError, CqlError, RunError
from cql.session.session import CqlWarning
from tests.support.runtimes import RUNTIMES, apply, named

DECLARED = "CREATE STREAM s (k INT, ts TIMESTAMP) ORDERED BY ts"
SMALL = "CREATE STREAM s (k INT, ts TIMESTAMP) USING push OPTIONS (buffer '4') ORDERED BY ts"


def at(second: int) -> dt.datetime:
    return dt.datetime(2024, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=second)


def numbered(*seconds: int) -> list[tuple[int, dt.datetime]]:
    return [(second, at(second)) for second in seconds]


@pytest.fixture
def session() -> Iterator[cql.Session]:
    with cql.connect(spark=False) as made:
        yield made


def query_of(session: cql.Session, text: str) -> cql.Query:
    found = session.sql(text)
    assert isinstance(found, cql.Query)
    return found


def keys(session: cql.Session) -> list[int]:
    """The keys of the rows that the ended stream still keeps."""
    return list(query_of(session, "SELECT k FROM s").to_arrow()["k"].to_pylist())


class Reading:
    """Reads the keys that a query gives, one at a time."""

    def __init__(self, session: cql.Session) -> None:
        self._batches = iter(query_of(session, "SELECT k FROM s"))
        self._ready: list[int] = []

    def next(self, count: int = 1) -> list[int]:
        while len(self._ready) < count:
            self._ready += next(self._batches)["k"].to_pylist()
        taken, self._ready = self._ready[:count], self._ready[count:]
        return taken

    def rest(self) -> list[int]:
        return self._ready + [k for batch in self._batches for k in batch["k"].to_pylist()]


def source(session: cql.Session) -> PushedSource:
    found = session._catalog.local.pushed(("s",))
    assert found is not None
    return found


def test_all_ways_to_push(session: cql.Session) -> None:
    session.sql(DECLARED)
    session.sql("INSERT INTO s VALUES (1, TIMESTAMP '2024-01-01 00:00:01')")
    session.sql("INSERT INTO s (ts, k) SELECT TIMESTAMP '2024-01-01 00:00:02' AS ts, 2 AS k")
    table = pa.table({"k": pa.array([5], pa.int32()), "ts": [at(5)]})
    query = query_of(session, "SELECT 9 AS k, TIMESTAMP '2024-01-01 00:00:09' AS ts")
    pushed = [
        session.push("s", numbered(3)),
        session.push("S", [{"ts": at(4), "k": 4}, {"ts": at(4)}]),
        session.push("s", table),
        session.push("s", pl.DataFrame({"ts": [at(6), at(7)], "k": [6, 7]})),
        session.push("s", iter([table.slice(0, 0), numbered(8)[0]])),
        session.push("s", query),
        session.push("s", []),
    ]
    assert pushed == [1, 2, 1, 2, 1, 1, 0]
    reading = Reading(session)
    assert reading.next(2) == [1, 2]
    session.push("s", numbered(10))
    session.end("s")
    assert reading.rest() == [3, 4, None, 5, 6, 7, 8, 9, 10]


@pytest.mark.sampled
@pytest.mark.parametrize("settings", RUNTIMES, ids=named)
def test_results_are_those_of_the_same_rows_from_a_list(
    session: cql.Session, settings: dict[str, Any]
) -> None:
    """Windows close while rows are pushed; late rows are dropped and counted."""
    apply(session, settings)
    times = [(i * 7) % 5 + i - (40 if i % 50 == 49 else 0) for i in range(300)]
    rows = [(t % 10, at(t)) for t in times]
    text = (
        "SELECT k, count(*) AS n, window_end FROM {} [RANGE 9 SECONDS SLIDE 3 SECONDS] GROUP BY k"
    )
    columns = pa.table(
        {"k": pa.array([k for k, _ in rows], pa.int32()), "ts": [t for _, t in rows]}
    )
    session.create_stream("whole", columns, ordered_by="ts", slack="2 seconds")
    whole = query_of(session, text.format("whole"))
    expected = whole.to_arrow().to_pylist()
    session.sql(f"{DECLARED} WITHIN 2 SECONDS")
    query = query_of(session, text.format("s"))
    session.push("s", rows[:100])
    batches = iter(query)
    found = next(batches).to_pylist()
    for start in range(100, 300, 20):
        session.push("s", rows[start : start + 20])
    session.end("s")
    found += [row for batch in batches for row in batch.to_pylist()]

    def order(row: dict[str, Any]) -> tuple[Any, ...]:
        return row["window_end"], row["k"]

    assert sorted(found, key=order) == sorted(expected, key=order)
    counts = [q.late()["count"].to_pylist() for q in (query, whole)]
    assert counts[0] == counts[1]
    assert sum(counts[0]) > 0


def test_punctuation_closes_windows_and_makes_rows_late(session: cql.Session) -> None:
    session.sql(DECLARED)
    query = query_of(session, "SELECT count(*) AS n FROM s [RANGE 5 SECONDS SLIDE 5 SECONDS]")
    batches = iter(query)
    session.push("s", numbered(1, 2))
    session.punctuate("s", at(5))
    assert next(batches).to_pylist() == [{"n": 2}]
    session.push("s", [*numbered(6), cql.Punctuation("ts", at(10)), *numbered(3, 7, 11)])
    assert next(batches).to_pylist() == [{"n": 1}]
    session.punctuate("s", at(12), "ts")
    session.push("s", numbered(11, 13))
    session.end("s")
    assert [row["n"] for batch in batches for row in batch.to_pylist()] == [3]
    assert query.late()["count"].to_pylist()[0] == 3


def test_a_promise_is_told_to_queries_that_start_later(session: cql.Session) -> None:
    session.sql(SMALL)
    session.push("s", numbered(1, 2, 3, 4))
    for second in (5, 6, 5):
        session.punctuate("s", at(second))
    session.push("s", numbered(7, 8, 9, 10, 2))
    session.end("s")
    query = query_of(session, "SELECT count(*) AS n FROM s [RANGE 100 SECONDS SLIDE 100 SECONDS]")
    with pytest.warns(CqlWarning, match="has forgotten its first 5 rows"):
        assert query.to_arrow().to_pylist() == [{"n": 4}]
    assert query.late()["count"].to_pylist()[0] == 1
    found = source(session)
    assert (len(found._row_punctuation), len(found._newest_before)) == (0, 1)


def test_a_full_buffer_waits_for_queries_and_forgets_what_they_have_read(
    session: cql.Session,
) -> None:
    session.sql(SMALL)
    for second in range(10):
        session.push("s", numbered(second))  # no running query has to read them
    first, second = Reading(session), Reading(session)
    with pytest.warns(CqlWarning, match="has forgotten its first 6 rows"):
        assert first.next(4) == [6, 7, 8, 9]
    assert second.next(4) == [6, 7, 8, 9]
    session.push("s", numbered(10, 11, 12))
    assert first.next(3) == [10, 11, 12]
    with pytest.raises(CatalogError, match="stream s is full: a query has 3 rows"):
        session.push("s", numbered(13, 14), timeout=0)
    session.push("s", numbered(13))
    assert second.next(4) == [10, 11, 12, 13]
    assert first.next() == [13]
    assert session.push("s", numbered(*range(20, 30)), timeout=0) == 10  # every row had been read
    session.end("s")
    assert first.rest() == second.rest() == list(range(20, 30))


def test_memory_is_bounded_by_the_buffer(session: cql.Session) -> None:
    session.sql(SMALL)
    for second in range(100):
        session.push("s", numbered(second, second))
        session.punctuate("s", at(second))
        found = source(session)
        assert sum(chunk.num_rows for chunk in found._chunks) <= 4
        assert len(found._row_punctuation) <= 4
        assert len(found._newest_before) <= 1
    session.sql("CREATE OR REPLACE STREAM s (k INT)")
    for _ in range(1_000):
        session.push("s", [(1,)])
    assert len(source(session)._chunks) < 20  # single rows are joined into chunks


def test_a_push_goes_on_when_a_query_reads_or_stops(session: cql.Session) -> None:
    session.sql(SMALL)
    reading = Reading(session)
    session.push("s", numbered(0))
    assert reading.next() == [0]
    pusher = threading.Thread(
        target=lambda: [session.push("s", numbered(i)) for i in range(1, 200)]
    )
    pusher.start()
    assert reading.next(199) == list(range(1, 200))
    pusher.join()
    session.push("s", numbered(*range(4)))
    pusher = threading.Thread(target=lambda: session.push("s", numbered(5)))
    pusher.start()
    del reading  # frees its place in the stream
    for query in session.queries():
        query.stop()
    pusher.join(60)
    assert not pusher.is_alive()
    session.end("s")
    with pytest.warns(CqlWarning, match="forgotten"):
        assert keys(session)[-1] == 5


def test_threads_push_whole_batches(session: cql.Session) -> None:
    session.sql("CREATE STREAM s (k INT, i INT)")
    threads = [
        threading.Thread(
            target=lambda k=k: [session.push("s", [(k, 2 * i), (k, 2 * i + 1)]) for i in range(50)]
        )
        for k in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    session.end("s")
    rows = query_of(session, "SELECT k, i FROM s").to_arrow().to_pylist()
    pairs = list(zip(rows[::2], rows[1::2], strict=True))
    assert all(a["k"] == b["k"] and a["i"] + 1 == b["i"] for a, b in pairs)
    for k in range(4):
        assert [row["i"] for row in rows if row["k"] == k] == list(range(100))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([(1, at(1)), ("a", at(2))], "row 1, column k: 'a' .* is not an int"),
        ([(1, at(1)), (2**40, at(2))], "column k"),
        ([(1, at(1), 3)], "3 values for 2 columns"),
        ([{"k": 1, "tz": at(1)}], "unknown column tz"),
        ({"k": [1], "ts": [at(1)], "x": [1]}, "unknown column x"),
        ({"k": [1]}, "has no column ts"),
        ({"k": ["a"], "ts": [at(1)]}, "column k of .* holds string, declared is int"),
        ([(1, at(1)), 5], "cannot read a int as rows"),
        (5, "cannot read a int as rows"),
        ("text", "cannot read a str as rows"),
        ([(None, at(1))], "NULL in a column declared NOT NULL"),
        ([(1, at(1)), cql.Punctuation("k", 3)], "punctuation on k, which is not declared"),
        ([(1, at(1)), cql.Punctuation("z", 3)], "punctuation on z, which is no column"),
        (iter([(1, at(1)), None]), "cannot read a NoneType as rows"),
    ],
)
def test_of_rows_that_do_not_fit_nothing_is_taken(
    session: cql.Session, rows: Any, message: str
) -> None:
    session.sql("CREATE STREAM s (k INT NOT NULL, ts TIMESTAMP) ORDERED BY ts")
    with pytest.raises(CatalogError, match=message):
        session.push("s", rows)
    session.push("s", numbered(7))
    session.end("s")
    assert keys(session) == [7]


def test_an_insert_is_taken_whole_or_not_at_all(session: cql.Session) -> None:
    session.sql("CREATE STREAM s (k BIGINT, ts TIMESTAMP) ORDERED BY ts")
    session.register_table("n", {"k": [1, 0]})
    with pytest.raises(RunError, match="division by zero"):
        session.sql("INSERT INTO s (k) SELECT 1 DIV k AS k FROM n")
    session.sql("INSERT INTO s (k) SELECT k FROM n")
    session.end("s")
    assert keys(session) == [1, 0]


def test_a_stream_into_a_stream(session: cql.Session) -> None:
    session.sql(f"{DECLARED}; CREATE STREAM doubled (k INT); SET epoch_ms = 1")
    insert = query_of(session, "INSERT INTO doubled SELECT k * 2 AS k FROM s")
    batches = iter(query_of(session, "SELECT k FROM doubled"))
    session.push("s", numbered(1, 2))
    assert next(batches)["k"].to_pylist() == [2, 4]
    for text in ("DROP STREAM doubled", "CREATE OR REPLACE STREAM doubled (k INT)"):
        with pytest.raises(RunError, match="writes into doubled"):
            session.sql(text)
    session.end("s")
    assert insert.await_termination(60)
    session.sql("DROP STREAM doubled")
    assert list(batches) == []


def test_after_the_end(session: cql.Session) -> None:
    session.sql(DECLARED)
    reading = Reading(session)
    session.push("s", numbered(1))
    session.end("s")
    session.end("s")
    assert reading.rest() == [1]
    assert session.sql("SHOW STREAMS").rows[0][-1] == "yes"  # type: ignore[union-attr]
    for act in (
        lambda: session.push("s", numbered(2)),
        lambda: session.punctuate("s", at(2)),
        lambda: session.sql("INSERT INTO s VALUES (2, NULL)"),
    ):
        with pytest.raises(CatalogError, match="has ended and takes no rows"):
            act()
    assert keys(session) == [1]
    session.sql(f"CREATE OR REPLACE {DECLARED.removeprefix('CREATE ')}")
    session.push("s", numbered(2))
    session.end("s")
    assert keys(session) == [2]


def test_stop_and_ctrl_c_end_a_query_that_waits(
    session: cql.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.sql(DECLARED)
    session.push("s", numbered(1))
    waits = threading.Event()
    take = _Feed.take

    def seen(feed: _Feed, limit: int, timeout: float | None) -> Any:
        if feed.row:
            waits.set()
        return take(feed, limit, timeout)

    monkeypatch.setattr(_Feed, "take", seen)

    def interrupted() -> None:
        assert waits.wait(60)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    query = query_of(session, "SELECT k FROM s")
    thread = threading.Thread(target=interrupted)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        list(query)
    thread.join()
    query = query_of(session, "SELECT k FROM s")
    batches = iter(query)
    assert next(batches).num_rows == 1
    waits.clear()
    thread = threading.Thread(target=lambda: waits.wait(60) and query.stop())
    thread.start()
    assert list(batches) == []
    thread.join()
    assert not source(session)._readers


@pytest.mark.parametrize(
    ("text", "message", "column"),
    [
        ("CREATE STREAM t", "needs to know where its rows come from", 15),
        ("CREATE STREAM t USING push", "needs columns", 15),
        ("CREATE STREAM t (k INT) ORDERED BY ts", "there is no column ts", 36),
        ("CREATE STREAM t (k INT) USING push OPTIONS (buffer 0)", "option buffer", 15),
        ("CREATE STREAM t (k INT) USING push OPTIONS (path 'x')", "no option path", 15),
        ("CREATE STREAM s (k INT)", "stream s exists already", 15),
        ("INSERT INTO s VALUES ('a', NULL)", "column k has type int", 15),
        ("INSERT INTO s VALUES (1)", "the stream takes 2", 15),
        ("INSERT INTO other VALUES (1)", "takes no rows", 13),
    ],
)
def test_statements_say_where(session: cql.Session, text: str, message: str, column: int) -> None:
    session.sql(DECLARED)
    session.create_stream("other", {"k": [1]})
    with pytest.raises(CqlError, match=message) as caught:
        session.sql(text)
    assert caught.value.position is not None
    assert caught.value.position.column == column


def test_names_that_cannot_be_pushed_into(session: cql.Session) -> None:
    session.sql(f"{DECLARED}; CREATE STREAM bare (k INT)")
    session.sql("CREATE STREAM two (a INT, b INT) ORDERED BY a ORDERED BY b")
    session.create_stream("other", {"k": [1]})
    with pytest.raises(BindError, match="no stream z"):
        session.push("z", [])
    with pytest.raises(BindError, match="stream other takes no pushed rows"):
        session.end("other")
    with pytest.raises(BindError, match="bare has no columns with a watermark"):
        session.punctuate("bare", 1)
    with pytest.raises(BindError, match="two has 2 columns with a watermark"):
        session.punctuate("two", 1)
    session.punctuate("two", 1, "b")
    session.sql("CREATE STREAM made (x STRING, ts AS to_timestamp(x)) ORDERED BY ts")
    with pytest.raises(BindError, match="ts of stream made is computed"):
        session.punctuate("made", at(1))
    session.close()
    with pytest.raises(CqlError, match="closed"):
        session.push("s", [])
