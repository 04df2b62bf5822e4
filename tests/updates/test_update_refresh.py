"""REFRESH: the access frequencies of keys (UpStream report, section 8)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest

import cql
from cql.base.model import Field, Schema
from cql.base.types import BIGINT, STRING
from cql.errors import BindError, CqlError, NotSupportedError, ParseError, PlanError, RunError
from cql.executor.kernels.updates.simulate import RESULT_WORDS, simulate
from cql.executor.operators.updates.queue_state import QueueState, Scheduler
from cql.executor.protocols import Block, Offset, Reader
from cql.executor.run import inputs
from cql.planner.nodes.catalog import Refresh, Statistics, StreamSpec
from cql.session.session import Session
from tests.support.runtimes import RUNTIMES, Settings, apply, named
from tests.support.updates.arrivals import Ticks
from tests.support.updates.traces import ROW, Unlimited
from tests.support.updates.walk import walk

QUOTES = "CREATE OR REPLACE STREAM quotes (ts BIGINT, symbol STRING, price INT) ORDERED BY ts"
MILLISECOND = 1_000_000


@pytest.fixture
def session() -> Iterator[Session]:
    with cql.connect(spark=False) as made:
        yield made


def numbers(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, np.int64)


def resting(*every: int, scheduler: Scheduler = Scheduler.IN_PLACE, keys: int = 4) -> QueueState:
    """A queue in which key ``k`` has item ``k``, if there is such an item."""
    state = QueueState("queue", Unlimited(), scheduler, every=every)
    items = [k if k < len(every) else -1 for k in range(keys)]
    if every:
        state.refresh_keys(np.arange(keys, dtype=np.int64), numbers(*items))
    return state


# -- kernels ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheduler", ROW)
def test_a_key_rests_between_two_updates(scheduler: Scheduler) -> None:
    """Key 0 rests for 10 ticks after each dequeue; key 1 does not rest."""
    state = resting(10, scheduler=scheduler)
    state.enqueue(numbers(0, 1), numbers(0, 0), 0)
    assert len(state.dequeue(9, 1)) == 2
    state.deliver(2, 2)
    first = state.enqueue(numbers(0, 1), numbers(1, 1), 3)
    assert state.next_due == 11
    assert state.dequeue(9, 4).tolist() == first[1:].tolist()
    again = state.enqueue(numbers(0), numbers(2), 6)
    assert again[0] == first[0]
    assert state.counters() == {"rows_in": 5, "taken": 3, "superseded": 1, "shed": 0, "held": 1}
    assert len(state.dequeue(9, 10)) == 0
    assert state.dequeue(9, 11).tolist() == again.tolist()
    assert state.next_due is None
    walk(state)


def test_staleness_counts_from_the_time_when_a_key_is_due() -> None:
    state = resting(10)
    state.enqueue(numbers(0), numbers(0), 0)
    state.dequeue(1, 2)  # due at 12
    state.enqueue(numbers(0), numbers(1), 3)
    state.deliver(1, 5)
    assert (state.areas(12).queue[0], state.areas(12).application[0]) == (2.0, 12.5)
    assert (state.areas(14).queue[0], state.areas(14).application[0]) == (4.0, 14.5)
    state.dequeue(1, 15)
    state.deliver(1, 16)
    assert (state.areas(99).queue[0], state.areas(99).application[0]) == (6.5, 20.5)


def test_a_key_that_is_due_enters_as_if_its_update_came_then() -> None:
    """Before keys whose updates came later, although nobody has looked meanwhile."""
    state = resting(10, 4)
    state.enqueue(numbers(0, 1), numbers(0, 0), 0)
    state.dequeue(2, 0)  # 0 is due at 10, 1 at 4
    state.enqueue(numbers(0, 1), numbers(1, 1), 1)
    state.enqueue(numbers(2), numbers(1), 7)
    state.enqueue(numbers(3), numbers(1), 10)
    places = state.store.arrays["places"]
    assert places[walk(state).order][:, 4].tolist() == [1, 2, 0, 3]


def test_the_end_of_the_input_ends_all_rests() -> None:
    state = resting(1_000, 5_000)
    state.enqueue(numbers(0, 1), numbers(0, 0), 0)
    state.dequeue(2, 0)
    state.deliver(2, 1)
    state.enqueue(numbers(0, 1), numbers(1, 1), 3)
    state.release(20)
    assert state.counters()["held"] == 2
    assert len(state.dequeue(2, 20)) == 0
    state.release(20, ended=True)
    assert state.next_due is None
    assert len(state.dequeue(2, 24)) == 2
    assert state.areas(24).queue[:2].tolist() == [8.0, 8.0]  # from 20 on


def test_the_floor_waits_for_rows_that_rest() -> None:
    """No row that comes out later is below it, also where a newer row took the place."""
    state = resting(100)
    state.rise(5)
    state.enqueue(numbers(0), numbers(5), 0)
    state.dequeue(1, 0)
    state.enqueue(numbers(0), numbers(6), 1)
    state.rise(20)
    state.enqueue(numbers(1), numbers(20), 2)
    assert state.floor == 5
    state.enqueue(numbers(0), numbers(21), 3)
    assert state.floor == 20
    state.dequeue(1, 4)
    state.rise(50)
    assert state.floor == 20
    state.enqueue(numbers(2), numbers(50), 100)
    assert state.floor == 20  # key 0 is due, and behind key 2
    state.dequeue(2, 101)
    assert state.floor == 50


def test_keys_are_forgotten_when_they_rest_no_longer() -> None:
    state = resting(10, keys=2)
    state.rise(1)
    state.enqueue(numbers(0, 1), numbers(0, 0), 0)
    state.dequeue(2, 0)
    state.deliver(2, 0)
    assert state.idle().tolist() == [1]
    state.release(9)
    assert state.idle().tolist() == [1]
    state.release(10)
    assert state.idle().tolist() == [0, 1]
    state.forget_keys(state.idle())
    state.enqueue(numbers(0), numbers(1), 11)  # a new key without an item
    state.dequeue(1, 12)
    state.enqueue(numbers(0), numbers(2), 12)
    assert len(state.dequeue(1, 12)) == 1
    walk(state)


def test_a_rest_of_73_years_does_not_overflow() -> None:
    state = resting(1 << 61)
    state.enqueue(numbers(0), numbers(0), 10**18)
    state.dequeue(1, 10**18)
    state.enqueue(numbers(0), numbers(1), 10**18 + 1)
    assert state.next_due == 10**18 + (1 << 61)
    assert state.areas(10**18 + 2).queue[0] == 0.0


def test_other_intervals_than_at_the_checkpoint() -> None:
    saved = resting(10).snapshot(0)
    for other in (resting(11), resting(10, 10), resting()):
        with pytest.raises(RunError, match="queue has other intervals of REFRESH"):
            other.restore(saved, 0)


@pytest.mark.parametrize("scheduler", ROW)
def test_simulation(scheduler: Scheduler) -> None:
    """Updates each 2 ticks, each served in 1: a key that rests for 7 is served each 8th tick, as
    soon as an update that came meanwhile is due, or with the next one."""
    state = resting(7, scheduler=scheduler, keys=1)
    times = np.arange(0, 40, 2)
    state.make_room(arrivals=len(times), flights=2)
    results = np.zeros((40, RESULT_WORDS), np.int64)
    ids = np.zeros(len(times), np.int64)
    n = simulate(state.words, times, ids, np.arange(len(times)), 1, 100, results)
    assert results[:n, 2].tolist() == [0, 7, 14, 21, 28, 35, 42]
    assert results[:n, 1].tolist() == [0, 3, 7, 10, 14, 17, 19]
    assert state.counters() == {"rows_in": 20, "taken": 7, "superseded": 13, "shed": 0, "held": 0}


# -- runs ------------------------------------------------------------------------------------------

SCHEMA = Schema((Field("ts", BIGINT), Field("symbol", STRING), Field("price", BIGINT)))


@dataclass
class Quotes:
    """An unbounded source that ends after ``rows``, each with its time of arrival in milliseconds.
    Its reader waits by advancing the clock, for a row or for its timeout."""

    clock: Ticks
    rows: Sequence[tuple[int, str, int]]
    ends: int
    replayable: ClassVar[bool] = True
    bounded: bool = False
    schema: Schema = SCHEMA
    unsupported: Mapping[str, str] = field(default_factory=dict)

    def statistics(self) -> Statistics:
        return Statistics()

    def open(self, columns: Sequence[str], offset: Offset | None = None) -> Reader:
        self.clock.now = 0
        return _Reader(self, list(columns), 0 if offset is None else int(offset["row"]))


@dataclass
class _Reader:
    source: Quotes
    columns: list[str]
    given: int

    def next(self, timeout: float | None = None) -> Block | None:
        source, clock = self.source, self.source.clock
        left = source.rows[self.given :]
        due = (left[0][0] if left else source.ends) * MILLISECOND
        wakes = clock.now + round((timeout or 0.0) * 1e9)
        clock.now = max(clock.now, min(due, wakes))
        if not left and clock.now >= due:
            return None
        taken = [row for row in left[:1] if clock.now >= due]
        self.given += len(taken)
        arrays = {
            "ts": pa.array([row[0] for row in taken], pa.int64()),
            "symbol": pa.array([row[1] for row in taken], pa.string()),
            "price": pa.array([row[2] for row in taken], pa.int64()),
        }
        batch = pa.record_batch([arrays[name] for name in self.columns], names=self.columns)
        return Block(batch, {"row": self.given})

    def close(self) -> None: ...


def taken(
    clauses: str,
    rows: Sequence[tuple[int, str, int]],
    *,
    ends: int,
    query: str = "SELECT * FROM quotes",
    settings: Settings | None = None,
) -> tuple[list[tuple[str, int]], list[int], dict[str, Any]]:
    """The symbols and prices that a query answers with, the milliseconds at which it does, and the
    metrics of its input."""
    clock, found, times = Ticks(), list[tuple[str, int]](), list[int]()
    made = inputs._update_feed
    with (
        patch.object(inputs, "_update_feed", lambda node: partial(made(node), clock=clock)),
        cql.connect(False) as session,
    ):
        apply(session, settings or {})
        session._catalog.local.add_source(("rows",), Quotes(clock, rows, ends), StreamSpec())
        session.sql(f"CREATE STREAM quotes FROM TABLE rows ORDERED BY ts {clauses}")
        asked: Any = session.sql(query)
        for batch in asked:
            found += [(row["symbol"], row["price"]) for row in batch.to_pylist()]
            times += [clock.now // MILLISECOND] * batch.num_rows
        return found, times, asked.metrics()[0]


#: GOOG and GM each 10 ms.
TICKS = [(10 * n, symbol, n) for n in range(100) for symbol in ("GOOG", "GM")]


@pytest.mark.parametrize("queue", ["FIFO", "IN-PLACE", "LINECUTTING"])
def test_keys_refresh_at_their_own_rates(queue: str) -> None:
    """The report's example: GOOG each 100 ms, GM each 400 ms."""
    clauses = (
        f"UPDATE KEY (symbol) QUEUE {queue}"
        " REFRESH symbol = 'GOOG' EVERY 100 ms, symbol LIKE 'G%' EVERY 400 ms"
    )
    found, times, told = taken(clauses, TICKS, ends=1_000)
    by_key = {
        symbol: [
            (time, price) for (key, price), time in zip(found, times, strict=True) if key == symbol
        ]
        for symbol in ("GOOG", "GM")
    }
    assert by_key["GOOG"][:-1] == [(100 * n, 10 * n) for n in range(10)]
    assert by_key["GM"][:-1] == [(400 * n, 40 * n) for n in range(3)]
    assert (by_key["GOOG"][-1][1], by_key["GM"][-1][1]) == (99, 99)  # the input has ended
    assert told["rows_in"] == told["rows_out"] + told["superseded"] == 200
    assert (told["held"], told["resting"]) == (0, 0)
    assert told["staleness"] == 0.0


