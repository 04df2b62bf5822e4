"""Arrow columns of single values as flat arrays, and back; copied only where the layouts differ."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cql.base.types import DataType, Kind

Array = npt.NDArray[Any]


def address_of(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]  # a third of the cost of ctypes.data
    return address


def plain_storage(column: pa.Array, of: DataType) -> Array:
    """A column's values as a flat array of the storage of its type, which has no codes; NULL places
    hold any value."""
    kind = of.kind
    if kind is Kind.BOOLEAN:
        return unpack_bits(column.buffers()[1], column.offset, len(column))
    if kind is Kind.NULL:
        return np.zeros(len(column), np.uint8)
    buffer = column.buffers()[1]
    if kind is Kind.DECIMAL:
        return _narrow_decimals(column)
    dtype = np.dtype(of.storage)
    if buffer is None or len(column) == 0:
        return np.zeros(len(column), dtype)
    return np.frombuffer(buffer, dtype, len(column), column.offset * dtype.itemsize)


def plain_arrow(values: Array, valid: npt.NDArray[np.uint8] | None, of: DataType) -> pa.Array:
    """An Arrow array over ``values`` in storage form, of a type without codes."""
    n = len(values)
    if of.kind is Kind.NULL:
        return pa.nulls(n)
    bits = None if valid is None else bitmap(valid)
    if of.kind is Kind.BOOLEAN:
        data = bitmap(values)
    elif of.kind is Kind.DECIMAL:
        pairs = np.empty(2 * n, np.int64)
        pairs[::2] = values
        pairs[1::2] = values >> 63
        data = pa.py_buffer(pairs)
    else:
        data = pa.py_buffer(values)
    return pa.Array.from_buffers(of.to_arrow(), n, [bits, data], -1 if bits is not None else 0)


def bitmap(valid: Array) -> pa.Buffer:
    return pa.py_buffer(np.packbits(valid != 0, bitorder="little"))


def _narrow_decimals(column: pa.Array) -> Array:
    """Decimals of up to 18 digits as int64: the low words of Arrow's 128-bit integers."""
    buffer = column.buffers()[1]
    if buffer is None or len(column) == 0:
        return np.zeros(len(column), np.int64)
    pairs = np.frombuffer(buffer, np.int64, 2 * len(column), column.offset * 16)

    return pairs[::2].copy()


def unpack_mask(column: pa.Array) -> Array | None:
    if column.null_count == 0:
        return None
    if pa.types.is_null(column.type):
        return np.zeros(len(column), np.uint8)
    return unpack_bits(column.buffers()[0], column.offset, len(column))


def unpack_bits(buffer: pa.Buffer | None, offset: int, n: int) -> Array:
    if buffer is None or n == 0:
        return np.zeros(n, np.uint8)
    first = offset // 8
    packed = np.frombuffer(buffer, np.uint8, (offset + n + 7) // 8 - first, first)
    bits = np.unpackbits(packed, bitorder="little")
    return np.ascontiguousarray(bits[offset % 8 : offset % 8 + n])
