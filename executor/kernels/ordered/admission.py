"""Worker 0 of the ordered runtime: it admits morsels as long as there is room for them, hands
results to Python, and works on tasks in between.

An admitted morsel is a view of the block from which it was cut. For each task with several ports on
the path of a morsel, admission queues a turn (place and port), so that the task reads its ports in
the order of admission (``handover.next_input``).
"""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import njit
from cql.executor.kernels.ingest.cutter import BLOCK, CUTTER, FIRST, NEXT, ROOM
from cql.executor.kernels.ingest.input_scheduler import (
    AHEAD,
    CURRENT,
    HEADER,
    INPUTS,
    LEFT,
    OF_CUTTER,
    READS,
    next_turn,
    record,
    take,
)
from cql.executor.kernels.ingest.input_scheduler import INPUT as SCHEDULER_INPUT
from cql.executor.kernels.ingest.input_scheduler import MORSEL as OF_MORSEL
from cql.executor.kernels.lib.atomics import fetch_add, load_acquire, store_release
from cql.executor.kernels.lib.condition import wake
from cql.executor.kernels.lib.memory import copy_bytes, words
from cql.executor.kernels.lib.mpmc_queue import held, poll_held
from cql.executor.kernels.morsel_layout import (
    BASE,
    FEED,
    LATE_ROW_ADDRESS,
    LATE_ROW_WORDS,
    LATE_ROWS,
    OWN_LATE_ROWS,
    PARENT,
    PATH_NUMBER,
    PORT,
    PUNCTUATIONS,
    ROWS,
    SERIAL,
)
from cql.executor.kernels.morsel_layout import HEADER as MORSEL_HEADER
from cql.executor.kernels.ordered.handover import PATH_BITS, PORT_BITS, push, show, waiting
from cql.executor.kernels.ordered.schedulers import NONE
from cql.executor.kernels.ordered.tables import (
    ADMITTED,
    ENTRY_POOL,
    FIRST_INPUT,
    INPUT,
    INSIDE,
    KIND,
    MORSEL_ROWS,
    MORSEL_WORK,
    MOST_ROWS,
    PARTITIONED,
    PARTS,
    PATH,
    PATHS,
    PLAN,
    PORT_WORDS,
    PYTHON_WORK,
    QUEUE_MASK,
    RETURN_REQUESTED,
    ROWS_ADMITTED,
    SINK,
    SIZED_AT,
    SIZED_PYTHON,
    SIZED_ROWS,
    SIZED_TIME,
    SLEEPING,
    SLEPT,
    STOP,
    TARGET,
    TARGET_PORT,
    TASK,
    TASKS,
    TIME,
    TURN_PUT,
    TURN_TAKEN,
    TURNS,
    TURNS_MASK,
    VISIT,
    WANTED,
    WORKER,
    WORKERS,
    port_at,
    task_at,
    worker_at,
)
from cql.executor.kernels.ordered.tables import AT as AT_TASK
from cql.executor.kernels.ordered.worker import (
    DELIVER,
    LOOK,
    QUIET,
    READ_AHEAD,
    SLICE_OVER,
    USED_UP,
    found,
    rest,
    work_once,
)

#: Morsels after which their size is chosen again.
_SIZED = 16
#: Nanoseconds. Morsels grow until Python's work for a morsel is at most a fifth of the work of the
#: morsel, but not beyond this work.
_LONGEST = 50_000_000


@njit(inline="always")
def _input(plan: int, k: int) -> Any:
    return words(words(plan, PLAN)[FIRST_INPUT] + 8 * INPUT * k, INPUT)


@njit("int64(int64, int64)", nogil=True, cache=True)
def has_room(plan: int, k: int) -> int:
    """Whether a morsel of input ``k`` can be admitted now."""
    i = _input(plan, k)
    if held(i[ENTRY_POOL]) == 0:
        return 0
    port = port_at(task_at(plan, i[TARGET]), i[TARGET_PORT])
    if waiting(port) > words(port, PORT_WORDS)[QUEUE_MASK]:
        return 0
    path = words(i[PATH], VISIT * i[PATHS])
    for p in range(i[PATHS]):
        task = task_at(plan, path[VISIT * p])
        s = words(task, TASK)
        queued = s[TURN_PUT] - load_acquire(task + 8 * TURN_TAKEN)
        if queued + i[PATHS] > s[TURNS_MASK] + 1:  # all visits may be to this task
            return 0
    return 1


