"""Cases from the test suites of other engines, with their inputs and expected results."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from cql.errors import CqlError
from cql.session.session import Session

Rows = list[tuple[Any, ...]]
TIME = pa.timestamp("us", "UTC")


@pytest.fixture
def session() -> Iterator[Session]:
    with Session(False) as made:
        yield made


def at(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)


def epoch(seconds: float) -> dt.datetime:
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=round(seconds * 1000))


def stream(
    session: Session, name: str, columns: dict[str, list[Any]], slack: str | int = 0
) -> None:
    """Declares a stream of ``columns``, ordered by the first of them."""
    arrays: dict[str, Any] = {
        k: pa.array(v, TIME if any(isinstance(x, dt.datetime) for x in v) else None)
        for k, v in columns.items()
    }
    session.create_stream(name, pa.table(arrays), ordered_by=next(iter(columns)), slack=slack)


def shown(session: Session, text: str) -> Rows:
    """The rows in a stable order; times are texts."""
    table = session.sql(text).to_arrow()
    rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
    return ordered([tuple(plain(value) for value in row) for row in rows])


def plain(value: Any) -> Any:
    return str(value.replace(tzinfo=None)) if isinstance(value, dt.datetime) else value


def ordered(rows: Rows) -> Rows:
    return sorted(rows, key=lambda row: tuple((value is None, str(value)) for value in row))


# ------------------------------------------------------------------ Flink: WindowAggregateITCase

#: (second, int, double, bigdec, string, name). The row of second 4 after second 8 is late
#: (the watermark lags by one second): no window that ended by second 7 contains the row.
FLINK = [
    (1, 1, 1.0, "1.11", "Hi", "a"),
    (2, 2, 2.0, "2.22", "Comment#1", "a"),
    (3, 2, 2.0, "2.22", "Comment#1", "a"),
    (4, 5, 5.0, "5.55", None, "a"),
    (7, 3, 3.0, None, "Hello", "b"),
    (6, 6, 6.0, "6.66", "Hi", "b"),
    (8, 3, None, "3.33", "Comment#2", "a"),
    (4, 5, 5.0, "5.55", "Hi", "a"),
    (16, 4, 4.0, "4.44", "Hi", "b"),
    (32, 7, 7.0, "7.77", None, None),
    (34, 1, 3.0, "3.33", "Comment#3", "b"),
]


@pytest.fixture
def flink(session: Session) -> Session:
    columns = {
        "rowtime": pa.array([at(f"2020-10-10T00:00:{row[0]:02}") for row in FLINK], TIME),
        "double": pa.array([row[2] for row in FLINK], pa.float64()),
        "bigdec": pa.array([row[3] and Decimal(row[3]) for row in FLINK], pa.decimal128(10, 2)),
        "string": pa.array([row[4] for row in FLINK]),
        "name": pa.array([row[5] for row in FLINK]),
    }
    session.register_table("source", pa.table(columns))
    session.sql("""CREATE STREAM T1 FROM TABLE source
        WATERMARK FOR `rowtime` AS `rowtime` - INTERVAL '1' SECOND""")
    return session


def second(number: int) -> str:
    return plain(at("2020-10-10T00:00:00") + dt.timedelta(seconds=number))


TUMBLED = [
    ("a", 0, 4, "11.10", 5.0, 2),
    ("a", 5, 1, "3.33", None, 1),
    ("b", 5, 2, "6.66", 6.0, 2),
    ("b", 15, 1, "4.44", 4.0, 1),
    ("b", 30, 1, "3.33", 3.0, 1),
    (None, 30, 1, "7.77", 7.0, 0),
]
HOPPED = [
    ("a", -5, 4, "11.10", 5.0, 2),
    ("a", 0, 6, "19.98", 5.0, 3),
    ("a", 5, 1, "3.33", None, 1),
    ("b", 0, 2, "6.66", 6.0, 2),
    ("b", 5, 2, "6.66", 6.0, 2),
    ("b", 10, 1, "4.44", 4.0, 1),
    ("b", 15, 1, "4.44", 4.0, 1),
    ("b", 25, 1, "3.33", 3.0, 1),
    ("b", 30, 1, "3.33", 3.0, 1),
    (None, 25, 1, "7.77", 7.0, 0),
    (None, 30, 1, "7.77", 7.0, 0),
]
HOUR = 3600
#: With the negative offset, a window of a day begins at 16:00 of the day before.
SHIFTED = [
    ("a", -8 * HOUR, 6, "19.98", 5.0, 3),
    ("b", -8 * HOUR, 4, "14.43", 6.0, 3),
    (None, -8 * HOUR, 1, "7.77", 7.0, 0),
]


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        ("TUMBLE(TABLE T1, DESCRIPTOR(rowtime), INTERVAL '5' SECOND)", TUMBLED),
        ("HOP(TABLE T1, DESCRIPTOR(rowtime), INTERVAL '5' SECOND, INTERVAL '10' SECOND)", HOPPED),
        (
            "TUMBLE(TABLE T1, DESCRIPTOR(rowtime), INTERVAL '1' DAY, INTERVAL '-8' HOUR)",
            SHIFTED,
        ),
    ],
)
def test_flink_windows_with_a_late_row(flink: Session, function: str, expected: Rows) -> None:
    """Flink, WindowAggregateITCase: a late row counts in its windows that are still open."""
    found = shown(
        flink,
        f"""SELECT `name`, window_start, COUNT(*), SUM(`bigdec`), MAX(`double`),
            COUNT(DISTINCT `string`) FROM TABLE({function})
            GROUP BY `name`, window_start, window_end""",
    )
    assert found == ordered([(n, second(s), c, Decimal(d), m, u) for n, s, c, d, m, u in expected])


def test_flink_cumulate_with_a_late_row(flink: Session) -> None:
    """Flink, testEventTimeCumulateWindow."""
    found = shown(
        flink,
        """SELECT `name`, window_end, COUNT(*), SUM(`bigdec`) FROM TABLE(CUMULATE(TABLE T1,
            DESCRIPTOR(rowtime), INTERVAL '5' SECOND, INTERVAL '15' SECOND))
            WHERE `name` = 'a' GROUP BY `name`, window_start, window_end""",
    )
    sums = [(5, 4, "11.10"), (10, 6, "19.98"), (15, 6, "19.98")]
    assert found == [("a", second(end), n, Decimal(total)) for end, n, total in sums]


def test_flink_cascaded_windows(flink: Session) -> None:
    """Flink, testCascadeEventTimeTumbleWindowWithOffset."""
    found = shown(
        flink,
        """SELECT cnt, window_start, COUNT(*) FROM (
            SELECT `name`, window_start, window_end, COUNT(DISTINCT `string`) AS cnt
            FROM TABLE(TUMBLE(TABLE T1, DESCRIPTOR(rowtime), INTERVAL '1' DAY, INTERVAL '8' HOUR))
            GROUP BY `name`, window_start, window_end)
        GROUP BY cnt, window_start, window_end""",
    )
    assert found == [(0, second(-16 * HOUR), 1), (3, second(-16 * HOUR), 2)]


@pytest.mark.parametrize(
    ("condition", "ranks"),
    [("rownum <= 2", [1, 2, 1, 1, 2, 1]), ("rownum > 1 AND rownum <= 2", [0, 2, 0, 0, 2, 0])],
)
def test_flink_first_rows_of_windows(flink: Session, condition: str, ranks: list[int]) -> None:
    """Flink, WindowRankITCase: testTumbleWindow, testTumbleWindowWithRankOffset."""
    found = shown(
        flink,
        f"""SELECT name, window_start, rownum FROM (
            SELECT *, ROW_NUMBER() OVER (
                PARTITION BY window_start, window_end ORDER BY sum_b DESC) AS rownum
            FROM (SELECT `name`, window_start, window_end, SUM(`bigdec`) AS sum_b
                FROM TABLE(TUMBLE(TABLE T1, DESCRIPTOR(rowtime), INTERVAL '5' SECOND))
                GROUP BY `name`, window_start, window_end))
        WHERE {condition}""",
    )
    pairs = zip(TUMBLED, ranks, strict=True)
    assert found == ordered([(row[0], second(row[1]), rank) for row, rank in pairs if rank])


# ------------------------------------------------------------------ ksqlDB: query validation tests

KSQL = [
    (0, 0, 0),
    (10, 0, 5),
    (30, 100, 100),
    (45, 100, 6),
    (50, 100, 300),
    (35, 0, 100),
    (40, 0, 2000),
]


@pytest.fixture
def ksql(session: Session) -> Session:
    times, ids, values = zip(*KSQL, strict=True)
    columns = {"ts": [epoch(t) for t in times], "id": list(ids), "value": list(values)}
    stream(session, "test", columns, slack="1 day")
    return session


def test_ksqldb_largest_of_hopping_windows(ksql: Session) -> None:
    """ksqlDB, hopping-windows.json, "max hopping"; ksqlDB has no windows before 1970."""
    found = shown(
        ksql,
        """SELECT id, max(value), unix_seconds(window_start) AS s
        FROM test [RANGE 30 SECONDS SLIDE 10 SECONDS] GROUP BY id
        HAVING window_start >= TIMESTAMP '1970-01-01 00:00:00'""",
    )
    large = [(100, 100, 10), (100, 100, 20), (100, 300, 30), (100, 300, 40), (100, 300, 50)]
    small = [(0, 5, 0), (0, 100, 10), (0, 2000, 20), (0, 2000, 30), (0, 2000, 40)]
    assert found == ordered(large + small)


def test_ksqldb_changes_of_tumbling_windows(ksql: Session) -> None:
    """ksqlDB, tumbling-windows.json, "max tumbling": its emitted rows by time, without rows that
    repeat a value."""
    changes = session_changes(ksql, "SELECT id, max(value) FROM test [RANGE 30 s SLIDE 30 s]")
    entered = [(t, k, v) for t, weight, k, v in changes if weight > 0]
    emitted = [(0, 0, 0), (10, 0, 5), (30, 100, 100), (50, 100, 300), (35, 0, 100), (40, 0, 2000)]
    assert sorted(entered) == sorted(emitted)


def session_changes(session: Session, text: str) -> list[tuple[int, ...]]:
    table = session.sql(f"{text} GROUP BY id EMIT CHANGES").to_arrow()
    rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
    return [(round(row[0].timestamp()), *row[1:]) for row in rows]


# ------------------------------------------------------------------ Calcite: stream.iq

ORDERS = [
    ("10:15:00", "paint", 10),
    ("10:24:15", "paper", 5),
    ("10:24:45", "brush", 12),
    ("10:58:00", "paint", 3),
    ("11:10:00", "paint", 3),
]


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (
            "HOP(TABLE ORDERS, DESCRIPTOR(ROWTIME), INTERVAL '5' MINUTE, INTERVAL '10' MINUTE,"
            " INTERVAL '2' MINUTE)",
            "10:07 1, 10:12 1, 10:17 2, 10:22 2, 10:52 1, 10:57 1, 11:02 1, 11:07 1",
        ),
        (
            "TUMBLE((SELECT * FROM ORDERS), DESCRIPTOR(ROWTIME), INTERVAL '10' MINUTE,"
            " INTERVAL '3' MINUTE)",
            "10:13 1, 10:23 2, 10:53 1, 11:03 1",
        ),
        (
            "HOP(DATA => TABLE ORDERS, TIMECOL => DESCRIPTOR(ROWTIME),"
            " SLIDE => INTERVAL '5' MINUTE, SIZE => INTERVAL '10' MINUTE)",
            "10:10 1, 10:15 3, 10:20 2, 10:50 1, 10:55 1, 11:05 1, 11:10 1",
        ),
        ("SESSION(TABLE ORDERS, DESCRIPTOR(ROWTIME), INTERVAL '1' HOUR)", "10:15 5"),
    ],
)
def test_calcite_table_functions(session: Session, function: str, expected: str) -> None:
    """Calcite, stream.iq: offsets, named arguments, a session of all rows (CALCITE-7682)."""
    columns = {
        "rowtime": [at(f"2015-02-15T{row[0]}") for row in ORDERS],
        "product": [row[1] for row in ORDERS],
        "units": [row[2] for row in ORDERS],
    }
    stream(session, "orders", columns)
    found = shown(
        session,
        f"""SELECT date_format(window_start, 'HH:mm') AS s, count(*)
        FROM TABLE({function}) GROUP BY window_start, window_end""",
    )
    assert ", ".join(f"{start} {count}" for start, count in found) == expected


@pytest.mark.parametrize(
    "arguments",
    [
        "TABLE ORDERS, DESCRIPTOR(ROWTIME), DESCRIPTOR(PRODUCT), INTERVAL '20' MINUTE",
        "DATA => TABLE ORDERS, TIMECOL => DESCRIPTOR(ROWTIME), KEY => DESCRIPTOR(PRODUCT),"
        " SIZE => INTERVAL '20' MINUTE",
    ],
)
def test_calcite_sessions_of_keys(session: Session, arguments: str) -> None:
    """Calcite, stream.iq: the session's key is an argument."""
    columns = {
        "rowtime": [at(f"2015-02-15T{row[0]}") for row in ORDERS],
        "product": [row[1] for row in ORDERS],
    }
    stream(session, "orders", columns)
    found = shown(
        session,
        f"""SELECT date_format(window_start, 'HH:mm:ss'), date_format(window_end, 'HH:mm:ss') AS e,
            product, count(*) FROM TABLE(SESSION({arguments}))
        GROUP BY product, window_start, window_end""",
    )
    assert found == [
        ("10:15:00", "10:35:00", "paint", 1),
        ("10:24:15", "10:44:15", "paper", 1),
        ("10:24:45", "10:44:45", "brush", 1),
        ("10:58:00", "11:30:00", "paint", 2),
    ]


