"""The protocols of sources and sinks, which ``cql.catalog`` implements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cql.base.model import Schema

#: The largest number of rows in one block. Replay of several inputs alternates between whole
#: blocks, so the order of rows does not depend on the morsel size.
BLOCK_ROWS = 262_144
#: Samples of a block of a signal: so many that the work of its feed does not count beside theirs.
BLOCK_SAMPLES = 1 << 22

#: A position in a source, as plain JSON data; equal offsets mean the same position.
Offset: TypeAlias = Mapping[str, Any]


#: Punctuation that the source provides: (number of rows before it, bad rows included; column;
#: value in storage units).
Mark: TypeAlias = tuple[int, str, int]


@dataclass(frozen=True, slots=True)
class BadInput:
    """A row that its source cannot turn into values. ``row`` is its index among all rows of the
    block. ``reason`` names the place (file, line, column) and the fault, ``hint`` the remedy.
    ``text`` is the raw text of the row, clipped."""

    row: int
    reason: str
    hint: str | None
    text: str


@dataclass(frozen=True, slots=True)
class Block:
    """Rows in source order. ``batch`` has the requested columns in the requested order, unchunked,
    in the types of the relation's schema (``DataType.to_arrow``; string columns may be
    dictionary-encoded).

    ``offset`` is the position after the last row. ``punctuation`` comes from the source itself:
    (column, value in storage units), valid after the last row. ``row_punctuation`` is the
    punctuation between the rows, in order. ``bad`` are the unreadable rows, in order; offsets count
    them, ``batch`` lacks them. ``row_watermarks`` has, by column, the watermark before each row of
    ``batch`` (storage units, not descending; the least int64 stands for none): a part of a larger
    stream brings the watermarks of the whole, and its rows advance none. ``row_numbers`` are the
    numbers that the rows of a part have in the whole. A block without rows, punctuation, marks or
    bad rows means "nothing yet" on an unbounded source."""

    batch: pa.RecordBatch
    offset: Offset
    punctuation: tuple[tuple[str, int], ...] = ()
    bad: tuple[BadInput, ...] = ()
    row_punctuation: tuple[Mark, ...] = ()
    row_watermarks: tuple[tuple[str, npt.NDArray[np.int64]], ...] = ()
    row_numbers: npt.NDArray[np.int64] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether the block brings neither rows nor punctuation."""
        return not (self.batch.num_rows or self.punctuation or self.bad or self.row_punctuation)


def place_among(bad: Sequence[BadInput], index: int) -> int:
    """The index of good row ``index`` among all rows of a block, the ``bad`` rows included."""
    for b in bad:
        if b.row > index:
            break
        index += 1
    return index


class Reader(Protocol):
    """One pass over a source, used by one thread at a time. A reader may have ``notices``, a list
    of texts about its data that grows during the pass; the reporter removes each text it shows."""

    def next(self, timeout: float | None = None) -> Block | None:
        """Returns the next block of 1 to BLOCK_ROWS rows, or None after the last block. A bounded
        source ignores ``timeout``; an unbounded source returns an empty block when no row arrives
        within ``timeout`` seconds. A single unreadable row goes into the block's ``bad``. Raises
        CatalogError if the data as a whole is damaged or gone, or has another schema than
        declared."""
        ...

    def close(self) -> None: ...


class SizedReader(Reader, Protocol):
    """A reader whose blocks have at most ``block_rows`` rows; a feed of samples raises it before
    the first block."""

    block_rows: int


class Source(Protocol):
    """A replayable input: a reader opened at an offset gives exactly the rows after the offset, in
    the same order. A source that cannot replay (a generator) raises CatalogError on a second open.

    Optional attributes: ``lag`` (units of event time) delays the source behind its peers.
    ``paced`` says that the source follows a clock; its results are not gathered. ``replayable``
    says that the same rows can be read again later, also by another process: a checkpoint needs it
    of the sources that are not read to their ends. ``version()``, of a source whose rows may
    change, returns a value that differs after a change, or None if the source cannot detect
    changes."""

    @property
    def schema(self) -> Schema: ...
    @property
    def bounded(self) -> bool: ...
    def open(self, columns: Sequence[str], offset: Offset | None = None) -> Reader: ...


class Sink(Protocol):
    """Takes the output of an epoch and publishes it atomically. Output of an uncommitted epoch is
    never visible. One thread at a time calls begin, write…, then commit or abort."""

    @property
    def schema(self) -> Schema:
        """The columns of the target, in the target's order."""
        ...

    def begin(self) -> None: ...
    def write(self, batch: pa.RecordBatch) -> None:
        """``batch`` has the schema given to ``Catalog.sink``. The sink casts each column safely to
        the target's type, and raises CatalogError with the column's name if a value does not
        fit."""
        ...

    def commit(self) -> int:
        """Publishes the epoch and returns its number."""
        ...

    def abort(self) -> None: ...


class KeyedSink(Sink, Protocol):
    """The sink of a table with a PRIMARY KEY: a row replaces the row with its key."""

    def delete(self, keys: pa.RecordBatch) -> None:
        """Removes the rows of these keys, whose columns are those of the key. A key that the epoch
        also writes is no key to delete."""
        ...
