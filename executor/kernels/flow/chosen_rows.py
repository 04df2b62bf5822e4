"""What the native functions share that pass some rows of their input: those that an index of keys
(``kernels.lib.key_index``) chooses (``dupelim``, ``newest``).

Python gives the index room, and removes keys that the watermark has passed (a sweep).
"""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import njit
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
from cql.executor.kernels.morsel_layout import CHOSEN as SELECTED
from cql.executor.kernels.morsel_layout import (
    DETAIL,
    DETAIL_ROW,
    END_OF_INPUT,
    HEADER,
    IDLE,
    INFINITY,
    PUNCTUATION_ADDRESS,
    PUNCTUATION_WORDS,
    PUNCTUATIONS,
)
from cql.executor.kernels.order.sort_keys import DOUBLE, FLOAT, move_values

# Requests of the operators (DETAIL of NEED).
NEED_ROOM = 0  # room for DETAIL_ROW more keys
NEED_SWEEP = 1  # the removal of the keys below FORGETS

# Descriptor: the words below, OWN_WORDS words of the operator, then COLUMN_WORDS words per column.
COLUMNS = 0
KEY_COLUMNS = 1
BY = 2  # the column of the time
WATERMARK = 3
FORGETS = 4  # the watermark below which keys are of no use
SWEPT = 5  # FORGETS of the last sweep
SWEEP_AT = 6  # keys in the index at which a sweep is due
# Counters.
ROWS_IN = 7
ROWS_LEFT = 8
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
LINES = 17  # keys
IDS = 18
FRESH = 19
CHOSEN = 20  # the rows that leave, as numbers of rows of the input
TARGETS = 21  # their rows in the output
OWN = 22
OWN_WORDS = 10
FIRST = OWN + OWN_WORDS

COLUMN_WORDS = 5
#: Bytes of a value, its kind (``sort_keys``), whether it may be NULL, whether it is a code of the
#: dictionary, and the place of the column in the key (-1: none).
SIZE, KIND, NULLABLE, CODED, PLACE = range(COLUMN_WORDS)


@njit(inline="always")
def column_at(column: int) -> int:
    return FIRST + COLUMN_WORDS * column


@njit("int64[::1](int64)", cache=True)
def whole_descriptor(desc: int) -> Any:
    return words(desc, FIRST + COLUMN_WORDS * words(desc, 1)[COLUMNS])


@njit(inline="always")
def row_of(selected: Any, row: int) -> int:
    """The number of a row of the input; ``selected``: the rows of a partition, empty: all rows."""
    return int(selected[row]) if selected.size > 0 else row


@njit(inline="always")
def selected_rows(u: Any, end: int) -> Any:
    """The first ``end`` rows of a partition; empty if the morsel selects none."""
    return as_i32(u[SELECTED], end if u[SELECTED] != 0 else 0)


@njit(inline="always")
def value_word(data: int, size: int, kind: int, row: int) -> int:
    """A value as a word; equal values (-0.0 and 0.0, all NaNs) have equal words."""
    if kind == DOUBLE:
        return int(key_bits(f64_of_bits(words(data, 1)[row])))
    if kind == FLOAT:
        return int(key_bits(float(as_f32(data, 1)[row])))
    return int(integer_at(data, size, row))


@njit("void(int64[::1], int64[::1], int64, int64)", cache=True)
def _write_keys(d: Any, u: Any, first: int, m: int) -> None:
    """Writes the keys of ``m`` rows to LINES: a word per column, 0 for NULL, then the NULL
    flags."""
    keys, width = d[KEY_COLUMNS], d[WIDTH]
    flat, selected = words(d[LINES], m * width), selected_rows(u, first + m)
    for i in range(m):
        for w in range(keys, width):
            flat[i * width + w] = 0
    for c in range(d[COLUMNS]):
        at = column_at(c)
        place = d[at + PLACE]
        if place < 0:
            continue
        data, mask = u[HEADER + 2 * c], as_u8(u[HEADER + 2 * c + 1], 1)
        size, kind, null = d[at + SIZE], d[at + KIND], d[at + NULLABLE]
        flags, flag = keys + place // FLAGS, 1 << (place % FLAGS)
        for i in range(m):
            r = row_of(selected, first + i)
            if null != 0 and mask[r] == 0:
                flat[i * width + flags] |= flag
                flat[i * width + place] = 0
            else:
                flat[i * width + place] = value_word(data, size, kind, r)


