"""Sources: tables, frames, readers, iterables and files, all replayable by offset."""

from __future__ import annotations

import datetime as dt
import gzip
import random
import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
from catalog_tools import FakeClock, check_replay, drain, plain, read, rows_of

from cql.catalog import blocks as blocks_module
from cql.catalog import iterables as iterables_module
from cql.catalog.files import FileSource
from cql.catalog.follow import FollowSource
from cql.catalog.iterables import IterableSource
from cql.catalog.local import source_of
from cql.catalog.replay import ReplaySource
from cql.catalog.sources import ReaderSource, TableSource, as_table
from cql.errors import CatalogError
from cql.executor.protocols import BLOCK_ROWS
from cql.model import Field, Schema
from cql.types import BIGINT, DATE, DOUBLE, INT, STRING, TIMESTAMP, TIMESTAMP_NTZ, decimal

UTC = dt.UTC


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> int:
    """Blocks of 8 rows, so that every cut is met with little data."""
    monkeypatch.setattr(blocks_module, "BLOCK_ROWS", 8)
    monkeypatch.setattr(iterables_module, "BLOCK_ROWS", 8)
    return 8


def sample(rows: int) -> pa.Table:
    return pa.table(
        {
            "n": pa.array(range(rows), pa.int64()),
            "s": [None if i % 5 == 0 else f"v{i % 3}" for i in range(rows)],
            "b": [i % 2 == 0 for i in range(rows)],
        }
    )


def chunked(table: pa.Table, rng: random.Random) -> pa.Table:
    """The table in random chunks, empty ones and dictionary-encoded ones among them."""
    cuts = sorted(rng.choices(range(table.num_rows + 1), k=rng.randint(0, 6)))
    parts = zip([0, *cuts], [*cuts, table.num_rows], strict=True)
    batches = [b for lo, hi in parts for b in table.slice(lo, hi - lo).to_batches()]
    return pa.Table.from_batches(batches, table.schema)


# tables


def test_blocks_are_zero_copy_slices_at_multiples() -> None:
    table = pa.table({"n": np.arange(2 * BLOCK_ROWS + 5)})
    blocks = drain(TableSource(table, what="t").open(["n"]))
    assert [b.batch.num_rows for b in blocks] == [BLOCK_ROWS, BLOCK_ROWS, 5]
    address = table["n"].chunk(0).buffers()[1].address
    assert all(b.batch.column(0).buffers()[1].address == address for b in blocks)


@pytest.mark.usefixtures("small_blocks")
def test_replay_over_chunkings_and_offsets(seed: int) -> None:
    rng = random.Random(seed)
    table = sample(43)
    expected = table.to_pylist()
    for _ in range(20):
        source = TableSource(chunked(table, rng), what="t")
        assert check_replay(source) == expected
        row = rng.randint(0, 43)
        blocks = drain(source.open(["n", "s", "b"], {"row": row}))
        assert rows_of(blocks) == expected[row:]
        assert all(b.offset["row"] % 8 == 0 for b in blocks[:-1])


@pytest.mark.usefixtures("small_blocks")
def test_mixed_dictionaries_within_a_block() -> None:
    encoded = pa.table({"s": pa.array(["a", "b", None]).dictionary_encode()})
    other = pa.table({"s": pa.array(["c", "a"]).dictionary_encode()})
    nested = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), pa.array(["x", None]))
    table = pa.Table.from_batches([*encoded.to_batches(), *other.to_batches()])
    (block,) = drain(TableSource(table, what="t").open(["s"]))
    assert block.batch.column(0).type == pa.dictionary(pa.int32(), pa.string())
    assert read(TableSource(table, what="t")) == [{"s": v} for v in ["a", "b", None, "c", "a"]]
    odd = TableSource(pa.table({"s": nested}), what="t").open(["s"]).next()
    assert odd is not None
    assert odd.batch.column(0).type == pa.string()
    assert odd.batch.column(0).null_count == 1


