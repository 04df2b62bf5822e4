"""The native function of operators over a changing relation that keep a state per group:
aggregates, DISTINCT, EXCEPT, INTERSECT, ROW_NUMBER(), LIMIT, RSTREAM and subqueries.

What becomes of a group is up to another function, with a descriptor of its own, OWN_WORDS: the one
generated for the aggregates of a query (``operators.relations.change_aggregate_code``),
``multiplicities``, ``ranking``, ``whole_relation`` or ``subquery_join``. This driver gives it the
rows of instants that are over, a piece of whole instants at a time: their groups, their columns. It
sends the changes that the function has made, frees the groups without rows, and closes those of
windows that have ended. A function that has more changes of the piece sets a word, and is called
again. Before the call of a function that reads value logs (``value_logs``), the operator takes the
rows of the piece into these.

An aggregate without keys has a SINGLE group, which is never freed. Its row exists from the first
instant of the input on, whatever rows a filter has removed: a change of weight 0 at that instant
makes the row, and at the end of the input a row that is still missing.
"""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import cfunc, njit
from cql.executor.kernels.lib.key_index import FREE, each_once
from cql.executor.kernels.lib.memory import (
    as_i32,
    as_u8,
    call_operator,
    copy_bytes,
    integer_at,
    put_integer,
    words,
)
from cql.executor.kernels.morsel_layout import (
    CAPACITY,
    CURSOR,
    DETAIL,
    DETAIL_ROW,
    DONE,
    ERROR,
    HEADER,
    INFINITY,
    NEED,
    NEVER,
    OUT,
    OUTPUT_FULL,
    PHASE,
    ROWS,
    SUB,
)
from cql.executor.kernels.order.row_slab import CHOSEN, HELD, PLACES, SLOTS
from cql.executor.kernels.order.sort_keys import (
    COLUMN_WORDS,
    COLUMNS,
    DATA,
    KEYS,
    MASK,
    column_at,
    move_values,
    size_of,
    whole,
)
from cql.executor.kernels.relations import groups, value_logs
from cql.executor.kernels.relations.frontier import (
    BORN,
    ENDED,
    HEAD,
    INSTANT,
    LINE,
    NEED_SLOTS,
    OUT_TIME,
    READY,
    ROOM,
    ROWS_IN,
    ROWS_OUT,
    SENT,
    TAIL,
    TIMES,
    WATERMARK,
    append_rows,
    begin_output,
    free_slot,
    is_over,
    over_at_once,
    punctuate_so_far,
    punctuate_up_to,
    take_in,
)

# Requests of the operator.
NEED_ENTRIES = 3  # DETAIL_ROW free entries
NEED_PIECE = 4  # room for a piece of DETAIL_ROW rows
NEED_RANK = 5  # the ranks of all texts
NEED_SECOND = 6  # DETAIL_ROW free ids of the second index
NEED_VALUES = 7  # the piece's rows in the value logs

