"""Rows that wait in a slab: a column of slots for each of theirs, slots linked to lists.

A descriptor begins with the words of ``sort_keys``, then those below.
"""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.memory import as_i32, as_u8
from cql.executor.kernels.morsel_layout import HEADER, ROWS
from cql.executor.kernels.order.sort_keys import (
    AT,
    BEHIND,
    COLUMNS,
    DATA,
    KEY_COLUMN,
    KEYS,
    KIND,
    MASK,
    RANKS,
    TEXT,
    TEXTS,
    column_at,
    compare_rows,
    key_at,
    move_values,
    size_of,
)

SLOTS = BEHIND  # capacity of the slab
FREE = BEHIND + 1  # first free slot; the next one is in NEXT
HELD = BEHIND + 2
# Addresses.
NEXT = BEHIND + 3  # int32 per slot
PICKED = BEHIND + 4  # int32 per row of a morsel: rows that are kept
PLACES = BEHIND + 5  # int32 per row of a morsel: their slots; later those of the rows that leave
OWN = BEHIND + 6  # the first word of an operator's own


@njit(inline="always")
def compare_slots(d: Any, many: int, a: int, b: int) -> int:
    """-1, 0 or 1: the rows in two slots by the first ``many`` keys."""
    return compare_rows(d, d, d[AT], many, a, b)


@njit("boolean(int64[::1], int64[::1])", cache=True)
def unranked(d: Any, u: Any) -> bool:
    """Whether a text of a sort key came after the order of texts was given."""
    if d[TEXTS] == 0:
        return False
    if d[RANKS] == 0:
        return True
    for k in range(d[KEYS]):
        key = key_at(d, k)
        if d[key + KIND] == TEXT:
            codes = as_i32(u[HEADER + 2 * d[key + KEY_COLUMN]], u[ROWS])
            mask = as_u8(u[HEADER + 2 * d[key + KEY_COLUMN] + 1], u[ROWS])
            for i in range(u[ROWS]):
                if mask[i] != 0 and codes[i] >= d[RANKS]:
                    return True
    return False


@njit("void(int64[::1], int64[::1], int64)", cache=True)
def store_rows(d: Any, u: Any, kept: int) -> None:
    """Gives the rows of a morsel that are PICKED slots, their PLACES, and copies them there column
    by column."""
    links = as_i32(d[NEXT], d[SLOTS])
    picked, places = as_i32(d[PICKED], kept), as_i32(d[PLACES], kept)
    slot = d[FREE]
    for i in range(kept):
        places[i] = slot
        slot = int(links[slot])
    d[FREE] = slot
    d[HELD] += kept
    for c in range(d[COLUMNS]):
        at = column_at(d, c)
        move_values(size_of(d, c), u[HEADER + 2 * c], d[at + DATA], picked, places, kept)
        if d[at + MASK] != 0:
            move_values(1, u[HEADER + 2 * c + 1], d[at + MASK], picked, places, kept)


@njit("void(int64[::1], int64[::1], int64)", cache=True)
def give_rows(d: Any, o: Any, n: int) -> None:
    """Copies the rows at PLACES out, and frees their slots."""
    picked, places = as_i32(d[PICKED], n), as_i32(d[PLACES], n)
    for i in range(n):
        picked[i] = i
    for c in range(d[COLUMNS]):
        at = column_at(d, c)
        move_values(size_of(d, c), d[at + DATA], o[HEADER + 2 * c], places, picked, n)
        if d[at + MASK] != 0:
            move_values(1, d[at + MASK], o[HEADER + 2 * c + 1], places, picked, n)
    links = as_i32(d[NEXT], d[SLOTS])
    free = d[FREE]
    for i in range(n):
        links[places[i]] = free
        free = int(places[i])
    d[FREE] = free
    d[HELD] -= n


@njit(inline="always")
def give_back(d: Any, links: Any, slot: int) -> None:
    """A slot whose row is left out."""
    links[slot] = d[FREE]
    d[FREE] = slot
    d[HELD] -= 1


@njit("void(int32[::1], int64, uint8[::1])", cache=True)
def mark_free(links: Any, free: int, used: Any) -> None:
    """Clears ``used`` at the free slots, which begin with ``free`` and end with -1."""
    while free >= 0:
        used[free] = 0
        free = int(links[free])
