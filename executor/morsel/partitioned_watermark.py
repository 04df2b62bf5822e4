"""Watermarks per value of the PUNCTUATE BY column of a source (group-wise punctuation,
out-of-order paper A.1.1), one per value and progressing attribute.

A value at the watermark of all values is forgotten: memory is proportional to the number of values
ahead of that watermark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from cql.base.model import Field
from cql.executor.kernels.ingest import cutter
from cql.executor.kernels.ingest.value_numbers import enter, number
from cql.executor.kernels.morsel_layout import NEVER
from cql.executor.morsel.arrow_columns import address_of
from cql.executor.morsel.morsel import Words
from cql.executor.morsel.watermark import Attribute
from cql.executor.state.codes import Codes
from cql.executor.state.stateful import Stateful
from cql.executor.state.store import Snapshot

Numbers = npt.NDArray[np.int32]
#: Values with room at first; forgetting starts only above this number.
FEWEST = 512


def _unaccounted(before: int, after: int) -> None:
    """The accounting function until a query sets its own."""


@dataclass
class Values(Stateful):
    """The values of PUNCTUATE BY. ``place`` is the index of their column among the columns read,
    ``column`` the field."""

    place: int
    column: Field
    attributes: Sequence[Attribute]
    account: Callable[[int, int], None] = _unaccounted
    forgets: bool = True  # False while blocks of a checkpoint are read again
    _index: Numbers = field(default_factory=lambda: np.zeros(2 * FEWEST, np.int32))
    _known: Words = field(init=False)  # number of values, words per record
    _kept: int = 0  # number of values after the last forgetting
    records: Words = field(init=False)

    def __post_init__(self) -> None:
        width = cutter.VALUE + cutter.OF_VALUE * len(self.attributes)
        self._known = np.array([0, width], np.int64)
        self.records = np.zeros(width * FEWEST, np.int64)

    @property
    def nbytes(self) -> int:
        return self._index.nbytes + self.records.nbytes

    def __len__(self) -> int:
        return int(self._known[0])

    def number(
        self, values: npt.NDArray[Any], mask: npt.NDArray[np.uint8] | None
    ) -> npt.NDArray[np.int32]:
        """The value number of each row. Call it only while no block is being cut, because it may
        forget values first."""
        if self.forgets and len(self) > max(FEWEST, 2 * self._kept):
            self._forget()
        numbers = np.empty(values.size, np.int32)
        size = 0 if values.dtype == np.uint8 else values.itemsize
        valid = 0 if mask is None else address_of(mask)
        done = 0
        while True:
            done = number(
                address_of(values),
                size,
                valid,
                done,
                values.size,
                self._index,
                self.records,
                self._known,
                numbers,
            )
            if done == values.size:
                return numbers
            self._resize(2 * self._index.size)

    def _resize(self, places: int) -> None:
        width = int(self._known[1])
        before = self.nbytes
        self.account(before, places * 4 + width * places // 2 * 8)
        records = np.zeros(width * places // 2, np.int64)
        used = width * len(self)
        records[:used] = self.records[:used]
        self.records = records
        self._enter(places)

    def _enter(self, places: int) -> None:
        self._index = np.zeros(places, np.int32)
        enter(self._index, self.records, int(self._known[1]), len(self))

    def _table(self) -> Words:
        """A row for each value."""
        width = int(self._known[1])
        table: Words = self.records[: width * len(self)].reshape(-1, width)
        return table

    def watermarks(self, k: int) -> Words:
        """The watermark of each value on attribute ``k``."""
        table, a = self._table(), self.attributes[k].words
        at = cutter.VALUE + cutter.OF_VALUE * k
        own: Words = np.maximum(table[:, at + cutter.OWN_FLOOR], self.attributes[k].watermark())
        if a[cutter.OWN_BY_ROWS]:
            top = table[:, at + cutter.TOP]
            slack = int(a[cutter.OWN_SLACK])
            own = np.where(top > NEVER + slack, np.maximum(own, top - slack), own)
        return own

    def furthest_behind(self) -> tuple[int, bool, int] | None:
        """The value with the lowest watermark on the first attribute, whether it is NULL, and its
        distance to the highest watermark; None if no value lies behind another."""
        if len(self) < 2 or not self.attributes:
            return None
        times = self.watermarks(0)
        least = int(times.argmin())
        behind = int(times.max()) - int(times[least])
        if behind == 0 or times[least] == NEVER:
            return None
        key, null = self._table()[least, [cutter.KEY, cutter.NULL]]
        return int(key), bool(null), behind

    def _forget(self) -> None:
        """Removes the values whose watermarks equal those of all values."""
        stay = np.zeros(len(self), np.bool_)
        for k, attribute in enumerate(self.attributes):
            stay |= self.watermarks(k) > attribute.watermark()
            # A value with unconfirmed rows stays, because their count goes on.
            stay |= self._table()[:, cutter.VALUE + cutter.OF_VALUE * k + cutter.TOP_WAITING] > 0
        table = self._table()[stay]
        self.records[: table.size] = table.ravel()
        self._known[0] = self._kept = len(table)
        self._enter(self._index.size)

    def snapshot(self) -> Snapshot:
        """The values and their watermarks."""
        return Snapshot(
            {"records": self._table().ravel().copy()},
            np.array([*self._known, self._kept], np.int64),
        )

    def restore(self, saved: Snapshot) -> None:
        """Continues with the values of a snapshot. The codes are those of the snapshot:
        ``map_codes`` follows."""
        count, width, self._kept = (int(word) for word in saved.words)
        places = self._index.size
        while 2 * count > places:
            places *= 2
        if places > self._index.size:
            self._resize(places)
        self._known[:] = count, width
        self.records[: width * count] = saved.arrays["records"]
        self._enter(places)

    def codes(self) -> Iterator[Codes]:
        yield from super().codes()
        if self.column.type.is_text:
            yield Codes(self._table()[:, cutter.KEY])

    def recoded(self) -> None:
        super().recoded()
        self._enter(self._index.size)
