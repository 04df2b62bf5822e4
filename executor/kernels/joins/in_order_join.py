"""The work of the in-order window joins that is done once for each morsel and does not depend on
the columns: watermarks in, punctuation out, memory, and the measurements by which Adaptive chooses
(in-order paper §6).

A descriptor begins with the words ``SHARED``. The words ``OF_INPUT`` of each input follow, then one
word for each ordered pair of inputs: by how much a row of the second input may be later than a row
of the first. ``operators.joins.in_order_join_kernel`` explains the words."""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import njit
from cql.executor.kernels.drive.passing import send
from cql.executor.kernels.lib.clock import nanoseconds
from cql.executor.kernels.lib.memory import bits_of_f64, f64_of_bits, words
from cql.executor.kernels.morsel_layout import (
    DETAIL,
    DETAIL_ROW,
    DONE,
    END_OF_INPUT,
    HEADER,
    IDLE,
    INFINITY,
    NEED,
    OUT,
    PORT,
    PUNCTUATION_ADDRESS,
    PUNCTUATION_WORDS,
    PUNCTUATIONS,
)

#: Words of the whole join. ``ports``: the number of inputs; ``time column``: the output column that
#: holds the time of the result, or -1.
SHARED = (
    *("ports", "time column", "held", "free", "top", "pool", "lulls", "rows", "mode", "resuming"),
    *("punctuated", "finished", "idling", "emitted", "quantum", "adaptive", "measures", "alpha"),
    *("cost", "step", "time so far", "work so far", "clock", "more of the clock"),
    *("peak_join_windows", "peak_input_queues", "peak_hold_buffer"),
)
#: Words of an input. ``time``: its time column; ``out_time``: the output column that holds this
#: time column, or -1; ``t``: the address of the ring of times.
OF_INPUT = (
    *("keep", "head", "gone", "done", "tail", "watermark", "ended", "idle", "punctuated", "latest"),
    *("seen", "gap", "since", "most", "room", "far", "time", "out_time", "t"),
)
FIRST, WIDTH = len(SHARED), len(OF_INPUT)
# Offsets of these words.
PORTS, TIME_COLUMN, HELD, FREE, TOP, POOL, LULLS, LEAST_ROOM = range(8)
PUNCTUATED, FINISHED, IDLING = range(10, 13)
ADAPTIVE, MEASURES = 15, 16
COST, STEP, TIME_SO_FAR, WORK_SO_FAR, CLOCK = range(18, 23)
PEAK_QUEUES = 25
KEEP, HEAD, GONE, JOINED, TAIL, WATERMARK, ENDED, SILENT, INPUT_PUNCTUATED, LATEST = range(10)
SEEN, GAP, SINCE, MOST, ROOM, FAR, TIME, OUT_TIME, TIMES = range(10, 19)
# The buffer of a NEED (``kernel_builder.NEED_ROOM`` plus a number): the number of an input means
# its ring, NEED_RESULTS the hold buffer.
NEED_ROOM = 3 << 20
NEED_RESULTS = 64
#: The absolute value of every time is below half of NO_BOUND.
NO_BOUND = 1 << 62
#: Rows over which an arrival rate is averaged; and the factor by which each measurement of the cost
#: reduces the weight of the earlier ones.
ARRIVALS, FADES = 256, 0.98


@njit("int64[::1](int64)", cache=True)
def _whole(desc: int) -> Any:
    ports = words(desc, FIRST)[PORTS]
    return words(desc, FIRST + ports * (WIDTH + ports))


@njit(inline="always")
def _input(port: int) -> int:
    """Offset of the words of an input."""
    return FIRST + WIDTH * port


@njit("int64(int64[::1], int64, int64)", cache=True)
def _time_of(d: Any, port: int, number: int) -> int:
    """The time of row ``number`` of an input; for a row that has not arrived, its lower bound."""
    at = _input(port)
    if number >= d[at + TAIL]:
        return d[at + WATERMARK]
    return words(d[at + TIMES], d[at + ROOM])[number & (d[at + ROOM] - 1)]


@njit("int64(int64[::1])", cache=True)
def _least_to_leave(d: Any) -> int:
    """Lower bound of the times of all results that have not left."""
    least = INFINITY
    for port in range(d[PORTS]):
        least = min(least, _time_of(d, port, d[_input(port) + GONE]))
    return least


