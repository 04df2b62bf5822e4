"""Damaged files give rows or a CatalogError; they never end the process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cql.catalog.files.parquet_footer import row_groups
from cql.catalog.files.source import FileSource
from cql.catalog.sources import ReaderSource, TableSource
from cql.errors import CatalogError
from tests.support.paths import ROOT

KINDS = ("parquet", "arrow", "orc", "csv", "json")


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return pa.table(
        {
            "a": [1, None, 3] * 100,
            "s": ["x", None, None] * 100,
            "l": [[1, 2], None, []] * 100,
            "r": [{"b": 1}, None, {"b": None}] * 100,
            "m": pa.array([[("a", 1)]] * 300, pa.map_(pa.string(), pa.int32())),
        }
    )


def test_a_footer_says_what_arrow_says_of_it(tmp_path: Path, table: pa.Table) -> None:
    path = tmp_path / "a.parquet"
    for options in ({}, {"version": "1.0", "write_statistics": ["a"]}, {"compression": "zstd"}):
        pq.write_table(table, path, row_group_size=70, **options)
        footer = pq.read_metadata(path)
        found = row_groups(path.as_posix(), columns=True)
        assert len(found) == footer.num_row_groups == 5
        for i, group in enumerate(found):
            assert group.rows == footer.row_group(i).num_rows
            chunks = [footer.row_group(i).column(k) for k in range(footer.num_columns)]
            expected = {
                c.path_in_schema: None if c.statistics is None else c.statistics.null_count
                for c in chunks
            }
            assert group.nulls == expected
        assert [g.rows for g in row_groups(path.as_posix())] == [70, 70, 70, 70, 20]


def test_a_footer_that_lies(tmp_path: Path, table: pa.Table) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(table, path)
    good = path.read_bytes()
    length = int.from_bytes(good[-8:-4], "little")
    lists = b"\x29" + b"\x99" * 200  # lists of lists of lists
    sizes = b"\x19\xf1" + b"\xff" * 8 + b"\x7f"  # a list of 2^63 booleans
    rows = b"\x36\x01"  # -1 rows
    for footer, what in (
        (b"", "ends too early"),
        (lists, "nested too deeply"),
        (sizes, "ends too early|booleans"),
        (b"\x39\xf1" + b"\xff" * 8 + b"\x7f", "negative|booleans|missing"),
        (rows + b"\x00", "missing or negative"),
        (b"\x36" + b"\xff" * 12, "64 bits"),
        (b"\x1d", "unknown type 13"),
        (b"\x36\x02\x00", "should have"),
    ):
        path.write_bytes(good[:4] + footer + len(footer).to_bytes(4, "little") + b"PAR1")
        with pytest.raises(ValueError, match=what):
            row_groups(path.as_posix(), columns=True)
    for short in (b"", b"PAR1", good[:-1], (length + 99_999).to_bytes(4, "little") + b"PAR1"):
        path.write_bytes(short)
        with pytest.raises(ValueError, match="no Parquet footer"):
            row_groups(path.as_posix())


def test_nulls_that_an_arrow_file_counts_wrongly(tmp_path: Path) -> None:
    """A batch with a wrong null count is refused, since readers that trust the count would output
    values under NULLs."""
    path = tmp_path / "a.arrow"
    with pa.ipc.new_stream(path, pa.schema([("n", pa.int64())])) as writer:
        writer.write_batch(pa.record_batch({"n": pa.array([1, None, 3, None, 5])}))
    data = path.read_bytes()
    counts = (5).to_bytes(8, "little") + (2).to_bytes(8, "little")  # length, NULLs
    assert data.count(counts) == 1
    path.write_bytes(data.replace(counts, (5).to_bytes(8, "little") + (1).to_bytes(8, "little")))
    source = FileSource({"path": path}, what="s")
    with pytest.raises(CatalogError, match=r"a.arrow, batch 0, cannot be read: .*null_count"):
        source.open(["n"]).next()


NAMED = {
    "column": pa.schema([("badname", pa.int64())]),
    "struct": pa.schema([("x", pa.struct([("badname", pa.int64())]))]),
    "array": pa.schema([("x", pa.list_(pa.struct([("badname", pa.int32())])))]),
    "map": pa.schema([("x", pa.map_(pa.string(), pa.struct([("badname", pa.int8())])))]),
    "zone": pa.schema([("x", pa.timestamp("us", "badname"))]),
    "zones": pa.schema([("x", pa.list_(pa.timestamp("us", "badname")))]),
    "dictionary": pa.schema([("x", pa.dictionary(pa.int8(), pa.timestamp("us", "badname")))]),
    "union": pa.schema([("x", pa.dense_union([pa.field("badname", pa.int8())]))]),
    "runs": pa.schema([("x", pa.run_end_encoded(pa.int32(), pa.timestamp("us", "badname")))]),
}
DOORS: dict[str, Callable[[Path], object]] = {
    "a file": lambda path: FileSource({"path": path}, what="s"),
    "a table": lambda path: TableSource(pa.ipc.open_stream(path.read_bytes()).read_all(), what="s"),
    "a reader": lambda path: ReaderSource(pa.ipc.open_stream(path.read_bytes()), what="s"),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("named", NAMED)
def test_names_that_are_no_text(tmp_path: Path, named: str, door: str) -> None:
    """Arrow checks the names in a schema only when they are read, at any depth."""
    path = tmp_path / "a.arrow"
    with pa.ipc.new_stream(path, NAMED[named]):
        pass
    data = path.read_bytes()
    assert data.count(b"badname") == 1
    path.write_bytes(data.replace(b"badname", b"bad\xffame"))
    with pytest.raises(CatalogError, match=r"^(file .*a.arrow cannot be read|s has a name)"):
        DOORS[door](path)


def test_names_of_a_parquet_file_that_are_no_text(tmp_path: Path, table: pa.Table) -> None:
    path = tmp_path / "a.parquet"
    for inside in (table.select(["a"]).rename_columns(["badname"]), table.select(["r"])):
        pq.write_table(inside, path, store_schema=False)
        data = path.read_bytes()
        old, new = (
            (b"badname", b"bad\xffame") if b"badname" in data else (b"\x18\x01b", b"\x18\x01\xff")
        )
        assert old in data
        path.write_bytes(data.replace(old, new))
        with pytest.raises(CatalogError, match=r"a.parquet cannot be read: 'utf-8'"):
            FileSource({"path": path}, what="s")


@pytest.mark.slow
def test_damaged_files_end_no_process(tmp_path: Path, seed: int, full: bool) -> None:
    count = 4_000 if full else 60
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.support.fuzz.fuzz_files",
            str(tmp_path),
            str(seed),
            str(count),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=3_600 if full else 240,
        check=False,
    )
    last = (tmp_path / "last").read_text()
    assert done.returncode == 0, f"seed {seed}, {last}{done.stderr[-4_000:]}"
    found = {line["kind"]: line for line in map(json.loads, done.stdout.splitlines())}
    for kind in KINDS:
        assert found[kind]["read"] + found[kind]["refused"] == count
        assert min(found[kind]["read"], found[kind]["refused"]) > 0
    assert found["footer"]["read"] + found["footer"]["refused"] > 300
