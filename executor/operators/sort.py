"""ORDER BY … LIMIT within a window: rows wait until punctuation closes their window.

Runs in Python over whole windows at a time (numpy sorts them); its state is the rows of the windows
that are still open, as flat arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from cql.executor.egress import view_address
from cql.executor.operators.native import PythonOperator, State, Workspace
from cql.executor.operators.stage import END_OF_INPUT
from cql.executor.unit import (
    CAPACITY,
    CURSOR,
    DONE,
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
    """State: ``c<i>`` and ``m<i>``, data and mask of each column, of the rows that wait."""

    def __init__(self, name: str, node: SortExec, workspace: Workspace) -> None:
        super().__init__(name)
        self.node = node
        self.workspace = workspace
        self.schema = node.schema
        self.codes = tuple(f"c{i}" for i, f in enumerate(node.schema) if f.type.is_text)
        self.attributes = progressing(node)
        self.rows_in = self.rows_out = 0
        self.waiting = self._take(None, np.zeros(0, np.int64))
        self.ready = self.waiting
        self._promises: list[tuple[int, int]] = []

    @property
    def state(self) -> State:
        return self.waiting

    @property
    def state_bytes(self) -> int:
        return sum(a.nbytes for a in self.waiting.values())

    def counters(self) -> dict[str, int]:
        return {"rows_in": self.rows_in, "rows_out": self.rows_out}

    def call(self, unit: Unit, out: Unit) -> int:
        words = unit.words
        if words[PHASE] == 0:
            self._add(words)
            self._release(unit)
            words[PHASE] = 1
        return self._send(words, out)

    def _add(self, words: npt.NDArray[np.int64]) -> None:
        n = int(words[ROWS])
        if n == 0:
            return
        self.rows_in += n
        before = self.state_bytes
        for i, f in enumerate(self.schema):
            dtype = np.dtype(np.uint8 if f.type.storage == "bool" else f.type.storage)
            for name, word, kind in (
                (f"c{i}", data_word(i), dtype),
                (f"m{i}", mask_word(i), np.dtype(np.uint8)),
            ):
                self.waiting[name] = np.concatenate(
                    [self.waiting[name], view_address(int(words[word]), kind, n)]
                )
        self.workspace.resize(before, self.state_bytes, self.name)

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
            elif attribute in self.attributes:
                self._promises.append((attribute, value))
                if attribute == self.node.window_end:
                    closed = max(closed, value)
        if closed == NEVER:
            self.ready = self._take(self.waiting, np.zeros(0, np.int64))
            return
        ends = self._ends()
        done = np.arange(ends.size) if closed == INFINITY else np.flatnonzero(ends < closed)
        before = self.state_bytes
        self.ready = self._take(self.waiting, self._ordered(done, ends))
        kept = np.ones(ends.size, bool)
        kept[done] = False
        self.waiting = self._take(self.waiting, np.flatnonzero(kept))
        self.workspace.resize(before, self.state_bytes, self.name)

    def _ends(self) -> Array:
        n = self.waiting["c0"].size if len(self.schema) else 0
        if self.node.window_end is None:
            return np.zeros(n, np.int64)
        ends: Array = self.waiting[f"c{self.node.window_end}"].astype(np.int64)
        return ends

    def _ordered(self, rows: Array, ends: Array) -> Array:
        """Rows by (window, keys), ties by arrival, cut to LIMIT and OFFSET in each window."""
        keys: list[Array] = []
        for key in self.node.keys:
            keys += self._sort_words(key, rows)
        order = np.lexsort([*reversed(keys), ends[rows]])
        rows = rows[order]
        if self.node.limit is None and not self.node.offset:
            return rows
        window = ends[rows]
        starts = np.flatnonzero(np.r_[True, window[1:] != window[:-1]]) if rows.size else rows
        place = np.arange(rows.size) - np.repeat(starts, np.diff(np.r_[starts, rows.size]))
        keep = place >= self.node.offset
        if self.node.limit is not None:
            keep &= place < self.node.offset + self.node.limit
        kept: Array = rows[keep]
        return kept

    def _sort_words(self, key: SortKey, rows: Array) -> list[Array]:
        """NULL flag and value of a key as arrays that sort ascending."""
        assert isinstance(key.expr, Column)
        i = key.expr.index
        values: Array = self.waiting[f"c{i}"][rows]
        valid = self.waiting[f"m{i}"][rows] != 0
        kind = key.expr.type
        nan = np.zeros(rows.size, bool)
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
        total = self.ready["c0"].size if len(self.schema) else 0
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
        words[CURSOR] = first + n
        if first + n < total:
            return OUTPUT_FULL
        for k, (attribute, value) in enumerate(self._promises):
            at = PUNCTUATION_WORDS * k
            out.punctuations[at : at + 3] = attribute, value, -1
        out.words[PUNCTUATIONS] = len(self._promises)
        self.ready = self._take(self.ready, np.zeros(0, np.int64))
        return DONE

    def _take(self, state: State | None, rows: Array) -> State:
        taken: State = {}
        for i, f in enumerate(self.schema):
            dtype = np.dtype(np.uint8 if f.type.storage == "bool" else f.type.storage)
            for name, kind in ((f"c{i}", dtype), (f"m{i}", np.dtype(np.uint8))):
                taken[name] = np.zeros(0, kind) if state is None else state[name][rows]
        return taken