@njit("int64(int64, int64, int64, int64)", nogil=True, cache=True)
def admit(plan: int, k: int, morsel: int, base: int) -> int:
    """Admits a view of a morsel of input ``k``; the caller may reuse the morsel at once. ``base``
    is the stream position of the first row of its block. Returns 1, or 0 if there is no room."""
    if has_room(plan, k) == 0:
        return 0
    i = _input(plan, k)
    entry = poll_held(i[ENTRY_POOL])
    show(morsel, entry)
    e = words(entry, MORSEL_HEADER)
    e[PARENT], e[PORT] = 0, i[TARGET_PORT]
    e[FEED], e[BASE], e[PATH_NUMBER] = k, base, 0
    if e[LATE_ROWS] > 0:
        late = 8 * LATE_ROW_WORDS * e[LATE_ROWS]
        copy_bytes(e[LATE_ROW_ADDRESS], e[OWN_LATE_ROWS], late)
        e[LATE_ROW_ADDRESS] = e[OWN_LATE_ROWS]
    serial = e[SERIAL]
    words(plan, PLAN)[ROWS_ADMITTED] += e[ROWS]
    push(plan, port_at(task_at(plan, i[TARGET]), i[TARGET_PORT]), entry)
    path = words(i[PATH], VISIT * i[PATHS])
    for p in range(i[PATHS]):
        visit = path[VISIT * p : VISIT * (p + 1)]
        task, place = task_at(plan, visit[0]), serial << PATH_BITS | visit[2]
        s = words(task, TASK)
        at = s[TURN_PUT]
        words(s[TURNS], s[TURNS_MASK] + 1)[at & s[TURNS_MASK]] = place << PORT_BITS | visit[1]
        store_release(task + 8 * TURN_PUT, at + 1)
    fetch_add(plan + 8 * ADMITTED, 1)
    wake(plan + 8 * SLEEPING)
    return 1


