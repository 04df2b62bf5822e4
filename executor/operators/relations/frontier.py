"""The base class of native operators that process a relation instant by instant.

All changes of one instant leave together, once the watermark has passed the instant (CQL's
semantics: a relation has one state per instant, and none in between).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from cql.base.model import Schema
from cql.executor.kernels.morsel_layout import DETAIL, DETAIL_ROW, NEVER
from cql.executor.kernels.order.row_slab import HELD, OWN, SLOTS
from cql.executor.kernels.relations import frontier as kernel
from cql.executor.morsel.morsel import Morsel, Words
from cql.executor.operators.order.row_slab import (
    SLOT,
    STEP,
    SlabOperator,
    free_the_rest,
    key_columns,
    slots_for,
    used_slots,
)
from cql.executor.operators.workspace import Workspace
from cql.executor.state.repartition import (
    Owners,
    Taken,
    Values,
    gather,
    in_new_order,
    shared_words,
    taken_by_owner,
)
from cql.executor.state.store import Snapshot, State
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
    #: Words that are counters, and words of which the least of all partitions is that of each
    #: (``state.repartition.shared_words``).
    sums: ClassVar[tuple[int, ...]] = (kernel.ROWS_IN, kernel.ROWS_OUT)
    least: ClassVar[tuple[int, ...]] = ()

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

    # -- other partitions ------------------------------------------------------------------------

    @property
    def layout(self) -> dict[str, Values]:
        return super().layout | ({"born": Values(SLOT)} if self.numbered else {})

    def take(
        self, saved: Sequence[Snapshot], owners: Owners, keys: Sequence[int]
    ) -> tuple[list[Snapshot], list[Taken]]:
        """What each of the partitions of ``owners`` takes of ``saved``; ``keys`` are the columns by
        which partitions own rows. Returns the snapshots as this operator has them, too."""
        saved = [self._numbered(one) for one in saved]
        takes = [Taken() for _ in range(owners.parts)]
        for k, one in enumerate(saved):
            slots = used_slots(one)
            own = owners.of(key_columns(self.schema, keys, one, slots), len(slots))
            taken_by_owner(k, SLOT, slots, own, int(one.words[SLOTS]), takes)
        return saved, takes

    def _numbered(self, saved: Snapshot) -> Snapshot:
        """A snapshot with stream positions, if this operator has them. Those of an operator without
        partitions get them in the order of the line; rows to come have higher ones."""
        if not self.numbered or "born" in saved.arrays:
            return saved
        born = np.zeros(int(saved.words[SLOTS]), np.int64)
        line = saved.arrays["line"][saved.words[kernel.HEAD] : saved.words[kernel.TAIL]]
        born[line] = np.arange(len(line))
        return replace(saved, arrays={**saved.arrays, "born": born})

    def part(self, saved: Sequence[Snapshot], taken: Taken, number: int) -> Snapshot:
        """The snapshot of new partition ``number``, from what it has ``taken`` of ``saved``."""
        rows = taken.count(SLOT)
        sizes = self.sizes(taken) | {SLOT: slots_for(rows)}
        arrays = gather(self.layout, [one.arrays for one in saved], taken, sizes)
        words = shared_words(saved, number, self.sums, self.least)
        free_the_rest(arrays, words, rows)
        self._gather_line(saved, taken, arrays, words)
        return Snapshot(arrays, words)

    def sizes(self, taken: Taken) -> dict[str, int]:
        """By space, the places that a new partition has room for; not the slots."""
        return {}

    def _gather_line(
        self, saved: Sequence[Snapshot], taken: Taken, arrays: State, words: Words
    ) -> None:
        """Merges the lines of ``saved`` by time, then by stream position."""
        parts, lines, times, positions = [], [], [], []
        for k, one in enumerate(saved):
            head, ready, tail = one.words[[kernel.HEAD, kernel.READY, kernel.TAIL]].tolist()
            old = one.arrays["line"][head:tail]
            slots = taken.numbers(k, SLOT, old)
            mine = slots >= 0
            # Without stream positions, there is one old partition, or the order does not matter.
            born = one.arrays["born"][old] if "born" in one.arrays else np.arange(len(old))
            parts.append((np.arange(head, tail) >= ready)[mine])
            lines.append(slots[mine])
            times.append(one.arrays["times"][head:tail][mine])
            positions.append(born[mine])
        waits, line, time, born = map(np.concatenate, (parts, lines, times, positions))
        order = in_new_order((waits, time, born))
        n, room = len(order), int(words[SLOTS]) * 3 // 2
        arrays["times"], arrays["line"] = np.zeros(room, np.int64), np.zeros(room, np.int32)
        arrays["times"][:n], arrays["line"][:n] = time[order], line[order]
        words[[kernel.HEAD, kernel.READY]] = 0, n - np.count_nonzero(waits)
        words[[kernel.TAIL, kernel.SORTED, kernel.ROOM]] = n, n, room

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
