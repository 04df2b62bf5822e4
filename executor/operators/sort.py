"""ORDER BY … LIMIT and ROW_NUMBER() within a window: rows wait until punctuation closes their
window.

Runs in Python over whole windows at a time (numpy sorts them); its state is the rows of the windows
that are still open, as flat arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from cql.executor.egress import view_address
from cql.executor.operators.native import CodeColumn, PythonOperator, State, Workspace
from cql.executor.unit import (
    CAPACITY,
    CURSOR,
    DONE,
    END_OF_INPUT,
    IDLE,
    INFINITY,
    NEVER,
    OUTPUT_FULL,
    PHASE,
    PUNCTUATION_WORDS,
    PUNCTUATIONS,
    ROWS,
    SEQUENCE,
    SERIAL,
    Unit,
    data_word,
    mask_word,
)
from cql.planner.expr import Column
from cql.planner.logical import SortKey
from cql.planner.physical import SortExec, progressing

Array = npt.NDArray[Any]


class SortOperator(PythonOperator):
    """State: parts, each with ``c<i>`` and ``m<i>``, data and mask of each column, of rows that
    wait in the order of their arrival. A part is joined to the one before it when that is not twice
    as long: few parts, and a row is copied few times."""

    def __init__(self, name: str, node: SortExec, workspace: Workspace) -> None:
        super().__init__(name)
        self.node = node
        self.workspace = workspace
        self.schema, self.kept = node.schema, node.input.schema
        self.attributes = progressing(node)
        self.rows_in = self.rows_out = self.over_limit = 0
        self.waiting: list[State] = []
        self._unsent = 0  # rows of ``ready``
        self._first_end = INFINITY  # of the windows of the rows that wait
        self.ready: State = self._no_rows()
        self._promises: list[tuple[int, int]] = []
        self._closed = NEVER  # windows that end below this have left
        self.late_rows = 0

    @property
    def state_bytes(self) -> int:
        parts = [*self.waiting, self.ready]
        return sum(a.nbytes for part in parts for a in list(part.values()))

    def counters(self) -> dict[str, int]:
        return {
            "rows_in": self.rows_in,
            "rows_out": self.rows_out,
            "over_limit": self.over_limit,
            "late_rows": self.late_rows,
            "held": sum(map(_rows, list(self.waiting))) + self._unsent,
        }

    def map_codes(self, change: Callable[[CodeColumn], CodeColumn]) -> None:
        texts = [f"c{i}" for i, f in enumerate(self.schema) if f.type.is_coded]
        for part in (*self.waiting, self.ready):
            for name in texts:
                part[name] = change(part[name])

    def call(self, unit: Unit, out: Unit) -> int:
        words = unit.words
        if words[PHASE] == 0:
            self._add(words)
            self._release(unit)
            words[PHASE] = 1
        return self._send(words, out)

    def _columns(self) -> list[tuple[str, int, np.dtype[Any]]]:
        """Name, word of a unit, and type of each array of a part."""
        found = []
        for i, f in enumerate(self.kept):
            dtype = np.dtype(np.uint8 if f.type.storage == "bool" else f.type.storage)
            found.append((f"c{i}", data_word(i), dtype))
            found.append((f"m{i}", mask_word(i), np.dtype(np.uint8)))
        return found

    def _no_rows(self) -> State:
        found = {name: np.zeros(0, dtype) for name, _, dtype in self._columns()}
        return self._numbered(found, np.zeros(0, np.int32))

    def _numbered(self, rows: State, places: Array) -> State:
        """With the column of their numbers, if there is one."""
        if self.node.number is None:
            return rows
        width = len(self.kept)
        more: State = {
            f"c{width}": places.astype(np.int32),
            f"m{width}": np.ones(places.size, np.uint8),
        }
        return {**rows, **more}

    def _add(self, words: npt.NDArray[np.int64]) -> None:
        n = int(words[ROWS])
        if n == 0:
            return
        self.rows_in += n
        columns = self._columns()
        size = n * sum(dtype.itemsize for _, _, dtype in columns)
        self.workspace.resize(0, size, self.name)
        part = {name: view_address(int(words[w]), dtype, n).copy() for name, w, dtype in columns}
        if self._closed > NEVER and (late := self._ends(part) < self._closed).any():
            # from an input that was idle; no other gives rows of a window that has left
            self.late_rows += int(late.sum())
            part = _take(part, np.flatnonzero(~late))
            self.workspace.resize(size, sum(a.nbytes for a in part.values()), self.name)
            if late.all():
                return
        self.waiting.append(part)
        self._first_end = min(self._first_end, int(self._ends(part).min()))
        while len(self.waiting) > 1 and _rows(self.waiting[-2]) <= 2 * _rows(self.waiting[-1]):
            last = self.waiting.pop()
            self.waiting[-1] = _joined([self.waiting[-1], last])

    def _release(self, unit: Unit) -> None:
        """Moves the rows of closed windows to ``ready``, in order."""
        closed = NEVER
        self._promises = []
        for p in range(int(unit.words[PUNCTUATIONS])):
            at = PUNCTUATION_WORDS * p
            attribute, value = int(unit.punctuations[at]), int(unit.punctuations[at + 1])
            if attribute == END_OF_INPUT:
                closed = INFINITY
                self._promises.append((END_OF_INPUT, INFINITY))
            elif attribute == IDLE:
                self._promises.append((IDLE, value))
            elif attribute in self.attributes:
                self._promises.append((attribute, value))
                if attribute == self.node.window_end:
                    closed = max(closed, value)
        self._closed = max(self._closed, closed)
        if self._first_end >= closed and closed < INFINITY:
            return
        before = self.state_bytes
        done: list[State] = []
        kept: list[State] = []
        for part in self.waiting:
            left = np.full(_rows(part), closed == INFINITY) | (self._ends(part) < closed)
            if left.any():
                done.append(_take(part, np.flatnonzero(left)))
            if not left.all():
                kept.append(_take(part, np.flatnonzero(~left)) if left.any() else part)
        if not done:
            return
        rows = _joined(done)
        order, places = self._ordered(rows)
        self.waiting, self.ready = kept, self._numbered(_take(rows, order), places + 1)
        self._first_end = min((int(self._ends(p).min()) for p in kept), default=INFINITY)
        self._unsent = _rows(self.ready)
        self.workspace.resize(before, self.state_bytes, self.name)

    def _ends(self, part: State) -> Array:
        if self.node.window_end is None:
            return np.zeros(_rows(part), np.int64)
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
            f = self.kept[c]
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

    def _send(self, words: npt.NDArray[np.int64], out: Unit) -> int:
        first = int(words[CURSOR])
        total = _rows(self.ready)
        n = min(int(out.words[CAPACITY]), total - first)
        for i in range(len(self.schema)):
            data, mask = out.data[i], out.masks[i]
            assert data is not None
            data[:n] = self.ready[f"c{i}"][first : first + n]
            if mask is not None:
                mask[:n] = self.ready[f"m{i}"][first : first + n]
        out.words[ROWS] = n
        out.words[SERIAL] = words[SERIAL]
        out.words[SEQUENCE] = self.rows_out
        self.rows_out += n
        self._unsent -= n
        words[CURSOR] = first + n
        if first + n < total:
            return OUTPUT_FULL
        for k, (attribute, value) in enumerate(self._promises):
            at = PUNCTUATION_WORDS * k
            out.punctuations[at : at + 3] = attribute, value, -1
        out.words[PUNCTUATIONS] = len(self._promises)
        before = self.state_bytes
        self.ready = self._no_rows()
        self.workspace.resize(before, self.state_bytes, self.name)
        return DONE


def _rows(part: State) -> int:
    """A part has a column at least: what is sorted by."""
    return int(part["c0"].size)


def _take(part: State, rows: Array) -> State:
    return {name: column[rows] for name, column in part.items()}


def _joined(parts: list[State]) -> State:
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}
