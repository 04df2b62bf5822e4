"""Streams over Spark: kept with their tables, followed as the tables grow, streaming DataFrames."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cql
from cql.catalog.spark import metadata
from cql.catalog.spark import session as spark_session
from cql.catalog.spark.tables.stream import _StreamFeed
from cql.errors import BindError, CatalogError
from cql.executor.protocols import Reader, Source
from cql.query.query import Query
from cql.session.session import Session

pytestmark = pytest.mark.spark


@pytest.fixture
def session(spark: Any) -> Iterator[Session]:
    with cql.connect(spark=spark) as made:
        made.sql("CREATE TABLE grows (ts TIMESTAMP, v BIGINT)")
        yield made
        assert spark.streams.active == []
        made.sql("DROP TABLE IF EXISTS grows")


def append(session: Session, *values: int) -> None:
    """Inserts one epoch of rows; a row's time is its value in seconds."""
    times = pa.array([v * 1_000_000 for v in values], pa.timestamp("us", "UTC"))
    session.register_table("more", pa.table({"ts": times, "v": values}), replace=True)
    session.sql("INSERT INTO grows SELECT ts, v FROM more")


def follow(session: Session) -> None:
    session.sql(
        "CREATE OR REPLACE STREAM s FROM TABLE grows OPTIONS (follow 'true', poll '10 ms') "
        "ORDERED BY ts"
    )


def source_of(session: Session, name: str) -> Source:
    relation = session._catalog.find((name,))
    assert relation is not None
    assert not relation.bounded
    return relation.source()


def take(reader: Reader, rows: int, column: str = "v") -> tuple[list[Any], Any]:
    """The next ``rows`` values, and the offset after them."""
    found: list[Any] = []
    while len(found) < rows:
        block = reader.next(1.0)
        assert block is not None
        found += block.batch.column(column).to_pylist()
        offset = block.offset
    return found, offset


def count(reader: Reader, rows: int) -> Any:
    """The offset after ``rows`` rows of a reader without columns."""
    while rows > 0:
        block = reader.next(1.0)
        assert block is not None
        rows -= block.batch.num_rows
    assert rows == 0
    return block.offset


def select(session: Session, text: str) -> Query:
    query = session.sql(text)
    assert isinstance(query, Query)
    return query


def test_a_table_is_followed_and_each_row_comes_once(session: Session) -> None:
    append(session, 1, 2, 3)
    append(session, 11, 12)
    follow(session)
    source = source_of(session, "s")
    reader = source.open(["v"])
    assert take(reader, 5)[0] == [1, 2, 3, 11, 12]
    empty = reader.next(0.0)
    assert empty is not None
    assert (empty.batch.num_rows, empty.offset) == (0, {"row": 5})
    append(session, 21)
    assert take(reader, 1) == ([21], {"row": 6})
    reader.close()
    again = source.open(["v", "ts"], {"row": 2})
    assert take(again, 4)[0] == [3, 11, 12, 21]
    append(session, 31)
    assert take(again, 1) == ([31], {"row": 7})
    again.close()
    rows = source.open([])
    assert count(rows, 7) == {"row": 7}
    rows.close()


def test_windows_over_a_table_that_grows_close_as_it_does(session: Session) -> None:
    append(session, 1, 2, 3)
    follow(session)
    query = select(session, "SELECT count(*) AS n FROM s [RANGE 10 seconds SLIDE 10 seconds]")
    assert not query.bounded
    batches = query.batches()
    append(session, 14)
    assert next(batches).to_pydict() == {"n": [3]}
    append(session, 15, 29)
    assert next(batches).to_pydict() == {"n": [2]}
    batches.close()
    assert query.status == "stopped"


def test_an_insert_from_a_stream_of_spark_stops_with_what_it_has(session: Session) -> None:
    append(session, 1, 2)
    session.create_stream("s", "grows", ordered_by="ts", bounded=False, poll="10 ms", replace=True)
    session.sql("CREATE TABLE copied (v BIGINT)")
    query = select(session, "INSERT INTO copied SELECT v FROM s")
    seen = threading.Event()
    while query.is_active and query.progress().rows_in < 2:
        seen.wait(0.01)
    assert query.stop(60)
    assert (query.status, query.row_count) == ("stopped", 2)
    assert select(session, "SELECT v FROM copied").to_arrow()["v"].to_pylist() == [1, 2]
    session.sql("DROP TABLE copied")


