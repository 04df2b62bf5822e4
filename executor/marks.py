"""The promises that stand in a source's data: marks between its rows, and rows that are marks
(out-of-order paper §3.2: punctuation that the data source provides)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cql.errors import CatalogError
from cql.executor.attributes import Attribute
from cql.executor.protocols import Block
from cql.executor.unit import INFINITY, Words
from cql.planner.physical import SourceExec

Places = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Separated:
    """``batch`` has the rows that are data. ``marks`` are records as ``kernels.cut`` reads them,
    ``count`` of them; ``kept`` are the places of the rows in the source's batch, None if all of
    these are data."""

    batch: pa.RecordBatch
    marks: Words
    count: int
    kept: Places | None


def markers_of(node: SourceExec) -> tuple[str, ...]:
    """The columns that say of a row that it is punctuation."""
    spec = node.relation.stream
    named = dict.fromkeys(p.marked_by for p in (spec.progress if spec else ()))
    return tuple(name for name in named if name is not None)


def columns_read(node: SourceExec) -> tuple[str, ...]:
    """The columns to ask a source for: those of the plan, then markers that are not among them."""
    return (*node.schema.names, *(m for m in markers_of(node) if node.schema.find(m) is None))


def separate(node: SourceExec, block: Block, attributes: Sequence[Attribute]) -> Separated:
    """Data and promises of a block that has ``columns_read``."""
    batch = block.batch
    before = np.arange(batch.num_rows + 1, dtype=np.int64)  # rows of data before each row
    unread = np.array([b.row for b in block.bad], np.int64)
    _check(node, block)
    kept: Places | None = None
    parts: list[tuple[Places, int, Places]] = []
    found = {name: _marked(batch, node, name) for name in markers_of(node)}
    if found and (dropped := np.logical_or.reduce(list(found.values()))).any():
        kept = np.flatnonzero(~dropped)
        np.cumsum(~dropped, out=before[1:])
        for k, attribute in enumerate(attributes):
            marker = attribute.progress.marked_by
            if marker is not None:
                rows, values = _values(batch, attribute.column, found[marker])
                parts.append((before[rows], k, values))
        batch = batch.take(pa.array(kept))
    for k, attribute in enumerate(attributes):
        name = attribute.name.lower()
        own = [
            (int(before[row - np.searchsorted(unread, row)]), value)
            for row, column, value in block.marks
            if column.lower() == name
        ]
        own += [(batch.num_rows, v) for column, v in block.punctuation if column.lower() == name]
        if own:
            pairs = np.array(own, np.int64)
            parts.append((pairs[:, 0], k, np.minimum(pairs[:, 1], INFINITY)))
    return Separated(batch, *_records(parts), kept)


def _check(node: SourceExec, block: Block) -> None:
    """Refuses promises on a column that is not declared to progress."""
    if not block.marks:
        return
    spec = node.relation.stream
    declared = {p.column.lower() for p in (spec.progress if spec else ())}
    for column in dict.fromkeys(column for _, column, _ in block.marks):
        if column.lower() not in declared:
            raise CatalogError(
                f"stream {node.name} punctuates {column}, which is not declared to progress",
                hint=f"PUNCTUATE ON {column}, or ORDERED BY {column}, in CREATE STREAM",
            )


def _marked(batch: pa.RecordBatch, node: SourceExec, name: str) -> npt.NDArray[np.bool_]:
    """Where a marker is true; NULL is not."""
    names = [n.lower() for n in columns_read(node)]
    column = batch.column(names.index(name.lower()))
    flags: npt.NDArray[np.bool_] = column.fill_null(False).to_numpy(zero_copy_only=False)
    return flags


def _values(
    batch: pa.RecordBatch, column: int, marked: npt.NDArray[np.bool_]
) -> tuple[Places, Places]:
    """Rows that are marks and what they promise; a NULL promises nothing."""
    array = batch.column(column)
    valid = marked & array.is_valid().to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(valid)
    width = np.dtype(f"i{array.type.bit_width // 8}")
    values = np.frombuffer(array.buffers()[1], width, len(array), array.offset * width.itemsize)
    return rows, values[rows].astype(np.int64)


def _records(parts: Sequence[tuple[Places, int, Places]]) -> tuple[Words, int]:
    """In the order of the rows; one more record, so that there is always something to point to."""
    count = sum(rows.size for rows, _, _ in parts)
    records = np.zeros((count + 1, 3), np.int64)
    if count:
        records[:count, 0] = np.concatenate([rows for rows, _, _ in parts])
        records[:count, 1] = np.concatenate([np.full(rows.size, k) for rows, k, _ in parts])
        records[:count, 2] = np.concatenate([values for _, _, values in parts])
        records[:count] = records[:count][np.argsort(records[:count, 0], kind="stable")]
    return records.ravel(), count
