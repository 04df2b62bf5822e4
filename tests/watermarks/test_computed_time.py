"""Event times that a query computes: WATERMARK after a subquery in FROM gives the results of a
source that stores the same times and declares the same watermark."""

from __future__ import annotations

import datetime as dt
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import csv

import cql
from cql import Query, Session
from cql.errors import BindError
from tests.support.fuzz.random_cases import MORSELS, Case, check, runtime_settings
from tests.support.fuzz.random_data import random_stream
from tests.support.fuzz.random_shapes import Shape
from tests.support.runtimes import RUNTIMES, Settings, apply, named

ROWS = 400
START = dt.datetime(2024, 1, 2, 10, tzinfo=dt.UTC)
WINDOWS = {
    "group window": "GROUP BY k, window(ts, '1 minute', '20 seconds')",
    "range": "[RANGE 1 MINUTE SLIDE 20 SECONDS WA ts]",
    "sessions": "[SESSION 2 SECONDS, WA ts]",
}
COMPUTED = {
    "text": "to_timestamp(w, 'dd/MM/yyyy HH:mm:ss')",
    "cast": "CAST(iso AS TIMESTAMP)",
    "epoch": "timestamp_micros(us)",
    "arithmetic": "TIMESTAMP '1970-01-01 00:00:00' + us * INTERVAL '1' MICROSECOND",
    "coalesce": "coalesce(CAST(missing AS TIMESTAMP), CAST(iso AS TIMESTAMP))",
    "case": "CASE WHEN k = 1 THEN CAST(iso AS TIMESTAMP) ELSE timestamp_micros(us) END",
}