# ------------------------------------------------------------------ Spark: the windowing suites


def spark(session: Session, *rows: tuple[Any, ...]) -> Session:
    """Declares stream t with rows (seconds after 19:39 as ``time``, ``value``, ``id``)."""
    start = at("2016-03-27T19:39:00")
    columns = {
        "time": [start + dt.timedelta(seconds=row[0]) for row in rows],
        "value": [row[1] for row in rows],
        "id": [row[2] for row in rows],
    }
    stream(session, "t", columns, slack="1 day")
    return session


def test_spark_sliding_windows_that_the_slide_does_not_divide(session: Session) -> None:
    """Spark, DataFrameTimeWindowingSuite, "sliding window grouping"."""
    spark(session, (34, 1, "a"), (56, 2, "a"), (27, 4, "b"))
    found = shown(
        session,
        """SELECT unix_seconds(window.start) - 1459107540 AS s, count(*) AS counts FROM t
        GROUP BY window(time, '10 seconds', '3 seconds', '0 second')""",
    )
    starts = [18, 21, 24, 27, 30, 33, 48, 51, 54]
    assert found == [(start, 2 if start == 27 else 1) for start in starts]


def test_spark_negative_start_time(session: Session) -> None:
    """Spark, SPARK-21590: tumbling window using negative start time."""
    spark(session, (30, 1, "a"), (25, 2, "a"))
    found = shown(
        session,
        """SELECT window.start, window.end, count(*) FROM t
        GROUP BY window(time, '10 seconds', '10 seconds', '-5 seconds')""",
    )
    assert found == [("2016-03-27 19:39:25", "2016-03-27 19:39:35", 2)]


