"""The native function of the join of two changing relations, instant by instant."""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import cfunc, njit
from cql.executor.kernels.drive.passing import send
from cql.executor.kernels.joins import relation_pairs as step
from cql.executor.kernels.joins import relation_sides as sides
from cql.executor.kernels.joins.pair_rows import LEFT, OF_OUTPUT, RIGHT, give_pairs
from cql.executor.kernels.joins.relation_pairs import NOTHING, NOW, OWN, PLACE, STEP, WEIGHT_OUT
from cql.executor.kernels.joins.relation_sides import CHANGING, IDLING, LISTED, WATERMARK
from cql.executor.kernels.lib.memory import as_i32, as_u8, put_integer, words
from cql.executor.kernels.morsel_layout import (
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
    PORT,
    PUNCTUATION_ADDRESS,
    PUNCTUATION_WORDS,
    PUNCTUATIONS,
    ROWS,
    SEQUENCE,
    SERIAL,
)
from cql.executor.kernels.order.row_slab import HELD, PLACES, SLOTS
from cql.executor.kernels.order.sort_keys import COLUMNS, DATA, column_at, whole
from cql.executor.kernels.relations import frontier
from cql.executor.kernels.relations.frontier import (
    ENDED,
    LINE,
    NEED_SLOTS,
    ROOM,
    TAIL,
    TIMES,
    append_rows,
    note_progress,
    sort_waiting,
)

NEED_RANK = 4  # request of the operator: the ranks of all texts

# Descriptor: behind the words of ``relation_pairs``.
SENT = step.BEHIND  # the watermark sent last
RESTING = SENT + 1  # whether the output is idle
FINISHED = SENT + 2  # whether the end has been sent
RANKED = SENT + 3  # whether the ranks know all texts of the morsel; 2: it needs none
MARKS = SENT + 4  # whether the output has a column with the answer
TIME_BYTES = SENT + 5  # of the output's time
ROWS_IN = SENT + 6
ROWS_OUT = SENT + 7
OUTPUTS = SENT + 8  # number of output columns with values of the sides
FIRST = SENT + 9  # their words (``kernels.joins.pair_rows``)


@njit("void(int64[::1], int64[::1], int64)", nogil=True, cache=True)
def _postpone(j: Any, side: Any, n: int) -> None:
    """Sets the times of the last ``n`` rows of the line to the join's watermark or above it."""
    times, line = words(side[TIMES], side[ROOM]), as_i32(side[LINE], side[ROOM])
    weights = words(side[column_at(side, side[COLUMNS] - 1) + DATA], side[SLOTS])
    for place in range(side[TAIL] - n, side[TAIL]):
        if times[place] < j[WATERMARK]:
            times[place] = j[WATERMARK]
            side[sides.TOO_LATE] += weights[line[place]] > 0


@njit("void(int64[::1])", nogil=True, cache=True)
def _advance(j: Any) -> None:
    """Moves the join's watermark to the minimum over the inputs that are neither idle nor ended.
    Without such an input, it stays."""
    found, over, waits = INFINITY, 0, False
    for port in (LEFT, RIGHT):
        side = words(j[port], sides.END)
        over += side[ENDED]
        if side[ENDED] == 0 and side[IDLING] == 0:
            found, waits = min(found, side[frontier.WATERMARK]), True
    if over == 2 or waits:
        j[WATERMARK] = max(j[WATERMARK], found)


@njit("boolean(int64[::1], int64[::1], int64[::1])", nogil=True, cache=True)
def _take_in(j: Any, side: Any, u: Any) -> bool:
    """Takes in a morsel of a side: its rows, then its punctuation. A change of an instant that is
    over, of an input that was idle, counts for the earliest instant that is not. Returns False if
    room is needed first."""
    if u[PHASE] == 0:
        if side[SLOTS] - side[HELD] < u[ROWS]:
            u[DETAIL], u[DETAIL_ROW] = sides.OF_SIDE * u[PORT] + NEED_SLOTS, u[ROWS]
            return False
        j[ROWS_IN] += u[ROWS]
        append_rows(side, u, 0)
        _postpone(j, side, u[ROWS])
        u[PHASE] = 1
    if not sort_waiting(side, u):
        u[DETAIL] += sides.OF_SIDE * u[PORT]
        return False
    note_progress(side, u)
    arrived = words(u[PUNCTUATION_ADDRESS], PUNCTUATION_WORDS * u[PUNCTUATIONS])
    for p in range(u[PUNCTUATIONS]):
        if arrived[PUNCTUATION_WORDS * p] == IDLE:
            side[IDLING] = arrived[PUNCTUATION_WORDS * p + 1]
    _advance(j)
    u[PHASE] = 2
    return True


@njit(inline="always")
def _put_instant(j: Any, o: Any, first: int, end: int) -> None:
    times = o[HEADER + 2 * (j[WEIGHT_OUT] - 1)]
    for k in range(first, end):
        put_integer(times, j[TIME_BYTES], k, j[NOW])
    if words(j[LEFT], sides.END)[frontier.BORN] != 0:
        order = words(o[HEADER + 2 * (j[WEIGHT_OUT] + 1)], end)
        for k in range(first, end):
            order[k] = j[NOW]


