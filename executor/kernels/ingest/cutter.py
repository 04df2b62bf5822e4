"""Cuts a block into morsels, marks the late rows and makes the punctuation: once, serially, at
ingest (out-of-order paper §5.1).

A cutter is a table of int64 words: a header, three words per column (address of the data, address
of the mask, item size) and ATTRIBUTE words per progressing attribute.

The watermark of an attribute is the higher of two values: the highest time so far less the slack,
and the floor, the highest punctuation from the source or a timer. Punctuation from the source comes
as marks. A mark is a record (number of rows of the block before the mark, attribute, value, number
of the value of PUNCTUATE BY or -1) and takes effect at the next row.

A block that is a part of a larger stream may bring the watermark before each of its rows. Rows then
advance nothing: each brought watermark acts as a mark before its row.

With PUNCTUATE BY (group-wise punctuation, paper A.1.1) each value of a column has its own watermark
on each attribute; the watermark of the attribute itself holds for all values.
"""

from __future__ import annotations

from typing import Any

from numba import int64

from cql.executor.jit.decorators import njit
from cql.executor.kernels.drive.passing import send
from cql.executor.kernels.ingest.advance import GOES_ON, WAITS, advance, begin, within
from cql.executor.kernels.lib.intrinsics import leading_zeros
from cql.executor.kernels.lib.memory import as_i32, as_u8, words
from cql.executor.kernels.morsel_layout import (
    GROUP,
    HEADER,
    INFINITY,
    LATE_ROW_ADDRESS,
    LATE_ROW_WORDS,
    LATE_ROWS,
    NEVER,
    PUNCTUATION_ADDRESS,
    PUNCTUATION_WORDS,
    PUNCTUATIONS,
    ROWS,
    SEQUENCE,
    SERIAL,
)

# Header words of a cutter.
BEGUN = 0  # 0: no morsel of the block is cut yet; a block without rows gives one morsel
NEXT = 1  # next row of the block
BLOCK = 2  # rows of the block
ROOM = 3  # maximal rows of a morsel
NEXT_SERIAL = 4
FIRST = 5  # stream position of the block's first row
COLUMNS = 6
ATTRIBUTES = 7
LATE = 8  # rows so far that were late on some attribute
ROW_PUNCTUATIONS = 9  # number of marks
ROW_PUNCTUATION_ADDRESS = 10  # address of the marks
NEXT_MARK = 11
NUMBERS = 12  # address of the numbers of the rows' values (int32); 0: no PUNCTUATE BY
VALUES_AT = 13  # address of the records of the values
BY = 14  # the PUNCTUATE BY column
BEFORE = 15  # rows of the input before this block
LAG = 16  # event time by which the input is read later than the other inputs
PEEKED = 17  # first event time of an input with LAG that has not begun; else NEVER
TURN = 18  # rows that are left of the input's turn (``input_scheduler``)
CUTTER = 19
COLUMN = 3
MARK = 4

# Words of an attribute.
INDEX = 0  # its column
SLACK = 1
BY_ROWS = 2  # 0: rows do not advance the watermark
HIGHEST = 3  # a clock (``advance``): the highest event time, and the rows that wait
PENDING = 4  # number of rows that wait for confirmation
PENDING_AT = 5  # four places for their times
FLOOR = 9  # the highest punctuation from the source or a timer
PUNCTUATED = 10  # the latest punctuation sent
TIMES = 11  # address of the block's event times
VALID = 12  # address of their mask, 0 if there are no NULLs
LATE_MARKED = 13  # late rows so far
MAX_LATENESS = 14
BEHIND = 15  # address of BUCKETS counts: rows by distance below the highest time
ADVANCE = 16  # MAX ADVANCE: a larger advance of the highest time waits for confirmation
FAR = 17  # rows so far that were further ahead than ADVANCE
EVERY = 18  # punctuations are multiples of this value; 0: any value
BOUNDARIES = 19  # number of pairs (step, offset) that consumers await; -1: every value
BOUNDARIES_AT = 20  # address of the pairs
FURTHEST = 21  # the highest time of a row that was FAR
OWN_SLACK = 22  # the slack of single values
OWN_BY_ROWS = 23  # 0: rows do not advance the watermark of their value
CONFIRMED = 24  # rows that were FAR and were accepted later
KEPT = 25  # rows that would have been late had the FAR rows been accepted at once
KEPT_BY = 26  # the largest advance that was not accepted meanwhile
JUMP_FROM = 27  # the start of the largest recent accepted advance
JUMP_TO = 28  # the end of that advance
SINCE = 29  # accepted advances since then; -1: none so far
JUMP = 30  # the largest advance that made rows late
JUMP_AT = 31  # the end of that advance
JUMPED = 32  # late rows that would not be late without that advance
ROW_WATERMARKS = 33  # address of the watermark before each row of the block; 0: none is brought
ATTRIBUTE = 34
#: The words of an attribute that are addresses.
BOUND = (TIMES, VALID, BEHIND, BOUNDARIES_AT, ROW_WATERMARKS)

