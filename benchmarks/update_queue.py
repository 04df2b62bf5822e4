"""Operations a second of an update queue (UpStream report, section 7) on one thread; their floor.

An enqueued row is an operation, and so is an update that is dequeued and delivered. The engine
calls a kernel from Python for each block of rows and for each batch that it dequeues. *One kernel*
makes the same calls without Python; *bare* is the least work of an update queue: a flag for each
key and a ring of keys, without staleness, event times, rates, places or a choice of scheduler.
"""

from __future__ import annotations

from collections.abc import Callable
from time import thread_time
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from benchmarks.figure import Check, Figure
from benchmarks.update_simulation import (
    APPEND,
    FIFO,
    IN_PLACE,
    LINECUTTING,
    NAMES,
    Unlimited,
    zipf,
)
from cql.executor.kernels.updates import staleness, update_queue
from cql.executor.operators.updates.queue_state import QueueState, Scheduler

Words = npt.NDArray[np.int64]
BLOCK, KEYS = 4096, 3000
AT_ONCE = (32, 64, 128, 256, 512, 1024)
KINDS = (APPEND, FIFO, IN_PLACE, LINECUTTING)
#: Operations a second, in millions.
GOAL = 20.0
#: Microseconds in which an update is served.
_COST = 50

_enqueue, _dequeue, _deliver = update_queue.enqueue, update_queue.dequeue, staleness.deliver


def throughput(rows: int, rounds: int = 3) -> Figure:
    """Blocks of rows are enqueued; after each, the queue is emptied: updates are dequeued and
    delivered, up to so many in a call. CPU time of the thread."""
    blocks = max(2, rows // len(AT_ONCE) // BLOCK)
    series: dict[str, list[float]] = {}
    checks = []
    for kind in KINDS:
        name = NAMES[kind]
        found = series[name] = [
            max(_speed(_by_calls(kind, limit), blocks) for _ in range(rounds)) for limit in AT_ONCE
        ]
        checks.append(
            Check(f"{name}, at least", min(found), f"at least {GOAL:g}", min(found) >= GOAL)
        )
    for kind in KINDS:
        best = max(_speed(_in_one_kernel(kind, 128), blocks) for _ in range(rounds))
        checks.append(Check(f"{NAMES[kind]} in one kernel, 128 at once", best))
    bare = max(_speed(_bare(), blocks) for _ in range(rounds))
    checks.append(Check("bare", bare))
    return Figure(
        "updates-queue",
        f"Operations of a queue: blocks of {BLOCK:,} rows, {KEYS:,} keys, Zipf, θ = 1",
        ("Enqueue, dequeue and delivery of the update queue (§7), one thread.",),
        "updates dequeued at once",
        AT_ONCE,
        "million operations a second",
        series,
        checks,
        log_x=True,
    )


#: Enqueues a block of keys with event times at a time of the clock, and empties the queue; returns
#: how many updates that were.
_Block = Callable[[Words, Words, int], int]


def _speed(block: _Block, blocks: int) -> float:
    """Million operations a second; the first block does not count."""
    ids = zipf(16 * BLOCK, KEYS, 1).reshape(-1, BLOCK)
    operations, spent = 0, 0.0
    for k in range(blocks):
        events = np.arange(k * BLOCK, (k + 1) * BLOCK)
        start = thread_time()
        taken = block(ids[k % len(ids)], events, _COST * k * BLOCK)
        if k > 0:
            spent += thread_time() - start
            operations += BLOCK + taken
    return operations / spent / 1e6


def _queue(kind: Scheduler, flights: int) -> QueueState:
    queue = QueueState("updates", Unlimited(), kind)
    queue.make_room(keys=KEYS, arrivals=2 * BLOCK, flights=flights)
    staleness.note_cost(queue.words, float(_COST))
    return queue


def _by_calls(kind: Scheduler, limit: int) -> _Block:
    queue = _queue(kind, limit)

    def block(ids: Words, events: Words, now: int) -> int:
        queue.enqueue(ids, events, now)
        taken, found = 0, limit
        while found == limit:
            found = len(queue.dequeue(limit, now))
            queue.deliver(found, now + limit)
            taken += found
        return taken

    return block


def _in_one_kernel(kind: Scheduler, limit: int) -> _Block:
    queue, places, found = _queue(kind, BLOCK), np.empty(BLOCK, np.int64), np.empty(limit, np.int64)

    def block(ids: Words, events: Words, now: int) -> int:
        return int(_emptied(queue.words, ids, events, now, places, found))

    return block


@njit
def _emptied(q: Any, ids: Any, events: Any, now: int, places: Any, found: Any) -> int:
    _enqueue(q, ids, events, now, places)
    taken, n = 0, found.size
    while n == found.size:
        n = _dequeue(q, now, found)
        _deliver(q, n, now + found.size)
        taken += n
    return taken


def _bare() -> _Block:
    newest, waits, ring = np.zeros((3, KEYS), np.int64)

    def block(ids: Words, events: Words, now: int) -> int:
        return int(_ring_emptied(ids, events, newest, waits, ring)[0])

    return block


@njit
def _ring_emptied(ids: Any, events: Any, newest: Any, waits: Any, ring: Any) -> tuple[int, int]:
    """How many keys waited, and the sum of their newest events."""
    n = 0
    for i in range(ids.size):
        key = ids[i]
        newest[key] = events[i]
        if waits[key] == 0:
            waits[key] = 1
            ring[n] = key
            n += 1
    total = 0
    for i in range(n):
        waits[ring[i]] = 0
        total += newest[ring[i]]
    return n, total
