"""The watermarks of single values in a union (group-wise punctuation, out-of-order paper A.2.1:
"may require maintaining such state for each group").

The output's watermark of a value is the minimum over the inputs of the input's watermark of that
value or of all its rows, whichever is higher. A value has an entry while an input's or the output's
watermark of the value is above the watermark of all rows; ``purge`` removes other entries.
"""

from __future__ import annotations

from typing import Any

from numba import int64

from cql.executor.jit.decorators import njit
from cql.executor.kernels.ingest.cutter import MOST_PUNCTUATIONS
from cql.executor.kernels.ingest.value_numbers import enter, place_of
from cql.executor.kernels.lib.memory import as_i32, words
from cql.executor.kernels.morsel_layout import (
    GROUP,
    INFINITY,
    NEVER,
    PUNCTUATION_WORDS,
    PUNCTUATIONS,
)

# A block: a header, then per input its watermark of all rows (INFINITY: it has ended), the same or
# INFINITY while it is idle, and whether a row may come below the output's watermark of its value.
BY = 0  # column of the values
SIZE = 1  # bytes of a value; 0: one unsigned byte
COLUMN = 2  # column on which the values progress
COUNT = 3  # entries
ROOM = 4  # capacity for entries
INDEX = 5  # address of an index of 2 * ROOM places (int32)
ENTRIES = 6  # address of ROOM entries
PORTS = 7
PURGED = 8  # entries removed so far
SENT = 9  # the output's watermark of all rows
HEADER_WORDS = 10
OF_PORT = 3
MARK, HOLDS, LAGS = range(OF_PORT)

# An entry: the value, whether it is NULL, the output's watermark of it, then each input's.
KEY = 0
NULL = 1
PUNCTUATED = 2
OWN = 3


@njit(inline="always")
def _block(block: int) -> Any:
    return words(block, HEADER_WORDS)


@njit(inline="always")
def ports_of(block: int) -> Any:
    """The words of the inputs, OF_PORT per input."""
    return words(block + 8 * HEADER_WORDS, OF_PORT * _block(block)[PORTS])


@njit(inline="always")
def entry_at(block: int, number: int) -> Any:
    """The words of an entry."""
    b = _block(block)
    width = OWN + b[PORTS]
    return words(b[ENTRIES] + 8 * width * number, width)


@njit("int64(int64, int64, int64)", cache=True)
def find(block: int, key: int, null: int) -> int:
    """The number of a value's entry, -1 if it has none."""
    b = _block(block)
    width = OWN + b[PORTS]
    index, entries = as_i32(b[INDEX], 2 * b[ROOM]), words(b[ENTRIES], width * b[ROOM])
    return int64(index[place_of(index, entries, width, key, null)]) - 1


@njit("int64(int64, int64)", cache=True)
def requested_room(block: int, morsel: int) -> int:
    """The number of entries for which the block needs room before it takes a morsel's
    punctuation."""
    b, u = _block(block), words(morsel, PUNCTUATIONS + 1)
    return b[COUNT] + u[PUNCTUATIONS] // 2


@njit("void(int64, int64, int64, int64, int64)", cache=True)
def take(block: int, port: int, key: int, null: int, value: int) -> None:
    """Takes an input's punctuation of one value."""
    b = _block(block)
    found = find(block, key, null)
    if found < 0:
        if value <= max(ports_of(block)[OF_PORT * port + MARK], b[SENT]):
            return
        width, found = OWN + b[PORTS], b[COUNT]
        entry = entry_at(block, found)
        entry[:] = NEVER
        entry[KEY], entry[NULL] = key, null
        index, entries = as_i32(b[INDEX], 2 * b[ROOM]), words(b[ENTRIES], width * b[ROOM])
        index[place_of(index, entries, width, key, null)] = found + 1
        b[COUNT] = found + 1
    entry = entry_at(block, found)
    entry[OWN + port] = max(entry[OWN + port], value)


@njit("int64(int64, int64, int64, int64)", cache=True)
def punctuate(block: int, number: int, made: int, n: int) -> int:
    """Writes the group-wise punctuation of an entry, if the output's watermark of the value has
    risen, behind ``n`` records at address ``made``. Returns the new number of records, -1 if there
    is no room."""
    b, entry, ports, low = _block(block), entry_at(block, number), ports_of(block), INFINITY
    for q in range(b[PORTS]):
        low = min(low, max(ports[OF_PORT * q + HOLDS], entry[OWN + q]))
    before = max(b[SENT], entry[PUNCTUATED])
    if low <= before or low == INFINITY:
        return n
    if n + 2 > 2 * MOST_PUNCTUATIONS:
        return -1
    r = words(made + 8 * PUNCTUATION_WORDS * n, 2 * PUNCTUATION_WORDS)
    r[0], r[1], r[2], r[3] = b[COLUMN], low, b[BY], before
    r[4], r[5], r[6], r[7] = GROUP, entry[KEY], -1, entry[NULL]
    entry[PUNCTUATED] = low
    for q in range(b[PORTS]):
        # The input is idle or has ended: if it goes on, its rows may lie below this watermark.
        ports[OF_PORT * q + LAGS] |= int64(ports[OF_PORT * q + HOLDS] == INFINITY)
    return n + 2


@njit("void(int64)", cache=True)
def renumber(block: int) -> None:
    """Rebuilds the index."""
    b = _block(block)
    width = OWN + b[PORTS]
    index = as_i32(b[INDEX], 2 * b[ROOM])
    index[:] = 0
    enter(index, words(b[ENTRIES], width * b[ROOM]), width, b[COUNT])


@njit("void(int64)", cache=True)
def purge(block: int) -> None:
    """Removes the entries whose watermarks are not above the watermarks of all rows."""
    b, ports, kept = _block(block), ports_of(block), 0
    for q in range(b[PORTS]):
        ports[OF_PORT * q + LAGS] = 0
    for k in range(b[COUNT]):
        entry = entry_at(block, k)
        stays = entry[PUNCTUATED] > b[SENT]
        for q in range(b[PORTS]):
            mark = ports[OF_PORT * q + MARK]
            stays |= entry[OWN + q] > max(mark, b[SENT])
            ports[OF_PORT * q + LAGS] |= int64(max(mark, entry[OWN + q]) < entry[PUNCTUATED])
        if stays:
            if kept < k:
                entry_at(block, kept)[:] = entry
            kept += 1
    if kept < b[COUNT]:
        b[PURGED] += b[COUNT] - kept
        b[COUNT] = kept
        renumber(block)
