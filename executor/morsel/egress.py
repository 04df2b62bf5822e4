"""From output morsels to Arrow batches without a copy: buffers change owners.

A column that an operator filled leaves with its buffer, and the morsel gets a new buffer. A column
that every operator passed by reference is a slice of the source's Arrow array.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cql.base.model import Field, Schema
from cql.base.types import DataType, Kind
from cql.errors import RunError
from cql.executor.kernels.morsel_layout import CAPACITY, ROWS, data_word, mask_word
from cql.executor.morsel.arrow_columns import plain_arrow
from cql.executor.morsel.buffers import POOL
from cql.executor.morsel.ingest import ROW_NUMBERS, Loaded
from cql.executor.morsel.morsel import Morsel, stored_dtype
from cql.executor.morsel.sample_types import fields_of, sample_dtype
from cql.executor.strings.columns import to_arrow
from cql.executor.strings.dictionary import Dictionary

Array = npt.NDArray[Any]


@dataclass(slots=True)
class Egress:
    """Turns the last operator's output morsels into batches of ``schema``. ``carried``: by output
    column and source, the source column to read."""

    schema: Schema
    dictionary: Dictionary
    carried: Mapping[int, Mapping[int, int]]
    ones: tuple[int, int]  # address range of the mask without NULLs
    _arrow: pa.Schema = field(init=False)
    _types: list[pa.DataType] = field(init=False)

    def __post_init__(self) -> None:
        self._arrow = self.schema.to_arrow()
        self._types = self._arrow.types

    @property
    def needs_blocks(self) -> bool:
        """Whether its rows refer to blocks of their sources."""
        return bool(self.carried) or any(f.type.kind is Kind.SIGNAL for f in self.schema)

    def batch(self, morsel: Morsel, source: int, loaded: Loaded | None) -> pa.RecordBatch:
        """The morsel's rows; ``loaded`` is the block of ``source`` that holds their carried
        columns."""
        n = int(morsel.words[ROWS])
        if not len(self.schema):
            return pa.RecordBatch.from_struct_array(pa.array([{}] * n, pa.struct([])))
        columns = [self._column(morsel, i, f, n, source, loaded) for i, f in enumerate(self.schema)]
        return pa.RecordBatch.from_arrays(columns, schema=self._arrow)

    def _column(
        self, morsel: Morsel, i: int, f: Field, n: int, source: int, loaded: Loaded | None
    ) -> pa.Array:
        words = morsel.words
        data, mask = int(words[data_word(i)]), int(words[mask_word(i)])
        valid = None
        if f.nullable and not self.ones[0] <= mask < self.ones[1]:
            valid = self._take_mask(mask, n)
        if i in self.carried and loaded is not None:
            return self._carried(self.carried[i][source], data, valid, loaded, f, n)
        if loaded is not None:
            shared = self._source_slice(i, data, n, loaded)
            if shared is not None:
                return shared
        values = self._take(morsel, i, data, n, f)
        if f.type.kind is Kind.SIGNAL:
            return _segments(values, valid, f.type)
        return to_arrow(values, valid, f, self.dictionary)

    def _source_slice(self, i: int, address: int, n: int, loaded: Loaded) -> pa.Array | None:
        """The slice of the source's own array that ``address`` points into; None if none."""
        if self.schema[i].type.is_coded or loaded.separated.dropped is not None:
            return None
        for k, first in enumerate(loaded.addresses):
            data = loaded.data[k]
            if first <= address < first + data.nbytes:
                array = loaded.array(k)
                if array is not None and array.type == self._types[i]:
                    return array.slice((address - first) // data.itemsize, n)
        return None

    def _carried(
        self,
        column: int,
        data: int,
        valid: npt.NDArray[np.uint8] | None,
        loaded: Loaded,
        f: Field,
        n: int,
    ) -> pa.Array:
        """Rows of the source's own array; where ``valid`` is 0 the row number is meaningless."""
        array = loaded.array(column)
        assert array is not None
        first = ROW_NUMBERS.ctypes.data
        if first <= data < first + ROW_NUMBERS.nbytes:
            return _plain(array.slice((data - first) // 4, n), f)
        rows = view_address(data, np.dtype(np.int32), n)
        return _plain(array.take(pa.array(rows, mask=None if valid is None else valid == 0)), f)

    def _take(self, morsel: Morsel, i: int, address: int, n: int, f: Field) -> Array:
        """The column's values: a copy, or the buffer itself if at least half of it is used."""
        owned = morsel.data[i]
        if owned is not None and owned.ctypes.data == address and 2 * n >= owned.size:
            morsel.renew(i, self.schema, int(morsel.words[CAPACITY]), mask=False)
            return POOL.lend(owned, n)
        values = POOL.empty(stored_dtype(f.type.storage), n)
        values[:] = view_address(address, values.dtype, n)
        return values

    @staticmethod
    def _take_mask(address: int, n: int) -> npt.NDArray[np.uint8]:
        return view_address(address, np.dtype(np.uint8), n).copy()


def _segments(addresses: Array, valid: npt.NDArray[np.uint8] | None, kind: DataType) -> pa.Array:
    """Arrow lists of the samples of segments; NULL where ``valid`` is 0."""
    from cql.executor.kernels.signals.rows_of_segments import copy_lists

    assert kind.element is not None
    mask = np.ones(len(addresses), np.uint8) if valid is None else valid
    lengths = np.empty(len(addresses) + 1, np.int64)
    size = copy_lists(addresses, mask, lengths, 0)
    if size >= 2**31:
        raise RunError(
            f"{len(addresses):,} rows of a result have segments with {size:,} samples",
            hint="SET morsel_rows lower: a batch has at most 2,147,483,647 samples of a column",
        )
    samples = POOL.empty(sample_dtype(kind.element), size)
    copy_lists(addresses, mask, lengths, samples.ctypes.data)
    bitmap = None if valid is None else pa.py_buffer(np.packbits(valid != 0, bitorder="little"))
    offsets = pa.py_buffer(lengths.astype(np.int32))
    values = _samples(samples, kind.element)
    return pa.Array.from_buffers(
        kind.to_arrow(), len(addresses), [bitmap, offsets], children=[values]
    )


def _samples(samples: Array, kind: DataType) -> pa.Array:
    """Samples as an Arrow array, a struct of arrays for structs."""
    if kind.kind is not Kind.STRUCT:
        return plain_arrow(samples, None, kind)
    parts = []
    for part, (_, of) in zip(fields_of(samples), kind.fields, strict=True):
        own = POOL.empty(part.dtype, len(samples))
        own[:] = part
        parts.append(_samples(own, of))
    return pa.StructArray.from_arrays(parts, fields=list(kind.to_arrow()))


def _plain(array: pa.Array, f: Field) -> pa.Array:
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    return array if array.type == f.type.to_arrow() else array.cast(f.type.to_arrow())


def view_address(address: int, dtype: np.dtype[Any], n: int) -> Array:
    """The ``n`` values at an address; the caller keeps the memory alive."""

    size = n * dtype.itemsize
    if size == 0:
        return np.zeros(0, dtype)
    memory: Any = (ctypes.c_char * size).from_address(address)
    values: Array = np.frombuffer(memory, dtype, n)
    return values
