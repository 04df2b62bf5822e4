"""Figures of a paper: measurements along an axis, the paper's own sentences beside them, and a
verdict whether the shape agrees. The papers' texts do not contain the curves, so a shape is judged
by the text alone.

A figure is a table on the terminal, a record as JSON, and with ``--plots FOLDER`` a picture."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks import machine

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Check:
    """A statement of the text as a number. ``goal`` states it in words ("the paper: …" in the
    paper's words; empty: the number is reported but not judged). ``why`` is the reason for a
    miss."""

    what: str
    value: float
    goal: str = ""
    met: bool = True
    why: str = ""


@dataclass(frozen=True, slots=True)
class Figure:
    """``series`` are values in ``y_label`` at each of ``x`` (NaN: no value). ``quotes`` are the
    paper's sentences, each with its section. ``right`` says whether every answer was right.
    ``log_x``, ``log_y``: logarithmic axes. ``errors``: half of the confidence interval of each
    value of a series.

    Figures of one ``sheet`` are panels of one picture, each with its ``panel`` as a title. Series
    whose names agree up to a comma share a colour; series in ``points`` are drawn as points. With
    ``names`` for the values of ``x``, series are bars.
    """

    name: str
    title: str
    quotes: Sequence[str]
    x_label: str
    x: Sequence[float]
    y_label: str
    series: Mapping[str, Sequence[float]]
    checks: Sequence[Check] = ()
    right: bool = True
    log_x: bool = False
    log_y: bool = False
    sheet: str = ""
    panel: str = ""
    points: Sequence[str] = ()
    names: Sequence[str] = ()
    errors: Mapping[str, Sequence[float]] = field(default_factory=dict)


def record_of(figure: Figure) -> dict[str, Any]:
    """The figure in the form that ``harness.save`` takes."""
    known = {
        name: [None if math.isnan(value) else value for value in values]
        for name, values in figure.series.items()
    }
    return {
        "format": FORMAT,
        "benchmark": figure.name,
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine.describe(),
        "load": machine.load(),
        **asdict(figure),
        "series": known,
    }


# -- as text ---------------------------------------------------------------------------------------

#: With more series than this, series are the rows of the table and ``x`` its columns.
_COLUMNS = 3


def show(figure: Figure, console: Console, *, quoted: bool = True) -> None:
    console.print()
    console.print(f"[bold]{escape(figure.title)}[/]", highlight=False)
    for quote in figure.quotes if quoted else ():
        console.print(f"[italic]{escape(quote)}[/]", highlight=False)
    console.print(_table(figure))
    for check in figure.checks:
        console.print(_said(check), highlight=False)
    if not figure.right:
        console.print(f"[bold red]{escape(figure.name)}: an answer is wrong[/]")


def _table(figure: Figure) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    places = figure.names or [f"{x:g}" for x in figure.x]
    if len(figure.series) > _COLUMNS:
        table.add_column(f"{figure.y_label}, by {figure.x_label}")
        for place in places:
            table.add_column(place, justify="right")
        for name, values in figure.series.items():
            table.add_row(
                name, *(_shown(value, *_error(figure, name, k)) for k, value in enumerate(values))
            )
        return table
    table.add_column(figure.x_label, justify="right")
    for name in figure.series:
        table.add_column(f"{name}, {figure.y_label}", justify="right")
    for k, place in enumerate(places):
        cells = [
            _shown(values[k], *_error(figure, name, k)) for name, values in figure.series.items()
        ]
        table.add_row(place, *cells)
    return table


def _error(figure: Figure, name: str, k: int) -> Sequence[float]:
    """Half of the interval of value ``k`` of a series, if it has one."""
    return figure.errors[name][k : k + 1] if name in figure.errors else ()


def _shown(value: float, error: float = math.nan) -> str:
    if math.isnan(value):
        return ""
    return f"{value:,.4g}" if math.isnan(error) else f"{value:,.4g} ±{error:,.2g}"


def _said(check: Check) -> str:
    line = f"{escape(check.what)}: {check.value:,.3g}"
    if not check.goal:
        return line
    goal = check.goal if check.goal.startswith("the paper: ") else f"goal: {check.goal}"
    line += f" ({escape(goal)}): "
    if check.met:
        return line + "yes"
    return f"{line}[red]no[/]" + (f", because {escape(check.why)}" if check.why else "")


# -- as pictures -----------------------------------------------------------------------------------


#: With more places than this, the words of their names stand below each other.
_PLACES = 3


def plot(figures: Sequence[Figure], folder: Path) -> Path:
    """Draws the panels of a sheet, or a single figure, into ``folder/NAME.png``. Raises ImportError
    without matplotlib (the extra ``plots``)."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    folder.mkdir(parents=True, exist_ok=True)
    n = len(figures)
    across = 1 if n == 1 else 2 if n in (2, 4) else 3
    down = -(-n // across)
    size = (7, 4.5) if n == 1 else (4.6 * across, 3.6 * down + 0.8)
    drawn, grid = pyplot.subplots(down, across, figsize=size, layout="constrained", squeeze=False)
    cells = list(grid.flat)
    for figure, axes in zip(figures, cells, strict=False):
        (_bars if figure.names else _lines)(figure, axes)
        axes.set(xlabel=figure.x_label, ylabel=figure.y_label)
        if figure.log_y:
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    for empty in cells[n:]:
        empty.axis("off")
    if n == 1:
        wrapped = "\n".join(textwrap.wrap(figures[0].title, 80))
        cells[0].set_title(wrapped, fontsize="medium")
        cells[0].legend()
    else:
        wrapped = "\n".join(textwrap.wrap(_common([each.title for each in figures]), 48 * across))
        drawn.suptitle(wrapped, fontsize="medium")
        for figure, axes in zip(figures, cells, strict=False):
            axes.set_title(figure.panel, fontsize="medium")
        _legend(drawn, cells[:n], across)
    path = folder / f"{figures[0].sheet or figures[0].name}.png"
    drawn.savefig(path, dpi=120)
    pyplot.close(drawn)
    return path


def _common(titles: Sequence[str]) -> str:
    """The common leading parts of the titles, split at colons."""
    parts = zip(*(title.split(": ") for title in titles), strict=False)
    return ": ".join(each[0] for each in takewhile(lambda each: len(set(each)) == 1, parts))


def _legend(drawn: Any, cells: Sequence[Any], across: int) -> None:
    """Adds one legend for all panels, below them."""
    known: dict[str, Any] = {}
    for axes in cells:
        handles, labels = axes.get_legend_handles_labels()
        known |= dict(zip(labels, handles, strict=True))
    columns = max(1, 60 * across // (max(map(len, known)) + 8))
    drawn.legend(known.values(), known, loc="outside lower center", ncols=columns, fontsize="small")


def _lines(figure: Figure, axes: Any) -> None:
    firsts = list(dict.fromkeys(map(_first, figure.series)))
    seen: dict[str, int] = dict.fromkeys(firsts, 0)
    for name, values in figure.series.items():
        first = _first(name)
        k, colour = seen[first], f"C{firsts.index(first)}"
        if name in figure.points:
            axes.plot(
                figure.x, values, color=colour, marker="os^Dvx*+"[firsts.index(first) % 8],
                linestyle="", markersize=8, fillstyle="none", label=name,
            )  # fmt: skip
            continue
        seen[first] += 1
        marker = "os^Dvx*+"[firsts.index(first) % 8]
        style = ("-", "--", ":", "-.")[k % 4]
        axes.plot(figure.x, values, color=colour, marker=marker, markersize=4, linestyle=style,
                  label=name)  # fmt: skip
    if figure.log_x:
        axes.set_xscale("log")


def _bars(figure: Figure, axes: Any) -> None:
    firsts = list(dict.fromkeys(map(_first, figure.series)))
    seen: dict[str, int] = dict.fromkeys(firsts, 0)
    width = 0.8 / len(figure.series)
    for k, (name, values) in enumerate(figure.series.items()):
        first = _first(name)
        shade, colour = 1.0 - 0.35 * seen[first], f"C{firsts.index(first)}"
        seen[first] += 1
        places = [i + (k - (len(figure.series) - 1) / 2) * width for i in range(len(figure.names))]
        axes.bar(
            places, values, width, color=colour, alpha=max(shade, 0.25), label=name,
            yerr=figure.errors.get(name), capsize=2,
        )  # fmt: skip
    wide = len(figure.names) > _PLACES
    shown = [name.replace(" ", "\n") for name in figure.names] if wide else figure.names
    size = "small" if wide else "medium"
    axes.set_xticks(range(len(figure.names)), shown, fontsize=size)


def _first(name: str) -> str:
    """The part of a series' name that determines its colour."""
    return name.partition(",")[0]


def slope(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """The slope of the least-squares line, and the share of the variance that it explains."""
    import numpy as np

    if len(x) < 2:
        return 0.0, 1.0
    steepness, start = np.polyfit(x, y, 1)
    left = np.asarray(y) - (steepness * np.asarray(x) + start)
    spread = float(np.var(y))
    return float(steepness), 1.0 - float(np.var(left)) / spread if spread else 1.0
