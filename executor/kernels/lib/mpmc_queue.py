"""A bounded queue for any number of producers and consumers, without a lock.

Each cell has a number that says whose turn it is: that of the producer which will fill it, and one
more when it is full (Vyukov's bounded queue). A ring is RING words: its head, its tail, the address
of its cells and their number, a power of two; a cell is two words, number and value. Values are
never 0.
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

#: Words between two that different threads write: two cache lines, for a core fetches pairs.
CACHE_LINE = 16
HEAD = 0
TAIL = CACHE_LINE
CELLS = 2 * CACHE_LINE
MASK = CELLS + 1
#: Of a pool (``handing.set_free``): the chain of morsels that have no cell, and who changes it.
CHAIN = CELLS + 2
CHANGING = CELLS + 3
RING = 3 * CACHE_LINE
CELL = 2


@njit("void(int64, int64, int64)", cache=True)
def open_ring(ring: int, cells: int, size: int) -> None:
    """Makes a ring over the memory of ``size`` cells, a power of two."""
    r = words(ring, RING)
    r[HEAD] = r[TAIL] = r[CHAIN] = r[CHANGING] = 0
    r[CELLS], r[MASK] = cells, size - 1
    all_cells = words(cells, CELL * size)
    for k in range(size):
        all_cells[CELL * k] = k


@njit("int64(int64, int64)", nogil=True, cache=True)
def offer(ring: int, value: int) -> int:
    """Adds a value; 0 if the ring is full."""
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
    """Takes the oldest value; 0 if there is none."""
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
    """Takes a value of a ring that only this thread takes from, and that ``held`` one: who gives it
    may not have written it yet."""
    while True:
        value = poll(ring)
        if value != 0:
            return value
        pause()


@njit("int64(int64)", nogil=True, cache=True)
def held(ring: int) -> int:
    """About how many values are in it."""
    return max(load_relaxed(ring + 8 * TAIL) - load_relaxed(ring + 8 * HEAD), 0)
