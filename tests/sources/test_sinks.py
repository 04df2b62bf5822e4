"""Sinks: every epoch is visible as a whole, or not at all."""

from __future__ import annotations

import datetime as dt
import errno
import glob
import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from cql.base.model import Field, Schema
from cql.base.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    INTERVAL,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    decimal,
)
from cql.catalog import sinks as sinks_module
from cql.catalog.files.source import FileSource
from cql.catalog.sinks import EXTENSIONS, FolderSink, MemorySink
from cql.errors import CatalogError
from tests.support.catalog_tools import read

TARGET = Schema((Field("k", BIGINT), Field("s", STRING)))


def batch(*keys: int) -> pa.RecordBatch:
    return pa.record_batch({"k": pa.array(keys, pa.int64()), "s": [f"s{k}" for k in keys]})


def folder_sink(folder: Path, format: str = "parquet") -> FolderSink:
    return FolderSink(str(folder), format, TARGET, TARGET, "table t")


def visible(folder: Path) -> list[str]:
    """The names that a plain glob finds, sub-folders included, without ``*.tmp``."""
    return sorted(
        os.path.basename(p)
        for p in glob.glob(f"{folder}/**/*.*", recursive=True)
        if not p.endswith(".tmp")
    )


def insert(sink: Any, *batches: pa.RecordBatch) -> int:
    sink.begin()
    for one in batches:
        sink.write(one)
    return int(sink.commit())


@pytest.mark.parametrize("kind", list(EXTENSIONS))
def test_epochs_append_and_are_published_whole(kind: str, tmp_path: Path) -> None:
    sink = folder_sink(tmp_path, kind)
    sink.begin()
    sink.write(batch(1, 2))
    assert visible(tmp_path) == []
    with pytest.raises(CatalogError, match="no files"):
        FileSource({"path": tmp_path, "format": kind}, what="t")
    if kind != "json":
        assert ds.dataset(tmp_path, format=kind, schema=TARGET.to_arrow()).count_rows() == 0
    assert sink.commit() == 0
    assert insert(sink, batch(3), batch(4)) == 1
    assert insert(folder_sink(tmp_path, kind), batch(5)) == 2
    assert not (tmp_path / "_staging").exists()
    extension = EXTENSIONS[kind]
    assert visible(tmp_path) == [f"part-0000000{i}.{extension}" for i in range(3)]
    rows = read(FileSource({"path": tmp_path}, what="t"))
    assert rows == batch(1, 2, 3, 4, 5).to_pylist()


def test_abort_and_order_of_calls(tmp_path: Path) -> None:
    for sink in (
        folder_sink(tmp_path),
        MemorySink(TARGET, TARGET, lambda batches: len(batches), "table t"),
    ):
        with pytest.raises(CatalogError, match="call begin"):
            sink.write(batch(1))
        sink.begin()
        with pytest.raises(CatalogError, match="is open"):
            sink.begin()
        sink.write(batch(1))
        sink.abort()
        sink.abort()
        with pytest.raises(CatalogError, match="call begin"):
            sink.commit()
    assert os.listdir(tmp_path) == []


def test_empty_epoch_keeps_the_columns(tmp_path: Path) -> None:
    assert insert(folder_sink(tmp_path)) == 0
    source = FileSource({"path": tmp_path}, what="t")
    assert source.schema == TARGET
    assert read(source) == []


ROUND_TRIP: dict[str, tuple[DataType, list[Any]]] = {
    "i": (BIGINT, [1, None, -(2**63)]),
    "f": (DOUBLE, [1.5, None, 1e300]),
    "b": (BOOLEAN, [True, None, False]),
    "s": (STRING, ['quo"te,', None, "two\nlines"]),
    "e": (STRING, ["", None, "ü"]),
    "t": (
        TIMESTAMP,
        [
            dt.datetime(2024, 1, 1, 0, 0, 0, 1, dt.UTC),
            None,
            dt.datetime(1969, 12, 31, tzinfo=dt.UTC),
        ],
    ),
    "n": (TIMESTAMP_NTZ, [dt.datetime(2024, 1, 1, 1), None, dt.datetime(1, 1, 1)]),
    "d": (DATE, [dt.date(2024, 2, 29), None, dt.date(1970, 1, 1)]),
    "c": (decimal(18, 3), [Decimal("1.250"), None, Decimal("-999999999999999.999")]),
}


