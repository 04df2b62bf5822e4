"""Rows of the traces of several channels: which sample of which trace is in which row.

Traces that overlap in time, or follow each other within one and a half periods, share a grid of
times, which begins with the first of them; a sample is in the row of the nearest time. A later
trace begins a grid of its own. Times without a sample of any channel have no row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cql.catalog.memory.rows import Rows

#: Rows that are made at a time.
PIECE = 1 << 18
_SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Trace:
    """Samples of one channel without a gap; ``start`` is the time of the first, in nanoseconds."""

    channel: str
    start: int
    samples: npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class _Part:
    """The samples of a trace in the rows from ``row`` on."""

    row: int
    samples: npt.NDArray[Any]

    @property
    def end(self) -> int:
        return self.row + len(self.samples)


@dataclass(slots=True)
class _Stretch:
    """Rows at every time of a grid. Rows are numbered from ``row`` on; the first has the number
    ``first`` in the grid that begins at ``origin``."""

    row: int
    first: int
    rows: int
    origin: int


@dataclass(slots=True)
class Layout:
    """``overlapping``: the number of samples of a channel that are left out, since an earlier trace
    of the channel has a sample in their row."""

    period: Fraction
    rows: int = 0
    stretches: list[_Stretch] = field(default_factory=list)
    parts: dict[str, list[_Part]] = field(default_factory=dict)
    overlapping: dict[str, int] = field(default_factory=dict)


def laid_out(traces: Sequence[Trace], hertz: float) -> Layout:
    period = _SECOND / Fraction(str(hertz)).limit_denominator(10**6)
    layout = Layout(period)
    together: list[Trace] = []
    end = 0
    for trace in sorted(traces, key=lambda t: (t.start, t.channel, -len(t.samples))):
        if together and trace.start > end + period / 2:
            _lay(layout, together)
            together = []
        own_end = trace.start + int(len(trace.samples) * period)
        end = max(end, own_end) if together else own_end
        together.append(trace)
    if together:
        _lay(layout, together)
    return layout


def _lay(layout: Layout, traces: Sequence[Trace]) -> None:
    """Adds the rows of traces that share a grid."""
    origin, ends = traces[0].start, dict[str, int]()
    placed: list[tuple[str, int, npt.NDArray[Any]]] = []
    for trace in traces:
        first = round((trace.start - origin) / layout.period)
        taken = min(max(0, ends.get(trace.channel, 0) - first), len(trace.samples))
        if taken:
            before = layout.overlapping.get(trace.channel, 0)
            layout.overlapping[trace.channel] = before + taken
        if taken < len(trace.samples):
            placed.append((trace.channel, first + taken, trace.samples[taken:]))
            ends[trace.channel] = first + len(trace.samples)
    stretch: _Stretch | None = None
    for channel, first, samples in sorted(placed, key=lambda p: p[1]):
        if stretch is None or first > stretch.first + stretch.rows:
            stretch = _Stretch(layout.rows, first, 0, origin)
            layout.stretches.append(stretch)
        row = stretch.row + first - stretch.first
        layout.parts.setdefault(channel, []).append(_Part(row, samples))
        stretch.rows = max(stretch.rows, first + len(samples) - stretch.first)
        layout.rows = stretch.row + stretch.rows


def pieces(
    layout: Layout, types: Mapping[str, pa.DataType], time: str, skip: int
) -> Iterator[Rows]:
    """The rows from ``skip`` on, with the columns ``types``, of which ``time`` has the times."""
    at = dict.fromkeys(types, 0)
    for begin in range(skip, layout.rows, PIECE):
        end = min(begin + PIECE, layout.rows)
        arrays = []
        for name, kind in types.items():
            if name == time:
                arrays.append(pa.array(_times(layout, begin, end)).cast(kind))
                continue
            parts = layout.parts.get(name, [])
            while at[name] < len(parts) and parts[at[name]].end <= begin:
                at[name] += 1
            arrays.append(_channel(parts[at[name] :], kind, begin, end))
        yield Rows(pa.RecordBatch.from_arrays(arrays, names=list(types)))


def _channel(parts: Sequence[_Part], kind: pa.DataType, begin: int, end: int) -> Any:
    made = np.zeros(end - begin, kind.to_pandas_dtype())
    lacks = np.ones(end - begin, np.bool_)
    for part in parts:
        if part.row >= end:
            break
        low, high = max(part.row, begin), min(part.end, end)
        made[low - begin : high - begin] = part.samples[low - part.row : high - part.row]
        lacks[low - begin : high - begin] = False
    return pa.array(made, mask=lacks if lacks.any() else None)


def _times(layout: Layout, begin: int, end: int) -> npt.NDArray[np.int64]:
    """The times of rows, in microseconds."""
    made = np.empty(end - begin, np.int64)
    for stretch in layout.stretches:
        low, high = max(stretch.row, begin), min(stretch.row + stretch.rows, end)
        if low < high:
            number = np.arange(low, high) - stretch.row + stretch.first
            after = np.rint(number * float(layout.period)).astype(np.int64)
            made[low - begin : high - begin] = (stretch.origin + after + 500) // 1_000
    return made
