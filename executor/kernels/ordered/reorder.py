"""The reorder buffer: outputs of concurrent workers leave in the order of their inputs
(ordered-multicore paper §3).

The circular buffer has a slot for each of SIZE inputs. A slot holds the serial number of the input
+ 1 (a stamp; the paper marks slots EMPTY and clears them instead), the chain of its output morsels,
the place of the input morsel, and, if TIMED, the time at which the outputs were added. A worker
takes an input only when its slot is free, so that ``try_add`` cannot fail and no worker waits.

An input of a stateless task may have any number of outputs. The input that is next in order sends
them while it is worked on. Another one that has MOST_CHAINED output morsels is *parked*: its slot
holds its lane and another stamp, and a worker continues with it when it is next in order.

The order of a stateless task with several ports is that of its turns. A morsel of the port ALONE
(the rows of a table) changes what the operator reads for all later morsels: it is taken when all
inputs before it are through, and the inputs behind it are taken when it is through.
"""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.atomics import (
    compare_and_swap,
    exchange,
    fetch_add,
    load,
    load_acquire,
    load_relaxed,
    store,
    store_release,
)
from cql.executor.kernels.lib.clock import nanoseconds
from cql.executor.kernels.lib.memory import words
from cql.executor.kernels.morsel_layout import FOLLOWING, HEADER, ROWS, SEQUENCE
from cql.executor.kernels.ordered.handover import (
    PATH_BITS,
    lock,
    next_port,
    push_downstream,
    ready_inputs,
    take,
    waiting,
)
from cql.executor.kernels.ordered.markers import leaves
from cql.executor.kernels.ordered.tables import (
    ALONE,
    CHAIN,
    CHAINED,
    EMITTED,
    FAILED,
    FLAG,
    GIVEN,
    GOT,
    HELD_FOR,
    INSIDE,
    KIND,
    LANE,
    LOCKED,
    MOST,
    NEXT,
    NOBODY,
    OPEN,
    OWNED,
    PARTITIONED,
    PLAN,
    PORT_WORDS,
    PORTS,
    QUEUE,
    QUEUE_MASK,
    RENUMBERS,
    SENT,
    SIZE,
    SLOTS,
    TAKEN,
    TAKING,
    TASK,
    TICKET,
    TIMED,
    lane_at,
    port_at,
)

SLOT = 4
FIRST, OF_MORSEL, CAME = 1, 2, 3  # behind the stamp
#: With the serial of a parked input added: its stamp.
PARKED = 1 << 62
#: Output morsels that an input of a stateless task may hold before it is next in order.
MOST_CHAINED = 8


@njit(inline="always")
def _slot(s: Any, ticket: int) -> Any:
    return s[SLOTS] + 8 * SLOT * (ticket & (s[SIZE] - 1))


@njit("int64(int64, int64, int64)", nogil=True, cache=True)
def _send_chain(plan: int, task: int, first: int) -> int:
    """Sends a chain of output morsels downstream, as far as there is room, and returns how many
    left. ``first``: the address of the word with the first morsel; 0 there: all left."""
    chain, s, sent = words(first, 1), words(task, TASK), 0
    while chain[0] != 0:
        morsel = chain[0]
        u = words(morsel, HEADER)
        following: Any = u[FOLLOWING]
        rows = u[ROWS]
        if s[KIND] == PARTITIONED or s[RENUMBERS] != 0:
            u[SEQUENCE] = s[EMITTED]
        if push_downstream(plan, task, morsel) == 0:
            return sent
        chain[0] = following
        s[EMITTED] += rows
        sent += 1
    return sent


@njit("int64(int64, int64, int64)", nogil=True, cache=True)
def _leave(plan: int, task: int, slot: int) -> int:
    """Sends the outputs of one input downstream; 0: some have no room downstream yet."""
    at, s = words(slot, SLOT), words(task, TASK)
    _send_chain(plan, task, slot + 8 * FIRST)
    if at[FIRST] != 0:
        return 0
    store_release(task + 8 * SENT, at[OF_MORSEL])
    leaves(plan, task, at[OF_MORSEL] >> PATH_BITS)
    if words(plan, PLAN)[TIMED] != 0:
        s[HELD_FOR] += nanoseconds(slot + 8 * FIRST) - at[CAME]  # FIRST and OF_MORSEL are scratch
    return 1


