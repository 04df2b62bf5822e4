"""A relation from its changes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cql.planner.expr import Column
from cql.planner.logical import SortKey

#: Changes that are collected before they are added up.
_MANY = 1 << 20


class FinalRelation:
    """Adds changes up as they come: memory is that of the relation and of the latest changes.
    Batches hold ``_time`` and ``_weight``, then the relation's own columns."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._batches: list[pa.RecordBatch] = []
        self._rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)
        self._rows += batch.num_rows
        if self._rows > _MANY:
            net = self._net(self._table())
            self._batches, self._rows = net.to_batches(), net.num_rows // 2

    def table(self, last: int | None, order: Sequence[SortKey]) -> pa.Table:
        """The relation as of instant ``last`` (None: after all changes): each row as often as it
        is there, sorted by ``order`` (columns of the relation), else by when rows came."""
        changes = self._table()
        if last is not None:
            times = changes.column(0)
            limit = pa.scalar(last, pa.int64()).cast(_integer(times.type)).cast(times.type)
            changes = changes.filter(pc.less_equal(times, limit))
        net = self._net(changes)
        copies = net.column(1).to_numpy()
        rows = net.select(range(2, net.num_columns))
        rows = rows.take(pa.array(np.repeat(np.arange(copies.size), np.maximum(copies, 0))))
        return rows.take(_sorted(rows, order)) if order else rows

    def _table(self) -> pa.Table:
        return pa.Table.from_batches(self._batches, schema=self._schema)

    @staticmethod
    def _net(changes: pa.Table) -> pa.Table:
        """One change for each row: the sum of its weights."""
        names = [f"c{k}" for k in range(changes.num_columns)]
        plain = changes.rename_columns(names)
        keys = [_groupable(c) for c in plain.columns[2:]]
        numbers = pa.array(np.arange(plain.num_rows))
        grouped = pa.table([plain["c1"], numbers, *keys], names=["weight", "row", *names[2:]])
        sums = pa.TableGroupBy(grouped, names[2:], use_threads=False).aggregate(
            [("weight", "sum"), ("row", "min")]
        )
        sums = sums.filter(pc.not_equal(sums["weight_sum"], 0))
        found = changes.take(sums["row_min"])
        return found.set_column(1, changes.schema.field(1), sums["weight_sum"])


def _groupable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Equal values as equal ones: -0.0 is 0.0, as in the operators that make changes."""
    if pa.types.is_floating(column.type):
        return pc.add(column, pa.scalar(0.0, column.type))
    if pa.types.is_nested(column.type):  # Arrow groups by no lists
        return pa.chunked_array([pa.array([repr(v) for v in column.to_pylist()], pa.string())])
    return column


def _integer(type_: pa.DataType) -> pa.DataType:
    return pa.int32() if type_.bit_width == 32 else pa.int64()


def _sorted(rows: pa.Table, order: Iterable[SortKey]) -> pa.Array:
    """Row numbers; NULL where the key says, NaN as the largest number."""
    columns: dict[str, pa.ChunkedArray] = {}
    keys: list[tuple[str, str]] = []
    for k, key in enumerate(order):
        assert isinstance(key.expr, Column)
        column = rows.column(key.expr.index)
        columns[f"null{k}"] = pc.is_null(column)
        keys.append((f"null{k}", "descending" if key.nulls_first else "ascending"))
        direction = "descending" if key.descending else "ascending"
        if pa.types.is_floating(column.type):
            columns[f"nan{k}"] = pc.fill_null(pc.is_nan(column), False)
            keys.append((f"nan{k}", direction))
        columns[f"key{k}"] = column
        keys.append((f"key{k}", direction))
    return pc.sort_indices(pa.table(columns), sort_keys=keys)
