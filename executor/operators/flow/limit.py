"""The running LIMIT and OFFSET: its descriptor is its whole state."""

from __future__ import annotations

import numpy as np

from cql.executor.kernels.flow import limit as kernel
from cql.executor.kernels.morsel_layout import INFINITY
from cql.executor.morsel.morsel import Words, value_bytes
from cql.executor.operators.contract import Operator, RowLimit
from cql.executor.state.store import Snapshot, plain_words, take_plain_words
from cql.planner.nodes.physical import LimitExec


class LimitOperator(Operator):
    """Passes rows by reference. After the last row of the LIMIT, ``is_over`` is true and the
    runtime need not call the operator with further morsels."""

    def __init__(self, name: str, node: LimitExec) -> None:
        self.name = name
        sizes = [value_bytes(f.type) for f in node.schema]
        attributes = node.progressing
        self.descriptor: Words = np.array(
            [*(0 for _ in range(kernel.FIRST)), *sizes, *attributes], np.int64
        )
        d = self.descriptor
        d[[kernel.COLUMNS, kernel.ATTRIBUTES]] = len(sizes), len(attributes)
        d[kernel.SKIPS] = node.offset
        d[kernel.LEFT] = INFINITY if node.limit is None else node.limit
        d[[kernel.LAST_SERIAL, kernel.LAST_SEQUENCE]] = INFINITY
        self.address = int(kernel.limit.address)

    @property
    def limit(self) -> RowLimit:
        return self

    @property
    def gives_one_at_most(self) -> bool:
        return True

    @property
    def is_over(self) -> bool:
        return int(self.descriptor[kernel.LEFT]) == 0

    def stops(self, word: int) -> None:
        """Sets the address of a word that the kernel sets when the LIMIT is over."""
        self.descriptor[kernel.STOPS] = word

    def close_behind(self, serial: int, sequence: int = INFINITY) -> None:
        """Blocks all rows of morsels with a higher serial number than ``serial``, and the rows of
        morsels with that serial number from row ``sequence`` on. The lowest position wins."""
        d = self.descriptor
        last = int(d[kernel.LAST_SERIAL]), int(d[kernel.LAST_SEQUENCE])
        d[[kernel.LAST_SERIAL, kernel.LAST_SEQUENCE]] = min(last, (serial, sequence))

    @property
    def has_ended(self) -> bool:
        """Whether the operator has emitted the end of its output, or its input has ended."""
        return bool(self.descriptor[kernel.ENDED])

    def snapshot(self) -> Snapshot:
        """The descriptor; the runtime has no morsel inside."""
        return Snapshot({}, plain_words(self.descriptor, (kernel.STOPS,)))

    def restore(self, saved: Snapshot) -> None:
        """Continues with the state of an operator of the same plan."""
        take_plain_words(saved.words, self.descriptor, (kernel.STOPS,), self.name)

    def counters(self) -> dict[str, int]:
        came, went = (int(self.descriptor[k]) for k in (kernel.ROWS_IN, kernel.ROWS_OUT))
        return {"rows_in": came, "rows_out": went, "over_limit": came - went}
