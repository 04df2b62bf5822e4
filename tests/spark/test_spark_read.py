"""Spark's tables as Arrow batches: types, files, partitions, offsets, failures."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    CalendarIntervalType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

import cql
from cql.catalog.spark.tables import files as spark_files
from cql.catalog.spark.tables import table as spark_table
from cql.catalog.spark.tables.files import (
    Files,
    file_index,
    file_relation,
    table_files,
    table_schema,
)
from cql.catalog.spark.tables.read import Slice, query_batches, read_batches
from cql.catalog.spark.tables.table import Table
from cql.catalog.spark.tables.types import to_arrow, to_spark
from cql.errors import CatalogError

EVERY = StructType(
    [
        StructField("bo", BooleanType(), False),
        StructField("b", ByteType()),
        StructField("s", ShortType()),
        StructField("i", IntegerType(), True, {"comment": "how many; it's"}),
        StructField("l", LongType()),
        StructField("f", FloatType()),
        StructField("d", DoubleType()),
        StructField("dec", DecimalType(20, 4)),
        StructField("day", DateType()),
        StructField("ts", TimestampType()),
        StructField("wall", TimestampNTZType()),
        StructField("text", StringType()),
        StructField("raw", BinaryType()),
        StructField("many", ArrayType(IntegerType(), False)),
        StructField(
            "pair", StructType([StructField("x", LongType()), StructField("y", DateType())])
        ),
    ]
)

MOMENT = dt.datetime(2024, 2, 29, 12, 30, 15, 123456)

ROW: dict[str, Any] = {
    "bo": True,
    "b": -128,
    "s": 32767,
    "i": -5,
    "l": 1 << 62,
    "f": 1.5,
    "d": -2.25,
    "dec": Decimal("12345678901.2345"),
    "day": dt.date(2024, 2, 29),
    "ts": MOMENT.replace(tzinfo=dt.UTC),
    "wall": MOMENT,
    "text": "naïve ☃",
    "raw": b"\0\xff",
    "many": [1, 2],
    "pair": {"x": 1, "y": dt.date(1970, 1, 1)},
}


@pytest.fixture
def tables(spark: Any) -> Iterator[Any]:
    """Creates tables and drops them; pytest removes their folders outside the warehouse."""
    made: list[str] = []

    def create(name: str, schema: StructType, folder: Path, form: str, **more: Any) -> str:
        folder.mkdir(exist_ok=True)
        partitions = tuple(more.pop("partitions", ()))
        full = ("spark_catalog", "default", name)
        spark_table.create(spark, Table(full, schema, form, str(folder), partitions, more))
        made.append(name)
        return name

    yield create
    for name in made:
        spark.catalog.dropTable(name, ifExists=True)


def rows(slices: Iterator[Slice]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for slice_ in slices:
        assert slice_.offset == len(found)
        found += slice_.batch.to_pylist()
    return found


def files_of(spark: Any, name: str) -> Files:
    files = table_files(spark, name)
    assert files is not None
    return files


def test_schemas_go_both_ways() -> None:
    arrow = to_arrow(EVERY)
    assert arrow.field("ts").type == pa.timestamp("us", "UTC")
    assert arrow.field("wall").type == pa.timestamp("us")
    assert arrow.field("dec").type == pa.decimal128(20, 4)
    assert not arrow.field("bo").nullable
    assert arrow.field("i").metadata == {b"comment": b"how many; it's"}
    assert not arrow.field("many").type.value_field.nullable
    assert to_spark(arrow) == EVERY
    assert to_arrow(to_spark(arrow)).equals(arrow, check_metadata=True)


@pytest.mark.parametrize(
    ("arrow", "spark_type"),
    [
        (pa.dictionary(pa.int32(), pa.string()), StringType()),
        (pa.large_string(), StringType()),
        (pa.string_view(), StringType()),
        (pa.uint8(), ShortType()),
        (pa.uint32(), LongType()),
        (pa.float16(), FloatType()),
        (pa.timestamp("ns", "Europe/Zurich"), TimestampType()),
        (pa.timestamp("s"), TimestampNTZType()),
        (pa.date64(), DateType()),
        (pa.binary(4), BinaryType()),
        (pa.large_list(pa.int8()), ArrayType(ByteType())),
        (pa.decimal64(10, 2), DecimalType(10, 2)),
    ],
)
def test_arrow_types_without_a_twin_widen(arrow: pa.DataType, spark_type: Any) -> None:
    assert to_spark(pa.schema([("c", arrow)])).fields[0].dataType == spark_type


@pytest.mark.parametrize(
    "arrow",
    [pa.uint64(), pa.time64("us"), pa.duration("us"), pa.map_(pa.string(), pa.int8()), pa.null()],
)
def test_arrow_types_that_spark_cannot_hold_are_refused(arrow: pa.DataType) -> None:
    nested = pa.schema([("outer", pa.struct([("c", arrow)]))])
    with pytest.raises(CatalogError, match=r"column outer\.c has the Arrow type"):
        to_spark(nested)


@pytest.mark.parametrize(
    "kind", [MapType(StringType(), LongType()), CalendarIntervalType(), StringType("UTF8_LCASE")]
)
def test_spark_types_that_arrow_cannot_hold_are_refused(kind: Any) -> None:
    with pytest.raises(CatalogError, match=r"column m\[\] has the Spark type"):
        to_arrow(StructType([StructField("m", ArrayType(kind))]))


@pytest.mark.spark
@pytest.mark.parametrize("form", ["parquet", "orc", "json"])
def test_every_type_is_read_as_spark_reads_it(
    spark: Any, tables: Any, tmp_path: Path, form: str
) -> None:
    kept = [f for f in EVERY.fields if form != "json" or f.name != "raw"]
    schema = StructType(kept)
    data = pa.Table.from_pylist([ROW, {"bo": False}], to_arrow(EVERY))
    frame = spark.createDataFrame(data, EVERY)
    writer = frame.select(*[f.name for f in kept]).coalesce(1).write.format(form)
    # Without these options, Spark writes JSON times with milliseconds.
    writer = writer.option("timestampFormat", "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX")
    writer = writer.option("timestampNTZFormat", "yyyy-MM-dd'T'HH:mm:ss.SSSSSS")
    writer.save(str(tmp_path / "d"))
    name = tables("every_type", schema, tmp_path / "d", form)
    files = files_of(spark, name)
    assert files.format == form
    assert files.direct == (form != "json")
    assert files.schema.equals(to_arrow(spark.table(name).schema))
    expected = [{f.name: row.get(f.name) for f in kept} for row in (ROW, {"bo": False})]
    assert rows(read_batches(files, session=spark)) == expected
    assert rows(query_batches(spark, name)) == expected
    some = rows(read_batches(files, ["TEXT", "bo"], session=spark))
    assert some == [{"text": ROW["text"], "bo": True}, {"text": None, "bo": False}]


@pytest.mark.spark
def test_int96_and_nanoseconds_become_microseconds_in_utc(
    spark: Any, tables: Any, tmp_path: Path
) -> None:
    schema = StructType([StructField("ts", TimestampType())])
    values = [dt.datetime(1, 1, 1), MOMENT, dt.datetime(9999, 12, 31, 23, 59, 59, 999999)]
    folder = tmp_path / "d"
    folder.mkdir()
    micro = pa.table({"ts": pa.array(values, pa.timestamp("us"))})
    pq.write_table(micro, folder / "a.parquet", use_deprecated_int96_timestamps=True)
    pq.write_table(
        pa.table({"ts": pa.array([MOMENT], pa.timestamp("ns", "UTC"))}), folder / "b.parquet"
    )
    files = files_of(spark, tables("instants", schema, folder, "parquet"))
    found = pa.Table.from_batches([s.batch for s in read_batches(files)])
    assert found.schema.field("ts").type == pa.timestamp("us", "UTC")
    expected = [value.replace(tzinfo=dt.UTC) for value in [*values, MOMENT]]
    assert found["ts"].to_pylist() == expected
    finer = pa.table({"ts": pa.array([1], pa.timestamp("ns", "UTC"))})
    pq.write_table(finer, folder / "b.parquet")
    files = files_of(spark, tables("finer", schema, folder, "parquet"))
    with pytest.raises(CatalogError, match="would lose data") as caught:
        list(read_batches(files))
    assert (caught.value.hint or "").startswith("its times are finer than the microseconds")


@pytest.mark.spark
def test_partition_values_come_from_the_catalog(spark: Any, tables: Any, tmp_path: Path) -> None:
    schema = StructType(
        [
            StructField("v", LongType()),
            StructField("p", StringType()),
            StructField("q", DateType()),
            StructField("r", DecimalType(6, 2)),
            StructField("t", TimestampType()),
        ]
    )
    name = tables("parted", schema, tmp_path / "d", "parquet", partitions=["p", "q", "r", "t"])
    data = [
        (1, "a=b/c d", dt.date(2020, 1, 1), Decimal("1.50"), MOMENT),
        (2, None, None, None, None),
        (3, "50%'\"☃", dt.date(1969, 12, 31), Decimal("-0.01"), dt.datetime(1969, 12, 31, 23)),
        (4, "zz", dt.date(2020, 1, 2), Decimal("10.00"), MOMENT),
        (5, "zz", dt.date(2020, 1, 2), Decimal("9.00"), MOMENT),
    ]
    spark.createDataFrame(data, schema).coalesce(1).write.mode("append").insertInto(name)
    files = files_of(spark, name)
    assert files.partition_columns == ("p", "q", "r", "t")
    found = rows(read_batches(files))
    assert [row["v"] for row in found] == [2, 3, 1, 5, 4]  # by partition value, NULL first
    expected = {row.v: row.asDict() for row in spark.table(name).collect()}
    for row in found:
        if row["t"] is not None:
            row["t"] = row["t"].replace(tzinfo=None)
        assert row == expected[row["v"]]
    only = rows(read_batches(files, ["p"]))
    assert [row["p"] for row in only] == [None, "50%'\"☃", "a=b/c d", "zz", "zz"]


@pytest.mark.spark
def test_a_partition_may_lie_elsewhere(spark: Any, tables: Any, tmp_path: Path) -> None:
    schema = StructType([StructField("v", LongType()), StructField("p", IntegerType())])
    name = tables("scattered", schema, tmp_path / "d", "parquet", partitions=["p"])
    for place, value in (("d/p=1", 1), ("elsewhere", 2), ("d/p=9", 3)):
        (tmp_path / place).mkdir(parents=True)
        pq.write_table(pa.table({"v": [value]}), tmp_path / place / "a.parquet")
    add = f"alter table {name} add partition (p = {{}}) location '{tmp_path}/{{}}'"
    for value, place in ((1, "d/p=1"), (2, "elsewhere"), (3, "d/p=9")):
        spark.sql(add.format(value, place))
    found = rows(read_batches(files_of(spark, name)))
    assert found == [{"v": value, "p": value} for value in (1, 2, 3)]


@pytest.mark.spark
def test_partitions_of_simple_types_are_listed_at_once(
    spark: Any, tables: Any, tmp_path: Path
) -> None:
    fields = [
        StructField("v", LongType()),
        StructField("odd = name", StringType()),
        StructField("day", DateType()),
        StructField("dec", DecimalType(6, 2)),
        StructField("flag", BooleanType()),
        StructField("n", ShortType()),
    ]
    schema = StructType(fields)
    name = tables("simple", schema, tmp_path / "d", "parquet", partitions=schema.names[1:])
    data = [
        (1, "a=b/c d%", dt.date(1969, 12, 31), Decimal("-1.50"), True, -3),
        (2, None, None, None, None, None),
        (3, "☃", dt.date(2024, 2, 29), Decimal("0.00"), False, 7),
    ]
    spark.createDataFrame(data, schema).write.insertInto(name)
    frame = spark.table(name)
    relation = file_relation(frame)
    index = file_index(spark, relation)
    kinds = {f.name: f.dataType.typeName() for f in fields[1:]}
    at_once = spark_files._usual_partitions(spark, name, relation, index, kinds)
    assert at_once is not None
    assert {p.partition for p in files_of(spark, name).files} == set(at_once.values())
    found = {row["v"]: tuple(row.values()) for row in rows(read_batches(files_of(spark, name)))}
    assert found == {row[0]: row for row in data}


@pytest.mark.spark
def test_hidden_and_uncommitted_files_are_left_out(spark: Any, tables: Any, tmp_path: Path) -> None:
    schema = StructType([StructField("id", LongType())])
    source, sink = tmp_path / "source", tmp_path / "sink"
    spark.range(10).coalesce(1).write.parquet(str(source))
    stream = (
        spark.readStream.schema("id bigint")
        .parquet(str(source))
        .writeStream.format("parquet")
        .option("path", str(sink))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert stream.awaitTermination(120)
    pq.write_table(pa.table({"id": [99]}), sink / "left-by-a-failed-task.parquet")
    name = tables("stream_sink", schema, sink, "parquet")
    assert sorted(row["id"] for row in rows(read_batches(files_of(spark, name)))) == list(range(10))

    folder = tmp_path / "plain"
    folder.mkdir()
    pq.write_table(pa.table({"id": [1]}), folder / "a.parquet")
    for hidden in ("_b.parquet", ".c.parquet", "_staging-x/d.parquet"):
        (folder / hidden).parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({"id": [2]}), folder / hidden)
    name = tables("plain_files", schema, folder, "parquet")
    assert rows(read_batches(files_of(spark, name))) == [{"id": 1}]


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("form", ["parquet", "orc", "csv"])
def test_reading_resumes_at_any_offset(spark: Any, tables: Any, tmp_path: Path, form: str) -> None:
    schema = StructType([StructField("k", LongType()), StructField("t", StringType())])
    folder = tmp_path / "d"
    folder.mkdir()
    count = 0
    for at, length in enumerate([250, 0, 1, 700]):
        table = pa.table(
            {
                "k": pa.array(range(count, count + length), pa.int64()),
                "t": pa.array([f"n{i}" for i in range(count, count + length)], pa.string()),
            }
        )
        path = folder / f"{at}.{form}"
        if form == "parquet":
            pq.write_table(table, path, row_group_size=100)
        elif form == "orc":
            orc.write_table(table, path, stripe_size=1024)
        else:
            path.write_text("".join(f"{k},n{k}\n" for k in range(count, count + length)))
        count += length
    name = tables("resumed", schema, folder, form)
    files = files_of(spark, name)
    whole = rows(read_batches(files, session=spark))
    assert [row["k"] for row in whole] == list(range(count))
    some = (0, 251, count) if form == "csv" else (0, 1, 99, 100, 250, 600, count - 1, count + 5)
    for offset in some:
        slices = list(read_batches(files, ["t"], offset=offset, max_rows=64, session=spark))
        assert all(0 < s.batch.num_rows <= 64 for s in slices)
        assert [s.offset for s in slices[:1]] == ([offset] if offset < count else [])
        ends = [s.offset + s.batch.num_rows for s in slices]
        assert [s.offset for s in slices[1:]] == ends[:-1]
        assert [r["t"] for s in slices for r in s.batch.to_pylist()] == [
            row["t"] for row in whole[offset:]
        ]
        counted = sum(
            s.batch.num_rows for s in read_batches(files, [], offset=offset, session=spark)
        )
        assert counted == max(0, count - offset)


@pytest.mark.spark
def test_batches_have_at_most_65536_rows(spark: Any, tables: Any, tmp_path: Path) -> None:
    folder = tmp_path / "d"
    folder.mkdir()
    pq.write_table(pa.table({"k": pa.array(range(200_000), pa.int64())}), folder / "a.parquet")
    name = tables("big_file", StructType([StructField("k", LongType())]), folder, "parquet")
    for slices in (read_batches(files_of(spark, name)), query_batches(spark, name)):
        sizes = [s.batch.num_rows for s in slices]
        assert sum(sizes) == 200_000
        assert max(sizes) <= 65_536


@pytest.mark.spark
def test_older_files_lack_columns_or_have_narrower_ones(
    spark: Any, tables: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "d"
    folder.mkdir()
    pq.write_table(pa.table({"K": pa.array([1], pa.int32())}), folder / "a.parquet")
    pq.write_table(
        pa.table({"extra": ["x"], "new": ["y"], "k": pa.array([2], pa.int64())}),
        folder / "b.parquet",
    )
    schema = StructType([StructField("k", LongType()), StructField("new", StringType())])
    name = tables("evolved", schema, folder, "parquet")
    assert rows(read_batches(files_of(spark, name))) == [
        {"k": 1, "new": None},
        {"k": 2, "new": "y"},
    ]


@pytest.mark.spark
def test_a_schema_that_does_not_fit_its_files_is_named(
    spark: Any, tables: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "d"
    folder.mkdir()
    pq.write_table(pa.table({"k": ["one"]}), folder / "a.parquet")
    name = tables("misfit", StructType([StructField("k", LongType())]), folder, "parquet")
    with pytest.raises(CatalogError, match=r"column k is int64 .* string in its file .*a\.parquet"):
        rows(read_batches(files_of(spark, name)))


@pytest.mark.spark
def test_dates_in_the_old_calendar_are_refused(spark: Any, tables: Any, tmp_path: Path) -> None:
    schema = StructType([StructField("day", DateType())])
    data = [(dt.date(1500, 1, 1),)]
    spark.createDataFrame(data, schema).write.orc(str(tmp_path / "d"))
    name = tables("old_days", schema, tmp_path / "d", "orc")
    with pytest.raises(CatalogError, match="another calendar"):
        rows(read_batches(files_of(spark, name)))
    assert rows(query_batches(spark, name)) == [{"day": dt.date(1500, 1, 1)}]


@pytest.mark.spark
def test_files_that_vanish_change_or_break(spark: Any, tables: Any, tmp_path: Path) -> None:
    folder = tmp_path / "d"
    folder.mkdir()
    for at in range(3):
        pq.write_table(pa.table({"k": pa.array([at], pa.int64())}), folder / f"{at}.parquet")
    name = tables("fragile", StructType([StructField("k", LongType())]), folder, "parquet")
    files = files_of(spark, name)

    (folder / "1.parquet").unlink()
    reading = read_batches(files)
    assert next(reading).batch.to_pylist() == [{"k": 0}]
    with pytest.raises(CatalogError, match=r"fragile.*1\.parquet is gone") as gone:
        next(reading)
    assert "run the query again" in (gone.value.hint or "")
    assert len(files_of(spark, name).files) == 2

    pq.write_table(pa.table({"k": pa.array([7, 8], pa.int64())}), folder / "2.parquet")
    with pytest.raises(CatalogError, match=r"2\.parquet changed since"):
        rows(read_batches(Files(**{**_fields(files), "files": files.files[2:]})))

    whole = (folder / "0.parquet").read_bytes()
    for broken in (b"", b"not parquet at all", whole[:-20], b"PAR1" + whole[4:-30] + whole[-8:]):
        (folder / "0.parquet").write_bytes(broken)
        with pytest.raises(CatalogError, match=r"fragile.*0\.parquet cannot be read") as damaged:
            rows(read_batches(files_of(spark, name)))
        assert "damaged" in (damaged.value.hint or "")


def _fields(files: Files) -> dict[str, Any]:
    return {name: getattr(files, name) for name in Files.__slots__}


@pytest.mark.spark
def test_the_other_columns_of_a_table_with_odd_types_are_read(spark: Any) -> None:
    spark.sql(
        "CREATE TABLE odd (m MAP<STRING, INT>, v BIGINT, i INTERVAL DAY, d DECIMAL(38, 20)) "
        "USING parquet"
    )
    spark.sql("INSERT INTO odd VALUES (map('a', 1), 7, INTERVAL '1' DAY, 1.5)")
    notices: list[str] = []
    try:
        with cql.connect(spark=spark) as session:
            session.on_notice = notices.append
            query = session.sql("SELECT * FROM odd")
            assert query.to_arrow().to_pylist() == [{"v": 7}]
            assert [c for c in "mvid" if f"odd.{c}" in " ".join(notices)] == ["m", "i", "d"]
            described = session.sql("DESCRIBE odd").to_arrow().to_pylist()
            roles = {row["column"]: row["role"] for row in described}
            assert roles["v"] == ""
            assert "map<string,int>" in roles["m"]
            assert "20 decimal places" in roles["d"]
        with pytest.raises(CatalogError, match=r"column m has the Spark type map<string,int>"):
            next(read_batches(files_of(spark, "odd"), ["v", "m"]))
    finally:
        spark.catalog.dropTable("odd")


@pytest.mark.spark
def test_a_table_that_changed_since_the_query_was_planned_is_named(spark: Any) -> None:
    spark.sql("CREATE TABLE changes (v BIGINT) USING parquet")
    try:
        with cql.connect(spark=spark) as session:
            query = session.sql("SELECT v FROM changes")
            spark.catalog.dropTable("changes")
            with pytest.raises(CatalogError, match="there is no table `changes`"):
                query.to_arrow()
            spark.sql("CREATE TABLE changes (v STRING) USING parquet")
            spark.sql("INSERT INTO changes VALUES ('12')")
            with pytest.raises(CatalogError, match="column v of table `changes` is string, not"):
                query.to_arrow()
    finally:
        spark.catalog.dropTable("changes", ifExists=True)


@pytest.mark.spark
def test_the_path_of_files_is_no_table(spark: Any, tmp_path: Path) -> None:
    pq.write_table(pa.table({"v": [1]}), tmp_path / "f.parquet")
    for name in (("parquet", str(tmp_path)), ("spark_catalog", "parquet", str(tmp_path))):
        with pytest.raises(CatalogError, match="there is no table"):
            table_files(spark, name)


@pytest.mark.spark
def test_unknown_tables_and_columns(spark: Any, tables: Any, tmp_path: Path) -> None:
    schema = StructType([StructField("k", LongType())])
    name = tables("known_table", schema, tmp_path / "d", "parquet")
    with pytest.raises(CatalogError, match="no table `known_tabel`") as missing:
        table_files(spark, "known_tabel")
    assert "known_table" in (missing.value.hint or "")
    files = files_of(spark, name)
    assert rows(read_batches(files)) == []
    with pytest.raises(CatalogError, match="no column 'x'"):
        next(read_batches(files, ["x"]))
    spark.catalog.dropTable(name)
    with pytest.raises(CatalogError, match="no table"):
        table_schema(spark, name)


@pytest.mark.spark
def test_views_are_computed_by_spark(spark: Any, tables: Any, tmp_path: Path) -> None:
    frame = spark.range(1000).withColumn("g", functions.col("id") % 3).repartition(4)
    frame.withColumnRenamed("g", 'odd `name."').createOrReplaceTempView("computed")
    assert table_files(spark, "computed") is None
    assert table_schema(spark, "computed").names == ["id", 'odd `name."']
    found = rows(query_batches(spark, "computed", max_rows=50))
    assert sorted(row["id"] for row in found) == list(range(1000))
    assert all(row['odd `name."'] == row["id"] % 3 for row in found)
    assert list(found[0]) == ["id", 'odd `name."']
    slices = list(query_batches(spark, "computed", [], offset=990))
    assert sum(s.batch.num_rows for s in slices) == 10
    first = next(query_batches(spark, "computed", max_rows=10))
    assert first.batch.num_rows == 10
    spark.range(3).select(
        functions.raise_error(functions.lit("boom")).cast("int").alias("x")
    ).createOrReplaceTempView("failing")
    with pytest.raises(CatalogError, match=r"while reading `failing`.*boom"):
        rows(query_batches(spark, "failing"))


@pytest.mark.spark
def test_columns_with_odd_names(spark: Any, tables: Any, tmp_path: Path) -> None:
    names = ["a.b", "a", "select", "x; DROP TABLE canary", "back`tick", "a,b c"]
    schema = StructType([StructField(name, LongType()) for name in names])
    folder = tmp_path / "d"
    folder.mkdir()
    table = pa.table({name: pa.array([at], pa.int64()) for at, name in enumerate(names)})
    pq.write_table(table, folder / "a.parquet")
    name = tables("odd_columns", schema, folder, "parquet")
    expected = {column: at for at, column in enumerate(names)}
    assert rows(read_batches(files_of(spark, name))) == [expected]
    assert rows(query_batches(spark, name, names[::-1])) == [expected]
    for column in names:
        assert rows(read_batches(files_of(spark, name), [column])) == [{column: expected[column]}]


@pytest.mark.spark
@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_folders_and_files_with_odd_characters(
    spark: Any, tables: Any, tmp_path: Path, form: str
) -> None:
    folder = tmp_path / "100% of ☃ a+b #1"
    folder.mkdir()
    for at, stem in enumerate(["x%20y z", "ü=&;", 'it\'s "q"']):
        path = folder / f"{at}{stem}.{form}"
        if form == "csv":
            path.write_text(f"{at}\n")
        else:
            pq.write_table(pa.table({"k": pa.array([at], pa.int64())}), path)
    name = tables("odd_folder", StructType([StructField("k", LongType())]), folder, form)
    files = files_of(spark, name)
    assert {f.path for f in files.files} == {str(path) for path in folder.iterdir()}
    assert rows(read_batches(files, session=spark)) == [{"k": 0}, {"k": 1}, {"k": 2}]
