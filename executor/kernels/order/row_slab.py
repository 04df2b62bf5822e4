"""A slab of waiting rows: an array of slots per column; the slots are linked to lists.

A descriptor begins with the words of ``sort_keys``; the words below follow.
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
FREE = BEHIND + 1  # first free slot; NEXT holds the following ones
HELD = BEHIND + 2  # rows in the slab
# Addresses.
NEXT = BEHIND + 3  # int32 per slot: the next slot of the list
CHOSEN = BEHIND + 4  # int32 per row of a morsel: the numbers of the kept rows
PLACES = BEHIND + 5  # int32 per row of a morsel: slots of the kept rows, later of leaving rows
OWN = BEHIND + 6  # the first word that belongs to the operator


@njit(inline="always")
def compare_slots(d: Any, many: int, a: int, b: int) -> int:
    """Compares the rows in two slots by the first ``many`` keys: -1, 0 or 1."""
    return compare_rows(d, d, d[AT], many, a, b)


@njit("boolean(int64[::1], int64[::1])", cache=True)
def unranked(d: Any, u: Any) -> bool:
    """Whether a text of a sort key has no rank yet."""
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
    """Takes a slot for each CHOSEN row of a morsel, writes the slots to PLACES and copies the rows
    to them column by column."""
    links = as_i32(d[NEXT], d[SLOTS])
    chosen, places = as_i32(d[CHOSEN], kept), as_i32(d[PLACES], kept)
    slot = d[FREE]
    for i in range(kept):
        places[i] = slot
        slot = int(links[slot])
    d[FREE] = slot
    d[HELD] += kept
    for c in range(d[COLUMNS]):
        at = column_at(d, c)
        move_values(size_of(d, c), u[HEADER + 2 * c], d[at + DATA], chosen, places, kept)
        if d[at + MASK] != 0:
            move_values(1, u[HEADER + 2 * c + 1], d[at + MASK], chosen, places, kept)


@njit("void(int64[::1], int64[::1], int64)", cache=True)
def give_rows(d: Any, o: Any, n: int) -> None:
    """Copies the ``n`` rows at PLACES to the output and frees their slots."""
    chosen, places = as_i32(d[CHOSEN], n), as_i32(d[PLACES], n)
    for i in range(n):
        chosen[i] = i
    for c in range(d[COLUMNS]):
        at = column_at(d, c)
        move_values(size_of(d, c), d[at + DATA], o[HEADER + 2 * c], places, chosen, n)
        if d[at + MASK] != 0:
            move_values(1, d[at + MASK], o[HEADER + 2 * c + 1], places, chosen, n)
    links = as_i32(d[NEXT], d[SLOTS])
    free = d[FREE]
    for i in range(n):
        links[places[i]] = free
        free = int(places[i])
    d[FREE] = free
    d[HELD] -= n


@njit(inline="always")
def give_back(d: Any, links: Any, slot: int) -> None:
    """Frees the slot of a row that is left out."""
    links[slot] = d[FREE]
    d[FREE] = slot
    d[HELD] -= 1


@njit("void(int32[::1], int64, uint8[::1])", cache=True)
def mark_free(links: Any, free: int, used: Any) -> None:
    """Clears ``used`` at the free slots; their list begins with ``free`` and ends with -1."""
    while free >= 0:
        used[free] = 0
        free = int(links[free])
