"""Helpers for the tests of the catalog: draining readers, writing files of each format, and a clock
that only tests advance."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

from cql.errors import CatalogError
from cql.executor.protocols import BLOCK_ROWS, Block, Reader, Source


class FakeClock:
    """A clock in seconds that only ``sleep`` advances; ``sleep`` runs the ``events`` that are
    due."""

    def __init__(self) -> None:
        self.time = 0.0
        self.events: list[tuple[float, Callable[[], object]]] = []

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.time += seconds
        due = [e for e in self.events if e[0] <= self.time]
        self.events = [e for e in self.events if e[0] > self.time]
        for _, action in due:
            action()


@contextmanager
def blocks_of_eight() -> Iterator[None]:
    """Sets the block size to 8 rows and the group that is searched for bad rows to 4 rows, so that
    little data reaches every cut."""
    from cql.catalog import blocks
    from cql.catalog.changelogs import sources
    from cql.catalog.files import text
    from cql.catalog.memory import iterables, rows
    from cql.executor import protocols

    with pytest.MonkeyPatch.context() as patch:
        for module in (blocks, iterables, sources):
            patch.setattr(module, "BLOCK_ROWS", 8)
        patch.setattr(protocols, "BLOCK_SAMPLES", 8)
        for other in (rows, text, blocks, iterables):
            patch.setattr(other, "TOGETHER", 4)
        yield


def drain(reader: Reader, *, keep: bool = False) -> list[Block]:
    """All blocks of the reader. Raises CatalogError at the first bad row unless ``keep`` is
    true."""
    blocks = []
    while (block := reader.next()) is not None:
        if block.bad and not keep:
            raise CatalogError(block.bad[0].reason, hint=block.bad[0].hint)
        assert 0 < block.batch.num_rows + len(block.bad) <= BLOCK_ROWS
        blocks.append(block)
    assert reader.next() is None
    reader.close()
    return blocks


def plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with its dictionary-encoded columns decoded."""
    columns: list[Any] = list(batch.columns)
    arrays = [c.dictionary_decode() if pa.types.is_dictionary(c.type) else c for c in columns]
    if not arrays:
        return batch
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def rows_of(blocks: Sequence[Block]) -> list[dict[str, Any]]:
    return [row for b in blocks for row in plain(b.batch).to_pylist()]


def read(source: Source, columns: Sequence[str] | None = None, offset: Any = None) -> list[Any]:
    names = list(source.schema.names if columns is None else columns)
    return rows_of(drain(source.open(names, offset)))


def check_replay(source: Source, limit: int = 12) -> list[Any]:
    """Checks for ``limit`` blocks that reading from a block's offset gives the same later blocks.
    Returns all rows."""
    names = list(source.schema.names)
    blocks = drain(source.open(names), keep=True)
    for i, block in list(enumerate(blocks))[:limit]:
        again = drain(source.open(names, block.offset), keep=True)
        assert [b.bad for b in again] == [b.bad for b in blocks[i + 1 :]]
        assert [b.batch.num_rows for b in again] == [b.batch.num_rows for b in blocks[i + 1 :]]
        assert [b.offset for b in again] == [b.offset for b in blocks[i + 1 :]]
        assert rows_of(again) == rows_of(blocks[i + 1 :])
    return rows_of(blocks)


def sample(rows: int) -> pa.Table:
    return pa.table(
        {
            "n": pa.array(range(rows), pa.int64()),
            "s": [None if i % 5 == 0 else f"v{i % 3}" for i in range(rows)],
            "b": [i % 2 == 0 for i in range(rows)],
        }
    )


FORMATS = ("parquet", "csv", "json", "arrow", "stream")


def write(table: pa.Table, path: Path, kind: str, group: int = 10) -> Path:
    match kind:
        case "parquet":
            pq.write_table(table, path, row_group_size=group)
        case "csv":
            pc.write_csv(table, path)
        case "json":
            path.write_text("".join(json.dumps(r) + "\n" for r in table.to_pylist()))
        case "arrow":
            with pa.ipc.new_file(path, table.schema) as writer:
                writer.write_table(table, max_chunksize=group)
        case _:
            with pa.ipc.new_stream(path, table.schema) as stream:
                stream.write_table(table, max_chunksize=group)
    return path


SUFFIX = {"stream": "arrows", "json": "jsonl"}