def times(seed: int) -> list[dt.datetime]:
    """400 event times, up to 20 seconds out of order; the declared delay is 5 seconds."""
    r = random.Random(seed)
    return [
        START + dt.timedelta(seconds=i // 2 - r.choice((0, 0, 1, 3, 5, 20))) for i in range(ROWS)
    ]


@pytest.fixture
def session(seed: int) -> Iterator[Session]:
    """``raw`` holds the time in other forms; ``stored`` is a stream that has it as a column."""
    r = random.Random(seed)
    ts = times(seed)
    columns = {
        "k": pa.array([r.randrange(3) for _ in ts], pa.int32()),
        "v": pa.array([r.randrange(100) for _ in ts], pa.int64()),
    }
    forms = {
        "w": [f"{t:%d/%m/%Y %H:%M:%S}" for t in ts],
        "iso": [f"{t:%Y-%m-%d %H:%M:%S}" for t in ts],
        "us": [int(t.timestamp()) * 1_000_000 for t in ts],
        "missing": pa.nulls(ROWS, pa.string()),
    }
    with cql.connect(spark=False, on_bad_row="keep") as made:
        made.create_stream("raw", pa.table({**columns, **forms}))
        made.create_stream(
            "stored",
            pa.table({**columns, "ts": ts}),
            ordered_by="ts",
            slack=dt.timedelta(seconds=5),
        )
        yield made


def asked(
    source: str, window: str, declared: str = "WATERMARK ts DELAY OF INTERVAL 5 SECONDS"
) -> str:
    """A count over the window: a window in brackets precedes the watermark, GROUP BY follows it."""
    behind = WINDOWS[window]
    clauses = (
        f"{behind} {declared} GROUP BY k" if behind.startswith("[") else f"{declared} {behind}"
    )
    calls = "k, count(*) AS n, sum(v) AS total, last(v) AS final, window_start, window_end"
    return f"SELECT {calls} FROM {source} {clauses}"


def outcome(query: Any) -> tuple[pa.Table, int]:
    """The rows, and the number of late (row, window) pairs."""
    assert isinstance(query, Query)
    table = query.to_arrow()
    return table, sum(e["count"] for e in query.late().to_pylist() if e["kind"] == "pairs")


@pytest.mark.parametrize("window", ["RANGE 5 SECONDS SLIDE 2 SECONDS", "SESSION 2 SECONDS"])
def test_random_cases_equal_the_reference(window: str, seed: int) -> None:
    """WATERMARK replaces the input stream's own watermark."""
    computed = "SELECT t + INTERVAL 1 SECOND AS t, k, q FROM a"
    calls = "k, count(*) AS n, sum(q) AS total, window_start, window_end"
    text = (
        f"SELECT {calls} FROM ({computed}) AS c [{window}, WA t]"
        " WATERMARK t DELAY OF INTERVAL 3 SECONDS GROUP BY k"
    )
    for number in range(4):
        rng = random.Random(f"{window} {seed} {number}")
        morsel = rng.choice([m for m in MORSELS if m])
        settings = {**runtime_settings(rng), "morsel_rows": morsel}
        stream = random_stream(rng, "a")
        check(Case("computed", Shape(-1, text, ("a",), ()), (stream,), {}, True, settings))


@pytest.mark.sampled
@pytest.mark.parametrize("runtime", RUNTIMES, ids=named)
def test_as_if_the_time_were_stored(session: Session, runtime: Settings) -> None:
    apply(session, runtime, {"morsel_rows": 16})
    for window in WINDOWS:
        expected = outcome(session.sql(asked("stored AS s", window, "")))
        assert expected[0].num_rows > 10
        assert expected[1] > 0
        source = f"(SELECT {COMPUTED['text']} AS ts, k, v FROM raw) AS r"
        assert outcome(session.sql(asked(source, window))) == expected, window


@pytest.mark.parametrize("form", COMPUTED)
def test_any_way_to_compute_it(session: Session, form: str) -> None:
    expected = outcome(session.sql(asked("stored AS s", "range", "")))
    query = f"SELECT {COMPUTED[form]} AS ts, k, v FROM raw"
    assert outcome(session.sql(asked(f"({query}) AS r", "range"))) == expected


@pytest.mark.parametrize("runtime", RUNTIMES[::4], ids=named)
def test_windows_of_rows_count_late_ones_too(session: Session, runtime: Settings) -> None:
    """They count rows by sequence number, whatever the watermark."""
    apply(session, runtime, {"morsel_rows": 16})
    values = session.sql("SELECT v FROM raw").to_arrow()["v"].to_pylist()
    starts = range(-6, ROWS, 3)
    expected = [(sum(values[max(k, 0) : k + 7]), k) for k in starts]
    source = f"(SELECT {COMPUTED['cast']} AS ts, v FROM raw) AS r"
    query = session.sql(
        f"SELECT sum(v) AS total, window_start FROM {source} [ROWS 7 SLIDE 3]"
        " WATERMARK ts DELAY OF INTERVAL 5 SECONDS"
    )
    assert isinstance(query, Query)
    assert [tuple(row.values()) for row in query.to_arrow().to_pylist()] == expected
    late = {e["kind"]: e["count"] for e in query.late().to_pylist()}
    assert late["behind slack"] > 0
    assert late["pairs"] == 0


def test_the_same_slack_is_suggested(session: Session) -> None:
    """The suggested slack equals that of a stream that stores the time."""
    found = []
    source = f"(SELECT {COMPUTED['cast']} AS ts, k, v FROM raw) AS r"
    for text in (asked("stored AS s", "range", ""), asked(source, "range")):
        query = session.sql(text)
        assert isinstance(query, Query)
        query.to_arrow()
        late = next(e for e in query.late().to_pylist() if e["kind"] in ("rows", "behind slack"))
        found.append([late[n] for n in ("count", "max_lateness", "suggested_slack")])
    assert found[0] == found[1]
    assert found[0][2] > dt.timedelta(seconds=5)


def test_behind_a_view_a_name_of_with_and_a_union(session: Session) -> None:
    query = f"SELECT {COMPUTED['epoch']} AS ts, k, v FROM raw"
    expected = outcome(session.sql(asked("stored AS s", "range", "")))
    session.sql(f"CREATE VIEW timed AS {query}")
    assert outcome(session.sql(asked("timed AS t", "range"))) == expected
    session.sql(f"CREATE STREAM computed AS {query}")
    assert outcome(session.sql(asked("computed", "range"))) == expected
    assert outcome(session.sql(f"WITH c AS ({query}) {asked('c', 'range')}")) == expected


def test_each_member_of_a_union_has_its_own_watermark(session: Session) -> None:
    """No row is late although the inputs are read one block after the other."""
    rows = {"us": [(1_704_189_600 + k) * 1_000_000 for k in range(5_000)]}
    for name in "ab":
        session.create_stream(name, lambda: iter(pa.table(rows).to_batches(max_chunksize=100)))
    halves = " UNION ALL ".join(f"SELECT timestamp_micros(us) AS ts FROM {name}" for name in "ab")
    query = session.sql(
        f"SELECT count(*) AS n FROM ({halves}) AS u WATERMARK ts DELAY OF INTERVAL 5 SECONDS"
        " GROUP BY window(ts, '1 minute')"
    )
    table, late = outcome(query)
    assert (sum(table["n"].to_pylist()), late) == (10_000, 0)


@pytest.mark.parametrize(
    "clause",
    [
        "ORDERED BY ts WITHIN 5 SECONDS",
        "WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS",
        "ORDERED BY ts WITHIN 5 SECONDS MAX ADVANCE 1 DAY",
    ],
)
def test_a_stream_that_is_a_query(session: Session, clause: str) -> None:
    session.sql(f"CREATE STREAM timed {clause} AS SELECT {COMPUTED['cast']} AS ts, k, v FROM raw")
    for window in WINDOWS:
        expected = outcome(session.sql(asked("stored AS s", window, "")))
        assert outcome(session.sql(asked("timed", window, ""))) == expected
    shown = {row["stream"]: row for row in session.sql("SHOW STREAMS").to_arrow().to_pylist()}
    assert shown["timed"]["watermark"].startswith(f"ts {clause.split()[0]}")


def test_max_advance_of_a_stream_that_is_a_query(session: Session) -> None:
    """With MAX ADVANCE 1 DAY, an advance of 90 minutes needs no confirmation and makes later rows
    late."""
    minutes = [0, 1, 90, 2, 3, 4]
    rows = {"w": [f"{START + dt.timedelta(minutes=m):%Y-%m-%d %H:%M:%S}" for m in minutes]}
    session.create_stream("few", pa.table(rows))
    counts = []
    for name, most in (("near", ""), ("far", "MAX ADVANCE 1 DAY")):
        query = "SELECT CAST(w AS TIMESTAMP) AS ts FROM few"
        session.sql(f"CREATE STREAM {name} ORDERED BY ts {most} AS {query}")
        counted = session.sql(f"SELECT count(*) AS n FROM {name} GROUP BY window(ts, '1 minute')")
        assert isinstance(counted, Query)
        counts.append(sum(counted.to_arrow()["n"].to_pylist()))
    assert counts == [6, 3]


def test_a_filter_above_lets_the_rows_it_drops_count_for_the_watermark(session: Session) -> None:
    """The rows that a filter drops advance the watermark, as above a source: lateness does not
    depend on the query."""
    source = f"(SELECT {COMPUTED['epoch']} AS ts, k, v FROM raw) AS r"
    texts = asked("stored AS s", "range", ""), asked(source, "range")
    expected, found = (
        outcome(session.sql(text.replace("GROUP BY", "WHERE v > 60 GROUP BY"))) for text in texts
    )
    assert found == expected


def test_rows_whose_text_is_no_time_are_bad_rows(session: Session) -> None:
    rows = {"w": ["01/02/2024 10:00", "x", None, "01/02/2024 10:01", "01/02/2024 10:11"]}
    session.create_stream("few", pa.table(rows))
    source = "(SELECT to_timestamp(w, 'MM/dd/yyyy HH:mm') AS ts FROM few) AS f"
    query = session.sql(
        f"SELECT count(*) AS n FROM {source} WATERMARK ts DELAY OF INTERVAL 5 SECONDS"
        " GROUP BY window(ts, '10 minutes')"
    )
    assert isinstance(query, Query)
    assert query.to_arrow()["n"].to_pylist() == [2, 1]
    reasons = sorted(row["reason"] for row in query.bad_rows().to_pylist())
    assert reasons == [
        "the event time ts is NULL",
        "to_timestamp(w, 'MM/dd/yyyy HH:mm') has no result for this value",
    ]


def test_one_row_far_ahead_waits_until_others_confirm_it(session: Session) -> None:
    minutes = [0, 1, 10_000, 2, 3, 4]
    rows = {"w": [f"{START + dt.timedelta(minutes=m):%Y-%m-%d %H:%M:%S}" for m in minutes]}
    session.create_stream("few", pa.table(rows))
    query = session.sql(
        "SELECT count(*) AS n FROM (SELECT CAST(w AS TIMESTAMP) AS ts FROM few) AS f"
        " WATERMARK ts DELAY OF INTERVAL 5 SECONDS GROUP BY window(ts, '1 minute')"
    )
    assert isinstance(query, Query)
    assert query.to_arrow()["n"].to_pylist() == [1] * 6


def test_two_computed_times_join(session: Session) -> None:
    computed = f"(SELECT {COMPUTED['epoch']} AS ts, k, v FROM raw) AS {{}}"
    watermark = "WATERMARK ts DELAY OF INTERVAL 5 SECONDS"
    text = (
        "SELECT a.v AS av, b.v AS bv FROM {} JOIN {} ON a.k = b.k AND b.ts BETWEEN a.ts AND"
        " a.ts + INTERVAL 2 SECONDS"
    )
    expected = session.sql(text.format("stored AS a", "stored AS b")).to_arrow()
    found = session.sql(
        text.format(*(f"{computed.format(name)} {watermark}" for name in "ab"))
    ).to_arrow()
    order = [("av", "ascending"), ("bv", "ascending")]
    assert expected.num_rows > 100
    assert found.sort_by(order) == expected.sort_by(order)


def test_explain_says_where_a_watermark_comes_from(session: Session) -> None:
    source = f"(SELECT {COMPUTED['text']} AS ts, k, v FROM raw) AS r"
    text = session.sql(asked(source, "range")).explain()
    assert (
        "watermark on ts from arrival: its highest value so far less 5 seconds"
        " (WATERMARK ts DELAY OF 5 SECOND)"
    ) in text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT * FROM (SELECT k FROM raw) AS r WATERMARK ts DELAY OF INTERVAL 5 SECONDS",
         "this query has no column ts"),
        ("SELECT * FROM (SELECT w AS ts FROM raw) AS r WATERMARK ts DELAY OF INTERVAL 5 SECONDS",
         "ts is a string; a column with a watermark is a timestamp, a date or an integer"),
        ("SELECT * FROM (SELECT * FROM stored [RANGE 5 SECONDS]) AS r"
         " WATERMARK ts DELAY OF INTERVAL 5 SECONDS",
         "WATERMARK ts DELAY OF 5 SECOND needs a stream, and this query is a relation: its rows"
         " also leave it"),
    ],
)  # fmt: skip
def test_what_is_refused(session: Session, text: str, message: str) -> None:
    with pytest.raises(BindError) as caught:
        session.sql(text)
    assert caught.value.message == message
    assert caught.value.position is not None


