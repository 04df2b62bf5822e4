"""The base class of native operators that find the group of each row."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np

from cql.base.model import Schema
from cql.executor.kernels.morsel_layout import DETAIL, DETAIL_ROW
from cql.executor.kernels.relations import groups
from cql.executor.morsel.morsel import Morsel
from cql.executor.operators.relations.frontier import FrontierOperator
from cql.executor.operators.relations.group_index import GroupIndex
from cql.executor.operators.stage.operator import CodeColumn, Workspace
from cql.planner.nodes.expr import Column
from cql.planner.nodes.logical import SortKey

_GROUPS = 64
#: Rows that are looked up at once: their scratch stays in the processor's cache.
_PIECE = 8192


class GroupedOperator(FrontierOperator):
    """``by``: the key columns. State: the rows that wait, and an index of the groups."""

    addresses: ClassVar = {
        **FrontierOperator.addresses,
        "wanted": groups.WANTED,
        "ids": groups.IDS,
        "fresh": groups.FRESH,
    }

    scratch = FrontierOperator.scratch | {"wanted", "ids", "fresh"}

    def __init__(
        self,
        name: str,
        schema: Schema,
        by: Sequence[int],
        time: int,
        time_out: int,
        end: int,
        workspace: Workspace,
    ) -> None:
        fields = [schema[c] for c in by]
        self._index = GroupIndex([f.type for f in fields])
        self._known = 0
        keys = [
            SortKey(Column(c, f.name, f.type, f.nullable), False, True)
            for c, f in zip(by, fields, strict=True)
        ]
        super().__init__(name, schema, time, time_out, end, workspace, keys)

    def open(self) -> None:
        """Allocates what the groups need; called once the operator knows its words."""
        self.room_for_piece(min(self.workspace.morsel_rows, _PIECE))
        self.more_groups(_GROUPS)

    def room_for_piece(self, rows: int) -> None:
        """Makes room to look up so many rows at once."""
        self.resize("wanted", rows * self._index.width, np.dtype(np.int64))
        self.resize("ids", rows, np.dtype(np.int64))
        self.resize("fresh", rows, np.dtype(np.uint8))
        self.descriptor[groups.PIECE] = rows
        self.bind()

    def more_groups(self, wanted: int) -> None:
        """Makes room for ``wanted`` more groups."""
        before = self._index.nbytes
        self._index.make_room(wanted)
        self.workspace.resize(before, self._index.nbytes, self.name)
        self.grow_groups(self._known, self._index.capacity)
        self._known = self._index.capacity
        self.bind()

    @abstractmethod
    def grow_groups(self, known: int, size: int) -> None:
        """Resizes the arrays of the groups from ``known`` to ``size`` groups."""

    def bind(self) -> None:
        super().bind()
        d = self.descriptor
        table, keys, free, control = self._index.arrays
        d[[groups.BUCKETS, groups.CAPACITY]] = table.size, self._index.capacity
        d[groups.TABLE], d[groups.KEY_WORDS] = table.ctypes.data, keys.ctypes.data
        d[groups.FREE_IDS], d[groups.CONTROL] = free.ctypes.data, control.ctypes.data

    @property
    def state_bytes(self) -> int:
        return super().state_bytes + self._index.nbytes

    def map_codes(self, change: Callable[[CodeColumn], CodeColumn]) -> None:
        super().map_codes(change)
        self._index.map_codes(change)
        self.bind()

    # -- called by the runtime -------------------------------------------------------------------

    def provide(self, morsel: Morsel) -> None:
        if morsel.words[DETAIL] == groups.NEED_GROUPS:
            self.more_groups(int(morsel.words[DETAIL_ROW]))
        else:
            super().provide(morsel)
