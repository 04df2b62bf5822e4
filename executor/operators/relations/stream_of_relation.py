"""ISTREAM, DSTREAM and RSTREAM: a relation as a stream again (CQL paper, §6.3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np

from cql.base.model import Schema
from cql.executor.kernels.morsel_layout import DETAIL, DETAIL_ROW
from cql.executor.kernels.relations import changelog
from cql.executor.kernels.relations import net_changes as kernel
from cql.executor.morsel.morsel import Morsel
from cql.executor.operators.relations.changelog_operator import ChangelogOperator, Times
from cql.executor.operators.relations.frontier import FrontierOperator
from cql.executor.operators.relations.row_batch import take
from cql.executor.operators.relations.set_operations import RowIndex, weights_of
from cql.executor.operators.stage.operator import CodeColumn, Operator, Workspace
from cql.executor.state.store import State
from cql.planner.nodes.physical import StreamExec

_KINDS = {"istream": kernel.ENTERING, "dstream": kernel.LEAVING, "net": kernel.CHANGES}


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


class WholeOperator(ChangelogOperator):
    """RSTREAM: at each instant with changes, all rows of the relation, in the order in which they
    entered it. State: these rows."""

    saved_arrays: ClassVar[tuple[str, ...]] = ("_control",)
    saved_parts: ClassVar[tuple[str, ...]] = (*ChangelogOperator.saved_parts, "_rows")

    def __init__(self, name: str, node: StreamExec, workspace: Workspace) -> None:
        schema, output = node.input.schema, node.schema
        super().__init__(name, schema, len(schema) - 2, output, len(schema) - 2, workspace)
        self._rows = RowIndex(Schema(self.output.fields[:-1]), "held", "before", "after")
        self._control = np.array([-1, -1, 0], np.int64)  # of ``changelog.whole_relations``

    @property
    def held_bytes(self) -> int:
        return self._rows.nbytes

    def map_codes(self, change: Callable[[CodeColumn], CodeColumn]) -> None:
        super().map_codes(change)
        self._rows.map_codes(change)

    def advance(self, rows: State, times: Times) -> State:
        ids, _ = self._rows.ids(rows, times.size)
        c, weights = self._rows.counts, weights_of(rows, self.schema)
        held, times = c["held"], np.ascontiguousarray(times)
        size = changelog.count_relations(times, weights, ids, held, self._control[2])
        out_ids, out_times = np.empty(size, np.int64), np.empty(size, np.int64)
        changelog.whole_relations(
            times, weights, ids, held, c["before"], c["after"], self._control, out_ids, out_times
        )
        width = len(self.output) - 1
        made = take(self._rows.rows, out_ids)
        made[f"c{width}"] = out_times.astype(self.ready[f"c{width}"].dtype, copy=False)
        made[f"m{width}"] = np.ones(size, np.uint8)
        seen = self._rows.index.once(ids)
        self._rows.give_back(seen[held[seen] == 0])
        return made
