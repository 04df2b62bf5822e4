"""Queries in tasks on Spark, simulated for up to 1,000 executors with the costs that this machine
has (``spark_costs``).

The driver is one server: it lists the files, describes the tasks, and then, wave by wave, starts
the tasks one after the other, each on the first free core, and receives their results when all
tasks of the wave have ended (``cql.spark.run.driver``). With ``writeTo`` there is one wave, and no
results come back. Left out: the network and the disks of a cluster, whose reads and shuffles here
come from memory, and the time of Spark's garbage collection.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heapreplace
from math import nan
from pathlib import Path
from typing import NamedTuple

import click
import numpy as np
import numpy.typing as npt
from rich.console import Console

from benchmarks.figure import Check, Figure, show
from benchmarks.spark_costs import (
    FILES,
    GROUPS,
    QUERIES,
    ROWS,
    TASKS,
    Bench,
    Costs,
    Measured,
    Stage,
    costs,
    from_table,
    pieces_of,
    tables,
    to_table,
)
from cql.planner.placement.break_even import TASK_ROWS
from cql.spark.run.driver import WAVE

#: Executors of four cores, and rows, that are simulated.
EXECUTORS, CORES = (10, 30, 100, 300, 1000), 4
SIZES = (1e9, 1e10, 1e11, 1e12)
#: Rows of a row group and row groups of a file, as Spark writes them.
GROUP_ROWS, FILE_GROUPS = 1_000_000, 10
#: Most rows of a task by key, which holds them in memory.
MOST_ROWS = 20_000_000
#: Spark's default of ``spark.driver.maxResultSize``: bytes of the results of a wave.
MOST_RESULTS = 1 << 30
#: Most waves of one kind, and most tasks of a wave, that are simulated one by one.
_DRAWN, _SIMULATED = 3, 32_768


@dataclass(frozen=True, slots=True)
class Setup:
    """A query of ``QUERIES`` over ``rows`` rows in ``tasks`` tasks on ``cores`` cores. ``writes``:
    ``writeTo`` in place of results in the driver. ``shared``: the driver runs on the same cores."""

    name: str
    rows: float
    tasks: int
    cores: int
    writes: bool = False
    shared: bool = False
    group_rows: float = GROUP_ROWS
    files: float = 0.0


class Times(NamedTuple):
    """Seconds of the wall clock by what they went to; they add up to the time of the run.

    ``work``: the cores' time for the tasks, if all worked all the time. ``idle``: cores that wait
    for the last tasks of a wave."""

    footers: float
    describing: float
    scheduling: float
    work: float
    idle: float
    receiving: float


WORDS = {
    "footers": "reading footers",
    "describing": "describing tasks",
    "scheduling": "Spark's scheduling in the driver",
    "work": "the cores",
    "idle": "the last tasks of each wave",
    "receiving": "receiving results in the driver",
}


def simulate(of: Setup, by: Costs) -> Times:
    """``fails`` tells what a cluster cannot hold."""
    work = by.works[of.name]
    groups = max(of.rows / of.group_rows, 1)
    files = of.files or max(groups / FILE_GROUPS, 1)
    first = of.tasks if work.split else 0
    footers = by.footer[0] * files + by.footer[1] * groups
    describing = by.describe[0] * of.tasks + by.describe[1] * max(groups, of.tasks)
    pieces = pieces_of(of.rows, first, of.tasks) if first else 0
    waves: list[tuple[int, int, Stage]] = []  # of how many tasks, how often, for which stage
    if work.split is not None:
        waves.append((first, 1, work.split))
    size = of.tasks if of.writes else WAVE * of.cores
    waves += [(size, of.tasks // size, work.run), (of.tasks % size, 1, work.run)]
    busy = passed = unhindered = jobs = 0.0
    draws = np.random.default_rng(7)
    for tasks, often, stage in waves:
        if not tasks or not often:
            continue
        reads = max(groups, of.tasks) if stage is work.split or work.split is None else 0
        each = stage.seconds(1, of.rows / of.tasks, reads / of.tasks, pieces / of.tasks)
        each += by.launch + (by.schedule if of.shared else 0.0)
        drawn = min(often, _DRAWN)
        for _ in range(drawn):
            took = each * draws.choice(by.spread, tasks)
            busy += float(took.sum()) * often / drawn
            schedule = 0.0 if of.shared else by.schedule
            passed += _wave(took, of.cores, schedule) * often / drawn
            unhindered += _wave(took, of.cores, 0.0) * often / drawn
        jobs += by.job * often
    receiving = by.receive[0] * of.tasks + by.receive[1] * work.result * of.rows
    ideal = busy / of.cores
    return Times(
        footers,
        describing,
        passed - unhindered + jobs,
        ideal,
        unhindered - ideal,
        0.0 if of.writes else receiving,
    )


def _wave(tasks: npt.NDArray[np.float64], cores: int, schedule: float) -> float:
    """Seconds until all tasks have ended, that the driver starts one after the other. Behind
    ``_SIMULATED`` tasks nothing changes: the rest takes the time of the slower of both."""
    few, rest = tasks[:_SIMULATED].tolist(), tasks[_SIMULATED:]
    free = [0.0] * min(cores, len(few))
    driver = 0.0
    for seconds in few:
        driver += schedule
        heapreplace(free, max(free[0], driver) + seconds)
    return max(free) + max(schedule * len(rest), float(rest.sum()) / cores)


def fails(of: Setup, by: Costs) -> str:
    """Why the run cannot end with Spark's defaults; empty if it can."""
    if of.writes:
        return ""
    tasks = min(of.tasks, WAVE * of.cores)
    if by.works[of.name].result * of.rows / of.tasks * tasks > MOST_RESULTS:
        return "a wave has more results than spark.driver.maxResultSize"
    return ""


