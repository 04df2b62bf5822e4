"""The two sides of a join of changing relations: the rows that wait, and the distinct rows.

Each side has a descriptor of its own (``kernels.relations.frontier``, and behind it the words of
``kernels.relations.groups``): a group is a distinct row, its id the row's. The values of the row
stay in the slot in which they came. On each side the rows of a key form a linked list. The index of
the keys belongs to both sides; a second descriptor per side tells how it finds the keys of its rows
there.
"""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import njit
from cql.executor.kernels.joins.pair_rows import LEFT, RIGHT
from cql.executor.kernels.lib.memory import as_i32, as_u8, lines, words
from cql.executor.kernels.morsel_layout import DETAIL, DETAIL_ROW, INFINITY
from cql.executor.kernels.order.row_slab import SLOTS
from cql.executor.kernels.order.sort_keys import (
    AT,
    COLUMNS,
    DATA,
    KEY_COLUMN,
    KEYS,
    MASK,
    column_at,
    key_at,
    whole,
)
from cql.executor.kernels.relations import groups
from cql.executor.kernels.relations.frontier import (
    HEAD,
    LINE,
    READY,
    ROOM,
    TAIL,
    TIMES,
    free_slot,
)

# Requests of the operator; a request concerns side DETAIL // OF_SIDE.
NEED_KEYS = 3  # DETAIL_ROW free ids of keys
OF_SIDE = 16

# Descriptor of a side: behind the words of the groups. The places of the line from HEAD to below
# READY have been looked up: the ids of their rows are in IDS.
LOOKED_FROM = groups.END  # the place of the first of them
CHANGING = LOOKED_FROM + 1  # rows that change at the instant
LISTED = LOOKED_FROM + 2  # rows in CONCERNED
GONE = LOOKED_FROM + 3  # rows in DEAD
IDLING = LOOKED_FROM + 4  # whether the input is idle
TOO_LATE = LOOKED_FROM + 5  # counter: rows that entered below the join's watermark
# Addresses.
STATES = LOOKED_FROM + 6  # FIELDS int64 per row
SLOT = LOOKED_FROM + 7  # int32 per row: the slot of its values
CONCERNED = LOOKED_FROM + 8  # int64 per row: scratch
DEAD = LOOKED_FROM + 9  # int64 per row: those that may have left
WEIGHTS = LOOKED_FROM + 10  # int64 per row of the piece
NEW = LOOKED_FROM + 11  # int32 per row of the piece: slots of rows with new ids
NEW_IDS = LOOKED_FROM + 12  # int64 per row of the piece: these ids
CAUSE = LOOKED_FROM + 13  # int64 per row: what put it into CONCERNED (``relation_pairs``); 0: none
END = LOOKED_FROM + 14

#: Words of each row of a side: its copies after and before the instant; the id of its key (-1:
#: NULL, which has no partners); its neighbours in the list of the key; bits; the number of its
#: different partners; and the number of copies that the side itself has emitted.
HELD, SHOWN, KEY, AFTER, BEFORE, BITS, PARTNERS, EMITTED = range(8)
FIELDS = 8
#: Bits of a row: its copies change at this instant; it is in CONCERNED; it was emitted with the
#: answer that it has partners; it is in DEAD.
CHANGED, IS_LISTED, MET, IS_DEAD = 1, 2, 4, 8

# Descriptor of the join: it begins with the addresses of the sides' descriptors, LEFT and RIGHT,
# then of those that find their keys.
KEYS_OF = 2
HEADS = 4  # address of OF_KEY words per key
WATERMARK = 5  # instants before it are over
NULL_KEYS = 6  # counter
BEHIND = 7
#: Words of each key: the first row of the list on each side, and the number of rows of both.
OF_KEY = 3
ROWS_OF_KEY = 2


@njit(inline="always")
def rows_of(side: Any) -> Any:
    """The words of a side's rows, shape (ids, FIELDS)."""
    return lines(side[STATES], side[groups.CAPACITY], FIELDS)


@njit(inline="always")
def keys_of(j: Any) -> Any:
    """The words of the keys, shape (ids, OF_KEY)."""
    capacity = words(j[KEYS_OF], groups.END)[groups.CAPACITY]
    return lines(j[HEADS], capacity, OF_KEY)


@njit(inline="always")
def is_over(j: Any, time: int) -> bool:
    return bool(time < j[WATERMARK] or j[WATERMARK] == INFINITY)


@njit(inline="always")
def add_dead(side: Any, rows: Any, row: int) -> None:
    """Notes that a row has no copies."""
    if rows[row, BITS] & IS_DEAD == 0:
        rows[row, BITS] |= IS_DEAD
        words(side[DEAD], side[groups.CAPACITY])[side[GONE]] = row
        side[GONE] += 1


