"""The native function of the union of update streams (UpStream report, section 3.2): the rows of
all inputs, as they come, without each row that is not newer than the newest one of its key.

An index has the keys, and a record for each the time of its newest row and a hash of its other
columns. Of rows with equal key and time the first one leaves; the hash says whether others have
other values. With a source of truth, its row leaves too if it has other values.

Once the watermark is above the time of a key's newest row, no row of the inputs is older, and the
key is forgotten: not at once, but at the first watermark behind each EVERY rows (FORGETS), so that
a late row also leaves if its key has no newer one. A row below FORGETS of a forgotten key may be
older than the newest one, so it does not leave. The numbers of the rows decide, not those of the
keys: each partition forgets at the same watermarks. NULL, as a time, is before all times.
"""

from __future__ import annotations

from typing import Any

from numba import int64

from cql.executor.jit.decorators import cfunc, njit
from cql.executor.kernels.flow.chosen_rows import (
    BY,
    CHOSEN,
    CODED,
    COLUMNS,
    FORGETS,
    FRESH,
    IDS,
    KIND,
    MOST,
    NULLABLE,
    OWN,
    PLACE,
    ROOM,
    ROWS_IN,
    ROWS_LEFT,
    SIZE,
    TARGETS,
    WATERMARK,
    column_at,
    copy_chosen,
    find_keys,
    needs_sweep,
    note_watermark,
    pass_punctuation,
    row_of,
    selected_rows,
    value_word,
    whole_descriptor,
)
from cql.executor.kernels.lib.hashing import hash_next, hash_start
from cql.executor.kernels.lib.memory import as_i32, as_u8, integer_at, lines, words
from cql.executor.kernels.morsel_layout import (
    CAPACITY,
    CURSOR,
    DONE,
    EPOCH,
    HEADER,
    INFINITY,
    NEED,
    NEVER,
    OUT,
    OUTPUT_FULL,
    PHASE,
    PUNCTUATIONS,
    ROWS,
    SEQUENCE,
    SERIAL,
)
from cql.executor.kernels.morsel_layout import CHOSEN as SELECTED

# Descriptor: the operator's own words.
GIVEN = OWN  # columns of the input that leave; a last one, if any, says which rows are the truth
NUMBERED = OWN + 1  # whether the output has two order columns behind them
NEWEST = OWN + 2  # address of RECORD words per key
HASHES = OWN + 3  # address of a buffer for MOST hashes
TEXT_HASHES = OWN + 4  # address of the address of the hashes of texts, by their code
# Counters.
SUPERSEDED = OWN + 5
CONFLICTING = OWN + 6  # rows whose key and time, but not whose values, are those of the newest row
LATE = OWN + 7
EVERY = OWN + 8
FORGOT_AT = OWN + 9  # the position in the stream at which FORGETS rose last

#: Of each key: the time of its newest row (NEVER: it is forgotten), the hash of this row, and
#: whether it is a row of the source of truth.
TIME, HASH, TRUE = range(3)
RECORD = 3
#: The hash of NULL.
_NULL = 0x5851F42D4C957F2D


@njit("void(int64[::1], int64[::1], int64, int64)", cache=True)
def _hash_values(d: Any, u: Any, first: int, m: int) -> None:
    """Writes the hashes of the columns of ``m`` rows, without key and time, to HASHES. A text
    contributes the hash of its content."""
    hashes, selected = words(d[HASHES], m), selected_rows(u, first + m)
    for i in range(m):
        hashes[i] = hash_start(0)
    for c in range(d[GIVEN]):
        at = column_at(c)
        if d[at + PLACE] >= 0 or c == d[BY]:
            continue
        data, mask = u[HEADER + 2 * c], as_u8(u[HEADER + 2 * c + 1], 1)
        size, kind, null, coded = d[at + SIZE], d[at + KIND], d[at + NULLABLE], d[at + CODED]
        texts = words(words(d[TEXT_HASHES], 1)[0], 1)
        for i in range(m):
            r = row_of(selected, first + i)
            if null != 0 and mask[r] == 0:
                word = _NULL
            else:
                word = value_word(data, size, kind, r)
                if coded != 0:
                    word = texts[word]
            hashes[i] = hash_next(hashes[i], word)


