"""The partition of a key, computed outside of kernels: equal to that of the split kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cql.base.types import DataType, Kind
from cql.executor.codegen.key_packing import KeyPart, spread_keys
from cql.executor.morsel.arrow_columns import Array
from cql.executor.state.codes import Change
from cql.executor.state.repartition import KeyColumns, Places
from cql.executor.strings.dictionary import Dictionary

_Words = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Spread:
    """How rows are spread over ``parts`` partitions: by the hash of the ``chosen`` ones of an
    operator's keys, which have ``types``. ``ranged``: by ranges of the one chosen key instead."""

    types: tuple[DataType, ...]
    chosen: tuple[int, ...]
    parts: int
    ranged: bool


@dataclass(frozen=True)
class HashOwners:
    """The partitions of a ``spread``. ``translate``: the codes in ``dictionary`` of the codes in a
    checkpoint."""

    spread: Spread
    translate: Change
    dictionary: Dictionary

    @property
    def parts(self) -> int:
        return self.spread.parts

    def of(self, keys: KeyColumns, n: int) -> Places:
        types = [self.spread.types[k] for k in self.spread.chosen]
        columns = []
        for k, kind in zip(self.spread.chosen, types, strict=True):
            values, mask = keys[k]
            if kind.is_coded:
                codes = values if mask is None else np.where(mask != 0, values, 0)
                values = self.translate(codes.astype(np.int32))
            columns.append((values, mask))
        return partition_numbers(hash_of(columns, types, self.dictionary), self.parts)


def partition_numbers(hashed: _Words, parts: int) -> Places:
    """The partition of each hash (``joins.key_index.partition_of``)."""
    at = ((hashed >> np.uint64(32)) & np.uint64(0x7FFFFFFF)) * np.uint64(parts)
    return (at >> np.uint64(31)).astype(np.int64)


def hash_of(
    columns: Sequence[tuple[Array, Array | None]], types: Sequence[DataType], dictionary: Dictionary
) -> _Words:
    """The hashes of keys, equal to those of the split kernel (``joins.key_index.spread``)."""
    layout, count = spread_keys(types)
    words = [np.zeros(len(columns[0][0]), np.uint64) for _ in range(count)]
    for (data, mask), kind, part in zip(columns, types, layout, strict=True):
        coded = kind.is_coded
        bits = dictionary.hashes[data].view(np.uint64) if coded else _bits(data, kind, part)
        if mask is not None:
            bits = np.where(mask[: len(bits)] != 0, bits, np.uint64(0))
        words[part.word] |= bits
    h = words[0] * np.uint64(0x9E3779B97F4A7C15)
    h ^= h >> np.uint64(29)
    for word in words[1:]:
        h = (h + word) * np.uint64(0xBF58476D1CE4E5B9)
        h ^= h >> np.uint64(31)
    return h >> np.uint64(1)


def _bits(data: Array, kind: DataType, part: KeyPart) -> _Words:
    if kind.is_fraction:
        values = data.astype(np.float64) + 0.0
        values[np.isnan(values)] = np.nan
        bits = values.view(np.uint64)
    elif kind.kind is Kind.BOOLEAN:
        bits = (data != 0).astype(np.uint64)
    else:
        bits = data.astype(np.int64).view(np.uint64)
    if part.bits < 64:
        bits = bits & np.uint64((1 << part.bits) - 1)
    return bits << np.uint64(part.shift)


def key_values(words: Places, kind: DataType, part: KeyPart) -> Array:
    """The values that key words hold at ``part`` (``key_packing.key_value``)."""
    if kind.is_fraction:
        return words.view(np.float64)
    if kind.kind is Kind.BOOLEAN:
        return (words >> part.shift) & 1
    return (words << (64 - part.shift - part.bits)) >> (64 - part.bits)
