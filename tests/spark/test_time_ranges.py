"""Which row groups and rows the tasks of ranges of time take: each (row, window) pair and each late
one is in one task, and no task reads a row group that cannot hold one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from cql.base.model import Field, Schema
from cql.base.types import BIGINT
from cql.catalog.spark.tables.files import DataFile, Files
from cql.catalog.spark.tables.row_groups import Group
from cql.executor.morsel.row_watermarks import WatermarkPass
from cql.planner.nodes.catalog import Progress, Statistics, StreamSpec
from cql.planner.placement.scale_out import ByTime
from cql.spark.job.job import TaskRelation
from cql.spark.run.parts import Input, by_time
from cql.spark.task.time_range import TimeRange

PROGRESS = Progress("t", 20)
RELATION = TaskRelation(
    ("s",), "table", Schema((Field("t", BIGINT),)), StreamSpec((PROGRESS,)), True, Statistics(), {}
)
FILES = Files(
    table="s",
    format="parquet",
    schema=pa.schema([("t", pa.int64())]),
    partition_columns=(),
    files=(DataFile("s", "file:/s", 1, 1),),
    case_sensitive=False,
    direct=True,
)
Times = npt.NDArray[np.int64]


class Rows:
    """A table with very late rows: a quarter lies up to ``behind`` back, so do all rows of every
    fifth row group, and time leaps now and then."""

    def __init__(
        self, seed: int, *, rows: int, group: int, behind: int, leaps: bool = True
    ) -> None:
        rng = np.random.default_rng(seed)
        now = np.cumsum(rng.integers(0, 7, rows)) + 500
        at = np.arange(rows)
        back = np.where(rng.random(rows) < 0.24, rng.integers(0, behind, rows), rng.integers(0, 20))
        if leaps:
            now += 5 * behind * (at // (7 * group + 3))
            late = at // group % 5 == 4
            back = np.where(late, 60 + rng.integers(0, behind, rows), back)
        self.times: Times = now - back
        watermarks = WatermarkPass(RELATION, PROGRESS)
        marks, groups, states, reached = [], [], [], []
        for n, first in enumerate(range(0, rows, group)):
            times = self.times[first : first + group]
            states.append(tuple(watermarks.state))
            reached.append(watermarks.watermark)
            bounds = int(times.min()), int(times.max())
            groups.append(Group(0, n, first, len(times), *bounds, known=True))
            marks.append(watermarks.take(times, None))
        reached.append(watermarks.watermark)
        self.watermarks: Times = np.concatenate(marks)
        self.input = Input(("s",), RELATION, FILES, tuple(groups), tuple(states), tuple(reached))

    def tasks(self, placed: ByTime, count: int) -> Iterator[tuple[TimeRange, Counter[int]]]:
        """The range of each task and, for each row group that it reads, the number of rows that it
        takes. Checks that each row group has one owner."""
        owners: Counter[int] = Counter()
        for task in by_time([self.input], {("s",): placed.reach[0]}, placed, count):
            ((_, part),) = task["parts"]
            of = TimeRange(**part["range"])
            assert (of.low, of.high) == (task["low"], task["high"])
            taken = of.rows(self.times, self.watermarks)
            read: Counter[int] = Counter()
            for (_, number, first, rows, *_), _, owned in part["groups"]:
                read[number] = int(taken[first : first + rows].sum())
                owners[number] += owned
            assert sum(read.values()) == taken.sum()  # no row lies in another row group
            yield of, read
        assert owners == Counter(range(len(self.input.groups)))


def ends_of(t: int, length: int, slide: int) -> range:
    """The ends of the windows that hold ``t``."""
    return range(t // slide * slide + length, t, -slide)


def sliding(length: int, slide: int) -> tuple[ByTime, Callable[[int], range]]:
    reach = (max(length - slide, 0), 0)
    return ByTime(slide, length, (reach,)), lambda t: ends_of(t, length, slide)


def cumulating(length: int, step: int) -> tuple[ByTime, Callable[[int], range]]:
    def ends(t: int) -> range:
        return range(t // step * step + step, t // length * length + length + 1, step)

    return ByTime(length, 0, ((0, 0),)), ends


WINDOWS = {
    "tumbling": sliding(60, 60),
    "sliding": sliding(300, 60),
    "uneven": sliding(100, 40),
    "over gaps": sliding(20, 70),
    "cumulating": cumulating(240, 60),
}


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("count", [1, 2, 5, 16])
def test_each_pair_is_in_one_task(name: str, count: int) -> None:
    placed, ends = WINDOWS[name]
    for seed in range(3):
        rows = Rows(seed, rows=1500, group=50, behind=700)
        pairs = list(zip(rows.times.tolist(), rows.watermarks.tolist(), strict=True))
        whole = Counter((n, end) for n, (t, _) in enumerate(pairs) for end in ends(t))
        found: Counter[tuple[int, int]] = Counter()
        late = 0
        for of, _ in rows.tasks(placed, count):
            for n in np.flatnonzero(of.rows(rows.times, rows.watermarks)).tolist():
                t, watermark = pairs[n]
                # ``Window.since``, of windows that overlap
                counts = not placed.reach[0][0] or of.low is None or watermark >= of.low
                for end in ends(t):
                    here = (of.low is None or end > of.low) and (of.high is None or end <= of.high)
                    if end <= watermark:
                        found[n, end] += counts
                        late += counts
                    else:
                        found[n, end] += here
        assert found == whole
        assert late > 100


@pytest.mark.parametrize("count", [1, 2, 5, 16])
def test_each_row_on_time_meets_its_partners(count: int) -> None:
    placed = ByTime(1, 0, ((30, 10),), alone=True)
    rows = Rows(7, rows=1500, group=50, behind=700)
    on_time = rows.times >= rows.watermarks
    late: Counter[int] = Counter()
    for of, _ in rows.tasks(placed, count):
        taken = of.rows(rows.times, rows.watermarks)
        late.update(np.flatnonzero(taken & ~on_time).tolist())
        low = -(2**60) if of.low is None else of.low - 30
        high = 2**60 if of.high is None else of.high + 10
        near = on_time & (rows.times >= low) & (rows.times < high)
        assert (near == (taken & on_time)).all()
    assert late == Counter(np.flatnonzero(~on_time).tolist())


@pytest.mark.parametrize(("length", "count"), [(500, 8), (3000, 4)])
def test_few_row_groups_are_read_twice(length: int, count: int) -> None:
    """80 row groups of about 1,500 units, a quarter of the rows late by up to as much: two tasks
    read only the row groups around the end of a range, and those whose rows are in windows of
    both (``length - 500`` units before the end)."""
    rows = Rows(1, rows=40_000, group=500, behind=1500, leaps=False)
    placed, _ = sliding(length, 500)
    read = [n for _, groups in rows.tasks(placed, count) for n in groups.values()]
    assert all(read)  # each has rows that the task takes
    assert len(read) <= 1.2 * 80
