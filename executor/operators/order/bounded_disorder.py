"""The running slack: derives the watermark from the order of arrival
(``kernels.ingest.bounded_disorder``; out-of-order paper §2, option 2)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cql.executor.kernels.ingest import bounded_disorder as kernel
from cql.executor.kernels.ingest.cutter import BUCKETS
from cql.executor.kernels.morsel_layout import INFINITY, NEVER
from cql.executor.morsel.morsel import Words, value_bytes
from cql.executor.operators.contract import Disorder, Operator
from cql.executor.operators.workspace import Workspace
from cql.executor.state.stateful import Stateful
from cql.executor.state.store import Snapshot, StateStore
from cql.planner.nodes.physical import SlackExec


class SlackOperator(Operator):
    """State: for a slack of n rows, a heap of the n + 1 highest times so far; for a slack in time,
    the descriptor alone."""

    def __init__(self, name: str, node: SlackExec, workspace: Workspace) -> None:
        self.name = name
        field = node.schema[node.attribute]
        room = 0 if node.rows is None else node.rows + 1
        self._store = StateStore(name, workspace)
        self._store.bound |= {kernel.HEAP, kernel.BEHIND}
        self._store.resize("heap", room, np.int64)
        #: Histogram: rows by their distance below the highest time before them.
        self._store.resize("behind", BUCKETS, np.int64)
        self.descriptor: Words = np.zeros(kernel.WORDS, np.int64)
        d = self.descriptor
        d[[kernel.COLUMNS, kernel.ATTRIBUTE]] = len(node.schema), node.attribute
        d[[kernel.SIZE, kernel.NULLABLE]] = value_bytes(field.type), field.nullable
        d[[kernel.INTERVAL, kernel.COUNT]] = node.interval or 0, room - 1
        d[[kernel.HIGHEST, kernel.PUNCTUATED]] = NEVER
        d[kernel.MOST] = INFINITY if node.max_advance is None else node.max_advance
        self._bind()
        self.address = int(kernel.slack.address)

    def _bind(self) -> None:
        for name, word in (("heap", kernel.HEAP), ("behind", kernel.BEHIND)):
            self.descriptor[word] = self._store.arrays[name].ctypes.data

    @property
    def parts(self) -> Sequence[Stateful]:
        return (self._store,)

    def disorder(self) -> Disorder:
        d = self.descriptor
        return Disorder(
            int(d[kernel.LATE]),
            int(d[kernel.ROWS_SEEN]),
            int(d[kernel.INTERVAL]) if d[kernel.COUNT] < 0 else None,
            int(d[kernel.MAX_LATENESS]),
            self._store.arrays["behind"],
        )

    def snapshot(self) -> Snapshot:
        """The heap, the histogram and the descriptor; the runtime has no morsel inside."""
        return self._store.snapshot(self.descriptor)

    def restore(self, saved: Snapshot) -> None:
        """Continues with the state of an operator of the same plan."""
        self._store.restore(saved, self.descriptor)
        self._bind()

    def counters(self) -> dict[str, int]:
        rows = int(self.descriptor[kernel.ROWS_SEEN])
        late = int(self.descriptor[kernel.LATE])
        far = int(self.descriptor[kernel.FAR] - self.descriptor[kernel.CONFIRMED])
        reported = {"far_ahead": far} if far else {}
        return {"rows_in": rows, "rows_out": rows, "behind_slack": late, **reported}
