"""MAX ADVANCE: the limit on the advance of event time by a single row.

A clock is CLOCK words: the highest accepted time, the number of rows that wait for confirmation,
and their times in ascending order. A row more than MAX ADVANCE ahead of the highest time waits.
Three further waiting rows confirm the lowest of the four, and the clock accepts its time. A row at
or above the highest time and within MAX ADVANCE discards the waiting rows; for a row at the highest
time, the caller sets WAITING to 0.
"""

from __future__ import annotations

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.memory import words
from cql.executor.kernels.morsel_layout import INFINITY, NEVER

HIGHEST = 0
WAITING = 1
WAITING_AT = 2  # four places
CLOCK = 6

#: Number of further rows that confirm an advance.
CONFIRMING = 3

# Results of ``begin``.
GOES_ON = 0  # the caller handles the row like any other
WAITS = 1  # the row is the first one and waits
FIRST_WAS_FAR = 2  # the clock accepted the row; the first row goes on waiting


@njit(inline="always")
def within(base: int, most: int) -> int:
    """The highest time that needs no confirmation: ``base`` + ``most``, at most INFINITY."""
    return INFINITY if base > INFINITY - most else base + most


@njit("int64(int64, int64, int64)", nogil=True, cache=True)
def _wait(clock: int, n: int, t: int) -> int:
    """Inserts a time among the ``n`` waiting times; returns ``n`` + 1."""
    c = words(clock, CLOCK)
    at = WAITING_AT + n
    while at > WAITING_AT and c[at - 1] > t:
        c[at] = c[at - 1]
        at -= 1
    c[at] = t
    return n + 1


@njit("int64(int64, int64, int64, int64)", nogil=True, cache=True)
def begin(clock: int, base: int, most: int, t: int) -> int:
    """Takes a row at time ``t`` while no row is accepted. The first row waits for the second one,
    and goes on waiting if the second one lies more than ``most`` below it. ``base`` is the time
    known from another source, or NEVER."""
    c = words(clock, CLOCK)
    if c[WAITING] == 0 and base == NEVER:
        c[WAITING] = _wait(clock, 0, t)
        return WAITS
    if c[WAITING] != 1:
        return GOES_ON
    first = c[WAITING_AT]
    if base == NEVER and t < first and within(t, most) < first:
        c[HIGHEST] = t
        return FIRST_WAS_FAR
    if base == NEVER or first <= within(base, most):
        c[HIGHEST] = first
        c[WAITING] = 0
    return GOES_ON


@njit("int64(int64, int64, int64, int64)", nogil=True, cache=True)
def advance(clock: int, base: int, most: int, t: int) -> int:
    """Takes a row at time ``t`` above the highest time. Returns the number of rows that the clock
    accepts now: this row and waiting ones. ``base`` is the known time, or NEVER."""
    c = words(clock, CLOCK)
    if base == NEVER or t <= within(base, most):
        c[HIGHEST] = t
        c[WAITING] = 0
        return 1
    n = c[WAITING]
    count = _wait(clock, n, t)
    if n < CONFIRMING:
        c[WAITING] = count
        return 0
    sure = 1
    while sure <= n and c[WAITING_AT + sure] <= within(c[WAITING_AT + sure - 1], most):
        sure += 1
    c[HIGHEST] = c[WAITING_AT + sure - 1]
    c[WAITING] = count - sure
    for k in range(sure, count):
        c[WAITING_AT + k - sure] = c[WAITING_AT + k]
    return sure
