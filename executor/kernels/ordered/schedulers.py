"""Which task a worker takes next (ordered-multicore paper, section 6): pure functions.

``numbers`` has OF words for each task, in the order from the inputs to the results. A task
that cannot be scheduled has nothing WAITING. Inputs and outputs are counted in morsels.
"""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import njit

WAITING = 0  # inputs, I of equation 2
WORKERS = 1  # that are at it, w
TIME = 2  # of workers so far, in nanoseconds; with COUNT, c
COUNT = 3  # inputs so far
RECENT = 4  # time of workers in this window, T of equation 3
AHEAD = 5  # outputs that wait downstream
INPUTS = 6  # that all that was admitted will have come to, as far as is known; as COUNT has them
OUTPUTS = 7
OF = 8

CT, LP, ET, QST, CT_PRINTED = range(5)
NONE = -1


@njit(inline="always")
def cost_of(s: Any) -> Any:
    """Nanoseconds for an input; one before any is known."""
    return (s[TIME] + 1.0) / (s[COUNT] + 1.0)


@njit(inline="always")
def cumulative(s: Any, admitted: int) -> Any:
    """cs: outputs for each morsel that was admitted."""
    return max(s[OUTPUTS], 1) / max(admitted, 1)


@njit(inline="always")
def cumulative_before(s: Any, admitted: int) -> Any:
    """Inputs for each morsel that was admitted: cs of what stands before."""
    return max(s[INPUTS], 1) / max(admitted, 1)


@njit(inline="always")
def effective(s: Any, slice_ns: int, many: Any) -> Any:
    """n of equation 3: the morsels from outside that the worker time of this window was enough for,
    if ``many`` inputs come of each."""
    return float(s[RECENT] + s[WORKERS] * slice_ns) / (cost_of(s) * many)


@njit("int64(int64[:, ::1], int64)", nogil=True, cache=True)
def last_in_pipeline(numbers: Any, least: int) -> int:
    """LP (6.2): the latest one for which at least that many wait; if there is none, the latest."""
    fallback = NONE
    for s in range(numbers.shape[0] - 1, -1, -1):
        if numbers[s, WAITING] >= least:
            return s
        if fallback == NONE and numbers[s, WAITING] > 0:
            fallback = s
    return fallback


@njit("int64(int64[:, ::1], int64, int64)", nogil=True, cache=True)
def queue_size_throttling(numbers: Any, capacity: int, admitted: int) -> int:
    """QST (6.1): the earliest one whose outputs that wait are below its threshold (equation 1); if
    all are above, the latest, for someone must go on."""
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
    """ET (6.3): the one whose worklist would take longest (equation 2)."""
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
    """CT (6.4): the one with the lowest normalized throughput in this window. Equation 3 means "the
    effective number of tuples processed", and c is the cost of an input: so the cumulative
    selectivity is that of what stands before the task. As it is ``printed``, that of the task
    itself is in it: one that gives an output for ten inputs seems ten times as far as it is, and is
    left behind."""
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
    """The task, or NONE if none can be scheduled."""
    if policy == LP:
        return last_in_pipeline(numbers, least)
    if policy == QST:
        return queue_size_throttling(numbers, capacity, admitted)
    if policy == ET:
        return estimated_time(numbers)
    return current_throughput(numbers, slice_ns, admitted, int(policy == CT_PRINTED))
