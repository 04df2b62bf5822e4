"""An operator of one kernel, generated for its query, with state arrays of its own (joins). No row
fails in it: the stage above evaluates, for each pair, the expressions that can fail."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from cql.executor.codegen.kernel_cache import Kernel
from cql.executor.codegen.key_packing import TEXT_HASHES
from cql.executor.morsel.morsel import Words
from cql.executor.operators.contract import Operator
from cql.executor.operators.stage.operator import (
    bind_constants,
    constant_slots,
    constants,
    sort_constants,
)
from cql.executor.operators.workspace import Workspace
from cql.executor.state.codes import Codes
from cql.executor.state.stateful import Stateful
from cql.executor.state.store import Role, Snapshot, State, StateStore


class GeneratedOperator(Operator):
    """The address of each array of ``state`` is the descriptor's word of the same name, if the
    kernel reads that array."""

    def __init__(self, name: str, workspace: Workspace, kernel: Kernel) -> None:
        self.name = name
        self.workspace = workspace
        self.store = StateStore(name, workspace)
        self._kernel = kernel
        self._slots = kernel.slots
        self.descriptor: Words = np.zeros(len(self._slots), np.int64)
        self._module = workspace.load(kernel.text)
        self.address = int(self._module.op.address)
        self.bind("ones", workspace.ones.ctypes.data)
        self.bind(TEXT_HASHES, workspace.dictionary.hashes_at.ctypes.data)
        self.store.bound |= constant_slots(kernel)
        self.bind_constants()

    def bind_constants(self) -> None:
        bind_constants(self._kernel, self._module, self.descriptor, self.workspace)

    def set(self, name: str, value: int) -> None:
        """Sets the descriptor's word ``name``, if the kernel has one."""
        if name in self._slots:
            self.descriptor[self._slots[name]] = value

    def bind(self, name: str, value: int) -> None:
        """``set``, for an address, or a size of this process: a word that no snapshot has."""
        self.set(name, value)
        if name in self._slots:
            self.store.bound.add(self._slots[name])

    def get(self, name: str) -> int:
        return int(self.descriptor[self._slots[name]])

    def slot(self, name: str) -> int:
        """The index of the descriptor's word ``name``."""
        return self._slots[name]

    @property
    def state(self) -> State:
        """The arrays of the state, by name."""
        return self.store.arrays

    def fresh(
        self, name: str, size: int, dtype: npt.DTypeLike, role: Role = Role.STATE
    ) -> npt.NDArray[Any]:
        """Replaces an array by ``size`` zeros; returns the old array, empty if there was none.
        Raises RunError if the state would grow over ``max_state``."""
        return self.resize(name, size, dtype, role, keeps=False)

    def resize(
        self,
        name: str,
        size: int,
        dtype: npt.DTypeLike,
        role: Role = Role.STATE,
        *,
        keeps: bool = True,
    ) -> npt.NDArray[Any]:
        """``StateStore.resize``, for an array that the kernel may read."""
        old = self.store.resize(name, size, dtype, role, keeps=keeps)
        self.bind(name, self.state[name].ctypes.data)
        return old

    def snapshot(self) -> Snapshot:
        saved = self.store.snapshot(self.descriptor)
        return replace(saved, names=tuple(self._slots))

    def restore(self, saved: Snapshot) -> None:
        self.store.restore(saved, self.descriptor)
        for name, array in self.state.items():
            self.bind(name, array.ctypes.data)
        self.rebuild()

    def rebuild(self) -> None:
        """Rebuilds what follows from the state."""

    def counted(self) -> dict[str, int]:
        """The kernel's counters by name."""
        return {name: self.get(name) for name in self._kernel.counters}

    @property
    def parts(self) -> Sequence[Stateful]:
        return (self.store,)

    def codes(self) -> Iterator[Codes]:
        yield from super().codes()
        yield from constants(self._kernel, self.descriptor)

    def recoded(self) -> None:
        super().recoded()
        sort_constants(self._kernel, self.descriptor)


def fitting(wanted: int, room: int, least: int) -> int:
    """``room``, doubled until ``wanted`` entries fit, or halved (not below ``least``) until they
    take at least an eighth."""
    while wanted > room:
        room *= 2
    while 8 * wanted < room and room > least:
        room //= 2
    return room