def test_the_query_wakes_when_a_key_is_due() -> None:
    """Although no row comes then, and at no other time."""
    rows = [(0, "GM", 1), (30, "GM", 2), (40, "GM", 3), (900, "SUN", 4)]
    found, times, told = taken("UPDATE KEY (symbol) REFRESH EVERY 123 ms", rows, ends=5_000)
    assert found == [("GM", 1), ("GM", 3), ("SUN", 4)]
    assert times == [0, 123, 900]
    assert (told["superseded"], told["queue_staleness"]) == (1, 0.0)


@pytest.mark.parametrize("settings", RUNTIMES, ids=named)
def test_runtimes(settings: Settings) -> None:
    """A key without an item keeps its rows, however long another one rests."""
    rows = [(n, "GM" if n % 2 else "SUN", n) for n in range(50)]
    query = "SELECT upper(symbol) AS symbol, price FROM quotes WHERE price <> 2"
    clauses = "UPDATE KEY (symbol) REFRESH symbol = 'GM' EVERY 1 HOUR"
    found, _, told = taken(clauses, rows, ends=60, query=query, settings=settings)
    assert [price for symbol, price in found if symbol == "GM"] == [1, 49]
    assert [price for symbol, price in found if symbol == "SUN"] == [*(0,), *range(4, 50, 2)]
    assert (told["rows_in"], told["superseded"]) == (50, 23)


