"""ORDER BY … LIMIT and ROW_NUMBER() within a window: rows wait until punctuation closes their
window (``kernels.order.window_sort``)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from cql.executor.kernels.morsel_layout import DETAIL, DETAIL_ROW, INFINITY, NEVER
from cql.executor.kernels.order import window_sort as kernel
from cql.executor.kernels.order.row_slab import HELD, OWN
from cql.executor.morsel.morsel import Morsel
from cql.executor.operators.order.row_slab import STEP, SlabOperator
from cql.executor.operators.workspace import Workspace
from cql.planner.nodes.expr import Column
from cql.planner.nodes.logical import SortKey
from cql.planner.nodes.physical import SortExec

_WINDOWS = 16
#: A LIMIT that excludes no row; twice this number still fits into int64.
_MOST = 1 << 60


class SortOperator(SlabOperator):
    """State: the slab, the open ``windows``, and buffers (``leads``, ``order``, ``last``) to
    sort one window."""

    addresses: ClassVar = {
        "windows": kernel.WINDOWS,
        "leads": kernel.LEADS,
        "order": kernel.ORDER,
        "last": kernel.LAST,
    }
    scratch = frozenset(("leads", "order", "last"))

    def __init__(self, name: str, node: SortExec, workspace: Workspace) -> None:
        schema = node.input.schema
        assert node.number is None or (node.limit is None and not node.offset)
        together = [
            SortKey(Column(c, schema[c].name, schema[c].type, True), False, True)
            for c in node.partition
        ]
        own = kernel.FIRST - OWN + len(schema)
        super().__init__(name, schema, [*together, *node.keys], own, workspace)
        d = self.descriptor
        d[kernel.WINDOW] = -1 if node.window_end is None else node.window_end
        d[kernel.FIRST_OUT] = node.offset
        d[kernel.LAST_OUT] = INFINITY
        if node.limit is not None:
            d[kernel.LAST_OUT] = min(node.offset + node.limit, _MOST)
        d[[kernel.PARTITION, kernel.NUMBERED]] = len(together), node.number is not None
        d[[kernel.CLOSED, kernel.LEAVING]] = NEVER, -1
        for attribute in node.progressing:
            if attribute < len(schema):
                d[kernel.FIRST + attribute] = 1
        self.address = int(kernel.sort_windows.address)
        self.resize("last", len(together) + len(node.keys) + kernel.PIECE, np.int64)
        self._more_windows(_WINDOWS)
        self.more_slots(STEP)

    def _more_windows(self, room: int) -> None:
        self.resize("windows", kernel.WINDOW_WORDS * room, np.int64)
        self.descriptor[kernel.ROOM] = room
        self.bind()

    def _room_to_sort(self, rows: int) -> None:
        room = 1 << (rows - 1).bit_length()
        self.resize("leads", 2 * room, np.int64)
        self.resize("order", 2 * room, np.int32)
        self.bound(kernel.SORTED, room)
        self.bind()

    # -- called by the runtime -------------------------------------------------------------------

    def provide(self, morsel: Morsel) -> None:
        d, wanted = self.descriptor, int(morsel.words[DETAIL_ROW])
        match int(morsel.words[DETAIL]):
            case kernel.NEED_SLOTS:
                self.more_slots(int(d[HELD]) + wanted)
            case kernel.NEED_WINDOWS:
                self._more_windows(2 * int(d[kernel.ROOM]))
            case kernel.NEED_ORDER:
                self._room_to_sort(wanted)
            case _:
                self.refresh()

    def counters(self) -> dict[str, int]:
        d = self.descriptor
        return {
            "rows_in": int(d[kernel.ROWS_IN]),
            "rows_out": int(d[kernel.ROWS_OUT]),
            "over_limit": int(d[kernel.OVER_LIMIT]),
            "late_rows": int(d[kernel.LATE]),
            "held": int(d[HELD]),
        }
