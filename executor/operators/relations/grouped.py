"""The base classes of native operators that find the group of each row, and of those that output
the changes of groups."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from cql.base.model import Schema
from cql.executor.kernels.morsel_layout import INFINITY
from cql.executor.kernels.relations import group_changes as changes
from cql.executor.kernels.relations import groups
from cql.executor.morsel.morsel import Words, stored_dtype, value_bytes
from cql.executor.operators.relations.frontier import FrontierOperator
from cql.executor.operators.relations.group_index import (
    GroupIndex,
    columns_of,
    gather_index,
    live_ids,
)
from cql.executor.operators.workspace import Workspace
from cql.executor.state.codes import Codes, not_null
from cql.executor.state.repartition import Owners, Taken, Values, each, taken_by_owner
from cql.executor.state.stateful import Stateful
from cql.executor.state.store import Snapshot

_GROUPS = 64
#: The space of the groups (``state.repartition``).
GROUP = "group"
#: Rows that are looked up at once: their scratch stays in the processor's cache.
_PIECE = 8192
_ROWS = ("once", "touched", "times_in", "born_in")
_OUT = ("out_owner", "out_time", "out_weight")  # RSTREAM has no weights


def piece_rows(workspace: Workspace) -> int:
    """Rows that are looked up at once."""
    return min(workspace.morsel_rows, _PIECE)


class GroupedOperator(FrontierOperator):
    """``by``: the key columns. State: the rows that wait, and an index of the groups."""

    addresses: ClassVar = {
        **FrontierOperator.addresses,
        "wanted": groups.WANTED,
        "ids": groups.IDS,
        "fresh": groups.FRESH,
    }

    scratch = FrontierOperator.scratch | {"wanted", "ids", "fresh"}

    def __init__(
        self,
        name: str,
        schema: Schema,
        by: Sequence[int],
        time: int,
        time_out: int,
        end: int,
        workspace: Workspace,
    ) -> None:
        self._index = GroupIndex([schema[c].type for c in by], name, workspace)
        self._known = 0
        self._group_columns = list(by)
        super().__init__(name, schema, time, time_out, end, workspace, by)

    def open(self) -> None:
        """Allocates what the groups need; called once the operator knows its words."""
        self.room_for_piece(piece_rows(self.workspace))
        self.more_groups(_GROUPS)

    def room_for_piece(self, rows: int) -> None:
        """Makes room to look up so many rows at once."""
        self.resize("wanted", rows * self._index.width, np.int64)
        self.resize("ids", rows, np.int64)
        self.resize("fresh", rows, np.uint8)
        self.bound(groups.PIECE, rows)
        self.bind()

    def more_groups(self, wanted: int) -> None:
        """Makes room for ``wanted`` more groups."""
        self._index.make_room(wanted)
        self.grow_groups(self._known, self._index.capacity)
        self._known = self._index.capacity
        self.bind()

    @abstractmethod
    def grow_groups(self, known: int, size: int) -> None:
        """Resizes the arrays of the groups from ``known`` to ``size`` groups."""

    def grow(self, name: str, storage: str, known: int, size: int, value: int = 0) -> None:
        """Resizes an array; those of its ``size`` entries that are not ``known`` are ``value``."""
        self.resize(name, size, stored_dtype(storage))
        self.state[name][known:] = value

    def bind(self) -> None:
        super().bind()
        table, keys, free, control = self._index.arrays
        self.bound(groups.BUCKETS, table.size)
        self.bound(groups.CAPACITY, self._index.capacity)
        for word, array in (
            (groups.TABLE, table),
            (groups.KEY_WORDS, keys),
            (groups.FREE_IDS, free),
            (groups.CONTROL, control),
        ):
            self.point(word, array)

    @property
    def parts(self) -> Sequence[Stateful]:
        return (*super().parts, self._index)

    def recoded(self) -> None:
        super().recoded()
        self.bind()

    # -- snapshots -------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        return replace(super().snapshot(), parts={"groups": self._index.snapshot()})

    def restore(self, saved: Snapshot) -> None:
        self._index.restore(saved.parts["groups"])
        self._known = self._index.capacity
        self.grow_groups(0, self._known)  # scratch beside them, too
        super().restore(saved)

    # -- other partitions ------------------------------------------------------------------------

    def repartition(self, saved: Sequence[Snapshot], owners: Owners) -> list[Snapshot]:
        saved, takes = self.take(saved, owners, self._group_columns)
        return [self.part(saved, taken, number) for number, taken in enumerate(takes)]

    def take(
        self, saved: Sequence[Snapshot], owners: Owners, keys: Sequence[int]
    ) -> tuple[list[Snapshot], list[Taken]]:
        saved, takes = super().take(saved, owners, keys)
        for k, index in enumerate(each(saved, "groups")):
            ids = live_ids(index)
            columns = columns_of(index.arrays["keys"][ids], self._index.types)
            own = owners.of([columns[self._group_columns.index(c)] for c in keys], len(ids))
            taken_by_owner(k, GROUP, ids, own, len(index.arrays["keys"]), takes)
        return saved, takes

    def sizes(self, taken: Taken) -> dict[str, int]:
        return {GROUP: max(_GROUPS, taken.count(GROUP))}

    def part(self, saved: Sequence[Snapshot], taken: Taken, number: int) -> Snapshot:
        capacity = self.sizes(taken)[GROUP]
        index = gather_index(each(saved, "groups"), taken, GROUP, capacity)
        return replace(super().part(saved, taken, number), parts={"groups": index})

    # -- called by the runtime -------------------------------------------------------------------

    def answer(self, request: int, wanted: int) -> None:
        if request == groups.NEED_GROUPS:
            self.more_groups(wanted)
        else:
            super().answer(request, wanted)


class GroupChangesOperator(GroupedOperator):
    """An operator that outputs, for each instant, the changes of groups
    (``kernels.relations.group_changes``). Its first ``keys`` columns are the key. What becomes of
    the groups is up to a function with the descriptor ``words``; ``slots`` are the words that the
    driver sets or reads: ``n``, ``times``, ``weights``, ``out``, ``detail`` and, if there are
    entries, ``free top``. ``reads``: per column that the function reads, its number, and the words
    for the addresses of its data and its mask (-1: none). ``results``: per column behind the keys,
    its storage, and whether it may be NULL.

    State: the rows that wait; the keys of the groups."""

    addresses: ClassVar = {
        **GroupedOperator.addresses,
        "out_owner": changes.OWNERS_OUT,
        "out_time": changes.TIMES_OUT,
        "out_weight": changes.WEIGHTS_OUT,
        "times_in": changes.TIMES_IN,
        "numbers": changes.NUMBERS,
        "seen": changes.SEEN,
        "once": changes.ONCE,
        "live": changes.LIVE,
        "born_in": changes.BORN_IN,
    }
    #: For an array of the state, the word of the function that holds its address.
    own_addresses: ClassVar[Mapping[str, int]] = {}

    def __init__(
        self,
        name: str,
        schema: Schema,
        keys: int,
        output: Schema,
        function: int,
        words: Words,
        slots: Mapping[str, int],
        workspace: Workspace,
        reads: Sequence[tuple[int, int, int]] = (),
        results: Sequence[tuple[str, bool]] = (),
        keeps: Sequence[int] = (),
    ) -> None:
        self._words, self._results = words, results
        self._keys = Schema(schema.fields[:keys])
        both = [schema[c].nullable and output[c].nullable for c in range(keys)]
        self._never_null = np.flatnonzero(~np.array(both, bool))
        self._copy: Words = np.zeros(2 * 2 * len(schema), np.int64)
        self._key_columns: Words = np.zeros(2 * keys, np.int64)
        self._given: Words = np.zeros(changes.RESULT_WORDS * len(results), np.int64)
        self._read: Words = np.array(reads, np.int64).reshape(-1)
        self.scratch = GroupedOperator.scratch | {
            *(*_ROWS, "numbers", "seen", *_OUT),
            *(f"out_{part}{k}" for k in range(len(results)) for part in "rv"),
            *(f"copy {part}{c}" for c in range(len(schema)) for part in "cm"),
        }
        time, time_out = len(schema) - 2, keys + len(results)
        self._outputs = _OUT[: len(output) + 1 - time_out]
        super().__init__(name, schema, range(keys), time, time_out, changes.END, workspace)
        d = self.descriptor
        self.bound(changes.FUNCTION, function)
        for word, array in (
            (changes.OWN_WORDS, words),
            (changes.COPY, self._copy),
            (changes.KEY_COLUMNS, self._key_columns),
            (changes.RESULTS, self._given),
            (changes.READ, self._read),
        ):
            self.point(word, array)
        d[[changes.CALLS, changes.READS]] = len(results), len(reads)
        d[[changes.ENDS, changes.NEXT_END, changes.AT_ONCE]] = -1, INFINITY, INFINITY
        self.bound(changes.RANKED, 2)
        d[changes.TIME_BYTES] = value_bytes(output[time_out].type)
        #: The words of the function that it remembers.
        self._kept = [*keeps, *([slots["free top"]] if "free top" in slots else [])]
        self._in_parts = "more" in slots
        for word, slot in (
            (changes.FREE_TOP, "free top"),
            (changes.MORE_AT, "more"),
            (changes.GONE_AT, "gone"),
        ):
            d[word] = slots.get(slot, -1)
        d[[changes.ROWS_AT, changes.TIMES_AT]] = slots["n"], slots["times"]
        d[[changes.WEIGHTS_AT, changes.MADE_AT]] = slots["weights"], slots["out"]
        d[changes.DETAIL_AT] = slots["detail"]
        self.address = int(changes.group_changes.address)

    # -- room ------------------------------------------------------------------------------------

    def room_for_piece(self, rows: int) -> None:
        for name in _ROWS:
            self.resize(name, rows, np.int64)
        self.resize("numbers", rows, np.int32)
        self.state["numbers"][:] = np.arange(rows)
        room = max(2, self.workspace.morsel_rows) if self._in_parts else 2 * rows
        for name in self._outputs:
            self.resize(name, room, np.int64)
        for k, (storage, _) in enumerate(self._results):
            self.resize(f"out_r{k}", room, stored_dtype(storage))
            self.resize(f"out_v{k}", room, np.uint8)
        for c, f in enumerate(self.schema):
            self.resize(f"copy c{c}", rows, stored_dtype(f.type.storage))
            self.resize(f"copy m{c}", rows, np.uint8)
            self.state[f"copy m{c}"][:] = 1
        if rows > self.workspace.morsel_rows:  # the slots of a piece are listed, too
            self.list_rows(rows)
        super().room_for_piece(rows)

    def grow_groups(self, known: int, size: int) -> None:
        self.grow("seen", "bool", known, size)
        for c, f in enumerate(self._keys):
            self.grow(f"key c{c}", f.type.storage, known, size)
            self.grow(f"key m{c}", "bool", known, size, 1)

    def bind(self) -> None:
        super().bind()
        state = self.state
        for name, word in self.own_addresses.items():
            if name in state:
                self._words[word] = state[name].ctypes.data
        for part, many, words in (
            ("copy", len(self.schema), self._copy),
            ("key", len(self._keys), self._key_columns),
        ):
            for c in range(many):
                if f"{part} c{c}" in state:
                    data, mask = state[f"{part} c{c}"], state[f"{part} m{c}"]
                    words[2 * c : 2 * c + 2] = data.ctypes.data, mask.ctypes.data
        self._key_columns[2 * self._never_null + 1] = 0
        for k, (_, nullable) in enumerate(self._results):
            if f"out_v{k}" in state:
                values, valid = state[f"out_r{k}"], state[f"out_v{k}"]
                words = self._given[changes.RESULT_WORDS * k : changes.RESULT_WORDS * (k + 1)]
                words[:2] = values.ctypes.data, valid.ctypes.data
                words[2:4] = values.itemsize, nullable

    def snapshot(self) -> Snapshot:
        made = super().snapshot()
        return replace(
            made, parts={**made.parts, "function": Snapshot({}, self._words[self._kept])}
        )

    @property
    def layout(self) -> dict[str, Values]:
        keys = [f"key {part}{c}" for c in range(len(self._keys)) for part in "cm"]
        return super().layout | {name: Values(GROUP) for name in keys}

    def part(self, saved: Sequence[Snapshot], taken: Taken, number: int) -> Snapshot:
        made = super().part(saved, taken, number)
        function = saved[0].parts["function"]
        return replace(made, parts={**made.parts, "function": function})

    def restore(self, saved: Snapshot) -> None:
        self._words[self._kept] = saved.parts["function"].words
        super().restore(saved)

    def codes(self) -> Iterator[Codes]:
        yield from super().codes()
        live = self._index.live
        for c, f in enumerate(self._keys):
            if f.type.is_coded:
                yield not_null(self.state[f"key c{c}"], self.state[f"key m{c}"], live)

    # -- called by the runtime -------------------------------------------------------------------

    def answer(self, request: int, wanted: int) -> None:
        if request == changes.NEED_PIECE:
            self.room_for_piece(wanted)
        else:
            super().answer(request, wanted)

    def counters(self) -> dict[str, int]:
        return {**super().counters(), "groups": self._index.capacity - self._index.free}
