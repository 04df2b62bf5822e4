"""The final relation of a changelog."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cql.planner.nodes.expr import Column
from cql.planner.nodes.logical import SortKey

#: The least number of changes to collect before they are added up.
_MANY = 1 << 20


class FinalRelation:
    """Adds up changes as they arrive; memory is that of the relation and of the latest changes.
    Batches hold ``_time`` and ``_weight``, then the relation's own columns. ``last`` returns the
    latest instant that the input has reached; later changes (rows that leave after the end of the
    input) do not count."""

    def __init__(self, schema: pa.Schema, last: Callable[[], int | None]) -> None:
        self._schema = schema
        self._last = last
        self._batches: list[pa.RecordBatch] = []
        self._fresh = self._old = 0  # changes not yet added up; changes left by the last sum

    def add(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)
        self._fresh += batch.num_rows
        if self._fresh > max(_MANY, self._old) and (last := self._last()) is not None:
            changes = self._table()
            over = _until(changes, last)
            net, later = self._net(changes.filter(over)), changes.filter(pc.invert(over))
            rows = pa.concat_tables([net, later])
            self._batches, self._fresh, self._old = rows.to_batches(), 0, rows.num_rows

    def table(self, order: Sequence[SortKey]) -> pa.Table:
        """The relation as of the last instant, or after all changes if no instant is known. Each
        row appears as often as its multiplicity, sorted by ``order`` (columns of the relation) or
        else by arrival."""
        changes, last = self._table(), self._last()
        net = self._net(changes if last is None else changes.filter(_until(changes, last)))
        copies = net.column(1).to_numpy()
        rows = net.select(range(2, net.num_columns))
        rows = rows.take(pa.array(np.repeat(np.arange(copies.size), np.maximum(copies, 0))))
        return rows.take(_sorted(rows, order)) if order else rows

    def _table(self) -> pa.Table:
        return pa.Table.from_batches(self._batches, schema=self._schema)

    @staticmethod
    def _net(changes: pa.Table) -> pa.Table:
        """One change per present row, in the order of ``changes``: the change that added the row,
        with the sum of the row's weights."""
        if changes.num_rows == 0:
            return changes
        by_row, firsts = _by_row(changes)
        weights = changes.column(1).to_numpy()[by_row]
        after = np.cumsum(weights)
        sums = np.add.reduceat(weights, firsts)
        sizes = np.diff(firsts, append=weights.size)
        before = after - weights - np.repeat(after[firsts] - weights[firsts], sizes)
        came = np.maximum.reduceat(np.where(before == 0, by_row, -1), firsts)
        there = np.flatnonzero(sums)
        there = there[np.argsort(came[there])]
        found = changes.take(pa.array(came[there]))
        kind = changes.schema.field(1)
        return found.set_column(1, kind, pa.array(sums[there]).cast(kind.type))


def _until(changes: pa.Table, last: int) -> pa.ChunkedArray:
    """A mask of the changes at or before ``last``."""
    times = changes.column(0)
    return pc.less_equal(times.cast(_integer(times.type)).cast(pa.int64()), last)


def _by_row(changes: pa.Table) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The numbers of the changes, grouped by equal rows and ascending within a group, and the start
    of each group. (Arrow does not define the order of its groups.)"""
    names = [f"c{k}" for k in range(2, changes.num_columns)]
    keys = [_groupable(c) for c in changes.columns[2:]]
    numbers = pa.array(np.arange(changes.num_rows))
    table = pa.table([numbers, *keys], names=["change", *names])
    grouped = pa.TableGroupBy(table, names, use_threads=False).aggregate([("change", "list")])
    lists = grouped["change_list"].combine_chunks()
    firsts = lists.offsets.to_numpy()[:-1].astype(np.int64)
    groups = np.empty(changes.num_rows, np.int64)
    sizes = np.diff(firsts, append=changes.num_rows)
    groups[lists.values.to_numpy()] = np.repeat(np.arange(firsts.size), sizes)
    return np.argsort(groups, kind="stable"), firsts


def _groupable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column with equal values made identical: -0.0 becomes 0.0, as in the operators that make
    changes."""
    if pa.types.is_floating(column.type):
        return pc.add(column, pa.scalar(0.0, column.type))
    if pa.types.is_nested(column.type):  # Arrow cannot group by lists
        return pa.chunked_array([pa.array([repr(v) for v in column.to_pylist()], pa.string())])
    return column


def _integer(type_: pa.DataType) -> pa.DataType:
    return pa.int32() if type_.bit_width == 32 else pa.int64()


def _sorted(rows: pa.Table, order: Iterable[SortKey]) -> pa.Array:
    """Row numbers in the order of the keys: NULLs first or last as the key says, NaN as the largest
    number."""
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
