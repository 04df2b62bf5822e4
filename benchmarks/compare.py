"""Two records side by side: ``python -m benchmarks.compare before.json after.json``."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.harness import FORMAT

_STYLE: Mapping[str, Any] = {"box": box.SIMPLE_HEAD, "pad_edge": False}
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


def read(path: Path) -> dict[str, Any]:
    """A record that ``harness.save`` wrote; raises ClickException for any other file."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise click.ClickException(f"{path} is not JSON: {error}") from error
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise click.ClickException(f"{path} is not a record of this version")
    return record


def compare(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[Table, Table]:
    """The times of each contender, and the ratios; raises ClickException unless both records did
    the same work."""
    for key in ("benchmark", "rows"):
        if before[key] != after[key]:
            raise click.ClickException(f"{key} differs: {before[key]} and {after[key]}")
    times = Table("contender", "before s", "after s", "speed", **_STYLE)
    old = {entry["name"]: entry["median"] for entry in before["contenders"]}
    for entry in after["contenders"]:
        name, now = entry["name"], entry["median"]
        if name in old:
            change = f"{old[name] / now:.2f}×"
            times.add_row(escape(name), f"{old[name]:.4f}", f"{now:.4f}", change)
    ratios = Table("ratio", "before", "after", "goal", **_STYLE)
    was = {(r["fast"], r["slow"]): r["value"] for r in before["ratios"]}
    for r in after["ratios"]:
        pair = (r["fast"], r["slow"])
        if pair in was:
            goal = "" if r["goal"] is None else f"{r['goal']:g}×"
            cells = (f"{was[pair]:.2f}×", f"{r['value']:.2f}×", goal)
            ratios.add_row(escape(f"{pair[0]} : {pair[1]}"), *cells)
    return times, ratios


@click.command()
@click.argument("before", type=_FILE)
@click.argument("after", type=_FILE)
def main(before: Path, after: Path) -> None:
    """Compares two saved runs of one benchmark. Speed above 1 is faster after. Times of two runs
    compare only as far as the machine was the same; the ratios bear a different load better."""
    records = (read(before), read(after))
    console = Console()
    for record in records:
        load = ", ".join(f"{value:.1f}" for value in record["load"])
        commit = record["machine"]["commit"] or "no commit"
        console.print(f"{record['started']} {commit} load {load}", highlight=False)
    times, ratios = compare(*records)
    console.print(times)
    if ratios.row_count:
        console.print(ratios)


if __name__ == "__main__":
    sys.exit(main())
