"""The DEFAULT of a table's columns, as Spark evaluates it for each INSERT.

Spark keeps the expression as text in the column's metadata. Spark's own analyzer evaluates it, and
refuses subqueries and values that change from row to row.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from cql.catalog.spark.session import Session, java_class, spark_call
from cql.catalog.spark.tables.types import to_arrow

CURRENT_DEFAULT = "CURRENT_DEFAULT"


def with_default(frame: Any) -> frozenset[str]:
    """The columns of a table that have a DEFAULT."""
    return frozenset(f.name for f in frame.schema.fields if CURRENT_DEFAULT in (f.metadata or {}))


def evaluated(
    session: Session, frame: Any, columns: Collection[str], table: str
) -> dict[str, pa.Array[Any]]:
    """The current value of the DEFAULT of each of the ``columns``: an array of one value, in the
    type in which the table is read."""
    wanted = [f for f in frame.schema.fields if f.name in columns]
    if not wanted:
        return {}
    with spark_call(session, f"evaluating the defaults of {table}"):
        made: Any = session
        analyzer = java_class(session, "org.apache.spark.sql.catalyst.util.ResolveDefaultColumns")
        to_column = java_class(session, "org.apache.spark.sql.classic.ExpressionUtils").column
        stored = {str(f.name()): f for f in frame._jdf.schema().fields()}
        parts = [
            to_column(analyzer.analyze(stored[f.name], "INSERT", CURRENT_DEFAULT)) for f in wanted
        ]
        array = made._sc._gateway.new_array(
            java_class(session, "org.apache.spark.sql.Column"), len(parts)
        )
        for at, part in enumerate(parts):
            array[at] = part
        row = DataFrame(session.range(1)._jdf.select(array), made)
        found = row.toDF(*[f"c{k}" for k in range(len(parts))]).toArrow()
    kinds = to_arrow(type(frame.schema)(wanted))
    return {
        f.name: found.column(k).combine_chunks().cast(kinds.field(k).type)
        for k, f in enumerate(wanted)
    }
