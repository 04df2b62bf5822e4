"""The running Dupelim: the keys of the rows seen so far, until the watermark passes their times
(``kernels.flow.dupelim``)."""

from __future__ import annotations

from cql.executor.kernels.flow import chosen_rows
from cql.executor.kernels.flow import dupelim as kernel
from cql.executor.morsel.morsel import Words
from cql.executor.operators.flow.chosen_rows import ChosenRowsOperator
from cql.executor.operators.workspace import Workspace
from cql.planner.nodes.physical import DupelimExec


class DupelimOperator(ChosenRowsOperator):
    """State: the index of the keys of the rows seen so far; a key is all columns of a row."""

    def __init__(self, name: str, node: DupelimExec, workspace: Workspace) -> None:
        self.node = node
        super().__init__(name, node.schema, range(len(node.schema)), node.by, workspace)
        self.descriptor[kernel.IN_ORDER] = node.in_order
        self.address = int(kernel.dupelim.address)
        self.bind()

    def times(self, ids: Words) -> Words:
        found: Words = self._index.arrays[1][ids, self.node.by]
        return found

    def counters(self) -> dict[str, int]:
        d = self.descriptor
        return {
            "rows_in": int(d[chosen_rows.ROWS_IN]),
            "rows_out": int(d[chosen_rows.ROWS_LEFT]),
            "duplicates": int(d[kernel.DUPLICATES]),
            "held": self.held,
            "purged": self._purged,
        }
