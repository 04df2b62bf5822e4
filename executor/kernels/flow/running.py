"""Running functions: values of each row that depend on the rows before it, in the order in which
they come. The columns of the input pass by reference; the values stand behind them.

A row without a value (NULL) gives NULL, and leaves the state as it is. Over the samples of a signal
with times the state begins anew behind a gap; a row that is in no run gives NULL.
"""

from __future__ import annotations

import math
from typing import Any

from cql.executor.jit.decorators import cfunc, njit
from cql.executor.kernels.drive.passing import pass_rows
from cql.executor.kernels.lib.memory import as_f64, as_u8, lines, words
from cql.executor.kernels.morsel_layout import (
    DONE,
    GROUP,
    HEADER,
    LATE_ROW_ADDRESS,
    LATE_ROWS,
    NEED,
    OUT,
    PHASE,
    PUNCTUATION_ADDRESS,
    PUNCTUATION_WORDS,
    PUNCTUATIONS,
    ROWS,
)

# Descriptor: the words below, then CALL words for each call.
WIDTH = 0  # columns that pass
CALLS = 1
ROWS_SEEN = 2  # a counter
TIMED = 3  # 1: the rows are samples with times, and Python finds the runs of a morsel
RUNS = 4  # of the morsel
RUNS_AT = 5  # of each its first row, the row behind its last, and whether it goes on
FIRST = 6

# Of a call.
KIND = 0
VALUE = 1  # the column of the input with its values
OUTPUT = 2  # the column of the output
NULLABLE = 3
SIZE = 4  # numbers of the state
NUMBERS = 5  # the address of its constants
STATE = 6  # the address of its state
CALL = 7

# KIND. The constants, and the state:
FIR = 0  # b; the sums of what earlier samples give to the next ones
IIR = 1  # b, then as many of a; the same
STA_LTA = 2  # short, long; the words of a window for each of both, then the samples so far
RECURSIVE_STA_LTA = 3  # short, long; both means, the samples so far
CFAR = 4  # omega; the values of the noise, their mean, the sum of their squared deviations
TRIGGER = 5  # on, off; 1: on

# A window: the sum over the last n samples is that of a suffix of the block before, and of the
# current block so far. So no sum is ever subtracted from, and none drifts.
PLACE = 0  # of the next sample in its block
SUM = 1  # of the current block
SUFFIXES = 2  # the block: squares up to PLACE, from there on sums to the end of the block before

_TINY = 2.2250738585072014e-308  # the least normal double: no mean is divided by less


@njit("void(int64[::1], int64[::1], int64[::1], int64, int64)", nogil=True, cache=True)
def _filter(c: Any, u: Any, o: Any, first: int, last: int) -> None:
    """FIR and IIR in the transposed direct form II."""
    order, recursive = c[SIZE], c[KIND] == IIR
    b, a = as_f64(c[NUMBERS], order + 1), as_f64(c[NUMBERS] + 8 * (order + 1), order + 1)
    z, x = as_f64(c[STATE], order), as_f64(u[HEADER + 2 * c[VALUE]], last)
    valid, y = as_u8(u[HEADER + 2 * c[VALUE] + 1], last), as_f64(o[HEADER + 2 * c[OUTPUT]], last)
    for i in range(first, last):
        y[i] = 0.0
        if valid[i] == 0:
            continue
        v = x[i]
        if order == 0:
            y[i] = b[0] * v
            continue
        w = b[0] * v + z[0]
        y[i] = w
        if recursive:
            for k in range(order - 1):
                z[k] = b[k + 1] * v + z[k + 1] - a[k + 1] * w
            z[order - 1] = b[order] * v - a[order] * w
        else:
            for k in range(order - 1):
                z[k] = b[k + 1] * v + z[k + 1]
            z[order - 1] = b[order] * v


@njit("float64(float64[::1], int64, int64, float64)", nogil=True, cache=True)
def _slide(z: Any, at: int, n: int, q: float) -> float:
    """Adds ``q`` to the window of the last ``n`` samples at ``z[at]``; returns their sum."""
    i, suffixes = int(z[at + PLACE]), at + SUFFIXES
    z[at + SUM] += q
    total = z[at + SUM]
    if i + 1 < n:
        total += z[suffixes + i + 1]
    z[suffixes + i] = q
    i += 1
    if i == n:
        for k in range(n - 2, -1, -1):
            z[suffixes + k] += z[suffixes + k + 1]
        i = 0
        z[at + SUM] = 0.0
    z[at + PLACE] = i
    return total


