"""ROW_NUMBER() OVER (PARTITION BY … ORDER BY …) and ORDER BY … LIMIT over a changing relation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from cql.executor.kernels.lib import treap as treaps
from cql.executor.kernels.morsel_layout import INFINITY
from cql.executor.kernels.relations import group_changes as changes
from cql.executor.kernels.relations import ranking as kernel
from cql.executor.operators.relations.frontier import FrontierOperator
from cql.executor.operators.relations.group_index import GroupIndex
from cql.executor.operators.relations.grouped import GroupChangesOperator
from cql.executor.operators.workspace import Workspace
from cql.executor.state.codes import Codes
from cql.executor.state.stateful import Stateful
from cql.executor.state.store import Snapshot
from cql.planner.nodes.expr import Column
from cql.planner.nodes.logical import SortKey
from cql.planner.nodes.physical import RowNumberExec, TopExec

_PARTITIONS = 64
_SEED = 0x2545F4914F6CDD1D
_SLOTS = {
    "n": kernel.CHANGES,
    "times": kernel.TIMES,
    "weights": kernel.WEIGHTS,
    "out": kernel.MADE,
    "more": kernel.MORE,
    "gone": kernel.GONE,
    "detail": kernel.MADE,  # the function fails for no row
}
_OF_PIECE = {
    "partition_wanted": kernel.WANTED,
    "partition_found": kernel.FOUND,
    "partition_fresh": kernel.FOUND_FRESH,
}
_OF_ROW = {
    "partition": kernel.PARTITION,
    "following": kernel.FOLLOWING,
    "shown": kernel.SHOWN,
    "shown_many": kernel.SHOWN_MANY,
    "now": kernel.NOW,
    "now_many": kernel.NOW_MANY,
}
_SCRATCH = {"now", "now_many", "chosen", "dropped", "lowest"}


class RankingOperator(GroupChangesOperator):
    """State: the rows that wait; each distinct row of the relation, with its copies, its node in
    the sort order of its partition, and its places output last; the partitions."""

    addresses: ClassVar = {**GroupChangesOperator.addresses, "dropped": changes.GONE}
    own_addresses: ClassVar = {
        **_OF_PIECE,
        **_OF_ROW,
        "ids": kernel.OWNERS,
        "fresh": kernel.FRESH,
        "touched": kernel.TOUCHED,
        "live": kernel.HELD,
        "nodes": kernel.NODES,
        "chosen": kernel.CHOSEN,
        "dropped": kernel.DROPPED,
        "roots": kernel.ROOTS,
        "heads": kernel.HEADS,
        "lowest": kernel.LOWEST,
        "out_owner": kernel.OUT_OWNER,
        "out_time": kernel.OUT_TIME,
        "out_weight": kernel.OUT_WEIGHT,
        "out_r0": kernel.OUT_NUMBER,
    }

    def __init__(self, name: str, node: RowNumberExec | TopExec, workspace: Workspace) -> None:
        schema, output = node.input.schema, node.schema
        keys, by, offset = len(schema) - 2, tuple[int, ...](), 0
        results = []
        self._limit, self._forgets = node.limit, False
        if isinstance(node, RowNumberExec):
            by, self._forgets = node.partition, node.forgets
            results.append((output[keys].type.storage, False))
        elif node.limit != 0:
            offset = node.offset
        sort = [words for key in node.keys for words in _sort_words(key)]
        self._sort = np.array(sort, np.int64).reshape(-1, kernel.SORT_WORDS)
        self._by = np.array(by, np.int64)
        self._partitions = GroupIndex([schema[c].type for c in by], name, workspace)
        self._known_partitions = 0
        words = np.zeros(kernel.WORDS, np.int64)
        words[kernel.OFFSET] = offset
        words[kernel.STOP] = INFINITY if node.limit is None else min(offset + node.limit, INFINITY)
        words[kernel.FORGETS] = self._forgets
        words[[kernel.ROW_KEYS, kernel.PARTITION_KEYS]] = keys, len(by)
        words[[kernel.SORTS, kernel.SORT]] = len(self._sort), self._sort.ctypes.data
        words[kernel.PARTITION_COLUMNS] = self._by.ctypes.data
        words[kernel.CONTROL + treaps.RANDOM] = _SEED
        super().__init__(
            name,
            schema,
            keys,
            output,
            int(kernel.ranking.address),
            words,
            _SLOTS,
            workspace,
            results=results,
            keeps=[kernel.COME, *range(kernel.CONTROL, kernel.CONTROL + kernel.CONTROL_WORDS)],
        )
        self.scratch |= _SCRATCH | set(_OF_PIECE)
        self._texts = np.flatnonzero(np.isin(self._sort[:, 1], (kernel.TEXT_UP, kernel.TEXT_DOWN)))
        self.bound(changes.RANKED, 0 if self._texts.size else 2)
        self.open()
        self._more_partitions(_PARTITIONS)

    # -- room ------------------------------------------------------------------------------------

    def room_for_piece(self, rows: int) -> None:
        self.resize("partition_wanted", rows * self._partitions.width, np.int64)
        self.resize("partition_found", rows, np.int64)
        self.resize("partition_fresh", rows, np.uint8)
        super().room_for_piece(rows)

    def grow_groups(self, known: int, size: int) -> None:
        super().grow_groups(known, size)
        for name in ("live", *_OF_ROW):
            self.grow(name, "int64", known, size)
        width = kernel.FIRST + len(self._sort)
        self.resize("nodes", size, np.dtype((np.int64, (width,))))
        self.state["nodes"][known:] = 0
        self.resize("chosen", size if self._limit is None else min(size, self._limit), np.int64)
        self.resize("dropped", size if self._forgets else 0, np.int64)

    def _more_partitions(self, wanted: int) -> None:
        self._partitions.make_room(wanted)
        self._grow_partitions(self._known_partitions)
        self.bind()

    def _grow_partitions(self, known: int) -> None:
        self._known_partitions = self._partitions.capacity
        for name in ("roots", "heads", "lowest"):
            self.grow(name, "int64", known, self._known_partitions, -1)

    def bind(self) -> None:
        super().bind()
        words = self._words
        table, keys, free, control = self._partitions.arrays
        for word, array in (
            (kernel.KEYS, self._index.arrays[1]),
            (kernel.TABLE, table),
            (kernel.PARTITION_WORDS, keys),
            (kernel.FREE_IDS, free),
            (kernel.INDEX_CONTROL, control),
        ):
            words[word] = array.ctypes.data
        words[kernel.ROWS], words[kernel.ROOM] = self._index.capacity, self.workspace.morsel_rows
        words[[kernel.PARTITIONS, kernel.BUCKETS]] = self._partitions.capacity, table.size
        self.point(changes.SECOND, control if self._by.size else None)

    @property
    def parts(self) -> Sequence[Stateful]:
        return (*super().parts, self._partitions)

    # -- texts -----------------------------------------------------------------------------------

    @property
    def needs_refresh(self) -> bool:
        return self._texts.size > 0

    def refresh(self) -> None:
        """Gives the kernel the current order of texts."""
        if self._texts.size:
            self._rank = self.workspace.dictionary.rank()
            self._words[[kernel.RANK, kernel.RANKS]] = self._rank.ctypes.data, self._rank.size

    def codes(self) -> Iterator[Codes]:
        yield from super().codes()
        for word in self._texts:
            yield Codes(self.state["nodes"][:, kernel.FIRST + word], self._index.live)

    # -- snapshots -------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        made = super().snapshot()
        return replace(made, parts={**made.parts, "partitions": self._partitions.snapshot()})

    def restore(self, saved: Snapshot) -> None:
        self._partitions.restore(saved.parts["partitions"])
        self._grow_partitions(0)
        super().restore(saved)

    # -- called by the runtime -------------------------------------------------------------------

    def answer(self, request: int, wanted: int) -> None:
        match request:
            case changes.NEED_SECOND:
                self._more_partitions(wanted)
            case changes.NEED_RANK:
                self.refresh()
                self.bound(changes.RANKED, 1)
            case _:
                super().answer(request, wanted)

    def counters(self) -> dict[str, int]:
        held = int(self._words[kernel.CONTROL + treaps.LIVE])
        return {**FrontierOperator.counters(self), "held_rows": held}


def _sort_words(key: SortKey) -> list[tuple[int, int]]:
    """For each sort word of a key: the column, and what the word is (``kernels.ranking``)."""
    assert isinstance(key.expr, Column)
    column, made = key.expr.index, []
    if key.expr.nullable:
        made.append((column, kernel.NULL_FIRST if key.nulls_first else kernel.NULL_LAST))
    if key.expr.type.is_text:
        made.append((column, kernel.TEXT_DOWN if key.descending else kernel.TEXT_UP))
    else:
        made.append((column, kernel.DOWN if key.descending else kernel.UP))
    return made
