"""What reads the rows of a query for Spark: of a table, or of a stream."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, TypeAlias, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from cql.errors import CqlError

T = TypeVar("T")

#: Runs a task of a job.
Runner: TypeAlias = Callable[[str, str], Iterator[pa.RecordBatch]]
#: JSON data that names what a stream has read.
Offset: TypeAlias = Mapping[str, Any]


class Streamed(Protocol):
    """The plan of a text that is read as a stream."""

    @property
    def schema(self) -> pa.Schema: ...
    @property
    def job(self) -> str: ...
    def first(self) -> Offset: ...
    def hold(self) -> None: ...
    def latest(self, start: Offset, most: int | None) -> Offset: ...
    def tasks_between(self, start: Offset, end: Offset) -> list[str]: ...


class QueryReader(DataSourceReader):  # type: ignore[misc]
    """Reads the rows of a query, one task in each partition of Spark."""

    def __init__(self, run: Runner, schema: str, job: str, tasks: list[str]) -> None:
        self._run, self._schema, self._job, self._tasks = run, schema, job, tasks

    def __reduce__(self) -> tuple[Any, ...]:
        """A worker needs no task but its own, which its partition has."""
        return QueryReader, (self._run, self._schema, self._job, [])

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(task) for task in self._tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _rows(self._run, self._schema, self._job, partition.value)


class QueryStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Reads the rows that a query gains with the files of its tables, in batches of at most
    ``most`` new files (None: all). ``stream`` is None in the workers that run tasks."""

    def __init__(
        self, run: Runner, schema: str, job: str, stream: Streamed | None, most: int | None
    ) -> None:
        self._run, self._schema, self._job = run, schema, job
        self._stream, self._most = stream, most

    def __reduce__(self) -> tuple[Any, ...]:
        return QueryStreamReader, (self._run, self._schema, self._job, None, None)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 (Spark's own name)
        return self._planned(lambda stream: dict(stream.first()))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 (Spark's own name)
        return ReadAllAvailable() if self._most is None else ReadMaxFiles(self._most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 (Spark's own name)
        self._planned(lambda stream: stream.hold())

    def latestOffset(self, start: Offset, limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 (Spark's own name)
        most = limit.max_files if isinstance(limit, ReadMaxFiles) else None
        return self._planned(lambda stream: dict(stream.latest(start, most)))

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        tasks = self._planned(lambda stream: stream.tasks_between(start, end))
        return [InputPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _rows(self._run, self._schema, self._job, partition.value)

    def _planned(self, call: Callable[[Streamed], T]) -> T:
        assert self._stream is not None
        try:
            return call(self._stream)
        except CqlError as error:
            raise shown(error) from None


def _rows(run: Runner, schema: str, job: str, task: str) -> Iterator[pa.RecordBatch]:
    """The rows of a task, in the types of Spark."""
    types = to_arrow_schema(StructType.fromJson(json.loads(schema)), timezone="UTC")
    try:
        for batch in run(job, task):
            yield in_types(batch, types)
    except CqlError as error:
        raise shown(error) from None


def in_types(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch in exactly the types of Spark, which compares nullability too."""
    columns = [c.cast(f.type) for c, f in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def shown(error: CqlError) -> CqlError:
    """The error without the frames of the library: Spark shows the traceback of a worker above the
    message."""
    return error.with_traceback(None)
