"""Arrays as entries of the dictionary: a column of arrays holds codes, like a column of texts.

An entry is the bytes of the array's elements, one after the other, in the storage of their type. A
boolean is one byte; all NaNs are one NaN and -0.0 is 0.0, so that equal arrays share one entry. An
entry of texts has their number, the length of each (both int32), then their bytes. Elements are
never NULL.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cql.base.types import DataType
from cql.executor.morsel.morsel import stored_dtype

Array = npt.NDArray[Any]
_BYTES = np.dtype(np.uint8)
_LENGTH = np.dtype(np.int32)


def width(element: DataType) -> int:
    """Bytes of one element in an entry; 0 for texts, whose lengths differ."""
    return 0 if element.is_text else element_dtype(element).itemsize


def element_dtype(element: DataType) -> np.dtype[Any]:
    return stored_dtype(element.storage)


def entries_of(values: Array, counts: Array, element: DataType) -> pa.Array:
    """Binary entries for arrays: ``counts`` has the number of elements per array, ``values`` all
    elements in order, in storage form."""
    data = np.ascontiguousarray(values.astype(element_dtype(element), copy=False))
    return _binary(data.view(_BYTES), counts * data.itemsize)


def entries_of_texts(texts: pa.Array, counts: Array) -> pa.Array:
    """Binary entries for arrays of texts (strings or binaries without NULL)."""
    lengths, data = text_lengths(texts)
    before = _starts(counts)
    bytes_before = np.concatenate([[0], np.cumsum(lengths)])
    sizes = bytes_before[before[1:]] - bytes_before[before[:-1]]
    head = _LENGTH.itemsize * (1 + counts)
    starts = _starts(head + sizes)
    out = np.empty(int(starts[-1]), _BYTES)
    heads = np.insert(lengths.astype(_LENGTH), before[:-1], counts.astype(_LENGTH))
    out[_places(starts[:-1], head)] = heads.view(_BYTES)
    out[_places(starts[:-1] + head, sizes)] = data
    return _binary(out, head + sizes)


def lists_of(entries: pa.Array, element: DataType) -> tuple[Array, Array]:
    """All elements (of fixed width) of the entries in storage form, and their number per entry."""
    lengths, data = text_lengths(entries)
    return data.view(element_dtype(element)), lengths // width(element)


def lists_of_texts(entries: pa.Array) -> tuple[pa.Array, Array]:
    """All elements of the entries as binaries, and their number per entry."""
    lengths, data = text_lengths(entries)
    starts = _starts(lengths)[:-1]
    four = np.full(starts.size, _LENGTH.itemsize)
    counts = data[_places(starts, four)].view(_LENGTH).astype(np.int64)
    head = _LENGTH.itemsize * (1 + counts)
    sizes = data[_places(starts + 4, head - 4)].view(_LENGTH).astype(np.int64)
    return _binary(data[_places(starts + head, lengths - head)], sizes), counts


def offsets_of(counts: Array) -> Array:
    """Arrow list offsets: the start of each list, then the end of the last."""
    return _starts(counts).astype(np.int32)


def text_lengths(array: pa.Array) -> tuple[Array, Array]:
    """The length of each string or binary in bytes, and all bytes, concatenated."""
    large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    kind = np.dtype(np.int64 if large else np.int32)
    _, offsets, data = array.buffers()
    if len(array) == 0 or data is None:
        return np.zeros(len(array), np.int64), np.zeros(0, _BYTES)
    at = np.frombuffer(offsets, kind, len(array) + 1, array.offset * kind.itemsize)
    bytes_ = np.frombuffer(data, _BYTES)[int(at[0]) : int(at[-1])]
    return np.diff(at).astype(np.int64), bytes_


def _binary(data: Array, lengths: Array) -> pa.Array:
    offsets = pa.py_buffer(_starts(lengths))
    buffers = [None, offsets, pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(pa.large_binary(), lengths.size, buffers)


def _starts(lengths: Array) -> Array:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])


def _places(starts: Array, lengths: Array) -> Array:
    """The indices of all ranges ``start … start + length``, concatenated."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))
