"""DISTINCT, EXCEPT and INTERSECT of changing relations, computed from each row's multiplicity."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np

from cql.base.model import Schema
from cql.executor.kernels.relations import multiplicities as kernel
from cql.executor.morsel.morsel import value_bytes
from cql.executor.operators.contract import CodeColumn
from cql.executor.operators.relations.changelog_operator import Times
from cql.executor.operators.relations.group_index import GroupIndex, grown, key_words
from cql.executor.operators.relations.grouped import GROUP, GroupChangesOperator
from cql.executor.operators.relations.row_batch import map_texts, nbytes, no_rows, take
from cql.executor.operators.workspace import Workspace
from cql.executor.state.declared import Declared
from cql.executor.state.repartition import Values
from cql.executor.state.store import State
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


class RowIndex(Declared):
    """The distinct rows of a relation: per row an id, its columns, and one number in each array of
    ``counts``."""

    saved_tables: ClassVar[tuple[str, ...]] = ("rows", "counts")
    saved_parts: ClassVar[tuple[str, ...]] = ("index",)

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


def weights_of(rows: State, schema: Schema) -> Times:
    weights: Times = np.ascontiguousarray(rows[f"c{len(schema) - 1}"])
    return weights
