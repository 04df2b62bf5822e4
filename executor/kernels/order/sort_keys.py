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


@njit("int64(int64[::1], int64[::1], int64, int64[::1], int64, int64, int64, int64)", cache=True)
def compare_between(
    d: Any, table: Any, first: int, other: Any, second: int, many: int, a: int, b: int
) -> int:
    """Compares row ``a`` of ``table`` with row ``b`` of ``other`` by the first ``many`` keys: -1, 0
    or 1. The tables hold the addresses of the rows' columns from words ``first`` and ``second`` on.
    A column with a mask in ``table`` has one in ``other``, too."""
    for k in range(many):
        key = key_at(d, k)
        at = COLUMN_WORDS * d[key + KEY_COLUMN]
        column, opposite = first + at, second + at
        if table[column + MASK] != 0:
            valid = as_u8(table[column + MASK], 1)[a]
            if valid != as_u8(other[opposite + MASK], 1)[b]:
                return -1 if (valid == 0) == (d[key + NULLS_FIRST] != 0) else 1
            if valid == 0:
                continue
        left, right, kind = table[column + DATA], other[opposite + DATA], d[key + KIND]
        order = 0
        if kind == DOUBLE:
            order = _compare_reals(f64_of_bits(words(left, 1)[a]),
                                   f64_of_bits(words(right, 1)[b]))  # fmt: skip
        elif kind == FLOAT:
            order = _compare_reals(float(as_f32(left, 1)[a]), float(as_f32(right, 1)[b]))
        else:
            size = size_of(d, d[key + KEY_COLUMN])
            x, y = integer_at(left, size, a), integer_at(right, size, b)
            if kind == TEXT:
                rank = as_i32(d[RANK], d[RANKS])
                x, y = int(rank[x]), int(rank[y])
            order = int(x > y) - int(x < y)
        if order != 0:
            return -order if d[key + DESCENDING] != 0 else order
    return 0


@njit(inline="always")
def compare_rows(d: Any, table: Any, first: int, many: int, a: int, b: int) -> int:
    """Compares rows ``a`` and ``b`` of one table by the first ``many`` keys: -1, 0 or 1."""
    return compare_between(d, table, first, table, first, many, a, b)


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


@njit("void(int64[::1], int64, int64, int64, int64[::1])", cache=True)
def key_words(d: Any, k: int, data: int, first: int, found: Any) -> None:
    """``key_word`` of the values from ``first`` on, as many as ``found`` has room for."""
    n, key = found.size, key_at(d, k)
    size, kind = size_of(d, d[key + KEY_COLUMN]), d[key + KIND]
    if kind != INTEGER or size < 4:
        for i in range(n):
            found[i] = key_word(d, k, data, first + i)
        return
    if size == 8:
        wide = words(data, 1)
        for i in range(n):
            found[i] = wide[first + i]
    else:
        half = as_i32(data, 1)
        for i in range(n):
            found[i] = half[first + i]
    if d[key + DESCENDING] != 0:
        for i in range(n):
            found[i] = ~found[i]


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
