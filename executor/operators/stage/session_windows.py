"""The running stage that ends in sessions (``windows.sessions`` writes its kernel)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from cql.executor.codegen.kernel_builder import NEED_KIND, NEED_RESULTS, NEED_ROOM
from cql.executor.kernels.morsel_layout import DETAIL, NEVER
from cql.executor.kernels.windows import sessions
from cql.executor.morsel.morsel import Morsel, Words
from cql.executor.operators.aggregates.session_values import SessionLogs
from cql.executor.operators.stage.operator import (
    INITIAL_ENTRIES,
    CodeColumn,
    Operator,
    StageOperator,
    map_constants,
)
from cql.executor.state.repartition import Owners
from cql.executor.state.store import Role, Snapshot


class SessionOperator(StageOperator):
    """A running stage that ends in sessions. State: the sessions' records, index and heap, and the
    value logs."""

    def _allocate_windows(self) -> None:
        self._logs = SessionLogs(self)
        self._logs.allocate(INITIAL_ENTRIES)
        self._resize_records(INITIAL_ENTRIES)
        for name in ("watermark", "punctuated"):
            self._set(name, NEVER)
        for name in ("closing", "free"):
            self._set(name, -1)

    def _resize_records(self, entries: int) -> None:
        width = len(self._table("").columns)
        self._resize_slab("records", width * entries, np.int64)
        self.store.resize("heap", 2 * entries, np.int64)
        self.store.resize("index", sessions.PLACES * entries, np.int32, Role.DERIVED)
        self._entries[""] = entries

    def _bind_arrays(self) -> None:
        super()._bind_arrays()
        self._logs.bind()
        for name in ("open_session", "next_session", "close_session"):
            self._bind(name, getattr(sessions, name).address)
        names = [name for name, _ in self._table("").columns]
        self._set("null_word", names.index("nulls") if "nulls" in names else 0)

    def provide(self, morsel: Morsel) -> None:
        detail = int(morsel.words[DETAIL])
        if detail & NEED_KIND == NEED_RESULTS:
            self._finish_sessions()
        elif detail & NEED_KIND != NEED_ROOM:
            super().provide(morsel)
        elif detail > NEED_ROOM:
            self._logs.grow(detail - NEED_ROOM - 1)
            self._bind_arrays()
        else:
            self._resize_records(2 * self._entries[""])
            self._bind_arrays()
            sessions.index_again(self.descriptor.ctypes.data)

    def _finish_sessions(self) -> None:
        """Computes the results of the value logs for the sessions that the watermark closes."""
        assert self.spec.aggregate is not None
        assert self.spec.aggregate.window is not None
        watermark, records = self.scalars()["watermark"], self.open_records()
        ends = self.column("s_last")[records] + (self.spec.aggregate.window.gap or 0)
        self._logs.finish(records[ends < watermark])
        self._set("results_to", watermark)
        self._bind_arrays()
        if self.needs_refresh:  # results may be new codes
            self.refresh()

    def snapshot(self) -> Snapshot:
        return self.store.snapshot(self.descriptor)

    def restore(self, saved: Snapshot) -> None:
        self._resize_records(int(saved.words[self._slots["entries"]]))
        self.store.restore(saved, self.descriptor)
        self._bind_arrays()
        sessions.index_again(self.descriptor.ctypes.data)

    def repartition(self, saved: Sequence[Snapshot], owners: Owners) -> list[Snapshot]:
        return Operator.repartition(self, saved, owners)

    def map_codes(self, change: Callable[[CodeColumn], CodeColumn]) -> None:
        map_constants(self.code.kernel, self.descriptor, change)
        self._logs.map_codes(change)
        records = self.open_records()
        for _, name, shift in self.code.codes:
            column = self.column(name)
            values = column[records]
            old = (values >> shift).astype(np.int32)
            column[records] = values + ((change(old).astype(np.int64) - old) << shift)
        if self.code.codes:
            sessions.index_again(self.descriptor.ctypes.data)

    def open_records(self) -> Words:
        """The records of the open sessions."""
        records: Words = self.state["heap"][1 : 2 * self.scalars()["open"] : 2]
        kept: Words = records[self.column("s_older")[records] != sessions.JOINED]
        return kept
