"""Numbers the values of the PUNCTUATE BY column: each row gets the number of its value before the
block is cut (``cutter``)."""

from __future__ import annotations

from typing import Any

from numba import int64

from cql.executor.jit.decorators import njit
from cql.executor.kernels.ingest.cutter import (
    KEY,
    NEXT_PUNCTUATION,
    NULL,
    OF_VALUE,
    OWN_FLOOR,
    OWN_FURTHEST,
    OWN_PUNCTUATED,
    TOP,
    TOP_WAITING,
    VALUE,
)
from cql.executor.kernels.lib.hashing import hash_end, hash_next, hash_start
from cql.executor.kernels.lib.memory import as_i8, as_i16, as_i32, as_u8, words
from cql.executor.kernels.morsel_layout import NEVER


@njit(inline="always")
def value_at(address: int, size: int, row: int) -> int:
    """The signed integer of ``size`` bytes at a row; ``size`` 0 means one unsigned byte."""
    if size == 8:
        return words(address, row + 1)[row]
    if size == 4:
        return int64(as_i32(address, row + 1)[row])
    if size == 2:
        return int64(as_i16(address, row + 1)[row])
    if size == 1:
        return int64(as_i8(address, row + 1)[row])
    return int64(as_u8(address, row + 1)[row])


@njit(inline="always")
def place_of(index: Any, records: Any, width: int, key: int, null: int) -> int:
    """The place of a value in the index, or the empty place where the value belongs."""
    mask = index.size - 1
    place = (hash_end(hash_next(hash_start(key), null)) >> 8) & mask
    while index[place] != 0:
        at = width * (int64(index[place]) - 1)
        if records[at + KEY] == key and records[at + NULL] == null:
            break
        place = (place + 1) & mask
    return place


@njit(
    "int64(int64, int64, int64, int64, int64, int32[::1], int64[::1], int64[::1], int32[::1])",
    nogil=True,
    cache=True,
)
def number(
    values: int,
    size: int,
    mask: int,
    begin: int,
    rows: int,
    index: Any,
    records: Any,
    known: Any,
    numbers: Any,
) -> int:
    """Writes the number of each row's value to ``numbers``, from row ``begin`` on. Returns
    ``rows``, or the first row whose new value has no room: the index (a power of two of places) is
    at most half full. ``mask`` 0 means that no value is NULL. ``known`` holds the number of values
    and the words of a record."""
    width = known[1]
    last, last_null, found = 0, -1, 0
    for row in range(begin, rows):
        null = int64(mask != 0 and as_u8(mask, rows)[row] == 0)
        key = 0 if null != 0 else value_at(values, size, row)
        if key != last or null != last_null:
            place = place_of(index, records, width, key, null)
            if index[place] == 0:
                if 2 * (known[0] + 1) > index.size:
                    return row
                at = width * known[0]
                records[at + KEY], records[at + NULL] = key, null
                for k in range(at + VALUE, at + width, OF_VALUE):
                    records[k + TOP], records[k + OWN_FLOOR] = NEVER, NEVER
                    records[k + OWN_PUNCTUATED], records[k + NEXT_PUNCTUATION] = NEVER, NEVER
                    records[k + OWN_FURTHEST], records[k + TOP_WAITING] = NEVER, 0
                known[0] += 1
                index[place] = known[0]
            last, last_null, found = key, null, int64(index[place]) - 1
        numbers[row] = found
    return rows


@njit("void(int32[::1], int64[::1], int64, int64)", nogil=True, cache=True)
def enter(index: Any, records: Any, width: int, count: int) -> None:
    """Enters the first ``count`` records into an empty index."""
    for n in range(count):
        at = width * n
        index[place_of(index, records, width, records[at + KEY], records[at + NULL])] = n + 1
