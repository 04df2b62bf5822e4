"""Which task a worker works on next (ordered-multicore paper, section 6): what the heuristics know
of each task, and the choice."""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.atomics import compare_and_swap, fetch_add, load_acquire
from cql.executor.kernels.lib.clock import nanoseconds
from cql.executor.kernels.lib.memory import words
from cql.executor.kernels.lib.mpmc_queue import MASK as RING_MASK
from cql.executor.kernels.lib.mpmc_queue import held
from cql.executor.kernels.ordered.handover import ready_inputs, waiting
from cql.executor.kernels.ordered.partitions import dispatch, fragments_of_each, fragments_waiting
from cql.executor.kernels.ordered.queue_lengths import note_lengths
from cql.executor.kernels.ordered.reorder import (
    inputs_to_take,
    is_next_parked,
    send_pending,
    take_lane,
)
from cql.executor.kernels.ordered.schedulers import AHEAD, INPUTS, NONE, OF, OUTPUTS, WAITING, pick
from cql.executor.kernels.ordered.schedulers import COUNT as PICK_COUNT
from cql.executor.kernels.ordered.schedulers import RECENT as PICK_RECENT
from cql.executor.kernels.ordered.schedulers import TIME as PICK_TIME
from cql.executor.kernels.ordered.schedulers import WORKERS as PICK_WORKERS
from cql.executor.kernels.ordered.tables import (
    ADMITTED,
    ALLOTTED,
    AT,
    BEGAN,
    BUDGET,
    CAPACITY,
    CLOCK,
    COLLECTING,
    COLLECTORS,
    COUNT,
    DONE_HERE,
    EDGE,
    EDGES,
    FIRST_EDGE,
    FLAG,
    FROM,
    GIVEN,
    KIND,
    LANE,
    LEAST,
    MADE,
    MORSEL,
    MORSELS,
    MOST,
    NEXT,
    NOBODY,
    ON,
    OUTPUT,
    PARTITIONED,
    PLAN,
    POLICY,
    POOL,
    PORT_WORDS,
    PORTS,
    QUEUE_MASK,
    RECENT,
    SCRATCH,
    SERIAL_ONE,
    SINK,
    SIZE,
    SLICE,
    STATELESS,
    TASK,
    TASKS,
    TIME,
    TIMED,
    TO_PORT,
    TO_TASK,
    VIEWS,
    WINDOW,
    WINDOW_BEGAN,
    WORKER,
    lane_at,
    port_at,
    task_at,
    worker_at,
)
from cql.executor.kernels.ordered.tables import FAILED as FAILED_AT

#: Inputs of a slice as long as the cost of an input is unknown.
_UNKNOWN = 1


@njit("int64(int64, int64)", nogil=True, cache=True)
def has_room(plan: int, task: int) -> int:
    """Whether all edges of a task have room for an output morsel."""
    s = words(task, TASK)
    for k in range(s[EDGES]):
        e = words(s[FIRST_EDGE] + 8 * EDGE * k, EDGE)
        if e[TO_TASK] < 0:
            if held(plan + 8 * SINK) + 4 > words(plan, PLAN)[SINK + RING_MASK]:
                return 0
            if e[COLLECTORS] != 0 and e[COLLECTING] == 0 and held(e[COLLECTORS]) == 0:
                return 0
        else:
            port = port_at(task_at(plan, e[TO_TASK]), e[TO_PORT])
            if waiting(port) > words(port, PORT_WORDS)[QUEUE_MASK]:
                return 0
        if s[EDGES] > 1 and held(e[VIEWS]) == 0:
            return 0
    return 1


@njit("int64(int64, int64)", nogil=True, cache=True)
def waits(plan: int, task: int) -> int:
    """The number of inputs of a task that a further worker can work on now."""
    s = words(task, TASK)
    if load_acquire(task + 8 * ALLOTTED) >= s[MOST]:
        return 0
    if s[KIND] == PARTITIONED:
        return fragments_waiting(task)
    if load_acquire(task + 8 * FAILED_AT) != 0:
        return 0
    if s[KIND] == STATELESS:
        parked = is_next_parked(task) != 0 and has_room(plan, task) != 0
        return inputs_to_take(plan, task) + parked
    at = words(lane_at(task, 0), LANE)
    can_give = at[OUTPUT] != 0 or held(s[POOL]) > 0 or s[MORSELS] < s[SIZE]
    if not can_give or has_room(plan, task) == 0:
        return 0
    return ready_inputs(plan, task) + (at[MORSEL] != 0)


@njit("int64(int64, int64)", nogil=True, cache=True)
def _ahead(plan: int, task: int) -> int:
    """The number of output morsels of a task that wait downstream."""
    s = words(task, TASK)
    total = 0
    for k in range(s[EDGES]):
        e = words(s[FIRST_EDGE] + 8 * EDGE * k, EDGE)
        if e[TO_TASK] < 0:
            total += held(plan + 8 * SINK)
        else:
            total += waiting(port_at(task_at(plan, e[TO_TASK]), e[TO_PORT]))
    return total


