"""The running stage of two-level aggregation (``windows.two_level`` writes its kernel)."""

from __future__ import annotations

import numpy as np

from cql.executor.kernels.morsel_layout import NEVER
from cql.executor.morsel.morsel import Words
from cql.executor.operators.stage.operator import StageOperator
from cql.executor.operators.windows.two_level import LONGEST, PLACE, places_of


class TwoLevelOperator(StageOperator):
    """A running stage of two-level aggregation."""

    def _counting(self) -> tuple[Words, dict[str, int]]:
        descriptor, slots = super()._counting()
        return descriptor, {**slots, LONGEST: self._slots[LONGEST]}

    def _allocate_windows(self) -> None:
        super()._allocate_windows()
        assert self.spec.aggregate is not None
        assert self.spec.aggregate.flush is not None
        size = places_of(self.spec.aggregate.flush)
        (table,) = self.code.tables
        self._resize_entries(table, 2 * max(size, self._entries[""]))
        self.state["top"][0] = size
        self.store.resize("low", PLACE * size, np.int64)
        self.state["low"][::PLACE] = NEVER
        for name in ("closed_below", "due", "newest", "urgent"):
            self._set(name, NEVER)
        self._set("flush_at", size)

    def recoded(self) -> None:
        super().recoded()
        if self.code.codes:
            self._set("emptying", 1)

    def _entries_of(self, slots: Words, suffix: str) -> Words:
        low = np.flatnonzero(self.state["low"][::PLACE] != NEVER)
        return np.concatenate([low, super()._entries_of(slots, suffix)])
