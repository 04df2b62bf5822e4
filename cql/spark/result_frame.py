"""The result of a query as a DataFrame of Spark, whose tasks run when Spark reads it."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark import Accumulator, AccumulatorParam
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from cql.catalog.spark.data_source import in_types, result_columns
from cql.catalog.spark.session import spark_call
from cql.errors import CatalogError
from cql.planner.nodes.physical import PhysicalPlan
from cql.planner.placement.scale_out import chosen
from cql.query.query import import_extra
from cql.spark.driver import SparkRun, error_of
from cql.spark.job import Job
from cql.spark.sent import ERROR, ROWS, Sent, unpacked


def frame_of_table(table: pa.Table) -> Any:
    """Rows that are known already, in the active session of Spark. Raises CatalogError without
    one."""
    session = SparkSession.getActiveSession()
    if session is None:
        raise CatalogError(
            "there is no active Spark session", hint="cql.connect(spark=…), or SparkSession.builder"
        )
    columns = result_columns(table.schema)
    with spark_call(session, "making a DataFrame"):
        return session.createDataFrame(table, columns)


class _Merged(AccumulatorParam):  # type: ignore[misc]
    """Reports by the number of their task: a task that runs again counts once."""

    def zero(self, value: dict[int, Any]) -> dict[int, Any]:
        return {}

    def addInPlace(self, one: dict[int, Any], other: dict[int, Any]) -> dict[int, Any]:  # noqa: N802
        return {**one, **other}


class FrameRun(SparkRun):
    """The run behind a DataFrame: its figures are those of the tasks that have ended since Spark
    first read the frame."""

    def __init__(self, plan: PhysicalPlan, job: Job) -> None:
        super().__init__(plan, job, int(job.settings.get("partitions", 0)))
        self._columns = plan.root.schema.to_arrow()
        self._text = job.text
        self._accumulated: Accumulator[dict[int, Any]] | None = None

    def frame(self) -> Any:
        """The DataFrame. Lists the files that it will read. Raises NotSupportedError for a plan or
        a source that tasks cannot share."""
        chosen(self._shared.plan, "auto")
        made = self._tasks.make(self.on_notice, timed=False)
        session, columns = self._tasks.session, result_columns(self._columns)
        if made is None:
            return frame_of_table(self._columns.empty_table())
        import_extra("pandas")
        with spark_call(session, "making a DataFrame"), warnings.catch_warnings():
            # Of pandas 3, whose frames nothing here uses.
            warnings.simplefilter("ignore", FutureWarning)
            self._accumulated = session.sparkContext.accumulator({}, _Merged())
            rows = made.mapPartitionsWithIndex(partial(_rows, self._accumulated, self._text))
            read = partial(_read, columns.json())
            return session.createDataFrame(rows, "sent binary").mapInArrow(read, columns)

    def _all_reports(self) -> list[dict[str, Any]]:
        return [] if self._accumulated is None else list(self._accumulated.value.values())


def _rows(
    accumulated: Accumulator[dict[int, Any]], text: str, task: int, found: Iterable[Sent]
) -> Iterator[tuple[bytes]]:
    """The rows that a task sends; its report goes to the driver."""
    for kind, sent in found:
        if kind == ROWS:
            yield (sent,)
        elif kind == ERROR:
            raise error_of(json.loads(sent)).with_text(text)
        else:
            accumulated.add({task: json.loads(sent)})


def _read(columns: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    schema = to_arrow_schema(StructType.fromJson(json.loads(columns)), timezone="UTC")
    for batch in batches:
        for sent in batch.column(0):
            for rows in unpacked(sent.as_buffer()):
                yield in_types(rows, schema)
