"""Streams whose rows are changes: their sources, which tell of each row what it does.

A source gives rows with operation codes (``CHANGELOG BY op``) or Debezium envelopes, flattened
(``debezium``). ``ChangelogSource`` gives the rows that enter and leave: the columns of the stream
and CHANGE, the number of copies that enter (or, below zero, leave). With UPDATE KEY a row that
leaves is known by its key: the other columns may be NULL.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cql.base.model import Field, Schema
from cql.catalog.convert import Column, pick
from cql.catalog.memory.rows import clipped
from cql.catalog.read_relation import SourceOver
from cql.executor.protocols import BLOCK_ROWS, BadInput, Block, Offset, Reader, Source
from cql.planner.nodes.catalog import CHANGE, StreamSpec

#: What the codes of a row mean: copies that enter, or leave; no effect.
_CODES = {
    "c": 1,
    "r": 1,
    "u": 1,
    "+": 1,
    "+i": 1,
    "+u": 1,
    "i": 1,
    "insert": 1,
    "update_after": 1,
    "d": -1,
    "-": -1,
    "-d": -1,
    "-u": -1,
    "delete": -1,
    "update_before": -1,
}
#: Codes of the row before an update, which with UPDATE KEY has no effect: another row follows it.
_BEFORE = ("-u", "update_before")
KNOWN = (
    "codes are c, r, u, d (Debezium), +I, -U, +U, -D, INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE"
    " (Flink), + and -, or integers: above zero the copies that enter, below zero those that leave"
)
#: In an offset of a changelog: the rows given behind the place of the source that it names, and the
#: last time of a row, by column.
_GIVEN, _TIMES = "changes", "times"


@dataclass(frozen=True, slots=True)
class Changes:
    """What becomes of the rows of a block. Output row k is row ``rows[k]``, which changes the
    relation by ``change[k]``; ``batch`` has the other columns of the output. ``bad``: for rows of
    the block that are bad, the reason and the hint."""

    rows: npt.NDArray[np.int64]
    change: npt.NDArray[np.int64]
    batch: pa.RecordBatch
    bad: Mapping[int, tuple[str, str]]


class Decoder(Protocol):
    """Reads the changes in rows of a source that ``columns`` of the stream are requested from."""

    @abstractmethod
    def reads(self, columns: Sequence[str]) -> Sequence[str]:
        """The columns of the source that are read."""

    @abstractmethod
    def changes(self, batch: pa.RecordBatch, columns: Sequence[str]) -> Changes: ...


def weights_of(codes: Column, keyed: bool) -> tuple[npt.NDArray[np.int64], dict[int, str]]:
    """By row the copies that enter or leave, 0 for a row without effect; and the unknown codes.
    ``keyed``: the row before an update has no effect, because the key's next row replaces it."""
    if pa.types.is_dictionary(codes.type):
        codes = codes.dictionary_decode()
    if pa.types.is_integer(codes.type):
        given = codes.cast(pa.int64())
        made = given.fill_null(0).to_numpy(zero_copy_only=False)
        nulls = np.flatnonzero(given.is_null().to_numpy(zero_copy_only=False))
        return made, {int(k): "NULL" for k in nulls}
    encoded = codes.dictionary_encode()
    texts = encoded.dictionary.to_pylist()
    values = np.zeros(len(texts) + 1, np.int64)
    unknown = np.zeros(len(texts) + 1, bool)
    unknown[-1] = True  # NULL
    for k, text in enumerate(texts):
        code = text.lower() if isinstance(text, str) else str(text)
        unknown[k] = code not in _CODES
        if not unknown[k] and not (keyed and code in _BEFORE):
            values[k] = _CODES[code]
    numbers = encoded.indices.fill_null(len(texts)).to_numpy(zero_copy_only=False)
    wrong = np.flatnonzero(unknown[numbers])
    shown = [*(repr(t) for t in texts), "NULL"]
    return values[numbers], {int(k): shown[numbers[k]] for k in wrong}


@dataclass(frozen=True, slots=True)
class CodeDecoder:
    """Rows with a column ``codes`` of operation codes."""

    codes: str
    key: Sequence[str] | None
    not_null: frozenset[str]
    marks: Sequence[str] = ()  # boolean columns, true in rows that are punctuation and no changes

    def reads(self, columns: Sequence[str]) -> Sequence[str]:
        return [*columns, self.codes, *self.marks]

    def changes(self, batch: pa.RecordBatch, columns: Sequence[str]) -> Changes:
        weights, unknown = weights_of(batch.column(len(columns)), self.key is not None)
        marked = np.zeros(batch.num_rows, bool)
        for mark in batch.columns[len(columns) + 1 :]:
            marked |= mark.fill_null(False).to_numpy(zero_copy_only=False)
        weights = np.where(marked, 1, weights)
        unknown = {k: code for k, code in unknown.items() if not marked[k]}
        bad = {
            k: (f"column {self.codes}: {code} is no operation code", KNOWN)
            for k, code in unknown.items()
        }
        values = batch.select(range(len(columns)))
        bad |= missing(values, np.where(marked, 0, weights), self.not_null, bad)
        kept = weights != 0
        kept[list(bad)] = False
        rows = np.flatnonzero(kept)
        return Changes(rows, weights[rows], taken(values, rows), bad)