def test_ctrl_c_ends_a_query_over_a_stream_of_spark(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(session, 1)
    follow(session)
    query = select(session, "SELECT v FROM s")
    batches = query.batches()
    assert next(batches).num_rows == 1
    # Ctrl-C comes while the reader waits for rows.
    monkeypatch.setattr(_StreamFeed, "_check_running", lambda _: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        next(batches)
    assert query.status == "stopped"


def test_what_ends_a_stream_is_said_once(session: Session, spark: Any) -> None:
    append(session, 1)
    follow(session)
    source = source_of(session, "s")
    reader = source.open(["v"])
    take(reader, 1)
    spark.streams.active[0].stop()
    with pytest.raises(CatalogError, match="somebody stopped the Spark query that reads stream s"):
        take(reader, 1)
    with pytest.raises(CatalogError, match="somebody stopped"):
        reader.next(0.0)
    reader.close()
    broken = spark_session.warehouse_of(spark) / "grows" / "broken.parquet"
    broken.write_bytes(b"no parquet at all")
    reader = source.open(["v"])
    with pytest.raises(CatalogError, match=r"broken\.parquet"):
        take(reader, 3)
    reader.close()
    broken.unlink()
    reader = source.open(["v"])
    take(reader, 1)
    session.sql("DROP TABLE grows")
    with pytest.raises(CatalogError, match="which stream s follows, was dropped"):
        take(reader, 1)
    reader.close()


def test_a_streaming_frame_is_a_stream(session: Session, spark: Any, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    pq.write_table(pa.table({"a `b`": [1, 2], "v": ["x", None]}), folder / "1.parquet")
    frame = spark.readStream.schema("`a ``b``` bigint, v string").parquet(str(folder))
    session.create_stream("r", frame, ordered_by="a `b`", poll="10 ms")
    query = select(session, 'SELECT v, "a `b`" AS n FROM r')
    batches = query.batches()
    assert next(batches).to_pydict() == {"v": ["x", None], "n": [1, 2]}
    pq.write_table(pa.table({"a `b`": [3], "v": ["z"]}), folder / "2.parquet")
    assert next(batches).to_pydict() == {"v": ["z"], "n": [3]}
    batches.close()
    source = source_of(session, "r")
    rows = source.open([])
    assert count(rows, 3) == {"row": 3}
    rows.close()
    with pytest.raises(CatalogError, match="only once"):
        source.open(["v"], {"row": 1})
    with pytest.raises(BindError, match="has no end"):
        session.create_stream("q", frame, bounded=True)


def test_what_cannot_be_followed(session: Session, spark: Any) -> None:
    spark.table("grows").createOrReplaceTempView("looked_at")
    with pytest.raises(CatalogError, match="cannot be followed: Spark reads it only as it is now"):
        session.create_stream("s", "looked_at", bounded=False)
    with pytest.raises(CatalogError, match="has no option pol"):
        session.create_stream("s", "grows", bounded=False, pol="1 s")


def test_a_stream_lives_with_its_table(session: Session, spark: Any) -> None:
    spark.catalog.createDatabase("shop", ifNotExists=True)
    session.sql("CREATE TABLE shop.orders (ts TIMESTAMP, v BIGINT)")
    try:
        session.sql("CREATE STREAM sold FROM TABLE grows ORDERED BY ts")
        session.sql("CREATE OR REPLACE STREAM sold FROM TABLE shop.orders ORDERED BY ts")
        assert "cql.stream.sold" not in metadata.get_properties(spark, "grows")
        with cql.connect(spark=spark) as other:
            shown = other.sql("SHOW STREAMS LIKE '%sold'").to_arrow()
            assert shown["stream"].to_pylist() == ["shop.sold"]
            assert "shop.sold" in other._names()
            assert select(other, "SELECT v FROM shop.sold").bounded
            with pytest.raises(CatalogError, match=r"stream default.x would not be in the data"):
                other.sql("CREATE STREAM default.x FROM TABLE shop.orders ORDERED BY ts")
            metadata.set_properties(spark, "shop.orders", {"cql.stream.sold": "{}"})
            with pytest.raises(CatalogError, match=r"says of stream shop\.sold cannot be read"):
                other.sql("SELECT v FROM shop.sold")
            other.sql("DROP STREAM shop.sold")
            assert metadata.get_properties(spark, "shop.orders") == {}
    finally:
        session.sql("DROP TABLE shop.orders")
