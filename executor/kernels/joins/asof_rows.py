"""The parts of ``asof_backward`` for several right rows: each left row with the latest right rows
of its key, at the left row's time or before it, as ``a [NOW]`` with ``b [PARTITION BY k ROWS n]``.

Left rows leave up to the watermarks of both sides. Of the right rows before all left rows that can
still come, the last n of each key stay, linked in the slab from the oldest to the newest.
"""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import njit
from cql.executor.kernels.joins import asof
from cql.executor.kernels.joins.asof import (
    CURSOR,
    DROPS,
    ENDS,
    LEFT_ROWS,
    MOST,
    PADS,
    UNMATCHED,
    next_piece,
)
from cql.executor.kernels.joins.pair_rows import LEFT, RIGHT
from cql.executor.kernels.lib.memory import as_i32, prefetch, words
from cql.executor.kernels.morsel_layout import NEVER
from cql.executor.kernels.order.row_slab import NEXT, PLACES, SLOTS
from cql.executor.kernels.relations import groups
from cql.executor.kernels.relations.frontier import (
    ENDED,
    HEAD,
    LINE,
    READY,
    ROOM,
    TAIL,
    TIMES,
    free_slot,
)

# Descriptor of the right side, behind the words of the groups.
KEPT = groups.END  # address of OF_KEY int32 per key
END = groups.END + 1
#: Of each key: the slots of its oldest and its newest row, and how many rows it keeps.
OLDEST, NEWEST, HELD = range(3)
OF_KEY = 4
#: Keys are prefetched this many rows ahead, the links of their rows half as many.
_AHEAD = 16


@njit(inline="always")
def _keep(right: Any, kept: Any, links: Any, key: int, slot: int, most: int) -> None:
    """Adds a row to those of its key; frees the oldest one if there are too many."""
    at = OF_KEY * key
    links[slot] = -1
    if kept[at + HELD] == 0:
        kept[at + OLDEST] = slot
    else:
        links[kept[at + NEWEST]] = slot
    kept[at + NEWEST] = slot
    if kept[at + HELD] < most:
        kept[at + HELD] += 1
    else:
        oldest = kept[at + OLDEST]
        kept[at + OLDEST] = links[oldest]
        free_slot(right, oldest)


@njit(inline="always")
def _fetch(right: Any, kept: Any, ids: Any, i: int, n: int) -> None:
    """Prefetches what the rows after row ``i`` of ``n`` need."""
    if i + _AHEAD < n:
        prefetch(right[KEPT] + 4 * OF_KEY * ids[i + _AHEAD])
    if i + _AHEAD // 2 < n:
        at = OF_KEY * ids[i + _AHEAD // 2]
        prefetch(right[NEXT] + 4 * kept[at + OLDEST])
        prefetch(right[NEXT] + 4 * kept[at + NEWEST])


@njit("UniTuple(int64, 2)(int64[::1], int64[::1], int64[::1], int64)", nogil=True, cache=True)
def draw_rows(d: Any, left: Any, right: Any, room: int) -> tuple[int, int]:
    """Merges the rows of both sides by time, up to ``room`` pairs. Returns their number and, if ids
    are lacking, how many."""
    n, most = 0, d[MOST]
    kept = as_i32(right[KEPT], OF_KEY * right[groups.CAPACITY])
    links = as_i32(right[NEXT], right[SLOTS])
    slots, partners = as_i32(left[PLACES], room), as_i32(right[PLACES], room)
    lefts, rights = as_i32(left[LINE], left[ROOM]), as_i32(right[LINE], right[ROOM])
    left_times, right_times = words(left[TIMES], left[ROOM]), words(right[TIMES], right[ROOM])
    while n < room and (left[READY] < d[ENDS + LEFT] or right[READY] < d[ENDS + RIGHT]):
        i, j = left[READY], right[READY]
        a, b = i, j
        end, stop, lacking = next_piece(d, left, right, room - n)
        if lacking > 0:
            return n, lacking
        ids, own = words(right[groups.IDS], stop - j), words(left[groups.IDS], end - i)
        while n < room and (i < end or j < stop):
            if j < stop and (i == end or right_times[j] <= left_times[i]):
                _fetch(right, kept, ids, j - b, stop - b)
                _keep(right, kept, links, ids[j - b], rights[j], most)
                j += 1
                continue
            slot, key, partner = lefts[i], own[i - a], d[CURSOR]
            if partner < 0:
                d[LEFT_ROWS] += 1
                if key >= 0 and kept[OF_KEY * key + HELD] > 0 and left_times[i] != NEVER:
                    partner = kept[OF_KEY * key + OLDEST]
                else:
                    d[UNMATCHED] += 1
                    if d[PADS] != 0:
                        slots[n], partners[n] = slot, -1
                        n += 1
            while partner >= 0 and n < room:
                slots[n], partners[n] = slot, partner
                partner = links[partner]
                n += 1
            d[CURSOR] = partner
            if partner < 0:
                free_slot(left, slot)
                i += 1
        left[HEAD] = left[READY] = i
        right[HEAD] = right[READY] = j
    return n, 0


@njit("void(int64[::1], int64[::1], int64[::1])", nogil=True, cache=True)
def purge_rows(d: Any, left: Any, right: Any) -> None:
    """Frees all right rows once no left row follows."""
    if d[DROPS] != 0 or left[ENDED] == 0 or left[READY] < left[TAIL]:
        return
    d[DROPS] = 1
    asof.drop_waiting(right)
    capacity, gone = right[groups.CAPACITY], 0
    kept, links = as_i32(right[KEPT], OF_KEY * capacity), as_i32(right[NEXT], right[SLOTS])
    ids = words(right[groups.IDS], right[groups.PIECE])
    for key in range(capacity):
        if kept[OF_KEY * key + HELD] == 0:
            continue
        slot = kept[OF_KEY * key + OLDEST]
        while slot >= 0:
            following = links[slot]
            free_slot(right, slot)
            slot = following
        kept[OF_KEY * key + HELD] = 0
        ids[gone] = key
        gone += 1
        if gone == ids.size:
            groups.free_ids_of(right, ids)
            gone = 0
    groups.free_ids_of(right, ids[:gone])
