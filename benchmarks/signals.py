"""Table I of the XStream paper: PASSCHAIN, STATFILTER and SILENCEFILTER as bare kernels, as
segments and as a row for each sample (NoSigSeg there), and the time to load the sound from a file.
DETECTAUDIO, over four channels, as a bare kernel and as segments. Two applications of section II
beside numpy.

    python -m benchmarks.run signals

As in the paper, three rounds of six count.
"""

from __future__ import annotations

import tempfile
import wave
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import cql
from benchmarks import signal_kernels as kernels
from benchmarks import signal_network as packets
from benchmarks import signal_pipeline as pipes
from benchmarks.harness import Benchmark, Contender, Limit, Ratio
from benchmarks.signal_kernels import ALPHA, BETA, GAMMA, WINDOW
from benchmarks.workloads import Answer, sums
from cql.executor.run.execution import Execution
from cql.planner.nodes.expr import Column
from cql.planner.nodes.physical import Physical, ProjectExec

#: Samples: about the 38 minutes that the paper's rate takes a second for.
SAMPLES = 100_000_000
RATE = 44_100
#: Samples where a join takes a microsecond for each.
JOINED = 4_000_000
#: Samples of each channel of DETECTAUDIO.
DETECTED = 20_000_000
CHANNELS = 4
#: Samples of the file: nine seconds.
FILE = 9 * RATE
#: Samples of all sensors of PIPELINE.
PIPE = 10_000_000
#: Packets of the network.
PACKETS = 100_000
#: Operators of PASSCHAIN.
CHAIN = 10
#: Rounds before those that count, and rounds that count.
ROUNDS = {"warm": 3, "counted": 3}
#: The least share of the bare kernel's rate.
SHARE = 0.6
#: NoSigSeg of the paper.
_ROWS = "a row for each sample"

DETECTAUDIO = (Path(__file__).parents[1] / "queries/xstream/detectaudio.cql").read_text("utf-8")
PASSCHAIN = f"SELECT {{}} FROM audio [ROWS {WINDOW} SLIDE {WINDOW}]"
STATFILTER = f"""
    SELECT window_start FROM (
        SELECT ch0, window_start FROM audio [ROWS {WINDOW} SLIDE {WINDOW}]
        WHERE stddev(ch0) > {ALPHA}
    ) AS varied WHERE avg(ch0) < {BETA}"""
STATFILTER_BY_SAMPLE = f"""
    SELECT ts FROM (
        SELECT min(ts) AS ts, stddev(ch0) AS spread, avg(ch0) AS mean
        FROM samples [RANGE {WINDOW} MICROSECONDS SLIDE {WINDOW} MICROSECONDS]
    ) AS varied WHERE spread > {ALPHA} AND mean < {BETA}"""
SILENCEFILTER = f"""
    SELECT sound.ch0 FROM (
        SELECT window_start, window_end FROM audio [ROWS {WINDOW} SLIDE {WINDOW}]
        WHERE stddev(ch0) > {GAMMA}
    ) AS loud, audio AS sound
    WHERE sound.time >= loud.window_start AND sound.time < loud.window_end"""
_LOUD_BY_SAMPLE = f"""(
        SELECT window_start, window_end FROM (
            SELECT stddev(ch0) AS spread, window_start, window_end
            FROM samples [RANGE {WINDOW} MICROSECONDS SLIDE {WINDOW} MICROSECONDS]
        ) AS w WHERE spread > {GAMMA}
    ) AS loud"""
SILENCEFILTER_BY_SAMPLE = f"""
    SELECT sound.ch0 FROM {_LOUD_BY_SAMPLE}, audio AS sound
    WHERE sound.time >= loud.window_start AND sound.time < loud.window_end"""
SILENCEFILTER_JOINED = f"""
    SELECT sound.ts, sound.ch0 FROM {_LOUD_BY_SAMPLE}, samples AS sound
    WHERE sound.ts >= loud.window_start AND sound.ts < loud.window_end"""

Samples = npt.NDArray[np.int16]


