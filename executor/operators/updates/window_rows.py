"""The rows of an update queue in which windows are updates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cql.base.model import Schema
from cql.executor.kernels.updates import layout
from cql.executor.kernels.updates.windows import CLOSES
from cql.executor.morsel.morsel import Words
from cql.executor.operators.updates.queue_state import QueueState
from cql.executor.operators.updates.update_rows import Array, Mask, UpdateRows, only
from cql.executor.state.codes import Codes, not_null
from cql.executor.state.store import Account, Role


@dataclass(frozen=True, slots=True)
class Given:
    """Rows of committed windows, and the ends of windows between them. ``data`` and ``masks``: the
    columns of the rows. ``starts``: of the window of each row. The other arrays have an entry per
    row and per end: ``items`` tells the rows, ``closes`` which entry ends the window that begins at
    ``ends``, ``owners`` the numbers of the update keys. ``keys`` and ``key_mask`` are the values of
    these keys, or ``owners`` if keys are known by their numbers."""

    data: list[Array]
    masks: list[Mask | None]
    starts: Words
    items: npt.NDArray[np.bool_]
    closes: npt.NDArray[np.bool_]
    ends: Words
    keys: Array
    key_mask: Mask | None
    owners: Words


class WindowRows(UpdateRows):
    """``value``: the column whose values keys are known by; None: they are known by their numbers.
    State beside that of ``UpdateRows``: ``key`` and ``key mask``, these values."""

    def __init__(
        self,
        name: str,
        schema: Schema,
        keys: Sequence[int],
        queue: QueueState,
        account: Account,
        value: int | None,
    ) -> None:
        super().__init__(name, schema, keys, queue, account)
        self._value = value
        self._make_room_for_keys()

    def take_rows(
        self,
        data: Sequence[Array],
        masks: Sequence[Mask | None],
        times: Words,
        watermarks: Words,
        now: int,
    ) -> None:
        """Enqueues rows with these columns and event times; ``watermarks``: before each row."""
        if len(times) == 0:
            return
        ids = self._ids(data, masks)
        self._note_keys(ids, data, masks)
        places = self.queue.enqueue_rows(ids, times, watermarks, now)
        self._store_rows(data, masks, places)

    def give_rows(self, limit: int, now: int) -> Given:
        """The next rows of committed windows and ends of windows, at most ``limit``."""
        served = self.queue.serve(limit, now)
        items = served.rows >= 0
        data, masks = self._read(served.rows[items])
        self.queue.forget(served.keys)
        keys, mask = self._named(served.keys)
        return Given(
            data,
            masks,
            served.starts[items],
            items,
            (served.marks & CLOSES) != 0,
            served.starts,
            keys,
            mask,
            served.keys,
        )

    def _named(self, owners: Words) -> tuple[Array, Mask | None]:
        """What the keys ``owners`` are known by (``Given``)."""
        if self._value is None:
            return owners, None
        arrays = self._store.arrays
        mask = arrays["key mask"][owners]
        return arrays["key"][owners], None if mask.all() else mask

    def deliver_keys(self, keys: Words, now: int) -> None:
        """The results of windows of ``keys`` have been delivered."""
        self.queue.deliver_windows(keys, now)
        self._forget_some()

    @property
    def is_ready(self) -> bool:
        q = self.queue.words
        return int(q[layout.HEAD]) >= 0 or int(q[layout.READY_HEAD]) >= 0

    def codes(self) -> Iterator[Codes]:
        yield from super().codes()
        if self._value is not None and self.schema[self._value].type.is_coded:
            arrays = self._store.arrays
            yield not_null(arrays["key"], arrays["key mask"], self._index.live)

    def _held_of(self, name: str) -> Array:
        if name in ("key", "key mask"):
            return only(self._store.arrays[name], self._index.live)
        return super()._held_of(name)

    def _note_keys(self, ids: Words, data: Sequence[Array], masks: Sequence[Mask | None]) -> None:
        """Keeps the value of each key, for the end of a window that has no row left."""
        if self._value is None:
            return
        arrays = self._store.arrays
        if len(arrays["key"]) < self._index.capacity:
            self._make_room_for_keys()
        mask: Any = masks[self._value]
        arrays["key"][ids] = data[self._value]
        arrays["key mask"][ids] = 1 if mask is None else mask

    def _make_room_for_keys(self) -> None:
        if self._value is None:
            return
        room = self._index.capacity
        self._store.resize("key", room, self._dtype(self._value), Role.STATE, clears=False)
        self._store.resize("key mask", room, np.uint8, Role.STATE, clears=False)
