"""Rows with a time and numbers as lines: a panel for each column of numbers, a line for each value
of the columns of texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes

from cql.base.model import Schema
from cql.base.types import Kind
from cql.errors import PlanError, Position, RunError
from cql.show.plots.parts import nothing, numbers
from cql.show.plots.times import TimeAxis, microseconds, time_label
from cql.show.plots.trace import Numbers

if TYPE_CHECKING:
    import pyarrow as pa

    from cql.query.query import Query

_MOST_ROWS, _MOST_LINES = 1_000_000, 20


@dataclass(slots=True)
class Lines:
    """The columns ``channels`` over the column ``time``, of each combination of ``keys``."""

    axis: TimeAxis
    time: str
    channels: Sequence[str]
    keys: Sequence[str]
    height: float = 2.2
    fills_panels: bool = False
    _rows: int = 0
    _found: dict[str, tuple[Numbers, dict[str, Numbers]]] = field(default_factory=dict)

    @property
    def panels(self) -> int:
        return len(self.channels)

    @property
    def about(self) -> str:
        return f"lines of {', '.join(self.channels)}, {self._rows:,} rows"

    def read(self, query: Query) -> None:
        table = _read(query)
        place = {name: k for k, name in reversed(list(enumerate(table.column_names)))}
        table = table.filter(table.column(place[self.time]).is_valid())
        self._rows = table.num_rows
        if not self._rows:
            raise nothing()
        at = table.column(place[self.time])
        places = self.axis.places(microseconds(at) if self.axis.is_time else at.to_numpy())
        order = np.argsort(places, kind="stable")
        values = {c: numbers(table.column(place[c]).combine_chunks()) for c in self.channels}
        for name, rows in self._groups([table.column(place[k]) for k in self.keys], order):
            self._found[name] = places[rows], {c: v[rows] for c, v in values.items()}

    def _groups(
        self, columns: Sequence[pa.ChunkedArray], order: np.ndarray[tuple[int], np.dtype[np.int64]]
    ) -> list[tuple[str, np.ndarray[tuple[int], np.dtype[np.int64]]]]:
        """The name of each line, and its rows in the order of time."""
        if not columns:
            return [("", order)]
        codes, names = np.zeros(len(order), np.int64), [""]
        for column in columns:
            coded = column.combine_chunks().dictionary_encode("encode")
            texts = ["NULL" if v is None else str(v) for v in coded.dictionary.to_pylist()]
            own = coded.indices.to_numpy(zero_copy_only=False)
            both, codes = np.unique(codes * len(texts) + own, return_inverse=True)
            if len(both) > _MOST_LINES:
                keys = ", ".join(self.keys)
                raise RunError(
                    f"{keys} has more than {_MOST_LINES} values, and each would be a line",
                    hint=f"choose some by WHERE, or leave {keys} out",
                )
            names = [f"{names[c // len(texts)]}, {texts[c % len(texts)]}" for c in both]
        return [(name[2:], order[codes[order] == k]) for k, name in enumerate(names)]

    def draw(self, panels: Sequence[Axes]) -> None:
        for name, (places, values) in self._found.items():
            # Where times repeat, a line would go up and down between rows of the same time.
            joined = bool((np.diff(places) > 0).all())
            style = "-" if joined else "none"
            marker = "." if not joined or len(places) < 50 else None
            for axes, channel in zip(panels, self.channels, strict=True):
                axes.plot(
                    places,
                    values[channel],
                    linestyle=style,
                    marker=marker,
                    linewidth=1.0,
                    label=name or None,
                )
        for axes, channel in zip(panels, self.channels, strict=True):
            axes.set_ylabel(channel)


def lines(
    schema: Schema, progressing: frozenset[str], axis: TimeAxis, pos: Position | None
) -> Lines:
    """The lines of rows with these columns; ``progressing`` have a watermark, and are times even if
    they are numbers. PlanError, at ``pos``, without a time or without numbers."""
    fields = [f for f in schema if f.name not in ("_time", "_weight")]
    dated = [f for f in fields if f.type.is_timestamp or f.type.kind is Kind.DATE]
    counted = [f.name for f in fields if f.type.is_integer and f.name in progressing]
    if not (dated or counted):
        raise PlanError(
            "no column has times, so the rows have no places in a picture",
            position=pos,
            hint="select a timestamp, such as window_start",
        )
    time = dated[0].name if dated else counted[0]
    channels = [
        f.name for f in fields if f.type.is_numeric and f.name != time and f.name not in counted
    ]
    if not channels:
        hint = "select a number beside the time"
        raise PlanError("no column has numbers to draw", position=pos, hint=hint)
    if not dated:
        axis = TimeAxis(time, is_time=False)
    elif not axis.in_seconds:
        axis = TimeAxis(time_label(dated[0]))
    return Lines(axis, time, channels, [f.name for f in fields if f.type.is_text])


def _read(query: Query) -> pa.Table:
    """All rows of a query, of a relation those at its end; RunError if they are too many."""
    import pyarrow as pa

    if query._prepared.changelog:
        table = query.to_arrow()
        rows = table.num_rows
    else:
        found, rows = [], 0
        batches = query.batches()
        for batch in batches:
            found.append(batch)
            rows += batch.num_rows
            if rows > _MOST_ROWS:
                batches.close()  # type: ignore[attr-defined]
                break
        table = pa.Table.from_batches(found, schema=query.schema.to_arrow())
    if rows > _MOST_ROWS:
        raise RunError(
            f"the query gives more than {_MOST_ROWS:,} rows: too many for lines",
            hint="LIMIT, or an aggregate over windows",
        )
    return table
