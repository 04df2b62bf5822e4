"""The worker loop of the ordered runtime (ordered-multicore paper, section 2.2): a worker asks the
scheduler for a task, works on it for a time slice, and asks again. The loop is compiled once and
calls operators by address.

A worker leaves the kernel with an *event* when it needs Python, and continues where it was when it
enters again. Worker 0 is the thread that reads the inputs and takes the results; it works on tasks
when there is neither to do.
"""

from __future__ import annotations

from typing import Any

from numba import types

from cql.executor.jit.decorators import njit
from cql.executor.kernels.drive.depth_first import clear_output, start_morsel
from cql.executor.kernels.lib.atomics import (
    compare_and_swap,
    fetch_add,
    load_acquire,
    pause,
    store_release,
)
from cql.executor.kernels.lib.clock import nanoseconds
from cql.executor.kernels.lib.condition import SLEEPERS, lie_down, wake, wakes
from cql.executor.kernels.lib.memory import call_operator, copy_bytes, words
from cql.executor.kernels.lib.mpmc_queue import MASK as RING_MASK
from cql.executor.kernels.lib.mpmc_queue import held
from cql.executor.kernels.morsel_layout import (
    BASE,
    CURSOR,
    DONE,
    ERROR,
    FEED,
    FOLLOWING,
    HEADER,
    LATE_ROW_ADDRESS,
    LATE_ROW_WORDS,
    LATE_ROWS,
    NEED,
    OPERATOR,
    OUT,
    OWN_LATE_ROWS,
    PARENT,
    PATH_NUMBER,
    PORT,
    PUNCTUATIONS,
    REFERENCES,
    ROWS,
    SERIAL,
)
from cql.executor.kernels.ordered.handover import (
    PATH_BITS,
    next_input,
    note_punctuation,
    place_of,
    push_downstream,
    ready_inputs,
    release,
    take_free,
    waiting,
)
from cql.executor.kernels.ordered.markers import enters, leaves
from cql.executor.kernels.ordered.partitions import (
    claim,
    dispatch,
    finish_fragment,
    fragment_at,
    fragments_of_each,
    fragments_waiting,
    keeps,
    merge,
    next_fragment,
)
from cql.executor.kernels.ordered.queue_lengths import note_lengths
from cql.executor.kernels.ordered.reorder import (
    MOST_CHAINED,
    OF_MORSEL,
    SLOT,
    inputs_to_take,
    is_next_parked,
    park,
    send,
    send_early,
    send_pending,
    take_input,
    take_lane,
)
from cql.executor.kernels.ordered.schedulers import (
    AHEAD,
    INPUTS,
    NONE,
    OF,
    OUTPUTS,
    WAITING,
    pick,
)
from cql.executor.kernels.ordered.schedulers import COUNT as PICK_COUNT
from cql.executor.kernels.ordered.schedulers import RECENT as PICK_RECENT
from cql.executor.kernels.ordered.schedulers import TIME as PICK_TIME
from cql.executor.kernels.ordered.schedulers import WORKERS as PICK_WORKERS
from cql.executor.kernels.ordered.tables import (
    ADDRESS,
    ADMITTED,
    ALLOTTED,
    ASLEEP,
    AT,
    BEGAN,
    BORROWS,
    BUDGET,
    BUSY,
    CALL,
    CALLS,
    CALM,
    CAPACITY,
    CHAIN,
    CHAIN_END,
    CHAINED,
    CLOCK,
    CODE,
    COLLECTING,
    COLLECTORS,
    COUNT,
    DESCRIPTOR,
    DONE_HERE,
    EDGE,
    EDGES,
    FAILING,
    FIRST_EDGE,
    FLAG,
    FROM,
    GIVE,
    GIVEN,
    IDLE,
    INSIDE,
    KIND,
    LANE,
    LEAST,
    LOOKS,
    MADE,
    MERGING,
    MORSEL,
    MORSELS,
    MOST,
    NEXT,
    NOBODY,
    NOT_CALLED,
    NUMBER,
    ON,
    OUTPUT,
    OWNED,
    PARTITIONED,
    PARTS,
    PLAN,
    POLICY,
    POOL,
    PORT_WORDS,
    PORTS,
    QUEUE_MASK,
    RANDOM,
    RECENT,
    SCRATCH,
    SEED,
    SEEN,
    SENT,
    SERIAL_ONE,
    SINK,
    SIZE,
    SLEEPING,
    SLEPT,
    SLICE,
    SLOTS,
    STALLING,
    STATE,
    STATELESS,
    STOP,
    TASK,
    TASKS,
    TICKET,
    TIME,
    TIMED,
    TO_PORT,
    TO_TASK,
    VIEWS,
    WANTED,
    WINDOW,
    WINDOW_BEGAN,
    WORKER,
    WORKERS,
    lane_at,
    port_at,
    task_at,
    worker_at,
)
from cql.executor.kernels.ordered.tables import FAILED as FAILED_AT

