"""The watermark of a source, and the row watermark of each row, as the reference defines them.

A source's watermark on a column is the higher of two values: the watermark by its rows, and the
value of its last punctuation. The row watermark of a row is the source's watermark just before the
row.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from cql.base.model import Schema
from cql.base.types import DataType
from cql.planner.nodes.catalog import Progress, TimeUnit
from cql.planner.nodes.logical import Scan

NEVER = -math.inf  # the watermark before the first row and the first punctuation


#: An hour in each time unit; for days, one day, their smallest step.
HOUR = {
    TimeUnit.NANOSECONDS: 3_600_000_000_000,
    TimeUnit.MICROSECONDS: 3_600_000_000,
    TimeUnit.MILLISECONDS: 3_600_000,
    TimeUnit.SECONDS: 3_600,
    TimeUnit.MINUTES: 60,
    TimeUnit.HOURS: 1,
    TimeUnit.DAYS: 1,
}


def believed(kind: DataType, progress: Progress) -> int | None:
    """The largest advance that needs no confirmation by further rows (None: no advance does).

    This is the declared MAX ADVANCE. The default is an hour, for dates a day, or the slack if the
    slack is longer; for an integer without a unit, 1,000 times the slack.

    >>> from cql.base.types import BIGINT, DATE, TIMESTAMP
    >>> [believed(kind, Progress("t")) for kind in (TIMESTAMP, DATE, BIGINT)]
    [3600000000, 1, None]
    >>> believed(BIGINT, Progress("t", 2)), believed(BIGINT, Progress("t", 2, max_advance=7))
    (2000, 7)
    """
    if progress.max_advance is not None:
        return progress.max_advance
    unit = TimeUnit.MICROSECONDS if kind.is_timestamp else progress.unit
    if not (kind.is_timestamp or kind.is_integer):
        unit = TimeUnit.DAYS
    return 1000 * progress.slack or None if unit is None else max(HOUR[unit], progress.slack)


@dataclass(frozen=True)
class Mark:
    """A punctuation among the rows of an input: no later row has a ``column`` below ``value``."""

    column: str
    value: int


@dataclass
class Column:
    """The state of one progressing column."""

    progress: Progress
    most: int | None  # further rows must confirm a larger advance
    highest: float = NEVER
    punctuated: float = NEVER
    waiting: list[int] = field(default_factory=list)

    @property
    def mark(self) -> float:
        """The watermark. A punctuation counts like a row without slack.

        >>> c = Column(Progress("t", slack=5), None)
        >>> c.row(30), c.mark
        (None, 25)
        >>> c.punctuate(28), c.mark
        (None, 28)
        """
        by_rows = self.highest - self.progress.slack if self.progress.by_rows else NEVER
        return max(by_rows, self.punctuated)

    def punctuate(self, value: int) -> None:
        self.punctuated = max(self.punctuated, value)

    def begins(self, time: int, known: float = NEVER) -> bool:
        """Handles the first rows; True if the caller must not pass the row to ``row``.

        While no row counts, the first row waits for the second row. If the second row lies more
        than ``most`` below the first, the second row counts and the first row goes on waiting.
        ``known`` is the highest time of the column over all values of PUNCTUATE BY.

        >>> c = Column(Progress("t"), 10)
        >>> [(c.begins(t), c.mark, c.waiting) for t in (100, 3)]
        [(True, -inf, [100]), (True, 3, [100])]
        >>> c = Column(Progress("t"), 10)
        >>> c.begins(100), c.begins(95), c.mark
        (True, False, 100)
        """
        base = max(self.punctuated, known)
        if self.highest != NEVER or self.most is None:
            return False
        if not self.waiting and base == NEVER:
            self.waiting = [time]
            return True
        if len(self.waiting) != 1:
            return False
        if base == NEVER and time + self.most < self.waiting[0]:
            self.highest = time
            return True
        if base == NEVER or self.waiting[0] <= base + self.most:
            self.highest, self.waiting = self.waiting[0], []
        return False

    def row(self, time: int, known: float = NEVER) -> None:
        """Takes the time of a row.

        An advance above ``most`` waits for three further large advances. Then the lowest of the
        four times counts, and each waiting time within ``most`` of the highest counted time. An
        ordinary row at or above the highest time discards the waiting times. While no row counts,
        ``known`` (see ``begins``) replaces the highest time.

        >>> c = Column(Progress("t"), 10)
        >>> def after(*times):
        ...     for time in times:
        ...         c.row(time)
        ...     return c.mark
        >>> after(0, 100, 3), after(50, 51, 52), after(53)
        (3, 3, 53)
        >>> after(900, 101, 102), after(103)
        (53, 103)
        """
        base = max(self.highest, self.punctuated)
        base = known if base == NEVER else base
        if time < self.highest:
            return
        if time == self.highest:
            self.waiting = []
            return
        if self.most is None or base == NEVER or time <= base + self.most:
            self.highest, self.waiting = time, []
            return
        self.waiting = sorted([*self.waiting, time])
        if len(self.waiting) > 3:
            self.highest = self.waiting.pop(0)
            while self.waiting and self.waiting[0] <= self.highest + self.most:
                self.highest = self.waiting.pop(0)


@dataclass
class Values:
    """The per-key watermarks of PUNCTUATE BY on one progressing column: one for each value.

    ``whole`` is the state of the whole column: its highest time, and the last punctuation for all
    values. No value's watermark lies more than ``max_skew`` behind the watermark by the highest
    time (None: any distance).

    The rows of a value and the punctuations for the value set its watermark. A row that waits for
    confirmation (``Column.row``) does not count. If ``max_skew`` is None, each value has its own
    clock and no value advances another one; only the first row of a value is compared with the
    highest time of the column.

    >>> c = Values(Column(Progress("t", slack=5), None), 100)
    >>> def after(value, time):
    ...     c.row(value, time)
    ...     return [c.mark(v) for v in ("tcp", "udp")]
    >>> after("tcp", 30), after("udp", 10), after("tcp", 200)
    ([25, -75], [25, 5], [195, 95])
    >>> c.punctuate("udp", 120); c.punctuate(None, 100)
    >>> [c.mark(v) for v in ("tcp", "udp", "icmp")]
    [195, 120, 100]
    """

    whole: Column
    max_skew: int | None
    highest: dict[Any, float] = field(default_factory=dict)
    punctuated: dict[Any, float] = field(default_factory=dict)
    alone: dict[Any, Column] = field(default_factory=dict)

    def mark(self, value: Any) -> float:
        """The watermark of a value."""
        one = self.whole
        slack, found = one.progress.slack, [one.punctuated, self.punctuated.get(value, NEVER)]
        if one.progress.by_rows:
            found.append(self.highest.get(value, NEVER) - slack)
            if self.max_skew is not None:
                found.append(one.highest - slack - self.max_skew)
        return max(found)

    def punctuate(self, value: Any, time: int) -> None:
        """Takes a punctuation for one value; ``value`` None means all values."""
        if value is None:
            self.whole.punctuate(time)
        else:
            self.punctuated[value] = max(self.punctuated.get(value, NEVER), time)

    def _clock(self, value: Any) -> Column:
        one = self.alone.setdefault(value, Column(self.whole.progress, self.whole.most))
        one.punctuated = max(self.whole.punctuated, self.punctuated.get(value, NEVER))
        return one

    @property
    def _are_alone(self) -> bool:
        return self.max_skew is None and self.whole.progress.by_rows

    def begins(self, value: Any, time: int) -> bool:
        if not self._are_alone:
            if not self.whole.begins(time):
                return False
            if self.whole.highest != NEVER:
                self.highest[value] = time
            return True
        clock = self._clock(value)
        began = clock.begins(time, self.whole.highest)
        self._take(value, clock)
        return began

    def row(self, value: Any, time: int) -> None:
        if self._are_alone:
            clock = self._clock(value)
            clock.row(time, self.whole.highest)
            self._take(value, clock)
            return
        self.whole.row(time)
        if time <= self.whole.highest:
            self.highest[value] = max(self.highest.get(value, NEVER), time)

    def _take(self, value: Any, clock: Column) -> None:
        self.highest[value] = clock.highest
        self.whole.highest = max(self.whole.highest, clock.highest)


def _believed(schema: Schema, progress: Progress) -> int | None:
    at = schema.find(progress.column)
    return None if at is None else believed(schema[at].type, progress)


def scan(node: Scan, items: Sequence[Any]) -> Iterator[tuple[tuple[Any, ...], list[float | None]]]:
    """Pairs (values, row watermarks) of the rows of an input. A row whose marker column is true is
    a punctuation, not a row.

    >>> from tests.reference.naive_tables import stream
    >>> s = stream("s", "t bigint", slack=5)
    >>> [marks[0] for _, marks in scan(s, [(10,), (30,), (None,), Mark("t", 28), (20,)])]
    [-inf, 5, 25, 28]
    """
    relation = node.relation
    schema = relation.schema
    progress = relation.stream.progress if relation.stream else ()
    if relation.stream and relation.stream.by:
        yield from _scan_by(node, items, schema.find(relation.stream.by))
        return
    columns = {schema.find(p.column): Column(p, _believed(schema, p)) for p in progress}
    markers = {i: schema.find(c.progress.marked_by or "") for i, c in columns.items()}
    for item in items:
        if isinstance(item, Mark):
            columns[schema.find(item.column)].punctuate(item.value)
            continue
        marked = [i for i, at in markers.items() if at is not None and item[at]]
        for i in marked:
            if i is not None and item[i] is not None:
                columns[i].punctuate(item[i])
        if marked:
            continue
        timed = [(one, item[at]) for at, one in columns.items() if at is not None]
        timed = [(one, time) for one, time in timed if time is not None and not one.begins(time)]
        yield (
            tuple(item[i] for i in node.columns),
            [columns[i].mark if i in columns else None for i in node.columns],
        )
        for one, time in timed:
            one.row(time)


def _scan_by(
    node: Scan, items: Sequence[Any], by: int | None
) -> Iterator[tuple[tuple[Any, ...], list[float | None]]]:
    """``scan`` of a stream with PUNCTUATE BY column. In a row, NULL is a value of the column; in a
    punctuation, NULL means all values."""
    relation = node.relation
    assert relation.stream is not None
    schema = relation.schema
    columns = {
        schema.find(p.column): Values(Column(p, _believed(schema, p)), p.max_skew)
        for p in relation.stream.progress
    }
    for item in items:
        if isinstance(item, Mark):
            columns[schema.find(item.column)].punctuate(None, item.value)
            continue
        markers = {i: schema.find(v.whole.progress.marked_by or "") for i, v in columns.items()}
        marked = [i for i, at in markers.items() if at is not None and item[at]]
        for i in marked:
            if item[i] is not None:
                columns[i].punctuate(item[by], item[i])
        if marked:
            continue
        value = item[by]
        timed = [(one, item[at]) for at, one in columns.items() if item[at] is not None]
        timed = [(one, time) for one, time in timed if not one.begins(value, time)]
        yield (
            tuple(item[i] for i in node.columns),
            [columns[i].mark(value) if i in columns else None for i in node.columns],
        )
        for one, time in timed:
            one.row(value, time)