def test_spark_windows_around_1970(session: Session) -> None:
    """Spark, DataFrameTimeWindowingSuite, "negative timestamps"."""
    stream(session, "t", {"time": [epoch(2), epoch(12)], "value": [1, 2]})
    found = shown(
        session,
        """SELECT window.start, window.end, sum(value) FROM t
        GROUP BY window(time, '10 seconds', '10 seconds', '5 seconds')""",
    )
    assert found == [
        ("1969-12-31 23:59:55", "1970-01-01 00:00:05", 1),
        ("1970-01-01 00:00:05", "1970-01-01 00:00:15", 2),
    ]


def test_spark_sessions_of_keys(session: Session) -> None:
    """Spark, DataFrameSessionWindowingSuite, "multiple keys statement - one distinct", with the
    bounds under Spark's names."""
    rows = [(34, 1, "a"), (39, 1, "a"), (56, 2, "a"), (64, 2, "a"), (27, 4, "b")]
    found = shown(
        spark(session, *rows),
        """SELECT CAST(session_window.start AS STRING), CAST(session_window.end AS STRING), id,
            count(*) AS counts, sum(DISTINCT value) AS sum
        FROM t GROUP BY session_window(time, '10 seconds'), id""",
    )
    assert found == [
        ("2016-03-27 19:39:27", "2016-03-27 19:39:37", "b", 1, 4),
        ("2016-03-27 19:39:34", "2016-03-27 19:39:49", "a", 2, 1),
        ("2016-03-27 19:39:56", "2016-03-27 19:40:14", "a", 2, 2),
    ]


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("session_window.begin", "session_window has no part begin"),
        ("other.start", "there is no other in FROM"),
    ],
)
def test_spark_parts_of_a_session(session: Session, column: str, message: str) -> None:
    """The error names a column that is no part of a session."""
    spark(session, (34, 1, "a"))
    text = f"SELECT {column}, count(*) FROM t GROUP BY session_window(time, '10 seconds')"
    with pytest.raises(CqlError, match=message) as found:
        session.sql(text)
    assert found.value.column == 8


