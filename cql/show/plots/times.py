"""The axis of time of a picture, and the marked ranges on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import dates
from matplotlib.axes import Axes
from numpy.typing import NDArray

from cql.base.model import Field
from cql.base.types import Kind
from cql.errors import RunError
from cql.show.plots.trace import Numbers

if TYPE_CHECKING:
    import pyarrow as pa

#: Names of the columns with the beginnings and the ends of marks; the first pair that is there.
_ENDS = (
    *(("start", "stop"), ("start", "end"), ("window_start", "window_end")),
    ("gap_start", "gap_end"),
)
_MOST_MARKS = 10_000
_DAY = 86_400_000_000


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """Times in microseconds as places of an axis: dates, or seconds (``in_seconds``). Without
    ``is_time`` they are numbers that stay what they are. ``label`` of the axis."""

    label: str
    in_seconds: bool = False
    is_time: bool = True

    def places(self, times: NDArray[Any]) -> Numbers:
        if not self.is_time:
            return times.astype(np.float64)
        return times / (1_000_000 if self.in_seconds else _DAY)

    def dress(self, axes: Axes) -> None:
        axes.set_xlabel(self.label)
        if self.is_time and not self.in_seconds:
            locator = dates.AutoDateLocator()  # type: ignore[no-untyped-call]
            axes.xaxis.set_major_locator(locator)
            shown = dates.ConciseDateFormatter(locator)  # type: ignore[no-untyped-call]
            axes.xaxis.set_major_formatter(shown)

    def values(self, column: pa.ChunkedArray, name: str) -> Numbers:
        """The places of the values of a column ``name`` of marks; numbers are those of the axis."""
        if column.null_count:
            raise RunError(f"a mark has NULL as its {name}", hint=f"WHERE {name} IS NOT NULL")
        kind = str(column.type)
        if kind.startswith(("timestamp", "date")):
            if self.is_time:
                return self.places(microseconds(column))
        elif kind.startswith(("int", "uint", "float", "double")) and not self._is_of_dates:
            found: Numbers = column.to_numpy().astype(np.float64)
            return found
        wanted = "timestamps" if self._is_of_dates else "numbers"
        wanted = "timestamps or numbers of seconds" if self.in_seconds else wanted
        raise RunError(f"the column {name} of the marks has the type {kind}, not {wanted}")

    @property
    def _is_of_dates(self) -> bool:
        return self.is_time and not self.in_seconds


def time_label(field: Field) -> str:
    """The label of an axis with the times of a column."""
    return f"{field.name} (UTC)" if field.type.kind is Kind.TIMESTAMP else field.name


def microseconds(column: pa.ChunkedArray) -> NDArray[np.int64]:
    """The microseconds of a column of timestamps or dates without NULL."""
    import pyarrow as pa

    timestamps = column.cast(pa.timestamp("us", getattr(column.type, "tz", None)), safe=False)
    found: NDArray[np.int64] = timestamps.cast(pa.int64()).to_numpy()
    return found


@dataclass(frozen=True, slots=True)
class Marks:
    """Ranges on an axis of time."""

    starts: Numbers
    stops: Numbers

    @property
    def text(self) -> str:
        return f"{len(self.starts):,} {'mark' if len(self.starts) == 1 else 'marks'}"

    def draw(self, panels: Sequence[Axes], *, above: bool) -> None:
        """Shades the ranges of all panels, ``above`` or behind what they show; the limits of the
        panels stay."""
        color = "cyan" if above else "C1"
        ranges = list(zip(self.starts, self.stops - self.starts, strict=True))
        for axes in panels:
            limits = axes.get_xlim(), axes.get_ylim()
            axes.broken_barh(
                ranges,
                (0, 1),
                transform=axes.get_xaxis_transform(),
                facecolors=(color, 0.1 if above else 0.3),
                edgecolors=(color, 0.9),
                linewidth=0.8,
                label=self.text,
                zorder=3 if above else 0.5,
            )
            axes.set_xlim(limits[0])
            axes.set_ylim(limits[1])


def marks_of(given: Any, axis: TimeAxis) -> Marks:
    """The ranges of a query, or of a table or frame that Arrow can read."""
    import pyarrow as pa

    table: pa.Table
    if hasattr(given, "to_arrow"):
        table = given.to_arrow()
    else:
        try:
            table = pa.table(given)
        except (TypeError, ValueError, pa.ArrowException):
            raise RunError(
                f"marks are a query or a table, not {type(given).__name__}",
                hint="with a column start and a column stop",
            ) from None
    names = {name.lower(): k for k, name in reversed(list(enumerate(table.column_names)))}
    ends = next(((a, b) for a, b in _ENDS if a in names and b in names), None)
    if ends is None:
        shown = ", ".join(table.column_names)
        raise RunError(
            f"the marks have no columns start and stop, but {shown}",
            hint="SELECT … AS start, … AS stop; window_start and window_end will do, too",
        )
    if table.num_rows > _MOST_MARKS:
        raise RunError(f"there are {table.num_rows:,} marks: a picture has at most {_MOST_MARKS:,}")
    starts, stops = (axis.values(table.column(names[n]), n) for n in ends)
    return Marks(starts, stops)
