"""Queries over an update stream in real time: ten times as many updates of the symbols of figure 8
of the UpStream report as the query can take.

Every answer is traced to the update behind it, so the staleness of each key is known from outside
the engine: when an answer comes, it is the time since the first update of its key that no earlier
answer has covered.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

import cql
from benchmarks import machine
from benchmarks.figure import Check, Figure
from benchmarks.updates import SYMBOLS, symbol_counts
from benchmarks.workloads import Column

#: Seconds of a run, cost of an update in nanoseconds, updates per update that the query can take.
SECONDS, COST, LOAD = 8.0, 100_000, 10
QUEUES = ("in_place", "linecutting", "fifo", "append")
#: The most active keys that FIFO starves.
FAST = 10
_BLOCK = 0.001
_SCHEMA = pa.schema([pa.field(name, pa.int64(), False) for name in ("ts", "symbol")])
_QUOTE = (
    '"the application cares more about freshness than completeness" (§3.2); "IN-PLACE policy'
    " results in the lowest average staleness that can be achieved when the update frequencies of"
    ' the update keys are uniformly distributed" (§5.2)'
)


def spin(x: int) -> int:
    until = time.perf_counter_ns() + COST
    while time.perf_counter_ns() < until:
        pass
    return x


@dataclass(frozen=True, slots=True)
class Answers:
    """Of one run: the largest staleness of each key in seconds, answers by key, seconds per answer,
    and the resident memory of the process in MB, early in the run and at its end."""

    stalest: Column
    answers: Column
    cost: float
    early: float
    late: float
    state_bytes: int


def figures(rows: int | None = None) -> Iterator[Figure]:
    """``rows``: updates of a run."""
    rate = LOAD * 1_000_000_000 // COST
    updates = rows or int(SECONDS * rate)
    counts = symbol_counts()
    shares = counts / counts.sum()
    ids = np.random.default_rng(8).choice(SYMBOLS, updates, p=shares).astype(np.int64)
    _run("in_place", ids[: rate // 5], rate)  # kernels compile
    runs = {queue: _run(queue, ids, rate) for queue in QUEUES}
    ranks = np.unique(np.geomspace(1, SYMBOLS, 10).astype(np.int64)) - 1
    mine, fifo = runs["in_place"], runs["fifo"]
    bound = SYMBOLS * mine.cost + 0.1
    growth, worst = mine.late - mine.early, float(np.nanmax(mine.stalest))
    unanswered = float((mine.answers == 0)[np.unique(ids)].sum())
    fast = int((fifo.answers[:FAST] < 2).sum())
    yield Figure(
        "updates-live",
        f"{SYMBOLS:,} symbols at {LOAD} times the load, {updates / rate:.0f} seconds in real time",
        (_QUOTE,),
        "rank of the symbol",
        (ranks + 1).tolist(),
        "largest staleness in seconds",
        {queue: run.stalest[ranks].tolist() for queue, run in runs.items()},
        [
            Check(
                "IN-PLACE: largest staleness of any key in seconds",
                worst,
                f"keys × cost of an answer + 0.1 s: under {bound:.2f}",
                worst < bound,
            ),
            Check(
                "IN-PLACE: symbols without an answer",
                unanswered,
                "none",
                unanswered == 0,
            ),
            Check(
                f"FIFO: of the {FAST} most active keys, those with less than two answers",
                float(fast),
                "most: each new update sends a key back to the end",
                fast > FAST // 2,
            ),
            Check(
                "IN-PLACE: growth of memory from a quarter of the run on, in MB",
                growth,
                "flat: under 20",
                growth < 20,
            ),
            Check("IN-PLACE: state of the queue at the end, in MB", mine.state_bytes / 1e6),
            *(
                Check(f"{queue}: mean of the largest staleness of the keys", _mean(run))
                for queue, run in runs.items()
            ),
        ],
        log_x=True,
        log_y=True,
    )


def _mean(run: Answers) -> float:
    return float(np.nanmean(run.stalest))


def _paced(ids: Column, rate: int, born: Column) -> Iterator[pa.RecordBatch]:
    """Updates at ``rate`` per second; ``born`` receives the arrival of each in nanoseconds."""
    together, start = max(int(rate * _BLOCK), 1), time.perf_counter_ns()
    for first in range(0, len(ids), together):
        due = start + first * 1_000_000_000 // rate
        while (wait := due - time.perf_counter_ns()) > 0:
            time.sleep(wait / 1e9)
        rows = slice(first, min(first + together, len(ids)))
        born[rows] = time.perf_counter_ns()
        numbers = np.arange(rows.start, rows.stop)
        yield pa.RecordBatch.from_arrays([numbers, ids[rows]], schema=_SCHEMA)


def _run(queue: str, ids: Column, rate: int) -> Answers:
    """Reads as long as updates come, and then no longer than a second."""
    born = np.zeros(len(ids), np.int64)
    seen: list[tuple[int, Column]] = []
    quarter, early = len(ids) // 4, 0.0
    with cql.connect(spark=False) as session:
        session.set("queue", queue)
        session.register_function("spin", spin)
        session.create_stream(
            "s", _paced(ids, rate, born), ordered_by="ts", update_key="symbol", bounded=False
        )
        asked: Any = session.sql("SELECT ts AS number, spin(symbol) AS x FROM s")
        state = 0
        for batch in asked:
            now = time.perf_counter_ns()
            seen.append((now, batch.column("number").to_numpy()))
            if not early and born[quarter]:
                early = machine.resident_mb()
            if born[-1]:
                state = asked.metrics()[0]["state_bytes"]
                if now > born[-1] + 1_000_000_000:
                    break
        late = machine.resident_mb()
    return _traced(ids, born, seen, early, late, state)


def _traced(
    ids: Column, born: Column, seen: list[tuple[int, Column]], early: float, late: float, state: int
) -> Answers:
    times = np.repeat([at for at, _ in seen], [len(n) for _, n in seen])
    numbers = np.concatenate([n for _, n in seen])
    stalest, answers = np.full(SYMBOLS, np.nan), np.zeros(SYMBOLS, np.int64)
    end = int(born[-1])
    order = np.argsort(ids, kind="stable")  # the updates of each key, in order
    starts = np.searchsorted(ids[order], np.arange(SYMBOLS + 1))
    by_key = np.argsort(ids[numbers], kind="stable")
    of_key = np.searchsorted(ids[numbers][by_key], np.arange(SYMBOLS + 1))
    for key in range(SYMBOLS):
        updates = order[starts[key] : starts[key + 1]]
        found = by_key[of_key[key] : of_key[key + 1]]
        answers[key] = len(found)
        if not len(updates):
            continue
        # The first update behind each answer is the oldest that the next answer covers.
        behind = np.searchsorted(updates, numbers[found], side="right")
        first = np.concatenate([[0], behind])
        until = np.concatenate([times[found], [end]])
        open_ = first < len(updates)
        waited = until[open_] - born[updates[first[open_]]]
        stalest[key] = max(waited.max(initial=0), 0) / 1e9
    spent = (int(times[-1]) - int(born[0])) / 1e9
    return Answers(stalest, answers, spent / len(numbers), early, late, state)