def test_a_union_leaves_no_row_out_that_has_rested() -> None:
    """The watermark waits for it, and its input does not fall idle."""
    rows = [(0, "GM", 0), (1, "GM", 1), *((2 + n, "SUN", n) for n in range(8))]
    union = "SELECT * FROM quotes UNION ALL SELECT * FROM quotes WHERE price < 0"
    clauses = "UPDATE KEY (symbol) REFRESH symbol = 'GM' EVERY 1 HOUR"
    found, _, _ = taken(clauses, rows, ends=20_000, query=union)
    assert [row for row in found if row[0] == "GM"] == [("GM", 0), ("GM", 1)]


def test_resting_rows_are_shown(session: Session) -> None:
    session.sql(f"{QUOTES} UPDATE KEY (symbol) REFRESH symbol = 'GM' EVERY 1 DAY")
    asked: Any = session.sql("SELECT * FROM quotes")
    session.push("quotes", [(1, "GM", 1), (1, "IBM", 1)])
    read = iter(asked)
    found = next(read).to_pylist()
    while len(found) < 2:
        found += next(read).to_pylist()
    session.push("quotes", [(2, "GM", 2), (3, "GM", 3), (3, "IBM", 3)])
    while not any(row["symbol"] == "IBM" and row["price"] == 3 for row in found):
        found += next(read).to_pylist()
    told = asked.metrics()[0]
    assert (told["held"], told["resting"], told["superseded"]) == (1, 1, 1)
    assert told["rows_in"] == told["rows_out"] + told["superseded"] + told["held"] == 5
    (shown,) = session.sql("SHOW STALENESS").to_arrow().to_pylist()
    assert (shown["held"], shown["resting"]) == (1, 1)
    session.end("quotes")
    rest = [row for batch in read for row in batch.to_pylist()]
    assert [(row["symbol"], row["price"]) for row in rest] == [("GM", 3)]


