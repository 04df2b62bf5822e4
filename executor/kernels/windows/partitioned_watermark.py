"""Groups of a window that leave before the window closes (group-wise punctuation, out-of-order
paper A.1.1).

Beside its groups (the first table) each window has a table of the values of the punctuated key (the
last table). A record of a value has two hashed words, the value and whether it is NULL, and then
the first of its groups. The groups of a value form a doubly linked list in four words of the group,
behind its key. Links number the entries from 1 within the window's region; 0 is no entry. Groups
that leave free their memory: the last entry of the region moves to the place of the group, a sparse
region moves to a smaller one, and a window without groups closes.

The tables between hold what is kept beside the groups: sets of DISTINCT values and logs of values.
Since groups move, an entry names its group by a number that is never reused. The entries of a group
form a list, from the latest to the earliest. The entries of a group that leaves stay and are
marked; when the marked entries are the majority, the other entries are compacted, in their order.

The words behind the tables are the request (REQUEST), then for each table of kept entries the
address of an array with the number of marked entries of each window."""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import cfunc, njit
from cql.executor.kernels.lib.hashing import hash_end, hash_next, hash_start
from cql.executor.kernels.lib.memory import as_i32, words
from cql.executor.kernels.morsel_layout import INFINITY
from cql.executor.kernels.windows.region_table import (
    BASES,
    BLOCK,
    CLASSES_AT,
    COUNTS,
    ENTRIES,
    FIRST_TABLE,
    FOURFOLD_BELOW,
    HASHED,
    HEAP,
    IDS,
    INDEX,
    NULLS,
    OPEN,
    PLACES,
    PLACES_AT,
    RECORDS,
    SLOTS,
    SMALLEST_CLASS,
    TABLES,
    WIDTH,
    find_slot,
    free_region,
    index_region,
    index_slot,
    release,
    tag_of,
    take_region,
)

#: The request: a value, whether it is NULL, the first and the last window; and the slot of the
#: current window, -1 if there is none.
REQUEST = ("requested_value", "requested_null", "requested_from", "requested_to", "requested_slot")
VALUE, NULL, FROM, TO, SLOT = range(len(REQUEST))

# Words of a group behind its key.
AFTER, BEFORE, OF_VALUE, OF_NULL = range(4)
#: Further words of a group if entries are kept beside the groups: the unique number of the group,
#: then for each table of kept entries the latest entry of the group.
NUMBER, LATEST = 4, 5
#: Word of a value, behind its two hashed words: its first group.
FIRST = 2
#: Words of a kept entry: the number of its group (~number after the group has left), and the
#: previous entry of the group.
OWNER, EARLIER = 1, 2

#: The functions that generated kernels reach by address.
CALLED = ("value_entry", "link_group", "next_group", "drop_group")


@njit(inline="always")
def _table(desc: int, table: int) -> int:
    return desc + 8 * (FIRST_TABLE + table * BLOCK)


@njit(inline="always")
def _request(desc: int) -> Any:
    return words(_table(desc, words(desc, FIRST_TABLE)[TABLES]), len(REQUEST))


@njit(inline="always")
def _groups(desc: int) -> int:
    return desc + 8 * FIRST_TABLE


@njit(inline="always")
def _values(desc: int) -> int:
    return _table(desc, words(desc, FIRST_TABLE)[TABLES] - 1)


@njit(inline="always")
def _marked(desc: int, table: int) -> Any:
    """By slot of the window: the number of entries of a table that belong to groups that have
    left."""
    d = words(desc, FIRST_TABLE)
    behind = words(_table(desc, d[TABLES]), len(REQUEST) + table)
    return words(behind[len(REQUEST) + table - 1], d[SLOTS])


@njit(inline="always")
def _record(block: int, slot: int, entry: int) -> Any:
    """The record of an entry of a window; entries are numbered from 0 here."""
    t = words(block, BLOCK)
    base = words(t[BASES], slot + 1)[slot]
    return words(t[RECORDS] + 8 * t[WIDTH] * (base + entry), t[WIDTH])


@njit("int64(int64, int64, int64)", cache=True)
def _code(block: int, slot: int, entry: int) -> int:
    """The hash of an entry."""
    t = words(block, BLOCK)
    record = _record(block, slot, entry)
    h = hash_start(record[0])
    for k in range(1, t[HASHED]):
        h = hash_next(h, record[k])
    if t[NULLS] != 0:
        base = words(t[BASES], slot + 1)[slot]
        null = words(t[NULLS], t[ENTRIES])[base + entry]
        if null != 0:
            h = hash_next(h, null)
    return hash_end(h)


