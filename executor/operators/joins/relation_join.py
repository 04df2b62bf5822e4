"""Joins of changing relations: inner, outer, and mark (whether each left row has a partner)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from cql.base.model import Schema
from cql.executor.kernels.morsel_layout import END_OF_INPUT, IDLE, INFINITY, NEVER, PORT, ROWS
from cql.executor.kernels.relations import relation_join as kernel
from cql.executor.morsel.morsel import Morsel
from cql.executor.operators.joins import relation_join_condition as writing
from cql.executor.operators.relations.changelog_operator import Times, Waiting, punctuations_of
from cql.executor.operators.relations.group_index import GroupIndex, key_words
from cql.executor.operators.relations.row_batch import (
    RowsOperator,
    count,
    map_texts,
    nbytes,
    no_rows,
    rows_of,
    take,
)
from cql.executor.operators.relations.set_operations import RowIndex, weights_of
from cql.executor.operators.stage.operator import (
    CodeColumn,
    Workspace,
    bind_constants,
    map_constants,
)
from cql.executor.state.declared import Declared
from cql.executor.state.store import Snapshot, State, plain_words, take_plain_words
from cql.planner.nodes.physical import Physical, sources
from cql.planner.nodes.physical_join import RelationJoinExec

_SHOWS = ("inner", "left", "right", "full")
_OF_LEFT = {"left": kernel.WITHOUT, "full": kernel.WITHOUT, "mark": kernel.ANSWER}
_OF_RIGHT = {"right": kernel.WITHOUT, "full": kernel.WITHOUT}
#: The maximum number of changes computed at a time.
_ROOM = 1 << 14


class _Side(Declared):
    """An input: its distinct rows, its waiting rows, and its ``watermark``."""

    saved_numbers: ClassVar[tuple[str, ...]] = ("watermark", "ended", "idle", "too_late")
    saved_arrays: ClassVar[tuple[str, ...]] = ("states",)
    saved_parts: ClassVar[tuple[str, ...]] = ("waiting", "rows")

    def __init__(self, node: Physical, keys: tuple[int, ...]) -> None:
        self.schema = node.schema
        self.name = ", ".join(s.name for s in sources(node))
        self.time = len(self.schema) - 2
        self.keys = keys
        self.waiting = Waiting(self.schema, self.time)
        self.rows = RowIndex(Schema(self.schema.fields[:-2]))
        self.states = np.zeros((0, kernel.FIELDS), np.int64)  # a line per row id
        self.watermark = NEVER
        self.ended = self.idle = False
        self.too_late = 0  # rows that entered below the watermark, as the input had been idle

    @property
    def nbytes(self) -> int:
        return nbytes(self.waiting.parts) + self.rows.nbytes + self.states.nbytes

    def take_in(self, morsel: Morsel, watermark: int) -> None:
        """Takes in rows and punctuation. Instants before the operator's ``watermark`` are
        over. If an input that was idle brings a change of such an instant, the change counts for
        the instant ``watermark``."""
        if morsel.words[ROWS] > 0:
            rows = rows_of(morsel, self.schema)
            times = self.waiting.times(rows)
            late = times < watermark
            if late.any():
                self.too_late += int((weights_of(rows, self.schema)[late] > 0).sum())
                column = rows[f"c{self.time}"]
                rows[f"c{self.time}"] = np.where(late, watermark, times).astype(column.dtype)
            self.waiting.add(rows)
        for attribute, value in punctuations_of(morsel):
            if attribute == END_OF_INPUT:
                self.ended, self.watermark = True, INFINITY
            elif attribute == IDLE:
                self.idle = bool(value)
            elif attribute == self.time:
                self.watermark = max(self.watermark, value)


class RelationJoinOperator(RowsOperator):
    """State: the rows of both sides, in lists by key. Per row: its multiplicity, its number of
    partners, and the number of its copies output without a partner (mark joins: with the
    answer)."""

    saved_numbers: ClassVar[tuple[str, ...]] = (
        *(*RowsOperator.saved_numbers, "watermark", "null_keys"),
        *("_idle", "_finished", "_gone_to", "_punctuated"),
    )
    saved_arrays: ClassVar[tuple[str, ...]] = ("_control", "_heads")
    saved_parts: ClassVar[tuple[str, ...]] = ("_left", "_right", "_keys")

    def __init__(self, name: str, node: RelationJoinExec, workspace: Workspace) -> None:
        super().__init__(name, node.schema, workspace)
        self.node = node
        lefts, rights = (tuple(key[k] for key in node.keys) for k in (0, 1))
        self._left, self._right = _Side(node.left, lefts), _Side(node.right, rights)
        self.sides = self._left, self._right
        self._types = [node.left.schema[a].type for a in lefts]
        self._keys = GroupIndex(self._types)
        self.watermark = NEVER
        self.null_keys = 0
        self._idle = self._finished = False
        self._control = np.zeros(kernel.CONTROL, np.int64)
        self._changes: tuple[Times, ...] | None = None  # per side: times, weights, ids
        self._gone_to = NEVER
        self._heads = np.zeros((2, 0), np.int64)  # per side and key: the first row of the list
        self._condition = writing.write(node) if node.rest else None
        self._concerned = np.empty((2, 0), np.int64)  # scratch of the kernel
        self._words = np.zeros(2, np.int64)
        self._address = 0
        if self._condition is not None:
            written = self._condition.kernel
            self._module = workspace.load(written.text)
            self._address = int(self._module.op.address)
            self._words = np.zeros(len(written.slots), np.int64)
            bind_constants(written, self._module, self._words, workspace.dictionary)

    # -- snapshots ---------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """The state; the runtime has no morsel inside. The condition's constants are codes of the
        snapshot, too."""
        condition = Snapshot({}, plain_words(self._words, self._bound))
        made = super().snapshot()
        return replace(made, parts={**made.parts, "condition": condition})

    def restore(self, saved: Snapshot) -> None:
        super().restore(saved)
        words = saved.parts["condition"].words
        take_plain_words(words, self._words, self._bound, self.name)

    @property
    def _bound(self) -> list[int]:
        """The words of the condition that ``_bind`` or the loader sets."""
        if self._condition is None:
            return []
        kernel = self._condition.kernel
        names = ["rank", "rank length", "rows 0", "rows 1", *self._condition.places]
        names += [f"part {k}" for k in range(kernel.parts)]
        return [kernel.slots[name] for name in names if name in kernel.slots]

    # -- called by the runtime ---------------------------------------------------------------------

    @property
    def state_bytes(self) -> int:
        own = self._keys.nbytes + self._heads.nbytes + nbytes([self.ready])
        return sum(s.nbytes for s in self.sides) + own

    def counters(self) -> dict[str, int]:
        left, right = (int(s.rows.index.live.size) for s in self.sides)
        return {
            **super().counters(),
            "held_left": left,
            "held_right": right,
            "groups": int(self._keys.live.size),
            "waiting": sum(s.waiting.rows for s in self.sides),
            "null_keys": self.null_keys,
        }

    def too_late(self) -> list[tuple[str, int]]:
        """For each port, the number of its rows that arrived below the watermark because the port
        had been idle."""
        return [(s.name, s.too_late) for s in self.sides]

    def map_codes(self, change: Callable[[CodeColumn], CodeColumn]) -> None:
        for s in self.sides:
            s.waiting.map_codes(change)
            s.rows.map_codes(change)
        self._keys.map_codes(change)
        map_texts([self.ready], self.output, change)
        if self._condition is not None:
            map_constants(self._condition.kernel, self._words, change)

    # -- morsels -----------------------------------------------------------------------------------

    def take_in(self, morsel: Morsel) -> int | None:
        self.sides[int(morsel.words[PORT])].take_in(morsel, self.watermark)
        self.ready = no_rows(self.output)
        watermark = self._come_to()
        if watermark > self.watermark:
            self.watermark = watermark
            self._begin()
            self.ready = self.more() or self.ready
        self._punctuate()
        return None

    def _come_to(self) -> int:
        """The watermark of both inputs: the minimum over the inputs that are neither idle nor
        ended. Without such an input, the watermark stays."""
        if all(s.ended for s in self.sides):
            return INFINITY
        return min(
            (s.watermark for s in self.sides if not (s.idle or s.ended)), default=self.watermark
        )

    def _punctuate(self) -> None:
        ended = all(s.ended for s in self.sides)
        idle = not ended and all(s.ended or s.idle for s in self.sides)
        if idle != self._idle:
            self._idle = idle
            self.punctuations.append((IDLE, int(idle)))
        if ended:
            if not self._finished:
                self.punctuations = [(END_OF_INPUT, INFINITY)]
            self._finished = True
        elif self.watermark not in (NEVER, self._punctuated):
            self._punctuated = self.watermark
            self.punctuations.append((len(self.output) - 2, self.watermark))

    _punctuated = NEVER

    def _begin(self) -> None:
        """Takes the changes of the instants that are over."""
        due = [s.waiting.before(self.watermark) for s in self.sides]
        if not any(map(count, due)):
            return
        self._changes = tuple(map(self._of_side, self.sides, due))
        self._control[[kernel.NEXT, kernel.NEXT + 1, kernel.DONE]] = 0
        self._control[kernel.NOW] = self._gone_to = NEVER
        if self._condition is not None:
            self._bind()

    def _of_side(self, side: _Side, rows: State) -> Times:
        """The times, weights and ids of a side's changes, shape (3, changes). New rows get the ids
        of their keys."""
        times = side.waiting.times(rows)
        ids, new = side.rows.ids(rows, times.size)
        side.states = _grown(side.states, side.rows.index.capacity)
        null = np.zeros(new.size, bool)
        for c in side.keys:
            null |= rows[f"m{c}"][new] == 0
        self.null_keys += int(null.sum())
        keyed = new[~null]
        words = key_words(take(rows, keyed), side.keys, self._types, keyed.size)
        keys, fresh = self._keys.ids(words)
        if self._heads.shape[1] < self._keys.capacity:
            self._heads = np.ascontiguousarray(_grown(self._heads.T, self._keys.capacity).T)
        self._heads[:, keys[np.flatnonzero(fresh)]] = -1
        side.states[ids[new]] = 0
        side.states[ids[new], kernel.KEY] = -1
        side.states[ids[keyed], kernel.KEY] = keys
        return np.stack([times, weights_of(rows, side.schema), ids])

    def _bind(self) -> None:
        """Writes the addresses of the rows' columns into the condition's descriptor."""
        assert self._condition is not None
        slots, places = self._condition.kernel.slots, self._condition.places
        for k, s in enumerate(self.sides):
            if f"rows {k}" in slots:
                self._words[slots[f"rows {k}"]] = s.rows.index.capacity
        for name, (side, column) in places.items():
            self._words[slots[name]] = self.sides[side].rows.rows[column].ctypes.data
        if self._condition.kernel.uses_rank:
            self._rank = self.workspace.dictionary.rank()
            self._words[slots["rank"]] = self._rank.ctypes.data
            self._words[slots["rank length"]] = self._rank.size

    # -- output ------------------------------------------------------------------------------------

    def more(self) -> State | None:
        """The next output changes, at most ``_ROOM``; None when there are no more."""
        if self._changes is None:
            return None
        kind, (left, right) = self.node.kind, self.sides
        out = np.empty((4, _ROOM), np.int64)
        most = max(s.rows.index.capacity for s in self.sides)
        if self._concerned.shape[1] < most:
            self._concerned = np.empty((2, most), np.int64)
        made = 0
        while made == 0 and not self._control[kernel.DONE]:
            made = kernel.join_changes(
                *self._changes, left.states, right.states, self._heads, self._concerned,
                kind in _SHOWS, _OF_LEFT.get(kind, kernel.NOTHING),
                _OF_RIGHT.get(kind, kernel.NOTHING), self._address, int(self._words.ctypes.data),
                self._control, out,
            )  # fmt: skip
        found = self._rows(*out[:, :made]) if made else None
        if self._control[kernel.DONE]:
            self._forget()
        return found

    def between(self) -> list[tuple[int, int]]:
        """Punctuation at the current instant. The operator goes through the instants one by one, so
        consumers need not wait for the pairs of the last one, which may be many."""
        now = int(self._control[kernel.NOW])
        if self._changes is None or now <= self._gone_to:
            return []
        self._gone_to = now
        return [(len(self.output) - 2, now)]

    def _rows(self, lefts: Times, rights: Times, times: Times, weights: Times) -> State:
        width = len(self.node.left.schema) - 2
        rows: State = {}
        ones = np.ones(times.size, np.uint8)
        for k, c in enumerate(self.node.columns):
            side, at, ids = (0, c, lefts) if c < width else (1, c - width, rights)
            rows |= _column(self.sides[side].rows.rows, at, ids, k)
        n = len(self.node.columns)
        if self.node.kind == "mark":
            rows[f"c{n}"], rows[f"m{n}"] = (rights == kernel.SOME).astype(np.uint8), ones
            n += 1
        time = no_rows(self.output)[f"c{n}"].dtype
        rows[f"c{n}"], rows[f"m{n}"] = times.astype(time, copy=False), ones
        rows[f"c{n + 1}"], rows[f"m{n + 1}"] = weights, ones
        return rows

    def _forget(self) -> None:
        """Frees the ids of rows that have left and of keys without rows."""
        assert self._changes is not None
        concerned = []
        for side, changes in zip(self.sides, self._changes, strict=True):
            ids = changes[2]
            gone = side.rows.index.once(ids[side.states[ids, kernel.HELD] == 0])
            concerned.append(side.states[gone, kernel.KEY])
            side.rows.give_back(gone)
        keys = np.concatenate(concerned)
        keys = self._keys.once(keys[keys >= 0])
        self._keys.give_back(keys[(self._heads[:, keys] < 0).all(axis=0)])
        self._changes = None


def _grown(table: Times, lines: int) -> Times:
    """``table`` with at least ``lines`` lines."""
    if len(table) >= lines:
        return table
    new = np.zeros((lines, table.shape[1]), np.int64)
    new[: len(table)] = table
    return new


def _column(rows: State, at: int, ids: Times, k: int) -> dict[str, npt.NDArray[Any]]:
    """Column ``at`` of rows as column ``k`` of the output; NULL where there is no row."""
    data, mask = rows[f"c{at}"], rows[f"m{at}"]
    none = ids < 0
    if not none.any():
        return {f"c{k}": data[ids], f"m{k}": mask[ids]}
    found = {f"c{k}": np.zeros(ids.size, data.dtype), f"m{k}": np.zeros(ids.size, np.uint8)}
    there = np.flatnonzero(~none)
    found[f"c{k}"][there], found[f"m{k}"][there] = data[ids[there]], mask[ids[there]]
    return found
