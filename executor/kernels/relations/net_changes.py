"""The native function of ISTREAM, DSTREAM and the changes of a whole query: the bag difference
between an instant and the instant before (CQL paper §6.3).

The sum of an instant's changes is that difference, so no row stays. Of equal rows the first stands
for all: NET has the sum of their weights. Most rows come in order and behind them comes the
punctuation that ends their instants: these leave from the morsel that brought them. Others wait
(``kernels.relations.frontier``).
"""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import cfunc, njit
from cql.executor.kernels.lib.hashing import hash_end, hash_next
from cql.executor.kernels.lib.memory import as_i32, as_u8, words
from cql.executor.kernels.morsel_layout import (
    CAPACITY,
    CURSOR,
    DETAIL,
    DETAIL_ROW,
    DONE,
    HEADER,
    NEED,
    NEVER,
    OUT,
    OUTPUT_FULL,
    PHASE,
    ROWS,
    SUB,
)
from cql.executor.kernels.order.row_slab import HELD, PLACES, SLOTS
from cql.executor.kernels.order.sort_keys import (
    AT,
    COLUMN_WORDS,
    COLUMNS,
    DATA,
    INTEGER,
    KEY_COLUMN,
    KEYS,
    KIND,
    MASK,
    column_at,
    compare_rows,
    key_at,
    key_word,
    size_of,
    whole,
)
from cql.executor.kernels.relations.frontier import (
    BEHIND,
    HEAD,
    INSTANT,
    LINE,
    NEED_SLOTS,
    READY,
    ROOM,
    ROWS_IN,
    TAIL,
    TIMES,
    append_rows,
    begin_output,
    free_slot,
    give_columns,
    is_over,
    over_at_once,
    punctuate,
    punctuate_so_far,
    take_in,
)

NEED_BUCKETS = 2  # request of the operator: a hash table of DETAIL_ROW buckets

# What leaves: the rows that enter, those that leave, or the changes with their weights.
ENTERING, LEAVING, CHANGES = range(3)

# Descriptor: behind the words of the frontier.
OUTPUT = BEHIND
BUCKETS = BEHIND + 1  # capacity of the hash table
# Addresses.
NET = BEHIND + 2  # int64 per row of a morsel or per place of the line
HASHES = BEHIND + 3  # int64, as many
NUMBERS = BEHIND + 4  # int32 per row of a morsel: 0, 1, 2, …
TABLE = BEHIND + 5  # int32: rows of an instant, counted from its first one, plus 1; 0: empty
END = BEHIND + 6

#: Up to this number of rows, the rows of an instant are compared with each other.
_FEW = 8
#: The phase of a morsel whose rows leave directly.
_DIRECT = 3

# The rows of a morsel and those of the line have numbers: ``numbers[k]`` is the row or slot at
# place k. ``table`` holds the addresses of their columns from word ``at`` on.
_ROWS = "int64[::1], int64[::1], int64, int32[::1]"


@njit(f"void({_ROWS}, int64, int64)", nogil=True, cache=True)
def _hash(d: Any, table: Any, at: int, numbers: Any, first: int, end: int) -> None:
    """Writes the hashes of the rows at places ``first`` to ``end``: equal rows have equal ones."""
    hashes = words(d[HASHES], end)
    for k in range(first, end):
        hashes[k] = 0
    for key in range(d[KEYS]):
        c = d[key_at(d, key) + KEY_COLUMN]
        data, masked = table[at + COLUMN_WORDS * c + DATA], d[column_at(d, c) + MASK] != 0
        there = as_u8(table[at + COLUMN_WORDS * c + MASK], 1)
        if d[key_at(d, key) + KIND] == INTEGER and size_of(d, c) == 8:
            values = words(data, 1)
            for k in range(first, end):
                known = not masked or there[numbers[k]] != 0
                hashes[k] = hash_next(hashes[k], values[numbers[k]] if known else NEVER)
            continue
        for k in range(first, end):
            known = not masked or there[numbers[k]] != 0
            value = key_word(d, key, data, numbers[k]) if known else NEVER
            hashes[k] = hash_next(hashes[k], value)


@njit(f"int64({_ROWS}, int64, int64, int64)", nogil=True, cache=True)
def _found_equal(
    d: Any, table: Any, at: int, numbers: Any, first: int, place: int, mask: int
) -> int:
    """The first place, from ``first`` on, whose row equals the one at ``place``, by the hash table,
    which then has ``place``."""
    hashes, buckets = words(d[HASHES], place + 1), as_i32(d[TABLE], mask + 1)
    bucket = hash_end(hashes[place]) & mask
    while buckets[bucket] != 0:
        k = first + buckets[bucket] - 1
        if hashes[k] == hashes[place] and (
            compare_rows(d, table, at, d[KEYS], numbers[k], numbers[place]) == 0
        ):
            return k
        bucket = (bucket + 1) & mask
    buckets[bucket] = place - first + 1
    return place


