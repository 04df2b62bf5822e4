"""Windows over the row numbers of each key, as a running operator: the rows of a window leave
together when the window's last row has come (``kernels.windows.key_windows``)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from cql.executor.kernels.order.row_slab import HELD
from cql.executor.kernels.windows import key_windows as kernel
from cql.executor.operators.order.row_slab import SlabOperator
from cql.executor.operators.relations.grouped import GroupedOperator
from cql.executor.operators.workspace import Workspace
from cql.planner.nodes.physical import KeyWindowsExec


class KeyWindowsOperator(GroupedOperator):
    """State: the rows that later windows need; of each key, which these are, the number of its rows
    so far, and when its first row came. A key stays to the end: its next row has the next number.
    """

    addresses: ClassVar = {
        **GroupedOperator.addresses,
        "taken": kernel.TAKEN,
        "keys": kernel.OF_KEYS,
        "order": kernel.ORDER,
    }
    scratch = GroupedOperator.scratch | {"taken", "order"}

    def __init__(self, name: str, node: KeyWindowsExec, workspace: Workspace) -> None:
        windows, schema = node.windows, node.input.schema
        numbers = len(node.schema) - 1  # the column of the window's number, which ascends
        super().__init__(name, schema, windows.by, 0, numbers, kernel.END, workspace)
        d = self.descriptor
        d[[kernel.LENGTH, kernel.SLIDE]] = windows.rows, windows.slide
        d[kernel.LEAVING] = -1
        self.bound(kernel.ORDERED, -1)
        self.resize("taken", workspace.morsel_rows, np.int32)
        self.address = int(kernel.key_windows.address)
        self.open()

    def more_slots(self, wanted: int) -> None:
        """Rows do not wait for a watermark, so they have no line."""
        SlabOperator.more_slots(self, wanted)

    def grow_groups(self, known: int, size: int) -> None:
        self.resize("keys", kernel.OF_KEY * size, np.int64)
        self.state["keys"][kernel.OF_KEY * known :] = 0

    def _put_in_order(self) -> None:
        """Lists the keys in the order of their first rows."""
        live = self._index.live
        self.resize("order", live.size, np.int64)
        since = self.state["keys"].reshape(-1, kernel.OF_KEY)[live, kernel.SINCE]
        self.state["order"][:] = live[np.argsort(since, kind="stable")]
        self.bound(kernel.ORDERED, live.size)
        self.bind()

    # -- called by the runtime -------------------------------------------------------------------

    def answer(self, request: int, wanted: int) -> None:
        if request == kernel.NEED_ORDER:
            self._put_in_order()
        else:
            super().answer(request, wanted)

    def counters(self) -> dict[str, int]:
        d = self.descriptor
        return {
            **super().counters(),
            "held": int(d[HELD]),
            "purged": int(d[kernel.PURGED]),
            "between_windows": int(d[kernel.BETWEEN]),
        }
