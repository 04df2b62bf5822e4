"""The worker loop of the ordered runtime (ordered-multicore paper, section 2.2): a worker asks the
scheduler for a task, works on it for a time slice, and asks again. The loop is compiled once and
calls operators by address.

A worker leaves the kernel with an *event* when it needs Python, and continues where it was when it
enters again. Worker 0 is the thread that reads the inputs and takes the results; it works on tasks
when there is neither to do.
"""

from __future__ import annotations

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
from cql.executor.kernels.ordered.choice import choose, renew_window
from cql.executor.kernels.ordered.handover import (
    PATH_BITS,
    next_input,
    note_punctuation,
    place_of,
    push_downstream,
    release,
    take_free,
)
from cql.executor.kernels.ordered.markers import enters, leaves
from cql.executor.kernels.ordered.partitions import (
    claim,
    dispatch,
    finish_fragment,
    fragment_at,
    keeps,
    merge,
    next_fragment,
)
from cql.executor.kernels.ordered.reorder import (
    MOST_CHAINED,
    OF_MORSEL,
    SLOT,
    park,
    send,
    send_early,
    take_input,
)
from cql.executor.kernels.ordered.schedulers import NONE
from cql.executor.kernels.ordered.tables import (
    ADDRESS,
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
    CHAIN,
    CHAIN_END,
    CHAINED,
    CLOCK,
    CODE,
    COUNT,
    DESCRIPTOR,
    DONE_HERE,
    FAILING,
    GIVE,
    IDLE,
    INSIDE,
    KIND,
    LANE,
    LOOKS,
    MADE,
    MERGING,
    MORSEL,
    MORSELS,
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
    POOL,
    RANDOM,
    RECENT,
    SEED,
    SEEN,
    SENT,
    SERIAL_ONE,
    SIZE,
    SLEEPING,
    SLEPT,
    SLOTS,
    STALLING,
    STATE,
    STATELESS,
    STOP,
    TASK,
    TICKET,
    TIME,
    TIMED,
    WANTED,
    WORKER,
    WORKERS,
    lane_at,
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


# -- the loop --------------------------------------------------------------------------------------


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
    renew_window(plan, now)
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
