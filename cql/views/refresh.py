"""A refresh of a materialized view: decides between new rows alone and all rows, computes them, and
publishes them with the new state as one epoch of the view's table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from cql.catalog.spark.tables.files import Files
from cql.catalog.spark.tables.replace import ReplacingWriter
from cql.planner.nodes.statements import Name
from cql.planner.placement.scale_out import RUNTIME, ByRows, ByTime
from cql.query.query import Query
from cql.show.render import count_text
from cql.spark.run.driver import SparkRun
from cql.spark.run.growing import Task, tasks_of
from cql.spark.task.worker import open_task
from cql.views.plan import ViewPlan
from cql.views.state import Changed, State, files_of, growth

if TYPE_CHECKING:
    from cql.catalog.spark.catalog import SparkCatalog
    from cql.views.definition import Definition

#: Reasons for computing all rows.
FIRST = "it has no rows yet"
FULL = "REFRESH … FULL"
ANOTHER = "its query is another one"
#: The reasons that the user knows of.
EXPECTED = (FIRST, FULL, ANOTHER)


@dataclass(frozen=True, slots=True)
class Refreshed:
    """What a refresh did. ``why`` is the reason for computing all rows, None if new rows were
    enough. ``kept`` and ``opened`` are the rows that it wrote, those that stay and those that the
    next refresh replaces. ``read`` of ``groups`` row groups were read, if tasks read them."""

    nothing: bool = False
    why: str | None = None
    kept: int = 0
    opened: int = 0
    read: int | None = None
    groups: int = 0
    overtaken: bool = False

    def text(self, name: str) -> str:
        """The refresh in one sentence."""
        what = f"materialized view {name}"
        if self.overtaken:
            return f"{what} was refreshed by another session meanwhile"
        if self.nothing:
            return f"{what} is up to date: its tables have no new files"
        rows = count_text(self.kept + self.opened)
        if self.opened:
            rows += f", {self.opened:,} of them until more come"
        if self.why is None:
            return f"{what} refreshed: {rows}, from {self.read:,} of {self.groups:,} row groups"
        return f"{what} computed: {rows} ({self.why})"


def how(made: ViewPlan) -> str:
    """What a refresh of the view computes, and why."""
    why = _why_whole(made, _listed(made))
    if why is not None:
        return f"computes all rows: {why}"
    if isinstance(made.placed, ByRows):
        return "computes the rows of new files"
    assert isinstance(made.placed, ByTime)
    what = "pairs" if made.placed.alone else "windows"
    return f"computes the {what} that rows of new files can change"


def refresh(
    name: Name,
    definition: Definition,
    made: ViewPlan,
    spark: SparkCatalog,
    now: float,
    *,
    full: bool = False,
) -> Refreshed:
    """Refreshes the view ``name``. ``now`` is in seconds since 1970."""
    schema = made.rows.to_arrow()
    with ReplacingWriter(spark.session(), name, schema) as writer:
        files = _listed(made)
        held = {n: files_of(found) for n, found in files.items()}
        known = State.from_json(writer.notes)
        state = State(definition.identity, made.hash, now, held)
        new = _new(known, state, made, files, full=full)
        if isinstance(new, Changed):
            done = _all_rows(writer, state, made, files, new.why)
        elif any(new.values()):
            assert known is not None
            done = _new_rows(writer, state, known, made, files, new)
        else:
            assert known is not None
            if definition.freshness is None or _keep(writer, known, now):
                return Refreshed(nothing=True)
            return Refreshed(overtaken=True)
    return done


def _listed(made: ViewPlan) -> dict[Name, Files | None]:
    """The files of each relation; two names of one table have the same listing."""
    tables: dict[Name, Files | None] = {}
    found: dict[Name, Files | None] = {}
    for name, base in made.bases.items():
        if base.table not in tables:
            tables[base.table] = base.files()
        found[name] = tables[base.table]
    return found


def _new(
    known: State | None,
    now: State,
    made: ViewPlan,
    files: Mapping[Name, Files | None],
    *,
    full: bool,
) -> Mapping[Name, frozenset[int]] | Changed:
    """The new files, or why all rows are computed."""
    if known is None:
        return Changed(FIRST)
    if known.identity != now.identity:
        return Changed(ANOTHER)
    if full:
        return Changed(FULL)
    found = growth(known.bases, now.bases, behind=made.in_order)
    if isinstance(found, Changed):
        return found
    why = _why_whole(made, files)
    if why is not None and any(found.values()):
        return Changed(why)
    return found if known.plan == now.plan else Changed("its plan is another one now")


def _why_whole(made: ViewPlan, files: Mapping[Name, Files | None]) -> str | None:
    """The reason why new rows alone are not enough, whatever the new files are."""
    if made.whole is not None:
        return made.whole.why
    for name, found in files.items():
        if found is None or found.format != "parquet":
            return f"{'.'.join(name)} is no table of Parquet files"
    return None


def _all_rows(
    writer: ReplacingWriter,
    state: State,
    made: ViewPlan,
    files: Mapping[Name, Files | None],
    why: str,
) -> Refreshed:
    if _why_whole(made, files) is not None:
        for batch in Query(made.prepared).batches():
            writer.write(batch)
        return _published(writer, writer.files, state.to_json(), Refreshed(why=why))
    known = {n: found for n, found in files.items() if found is not None}
    every = {n: frozenset(range(len(found.files))) for n, found in known.items()}
    return _by_tasks(writer, state, None, made, known, every, why)


def _new_rows(
    writer: ReplacingWriter,
    state: State,
    known: State,
    made: ViewPlan,
    files: Mapping[Name, Files | None],
    new: Mapping[Name, frozenset[int]],
) -> Refreshed:
    found = {n: held for n, held in files.items() if held is not None}
    return _by_tasks(writer, state, known, made, found, new, None)


def _by_tasks(
    writer: ReplacingWriter,
    state: State,
    known: State | None,
    made: ViewPlan,
    files: Mapping[Name, Files],
    new: Mapping[Name, frozenset[int]],
    why: str | None,
) -> Refreshed:
    tasks = tasks_of(made, files, new, None if known is None else known.closed)
    for batch in _rows_of(made, tasks.final):
        writer.write(batch)
    writer.cut()
    for batch in _rows_of(made, tasks.opened):
        writer.write(batch)
    removed = writer.files if known is None else known.open
    notes = {**state.to_json(), "closed": tasks.closed}
    done = Refreshed(why=why, read=tasks.read, groups=tasks.groups)
    return _published(writer, removed, notes, done)


def _rows_of(made: ViewPlan, tasks: Sequence[Task]) -> Iterator[pa.RecordBatch]:
    """Runs tasks where the runtime of the plan wants them, one behind the other."""
    job = made.prepared.job()
    if made.plan.runtime.name == RUNTIME:
        if tasks:
            yield from SparkRun(made.plan, job, given=tasks).batches()
        return
    for task in tasks:
        run, _ = open_task(job, {}, task)
        yield from run.batches()


def _published(
    writer: ReplacingWriter, removed: Iterable[str], notes: Mapping[str, Any], done: Refreshed
) -> Refreshed:
    made = writer.replace(list(removed), notes)
    if made is None:
        return Refreshed(overtaken=True)
    return Refreshed(
        why=done.why,
        kept=made.kept_rows,
        opened=made.open_rows,
        read=done.read,
        groups=done.groups,
    )


def _keep(writer: ReplacingWriter, known: State, now: float) -> bool:
    """Notes the time of a refresh that found nothing; False if another session was faster."""
    return writer.keep({**known.to_json(), "refreshed": now, "open": list(known.open)})
