"""The progressing columns of an input: their words in the cutter (``kernels.ingest.cutter``), and
the disorder observed on them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cql.base.model import Field
from cql.executor.kernels.ingest import cutter
from cql.executor.kernels.morsel_layout import INFINITY, NEVER
from cql.executor.morsel.morsel import Words
from cql.planner.nodes.catalog import Progress
from cql.planner.nodes.physical import SourceExec
from cql.planner.nodes.progress import max_advance, max_skew


@dataclass(frozen=True, slots=True)
class Attribute:
    """Watermark state of one column. ``words`` is its part of the cutter, which reads the other
    arrays by address: ``behind`` counts rows by their distance to the highest time before them,
    ``boundaries`` are the window boundaries (step, offset) that consumers await."""

    column: int
    field: Field
    progress: Progress
    words: Words
    behind: Words
    boundaries: Words

    @classmethod
    def of(cls, node: SourceExec, column: int, progress: Progress, words: Words) -> Attribute:
        awaited = node.awaited_on(column)
        pairs = np.array([*(awaited or ()), (0, 0)], np.int64).ravel()  # at least one pair
        made = cls(
            column, node.schema[column], progress, words, np.zeros(cutter.BUCKETS, np.int64), pairs
        )
        most = max_advance(node.relation, progress)
        slack, by_rows = progress.slack, progress.by_rows
        words[[cutter.INDEX, cutter.OWN_SLACK, cutter.OWN_BY_ROWS]] = column, slack, by_rows
        if node.by is not None:
            # The watermark of all values of PUNCTUATE BY.
            behind = max_skew(node.relation, progress)
            slack, by_rows = slack + (behind or 0), by_rows and behind is not None
        words[[cutter.SLACK, cutter.BY_ROWS]] = slack, by_rows
        words[[cutter.HIGHEST, cutter.FLOOR, cutter.PUNCTUATED, cutter.FURTHEST]] = NEVER
        words[cutter.SINCE] = -1
        words[cutter.ADVANCE] = INFINITY if most is None else most
        words[cutter.EVERY] = progress.every or 0
        words[cutter.BOUNDARIES] = -1 if awaited is None else len(awaited)
        words[cutter.BEHIND] = made.behind.ctypes.data
        words[cutter.BOUNDARIES_AT] = made.boundaries.ctypes.data
        return made

    @property
    def name(self) -> str:
        return self.field.name

    @property
    def highest(self) -> int:
        """The highest event time so far; NEVER before the first row. The first row counts even
        before the second row confirms it."""
        if self.words[cutter.HIGHEST] == NEVER and self.words[cutter.PENDING] > 0:
            return int(self.words[cutter.PENDING_AT])
        return int(self.words[cutter.HIGHEST])

    @property
    def last(self) -> int:
        """The final watermark of an ended input: unconfirmed rows count, too."""
        return int(max(self.words[[cutter.HIGHEST, cutter.FLOOR, cutter.FURTHEST]]))

    def watermark(self) -> int:
        highest, slack = int(self.words[cutter.HIGHEST]), int(self.words[cutter.SLACK])
        floor = int(self.words[cutter.FLOOR])
        if not self.words[cutter.BY_ROWS] or highest <= NEVER + slack:
            return floor
        return max(floor, highest - slack)

    def punctuate(self, value: int) -> None:
        """Raises the watermark to ``value`` for a timer: no later row lies below it."""
        self.words[cutter.FLOOR] = max(int(self.words[cutter.FLOOR]), value)

    @property
    def late_rows(self) -> int:
        return int(self.words[cutter.LATE_MARKED])

    @property
    def max_lateness(self) -> int:
        """The largest distance of a row below its row watermark."""
        return int(self.words[cutter.MAX_LATENESS])

    @property
    def far_rows(self) -> int:
        """Rows that were further ahead than MAX ADVANCE on arrival."""
        return int(self.words[cutter.FAR])

    @property
    def unbelieved(self) -> int:
        """The ``far_rows`` that no further rows have confirmed."""
        return int(self.words[cutter.FAR] - self.words[cutter.CONFIRMED])

    @property
    def kept(self) -> tuple[int, int]:
        """The number of rows that MAX ADVANCE kept from being late, and the largest unconfirmed
        advance meanwhile."""
        return int(self.words[cutter.KEPT]), int(self.words[cutter.KEPT_BY])

    @property
    def jumped(self) -> tuple[int, int]:
        """The number of rows that are late only because of the largest confirmed advance of event
        time, and the length of that advance."""
        return int(self.words[cutter.JUMPED]), int(self.words[cutter.JUMP])


def slack_for(behind: Words, rows: int, share: float) -> int:
    """The slack with which at most ``share`` of the ``rows`` so far would have been late.
    ``behind`` counts the rows by distance (``kernels.ingest.cutter.bucket_of``), so the slack is
    rounded up by at most an eighth; 0 is exact."""
    allowed = int(rows * share)
    late = 0
    for bucket in range(cutter.BUCKETS - 1, 0, -1):
        late += int(behind[bucket])
        if late > allowed:
            return highest_in(bucket)
    return 0


def highest_in(bucket: int) -> int:
    """The largest distance in a bucket of ``kernels.ingest.cutter.bucket_of``."""
    if bucket < 8:
        return bucket
    power, part = bucket // 8 + 2, bucket % 8
    return int((1 << power) + ((part + 1) << (power - 3)) - 1)