# Computed columns of CREATE STREAM ----------------------------------------------------------------

LISTED = "k INT, w STRING, ts AS to_timestamp(w, 'dd/MM/yyyy HH:mm:ss'), v BIGINT"
SOURCES = ("csv", "json", "table", "iterable", "replay")


def declare(session: Session, source: str, folder: Path, columns: str, clauses: str) -> None:
    """Creates ``made``, a stream of the rows of ``raw`` from another kind of source."""
    rows = session.sql("SELECT k, v, w FROM raw").to_arrow()
    match source:
        case "csv" | "replay":
            csv.write_csv(rows, folder / "rows.csv")
            origin = f"USING {source} OPTIONS (path '{folder / 'rows.csv'}')"
        case "json":
            lines = (json.dumps(row) + "\n" for row in rows.to_pylist())
            (folder / "rows.json").write_text("".join(lines))
            origin = f"USING json OPTIONS (path '{folder / 'rows.json'}')"
        case "table":
            session.register_table("rows", rows)
            origin = "FROM TABLE rows"
        case _:
            session.create_stream("rows", lambda: iter(rows.to_batches(max_chunksize=64)))
            origin = "FROM TABLE rows"
    session.sql(f"CREATE STREAM made ({columns}) {origin} {clauses}")


@pytest.mark.parametrize("source", SOURCES)
def test_a_computed_column_of_any_source(session: Session, source: str, tmp_path: Path) -> None:
    declare(session, source, tmp_path, LISTED, "ORDERED BY ts WITHIN 5 SECONDS")
    expected = outcome(session.sql(asked("stored AS s", "group window", "")))
    assert outcome(session.sql(asked("made", "group window", ""))) == expected
    shown = session.sql("SELECT * FROM made LIMIT 1").to_arrow()
    assert shown.column_names == ["k", "w", "ts", "v"]
    assert shown["ts"].type == pa.timestamp("us", "UTC")


