"""What a union knows of single values (group-wise punctuation, out-of-order paper A.2.1): "may
require maintaining such state for each group".

A value's progress behind the union is the least over its inputs of what each has promised of that
value, or of all its rows where that is further. An entry is what any input has said of a value
beyond what is known of all rows, and what the union has said of it; it is forgotten when the whole
has come as far.
"""

from __future__ import annotations

from typing import Any

from numba import int64

from cql.executor.jit.decorators import njit
from cql.executor.kernels.ingest.cutter import MOST_TOLD
from cql.executor.kernels.ingest.value_numbers import enter, place_of
from cql.executor.kernels.lib.memory import as_i32, words
from cql.executor.kernels.morsel_layout import (
    GROUP,
    INFINITY,
    NEVER,
    PUNCTUATION_WORDS,
    PUNCTUATIONS,
)

# A block: a header, then of each input what it has promised of all its rows (INFINITY: it has
# ended), the same or INFINITY while it holds nothing back, and whether rows of a value may come
# below what was promised of that.
BY = 0  # column of the values
SIZE = 1  # bytes of one; 0: one unsigned byte
COLUMN = 2  # column that they progress on
COUNT = 3
ROOM = 4
INDEX = 5  # address of an index of 2 * ROOM places (int32)
ENTRIES = 6  # address of ROOM entries
PORTS = 7
PURGED = 8  # entries forgotten
SENT = 9  # what was promised of all rows behind the union
HEADER_WORDS = 10
OF_PORT = 3
MARK, HOLDS, LAGS = range(OF_PORT)

# An entry: the value, whether it is NULL, what was promised of it, then what each input has.
KEY = 0
NULL = 1
TOLD = 2
OWN = 3


@njit(inline="always")
def _block(block: int) -> Any:
    return words(block, HEADER_WORDS)


@njit(inline="always")
def ports_of(block: int) -> Any:
    """OF_PORT words of each input."""
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
def asked_room(block: int, morsel: int) -> int:
    """For how many entries there has to be room before a morsel's promises are taken."""
    b, u = _block(block), words(morsel, PUNCTUATIONS + 1)
    return b[COUNT] + u[PUNCTUATIONS] // 2


@njit("void(int64, int64, int64, int64, int64)", cache=True)
def take(block: int, port: int, key: int, null: int, value: int) -> None:
    """An input's promise of one value."""
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
def tell(block: int, number: int, made: int, n: int) -> int:
    """Writes the promise of an entry, if it has risen, behind ``n`` others (at address ``made``);
    returns how many there are then, -1 if there is no room."""
    b, entry, ports, low = _block(block), entry_at(block, number), ports_of(block), INFINITY
    for q in range(b[PORTS]):
        low = min(low, max(ports[OF_PORT * q + HOLDS], entry[OWN + q]))
    before = max(b[SENT], entry[TOLD])
    if low <= before or low == INFINITY:
        return n
    if n + 2 > 2 * MOST_TOLD:
        return -1
    r = words(made + 8 * PUNCTUATION_WORDS * n, 2 * PUNCTUATION_WORDS)
    r[0], r[1], r[2], r[3] = b[COLUMN], low, b[BY], before
    r[4], r[5], r[6], r[7] = GROUP, entry[KEY], -1, entry[NULL]
    entry[TOLD] = low
    for q in range(b[PORTS]):
        # it may go on behind this
        ports[OF_PORT * q + LAGS] |= int64(ports[OF_PORT * q + HOLDS] == INFINITY)
    return n + 2


@njit("void(int64)", cache=True)
def renumber(block: int) -> None:
    """Makes the index anew."""
    b = _block(block)
    width = OWN + b[PORTS]
    index = as_i32(b[INDEX], 2 * b[ROOM])
    index[:] = 0
    enter(index, words(b[ENTRIES], width * b[ROOM]), width, b[COUNT])


@njit("void(int64)", cache=True)
def purge(block: int) -> None:
    """Forgets the entries that say no more than what is known of all rows."""
    b, ports, kept = _block(block), ports_of(block), 0
    for q in range(b[PORTS]):
        ports[OF_PORT * q + LAGS] = 0
    for k in range(b[COUNT]):
        entry = entry_at(block, k)
        stays = entry[TOLD] > b[SENT]
        for q in range(b[PORTS]):
            mark = ports[OF_PORT * q + MARK]
            stays |= entry[OWN + q] > max(mark, b[SENT])
            ports[OF_PORT * q + LAGS] |= int64(max(mark, entry[OWN + q]) < entry[TOLD])
        if stays:
            if kept < k:
                entry_at(block, kept)[:] = entry
            kept += 1
    if kept < b[COUNT]:
        b[PURGED] += b[COUNT] - kept
        b[COUNT] = kept
        renumber(block)
