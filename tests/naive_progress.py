"""Progress of a source, as the reference states it: the own watermark of each row.

A source's progress on a column is the higher of what its rows say and what the source has promised
itself. A row's own watermark is that progress just before it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from cql.planner.catalog import Progress
from cql.planner.logical import Scan

NEVER = -math.inf  # the watermark before anything was promised


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

    def row(self, time: int) -> None:
        """An advance above ``most`` waits until three further ones confirm it; then the lowest of
        the four counts, and whatever is within ``most`` of what counts. An ordinary advance in
        between shows that time goes on where it was, and nothing waits any more.

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
        if time <= self.highest:
            return
        if self.most is None or base == NEVER or time <= base + self.most:
            self.highest, self.waiting = time, []
            return
        self.waiting = sorted([*self.waiting, time])
        if len(self.waiting) > 3:
            self.highest = self.waiting.pop(0)
            while self.waiting and self.waiting[0] <= self.highest + self.most:
                self.highest = self.waiting.pop(0)


def scan(node: Scan, items: Sequence[Any]) -> Iterator[tuple[tuple[Any, ...], list[float | None]]]:
    """(values, own watermarks) of each row of an input. Rows in which a marker column is true are
    promises and no rows.

    >>> from naive_tables import stream
    >>> s = stream("s", "t bigint", slack=5)
    >>> [marks[0] for _, marks in scan(s, [(10,), (30,), (None,), Mark("t", 28), (20,)])]
    [-inf, 5, 25, 28]
    """
    relation = node.relation
    schema = relation.schema
    progress = relation.stream.progress if relation.stream else ()
    columns = {schema.find(p.column): Column(p, p.max_advance) for p in progress}
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
        yield (
            tuple(item[i] for i in node.columns),
            [columns[i].mark if i in columns else None for i in node.columns],
        )
        for at, one in columns.items():
            if at is not None and item[at] is not None:
                one.row(item[at])
