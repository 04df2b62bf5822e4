"""DISTINCT, EXCEPT and INTERSECT of changing relations, computed from each row's multiplicity."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from cql.executor.kernels.relations import multiplicities as kernel
from cql.executor.morsel.morsel import value_bytes
from cql.executor.operators.relations.grouped import GROUP, GroupChangesOperator
from cql.executor.operators.workspace import Workspace
from cql.executor.state.repartition import Values
from cql.planner.nodes.physical import ChangeAggregateExec, SetOperationExec

_KINDS = {
    "except": (kernel.EXCEPT_ALL, kernel.EXCEPT),
    "intersect": (kernel.INTERSECT_ALL, kernel.INTERSECT),
}
_SLOTS = {
    "n": kernel.CHANGES,
    "times": kernel.TIMES,
    "weights": kernel.WEIGHTS,
    "out": kernel.MADE,
    "detail": kernel.KIND,  # the function fails for no row
}
_ARRAYS = {
    "ids": kernel.OWNERS,
    "touched": kernel.TOUCHED,
    "left": kernel.LEFT,
    "right": kernel.RIGHT,
    "shown": kernel.SHOWN,
    "live": kernel.LIVE,
    "marked": kernel.MARKED,
    "out_owner": kernel.OUT_OWNER,
    "out_time": kernel.OUT_TIME,
    "out_weight": kernel.OUT_WEIGHT,
}


class WeightsOperator(GroupChangesOperator):
    """State: the rows that wait; each distinct row of the inputs, with its multiplicity in the left
    input, in the right input and in the result."""

    own_addresses: ClassVar = _ARRAYS

    def __init__(
        self,
        name: str,
        node: ChangeAggregateExec | SetOperationExec,
        workspace: Workspace,
        *,
        numbered: bool = False,
    ) -> None:
        self.numbered = numbered
        schema, output = node.input.schema, node.schema
        words = np.zeros(kernel.WORDS, np.int64)
        reads = []
        if isinstance(node, SetOperationExec):
            side = len(schema) - 3
            words[kernel.KIND] = _KINDS[node.kind][node.distinct]
            words[kernel.SIDE_BYTES] = value_bytes(schema[side].type)
            reads = [(side, kernel.SIDES, -1)]
        super().__init__(
            name,
            schema,
            len(output) - 2,
            output,
            int(kernel.multiplicities.address),
            words,
            _SLOTS,
            workspace,
            reads,
        )
        self.open()

    def grow_groups(self, known: int, size: int) -> None:
        super().grow_groups(known, size)
        for name in ("left", "right", "shown", "live"):
            self.grow(name, "int64", known, size)
        self.grow("marked", "bool", known, size)

    @property
    def layout(self) -> dict[str, Values]:
        counts = ("left", "right", "shown", "live", "marked")
        return super().layout | {name: Values(GROUP) for name in counts}

    def bind(self) -> None:
        super().bind()
        self._words[kernel.GROUPS] = self._index.capacity