@njit("void(int64[::1], int64)", nogil=True, cache=True)
def forget(j: Any, port: int) -> None:
    """Frees the rows of a side that have left, and their keys. No row that was looked up waits."""
    side, keys = whole(j[port]), whole(j[KEYS_OF + port])
    many = side[GONE]
    if many == 0:
        return
    dead, rows, heads = words(side[DEAD], many), rows_of(side), keys_of(j)
    slots = as_i32(side[SLOT], side[groups.CAPACITY])
    gone = lost = 0
    for k in range(many):
        row = dead[k]
        rows[row, BITS] &= ~IS_DEAD
        if rows[row, HELD] != 0 or rows[row, SHOWN] != 0 or rows[row, BITS] & CHANGED != 0:
            continue
        free_slot(side, slots[row])
        dead[gone] = row
        gone += 1
    groups.free_ids_of(side, dead[:gone])
    for k in range(gone):
        key = rows[dead[k], KEY]
        if key >= 0:
            heads[key, ROWS_OF_KEY] -= 1
            if heads[key, ROWS_OF_KEY] == 0:
                dead[lost] = key
                lost += 1
    groups.free_ids_of(keys, dead[:lost])
    side[GONE] = 0


@njit("boolean(int64[::1], int64[::1], int64)", nogil=True, cache=True)
def _has_key(side: Any, keys: Any, slot: int) -> bool:
    """Whether no key column of the row in a slot is NULL."""
    for k in range(keys[KEYS]):
        mask = side[column_at(side, keys[key_at(keys, k) + KEY_COLUMN]) + MASK]
        if mask != 0 and as_u8(mask, side[SLOTS])[slot] == 0:
            return False
    return True


@njit(
    "void(int64[::1], int64[::1], int64[::1], int32[::1], int64[::1])",
    nogil=True,
    cache=True,
)
def _find_keys(j: Any, side: Any, keys: Any, slots: Any, ids: Any) -> None:
    """Gives new rows the ids of their keys."""
    n, rows, heads = ids.size, rows_of(side), keys_of(j)
    groups.find_ids(keys, side, side[AT], slots, 0, n)
    found, fresh = words(keys[groups.IDS], n), as_u8(keys[groups.FRESH], n)
    for k in range(n):
        key = found[k]
        if fresh[k] != 0:
            heads[key, LEFT] = heads[key, RIGHT] = -1
            heads[key, ROWS_OF_KEY] = 0
        heads[key, ROWS_OF_KEY] += 1
        rows[ids[k], KEY] = key


@njit("boolean(int64[::1], int64[::1], int64)", nogil=True, cache=True)
def look_up(j: Any, u: Any, port: int) -> bool:
    """Finds the ids of the next rows of a side whose instants are over. Frees the slots of rows
    whose values the side has. Returns False if room is needed first."""
    forget(j, port)
    side, keys = whole(j[port]), whole(j[KEYS_OF + port])
    times, line = words(side[TIMES], side[ROOM]), as_i32(side[LINE], side[ROOM])
    first, end = side[READY], side[READY]
    last = min(side[TAIL], first + side[groups.PIECE])
    while end < last and is_over(j, times[end]):
        end += 1
    n = end - first
    if groups.free_ids(side) < n:
        u[DETAIL], u[DETAIL_ROW] = OF_SIDE * port + groups.NEED_GROUPS, n
        return False
    if groups.free_ids(keys) < n:
        u[DETAIL], u[DETAIL_ROW] = OF_SIDE * port + NEED_KEYS, n
        return False
    groups.find_ids(side, side, side[AT], line, first, end)
    side[LOOKED_FROM], side[READY] = first, end
    ids, fresh = words(side[groups.IDS], n), as_u8(side[groups.FRESH], n)
    rows, slots = rows_of(side), as_i32(side[SLOT], side[groups.CAPACITY])
    given = words(side[column_at(side, side[COLUMNS] - 1) + DATA], side[SLOTS])
    weights = words(side[WEIGHTS], n)
    new, new_ids, many = as_i32(side[NEW], n), words(side[NEW_IDS], n), 0
    for k in range(n):
        slot = line[first + k]
        weights[k] = given[slot]
        if fresh[k] == 0:
            free_slot(side, slot)
            continue
        row = ids[k]
        slots[row] = slot
        for word in range(FIELDS):
            rows[row, word] = 0
        rows[row, KEY] = -1
        if _has_key(side, keys, slot):
            new[many], new_ids[many] = slot, row
            many += 1
        else:
            j[NULL_KEYS] += 1
    _find_keys(j, side, keys, new[:many], new_ids[:many])
    return True


@njit(inline="always")
def next_instant(j: Any) -> int:
    """The earliest time of the rows that were looked up or wait; INFINITY if there are none."""
    found = INFINITY
    for port in (LEFT, RIGHT):
        side = words(j[port], END)
        if side[HEAD] < side[TAIL]:
            found = min(found, words(side[TIMES], side[ROOM])[side[HEAD]])
    return int(found)
