"""Tasks by key: the first ones read a part of a table and split its rows by the content of a key,
the second ones run the query over the rows of one part.

A row carries its number in the table and the watermark before it. So the second tasks put the rows
into the order of the table, and each row is as late as in a run over the whole table.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cql.base.model import Schema
from cql.catalog.spark.tables.read import MAX_ROWS, Slice, SliceReader
from cql.errors import CqlError
from cql.executor.kernels.ingest import shuffle as kernel
from cql.executor.protocols import Offset, Reader, Source
from cql.planner.nodes.catalog import Statistics
from cql.planner.nodes.statements import Name
from cql.spark.job import Job, TaskRelation
from cql.spark.sent import (
    ERROR,
    REPORT,
    ROWS,
    Effort,
    Sent,
    counts_of,
    error_to_json,
    results,
    stream_of,
)
from cql.spark.task import job_from, run_of
from cql.spark.task_rows import BEFORE, HIDDEN, NUMBER, Part, PartSource, storage_of, timed

#: What a first task sends to a part: the kind, the relation, the number of the first row, and an
#: Arrow stream, a report or an error.
Shuffled: TypeAlias = tuple[str, Name, int, bytes]
#: Rows of a piece: a first task collects so many for each part before it sends them.
_PIECE_ROWS = 8_192
#: The most rows that a first task collects.
_COLLECTED = 2_000_000


def split_rows(job: str, parts: int, tasks: Iterable[str]) -> Iterator[tuple[int, Shuffled]]:
    """Runs the first tasks of one partition: yields pieces of the rows, each with its part. The
    report of a task goes with the first part, as does an error of ours, so that Spark does not try
    the task again."""
    for task in tasks:
        described = json.loads(task)
        name: Name = tuple(described["name"])
        try:
            relation = job_from(job).relations[name]
            assert relation is not None
            effort, read = Effort(), 0
            source = PartSource(relation, Part.from_json(described["part"]))
            for part, first, batch in _pieces(source, described["reading"], parts):
                rows = stream_of([batch])
                effort.gives(batch.num_rows, len(rows))
                read += batch.num_rows
                yield part, (ROWS, name, first, rows)
            counted = [counts_of(source.counted[0])] * described["reading"]["uses"]
            report = {"input": [name, counted], "effort": effort.figures(read)}
            yield 0, (REPORT, name, 0, json.dumps(report).encode())
        except CqlError as error:
            yield 0, (ERROR, name, 0, error_to_json(error))


def _pieces(
    source: PartSource, reading: Mapping[str, Any], parts: int
) -> Iterator[tuple[int, int, pa.RecordBatch]]:
    most = min(max(MAX_ROWS, parts * _PIECE_ROWS), _COLLECTED)
    waiting: list[pa.RecordBatch] = []
    timed_by = [BEFORE] if reading["time"] is not None else []
    for piece in source.slices([*reading["columns"], *timed_by, NUMBER]):
        waiting.append(piece.batch)
        if sum(batch.num_rows for batch in waiting) >= most:
            yield from _split(waiting, reading["keys"], parts)
            waiting = []
    if waiting:
        yield from _split(waiting, reading["keys"], parts)


def _split(
    batches: Sequence[pa.RecordBatch], keys: Sequence[str], parts: int
) -> Iterator[tuple[int, int, pa.RecordBatch]]:
    """The rows of each part in their order, with the number of the first one."""
    (rows,) = pa.Table.from_batches(batches).combine_chunks().to_batches() or [batches[0]]
    hashes = np.ones(rows.num_rows, np.int64)
    for key in keys:
        mix(rows.column(key), hashes)
    order, ends = np.empty(rows.num_rows, np.int64), np.zeros(parts, np.int64)
    kernel.split(hashes, order, ends)
    sorted_rows = rows.take(pa.array(order))
    begin = 0
    for part, end in enumerate(ends.tolist()):
        if end > begin:
            piece = sorted_rows.slice(begin, end - begin)
            yield part, piece.column(NUMBER)[0].as_py(), piece
        begin = end


def mix(column: pa.Array[Any], hashes: npt.NDArray[np.int64]) -> None:
    """Mixes the content of a column into the hashes of its rows: equal values, also of integers of
    other widths, give the same."""
    kind = column.type
    valid = np.empty(0, np.uint8)
    if column.null_count:
        valid = column.is_valid().cast(pa.uint8()).to_numpy()
    if pa.types.is_decimal(kind):
        column = column.cast(pa.string())
    if pa.types.is_floating(column.type):
        kernel.mix_words(_words(column.cast(pa.float64())), valid, hashes)
    elif pa.types.is_boolean(kind):
        kernel.mix_words(storage_of(column.cast(pa.int8()))[0], valid, hashes)
    elif pa.types.is_temporal(kind) or pa.types.is_integer(kind):
        kernel.mix_words(storage_of(column)[0], valid, hashes)
    else:
        kernel.mix_texts(*_texts(column.cast(pa.binary())), valid, hashes)


def _words(column: pa.Array[Any]) -> npt.NDArray[np.int64]:
    """Fractions as integers: equal ones are the same, as -0.0 and 0.0 or all NaN are."""
    values = column.fill_null(0.0).to_numpy() + 0.0
    return np.where(np.isnan(values), np.nan, values).view(np.int64)


def _texts(column: pa.Array[Any]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    return np.frombuffer(b"" if data is None else data, np.uint8), ends


def run_part(
    job: str,
    times: Mapping[Name, str | None],
    whole: str,
    timed_run: bool,
    received: Iterable[tuple[int, Shuffled]],
) -> Iterator[Sent]:
    """Runs the query over the rows of one part. ``times`` are the shuffled inputs, each with the
    name of its time column, ``whole`` the broadcast tables as JSON; ``timed_run`` as in
    ``worker.run_tasks``. The first part also sends the reports or the errors of the first tasks."""
    effort = Effort()
    pieces: dict[Name, list[tuple[int, bytes]]] = {}
    errors: list[bytes] = []
    reports: list[bytes] = []
    for _, (kind, name, first, sent) in received:
        if kind == ROWS:
            pieces.setdefault(name, []).append((first, sent))
        else:
            (reports if kind == REPORT else errors).append(sent)
    if errors:
        yield ERROR, errors[0]
        return
    try:
        first_tasks = [json.loads(report) for report in reports]
        if pieces or first_tasks:
            sources = _broadcast(job_from(job), whole)
            sources |= _shuffled(job_from(job), times, pieces)
            run = run_of(job_from(job), sources, None, None)
            run.timed = timed_run
            inputs = [task["input"] for task in first_tasks]
            splits = [task["effort"] for task in first_tasks]
            yield from results(run, effort, lambda: inputs, splits)
    except CqlError as error:
        yield ERROR, error_to_json(error)


def _broadcast(job: Job, whole: str) -> dict[Name, Source]:
    made: dict[Name, Source] = {}
    for name, part in json.loads(whole):
        relation = job.relations[tuple(name)]
        assert relation is not None
        made[tuple(name)] = timed(name, PartSource(relation, Part.from_json(part)), None)
    return made


def _shuffled(
    job: Job, times: Mapping[Name, str | None], pieces: Mapping[Name, list[tuple[int, bytes]]]
) -> dict[Name, Source]:
    made: dict[Name, Source] = {}
    for name, time in times.items():
        relation = job.relations[name]
        assert relation is not None
        rows = ShuffledSource(relation, sorted(pieces.get(name, ())))
        made[name] = timed(name, rows, time)
    return made


@dataclass(frozen=True, slots=True)
class ShuffledSource:
    """The rows of one part. ``pieces``: Arrow streams with the number of their first row, in the
    order of the table."""

    relation: TaskRelation
    pieces: Sequence[tuple[int, bytes]]

    @property
    def schema(self) -> Schema:
        return Schema((*self.relation.schema, *HIDDEN))

    @property
    def bounded(self) -> bool:
        return True

    @property
    def unsupported(self) -> Mapping[str, str]:
        return {}

    def statistics(self) -> Statistics:
        return Statistics()

    def open(self, columns: Sequence[str], offset: Offset | None = None) -> Reader:
        wanted = Schema(
            tuple(self.schema[i] for c in columns if (i := self.schema.find(c)) is not None)
        )
        return SliceReader(self._slices(columns), wanted, f"table {'.'.join(self.relation.name)}")

    def _slices(self, columns: Sequence[str]) -> Iterator[Slice]:
        for first, sent in self.pieces:
            for batch in pa.ipc.open_stream(sent):
                rows = batch.select(list(columns))
                for start in range(0, rows.num_rows, MAX_ROWS):
                    yield Slice(first + start, rows.slice(start, MAX_ROWS))
