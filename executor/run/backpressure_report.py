"""Backpressure report: the input with the lowest watermark holds back the operators that take the
minimum over their inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass

import numpy as np

from cql.executor.kernels.morsel_layout import NEVER
from cql.executor.morsel.ingest import Feed
from cql.executor.strings.columns import to_arrow
from cql.planner.lower.choose import duration


@dataclass(slots=True)
class Held:
    """``seconds`` for which an input was furthest behind, and the most by which it was ``behind``
    the input furthest ahead, in units of event time."""

    seconds: float = 0.0
    behind: int = 0


class Holding:
    """Samples the watermarks of the inputs while a query runs."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.begin(())

    def begin(self, feeds: Sequence[Feed]) -> None:
        """Starts to sample the inputs ``feeds``, from nothing."""
        self._feeds = feeds
        self._since = self._clock()
        self._last: int | None = None
        self.seconds = 0.0
        self.held = [Held() for _ in feeds]

    def note(self, counted: Set[int]) -> None:
        """Charges the time since the last call to the input that was furthest behind then.
        ``counted`` are the inputs that are neither idle nor ended."""
        now = self._clock()
        self.seconds += now - self._since
        if self._last is not None:
            self.held[self._last].seconds += now - self._since
        self._since = now
        ordered = (k for k in counted if self._feeds[k].attributes)
        times = {k: self._feeds[k].attributes[0].watermark() for k in ordered}
        if len(times) < 2:
            self._last = None
            return
        first, last = min(times.values()), max(times.values())
        # In a tie no input holds back another.
        self._last = None if first == last else min(times, key=lambda k: times[k])
        if self._last is not None and first > NEVER:
            held = self.held[self._last]
            held.behind = max(held.behind, last - first)

    def worst(self) -> int | None:
        """The input that was furthest behind for the longest time; None if none was."""
        longest = max(range(len(self.held)), key=lambda k: self.held[k].seconds, default=None)
        return longest if longest is not None and self.held[longest].seconds > 0 else None


def value_behind(feed: Feed) -> str | None:
    """A sentence about the value of PUNCTUATE BY that is furthest behind now; None if none is."""
    found = None if feed.values is None else feed.values.furthest_behind()
    if feed.values is None or found is None:
        return None
    key, null, behind = found
    column = feed.values.column
    storage = "uint8" if column.type.storage == "bool" else column.type.storage
    value = "NULL"
    if not null:
        value = str(to_arrow(np.array([key], storage), None, column, feed.dictionary)[0])
    by = duration(behind, feed.attributes[0].field.type)
    return (
        f"time was held back in {feed.source.name} by rows whose {column.name} is {value}:"
        f" {by} behind at the end"
    )
