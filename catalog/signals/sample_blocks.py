"""Signals whose rows are blocks of samples: the channels are arrays, and the time of a row is that
of its first sample. Queries read one row for each sample.

Sound is kept in tables so: a row for each second or file, ``(start, ch0 ARRAY<SMALLINT>)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cql.base.model import Schema, is_channel, of_samples
from cql.catalog.blocks import END, BlockReader, End, Piece, row_of
from cql.catalog.convert import Column, Shaper, empty_columns, pick
from cql.catalog.memory.rows import Rows, clipped
from cql.catalog.read_relation import ReadRelation, SourceOver
from cql.executor.protocols import BadInput, Block, Offset, Reader, Source
from cql.planner.nodes.catalog import Relation, Statistics, StreamSpec

#: Rows of the source that are read at once: a row may hold a million samples.
ROWS_AT_ONCE = 64
_MICROSECONDS = 1_000_000


class SampleRelation(ReadRelation):
    """A signal over rows that are blocks of samples."""

    __slots__ = ()

    @property
    def schema(self) -> Schema:
        return of_samples(self.base.schema)

    @property
    def stored(self) -> Schema:
        return self.base.schema

    @property
    def statistics(self) -> Statistics:
        return Statistics()

    def source(self) -> Source:
        spec = self.stream
        assert spec is not None
        what = f"{self.kind} {'.'.join(self.name)}"
        return SampleSource(self.base.source(), self.base.schema, spec, what)


def as_samples(relation: Relation | None) -> Relation | None:
    """``relation`` as queries read it."""
    if relation is None or relation.stream is None or relation.stream.rate_hz is None:
        return relation
    if not any(is_channel(f.type) for f in relation.schema):
        return relation
    return SampleRelation(relation)


class SampleSource(SourceOver):
    """The samples in the rows of ``inner``, whose columns are ``stored``. Offsets are
    ``{"row": samples given, "inner": offset of the inner source, "skip": samples behind it}``."""

    def __init__(self, inner: Source, stored: Schema, spec: StreamSpec, what: str) -> None:
        self._inner = inner
        self._what = what
        self.stored = stored
        self.schema = of_samples(stored)
        rate = spec.rate
        assert rate is not None
        self.period = _MICROSECONDS / rate
        kinds = {f.name.lower(): f.type for f in stored}
        named = [p.column.lower() for p in spec.progress]
        #: The columns with the time of a row's first sample.
        self.times = [name for name in named if kinds[name].is_timestamp]
        self.channels = [f.name.lower() for f in stored if is_channel(f.type)]

    def open(self, columns: Sequence[str], offset: Offset | None = None) -> Reader:
        fields = pick(self.schema, columns, self._what)
        row = row_of(offset, self._what)
        names = [f.name for f in fields]
        if not any(name.lower() in self.channels for name in names):
            names.append(self.channels[0])  # it says how many samples a row has
        feed = _SampleFeed(self, names, len(fields), row, offset or {}, self._what)
        reader = BlockReader(feed, Shaper(fields), row=row, offset=offset or {"row": 0})
        reader.notices = feed.notices
        return reader

    def read(self, names: Sequence[str], place: Offset | None) -> Reader:
        reader = self._inner.open(names, place)
        if hasattr(reader, "block_rows"):
            reader.block_rows = ROWS_AT_ONCE
        return reader


class _SampleFeed:
    def __init__(
        self,
        source: SampleSource,
        names: Sequence[str],
        count: int,
        row: int,
        offset: Offset,
        what: str,
    ) -> None:
        self._names, self._count = [n.lower() for n in names], count
        self._source = source
        self._what = what
        self._row = row
        self._before: Offset | None = offset.get("inner")
        self._skip = int(offset.get("skip", 0))
        self._after = np.empty(0, np.int64)  # by sample of a row, its time behind the first
        self._reader = source.read(names, self._before)
        self.notices: list[str] = getattr(self._reader, "notices", [])

    def take(self, limit: int, timeout: float | None) -> Piece | End | None:
        del limit
        while True:
            block = self._reader.next(timeout)
            if block is None:
                return END
            rows = self._rows(block)
            if not rows.count and not rows.row_punctuation:
                self._before, self._skip = block.offset, 0
                if block.is_empty:
                    return None
                continue
            if self._skip and self._skip >= rows.count:
                self._skip -= rows.count
                self._before = block.offset
                continue
            return self._piece(rows, block.offset)

    def close(self) -> None:
        self._reader.close()

    def _piece(self, rows: Rows, end: Offset) -> Piece:
        row, skip, before, size = self._row, self._skip, self._before, rows.count

        def after(k: int) -> Offset:
            if skip + k == size:
                return {"row": row + k, "inner": end, "skip": 0}
            return {"row": row + k, "inner": before, "skip": skip + k}

        self._row += size - skip
        self._before, self._skip = end, 0
        return Piece(rows.slice(skip) if skip else rows, after, self._what, row)

    def _rows(self, block: Block) -> Rows:
        """The samples of a block. A bad row of it is one bad row among them."""
        batch = block.batch
        lengths, unlike = self._lengths(batch)
        everything = batch.num_rows + len(block.bad)
        good = np.delete(np.arange(everything), [b.row for b in block.bad])
        counts = np.ones(everything, np.int64)
        counts[good] = np.where(unlike, 1, lengths)
        starts = np.concatenate(([0], np.cumsum(counts)))
        bad = [replace(b, row=int(starts[b.row])) for b in block.bad]
        bad += [self._unlike(batch, int(k), int(starts[good[k]])) for k in np.flatnonzero(unlike)]
        if unlike.any():
            batch = batch.filter(pa.array(~unlike))
            lengths = lengths[~unlike]
        arrays = [
            self._samples(column, name, lengths)
            for name, column in zip(self._names[: self._count], batch.columns, strict=False)
        ]
        made = pa.record_batch(arrays, names=self._names[: self._count])
        return Rows(
            made if arrays else empty_columns(int(lengths.sum())),
            tuple(sorted(bad, key=lambda b: b.row)),
            (
                *((int(starts[row]), name, value) for row, name, value in block.row_punctuation),
                *((int(starts[-1]), name, value) for name, value in block.punctuation),
            ),
        )

    def _lengths(
        self, batch: pa.RecordBatch
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """The samples of each row, and whether its channels have different numbers of them. A
        channel that is NULL in a row lacks its samples there."""
        lengths = np.full(batch.num_rows, -1, np.int64)
        unlike = np.zeros(batch.num_rows, np.bool_)
        for name, column in zip(self._names, batch.columns, strict=True):
            if name in self._source.channels:
                own = pc.list_value_length(column).fill_null(-1)
                found = own.to_numpy(zero_copy_only=False).astype(np.int64)
                unlike |= (lengths >= 0) & (found >= 0) & (lengths != found)
                lengths = np.maximum(lengths, found)
        return np.maximum(lengths, 0), unlike

    def _unlike(self, batch: pa.RecordBatch, row: int, at: int) -> BadInput:
        values = dict(zip(self._names, batch.slice(row, 1).columns, strict=True))
        told = ", ".join(
            f"{len(values[name][0].as_py())} in {name}"
            for name in self._names
            if name in self._source.channels and values[name][0].is_valid
        )
        return BadInput(
            at,
            f"{self._what}: a row whose channels have different numbers of samples: {told}",
            "each array of a row has the samples of the same times",
            clipped(str(batch.slice(row, 1).to_pylist()[0])),
        )

    def _samples(self, column: Column, name: str, lengths: npt.NDArray[np.int64]) -> Column:
        if name in self._source.channels:
            return _flat(column, lengths)
        if name in self._source.times:
            return self._times(column, lengths)
        return column.take(pa.array(np.repeat(np.arange(len(lengths)), lengths)))

    def _times(self, column: Column, lengths: npt.NDArray[np.int64]) -> Column:
        """The times of all samples, of those of the first in each row."""
        longest = int(lengths.max(initial=0))
        if len(self._after) < longest:
            self._after = _microseconds(np.arange(longest), self._source.period)
        firsts = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        made = np.empty(int(lengths.sum()), np.int64)
        end = 0
        for first, length in zip(firsts.tolist(), lengths.tolist(), strict=True):
            end += length
            np.add(self._after[:length], first, out=made[end - length : end])
        lacks = None
        if column.null_count:
            lacks = np.repeat(column.is_null().to_numpy(zero_copy_only=False), lengths)
        return pa.array(made, mask=lacks).view(column.type)


def _microseconds(number: npt.NDArray[np.int64], period: Fraction) -> npt.NDArray[np.int64]:
    """The times of samples behind the first of their row, rounded to the nearest microsecond."""
    whole, rest = np.divmod(number, period.denominator)
    part = (2 * rest * period.numerator + period.denominator) // (2 * period.denominator)
    found: npt.NDArray[np.int64] = whole * period.numerator + part
    return found


def _flat(column: Column, lengths: npt.NDArray[np.int64]) -> Column:
    """The elements of arrays, one behind the other; ``lengths`` NULLs for an array that is NULL."""
    values = column.flatten()
    if not column.null_count:
        return values
    lacks = np.repeat(column.is_null().to_numpy(zero_copy_only=False), lengths)
    places = np.cumsum(~lacks) - 1
    return values.take(pa.array(places, mask=lacks))