@njit("UniTuple(int64, 2)(int64[::1], int64[::1], int64[::1])", nogil=True, cache=True)
def _join(j: Any, u: Any, o: Any) -> tuple[int, int]:
    """Writes changes to the output. Returns their number, and DONE, OUTPUT_FULL or NEED."""
    n = 0
    while True:
        at = j[STEP]
        if at == step.BEGIN:
            time = sides.next_instant(j)
            if time == INFINITY or not sides.is_over(j, time):
                return n, DONE
            j[NOW] = time
        elif at < step.PAIR:
            if not step.gather(j, u, at - step.GATHER):
                return n, NEED
        elif at < step.EMIT:
            first, port = n, at - step.PAIR
            n = step.pairs(j, o, port, n)
            _put_instant(j, o, first, n)
            if j[PLACE] < words(j[port], sides.END)[CHANGING]:
                return n, OUTPUT_FULL
        else:
            first, port = n, at - step.EMIT
            if j[OWN + port] != NOTHING:
                n = step.emit(j, o, port, n)
                _put_instant(j, o, first, n)
                if j[PLACE] < words(j[port], sides.END)[LISTED]:
                    return n, OUTPUT_FULL
        j[STEP], j[PLACE] = at + 1, 0
        if at == step.EMIT + RIGHT:
            step.close(j, LEFT)
            step.close(j, RIGHT)
            j[STEP] = step.BEGIN


@njit("void(int64[::1], int64[::1], int64)", nogil=True, cache=True)
def _send_rows(j: Any, o: Any, n: int) -> None:
    """Writes the ``n`` changes at the PLACES of both sides to the output."""
    left, right = whole(j[LEFT]), whole(j[RIGHT])
    if j[MARKS] != 0:
        partners, answers = as_i32(right[PLACES], n), as_u8(o[HEADER + 2 * j[OUTPUTS]], n)
        for k in range(n):
            answers[k] = partners[k] == step.SOME
    give_pairs(left, right, j[FIRST:], o, n)
    o[ROWS] = n
    j[ROWS_OUT] += n


@njit("int64(int64[::1], int64[::1], int64, int64)", nogil=True, cache=True)
def _punctuate(j: Any, o: Any, n: int, watermark: int) -> int:
    """Emits punctuation number ``n``: all later output belongs to instants from ``watermark`` on.
    Returns the number of punctuations."""
    if watermark > j[SENT]:
        n = send(words(o[PUNCTUATION_ADDRESS], PUNCTUATION_WORDS * (n + 1)), n,
                 j[WEIGHT_OUT] - 1, watermark)  # fmt: skip
        j[SENT] = watermark
    return n


@njit("int64(int64[::1], int64[::1])", nogil=True, cache=True)
def _punctuate_end(j: Any, o: Any) -> int:
    """Emits punctuation behind the output of a morsel; returns the number of punctuations."""
    left, right = words(j[LEFT], sides.END), words(j[RIGHT], sides.END)
    leaving = words(o[PUNCTUATION_ADDRESS], PUNCTUATION_WORDS)
    if left[ENDED] != 0 and right[ENDED] != 0:
        finished, j[FINISHED] = j[FINISHED], 1
        return 0 if finished != 0 else send(leaving, 0, END_OF_INPUT, INFINITY)
    n, resting = 0, (left[ENDED] | left[IDLING]) & (right[ENDED] | right[IDLING])
    if resting != j[RESTING]:
        j[RESTING] = resting
        n = send(leaving, n, IDLE, resting)
    return _punctuate(j, o, n, j[WATERMARK])


@cfunc("int64(int64, int64)", nopython=True, cache=True)
def relation_join(desc: Any, morsel: Any) -> Any:
    j = words(desc, FIRST + OF_OUTPUT * words(desc, FIRST)[OUTPUTS])
    side = whole(j[words(morsel, HEADER)[PORT]])
    u = words(morsel, HEADER + 2 * side[COLUMNS])
    o = words(u[OUT], HEADER + 2 * (j[WEIGHT_OUT] + 3))
    if j[RANKED] == 0:
        u[DETAIL] = NEED_RANK
        return NEED
    if u[PHASE] < 2 and not _take_in(j, side, u):
        return NEED
    o[SERIAL], o[EPOCH], o[SEQUENCE] = u[SERIAL], u[EPOCH], j[ROWS_OUT]
    n, code = _join(j, u, o)
    if code == NEED and n == 0:
        return NEED
    _send_rows(j, o, n)
    if code != DONE:
        # The punctuation of all partitions is the same.
        o[PUNCTUATIONS] = _punctuate(j, o, 0, j[NOW]) if side[frontier.BORN] == 0 else 0
        return OUTPUT_FULL
    sides.forget(j, LEFT)
    sides.forget(j, RIGHT)
    if j[RANKED] == 1:
        j[RANKED] = 0
    o[PUNCTUATIONS] = _punctuate_end(j, o)
    return DONE
