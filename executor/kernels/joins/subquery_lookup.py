"""The native function of EXISTS, IN and scalar subqueries over tables, evaluated for each row of a
stream.

The subquery is read to its end before the first row of the stream comes. The distinct rows of the
subquery have ids in an index (``kernels.relations.groups``). Rows of the stream, late rows
included, pass by reference; the answer is an additional column.
"""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import cfunc, njit
from cql.executor.kernels.drive.passing import pass_rows
from cql.executor.kernels.lib.key_index import each_once
from cql.executor.kernels.lib.memory import as_i32, as_u8, copy_bytes, words
from cql.executor.kernels.morsel_layout import (
    DETAIL,
    DETAIL_ROW,
    DONE,
    END_OF_INPUT,
    ERROR,
    GROUP,
    HEADER,
    LATE_ROW_ADDRESS,
    LATE_ROWS,
    NEED,
    OUT,
    PORT,
    PUNCTUATION_ADDRESS,
    PUNCTUATION_WORDS,
    PUNCTUATIONS,
    ROWS,
    SERIAL,
)
from cql.executor.kernels.order.sort_keys import COLUMN_WORDS, KEYS, whole
from cql.executor.kernels.relations import groups

QUERY = 1  # the port of the subquery; the stream has port 0
EXISTS, IN, SCALAR = range(3)

# Descriptor.
KIND = 0
WIDTH = 1  # columns of the stream; what the row asks for and a weight follow them
NULLABLE = 2  # whether the answer may be NULL
VALUE_BYTES = 3  # of a value of the answer
ROWS_SEEN = 4
COUNT = 5  # rows of the subquery
NULLS = 6  # those of them with a NULL in the key
VALUE = 7  # the id of the row of a scalar subquery; -1: none
IDS = 8  # capacity of the index
# Addresses.
STREAM = 9  # descriptors that find the ids of rows of the stream, and of the subquery
SUBQUERY = 10
COUNTS = 11  # int64 per id: its rows in the subquery
VALUES = 12  # per id of a scalar subquery
VALUE_MASKS = 13
SEEN = 14  # uint8 per id: 0
# Scratch, per row that is looked up at once.
NUMBERS = 15  # int32
ONCE = 16  # int64
HAS_NULL = 17  # uint8
SHARED = 18  # address of the descriptor of the instance with the subquery's rows
WORDS = 19

# Several workers may look rows up at once, each with an instance of its own. An instance has the
# words ROWS_SEEN, STREAM, and those of scratch; all others are those of the instance SHARED.


# -- the subquery ----------------------------------------------------------------------------------


@njit("void(int64[::1], int64, int64)", nogil=True, cache=True)
def _number_rows(d: Any, first: int, end: int) -> None:
    numbers = as_i32(d[NUMBERS], end - first)
    for k in range(first, end):
        numbers[k - first] = k


@njit("void(int64[::1], int64[::1], int64, int64)", nogil=True, cache=True)
def _learn_rows(d: Any, u: Any, first: int, end: int) -> None:
    """Counts the rows ``first`` to ``end`` of a morsel of the subquery, and frees the ids without
    rows."""
    n, index, asked = end - first, whole(d[SUBQUERY]), HEADER + COLUMN_WORDS * d[WIDTH]
    _number_rows(d, first, end)
    groups.find_ids(index, u, HEADER, as_i32(d[NUMBERS], n), 0, n)
    null = as_u8(d[HAS_NULL], n)
    groups.mark_nulls(index, null, n)
    ids, fresh = words(index[groups.IDS], n), as_u8(index[groups.FRESH], n)
    weights = words(u[asked + COLUMN_WORDS * index[KEYS]], end)
    counts, once = words(d[COUNTS], d[IDS]), words(d[ONCE], n)
    for k in range(n):
        if fresh[k] != 0 and d[KIND] == SCALAR:
            size = d[VALUE_BYTES]
            groups.keep_value(u, asked, first + k, size, d[VALUES], d[VALUE_MASKS], ids[k])
        before = counts[ids[k]]
        now = before + weights[first + k]
        counts[ids[k]] = now
        more = max(now, 0) - max(before, 0)
        d[COUNT] += more
        if null[k] != 0:
            d[NULLS] += more
    many, gone = each_once(ids, as_u8(d[SEEN], d[IDS]), once), 0
    for k in range(many):
        if counts[once[k]] == 0:
            once[gone] = once[k]
            gone += 1
    groups.free_ids_of(index, once[:gone])


@njit("int64(int64[::1], int64[::1])", nogil=True, cache=True)
def _learn(d: Any, u: Any) -> int:
    """Takes in a morsel of the subquery. Returns DONE or NEED; or ERROR, if a scalar subquery has
    ended with more than one row."""
    index = whole(d[SUBQUERY])
    if groups.free_ids(index) < u[ROWS]:
        u[DETAIL], u[DETAIL_ROW] = groups.NEED_GROUPS, u[ROWS]
        return NEED
    for first in range(0, u[ROWS], index[groups.PIECE]):
        _learn_rows(d, u, first, min(u[ROWS], first + index[groups.PIECE]))
    if d[KIND] != SCALAR:
        return DONE
    arrived = words(u[PUNCTUATION_ADDRESS], PUNCTUATION_WORDS * u[PUNCTUATIONS])
    counts = words(d[COUNTS], d[IDS])
    for p in range(u[PUNCTUATIONS]):
        if arrived[PUNCTUATION_WORDS * p] == END_OF_INPUT:
            if d[COUNT] > 1:
                u[DETAIL], u[DETAIL_ROW] = 0, 0
                return ERROR
            for k in range(d[IDS]):
                if counts[k] > 0:
                    d[VALUE] = k
    return DONE


