"""The reorder buffer: outputs of concurrent workers leave in the order of their inputs
(ordered-multicore paper §3).

The circular buffer has a slot for each of SIZE inputs. A slot holds the serial number of the input
+ 1 (a stamp; the paper marks slots EMPTY and clears them instead), the chain of its output morsels,
the place of the input morsel, and, if TIMED, the time at which the outputs were added. A worker
takes an input only when its slot is free, so that ``try_add`` cannot fail and no worker waits.
"""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.atomics import (
    exchange,
    fetch_add,
    load,
    load_acquire,
    store,
    store_release,
)
from cql.executor.kernels.lib.clock import nanoseconds
from cql.executor.kernels.lib.memory import words
from cql.executor.kernels.morsel_layout import FOLLOWING, HEADER, ROWS, SEQUENCE
from cql.executor.kernels.ordered.handover import PATH_BITS, lock, push_downstream
from cql.executor.kernels.ordered.markers import leaves
from cql.executor.kernels.ordered.tables import (
    EMITTED,
    FAILED,
    FLAG,
    HELD_FOR,
    INSIDE,
    KIND,
    LOCKED,
    NEXT,
    PARTITIONED,
    PLAN,
    RENUMBERS,
    SENT,
    SIZE,
    SLOTS,
    TASK,
    TIMED,
)

SLOT = 4
FIRST, OF_MORSEL, CAME = 1, 2, 3  # behind the stamp


@njit(inline="always")
def _slot(s: Any, ticket: int) -> Any:
    return s[SLOTS] + 8 * SLOT * (ticket & (s[SIZE] - 1))


@njit("int64(int64, int64, int64)", nogil=True, cache=True)
def _leave(plan: int, task: int, slot: int) -> int:
    """Sends the outputs of one input downstream; 0: some have no room downstream yet."""
    at, s = words(slot, SLOT), words(task, TASK)
    while at[FIRST] != 0:
        morsel = at[FIRST]
        u = words(morsel, HEADER)
        following: Any = u[FOLLOWING]
        rows = u[ROWS]
        if s[KIND] == PARTITIONED or s[RENUMBERS] != 0:
            u[SEQUENCE] = s[EMITTED]
        if push_downstream(plan, task, morsel) == 0:
            return 0
        at[FIRST] = following
        s[EMITTED] += rows
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
