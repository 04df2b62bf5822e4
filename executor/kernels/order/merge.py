"""The native function of the operators with ordered output: the order-preserving union (IOP's
Merge, out-of-order paper §2 and §5.4) and the sort that punctuation releases (§5.5).

Rows wait in a slab, linked into *runs* that are in order. An input in order is one run. A row below
the tail of every run of its input begins a new run (patience sorting: a small disorder gives few
runs). A binary heap of the runs' heads merges the runs. A row leaves when the watermark of every
input is above its time: no later row can precede it then. Equal times keep the order of the further
sort keys, then of the inputs, then of arrival; the output depends neither on the alternation of the
inputs nor on the ends of morsels.

A late row (a row below its row watermark) would break the order: it is left out and counted. A row
whose time is NULL has no place in the order: it leaves first, or is a bad row (``REFUSES_NULL``).
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
    ERROR,
    HEADER,
    IDLE,
    INFINITY,
    LATE_ROW_ADDRESS,
    LATE_ROW_WORDS,
    LATE_ROWS,
    NEED,
    NEVER,
    OUT,
    OUTPUT_FULL,
    PHASE,
    PORT,
    PUNCTUATION_ADDRESS,
    PUNCTUATION_WORDS,
    PUNCTUATIONS,
    ROWS,
    SEQUENCE,
    SERIAL,
    SUB,
)
from cql.executor.kernels.order.row_slab import (
    CHOSEN,
    HELD,
    NEXT,
    OWN,
    PLACES,
    SLOTS,
    compare_slots,
    give_rows,
    store_rows,
    unranked,
)
from cql.executor.kernels.order.sort_keys import (
    COLUMNS,
    DATA,
    KEYS,
    MASK,
    column_at,
    move_values,
    size_of,
    whole,
)

# Requests of the operator (DETAIL of NEED).
NEED_SLOTS = 0  # room for DETAIL_ROW more rows
NEED_RUNS = 1  # room for more runs
NEED_RANK = 2  # the ranks of the texts that came since the last ranks

# Descriptor: behind the words of the slab, the words below, then PORT_WORDS words per port.
PORTS = OWN
ORDER = OWN + 1  # column of the time
REFUSES_NULL = OWN + 2  # whether a row without a time is a bad row
RUNS = OWN + 3  # capacity of the tables of runs
OPEN = OWN + 4  # runs that have rows
BORN = OWN + 5  # runs so far
PUNCTUATED = OWN + 6  # the latest punctuation sent
ENDED = OWN + 7
# Counters.
ROWS_IN = OWN + 8
ROWS_OUT = OWN + 9
LATE = OWN + 10
# Addresses.
TIMES = OWN + 11  # int64 per slot; the time column itself if its values are int64
HEAP = OWN + 12  # heap of the runs, by their heads
HEADS = OWN + 13
TAILS = OWN + 14
AGES = OWN + 15  # port << PORT_SHIFT | creation number: the order of runs with equal heads
SPARES = OWN + 16  # stack of the free runs
LISTS = OWN + 17  # per port, its runs in the order of creation; their tails descend
IDLING = OWN + 18  # the state of the output sent last: 1: idle, as all inputs are; 0: not idle
FIRST = OWN + 19

PORT_WORDS = 5
#: Words of a port: its watermark, whether it has ended, the number of its runs, whether it is idle,
#: the number of its rows below the watermark that the output reached while the port was idle.
MARK, DONE_AT, COUNT, SILENT, TOO_LATE = range(PORT_WORDS)
PORT_SHIFT = 44


@njit(inline="always")
def _compare(d: Any, times: Any, a: int, b: int) -> int:
    if times[a] != times[b]:
        return -1 if times[a] < times[b] else 1
    return compare_slots(d, d[KEYS], a, b) if d[KEYS] > 0 else 0


@njit(inline="always")
def _leads(d: Any, times: Any, heads: Any, ages: Any, a: int, b: int) -> bool:
    """Whether the head of run ``a`` leaves before the head of run ``b``."""
    order = _compare(d, times, heads[a], heads[b])
    return order < 0 if order != 0 else ages[a] < ages[b]


# -- a morsel comes in -----------------------------------------------------------------------------


@njit("int64(int64[::1], int64[::1])", cache=True)
def _without_time(d: Any, u: Any) -> int:
    """The next row whose time is NULL, -1 if there is none."""
    n = u[ROWS]
    mask = as_u8(u[HEADER + 2 * d[ORDER] + 1], n)
    for i in range(u[CURSOR], n):
        if mask[i] == 0:
            return i
    return -1


@njit("int64(int64[::1], int64[::1])", cache=True)
def _pick(d: Any, u: Any) -> int:
    """Writes the numbers of the kept rows to CHOSEN; returns the number of kept rows."""
    n, order = u[ROWS], d[ORDER]
    chosen = as_i32(d[CHOSEN], n)
    size = size_of(d, order)
    nullable = d[column_at(d, order) + MASK] != 0
    data = u[HEADER + 2 * order]
    mask = as_u8(u[HEADER + 2 * order + 1], n)
    late_rows = u[LATE_ROWS]
    port = FIRST + PORT_WORDS * u[PORT]
    # While this input was idle, the output's watermark may have risen above the input's own: a row
    # below the output's watermark can no longer be merged.
    floor = d[PUNCTUATED] if d[port + MARK] < d[PUNCTUATED] else NEVER
    if late_rows == 0 and floor == NEVER and (d[REFUSES_NULL] == 0 or not nullable):
        for i in range(n):
            chosen[i] = i
        return n
    late = words(u[LATE_ROW_ADDRESS], LATE_ROW_WORDS * late_rows)
    at = 0
    kept = 0
    for i in range(n):
        known = not nullable or mask[i] != 0
        if not known and d[REFUSES_NULL] != 0:
            continue
        behind = False
        while at < late_rows and late[LATE_ROW_WORDS * at] <= i:
            record = LATE_ROW_WORDS * at
            if late[record] == i and late[record + 1] == order and known:
                behind |= integer_at(data, size, i) < late[record + 2]
            at += 1
        if not behind and known and integer_at(data, size, i) < floor:
            behind = True
            d[port + TOO_LATE] += 1
        if behind:
            d[LATE] += 1
            continue
        chosen[kept] = i
        kept += 1
    return kept


@njit("void(int64[::1], int64[::1], int64)", cache=True)
def _store(d: Any, u: Any, kept: int) -> None:
    """Stores the kept rows and their times in the slab."""
    store_rows(d, u, kept)
    places = as_i32(d[PLACES], kept)
    at = column_at(d, d[ORDER])
    times = words(d[TIMES], d[SLOTS])
    if d[at + DATA] != d[TIMES]:
        for i in range(kept):
            times[places[i]] = integer_at(d[at + DATA], size_of(d, d[ORDER]), places[i])
    if d[at + MASK] != 0:
        mask = as_u8(d[at + MASK], d[SLOTS])
        for i in range(kept):
            if mask[places[i]] == 0:
                times[places[i]] = NEVER  # the stored value behind a NULL is arbitrary


@njit("boolean(int64[::1], int64[::1])", cache=True)
def _thread(d: Any, u: Any) -> bool:
    """Links the stored rows, from CURSOR on, to runs; False if a new run has no room."""
    links, times = as_i32(d[NEXT], d[SLOTS]), words(d[TIMES], d[SLOTS])
    places = as_i32(d[PLACES], u[SUB])
    room, port = d[RUNS], u[PORT]
    heads, tails = words(d[HEADS], room), words(d[TAILS], room)
    ages, heap = words(d[AGES], room), words(d[HEAP], room)
    mine = words(d[LISTS] + 8 * port * room, room)
    counted = FIRST + PORT_WORDS * port + COUNT
    for i in range(u[CURSOR], u[SUB]):
        slot = int(places[i])
        count = d[counted]
        low = 0
        if count > 0 and _compare(d, times, tails[mine[0]], slot) > 0:
            low, high = 1, count
            while low < high:
                middle = (low + high) >> 1
                if _compare(d, times, tails[mine[middle]], slot) > 0:
                    low = middle + 1
                else:
                    high = middle
        if low < count:
            run = mine[low]
            links[tails[run]] = slot
            tails[run] = slot
            continue
        if d[OPEN] == room:
            u[CURSOR] = i
            return False
        run = words(d[SPARES], room)[room - 1 - d[OPEN]]
        heads[run] = slot
        tails[run] = slot
        ages[run] = (port << PORT_SHIFT) | d[BORN]
        d[BORN] += 1
        mine[count] = run
        d[counted] = count + 1
        at = d[OPEN]
        d[OPEN] += 1
        while at > 0:
            parent = (at - 1) >> 1
            if not _leads(d, times, heads, ages, run, heap[parent]):
                break
            heap[at] = heap[parent]
            at = parent
        heap[at] = run
    return True


@njit("void(int64[::1], int64[::1])", cache=True)
def _note_progress(d: Any, u: Any) -> None:
    at = FIRST + PORT_WORDS * u[PORT]
    arrived = words(u[PUNCTUATION_ADDRESS], PUNCTUATION_WORDS * u[PUNCTUATIONS])
    for p in range(u[PUNCTUATIONS]):
        record = PUNCTUATION_WORDS * p
        if arrived[record] == END_OF_INPUT:
            d[at + DONE_AT] = 1
            d[at + MARK] = INFINITY
        elif arrived[record] == IDLE:
            d[at + SILENT] = arrived[record + 1]
        elif arrived[record] == d[ORDER] and arrived[record + 2] < 0:
            d[at + MARK] = max(d[at + MARK], arrived[record + 1])


# -- rows leave ------------------------------------------------------------------------------------


@njit("int64(int64[::1])", cache=True)
def _watermark(d: Any) -> int:
    """The watermark of the output, below which rows leave: the least watermark of the inputs that
    are not idle, at least the latest punctuation sent."""
    least = INFINITY
    for port in range(d[PORTS]):
        at = FIRST + PORT_WORDS * port
        if d[at + SILENT] == 0:
            least = min(least, d[at + MARK])
    return max(least if least < INFINITY else d[PUNCTUATED], d[PUNCTUATED])


@njit("void(int64[::1], int64)", cache=True)
def _close_run(d: Any, run: int) -> None:
    """Frees the run on top of the heap, which has no more rows."""
    room = d[RUNS]
    ages, heap = words(d[AGES], room), words(d[HEAP], room)
    port = ages[run] >> PORT_SHIFT
    mine = words(d[LISTS] + 8 * port * room, room)
    counted = FIRST + PORT_WORDS * port + COUNT
    at = 0
    while mine[at] != run:
        at += 1
    d[counted] -= 1
    for k in range(at, d[counted]):
        mine[k] = mine[k + 1]
    d[OPEN] -= 1
    words(d[SPARES], room)[room - 1 - d[OPEN]] = run
    heap[0] = heap[d[OPEN]]


@njit("int64(int64[::1], int64, int64)", cache=True)
def _draw(d: Any, until: int, most: int) -> int:
    """Takes up to ``most`` rows below ``until`` from the runs, in order, and writes their slots to
    PLACES; returns their number."""
    links, times = as_i32(d[NEXT], d[SLOTS]), words(d[TIMES], d[SLOTS])
    places = as_i32(d[PLACES], most)
    room = d[RUNS]
    heads, tails = words(d[HEADS], room), words(d[TAILS], room)
    ages, heap = words(d[AGES], room), words(d[HEAP], room)
    n = 0
    while n < most and d[OPEN] > 0:
        run = heap[0]
        slot = heads[run]
        if times[slot] >= until and d[ENDED] == 0:
            break
        following = int(links[slot])
        d[ROWS_OUT] += 1
        places[n] = slot
        n += 1
        if slot == tails[run]:
            _close_run(d, run)
            run = heap[0]
        else:
            heads[run] = following
        count = d[OPEN]
        at = 0
        while 2 * at + 1 < count:
            child = 2 * at + 1
            if child + 1 < count and _leads(d, times, heads, ages, heap[child + 1], heap[child]):
                child += 1
            if _leads(d, times, heads, ages, run, heap[child]):
                break
            heap[at] = heap[child]
            at = child
        if count > 0:
            heap[at] = run
    return n


@njit("boolean(int64[::1], int64[::1], int64[::1])", cache=True)
def _goes_on(d: Any, u: Any, o: Any) -> bool:
    """Whether the rows of a morsel can leave at once in their own order: the operator has one
    input, no row waits, and the rows are in order and none is above the watermark. The case is
    common: MAX ADVANCE puts a sort behind an input that is in order but for a few rows."""
    n, port, column = u[ROWS], FIRST, column_at(d, d[ORDER])
    if n == 0 or n > o[CAPACITY] or d[PORTS] > 1 or d[KEYS] > 0 or d[HELD] > 0:
        return False
    if u[LATE_ROWS] > 0 or d[column + MASK] != 0 or d[port + MARK] < d[PUNCTUATED]:
        return False
    _note_progress(d, u)
    until, size, data = d[port + MARK], size_of(d, d[ORDER]), u[HEADER + 2 * d[ORDER]]
    before = NEVER
    for i in range(n):
        t = integer_at(data, size, i)
        if t < before or t > until:
            return False
        before = t
    return True


@njit("void(int64[::1], int64[::1], int64[::1])", cache=True)
def _pass_on(d: Any, u: Any, o: Any) -> None:
    n = u[ROWS]
    chosen = as_i32(d[CHOSEN], n)
    for i in range(n):
        chosen[i] = i
    for c in range(d[COLUMNS]):
        at = HEADER + 2 * c
        move_values(size_of(d, c), u[at], o[at], chosen, chosen, n)
        if d[column_at(d, c) + MASK] != 0:
            move_values(1, u[at + 1], o[at + 1], chosen, chosen, n)
    d[ROWS_OUT] += n


@njit("int64(int64[::1], int64[::1], int64[::1], int64)", cache=True)
def _release(d: Any, u: Any, o: Any, gone: int) -> int:
    """Writes the rows and the punctuation of the output; ``gone`` rows are in the output
    already."""
    ended = 1
    for port in range(d[PORTS]):
        ended &= d[FIRST + PORT_WORDS * port + DONE_AT]
    was_ended = d[ENDED]
    d[ENDED] = ended
    watermark = _watermark(d)
    # With one input and no further key, rows at the watermark itself leave too: later rows at that
    # time follow them.
    until = watermark + 1 if d[PORTS] == 1 and d[KEYS] == 0 else watermark
    o[SERIAL], o[EPOCH] = u[SERIAL], u[EPOCH]
    o[SEQUENCE] = d[ROWS_OUT] - gone
    o[ROWS] = gone
    if gone == 0:
        o[ROWS] = _draw(d, until, o[CAPACITY])
        give_rows(d, o, o[ROWS])
    if d[OPEN] > 0:
        head = words(d[HEADS], d[RUNS])[words(d[HEAP], 1)[0]]
        if ended != 0 or words(d[TIMES], d[SLOTS])[head] < until:
            d[ENDED] = was_ended
            return OUTPUT_FULL
    leaving = words(o[PUNCTUATION_ADDRESS], 2 * PUNCTUATION_WORDS)
    if ended != 0:
        if was_ended == 0:
            o[PUNCTUATIONS] = send(leaving, 0, END_OF_INPUT, INFINITY)
        return DONE
    if d[PUNCTUATED] < watermark:
        d[PUNCTUATED] = watermark
        o[PUNCTUATIONS] = send(leaving, 0, d[ORDER], watermark)
    idling = 1
    for port in range(d[PORTS]):
        at = FIRST + PORT_WORDS * port
        idling &= d[at + SILENT] | d[at + DONE_AT]
    if idling != d[IDLING]:
        d[IDLING] = idling
        o[PUNCTUATIONS] = send(leaving, o[PUNCTUATIONS], IDLE, idling)
    return DONE


@cfunc("int64(int64, int64)", nopython=True, cache=True)
def merge(desc: Any, morsel: Any) -> Any:
    d = whole(desc)
    width = HEADER + 2 * d[COLUMNS]
    u = words(morsel, width)
    o = words(u[OUT], width)
    if u[PHASE] == 0:
        if d[REFUSES_NULL] != 0 and d[column_at(d, d[ORDER]) + MASK] != 0:
            row = _without_time(d, u)
            if row >= 0:
                u[CURSOR], u[DETAIL], u[DETAIL_ROW] = row + 1, 0, row
                return ERROR
        if d[SLOTS] - d[HELD] < u[ROWS]:
            u[DETAIL], u[DETAIL_ROW] = NEED_SLOTS, u[ROWS]
            return NEED
        if _goes_on(d, u, o):
            d[ROWS_IN] += u[ROWS]
            _pass_on(d, u, o)
            return _release(d, u, o, u[ROWS])
        if unranked(d, u):
            u[DETAIL] = NEED_RANK
            return NEED
        d[ROWS_IN] += u[ROWS]
        u[SUB] = _pick(d, u)
        _store(d, u, u[SUB])
        u[CURSOR], u[PHASE] = 0, 1
    if u[PHASE] == 1:
        if not _thread(d, u):
            u[DETAIL] = NEED_RUNS
            return NEED
        _note_progress(d, u)
        u[PHASE] = 2
    return _release(d, u, o, 0)
