"""The rows of an update queue: their columns, at the places that the queue gives them, and the
numbers of their keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from cql.base.model import Schema
from cql.executor.kernels.updates import layout
from cql.executor.morsel.morsel import Words, stored_dtype
from cql.executor.operators.relations.group_index import GroupIndex, key_words
from cql.executor.operators.updates.queue_state import QueueState
from cql.executor.state.codes import Codes, not_null
from cql.executor.state.stateful import Stateful
from cql.executor.state.store import Account, Role, Snapshot, StateStore

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.uint8]
ItemsOf: TypeAlias = Callable[[Sequence[Array], Sequence[Mask | None]], Words]
#: The number of keys that are always remembered.
_KEYS = 4096


class UpdateRows(Stateful):
    """The rows of ``queue``. ``keys``: the columns of the update key; NULL equals NULL.
    ``refresh``: gives the items of REFRESH of keys with these columns (data, masks).

    State: the queue, an index of the keys, and per column ``c<i>`` and, if it may be NULL,
    ``m<i>``, indexed by place. Keys without a row that waits are forgotten when there are many."""

    def __init__(
        self,
        name: str,
        schema: Schema,
        keys: Sequence[int],
        queue: QueueState,
        account: Account,
        refresh: ItemsOf | None = None,
    ) -> None:
        self.schema, self._keys, self.queue = schema, list(keys), queue
        self._refresh = refresh
        self._store = StateStore(name, account)
        self._index = GroupIndex([schema[c].type for c in keys], name, account)
        self._remembered = 2 * _KEYS

    def take(
        self, data: Sequence[Array], masks: Sequence[Mask | None], times: Words, now: int
    ) -> None:
        """Enqueues rows with these columns and event times, which arrive at ``now``."""
        if len(times) == 0:
            return
        self._store_rows(data, masks, self.queue.enqueue(self._ids(data, masks), times, now))

    def _store_rows(
        self, data: Sequence[Array], masks: Sequence[Mask | None], places: Words
    ) -> None:
        """Copies rows to their places; -1: the queue does not keep the row."""
        kept = np.flatnonzero(places >= 0)
        places = places[kept]
        self._make_room()
        columns = self._store.arrays
        for i, f in enumerate(self.schema):
            # Of several rows at one place the last one stays: assignment goes in order.
            columns[f"c{i}"][places] = data[i][kept]
            if f.nullable:
                mask = masks[i]
                columns[f"m{i}"][places] = 1 if mask is None else mask[kept]

    def give(self, limit: int, now: int) -> tuple[list[Array], list[Mask | None], int]:
        """Dequeues at most ``limit`` rows: their columns, masks (None: no NULL), and number."""
        places = self.queue.dequeue(limit, now)
        return *self._read(places), len(places)

    def _read(self, places: Words) -> tuple[list[Array], list[Mask | None]]:
        """The rows at ``places``: columns and masks."""
        columns = self._store.arrays
        data: list[Array] = []
        masks: list[Mask | None] = []
        for i, f in enumerate(self.schema):
            column = columns.get(f"c{i}")
            data.append(np.empty(0, self._dtype(i)) if column is None else column[places])
            mask = columns.get(f"m{i}")
            given = None if mask is None or not f.nullable else mask[places]
            masks.append(None if given is None or given.all() else given)
        return data, masks

    def deliver(self, updates: int, now: int) -> None:
        """The results of the next ``updates`` have been delivered."""
        self.queue.deliver(updates, now)
        self._forget_some()

    def _forget_some(self) -> None:
        if self._index.capacity - self._index.free > self._remembered:
            self._forget_idle()

    def release(self, now: int, *, ended: bool = False) -> None:
        """Makes the rows of the keys that are due ready; of all, if the input has ``ended``."""
        self.queue.release(now, ended=ended)

    @property
    def parts(self) -> Sequence[Stateful]:
        return self.queue.store, self._store, self._index

    @property
    def is_ready(self) -> bool:
        """Whether there is a row to give."""
        return int(self.queue.words[layout.HEAD]) >= 0

    @property
    def held(self) -> int:
        """Rows that wait."""
        return int(self.queue.words[layout.RESIDENTS]) + self.resting

    @property
    def resting(self) -> int:
        """Rows that wait until their keys are due."""
        return int(self.queue.words[layout.RESTING])

    def codes(self) -> Iterator[Codes]:
        yield from super().codes()
        used, arrays = self.queue.held_rows(), self._store.arrays
        for i, f in enumerate(self.schema):
            if f.type.is_coded and len(used):
                yield not_null(arrays[f"c{i}"], arrays.get(f"m{i}"), used)

    # -- snapshots -------------------------------------------------------------------------------

    def snapshot(self, now: int) -> Snapshot:
        """The queue, the keys, and the rows that it holds at ``now``."""
        arrays = {name: self._held_of(name) for name in self._store.arrays}
        parts = {"queue": self.queue.snapshot(now), "keys": self._index.snapshot()}
        return Snapshot(arrays, np.array([self._remembered], np.int64), parts)

    def _held_of(self, name: str) -> Array:
        """A copy of an array of the store, with 0 at the places that hold nothing."""
        return only(self._store.arrays[name], self.queue.held_rows())

    def restore(self, saved: Snapshot, now: int) -> None:
        """Continues at ``now`` with the state of a queue of the same declaration. The codes are
        those of the snapshot: ``map_codes`` follows."""
        self.queue.restore(saved.parts["queue"], now)
        words = np.zeros(1, np.int64)
        self._store.restore(saved, words)
        self._remembered = int(words[0])
        self._index.restore(saved.parts["keys"])

    # -- rows and keys ---------------------------------------------------------------------------

    def _ids(self, data: Sequence[Array], masks: Sequence[Mask | None]) -> Words:
        """The number of the key of each row."""
        n = len(data[0])
        if not self._keys:
            return np.zeros(n, np.int64)
        ones = np.ones(n, np.uint8)
        rows: dict[str, Array] = {f"c{c}": data[c] for c in self._keys}
        for c in self._keys:
            mask = masks[c]
            rows[f"m{c}"] = ones if mask is None else mask
        ids, fresh = self._index.ids(key_words(rows, self._keys, self._index.types, n))
        new = np.flatnonzero(fresh)
        if self._refresh is not None and len(new):
            known = [masks[c] for c in self._keys]
            self.queue.refresh_keys(
                ids[new],
                self._refresh(
                    [data[c][new] for c in self._keys],
                    [None if mask is None else mask[new] for mask in known],
                ),
            )
        return ids

    def _dtype(self, column: int) -> np.dtype[Any]:
        return np.dtype(stored_dtype(self.schema[column].type.storage))

    def _make_room(self) -> None:
        """Gives the columns a place for each row of the queue."""
        places = self.queue.rows
        for i, f in enumerate(self.schema):
            if len(self._store.arrays.get(f"c{i}", ())) < places:
                self._store.resize(f"c{i}", places, self._dtype(i), Role.STATE, clears=False)
                if f.nullable:
                    self._store.resize(f"m{i}", places, np.uint8, Role.STATE, clears=False)

    def _forget_idle(self) -> None:
        """Forgets keys of which nothing waits and nothing is pending, those first whose last update
        is longest ago; as many keys as wait at most, and some more, are remembered."""
        idle = self.queue.idle()
        live = self._index.capacity - self._index.free
        gone = idle[: max(live - max(_KEYS, 4 * self.held), 0)]
        self.queue.forget_keys(gone)
        self._index.give_back(gone)
        self._remembered = 2 * max(_KEYS, live - len(gone))


def only(values: Array, places: Words) -> Array:
    """A copy of ``values`` with 0 at all other places than ``places``."""
    kept = np.zeros_like(values)
    kept[places] = values[places]
    return kept
