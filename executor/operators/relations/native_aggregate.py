"""The running aggregate over a changing relation with keys, in native code
(``kernels.relations.change_aggregate``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from cql.base.model import Schema
from cql.executor.codegen.expressions.emit import ErrorSite
from cql.executor.kernels.morsel_layout import DETAIL, DETAIL_ROW, INFINITY
from cql.executor.kernels.relations import change_aggregate as kernel
from cql.executor.morsel.morsel import Morsel, Words, stored_dtype, value_bytes
from cql.executor.operators.relations import change_aggregate_code as writing
from cql.executor.operators.relations.grouped import GroupedOperator
from cql.executor.operators.stage.operator import CodeColumn, Workspace
from cql.planner.nodes.physical import ChangeAggregateExec

_ENTRIES = 64
#: What an array of a group holds at first.
_EMPTY = {"back": -1, "separate": -1, "front": -1, "newest": -1}
_ROWS = ("once", "touched", "times_in")
_OUT = {"out_owner": "int64", "out_time": "int64", "out_weight": "int64"}


class NativeAggregateOperator(GroupedOperator):
    """State: the rows that wait; keys, counts and results per group; aggregates per entry."""

    addresses: ClassVar = {
        **GroupedOperator.addresses,
        "out_owner": kernel.OWNERS_OUT,
        "out_time": kernel.TIMES_OUT,
        "out_weight": kernel.WEIGHTS_OUT,
        "times_in": kernel.TIMES_IN,
        "numbers": kernel.NUMBERS,
        "seen": kernel.SEEN,
        "once": kernel.ONCE,
        "live": kernel.LIVE,
        "back": kernel.BACK,
        "separate": kernel.SEPARATE,
        "shown": kernel.SHOWN,
        "dirty": kernel.DIRTY,
        "free": kernel.FREE_ENTRIES,
    }

    def __init__(self, name: str, node: ChangeAggregateExec, workspace: Workspace) -> None:
        schema, output = node.input.schema, node.schema
        self.node = node
        self._keys = Schema(schema.fields[: node.keys])
        self.code = writing.write(node)
        self._module = workspace.load(self.code.text)
        self._words: Words = np.zeros(len(self.code.slots), np.int64)
        self._copy: Words = np.zeros(2 * 2 * len(schema), np.int64)
        self._key_columns: Words = np.zeros(2 * node.keys, np.int64)
        self._results: Words = np.zeros(kernel.RESULT_WORDS * len(node.calls), np.int64)
        self._read: Words = np.array(self._columns_read(), np.int64).reshape(-1)
        self.scratch = GroupedOperator.scratch | {
            *(*_ROWS, "numbers", "seen", *_OUT),
            *(f"out_{name}" for name, _ in self.code.results),
            *(f"copy {part}{c}" for c in range(len(schema)) for part in "cm"),
        }
        time, by = len(schema) - 2, range(node.keys)
        super().__init__(name, schema, by, time, len(output) - 2, kernel.END, workspace)
        d, slots = self.descriptor, self.code.slots
        d[kernel.FUNCTION] = self._module.op.address
        for word, array in (
            (kernel.GENERATED, self._words),
            (kernel.COPY, self._copy),
            (kernel.KEY_COLUMNS, self._key_columns),
            (kernel.RESULTS, self._results),
            (kernel.READ, self._read),
        ):
            d[word] = array.ctypes.data
        d[kernel.RANKED] = 0 if self.code.uses_rank else 2
        d[[kernel.CALLS, kernel.READS]] = len(node.calls), self._read.size // kernel.READ_WORDS
        d[[kernel.ENDS, kernel.NEXT_END]] = -1 if node.ends is None else node.ends, INFINITY
        d[kernel.TIME_BYTES] = value_bytes(output[len(output) - 2].type)
        named = {
            kernel.FREE_TOP: "free top",
            kernel.ROWS_AT: "n",
            kernel.TIMES_AT: "times",
            kernel.WEIGHTS_AT: "weights",
            kernel.MADE_AT: "out",
            kernel.DETAIL_AT: "detail",
        }
        for word, slot in named.items():
            d[word] = slots[slot]
        self.address = int(kernel.change_aggregate.address)
        self.open()
        self._more_entries(_ENTRIES)

    def _columns_read(self) -> list[tuple[int, int, int]]:
        """Per column that the function reads: its number, the words for its data and its mask."""
        slots = self.code.slots
        columns = range(len(self.node.input.schema))
        found = [(c, slots.get(f"in{c}", -1), slots.get(f"im{c}", -1)) for c in columns]
        return [one for one in found if one[1:] != (-1, -1)]

    # -- room ------------------------------------------------------------------------------------

    def room_for_piece(self, rows: int) -> None:
        for name in _ROWS:
            self.resize(name, rows, np.dtype(np.int64))
        self.resize("numbers", rows, np.dtype(np.int32))
        self.state["numbers"][:] = np.arange(rows)
        for name, storage in (*_OUT.items(), *((f"out_{n}", t) for n, t in self.code.results)):
            self.resize(name, 2 * rows, stored_dtype(storage))
        for c, f in enumerate(self.schema):
            self.resize(f"copy c{c}", rows, stored_dtype(f.type.storage))
            self.resize(f"copy m{c}", rows, np.dtype(np.uint8))
            self.state[f"copy m{c}"][:] = 1
        if rows > self.workspace.morsel_rows:  # the slots of a piece are listed, too
            scratch = np.zeros((2, rows), np.int32)
            self.workspace.resize(self._scratch.nbytes, scratch.nbytes, self.name)
            self.use_scratch(scratch)
        super().room_for_piece(rows)

    def grow_groups(self, known: int, size: int) -> None:
        for name, storage in (*writing.OF_GROUP, *self.code.results, ("seen", "bool")):
            self.resize(name, size, stored_dtype(storage))
            self.state[name][known:] = _EMPTY.get(name, 0)
        for c, f in enumerate(self._keys):
            self.resize(f"key c{c}", size, stored_dtype(f.type.storage))
            self.resize(f"key m{c}", size, np.dtype(np.uint8))
            self.state[f"key m{c}"][known:] = 1
            self.state[f"key c{c}"][known:] = 0

    def _more_entries(self, wanted: int) -> None:
        top = self.code.slots["free top"]
        free, old = int(self._words[top]), len(self.state.get("free", ()))
        size = max(2 * old, old + wanted - free)
        for name, storage in (*writing.OF_ENTRY, *self.code.state):
            self.resize(name, size, stored_dtype(storage))
            self.state[name][old:] = 0
        self.state["free"][free : free + size - old] = np.arange(size - 1, old - 1, -1)
        self._words[top] = free + size - old
        self.bind()

    def bind(self) -> None:
        super().bind()
        state, slots = self.state, self.code.slots
        for name, array in state.items():
            if name in slots:
                self._words[slots[name]] = array.ctypes.data
        if "ids" in state:
            self._words[slots["owners"]] = state["ids"].ctypes.data
        sizes = {"groups": self._index.capacity, "entries": len(state.get("free", ()))}
        for name, size in (sizes | {"room": len(state.get("out_owner", ()))}).items():
            self._words[slots[name]] = size
        for c in range(len(self.schema)):
            if f"copy c{c}" in state:
                addresses = state[f"copy c{c}"].ctypes.data, state[f"copy m{c}"].ctypes.data
                self._copy[2 * c : 2 * c + 2] = addresses
        for c in range(self.node.keys):
            if f"key c{c}" in state:
                addresses = state[f"key c{c}"].ctypes.data, state[f"key m{c}"].ctypes.data
                self._key_columns[2 * c : 2 * c + 2] = addresses
        for k, call in enumerate(self.node.calls):
            if f"out_r{k}" in state:
                values, valid = state[f"out_r{k}"], state[f"out_v{k}"]
                self._results[kernel.RESULT_WORDS * k : kernel.RESULT_WORDS * (k + 1)] = (
                    values.ctypes.data,
                    valid.ctypes.data,
                    values.itemsize,
                    call.nullable,
                )

    # -- codes -----------------------------------------------------------------------------------

    @property
    def needs_refresh(self) -> bool:
        return self.code.uses_rank

    def refresh(self) -> None:
        if self.code.uses_rank:
            self._rank = self.workspace.dictionary.rank()
            self._words[self.code.slots["rank"]] = self._rank.ctypes.data
            self._words[self.code.slots["codes"]] = self._rank.size

    def map_codes(self, change: Callable[[CodeColumn], CodeColumn]) -> None:
        super().map_codes(change)
        for c, f in enumerate(self._keys):
            if f.type.is_coded:
                codes, there = self.state[f"key c{c}"], self.state[f"key m{c}"]
                self.state[f"key c{c}"] = change(np.where(there != 0, codes, 0))
        named = [f"r{k}" for k, call in enumerate(self.node.calls) if call.type.is_coded]
        for name in (*self.code.texts, *named):
            _change(self.state[name], change)
        self.bind()

    # -- called by the runtime -------------------------------------------------------------------

    def provide(self, morsel: Morsel) -> None:
        wanted = int(morsel.words[DETAIL_ROW])
        match int(morsel.words[DETAIL]):
            case kernel.NEED_ENTRIES:
                self._more_entries(wanted)
            case kernel.NEED_PIECE:
                self.room_for_piece(wanted)
            case kernel.NEED_RANK:
                self.refresh()
                self.descriptor[kernel.RANKED] = 1
            case _:
                super().provide(morsel)

    def error(self, morsel: Morsel) -> ErrorSite:
        return self.code.sites[int(morsel.words[DETAIL])]

    def counters(self) -> dict[str, int]:
        return {**super().counters(), "groups": self._index.capacity - self._index.free}


def _change(codes: npt.NDArray[Any], change: Callable[[CodeColumn], CodeColumn]) -> None:
    held = codes >= 0
    codes[held] = change(codes[held])
