"""Progress of a source, as the reference states it: the row watermark of each row.

A source's progress on a column is the higher of what its rows say and what the source has promised
itself. A row's row watermark is that progress just before it.
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

NEVER = -math.inf  # the watermark before anything was promised


#: Microseconds of an hour; units of an integer's time that an hour (or a day's step) has.
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
    """The advance above which a row has to be confirmed (None: any is believed): what is declared,
    else an hour, of dates a day, or the slack if that is longer; of an integer without a unit 1,000
    times the slack.

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
    """Among the rows of an input: from the next row on, no ``column`` is below ``value``."""

    column: str
    value: int


@dataclass
class Column:
    """What is known of one progressing column."""

    progress: Progress
    most: int | None  # a larger advance has to be confirmed
    highest: float = NEVER
    promised: float = NEVER
    waiting: list[int] = field(default_factory=list)

    @property
    def mark(self) -> float:
        """Progress. A promise is as good as a row without slack.

        >>> c = Column(Progress("t", slack=5), None)
        >>> c.row(30), c.mark
        (None, 25)
        >>> c.promise(28), c.mark
        (None, 28)
        """
        by_rows = self.highest - self.progress.slack if self.progress.by_rows else NEVER
        return max(by_rows, self.promised)

    def promise(self, value: int) -> None:
        self.promised = max(self.promised, value)

    def begins(self, time: int, known: float = NEVER) -> bool:
        """Whether a row says no more than that it is there, as no row is believed yet: the first
        one waits for the second, and goes on waiting if that lies more than ``most`` below it.
        ``known`` is what is known besides.

        >>> c = Column(Progress("t"), 10)
        >>> [(c.begins(t), c.mark, c.waiting) for t in (100, 3)]
        [(True, -inf, [100]), (True, 3, [100])]
        >>> c = Column(Progress("t"), 10)
        >>> c.begins(100), c.begins(95), c.mark
        (True, False, 100)
        """
        base = max(self.promised, known)
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
        """An advance above ``most`` waits until three further ones confirm it; then the lowest of
        the four counts, and whatever is within ``most`` of what counts. An ordinary row at or above
        the highest time in between shows that time goes on where it was, and nothing waits any
        more. ``known`` is what is known besides while no row is believed.

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
        base = max(self.highest, self.promised)
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
    """What is known of the values of PUNCTUATE BY on one progressing column: each has a watermark
    of its own. ``whole`` is the column's: its highest time, and what the source has promised of all
    values. None of them lies more than ``apart`` behind the highest time (None: any distance).

    A value is told by its rows and by the promises for it. A row that waits to be confirmed
    (``Column.row``) says nothing. Where ``apart`` is None, no value says anything about another,
    but for what its first row is measured by: each has an own clock.

    >>> c = Values(Column(Progress("t", slack=5), None), 100)
    >>> def after(value, time):
    ...     c.row(value, time)
    ...     return [c.mark(v) for v in ("tcp", "udp")]
    >>> after("tcp", 30), after("udp", 10), after("tcp", 200)
    ([25, -75], [25, 5], [195, 95])
    >>> c.promise("udp", 120); c.promise(None, 100)
    >>> [c.mark(v) for v in ("tcp", "udp", "icmp")]
    [195, 120, 100]
    """

    whole: Column
    apart: int | None
    highest: dict[Any, float] = field(default_factory=dict)
    promised: dict[Any, float] = field(default_factory=dict)
    alone: dict[Any, Column] = field(default_factory=dict)

    def mark(self, value: Any) -> float:
        """Progress of a value."""
        one = self.whole
        slack, found = one.progress.slack, [one.promised, self.promised.get(value, NEVER)]
        if one.progress.by_rows:
            found.append(self.highest.get(value, NEVER) - slack)
            if self.apart is not None:
                found.append(one.highest - slack - self.apart)
        return max(found)

    def promise(self, value: Any, time: int) -> None:
        """None: of all values."""
        if value is None:
            self.whole.promise(time)
        else:
            self.promised[value] = max(self.promised.get(value, NEVER), time)

    def _clock(self, value: Any) -> Column:
        one = self.alone.setdefault(value, Column(self.whole.progress, self.whole.most))
        one.promised = max(self.whole.promised, self.promised.get(value, NEVER))
        return one

    @property
    def _are_alone(self) -> bool:
        return self.apart is None and self.whole.progress.by_rows

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
    """(values, row watermarks) of each row of an input. Rows in which a marker column is true are
    promises and no rows.

    >>> from naive_tables import stream
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
            columns[schema.find(item.column)].promise(item.value)
            continue
        marked = [i for i, at in markers.items() if at is not None and item[at]]
        for i in marked:
            if i is not None and item[i] is not None:
                columns[i].promise(item[i])
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
    """``scan`` of a stream that is punctuated by a column; NULL in it is a value of rows, and all
    values in promises."""
    relation = node.relation
    assert relation.stream is not None
    schema = relation.schema
    columns = {
        schema.find(p.column): Values(Column(p, _believed(schema, p)), p.apart)
        for p in relation.stream.progress
    }
    for item in items:
        if isinstance(item, Mark):
            columns[schema.find(item.column)].promise(None, item.value)
            continue
        markers = {i: schema.find(v.whole.progress.marked_by or "") for i, v in columns.items()}
        marked = [i for i, at in markers.items() if at is not None and item[at]]
        for i in marked:
            if item[i] is not None:
                columns[i].promise(item[by], item[i])
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