def test_types_are_normalised() -> None:
    stamp = dt.datetime(2024, 1, 1, 12, tzinfo=UTC)
    table = pa.table(
        {
            "ns": pa.array([stamp], pa.timestamp("ns", tz="Europe/Berlin")),
            "s": pa.array([stamp.replace(tzinfo=None)], pa.timestamp("s")),
            "u": pa.array([2**32 - 1], pa.uint32()),
            "big": pa.array(["x"], pa.large_string()),
            "view": pa.array(["y"], pa.string_view()),
            "bytes": pa.array([b"ab"], pa.binary(2)),
            "h": pa.array([np.float16(1.5)], pa.float16()),
            "code": pa.array([7], pa.int64()).dictionary_encode(),
            "d": pa.array([dt.date(2024, 1, 2)], pa.date64()),
        }
    )
    source = TableSource(table, what="t")
    (block,) = drain(source.open(source.schema.names))
    assert block.batch.schema.types == [f.type.to_arrow() for f in source.schema]
    assert source.schema[0].type == TIMESTAMP
    assert source.schema[1].type == TIMESTAMP_NTZ
    assert plain(block.batch).to_pylist()[0]["u"] == 2**32 - 1
    assert plain(block.batch).to_pylist()[0]["ns"] == stamp


def test_digits_below_a_microsecond_are_refused_with_row_and_remedy() -> None:
    table = pa.table({"t": pa.array([1000, 2000, 3001], pa.timestamp("ns"))})
    with pytest.raises(CatalogError, match=r"row 2, column t.*\n.*floor_temporal"):
        read(TableSource(table, what="t"))


def test_unsupported_columns_are_named_and_left_out() -> None:
    table = pa.table({"a": [1], "l": [[1]], "q": pa.array([Decimal(1)], pa.decimal128(38, 2))})
    source = TableSource(table, what="t")
    assert source.schema.names == ("a",)
    assert set(source.unsupported) == {"l", "q"}
    assert "list<" in source.unsupported["l"]
    with pytest.raises(CatalogError, match="no column l"):
        source.open(["l"])


def test_duplicate_names_are_refused() -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"])
    with pytest.raises(CatalogError, match="two columns named a"):
        TableSource(table, what="t")


def test_null_in_a_not_null_column() -> None:
    schema = pa.schema([pa.field("a", pa.int64(), nullable=False)])
    table = pa.Table.from_arrays([pa.array([1, None])], schema=schema)
    with pytest.raises(CatalogError, match="row 1, column a: NULL"):
        read(TableSource(table, what="t"))


def test_failed_reader_stays_failed(tmp_path: Path) -> None:
    path = write(sample(3), tmp_path / "a.parquet", "parquet")
    reader = FileSource({"path": path}, what="t").open(["n"])
    path.unlink()
    for _ in range(2):
        with pytest.raises(CatalogError, match="gone"):
            reader.next()


def test_no_columns_still_count() -> None:
    source = TableSource(sample(BLOCK_ROWS + 3), what="t")
    assert [b.batch.num_rows for b in drain(source.open([]))] == [BLOCK_ROWS, 3]


def test_statistics_of_tables() -> None:
    statistics = TableSource(sample(10), what="t").statistics()
    assert statistics.rows == 10
    assert statistics.nulls == {"n": 0, "s": 2, "b": 0}


def test_declared_schema_widens_and_refuses() -> None:
    table = pa.table({"a": pa.array([1], pa.int32()), "b": ["x"]})
    source = TableSource(table, what="t", declared=Schema((Field("A", BIGINT),)))
    assert read(source) == [{"A": 1}]
    with pytest.raises(CatalogError, match=r"holds string, declared is bigint\n.*CAST"):
        TableSource(table, what="t", declared=Schema((Field("b", BIGINT),)))
    with pytest.raises(CatalogError, match="no column c"):
        TableSource(table, what="t", declared=Schema((Field("c", BIGINT),)))


def test_offset_behind_the_end() -> None:
    with pytest.raises(CatalogError, match="has 3 rows"):
        TableSource(sample(3), what="t").open(["n"], {"row": 4})


def test_batch_reader_is_read_once() -> None:
    table = sample(20)
    source = ReaderSource(table.to_reader(max_chunksize=3), what="r")
    assert read(source) == table.to_pylist()
    with pytest.raises(CatalogError, match="only once"):
        source.open(["n"])


