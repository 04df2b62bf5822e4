"""The answer of a subquery for each row of a relation, instant by instant (mark and single joins):
a function for ``kernels.relations.group_changes``.

Each distinct row of the left side is a group. A change of either side *asks* for an id in an index
of the function's own: that of its key, or (SINGLE) of the subquery's value. The left rows of a key
form a list, so that a key that enters or leaves the subquery finds its rows. If any answer may
change at once, all left rows form a second list, in the order in which they entered the relation.
"""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import cfunc, njit
from cql.executor.kernels.lib.memory import as_i32, as_u8, copy_bytes, lines, words
from cql.executor.kernels.morsel_layout import DONE, ERROR
from cql.executor.kernels.order.sort_keys import COLUMN_WORDS, KEYS, whole
from cql.executor.kernels.relations import groups

#: BY_KEY: EXISTS, and IN without NULLs. IN: a NULL among the keys of either side makes answers
#: unknown. SINGLE: a scalar subquery.
BY_KEY, IN, SINGLE = range(3)
FALSE, TRUE, NULL = 0, 1, 2  # answers of BY_KEY and IN; of SINGLE: id of the value + 1, 0 for NULL

# Descriptor. The words of the piece, which the driver sets or reads.
CHANGES = 0  # rows of the piece
MADE = 1  # changes written
MORE = 2  # 1: more changes of the piece follow, when called again
TIMES = 3  # addresses, per row of the piece
WEIGHTS = 4
SIDES = 5  # 0: the left side, 1: the subquery
# The query.
KIND = 6
CONSTANT = 7  # 1: the subquery is complete before the first left row: left rows are not kept
VALUE_BYTES = 8  # of a value of the answer
# Capacities.
ROWS = 9  # row ids
ROOM = 10  # changes that are written at a time
IDS = 11  # ids of the index
# Where the piece goes on.
NEXT_ROW = 12  # the changes of the piece before it are applied
STEP = 13  # of the instant
AT = 14  # the number of the touched row, or of the changed key, that is written next
LISTED = 15  # the row of the list that is written next; -1: none is left
TOUCHED_MANY = 16  # left rows that the instant changes
CHANGED_MANY = 17  # keys that the instant changes
EVERYTHING = 18  # 1: any answer may change at the instant
# What stays between two pieces.
COUNT = 19  # rows of the subquery
NULLS = 20  # rows of the subquery with a NULL in their key
VALUE = 21  # the id of the value of a SINGLE; -1: none
OLDEST = 22  # the list of all left rows; -1: it is empty
NEWEST = 23
# Addresses, per row of the piece.
OWNERS = 24  # row ids
NUMBERS = 25  # int32: 0, 1, 2, …
BORN_IN = 26  # stream positions
TOUCHED = 27  # scratch: per left row that the instant changes, the first change of it
CHANGED = 28  # scratch: per key that the instant changes, the first change of it
ASKED_NULL = 29  # scratch, uint8: whether the key has a NULL
# Addresses, per row id.
STATES = 30  # FIELDS words
BITS = 31
# Addresses, per id of the index.
OF_IDS = 32  # OF_ID words
VALUES = 33  # of SINGLE
VALUE_MASKS = 34
INDEX = 35  # address of the descriptor of the index (``groups``)
# Addresses, per change of the output.
OUT_OWNER = 36
OUT_TIME = 37
OUT_WEIGHT = 38
OUT_ANSWER = 39
OUT_VALID = 40
OUT_CAUSE = 41  # the order of the changes of an instant; 0: not wanted
COLUMNS = 42  # per column of the index, the addresses of data and mask of the piece's rows
WORDS = COLUMNS

#: Words of a row: its copies now, and those that the output has, with which answer; its key; its
#: neighbours in the list of the key, and in that of all rows.
HELD, SHOWN, ANSWER, KEY, AFTER, BEFORE, NEXT, PREVIOUS = range(8)
FIELDS = 8
#: Bits of a row: it is in the lists; its key has a NULL; the instant changes its copies.
_LINKED, _HAS_NULL, _TOUCHED = 1, 2, 4
#: Words of an id: its rows in the subquery; the same before the instant, -1 outside of an instant;
#: the first row of its list, -1: it is empty.
MANY, WAS, HEAD = range(3)
OF_ID = 3
#: Steps of an instant. The rows of both lists follow the touched ones.
_APPLY, _WRITE_TOUCHED, _WRITE_ALL, _WRITE_KEYS = range(4)
#: The bit of OUT_CAUSE behind the stream position: a change of the subquery is the cause.
_OF_SUBQUERY = 62


