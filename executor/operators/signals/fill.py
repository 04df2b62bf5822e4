"""FILL as a running operator: the short gaps of a signal become samples
(``kernels.signals.fill``)."""

from __future__ import annotations

from cql.executor.kernels.signals import fill as kernel
from cql.executor.operators.signals.held_segments import HoldsSegments
from cql.executor.operators.workspace import Workspace
from cql.planner.nodes.physical import FillExec


class FillOperator(HoldsSegments):
    """State: of each channel the last sample, and when the next one is due."""

    def __init__(self, name: str, node: FillExec, workspace: Workspace) -> None:
        channels = len(node.schema)
        addresses = (kernel.STORE_AT, kernel.TIMEBASES)
        super().__init__(name, workspace, kernel.FIRST, channels, addresses)
        d = self.descriptor
        d[kernel.CHANNELS] = channels
        d[kernel.STORE_AT] = self._store.address
        d[kernel.TIMEBASES] = self._store.timebases.ctypes.data
        d[[kernel.LONGEST, kernel.LINEAR]] = node.longest, node.linear
        self.address = int(kernel.fill.address)

    def counters(self) -> dict[str, int]:
        """``filled``: gaps, with ``filled_samples`` of each channel; ``left``: longer gaps."""
        d = self.descriptor
        return {
            "rows_in": int(d[kernel.ROWS_IN]),
            "rows_out": int(d[kernel.ROWS_OUT]),
            "filled": int(d[kernel.FILLED]),
            "filled_samples": int(d[kernel.FILLED_SAMPLES]),
            "left": int(d[kernel.LEFT]),
        }
