"""Update queues inside a query: streams that are queries, with UPDATE KEY behind them."""

from __future__ import annotations

import gc
import random
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

import cql
from cql.errors import CqlError, RunError
from cql.executor.derived.handover import Handed, Handover
from cql.executor.derived.query_source import QueryReader
from cql.executor.protocols import BLOCK_ROWS
from cql.executor.run.execution import Execution
from cql.session.session import Session
from tests.support.run_checkpoints import plan_of
from tests.support.runtimes import RUNTIMES, Settings, apply, named
from tests.support.updates.derived import (
    MEANS,
    SECOND,
    SYMBOLS,
    TRADES,
    Row,
    all_accounted_for,
    behind,
    declared,
    loud,
    means,
    newest,
    rows_of,
    streams_at_work,
    told_of,
    trades,
)


@pytest.fixture
def session() -> Iterator[Session]:
    with cql.connect(spark=False) as made:
        made.sql(TRADES)
        yield made
    assert streams_at_work() == []


# -- answers ---------------------------------------------------------------------------------------


@pytest.mark.sampled
@pytest.mark.parametrize("settings", RUNTIMES, ids=named)
def test_what_waits_between_the_stages_is_superseded(settings: Settings, session: Session) -> None:
    apply(session, settings)
    declared(session)
    rows = trades(300)
    found, asked = behind(session, SECOND, rows)
    firsts, others = ([r for r in found if (r[0] == "first") is own] for own in (True, False))
    assert len(others) == len(SYMBOLS)
    assert newest(others) == newest(loud(means(rows)))
    assert 2 <= len(firsts) <= 6
    told = told_of(asked, "means")
    assert all_accounted_for(told)
    assert told["rows_out"] == len(found)
    assert told["held"] == 0
    assert told_of(asked, "means.trades")["rows_in"] == len(rows) + 3
    stage = next(m for m in asked.metrics() if m["operator"].startswith("means.aggregate"))
    assert stage["rows_out"] == told["rows_in"] == len(means(rows)) + 6


@pytest.mark.parametrize("settings", RUNTIMES, ids=named)
def test_of_bounded_input_no_row_is_left_out(settings: Settings, session: Session) -> None:
    apply(session, settings)
    declared(session)
    rows = trades(500, seed=1)
    session.push("trades", rows)
    session.end("trades")
    asked: Any = session.sql(SECOND)
    found = rows_of(asked)
    assert sorted(map(str, found)) == sorted(map(str, loud(means(rows))))
    assert [row[-1] for row in found] == sorted(row[-1] for row in found)
    assert "superseded" not in told_of(asked, "means")
    assert "unused: a bounded input is read as fast as" in asked.explain()


@pytest.mark.parametrize("queue", ["IN-PLACE", "FIFO", "LINECUTTING", "APPEND", "ADAPTIVE"])
@pytest.mark.parametrize("seed", range(3))
def test_rows_that_come_while_others_are_read(queue: str, seed: int, session: Session) -> None:
    choice = random.Random(seed)
    declared(session, f"UPDATE KEY (symbol) QUEUE {queue}")
    rows, found = trades(400, seed), list[pa.RecordBatch]()
    asked: Any = session.sql(SECOND)
    read, at = iter(asked), 0
    while at < len(rows):
        some = choice.randrange(1, 40)
        session.push("trades", rows[at : at + some])
        at += some
        if choice.random() < 0.3 and at < len(rows):
            mark = rows[at - 1][0] + 10, "mark", 1  # the windows of all rows before it have ended
            session.push("trades", [mark])
            later = [(max(t, mark[0]), symbol, price) for t, symbol, price in rows[at:]]
            rows[at:] = [mark, *later]
            at += 1
            found.append(next(read))
    session.end("trades")
    given, all_rows = rows_of([*found, *read]), loud(means(rows))
    assert set(given) <= set(all_rows)
    assert len(given) == len(set(given))
    assert newest(given) == newest(all_rows)
    for symbol in {row[0] for row in given}:
        ends = [row[-1] for row in given if row[0] == symbol]
        assert ends == sorted(ends)
    told = told_of(asked, "means")
    assert all_accounted_for(told)
    assert told["rows_in"] == len(all_rows)
    if queue == "APPEND":
        assert len(given) == len(all_rows)