# Words of a value: KEY and NULL, then OF_VALUE words per attribute from VALUE on.
KEY = 0
NULL = 1
VALUE = 2
TOP = 0  # a clock (``advance``) of the value
TOP_WAITING = 1
OWN_FLOOR = 6  # the highest punctuation of the source on this value
OWN_PUNCTUATED = 7  # the latest punctuation sent
NEXT_PUNCTUATION = 8  # the least watermark at which the next punctuation is due
OWN_FURTHEST = 9  # as FURTHEST, for this value
OF_VALUE = 10

#: Group-wise punctuations for which one morsel has room.
MOST_PUNCTUATIONS = 20

#: Number of accepted advances after which an advance is no longer recent.
RECENT = 64
#: Number of rows, at the end of a run of rows in order, whose advances are examined.
_LAST_ROWS = 4
#: Number of counts by distance: 8 for each power of two.
BUCKETS = 496
_FAR_OFF = 1 << 62


@njit(inline="always")
def watermark(a: Any) -> int:
    """The watermark of an attribute."""
    if a[BY_ROWS] == 0 or a[HIGHEST] <= NEVER + a[SLACK]:
        return a[FLOOR]
    return max(a[FLOOR], a[HIGHEST] - a[SLACK])


@njit("int64(int64)", cache=True)
def bucket_of(distance: int) -> int:
    """The number of the bucket for a distance above zero."""
    if distance < 8:
        return distance
    power = 63 - leading_zeros(distance)
    return 8 * (power - 2) + ((distance >> (power - 3)) & 7)


