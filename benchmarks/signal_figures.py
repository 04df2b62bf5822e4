"""Figure 8 of the XStream paper: how the samples of PIPELINE (left) and DETECTAUDIO (right) are
represented, under each scheduler, and what sync and a join of samples cost (right).

    python -m benchmarks.run representations --plots FOLDER

Every operator is one of its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Any

import pyarrow as pa

import cql
from benchmarks.engine_bench import SCHEDULERS
from benchmarks.figure import Check, Figure
from benchmarks.signal_representations import (
    DETECTION,
    FEWER,
    PIPELINE,
    Application,
    Representation,
)
from benchmarks.workloads import Answer
from cql.executor.operators.workspace import Workspace
from cql.executor.run.execution import Execution
from cql.executor.run.reading import Reading

#: Samples of a channel.
SAMPLES = 2_000_000
TRIALS = 10
#: Standard errors of a 95% interval of the mean of ten trials (Student's t, nine degrees).
_INTERVAL = 2.262

_LEFT_QUOTES = (
    '"Depth-First improves by 1.4x, while the other schedulers improve by a factor of 3. […]'
    " re-ordering the data yields a 2x improvement for all schedulers except DF, which yields 1.7"
    ' x" (IV.B.1 and 2)',
    '"eliminating time-stamps yields a 1.6x improvement in PIPELINE, and a 1.8x improvement in'
    ' DETECTAUDIO" (IV.B.3)',
    '"the Depth-First scheduler […] far outperforms the others on SAMPLES where queue and scheduler'
    ' costs dominate" (IV.B.1)',
)
_RIGHT_QUOTES = (
    '"the addition of sync reduces throughput to 0.9x of the original, vs. a reduction to 0.2x'
    " using join. […] the timestamp overhead in the hash join increases the memory usage by a"
    ' factor of 5" (IV.B.4)',
)


def figures(rows: int | None = None) -> Iterator[Figure]:
    samples = rows or SAMPLES
    left, right = Measured(PIPELINE, samples), Measured(DETECTION, samples)
    yield _figure(left, "left", _LEFT_QUOTES, _left_checks(left))
    yield _figure(right, "right", _RIGHT_QUOTES, _right_checks(right))


@dataclass(slots=True)
class Measured:
    """The rates of each form in all trials, in millions of samples of all channels a second: by
    scheduler and form. ``peaks``: the most bytes of state of each form, depth first, of as many
    samples of each form."""

    application: Application
    samples: int
    rates: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    peaks: dict[str, int] = field(default_factory=dict)
    is_right: bool = True

    def __post_init__(self) -> None:
        whole, part = map(self.application.session, (self.samples, self.samples // FEWER))
        answers: dict[tuple[bool, bool], Answer] = {}
        for form in self.application.forms:
            table, self.peaks[form.name] = run(part, "depth_first", form)
            self._check(answers, form, table, fewer=True)
        for trial in range(TRIALS + 1):  # the first one compiles
            for scheduler in SCHEDULERS:
                for form in self.application.forms:
                    began = time.perf_counter()
                    table, _ = run(part if form.fewer else whole, scheduler, form)
                    seconds = time.perf_counter() - began
                    if trial:
                        samples = self.samples // (FEWER if form.fewer else 1)
                        rate = samples * self.application.channels / seconds / 1e6
                        self.rates.setdefault((scheduler, form.name), []).append(rate)
                    self._check(answers, form, table, fewer=form.fewer)

    def _check(
        self,
        answers: dict[tuple[bool, bool], Answer],
        form: Representation,
        table: pa.Table,
        *,
        fewer: bool,
    ) -> None:
        given = self.application.answer(table)
        self.is_right &= given == answers.setdefault(("+" in form.name, fewer), given)

    def mean(self, scheduler: str, form: str) -> float:
        return fmean(self.rates[scheduler, form])

    def error(self, scheduler: str, form: str) -> float:
        """Half of the 95% interval of the mean."""
        rates = self.rates[scheduler, form]
        return float(_INTERVAL * stdev(rates) / len(rates) ** 0.5) if len(rates) > 1 else 0.0


class _Run(Execution):
    """Keeps the workspace, which says how much state there was."""

    kept: Workspace

    def _prepare(self) -> Reading:
        reading = super()._prepare()
        self.kept = self.workspace
        return reading


def run(session: cql.Session, scheduler: str, form: Representation) -> tuple[pa.Table, int]:
    """The result, and the most bytes of state."""
    session.set("runtime", scheduler)
    session.set("segments", form.segments)
    session.set("sample_order", form.order)
    query: Any = session.sql(form.query)
    execution = _Run(query._plan, session.settings)
    batches = [batch for _, batch in execution.results()]
    table = pa.Table.from_batches(batches, query._plan.root.schema.to_arrow())
    return table, execution.kept.peak


def _figure(found: Measured, side: str, quotes: Sequence[str], checks: Sequence[Check]) -> Figure:
    what = found.application.name
    names = [form.name for form in found.application.forms]
    return Figure(
        f"representations-{side}",
        f"Figure 8: {what}, {found.samples:,} samples of each channel",
        quotes,
        "representation",
        tuple(range(len(names))),
        "M samples/s",
        {s: [found.mean(s, name) for name in names] for s in SCHEDULERS},
        checks,
        found.is_right,
        log_y=True,
        sheet="representations",
        panel=f"({side}) {what}",
        names=names,
        errors={s: [found.error(s, name) for name in names] for s in SCHEDULERS},
    )


def _over_all(found: Measured, form: str) -> float:
    return fmean(found.mean(scheduler, form) for scheduler in SCHEDULERS)


def _without_times(found: Measured, goal: float) -> Check:
    times = _over_all(found, "segments") / _over_all(found, "windows")
    why = "the times lie apart from the samples, so that only passing them on costs"
    what = "segments : windows, all schedulers"
    return Check(what, times, f"the paper: {goal}", times >= goal, why)


def _left_checks(found: Measured) -> list[Check]:
    def over_samples(scheduler: str) -> float:
        return found.mean(scheduler, "windows by stride") / found.mean(scheduler, "samples")

    order = _over_all(found, "windows") / _over_all(found, "windows by stride")
    first = found.mean("depth_first", "samples") / found.mean("fifo", "samples")
    depth, fifo = over_samples("depth_first"), over_samples("fifo")
    why = "a queue holds morsels of rows here, not single samples"
    return [
        Check("windows by stride : samples, depth first", depth, "the paper: 1.4", depth >= 1.4),
        Check("windows by stride : samples, FIFO", fifo, "the paper: 3", fifo >= 3),
        Check(
            "windows : windows by stride, all schedulers",
            order,
            "the paper: 2",
            order >= 2,
            "the rows of a window stay in the second cache",
        ),
        _without_times(found, 1.6),
        Check(
            "depth first : FIFO, samples", first, "the paper: far outperforms", first >= 1.5, why
        ),
    ]


def _right_checks(found: Measured) -> list[Check]:
    def kept(form: str, cut: str) -> float:
        return found.mean("depth_first", form) / found.mean("depth_first", cut)

    sync = kept("segments + sync", "segments")
    join = kept("samples + join", "samples")
    rates = kept("segments + sync", "samples + join")
    peak = found.peaks["samples + join"] / found.peaks["segments + sync"]
    return [
        _without_times(found, 1.8),
        Check("with sync : cut before it", sync, "the paper: 0.9", sync >= 0.8),
        Check("with a join : cut before it", join, "the paper: 0.2", join <= 0.5),
        Check("segments + sync : samples + join", rates, "at least 5", rates >= 5),
        Check("state of the join : of sync and the samples that it shares", peak),
    ]
