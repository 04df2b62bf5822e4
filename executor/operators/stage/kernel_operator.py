"""An operator of one kernel, generated for its query, with state arrays of its own (joins). No row
fails in it: the stage above evaluates, for each pair, the expressions that can fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from cql.executor.codegen.expressions.emit import ErrorSite
from cql.executor.codegen.kernel_cache import Kernel
from cql.executor.codegen.key_packing import TEXT_HASHES, KeyPart
from cql.executor.morsel.buffers import POOL
from cql.executor.morsel.morsel import Morsel, Words
from cql.executor.operators.stage.operator import (
    CodeColumn,
    State,
    Workspace,
    bind_constants,
    map_constants,
)


class GeneratedOperator:
    """The address of each array of ``state`` is the descriptor's word of the same name, if the
    kernel reads that array."""

    def __init__(self, name: str, workspace: Workspace, kernel: Kernel) -> None:
        self.name = name
        self.workspace = workspace
        self.state: State = {}
        self._kernel = kernel
        self._slots = kernel.slots
        self.descriptor: Words = np.zeros(len(self._slots), np.int64)
        self._module = workspace.load(kernel.text)
        self.address = int(self._module.op.address)
        self.set("ones", workspace.ones.ctypes.data)
        self.set(TEXT_HASHES, workspace.dictionary.hashes_at.ctypes.data)
        bind_constants(kernel, self._module, self.descriptor, workspace.dictionary)

    def set(self, name: str, value: int) -> None:
        """Sets the descriptor's word ``name``, if the kernel has one."""
        if name in self._slots:
            self.descriptor[self._slots[name]] = value

    def get(self, name: str) -> int:
        return int(self.descriptor[self._slots[name]])

    def slot(self, name: str) -> int:
        """The index of the descriptor's word ``name``."""
        return self._slots[name]

    def fresh(self, name: str, size: int, dtype: np.dtype[Any]) -> npt.NDArray[Any] | None:
        """Replaces an array by ``size`` zeros; returns the old array, None if there was none.
        Raises RunError if the state would grow over ``max_state``."""
        old = self.state.get(name)
        before = 0 if old is None else old.nbytes
        self.workspace.resize(before, size * dtype.itemsize, self.name)
        new = self.state[name] = POOL.zeros(dtype, size)
        self.set(name, new.ctypes.data)
        return old

    def resize(self, name: str, size: int, dtype: np.dtype[Any]) -> None:
        """Resizes an array to ``size`` entries; the old entries that fit stay."""
        old = self.fresh(name, size, dtype)
        if old is not None:
            kept = min(len(old), size)
            self.state[name][:kept] = old[:kept]

    def counted(self) -> dict[str, int]:
        """The kernel's counters by name."""
        return {name: self.get(name) for name in self._kernel.counters}

    @property
    def state_bytes(self) -> int:
        return sum(a.nbytes for a in list(self.state.values()))

    def map_constants(self, change: Callable[[CodeColumn], CodeColumn]) -> None:
        map_constants(self._kernel, self.descriptor, change)

    def call(self, morsel: Morsel, out: Morsel) -> int:
        raise AssertionError("a compiled operator is called by address")

    def error(self, morsel: Morsel) -> ErrorSite:
        raise AssertionError(f"{self.name} fails no row")

    def is_fatal(self, morsel: Morsel) -> bool:
        return True


def map_key(words: Words, part: KeyPart, change: Callable[[CodeColumn], CodeColumn]) -> None:
    """Changes, in place, the dictionary codes that key words hold at ``part``."""
    old = (words >> part.shift).astype(np.int32)
    words += (change(old).astype(np.int64) - old) << part.shift


def fitting(wanted: int, room: int, least: int) -> int:
    """``room``, doubled until ``wanted`` entries fit, or halved (not below ``least``) until they
    take at least an eighth."""
    while wanted > room:
        room *= 2
    while 8 * wanted < room and room > least:
        room //= 2
    return room
