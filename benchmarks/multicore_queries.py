"""Figures 8, 11 and 14 of the ordered-multicore paper: TPCx-BB's streaming queries (``queries/
tpcxbb``) under each heuristic, with each worklist, and with each reorder buffer.

Each figure is *measured* on the existing cores; *simulated* with the engine's tasks and settings
and the costs of one worker; and simulated *as in the paper* with the same costs, but with the task
kinds of table 1 (the final stateful task is light, or Q1 could not scale to 16 cores as it does
there), morsels of one partition each, worklists that are never full, and a stream slightly faster
than the machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from functools import partial
from math import isnan, nan
from pathlib import Path
from typing import Any

import numpy as np

import cql
from benchmarks import tpcxbb
from benchmarks.figure import Check, Figure
from benchmarks.multicore_model import (
    HYBRID,
    LOCK_BASED,
    NON_BLOCKING,
    PARTITIONED,
    QUEUES,
    SERIAL,
    Machine,
    Simulated,
    Task,
)
from benchmarks.multicore_runs import (
    DEGREES,
    FEW_PARTITIONS,
    MOST_PARTITIONS,
    Run,
    Sizes,
    chain_of,
    degrees,
    engine,
    in_turns,
    run,
)
from benchmarks.multicore_simulation import simulate

#: Each query and its stream; queries with little time per row get more rows.
QUERIES: Mapping[str, str] = {
    "q01": "store_sales",
    "q02": "web_clickstreams",
    "q03": "web_clickstreams",
    "q04": "web_clickstreams",
    "q15": "store_sales",
}
LIGHT, _MORE = ("q04", "q15"), 4
_FOLDER = Path(__file__).resolve().parent.parent / "queries" / "tpcxbb"
#: The number of cores to which each query scales, from §7.1.
SCALES_TO: Mapping[str, int] = {"q01": 16, "q02": 8, "q03": 8, "q04": 8, "q15": 12}
SCHEDULERS = ("ct", "lp", "et", "qst")
WHERE = MEASURED, SIMULATED, PAPER = "measured", "simulated", "as in the paper"
#: Queries that end in a stateful operator in table 1.
_STATEFUL_END = ("q01", "q02", "q04")
#: Rate of the stream, relative to the throughput of all workers together.
_PRESSURE = 1.2
_SLOTS, _PLACES = 256, 1_000_000
#: Share of the work of a final stateful task.
_LIGHT_END = 0.02

_FIGURE_8A = (
    '"We observe that heuristic CT scales almost linearly up to 16 cores for Q1, 12 cores for Q15'
    " and 8 cores for Q2, Q3 and Q4. […] LP performs as well as CT for queries Q1 and Q15, but"
    " achieves sub-optimal performance for the others. Both ET and QST […] do not perform as well"
    ' as CT or LP in terms of absolute throughput." (§7.1)'
)
_FIGURE_8B = (
    '"LP is the best heuristic for low-latency processing, followed closely by CT. […] CT […] also'
    " processes tuples with such low latencies in many cases while it shoots up to 100s of"
    ' milliseconds in some cases. […] On the other hand, ET and QST have quite high latencies."'
    " (§7.1)"
)
_FIGURE_11 = (
    '"HYBRID-QUEUE is able to achieve much higher throughput than PARTITIONED-QUEUE in all queries.'
    " […] Query 15 contains only one such operator and is partitioned on item category id […]. It"
    " does not support higher degrees of parallelism and so the difference is unclear. HYBRID-QUEUE"
    " performs better than PARTITIONED-QUEUE also in terms of latency in 3 out of 5 queries, which"
    ' have more partitioned stateful operators and almost similar for the rest." (§7.2.3)'
)
_FIGURE_14 = (
    '"We can clearly see that NON-BLOCKING scheme consistently yields a better throughput than the'
    " LOCK-BASED strategy. They do not differ much in processing latency and hence we do not"
    ' present them here." (§7.3.3)'
)
_BOUNDED = (
    "few morsels are inside (a worklist has as many places as the reorder buffer slots), so that no"
    " heuristic can do much of one operator before the next; the paper's worklists grow"
)
_SAME = "the slowest operator, or the stream, bounds all of them alike"
_LEVEL = (
    "CT keeps all operators level, for it divides by what stands before each of them, while LP"
    " over-allots workers to late operators (§7.1)"
)
_SHARED_MORSELS = (
    "morsels have rows of all partitions here, so that both worklists find work, and a morsel waits"
    " for the slowest of its partitions under both"
)
_FEW_KEYED = "what is partitioned there is little of the work here"
_LONG_MORSELS = (
    "what is sent is a morsel of thousands of rows: the lock is held for 50 ns of the hundreds of"
    " microseconds that it takes, and nobody waits for it (figures 12 and 13: light tuples)"
)


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings that the figures vary."""

    workers: int
    scheduler: str = "ct"
    worklist: str = HYBRID
    reorder: str = NON_BLOCKING


