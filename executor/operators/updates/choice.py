"""Which scheduler an update queue has while its query runs.

*Adaptive*: every row is used as long as rows come no faster than the query takes them. Once a row
has waited for half of the goal for staleness, the newest row of each key stays and takes the place
of the older ones, as in an update queue, until no row waits.

*By frequency*: IN-PLACE has the least staleness for keys that are updated equally often.
LINECUTTING is better if some keys are updated much less often than others (UpStream report, section
5.3), so it is chosen when the frequencies of the keys differ by more than UNEVEN.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cql.executor.kernels.updates import layout
from cql.executor.morsel.morsel import Words
from cql.executor.operators.updates.queue_state import QueueState, Scheduler


@dataclass(slots=True)
class Choice:
    """``goal``: the goal for staleness, in nanoseconds, of an adaptive queue. ``by_frequency``:
    whether LINECUTTING may be chosen."""

    #: The standard deviation of the frequencies of updates, divided by their average.
    UNEVEN: ClassVar[float] = 0.5
    #: Arrivals between two looks at the frequencies; at least four of each key.
    APART: ClassVar[int] = 4096

    queue: QueueState
    goal: int | None
    by_frequency: bool
    switches: int = 0
    _looked: int = 0  # rows that had arrived
    _before: Words | None = None  # by key
    _update: Scheduler = Scheduler.IN_PLACE

    def adapt(self, now: int) -> None:
        """Changes the scheduler of the queue if it is time to."""
        if self.by_frequency:
            self._look()
        if self.goal is None:
            self._set(self._update if self.by_frequency else self.queue.scheduler)
        elif self.queue.scheduler is not Scheduler.APPEND:
            waits = int(self.queue.words[layout.RESIDENTS])
            self._set(self._update if waits else Scheduler.APPEND)
        elif 2 * self.queue.longest_wait(now) > self.goal:
            self._set(self._update)

    def snapshot(self) -> dict[str, Words]:
        """What it has learnt, as arrays; the queue's own snapshot has the scheduler."""
        learnt = np.array([self.switches, self._looked, self._update.value], np.int64)
        before = {} if self._before is None else {"choice before": self._before}
        return {"choice": learnt, **before}

    def restore(self, saved: Mapping[str, Any]) -> None:
        self.switches, self._looked, update = saved["choice"].tolist()
        self._update, self._before = Scheduler(update), saved.get("choice before")

    def _set(self, scheduler: Scheduler) -> None:
        if scheduler is not self.queue.scheduler:
            self.queue.change_scheduler(scheduler)
            self.switches += 1

    def _look(self) -> None:
        """Compares the frequencies of the keys, once enough rows have come."""
        arrived, keys = (int(self.queue.words[w]) for w in (layout.ARRIVED, layout.SEEN_KEYS))
        if arrived - self._looked < max(self.APART, 4 * keys):
            return
        self._looked = arrived
        now, before = self.queue.arrivals(), self._before
        self._before = now.copy()
        if before is not None:
            now[: len(before)] -= np.minimum(before, now[: len(before)])
        found = now[now > 0]
        uneven = float(np.std(found) / np.mean(found)) if len(found) else 0.0
        self._update = Scheduler.LINECUTTING if uneven > self.UNEVEN else Scheduler.IN_PLACE