def test_how_a_computed_column_may_be_declared_and_used(session: Session, tmp_path: Path) -> None:
    expected = {w: outcome(session.sql(asked("stored AS s", w, ""))) for w in WINDOWS}
    inside = f"{LISTED}, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND"
    declare(session, "csv", tmp_path, inside, "MAX ADVANCE 1 DAY")
    session.sql(
        "CREATE STREAM behind (ts AS CAST(iso AS TIMESTAMP), twice AS v * 2) FROM TABLE raw"
    )
    for window in WINDOWS:
        assert outcome(session.sql(asked("made", window, ""))) == expected[window]
        assert outcome(session.sql(asked("behind", window))) == expected[window]
    columns = session.sql("SELECT * FROM behind").to_arrow().column_names
    assert columns == ["k", "v", "w", "iso", "us", "missing", "ts", "twice"]
    told = {
        row["column"]: row["role"] for row in session.sql("DESCRIBE made").to_arrow().to_pylist()
    }
    assert list(told) == ["k", "w", "ts", "v"]
    computed = "computed AS to_timestamp(w, 'dd/MM/yyyy HH:mm:ss')"
    assert told["ts"] == f"{computed}, watermark (WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)"
    shown = {row["stream"]: row for row in session.sql("SHOW STREAMS").to_arrow().to_pylist()}
    assert (
        "w string, ts AS to_timestamp(w, 'dd/MM/yyyy HH:mm:ss'), v bigint"
        in shown["made"]["columns"]
    )
    assert shown["made"]["watermark"].startswith("ts WATERMARK FOR ts")
    session.sql("CREATE STREAM again AS SELECT ts, k, v FROM made")
    assert outcome(session.sql(asked("again", "range", ""))) == expected["range"]


