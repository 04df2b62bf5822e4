"""The kernels of segments as plain Python, with each index and each overflow checked."""

from __future__ import annotations

import ctypes
from functools import partial
from types import ModuleType, SimpleNamespace

import pytest

from cql.executor.kernels.lib import atomics, memory
from cql.executor.kernels.signals import heap, segments, timebase
from cql.executor.operators.signals import segment_store
from tests.support.updates.uncompiled import checked, checked_words, twins_of

_C = ctypes.CDLL(None)
for _name in ("malloc", "realloc"):
    getattr(_C, _name).restype = ctypes.c_void_p


def _allocate(size: int) -> int:
    """Memory that holds no address and no sample that a program makes."""
    address = _C.malloc(ctypes.c_size_t(size)) or 0
    ctypes.memset(address, 0x5A, size)
    return int(address)


def _reallocate(address: int, size: int) -> int:
    return int(_C.realloc(ctypes.c_void_p(address), ctypes.c_size_t(size)) or 0)


def _deallocate(address: int) -> None:
    _C.free(ctypes.c_void_p(address))


def _load(address: int) -> int:
    return int(checked_words(address, 1)[0])


def _store(address: int, value: int) -> None:
    checked_words(address, 1)[0] = value


def _fetch_add(address: int, value: int) -> int:
    before = _load(address)
    _store(address, before + value)
    return before


def _compare_and_swap(address: int, expected: int, new: int) -> int:
    before = _load(address)
    assert before == expected, "the lock is held already"
    _store(address, new)
    return before


def _move_bytes(source: int, target: int, size: int) -> None:
    ctypes.memmove(target, source, size)


def kernels() -> dict[ModuleType, SimpleNamespace]:
    return twins_of(
        (segments, timebase),
        {
            id(heap.allocate): _allocate,
            id(heap.reallocate): _reallocate,
            id(heap.deallocate): _deallocate,
            id(atomics.load_acquire): _load,
            id(atomics.load_relaxed): _load,
            id(atomics.store_release): _store,
            id(atomics.fetch_add): _fetch_add,
            id(atomics.compare_and_swap): _compare_and_swap,
            id(memory.move_bytes): _move_bytes,
            id(memory.as_i16): partial(checked, ctypes.c_int16),
            id(memory.as_i32): partial(checked, ctypes.c_int32),
        },
    )


def use(patch: pytest.MonkeyPatch) -> None:
    """Segment stores run uncompiled."""
    patch.setattr(segment_store, "segments", kernels()[segments])