@dataclass(slots=True)
class Workload:
    """Runs and simulates each query once per settings. ``right`` says whether all answers of each
    query agree."""

    sizes: Sizes
    right: bool = True
    _sessions: dict[str, cql.Session] = field(default_factory=dict)
    _runs: dict[Any, Run] = field(default_factory=dict)
    _simulated: dict[Any, Simulated] = field(default_factory=dict)
    _answers: dict[str, Any] = field(default_factory=dict)

    def close(self) -> None:
        for session in self._sessions.values():
            session.close()

    def measured(self, query: str, settings: Settings, parts: int = 0) -> Run:
        """The run with ``parts`` partitions; 0: with the engine's default."""
        self.measure(query, [settings], parts)
        return self._runs[query, settings, parts]

    def measure(self, query: str, every: Sequence[Settings], parts: int = 0) -> None:
        """Measures the missing settings of a comparison, each once."""
        new = [each for each in every if (query, each, parts) not in self._runs]
        trials = {each: partial(self._run, query, each, parts) for each in new}
        for settings, made in in_turns(self.sizes.times, trials).items():
            self._runs[query, settings, parts] = made

    def _run(self, query: str, settings: Settings, parts: int) -> Run:
        text = (_FOLDER / f"{query}.cql").read_text("utf-8")
        chosen = asdict(settings) | {"partitions": parts}
        made = run(self._session(query), text, self._length(query), **chosen)
        self.right &= made.answer.equals(self._answers.setdefault(query, made.answer))
        return made

    def simulated(self, query: str, settings: Settings, where: str) -> Simulated:
        key = query, settings, where
        if key not in self._simulated:
            n = settings.workers
            chosen = settings.scheduler, settings.worklist, settings.reorder
            chain = self.chain(query, n, where, settings.worklist)
            if where == PAPER:
                interval = total(chain) / n / _PRESSURE
                machine = Machine(n, *chosen, places=_PLACES, slots=_SLOTS, interval=interval)
            else:
                named = dict(zip(("scheduler", "worklist", "reorder"), chosen, strict=True))
                machine = engine(n, read=self._reading(query, n), **named)
            self._simulated[key] = simulate(chain, machine, self.sizes.morsels * n)
        return self._simulated[key]

    def chain(self, query: str, n: int, where: str, worklist: str = HYBRID) -> list[Task]:
        """The tasks with the costs of one worker, in the partitions that ``n`` workers have."""
        step, few = Machine(1).send, self._few(query, n, where)
        if where != PAPER and n == 1:
            return chain_of(few, few, 1, step)
        many = self.measured(query, Settings(1), MOST_PARTITIONS)
        if where != PAPER:
            return chain_of(few, many, _power(4 * n), step)
        # one queue for each worker, or fine partitions (§7.2.1)
        parts = _power(n) if worklist == QUEUES else MOST_PARTITIONS
        chain = chain_of(few, many, parts, step, paper_kinds(query, few))
        work = works(chain)
        rest = sum(w for s, w in zip(chain, work, strict=True) if s.kind != SERIAL)
        return [
            replace(s, cost=s.cost * min(1.0, _LIGHT_END * rest / w)) if s.kind == SERIAL else s
            for s, w in zip(chain, work, strict=True)
        ]

    def bound(self, query: str, where: str) -> str:
        """A sentence about the serial share of the work and its bound on the speedup (Amdahl)."""
        chain = self.chain(query, DEGREES[-1], where)
        whole, work = total(chain), works(chain)
        host = sum(w for s, w in zip(chain, work, strict=True) if s.host)
        task = max([0.0, *(w for s, w in zip(chain, work, strict=True) if s.kind == SERIAL)])
        reading = self._reading(query, DEGREES[-1]) if where != PAPER else 0.0
        serial, what = max(
            (host, "is done in Python, one task at a time"),
            (task, "is done in one serial task"),
            (reading, "is what worker 0 takes to read it"),
            key=lambda told: told[0],
        )
        if serial < whole / DEGREES[-1]:
            return (
                "morsels of one partition wait for each other, and results for what is before them"
            )
        alone = self.throughput(query, Settings(1), where)
        most = 1e3 * self.rows(query, DEGREES[-1], where) / serial
        return (
            f"{serial / whole:.0%} of the work on a morsel {what}: at the most {most:.3g}M rows/s,"
            f" {most / alone:.1f} times one worker"
        )

    def measured_why(self, query: str) -> str:
        one, most = (self.measured(query, Settings(n)) for n in (1, degrees()[-1]))
        grown = sum(u.busy for u in most.uses) / sum(u.busy for u in one.uses)
        return (
            f"all workers together are in tasks for {grown:.2f} times as long as one:"
            " morsels are split by key and merged again, which one worker does without; they share"
            f" caches, and wait while another one runs Python; {self.bound(query, SIMULATED)}"
        )

    def _few(self, query: str, n: int, where: str) -> Run:
        """The one-worker run whose morsels are simulated."""
        return self.measured(query, Settings(1), 0 if where != PAPER and n == 1 else FEW_PARTITIONS)

    def _reading(self, query: str, n: int) -> float:
        """Nanoseconds to read a morsel that is simulated on ``n`` workers."""
        one = self._few(query, n, SIMULATED)
        return one.reading / one.path[0].inputs

    def rows(self, query: str, n: int, where: str) -> float:
        """Mean rows of a morsel that is simulated on ``n`` workers."""
        return self._length(query) / self._few(query, n, where).path[0].inputs

    def throughput(self, query: str, settings: Settings, where: str) -> float:
        """Millions of rows per second; NaN beyond the existing cores."""
        if where != MEASURED:
            rows = self.rows(query, settings.workers, where)
            return self.simulated(query, settings, where).throughput * rows / 1e6
        if settings.workers not in degrees():
            return nan
        return self.measured(query, settings).throughput / 1e6

    def latency(self, query: str, settings: Settings, where: str) -> float:
        """Latency in milliseconds; NaN beyond the existing cores."""
        if where != MEASURED:
            return self.simulated(query, settings, where).latency / 1e6
        if settings.workers not in degrees():
            return nan
        return self.measured(query, settings).latency / 1e6

    def peak(self, query: str, settings: Settings, where: str) -> tuple[float, float]:
        """The highest throughput over all degrees from 2 on, and the latency there."""
        every = [replace(settings, workers=n) for n in DEGREES[1:]]
        reached = [(self.throughput(query, each, where), each) for each in every]
        known = [(v, s) for v, s in reached if not isnan(v)]
        if not known:
            return nan, nan
        best, at = max(known, key=lambda pair: pair[0])
        return best, self.latency(query, at, where)

    def _length(self, query: str) -> int:
        return self.sizes.rows * (_MORE if query in LIGHT else 1)

    def _session(self, query: str) -> cql.Session:
        if query not in self._sessions:
            session = self._sessions[query] = cql.connect(spark=False)
            stream = QUERIES[query]
            table, within = tpcxbb.TABLES[stream](self._length(query), 1), timedelta(minutes=1)
            session.create_stream(stream, table, ordered_by="ts", slack=within)
            session.create_stream("items", tpcxbb.items())
        return self._sessions[query]


