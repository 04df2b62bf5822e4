"""The base class of native operators that process a relation instant by instant.

All changes of one instant leave together, once the watermark has passed the instant (CQL's
semantics: a relation has one state per instant, and none in between).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from cql.base.model import Schema
from cql.executor.kernels.morsel_layout import DETAIL, DETAIL_ROW, NEVER
from cql.executor.kernels.order.row_slab import HELD, OWN, SLOTS
from cql.executor.kernels.relations import frontier as kernel
from cql.executor.morsel.morsel import Morsel
from cql.executor.operators.order.row_slab import STEP, SlabOperator
from cql.executor.operators.stage.operator import Workspace
from cql.planner.nodes.expr import Column
from cql.planner.nodes.logical import SortKey


class FrontierOperator(SlabOperator):
    """``time``: the input column with the instants. ``time_out``: the output column on which the
    operator emits punctuation. ``by``: the columns whose values the kernel compares. ``end``: the
    number of the descriptor's words up to the columns. State: the slab and the line, ``times`` and
    ``line`` (``kernels.relations.frontier``); if the rows are ``numbered``, ``born``, the stream
    position of each row."""

    numbered = False

    addresses: ClassVar = {
        "times": kernel.TIMES,
        "line": kernel.LINE,
        "spare_times": kernel.SPARE_TIMES,
        "spare_line": kernel.SPARE_LINE,
        "born": kernel.BORN,
    }

    scratch = frozenset(("spare_times", "spare_line"))

    def __init__(
        self,
        name: str,
        schema: Schema,
        time: int,
        time_out: int,
        end: int,
        workspace: Workspace,
        by: Sequence[int] = (),
    ) -> None:
        keys = []
        for c in by:
            column = Column(c, schema[c].name, schema[c].type, schema[c].nullable)
            keys.append(SortKey(column, False, True))
        super().__init__(name, schema, keys, end - OWN, workspace, ranked=False)
        d = self.descriptor
        d[[kernel.INSTANT, kernel.OUT_TIME]] = time, time_out
        d[[kernel.WATERMARK, kernel.LAST, kernel.SENT]] = NEVER
        self.more_slots(STEP)

    def more_slots(self, wanted: int) -> None:
        super().more_slots(wanted)
        # A morsel's rows fit behind the line, at the latest after a move to the front; the line
        # moves when a third of its room has been used up.
        room = int(self.descriptor[SLOTS]) * 3 // 2
        self.resize("times", room, np.int64)
        self.resize("line", room, np.int32)
        if self.numbered:
            self.resize("born", int(self.descriptor[SLOTS]), np.int64)
        self.descriptor[kernel.ROOM] = room
        self.bind()

    def _room_to_sort(self, rows: int) -> None:
        room = 1 << (rows - 1).bit_length()
        self.resize("spare_times", room, np.int64)
        self.resize("spare_line", room, np.int32)
        self.bound(kernel.SPARE, room)
        self.bind()

    @property
    def last(self) -> int | None:
        """The latest watermark of the input before its end."""
        last = int(self.descriptor[kernel.LAST])
        return None if last == NEVER else last

    # -- called by the runtime -------------------------------------------------------------------

    def provide(self, morsel: Morsel) -> None:
        self.answer(int(morsel.words[DETAIL]), int(morsel.words[DETAIL_ROW]))

    def answer(self, request: int, wanted: int) -> None:
        """Gives the kernel the room that it requests."""
        match request:
            case kernel.NEED_SLOTS:
                self.more_slots(int(self.descriptor[HELD]) + wanted)
            case kernel.NEED_SPARE:
                self._room_to_sort(wanted)
            case _:
                raise AssertionError(f"{self.name} asks for {request}")

    def counters(self) -> dict[str, int]:
        d = self.descriptor
        return {"rows_in": int(d[kernel.ROWS_IN]), "rows_out": int(d[kernel.ROWS_OUT])}
