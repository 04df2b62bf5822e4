"""The watermarks of a run's results: what the punctuation says that reaches the end of its plan."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from cql.base.model import Schema
from cql.executor.kernels.morsel_layout import (
    INFINITY,
    NEVER,
    PUNCTUATION_ADDRESS,
    PUNCTUATION_WORDS,
    PUNCTUATIONS,
    ROWS,
)
from cql.executor.morsel.egress import view_address
from cql.executor.morsel.morsel import Morsel

#: Watermarks that rise: (column, value in storage units).
Risen: TypeAlias = tuple[tuple[str, int], ...]


class ResultWatermarks:
    """The watermarks of the columns ``times``, by their places in results of ``schema``."""

    def __init__(self, schema: Schema, times: Mapping[int, str]) -> None:
        self._times = times
        self._reached = dict.fromkeys(times, NEVER)
        self._risen: deque[Risen] = deque()
        self.no_rows = no_rows(schema)

    def note(self, morsel: Morsel) -> bool:
        """Notes the watermarks that rise behind the rows of a result. Returns whether the result
        has rows, or watermarks rise."""
        risen = self._risen_in(morsel)
        delivers = bool(risen) or int(morsel.words[ROWS]) > 0
        if delivers:
            self._risen.append(risen)
        return delivers

    def take(self) -> Risen:
        """Those behind the first noted result that has not been taken."""
        return self._risen.popleft()

    def _risen_in(self, morsel: Morsel) -> Risen:
        """The watermarks that the punctuation of a morsel raises. That of single groups, and of
        pairs of columns, does not say how far a column is."""
        count = int(morsel.words[PUNCTUATIONS])
        if count == 0:
            return ()
        at, words = int(morsel.words[PUNCTUATION_ADDRESS]), PUNCTUATION_WORDS * count
        records = view_address(at, np.dtype(np.int64), words).reshape(count, PUNCTUATION_WORDS)
        risen = dict[int, int]()
        for column, value, other, _ in records.tolist():
            if column in self._reached and other < 0 and self._reached[column] < value < INFINITY:
                self._reached[column] = risen[column] = value
        return tuple((self._times[column], value) for column, value in risen.items())


def no_rows(schema: Schema) -> pa.RecordBatch:
    """A batch without rows."""
    arrow = schema.to_arrow()
    return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in arrow], schema=arrow)
