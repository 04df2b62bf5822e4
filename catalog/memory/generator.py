"""The rate generator: ``USING rate OPTIONS (…)``, rows that depend on nothing but seed and number.

Row i arrives at ``start + i / rows_per_second``. Its event time ``ts`` is its arrival time, less a
delay for the share ``disorder`` of the rows: uniform between 1 us and ``max_delay``. So the stream
is ``ORDERED BY ts WITHIN max_delay`` exactly, and any part of it can be made again from its row
number alone.

Columns: ``ts`` timestamp; ``seq`` bigint, the row number; ``key`` bigint in [0, keys), its
frequency falling as 1 / (key + 1) ** skew; ``name`` string, 'key_' and the key; ``value`` double,
uniform in [0, 1); ``amount`` bigint, uniform in [0, 1000).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from cql.base.model import Field, Schema
from cql.base.types import BIGINT, DOUBLE, STRING, TIMESTAMP
from cql.catalog.blocks import END, BlockReader, End, Piece, row_of
from cql.catalog.convert import Column, Shaper, batch_of, fit, pick
from cql.catalog.memory.clock import Clock, SystemClock
from cql.catalog.memory.rows import Rows
from cql.catalog.options import Options
from cql.errors import CatalogError, did_you_mean
from cql.executor.protocols import Offset, Reader
from cql.planner.nodes.catalog import Statistics

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

SECOND = 1_000_000
COLUMNS = {
    "ts": TIMESTAMP,
    "seq": BIGINT,
    "key": BIGINT,
    "name": STRING,
    "value": DOUBLE,
    "amount": BIGINT,
}
DEFAULT_COLUMNS = ("ts", "key", "value")
START = 1_704_067_200 * SECOND  # 2024-01-01T00:00:00Z
MAX_KEYS = 10_000_000
#: With more rows than this, the row number times SECOND would exceed 64 bits.
MAX_ROWS = 2**62 // SECOND


class RateSource:
    """Options: rows_per_second (1000), rows (endless without it), start ('2024-01-01T00:00:00Z'),
    seed (0), keys (10), skew (0), disorder (0) with max_delay ('0 s'), columns ('ts, key, value'),
    pace (true: rows arrive by the clock; false: as fast as the query takes them; by default, true
    if ``rows`` is not set), punctuation (false; true: the source itself gives punctuation on
    ``ts``).

    Offsets are ``{"row": n}``. A paced reader returns an empty block when ``timeout`` passes
    without a row, also if ``rows`` bounds it."""

    def __init__(
        self,
        options: Mapping[str, Any],
        *,
        what: str,
        declared: Schema | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._what = what
        self._clock = clock or SystemClock()
        given = Options(options, "the rate generator")
        rate = given.number("rows_per_second", 1000.0, least=1e-3, most=1e9)
        self._rate = Fraction(str(rate)).limit_denominator(1000)
        self._rows = given.integer("rows")
        start = given.instant("start", START)
        assert start is not None
        self._start = start
        self._seed = given.integer("seed", 0) or 0
        keys = given.integer("keys", 10, least=1)
        assert keys is not None
        if keys > MAX_KEYS:
            raise given.fail("keys", f"at most {MAX_KEYS} keys")
        self._keys = keys
        self._skew = given.number("skew", 0.0, least=0.0, most=10.0)
        self._disorder = given.number("disorder", 0.0, least=0.0, most=1.0)
        self._max_delay = given.duration("max_delay")
        if (self._disorder > 0) != (self._max_delay > 0):
            raise CatalogError(
                f"{what}: disorder and max_delay belong together",
                hint="disorder '0.1', max_delay '5 seconds': a tenth of the rows, up to 5 s late",
            )
        self.paced = given.flag("pace", self._rows is None)
        self._punctuation = given.flag("punctuation")
        self.schema = _chosen(given.texts("columns", DEFAULT_COLUMNS), what)
        given.done()
        if declared is not None:
            full = Schema(tuple(Field(n, t, False) for n, t in COLUMNS.items()))
            fit(declared, full, what, {})
            self.schema = declared
        self.unsupported: Mapping[str, str] = {}
        self._weights: npt.NDArray[np.float64] | None = None

    replayable = True

    @property
    def bounded(self) -> bool:
        return self._rows is not None

    def statistics(self) -> Statistics:
        return Statistics(
            rows=self._rows,
            rate=float(self._rate),
            distinct={f.name: self._keys for f in self.schema if f.name in ("key", "name")},
            nulls={f.name: 0 for f in self.schema},
        )

    def open(self, columns: Sequence[str], offset: Offset | None = None) -> Reader:
        fields = pick(self.schema, columns, self._what)
        row = row_of(offset, self._what)
        clock = self._clock if self.paced else None
        feed = _RateFeed(self, fields, row, clock)
        return BlockReader(feed, Shaper(fields), row=row, offset={"row": row})

    def left(self, row: int) -> int:
        """Number of rows from ``row`` on."""
        return (MAX_ROWS if self._rows is None else min(self._rows, MAX_ROWS)) - row

    def due(self, seconds: float) -> int:
        """Number of rows that have arrived ``seconds`` after the start."""
        return int(Fraction(seconds) * self._rate)

    def wait(self, rows: int) -> float:
        """Seconds until ``rows`` rows have arrived."""
        return float(rows / self._rate)

    def arrival(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Arrival times, exact: takes whole steps of the numerator first, so that no product
        exceeds 64 bits."""
        top, bottom = self._rate.numerator, self._rate.denominator
        whole, rest = rows // top, rows % top
        return self._start + whole * (SECOND * bottom) + rest * (SECOND * bottom) // top

    def make(self, fields: Sequence[Field], first: int, count: int) -> pa.RecordBatch:
        import numpy as np

        rows = np.arange(first, first + count, dtype=np.int64)
        arrays = [self._column(f.name.lower(), rows) for f in fields]
        return batch_of(fields, arrays, count)

    def punctuation(self, row: int) -> tuple[tuple[str, int], ...]:
        """The punctuation before ``row``: no row from ``row`` on has an earlier ``ts``."""
        import numpy as np

        index = self.schema.find("ts")
        if not self._punctuation or index is None:
            return ()
        bound = int(self.arrival(np.array([row], dtype=np.int64))[0]) - self._max_delay
        return ((self.schema[index].name, bound),)

    def _column(self, name: str, rows: npt.NDArray[np.int64]) -> Column:
        match name:
            case "ts":
                return pa.array(self._times(rows)).view(TIMESTAMP.to_arrow())
            case "seq":
                return pa.array(rows)
            case "key":
                return pa.array(self._key(rows))
            case "name":
                return self._name(rows)
            case "value":
                return pa.array(self._uniform(rows, 3))
            case _:
                return pa.array((self._uniform(rows, 4) * 1000).astype("int64"))

    def _times(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        arrival = self.arrival(rows)
        if not self._max_delay:
            return arrival
        late = self._uniform(rows, 0) < self._disorder
        delay = 1 + (self._uniform(rows, 1) * self._max_delay).astype("int64")
        shifted: npt.NDArray[np.int64] = arrival - late * delay
        return shifted

    def _key(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        import numpy as np

        uniform = self._uniform(rows, 2)
        if not self._skew:
            return (uniform * self._keys).astype(np.int64)
        if self._weights is None:
            summed = np.cumsum(np.arange(1, self._keys + 1, dtype=np.float64) ** -self._skew)
            self._weights = summed / summed[-1]
        found = np.searchsorted(self._weights, uniform, side="right")
        return np.minimum(found, self._keys - 1).astype(np.int64)

    def _name(self, rows: npt.NDArray[np.int64]) -> Column:
        """Dictionary-encoded; the dictionary holds the keys of these rows only."""
        import numpy as np

        distinct, codes = np.unique(self._key(rows), return_inverse=True)
        names = pa.array([f"key_{k}" for k in distinct.tolist()], pa.string())
        return pa.DictionaryArray.from_arrays(codes.astype(np.int32), names)

    def _uniform(self, rows: npt.NDArray[np.int64], purpose: int) -> npt.NDArray[np.float64]:
        """[0, 1) by row number: splitmix64 of the row, under a start value of seed and purpose."""
        import numpy as np

        origin = _mix(np.array([(self._seed * 16 + purpose) % 2**64], dtype=np.uint64))[0]
        mixed = _mix(rows.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + origin)
        return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mix(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    import numpy as np

    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _chosen(names: Sequence[str], what: str) -> Schema:
    for name in names:
        if name.lower() not in COLUMNS:
            raise CatalogError(
                f"{what}: the rate generator makes no column {name}",
                hint=did_you_mean(name, COLUMNS, what="it makes"),
            )
    return Schema(tuple(Field(n.lower(), COLUMNS[n.lower()], False) for n in names))


class _RateFeed:
    def __init__(
        self, source: RateSource, fields: Sequence[Field], row: int, clock: Clock | None
    ) -> None:
        self._source = source
        self._fields = fields
        self._row = row
        self._first = row
        self._clock = clock
        self._opened = clock.now() if clock is not None else 0.0

    def take(self, limit: int, timeout: float | None) -> Piece | End | None:
        count = min(limit, self._source.left(self._row))
        if count <= 0:
            return END
        if self._clock is not None:
            count = min(count, self._await(self._clock, timeout))
            if count == 0:
                return None
        row, self._row = self._row, self._row + count
        batch = self._source.make(self._fields, row, count)
        return Piece(
            Rows(batch),
            lambda k: {"row": row + k},
            "the rate generator",
            row,
            lambda k: self._source.punctuation(row + k),
        )

    def _await(self, clock: Clock, timeout: float | None) -> int:
        """Number of rows that the clock has released. Waits for at least one row, up to
        ``timeout``."""
        made = self._row - self._first
        until = self._opened + self._source.wait(made + 1)
        now = clock.now()
        if now < until:
            clock.sleep(until - now if timeout is None else min(timeout, until - now))
        released = self._source.due(clock.now() - self._opened) - made
        # Rounding of the clock may leave the awaited row a hair away: it then counts as due.
        return max(released, 1) if clock.now() >= until else max(released, 0)

    def close(self) -> None:
        self._row = MAX_ROWS