@njit(f"int64({_ROWS}, int64[::1], int64, int64)", nogil=True, cache=True)
def _settle(d: Any, table: Any, at: int, numbers: Any, times: Any, first: int, end: int) -> int:
    """Sums up the changes at places ``first`` to ``end``, whose instants are over. Returns the
    capacity that the hash table lacks, or 0."""
    net, hashes = words(d[NET], end), words(d[HASHES], end)
    weights = words(table[at + COLUMN_WORDS * (d[COLUMNS] - 1) + DATA], 1)
    sign = -1 if d[OUTPUT] == LEAVING else 1
    _hash(d, table, at, numbers, first, end)
    while first < end:
        behind = first + 1
        while behind < end and times[behind] == times[first]:
            behind += 1
        mask = 0
        if behind - first > _FEW:
            mask = 2 * _FEW - 1
            while mask < 2 * (behind - first):
                mask = 2 * mask + 1
            if d[BUCKETS] <= mask:
                return mask + 1
            as_i32(d[TABLE], mask + 1)[:] = 0
        for place in range(first, behind):
            same, k = place, first
            if mask > 0:
                same = _found_equal(d, table, at, numbers, first, place, mask)
            while mask == 0 and k < place:
                if hashes[k] == hashes[place] and (
                    compare_rows(d, table, at, d[KEYS], numbers[k], numbers[place]) == 0
                ):
                    same = k
                    break
                k += 1
            net[place] = 0
            net[same] += sign * weights[numbers[place]]
        first = behind
    return 0


@njit("int64(int64[::1], int64[::1], int32[::1], int64, int64, boolean)", nogil=True, cache=True)
def _draw(d: Any, o: Any, numbers: Any, first: int, end: int, frees: bool) -> int:
    """Writes the numbers of the rows that leave to PLACES, and their number to the output. Returns
    the place behind the last row that has left."""
    net, places, capacity = words(d[NET], end), as_i32(d[PLACES], o[CAPACITY]), o[CAPACITY]
    changes = d[OUTPUT] == CHANGES
    weights = words(o[HEADER + 2 * (d[COLUMNS] - 1)] if changes else 0, capacity)
    n, place = 0, first
    while place < end and n < capacity:
        if net[place] > 0 or (changes and net[place] < 0):
            places[n] = numbers[place]
            if changes:
                weights[n] = net[place]
                net[place] = 0
            else:
                net[place] -= 1
            n += 1
        if net[place] <= 0:
            if frees:
                free_slot(d, numbers[place])
            place += 1
    o[ROWS] = n
    return place


@njit("int64(int64[::1], int64[::1], int64[::1])", nogil=True, cache=True)
def _leave_directly(d: Any, u: Any, o: Any) -> int:
    numbers = as_i32(d[NUMBERS], u[ROWS])
    begin_output(d, u, o)
    u[CURSOR] = _draw(d, o, numbers, u[CURSOR], u[SUB], False)
    give_columns(d, u, HEADER, o, d[COLUMNS] - 1, o[ROWS])
    if u[CURSOR] < u[SUB]:
        times = words(u[HEADER + 2 * d[INSTANT]], u[ROWS])
        punctuate_so_far(d, o, times[u[CURSOR]])
        return OUTPUT_FULL
    append_rows(d, u, u[SUB])
    punctuate(d, u, o)
    return DONE


@cfunc("int64(int64, int64)", nopython=True, cache=True)
def net_changes(desc: Any, morsel: Any) -> Any:
    d = whole(desc)
    u = words(morsel, HEADER + 2 * d[COLUMNS])
    o = words(u[OUT], HEADER + 2 * d[COLUMNS])
    if u[PHASE] == _DIRECT:
        return _leave_directly(d, u, o)
    if u[PHASE] == 0:
        n = over_at_once(d, u)
        if n >= 0:
            if d[SLOTS] - d[HELD] < u[ROWS] - n:
                u[DETAIL], u[DETAIL_ROW] = NEED_SLOTS, u[ROWS] - n
                return NEED
            times = words(u[HEADER + 2 * d[INSTANT]], u[ROWS])
            wanted = _settle(d, u, HEADER, as_i32(d[NUMBERS], u[ROWS]), times, 0, n)
            if wanted > 0:
                u[DETAIL], u[DETAIL_ROW] = NEED_BUCKETS, wanted
                return NEED
            d[ROWS_IN] += u[ROWS]
            u[CURSOR], u[SUB], u[PHASE] = 0, n, _DIRECT
            return _leave_directly(d, u, o)
    if not take_in(d, u):
        return NEED
    times, line = words(d[TIMES], d[ROOM]), as_i32(d[LINE], d[ROOM])
    end = d[READY]
    while end < d[TAIL] and is_over(d, times[end]):
        end += 1
    wanted = _settle(d, d, d[AT], line, times, d[READY], end)
    if wanted > 0:
        u[DETAIL], u[DETAIL_ROW] = NEED_BUCKETS, wanted
        return NEED
    d[READY] = end
    begin_output(d, u, o)
    d[HEAD] = _draw(d, o, line, d[HEAD], end, True)
    give_columns(d, d, d[AT], o, d[COLUMNS] - 1, o[ROWS])
    if d[HEAD] < end:
        punctuate_so_far(d, o, times[d[HEAD]])
        return OUTPUT_FULL
    punctuate(d, u, o)
    return DONE