@njit("int64(int64, int64, int64, int64)", nogil=True, cache=True)
def rows_for(wanted: int, work: int, rows: int, now: int) -> int:
    """The number of rows that take ``wanted`` nanoseconds of work, given that ``rows`` rows took
    ``work`` nanoseconds. The result is between half and twice the current number ``now``, since the
    measurement may lag."""
    return min(max(wanted * rows // max(work, 1), now // 2, 1), 2 * now)


@njit("void(int64, int64)", nogil=True, cache=True)
def _size_morsels(plan: int, scheduler: int) -> None:
    """Chooses the number of rows of a morsel, every _SIZED morsels: the most expensive task (or one
    partition of it) should take about MORSEL_WORK nanoseconds for each morsel, so that handover
    costs little in comparison. (When MORSEL_WORK was the work of all tasks together, the calls of
    TPCx-BB 1 took 8 us, and two workers took a fifth longer.)"""
    header = words(plan, PLAN)
    if header[MORSEL_WORK] == 0 or header[ADMITTED] < header[SIZED_AT]:
        return
    header[SIZED_AT] = header[ADMITTED] + _SIZED
    work = 0
    for k in range(header[TASKS]):
        s = words(task_at(plan, k), TASK)
        parts = s[PARTS] if s[KIND] == PARTITIONED else 1
        work = max(work, (s[TIME] - s[SIZED_TIME]) // parts)
    answered = 0
    for w in range(header[WORKERS]):
        answered += words(worker_at(plan, w), WORKER)[PYTHON_WORK]
    python = max(answered - header[SIZED_PYTHON], 0)
    header[SIZED_PYTHON] = answered
    rows = header[ROWS_ADMITTED] - header[SIZED_ROWS]
    if work > 0 and rows > 0:
        least = header[MORSEL_WORK]
        wanted = max(least, min(least + 4 * python // _SIZED, _LONGEST))
        size = rows_for(wanted, work, rows, header[MORSEL_ROWS])
        header[MORSEL_ROWS] = min(size, header[MOST_ROWS])
        header[SIZED_ROWS] += rows
        for k in range(header[TASKS]):
            s = words(task_at(plan, k), TASK)
            s[SIZED_TIME] = s[TIME]
    for k in range(words(scheduler, HEADER)[INPUTS]):
        cutter = words(scheduler + 8 * (HEADER + SCHEDULER_INPUT * k), SCHEDULER_INPUT)[OF_CUTTER]
        words(cutter, CUTTER)[ROOM] = header[MORSEL_ROWS]


@njit("int64(int64, int64)", nogil=True, cache=True)
def _admit_next(plan: int, scheduler: int) -> int:
    """Cuts and admits the next morsel and returns 1. Otherwise returns 0 if there is no room for
    the morsel; READ_AHEAD if there is no room and the other workers have enough work for worker 0
    to read the input's next block; USED_UP if the input has no block."""
    _size_morsels(plan, scheduler)
    h = words(scheduler, HEADER)
    k = h[CURRENT] if h[LEFT] > 0 else next_turn(scheduler)
    if k >= 0 and has_room(plan, k) == 0:
        i = words(scheduler + 8 * (HEADER + SCHEDULER_INPUT * k), SCHEDULER_INPUT)
        c = words(i[OF_CUTTER], CUTTER)
        # In the first half of a block morsels may still be small: the waiting work would not last
        # for the duration of the read.
        if i[AHEAD] == 0 or 2 * c[NEXT] < c[BLOCK] or words(plan, PLAN)[WANTED] == 1:
            return 0
        i[AHEAD] = 0
        h[READS] = k
        return READ_AHEAD
    if take(scheduler) == 0:
        return USED_UP
    morsel = record(scheduler)[OF_MORSEL]
    u = words(morsel, MORSEL_HEADER)
    if u[ROWS] > 0 or u[PUNCTUATIONS] > 0:
        cutter = words(record(scheduler)[OF_CUTTER], CUTTER)
        admit(plan, h[CURRENT], morsel, cutter[FIRST])
    return 1


@njit("int64(int64, int64)", nogil=True, cache=True)
def run_worker_zero(plan: int, scheduler: int) -> int:
    """The loop of worker 0; returns an event.

    With a ``scheduler`` it admits morsels until the input to read has no block (USED_UP). Without
    one (0) it works until no morsel is inside and there is no work (QUIET); only then all turns of
    the tasks have ended and have freed their places. It returns earlier if results wait (DELIVER),
    a block can be read meanwhile (READ_AHEAD), or an operator needs Python; and (LOOK) if
    RETURN_REQUESTED or STOP is set, or after each sleep while it waits for other workers."""
    worker = worker_at(plan, 0)
    me = words(worker, WORKER)
    while True:
        if load_acquire(plan + 8 * STOP) != 0:  # another worker has failed
            found(plan, worker)
            return LOOK
        if held(plan + 8 * SINK) > 0:
            found(plan, worker)
            return DELIVER
        if me[AT_TASK] == NONE:
            if load_acquire(plan + 8 * RETURN_REQUESTED) != 0:
                store_release(plan + 8 * RETURN_REQUESTED, 0)
                found(plan, worker)
                return LOOK
            if scheduler != 0:
                admitted = _admit_next(plan, scheduler)
                if admitted != 0:
                    found(plan, worker)
                    if admitted != 1:
                        return admitted
                    continue
        event = work_once(plan, worker)
        if event == NONE:
            if scheduler == 0 and load_acquire(plan + 8 * INSIDE) == 0:
                found(plan, worker)
                return QUIET
            slept = me[SLEPT]
            rest(plan, worker)
            if me[SLEPT] > slept:
                return LOOK
        else:
            found(plan, worker)
            if event != SLICE_OVER:
                return event


@njit("int64(int64)", nogil=True, cache=True)
def exhaust(plan: int) -> int:
    """The loop of worker 0 after a failure: works until no work is possible or STOP is set (QUIET).
    Returns earlier as ``run_worker_zero`` does."""
    worker, in_vain = worker_at(plan, 0), 0
    # A look for work also sends outputs that had no room, which can make work: look twice.
    while in_vain < 2 and load_acquire(plan + 8 * STOP) == 0:
        if held(plan + 8 * SINK) > 0:
            return DELIVER
        event = work_once(plan, worker)
        if event == NONE:
            in_vain += 1
        elif event == SLICE_OVER:
            in_vain = 0
        else:
            return event
    return DELIVER if held(plan + 8 * SINK) > 0 else QUIET
