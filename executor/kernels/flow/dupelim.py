"""The native function of Dupelim: duplicate elimination over a stream (out-of-order paper §5.4).

The first of equal rows passes at once; its key stays in an index (``kernels.lib.key_index``), and
the operator drops later copies. Punctuation passes unchanged. Once the watermark is above the time
of a key, no copy of the key follows. When the index holds SWEEP_AT keys, Python removes all such
keys from it (a sweep). For an input in order, the time of each row is a watermark too.

NULL equals NULL, NaN equals NaN, and -0.0 equals 0.0; a row with -0.0 leaves with 0.0.
"""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import cfunc, njit
from cql.executor.kernels.drive.passing import send
from cql.executor.kernels.lib.key_index import FLAGS, find_groups
from cql.executor.kernels.lib.memory import (
    as_f32,
    as_i32,
    as_u8,
    f64_of_bits,
    integer_at,
    key_bits,
    lines,
    words,
)
from cql.executor.kernels.morsel_layout import (
    CAPACITY,
    CURSOR,
    DETAIL,
    DETAIL_ROW,
    DONE,
    END_OF_INPUT,
    EPOCH,
    HEADER,
    IDLE,
    INFINITY,
    LATE_ROW_ADDRESS,
    LATE_ROW_WORDS,
    LATE_ROWS,
    NEED,
    OUT,
    OUTPUT_FULL,
    PHASE,
    PUNCTUATION_ADDRESS,
    PUNCTUATION_WORDS,
    PUNCTUATIONS,
    ROWS,
    SEQUENCE,
    SERIAL,
)
from cql.executor.kernels.order.sort_keys import DOUBLE, FLOAT, move_values

# Requests of the operator (DETAIL of NEED).
NEED_ROOM = 0  # room for DETAIL_ROW more keys
NEED_SWEEP = 1  # the removal of the keys below WATERMARK

# Descriptor: the words below, then COLUMN_WORDS words per column.
COLUMNS = 0
BY = 1  # the column of the time
IN_ORDER = 2  # whether rows come in the order of the time
WATERMARK = 3
SWEPT = 4  # the watermark of the last sweep
SWEEP_AT = 5  # keys in the index at which a sweep is due
# Counters.
ROWS_IN = 6
ROWS_LEFT = 7
DUPLICATES = 8
# The index: its places, its room for keys, the words of a key, and addresses.
PLACES = 9
ROOM = 10
WIDTH = 11
TABLE = 12
KEYS = 13
FREE_IDS = 14
CONTROL = 15
# Addresses of buffers for MOST rows, the rows that are handled at once.
MOST = 16
LINES = 17
IDS = 18
FRESH = 19
CHOSEN = 20
TARGETS = 21
FIRST = 22

COLUMN_WORDS = 3
SIZE, KIND, NULLABLE = range(COLUMN_WORDS)


@njit(inline="always")
def _column(column: int) -> int:
    return FIRST + COLUMN_WORDS * column


@njit("void(int64[::1], int64[::1], int64, int64)", cache=True)
def _write_keys(d: Any, u: Any, first: int, m: int) -> None:
    """Writes the keys of ``m`` rows to LINES: a word per column, 0 for NULL, then the NULL
    flags."""
    columns, width, stop = d[COLUMNS], d[WIDTH], first + m
    flat = words(d[LINES], m * width)
    for i in range(m):
        for w in range(columns, width):
            flat[i * width + w] = 0
    for c in range(columns):
        data, mask = u[HEADER + 2 * c], as_u8(u[HEADER + 2 * c + 1], stop)
        size, kind = d[_column(c) + SIZE], d[_column(c) + KIND]
        flags, flag = columns + c // FLAGS, 1 << (c % FLAGS)
        reals, singles = words(data, stop), as_f32(data, stop)
        for i in range(m):
            word = 0
            if d[_column(c) + NULLABLE] != 0 and mask[first + i] == 0:
                flat[i * width + flags] |= flag
            elif kind == DOUBLE:
                word = key_bits(f64_of_bits(reals[first + i]))
            elif kind == FLOAT:
                word = key_bits(float(singles[first + i]))
            else:
                word = integer_at(data, size, first + i)
            flat[i * width + c] = word


@njit("int64(int64[::1], int64, int64)", cache=True)
def _pick(d: Any, m: int, j: int) -> int:
    """Enters the keys of ``m`` rows in the index. Writes the rows with new keys to CHOSEN and their
    rows in the output, from row ``j`` on, to TARGETS. Returns the number of new keys."""
    room, width = d[ROOM], d[WIDTH]
    fresh = as_u8(d[FRESH], m)
    find_groups(
        lines(d[LINES], m, width),
        words(d[TABLE], d[PLACES]),
        lines(d[KEYS], room, width),
        words(d[FREE_IDS], room),
        words(d[CONTROL], 1),
        words(d[IDS], m),
        fresh,
    )
    chosen, targets = as_i32(d[CHOSEN], m), as_i32(d[TARGETS], m)
    n = 0
    for i in range(m):
        if fresh[i] != 0:
            chosen[n] = i
            targets[n] = j + n
            n += 1
    return n