# -- the rows of a piece ---------------------------------------------------------------------------


@njit("void(int64[::1])", nogil=True, cache=True)
def _ask(d: Any) -> None:
    """Finds the ids that the rows of the piece ask for."""
    n, index = d[CHANGES], whole(d[INDEX])
    groups.find_ids(index, d, COLUMNS, as_i32(d[NUMBERS], n), 0, n)
    groups.mark_nulls(index, as_u8(d[ASKED_NULL], n), n)
    ids, fresh = words(index[groups.IDS], n), as_u8(index[groups.FRESH], n)
    asked = lines(d[OF_IDS], d[IDS], OF_ID)
    for k in range(n):
        if fresh[k] == 0:
            continue
        asked[ids[k], MANY], asked[ids[k], WAS], asked[ids[k], HEAD] = 0, -1, -1
        if d[KIND] == SINGLE:
            groups.keep_value(d, COLUMNS, k, d[VALUE_BYTES], d[VALUES], d[VALUE_MASKS], ids[k])


@njit("void(int64[::1])", nogil=True, cache=True)
def _forget(d: Any) -> None:
    """Frees the ids of the piece that neither the subquery nor a left row has any more."""
    n, index = d[CHANGES], whole(d[INDEX])
    ids, asked = words(index[groups.IDS], n), lines(d[OF_IDS], d[IDS], OF_ID)
    gone, many = words(d[CHANGED], n), 0
    for k in range(n):
        if asked[ids[k], MANY] == 0 and asked[ids[k], HEAD] < 0 and asked[ids[k], WAS] < 0:
            asked[ids[k], WAS] = 0
            gone[many] = ids[k]
            many += 1
    groups.free_ids_of(index, gone[:many])


# -- the lists of left rows ------------------------------------------------------------------------


@njit("void(int64[::1], int64[:, ::1], int64[:, ::1], int64)", nogil=True, cache=True)
def _link(d: Any, rows: Any, asked: Any, row: int) -> None:
    """Puts a row before the others of its key, and behind all others that have entered."""
    if d[KIND] != SINGLE:
        first = asked[rows[row, KEY], HEAD]
        rows[row, AFTER], rows[row, BEFORE] = first, -1
        if first >= 0:
            rows[first, BEFORE] = row
        asked[rows[row, KEY], HEAD] = row
    if d[KIND] != BY_KEY:
        last = d[NEWEST]
        rows[row, NEXT], rows[row, PREVIOUS] = -1, last
        if last >= 0:
            rows[last, NEXT] = row
        else:
            d[OLDEST] = row
        d[NEWEST] = row


@njit("void(int64[::1], int64[:, ::1], int64[:, ::1], int64)", nogil=True, cache=True)
def _unlink(d: Any, rows: Any, asked: Any, row: int) -> None:
    if d[KIND] != SINGLE:
        before, after = rows[row, BEFORE], rows[row, AFTER]
        if before >= 0:
            rows[before, AFTER] = after
        else:
            asked[rows[row, KEY], HEAD] = after
        if after >= 0:
            rows[after, BEFORE] = before
    if d[KIND] != BY_KEY:
        before, after = rows[row, PREVIOUS], rows[row, NEXT]
        if before >= 0:
            rows[before, NEXT] = after
        else:
            d[OLDEST] = after
        if after >= 0:
            rows[after, PREVIOUS] = before
        else:
            d[NEWEST] = before


# -- an instant ------------------------------------------------------------------------------------