# -- measured beside simulated ---------------------------------------------------------------------


def predicted(run: Measured, cores: int, rows: int, by: Costs) -> float:
    """Seconds of a run over ``rows`` rows on this machine."""
    group = rows / GROUPS[run.table]
    return sum(
        simulate(
            Setup(run.name, rows, len(run.durations), cores, False, cores > 1, group, FILES), by
        )
    )


def _validated(runs: dict[int, list[Measured]], rows: int, by: Costs) -> Iterator[Figure]:
    for name in QUERIES:
        found = [
            (cores, run) for cores in runs for run in runs[cores]
            if run.name == name and run.table == "fine"
        ]  # fmt: skip
        counts = sorted({run.tasks for _, run in found})
        series: dict[str, list[float]] = {}
        for cores in runs:
            of = {run.tasks: run for c, run in found if c == cores}
            series[f"{cores} cores, measured"] = [of[n].wall if n in of else nan for n in counts]
            series[f"{cores} cores, simulated"] = [
                predicted(of[n], cores, rows, by) if n in of else nan for n in counts
            ]
        ratios = [predicted(run, cores, rows, by) / run.wall for cores, run in found]
        far = max(ratios, key=lambda ratio: max(ratio, 1 / ratio))
        yield Figure(
            f"spark-scale-check-{name.replace(' ', '-')}",
            f"Tasks {name}: {rows:,} rows, measured and simulated",
            (),
            "tasks",
            counts,
            "s",
            series,
            [
                Check(
                    "simulated : measured, the worst",
                    far,
                    "within 25%",
                    max(far, 1 / far) <= 1.25,
                    "the machine was not quiet, or the model lacks something",
                )
            ],
            log_x=True,
            points=[n for n in series if n.endswith("measured")],
        )


# -- to a thousand executors -----------------------------------------------------------------------


def _default(name: str, rows: float, cores: int, by: Costs) -> Setup:
    return Setup(name, rows, max(1, round(rows / TASK_ROWS)), cores)


