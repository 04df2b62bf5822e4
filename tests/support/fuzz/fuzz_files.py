"""Reads damaged files in a process of its own: each file gives rows or a CatalogError.

    python fuzz_files.py FOLDER SEED COUNT [KIND ...]

makes COUNT damaged files of each kind, one after the other, and reads each as the engine does:
types, statistics, all rows, the rows from the middle on. A line per kind counts the files that were
read and refused. The kind ``footer`` is a small Parquet file with one wrong bit, in each byte of
its footer in turn. Any other exception ends the process with a nonzero exit code; so do C++'s
``terminate``, a segmentation fault and a file that takes longer than HANGS seconds.
``FOLDER/last`` holds the path of the last file.
"""

from __future__ import annotations

import faulthandler
import io
import json
import os
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.orc as orc
import pyarrow.parquet as pq

from cql.catalog.files.source import FileSource
from cql.catalog.spark.tables.files import DataFile, Files
from cql.catalog.spark.tables.read import read_batches
from cql.errors import CatalogError
from cql.executor.protocols import BLOCK_ROWS

#: Seconds until a file counts as hanging.
HANGS = 60
_ROWS = 300


def _table(nested: bool) -> pa.Table:
    n = range(_ROWS)
    columns: dict[str, Any] = {
        "ts": pa.array([i * 1_000_000 for i in n], pa.timestamp("us", "UTC")),
        "i": pa.array([None if i % 7 == 0 else i * 2**20 for i in n], pa.int64()),
        "k": pa.array([i % 11 for i in n], pa.int16()),
        "s": [None if i % 5 == 0 else f"text {i % 13}" for i in n],
        "d": [i / 7 for i in n],
        "b": [i % 3 == 0 for i in n],
    }
    if nested:
        columns["l"] = [[i, None] * (i % 3) for i in n]
        columns["st"] = [None if i % 4 == 0 else {"x": i, "y": str(i)} for i in n]
        columns["m"] = pa.array([f"{i}.25" for i in n]).cast(pa.decimal128(9, 2))
    return pa.table(columns)


def _parquet(**options: Any) -> Callable[[], bytes]:
    def make() -> bytes:
        out = io.BytesIO()
        pq.write_table(_table(nested=True), out, row_group_size=120, **options)
        return out.getvalue()

    return make


def _arrow(make_writer: Callable[[Any, pa.Schema], Any], codec: str | None) -> Callable[[], bytes]:
    def make() -> bytes:
        out = io.BytesIO()
        table = _table(nested=True)
        codes = table["s"].dictionary_encode().combine_chunks()
        table = table.append_column("c", codes)
        with make_writer(out, table.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as w:  # type: ignore[call-arg]
            w.write_table(table, max_chunksize=120)
        return out.getvalue()

    return make


def _orc(**options: Any) -> Callable[[], bytes]:
    def make() -> bytes:
        out = io.BytesIO()
        orc.write_table(_table(nested=True), out, **options)
        return out.getvalue()

    return make


def _csv() -> bytes:
    out = io.BytesIO()
    pc.write_csv(_table(nested=False), out)
    return out.getvalue()


def _json() -> bytes:
    rows = _table(nested=True).drop_columns(["m"]).to_pylist()
    return "".join(json.dumps(row, default=str) + "\n" for row in rows).encode()


ORIGINALS: dict[str, list[Callable[[], bytes]]] = {
    "parquet": [
        _parquet(),
        _parquet(compression="zstd", version="1.0", write_statistics=False),
        _parquet(use_dictionary=False, compression="none", data_page_version="2.0"),
    ],
    "arrow": [
        _arrow(pa.ipc.new_file, None),
        _arrow(pa.ipc.new_file, "lz4"),
        _arrow(pa.ipc.new_stream, None),
    ],
    "orc": [_orc(), _orc(compression="zlib", stripe_size=4096)],
    "csv": [_csv],
    "json": [_json],
}


def damaged(data: bytes, rng: random.Random) -> bytes:
    """The data with one to four faults: changed bits or bytes, deleted, repeated or inserted bytes,
    a cut. Faults are often near the end, where formats keep their metadata."""
    made = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        size = len(made)
        if not size:
            break
        near = rng.choice((size, size, min(size, 1200), min(size, 200), min(size, 16)))
        at = size - 1 - rng.randrange(near)
        length = min(rng.choice((1, 2, 8, 64, 500)), size - at)
        match rng.randrange(8):
            case 0 | 1 | 2:
                made[at] ^= 1 << rng.randrange(8)
            case 3:
                made[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
            case 4:
                made[at : at + length] = rng.randbytes(length)
            case 5:
                del made[at : at + length]
            case 6:
                made[at:at] = made[rng.randrange(size) :][:length] or rng.randbytes(length)
            case _:
                del made[at:]
    return bytes(made)


def files(kind: str, seed: int, count: int) -> Iterator[bytes]:
    if kind == "footer":
        out = io.BytesIO()
        pq.write_table(_table(nested=False).select(["ts", "i", "s"]), out, store_schema=False)
        data = out.getvalue()
        length = int.from_bytes(data[-8:-4], "little") + 8
        for number in range(length):
            made = bytearray(data)
            made[-1 - number] ^= 1 << random.Random(f"{seed} {number}").randrange(8)
            yield bytes(made)
        return
    originals = [make() for make in ORIGINALS[kind]]
    for number in range(count):
        rng = random.Random(f"{seed} {kind} {number}")
        yield damaged(rng.choice(originals), rng)


def read(kind: str, path: Path) -> int:
    """Reads the file, then again from its middle row on. Returns the number of its rows."""
    if kind == "orc":
        return sum(s.batch.num_rows for s in read_batches(_spark_files(path)))
    source = FileSource(
        {"path": path, "format": kind.replace("footer", "parquet")}, what="stream s"
    )
    source.statistics()
    rows = _drain(source, None)
    middle = {"row": rows // 2, "file": str(path), "in_file": rows // 2}
    rest = _drain(source, middle)
    assert rows // 2 + rest == rows, (rows, rest)
    return rows


def _drain(source: FileSource, offset: dict[str, Any] | None) -> int:
    reader = source.open(source.schema.names, offset)
    rows = 0
    while (block := reader.next()) is not None:
        count = block.batch.num_rows + len(block.bad)
        assert 0 < count <= BLOCK_ROWS
        block.batch.validate(full=True)
        rows += count
    return rows


def _spark_files(path: Path) -> Files:
    status = os.stat(path)
    file = DataFile(str(path), path.as_uri(), status.st_size, status.st_mtime_ns)
    schema = _table(nested=True).schema
    return Files("t", "orc", schema, (), (file,), case_sensitive=False, direct=True)


def main(folder: Path, seed: int, count: int, kinds: list[str]) -> None:
    faulthandler.enable()
    for kind in kinds or [*ORIGINALS, "footer"]:
        outcomes = {"read": 0, "refused": 0}
        for number, data in enumerate(files(kind, seed, count)):
            path = folder / f"{number}.{kind}"
            path.write_bytes(data)
            (folder / "last").write_text(f"{path}\n")
            faulthandler.dump_traceback_later(HANGS, exit=True)
            try:
                read(kind, path)
                outcomes["read"] += 1
            except CatalogError as error:
                if str(path) not in error.message:
                    raise
                outcomes["refused"] += 1
            faulthandler.cancel_dump_traceback_later()
            path.unlink()
        print(json.dumps({"kind": kind, **outcomes}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
