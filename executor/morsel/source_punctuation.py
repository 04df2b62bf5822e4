"""Punctuation in a source's data: marks between its rows, and rows that are marks (out-of-order
paper §3.2: punctuation that the data source provides)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cql.errors import CatalogError
from cql.executor.kernels.ingest.cutter import FLOOR, MARK
from cql.executor.kernels.ingest.source_punctuation import compact, punctuations
from cql.executor.kernels.morsel_layout import INFINITY
from cql.executor.morsel.arrow_columns import Array, address_of, unpack_bits, unpack_mask
from cql.executor.morsel.buffers import POOL
from cql.executor.morsel.morsel import Words
from cql.executor.morsel.watermark import Attribute
from cql.executor.protocols import BLOCK_ROWS, Block
from cql.planner.nodes.physical import SourceExec

Places = npt.NDArray[np.int64]
Flags = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int32]
#: Blocks with at most this many rows use memory outside the pool.
SMALLEST_ROWS = BLOCK_ROWS // 4


@dataclass(frozen=True, slots=True)
class Separated:
    """A block split into data and marks: ``rows`` rows are data. ``dropped`` has a 1 for each row
    that is a mark; it is None without such rows. ``row_punctuation`` holds ``count`` records in the
    layout of ``kernels.ingest.cutter``."""

    rows: int
    dropped: Flags | None
    row_punctuation: Words
    count: int

    def place(self, row: int) -> int:
        """The index of a data row among all rows of the block."""
        return row if self.dropped is None else int(np.flatnonzero(self.dropped == 0)[row])

    def data(self, values: Array) -> Array:
        """The values of the data rows. Large results are lent by the buffer pool."""
        if self.dropped is None:
            return values
        large = values.size > SMALLEST_ROWS
        room = (BLOCK_ROWS if large else values.size) + 1
        target = POOL.take(values.dtype, room) if large else np.empty(room, values.dtype)
        dropped = address_of(self.dropped)
        compact(address_of(values), address_of(target), values.itemsize, dropped, values.size)
        return POOL.lend(target, self.rows) if large else target[: self.rows]

    def mask(self, mask: Flags) -> Flags | None:
        """The mask of the data rows; None if only marks were NULL."""
        made = self.data(mask)
        return None if made.all() else made


def markers_of(node: SourceExec) -> tuple[str, ...]:
    """The boolean columns that flag rows as punctuation."""
    spec = node.relation.stream
    named = dict.fromkeys(p.marked_by for p in (spec.progress if spec else ()))
    return tuple(name for name in named if name is not None)


def columns_read(node: SourceExec) -> tuple[str, ...]:
    """The columns to request from a source: those of the plan, then the missing ones among the
    markers and PUNCTUATE BY."""
    by = () if node.by is None or node.schema.find(node.by) is not None else (node.by,)
    more = dict.fromkeys((*markers_of(node), *by))
    stored = node.stored
    return (*stored.names, *(m for m in more if stored.find(m) is None))


def separate(
    node: SourceExec,
    block: Block,
    attributes: Sequence[Attribute],
    data: Sequence[Array],
    masks: Sequence[Flags | None],
    numbers: Numbers | None = None,
) -> Separated:
    """Splits a block with ``columns_read`` into data and punctuation. ``data`` and ``masks`` are
    its plan columns as arrays. ``numbers`` are the value numbers of PUNCTUATE BY per row, -1 for a
    mark on all values. Raises CatalogError for punctuation on a column that is not declared to
    progress."""
    _check(node, block)
    rows = block.batch.num_rows
    found = {name: _marked(block.batch, node, name) for name in markers_of(node)}
    flags = [one for one in found.values() if one is not None]
    dropped: Flags | None = None
    parts = []
    if flags:
        dropped = flags[0] if len(flags) == 1 else np.bitwise_or.reduce(flags)
        rows -= int(np.count_nonzero(dropped))
        for k, attribute in enumerate(attributes):
            own = found.get(attribute.progress.marked_by or "")
            if own is not None:
                at = attribute.column
                parts.append(
                    _punctuations(dropped, own, data[at], masks[at], k, attribute, numbers)
                )
    reported = _reported(block, attributes, rows, dropped)
    if reported.size or not parts:
        parts.append(reported)
    records = parts[0] if len(parts) == 1 else _in_order(parts)
    return Separated(rows, dropped, records, records.size // MARK)


def _punctuations(
    dropped: Flags,
    own: Flags,
    values: Array,
    mask: Flags | None,
    k: int,
    attribute: Attribute,
    numbers: Numbers | None,
) -> Words:
    """Records of the rows that are marks on attribute ``k``; ``own`` flags these rows."""
    large = values.size > SMALLEST_ROWS
    room = MARK * (BLOCK_ROWS if large else values.size)
    records = POOL.take(np.dtype(np.int64), room) if large else np.empty(room, np.int64)
    valid = 0 if mask is None else address_of(mask)
    addresses = address_of(dropped), values.size, address_of(own), address_of(values)
    floor = int(attribute.words[FLOOR])
    groups = 0 if numbers is None else address_of(numbers)
    count = punctuations(*addresses, values.itemsize, valid, k, floor, groups, address_of(records))
    return POOL.lend(records, MARK * count) if large else records[: MARK * count]


def _reported(
    block: Block, attributes: Sequence[Attribute], rows: int, dropped: Flags | None
) -> Words:
    """Records of the block's ``row_punctuation`` and ``punctuation``."""
    if not (block.row_punctuation or block.punctuation):
        return np.zeros(0, np.int64)
    before = None if dropped is None else np.concatenate([[0], np.cumsum(dropped, dtype=np.int64)])
    unread = np.array([b.row for b in block.bad], np.int64)
    reported = []
    for row, column, value in block.row_punctuation:
        place = row - int(np.searchsorted(unread, row))
        reported.append((place if before is None else place - int(before[place]), column, value))
    reported += [(rows, column, value) for column, value in block.punctuation]
    numbers = {a.name.lower(): k for k, a in enumerate(attributes)}
    found = ((row, numbers.get(column.lower()), value) for row, column, value in reported)
    made = [(row, k, min(value, INFINITY), -1) for row, k, value in found if k is not None]
    return np.array(made, np.int64).ravel()


