"""ISTREAM, DSTREAM and RSTREAM: a relation as a stream again (CQL paper, §6.3)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cql.base.model import Schema
from cql.base.types import BIGINT
from cql.executor.kernels.relations import changelog as kernel
from cql.executor.operators.relations.changelog_operator import ChangelogOperator, Times
from cql.executor.operators.relations.group_index import GroupIndex, key_words
from cql.executor.operators.relations.row_batch import take
from cql.executor.operators.relations.set_operations import RowIndex, weights_of
from cql.executor.operators.stage.operator import CodeColumn, State, Workspace
from cql.planner.nodes.physical import StreamExec


def stream_operator(name: str, node: StreamExec, workspace: Workspace) -> ChangelogOperator:
    kind = WholeOperator if node.kind == "rstream" else NetOperator
    return kind(name, node, workspace)


class _StreamOperator(ChangelogOperator):
    def __init__(self, name: str, node: StreamExec, workspace: Workspace) -> None:
        schema, output = node.input.schema, node.schema
        super().__init__(name, schema, len(schema) - 2, output, len(schema) - 2, workspace)
        self.kind = node.kind


class NetOperator(_StreamOperator):
    """ISTREAM, DSTREAM and the changes of a whole query: the bag difference between an instant and
    the instant before. The sum of an instant's changes is that difference, so the operator keeps no
    rows."""

    def advance(self, rows: State, times: Times) -> State:
        n, width = times.size, len(self.schema) - 2
        types = [*(f.type for f in self.schema.fields[:width]), BIGINT]
        keyed = {**rows, f"c{width}": times}
        words = key_words(keyed, range(width + 1), types, n)
        ids, fresh = GroupIndex(types).ids(words)
        first = np.flatnonzero(fresh)
        net = np.zeros(int(ids.max(initial=-1)) + 1, np.int64)
        np.add.at(net, ids, weights_of(rows, self.schema))
        copies = net[ids[first]]
        if self.kind == "net":
            chosen, weight = first[copies != 0], f"c{width + 1}"
            return {name: rows[name][chosen] for name in self.ready} | {weight: copies[copies != 0]}
        copies = copies if self.kind == "istream" else -copies
        chosen = np.repeat(first, np.maximum(copies, 0))
        return {name: rows[name][chosen] for name in self.ready}


class WholeOperator(_StreamOperator):
    """RSTREAM: at each instant with changes, all rows of the relation, in the order in which they
    entered it. State: these rows."""

    def __init__(self, name: str, node: StreamExec, workspace: Workspace) -> None:
        super().__init__(name, node, workspace)
        self._rows = RowIndex(Schema(self.output.fields[:-1]), "held", "before", "after")
        self._control = np.array([-1, -1, 0], np.int64)  # of ``kernel.whole_relations``

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
        size = kernel.count_relations(times, weights, ids, held, self._control[2])
        out_ids, out_times = np.empty(size, np.int64), np.empty(size, np.int64)
        kernel.whole_relations(
            times, weights, ids, held, c["before"], c["after"], self._control, out_ids, out_times
        )
        width = len(self.output) - 1
        made = take(self._rows.rows, out_ids)
        made[f"c{width}"] = out_times.astype(self.ready[f"c{width}"].dtype, copy=False)
        made[f"m{width}"] = np.ones(size, np.uint8)
        seen = self._rows.index.once(ids)
        self._rows.give_back(seen[held[seen] == 0])
        return made