@njit("boolean(int64[::1], int64[::1], int64, int64)", cache=True)
def find_keys(d: Any, u: Any, first: int, m: int) -> bool:
    """Enters the keys of ``m`` rows in the index and writes their ids to IDS, and to FRESH whether
    a key is new. False: the index needs room first."""
    if words(d[CONTROL], 1)[0] < m:
        u[DETAIL], u[DETAIL_ROW] = NEED_ROOM, m
        return False
    _write_keys(d, u, first, m)
    find_groups(
        lines(d[LINES], m, d[WIDTH]),
        words(d[TABLE], d[PLACES]),
        lines(d[KEYS], d[ROOM], d[WIDTH]),
        words(d[FREE_IDS], d[ROOM]),
        words(d[CONTROL], 1),
        words(d[IDS], m),
        as_u8(d[FRESH], m),
    )
    return True


@njit("void(int64[::1], int64[::1], int64[::1], int64, int64)", cache=True)
def copy_chosen(d: Any, u: Any, o: Any, columns: int, n: int) -> None:
    """Copies the first ``columns`` columns of the ``n`` CHOSEN rows to the output."""
    chosen, targets = as_i32(d[CHOSEN], n), as_i32(d[TARGETS], n)
    for c in range(columns):
        word = HEADER + 2 * c
        move_values(d[column_at(c) + SIZE], u[word], o[word], chosen, targets, n)
        if d[column_at(c) + NULLABLE] != 0:
            move_values(1, u[word + 1], o[word + 1], chosen, targets, n)


@njit("void(int64[::1], int64[::1])", cache=True)
def note_watermark(d: Any, u: Any) -> None:
    arrived = words(u[PUNCTUATION_ADDRESS], PUNCTUATION_WORDS * u[PUNCTUATIONS])
    for p in range(u[PUNCTUATIONS]):
        at = PUNCTUATION_WORDS * p
        if arrived[at] == END_OF_INPUT:
            d[WATERMARK] = INFINITY
        elif arrived[at] == d[BY] and arrived[at + 2] < 0:
            d[WATERMARK] = max(d[WATERMARK], arrived[at + 1])


@njit("boolean(int64[::1], int64[::1])", cache=True)
def needs_sweep(d: Any, u: Any) -> bool:
    """Whether a sweep is due; asks for it."""
    if d[FORGETS] <= d[SWEPT]:
        return False
    keys = d[ROOM] - words(d[CONTROL], 1)[0]
    if keys < d[SWEEP_AT] and (d[FORGETS] != INFINITY or keys == 0):
        return False
    u[DETAIL] = NEED_SWEEP
    return True


@njit("void(int64[::1], int64[::1])", cache=True)
def pass_punctuation(u: Any, o: Any) -> None:
    arrived = words(u[PUNCTUATION_ADDRESS], PUNCTUATION_WORDS * u[PUNCTUATIONS])
    leaving = words(o[PUNCTUATION_ADDRESS], PUNCTUATION_WORDS * u[PUNCTUATIONS])
    n = 0
    for p in range(u[PUNCTUATIONS]):
        at = PUNCTUATION_WORDS * p
        # Only punctuation on a single attribute for all groups passes; dropping the rest is sound.
        if arrived[at] >= IDLE and arrived[at + 2] < 0:
            n = send(leaving, n, arrived[at], arrived[at + 1])
    o[PUNCTUATIONS] = n
