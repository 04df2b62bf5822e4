"""The driver of the runtimes with queues: FIFO, FIFO-slice and run-to-completion (xstream III.C).

Every operator has a queue of the morsels that wait for it. The driver copies an output to the
queue's own morsels, because the producer reuses its output morsel at once; the depth-first runtime
saves that copy.

``ready`` is a ring of the operators with waiting morsels, the least recently dequeued first. The
tables are those of ``depth_first.drive`` and, per operator: ``ring`` (its queue of ``slots``
places), ``head`` and ``tail`` (positions that only grow), ``pool_of`` (the pool that its morsels
come from: that of SMALL rows, the larger ones are in the next pool) and the item sizes of its input
columns. ``pool`` has the free morsels of all pools, those of pool ``i`` from ``pool_from[i]`` on;
``spare[i]`` is their number. Operators whose morsels have one layout share their pools, so that a
morsel is filled again while the caches still have it, wherever it goes.
``column_from[operator] + port`` is an index of ``column_from`` itself; the entry there is the start
of that port's item sizes in ``sizes``, the next entry their end.

Where several paths of an input meet again, results keep the order of the depth-first runtime: the
operator there runs when no operator before it has a waiting morsel, and takes its morsels in the
order of their paths (``meets`` and ``adds``, by operator and by edge: ``runtimes.paths``). One
morsel of the input is inside at a time.
"""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import njit
from cql.executor.kernels.drive.depth_first import clear_output, start_morsel
from cql.executor.kernels.lib.clock import add_punctuation, add_time, began_at, nanoseconds
from cql.executor.kernels.lib.memory import call_operator, copy_bytes, words
from cql.executor.kernels.morsel_layout import (
    CAPACITY,
    EPOCH,
    ERROR,
    HEADER,
    LATE_ROW_ADDRESS,
    LATE_ROW_WORDS,
    LATE_ROWS,
    NEED,
    OUTPUT_FULL,
    PATH_NUMBER,
    PORT,
    PUNCTUATION_ADDRESS,
    PUNCTUATION_WORDS,
    PUNCTUATIONS,
    ROWS,
    SEQUENCE,
    SERIAL,
)

#: Rows of a small waiting morsel. Operators that output few rows at a time may fill a queue with
#: thousands of morsels.
SMALL = 1024

# Policies.
FIFO = 0  # one morsel, then the next queue: FIFO-slice with a slice of zero length
FIFO_SLICE = 1  # one queue until the slice is over or the queue is empty
RUN_TO_COMPLETION = 2  # one queue until it is empty, then a successor that received a morsel

# Events (the events of ``depth_first.drive`` keep their numbers).
IDLE = 0
SINK = 1
PYTHON = 2
NEEDS = 3
FAILED = 4
NEED_MORSEL = 6  # the pool control[WANTS] has no free morsel
NEED_ROOM = 7  # the queue of operator control[WANTS] is full

# Control words.
OPERATOR = 0  # the running operator, -1 for none
MORSEL = 1
STATE = 2  # 0: call the operator; 1: deliver its output
EDGE = 3
CODE = 4
NEXT = 5  # successor to run next (run-to-completion), -1 for none
READY_HEAD = 6
READY_TAIL = 7
SLICE_ENDS = 8  # nanoseconds of the monotonic clock
QUEUED = 9  # morsels in all queues
RESULT = 10
NOT_CALLED = -1
WANTS = 11
CALLS = 12
TIMES = 13  # address of the measurements per operator (``clock``), or 0


@njit(
    "void(int64, int64, int64, int64[::1])",
    nogil=True,
    cache=True,
)
def copy_morsel(source: int, target: int, columns: int, sizes: Any) -> None:
    """Copies rows, late rows and punctuation into the target's own buffers."""
    a = words(source, HEADER + 2 * columns)
    b = words(target, HEADER + 2 * columns)
    for k in (ROWS, SERIAL, SEQUENCE, EPOCH, PUNCTUATIONS, LATE_ROWS, PORT):
        b[k] = a[k]
    n = a[ROWS]
    for c in range(columns):
        at = HEADER + 2 * c
        copy_bytes(a[at], b[at], n * sizes[c])
        copy_bytes(a[at + 1], b[at + 1], n)
    punctuation = 8 * PUNCTUATION_WORDS * a[PUNCTUATIONS]
    copy_bytes(a[PUNCTUATION_ADDRESS], b[PUNCTUATION_ADDRESS], punctuation)
    if a[LATE_ROWS] > 0:
        late = 8 * LATE_ROW_WORDS * a[LATE_ROWS]
        copy_bytes(a[LATE_ROW_ADDRESS], b[LATE_ROW_ADDRESS], late)


