"""The order of rows by sort keys, in a slab or in a morsel.

A descriptor begins with the words below. From AT on it holds, for each column of a slab, the
addresses of data and mask (in the form in which a morsel has them), then the bytes of a value of
each column, then the keys.
"""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.memory import (
    as_f32,
    as_i16,
    as_i32,
    as_u8,
    f64_of_bits,
    integer_at,
    key_bits,
    words,
)

COLUMNS = 0
KEYS = 1
AT = 2  # word of the first column
WIDTH = 3  # words of the descriptor
RANK = 4  # address of the ranks of texts: int32 per code of the dictionary
RANKS = 5  # number of ranks
TEXTS = 6  # whether a key is a text
BEHIND = 7  # the first word behind these

COLUMN_WORDS = 2
DATA, MASK = range(COLUMN_WORDS)  # mask 0: no NULLs
KEY_WORDS = 4
KEY_COLUMN, KIND, DESCENDING, NULLS_FIRST = range(KEY_WORDS)
INTEGER, DOUBLE, FLOAT, TEXT = range(4)
_MAGNITUDE = 2**63 - 1


@njit("int64[::1](int64)", cache=True)
def whole(desc: int) -> Any:
    """All words of a descriptor."""
    return words(desc, words(desc, BEHIND)[WIDTH])


@njit(inline="always")
def column_at(d: Any, column: int) -> int:
    return d[AT] + COLUMN_WORDS * column


@njit(inline="always")
def size_of(d: Any, column: int) -> int:
    """Bytes of a value of a column."""
    return d[d[AT] + COLUMN_WORDS * d[COLUMNS] + column]


@njit(inline="always")
def key_at(d: Any, key: int) -> int:
    return d[AT] + (COLUMN_WORDS + 1) * d[COLUMNS] + KEY_WORDS * key


@njit("int64(float64, float64)", cache=True)
def _compare_reals(x: float, y: float) -> int:
    """Compares two doubles: -1, 0 or 1. NaN is the largest and equals itself; -0.0 equals 0.0."""
    if x != x or y != y:
        return int(x != x) - int(y != y)
    return int(x > y) - int(x < y)


@njit("int64(int64[::1], int64[::1], int64, int64, int64, int64)", cache=True)
def compare_rows(d: Any, table: Any, first: int, many: int, a: int, b: int) -> int:
    """Compares rows ``a`` and ``b`` by the first ``many`` keys: -1, 0 or 1. ``table`` holds the
    addresses of the rows' columns from word ``first`` on."""
    for k in range(many):
        key = key_at(d, k)
        column = first + COLUMN_WORDS * d[key + KEY_COLUMN]
        if table[column + MASK] != 0:
            mask = as_u8(table[column + MASK], 1)
            if mask[a] != mask[b]:
                return -1 if (mask[a] == 0) == (d[key + NULLS_FIRST] != 0) else 1
            if mask[a] == 0:
                continue
        data, kind = table[column + DATA], d[key + KIND]
        order = 0
        if kind == DOUBLE:
            order = _compare_reals(f64_of_bits(words(data, 1)[a]),
                                   f64_of_bits(words(data, 1)[b]))  # fmt: skip
        elif kind == FLOAT:
            reals = as_f32(data, 1)
            order = _compare_reals(float(reals[a]), float(reals[b]))
        else:
            size = size_of(d, d[key + KEY_COLUMN])
            x, y = integer_at(data, size, a), integer_at(data, size, b)
            if kind == TEXT:
                rank = as_i32(d[RANK], d[RANKS])
                x, y = int(rank[x]), int(rank[y])
            order = int(x > y) - int(x < y)
        if order != 0:
            return -order if d[key + DESCENDING] != 0 else order
    return 0


@njit("int64(int64[::1], int64, int64, int64)", cache=True)
def key_word(d: Any, k: int, data: int, at: int) -> int:
    """An integer that sorts, ascending, like value ``at`` of a column by key ``k``."""
    key = key_at(d, k)
    kind = d[key + KIND]
    if kind == DOUBLE:
        found = key_bits(f64_of_bits(words(data, 1)[at]))
        found = found ^ _MAGNITUDE if found < 0 else found
    elif kind == FLOAT:
        found = key_bits(float(as_f32(data, 1)[at]))
        found = found ^ _MAGNITUDE if found < 0 else found
    else:
        found = integer_at(data, size_of(d, d[key + KEY_COLUMN]), at)
        if kind == TEXT:
            found = int(as_i32(d[RANK], d[RANKS])[found])
    return ~found if d[key + DESCENDING] != 0 else found


@njit("void(int64, int64, int64, int32[::1], int32[::1], int64)", cache=True)
def move_values(size: int, source: int, target: int, from_: Any, to: Any, n: int) -> None:
    """``target[to[i]] = source[from_[i]]``."""
    if n == 0:
        return
    if size == 8:
        a, b = words(source, 1), words(target, 1)
        for i in range(n):
            b[to[i]] = a[from_[i]]
    elif size == 4:
        c, e = as_i32(source, 1), as_i32(target, 1)
        for i in range(n):
            e[to[i]] = c[from_[i]]
    elif size == 2:
        f, g = as_i16(source, 1), as_i16(target, 1)
        for i in range(n):
            g[to[i]] = f[from_[i]]
    else:
        p, q = as_u8(source, 1), as_u8(target, 1)
        for i in range(n):
            q[to[i]] = p[from_[i]]