@njit("void(int64[::1], int64[::1], int64[::1], int64, int64)", cache=True)
def _give(d: Any, u: Any, o: Any, first: int, n: int) -> None:
    """Copies the ``n`` CHOSEN rows, counted from row ``first`` on, to the output."""
    width = d[WIDTH]
    chosen, targets = as_i32(d[CHOSEN], n), as_i32(d[TARGETS], n)
    for c in range(d[COLUMNS]):
        source, target, size = u[HEADER + 2 * c], o[HEADER + 2 * c], d[_column(c) + SIZE]
        move_values(size, source + first * size, target, chosen, targets, n)
        if d[_column(c) + NULLABLE] != 0:
            mask, own = u[HEADER + 2 * c + 1], o[HEADER + 2 * c + 1]
            move_values(1, mask + first, own, chosen, targets, n)
        kind, flat = d[_column(c) + KIND], words(d[LINES], d[MOST] * width)
        if kind == DOUBLE:
            reals = words(target, o[CAPACITY])
            for k in range(n):
                reals[targets[k]] = flat[chosen[k] * width + c]
        elif kind == FLOAT:
            singles = as_f32(target, o[CAPACITY])
            for k in range(n):
                singles[targets[k]] = f64_of_bits(flat[chosen[k] * width + c])


@njit("void(int64[::1], int64[::1], int64[::1], int64, int64)", cache=True)
def _pass_late_rows(d: Any, u: Any, o: Any, first: int, n: int) -> None:
    """Copies the late-row records of the CHOSEN rows to the output."""
    chosen, targets = as_i32(d[CHOSEN], n), as_i32(d[TARGETS], n)
    late = words(u[LATE_ROW_ADDRESS], LATE_ROW_WORDS * u[LATE_ROWS])
    room = o[CAPACITY] * d[COLUMNS]
    own, made = words(o[LATE_ROW_ADDRESS], LATE_ROW_WORDS * room), o[LATE_ROWS]
    e = 0
    for k in range(n):
        row = first + chosen[k]
        while e < u[LATE_ROWS] and late[LATE_ROW_WORDS * e] < row:
            e += 1
        while e < u[LATE_ROWS] and late[LATE_ROW_WORDS * e] == row:
            at, to = LATE_ROW_WORDS * e, LATE_ROW_WORDS * made
            own[to], own[to + 1], own[to + 2] = targets[k], late[at + 1], late[at + 2]
            made += 1
            e += 1
    o[LATE_ROWS] = made


@njit("void(int64[::1], int64)", cache=True)
def _follow_rows(d: Any, m: int) -> None:
    """Raises the watermark to the time of the last row of an input in order."""
    time = words(d[LINES], m * d[WIDTH])[(m - 1) * d[WIDTH] + d[BY]]
    d[WATERMARK] = max(d[WATERMARK], time)


@njit("void(int64[::1], int64[::1])", cache=True)
def _note_progress(d: Any, u: Any) -> None:
    arrived = words(u[PUNCTUATION_ADDRESS], PUNCTUATION_WORDS * u[PUNCTUATIONS])
    for p in range(u[PUNCTUATIONS]):
        at = PUNCTUATION_WORDS * p
        if arrived[at] == END_OF_INPUT:
            d[WATERMARK] = INFINITY
        elif arrived[at] == d[BY] and arrived[at + 2] < 0:
            d[WATERMARK] = max(d[WATERMARK], arrived[at + 1])


@njit("void(int64[::1], int64[::1])", cache=True)
def _pass_punctuation(u: Any, o: Any) -> None:
    arrived = words(u[PUNCTUATION_ADDRESS], PUNCTUATION_WORDS * u[PUNCTUATIONS])
    leaving = words(o[PUNCTUATION_ADDRESS], PUNCTUATION_WORDS * u[PUNCTUATIONS])
    n = 0
    for p in range(u[PUNCTUATIONS]):
        at = PUNCTUATION_WORDS * p
        # Only punctuation on a single attribute for all groups passes; dropping the rest is sound.
        if arrived[at] >= IDLE and arrived[at + 2] < 0:
            n = send(leaving, n, arrived[at], arrived[at + 1])
    o[PUNCTUATIONS] = n


@cfunc("int64(int64, int64)", nopython=True, cache=True)
def dupelim(desc: Any, morsel: Any) -> Any:
    d = words(desc, FIRST + COLUMN_WORDS * words(desc, 1)[COLUMNS])
    width = HEADER + 2 * d[COLUMNS]
    u = words(morsel, width)
    o = words(u[OUT], width)
    n = u[ROWS]
    o[SERIAL], o[EPOCH] = u[SERIAL], u[EPOCH]
    if o[ROWS] == 0:
        o[SEQUENCE] = d[ROWS_LEFT]
    while u[CURSOR] < n:
        first = u[CURSOR]
        m = min(n - first, o[CAPACITY] - o[ROWS], d[MOST])
        if m == 0:
            return OUTPUT_FULL
        if words(d[CONTROL], 1)[0] < m:
            u[DETAIL], u[DETAIL_ROW] = NEED_ROOM, m
            return NEED
        _write_keys(d, u, first, m)
        found = _pick(d, m, o[ROWS])
        _give(d, u, o, first, found)
        if u[LATE_ROWS] > 0:
            _pass_late_rows(d, u, o, first, found)
        if d[IN_ORDER] != 0:
            _follow_rows(d, m)
        o[ROWS] += found
        d[ROWS_LEFT] += found
        d[DUPLICATES] += m - found
        u[CURSOR] = first + m
    if u[PHASE] == 0:
        d[ROWS_IN] += n
        u[PHASE] = 1
    _note_progress(d, u)
    if d[WATERMARK] > d[SWEPT]:
        keys = d[ROOM] - words(d[CONTROL], 1)[0]
        if keys >= d[SWEEP_AT] or (d[WATERMARK] == INFINITY and keys > 0):
            u[DETAIL] = NEED_SWEEP
            return NEED
    _pass_punctuation(u, o)
    return DONE