def test_frames_and_mappings() -> None:
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    index = pandas.Index([10, 20], name="k")
    frame = pandas.DataFrame({"a": [1.0, float("nan")], "s": ["x", None]}, index=index)
    rows = read(source_of(frame, what="f"))
    assert rows == [{"a": 1.0, "s": "x", "k": 10}, {"a": None, "s": None, "k": 20}]
    data = {"a": [1, None], "s": ["x", None]}
    expected = [{"a": 1, "s": "x"}, {"a": None, "s": None}]
    assert read(source_of(polars.DataFrame(data), what="p")) == expected
    assert read(source_of(polars.LazyFrame(data), what="p")) == expected
    assert read(source_of(data, what="m")) == expected
    assert read(source_of(sample(3).to_batches(), what="l")) == sample(3).to_pylist()
    with pytest.raises(CatalogError, match="cannot be taken as Arrow"):
        as_table({"a": [1], "b": [1, 2]}, "stream s")


def test_unreadable_objects_are_refused() -> None:
    with pytest.raises(CatalogError, match="cannot read a int"):
        source_of(3, what="stream s")


# iterables


@pytest.mark.usefixtures("small_blocks")
def test_rows_of_a_list_replay() -> None:
    rows = [{"a": i, "t": None if i % 3 else f"s{i}"} for i in range(30)]
    source = IterableSource(rows, what="s")
    assert check_replay(source) == rows
    assert read(source, ["a"], {"row": 7}) == [{"a": i} for i in range(7, 30)]


def test_callable_reopens_and_iterator_does_not() -> None:
    calls: list[int] = []

    def make() -> Any:
        calls.append(1)
        return ({"a": i} for i in range(5))

    source = IterableSource(make, what="s")
    assert read(source) == [{"a": i} for i in range(5)]
    assert calls == [1]  # the first pass uses the iterator that the schema was taken from
    assert read(source, offset={"row": 3}) == [{"a": 3}, {"a": 4}]
    once = IterableSource(make(), what="s")
    assert len(read(once)) == 5
    with pytest.raises(CatalogError, match="read only once"):
        once.open(["a"])


def test_types_from_the_first_item() -> None:
    item = {
        "i": 1,
        "f": 1.5,
        "s": "x",
        "t": dt.datetime(2024, 1, 1, tzinfo=UTC),
        "n": dt.datetime(2024, 1, 1),
        "d": Decimal("1.25"),
    }
    source = IterableSource(iter([item]), what="s")
    kinds = [f.type for f in source.schema]
    assert kinds == [BIGINT, DOUBLE, STRING, TIMESTAMP, TIMESTAMP_NTZ, decimal(3, 2)]
    assert read(source) == [item]


@pytest.mark.parametrize(
    ("value", "column", "message"),
    [
        (1.5, Field("a", BIGINT), r"row 2, column a: 1.5 \(float\) is not a bigint"),
        ("1", Field("a", BIGINT), r"row 2, column a: '1' \(str\) is not a bigint"),
        (2**40, Field("a", INT), r"row 2, column a: 1099511627776 does not fit int32"),
        (2**70, Field("a", BIGINT), r"row 2, column a: 1180591620717411303424"),
        (None, Field("a", BIGINT, False), r"row 2, column a: NULL"),
        (True, Field("a", BIGINT), r"row 2, column a: True \(bool\) is not a bigint"),
        (object(), Field("a", BIGINT), r"row 2, column a: <object"),
    ],
)
def test_bad_values_name_row_and_column(value: Any, column: Field, message: str) -> None:
    rows = [{"a": 1}, {"a": 2}, {"a": value}]
    source = IterableSource(rows, what="s", declared=Schema((column,)))
    with pytest.raises(CatalogError, match=message):
        read(source)


def test_mixed_python_types_are_not_bent() -> None:
    naive, aware = dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 1, tzinfo=UTC)
    for first, second, kind in [
        (aware, naive, TIMESTAMP),
        (naive, aware, TIMESTAMP_NTZ),
        ("x", b"y", STRING),
        (dt.date(2024, 1, 1), naive, DATE),
        (1, True, BIGINT),
    ]:
        schema = Schema((Field("v", kind),))
        with pytest.raises(CatalogError, match="row 1, column v"):
            read(IterableSource([{"v": first}, {"v": second}], what="s", declared=schema))
    schema = Schema((Field("v", decimal(9, 2)),))
    mixed = [{"v": 1}, {"v": Decimal("1.5")}, {"v": None}]
    rows = read(IterableSource(mixed, what="s", declared=schema))
    assert [r["v"] for r in rows] == [Decimal("1.00"), Decimal("1.50"), None]


