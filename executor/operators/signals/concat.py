"""CONCAT and SIGNAL as a running operator: the segments of rows as a signal
(``kernels.signals.concat``)."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from cql.errors import RunError
from cql.executor.kernels.morsel_layout import CURSOR, DETAIL, DETAIL_ROW
from cql.executor.kernels.signals import concat as kernel
from cql.executor.kernels.signals.layout import KIND_BITS
from cql.executor.kernels.signals.of_segments.times import segment_time
from cql.executor.morsel.morsel import Morsel, Words
from cql.executor.operators.contract import Operator
from cql.executor.operators.signals.samples import column_of
from cql.executor.operators.signals.segment_store import Timebase
from cql.executor.operators.workspace import Workspace
from cql.executor.state.store import Snapshot, plain_words, take_plain_words
from cql.planner.nodes.physical import ConcatExec

_BOUND = (kernel.BASE_WORD,)


class ConcatOperator(Operator):
    """State: the number and the time of the next sample. Nothing is kept of the samples."""

    def __init__(self, name: str, node: ConcatExec, workspace: Workspace) -> None:
        self.name, self._node, self._store = name, node, workspace.signals
        self.descriptor: Words = np.zeros(kernel.WORDS, np.int64)
        base = self._store.number_of(Timebase(Fraction(node.rate, node.per)))
        self.descriptor[kernel.CHANNELS] = len(node.schema)
        self.descriptor[kernel.BASE_WORD] = base << KIND_BITS
        self.descriptor[kernel.IN_TIME] = node.in_time
        self.address = int(kernel.concat.address)

    @property
    def fills(self) -> bool:
        return True

    def provide(self, morsel: Morsel) -> None:
        """The store is full, or the channels of a row differ in length or times: raises
        RunError."""
        self._store.check()
        function = "SIGNAL" if self._node.in_time else "CONCAT"
        schema, row = self._node.input.schema, int(morsel.words[CURSOR])
        pair = (0, int(morsel.words[DETAIL_ROW]))
        segments = [int(column_of(morsel, schema, c)[row]) for c in pair]
        if morsel.words[DETAIL] == kernel.NEED_IN_STEP:
            begin, behind = (int(segment_time(g, 0)) for g in segments)
            raise RunError(
                f"SIGNAL({self._node.name}) takes channels with the same times, and in a row"
                f" {schema[pair[1]].name} begins {behind - begin:+,} ns from {schema[0].name}",
                hint="select the channels of one signal; ZIP puts two signals side by side",
            )
        one, other = map(self._store.length, segments)
        raise RunError(
            f"{function}({self._node.name}) takes as many samples of each channel, and a row has"
            f" {one:,} of {schema[0].name} and {other:,} of {schema[pair[1]].name}",
            hint="select the channels of one signal, or concatenate them one by one",
        )

    def snapshot(self) -> Snapshot:
        return Snapshot({}, plain_words(self.descriptor, _BOUND))

    def restore(self, saved: Snapshot) -> None:
        """Continues with the state of an operator of the same plan."""
        take_plain_words(saved.words, self.descriptor, _BOUND, self.name)

    def counters(self) -> dict[str, int]:
        d = self.descriptor
        return {
            "rows_in": int(d[kernel.ROWS_IN]),
            "rows_out": int(d[kernel.ROWS_OUT]),
            "samples": int(d[kernel.FOLLOWING]),
            **({"overlapping": int(d[kernel.OVERLAPPING])} if self._node.in_time else {}),
        }
