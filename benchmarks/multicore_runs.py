"""Runs under the ordered runtime of which its tasks tell what they did, and what they are
simulated as. ``SET fuse = off`` makes every operator a task."""

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
from cql.executor.operators.flow.replicas import PartedOperator
from cql.executor.run.execution import Execution
from cql.executor.runtimes.tables import Tasks, looks

#: The degrees of parallelism of the figures; those that this machine has cores for are measured.
DEGREES = (1, 2, 4, 8, 12, 16)
#: Partitions of an operator at most, and of the run that tells what few of them cost.
MOST_PARTITIONS, FEW_PARTITIONS = 64, 8
#: Morsels that are timed at most.
_MARKED = 1 << 17
K = TypeVar("K")
#: Which tasks a morsel is timed between.
Ends = Callable[[Tasks], tuple[int, int]]


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def degrees() -> list[int]:
    return [n for n in DEGREES if n <= cores()]


@dataclass(frozen=True, slots=True)
class Sizes:
    """``rows`` of each stream of TPCx-BB, ``seconds`` of work in a run of parametric operators,
    ``morsels`` that are simulated for each worker, and how often (``times``) is measured, the first
    time included, which compiles."""

    rows: int = 1_000_000
    seconds: float = 0.5
    morsels: int = 300
    times: int = 5

    @classmethod
    def of(cls, rows: int | None) -> Sizes:
        """Those of a run over so many rows; None: the full ones."""
        if rows is None:
            return cls()
        share = rows / cls().rows
        return cls(rows, 0.5 * share, max(50, round(300 * share)))


# -- runs ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Use:
    """What a task has done: morsels that it took and gave, and nanoseconds of workers. ``host``:
    Python runs it. ``borrows``: outputs show columns of inputs. ``parts``: the rows of each
    partition, ``fragments`` how many they came in."""

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
    """In the order of the tasks."""
    found = []
    for s, k in enumerate(tasks.order):
        operator, words = tasks.graph.operators[k], tasks.task(s)
        use = Use(
            operator.name,
            int(words[tables.KIND]),
            host=operator.address == 0,
            borrows=bool(words[tables.BORROWS]),
            inputs=int(words[tables.NEXT]),
            outputs=int(words[tables.MADE]),
            busy=int(words[tables.TIME]),
        )
        if isinstance(operator, PartedOperator):
            rows = [instance.counters()["rows_in"] for instance in operator.instances]
            use = replace(use, fragments=int(words[tables.COUNT]), parts=rows)
        found.append(use)
    return found


def mark(tasks: Tasks, first: int, last: int, marks: Words) -> None:
    """From now on, morsels (by serial number) are timed on their way from task ``first`` to
    where they are through with task ``last``, in records of ``markers.MARK`` words. To be called
    before the first morsel."""
    plan = tasks.plan
    plan[tables.MARKS], plan[tables.MARKED] = marks.ctypes.data, len(marks)
    plan[tables.MARKED_FROM] = tasks.task(first).ctypes.data
    plan[tables.MARKED_TO] = tasks.task(last).ctypes.data


@dataclass(frozen=True, slots=True)
class Run:
    """``seconds`` from when the first morsel was begun until the last one had left. Of the morsels
    in the 20th to 80th percentile of those that were marked, ``latency`` is the mean processing
    latency in nanoseconds, and ``pace`` how many left in a second (NaN: too few). ``path`` are the
    ``uses`` of the tasks that the longest input comes to. ``reading``: nanoseconds, in all."""

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
    """The first partitioned task: a latency of its own, as of figure 10."""
    kinds = [use.kind for use in uses_of(tasks)]
    return (kinds.index(PARTITIONED),) * 2


class Observed:
    """Looks at a run under the ordered runtime: morsels are timed between the tasks ``ends``,
    and what it did is kept when it ends. ``path`` are the ``uses`` of the tasks that the longest
    input comes to."""

    def __init__(self, ends: Ends = whole) -> None:
        self.marks = np.zeros((_MARKED, markers.MARK), np.int64)
        self.uses: Sequence[Use] = ()
        self.path: Sequence[Use] = ()
        self.reading = 0.0
        self._feeds: Sequence[Feed] = ()
        self._ends = ends

    def batches(self, session: cql.Session, query: cql.Query) -> Iterator[pa.RecordBatch]:
        """The rows of such a run of ``query``."""
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
        """Nanoseconds that each of the morsels in the 20th to 80th percentile took."""
        counts = self.counting()
        return counts[:, markers.LEFT] - counts[:, markers.ENTERED]

    def counting(self) -> Words:
        """The marks of these morsels, of those that went through."""
        through = self.marks[self.marks[:, markers.LEFT] > 0]
        return through[round(FIRST * len(through)) : max(round(LAST * len(through)), 1)]


def _path(tasks: Tasks, uses: Sequence[Use]) -> list[Use]:
    firsts = [tasks.place[edge.target] for edge in tasks.entries]
    reached = {max(firsts, key=lambda s: uses[s].inputs)}
    for s, k in enumerate(tasks.order):  # what feeds a task stands before it
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
    """Of each its fastest run, since what else the machine does only adds. They take turns (A B C A
    B C …), so that a neighbour who stays meets all of them."""
    rounds = [{name: trial() for name, trial in trials.items()} for _ in range(times)]
    return {n: min((made[n] for made in rounds), key=lambda run: run.seconds) for n in trials}


# -- the machine that is simulated -----------------------------------------------------------------

#: Nanoseconds of a look in vain: through all tasks, and 20 pauses.
_LOOK = 500.0


def engine(n: int, **settings: Any) -> Machine:
    """The ordered runtime on ``n`` cores of this machine."""
    return Machine(n, leader=True, looks=looks(n, n, live=False) * _LOOK, rouse=rouse(), **settings)


@cache
def rouse() -> float:
    """Nanoseconds from when a sleeping worker is woken until it goes on: the median of some."""
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
    """The tasks of a query as a chain (those of several branches one behind the other), with
    what two runs of one worker took: one in few partitions, one in ``MOST_PARTITIONS``, so that the
    cost of a fragment by itself is known. They are simulated in ``parts`` partitions. ``step`` is
    what the simulation adds for an input, and for an output.

    ``kinds`` takes the place of the tasks' own: they are those of tuples then, each of which
    belongs to one partition, and nothing runs in Python."""
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