def _power(n: int) -> int:
    """``n`` rounded up to a power of two, since a power of two divides MOST_PARTITIONS."""
    return min(1 << (n - 1).bit_length(), MOST_PARTITIONS)


def works(chain: Sequence[Task]) -> list[float]:
    """Nanoseconds per morsel of the stream, for each task."""
    found, many = [], 1.0
    for task in chain:
        found.append(many * (task.cost + task.fragment * len(task.shares)))
        many *= task.selectivity
    return found


def total(chain: Sequence[Task]) -> float:
    return sum(works(chain))


def query_name(query: str) -> str:
    return f"Q{int(query[1:])}"


def paper_kinds(query: str, made: Run) -> list[int]:
    """The kinds of a query's tasks in table 1."""
    used = [use for use in made.path if use.inputs > 0]
    serial = [k for k, use in enumerate(used) if use.kind == SERIAL]
    kinds = [PARTITIONED if use.kind == SERIAL else use.kind for use in used]
    if query in _STATEFUL_END and serial:
        kinds[serial[-1]] = SERIAL
    return kinds


# -- the figures -----------------------------------------------------------------------------------


def figures(sizes: Sizes) -> Iterator[Figure]:
    workload = Workload(sizes)
    try:
        for wheres, suffix in (((MEASURED, SIMULATED), ""), ((PAPER,), "-paper")):
            for part in "ab":
                for query in QUERIES:
                    yield heuristics(workload, query, part, wheres, suffix)
        yield from worklists(workload)
        yield from reorder(workload)
    finally:
        workload.close()


