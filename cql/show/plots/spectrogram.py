"""The spectrogram of windows: a panel for each column of spectra."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes

from cql.errors import RunError
from cql.show.plots.columns import Bound, Segment, Values
from cql.show.plots.image import Spectra, matrix
from cql.show.plots.parts import lists, nothing, numbers, times
from cql.show.plots.times import TimeAxis
from cql.show.plots.trace import Numbers

if TYPE_CHECKING:
    import pyarrow as pa

    from cql.query.query import Query

#: The decibels between the darkest and the brightest colour, at most.
_DEPTH = 100.0


class Spectrogram:
    height = 3.2
    fills_panels = True

    def __init__(
        self,
        spectra: Mapping[int, tuple[str, Segment]],
        bound: int,
        windows: Bound,
        axis: TimeAxis,
    ) -> None:
        self.axis = axis
        self._columns = spectra
        self._images = {k: Spectra(frequencies(m)) for k, (_, m) in spectra.items()}
        self._bound = bound
        self._windows = windows
        self._origin: float | None = None  # the start of the first window, in microseconds

    @property
    def panels(self) -> int:
        return len(self._columns)

    @property
    def about(self) -> str:
        names = ", ".join(name for name, _ in self._columns.values())
        windows = max(i.windows for i in self._images.values())
        return f"spectrogram of {names}, {windows:,} windows"

    def read(self, query: Query) -> None:
        behind = np.float64(self._windows.behind)
        for batch in query.batches():
            starts: Numbers = times(batch.column(self._bound)) - behind
            if self._origin is None:
                self._origin = float(starts[0])
            places = (starts - self._origin) / float(self._windows.slide)
            for k, (name, m) in self._columns.items():
                image = self._images[k]
                values, lengths = lists(batch.column(k))
                powers = matrix(_powers(values, m.values), lengths, image.bins)
                if powers is None:
                    raise RunError(
                        f"a row of {name} has not {image.bins:,} frequencies, so these are unknown"
                    )
                image.add(places, powers)
        if self._origin is None:
            raise nothing()

    def draw(self, panels: Sequence[Axes]) -> None:
        assert self._origin is not None
        slide, size = float(self._windows.slide), float(self._windows.size)
        for axes, (k, (name, m)) in zip(panels, self._columns.items(), strict=True):
            image = self._images[k]
            cells = image.cells()
            # A cell reaches half a slide to both sides of the middle of its window.
            left = self._origin + (size - slide) / 2
            right = left + cells.shape[1] * image.width * slide
            ends = self.axis.places(np.array([left, right]))
            assert m.count is not None
            apart = float(m.rate / m.count)
            low = (m.first - 0.5) * apart
            finite = cells[np.isfinite(cells)]
            least, top = (finite.min(), finite.max()) if len(finite) else (0.0, 0.0)
            drawn = axes.imshow(
                cells,
                extent=(ends[0], ends[1], low, low + image.bins * apart),
                origin="lower",
                aspect="auto",
                cmap="magma",
                vmin=max(least, top - _DEPTH),
                vmax=top,
            )
            axes.set_ylim(max(0.0, low), low + image.bins * apart)
            axes.set_title(name, loc="left")
            axes.set_ylabel("frequency (Hz)")
            whole = axes.figure
            assert whole is not None
            whole.colorbar(drawn, ax=axes, label="power (dB)", pad=0.01)


def frequencies(m: Segment) -> int:
    """The number of frequencies of each window."""
    assert m.count is not None
    rest = max(0, m.count // 2 + 1 - m.first)
    return rest if m.length is None else min(rest, m.length)


def _powers(values: pa.Array[Any], of: Values) -> Numbers:
    """The squared magnitudes of spectra."""
    if of is Values.COMPLEX:
        re, im = (numbers(part) for part in values.flatten())
        return re * re + im * im
    found = numbers(values)
    return found * found if of is Values.MAGNITUDE else found
