"""An index of keys that native code looks up (``kernels.relations.groups``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from cql.base.model import Schema
from cql.base.types import DataType
from cql.executor.kernels.order.sort_keys import AT, COLUMN_WORDS, MASK
from cql.executor.kernels.relations import groups
from cql.executor.morsel.morsel import stored_dtype
from cql.executor.operators.order.sort_keys import order_words
from cql.executor.operators.relations.group_index import (
    GroupIndex,
    columns_of,
    gather_index,
    live_ids,
)
from cql.executor.operators.workspace import Workspace
from cql.executor.state.codes import Codes, not_null
from cql.executor.state.repartition import (
    Owners,
    Taken,
    Values,
    each,
    gather,
    taken_by_owner,
)
from cql.executor.state.stateful import Stateful
from cql.executor.state.store import Role, Snapshot, StateStore
from cql.planner.nodes.expr import Column
from cql.planner.nodes.logical import SortKey

_KEYS = 64


class KeyFinder(Stateful):
    """``inputs``: for each input, its schema and its key columns; the ``descriptors`` tell, one per
    input, how native code finds the ids of its rows. ``rows``: the rows that are looked up at once.
    ``finds_nulls``: whether keys with NULLs have ids, too; if not, they are never looked up.
    ``owner``: the operator that owns the index. ``value``: keys are one value of this type, and the
    index keeps it as it came first (the words of a key do not tell 0.0 from -0.0).

    State: the keys, and in ``store`` what the operator keeps beside them."""

    def __init__(
        self,
        owner: str,
        inputs: Sequence[tuple[Schema, Sequence[int]]],
        workspace: Workspace,
        rows: int,
        *,
        finds_nulls: bool,
        value: DataType | None = None,
    ) -> None:
        self._value = value
        schema, columns = inputs[0]
        self.index = GroupIndex([schema[c].type for c in columns], owner, workspace)
        self.descriptors = []
        for schema, columns in inputs:
            d = order_words(schema, _sort_keys(schema, columns), groups.END, ranked=False)
            for c in columns:
                d[d[AT] + COLUMN_WORDS * c + MASK] = finds_nulls and schema[c].nullable
            self.descriptors.append(d)
        self.store = StateStore(owner, workspace)
        self.room_for_piece(rows)
        self.make_room(_KEYS)

    @property
    def parts(self) -> Sequence[Stateful]:
        return self.index, self.store

    @property
    def used(self) -> int:
        """The number of keys."""
        return self.index.capacity - self.index.free

    def room_for_piece(self, rows: int) -> None:
        """Makes room to look up so many rows at once."""
        for name, size, dtype in (
            ("wanted", rows * self.index.width, np.int64),
            ("ids", rows, np.int64),
            ("fresh", rows, np.uint8),
        ):
            self.store.resize(name, size, dtype, Role.SCRATCH)
        for d in self.descriptors:
            d[groups.PIECE] = rows
        self.bind()

    def make_room(self, wanted: int) -> None:
        """Makes room for ``wanted`` more keys."""
        self.index.make_room(wanted)
        self.grow(self.index.capacity)
        self.bind()

    def grow(self, size: int) -> None:
        """Resizes the arrays beside the keys."""
        if self._value is not None:
            self.store.resize("values", size, stored_dtype(self._value.storage))
            self.store.resize("value_masks", size, np.uint8)

    def bind(self) -> None:
        """Writes the addresses of the index into the descriptors."""
        table, keys, free, control = self.index.arrays
        state = self.store.arrays
        for d in self.descriptors:
            d[groups.BUCKETS], d[groups.CAPACITY] = table.size, self.index.capacity
            for word, array in (
                (groups.TABLE, table),
                (groups.KEY_WORDS, keys),
                (groups.FREE_IDS, free),
                (groups.CONTROL, control),
                (groups.WANTED, state["wanted"]),
                (groups.IDS, state["ids"]),
                (groups.FRESH, state["fresh"]),
            ):
                d[word] = array.ctypes.data

    def codes(self) -> Iterator[Codes]:
        yield from super().codes()
        if self._value is not None and self._value.is_coded:
            state = self.store.arrays
            yield not_null(state["values"], state["value_masks"], self.index.live)

    def recoded(self) -> None:
        super().recoded()
        self.bind()

    # -- snapshots ---------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        made = self.store.snapshot(np.zeros(0, np.int64))
        return replace(made, parts={"index": self.index.snapshot()})

    def restore(self, saved: Snapshot) -> None:
        self.index.restore(saved.parts["index"])
        self.grow(self.index.capacity)
        self.store.restore(saved, np.zeros(0, np.int64))
        self.bind()

    # -- other partitions --------------------------------------------------------------------------

    def take(self, saved: Sequence[Snapshot], owners: Owners, space: str) -> list[Taken]:
        """The keys, as ``space``, that each of the partitions of ``owners`` takes."""
        takes = [Taken() for _ in range(owners.parts)]
        for k, index in enumerate(each(saved, "index")):
            ids, words = live_ids(index), index.arrays["keys"]
            own = owners.of(columns_of(words[ids], self.index.types), len(ids))
            taken_by_owner(k, space, ids, own, len(words), takes)
        return takes

    @property
    def layout(self) -> Mapping[str, Values]:
        """To what the arrays beside the keys belong (``state.repartition``)."""
        return {}

    def part(self, saved: Sequence[Snapshot], taken: Taken, space: str) -> Snapshot:
        """The snapshot of a new partition, which has ``taken`` the keys of ``space``."""
        capacity = max(_KEYS, taken.count(space))
        index = gather_index(each(saved, "index"), taken, space, capacity)
        arrays = gather(self.layout, [one.arrays for one in saved], taken, {space: capacity})
        return Snapshot(arrays, saved[0].words, {"index": index})


def _sort_keys(schema: Schema, columns: Sequence[int]) -> list[SortKey]:
    """Key columns as sort keys."""
    fields = [(c, schema[c]) for c in columns]
    return [SortKey(Column(c, f.name, f.type, f.nullable), False, True) for c, f in fields]
