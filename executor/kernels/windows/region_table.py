"""The directory of open windows, and the regions that their groups live in.

Each open window has a slot. A map (open addressing by window id) finds the slot of an id; a binary
heap of ids gives the next window to close. Each window's groups are dense in a region of 2^class
entries inside one slab that all windows share. Regions come from per-class free lists, else from
the end of the slab. When a window closes, its regions return to the free lists, which purges its
state.

The entries of a region are records of 64-bit words, so that a group's key and its aggregates share
a cache line: each cache line saved is 1 ns per row. The index of a region has PLACES places per
entry. A place holds entry + 1 (0 is empty) in its low class + 1 bits and bits of the hash above.
The index is at most one eighth full, and the hash bits tell most entries apart, so that nearly all
branches are predicted; a mispredicted branch waits for the memory that it depends on. (With 65,536
groups a half full index took 13 ns per row, a quarter full 7.3, an eighth full 6.7.)

A table without an index (``hashed`` is 0) is a log: entries are appended and read from end to end.

Generated kernels call the functions of ``CALLED`` by address and pass their descriptor, whose first
words are laid out as below. (Inlined into the row loop, these functions would use up its
registers.) All arrays are flat int64, except for the index (int32).
"""

from __future__ import annotations

from typing import Any

from numba import int64, uint64

from cql.executor.jit.decorators import cfunc, njit
from cql.executor.kernels.lib.hashing import hash_end, hash_next, hash_start
from cql.executor.kernels.lib.memory import as_i32, words

SMALLEST_CLASS = 4
FOURFOLD_BELOW = 15
PLACES = 8
CLASSES = 48

#: The first words of a windowed operator's descriptor: the directory, then a block for each table
#: (the groups, then each set of DISTINCT values). The word of an array is its address.
DIRECTORY = ("slots", "open", "spare", "places", "window_ids", "heap", "spares", "tables")
TABLE = (
    "entries",  # capacity of the slab
    "bases",  # by slot: the first entry of the region
    "classes",  # by slot: the class of the region
    "counts",  # by slot: the entries in use
    "index",  # address 0: the table has no index
    "heads",
    "top",
    "records",  # the entries: one record of words each
    "width",  # words of a record
    "hashed",  # number of leading words of a record that the hash covers
    "nulls",  # by entry: bits of its NULL keys, hashed unless 0 (address 0: no key can be NULL)
    "usual",  # the class that the latest window to close would have fitted into
    "direct",  # 1: an entry's place is the low bits of its first word, without a tag; else hashed
    "strays",  # entries of the latest region that found their places taken, if it is direct
)
SLOTS, OPEN, SPARE, PLACES_AT, IDS, HEAP, SPARES, TABLES = range(len(DIRECTORY))
(
    ENTRIES,
    BASES,
    CLASSES_AT,
    COUNTS,
    INDEX,
    HEADS,
    TOP,
    RECORDS,
    WIDTH,
    HASHED,
    NULLS,
    USUAL,
    DIRECT,
    STRAYS,
) = range(len(TABLE))
FIRST_TABLE = len(DIRECTORY)
BLOCK = len(TABLE)

#: The functions that generated kernels reach by address.
CALLED = (
    "open_window",
    "find_window",
    "grow_region",
    "close_window",
    "empty_region",
    "hash_again",
)

NO_SLOT = -1  # open_window: the directory is full; -2 - t: table t lacks room


@njit(inline="always")
def _home(window: int, mask: int) -> int:
    x = uint64(window) * uint64(0x9E3779B97F4A7C15)
    return int64(x >> uint64(40)) & mask


@njit("int64(int64[::1], int64[::1], int64, int64)", cache=True)
def find_slot(places: Any, ids: Any, mask: int, window: int) -> int:
    """The slot of a window, -1 if it is not open. ``places`` holds slot + 1, 0 is empty."""
    p = _home(window, mask)
    while True:
        s = places[p]
        if s == 0:
            return -1
        if ids[s - 1] == window:
            return s - 1
        p = (p + 1) & mask