@njit("int64(int64, int64)", nogil=True, cache=True)
def rolled(attribute: int, value: int) -> int:
    """The highest boundary at or below ``value`` that a consumer awaits (the describe operator,
    paper A.1.1); NEVER if there is none."""
    a = words(attribute, ATTRIBUTE)
    if value < -_FAR_OFF:
        return NEVER
    if a[EVERY] > 0:
        value = value // a[EVERY] * a[EVERY]
    if a[BOUNDARIES] < 0:
        return value
    best = NEVER
    pairs = words(a[BOUNDARIES_AT], 2 * a[BOUNDARIES])
    for k in range(a[BOUNDARIES]):
        step, offset = pairs[2 * k], pairs[2 * k + 1]
        best = max(best, (value - offset) // step * step + offset)
    return best


@njit(inline="always")
def _highest(mark: int, slack: int) -> int:
    """The highest time that gives watermark ``mark``; NEVER if there is no watermark."""
    return NEVER if mark < -_FAR_OFF else mark + slack


@njit("boolean(int64[::1], int64)", nogil=True, cache=True)
def _in_order(times: Any, highest: int) -> bool:
    """Whether ``times`` do not descend and begin at or above ``highest``. The loop has no branch
    per row and is four times as fast as a search for late rows."""
    behind = times[0] < highest
    for i in range(1, times.size):
        behind |= times[i] < times[i - 1]
    return not behind


@njit(inline="always")
def _note(a: Any, base: int, t: int) -> None:
    """Records an accepted advance from ``base`` to ``t`` if it is the largest recent one: late rows
    may result from it (``_blame``)."""
    if a[SINCE] < 0 or a[SINCE] >= RECENT or t - base > a[JUMP_TO] - a[JUMP_FROM]:
        a[JUMP_FROM], a[JUMP_TO], a[SINCE] = base, t, 0
    else:
        a[SINCE] += 1


@njit(inline="always")
def _blame(a: Any) -> None:
    """Counts a late row that would not be late without the largest recent advance."""
    jump = a[JUMP_TO] - a[JUMP_FROM]
    if jump > a[JUMP]:
        a[JUMP], a[JUMP_AT], a[JUMPED] = jump, a[JUMP_TO], 0
    a[JUMPED] += a[JUMP_TO] == a[JUMP_AT]


@njit(inline="always")
def _count_late(a: Any, own: int, t: int) -> None:
    """Counts a row at ``t`` below its watermark ``own``."""
    a[LATE_MARKED] += 1
    a[MAX_LATENESS] = max(a[MAX_LATENESS], own - t)
    if a[SINCE] >= 0 and t >= a[JUMP_FROM] - a[SLACK]:
        _blame(a)


@njit(inline="always")
def _is_kept(a: Any, furthest: int, slack: int, t: int) -> bool:
    """Whether a row at ``t`` that is not late would be late, had the row at ``furthest`` been
    accepted at once."""
    return furthest > a[HIGHEST] and furthest > NEVER + slack and t < furthest - slack


@njit("void(int64, int64)", nogil=True, cache=True)
def _keep(attribute: int, furthest: int) -> None:
    a = words(attribute, ATTRIBUTE)
    a[KEPT] += 1
    base = max(a[HIGHEST], a[FLOOR])
    if base != NEVER:
        a[KEPT_BY] = max(a[KEPT_BY], furthest - base)


@njit("boolean(int64, int64)", nogil=True, cache=True)
def _begins(attribute: int, t: int) -> bool:
    """Takes a row while no row is accepted; returns whether the row is done with."""
    a = words(attribute, ATTRIBUTE)
    outcome = begin(attribute + 8 * HIGHEST, a[FLOOR], a[ADVANCE], t)
    if outcome == GOES_ON:
        return False
    if outcome == WAITS:
        a[FURTHEST] = t
        return True
    a[FAR] += 1
    if a[BY_ROWS] != 0 and _is_kept(a, a[FURTHEST], a[SLACK], t):
        _keep(attribute, a[FURTHEST])
    return True


@njit("void(int64, int64)", nogil=True, cache=True)
def _advance(attribute: int, t: int) -> None:
    """Takes a row above the highest time."""
    a = words(attribute, ATTRIBUTE)
    base = max(a[HIGHEST], a[FLOOR])
    far = base != NEVER and t > within(base, a[ADVANCE])
    believed = advance(attribute + 8 * HIGHEST, base, a[ADVANCE], t)
    if far:
        a[FAR] += 1
        a[CONFIRMED] += believed
        a[FURTHEST] = max(a[FURTHEST], t)
    if believed > 0 and base != NEVER:
        _note(a, base, a[HIGHEST])


@njit("boolean(int64, int64, int64)", nogil=True, cache=True)
def _none_behind(attribute: int, start: int, end: int) -> bool:
    """Whether no row lies below the highest time before it, by the watermarks that the block
    brings."""
    a = words(attribute, ATTRIBUTE)
    times, brought = words(a[TIMES], end), words(a[ROW_WATERMARKS], end)
    slack = a[SLACK] if a[BY_ROWS] != 0 else 0
    floor, behind = a[FLOOR], False
    for i in range(start, end):
        behind |= times[i] < _highest(max(floor, brought[i]), slack)
    return not behind


@njit("void(int64, int64, int64)", nogil=True, cache=True)
def _go_on(attribute: int, from_: int, end: int) -> None:
    """Takes rows that satisfy ``_is_calm``."""
    a = words(attribute, ATTRIBUTE)
    n = end - from_
    if a[ROW_WATERMARKS] != 0:
        a[FLOOR] = max(a[FLOOR], words(a[ROW_WATERMARKS], end)[end - 1])
        return
    times = words(a[TIMES] + 8 * from_, n)
    last = times[n - 1]
    before = max(a[HIGHEST], a[FLOOR])
    if a[BY_ROWS] != 0 and _is_kept(a, a[FURTHEST], a[SLACK], times[0]):
        limit, kept = a[FURTHEST] - a[SLACK], n
        if last >= limit:
            kept = 0
            while times[kept] < limit:
                kept += 1
        _keep(attribute, a[FURTHEST])
        a[KEPT] += kept - 1
    if n > _LAST_ROWS:
        a[SINCE] += n - _LAST_ROWS
    for i in range(max(0, n - _LAST_ROWS), n):
        base = times[i - 1] if i > 0 else before
        if base != NEVER and times[i] > base:
            _note(a, base, times[i])
    if last >= a[HIGHEST]:
        a[HIGHEST] = last
        a[PENDING] = 0


@njit("boolean(int64, int64, int64)", nogil=True, cache=True)
def _is_calm(attribute: int, start: int, end: int) -> bool:
    """Whether the rows need no check one by one: their times are in order, at or above the highest
    time and the floor, and at most ADVANCE ahead of the higher one."""
    a = words(attribute, ATTRIBUTE)
    if a[VALID] != 0:
        return False
    if a[ROW_WATERMARKS] != 0:
        return _none_behind(attribute, start, end)
    if a[HIGHEST] == NEVER and a[ADVANCE] < INFINITY and (a[PENDING] > 0 or end - start < 2):
        return False
    times = words(a[TIMES] + 8 * start, end - start)
    base = max(a[HIGHEST], a[FLOOR])
    known = times[0] if base == NEVER else base
    return times[times.size - 1] <= within(known, a[ADVANCE]) and _in_order(times, base)


@njit("int64(int64, int64, int64, int64, int64, int64)", nogil=True, cache=True)
def _mark(cutter: int, morsel: int, start: int, from_: int, end: int, late: int) -> int:
    """Marks the late rows among the block's rows from ``from_`` to ``end``. A row below the
    watermark of its source just before the row is late; its record (row, attribute, row watermark)
    goes to the morsel, which has room for all rows. The morsel begins at row ``start`` and has
    ``late`` records; returns the new number of records."""
    c, u = words(cutter, CUTTER), words(morsel, HEADER)
    count = c[ATTRIBUTES]
    first = cutter + 8 * (CUTTER + COLUMN * c[COLUMNS])
    records = words(u[LATE_ROW_ADDRESS], LATE_ROW_WORDS * c[ROOM] * count)
    calm = 0
    while calm < count and _is_calm(first + 8 * ATTRIBUTE * calm, from_, end):
        calm += 1
    if calm == count:
        for k in range(count):
            _go_on(first + 8 * ATTRIBUTE * k, from_, end)
        return late
    for i in range(from_, end):
        before = late
        for k in range(count):
            a = words(first + 8 * ATTRIBUTE * k, ATTRIBUTE)
            if a[VALID] != 0 and as_u8(a[VALID], end)[i] == 0:
                continue
            t = words(a[TIMES], end)[i]
            attribute = first + 8 * ATTRIBUTE * k
            brought = a[ROW_WATERMARKS] != 0
            if brought:
                a[FLOOR] = max(a[FLOOR], words(a[ROW_WATERMARKS], end)[i])
            elif a[HIGHEST] == NEVER and a[ADVANCE] < INFINITY and _begins(attribute, t):
                continue
            own = watermark(a)
            if t < own:
                at = LATE_ROW_WORDS * late
                records[at] = i - start
                records[at + 1] = a[INDEX]
                records[at + 2] = own
                late += 1
                _count_late(a, own, t)
            elif a[BY_ROWS] != 0 and _is_kept(a, a[FURTHEST], a[SLACK], t):
                _keep(attribute, a[FURTHEST])
            highest = a[HIGHEST]
            if brought:
                highest = max(t, _highest(own, a[SLACK] if a[BY_ROWS] != 0 else 0))
            if t > highest:
                _advance(attribute, t)
            elif t < highest:
                words(a[BEHIND], BUCKETS)[bucket_of(highest - t)] += 1
            else:
                a[PENDING] = 0
        c[LATE] += late > before
    return late


@njit("void(int64, int64, int64, int64, int64)", nogil=True, cache=True)
def row_watermarks(attribute: int, times: int, valid: int, n: int, made: int) -> None:
    """Takes ``n`` rows without cutting them, and writes the watermark before each row to ``made``.
    ``valid`` is the address of the mask of ``times``, 0 if there are no NULLs. Counts like
    ``cut``."""
    a, t, marks = words(attribute, ATTRIBUTE), words(times, n), words(made, n)
    for i in range(n):
        if valid != 0 and as_u8(valid, n)[i] == 0:
            marks[i] = watermark(a)
            continue
        begins = a[HIGHEST] == NEVER and a[ADVANCE] < INFINITY and _begins(attribute, t[i])
        own = marks[i] = watermark(a)
        if begins:
            continue
        if t[i] < own:
            _count_late(a, own, t[i])
        elif a[BY_ROWS] != 0 and _is_kept(a, a[FURTHEST], a[SLACK], t[i]):
            _keep(attribute, a[FURTHEST])
        if t[i] > a[HIGHEST]:
            _advance(attribute, t[i])
        elif t[i] < a[HIGHEST]:
            words(a[BEHIND], BUCKETS)[bucket_of(a[HIGHEST] - t[i])] += 1
        else:
            a[PENDING] = 0


@njit("boolean(int64)", nogil=True, cache=True)
def _take_punctuation(cutter: int) -> bool:
    """Takes the next mark; returns whether a consumer awaits the new watermark."""
    c = words(cutter, CUTTER)
    mark = words(c[ROW_PUNCTUATION_ADDRESS] + 8 * MARK * c[NEXT_MARK], MARK)
    c[NEXT_MARK] += 1
    first = cutter + 8 * (CUTTER + COLUMN * c[COLUMNS])
    attribute = first + 8 * ATTRIBUTE * mark[1]
    a = words(attribute, ATTRIBUTE)
    if mark[2] <= a[FLOOR]:
        return False
    a[FLOOR] = mark[2]
    return rolled(attribute, watermark(a)) > a[PUNCTUATED]


@njit("void(int64, int64)", nogil=True, cache=True)
def _punctuate(cutter: int, morsel: int) -> None:
    """Appends punctuation to the morsel for every attribute whose watermark has reached a new
    boundary."""
    c, u = words(cutter, CUTTER), words(morsel, HEADER)
    first = cutter + 8 * (CUTTER + COLUMN * c[COLUMNS])
    n = u[PUNCTUATIONS]
    made = words(u[PUNCTUATION_ADDRESS], PUNCTUATION_WORDS * (n + c[ATTRIBUTES]))
    for k in range(c[ATTRIBUTES]):
        attribute = first + 8 * ATTRIBUTE * k
        a = words(attribute, ATTRIBUTE)
        mark = rolled(attribute, watermark(a))
        if mark > a[PUNCTUATED]:
            a[PUNCTUATED] = mark
            n = send(made, n, a[INDEX], mark)
    u[PUNCTUATIONS] = n


@njit("void(int64, int64)", nogil=True, cache=True)
def punctuate(cutter: int, morsel: int) -> None:
    """Replaces the punctuation of the morsel by one item for every attribute whose watermark has
    reached a new boundary."""
    u = words(morsel, HEADER)
    u[PUNCTUATIONS] = 0
    _punctuate(cutter, morsel)


@njit(inline="always")
def _own(a: Any, v: Any, at: int) -> int:
    """The watermark of a value."""
    own = max(watermark(a), v[at + OWN_FLOOR])
    if a[OWN_BY_ROWS] != 0 and v[at + TOP] > NEVER + a[OWN_SLACK]:
        own = max(own, v[at + TOP] - a[OWN_SLACK])
    return own


@njit("int64(int64, int64)", nogil=True, cache=True)
def _next_boundary(attribute: int, value: int) -> int:
    """The least boundary above ``value`` that a consumer awaits."""
    a = words(attribute, ATTRIBUTE)
    if a[BOUNDARIES] < 0:
        return value + 1
    best = INFINITY
    pairs = words(a[BOUNDARIES_AT], 2 * a[BOUNDARIES])
    for k in range(a[BOUNDARIES]):
        step, offset = pairs[2 * k], pairs[2 * k + 1]
        if value < -_FAR_OFF:
            best = NEVER
        else:
            best = min(best, (value - offset) // step * step + offset + step)
    return best


@njit("int64(int64, int64, int64, int64)", nogil=True, cache=True)
def _punctuate_value(cutter: int, morsel: int, attribute: int, value: int) -> int:
    """Appends a group-wise punctuation of one value to the morsel if a consumer awaits the value's
    watermark; returns 1 if so, else 0. ``value`` is the address of the value's record."""
    c, u, a = words(cutter, CUTTER), words(morsel, HEADER), words(attribute, ATTRIBUTE)
    first = cutter + 8 * (CUTTER + COLUMN * c[COLUMNS])
    k = (attribute - first) // (8 * ATTRIBUTE)
    at = VALUE + OF_VALUE * k
    v = words(value, at + OF_VALUE)
    mark = rolled(attribute, _own(a, v, at))
    before = max(v[at + OWN_PUNCTUATED], a[PUNCTUATED])
    rises = mark > before
    if rises:
        n = PUNCTUATION_WORDS * u[PUNCTUATIONS]
        made = words(u[PUNCTUATION_ADDRESS], n + 2 * PUNCTUATION_WORDS)
        made[n], made[n + 1], made[n + 2], made[n + 3] = a[INDEX], mark, c[BY], before
        n += PUNCTUATION_WORDS
        made[n], made[n + 1], made[n + 2], made[n + 3] = GROUP, v[KEY], -1, v[NULL]
        u[PUNCTUATIONS] += 2
        v[at + OWN_PUNCTUATED] = mark
    v[at + NEXT_PUNCTUATION] = _next_boundary(attribute, max(mark, before))
    return int64(rises)


@njit(inline="always")
def _known_alone(a: Any, v: Any) -> int:
    """The time from which the advance of a value is measured; ``v`` are the value's words for the
    attribute."""
    base = max(v[TOP], v[OWN_FLOOR], a[FLOOR])
    return a[HIGHEST] if base == NEVER else base


@njit(inline="always")
def _is_kept_alone(a: Any, v: Any, at: int, t: int) -> bool:
    furthest, slack = v[at + OWN_FURTHEST], a[OWN_SLACK]
    ahead = a[OWN_BY_ROWS] != 0 and furthest > v[at + TOP] and furthest > NEVER + slack
    return ahead and t < furthest - slack


@njit("boolean(int64, int64, int64)", nogil=True, cache=True)
def _begins_alone(attribute: int, value: int, t: int) -> bool:
    """``_begins`` for a value with its own clock: the rows of other values do not confirm its
    rows."""
    a, v = words(attribute, ATTRIBUTE), words(value, OF_VALUE)
    outcome = begin(value, _known_alone(a, v), a[ADVANCE], t)
    if outcome == GOES_ON:
        a[HIGHEST] = max(a[HIGHEST], v[TOP])  # ``begin`` may have accepted the first row
        return False
    if outcome == WAITS:
        v[OWN_FURTHEST] = t
        a[FURTHEST] = max(a[FURTHEST], t)
        return True
    a[FAR] += 1
    if _is_kept_alone(a, v, 0, t):
        a[KEPT] += 1
        a[KEPT_BY] = max(a[KEPT_BY], v[OWN_FURTHEST] - t)
    a[HIGHEST] = max(a[HIGHEST], t)
    return True


@njit("void(int64, int64, int64)", nogil=True, cache=True)
def _advance_alone(attribute: int, value: int, t: int) -> None:
    """Takes a row of a value with its own clock: only rows of the same value confirm an advance."""
    a, v = words(attribute, ATTRIBUTE), words(value, OF_VALUE)
    if t < v[TOP]:
        return
    if t == v[TOP]:
        v[TOP_WAITING] = 0
        return
    base = _known_alone(a, v)
    far = base != NEVER and t > within(base, a[ADVANCE])
    believed = advance(value, base, a[ADVANCE], t)
    if far:
        a[FAR] += 1
        a[CONFIRMED] += believed
        a[FURTHEST] = max(a[FURTHEST], t)
        v[OWN_FURTHEST] = max(v[OWN_FURTHEST], t)
    if believed > 0:
        a[HIGHEST] = max(a[HIGHEST], v[TOP])


@njit("int64(int64, int64, int64, int64)", nogil=True, cache=True)
def _cut_by_value(cutter: int, morsel: int, start: int, end: int) -> int:
    """``_cut`` with PUNCTUATE BY, where each value of a column has its own watermark. Takes the
    rows from ``start`` on, at most to ``end``; returns the end of the morsel."""
    c, u = words(cutter, CUTTER), words(morsel, HEADER)
    count = c[ATTRIBUTES]
    first = cutter + 8 * (CUTTER + COLUMN * c[COLUMNS])
    records = words(u[LATE_ROW_ADDRESS], LATE_ROW_WORDS * c[ROOM] * count)
    numbers = as_i32(c[NUMBERS], c[BLOCK])
    width = VALUE + OF_VALUE * count
    u[PUNCTUATIONS] = 0
    late, i, awaited = 0, start, 0
    while True:
        while c[NEXT_MARK] < c[ROW_PUNCTUATIONS]:
            mark = words(c[ROW_PUNCTUATION_ADDRESS] + 8 * MARK * c[NEXT_MARK], MARK)
            if mark[0] > i or u[PUNCTUATIONS] >= 2 * MOST_PUNCTUATIONS:
                break
            if mark[3] < 0:
                awaited |= int64(_take_punctuation(cutter))
                continue
            c[NEXT_MARK] += 1
            value = c[VALUES_AT] + 8 * width * mark[3]
            at = VALUE + OF_VALUE * mark[1]
            v = words(value, width)
            v[at + OWN_FLOOR] = max(v[at + OWN_FLOOR], mark[2])
            awaited |= _punctuate_value(cutter, morsel, first + 8 * ATTRIBUTE * mark[1], value)
        if awaited != 0 or u[PUNCTUATIONS] >= 2 * MOST_PUNCTUATIONS or i == end:
            break
        value = c[VALUES_AT] + 8 * width * int64(numbers[i])
        v = words(value, width)
        before = late
        for k in range(count):
            attribute = first + 8 * ATTRIBUTE * k
            a = words(attribute, ATTRIBUTE)
            if a[VALID] != 0 and as_u8(a[VALID], c[BLOCK])[i] == 0:
                continue
            at = VALUE + OF_VALUE * k
            t = words(a[TIMES], c[BLOCK])[i]
            alone = a[BY_ROWS] == 0 and a[OWN_BY_ROWS] != 0
            if a[ADVANCE] < INFINITY:
                if alone:
                    if v[at + TOP] == NEVER and _begins_alone(attribute, value + 8 * at, t):
                        continue
                elif a[HIGHEST] == NEVER and _begins(attribute, t):
                    if a[HIGHEST] == NEVER:
                        v[at + OWN_FURTHEST] = t
                    else:
                        v[at + TOP] = t
                    continue
            own = _own(a, v, at)
            if t < own:
                record = LATE_ROW_WORDS * late
                records[record] = i - start
                records[record + 1] = a[INDEX]
                records[record + 2] = own
                late += 1
                a[LATE_MARKED] += 1
                a[MAX_LATENESS] = max(a[MAX_LATENESS], own - t)
            elif _is_kept_alone(a, v, at, t):
                _keep(attribute, v[at + OWN_FURTHEST])
            if t < v[at + TOP]:
                words(a[BEHIND], BUCKETS)[bucket_of(v[at + TOP] - t)] += 1
            before_it = v[at + TOP]
            if alone:
                _advance_alone(attribute, value + 8 * at, t)
            else:
                if t > a[HIGHEST]:
                    _advance(attribute, t)
                elif t == a[HIGHEST]:
                    a[PENDING] = 0
                # A row that waits for confirmation does not advance its value's watermark either.
                if t > a[HIGHEST]:
                    v[at + OWN_FURTHEST] = max(v[at + OWN_FURTHEST], t)
                else:
                    v[at + TOP] = max(v[at + TOP], t)
            if v[at + TOP] > before_it and _own(a, v, at) >= v[at + NEXT_PUNCTUATION]:
                _punctuate_value(cutter, morsel, attribute, value)
        c[LATE] += late > before
        i += 1
    u[LATE_ROWS] = late
    return i


@njit("int64(int64, int64, int64, int64)", nogil=True, cache=True)
def _cut(cutter: int, morsel: int, start: int, end: int) -> int:
    """Marks the late rows from row ``start`` on and takes the source's marks. Returns the end of
    the morsel: ``end``, or the first row behind a mark whose watermark a consumer awaits."""
    c, u = words(cutter, CUTTER), words(morsel, HEADER)
    late, at, awaited = 0, start, False
    while True:
        stop = end
        if c[NEXT_MARK] < c[ROW_PUNCTUATIONS]:
            stop = min(end, words(c[ROW_PUNCTUATION_ADDRESS] + 8 * MARK * c[NEXT_MARK], 1)[0])
        if stop > at:
            late = _mark(cutter, morsel, start, at, stop, late)
            at = stop
        while c[NEXT_MARK] < c[ROW_PUNCTUATIONS]:
            if words(c[ROW_PUNCTUATION_ADDRESS] + 8 * MARK * c[NEXT_MARK], 1)[0] > at:
                break
            awaited |= _take_punctuation(cutter)
        if awaited or at == end:
            break
    u[LATE_ROWS] = late
    return at


@njit("int64(int64, int64)", nogil=True, cache=True)
def cut(cutter: int, morsel: int) -> int:
    """Cuts the next morsel of the block and returns 1; returns 0 if the block is used up. A mark
    whose watermark a consumer awaits ends the morsel: the mark is a high-priority tuple (paper
    A.1.1)."""
    c, u = words(cutter, CUTTER), words(morsel, HEADER)
    if c[BEGUN] != 0 and c[NEXT] == c[BLOCK] and c[NEXT_MARK] == c[ROW_PUNCTUATIONS]:
        return 0
    c[BEGUN] = 1
    start = c[NEXT]
    end = start + min(c[ROOM], c[TURN], c[BLOCK] - start)
    if c[NUMBERS] != 0:
        at = _cut_by_value(cutter, morsel, start, end)
    else:
        u[PUNCTUATIONS] = 0
        at = _cut(cutter, morsel, start, end)
    width = c[COLUMNS]
    u = words(morsel, HEADER + 2 * width)
    u[ROWS], u[SERIAL], u[SEQUENCE] = at - start, c[NEXT_SERIAL], c[FIRST] + start
    columns = words(cutter + 8 * CUTTER, COLUMN * width)
    for k in range(width):
        u[HEADER + 2 * k] = columns[COLUMN * k] + start * columns[COLUMN * k + 2]
        u[HEADER + 2 * k + 1] = columns[COLUMN * k + 1] + start
    c[NEXT] = at
    c[NEXT_SERIAL] += 1
    _punctuate(cutter, morsel)
    return 1
