"""What the executor asks of sources and sinks; ``cql.catalog`` implements it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from cql.base.model import Schema

#: At most this many rows in one block; replay of several inputs alternates between whole blocks,
#: so that the order of rows does not depend on the morsel size.
BLOCK_ROWS = 262_144

#: A position in a source, as plain JSON data; equal offsets mean the same position.
Offset: TypeAlias = Mapping[str, Any]


#: A promise of a source itself: (rows before it, bad ones too; column; value in storage units).
Mark: TypeAlias = tuple[int, str, int]


@dataclass(frozen=True, slots=True)
class BadInput:
    """A row that its source cannot give as values: ``row`` is its place among all rows of the
    block, ``reason`` says where it stands (file, line, column) and what is wrong, ``hint`` what can
    be done, ``text`` is the row as it stands there, clipped."""

    row: int
    reason: str
    hint: str | None
    text: str


@dataclass(frozen=True, slots=True)
class Block:
    """Rows in source order: the columns asked for, in that order, in the types of the relation's
    schema (``DataType.to_arrow``; string columns may be dictionary-encoded), no chunking.

    ``offset`` is the position after the last row. ``punctuation`` holds promises of the source
    itself, (column, value) in storage units, valid after the last row; ``marks`` those that stand
    between its rows, in order: (rows before it, bad ones too; column; value). ``bad`` are the rows
    that could not be read, in order; offsets count them, ``batch`` lacks them. A block without any
    of these means "nothing yet" on an unbounded source."""

    batch: pa.RecordBatch
    offset: Offset
    punctuation: tuple[tuple[str, int], ...] = ()
    bad: tuple[BadInput, ...] = ()
    marks: tuple[Mark, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Nothing has come yet."""
        return not (self.batch.num_rows or self.punctuation or self.bad or self.marks)


def place_among(bad: Sequence[BadInput], index: int) -> int:
    """Where the good row ``index`` stands among all rows, of which ``bad`` cannot be read."""
    for b in bad:
        if b.row > index:
            break
        index += 1
    return index


class Reader(Protocol):
    """One pass over a source, used by one thread at a time. A reader may have ``notices``, a list
    of texts about its data that grows as it is read; whoever shows one takes it away."""

    def next(self, timeout: float | None = None) -> Block | None:
        """The next block of 1 to BLOCK_ROWS rows; None after the last. A bounded source ignores
        ``timeout``; an unbounded one returns an empty block when nothing came within it (seconds).
        A row that cannot be read by itself stands in the block's ``bad``; CatalogError means that
        the data is damaged as a whole, gone, or of another schema than promised."""
        ...

    def close(self) -> None: ...


class Source(Protocol):
    """A replayable input: opening at an offset gives exactly the rows after it, in the same order.
    A source that cannot replay (a generator) raises CatalogError on a second open. One that is to
    be read later than its peers says by how much, in units of event time, as ``lag``; one that
    follows a clock says so as ``paced``, and its results are not gathered. One whose rows may
    change says by ``version()`` what differs then, or None where it cannot tell."""

    @property
    def schema(self) -> Schema: ...
    @property
    def bounded(self) -> bool: ...
    def open(self, columns: Sequence[str], offset: Offset | None = None) -> Reader: ...


class Sink(Protocol):
    """Takes the output of an epoch and publishes it atomically; nothing of an epoch that was not
    committed is ever visible. Used by one thread at a time: begin, write…, commit or abort."""

    @property
    def schema(self) -> Schema:
        """Columns of the target, in its order."""
        ...

    def begin(self) -> None: ...
    def write(self, batch: pa.RecordBatch) -> None:
        """``batch`` has the schema given to ``Catalog.sink``; the sink casts safely to the target's
        types and refuses (CatalogError naming the column) what does not fit."""
        ...

    def commit(self) -> int:
        """Publishes; returns the epoch's number."""
        ...

    def abort(self) -> None: ...