def test_watermark_of_a_query_over_computed_and_stored_columns(session: Session) -> None:
    """The query's WATERMARK wins; if it names a stored column, the computed one no longer
    progresses."""
    clauses = "FROM TABLE raw ORDERED BY ts WITHIN 1 SECOND"
    session.sql(f"CREATE STREAM made (ts AS CAST(iso AS TIMESTAMP)) {clauses}")
    expected = outcome(session.sql(asked("stored AS s", "range", "")))
    assert outcome(session.sql(asked("made", "range"))) == expected
    assert outcome(session.sql(asked("made", "range", ""))) != expected
    with pytest.raises(BindError, match="ts has no watermark"):
        session.sql("SELECT count(*) AS n FROM made [RANGE 1 MINUTE SLIDE 1 MINUTE WA ts]"
                    " WATERMARK us DELAY OF 5 GROUP BY k")  # fmt: skip


def test_computed_times_of_nobody_are_bad_rows(session: Session, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("w,k\n01/02/2024 10:00,1\nx,2\n,3\n01/02/2024 10:11,4\n")
    session.sql(
        "CREATE STREAM few (w STRING, ts AS to_timestamp(w, 'MM/dd/yyyy HH:mm'), k INT)"
        f" USING csv OPTIONS (path '{tmp_path / 'a.csv'}') ORDERED BY ts ON BAD ROW KEEP"
    )
    query = session.sql("SELECT sum(k) AS n FROM few GROUP BY window(ts, '10 minutes')")
    assert isinstance(query, Query)
    assert query.to_arrow()["n"].to_pylist() == [1, 4]
    assert sorted(row["reason"] for row in query.bad_rows().to_pylist()) == [
        "the event time ts is NULL",
        "to_timestamp(w, 'MM/dd/yyyy HH:mm') has no result for this value",
    ]
    failing = session.sql("SELECT ts FROM few ON BAD ROW FAIL")
    assert isinstance(failing, Query)
    with pytest.raises(cql.CqlError, match="has no result for this value"):
        failing.to_arrow()


REFUSED = {
    "ts AS to_timestamp(x)": "there is no column x",
    "a AS count(*)": "the computed column a cannot hold the aggregate count",
    "a AS (SELECT 1)": "a scalar subquery in the computed column a is not supported",
    "a AS row_number() OVER (ORDER BY us)": "OVER in the computed column a is not supported",
    "a AS us + 1, b AS a + 1": "b is computed of a, which is computed, too",
    "a AS a + 1": "a is computed of itself",
    "k AS us + 1": "the source has a column k itself",
    "a AS w || 'x') FROM TABLE raw ORDERED BY a --": "a is a string and cannot order a stream",
    "a AS us) FROM TABLE raw ORDERED BY a HEARTBEAT EVERY 1 SECOND SLACK 1 SECOND --":
    "HEARTBEAT where a, the time with the watermark, is computed is not supported",
    "a AS us) FROM TABLE raw PUNCTUATE ON a --":
    "a is computed, and this clause takes a stored column",
    "a AS us) FROM TABLE raw ORDERED BY a ORDERED BY us --":
    "a second time with a watermark beside a, which is computed, is not supported",
    "a AS us) USING csv OPTIONS (path 'x') --": "a is computed of columns that are not listed",
}  # fmt: skip


@pytest.mark.parametrize("columns", REFUSED)
def test_computed_columns_that_are_refused(session: Session, columns: str) -> None:
    text = f"CREATE STREAM s ({columns}) FROM TABLE raw"
    with pytest.raises(cql.CqlError) as caught:
        session.sql(text)
    assert caught.value.message == REFUSED[columns]
    assert caught.value.position is not None


def test_streams_over_one_with_computed_columns_are_queries(session: Session) -> None:
    session.sql("CREATE STREAM made (ts AS CAST(iso AS TIMESTAMP)) FROM TABLE raw ORDERED BY ts")
    refused = "reads columns as they are stored, and made computes ts"
    for origin in ("FROM TABLE made ORDERED BY ts", "USING replay OPTIONS (table 'made')"):
        with pytest.raises(cql.CqlError, match=refused):
            session.sql(f"CREATE STREAM again {origin}")
    with pytest.raises(cql.CqlError, match=refused):
        session.create_stream("again", "made", ordered_by="ts")
    session.sql("CREATE OR REPLACE STREAM raw FROM TABLE stored")
    with pytest.raises(cql.CqlError, match="in stream made: there is no column iso") as caught:
        session.sql("SELECT * FROM made")
    assert caught.value.position is not None
