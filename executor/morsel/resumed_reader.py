"""A reader that continues behind a row of its source, with blocks of given sizes.

A source may cut its rows into other blocks when it is opened at an offset. The restored run needs
the blocks of the checkpoint again, so this reader joins and cuts what the source gives. An offset
inside a block of the source is ``{"behind": offset, "rows": n}``: n rows (unreadable rows included)
behind an offset of the source itself; the offset None is the beginning.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import pyarrow as pa

from cql.errors import CatalogError
from cql.executor.protocols import BadInput, Block, Mark, Offset, SizedReader, Source

_BEHIND, _ROWS = "behind", "rows"


class ResumedReader:
    """A reader of ``source``, which is called ``name``, from ``offset`` on. Its first blocks have
    ``sizes`` rows, unreadable rows included; the blocks behind them are those of the source."""

    def __init__(
        self,
        source: Source,
        name: str,
        columns: Sequence[str],
        offset: Offset | None,
        sizes: Sequence[int],
    ) -> None:
        self._name = name
        self._columns = tuple(columns)
        self._schema = source.schema
        inside = offset is not None and _BEHIND in offset
        self._behind: Offset | None = offset[_BEHIND] if inside and offset is not None else offset
        self._rows = 0  # rows between ``_behind`` and the next row to give
        self._left: Block | None = None  # rows that were read and not given
        self._reader = source.open(columns, self._behind)
        self.notices: list[str] = getattr(self._reader, "notices", [])
        self._sizes = deque(sizes)
        if inside and offset is not None:
            self._take(int(offset[_ROWS]))

    @property
    def block_rows(self) -> int:
        """That of the source's reader. Raises AttributeError if this has none, so that neither has
        the resumed one."""
        return cast(SizedReader, self._reader).block_rows

    @block_rows.setter
    def block_rows(self, rows: int) -> None:
        cast(SizedReader, self._reader).block_rows = rows

    def next(self, timeout: float | None = None) -> Block | None:
        if self._sizes:
            return self._take(self._sizes.popleft())
        if self._left is not None:
            left, self._left = self._left, None
            return left
        return self._reader.next(timeout)

    def close(self) -> None:
        self._reader.close()

    def _take(self, rows: int) -> Block:
        """The next block, with ``rows`` rows."""
        parts: list[Block] = []
        missing = rows
        while missing or not parts:
            block = self._left or self._read(missing)
            self._left = None
            size = min(missing, rows_of(block))
            if size < rows_of(block):
                block, self._left = cut(block, size)
                self._rows += size
                block = replace(block, offset={_BEHIND: self._behind, _ROWS: self._rows})
            else:
                self._behind, self._rows = block.offset, 0
            parts.append(block)
            missing -= size
        return parts[0] if len(parts) == 1 else joined(parts)

    def _read(self, missing: int) -> Block:
        """The next block of the source. ``missing``: the number of rows that it still owes."""
        block = self._reader.next(None if missing else 0.0)
        if block is not None:
            return block
        if missing:
            raise CatalogError(
                f"{self._name} ends {missing} rows before the place of the checkpoint",
                hint="the data is not what the query ran on: start the query anew",
            )
        fields = [self._schema[self._schema.find(name) or 0] for name in self._columns]
        arrays = [pa.nulls(0, f.type.to_arrow()) for f in fields]
        return Block(pa.RecordBatch.from_arrays(arrays, self._columns), self._behind or {})


def rows_of(block: Block) -> int:
    """The number of rows of a block, unreadable rows included."""
    return int(block.batch.num_rows) + len(block.bad)


def cut(block: Block, rows: int) -> tuple[Block, Block]:
    """The first ``rows`` rows of a block, and the others. Punctuation between the two parts is in
    the first one."""
    bad = [b for b in block.bad if b.row < rows]
    good = rows - len(bad)
    marks = [mark for mark in block.row_punctuation if mark[0] <= rows]
    first = Block(
        block.batch.slice(0, good),
        block.offset,
        (),
        tuple(bad),
        tuple(marks),
        tuple((name, values[:good]) for name, values in block.row_watermarks),
        None if block.row_numbers is None else block.row_numbers[:good],
    )
    others = Block(
        block.batch.slice(good),
        block.offset,
        block.punctuation,
        tuple(replace(b, row=b.row - rows) for b in block.bad[len(bad) :]),
        tuple(
            (row - rows, column, value)
            for row, column, value in block.row_punctuation[len(marks) :]
        ),
        tuple((name, values[good:]) for name, values in block.row_watermarks),
        None if block.row_numbers is None else block.row_numbers[good:],
    )
    return first, others


def joined(blocks: Sequence[Block]) -> Block:
    """Several blocks, one behind the other, as one block."""
    bad: list[BadInput] = []
    marks: list[Mark] = []
    before = 0
    for block in blocks:
        bad += (replace(b, row=b.row + before) for b in block.bad)
        marks += ((row + before, column, value) for row, column, value in block.row_punctuation)
        before += rows_of(block)
        if block is not blocks[-1]:
            marks += ((before, column, value) for column, value in block.punctuation)
    full = [block for block in blocks if block.batch.num_rows]
    named = zip(*(block.row_watermarks for block in full), strict=True)
    watermarks = tuple((b[0][0], np.concatenate([values for _, values in b])) for b in named)
    numbers = [block.row_numbers for block in full if block.row_numbers is not None]
    last = blocks[-1]
    return Block(
        pa.concat_batches([block.batch for block in full or blocks]),
        last.offset,
        last.punctuation,
        tuple(bad),
        tuple(marks),
        watermarks,
        np.concatenate(numbers) if numbers else None,
    )
