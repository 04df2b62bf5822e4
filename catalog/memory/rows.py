"""Rows of a source: the readable rows, and for each other row the reason why it is bad.

Arrow reads and converts many rows at once and at best names the first bad row. ``salvage`` halves
the range until every bad row stands alone, at the cost of two or more attempts per bad row. Few bad
rows are expected, and readers stop after each group of TOGETHER rows that holds any.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from cql.base.model import Field
from cql.catalog.convert import Shaper, empty_batch, join, shown
from cql.errors import CatalogError
from cql.executor.protocols import BadInput, Mark, place_among

#: Rows that are searched together if some are bad. A reader gives them before it goes on, so that
#: a query that fails at its first bad row does not wait for the others.
TOGETHER = 1_024
#: Characters of a bad row that a ledger keeps.
SHOWN = 200
#: Exceptions that a row raises if it cannot be read.
REFUSALS = (CatalogError, pa.ArrowException, ValueError)


@dataclass(frozen=True, slots=True)
class Rows:
    """``batch`` holds the readable rows; ``bad``, in order, has the places of the others among all
    rows. ``row_punctuation`` is the source's punctuation, in order: (number of rows before it,
    column, value)."""

    batch: pa.RecordBatch
    bad: tuple[BadInput, ...] = ()
    row_punctuation: tuple[Mark, ...] = ()

    @property
    def count(self) -> int:
        return int(self.batch.num_rows) + len(self.bad)

    def slice(self, start: int, count: int | None = None) -> Rows:
        """``count`` rows from ``start`` on, also bad rows; punctuation stays behind its rows."""
        stop = self.count if count is None else min(start + count, self.count)
        if start == 0 and stop == self.count:
            return self
        row_punctuation = self.row_punctuation and tuple(
            (row - start, column, value)
            for row, column, value in self.row_punctuation
            if start < row <= stop or row == start == 0
        )
        if not self.bad:
            return Rows(self.batch.slice(start, stop - start), (), row_punctuation)
        places = [b.row for b in self.bad]
        first, last = bisect_left(places, start), bisect_left(places, stop)
        bad = tuple(replace(b, row=b.row - start) for b in self.bad[first:last])
        return Rows(self.batch.slice(start - first, stop - start - len(bad)), bad, row_punctuation)

    def place(self, index: int) -> int:
        """The place of row ``index`` of the batch among all rows."""
        return place_among(self.bad, index)


def joined(fields: Sequence[Field], parts: Sequence[Rows]) -> Rows:
    """The parts as one, without chunks."""
    if len(parts) == 1:
        return parts[0]
    bad: list[BadInput] = []
    row_punctuation: list[Mark] = []
    before = 0
    for part in parts:
        bad += [replace(b, row=before + b.row) for b in part.bad]
        row_punctuation += [
            (before + row, column, value) for row, column, value in part.row_punctuation
        ]
        before += part.count
    batches = [p.batch for p in parts if p.batch.num_rows]
    batch = join(fields, batches) if batches else empty_batch(fields)
    return Rows(batch, tuple(bad), tuple(row_punctuation))


def salvage(
    count: int,
    attempt: Callable[[int, int], pa.RecordBatch],
    blame: Callable[[int, Exception], BadInput],
) -> tuple[list[pa.RecordBatch], list[BadInput]]:
    """The batches that ``attempt(start, stop)`` can read of ``count`` rows, and ``blame(row,
    error)`` for each row that ``attempt`` refuses alone."""
    good: list[pa.RecordBatch] = []
    bad: list[BadInput] = []
    ranges = [(0, count)]
    while ranges:
        start, stop = ranges.pop()
        try:
            good.append(attempt(start, stop))
        except REFUSALS as error:
            if stop - start == 1:
                bad.append(blame(start, error))
            else:
                middle = (start + stop) // 2
                ranges += [(middle, stop), (start, middle)]
    return good, bad


def shape(shaper: Shaper, raw: Rows, *, row: int, where: str) -> Rows:
    """The rows in the engine's types; CatalogError names the first that does not fit."""
    batch = shaper.shape(raw.batch, row=row, where=where)
    return Rows(batch, raw.bad, raw.row_punctuation)


def shape_what_fits(shaper: Shaper, raw: Rows, *, row: int, where: str) -> Rows:
    """Like ``shape``, but rows that do not fit become bad rows."""

    def attempt(start: int, stop: int) -> pa.RecordBatch:
        part = raw.batch.slice(start, stop - start)
        return shaper.shape(part, row=row + raw.place(start), where=where)

    def blame(index: int, error: Exception) -> BadInput:
        values = raw.batch.slice(index, 1)
        text = ", ".join(shown(column[0]) for column in values.columns)
        return bad_input(raw.place(index), error, text)

    good, bad = salvage(raw.batch.num_rows, attempt, blame) if raw.batch.num_rows else ([], [])
    every = tuple(sorted((*raw.bad, *bad), key=lambda b: b.row))
    batch = join(shaper.fields, good) if good else empty_batch(shaper.fields)
    return Rows(batch, every, raw.row_punctuation)


def bad_input(row: int, error: Exception, text: str) -> BadInput:
    if isinstance(error, CatalogError):
        return BadInput(row, error.message, error.hint, clipped(text))
    return BadInput(row, str(error).split("\n", 1)[0], None, clipped(text))


def clipped(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