@njit("boolean(int64[::1], int64[:, ::1], int64[:, ::1])", nogil=True, cache=True)
def _apply_instant(d: Any, rows: Any, asked: Any) -> bool:
    """Applies the changes of the next instant, and notes which answers may change. Returns False if
    a SINGLE subquery has more than one row then."""
    n, first = d[CHANGES], d[NEXT_ROW]
    times, weights, sides = words(d[TIMES], n), words(d[WEIGHTS], n), words(d[SIDES], n)
    owners, ids = words(d[OWNERS], n), words(whole(d[INDEX])[groups.IDS], n)
    null, bits = as_u8(d[ASKED_NULL], n), words(d[BITS], d[ROWS])
    touched, changed = words(d[TOUCHED], n), words(d[CHANGED], n)
    kind, i, time, touched_many, changed_many = d[KIND], first, times[first], 0, 0
    some, unknown, value = d[COUNT] > 0, d[NULLS] > 0, d[VALUE]
    while i < n and times[i] == time:
        key = ids[i]
        if sides[i] == 0:
            row = owners[i]
            if bits[row] == 0:
                rows[row, KEY], rows[row, HELD], rows[row, SHOWN] = key, 0, 0
                rows[row, ANSWER] = 0
                bits[row] = _LINKED | (_HAS_NULL if null[i] != 0 else 0)
                _link(d, rows, asked, row)
            rows[row, HELD] += weights[i]
            if bits[row] & _TOUCHED == 0:
                bits[row] |= _TOUCHED
                touched[touched_many] = i
                touched_many += 1
        else:
            if kind != BY_KEY:
                d[COUNT] += weights[i]
            if kind == SINGLE:
                asked[key, MANY] += weights[i]
            elif null[i] == 0:
                if asked[key, WAS] < 0:
                    asked[key, WAS] = asked[key, MANY]
                    changed[changed_many] = i
                    changed_many += 1
                asked[key, MANY] += weights[i]
            elif kind == IN:
                d[NULLS] += weights[i]
        i += 1
    d[EVERYTHING] = 0
    if kind == IN:
        d[EVERYTHING] = (d[COUNT] > 0) != some or (d[NULLS] > 0) != unknown
    elif kind == SINGLE:
        if d[COUNT] > 1:
            return False
        if value >= 0 and asked[value, MANY] == 0:
            d[VALUE] = -1
        for j in range(first, i):
            if sides[j] != 0 and asked[ids[j], MANY] > 0:
                d[VALUE] = ids[j]
        d[EVERYTHING] = d[VALUE] != value
    d[NEXT_ROW], d[TOUCHED_MANY], d[CHANGED_MANY] = i, touched_many, changed_many
    d[STEP], d[AT], d[LISTED] = _WRITE_TOUCHED, 0, d[OLDEST]
    return True


@njit("int64(int64[::1], int64[:, ::1], int64, int64)", nogil=True, cache=True)
def _answer(d: Any, asked: Any, key: int, null: int) -> int:
    if d[KIND] == SINGLE:
        return int(d[VALUE] + 1)
    if null == 0 and asked[key, MANY] > 0:
        return TRUE
    if d[KIND] == BY_KEY:
        return FALSE
    unknown = d[NULLS] > 0 if null == 0 else d[COUNT] > 0
    return NULL if unknown else FALSE


@njit("void(int64[::1], int64, int64, int64, int64)", nogil=True, cache=True)
def _write_change(d: Any, row: int, answer: int, weight: int, cause: int) -> None:
    k, i = d[MADE], d[NEXT_ROW] - 1
    words(d[OUT_OWNER], k + 1)[k] = row
    words(d[OUT_TIME], k + 1)[k] = words(d[TIMES], i + 1)[i]
    words(d[OUT_WEIGHT], k + 1)[k] = weight
    valid, size = as_u8(d[OUT_VALID], k + 1), d[VALUE_BYTES]
    if d[KIND] != SINGLE:
        as_u8(d[OUT_ANSWER], k + 1)[k], valid[k] = answer == TRUE, answer != NULL
    elif answer > 0:
        copy_bytes(d[VALUES] + size * (answer - 1), d[OUT_ANSWER] + size * k, size)
        valid[k] = as_u8(d[VALUE_MASKS], answer)[answer - 1]
    else:
        out = as_u8(d[OUT_ANSWER] + size * k, size)
        for b in range(size):
            out[b] = 0
        valid[k] = 0
    if d[OUT_CAUSE] != 0:
        words(d[OUT_CAUSE], k + 1)[k] = cause
    d[MADE] = k + 1


@njit("boolean(int64[::1], int64[:, ::1], int64[:, ::1], int64, int64)", nogil=True, cache=True)
def _write_row(d: Any, rows: Any, asked: Any, row: int, cause: int) -> bool:
    """Writes the changes of a row: its copies with the old answer leave, those with the new one
    come. Returns False if the output may lack room."""
    if d[MADE] + 2 > d[ROOM]:
        return False
    null = words(d[BITS], row + 1)[row] & _HAS_NULL
    was, now = rows[row, ANSWER], _answer(d, asked, rows[row, KEY], null)
    gone, come = rows[row, SHOWN], rows[row, HELD]
    if now == was:
        gone, come = 0, come - gone
    if gone != 0:
        _write_change(d, row, was, -gone, cause)
    if come != 0:
        _write_change(d, row, now, come, cause)
    rows[row, SHOWN], rows[row, ANSWER] = rows[row, HELD], now
    return True


