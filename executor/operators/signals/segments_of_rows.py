"""Rows that are the samples of a signal become segments, with a copy of the samples
(``kernels.signals.segments_of_rows``). A source itself gives segments without one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cql.executor.kernels.morsel_layout import PHASE, ROWS
from cql.executor.kernels.signals import segments_of_rows as kernel
from cql.executor.morsel.morsel import Morsel, Words
from cql.executor.operators.contract import Operator
from cql.executor.operators.signals.followed_runs import WORDS, FollowedRuns
from cql.executor.operators.signals.samples import column_of, valid_in
from cql.executor.operators.workspace import Workspace
from cql.executor.state.stateful import Stateful
from cql.executor.state.store import Role, Snapshot, StateStore
from cql.planner.nodes.physical import SegmentsExec


class SegmentsOperator(Operator):
    """State: how far the signal is. Nothing is kept of the samples."""

    def __init__(self, name: str, node: SegmentsExec, workspace: Workspace) -> None:
        self.name, self._schema, self._time = name, node.input.schema, node.signal.time
        self._channels = [k for k in range(len(self._schema)) if k != self._time]
        self._segments = workspace.signals
        self.descriptor: Words = np.zeros(kernel.WORDS, np.int64)
        self.descriptor[kernel.CHANNELS] = len(self._channels)
        self._store = StateStore(name, workspace)
        self._store.bound = {kernel.RUNS, kernel.SEGMENTS_AT}
        self._store.resize("runs", WORDS, np.int64)
        room = workspace.morsel_rows * len(self._channels)
        self._store.resize("segments", room, np.int64, Role.SCRATCH)
        self.descriptor[kernel.SEGMENTS_AT] = self._store.arrays["segments"].ctypes.data
        self._runs = FollowedRuns(node.signal, self._store.arrays["runs"], node.name)
        self.address = int(kernel.segments_of_rows.address)

    @property
    def fills(self) -> bool:
        return True

    def provide(self, morsel: Morsel) -> None:
        """Finds the runs of a morsel, and makes their segments. Raises RunError if the store is
        full, or for times that segments cannot have."""
        n, store = int(morsel.words[ROWS]), self._segments
        columns = [column_of(morsel, self._schema, c) for c in range(len(self._schema))]
        times = None if self._time is None else columns[self._time]
        made = self._store.arrays["segments"]
        at = 0
        for run, _ in self._runs.of(n, times, valid_in(morsel, self._schema)):
            base = store.number_of(run.base)
            for c in self._channels:
                samples = columns[c][run.first : run.first + run.samples]
                made[at] = store.make(base, run.start, samples)
                at += 1
            store.leave(base)
        self.descriptor[kernel.RUNS] = at // len(self._channels)
        morsel.words[PHASE] = 1

    @property
    def parts(self) -> Sequence[Stateful]:
        return (self._store,)

    def snapshot(self) -> Snapshot:
        """The state; the runtime has no morsel inside."""
        return self._store.snapshot(self.descriptor)

    def restore(self, saved: Snapshot) -> None:
        """Continues with the state of an operator of the same plan."""
        self._store.restore(saved, self.descriptor)
        self._runs.load(self._store.arrays["runs"])

    def counters(self) -> dict[str, int]:
        """Rows, samples of each channel, and what interrupts them."""
        d = self.descriptor
        rows = {"rows_in": int(d[kernel.ROWS_IN]), "rows_out": int(d[kernel.ROWS_OUT])}
        return rows | self._runs.counters()
