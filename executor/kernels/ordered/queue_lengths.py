"""Lengths of the worklists of the ordered runtime, sampled whenever a worker begins a slice (if
TIMED)."""

from __future__ import annotations

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.memory import words
from cql.executor.kernels.ordered.handover import waiting
from cql.executor.kernels.ordered.partitions import fragments_waiting
from cql.executor.kernels.ordered.tables import (
    KIND,
    LENGTHS,
    NOTED,
    PARTITIONED,
    PARTS,
    PLAN,
    PORTS,
    TASK,
    TASKS,
    WORKER,
    port_at,
    task_at,
)


@njit("int64(int64)", nogil=True, cache=True)
def length(task: int) -> int:
    """The approximate number of waiting inputs of a task; PARTS waiting fragments count as one
    input."""
    s = words(task, TASK)
    total = 0
    for k in range(s[PORTS]):
        total += waiting(port_at(task, k))
    if s[KIND] == PARTITIONED:
        total += (fragments_waiting(task) + s[PARTS] - 1) // s[PARTS]
    return max(total, 0)


@njit("void(int64, int64)", nogil=True, cache=True)
def note_lengths(plan: int, worker: int) -> None:
    """Adds a sample of the lengths of all worklists to the worker's sums and maxima."""
    me, n = words(worker, WORKER), words(plan, PLAN)[TASKS]
    found = words(me[LENGTHS], 2 * n)
    me[NOTED] += 1
    for k in range(n):
        now = length(task_at(plan, k))
        found[2 * k] += now
        found[2 * k + 1] = max(found[2 * k + 1], now)