@njit("int64(int64, int64)", nogil=True, cache=True)
def _send_ready(plan: int, task: int) -> int:
    """Sends outputs in order, input by input, until the outputs of an input are missing or have no
    room; returns the number of inputs whose outputs left. Of the first input that failed it sends
    the outputs before the failure; nothing leaves behind them."""
    s = words(task, TASK)
    first = n = s[NEXT]
    while load_acquire(_slot(s, n)) == n + 1 and _leave(plan, task, _slot(s, n)) != 0:
        n += 1
        if load_acquire(task + 8 * FAILED) == n:
            return n - 1 - first
        store_release(task + 8 * NEXT, n)
        fetch_add(plan + 8 * INSIDE, -1)
    return n - first


@njit("int64(int64, int64)", nogil=True, cache=True)
def send_pending(plan: int, task: int) -> int:
    """``send_pending_outputs`` of figure 4: sends outputs in order, unless another thread does so,
    for which it never waits. Returns the number of inputs whose outputs left."""
    s = words(task, TASK)
    sent = 0
    while True:
        n = load_acquire(task + 8 * NEXT)
        if load(_slot(s, n)) != n + 1:
            return sent
        if exchange(task + 8 * FLAG, 1) != 0:
            return sent
        now = _send_ready(plan, task)
        sent += now
        store(task + 8 * FLAG, 0)
        # Look again for outputs that were added while FLAG was set; do not retry for lack of room.
        if now == 0 and load(task + 8 * NEXT) == n:
            return sent


@njit("int64(int64, int64, int64, int64, int64)", nogil=True, cache=True)
def send(plan: int, task: int, ticket: int, first: int, place: int) -> int:
    """Adds the outputs of input ``ticket``, the chain that begins with morsel ``first`` (0: no
    outputs), and sends all outputs that are next in order. ``place`` is the place of the input.
    Returns the number of inputs whose outputs left."""
    slot = _slot(words(task, TASK), ticket)
    at = words(slot, SLOT)
    locked = words(plan, PLAN)[LOCKED] != 0
    if words(plan, PLAN)[TIMED] != 0:
        at[CAME] = nanoseconds(slot + 8 * FIRST)  # FIRST and OF_MORSEL, written next, are scratch
    if locked:
        lock(task + 8 * FLAG)  # figure 2: a thread that only adds waits for the one that sends
    at[FIRST], at[OF_MORSEL] = first, place
    # Sequentially consistent: with a release store, two threads that add at the same time could
    # both miss the other's stamp.
    store(slot, ticket + 1)
    if not locked:
        return send_pending(plan, task)
    sent = _send_ready(plan, task)
    store(task + 8 * FLAG, 0)
    return sent


# -- inputs of a stateless task --------------------------------------------------------------------


@njit("int64(int64, int64, int64)", nogil=True, cache=True)
def _take_in_turn(plan: int, task: int, lane: int) -> int:
    """``take_input`` for several ports. 0 also if another worker takes an input, or if a morsel of
    the port ALONE is worked on or must wait."""
    s, morsel = words(task, TASK), 0
    if exchange(task + 8 * TAKING, 1) != 0:
        return 0
    n, through = s[TAKEN], load_acquire(task + 8 * NEXT)
    failed = load_acquire(task + 8 * FAILED) != 0
    if not failed and n < through + s[SIZE] and through >= s[OPEN]:
        number = next_port(plan, task)
        if number == s[ALONE] and number >= 0 and through < n:
            store_release(task + 8 * OPEN, n)
        elif number >= 0:
            morsel = take(port_at(task, number))
            words(lane, LANE)[TICKET] = n
            if number == s[ALONE]:
                store_release(task + 8 * OPEN, n + 1)
            store_release(task + 8 * TAKEN, n + 1)
    store_release(task + 8 * TAKING, 0)
    return morsel


