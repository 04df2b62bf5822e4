"""Rewindow as a running operator: a signal in windows (``kernels.signals.rewindow``)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cql.errors import NotSupportedError
from cql.executor.kernels.signals import rewindow as kernel
from cql.executor.morsel.morsel import Morsel, Words
from cql.executor.operators.contract import CodeColumn, Operator
from cql.executor.operators.workspace import Workspace
from cql.executor.state.store import Snapshot
from cql.planner.nodes.physical import RewindowExec


class RewindowOperator(Operator):
    """State: of each channel, the segment with the samples that later windows need."""

    def __init__(self, name: str, node: RewindowExec, workspace: Workspace) -> None:
        self.name, self._store = name, workspace.signals
        channels = len(node.input.schema)
        d: Words = np.zeros(kernel.FIRST + channels, np.int64)
        d[kernel.CHANNELS] = channels
        d[kernel.STORE_AT] = self._store.address
        d[kernel.TIMEBASES] = self._store.timebases.ctypes.data
        d[[kernel.SIZE, kernel.SLIDE]] = node.size, node.slide
        d[kernel.BY_TIME] = node.by_time
        d[kernel.FIRST :] = -1
        self.descriptor = d
        self.address = int(kernel.rewindow.address)

    @property
    def fills(self) -> bool:
        return True

    def provide(self, morsel: Morsel) -> None:
        """The store is full: raises RunError."""
        self._store.check()

    def snapshot(self) -> Snapshot:
        raise NotSupportedError("a checkpoint of segments of signals is not supported")

    def restore(self, saved: Snapshot) -> None:
        raise NotSupportedError("a checkpoint of segments of signals is not supported")

    def map_codes(self, change: Callable[[CodeColumn], CodeColumn]) -> None:
        """Does nothing: samples are numbers."""

    def counters(self) -> dict[str, int]:
        """``rests``: samples of each channel at the ends of runs that are in no window."""
        d = self.descriptor
        return {
            "rows_in": int(d[kernel.ROWS_IN]),
            "rows_out": int(d[kernel.ROWS_OUT]),
            "samples_in": int(d[kernel.SAMPLES_IN]),
            "runs": int(d[kernel.RUNS]),
            "rests": int(d[kernel.RESTS]),
        }
