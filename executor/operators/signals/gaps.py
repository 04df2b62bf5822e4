"""GAPS as a running operator: the gaps of a signal (``kernels.signals.gaps``)."""

from __future__ import annotations

import numpy as np

from cql.executor.kernels.signals import gaps as kernel
from cql.executor.morsel.morsel import Words
from cql.executor.operators.contract import Operator
from cql.executor.operators.workspace import Workspace
from cql.executor.state.store import Snapshot, plain_words, take_plain_words

_BOUND = (kernel.TIMEBASES,)


class GapsOperator(Operator):
    """State: the time at which the next sample is due."""

    def __init__(self, name: str, workspace: Workspace) -> None:
        self.name, self._store = name, workspace.signals
        self.descriptor: Words = np.zeros(kernel.WORDS, np.int64)
        self.descriptor[kernel.TIMEBASES] = self._store.timebases.ctypes.data
        self.address = int(kernel.gaps.address)

    def snapshot(self) -> Snapshot:
        return Snapshot({}, plain_words(self.descriptor, _BOUND))

    def restore(self, saved: Snapshot) -> None:
        """Continues with the state of an operator of the same plan."""
        take_plain_words(saved.words, self.descriptor, _BOUND, self.name)

    def counters(self) -> dict[str, int]:
        came, went = (int(self.descriptor[k]) for k in (kernel.ROWS_IN, kernel.ROWS_OUT))
        return {"rows_in": came, "rows_out": went}