@pytest.mark.parametrize(
    ("kind", "values", "condition"),
    [
        ("STRING", ["a", None, "b", "éa"], "k = 'a' OR k IS NULL"),
        ("BOOLEAN", [True, None, False], "k OR k IS NULL"),
        ("INT", [1, None, -7], "coalesce(k, 9) > 0"),
        ("DOUBLE", [0.5, None, -1.5], "NOT coalesce(k < 0, false)"),
        ("DECIMAL(10, 2)", [0.5, None, -1.5], "coalesce(k, 1) = abs(coalesce(k, 1))"),
        ("DATE", ["2024-01-02", None, "1999-01-01"], "k IS NULL OR k > DATE '2020-01-01'"),
        ("BINARY", [b"a", None, b"b"], "coalesce(k = X'61', true)"),
    ],
)
def test_conditions_over_all_kinds_of_keys(
    kind: str, values: list[Any], condition: str, session: Session
) -> None:
    """The first two values rest, the others do not. A second column of the key is not read."""
    session.sql(
        f"CREATE STREAM s (ts BIGINT, k {kind}, l INT) ORDERED BY ts UPDATE KEY (l, k)"
        f" REFRESH {condition} EVERY 1 DAY"
    )
    asked: Any = session.sql("SELECT ts, k FROM s")
    given = ", ".join(f"(1, CAST({_literal(value)} AS {kind}), 1)" for value in values)
    session.sql(f"INSERT INTO s VALUES {given}")
    read = iter(asked)
    found = next(read).to_pylist()
    while len(found) < len(values):
        found += next(read).to_pylist()
    session.sql(f"INSERT INTO s VALUES {given.replace('(1,', '(2,')}")
    while len(found) < 2 * len(values) - 2:
        found += next(read).to_pylist()
    assert asked.metrics()[0]["resting"] == 2
    later = [row["k"] for row in found if row["ts"] == 2]
    assert later == [row["k"] for row in found[2 : len(values)]]
    session.end("s")
    assert sum(batch.num_rows for batch in read) == 2


