"""Joins without cliffs: the cost per row and per pair if one key has most of the rows, if partners
are far away or missing, if all rows are partners, and if the pairs exceed memory.

These figures are ours, not the papers': the cost may grow with the output, but no faster."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

import cql
from benchmarks import machine
from benchmarks.figure import Check, Figure
from benchmarks.workloads import SECOND, T0, Column

#: Rows per side, RATE per second; and the rows of the last figure, which all match each other.
ROWS, RATE, CROWD = 200_000, 10_000, 33_000
KEYS = 5_000
MS = 1_000
SHARES = (0.0, 0.1, 0.25, 0.5, 1.0)
FAR = (0, 10 * MS, 100 * MS, SECOND, 5 * SECOND, 100 * SECOND)
WIDE = (0, MS, 100 * MS, SECOND, 10 * SECOND, 100 * SECOND)
COST = "ns for each row and pair"
_HALF = 0.5


def figures(rows: int | None = None) -> Iterator[Figure]:
    """``rows``: rows per side, instead of ROWS."""
    n = rows or ROWS
    yield _costs(
        "keys",
        "rows of which a share has one key, 5 ms either way",
        "share of rows with one key",
        SHARES,
        [_Join(n, share, -5 * MS, 5 * MS) for share in SHARES],
    )
    yield _costs(
        "far",
        "half of the rows with one key, partners within 1 ms that lie further and further away",
        "distance in s",
        [far / SECOND for far in FAR],
        [_Join(n, _HALF, far, far + MS) for far in FAR],
    )
    yield _costs(
        "wide",
        "a band from next to nothing to everything",
        "band either way in s",
        [wide / SECOND for wide in WIDE],
        [_Join(n, 0.0, -wide, wide) for wide in WIDE],
    )
    yield _crowd(min(n, CROWD))


class _Join:
    """``n`` rows per side; a ``share`` of them has one key. Partners are ``low`` to ``high``
    microseconds later."""

    def __init__(self, n: int, share: float, low: int, high: int) -> None:
        rng = np.random.default_rng(3)
        left, right = (self._side(rng, n, share) for _ in range(2))
        self.rows = 2 * n
        self.pairs = _pairs(left, right, low, high)
        self._tables = [
            pa.table({"ts": pa.array(ts).view(pa.timestamp("us", "UTC")), "k": k})
            for ts, k in (left, right)
        ]
        self._condition = f"""a.k = b.k AND b.ts >= a.ts + INTERVAL '{low}' MICROSECOND
            AND b.ts <= a.ts + INTERVAL '{high}' MICROSECOND"""

    @staticmethod
    def _side(rng: np.random.Generator, n: int, share: float) -> tuple[Column, Column]:
        ts = np.sort(rng.integers(0, n * SECOND // RATE, n)) + T0
        return ts, np.where(rng.random(n) < share, 0, rng.integers(1, KEYS, n))

    def run(self, columns: str, see: Callable[[pa.RecordBatch], int]) -> tuple[float, int]:
        """CPU seconds, and the sum of ``see`` over all batches."""
        with cql.connect(spark=False) as session:
            for name, table in zip("ab", self._tables, strict=True):
                session.create_stream(name, table, ordered_by="ts")
            query: Any = session.sql(f"SELECT {columns} FROM a JOIN b ON {self._condition}")
            started = time.process_time()
            seen = sum(see(batch) for batch in query)
            return time.process_time() - started, seen


def _pairs(left: tuple[Column, Column], right: tuple[Column, Column], low: int, high: int) -> int:
    """The number of pairs, by binary search in the right side sorted by key and time."""
    far = np.int64(1) << 40
    lasts = np.sort(right[1] * far + (right[0] - T0))
    at, first = left[0] - T0, left[1] * far
    ends = np.searchsorted(lasts, first + np.minimum(at + high, far - 1), "right")
    starts = np.searchsorted(lasts, first + np.maximum(at + low, 0), "left")
    return int(np.maximum(ends - starts, 0).sum())


def _costs(
    name: str, title: str, x_label: str, x: Sequence[float], joins: Sequence[_Join]
) -> Figure:
    """The least CPU time of three runs each, less the time of a query over few rows."""
    made, right = [], True

    def count(batch: pa.RecordBatch) -> int:
        return int(batch.column(0)[0].as_py())

    _Join(100, 0.0, -MS, MS).run("count(*) AS n", count)  # compiles
    fixed = min(_Join(100, 0.0, -MS, MS).run("count(*) AS n", count)[0] for _ in range(3))
    for join in joins:
        runs = [join.run("count(*) AS n", count) for _ in range(3)]
        right &= all(pairs == join.pairs for _, pairs in runs)
        spent = max(0.0, min(seconds for seconds, _ in runs) - fixed)
        made.append(1e9 * spent / (join.rows + join.pairs))
    dearest = max(made) / made[0] if made[0] else 1.0
    return Figure(
        f"join-{name}",
        f"A join of {joins[0].rows // 2:,} rows a side: {title}",
        ("No cliff worse than the size of the output explains.",),
        x_label,
        x,
        COST,
        {"ours": made},
        [Check("the dearest : the first", dearest, "at most 4", dearest <= 4)],
        right,
        log_x=name != "keys",
    )


def _crowd(n: int) -> Figure:
    """All rows match each other; the pairs pass batch by batch."""
    sizes = [n // 4, n // 2, n]
    grown, gigabytes, right = [], [], True
    width = 3 * 8
    for size in sizes:
        join = _Join(size, 1.0, -100 * SECOND, 100 * SECOND)
        machine.give_back()
        machine.forget_peak()
        before = machine.resident_mb()
        _, pairs = join.run("a.ts AS one, b.ts AS other, a.k", lambda batch: batch.num_rows)
        grown.append(max(0.0, machine.peak_mb() - before))
        gigabytes.append(pairs * width / 1e9)
        right &= pairs == join.pairs == size * size
    share = grown[-1] / 1e3 / gigabytes[-1]
    return Figure(
        "join-crowd",
        "A join in which all rows find each other, its pairs read batch by batch",
        ("Output larger than memory streams through.",),
        "GB of pairs",
        gigabytes,
        "MB of memory more than before",
        {"ours": grown},
        [Check("memory : pairs, at the most", share, "at most 0.02", share <= 0.02)],
        right,
    )