def missing(
    batch: pa.RecordBatch,
    weights: npt.NDArray[np.int64],
    not_null: frozenset[str],
    known: Mapping[int, object],
) -> dict[int, tuple[str, str]]:
    """The rows that enter, without those ``known`` to be bad, with a NULL in a column declared NOT
    NULL."""
    found: dict[int, tuple[str, str]] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if name.lower() not in not_null or not column.null_count:
            continue
        null = column.is_null().to_numpy(zero_copy_only=False) & (weights > 0)
        for k in np.flatnonzero(null):
            if int(k) not in known:
                reason = f"column {name}: NULL in a column declared NOT NULL"
                found.setdefault(int(k), (reason, "only a row that leaves may lack it"))
    return found


def taken(batch: pa.RecordBatch, rows: npt.NDArray[np.int64]) -> pa.RecordBatch:
    """The given rows; the batch itself if these are all."""
    if len(rows) == batch.num_rows and np.array_equal(rows, np.arange(batch.num_rows)):
        return batch
    return batch.take(pa.array(rows))


class ChangelogSource(SourceOver):
    """The changes in the rows of ``inner``. Offsets are those of ``inner`` and, with ``changes``,
    the number of rows given behind them."""

    def __init__(self, inner: Source, decoder: Decoder, schema: Schema, spec: StreamSpec) -> None:
        self._inner = inner
        self._decoder = decoder
        self.schema = schema
        self._times = [p.column for p in spec.progress]

    def open(self, columns: Sequence[str], offset: Offset | None = None) -> Reader:
        given, times, place = 0, {}, None
        if offset is not None:
            place = {k: v for k, v in offset.items() if k not in (_GIVEN, _TIMES)} or None
            given, times = int(offset.get(_GIVEN, 0)), dict(offset.get(_TIMES, {}))
        fields = pick(self.schema, columns, "the changelog")
        return _ChangelogReader(
            self._inner, self._decoder, fields, self._times, place, given, times
        )