@njit("int64(int64, int64, int64, int64)", cache=True)
def _find(block: int, slot: int, value: int, null: int) -> int:
    """The entry of a value in a window, -1 if it has none."""
    t = words(block, BLOCK)
    base, size_class = words(t[BASES], slot + 1)[slot], words(t[CLASSES_AT], slot + 1)[slot]
    index = as_i32(t[INDEX] + 4 * PLACES * base, PLACES << size_class)
    mask, low = index.size - 1, (2 << size_class) - 1
    place = (hash_end(hash_next(hash_start(value), null)) >> 8) & mask
    while index[place] != 0:
        entry = (index[place] & low) - 1
        record = _record(block, slot, entry)
        if record[0] == value and record[1] == null:
            return entry
        place = (place + 1) & mask
    return -1


@njit("int64(int64, int64, int64)", cache=True)
def _place_of(block: int, slot: int, entry: int) -> int:
    """The place of an entry in the index of its window."""
    t = words(block, BLOCK)
    base, size_class = words(t[BASES], slot + 1)[slot], words(t[CLASSES_AT], slot + 1)[slot]
    index = as_i32(t[INDEX] + 4 * PLACES * base, PLACES << size_class)
    mask, low = index.size - 1, (2 << size_class) - 1
    place = (_code(block, slot, entry) >> 8) & mask
    while (index[place] & low) != entry + 1:
        place = (place + 1) & mask
    return place


@njit("int64(int64, int64, int64)", cache=True)
def _remove(block: int, slot: int, entry: int) -> int:
    """Removes an entry from a window and moves the last entry to its place. Returns the old number
    of the last entry."""
    t = words(block, BLOCK)
    base, size_class = words(t[BASES], slot + 1)[slot], words(t[CLASSES_AT], slot + 1)[slot]
    counts = words(t[COUNTS], slot + 1)
    index = as_i32(t[INDEX] + 4 * PLACES * base, PLACES << size_class)
    mask, low = index.size - 1, (2 << size_class) - 1
    # Backward shift leaves no tombstones.
    hole = _place_of(block, slot, entry)
    place = hole
    while True:
        place = (place + 1) & mask
        if index[place] == 0:
            break
        home = (_code(block, slot, (index[place] & low) - 1) >> 8) & mask
        if ((place - home) & mask) >= ((place - hole) & mask):
            index[hole] = index[place]
            hole = place
    index[hole] = 0
    last = counts[slot] - 1
    if entry != last:
        index[_place_of(block, slot, last)] = tag_of(_code(block, slot, last), size_class + 1) | (
            entry + 1
        )
        source, target = _record(block, slot, last), _record(block, slot, entry)
        for k in range(t[WIDTH]):
            target[k] = source[k]
        if t[NULLS] != 0:
            nulls = words(t[NULLS], t[ENTRIES])
            nulls[base + entry] = nulls[base + last]
    counts[slot] = last
    return last


@njit("void(int64, int64)", cache=True)
def _shrink(block: int, slot: int) -> None:
    """Moves a window's entries of one table into a smaller region, if the region is at most one
    eighth full and a smaller region is available."""
    t = words(block, BLOCK)
    bases, classes = words(t[BASES], slot + 1), words(t[CLASSES_AT], slot + 1)
    n = words(t[COUNTS], slot + 1)[slot]
    old, old_class = bases[slot], classes[slot]
    if old_class <= SMALLEST_CLASS or 8 * n > 1 << old_class:
        return
    new_class = max(SMALLEST_CLASS, old_class - (2 if old_class <= FOURFOLD_BELOW + 1 else 1))
    new = take_region(block, new_class)
    if new < 0:
        return
    width = t[WIDTH]
    records = words(t[RECORDS], width * t[ENTRIES])
    for i in range(width * n):
        records[width * new + i] = records[width * old + i]
    if t[NULLS] != 0:
        nulls = words(t[NULLS], t[ENTRIES])
        for i in range(n):
            nulls[new + i] = nulls[old + i]
    if t[INDEX] != 0:
        index_region(block, new, new_class, n)
    free_region(block, old, old_class)
    bases[slot], classes[slot] = new, new_class


@njit("void(int64, int64)", cache=True)
def _close(desc: int, slot: int) -> None:
    """Frees the regions and the slot of a window that has no groups left. The window need not be on
    top of the heap."""
    d = words(desc, FIRST_TABLE)
    heap, window = words(d[HEAP], d[SLOTS]), words(d[IDS], d[SLOTS])[slot]
    place = 0
    while heap[place] != window:
        place += 1
    release(desc, slot, place)
    for table in range(1, d[TABLES] - 1):
        _marked(desc, table)[slot] = 0


