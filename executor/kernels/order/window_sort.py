"""The native function of ORDER BY … LIMIT and of ROW_NUMBER() within windows: rows wait in a slab,
in a list per open window, and leave in order when punctuation closes the window.

A list is sorted when its window closes: a stable merge sort of pairs (a number that sorts like the
first key, slot); rows that are equal in one key are then sorted by the next key. With a LIMIT, a
list is cut by selection as soon as it holds twice as many rows as can leave. From then on, a row
that does not precede the last row of the cut list is left out before it is copied. With a LIMIT per
partition of ROW_NUMBER(), a list is sorted to be cut, each time that it is twice as long as then.
"""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import cfunc, njit
from cql.executor.kernels.drive.passing import send
from cql.executor.kernels.lib.memory import as_i32, as_u8, integer_at, words
from cql.executor.kernels.morsel_layout import (
    CAPACITY,
    CURSOR,
    DETAIL,
    DETAIL_ROW,
    DONE,
    END_OF_INPUT,
    EPOCH,
    HEADER,
    IDLE,
    INFINITY,
    NEED,
    OUT,
    OUTPUT_FULL,
    PHASE,
    PUNCTUATION_ADDRESS,
    PUNCTUATION_WORDS,
    PUNCTUATIONS,
    ROWS,
    SEQUENCE,
    SERIAL,
    SUB,
)
from cql.executor.kernels.morsel_layout import CHOSEN as SELECTED
from cql.executor.kernels.order.row_slab import (
    CHOSEN,
    HELD,
    NEXT,
    OWN,
    PLACES,
    SLOTS,
    compare_slots,
    give_back,
    give_rows,
    store_rows,
    unranked,
)
from cql.executor.kernels.order.sort_keys import (
    AT,
    COLUMNS,
    DATA,
    KEY_COLUMN,
    KEYS,
    MASK,
    NULLS_FIRST,
    column_at,
    compare_between,
    key_at,
    key_word,
    key_words,
    size_of,
    whole,
)
from cql.executor.kernels.order.top_n import select

# Requests of the operator (DETAIL of NEED).
NEED_SLOTS = 0  # room for DETAIL_ROW more rows
NEED_WINDOWS = 1  # room for more windows
NEED_RANK = 2  # the ranks of the texts that came since the last ranks
NEED_ORDER = 3  # room to sort DETAIL_ROW rows

# Descriptor: behind the words of the slab, the words below, then a word per column: whether the
# column progresses.
WINDOW = OWN  # column of the end of the window; -1: there is one window
FIRST_OUT = OWN + 1  # OFFSET of the query
LAST_OUT = OWN + 2  # OFFSET + LIMIT; the LIMIT of each partition of ROW_NUMBER()
PARTITION = OWN + 3  # number of leading keys that are the partition of ROW_NUMBER()
NUMBERED = OWN + 4  # whether the output has the row number as its last column
CLOSED = OWN + 5  # windows that end below this watermark are closed
OPEN = OWN + 6  # open windows
ROOM = OWN + 7  # capacity for windows
SORTED = OWN + 8  # capacity for rows that are sorted
LEAVING = OWN + 9  # slot of the next row that leaves from the closed window; -1: none is left
BEFORE = OWN + 10  # slot of the row that left before that row
PLACE = OWN + 11  # number of that earlier row in its partition, from 1
STORED = OWN + 12  # rows of the present piece of a morsel that have slots
LONG = OWN + 13  # rows with which a list is cut first
ORDERED = OWN + 14  # whether the output has two order columns: window, partition (of integers)
# Counters.
ROWS_IN = OWN + 15
ROWS_OUT = OWN + 16
LATE = OWN + 17
OVER_LIMIT = OWN + 18
# Addresses.
WINDOWS = OWN + 19  # records of the open windows, by end
LEADS = OWN + 20  # twice SORTED: numbers that sort like the rows
ORDER = OWN + 21  # int32, twice SORTED: the slots of the rows
LAST = OWN + 22  # numbers by which rows are compared with the last row of a cut list: its own, a
# word per key, and those of a piece's rows by the first key
FIRST = OWN + 23

WINDOW_WORDS = 6
#: Words of a window: its end, its list, the slot of the last row that can leave (-1: unknown), and
#: the number of rows with which the list is cut.
END, HEAD, TAIL, COUNT, WORST, FULL = range(WINDOW_WORDS)
#: The rows of a morsel that are compared, stored and linked at a time if there is a LIMIT: a list
#: that is cut for some of them leaves out most of the others before they are stored.
PIECE = 128
#: Length in rows of the runs that insertion sorts before the runs are merged.
_RUN = 8


