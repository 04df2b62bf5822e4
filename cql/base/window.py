"""Windows as data.

All values are in the units of the window attribute (WA): microseconds for timestamps, days for
dates, the column's own units for integers. Window *k* of a sliding window covers
``[k * slide + offset, k * slide + offset + range)``: aligned to the epoch, half open.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

#: Event times beyond this may have windows whose bounds or ids do not fit 64 bits: bad rows.
MAX_EVENT_TIME = 1 << 61


class WindowKind(Enum):
    SLIDING = "sliding"  # RANGE with SLIDE; tumbling when they are equal
    RANGE = "range"  # RANGE without SLIDE: CQL's relation of [t - r, t]
    NOW = "now"
    UNBOUNDED = "unbounded"
    ROWS = "rows"  # ROWS n [SLIDE m], [PARTITION BY k ROWS n]
    SESSION = "session"
    EARLY = "early"  # rows that Bucket gave their windows: each from its arrival on
    CUMULATE = "cumulate"  # of RANGE in steps of SLIDE: each begins with the range, and grows


@dataclass(frozen=True, slots=True)
class Window:
    """A window over an input; ``wa`` is the column index of the window attribute in that input.

    ``range``, ``slide`` and ``gap`` (of sessions) count units of WA; ``rows``, and ``slide`` of
    ROWS windows, count rows.
    """

    kind: WindowKind
    wa: int | None = None
    range: int | None = None
    slide: int | None = None
    offset: int = 0
    rows: int | None = None
    gap: int | None = None
    partition_by: tuple[int, ...] = ()
    end: int | None = None  # of EARLY: the column with the end of the row's window
    zone: str | None = None  # lengths are whole days, and these are of that time zone

    @property
    def has_bounds(self) -> bool:
        """Whether a group's row leaves with the window's start, end and time."""
        return self.kind in (WindowKind.SLIDING, WindowKind.SESSION, WindowKind.CUMULATE)

    @property
    def has_number(self) -> bool:
        """Whether every row tells which windows hold it, by number."""
        return self.kind in (WindowKind.SLIDING, WindowKind.CUMULATE)

    @property
    def overlap(self) -> int:
        """How many windows one row can fall into (those with numbers)."""
        assert self.range is not None
        assert self.slide is not None
        return -(-self.range // self.slide)