# Descriptor: behind the words of ``groups``.
FUNCTION = groups.END  # address of the generated function
OWN_WORDS = FUNCTION + 1  # address of its descriptor
RANKED = FUNCTION + 2  # whether the ranks know all texts of the morsel; 2: it needs none
MADE = FUNCTION + 3  # changes of the piece
SENT_SO_FAR = FUNCTION + 4  # those of them that have left
PIECE = FUNCTION + 5  # rows of the piece
CALLS = FUNCTION + 6
ENDS = FUNCTION + 7  # key column with the end of the group's window; -1: groups do not end
NEXT_END = FUNCTION + 8  # the earliest end of the windows that have groups
TIME_BYTES = FUNCTION + 9
FREE_TOP = FUNCTION + 10  # word of OWN_WORDS: free entries; -1: there are no entries
ROWS_AT = FUNCTION + 11  # words of OWN_WORDS: number of rows, and addresses that change
TIMES_AT = FUNCTION + 12
WEIGHTS_AT = FUNCTION + 13
MADE_AT = FUNCTION + 14
DETAIL_AT = FUNCTION + 15
READS = FUNCTION + 16  # columns that the function reads
FAILED = FUNCTION + 17
# Addresses.
READ = FUNCTION + 18  # per column that the function reads, three words
COPY = FUNCTION + 19  # per column of the input, the addresses of a copy of the piece's rows
KEY_COLUMNS = FUNCTION + 20  # per key, the addresses of data and mask (0: no NULLs) per group
RESULTS = FUNCTION + 21  # per call, the addresses of its results per change, and two sizes
OWNERS_OUT = FUNCTION + 22  # int64 per change
TIMES_OUT = FUNCTION + 23
WEIGHTS_OUT = FUNCTION + 24  # 0: the output has no weights
TIMES_IN = FUNCTION + 25  # int64 per row of the piece
NUMBERS = FUNCTION + 26  # int32 per row of the piece: 0, 1, 2, …
SEEN = FUNCTION + 27  # uint8 per group: 0
ONCE = FUNCTION + 28  # int64 per row of the piece
LIVE = FUNCTION + 29  # int64 per group: 0 if it has no rows
BACK = FUNCTION + 30  # int64 per group: entries, -1: none
SEPARATE = FUNCTION + 31
SHOWN = FUNCTION + 32  # uint8 per group
DIRTY = FUNCTION + 33
FREE_ENTRIES = FUNCTION + 34
MORE_AT = FUNCTION + 35  # word of OWN_WORDS: whether more changes of the piece follow; -1: none do
GONE_AT = (
    FUNCTION + 36
)  # word of OWN_WORDS: groups without rows that are not in the piece; -1: none
GONE = FUNCTION + 37  # address of their ids
SECOND = FUNCTION + 38  # address of the control of a second index of the function; 0: none
BORN_IN = FUNCTION + 39  # address of the stream positions of the piece's rows
ORDERED_TO = FUNCTION + 40  # the row of the piece that caused the change written last
SINGLE = FUNCTION + 41  # 1: all rows belong to group 0, which stays
BEGUN = FUNCTION + 42  # whether the watermark has passed the first instant of the input
SINCE = FUNCTION + 43  # the first instant; INFINITY: the first one at which a window has a row
BEGINNING = FUNCTION + 44  # the earliest time of the row if the input has no rows
WAITS = FUNCTION + 45  # whether the watermark waits for the row, since the input ends
STARTS = FUNCTION + 46  # address: per window below, the address of its first instant
WINDOWS = FUNCTION + 47
NOTHING = FUNCTION + 48  # address of a word 0: every column of the change of weight 0
DUE = FUNCTION + 49  # whether the function has to be called for the piece
VALUES = FUNCTION + 50  # whether the value logs have the piece: NO_LOGS, MISSING or TAKEN
AT_ONCE = FUNCTION + 51  # rows of a piece that may be in the value logs at once; INFINITY: any
LOGS = FUNCTION + 52  # value logs
LOG = FUNCTION + 53  # address of their words (``value_logs``)
CAUSES_OUT = FUNCTION + 54  # int64 per change: its place in its instant; 0: ``_put_order`` finds it
STAYS = FUNCTION + 55  # whether no group loses its rows before its window ends
PER_ROW = FUNCTION + 56  # the most changes for a row of a piece; 0: unknown
TIME_AT = FUNCTION + 57  # words of OWN_WORDS: the addresses of the changes' times and weights
WEIGHT_AT = FUNCTION + 58
IN_PLACE = FUNCTION + 59  # whether the function has written the changes to the output itself
END = FUNCTION + 60

NO_LOGS, MISSING, TAKEN = range(3)

#: Words of READ: the column, the words of OWN_WORDS for its data and its mask (-1: unread).
READ_WORDS = 3
#: Words of RESULTS: address of the values, of whether they are valid, bytes of a value, whether the
#: output has a mask, and the words of OWN_WORDS for the two addresses.
RESULT_WORDS = 6
#: The phase of a morsel whose rows are aggregated where they are.
_DIRECT = 3


@njit("int64(int64[::1], int64)", nogil=True, cache=True)
def _entries_wanted(d: Any, weights: int) -> int:
    """How many entries the function may take for the piece."""
    n, total = d[PIECE], 0
    values = words(weights, n)
    for k in range(n):
        total += abs(values[k])
    return int(total + 2 * n + 3)