def heuristics(
    workload: Workload, query: str, part: str, wheres: Sequence[str], suffix: str
) -> Figure:
    """Figure 8 for one query: (a) throughput, or (b) latency."""
    value = workload.throughput if part == "a" else workload.latency
    series: dict[str, list[float]] = {}
    checks: list[Check] = []
    name = query_name(query)
    if MEASURED in wheres:
        workload.measure(query, [Settings(n, s) for n in degrees() for s in SCHEDULERS])
    for where in wheres:
        found = {s: [value(query, Settings(n, s), where) for n in DEGREES] for s in SCHEDULERS}
        series |= {f"{s}, {where}": values for s, values in found.items()}
        k = (len(degrees()) if where == MEASURED else len(DEGREES)) - 1
        told = f"{name}, {DEGREES[k]} workers, {where}"
        if part == "a":
            checks += _throughput_checks(workload, query, found, k, told, where)
        else:
            checks += _latency_checks(found, k, told, _LEVEL if where == PAPER else _BOUNDED)
    what, label = ("throughput", "M rows/s") if part == "a" else ("processing latency", "ms")
    title = f"Figure 8({part}): {what}"
    if MEASURED in wheres and part == "a":
        n = len(degrees()) - 1
        ratio = series[f"ct, {SIMULATED}"][n] / series[f"ct, {MEASURED}"][n]
        checks.append(Check(f"simulated : measured, ct, {name}, {DEGREES[n]} workers", ratio))
    if PAPER in wheres:
        title += ", simulated with operators of the kinds of table 1 and long worklists"
    return Figure(
        f"multicore-8{part}-{name}{suffix}", f"{title}: {name}",
        (_FIGURE_8A if part == "a" else _FIGURE_8B,), "workers", DEGREES, label, series, checks,
        workload.right, sheet=f"multicore-8{part}{suffix}", panel=name,
        points=[f"{s}, {MEASURED}" for s in SCHEDULERS],
    )  # fmt: skip


def _throughput_checks(
    workload: Workload,
    query: str,
    found: Mapping[str, Sequence[float]],
    k: int,
    told: str,
    where: str,
) -> Iterator[Check]:
    linear = min(SCALES_TO[query], DEGREES[k])
    grows = max(found["ct"][: k + 1]) / found["ct"][0]
    why = workload.measured_why(query) if where == MEASURED else workload.bound(query, where)
    yield Check(
        f"speedup of ct at its peak, {told}", grows,
        f"the paper: almost linear up to {SCALES_TO[query]}", grows >= 0.8 * linear, why,
    )  # fmt: skip
    best = found["ct"][k] / max(values[k] for values in found.values())
    yield Check(
        f"throughput of ct : the best, {told}", best, "the paper: 1", best >= 0.95,
    )  # fmt: skip
    if where == PAPER:
        printed = workload.throughput(query, Settings(DEGREES[k], "ct_printed"), where)
        yield Check(f"ct with equation 3 as printed : ct, {told}", printed / found["ct"][k])
    behind = max(found[s][k] for s in ("et", "qst")) / max(found[s][k] for s in ("ct", "lp"))
    yield Check(
        f"the better of et and qst : that of ct and lp, {told}", behind, "the paper: below 1",
        behind < 0.98, _BOUNDED if where != PAPER else _SAME,
    )  # fmt: skip