@njit("void(int64, int64, int64)", cache=True)
def _mark(desc: int, slot: int, group: int) -> None:
    """Marks the kept entries of a group that leaves."""
    block = _groups(desc)
    latest = words(block, BLOCK)[HASHED] + LATEST - 1
    for table in range(1, words(desc, FIRST_TABLE)[TABLES] - 1):
        kept, marked = _table(desc, table), _marked(desc, table)
        entry = _record(block, slot, group)[latest + table]
        while entry != 0:
            record = _record(kept, slot, entry - 1)
            record[OWNER] = ~record[OWNER]
            marked[slot] += 1
            entry = record[EARLIER]


@njit("void(int64, int64, int64)", cache=True)
def _drop_marked(desc: int, slot: int, table: int) -> None:
    """Compacts the entries of a table: drops the marked ones and keeps the order of the others."""
    block, kept = _groups(desc), _table(desc, table)
    t = words(kept, BLOCK)
    counts = words(t[COUNTS], slot + 1)
    groups, key = words(words(block, BLOCK)[COUNTS], slot + 1)[slot], words(block, BLOCK)[HASHED]
    latest, left = key + LATEST + table - 1, 0
    for i in range(counts[slot]):  # OWNER holds the entry's new number meanwhile
        record = _record(kept, slot, i)
        if record[OWNER] >= 0:
            left += 1
            record[OWNER] = left
    for i in range(counts[slot]):
        record = _record(kept, slot, i)
        if record[OWNER] > 0 and record[EARLIER] != 0:
            record[EARLIER] = _record(kept, slot, record[EARLIER] - 1)[OWNER]
    for g in range(groups):
        group = _record(block, slot, g)
        if group[latest] != 0:
            group[latest] = _record(kept, slot, group[latest] - 1)[OWNER]
    for i in range(counts[slot]):
        source = _record(kept, slot, i)
        if source[OWNER] > 0:
            target = _record(kept, slot, source[OWNER] - 1)
            for k in range(t[WIDTH]):
                target[k] = source[k]
    for g in range(groups):
        group = _record(block, slot, g)
        entry = group[latest]
        while entry != 0:
            record = _record(kept, slot, entry - 1)
            record[OWNER] = group[key + NUMBER]
            entry = record[EARLIER]
    counts[slot] = left
    _marked(desc, table)[slot] = 0
    if t[INDEX] != 0:
        index_slot(kept, slot)
    _shrink(kept, slot)


@njit("int64(int64, int64, int64[::1])", cache=True)
def requested_groups(desc: int, slot: int, found: Any) -> int:
    """The number of groups of the requested value in a window. Writes the groups to ``found``, as
    many as fit."""
    request, block, values, n = _request(desc), _groups(desc), _values(desc), 0
    key = words(block, BLOCK)[HASHED]
    group = _record(values, slot, _find(values, slot, request[VALUE], request[NULL]))[FIRST]
    while group != 0:
        if n < found.size:
            found[n] = group - 1
        n += 1
        group = _record(block, slot, group - 1)[key + AFTER]
    return n


@njit("int64(int64, int64, int64, int64[::1], int64[::1], int64[::1])", cache=True)
def kept_of(desc: int, slot: int, table: int, groups: Any, owner: Any, places: Any) -> int:
    """The number of entries of a table that belong to the groups ``groups`` of a window. If they
    fit, writes them group by group, each group's in the order of arrival: to ``places`` the place
    of the entry in the slab, to ``owner`` the index of its group in ``groups``."""
    block, kept = _groups(desc), _table(desc, table)
    latest = words(block, BLOCK)[HASHED] + LATEST + table - 1
    base, n = words(words(kept, BLOCK)[BASES], slot + 1)[slot], 0
    for k in range(groups.size):
        first, entry = n, _record(block, slot, groups[k])[latest]
        while entry != 0:
            if n < places.size:
                owner[n], places[n] = k, base + entry - 1
            n += 1
            entry = _record(kept, slot, entry - 1)[EARLIER]
        if n <= places.size:
            places[first:n] = places[first:n][::-1].copy()
    return n


@cfunc("int64(int64, int64)", nopython=True, cache=True)
def value_entry(desc: Any, slot: Any) -> Any:
    """The entry of the requested value, which is created if it does not exist; -1: no room."""
    request, block = _request(desc), _values(desc)
    found = _find(block, slot, request[VALUE], request[NULL])
    if found >= 0:
        return found
    t = words(block, BLOCK)
    counts, size_class = words(t[COUNTS], slot + 1), words(t[CLASSES_AT], slot + 1)[slot]
    entry = counts[slot]
    if entry >= 1 << size_class:
        return -1
    counts[slot] = entry + 1
    record = _record(block, slot, entry)
    record[0], record[1], record[FIRST] = request[VALUE], request[NULL], 0
    base = words(t[BASES], slot + 1)[slot]
    index = as_i32(t[INDEX] + 4 * PLACES * base, PLACES << size_class)
    code = _code(block, slot, entry)
    place = (code >> 8) & (index.size - 1)
    while index[place] != 0:
        place = (place + 1) & (index.size - 1)
    index[place] = tag_of(code, size_class + 1) | (entry + 1)
    return entry


