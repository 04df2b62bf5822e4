"""The range of time of one task: which rows of an input the task takes, and which row groups may
hold such rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cql.catalog.spark.tables.row_groups import Group


@dataclass(frozen=True, slots=True)
class TimeRange:
    """The times from ``low`` on and below ``high`` (None: no bound). ``before`` and ``behind``: how
    far around the range the task reads (``ByTime.reach``).

    A late row counts as late in the task whose range holds its row watermark. It enters windows
    only if the watermark lies below ``high``: it is late for all windows that end up to there.
    ``alone``: late rows enter nothing (``ByTime.alone``)."""

    low: int | None = None
    high: int | None = None
    before: int = 0
    behind: int = 0
    alone: bool = False

    @property
    def _least(self) -> int | None:
        return None if self.low is None else self.low - self.before

    @property
    def _most(self) -> int | None:
        return None if self.high is None else self.high + self.behind

    def rows(
        self, times: npt.NDArray[np.int64], watermarks: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.bool_]:
        """Which rows the task takes; ``watermarks`` are those before the rows."""
        near = _from(times, self._least) & _below(times, self._most)
        here = _from(watermarks, self.low) & _below(watermarks, self.high)
        late = times < watermarks
        if self.alone:
            return np.where(late, here, near)
        return (near & _below(watermarks, self.high)) | (late & here)

    def enters(self, group: Group, watermark: int) -> bool:
        """Whether a row of the group may enter a window or a pair of the range; ``watermark`` is
        the one before the group."""
        if group.low is None or group.high is None:
            return False
        least, most = self._least, self._most
        if most is not None and max(group.low, watermark) >= most:
            return False
        if self.alone and group.high < watermark:  # all its rows are late
            return False
        return least is None or group.high >= least

    def counts(self, group: Group, watermark: int, behind: int) -> bool:
        """Whether a row of the group may count as late in the range; ``watermark`` and ``behind``
        are those before and behind the group."""
        if group.low is None or group.low >= behind:
            return False
        return (self.high is None or watermark < self.high) and (
            self.low is None or behind >= self.low
        )


#: The range of a task that takes all rows of its row groups.
ALL_ROWS = TimeRange()


def _from(values: npt.NDArray[np.int64], low: int | None) -> npt.NDArray[np.bool_]:
    return np.ones(len(values), np.bool_) if low is None else values >= low


def _below(values: npt.NDArray[np.int64], high: int | None) -> npt.NDArray[np.bool_]:
    return np.ones(len(values), np.bool_) if high is None else values < high