# -- order -----------------------------------------------------------------------------------------


@njit(inline="always")
def _is_level(d: Any, level: int) -> bool:
    """Whether rows can differ in a level. Each key has two levels: whether the value is NULL, then
    the value."""
    return level & 1 == 1 or d[column_at(d, d[key_at(d, level >> 1) + KEY_COLUMN]) + MASK] != 0


@njit(inline="always")
def _lead(d: Any, level: int, slot: int) -> int:
    """A number that sorts like the row in a slot by a level."""
    key = key_at(d, level >> 1)
    column = column_at(d, d[key + KEY_COLUMN])
    valid = d[column + MASK] == 0 or as_u8(d[column + MASK], 1)[slot] != 0
    if level & 1 == 0:
        null = 0 if d[key + NULLS_FIRST] != 0 else 2
        return 1 if valid else null
    return key_word(d, level >> 1, d[column + DATA], slot) if valid else 0


@njit("void(int64[::1], int64, int64)", cache=True)
def _sort_by_leads(d: Any, first: int, end: int) -> None:
    """Sorts the places ``first`` to ``end`` by their numbers; the sort is stable."""
    leads, order = words(d[LEADS], 2 * d[SORTED]), as_i32(d[ORDER], 2 * d[SORTED])
    for run in range(first, end, _RUN):
        for k in range(run + 1, min(run + _RUN, end)):
            lead, slot, at = leads[k], order[k], k
            while at > run and leads[at - 1] > lead:
                leads[at], order[at] = leads[at - 1], order[at - 1]
                at -= 1
            leads[at], order[at] = lead, slot
    half, width = d[SORTED], _RUN  # ``half`` is the offset of the second half of the arrays
    source, target = 0, half
    while width < end - first:
        for run in range(first, end, 2 * width):
            a, b = source + run, source + min(run + width, end)
            middle, last = b, source + min(run + 2 * width, end)
            for k in range(target + run, target + last - source):
                if a < middle and (b == last or leads[a] <= leads[b]):
                    leads[k], order[k] = leads[a], order[a]
                    a += 1
                else:
                    leads[k], order[k] = leads[b], order[b]
                    b += 1
        source, target = target, source
        width *= 2
    if source != 0:
        for k in range(first, end):
            leads[k], order[k] = leads[half + k], order[half + k]


@njit("void(int64[::1], int64, int64, int64)", cache=True)
def _sort(d: Any, level: int, first: int, end: int) -> None:
    """Sorts the rows at places ``first`` to ``end``, which are equal in all levels before
    ``level``."""
    if level < 2 * d[KEYS] and not _is_level(d, level):
        level += 1
    if level >= 2 * d[KEYS] or end - first < 2:
        return
    leads, order = words(d[LEADS], 2 * d[SORTED]), as_i32(d[ORDER], 2 * d[SORTED])
    for k in range(first, end):
        leads[k] = _lead(d, level, int(order[k]))
    _sort_by_leads(d, first, end)
    begin = first
    for k in range(first + 1, end + 1):
        if k == end or leads[k] != leads[begin]:
            if k - begin > 1:
                _sort(d, level + 1, begin, k)  # overwrites LEADS there, which nobody reads again
            begin = k


@njit("void(int64[::1], int64[::1])", cache=True)
def _list(d: Any, w: Any) -> None:
    """Writes the slots of a window's list to ORDER."""
    links, order = as_i32(d[NEXT], d[SLOTS]), as_i32(d[ORDER], 2 * d[SORTED])
    slot = w[HEAD]
    for k in range(w[COUNT]):
        order[k] = slot
        slot = int(links[slot])


@njit("void(int64[::1], int64[::1], int64, int64)", cache=True)
def _link(d: Any, w: Any, first: int, end: int) -> None:
    """Makes the slots at places ``first`` to ``end`` the list of a window."""
    links, order = as_i32(d[NEXT], d[SLOTS]), as_i32(d[ORDER], 2 * d[SORTED])
    w[HEAD] = w[TAIL] = -1
    w[COUNT] = end - first
    for k in range(first, end):
        slot = int(order[k])
        if w[TAIL] >= 0:
            links[w[TAIL]] = slot
        else:
            w[HEAD] = slot
        w[TAIL] = slot
        links[slot] = -1