@njit("void(int64[::1], int64[::1], int64)", nogil=True, cache=True)
def _keep_keys(d: Any, table: Any, at: int) -> None:
    """Copies the keys of new groups, and notes when their windows end."""
    n, fresh = d[PIECE], as_u8(d[groups.FRESH], d[PIECE])
    ids = words(d[groups.IDS], n)
    chosen, places, many = as_i32(d[CHOSEN], n), as_i32(d[PLACES], n), 0
    for k in range(n):
        if fresh[k] != 0:
            chosen[many], places[many] = k, ids[k]
            many += 1
    for key in range(d[KEYS]):
        column = words(d[KEY_COLUMNS] + 8 * COLUMN_WORDS * key, COLUMN_WORDS)
        move_values(size_of(d, key), table[at + COLUMN_WORDS * key + DATA], column[DATA], chosen,
                    places, many)  # fmt: skip
        if column[MASK] != 0:
            mask = table[at + COLUMN_WORDS * key + MASK]
            move_values(1, mask, column[MASK], chosen, places, many)
    if d[ENDS] >= 0:
        ends = words(d[KEY_COLUMNS] + 8 * COLUMN_WORDS * d[ENDS], COLUMN_WORDS)[DATA]
        for k in range(n):
            d[NEXT_END] = min(d[NEXT_END], integer_at(ends, size_of(d, d[ENDS]), ids[k]))


@njit("void(int64[::1], int64[::1])", nogil=True, cache=True)
def _aim(d: Any, o: Any) -> None:
    """Lets the function write the changes of the piece to the output if all fit, else to arrays of
    their own."""
    if d[PER_ROW] == 0:
        return
    g, at = words(d[OWN_WORDS], 1), HEADER + 2 * d[OUT_TIME]
    in_place = d[TIME_BYTES] == 8 and d[PER_ROW] * d[PIECE] <= o[CAPACITY]
    g[d[TIME_AT]] = o[at] if in_place else d[TIMES_OUT]
    g[d[WEIGHT_AT]] = o[at + 2] if in_place else d[WEIGHTS_OUT]
    for call in range(d[CALLS]):
        one = words(d[RESULTS] + 8 * RESULT_WORDS * call, RESULT_WORDS)
        at = HEADER + 2 * (d[KEYS] + call)
        g[one[4]] = o[at] if in_place else one[0]
        g[one[5]] = o[at + 1] if in_place and one[3] != 0 else one[1]
    d[IN_PLACE] = in_place


@njit("int64(int64[::1], int64[::1], int64[::1])", nogil=True, cache=True)
def _call_function(d: Any, u: Any, o: Any) -> int:
    """Lets the function make changes of the piece. Returns DONE, NEED or ERROR."""
    if d[VALUES] == MISSING:
        u[DETAIL], u[DETAIL_ROW] = NEED_VALUES, d[PIECE]
        return NEED
    g = words(d[OWN_WORDS], 1)
    d[DUE] = d[MADE] = d[SENT_SO_FAR] = 0
    if d[VALUES] == TAKEN:
        d[VALUES] = MISSING
    _aim(d, o)
    if call_operator(d[FUNCTION], d[OWN_WORDS], 0) != 0:
        d[FAILED] = 1
        u[DETAIL], u[DETAIL_ROW] = g[d[DETAIL_AT]], 0
        return ERROR
    d[MADE] = g[d[MADE_AT]]
    return DONE


@njit(inline="always")
def _has_more(d: Any) -> bool:
    """Whether the function has more changes of the piece."""
    return bool(d[MORE_AT] >= 0 and words(d[OWN_WORDS], d[MORE_AT] + 1)[d[MORE_AT]] != 0)


@njit(inline="always")
def _ask(d: Any, u: Any, request: int, wanted: int) -> int:
    """Requests what the next piece needs, before there is one. Returns NEED."""
    u[DETAIL], u[DETAIL_ROW], d[PIECE] = request, wanted, 0
    return NEED


