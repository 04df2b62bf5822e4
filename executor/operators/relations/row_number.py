"""ROW_NUMBER() OVER (PARTITION BY … ORDER BY …) of a changing relation."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np

from cql.base.model import Schema
from cql.executor.kernels.lib import treap as treaps
from cql.executor.kernels.relations import row_number as kernel
from cql.executor.operators.relations.changelog_operator import ChangelogOperator, Times
from cql.executor.operators.relations.group_index import GroupIndex, grown, key_words
from cql.executor.operators.relations.row_batch import no_rows, take
from cql.executor.operators.relations.set_operations import weights_of
from cql.executor.operators.relations.top_n import SortedRows
from cql.executor.operators.stage.operator import CodeColumn, Workspace
from cql.executor.state.store import State
from cql.planner.nodes.physical import RowNumberExec

#: Numbers that the kernel keeps per row, in this order.
_OF_ROW = ("held", "arrival", "following", "shown", "shown_many", "now", "now_many")


class RowNumberOperator(ChangelogOperator):
    """State: the rows of the relation, per partition in the order of their sort keys, and the row
    numbers output last. Of rows with equal keys, the row held longest comes first."""

    saved_numbers: ClassVar[tuple[str, ...]] = (*ChangelogOperator.saved_numbers, "_come")
    saved_arrays: ClassVar[tuple[str, ...]] = ("_nodes", "_control", "_roots", "_heads", "_of_row")
    saved_parts: ClassVar[tuple[str, ...]] = (
        *ChangelogOperator.saved_parts,
        "_rows",
        "_partitions",
    )

    def __init__(self, name: str, node: RowNumberExec, workspace: Workspace) -> None:
        schema, output = node.input.schema, node.schema
        super().__init__(name, schema, len(schema) - 2, output, len(output) - 2, workspace)
        self.node = node
        self._rows = SortedRows(Schema(schema.fields[:-2]), node.keys, workspace)
        self._partitions = GroupIndex([schema[c].type for c in node.partition])
        self._nodes = np.full((0, treaps.PRIORITY + 1), -1, np.int64)
        self._control = np.array([-1, 0, 0, 0x2545F4914F6CDD1D], np.int64)
        self._roots: Times = np.zeros(0, np.int64)
        self._heads: Times = np.zeros(0, np.int64)
        self._of_row = np.zeros((len(_OF_ROW), 0), np.int64)
        self._come = 0

    @property
    def held_bytes(self) -> int:
        own = (self._nodes, self._roots, self._heads, self._of_row)
        return self._rows.nbytes + self._partitions.nbytes + sum(a.nbytes for a in own)

    def counters(self) -> dict[str, int]:
        held = int(self._control[treaps.LIVE])
        return {**super().counters(), "held_rows": held}

    def map_codes(self, change: Callable[[CodeColumn], CodeColumn]) -> None:
        super().map_codes(change)
        self._rows.map_codes(change)
        self._partitions.map_codes(change)

    def advance(self, rows: State, times: Times) -> State:
        n = times.size
        if n == 0:
            return no_rows(self.output)
        weights = weights_of(rows, self.schema)
        types = [self.schema[c].type for c in self.node.partition]
        partitions, _ = self._partitions.ids(key_words(rows, self.node.partition, types, n))
        ids, _ = self._rows.ids(rows, n)
        self._make_room(int(weights[weights > 0].size))
        place = np.zeros(5, np.int64)
        place[kernel.COME] = self._come
        groups, entries = self._partitions.capacity, self._rows.index.capacity
        touched, marked = np.empty(groups, np.int64), np.zeros(groups, np.uint8)
        chosen, out = np.empty(entries + 1, np.int64), np.empty((4 * n + 16, 4), np.int64)
        limit = -1 if self.node.limit is None else self.node.limit
        while wanted := kernel.number_rows(
            np.ascontiguousarray(times), weights, ids, partitions, limit, self._nodes,
            self._control, self._roots, self._heads, marked, touched, self._rows.words,
            self._rows.texts, self._rows.rank, self._of_row, place, chosen, out, self.node.forgets,
        ):  # fmt: skip
            more = np.empty((max(2 * out.shape[0], wanted), 4), np.int64)
            more[: int(place[kernel.MADE])] = out[: int(place[kernel.MADE])]
            out = more
        self._come = int(place[kernel.COME])
        found = self._numbered(out[: int(place[kernel.MADE])])
        seen = self._rows.index.live if self.node.forgets else self._rows.index.once(ids)
        self._rows.give_back(seen[self._of_row[0, seen] == 0])
        seen = self._partitions.once(partitions)
        self._partitions.give_back(seen[self._roots[seen] < 0])
        return found

    def _make_room(self, entering: int) -> None:
        groups, entries = self._partitions.capacity, self._rows.index.capacity
        self._roots, self._heads = grown(self._roots, groups, -1), grown(self._heads, groups, -1)
        if self._of_row.shape[1] < entries:
            of_row = np.zeros((len(_OF_ROW), entries), np.int64)
            of_row[:, : self._of_row.shape[1]] = self._of_row
            self._of_row = of_row
        wanted = int(self._control[treaps.LIVE]) + entering
        if wanted > self._nodes.shape[0]:
            size = max(64, 2 * self._nodes.shape[0], wanted)
            nodes = np.full((size, self._nodes.shape[1]), -1, np.int64)
            nodes[: self._nodes.shape[0]] = self._nodes
            self._nodes = nodes

    def _numbered(self, lines: Times) -> State:
        width = len(self.schema) - 2
        rows = take(self._rows.rows, lines[:, 0])
        values = (lines[:, 1], lines[:, 2], lines[:, 3])
        empty = no_rows(self.output)
        for c, column in enumerate(values, width):
            rows[f"c{c}"] = column.astype(empty[f"c{c}"].dtype)
            rows[f"m{c}"] = np.ones(column.size, np.uint8)
        return rows
