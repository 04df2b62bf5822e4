"""Tables that functions of segments read and that depend on few numbers: factors of a transform,
coefficients of a filter. The store keeps them to its end, up to MOST_BYTES.

A table is a block of the heap: a head of HEAD words, and doubles. It never changes once it is kept.
"""

from __future__ import annotations

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.atomics import compare_and_swap, fetch_add, load_acquire
from cql.executor.kernels.lib.memory import words
from cql.executor.kernels.signals.heap import allocate, deallocate
from cql.executor.kernels.signals.layout import PREPARED, PREPARED_BYTES, STORE

# The head of a table.
NEXT = 0  # the address of the table that was kept before it; 0: none
WHAT = 1  # which function it is for, and the two numbers on which it depends
FIRST = 2
SECOND = 3
KEPT = 4  # 1: the store keeps it
HEAD = 5

MOST_BYTES = 1 << 24


@njit("int64(int64, int64, int64, int64)", nogil=True, cache=True)
def kept(s: int, what: int, first: int, second: int) -> int:
    """The address of a table that the store keeps; 0: none."""
    at = load_acquire(s + 8 * PREPARED)
    while at != 0:
        head = words(at, HEAD)
        if head[WHAT] == what and head[FIRST] == first and head[SECOND] == second:
            return at
        at = head[NEXT]
    return 0


@njit("int64(int64, int64, int64, int64)", nogil=True, cache=True)
def new_table(what: int, first: int, second: int, size: int) -> int:
    """The address of a table of ``size`` doubles, which the caller fills and gives to ``keep``; 0:
    no room."""
    at = allocate(8 * (HEAD + size))
    if at != 0:
        head = words(at, HEAD)
        head[NEXT], head[WHAT], head[FIRST], head[SECOND], head[KEPT] = 0, what, first, second, 0
    return at


@njit("void(int64, int64, int64)", nogil=True, cache=True)
def keep(s: int, table: int, size: int) -> None:
    """Keeps a filled table of ``size`` doubles, if there is room. Two threads may keep equal
    tables."""
    nbytes = 8 * (HEAD + size)
    if fetch_add(s + 8 * PREPARED_BYTES, nbytes) + nbytes > MOST_BYTES:
        fetch_add(s + 8 * PREPARED_BYTES, -nbytes)
        return
    head = words(table, HEAD)
    head[KEPT] = 1
    before = load_acquire(s + 8 * PREPARED)
    while True:
        head[NEXT] = before
        found = compare_and_swap(s + 8 * PREPARED, before, table)
        if found == before:
            return
        before = found


@njit("void(int64)", nogil=True, cache=True)
def leave(table: int) -> None:
    """The caller no longer reads a table."""
    if words(table, HEAD)[KEPT] == 0:
        deallocate(table)


@njit("void(int64)", nogil=True, cache=True)
def free_tables(s: int) -> None:
    """Frees all tables, at the end of the store."""
    q = words(s, STORE)
    at = q[PREPARED]
    q[PREPARED] = q[PREPARED_BYTES] = 0
    while at != 0:
        following = words(at, HEAD)[NEXT]
        deallocate(at)
        at = following
