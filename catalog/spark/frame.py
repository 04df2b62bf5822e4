"""A bounded DataFrame of Spark as a source: every reader computes it anew."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from cql.base.model import Schema
from cql.catalog.convert import pick
from cql.catalog.spark.session import java_class, spark_call
from cql.catalog.spark.tables.read import Slice, SliceReader, frame_batches
from cql.catalog.spark.tables.types import to_arrow_loosely, usable_columns
from cql.errors import CatalogError
from cql.executor.protocols import Offset, Reader
from cql.planner.nodes.catalog import Statistics

_DELAY = "spark.watermarkDelayMs"
_EVENT_TIME = "org.apache.spark.sql.catalyst.plans.logical.EventTimeWatermark"


class SparkFrame:
    """The columns of a DataFrame: those that queries can use, and the others with the reason."""

    def __init__(self, frame: Any, what: str) -> None:
        check_classic(frame, what)
        self.frame = frame
        self._what = what
        with spark_call(frame.sparkSession, f"reading the columns of {what}"):
            self._arrow = to_arrow_loosely(frame.schema)
        self.schema, self.unsupported = usable_columns(self._arrow, what)

    def statistics(self) -> Statistics:
        return Statistics()

    def watermarks(self) -> dict[str, int]:
        """The delays that ``withWatermark`` gave the frame, in milliseconds by column. Spark itself
        forgets the delay of a bounded frame, unless ``withWatermark`` was called last."""
        frame = self.frame
        with spark_call(frame.sparkSession, f"reading the watermark of {self._what}"):
            fields = frame.schema.fields
            found = {
                f.name: int(f.metadata[_DELAY]) for f in fields if _DELAY in (f.metadata or {})
            }
            plan = frame._jdf.queryExecution().logical()
            if not found and plan.nodeName() == "EventTimeWatermark":
                delay = java_class(frame.sparkSession, _EVENT_TIME).getDelayMs(plan.delay())
                name = str(plan.eventTime().name())
                found = {f.name: int(delay) for f in fields if f.name.lower() == name.lower()}
        return found


class BatchFrame(SparkFrame):
    """A bounded frame. Its rows come again in the same order only if Spark computes them so. The
    source leaves nothing behind in the frame's session."""

    bounded = True

    def open(self, columns: Sequence[str], offset: Offset | None = None) -> Reader:
        fields = pick(self.schema, columns, self._what)
        names = [f.name for f in fields]
        start = int(offset["row"]) if offset else 0
        return SliceReader(self._slices(names, start), Schema(tuple(fields)), self._what)

    def table(self) -> pa.Table:
        """All rows of the columns that queries can use."""
        names = list(self.schema.names)
        batches = [piece.batch for piece in self._slices(names, 0)]
        kinds = pa.schema([self._arrow.field(name) for name in names])
        return pa.Table.from_batches(batches, kinds.remove_metadata())

    def _slices(self, names: Sequence[str], start: int) -> Iterator[Slice]:
        session = self.frame.sparkSession
        return frame_batches(session, self.frame, self._arrow, names, self._what, offset=start)


def check_classic(frame: Any, what: str) -> None:
    """CatalogError for a frame of Spark Connect, which has no JVM of this process behind it."""
    if not hasattr(frame, "_jdf"):
        raise CatalogError(
            f"{what} is a DataFrame of Spark Connect, which cannot be read here",
            hint="give its rows instead: df.toArrow()",
        )