def test_shapes_of_rows() -> None:
    schema = Schema((Field("a", BIGINT), Field("b", STRING)))
    assert read(IterableSource([(1, "x"), (2, None)], what="s", declared=schema))[1]["b"] is None
    with pytest.raises(CatalogError, match="row 1: 1 values for 2 columns"):
        read(IterableSource([(1, "x"), (2,)], what="s", declared=schema))
    with pytest.raises(CatalogError, match="row 1: unknown column aa"):
        read(IterableSource(iter([{"a": 1}, {"aa": 2}]), what="s"))
    with pytest.raises(CatalogError, match="without column names"):
        IterableSource([(1, 2)], what="s")
    with pytest.raises(CatalogError, match="NULL in the first item"):
        IterableSource(iter([{"a": None}]), what="s")
    with pytest.raises(CatalogError, match="empty"):
        IterableSource([], what="s")


def test_batches_and_rows_mixed() -> None:
    items = [pa.record_batch({"a": [1, 2]}), {"a": 3}, pa.table({"a": pa.array([4], pa.int8())})]
    source = IterableSource(iter(items), what="s", declared=Schema((Field("a", BIGINT),)))
    assert read(source) == [{"a": i} for i in (1, 2, 3, 4)]


def test_errors_of_the_generator_surface() -> None:
    def broken() -> Any:
        yield {"a": 1}
        raise KeyError("sensor")

    for bounded in (True, False):
        source = IterableSource(broken, what="stream s", bounded=bounded)
        reader = source.open(["a"])
        with pytest.raises(CatalogError, match="after row 1: KeyError: 'sensor'"):
            list(iter(lambda r=reader: r.next(timeout=10), None))
        reader.close()


def test_blocking_generator_does_not_block_next() -> None:
    gate, closed = threading.Event(), threading.Event()

    def slow() -> Any:
        try:
            yield {"a": 1}
            gate.wait()
            yield {"a": 2}
            yield {"a": 3}
        finally:
            closed.set()

    source = IterableSource(slow, what="s", declared=Schema((Field("a", BIGINT),)), bounded=False)
    reader = source.open(["a"])
    first = reader.next(timeout=10)
    assert first is not None
    assert first.batch.num_rows == 1
    idle = reader.next(timeout=0.01)
    assert idle is not None
    assert (idle.batch.num_rows, idle.offset) == (0, {"row": 1})
    gate.set()
    rows = []
    while (block := reader.next(timeout=10)) is not None:
        rows += block.batch.to_pylist()
    assert rows == [{"a": 2}, {"a": 3}]
    reader.close()
    assert closed.wait(10)


def test_live_iterable_stays_bounded_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iterables_module, "AHEAD", 4)
    made: list[int] = []

    def endless() -> Any:
        i = 0
        while True:
            made.append(i)
            yield (i,)
            i += 1

    source = IterableSource(
        endless, what="s", declared=Schema((Field("a", BIGINT),)), bounded=False
    )
    reader = source.open(["a"])
    block = reader.next(timeout=10)
    assert block is not None
    got = block.batch.num_rows
    assert got + 4 + 2 >= len(made)
    reader.close()


# files

FORMATS = ("parquet", "csv", "json", "arrow", "stream")


def write(table: pa.Table, path: Path, kind: str, group: int = 10) -> Path:
    match kind:
        case "parquet":
            pq.write_table(table, path, row_group_size=group)
        case "csv":
            pc.write_csv(table, path)
        case "json":
            import json

            path.write_text("".join(json.dumps(r) + "\n" for r in table.to_pylist()))
        case "arrow":
            with pa.ipc.new_file(path, table.schema) as writer:
                writer.write_table(table, max_chunksize=group)
        case _:
            with pa.ipc.new_stream(path, table.schema) as stream:
                stream.write_table(table, max_chunksize=group)
    return path


SUFFIX = {"stream": "arrows", "json": "jsonl"}


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("kind", FORMATS)
def test_files_replay_from_every_block(kind: str, tmp_path: Path) -> None:
    table = sample(50)
    for i, (lo, hi) in enumerate([(0, 21), (21, 21), (21, 24), (24, 50)]):
        write(table.slice(lo, hi - lo), tmp_path / f"{i}.{SUFFIX.get(kind, kind)}", kind)
    (tmp_path / "_staging").mkdir()
    (tmp_path / "_staging" / "x.parquet").write_bytes(b"half")
    (tmp_path / ".hidden.csv").write_bytes(b"no")
    source = FileSource({"path": tmp_path}, what="s")
    assert check_replay(source) == table.to_pylist()
    assert [r["n"] for r in read(source, ["n"])] == list(range(50))
    assert sum(b.batch.num_rows for b in drain(source.open([]))) == 50


