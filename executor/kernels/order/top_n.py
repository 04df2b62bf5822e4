"""A partial top-n: keeps the first rows, by sort keys, of the rows that a kernel has written to its
output. The result of ORDER BY … LIMIT over the window is among the kept rows.

For one key after the other, selection finds the word of the last row to keep (Hoare: Algorithm 65,
Find, 1961). Rows with a smaller word are kept; the next key examines only the rows with that
word."""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import cfunc, njit
from cql.executor.kernels.lib.memory import as_i32, as_u8, words
from cql.executor.kernels.morsel_layout import CURSOR, HEADER, ROWS
from cql.executor.kernels.order.sort_keys import (
    BEHIND,
    COLUMNS,
    DATA,
    KEY_COLUMN,
    KEYS,
    MASK,
    NULLS_FIRST,
    column_at,
    key_at,
    key_word,
    move_values,
    size_of,
    whole,
)

# Descriptor: behind the words of ``sort_keys``. The mask word of a column is not 0 if the column
# has a mask.
MOST = BEHIND  # rows to keep, at least one
ROOM = BEHIND + 1  # maximal rows of the output
# Addresses.
EXAMINED = BEHIND + 2  # int32, twice ROOM: the examined rows
WORDS = BEHIND + 3  # twice ROOM: their words
CHOSEN = BEHIND + 4  # a byte per row, 0 between calls: 1 for a row to keep
OWN = BEHIND + 5


@njit("int64(int64[::1], int64, int64)", cache=True)
def select(values: Any, n: int, place: int) -> int:
    """The value at a place (from 0) of the first ``n`` values in ascending order. Permutes the
    values."""
    low, high = 0, n
    while True:
        a, b, c = values[low], values[(low + high) >> 1], values[high - 1]
        pivot = max(min(a, b), min(max(a, b), c))
        less, at, more = low, low, high  # [low, less) is below the pivot, [more, high) above
        while at < more:
            x = values[at]
            if x < pivot:
                values[at] = values[less]
                values[less] = x
                less += 1
                at += 1
            elif x > pivot:
                more -= 1
                values[at] = values[more]
                values[more] = x
            else:
                at += 1
        if place < less:
            high = less
        elif place >= more:
            low = more
        else:
            return pivot


@njit("UniTuple(int64, 2)(int64[::1], int64, int64)", cache=True)
def _divide(d: Any, n: int, wanted: int) -> Any:
    """Divides the first ``n`` EXAMINED rows by the ``wanted``-th least word: rows with a smaller
    word become CHOSEN, rows with that word stay in EXAMINED. Returns (rows that stay, rows still
    wanted)."""
    examined, chosen = as_i32(d[EXAMINED], n), as_u8(d[CHOSEN], d[ROOM])
    values, copies = words(d[WORDS], n), words(d[WORDS] + 8 * d[ROOM], n)
    for k in range(n):
        copies[k] = values[k]
    last = select(copies, n, wanted - 1)
    left = 0
    for k in range(n):
        if values[k] < last:
            chosen[examined[k]] = 1
            wanted -= 1
        elif values[k] == last:
            examined[left] = examined[k]
            left += 1
    return left, wanted


@njit("void(int64[::1], int64[::1], int64, int64)", cache=True)
def _choose(d: Any, o: Any, first: int, rows: int) -> None:
    """Marks the rows to keep as CHOSEN; among equal rows, the first ones."""
    examined, chosen = as_i32(d[EXAMINED], d[ROOM]), as_u8(d[CHOSEN], d[ROOM])
    values = words(d[WORDS], d[ROOM])
    n, wanted = rows - first, d[MOST]
    for k in range(n):
        examined[k] = first + k
    for k in range(d[KEYS]):
        key = key_at(d, k)
        column = d[key + KEY_COLUMN]
        at = HEADER + 2 * column
        if d[column_at(d, column) + MASK] != 0:
            mask = as_u8(o[at + MASK], rows)
            for i in range(n):
                values[i] = int((mask[examined[i]] == 0) != (d[key + NULLS_FIRST] != 0))
            n, wanted = _divide(d, n, wanted)
            if mask[examined[0]] == 0:
                continue
        for i in range(n):
            values[i] = key_word(d, k, o[at + DATA], examined[i])
        n, wanted = _divide(d, n, wanted)
        if n == wanted:
            break
    for i in range(wanted):
        chosen[examined[i]] = 1


@cfunc("int64(int64, int64)", nopython=True, cache=True)
def first_rows(desc: Any, morsel: Any) -> Any:
    """Keeps the MOST first rows, by the sort keys, among the rows from CURSOR on (more than MOST),
    in their present order. Returns the new number of rows of the morsel."""
    d = whole(desc)
    o = words(morsel, HEADER + 2 * d[COLUMNS])
    first, rows, most = o[CURSOR], o[ROWS], d[MOST]
    _choose(d, o, first, rows)
    chosen = as_u8(d[CHOSEN], rows)
    from_, to = as_i32(d[EXAMINED], most), as_i32(d[EXAMINED] + 4 * d[ROOM], most)
    n = 0
    for row in range(first, rows):
        if chosen[row] != 0:
            chosen[row] = 0
            from_[n], to[n] = row, first + n
            n += 1
    for c in range(d[COLUMNS]):
        at = HEADER + 2 * c
        move_values(size_of(d, c), o[at], o[at], from_, to, most)
        if d[column_at(d, c) + MASK] != 0:
            move_values(1, o[at + 1], o[at + 1], from_, to, most)
    o[ROWS] = first + most
    return first + most
