"""The native function of Dupelim: duplicate elimination over a stream (out-of-order paper §5.4).

The first of equal rows passes at once; its key stays in an index, and the operator drops later
copies. Punctuation passes unchanged. Once the watermark is above the time of a key, no copy of the
key follows, and a sweep may remove it (``chosen_rows``). For an input in order, the time of each
row is a watermark too.

NULL equals NULL, NaN equals NaN, and -0.0 equals 0.0; a row with -0.0 leaves with 0.0.
"""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import cfunc, njit
from cql.executor.kernels.flow.chosen_rows import (
    BY,
    CHOSEN,
    COLUMNS,
    FORGETS,
    FRESH,
    KIND,
    LINES,
    MOST,
    OWN,
    ROWS_IN,
    ROWS_LEFT,
    TARGETS,
    WATERMARK,
    WIDTH,
    column_at,
    copy_chosen,
    find_keys,
    needs_sweep,
    note_watermark,
    pass_punctuation,
    whole_descriptor,
)
from cql.executor.kernels.lib.memory import as_f32, as_i32, as_u8, f64_of_bits, words
from cql.executor.kernels.morsel_layout import (
    CAPACITY,
    CURSOR,
    DONE,
    EPOCH,
    HEADER,
    LATE_ROW_ADDRESS,
    LATE_ROW_WORDS,
    LATE_ROWS,
    NEED,
    OUT,
    OUTPUT_FULL,
    PHASE,
    ROWS,
    SEQUENCE,
    SERIAL,
)
from cql.executor.kernels.order.sort_keys import DOUBLE, FLOAT

# Descriptor: the operator's own words. All columns are the key, in their order.
IN_ORDER = OWN  # whether rows come in the order of the time
DUPLICATES = OWN + 1  # a counter


@njit("int64(int64[::1], int64, int64, int64)", cache=True)
def _pick(d: Any, first: int, m: int, j: int) -> int:
    """Chooses those of ``m`` rows whose keys are new, for the rows of the output from ``j`` on.
    Returns their number."""
    fresh = as_u8(d[FRESH], m)
    chosen, targets = as_i32(d[CHOSEN], m), as_i32(d[TARGETS], m)
    n = 0
    for i in range(m):
        if fresh[i] != 0:
            chosen[n] = first + i
            targets[n] = j + n
            n += 1
    return n


@njit("void(int64[::1], int64[::1], int64, int64)", cache=True)
def _equal_reals(d: Any, o: Any, first: int, n: int) -> None:
    """Writes the floats of the ``n`` CHOSEN rows to the output as their keys have them: 0.0 for
    -0.0."""
    width = d[WIDTH]
    chosen, targets = as_i32(d[CHOSEN], n), as_i32(d[TARGETS], n)
    flat = words(d[LINES], d[MOST] * width)
    for c in range(d[COLUMNS]):
        kind, target = d[column_at(c) + KIND], o[HEADER + 2 * c]
        if kind == DOUBLE:
            reals = words(target, o[CAPACITY])
            for k in range(n):
                reals[targets[k]] = flat[(chosen[k] - first) * width + c]
        elif kind == FLOAT:
            singles = as_f32(target, o[CAPACITY])
            for k in range(n):
                singles[targets[k]] = f64_of_bits(flat[(chosen[k] - first) * width + c])


@njit("void(int64[::1], int64[::1], int64[::1], int64)", cache=True)
def _pass_late_rows(d: Any, u: Any, o: Any, n: int) -> None:
    """Copies the late-row records of the CHOSEN rows to the output."""
    chosen, targets = as_i32(d[CHOSEN], n), as_i32(d[TARGETS], n)
    late = words(u[LATE_ROW_ADDRESS], LATE_ROW_WORDS * u[LATE_ROWS])
    room = o[CAPACITY] * d[COLUMNS]
    own, made = words(o[LATE_ROW_ADDRESS], LATE_ROW_WORDS * room), o[LATE_ROWS]
    e = 0
    for k in range(n):
        row = chosen[k]
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


@cfunc("int64(int64, int64)", nopython=True, cache=True)
def dupelim(desc: Any, morsel: Any) -> Any:
    d = whole_descriptor(desc)
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
        if not find_keys(d, u, first, m):
            return NEED
        found = _pick(d, first, m, o[ROWS])
        copy_chosen(d, u, o, d[COLUMNS], found)
        _equal_reals(d, o, first, found)
        if u[LATE_ROWS] > 0:
            _pass_late_rows(d, u, o, found)
        if d[IN_ORDER] != 0:
            _follow_rows(d, m)
        o[ROWS] += found
        d[ROWS_LEFT] += found
        d[DUPLICATES] += m - found
        u[CURSOR] = first + m
    if u[PHASE] == 0:
        d[ROWS_IN] += n
        u[PHASE] = 1
    note_watermark(d, u)
    d[FORGETS] = d[WATERMARK]
    if needs_sweep(d, u):
        return NEED
    pass_punctuation(u, o)
    return DONE