@njit("int64(int64[::1], int64)", nogil=True, cache=True)
def _cause(d: Any, i: int) -> int:
    """The place, among the changes of an instant in all partitions, of those that change ``i`` of
    the piece causes."""
    if d[OUT_CAUSE] == 0:
        return 0
    return words(d[BORN_IN], i + 1)[i] | (words(d[SIDES], i + 1)[i] << _OF_SUBQUERY)


@njit("boolean(int64[::1], int64[:, ::1], int64[:, ::1])", nogil=True, cache=True)
def _write_touched(d: Any, rows: Any, asked: Any) -> bool:
    """Writes the rows that the instant touches; unlinks those without copies. Returns False if the
    output is full."""
    touched, bits = words(d[TOUCHED], d[TOUCHED_MANY]), words(d[BITS], d[ROWS])
    owners = words(d[OWNERS], d[CHANGES])
    for j in range(d[AT], d[TOUCHED_MANY]):
        row = owners[touched[j]]
        if not _write_row(d, rows, asked, row, _cause(d, touched[j])):
            d[AT] = j
            return False
        if rows[row, HELD] == 0 or d[CONSTANT] != 0:
            _unlink(d, rows, asked, row)
            bits[row] = 0
    return True


@njit("boolean(int64[::1], int64[:, ::1], int64[:, ::1], int64, int64)", nogil=True, cache=True)
def _write_list(d: Any, rows: Any, asked: Any, following: int, cause: int) -> bool:
    """Writes the rows of a list, from LISTED on, that the instant does not touch; word
    ``following`` of a row is its successor. Returns False if the output is full."""
    bits, row = words(d[BITS], d[ROWS]), d[LISTED]
    while row >= 0:
        if bits[row] & _TOUCHED == 0 and not _write_row(d, rows, asked, row, cause):
            d[LISTED] = row
            return False
        row = rows[row, following]
    d[LISTED] = -1
    return True


@njit("boolean(int64[::1], int64[:, ::1], int64[:, ::1])", nogil=True, cache=True)
def _write_keys(d: Any, rows: Any, asked: Any) -> bool:
    """Writes the rows of the keys that have entered the subquery or left it. Returns False if the
    output is full."""
    changed, ids = words(d[CHANGED], d[CHANGED_MANY]), words(whole(d[INDEX])[groups.IDS], 1)
    for j in range(d[AT], d[CHANGED_MANY]):
        key = ids[changed[j]]
        turned = (asked[key, WAS] > 0) != (asked[key, MANY] > 0)
        if turned and d[LISTED] < 0 and d[EVERYTHING] == 0:
            d[LISTED] = asked[key, HEAD]
        if not _write_list(d, rows, asked, AFTER, _cause(d, changed[j])):
            d[AT] = j
            return False
        asked[key, WAS] = -1
    return True


@njit("boolean(int64[::1], int64[:, ::1], int64[:, ::1])", nogil=True, cache=True)
def _write_instant(d: Any, rows: Any, asked: Any) -> bool:
    """Writes the changes of the applied instant. Returns False if the output is full."""
    if d[STEP] == _WRITE_TOUCHED:
        if not _write_touched(d, rows, asked):
            return False
        d[STEP] = _WRITE_ALL
    if d[STEP] == _WRITE_ALL:
        if d[EVERYTHING] != 0 and not _write_list(d, rows, asked, NEXT, 0):
            return False
        d[STEP], d[AT], d[LISTED] = _WRITE_KEYS, 0, -1
    if not _write_keys(d, rows, asked):
        return False
    touched, bits = words(d[TOUCHED], d[TOUCHED_MANY]), words(d[BITS], d[ROWS])
    owners = words(d[OWNERS], d[CHANGES])
    for j in range(d[TOUCHED_MANY]):
        bits[owners[touched[j]]] &= _LINKED | _HAS_NULL
    d[STEP] = _APPLY
    return True


@cfunc("int64(int64, int64)", nopython=True, cache=True)
def subquery_join(desc: Any, morsel: Any) -> Any:
    d = words(desc, WORDS)
    d = words(desc, COLUMNS + COLUMN_WORDS * whole(d[INDEX])[KEYS])
    if d[MORE] == 0:
        _ask(d)
        d[NEXT_ROW], d[STEP] = 0, _APPLY
    rows, asked = lines(d[STATES], d[ROWS], FIELDS), lines(d[OF_IDS], d[IDS], OF_ID)
    d[MADE] = d[MORE] = 0
    while d[STEP] != _APPLY or d[NEXT_ROW] < d[CHANGES]:
        if d[STEP] == _APPLY and not _apply_instant(d, rows, asked):
            return ERROR
        if not _write_instant(d, rows, asked):
            d[MORE] = 1
            return DONE
    _forget(d)
    return DONE
