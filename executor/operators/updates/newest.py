"""The running union of update streams: rows that are not newer than the newest one of their key do
not leave (``kernels.updates.newest``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from cql.executor.kernels.flow import chosen_rows
from cql.executor.kernels.updates import newest as kernel
from cql.executor.morsel.morsel import Words
from cql.executor.operators.flow.chosen_rows import LEAST, ChosenRowsOperator
from cql.executor.operators.relations.group_index import columns_of, gather_index, live_ids
from cql.executor.operators.workspace import Workspace
from cql.executor.state.repartition import (
    Owners,
    Taken,
    Values,
    each,
    gather,
    shared_words,
    taken_by_owner,
)
from cql.executor.state.store import BUFFERS, Snapshot
from cql.planner.nodes.physical import NewestExec

#: Rows between the watermarks at which keys are forgotten.
EVERY = 1 << 16
#: The space of the keys (``state.repartition``).
_KEY = "key"
_LAYOUT = {"newest": Values(_KEY, kernel.RECORD)}
#: Words of a snapshot that partitions share: counters, and the number of removed keys (the last).
_SUMS = (
    *(chosen_rows.ROWS_IN, chosen_rows.ROWS_LEFT),
    *(kernel.SUPERSEDED, kernel.CONFLICTING, kernel.LATE, -1),
)


class NewestOperator(ChosenRowsOperator):
    """``numbered``: the output of this partition has the order columns (``stage.spec.ORDER``): both
    are the place of a row in the input.

    State: the index of the keys, and ``newest``: of each key the time of its newest row, the hash
    of this row's content, and whether an input that is the source of truth gave it."""

    bound: ClassVar = (
        *ChosenRowsOperator.bound,
        *(kernel.EVERY, kernel.NUMBERED, kernel.NEWEST, kernel.HASHES, kernel.TEXT_HASHES),
    )

    def __init__(
        self, name: str, node: NewestExec, workspace: Workspace, *, numbered: bool = False
    ) -> None:
        super().__init__(name, node.input.schema, node.key, node.time, workspace)
        self.node = node
        self.store.resize("newest", 0, np.int64)
        self._hashes: Words = np.zeros(workspace.morsel_rows, np.int64)
        workspace.resize(0, self._hashes.nbytes, BUFFERS)
        d = self.descriptor
        d[[kernel.GIVEN, kernel.NUMBERED, kernel.EVERY]] = len(node.schema), numbered, EVERY
        d[kernel.HASHES] = self._hashes.ctypes.data
        d[kernel.TEXT_HASHES] = workspace.dictionary.hashes_at.ctypes.data
        self.address = int(kernel.newest.address)
        self.bind()

    def times(self, ids: Words) -> Words:
        found: Words = self._newest.reshape(-1, kernel.RECORD)[ids, kernel.TIME]
        return found

    @property
    def _newest(self) -> Words:
        return self.store.arrays["newest"]

    def bind(self) -> None:
        size = kernel.RECORD * self._index.capacity
        if size > self._newest.size:
            self.store.resize("newest", size, np.int64)
        self.descriptor[kernel.NEWEST] = self._newest.ctypes.data
        super().bind()

    def counters(self) -> dict[str, int]:
        d = self.descriptor
        return {
            "rows_in": int(d[chosen_rows.ROWS_IN]),
            "rows_out": int(d[chosen_rows.ROWS_LEFT]),
            "held": self.held,
            "superseded": int(d[kernel.SUPERSEDED]),
            "conflicting": int(d[kernel.CONFLICTING]),
            "late_rows": int(d[kernel.LATE]),
        }

    # -- snapshots -------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        return replace(super().snapshot(), arrays={"newest": self._newest.copy()})

    def restore(self, saved: Snapshot) -> None:
        newest = saved.arrays["newest"]
        self.store.resize("newest", newest.size, np.int64, keeps=False, clears=False)
        self._newest[:] = newest
        super().restore(saved)

    def repartition(self, saved: Sequence[Snapshot], owners: Owners) -> list[Snapshot]:
        takes = [Taken() for _ in range(owners.parts)]
        for k, index in enumerate(each(saved, "keys")):
            ids, keys = live_ids(index), index.arrays["keys"]
            own = owners.of(columns_of(keys[ids], self._index.types, in_order=False), len(ids))
            taken_by_owner(k, _KEY, ids, own, len(keys), takes)
        return [self._part(saved, taken, number) for number, taken in enumerate(takes)]

    def _part(self, saved: Sequence[Snapshot], taken: Taken, number: int) -> Snapshot:
        capacity = max(64, taken.count(_KEY))
        arrays = gather(_LAYOUT, [one.arrays for one in saved], taken, {_KEY: capacity})
        words = shared_words(saved, number, _SUMS, (chosen_rows.SWEPT,))
        words[chosen_rows.SWEEP_AT] = LEAST
        index = gather_index(each(saved, "keys"), taken, _KEY, capacity)
        return Snapshot(arrays, words, {"keys": index})
