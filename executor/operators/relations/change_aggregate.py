"""The running aggregate over a changing relation (``kernels.relations.group_changes``)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from cql.executor.codegen.expressions.emit import ErrorSite
from cql.executor.kernels.lib import treap as chains
from cql.executor.kernels.morsel_layout import DETAIL, INFINITY
from cql.executor.kernels.relations import group_changes as kernel
from cql.executor.kernels.relations import value_logs
from cql.executor.morsel.egress import view_address
from cql.executor.morsel.morsel import Morsel, Words, stored_dtype
from cql.executor.operators.aggregates.changelog_values import (
    CountedValues,
    HeldValues,
    ListedValues,
    Pairs,
    ValueLog,
    rows_at_once,
)
from cql.executor.operators.relations import change_aggregate_code as writing
from cql.executor.operators.relations.grouped import GROUP, GroupChangesOperator
from cql.executor.operators.relations.window_relation import RelationOperator
from cql.executor.operators.workspace import Workspace
from cql.executor.state.codes import Codes
from cql.executor.state.repartition import Owners, Places, Taken, Values
from cql.executor.state.stateful import Stateful
from cql.executor.state.store import Snapshot, State
from cql.executor.udf.errors import explained, function_codes
from cql.planner.interpret.error import EvaluationError
from cql.planner.interpret.python_values import to_python
from cql.planner.nodes.physical import ChangeAggregateExec

_ENTRIES = 64
#: The space of the entries (``state.repartition``).
ENTRY = "entry"
#: What an array of a group holds at first.
_EMPTY = {"back": -1, "separate": -1, "front": -1, "newest": -1}


class ChangeAggregateOperator(GroupChangesOperator):
    """``windows``: the window operators below, which turn streams into the input relation; without
    keys, the row of the aggregate exists from their first row on.

    State: the rows that wait; keys, counts and results per group; aggregates per entry; the values
    of DISTINCT and holistic calls."""

    addresses: ClassVar = {
        **GroupChangesOperator.addresses,
        "back": kernel.BACK,
        "separate": kernel.SEPARATE,
        "shown": kernel.SHOWN,
        "dirty": kernel.DIRTY,
        "free": kernel.FREE_ENTRIES,
    }
    least: ClassVar = (*GroupChangesOperator.least, kernel.NEXT_END, kernel.AT_ONCE)

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
            keeps=[slots["sequence"]],
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
        self._functions = function_codes(self.code.functions) if self.code.functions else []
        for k, code in enumerate(self._functions):
            self._words[slots[f"function {k}"]] = code.made.address
            self._words[slots[f"function {k} own"]] = code.own
        self._values = [self._held(log) for log in self.code.logs]
        self._logs: Words = np.zeros(value_logs.WORDS * len(self._values), np.int64)
        self._made: State = {}
        self.point(kernel.LOG, self._logs)
        self.bound(kernel.LOGS, len(self._values))
        self.bound(kernel.VALUES, kernel.MISSING if self._values else kernel.NO_LOGS)
        self.open()
        d[kernel.AT_ONCE] = rows_at_once(self._values)
        d[kernel.STAYS] = node.method == writing.APPEND_ONLY
        d[kernel.PER_ROW] = 2 if node.shows == "both" else 1
        d[[kernel.TIME_AT, kernel.WEIGHT_AT]] = slots["out_time"], slots["out_weight"]
        given = self._given.reshape(-1, kernel.RESULT_WORDS)
        for k, words in enumerate(given):
            words[4:] = slots[f"out_r{k}"], slots[f"out_v{k}"]
        if not node.keys:
            self._index.ids(np.zeros((1, self._index.width), np.int64))
        self._more_entries(_ENTRIES)

    def _held(self, log: ValueLog) -> HeldValues:
        calls, workspace, store = self.node.calls, self.workspace, self.store
        if log.listed:
            by_entry = self.node.entered is not None
            return ListedValues(log, calls, workspace, store, by_entry=by_entry)
        lists = log.number in self.code.listed
        return CountedValues(log, calls, workspace, store, lists=lists)

    @property
    def parts(self) -> Sequence[Stateful]:
        return (*super().parts, *self._values)

    @property
    def calls_users(self) -> bool:
        return bool(self._functions)

    # -- room ------------------------------------------------------------------------------------

    def room_for_piece(self, rows: int) -> None:
        super().room_for_piece(rows)
        if not self.node.keys:
            self.state["ids"][:] = 0

    def grow_groups(self, known: int, size: int) -> None:
        super().grow_groups(known, size)
        for name, storage in self._of_group:
            self.grow(name, storage, known, size, _EMPTY.get(name, 0))
        for values in self._values:
            values.grow(known, size)

    @property
    def _of_group(self) -> tuple[tuple[str, str], ...]:
        return (*writing.OF_GROUP, *self.code.results, *self.code.logged)

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
        for name in (state.keys() & slots.keys()) - {"times"}:  # the times of the piece
            self._words[slots[name]] = state[name].ctypes.data
        if "ids" in state:
            self._words[slots["owners"]] = state["ids"].ctypes.data
        sizes = {"groups": self._index.capacity, "entries": len(state.get("free", ()))}
        for name, size in (sizes | {"room": len(state.get("out_owner", ()))}).items():
            self._words[slots[name]] = size
        if self._known:
            self._bind_logs()

    def _bind_logs(self) -> None:
        self._logs[:] = [word for values in self._values for word in values.words]

    # -- other partitions ------------------------------------------------------------------------

    @property
    def layout(self) -> dict[str, Values]:
        found = {}
        for name, _ in self._of_group:
            refers = {0: ENTRY} if name in _EMPTY else {}
            found[name] = Values(GROUP, refers=refers, empty=_EMPTY.get(name, 0))
        for name, _ in (*writing.OF_ENTRY, *self.code.state):
            found[name] = Values(ENTRY, refers={0: ENTRY} if name == "link" else {})
        for values in self._values:
            found |= values.layout(GROUP)
        return super().layout | found

    def take(
        self, saved: Sequence[Snapshot], owners: Owners, keys: Sequence[int]
    ) -> tuple[list[Snapshot], list[Taken]]:
        """A partition takes the entries and the values of its groups, too."""
        saved, takes = super().take(saved, owners, keys)
        for k, one in enumerate(saved):
            for taken in takes:
                groups = taken.places(k, GROUP)
                taken.take(k, ENTRY, _entries_of(one, groups), len(one.arrays["link"]))
                for values in self._values:
                    values.take(k, one, groups, taken)
        return saved, takes

    def sizes(self, taken: Taken) -> dict[str, int]:
        nodes = {values.space: values.size(taken) for values in self._values}
        return super().sizes(taken) | nodes | {ENTRY: max(_ENTRIES, taken.count(ENTRY))}

    def part(self, saved: Sequence[Snapshot], taken: Taken, number: int) -> Snapshot:
        made, entries = super().part(saved, taken, number), taken.count(ENTRY)
        free = made.arrays["free"]
        free[: len(free) - entries] = np.arange(len(free) - 1, entries - 1, -1)
        words = np.max([one.parts["function"].words for one in saved], axis=0)  # the sequence
        words[self._kept.index(self.code.slots["free top"])] = len(free) - entries
        controls: State = {}
        for values in self._values:
            controls |= values.controls(saved[0], taken)
        parts = {**made.parts, "function": Snapshot({}, words)}
        return replace(made, arrays={**made.arrays, **controls}, parts=parts)

    # -- codes -----------------------------------------------------------------------------------

    @property
    def needs_refresh(self) -> bool:
        return self.code.uses_rank

    def refresh(self) -> None:
        if self.code.uses_rank:
            self._rank = self.workspace.dictionary.rank()
            self._words[self.code.slots["rank"]] = self._rank.ctypes.data
            self._words[self.code.slots["codes"]] = self._rank.size

    def codes(self) -> Iterator[Codes]:
        yield from super().codes()
        names = list(self.code.texts)
        for k, call in enumerate(self.node.calls):
            if call.type.is_coded:
                names += [f"r{k}", f"logged{k}"] if call.holistic else [f"r{k}"]
        for name in names:
            yield Codes(self.state[name], self.state[name] >= 0)

    # -- values ----------------------------------------------------------------------------------

    def _take_in_values(self) -> None:
        """Takes the rows of the piece into the value logs, and gives the function what it reads of
        these."""
        times, weights = (
            self._given_column("times", np.int64),
            self._given_column("weights", np.int64),
        )
        rows, ids = self._rows(), self.state["ids"][: times.size]
        pairs = Pairs.of(times, ids, self.state["seen"])
        entered = times
        if self.node.entered is not None:
            entered = rows[f"c{self.node.entered}"].astype(np.int64)
        words, slots = self._words, self.code.slots
        sequence, made = int(words[slots["sequence"]]), dict[str, npt.NDArray[Any]]()
        for values in self._values:
            made |= values.take_in(rows, ids, weights, entered, sequence, pairs)
        for name, kind in self.code.logged:
            name = name.replace("logged", "res")
            made[name] = np.ascontiguousarray(made[name].astype(stored_dtype(kind), copy=False))
        for name in slots.keys() & made.keys():
            words[slots[name]] = made[name].ctypes.data
        words[slots["pairs"]] = pairs.owner.size
        for number in self.code.listed:
            words[slots[f"values of {number}"]] = made[f"values{number}"].size
        self._made = made  # the function reads these arrays
        self.descriptor[kernel.AT_ONCE] = rows_at_once(self._values)
        self.bound(kernel.VALUES, kernel.TAKEN)
        self._bind_logs()

    def _rows(self) -> State:
        """The columns of the piece that the function or a log reads."""
        rows: State = {}
        for c, f in enumerate(self.schema):
            if f"in{c}" in self.code.slots:
                rows[f"c{c}"] = self._given_column(f"in{c}", stored_dtype(f.type.storage))
                rows[f"m{c}"] = self._given_column(f"im{c}", np.uint8)
        return rows

    def _given_column(self, slot: str, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        words, slots = self._words, self.code.slots
        return view_address(int(words[slots[slot]]), np.dtype(dtype), int(words[slots["n"]]))

    # -- called by the runtime -------------------------------------------------------------------

    def answer(self, request: int, wanted: int) -> None:
        match request:
            case kernel.NEED_ENTRIES:
                self._more_entries(wanted)
            case kernel.NEED_RANK:
                self.refresh()
                self.bound(kernel.RANKED, 1)
            case kernel.NEED_VALUES:
                self._take_in_values()
            case _:
                super().answer(request, wanted)

    def error(self, morsel: Morsel) -> ErrorSite:
        site = self.code.sites[int(morsel.words[DETAIL])]
        if site.again is None:
            return site
        made = explained(site, self._functions, self._words, self.workspace.dictionary)
        now, kind = int(self._words[self.code.slots["now"]]), self.schema[-2].type
        with contextlib.suppress(EvaluationError):  # a time outside Python's range
            made = replace(made, message=f"{made.message}, at {to_python(now, kind)}")
        return made


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
