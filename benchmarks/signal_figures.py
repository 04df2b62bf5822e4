"""Figure 8 of the XStream paper: how the samples of a query are represented, under each scheduler
(left), and what sync and a join of samples cost (right).

    python -m benchmarks.run representations --plots FOLDER

The representations of section IV.B, as this engine has them:

- *samples*: a row with its time for each sample;
- *windows*: segments of the times and of the samples, which operators copy (``copy_always``), as
  the paper copies them into the order of columns;
- *segments*: of the samples alone, which operators share.

The paper's WindowStride, windows of rows with a time and a sample each, has no counterpart: columns
are always in the order of columns here. The filters are STATFILTER (left) and SILENCEFILTER over
four channels (right); the paper has PIPELINE and DETECTAUDIO. Every operator is one of its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Any

import numpy as np
import pyarrow as pa

import cql
from benchmarks.engine_bench import SCHEDULERS
from benchmarks.figure import Check, Figure
from benchmarks.signal_kernels import ALPHA, BETA, GAMMA, WINDOW
from benchmarks.signals import sound
from benchmarks.workloads import Answer, sums
from cql.executor.operators.workspace import Workspace
from cql.executor.run.execution import Execution
from cql.executor.run.reading import Reading

SAMPLES = 4_000_000
CHANNELS = 4
TRIALS = 10
#: Standard errors of a 95% interval of the mean of ten trials (Student's t, nine degrees).
_INTERVAL = 2.262
#: Sample k of each signal has the time of k microseconds.
RATE = 1_000_000

_ROWS = f"[ROWS {WINDOW} SLIDE {WINDOW}]"
_TIMES = f"[RANGE {WINDOW} MICROSECONDS SLIDE {WINDOW} MICROSECONDS]"
_NAMES = [f"ch{c}" for c in range(CHANNELS)]
_LISTED = ", ".join(f"a.{name}" for name in _NAMES)
_LOUD = f"SELECT window_start, window_end FROM {{}} {_ROWS} WHERE stddev(ch0) > {GAMMA}"
_LOUD_BY_SAMPLE = f"""SELECT window_start, window_end FROM (
        SELECT stddev(ch0) AS spread, window_start, window_end FROM samples {_TIMES}
    ) AS w WHERE spread > {GAMMA}"""


@dataclass(frozen=True, slots=True)
class Way:
    """A query in a representation; ``segments``: the setting."""

    name: str
    query: str
    segments: str = "lazy"


LEFT = (
    Way(
        "samples",
        f"""SELECT window_start FROM (
            SELECT stddev(ch0) AS spread, avg(ch0) AS mean, window_start FROM samples {_TIMES}
        ) AS varied WHERE spread > {ALPHA} AND mean < {BETA}""",
    ),
    Way(
        "windows",
        f"""SELECT window_start, count(t) AS n FROM (
            SELECT t, ch0, window_start FROM timed {_ROWS} WHERE stddev(ch0) > {ALPHA}
        ) AS varied WHERE avg(ch0) < {BETA}""",
        "copy_always",
    ),
    Way(
        "segments",
        f"""SELECT window_start FROM (
            SELECT ch0, window_start FROM audio {_ROWS} WHERE stddev(ch0) > {ALPHA}
        ) AS varied WHERE avg(ch0) < {BETA}""",
    ),
)
RIGHT = (
    Way("samples", _LOUD_BY_SAMPLE),
    Way("windows", _LOUD.format("timed"), "copy_always"),
    Way("segments", _LOUD.format("audio")),
    Way(
        "samples + join",
        f"""SELECT {_LISTED} FROM ({_LOUD_BY_SAMPLE}) AS loud, samples AS a
        WHERE a.ts >= loud.window_start AND a.ts < loud.window_end""",
    ),
    Way(
        "windows + sync",
        f"""SELECT a.t, {_LISTED} FROM ({_LOUD.format("timed")}) AS loud, timed AS a
        WHERE a.time >= loud.window_start AND a.time < loud.window_end""",
        "copy_always",
    ),
    Way(
        "segments + sync",
        f"""SELECT {_LISTED} FROM ({_LOUD.format("audio")}) AS loud, audio AS a
        WHERE a.time >= loud.window_start AND a.time < loud.window_end""",
    ),
)
_LEFT_QUOTES = (
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
    left, right = Measured(LEFT, samples), Measured(RIGHT, samples)
    yield _figure(left, "left", "STATFILTER", _LEFT_QUOTES, _left_checks(left))
    right_title = f"SILENCEFILTER over {CHANNELS} channels"
    yield _figure(right, "right", right_title, _RIGHT_QUOTES, _right_checks(right))


@dataclass(slots=True)
class Measured:
    """The rates of each way, in millions of samples of a channel a second: by scheduler and way,
    those of all trials. ``peaks``: the most bytes of state of each way, depth first."""

    ways: Sequence[Way]
    samples: int
    rates: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    peaks: dict[str, int] = field(default_factory=dict)
    is_right: bool = True

    def __post_init__(self) -> None:
        session, answers = _session(self.samples), dict[bool, Answer]()
        for trial in range(TRIALS + 1):  # the first one compiles
            for scheduler in SCHEDULERS:
                for way in self.ways:
                    began = time.perf_counter()
                    table, peak = _run(session, scheduler, way)
                    rate = self.samples / (time.perf_counter() - began) / 1e6
                    if trial:
                        self.rates.setdefault((scheduler, way.name), []).append(rate)
                    if scheduler == "depth_first":
                        self.peaks[way.name] = max(peak, self.peaks.get(way.name, 0))
                    given = answer(table)
                    self.is_right &= given == answers.setdefault("+" in way.name, given)

    def mean(self, scheduler: str, way: str) -> float:
        return fmean(self.rates[scheduler, way])

    def error(self, scheduler: str, way: str) -> float:
        """Half of the 95% interval of the mean."""
        rates = self.rates[scheduler, way]
        return float(_INTERVAL * stdev(rates) / len(rates) ** 0.5) if len(rates) > 1 else 0.0


class _Run(Execution):
    """Keeps the workspace, which says how much state there was."""

    kept: Workspace

    def _prepare(self) -> Reading:
        reading = super()._prepare()
        self.kept = self.workspace
        return reading


def _run(session: cql.Session, scheduler: str, way: Way) -> tuple[pa.Table, int]:
    """The result, and the most bytes of state."""
    session.set("runtime", scheduler)
    session.set("segments", way.segments)
    query: Any = session.sql(way.query)
    execution = _Run(query._plan, session.settings)
    batches = [batch for _, batch in execution.results()]
    table = pa.Table.from_batches(batches, query._plan.root.schema.to_arrow())
    return table, execution.kept.peak


def _session(samples: int) -> cql.Session:
    """The same samples as rows with times (``samples``), as a signal that has the times as a
    channel (``timed``), and as a signal without times (``audio``)."""
    x = sound(samples)
    channels = {name: np.roll(x, c) if c else x for c, name in enumerate(_NAMES)}
    numbers = np.arange(len(x))
    session = cql.connect(spark=False)
    session.set("fuse", False)
    times = pa.array(numbers, pa.timestamp("us", "UTC"))
    session.create_stream("samples", pa.table({"ts": times, **channels}), ordered_by="ts")
    session.create_stream("timed", pa.table({"t": numbers, **channels}), rate=RATE)
    session.create_stream("audio", pa.table(channels), rate=RATE)
    return session


def answer(table: pa.Table) -> Answer:
    """The sums of the beginnings of windows, or of the samples of each channel."""
    wanted = _NAMES if "ch0" in table.column_names else ["window_start"]
    return sums(*(_flat(table[name]) for name in wanted))


def _flat(column: pa.ChunkedArray) -> Any:
    if pa.types.is_list(column.type):
        parts = [chunk.flatten().to_numpy() for chunk in column.chunks]
        return np.concatenate(parts).astype(np.int64) if parts else np.zeros(0, np.int64)
    return column.cast(pa.int64()).to_numpy()


def _figure(
    found: Measured, side: str, what: str, quotes: Sequence[str], checks: Sequence[Check]
) -> Figure:
    names = [way.name for way in found.ways]
    return Figure(
        f"representations-{side}",
        f"Figure 8: {what}, {found.samples:,} samples of a channel",
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


def _left_checks(found: Measured) -> list[Check]:
    def over_all(way: str) -> float:
        return fmean(found.mean(scheduler, way) for scheduler in SCHEDULERS)

    times = over_all("segments") / over_all("windows")
    first = found.mean("depth_first", "samples") / found.mean("fifo", "samples")
    return [
        Check("segments : windows, all schedulers", times, "the paper: 1.6 to 1.8", times >= 1.6),
        Check("segments : samples, all schedulers", over_all("segments") / over_all("samples")),
        Check("depth first : FIFO, samples", first, "the paper: far outperforms", first >= 1.5),
    ]


def _right_checks(found: Measured) -> list[Check]:
    def kept(way: str, cut: str) -> float:
        return found.mean("depth_first", way) / found.mean("depth_first", cut)

    sync = kept("segments + sync", "segments")
    join = kept("samples + join", "samples")
    rates = found.mean("depth_first", "segments + sync") / found.mean(
        "depth_first", "samples + join"
    )
    peak = found.peaks["samples + join"] / found.peaks["segments + sync"]
    return [
        Check("with sync : cut before it", sync, "the paper: 0.9", sync >= 0.8),
        Check("with a join : cut before it", join, "the paper: 0.2", join <= 0.5),
        Check("segments + sync : samples + join", rates, "at least 5", rates >= 5),
        Check("state of the join : of sync and the samples that it shares", peak),
    ]
