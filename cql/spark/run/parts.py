"""Which row groups each task reads."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from cql.catalog.spark.tables.files import Files
from cql.catalog.spark.tables.read import read_groups
from cql.catalog.spark.tables.row_groups import Group, files_to_json, groups_of
from cql.executor.kernels.morsel_layout import NEVER
from cql.executor.morsel.row_watermarks import WatermarkPass
from cql.planner.nodes.catalog import Relation
from cql.planner.nodes.declaration_json import spec_to_json
from cql.planner.nodes.physical import SourceExec
from cql.planner.nodes.statements import Name
from cql.planner.placement.scale_out import ByTime, InLevels
from cql.spark.task.rows import storage_of
from cql.spark.task.time_range import ALL_ROWS, TimeRange

#: Points per row group at which its rows are thought to lie.
_POINTS = 8


@dataclass(frozen=True, slots=True)
class Input:
    """A table that a query reads under ``name``: its row groups, with the ``states`` of the
    watermark and the ``watermarks`` (NEVER: there is none yet) before each of them and behind all;
    there are none if the query reads no time. ``scanned`` is the number of row groups whose times
    had to be read, because their statistics do not tell the state behind them. ``broadcast``: each
    task reads the whole table."""

    name: Name
    relation: Relation
    files: Files
    groups: tuple[Group, ...]
    states: tuple[tuple[int, ...], ...]
    watermarks: tuple[int, ...] = ()
    scanned: int = 0
    broadcast: bool = False

    @property
    def relation_name(self) -> str:
        return ".".join(self.relation.name)

    @property
    def rows(self) -> int:
        return sum(group.rows for group in self.groups)

    def part(
        self,
        picked: Sequence[tuple[int, bool]],
        of: TimeRange = ALL_ROWS,
    ) -> Mapping[str, Any]:
        """The description of a part (``task.rows.Part``): groups by their index in ``groups``, each
        with whether the task owns it."""
        used = sorted({self.groups[k].file for k, _ in picked})
        place = {file: n for n, file in enumerate(used)}
        held = replace(self.files, files=tuple(self.files.files[file] for file in used))
        groups = []
        for k, owned in picked:
            group = replace(self.groups[k], file=place[self.groups[k].file])
            groups.append([astuple(group), self.states[k], owned])
        stream = self.relation.stream
        return {
            "files": files_to_json(held),
            "stream": None if stream is None else spec_to_json(stream),
            "groups": groups,
            "range": asdict(of),
        }

    def only(self, picked: Sequence[int]) -> Input:
        """The input with some of its row groups alone."""
        return replace(
            self,
            groups=tuple(self.groups[k] for k in picked),
            states=(*(self.states[k] for k in picked), *self.states[-1:]),
            watermarks=(*(self.watermarks[k] for k in picked), *self.watermarks[-1:]),
        )

    def of_files(self, count: int) -> Input:
        """The input as it was with its first ``count`` files."""
        held = sum(group.file < count for group in self.groups)
        return replace(
            self,
            files=replace(self.files, files=self.files.files[:count]),
            groups=self.groups[:held],
            states=self.states[: held + 1],
            watermarks=self.watermarks[: held + 1],
            scanned=0,
        )

    def whole(self) -> Mapping[str, Any]:
        """The description of the part of a broadcast table."""
        return self.part([(k, False) for k in range(len(self.groups))])


def input_of(name: Name, source: SourceExec, files: Files, known: Input | None = None) -> Input:
    """Reads the footers of the files and, where these do not suffice, the time column, if the query
    reads it. ``known`` is the input of the source with some first of these files, which are not
    read again."""
    relation = source.relation
    if known is None or known.files.files != files.files[: len(known.files.files)]:
        known = Input(name, relation, replace(files, files=()), (), ())
    groups, states, reached = list(known.groups), list(known.states), list(known.watermarks)
    read = len(known.files.files), known.rows
    if not source.progress:
        groups += groups_of(files, None, *read)
        return Input(name, relation, files, tuple(groups), ((),) * (len(groups) + 1))
    ((_, progress),) = source.progress
    watermarks, scanned = WatermarkPass(relation, progress), 0
    if states:
        watermarks.state = list(states.pop())
        reached.pop()
    for group in groups_of(files, progress.column, *read):
        states.append(tuple(watermarks.state))
        reached.append(watermarks.watermark)
        if group.known and (group.high is None or watermarks.skip(group.high)):
            groups.append(group)
            continue
        groups.append(_scanned(files, group, progress.column, watermarks))
        scanned += 1
    states.append(tuple(watermarks.state))
    reached.append(watermarks.watermark)
    return Input(name, relation, files, tuple(groups), tuple(states), tuple(reached), scanned)


def _scanned(files: Files, group: Group, time: str, watermarks: WatermarkPass) -> Group:
    """The group with the bounds of its times, after a pass over them."""
    low, high = None, None
    for _, batch in read_groups(files, [(group.file, [group.index])], [time]):
        times, valid = storage_of(batch.column(0))
        watermarks.take(times, valid)
        held = times if valid is None else times[valid != 0]
        if len(held):
            least, most = int(held.min()), int(held.max())
            low = least if low is None else min(low, least)
            high = most if high is None else max(high, most)
    return replace(group, low=low, high=high, known=True)


def by_rows(inputs: Sequence[Input], tasks: int) -> Iterator[Mapping[str, Any]]:
    """Tasks of about the same number of rows, each of consecutive row groups of one input."""
    whole = [[one.name, one.whole()] for one in inputs if one.broadcast]
    shared = [one for one in inputs if not one.broadcast]
    for one, picked in _shares(shared, tasks):
        parts = [[other.name, other.part(picked if other is one else ())] for other in shared]
        yield {"low": None, "high": None, "parts": parts + whole}


@dataclass(frozen=True, slots=True)
class Reading:
    """How a query reads an input by key: the columns, the time column (None: without watermarks),
    the columns of the key, and the number of times that the query mentions the input."""

    columns: tuple[str, ...]
    time: str | None
    keys: tuple[str, ...]
    uses: int


def by_key(
    inputs: Sequence[Input], readings: Mapping[Name, Reading], tasks: int
) -> Iterator[Mapping[str, Any]]:
    """The first tasks (``task.shuffle.split_rows``), of about the same number of rows."""
    for one, picked in _shares([one for one in inputs if not one.broadcast], tasks):
        reading = asdict(readings[one.name])
        yield {"name": one.name, "part": one.part(picked), "reading": reading}


def _shares(inputs: Sequence[Input], tasks: int) -> Iterator[tuple[Input, list[tuple[int, bool]]]]:
    """For each task an input and its row groups, which the task owns."""
    rows = max(sum(one.rows for one in inputs), 1)
    for one in inputs:
        count = max(1, round(tasks * one.rows / rows))
        ends = np.cumsum([group.rows for group in one.groups])
        share = np.minimum((ends - 1) * count // max(one.rows, 1), count - 1)
        begins = np.searchsorted(share, np.arange(count + 1)).tolist()
        for begin, end in pairwise(begins):
            if end > begin:
                yield one, [(k, True) for k in range(begin, end)]


def by_time(
    inputs: Sequence[Input], reach: Mapping[Name, tuple[int, int]], placed: ByTime, tasks: int
) -> Iterator[Mapping[str, Any]]:
    """Tasks of about the same number of rows, each with a range of time; ``reach`` as in
    ``ByTime``, by the name of the input."""
    shared = [one for one in inputs if not one.broadcast]
    counted = {one.name: set(range(len(one.groups))) for one in shared}
    bounds = [None, *cuts(shared, placed, tasks), None]
    return by_ranges(inputs, reach, placed, bounds, counted)


def by_ranges(
    inputs: Sequence[Input],
    reach: Mapping[Name, tuple[int, int]],
    placed: ByTime,
    bounds: Sequence[int | None],
    counted: Mapping[Name, Collection[int]],
    owned: Mapping[Name, Collection[int]] | None = None,
) -> Iterator[Mapping[str, Any]]:
    """The tasks of the ranges between two ``bounds``. The late rows of the row groups ``counted``
    count. The rows without a time of those ``owned`` (None: of the same) are read: each of these
    belongs to the first task that reads it, or to the last one. The first task has the groups
    without any time."""
    whole = [[one.name, one.whole()] for one in inputs if one.broadcast]
    shared = [one for one in inputs if not one.broadcast]
    free = {one.name: set((owned or counted)[one.name]) for one in shared}
    found = {one.name: _Groups(one) for one in shared}
    for n, (low, high) in enumerate(pairwise(bounds)):
        parts = []
        for one in shared:
            of = TimeRange(low, high, *reach[one.name], placed.alone)
            read = set(found[one.name].read_by(of, counted[one.name]))
            if n == 0:
                read |= {k for k in free[one.name] if one.groups[k].low is None}
            if n == len(bounds) - 2:
                read |= free[one.name]
            parts.append([one.name, one.part([(k, k in free[one.name]) for k in sorted(read)], of)])
            free[one.name] -= read
        yield {"low": low, "high": high, "parts": parts + whole}


def readings_of_a_row(inputs: Sequence[Input], tasks: Sequence[Mapping[str, Any]]) -> float:
    """How often tasks read a row of the shared inputs, on average."""
    shared = {one.name: one.rows for one in inputs if not one.broadcast}
    read = (
        Group(*group).rows
        for task in tasks
        for name, part in task["parts"]
        if name in shared
        for group, _, _ in part["groups"]
    )
    return sum(read) / max(sum(shared.values()), 1)


class _Groups:
    """The row groups of an input, found by their times."""

    def __init__(self, one: Input) -> None:
        self._one = one
        highs = (NEVER if group.high is None else group.high for group in one.groups)
        self._reached = list(accumulate(highs, max))  # the highest times up to each row group

    def read_by(self, of: TimeRange, counted: Collection[int]) -> list[int]:
        """The row groups that the task of a range reads: those with rows for it, and of ``counted``
        also those whose late rows count there."""
        groups, marks = self._one.groups, self._one.watermarks
        begin, end = 0, len(groups)
        if of.low is not None:
            begin = min(
                bisect_left(self._reached, of.low - of.before), bisect_left(marks, of.low, 1) - 1
            )
        if of.high is not None:
            end = bisect_left(marks, of.high + of.behind, 0, end)
        return [
            k
            for k in range(begin, end)
            if of.enters(groups[k], marks[k])
            or (k in counted and of.counts(groups[k], marks[k], marks[k + 1]))
        ]


def cuts(inputs: Sequence[Input], placed: ByTime | InLevels, tasks: int) -> list[int]:
    """The ends of all ranges but the last, such that about the same number of rows lies between
    two. Rows are thought to be spread evenly between the bounds of their group. Those below the
    watermark before the group count at that watermark, since few tasks take them before it."""
    timed = [
        (group.low, group.high, watermark, group.rows / _POINTS)
        for one in inputs
        for group, watermark in zip(one.groups, one.watermarks[:-1], strict=True)
        if group.low is not None and group.high is not None
    ]
    if not timed or tasks < 2:
        return []
    lows, highs, watermarks, weights = np.array(timed, np.float64).T
    times = np.linspace(lows, highs, _POINTS).clip(watermarks).ravel()
    order = np.argsort(times, kind="stable")
    reached = np.cumsum(np.tile(weights, _POINTS)[order])
    wanted = reached[-1] * np.arange(1, tasks) / tasks
    places = times[order][np.searchsorted(reached, wanted)]
    step, offset = placed.step, placed.offset
    ends = sorted({-(-(int(t) - offset) // step) * step + offset for t in places})
    least, most = times.min(), times.max()
    return [end for end in ends if least < end <= most]