def test_spark_texts_in_double_quotes(session: Session) -> None:
    """Spark, "time window in SQL with single string expression" has ``window(time, "10 seconds")``:
    here double quotes are for names, and the error says so."""
    spark(session, (34, 1, "a"))
    with pytest.raises(CqlError) as found:
        session.sql('SELECT count(*) FROM t GROUP BY window(time, "10 seconds")')
    assert found.value.hint == "double quotes are for names: write '10 seconds'"


@pytest.mark.parametrize(
    ("group", "seconds", "expected"),
    [
        ("window(t, '5 seconds')", [10, 11, 12, 13, 14, 15, 25, 10], [(10, 5), (15, 1), (25, 1)]),
        (
            "session_window(t, '5 seconds')",
            [10, 11, 17, 25, 35, 10, 40],
            [(10, 2), (17, 1), (25, 1), (35, 2)],
        ),
    ],
)
def test_spark_append_mode(
    session: Session, group: str, seconds: list[int], expected: Rows
) -> None:
    """Spark, EventTimeWatermarkSuite, "append mode" and "append mode - session - no key": the
    second row of 10 is late."""
    stream(session, "t", {"t": [epoch(s) for s in seconds]}, slack="10 seconds")
    text = f"SELECT unix_seconds(window_start) AS s, count(*) FROM t GROUP BY {group}"
    assert shown(session, text) == expected


