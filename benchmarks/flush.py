"""Figure 9 of the out-of-order paper: the highest packet rate of Q4 without loss, with and without
spreading the flush of a window's groups over the next windows.

Q4 runs in two levels (``SET window_operator = 'two_level'``). The low level has half, one and two
times as many entries as there are groups. Packets are read from a ring, READING at a time, and the
operator's processor time for each reading is measured, so that neighbours do not count. From these
times follows the rate at which the ring overflows: a reading begins when its packets are there and
the previous reading is done, and packets that wait beyond the ring's size are lost. The first
windows, in which tables grow to their size, do not count.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import thread_time_ns
from typing import Any

import numpy as np

import cql
from benchmarks.figure import Check, Figure
from benchmarks.workloads import Answer, Column, checksum
from cql.executor.graph.build import build
from cql.executor.kernels.morsel_layout import PUNCTUATIONS, ROWS, SERIAL, data_word
from cql.executor.morsel.egress import view_address
from cql.executor.morsel.morsel import Morsel
from cql.executor.operators.workspace import Workspace
from cql.executor.runtimes.depth_first import DepthFirst
from cql.executor.runtimes.protocol import Failure
from cql.executor.strings.dictionary import Dictionary
from cql.planner.nodes.physical import PhysicalPlan, sources
from cql.query.query import Query

QUERY = """SELECT srcIP, destIP, count(*) AS n FROM M [RANGE 1000000000, SLIDE 1000000000, WA ts]
           GROUP BY srcIP, destIP"""
WINDOW = 1_000_000_000
GROUPS = (66_000, 130_000, 260_000, 520_000)
#: Entries of the low level, as a share of the groups.
SIZES: Mapping[str, float] = {"½": 0.5, "1": 1, "2": 2}
#: "an extra delay of two windows", "every 160 incoming packets" (§8.1).
POLICIES: Mapping[str, str] = {
    "at once": "at_once",
    "slow": "slow",
    "lazy": "lazy",
    "in order": "in_order_slow",
}
EVERY, DELAY = 160, 2
#: Packets per group and window: enough for all groups to leave slowly within the delay.
PER_GROUP = 96
WINDOWS, WARM = 8, 5
READING, RING = 4096, 65_536
#: Address pairs drawn; the sequence then repeats.
DRAWN = 1 << 22
_THROUGHPUT = (
    '"In general, when the number of groups is small, for example, at 66k, the stream rates that'
    " IOP and OOP can support are about the same; […] when the number of groups is large, with a"
    " reasonable hash table size, OOP can support a much higher stream rate than IOP. […] OOP is"
    " generally better than IOP, especially for streams with large numbers of groups, and is less"
    ' sensitive to the hash table size." (§8.1, experiment G1)'
)
_BURST = (
    '"Hash-table flushing creates a burst during which incoming tuples cannot be processed,'
    ' limiting the maximum stream rate supported by IOP" (§6)'
)


def figures(rows: int | None = None) -> Iterator[Figure]:
    """``rows``: rows of the largest run; the number of groups shrinks in proportion."""
    share = 1.0 if rows is None else min(1.0, rows / (PER_GROUP * WINDOWS * GROUPS[-1]))
    groups = [max(8 * (k + 1), round(n * share)) for k, n in enumerate(GROUPS)]
    for size, times in SIZES.items():
        rates: dict[str, list[float]] = {policy: [] for policy in POLICIES}
        pauses: dict[str, list[float]] = {policy: [] for policy in POLICIES}
        right = True
        for n in groups:
            answers = set()
            for policy, flush in POLICIES.items():
                run = Run(n, max(1, round(times * n)), flush)
                rates[policy].append(run.highest_rate() / 1e6)
                pauses[policy].append(run.longest_pause() * 1e3)
                answers.add(run.answer)
                right &= run.counted == run.packets
            right &= len(answers) == 1
        title = f"Figure 9: Q4, entries {size} × groups, {PER_GROUP} packets of a group in a window"
        yield Figure(
            f"figure9-rate-{times:g}",
            f"{title}; a ring of {RING:,}",
            (_THROUGHPUT,),
            "groups",
            groups,
            "M packets/s",
            rates,
            _checks(rates, "rate", above=True),
            right,
        )
        yield Figure(
            f"figure9-pause-{times:g}",
            title,
            (_BURST,),
            "groups",
            groups,
            "longest pause in ms",
            pauses,
            _checks(pauses, "longest pause", above=False),
            right,
        )


def _checks(series: Mapping[str, Sequence[float]], what: str, *, above: bool) -> list[Check]:
    found = []
    for policy in ("slow", "lazy"):
        ratio = series[policy][-1] / series["in order"][-1]
        met = ratio > 1 if above else ratio < 1
        goal = "above 1" if above else "below 1"
        found.append(Check(f"{what}, {policy} : in order, at the most groups", ratio, goal, met))
    return found


@dataclass(slots=True)
class Run:
    """One run of Q4 over ``groups`` groups; ``taken`` are the seconds of each counted reading."""

    groups: int
    entries: int
    flush: str
    taken: Column = field(init=False)
    packets: int = 0
    counted: int = 0
    answer: Answer | None = None
    _results: list[tuple[Column, ...]] = field(default_factory=list)

    def __post_init__(self) -> None:
        plan = self._plan()
        workspace = Workspace(Dictionary(), "on", READING, 1 << 40)
        graph = build([plan.root], workspace, fuse=True, nulls=[set()])
        ones = int(workspace.ones.ctypes.data)
        runtime, (edge,) = DepthFirst(graph, self, ones=ones), graph.entries
        assert edge is not None
        morsel = Morsel.allocate(sources(plan.root)[0].schema, READING, ones=ones, late_rows=True)
        names = sources(plan.root)[0].schema.names
        taken = []
        gc.disable()
        try:
            for serial, (start, end, columns) in enumerate(self._readings()):
                for i, name in enumerate(names):
                    data = morsel.data[i]
                    assert data is not None
                    data[: len(columns[name])] = columns[name]
                morsel.words[[ROWS, SERIAL, PUNCTUATIONS]] = len(columns["ts"]), serial, 1
                morsel.punctuations[:3] = names.index("ts"), end, -1
                begun = thread_time_ns()
                runtime.admit(morsel, edge)
                taken.append((start, thread_time_ns() - begun))
        finally:
            gc.enable()
        morsel.words[[ROWS, SERIAL, PUNCTUATIONS]] = 0, serial + 1, 1
        morsel.punctuations[:3] = -1, np.iinfo(np.int64).max, -1
        runtime.admit(morsel, edge)
        self.taken = np.array([ns for start, ns in taken if start >= WARM * WINDOW]) / 1e9
        self._check()

    def _plan(self) -> PhysicalPlan:
        import pyarrow as pa

        settings: dict[str, Any] = {
            "window_operator": "two_level",
            "flush": self.flush,
            "flush_every": EVERY,
            "flush_windows": DELAY,
            "low_level_entries": self.entries,
        }
        empty: dict[str, Any] = {
            "ts": pa.array([], pa.int64()),
            "srcIP": pa.array([], pa.int32()),
            "destIP": pa.array([], pa.int32()),
        }
        with cql.connect(spark=False, **settings) as session:
            session.create_stream("M", pa.table(empty), ordered_by="ts")
            query = session.sql(QUERY)
            assert isinstance(query, Query)
            return query._plan

    def _readings(self) -> Iterator[tuple[int, int, dict[str, Column]]]:
        """The event time before and after each reading, and its packets, evenly spaced."""
        rng = np.random.default_rng(9)
        pairs = rng.integers(0, self.groups, DRAWN).astype(np.int32)
        self.packets = PER_GROUP * self.groups * WINDOWS
        per_window = PER_GROUP * self.groups
        for first in range(0, self.packets, READING):
            n = min(READING, self.packets - first)
            number = np.arange(first, first + n + 1)
            ts = number // per_window * WINDOW + number % per_window * WINDOW // per_window
            at = first % DRAWN
            pair = pairs[at : at + n]
            columns = {"ts": ts[:n], "srcIP": pair >> 8, "destIP": pair & 255}
            yield int(ts[0]), int(ts[n]), columns

    def deliver(self, morsel: Morsel, sink: int, feed: int | None = None) -> None:
        """Copies the results, as a consumer would."""
        n = int(morsel.words[ROWS])
        if n:
            types = (np.int32, np.int32, np.int64)
            words = (int(morsel.words[data_word(i)]) for i in range(len(types)))
            self._results.append(
                tuple(
                    view_address(w, np.dtype(t), n).copy()
                    for w, t in zip(words, types, strict=True)
                )
            )

    def failed(self, failure: Failure) -> None:
        raise AssertionError(failure)

    def _check(self) -> None:
        """Concatenates the results; windows leave in order under every policy."""
        columns = [np.concatenate(parts) for parts in zip(*self._results, strict=True)]
        self._results.clear()
        self.counted = int(columns[2].sum())
        self.answer = checksum(*(c.astype(np.int64) for c in columns))

    def longest_pause(self) -> float:
        """The longest time of a reading, in seconds."""
        return float(self.taken.max())

    def highest_rate(self) -> float:
        """The highest rate at which the ring never overflows, in packets per second."""
        low, high = 1.0, 1e12
        while high / low > 1.001:
            rate = float(np.sqrt(low * high))
            low, high = (rate, high) if self._bears(rate) else (low, rate)
        return low

    def _bears(self, rate: float) -> bool:
        there = READING * np.arange(1, self.taken.size + 1) / rate
        before = np.cumsum(self.taken) - self.taken
        done = np.maximum.accumulate(there - before) + before + self.taken
        waiting = rate * done - READING * np.arange(1, self.taken.size + 1)
        return bool(waiting.max() <= RING)
