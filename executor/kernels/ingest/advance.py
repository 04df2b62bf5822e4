"""The guard of event time (MAX ADVANCE): how far a row may take it at once.

A clock is CLOCK words: the highest time that is believed, how many rows wait to be confirmed, and
their times in ascending order. A row that is more than MAX ADVANCE ahead waits; with three further
ones the lowest of the four is believed. An ordinary row at or above the highest time shows that
time goes on where it was, and nothing waits any more (the caller says so).
"""

from __future__ import annotations

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.memory import words
from cql.executor.kernels.morsel_layout import INFINITY, NEVER

HIGHEST = 0
WAITING = 1
WAITING_AT = 2  # four places
CLOCK = 6

#: An advance takes effect with so many further rows beyond it.
CONFIRMING = 3

# What ``begin`` says of a row.
GOES_ON = 0  # it is a row like any other
WAITS = 1  # the first row of all: nothing is known yet
FIRST_WAS_FAR = 2  # it was believed, and the first one waits


@njit(inline="always")
def within(base: int, most: int) -> int:
    """The last time that needs no confirmation."""
    return INFINITY if base > INFINITY - most else base + most


@njit("int64(int64, int64, int64)", nogil=True, cache=True)
def _wait(clock: int, n: int, t: int) -> int:
    """Puts a time among the ``n`` that wait."""
    c = words(clock, CLOCK)
    at = WAITING_AT + n
    while at > WAITING_AT and c[at - 1] > t:
        c[at] = c[at - 1]
        at -= 1
    c[at] = t
    return n + 1


@njit("int64(int64, int64, int64, int64)", nogil=True, cache=True)
def begin(clock: int, base: int, most: int, t: int) -> int:
    """A row while no row is believed. Nothing tells whether the first one is right: it waits for
    the second, and goes on waiting if that one lies more than ``most`` below it. ``base`` is what
    is known otherwise, NEVER for nothing."""
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
    """A row above the highest time: returns how many rows that waited, and itself, are believed
    now. ``base`` is the time that is known."""
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
