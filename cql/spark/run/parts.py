"""Which row groups each task reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from cql.catalog.spark.tables.files import Files
from cql.catalog.spark.tables.read import read_groups
from cql.catalog.spark.tables.row_groups import Group, files_to_json, groups_of
from cql.executor.morsel.row_watermarks import WatermarkPass
from cql.planner.nodes.catalog import Relation
from cql.planner.nodes.declaration_json import spec_to_json
from cql.planner.nodes.physical import SourceExec
from cql.planner.nodes.statements import Name
from cql.planner.placement.scale_out import ByTime
from cql.spark.task.rows import storage_of

#: Rows of a task: it pays a fixed cost of some ten milliseconds for them.
TASK_ROWS = 2_000_000
#: Points per row group at which its rows are thought to lie.
_POINTS = 8


@dataclass(frozen=True, slots=True)
class Input:
    """A table that a query reads under ``name``: its row groups, and the watermark state before
    each and behind all (``end``). ``scanned`` is the number of row groups whose times had to be
    read, because their statistics do not tell the state behind them. ``broadcast``: each task reads
    the whole table."""

    name: Name
    relation: Relation
    files: Files
    groups: tuple[Group, ...]
    states: tuple[tuple[int, ...], ...]
    scanned: int = 0
    end: tuple[int, ...] = ()
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
        low: int | None = None,
        high: int | None = None,
        alone: tuple[int | None, int | None] | None = None,
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
            "low": low,
            "high": high,
            "alone": alone,
        }

    def of_files(self, count: int) -> Input:
        """The input as it was with its first ``count`` files."""
        held = tuple(group for group in self.groups if group.file < count)
        end = self.states[len(held)] if len(held) < len(self.groups) else self.end
        files = replace(self.files, files=self.files.files[:count])
        return replace(
            self, files=files, groups=held, states=self.states[: len(held)], scanned=0, end=end
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
    groups, states = list(known.groups), list(known.states)
    read = len(known.files.files), known.rows
    if not source.progress:
        groups += groups_of(files, None, *read)
        return Input(name, relation, files, tuple(groups), ((),) * len(groups))
    ((_, progress),) = source.progress
    watermarks, scanned = WatermarkPass(relation, progress), 0
    if known.end:
        watermarks.state = list(known.end)
    for group in groups_of(files, progress.column, *read):
        states.append(tuple(watermarks.state))
        if group.known and (group.high is None or watermarks.skip(group.high)):
            groups.append(group)
            continue
        groups.append(_scanned(files, group, progress.column, watermarks))
        scanned += 1
    end = tuple(watermarks.state)
    return Input(name, relation, files, tuple(groups), tuple(states), scanned, end)


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
        for n in range(count):
            picked = [(int(k), True) for k in np.flatnonzero(share == n)]
            if picked:
                yield one, picked


def by_time(
    inputs: Sequence[Input], reach: Mapping[Name, tuple[int, int]], placed: ByTime, tasks: int
) -> Iterator[Mapping[str, Any]]:
    """Tasks of about the same number of rows, each with a range of time; ``reach`` as in
    ``ByTime``, by the name of the input. A row group belongs to the first task in whose range a row
    of it lies."""
    whole = [[one.name, one.whole()] for one in inputs if one.broadcast]
    shared = [one for one in inputs if not one.broadcast]
    bounds: list[int | None] = [None, *cuts(shared, placed, tasks), None]
    owned: list[set[int]] = [set() for _ in shared]
    for low, high in pairwise(bounds):
        parts = []
        for one, taken in zip(shared, owned, strict=True):
            before, behind = reach[one.name]
            least = None if low is None else low - before
            most = None if high is None else high + behind
            picked = []
            for k, group in enumerate(one.groups):
                owns = k not in taken and _reads(group, low, high)
                if owns:
                    taken.add(k)
                if owns or _reads(group, least, most):
                    picked.append((k, owns))
            alone = (low, high) if placed.alone else None
            parts.append([one.name, one.part(picked, least, most, alone)])
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


def _reads(group: Group, low: int | None, high: int | None) -> bool:
    """Whether a row of the group may lie at or above ``low`` and below ``high``; the first task
    also has the groups without any time."""
    if group.low is None or group.high is None:
        return low is None
    return (low is None or group.high >= low) and (high is None or group.low < high)


def cuts(inputs: Sequence[Input], placed: ByTime, tasks: int) -> list[int]:
    """The ends of all ranges but the last, such that about the same number of rows lies between
    two. Rows are thought to be spread evenly between the bounds of their group."""
    times: list[float] = []
    weights: list[float] = []
    for one in inputs:
        for group in one.groups:
            if group.low is not None and group.high is not None:
                times += np.linspace(group.low, group.high, _POINTS).tolist()
                weights += [group.rows / _POINTS] * _POINTS
    if not times or tasks < 2:
        return []
    order = np.argsort(times, kind="stable")
    reached = np.cumsum(np.asarray(weights)[order])
    wanted = reached[-1] * np.arange(1, tasks) / tasks
    places = np.asarray(times)[order][np.searchsorted(reached, wanted)]
    step, offset = placed.step, placed.offset
    ends = sorted({-(-(int(t) - offset) // step) * step + offset for t in places})
    least, most = min(times), max(times)
    return [end for end in ends if least < end <= most]
