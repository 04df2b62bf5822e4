"""The inputs of a plan that tasks share, and the tasks that need no shuffle."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cql.catalog.spark.tables.files import Files
from cql.errors import NotSupportedError
from cql.planner.nodes.physical import PhysicalPlan, SourceExec, sources
from cql.planner.nodes.statements import Name
from cql.planner.placement.break_even import TASK_ROWS
from cql.planner.placement.broadcast import tables
from cql.planner.placement.scale_out import ByRows, ByTime
from cql.spark.job.job import Job
from cql.spark.run import parts
from cql.spark.run.parts import Input, Reading, by_rows, by_time


class TaskPlan:
    """A plan, and its sources by their names in the text of ``job``."""

    def __init__(self, plan: PhysicalPlan, job: Job) -> None:
        self.plan = plan
        self.sources = sources(plan.root)
        self.broadcast = tables(plan.root)
        self._job = job

    def named(self, source: SourceExec) -> Name:
        """The name of the source in the text."""
        wanted = source.relation.name
        return next(n for n, r in self._job.relations.items() if r is not None and r.name == wanted)

    def first_uses(self) -> list[SourceExec]:
        """The sources, of those with the same name the first one, or the first one that reads the
        time. Raises NotSupportedError for a name that is read with two watermarks."""
        found: dict[Name, SourceExec] = {}
        for source in self.sources:
            name = self.named(source)
            first = found.setdefault(name, source)
            if source.progress and not first.progress:
                found[name] = source
            if first.relation.stream != source.relation.stream:
                raise NotSupportedError(
                    f"runtime = 'spark': a query that reads {source.name} with two watermarks is"
                    " not supported",
                    position=source.pos,
                    hint="SET runtime = 'auto'",
                )
        return list(found.values())

    def input_of(
        self,
        source: SourceExec,
        files: Files,
        on_notice: Callable[[str], None],
        known: Input | None = None,
    ) -> Input:
        """The row groups of the Parquet files of a source. ``on_notice`` receives that times had to
        be read beforehand; ``known`` as in ``parts.input_of``."""
        made = parts.input_of(self.named(source), source, files, known)
        if made.scanned > 1:  # the first row group has none before it
            on_notice(
                f"the footers of {source.name} do not tell the watermarks behind"
                f" {made.scanned:,} of its {len(made.groups):,} row groups: their times are read"
                " beforehand"
            )
        return replace(made, broadcast=source in self.broadcast)

    def reach(self, placed: ByTime) -> dict[Name, tuple[int, int]]:
        """How far each input is read around a range, for all its uses."""
        made: dict[Name, tuple[int, int]] = {}
        for source, (before, behind) in zip(self.sources, placed.reach, strict=True):
            known = made.get(self.named(source), (0, 0))
            made[self.named(source)] = max(known[0], before), max(known[1], behind)
        return made

    def columns(self, name: Name) -> list[str]:
        """The columns of an input that the query reads, over all its uses."""
        uses = [source for source in self.sources if self.named(source) == name]
        return list(dict.fromkeys(u.relation.schema[c].name for u in uses for c in u.columns))

    def readings(self, columns: tuple[tuple[int, ...], ...]) -> dict[Name, Reading]:
        """How each shuffled input is read, over all its uses; ``columns`` of the key as in
        ``ByKey``."""
        made: dict[Name, Reading] = {}
        for source, key in zip(self.sources, columns, strict=True):
            if not key:
                continue
            name, fields = self.named(source), source.relation.schema
            keys = tuple(fields[c].name for c in key)
            time = next((p.column for _, p in source.progress), None)
            known = made.get(name, Reading((), None, (), 0))
            read = dict.fromkeys((*self.columns(name), *keys))
            made[name] = Reading(tuple(read), known.time or time, keys, known.uses + 1)
        return made

    def tasks(
        self, inputs: Sequence[Input], placed: ByRows | ByTime, count: int
    ) -> list[Mapping[str, Any]]:
        """The descriptions of ``count`` tasks (0: by the number of rows)."""
        count = count or task_count(shared_rows(inputs))
        if isinstance(placed, ByTime):
            return list(by_time(inputs, self.reach(placed), placed, count))
        return list(by_rows(inputs, count))


def task_count(rows: int) -> int:
    """The number of tasks for the ``rows`` that tasks share."""
    return max(1, -(-rows // TASK_ROWS))


def shared_rows(inputs: Sequence[Input]) -> int:
    """The rows of the tables that tasks share."""
    return sum(one.rows for one in inputs if not one.broadcast)