# ------------------------------------------------------------------ RisingWave: e2e_test/streaming


def test_risingwave_emit_on_window_close(session: Session) -> None:
    """RisingWave, eowc_group_agg.slt, at the end of its input."""
    rows = [("16:51", 1), ("16:56", 8), ("17:30", 3), ("17:59", 4), ("18:01", 6), ("18:10", 7)]
    columns = {"tm": [at(f"2023-05-06T{t}") for t, _ in rows], "foo": [foo for _, foo in rows]}
    stream(session, "t", columns, slack="5 minutes")
    found = shown(
        session,
        """select window_start, max(foo) from tumble(t, tm, interval '1 hour')
        group by window_start EMIT ON WINDOW CLOSE""",
    )
    assert found == [(f"2023-05-06 {h}:00:00", foo) for h, foo in [(16, 8), (17, 4), (18, 7)]]


# ------------------------------------------------------------------ Esper: the output specification

MARKET = [
    (0.2, "IBM", 25.0),
    (0.8, "MSFT", 9.0),
    (1.5, "IBM", 24.0),
    (1.5, "YAH", 1.0),
    (2.1, "IBM", 26.0),
    (3.5, "YAH", 2.0),
    (4.3, "IBM", 22.0),
    (4.9, "YAH", 3.0),
    (5.9, "YAH", 1.0),
]


@pytest.fixture
def market(session: Session) -> Session:
    times, symbols, prices = zip(*MARKET, strict=True)
    columns = {"t": [epoch(t) for t in times], "symbol": list(symbols), "price": list(prices)}
    stream(session, "md", columns)
    return session


