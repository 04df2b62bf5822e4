"""The spectra of windows as the cells of an image: time by frequency, of a bounded size."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cql.show.plots.trace import Numbers

#: The greatest number of columns of an image, and of its cells.
COLUMNS, CELLS = 1_000, 8_000_000
#: Windows whose starts are a slide apart, within this part of it, stand side by side.
_BESIDE = 0.25


class Spectra:
    """The greatest power of each frequency in each column of an image. Windows come in the order of
    time; their places are in slides from the first one. Gaps between windows leave columns empty
    (NaN)."""

    def __init__(self, bins: int, columns: int = COLUMNS) -> None:
        self.bins = bins
        self.windows = 0
        self.width = 1  # of a column, in slides
        self._columns = max(2, min(columns, CELLS // max(1, bins)))
        self._powers: Numbers = np.empty((0, bins))
        self._last: tuple[float, int] | None = None  # of the latest window: its place, its column

    def add(self, places: Numbers, powers: Numbers) -> None:
        """``powers``: a row for each window."""
        if not len(places):
            return
        self.windows += len(places)
        place, column = self._last or (places[0] - 1, -1)
        apart = np.diff(places, prepend=place)
        begins = np.abs(apart - 1) > _BESIDE
        numbers = np.arange(len(places))
        run = np.maximum.accumulate(np.where(begins, numbers, -1))
        at = np.where(
            run < 0, column + 1 + numbers, np.floor(places[run] + 0.5) + numbers - run
        ).astype(np.int64)
        at = np.maximum(at, 0)
        self._last = float(places[-1]), int(at[-1])
        while at.max() // self.width >= self._columns:
            self._double()
        at //= self.width
        missing = int(at.max()) + 1 - len(self._powers)
        if missing > 0:
            self._powers = np.pad(self._powers, ((0, missing), (0, 0)), constant_values=np.nan)
        np.fmax.at(self._powers, at, powers)

    def cells(self) -> Numbers:
        """The decibels: a row for each frequency, a column for each time."""
        least = np.finfo(np.float64).tiny
        found: Numbers = 10 * np.log10(np.maximum(self._powers.T, least))
        return found

    def _double(self) -> None:
        rest = len(self._powers) % 2
        padded = np.pad(self._powers, ((0, rest), (0, 0)), constant_values=np.nan)
        self._powers = np.fmax.reduce(padded.reshape(-1, 2, self.bins), 1)
        self.width *= 2


def matrix(values: NDArray[Any], lengths: NDArray[Any], bins: int) -> NDArray[Any] | None:
    """The values of lists as rows of ``bins`` values; None: a list has another number of them."""
    return values.reshape(-1, bins) if (lengths == bins).all() else None
