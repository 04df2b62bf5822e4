"""Helpers of the catalog's tests: draining readers, a clock that only tests move."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from cql.errors import CatalogError
from cql.executor.protocols import BLOCK_ROWS, Block, Reader, Source


class FakeClock:
    """Time passes only while somebody sleeps; ``events`` run when their time has come."""

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


def drain(reader: Reader, *, keep: bool = False) -> list[Block]:
    """All blocks. The first row that cannot be read is an error, unless such rows are kept."""
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
    """With dictionary-encoded strings decoded."""
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
    """Every block's offset gives exactly the rows after it, and the same blocks."""
    names = list(source.schema.names)
    blocks = drain(source.open(names), keep=True)
    for i, block in list(enumerate(blocks))[:limit]:
        again = drain(source.open(names, block.offset), keep=True)
        assert [b.bad for b in again] == [b.bad for b in blocks[i + 1 :]]
        assert [b.batch.num_rows for b in again] == [b.batch.num_rows for b in blocks[i + 1 :]]
        assert [b.offset for b in again] == [b.offset for b in blocks[i + 1 :]]
        assert rows_of(again) == rows_of(blocks[i + 1 :])
    return rows_of(blocks)
