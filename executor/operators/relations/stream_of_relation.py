"""ISTREAM, DSTREAM and RSTREAM: a relation as a stream again (CQL paper, §6.3)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from cql.executor.kernels.morsel_layout import DETAIL, DETAIL_ROW
from cql.executor.kernels.relations import net_changes as kernel
from cql.executor.kernels.relations import whole_relation as whole
from cql.executor.morsel.morsel import Morsel
from cql.executor.operators.contract import Operator
from cql.executor.operators.relations.frontier import FrontierOperator
from cql.executor.operators.relations.grouped import GroupChangesOperator
from cql.executor.operators.workspace import Workspace
from cql.planner.nodes.physical import StreamExec

_KINDS = {"istream": kernel.ENTERING, "dstream": kernel.LEAVING, "net": kernel.CHANGES}
_SLOTS = {
    "n": whole.CHANGES,
    "times": whole.TIMES,
    "weights": whole.WEIGHTS,
    "out": whole.MADE,
    "more": whole.MORE,
    "detail": whole.MADE,  # the function fails for no row
}


def stream_operator(name: str, node: StreamExec, workspace: Workspace) -> Operator:
    kind = WholeOperator if node.kind == "rstream" else NetOperator
    return kind(name, node, workspace)


class NetOperator(FrontierOperator):
    """ISTREAM, DSTREAM and the changes of a whole query (``kernels.relations.net_changes``)."""

    addresses: ClassVar = {
        **FrontierOperator.addresses,
        "net": kernel.NET,
        "hashes": kernel.HASHES,
        "numbers": kernel.NUMBERS,
        "table": kernel.TABLE,
    }

    scratch = FrontierOperator.scratch | {"net", "hashes", "numbers", "table"}

    def __init__(self, name: str, node: StreamExec, workspace: Workspace) -> None:
        schema = node.input.schema
        time = len(schema) - 2
        super().__init__(name, schema, time, time, kernel.END, workspace, range(time))
        self.descriptor[kernel.OUTPUT] = _KINDS[node.kind]
        self.address = int(kernel.net_changes.address)

    def more_slots(self, wanted: int) -> None:
        super().more_slots(wanted)
        rows = self.workspace.morsel_rows
        places = max(rows, self.state["times"].size)
        self.resize("net", places, np.int64)
        self.resize("hashes", places, np.int64)
        self.resize("numbers", rows, np.int32)
        self.state["numbers"][:] = np.arange(rows)
        self.bind()

    def provide(self, morsel: Morsel) -> None:
        if morsel.words[DETAIL] == kernel.NEED_BUCKETS:
            buckets = int(morsel.words[DETAIL_ROW])
            self.resize("table", buckets, np.int32)
            self.bound(kernel.BUCKETS, buckets)
            self.bind()
        else:
            super().provide(morsel)


class WholeOperator(GroupChangesOperator):
    """RSTREAM: at each instant with changes, all rows of the relation, in the order in which they
    entered it. State: the rows that wait; each distinct row of the relation, with its copies and
    its neighbours in that order."""

    own_addresses: ClassVar = {
        "ids": whole.OWNERS,
        "live": whole.HELD,
        "before": whole.BEFORE,
        "after": whole.AFTER,
        "out_owner": whole.OUT_OWNER,
        "out_time": whole.OUT_TIME,
    }

    def __init__(self, name: str, node: StreamExec, workspace: Workspace) -> None:
        schema, words = node.input.schema, np.zeros(whole.WORDS, np.int64)
        words[[whole.OLDEST, whole.NEWEST]] = -1
        super().__init__(
            name,
            schema,
            len(schema) - 2,
            node.schema,
            int(whole.whole_relation.address),
            words,
            _SLOTS,
            workspace,
            keeps=(whole.OLDEST, whole.NEWEST),
        )
        self.open()

    def grow_groups(self, known: int, size: int) -> None:
        super().grow_groups(known, size)
        for row in ("live", "before", "after"):
            self.grow(row, "int64", known, size)

    def bind(self) -> None:
        super().bind()
        self._words[whole.ROWS] = self._index.capacity
        self._words[whole.ROOM] = self.workspace.morsel_rows

    def counters(self) -> dict[str, int]:
        return FrontierOperator.counters(self)