# Events: why a worker leaves the kernel, and what Python must do.
SLICE_OVER = 0  # no event: the worker asks for a task again
PYTHON = 1  # run the worker's operator, which is written in Python
NEEDS = 2  # provide what the operator has returned NEED for
FAILED = 3  # handle the error that the operator has returned
NEED_MORSEL = 4  # provide an output morsel: the task has no free one
DELIVER = 5  # deliver the waiting results
USED_UP = 6  # provide the next block of the input that is to be read, or its end
QUIET = 7  # no morsel is left inside
LEFT = 8  # end the worker's thread
LOOK = 9  # look whether Python has other work: worker 0 has slept, or was asked to return
READ_AHEAD = 14  # read the next block meanwhile: there is no room for morsels
NEED_MERGED = 12  # provide morsels to merge outputs into: the task has no free one
#: Results of ``advance`` that are no events.
FINISHED = 10  # the input is done
SUSPENDED = 11  # the output has no room downstream
ABANDONED = 13  # the input has failed

#: Nanoseconds that a worker sleeps at most.
_SLEEP = 50_000_000
#: Inputs of a slice as long as the cost of an input is unknown.
_UNKNOWN = 1

#: Microseconds of a stall in tests: long enough for all other workers to come to a stop.
_STALL = 20_000
_usleep = types.ExternalFunction("usleep", types.int32(types.uint32))
_sched_yield = types.ExternalFunction("sched_yield", types.int32())


@njit("void(int64, int64)", nogil=True, cache=True)
def maybe_yield(plan: int, worker: int) -> None:
    """In tests (RANDOM): yields the core at random, in one of eight calls; with STALLING the last
    worker also stalls for _STALL, in one of 64 calls."""
    header = words(plan, PLAN)
    if header[RANDOM] == CALM:
        return
    me = words(worker, WORKER)
    x = me[SEED]
    x ^= x << 13
    x ^= (x >> 7) & 0x01FFFFFFFFFFFFFF
    x ^= x << 17
    me[SEED] = x
    if x & 7 == 0:
        _sched_yield()
    last = worker == worker_at(plan, header[WORKERS] - 1)
    if header[RANDOM] == STALLING and last and (x >> 8) & 63 == 0:
        _usleep(_STALL)


# -- one input on one lane -------------------------------------------------------------------------


@njit("void(int64, int64, int64, int64, int64)", nogil=True, cache=True)
def begin(plan: int, worker: int, task: int, lane: int, morsel: int) -> None:
    """Begins an input on a lane."""
    u = words(morsel, HEADER)
    enters(plan, task, u[SERIAL], worker + 8 * CLOCK)
    start_morsel(u, u[PORT], 0)
    at = words(lane, LANE)
    at[MORSEL], at[STATE], at[CODE] = morsel, CALL, NOT_CALLED
    at[CHAIN] = at[CHAIN_END] = at[CHAINED] = 0


@njit("void(int64, int64, int64)", nogil=True, cache=True)
def _finish_output(task: int, morsel: int, out: int) -> None:
    """Completes an output morsel so that it can outlive its input: it holds a reference to the
    morsel whose columns it shows, and copies its late rows."""
    s, o = words(task, TASK), words(out, HEADER)
    u = words(morsel, HEADER)
    o[REFERENCES], o[FOLLOWING], o[OPERATOR], o[CURSOR] = 1, 0, s[NUMBER], 0
    o[FEED], o[BASE], o[PATH_NUMBER] = u[FEED], u[BASE], u[PATH_NUMBER]
    if s[BORROWS] != 0:
        o[PARENT] = morsel
        fetch_add(morsel + 8 * REFERENCES, 1)
    if o[LATE_ROWS] > 0 and o[LATE_ROW_ADDRESS] != o[OWN_LATE_ROWS]:
        copy_bytes(o[LATE_ROW_ADDRESS], o[OWN_LATE_ROWS], 8 * LATE_ROW_WORDS * o[LATE_ROWS])
        o[LATE_ROW_ADDRESS] = o[OWN_LATE_ROWS]


