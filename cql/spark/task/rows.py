"""The rows of one task: some row groups of a Parquet table, with the watermark before each row."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cql.base.model import Field, Schema
from cql.base.types import BIGINT
from cql.catalog.convert import pick
from cql.catalog.memory.row_watermarks import RowWatermarks
from cql.catalog.prefetch import Prefetch
from cql.catalog.sources import DataSource
from cql.catalog.spark.tables.files import Files
from cql.catalog.spark.tables.read import MAX_ROWS, Slice, SliceReader, read_groups
from cql.catalog.spark.tables.row_groups import Group, files_from_json
from cql.errors import CatalogError
from cql.executor.morsel.row_watermarks import WatermarkPass
from cql.executor.protocols import Offset, Reader, Source
from cql.planner.nodes.catalog import Statistics, StreamSpec
from cql.planner.nodes.declaration_json import spec_from_json
from cql.planner.nodes.statements import Name
from cql.spark.job.job import Job, TaskRelation
from cql.spark.task.time_range import TimeRange

#: The columns with the watermark before each row, and with the number of each row in the table.
BEFORE, NUMBER = "\0before", "\0number"
HIDDEN = (Field(BEFORE, BIGINT), Field(NUMBER, BIGINT))


#: Arrow streams with the number of their first row, from which NUMBER counts, in the order of the
#: rows.
Pieces: TypeAlias = Sequence[tuple[int, bytes]]
#: The rows of sources that are no tables of files, by their names in the text.
LookedUp: TypeAlias = Mapping[Name, Pieces]


class Shipped(Protocol):
    """Rows that Spark brings once to each executor (its ``Broadcast``)."""

    @property
    def value(self) -> LookedUp: ...


@dataclass(frozen=True, slots=True)
class TaskGroup:
    """A row group that the task reads. ``state`` is the watermark state before its first row
    (``WatermarkPass.state``). ``owned``: this task counts its late rows, and has its rows without a
    time; other tasks may read the group, too."""

    group: Group
    state: tuple[int, ...]
    owned: bool


@dataclass(frozen=True, slots=True)
class Part:
    """The part of a table that one task reads: the rows of ``groups`` that ``range`` takes.
    ``stream`` has the clauses with which the query reads the table."""

    files: Files
    stream: StreamSpec | None
    groups: tuple[TaskGroup, ...]
    range: TimeRange

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Part:
        groups = [
            TaskGroup(Group(*group), tuple(state), owned) for group, state, owned in data["groups"]
        ]
        stream = None if data["stream"] is None else spec_from_json(data["stream"])
        files = files_from_json(data["files"])
        return Part(files, stream, tuple(groups), TimeRange(**data["range"]))


class TaskRows:
    """What the sources of a task have in common: their rows end, and nothing is known of them."""

    bounded = True

    @property
    def unsupported(self) -> Mapping[str, str]:
        return {}

    def statistics(self) -> Statistics:
        return Statistics()


class PartSource(TaskRows):
    """The rows of a part. ``counted`` has an entry for each time that the source was opened: it
    counts the late rows of the groups that the task owns (None: without a time)."""

    def __init__(self, relation: TaskRelation, part: Part) -> None:
        self._relation = replace(relation, stream=part.stream)
        self._part = part
        self.counted: list[WatermarkPass | None] = []
        self.schema = Schema((*relation.schema, *HIDDEN))

    @property
    def time(self) -> str | None:
        """The name of the time column."""
        spec = self._part.stream
        return spec.progress[0].column if spec is not None and spec.progress else None

    def open(self, columns: Sequence[str], offset: Offset | None = None) -> Reader:
        what = f"table {self._part.files.table}"
        wanted = Schema(pick(self.schema, columns, what))
        slices = Prefetch(self.slices(columns), "cql reading a part")
        return SliceReader(slices, wanted, what)

    def slices(self, columns: Sequence[str]) -> Generator[Slice, None, None]:
        """The rows as they are stored: the ``columns``, of which the last ones may be BEFORE and
        NUMBER."""
        held = [c for c in columns if c not in (BEFORE, NUMBER)]
        rows = _TimedRows(self._relation, self._part, held) if BEFORE in columns else None
        self.counted.append(None if rows is None else rows.counted)
        return self._slices(held, rows)

    def _slices(self, columns: list[str], timed: _TimedRows | None) -> Generator[Slice, None, None]:
        groups = self._part.groups
        picked = [
            (file, [g.group.index for g in found])
            for file, found in groupby(groups, key=lambda g: g.group.file)
        ]
        by_place = {(g.group.file, g.group.index): g for g in groups}
        at, begun = 0, None
        for place, batch in read_groups(self._part.files, picked, columns):
            found = by_place[place]
            if begun != place:
                at, begun = found.group.first, place
                if timed is not None:
                    timed.begin(found)
            rows = batch if timed is None else timed.with_watermarks(batch, found)
            rows = with_column(rows, NUMBER, np.arange(at, at + batch.num_rows))
            yield Slice(at, rows if timed is None else timed.kept(rows, found))
            at += batch.num_rows


class _TimedRows:
    """Takes the rows of a part's groups, one reading after the other."""

    def __init__(self, relation: TaskRelation, part: Part, columns: Sequence[str]) -> None:
        assert part.stream is not None
        (progress,) = part.stream.progress
        self.counted = WatermarkPass(relation, progress)
        self._other = WatermarkPass(relation, progress)
        self._part = part
        self._times = self._before = np.empty(0, np.int64)
        self._valid: npt.NDArray[np.uint8] | None = None
        self._time = [c.lower() for c in columns].index(progress.column.lower())

    def begin(self, found: TaskGroup) -> None:
        for watermarks in (self.counted, self._other):
            watermarks.state = list(found.state)

    def with_watermarks(self, batch: pa.RecordBatch, found: TaskGroup) -> pa.RecordBatch:
        watermarks = self.counted if found.owned else self._other
        self._times, self._valid = storage_of(batch.column(self._time))
        _check(found.group, self._times, self._valid, self._part.files)
        self._before = watermarks.take(self._times, self._valid)
        return with_column(batch, BEFORE, self._before)

    def kept(self, batch: pa.RecordBatch, found: TaskGroup) -> pa.RecordBatch:
        """The rows of the part, of those that ``with_watermarks`` took last."""
        kept = self._part.range.rows(self._times, self._before)
        if self._valid is not None:
            kept[self._valid == 0] = found.owned
        return batch if kept.all() else batch.filter(pa.array(kept))


