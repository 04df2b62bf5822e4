"""The samples of signals in memory: numbers, times, and structs of them."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from cql.base.types import COMPLEX, DataType, Kind
from cql.executor.kernels.signals.layout import KINDS, STRUCT


@lru_cache(256)
def sample_dtype(of: DataType) -> np.dtype[Any]:
    """The dtype of samples of type ``of``: complex, or for other structs the fields, each at a
    multiple of its size, in whole words."""
    if of == COMPLEX:
        return np.dtype(np.complex128)
    if of.kind is not Kind.STRUCT:
        return np.dtype(of.storage)
    parts = [(name, sample_dtype(kind)) for name, kind in of.fields]
    packed = np.dtype(parts, align=True)
    assert packed.fields is not None
    return np.dtype(
        {
            "names": [name for name, _ in parts],
            "formats": [dtype for _, dtype in parts],
            "offsets": [packed.fields[name][1] for name, _ in parts],
            "itemsize": -(-packed.itemsize // 8) * 8,
        },
        align=True,
    )


def fields_of(samples: Any) -> list[Any]:
    """The fields of structs, or of complex samples, as arrays that share them."""
    if samples.dtype.names is None:
        return [samples.real, samples.imag]
    return [samples[name] for name in samples.dtype.names]


def number_of_kind(samples: np.dtype[Any]) -> int:
    """The number of a kind of samples (``kernels.signals.layout``)."""
    if samples.kind == "V":
        return STRUCT + samples.itemsize // 8
    return KINDS.index(samples.name)


def dtype_of_kind(number: int) -> np.dtype[Any]:
    """The dtype of samples whose kind has this number; of a struct it does not name the fields."""
    return np.dtype(KINDS[number] if number < STRUCT else f"V{8 * (number - STRUCT)}")
