"""From Arrow blocks to units: columns as flat arrays without a copy where the layouts agree,
strings as codes, stragglers marked and punctuation made (out-of-order paper §5.1)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cql.errors import CatalogError
from cql.executor.dictionary import Dictionary
from cql.executor.kernels.progress import mark_stragglers
from cql.executor.operators.stage import END_OF_INPUT
from cql.executor.protocols import BLOCK_ROWS, Block, Reader
from cql.executor.unit import (
    CAPACITY,
    INFINITY,
    NEVER,
    PUNCTUATION_WORDS,
    PUNCTUATIONS,
    ROWS,
    SEQUENCE,
    SERIAL,
    STRAGGLER_ADDRESS,
    STRAGGLER_WORDS,
    STRAGGLERS,
    Unit,
    Words,
    data_word,
    mask_word,
)
from cql.model import Field, Schema
from cql.planner.catalog import Progress
from cql.planner.physical import SourceExec
from cql.types import Kind

Array = npt.NDArray[Any]
ROW_NUMBERS = np.arange(BLOCK_ROWS, dtype=np.int32)
_NO_MASK = np.zeros(0, np.uint8)


@dataclass(slots=True)
class Attribute:
    """Progress on one column: the highest time so far, and what was promised last."""

    column: int
    progress: Progress
    highest: int = NEVER
    promised: int = NEVER

    def watermark(self) -> int:
        slack = self.progress.slack
        return NEVER if self.highest <= NEVER + slack else self.highest - slack


@dataclass(slots=True)
class Loaded:
    """A block as kernel columns; the arrays keep the memory alive."""

    block: Block
    data: list[Array]
    masks: list[Array | None]
    columns: list[tuple[int, int, int]]  # addresses of data and mask (0: none), item size
    times: list[tuple[npt.NDArray[np.int64], Array]]
    offset: int = 0  # rows of the input before this block, bad ones too
    sequence: int = 0  # stream position of its first row

    @property
    def rows(self) -> int:
        return int(self.block.batch.num_rows)


@dataclass(slots=True)
class Feed:
    """One source of a running query: reads blocks, cuts them into units.

    ``rows`` counts those read (``bad`` of them could not be), ``late_rows`` stragglers; ``nulls``
    are the columns in which a NULL has been seen."""

    source: SourceExec
    reader: Reader
    dictionary: Dictionary
    encoded: frozenset[int]
    unit: Unit
    ones: npt.NDArray[np.uint8]
    attributes: list[Attribute] = field(default_factory=list)
    nulls: set[int] = field(default_factory=set)
    rows: int = 0
    bad: int = 0
    late_rows: int = 0
    max_lateness: int = 0
    ended: bool = False
    pending: Loaded | None = None
    _ones: int = 0
    _records: Words = field(default_factory=lambda: np.zeros(0, np.int64))

    def __post_init__(self) -> None:
        spec = self.source.relation.stream
        schema = self.source.schema
        for progress in spec.progress if spec else ():
            column = schema.find(progress.column)
            if column is not None:
                self.attributes.append(Attribute(column, progress))
        self._ones = address_of(self.ones)
        rows = int(self.unit.words[CAPACITY])
        room = STRAGGLER_WORDS * rows * max(1, len(self.attributes))
        self._records = np.zeros(room, np.int64)

    @property
    def nbytes(self) -> int:
        """Bytes of the unit and of the records of stragglers."""
        return self.unit.nbytes + self._records.nbytes

    @property
    def position(self) -> int:
        """How far this input is in event time (replay reads the one furthest behind)."""
        return self.attributes[0].watermark() if self.attributes else self.rows

    def load(self, timeout: float | None) -> bool:
        """Reads the next block if none is pending; False if there is nothing (yet)."""
        if self.pending is not None:
            return True
        if self.ended:
            return False
        block = self.reader.next(timeout)
        if block is None:
            self.ended = True
            return False
        if block.batch.num_rows == 0 and not block.punctuation and not block.bad:
            return False
        self.pending = self._convert(block)
        return True

    def _convert(self, block: Block) -> Loaded:
        data: list[Array] = []
        masks: list[Array | None] = []
        for i, f in enumerate(self.source.schema):
            column = block.batch.column(i)
            mask = _unpack_mask(column)
            if mask is not None:
                if not f.nullable:
                    raise CatalogError(
                        f"{self.source.name}.{f.name} is declared NOT NULL and holds a NULL"
                    )
                self.nulls.add(i)
            if f.type.is_text and i not in self.encoded:
                data.append(ROW_NUMBERS[: len(column)])
            else:
                data.append(to_storage(column, f, self.dictionary))
            masks.append(mask)
        times = []
        for attribute in self.attributes:
            values = data[attribute.column]
            mask = masks[attribute.column]
            times.append((values.astype(np.int64, copy=False), _NO_MASK if mask is None else mask))
        columns = [
            (address_of(d), 0 if m is None else address_of(m), d.itemsize)
            for d, m in zip(data, masks, strict=True)
        ]
        return Loaded(block, data, masks, columns, times)

    def units(self, rows: int, serial: Iterator[int], sequence: int) -> Iterator[Unit]:
        """The pending block as units of at most ``rows`` rows; ``sequence`` is the stream position
        of its first row. Each unit is valid until the next one is asked for."""
        loaded = self.pending
        assert loaded is not None
        self.pending = None
        n = loaded.rows
        self.rows += len(loaded.block.bad)
        self.bad += len(loaded.block.bad)
        for start in range(0, max(n, 1), rows):
            stop = min(n, start + rows)
            self._fill(loaded, start, stop, next(serial), sequence + start)
            self._progress(loaded, start, stop)
            self.rows += stop - start
            yield self.unit

    def end(self, serial: int, sequence: int) -> Unit:
        """The empty unit that ends this input: every window may close."""
        words = self.unit.words
        words[ROWS] = 0
        words[SERIAL], words[SEQUENCE] = serial, sequence
        words[STRAGGLERS] = 0
        self._punctuate([(END_OF_INPUT, INFINITY)])
        return self.unit

    def _fill(self, loaded: Loaded, start: int, stop: int, serial: int, sequence: int) -> None:
        words = self.unit.words
        words[ROWS] = stop - start
        words[SERIAL], words[SEQUENCE] = serial, sequence
        for i, (data, mask, size) in enumerate(loaded.columns):
            words[data_word(i)] = data + start * size
            words[mask_word(i)] = mask + start if mask else self._ones

    def _progress(self, loaded: Loaded, start: int, stop: int) -> None:
        words = self.unit.words
        found = 0
        for attribute, (times, valid) in zip(self.attributes, loaded.times, strict=True):
            room = self._records[STRAGGLER_WORDS * found :]
            n, attribute.highest = mark_stragglers(
                times[start:stop],
                valid[start:stop],
                attribute.progress.slack,
                attribute.highest,
                attribute.column,
                room,
            )
            if n:
                self._note_late(room[: STRAGGLER_WORDS * n].reshape(n, -1), times[start:stop])
            found += n
        if found and len(self.attributes) > 1:
            table = self._records[: STRAGGLER_WORDS * found].reshape(found, -1)
            table[:] = table[np.argsort(table[:, 0], kind="stable")]
        words[STRAGGLERS] = found
        words[STRAGGLER_ADDRESS] = self._records.ctypes.data
        if stop == loaded.rows:
            self._source_promises(loaded.block)
        promises = []
        for attribute in self.attributes:
            mark = attribute.watermark()
            if mark > attribute.promised:
                attribute.promised = mark
                promises.append((attribute.column, mark))
        self._punctuate(promises)

    def _note_late(self, records: Array, times: Array) -> None:
        self.late_rows += len(records)
        lateness = records[:, 2] - times[records[:, 0]]
        self.max_lateness = max(self.max_lateness, int(lateness.max()))

    def _source_promises(self, block: Block) -> None:
        """Punctuation of the source itself counts as progress from here on."""
        for name, value in block.punctuation:
            for attribute in self.attributes:
                if attribute.progress.column.lower() == name.lower():
                    slack = attribute.progress.slack
                    attribute.highest = max(attribute.highest, value + slack)

    def _punctuate(self, promises: list[tuple[int, int]]) -> None:
        for k, (column, value) in enumerate(promises):
            at = PUNCTUATION_WORDS * k
            self.unit.punctuations[at : at + 3] = column, value, -1
        self.unit.words[PUNCTUATIONS] = len(promises)


def address_of(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]  # a third of the cost of ctypes.data
    return address


def to_storage(column: pa.Array, f: Field, dictionary: Dictionary) -> Array:
    """A column's values as a flat array of the type's storage; NULL places hold anything."""
    kind = f.type.kind
    if f.type.is_text:
        codes = np.zeros(len(column), np.int32)
        dictionary.encode(column, codes)
        return codes
    if kind is Kind.BOOLEAN:
        return _unpack_bits(column.buffers()[1], column.offset, len(column))
    if kind is Kind.NULL:
        return np.zeros(len(column), np.uint8)
    buffer = column.buffers()[1]
    if kind is Kind.DECIMAL:
        return _narrow_decimals(column)
    dtype = np.dtype(f.type.storage)
    if buffer is None or len(column) == 0:
        return np.zeros(len(column), dtype)
    return np.frombuffer(buffer, dtype, len(column), column.offset * dtype.itemsize)


def _narrow_decimals(column: pa.Array) -> Array:
    """Decimals of up to 18 digits are the low words of Arrow's 128-bit integers."""
    buffer = column.buffers()[1]
    if buffer is None or len(column) == 0:
        return np.zeros(len(column), np.int64)
    pairs = np.frombuffer(buffer, np.int64, 2 * len(column), column.offset * 16)

    return pairs[::2].copy()


def _unpack_mask(column: pa.Array) -> Array | None:
    if column.null_count == 0:
        return None
    if pa.types.is_null(column.type):
        return np.zeros(len(column), np.uint8)
    return _unpack_bits(column.buffers()[0], column.offset, len(column))


def _unpack_bits(buffer: pa.Buffer | None, offset: int, n: int) -> Array:
    if buffer is None or n == 0:
        return np.zeros(n, np.uint8)
    first = offset // 8
    packed = np.frombuffer(buffer, np.uint8, (offset + n + 7) // 8 - first, first)
    bits = np.unpackbits(packed, bitorder="little")
    return np.ascontiguousarray(bits[offset % 8 : offset % 8 + n])


def narrow_schema(schema: Schema) -> Schema:
    """Checks that kernels can hold every column (decimals of at most 18 digits)."""
    for f in schema:
        if f.type.kind is Kind.DECIMAL and f.type.precision > 18:
            raise CatalogError(
                f"column {f.name} is {f.type}: decimals of more than 18 digits are not supported",
                hint="CAST it to double, or to a decimal of 18 digits, where the table is made",
            )
    return schema
