"""Sync as a running operator: the segments of a signal for ranges of time
(``kernels.signals.sync``)."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np

from cql.executor.kernels.morsel_layout import DETAIL, DETAIL_ROW, NEVER
from cql.executor.kernels.order.row_slab import HELD, OWN
from cql.executor.kernels.signals import sync as kernel
from cql.executor.morsel.morsel import Morsel
from cql.executor.operators.order.row_slab import SlabOperator
from cql.executor.operators.signals import saved_segments
from cql.executor.operators.workspace import Workspace
from cql.executor.state.store import Role, Snapshot
from cql.planner.nodes.physical import SyncExec

_RUNS = 16


class SyncOperator(SlabOperator):
    """State: the rows whose ranges the signal has not passed, and ``runs``: of each run of the
    signal that they need, the numbers of the segments of its channels."""

    addresses: ClassVar = {"runs": kernel.RUNS}

    def __init__(self, name: str, node: SyncExec, workspace: Workspace) -> None:
        live = node.left.progressing
        own = kernel.PROGRESS + kernel.ATTRIBUTE * len(live) - OWN
        super().__init__(name, node.left.schema, (), own, workspace)
        self._store, d = workspace.signals, self.descriptor
        d[kernel.CHANNELS] = self._channels = len(node.right.schema)
        self.bound(kernel.STORE_AT, self._store.address)
        self.bound(kernel.TIMEBASES, self._store.timebases.ctypes.data)
        d[[kernel.BEGIN, kernel.END]] = node.begin, node.end
        d[[kernel.AFTER, kernel.BEFORE]] = node.after, node.before
        d[[kernel.FIRST, kernel.LAST, kernel.ROW]] = -1
        d[kernel.WATERMARK] = NEVER
        d[kernel.PROGRESSING] = len(live)
        for k, column in enumerate(live):
            at = kernel.PROGRESS + kernel.ATTRIBUTE * k
            d[at : at + 2] = column, NEVER
        self._more_runs()
        self.address = int(kernel.sync.address)

    def _more_runs(self) -> None:
        d = self.descriptor
        room = max(_RUNS, 2 * int(d[kernel.RUN_ROOM]))
        self.store.resize("runs", room * self._channels, np.int64, Role.DERIVED)
        self.bound(kernel.RUN_ROOM, room)
        self.bind()

    @property
    def fills(self) -> bool:
        return True

    @property
    def numbers_rows(self) -> bool:
        return True

    def provide(self, morsel: Morsel) -> None:
        """Makes room, or raises RunError if the segment store is full."""
        request, wanted = (int(morsel.words[k]) for k in (DETAIL, DETAIL_ROW))
        if request == kernel.NEED_SLOTS:
            self.more_slots(int(self.descriptor[HELD]) + wanted)
        elif request == kernel.NEED_RUNS:
            self._more_runs()
        else:
            self._store.check()

    def snapshot(self) -> Snapshot:
        """The waiting rows, and the segments of the runs."""
        held = self.state["runs"][: self._held].tolist()
        parts = {"segments": saved_segments.save(self._store, held)}
        return replace(super().snapshot(), parts=parts)

    def restore(self, saved: Snapshot) -> None:
        """Continues with the state of an operator of the same plan. ``map_codes`` follows."""
        super().restore(saved)
        while self._held > self.state["runs"].size:
            self._more_runs()
        held = saved_segments.restore(self._store, saved.parts["segments"])
        self.state["runs"][: len(held)] = held

    @property
    def _held(self) -> int:
        """The number of segments that the runs have."""
        return int(self.descriptor[kernel.RUN_COUNT]) * self._channels

    def counters(self) -> dict[str, int]:
        """``empty``: ranges without samples; ``over_gaps``: ranges with samples of several runs."""
        d = self.descriptor
        return {
            "rows_in": int(d[kernel.ROWS_IN]),
            "rows_out": int(d[kernel.ROWS_OUT]),
            "late": int(d[kernel.LATE]),
            "empty": int(d[kernel.EMPTY]),
            "over_gaps": int(d[kernel.OVER_GAPS]),
            "held": int(d[HELD]),
        }