@njit("int64(int64, int64)", nogil=True, cache=True)
def _sent(plan: int, task: int) -> int:
    """The number of morsels that a task has sent on each of its edges."""
    s = words(task, TASK)
    e = words(s[FIRST_EDGE], EDGE)
    if e[TO_TASK] < 0:
        return s[MADE]
    port = port_at(task_at(plan, e[TO_TASK]), e[TO_PORT])
    return load_acquire(port + 8 * GIVEN)


@njit("void(int64, int64, int64[:, ::1])", nogil=True, cache=True)
def expect(plan: int, k: int, numbers: Any) -> None:
    """Estimates how many inputs and outputs of task ``k`` all admitted morsels lead to; the tasks
    that feed task ``k`` must be estimated already.

    The selectivities along the pipeline are multiplied (section 6.1), so that inputs that still
    wait before a task count as work of the tasks behind it. A task without outputs so far counts as
    if it had one output; otherwise equation 3 would divide by zero."""
    task = task_at(plan, k)
    s = words(task, TASK)
    inputs = 0.0
    for n in range(s[PORTS]):
        port = port_at(task, n)
        before = words(port, PORT_WORDS)[FROM]
        inputs += numbers[before, OUTPUTS] if before >= 0 else load_acquire(port + 8 * GIVEN)
    through = load_acquire(task + 8 * NEXT)
    selectivity = max(_sent(plan, task), 1) / through if through > 0 else 1.0
    many = fragments_of_each(task) if s[KIND] == PARTITIONED else 1.0
    numbers[k, INPUTS] = int(inputs * many + 0.5)
    numbers[k, OUTPUTS] = int(inputs * selectivity + 0.5)


@njit("void(int64, int64)", nogil=True, cache=True)
def renew_window(plan: int, now: int) -> None:
    """Begins a new window of CT when the current one is over."""
    header = words(plan, PLAN)
    began = load_acquire(plan + 8 * WINDOW_BEGAN)
    if now - began < header[WINDOW]:
        return
    if compare_and_swap(plan + 8 * WINDOW_BEGAN, began, now) == began:
        for k in range(header[TASKS]):
            words(task_at(plan, k), TASK)[RECENT] = 0


@njit("int64(int64, int64)", nogil=True, cache=True)
def choose(plan: int, worker: int) -> int:
    """Allots the worker to the task that the heuristic chooses, and returns the task; NONE: no task
    is schedulable."""
    header, me = words(plan, PLAN), words(worker, WORKER)
    n = header[TASKS]
    numbers = words(worker + 8 * SCRATCH, OF * n).reshape((n, OF))
    for k in range(n):
        task = task_at(plan, k)
        s = words(task, TASK)
        if s[KIND] != SERIAL_ONE and load_acquire(task + 8 * FLAG) == 0:
            send_pending(plan, task)  # outputs that had no room downstream may have room now
        if s[KIND] == PARTITIONED:
            dispatch(plan, task)
        numbers[k, WAITING] = waits(plan, task)
        numbers[k, PICK_WORKERS] = s[ALLOTTED]
        numbers[k, PICK_TIME], numbers[k, PICK_COUNT] = s[TIME], s[COUNT]
        numbers[k, PICK_RECENT] = s[RECENT]
        numbers[k, AHEAD] = _ahead(plan, task)
        expect(plan, k, numbers)
    while True:
        k = pick(
            header[POLICY],
            numbers,
            header[LEAST],
            header[CAPACITY],
            header[SLICE],
            header[ADMITTED],
        )
        if k == NONE:
            return NONE
        task = task_at(plan, k)
        s = words(task, TASK)
        comes = fetch_add(task + 8 * ALLOTTED, 1) < s[MOST]
        on = 0 if s[KIND] == SERIAL_ONE else NOBODY
        if comes and s[KIND] == STATELESS:
            first = (worker - worker_at(plan, 0)) // (8 * WORKER)
            on = take_lane(task, first, has_room(plan, task))
            comes = on != NOBODY
        if comes:
            cost = s[TIME] // max(s[COUNT], 1)
            me[AT], me[ON] = k, on
            me[BUDGET] = max(header[SLICE] // max(cost, 1), 1) if s[COUNT] > 0 else _UNKNOWN
            me[DONE_HERE] = 0
            if header[TIMED] != 0:
                note_lengths(plan, worker)
            me[BEGAN] = nanoseconds(worker + 8 * CLOCK)
            return k
        fetch_add(task + 8 * ALLOTTED, -1)
        numbers[k, WAITING] = 0