@njit(inline="always")
def _pool(pool_of: Any, operator: int, rows: int) -> int:
    """The pool of an operator with the morsels that have room for ``rows``."""
    return pool_of[operator] if rows <= SMALL else pool_of[operator] + 1


@njit(
    "int64(int64, int64, int64, int64, int64[::1], int64, int64[::1], int64[::1], int64[::1],"
    " int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1])",
    nogil=True,
    cache=True,
)
def enqueue(
    operator: int,
    source: int,
    port: int,
    path: int,
    ring: Any,
    slots: int,
    head: Any,
    tail: Any,
    pool_of: Any,
    pool_from: Any,
    pool: Any,
    spare: Any,
    column_from: Any,
    sizes: Any,
    ready: Any,
    control: Any,
) -> int:
    """Copies a morsel that comes on ``path`` to the queue of an operator. Returns 0, NEED_MORSEL or
    NEED_ROOM."""
    own = _pool(pool_of, operator, words(source, HEADER)[ROWS])
    if spare[own] == 0:
        control[WANTS] = own
        return NEED_MORSEL
    if tail[operator] - head[operator] >= slots:
        return NEED_ROOM
    spare[own] -= 1
    morsel = pool[pool_from[own] + spare[own]]
    at = column_from[operator] + port
    first = column_from[at]
    columns = column_from[at + 1] - first
    copy_morsel(source, morsel, columns, sizes[first : first + columns])
    u = words(morsel, HEADER)
    u[PORT], u[PATH_NUMBER] = port, path
    ring[operator * slots + tail[operator] % slots] = morsel
    if tail[operator] == head[operator] and control[OPERATOR] != operator:
        ready[control[READY_TAIL] % ready.size] = operator
        control[READY_TAIL] += 1
    tail[operator] += 1
    control[QUEUED] += 1
    return 0


@njit(inline="always")
def _to_front(ring: Any, first: int, size: int, head: int, at: int) -> None:
    """Moves the entry at position ``at`` of a ring, whose places begin at ``first``, to position
    ``head``; those between keep their order."""
    moved = ring[first + at % size]
    while at > head:
        ring[first + at % size] = ring[first + (at - 1) % size]
        at -= 1
    ring[first + head % size] = moved


@njit(inline="always")
def _bring_forward(ready: Any, control: Any, operator: int) -> None:
    """Moves an operator of the ready ring to its front."""
    size = ready.size
    at = control[READY_TAIL] - 1
    while at >= control[READY_HEAD] and ready[at % size] != operator:
        at -= 1
    if at >= control[READY_HEAD]:  # otherwise it feeds itself and has emptied its queue
        _to_front(ready, 0, size, control[READY_HEAD], at)


@njit(inline="always")
def _defer_meeting(ready: Any, control: Any, meets: Any) -> None:
    """Moves another operator to the front of the ready ring before one at which paths meet: any
    other, or else the first in topological order."""
    size, best = ready.size, control[READY_HEAD]
    for at in range(control[READY_HEAD], control[READY_TAIL]):
        if meets[ready[at % size]] < meets[ready[best % size]]:
            best = at
    _to_front(ready, 0, size, control[READY_HEAD], best)


@njit(inline="always")
def _first_path_forward(ring: Any, first: int, slots: int, head: int, tail: int) -> None:
    """Moves the morsel that came on the first path to the front of a queue."""
    best, least = head, words(ring[first + head % slots], HEADER)[PATH_NUMBER]
    for at in range(head + 1, tail):
        path = words(ring[first + at % slots], HEADER)[PATH_NUMBER]
        if path < least:
            best, least = at, path
    _to_front(ring, first, slots, head, best)