def _literal(value: Any) -> str:
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    return "NULL" if value is None else repr(value)


def test_a_condition_that_fails(session: Session) -> None:
    session.sql(f"{QUOTES} UPDATE KEY (symbol) REFRESH CAST(symbol AS INT) > 5 EVERY 1 s")
    asked: Any = session.sql("SELECT price FROM quotes")
    session.push("quotes", [(1, "7", 1), (2, "GM", 2)])
    with pytest.raises(RunError, match="REFRESH of stream quotes: ") as failed:
        list(asked)
    assert failed.value.line == 1


# -- declarations ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("clauses", "error", "message", "at"),
    [
        ("REFRESH EVERY 5 s", BindError, "the stream has no update key", "REFRESH"),
        ("QUEUE FIFO REFRESH EVERY 5 s", BindError, "the stream has no update key", "REFRESH"),
        ("UPDATE KEY (symbol) REFRESH price > 3 EVERY 5 s", PlanError,
         "price is no column of the update key", "price >"),
        ("UPDATE KEY (symbol) REFRESH symbl = 'a' EVERY 5 s", BindError,
         "no column symbl", "symbl "),
        ("UPDATE KEY (symbol) REFRESH symbol EVERY 5 s", BindError,
         "REFRESH needs a condition", "symbol EVERY"),
        ("UPDATE KEY (symbol) REFRESH EVERY 0 s", BindError, "EVERY must be above zero", "0 s"),
        ("UPDATE KEY (symbol) REFRESH EVERY 5", BindError, "5 has no unit", "5"),
        ("UPDATE KEY (symbol) REFRESH EVERY -5 s", ParseError, "cannot be negative", "-5"),
        ("UPDATE KEY (symbol) REFRESH", ParseError, "expected a condition or EVERY", ""),
        ("UPDATE KEY (symbol) REFRESH symbol = 'a'", ParseError, "expected EVERY", ""),
        ("UPDATE KEY (symbol) REFRESH EVERY 5 s, symbol = 'a' EVERY 1 s", ParseError,
         "behind the one for all keys", "symbol = "),
        ("UPDATE KEY (symbol) REFRESH EVERY 5 s REFRESH EVERY 6 s", ParseError,
         "two REFRESH clauses", "REFRESH EVERY 6"),
        ("UPDATE KEY (symbol) REFRESH symbol = :p EVERY 5 s", BindError, "parameter", ":p"),
        ("UPDATE KEY (symbol) REFRESH symbol = (SELECT 'a') EVERY 5 s", NotSupportedError,
         "a scalar subquery in REFRESH", "(SELECT"),
        ("UPDATE KEY (symbol) REFRESH count(*) > 3 EVERY 5 s", BindError,
         "cannot hold the aggregate", "count"),
        ("UPDATE KEY (symbol) QUEUE APPEND REFRESH EVERY 5 s", BindError,
         "QUEUE APPEND keeps them", "REFRESH"),
        ("UPDATE KEY (symbol) QUEUE APPEND SHED RANDOM REFRESH EVERY 5 s", BindError,
         "SHED RANDOM keeps them", "REFRESH"),
        ("UPDATE KEY (symbol) QUEUE ADAPTIVE REFRESH EVERY 5 s", BindError,
         "QUEUE ADAPTIVE keeps them", "REFRESH"),
        ("UPDATE KEY (symbol) STALENESS UNDER 1 s REFRESH EVERY 5 s", BindError,
         "STALENESS UNDER means QUEUE ADAPTIVE", "REFRESH"),
        ("UPDATE KEY (symbol) WINDOWS EAGER REFRESH EVERY 5 s", NotSupportedError,
         "REFRESH with WINDOWS EAGER", "REFRESH"),
        ("UPDATE KEY (symbol) CHANGELOG BY price REFRESH EVERY 5 s", BindError,
         "a changelog needs all of its rows", "REFRESH"),
    ],
)  # fmt: skip
def test_wrong_declarations(
    clauses: str, error: type[CqlError], message: str, at: str, session: Session
) -> None:
    text = f"{QUOTES} {clauses}"
    with pytest.raises(error, match=message) as refused:
        session.sql(text, **({"p": 1} if ":p" in clauses else {}))
    place = len(QUOTES) + 1 + clauses.index(at) if at else len(text)
    assert refused.value.column == place + 1