@pytest.mark.parametrize("kind", list(EXTENSIONS))
@pytest.mark.parametrize("names", [list(ROUND_TRIP), ["s"], ["i"]])
def test_values_survive(kind: str, names: list[str], tmp_path: Path) -> None:
    schema = Schema(tuple(Field(n, ROUND_TRIP[n][0]) for n in names))
    data = pa.record_batch(
        {n: pa.array(ROUND_TRIP[n][1], ROUND_TRIP[n][0].to_arrow()) for n in names}
    )
    insert(FolderSink(str(tmp_path), kind, schema, schema, "t"), data)
    options: dict[str, Any] = {"path": tmp_path}
    if kind == "csv":
        options["multiline"] = True
    rows = read(FileSource(options, what="t", declared=schema))
    assert rows == data.to_pylist()


def cast_into(target: DataType, source: pa.Array, kind: DataType, nullable: bool = True) -> Any:
    out: list[pa.RecordBatch] = []

    def publish(batches: Any) -> int:
        out.extend(batches)
        return 0

    schema = Schema((Field("v", target, nullable),))
    sink = MemorySink(Schema((Field("V", kind),)), schema, publish, "table t")
    insert(sink, pa.record_batch({"V": source}))
    assert out[0].schema == schema.to_arrow()
    return out[0].column(0).to_pylist()


def test_safe_casts() -> None:
    assert cast_into(INT, pa.array([1, None]), BIGINT) == [1, None]
    assert cast_into(DOUBLE, pa.array([1, 2]), BIGINT) == [1.0, 2.0]
    assert cast_into(decimal(5, 1), pa.array([7]), BIGINT) == [Decimal("7.0")]
    assert cast_into(STRING, pa.array(["a", None]).dictionary_encode(), STRING) == ["a", None]
    assert cast_into(DOUBLE, pa.array([1.5], pa.float32()), FLOAT) == [1.5]


@pytest.mark.parametrize(
    ("target", "values", "kind", "message"),
    [
        (INT, pa.array([1, 2**40]), BIGINT, "row 1, column v: 1099511627776 does not fit int32"),
        (DOUBLE, pa.array([2**60 + 1]), BIGINT, "row 0, column v"),
        (decimal(3, 1), pa.array([1000]), BIGINT, "row 0, column v"),
        (FLOAT, pa.array([0.1]), DOUBLE, r"(?s)v of table t is float.*CAST\(V AS FLOAT\)"),
        (BIGINT, pa.array(["1"]), STRING, r"(?s)is bigint, the rows have string.*CAST"),
        (TIMESTAMP, pa.array([1]), BIGINT, "is timestamp, the rows have bigint"),
    ],
)
def test_refused_casts(target: DataType, values: pa.Array, kind: DataType, message: str) -> None:
    with pytest.raises(CatalogError, match=message):
        cast_into(target, values, kind)


def test_columns_by_name() -> None:
    out: list[pa.RecordBatch] = []

    def publish(batches: Any) -> int:
        out.extend(batches)
        return 0

    target = Schema((Field("a", BIGINT), Field("b", STRING), Field("c", DOUBLE, False)))
    rows = Schema((Field("C", DOUBLE), Field("a", BIGINT)))
    insert(MemorySink(rows, target, publish, "t"), pa.record_batch({"C": [1.5], "a": [1]}))
    assert out[0].to_pylist() == [{"a": 1, "b": None, "c": 1.5}]
    for fields, message in [
        ((Field("aa", BIGINT), Field("c", DOUBLE)), "(?s)no column aa.*did you mean a"),
        ((Field("a", BIGINT),), "column c of t is NOT NULL and gets no value"),
        ((Field("c", DOUBLE), Field("C", DOUBLE)), "two columns named c"),
    ]:
        with pytest.raises(CatalogError, match=message):
            MemorySink(Schema(fields), target, publish, "t")
    with pytest.raises(CatalogError, match="row 0, column c: NULL"):
        insert(
            MemorySink(rows, target, publish, "t"),
            pa.record_batch({"C": pa.array([None], pa.float64()), "a": [1]}),
        )


