"""How many rows a query takes from an update queue at a time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class Bursts:
    """How many rows the query takes from the queue at a time: a power of two. A burst should take
    TARGET nanoseconds, since so much later a newer row supersedes an older one and a key cuts in;
    longer, up to LONGEST or a quarter of ``goal``, where a burst of twice the rows takes less than
    GAIN times as long."""

    TARGET: ClassVar[int] = 1_000_000
    LONGEST: ClassVar[int] = 100_000_000
    GAIN: ClassVar[float] = 1.5

    most: int
    goal: int | None = None  # for staleness, in nanoseconds
    size: int = 1
    _times: dict[int, float] = field(default_factory=dict)  # by size, the average time

    @property
    def _longest(self) -> int:
        return self.LONGEST if self.goal is None else min(self.LONGEST, self.goal // 4)

    def note(self, rows: int, taken: int) -> None:
        """Learns from a burst of ``rows`` that took ``taken`` nanoseconds. One of fewer rows than
        allowed has emptied the queue, and says nothing of larger ones."""
        if rows < self.size:
            return
        before = self._times.get(rows)
        time = float(taken) if before is None else before + (taken - before) / 4
        self._times[rows] = time
        half = self._times.get(rows // 2)
        gains = half is None or time < self.GAIN * half
        if time <= self.TARGET or (gains and time <= self._longest):
            self.size = min(2 * rows, self.most)
        elif rows > 1:
            self.size = rows // 2
