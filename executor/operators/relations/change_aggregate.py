"""The running aggregate of all values of a changing relation (see
``change_aggregate_code``): DISTINCT and holistic calls, and those of functions of users.
``native_aggregate`` runs the others."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from cql.base.model import Schema
from cql.executor.codegen.expressions.emit import ErrorSite
from cql.executor.kernels.lib.memory import call_address
from cql.executor.kernels.morsel_layout import DETAIL, DETAIL_ROW, ERROR, INFINITY, NEVER
from cql.executor.morsel.morsel import Morsel, stored_dtype
from cql.executor.operators.aggregates.changelog_values import (
    CountedValues,
    HeldValues,
    ListedValues,
    Pairs,
    ValueLog,
    piece,
)
from cql.executor.operators.contract import CodeColumn
from cql.executor.operators.relations import change_aggregate_code as writing
from cql.executor.operators.relations.changelog_operator import ChangelogOperator, Times
from cql.executor.operators.relations.group_index import GroupIndex, grown, key_words
from cql.executor.operators.relations.row_batch import joined, map_texts, nbytes, no_rows, take
from cql.executor.operators.relations.set_operations import weights_of
from cql.executor.operators.relations.window_relation import RelationOperator
from cql.executor.operators.workspace import Workspace
from cql.executor.state.store import Snapshot, State
from cql.executor.udf.errors import explained, function_codes
from cql.planner.interpret.error import EvaluationError
from cql.planner.interpret.python_values import to_python
from cql.planner.nodes.physical import ChangeAggregateExec

#: Spare entries: two for a group (``back`` and ``separate``), one for an intermediate result.
_SPARE = 3


class ChangeAggregateOperator(ChangelogOperator):
    """State: keys and counts per group; aggregates per entry. ``windows``: the window operators
    below, which turn streams into the input relation."""

    saved_numbers: ClassVar[tuple[str, ...]] = (
        *ChangelogOperator.saved_numbers,
        *("_begun", "_punctuated", "_next_end"),
    )
    saved_tables: ClassVar[tuple[str, ...]] = (
        *("_key_rows", "_groups", "_results", "_entries", "_logged"),
    )
    saved_parts: ClassVar[tuple[str, ...]] = (*ChangelogOperator.saved_parts, "_index")

    def __init__(
        self,
        name: str,
        node: ChangeAggregateExec,
        workspace: Workspace,
        windows: Sequence[RelationOperator] = (),
    ) -> None:
        schema, output = node.input.schema, node.schema
        super().__init__(name, schema, len(schema) - 2, output, len(output) - 2, workspace)
        self.node = node
        self.windows = windows
        self._ends = node.input.bounded
        self._keys = Schema(schema.fields[: node.keys])
        self._types = [f.type for f in self._keys]
        self._index = GroupIndex(self._types)
        self._key_rows = no_rows(self._keys)
        self.code = writing.write(node)
        self._module = workspace.load(self.code.text)
        self._groups = {n: np.zeros(0, stored_dtype(t)) for n, t in writing.OF_GROUP}
        self._results = {n: np.zeros(0, stored_dtype(t)) for n, t in self.code.results}
        entry = (*writing.OF_ENTRY, *self.code.state)
        self._entries = {n: np.zeros(0, stored_dtype(t)) for n, t in entry}
        self._logged = {n: np.zeros(0, stored_dtype(t)) for n, t in self.code.logged}
        self._values = [self._held(log) for log in self.code.logs]
        self._words: Times = np.zeros(len(self.code.slots), np.int64)
        self._detail = 0
        self._functions = function_codes(self.code.functions) if self.code.functions else []
        for k, code in enumerate(self._functions):
            self._words[self.code.slots[f"function {k}"]] = code.made.address
            self._words[self.code.slots[f"function {k} own"]] = code.own

    def _held(self, log: ValueLog) -> HeldValues:
        if log.listed:
            by_entry = self.node.entered is not None
            return ListedValues(log, self.node.calls, self.workspace, by_entry=by_entry)
        lists = log.number in self.code.listed
        return CountedValues(log, self.node.calls, self.workspace, lists=lists)

    @property
    def calls_users(self) -> bool:
        return bool(self._functions)

    @property
    def held_bytes(self) -> int:
        beside = nbytes([self._groups, self._results, self._entries, self._logged, self._key_rows])
        return self._index.nbytes + beside + sum(values.nbytes for values in self._values)

    def counters(self) -> dict[str, int]:
        groups = int(self._index.live.size) if self.node.keys else 1
        return {**super().counters(), "groups": groups}

    def error(self, morsel: Morsel) -> ErrorSite:
        site = self.code.sites[self._detail]
        if site.again is None:
            return site
        made = explained(site, self._functions, self._words, self.workspace.dictionary)
        kind = self.schema[self.time].type
        with contextlib.suppress(EvaluationError):  # a time outside Python's range
            made = replace(made, message=f"{made.message}, at {to_python(self._word('now'), kind)}")
        return made

    def map_codes(self, change: Callable[[CodeColumn], CodeColumn]) -> None:
        super().map_codes(change)
        map_texts([self._key_rows], self._keys, change)
        self._index.map_codes(change)
        for name in self.code.texts:
            self._change(self._entries[name], change)
        for k, call in enumerate(self.node.calls):
            if call.type.is_coded:
                self._change(self._results[f"r{k}"], change)
            if call.type.is_coded and call.holistic:
                self._change(self._logged[f"logged{k}"], change)
        for values in self._values:
            values.map_codes(change)

    @property
    def _remembered(self) -> list[int]:
        """The words that the kernel remembers."""
        return [self.code.slots[name] for name in ("free top", "sequence")]

    def snapshot(self) -> Snapshot:
        saved = super().snapshot()
        parts = {f"values {k}": values.snapshot() for k, values in enumerate(self._values)}
        words = Snapshot({}, self._words[self._remembered])
        return replace(saved, parts={**saved.parts, **parts, "words": words})

    def restore(self, saved: Snapshot) -> None:
        before = self.state_bytes
        for k, values in enumerate(self._values):
            values.restore(saved.parts[f"values {k}"])
        self.workspace.resize(before, self.state_bytes, self.name)
        super().restore(saved)
        self._words[self._remembered] = saved.parts["words"].words

    @staticmethod
    def _change(codes: npt.NDArray[Any], change: Callable[[CodeColumn], CodeColumn]) -> None:
        held = codes >= 0
        codes[held] = change(codes[held])

    def take_in(self, morsel: Morsel) -> int | None:
        super().take_in(morsel)
        if self._failed:
            morsel.words[DETAIL], morsel.words[DETAIL_ROW] = self._detail, 0
            return ERROR
        return None

    _failed = False
    _begun = False
    _punctuated = NEVER

    @property
    def _has_row(self) -> bool:
        return bool(self.node.keys or (self._groups["shown"].size and self._groups["shown"][0]))

    def at_end(self) -> State:
        """The row of an aggregate without keys that received no change: its time is the last
        watermark sent, or ``node.beginning`` if that is later."""
        if self._has_row:
            return no_rows(self.output)
        first = max(self.node.beginning, self._punctuated)
        return self._run(no_rows(self.schema), np.array([first], np.int64), idle=True)

    def _punctuate(self) -> None:
        """Holds the watermark back while the row of an aggregate without keys is missing: only the
        end of the input shows that the row exists from the beginning. For an unbounded input, the
        watermark does not wait."""
        if self._has_row or not self._ends:
            self._punctuated = self.watermark
            super()._punctuate()

    def advance(self, rows: State, times: Times) -> State:
        if not (self.node.keys or self._begun):
            rows, times = self._from_the_first_instant(rows, times)
        found = self._by_pieces(rows, times)
        if self.node.ends is not None and self.watermark >= self._next_end:
            self._close(self._key_rows[f"c{self.node.ends}"])
        return found

    def _by_pieces(self, rows: State, times: Times) -> State:
        stop = piece(self._values, times, 0)
        if stop == times.size:
            return self._run(rows, times)
        found, first = [], 0
        while first < times.size and not self._failed:
            stop = piece(self._values, times, first)
            found.append(self._run(take(rows, slice(first, stop)), times[first:stop]))
            first = stop
        return joined(found)

    _next_end = INFINITY  # the earliest end of the windows that have groups

    def _close(self, ends: npt.NDArray[Any]) -> None:
        """Drops the groups of windows that end at or below the watermark."""
        live = self._index.live
        over = ends[live].astype(np.int64) <= self.watermark
        self._groups["live"][live[over]] = 0
        self._groups["shown"][live[over]] = 0
        self._forget(live[over])
        left = ends[live[~over]]
        self._next_end = int(left.min()) if left.size else INFINITY

    def _from_the_first_instant(self, rows: State, times: Times) -> tuple[State, Times]:
        """Adds a change of weight 0 at the first instant of the input, if the input has no row
        there (a filter may have removed that row): an aggregate without keys has a row from that
        instant on."""
        first = self.node.since
        if first is None:
            first = min((int(w.first[0]) for w in self.windows), default=INFINITY)
        if first >= self.watermark:
            return rows, times
        self._begun = True
        if times.size and times[0] <= first:
            return rows, times
        return joined([_nothing(rows), rows]), np.concatenate([[first], times]).astype(np.int64)

    def _run(self, rows: State, times: Times, *, idle: bool = False) -> State:
        n = times.size
        if n == 0:
            return no_rows(self.output)
        if idle:
            rows = _nothing(rows)
        ids = self._owners(rows, n)
        weights = weights_of(rows, self.schema)
        self._make_room(int(np.abs(weights).sum()) + 2 * n + _SPARE)
        room = 2 * n
        out = {"out_owner": np.int64, "out_time": np.int64, "out_weight": np.int64}
        outputs = {name: np.empty(room, t) for name, t in out.items()}
        outputs |= {f"out_{n}": np.empty(room, stored_dtype(t)) for n, t in self.code.results}
        times = np.ascontiguousarray(times)
        outputs |= self._take_in_values(rows, times, weights, ids)
        self._bind(rows, times, weights, ids, outputs, room)
        status = call_address(int(self._module.op.address), int(self._words.ctypes.data), 0)
        if status != 0:
            self._failed, self._detail = True, self._word("detail")
            return no_rows(self.output)
        made = {n: a[: self._word("out")] for n, a in outputs.items() if n.startswith("out")}
        found = self._rows(made)
        seen = self._index.once(ids) if self.node.keys else ids[:1]
        if self.node.ends is not None:
            first = int(self._key_rows[f"c{self.node.ends}"][seen].min())
            self._next_end = min(self._next_end, first)
        self._forget(seen)
        return found

    def _take_in_values(self, rows: State, times: Times, weights: Times, ids: Times) -> State:
        """Updates the value logs; returns the arrays that the kernel reads from them."""
        if not self._values:
            return {}
        pairs = Pairs.of(times, ids, self._groups["live"].size)
        self._words[self.code.slots["pairs"]] = pairs.owner.size
        entered = times
        if self.node.entered is not None:
            entered = rows[f"c{self.node.entered}"].astype(np.int64)
        arrays: State = {}
        for values in self._values:
            arrays |= values.take_in(rows, ids, weights, entered, self._word("sequence"), pairs)
        for name, kind in self.code.logged:
            name = name.replace("logged", "res")
            arrays[name] = np.ascontiguousarray(arrays[name].astype(stored_dtype(kind), copy=False))
        for number in self.code.listed:
            self._words[self.code.slots[f"values of {number}"]] = arrays[f"values{number}"].size
        return arrays

    def _owners(self, rows: State, n: int) -> Times:
        """The group of each row."""
        if not self.node.keys:
            self._grow_groups(1)
            return np.zeros(n, np.int64)
        ids, fresh = self._index.ids(key_words(rows, range(self.node.keys), self._types, n))
        self._grow_groups(self._index.capacity)
        new = np.flatnonzero(fresh)
        for name, column in self._key_rows.items():
            column[ids[new]] = rows[name][new]
        return ids

    def _grow_groups(self, size: int) -> None:
        fill = {"back": -1, "separate": -1, "front": -1, "newest": -1}
        self._groups = {n: grown(a, size, fill.get(n, 0)) for n, a in self._groups.items()}
        self._results = {n: grown(a, size) for n, a in self._results.items()}
        self._logged = {n: grown(a, size) for n, a in self._logged.items()}
        for values in self._values:
            values.grow(size)
        self._key_rows = {n: grown(a, size) for n, a in self._key_rows.items()}

    def _make_room(self, wanted: int) -> None:
        old = self._entries["free"].size
        free = self._word("free top")
        if free >= wanted:
            return
        size = max(64, 2 * old, old + wanted - free)
        self._entries = {n: grown(a, size) for n, a in self._entries.items()}
        self._entries["free"][free : free + size - old] = np.arange(size - 1, old - 1, -1)
        self._words[self.code.slots["free top"]] = free + size - old

    def _word(self, name: str) -> int:
        return int(self._words[self.code.slots[name]])

    def _bind(
        self, rows: State, times: Times, weights: Times, ids: Times, outputs: State, room: int
    ) -> None:
        touched = np.empty(times.size, np.int64)
        arrays: dict[str, npt.NDArray[Any]] = {
            "times": times, "weights": weights, "owners": ids, "touched": touched,
            **self._groups, **self._results, **self._entries, **self._logged, **outputs,
        }  # fmt: skip
        for name in self.code.slots:  # in<c>, im<c>: data and mask of column c
            if name[:2] in ("in", "im") and name[2:].isdigit():
                part = "c" if name[:2] == "in" else "m"
                arrays[name] = np.ascontiguousarray(rows[part + name[2:]])
        if self.code.uses_rank:
            rank = self.workspace.dictionary.rank()
            arrays["rank"] = rank
            self._words[self.code.slots["codes"]] = rank.size
        for name, array in arrays.items():
            if name in self.code.slots:
                self._words[self.code.slots[name]] = array.ctypes.data
        numbers = {"n": times.size, "groups": self._groups["live"].size, "room": room}
        numbers["entries"] = self._entries["free"].size
        for name, value in numbers.items():
            self._words[self.code.slots[name]] = value
        self._keep = arrays

    def _rows(self, made: State) -> State:
        """The kernel's output arrays as rows of the output schema."""
        owners, keys = made["out_owner"], self.node.keys
        rows = take(self._key_rows, owners)
        for k in range(len(self.node.calls)):
            rows[f"c{keys + k}"] = made[f"out_r{k}"]
            rows[f"m{keys + k}"] = made[f"out_v{k}"]
        at = keys + len(self.node.calls)
        time = no_rows(self.output)[f"c{at}"].dtype
        rows[f"c{at}"] = made["out_time"].astype(time, copy=False)
        rows[f"c{at + 1}"] = made["out_weight"]
        rows[f"m{at}"] = rows[f"m{at + 1}"] = np.ones(owners.size, np.uint8)
        return rows

    def _forget(self, ids: Times) -> None:
        """Frees the entries, values and ids of those groups ``ids`` that have no rows."""
        if not self.node.keys:
            return
        gone = ids[self._groups["live"][ids] == 0]
        entries = np.concatenate([self._groups[name][gone] for name in ("back", "separate")])
        entries = entries[entries >= 0]
        top = self._word("free top")
        self._entries["free"][top : top + entries.size] = entries
        self._words[self.code.slots["free top"]] = top + entries.size
        self._groups["back"][gone] = self._groups["separate"][gone] = -1
        for values in self._values:
            values.forget(gone)
        self._groups["dirty"][gone] = 0
        self._index.give_back(gone)


def _nothing(rows: State) -> State:
    """One change of weight 0 whose columns are NULL."""
    return {name: np.zeros(1, column.dtype) for name, column in rows.items()}