@njit("void(int64[::1], int64[::1], int64, int64, int64)", cache=True)
def insert_slot(places: Any, ids: Any, mask: int, window: int, slot: int) -> None:
    ids[slot] = window
    p = _home(window, mask)
    while places[p] != 0:
        p = (p + 1) & mask
    places[p] = slot + 1


@njit("void(int64[::1], int64[::1], int64, int64)", cache=True)
def remove_slot(places: Any, ids: Any, mask: int, window: int) -> None:
    """Deletes a window from the map, by backward shift: tombstones would accumulate over an endless
    stream."""
    p = _home(window, mask)
    while ids[places[p] - 1] != window:
        p = (p + 1) & mask
    hole = p
    while True:
        p = (p + 1) & mask
        s = places[p]
        if s == 0:
            break
        if ((p - _home(ids[s - 1], mask)) & mask) >= ((p - hole) & mask):
            places[hole] = s
            hole = p
    places[hole] = 0


@njit("void(int64[::1], int64, int64)", cache=True)
def heap_push(heap: Any, n: int, value: int) -> None:
    i = n
    while i > 0:
        parent = (i - 1) >> 1
        if heap[parent] <= value:
            break
        heap[i] = heap[parent]
        i = parent
    heap[i] = value


@njit("void(int64[::1], int64, int64)", cache=True)
def heap_remove(heap: Any, n: int, i: int) -> None:
    """Removes the value at place ``i`` from a min-heap of ``n`` values."""
    value = heap[n - 1]
    while i > 0 and heap[(i - 1) >> 1] > value:
        heap[i] = heap[(i - 1) >> 1]
        i = (i - 1) >> 1
    while True:
        child = 2 * i + 1
        if child >= n - 1:
            break
        if child + 1 < n - 1 and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= value:
            break
        heap[i] = heap[child]
        i = child
    heap[i] = value


@njit(inline="always")
def tag_of(hashed: int, shift: int) -> int:
    """The tag of an index place: bits of a 63-bit hash, shifted left by ``shift``."""
    return ((hashed >> 32) << shift) & 0x7FFFFFFF


@njit(inline="always")
def _larger(size_class: int) -> int:
    return size_class + (2 if size_class < FOURFOLD_BELOW else 1)


def class_for(entries: int) -> int:
    """The class of a region with so many entries."""
    found = SMALLEST_CLASS
    while 1 << found < entries:
        found = _larger(found)
    return found


