"""Relations that keep some rows of each key (``kernels.relations.keyed_rows``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np

from cql.executor.kernels.lib.key_index import FLAGS
from cql.executor.kernels.morsel_layout import DETAIL, DETAIL_ROW
from cql.executor.kernels.relations import frontier, groups
from cql.executor.kernels.relations import keyed_rows as kernel
from cql.executor.morsel.morsel import Morsel, value_bytes
from cql.executor.operators.relations.frontier import FrontierOperator
from cql.executor.operators.relations.group_index import GroupIndex
from cql.executor.operators.stage.operator import CodeColumn, Workspace
from cql.planner.nodes.expr import Column
from cql.planner.nodes.logical import SortKey
from cql.planner.nodes.physical import RelationExec, RowNumberExec

_GROUPS = 64


class KeyedRowsOperator(FrontierOperator):
    """[PARTITION BY k ROWS n], and ROW_NUMBER() = 1 in the order of time. State: the rows that wait
    and those that the keys keep, and per key which these are."""

    addresses: ClassVar = {
        **FrontierOperator.addresses,
        "oldest": kernel.OLDEST,
        "newest": kernel.NEWEST,
        "held": kernel.HELD,
        "latest": kernel.LATEST,
        "wanted": kernel.GROUPS + groups.WANTED,
        "ids": kernel.GROUPS + groups.IDS,
        "fresh": kernel.GROUPS + groups.FRESH,
    }

    def __init__(self, name: str, node: RelationExec | RowNumberExec, workspace: Workspace) -> None:
        schema, output = node.input.schema, node.schema
        if isinstance(node, RelationExec):
            assert node.window.wa is not None
            by, time, given = node.window.partition_by, node.window.wa, len(schema)
        else:
            by, time, given = node.partition, len(schema) - 2, len(schema) - 2
        fields = [schema[c] for c in by]
        keys = [
            SortKey(Column(c, f.name, f.type, f.nullable), False, True)
            for c, f in zip(by, fields, strict=True)
        ]
        self._index = GroupIndex([f.type for f in fields])
        super().__init__(name, schema, time, len(output) - 2, kernel.END, workspace, keys)
        d = self.descriptor
        d[[kernel.GIVEN, kernel.LEAVING]] = given, -1
        d[kernel.TIME_BYTES] = value_bytes(output[len(output) - 2].type)
        if isinstance(node, RelationExec):
            d[[kernel.KEPT, kernel.MOST]] = kernel.LAST_ROWS, node.window.rows or 0
        else:
            latest = node.keys[0].descending
            d[kernel.KEPT] = kernel.LATEST_ROW if latest else kernel.FIRST_ROW
            d[kernel.NUMBER_BYTES] = value_bytes(output[given].type)
        rows = workspace.morsel_rows
        words = len(by) + 1 + len(by) // FLAGS
        self.resize("wanted", rows * words, np.dtype(np.int64))
        self.resize("ids", rows, np.dtype(np.int64))
        self.resize("fresh", rows, np.dtype(np.uint8))
        d[kernel.GROUPS + groups.ROWS] = rows
        self._more_groups(_GROUPS)
        self.address = int(kernel.keyed_rows.address)

    def _more_groups(self, wanted: int) -> None:
        """Makes room for ``wanted`` more groups."""
        before = self._index.nbytes
        self._index.make_room(wanted)
        self.workspace.resize(before, self._index.nbytes, self.name)
        for name, dtype in _OF_GROUP.items():
            self.resize(name, self._index.capacity, np.dtype(dtype))
        self.state["held"][self._known :] = 0
        self._known = self._index.capacity
        self.bind()

    _known = 0

    def bind(self) -> None:
        super().bind()
        g = self.descriptor[kernel.GROUPS : kernel.GROUPS + groups.WORDS]
        table, keys, free, control = self._index.arrays
        g[[groups.BUCKETS, groups.CAPACITY]] = table.size, self._index.capacity
        g[groups.TABLE], g[groups.KEY_WORDS] = table.ctypes.data, keys.ctypes.data
        g[groups.FREE_IDS], g[groups.CONTROL] = free.ctypes.data, control.ctypes.data

    @property
    def first(self) -> int | None:
        d = self.descriptor
        return int(d[kernel.FIRST]) if d[kernel.ENTERED] else None

    @property
    def state_bytes(self) -> int:
        return super().state_bytes + self._index.nbytes

    def map_codes(self, change: Callable[[CodeColumn], CodeColumn]) -> None:
        super().map_codes(change)
        self._index.map_codes(change)
        self.bind()

    # -- called by the runtime -------------------------------------------------------------------

    def provide(self, morsel: Morsel) -> None:
        if morsel.words[DETAIL] == kernel.NEED_GROUPS:
            self._more_groups(int(morsel.words[DETAIL_ROW]))
        else:
            super().provide(morsel)

    def counters(self) -> dict[str, int]:
        d = self.descriptor
        entered, left = int(d[kernel.ENTERED]), int(d[kernel.LEFT])
        waiting = int(d[frontier.TAIL] - d[frontier.READY])
        if not d[kernel.NUMBER_BYTES]:
            changes = {"entered": entered, "left": left, "waiting": waiting}
            return {**super().counters(), **changes, "held": entered - left}
        return {**super().counters(), "held_rows": entered - left}


_OF_GROUP = {"oldest": np.int32, "newest": np.int32, "held": np.int32, "latest": np.int64}
