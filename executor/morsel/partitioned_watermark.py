"""What is known of the values of a column by which a source is punctuated (PUNCTUATE BY; out-of-
order paper A.1.1): how far each has come on every progressing attribute.

A value that tells no more than what holds for all of them is forgotten: the memory is that of the
values which are ahead of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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

Numbers = npt.NDArray[np.int32]
#: Values for which there is room at first, and from which on old ones are looked for.
FEWEST = 512


def _unaccounted(before: int, after: int) -> None:
    """Until a query says who counts the bytes."""


@dataclass(slots=True)
class Values:
    """``place`` is the column among those of the source that are read, ``column`` the field."""

    place: int
    column: Field
    attributes: Sequence[Attribute]
    account: Callable[[int, int], None] = _unaccounted
    _index: Numbers = field(default_factory=lambda: np.zeros(2 * FEWEST, np.int32))
    _known: Words = field(init=False)  # how many values, and the words of a record
    _kept: int = 0  # after the last time that old ones were forgotten
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
        """The number of each row's value. Only while no block is being cut: it forgets first."""
        if len(self) > max(FEWEST, 2 * self._kept):
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
        """Of each value on attribute ``k``."""
        table, a = self._table(), self.attributes[k].words
        at = cutter.VALUE + cutter.OF_VALUE * k
        own: Words = np.maximum(table[:, at + cutter.OWN_FLOOR], self.attributes[k].watermark())
        if a[cutter.OWN_BY_ROWS]:
            top = table[:, at + cutter.TOP]
            slack = int(a[cutter.OWN_SLACK])
            own = np.where(top > NEVER + slack, np.maximum(own, top - slack), own)
        return own

    def furthest_behind(self) -> tuple[int, bool, int] | None:
        """The value that has come least far on the first attribute, whether it is NULL, and by how
        much it lies behind the one that has come furthest; None if none does."""
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
        """The values that tell no more than what holds for all."""
        stay = np.zeros(len(self), np.bool_)
        for k, attribute in enumerate(self.attributes):
            stay |= self.watermarks(k) > attribute.watermark()
            # rows that wait to be confirmed are counted on
            stay |= self._table()[:, cutter.VALUE + cutter.OF_VALUE * k + cutter.TOP_WAITING] > 0
        table = self._table()[stay]
        self.records[: table.size] = table.ravel()
        self._known[0] = self._kept = len(table)
        self._enter(self._index.size)

    def map_codes(self, change: Callable[[Numbers], Numbers]) -> None:
        """Puts ``change(codes)`` in the place of all codes of the dictionary."""
        if not self.column.type.is_text or not len(self):
            return
        table = self._table()
        table[:, cutter.KEY] = change(table[:, cutter.KEY].astype(np.int32))
        self._enter(self._index.size)