@njit("void(int64[::1], int64[::1], int64[::1], int64, int64)", nogil=True, cache=True)
def _sta_lta(c: Any, u: Any, o: Any, first: int, last: int) -> None:
    numbers, z = as_f64(c[NUMBERS], 2), as_f64(c[STATE], c[SIZE])
    short, long = int(numbers[0]), int(numbers[1])
    behind, seen = SUFFIXES + short, c[SIZE] - 1
    x = as_f64(u[HEADER + 2 * c[VALUE]], last)
    valid, y = as_u8(u[HEADER + 2 * c[VALUE] + 1], last), as_f64(o[HEADER + 2 * c[OUTPUT]], last)
    for i in range(first, last):
        y[i] = 0.0
        if valid[i] == 0:
            continue
        q = x[i] * x[i]
        sta = _slide(z, 0, short, q) / numbers[0]
        lta = _slide(z, behind, long, q) / numbers[1]
        if z[seen] < numbers[1]:
            z[seen] += 1.0
        if z[seen] >= numbers[1]:
            y[i] = sta / (_TINY if lta < _TINY else lta)


@njit("void(int64[::1], int64[::1], int64[::1], int64, int64)", nogil=True, cache=True)
def _recursive_sta_lta(c: Any, u: Any, o: Any, first: int, last: int) -> None:
    numbers, z = as_f64(c[NUMBERS], 2), as_f64(c[STATE], 3)
    short, long = 1.0 / numbers[0], 1.0 / numbers[1]
    x = as_f64(u[HEADER + 2 * c[VALUE]], last)
    valid, y = as_u8(u[HEADER + 2 * c[VALUE] + 1], last), as_f64(o[HEADER + 2 * c[OUTPUT]], last)
    for i in range(first, last):
        y[i] = 0.0
        if valid[i] == 0:
            continue
        if z[2] > 0.0:  # the first sample counts in no mean
            q = x[i] * x[i]
            z[0] = short * q + (1.0 - short) * z[0]
            z[1] = long * q + (1.0 - long) * z[1]
            if z[2] >= numbers[1]:
                y[i] = z[0] / (_TINY if z[1] < _TINY else z[1])
        if z[2] < numbers[1]:
            z[2] += 1.0


@njit("void(int64[::1], int64[::1], int64[::1], int64, int64)", nogil=True, cache=True)
def _cfar(c: Any, u: Any, o: Any, first: int, last: int) -> None:
    omega, z = as_f64(c[NUMBERS], 1)[0], as_f64(c[STATE], 3)
    x = as_f64(u[HEADER + 2 * c[VALUE]], last)
    valid, y = as_u8(u[HEADER + 2 * c[VALUE] + 1], last), as_u8(o[HEADER + 2 * c[OUTPUT]], last)
    for i in range(first, last):
        y[i] = 0
        if valid[i] == 0 or math.isnan(x[i]):
            continue
        if z[0] >= 2.0 and x[i] > z[1] + omega * math.sqrt(z[2] / (z[0] - 1.0)):
            y[i] = 1
            continue
        z[0] += 1.0
        apart = x[i] - z[1]
        z[1] += apart / z[0]
        z[2] += apart * (x[i] - z[1])


@njit("void(int64[::1], int64[::1], int64[::1], int64, int64)", nogil=True, cache=True)
def _trigger(c: Any, u: Any, o: Any, first: int, last: int) -> None:
    numbers, z = as_f64(c[NUMBERS], 2), as_f64(c[STATE], 1)
    x = as_f64(u[HEADER + 2 * c[VALUE]], last)
    valid, y = as_u8(u[HEADER + 2 * c[VALUE] + 1], last), as_u8(o[HEADER + 2 * c[OUTPUT]], last)
    for i in range(first, last):
        y[i] = 0
        if valid[i] == 0:
            continue
        is_on = x[i] > (numbers[1] if z[0] != 0.0 else numbers[0])
        z[0] = 1.0 if is_on else 0.0
        y[i] = is_on