@pytest.mark.parametrize("kind", list(EXTENSIONS))
@pytest.mark.parametrize("stage", ["begin", "write", "sync", "link"])
def test_disk_full_leaves_nothing(
    kind: str, stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = folder_sink(tmp_path, kind)

    def full(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if stage == "write":
        original = sinks_module.open_staged

        def open_full(folder: str) -> Any:
            path, file = original(folder)
            file.close()
            # Unbuffered, so that the first byte written fails.
            return path, open("/dev/full", "wb", buffering=0)

        if not os.path.exists("/dev/full"):
            pytest.skip("no /dev/full here")
        monkeypatch.setattr(sinks_module, "open_staged", open_full)
    elif stage == "begin":
        monkeypatch.setattr(sinks_module, "open_staged", full)
    else:
        monkeypatch.setattr(os, "fsync" if stage == "sync" else "link", full)
    with pytest.raises(CatalogError, match=r"(?s)no space left.*nothing was published"):
        insert(sink, batch(*range(5000)))
    monkeypatch.undo()
    assert visible(tmp_path) == []
    assert not (tmp_path / "_staging").exists()
    assert insert(sink, batch(1)) == 0
    assert read(FileSource({"path": tmp_path}, what="t")) == batch(1).to_pylist()


def test_permission_and_not_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(CatalogError, match="not a folder"):
        folder_sink(tmp_path / "file")
    sink = folder_sink(tmp_path / "t")

    def denied(*_: Any, **__: Any) -> Any:
        raise PermissionError(errno.EACCES, "denied")

    monkeypatch.setattr(os, "open", denied)
    with pytest.raises(CatalogError, match=r"(?s)permission denied.*grant"):
        sink.begin()


CRASH = """
import os, sys
import pyarrow as pa
from cql.catalog.sinks import FolderSink
from cql.base.model import Field, Schema
from cql.base.types import BIGINT
s = Schema((Field("k", BIGINT),))
sink = FolderSink(sys.argv[1], "parquet", s, s, "t")
sink.begin()
sink.write(pa.record_batch({"k": [1]}))
sink.commit()
sink.begin()
sink.write(pa.record_batch({"k": [2]}))
if sys.argv[2] == "linked":
    os.unlink = lambda path: os._exit(9)  # after the link, before the staged name is gone
    sink.commit()
os._exit(9)
"""


@pytest.mark.parametrize(("when", "rows"), [("staged", [1]), ("linked", [1, 2])])
def test_crash_leaves_only_whole_epochs(when: str, rows: list[int], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CRASH, str(tmp_path), when], check=False, timeout=60
    )
    assert done.returncode == 9
    staged = list((tmp_path / "_staging").iterdir())
    assert len(staged) == 1
    assert [r["k"] for r in read(FileSource({"path": tmp_path}, what="t"))] == rows
    assert ds.dataset(tmp_path, format="parquet").count_rows() == len(rows)
    schema = Schema((Field("k", BIGINT),))
    sink = FolderSink(str(tmp_path), "parquet", schema, schema, "t")
    assert not (tmp_path / "_staging").exists()
    assert insert(sink, pa.record_batch({"k": [3]})) == len(rows)


def test_living_writers_are_left_alone(tmp_path: Path) -> None:
    first, second = folder_sink(tmp_path), folder_sink(tmp_path)
    first.begin()
    first.write(batch(1))
    second = folder_sink(tmp_path)
    assert insert(second, batch(2)) == 0
    assert first.commit() == 1
    assert [r["k"] for r in read(FileSource({"path": tmp_path}, what="t"))] == [2, 1]


def test_writers_come_and_go_while_others_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each writer makes the staging folder, and removes it when it is empty."""
    makedirs, removed = os.makedirs, iter([True] * 3)

    def raced(folder: str, exist_ok: bool) -> None:
        if folder.endswith(sinks_module.STAGING) and next(removed, False):
            raise FileExistsError(folder)  # another writer has made and removed it
        makedirs(folder, exist_ok=exist_ok)

    monkeypatch.setattr(os, "makedirs", raced)
    sink = folder_sink(tmp_path)
    sink.begin()
    sink.abort()
    assert next(removed, None) is None
    (tmp_path / sinks_module.STAGING).write_text("no folder")
    with pytest.raises(CatalogError, match="it is not a folder"):
        sink.begin()


def test_file_systems_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: Any) -> None:
        raise OSError(errno.EPERM, "no links")

    monkeypatch.setattr(os, "link", no_links)
    sink = folder_sink(tmp_path)
    assert [insert(sink, batch(1)), insert(sink, batch(2))] == [0, 1]
    assert len(read(FileSource({"path": tmp_path}, what="t"))) == 2


def test_what_a_format_cannot_hold(tmp_path: Path) -> None:
    for kind, type_ in [
        ("csv", BINARY),
        ("json", BINARY),
        ("csv", INTERVAL),
        ("parquet", INTERVAL),
    ]:
        schema = Schema((Field("x", type_),))
        with pytest.raises(CatalogError, match=f"{kind} files cannot hold column x {type_}"):
            FolderSink(str(tmp_path), kind, schema, schema, "t")
    schema = Schema((Field("x", DOUBLE),))
    sink = FolderSink(str(tmp_path), "json", schema, schema, "t")
    with pytest.raises(CatalogError, match="column x: JSON cannot hold nan"):
        insert(sink, pa.record_batch({"x": [1.0, float("nan")]}))
    assert os.listdir(tmp_path) == []
