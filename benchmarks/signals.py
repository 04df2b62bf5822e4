"""STATFILTER and SILENCEFILTER of the XStream paper (table I): as segments, as a row for each
sample (NoSigSeg there), and as bare kernels."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numba import int64, njit

import cql
from benchmarks.harness import Benchmark, Contender, Ratio
from benchmarks.workloads import Answer, sums

#: Samples: about the 38 minutes that the paper's rate takes a second for.
SAMPLES = 100_000_000
WINDOW, RATE = 4096, 44_100
ALPHA, BETA, GAMMA = 500, 0, 500

STATFILTER = f"""
    SELECT window_start FROM (
        SELECT ch0, window_start FROM audio [ROWS {WINDOW} SLIDE {WINDOW}]
        WHERE stddev(ch0) > {ALPHA}
    ) AS varied WHERE avg(ch0) < {BETA}"""
STATFILTER_BY_SAMPLE = f"""
    SELECT k FROM (
        SELECT min(k) AS k, stddev(ch0) AS spread, avg(ch0) AS mean
        FROM samples [RANGE {WINDOW} SLIDE {WINDOW}]
    ) AS varied WHERE spread > {ALPHA} AND mean < {BETA}"""
SILENCEFILTER = f"""
    SELECT sound.ch0 FROM (
        SELECT window_start, window_end FROM audio [ROWS {WINDOW} SLIDE {WINDOW}]
        WHERE stddev(ch0) > {GAMMA}
    ) AS loud, audio AS sound
    WHERE sound.time >= loud.window_start AND sound.time < loud.window_end"""


def sound(samples: int) -> np.ndarray[Any, np.dtype[np.int16]]:
    """Noise whose loudness changes every 20,000 samples."""
    rng = np.random.default_rng(2008)
    once = rng.normal(size=min(samples, 4_000_000))
    loudness = np.repeat(rng.integers(0, 1000, len(once) // 20_000 + 1), 20_000)[: len(once)]
    piece = (once * loudness).astype(np.int16)
    return np.resize(piece, samples)


@njit(nogil=True)
def _spread(x: Any, first: int) -> float:
    s, q = int64(0), int64(0)
    for i in range(first, first + WINDOW):
        a = np.int32(x[i])
        s += a
        q += int64(np.int32(a * a))
    return math.sqrt((q - s * (s / WINDOW)) / (WINDOW - 1))


@njit(nogil=True)
def _statfilter(x: Any, found: Any) -> int:
    n = 0
    for window in range(x.size // WINDOW):
        first = window * WINDOW
        if _spread(x, first) > ALPHA:
            total = int64(0)
            for i in range(first, first + WINDOW):
                total += x[i]
            if total / WINDOW < BETA:
                found[n] = first
                n += 1
    return n


@njit(nogil=True)
def _silencefilter(x: Any, found: Any) -> int:
    n = 0
    for window in range(x.size // WINDOW):
        first = window * WINDOW
        if _spread(x, first) > GAMMA:
            found[n : n + WINDOW] = x[first : first + WINDOW]
            n += WINDOW
    return n


class _Ours:
    def __init__(self, query: str, samples: Any) -> None:
        self.session = cql.connect(spark=False)
        self.session.set("workers", 1)
        if "samples" in query:
            numbers = np.arange(len(samples))
            table = pa.table({"k": numbers, "ch0": samples})
            self.session.create_stream("samples", table, ordered_by="k")
        else:
            self.session.create_stream("audio", pa.table({"ch0": samples}), rate=RATE)
        self.query = query

    def run(self) -> Any:
        return self.session.sql(self.query).to_arrow()


def statfilter(rows: int | None = None, folder: Path | None = None) -> Benchmark:
    """The windows that pass: the number of the first sample of each."""
    x = sound(rows or SAMPLES)
    found = np.empty(len(x) // WINDOW, np.int64)
    expected = _sums(found[: _statfilter(x, found)])
    ours, by_sample = _Ours(STATFILTER, x), _Ours(STATFILTER_BY_SAMPLE, x)
    contenders = [
        Contender("bare kernel", lambda: found[: _statfilter(x, found)], _sums, pinned=True),
        Contender("segments", ours.run, lambda t: _sums(_firsts(t)), pinned=True),
        Contender(
            "a row for each sample",
            by_sample.run,
            lambda t: _sums(t.column(0).to_numpy()),
            pinned=True,
        ),
    ]
    ratios = [Ratio("segments", "bare kernel", 0.6), Ratio("segments", "a row for each sample")]
    title = f"STATFILTER: {len(x):,} samples in memory"
    return Benchmark("statfilter", title, len(x), expected, contenders, ratios)


def silencefilter(rows: int | None = None, folder: Path | None = None) -> Benchmark:
    """The samples of the windows that are not silent."""
    x = sound(rows or SAMPLES)
    found = np.empty(len(x), np.int16)
    expected = _sums(found[: _silencefilter(x, found)])
    ours = _Ours(SILENCEFILTER, x)
    contenders = [
        Contender("bare kernel", lambda: found[: _silencefilter(x, found)], _sums, pinned=True),
        Contender(
            "segments, sync",
            ours.run,
            lambda t: _sums(np.concatenate([c.values.to_numpy() for c in t.column(0).chunks])),
            pinned=True,
        ),
    ]
    ratios = [Ratio("segments, sync", "bare kernel", 0.6)]
    title = f"SILENCEFILTER: {len(x):,} samples in memory"
    return Benchmark("silencefilter", title, len(x), expected, contenders, ratios)


def _sums(values: Any) -> Answer:
    wide = np.asarray(values, np.int64)
    return sums(wide, wide * (np.arange(len(wide)) % 1009))


def _firsts(table: Any) -> Any:
    """The numbers of the samples that begin at the times."""
    micros = table.column(0).cast("int64").to_numpy()
    return np.round(micros * (RATE / 1e6)).astype(np.int64)
