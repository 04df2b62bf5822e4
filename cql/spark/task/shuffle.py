"""Tasks by key: the first ones read a part of a table and split its rows by the content of a key,
the second ones run the query over the rows of one part.

A row carries its number in the table and the watermark before it. So the second tasks put the rows
into the order of the table, and each row is as late as in a run over the whole table.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cql.catalog.spark.tables.read import MAX_ROWS
from cql.errors import CqlError
from cql.executor.kernels.ingest import shuffle as kernel
from cql.executor.morsel.row_watermarks import WatermarkPass
from cql.executor.protocols import Source
from cql.planner.nodes.statements import Name
from cql.spark.job.job import Job
from cql.spark.task.rows import (
    BEFORE,
    NUMBER,
    Part,
    PartSource,
    PieceSource,
    Shipped,
    pieces_of,
    storage_of,
    timed,
)
from cql.spark.task.sent import (
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
from cql.spark.task.task import in_worker, job_from, run_of

#: What a first task sends to a part: the kind, the relation, the number of the first row, and an
#: Arrow stream, a report or an error.
Shuffled: TypeAlias = tuple[str, Name, int, bytes]
#: Fewer bytes pass from Python to Java, to a file, and back: a third of the CPU time of a shuffle.
COMPRESSION = "lz4"
#: Rows of a piece: a first task collects so many for each part before it sends them.
_PIECE_ROWS = 8_192
#: The most rows that a first task collects.
_COLLECTED = 2_000_000


@in_worker
def split_rows(job: str, parts: int, tasks: Iterable[str]) -> Iterator[tuple[int, Shuffled]]:
    """Runs the first tasks of one partition: yields pieces of the rows, each with its part. The
    report of a task goes with the first part, as does an error of ours, so that Spark does not try
    the task again."""
    for task in tasks:
        described = json.loads(task)
        name: Name = tuple(described["name"])
        try:
            relation, reading = job_from(job).relations[name], described["reading"]
            assert relation is not None
            source = PartSource(relation, Part.from_json(described["part"]))
            names = [*reading["columns"], *([] if reading["time"] is None else [BEFORE]), NUMBER]
            # A file may spell its columns in another case.
            batches = (piece.batch.rename_columns(names) for piece in source.slices(names))
            yield from split(batches, name, reading, parts, source.counted.pop)
        except CqlError as error:
            yield 0, (ERROR, name, 0, error_to_json(error))


def split(
    batches: Iterable[pa.RecordBatch],
    name: Name,
    reading: Mapping[str, Any],
    parts: int,
    counted: Callable[[], WatermarkPass | None],
) -> Iterator[tuple[int, Shuffled]]:
    """The pieces of an input's rows, each with its part, and a report; ``counted`` gives behind the
    last row what counted the late ones."""
    effort, read = Effort(), 0
    for part, first, batch in pieces(batches, reading["keys"], parts):
        rows = stream_of([_behind(first, batch)], COMPRESSION)
        effort.gives(batch.num_rows, len(rows))
        read += batch.num_rows
        yield part, (ROWS, name, first, rows)
    counts = [counts_of(counted())] * reading["uses"]
    report = {"input": [name, counts], "effort": effort.figures(read)}
    yield 0, (REPORT, name, 0, json.dumps(report).encode())


def _behind(first: int, rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with their numbers counted from ``first``, in half the bytes."""
    numbers = rows.column(NUMBER).to_numpy() - first
    at = rows.schema.get_field_index(NUMBER)
    return rows.set_column(at, NUMBER, pa.array(numbers).cast(pa.int32()))


def pieces(
    batches: Iterable[pa.RecordBatch], keys: Sequence[str], parts: int
) -> Iterator[tuple[int, int, pa.RecordBatch]]:
    """The rows split by the content of the columns ``keys``: each piece with its part and the
    number of its first row."""
    most = min(max(MAX_ROWS, parts * _PIECE_ROWS), _COLLECTED)
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= most:
            yield from _split(waiting, keys, parts)
            waiting, rows = [], 0
    if rows:
        yield from _split(waiting, keys, parts)


def _split(
    batches: Sequence[pa.RecordBatch], keys: Sequence[str], parts: int
) -> Iterator[tuple[int, int, pa.RecordBatch]]:
    """The rows of each part in their order, with the number of the first one."""
    (rows,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
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


@in_worker
def run_part(
    job: str,
    times: Mapping[Name, str | None],
    whole: str,
    looked_up: Shipped,
    timed_run: bool,
    received: Iterable[tuple[int, Shuffled]],
) -> Iterator[Sent]:
    """Runs the query over the rows of one part. ``times`` are the shuffled inputs, each with the
    name of its time column, ``whole`` the broadcast tables as JSON; ``looked_up`` and ``timed_run``
    as in ``worker.run_tasks``. The first part also sends the reports or the errors of the first
    tasks."""
    effort = Effort()
    found = Received.of(received)
    if found.errors:
        yield ERROR, found.errors[0]
        return
    try:
        if found.pieces or found.first_tasks:
            sources = pieces_of(job_from(job), looked_up.value)
            sources |= _broadcast(job_from(job), whole)
            sources |= _shuffled(job_from(job), times, found.pieces)
            run = run_of(job_from(job), sources, None, None)
            run.timed = timed_run
            yield from results(run, effort, found.inputs, found.first_tasks)
    except CqlError as error:
        yield ERROR, error_to_json(error)


@dataclass(slots=True)
class Received:
    """What a second task receives: the ``part`` that it takes, and what the first tasks sent."""

    part: int = 0
    pieces: dict[Name, list[tuple[int, bytes]]] = field(default_factory=dict)
    errors: list[bytes] = field(default_factory=list)
    first_tasks: list[dict[str, Any]] = field(default_factory=list)

    @staticmethod
    def of(received: Iterable[tuple[int, Shuffled]]) -> Received:
        made = Received()
        for made.part, (kind, name, first, sent) in received:
            if kind == ROWS:
                made.pieces.setdefault(name, []).append((first, sent))
            elif kind == ERROR:
                made.errors.append(sent)
            else:
                made.first_tasks.append(json.loads(sent))
        return made

    def inputs(self) -> list[Any]:
        """For each first task its input, and the counts of its rows."""
        return [task["input"] for task in self.first_tasks]


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
        rows = PieceSource(relation, sorted(pieces.get(name, ())))
        made[name] = timed(name, rows, time)
    return made
