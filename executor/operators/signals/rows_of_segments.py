"""The samples of segments as rows, with a copy of the samples
(``kernels.signals.rows_of_segments``)."""

from __future__ import annotations

import numpy as np

from cql.executor.kernels.signals import rows_of_segments as kernel
from cql.executor.operators.contract import Operator
from cql.executor.operators.workspace import Workspace
from cql.executor.state.store import Snapshot, plain_words, take_plain_words
from cql.planner.nodes.physical import SamplesExec

_BOUND = (kernel.TIMEBASES,)


class SamplesOperator(Operator):
    """State: the time of the last sample. Nothing is kept of the samples."""

    def __init__(self, name: str, node: SamplesExec, workspace: Workspace) -> None:
        self.name, self._store = name, workspace.signals
        columns, channels = len(node.fields), iter(node.channels)
        d = self.descriptor = np.zeros(kernel.FIRST + 2 * columns, np.int64)
        d[[kernel.COLUMNS, kernel.CHANNELS]] = columns, len(node.input.schema)
        d[kernel.TIMEBASES] = self._store.timebases.ctypes.data
        d[kernel.TIME] = -1 if node.time is None else node.time
        shown = [-1 if k == node.time else next(channels) for k in range(columns)]
        d[kernel.FIRST :: 2] = shown
        d[kernel.FIRST + 1 :: 2] = [f.nullable for f in node.fields]
        self.address = int(kernel.rows_of_segments.address)

    def snapshot(self) -> Snapshot:
        """The words; the runtime has no morsel inside."""
        return Snapshot({}, plain_words(self.descriptor, _BOUND))

    def restore(self, saved: Snapshot) -> None:
        """Continues with the state of an operator of the same plan."""
        take_plain_words(saved.words, self.descriptor, _BOUND, self.name)

    def counters(self) -> dict[str, int]:
        came, went = (int(self.descriptor[k]) for k in (kernel.ROWS_IN, kernel.ROWS_OUT))
        return {"rows_in": came, "rows_out": went}
