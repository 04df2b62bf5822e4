"""A bounded lock-free queue for any number of producers and consumers (Vyukov's bounded queue).

Each cell has a sequence number: the position of the producer that may fill the cell, or that
position plus one once the cell is full. A ring is RING words: the head, the tail, the address of
the cells, and their number (a power of two) less one. A cell is two words: sequence number and
value. A value is never 0.
"""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.atomics import (
    compare_and_swap,
    load_acquire,
    load_relaxed,
    pause,
    store_release,
)
from cql.executor.kernels.lib.memory import words

#: Distance in words between two words that different threads write: two cache lines, because a
#: core fetches cache lines in pairs.
CACHE_LINE = 16
HEAD = 0
TAIL = CACHE_LINE
CELLS = 2 * CACHE_LINE
MASK = CELLS + 1
#: Used by pools (``handover.set_free``): the chain of the free morsels for which the ring has no
#: cell, and the lock of that chain.
CHAIN = CELLS + 2
CHANGING = CELLS + 3
RING = 3 * CACHE_LINE
CELL = 2


@njit("void(int64, int64, int64)", cache=True)
def open_ring(ring: int, cells: int, size: int) -> None:
    """Initialises a ring over the memory of ``size`` cells, a power of two."""
    r = words(ring, RING)
    r[HEAD] = r[TAIL] = r[CHAIN] = r[CHANGING] = 0
    r[CELLS], r[MASK] = cells, size - 1
    all_cells = words(cells, CELL * size)
    for k in range(size):
        all_cells[CELL * k] = k


@njit("int64(int64, int64)", nogil=True, cache=True)
def offer(ring: int, value: int) -> int:
    """Adds a value and returns 1; returns 0 if the ring is full."""
    r = words(ring, RING)
    cells, mask = r[CELLS], r[MASK]
    while True:
        at = load_relaxed(ring + 8 * TAIL)
        cell = cells + 8 * CELL * (at & mask)
        turn = load_acquire(cell)
        if turn == at:
            if compare_and_swap(ring + 8 * TAIL, at, at + 1) == at:
                words(cell, CELL)[1] = value
                store_release(cell, at + 1)
                return 1
        elif turn < at:
            return 0


@njit("int64(int64)", nogil=True, cache=True)
def poll(ring: int) -> int:
    """Takes the oldest value; returns 0 if the ring is empty."""
    r = words(ring, RING)
    cells, mask = r[CELLS], r[MASK]
    while True:
        at = load_relaxed(ring + 8 * HEAD)
        cell = cells + 8 * CELL * (at & mask)
        turn = load_acquire(cell)
        if turn == at + 1:
            if compare_and_swap(ring + 8 * HEAD, at, at + 1) == at:
                value: Any = words(cell, CELL)[1]
                store_release(cell, at + mask + 1)
                return value
        elif turn < at + 1:
            return 0


@njit("int64(int64)", nogil=True, cache=True)
def poll_held(ring: int) -> int:
    """Takes a value from a ring whose only consumer is this thread and for which ``held`` is above
    0. Spins while the producer has not yet written the value."""
    while True:
        value = poll(ring)
        if value != 0:
            return value
        pause()


@njit("int64(int64)", nogil=True, cache=True)
def held(ring: int) -> int:
    """The number of values in the ring, approximately while other threads use it."""
    return max(load_relaxed(ring + 8 * TAIL) - load_relaxed(ring + 8 * HEAD), 0)
