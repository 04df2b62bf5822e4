"""A picture of a query: which kind its columns have, its panels, and its figure."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from cql.errors import PlanError, RunError
from cql.show.plots import lines, spectrogram, waveform
from cql.show.plots.columns import (
    Bound,
    Lost,
    Samples,
    Segment,
    Values,
    is_numbered,
    is_segment,
    meanings,
    position,
    samples_of,
    time_column,
)
from cql.show.plots.parts import Drawing
from cql.show.plots.times import TimeAxis, marks_of, time_label

if TYPE_CHECKING:
    from cql.planner.nodes.physical import Physical
    from cql.query.query import Query

KINDS = ("waveform", "spectrogram", "lines")
_MOST_PANELS = 16


class Picture(Figure):
    """A figure that a notebook shows by itself, without pyplot."""

    def _repr_png_(self) -> bytes:
        into = io.BytesIO()
        self.savefig(into, format="png")
        return into.getvalue()


@dataclass(frozen=True, slots=True)
class Drawn:
    """A figure, and what it shows in a few words."""

    figure: Figure
    about: str


def draw(query: Query, kind: str | None = None, marks: Any = None, ax: Any = None) -> Drawn:
    """Runs ``query`` and draws its rows; see ``Query.plot``."""
    text = query._prepared.source
    try:
        drawing = _drawing(query, kind)
    except PlanError as error:
        raise error.with_text(text) from None
    panels_given = _panels_given(ax, drawing.panels)
    marked = None if marks is None else marks_of(marks, drawing.axis)
    drawing.read(query)
    figure: Figure
    if panels_given is None:
        high = drawing.height * drawing.panels + 0.8
        figure = Picture(figsize=(10, high), layout="constrained")
        grid = figure.subplots(drawing.panels, 1, sharex=True, squeeze=False)
        panels: Sequence[Axes] = list(grid[:, 0])
    else:
        panels = panels_given
        figure = _whole(panels[0])
    drawing.draw(panels)
    drawing.axis.dress(panels[-1])
    about = drawing.about
    if marked is not None:
        marked.draw(panels, above=drawing.fills_panels)
        about += f", {marked.text}"
    if panels[0].get_legend_handles_labels()[0]:
        panels[0].legend(
            loc="lower right", bbox_to_anchor=(1, 1), borderaxespad=0.2, ncols=6, frameon=False
        )
    return Drawn(figure, about)


def _panels_given(ax: Any, count: int) -> list[Axes] | None:
    """The axes that the user gives; RunError if their number is wrong."""
    if ax is None:
        return None
    found = [ax] if isinstance(ax, Axes) else list(np.ravel(ax))
    if not all(isinstance(a, Axes) for a in found):
        raise RunError(f"ax is axes of matplotlib, or several, not {type(ax).__name__}")
    if len(found) != count:
        raise RunError(
            f"the picture has {count} panels, and there are {len(found)} axes for them",
            hint=f"pyplot.subplots({count}, sharex=True) makes as many",
        )
    return found


def _whole(panel: Axes) -> Figure:
    figure: Figure | SubFigure | None = panel.figure
    while isinstance(figure, SubFigure):
        figure = figure.figure
    if figure is None:
        raise RunError("the axes belong to no figure any more")
    return figure


# -- the kind of picture ---------------------------------------------------------------------------


def _drawing(query: Query, kind: str | None) -> Drawing:
    if kind is not None and kind not in KINDS:
        raise PlanError(f"there is no picture {kind!r}", hint=f"kinds: {', '.join(KINDS)}")
    if not query.bounded:
        raise PlanError(
            "this query does not end by itself, so its picture would never be whole",
            hint="LIMIT ends it; or plot a table that an INSERT fills",
        )
    root = query._plan.root
    made = None
    if not query._prepared.changelog and kind != "lines":
        made = _of_signal(root, kind)
    if made is None and kind not in (None, "lines"):
        wanted = "spectra of windows" if kind == "spectrogram" else "samples of a signal"
        raise PlanError(
            f"there is no {kind} of these rows: they have no {wanted}",
            hint="query.plot() takes the picture that the columns have",
        )
    if made is None:
        made = lines.lines(query.schema, _progressing(root), _axis(root), position(root, 0))
    if made.panels > _MOST_PANELS:
        raise PlanError(
            f"{made.panels} columns would each have a panel: a picture has at most {_MOST_PANELS}",
            hint="select fewer columns",
        )
    return made


def _of_signal(root: Physical, kind: str | None) -> Drawing | None:
    """The picture of samples or of segments; None: the rows have neither."""
    fields = root.schema.fields
    found = meanings(root)
    segments = {k: m for k, m in enumerate(found) if isinstance(m, Segment)}
    for k in [k for k in segments if fields[k].type.is_of_structs]:
        if segments[k].values is Values.SAMPLES:
            names = ", ".join(f"{fields[k].name}.{n}" for n, _ in fields[k].type.struct_fields)
            raise PlanError(
                f"there is no picture of {fields[k].name}, whose samples are structs",
                position=position(root, k),
                hint=f"select fields: {names}",
            )
    spectra = {k: m for k, m in segments.items() if m.values is not Values.SAMPLES}
    waves = {k: m for k, m in segments.items() if k not in spectra}
    if spectra and kind != "waveform":
        _check_counts(root, spectra)
        named = {k: (fields[k].name, m) for k, m in spectra.items()}
        return spectrogram.Spectrogram(named, *_bound(root, found), _axis(root))
    if waves and kind != "spectrogram":
        named = {k: (fields[k].name, m) for k, m in waves.items()}
        return waveform.Segments(named, *_bound(root, found), _axis(root))
    unknown = [k for k in range(len(fields)) if is_segment(root, k) and k not in segments]
    if unknown:
        raise PlanError(
            f"the picture of {fields[unknown[0]].name} is unknown: its values are neither samples"
            " of windows nor the power of frequencies",
            position=position(root, unknown[0]),
            hint="windows of a signal, fft, power_spectrum and magnitude(fft(…)) have pictures;"
            " marks= shows ranges of time on the signal itself",
        )
    samples = samples_of(root)
    if samples is None or kind == "spectrogram":
        return None
    return _of_samples(root, samples)


def _of_samples(root: Physical, samples: Samples | Lost) -> Drawing:
    fields = root.schema.fields
    if isinstance(samples, Lost):
        raise PlanError(
            f"the times of the rows are unknown: {samples.why}",
            position=position(root, 0),
            hint=samples.hint,
        )
    if samples.time == -1:
        name = time_column(root)
        raise PlanError(
            f"the times of the samples are in {name}, which the query does not select",
            position=position(root, 0),
            hint=f"SELECT {name}, …",
        )
    channels = {k: f.name for k, f in enumerate(fields) if k != samples.time and f.type.is_numeric}
    if not channels:
        raise PlanError(
            "no column has numbers to draw", position=position(root, 0), hint="select a channel"
        )
    label = "" if samples.time is None else time_label(fields[samples.time])
    return waveform.Rows(channels, samples, _axis(root, label))


def _check_counts(root: Physical, spectra: dict[int, Segment]) -> None:
    for k, m in spectra.items():
        if m.count is None:
            raise PlanError(
                f"the frequencies of {root.schema[k].name} are unknown: its windows have different"
                " numbers of samples",
                position=position(root, k),
                hint="[ROWS n SLIDE m], without WITH RESTS, has windows of n samples each",
            )
        if not spectrogram.frequencies(m):
            raise PlanError(
                f"{root.schema[k].name} has no frequencies: subseg leaves none",
                position=position(root, k),
                hint=f"these windows have {m.count // 2 + 1:,} frequencies",
            )


def _bound(root: Physical, found: Sequence[object]) -> tuple[int, Bound]:
    """The column that says when a window begins; the first one."""
    bounds = [(k, m) for k, m in enumerate(found) if isinstance(m, Bound)]
    if not bounds:
        raise PlanError(
            "no column says when a window begins",
            position=position(root, 0),
            hint="SELECT window_start, …",
        )
    return bounds[0]


def _axis(root: Physical, label: str = "time (UTC)") -> TimeAxis:
    seconds = is_numbered(root)
    return TimeAxis("seconds" if seconds else label, in_seconds=seconds)


def _progressing(root: Physical) -> frozenset[str]:
    """The names of columns with a watermark."""
    fields = root.schema.fields
    return frozenset(fields[k].name for k in root.progressing)