@njit("int64(int64[::1], int64, int64)", cache=True)
def _first(d: Any, n: int, wanted: int) -> int:
    """Of the ``n`` rows at the places from 0 on, leaves out all behind the first ``wanted`` ones by
    the keys, and moves these to the first places, in their present order. Returns the slot of the
    last one by the keys; -1: there is none.

    For one level after the other, selection finds the number of that row (Hoare: Algorithm 65,
    Find, 1961); the next level examines only the rows with that number."""
    links, order = as_i32(d[NEXT], d[SLOTS]), as_i32(d[ORDER], 2 * d[SORTED])
    leads, half = words(d[LEADS], 2 * d[SORTED]), d[SORTED]
    examined, copies = order[half:], leads[half:]
    for k in range(n):
        examined[k] = k
    left, last = n, -1
    for level in range(2 * d[KEYS] if wanted > 0 else 0):
        if left == 1 or not _is_level(d, level):
            continue
        for k in range(left):
            leads[k] = copies[k] = _lead(d, level, int(order[examined[k]]))
        lead, same = select(copies, left, wanted - 1), 0
        for k in range(left):
            place = examined[k]
            if leads[k] < lead:
                order[place] = ~order[place]  # to keep
                wanted -= 1
            elif leads[k] == lead:
                examined[same] = place
                same += 1
        left = same
    for k in range(wanted):
        last = int(order[examined[k]])
        order[examined[k]] = ~order[examined[k]]
    kept = 0
    for k in range(n):
        if order[k] < 0:
            order[kept] = ~order[k]
            kept += 1
        else:
            give_back(d, links, int(order[k]))
    d[OVER_LIMIT] += n - kept
    return last


@njit("int64(int64[::1], int64)", cache=True)
def _first_of_partitions(d: Any, n: int) -> int:
    """Leaves out the rows behind the LIMIT of their partition, of the ``n`` rows that are in order
    at the places from 0 on. Returns the number of the others."""
    links, order = as_i32(d[NEXT], d[SLOTS]), as_i32(d[ORDER], 2 * d[SORTED])
    kept, number, before = 0, 0, -1
    for k in range(n):
        slot = int(order[k])
        same = before >= 0 and compare_slots(d, d[PARTITION], before, slot) == 0
        number = number + 1 if same else 1
        if number <= d[LAST_OUT]:
            order[kept], before = slot, slot  # the first rows tell which partition it is
            kept += 1
        else:
            give_back(d, links, slot)
    d[OVER_LIMIT] += n - kept
    return kept


@njit("void(int64[::1], int64[::1])", cache=True)
def _cut(d: Any, w: Any) -> None:
    """Leaves out the rows of a list that cannot leave, since as many others precede them as can."""
    _list(d, w)
    if d[NUMBERED] == 0:
        w[WORST] = _first(d, w[COUNT], d[LAST_OUT])
        _link(d, w, 0, d[LAST_OUT])
        return
    _sort(d, 0, 0, w[COUNT])
    _link(d, w, 0, _first_of_partitions(d, w[COUNT]))
    w[FULL] = max(d[LONG], 2 * w[COUNT])


@njit("void(int64[::1], int64[::1])", cache=True)
def _finish(d: Any, w: Any) -> None:
    """Puts the list of a window in order and leaves out the rows that do not leave."""
    links, order = as_i32(d[NEXT], d[SLOTS]), as_i32(d[ORDER], 2 * d[SORTED])
    _list(d, w)
    n, first = w[COUNT], min(w[COUNT], d[FIRST_OUT])
    if n > d[LAST_OUT] and d[NUMBERED] == 0:
        n = d[LAST_OUT]
        _first(d, w[COUNT], n)
    _sort(d, 0, 0, n)
    if d[LAST_OUT] < INFINITY and d[NUMBERED] != 0:
        n = _first_of_partitions(d, n)
    for k in range(first):
        give_back(d, links, int(order[k]))
    d[OVER_LIMIT] += first
    _link(d, w, first, n)


# -- a morsel comes in -----------------------------------------------------------------------------


@njit(inline="always")
def _end(d: Any, data: int, at: int) -> int:
    return integer_at(data, size_of(d, d[WINDOW]), at) if d[WINDOW] >= 0 else 0


