"""The running LATE OUTPUT: passes every row on, and also delivers the late rows that the window
above leaves out. A row's event time and row watermark alone decide this, so the operator computes
the decision itself."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cql.base.window import MAX_EVENT_TIME, Window, WindowKind
from cql.base.zones import DAY, days_of
from cql.executor.kernels.morsel_layout import (
    LATE_ROW_ADDRESS,
    LATE_ROW_WORDS,
    LATE_ROWS,
    PHASE,
    data_word,
    mask_word,
)
from cql.executor.kernels.windows import late_output as kernel
from cql.executor.morsel.egress import view_address
from cql.executor.morsel.morsel import Morsel, Words, stored_dtype
from cql.executor.operators.contract import Operator
from cql.executor.operators.workspace import Workspace
from cql.executor.state.store import Snapshot
from cql.executor.strings.columns import to_arrow
from cql.planner.nodes.physical import LateRowsExec

Times = npt.NDArray[np.int64]


class LateRowsOperator(Operator):
    """Keeps no rows: the late rows of a morsel leave at once (``give_late_rows``)."""

    def __init__(self, name: str, node: LateRowsExec, workspace: Workspace) -> None:
        self.name = name
        self.schema = node.schema
        self.window = node.window
        self.workspace = workspace
        self._on_late: Callable[[pa.RecordBatch], None] = lambda batch: None
        self.given = 0
        self.descriptor: Words = np.zeros(kernel.WORDS, np.int64)
        self.descriptor[kernel.COLUMNS] = len(node.schema)
        self.address = int(kernel.late_rows.address)

    def give_late_rows(self, to: Callable[[pa.RecordBatch], None]) -> None:
        self._on_late = to

    def provide(self, morsel: Morsel) -> None:
        """Called when the morsel has late rows."""
        morsel.words[PHASE] = 1
        count = int(morsel.words[LATE_ROWS])
        at = int(morsel.words[LATE_ROW_ADDRESS])
        records = view_address(at, np.dtype(np.int64), LATE_ROW_WORDS * count)
        row, column, own = records.reshape(count, LATE_ROW_WORDS).T
        wa = self.window.wa
        assert wa is not None
        mine = column == wa
        row, own = row[mine], own[mine]
        lost = row[leaves_out(self.window, self._column(morsel, wa, row).astype(np.int64), own)]
        if lost.size:
            self.given += lost.size
            self._on_late(self._rows(morsel, lost))

    def _column(self, morsel: Morsel, k: int, rows: Times) -> npt.NDArray[np.generic]:
        dtype = stored_dtype(self.schema[k].type.storage)
        values = view_address(int(morsel.words[data_word(k)]), dtype, int(rows.max(initial=-1)) + 1)
        return values[rows]

    def _rows(self, morsel: Morsel, rows: Times) -> pa.RecordBatch:
        n = int(rows.max()) + 1
        arrays = []
        for k, field in enumerate(self.schema):
            valid = None
            if field.nullable:
                mask = view_address(int(morsel.words[mask_word(k)]), np.dtype(np.uint8), n)
                valid = mask[rows]
            values = self._column(morsel, k, rows)
            arrays.append(to_arrow(values, valid, field, self.workspace.dictionary))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema.to_arrow())

    def snapshot(self) -> Snapshot:
        """The counts of rows; the late ones have left."""
        return Snapshot({}, np.array([self.descriptor[kernel.ROWS_SEEN], self.given], np.int64))

    def restore(self, saved: Snapshot) -> None:
        """Continues with the counts of an operator of the same plan."""
        self.descriptor[kernel.ROWS_SEEN], self.given = (int(word) for word in saved.words)

    def counters(self) -> dict[str, int]:
        rows = int(self.descriptor[kernel.ROWS_SEEN])
        return {"rows_in": rows, "rows_out": rows, "late_output": self.given}


class _Units:
    """The units of a window's length: steps of the attribute, or days of a time zone."""

    def __init__(self, window: Window) -> None:
        self._offset = window.offset
        self._days = None if window.zone is None else days_of(window.zone, window.offset)

    def length(self, length: int | None) -> int:
        assert length is not None
        return length if self._days is None else length // DAY

    def of(self, times: Times) -> Times:
        """The number of the unit that holds each time (``ZoneDays.day``)."""
        if self._days is None:
            return times - self._offset
        at = np.searchsorted(np.array(self._days.instants), times, "right") - 1
        days: Times = (times + np.array(self._days.offsets)[at]) // DAY
        found: Times = np.maximum(days, np.array(self._days.firsts)[at])
        return found

    def starts(self, units: Times) -> Times:
        """The time at which each unit begins (``ZoneDays.start``)."""
        if self._days is None:
            return units + self._offset
        at = np.searchsorted(np.array(self._days.firsts), units, "left") - 1
        starts = units * DAY - np.array(self._days.offsets)[at]
        found: Times = np.maximum(starts, np.array(self._days.instants)[at])
        return found


def leaves_out(window: Window, times: Times, own: Times) -> npt.NDArray[np.bool_]:
    """Whether each late row misses at least one of its windows. A row misses one if its earliest
    window ends at or before its row watermark ``own``."""
    there = np.abs(times) <= MAX_EVENT_TIME  # rows with other times are bad rows
    t = np.where(there, times, 0)
    match window.kind:
        case WindowKind.SESSION:
            assert window.gap is not None
            return there & (t + window.gap <= own)
        case WindowKind.SLIDING | WindowKind.CUMULATE:
            units = _Units(window)
            u, size, step = units.of(t), units.length(window.range), units.length(window.slide)
            if window.kind is WindowKind.CUMULATE:
                return there & (units.starts((u // step + 1) * step) <= own)
            first = (u - size) // step + 1
            return there & (first <= u // step) & (units.starts(first * step + size) <= own)
        case _:  # a relation: its instant is over
            return t < own
