"""PIPELINE and DETECTAUDIO with their samples in the representations of figure 8 of the XStream
paper (section IV.B), as this engine has them:

- *samples*: a row with its time for each sample. The Haar wavelet and the spectrum of a window are
  sums over its rows with a coefficient for each, since no function of rows takes a whole window;
- *windows by stride* (WindowStride): segments of rows (``sample_order``), each with a time and a
  sample of each channel; functions go over them in steps;
- *windows*: segments of the times and of the samples, which operators copy (``copy_always``), as
  the paper copies them into the order of columns;
- *segments*: of the samples alone, which operators share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

import cql
from benchmarks import signal_kernels, signal_pipeline
from benchmarks.signals import CHANNELS, DETECTAUDIO, calls
from benchmarks.workloads import Answer, sums

#: Of the samples of a channel, those that a row for each of them has: one in so many.
FEWER = 16


@dataclass(frozen=True, slots=True)
class Representation:
    """A query in a representation; ``segments`` and ``order``: the settings. ``fewer``: whether it
    runs over one in FEWER of the samples, because it is slow."""

    name: str
    query: str
    segments: str = "lazy"
    order: str = "columns"
    fewer: bool = False


@dataclass(frozen=True, slots=True)
class Application:
    """``forms``: those with a ``+`` in their names give other results than those without.
    ``session``: of so many samples of each channel."""

    name: str
    channels: int
    forms: Sequence[Representation]
    session: Callable[[int], cql.Session]
    answer: Callable[[pa.Table], Answer]


def _session(
    channels: Mapping[str, Any], rate: int, functions: Sequence[Any], constants: Mapping[str, str]
) -> cql.Session:
    """The same samples as rows with times and numbers (``samples``), as a signal that has the times
    as a channel (``timed``), and as a signal without times (``audio``)."""
    numbers = np.arange(len(next(iter(channels.values()))))
    session = cql.connect(spark=False, functions=functions)
    session.set("fuse", False)
    times = pa.array(numbers * (1_000_000 // rate), pa.timestamp("us", "UTC"))
    rows = pa.table({"ts": times, "n": numbers, **channels})
    session.create_stream("samples", rows, ordered_by="ts")
    session.create_stream("timed", pa.table({"t": numbers, **channels}), rate=rate)
    session.create_stream("audio", pa.table(dict(channels)), rate=rate)
    for name, value in constants.items():
        session.sql(f"CREATE CONSTANT {name} = {value}")
    return session


def _each(pattern: str, numbers: Sequence[int], between: str = ", ") -> str:
    return between.join(pattern.format(k=k) for k in numbers)


# -- PIPELINE --------------------------------------------------------------------------------------

_SENSORS = range(signal_pipeline.SENSORS)
_PERIOD = 1_000_000 // signal_pipeline.RATE
#: A value of the band has eight samples.
_BAND_TIMES = f"[RANGE {8 * _PERIOD} MICROSECONDS SLIDE {8 * _PERIOD} MICROSECONDS]"
_SPAN = signal_pipeline.WINDOW * _PERIOD
_TIMES = f"[RANGE {_SPAN} MICROSECONDS SLIDE {_SPAN} MICROSECONDS]"
_PLACES = signal_pipeline.WINDOW // 8
#: The third level of the Haar wavelet.
_BANDS = f"""
    SELECT window_start, min(n) / 8 % {_PLACES} AS place,
           {_each("sum(CASE WHEN n % 8 < 4 THEN s{k} ELSE -s{k} END) AS band{k}", _SENSORS)}
    FROM samples {_BAND_TIMES}"""
_ENERGIES = f"""
    SELECT window_start AS ts, place, {_each("band{k} * band{k} / 8e0 AS energy{k}", _SENSORS)}
    FROM ({_BANDS}) AS bands"""
_PEAKS = f"""
    SELECT window_start, window_end, {_each("max(energy{k}) AS peak{k}", _SENSORS)},
           {_each("arg_max(place, energy{k}) AS at{k}", _SENSORS)}
    FROM ({_ENERGIES}) AS energies {_TIMES}"""
#: What TrimPeak leaves behind a peak, under a Hann window.
_REST = (
    "CASE WHEN e.place >= p.at{k} + 2 THEN e.energy{k} * (0.5e0 - 0.5e0 * cos("
    f"{2 * np.pi:.17e} * (e.place - p.at{{k}} - 2) / greatest({_PLACES - 3} - p.at{{k}}, 1)))"
    " END AS rest{k}"
)
_RESTS = f"""
    SELECT e.ts, {_each("p.peak{k}", _SENSORS)}, {_each("p.at{k}", _SENSORS)},
           {_each(_REST, _SENSORS)}
    FROM ({_PEAKS}) AS p, ({_ENERGIES}) AS e
    WHERE e.ts >= p.window_start AND e.ts < p.window_end"""
_LEAKS_BY_SAMPLE = f"""
    SELECT leak, up, trans, time FROM leak_detect(TABLE (
        SELECT window_start, {_each("any_value(peak{k}) AS peak{k}", _SENSORS)},
               {_each("any_value(at{k}) AS at{k}", _SENSORS)},
               {_each("max(rest{k}) AS echo{k}", _SENSORS)}
        FROM ({_RESTS}) AS rests {_TIMES}
    ), omega) AS leaks"""
_LEAKS = signal_pipeline.text().replace("FROM pipe", "FROM audio")
#: Each operator passes the times on; the last one drops them.
_LEAKS_OF_WINDOWS = (
    _LEAKS.replace("SELECT window_start,", "SELECT window_start, t,")
    .replace("SELECT window_start, t,", "SELECT window_start,", 1)
    .replace("FROM audio", "FROM timed")
    .replace(") AS trimmed", ") AS trimmed WHERE count(t) > 0")
)


def _pipeline_session(samples: int) -> cql.Session:
    found = signal_pipeline.sensors(samples)
    functions = [signal_pipeline.leak_detect]
    constants = {"omega": f"{signal_pipeline.OMEGA}"}
    channels = {f"s{k}": x for k, x in enumerate(found)}
    return _session(channels, signal_pipeline.RATE, functions, constants)


def _leaks(table: pa.Table) -> Answer:
    return signal_pipeline.answer(table["leak"].to_pylist(), table["time"].cast(pa.int64()))


PIPELINE = Application(
    "PIPELINE",
    signal_pipeline.SENSORS,
    (
        Representation("samples", _LEAKS_BY_SAMPLE, fewer=True),
        Representation("windows by stride", _LEAKS_OF_WINDOWS, order="rows"),
        Representation("windows", _LEAKS_OF_WINDOWS, "copy_always"),
        Representation("segments", _LEAKS),
    ),
    _pipeline_session,
    _leaks,
)

# -- DETECTAUDIO -----------------------------------------------------------------------------------

_WINDOW = signal_kernels.SHORT
#: Sample k of the signal has the time of k microseconds.
_RATE = 1_000_000
_NAMES = [f"ch{k}" for k in range(CHANNELS)]
_LISTED = ", ".join(f"a.{name}" for name in _NAMES)
_LOW, _HIGH = range(1, 5), range(5, 13)
_BINS = range(1, 13)
#: By bin of the spectrum, the coefficients of the samples of a window.
_COEFFICIENTS = {
    f"{part}{k}": signal_kernels.HANN * turned
    for k in _BINS
    for part, turned in (
        ("re", np.cos(k * signal_kernels.TURNS)),
        ("im", np.sin(k * signal_kernels.TURNS)),
    )
}
_SUMS = (
    f"sum(ch0 * re{{k}}[n % {_WINDOW}]) AS re{{k}}, sum(ch0 * im{{k}}[n % {_WINDOW}]) AS im{{k}}"
)
_POWER = "re{k} * re{k} + im{k} * im{k}"
_EVENTS_BY_SAMPLE = f"""
    SELECT window_start, window_end FROM (
        SELECT window_start, window_end, cfar(score, omega) AS is_loud
        FROM (
            SELECT window_start, window_end,
                   0.25e0 * ({_each(_POWER, _LOW, " + ")})
                   + 0.75e0 * ({_each(_POWER, _HIGH, " + ")}) AS score
            FROM (
                SELECT window_start, window_end, {_each(_SUMS, _BINS)}
                FROM samples [RANGE {_WINDOW} MICROSECONDS SLIDE {_WINDOW} MICROSECONDS]
            ) AS spectra
        ) AS weighted
    ) AS scores
    WHERE is_loud"""
_EVENTS = DETECTAUDIO[DETECTAUDIO.index("FROM (") + len("FROM (") : DETECTAUDIO.index(") AS event")]
_EVENTS_OF_WINDOWS = _EVENTS.replace("SELECT window_start,", "SELECT t, window_start,").replace(
    "FROM audio", "FROM timed"
)


def _synced(events: str, stream: str, columns: str) -> str:
    """The sound of the events, by sync or by a join of rows."""
    time = "ts" if stream == "samples" else "time"
    return f"""SELECT {columns} FROM ({events}) AS event, {stream} AS a
        WHERE a.{time} >= event.window_start AND a.{time} < event.window_end"""


def _detectaudio_session(samples: int) -> cql.Session:
    channels = dict(zip(_NAMES, calls(samples), strict=True))
    listed = {
        name: f"array({', '.join(f'{v:.17e}' for v in values)})"
        for name, values in _COEFFICIENTS.items()
    }
    return _session(channels, _RATE, (), {"omega": f"{signal_kernels.OMEGA:g}", **listed})


def _events(table: pa.Table) -> Answer:
    """The sums of the beginnings of windows, or of the samples of each channel."""
    wanted = _NAMES if "ch0" in table.column_names else ["window_start"]
    return sums(*(_flat(table[name]) for name in wanted))


def _flat(column: pa.ChunkedArray) -> Any:
    if pa.types.is_list(column.type):
        parts = [chunk.flatten().to_numpy() for chunk in column.chunks]
        return np.concatenate(parts).astype(np.int64) if parts else np.zeros(0, np.int64)
    return column.cast(pa.int64()).to_numpy()


DETECTION = Application(
    "DETECTAUDIO",
    CHANNELS,
    (
        Representation("samples", _EVENTS_BY_SAMPLE, fewer=True),
        Representation("windows", _EVENTS_OF_WINDOWS, "copy_always"),
        Representation("segments", _EVENTS),
        Representation(
            "samples + join", _synced(_EVENTS_BY_SAMPLE, "samples", _LISTED), fewer=True
        ),
        Representation(
            "windows + sync", _synced(_EVENTS_OF_WINDOWS, "timed", f"a.t, {_LISTED}"), "copy_always"
        ),
        Representation("segments + sync", _synced(_EVENTS, "audio", _LISTED)),
    ),
    _detectaudio_session,
    _events,
)