@njit(inline="always")
def _clear_index(t: Any, base: int, size_class: int) -> None:
    # LLVM turns an ascending loop over 64-bit words into a memset.
    index = words(t[INDEX] + 4 * PLACES * base, (PLACES << size_class) // 2)
    for i in range(index.size):
        index[i] = 0


@njit("int64(int64, int64)", cache=True)
def take_region(block: int, size_class: int) -> int:
    """The base of a free region of 2^class entries with a cleared index, -1 if the slab is full.

    ``heads[c]`` is base + 1 of the first free region of class c, whose first word links to the
    next free region; ``top[0]`` is the first entry that was never in use."""
    t = words(block, BLOCK)
    heads, top = words(t[HEADS], CLASSES), words(t[TOP], 1)
    size = 1 << size_class
    base = heads[size_class] - 1
    if base >= 0:
        heads[size_class] = words(t[RECORDS], t[WIDTH] * t[ENTRIES])[t[WIDTH] * base]
    else:
        base = top[0]
        if base + size > t[ENTRIES]:
            return -1
        top[0] = base + size
    if t[INDEX] != 0:
        _clear_index(t, base, size_class)
    return base


@njit("void(int64, int64, int64)", cache=True)
def free_region(block: int, base: int, size_class: int) -> None:
    t = words(block, BLOCK)
    heads = words(t[HEADS], CLASSES)
    words(t[RECORDS], t[WIDTH] * t[ENTRIES])[t[WIDTH] * base] = heads[size_class]
    heads[size_class] = base + 1


@njit("int64(int64)", cache=True)
def _first_class(block: int) -> int:
    """The class of the first region of a new window: the class ``usual`` of the latest window to
    close, if a region of this class is free, so that the window need not grow; else
    SMALLEST_CLASS, so that no memory is taken for a guess. (``usual`` is 0 before the first window
    closes; no region has class 0.)"""
    t = words(block, BLOCK)
    usual = t[USUAL]
    return usual if words(t[HEADS], CLASSES)[usual] != 0 else SMALLEST_CLASS


@njit("void(int64, int64, int64, int64)", cache=True)
def index_region(block: int, base: int, size_class: int, n: int) -> None:
    """Enters the ``n`` entries of a region into its empty index."""
    t = words(block, BLOCK)
    width = t[WIDTH]
    records, nulls = words(t[RECORDS], width * t[ENTRIES]), words(t[NULLS], t[ENTRIES])
    index = as_i32(t[INDEX] + 4 * PLACES * base, PLACES << size_class)
    mask = (PLACES << size_class) - 1
    for i in range(n):
        record = width * (base + i)
        p, tag = records[record] & mask, 0
        if t[DIRECT] == 0:
            h = hash_start(records[record])
            for k in range(1, t[HASHED]):
                h = hash_next(h, records[record + k])
            if t[NULLS] != 0 and nulls[base + i] != 0:
                h = hash_next(h, nulls[base + i])
            code = hash_end(h)
            p, tag = (code >> 8) & mask, tag_of(code, size_class + 1)
        while index[p] != 0:
            p = (p + 1) & mask
        index[p] = tag | (i + 1)


@njit("void(int64, int64)", cache=True)
def index_slot(block: int, slot: int) -> None:
    """Rebuilds the index of an open window in one table."""
    t = words(block, BLOCK)
    base, size_class = words(t[BASES], slot + 1)[slot], words(t[CLASSES_AT], slot + 1)[slot]
    _clear_index(t, base, size_class)
    index_region(block, base, size_class, words(t[COUNTS], slot + 1)[slot])


@njit("void(int64, int64[::1])", cache=True)
def index_again(block: int, slots: Any) -> None:
    """Rebuilds the indexes of the open windows ``slots`` after the hashed words have changed."""
    for slot in slots:
        index_slot(block, slot)


@cfunc("int64(int64, int64)", nopython=True, cache=True)
def open_window(desc: Any, window: Any) -> Any:
    """The slot of a window, which is opened if it is not open. Without room the call changes
    nothing and returns NO_SLOT (the directory is full) or -2 - t (table t is full)."""
    d = words(desc, FIRST_TABLE)
    slots = d[SLOTS]
    places, ids = words(d[PLACES_AT], 2 * slots), words(d[IDS], slots)
    found = find_slot(places, ids, 2 * slots - 1, window)
    if found >= 0:
        return found
    if d[SPARE] == 0:
        return NO_SLOT
    slot = words(d[SPARES], slots)[d[SPARE] - 1]
    for t in range(d[TABLES]):
        block = desc + 8 * (FIRST_TABLE + t * BLOCK)
        size_class = _first_class(block)
        base = take_region(block, size_class)
        if base < 0:
            for done in range(t):
                other = desc + 8 * (FIRST_TABLE + done * BLOCK)
                table = words(other, BLOCK)
                base = words(table[BASES], slots)[slot]
                free_region(other, base, words(table[CLASSES_AT], slots)[slot])
            return -2 - t
        table = words(block, BLOCK)
        words(table[BASES], slots)[slot] = base
        words(table[CLASSES_AT], slots)[slot] = size_class
        words(table[COUNTS], slots)[slot] = 0
    insert_slot(places, ids, 2 * slots - 1, window, slot)
    heap_push(words(d[HEAP], slots), d[OPEN], window)
    d[SPARE] -= 1
    d[OPEN] += 1
    return slot


@cfunc("int64(int64, int64)", nopython=True, cache=True)
def find_window(desc: Any, window: Any) -> Any:
    """The slot of a window, -1 if it is not open."""
    d = words(desc, FIRST_TABLE)
    slots = d[SLOTS]
    return find_slot(words(d[PLACES_AT], 2 * slots), words(d[IDS], slots), 2 * slots - 1, window)


@njit("void(int64, int64, int64)", cache=True)
def release(desc: int, slot: int, place: int) -> None:
    """Frees the regions and the slot of the window at ``place`` in the heap."""
    d = words(desc, FIRST_TABLE)
    slots = d[SLOTS]
    for t in range(d[TABLES]):
        block = desc + 8 * (FIRST_TABLE + t * BLOCK)
        table = words(block, BLOCK)
        base = words(table[BASES], slots)[slot]
        free_region(block, base, words(table[CLASSES_AT], slots)[slot])
    ids = words(d[IDS], slots)
    remove_slot(words(d[PLACES_AT], 2 * slots), ids, 2 * slots - 1, ids[slot])
    heap_remove(words(d[HEAP], slots), d[OPEN], place)
    words(d[SPARES], slots)[d[SPARE]] = slot
    d[SPARE] += 1
    d[OPEN] -= 1


@cfunc("int64(int64, int64)", nopython=True, cache=True)
def close_window(desc: Any, slot: Any) -> Any:
    """Frees the regions and the slot of the window on top of the heap, which has slot ``slot``, and
    notes the class that would have fitted it."""
    d = words(desc, FIRST_TABLE)
    for t in range(d[TABLES]):
        table = words(desc + 8 * (FIRST_TABLE + t * BLOCK), BLOCK)
        usual = SMALLEST_CLASS
        while (1 << usual) < words(table[COUNTS], d[SLOTS])[slot]:
            usual = _larger(usual)
        table[USUAL] = usual
    release(desc, slot, 0)
    return 0


@cfunc("int64(int64, int64)", nopython=True, cache=True)
def hash_again(desc: Any, _: Any) -> Any:
    """Switches the groups from direct places to hashed places and rebuilds the indexes of all open
    windows."""
    d, block = words(desc, FIRST_TABLE), desc + 8 * FIRST_TABLE
    words(block, BLOCK)[DIRECT] = 0
    slots = d[SLOTS]
    places, ids, heap = words(d[PLACES_AT], 2 * slots), words(d[IDS], slots), words(d[HEAP], slots)
    for i in range(d[OPEN]):
        index_slot(block, find_slot(places, ids, 2 * slots - 1, heap[i]))
    return 0


@cfunc("int64(int64, int64)", nopython=True, cache=True)
def grow_region(block: Any, slot: Any) -> Any:
    """Moves a window's entries of one table into a larger region (4 times as large below class
    FOURFOLD_BELOW, else twice as large) and rebuilds the index. Returns the base of the new region,
    -1 if the slab is full."""
    t = words(block, BLOCK)
    bases, classes = words(t[BASES], slot + 1), words(t[CLASSES_AT], slot + 1)
    n = words(t[COUNTS], slot + 1)[slot]
    old, old_class = bases[slot], classes[slot]
    new_class = _larger(old_class)
    new = take_region(block, new_class)
    if new < 0:
        return -1
    width = t[WIDTH]
    records = words(t[RECORDS], width * t[ENTRIES])
    for i in range(width * n):
        records[width * new + i] = records[width * old + i]
    nulls = words(t[NULLS], t[ENTRIES])
    if t[NULLS] != 0:
        for i in range(n):
            nulls[new + i] = nulls[old + i]
    if t[INDEX] != 0:
        index_region(block, new, new_class, n)
    free_region(block, old, old_class)
    bases[slot] = new
    classes[slot] = new_class
    return new


@cfunc("int64(int64, int64)", nopython=True, cache=True)
def empty_region(block: Any, slot: Any) -> Any:
    """Removes all entries from a window's region of one table; the region keeps its size."""
    t = words(block, BLOCK)
    _clear_index(t, words(t[BASES], slot + 1)[slot], words(t[CLASSES_AT], slot + 1)[slot])
    words(t[COUNTS], slot + 1)[slot] = 0
    return 0
