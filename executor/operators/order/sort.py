"""ORDER BY … LIMIT and ROW_NUMBER() within a window: rows wait until punctuation closes their
window (``kernels.order.window_sort``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from cql.executor.kernels.morsel_layout import DETAIL, DETAIL_ROW, INFINITY, NEVER
from cql.executor.kernels.order import window_sort as kernel
from cql.executor.kernels.order.row_slab import HELD, OWN, SLOTS
from cql.executor.morsel.morsel import Morsel
from cql.executor.operators.order.row_slab import (
    SLOT,
    STEP,
    SlabOperator,
    free_the_rest,
    key_columns,
    slots_for,
)
from cql.executor.operators.workspace import Workspace
from cql.executor.state.repartition import Owners, Taken, gather, shared_words, taken_by_owner
from cql.executor.state.store import Snapshot
from cql.planner.nodes.expr import Column
from cql.planner.nodes.logical import SortKey
from cql.planner.nodes.physical import SortExec

_WINDOWS = 16
#: A LIMIT that excludes no row; twice this number still fits into int64.
_MOST = 1 << 60
#: Rows that wait beyond twice OFFSET + LIMIT before a list is cut.
_FEW = 16
#: Rows that wait before a list is cut by the LIMIT of partitions: most windows have fewer.
_LONG = 1 << 14


class SortOperator(SlabOperator):
    """State: the slab, the open ``windows``, and buffers (``leads``, ``order``, ``last``) to
    sort one window. ``numbered``: the output of this partition has order columns
    (``stage.spec.ORDER``): the end of the window, and the first column of the partition."""

    addresses: ClassVar = {
        "windows": kernel.WINDOWS,
        "leads": kernel.LEADS,
        "order": kernel.ORDER,
        "last": kernel.LAST,
    }
    scratch = frozenset(("leads", "order", "last"))

    def __init__(
        self, name: str, node: SortExec, workspace: Workspace, *, numbered: bool = False
    ) -> None:
        schema = node.input.schema
        assert node.number is None or not node.offset
        self._split_columns = node.split_columns
        together = [
            SortKey(Column(c, schema[c].name, schema[c].type, True), False, True)
            for c in node.partition
        ]
        own = kernel.FIRST - OWN + len(schema)
        super().__init__(name, schema, [*together, *node.keys], own, workspace)
        d = self.descriptor
        d[kernel.WINDOW] = -1 if node.window_end is None else node.window_end
        d[kernel.FIRST_OUT] = node.offset
        d[[kernel.LAST_OUT, kernel.LONG]] = INFINITY
        if node.limit is not None:
            last = min(node.offset + node.limit, _MOST)
            d[kernel.LAST_OUT] = last
            d[kernel.LONG] = 2 * last + _FEW if node.number is None else _LONG
        self.bound(kernel.ORDERED, numbered)
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

    # -- other partitions ------------------------------------------------------------------------

    def repartition(self, saved: Sequence[Snapshot], owners: Owners) -> list[Snapshot]:
        """Of rows that are equal in the partition of ROW_NUMBER(), all are of one old snapshot, so
        that its lists tell the order in which they came."""
        if not self._split_columns:
            return super().repartition(saved, owners)
        lists = [_lists(one) for one in saved]
        takes = [Taken() for _ in range(owners.parts)]
        for k, (one, found) in enumerate(zip(saved, lists, strict=True)):
            slots = np.concatenate([np.zeros(0, np.int64), *found.values()])
            keys = key_columns(self.schema, self._split_columns, one, slots)
            own = owners.of(keys, len(slots))
            taken_by_owner(k, SLOT, slots, own, int(one.words[SLOTS]), takes)
        return [self._part(saved, lists, taken, q) for q, taken in enumerate(takes)]

    def _part(
        self,
        saved: Sequence[Snapshot],
        lists: Sequence[Mapping[int, npt.NDArray[np.int64]]],
        taken: Taken,
        number: int,
    ) -> Snapshot:
        rows = taken.count(SLOT)
        arrays = gather(self.layout, [one.arrays for one in saved], taken, {SLOT: slots_for(rows)})
        sums = kernel.ROWS_IN, kernel.ROWS_OUT, kernel.LATE, kernel.OVER_LIMIT
        words = shared_words(saved, number, sums)
        free_the_rest(arrays, words, rows)
        windows = []
        for end in sorted({end for found in lists for end in found}):
            parts = [taken.numbers(k, SLOT, f[end]) for k, f in enumerate(lists) if end in f]
            slots = np.concatenate(parts)
            slots = slots[slots >= 0]
            if len(slots):
                arrays["next"][slots] = [*slots[1:], -1]
                full = max(int(words[kernel.LONG]), 2 * len(slots))
                windows.append([end, slots[0], slots[-1], len(slots), -1, full])
        room = max(_WINDOWS, 1 << len(windows).bit_length())
        arrays["windows"] = np.zeros(kernel.WINDOW_WORDS * room, np.int64)
        records = np.array(windows, np.int64).reshape(-1)
        arrays["windows"][: len(records)] = records
        words[[kernel.OPEN, kernel.ROOM]] = len(windows), room
        return Snapshot(arrays, words)

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


def _lists(saved: Snapshot) -> dict[int, npt.NDArray[np.int64]]:
    """The slots of the rows of each open window, by its end, in the order in which they came."""
    links, found = saved.arrays["next"], {}
    records = saved.arrays["windows"].reshape(-1, kernel.WINDOW_WORDS)
    for record in records[: saved.words[kernel.OPEN]]:
        slots = np.zeros(record[kernel.COUNT], np.int64)
        slot = int(record[kernel.HEAD])
        for k in range(len(slots)):
            slots[k] = slot
            slot = int(links[slot])
        found[int(record[kernel.END])] = slots
    return found
