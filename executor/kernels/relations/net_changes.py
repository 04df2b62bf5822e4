"""The native function of ISTREAM, DSTREAM and the changes of a whole query: the bag difference
between an instant and the instant before (CQL paper §6.3).

The sum of an instant's changes is that difference, so no row stays. Of equal rows the first stands
for all: its place of the line has the sum of their weights in NET.
"""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import cfunc, njit
from cql.executor.kernels.lib.hashing import hash_end, hash_next, hash_start
from cql.executor.kernels.lib.memory import as_i32, as_u8, words
from cql.executor.kernels.morsel_layout import (
    CAPACITY,
    DETAIL,
    DETAIL_ROW,
    DONE,
    HEADER,
    NEED,
    NEVER,
    OUT,
    OUTPUT_FULL,
)
from cql.executor.kernels.order.row_slab import PLACES, compare_slots
from cql.executor.kernels.order.sort_keys import (
    COLUMNS,
    DATA,
    KEY_COLUMN,
    KEYS,
    MASK,
    column_at,
    key_at,
    key_word,
    whole,
)
from cql.executor.kernels.relations.frontier import (
    BEHIND,
    HEAD,
    LINE,
    READY,
    ROOM,
    TAIL,
    TIMES,
    begin_output,
    free_slot,
    give_columns,
    is_over,
    punctuate,
    take_in,
)

NEED_BUCKETS = 2  # request of the operator: a hash table of DETAIL_ROW buckets

# What leaves: the rows that enter, those that leave, or the changes with their weights.
ENTERING, LEAVING, CHANGES = range(3)

# Descriptor: behind the words of the frontier.
KIND = BEHIND
BUCKETS = BEHIND + 1  # capacity of the hash table
# Addresses.
NET = BEHIND + 2  # int64 per place of the line
TABLE = BEHIND + 3  # int32: places of the line, counted from HEAD, plus 1; 0: empty
END = BEHIND + 4

#: Up to this number of rows, the rows of an instant are compared with each other.
_FEW = 8


@njit("int64(int64[::1], int64)", nogil=True, cache=True)
def _hash(d: Any, slot: int) -> int:
    h = hash_start(0)
    for k in range(d[KEYS]):
        column = column_at(d, d[key_at(d, k) + KEY_COLUMN])
        if d[column + MASK] != 0 and as_u8(d[column + MASK], 1)[slot] == 0:
            h = hash_next(h, NEVER + k)
        else:
            h = hash_next(h, key_word(d, k, d[column + DATA], slot))
    return int(hash_end(h))


@njit("int64(int64[::1], int64, int64)", nogil=True, cache=True)
def _first_equal(d: Any, first: int, at: int) -> int:
    """The first place, from ``first`` on, whose row equals the one at place ``at``."""
    line = as_i32(d[LINE], d[ROOM])
    for k in range(first, at):
        if compare_slots(d, d[KEYS], line[k], line[at]) == 0:
            return k
    return at


@njit("int64(int64[::1], int64, int64, int64)", nogil=True, cache=True)
def _found_equal(d: Any, first: int, at: int, mask: int) -> int:
    """Like ``_first_equal``, by the hash table, which then has place ``at``."""
    line, table = as_i32(d[LINE], d[ROOM]), as_i32(d[TABLE], mask + 1)
    bucket = _hash(d, line[at]) & mask
    while table[bucket] != 0:
        k = first + table[bucket] - 1
        if compare_slots(d, d[KEYS], line[k], line[at]) == 0:
            return k
        bucket = (bucket + 1) & mask
    table[bucket] = at - first + 1
    return at


@njit("int64(int64[::1])", nogil=True, cache=True)
def _settle(d: Any) -> int:
    """Sums up the changes of the instants that are over: their places are then before READY.
    Returns the capacity that the hash table lacks, or 0."""
    times, line, net = words(d[TIMES], d[ROOM]), as_i32(d[LINE], d[ROOM]), words(d[NET], d[ROOM])
    weights = words(d[column_at(d, d[COLUMNS] - 1) + DATA], 1)
    first = d[READY]
    while first < d[TAIL] and is_over(d, times[first]):
        end = first + 1
        while end < d[TAIL] and times[end] == times[first]:
            end += 1
        few, buckets = end - first <= _FEW, 2 * _FEW
        if not few:
            while buckets < 2 * (end - first):
                buckets *= 2
            if d[BUCKETS] < buckets:
                d[READY] = first
                return buckets
            table = as_i32(d[TABLE], buckets)
            table[:] = 0
        for at in range(first, end):
            if few:
                same = _first_equal(d, first, at)
            else:
                same = _found_equal(d, first, at, buckets - 1)
            net[at] = 0
            net[same] += weights[line[at]]
        if d[KIND] == LEAVING:
            for at in range(first, end):
                net[at] = -net[at]
        first = end
    d[READY] = first
    return 0


@njit("int64(int64[::1], int64[::1])", nogil=True, cache=True)
def _draw(d: Any, o: Any) -> int:
    """Writes the slots of the rows that leave to PLACES; returns their number."""
    line, net = as_i32(d[LINE], d[ROOM]), words(d[NET], d[ROOM])
    places, n, at = as_i32(d[PLACES], o[CAPACITY]), 0, d[HEAD]
    changes = d[KIND] == CHANGES
    weights = words(o[HEADER + 2 * (d[COLUMNS] - 1)] if changes else 0, o[CAPACITY])
    while at < d[READY] and n < o[CAPACITY]:
        slot = int(line[at])
        if net[at] > 0 or (changes and net[at] < 0):
            places[n] = slot
            if changes:
                weights[n] = net[at]
                net[at] = 0
            else:
                net[at] -= 1
            n += 1
        if net[at] <= 0:
            free_slot(d, slot)
            at += 1
    d[HEAD] = at
    return n


@cfunc("int64(int64, int64)", nopython=True, cache=True)
def net_changes(desc: Any, morsel: Any) -> Any:
    d = whole(desc)
    given = d[COLUMNS] - 1
    u = words(morsel, HEADER + 2 * d[COLUMNS])
    o = words(u[OUT], HEADER + 2 * d[COLUMNS])
    if not take_in(d, u):
        return NEED
    wanted = _settle(d)
    if wanted > 0:
        u[DETAIL], u[DETAIL_ROW] = NEED_BUCKETS, wanted
        return NEED
    begin_output(d, u, o)
    n = _draw(d, o)
    give_columns(d, o, given, n)
    if d[HEAD] < d[READY]:
        return OUTPUT_FULL
    punctuate(d, u, o)
    return DONE
