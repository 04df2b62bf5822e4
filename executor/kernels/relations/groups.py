"""The groups of rows with equal key columns, found by native operators.

The words below describe the arrays of a ``GroupIndex`` (``kernels.lib.key_index``), and scratch.
The key columns are the sort keys of the descriptor (``kernels.order.sort_keys``), texts by code.
"""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.key_index import (
    FLAGS,
    FREE,
    find_groups,
    free_groups,
    look_up_groups,
)
from cql.executor.kernels.lib.memory import as_u8, copy_bytes, lines, words
from cql.executor.kernels.order.sort_keys import (
    COLUMN_WORDS,
    DATA,
    INTEGER,
    KEY_COLUMN,
    KEYS,
    KIND,
    MASK,
    column_at,
    key_at,
    key_word,
    size_of,
)
from cql.executor.kernels.relations.frontier import BEHIND

NEED_GROUPS = 2  # request of the operators: DETAIL_ROW free ids

# Descriptor: behind the words of the frontier.
BUCKETS = BEHIND  # size of the hash table
CAPACITY = BEHIND + 1  # ids
PIECE = BEHIND + 2  # rows that are looked up at once, at most
# Addresses.
TABLE = BEHIND + 3
KEY_WORDS = BEHIND + 4
FREE_IDS = BEHIND + 5
CONTROL = BEHIND + 6
WANTED = BEHIND + 7  # scratch: the key words of the rows
IDS = BEHIND + 8  # int64 per row: its group
FRESH = BEHIND + 9  # uint8 per row: whether it is the first of its group
END = BEHIND + 10


@njit(inline="always")
def width_of(d: Any) -> int:
    """Words of a key."""
    return d[KEYS] + 1 + d[KEYS] // FLAGS


@njit(inline="always")
def free_ids(d: Any) -> int:
    return words(d[CONTROL], FREE + 1)[FREE]


@njit("void(int64[::1], int64[::1], int64, int32[::1], int64, int64)", nogil=True, cache=True)
def gather_keys(d: Any, table: Any, at: int, numbers: Any, first: int, end: int) -> None:
    """Writes to WANTED the key words of the rows ``numbers[first:end]``, whose columns have their
    addresses in ``table`` from word ``at`` on."""
    n, keys, width = end - first, d[KEYS], width_of(d)
    wanted = words(d[WANTED], n * width)
    for k in range(n):
        for w in range(keys, width):
            wanted[k * width + w] = 0
    for key in range(keys):
        c = d[key_at(d, key) + KEY_COLUMN]
        data, masked = table[at + COLUMN_WORDS * c + DATA], d[column_at(d, c) + MASK] != 0
        there = as_u8(table[at + COLUMN_WORDS * c + MASK], 1)
        if d[key_at(d, key) + KIND] == INTEGER and size_of(d, c) == 8 and not masked:
            values = words(data, 1)
            for k in range(n):
                wanted[k * width + key] = values[numbers[first + k]]
            continue
        flags, bit = keys + key // FLAGS, 1 << (key % FLAGS)
        for k in range(n):
            row = numbers[first + k]
            if masked and there[row] == 0:
                wanted[k * width + key] = 0
                wanted[k * width + flags] |= bit
            else:
                wanted[k * width + key] = key_word(d, key, data, row)


@njit("void(int64[::1], int64[::1], int64, int32[::1], int64, int64)", nogil=True, cache=True)
def find_ids(d: Any, table: Any, at: int, numbers: Any, first: int, end: int) -> None:
    """Writes to IDS the groups of the rows ``numbers[first:end]``, whose columns have their
    addresses in ``table`` from word ``at`` on. There are as many free ids as rows."""
    n, width = end - first, width_of(d)
    gather_keys(d, table, at, numbers, first, end)
    find_groups(
        lines(d[WANTED], n, width),
        words(d[TABLE], d[BUCKETS]),
        lines(d[KEY_WORDS], d[CAPACITY], width),
        words(d[FREE_IDS], d[CAPACITY]),
        words(d[CONTROL], FREE + 1),
        words(d[IDS], n),
        as_u8(d[FRESH], n),
    )


@njit(
    "void(int64[::1], int64[::1], int64[::1], int64, int32[::1], int64, int64)",
    nogil=True,
    cache=True,
)
def look_up_ids(
    d: Any, reader: Any, table: Any, at: int, numbers: Any, first: int, end: int
) -> None:
    """Writes to the IDS of ``reader`` the groups among those of ``d`` of the rows
    ``numbers[first:end]``, whose columns have their addresses in ``table`` from word ``at`` on; -1
    for a row whose group ``d`` does not have. The descriptor ``reader`` has their key columns."""
    n, width = end - first, width_of(d)
    gather_keys(reader, table, at, numbers, first, end)
    look_up_groups(
        lines(reader[WANTED], n, width),
        words(d[TABLE], d[BUCKETS]),
        lines(d[KEY_WORDS], d[CAPACITY], width),
        words(reader[IDS], n),
    )


@njit("void(int64[::1], uint8[::1], int64)", nogil=True, cache=True)
def mark_nulls(d: Any, null: Any, n: int) -> None:
    """Writes whether the key of each of the ``n`` rows that were looked up last has a NULL."""
    keys, width = d[KEYS], width_of(d)
    wanted = lines(d[WANTED], n, width)
    for k in range(n):
        flags = 0
        for w in range(keys, width):
            flags |= wanted[k, w]
        null[k] = flags != 0


@njit(inline="always")
def keep_value(table: Any, at: int, row: int, size: int, values: int, masks: int, i: int) -> None:
    """Copies the value of a row, in the column whose addresses ``table`` has from word ``at`` on,
    to value ``i`` of ``values``, and whether it is valid to ``masks``. ``size``: its bytes."""
    copy_bytes(table[at + DATA] + size * row, values + size * i, size)
    copy_bytes(table[at + MASK] + row, masks + i, 1)


@njit("void(int64[::1], int64[::1])", nogil=True, cache=True)
def free_ids_of(d: Any, gone: Any) -> None:
    """Frees groups."""
    width = width_of(d)
    free_groups(
        gone,
        words(d[TABLE], d[BUCKETS]),
        lines(d[KEY_WORDS], d[CAPACITY], width),
        words(d[FREE_IDS], d[CAPACITY]),
        words(d[CONTROL], FREE + 1),
    )
