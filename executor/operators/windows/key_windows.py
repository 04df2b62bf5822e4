"""Windows over the row numbers of each key, as a running operator: the rows of a window leave
together when the window's last row has come (``kernels.windows.key_windows``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from cql.executor.kernels.morsel_layout import END_OF_INPUT, IDLE, INFINITY
from cql.executor.kernels.windows import key_windows as kernel
from cql.executor.morsel.morsel import Morsel
from cql.executor.operators.contract import CodeColumn
from cql.executor.operators.relations.changelog_operator import punctuations_of
from cql.executor.operators.relations.group_index import GroupIndex, grown, key_words
from cql.executor.operators.relations.row_batch import (
    RowsOperator,
    count,
    map_texts,
    nbytes,
    no_rows,
    rows_of,
    take,
)
from cql.executor.operators.workspace import Workspace
from cql.executor.state.store import BUFFERS, State
from cql.planner.nodes.physical import KeyWindowsExec

Words = npt.NDArray[np.int64]


class KeyWindowsOperator(RowsOperator):
    """State of each key: the rows that a later window needs, as a list of slots; the number of its
    rows so far; when its first row came. A key stays to the end: its next row has the next number.
    """

    saved_numbers: ClassVar[tuple[str, ...]] = (*RowsOperator.saved_numbers, "_ended")
    saved_arrays: ClassVar[tuple[str, ...]] = ("_keys", "_since", "_following", "_free", "_place")
    saved_tables: ClassVar[tuple[str, ...]] = ("_slots",)
    saved_parts: ClassVar[tuple[str, ...]] = ("_index",)

    def __init__(self, name: str, node: KeyWindowsExec, workspace: Workspace) -> None:
        super().__init__(name, node.schema, workspace)
        self.windows = node.windows
        self.schema = node.input.schema
        self._types = [self.schema[c].type for c in node.windows.by]
        self._index = GroupIndex(self._types)
        self._keys: Words = np.zeros((0, kernel.OF_KEY), np.int64)
        self._since: Words = np.zeros(0, np.int64)  # the number of a key's first row in the input
        self._slots: State = no_rows(self.schema)
        self._following: Words = np.zeros(0, np.int64)
        self._free: Words = np.zeros(0, np.int64)
        self._place: Words = np.zeros(kernel.WORDS, np.int64)
        self._place[kernel.SLOT] = -1
        self._lines: Words = np.zeros((workspace.morsel_rows, kernel.LINE), np.int64)
        workspace.resize(0, self._lines.nbytes, BUFFERS)
        # Of the morsel at hand: the key and the slot of each row. At the end of the input: the keys
        # in the order of their first rows.
        self._ids: Words = np.zeros(0, np.int64)
        self._taken: Words = np.zeros(0, np.int64)
        self._order: Words | None = None
        self._ended = False

    @property
    def state_bytes(self) -> int:
        own = (self._keys, self._since, self._following, self._free, self._ids, self._taken)
        return nbytes([self._slots, self.ready]) + self._index.nbytes + sum(a.nbytes for a in own)

    def counters(self) -> dict[str, int]:
        held = {"held": int(self._keys[:, kernel.HELD].sum())}
        gone = {"purged": kernel.PURGED, "between_windows": kernel.BETWEEN}
        return {**super().counters(), **held, **{k: int(self._place[w]) for k, w in gone.items()}}

    def map_codes(self, change: Callable[[CodeColumn], CodeColumn]) -> None:
        free = self._free[: int(self._place[kernel.FREE])]
        for i, _ in enumerate(self.schema):
            self._slots[f"m{i}"][free] = 0  # a free slot keeps no text
        map_texts([self._slots], self.schema, change)
        map_texts([self.ready], self.output, change)
        self._index.map_codes(change)

    # -- a morsel ----------------------------------------------------------------------------------

    def take_in(self, morsel: Morsel) -> int | None:
        for attribute, value in punctuations_of(morsel):
            if attribute == END_OF_INPUT:
                self._ended = True
            elif attribute == IDLE:
                self.punctuations.append((IDLE, value))
        rows, before = rows_of(morsel, self.schema), self.rows_in
        n = count(rows)
        self._ids, fresh = self._index.ids(key_words(rows, self.windows.by, self._types, n))
        self._more_keys(self._index.capacity)
        first = np.flatnonzero(fresh)
        self._since[self._ids[first]] = before - n + first
        self._taken = self._take_slots(n)
        for name, column in self._slots.items():
            column[self._taken] = rows[name]
        self._place[kernel.ROW] = 0
        self.ready = self._next() or no_rows(self.output)
        return None

    def more(self) -> State | None:
        found = self._next()
        if found is None and self._ended:
            self.punctuations = [(END_OF_INPUT, INFINITY)]
        elif found is None:
            self.punctuations += self.between()
        return found

    def between(self) -> list[tuple[int, int]]:
        return [(len(self.output) - 1, int(self._place[kernel.LEFT]))]

    def _next(self) -> State | None:
        """The next rows of windows that leave, None if there are none."""
        w, place, lines = self.windows, self._place, self._lines
        made = 0
        if self._order is None:
            made = kernel.push_rows(
                w.rows, w.slide, self._ids, self._taken, self._keys, self._following, self._free,
                place, lines,
            )  # fmt: skip
            if made == 0 and self._ended:
                live = self._index.live
                self._order = live[np.argsort(self._since[live], kind="stable")]
                place[[kernel.ROW, kernel.SLOT, kernel.START]] = 0, -1, kernel.NONE
        if self._order is not None:
            made = kernel.close_windows(
                w.rows, w.slide, self._order, self._keys, self._following, place, lines
            )
        return self._made(lines[:made]) if made else None

    def _made(self, lines: Words) -> State:
        rows, width = take(self._slots, lines[:, 0]), len(self.schema)
        for k in (1, 2):
            rows[f"c{width + k - 1}"] = lines[:, k].copy()
            rows[f"m{width + k - 1}"] = np.ones(len(lines), np.uint8)
        return rows

    def _more_keys(self, size: int) -> None:
        self._since = grown(self._since, size)
        if len(self._keys) < size:
            keys = np.zeros((size, kernel.OF_KEY), np.int64)
            keys[: len(self._keys)] = self._keys
            self._keys = keys

    def _take_slots(self, n: int) -> Words:
        """Takes free slots for ``n`` rows."""
        free = int(self._place[kernel.FREE])
        if free < n:
            old = count(self._slots)
            new = max(64, 2 * old, old + n)
            self._slots = {name: grown(c, new) for name, c in self._slots.items()}
            self._following = grown(self._following, new)
            self._free = grown(self._free, new)
            self._free[free : free + new - old] = np.arange(new - 1, old - 1, -1)
            free += new - old
        self._place[kernel.FREE] = free - n
        return self._free[free - n : free].copy()
