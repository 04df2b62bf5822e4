"""Tasks in two levels: the first ones aggregate the rows of some row groups into parts, the second
ones merge the parts of the windows that end in a range of time (``placement.two_levels``)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cql.base.model import Schema
from cql.base.window import MAX_EVENT_TIME, Window, WindowKind
from cql.catalog.sources import DataSource
from cql.errors import CqlError, RunError
from cql.executor.kernels.ingest import cells as kernel
from cql.executor.protocols import Block, Offset, Reader
from cql.planner.nodes.catalog import Statistics, StreamSpec
from cql.planner.nodes.physical import PhysicalPlan
from cql.planner.nodes.statements import Name
from cql.planner.placement.scale_out import levels_of, restricted
from cql.planner.placement.two_levels import BEFORE, CELL, HIDDEN, TIME, TwoLevels
from cql.spark.job.job import Job, TaskRelation
from cql.spark.task import rows as stored
from cql.spark.task.rows import NUMBER, Part, PartSource, PieceSource, TaskRows, storage_of, timed
from cql.spark.task.sent import (
    ERROR,
    REPORT,
    ROWS,
    Effort,
    Sent,
    counts_of,
    error_to_json,
    figures_of,
    results,
    stream_of,
)
from cql.spark.task.shuffle import COMPRESSION, Received, Shuffled
from cql.spark.task.task import in_worker, job_from, plan_of, run_plan

#: Parts that a first task collects for each second one before it sends them.
_PIECE_PARTS = 65_536


def words_of(window: Window) -> npt.NDArray[np.int64]:
    """The window as the kernels of cells read it."""
    assert window.range is not None
    assert window.slide is not None
    cumulates = window.kind is WindowKind.CUMULATE
    most = min(MAX_EVENT_TIME, (1 << 59) // (window.range // window.slide + 3) * window.slide)
    return np.array([window.range, window.slide, window.offset, cumulates, most], np.int64)


@dataclass(frozen=True, slots=True)
class _CellSource(TaskRows):
    """The rows of ``inner``, whose time column is ``time``, with the columns HIDDEN."""

    inner: DataSource
    time: str
    window: npt.NDArray[np.int64]

    @property
    def schema(self) -> Schema:
        shown = [f for f in self.inner.schema if f.name not in (stored.BEFORE, NUMBER)]
        number = self.inner.schema[len(self.inner.schema) - 1]
        return Schema((*shown, *HIDDEN, number))

    def open(self, columns: Sequence[str], offset: Offset | None = None) -> Reader:
        held = [c for c in columns if c not in (BEFORE, CELL, NUMBER)]
        inner = self.inner.open([*held, self.time, stored.BEFORE, NUMBER], offset)
        return _Cells(inner, list(columns), [*held, self.time], self.window)


@dataclass(slots=True)
class _Cells:
    """Reads the columns ``wanted``; ``inner`` gives those ``held``, of which the last one is the
    time, then the watermarks and the numbers."""

    inner: Reader
    wanted: list[str]
    held: list[str]
    window: npt.NDArray[np.int64]

    def next(self, timeout: float | None = None) -> Block | None:
        block = self.inner.next(timeout)
        if block is None:
            return None
        columns = block.batch.columns
        times, valid = storage_of(columns[-3])
        before = columns[-2].to_numpy()
        made, held = np.empty(len(times), np.int64), np.empty(len(times), np.uint8)
        mask = np.empty(0, np.uint8) if valid is None else valid
        kernel.cells(times, mask, before, self.window, made, held)
        known = dict(zip(self.held, columns, strict=False))
        known |= {BEFORE: columns[-2], NUMBER: columns[-1]}
        known[CELL] = pa.array(made, mask=None if held.all() else held == 0)
        picked = [known[name] for name in self.wanted]
        return replace(block, batch=pa.RecordBatch.from_arrays(picked, names=self.wanted))

    def close(self) -> None:
        self.inner.close()


@in_worker
def aggregate_rows(
    job: str, ends: Sequence[int], tasks: Iterable[str]
) -> Iterator[tuple[int, Shuffled]]:
    """Runs the first tasks of one partition: yields the parts of the rows, each with the range of
    time that it belongs to; ``ends`` are the ends of all ranges but the last. A report or an error
    of ours goes with the first range."""
    for task in tasks:
        described = json.loads(task)
        name: Name = tuple(described["name"])
        try:
            yield from parts_of(job_from(job), name, Part.from_json(described["part"]), ends)
        except CqlError as error:
            yield 0, (ERROR, name, 0, error_to_json(error))


def parts_of(
    job: Job, name: Name, part: Part, ends: Sequence[int]
) -> Iterator[tuple[int, Shuffled]]:
    """The parts of some row groups, and a report; ``ends`` as in ``aggregate_rows``."""
    effort = Effort()
    levels, plan = _levels(job)
    relation = job.relations[name]
    assert relation is not None
    source, window = PartSource(relation, part), words_of(levels.window)
    assert source.time is not None
    with_cells = timed(name, _CellSource(source, source.time, window), None)
    schema = Schema((*relation.schema, *HIDDEN))
    rows = replace(relation, schema=schema, stream=None, data=with_cells)
    run = run_plan(job, replace(plan, root=levels.first(rows)))
    notices: list[str] = []
    run.on_notice = notices.append
    number, late = part.groups[0].group.first, 0
    waiting: list[pa.RecordBatch] = []
    held = 0
    for batch in run.batches():
        kept, pairs = _open_parts(batch, levels, window)
        late += pairs
        waiting.append(kept)
        held += kept.num_rows
        if held >= _PIECE_PARTS * (len(ends) + 1):
            yield from _pieces(waiting, name, number, ends, effort)
            number, waiting, held = number + held, [], 0
    if held:
        yield from _pieces(waiting, name, number, ends, effort)
    progress = run.progress()
    (opened,) = source.counted
    report = {
        "input": [name, [counts_of(opened)]],
        "effort": effort.figures(progress.rows_in),
        "figures": {
            **figures_of(run, notices),
            "left_out": [["aggregate#0", "pairs", late]],
        },
    }
    yield 0, (REPORT, name, 0, json.dumps(report).encode())


#: Columns of a part behind those that the second tasks read: the ends of its windows.
_LEAST, _MOST = "\0least", "\0most"


def _open_parts(
    batch: pa.RecordBatch, levels: TwoLevels, window: npt.NDArray[np.int64]
) -> tuple[pa.RecordBatch, int]:
    """The parts with windows that are open to their rows, as ``levels.schema`` with BEFORE and the
    ends of these windows; and how many late pairs there are of rows and windows."""
    count = len(levels.node.keys)
    if batch.column(count).null_count:
        time = levels.source.progress[0][1].column
        raise RunError(
            f"the event time {time} is NULL or out of range in a row of {levels.source.name}",
            position=levels.source.pos,
            hint="SET tasks_by = 'time' names the row; ON BAD ROW KEEP leaves such rows out",
        )
    batch = _only(batch, batch.column(count).to_numpy() != kernel.NOWHERE)
    made = batch.column(count).to_numpy()
    times, closed, least, most = (np.empty(len(made), np.int64) for _ in range(4))
    kernel.windows_of(made, window, times, closed, least, most)
    late = int((closed * batch.column(count + 1).to_numpy()).sum())
    arrays = batch.columns
    kind = levels.schema[count].type.to_arrow()
    arrays[count] = _time_array(times, kind)
    names = [f.name for f in levels.schema]
    parts = pa.RecordBatch.from_arrays(
        [*arrays, pa.array(least), pa.array(most)], names=[*names, stored.BEFORE, _LEAST, _MOST]
    )
    return _only(parts, least <= most), late


def _only(batch: pa.RecordBatch, chosen: npt.NDArray[np.bool_]) -> pa.RecordBatch:
    """The chosen rows; the batch itself if they are all."""
    return batch if chosen.all() else batch.filter(pa.array(chosen))


def _time_array(times: npt.NDArray[np.int64], kind: pa.DataType) -> pa.Array[Any]:
    if pa.types.is_date32(kind) or kind.bit_width == 32:
        return pa.array(times.astype(np.int32)).cast(kind)
    return pa.array(times).cast(kind)


def _pieces(
    parts: Sequence[pa.RecordBatch], name: Name, number: int, ends: Sequence[int], effort: Effort
) -> Iterator[tuple[int, Shuffled]]:
    """The parts of each range, with numbers from ``number`` on."""
    (rows,) = pa.Table.from_batches(parts).combine_chunks().to_batches()
    bounds = np.asarray(ends, np.int64)
    begin = np.searchsorted(bounds, rows.column(_LEAST).to_numpy(), "left")
    end = np.searchsorted(bounds, rows.column(_MOST).to_numpy(), "left")
    rows = rows.drop_columns([_LEAST, _MOST])
    rows = rows.append_column(NUMBER, pa.array(np.arange(rows.num_rows, dtype=np.int32)))
    for place in range(int(begin.min()), int(end.max()) + 1):
        found = (begin <= place) & (place <= end)
        if found.any():
            piece = _only(rows, found)
            sent = stream_of([piece], COMPRESSION)
            effort.gives(piece.num_rows, len(sent))
            yield place, (ROWS, name, number, sent)


@in_worker
def merge_parts(
    job: str, ends: Sequence[int], timed_run: bool, received: Iterable[tuple[int, Shuffled]]
) -> Iterator[Sent]:
    """Merges the parts of one range of time; ``ends`` as in ``aggregate_rows``, ``timed_run`` as in
    ``worker.run_tasks``. The first range also sends the reports or the errors of the first
    tasks."""
    effort = Effort()
    found = Received.of(received)
    if found.errors:
        yield ERROR, found.errors[0]
        return
    if not (found.pieces or found.first_tasks):
        return
    try:
        made = job_from(job)
        levels, plan = _levels(made)
        root = levels.second(_parts_relation(levels, found.pieces))
        bounds = [None, *ends, None]
        root = restricted(root, *bounds[found.part : found.part + 2])
        run = run_plan(made, replace(plan, root=root))
        run.timed = timed_run
        yield from results(run, effort, found.inputs, found.first_tasks, of_parts=True)
    except CqlError as error:
        yield ERROR, error_to_json(error)


def _levels(job: Job) -> tuple[TwoLevels, PhysicalPlan]:
    plan = plan_of(job)
    levels = levels_of(plan)
    assert levels is not None
    return levels, plan


def _parts_relation(
    levels: TwoLevels, pieces: Mapping[Name, list[tuple[int, bytes]]]
) -> TaskRelation:
    """The relation of the parts that were sent, whose stream has the watermark of TIME."""
    source = levels.source
    ((_, progress),) = source.progress
    relation = TaskRelation(
        source.relation.name,
        "stream",
        levels.schema,
        StreamSpec((replace(progress, column=TIME),)),
        bounded=True,
        statistics=Statistics(),
        unsupported={},
    )
    rows = PieceSource(relation, sorted(sent for held in pieces.values() for sent in held))
    return replace(relation, data=timed(relation.name, rows, TIME))
