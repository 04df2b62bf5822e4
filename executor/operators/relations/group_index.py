"""Ids for groups of rows with equal key columns: NULL = NULL, NaN = NaN, -0.0 = 0.0."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cql.base.types import DataType
from cql.executor.kernels.lib import key_index as kernel
from cql.executor.state.codes import Codes
from cql.executor.state.repartition import KeyColumns, Taken
from cql.executor.state.stateful import Stateful
from cql.executor.state.store import Account, Role, Snapshot, State, StateStore

Words = npt.NDArray[np.int64]
_FLAGS = kernel.FLAGS
#: An index of fewer ids grows fourfold, a larger one doubles: each growth costs 0.1 ms of Python,
#: in every partition.
_SMALL = 1024
_NAN = np.float64(np.nan).view(np.int64)


def key_words(rows: State, columns: Sequence[int], types: Sequence[DataType], n: int) -> Words:
    """A line of words per row, as ``kernels.relations.groups`` writes them: one word per column (0
    for NULL), then the columns' NULL flags. Shape: (n, words of a key)."""
    words = np.zeros((n, key_width(len(columns))), np.int64)
    for k, (c, t) in enumerate(zip(columns, types, strict=True)):
        values, mask = rows[f"c{c}"], rows[f"m{c}"]
        if t.is_fraction:
            bits = _in_order(canonical(values))
        else:
            bits = values.astype(np.int64)
        valid = mask != 0
        words[:, k] = np.where(valid, bits, 0)
        words[:, len(columns) + k // _FLAGS] |= np.where(valid, 0, 1 << (k % _FLAGS))
    return words


def canonical(values: npt.NDArray[Any]) -> Words:
    """The bits of floats as int64. Equal floats (-0.0 and 0.0, all NaNs) get equal bits."""
    wide = values.astype(np.float64) + 0.0
    return np.where(np.isnan(wide), _NAN, wide.view(np.int64))


def _in_order(bits: Words) -> Words:
    """The bits of floats as words that sort as the floats do; of such words, the bits again."""
    return np.where(bits < 0, bits ^ np.iinfo(np.int64).max, bits)


def key_width(columns: int) -> int:
    """Words of a key of so many columns."""
    return columns + 1 + columns // _FLAGS


class GroupIndex(Stateful):
    """Dense ids for lines of key words, in the state of the operator called ``owner``. An id stays
    until it is given back. At most ``capacity`` ids are in use at a time; arrays beside the index
    grow with ``capacity``.

    State: ``keys``, a line per id; ``free``, the ids that are not in use; ``table``, derived."""

    def __init__(self, types: Sequence[DataType], owner: str, account: Account) -> None:
        self.types = list(types)
        self._texts = [k for k, t in enumerate(types) if t.is_coded]
        #: Words of a key.
        self.width = key_width(len(types))
        self._control: Words = np.zeros(1, np.int64)
        self._store = StateStore(owner, account)
        self._take_room(0)
        self._index_again(16)

    def _take_room(self, size: int) -> None:
        self._store.resize("free", size, np.int64, clears=False)
        self._store.resize("keys", size, np.dtype((np.int64, (self.width,))))

    @property
    def parts(self) -> Sequence[Stateful]:
        return (self._store,)

    @property
    def capacity(self) -> int:
        return len(self._keys)

    @property
    def _keys(self) -> Words:
        return self._store.arrays["keys"]

    @property
    def free(self) -> int:
        """The number of ids that are not in use."""
        return int(self._control[kernel.FREE])

    @property
    def arrays(self) -> tuple[Words, Words, Words, Words]:
        """The arrays of ``kernels.lib.key_index``: table, keys, free ids, control."""
        found = self._store.arrays
        return found["table"], found["keys"], found["free"], self._control

    @property
    def live(self) -> Words:
        """The ids in use, ascending."""
        used = np.ones(self.capacity, bool)
        used[self._store.arrays["free"][: self.free]] = False
        return np.flatnonzero(used)

    def ids(self, words: Words) -> tuple[Words, npt.NDArray[np.uint8]]:
        """The id of each line, and whether the line added that id to the index. Raises RunError,
        before any is added, if the index would grow over ``max_state``."""
        n = words.shape[0]
        self.make_room(n)
        ids, fresh = np.empty(n, np.int64), np.empty(n, np.uint8)
        kernel.find_groups(words, *self.arrays, ids, fresh)
        return ids, fresh

    def give_back(self, ids: Words) -> None:
        kernel.free_groups(ids, *self.arrays)

    def codes(self) -> Iterator[Codes]:
        yield from super().codes()
        if self._texts:
            live = self.live
            for k in self._texts:
                yield Codes(self._keys[:, k], live)

    def recoded(self) -> None:
        super().recoded()
        if self._texts:
            self._index_again(len(self._store.arrays["table"]))

    def snapshot(self) -> Snapshot:
        """The keys and the free ids; the table follows from them."""
        return self._store.snapshot(self._control)

    def restore(self, saved: Snapshot) -> None:
        """Takes over the ids and keys of a snapshot."""
        self._store.restore(saved, self._control)
        self._index_again(1 << max(4, (2 * self.capacity - 1).bit_length()))

    def make_room(self, n: int) -> None:
        """Grows the index to at least ``n`` free ids."""
        free = self.free
        if free < n:
            old = self.capacity
            new = max(64, (4 if old < _SMALL else 2) * old, old + n)
            self._take_room(new)
            ids = self._store.arrays["free"]
            ids[free : free + new - old] = np.arange(new - 1, old - 1, -1)
            self._control[kernel.FREE] = free + new - old
        if len(self._store.arrays["table"]) < 2 * self.capacity:
            self._index_again(1 << (2 * self.capacity - 1).bit_length())

    def _index_again(self, size: int) -> None:
        self._store.resize("table", size, np.int64, Role.DERIVED, keeps=False)
        kernel.index_groups(self.live, self._store.arrays["table"], self._keys)


def live_ids(saved: Snapshot) -> Words:
    """The ids in use in the snapshot of an index, ascending."""
    used = np.ones(len(saved.arrays["keys"]), bool)
    used[saved.arrays["free"][: int(saved.words[kernel.FREE])]] = False
    return np.flatnonzero(used)


def columns_of(words: Words, types: Sequence[DataType], *, in_order: bool = True) -> KeyColumns:
    """The columns that have the key words ``words`` (``key_words``). ``in_order``: words of floats
    sort as the floats do; otherwise they are their bits."""
    found, flags = [], words[:, len(types) :]
    for k, kind in enumerate(types):
        values = np.ascontiguousarray(words[:, k])
        valid = (flags[:, k // _FLAGS] >> (k % _FLAGS)) & 1 == 0
        if kind.is_fraction:
            values = (_in_order(values) if in_order else values).view(np.float64)
        found.append((values, valid))
    return found


def gather_index(saved: Sequence[Snapshot], taken: Taken, space: str, capacity: int) -> Snapshot:
    """The snapshot of an index that has the ids of ``space`` which are ``taken`` of ``saved``."""
    n = taken.count(space)
    keys = np.zeros((capacity, saved[0].arrays["keys"].shape[1]), np.int64)
    found = [one.arrays["keys"][taken.places(k, space)] for k, one in enumerate(saved)]
    keys[:n] = np.concatenate(found)
    free = np.zeros(capacity, np.int64)
    free[: capacity - n] = np.arange(capacity - 1, n - 1, -1)
    words = saved[0].words.copy()
    words[kernel.FREE] = capacity - n
    return Snapshot({"keys": keys, "free": free}, words)