@dataclass(frozen=True, slots=True)
class PieceSource(TaskRows):
    """Rows that were sent to the task."""

    relation: TaskRelation
    pieces: Pieces

    @property
    def schema(self) -> Schema:
        return Schema((*self.relation.schema, *HIDDEN))

    def open(self, columns: Sequence[str], offset: Offset | None = None) -> Reader:
        what = f"table {'.'.join(self.relation.name)}"
        wanted = Schema(pick(self.schema, columns, what))
        return SliceReader(self._slices(columns), wanted, what)

    def _slices(self, columns: Sequence[str]) -> Iterator[Slice]:
        for first, sent in self.pieces:
            for batch in pa.ipc.open_stream(sent):
                rows = _numbered(batch, first).select(list(columns))
                for start in range(0, rows.num_rows, MAX_ROWS):
                    yield Slice(first + start, rows.slice(start, MAX_ROWS))


def _numbered(rows: pa.RecordBatch, first: int) -> pa.RecordBatch:
    """The rows of a piece with their numbers in the table."""
    numbers = rows.column(NUMBER).to_numpy().astype(np.int64) + first
    at = rows.schema.get_field_index(NUMBER)
    return rows.set_column(at, NUMBER, pa.array(numbers))


def pieces_of(job: Job, pieces: LookedUp) -> dict[Name, Source]:
    """The sources over rows that were sent to the task, without watermarks."""
    made: dict[Name, Source] = {}
    for name, held in pieces.items():
        relation = job.relations[name]
        assert relation is not None
        made[name] = timed(name, PieceSource(relation, held), None)
    return made


def timed(name: Name, rows: DataSource, time: str | None) -> RowWatermarks:
    """``rows``, whose last columns are BEFORE and NUMBER, as the stream ``name`` with column
    ``time``."""
    columns = {} if time is None else {time: BEFORE}
    return RowWatermarks(rows, columns, what=f"stream {'.'.join(name)}", numbers=NUMBER)


def with_column(batch: pa.RecordBatch, name: str, values: npt.NDArray[np.int64]) -> pa.RecordBatch:
    """The batch with one more column."""
    return pa.RecordBatch.from_arrays(
        [*batch.columns, pa.array(values)], names=[*batch.schema.names, name]
    )


def storage_of(
    column: pa.Array[Any],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8] | None]:
    """Times in units of the engine, and their mask (None: there are no NULLs)."""
    valid = None
    if column.null_count:
        valid = column.is_valid().cast(pa.uint8()).to_numpy()
    kind = column.type
    flat = (column.cast(pa.int32()) if pa.types.is_date32(kind) else column).cast(pa.int64())
    numbers = (flat.fill_null(0) if column.null_count else flat).to_numpy()
    return np.ascontiguousarray(numbers, np.int64), valid


def _check(
    group: Group,
    times: npt.NDArray[np.int64],
    valid: npt.NDArray[np.uint8] | None,
    files: Files,
) -> None:
    """Raises CatalogError if the file's statistics do not hold for its rows."""
    if not group.known:
        return
    held = times if valid is None else times[valid != 0]
    right = not len(held) or (
        group.low is not None
        and group.high is not None
        and group.low <= held.min()
        and held.max() <= group.high
    )
    if not right:
        raise CatalogError(
            f"table {files.table}: the statistics in the footer of {files.files[group.file].path}"
            " do not hold for its rows",
            hint="write the file again, or SET runtime = 'auto'",
        )
