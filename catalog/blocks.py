"""Cuts the data of a source into blocks, at fixed multiples of BLOCK_ROWS rows of the stream.

A feed delivers pieces of any size. The reader cuts and joins them, so that the same rows in other
pieces give the same blocks. Two kinds of blocks are shorter, but still never cross a multiple: a
live feed that has no more rows for the moment ends a block, and so does a piece with bad rows. Rows
that do not fit their types are searched for in TOGETHER rows at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeAlias

import pyarrow as pa

from cql.catalog.convert import Shaper, empty_batch
from cql.catalog.memory.rows import TOGETHER, Rows, joined, shape, shape_what_fits
from cql.errors import CatalogError
from cql.executor.protocols import BLOCK_ROWS, Block, Offset


class End(Enum):
    END = "end"


END = End.END


@dataclass(frozen=True, slots=True)
class Piece:
    """Raw rows, with the columns in the requested order. ``after(k)`` is the offset after the first
    ``k`` rows; ``first`` is the number of the first row within ``where`` (for messages);
    ``punctuation(k)`` is the source's own punctuation after ``k`` rows."""

    rows: Rows
    after: Callable[[int], Offset]
    where: str
    first: int
    punctuation: Callable[[int], tuple[tuple[str, int], ...]] | None = None


class Feed(Protocol):
    def take(self, limit: int, timeout: float | None) -> Piece | End | None:
        """The next rows (any number; ``limit`` rows are wanted); END after the last row; None if no
        row came within ``timeout`` seconds (live feeds only; a ``timeout`` of None waits)."""
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
    """Raw rows of a block; ``first`` is the number of the first row within ``where``."""

    raw: Rows
    where: str
    first: int


def _runs(parts: list[_Part]) -> Iterator[_Part]:
    """Parts that follow one another in one place, joined before their conversion. To convert many
    tiny batches one by one would cost more (3.5 us a row at 10 rows a batch)."""
    if len(parts) == 1:
        yield parts[0]
        return
    run: list[pa.RecordBatch] = []
    for i, part in enumerate(parts):
        run.append(part.raw.batch)
        later = parts[i + 1] if i + 1 < len(parts) else None
        if (
            later is None
            or later.where != part.where
            or later.first != part.first + part.raw.count
            or later.raw.batch.schema != part.raw.batch.schema
            or any(
                (later.raw.bad, later.raw.row_punctuation, part.raw.bad, part.raw.row_punctuation)
            )
        ):
            batch = run[0] if len(run) == 1 else pa.concat_batches(run)
            raw = Rows(batch, part.raw.bad, part.raw.row_punctuation)
            yield _Part(raw, part.where, part.first + part.raw.count - raw.count)
            run = []


class BlockReader:
    """A Reader over a feed; ``row`` is the number of the next row in the whole stream."""

    def __init__(self, feed: Feed, shaper: Shaper, *, row: int, offset: Offset) -> None:
        self._feed = feed
        self._shaper = shaper
        self._row = row
        self._offset = offset
        self._waiting: deque[tuple[Piece, int]] = deque()  # with its first row in no block yet
        self._ended = False
        self._error: CatalogError | None = None
        self.block_rows = BLOCK_ROWS
        #: Notices about the data from the source. The caller that shows a notice removes it.
        self.notices: list[str] = []

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
        taken = self._gather(self.block_rows - self._row % self.block_rows, timeout)
        if not taken:
            if self._ended:
                return None
            return Block(empty_batch(self._shaper.fields), self._offset)
        try:
            rows = joined(
                self._shaper.fields,
                [
                    shape(self._shaper, run.raw, row=run.first, where=run.where)
                    for run in _runs([_part(*t) for t in taken])
                ],
            )
        except CatalogError:
            taken = self._fewer(taken, TOGETHER - self._row % TOGETHER)
            rows = joined(
                self._shaper.fields,
                [
                    shape_what_fits(self._shaper, part.raw, row=part.first, where=part.where)
                    for part in (_part(*t) for t in taken)
                ],
            )
        self._row += rows.count
        piece, start, count = taken[-1]
        self._offset = piece.after(start + count)
        punctuation = piece.punctuation(start + count) if piece.punctuation is not None else ()
        return Block(rows.batch, self._offset, punctuation, rows.bad, rows.row_punctuation)

    def _gather(self, room: int, timeout: float | None) -> list[_Taken]:
        """The rows of the next block, at most ``room``. A failure behind some rows is raised at the
        next block."""
        taken: list[_Taken] = []
        while room > 0:
            try:
                found = self._take(room, 0.0 if taken else timeout)
            except CatalogError as error:
                if not taken:
                    raise
                self._error = error
                self._feed.close()
                break
            if found is None:
                break
            piece, start = found
            count = min(room, piece.rows.count - start)
            if count == 0 and not piece.rows.row_punctuation:
                continue
            if start + count < piece.rows.count:
                self._waiting.appendleft((piece, start + count))
            taken.append((piece, start, count))
            room -= count
            if piece.rows.bad and piece.rows.slice(start, count).bad:
                break
        return taken

    def _fewer(self, taken: list[_Taken], room: int) -> list[_Taken]:
        """The first ``room`` of the taken rows; the others wait again."""
        kept: list[_Taken] = []
        back: list[tuple[Piece, int]] = []
        for piece, start, count in taken:
            given = 0 if back else min(room, count)
            room -= given
            if given or not (count or back):  # a piece of punctuation alone has no rows
                kept.append((piece, start, given))
            if given < count or (back and not count):
                back.append((piece, start + given))
        if back and self._waiting and back[-1][0] is self._waiting[0][0]:
            self._waiting.popleft()  # ``back`` holds the rest of the last piece
        self._waiting.extendleft(reversed(back))
        return kept

    def _take(self, limit: int, timeout: float | None) -> tuple[Piece, int] | None:
        """The next rows; None at the end, and if no row came in time."""
        if self._waiting:
            return self._waiting.popleft()
        if self._ended:
            return None
        found = self._feed.take(limit, timeout)
        if isinstance(found, Piece):
            return found, 0
        self._ended = found is END
        return None

    def close(self) -> None:
        self._ended = True
        self._waiting.clear()
        self._feed.close()


#: A piece, the index of the first of its rows that is taken, and the number of rows taken.
_Taken: TypeAlias = tuple[Piece, int, int]


def _part(piece: Piece, start: int, count: int) -> _Part:
    return _Part(piece.rows.slice(start, count), piece.where, piece.first + start)


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