def _latency_checks(
    found: Mapping[str, Sequence[float]], k: int, told: str, why: str
) -> Iterator[Check]:
    lp = found["lp"][k] / min(values[k] for values in found.values())
    yield Check(f"latency of lp : the lowest, {told}", lp, "the paper: 1", lp <= 1.1, why)
    ahead = max(found[s][k] for s in ("et", "qst")) / found["ct"][k]
    yield Check(
        f"latency, the higher of et and qst : ct, {told}", ahead, "the paper: above 1",
        ahead > 1.02, why,
    )  # fmt: skip


def worklists(workload: Workload) -> Iterator[Figure]:
    """Figure 11: worklists."""
    peaks = _peaks(workload, {w: Settings(1, worklist=w) for w in (HYBRID, QUEUES)})
    for part, name, label in ((0, "peak throughput", "M rows/s"), (1, "latency at it", "ms")):
        for where in WHERE:
            pairs = zip(peaks[HYBRID, where], peaks[QUEUES, where], strict=True)
            ratios = [h[0] / q[0] if part == 0 else q[1] / h[1] for h, q in pairs]
            better = sum(ratio > 1.02 for ratio in ratios)
            goal, says = (4, "all but Q15") if part == 0 else (3, "3 out of 5")
            check = Check(
                f"queries in which hybrid is better, {name}, {where}", better, f"the paper: {says}",
                better >= goal, _SHARED_MORSELS if where != PAPER else _FEW_KEYED,
            )  # fmt: skip
            yield _bars(
                f"multicore-11{'ab'[part]}", "Figure 11: worklists, with CT", name, _FIGURE_11,
                peaks, part, where, label, [check, _mean(ratios, where)], workload.right,
                "multicore-11",
            )  # fmt: skip


def _mean(ratios: Sequence[float], where: str) -> Check:
    mean = float(np.exp(np.mean(np.log(ratios))))
    return Check(f"how much better, geometric mean of the queries, {where}", mean)


def reorder(workload: Workload) -> Iterator[Figure]:
    """Figure 14: reorder buffers."""
    peaks = _peaks(workload, {r: Settings(1, reorder=r) for r in (NON_BLOCKING, LOCK_BASED)})
    for where in WHERE:
        pairs = zip(peaks[NON_BLOCKING, where], peaks[LOCK_BASED, where], strict=True)
        ratios = [free[0] / locked[0] for free, locked in pairs]
        better = sum(ratio > 1.02 for ratio in ratios)
        check = Check(
            f"queries in which non-blocking is better, {where}", better,
            "the paper: consistently", better == len(QUERIES), _LONG_MORSELS,
        )  # fmt: skip
        yield _bars(
            "multicore-14", "Figure 14: reorder buffers, with CT", "peak throughput", _FIGURE_14,
            peaks, 0, where, "M rows/s", [check, _mean(ratios, where)], workload.right,
            "multicore-14",
        )  # fmt: skip


#: By choice and place: per query, the highest throughput and the latency there.
_Peaks = Mapping[tuple[str, str], Sequence[tuple[float, float]]]


def _peaks(workload: Workload, choices: Mapping[str, Settings]) -> _Peaks:
    for query in QUERIES:
        several = [n for n in degrees() if n > 1]
        workload.measure(query, [replace(c, workers=n) for c in choices.values() for n in several])
    return {
        (choice, where): [workload.peak(query, settings, where) for query in QUERIES]
        for where in WHERE
        for choice, settings in choices.items()
    }


def _bars(
    name: str,
    title: str,
    what: str,
    quote: str,
    peaks: _Peaks,
    part: int,
    where: str,
    label: str,
    checks: Sequence[Check],
    right: bool,
    sheet: str,
) -> Figure:
    series = {
        choice: [value[part] for value in values]
        for (choice, each), values in peaks.items()
        if each == where
    }
    names = [query_name(query) for query in QUERIES]
    return Figure(
        f"{name}-{where.replace(' ', '-')}", f"{title}: {what}, {where}", (quote,), "query",
        list(range(len(names))), label, series, checks, right, log_y=True, sheet=sheet,
        panel=f"{what}, {where}", names=names,
    )  # fmt: skip