@njit("int64(int64[::1], int64[::1], int64[::1], int64)", nogil=True, cache=True)
def _prepare(d: Any, u: Any, table: Any, at: int) -> int:
    """Finds the groups of the PIECE rows whose columns begin at the addresses in ``table`` from
    word ``at`` on, and gives them to the function. Returns DONE, or NEED: then there is no piece
    yet."""
    n, g = d[PIECE], words(d[OWN_WORDS], 1)
    weights = table[at + COLUMN_WORDS * (d[COLUMNS] - 1) + DATA]
    if d[SINGLE] == 0 and groups.free_ids(d) < n:
        return _ask(d, u, groups.NEED_GROUPS, n)
    if d[SECOND] != 0 and words(d[SECOND], FREE + 1)[FREE] < n:
        return _ask(d, u, NEED_SECOND, n)
    if d[FREE_TOP] >= 0:
        wanted = _entries_wanted(d, weights)
        if g[d[FREE_TOP]] < wanted:
            return _ask(d, u, NEED_ENTRIES, wanted)
    if d[SINGLE] == 0:
        groups.find_ids(d, table, at, as_i32(d[NUMBERS], n), 0, n)
        _keep_keys(d, table, at)
    times, size = d[TIMES_IN], size_of(d, d[INSTANT])
    data = table[at + COLUMN_WORDS * d[INSTANT] + DATA]
    if size == 8:
        times = data
    else:
        values = words(times, n)
        for k in range(n):
            values[k] = integer_at(data, size, k)
    g[d[ROWS_AT]], g[d[TIMES_AT]], g[d[WEIGHTS_AT]] = n, times, weights
    for k in range(d[READS]):
        one = words(d[READ] + 8 * READ_WORDS * k, READ_WORDS)
        column = at + COLUMN_WORDS * one[0]
        if one[1] >= 0:
            g[one[1]] = table[column + DATA]
        if one[2] >= 0:
            g[one[2]] = table[column + MASK]
    d[DUE] = 1
    return DONE


@njit("void(int64[::1], int64[::1], int64)", nogil=True, cache=True)
def _put_order(d: Any, o: Any, n: int) -> None:
    """Writes the order columns of the next ``n`` changes: the instant, and the place in it that the
    function says or, if it says none, the stream position of the group's first row at that instant.
    Without such places, the groups of an instant change in the order of these rows."""
    first, rows = d[SENT_SO_FAR], d[PIECE]
    owners = words(d[OWNERS_OUT] + 8 * first, n)
    times = words(o[HEADER + 2 * d[OUT_TIME]] if d[IN_PLACE] != 0 else d[TIMES_OUT] + 8 * first, n)
    ids, born = words(d[groups.IDS], rows), words(d[BORN_IN], rows)
    instants = words(words(d[OWN_WORDS], d[TIMES_AT] + 1)[d[TIMES_AT]], rows)
    at = HEADER + 2 * (d[OUT_TIME] + 1 + int(d[WEIGHTS_OUT] != 0))
    if d[CAUSES_OUT] != 0:
        copy_bytes(d[TIMES_OUT] + 8 * first, o[at], 8 * n)
        copy_bytes(d[CAUSES_OUT] + 8 * first, o[at + 2], 8 * n)
        return
    order, positions, row = words(o[at], n), words(o[at + 2], n), d[ORDERED_TO]
    for k in range(n):
        while ids[row] != owners[k] or instants[row] != times[k]:
            row += 1
        order[k], positions[k] = times[k], born[row]
    d[ORDERED_TO] = row


@njit("void(int64[::1], int64[::1], int64, int64)", nogil=True, cache=True)
def _copy_changes(d: Any, o: Any, first: int, n: int) -> None:
    """Copies the results, times and weights of ``n`` changes from ``first`` on to the output."""
    for call in range(d[CALLS]):
        one = words(d[RESULTS] + 8 * RESULT_WORDS * call, RESULT_WORDS)
        at = HEADER + 2 * (d[KEYS] + call)
        copy_bytes(one[0] + one[2] * first, o[at], one[2] * n)
        if one[3] != 0:
            copy_bytes(one[1] + first, o[at + 1], n)
    at = HEADER + 2 * d[OUT_TIME]
    if d[TIME_BYTES] == 8:
        copy_bytes(d[TIMES_OUT] + 8 * first, o[at], 8 * n)
    else:
        times = words(d[TIMES_OUT] + 8 * first, n)
        for k in range(n):
            put_integer(o[at], d[TIME_BYTES], k, times[k])
    if d[WEIGHTS_OUT] != 0:
        copy_bytes(d[WEIGHTS_OUT] + 8 * first, o[at + 2], 8 * n)


@njit("void(int64[::1], int64[::1])", nogil=True, cache=True)
def _send(d: Any, o: Any) -> None:
    """Writes the next changes to the output."""
    first = d[SENT_SO_FAR]
    n = min(d[MADE] - first, o[CAPACITY])
    owners = words(d[OWNERS_OUT] + 8 * first, n)
    chosen, places = as_i32(d[CHOSEN], n), as_i32(d[PLACES], n)
    for k in range(n):
        chosen[k], places[k] = owners[k], k
    for key in range(d[KEYS]):
        column = words(d[KEY_COLUMNS] + 8 * COLUMN_WORDS * key, COLUMN_WORDS)
        move_values(size_of(d, key), column[DATA], o[HEADER + 2 * key], chosen, places, n)
        if column[MASK] != 0:
            move_values(1, column[MASK], o[HEADER + 2 * key + 1], chosen, places, n)
    if d[IN_PLACE] == 0:
        _copy_changes(d, o, first, n)
    if d[BORN] != 0:
        _put_order(d, o, n)
    o[ROWS] = n
    d[ROWS_OUT] += n
    d[SENT_SO_FAR] += n