@njit("int64(int64[::1], int64)", cache=True)
def _place(d: Any, end: int) -> int:
    """The number of open windows that end before ``end``."""
    records = words(d[WINDOWS], WINDOW_WORDS * d[ROOM])
    low, high = 0, d[OPEN]
    if high > 0 and records[WINDOW_WORDS * (high - 1) + END] <= end:
        low = high - int(records[WINDOW_WORDS * (high - 1) + END] == end)
        high = low
    while low < high:
        middle = (low + high) >> 1
        if records[WINDOW_WORDS * middle + END] < end:
            low = middle + 1
        else:
            high = middle
    return low


@njit("int64(int64[::1], int64)", cache=True)
def _worst(d: Any, end: int) -> int:
    """The last row of the cut list of the window with that end; -1: there is none."""
    low = _place(d, end)
    if low == d[OPEN]:
        return -1
    w = words(d[WINDOWS] + 8 * WINDOW_WORDS * low, WINDOW_WORDS)
    return w[WORST] if w[END] == end else -1


@njit("boolean(int64[::1], int64[::1], int64[::1], int64, int64, int64)", cache=True)
def _follows(d: Any, u: Any, leads: Any, k: int, row: int, slot: int) -> bool:
    """Whether a row of a morsel does not precede the row in a slot, whose keys are ``leads``. Both
    are equal in the keys before ``k``."""
    while k < d[KEYS]:
        column = d[key_at(d, k) + KEY_COLUMN]
        if d[column_at(d, column) + MASK] != 0:
            return compare_between(d, d, d[AT], u, HEADER, d[KEYS], slot, row) <= 0
        own = key_word(d, k, u[HEADER + 2 * column], row)
        if own != leads[k]:
            return own > leads[k]
        k += 1
    return True


@njit(inline="always")
def _compares(d: Any) -> bool:
    """Whether rows are compared with the last row of a cut list. Then each instance sees all rows
    of a morsel."""
    return d[LAST_OUT] < INFINITY and d[NUMBERED] == 0


@njit("int64(int64[::1], int64[::1], int64, int64)", cache=True)
def _pick(d: Any, u: Any, first: int, stop: int) -> int:
    """Writes the numbers of the kept rows from ``first`` to ``stop`` to CHOSEN; returns their
    number. Not kept: a row of a closed window, whose input was idle when the window closed; and a
    row that does not precede the last row of the cut list of its window."""
    chosen = as_i32(d[CHOSEN], stop - first)
    data = u[HEADER + 2 * d[WINDOW]] if d[WINDOW] >= 0 else 0
    selected: Any = u[SELECTED]
    listed = as_i32(selected, stop if selected != 0 else 0)
    limited, seen, worst = _compares(d), INFINITY, -1
    leads = words(d[LAST], d[KEYS] + PIECE)
    own = leads[d[KEYS] :]
    # The first key decides about most rows, unless it can be NULL.
    column: Any = d[key_at(d, 0) + KEY_COLUMN] if limited and d[KEYS] > 0 else -1
    plain = column >= 0 and d[column_at(d, column) + MASK] == 0
    if plain:
        key_words(d, 0, u[HEADER + 2 * column], first, own[: stop - first])
    kept, late = 0, 0
    for i in range(first, stop):
        row: Any = listed[i] if selected != 0 else i
        end = _end(d, data, row)
        if end < d[CLOSED]:
            late += 1
            continue
        if limited and end != seen:
            seen, worst = end, _worst(d, end)
            for k in range(d[KEYS] if worst >= 0 else 0):
                at = column_at(d, d[key_at(d, k) + KEY_COLUMN])
                leads[k] = key_word(d, k, d[at + DATA], worst)
        if worst >= 0:
            lead = own[i - first] if plain else leads[0]
            if lead > leads[0]:
                continue
            if lead == leads[0] and _follows(d, u, leads, int(plain), i, worst):
                continue
        chosen[kept] = row
        kept += 1
    d[LATE] += late
    d[OVER_LIMIT] += stop - first - late - kept
    return kept


@njit("int64(int64[::1], int64)", cache=True)
def _window(d: Any, end: int) -> int:
    """The record of the window with that end, opened if needed; -1: there is no room."""
    records, low = words(d[WINDOWS], WINDOW_WORDS * d[ROOM]), _place(d, end)
    at = WINDOW_WORDS * low
    if low < d[OPEN] and records[at + END] == end:
        return at
    if d[OPEN] == d[ROOM]:
        return -1
    for k in range(WINDOW_WORDS * d[OPEN] - 1, at - 1, -1):
        records[k + WINDOW_WORDS] = records[k]
    d[OPEN] += 1
    records[at + END], records[at + COUNT] = end, 0
    records[at + HEAD] = records[at + TAIL] = records[at + WORST] = -1
    records[at + FULL] = d[LONG]
    return at


