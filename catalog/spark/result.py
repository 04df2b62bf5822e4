"""Rows of ours as DataFrames of Spark."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark import Accumulator, AccumulatorParam
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from cql.catalog.spark.data_source import result_columns
from cql.catalog.spark.readers import in_types
from cql.catalog.spark.session import spark_call
from cql.errors import CatalogError


def frame_of_table(table: pa.Table) -> Any:
    """The rows of a table in the active session of Spark. Raises CatalogError without one."""
    session = SparkSession.getActiveSession()
    if session is None:
        raise CatalogError(
            "there is no active Spark session", hint="cql.connect(spark=…), or SparkSession.builder"
        )
    columns = result_columns(table.schema)
    with spark_call(session, "making a DataFrame"):
        return session.createDataFrame(table, columns)


def frame_of_streams(session: SparkSession, streams: Any, schema: pa.Schema) -> Any:
    """The rows of an RDD of tuples with one Arrow stream of ``schema`` each. Needs pandas, which
    ``mapInArrow`` asks for."""
    columns = result_columns(schema)
    with spark_call(session, "making a DataFrame"), warnings.catch_warnings():
        # Of pandas 3, whose frames nothing here uses.
        warnings.simplefilter("ignore", FutureWarning)
        sent = session.createDataFrame(streams, "sent binary")
        return sent.mapInArrow(partial(_read, columns.json()), columns)


def _read(columns: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    schema = to_arrow_schema(StructType.fromJson(json.loads(columns)), timezone="UTC")
    for batch in batches:
        for sent in batch.column(0):
            for rows in pa.ipc.open_stream(sent.as_buffer()):
                yield in_types(rows, schema)


class _Merged(AccumulatorParam):  # type: ignore[misc]
    def zero(self, value: dict[int, Any]) -> dict[int, Any]:
        return {}

    def addInPlace(  # noqa: N802 (Spark's own name)
        self, one: dict[int, Any], other: dict[int, Any]
    ) -> dict[int, Any]:
        return {**one, **other}


def accumulator_by_task(session: SparkSession) -> Accumulator[dict[int, Any]]:
    """An accumulator of values by the number of their task: a task that runs again counts once."""
    return session.sparkContext.accumulator({}, _Merged())