@pytest.mark.sampled
@pytest.mark.parametrize("settings", RUNTIMES[::2], ids=named)
@pytest.mark.parametrize("mode", ["LAZY", "EAGER"])
def test_windows_over_a_derived_stream_are_updates(
    mode: str, settings: Settings, session: Session
) -> None:
    apply(session, settings)
    declared(session, f"UPDATE KEY (symbol) WINDOWS {mode}")
    rows = trades(300, seed=2)
    query = (
        "SELECT symbol, sum(total) AS t, count(*) AS k, window.end AS until"
        " FROM means [RANGE 8 SLIDE 4] GROUP BY symbol, window.end"
    )
    found, asked = behind(session, query, rows)
    first = [(0, "first", 1), (50, "first", 1), (60, "first", 1)]
    stage = [(end, symbol, total) for symbol, total, _, end in means([*first, *rows])]
    exact = means(stage, 8, 4)
    assert set(found) <= set(exact)
    assert newest(found) == newest(exact)
    told = told_of(asked, "means")
    assert told["windows"] > len(found)
    assert told["windows"] == len(found) + told["superseded"] + told["held"]


def test_a_derived_stream_as_a_relation(session: Session) -> None:
    declared(session)
    rows = trades(200, seed=3)
    found, _ = behind(session, "SELECT count(*) AS n, sum(total) AS t FROM means", rows)
    assert newest_value(found) == (
        len(SYMBOLS) + 1,
        sum(row[1] for row in newest(means(rows)).values()) + 1,
    )


def newest_value(changes: Sequence[Row]) -> Row:
    """The row of a relation of one row, after all changes (instant, weight, values …)."""
    left: defaultdict[Row, int] = defaultdict(int)
    for _, weight, *values in changes:
        left[tuple(values)] += weight
    (row,) = (row for row, weight in left.items() if weight)
    return row


def test_a_union_of_a_derived_stream_and_another(session: Session) -> None:
    session.sql("CREATE STREAM quotes (ts BIGINT, symbol STRING, price INT) ORDERED BY ts"
                " UPDATE KEY (symbol)")  # fmt: skip
    session.sql("CREATE STREAM high UPDATE KEY (symbol) AS"
                " SELECT ts, symbol, price FROM trades WHERE price > 10")  # fmt: skip
    asked: Any = session.sql("SELECT * FROM quotes UNION ALL SELECT * FROM high")
    session.push("trades", [(1, "IBM", 11), (2, "GM", 3), (3, "SUN", 12)])
    session.push("quotes", [(2, "IBM", 1), (2, "GM", 2)])
    session.end("trades")
    session.end("quotes")
    found = {symbol: (ts, price) for ts, symbol, price in rows_of(asked)}
    assert found == {"IBM": (2, 1), "GM": (2, 2), "SUN": (3, 12)}


def test_a_stream_without_a_time(session: Session) -> None:
    session.sql("CREATE STREAM high UPDATE KEY (symbol) AS SELECT symbol, price FROM trades")
    rows = trades(200, seed=4)
    found, asked = behind(session, "SELECT * FROM high", rows)
    last = {symbol: price for _, symbol, price in rows}
    assert dict(r for r in found if r[0] != "first") == last
    assert all_accounted_for(told_of(asked, "high"))
    assert "punctuates" not in asked.explain()


def test_a_time_that_is_not_selected(session: Session) -> None:
    """The queue goes by ``window_time``, which windows over the stream may use, too."""
    declared(session, query=MEANS.replace(", window_end", ""))
    rows = trades(200, seed=5)
    found, asked = behind(session, "SELECT symbol, total, window_time + 1 AS t FROM means", rows)
    exact = [(symbol, total, end) for symbol, total, _, end in means(rows)]
    assert {k: v for k, v in newest(found).items() if k != "first"} == newest(exact)
    assert session.sql("SELECT * FROM means").columns == ["symbol", "total", "n"]
    assert "punctuates window_time" in asked.explain()
    windows = "SELECT symbol, sum(n) AS n FROM means [RANGE 8 SLIDE 4] GROUP BY symbol"
    assert rows_of(session.sql(windows))


def test_a_time_that_the_stream_declares(session: Session) -> None:
    session.sql("CREATE STREAM later UPDATE KEY (symbol) ORDERED BY t WITHIN 5 AS"
                " SELECT ts * 10 AS t, symbol, price FROM trades")  # fmt: skip
    rows = trades(200, seed=6)
    found, asked = behind(session, "SELECT symbol, price, t FROM later", rows)
    assert {row[0] for row in found} == {*SYMBOLS, "first"}
    for symbol, _, t in newest(found).values():
        assert t == max(10 * ts for ts, s, _ in [*rows, (60, "first", 1)] if s == symbol)
    assert "punctuates t" in asked.explain()