@njit("void(int64[::1], int64[::1], int64[::1], int64, int64)", nogil=True, cache=True)
def _run(c: Any, u: Any, o: Any, first: int, last: int) -> None:
    """The values of a call for the rows from ``first`` to ``last``."""
    if c[KIND] == FIR or c[KIND] == IIR:
        _filter(c, u, o, first, last)
    elif c[KIND] == STA_LTA:
        _sta_lta(c, u, o, first, last)
    elif c[KIND] == RECURSIVE_STA_LTA:
        _recursive_sta_lta(c, u, o, first, last)
    elif c[KIND] == CFAR:
        _cfar(c, u, o, first, last)
    else:
        _trigger(c, u, o, first, last)
    if c[NULLABLE] != 0:
        valid = as_u8(u[HEADER + 2 * c[VALUE] + 1], last)
        made = as_u8(o[HEADER + 2 * c[OUTPUT] + 1], last)
        for i in range(first, last):
            made[i] = valid[i]


@njit("void(int64[::1], int64[::1], int64[::1], int64[:, ::1])", nogil=True, cache=True)
def _run_each(c: Any, u: Any, o: Any, runs: Any) -> None:
    """The values of a call for the rows in ``runs``; the others are NULL."""
    n, column = u[ROWS], o[HEADER + 2 * c[OUTPUT]]
    made = as_u8(o[HEADER + 2 * c[OUTPUT] + 1], n)
    for i in range(n):
        made[i] = 0
    if c[KIND] < CFAR:
        reals = as_f64(column, n)
        for i in range(n):
            reals[i] = 0.0
    else:
        truths = as_u8(column, n)
        for i in range(n):
            truths[i] = 0
    z = as_f64(c[STATE], c[SIZE])
    for r in range(runs.shape[0]):
        if runs[r, 2] == 0:
            for k in range(c[SIZE]):
                z[k] = 0.0
        _run(c, u, o, runs[r, 0], runs[r, 1])


@njit("void(int64[::1], int64[::1], int64)", nogil=True, cache=True)
def _pass_punctuation(u: Any, o: Any, width: int) -> None:
    """Passes the punctuation on; not that of columns that the output lacks."""
    arrived = words(u[PUNCTUATION_ADDRESS], PUNCTUATION_WORDS * u[PUNCTUATIONS])
    leaving = words(o[PUNCTUATION_ADDRESS], PUNCTUATION_WORDS * u[PUNCTUATIONS])
    n, passes = 0, True
    for p in range(u[PUNCTUATIONS]):
        at = PUNCTUATION_WORDS * p
        if arrived[at] != GROUP:  # which belongs to the record before it
            passes = arrived[at] < width and arrived[at + 2] < width
        if passes:
            for w in range(PUNCTUATION_WORDS):
                leaving[PUNCTUATION_WORDS * n + w] = arrived[at + w]
            n += 1
    o[PUNCTUATIONS] = n


@cfunc("int64(int64, int64)", nopython=True, cache=True)
def running(desc: Any, morsel: Any) -> Any:
    head = words(desc, FIRST)
    width, calls = head[WIDTH], head[CALLS]
    read = width
    for k in range(calls):
        read = max(read, words(desc + 8 * (FIRST + CALL * k), CALL)[VALUE] + 1)
    u = words(morsel, HEADER + 2 * read)
    o = words(u[OUT], HEADER + 2 * (width + calls))
    if head[TIMED] != 0 and u[ROWS] > 0 and u[PHASE] == 0:
        return NEED
    pass_rows(u, o, HEADER + 2 * width)
    o[LATE_ROWS], o[LATE_ROW_ADDRESS] = u[LATE_ROWS], u[LATE_ROW_ADDRESS]
    _pass_punctuation(u, o, width)
    for k in range(calls):
        c = words(desc + 8 * (FIRST + CALL * k), CALL)
        if head[TIMED] == 0:
            _run(c, u, o, 0, u[ROWS])
        elif u[ROWS] > 0:
            _run_each(c, u, o, lines(head[RUNS_AT], head[RUNS], 3))
    head[ROWS_SEEN] += u[ROWS]
    return DONE
