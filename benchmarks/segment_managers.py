"""Figure 6 of the XStream paper: the four memory managers (``SET segments``) as a sync operator has
more and more samples before it, and what a copy of a segment costs beside a product and a transform
(section III.B).

    python -m benchmarks.run segments --plots FOLDER

The operator of the engine runs alone. Samples of four channels come in pieces, as from a sound
card, and sync appends them. Behind each batch come the ranges that a detector has found in it, so
that the size of a batch is the size of what sync has appended, as in the paper. Only the operator
is timed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import njit

import cql
from benchmarks.figure import Check, Figure
from cql.executor.graph.build import build
from cql.executor.kernels.lib.memory import as_i16
from cql.executor.kernels.morsel_layout import (
    PUNCTUATIONS,
    ROWS,
    SERIAL,
    data_word,
)
from cql.executor.kernels.signals.of_segments.fourier import segment_power
from cql.executor.kernels.signals.segments import flat, pass_on, release, sweep
from cql.executor.morsel.egress import view_address
from cql.executor.morsel.morsel import Morsel
from cql.executor.operators.signals.segment_store import MANAGERS, SegmentStore, Timebase
from cql.executor.operators.workspace import Workspace
from cql.executor.runtimes.depth_first import DepthFirst
from cql.executor.runtimes.protocol import Failure
from cql.executor.strings.dictionary import Dictionary
from cql.planner.nodes.physical import PhysicalPlan, sources

CHANNELS, RATE = 4, 48_000
#: Samples of a piece: about 10 ms.
PIECE = 512
#: Bytes of each channel in a batch, in thousands.
BATCHES = (8, 50, 100, 150, 200, 250, 300, 350, 400, 450)
#: Samples of each channel.
SAMPLES = 2_000_000
ROUNDS = 3
#: Every so many pieces there is a range of one piece.
EVERY = 8
#: Samples of the segments that are copied, multiplied and transformed.
SIZES = (256, 1024, 4096, 16_384)
QUERY = """
    SELECT ranges.start, a.ch0, a.ch1, a.ch2, a.ch3 FROM ranges, audio AS a
    WHERE a.time >= ranges.start AND a.time < ranges.stop"""
_QUOTES = (
    '"We observe that CopyAlways and RefCount-Copy perform poorly as batch size increases. […] we'
    " observe that the throughput begins to drop substantially in both implementations beyond a"
    ' batch size of 200 KB" (III.B.2)',
    '"RefCount-Lazy performs the best, with throughput up to four times higher than the simple'
    " reference-counting approach, and an order of magnitude better than naive copying."
    ' Encouragingly, the lazy approach also has an almost flat performance curve" (III.B.2)',
)
_COPY_QUOTES = (
    '"while copy cost is insignificant compared to heavier algorithms such as a 256 point FFT, the'
    ' cost of making a copy consistently dwarfs X·X by a factor of 10" (III.B.1)',
)

Samples = npt.NDArray[np.int16]


def figures(rows: int | None = None) -> Iterator[Figure]:
    yield managers(rows or SAMPLES)
    yield copies(rows or SAMPLES)


# -- figure 6 --------------------------------------------------------------------------------------


def managers(samples: int) -> Figure:
    """Throughput of sync as batches grow."""
    sizes = [size for size in BATCHES if _batch(size) <= samples]
    speeds: dict[str, list[float]] = {name: [] for name in MANAGERS}
    right = True
    for size in sizes:
        taken: dict[str, list[float]] = {name: [] for name in MANAGERS}
        for _ in range(ROUNDS):
            for name in MANAGERS:
                run = Run(name, _batch(size), samples)
                taken[name].append(run.seconds)
                right &= run.is_right
        for name in MANAGERS:
            speeds[name].append(CHANNELS * run.samples / median(taken[name]) / 1e6)
    title = (
        f"Figure 6: {CHANNELS} channels of {samples:,} samples, in pieces of {PIECE}, through sync"
    )
    return Figure(
        "segments",
        title,
        _QUOTES,
        "kB of each channel in a batch",
        sizes,
        "M samples/s",
        speeds,
        _managers_checks(speeds),
        right,
        log_y=True,
    )


def _managers_checks(speeds: Mapping[str, Sequence[float]]) -> list[Check]:
    found = []
    for name, times in (("refcount_copy", 4), ("copy_always", 10)):
        ratio = speeds["lazy"][-1] / speeds[name][-1]
        what = f"lazy : {name}, largest batches"
        found.append(Check(what, ratio, f"the paper: up to {times}", ratio >= times))
    for name in ("refcount_copy", "copy_always"):
        left = speeds[name][-1] / max(speeds[name])
        found.append(
            Check(f"{name}, largest batches : its best", left, "the paper: collapses", left < 0.5)
        )
    left = speeds["lazy"][-1] / max(speeds["lazy"])
    goal = "the paper: almost flat"
    found.append(Check("lazy, largest batches : its best", left, goal, left >= 0.7))
    return found


def _batch(kilobytes: int) -> int:
    """Samples of a batch, in whole pieces."""
    return max(1, kilobytes * 1000 // 2 // PIECE) * PIECE


@dataclass(slots=True)
class Run:
    """Sync over batches of ``batch`` samples of each channel. ``seconds`` are those of the
    operator; ``samples`` are those of each channel that it took."""

    manager: str
    batch: int
    total: int
    seconds: float = 0.0
    samples: int = 0
    is_right: bool = True
    _due: list[int] = field(default_factory=list)
    _store: SegmentStore = field(init=False)
    _data: Samples = field(init=False)

    def __post_init__(self) -> None:
        plan = _plan(self.manager)
        workspace = Workspace(Dictionary(), "on", 1024, 1 << 40, segments=self.manager)
        graph = build([plan.root], workspace, fuse=True, nulls=[set(), set()])
        ones = int(workspace.ones.ctypes.data)
        runtime, self._store = DepthFirst(graph, self, ones=ones), workspace.signals
        feeds = zip(sources(plan.root), graph.entries, strict=True)
        (rows, ranges), (pieces, signal) = sorted(
            ((s, edge) for s, edge in feeds if edge is not None), key=lambda f: bool(f[0].signal)
        )
        room = max(1024, self.batch // PIECE)
        morsels = {
            edge: Morsel.allocate(s.schema, room, ones=ones, late_rows=True)
            for s, edge in ((rows, ranges), (pieces, signal))
        }
        for mask in (each for morsel in morsels.values() for each in morsel.masks):
            if mask is not None:
                mask[:] = 1
        self._data = _sound(self.batch)
        base = self._store.number_of(Timebase(Fraction(RATE)))
        block = self._store.share(self._data)
        try:
            for serial in range(max(1, self.total // self.batch)):
                made = self._pieces(morsels[signal], base, block, serial)
                self._ranges(morsels[ranges], rows.schema.names, serial)
                began = time.thread_time_ns()
                runtime.admit(morsels[signal], signal)
                runtime.admit(morsels[ranges], ranges)
                runtime.drain()
                self.seconds += (time.thread_time_ns() - began) / 1e9
                self.samples += self.batch
                self._store.release(made)
                self._store.sweep(2 * serial + 1)
        finally:
            self._store.let_go(block)
            workspace.close()
        self.is_right &= not self._due

    def _pieces(self, morsel: Morsel, base: int, block: int, serial: int) -> list[int]:
        """Fills the morsel with the batch, whose samples are always the same; returns its
        segments."""
        first, count = serial * self.batch, self.batch // PIECE
        made: list[int] = []
        for c in range(CHANNELS):
            own = [
                self._store.segment(
                    base, first + k * PIECE, self._data[k * PIECE : (k + 1) * PIECE], block
                )
                for k in range(count)
            ]
            data = morsel.data[c]
            assert data is not None
            data[:count] = own
            made += own
        morsel.words[[ROWS, SERIAL, PUNCTUATIONS]] = count, 2 * serial, 0
        return made

    def _ranges(self, morsel: Morsel, names: Sequence[str], serial: int) -> None:
        """Fills the morsel with the ranges of the batch, and says that none begins before its
        end."""
        first, count = serial * self.batch, self.batch // PIECE
        numbers = first + np.arange(EVERY // 2 % count, count, EVERY) * PIECE
        bounds = {"start": _time_of(numbers), "stop": _time_of(numbers + PIECE)}
        for name, times in bounds.items():
            data = morsel.data[names.index(name)]
            assert data is not None
            data[: len(times)] = times
        morsel.words[[ROWS, SERIAL, PUNCTUATIONS]] = len(numbers), 2 * serial + 1, 1
        morsel.punctuations[:3] = names.index("start"), _time_of(np.array(first + self.batch)), -1
        self._due += numbers.tolist()

    def deliver(self, morsel: Morsel, sink: int, feed: int | None = None) -> None:
        n = int(morsel.words[ROWS])
        for c in range(CHANNELS):
            made = view_address(int(morsel.words[data_word(1 + c)]), np.dtype(np.int64), n)
            starts = [self._store.start(g) for g in made.tolist()]
            lengths = [self._store.length(g) for g in made.tolist()]
            self.is_right &= starts == self._due[:n] and set(lengths) <= {PIECE}
        del self._due[:n]

    def failed(self, failure: Failure) -> None:
        raise AssertionError(failure)


def _time_of(number: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The microsecond in which a sample is, of which each has another."""
    return number * 1_000_000 // RATE


