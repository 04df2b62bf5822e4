"""Markers (ordered-multicore paper, section 7): measures the time from the moment at which a task
begins with a morsel until all outputs of this morsel have left a later task."""

from __future__ import annotations

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.clock import nanoseconds
from cql.executor.kernels.lib.memory import words
from cql.executor.kernels.ordered.tables import MARKED, MARKED_FROM, MARKED_TO, MARKS, PLAN

ENTERED, LEFT = range(2)  # nanoseconds; 0: not yet
_CLOCK = 2  # two words
MARK = 4


@njit("void(int64, int64, int64, int64)", nogil=True, cache=True)
def enters(plan: int, task: int, serial: int, clock: int) -> None:
    """Notes that a task begins with an input; further fragments of the input change nothing.
    ``clock`` is the address of two words of scratch."""
    header = words(plan, PLAN)
    if header[MARKED_FROM] == task and serial < header[MARKED]:
        mark = words(header[MARKS] + 8 * MARK * serial, MARK)
        if mark[ENTERED] == 0:
            mark[ENTERED] = nanoseconds(clock)


@njit("void(int64, int64, int64)", nogil=True, cache=True)
def leaves(plan: int, task: int, serial: int) -> None:
    """Notes that all outputs of an input have left a task. One thread at a time calls this."""
    header = words(plan, PLAN)
    if header[MARKED_TO] == task and serial < header[MARKED]:
        at = header[MARKS] + 8 * MARK * serial
        words(at, MARK)[LEFT] = nanoseconds(at + 8 * _CLOCK)
