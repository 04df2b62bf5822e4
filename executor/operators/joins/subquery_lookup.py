"""EXISTS, IN and scalar subqueries over tables, evaluated for each row of a stream.

Rows, late rows included, pass by reference; the answer is an additional column. No row waits: the
subquery is read to its end before the first row comes (``SourceExec.ahead``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from cql.base.model import Schema
from cql.executor.codegen.expressions.emit import ErrorSite
from cql.executor.kernels.morsel_layout import (
    DETAIL,
    DETAIL_ROW,
    DONE,
    END_OF_INPUT,
    EPOCH,
    ERROR,
    HEADER,
    LATE_ROW_ADDRESS,
    LATE_ROWS,
    PORT,
    PUNCTUATION_WORDS,
    PUNCTUATIONS,
    ROWS,
    SEQUENCE,
    SERIAL,
    data_word,
    mask_word,
)
from cql.executor.morsel.egress import view_address
from cql.executor.morsel.morsel import Morsel, stored_dtype
from cql.executor.operators.contract import CodeColumn
from cql.executor.operators.relations.group_index import key_words
from cql.executor.operators.relations.row_batch import take
from cql.executor.operators.relations.set_operations import RowIndex
from cql.executor.operators.stage.operator import PythonOperator
from cql.executor.operators.workspace import Workspace
from cql.executor.state.declared import Declared
from cql.executor.state.store import Snapshot, State
from cql.planner.nodes.physical import LookupExec

_PASSED = [ROWS, SERIAL, SEQUENCE, EPOCH, LATE_ROWS, LATE_ROW_ADDRESS, PUNCTUATIONS]
QUERY = 1  # the port of the subquery; the stream has port 0

Mask = npt.NDArray[np.bool_]
Values = npt.NDArray[Any]


class LookupOperator(Declared, PythonOperator):
    """State: the distinct rows of the subquery, with their multiplicities."""

    saved_numbers: ClassVar[tuple[str, ...]] = ("rows", "_complete", "_any", "_nulls")
    saved_arrays: ClassVar[tuple[str, ...]] = ("_there",)
    saved_parts: ClassVar[tuple[str, ...]] = ("_requested",)

    def __init__(self, name: str, node: LookupExec, workspace: Workspace) -> None:
        super().__init__(name)
        self.node = node
        self.workspace = workspace
        self.rows = 0
        self._input = node.input.schema
        requested = self._input.fields[node.width : node.width + node.requested]
        self._requested = RowIndex(Schema(requested), "count")
        # per id, once the subquery is complete: whether its row counts (with NULL: scalar only)
        self._there: Mask = np.zeros(0, bool)
        self._complete = False
        self._any = self._nulls = False  # whether the subquery has rows, and rows with NULL

    def restore(self, saved: Snapshot) -> None:
        before = self.state_bytes
        super().restore(saved)
        self.workspace.resize(before, self.state_bytes, self.name)

    @property
    def passes_rows(self) -> bool:
        return True

    @property
    def state_bytes(self) -> int:
        return self._requested.nbytes

    def counters(self) -> dict[str, int]:
        groups = int(self._requested.index.live.size)
        return {"rows_in": self.rows, "rows_out": self.rows, "groups": groups}

    def error(self, morsel: Morsel) -> ErrorSite:
        return ErrorSite("rows", "the subquery gives more than one row", self.node.pos)

    def map_codes(self, change: Callable[[CodeColumn], CodeColumn]) -> None:
        self._requested.map_codes(change)

    def call(self, morsel: Morsel, out: Morsel) -> int:
        if morsel.words[PORT] == QUERY:
            out.words[[ROWS, LATE_ROWS, PUNCTUATIONS]] = 0
            out.words[SERIAL] = morsel.words[SERIAL]
            self._learn(morsel)
            ends = morsel.punctuations[: PUNCTUATION_WORDS * int(morsel.words[PUNCTUATIONS])]
            return self._end(morsel) if END_OF_INPUT in ends[::PUNCTUATION_WORDS] else DONE
        self._pass(morsel, out)
        n = int(morsel.words[ROWS])
        self.rows += n
        answer, valid = self._answer(morsel, n)
        data, mask = out.data[self.node.width], out.masks[self.node.width]
        assert data is not None
        data[:n] = answer
        if mask is not None:
            mask[:n] = valid
        return DONE

    def _pass(self, morsel: Morsel, out: Morsel) -> None:
        columns = slice(HEADER, HEADER + 2 * self.node.width)
        out.words[_PASSED] = morsel.words[_PASSED]
        out.words[columns] = morsel.words[columns]
        size = PUNCTUATION_WORDS * int(morsel.words[PUNCTUATIONS])
        out.punctuations[:size] = morsel.punctuations[:size]

    # -- the subquery ----------------------------------------------------------------------------

    def _learn(self, morsel: Morsel) -> None:
        n = int(morsel.words[ROWS])
        if not n:
            return
        before = self._requested.nbytes
        ids, fresh = self._requested.ids(self._keys(morsel, n), n)
        count = self._requested.counts["count"]
        count[ids[fresh]] = 0
        weights = int(morsel.words[data_word(len(self._input) - 1)])
        np.add.at(count, ids, view_address(weights, np.dtype(np.int64), n))
        self.workspace.resize(before, self._requested.nbytes, self.name)

    def _end(self, morsel: Morsel) -> int:
        """Called at the end of the subquery. Returns ERROR if a scalar subquery has two rows."""
        count = self._requested.counts["count"].copy()
        free = np.ones(count.size, bool)
        free[self._requested.index.live] = False
        count[free] = 0
        null = np.zeros(count.size, bool)
        for c in range(len(self._requested.types)):
            null |= self._requested.rows[f"m{c}"][: count.size] == 0
        there = count > 0
        self._any, self._nulls = bool(there.any()), bool((there & null).any())
        self._complete = True
        self._there = there if self.node.kind == "scalar" else there & ~null
        if self.node.kind == "scalar" and count[there].sum() > 1:
            morsel.words[DETAIL], morsel.words[DETAIL_ROW] = 0, 0
            return ERROR
        return DONE

    def _answer(self, morsel: Morsel, n: int) -> tuple[Values, Values]:
        """For each row: the answer, and whether the answer is known (not NULL)."""
        there = self._there
        assert self._complete
        if self.node.kind == "scalar":
            which = np.flatnonzero(there)
            if not which.size:
                return np.zeros(n, np.uint8), np.zeros(n, np.uint8)
            rows = take(self._requested.rows, np.repeat(which, n))
            return rows["c0"], rows["m0"]
        keys = self._keys(morsel, n)
        words = key_words(keys, range(self.node.keys), self._requested.types, n)
        ids = self._requested.index.found(words)
        found = np.zeros(n, bool)
        found[ids >= 0] = there[ids[ids >= 0]]
        if self.node.kind == "exists":
            return found, np.ones(n, np.uint8)
        null = np.zeros(n, bool)
        for c in range(self.node.keys):
            null |= keys[f"m{c}"] == 0
        found &= ~null
        return found, found | ~np.where(null, self._any, self._nulls)

    def _keys(self, morsel: Morsel, n: int) -> State:
        keys: State = {}
        for c, field in enumerate(self._requested.schema):
            column, dtype = self.node.width + c, stored_dtype(field.type.storage)
            keys[f"c{c}"] = view_address(int(morsel.words[data_word(column)]), dtype, n)
            mask = int(morsel.words[mask_word(column)])
            keys[f"m{c}"] = view_address(mask, np.dtype(np.uint8), n)
        return keys
