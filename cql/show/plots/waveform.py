"""The waveform of a signal: a panel for each channel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes

from cql.show.plots.columns import Bound, Samples, Segment
from cql.show.plots.parts import lists, nothing, numbers, times
from cql.show.plots.times import TimeAxis
from cql.show.plots.trace import Curve, Envelope, Numbers, Trace

if TYPE_CHECKING:
    from cql.query.query import Query


class _Waveform:
    """A panel for each of some ``channels``, with the rate of each in hertz."""

    height = 2.2
    fills_panels = False

    def __init__(self, axis: TimeAxis, channels: Sequence[tuple[str, float, Trace]]) -> None:
        self.axis = axis
        self._channels = channels
        self._origin: int | None = None  # the time of place 0, in microseconds

    @property
    def panels(self) -> int:
        return len(self._channels)

    @property
    def about(self) -> str:
        names = ", ".join(name for name, _, _ in self._channels)
        samples = max(trace.samples for _, _, trace in self._channels)
        return f"waveform of {names}, {samples:,} samples"

    def draw(self, panels: Sequence[Axes]) -> None:
        ends = list[float]()
        for axes, (name, rate, trace) in zip(panels, self._channels, strict=True):
            drawn = trace.drawn()
            if isinstance(drawn, Curve):
                places = self._places(drawn.places, rate)
                axes.plot(places, drawn.values, linewidth=0.6)
            else:
                places = self._places(drawn.edges, rate)
                _fill(axes, places, drawn)
            known = places[~np.isnan(places)]
            ends += [known.min(), known.max()] if len(known) else []
            axes.set_ylabel(name)
        if ends and min(ends) < max(ends):
            panels[0].set_xlim(min(ends), max(ends))

    def _places(self, periods: Numbers, rate: float) -> Numbers:
        return self.axis.places((self._origin or 0) + periods * (1_000_000 / rate))


def _fill(axes: Axes, edges: Numbers, drawn: Envelope) -> None:
    if len(drawn.high):  # otherwise, all samples are NULL or NaN
        axes.stairs(drawn.high, edges, baseline=drawn.low, fill=True, linewidth=0.6, edgecolor="C0")


class Rows(_Waveform):
    """Of rows that are samples: their ``channels`` are the names of columns."""

    def __init__(self, channels: Mapping[int, str], samples: Samples, axis: TimeAxis) -> None:
        rate = float(samples.rate)
        near = samples.tolerance
        tolerance = 0.5 if near is None else near * rate / 1_000_000
        super().__init__(axis, [(n, rate, Trace(tolerance)) for n in channels.values()])
        self._columns = tuple(channels)
        self._samples = samples

    def read(self, query: Query) -> None:
        passed, known = self._samples.first, False
        for batch in query.batches():
            rows = batch.num_rows
            if self._samples.time is None:
                places: Numbers = np.arange(passed, passed + rows, dtype=np.float64)
                valid = None
            else:
                column = batch.column(self._samples.time)
                valid = column.is_valid().to_numpy(zero_copy_only=False)
                at = times(column.filter(column.is_valid()))
                if not len(at):
                    continue
                if self._origin is None:
                    self._origin = int(at[0])
                places = (at - self._origin) * np.float64(self._channels[0][1] / 1_000_000)
            passed += rows
            known = True
            for k, (_, _, trace) in zip(self._columns, self._channels, strict=True):
                values = numbers(batch.column(k))
                trace.add(places, values if valid is None else values[valid])
        if not known:
            raise nothing()


class Segments(_Waveform):
    """Of windows with segments of samples."""

    def __init__(
        self,
        channels: Mapping[int, tuple[str, Segment]],
        bound: int,
        windows: Bound,
        axis: TimeAxis,
    ) -> None:
        # The first sample of a window by time is less than a period behind its start.
        exact = windows.numbered or not windows.by_time
        tolerance = 0.5 if exact else 1.0
        super().__init__(
            axis, [(name, float(m.rate), Trace(tolerance)) for name, m in channels.values()]
        )
        self._columns = {k: m for k, (_, m) in channels.items()}
        self._bound = bound
        self._windows = windows

    def read(self, query: Query) -> None:
        windows, known = self._windows, False
        hertz = float(windows.rate) / 1_000_000
        for batch in query.batches():
            starts: Numbers = times(batch.column(self._bound)) - np.float64(windows.behind)
            if windows.by_time and windows.numbered:
                starts = np.ceil(starts * hertz - 1e-6) / hertz
            if self._origin is None:
                self._origin = 0 if self.axis.in_seconds else int(starts[0])
            known = True
            for (k, m), (_, rate, trace) in zip(self._columns.items(), self._channels, strict=True):
                values, lengths = lists(batch.column(k))
                ends = np.cumsum(lengths)
                within = np.arange(len(values)) - np.repeat(ends - lengths, lengths)
                first = (starts - self._origin) * (rate / 1_000_000) + m.first
                trace.add(np.repeat(first, lengths) + within, numbers(values))
        if not known:
            raise nothing()
