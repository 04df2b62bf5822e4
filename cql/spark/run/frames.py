"""Views and DataFrames as inputs of tasks by key.

Spark computes such rows itself, so nothing is known of them beforehand. A first reading counts the
rows of each Arrow batch and finds their highest time. With both, the second reading gives each row
its number and its watermark in the order of the partitions, which is the order in which a run in
this process reads them. The times of the first batch, and of those that could hold a row that waits
for MAX ADVANCE, are read here.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from cql.catalog.spark.session import spark_call
from cql.catalog.spark.tables.read import arrow_messages
from cql.errors import CatalogError, CqlError
from cql.executor.morsel.row_watermarks import WatermarkPass
from cql.planner.nodes.catalog import Relation, StreamSpec
from cql.planner.nodes.declaration_json import spec_from_json, spec_to_json
from cql.planner.nodes.physical import SourceExec
from cql.planner.nodes.statements import Name
from cql.spark.job.job import TaskRelation
from cql.spark.run.parts import Reading
from cql.spark.task.rows import BEFORE, NUMBER, storage_of, with_column
from cql.spark.task.sent import ERROR, error_to_json
from cql.spark.task.shuffle import Shuffled, split
from cql.spark.task.task import in_worker, job_from

_TIMES = pa.schema([("time", pa.int64())])


@dataclass(frozen=True, slots=True)
class FrameInput:
    """A view or DataFrame that a query reads under ``name``: its rows as an RDD of Arrow messages
    of ``schema``; of each partition the number of its rows, their highest time (None: no time), and
    the watermark state before them."""

    name: Name
    relation: Relation
    messages: Any
    schema: pa.Schema
    reading: Reading
    counts: tuple[tuple[int, int | None], ...]
    states: tuple[tuple[int, ...], ...]

    @property
    def relation_name(self) -> str:
        return ".".join(self.relation.name)

    @property
    def rows(self) -> int:
        return sum(rows for rows, _ in self.counts)

    def split(self, job: str, parts: int) -> Any:
        """The RDD of the pieces of the rows, each with its part (``task.shuffle.split_rows``)."""
        firsts = np.cumsum([0, *(rows for rows, _ in self.counts)]).tolist()
        stream = self.relation.stream
        described = {
            "name": self.name,
            "reading": asdict(self.reading),
            "stream": None if stream is None else spec_to_json(stream),
            "partitions": [
                [*count, first, state]
                for count, first, state in zip(self.counts, firsts[:-1], self.states, strict=True)
            ],
        }
        work = partial(_split_frame, job, parts, json.dumps(described), _sent(self.schema))
        return self.messages.mapPartitionsWithIndex(work)


def frame_input(name: Name, source: SourceExec, frame: Any, reading: Reading) -> FrameInput:
    """Reads the frame once."""
    with spark_call(frame.sparkSession, f"counting the rows of {source.name}"):
        messages, schema = arrow_messages(frame, reading.columns)
        progress = next((p for _, p in source.progress), None)
        time = None if progress is None else reading.columns.index(progress.column)
        found = messages.mapPartitions(partial(_count, time, _sent(schema))).collect()
        watermarks = None if progress is None else WatermarkPass(source.relation, progress)
        counts: list[tuple[int, int | None]] = []
        states: list[tuple[int, ...]] = []
        for partition, batches in enumerate(found):
            highs = [high for _, high in batches if high is not None]
            counts.append((sum(rows for rows, _ in batches), max(highs, default=None)))
            states.append(() if watermarks is None else tuple(watermarks.state))
            for batch, (_, high) in enumerate(batches):
                if watermarks is None or time is None or high is None:
                    continue
                if not watermarks.skip(high):
                    work = partial(_times, time, _sent(schema), batch)
                    (message,) = messages.context.runJob(messages, work, [partition])
                    (times,) = _batches(_sent(_TIMES), [message])
                    watermarks.take(*storage_of(times.column(0)))
    return FrameInput(
        name, source.relation, messages, schema, reading, tuple(counts), tuple(states)
    )


def _sent(schema: pa.Schema) -> bytes:
    made: bytes = schema.serialize().to_pybytes()
    return made


def _batches(schema: bytes, messages: Iterable[bytes]) -> Iterator[pa.RecordBatch]:
    read = pa.ipc.read_schema(pa.py_buffer(schema))
    for message in messages:
        yield pa.ipc.read_record_batch(pa.py_buffer(message), read)


def _count(
    time: int | None, schema: bytes, messages: Iterable[bytes]
) -> Iterator[list[tuple[int, int | None]]]:
    """The number of rows and the highest time of each batch of a partition."""
    yield [
        (batch.num_rows, None if time is None else _higher(None, batch.column(time)))
        for batch in _batches(schema, messages)
    ]


def _times(time: int, schema: bytes, batch: int, messages: Iterable[bytes]) -> Iterator[bytes]:
    """The times of one batch of a partition, as a message of ``_TIMES``."""
    rows = next(itertools.islice(_batches(schema, messages), batch, None))
    times, valid = storage_of(rows.column(time))
    mask = None if valid is None else valid == 0
    made = pa.record_batch([pa.array(times, mask=mask)], schema=_TIMES)
    yield made.serialize().to_pybytes()


def _higher(known: int | None, column: pa.Array[Any]) -> int | None:
    times, valid = storage_of(column)
    held = times if valid is None else times[valid != 0]
    if not len(held):
        return known
    return int(held.max()) if known is None else max(known, int(held.max()))


@in_worker
def _split_frame(
    job: str, parts: int, described: str, schema: bytes, partition: int, messages: Iterable[bytes]
) -> Iterator[tuple[int, Shuffled]]:
    """``task.shuffle.split_rows`` of one partition of a frame."""
    data = json.loads(described)
    name: Name = tuple(data["name"])
    try:
        relation = job_from(job).relations[name]
        assert relation is not None
        stream = None if data["stream"] is None else spec_from_json(data["stream"])
        given, reading = data["partitions"][partition], data["reading"]
        rows = _FrameRows(relation, stream, reading, *given)
        batches = rows.taken(_batches(schema, messages))
        yield from split(batches, name, reading, parts, lambda: rows.counted)
        rows.check(".".join(name))
    except CqlError as error:
        yield 0, (ERROR, name, 0, error_to_json(error))


class _FrameRows:
    """Gives the rows of one partition their numbers and watermarks. The arguments from ``rows`` on
    are those of the partition in ``FrameInput``."""

    def __init__(
        self,
        relation: TaskRelation,
        stream: StreamSpec | None,
        reading: Mapping[str, Any],
        rows: int,
        high: int | None,
        first: int,
        state: Sequence[int],
    ) -> None:
        self._names = reading["columns"]
        self._expected = rows, high
        self._first, self._rows = first, 0
        self._high: int | None = None
        self._time: int | None = None
        self.counted: WatermarkPass | None = None
        if reading["time"] is not None:
            assert stream is not None
            (progress,) = stream.progress
            self._time = self._names.index(progress.column)
            self.counted = WatermarkPass(replace(relation, stream=stream), progress)
            self.counted.state = list(state)

    def taken(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = batch.rename_columns(self._names)
            if self._time is not None and self.counted is not None:
                column = batch.column(self._time)
                self._high = _higher(self._high, column)
                rows = with_column(rows, BEFORE, self.counted.take(*storage_of(column)))
            begin = self._first + self._rows
            self._rows += batch.num_rows
            yield with_column(rows, NUMBER, np.arange(begin, begin + batch.num_rows))

    def check(self, name: str) -> None:
        """Raises CatalogError if the second reading gave other rows."""
        if (self._rows, self._high) != self._expected:
            raise CatalogError(
                f"{name} gave other rows when Spark computed it a second time",
                hint="cache it (df.cache(), CACHE TABLE), or SET runtime = 'auto'",
            )
