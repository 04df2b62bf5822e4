"""Rewindow as a running operator: a signal in windows (``kernels.signals.rewindow``)."""

from __future__ import annotations

from cql.executor.kernels.signals import rewindow as kernel
from cql.executor.operators.signals.held_segments import HoldsSegments
from cql.executor.operators.workspace import Workspace
from cql.planner.nodes.physical import RewindowExec


class RewindowOperator(HoldsSegments):
    """State: of each channel, the segment with the samples that later windows need."""

    def __init__(self, name: str, node: RewindowExec, workspace: Workspace) -> None:
        channels = len(node.input.schema)
        addresses = (kernel.STORE_AT, kernel.TIMEBASES)
        super().__init__(name, workspace, kernel.FIRST, channels, addresses)
        d = self.descriptor
        d[kernel.CHANNELS] = channels
        d[kernel.STORE_AT] = self._store.address
        d[kernel.TIMEBASES] = self._store.timebases.ctypes.data
        d[[kernel.SIZE, kernel.SLIDE]] = node.size, node.slide
        d[[kernel.BY_TIME, kernel.WITH_RESTS]] = node.by_time, node.rests
        self.address = int(kernel.rewindow.address)

    def counters(self) -> dict[str, int]:
        """``rests``: samples of each channel at the ends of runs that no whole window covers."""
        d = self.descriptor
        return {
            "rows_in": int(d[kernel.ROWS_IN]),
            "rows_out": int(d[kernel.ROWS_OUT]),
            "samples_in": int(d[kernel.SAMPLES_IN]),
            "runs": int(d[kernel.RUNS]),
            "rests": int(d[kernel.RESTS]),
        }
