"""The running aggregate over a changing relation, in native code
(``kernels.relations.group_changes``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from cql.executor.codegen.expressions.emit import ErrorSite
from cql.executor.kernels.lib import treap as chains
from cql.executor.kernels.morsel_layout import DETAIL, DETAIL_ROW, INFINITY
from cql.executor.kernels.relations import group_changes as kernel
from cql.executor.morsel.morsel import Morsel, Words
from cql.executor.operators.contract import CodeColumn
from cql.executor.operators.relations import change_aggregate_code as writing
from cql.executor.operators.relations.grouped import GROUP, GroupChangesOperator
from cql.executor.operators.relations.window_relation import RelationOperator
from cql.executor.operators.workspace import Workspace
from cql.executor.state.repartition import Owners, Places, Taken, Values
from cql.executor.state.store import Snapshot
from cql.planner.nodes.physical import ChangeAggregateExec

_ENTRIES = 64
#: The space of the entries (``state.repartition``).
ENTRY = "entry"
#: What an array of a group holds at first.
_EMPTY = {"back": -1, "separate": -1, "front": -1, "newest": -1}


class NativeAggregateOperator(GroupChangesOperator):
    """``windows``: the window operators below, which turn streams into the input relation; without
    keys, the row of the aggregate exists from their first row on.

    State: the rows that wait; keys, counts and results per group; aggregates per entry."""

    addresses: ClassVar = {
        **GroupChangesOperator.addresses,
        "back": kernel.BACK,
        "separate": kernel.SEPARATE,
        "shown": kernel.SHOWN,
        "dirty": kernel.DIRTY,
        "free": kernel.FREE_ENTRIES,
    }
    least: ClassVar = (*GroupChangesOperator.least, kernel.NEXT_END)

    def __init__(
        self,
        name: str,
        node: ChangeAggregateExec,
        workspace: Workspace,
        windows: Sequence[RelationOperator] = (),
        *,
        numbered: bool = False,
    ) -> None:
        self.numbered = numbered
        self.node = node
        self.code = writing.write(node)
        self._module = workspace.load(self.code.text)
        slots, schema = self.code.slots, node.input.schema
        reads = [(c, slots.get(f"in{c}", -1), slots.get(f"im{c}", -1)) for c in range(len(schema))]
        super().__init__(
            name,
            schema,
            node.keys,
            node.schema,
            int(self._module.op.address),
            np.zeros(len(slots), np.int64),
            slots,
            workspace,
            [one for one in reads if one[1:] != (-1, -1)],
            [(call.type.storage, call.nullable) for call in node.calls],
        )
        d = self.descriptor
        self.bound(kernel.RANKED, 0 if self.code.uses_rank else 2)
        d[kernel.ENDS] = -1 if node.ends is None else node.ends
        self._windows = windows
        self._starts: Words = np.array([w.first.ctypes.data for w in windows], np.int64)
        self._nothing: Words = np.zeros(1, np.int64)
        self.point(kernel.STARTS, self._starts)
        self.point(kernel.NOTHING, self._nothing)
        self.bound(kernel.WINDOWS, self._starts.size)
        d[kernel.SINGLE], d[kernel.WAITS] = not node.keys, node.input.bounded
        d[kernel.SINCE] = INFINITY if node.since is None else node.since
        d[kernel.BEGINNING] = node.beginning
        self.open()
        if not node.keys:
            self._index.ids(np.zeros((1, self._index.width), np.int64))
        self._more_entries(_ENTRIES)

    # -- room ------------------------------------------------------------------------------------

    def room_for_piece(self, rows: int) -> None:
        super().room_for_piece(rows)
        if not self.node.keys:
            self.state["ids"][:] = 0

    def grow_groups(self, known: int, size: int) -> None:
        super().grow_groups(known, size)
        for name, storage in (*writing.OF_GROUP, *self.code.results):
            self.grow(name, storage, known, size, _EMPTY.get(name, 0))

    def _more_entries(self, wanted: int) -> None:
        top = self.code.slots["free top"]
        free, old = int(self._words[top]), len(self.state.get("free", ()))
        size = max(2 * old, old + wanted - free)
        for name, storage in (*writing.OF_ENTRY, *self.code.state):
            self.grow(name, storage, old, size)
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

    # -- other partitions ------------------------------------------------------------------------

    @property
    def layout(self) -> dict[str, Values]:
        found = {}
        for name, _ in (*writing.OF_GROUP, *self.code.results):
            refers = {0: ENTRY} if name in _EMPTY else {}
            found[name] = Values(GROUP, refers=refers, empty=_EMPTY.get(name, 0))
        for name, _ in (*writing.OF_ENTRY, *self.code.state):
            found[name] = Values(ENTRY, refers={0: ENTRY} if name == "link" else {})
        return super().layout | found

    def take(
        self, saved: Sequence[Snapshot], owners: Owners, keys: Sequence[int]
    ) -> tuple[list[Snapshot], list[Taken]]:
        """A partition takes the entries of its groups, too."""
        saved, takes = super().take(saved, owners, keys)
        for k, one in enumerate(saved):
            for taken in takes:
                entries = _entries_of(one, taken.places(k, GROUP))
                taken.take(k, ENTRY, entries, len(one.arrays["link"]))
        return saved, takes

    def sizes(self, taken: Taken) -> dict[str, int]:
        return super().sizes(taken) | {ENTRY: max(_ENTRIES, taken.count(ENTRY))}

    def part(self, saved: Sequence[Snapshot], taken: Taken, number: int) -> Snapshot:
        made, entries = super().part(saved, taken, number), taken.count(ENTRY)
        free = made.arrays["free"]
        free[: len(free) - entries] = np.arange(len(free) - 1, entries - 1, -1)
        top = made.parts["function"].words.copy()
        top[self._kept.index(self.code.slots["free top"])] = len(free) - entries
        return replace(made, parts={**made.parts, "function": Snapshot({}, top)})

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
        named = [f"r{k}" for k, call in enumerate(self.node.calls) if call.type.is_coded]
        for name in (*self.code.texts, *named):
            _change(self.state[name], change)

    # -- called by the runtime -------------------------------------------------------------------

    def provide(self, morsel: Morsel) -> None:
        match int(morsel.words[DETAIL]):
            case kernel.NEED_ENTRIES:
                self._more_entries(int(morsel.words[DETAIL_ROW]))
            case kernel.NEED_RANK:
                self.refresh()
                self.bound(kernel.RANKED, 1)
            case _:
                super().provide(morsel)

    def error(self, morsel: Morsel) -> ErrorSite:
        return self.code.sites[int(morsel.words[DETAIL])]


def _entries_of(saved: Snapshot, groups: Places) -> Places:
    """The entries of ``groups`` in a snapshot, ascending: their own ones and those of their
    stacks."""
    link = saved.arrays["link"]
    used = np.zeros(len(link), np.uint8)
    for name in ("back", "separate"):
        own = saved.arrays[name][groups]
        used[own[own >= 0]] = 1
    stacks = np.concatenate([saved.arrays[name][groups] for name in ("front", "newest")])
    chains.mark_chains(link.copy(), stacks, used)
    return np.flatnonzero(used)


def _change(codes: npt.NDArray[Any], change: Callable[[CodeColumn], CodeColumn]) -> None:
    held = codes >= 0
    codes[held] = change(codes[held])
