"""The base class of operators that pass some rows of their input: those that an index of keys
chooses (``kernels.flow.chosen_rows``)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from cql.base.model import Schema
from cql.base.types import DataType
from cql.executor.kernels.flow import chosen_rows as kernel
from cql.executor.kernels.morsel_layout import DETAIL, DETAIL_ROW, INFINITY, NEVER
from cql.executor.kernels.order import sort_keys
from cql.executor.morsel.morsel import Morsel, Words, value_bytes
from cql.executor.operators.contract import Operator
from cql.executor.operators.relations.group_index import GroupIndex
from cql.executor.operators.workspace import Workspace
from cql.executor.state.stateful import Stateful
from cql.executor.state.store import Role, Snapshot, StateStore, plain_words, take_plain_words

#: The smallest number of keys at which a sweep starts.
LEAST = 256


class ChosenRowsOperator(Operator):
    """``key``: the columns of ``schema`` that are the key. ``by``: the column of the time. State:
    the index of the keys. A sweep removes those that are of no use any more. It starts when the
    index holds at least ``LEAST`` keys, twice as many as the last sweep left, and a quarter of its
    capacity."""

    #: The descriptor's addresses, and the sizes of what they lead to.
    bound: ClassVar[tuple[int, ...]] = (
        *(kernel.LINES, kernel.IDS, kernel.FRESH, kernel.CHOSEN, kernel.TARGETS, kernel.MOST),
        *(kernel.TABLE, kernel.KEYS, kernel.FREE_IDS, kernel.CONTROL, kernel.PLACES, kernel.ROOM),
    )

    def __init__(
        self, name: str, schema: Schema, key: Sequence[int], by: int, workspace: Workspace
    ) -> None:
        self.name = name
        self.workspace = workspace
        self.store = StateStore(name, workspace)
        self._index = GroupIndex([schema[c].type for c in key], name, workspace)
        self._purged = 0
        width, most = self._index.width, workspace.morsel_rows
        places = {c: place for place, c in enumerate(key)}
        columns = [
            (value_bytes(f.type), _kind(f.type), f.nullable, f.type.is_coded, places.get(c, -1))
            for c, f in enumerate(schema)
        ]
        d: Words = np.zeros(kernel.FIRST + kernel.COLUMN_WORDS * len(columns), np.int64)
        d[kernel.FIRST :] = np.ravel(columns)
        d[[kernel.COLUMNS, kernel.KEY_COLUMNS, kernel.BY]] = len(columns), len(key), by
        d[[kernel.WATERMARK, kernel.FORGETS, kernel.SWEPT]] = NEVER
        d[kernel.SWEEP_AT] = LEAST
        d[[kernel.WIDTH, kernel.MOST]] = width, most
        for array, word, size, dtype in (
            ("lines", kernel.LINES, width * most, np.int64),
            ("ids", kernel.IDS, most, np.int64),
            ("fresh", kernel.FRESH, most, np.uint8),
            ("chosen", kernel.CHOSEN, most, np.int32),
            ("targets", kernel.TARGETS, most, np.int32),
        ):
            self.store.resize(array, size, dtype, Role.SCRATCH)
            d[word] = self.store.arrays[array].ctypes.data
        self.descriptor = d

    @abstractmethod
    def times(self, ids: Words) -> Words:
        """The times of the keys ``ids``: below FORGETS, a sweep removes them."""

    def bind(self) -> None:
        """Gives the kernel the addresses of the index."""
        d, (table, keys, free, control) = self.descriptor, self._index.arrays
        d[[kernel.PLACES, kernel.ROOM]] = table.size, len(keys)
        words = [kernel.TABLE, kernel.KEYS, kernel.FREE_IDS, kernel.CONTROL]
        d[words] = [array.ctypes.data for array in (table, keys, free, control)]

    def provide(self, morsel: Morsel) -> None:
        if int(morsel.words[DETAIL]) == kernel.NEED_ROOM:
            self._index.make_room(int(morsel.words[DETAIL_ROW]))
        else:
            self._sweep()
        self.bind()

    def _sweep(self) -> None:
        """Removes the keys whose time is below FORGETS."""
        d, live = self.descriptor, self._index.live
        below = int(d[kernel.FORGETS])
        gone = live if below == INFINITY else live[self.times(live) < below]
        self._index.give_back(gone)
        self._purged += gone.size
        d[kernel.SWEPT] = below
        left = live.size - gone.size
        d[kernel.SWEEP_AT] = max(LEAST, 2 * left, self._index.capacity // 4)

    @property
    def fills(self) -> bool:
        return True

    @property
    def parts(self) -> Sequence[Stateful]:
        return self.store, self._index

    @property
    def held(self) -> int:
        """The number of keys in the index."""
        return self._index.capacity - self._index.free

    def snapshot(self) -> Snapshot:
        """The keys, the descriptor and, as the last word, the number of removed keys; the runtime
        has no morsel inside."""
        words = np.append(plain_words(self.descriptor, self.bound), self._purged)
        return Snapshot({}, words, {"keys": self._index.snapshot()})

    def restore(self, saved: Snapshot) -> None:
        """Continues with the state of an operator of the same plan. The codes are those of the
        snapshot: ``map_codes`` follows."""
        take_plain_words(saved.words[:-1], self.descriptor, self.bound, self.name)
        self._purged = int(saved.words[-1])
        self._index.restore(saved.parts["keys"])
        self.bind()

    def recoded(self) -> None:
        super().recoded()
        self.bind()


def _kind(kind: DataType) -> int:
    """How the kernel turns a value into a word of the key; a text's word is its code."""
    if not kind.is_fraction:
        return sort_keys.INTEGER
    return sort_keys.DOUBLE if kind.storage == "float64" else sort_keys.FLOAT
