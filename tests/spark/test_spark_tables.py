"""Spark's tables beyond columns and files: caches, defaults, and what other writers do to them."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import cql
from cql.catalog.spark.tables import table
from cql.catalog.spark.tables.write import EpochWriter
from cql.errors import BindError, CatalogError

pytestmark = pytest.mark.spark


def one(spark: Any, text: str) -> Any:
    return spark.sql(text).collect()[0][0]


@pytest.mark.slow
def test_every_insert_shows_in_what_spark_has_cached(spark: Any) -> None:
    spark.sql("CREATE TABLE cached (v INT, p INT) USING parquet PARTITIONED BY (p)")
    spark.sql("INSERT INTO cached VALUES (1, 1)")
    spark.sql("CREATE VIEW cached_view AS SELECT v * 10 AS w FROM cached")
    spark.sql("CREATE TEMP VIEW cached_temp AS SELECT w + 1 AS w FROM cached_view")
    for name in ("cached", "cached_view", "cached_temp"):
        spark.sql(f"CACHE TABLE {name}")
    session = cql.connect(spark)
    for v, p in ((2, 1), (3, 2), (4, 3)):
        session.sql(f"INSERT INTO cached VALUES ({v}, {p})")
        total = sum(range(v + 1))
        assert one(spark, "SELECT sum(v) FROM cached") == total
        assert one(spark, "SELECT sum(w) FROM cached_view") == total * 10
        assert one(spark, "SELECT sum(w) FROM cached_temp") == total * 10 + v
        assert spark.catalog.isCached("cached")
        assert spark.catalog.isCached("cached_view")
    for name in ("cached_view", "cached_temp"):
        spark.sql(f"DROP VIEW {name}")
    spark.sql("DROP TABLE cached")


DEFAULTS = """(i INT, s STRING DEFAULT 'zz', n INT NOT NULL DEFAULT 40 + 2,
    dec DECIMAL(6,2) DEFAULT 1.5, d DATE DEFAULT DATE '2026-02-03', c CHAR(4) DEFAULT 'x',
    t TIMESTAMP DEFAULT TIMESTAMP '2026-01-01 00:00:00', f DOUBLE DEFAULT 0.5,
    b BOOLEAN DEFAULT true, p STRING DEFAULT 'part') USING parquet PARTITIONED BY (p)"""
INSERTS = (
    "INSERT INTO {t} (i) VALUES (1)",
    "INSERT INTO {t} (i, s) VALUES (2, 'own'), (3, DEFAULT), (4, NULL)",
    "INSERT INTO {t} (n, s, i) VALUES (DEFAULT, default, 5), (6, 'x', 6)",
    "INSERT INTO {t} (i, dec, d, c, t, f, b, p) VALUES (7, DEFAULT, DEFAULT, DEFAULT, DEFAULT,"
    " DEFAULT, DEFAULT, DEFAULT), (8, 2.5, DATE '2026-03-03', 'yy', TIMESTAMP"
    " '2026-01-02 00:00:00', 1.5D, false, 'q')",
    "INSERT INTO {t} (i, s) SELECT i + 10, DEFAULT FROM (SELECT 9 AS i) WHERE i > 0",
    "INSERT INTO {t} (i, s) VALUES (20, (DEFAULT))",
)


@pytest.mark.slow
def test_columns_that_an_insert_leaves_out_hold_their_default(spark: Any) -> None:
    session = cql.connect(spark)
    for name in ("default_ours", "default_sparks"):
        spark.sql(f"CREATE TABLE {name} {DEFAULTS}")
    for text in INSERTS:
        session.sql(text.format(t="default_ours"))
        spark.sql(text.format(t="default_sparks"))
    read = "SELECT i, s, n, dec, d, c, t, f, b, p FROM {} ORDER BY i"
    ours = [tuple(r) for r in spark.sql(read.format("default_ours")).collect()]
    assert ours == [tuple(r) for r in spark.sql(read.format("default_sparks")).collect()]
    assert ours[0][:4] == (1, "zz", 42, Decimal("1.50"))
    back = session.sql(read.format("default_ours")).to_arrow().to_pylist()
    assert [r["s"] for r in back] == [r[1] for r in ours]
    for name in ("default_ours", "default_sparks"):
        spark.sql(f"DROP TABLE {name}")


def test_default_has_its_place_and_its_value_is_of_the_insert(spark: Any) -> None:
    session = cql.connect(spark)
    spark.sql(
        "CREATE TABLE placed (i INT, s STRING DEFAULT 'zz', a ARRAY<INT> DEFAULT array(1, 2),"
        " now TIMESTAMP DEFAULT current_timestamp()) USING parquet"
    )
    for wrong in (
        "INSERT INTO placed (i, s) VALUES (1, concat(DEFAULT, 'x'))",
        "INSERT INTO placed (i, s) SELECT 1, DEFAULT UNION ALL SELECT 2, DEFAULT",
        "SELECT DEFAULT",
    ):
        with pytest.raises(BindError, match="DEFAULT stands for a whole value"):
            session.sql(wrong)
        with pytest.raises(Exception, match="DEFAULT"):
            spark.sql(wrong).collect()
    before = dt.datetime.now(dt.UTC)
    session.sql("INSERT INTO placed (i, now) VALUES (1, DEFAULT)")
    session.sql("INSERT INTO placed (i) VALUES (2)")
    found = session.sql("SELECT s, now FROM placed ORDER BY i").to_arrow().to_pylist()
    assert [r["s"] for r in found] == ["zz", "zz"]
    assert all(before <= r["now"] <= dt.datetime.now(dt.UTC) for r in found)
    assert [r.a for r in spark.table("placed").collect()] == [[1, 2], [1, 2]]
    spark.sql("DROP TABLE placed")


def test_frames_are_read_but_for_columns_of_types_that_no_query_can_use(spark: Any) -> None:
    before = {t.name for t in spark.catalog.listTables() if t.isTemporary}
    frame = spark.sql(
        "SELECT timestamp_seconds(id) AS ts, id AS v, map('k', 1) AS mp, parse_json('1') AS va,"
        " INTERVAL 1 YEAR AS iy, INTERVAL 1 DAY AS idy FROM range(3)"
    )
    session = cql.connect(spark)
    said: list[str] = []
    session.on_notice = said.append
    session.create_stream("odd", frame, ordered_by="ts")
    session.register_table("odd_table", frame)
    for name in ("odd", "odd_table"):
        assert session.sql(f"SELECT sum(v) AS n FROM {name}").to_arrow().to_pylist() == [{"n": 3}]
        for column, kind in (("mp", "map<string,int>"), ("va", "variant"), ("iy", "interval year")):
            start = f"{name} is read without a column: column {column} has the Spark type {kind}"
            assert [text for text in said if text.startswith(start)], said
        with pytest.raises(cql.CqlError, match="mp"):
            session.sql(f"SELECT mp FROM {name}")
    with pytest.raises(BindError, match=r"column mp.*map"):
        session.create_stream("worse", frame, ordered_by="mp")
    left = {t.name for t in spark.catalog.listTables() if t.isTemporary}
    assert left == before


def test_a_table_of_a_frame_holds_its_rows_with_their_times(spark: Any) -> None:
    session = cql.connect(spark)
    spark.sql("CREATE TABLE timed (ts TIMESTAMP, n TIMESTAMP_NTZ, d DATE, c CHAR(3), s STRING)")
    spark.sql(
        "INSERT INTO timed VALUES (TIMESTAMP '2026-01-01 12:00:00Z', TIMESTAMP_NTZ"
        " '2026-01-02 00:00:00', DATE '2026-01-03', 'a', NULL)"
    )
    session.register_table("taken", spark.table("timed"))
    (row,) = session.sql("SELECT * FROM taken WHERE c = 'a'").to_arrow().to_pylist()
    (expected,) = spark.table("timed").toArrow().to_pylist()
    assert row == expected
    spark.sql("DROP TABLE timed")
    with pytest.raises(BindError, match="has no end"):
        session.register_table("endless", spark.readStream.format("rate").load())


def test_the_watermark_of_a_frame_is_taken_over(spark: Any) -> None:
    session = cql.connect(spark)
    ended = spark.sql("SELECT timestamp_seconds(id) AS ts, id AS v FROM range(3)")
    endless = spark.readStream.format("rate").load()
    for name, frame, column in (("ended", ended, "ts"), ("endless", endless, "timestamp")):
        session.create_stream(name, frame.withWatermark(column, "10 seconds"))
        session.create_stream(
            f"{name}_own", frame.withWatermark(column, "9 seconds"), watermark={column: "3 seconds"}
        )
        for stream, slack in ((name, 10), (f"{name}_own", 3)):
            (progress,) = session._catalog.find((stream,)).stream.progress
            assert (progress.column, progress.slack) == (column, slack * 1_000_000)


@pytest.mark.parametrize("kind", ["plain", "partitioned", "external", "made again"])
def test_a_table_that_is_dropped_under_an_insert_stays_dropped(
    spark: Any, tmp_path: Path, kind: str
) -> None:
    rows = pa.record_batch({"v": [1, 2], "p": [1, 2]})
    if kind == "external":
        spark.sql(f"CREATE TABLE going (v BIGINT, p BIGINT) USING parquet LOCATION '{tmp_path}'")
    else:
        by = "PARTITIONED BY (p)" if kind == "partitioned" else ""
        spark.sql(f"CREATE TABLE going (v BIGINT, p BIGINT) USING parquet {by}")
    folder = table.local_path(table.load(spark, "going").location)
    assert folder is not None
    writer = EpochWriter(spark, "going", rows.schema)
    writer.write(rows)
    spark.sql("DROP TABLE going")
    if kind == "made again":
        spark.sql("CREATE TABLE going (v BIGINT, p BIGINT) USING parquet")
    with pytest.raises(CatalogError, match="was dropped or overwritten"):
        writer.commit()
    writer.close()
    if kind == "made again":
        assert spark.table("going").count() == 0
        assert not any(folder.iterdir())
        spark.sql("DROP TABLE going")
    elif kind == "external":
        assert not list(tmp_path.glob("*.parquet"))
    else:
        assert not folder.exists()
        spark.sql("CREATE TABLE going (v BIGINT) USING parquet")
        spark.sql("DROP TABLE going")


def test_a_table_that_is_dropped_while_rows_are_published_leaves_nothing(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = pa.record_batch({"v": [1, 2], "p": [1, 2]})
    spark.sql("CREATE TABLE racing (v BIGINT, p BIGINT) USING parquet PARTITIONED BY (p)")
    folder = table.local_path(table.load(spark, "racing").location)
    assert folder is not None
    writer = EpochWriter(spark, "racing", rows.schema)
    writer.write(rows)

    def drop(*_: Any) -> None:
        spark.sql("DROP TABLE racing")
        # As if Spark met a new file while it removes the folder.
        (folder / "_cql").mkdir(parents=True)
        (folder / "p=1").mkdir()
        raise CatalogError("no such table")

    monkeypatch.setattr(writer, "_refresh", drop)
    with pytest.raises(CatalogError, match="was dropped or overwritten"):
        writer.commit()
    writer.close()
    assert not folder.exists()


@pytest.mark.slow
def test_a_running_insert_fails_when_its_table_is_dropped(spark: Any) -> None:
    session = cql.connect(spark, epoch_ms=20)
    spark.sql("CREATE TABLE leaving (ts BIGINT) USING parquet")
    dropped = threading.Event()

    def live() -> Iterator[pa.RecordBatch]:
        for start in range(0, 10**9, 10):
            yield pa.record_batch({"ts": pa.array(range(start, start + 10))})
            if start > 1000 and not dropped.is_set():
                spark.sql("DROP TABLE leaving")
                dropped.set()

    session.create_stream("live", live, ordered_by="ts", unit="seconds", bounded=False)
    query = session.sql("INSERT INTO leaving SELECT ts FROM live")
    with pytest.raises(CatalogError, match=r"was dropped or overwritten|there is no table"):
        query.await_termination(60)
    assert not spark.catalog.tableExists("leaving")
    spark.sql("CREATE TABLE leaving (ts BIGINT) USING parquet")
    assert spark.table("leaving").count() == 0
    spark.sql("DROP TABLE leaving")


def test_streams_survive_that_their_table_is_made_anew(spark: Any) -> None:
    def write(n: int, extra: str = "id AS v") -> None:
        frame = spark.range(n).selectExpr("timestamp_seconds(id) AS ts", extra)
        frame.write.mode("overwrite").saveAsTable("anew")

    count = "SELECT count(*) AS n FROM {}"
    write(3)
    spark.sql("CREATE OR REPLACE VIEW anew_view AS SELECT ts FROM anew")
    session = cql.connect(spark)
    session.sql("CREATE STREAM anew_s FROM TABLE anew ORDERED BY ts")
    session.sql("CREATE STREAM anew_v FROM TABLE anew_view ORDERED BY ts")
    write(5)
    spark.sql("CREATE OR REPLACE VIEW anew_view AS SELECT ts FROM anew WHERE ts > '1970-01-01'")
    for other in (session, cql.connect(spark)):
        assert other.sql(count.format("anew_s")).to_arrow().to_pylist() == [{"n": 5}]
        assert other.sql(count.format("anew_v")).to_arrow().to_pylist() == [{"n": 4}]
    write(6)
    assert "anew_s" in str(session.sql("SHOW STREAMS").rows)
    assert "cql.stream.anew_s" in table.load(spark, "anew").properties
    frame = spark.sql("SELECT 1 AS other")
    frame.write.mode("overwrite").option("overwriteSchema", "true").saveAsTable("anew")
    with pytest.raises(CatalogError, match=r"was altered or made anew: .*no column ts"):
        session.sql(count.format("anew_s"))
    write(2)
    session.sql("DROP STREAM anew_s")
    with pytest.raises(cql.CqlError, match="anew_s"):
        session.sql(count.format("anew_s"))
    write(2)
    with pytest.raises(cql.CqlError, match="anew_s"):
        session.sql(count.format("anew_s"))
    spark.sql("DROP VIEW anew_view")
    spark.sql("DROP TABLE anew")
    with pytest.raises(cql.CqlError, match="anew_v"):
        session.sql(count.format("anew_v"))


def test_computed_columns_are_kept_with_the_table(spark: Any) -> None:
    """Other sessions find the computed columns and their declared order, too."""
    rows = "VALUES ('01/02/2024 10:00', 1), ('01/02/2024 10:12', 2) AS t (raw, k)"
    spark.sql(f"CREATE TABLE texts USING parquet AS SELECT * FROM {rows}")
    try:
        cql.connect(spark).sql(
            "CREATE STREAM timed (raw STRING, ts AS to_timestamp(raw, 'MM/dd/yyyy HH:mm'), k INT)"
            " FROM TABLE texts ORDERED BY ts WITHIN 1 MINUTE"
        )
        session = cql.connect(spark)
        query = session.sql("SELECT sum(k) AS n FROM timed GROUP BY window(ts, '10 minutes')")
        assert query.to_arrow()["n"].to_pylist() == [1, 2]
        assert session.sql("SELECT * FROM timed").to_arrow().column_names == ["raw", "ts", "k"]
        roles = [row["role"] for row in session.sql("DESCRIBE timed").to_arrow().to_pylist()]
        assert "watermark (ORDERED BY ts WITHIN 1 MINUTE)" in roles[1]
    finally:
        spark.sql("DROP TABLE texts")


def test_databases_of_the_session_are_shown_and_used(spark: Any) -> None:
    session = cql.connect(spark)
    spark.sql("CREATE DATABASE IF NOT EXISTS shown_db")
    spark.sql("CREATE TABLE shown_db.inside (v INT) USING parquet")
    spark.sql("CREATE TABLE outside (v INT) USING parquet")
    try:
        databases = [r[0] for r in session.sql("SHOW DATABASES").rows]
        assert {"default", "shown_db"} <= set(databases)
        assert [r[0] for r in session.sql("SHOW SCHEMAS LIKE 'shown%'").rows] == ["shown_db"]
        assert [r[0] for r in session.sql("SHOW DATABASES IN spark_catalog").rows] == databases
        inside = [r[0] for r in session.sql("SHOW TABLES IN shown_db").rows]
        assert inside == ["shown_db.inside"]
        assert "default.outside" in {r[0] for r in session.sql("SHOW TABLES FROM default").rows}
        session.sql("USE shown_db")
        assert spark.catalog.currentDatabase() == "shown_db"
        assert session.sql("SELECT count(*) AS n FROM inside").to_arrow().to_pylist() == [{"n": 0}]
        session.sql("USE spark_catalog.default")
        assert spark.catalog.currentDatabase() == "default"
        with pytest.raises(CatalogError, match="there is no database `shwn_db`") as caught:
            session.sql("USE shwn_db")
        assert "shown_db" in (caught.value.hint or "")
        with pytest.raises(CatalogError, match="there is no database"):
            session.sql("SHOW TABLES IN nowhere")
        assert spark.catalog.currentDatabase() == "default"
        with pytest.raises(CatalogError, match="no Spark"):
            cql.connect(False).sql("USE shown_db")
    finally:
        spark.catalog.setCurrentDatabase("default")
        spark.sql("DROP DATABASE shown_db CASCADE")
        spark.sql("DROP TABLE outside")


def test_an_unknown_or_hostile_name_starts_no_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    from cql.catalog.spark import known_tables
    from cql.catalog.spark import session as spark_session

    def start(*_: Any, **__: Any) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(spark_session, "start", start)
    monkeypatch.setattr(known_tables, "spark_is_up", lambda: False)
    monkeypatch.setattr(known_tables, "names", lambda: [("default", "flights")])
    monkeypatch.setattr("cql.session.names.registered", lambda: [("default", "flights")])
    session = cql.connect()
    for name in ("default.flihgts", "`${env:HOME}`.x", "`a; DROP TABLE b`.`c`", "nowhere.t"):
        for text in (f"SELECT * FROM {name}", f"INSERT INTO {name} SELECT 1", f"DESCRIBE {name}"):
            with pytest.raises(cql.CqlError) as caught:
                session.sql(text)
            if name == "default.flihgts":
                assert "default.flights" in (caught.value.hint or "")
        with pytest.raises(cql.CqlError):
            session.sql(f"DROP TABLE {name}")
    with pytest.raises(AssertionError, match="was started"):
        session.sql("SELECT * FROM default.flights")


def test_a_path_makes_a_table_of_the_session(spark: Any, tmp_path: Path) -> None:
    """Without a path, USING parquet makes a table of Spark."""
    session = cql.connect(spark)
    session.sql("CREATE TABLE in_spark (k INT) USING parquet; INSERT INTO in_spark VALUES (1)")
    assert one(spark, "SELECT sum(k) FROM in_spark") == 1
    path = f"USING parquet OPTIONS (path '{tmp_path}')"
    for name in ("default.files", "in_spark"):
        with pytest.raises(CatalogError, match=f"table {name} is Spark's") as caught:
            session.sql(f"CREATE OR REPLACE TABLE {name} (k INT) {path}")
        assert caught.value.position is not None
    assert one(spark, "SELECT sum(k) FROM in_spark") == 1
    session.sql(f"CREATE TABLE files (k INT) {path}; INSERT INTO files SELECT * FROM in_spark")
    assert not spark.catalog.tableExists("files")
    assert spark.read.parquet(str(tmp_path)).collect()[0][0] == 1
    session.sql("DROP TABLE in_spark")
    assert session.sql("SELECT * FROM files").to_arrow().to_pylist() == [{"k": 1}]
    session.close()
