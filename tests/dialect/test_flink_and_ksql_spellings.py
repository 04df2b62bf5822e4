"""Spellings of Flink, ksqlDB, DuckDB and STREAM for constructs that this dialect spells
differently."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import cql
from cql.dialect import parse_one, to_sql


@pytest.fixture
def session() -> cql.Session:
    made = cql.connect(spark=False)
    for name, times in (("clicks", [1, 5, 50]), ("taps", [2, 6, 51])):
        columns = {"ts": times, "k": [1, 1, 2]}
        made.create_stream(name, columns, ordered_by="ts", unit="seconds")
    return made


def _rows(session: cql.Session, text: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = session.sql(text).to_arrow().to_pylist()
    return found


@pytest.mark.parametrize(
    ("item", "count"),
    [
        ("clicks UNION (SELECT ts, k FROM taps WHERE k = 2) AS m", 4),
        ("clicks UNION (SELECT ts, k FROM taps WHERE k = 2) m", 4),
        ("(SELECT * FROM clicks) UNION ALL (SELECT ts, k FROM taps) UNION taps AS m", 9),
        ("clicks UNION ((SELECT ts, k FROM taps)) AS m", 6),
    ],
)
def test_queries_in_unions_of_from(session: cql.Session, item: str, count: int) -> None:
    text = f"SELECT m.ts FROM {item}"
    assert to_sql(parse_one(to_sql(parse_one(text)))) == to_sql(parse_one(text))
    assert len(_rows(session, text)) == count


def test_a_union_of_queries_stays_one(session: cql.Session) -> None:
    text = "SELECT k FROM clicks UNION (SELECT k FROM taps) ORDER BY k LIMIT 3"
    assert _rows(session, text) == [{"k": 1}, {"k": 2}]


@pytest.mark.parametrize("words", ["LEFT ASOF", "LEFT OUTER ASOF"])
def test_left_asof_join(session: cql.Session, words: str) -> None:
    text = f"SELECT c.ts FROM clicks c {words} JOIN taps t ON c.k = t.k AND c.ts >= t.ts"
    assert parse_one(text).args["joins"][0].args["method"] == "ASOF"
    assert parse_one(text).args["joins"][0].args["side"] == "LEFT"
    inner = parse_one(text.replace(words, "INNER ASOF"))
    assert inner.args["joins"][0].args["method"] == "ASOF"


def test_emit_of_a_view(session: cql.Session) -> None:
    """A query without EMIT uses the EMIT of the view that it reads; a table stores the final
    rows."""
    session.sql("CREATE VIEW v AS SELECT k, count(*) AS n FROM clicks GROUP BY k EMIT CHANGES")
    changes = session.sql("SELECT * FROM v").to_arrow()
    assert changes.column_names == ["_time", "_weight", "k", "n"]
    assert changes["_weight"].to_pylist() == [1, -1, 1, 1]
    final = [{"k": 1, "n": 2}, {"k": 2, "n": 1}]
    assert _rows(session, "SELECT * FROM v EMIT FINAL") == final
    session.sql("CREATE TABLE t AS SELECT * FROM v")
    assert _rows(session, "SELECT * FROM t") == final
    session.sql("CREATE VIEW w AS SELECT k FROM clicks EMIT FINAL")
    assert session.sql("SELECT * FROM w").to_arrow().column_names == ["k"]
    with pytest.raises(cql.CqlError, match="EMIT CHANGES of a session window"):
        session.sql("CREATE VIEW x AS SELECT k FROM clicks [SESSION 10] GROUP BY k EMIT CHANGES")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("id INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND", "no watermark"),
        ("id INT, ts TIMESTAMP(3), PRIMARY KEY (id) NOT ENFORCED", "no connector"),
        (
            "id INT, raw AS ts, ts TIMESTAMP(3), WATERMARK FOR raw AS raw - INTERVAL '5' SECOND",
            "column raw is computed",
        ),
    ],
)
def test_tables_of_flink_are_told_as_streams(
    session: cql.Session, tmp_path: Path, columns: str, message: str
) -> None:
    """The hint contains the user's names, and its statements make the rows readable."""
    (tmp_path / "a.csv").write_text("id,ts\n1,2024-01-01 00:00:00\n")
    source = f"('connector' = 'filesystem', 'path' = '{tmp_path / 'a.csv'}', 'format' = 'csv')"
    with pytest.raises(cql.CqlError) as caught:
        session.sql(f"CREATE TABLE orders ({columns}) WITH {source}")
    assert message in caught.value.message
    for statement in (caught.value.hint or "").removeprefix("write ").split("; "):
        session.sql(statement)
    assert [row["id"] for row in _rows(session, "SELECT * FROM orders")] == [1]


def test_processing_time_and_computed_columns_of_tables(session: cql.Session) -> None:
    with pytest.raises(cql.CqlError, match="p is processing time") as caught:
        session.sql("CREATE TABLE o (id BIGINT, p AS PROCTIME()) WITH ('connector' = 'kafka')")
    assert caught.value.hint == "leave p out"
    with pytest.raises(cql.CqlError, match="CREATE TABLE takes stored columns") as caught:
        session.sql("CREATE TABLE o (id BIGINT, b AS id + 1)")
    for statement in (caught.value.hint or "").removeprefix("write ").split("; "):
        session.sql(statement)
    assert session.sql("SELECT b FROM o").to_arrow().column_names == ["b"]