@njit(
    "int64(int64, int64, int64, int64[::1], int64[::1], int64[::1], int64[::1], int64[::1],"
    " int64[::1], int64[::1], int64[::1], int64[::1], int64, int64[::1], int64[::1], int64[::1],"
    " int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64)",
    nogil=True,
    cache=True,
)
def run(
    policy: int,
    slice_ns: int,
    until: int,
    address: Any,
    descriptor: Any,
    out: Any,
    edge_from: Any,
    edge_to: Any,
    edge_port: Any,
    meets: Any,
    adds: Any,
    ring: Any,
    slots: int,
    head: Any,
    tail: Any,
    pool_of: Any,
    pool_from: Any,
    pool: Any,
    spare: Any,
    column_from: Any,
    sizes: Any,
    ready: Any,
    control: Any,
    clock: int,
) -> int:
    """Runs until at most ``until`` morsels wait (IDLE) or an event needs Python. Returns the event;
    the caller handles the event and calls again. ``slice_ns``: nanoseconds of a slice; ``clock``:
    address of two words of room."""
    times = control[TIMES]
    while True:
        operator = control[OPERATOR]
        if operator < 0:
            if control[QUEUED] <= until or control[READY_HEAD] == control[READY_TAIL]:
                return IDLE
            if meets[ready[control[READY_HEAD] % ready.size]] != 0:
                _defer_meeting(ready, control, meets)
            operator = ready[control[READY_HEAD] % ready.size]
            control[READY_HEAD] += 1
            control[OPERATOR] = operator
            control[MORSEL] = 0
            control[NEXT] = -1
            if policy == FIFO_SLICE:
                control[SLICE_ENDS] = nanoseconds(clock) + slice_ns
        if control[MORSEL] == 0:
            if meets[operator] != 0:
                first = operator * slots
                _first_path_forward(ring, first, slots, head[operator], tail[operator])
            morsel = ring[operator * slots + head[operator] % slots]
            head[operator] += 1
            control[QUEUED] -= 1
            control[MORSEL] = morsel
            control[STATE] = 0
            start = words(morsel, HEADER)
            start_morsel(start, start[PORT], out[operator])
            clear_output(words(out[operator], HEADER))
        result = words(out[operator], HEADER)
        if control[STATE] == 0:
            if address[operator] == 0:
                if control[RESULT] == NOT_CALLED:
                    return PYTHON
                code = control[RESULT]
                control[RESULT] = NOT_CALLED
            else:
                began = began_at(times)
                code = call_operator(address[operator], descriptor[operator], control[MORSEL])
                add_time(times, operator, began)
            control[CALLS] += 1
            if code == NEED:
                return NEEDS
            if code == ERROR:
                return FAILED
            done = 0 if code == OUTPUT_FULL else control[MORSEL]
            add_punctuation(times, operator, done, out[operator])
            control[CODE] = code
            control[EDGE] = edge_from[operator]
            control[STATE] = 1
        if result[ROWS] > 0 or result[PUNCTUATIONS] > 0:
            while control[EDGE] < edge_from[operator + 1]:
                edge = control[EDGE]
                target = edge_to[edge]
                if target < 0:
                    control[EDGE] += 1
                    return SINK
                event = enqueue(
                    target,
                    out[operator],
                    edge_port[edge],
                    words(control[MORSEL], HEADER)[PATH_NUMBER] + adds[edge],
                    ring,
                    slots,
                    head,
                    tail,
                    pool_of,
                    pool_from,
                    pool,
                    spare,
                    column_from,
                    sizes,
                    ready,
                    control,
                )
                if event != 0:
                    return event
                if control[NEXT] < 0:
                    control[NEXT] = target
                control[EDGE] += 1
        clear_output(result)
        if control[CODE] == OUTPUT_FULL:
            control[STATE] = 0
            continue
        own = _pool(pool_of, operator, words(control[MORSEL], HEADER)[CAPACITY])
        pool[pool_from[own] + spare[own]] = control[MORSEL]
        spare[own] += 1
        control[MORSEL] = 0
        more = tail[operator] > head[operator]
        if more and policy == RUN_TO_COMPLETION:
            continue
        if more and policy == FIFO_SLICE and nanoseconds(clock) < control[SLICE_ENDS]:
            continue
        if more:
            ready[control[READY_TAIL] % ready.size] = operator
            control[READY_TAIL] += 1
        control[OPERATOR] = -1
        if policy == RUN_TO_COMPLETION and control[NEXT] >= 0:
            _bring_forward(ready, control, control[NEXT])
