"""Windows without SLIDE: turn a stream into a relation, given by the changes of each instant.

A row with event time t enters at t. Under ``[RANGE r]`` the row leaves at the first instant after
t + r (``[NOW]`` is ``[RANGE 0]``). Under ``[ROWS n]`` it leaves when n later rows have entered, in
the order of event time, ties by arrival (CQL paper §6.2). As in STREAM, a RANGE window outputs the
rows that leave at an instant before the rows that enter; a ROWS window outputs them after.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import numpy as np

from cql.base.window import MAX_EVENT_TIME, WindowKind
from cql.executor.kernels.morsel_layout import INFINITY, NEVER
from cql.executor.kernels.relations import frontier
from cql.executor.kernels.relations import window_relation as kernel
from cql.executor.kernels.relations.partitioned_rows import push_rows
from cql.executor.morsel.morsel import value_bytes
from cql.executor.operators.relations.changelog_operator import ChangelogOperator, Times
from cql.executor.operators.relations.frontier import FrontierOperator
from cql.executor.operators.relations.group_index import GroupIndex, grown, key_words
from cql.executor.operators.relations.row_batch import (
    count,
    joined,
    map_texts,
    nbytes,
    no_rows,
    take,
)
from cql.executor.operators.stage.operator import CodeColumn, Operator, State, Workspace
from cql.planner.nodes.physical import RelationExec


@runtime_checkable
class RelationOperator(Operator, Protocol):
    """A running window without SLIDE."""

    @property
    def first(self) -> int | None:
        """The instant at which the first row entered."""

    @property
    def last(self) -> int | None:
        """The latest watermark of the input before its end."""


def relation_operator(name: str, node: RelationExec, workspace: Workspace) -> RelationOperator:
    if node.window.kind is WindowKind.ROWS and node.window.partition_by:
        return PartitionedRowsOperator(name, node, workspace)
    return WindowRelationOperator(name, node, workspace)


class WindowRelationOperator(FrontierOperator):
    """[RANGE r], [NOW], [RANGE UNBOUNDED] and [ROWS n] (``kernels.relations.window_relation``).
    State: the rows of the window and those that wait."""

    def __init__(self, name: str, node: RelationExec, workspace: Workspace) -> None:
        schema, window = node.input.schema, node.window
        assert window.wa is not None
        super().__init__(name, schema, window.wa, len(schema), kernel.END, workspace)
        d = self.descriptor
        d[kernel.TIME_BYTES] = value_bytes(node.schema[len(schema)].type)
        if window.kind is WindowKind.ROWS:
            d[[kernel.KIND, kernel.MOST]] = kernel.OF_ROWS, window.rows or 0
        elif window.kind is not WindowKind.UNBOUNDED:
            stay = min(window.range or 0, MAX_EVENT_TIME) + 1
            d[[kernel.KIND, kernel.STAY]] = kernel.OF_RANGE, stay
        self.address = int(kernel.window_relation.address)

    @property
    def first(self) -> int | None:
        d = self.descriptor
        return int(d[kernel.FIRST]) if d[kernel.ENTERED] else None

    @property
    def last(self) -> int | None:
        last = int(self.descriptor[frontier.LAST])
        return None if last == NEVER else last

    def counters(self) -> dict[str, int]:
        d = self.descriptor
        changes = {"entered": int(d[kernel.ENTERED]), "left": int(d[kernel.LEFT])}
        waiting = int(d[frontier.TAIL] - d[frontier.READY])
        held = changes["entered"] - changes["left"]
        return {**super().counters(), **changes, "waiting": waiting, "held": held}


class PartitionedRowsOperator(ChangelogOperator):
    """[PARTITION BY k ROWS n]. State: the last n rows of each key, in slots linked to one list per
    key."""

    def __init__(self, name: str, node: RelationExec, workspace: Workspace) -> None:
        assert node.window.wa is not None
        output, width = node.schema, len(node.input.schema)
        super().__init__(name, node.input.schema, node.window.wa, output, width, workspace)
        self.window = node.window
        self.first: int | None = None
        self.last: int | None = None
        self.entered = self.left = 0  # rows
        self._by = node.window.partition_by
        self._types = [self.schema[c].type for c in self._by]
        self._index = GroupIndex(self._types)
        self._slots: State = no_rows(self.schema)
        self._free = np.zeros(0, np.int64)
        self._following = np.zeros(0, np.int64)
        self._oldest, self._newest, self._held = (np.zeros(0, np.int64) for _ in range(3))

    def counters(self) -> dict[str, int]:
        changes = {"entered": self.entered, "left": self.left, "waiting": self.waiting_rows}
        return {**super().counters(), **changes, "held": self.entered - self.left}

    @property
    def held_bytes(self) -> int:
        lists = (self._free, self._following, self._oldest, self._newest, self._held)
        return nbytes([self._slots]) + sum(a.nbytes for a in lists) + self._index.nbytes

    def map_codes(self, change: Callable[[CodeColumn], CodeColumn]) -> None:
        super().map_codes(change)
        map_texts([self._slots], self.schema, change)
        self._index.map_codes(change)

    def _advance(self) -> State:
        if self.watermark != INFINITY:
            self.last = self.watermark
        return super()._advance()

    def advance(self, rows: State, times: Times) -> State:
        n = times.size
        ids, _ = self._index.ids(key_words(rows, self._by, self._types, n))
        keys = self._index.capacity
        self._oldest, self._newest = grown(self._oldest, keys), grown(self._newest, keys)
        self._held = grown(self._held, keys)
        slots = self._take_slots(n)
        for name, column in self._slots.items():
            column[slots] = rows[name]
        left = np.empty(n, np.int64)
        push_rows(
            self.window.rows or 0, ids, slots, self._oldest, self._newest, self._held,
            self._following, left,
        )  # fmt: skip
        pushers = np.flatnonzero(left >= 0)
        gone = take(self._slots, left[pushers])
        self._free = np.concatenate([self._free, left[pushers]])
        return self._pushed(rows, times, gone, pushers)

    def _pushed(self, rows: State, times: Times, gone: State, pushers: Times) -> State:
        """The changes: each entering row, and directly behind row ``pushers[i]`` the row
        ``gone[i]`` that it pushes out."""
        n, width = times.size, len(self.schema)
        if self.first is None and n:
            self.first = int(times[0])
        self.entered, self.left = self.entered + n, self.left + pushers.size
        places = np.concatenate([2 * np.arange(n), 2 * pushers + 1])
        order = np.argsort(places, kind="stable")
        both = dict(take(joined([rows, gone]), order))
        dtype = no_rows(self.output)[f"c{width}"].dtype
        both[f"c{width}"] = np.concatenate([times, times[pushers]])[order].astype(dtype)
        both[f"c{width + 1}"] = np.where(order < n, 1, -1)
        both[f"m{width}"] = both[f"m{width + 1}"] = np.ones(order.size, np.uint8)
        return both

    def _take_slots(self, n: int) -> Times:
        if self._free.size < n:
            old = count(self._slots)
            new = max(64, 2 * old, old + n)
            self._slots = {name: grown(c, new) for name, c in self._slots.items()}
            self._following = grown(self._following, new)
            self._free = np.concatenate([self._free, np.arange(new - 1, old - 1, -1)])
        slots = self._free[self._free.size - n :]
        self._free = self._free[: self._free.size - n]
        return slots
