"""The scheduling heuristics: which task a worker takes next (ordered-multicore paper, section 6).

All functions are pure. ``numbers`` has a line of OF words for each task, in the order from the
inputs to the results. A task that is not schedulable has WAITING 0. Inputs and outputs are counted
in morsels.
"""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import njit

WAITING = 0  # waiting inputs, I of equation 2
WORKERS = 1  # workers at the task, w
TIME = 2  # nanoseconds of all workers so far; TIME / COUNT is c
COUNT = 3  # inputs so far
RECENT = 4  # nanoseconds of all workers in this window, T of equation 3
AHEAD = 5  # outputs that wait downstream
INPUTS = 6  # estimated inputs that all admitted morsels lead to, in the unit of COUNT
OUTPUTS = 7  # estimated outputs that all admitted morsels lead to
OF = 8

CT, LP, ET, QST, CT_PRINTED = range(5)
NONE = -1


@njit(inline="always")
def cost_of(s: Any) -> Any:
    """c: nanoseconds per input; 1 before the first input is done."""
    return (s[TIME] + 1.0) / (s[COUNT] + 1.0)


@njit(inline="always")
def cumulative(s: Any, admitted: int) -> Any:
    """cs: outputs of the task per admitted morsel."""
    return max(s[OUTPUTS], 1) / max(admitted, 1)


@njit(inline="always")
def cumulative_before(s: Any, admitted: int) -> Any:
    """Inputs of the task per admitted morsel: cs of the tasks before it."""
    return max(s[INPUTS], 1) / max(admitted, 1)


@njit(inline="always")
def effective(s: Any, slice_ns: int, many: Any) -> Any:
    """n of equation 3: the number of admitted morsels that the worker time of this window suffices
    for, if each leads to ``many`` inputs of the task."""
    return float(s[RECENT] + s[WORKERS] * slice_ns) / (cost_of(s) * many)


@njit("int64(int64[:, ::1], int64)", nogil=True, cache=True)
def last_in_pipeline(numbers: Any, least: int) -> int:
    """LP (6.2): the last task in the pipeline with at least ``least`` waiting inputs; if there is
    none, the last task with a waiting input."""
    fallback = NONE
    for s in range(numbers.shape[0] - 1, -1, -1):
        if numbers[s, WAITING] >= least:
            return s
        if fallback == NONE and numbers[s, WAITING] > 0:
            fallback = s
    return fallback


@njit("int64(int64[:, ::1], int64, int64)", nogil=True, cache=True)
def queue_size_throttling(numbers: Any, capacity: int, admitted: int) -> int:
    """QST (6.1): the first schedulable task whose waiting outputs are below its threshold (equation
    1); if there is none, the last schedulable task, so that the query makes progress."""
    total = 0.0
    for s in range(numbers.shape[0]):
        total += cumulative(numbers[s], admitted)
    latest = NONE
    for s in range(numbers.shape[0]):
        if numbers[s, WAITING] <= 0:
            continue
        if numbers[s, AHEAD] < capacity * cumulative(numbers[s], admitted) / total:
            return s
        latest = s
    return latest


@njit("int64(int64[:, ::1])", nogil=True, cache=True)
def estimated_time(numbers: Any) -> int:
    """ET (6.3): the task with the longest estimated time for its worklist (equation 2)."""
    best, most = NONE, 0.0
    for s in range(numbers.shape[0]):
        if numbers[s, WAITING] <= 0:
            continue
        priority = numbers[s, WAITING] * cost_of(numbers[s]) / (numbers[s, WORKERS] + 1.0)
        if best == NONE or priority > most:
            best, most = s, priority
    return best


@njit("int64(int64[:, ::1], int64, int64, int64)", nogil=True, cache=True)
def current_throughput(numbers: Any, slice_ns: int, admitted: int, printed: int) -> int:
    """CT (6.4): the task with the lowest normalized throughput in this window.

    Equation 3 is meant as "the effective number of tuples processed", and c is the cost per input;
    the cumulative selectivity must therefore be that of the tasks before this one. As ``printed``,
    it includes the selectivity of the task itself: a task with one output for ten inputs then seems
    to have processed ten times as much as it has, and falls behind."""
    best, least = NONE, 0.0
    for s in range(numbers.shape[0]):
        if numbers[s, WAITING] <= 0:
            continue
        before = cumulative_before(numbers[s], admitted)
        many = cumulative(numbers[s], admitted) if printed != 0 else before
        done = effective(numbers[s], slice_ns, many)
        if best == NONE or done < least:
            best, least = s, done
    return best


@njit("int64(int64, int64[:, ::1], int64, int64, int64, int64)", nogil=True, cache=True)
def pick(policy: int, numbers: Any, least: int, capacity: int, slice_ns: int, admitted: int) -> int:
    """The task that the heuristic ``policy`` chooses, or NONE if no task is schedulable."""
    if policy == LP:
        return last_in_pipeline(numbers, least)
    if policy == QST:
        return queue_size_throttling(numbers, capacity, admitted)
    if policy == ET:
        return estimated_time(numbers)
    return current_throughput(numbers, slice_ns, admitted, int(policy == CT_PRINTED))
