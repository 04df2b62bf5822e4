"""Markers (ordered-multicore paper, section 7): when a task begins with a morsel, and when a
later one, in the order of morsels, is through with all that came of it."""

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
    """A task begins with an input, or with one more fragment of it."""
    header = words(plan, PLAN)
    if header[MARKED_FROM] == task and serial < header[MARKED]:
        mark = words(header[MARKS] + 8 * MARK * serial, MARK)
        if mark[ENTERED] == 0:
            mark[ENTERED] = nanoseconds(clock)


@njit("void(int64, int64, int64)", nogil=True, cache=True)
def leaves(plan: int, task: int, serial: int) -> None:
    """All outputs of an input have left a task, which one thread at a time says."""
    header = words(plan, PLAN)
    if header[MARKED_TO] == task and serial < header[MARKED]:
        at = header[MARKS] + 8 * MARK * serial
        words(at, MARK)[LEFT] = nanoseconds(at + 8 * _CLOCK)