# -- watermarks ------------------------------------------------------------------------------------


@njit("void(int64, int64)", cache=True)
def note_progress(desc: int, morsel: int) -> None:
    """Applies the punctuation of a morsel to the watermarks of the inputs. The watermark of an idle
    input rises to the minimum over the inputs that are neither idle nor ended."""
    d, u = _whole(desc), words(morsel, HEADER)
    at = _input(u[PORT])
    arrived = words(u[PUNCTUATION_ADDRESS], PUNCTUATION_WORDS * u[PUNCTUATIONS])
    for p in range(u[PUNCTUATIONS]):
        record = PUNCTUATION_WORDS * p
        if arrived[record + 2] >= 0:
            continue
        if arrived[record] == d[at + TIME]:
            d[at + WATERMARK] = max(d[at + WATERMARK], arrived[record + 1])
        elif arrived[record] == IDLE:
            d[at + SILENT] = arrived[record + 1]
        elif arrived[record] == END_OF_INPUT:
            d[at + ENDED] = 1
            d[at + WATERMARK] = INFINITY
    least = INFINITY
    for port in range(d[PORTS]):
        at = _input(port)
        if d[at + SILENT] == 0 and d[at + ENDED] == 0:
            least = min(least, d[at + WATERMARK])
    if least == INFINITY:
        return
    for port in range(d[PORTS]):
        at = _input(port)
        if d[at + SILENT] != 0:
            d[at + WATERMARK] = max(d[at + WATERMARK], least)


@njit("void(int64[::1], int64[::1])", cache=True)
def _punctuate(d: Any, o: Any) -> None:
    leaving = words(o[PUNCTUATION_ADDRESS], PUNCTUATION_WORDS * (d[PORTS] + 4))
    n = o[PUNCTUATIONS]
    ended, silent = 1, 1
    for port in range(d[PORTS]):
        at = _input(port)
        ended &= d[at + ENDED]
        silent &= d[at + SILENT] | d[at + ENDED]
    least = _least_to_leave(d)
    if ended == 0 and least > -(NO_BOUND >> 1):
        if d[TIME_COLUMN] >= 0 and least > d[PUNCTUATED]:
            d[PUNCTUATED] = least
            n = send(leaving, n, d[TIME_COLUMN], least)
        for port in range(d[PORTS]):
            at = _input(port)
            value = least - d[at + FAR]
            if d[at + OUT_TIME] >= 0 and value > max(d[at + INPUT_PUNCTUATED], -(NO_BOUND >> 1)):
                d[at + INPUT_PUNCTUATED] = value
                n = send(leaving, n, d[at + OUT_TIME], value)
    if ended != 0 and d[FINISHED] == 0:
        d[FINISHED] = 1
        n = send(leaving, n, END_OF_INPUT, INFINITY)
    silent &= 1 - ended
    if silent != d[IDLING]:
        d[IDLING] = silent
        n = send(leaving, n, IDLE, silent)
    o[PUNCTUATIONS] = n


# -- memory ----------------------------------------------------------------------------------------


@njit("int64(int64[::1])", cache=True)
def _too_large(d: Any) -> int:
    """The number of a ring, or NEED_RESULTS for the hold buffer, that has been less than one eighth
    full for long and should shrink; -1 if there is none."""
    for port in range(d[PORTS]):
        at = _input(port)
        room, most = d[at + ROOM], d[at + MOST]
        if d[at + TAIL] - d[at + SINCE] > 8 * room:
            d[at + SINCE] = d[at + TAIL]
            d[at + MOST] = d[at + TAIL] - d[at + KEEP]
            if 8 * most < room and room > d[LEAST_ROOM]:
                return port
    if d[HELD] == 0 and d[TOP] > 0:
        d[LULLS] = d[LULLS] + 1 if 8 * d[TOP] < d[POOL] else 0
        d[FREE], d[TOP] = -1, 0
        if d[LULLS] > ARRIVALS and d[POOL] > d[LEAST_ROOM]:
            d[LULLS] = 0
            return NEED_RESULTS
    return -1