# -- the stream ------------------------------------------------------------------------------------


@njit("void(int64[::1], int64[::1], int64[::1])", nogil=True, cache=True)
def _pass_punctuation(d: Any, u: Any, o: Any) -> None:
    """Passes the punctuation on; not that of columns that the output lacks."""
    arrived = words(u[PUNCTUATION_ADDRESS], PUNCTUATION_WORDS * u[PUNCTUATIONS])
    leaving = words(o[PUNCTUATION_ADDRESS], PUNCTUATION_WORDS * u[PUNCTUATIONS])
    n, passes = 0, True
    for p in range(u[PUNCTUATIONS]):
        at = PUNCTUATION_WORDS * p
        if arrived[at] != GROUP:  # which belongs to the record before it
            passes = arrived[at] < d[WIDTH] and arrived[at + 2] < d[WIDTH]
        if passes:
            for w in range(PUNCTUATION_WORDS):
                leaving[PUNCTUATION_WORDS * n + w] = arrived[at + w]
            n += 1
    o[PUNCTUATIONS] = n


@njit("void(int64[::1], int64[::1], int64)", nogil=True, cache=True)
def _give_value(d: Any, o: Any, n: int) -> None:
    """Writes the value of a scalar subquery as the answer to ``n`` rows."""
    size, at, value = d[VALUE_BYTES], HEADER + COLUMN_WORDS * d[WIDTH], d[VALUE]
    valid = as_u8(o[at + 1], n)
    if value >= 0:
        copy_bytes(d[VALUES] + size * value, o[at], size)
        valid[0] = as_u8(d[VALUE_MASKS], value + 1)[value]
    else:
        out = as_u8(o[at], size)
        for b in range(size):
            out[b] = 0
        valid[0] = 0
    written = 1
    while written < n:
        more = min(written, n - written)
        copy_bytes(o[at], o[at] + size * written, size * more)
        written += more
    for k in range(1, n):
        valid[k] = valid[0]


@njit("void(int64[::1], int64[::1], int64[::1], int64[::1], int64, int64)", nogil=True, cache=True)
def _look_up(d: Any, own: Any, u: Any, o: Any, first: int, end: int) -> None:
    """Writes the answers to the rows ``first`` to ``end``: whether the subquery has their key.
    ``own``: the words of this instance."""
    n, stream, at = end - first, whole(own[STREAM]), HEADER + COLUMN_WORDS * d[WIDTH]
    _number_rows(own, first, end)
    numbers = as_i32(own[NUMBERS], n)
    groups.look_up_ids(whole(d[SUBQUERY]), stream, u, HEADER, numbers, 0, n)
    null, ids = as_u8(own[HAS_NULL], n), words(stream[groups.IDS], n)
    groups.mark_nulls(stream, null, n)
    counts, answers = words(d[COUNTS], d[IDS]), as_u8(o[at] + first, n)
    for k in range(n):
        answers[k] = null[k] == 0 and ids[k] >= 0 and counts[ids[k]] > 0
    if d[NULLABLE] != 0:
        valid = as_u8(o[at + 1] + first, n)
        for k in range(n):
            unknown = d[NULLS] > 0 if null[k] == 0 else d[COUNT] > 0
            valid[k] = d[KIND] != IN or answers[k] != 0 or not unknown


@cfunc("int64(int64, int64)", nopython=True, cache=True)
def subquery_lookup(desc: Any, morsel: Any) -> Any:
    own = words(desc, WORDS)
    d = words(own[SHARED], WORDS)
    columns = d[WIDTH] + whole(d[SUBQUERY])[KEYS] + 1
    u = words(morsel, HEADER + COLUMN_WORDS * columns)
    o = words(u[OUT], HEADER + COLUMN_WORDS * (d[WIDTH] + 1))
    if u[PORT] == QUERY:
        o[ROWS] = o[LATE_ROWS] = o[PUNCTUATIONS] = 0
        o[SERIAL] = u[SERIAL]
        return _learn(d, u)
    pass_rows(u, o, HEADER + COLUMN_WORDS * d[WIDTH])
    o[LATE_ROWS], o[LATE_ROW_ADDRESS] = u[LATE_ROWS], u[LATE_ROW_ADDRESS]
    _pass_punctuation(d, u, o)
    n, piece = u[ROWS], whole(own[STREAM])[groups.PIECE]
    own[ROWS_SEEN] += n
    if d[KIND] != SCALAR:
        for first in range(0, n, piece):
            _look_up(d, own, u, o, first, min(n, first + piece))
    elif n > 0:
        _give_value(d, o, n)
    return DONE