def _advised(name: str, rows: float, cores: int, by: Costs) -> Setup:
    """The fastest number of tasks, with ``writeTo`` in place of results in the driver."""
    counts = {rows / TASK_ROWS * share for share in (1 / 8, 1 / 4, 1 / 2, 1, 2)}
    counts |= {cores * share for share in (1, 2, 4)}
    least = max(1.0, rows / MOST_ROWS if name == "by key" else 1.0)
    found = sorted({round(min(max(count, least), rows / GROUP_ROWS)) for count in counts})
    setups = [Setup(name, rows, tasks, cores, writes=True) for tasks in found]
    return min(setups, key=lambda of: sum(simulate(of, by)))


def _alone(name: str, rows: float, by: Costs) -> float:
    """Seconds of one core for the tasks, if these are as few as can be."""
    few = Setup(name, rows, max(1, round(rows / MOST_ROWS)), 1, writes=True)
    return simulate(few, by).work


SETUPS = {
    "as it is": _default,
    "the best number of tasks and writeTo": _advised,
}


def _scaled(by: Costs) -> Iterator[Figure]:
    for name in QUERIES:
        for how, setup in SETUPS.items():
            series: dict[str, list[float]] = {}
            checks = []
            for rows in SIZES:
                seconds, speedups = [], []
                for executors in EXECUTORS:
                    of = setup(name, rows, executors * CORES, by)
                    times = simulate(of, by)
                    seconds.append(sum(times))
                    speedups.append(_alone(name, rows, by) / sum(times))
                    if executors == EXECUTORS[-1]:
                        checks.append(_first(of, times, by))
                series[f"{rows:.0e} rows, s"] = seconds
                series[f"{rows:.0e} rows, speedup"] = speedups
            yield Figure(
                f"spark-scale-{name}-{how}".replace(" ", "-"),
                f"Tasks {name}, {how}, on executors of {CORES} cores (simulated)",
                (),
                "executors",
                EXECUTORS,
                "s, or times one core",
                series,
                checks,
                log_x=True,
                log_y=True,
            )


def _first(of: Setup, times: Times, by: Costs) -> Check:
    """What takes most of the time."""
    shares = {WORDS[n]: seconds / sum(times) for n, seconds in times._asdict().items()}
    most = max(shares, key=lambda word: shares[word])
    why = fails(of, by)
    text = f"{of.rows:.0e} rows on {of.cores:,} cores, {of.tasks:,} tasks: share of {most}"
    return Check(f"{text}{'; ' if why else ''}{why}", shares[most])


def figures(rows: int | None) -> Iterator[Figure]:
    """``rows`` rows are measured."""
    rows = rows or ROWS
    runs: dict[int, list[Measured]] = {}
    with tables(rows) as folder:
        for cores in (1, 2):
            bench = Bench(cores, folder, rows)
            try:
                for name in QUERIES:
                    bench.run(name, "fine", 4)  # compiles, and warms the workers
                runs[cores] = [
                    _middle(bench, name, table, tasks)
                    for name in QUERIES
                    for table, counts in TASKS.items()
                    for tasks in counts
                    if name != "by key" or tasks <= 64
                ]
                if cores == 1:
                    by = costs(bench, runs[1])
            finally:
                bench.close()
    yield _constants(by)
    yield from _validated(runs, rows, by)
    yield from _scaled(by)


def _middle(bench: Bench, name: str, table: str, tasks: int) -> Measured:
    """The run of middle duration out of three."""
    found = sorted((bench.run(name, table, tasks) for _ in range(3)), key=lambda run: run.wall)
    return found[1]


def _constants(by: Costs) -> Figure:
    known = to_table(by)
    return Figure(
        "spark-scale-costs",
        "What tasks cost on this machine, on one core",
        (),
        "what",
        list(range(len(known))),
        "microseconds, or bytes",
        {"measured": list(known.values())},
        names=list(known),
    )


@click.command()
@click.argument("saved", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def main(saved: Path) -> None:
    """Simulates with the costs that an earlier run SAVED as spark-scale-costs-….json."""
    record = json.loads(saved.read_text("utf-8"))
    by = from_table(dict(zip(record["names"], record["series"]["measured"], strict=True)))
    for made in _scaled(by):
        show(made, Console())


if __name__ == "__main__":
    main()
