"""Cutting what a source delivers into blocks, at fixed multiples of BLOCK_ROWS of the stream.

A feed delivers pieces of any size; the reader cuts and joins them, so that the same rows in other
pieces give the same blocks. Only a live feed, which has nothing more for the moment, makes shorter
blocks; they still never cross a multiple.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import pyarrow as pa

from cql.catalog.convert import Shaper, empty_batch, join
from cql.errors import CatalogError
from cql.executor.protocols import BLOCK_ROWS, Block, Offset


class End(Enum):
    END = "end"


END = End.END


@dataclass(frozen=True, slots=True)
class Piece:
    """Raw rows, their columns in the order asked for. ``after(k)`` is the offset after the first
    ``k`` of them; ``first`` is the number of the first one within ``where`` (for messages);
    ``promise(k)`` gives the source's own punctuation after them."""

    batch: pa.RecordBatch
    after: Callable[[int], Offset]
    where: str
    first: int
    promise: Callable[[int], tuple[tuple[str, int], ...]] | None = None


class Feed(Protocol):
    def take(self, limit: int, timeout: float | None) -> Piece | End | None:
        """The next rows (of any number, ``limit`` are wanted); END after the last; None when
        nothing came within ``timeout`` seconds (live feeds only; None waits)."""
        ...

    def close(self) -> None: ...


class IteratorFeed:
    """A feed that never waits."""

    def __init__(self, pieces: Iterator[Piece], close: Callable[[], None] | None = None) -> None:
        self._pieces = pieces
        self._close = close

    def take(self, limit: int, timeout: float | None) -> Piece | End | None:
        return next(self._pieces, END)

    def close(self) -> None:
        if self._close is not None:
            self._close()


@dataclass(frozen=True, slots=True)
class _Part:
    """Raw rows of a block; ``first`` is the number of their first one within ``where``."""

    raw: pa.RecordBatch
    where: str
    first: int


def _runs(parts: list[_Part]) -> Iterator[_Part]:
    """Parts that follow one another in one place, joined before their conversion: many tiny
    batches would otherwise pay for it one by one (3.5 us a row at 10 rows a batch)."""
    run: list[pa.RecordBatch] = []
    for i, part in enumerate(parts):
        run.append(part.raw)
        later = parts[i + 1] if i + 1 < len(parts) else None
        if (
            later is None
            or later.where != part.where
            or later.first != part.first + part.raw.num_rows
            or later.raw.schema != part.raw.schema
        ):
            raw = run[0] if len(run) == 1 else pa.concat_batches(run)
            yield _Part(raw, part.where, part.first + part.raw.num_rows - raw.num_rows)
            run = []


class BlockReader:
    """A Reader over a feed; ``row`` is the number of the next row in the whole stream."""

    def __init__(self, feed: Feed, shaper: Shaper, *, row: int, offset: Offset) -> None:
        self._feed = feed
        self._shaper = shaper
        self._row = row
        self._offset = offset
        self._rest: tuple[Piece, int] | None = None
        self._ended = False
        self._error: CatalogError | None = None

    def next(self, timeout: float | None = None) -> Block | None:
        if self._error is not None:  # a failed reader stays failed: its end is not the data's end
            raise self._error
        try:
            return self._next(timeout)
        except CatalogError as error:
            self._error = error
            self._feed.close()
            raise

    def _next(self, timeout: float | None) -> Block | None:
        room = BLOCK_ROWS - self._row % BLOCK_ROWS
        parts: list[_Part] = []
        have = 0
        promise: tuple[tuple[str, int], ...] = ()
        while have < room and not self._ended:
            taken = self._take(room - have, 0.0 if parts else timeout)
            if taken is None:
                break
            if taken is END:
                self._ended = True
                break
            piece, start = taken
            count = min(room - have, piece.batch.num_rows - start)
            if count == 0:
                continue
            raw = piece.batch.slice(start, count)
            parts.append(_Part(raw, piece.where, piece.first + start))
            have += count
            self._offset = piece.after(start + count)
            promise = piece.promise(start + count) if piece.promise is not None else ()
            if start + count < piece.batch.num_rows:
                self._rest = (piece, start + count)
        if not parts:
            if self._ended:
                return None
            return Block(empty_batch(self._shaper.fields), self._offset)
        self._row += have
        shaped = [
            self._shaper.shape(run.raw, row=run.first, where=run.where) for run in _runs(parts)
        ]
        return Block(join(self._shaper.fields, shaped), self._offset, promise)

    def _take(self, limit: int, timeout: float | None) -> tuple[Piece, int] | End | None:
        if self._rest is not None:
            rest, self._rest = self._rest, None
            return rest
        taken = self._feed.take(limit, timeout)
        return (taken, 0) if isinstance(taken, Piece) else taken

    def close(self) -> None:
        self._ended, self._rest = True, None
        self._feed.close()


def row_of(offset: Offset | None, what: str) -> int:
    """The row number of a ``{"row": n}`` offset, 0 for None."""
    if offset is None:
        return 0
    row = offset.get("row")
    if not isinstance(row, int) or row < 0:
        raise CatalogError(
            f"{dict(offset)} is not a position in {what}",
            hint="it belongs to another source: start the query anew",
        )
    return row
