"""EXISTS, IN and scalar subqueries over a changing relation, evaluated for each row of another
(mark and single joins, ``kernels.relations.subquery_join``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from cql.base.model import Schema
from cql.executor.codegen.expressions.emit import ErrorSite
from cql.executor.kernels.relations import group_changes as changes
from cql.executor.kernels.relations import subquery_join as kernel
from cql.executor.morsel.morsel import Morsel, value_bytes
from cql.executor.operators.relations.frontier import FrontierOperator
from cql.executor.operators.relations.grouped import GROUP, GroupChangesOperator, piece_rows
from cql.executor.operators.relations.key_finder import KeyFinder
from cql.executor.operators.workspace import Workspace
from cql.executor.state.repartition import Owners, Taken, Values, each
from cql.executor.state.stateful import Stateful
from cql.executor.state.store import Snapshot
from cql.planner.nodes.physical import SubqueryJoinExec

#: The space of what the rows ask for (``state.repartition``).
_ASKED = "asked"
_SLOTS = {
    "n": kernel.CHANGES,
    "times": kernel.TIMES,
    "weights": kernel.WEIGHTS,
    "out": kernel.MADE,
    "more": kernel.MORE,
    "detail": kernel.MADE,  # there is one way to fail
}
_KEPT = (kernel.COUNT, kernel.NULLS, kernel.VALUE, kernel.OLDEST, kernel.NEWEST)


class _Asked(KeyFinder):
    """The index of what the rows ask for: of keys or, for a scalar subquery, of its values."""

    def __init__(self, owner: str, schema: Schema, workspace: Workspace, *, single: bool) -> None:
        inputs, rows = [(schema, range(len(schema)))], piece_rows(workspace)
        value = schema[0].type if single else None
        super().__init__(owner, inputs, workspace, rows, finds_nulls=True, value=value)

    def grow(self, size: int) -> None:
        super().grow(size)
        self.store.resize("of_ids", size * kernel.OF_ID, np.int64)

    @property
    def layout(self) -> Mapping[str, Values]:
        return {"of_ids": Values(_ASKED, kernel.OF_ID, {kernel.HEAD: GROUP})}


class SubqueryJoinOperator(GroupChangesOperator):
    """State: the rows that wait; each distinct row of the left input, with its copies, and with the
    copies and the answer last output; the multiplicity of each key (or value) in the subquery.
    ``numbered``: the output of this partition has order columns (``stage.spec.ORDER``): the
    instant, and what caused the change."""

    addresses: ClassVar = {**GroupChangesOperator.addresses, "out_cause": changes.CAUSES_OUT}
    own_addresses: ClassVar = {
        "ids": kernel.OWNERS,
        "numbers": kernel.NUMBERS,
        "born_in": kernel.BORN_IN,
        "touched": kernel.TOUCHED,
        "once": kernel.CHANGED,
        "asked_null": kernel.ASKED_NULL,
        "states": kernel.STATES,
        "live": kernel.BITS,
        "out_owner": kernel.OUT_OWNER,
        "out_time": kernel.OUT_TIME,
        "out_weight": kernel.OUT_WEIGHT,
        "out_r0": kernel.OUT_ANSWER,
        "out_v0": kernel.OUT_VALID,
        "out_cause": kernel.OUT_CAUSE,
    }

    def __init__(
        self, name: str, node: SubqueryJoinExec, workspace: Workspace, *, numbered: bool = False
    ) -> None:
        self.numbered = numbered
        self.node = node
        schema, output = node.input.schema, node.schema
        width, single = node.width, node.kind == "scalar"
        columns = self._asked_columns = range(width, len(schema) - 3)
        asked = Schema(tuple(schema[c] for c in columns))
        self._asked = _Asked(name, asked, workspace, single=single)
        words = np.zeros(kernel.COLUMNS + 2 * len(asked), np.int64)
        words[kernel.KIND] = kernel.BY_KEY if node.by_key else kernel.IN
        if single:
            words[kernel.KIND] = kernel.SINGLE
        words[kernel.CONSTANT] = node.constant
        words[kernel.VALUE_BYTES] = value_bytes(output[width].type)
        words[[kernel.VALUE, kernel.OLDEST, kernel.NEWEST]] = -1
        places = [kernel.COLUMNS + 2 * k for k in range(len(asked))]
        reads = [(c, at, at + 1) for c, at in zip(columns, places, strict=True)]
        super().__init__(
            name,
            schema,
            width,
            output,
            int(kernel.subquery_join.address),
            words,
            _SLOTS,
            workspace,
            [(len(schema) - 3, kernel.SIDES, -1), *reads],
            [(output[width].type.storage, output[width].nullable)],
            _KEPT,
        )
        self.scratch |= {"asked_null", "out_cause"}
        self.open()

    # -- room ------------------------------------------------------------------------------------

    def room_for_piece(self, rows: int) -> None:
        self._asked.room_for_piece(rows)
        self.resize("asked_null", rows, np.uint8)
        if self.numbered:
            self.resize("out_cause", max(2, self.workspace.morsel_rows), np.int64)
        super().room_for_piece(rows)

    def grow_groups(self, known: int, size: int) -> None:
        super().grow_groups(known, size)
        self.grow("live", "int64", known, size)
        self.resize("states", size * kernel.FIELDS, np.int64)
        self.state["states"][known * kernel.FIELDS :] = 0

    def bind(self) -> None:
        super().bind()
        words, index, state = self._words, self._asked.index, self._asked.store.arrays
        words[kernel.INDEX] = self._asked.descriptors[0].ctypes.data
        words[[kernel.ROWS, kernel.IDS]] = self._index.capacity, index.capacity
        words[kernel.ROOM] = len(self.state.get("out_owner", ()))
        for word, name in (
            (kernel.OF_IDS, "of_ids"),
            (kernel.VALUES, "values"),
            (kernel.VALUE_MASKS, "value_masks"),
        ):
            words[word] = state[name].ctypes.data if name in state else 0
        self.point(changes.SECOND, index.arrays[3])

    @property
    def parts(self) -> Sequence[Stateful]:
        return (*super().parts, self._asked)

    # -- snapshots -------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        made = super().snapshot()
        return replace(made, parts={**made.parts, "asked": self._asked.snapshot()})

    def restore(self, saved: Snapshot) -> None:
        self._asked.restore(saved.parts["asked"])
        super().restore(saved)

    # -- other partitions ------------------------------------------------------------------------

    @property
    def layout(self) -> dict[str, Values]:
        refers = {kernel.KEY: _ASKED, kernel.AFTER: GROUP, kernel.BEFORE: GROUP}
        return super().layout | {
            "live": Values(GROUP),
            "states": Values(GROUP, kernel.FIELDS, refers),
        }

    def repartition(self, saved: Sequence[Snapshot], owners: Owners) -> list[Snapshot]:
        saved, takes = self.take(saved, owners, self._asked_columns)
        return [self.part(saved, taken, number) for number, taken in enumerate(takes)]

    def take(
        self, saved: Sequence[Snapshot], owners: Owners, keys: Sequence[int]
    ) -> tuple[list[Snapshot], list[Taken]]:
        """A partition takes the left rows of its keys."""
        saved, takes = FrontierOperator.take(self, saved, owners, keys)
        asked = self._asked.take(each(saved, "asked"), owners, _ASKED)
        for taken, own in zip(takes, asked, strict=True):
            taken.also(own, {_ASKED: _ASKED})
            for k, one in enumerate(saved):
                rows = one.arrays["states"].reshape(-1, kernel.FIELDS)
                live = np.flatnonzero(one.arrays["live"])
                mine = taken.numbers(k, _ASKED, rows[live, kernel.KEY]) >= 0
                taken.take(k, GROUP, live[mine], len(rows))
        return saved, takes

    def part(self, saved: Sequence[Snapshot], taken: Taken, number: int) -> Snapshot:
        made = super().part(saved, taken, number)
        asked = self._asked.part(each(saved, "asked"), taken, _ASKED)
        return replace(made, parts={**made.parts, "asked": asked})

    # -- called by the runtime -------------------------------------------------------------------

    def answer(self, request: int, wanted: int) -> None:
        if request == changes.NEED_SECOND:
            self._asked.make_room(wanted)
            self.bind()
        else:
            super().answer(request, wanted)

    def error(self, morsel: Morsel) -> ErrorSite:
        return ErrorSite("rows", "the subquery gives more than one row", self.node.pos)

    def counters(self) -> dict[str, int]:
        held = self._index.capacity - self._index.free
        return {**super().counters(), "held_rows": held, "groups": self._asked.used}