@njit("int64(int64, int64, int64)", nogil=True, cache=True)
def advance(plan: int, task: int, lane: int) -> int:
    """Works on the lane's input until it is done (FINISHED), its outputs must wait (SUSPENDED), or
    Python is needed (an event). ABANDONED: Python has marked the lane as failed."""
    s, at = words(task, TASK), words(lane, LANE)
    morsel = at[MORSEL]
    if at[STATE] == FAILING:
        return ABANDONED
    while True:
        holds = s[KIND] == STATELESS and at[CHAINED] >= MOST_CHAINED
        if holds and send_early(plan, task, lane) == 0:
            return SUSPENDED
        if at[OUTPUT] == 0:
            free = take_free(s[POOL])
            if free == 0:
                if s[KIND] == SERIAL_ONE and s[MORSELS] >= s[SIZE]:
                    return SUSPENDED
                return NEED_MORSEL
            at[OUTPUT] = free
        out = at[OUTPUT]
        o = words(out, HEADER)
        if at[STATE] == CALL:
            u = words(morsel, HEADER)
            if u[OUT] != out:
                u[OUT] = out
                clear_output(o)
                o[LATE_ROW_ADDRESS] = o[OWN_LATE_ROWS]
            if s[ADDRESS] == 0:
                if at[CODE] == NOT_CALLED:
                    return PYTHON
            else:
                at[CODE] = call_operator(s[ADDRESS], at[DESCRIPTOR], morsel)
            fetch_add(task + 8 * CALLS, 1)
            code = at[CODE]
            if code in (NEED, ERROR):
                at[CODE] = NOT_CALLED
                return NEEDS if code == NEED else FAILED
            at[STATE] = GIVE
            if o[ROWS] > 0 or o[PUNCTUATIONS] > 0:
                _finish_output(task, morsel, out)
        if o[ROWS] > 0 or o[PUNCTUATIONS] > 0:
            if s[KIND] == SERIAL_ONE:
                if push_downstream(plan, task, out) == 0:
                    return SUSPENDED
            else:
                if at[CHAIN] == 0:
                    at[CHAIN] = out
                else:
                    words(at[CHAIN_END], HEADER)[FOLLOWING] = out
                at[CHAIN_END] = out
                at[CHAINED] += 1
            at[OUTPUT] = 0
            fetch_add(task + 8 * MADE, 1)
        code = at[CODE]
        at[STATE], at[CODE] = CALL, NOT_CALLED
        if code == DONE:
            if words(plan, PLAN)[TIMED] != 0:
                note_punctuation(task, lane, morsel)
            return FINISHED
        words(morsel, HEADER)[OUT] = 0


# -- a slice of a task --------------------------------------------------------------------------


@njit("void(int64, int64, int64)", nogil=True, cache=True)
def _finish(plan: int, task: int, lane: int) -> None:
    """Ends an input of a lane and sends its outputs, in the order of inputs."""
    s, at = words(task, TASK), words(lane, LANE)
    morsel = at[MORSEL]
    place = place_of(morsel)
    at[MORSEL] = 0
    if s[KIND] == SERIAL_ONE:
        release(morsel)
        store_release(task + 8 * SENT, place)
        leaves(plan, task, place >> PATH_BITS)
        store_release(task + 8 * NEXT, s[NEXT] + 1)
        fetch_add(plan + 8 * INSIDE, -1)
        return
    first = at[CHAIN]
    release(morsel)
    send(plan, task, at[TICKET], first, place)


@njit("void(int64, int64, int64)", nogil=True, cache=True)
def _abandon(plan: int, task: int, lane: int) -> None:
    """Ends an input of a lane that has failed: the outputs before the failure leave in order, the
    outputs of later inputs never leave. (Earlier inputs are being worked on, or have left.)"""
    s, at = words(task, TASK), words(lane, LANE)
    if s[KIND] == SERIAL_ONE:
        store_release(task + 8 * SENT, place_of(at[MORSEL]))
        store_release(task + 8 * FAILED_AT, 1)
        return
    given, place = at[CHAIN], 0
    if s[KIND] == PARTITIONED:  # its outputs could only leave merged with the other fragments'
        given = 0
        place = words(s[SLOTS] + 8 * SLOT * (at[TICKET] & (s[SIZE] - 1)), SLOT)[OF_MORSEL]
    else:
        place = place_of(at[MORSEL])
    at[MORSEL] = 0
    while True:
        first = load_acquire(task + 8 * FAILED_AT)
        if first != 0 and first <= at[TICKET] + 1:
            return
        if compare_and_swap(task + 8 * FAILED_AT, first, at[TICKET] + 1) == first:
            break
    send(plan, task, at[TICKET], given, place)


