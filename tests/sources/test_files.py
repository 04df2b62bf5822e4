"""Files and folders of every format as sources that replay from any offset."""

from __future__ import annotations

import datetime as dt
import gzip
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cql.base.model import Field, Schema
from cql.base.types import BIGINT, INT, STRING, TIMESTAMP
from cql.catalog.files.source import FileSource
from cql.errors import CatalogError
from tests.support.catalog_tools import (
    FORMATS,
    SUFFIX,
    check_replay,
    drain,
    read,
    sample,
    write,
)

UTC = dt.UTC


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
    if kind == "arrow":  # Arrow buffers have no checksum: cut the footer
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
    for _ in range(30):
        data = bytearray(good)
        for _ in range(rng.randint(1, 6)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        path.write_bytes(data[: rng.randint(1, len(data))] if rng.random() < 0.3 else data)
        try:
            read(FileSource({"path": path}, what="s"))
        except CatalogError:
            refused += 1
    assert refused > 5, f"seed {seed}"


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
    with pytest.raises(
        CatalogError,
        match=r"3.parquet does not fit column a bigint as in file .*1.parquet: .*string",
    ):
        read(source)
    assert len(read(source, ["b"])) == 3  # a column that no query reads may change
    write(pa.table({"aa": [3], "b": ["z"]}), tmp_path / "3.parquet", "parquet")
    assert read(source)[2] == {"a": None, "b": "z"}


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


@pytest.mark.usefixtures("small_blocks")
def test_csv_without_quotes(tmp_path: Path) -> None:
    """Each quote stands for itself, also at the start of a value and without a second one."""
    path = tmp_path / "access.log"
    lines = ['"GET / HTTP/1.1" 200', "", '"not closed', 'a "b" c', '""', "é, x", '"']
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    options = {"path": path, "header": "false", "delimiter": "\t", "quote": ""}
    declared = Schema((Field("line", STRING),))
    source = FileSource(options, what="s", format="csv", declared=declared)
    assert [r["line"] for r in check_replay(source)] == [line or None for line in lines]
    guessed = FileSource(options, what="s", format="csv")
    assert [r["_c0"] for r in read(guessed)] == [line or None for line in lines]
    path.write_text('"a;b"\n1";"2\n')
    headed = FileSource({"path": path, "delimiter": ";", "quote": ""}, what="s", format="csv")
    assert read(headed) == [{'"a': '1"', 'b"': '"2'}]
    for wrong, why in (
        ({"multiline": "true"}, r"multiline of s is 'true'\n.*only quoted values hold line ends"),
        ({"quote": "''"}, r"quote of s is .*\n.*one character, or '' for none"),
        ({"delimiter": ""}, r"delimiter of s is ''\n.*give one character$"),
    ):
        with pytest.raises(CatalogError, match=why):
            FileSource(options | wrong, what="s", format="csv")


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
    assert kinds == {
        "t": "timestamp", "d": "date", "s": "string", "n": "bigint", "extra": "array<bigint>"
    }  # fmt: skip
    assert not source.unsupported
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
