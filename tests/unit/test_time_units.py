"""timestampdiff, timestampadd and extract(epoch FROM …) agree with Spark and with results computed
by hand."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

import cql

UNITS = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND")
UNITS = (*UNITS, "MICROSECOND")
TIMES = [
    dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)
    for text in (
        "2024-01-31 10:00:00",
        "2024-02-29 09:59:59.999999",
        "2024-02-29 10:00:00",
        "2024-03-01 09:00:00",
        "2024-03-01 10:00:00.000001",
        "2023-01-31 10:00:00",
        "2023-12-31 23:59:59.5",
        "1969-12-31 23:59:59.999999",
        "1970-01-01 00:00:00",
        "1904-02-29 12:30:00",
    )
]
PAIRS = [(a, b) for a in TIMES for b in TIMES]
COUNTS = [(-13, 0, 1, 25)[k % 4] for k in range(len(PAIRS))]


@pytest.fixture(scope="module")
def session() -> cql.Session:
    made = cql.connect(spark=False)
    columns = {"a": [a for a, _ in PAIRS], "b": [b for _, b in PAIRS], "n": COUNTS}
    made.register_table("t", columns)
    return made


def _rows(session: cql.Session, text: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = session.sql(text).to_arrow().to_pylist()
    return found


def test_units_as_spark_counts_and_adds_them(spark: Any, session: cql.Session) -> None:
    columns = [f"timestampdiff({u}, a, b) AS d{k}" for k, u in enumerate(UNITS)]
    columns += [f"timestampadd({u}, n, a) AS m{k}" for k, u in enumerate(UNITS)]
    text = f"SELECT a, b, n, {', '.join(columns)} FROM t"
    frame = spark.createDataFrame(
        [(a, b, n) for (a, b), n in zip(PAIRS, COUNTS, strict=True)],
        "a timestamp, b timestamp, n int",
    )
    frame.createOrReplaceTempView("t")
    try:
        wanted = spark.sql(text).toArrow()
    finally:
        spark.catalog.dropTempView("t")
    found = session.sql(text).to_arrow()
    assert found.column_names == wanted.column_names
    for name in found.column_names:
        assert found[name].to_pylist() == wanted[name].to_pylist(), name


def test_other_names_and_constants(session: cql.Session) -> None:
    """Other names of the functions, over constants; a date counts as its midnight."""
    a, b = "TIMESTAMP '2024-01-31 10:00:00'", "TIMESTAMP '2024-03-01 09:00:00'"
    (row,) = _rows(
        session,
        f"""SELECT datediff(MONTH, {a}, {b}) AS m, date_diff(day, {a}, {b}) AS d,
            timestampdiff(hours, {b}, {a}) AS h, datediff(DATE '2024-03-01', {a}) AS days,
            timestampdiff(MONTH, {b}, {a}) AS back,
            dateadd(QUARTER, 1, {a}) AS q, date_add(minute, -5, DATE '2024-01-01') AS x,
            date_add(DATE '2024-01-31', 1) AS y, timestampadd(MONTH, 1, {a}) AS z,
            datediff(week, DATE '2024-01-01', DATE '2024-01-15') AS w""",
    )
    assert [row[k] for k in ("m", "d", "h", "days", "back", "w")] == [0, 29, -719, 30, -1, 2]
    moments = [
        dt.datetime(2024, 4, 30, 10, tzinfo=dt.UTC),
        dt.datetime(2023, 12, 31, 23, 55, tzinfo=dt.UTC),
        dt.date(2024, 2, 1),
        dt.datetime(2024, 2, 29, 10, tzinfo=dt.UTC),
    ]
    assert [row[k] for k in ("q", "x", "y", "z")] == moments


def test_folded_as_computed(session: cql.Session) -> None:
    for unit in ("MONTH", "DAY"):
        computed = _rows(session, f"SELECT timestampdiff({unit}, a, b) AS d FROM t")[:40]
        texts = [
            f"timestampdiff({unit}, TIMESTAMP '{a:%Y-%m-%d %H:%M:%S.%f}',"
            f" TIMESTAMP '{b:%Y-%m-%d %H:%M:%S.%f}') AS d{k}"
            for k, (a, b) in enumerate(PAIRS[:40])
        ]
        (folded,) = _rows(session, f"SELECT {', '.join(texts)}")
        assert list(folded.values()) == [r["d"] for r in computed]


def test_seconds_since_1970(session: cql.Session) -> None:
    """As in PostgreSQL and DuckDB: seconds with their fraction; of an interval, its length."""
    found = _rows(
        session,
        """SELECT extract(epoch FROM a) AS e, date_part('epoch', b - a) AS i,
            extract(EPOCH FROM CAST(a AS DATE)) AS d, a, b FROM t""",
    )
    zero = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    micro = dt.timedelta(microseconds=1)
    for row in found:
        assert row["e"] == (row["a"] - zero) // micro / 1e6
        assert row["i"] == (row["b"] - row["a"]) // micro / 1e6
        assert row["d"] == (row["a"].date() - zero.date()).days * 86_400.0


def test_units_of_a_time_that_rises_close_their_groups(session: cql.Session) -> None:
    times = {"ts": [10, 50, 70, 200], "v": [1, 2, 3, 4]}
    session.create_stream("rising", times, ordered_by="ts", unit="seconds", replace=True)
    session.sql("CREATE OR REPLACE VIEW timed AS SELECT timestamp_seconds(ts) AS t, v FROM rising")
    query = session.sql(
        "SELECT timestampdiff(MINUTE, TIMESTAMP '1970-01-01 00:00:00', t) AS m, sum(v) AS s"
        " FROM timed GROUP BY m"
    )
    assert query.to_arrow().to_pylist() == [{"m": 0, "s": 3}, {"m": 1, "s": 3}, {"m": 3, "s": 4}]


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("datediff('day', a, b)", "the unit of datediff is a word without quotes", "datediff(day,"),
        ("timestampdiff(fortnight, a, b)", "does not know the unit 'fortnight'", "units: year"),
        ("timestampadd(a + 1, n, a)", "takes a unit first", "timestampadd(HOUR"),
        ("timestampdiff(a, b)", "timestampdiff takes 3 arguments, not 2", "usage"),
        ("dateadd(day, a, n)", "argument 2 of timestampadd must be bigint", "usage"),
        ("extract(epok FROM a)", "extract does not know the field 'epok'", "epoch"),
    ],
)
def test_what_is_no_unit(session: cql.Session, text: str, message: str, hint: str) -> None:
    with pytest.raises(cql.CqlError) as caught:
        session.sql(f"SELECT {text} FROM t")
    assert message in caught.value.message
    assert hint in (caught.value.hint or "")
    assert caught.value.position is not None