def _sound(samples: int) -> Samples:
    return np.random.default_rng(6).integers(-999, 999, samples).astype(np.int16)


def _plan(manager: str) -> PhysicalPlan:
    with cql.connect(spark=False, segments=manager) as session:
        times = {name: pa.array([], pa.timestamp("us", "UTC")) for name in ("start", "stop")}
        session.create_stream("ranges", pa.table(times), ordered_by="start")
        channels = {f"ch{c}": pa.array([], pa.int16()) for c in range(CHANNELS)}
        session.create_stream("audio", pa.table(channels), rate=RATE)
        query: Any = session.sql(QUERY)
        plan: PhysicalPlan = query._plan
        return plan


# -- a copy, a product, a transform ----------------------------------------------------------------


class _Unlimited:
    """No ``max_state``."""

    def resize(self, before: int, after: int, what: str) -> None:
        pass


def copies(samples: int) -> Figure:
    """Nanoseconds for each sample of a segment."""
    series: dict[str, list[float]] = {
        name: [] for name in ("reference", "copy", "X·X", "FFT of 256 samples")
    }
    for size in SIZES:
        times = max(1, samples // size)
        shared, copied = (
            SegmentStore(_Unlimited(), MANAGERS[name]) for name in ("lazy", "copy_always")
        )
        one, other = (store.make(0, 0, _sound(size)) for store in (shared, copied))
        short = shared.make(0, 0, _sound(256))
        power = max(1, times * size // 256 // 16)
        runs = {
            "reference": (partial(_passed, one, times), times * size),
            "copy": (partial(_passed, other, times), times * size),
            "X·X": (partial(_products, one, size, times), times * size),
            "FFT of 256 samples": (
                partial(_transforms, shared.address, short, power),
                power * 256,
            ),
        }
        for name, (run, read) in runs.items():
            run()  # compiles
            series[name].append(median(_seconds(run) for _ in range(ROUNDS)) / read * 1e9)
        for store in (shared, copied):
            store.close()
    product = median(np.divide(series["copy"], series["X·X"]).tolist())
    transform = median(np.divide(series["copy"], series["FFT of 256 samples"]).tolist())
    checks = [
        Check(
            "a copy : X·X, median",
            product,
            "the paper: 10",
            product >= 5,
            "memory for the copy comes from a list of free blocks, and it is in the cache",
        ),
        Check("a copy : FFT", transform, "the paper: insignificant", transform < 0.2),
    ]
    return Figure(
        "segment-copy",
        "A copy of a segment beside X·X and a transform",
        _COPY_QUOTES,
        "samples of the segment",
        SIZES,
        "ns/sample",
        series,
        checks,
        log_x=True,
        log_y=True,
    )


def _seconds(run: Any) -> float:
    began = time.thread_time_ns()
    run()
    return (time.thread_time_ns() - began) / 1e9


@njit(nogil=True)
def _passed(g: int, times: int) -> None:
    """Passes a segment on, as its memory manager does, and lets go of it."""
    for _ in range(times):
        release(pass_on(g))


@njit(nogil=True)
def _products(g: int, n: int, times: int) -> Any:
    total = np.int64(0)
    for _ in range(times):
        x = as_i16(flat(g), n)
        for i in range(n):
            total += np.int64(x[i]) * np.int64(x[i])
    return total


@njit(nogil=True)
def _transforms(s: int, g: int, times: int) -> None:
    for serial in range(times):
        segment_power(g, serial)
        sweep(s, serial)
