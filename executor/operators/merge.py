"""The running order-preserving union and the sort that punctuation releases: rows wait in a slab
until progress has passed them, and leave in order (``kernels.merge``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cql.executor.expressions import ErrorSite
from cql.executor.kernels import merge as kernel
from cql.executor.operators.native import BUFFERS, CodeColumn, State, Workspace
from cql.executor.unit import (
    DETAIL,
    DETAIL_ROW,
    INFINITY,
    NEVER,
    Unit,
    Words,
    stored_dtype,
    value_bytes,
)
from cql.model import Schema
from cql.planner.expr import Column
from cql.planner.logical import SortKey
from cql.types import DataType

INITIAL_RUNS = 16
#: The slab grows by a quarter, so that what it takes stays near what it holds.
STEP = 1024


class MergeOperator:
    """``order``: the column of the time, on which it makes punctuation. ``keys`` order rows of one
    time, each a column; ``names`` says for each port what comes there. State: ``c<i>`` and
    ``m<i>``, data and mask of each column of the rows that wait, ``times`` where the column of the
    time is no int64; ``next`` links a row's slot to the next one of its run or of the free
    slots."""

    def __init__(
        self,
        name: str,
        schema: Schema,
        ports: int,
        order: int,
        workspace: Workspace,
        *,
        keys: Sequence[SortKey] = (),
        limit: int | None = None,
        offset: int = 0,
        refuses_null: bool = False,
        names: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self.schema = schema
        self.names = names
        self.workspace = workspace
        self.state: State = {}
        self._order = order
        self._ports = ports
        self._texts = any(k.expr.type.is_text for k in keys)
        width = kernel.FIRST + kernel.PORT_WORDS * ports + kernel.COLUMN_WORDS * len(schema)
        self.descriptor: Words = np.zeros(width + kernel.KEY_WORDS * len(keys), np.int64)
        d = self.descriptor
        d[[kernel.COLUMNS, kernel.PORTS, kernel.KEYS]] = len(schema), ports, len(keys)
        d[[kernel.ORDER, kernel.REFUSES_NULL]] = order, refuses_null
        d[kernel.FIRST_OUT] = offset
        d[kernel.LAST_OUT] = INFINITY if limit is None else offset + limit
        d[[kernel.FREE, kernel.PROMISED]] = -1, NEVER
        for port in range(ports):
            d[kernel.FIRST + kernel.PORT_WORDS * port + kernel.MARK] = NEVER
        for i, f in enumerate(schema):
            d[self._column(i) + kernel.SIZE] = value_bytes(f.type)
        for k, key in enumerate(keys):
            assert isinstance(key.expr, Column)
            at = width + kernel.KEY_WORDS * k
            words = key.expr.index, _kind(key.expr.type), key.descending, key.nulls_first
            d[at : at + kernel.KEY_WORDS] = words
        self.address = int(kernel.merge.address)
        scratch = np.zeros((2, workspace.unit_rows), np.int32)
        workspace.resize(0, scratch.nbytes, BUFFERS)
        d[[kernel.PICKED, kernel.PLACES]] = scratch[0].ctypes.data, scratch[1].ctypes.data
        self._scratch = scratch
        self._more_runs(INITIAL_RUNS)
        self._more_slots(STEP)

    def _column(self, i: int) -> int:
        return kernel.FIRST + kernel.PORT_WORDS * self._ports + kernel.COLUMN_WORDS * i

    # -- state -----------------------------------------------------------------------------------

    def _resize(self, name: str, size: int, dtype: np.dtype[Any]) -> None:
        old = self.state.get(name, np.zeros(0, dtype))
        self.workspace.resize(old.nbytes, size * dtype.itemsize, self.name)
        new = np.empty(size, dtype)
        new[: old.size] = old
        self.state[name] = new

    def _more_slots(self, slots: int) -> None:
        """Room for that many rows; the new slots are free."""
        d, before = self.descriptor, int(self.descriptor[kernel.SLOTS])
        self._resize("next", slots, np.dtype(np.int32))
        links = self.state["next"]
        links[before:] = np.arange(before + 1, slots + 1)
        links[-1] = d[kernel.FREE]
        for i, f in enumerate(self.schema):
            self._resize(f"c{i}", slots, stored_dtype(f.type.storage))
            if f.nullable:
                self._resize(f"m{i}", slots, np.dtype(np.uint8))
        if self.schema[self._order].type.storage != "int64":
            self._resize("times", slots, np.dtype(np.int64))
        d[[kernel.SLOTS, kernel.FREE]] = slots, before
        self._bind()

    def _more_runs(self, room: int) -> None:
        """Called when every run has rows."""
        d, before = self.descriptor, int(self.descriptor[kernel.RUNS])
        lists = self.state.get("lists", np.zeros(0, np.int64)).reshape(self._ports, before)
        for name in ("heap", "heads", "tails", "ages", "spares"):
            self._resize(name, room, np.dtype(np.int64))
        self._resize("lists", self._ports * room, np.dtype(np.int64))
        self.state["lists"].reshape(self._ports, room)[:, :before] = lists
        self.state["spares"][: room - before] = np.arange(before, room)
        d[kernel.RUNS] = room
        self._bind()

    def _bind(self) -> None:
        d, state = self.descriptor, self.state
        names = {
            "next": kernel.NEXT,
            "heap": kernel.HEAP,
            "heads": kernel.HEADS,
            "tails": kernel.TAILS,
        }
        names |= {"ages": kernel.AGES, "spares": kernel.SPARES, "lists": kernel.LISTS}
        for name, word in names.items():
            d[word] = state[name].ctypes.data if name in state else 0
        for i in range(len(self.schema)):
            if f"c{i}" in state:
                d[self._column(i) + kernel.DATA] = state[f"c{i}"].ctypes.data
            if f"m{i}" in state:
                d[self._column(i) + kernel.MASK] = state[f"m{i}"].ctypes.data
        times = state.get("times", state.get(f"c{self._order}"))
        d[kernel.TIMES] = 0 if times is None else times.ctypes.data

    @property
    def needs_refresh(self) -> bool:
        return self._texts

    def refresh(self) -> None:
        """Before a unit: the order of the texts that are sorted by."""
        self._rank = self.workspace.dictionary.rank().astype(np.int32, copy=False)
        self.descriptor[[kernel.RANK, kernel.RANKS]] = self._rank.ctypes.data, self._rank.size

    @property
    def state_bytes(self) -> int:
        return sum(a.nbytes for a in list(self.state.values()))

    def map_codes(self, change: Callable[[CodeColumn], CodeColumn]) -> None:
        texts = [i for i, f in enumerate(self.schema) if f.type.is_coded]
        if not texts:
            return
        used = np.ones(int(self.descriptor[kernel.SLOTS]), np.uint8)
        kernel.mark_free(self.state["next"], int(self.descriptor[kernel.FREE]), used)
        for i in texts:
            column = self.state[f"c{i}"]
            held = np.flatnonzero(used & self.state[f"m{i}"] if f"m{i}" in self.state else used)
            column[held] = change(column[held])

    # -- what a runtime asks ---------------------------------------------------------------------

    def call(self, unit: Unit, out: Unit) -> int:
        raise AssertionError("a compiled operator is called by address")

    def provide(self, unit: Unit) -> None:
        match int(unit.words[DETAIL]):
            case kernel.NEED_SLOTS:
                slots = int(self.descriptor[kernel.SLOTS])
                wanted = int(self.descriptor[kernel.HELD] + unit.words[DETAIL_ROW])
                self._more_slots(-(-max(wanted, slots + slots // 4) // STEP) * STEP)
            case kernel.NEED_RUNS:
                self._more_runs(2 * int(self.descriptor[kernel.RUNS]))
            case _:
                self.refresh()

    def error(self, unit: Unit) -> ErrorSite:
        what = f"the event time {self.schema[self._order].name} is NULL"
        return ErrorSite("null event time", what, None)

    def is_fatal(self, unit: Unit) -> bool:
        return False

    def too_late(self) -> list[tuple[str, int]]:
        """For each port, its rows that came below what had left while it was idle."""
        first = kernel.FIRST + kernel.TOO_LATE
        counts = self.descriptor[first :: kernel.PORT_WORDS][: len(self.names)]
        return list(zip(self.names, counts.tolist(), strict=True))

    def counters(self) -> dict[str, int]:
        d = self.descriptor
        return {
            "rows_in": int(d[kernel.ROWS_IN]),
            "rows_out": int(d[kernel.ROWS_LEFT] - d[kernel.OVER_LIMIT]),
            "late_rows": int(d[kernel.LATE]),
            "over_limit": int(d[kernel.OVER_LIMIT]),
            "held": int(d[kernel.HELD]),
        }


def _kind(kind: DataType) -> int:
    if kind.is_text:
        return kernel.TEXT
    if kind.is_fraction:
        return kernel.DOUBLE if kind.storage == "float64" else kernel.FLOAT
    return kernel.INTEGER
