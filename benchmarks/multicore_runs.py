"""Runs under the ordered runtime with measurements per task, and their conversion into simulated
tasks. ``SET fuse = off`` makes every operator a task."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import nan
from statistics import median
from threading import Thread
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numba import njit

import cql
from benchmarks.multicore_model import FIRST, LAST, PARTITIONED, Machine, Task
from cql.executor.graph.graph import SINK
from cql.executor.kernels.lib import condition
from cql.executor.kernels.lib.atomics import fetch_add
from cql.executor.kernels.lib.clock import nanoseconds
from cql.executor.kernels.lib.memory import words
from cql.executor.kernels.ordered import markers, tables
from cql.executor.morsel.ingest import Feed
from cql.executor.morsel.morsel import Words
from cql.executor.operators.flow.replicas import PartitionedOperator
from cql.executor.run.execution import Execution
from cql.executor.runtimes.tables import Tasks, looks

#: The degrees of parallelism in the figures; only those up to the number of cores are measured.
DEGREES = (1, 2, 4, 8, 12, 16)
#: The most partitions of an operator, and the partitions of the run that gives the cost of few.
MOST_PARTITIONS, FEW_PARTITIONS = 64, 8
#: The most morsels that are timed.
_MARKED = 1 << 17
K = TypeVar("K")
#: Chooses the two tasks between which morsels are timed.
Ends = Callable[[Tasks], tuple[int, int]]


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def degrees() -> list[int]:
    return [n for n in DEGREES if n <= cores()]


@dataclass(frozen=True, slots=True)
class Sizes:
    """``rows`` of each stream of TPCx-BB; ``seconds`` of work per run of parametric operators;
    simulated ``morsels`` per worker; and the number of measurements ``times``, including the first
    one, which compiles."""

    rows: int = 1_000_000
    seconds: float = 0.5
    morsels: int = 300
    times: int = 5

    @classmethod
    def of(cls, rows: int | None) -> Sizes:
        """The sizes of a run over ``rows`` rows; None: the full sizes."""
        if rows is None:
            return cls()
        share = rows / cls().rows
        return cls(rows, 0.5 * share, max(50, round(300 * share)))


# -- runs ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Use:
    """Measurements of a task: morsels in and out, and ``busy`` nanoseconds of workers. ``host``:
    Python runs the task. ``borrows``: outputs show columns of inputs. ``parts``: rows per
    partition; ``fragments``: the number of pieces in which they arrived."""

    name: str
    kind: int
    host: bool
    borrows: bool
    inputs: int
    outputs: int
    busy: int
    fragments: int = 0
    parts: Sequence[int] = ()


def uses_of(tasks: Tasks) -> list[Use]:
    """The measurements of all tasks, in their order."""
    found = []
    for s, k in enumerate(tasks.order):
        operator, words = tasks.graph.operators[k], tasks.task(s)
        use = Use(
            operator.name,
            int(words[tables.KIND]),
            host=operator.any_instance.address == 0,
            borrows=bool(words[tables.BORROWS]),
            inputs=int(words[tables.NEXT]),
            outputs=int(words[tables.MADE]),
            busy=int(words[tables.TIME]),
        )
        if isinstance(operator, PartitionedOperator):
            rows = [instance.counters()["rows_in"] for instance in operator.instances]
            use = replace(use, fragments=int(words[tables.COUNT]), parts=rows)
        found.append(use)
    return found


def mark(tasks: Tasks, first: int, last: int, marks: Words) -> None:
    """Starts to time morsels, by serial number, from their start at task ``first`` until task
    ``last`` is through with them, in records of ``markers.MARK`` words. Call it before the first
    morsel."""
    plan = tasks.plan
    plan[tables.MARKS], plan[tables.MARKED] = marks.ctypes.data, len(marks)
    plan[tables.MARKED_FROM] = tasks.task(first).ctypes.data
    plan[tables.MARKED_TO] = tasks.task(last).ctypes.data


@dataclass(frozen=True, slots=True)
class Run:
    """``seconds`` from the start of the first morsel until the last one has left. Over the timed
    morsels in the 20th to 80th percentile, ``latency`` is the mean processing latency in
    nanoseconds, and ``pace`` the morsels that left per second (NaN: too few). ``path`` are the
    ``uses`` of the tasks behind the longest input. ``reading``: total nanoseconds of reading."""

    rows: int
    seconds: float
    latency: float
    pace: float
    uses: Sequence[Use]
    path: Sequence[Use]
    reading: float
    answer: Any

    @property
    def throughput(self) -> float:
        """Rows per second."""
        return self.rows / self.seconds


def whole(tasks: Tasks) -> tuple[int, int]:
    return 0, len(tasks.order) - 1


def first(tasks: Tasks) -> tuple[int, int]:
    return 0, 0


def partitions(tasks: Tasks) -> tuple[int, int]:
    """The first partitioned task alone, for the latency of figure 10."""
    kinds = [use.kind for use in uses_of(tasks)]
    return (kinds.index(PARTITIONED),) * 2


class Observed:
    """An observer of the ordered runtime. It times morsels between the tasks ``ends``, and keeps
    the measurements at the end of the run. ``path`` are the ``uses`` of the tasks behind the
    longest input."""

    def __init__(self, ends: Ends = whole) -> None:
        self.marks = np.zeros((_MARKED, markers.MARK), np.int64)
        self.uses: Sequence[Use] = ()
        self.path: Sequence[Use] = ()
        self.reading = 0.0
        self._feeds: Sequence[Feed] = ()
        self._ends = ends

    def batches(self, session: cql.Session, query: cql.Query) -> Iterator[pa.RecordBatch]:
        """The result batches of an observed run of ``query``."""
        execution = Execution(query._plan, session.settings, observer=self)
        self._feeds = execution.feeds
        with query._one_run(execution.queries[0]) as made:
            yield from made.batches()
        assert self.uses, "it ran depth first"

    def begun(self, tasks: Tasks) -> None:
        mark(tasks, *self._ends(tasks), self.marks)

    def ended(self, tasks: Tasks) -> None:
        self.uses = uses_of(tasks)
        self.reading = float(sum(feed.nanoseconds for feed in self._feeds))
        self.path = _path(tasks, self.uses)

    def latencies(self) -> Words:
        """Nanoseconds of each timed morsel in the 20th to 80th percentile."""
        counts = self.counting()
        return counts[:, markers.LEFT] - counts[:, markers.ENTERED]

    def counting(self) -> Words:
        """The marks of the finished morsels in the 20th to 80th percentile."""
        through = self.marks[self.marks[:, markers.LEFT] > 0]
        return through[round(FIRST * len(through)) : max(round(LAST * len(through)), 1)]


def _path(tasks: Tasks, uses: Sequence[Use]) -> list[Use]:
    firsts = [tasks.place[edge.target] for edge in tasks.entries]
    reached = {max(firsts, key=lambda s: uses[s].inputs)}
    for s, k in enumerate(tasks.order):  # feeders precede the tasks that they feed
        if s in reached:
            edges = tasks.graph.edges[k]
            reached |= {tasks.place[e.target] for e in edges if e.target != SINK}
    return [use for s, use in enumerate(uses) if s in reached]


def run(session: cql.Session, text: str, rows: int, ends: Ends = whole, **settings: Any) -> Run:
    """Runs a query under the ordered runtime, every operator a task."""
    for name, value in {"runtime": "ordered", "fuse": "off", **settings}.items():
        session.set(name, value)
    query: Any = session.sql(text)
    observed = Observed(ends)
    answer = query._table_of(observed.batches(session, query))
    times = observed.marks[observed.marks[:, markers.ENTERED] > 0][:, : markers.LEFT + 1]
    seconds = float(times.max() - times[:, markers.ENTERED].min()) / 1e9
    counts = observed.counting()
    latency = pace = nan
    if len(counts) > 1:
        left = counts[:, markers.LEFT]
        latency = float(observed.latencies().mean())
        pace = 1e9 * (len(counts) - 1) / max(float(left[-1] - left[0]), 1.0)
    return Run(rows, seconds, latency, pace, observed.uses, observed.path, observed.reading, answer)


def in_turns(times: int, trials: Mapping[K, Callable[[], Run]]) -> dict[K, Run]:
    """The fastest run of each trial, since other load on the machine only adds time. Trials take
    turns (A B C A B C …), so that a permanent neighbour affects all of them."""
    rounds = [{name: trial() for name, trial in trials.items()} for _ in range(times)]
    return {n: min((made[n] for made in rounds), key=lambda run: run.seconds) for n in trials}


# -- the machine that is simulated -----------------------------------------------------------------

#: Nanoseconds of a look without success: through all tasks, and 20 pauses.
_LOOK = 500.0


def engine(n: int, **settings: Any) -> Machine:
    """A model of the ordered runtime on ``n`` cores of this machine."""
    return Machine(n, leader=True, looks=looks(n, n, live=False) * _LOOK, rouse=rouse(), **settings)


@cache
def rouse() -> float:
    """Median nanoseconds from waking a sleeping worker until it continues."""
    bed, out, scratch = (np.zeros(n, np.int64) for n in (condition.BED, 1, 4))
    condition.make_bed(bed.ctypes.data)
    took = []
    for _ in range(100):
        args = bed.ctypes.data, out.ctypes.data, scratch.ctypes.data
        sleeper = Thread(target=_sleeps, args=args)
        sleeper.start()
        time.sleep(0.003)
        asleep, now = bed[condition.SLEEPERS], _wakes(bed.ctypes.data, scratch.ctypes.data + 16)
        sleeper.join()
        if asleep:
            took.append(int(out[0]) - now)
    return float(median(took)) if took else 0.0


@njit(nogil=True)
def _sleeps(bed: int, out: int, scratch: int) -> None:
    seen = condition.wakes(bed)
    fetch_add(bed + 8 * condition.SLEEPERS, 1)
    condition.lie_down(bed, seen, 50_000_000, scratch)
    words(out, 1)[0] = nanoseconds(scratch)


@njit(nogil=True)
def _wakes(bed: int, scratch: int) -> int:
    now: int = nanoseconds(scratch)
    condition.wake(bed)
    return now


# -- from what was measured to what is simulated ---------------------------------------------------


def chain_of(
    few: Run, many: Run, parts: int, step: float, kinds: Sequence[int] | None = None
) -> list[Task]:
    """The tasks of a query as one chain (several branches one behind the other) with the costs of
    two one-worker runs: ``few`` partitions, and ``MOST_PARTITIONS``; their difference gives the
    cost of a fragment. The tasks are simulated in ``parts`` partitions. ``step`` is the time that
    the simulation adds per input and per output.

    ``kinds`` replaces the kinds of the tasks: inputs are then tuples, each of one partition, and
    nothing runs in Python."""
    used = [(u, fine) for u, fine in zip(few.path, many.path, strict=True) if u.inputs > 0]
    chain = []
    for k, (use, fine) in enumerate(used):
        after = used[k + 1][0].inputs if k + 1 < len(used) else use.outputs
        kind = use.kind if kinds is None else kinds[k]
        cost, selectivity, fragment = use.busy / use.inputs, after / use.inputs, 0.0
        if use.kind == PARTITIONED:
            fragment = max(fine.busy - use.busy, 0) / max(fine.fragments - use.fragments, 1)
            fragment = min(fragment, use.busy / max(use.fragments, 1))
            cost -= fragment * use.fragments / use.inputs
        task = Task(kind, max(cost - step * (1 + selectivity), 0.0), selectivity)
        if kind == PARTITIONED:
            shares = np.ones(parts)
            if use.kind == PARTITIONED:
                shares = np.reshape(fine.parts, (parts, -1)).sum(axis=1)
            task = replace(task, shares=tuple((shares / shares.sum()).tolist()))
        if kinds is None:
            scattered = kind == PARTITIONED
            task = replace(
                task, scattered=scattered, fragment=fragment, host=use.host, shows=use.borrows
            )
        chain.append(task)
    return chain