def sound(samples: int) -> Samples:
    """Noise whose loudness changes every 20,000 samples: at most so many samples, in whole windows,
    as a row for each sample would also have a last window that is not whole."""
    samples -= samples % WINDOW
    rng = np.random.default_rng(2008)
    once = rng.normal(size=min(samples, 4_000_000))
    loudness = np.repeat(rng.integers(0, 1000, len(once) // 20_000 + 1), 20_000)[: len(once)]
    piece = (once * loudness).astype(np.int16)
    return np.resize(piece, samples)


def calls(samples: int) -> Samples:
    """Four channels of noise, of which every tenth piece is ten times as loud. The other channels
    hear the same a little later. The number of samples is that of ``sound``."""
    samples -= samples % WINDOW
    once = np.random.default_rng(2008).normal(scale=100, size=min(samples, 4_000_000))
    once[np.arange(len(once)) // 2000 % 10 == 9] *= 10
    x = np.resize(once.astype(np.int16), samples)
    return np.stack([np.roll(x, 10 * k) for k in range(CHANNELS)])


class _Ours:
    """``rate``: of the signal ``audio``. Row k of the stream ``samples`` has the time of k
    microseconds, as sample k of a signal of a million hertz."""

    def __init__(self, query: str, samples: Samples, rate: int = RATE) -> None:
        self.session = cql.connect(spark=False)
        self.session.set("workers", 1)
        self.session.create_stream("audio", pa.table({"ch0": samples}), rate=rate)
        if "samples" in query:
            times = pa.array(np.arange(len(samples)), pa.timestamp("us"))
            table = pa.table({"ts": times, "ch0": samples})
            self.session.create_stream("samples", table, ordered_by="ts")
        self.query = query

    def run(self) -> pa.Table:
        return self.session.sql(self.query).to_arrow()

    def run_chain(self) -> pa.Table:
        """The query with ten operators more, each an operator of its own, that pass rows on: below
        its projection, if it has one."""
        query: Any = self.session.sql(self.query)
        plan = query._plan
        last = plan.root if isinstance(plan.root, ProjectExec) else None
        chained: Physical = plan.root if last is None else last.input
        for _ in range(CHAIN):
            fields = enumerate(chained.schema)
            columns = tuple(Column(i, f.name, f.type, f.nullable) for i, f in fields)
            chained = ProjectExec(chained, columns, chained.schema.names)
        plan = replace(plan, root=chained if last is None else replace(last, input=chained))
        execution = Execution(plan, self.session.settings.with_("fuse", "off"))
        batches: Sequence[Any] = [batch for _, batch in execution.results()]
        return pa.Table.from_batches(batches, plan.root.schema.to_arrow())


def passchain(rows: int | None = None, folder: Path | None = None) -> Benchmark:
    """Ten operators that pass segments on, then a sum of each, so that every sample is read. With
    lengths instead of sums nothing reads the samples."""
    x = sound(rows or SAMPLES)
    found = np.empty(len(x) // WINDOW, np.int64)
    expected = _sums(found[: kernels.passchain(x, found)])
    read = _Ours(PASSCHAIN.format("sum(ch0) AS found"), x)
    passed = _Ours(PASSCHAIN.format("count(ch0) AS found"), x)
    by_sample = _Ours("SELECT ts, ch0 FROM samples", x)
    contenders = [
        Contender("bare kernel", lambda: found[: kernels.passchain(x, found)], _sums, pinned=True),
        Contender("segments", read.run_chain, _first_column, pinned=True, paper=71.4e6),
        Contender(
            "segments that nothing reads",
            passed.run_chain,
            _first_column,
            pinned=True,
            expected=_sums(np.full(len(found), WINDOW)),
        ),
        Contender(
            _ROWS,
            by_sample.run_chain,
            _timed,
            pinned=True,
            expected=_timed_sums(np.arange(len(x)), x),
            paper=92.8e3,
        ),
    ]
    return _benchmark("passchain-segments", "PASSCHAIN", x, expected, contenders, 5000)


def statfilter(rows: int | None = None, folder: Path | None = None) -> Benchmark:
    """The windows that pass: the number of the first sample of each."""
    x = sound(rows or SAMPLES)
    found = np.empty(len(x) // WINDOW, np.int64)
    expected = _sums(found[: kernels.statfilter(x, found)])
    ours, by_sample = _Ours(STATFILTER, x), _Ours(STATFILTER_BY_SAMPLE, x)
    contenders = [
        Contender("bare kernel", lambda: found[: kernels.statfilter(x, found)], _sums, pinned=True),
        Contender(
            "segments", ours.run, lambda table: _sums(_firsts(table)), pinned=True, paper=97.6e6
        ),
        Contender("a row for each sample", by_sample.run, _first_column, pinned=True, paper=57.9e3),
    ]
    return _benchmark("statfilter", "STATFILTER", x, expected, contenders, 3000)


def silencefilter(rows: int | None = None, folder: Path | None = None) -> Benchmark:
    """The samples of the windows that are not silent, one after the other."""
    x = sound(rows or SAMPLES)
    found = np.empty(len(x), np.int16)
    expected = _sums(found[: kernels.silencefilter(x, found)])
    ours = _Ours(SILENCEFILTER, x)
    contenders = [
        Contender(
            "bare kernel",
            lambda: found[: kernels.silencefilter(x, found)],
            _sums,
            pinned=True,
        ),
        Contender("segments", ours.run, _concatenated, pinned=True, paper=64.5e6),
    ]
    return _benchmark("silencefilter", "SILENCEFILTER", x, expected, contenders, 2500)


def silencefilter_by_row(rows: int | None = None, folder: Path | None = None) -> Benchmark:
    """The same where a row for each sample finds the windows, and sync or a join takes their
    samples."""
    x = sound(min(rows or JOINED, JOINED))
    found = np.empty(len(x), np.int16)
    expected = _sums(found[: kernels.silencefilter(x, found)])
    synced = _Ours(SILENCEFILTER_BY_SAMPLE, x, 1_000_000)
    joined = _Ours(SILENCEFILTER_JOINED, x)
    loud = _loud(x)
    contenders = [
        Contender("sync", synced.run, _concatenated, pinned=True),
        Contender(
            "join",
            joined.run,
            _timed,
            pinned=True,
            expected=_timed_sums(loud, x[loud]),
            paper=75.1e3,
        ),
    ]
    return Benchmark(
        "silencefilter-by-row",
        f"SILENCEFILTER of the XStream paper: {len(x):,} samples in memory, a row for each",
        len(x),
        expected,
        contenders,
        [Ratio("sync", "join")],
        counted=ROUNDS["counted"],
    )


def detectaudio(rows: int | None = None, folder: Path | None = None) -> Benchmark:
    """The sound of all channels where one of them is louder than its noise."""
    channels = calls(rows or DETECTED)
    x = channels[0]
    found, firsts = np.empty_like(channels), np.empty(len(x) // kernels.SHORT, np.int64)

    def bare() -> tuple[Samples, npt.NDArray[np.int64]]:
        n = kernels.detectaudio(channels, found, firsts)
        return found[:, : n * kernels.SHORT], firsts[:n]

    session = cql.connect(spark=False)
    session.set("workers", 1)
    table = pa.table({f"ch{k}": channel for k, channel in enumerate(channels)})
    session.create_stream("audio", table, rate=RATE)
    session.sql(f"CREATE CONSTANT omega = {kernels.OMEGA:g}")
    contenders = [
        Contender("bare kernel", bare, lambda made: _events(*made), pinned=True),
        Contender(
            "segments",
            lambda: session.sql(DETECTAUDIO).to_arrow(),
            lambda table: _events([_samples(c) for c in table.columns[1:]], _firsts(table)),
            pinned=True,
            paper=7.5e6,
        ),
    ]
    return Benchmark(
        "detectaudio",
        f"DETECTAUDIO of the XStream paper: {len(x):,} samples of {CHANNELS} channels in memory",
        len(x),
        _events(*bare()),
        contenders,
        [Ratio("segments", "bare kernel")],
        warm=ROUNDS["warm"],
        counted=ROUNDS["counted"],
    )


def pipeline(rows: int | None = None, folder: Path | None = None) -> Benchmark:
    """The waves that ten sensors of a water pipe hear, with their times. The operator in Python is
    called for each window of all sensors."""
    sensors = pipes.sensors((rows or PIPE) // pipes.SENSORS)
    session = cql.connect(spark=False, functions=[pipes.leak_detect])
    session.set("workers", 1)
    table = pa.table({f"s{k}": samples for k, samples in enumerate(sensors)})
    session.create_stream("pipe", table, rate=pipes.RATE)
    session.sql(f"CREATE CONSTANT omega = {pipes.OMEGA}")
    text = pipes.text()
    contenders = [
        Contender("numpy", lambda: pipes.leaks_of(sensors), lambda found: found, pinned=True),
        Contender(
            "segments", lambda: session.sql(text).to_arrow(), _leaks, pinned=True, paper=4.3e6
        ),
    ]
    return Benchmark(
        "pipeline",
        f"PIPELINE of the XStream paper: {sensors.size:,} samples in memory, of ten sensors",
        sensors.size,
        pipes.leaks_of(sensors),
        contenders,
        [Ratio("segments", "numpy")],
        warm=ROUNDS["warm"],
        counted=ROUNDS["counted"],
    )


def network(rows: int | None = None, folder: Path | None = None) -> Benchmark:
    """Packets of a radio network, each from the copies of up to five receivers. ``rows``: packets.
    The operator in Python is called for each source every 50 milliseconds, which are about 125
    packets."""
    count = packets.whole(rows or PACKETS)
    air, heard = packets.received(count)
    session = cql.connect(spark=False, functions=[packets.choose_receivers])
    session.set("workers", 1)
    table = pa.table({f"r{k}": bits for k, bits in enumerate(air)})
    session.create_stream("air", table, rate=packets.RATE)
    session.create_stream("heard", heard, ordered_by="ts")
    text = packets.text()
    contenders = [
        Contender(
            "numpy", lambda: packets.packets_of(air, heard), lambda found: found, pinned=True
        ),
        Contender(
            "segments", lambda: session.sql(text).to_arrow(), _packets, pinned=True, paper=241.5e3
        ),
    ]
    return Benchmark(
        "network",
        f"Network monitoring of the XStream paper: {count:,} packets, of five receivers in memory",
        count,
        packets.packets_of(air, heard),
        contenders,
        [Ratio("segments", "numpy")],
        warm=ROUNDS["warm"],
        counted=ROUNDS["counted"],
    )


def loading(rows: int | None = None, folder: Path | None = None) -> Benchmark:
    """Nine seconds of sound from a file, as rows. The paper reads CSV."""
    x = sound(min(rows or FILE, FILE))
    kept = tempfile.TemporaryDirectory(prefix="sound-")
    csv, wav = Path(kept.name, "sound.csv"), Path(kept.name, "sound.wav")
    csv.write_text("ch0\n" + "\n".join(map(str, x.tolist())) + "\n", encoding="utf-8")
    with closing(wave.open(str(wav), "wb")) as file:
        file.setnchannels(1)
        file.setsampwidth(x.itemsize)
        file.setframerate(RATE)
        file.writeframes(x.tobytes())

    def load(path: Path, clauses: str) -> Callable[[], pa.Table]:
        session = cql.connect(spark=False)
        session.set("workers", 1)
        session.sql(
            f"CREATE STREAM audio (ch0 SMALLINT) USING {path.suffix[1:]}"
            f" OPTIONS (path '{path}') {clauses}"
        )
        return lambda: session.sql("SELECT * FROM audio").to_arrow()

    contenders = [
        Contender("CSV", load(csv, f"RATE {RATE} HZ"), _first_column, paper=FILE / 0.2),
        Contender("WAV", load(wav, ""), _first_column),
    ]
    title = f"Loading {len(x):,} samples of sound from a file (paper: 0.2 s for {FILE:,})"
    return Benchmark(
        "signals-load",
        title,
        len(x),
        _sums(x),
        contenders,
        bandwidth=False,
        warm=ROUNDS["warm"],
        counted=ROUNDS["counted"],
        close=kept.cleanup,
    )


def _benchmark(
    name: str,
    title: str,
    x: Samples,
    expected: Answer,
    contenders: Sequence[Contender],
    goal: float,
) -> Benchmark:
    """``goal``: millions of samples a second, as segments."""
    ratios = [Ratio("segments", "bare kernel", SHARE)]
    if any(c.name == _ROWS for c in contenders):
        ratios.append(Ratio("segments", _ROWS))
    return Benchmark(
        name,
        f"{title} of the XStream paper: {len(x):,} samples in memory",
        len(x),
        expected,
        contenders,
        ratios,
        [Limit("segments", len(x) / (goal * 1e6))],
        warm=ROUNDS["warm"],
        counted=ROUNDS["counted"],
    )


def _loud(x: Samples) -> npt.NDArray[np.int64]:
    """The numbers of the samples of the windows that are not silent."""
    found = np.empty(len(x), np.int64)
    return found[: kernels.loud(x, found)]


def _sums(values: Any) -> Answer:
    wide = np.asarray(values, np.int64)
    return sums(wide, wide * (np.arange(len(wide)) % 1009))


def _first_column(table: Any) -> Answer:
    column = table.column(0)
    return _sums(column.cast("int64") if pa.types.is_timestamp(column.type) else column)


def _concatenated(table: Any) -> Answer:
    """Segments, one after the other."""
    return _sums(_samples(table.column(0)))


def _samples(column: Any) -> Any:
    """The samples of segments, one after the other."""
    return np.concatenate([c.values.to_numpy() for c in column.chunks])


def _events(samples: Any, firsts: Any) -> Answer:
    """The samples of each channel, and the numbers of the first samples of the events."""
    return _sums(np.concatenate([*samples, firsts]))


def _timed(table: Any) -> Answer:
    """Rows of a time and a sample, in any order."""
    return _timed_sums(table.column(0).cast("int64").to_numpy(), table.column(1).to_numpy())


def _timed_sums(times: Any, samples: Any) -> Answer:
    wide = np.asarray(samples, np.int64)
    return sums(wide, wide * (times % 1009))


def _leaks(table: Any) -> Answer:
    times = table.column("time").cast("int64").to_numpy()
    return pipes.answer(table.column("leak").to_pylist(), times)


def _packets(table: Any) -> Answer:
    known = table.column("known").cast("int64").to_numpy()
    return packets.answer(known, _samples(table.column("bits")).reshape(len(known), -1))


def _firsts(table: Any) -> Any:
    """The numbers of the samples that begin at the times."""
    micros = table.column(0).cast("int64").to_numpy()
    return np.round(micros * (RATE / 1e6)).astype(np.int64)


#: What ``signals`` runs: table I, and the applications.
TABLE_I = (
    loading,
    passchain,
    statfilter,
    silencefilter,
    silencefilter_by_row,
    detectaudio,
    pipeline,
    network,
)