@pytest.mark.parametrize("settings", RUNTIMES[::3], ids=named)
def test_a_queue_behind_a_queue(settings: Settings, session: Session) -> None:
    apply(session, settings)
    declared(session)
    session.sql("CREATE STREAM loud UPDATE KEY (symbol) QUEUE FIFO AS"
                " SELECT symbol, total + 0 AS total, window_end FROM means")  # fmt: skip
    rows = trades(300, seed=7)
    found, asked = behind(session, "SELECT symbol, total, window_end FROM loud", rows)
    exact = [(symbol, total, end) for symbol, total, _, end in means(rows)]
    assert {k: v for k, v in newest(found).items() if k != "first"} == newest(exact)
    for name in ("loud", "loud.means"):
        assert all_accounted_for(told_of(asked, name))
    assert told_of(asked, "loud.means.trades")["rows_in"] == len(rows) + 3
    assert str(session.sql(f"EXPLAIN {asked.text}")).count("its query runs by itself") == 2


def test_all_types_cross_the_arc(session: Session) -> None:
    kept = (
        "symbol, price, ts, price > 3 AS b, price / 2e0 AS f, CAST(price AS DECIMAL(9, 2)) AS d,"
        " CAST(symbol AS BINARY) AS y, TIMESTAMP '2024-01-01 00:00:00' AS t, DATE '2024-01-01' AS a"
    )
    session.sql(f"CREATE STREAM wide UPDATE KEY (symbol) AS SELECT {kept} FROM trades")
    rows = trades(50, seed=8)
    session.push("trades", rows)
    session.end("trades")
    through = session.sql("SELECT * FROM wide")
    plain = session.sql(f"SELECT {kept} FROM trades")
    assert isinstance(through, cql.Query)
    assert isinstance(plain, cql.Query)
    assert through.schema == plain.schema
    assert through.to_arrow() == plain.to_arrow()


def test_a_first_stage_that_ends_by_itself(session: Session) -> None:
    """LIMIT over endless input: the stream ends, and its rows wait in the queue as they come."""
    session.sql("CREATE STREAM few UPDATE KEY (symbol) AS SELECT * FROM trades LIMIT 7")
    asked: Any = session.sql("SELECT symbol, price, ts FROM few")
    assert (asked.bounded, asked._live) == (True, True)
    session.push("trades", trades(20, seed=9))
    found = rows_of(asked)
    assert newest(found) == newest([(s, p, t) for t, s, p in trades(20, seed=9)[:7]])
    assert told_of(asked, "few")["rows_in"] == 7


# -- the end of a run ------------------------------------------------------------------------------


def test_an_error_of_the_first_stage_ends_the_second(session: Session) -> None:
    declared(session, query="SELECT symbol, 100 / price AS p, ts FROM trades")
    session.push("trades", [(1, "IBM", 5), (2, "GM", 0), (3, "SUN", 5)])
    session.end("trades")
    text = "SELECT symbol, p FROM means"
    asked: Any = session.sql(text)
    with pytest.raises(CqlError, match="division by zero") as raised:
        list(asked)
    assert raised.value.position is not None
    assert (raised.value.line, raised.value.column) == (1, text.index("means") + 1)
    assert asked.status == "failed"
    kept: Any = session.sql(f"{text} ON BAD ROW KEEP")
    assert rows_of(kept) == [("IBM", 20), ("SUN", 20)]
    assert kept.progress().bad == 1
    (bad,) = kept.bad_rows().to_pylist()
    assert (bad["source"], bad["offset"]) == ("means.trades", 1)
    assert bad["operator"].startswith("means.")
    assert told_of(kept, "means.trades")["rows_in"] == 3


def test_an_error_of_an_input_of_the_first_stage(session: Session) -> None:
    def rows() -> Iterator[dict[str, Any]]:
        yield {"k": 1, "ts": 1}
        raise ValueError("the wire is cut")

    session.create_stream("wire", rows, "ts", bounded=False)
    session.sql("CREATE STREAM cut UPDATE KEY (k) AS SELECT k, ts FROM wire")
    asked: Any = session.sql("SELECT k FROM cut")
    found = list[Row]()
    with pytest.raises(CqlError, match="the wire is cut"):
        found += rows_of(asked)
    assert asked.status == "failed"
    assert streams_at_work() == []


