"""The morsel and the buffers that it owns. ``kernels.morsel_layout`` describes its words."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from cql.base.model import Field, Schema
from cql.base.types import DataType
from cql.executor.kernels.morsel_layout import (
    CAPACITY,
    HEADER,
    LATE_ROW_ADDRESS,
    LATE_ROW_WORDS,
    MIN_PUNCTUATIONS,
    PUNCTUATION_ADDRESS,
    PUNCTUATION_WORDS,
    WIDTH,
    data_word,
    mask_word,
)
from cql.executor.morsel.buffers import POOL

Words = npt.NDArray[np.int64]


def value_bytes(kind: DataType) -> int:
    """Bytes of one value of a column."""
    return stored_dtype(kind.storage).itemsize


@cache
def stored_dtype(storage: str) -> np.dtype[Any]:
    """The dtype of a column's values; booleans are bytes."""
    return np.dtype(np.uint8 if storage == "bool" else storage)


@dataclass(slots=True)
class Morsel:
    """A morsel's words and the buffers that it owns (``data[i]`` is None for columns that it only
    passes on)."""

    words: Words
    data: list[npt.NDArray[np.generic] | None]
    masks: list[npt.NDArray[np.uint8] | None]
    punctuations: Words
    late_rows: Words | None

    @property
    def address(self) -> int:
        return int(self.words.ctypes.data)

    @property
    def nbytes(self) -> int:
        """Bytes of the words and of the buffers that the morsel owns."""
        arrays = [self.words, self.punctuations, self.late_rows, *self.data, *self.masks]
        return sum(a.nbytes for a in arrays if a is not None)

    @classmethod
    def allocate(
        cls,
        schema: Schema,
        capacity: int,
        *,
        ones: int,
        owned: frozenset[int] | None = None,
        late_rows: bool = False,
        masks: bool = False,
    ) -> Morsel:
        """A morsel with buffers of ``capacity`` rows for the columns in ``owned`` (default: all).
        ``ones`` is the address of a mask without NULLs, for every column that has no other;
        ``masks`` gives every column a mask of its own."""
        width = HEADER + 2 * len(schema)
        words = np.zeros(width + 2 * len(schema), np.int64)
        words[CAPACITY], words[WIDTH] = capacity, width
        # On every column that progresses, a row can be late and an input can send punctuation.
        attributes = sum(f.type.can_progress for f in schema)
        punctuations = np.zeros(PUNCTUATION_WORDS * max(MIN_PUNCTUATIONS, attributes + 1), np.int64)
        morsel = cls(words, [None] * len(schema), [None] * len(schema), punctuations, None)
        words[PUNCTUATION_ADDRESS] = punctuations.ctypes.data
        if late_rows:
            # Uninitialised: readers stop at the last written record, so clearing would be wasted.
            morsel.late_rows = np.empty(LATE_ROW_WORDS * capacity * max(1, attributes), np.int64)
            words[LATE_ROW_ADDRESS] = morsel.late_rows.ctypes.data
        places = [0, ones] * len(schema)
        for i in range(len(schema)) if owned is None else owned:
            made = morsel._fresh(i, schema[i], capacity, mask=masks or schema[i].nullable)
            places[2 * i : 2 * i + len(made)] = made
        words[HEADER:width] = words[width:] = places
        return morsel

    def copy(self, schema: Schema, ones: int) -> Morsel:
        """A morsel of its own with the same rows, late rows and punctuation."""
        from cql.executor.kernels.drive.queued import copy_morsel

        twin = Morsel.allocate(
            schema, int(self.words[CAPACITY]), ones=ones, late_rows=True, masks=True
        )
        sizes = np.array([value_bytes(f.type) for f in schema], np.int64)
        copy_morsel(self.address, twin.address, len(schema), sizes)
        return twin

    def own_masks(self) -> None:
        """Points the columns to the morsel's own masks again, after an operator without NULLs has
        pointed them elsewhere."""
        for i, mask in enumerate(self.masks):
            if mask is not None:
                self._own(mask_word(i), mask.ctypes.data)

    def _own(self, word: int, address: int) -> None:
        behind = int(self.words[WIDTH]) - HEADER
        self.words[word] = self.words[word + behind] = address

    def renew(self, column: int, schema: Schema, capacity: int, *, mask: bool) -> None:
        """Gives a column new buffers; the old ones belong to the caller."""
        for k, address in enumerate(self._fresh(column, schema[column], capacity, mask=mask)):
            self._own(data_word(column) + k, address)

    def _fresh(self, column: int, field: Field, capacity: int, *, mask: bool) -> list[int]:
        """The addresses of new data and, if ``mask``, of a new mask."""
        data = self.data[column] = POOL.take(stored_dtype(field.type.storage), capacity)
        if not mask:
            return [data.ctypes.data]
        valid = self.masks[column] = np.empty(capacity, np.uint8)
        return [data.ctypes.data, valid.ctypes.data]
