"""A part of a larger stream, whose rows bring the watermarks of the whole stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cql.base.model import Schema
from cql.catalog.sources import DataSource
from cql.errors import CatalogError
from cql.executor.kernels.morsel_layout import NEVER
from cql.executor.protocols import Block, Offset, Reader
from cql.planner.nodes.catalog import Statistics


class RowWatermarks:
    """``inner``, of whose columns some are no columns of the stream: ``columns`` names, for each
    time column, the BIGINT column with the watermark before each row (storage units of the time
    column; NULL: there is none yet). ``numbers`` names the column with the number of each row in
    the whole stream. Rows come in the order of the whole stream, so that the watermarks do not
    descend.

    The results for a part of a stream are exact only with the watermarks of the whole: between the
    rows of a part other rows have advanced them."""

    def __init__(
        self,
        inner: DataSource,
        columns: Mapping[str, str],
        *,
        what: str,
        numbers: str | None = None,
    ) -> None:
        self._inner = inner
        self._numbers = numbers
        self._columns = {time.lower(): brought for time, brought in columns.items()}
        self._what = what
        hidden = {name.lower() for name in (*columns.values(), numbers or "")}
        self.schema = Schema(tuple(f for f in inner.schema if f.name.lower() not in hidden))

    @property
    def bounded(self) -> bool:
        return self._inner.bounded

    @property
    def replayable(self) -> bool:
        return bool(getattr(self._inner, "replayable", False))

    @property
    def unsupported(self) -> Mapping[str, str]:
        return self._inner.unsupported

    def statistics(self) -> Statistics:
        return self._inner.statistics()

    def open(self, columns: Sequence[str], offset: Offset | None = None) -> Reader:
        brought = [(c, self._columns[c.lower()]) for c in columns if c.lower() in self._columns]
        hidden = [name for _, name in brought] + ([self._numbers] if self._numbers else [])
        inner = self._inner.open([*columns, *hidden], offset)
        return _Reader(inner, [time for time, _ in brought], bool(self._numbers), self._what)


class _Reader:
    """Turns the last columns of each batch into the watermarks of ``times``, and into the numbers
    of the rows if these are ``numbered``."""

    def __init__(self, inner: Reader, times: Sequence[str], numbered: bool, what: str) -> None:
        self._inner = inner
        self._numbered = numbered
        self._times = times
        self._what = what
        self._last = [NEVER] * len(times)  # the watermark before the last row so far, by time

    def next(self, timeout: float | None = None) -> Block | None:
        block = self._inner.next(timeout)
        if block is None:
            return None
        batch = block.batch
        width = batch.num_columns - len(self._times) - self._numbered
        brought = [(time, _marks(batch.column(width + k))) for k, time in enumerate(self._times)]
        for k, (time, marks) in enumerate(brought):
            before, self._last[k] = self._last[k], max(self._last[k], *marks[-1:].tolist())
            if np.any(marks[:1] < before) or np.any(marks[1:] < marks[:-1]):
                raise CatalogError(
                    f"{self._what}: the watermarks of {time} descend",
                    hint="the rows of a part must come in the order of the whole stream",
                )
        numbers = batch.column(batch.num_columns - 1).to_numpy() if self._numbered else None
        rows = batch.select(range(width))
        return replace(block, batch=rows, row_watermarks=tuple(brought), row_numbers=numbers)

    def close(self) -> None:
        self._inner.close()


def _marks(column: pa.Array[Any]) -> npt.NDArray[np.int64]:
    held = column.fill_null(NEVER) if column.null_count else column  # fill_null is no view
    marks: npt.NDArray[np.int64] = held.to_numpy()
    return marks
