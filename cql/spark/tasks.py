"""The tasks that share a plan: which row groups of its inputs each of them reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from cql.catalog.spark.tables.files import Files
from cql.errors import NotSupportedError
from cql.planner.nodes.physical import PhysicalPlan, SourceExec, sources
from cql.planner.nodes.statements import Name
from cql.planner.placement.scale_out import ByTime, placement
from cql.spark.job import Job
from cql.spark.parts import TASK_ROWS, Input, by_rows, by_time, input_of

#: The Parquet files of a source.
FilesOf: TypeAlias = Callable[[SourceExec], Files]


class TaskPlan:
    """A plan that tasks can share, and the relations of its job. ``inputs`` are there once the
    tasks are described."""

    def __init__(self, plan: PhysicalPlan, job: Job) -> None:
        self.plan = plan
        self.sources = sources(plan.root)
        self.inputs: list[Input] = []
        self._job = job

    def describe(
        self, files_of: FilesOf, tasks: int, on_notice: Callable[[str], None]
    ) -> Iterator[Mapping[str, Any]]:
        """The descriptions of ``tasks`` tasks (0: by the number of rows)."""
        placed = placement(self.plan)
        self.inputs = [self._input(source, files_of, on_notice) for source in self.first_uses()]
        rows = sum(one.rows for one in self.inputs)
        tasks = tasks or max(1, -(-rows // TASK_ROWS))
        if isinstance(placed, ByTime):
            return by_time(self.inputs, self._reach(placed), placed, tasks)
        return by_rows(self.inputs, tasks)

    def named(self, source: SourceExec) -> Name:
        """The name of the source in the text."""
        wanted = source.relation.name
        return next(n for n, r in self._job.relations.items() if r is not None and r.name == wanted)

    def first_uses(self) -> list[SourceExec]:
        """The sources, of those with the same name the first one. Raises NotSupportedError for a
        name that is read with two watermarks."""
        found: dict[Name, SourceExec] = {}
        for source in self.sources:
            first = found.setdefault(self.named(source), source)
            if first.relation.stream != source.relation.stream:
                raise NotSupportedError(
                    f"runtime = 'spark': a query that reads {source.name} with two watermarks is"
                    " not supported",
                    position=source.pos,
                    hint="SET runtime = 'auto'",
                )
        return list(found.values())

    def _reach(self, placed: ByTime) -> dict[Name, tuple[int, int]]:
        """How far each input is read around a range, for all its uses."""
        made: dict[Name, tuple[int, int]] = {}
        for source, (before, behind) in zip(self.sources, placed.reach, strict=True):
            known = made.get(self.named(source), (0, 0))
            made[self.named(source)] = max(known[0], before), max(known[1], behind)
        return made

    def _input(
        self, source: SourceExec, files_of: FilesOf, on_notice: Callable[[str], None]
    ) -> Input:
        made = input_of(self.named(source), source, files_of(source))
        if made.scanned > 1:  # the first row group has none before it
            on_notice(
                f"the footers of {source.name} do not tell the watermarks behind"
                f" {made.scanned:,} of its {len(made.groups):,} row groups: their times are read"
                " beforehand"
            )
        return made
