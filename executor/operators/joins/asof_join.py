"""ASOF join: each left row with the nearest right row of its key, earlier or later.

The rows of both sides come in any order. A left row leaves once, by the watermarks of both inputs,
no later row can change its answer. Left rows leave in the order of time.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from cql.base.types import DataType
from cql.executor.kernels.joins.asof import nearest
from cql.executor.kernels.morsel_layout import END_OF_INPUT, IDLE, INFINITY, NEVER, PORT, ROWS
from cql.executor.morsel.morsel import Morsel
from cql.executor.operators.relations.changelog_operator import Times, Waiting, punctuations_of
from cql.executor.operators.relations.group_index import GroupIndex, grown, key_words
from cql.executor.operators.relations.row_batch import (
    RowsOperator,
    count,
    map_texts,
    nbytes,
    no_rows,
    rows_of,
    take,
)
from cql.executor.operators.stage.operator import CodeColumn, State, Workspace
from cql.planner.nodes.physical import Physical, sources
from cql.planner.nodes.physical_join import AsofJoinExec

Flags = npt.NDArray[np.bool_]
#: The smallest number of keys at which keys outside the tolerance are removed.
_KEYS = 1 << 10


class Side:
    """An input. ``watermark``: its own or, while the input is ``idle``, that of the other."""

    def __init__(self, node: Physical, time: int, keys: list[int]) -> None:
        self.name = ", ".join(s.name for s in sources(node))
        self.schema = node.schema
        self.time = time
        self.keys = keys
        self.types: list[DataType] = [node.schema[c].type for c in keys]
        self.waiting = Waiting(node.schema, time)
        self.watermark = NEVER
        self.idle = self.ended = False
        self.too_late = 0

    def receive(self, morsel: Morsel) -> None:
        for attribute, value in punctuations_of(morsel):
            if attribute == END_OF_INPUT:
                self.ended, self.watermark = True, INFINITY
            elif attribute == IDLE:
                self.idle = value != 0
            elif attribute == self.time:
                self.watermark = max(self.watermark, value)

    def without_key(self, rows: State) -> Flags:
        found = np.zeros(count(rows), bool)
        for c in (self.time, *self.keys):
            found |= rows[f"m{c}"] == 0
        return found

    def words(self, rows: State) -> Times:
        return key_words(rows, self.keys, self.types, count(rows))


class AsofJoinOperator(RowsOperator):
    """State: the waiting rows of both sides. The counter ``null_keys`` is the number of right rows
    without a key or time; left rows without a key or time leave without a partner."""

    def __init__(self, name: str, node: AsofJoinExec, workspace: Workspace) -> None:
        super().__init__(name, node.schema, workspace)
        self.node = node
        self.left = Side(node.left, node.times[0], [a for a, _ in node.keys])
        self.right = Side(node.right, node.times[1], [b for _, b in node.keys])
        at = node.columns.index(node.times[0]) if node.times[0] in node.columns else None
        self._time_out = at
        self._punctuated = NEVER
        self._idling = False
        self._null_keys = self._left_rows = self._unmatched = self._taken = 0

    # -- input -------------------------------------------------------------------------------------

    def take_in(self, morsel: Morsel) -> int | None:
        side = (self.left, self.right)[int(morsel.words[PORT])]
        if morsel.words[ROWS] > 0:
            self._take(side, rows_of(morsel, side.schema))
        before = self.left.watermark, self.right.watermark
        side.receive(morsel)
        self._wait_for_no_idle()
        self.ready = no_rows(self.output)
        if (self.left.watermark, self.right.watermark) != before:
            self.ready = self.release()
            if self.left.ended and not self.left.waiting.rows:
                self.right.waiting.parts = []  # no left row needs them any more
                self.forget_all()
        self._punctuate()
        return None

    def _take(self, side: Side, rows: State) -> None:
        if side.watermark > NEVER:
            late = side.waiting.times(rows) < side.watermark
            if late.any():  # below the bound that the side got while it was idle
                side.too_late += int(late.sum())
                rows = take(rows, ~late)
        without = side.without_key(rows)
        if without.any():
            if side is self.right:
                self._null_keys += int(without.sum())
                rows = take(rows, ~without)
            else:  # a left row without a time is sorted first
                times = rows[f"c{side.time}"]
                missing = rows[f"m{side.time}"] == 0
                times[missing] = np.iinfo(times.dtype).min
        if side is self.right:
            self._taken += count(rows)
            if self.left.ended and not self.left.waiting.rows:
                return
        if count(rows):
            side.waiting.add(rows)

    def _wait_for_no_idle(self) -> None:
        left, right, shift = self.left, self.right, self.node.shift
        if left.ended or right.ended or left.idle == right.idle:
            return
        if right.idle:
            right.watermark = max(right.watermark, _moved(left.watermark, shift))
        else:
            left.watermark = max(left.watermark, _moved(right.watermark, -shift))

    def _punctuate(self) -> None:
        ended = self.left.ended and self.right.ended
        released = self.released_until()
        if self._time_out is not None and released > self._punctuated and not ended:
            self._punctuated = released
            self.punctuations.append((self._time_out, released))
        if ended:
            self.punctuations.append((END_OF_INPUT, INFINITY))
        idling = all(s.idle or s.ended for s in (self.left, self.right)) and not ended
        if idling != self._idling:
            self._idling = idling
            self.punctuations.append((IDLE, int(idling)))

    # -- output ------------------------------------------------------------------------------------

    @abstractmethod
    def release(self) -> State:
        """The output rows that the bounds of both sides allow now."""

    @abstractmethod
    def released_until(self) -> int:
        """The time before which all left rows have left, and none follows."""

    def forget_all(self) -> None:
        """Drops the stored right rows; called when no left row needs them any more."""

    def pairs(self, left: State, right: State, found: Times) -> State:
        """The output rows: each left row with the right row number ``found`` (-1: none)."""
        self._left_rows += count(left)
        met = found >= 0
        self._unmatched += count(left) - int(met.sum())
        if not self.node.pads and not met.all():
            left, found, met = take(left, met), found[met], met[met]
        width, rows = len(self.left.schema), no_rows(self.output)
        for k, c in enumerate(self.node.columns):
            if c < width:
                rows[f"c{k}"], rows[f"m{k}"] = left[f"c{c}"], left[f"m{c}"]
                continue
            values, valid = right[f"c{c - width}"], right[f"m{c - width}"]
            if not values.size:
                values, valid = np.zeros(1, values.dtype), np.zeros(1, np.uint8)
            place = np.maximum(found, 0)
            rows[f"c{k}"] = values[place]
            rows[f"m{k}"] = np.where(met, valid[place], 0).astype(np.uint8)
        return rows

    # -- called by the runtime ---------------------------------------------------------------------

    @property
    def held_right(self) -> int:
        return self.right.waiting.rows

    @property
    def held_bytes(self) -> int:
        """Bytes of state other than the waiting and the ready rows."""
        return 0

    @property
    def state_bytes(self) -> int:
        waiting = [*self.left.waiting.parts, *self.right.waiting.parts]
        return nbytes([*waiting, self.ready]) + self.held_bytes

    def counters(self) -> dict[str, int]:
        held = self.held_right
        return {
            **super().counters(),
            "left_rows": self._left_rows,
            "unmatched": self._unmatched,
            "held_left": self.left.waiting.rows,
            "held_right": held,
            "purged": self._taken - held,
            "null_keys": self._null_keys,
            "too_late_l": self.left.too_late,
            "too_late_r": self.right.too_late,
        }

    def too_late(self) -> list[tuple[str, int]]:
        """For each port, the number of its rows that arrived below the bound that the port got
        while it was idle."""
        return [(side.name, side.too_late) for side in (self.left, self.right)]

    def map_codes(self, change: Callable[[CodeColumn], CodeColumn]) -> None:
        self.left.waiting.map_codes(change)
        self.right.waiting.map_codes(change)
        map_texts([self.ready], self.output, change)


class BackwardJoinOperator(AsofJoinOperator):
    """The nearest right row at the left row's time or before it. Of the right rows before all left
    rows that can still come, only the latest row of each key stays. State, by key id: this row
    (``_latest``) and its time (``_latest_times``)."""

    def __init__(self, name: str, node: AsofJoinExec, workspace: Workspace) -> None:
        super().__init__(name, node, workspace)
        self._index = GroupIndex(self.right.types)
        self._latest = no_rows(self.right.schema)
        self._latest_times = np.zeros(0, np.int64)
        self._there = np.zeros(0, bool)
        self._last = np.zeros(0, np.int64)
        self._watermark = NEVER
        self._look_at = _KEYS

    def released_until(self) -> int:
        return self._watermark

    def release(self) -> State:
        shift = self.node.shift
        released = min(self.left.watermark, _moved(self.right.watermark, -shift))
        if released <= self._watermark:
            return no_rows(self.output)
        self._watermark = released
        left, right = (
            self.left.waiting.before(released),
            self.right.waiting.before(_moved(released, shift)),
        )
        left_times, right_times = self.left.waiting.times(left), self.right.waiting.times(right)
        right_times = right_times - shift
        right_ids = self._ids(right)
        left_ids = self._index.found(self.left.words(left))
        left_ids[self.left.without_key(left)] = -1
        found = np.empty(left_ids.size, np.int64)
        nearest(
            np.ascontiguousarray(left_times), left_ids, np.ascontiguousarray(right_times),
            right_ids, False, self._last, found,
        )  # fmt: skip
        rows = self._paired(left, left_times, left_ids, right, right_times, found)
        self._keep_latest(right, right_times, right_ids)
        self._forget()
        return rows

    def _ids(self, right: State) -> Times:
        ids, fresh = self._index.ids(self.right.words(right))
        size = self._index.capacity
        self._latest = {name: grown(column, size) for name, column in self._latest.items()}
        self._latest_times = grown(self._latest_times, size)
        self._there, self._last = grown(self._there, size), grown(self._last, size, -1)
        self._there[ids[np.flatnonzero(fresh)]] = False
        return ids

    def _paired(
        self, left: State, left_times: Times, left_ids: Times, right: State, right_times: Times,
        found: Times,
    ) -> State:  # fmt: skip
        """The output rows. ``found`` numbers the right rows of this release; the latest rows of
        earlier releases are appended behind them."""
        new = count(right)
        earlier = np.flatnonzero((found < 0) & (left_ids >= 0))
        earlier = earlier[self._there[left_ids[earlier]]]
        ids = left_ids[earlier]
        if ids.size:
            found[earlier] = new + np.arange(ids.size)
            right = {
                name: np.concatenate([a, self._latest[name][ids]]) for name, a in right.items()
            }
            right_times = np.concatenate([right_times, self._latest_times[ids]])
        if self.node.tolerance is not None:
            met = np.flatnonzero(found >= 0)
            far = left_times[met] - right_times[found[met]] > self.node.tolerance
            found[met[far]] = -1
        return self.pairs(left, right, found)

    def _keep_latest(self, right: State, right_times: Times, right_ids: Times) -> None:
        touched = self._index.once(right_ids)
        last = self._last[touched]
        for name, column in self._latest.items():
            column[touched] = right[name][last]
        self._latest_times[touched] = right_times[last]
        self._there[touched] = True
        self._last[touched] = -1

    def _forget(self) -> None:
        """Removes keys whose latest row is too old for every left row that can still come."""
        if self.node.tolerance is None or self._index.capacity < self._look_at:
            return
        live = self._index.live
        if live.size >= self._look_at and self._watermark != INFINITY:
            old = self._latest_times[live] < self._watermark - self.node.tolerance
            self._index.give_back(live[old])
            self._there[live[old]] = False
            self._look_at = max(_KEYS, 2 * (live.size - int(old.sum())))

    def forget_all(self) -> None:
        live = self._index.live
        self._index.give_back(live)
        self._there[live] = False

    @property
    def held_right(self) -> int:
        return super().held_right + int(self._index.live.size)

    @property
    def held_bytes(self) -> int:
        beside = self._latest_times.nbytes + self._there.nbytes + self._last.nbytes
        return self._index.nbytes + nbytes([self._latest]) + beside

    def map_codes(self, change: Callable[[CodeColumn], CodeColumn]) -> None:
        super().map_codes(change)
        self._index.map_codes(change)
        live = self._index.live
        for i, f in enumerate(self.right.schema):
            if f.type.is_coded:
                held = live[self._latest[f"m{i}"][live] != 0]
                self._latest[f"c{i}"][held] = change(self._latest[f"c{i}"][held])


class ForwardJoinOperator(AsofJoinOperator):
    """The nearest right row at the left row's time or after it. The operator drops right rows
    before all left rows that wait or can still come."""

    def __init__(self, name: str, node: AsofJoinExec, workspace: Workspace) -> None:
        super().__init__(name, node, workspace)
        self._until = NEVER

    def released_until(self) -> int:
        return self._until

    def release(self) -> State:
        shift = self.node.shift
        left, right = (
            self.left.waiting.before(self.left.watermark),
            self.right.waiting.before(self.right.watermark),
        )
        left_times = np.ascontiguousarray(self.left.waiting.times(left))
        right_times = self.right.waiting.times(right) - shift
        found = self._found(left, left_times, right, right_times)
        leave, until = count(left), self.left.watermark
        final = found >= 0
        complete = _moved(self.right.watermark, -shift)
        if complete != INFINITY:
            final |= self.left.without_key(left)
            if self.node.tolerance is not None and complete != NEVER:
                final |= left_times < complete - self.node.tolerance
            if not final.all():
                leave = int(np.argmin(final))
                until = int(left_times[leave])
        self._until = max(self._until, until)
        self.left.waiting.put_back(take(left, slice(leave, None)))
        reached = (
            int(np.searchsorted(right_times, until)) if until != INFINITY else right_times.size
        )
        self.right.waiting.put_back(take(right, slice(reached, None)))
        found = found[:leave]
        if self.node.tolerance is not None:
            met = np.flatnonzero(found >= 0)
            far = right_times[found[met]] - left_times[met] > self.node.tolerance
            found[met[far]] = -1
        return self.pairs(take(left, slice(0, leave)), right, found)

    def _found(self, left: State, left_times: Times, right: State, right_times: Times) -> Times:
        """Searches backward over reversed rows with negated times. Of right rows with equal times,
        the last to arrive is then the first."""
        index = GroupIndex(self.right.types)
        right_ids, _ = index.ids(self.right.words(right))
        left_ids = index.found(self.left.words(left))
        left_ids[self.left.without_key(left)] = -1
        found = np.empty(left_ids.size, np.int64)
        last = np.full(index.capacity, -1, np.int64)
        nearest(
            -left_times[::-1], np.ascontiguousarray(left_ids[::-1]), -right_times[::-1],
            np.ascontiguousarray(right_ids[::-1]), True, last, found,
        )  # fmt: skip
        found = found[::-1].copy()
        found[found >= 0] = right_times.size - 1 - found[found >= 0]
        return found


def asof_operator(name: str, node: AsofJoinExec, workspace: Workspace) -> AsofJoinOperator:
    kind = BackwardJoinOperator if node.backward else ForwardJoinOperator
    return kind(name, node, workspace)


def _moved(time: int, by: int) -> int:
    return time if time in (NEVER, INFINITY) else time + by