def test_esper_sum_of_a_time_window(market: Session) -> None:
    """Esper, appendix A of its reference, A.2.2: ``select sum(price) from MarketData.win:time(5.5
    sec)``; Esper drops a row that is exactly 5.5 s old, our window a microsecond later."""
    table = market.sql("SELECT sum(price) FROM md [RANGE 5.5 SECONDS] EMIT CHANGES").to_arrow()
    rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
    entered = [(at_, total) for at_, weight, total in rows if weight > 0][:13]
    late = dt.timedelta(microseconds=1)
    sums = [(0.2, 25), (0.8, 34), (1.5, 59), (2.1, 85), (3.5, 87), (4.3, 109), (4.9, 112)]
    left = [(5.7, 87), (6.3, 79), (7.0, 54)]
    expected = [(epoch(s), float(v)) for s, v in sums]
    expected += [(epoch(s) + late, float(v)) for s, v in left] + [(epoch(5.9), 88.0)]
    found = [pair for pair in entered if pair[0] <= epoch(7.0) + late]
    assert found == sorted(expected)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("DSTREAM(symbol, price) FROM md [ROWS 7]", [("IBM", 25.0), ("MSFT", 9.0)]),
        (
            "ISTREAM(symbol, sum(price)) FROM md [RANGE 5.5 SECONDS] GROUP BY symbol"
            " HAVING sum(price) > 50",
            [("IBM", 72.0), ("IBM", 75.0), ("IBM", 97.0)],
        ),
    ],
)
def test_esper_remove_stream_and_having(market: Session, query: str, expected: Rows) -> None:
    """Esper, ``select rstream`` of ``win:length(7)``, and a HAVING that a group enters, leaves and
    enters again."""
    assert shown(market, f"SELECT {query}") == expected


# ------------------------------------------------------------------ STREAM: CQL's own examples


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("ISTREAM(avg(cost) AS v) FROM purchases [ROWS 10]", [(0, 30.0), (1, 35.0), (2, 40.0)]),
        (
            "RSTREAM(sum(cost) AS v) FROM purchases [RANGE 1]",
            [(0, 30), (1, 140), (2, 170), (3, 60), (4, None)],
        ),
        ("RSTREAM(count(*) AS v) FROM purchases [NOW]", [(0, 1), (1, 3), (2, 1), (3, 0)]),
        (
            "DSTREAM(buyer AS v) FROM purchases [NOW]",
            [(1, "Lars"), (2, "Klara"), (2, "Mia"), (2, "Sven"), (3, "Svea")],
        ),
        (
            "ISTREAM(buyer AS v) FROM (SELECT buyer FROM purchases [RANGE UNBOUNDED]"
            " EXCEPT SELECT buyer FROM purchases [ROWS 2])",
            [(1, "Lars"), (1, "Mia"), (2, "Sven")],
        ),
        (
            "ISTREAM(cost AS v) FROM (SELECT cost FROM purchases [RANGE UNBOUNDED]"
            " UNION SELECT auction_id FROM purchases [RANGE UNBOUNDED])",
            [(0, 1), (0, 30), (1, 10), (1, 2), (1, 3), (1, 4), (1, 50), (2, 5), (2, 60)],
        ),
    ],
)
def test_stream_signs(session: Session, query: str, expected: Rows) -> None:
    """STREAM's time-driven model: all rows of one instant come at once, so that the average goes
    30, 35, 40. The purchases are from the thesis that compares it with a model of single rows."""
    columns: dict[str, list[Any]] = {
        "time": [0, 1, 1, 1, 2],
        "auction_id": [1, 2, 3, 4, 5],
        "buyer": ["Lars", "Mia", "Sven", "Klara", "Svea"],
        "cost": [30, 10, 50, 50, 60],
    }
    stream(session, "purchases", columns)
    assert shown(session, f"SELECT _time, v FROM (SELECT {query})") == expected


# ------------------------------------------------------------------ DuckDB, Spark: expressions


def test_integers_and_dates(session: Session) -> None:
    """``/`` of integers is DuckDB's ``//``, truncated towards zero; all else equals both DuckDB and
    Spark: remainders, NULLs, NaN, dates before 1970 and on leap days."""
    nan = "CAST('NaN' AS DOUBLE)"
    expected: dict[str, Any] = {
        "-7 / 2": -3,
        "7 / -2": -3,
        "-7 % 3": -1,
        "7 % -3": 1,
        "-5.5 % 2": Decimal("-1.5"),
        "1 NOT IN (2, NULL)": None,
        "NULL AND FALSE": False,
        "CASE NULL WHEN NULL THEN 1 ELSE 2 END": 2,
        f"{nan} = {nan}": True,
        f"{nan} > CAST('Infinity' AS DOUBLE)": True,
        "0.1 + 0.2 = 0.3": True,
        "DATE '2024-02-28' + INTERVAL '1' DAY": dt.date(2024, 2, 29),
        "date_add(DATE '1900-02-28', 1)": dt.date(1900, 3, 1),
        "add_months(DATE '2024-02-29', 12)": dt.date(2025, 2, 28),
        "date_trunc('hour', TIMESTAMP '1969-12-31 23:59:59')": "1969-12-31 23:00:00",
        "date_trunc('week', DATE '1969-12-31')": "1969-12-29 00:00:00",
        "unix_seconds(TIMESTAMP '1969-12-31 23:59:59.5')": -1,
        "weekofyear(DATE '2021-01-03')": 53,
    }
    shape = ", ".join(f"{text} AS c{n}" for n, text in enumerate(expected))
    assert dict(zip(expected, shown(session, f"SELECT {shape}")[0], strict=True)) == expected


