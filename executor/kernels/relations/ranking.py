"""ROW_NUMBER() and LIMIT over a changing relation: a function for
``kernels.relations.group_changes``.

Each distinct row is a group. A partition has a treap of its rows in sort order (``lib.treap``), of
rows with equal keys the one that entered first, and a chain of the rows that the output shows. A
row's node has the row's id: VALUE is the row's arrival, COUNT its number of copies; the sort words
follow. Copies are counted from 0, as *places* in the sort order of the partition.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cql.executor.jit.decorators import cfunc, njit
from cql.executor.kernels.lib.key_index import FLAGS, find_groups, free_groups
from cql.executor.kernels.lib.memory import as_i32, as_u8, lines, words
from cql.executor.kernels.lib.treap import (
    COUNT,
    DEPTH,
    LEFT,
    LIVE,
    PRIORITY,
    RIGHT,
    TOTAL,
    VALUE,
    insert_node,
    next_priority,
    remove_node,
)
from cql.executor.kernels.morsel_layout import DONE, INFINITY

#: The sort words of a node begin here.
FIRST = PRIORITY + 1
#: What a sort word is: a key in ascending or descending order, the code of a text, ordered by rank,
#: or the place of NULL.
UP, DOWN, TEXT_UP, TEXT_DOWN, NULL_FIRST, NULL_LAST = range(6)
#: Words of SORT, per sort word: the column of the row, and what the word is.
SORT_WORDS = 2

# Descriptor. The words of the piece, which the driver sets or reads.
CHANGES = 0  # rows of the piece
MADE = 1  # changes written
MORE = 2  # 1: more changes of the piece follow, when called again
GONE = 3  # rows that are not in the piece and were dropped in it
TIMES = 4  # addresses, per row of the piece
WEIGHTS = 5
# The query.
OFFSET = 6  # places below it are not shown
STOP = 7  # nor are those from here on; INFINITY: all are shown
FORGETS = 8  # whether rows at the places from STOP on are dropped
ROW_KEYS = 9  # columns of a row
PARTITION_KEYS = 10  # columns of a partition; 0: there is one partition
SORTS = 11  # sort words
# Capacities.
ROWS = 12  # row ids
PARTITIONS = 13
BUCKETS = 14  # of the index of the partitions
ROOM = 15  # changes that are written at a time
# Where the piece goes on.
NEXT_ROW = 16  # the changes of the piece before it are applied
TOUCHED_MANY = 17  # partitions that the current instant touches
WRITTEN = 18  # those of them that are written
STEP = 19  # of the current partition
AT = 20  # the row of the chain, or the number of the chosen row, that is written next
PLACE = 21  # its place that is written next
CHOSEN_MANY = 22
BEFORE = 23  # the last row of the chain that stays as it is; -1: none
SINCE = 24  # the first row of the chain behind it
EMPTIED = 25  # 1: a partition of the piece may be without rows
# What stays between two pieces.
COME = 26  # rows that have arrived
CONTROL = 27  # of the treaps: CONTROL_WORDS words
CONTROL_WORDS = 4
# Addresses, per row of the piece.
OWNERS = 31  # row ids
FRESH = 32  # uint8: whether the row id is new
TOUCHED = 33  # scratch: partitions
WANTED = 34  # scratch: keys of partitions
FOUND = 35  # scratch: their ids
FOUND_FRESH = 36  # scratch
# Addresses, per row id.
KEYS = 37  # the words of its key
HELD = 38  # copies in the relation
NODES = 39
PARTITION = 40
FOLLOWING = 41  # the next row of the chain; -1: none
SHOWN = 42  # the first of its places that are shown
SHOWN_MANY = 43
NOW = 44  # scratch: the same at the current instant
NOW_MANY = 45  # scratch: 0
CHOSEN = 46  # scratch: the rows that the current partition shows from some place on
DROPPED = 47  # scratch
# Addresses, per partition.
ROOTS = 48
HEADS = 49  # the first row of the chain; -1: none
LOWEST = 50  # scratch: the first place that the instant changes; -1: not touched
# Addresses of the index of the partitions.
TABLE = 51
PARTITION_WORDS = 52
FREE_IDS = 53
INDEX_CONTROL = 54
# The sort.
SORT = 55
PARTITION_COLUMNS = 56
RANK = 57
RANKS = 58
# Addresses, per change of the output.
OUT_OWNER = 59
OUT_TIME = 60
OUT_WEIGHT = 61
OUT_NUMBER = 62  # int32: the row number; 0: the output is rows without numbers, LIMIT
WORDS = 63

#: Steps of a partition.
_CHOOSE, _LEAVE, _ENTER = range(3)


# -- the rows of a piece ---------------------------------------------------------------------------


@njit("void(int64[::1])", nogil=True, cache=True)
def _take_fresh(d: Any) -> None:
    """Writes the sort words of the new rows, and finds their partitions."""
    n, columns, sorts = d[CHANGES], d[ROW_KEYS], d[SORTS]
    owners, fresh = words(d[OWNERS], n), as_u8(d[FRESH], n)
    width = columns + 1 + columns // FLAGS
    keys, node_words = words(d[KEYS], d[ROWS] * width), FIRST + sorts
    nodes = words(d[NODES], d[ROWS] * node_words)
    sort, parts = words(d[SORT], SORT_WORDS * sorts), d[PARTITION_KEYS]
    by = words(d[PARTITION_COLUMNS], parts)
    line, many = parts + 1 + parts // FLAGS, 0
    wanted = words(d[WANTED], n * line)
    for k in range(n):
        if fresh[k] == 0:
            continue
        row, key = owners[k], width * owners[k]
        for w in range(sorts):
            c, kind = sort[SORT_WORDS * w], sort[SORT_WORDS * w + 1]
            value = keys[key + c]
            if kind == DOWN:
                value = ~value
            elif kind >= NULL_FIRST:
                null = (keys[key + columns + c // FLAGS] >> (c % FLAGS)) & 1
                value = -null if kind == NULL_FIRST else null
            nodes[row * node_words + FIRST + w] = value
        if parts > 0:
            for w in range(line):
                wanted[many * line + w] = 0
            for p in range(parts):
                c = by[p]
                null = (keys[key + columns + c // FLAGS] >> (c % FLAGS)) & 1
                wanted[many * line + p] = keys[key + c]
                wanted[many * line + parts + p // FLAGS] |= null << (p % FLAGS)
            many += 1
    if many == 0:
        return
    found, partition = words(d[FOUND], many), words(d[PARTITION], d[ROWS])
    find_groups(
        lines(d[WANTED], many, line),
        words(d[TABLE], d[BUCKETS]),
        lines(d[PARTITION_WORDS], d[PARTITIONS], line),
        words(d[FREE_IDS], d[PARTITIONS]),
        words(d[INDEX_CONTROL], 1),
        found,
        as_u8(d[FOUND_FRESH], many),
    )
    many = 0
    for k in range(n):
        if fresh[k] != 0:
            partition[owners[k]] = found[many]
            many += 1


@njit(inline="always")
def _comes_before(nodes: Any, sort: Any, rank: Any, a: int, b: int) -> bool:
    """Whether row ``a`` sorts before row ``b``."""
    for w in range(nodes.shape[1] - FIRST):
        x, y = nodes[a, FIRST + w], nodes[b, FIRST + w]
        if x != y:
            kind = sort[SORT_WORDS * w + 1]
            if kind == TEXT_UP:
                return bool(rank[x] < rank[y])
            if kind == TEXT_DOWN:
                return bool(rank[x] > rank[y])
            return bool(x < y)
    return bool(nodes[a, VALUE] < nodes[b, VALUE])


@njit(
    "int64(int64[::1], int64[:, ::1], int64[::1], int64[::1], int32[::1], int64, int64, int64,"
    " int64[::1])",
    nogil=True,
    cache=True,
)
def _change(
    d: Any, nodes: Any, root: Any, sort: Any, rank: Any, row: int, was: int, now: int, path: Any
) -> int:
    """Changes the number of a row's copies in its partition. Returns the first place that changes;
    INFINITY if no place below STOP changes, -1 if the row is dropped."""
    stop, at, place, depth, left = d[STOP], root[0], 0, 0, False
    while at >= 0 and at != row:
        path[depth] = at
        depth += 1
        left = _comes_before(nodes, sort, rank, row, at)
        if left:
            at = nodes[at, LEFT]
            continue
        if place < stop:
            place += nodes[at, COUNT]
            if nodes[at, LEFT] >= 0:
                place += nodes[nodes[at, LEFT], TOTAL]
        at = nodes[at, RIGHT]
    if at >= 0 and place < stop and nodes[at, LEFT] >= 0:
        place += nodes[nodes[at, LEFT], TOTAL]
    if was == 0:
        if d[FORGETS] != 0 and place >= stop:
            return -1
        control = d[CONTROL : CONTROL + CONTROL_WORDS]
        nodes[row, COUNT], nodes[row, PRIORITY] = now, next_priority(control)
        depth = insert_node(nodes, root, row, left, path, depth, False)
        control[LIVE] += 1
    elif now == 0:
        remove_node(nodes, root, row, path, depth, False)
        d[CONTROL + LIVE] -= 1
    else:
        nodes[row, COUNT] = now
        nodes[row, TOTAL] += now - was
    for j in range(depth):
        nodes[path[j], TOTAL] += now - was
    return place if place < stop else INFINITY


# -- the rows that a partition shows ---------------------------------------------------------------


@njit("void(int64[::1], int64[:, ::1], int64, int64, int64[::1])", nogil=True, cache=True)
def _choose(d: Any, nodes: Any, q: int, lowest: int, path: Any) -> None:
    """Lists the rows that partition ``q`` shows, from the first place on that the instant changed,
    and finds the part of the chain that they replace."""
    offset, stop, rows = d[OFFSET], d[STOP], d[ROWS]
    chosen = words(d[CHOSEN], min(rows, stop - offset))
    now, now_many = words(d[NOW], rows), words(d[NOW_MANY], rows)
    behind, at, place, here = lowest > offset, words(d[ROOTS], q + 1)[q], 0, 0
    wanted, depth, many = lowest - 1 if behind else offset, 0, 0
    while at >= 0:
        left = nodes[at, LEFT]
        here = place + nodes[left, TOTAL] if left >= 0 else place
        if wanted < here:
            path[depth] = at
            depth += 1
            at = left
        elif wanted < here + nodes[at, COUNT]:
            break
        else:
            place = here + nodes[at, COUNT]
            at = nodes[at, RIGHT]
    d[BEFORE], d[SINCE] = -1, words(d[HEADS], q + 1)[q]
    if behind:
        d[BEFORE], d[SINCE] = at, words(d[FOLLOWING], rows)[at]
        place, at = lowest, nodes[at, RIGHT]
    elif at >= 0:
        path[depth] = at
        depth += 1
        place, at = here, -1
    while (at >= 0 or depth > 0) and place < stop:
        while at >= 0:
            path[depth] = at
            depth += 1
            at = nodes[at, LEFT]
        depth -= 1
        row = path[depth]
        chosen[many] = row
        many += 1
        now[row] = max(place, offset)
        place += nodes[row, COUNT]
        now_many[row] = min(place, stop) - now[row]
        at = nodes[row, RIGHT]
    d[CHOSEN_MANY] = many


@njit(inline="always")
def _write_change(d: Any, row: int, place: int, time: int, weight: int) -> None:
    k = d[MADE]
    words(d[OUT_OWNER], k + 1)[k], words(d[OUT_TIME], k + 1)[k] = row, time
    words(d[OUT_WEIGHT], k + 1)[k] = weight
    if d[OUT_NUMBER] != 0:
        as_i32(d[OUT_NUMBER], k + 1)[k] = place + 1
    d[MADE] = k + 1


@njit("int64(int64[::1], int64, int64, int64, int64, int64, int64, int64)", nogil=True, cache=True)
def _write_row(
    d: Any, row: int, first: int, many: int, other: int, other_many: int, time: int, sign: int
) -> int:
    """Writes the places of a row, ``many`` from ``first`` on, that are not among the
    ``other_many`` from ``other`` on. Returns 0; if the output is full, 1."""
    if d[OUT_NUMBER] == 0:
        if many <= other_many:
            return 0
        if d[MADE] == d[ROOM]:
            return 1
        _write_change(d, row, 0, time, sign * (many - other_many))
        return 0
    place = max(d[PLACE], first)
    while place < first + many:
        if other <= place < other + other_many:
            place = other + other_many
            continue
        if d[MADE] == d[ROOM]:
            d[PLACE] = place
            return 1
        _write_change(d, row, place, time, sign)
        place += 1
    d[PLACE] = 0
    return 0


@njit("boolean(int64[::1], int64)", nogil=True, cache=True)
def _write_leaving(d: Any, time: int) -> bool:
    """Writes the rows of the chain at the places that they no longer have. Returns False if the
    output is full."""
    rows = d[ROWS]
    following, shown = words(d[FOLLOWING], rows), words(d[SHOWN], rows)
    shown_many = words(d[SHOWN_MANY], rows)
    now, now_many = words(d[NOW], rows), words(d[NOW_MANY], rows)
    row = d[AT]
    while row >= 0:
        if _write_row(d, row, shown[row], shown_many[row], now[row], now_many[row], time, -1):
            d[AT] = row
            return False
        row = following[row]
    return True


@njit("boolean(int64[::1], int64)", nogil=True, cache=True)
def _write_entering(d: Any, time: int) -> bool:
    """Writes the chosen rows at the places that they did not have. Returns False if the output is
    full."""
    rows, many = d[ROWS], d[CHOSEN_MANY]
    chosen, shown = words(d[CHOSEN], many), words(d[SHOWN], rows)
    shown_many = words(d[SHOWN_MANY], rows)
    now, now_many = words(d[NOW], rows), words(d[NOW_MANY], rows)
    for j in range(d[AT], many):
        row = chosen[j]
        if _write_row(d, row, now[row], now_many[row], shown[row], shown_many[row], time, 1):
            d[AT] = j
            return False
    return True


@njit("void(int64[::1], int64)", nogil=True, cache=True)
def _show(d: Any, q: int) -> None:
    """Replaces the end of the chain of partition ``q`` by the chosen rows."""
    rows, many = d[ROWS], d[CHOSEN_MANY]
    following, shown = words(d[FOLLOWING], rows), words(d[SHOWN], rows)
    shown_many = words(d[SHOWN_MANY], rows)
    now, now_many = words(d[NOW], rows), words(d[NOW_MANY], rows)
    chosen, row = words(d[CHOSEN], many), d[SINCE]
    while row >= 0:
        shown_many[row] = 0
        row = following[row]
    before = d[BEFORE]
    for j in range(many + 1):
        row = chosen[j] if j < many else -1
        if before < 0:
            words(d[HEADS], q + 1)[q] = row
        else:
            following[before] = row
        if row >= 0:
            shown[row], shown_many[row] = now[row], now_many[row]
            now_many[row] = 0
        before = row


@njit("void(int64[::1], int64[:, ::1], int64, int64[::1])", nogil=True, cache=True)
def _drop_behind(d: Any, nodes: Any, q: int, path: Any) -> None:
    """Drops the last rows of partition ``q`` as long as the rows before them reach STOP."""
    root, held = words(d[ROOTS] + 8 * q, 1), words(d[HELD], d[ROWS])
    while root[0] >= 0:
        depth, at = 0, root[0]
        while nodes[at, RIGHT] >= 0:
            path[depth] = at
            depth += 1
            at = nodes[at, RIGHT]
        many = nodes[at, COUNT]
        if nodes[root[0], TOTAL] - many < d[STOP]:
            return
        held[at] = 0
        remove_node(nodes, root, at, path, depth, False)
        for j in range(depth):
            nodes[path[j], TOTAL] -= many
        d[CONTROL + LIVE] -= 1
        words(d[DROPPED], d[ROWS])[d[GONE]] = at
        d[GONE] += 1


@njit("boolean(int64[::1], int64[:, ::1], int64, int64, int64, int64[::1])", nogil=True, cache=True)
def _write_partition(d: Any, nodes: Any, q: int, lowest: int, time: int, path: Any) -> bool:
    """Writes the changes of partition ``q``. Returns False if the output is full."""
    if d[STEP] == _CHOOSE:
        _choose(d, nodes, q, lowest, path)
        d[STEP], d[AT], d[PLACE] = _LEAVE, d[SINCE], 0
    if d[STEP] == _LEAVE:
        if not _write_leaving(d, time):
            return False
        d[STEP], d[AT], d[PLACE] = _ENTER, 0, 0
    if not _write_entering(d, time):
        return False
    _show(d, q)
    if d[FORGETS] != 0:
        _drop_behind(d, nodes, q, path)
    d[STEP] = _CHOOSE
    return True


@njit("boolean(int64[::1])", nogil=True, cache=True)
def _go_on(d: Any) -> bool:
    """Applies the changes of the piece, instant by instant, and writes those of the output. Returns
    False if the output is full."""
    n, rows, stop, one = d[CHANGES], d[ROWS], d[STOP], d[PARTITION_KEYS] == 0
    times, weights, owners = words(d[TIMES], n), words(d[WEIGHTS], n), words(d[OWNERS], n)
    held, partition, touched = words(d[HELD], rows), words(d[PARTITION], rows), words(d[TOUCHED], n)
    roots, lowest = words(d[ROOTS], d[PARTITIONS]), words(d[LOWEST], d[PARTITIONS])
    nodes = lines(d[NODES], rows, FIRST + d[SORTS])
    sort, rank = words(d[SORT], SORT_WORDS * d[SORTS]), as_i32(d[RANK], d[RANKS])
    path = np.empty(DEPTH, np.int64)
    i, written, many = d[NEXT_ROW], d[WRITTEN], d[TOUCHED_MANY]
    while True:
        while written < many:
            q = touched[written]
            if lowest[q] < stop and not _write_partition(
                d, nodes, q, lowest[q], times[i - 1], path
            ):
                d[NEXT_ROW], d[WRITTEN], d[TOUCHED_MANY] = i, written, many
                return False
            if roots[q] < 0:
                d[EMPTIED] = 1
            lowest[q] = -1
            written += 1
        if i == n:
            return True
        time, written, many = times[i], 0, 0
        while i < n and times[i] == time:
            row = owners[i]
            q = 0 if one else partition[row]
            if lowest[q] < 0:
                lowest[q] = INFINITY
                touched[many] = q
                many += 1
            was = max(held[row], 0)
            held[row] += weights[i]
            now = max(held[row], 0)
            i += 1
            if now == was:
                continue
            if was == 0:
                nodes[row, VALUE] = d[COME]
                d[COME] += 1
            place = _change(d, nodes, roots[q : q + 1], sort, rank, row, was, now, path)
            if place < 0:
                held[row] = 0
            else:
                lowest[q] = min(lowest[q], place)


# -- the end of a piece ----------------------------------------------------------------------------


@njit("void(int64[::1])", nogil=True, cache=True)
def _free_partitions(d: Any) -> None:
    """Frees the partitions of the piece that have no rows."""
    n, parts, many = d[CHANGES], d[PARTITION_KEYS], 0
    owners, partition = words(d[OWNERS], n), words(d[PARTITION], d[ROWS])
    roots, lowest = words(d[ROOTS], d[PARTITIONS]), words(d[LOWEST], d[PARTITIONS])
    touched, line = words(d[TOUCHED], n), parts + 1 + parts // FLAGS
    for k in range(n):
        q = partition[owners[k]]
        if roots[q] < 0 and lowest[q] < 0:
            lowest[q] = 0
            touched[many] = q
            many += 1
    for k in range(many):
        lowest[touched[k]] = -1
    free_groups(
        touched[:many],
        words(d[TABLE], d[BUCKETS]),
        lines(d[PARTITION_WORDS], d[PARTITIONS], line),
        words(d[FREE_IDS], d[PARTITIONS]),
        words(d[INDEX_CONTROL], 1),
    )


@njit("void(int64[::1])", nogil=True, cache=True)
def _leave_out_piece(d: Any) -> None:
    """Leaves the rows of the piece, which the driver frees, out of the dropped rows."""
    n, rows, kept = d[CHANGES], d[ROWS], 0
    owners, marked = words(d[OWNERS], n), words(d[NOW_MANY], rows)
    dropped = words(d[DROPPED], rows)
    for k in range(n):
        marked[owners[k]] = 1
    for k in range(d[GONE]):
        if marked[dropped[k]] == 0:
            dropped[kept] = dropped[k]
            kept += 1
    for k in range(n):
        marked[owners[k]] = 0
    d[GONE] = kept


@cfunc("int64(int64, int64)", nopython=True, cache=True)
def ranking(desc: Any, morsel: Any) -> Any:
    d = words(desc, WORDS)
    if d[MORE] == 0:
        _take_fresh(d)
        d[NEXT_ROW] = d[TOUCHED_MANY] = d[WRITTEN] = d[EMPTIED] = d[GONE] = 0
    d[MADE] = d[MORE] = 0
    if not _go_on(d):
        d[MORE] = 1
        return DONE
    if d[EMPTIED] != 0 and d[PARTITION_KEYS] > 0:
        _free_partitions(d)
    if d[GONE] > 0:
        _leave_out_piece(d)
    return DONE
