"""Windows as data.

All values are in the units of the window attribute (WA): microseconds for timestamps, days for
dates, the column's own units for integers. Window *k* of a sliding window covers
``[k * slide + offset, k * slide + offset + range)``: aligned to the epoch, half open.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Self

#: Rows with an event time beyond this are bad rows: the bounds or ids of their windows may not fit
#: in 64 bits.
MAX_EVENT_TIME = 1 << 61


class WindowKind(Enum):
    SLIDING = "sliding"  # RANGE with SLIDE; tumbling when they are equal
    RANGE = "range"  # RANGE without SLIDE: CQL's relation of [t - r, t]
    NOW = "now"
    UNBOUNDED = "unbounded"
    ROWS = "rows"  # ROWS n [SLIDE m], [PARTITION BY k ROWS n]
    SESSION = "session"
    EARLY = "early"  # Bucket has given each row its windows; a row counts from its arrival on
    CUMULATE = "cumulate"  # windows that begin with the RANGE and grow in steps of SLIDE


class WindowOperator(StrEnum):
    """The state in which a windowed aggregate keeps its groups. The value is that of the setting
    ``window_operator``; ``shown`` is the operator's name in EXPLAIN."""

    _value_: str
    shown: str

    def __new__(cls, value: str, shown: str) -> Self:
        made = str.__new__(cls, value)
        made._value_, made.shown = value, shown
        return made

    #: Each row updates the groups of each of its windows.
    WID = "wid", "WidAggregate"
    #: Each row updates its pane; a window that closes merges its panes.
    PANES = "panes", "PaneAggregate"
    #: As panes, but merges panes when they enter and leave.
    TWO_STACKS = "two_stacks", "TwoStacksAggregate"
    #: As panes, but subtracts panes that leave.
    SUBTRACT = "subtract", "SubtractAggregate"
    #: A small table of partial aggregates below the groups of WID.
    TWO_LEVEL = "two_level", "TwoLevelAggregate"
    #: Panes keep rows; a window that closes aggregates its rows.
    BUFFERED = "buffered", "BufferedAggregate"


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
    end: int | None = None  # EARLY: index of the column with the end of the row's window
    # ROWS of a changelog: the column with the change that a row is. ``rows`` None: the relation is
    # a bag; 1: it has the last row of each key.
    change: int | None = None
    zone: str | None = None  # lengths are whole days of this time zone
    # Windows that end at or before it get no rows, and rows with a row watermark below it count no
    # late pairs: both belong elsewhere.
    since: int | None = None

    @property
    def has_bounds(self) -> bool:
        """Whether a group's output row has the window's start, end and time."""
        return self.kind in (WindowKind.SLIDING, WindowKind.SESSION, WindowKind.CUMULATE)

    @property
    def has_number(self) -> bool:
        """Whether the numbers of a row's windows follow from the row alone."""
        return self.kind in (WindowKind.SLIDING, WindowKind.CUMULATE)

    @property
    def overlap(self) -> int:
        """The maximal number of windows that one row falls into (SLIDING and CUMULATE)."""
        assert self.range is not None
        assert self.slide is not None
        return -(-self.range // self.slide)
