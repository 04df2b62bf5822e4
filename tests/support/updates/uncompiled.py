"""The kernels of update queues as plain Python, with each index and each overflow checked: compiled
code checks neither."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cql.executor.kernels.lib import memory
from cql.executor.kernels.updates import (
    layout,
    lists,
    pages,
    queue_of_keys,
    refresh,
    staleness,
    update_queue,
    window_buffer,
    windows,
)
from cql.executor.operators.updates import queue_state
from tests.support.updates import traces

MODULES = (
    *(layout, lists, pages, queue_of_keys, refresh, staleness, update_queue, window_buffer),
    windows,
)


class Checked:
    """An array whose indices are in its bounds, none negative; it gives Python's numbers, and what
    is written to it fits."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.size = array.size
        self.ctypes = array.ctypes

    def _place(self, at: Any) -> tuple[int, ...]:
        place = at if isinstance(at, tuple) else (at,)
        assert len(place) == self.array.ndim
        for i, size in zip(place, self.array.shape, strict=True):
            if not 0 <= i < size:
                raise IndexError(f"index {i} of {size}")
        return place

    def __getitem__(self, at: Any) -> Any:
        return self.array[self._place(at)].item()

    def __setitem__(self, at: Any, value: Any) -> None:
        place = self._place(at)
        if self.array.dtype == np.int64:
            value = int(value)
            if not -(2**63) <= value < 2**63:
                raise OverflowError(value)
        self.array[place] = value


def checked(own: type, address: int, n: int) -> Checked:
    """``n`` numbers of a type of ctypes at an address."""
    kind = own * n
    return Checked(np.ctypeslib.as_array(kind.from_address(address) if n else kind()))


def checked_words(address: int, n: int) -> Checked:
    return checked(ctypes.c_int64, address, n)


def checked_lines(address: int, n: int, width: int) -> Checked:
    return Checked(checked_words(address, n * width).array.reshape(n, width))


def _bits_of_f64(value: float) -> int:
    return int(struct.unpack("<q", struct.pack("<d", value))[0])


def _f64_of_bits(bits: int) -> float:
    return float(struct.unpack("<d", struct.pack("<q", bits))[0])


def kernels() -> dict[ModuleType, SimpleNamespace]:
    """The twins of the kernels of each module."""
    return twins_of(
        MODULES,
        {
            id(memory.bits_of_f64): _bits_of_f64,
            id(memory.f64_of_bits): _f64_of_bits,
            id(memory.prefetch): lambda address: None,
            # Random numbers are meant to overflow.
            id(queue_of_keys.is_shed): lambda q: queue_of_keys.is_shed(q.array),
        },
    )


def twins_of(
    modules: Sequence[ModuleType], others: Mapping[int, Any]
) -> dict[ModuleType, SimpleNamespace]:
    """The twins of the kernels of ``modules``. ``others``: what stands for intrinsics, by the id of
    each."""
    twins = {id(memory.words): checked_words, id(memory.lines): checked_lines, **others}
    scopes: list[dict[str, Any]] = []
    for module in modules:
        scope: dict[str, Any] = {}
        scopes.append(scope)
        for value in vars(module).values():
            own = getattr(value, "py_func", None)
            if own is not None and own.__module__ == module.__name__ and id(value) not in twins:
                twins[id(value)] = FunctionType(own.__code__, scope, own.__name__)
    found = {}
    for module, scope in zip(modules, scopes, strict=True):
        scope.update({name: twins.get(id(v), v) for name, v in vars(module).items()})
        calls = {name: _wrapped(v) for name, v in scope.items() if isinstance(v, FunctionType)}
        found[module] = SimpleNamespace(**{**vars(module), **calls})
    return found


def _wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        return function(*(Checked(a) if isinstance(a, np.ndarray) else a for a in arguments))

    return call


def use(patch: pytest.MonkeyPatch) -> None:
    """Queues, and traces of them, run uncompiled."""
    twins = kernels()
    patch.setattr(queue_state, "update_queue", twins[update_queue])
    patch.setattr(queue_state, "refresh", twins[refresh])
    patch.setattr(queue_state, "staleness", twins[staleness])
    patch.setattr(queue_state, "window_manager", twins[windows])
    patch.setattr(queue_state, "free_places", twins[pages].free_places)
    patch.setattr(queue_state, "mem_rem", twins[pages].mem_rem)
    patch.setattr(traces, "windows", twins[windows])
    patch.setattr(traces, "staleness", twins[staleness])


class Poisoned(queue_state.QueueState):
    """Memory that the queue has not written holds a number that is no index, no time and no
    count."""

    def _resize(self, name: str, size: int, dtype: Any) -> None:
        known = len(self.store.arrays.get(name, ()))
        super()._resize(name, size, dtype)
        self.store.arrays[name][known:] = 0x5A5A5A5A5A5A5A5A
