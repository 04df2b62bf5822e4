"""A heuristic for workers with different distances to each other (ordered-multicore paper, future
work, section 9)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cql.executor.kernels.ordered import schedulers


def nearest(numbers: Any, farther: Sequence[float], slice_ns: int, admitted: int) -> int:
    """CT for workers at different distances (the paper's future work, §9). ``farther`` has, per
    task, the extra nanoseconds of this worker to fetch an input, compared with the other workers.
    They raise the task's normalized throughput by their share of its cost, so that nearer workers
    take the task first."""
    best, least = schedulers.NONE, 0.0
    for s in range(len(numbers)):
        if numbers[s, schedulers.WAITING] <= 0:
            continue
        cost = schedulers.cost_of(numbers[s])
        many = schedulers.cumulative_before(numbers[s], admitted)
        done = schedulers.effective(numbers[s], slice_ns, many)
        done *= max(1 + farther[s] / cost, 0.0)
        if best == schedulers.NONE or done < least:
            best, least = s, done
    return best
