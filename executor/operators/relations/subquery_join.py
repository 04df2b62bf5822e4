"""EXISTS, IN and scalar subqueries over a changing relation, evaluated for each row of another
(mark and single joins, ``kernels.relations.subquery_join``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from cql.base.model import Schema
from cql.executor.codegen.expressions.emit import ErrorSite
from cql.executor.kernels.morsel_layout import DETAIL, DETAIL_ROW, ERROR
from cql.executor.kernels.relations import subquery_join as kernel
from cql.executor.morsel.morsel import Morsel
from cql.executor.operators.contract import CodeColumn
from cql.executor.operators.relations.changelog_operator import ChangelogOperator, Times
from cql.executor.operators.relations.group_index import GroupIndex, grown, key_words
from cql.executor.operators.relations.row_batch import joined, no_rows, take
from cql.executor.operators.relations.set_operations import RowIndex, weights_of
from cql.executor.operators.workspace import Workspace
from cql.executor.state.store import State
from cql.planner.nodes.physical import SubqueryJoinExec

_KINDS = {"exists": kernel.EXISTS, "in": kernel.IN, "scalar": kernel.SINGLE}
_ROOM = 4096


class SubqueryJoinOperator(ChangelogOperator):
    """State: the rows of the left input with the answer last output for each, the multiplicity of
    each key in the subquery, and (scalar) the subquery's value."""

    saved_arrays: ClassVar[tuple[str, ...]] = ("_control",)
    saved_tables: ClassVar[tuple[str, ...]] = ("_counts",)
    saved_parts: ClassVar[tuple[str, ...]] = (
        *ChangelogOperator.saved_parts,
        "_rows",
        "_keys",
        "_values",
    )

    def __init__(self, name: str, node: SubqueryJoinExec, workspace: Workspace) -> None:
        schema, output = node.input.schema, node.schema
        super().__init__(name, schema, len(schema) - 2, output, len(output) - 2, workspace)
        self.node = node
        self._width = len(output) - 3
        self._kind = _KINDS[node.kind]
        self._rows = RowIndex(
            Schema(output.fields[: self._width]), "held", "shown", "answer", "key_of", "state",
            "after", "before", "touched",
        )  # fmt: skip
        self._key_types = [schema[c].type for c in self._key_columns]
        self._keys = GroupIndex(self._key_types)
        self._counts = {name: np.zeros(0, np.int64) for name in ("count", "head", "was", "touched")}
        self._values = RowIndex(Schema((output.fields[self._width],)), "held")
        self._control = np.zeros(kernel.CONTROL, np.int64)
        self._control[kernel.VALUE] = -1

    @property
    def _key_columns(self) -> range:
        return range(self._width, self._width + self.node.keys)

    @property
    def held_bytes(self) -> int:
        counts = sum(a.nbytes for a in self._counts.values())
        return self._rows.nbytes + self._keys.nbytes + counts + self._values.nbytes

    def counters(self) -> dict[str, int]:
        held = int(self._rows.index.live.size)
        return {**super().counters(), "held_rows": held, "groups": int(self._keys.live.size)}

    def map_codes(self, change: Callable[[CodeColumn], CodeColumn]) -> None:
        super().map_codes(change)
        self._rows.map_codes(change)
        self._keys.map_codes(change)
        self._values.map_codes(change)

    def take_in(self, morsel: Morsel) -> int | None:
        super().take_in(morsel)
        if self._control[kernel.TWO]:
            morsel.words[DETAIL], morsel.words[DETAIL_ROW] = 0, 0
            return ERROR
        return None

    def error(self, morsel: Morsel) -> ErrorSite:
        return ErrorSite("rows", "the subquery gives more than one row", self.node.pos)

    def advance(self, rows: State, times: Times) -> State:
        n = times.size
        if n == 0:
            return no_rows(self.output)
        sides = rows[f"c{len(self.schema) - 3}"]
        left, right = np.flatnonzero(sides == 0), np.flatnonzero(sides)
        row_ids, value_ids = np.zeros(n, np.int64), np.zeros(n, np.int64)
        row_ids[left], _ = self._rows.ids(take(rows, left), left.size)
        if self._kind == kernel.SINGLE:
            value = {f"{a}0": rows[f"{a}{self._width}"][right] for a in "cm"}
            value_ids[right], _ = self._values.ids(value, right.size)
        key_ids, nulls = self._key_ids(rows, n)
        found = self._answer(rows, times, sides, row_ids, key_ids, nulls, value_ids)
        self._forget(row_ids[left], key_ids, value_ids[right])
        return found

    def _key_ids(self, rows: State, n: int) -> tuple[Times, npt.NDArray[np.uint8]]:
        """The id of each row's key, and whether a column of that key is NULL. Without key columns
        (scalar subqueries have none) all rows share one key."""
        ids, fresh = self._keys.ids(key_words(rows, self._key_columns, self._key_types, n))
        size = self._keys.capacity
        self._counts = {name: grown(a, size) for name, a in self._counts.items()}
        new = ids[np.flatnonzero(fresh)]
        self._counts["count"][new] = 0
        self._counts["head"][new] = -1
        self._counts["was"][new] = -1
        nulls = np.zeros(n, np.uint8)
        for c in self._key_columns:
            nulls |= rows[f"m{c}"] == 0
        return ids, nulls

    def _answer(
        self, rows: State, times: Times, sides: Times, row_ids: Times, key_ids: Times,
        nulls: npt.NDArray[np.uint8], value_ids: Times,
    ) -> State:  # fmt: skip
        c, k, control = self._rows.counts, self._counts, self._control
        weights = weights_of(rows, self.schema)
        room = max(2 * times.size, 2 * c["held"].size, _ROOM)
        held_values = self._values.counts["held"]
        out = [np.empty(room, np.int64) for _ in range(4)]
        parts = [no_rows(self.output)]
        control[kernel.NEXT] = 0
        while control[kernel.NEXT] < times.size and not control[kernel.TWO]:
            made = kernel.answer_rows(
                self._kind, self.node.constant, np.ascontiguousarray(times), weights, sides,
                row_ids, key_ids, nulls, value_ids, c["held"], c["shown"], c["answer"],
                c["key_of"], c["state"], c["after"], c["before"], k["count"], k["head"], k["was"],
                k["touched"], c["touched"], held_values, control, *out,
            )  # fmt: skip
            parts.append(self._made(*(a[:made] for a in out)))
        return joined(parts)

    def _made(self, ids: Times, answers: Times, times: Times, weights: Times) -> State:
        """The rows ``ids`` with their answers, as rows of the output schema."""
        width = self._width
        rows = self._rows.changes(ids, times, weights, self.output)
        if self._kind == kernel.SINGLE:
            which = np.maximum(answers - 1, 0)
            values = take(self._values.rows, which) if self._values.rows["c0"].size else {}
            value = values.get("c0", np.zeros(ids.size, rows[f"c{width}"].dtype))
            valid = np.where(answers > 0, values.get("m0", np.zeros(ids.size, np.uint8)), 0)
        else:
            value, valid = answers == kernel.TRUE, answers != kernel.NULL
        more = {
            f"c{width}": value,
            f"m{width}": valid,
            f"c{width + 1}": times,
            f"c{width + 2}": weights,
        }
        for name, column in more.items():
            rows[name] = column.astype(rows[name].dtype)
        ones = np.ones(ids.size, np.uint8)
        rows[f"m{width + 1}"] = rows[f"m{width + 2}"] = ones
        return rows

    def _forget(self, row_ids: Times, key_ids: Times, value_ids: Times) -> None:
        rows, keys = self._rows.index.once(row_ids), self._keys.once(key_ids)
        self._rows.give_back(rows[self._rows.counts["state"][rows] == 0])
        empty = (self._counts["count"][keys] == 0) & (self._counts["head"][keys] < 0)
        self._keys.give_back(keys[empty])
        if self._kind == kernel.SINGLE:
            values = self._values.index.once(value_ids)
            self._values.give_back(values[self._values.counts["held"][values] == 0])