@njit("void(int64[::1], int64[::1])", nogil=True, cache=True)
def _forget(d: Any, gone: Any) -> None:
    """Frees groups, their entries and their values."""
    if d[LOGS] != 0:
        value_logs.forget_values(d[LOG], d[LOGS], d[groups.CAPACITY], gone)
    if d[FREE_TOP] < 0:
        groups.free_ids_of(d, gone)
        return
    capacity, g = d[groups.CAPACITY], words(d[OWN_WORDS], 1)
    back, separate = words(d[BACK], capacity), words(d[SEPARATE], capacity)
    dirty, top = as_u8(d[DIRTY], capacity), g[d[FREE_TOP]]
    free = words(d[FREE_ENTRIES], top + 2 * gone.size)
    for k in range(gone.size):
        for entry in (back[gone[k]], separate[gone[k]]):
            if entry >= 0:
                free[top] = entry
                top += 1
        back[gone[k]] = separate[gone[k]] = -1
        dirty[gone[k]] = 0
    g[d[FREE_TOP]] = top
    groups.free_ids_of(d, gone)


@njit("void(int64[::1])", nogil=True, cache=True)
def _forget_empty(d: Any) -> None:
    """Frees the groups that have no rows since the piece."""
    if d[SINGLE] != 0 or d[STAYS] != 0:
        d[PIECE] = d[MADE] = d[SENT_SO_FAR] = 0
        return
    n, capacity = d[PIECE], d[groups.CAPACITY]
    once, live = words(d[ONCE], n), words(d[LIVE], capacity)
    many = each_once(words(d[groups.IDS], n), as_u8(d[SEEN], capacity), once)
    gone = 0
    for k in range(many):
        if live[once[k]] == 0:
            once[gone] = once[k]
            gone += 1
    _forget(d, once[:gone])
    if d[GONE_AT] >= 0:
        _forget(d, words(d[GONE], words(d[OWN_WORDS], d[GONE_AT] + 1)[d[GONE_AT]]))
    d[PIECE] = d[MADE] = d[SENT_SO_FAR] = 0


@njit("void(int64[::1])", nogil=True, cache=True)
def _close(d: Any) -> None:
    """Frees the groups of windows that end at or below the watermark."""
    capacity = d[groups.CAPACITY]
    live, shown = words(d[LIVE], capacity), as_u8(d[SHOWN], capacity)
    column = words(d[KEY_COLUMNS] + 8 * COLUMN_WORDS * d[ENDS], COLUMN_WORDS)[DATA]
    size, room = size_of(d, d[ENDS]), d[groups.PIECE]
    once, many = words(d[ONCE], room), 0
    d[NEXT_END] = INFINITY
    for key in range(capacity):
        if live[key] == 0:
            continue
        end = integer_at(column, size, key)
        if end > d[WATERMARK]:
            d[NEXT_END] = min(d[NEXT_END], end)
            continue
        live[key] = shown[key] = 0
        once[many] = key
        many += 1
        if many == room:
            _forget(d, once)
            many = 0
    _forget(d, once[:many])


@njit("int64(int64[::1], int64[::1], int64, int64, int64)", nogil=True, cache=True)
def _whole_instants(d: Any, times: Any, first: int, end: int, room: int) -> int:
    """The end of a piece of places from ``first`` on, at most ``end``, between two instants. It has
    at most ``room`` rows if an instant has not more."""
    room = min(room, d[groups.PIECE], d[AT_ONCE])
    if end - first <= room:
        return end
    at = first + room
    while at > first and times[at] == times[at - 1]:
        at -= 1
    if at > first:
        return at
    at = first + room
    while at < end and times[at] == times[first]:
        at += 1
    return at


@njit("boolean(int64[::1], int64[::1], int64)", nogil=True, cache=True)
def _has_room(d: Any, u: Any, rows: int) -> bool:
    if rows <= d[groups.PIECE]:
        return True
    u[DETAIL], u[DETAIL_ROW] = NEED_PIECE, rows
    return False


