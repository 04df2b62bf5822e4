"""The unit: a morsel as operators see it, a table of int64 words.

A unit is both the output of the operator that filled it and the input of the next one; nothing is
copied in between. Its header holds counts and addresses, then come two words per column: the
address of the data and that of the byte mask (1: valid; a column without NULLs points to a mask of
ones). ``SERIAL`` orders morsels, ``SEQUENCE`` is the stream position of its first row. Stragglers
are records of three words (row, attribute, own watermark), punctuations of four (attribute, value,
second attribute or -1, its value); an attribute is a column index. Group-wise punctuation is two
such records, and so no promise to who does not know it: (attribute, value, column of the groups,
what was promised of this one before) and (GROUP, value of that column, -1, 1 if it is NULL). A
column's buffers belong to the unit unless the operator passed a column of its input on by
reference.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from cql.executor.morsel.buffers import POOL
from cql.model import Field, Schema
from cql.types import DataType

Words = npt.NDArray[np.int64]

# Header words.
ROWS = 0
CURSOR = 1  # where the consumer resumes
PHASE = 2  # the consumer's phase
SUB = 3  # the consumer's place inside a row
PORT = 4
SERIAL = 5
SEQUENCE = 6
CAPACITY = 7  # rows that the unit's own buffers hold
OUT = 8  # address of the unit that the consumer fills
STRAGGLERS = 9  # count
STRAGGLER_ADDRESS = 10
PUNCTUATIONS = 11  # count
PUNCTUATION_ADDRESS = 12
DETAIL = 13  # NEED: which buffer; ERROR: which site
DETAIL_ROW = 14  # NEED: how many bytes or which code; ERROR: which row
EPOCH = 15
# Under the ordered runtime.
REFERENCES = 16  # how many still read the unit, its columns or its punctuation
PARENT = 17  # address of the unit whose columns it shows; 0: it shows its own
HOME = 18  # ring of free units that it returns to
FOLLOWING = 19  # address of the next one of its chain
OPERATOR = 20  # index of the operator that made it
OWN_LATE = 21  # address of its own room for stragglers
WIDTH = 22  # words of the unit; those of its own columns follow, wherever these point now
CHOSEN = 23  # address of the numbers of the rows that count (int32); 0: all do
FEED = 24  # the input that the unit was cut off, or whose unit it was made for
BASE = 25  # stream position of the first row of that block (``Turns.first``)
WAY = 26  # the way that it came on, where its input comes to an operator on several (``paths``)
HEADER = 27

STRAGGLER_WORDS = 3
PUNCTUATION_WORDS = 4
MIN_PUNCTUATIONS = 64  # room for that many at least

# What an operator returns.
DONE = 0
OUTPUT_FULL = 1  # take the output, then call again with the same unit
NEED = 2  # provide DETAIL (DETAIL_ROW says how much), then call again
ERROR = 3  # row DETAIL_ROW failed at site DETAIL; calling again leaves it out

# Attributes of punctuation that are no columns.
END_OF_INPUT = -1  # no later row at all
IDLE = -2  # value 1: the input stops counting where progress is a minimum; 0: it counts again
NUMBERS = -3  # inside a stage: of the numbers that it gives its rows
NOWHERE = -4  # inside a stage: of a column without progress
GROUP = -5  # the second record of group-wise punctuation

INFINITY = np.iinfo(np.int64).max
NEVER = np.iinfo(np.int64).min


def data_word(column: int) -> int:
    return HEADER + 2 * column


def value_bytes(kind: DataType) -> int:
    """How long a value of a column is."""
    return stored_dtype(kind.storage).itemsize


@cache
def stored_dtype(storage: str) -> np.dtype[Any]:
    """Of the values of a column: booleans are bytes."""
    return np.dtype(np.uint8 if storage == "bool" else storage)


def mask_word(column: int) -> int:
    return HEADER + 2 * column + 1


@dataclass(slots=True)
class Unit:
    """A unit's words and the buffers that it owns (``data[i]`` is None for columns that it only
    passes on)."""

    words: Words
    data: list[npt.NDArray[np.generic] | None]
    masks: list[npt.NDArray[np.uint8] | None]
    punctuations: Words
    stragglers: Words | None

    @property
    def address(self) -> int:
        return int(self.words.ctypes.data)

    @property
    def nbytes(self) -> int:
        """Bytes of the words and of the buffers that the unit owns."""
        arrays = [self.words, self.punctuations, self.stragglers, *self.data, *self.masks]
        return sum(a.nbytes for a in arrays if a is not None)

    @classmethod
    def allocate(
        cls,
        schema: Schema,
        capacity: int,
        *,
        ones: int,
        owned: frozenset[int] | None = None,
        stragglers: bool = False,
        masks: bool = False,
    ) -> Unit:
        """A unit with buffers of ``capacity`` rows for the columns in ``owned`` (default: all).
        ``ones`` is the address of a mask without NULLs, for every column that has no other;
        ``masks`` gives every column a mask of its own."""
        width = HEADER + 2 * len(schema)
        words = np.zeros(width + 2 * len(schema), np.int64)
        words[CAPACITY], words[WIDTH] = capacity, width
        # A row can be late, and an input can promise, on every column that progresses.
        attributes = sum(f.type.can_progress for f in schema)
        promises = np.zeros(PUNCTUATION_WORDS * max(MIN_PUNCTUATIONS, attributes + 1), np.int64)
        unit = cls(words, [None] * len(schema), [None] * len(schema), promises, None)
        words[PUNCTUATION_ADDRESS] = promises.ctypes.data
        if stragglers:
            # read as far as they were written: megabytes are cleared for nobody
            unit.stragglers = np.empty(STRAGGLER_WORDS * capacity * max(1, attributes), np.int64)
            words[STRAGGLER_ADDRESS] = unit.stragglers.ctypes.data
        places = [0, ones] * len(schema)
        for i in range(len(schema)) if owned is None else owned:
            made = unit._fresh(i, schema[i], capacity, mask=masks or schema[i].nullable)
            places[2 * i : 2 * i + len(made)] = made
        words[HEADER:width] = words[width:] = places
        return unit

    def copy(self, schema: Schema, ones: int) -> Unit:
        """A unit of its own with the same rows, stragglers and punctuation."""
        from cql.executor.kernels.drive.queued import copy_unit

        twin = Unit.allocate(
            schema, int(self.words[CAPACITY]), ones=ones, stragglers=True, masks=True
        )
        sizes = np.array([value_bytes(f.type) for f in schema], np.int64)
        copy_unit(self.address, twin.address, len(schema), sizes)
        return twin

    def own_masks(self) -> None:
        """Points to its own masks again, where an operator without NULLs pointed elsewhere."""
        for i, mask in enumerate(self.masks):
            if mask is not None:
                self._own(mask_word(i), mask.ctypes.data)

    def _own(self, word: int, address: int) -> None:
        behind = int(self.words[WIDTH]) - HEADER
        self.words[word] = self.words[word + behind] = address

    def renew(self, column: int, schema: Schema, capacity: int, *, mask: bool) -> None:
        """Gives a column new buffers (the old ones now belong to whoever took them)."""
        for k, address in enumerate(self._fresh(column, schema[column], capacity, mask=mask)):
            self._own(data_word(column) + k, address)

    def _fresh(self, column: int, field: Field, capacity: int, *, mask: bool) -> list[int]:
        """The addresses of new data and, if there is to be one, of a new mask."""
        data = self.data[column] = POOL.take(stored_dtype(field.type.storage), capacity)
        if not mask:
            return [data.ctypes.data]
        valid = self.masks[column] = np.empty(capacity, np.uint8)
        return [data.ctypes.data, valid.ctypes.data]
