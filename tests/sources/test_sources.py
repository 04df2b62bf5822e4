"""Sources over tables, frames and readers, which replay from any offset."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import cql
from cql.base.model import Field, Schema
from cql.base.types import BIGINT, TIMESTAMP, TIMESTAMP_NTZ
from cql.catalog.files.source import FileSource
from cql.catalog.local import source_of
from cql.catalog.sources import ReaderSource, TableSource, as_table
from cql.errors import BindError, CatalogError
from cql.executor.protocols import BLOCK_ROWS
from tests.support.catalog_tools import (
    check_replay,
    drain,
    plain,
    read,
    rows_of,
    sample,
    write,
)

UTC = dt.UTC


def chunked(table: pa.Table, rng: random.Random) -> pa.Table:
    """The table, cut into random chunks."""
    cuts = sorted(rng.choices(range(table.num_rows + 1), k=rng.randint(0, 6)))
    parts = zip([0, *cuts], [*cuts, table.num_rows], strict=True)
    batches = [b for lo, hi in parts for b in table.slice(lo, hi - lo).to_batches()]
    return pa.Table.from_batches(batches, table.schema)


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
    pairs = pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64()))
    table = pa.table({"a": [1], "m": pairs, "q": pa.array([Decimal(1)], pa.decimal128(38, 20))})
    source = TableSource(table, what="t")
    assert source.schema.names == ("a",)
    assert set(source.unsupported) == {"m", "q"}
    assert "map<" in source.unsupported["m"]
    with pytest.raises(CatalogError, match="no column m"):
        source.open(["m"])
    with cql.connect(False) as session:
        session.create_stream("s", table)
        for name in ("m", "s.M", "t.m"):
            with pytest.raises(BindError, match=r"\.m cannot be used: .* of type map<") as caught:
                session.sql(f"SELECT a, {name} FROM s{' AS t' * name.startswith('t')}")
            assert caught.value.column == 11


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
