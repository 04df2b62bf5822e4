"""FILL as a running operator: the short gaps of a signal become samples
(``kernels.signals.fill``)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cql.executor.kernels.signals import fill as kernel
from cql.executor.morsel.morsel import Morsel, Words
from cql.executor.operators.contract import CodeColumn, Operator
from cql.executor.operators.signals import saved_segments
from cql.executor.operators.workspace import Workspace
from cql.executor.state.store import Snapshot, plain_words, take_plain_words
from cql.planner.nodes.physical import FillExec


class FillOperator(Operator):
    """State: of each channel the last sample, and when the next one is due."""

    def __init__(self, name: str, node: FillExec, workspace: Workspace) -> None:
        self.name, self._store = name, workspace.signals
        channels = len(node.schema)
        d: Words = np.zeros(kernel.FIRST + channels, np.int64)
        d[kernel.CHANNELS] = channels
        d[kernel.STORE_AT] = self._store.address
        d[kernel.TIMEBASES] = self._store.timebases.ctypes.data
        d[[kernel.LONGEST, kernel.LINEAR]] = node.longest, node.linear
        d[kernel.FIRST :] = -1
        self.descriptor = d
        self.address = int(kernel.fill.address)

    @property
    def fills(self) -> bool:
        return True

    def provide(self, morsel: Morsel) -> None:
        """The store is full: raises RunError."""
        self._store.check()

    def snapshot(self) -> Snapshot:
        """The words, and the last samples."""
        d = self.descriptor
        held = [n for n in d[kernel.FIRST :].tolist() if n >= 0]
        parts = {"segments": saved_segments.save(self._store, held)}
        return Snapshot({}, plain_words(d, self._bound()), parts)

    def restore(self, saved: Snapshot) -> None:
        """Continues with the state of an operator of the same plan."""
        take_plain_words(saved.words, self.descriptor, self._bound(), self.name)
        held = saved_segments.restore(self._store, saved.parts["segments"])
        self.descriptor[kernel.FIRST : kernel.FIRST + len(held)] = held

    def _bound(self) -> list[int]:
        """The words that belong to this process: addresses, and the numbers of segments."""
        return [kernel.STORE_AT, kernel.TIMEBASES, *range(kernel.FIRST, self.descriptor.size)]

    def map_codes(self, change: Callable[[CodeColumn], CodeColumn]) -> None:
        """Does nothing: samples are numbers."""

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
