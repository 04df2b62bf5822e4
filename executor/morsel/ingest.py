"""From Arrow blocks to morsels: columns become flat arrays, copied only where the layouts differ;
strings become codes; late rows are marked and punctuation is made (out-of-order paper §5.1)."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cql.base.model import Schema
from cql.errors import CatalogError, CqlError
from cql.executor.kernels.ingest import cutter as cut
from cql.executor.kernels.morsel_layout import (
    CAPACITY,
    END_OF_INPUT,
    INFINITY,
    LATE_ROW_ADDRESS,
    LATE_ROW_WORDS,
    LATE_ROWS,
    NEVER,
    PUNCTUATION_WORDS,
    PUNCTUATIONS,
    ROWS,
    SEQUENCE,
    SERIAL,
)
from cql.executor.morsel.arrow_columns import Array, address_of, unpack_mask
from cql.executor.morsel.morsel import Morsel, Words
from cql.executor.morsel.partitioned_watermark import Values
from cql.executor.morsel.source_punctuation import (
    Numbers,
    Separated,
    columns_read,
    row_punctuation_of,
    separate,
)
from cql.executor.morsel.watermark import Attribute
from cql.executor.protocols import BLOCK_ROWS, Block, Offset, Reader, place_among
from cql.executor.state.codes import Change, HoldsCodes
from cql.executor.state.store import Snapshot, plain_words, take_plain_words
from cql.executor.strings.columns import to_storage
from cql.executor.strings.dictionary import Dictionary
from cql.executor.texts.ahead import Ahead
from cql.executor.texts.blocks import Computed, ComputedColumns
from cql.planner.nodes.physical import SourceExec

ROW_NUMBERS = np.arange(BLOCK_ROWS, dtype=np.int32)
#: The part of a feed's snapshot that has the update queue.
WAITING = "waiting"


@dataclass(slots=True)
class Loaded:
    """A block as kernel columns; the arrays keep the memory alive. ``texts`` are the computed texts
    that stay in the block, by column."""

    block: Block
    separated: Separated
    data: list[Array]
    masks: list[Array | None]
    times: list[npt.NDArray[np.int64]]
    row_watermarks: list[npt.NDArray[np.int64] | None]  # by attribute, where the block brings them
    numbers: Numbers | None = None  # value numbers of PUNCTUATE BY, one per row
    offset: int = 0  # rows of the input before this block, bad rows included
    begins: Offset | None = None  # where the block begins in its source; None: at the beginning
    addresses: list[int] = field(default_factory=list)  # of ``data``
    width: int = 0  # columns that the block has itself
    leaves: Callable[[], None] | None = None  # called when nothing reads the block any more
    texts: dict[int, pa.Array] = field(default_factory=dict)
    source_rows: int | None = None  # of the block in its source; None: those of ``block``

    @property
    def rows(self) -> int:
        return self.separated.rows

    def array(self, column: int) -> pa.Array | None:
        """The values of a column before rows were left out; None for computed numbers."""
        if column < self.width:
            return self.block.batch.column(column)
        return self.texts.get(column)

    def place(self, row: int) -> int:
        """The index of a row in the input, bad rows and punctuation rows included."""
        place = self.separated.place(row)
        if self.block.row_numbers is not None:
            return int(self.block.row_numbers[place])
        return self.offset + place_among(self.block.bad, place)


@dataclass(slots=True)
class Feed:
    """One source of a running query. It reads blocks, which ``cutter`` (``kernels.ingest.cutter``)
    cuts into morsels of at most ``morsel``'s capacity. ``reader`` gives ``columns_read``. ``nulls``
    are the columns in which a NULL has been seen. ``bad`` counts unreadable rows,
    ``row_punctuation`` counts rows that were punctuation. ``lag`` delays the source behind its
    peers (units of event time). ``total_rows`` is the row count from statistics. ``computed`` are
    the columns that are computed for each block (``executor.texts.in_blocks``), ``ahead`` the
    blocks of ``reader`` for which threads compute them."""

    source: SourceExec
    reader: Reader
    dictionary: Dictionary
    encoded: frozenset[int]
    morsel: Morsel
    ones: npt.NDArray[np.uint8]
    attributes: list[Attribute] = field(default_factory=list)
    nulls: set[int] = field(default_factory=set)
    lag: int = 0
    total_rows: int | None = None
    computed: ComputedColumns | None = None
    ahead: Ahead[list[Computed]] | None = None
    bad: int = 0
    row_punctuation: int = 0
    nanoseconds: int = 0  # spent waiting for blocks and converting them
    ended: bool = False
    offset: Offset | None = None  # behind the blocks that were read; None: none was read
    pending: Loaded | None = None
    values: Values | None = None  # of PUNCTUATE BY
    on_block: Callable[[Loaded], None] | None = None  # called after each block is read
    cutter: Words = field(init=False)
    _records: Words = field(init=False)
    _failure: Exception | None = None  # raised by ``read_ahead``, not yet reported

    def __post_init__(self) -> None:
        by, schema = self.source.by, self.schema
        progressing = self.source.progress
        first = cut.CUTTER + cut.COLUMN * len(schema)
        self.cutter = np.zeros(first + cut.ATTRIBUTE * len(progressing), np.int64)
        self.cutter[cut.COLUMNS], self.cutter[cut.ATTRIBUTES] = len(schema), len(progressing)
        morsel_rows = int(self.morsel.words[CAPACITY])
        self.cutter[cut.ROOM], self.cutter[cut.TURN] = morsel_rows, INFINITY
        self.cutter[cut.LAG], self.cutter[cut.PEEKED] = self.lag, NEVER
        for column, progress in progressing:
            words = self.cutter[first : first + cut.ATTRIBUTE]
            self.attributes.append(Attribute.of(self.source, column, progress, words))
            first += cut.ATTRIBUTE
        if by is not None:
            own, whole = self.source.schema, self.source.relation.schema
            known = own.find(by)
            if known is None:
                place = [n.lower() for n in columns_read(self.source)].index(by.lower())
                self.values = Values(place, whole[whole.find(by) or 0], self.attributes)
            else:
                place = known
                self.values = Values(place, own[place], self.attributes)
            self.cutter[cut.BY] = place
        room = LATE_ROW_WORDS * morsel_rows * max(1, len(self.attributes))
        self._records = np.empty(room, np.int64)  # untouched while no row is late
        self.morsel.words[LATE_ROW_ADDRESS] = address_of(self._records)

    @property
    def schema(self) -> Schema:
        """The columns of its morsels."""
        return self.source.schema if self.computed is None else self.computed.schema

    @property
    def rows(self) -> int:
        """Rows handed over so far."""
        return int(self.cutter[cut.BEFORE] + self.cutter[cut.NEXT])

    @property
    def late_rows(self) -> int:
        """Late rows so far."""
        return int(self.cutter[cut.LATE])

    @property
    def far_rows(self) -> int:
        """Rows further ahead than MAX ADVANCE."""
        return sum(a.far_rows for a in self.attributes)

    @property
    def nbytes(self) -> int:
        """Bytes of the morsel, of the late-row records, and of the per-value watermarks."""
        values = 0 if self.values is None else self.values.nbytes
        return self.morsel.nbytes + self._records.nbytes + values

    def read_again(self, reader: Reader) -> None:
        """Continues with ``reader``, which reads from the start; its rows follow those already
        read."""
        self.reader.close()
        self.reader, self.ended, self.offset = reader, False, None

    @property
    def holders(self) -> list[HoldsCodes]:
        """What of it holds dictionary codes, besides its blocks."""
        return [] if self.values is None else [self.values]

    @property
    def gives_bursts(self) -> bool:
        """Whether its blocks are bursts of an update queue: the source cannot give them again, and
        a block that is read waits no longer in the queue."""
        return False

    @property
    def is_read(self) -> bool:
        """Whether the source has been read to its end."""
        return self.ended

    @property
    def keeps_rows(self) -> bool:
        """Whether it has rows that it gives later, although it has none to give now."""
        return False

    def reported(self) -> dict[str, Any]:
        """What the metrics show of it, besides its counts of rows."""
        return {}

    def watch(self, through: Callable[[], None]) -> None:
        """Takes a function that drives all admitted morsels through the operators, and delivers
        their results; for a feed that waits for it."""
        return

    def load(self, timeout: float | None) -> bool:
        """Reads the next block if none is pending. Returns False if no block is available (yet).
        Raises the error of an earlier ``read_ahead``."""
        if self.pending is not None:
            return True
        if self.ended:
            return False
        if self._failure is not None:
            raise self._failure
        began = time.perf_counter_ns()
        try:
            return self._load(timeout)
        finally:
            self.nanoseconds += time.perf_counter_ns() - began

    def read_ahead(self) -> None:
        """Reads the next block while another is open; ``load`` raises the error, if any."""
        try:
            self.load(None)
        except Exception as error:
            self._failure = error

    def _load(self, timeout: float | None, *, again: bool = False) -> bool:
        computed: Sequence[Computed] = ()
        if self.ahead is not None:
            found = self.ahead.next()
            block, computed = (None, ()) if found is None else found
        else:
            block = self.reader.next(timeout)
            if block is not None and self.computed is not None:
                computed = self.computed.columns(block.batch)
        if block is None:
            self.ended = True
            return False
        if block.is_empty and not again:
            return False
        self.pending = self._convert(block, computed)
        self.pending.begins, self.offset = self.offset, block.offset
        if self.lag and self.pending.rows and self.attributes:
            self.cutter[cut.PEEKED] = self.pending.times[0][0]
        if self.on_block is not None:
            self.on_block(self.pending)
        return True

    def _stored(self, block: Block) -> tuple[list[Array], list[npt.NDArray[np.uint8] | None]]:
        """The data and the masks of the columns that the block has."""
        data: list[Array] = []
        masks: list[npt.NDArray[np.uint8] | None] = []
        for i, f in enumerate(self.source.stored):
            column = block.batch.column(i)
            if self._is_carried(i):
                data.append(ROW_NUMBERS[: len(column)])
            else:
                data.append(to_storage(column, f, self.dictionary))
            masks.append(unpack_mask(column))
        return data, masks

    def _convert(self, block: Block, computed: Sequence[Computed]) -> Loaded:
        schema = self.source.stored
        data, masks = self._stored(block)
        texts: dict[int, pa.Array] = {}
        for i, made in enumerate(computed, len(schema)):
            kind = self.schema[i].type
            if self._is_carried(i):
                texts[i] = made.values
                data.append(ROW_NUMBERS[: block.batch.num_rows])
            elif kind.is_coded:
                data.append(made.codes(self.dictionary))
            else:
                data.append(made.values)
            masks.append(made.mask)
        numbers = self._numbered(block, data, masks)
        separated = separate(self.source, block, self.attributes, data, masks, numbers)
        if separated.dropped is not None:
            numbers = None if numbers is None else separated.data(numbers)
            data = [separated.data(values) for values in data]
            masks = [None if mask is None else separated.mask(mask) for mask in masks]
        self._note_nulls(masks)
        times = [data[a.column].astype(np.int64, copy=False) for a in self.attributes]
        brought = self._brought(block, separated)
        loaded = Loaded(block, separated, data, masks, times, brought, numbers)
        loaded.width, loaded.texts = len(schema), texts
        return loaded

    def _note_nulls(self, masks: Sequence[npt.NDArray[np.uint8] | None]) -> None:
        """Notes the columns that hold a NULL. Raises CatalogError if one is declared NOT NULL."""
        for i, mask in enumerate(masks):
            if mask is not None:
                f = self.schema[i]
                if not f.nullable:
                    raise CatalogError(
                        f"{self.source.name}.{f.name} is declared NOT NULL and holds a NULL"
                    )
                self.nulls.add(i)

    def _brought(self, block: Block, separated: Separated) -> list[npt.NDArray[np.int64] | None]:
        """By attribute, the watermarks before the rows that the block brings. Raises CatalogError
        for a stream with PUNCTUATE BY, whose rows have a watermark for each value."""
        if not block.row_watermarks:
            return [None] * len(self.attributes)
        found = {name.lower(): marks for name, marks in block.row_watermarks}
        if self.values is not None:
            raise CatalogError(
                f"stream {self.source.name} has PUNCTUATE BY: rows that bring watermarks are not"
                " supported"
            )
        named = (found.get(a.name.lower()) for a in self.attributes)
        return [None if marks is None else separated.data(marks) for marks in named]

    def _is_carried(self, i: int) -> bool:
        """Whether the texts (or arrays) stay in the block, represented by their row numbers."""
        return self.schema[i].type.is_coded and i not in self.encoded

    def _numbered(
        self, block: Block, data: list[Array], masks: list[npt.NDArray[np.uint8] | None]
    ) -> Numbers | None:
        """Per row, the number of its PUNCTUATE BY value; -1 for a mark on all values."""
        values = self.values
        if values is None:
            return None
        place = values.place
        if place < len(self.source.stored) and not self._is_carried(place):
            column, mask = data[place], masks[place]
        else:
            array = block.batch.column(place)
            column, mask = to_storage(array, values.column, self.dictionary), unpack_mask(array)
        numbers = values.number(column, mask)
        marked = row_punctuation_of(block.batch, self.source) if mask is not None else None
        if marked is not None and mask is not None:
            numbers[(marked != 0) & (mask == 0)] = -1
        return numbers

    def begin(self) -> Loaded:
        """Gives the pending block to the cutter; the caller keeps the block until the cutter has
        consumed it."""
        loaded = self.pending
        assert loaded is not None
        self.pending = None
        loaded.offset = self.rows
        marked = loaded.block.batch.num_rows - loaded.rows
        self.bad += len(loaded.block.bad)
        self.row_punctuation += marked
        c = self.cutter
        c[cut.BEFORE] = self.rows + len(loaded.block.bad) + marked
        c[cut.BEGUN] = c[cut.NEXT] = c[cut.NEXT_MARK] = 0
        c[cut.BLOCK] = loaded.rows
        c[cut.ROW_PUNCTUATIONS] = loaded.separated.count
        c[cut.ROW_PUNCTUATION_ADDRESS] = address_of(loaded.separated.row_punctuation)
        if loaded.numbers is not None and self.values is not None:
            c[cut.NUMBERS] = address_of(loaded.numbers)
            c[cut.VALUES_AT] = address_of(self.values.records)
        self.give_columns(loaded)
        columns = zip(self.attributes, loaded.times, loaded.row_watermarks, strict=True)
        for attribute, times, brought in columns:
            mask = loaded.masks[attribute.column]
            attribute.words[cut.TIMES] = address_of(times)
            attribute.words[cut.VALID] = 0 if mask is None else address_of(mask)
            attribute.words[cut.ROW_WATERMARKS] = 0 if brought is None else address_of(brought)
        return loaded

    def give_columns(self, loaded: Loaded) -> None:
        """Writes the addresses of the block's columns into the cutter."""
        ones = address_of(self.ones)
        loaded.addresses = [address_of(data) for data in loaded.data]
        columns: list[int] = []
        for address, data, mask in zip(loaded.addresses, loaded.data, loaded.masks, strict=True):
            columns += address, ones if mask is None else address_of(mask), data.itemsize
        self.cutter[cut.CUTTER : cut.CUTTER + len(columns)] = columns

    # -- checkpoints -----------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """The place in the blocks, the watermarks and the counts. The blocks are not in it: their
        source gives them again."""
        arrays: dict[str, Array] = {
            "counts": np.array([self.bad, self.row_punctuation, self.ended], np.int64),
            "nulls": np.array(sorted(self.nulls), np.int64),
        }
        arrays |= {f"behind {a.column}": a.behind.copy() for a in self.attributes}
        parts = {} if self.values is None else {"values": self.values.snapshot()}
        return Snapshot(arrays, plain_words(self.cutter, self._bound()), parts)

    def restore(self, saved: Snapshot) -> None:
        """Continues with the state of a feed of the same plan. ``map_codes`` of the values
        follows, and the blocks are to be read again (``reload``)."""
        self._take_words(saved)
        for attribute in self.attributes:
            attribute.behind[:] = saved.arrays[f"behind {attribute.column}"]
        if self.values is not None:
            self.values.restore(saved.parts["values"])

    def take_nulls(self, saved: Snapshot) -> None:
        """Takes over the columns with NULLs, before the operators are built."""
        self.nulls = set(saved.arrays["nulls"].tolist())

    def reload(self, *, begun: bool) -> None:
        """Reads a block of the checkpoint again; it is pending then, even if it has no rows.
        ``begun``: it was partly processed."""
        if self.values is not None:
            self.values.forgets = False
        self._load(None, again=True)
        if self.values is not None:
            self.values.forgets = True

    def rewind(self) -> None:
        """Moves the cutter to the beginning of the block that is pending again."""
        assert self.pending is not None
        block = self.pending.block
        marked = block.batch.num_rows - self.pending.rows
        self.cutter[cut.BEFORE] -= len(block.bad) + marked
        self.cutter[cut.NEXT] = 0

    def go_on(self, saved: Snapshot, loaded: Loaded) -> None:
        """Moves the cutter to the row of the checkpoint, in the block that has begun again."""
        c, records = self.cutter, loaded.separated.row_punctuation
        marks = int(c[cut.ROW_PUNCTUATIONS])
        self._take_words(saved)
        if marks != c[cut.ROW_PUNCTUATIONS]:  # of marks without effect, another number is left out
            c[cut.ROW_PUNCTUATIONS] = marks
            rows = records[: cut.MARK * marks : cut.MARK]
            c[cut.NEXT_MARK] = int(np.searchsorted(rows, c[cut.NEXT]))

    def _take_words(self, saved: Snapshot) -> None:
        take_plain_words(saved.words, self.cutter, self._bound(), self.source.name)
        self.bad, self.row_punctuation, ended = (int(n) for n in saved.arrays["counts"])
        self.ended = bool(ended)

    def _bound(self) -> list[int]:
        """The words of the cutter that are addresses or belong to this process."""
        first = cut.CUTTER + cut.COLUMN * len(self.schema)
        found = [cut.ROOM, cut.ROW_PUNCTUATION_ADDRESS, cut.NUMBERS, cut.VALUES_AT]
        found += range(cut.CUTTER, first)
        for k in range(len(self.attributes)):
            found += (first + cut.ATTRIBUTE * k + word for word in cut.BOUND)
        return found

    def map_codes(self, loaded: Loaded, change: Change) -> None:
        """Replaces the dictionary codes in a block."""
        for i, f in enumerate(self.schema):
            if f.type.is_coded and not self._is_carried(i):
                loaded.data[i] = change(loaded.data[i])

    def punctuation_morsel(self, serial: int, sequence: int) -> Morsel:
        """A morsel without rows, with the punctuation of a timer (``Attribute.punctuate``)."""
        morsel = self.empty_morsel(serial, sequence)
        cut.punctuate(self.cutter.ctypes.data, morsel.address)
        return morsel

    def end(self, serial: int, sequence: int) -> Morsel:
        """The empty morsel that ends this input: it carries the final watermarks and the
        end-of-input punctuation."""
        morsel = self.empty_morsel(serial, sequence)
        punctuations = [(a.column, a.last) for a in self.attributes if a.last > NEVER]
        for k, (column, value) in enumerate([*punctuations, (END_OF_INPUT, INFINITY)]):
            at = PUNCTUATION_WORDS * k
            morsel.punctuations[at : at + 3] = column, value, -1
        morsel.words[PUNCTUATIONS] = len(punctuations) + 1
        return morsel

    def empty_morsel(self, serial: int, sequence: int) -> Morsel:
        """The morsel without rows or punctuation."""
        words = self.morsel.words
        words[ROWS], words[LATE_ROWS], words[PUNCTUATIONS] = 0, 0, 0
        words[SERIAL], words[SEQUENCE] = serial, sequence
        return self.morsel


@contextlib.contextmanager
def errors_at(node: SourceExec) -> Iterator[None]:
    """Sets the position of an error of the source to the place of the source's name."""
    try:
        yield
    except CqlError as error:
        error.position = error.position or node.pos
        raise