# ------------------------------------------------- Spark: in-subquery, exists-subquery, group-by

DOUBLED = {"a": [1, 1, 2, 3, None, 3], "b": ["x", "x", "y", "y", None, "z"]}


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "SELECT a FROM d WHERE a IN (SELECT a FROM d)",
        "SELECT a, b FROM d WHERE a NOT IN (SELECT a FROM d WHERE b = 'x')",
        "SELECT b FROM d WHERE EXISTS (SELECT 1 FROM d AS i WHERE i.b = d.b AND i.a > 1)",
        "SELECT b FROM d WHERE NOT EXISTS (SELECT 1 FROM d AS i WHERE i.b = d.b AND i.a > 1)",
        "SELECT b, (SELECT max(a) FROM d) AS m FROM d",
        "SELECT b, (SELECT a FROM d WHERE a > 9) AS m FROM d",
        "SELECT count(*), sum(a) FROM d WHERE a IN (SELECT a FROM d WHERE b = 'y')",
        "SELECT b, count(*) FROM d WHERE a IN (SELECT a FROM d) GROUP BY b",
        "SELECT a IN (SELECT a FROM d WHERE a IS NOT NULL) AS i, b FROM d",
        "SELECT a IN (SELECT a FROM d WHERE a IS NULL) AS i, b FROM d",
        "SELECT a FROM d WHERE a IN (SELECT a FROM d WHERE b IN (SELECT b FROM d WHERE a > 2))",
        "SELECT a FROM d UNION ALL SELECT a FROM d WHERE a IN (SELECT a FROM d WHERE a > 1)",
        "SELECT 1 AS one FROM d HAVING count(*) > 1",
        "SELECT 1 AS one FROM d HAVING true",
        "SELECT 1 AS one FROM d WHERE a > 9 HAVING 1 = 1",
        "SELECT 1 AS one FROM d HAVING false",
        "SELECT count(*) FROM d GROUP BY ()",
        "SELECT b, row_number() OVER (PARTITION BY b ORDER BY a, b) AS n FROM d WHERE a < 3",
        "SELECT DISTINCT a FROM d",
        "SELECT b FROM d WHERE b LIKE ANY ('x%', '%z')",
    ],
)
def test_tables_as_in_duckdb(session: Session, text: str) -> None:
    import duckdb

    table = pa.table(DOUBLED)
    session.register_table("d", table)
    with duckdb.connect() as other:
        other.register("d", table)
        # DuckDB has no LIKE ANY over a list
        expected = other.sql(text.replace("LIKE ANY ('x%', '%z')", "SIMILAR TO 'x.*|.*z'"))
        rows = ordered([tuple(row) for row in expected.fetchall()])
    assert shown(session, text) == rows


def test_a_subquery_over_a_table_leaves_a_stream_as_it_is(session: Session) -> None:
    """Equal rows each count, late rows count in open windows, and rows keep their order."""
    session.register_table("good", pa.table({"k": ["a", "a", "c"]}))
    columns = {"t": [1, 7, 4, 4, 12, 3], "k": ["a", "a", "a", "a", "b", "a"]}
    stream(session, "s", columns)
    condition = "k IN (SELECT k FROM good)"
    plain = "SELECT count(*) AS c, window_end FROM s [RANGE 10 SLIDE 10] WHERE "
    assert shown(session, plain + condition) == shown(session, plain + "k IN ('a', 'c')")
    assert shown(session, plain + condition) == [(4, 10)]
    found = session.sql(f"SELECT t FROM s WHERE {condition}").to_arrow()
    assert found.column("t").to_pylist() == [1, 7, 4, 4, 3]
    counted = f"SELECT count(*) AS c, window_end FROM s [ROWS 3 SLIDE 3] WHERE {condition}"
    assert shown(session, counted) == [(2, 6), (3, 3)]


