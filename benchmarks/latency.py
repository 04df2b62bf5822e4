"""Latency of the ordered runtime, at half of its maximal load: from when workers begin with rows
until their results have left. And end-to-end latency: from the push of an event until Python
receives its result.

The first is the processing latency of the ordered-multicore paper (§7), whose text says that LP
has the lowest, "followed closely by CT", of "a few milliseconds"."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

import cql
from benchmarks.figure import Check, Figure
from benchmarks.multicore_runs import Observed, cores
from benchmarks.multicore_tuples import EXPENSIVE, ROW_COST
from benchmarks.workloads import Column

HEURISTICS = ("lp", "ct")
PERCENTILES = (50.0, 90.0, 99.0)
#: Seconds of a run, of which only the middle part counts; events pushed per second.
SECONDS, PUSHED = 3.0, 10_000
#: Goals in milliseconds.
HALF_P50, HALF_P99, PUSHED_P50 = 0.5, 5.0, 1.0
_FIRST, _LAST = 0.2, 0.8
_BLOCK_MS = 1
_KEYS = 100
_SCHEMA = pa.schema([pa.field(name, pa.int64(), False) for name in ("ts", "k", "id")])
#: ``id`` connects a result with the row behind it.
_WORK = f"SELECT id, {EXPENSIVE.replace('x +', 'k +')} AS y FROM s"
_FILTER = "SELECT id, k FROM s WHERE k >= 0"
_COUNT = "SELECT k, count(*) AS n, max(id) AS id FROM s [RANGE 1 SLIDE 1] GROUP BY k"


def figures(rows: int | None = None) -> Iterator[Figure]:
    """``rows``: events pushed in a run, instead of SECONDS · PUSHED."""
    pushed = rows or int(SECONDS * PUSHED)
    yield _at_half_load(pushed / PUSHED)
    yield _end_to_end(pushed)


def _at_half_load(seconds: float) -> Figure:
    """Half of the rows that all cores could take, a microsecond of work each."""
    workers = cores()
    rate = int(0.5 * workers * 1e9 / ROW_COST)
    series = {}
    for heuristic in HEURISTICS:
        settings = {"runtime": "ordered", "workers": workers, "scheduler": heuristic}
        for time_of_run in (0.2, seconds):  # kernels compile in the first
            times = _processing(_WORK, int(rate * time_of_run), rate, settings)
        series[heuristic] = [float(v) for v in np.percentile(times, PERCENTILES)]
    checks = [
        check
        for name, (half, _, most) in series.items()
        for check in (
            Check(f"{name}: p50 in ms", half, f"under {HALF_P50}", half < HALF_P50),
            Check(f"{name}: p99 in ms", most, f"under {HALF_P99}", most < HALF_P99),
        )
    ]
    return Figure(
        "latency-processing",
        f"Processing latency at half load: {rate:,} rows a second, a microsecond of work each,"
        f" {workers} workers",
        (
            '"LP is the best heuristic for low-latency processing, followed closely by CT. It'
            ' achieves latencies as low as a few milliseconds" (§7.1)',
        ),
        "percentile of morsels",
        PERCENTILES,
        "ms",
        series,
        checks,
    )


def _end_to_end(pushed: int) -> Figure:
    cases: dict[str, tuple[str, dict[str, Any]]] = {
        "filter, depth first": (_FILTER, {"runtime": "depth_first"}),
        "count by key, depth first": (_COUNT, {"runtime": "depth_first"}),
    }
    for heuristic in HEURISTICS:
        ordered = {"runtime": "ordered", "workers": cores(), "scheduler": heuristic}
        cases[f"filter, {heuristic}"] = _FILTER, ordered
        cases[f"count by key, {heuristic}"] = _COUNT, ordered
    series, right = {}, True
    for name, (query, settings) in cases.items():
        for n in (pushed // 10, pushed):
            waited = _pushed(query, n, PUSHED, settings)
        right &= len(waited) == pushed
        middle = waited[int(_FIRST * len(waited)) : int(_LAST * len(waited))]
        series[name] = [float(v) for v in np.percentile(middle, PERCENTILES)]
    return Figure(
        "latency-end-to-end",
        f"From an event's push to its result in Python: {PUSHED:,} events a second",
        (),
        "percentile of events",
        PERCENTILES,
        "ms",
        series,
        [
            Check(f"{name}: p50 in ms", found[0], f"under {PUSHED_P50}", found[0] < PUSHED_P50)
            for name, found in series.items()
        ],
        right,
    )


def _paced(n: int, rate: int, born: Column) -> Iterator[pa.RecordBatch]:
    """``n`` rows at ``rate`` rows per second, in blocks of a millisecond; ``born`` receives the
    arrival time of each row in nanoseconds."""
    rng = np.random.default_rng(1)
    ids, keys = np.arange(n), rng.integers(0, _KEYS, n)
    together = max(rate * _BLOCK_MS // 1000, 1)
    start = time.perf_counter_ns()
    for first in range(0, n, together):
        due = start + first * 1_000_000_000 // rate
        while (wait := due - time.perf_counter_ns()) > 0:
            time.sleep(wait / 1e9)
        rows = slice(first, min(first + together, n))
        born[rows] = time.perf_counter_ns()
        yield pa.RecordBatch.from_arrays([ids[rows], keys[rows], ids[rows]], schema=_SCHEMA)


def _run(
    query: str,
    n: int,
    rate: int,
    settings: dict[str, Any],
    see: Callable[[pa.RecordBatch], None],
    observed: Observed | None = None,
) -> Column:
    """The arrival time of each row in nanoseconds."""
    born = np.zeros(n, np.int64)
    with cql.connect(spark=False) as session:
        for name, value in settings.items():
            session.set(name, value)
        session.create_stream("s", _paced(n, rate, born), ordered_by="ts", bounded=False)
        asked: Any = session.sql(query)
        for batch in asked if observed is None else observed.batches(session, asked):
            see(batch)
    return born


def _pushed(query: str, n: int, rate: int, settings: dict[str, Any]) -> Column:
    """Milliseconds of each event, from its push to its result."""
    seen = np.zeros(n, np.int64)

    def see(batch: pa.RecordBatch) -> None:
        seen[batch.column("id").to_numpy()] = time.perf_counter_ns()

    born = _run(query, n, rate, settings, see)
    return (seen - born)[seen > 0] / 1e6


def _processing(query: str, n: int, rate: int, settings: dict[str, Any]) -> Column:
    """Milliseconds per morsel, from its start at a worker until its results have left."""
    observed = Observed()
    _run(query, n, rate, settings, lambda _: None, observed)
    return observed.latencies() / 1e6
