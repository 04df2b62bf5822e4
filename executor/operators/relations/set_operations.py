"""DISTINCT, EXCEPT and INTERSECT of changing relations, computed from each row's multiplicity."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cql.base.model import Schema
from cql.executor.kernels.relations import changelog as kernel
from cql.executor.operators.relations.changelog_operator import ChangelogOperator, Times
from cql.executor.operators.relations.group_index import GroupIndex, grown, key_words
from cql.executor.operators.relations.row_batch import map_texts, nbytes, no_rows, take
from cql.executor.operators.stage.operator import CodeColumn, State, Workspace
from cql.planner.nodes.physical import ChangeAggregateExec, SetOperationExec


class RowIndex:
    """The distinct rows of a relation: per row an id, its columns, and one number in each array of
    ``counts``."""

    def __init__(self, schema: Schema, *counts: str) -> None:
        self.schema = schema
        self.types = [f.type for f in schema]
        self.index = GroupIndex(self.types)
        self.rows = no_rows(schema)
        self.counts = {name: np.zeros(0, np.int64) for name in counts}

    @property
    def nbytes(self) -> int:
        counts = sum(a.nbytes for a in self.counts.values())
        return self.index.nbytes + nbytes([self.rows]) + counts

    def map_codes(self, change: Callable[[CodeColumn], CodeColumn]) -> None:
        map_texts([self.rows], self.schema, change)
        self.index.map_codes(change)

    def ids(self, rows: State, n: int) -> tuple[Times, Times]:
        """The id of each row, and the positions of the rows that are new."""
        words = key_words(rows, range(len(self.types)), self.types, n)
        ids, fresh = self.index.ids(words)
        size = self.index.capacity
        self.counts = {name: grown(a, size) for name, a in self.counts.items()}
        self.rows = {name: grown(column, size) for name, column in self.rows.items()}
        new = np.flatnonzero(fresh)
        for name, column in self.rows.items():
            column[ids[new]] = rows[name][new]
        return ids, new

    def give_back(self, ids: Times) -> None:
        self.index.give_back(ids)

    def changes(self, ids: Times, times: Times, weights: Times, output: Schema) -> State:
        """The rows ``ids`` with their instants and weights, as rows of ``output``."""
        width = len(self.schema)
        rows = take(self.rows, ids)
        more = {name: c for name, c in no_rows(output).items() if name not in rows}
        values = {f"c{width}": times, f"c{width + 1}": weights}
        for name, column in more.items():
            filled = values.get(name, np.ones(ids.size, np.uint8))
            rows[name] = filled.astype(column.dtype, copy=False)
        return rows


class WeightsOperator(ChangelogOperator):
    """State: each distinct row of the inputs, with its multiplicity in the left input, in the right
    input and in the result."""

    def __init__(
        self, name: str, node: ChangeAggregateExec | SetOperationExec, workspace: Workspace
    ) -> None:
        schema, output = node.input.schema, node.schema
        super().__init__(name, schema, len(schema) - 2, output, len(output) - 2, workspace)
        self._rows = RowIndex(Schema(output.fields[:-2]), "left", "right", "shown")
        self._side = None
        self._kind = kernel.DISTINCT
        if isinstance(node, SetOperationExec):
            self._side = f"c{len(schema) - 3}"
            kinds = {
                "except": (kernel.EXCEPT_ALL, kernel.EXCEPT),
                "intersect": (kernel.INTERSECT_ALL, kernel.INTERSECT),
            }
            self._kind = kinds[node.kind][node.distinct]

    @property
    def held_bytes(self) -> int:
        return self._rows.nbytes

    def counters(self) -> dict[str, int]:
        return {**super().counters(), "groups": int(self._rows.index.live.size)}

    def map_codes(self, change: Callable[[CodeColumn], CodeColumn]) -> None:
        super().map_codes(change)
        self._rows.map_codes(change)

    def advance(self, rows: State, times: Times) -> State:
        n = times.size
        ids, _ = self._rows.ids(rows, n)
        sides = np.zeros(n, np.int64) if self._side is None else rows[self._side]
        size = self._rows.index.capacity
        counts = self._rows.counts
        out_ids, out_times, out_weights, touched = (np.empty(n, np.int64) for _ in range(4))
        made = kernel.combine(
            self._kind, np.ascontiguousarray(times), weights_of(rows, self.schema), sides, ids,
            counts["left"], counts["right"], counts["shown"], np.zeros(size, np.uint8), touched,
            out_ids, out_times, out_weights,
        )  # fmt: skip
        found = self._rows.changes(
            out_ids[:made], out_times[:made], out_weights[:made], self.output
        )
        seen = self._rows.index.once(ids)
        self._rows.give_back(seen[(counts["left"][seen] == 0) & (counts["right"][seen] == 0)])
        return found


def weights_of(rows: State, schema: Schema) -> Times:
    weights: Times = np.ascontiguousarray(rows[f"c{len(schema) - 1}"])
    return weights
