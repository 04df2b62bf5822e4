"""The rows of sources in which rows are looked up, of any kind: this process reads them once, and
each task has them all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from cql.errors import NotSupportedError, RunError
from cql.planner.nodes.physical import SourceExec
from cql.planner.placement.broadcast import BROADCAST_ROWS
from cql.spark.task.rows import NUMBER, Pieces, with_column
from cql.spark.task.sent import stream_of


def rows_of(source: SourceExec, columns: Sequence[str]) -> Pieces:
    """Reads a bounded source. Raises RunError for a row that cannot be read, NotSupportedError for
    more rows than each task should hold."""
    reader = source.relation.source().open(columns)
    made: list[tuple[int, bytes]] = []
    rows = 0
    try:
        while (block := reader.next()) is not None:
            for bad in block.bad[:1]:
                raise RunError(
                    f"{source.name}, row {rows + bad.row}: {bad.reason}",
                    hint=bad.hint,
                    position=source.pos,
                )
            if block.batch.num_rows:
                numbers = np.arange(block.batch.num_rows)
                made.append((rows, stream_of([with_column(_plain(block.batch), NUMBER, numbers)])))
            rows += block.batch.num_rows
            if rows > BROADCAST_ROWS:
                raise NotSupportedError(
                    f"runtime = 'spark': rows are looked up in {source.name}, which has more than"
                    f" {BROADCAST_ROWS:,} rows",
                    position=source.pos,
                    hint="a table of Parquet files is read by the tasks themselves",
                )
    finally:
        reader.close()
    return made


def _plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch without dictionaries, which each stream would hold anew."""
    columns = [
        c.dictionary_decode() if pa.types.is_dictionary(c.type) else c for c in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
