"""Windows without SLIDE: turn a stream into a relation, given by the changes of each instant.

A row with event time t enters at t. Under ``[RANGE r]`` the row leaves at the first instant after
t + r (``[NOW]`` is ``[RANGE 0]``). Under ``[ROWS n]`` it leaves when n later rows have entered, in
the order of event time, ties by arrival (CQL paper §6.2). As in STREAM, a RANGE window outputs the
rows that leave at an instant before the rows that enter; a ROWS window outputs them after.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np

from cql.base.window import MAX_EVENT_TIME, WindowKind
from cql.executor.kernels.morsel_layout import INFINITY
from cql.executor.kernels.relations.partitioned_rows import push_rows
from cql.executor.operators.relations.changelog_operator import ChangelogOperator, Times
from cql.executor.operators.relations.group_index import GroupIndex, grown, key_words
from cql.executor.operators.relations.row_batch import (
    append_part,
    count,
    joined,
    map_texts,
    nbytes,
    no_rows,
    rest,
    take,
)
from cql.executor.operators.stage.operator import CodeColumn, State, Workspace
from cql.planner.nodes.physical import RelationExec


def relation_operator(name: str, node: RelationExec, workspace: Workspace) -> RelationOperator:
    if node.window.kind is WindowKind.ROWS:
        kind = PartitionedRowsOperator if node.window.partition_by else RowsWindowOperator
        return kind(name, node, workspace)
    return RangeOperator(name, node, workspace)


class RelationOperator(ChangelogOperator):
    """``first``: the instant at which the first row entered. ``last``: the latest watermark of the
    input before its end."""

    def __init__(self, name: str, node: RelationExec, workspace: Workspace) -> None:
        assert node.window.wa is not None
        output = node.schema
        width = len(node.input.schema)
        super().__init__(name, node.input.schema, node.window.wa, output, width, workspace)
        self.window = node.window
        self.first: int | None = None
        self.last: int | None = None
        self.entered = self.left = 0  # rows
        self._weight = f"c{width + 1}"

    def counters(self) -> dict[str, int]:
        changes = {"entered": self.entered, "left": self.left, "waiting": self.waiting_rows}
        return {**super().counters(), **changes, "held": self.entered - self.left}

    def _advance(self) -> State:
        if self.watermark != INFINITY:
            self.last = self.watermark
        return super()._advance()

    def _changes(self, rows: State, times: Times, weights: Times) -> State:
        n, width = times.size, len(self.schema)
        if self.first is None and n:
            self.first = int(times[0])
        entered = int((weights > 0).sum())
        self.entered, self.left = self.entered + entered, self.left + n - entered
        dtype = no_rows(self.output)[f"c{width}"].dtype
        rows = dict(rows)
        rows[f"c{width}"], rows[f"m{width}"] = times.astype(dtype), np.ones(n, np.uint8)
        rows[self._weight], rows[f"m{width + 1}"] = weights, np.ones(n, np.uint8)
        return rows

    def _pushed(self, rows: State, times: Times, gone: State, pushers: Times) -> State:
        """The changes of a ROWS window: each entering row, and directly behind row ``pushers[i]``
        the row ``gone[i]`` that it pushes out."""
        places = np.concatenate([2 * np.arange(times.size), 2 * pushers + 1])
        order = np.argsort(places, kind="stable")
        weights = np.where(order < times.size, 1, -1)
        both = np.concatenate([times, times[pushers]])[order]
        return self._changes(take(joined([rows, gone]), order), both, weights)


class _PartsOperator(RelationOperator):
    """State: the rows of the window, in parts ordered by time."""

    def __init__(self, name: str, node: RelationExec, workspace: Workspace) -> None:
        super().__init__(name, node, workspace)
        self._live: deque[State] = deque()

    @property
    def held_bytes(self) -> int:
        return nbytes(list(self._live))

    def map_codes(self, change: Callable[[CodeColumn], CodeColumn]) -> None:
        super().map_codes(change)
        map_texts(self._live, self.schema, change)


class RangeOperator(_PartsOperator):
    """[RANGE r], [NOW] and [RANGE UNBOUNDED]."""

    def __init__(self, name: str, node: RelationExec, workspace: Workspace) -> None:
        super().__init__(name, node, workspace)
        unbounded = node.window.kind is WindowKind.UNBOUNDED
        self.stay = None if unbounded else min(node.window.range or 0, MAX_EVENT_TIME) + 1

    def advance(self, rows: State, times: Times) -> State:
        if self.stay is None:
            return self._changes(rows, times, np.ones(times.size, np.int64))
        if times.size:
            append_part(self._live, rows)
        gone = self._expired()
        ends = self._times(gone) + self.stay
        order = np.argsort(np.concatenate([ends, times]), kind="stable")
        both = np.concatenate([ends, times])[order]
        weights = np.where(order < ends.size, -1, 1)
        return self._changes(take(joined([gone, rows]), order), both, weights)

    def _expired(self) -> State:
        """Removes and returns the rows that left the window before the watermark."""
        assert self.stay is not None
        found: list[State] = []
        limit = self.watermark if self.watermark == INFINITY else self.watermark - self.stay
        while self._live:
            part = self._live.popleft()
            at = int(np.searchsorted(self._times(part), limit))
            if at:
                found.append(take(part, slice(0, at)))
            if at < count(part):
                self._live.appendleft(rest(part, at))
                break
        return joined(found) if found else no_rows(self.schema)


class RowsWindowOperator(_PartsOperator):
    """[ROWS n]."""

    def advance(self, rows: State, times: Times) -> State:
        most, n = self.window.rows or 0, times.size
        held = sum(map(count, self._live))
        if n:
            self._live.append(rows)
        leaving = max(0, held + n - most)
        gone = self._oldest(leaving)
        # row i pushes out the row that entered ``most`` rows before it
        return self._pushed(rows, times, gone, np.arange(n - leaving, n))

    def _oldest(self, n: int) -> State:
        """Removes and returns the oldest ``n`` rows."""
        found: list[State] = []
        while n:
            part = self._live.popleft()
            found.append(take(part, slice(0, n)))
            if count(part) > n:
                self._live.appendleft(rest(part, n))
                break
            n -= count(part)
        return joined(found) if found else no_rows(self.schema)


class PartitionedRowsOperator(RelationOperator):
    """[PARTITION BY k ROWS n]. State: the last n rows of each key, in slots linked to one list per
    key."""

    def __init__(self, name: str, node: RelationExec, workspace: Workspace) -> None:
        super().__init__(name, node, workspace)
        self._by = node.window.partition_by
        self._types = [self.schema[c].type for c in self._by]
        self._index = GroupIndex(self._types)
        self._slots: State = no_rows(self.schema)
        self._free = np.zeros(0, np.int64)
        self._following = np.zeros(0, np.int64)
        self._oldest, self._newest, self._held = (np.zeros(0, np.int64) for _ in range(3))

    @property
    def held_bytes(self) -> int:
        lists = (self._free, self._following, self._oldest, self._newest, self._held)
        return nbytes([self._slots]) + sum(a.nbytes for a in lists) + self._index.nbytes

    def map_codes(self, change: Callable[[CodeColumn], CodeColumn]) -> None:
        super().map_codes(change)
        map_texts([self._slots], self.schema, change)
        self._index.map_codes(change)

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
