"""ORDER BY … LIMIT and ROW_NUMBER() within a window: rows wait until punctuation closes their
window.

Runs in Python over whole windows at a time (numpy sorts them); its state is the rows of the windows
that are still open, as flat arrays.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cql.executor.operators.native import CodeColumn, State, Workspace
from cql.executor.operators.rows import (
    Array,
    RowsOperator,
    append_part,
    count,
    joined,
    map_texts,
    nbytes,
    rows_of,
    take,
)
from cql.executor.unit import (
    END_OF_INPUT,
    IDLE,
    INFINITY,
    NEVER,
    PUNCTUATION_WORDS,
    PUNCTUATIONS,
    ROWS,
    Unit,
)
from cql.planner.expr import Column
from cql.planner.logical import SortKey
from cql.planner.physical import SortExec
from cql.planner.physical_progress import progressing


class SortOperator(RowsOperator):
    """State: rows that wait, as parts in the order of their arrival."""

    def __init__(self, name: str, node: SortExec, workspace: Workspace) -> None:
        super().__init__(name, node.schema, workspace)
        self.node = node
        self.schema = node.input.schema
        self.attributes = progressing(node)
        self.over_limit = self.late_rows = 0
        self.waiting: list[State] = []
        self._first_end = INFINITY  # of the windows of the rows that wait
        self._closed = NEVER  # windows that end below this have left

    @property
    def state_bytes(self) -> int:
        return nbytes([*self.waiting, self.ready])

    def counters(self) -> dict[str, int]:
        left_out = {"over_limit": self.over_limit, "late_rows": self.late_rows}
        held = sum(map(count, list(self.waiting))) + self.unsent
        return {**super().counters(), **left_out, "held": held}

    def map_codes(self, change: Callable[[CodeColumn], CodeColumn]) -> None:
        map_texts(self.waiting, self.schema, change)
        map_texts([self.ready], self.output, change)

    def take_in(self, unit: Unit) -> int | None:
        if unit.words[ROWS] > 0:
            self._wait(rows_of(unit, self.schema))
        closed = NEVER
        for p in range(int(unit.words[PUNCTUATIONS])):
            at = PUNCTUATION_WORDS * p
            attribute, value = int(unit.punctuations[at]), int(unit.punctuations[at + 1])
            if attribute == END_OF_INPUT:
                closed = INFINITY
                self.promises.append((END_OF_INPUT, INFINITY))
            elif attribute == IDLE:
                self.promises.append((IDLE, value))
            elif attribute in self.attributes:
                self.promises.append((attribute, value))
                if attribute == self.node.window_end:
                    closed = max(closed, value)
        self._closed = max(self._closed, closed)
        if self._first_end < closed or closed == INFINITY:
            self._release(closed)
        return None

    def _wait(self, rows: State) -> None:
        if self._closed > NEVER and (late := self._ends(rows) < self._closed).any():
            # from an input that was idle; no other gives rows of a window that has left
            self.late_rows += int(late.sum())
            if late.all():
                return
            rows = take(rows, ~late)
        append_part(self.waiting, rows)
        self._first_end = min(self._first_end, int(self._ends(rows).min()))

    def _release(self, closed: int) -> None:
        """Moves the rows of windows that end before ``closed`` to ``ready``, in order."""
        done: list[State] = []
        kept: list[State] = []
        for part in self.waiting:
            left = np.full(count(part), closed == INFINITY) | (self._ends(part) < closed)
            if left.any():
                done.append(take(part, left))
            if not left.all():
                kept.append(take(part, ~left) if left.any() else part)
        if not done:
            return
        rows = joined(done)
        order, places = self._ordered(rows)
        self.waiting, self.ready = kept, self._numbered(take(rows, order), places + 1)
        self._first_end = min((int(self._ends(p).min()) for p in kept), default=INFINITY)

    def _numbered(self, rows: State, places: Array) -> State:
        """With the column of their numbers, if there is one."""
        if self.node.number is None:
            return rows
        k = len(self.schema)
        more: State = {f"c{k}": places.astype(np.int32), f"m{k}": np.ones(places.size, np.uint8)}
        return {**rows, **more}

    def _ends(self, part: State) -> Array:
        if self.node.window_end is None:
            return np.zeros(count(part), np.int64)
        ends: Array = part[f"c{self.node.window_end}"].astype(np.int64, copy=False)
        return ends

    def _ordered(self, part: State) -> tuple[Array, Array]:
        """Rows by (window, partition, keys), ties by arrival, cut to LIMIT and OFFSET in each
        window; and the place of each in its partition, from 0."""
        keys: list[Array] = []
        for key in self.node.keys:
            keys += self._sort_words(key, part)
        groups = [self._ends(part)]
        for c in self.node.partition:
            f = self.schema[c]
            groups += self._sort_words(SortKey(Column(c, f.name, f.type, True), False, True), part)
        rows: Array = np.lexsort([*reversed(keys), *reversed(groups)])
        begins = np.zeros(rows.size, bool)
        begins[:1] = True
        for group in groups:
            ordered = group[rows]
            begins[1:] |= ordered[1:] != ordered[:-1]
        starts = np.flatnonzero(begins)
        place = np.arange(rows.size) - np.repeat(starts, np.diff(np.r_[starts, rows.size]))
        if self.node.limit is None and not self.node.offset:
            return rows, place
        keep = place >= self.node.offset
        if self.node.limit is not None:
            keep &= place < self.node.offset + self.node.limit
        kept: Array = rows[keep]
        self.over_limit += rows.size - kept.size
        return kept, place[keep]

    def _sort_words(self, key: SortKey, part: State) -> list[Array]:
        """NULL flag and value of a key as arrays that sort ascending."""
        assert isinstance(key.expr, Column)
        i = key.expr.index
        values: Array = part[f"c{i}"]
        valid = part[f"m{i}"] != 0
        kind = key.expr.type
        nan = np.zeros(values.size, bool)
        if kind.is_text:
            values = self.workspace.dictionary.rank()[values]
        elif kind.is_fraction:
            nan = np.isnan(values) & valid  # NaN is the largest
            values = np.where(nan | ~valid, 0.0, values) + 0.0
            values = -values if key.descending else values
        if not kind.is_fraction:
            values = np.where(valid, values.astype(np.int64), 0)
            values = ~values if key.descending else values
        place = nan.astype(np.int8)
        place = -place if key.descending else place
        nulls = np.where(valid, 0, -1 if key.nulls_first else 1).astype(np.int8)
        return [nulls, place, values]
