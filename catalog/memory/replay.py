"""Replay: ``USING replay OPTIONS (…)``, another input delivered again at a pace of its own.

Options: ``table``, or ``path`` with the options of its format (the input to replay); ``time``, the
timestamp column that sets the pace; ``speed``, event seconds per second of the clock (without it,
as fast as the query takes the rows); ``skew``, the event time by which this input arrives later
than the others; ``step``, the event time of the rows that are delivered at once (the input
scheduler changes inputs at these steps); ``origin``, the event time at which the clock starts (else
that of the first row: several inputs with one origin stay aligned); ``shift``, added to the column
``time`` itself.

With a speed, a row is delivered when its own time and that of every row before it has come; rows
without a time, and rows that cannot be read, come with their predecessor. Without a speed there is
no clock, and only ``skew`` orders the inputs: a query reads the one whose rows arrive first.

Offsets are ``{"row": n, "inner": offset of the input, "skip": k}``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from cql.base.model import Field, Schema
from cql.catalog.blocks import END, BlockReader, End, Piece, row_of
from cql.catalog.convert import Shaper, empty_columns, fit, pick
from cql.catalog.memory.clock import Clock, SystemClock
from cql.catalog.memory.rows import Rows
from cql.catalog.options import Options
from cql.errors import CatalogError
from cql.executor.protocols import Block, Mark, Offset, Reader, Source
from cql.planner.nodes.catalog import Statistics

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from cql.catalog.signals.sampled import SampledFormat

#: Options of the replay itself; the others belong to the format of ``path``.
OWN_OPTIONS = ("table", "time", "speed", "skew", "step", "origin", "shift")


class ReplaySource:
    """See the module. A paced reader returns an empty block when ``timeout`` passes without a row,
    also if the input is bounded."""

    def __init__(
        self,
        inner: Source,
        options: Mapping[str, Any],
        *,
        what: str,
        declared: Schema | None = None,
        clock: Clock | None = None,
    ) -> None:
        given = Options({k: v for k, v in options.items() if k.lower() in OWN_OPTIONS}, what)
        given.text("table")
        self._inner = inner
        self._what = what
        self.clock = clock or SystemClock()
        self.schema = inner.schema
        if declared is not None:
            fit(declared, inner.schema, what, {})
            self.schema = declared
        self.speed = given.number("speed", 0.0, least=1e-6, most=1e9) if given.has("speed") else 0.0
        self.skew = given.duration("skew")
        self.step = given.duration("step")
        self.origin = given.instant("origin")
        self.shift = given.duration("shift")
        self.time = self._time(given)
        if not self.speed and self.origin is not None:
            raise CatalogError(
                f"{what}: origin needs a speed",
                hint="without a pace there is no clock: give speed '1' or more",
            )
        self.unsupported: Mapping[str, str] = {}

    def _time(self, given: Options) -> Field | None:
        name = given.text("time")
        if name is None:
            if self.speed or self.shift or self.skew or self.step:
                raise CatalogError(
                    f"{self._what}: speed, skew, step and shift need the option time",
                    hint="time 'ts' names the timestamp column that sets the pace",
                )
            return None
        field = pick(self._inner.schema, [name], self._what)[0]
        if not field.type.is_timestamp:
            raise CatalogError(
                f"{self._what}: time {name} is {field.type}, not a timestamp",
                hint="only timestamps can set a pace",
            )
        return field

    @property
    def bounded(self) -> bool:
        return self._inner.bounded

    @property
    def replayable(self) -> bool:
        return bool(getattr(self._inner, "replayable", False))

    @property
    def samples(self) -> SampledFormat | None:
        found: SampledFormat | None = getattr(self._inner, "samples", None)
        return found

    @property
    def paced(self) -> bool:
        return self.speed > 0

    @property
    def lag(self) -> int:
        """How much later than the others to read this input, in event time. 0 with a speed: the
        clock delays the rows then."""
        return 0 if self.speed else self.skew

    def statistics(self) -> Statistics:
        return Statistics()

    def open(self, columns: Sequence[str], offset: Offset | None = None) -> Reader:
        fields = pick(self.schema, columns, self._what)
        row = row_of(offset, self._what)
        inner: Offset | None = None if offset is None else offset.get("inner")
        skip = 0 if offset is None else int(offset.get("skip", 0))
        names = [f.name for f in fields]
        if self.time is not None and self.time.name.lower() not in [n.lower() for n in names]:
            names.append(self.time.name)
        reader = self._inner.open(names, inner)
        feed = _ReplayFeed(self, reader, fields, names, row, inner, skip)
        return BlockReader(feed, Shaper(fields), row=row, offset=offset or {"row": 0})


class _ReplayFeed:
    def __init__(
        self,
        source: ReplaySource,
        reader: Reader,
        fields: Sequence[Field],
        names: Sequence[str],
        row: int,
        inner: Offset | None,
        skip: int,
    ) -> None:
        self._source = source
        self._reader = reader
        self._count = len(fields)
        self._names = [n.lower() for n in names]
        self._row = row
        self._before = inner  # the input's offset before the current block
        self._done = skip  # rows of the current block that were delivered
        self._block: Block | None = None
        self._rows = Rows(empty_columns(0))  # of the current block
        self._due: npt.NDArray[np.int64] | None = None
        self._opened = source.clock.now()
        self._latest: int | None = None
        self._origin = source.origin
        self._step: int | None = None  # the number of the step of the rows delivered last

    def take(self, limit: int, timeout: float | None) -> Piece | End | None:
        while self._block is None:
            block = self._reader.next(timeout)
            if block is None:
                return END
            count = block.batch.num_rows + len(block.bad)
            row_punctuation = [
                *block.row_punctuation,
                *((count, *punctuation) for punctuation in block.punctuation),
            ]
            rows = Rows(block.batch, block.bad, tuple(map(self._moved, row_punctuation)))
            if rows.count == 0:
                if not rows.row_punctuation:
                    return None
                return Piece(rows, lambda _: self._at(), "the replay", self._row)
            if self._done >= rows.count:  # the input cut its blocks elsewhere this time
                self._done -= rows.count
                self._before = block.offset
                continue
            self._block, self._rows, self._due = block, rows, self._times(rows)
        count = self._rows.count - self._done
        if self._due is not None and self._source.step:
            count = self._of_step(self._due)
        if self._due is not None and self._source.speed:
            count = min(count, self._await(self._due, timeout))
        if count == 0:
            return None
        return self._give(self._block, min(count, limit))

    def close(self) -> None:
        self._reader.close()

    def _give(self, block: Block, count: int) -> Piece:
        row, done, before = self._row, self._done, self._before
        size, end = self._rows.count, block.offset

        def after(k: int) -> Offset:
            if done + k == size:
                return {"row": row + k, "inner": end, "skip": 0}
            return {"row": row + k, "inner": before, "skip": done + k}

        given = self._rows.slice(done, count)
        self._row += count
        self._done += count
        if self._done == size:
            self._block, self._before, self._done = None, end, 0
        return Piece(replace(given, batch=self._shifted(given.batch)), after, "the replay", row)

    def _at(self) -> Offset:
        return {"row": self._row, "inner": self._before, "skip": self._done}

    def _moved(self, mark: Mark) -> Mark:
        """Punctuation on the column ``time`` is shifted like its rows."""
        row, column, value = mark
        time = self._source.time
        if time is not None and time.name.lower() == column.lower():
            value += self._source.shift
        return row, column, value

    def _shifted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow.compute as pc

        time, shift = self._source.time, self._source.shift
        columns: list[Any] = list(batch.columns)
        if time is not None and shift:
            at = self._names.index(time.name.lower())
            columns[at] = pc.add_checked(columns[at], pa.scalar(shift, pa.duration("us")))
        named = pa.RecordBatch.from_arrays(columns, names=self._names)
        return named.select(self._names[: self._count]) if columns else batch

    def _of_step(self, due: npt.NDArray[np.int64]) -> int:
        """Number of rows that belong to the current step; 0 when the step is over, so that a block
        ends."""
        import numpy as np

        step = self._source.step
        number = int(due[self._done]) // step
        if self._step is not None and number != self._step:
            self._step = None
            return 0
        self._step = number
        return int(np.searchsorted(due, (number + 1) * step, side="left")) - self._done

    def _times(self, rows: Rows) -> npt.NDArray[np.int64] | None:
        """The highest event time up to each row; None if neither speed nor step needs it."""
        import numpy as np

        time = self._source.time
        if time is None or not (self._source.speed or self._source.step):
            return None
        column: Any = rows.batch.column(self._names.index(time.name.lower())).cast(pa.int64())
        if self._origin is None and column.null_count < len(column):
            self._origin = column.drop_null()[0].as_py()
        floor = self._latest if self._latest is not None else np.iinfo(np.int64).min
        filled: npt.NDArray[np.int64] = np.full(rows.count, floor, np.int64)
        read = np.delete(np.arange(rows.count), [b.row for b in rows.bad])
        filled[read] = column.fill_null(floor).to_numpy(zero_copy_only=False)
        latest = np.maximum.accumulate(np.maximum(filled, floor))
        self._latest = int(latest[-1])
        return latest

    def _await(self, due: npt.NDArray[np.int64], timeout: float | None) -> int:
        """Number of rows after the delivered ones that have come due. Waits for one row, up to
        ``timeout``."""
        import numpy as np

        clock, speed = self._source.clock, self._source.speed
        origin = self._origin or 0
        first = self._opened + (int(due[self._done]) - origin + self._source.skew) / 1e6 / speed
        now = clock.now()
        if now < first:
            clock.sleep(first - now if timeout is None else min(timeout, first - now))
            now = clock.now()
        if now < first:
            return 0
        reached = origin - self._source.skew + (now - self._opened) * 1e6 * speed
        found = int(np.searchsorted(due, np.int64(min(reached, 2.0**62)), side="right"))
        return max(found - self._done, 1)
