"""Queries over tables that gain files: tasks over the row groups that new rows can change, and the
bound of time before which all rows are final."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from cql.catalog.signals.sample_blocks import SampleRelation
from cql.catalog.spark.tables.files import Files
from cql.executor.kernels.morsel_layout import NEVER
from cql.planner.nodes.physical import OnTimeExec, PhysicalPlan, SourceExec, sources, walk
from cql.planner.nodes.statements import Name
from cql.planner.placement.break_even import TASK_ROWS
from cql.planner.placement.broadcast import tables
from cql.planner.placement.scale_out import ByRows, ByTime, Placement, Whole, by_watermark
from cql.query.query import PreparedQuery
from cql.spark.run.parts import Input, by_ranges, cuts
from cql.spark.run.task_plan import TaskPlan

Task: TypeAlias = Mapping[str, Any]
#: Of each relation, the indices of the files that are new.
New: TypeAlias = Mapping[Name, frozenset[int]]


@dataclass(frozen=True, slots=True)
class GrowingPlan:
    """The plan of a query over tables that gain files. ``placed`` is by rows, by time or whole;
    ``tasks`` is the number of tasks that share new rows (0: by the number of rows)."""

    prepared: PreparedQuery
    placed: Placement
    tasks: int

    @property
    def plan(self) -> PhysicalPlan:
        return self.prepared.plan

    @property
    def whole(self) -> Whole | None:
        """The reason why new files may change any row; None for a query that only adds rows."""
        if isinstance(self.placed, Whole):
            return self.placed
        for source in tables(self.plan.root):
            return Whole(f"rows are looked up in {source.name}", source.pos)
        for source in sources(self.plan.root):
            if isinstance(source.relation, SampleRelation):
                return Whole(f"rows of {source.name} are blocks of samples", source.pos)
        return _mixed_uses(sources(self.plan.root))

    @property
    def in_order(self) -> bool:
        """Whether a row depends on the rows before it: new files must be read behind all others."""
        late = any(isinstance(node, OnTimeExec) for node in walk(self.plan.root))
        return isinstance(self.placed, ByTime) or late


def _mixed_uses(found: Sequence[SourceExec]) -> Whole | None:
    first: dict[Name, SourceExec] = {}
    for source in found:
        known = first.setdefault(source.relation.name, source)
        if known.relation.stream != source.relation.stream:
            return Whole(f"the query reads {source.name} with two watermarks", source.pos)
    return None


@dataclass(frozen=True, slots=True)
class Tasks:
    """``final`` give rows that stay, ``opened`` those that the next refresh replaces. ``closed`` is
    the new bound: windows that end at or before it are final, as are pairs of a join with a time
    before it. ``read`` of ``groups`` row groups are read."""

    final: Sequence[Task]
    opened: Sequence[Task]
    closed: int | None
    read: int
    groups: int


def tasks_of(made: GrowingPlan, files: Mapping[Name, Files], new: New, closed: int | None) -> Tasks:
    """The tasks for the rows of the files ``new``. ``closed`` is the bound of the last refresh;
    None if all files are new."""
    shared = TaskPlan(made.plan, made.prepared.job())
    inputs = _inputs(shared, files, {})
    owned = {
        one.name: {k for k, g in enumerate(one.groups) if g.file in new[one.name]}
        for one in inputs.values()
    }
    bound, stay = None, 0
    if isinstance(made.placed, ByRows):
        every = _by_rows(inputs, owned, made.tasks)
        stay = len(every)
    else:
        assert isinstance(made.placed, ByTime)
        bound = _later(closed, _bound(shared, inputs, made.placed))
        ends = _ends(inputs, made.placed, closed, bound, made.tasks)
        bounds, reach = (closed, *ends, None), shared.reach(made.placed)
        every = list(by_ranges(list(inputs.values()), reach, made.placed, bounds, owned))
        stay = 0 if bound is None else sum(end <= bound for end in ends)
    parts = [part for task in every for part in task["parts"]]
    # The first row number in the table tells row groups apart.
    read = {(name, group[2]) for name, part in parts for group, _, _ in part["groups"]}
    groups = sum(len(one.groups) for one in inputs.values())
    return Tasks(every[:stay], every[stay:], bound, len(read), groups)


class MicroBatches:
    """The tasks of a query that gives each row once, when it is final. What a batch reads depends
    on the files before and behind it alone. Keeps the bounds of the row groups of the files that
    the last batch knew, so that footers are read once."""

    def __init__(self, made: GrowingPlan) -> None:
        self._made, self._placed = made, made.placed
        if isinstance(self._placed, ByTime):
            self._placed = by_watermark(made.plan, self._placed)
        self._shared = TaskPlan(made.plan, made.prepared.job())
        self._known: dict[Name, Input] = {}

    def tasks(self, files: Mapping[Name, Files], old: Mapping[Name, int]) -> list[Task]:
        """The tasks for the rows that are final with ``files``, and were not with the ``old`` first
        ones of each relation. They count each late row once, over all batches."""
        if not self._made.in_order:
            files = {n: replace(f, files=f.files[old[n] :]) for n, f in files.items()}
            inputs = _inputs(self._shared, files, {})
            return _read(_by_rows(inputs, _every(inputs), self._made.tasks))
        self._known = inputs = _inputs(self._shared, files, self._known)
        before = {name: one.of_files(old[name]) for name, one in inputs.items()}
        if isinstance(self._placed, ByTime):
            return _read(self._by_time(self._placed, inputs, before))
        every, past = _every(inputs), _every(before)
        new = {name: every[name] - past[name] for name in inputs}
        return _read(_by_rows(inputs, new, self._made.tasks))

    def _by_time(
        self, placed: ByTime, inputs: Mapping[Name, Input], before: Mapping[Name, Input]
    ) -> list[Task]:
        """The tasks of the ranges that closed. Late rows count in the range that holds their
        watermark."""
        low, bound = (_bound(self._shared, held, placed) for held in (before, inputs))
        if bound is None:
            return []
        # A row group belongs to the batch whose ranges its first row lies in or behind.
        owned = _before(inputs, _every(inputs), bound)
        if low is not None:
            known = _before(inputs, _every(before), low)
            owned = {name: owned[name] - known[name] for name in inputs}
        ends = _ends(inputs, placed, low, bound, self._made.tasks)
        reached = [end for end in ends if end <= bound] or [bound]
        reach, counted = self._shared.reach(placed), _every(inputs)
        every = list(inputs.values())
        return list(by_ranges(every, reach, placed, (low, *reached), counted, owned))


def _every(inputs: Mapping[Name, Input]) -> dict[Name, set[int]]:
    """All row groups, by their index in each input."""
    return {name: set(range(len(one.groups))) for name, one in inputs.items()}


def _read(tasks: Sequence[Task]) -> list[Task]:
    """The tasks that read anything."""
    return [task for task in tasks if any(part["groups"] for _, part in task["parts"])]


def _inputs(
    shared: TaskPlan, files: Mapping[Name, Files], known: Mapping[Name, Input]
) -> dict[Name, Input]:
    return {
        (name := shared.named(source)): shared.input_of(
            source, files[name], _unsaid, known.get(name)
        )
        for source in shared.first_uses()
    }


def _unsaid(notice: str) -> None:
    """EXPLAIN REFRESH shows what is read."""


def _by_rows(
    inputs: Mapping[Name, Input], owned: Mapping[Name, set[int]], count: int
) -> list[Task]:
    """Each task takes some row groups of the inputs."""
    every = [(name, k) for name, groups in owned.items() for k in sorted(groups)]
    rows = [inputs[name].groups[k].rows for name, k in every]
    count = min(count or -(-sum(rows) // TASK_ROWS), len(every))
    made: list[Task] = []
    for share in np.array_split(np.arange(len(every)), max(count, 1)):
        picked: dict[Name, list[tuple[int, bool]]] = {name: [] for name in inputs}
        for at in share:
            name, k = every[at]
            picked[name].append((k, True))
        parts = [[name, one.part(picked[name])] for name, one in inputs.items()]
        made.append({"low": None, "high": None, "parts": parts})
    return made


def _ends(
    inputs: Mapping[Name, Input], placed: ByTime, low: int | None, bound: int | None, count: int
) -> list[int]:
    """The ends of ranges behind ``low``, of which ``bound`` is one, for about ``count`` tasks."""
    behind = _behind(inputs, low)
    count = count or -(-sum(one.rows for one in behind) // TASK_ROWS)
    ends = {*cuts(behind, placed, count), *(() if bound is None else (bound,))}
    return sorted(end for end in ends if low is None or end > low)


def _behind(inputs: Mapping[Name, Input], low: int | None) -> list[Input]:
    """The inputs with those row groups alone that reach ``low``."""
    if low is None:
        return list(inputs.values())
    return [
        one.only([k for k, g in enumerate(one.groups) if g.high is not None and g.high >= low])
        for one in inputs.values()
    ]


def _bound(shared: TaskPlan, inputs: Mapping[Name, Input], placed: ByTime) -> int | None:
    """The last aligned end of a range before which no row can come any more: later rows are late
    for it."""
    reached: list[int] = []
    for source, (_, behind) in zip(shared.sources, placed.reach, strict=True):
        (mark,) = inputs[shared.named(source)].watermarks[-1:] or (NEVER,)
        if mark == NEVER:
            return None
        reached.append(mark - behind)
    return (min(reached) - placed.offset) // placed.step * placed.step + placed.offset


def _later(one: int | None, other: int | None) -> int | None:
    """The later one of two bounds."""
    return max((bound for bound in (one, other) if bound is not None), default=None)


def _before(
    inputs: Mapping[Name, Input], owned: Mapping[Name, set[int]], bound: int
) -> dict[Name, set[int]]:
    """Of the row groups, those with a row before ``bound``, or with rows without a time."""
    return {
        name: {k for k in groups if (low := inputs[name].groups[k].low) is None or low < bound}
        for name, groups in owned.items()
    }