def test_late_rows_of_the_first_stage_are_counted(session: Session) -> None:
    declared(session)
    session.push("trades", [(1, "IBM", 1), (20, "IBM", 2), (2, "IBM", 3), (30, "IBM", 4)])
    session.end("trades")
    asked: Any = session.sql(SECOND)
    list(asked)
    assert asked.progress().late == 1
    late = {(row["place"], row["kind"]): row["count"] for row in asked.late().to_pylist()}
    assert late["means.trades", "rows"] == 1
    assert "1 late" in asked.summary()
    assert len(session.sql("SHOW LATE").rows)


@pytest.mark.parametrize("morsel_rows", [1, 7, 65_536])
def test_late_rows_do_not_come_to_windows_of_the_second_stage(
    morsel_rows: int, session: Session
) -> None:
    """A row that is late in its own stream is late, wherever the first stage cuts its morsels."""
    session.sql(f"SET morsel_rows = {morsel_rows}")
    choice = random.Random(3)
    rows = [(t + choice.randrange(-9, 10), choice.choice("ab"), 1) for t in range(10, 400)]
    session.push("trades", rows)
    session.end("trades")
    session.sql("CREATE STREAM same UPDATE KEY (symbol) AS SELECT * FROM trades WHERE price > 0")
    window = "[RANGE 6 SLIDE 3] GROUP BY symbol, window_end"
    asked: Any = session.sql(f"SELECT symbol, count(*) AS n, window_end FROM same {window}")
    highest, on_time = 0, list[Row]()
    for row in rows:
        highest = max(highest, row[0])
        on_time += [row] if row[0] == highest else []
    exact = {(symbol, n, end) for symbol, _, n, end in means(on_time, 6, 3)}
    assert set(rows_of(asked)) == exact
    assert asked.progress().late == len(rows) - len(on_time)


def test_a_run_that_is_stopped_in_the_middle(session: Session) -> None:
    declared(session)
    asked: Any = session.sql(SECOND)
    session.push("trades", trades(200))
    read = iter(asked)
    next(read)
    assert len(streams_at_work()) == 1
    assert asked.stop(timeout=0) is False
    rest = list(read)
    assert asked.status == "stopped"
    assert len(rows_of(rest)) <= len(means(trades(200)))
    assert streams_at_work() == []
    told = told_of(asked, "means")
    assert all_accounted_for(told)


def test_no_row_follows_a_stop(session: Session) -> None:
    """The end of a run that is stopped is not the end of its stream: no window closes by it."""
    declared(session, "UPDATE KEY (symbol) WINDOWS LAZY")
    query = "SELECT symbol, sum(total) AS t FROM means [RANGE 100 SLIDE 100] GROUP BY symbol"
    asked: Any = session.sql(query)
    session.push("trades", [(1, "IBM", 1), (110, "IBM", 1), (120, "IBM", 1)])
    read = iter(asked)
    assert rows_of([next(read)]) == [("IBM", 2)]
    asked.stop(timeout=0)
    assert rows_of(read) == []


@pytest.mark.sampled
@pytest.mark.parametrize("settings", RUNTIMES[::3], ids=named)
def test_readers_that_leave(settings: Settings, session: Session) -> None:
    apply(session, settings)
    declared(session)
    session.push("trades", trades(200))
    closed, limited, forgotten = (iter(session.sql(SECOND)) for _ in range(3))
    next(closed)
    closed.close()
    assert streams_at_work() == []
    assert len(rows_of(session.sql(f"{SECOND} LIMIT 2"))) == 2
    assert streams_at_work() == []
    next(forgotten)
    del forgotten, limited
    gc.collect()
    assert streams_at_work() == []


def test_a_session_that_is_closed_while_a_stream_is_read() -> None:
    session = cql.connect(spark=False)
    session.sql(TRADES)
    declared(session)
    session.sql("CREATE TABLE kept (symbol STRING, total BIGINT)")
    asked: Any = session.sql("INSERT INTO kept SELECT symbol, total FROM means")
    session.push("trades", trades(50))
    while not asked.row_count:
        asked.await_termination(0.01)
    session.close()
    assert streams_at_work() == []
    assert asked.status == "stopped"


def test_a_pause_holds_both_stages(session: Session) -> None:
    declared(session)
    asked: Any = session.sql(SECOND)
    session.push("trades", trades(20))
    read = iter(asked)
    next(read)
    asked.pause()
    (_, first), = asked._run._execution.below  # fmt: skip
    assert first.control.is_paused
    session.push("trades", trades(20, first=1000))
    session.end("trades")
    asked.resume()
    assert not first.control.is_paused
    rest = rows_of(read)
    assert newest(rest) == newest(loud(means([*trades(20), *trades(20, first=1000)])))


