"""Figures of a paper: what is measured along an axis, the paper's own sentences beside it, and
whether the shape is what they say. The papers' curves are not in their texts, so that a shape is
judged by the text alone.

A figure is a table on the terminal, a record as JSON, and with ``--plots FOLDER`` a picture."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
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
    """Something that the text says, as a number: ``goal`` is it in words."""

    what: str
    value: float
    goal: str
    met: bool


@dataclass(frozen=True, slots=True)
class Figure:
    """``series`` are values in ``y_label`` at each of ``x``; ``quotes`` the paper's sentences, each
    with its place. ``right`` is whether every answer was. ``log_x``: drawn over a logarithmic
    axis."""

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


def record_of(figure: Figure) -> dict[str, Any]:
    """The figure as ``harness.save`` takes it."""
    return {
        "format": FORMAT,
        "benchmark": figure.name,
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine.describe(),
        "load": machine.load(),
        **asdict(figure),
    }


def show(figure: Figure, console: Console) -> None:
    console.print()
    console.print(f"[bold]{escape(figure.title)}[/]", highlight=False)
    for quote in figure.quotes:
        console.print(f"[italic]{escape(quote)}[/]", highlight=False)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(figure.x_label, justify="right")
    for name in figure.series:
        table.add_column(f"{name}, {figure.y_label}", justify="right")
    for k, x in enumerate(figure.x):
        table.add_row(f"{x:g}", *(f"{values[k]:,.4g}" for values in figure.series.values()))
    console.print(table)
    for check in figure.checks:
        verdict = "yes" if check.met else "[red]no[/]"
        console.print(
            f"{escape(check.what)}: {check.value:,.3g} (goal: {escape(check.goal)}): {verdict}",
            highlight=False,
        )
    if not figure.right:
        console.print(f"[bold red]{escape(figure.name)}: an answer is wrong[/]")


def plot(figure: Figure, folder: Path) -> Path:
    """Draws it as ``folder/name.png``; ImportError without matplotlib (the extra ``plots``)."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    folder.mkdir(parents=True, exist_ok=True)
    drawn, axes = pyplot.subplots(figsize=(7, 4.5), layout="constrained")
    for (name, values), marker in zip(figure.series.items(), "os^Dvx*+" * 8, strict=False):
        axes.plot(figure.x, values, marker=marker, label=name)
    axes.set(xlabel=figure.x_label, ylabel=figure.y_label)
    axes.set_title("\n".join(textwrap.wrap(figure.title, 80)), fontsize="medium")
    axes.set_ylim(bottom=0)
    if figure.log_x:
        axes.set_xscale("log")
    axes.grid(alpha=0.3)
    axes.legend()
    path = folder / f"{figure.name}.png"
    drawn.savefig(path, dpi=120)
    pyplot.close(drawn)
    return path


def slope(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """Of the line of least squares, and how much of the variance it explains (1: all)."""
    import numpy as np

    if len(x) < 2:
        return 0.0, 1.0
    steepness, start = np.polyfit(x, y, 1)
    left = np.asarray(y) - (steepness * np.asarray(x) + start)
    spread = float(np.var(y))
    return float(steepness), 1.0 - float(np.var(left)) / spread if spread else 1.0
