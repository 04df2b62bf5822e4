"""ZIP as a running operator: two signals side by side (``kernels.signals.zip``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cql.errors import RunError
from cql.executor.kernels.morsel_layout import DETAIL, PORT
from cql.executor.kernels.signals import zip as kernel
from cql.executor.morsel.morsel import Morsel, Words
from cql.executor.operators.contract import Operator
from cql.executor.operators.signals import saved_segments
from cql.executor.operators.workspace import Workspace
from cql.executor.state.stateful import Stateful
from cql.executor.state.store import Role, Snapshot, StateStore
from cql.planner.nodes.physical import ZipExec

_RUNS = 16
_SIDES = ("left", "right")


class ZipOperator(Operator):
    """State: of each signal the runs that wait for the other one, with the numbers of the segments
    of their channels."""

    def __init__(self, name: str, node: ZipExec, workspace: Workspace) -> None:
        self.name, self._segments = name, workspace.signals
        self._store = StateStore(name, workspace)
        self._store.bound = {
            kernel.STORE_AT,
            kernel.TIMEBASES,
            *(word + p for word in (kernel.RUNS, kernel.RUN_ROOM) for p in range(2)),
        }
        self.descriptor: Words = np.zeros(kernel.WORDS, np.int64)
        d = self.descriptor
        d[kernel.STORE_AT] = self._segments.address
        d[kernel.TIMEBASES] = self._segments.timebases.ctypes.data
        d[kernel.TOLERANCE] = node.tolerance
        d[[kernel.CHANNELS, kernel.CHANNELS + 1]] = [len(i.schema) for i in node.inputs]
        for p in range(2):
            self._more_runs(p)
        self.address = int(kernel.zip_signals.address)

    def _more_runs(self, p: int) -> None:
        d = self.descriptor
        room = max(_RUNS, 2 * int(d[kernel.RUN_ROOM + p]))
        channels = int(d[kernel.CHANNELS + p])
        self._store.resize(_SIDES[p], room * channels, np.int64, Role.DERIVED)
        d[kernel.RUN_ROOM + p] = room
        d[kernel.RUNS + p] = self._store.arrays[_SIDES[p]].ctypes.data

    @property
    def fills(self) -> bool:
        return True

    def provide(self, morsel: Morsel) -> None:
        """Makes room, or raises RunError: the segment store is full, or the samples are too far
        apart."""
        request, d = int(morsel.words[DETAIL]), self.descriptor
        if request == kernel.NEED_RUNS:
            self._more_runs(int(morsel.words[PORT]))
        elif request == kernel.NEED_PHASE:
            apart, most = (int(d[k]) / 1000 for k in (kernel.APART, kernel.TOLERANCE))
            raise RunError(
                f"the samples of the signals of ZIP are {apart:,.9g} microseconds apart, more than"
                f" their TOLERANCE of {most:,.9g}",
                hint="declare a longer TOLERANCE, at most half the time from a sample to the next",
            )
        else:
            self._segments.check()

    @property
    def parts(self) -> Sequence[Stateful]:
        return (self._store,)

    def snapshot(self) -> Snapshot:
        """The words, and the segments of the runs."""
        parts = {
            side: saved_segments.save(self._segments, self._held(p))
            for p, side in enumerate(_SIDES)
        }
        return replace(self._store.snapshot(self.descriptor), parts=parts)

    def restore(self, saved: Snapshot) -> None:
        """Continues with the state of an operator of the same plan."""
        self._store.restore(saved, self.descriptor)
        for p, side in enumerate(_SIDES):
            while self.descriptor[kernel.RUN_COUNT + p] > self.descriptor[kernel.RUN_ROOM + p]:
                self._more_runs(p)
            held = saved_segments.restore(self._segments, saved.parts[side])
            self._store.arrays[side][: len(held)] = held

    def _held(self, p: int) -> list[int]:
        """The numbers of the segments of the runs of signal ``p``."""
        d = self.descriptor
        count = int(d[kernel.RUN_COUNT + p] * d[kernel.CHANNELS + p])
        held: list[int] = self._store.arrays[_SIDES[p]][:count].tolist()
        return held

    def counters(self) -> dict[str, int]:
        """``left_alone``, ``right_alone``: samples of a signal that the other one lacks."""
        d = self.descriptor
        return {
            "rows_in": int(d[kernel.ROWS_IN]),
            "rows_out": int(d[kernel.ROWS_OUT]),
            "left_alone": int(d[kernel.UNPAIRED]),
            "right_alone": int(d[kernel.UNPAIRED + 1]),
        }
