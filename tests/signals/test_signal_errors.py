"""What a user may try with signals and their segments: an answer, or one error that says where."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import cql
from cql.errors import CqlError
from cql.session.session import Session

W = "FROM audio [ROWS 3 SLIDE 3]"
_TENTH = 100_000
_TABLE = pa.table(
    {
        "ts": pa.array(np.arange(30) * _TENTH, pa.timestamp("us", "UTC")),
        "x": pa.array(np.arange(30), pa.int16()),
    }
)


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with cql.connect(spark=False) as made:
        made.create_stream("audio", _TABLE, rate=10, ordered_by="ts")
        made.create_stream("rows_of", _TABLE, ordered_by="ts")
        yield made


def _column(session: Session, text: str, *names: str) -> list[Any]:
    query: Any = session.sql(text)
    found: pa.Table = query.to_arrow()
    return found.column(0).to_pylist() if not names else found.select(names).to_pylist()


def _refused(session: Session, text: str) -> tuple[str, str]:
    """The message of the error, and the text at its position."""
    with pytest.raises(CqlError) as caught:
        _column(session, text)
    place = caught.value.position
    assert place is not None, caught.value
    line = text.splitlines()[place.line - 1]
    return caught.value.message, line[place.column - 1 : place.column - 1 + place.length]


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        (f"SELECT x, count(*) {W} GROUP BY x", "an aggregate, GROUP BY or DISTINCT", "SELECT"),
        (f"SELECT DISTINCT x {W}", "an aggregate, GROUP BY or DISTINCT", "SELECT"),
        (f"SELECT first_value(x) {W}", "an aggregate, GROUP BY or DISTINCT", "SELECT"),
        (f"SELECT count(*) {W}", "an aggregate, GROUP BY or DISTINCT", "SELECT"),
        (f"SELECT x {W} ORDER BY x", "signal<smallint> have no order", "x"),
        (f"SELECT x {W} ORDER BY window_end", "ORDER BY", "window_end"),
        (f"SELECT a.x {W} a JOIN audio b ON a.window_start = b.ts", "JOIN", "JOIN"),
        (f"SELECT x {W} UNION ALL SELECT x {W}", "UNION", "UNION"),
        (f"SELECT x {W} EXCEPT SELECT x {W}", "EXCEPT or INTERSECT", "EXCEPT"),
        (f"ISTREAM(SELECT x {W})", "ISTREAM", "ISTREAM"),
        (f"SELECT x {W} EMIT CHANGES", "EMIT", "["),
        (f"SELECT row_number() OVER (ORDER BY window_end) {W}", "ROW_NUMBER", "row_number"),
        (f"SELECT u {W} CROSS JOIN UNNEST(x) AS t(u)", "UNNEST takes an array", "x"),
        (f"SELECT x = x {W}", "= cannot compare", "x"),
        (f"SELECT x < x {W}", "< cannot compare", "x"),
        (f"SELECT x <=> x {W}", "cannot compare", "x"),
        (f"SELECT nullif(x, x) {W}", "cannot compare", "x"),
        (f"SELECT greatest(x, x) {W}", "have no order", "x"),
        (f"SELECT x IN (1,2) {W}", "values of one type", "x IN (1,2"),
        (f"SELECT x % 2 {W}", "% does not take", "x % 2"),
        (f"SELECT abs(x) {W}", "must be a number", "x"),
        (f"SELECT CAST(x AS STRING) {W}", "cannot cast signal<smallint> to string", "CAST"),
        (f"SELECT TRY_CAST(x AS BIGINT) {W}", "cannot cast signal<smallint>", "TRY_CAST"),
        (f"SELECT concat(x, 'a') {W}", "must be string", "x"),
        (f"SELECT 'a' || x {W}", "must be string", "x"),
        (f"SELECT x {W} WHERE x", "needs a condition", "x"),
        (f"SELECT avg(DISTINCT x) {W}", "must be a number", "x"),
        (f"SELECT median(x) {W}", "must be a number", "x"),
        (f"SELECT avg(x) OVER () {W}", "must be a number", "x"),
        (f"SELECT avg(x) FILTER (WHERE true) {W}", "must be a number", "x"),
        (f"SELECT avg(x) {W} HAVING avg(x) > 3", "neither grouped nor", "x"),
        (f"SELECT rms(1) {W}", "rms does not take (int)", "rms"),
        ("SELECT rms(x) FROM audio", "rms does not take (smallint)", "rms"),
        (f"SELECT ts {W}", "there is no column ts", "ts"),
        (f"CREATE TABLE t (x STRING) AS SELECT x {W}", "the query gives signal<smallint> (x)", "x"),
        ("SELECT * FROM audio [ROWS 3]", "this window over the signal audio", "["),
        ("SELECT * FROM audio [NOW]", "this window over the signal audio", "["),
        ("SELECT * FROM audio [RANGE 1 SECOND]", "this window over the signal audio", "["),
        ("SELECT * FROM audio [SESSION 1 SECOND]", "this window over the signal audio", "["),
        ("SELECT * FROM audio [PARTITION BY x ROWS 3 SLIDE 3]", "more than a size", "["),
        ("SELECT * FROM audio [RANGE 1 SECOND SLIDE 1 SECOND, WA ts]", "more than a size", "["),
        ("SELECT * FROM audio [RANGE UNBOUNDED SLIDE 1 SECOND]", "more than a size", "["),
        ("SELECT * FROM audio [ROWS 0 SLIDE 1]", "0 is not a whole number above zero", "0"),
        ("SELECT * FROM audio [ROWS 3 SLIDE 1 SECOND]", "is not a number of samples", "1"),
        ("SELECT * FROM audio [ROWS 99999999999 SLIDE 3]", "longer than 35", "99999999999"),
        (
            "SELECT * FROM audio [RANGE 99 MILLISECONDS SLIDE 1 SECOND]",
            "may hold no sample",
            "99",
        ),
        (
            "SELECT count(*) FROM rows_of [ROWS 3 SLIDE 3 WITH RESTS]",
            "WITH RESTS in a window over rows",
            "WITH",
        ),
        (
            "SELECT count(*) [RANGE 1 SECOND SLIDE 1 SECOND WITH RESTS] FROM audio",
            "WITH RESTS in a window over rows",
            "WITH",
        ),
        ("SELECT * FROM audio [ROWS 3 SLIDE 3 WITH]", "'WITH' starts no part of a window", "WITH"),
        ("SELECT * FROM audio [NOW WITH RESTS]", "[NOW] takes nothing else but WA", "["),
        ("CREATE STREAM s (x INT) RATE 9 HZ TOLERANCE", "TOLERANCE", ""),
        ("CREATE STREAM s (x INT) RATE 9 HZ TOLERANCE 0 ms", "TOLERANCE must be", "0"),
        (
            "CREATE STREAM s (t TIMESTAMP, x INT) ORDERED BY t RATE 1 KHZ TOLERANCE 501 us",
            "more than half the time from a sample to the next",
            "501",
        ),
        (
            "CREATE STREAM s (x INT) RATE 9 HZ TOLERANCE 1 ms",
            "TOLERANCE is about the times of samples",
            "s",
        ),
        ("CREATE STREAM s (x INT) RATE 0 HZ", "RATE must be above zero", "RATE"),
        ("CREATE STREAM s (x INT) RATE -1 HZ", "expected a number after RATE", "-"),
        ("CREATE STREAM s (x INT) RATE 1000001 KHZ", "RATE must be from 0.000001 to", "RATE"),
        ("CREATE STREAM s (x INT) RATE 0.0000001 HZ", "RATE must be from 0.000001 to", "RATE"),
    ],
)
def test_refused(text: str, message: str, place: str, session: Session) -> None:
    found, where = _refused(session, text)
    assert message in found
    assert where.lower() == place.lower()


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("(ts TIMESTAMP, x INT) ORDERED BY ts WITHIN 1 SECOND", "ORDERED BY one column without"),
        ("(ts TIMESTAMP, x INT) WATERMARK ts DELAY INTERVAL 1 SECOND", "ORDERED BY one column"),
        ("(ts BIGINT, x INT) ORDERED BY ts", "whose time ts is a bigint"),
        ("(ts DATE, x INT) ORDERED BY ts", "whose time ts is a date"),
        ("(ts TIMESTAMP, x STRING) ORDERED BY ts", "whose column x is a string"),
        ("(ts TIMESTAMP, x BOOLEAN) ORDERED BY ts", "whose column x is a boolean"),
        ("(ts TIMESTAMP, x DECIMAL(9,2)) ORDERED BY ts", "whose column x is a decimal"),
        ("(ts TIMESTAMP, x INT)", "whose column ts is a timestamp"),
        ("(ts TIMESTAMP) ORDERED BY ts", "has no channel"),
        ("(ts TIMESTAMP, x INT, y AS x > 1) ORDERED BY ts", "whose column y is a boolean"),
    ],
)
def test_signals_that_have_no_windows(columns: str, message: str, session: Session) -> None:
    session.sql(f"CREATE OR REPLACE STREAM other {columns} RATE 10 HZ")
    found, where = _refused(session, "SELECT * FROM other [ROWS 3 SLIDE 3]")
    assert message in found
    assert where == "["


def test_update_streams(session: Session) -> None:
    columns = "(ts TIMESTAMP, k INT, x INT) ORDERED BY ts UPDATE KEY (k)"
    session.sql(f"CREATE OR REPLACE STREAM other {columns} RATE 10 HZ")
    found, where = _refused(session, "SELECT * FROM other [ROWS 3 SLIDE 3]")
    assert "over the update stream other is not supported" in found
    assert where == "other"


@pytest.mark.parametrize("rate", [0, -1, float("nan"), float("inf"), "fast", 1e12, 1e-9])
def test_rates_in_python(rate: Any, session: Session) -> None:
    with pytest.raises(cql.errors.BindError, match=r"rate|RATE"):
        session.create_stream("other", _TABLE, rate=rate, ordered_by="ts", replace=True)


@pytest.mark.parametrize(
    ("rate", "period"),
    [("44.1 KHZ", 22.675), ("0.01 HZ", 1e8), ("1 MHZ", 1.0), ("44100.123456789 HZ", 22.67567)],
)
def test_rates(rate: str, period: float, session: Session) -> None:
    session.sql(f"CREATE OR REPLACE STREAM rated (x DOUBLE) RATE {rate}")
    query: Any = session.sql(
        "SELECT CAST(window_start AS BIGINT) AS a, unix_micros(window_end) AS b"
        " FROM rated [ROWS 100 SLIDE 100]"
    )
    session.push("rated", [(0.5,)] * 100)
    session.end("rated")
    found = [row for batch in query for row in batch.to_pylist()]
    assert len(found) == 1
    assert found[0]["b"] == int(100 * period)


def test_a_window_shorter_than_a_microsecond(session: Session) -> None:
    session.sql("CREATE OR REPLACE STREAM other (x DOUBLE) RATE 3 MHZ")
    found, where = _refused(session, "SELECT * FROM other [ROWS 2 SLIDE 2]")
    assert found == "a window of 2 samples is shorter than a microsecond"
    assert where == "2"


def test_times_that_are_too_far(session: Session) -> None:
    far = _TABLE.slice(0, 1).set_column(0, "ts", pa.array([2**55], pa.timestamp("us", "UTC")))
    session.create_stream("far", far, rate=10, ordered_by="ts", replace=True)
    found, where = _refused(session, "SELECT * FROM far [ROWS 1 SLIDE 1]")
    assert "has a sample at the time 3111-09-" in found
    assert where == "far"


def test_inserted_segments(session: Session) -> None:
    session.sql("CREATE TABLE kept AS SELECT CAST(1 AS SMALLINT) AS x")
    found, where = _refused(session, f"INSERT INTO kept SELECT x {W}")
    assert found == "column x has type smallint, and the query gives signal<smallint> (x)"
    assert where == "x"
    session.sql("CREATE TABLE short (x ARRAY<TINYINT>)")
    found, where = _refused(session, f"INSERT INTO short SELECT x {W}")
    assert found == "column x has type array<tinyint>, and the query gives signal<smallint> (x)"
    assert where == "x"
    result: Any = session.sql(f"INSERT INTO kept SELECT max(x) {W}")
    assert result.to_arrow().to_pylist() == [{"rows": 10}]


def test_what_has_answers(session: Session) -> None:
    segments = [[k, k + 1, k + 2] for k in range(0, 30, 3)]
    assert _column(session, f"SELECT x {W}") == segments
    assert _column(session, f"SELECT x {W} LIMIT 2") == segments[:2]
    assert _column(session, f"SELECT x {W} WHERE avg(x) > 4") == segments[2:]
    assert _column(session, f"SELECT x IS NULL {W}") == [False] * 10
    assert _column(session, f"SELECT coalesce(x, NULL) {W}") == segments
    assert _column(session, f"SELECT CASE WHEN avg(x) > 1 THEN x END {W}") == [None, *segments[1:]]
    assert _column(session, f"WITH w AS (SELECT x {W}) SELECT sum(x) FROM w")[0] == 3
    session.sql(f"CREATE OR REPLACE VIEW windows AS SELECT x, window_end {W}")
    assert _column(session, "SELECT x FROM windows") == segments
    assert _column(session, f"SELECT avg(x) AS m {W} ORDER BY m DESC LIMIT 1") == [28.0]
    assert _column(session, "SELECT x FROM (SELECT * FROM audio) [ROWS 3 SLIDE 3]") == segments
    assert _column(session, f"SELECT count(*) FROM (SELECT max(x) AS m {W})") == [10]


def test_describe(session: Session) -> None:
    def roles(name: str) -> dict[str, str]:
        result: Any = session.sql(f"DESCRIBE {name}")
        return {row[0]: row[3] for row in result.rows}

    times = "times of samples (RATE 10 HZ; a gap beyond half a period)"
    ordered = 'watermark (ORDERED BY "ts")'
    assert roles("audio") == {"ts": f"{ordered}, {times}", "x": "channel"}
    session.sql("CREATE OR REPLACE STREAM other (x INT, note STRING) RATE 44.1 KHZ")
    assert roles("other") == {
        "x": "channel",
        "note": "",
        "time": "times of samples, for ranges (RATE 44100 HZ, numbered from 1970 on; no gaps)",
    }
    declared = "(ts TIMESTAMP, x INT) ORDERED BY ts RATE 0.5 HZ TOLERANCE 2 MILLISECONDS"
    session.sql(f"CREATE OR REPLACE STREAM other {declared}")
    within = "times of samples (RATE 0.5 HZ; a gap beyond 2 milliseconds)"
    assert roles("other")["ts"] == f"watermark (ORDERED BY ts), {within}"
    query: Any = session.sql("EXPLAIN SELECT x FROM other [ROWS 3 SLIDE 3]")
    assert "0.5 Hz, at the times of ts, within 2 milliseconds" in str(query)


def test_without_a_window_its_rows_are_samples(session: Session) -> None:
    assert _column(session, "SELECT x FROM audio") == list(range(30))
    assert _column(session, "SELECT avg(x) FROM audio") == [14.5]
    text = "SELECT count(*) FROM audio GROUP BY TUMBLE(ts, INTERVAL '1' SECOND)"
    assert _column(session, text) == [10, 10, 10]