@njit("int64(int64[::1], int64[::1])", cache=True)
def _wait(d: Any, u: Any) -> int:
    """Links the stored rows, from SUB on, to the lists of their windows. Returns -1 when all are
    linked, or the request of the operator (NEED_WINDOWS or NEED_ORDER)."""
    links, places = as_i32(d[NEXT], d[SLOTS]), as_i32(d[PLACES], d[STORED])
    data = d[column_at(d, d[WINDOW]) + DATA] if d[WINDOW] >= 0 else 0
    for i in range(u[SUB], d[STORED]):
        slot = int(places[i])
        u[SUB] = i
        at = _window(d, _end(d, data, slot))
        if at < 0:
            return NEED_WINDOWS
        w = words(d[WINDOWS] + 8 * at, WINDOW_WORDS)
        if w[COUNT] >= w[FULL]:
            if d[SORTED] < w[COUNT]:
                u[DETAIL_ROW] = w[COUNT]
                return NEED_ORDER
            _cut(d, w)
        if w[WORST] >= 0 and compare_slots(d, d[KEYS], w[WORST], slot) <= 0:
            give_back(d, links, slot)
            d[OVER_LIMIT] += 1
            continue
        links[slot] = -1
        if w[TAIL] >= 0:
            links[w[TAIL]] = slot
        else:
            w[HEAD] = slot
        w[TAIL] = slot
        w[COUNT] += 1
    u[SUB] = d[STORED]
    return -1


@njit("int64(int64[::1], int64[::1])", cache=True)
def _take(d: Any, u: Any) -> int:
    """Takes the rows of a morsel, piece by piece. Returns -1 when all have been taken, or the
    request of the operator; the morsel's CURSOR is the first row behind the present piece."""
    piece = PIECE if _compares(d) else u[ROWS]
    while True:
        lacks = _wait(d, u)
        if lacks >= 0 or u[CURSOR] >= u[ROWS]:
            return lacks
        stop = min(u[CURSOR] + piece, u[ROWS])
        if d[SLOTS] - d[HELD] < stop - u[CURSOR]:
            u[DETAIL_ROW] = stop - u[CURSOR]
            return NEED_SLOTS
        d[STORED] = _pick(d, u, u[CURSOR], stop)
        store_rows(d, u, d[STORED])
        u[CURSOR], u[SUB] = stop, 0


@njit("void(int64[::1], int64[::1])", cache=True)
def _note_progress(d: Any, u: Any) -> None:
    arrived = words(u[PUNCTUATION_ADDRESS], PUNCTUATION_WORDS * u[PUNCTUATIONS])
    for p in range(u[PUNCTUATIONS]):
        record = PUNCTUATION_WORDS * p
        if arrived[record] == END_OF_INPUT:
            d[CLOSED] = INFINITY
        elif arrived[record] == d[WINDOW] and d[WINDOW] >= 0 and arrived[record + 2] < 0:
            d[CLOSED] = max(d[CLOSED], arrived[record + 1])


# -- rows leave ------------------------------------------------------------------------------------


@njit("int64(int64[::1])", cache=True)
def _close(d: Any) -> int:
    """Closes the first window and lets its rows leave (LEAVING). Returns 1; 0 if no window is to
    close yet; -1 if there is no room to sort the window's rows."""
    if d[OPEN] == 0:
        return 0
    records = words(d[WINDOWS], WINDOW_WORDS * d[OPEN])
    if records[END] >= d[CLOSED] and d[CLOSED] < INFINITY:
        return 0
    if d[SORTED] < records[COUNT]:
        return -1
    _finish(d, records[:WINDOW_WORDS])
    d[LEAVING], d[BEFORE], d[PLACE] = records[HEAD], -1, 0
    d[OPEN] -= 1
    for k in range(WINDOW_WORDS * d[OPEN]):
        records[k] = records[k + WINDOW_WORDS]
    return 1


@njit("int64(int64[::1], int64[::1], int64)", cache=True)
def _draw(d: Any, o: Any, n: int) -> int:
    """Takes rows from the closed window and appends them to the ``n`` rows of the output; returns
    the new number of rows."""
    links, places = as_i32(d[NEXT], d[SLOTS]), as_i32(d[PLACES], o[CAPACITY])
    numbers = as_i32(o[HEADER + 2 * d[COLUMNS]], o[CAPACITY]) if d[NUMBERED] != 0 else places
    while n < o[CAPACITY] and d[LEAVING] >= 0:
        slot = d[LEAVING]
        places[n] = slot
        if d[NUMBERED] != 0:
            same = d[BEFORE] >= 0 and compare_slots(d, d[PARTITION], d[BEFORE], slot) == 0
            d[PLACE] = d[PLACE] + 1 if same else 1
            d[BEFORE] = slot
            numbers[n] = d[PLACE]
        d[LEAVING] = links[slot]
        n += 1
    return n