@pytest.mark.parametrize(
    ("query", "setting", "message"),
    [
        ("SELECT sum(price) FROM quotes", "auto", "as the relation of its last rows"),
        ("SELECT price FROM quotes EMIT CHANGES", "auto", "as the relation of its last rows"),
        ("SELECT DISTINCT symbol FROM quotes", "auto", "as the relation of its last rows"),
        ("SELECT count(*), symbol FROM quotes [RANGE 5 SLIDE 5] GROUP BY symbol", "auto",
         "REFRESH with a window"),
        ("SELECT * FROM quotes", "append", "queue = append keeps rows"),
        ("SELECT * FROM quotes", "append_shed_random", "queue = append_shed_random keeps rows"),
        ("SELECT * FROM quotes", "adaptive", "queue = adaptive keeps rows"),
    ],
)  # fmt: skip
def test_refused_queries(query: str, setting: str, message: str, session: Session) -> None:
    session.sql(f"{QUOTES} UPDATE KEY (symbol) REFRESH EVERY 5 s")
    session.set("queue", setting)
    with pytest.raises(NotSupportedError, match=message) as refused:
        session.sql(query)
    assert refused.value.column > query.index("FROM")


def test_a_bounded_stream_is_pulled(session: Session) -> None:
    """It has no queue, so it may be read as a relation, too."""
    rows = [{"ts": n, "symbol": "a", "price": n} for n in range(5)]
    session.create_stream(
        "quotes", rows, ordered_by="ts", update_key="symbol", refresh="EVERY 1 HOUR"
    )
    asked: Any = session.sql("SELECT price FROM quotes")
    assert asked.to_arrow().num_rows == 5
    assert session.sql("SELECT sum(price) AS s FROM quotes").to_arrow().to_pylist() == [{"s": 4}]


def test_explain_and_describe(session: Session) -> None:
    items = "symbol IN ('GOOG', 'IBM') EVERY 1 MINUTE, symbol LIKE 'G%' EVERY 1 HOUR"
    session.sql(f"{QUOTES} UPDATE KEY (symbol) REFRESH {items}, EVERY 5 SECONDS")
    clause = f"REFRESH {items}, EVERY 5 SECONDS"
    assert f"; {clause}: the least time" in str(session.sql("EXPLAIN SELECT price FROM quotes"))
    roles = {r["column"]: r["role"] for r in session.sql("DESCRIBE quotes").to_arrow().to_pylist()}
    assert roles["symbol"] == f"update key ({clause})"


def test_the_same_in_python(session: Session) -> None:
    made = partial(session.create_stream, ordered_by="ts", bounded=False)
    rows = [{"ts": 1, "k": 1}]
    made("s", rows, update_key="k", refresh="k IN (1, 2) EVERY 1.5 minutes, EVERY 5 s")
    relation = session._catalog.find(("s",))
    assert relation is not None
    assert relation.stream is not None
    assert relation.stream.refresh == (Refresh("k IN (1, 2)", 90_000_000), Refresh(None, 5_000_000))
    for refresh, message in (
        ("k = 1", "refresh: expected EVERY"),
        (5, "refresh=5 is no text"),
        ("EVERY 1 s QUEUE FIFO", "another clause"),
        ("l = 1 EVERY 1 s", "no column l"),
    ):
        with pytest.raises(CqlError, match=message) as refused:
            made("t", rows, update_key="k", refresh=refresh)
        assert refused.value.position is None