@njit("int64(int64[::1], int64[::1], int64)", nogil=True, cache=True)
def _next_waiting(d: Any, u: Any, room: int) -> int:
    """Prepares the next piece of the rows that have waited. Returns OUTPUT_FULL if there is one,
    DONE if no instant is over, or NEED."""
    times, line = words(d[TIMES], d[ROOM]), as_i32(d[LINE], d[ROOM])
    first, end = d[READY], d[READY]
    while end < d[TAIL] and is_over(d, times[end]):
        end += 1
    if first == end:
        return DONE
    end = _whole_instants(d, times, first, end, room)
    if not _has_room(d, u, end - first):
        return NEED
    n = d[PIECE] = end - first
    copy = words(d[COPY], COLUMN_WORDS * d[COLUMNS])
    numbers = as_i32(d[NUMBERS], n)
    for c in range(d[COLUMNS]):
        column, at = column_at(d, c), COLUMN_WORDS * c
        move_values(size_of(d, c), d[column + DATA], copy[at + DATA], line[first:end], numbers, n)
        if d[column + MASK] != 0:
            move_values(1, d[column + MASK], copy[at + MASK], line[first:end], numbers, n)
    if d[BORN] != 0:
        move_values(8, d[BORN], d[BORN_IN], line[first:end], numbers, n)
        d[ORDERED_TO] = 0
    if _prepare(d, u, copy, 0) == NEED:
        return NEED
    for place in range(first, end):
        free_slot(d, line[place])
    d[HEAD] = d[READY] = end
    return OUTPUT_FULL


@njit("int64(int64[::1], int64[::1], int64[::1], int64)", nogil=True, cache=True)
def _next_direct(d: Any, u: Any, here: Any, room: int) -> int:
    """Like ``_next_waiting``, of the rows of a morsel from CURSOR to SUB. ``here`` is scratch for
    the addresses of their columns."""
    first, end = u[CURSOR], u[SUB]
    if first == end:
        return DONE
    times = words(u[HEADER + 2 * d[INSTANT]], u[ROWS])
    end = _whole_instants(d, times, first, end, room)
    if not _has_room(d, u, end - first):
        return NEED
    d[PIECE] = end - first
    for c in range(d[COLUMNS]):
        at = COLUMN_WORDS * c
        here[at + DATA] = u[HEADER + 2 * c] + first * size_of(d, c)
        here[at + MASK] = u[HEADER + 2 * c + 1] + first
    if _prepare(d, u, here, 0) == NEED:
        return NEED
    u[CURSOR] = end
    return OUTPUT_FULL


# -- the row of a single group ---------------------------------------------------------------------


@njit(inline="always")
def _lacks_row(d: Any) -> bool:
    """Whether the row of the single group is missing."""
    return bool(d[SINGLE] != 0 and as_u8(d[SHOWN], 1)[0] == 0)


@njit("int64(int64[::1])", nogil=True, cache=True)
def _first_instant(d: Any) -> int:
    """The first instant of the input; INFINITY: no window has had a row."""
    first, starts = d[SINCE], words(d[STARTS], d[WINDOWS])
    if first == INFINITY:
        for k in range(d[WINDOWS]):
            first = min(first, words(starts[k], 1)[0])
    return int(first)


@njit("int64(int64[::1], int64[::1], int64[::1], int64)", nogil=True, cache=True)
def _prepare_nothing(d: Any, u: Any, here: Any, time: int) -> int:
    """Prepares a piece of one change of weight 0 whose columns are NULL. Returns OUTPUT_FULL or
    NEED. ``here`` is scratch for the addresses of the columns."""
    for c in range(d[COLUMNS]):
        here[COLUMN_WORDS * c + DATA] = here[COLUMN_WORDS * c + MASK] = d[NOTHING]
    put_integer(d[ONCE], size_of(d, d[INSTANT]), 0, time)
    here[COLUMN_WORDS * d[INSTANT] + DATA] = d[ONCE]
    d[PIECE] = 1
    return OUTPUT_FULL if _prepare(d, u, here, 0) == DONE else NEED


