"""The changes of the pairs of two changing relations at one instant.

At an instant a pair changes if its left or its right row changes. The weight of the change is
``left * right`` copies after the instant minus ``left * right`` copies before it, which is
``dL x R_before + L_after x dR`` (Gupta and Mumick, "Maintenance of Materialized Views", 1995,
section 3.1); a pair of two rows that both change is emitted once. In outer joins a side also emits
its rows without partners, in mark joins all its rows with the answer whether they have partners.
"""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import njit
from cql.executor.kernels.joins import relation_sides as sides
from cql.executor.kernels.joins.pair_rows import LEFT, RIGHT
from cql.executor.kernels.joins.relation_sides import (
    AFTER,
    BEFORE,
    BITS,
    CAUSE,
    CHANGED,
    CHANGING,
    CONCERNED,
    EMITTED,
    FIELDS,
    HELD,
    IS_DEAD,
    IS_LISTED,
    KEY,
    LISTED,
    LOOKED_FROM,
    MET,
    OF_KEY,
    PARTNERS,
    SHOWN,
    SLOT,
    STATES,
    WEIGHTS,
    add_dead,
    keys_of,
    rows_of,
)
from cql.executor.kernels.lib.memory import as_i32, call_operator, prefetch, words
from cql.executor.kernels.morsel_layout import CAPACITY, HEADER
from cql.executor.kernels.order.row_slab import PLACES, SLOTS
from cql.executor.kernels.relations import groups
from cql.executor.kernels.relations.frontier import BORN, HEAD, LINE, READY, ROOM, TAIL, TIMES

# Descriptor of the join, behind the words of ``relation_sides``.
SHOWS = sides.BEHIND  # whether the pairs are emitted
OWN = SHOWS + 1  # by side: what it emits itself
CONDITION = SHOWS + 3  # address of the function that tests a pair of equal keys; 0: none
CONDITION_WORDS = SHOWS + 4  # address of its descriptor, which begins with the slots of the pair
STEP = SHOWS + 5  # what follows at the instant
NOW = SHOWS + 6  # the instant
PLACE = SHOWS + 7  # the current place in CONCERNED
CURSOR = SHOWS + 8  # the next row in the key's list of the other side
WEIGHT_OUT = SHOWS + 9  # output column with the weights; that of the instants is before it
BEHIND = SHOWS + 10

#: What a side itself emits: nothing; its rows without partners; or all its rows, each with the
#: answer whether it has partners.
NOTHING, WITHOUT, ANSWER = range(3)
#: In place of the other row's slot, where a side itself emits: no partner; some partner (ANSWER).
NONE, SOME = -1, -2
BEGIN, GATHER, PAIR, EMIT = 0, 1, 3, 5  # of the right side: 1 more
FIRST_OF_LIST = -2  # the cursor stands before the first row of a list
#: The second order column of a change, in one of several partitions: its step from this bit on; one
#: bit, whether the row was concerned because it met another row; the stream position of the first
#: change of the row (of the other row) at the instant.
_STEP_BIT, _MET_BIT = 57, 56
#: Rows are prefetched this many changes ahead, the heads of their lists half as many.
_AHEAD = 16


@njit(inline="always")
def _order(j: Any, o: Any) -> Any:
    """The second order column of the output, if there are order columns."""
    return words(o[HEADER + 2 * (j[WEIGHT_OUT] + 2)], o[CAPACITY])


@njit(inline="always")
def _link(rows: Any, heads: Any, port: int, row: int) -> None:
    key = rows[row, KEY]
    first = heads[key, port]
    rows[row, AFTER], rows[row, BEFORE] = first, -1
    if first >= 0:
        rows[first, BEFORE] = row
    heads[key, port] = row


@njit(inline="always")
def _unlink(rows: Any, heads: Any, port: int, row: int) -> None:
    before, after = rows[row, BEFORE], rows[row, AFTER]
    if before >= 0:
        rows[before, AFTER] = after
    else:
        heads[rows[row, KEY], port] = after
    if after >= 0:
        rows[after, BEFORE] = before