def test_parquet_skips_row_groups_and_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(sample(100), tmp_path / "a.parquet", "parquet")
    source = FileSource({"path": str(tmp_path / "a.parquet")}, what="s")
    asked: list[tuple[list[int], list[str]]] = []
    original = pq.ParquetFile.iter_batches

    def spy(self: Any, batch_size: int, row_groups: Any, columns: Any) -> Any:
        asked.append((row_groups, columns))
        return original(self, batch_size, row_groups=row_groups, columns=columns)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", spy)
    offset = {"row": 75, "file": str(tmp_path / "a.parquet"), "in_file": 75}
    assert [r["n"] for r in read(source, ["n"], offset)] == list(range(75, 100))
    assert asked == [([7], ["n"]), ([8], ["n"]), ([9], ["n"])]
    statistics = source.statistics()
    assert (statistics.rows, statistics.nulls) == (100, {"n": 0, "s": 20, "b": 0})


@pytest.mark.parametrize("kind", ["parquet", "arrow", "csv", "json"])
def test_corrupt_files_are_named(kind: str, tmp_path: Path) -> None:
    path = write(sample(1000), tmp_path / f"a.{SUFFIX.get(kind, kind)}", kind, group=100)
    source = FileSource({"path": path}, what="s")
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 200] = b"\xff" * 200
    path.write_bytes(data)
    if kind == "arrow":  # its buffers have no checksum: cut the footer instead
        path.write_bytes(data[:-30])
    with pytest.raises(CatalogError, match=r"file .*a\.") as caught:
        read(source)
    assert caught.value.hint


