"""The newest answer of a query for each key: the output of a continuous query that is pulled
(UpStream report, figure 1)."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from cql.errors import BindError

if TYPE_CHECKING:
    import pyarrow as pa

Row: TypeAlias = "tuple[Any, ...]"


class Answers:
    """``key``: the columns by which answers are told apart, among ``columns``. ``changelog``: rows
    are changes of a relation, whose first two columns are the instant and the weight.

    One thread adds batches; any thread reads."""

    def __init__(self, columns: Sequence[str], key: Sequence[int], *, changelog: bool) -> None:
        self._columns, self._key, self._changelog = list(columns), list(key), changelog
        self._rows: dict[Row, Row] = {}
        self._changed = threading.Condition()
        self._over = False

    def add(self, batch: pa.RecordBatch) -> None:
        """Adds answers. Readers see all of them or none."""
        rows = list(zip(*(column.to_pylist() for column in batch.columns), strict=True))
        with self._changed:
            for row in rows:
                key = tuple(row[k] for k in self._key)
                if not self._changelog or row[1] > 0:
                    self._rows[key] = row
                elif self._rows.get(key, ())[2:] == row[2:]:
                    del self._rows[key]
            self._changed.notify_all()

    def end(self) -> None:
        """No more answers come."""
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def read(self, key: Row, timeout: float) -> dict[str, Any] | None:
        """The newest answer for the values ``key``; None if there is none after ``timeout``
        seconds.

        Raises BindError for another number of values than the key has."""
        if len(key) != len(self._key):
            names = ", ".join(self._columns[k] for k in self._key) or "no column"
            raise BindError(f"an answer is found by {names}, and {len(key)} values are given")
        with self._changed:
            self._changed.wait_for(lambda: key in self._rows or self._over, timeout)
            row = self._rows.get(key)
        return None if row is None else dict(zip(self._columns, row, strict=True))
