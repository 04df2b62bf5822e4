"""The base class of running operators whose rows wait in a slab (``kernels.order.row_slab``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from cql.base.model import Schema
from cql.executor.kernels.order import row_slab as kernel
from cql.executor.kernels.order import sort_keys
from cql.executor.morsel.morsel import Words, stored_dtype
from cql.executor.operators.contract import Operator
from cql.executor.operators.order.sort_keys import order_words
from cql.executor.operators.workspace import Workspace
from cql.executor.state.codes import Codes, not_null
from cql.executor.state.repartition import KeyColumns, Values
from cql.executor.state.stateful import Stateful
from cql.executor.state.store import Role, Snapshot, State, StateStore
from cql.planner.nodes.logical import SortKey

#: Slots are added in multiples of this number. A small slab doubles, up to _SMALL slots; a larger
#: one grows by a quarter, so that its memory stays close to the rows held.
STEP = 1024
_SMALL = 8 * STEP
#: The space of the slots (``state.repartition``).
SLOT = "slot"


class SlabOperator(Operator):
    """The descriptor has ``own`` words of the operator behind those of the slab. State: ``c<i>``
    and ``m<i>``, data and mask of column i of the waiting rows; ``next`` links a slot to the next
    slot of its list or to the next free slot."""

    #: For each array of the operator's own state, the descriptor word that holds its address.
    addresses: ClassVar[dict[str, int]]
    #: The arrays in ``state`` that hold nothing between two morsels.
    scratch: frozenset[str] = frozenset()

    def __init__(
        self,
        name: str,
        schema: Schema,
        keys: Sequence[SortKey],
        own: int,
        workspace: Workspace,
        *,
        ranked: bool = True,
    ) -> None:
        self.name = name
        self.schema = schema
        self.workspace = workspace
        self.store = StateStore(name, workspace)
        self.descriptor = order_words(schema, keys, kernel.OWN + own, ranked=ranked)
        d = self.descriptor
        d[kernel.FREE] = -1
        self.list_rows(workspace.morsel_rows)

    def list_rows(self, rows: int) -> None:
        """Makes room for lists of so many rows."""
        for name, word in (("list of rows", kernel.CHOSEN), ("list of slots", kernel.PLACES)):
            self.store.resize(name, rows, np.int32, Role.SCRATCH)
            self.point(word, self.state[name])

    def _column(self, i: int) -> int:
        return int(self.descriptor[sort_keys.AT]) + sort_keys.COLUMN_WORDS * i

    # -- state -----------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """The arrays of the state, by name."""
        return self.store.arrays

    def resize(self, name: str, size: int, dtype: npt.DTypeLike) -> None:
        """Resizes an array; what is behind the old entries is up to the caller."""
        role = Role.SCRATCH if name in self.scratch else Role.STATE
        self.store.resize(name, size, dtype, role, clears=False)

    def more_slots(self, wanted: int) -> None:
        """Grows the slab to at least ``wanted`` slots; the new slots are free."""
        d, before = self.descriptor, int(self.descriptor[kernel.SLOTS])
        more = max(before // 4, min(before, _SMALL - before))
        slots = -(-max(wanted, before + more) // STEP) * STEP
        self.resize("next", slots, np.int32)
        links = self.state["next"]
        links[before:] = np.arange(before + 1, slots + 1)
        links[-1] = d[kernel.FREE]
        for i, f in enumerate(self.schema):
            self.resize(f"c{i}", slots, stored_dtype(f.type.storage))
            if f.nullable:
                self.resize(f"m{i}", slots, np.uint8)
        d[[kernel.SLOTS, kernel.FREE]] = slots, before
        self.bind()

    def bind(self) -> None:
        """Writes the addresses of the arrays into the descriptor."""
        state = self.state
        for name, word in {"next": kernel.NEXT, **self.addresses}.items():
            self.point(word, state.get(name))
        for i in range(len(self.schema)):
            self.point(self._column(i) + sort_keys.DATA, state.get(f"c{i}"))
            self.point(self._column(i) + sort_keys.MASK, state.get(f"m{i}"))

    def point(self, word: int, array: npt.NDArray[Any] | None) -> None:
        """Writes the address of an array into the descriptor: a bound word. None: 0."""
        self.bound(word, 0 if array is None else array.ctypes.data)

    def bound(self, word: int, value: int) -> None:
        """Sets a word to an address, or to a size of this process: a word that no snapshot has."""
        self.descriptor[word] = value
        self.store.bound.add(word)

    # -- snapshots -------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """The state; the runtime has no morsel inside."""
        return self.store.snapshot(self.descriptor)

    def restore(self, saved: Snapshot) -> None:
        """Continues with the state of an operator of the same plan. The codes are those of the
        snapshot: ``map_codes`` follows."""
        slots = int(saved.words[kernel.SLOTS])
        if slots:
            self.more_slots(slots)  # scratch beside them, too
        self.store.restore(saved, self.descriptor)
        self.bind()

    @property
    def layout(self) -> dict[str, Values]:
        """To what the arrays of the state belong (``state.repartition``)."""
        found = {"next": Values(SLOT, refers={0: SLOT})}
        for i, f in enumerate(self.schema):
            found[f"c{i}"] = Values(SLOT)
            if f.nullable:
                found[f"m{i}"] = Values(SLOT)
        return found

    @property
    def needs_refresh(self) -> bool:
        return bool(self.descriptor[sort_keys.TEXTS])

    def refresh(self) -> None:
        """Gives the kernel the current order of texts; called before a morsel if a sort key is a
        text."""
        self._rank = self.workspace.dictionary.rank().astype(np.int32, copy=False)
        self.point(sort_keys.RANK, self._rank)
        self.bound(sort_keys.RANKS, self._rank.size)

    @property
    def parts(self) -> Sequence[Stateful]:
        return (self.store,)

    def codes(self) -> Iterator[Codes]:
        yield from super().codes()
        self.bound(sort_keys.RANKS, 0)
        texts = [i for i, f in enumerate(self.schema) if f.type.is_coded]
        if texts and "next" in self.state:
            used = np.ones(int(self.descriptor[kernel.SLOTS]), np.uint8)
            kernel.mark_free(self.state["next"], int(self.descriptor[kernel.FREE]), used)
            held = np.flatnonzero(used)
            for i in texts:
                yield not_null(self.state[f"c{i}"], self.state.get(f"m{i}"), held)


def output_words(columns: Sequence[int], output: Schema, width: int) -> Words:
    """The words of the output columns of a join that keeps the rows of both sides in slabs
    (``kernels.joins.pair_rows``): each of ``columns`` is one of the left side, which has ``width``,
    or behind them of the right side."""
    made = [
        (c >= width, c - width if c >= width else c, output[k].nullable)
        for k, c in enumerate(columns)
    ]
    return np.array(made, np.int64).reshape(-1)


def used_slots(saved: Snapshot) -> npt.NDArray[np.int64]:
    """The slots that hold rows in the snapshot of a slab, ascending."""
    used = np.ones(int(saved.words[kernel.SLOTS]), np.uint8)
    kernel.mark_free(saved.arrays["next"].copy(), int(saved.words[kernel.FREE]), used)
    return np.flatnonzero(used)


def key_columns(
    schema: Schema, keys: Sequence[int], saved: Snapshot, slots: npt.NDArray[np.int64]
) -> KeyColumns:
    """The columns ``keys`` of the rows in ``slots`` of the snapshot of a slab."""
    return [
        (
            saved.arrays[f"c{c}"][slots],
            saved.arrays[f"m{c}"][slots] if schema[c].nullable else None,
        )
        for c in keys
    ]


def free_the_rest(arrays: State, words: Words, rows: int) -> None:
    """Makes ``rows`` the number of rows in a slab: they have the first slots, the others are
    free."""
    links = arrays["next"]
    slots = len(links)
    links[rows:] = np.arange(rows + 1, slots + 1)
    links[slots - 1 :] = -1 if rows < slots else links[slots - 1 :]
    words[[kernel.SLOTS, kernel.HELD]] = slots, rows
    words[kernel.FREE] = rows if rows < slots else -1


def slots_for(rows: int) -> int:
    """The number of slots for so many rows."""
    return -(-max(rows, 1) // STEP) * STEP