@pytest.mark.parametrize("kind", FORMATS)
def test_flipped_bytes_give_rows_or_our_error(kind: str, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    table = sample(60).append_column("d", sample(60)["s"].dictionary_encode())
    good = write(table, tmp_path / f"a.{SUFFIX.get(kind, kind)}", kind).read_bytes()
    path = tmp_path / f"b.{SUFFIX.get(kind, kind)}"
    refused = 0
    for _ in range(60):
        data = bytearray(good)
        for _ in range(rng.randint(1, 6)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        path.write_bytes(data[: rng.randint(1, len(data))] if rng.random() < 0.3 else data)
        try:
            read(FileSource({"path": path}, what="s"))
        except CatalogError:
            refused += 1
    assert refused > 10, f"seed {seed}"


def test_truncated_parquet_and_vanished_files(tmp_path: Path) -> None:
    path = write(sample(100), tmp_path / "a.parquet", "parquet")
    source = FileSource({"path": tmp_path}, what="stream s")
    reader = source.open(["n"])
    path.unlink()
    with pytest.raises(CatalogError, match=r"a.parquet is gone"):
        reader.next()
    with pytest.raises(CatalogError, match="where the query stood, is gone"):
        source.open(["n"], {"row": 1, "file": str(path), "in_file": 1})
    path.write_bytes(b"PAR1 and no more")
    with pytest.raises(CatalogError, match=r"a.parquet cannot be read"):
        read(source)
    with pytest.raises(CatalogError, match="no file or folder"):
        FileSource({"path": tmp_path / "no.parquet"}, what="s")
    with pytest.raises(CatalogError, match="not a local path"):
        FileSource({"path": "s3://bucket/x.parquet"}, what="s")


def test_replaced_by_a_shorter_file(tmp_path: Path) -> None:
    for kind in FORMATS:
        path = tmp_path / f"a.{SUFFIX.get(kind, kind)}"
        write(sample(3), path, kind)
        source = FileSource({"path": path}, what="s")
        with pytest.raises(CatalogError, match="has 3 rows, and the query had read 5"):
            read(source, offset={"row": 5, "file": str(path), "in_file": 5})


def test_schema_drift_between_files(tmp_path: Path) -> None:
    write(pa.table({"a": [1], "b": ["x"]}), tmp_path / "1.parquet", "parquet")
    write(pa.table({"a": pa.array([2], pa.int16()), "b": ["y"]}), tmp_path / "2.parquet", "parquet")
    source = FileSource({"path": tmp_path}, what="s")
    assert read(source) == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]
    write(pa.table({"a": ["3"], "b": ["z"]}), tmp_path / "3.parquet", "parquet")
    with pytest.raises(CatalogError, match=r"3.parquet does not fit column a bigint.*as string"):
        read(source)
    write(pa.table({"aa": [3], "b": ["z"]}), tmp_path / "3.parquet", "parquet")
    with pytest.raises(CatalogError, match=r"(?s)no such column.*did you mean aa"):
        read(source)
    assert len(read(source, ["b"])) == 3  # what a query does not read may change


def test_csv_options(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('t;v;s\n01.02.2024 10:00;NA;""\n02.02.2024 11:30;2;\n')
    options = {"path": path, "delimiter": ";", "null": "NA", "timestamp_format": "%d.%m.%Y %H:%M"}
    declared = Schema((Field("t", TIMESTAMP), Field("v", INT), Field("s", STRING)))
    source = FileSource(options, what="s", declared=declared)
    first = {"t": dt.datetime(2024, 2, 1, 10, tzinfo=UTC), "v": None, "s": ""}
    second = {"t": dt.datetime(2024, 2, 2, 11, 30, tzinfo=UTC), "v": 2, "s": None}
    assert read(source) == [first, second]
    with pytest.raises(CatalogError, match=r"no option delimeter\n.*delimiter"):
        FileSource({"path": path, "delimeter": ";"}, what="s")


def test_csv_without_header_and_zones(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("2024-01-01 10:00:00,1\n2024-01-01T10:00:00.5+02:00,2\n")
    declared = Schema((Field("t", TIMESTAMP), Field("v", INT)))
    source = FileSource({"path": path, "header": "false"}, what="s", declared=declared)
    hours = [r["t"].hour + r["t"].microsecond / 1e6 for r in read(source)]
    assert hours == [10, 8.5]
    path.write_text("1,2\n3,4\n")
    guessed = FileSource({"path": path, "header": False}, what="s")
    assert read(guessed) == [{"_c0": 1, "_c1": 2}, {"_c0": 3, "_c1": 4}]


def test_csv_bad_rows_are_found(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a,b\n" + "1,x\n" * 1000 + "oops,x\n" + "2,y\n")
    declared = Schema((Field("a", INT), Field("b", STRING)))
    with pytest.raises(CatalogError, match=r"line 1002: column a: 'oops' is not an int"):
        read(FileSource({"path": path}, what="s", declared=declared))
    path.write_text("a,b\n1,x\n1,2,3\n")
    with pytest.raises(CatalogError, match=r"line 3: 3 values for 2 columns"):
        read(FileSource({"path": path}, what="s", declared=declared))
    path.write_text("")
    assert read(FileSource({"path": path}, what="s", declared=declared)) == []
    with pytest.raises(CatalogError, match="is empty"):
        FileSource({"path": path}, what="s")


def test_csv_compressed_multiline_and_one_column(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "a.csv.gz", "wt") as file:
        file.write("a\n1\n\n3\n")
    rows = read(FileSource({"path": tmp_path / "a.csv.gz"}, what="s"))
    assert rows == [{"a": 1}, {"a": None}, {"a": 3}]
    (tmp_path / "b.tsv").write_text('s\tn\n"x\ny"\t1\n')
    source = FileSource({"path": tmp_path / "b.tsv", "multiline": True}, what="s")
    assert read(source) == [{"s": "x\ny", "n": 1}]


def test_json_types_and_bad_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(
        '{"t": "2024-01-01T00:00:00.000001Z", "d": "2024-01-01", "s": "x", "n": 1}\n\n'
        '{"t": null, "s": "2024", "extra": [1]}\n'
    )
    source = FileSource({"path": path}, what="s")
    kinds = {f.name: str(f.type) for f in source.schema}
    assert kinds == {"t": "timestamp", "d": "date", "s": "string", "n": "bigint"}
    assert set(source.unsupported) == {"extra"}
    assert read(source)[0]["t"].microsecond == 1
    assert read(source)[1]["d"] is None
    path.write_text('{"n": 1}\n' * 500 + '{"n": "x"}\n')
    declared = Schema((Field("n", BIGINT),))
    with pytest.raises(CatalogError, match="line 501: column n: 'x' is not a bigint"):
        read(FileSource({"path": path}, what="s", declared=declared))
    path.write_text('{"n": 1}\n{"n": \n')
    with pytest.raises(CatalogError, match="line 2: not a JSON object: Expecting value"):
        read(FileSource({"path": path}, what="s", declared=declared))


def test_partitions_and_globs(tmp_path: Path) -> None:
    for day, region in [("1", "north%2Feast"), ("2", "__HIVE_DEFAULT_PARTITION__")]:
        folder = tmp_path / f"day={day}" / f"region={region}"
        folder.mkdir(parents=True)
        write(pa.table({"v": [int(day) * 10]}), folder / "x.parquet", "parquet")
    source = FileSource({"path": tmp_path}, what="s")
    assert [(f.name, f.type) for f in source.schema][1:] == [("day", INT), ("region", STRING)]
    assert read(source) == [
        {"v": 10, "day": 1, "region": "north/east"},
        {"v": 20, "day": 2, "region": None},
    ]
    assert read(source, ["day"]) == [{"day": 1}, {"day": 2}]
    globbed = FileSource({"path": f"{tmp_path}/day=*/*/*.parquet"}, what="s")
    assert [r["day"] for r in read(globbed)] == [1, 2]
    write(pa.table({"v": [1]}), tmp_path / "stray.parquet", "parquet")
    with pytest.raises(CatalogError, match="partitions"):
        FileSource({"path": tmp_path}, what="s")


def test_format_must_be_known(tmp_path: Path) -> None:
    (tmp_path / "a.dat").write_text("a\n1\n")
    with pytest.raises(CatalogError, match="do not tell their format"):
        FileSource({"path": tmp_path}, what="s")
    assert read(FileSource({"path": tmp_path, "format": "csv"}, what="s")) == [{"a": 1}]
    with pytest.raises(CatalogError, match="unknown format xlsx"):
        FileSource({"path": tmp_path, "format": "xlsx"}, what="s")
    (tmp_path / "a.dat").unlink()
    with pytest.raises(CatalogError, match="no files"):
        FileSource({"path": tmp_path, "format": "csv"}, what="s")


# files that grow


def append(path: Path, text: str) -> None:
    with open(path, "a") as file:
        file.write(text)


def test_follow_reads_appended_complete_lines(tmp_path: Path) -> None:
    clock, path = FakeClock(), tmp_path / "1.csv"
    path.write_text("a,b\n1,x\n2,y\n3,")
    declared = Schema((Field("a", BIGINT), Field("b", STRING)))
    source = FollowSource(
        {"path": tmp_path}, what="s", format="csv", declared=declared, clock=clock
    )
    assert not source.bounded
    reader = source.open(["a"])
    block = reader.next(timeout=1)
    assert block is not None
    assert block.batch.to_pylist() == [{"a": 1}, {"a": 2}]
    clock.events = [
        (clock.now() + 1, lambda: append(path, "z\n4,q\n")),
        (clock.now() + 3, lambda: (tmp_path / "2.csv").write_text("a,b\n5,m\n")),
        (clock.now() + 3, lambda: append(path, "6,last")),
    ]
    rows, offsets = [], [block.offset]
    for _ in range(20):
        block = reader.next(timeout=1)
        assert block is not None
        rows += [r["a"] for r in block.batch.to_pylist()]
        offsets.append(block.offset)
    assert rows == [3, 4, 6, 5]
    for offset in offsets:
        again = source.open(["a"], offset)
        rest: list[int] = []
        while (more := again.next(timeout=0)) is not None and more.batch.num_rows:
            rest += [r["a"] for r in more.batch.to_pylist()]
        assert rest == [1, 2, 3, 4, 6, 5][offset["row"] :]
    append(tmp_path / "1.csv", "7,late\n")
    (tmp_path / "3.csv").write_text("a,b\n")
    with pytest.raises(CatalogError, match=r"1.csv changed after a later file was begun"):
        reader.next(timeout=1)


@pytest.mark.usefixtures("small_blocks")
def test_follow_offsets_within_a_chunk(tmp_path: Path) -> None:
    (tmp_path / "1.jsonl").write_text("".join(f'{{"a": {i}}}\n' for i in range(30)))
    source = FollowSource({"path": tmp_path, "poll": "1 s"}, what="s", clock=FakeClock())
    reader = source.open(["a"])
    for expected in range(8, 31, 8):
        block = reader.next(timeout=0)
        assert block is not None
        again = source.open(["a"], block.offset).next(timeout=0)
        assert again is not None
        rest = [r["a"] for r in again.batch.to_pylist()]
        assert rest == list(range(block.offset["row"], min(block.offset["row"] + 8, 30)))
        assert block.offset["row"] == min(expected, 30)


def test_follow_whole_files_in_name_order(tmp_path: Path) -> None:
    clock = FakeClock()
    write(sample(3), tmp_path / "1.parquet", "parquet")
    source = FollowSource({"path": tmp_path}, what="s", clock=clock)
    reader = source.open(["n"])
    first = reader.next(timeout=1)
    assert first is not None
    assert first.batch.num_rows == 3
    write(sample(2), tmp_path / "2.parquet", "parquet")
    second = reader.next(timeout=1)
    assert second is not None
    assert second.batch.num_rows == 2
    write(sample(2), tmp_path / "0.parquet", "parquet")
    with pytest.raises(CatalogError, match=r"0.parquet appeared after .*2.parquet"):
        reader.next(timeout=1)


def test_follow_refuses_what_cannot_grow(tmp_path: Path) -> None:
    path = tmp_path / "1.csv"
    path.write_text("a\n1\n")
    with pytest.raises(CatalogError, match="multiline"):
        FollowSource({"path": path, "multiline": True}, what="s")
    reader = FollowSource({"path": path}, what="s", clock=FakeClock()).open(["a"])
    assert reader.next(timeout=0) is not None
    path.write_text("a\n")
    with pytest.raises(CatalogError, match="cut short"):
        reader.next(timeout=0)
    append(path, "x\n")
    declared = Schema((Field("a", INT),))
    source = FollowSource({"path": path}, what="s", declared=declared, clock=FakeClock())
    block = source.open(["a"]).next(timeout=0)
    assert block is not None
    assert [b.reason for b in block.bad] == [f"file {path}, line 2: column a: 'x' is not an int"]


# replay


def replayed() -> TableSource:
    stamps = [0, 2, 1, 10, None, 11]
    times = pa.array(
        [None if s is None else s * 1_000_000 for s in stamps], pa.timestamp("us", "UTC")
    )
    return TableSource(pa.table({"ts": times, "n": list(range(6))}), what="t")


def test_replay_paces_by_event_time() -> None:
    clock = FakeClock()
    options = {"time": "ts", "speed": "2", "skew": "4 seconds"}
    source = ReplaySource(replayed(), options, what="s", clock=clock)
    reader = source.open(["n"])
    seen = []
    while (block := reader.next()) is not None:
        seen += [(clock.now(), r["n"]) for r in block.batch.to_pylist()]
        again = source.open(["n"], block.offset)
        rest = []
        while (more := again.next()) is not None:
            rest += [r["n"] for r in more.batch.to_pylist()]
        assert rest == list(range(block.offset["row"], 6))
        clock.time = seen[-1][0]
    assert [n for _, n in seen] == [0, 1, 2, 3, 4, 5]
    assert [t for t, _ in seen] == [2, 3, 3, 7, 7, 7.5]


def test_replay_timeout_shift_and_refusals() -> None:
    clock = FakeClock()
    source = ReplaySource(
        replayed(), {"time": "ts", "speed": 1, "skew": "4 s"}, what="s", clock=clock
    )
    block = source.open(["n"]).next(timeout=1)
    assert block is not None
    assert block.batch.num_rows == 0
    shifted = ReplaySource(replayed(), {"time": "ts", "shift": "1 s"}, what="s")
    assert read(shifted)[0]["ts"] == dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert check_replay(shifted) == read(shifted)
    with pytest.raises(CatalogError, match="need a speed"):
        ReplaySource(replayed(), {"skew": "1 s"}, what="s")
    with pytest.raises(CatalogError, match="need the option time"):
        ReplaySource(replayed(), {"speed": "1"}, what="s")
    with pytest.raises(CatalogError, match="not a timestamp"):
        ReplaySource(replayed(), {"speed": "1", "time": "n"}, what="s")