@njit("int64(int64, int64, int64)", cache=True)
def finish_morsel(desc: int, morsel: int, status: int) -> int:
    """Ends a call of the kernel: drops rows from the rings that no waiting result refers to and, if
    the morsel is done (``status`` is DONE), sends punctuation. Returns ``status``, or NEED for a
    buffer that should shrink."""
    d, u = _whole(desc), words(morsel, HEADER)
    least, queued = _least_to_leave(d), 0
    for port in range(d[PORTS]):
        at = _input(port)
        lowest = min(d[at + HEAD], d[at + GONE])
        if d[HELD] == 0:
            d[at + KEEP] = lowest
        while d[at + KEEP] < lowest and _time_of(d, port, d[at + KEEP]) + d[at + FAR] < least:
            d[at + KEEP] += 1
        queued += d[at + TAIL] - d[at + JOINED]
    if status != DONE:
        return status
    d[PEAK_QUEUES] = max(d[PEAK_QUEUES], queued)
    requested = _too_large(d)
    if requested >= 0:
        u[DETAIL], u[DETAIL_ROW] = NEED_ROOM + requested, 0
        return NEED
    _punctuate(d, words(u[OUT], HEADER))
    return DONE


# -- Adaptive --------------------------------------------------------------------------------------


@njit("void(int64, int64, int64)", cache=True)
def note_arrivals(desc: int, port: int, before: int) -> None:
    """Updates the mean time between rows of an input with the rows from number ``before`` on: the
    mean over all rows at first, then an exponential mean over about the last ARRIVALS rows."""
    d, at = _whole(desc), _input(port)
    rows = d[at + TAIL] - before
    if rows == 0:
        return
    gaps = rows
    if d[at + SEEN] == 0:
        gaps -= 1
        d[at + LATEST] = _time_of(d, port, before)
    d[at + SEEN] += rows
    if gaps > 0:
        mean, so_far = (d[at + WATERMARK] - d[at + LATEST]) / gaps, f64_of_bits(d[at + GAP])
        weight = min(1.0, gaps / min(d[at + SEEN] - 1, ARRIVALS))
        d[at + GAP] = bits_of_f64(so_far + (mean - so_far) * weight)
        d[at + LATEST] = d[at + WATERMARK]


@njit("float64(int64)", cache=True, error_model="numpy")
def load_of(desc: int) -> float:
    """c·w·λ1·λ2 of in-order paper §6; with more than two inputs, the sum over all pairs; 0 while a
    rate is unknown. w is the mean of the two window lengths of a pair, which is |w| if the two are
    equal."""
    d = _whole(desc)
    reach = _input(d[PORTS])
    total = 0.0
    for j in range(d[PORTS]):
        if d[_input(j) + SEEN] < 2:
            return 0.0
        for i in range(j):
            stays = (
                max(d[reach + i * d[PORTS] + j], 0) / 2 + max(d[reach + j * d[PORTS] + i], 0) / 2
            )
            gaps = f64_of_bits(d[_input(i) + GAP]) * f64_of_bits(d[_input(j) + GAP])
            total += stays / gaps
    return f64_of_bits(d[COST]) * total


@njit("int64(int64)", cache=True)
def look_at_clock(desc: int) -> int:
    """The clock in nanoseconds if Adaptive measures the cost of joining, else 0."""
    d = words(desc, FIRST)
    return nanoseconds(desc + 8 * CLOCK) if d[ADAPTIVE] != 0 and d[MEASURES] != 0 else 0


@njit("void(int64, int64, int64)", cache=True)
def note_cost(desc: int, began: int, work: int) -> None:
    """Updates c, the mean cost for each window row that was probed, in steps of event time.

    ``began`` is the clock (nanoseconds) when the joining began, or 0 if the cost is not measured;
    ``work`` is the number of window rows that were probed since."""
    d = words(desc, FIRST)
    if began == 0 or work == 0:
        return
    spent = FADES * f64_of_bits(d[TIME_SO_FAR]) + (nanoseconds(desc + 8 * CLOCK) - began)
    done = FADES * f64_of_bits(d[WORK_SO_FAR]) + work
    d[TIME_SO_FAR], d[WORK_SO_FAR] = bits_of_f64(spent), bits_of_f64(done)
    d[COST] = bits_of_f64(spent / done * f64_of_bits(d[STEP]))