@njit(inline="always")
def _fetch(side: Any, rows: Any, heads: Any, ids: Any, i: int, n: int) -> None:
    """Prefetches the rows and the list heads that the changes after change ``i`` need; a row is
    prefetched before the heads of its list, since it holds the key."""
    if i + _AHEAD < n:
        prefetch(side[STATES] + 8 * FIELDS * ids[i + _AHEAD])
    if i + _AHEAD // 2 < n:
        key = rows[ids[i + _AHEAD // 2], KEY]
        if key >= 0:
            prefetch(heads.ctypes.data + 8 * OF_KEY * key)


@njit(inline="always")
def _keep_changing(j: Any, side: Any, port: int) -> None:
    """Leaves in CONCERNED the rows whose number of copies differs from before the instant."""
    rows, heads = rows_of(side), keys_of(j)
    concerned, kept = words(side[CONCERNED], side[CHANGING]), 0
    for k in range(side[CHANGING]):
        row = concerned[k]
        if rows[row, HELD] == rows[row, SHOWN]:
            rows[row, BITS] &= MET | IS_DEAD
            if rows[row, HELD] == 0:
                add_dead(side, rows, row)
            continue
        if rows[row, SHOWN] == 0:
            rows[row, BITS] = CHANGED | IS_LISTED | (rows[row, BITS] & IS_DEAD)
            rows[row, PARTNERS] = rows[row, EMITTED] = 0
            if rows[row, KEY] >= 0:
                _link(rows, heads, port, row)
        concerned[kept] = row
        kept += 1
    side[CHANGING] = side[LISTED] = kept


@njit(inline="always")
def gather(j: Any, u: Any, port: int) -> bool:
    """Applies a side's changes of the instant and lists in CONCERNED the rows whose number of
    copies changes. Returns False if room is needed first."""
    side, now = words(j[port], sides.END), j[NOW]
    times = words(side[TIMES], side[ROOM])
    while side[HEAD] < side[TAIL] and times[side[HEAD]] == now:
        if side[HEAD] == side[READY] and not sides.look_up(j, u, port):
            return False
        rows, heads = rows_of(side), keys_of(j)
        concerned = words(side[CONCERNED], side[groups.CAPACITY])
        first, end, n = side[LOOKED_FROM], side[READY], side[CHANGING]
        line, born = as_i32(side[LINE], side[ROOM]), words(side[BORN], side[SLOTS])
        causes = words(side[CAUSE], side[groups.CAPACITY])
        ids, weights = words(side[groups.IDS], end - first), words(side[WEIGHTS], end - first)
        place = side[HEAD]
        while place < end and times[place] == now:
            _fetch(side, rows, heads, ids, place - first, end - first)
            row = ids[place - first]
            rows[row, HELD] += weights[place - first]
            if rows[row, BITS] & CHANGED == 0:
                rows[row, BITS] |= CHANGED | IS_LISTED
                concerned[n] = row
                n += 1
                if side[BORN] != 0:
                    causes[row] = born[line[place]]
            place += 1
        side[HEAD], side[CHANGING] = place, n
    _keep_changing(j, side, port)
    return True


@njit(inline="always")
def _meet(side: Any, rows: Any, concerned: Any, row: int, more: int, cause: int) -> None:
    """Adds ``more`` to the number of a row's different partners and lists the row in CONCERNED if
    that number changes, because of ``cause``."""
    if more != 0:
        rows[row, PARTNERS] += more
        if rows[row, BITS] & IS_LISTED == 0:
            rows[row, BITS] |= IS_LISTED
            concerned[side[LISTED]] = row
            side[LISTED] += 1
            if side[BORN] != 0:
                words(side[CAUSE], row + 1)[row] = cause


@njit("int64(int64[::1], int64[::1], int64, int64)", nogil=True, cache=True)
def pairs(j: Any, o: Any, port: int, n: int) -> int:
    """Writes the changes of the pairs whose row on side ``port`` changes.

    The pass of the left side (0) leaves out partners that change themselves: the pass of the right
    side finds these pairs. ``n`` changes are written already; returns the new number. If the output
    is full, PLACE and CURSOR stay where the next call must continue."""
    my, other = words(j[port], sides.END), words(j[1 - port], sides.END)
    mine, theirs, heads = rows_of(my), rows_of(other), keys_of(j)
    my_slots = as_i32(my[SLOT], my[groups.CAPACITY])
    other_slots = as_i32(other[SLOT], other[groups.CAPACITY])
    concerned = words(my[CONCERNED], my[groups.CAPACITY])
    others = words(other[CONCERNED], other[groups.CAPACITY])
    room = o[CAPACITY]
    to, beside = as_i32(my[PLACES], room), as_i32(other[PLACES], room)
    weights = words(o[HEADER + 2 * j[WEIGHT_OUT]], room)
    shows, counts = j[SHOWS] != 0, j[OWN + LEFT] != NOTHING or j[OWN + RIGHT] != NOTHING
    condition, pair = j[CONDITION], words(j[CONDITION_WORDS], 2)
    order, cause, ordered = _order(j, o), 0, my[BORN] != 0
    while j[PLACE] < my[CHANGING]:
        x = concerned[j[PLACE]]
        if ordered:
            cause = words(my[CAUSE], x + 1)[x]
        x_was, x_now = mine[x, SHOWN], mine[x, HELD]
        y = j[CURSOR]
        if y == FIRST_OF_LIST:
            y = heads[mine[x, KEY], 1 - port] if mine[x, KEY] >= 0 else -1
        while y >= 0:
            if n == room:
                j[CURSOR] = y
                return n
            following = theirs[y, AFTER]
            joins = not (port == LEFT and theirs[y, BITS] & CHANGED != 0)
            if joins and condition != 0:
                pair[port], pair[1 - port] = my_slots[x], other_slots[y]
                joins = call_operator(condition, j[CONDITION_WORDS], 0) != 0
            if joins:
                y_was, y_now = theirs[y, SHOWN], theirs[y, HELD]
                if shows and x_now * y_now != x_was * y_was:
                    to[n], beside[n] = my_slots[x], other_slots[y]
                    weights[n] = x_now * y_now - x_was * y_was
                    if ordered:
                        order[n] = (PAIR + port) << _STEP_BIT | cause
                    n += 1
                if counts:
                    # The partners of a row that is new at this instant are counted from 0.
                    x_before, y_before = int(x_was > 0), int(y_was > 0)
                    more = int(y_now > 0) - (y_before if x_before else 0)
                    _meet(my, mine, concerned, x, more, cause)
                    more = int(x_now > 0) - (x_before if y_before else 0)
                    _meet(other, theirs, others, y, more, 1 << _MET_BIT | cause)
            y = following
        j[PLACE] += 1
        j[CURSOR] = FIRST_OF_LIST
    return n


@njit(inline="always")
def emit(j: Any, o: Any, port: int, n: int) -> int:
    """Writes the changes that a side itself emits for the rows in CONCERNED; returns the new number
    of changes. If the output is full, PLACE stays where the next call must continue."""
    side, other, kind = words(j[port], sides.END), words(j[1 - port], sides.END), j[OWN + port]
    rows, slots = rows_of(side), as_i32(side[SLOT], side[groups.CAPACITY])
    concerned, room = words(side[CONCERNED], side[LISTED]), o[CAPACITY]
    to, beside = as_i32(side[PLACES], room), as_i32(other[PLACES], room)
    weights = words(o[HEADER + 2 * j[WEIGHT_OUT]], room)
    order, ordered = _order(j, o), side[BORN] != 0
    while j[PLACE] < side[LISTED]:
        if n == room:
            return n
        row = concerned[j[PLACE]]
        if ordered:
            order[n] = (EMIT + port) << _STEP_BIT | words(side[CAUSE], row + 1)[row]
        held, emitted, met = rows[row, HELD], rows[row, EMITTED], rows[row, PARTNERS] > 0
        partner = NONE
        if kind == ANSWER:
            partner = SOME if met else NONE
            answered = rows[row, BITS] & MET != 0
            if answered != met:  # the copies with the old answer leave
                rows[row, BITS] ^= MET
                rows[row, EMITTED] = 0
                if emitted != 0:
                    to[n], beside[n] = slots[row], SOME if answered else NONE
                    weights[n] = -emitted
                    n += 1
                    continue
        elif met:
            held = 0
        if held != emitted:
            to[n], beside[n] = slots[row], partner
            weights[n] = held - emitted
            n += 1
        rows[row, EMITTED] = held
        j[PLACE] += 1
    return n


@njit(inline="always")
def close(j: Any, port: int) -> None:
    """Ends the instant for a side."""
    side = words(j[port], sides.END)
    rows, heads, concerned = rows_of(side), keys_of(j), words(side[CONCERNED], side[LISTED])
    for k in range(side[LISTED]):
        row = concerned[k]
        rows[row, SHOWN] = rows[row, HELD]
        rows[row, BITS] &= MET | IS_DEAD
        if rows[row, HELD] == 0:
            if rows[row, KEY] >= 0:
                _unlink(rows, heads, port, row)
            add_dead(side, rows, row)
    side[CHANGING] = side[LISTED] = 0