@njit("void(int64[::1], int64[::1], int64)", cache=True)
def _give_order(d: Any, o: Any, n: int) -> None:
    """Writes the order columns of the ``n`` rows at PLACES: the end of the window, and the first
    column of the partition. Where that can be NULL, the first order column says so, too: NULLs come
    first."""
    places, at = as_i32(d[PLACES], n), HEADER + 2 * (d[COLUMNS] + d[NUMBERED])
    windows, partitions = words(o[at], n), words(o[at + 2], n)
    column = column_at(d, d[key_at(d, 0) + KEY_COLUMN])
    ends: Any = d[column_at(d, d[WINDOW]) + DATA]
    nullable = d[column + MASK] != 0
    for i in range(n):
        slot = int(places[i])
        valid = not nullable or as_u8(d[column + MASK], 1)[slot] != 0
        end = integer_at(ends, size_of(d, d[WINDOW]), slot)
        windows[i] = 2 * end + int(valid) if nullable else end
        partitions[i] = key_word(d, 0, d[column + DATA], slot) if valid else 0


@njit("int64(int64[::1], int64[::1], int64[::1])", cache=True)
def _release(d: Any, u: Any, o: Any) -> int:
    o[SERIAL], o[EPOCH], o[SEQUENCE] = u[SERIAL], u[EPOCH], d[ROWS_OUT]
    n, code = 0, DONE
    while code == DONE:
        n = _draw(d, o, n)
        if d[LEAVING] >= 0:
            code = OUTPUT_FULL
            break
        closed = _close(d)
        if closed == 0:
            break
        if closed < 0:
            u[DETAIL], u[DETAIL_ROW] = NEED_ORDER, words(d[WINDOWS], WINDOW_WORDS)[COUNT]
            # The rows drawn so far leave first; the next call with an empty output requests room.
            code = OUTPUT_FULL if n > 0 else NEED
    if d[ORDERED] != 0:
        _give_order(d, o, n)
    give_rows(d, o, n)
    o[ROWS] = n
    d[ROWS_OUT] += n
    return code


@njit("void(int64[::1], int64[::1], int64[::1])", cache=True)
def _punctuate(d: Any, u: Any, o: Any) -> None:
    """Passes on the punctuation of the input behind the rows that have left."""
    arrived = words(u[PUNCTUATION_ADDRESS], PUNCTUATION_WORDS * u[PUNCTUATIONS])
    leaving = words(o[PUNCTUATION_ADDRESS], PUNCTUATION_WORDS * u[PUNCTUATIONS])
    n = 0
    for p in range(u[PUNCTUATIONS]):
        record = PUNCTUATION_WORDS * p
        attribute, value = arrived[record], arrived[record + 1]
        forwarded = attribute in (END_OF_INPUT, IDLE)
        if attribute >= 0 and arrived[record + 2] < 0:
            forwarded = d[FIRST + attribute] != 0
        if forwarded:
            n = send(leaving, n, attribute, INFINITY if attribute == END_OF_INPUT else value)
    o[PUNCTUATIONS] = n


@cfunc("int64(int64, int64)", nopython=True, cache=True)
def sort_windows(desc: Any, morsel: Any) -> Any:
    d = whole(desc)
    width = HEADER + 2 * (d[COLUMNS] + d[NUMBERED] + 2 * d[ORDERED])
    u = words(morsel, HEADER + 2 * d[COLUMNS])
    o = words(u[OUT], width)
    if u[PHASE] == 0:
        if unranked(d, u):
            u[DETAIL] = NEED_RANK
            return NEED
        d[ROWS_IN] += u[ROWS]
        u[CURSOR], u[SUB], d[STORED], u[PHASE] = 0, 0, 0, 1
    if u[PHASE] == 1:
        lacks = _take(d, u)
        if lacks >= 0:
            u[DETAIL] = lacks
            return NEED
        _note_progress(d, u)
        u[PHASE] = 2
    code = _release(d, u, o)
    if code == DONE:
        _punctuate(d, u, o)
    return code
