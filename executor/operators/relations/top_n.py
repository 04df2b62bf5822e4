"""ORDER BY … LIMIT over a changing relation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from cql.base.model import Schema
from cql.executor.kernels.relations import changelog as kernel
from cql.executor.operators.relations.changelog_operator import ChangelogOperator, Times
from cql.executor.operators.relations.set_operations import RowIndex, weights_of
from cql.executor.operators.stage.operator import CodeColumn, Workspace
from cql.executor.state.store import State
from cql.planner.nodes.expr import Column
from cql.planner.nodes.logical import SortKey
from cql.planner.nodes.physical import TopExec

_AS_IT_IS, _BY_RANK, _BY_RANK_DOWN = 0, 1, 2


class SortedRows(RowIndex):
    """Rows with their sort keys as ``words``, which ``kernel.order_of`` compares; ``texts`` says
    for each word whether it is a text code, and whether that key is descending."""

    saved_arrays: ClassVar[tuple[str, ...]] = ("words",)

    def __init__(
        self, schema: Schema, keys: Sequence[SortKey], workspace: Workspace, *counts: str
    ) -> None:
        super().__init__(schema, *counts)
        self.keys = keys
        self.words = np.zeros((0, 2 * len(keys)), np.int64)
        self.texts = np.array([(_AS_IT_IS, _how(k)) for k in keys], np.uint8).reshape(-1)
        self._workspace = workspace

    @property
    def nbytes(self) -> int:
        return super().nbytes + self.words.nbytes

    @property
    def rank(self) -> npt.NDArray[np.int32]:
        return self._workspace.dictionary.rank() if self.texts.any() else np.zeros(1, np.int32)

    def map_codes(self, change: Callable[[CodeColumn], CodeColumn]) -> None:
        super().map_codes(change)
        live = self.index.live
        for word in np.flatnonzero(self.texts):
            column = self.words[:, word]
            column[live] = change(column[live].astype(np.int32))

    def ids(self, rows: State, n: int) -> tuple[Times, Times]:
        ids, new = super().ids(rows, n)
        size = self.index.capacity
        if self.words.shape[0] < size:
            words = np.zeros((size, self.words.shape[1]), np.int64)
            words[: self.words.shape[0]] = self.words
            self.words = words
        for k, key in enumerate(self.keys):
            place, values = _sort_words(key, rows)
            self.words[ids[new], 2 * k] = place[new]
            self.words[ids[new], 2 * k + 1] = values[new]
        return ids, new


class TopOperator(ChangelogOperator):
    """State: the rows of the relation, their sort keys as words, and their order."""

    saved_arrays: ClassVar[tuple[str, ...]] = ("_control",)
    saved_parts: ClassVar[tuple[str, ...]] = (*ChangelogOperator.saved_parts, "_rows")

    def __init__(self, name: str, node: TopExec, workspace: Workspace) -> None:
        schema = node.schema
        super().__init__(name, schema, len(schema) - 2, schema, len(schema) - 2, workspace)
        self.node = node
        counts = ("held", "shown", "now", "arrival", "order", "first", "chosen")
        self._rows = SortedRows(Schema(schema.fields[:-2]), node.keys, workspace, *counts)
        self._control = np.zeros(4, np.int64)

    @property
    def held_bytes(self) -> int:
        return self._rows.nbytes

    def counters(self) -> dict[str, int]:
        return {**super().counters(), "held_rows": int(self._control[0])}

    def map_codes(self, change: Callable[[CodeColumn], CodeColumn]) -> None:
        super().map_codes(change)
        self._rows.map_codes(change)

    def advance(self, rows: State, times: Times) -> State:
        ids, _ = self._rows.ids(rows, times.size)
        weights = weights_of(rows, self.schema)
        room = 4 * int(np.abs(weights).sum())
        out_ids, out_times, out_weights = (np.empty(room, np.int64) for _ in range(3))
        c = self._rows.counts
        limit = -1 if self.node.limit is None else self.node.limit
        made = kernel.first_rows(
            np.ascontiguousarray(times), weights, ids, limit, self.node.offset, self._rows.words,
            c["arrival"], self._rows.texts, self._rows.rank, c["order"], c["held"], c["shown"],
            c["now"], c["first"], c["chosen"], self._control, out_ids, out_times, out_weights,
        )  # fmt: skip
        found = self._rows.changes(
            out_ids[:made], out_times[:made], out_weights[:made], self.output
        )
        seen = self._rows.index.once(ids)
        self._rows.give_back(seen[c["held"][seen] == 0])
        return found


def _how(key: SortKey) -> int:
    if not key.expr.type.is_text:
        return _AS_IT_IS
    return _BY_RANK_DOWN if key.descending else _BY_RANK


def _sort_words(key: SortKey, rows: State) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Two words per row that sort ascending: the place of NULL (-1, 0 or 1), and the value (0 for
    NULL). The word of a text is its code, which the kernel compares by rank."""
    assert isinstance(key.expr, Column)
    values, valid = rows[f"c{key.expr.index}"], rows[f"m{key.expr.index}"] != 0
    place = np.where(valid, 0, -1 if key.nulls_first else 1)
    if key.expr.type.is_fraction:
        wide = np.where(valid, values, 0.0).astype(np.float64) + 0.0
        bits = np.where(np.isnan(wide), np.float64(np.nan).view(np.int64), wide.view(np.int64))
        values = np.where(bits < 0, bits ^ np.int64(2**63 - 1), bits)  # NaN is the largest
    values = np.where(valid, values.astype(np.int64), 0)
    if key.descending and not key.expr.type.is_text:
        values = ~values
    return place, values
