"""ASOF join: each left row with the nearest right row of its key, earlier or later, or with the
latest ones.

The rows of both sides come in any order. A left row leaves once, by the watermarks of both inputs,
no later row can change its answer. Left rows leave in the order of time
(``kernels.joins.asof_backward``, ``kernels.joins.asof_forward``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from cql.base.model import Schema
from cql.executor.kernels.joins import asof as kernel
from cql.executor.kernels.joins import asof_backward as backward
from cql.executor.kernels.joins import asof_forward as forward
from cql.executor.kernels.joins import asof_rows as rows
from cql.executor.kernels.joins.pair_rows import LEFT, RIGHT
from cql.executor.kernels.morsel_layout import DETAIL, INFINITY, NEVER, PORT
from cql.executor.kernels.order.row_slab import HELD, SLOTS
from cql.executor.kernels.relations import groups
from cql.executor.morsel.morsel import Morsel, Words
from cql.executor.operators.contract import Operator
from cql.executor.operators.order.row_slab import SLOT, output_words
from cql.executor.operators.relations.frontier import FrontierOperator
from cql.executor.operators.relations.group_index import key_width
from cql.executor.operators.relations.grouped import GROUP, GroupedOperator, piece_rows
from cql.executor.operators.workspace import Workspace
from cql.executor.state.repartition import Owners, Values, each, shared_words
from cql.executor.state.stateful import Stateful
from cql.executor.state.store import Snapshot, plain_words, take_plain_words
from cql.planner.nodes.physical import AsofJoinExec, sources

#: The addresses in the descriptor.
_BOUND = (LEFT, RIGHT)
_COUNTERS = (*range(kernel.ROWS_IN, kernel.TOO_LATE), kernel.TOO_LATE, kernel.TOO_LATE + 1)
#: The smallest number of keys at which keys outside the tolerance are removed.
_KEYS = 1 << 10


class _SoughtRows(FrontierOperator):
    """The rows of a side whose keys are sought among those of the other side."""

    addresses: ClassVar = {
        **FrontierOperator.addresses,
        "wanted": groups.WANTED,
        "ids": groups.IDS,
    }
    scratch = FrontierOperator.scratch | {"wanted", "ids"}

    def __init__(
        self,
        name: str,
        schema: Schema,
        time: int,
        keys: list[int],
        workspace: Workspace,
        *,
        numbered: bool = False,
    ) -> None:
        self.numbered = numbered
        super().__init__(name, schema, time, time, forward.RIGHT_END, workspace, keys)
        piece = piece_rows(workspace)
        self.resize("wanted", piece * key_width(len(keys)), np.int64)
        self.resize("ids", piece, np.int64)
        self.bound(groups.PIECE, piece)
        self.bind()


class _LatestRows(GroupedOperator):
    """The right rows of a backward join: those that wait, and the latest one of each key."""

    addresses: ClassVar = {**GroupedOperator.addresses, "latest": backward.LATEST}

    def __init__(
        self, name: str, schema: Schema, time: int, keys: list[int], workspace: Workspace
    ) -> None:
        super().__init__(name, schema, keys, time, time, backward.END, workspace)
        self.open()

    @property
    def layout(self) -> dict[str, Values]:
        return super().layout | {"latest": Values(GROUP, refers={0: SLOT}, empty=-1)}

    def grow_groups(self, known: int, size: int) -> None:
        self.grow("latest", "int32", known, size, -1)


class _LastRows(GroupedOperator):
    """The right rows of a join with several of each key: those that wait, and the last of each
    key."""

    addresses: ClassVar = {**GroupedOperator.addresses, "kept": rows.KEPT}

    def __init__(
        self, name: str, schema: Schema, time: int, keys: list[int], workspace: Workspace
    ) -> None:
        super().__init__(name, schema, keys, time, time, rows.END, workspace)
        self.open()

    @property
    def layout(self) -> dict[str, Values]:
        slots = {rows.OLDEST: SLOT, rows.NEWEST: SLOT}
        return super().layout | {"kept": Values(GROUP, rows.OF_KEY, slots)}

    def grow_groups(self, known: int, size: int) -> None:
        self.resize("kept", rows.OF_KEY * size, np.int32)
        self.state["kept"][rows.OF_KEY * known :] = 0


class _WaitingRows(GroupedOperator):
    """The left rows of a forward join: all of them wait for partners, linked by key."""

    addresses: ClassVar = {
        **GroupedOperator.addresses,
        "partner": forward.PARTNER,
        "link": forward.LINK,
        "key": forward.KEY,
        "oldest": forward.OLDEST,
        "newest": forward.NEWEST,
        "answered": forward.ANSWERED,
        "count": forward.COUNT,
    }

    def __init__(
        self, name: str, schema: Schema, time: int, keys: list[int], workspace: Workspace
    ) -> None:
        super().__init__(name, schema, keys, time, time, forward.END, workspace)
        self.open()

    def more_slots(self, wanted: int) -> None:
        super().more_slots(wanted)
        for name in ("partner", "link", "key"):
            self.resize(name, int(self.descriptor[SLOTS]), np.int32)
        self.bind()

    def grow_groups(self, known: int, size: int) -> None:
        # A right row may find a new key of the same piece before the key's first left row does.
        for name in ("oldest", "newest"):
            self.grow(name, "int32", known, size, -1)
        self.grow("count", "int32", known, size)
        self.grow("answered", "int64", known, size, NEVER)


class _Partners(_SoughtRows):
    """The right rows of a forward join: those that wait, and the partners of left rows."""

    addresses: ClassVar = {**_SoughtRows.addresses, "uses": forward.USES}

    def more_slots(self, wanted: int) -> None:
        before = int(self.descriptor[SLOTS])
        super().more_slots(wanted)
        self.resize("uses", int(self.descriptor[SLOTS]), np.int32)
        self.state["uses"][before:] = 1
        self.bind()


class AsofJoinOperator(Operator):
    """State: the rows of both sides. The counter ``null_keys`` is the number of right rows without
    a key or time; left rows without a key or time leave without a partner. ``with_order_columns``:
    the output of this partition, of a backward join, has the order columns (``stage.spec.ORDER``):
    the time of the left row and its stream position."""

    def __init__(
        self,
        name: str,
        node: AsofJoinExec,
        workspace: Workspace,
        *,
        with_order_columns: bool = False,
    ) -> None:
        self.name = name
        self.node = node
        (left, right), (a, b) = (node.left.schema, node.right.schema), node.times
        keys, others = [k for k, _ in node.keys], [k for _, k in node.keys]
        self.sides: tuple[FrontierOperator, FrontierOperator]
        if node.backward:
            kept = _LatestRows if node.rows == 1 else _LastRows
            found = kept(name, right, b, others, workspace)
            seeking = _SoughtRows(name, left, a, keys, workspace, numbered=with_order_columns)
            self.sides = seeking, found
        else:
            waiting = _WaitingRows(name, left, a, keys, workspace)
            self.sides = waiting, _Partners(name, right, b, others, workspace)
        outputs = output_words(node.columns, node.schema, len(left))
        self.descriptor: Words = np.zeros(kernel.FIRST + outputs.size, np.int64)
        d = self.descriptor
        d[[LEFT, RIGHT]] = [s.descriptor.ctypes.data for s in self.sides]
        d[[kernel.SHIFT, kernel.PADS, kernel.OUTPUTS]] = node.shift, node.pads, len(node.columns)
        d[kernel.TOLERANCE] = INFINITY if node.tolerance is None else node.tolerance
        d[kernel.TIME_OUT] = node.columns.index(a) if a in node.columns else -1
        d[[kernel.UNTIL, kernel.SENT]] = NEVER
        d[[kernel.LOOK_AT, kernel.FEWEST]] = _KEYS
        d[kernel.FIRST :] = outputs
        d[[kernel.CURSOR, kernel.MOST]] = -1, node.rows
        function: Any = backward.asof_backward if node.backward else forward.asof_forward
        self.address = int(function.address)

    # -- snapshots ---------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """The state of both sides; the runtime has no morsel inside."""
        left, right = self.sides
        parts = {"left": left.snapshot(), "right": right.snapshot()}
        return Snapshot({}, plain_words(self.descriptor, _BOUND), parts)

    def restore(self, saved: Snapshot) -> None:
        """Continues with the state of an operator of the same plan. The codes are those of the
        snapshot: ``map_codes`` follows."""
        take_plain_words(saved.words, self.descriptor, _BOUND, self.name)
        for side, name in zip(self.sides, ("left", "right"), strict=True):
            side.restore(saved.parts[name])

    def repartition(self, saved: Sequence[Snapshot], owners: Owners) -> list[Snapshot]:
        """Of a backward join."""
        parts: list[dict[str, Snapshot]] = [{} for _ in range(owners.parts)]
        for port, (side, name) in enumerate(zip(self.sides, ("left", "right"), strict=True)):
            keys = [key[port] for key in self.node.keys]
            taking, takes = side.take(each(saved, name), owners, keys)
            for number, (part, taken) in enumerate(zip(parts, takes, strict=True)):
                part[name] = side.part(taking, taken, number)
        least = (kernel.DROPS, kernel.LOOK_AT)
        words = [shared_words(saved, number, _COUNTERS, least) for number in range(owners.parts)]
        return [Snapshot({}, own, part) for own, part in zip(words, parts, strict=True)]

    # -- called by the runtime ---------------------------------------------------------------------

    def provide(self, morsel: Morsel) -> None:
        side = self.sides[int(morsel.words[PORT])]
        if morsel.words[DETAIL] == groups.NEED_GROUPS:
            side = self.sides[self.node.backward]
        side.provide(morsel)

    @property
    def parts(self) -> Sequence[Stateful]:
        return self.sides

    def counters(self) -> dict[str, int]:
        d, (left, right) = self.descriptor, self.sides
        held = int(right.descriptor[HELD])
        return {
            "rows_in": int(d[kernel.ROWS_IN]),
            "rows_out": int(d[kernel.ROWS_OUT]),
            "left_rows": int(d[kernel.LEFT_ROWS]),
            "unmatched": int(d[kernel.UNMATCHED]),
            "held_left": int(left.descriptor[HELD]),
            "held_right": held,
            "purged": int(d[kernel.TAKEN]) - held,
            "null_keys": int(d[kernel.NULL_KEYS]),
            "too_late_l": int(d[kernel.TOO_LATE + LEFT]),
            "too_late_r": int(d[kernel.TOO_LATE + RIGHT]),
        }

    def too_late(self) -> list[tuple[str, int]]:
        """For each port, the number of its rows that arrived below the bound that the port got
        while it was idle."""
        names = [", ".join(s.name for s in sources(n)) for n in (self.node.left, self.node.right)]
        counts = self.descriptor[kernel.TOO_LATE : kernel.TOO_LATE + 2].tolist()
        return list(zip(names, counts, strict=True))