class _ChangelogReader:
    def __init__(
        self,
        inner: Source,
        decoder: Decoder,
        fields: Sequence[Field],
        times: Sequence[str],
        place: Offset | None,
        given: int,
        latest: dict[str, int],
    ) -> None:
        self._fields, self._decoder = fields, decoder
        self._columns = [f.name for f in fields if f.name != CHANGE]
        # The times say where a delete without any stands.
        self._read = [*self._columns, *(t for t in times if t not in self._columns)]
        self._schema = pa.schema([pa.field(f.name, f.type.to_arrow(), f.nullable) for f in fields])
        self._times = [(self._read.index(t), t) for t in times]
        self._latest, self._before = latest, dict(latest)
        self._reader = inner.open(decoder.reads(self._read), place)
        self._place: Offset | None = place
        self._skip = given
        self._ready: deque[Block] = deque()

    @property
    def notices(self) -> list[str]:
        return getattr(self._reader, "notices", [])

    def close(self) -> None:
        self._ready.clear()
        self._reader.close()

    def next(self, timeout: float | None = None) -> Block | None:
        while not self._ready:
            block = self._reader.next(timeout)
            if block is None:
                return None
            self._before = dict(self._latest)
            made = self._changed(block)
            parts = self._cut(made)
            self._place = block.offset
            if parts:
                parts[-1] = replace(parts[-1], offset=self._offset())
            self._ready.extend(parts)
            if not self._ready and (block.is_empty or timeout is not None):
                return Block(made.batch.slice(0, 0), self._offset())
        return self._ready.popleft()

    def _offset(self, given: int = 0) -> Offset:
        """The offset behind ``given`` rows of the block that begins at ``_place``."""
        place: dict[str, Any] = dict(self._place or {})
        times = self._latest
        if given:
            place[_GIVEN], times = given, self._before
        if times:
            place[_TIMES] = dict(times)
        return place

    def _changed(self, block: Block) -> Block:
        """The changes in a block; bad rows keep their places."""
        found = self._decoder.changes(block.batch, self._read)
        batch, change, bad = found.batch, found.change, dict(found.bad)
        arrays = list(batch.columns)
        alone = change < 0  # rows that leave, and are no part of an update
        alone[:-1] &= found.rows[:-1] != found.rows[1:]
        lost: set[int] = set()
        for at, name in self._times:
            arrays[at], untimed = self._with_times(arrays[at], name, alone)
            lost |= {int(k) for k in untimed}
        if lost:
            for k in lost:
                hint = "the first rows of a changelog need one: a later delete takes the last"
                bad[int(found.rows[k])] = ("a delete without an event time", hint)
            keep = np.array([k not in lost for k in range(len(change))])
            arrays = [a.filter(pa.array(keep)) for a in arrays]
            rows, change = found.rows[keep], change[keep]
        else:
            rows = found.rows
        everything = block.batch.num_rows + len(block.bad)
        places = np.ones(everything, bool)
        places[[b.row for b in block.bad]] = False
        good = np.flatnonzero(places)  # of each row of the batch, the place among all rows
        counts = np.zeros(everything, np.int64)
        np.add.at(counts, good[rows], 1)
        counts[~places] = 1
        counts[good[list(bad)]] = 1
        starts = np.concatenate(([0], np.cumsum(counts)))
        wrong = [replace(b, row=int(starts[b.row])) for b in block.bad]
        for k, (reason, hint) in bad.items():
            text = clipped(
                ", ".join(str(v) for v in block.batch.slice(k, 1).to_pylist()[0].values())
            )
            wrong.append(BadInput(int(starts[good[k]]), reason, hint, text))
        named = dict(zip(self._read, arrays, strict=True))
        named[CHANGE] = pa.array(change, pa.int64())
        made = pa.RecordBatch.from_arrays(
            [_encoded(named[f.name], f) for f in self._fields],
            names=[f.name for f in self._fields],
        )
        return replace(
            block,
            batch=made,
            bad=tuple(sorted(wrong, key=lambda b: b.row)),
            row_punctuation=tuple(
                (int(starts[row]), column, value) for row, column, value in block.row_punctuation
            ),
            row_watermarks=tuple((name, marks[rows]) for name, marks in block.row_watermarks),
            row_numbers=None if block.row_numbers is None else block.row_numbers[rows],
        )

    def _with_times(
        self, times: Column, name: str, leaves: npt.NDArray[np.bool_]
    ) -> tuple[Column, npt.NDArray[np.int64]]:
        """Event times in which a row that leaves and has none takes that of the row before it; and
        the rows for which there is none."""
        kind = times.type
        bits = pa.int32() if pa.types.is_date32(kind) else kind
        if pa.types.is_timestamp(kind):
            bits = pa.int64()
        values = times.view(bits) if bits != kind else times
        there = values.is_valid().to_numpy(zero_copy_only=False)
        numbers = values.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        lacking = np.flatnonzero(~there & leaves)
        untimed: list[int] = []
        for k in lacking:
            earlier = np.flatnonzero(there[:k])
            if len(earlier):
                numbers[k] = numbers[earlier[-1]]
            elif name in self._latest:
                numbers[k] = self._latest[name]
            else:
                untimed.append(int(k))
                continue
            there[k] = True
        known = np.flatnonzero(there)
        if len(known):
            self._latest[name] = int(numbers[known[-1]])
        if not len(lacking):
            return times, np.array(untimed, np.int64)
        made = pa.array(numbers, pa.int64(), mask=~there).cast(bits)
        return (made.view(kind) if bits != kind else made), np.array(untimed, np.int64)

    def _cut(self, block: Block) -> list[Block]:
        """The block without the rows that were given before; in parts if it is too long. The caller
        sets the offset of the last part."""
        count = block.batch.num_rows + len(block.bad)
        skip = min(self._skip, count)
        self._skip -= skip
        if count <= BLOCK_ROWS and not skip:
            if block.is_empty:
                return []
            return [block]
        from cql.catalog.memory.rows import Rows

        whole = Rows(block.batch, block.bad, block.row_punctuation)
        parts: list[Block] = []
        while skip < count:
            stop = min(skip + BLOCK_ROWS, count)
            part = whole.slice(skip, stop - skip)
            first = skip - sum(b.row < skip for b in block.bad)
            rows = slice(first, first + part.batch.num_rows)
            last = stop == count
            parts.append(
                Block(
                    part.batch,
                    self._offset(stop),
                    block.punctuation if last else (),
                    part.bad,
                    part.row_punctuation,
                    tuple((name, marks[rows]) for name, marks in block.row_watermarks),
                    None if block.row_numbers is None else block.row_numbers[rows],
                )
            )
            skip = stop
        return parts


def _encoded(array: Column, field: Field) -> Column:
    kind = field.type.to_arrow()
    if array.type != kind and not pa.types.is_dictionary(array.type):
        return array.cast(kind)
    return array