@njit("int64(int64, int64, int64)", nogil=True, cache=True)
def _home(plan: int, worker: int, task: int) -> int:
    """The first of the partitions that a worker prefers, so that their state stays in the cache of
    its core."""
    number = (worker - worker_at(plan, 0)) // (8 * WORKER)
    return number * words(task, TASK)[PARTS] // words(plan, PLAN)[WORKERS]


@njit("int64(int64, int64, int64)", nogil=True, cache=True)
def _work_on_parts(plan: int, worker: int, task: int) -> int:
    """``consumeInputs`` of figure 7, for one slice: works on the fragments of one claimed partition
    after the other. Returns SLICE_OVER or an event."""
    me = words(worker, WORKER)
    while True:
        if me[ON] == NOBODY:
            if me[BUDGET] <= 0 or words(plan, PLAN)[STOP] != 0:
                return SLICE_OVER
            me[ON] = claim(plan, task, _home(plan, worker, task))
            if me[ON] == NOBODY:
                return SLICE_OVER
        lane = lane_at(task, me[ON])
        at = words(lane, LANE)
        if me[MERGING] == 0:
            if at[MORSEL] == 0:
                at[TICKET] = next_fragment(task, me[ON])
                if at[STATE] != FAILING:
                    morsel = fragment_at(task, at[TICKET], me[ON])
                    begin(plan, worker, task, lane, morsel)
            maybe_yield(plan, worker)
            event = advance(plan, task, lane)
            if event == ABANDONED:
                _abandon(plan, task, lane)
            elif event != FINISHED:
                return event
            at[MORSEL] = 0
            maybe_yield(plan, worker)
            if event == FINISHED and finish_fragment(task, at[TICKET], me[ON], at[CHAIN]) != 0:
                me[MERGING] = at[TICKET] + 1
        if me[MERGING] != 0:
            serial = me[MERGING] - 1
            chain = merge(task, worker, serial)
            if chain < 0:
                return NEED_MERGED
            me[MERGING] = 0
            s = words(task, TASK)
            of_morsel = words(s[SLOTS] + 8 * SLOT * (serial & (s[SIZE] - 1)), SLOT)[OF_MORSEL]
            send(plan, task, serial, chain, of_morsel)
            dispatch(plan, task)
        me[BUDGET] -= 1
        me[DONE_HERE] += 1
        if keeps(plan, task, me[ON], me[BUDGET]) == 0:
            me[ON] = NOBODY


@njit("int64(int64, int64, int64)", nogil=True, cache=True)
def _work_on(plan: int, worker: int, task: int) -> int:
    """Works on inputs of a task until the slice is over (SLICE_OVER) or Python is needed (an
    event)."""
    me, s = words(worker, WORKER), words(task, TASK)
    if s[KIND] == PARTITIONED:
        return _work_on_parts(plan, worker, task)
    lane = lane_at(task, me[ON])
    at = words(lane, LANE)
    while True:
        if at[MORSEL] == 0:
            if me[BUDGET] <= 0 or words(plan, PLAN)[STOP] != 0:
                return SLICE_OVER
            morsel = 0
            if s[KIND] == STATELESS:
                morsel = take_input(plan, task, lane)
            else:
                morsel = next_input(plan, task)
            if morsel == 0:
                return SLICE_OVER
            me[BUDGET] -= 1
            begin(plan, worker, task, lane, morsel)
        maybe_yield(plan, worker)
        event = advance(plan, task, lane)
        if event == ABANDONED:
            _abandon(plan, task, lane)
        if event == SUSPENDED and s[KIND] == STATELESS:
            park(task, me[ON])
            me[ON] = NOBODY
        if event in (SUSPENDED, ABANDONED):
            return SLICE_OVER
        if event != FINISHED:
            return event
        maybe_yield(plan, worker)
        _finish(plan, task, lane)
        me[DONE_HERE] += 1


# -- which task ---------------------------------------------------------------------------------