@njit("int64(int64[::1], int64[::1], int64, int64, int64)", cache=True)
def _pick(d: Any, u: Any, first: int, m: int, j: int) -> int:
    """Chooses the newest rows of their keys among ``m`` rows, for the rows of the output from ``j``
    on. Returns their number."""
    ids, fresh, hashes = words(d[IDS], m), as_u8(d[FRESH], m), words(d[HASHES], m)
    newest, selected = lines(d[NEWEST], d[ROOM], RECORD), selected_rows(u, first + m)
    chosen, targets = as_i32(d[CHOSEN], m), as_i32(d[TARGETS], m)
    by, truth, forgets = d[BY], d[GIVEN], d[FORGETS]
    data, mask, size = u[HEADER + 2 * by], as_u8(u[HEADER + 2 * by + 1], 1), d[column_at(by) + SIZE]
    null, judges = d[column_at(by) + NULLABLE], truth < d[COLUMNS]
    true = as_u8(u[HEADER + 2 * truth] if judges else 0, 1)
    n, late, conflicting = 0, 0, 0
    for i in range(m):
        r, key = row_of(selected, first + i), ids[i]
        time = NEVER if null != 0 and mask[r] == 0 else integer_at(data, size, r)
        wins = int64(judges and true[r] != 0)
        if fresh[i] != 0:
            newest[key, TIME] = NEVER
        if fresh[i] != 0 or newest[key, TIME] < forgets:
            if time < forgets:
                late += 1
                continue
        elif time < newest[key, TIME]:
            continue
        elif time == newest[key, TIME]:
            differs = hashes[i] != newest[key, HASH]
            conflicting += differs
            if wins == 0 or newest[key, TRUE] != 0:
                continue
            newest[key, TRUE] = 1
            if not differs:
                continue
        newest[key, TIME], newest[key, HASH], newest[key, TRUE] = time, hashes[i], wins
        chosen[n], targets[n] = r, j + n
        n += 1
    d[LATE] += late
    d[CONFLICTING] += conflicting
    d[SUPERSEDED] += m - n - late
    return n


@njit("void(int64[::1], int64[::1], int64)", cache=True)
def _number(d: Any, o: Any, n: int) -> None:
    """Writes the order columns of the ``n`` CHOSEN rows: their places in the input."""
    chosen, targets = as_i32(d[CHOSEN], n), as_i32(d[TARGETS], n)
    for k in range(2):
        order = words(o[HEADER + 2 * (d[GIVEN] + k)], o[CAPACITY])
        for i in range(n):
            order[targets[i]] = chosen[i]


@njit("void(int64[::1], int64)", cache=True)
def _forget(d: Any, position: int) -> None:
    """Raises FORGETS at a watermark, if enough rows came since the last time, or none follows."""
    if d[WATERMARK] == INFINITY or not 0 <= position - d[FORGOT_AT] < d[EVERY]:
        d[FORGETS], d[FORGOT_AT] = d[WATERMARK], position


@cfunc("int64(int64, int64)", nopython=True, cache=True)
def newest(desc: Any, morsel: Any) -> Any:
    d = whole_descriptor(desc)
    u = words(morsel, HEADER + 2 * d[COLUMNS])
    o = words(u[OUT], HEADER + 2 * (d[GIVEN] + 2 * d[NUMBERED]))
    n = u[ROWS]
    o[SERIAL], o[EPOCH] = u[SERIAL], u[EPOCH]
    if o[ROWS] == 0:
        o[SEQUENCE] = d[ROWS_LEFT]
    while u[CURSOR] < n:
        first = u[CURSOR]
        m = min(n - first, o[CAPACITY] - o[ROWS], d[MOST])
        if m == 0:
            return OUTPUT_FULL
        if not find_keys(d, u, first, m):
            return NEED
        _hash_values(d, u, first, m)
        found = _pick(d, u, first, m, o[ROWS])
        copy_chosen(d, u, o, d[GIVEN], found)
        if d[NUMBERED] != 0:
            _number(d, o, found)
        o[ROWS] += found
        d[ROWS_LEFT] += found
        u[CURSOR] = first + m
    if u[PHASE] == 0:
        d[ROWS_IN] += n
        u[PHASE] = 1
    note_watermark(d, u)
    if u[PUNCTUATIONS] > 0:
        # The split of partitions numbers the rows of all; those of a union have no numbers.
        _forget(d, u[SEQUENCE] if u[SELECTED] != 0 else d[ROWS_IN] - n)
    if needs_sweep(d, u):
        return NEED
    pass_punctuation(u, o)
    return DONE
