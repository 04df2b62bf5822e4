"""Tables with a PRIMARY KEY as logs of changes: an epoch appends its rows and its deleted keys.

A log has the columns of its table, and in front of them ``_sequence``, the number of the epoch, and
``_deleted``, which is true where the key was deleted (the columns behind the key are then NULL). An
epoch has at most one row of each key. The table is the newest row of each key, if it is not
deleted. A compaction writes the rows of the table as one epoch, which replaces all before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cql.base.model import Field, Schema
from cql.base.types import BIGINT, BOOLEAN
from cql.catalog.upsert import merged
from cql.errors import CatalogError

SEQUENCE, DELETED = "_sequence", "_deleted"
#: A log is compacted when more rows follow the last compaction than it left, and at least so many;
#: or when so many epochs do.
LEAST_ROWS, MOST_EPOCHS = 1_000, 100


def log_schema(schema: Schema, key: Sequence[str], what: str) -> Schema:
    """The columns of the log of a table. Those of the ``key`` are never NULL."""
    taken = next((f.name for f in schema if f.name.lower() in (SEQUENCE, DELETED)), None)
    if taken is not None:
        raise CatalogError(
            f"{what}: a log of changes has its own column {taken}",
            hint="name the column otherwise, or leave out the option upsert 'log'",
        )
    own = (replace(f, nullable=f.name not in key) for f in schema)
    return Schema((Field(SEQUENCE, BIGINT, False), Field(DELETED, BOOLEAN, False), *own))


def is_due(kept: int, appended: int, epochs: int) -> bool:
    """Whether to compact a log of so many rows ``kept`` by the last compaction, and rows and epochs
    behind it."""
    return appended > max(kept, LEAST_ROWS) or epochs > MOST_EPOCHS


def changes(rows: pa.Table, gone: pa.Table, key: Sequence[str], number: int, what: str) -> pa.Table:
    """Epoch ``number`` of a log: the last row of each key in ``rows``, and the keys ``gone``."""
    last = merged(rows.slice(0, 0), rows, gone, key, what)
    keys = merged(gone.slice(0, 0), gone, gone.slice(0, 0), key, what)
    columns = [
        keys.column(f.name) if f.name in key else pa.nulls(keys.num_rows, f.type)
        for f in rows.schema
    ]
    loose = pa.schema([f.with_nullable(f.name not in key) for f in rows.schema])
    deleted = pa.table(columns, schema=loose)
    return pa.concat_tables(
        [_marked(last.cast(loose), number, False), _marked(deleted, number, True)]
    )


def newest(log: pa.Table, key: Sequence[str], what: str) -> pa.Table:
    """The newest row of each key of a ``log`` whose epochs are in order, without the deleted."""
    last = merged(log.slice(0, 0), log, log.slice(0, 0).select(list(key)), key, what)
    return last.filter(pc.invert(last.column(DELETED))).drop_columns([SEQUENCE, DELETED])


def compacted(
    before: pa.Table, epoch: pa.Table, number: int, key: Sequence[str], what: str
) -> pa.Table:
    """The rows of a log after its next ``epoch``, as that epoch. It repeats the deleted keys of the
    epoch: a reader may see it next to the rows before."""
    rows = newest(pa.concat_tables([before, epoch]), key, what)
    deleted = epoch.filter(epoch.column(DELETED))
    return pa.concat_tables([_marked(rows, number, False), deleted])


def _marked(rows: pa.Table, number: int, deleted: bool) -> pa.Table:
    count = rows.num_rows
    marks = [pa.array(np.full(count, number)), pa.array(np.full(count, deleted))]
    fields = [pa.field(SEQUENCE, pa.int64(), False), pa.field(DELETED, pa.bool_(), False)]
    return pa.table([*marks, *rows.columns], schema=pa.schema([*fields, *rows.schema]))