@njit("int64(int64, int64)", nogil=True, cache=True)
def _has_room(plan: int, task: int) -> int:
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
def _waits(plan: int, task: int) -> int:
    """The number of inputs of a task that a further worker can work on now."""
    s = words(task, TASK)
    if load_acquire(task + 8 * ALLOTTED) >= s[MOST]:
        return 0
    if s[KIND] == PARTITIONED:
        return fragments_waiting(task)
    if load_acquire(task + 8 * FAILED_AT) != 0:
        return 0
    if s[KIND] == STATELESS:
        parked = is_next_parked(task) != 0 and _has_room(plan, task) != 0
        return inputs_to_take(plan, task) + parked
    at = words(lane_at(task, 0), LANE)
    can_give = at[OUTPUT] != 0 or held(s[POOL]) > 0 or s[MORSELS] < s[SIZE]
    if not can_give or _has_room(plan, task) == 0:
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
def _expect(plan: int, k: int, numbers: Any) -> None:
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
def _renew_window(plan: int, now: int) -> None:
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
        numbers[k, WAITING] = _waits(plan, task)
        numbers[k, PICK_WORKERS] = s[ALLOTTED]
        numbers[k, PICK_TIME], numbers[k, PICK_COUNT] = s[TIME], s[COUNT]
        numbers[k, PICK_RECENT] = s[RECENT]
        numbers[k, AHEAD] = _ahead(plan, task)
        _expect(plan, k, numbers)
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
            on = take_lane(task, (worker - worker_at(plan, 0)) // (8 * WORKER))
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


@njit("void(int64, int64)", nogil=True, cache=True)
def _leave(plan: int, worker: int) -> None:
    """Ends the worker's slice: accounts for its time and its inputs, and wakes sleeping workers."""
    me = words(worker, WORKER)
    task = task_at(plan, me[AT])
    now = nanoseconds(worker + 8 * CLOCK)
    spent = now - me[BEGAN]
    fetch_add(task + 8 * TIME, spent)
    fetch_add(task + 8 * RECENT, spent)
    fetch_add(task + 8 * COUNT, me[DONE_HERE])
    me[BUSY] += spent
    if words(task, TASK)[KIND] == STATELESS and me[ON] != NOBODY:
        store_release(lane_at(task, me[ON]) + 8 * OWNED, 0)
    me[AT] = NONE
    fetch_add(task + 8 * ALLOTTED, -1)
    _renew_window(plan, now)
    wake(plan + 8 * SLEEPING)


@njit("int64(int64, int64)", nogil=True, cache=True)
def work_once(plan: int, worker: int) -> int:
    """Works for one slice, or for the rest of an interrupted one. Returns an event, SLICE_OVER, or
    NONE if no task is schedulable."""
    me = words(worker, WORKER)
    if me[AT] == NONE and choose(plan, worker) == NONE:
        return NONE
    event = _work_on(plan, worker, task_at(plan, me[AT]))
    if event == SLICE_OVER:
        _leave(plan, worker)
    return event


@njit("void(int64, int64)", nogil=True, cache=True)
def rest(plan: int, worker: int) -> None:
    """After an unsuccessful look for work: pauses briefly, or after LOOKS looks sleeps for _SLEEP
    at most."""
    me, looks = words(worker, WORKER), words(plan, PLAN)[LOOKS]
    me[IDLE] += 1
    if me[IDLE] < looks:
        for _ in range(20):
            pause()
        return
    bed = plan + 8 * SLEEPING
    if me[IDLE] == looks:
        me[SEEN] = wakes(bed)
        fetch_add(bed + 8 * SLEEPERS, 1)  # from here on wakes are counted: look once more
        return
    began = nanoseconds(worker + 8 * CLOCK)
    lie_down(bed, me[SEEN], _SLEEP, worker + 8 * CLOCK)
    me[ASLEEP] += nanoseconds(worker + 8 * CLOCK) - began
    me[IDLE] = 0
    me[SLEPT] += 1


@njit("void(int64, int64)", nogil=True, cache=True)
def found(plan: int, worker: int) -> None:
    """Resets the count of unsuccessful looks after work was found."""
    me = words(worker, WORKER)
    if me[IDLE] == words(plan, PLAN)[LOOKS]:
        fetch_add(plan + 8 * SLEEPING + 8 * SLEEPERS, -1)
    me[IDLE] = 0


@njit("void(int64)", nogil=True, cache=True)
def left(plan: int) -> None:
    """Notes that Python has taken a result."""
    fetch_add(plan + 8 * INSIDE, -1)


@njit("int64(int64, int64)", nogil=True, cache=True)
def work(plan: int, number: int) -> int:
    """The loop of a worker other than 0: works until Python is needed (an event) or the worker must
    end (LEFT)."""
    header = words(plan, PLAN)
    worker = worker_at(plan, number)
    me = words(worker, WORKER)
    while True:
        if me[AT] == NONE and (load_acquire(plan + 8 * STOP) != 0 or number >= header[WANTED]):
            found(plan, worker)
            return LEFT
        event = work_once(plan, worker)
        if event == NONE:
            rest(plan, worker)
        else:
            found(plan, worker)
            if event != SLICE_OVER:
                return event
