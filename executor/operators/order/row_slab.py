"""The base class of running operators whose rows wait in a slab (``kernels.order.row_slab``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from cql.base.model import Schema
from cql.executor.kernels.order import row_slab as kernel
from cql.executor.kernels.order import sort_keys
from cql.executor.morsel.morsel import Morsel, stored_dtype
from cql.executor.operators.order.sort_keys import order_words
from cql.executor.operators.stage.operator import BUFFERS, CodeColumn, State, Workspace
from cql.planner.nodes.logical import SortKey

#: Slots are added in multiples of this number. The slab grows by a quarter, not by doubling, so
#: that its memory stays close to the rows held.
STEP = 1024


class SlabOperator:
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
        self.state: State = {}
        self.descriptor = order_words(schema, keys, kernel.OWN + own, ranked=ranked)
        d = self.descriptor
        d[kernel.FREE] = -1
        scratch = np.zeros((2, workspace.morsel_rows), np.int32)
        workspace.resize(0, scratch.nbytes, BUFFERS)
        self.use_scratch(scratch)

    def use_scratch(self, scratch: npt.NDArray[np.int32]) -> None:
        """Takes two lists of row numbers."""
        self._scratch = scratch
        places = scratch[0].ctypes.data, scratch[1].ctypes.data
        self.descriptor[[kernel.CHOSEN, kernel.PLACES]] = places

    def _column(self, i: int) -> int:
        return int(self.descriptor[sort_keys.AT]) + sort_keys.COLUMN_WORDS * i

    # -- state -----------------------------------------------------------------------------------

    def resize(self, name: str, size: int, dtype: np.dtype[Any]) -> None:
        old = self.state.get(name, np.zeros(0, dtype))
        what = BUFFERS if name in self.scratch else self.name
        self.workspace.resize(old.nbytes, size * dtype.itemsize, what)
        new = np.empty(size, dtype)
        kept = min(size, old.size)
        new[:kept] = old[:kept]
        self.state[name] = new

    def more_slots(self, wanted: int) -> None:
        """Grows the slab to at least ``wanted`` slots; the new slots are free."""
        d, before = self.descriptor, int(self.descriptor[kernel.SLOTS])
        slots = -(-max(wanted, before + before // 4) // STEP) * STEP
        self.resize("next", slots, np.dtype(np.int32))
        links = self.state["next"]
        links[before:] = np.arange(before + 1, slots + 1)
        links[-1] = d[kernel.FREE]
        for i, f in enumerate(self.schema):
            self.resize(f"c{i}", slots, stored_dtype(f.type.storage))
            if f.nullable:
                self.resize(f"m{i}", slots, np.dtype(np.uint8))
        d[[kernel.SLOTS, kernel.FREE]] = slots, before
        self.bind()

    def bind(self) -> None:
        """Writes the addresses of the arrays into the descriptor."""
        d, state = self.descriptor, self.state
        for name, word in {"next": kernel.NEXT, **self.addresses}.items():
            d[word] = state[name].ctypes.data if name in state else 0
        for i in range(len(self.schema)):
            if f"c{i}" in state:
                d[self._column(i) + sort_keys.DATA] = state[f"c{i}"].ctypes.data
            if f"m{i}" in state:
                d[self._column(i) + sort_keys.MASK] = state[f"m{i}"].ctypes.data

    @property
    def needs_refresh(self) -> bool:
        return bool(self.descriptor[sort_keys.TEXTS])

    def refresh(self) -> None:
        """Gives the kernel the current order of texts; called before a morsel if a sort key is a
        text."""
        self._rank = self.workspace.dictionary.rank().astype(np.int32, copy=False)
        self.descriptor[[sort_keys.RANK, sort_keys.RANKS]] = self._rank.ctypes.data, self._rank.size

    @property
    def state_bytes(self) -> int:
        held = [a for name, a in list(self.state.items()) if name not in self.scratch]
        return self._scratch.nbytes + sum(a.nbytes for a in held)

    def map_codes(self, change: Callable[[CodeColumn], CodeColumn]) -> None:
        self.descriptor[sort_keys.RANKS] = 0
        texts = [i for i, f in enumerate(self.schema) if f.type.is_coded]
        if not texts or "next" not in self.state:
            return
        used = np.ones(int(self.descriptor[kernel.SLOTS]), np.uint8)
        kernel.mark_free(self.state["next"], int(self.descriptor[kernel.FREE]), used)
        for i in texts:
            column = self.state[f"c{i}"]
            held = np.flatnonzero(used & self.state[f"m{i}"] if f"m{i}" in self.state else used)
            column[held] = change(column[held])

    # -- called by the runtime -------------------------------------------------------------------

    def call(self, morsel: Morsel, out: Morsel) -> int:
        raise AssertionError("a compiled operator is called by address")