def test_count_of_several_columns(session: Session) -> None:
    """Spark's count.sql: count(a, b) counts the rows without a NULL argument."""
    columns = {"a": [1, 1, 2, None, None], "b": [1, None, 2, 3, None]}
    session.register_table("d", pa.table(columns))
    text = "SELECT count(a, b), count(b, a) FILTER (WHERE a > 1), count(1, a), count(2, 1) FROM d"
    assert shown(session, text) == [(2, 1, 3, 5)]


# --------------------------------------------------- Flink and Spark: GROUP BY the window alone


@pytest.mark.sampled
@pytest.mark.parametrize(
    "operator", ["auto", "wid", "panes", "two_stacks", "subtract", "buffered", "two_level"]
)
@pytest.mark.parametrize("slide", [2, 10])
def test_grouped_by_the_window_alone(session: Session, operator: str, slide: int) -> None:
    stream(session, "s", {"t": [1, 2, 11, 35]})
    session.set("window_operator", operator)
    text = f"SELECT window_start AS w FROM s [RANGE 10 SLIDE {slide}] GROUP BY window_start"
    starts = {w for t in (1, 2, 11, 35) for w in range(-50, 50, slide) if w <= t < w + 10}
    assert session.sql(text).to_arrow().column("w").to_pylist() == sorted(starts)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("SELECT DISTINCT t / 10 AS d FROM s", [(0,), (1,), (3,)]),
        ("SELECT t / 10 AS d FROM s GROUP BY t / 10", [(0,), (1,), (3,)]),
        ("SELECT window_end FROM s [ROWS 2 SLIDE 2] GROUP BY window_end", [(2,), (4,)]),
        (
            "SELECT window_start FROM TABLE(SESSION(TABLE s, DESCRIPTOR(t), 5))"
            " GROUP BY window_start, window_end",
            [(1,), (11,), (35,)],
        ),
        (
            "SELECT window_end FROM TABLE(CUMULATE(TABLE s, DESCRIPTOR(t), 5, 10))"
            " GROUP BY window_start, window_end",
            [(10,), (15,), (20,), (40,), (5,)],
        ),
        # Windows with one start: one group with the rows of all of them.
        (
            "SELECT window_start, count(*) AS c"
            " FROM TABLE(CUMULATE(TABLE s, DESCRIPTOR(t), 5, 10)) GROUP BY window_start",
            [(0, 4), (10, 2), (30, 1)],
        ),
    ],
)
def test_groups_without_aggregates(session: Session, text: str, rows: Rows) -> None:
    stream(session, "s", {"t": [1, 2, 11, 35]})
    assert shown(session, text) == rows


def test_results_of_windows_in_any_order(session: Session) -> None:
    """Without LIMIT, ORDER BY sorts the whole result of bounded input."""
    stream(session, "s", {"t": [1, 2, 3, 11, 12, 25], "k": ["a", "b", "a", "b", "b", "a"]})
    text = "SELECT k, count(*) AS c, window_end AS e FROM s [RANGE 10 SLIDE 10] GROUP BY k"
    found = session.sql(f"{text} ORDER BY e DESC, c").to_arrow().to_pylist()
    assert [(r["e"], r["c"]) for r in found] == [(30, 1), (20, 2), (10, 1), (10, 2)]
    found = session.sql(f"{text} ORDER BY c DESC, e").to_arrow().to_pylist()
    assert [(r["c"], r["e"]) for r in found] == [(2, 10), (2, 20), (1, 10), (1, 30)]
    found = session.sql(f"{text} ORDER BY c DESC LIMIT 1").to_arrow().to_pylist()
    assert [(r["e"], r["k"]) for r in found] == [(10, "a"), (20, "b"), (30, "a")]
    found = session.sql(f"{text} ORDER BY c DESC, e OFFSET 2").to_arrow().to_pylist()
    assert [(r["c"], r["e"]) for r in found] == [(1, 10), (1, 30)]