@njit("int64(int64[::1], int64[::1])", nogil=True, cache=True)
def _next_due(d: Any, u: Any) -> int:
    """The instant of the next row that is over; INFINITY: there is none."""
    if u[PHASE] == _DIRECT:
        times = words(u[HEADER + 2 * d[INSTANT]], u[ROWS])
        return int(times[u[CURSOR]]) if u[CURSOR] < u[SUB] else INFINITY
    times = words(d[TIMES], d[ROOM])
    if d[READY] < d[TAIL] and is_over(d, times[d[READY]]):
        return int(times[d[READY]])
    return INFINITY


@njit("int64(int64[::1], int64[::1], int64[::1], int64)", nogil=True, cache=True)
def _next_piece(d: Any, u: Any, here: Any, room: int) -> int:
    """Prepares the next piece of the rows whose instants are over, at most ``room`` rows if an
    instant has not more. Returns OUTPUT_FULL if there is
    one, DONE if none is left, or NEED."""
    if d[SINGLE] != 0 and d[BEGUN] == 0:
        first = _first_instant(d)
        if first < d[WATERMARK]:
            if _next_due(d, u) > first:
                code = _prepare_nothing(d, u, here, first)
                if code != NEED:
                    d[BEGUN] = 1
                return code
            d[BEGUN] = 1
    if u[PHASE] == _DIRECT:
        code = _next_direct(d, u, here, room)
    else:
        code = _next_waiting(d, u, room)
    if code == DONE and d[ENDED] != 0 and _lacks_row(d):
        return _prepare_nothing(d, u, here, max(d[BEGINNING], d[SENT]))
    return code


@njit("int64(int64[::1], int64[::1])", nogil=True, cache=True)
def _begin_directly(d: Any, u: Any) -> int:
    """Lets the first rows of a morsel, whose instants are over, be aggregated where they are, if no
    row waits and all come in order. Returns DONE, or NEED."""
    n = over_at_once(d, u) if u[PHASE] == 0 else -1
    if n < 0:
        return DONE
    if d[SLOTS] - d[HELD] < u[ROWS] - n:
        u[DETAIL], u[DETAIL_ROW] = NEED_SLOTS, u[ROWS] - n
        return NEED
    d[ROWS_IN] += u[ROWS]
    u[CURSOR], u[SUB], u[PHASE] = 0, n, _DIRECT
    return DONE


@cfunc("int64(int64, int64)", nopython=True, cache=True)
def group_changes(desc: Any, morsel: Any) -> Any:
    d = whole(desc)
    u = words(morsel, HEADER + 2 * d[COLUMNS])
    o = words(u[OUT], HEADER + 2 * (d[OUT_TIME] + 4))
    here = words(d[COPY] + 8 * COLUMN_WORDS * d[COLUMNS], COLUMN_WORDS * d[COLUMNS])
    if d[FAILED] != 0:
        u[DETAIL], u[DETAIL_ROW] = words(d[OWN_WORDS], 1)[d[DETAIL_AT]], 0
        return ERROR
    if d[RANKED] == 0:
        u[DETAIL] = NEED_RANK
        return NEED
    if _begin_directly(d, u) == NEED:
        return NEED
    if u[PHASE] != _DIRECT and not take_in(d, u):
        return NEED
    begin_output(d, u, o)
    o[ROWS] = 0
    room = o[CAPACITY] // d[PER_ROW] if d[PER_ROW] > 0 else INFINITY
    while True:
        if d[PIECE] == 0:
            code = _next_piece(d, u, here, room)
            if code == DONE:
                break
            if code != OUTPUT_FULL:
                return code
        if d[DUE] != 0:
            code = _call_function(d, u, o)
            if code != DONE:
                return code
        if d[SENT_SO_FAR] < d[MADE]:
            _send(d, o)
            last = integer_at(o[HEADER + 2 * d[OUT_TIME]], d[TIME_BYTES], o[ROWS] - 1)
            if d[SENT_SO_FAR] == d[MADE] and not _has_more(d):
                _forget_empty(d)
            punctuate_so_far(d, o, last)
            return OUTPUT_FULL
        if _has_more(d):
            d[DUE] = 1
            continue
        _forget_empty(d)
    if u[PHASE] == _DIRECT:
        append_rows(d, u, u[SUB])
    if d[ENDS] >= 0 and d[WATERMARK] >= d[NEXT_END]:
        _close(d)
    if d[RANKED] == 1:
        d[RANKED] = 0
    waits = d[WAITS] != 0 and _lacks_row(d)
    punctuate_up_to(d, u, o, NEVER if waits else d[WATERMARK])
    return DONE