def test_an_error_of_the_second_stage_ends_the_first(session: Session) -> None:
    declared(session)
    asked: Any = session.sql("SELECT 1 / (total - total) AS x FROM means ON BAD ROW FAIL")
    session.push("trades", trades(20))
    with pytest.raises(CqlError, match="division by zero"):
        list(asked)
    assert streams_at_work() == []


def test_max_state_bounds_each_stage(session: Session) -> None:
    session.sql("SET max_state = '1 MB'")
    declared(session)
    session.push("trades", [(t, f"key {t}", 1) for t in range(60_000)])
    session.end("trades")
    text = SECOND.replace("upper(symbol) AS loud, ", "")
    with pytest.raises(RunError, match="max_state"):
        list(session.sql(text))
    assert streams_at_work() == []


def test_a_function_of_the_first_stage_cannot_wait_for_the_second(session: Session) -> None:
    asked: list[Any] = []

    @session.function
    def asks(x: int) -> int:
        try:
            asked[0].await_termination()
        except RunError as error:
            return -1 if "cannot be awaited by what it calls itself" in str(error) else -2
        return x

    session.sql("CREATE STREAM asking UPDATE KEY (symbol) AS SELECT symbol, asks(price) AS a, ts"
                " FROM trades")  # fmt: skip
    asked.append(session.sql("SELECT a FROM asking"))
    session.push("trades", [(1, "IBM", 5)])
    session.end("trades")
    assert rows_of(asked[0]) == [(-1,)]


# -- the arc ---------------------------------------------------------------------------------------


def batch(first: int, rows: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(range(first, first + rows), pa.int64())})


def test_an_arc_holds_few_rows() -> None:
    arc = Handover(most_rows=100)
    put = list[bool]()

    def fill() -> None:
        put.extend(arc.put(Handed(batch(10 * k, 10), ())) for k in range(30))
        arc.end()

    thread = threading.Thread(target=fill)
    thread.start()
    found = 0
    while (taken := arc.take(None)) is not None:
        assert sum(one.rows.num_rows for one in taken) <= 100
        found += sum(one.rows.num_rows for one in taken)
    thread.join()
    assert found == 300
    assert all(put)
    assert arc.take(0) is None


def test_an_arc_that_nobody_reads_any_more() -> None:
    arc = Handover(most_rows=10)
    assert arc.put(Handed(batch(0, 10), ()))
    put = list[bool]()
    thread = threading.Thread(target=lambda: put.append(arc.put(Handed(batch(10, 1), ()))))
    thread.start()
    arc.close()
    thread.join()
    assert put == [False]


def test_an_error_comes_behind_the_results_before_it() -> None:
    arc = Handover()
    arc.put(Handed(batch(0, 3), (("n", 2),)))
    arc.end(ValueError("broken"))
    taken = arc.take(None)
    assert taken is not None
    assert taken[0].watermarks == (("n", 2),)
    for _ in range(2):
        with pytest.raises(ValueError, match="broken"):
            arc.take(0)


def test_results_larger_than_a_block(session: Session) -> None:
    """A result with more rows than a block is cut, and its watermarks come behind the last rows."""
    made = Execution(plan_of(session, "SELECT ts FROM trades"), session.settings, times={0: "ts"})
    schema = made.plans[0].root.schema
    reader = QueryReader(made, schema, [0], "t")
    rows = 2 * BLOCK_ROWS + 5
    large = pa.record_batch({"ts": pa.array(range(rows), pa.int64())})
    others = (large, ("ts", rows)), (large.slice(0, 3),), (large.slice(0, 0), ("ts", rows + 1))

    def fill() -> None:
        for part, *risen in others:
            assert reader._arc.put(Handed(part, tuple(risen)))
        reader._arc.end()

    thread = threading.Thread(target=fill)
    thread.start()
    blocks = []
    while (block := reader.next()) is not None:
        blocks.append(block)
    thread.join()
    rows_behind = [(b.batch.num_rows, b.row_punctuation) for b in blocks if not b.is_empty]
    assert rows_behind[:3] == [(BLOCK_ROWS, ()), (BLOCK_ROWS, ()), (5, ((5, "ts", rows),))]
    assert sum(n for n, _ in rows_behind[3:]) == 3
    assert rows_behind[-1][1][0][1:] == ("ts", rows + 1)
