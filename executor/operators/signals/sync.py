"""Sync as a running operator: the segments of a signal for ranges of time
(``kernels.signals.sync``)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from cql.base.types import Kind
from cql.executor.kernels.morsel_layout import DETAIL, DETAIL_ROW, NEVER
from cql.executor.kernels.order.row_slab import HELD, OWN, SLOTS
from cql.executor.kernels.signals import sync as kernel
from cql.executor.morsel.morsel import Morsel
from cql.executor.operators.order.row_slab import SlabOperator, used_slots
from cql.executor.operators.signals import saved_segments
from cql.executor.operators.workspace import Workspace
from cql.executor.state.store import Role, Snapshot
from cql.planner.nodes.physical import SyncExec

_RUNS = 16


class SyncOperator(SlabOperator):
    """State: the rows whose ranges the signal has not passed, with the numbers of the segments in
    them, and ``runs``: of each run of the signal that they need, the numbers of the segments of its
    channels."""

    addresses: ClassVar = {"runs": kernel.RUNS}

    def __init__(self, name: str, node: SyncExec, workspace: Workspace) -> None:
        live = node.left.progressing
        kinds = [f.type.kind for f in node.left.schema]
        self._signals = [c for c, kind in enumerate(kinds) if kind is Kind.SIGNAL]
        behind = kernel.PROGRESS + kernel.ATTRIBUTE * len(live)
        own = behind + len(self._signals) - OWN
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
        d[kernel.SIGNALS] = len(self._signals)
        d[behind : behind + len(self._signals)] = self._signals
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
        """The waiting rows, the segments in them, and those of the runs."""
        held, saved = self.state["runs"][: self._held].tolist(), super().snapshot()
        arrays = dict(saved.arrays)
        for c, slots in self._places(saved):
            held += arrays[f"c{c}"][slots].tolist()
            arrays[f"c{c}"] = np.zeros_like(arrays[f"c{c}"])  # numbers of this process
        parts = {"segments": saved_segments.save(self._store, held)}
        return replace(saved, arrays=arrays, parts=parts)

    def restore(self, saved: Snapshot) -> None:
        """Continues with the state of an operator of the same plan. ``map_codes`` follows."""
        super().restore(saved)
        while self._held > self.state["runs"].size:
            self._more_runs()
        held = saved_segments.restore(self._store, saved.parts["segments"])
        self.state["runs"][: self._held], held = held[: self._held], held[self._held :]
        for c, slots in self._places(saved):
            self.state[f"c{c}"][slots], held = held[: len(slots)], held[len(slots) :]

    def _places(self, saved: Snapshot) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
        """The columns with segments, and the slots that have one."""
        if not self._signals or not saved.words[SLOTS]:
            return
        used = used_slots(saved)
        for c in self._signals:
            mask = saved.arrays.get(f"m{c}")
            yield c, used if mask is None else used[mask[used] != 0]

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