@cfunc("int64(int64, int64)", nopython=True, cache=True)
def link_group(desc: Any, slot: Any) -> Any:
    """Links the latest group of a window as the first group of the requested value, which must have
    an entry. Returns the number of groups of the window."""
    request, block = _request(desc), _groups(desc)
    t = words(block, BLOCK)
    n = words(t[COUNTS], slot + 1)[slot]
    value = _record(_values(desc), slot, _find(_values(desc), slot, request[VALUE], request[NULL]))
    key = t[HASHED]
    group = _record(block, slot, n - 1)
    group[key + AFTER], group[key + BEFORE] = value[FIRST], 0
    group[key + OF_VALUE], group[key + OF_NULL] = request[VALUE], request[NULL]
    if value[FIRST] != 0:
        _record(block, slot, value[FIRST] - 1)[key + BEFORE] = n
    value[FIRST] = n
    return n


@cfunc("int64(int64, int64)", nopython=True, cache=True)
def next_group(desc: Any, _: Any) -> Any:
    """A group of the requested value in the current window. If the current window has none, the
    first requested window that has one becomes current. -1: no requested window has a group of the
    value."""
    d, request = words(desc, FIRST_TABLE), _request(desc)
    values = _values(desc)
    slot = request[SLOT]
    if slot >= 0:
        found = _find(values, slot, request[VALUE], request[NULL])
        if found >= 0:
            return _record(values, slot, found)[FIRST] - 1
    slots, slot, first = d[SLOTS], -1, INFINITY
    places, ids, heap = words(d[PLACES_AT], 2 * slots), words(d[IDS], slots), words(d[HEAP], slots)
    for i in range(d[OPEN]):
        window = heap[i]
        if request[FROM] <= window and window <= request[TO] and window < first:
            one = find_slot(places, ids, 2 * slots - 1, window)
            if _find(values, one, request[VALUE], request[NULL]) >= 0:
                slot, first = one, window
    request[SLOT] = slot
    if slot < 0:
        return -1
    return _record(values, slot, _find(values, slot, request[VALUE], request[NULL]))[FIRST] - 1


@njit("void(int64, int64, int64, int64)", cache=True)
def _set_first(desc: int, slot: int, group: int, first: int) -> None:
    """Sets the first group of the value of group ``group``; 0 removes the value."""
    block = _groups(desc)
    record, key = _record(block, slot, group), words(block, BLOCK)[HASHED]
    value = _find(_values(desc), slot, record[key + OF_VALUE], record[key + OF_NULL])
    if first == 0:
        _remove(_values(desc), slot, value)
    else:
        _record(_values(desc), slot, value)[FIRST] = first


@cfunc("int64(int64, int64)", nopython=True, cache=True)
def drop_group(desc: Any, group: Any) -> Any:
    """Removes a group from the current window; returns 1 if the group was the last one and the
    window is closed."""
    request, block = _request(desc), _groups(desc)
    slot = request[SLOT]
    t = words(block, BLOCK)
    key = t[HASHED]
    record = _record(block, slot, group)
    after, before = record[key + AFTER], record[key + BEFORE]
    if before == 0:
        _set_first(desc, slot, group, after)
    else:
        _record(block, slot, before - 1)[key + AFTER] = after
    if after != 0:
        _record(block, slot, after - 1)[key + BEFORE] = before
    _mark(desc, slot, group)
    if _remove(block, slot, group) != group:  # the last group has moved to this place
        record = _record(block, slot, group)
        after, before = record[key + AFTER], record[key + BEFORE]
        if before == 0:
            _set_first(desc, slot, group, group + 1)
        else:
            _record(block, slot, before - 1)[key + AFTER] = group + 1
        if after != 0:
            _record(block, slot, after - 1)[key + BEFORE] = group + 1
    groups = words(t[COUNTS], slot + 1)[slot]
    if groups == 0:
        _close(desc, slot)
        request[SLOT] = -1
        return 1
    for table in range(1, words(desc, FIRST_TABLE)[TABLES] - 1):
        # Compaction visits all entries and all groups, so it waits until the marked entries are
        # more than half of the entries and of the groups.
        kept = words(words(_table(desc, table), BLOCK)[COUNTS], slot + 1)[slot]
        if 2 * _marked(desc, table)[slot] > max(kept, groups):
            _drop_marked(desc, slot, table)
    _shrink(block, slot)
    _shrink(_values(desc), slot)
    return 0