@njit("int64(int64, int64, int64)", nogil=True, cache=True)
def take_input(plan: int, task: int, lane: int) -> int:
    """Takes a morsel of a stateless task, in competition with other workers, and stores its serial
    in the lane's TICKET; 0: there is no morsel, or no slot of the reorder buffer is free."""
    s, port = words(task, TASK), port_at(task, 0)
    if s[PORTS] > 1:
        return _take_in_turn(plan, task, lane)
    p = words(port, PORT_WORDS)
    while load_acquire(task + 8 * FAILED) == 0:
        n = load_acquire(port + 8 * GOT)
        if n >= load_acquire(port + 8 * GIVEN) or n >= load_acquire(task + 8 * NEXT) + s[SIZE]:
            return 0
        # Read before the compare-and-swap frees the place, which may be filled again at once.
        morsel = load_relaxed(p[QUEUE] + 8 * (n & p[QUEUE_MASK]))
        if compare_and_swap(port + 8 * GOT, n, n + 1) == n:
            words(lane, LANE)[TICKET] = n
            return morsel
    return 0


@njit("int64(int64, int64)", nogil=True, cache=True)
def inputs_to_take(plan: int, task: int) -> int:
    """The approximate number of inputs that ``take_input`` would find."""
    s, through = words(task, TASK), load_acquire(task + 8 * NEXT)
    if s[PORTS] == 1:
        port = port_at(task, 0)
        slots = through + s[SIZE] - load_acquire(port + 8 * GOT)
        return max(min(waiting(port), slots), 0)
    if through < load_acquire(task + 8 * OPEN):
        return 0
    slots = through + s[SIZE] - load_acquire(task + 8 * TAKEN)
    return max(min(ready_inputs(plan, task), slots), 0)


@njit("int64(int64, int64, int64)", nogil=True, cache=True)
def send_early(plan: int, task: int, lane: int) -> int:
    """Sends the outputs of an input that is worked on and is next in order, as far as there is
    room; returns how many left. No other worker sends meanwhile, since the input has no stamp."""
    at = words(lane, LANE)
    if load_acquire(task + 8 * NEXT) != at[TICKET]:
        return 0
    sent = _send_chain(plan, task, lane + 8 * CHAIN)
    at[CHAINED] -= sent
    return sent


@njit("void(int64, int64)", nogil=True, cache=True)
def park(task: int, number: int) -> None:
    """Parks the input of lane ``number``. Another worker may continue with it at once."""
    ticket = words(lane_at(task, number), LANE)[TICKET]
    slot = _slot(words(task, TASK), ticket)
    words(slot, SLOT)[FIRST] = number
    store_release(slot, PARKED + ticket)


@njit("int64(int64)", nogil=True, cache=True)
def is_next_parked(task: int) -> int:
    """Whether the input that is next in order is parked."""
    n = load_acquire(task + 8 * NEXT)
    return 1 if load_acquire(_slot(words(task, TASK), n)) == PARKED + n else 0


@njit("int64(int64, int64, int64)", nogil=True, cache=True)
def take_lane(task: int, first: int, room: int) -> int:
    """Takes a lane of a stateless task for a worker: that of the input that is next in order, if it
    is parked and there is ``room`` downstream, or a free one, preferably lane ``first``. NOBODY:
    there is none."""
    s, n = words(task, TASK), load_acquire(task + 8 * NEXT)
    slot, stamp = _slot(s, n), PARKED + n
    parked = room != 0 and load_acquire(slot) == stamp
    if parked and compare_and_swap(slot, stamp, 0) == stamp:
        number: Any = words(slot, SLOT)[FIRST]
        return number
    for k in range(s[MOST]):
        free = (first + k) % s[MOST]
        if compare_and_swap(lane_at(task, free) + 8 * OWNED, 0, 1) == 0:
            return free
    return NOBODY
