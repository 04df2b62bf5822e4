"""Epochs appended to Spark tables: atomic, by column name, in the table's own types."""

from __future__ import annotations

import datetime as dt
import json
import os
import resource
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import (
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from cql.catalog.spark import registry, session
from cql.catalog.spark.tables import staging, table
from cql.catalog.spark.tables.files import table_files
from cql.catalog.spark.tables.read import read_batches
from cql.catalog.spark.tables.table import Table
from cql.catalog.spark.tables.write import EpochWriter
from cql.errors import CatalogError
from tests.support.paths import ROOT

KEYS = pa.schema([pa.field("k", pa.int64()), pa.field("t", pa.string())])


@pytest.fixture
def name(spark: Any, request: pytest.FixtureRequest) -> Iterator[str]:
    """A table name of the test's own; the table and its folder are dropped afterwards."""
    own = "w_" + "".join(c if c.isalnum() else "_" for c in request.node.name)
    yield own
    registry.drop(spark, own)


def batch(*keys: int) -> pa.RecordBatch:
    return pa.record_batch({"k": list(keys), "t": [f"n{k}" for k in keys]}, schema=KEYS)


def selected(spark: Any, name: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in spark.sql(f"select * from {name}").collect())


def keys(spark: Any, name: str) -> list[int]:
    return [row[0] for row in selected(spark, name)]


def folder_of(spark: Any, name: str) -> Path:
    location = table.load(spark, name).location
    assert location is not None
    path = table.local_path(location)
    assert path is not None
    return path


def visible(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir() if entry.name[0] not in "_.")


def make(spark: Any, name: str, schema: StructType, folder: Path, **more: Any) -> str:
    folder.mkdir(exist_ok=True)
    partitions = tuple(more.pop("partitions", ()))
    provider = more.pop("provider", "parquet")
    full = ("spark_catalog", "default", name)
    table.create(spark, Table(full, schema, provider, str(folder), partitions, more))
    return name


@pytest.mark.spark
def test_epochs_appear_one_by_one_with_just_the_declared_columns(spark: Any, name: str) -> None:
    schema = pa.schema(
        [
            pa.field("k", pa.int64(), nullable=False, metadata={"comment": "the key; it's"}),
            pa.field("t", pa.dictionary(pa.int32(), pa.string())),
            pa.field("at", pa.timestamp("ns", "Europe/Zurich")),
        ]
    )
    moment = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
    with EpochWriter(spark, name, schema, create=True) as writer:
        assert writer.last_epoch == 0
        assert selected(spark, name) == []
        for at in (1, 2):
            writer.write(
                pa.record_batch({"k": [at], "t": [f"n{at}"], "at": [moment]}, schema=schema)
            )
            assert len(selected(spark, name)) == at - 1
            done = writer.commit()
            assert (done.epoch, done.rows, done.new, len(done.files)) == (at, 1, True, 1)
            assert len(selected(spark, name)) == at
    assert [f.name for f in spark.table(name).schema.fields] == ["k", "t", "at"]
    assert spark.table(name).schema.fields[0].metadata == {"comment": "the key; it's"}
    assert spark.sql(f"select * from {name} where k = 2").collect()[0][:2] == (2, "n2")
    assert spark.table(name).toArrow()["at"].to_pylist() == [moment, moment]
    files = table_files(spark, name)
    assert files is not None
    found = [row for s in read_batches(files) for row in s.batch.to_pylist()]
    assert [row["k"] for row in found] == [1, 2]
    assert found[0]["at"] == moment
    assert not list(folder_of(spark, name).glob("_staging-*"))


@pytest.mark.spark
def test_a_large_epoch_is_several_files_and_still_one_rename(spark: Any, name: str) -> None:
    with EpochWriter(spark, name, KEYS, create=True, max_rows_per_file=10) as writer:
        writer.write(batch(*range(25)))
        writer.write(batch(*range(25, 31)))
        done = writer.commit()
        assert (done.rows, len(done.files)) == (31, 1)
        folder = folder_of(spark, name) / done.files[0]
        assert [pq.read_metadata(f).num_rows for f in sorted(folder.iterdir())] == [10, 10, 10, 1]
        assert keys(spark, name) == list(range(31))
        writer.write(batch(31))
        writer.commit()
    assert keys(spark, name) == list(range(32))
    files = table_files(spark, name)
    assert files is not None
    assert [s.batch["k"].to_pylist() for s in read_batches(files)][-1] == [31]
    read = [k for s in read_batches(files) for k in s.batch["k"].to_pylist()]
    assert read == list(range(32))


@pytest.mark.spark
def test_files_roll_over_by_bytes(spark: Any, name: str) -> None:
    with EpochWriter(spark, name, KEYS, create=True, max_bytes_per_file=20_000) as writer:
        for at in range(20):
            writer.write(batch(*range(at * 500, at * 500 + 500)))
        done = writer.commit()
    folder = folder_of(spark, name) / done.files[0]
    assert len(list(folder.iterdir())) > 3
    assert keys(spark, name) == list(range(10_000))


@pytest.mark.spark
def test_a_replayed_epoch_is_published_once(spark: Any, name: str) -> None:
    with EpochWriter(spark, name, KEYS, create=True) as writer:
        writer.write(batch(1))
        assert writer.commit(epoch=7).new
    with EpochWriter(spark, name, KEYS) as writer:
        assert writer.last_epoch == 7
        writer.write(batch(1))
        assert not writer.commit(epoch=7).new
        writer.write(batch(2))
        assert writer.commit().epoch == 8
        assert writer.commit(epoch=9).rows == 0
    assert keys(spark, name) == [1, 2]


@pytest.mark.spark
def test_rows_that_are_in_are_not_called_lost(
    spark: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(_: EpochWriter) -> None:
        raise CatalogError("Spark's Java process was killed")

    with EpochWriter(spark, name, KEYS, create=True) as writer:
        writer.write(batch(1, 2))
        monkeypatch.setattr(EpochWriter, "_refresh", lost)
        with pytest.raises(CatalogError) as said:
            writer.commit()
    assert "the rows are in table" in said.value.message
    assert "do not insert them again" in (said.value.hint or "")
    spark.catalog.refreshTable(name)
    assert keys(spark, name) == [1, 2]


@pytest.mark.spark
def test_aborted_rows_never_show(spark: Any, name: str) -> None:
    with EpochWriter(spark, name, KEYS, create=True) as writer:
        writer.write(batch(1))
        writer.abort()
        writer.write(batch(2))
        assert writer.commit().rows == 1
        writer.write(batch(3))
    assert keys(spark, name) == [2]
    assert len(visible(folder_of(spark, name))) == 1


@pytest.mark.spark
def test_columns_go_by_name_and_missing_ones_are_null(
    spark: Any, name: str, tmp_path: Path
) -> None:
    schema = StructType(
        [
            StructField("a", LongType()),
            StructField("b", DoubleType()),
            StructField("c", DecimalType(20, 4)),
            StructField("d", StringType()),
        ]
    )
    make(spark, name, schema, tmp_path / "d")
    spark.createDataFrame([(0, 0.5, None, "old")], schema).write.insertInto(name)
    rows = pa.record_batch(
        {
            "D": pa.array(["x"]).dictionary_encode(),
            "b": pa.array([1.5], pa.float32()),
            "A": pa.array([1], pa.uint8()),
            "c": pa.array([7], pa.int16()),
        }
    )
    with EpochWriter(spark, name, rows.schema) as writer:
        writer.write(rows)
        done = writer.commit()
        writer.write(pa.record_batch({"d": ["y"]}))
        writer.commit()
    assert len(done.files) == 1
    assert sorted(spark.table(name).collect(), key=lambda row: row.d) == [
        (0, 0.5, None, "old"),
        (1, 1.5, Decimal("7.0000"), "x"),
        (None, None, None, "y"),
    ]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("given", "column", "what"),
    [
        (pa.schema([("k", pa.string())]), "k", "is int32, and the query gives string"),
        (pa.schema([("k", pa.int64())]), "k", "is int32, and the query gives int64"),
        (pa.schema([("f", pa.decimal128(9, 2))]), "f", "is double"),
        (pa.schema([("at", pa.timestamp("us"))]), "at", r"is timestamp\[us, tz=UTC\]"),
        (pa.schema([("at", pa.int64())]), "at", r"is timestamp\[us, tz=UTC\]"),
        (pa.schema([("t", pa.int64())]), "t", "is string"),
        (pa.schema([("t", pa.binary())]), "t", "is string"),
        (pa.schema([("dd", pa.timestamp("us"))]), "dd", "is date32"),
    ],
)
def test_types_that_may_not_fit_are_refused_by_column(
    spark: Any, name: str, tmp_path: Path, given: pa.Schema, column: str, what: str
) -> None:
    schema = StructType(
        [
            StructField("k", IntegerType()),
            StructField("f", DoubleType()),
            StructField("at", TimestampType()),
            StructField("t", StringType()),
            StructField("dd", DateType()),
        ]
    )
    make(spark, name, schema, tmp_path / "d")
    with pytest.raises(CatalogError, match=rf"column {column} {what}") as refused:
        EpochWriter(spark, name, given)
    assert f"CAST {column}" in (refused.value.hint or "")


@pytest.mark.spark
def test_unknown_doubled_and_unfit_columns(spark: Any, name: str, tmp_path: Path) -> None:
    schema = StructType([StructField("key", LongType()), StructField("at", TimestampType())])
    make(spark, name, schema, tmp_path / "d")
    with pytest.raises(CatalogError, match="no column 'kex'") as unknown:
        EpochWriter(spark, name, pa.schema([("kex", pa.int64())]))
    assert "key" in (unknown.value.hint or "")
    with pytest.raises(CatalogError, match="two columns of the query are named 'key'"):
        EpochWriter(spark, name, pa.schema([("key", pa.int64()), ("KEY", pa.int64())]))
    nanos = pa.schema([("at", pa.timestamp("ns", "UTC"))])
    with EpochWriter(spark, name, nanos) as writer:
        with pytest.raises(CatalogError, match="a value of column at does not fit"):
            writer.write(pa.record_batch({"at": [1001]}, schema=nanos))
        writer.write(pa.record_batch({"at": [1000]}, schema=nanos))
        assert writer.commit().rows == 1
    with pytest.raises(CatalogError, match="there is no table"):
        EpochWriter(spark, "not_there", KEYS)
    with pytest.raises(CatalogError, match="would have the column k twice"):
        EpochWriter(spark, "not_there", pa.schema([("k", pa.int8()), ("K", pa.int8())]), True)
    assert not registry.ensure(spark, "not_there")


@pytest.mark.spark
def test_null_in_a_not_null_column_is_refused(spark: Any, name: str) -> None:
    schema = pa.schema([pa.field("k", pa.int64(), nullable=False), ("t", pa.string())])
    with EpochWriter(spark, name, schema, create=True) as writer:
        with pytest.raises(CatalogError, match="column k is NOT NULL, and a row has NULL"):
            writer.write(pa.record_batch({"k": pa.array([None], pa.int64()), "t": ["x"]}))
        with pytest.raises(CatalogError, match="column k is NOT NULL, and the query does not"):
            writer.write(pa.record_batch({"t": ["x"]}))


@pytest.mark.spark
def test_partitioned_tables_of_users(spark: Any, name: str, tmp_path: Path) -> None:
    schema = StructType(
        [
            StructField("v", LongType()),
            StructField("p", StringType()),
            StructField("day", DateType()),
        ]
    )
    make(spark, name, schema, tmp_path / "d", partitions=["p", "day"])
    day, early = dt.date(2024, 2, 29), dt.date(1969, 12, 31)
    spark.createDataFrame([(0, "a/b", day)], schema).write.insertInto(name)
    texts = ["a/b", "it's; DROP TABLE x`", "${env:HOME}", "50%=☃\\", None, ""]
    rows = pa.record_batch(
        {
            "p": pa.array(texts * 2),
            "day": pa.array([day, early] * 6, pa.date32()),
            "v": pa.array(range(1, 13), pa.int64()),
        }
    )
    with EpochWriter(spark, name, rows.schema) as writer:
        writer.write(rows)
        writer.write(rows.slice(0, 1))
        done = writer.commit()
        assert (done.rows, done.new) == (13, True)
        assert len(done.files) == 6  # one per partition; '' goes to NULL's, as in Spark
        writer.write(rows.slice(3, 1))
        writer.commit()
    found = sorted((r.v, r.p, r.day) for r in spark.table(name).collect())
    values = rows.to_pylist()
    expected = [(r["v"], r["p"] or None, r["day"]) for r in [*values, values[0], values[3]]]
    assert found == sorted([*expected, (0, "a/b", day)])
    assert len(spark.catalog.listPartitions(name)) == 6
    files = table_files(spark, name)
    assert files is not None
    assert sum(s.batch.num_rows for s in read_batches(files)) == 15


@pytest.mark.spark
def test_many_partitions_need_few_open_files(spark: Any, name: str, tmp_path: Path) -> None:
    schema = StructType([StructField("v", LongType()), StructField("p", IntegerType())])
    make(spark, name, schema, tmp_path / "d", partitions=["p"])
    rows = pa.record_batch(
        {
            "v": pa.array(range(400), pa.int64()),
            "p": pa.array([i % 100 for i in range(400)], "int32"),
        }
    )
    with EpochWriter(spark, name, rows.schema) as writer:
        writer.write(rows)
        writer.write(rows)
        assert writer.commit().rows == 800
    assert spark.table(name).count() == 800
    assert {(r.v % 100, r.p) for r in spark.table(name).collect()} == {(p, p) for p in range(100)}


@pytest.mark.spark
def test_tables_that_cannot_take_streams(spark: Any, name: str, tmp_path: Path) -> None:
    plain = StructType([StructField("k", LongType())])
    with pytest.raises(CatalogError, match="holds orc files"):
        EpochWriter(spark, make(spark, name, plain, tmp_path / "o", provider="orc"), KEYS)
    registry.drop(spark, name)
    both = StructType([StructField("k", LongType()), StructField("x", DoubleType())])
    make(spark, name, both, tmp_path / "x", partitions=["x"])
    with pytest.raises(CatalogError, match="partition column x is double"):
        EpochWriter(spark, name, KEYS)
    registry.drop(spark, name)
    (tmp_path / "s" / "_spark_metadata").mkdir(parents=True)
    make(spark, name, plain, tmp_path / "s")
    with pytest.raises(CatalogError, match="is the sink of a Spark stream"):
        EpochWriter(spark, name, KEYS)
    spark.range(3).createOrReplaceTempView("some_view")
    with pytest.raises(CatalogError, match="is a view"):
        EpochWriter(spark, "some_view", KEYS)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("bad", ["x; DROP TABLE canary", "x`y", "../up", "a b", "${env:HOME}"])
def test_hostile_names_create_nothing(spark: Any, bad: str) -> None:
    spark.range(1).write.mode("overwrite").saveAsTable("canary")
    warehouse = session.warehouse_of(spark)
    before = sorted(warehouse.parent.iterdir())
    with pytest.raises(CatalogError):
        EpochWriter(spark, (bad,), KEYS, create=True)
    assert spark.table("canary").count() == 1
    assert sorted(warehouse.parent.iterdir()) == before
    assert not [e.name for e in warehouse.iterdir() if bad.lower() in e.name]
    with EpochWriter(spark, "hostile_columns", _hostile_columns(), create=True) as writer:
        writer.write(pa.record_batch([[at] for at in range(4)], schema=_hostile_columns()))
        writer.commit()
    assert selected(spark, "hostile_columns") == [(0, 1, 2, 3)]
    assert spark.table("hostile_columns").columns == _hostile_columns().names
    registry.drop(spark, "hostile_columns")
    assert spark.table("canary").count() == 1


def _hostile_columns() -> pa.Schema:
    names = ["x`y", "k; DROP TABLE canary; --", 'it\'s "q"', "a.b"]
    return pa.schema([(name, pa.int64()) for name in names])


@pytest.mark.spark
def test_a_table_needs_a_database_that_is_there(spark: Any) -> None:
    for place in (("nowhere",), ("nowhere", "default")):
        with pytest.raises(CatalogError, match="there is no database"):
            EpochWriter(spark, (*place, "t"), KEYS, create=True)


@pytest.mark.spark
def test_a_folder_in_the_way_is_named(spark: Any, name: str) -> None:
    folder = session.warehouse_of(spark) / name
    folder.mkdir()
    (folder / "something").touch()
    with pytest.raises(CatalogError, match="has files in it"):
        EpochWriter(spark, name, KEYS, create=True)
    (folder / "something").unlink()
    EpochWriter(spark, name, KEYS, create=True).close()
    assert selected(spark, name) == []


@pytest.mark.spark
def test_a_full_disk_is_said_and_leaves_nothing(spark: Any, name: str) -> None:
    with EpochWriter(spark, name, KEYS, create=True) as writer:
        writer.write(batch(1))
        writer.commit()
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        big = batch(*range(200_000))
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
        try:
            writer.write(big)
            with pytest.raises(CatalogError, match="is full, or a limit on file size") as full:
                writer.commit()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert "nothing of this epoch is visible" in (full.value.hint or "")
        assert keys(spark, name) == [1]
        writer.write(batch(2))
        assert writer.commit().epoch == 2
    assert keys(spark, name) == [1, 2]


@pytest.mark.spark
def test_a_folder_that_may_not_be_written(
    spark: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    EpochWriter(spark, name, KEYS, create=True).close()

    def refuse(self: Path, *_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    # Permissions do not bind root.
    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(CatalogError, match=r"may not write to .*Permission denied") as denied:
        EpochWriter(spark, name, KEYS)
    assert "write permission" in (denied.value.hint or "")


@pytest.mark.spark
def test_staging_of_dead_writers_goes_and_of_live_ones_stays(spark: Any, name: str) -> None:
    live = EpochWriter(spark, name, KEYS, create=True)
    live.write(batch(1))
    folder = folder_of(spark, name)
    own = {entry.name for entry in folder.glob("_staging-*")}
    dead = folder / "_staging-dead"
    dead.mkdir()
    (dead / "owner").touch()
    (dead / "part.parquet").write_bytes(b"half")
    (folder / "_staging-older").mkdir()
    with EpochWriter(spark, name, KEYS) as other:
        left = {entry.name for entry in folder.glob("_staging-*")}
        assert own < left
        assert len(left) == 2
        other.write(batch(2))
        assert other.commit().epoch == 1
    assert live.commit().epoch == 2
    live.close()
    assert keys(spark, name) == [1, 2]
    assert list(folder.glob("_staging-*")) == []


CRASH = """
    import os, signal, sys
    from pathlib import Path
    import pyarrow as pa
    import pyarrow.parquet as pq
    from cql.catalog.spark.tables import staging as spark_staging

    folder, when = Path(sys.argv[1]), sys.argv[2]
    staging = spark_staging.Staging("t", folder)
    files = []
    for at in range(3):
        file = staging.path / f"{at}.parquet"
        pq.write_table(pa.table({"v": [at]}), file)
        files.append((file, folder / f"p={at}" / f"{at}.parquet"))
    real = os.rename
    def rename(*paths, **folders):
        if when == "before" or Path(paths[0]).name == "1.parquet":
            os.kill(os.getpid(), signal.SIGKILL)
        real(*paths, **folders)
    os.rename = rename
    if when == "staged":
        os.kill(os.getpid(), signal.SIGKILL)
    staging.commit(None, files, [{"p": str(at)} for at in range(3)])
"""


@pytest.mark.spark
@pytest.mark.parametrize(("when", "left"), [("staged", 0), ("before", 3), ("between", 3)])
def test_a_crash_loses_no_committed_epoch_and_shows_no_other(
    spark: Any, name: str, tmp_path: Path, when: str, left: int
) -> None:
    schema = StructType([StructField("v", LongType()), StructField("p", IntegerType())])
    folder = tmp_path / "d"
    make(spark, name, schema, folder, partitions=["p"])
    crashed = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(CRASH), str(folder), when],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert crashed.returncode == -9
    given = pa.schema([("v", pa.int64()), ("p", pa.int32())])
    with EpochWriter(spark, name, given) as writer:
        assert writer.last_epoch == (1 if left else 0)
    assert sorted((r.v, r.p) for r in spark.table(name).collect()) == [
        (at, at) for at in range(left)
    ]
    assert list(folder.glob("_staging-*")) == []


@pytest.mark.spark
def test_renames_that_fail_are_made_up_later(
    spark: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = EpochWriter(spark, name, KEYS, create=True)
    writer.write(batch(1))

    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied", "somewhere")

    with monkeypatch.context() as patch:
        patch.setattr(staging.os, "rename", refuse)
        with pytest.raises(CatalogError, match="may not write"):
            writer.commit()
    assert keys(spark, name) == []
    writer.close()
    with EpochWriter(spark, name, KEYS) as writer:
        assert writer.last_epoch == 1
        writer.write(batch(2))
        writer.commit()
    assert keys(spark, name) == [1, 2]


@pytest.mark.spark
def test_a_damaged_record_of_epochs_is_named(spark: Any, name: str) -> None:
    EpochWriter(spark, name, KEYS, create=True).close()
    record = folder_of(spark, name) / "_cql" / "epoch.json"
    for text in ("", "[]", json.dumps({"format": 2})):
        record.write_text(text, encoding="utf-8")
        with pytest.raises(CatalogError, match=r"epoch\.json is damaged"):
            EpochWriter(spark, name, KEYS)
    record.unlink()


@pytest.mark.spark
def test_spark_can_insert_between_epochs(spark: Any, name: str) -> None:
    with EpochWriter(spark, name, KEYS, create=True, max_rows_per_file=2) as writer:
        writer.write(batch(1, 2, 3))
        writer.commit()
        spark.createDataFrame([(4, "n4")], spark.table(name).schema).write.insertInto(name)
        writer.write(batch(5))
        writer.commit()
    assert keys(spark, name) == [1, 2, 3, 4, 5]
    spark.createDataFrame([(9, "n9")], spark.table(name).schema).write.insertInto(
        name, overwrite=True
    )
    assert keys(spark, name) == [9]
    with EpochWriter(spark, name, KEYS) as writer:
        writer.write(batch(10))
        writer.commit()
    assert keys(spark, name) == [9, 10]
