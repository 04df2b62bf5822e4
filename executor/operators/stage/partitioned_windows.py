"""The running stage whose groups leave their windows by a per-key watermark
(``windows.partitioned_watermark`` writes its kernel)."""

from __future__ import annotations

import numpy as np

from cql.executor.kernels.windows import partitioned_watermark
from cql.executor.operators.aggregates.value_log import write
from cql.executor.operators.stage.operator import StageOperator
from cql.executor.operators.windows.partitioned_watermark import MARKED


class PartitionedWatermarkOperator(StageOperator):
    """A running stage whose descriptor has the addresses of the functions of
    ``kernels.windows.partitioned_watermark``."""

    def _bind_arrays(self) -> None:
        StageOperator._bind_arrays(self)
        for name in partitioned_watermark.CALLED:
            self._bind(name, getattr(partitioned_watermark, name).address)

    def _slots_open(self, slots: int) -> None:
        StageOperator._slots_open(self, slots)
        for table in self.code.tables[1:-1]:
            self.store.resize(MARKED + table.suffix, slots, np.int64)

    def _finish(self, slot: int) -> None:
        """Computes holistic results for all groups of the window in ``slot``; given ``~slot``, for
        the groups of the requested key value."""
        whole, slot = slot >= 0, max(slot, ~slot)
        desc, none = self.descriptor.ctypes.data, np.empty(0, np.int64)
        if whole:
            groups = np.arange(self.state["counts"][slot])
        else:
            groups = np.empty(partitioned_watermark.requested_groups(desc, slot, none), np.int64)
            partitioned_watermark.requested_groups(desc, slot, groups)
        to, aggregate = self.state["bases"][slot] + groups, self.spec.aggregate
        assert aggregate is not None
        for number, log in enumerate(
            self.code.logs, len(self.code.tables) - 1 - len(self.code.logs)
        ):
            n = partitioned_watermark.kept_of(desc, slot, number, groups, none, none)
            owner, places = np.empty(n, np.int64), np.empty(n, np.int64)
            partitioned_watermark.kept_of(desc, slot, number, groups, owner, places)
            write(self, aggregate, log, groups.size, owner, [places], to, self.workspace)
        if whole:
            self._set("finished", 1)
        else:
            self.column("done")[to] = 1
        if self.needs_refresh:  # results may be new codes
            self.refresh()