def _in_order(parts: Sequence[Words]) -> Words:
    """Sorts records by the number of rows before them."""
    records = np.concatenate(parts).reshape(-1, MARK)
    ordered: Words = records[np.argsort(records[:, 0], kind="stable")].ravel()
    return ordered


def _check(node: SourceExec, block: Block) -> None:
    """Raises CatalogError for punctuation on a column that is not declared to progress."""
    if not block.row_punctuation:
        return
    spec = node.relation.stream
    declared = {p.column.lower() for p in (spec.progress if spec else ())}
    for column in dict.fromkeys(column for _, column, _ in block.row_punctuation):
        if column.lower() not in declared:
            raise CatalogError(
                f"stream {node.name} punctuates {column}, which is not declared to have a"
                " watermark",
                hint=f"PUNCTUATE ON {column}, or ORDERED BY {column}, in CREATE STREAM",
            )


def row_punctuation_of(batch: pa.RecordBatch, node: SourceExec) -> Flags | None:
    """A flag per row that is a mark on some column; None without such rows."""
    found = (_marked(batch, node, name) for name in markers_of(node))
    flags = [one for one in found if one is not None]
    return np.bitwise_or.reduce(flags) if flags else None


def _marked(batch: pa.RecordBatch, node: SourceExec, name: str) -> Flags | None:
    """A flag per row whose marker is true; None without such rows. NULL is not true."""
    names = [n.lower() for n in columns_read(node)]
    column = batch.column(names.index(name.lower()))
    if not column.true_count:
        return None
    flags: Flags = unpack_bits(column.buffers()[1], column.offset, len(column))
    mask = unpack_mask(column)
    if mask is not None:
        flags &= mask
    return flags
