"""Runs contenders in turns and compares them.

All contenders of a benchmark do the same work on the same data in one run of one process, in the
order A B C A B C …, so that a noisy neighbour affects all of them. The first round (the first
``warm`` ones) compiles and fills caches; it is shown but not counted. Every answer of every round
is checked, outside the timing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks import bare, cores, machine
from benchmarks.workloads import Answer

FORMAT = 1
RESULTS = Path(__file__).parent / "results"
#: The bandwidth measures taken before and after every benchmark.
READ, COPY = "read float64, 1 thread", "copy, 1 thread"
#: A run counts only if the bare kernel reaches this share of the design's rate.
TOLERANCE = 0.9
#: A one-thread contender with less than this share of a CPU shared it with other processes; several
#: threads with less than this share of the work of as many cores had fewer cores.
SHARE = 0.9


def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True)
class Contender:
    """``run`` is timed; ``prepare`` runs before it and ``answer`` after it, untimed.

    ``seconds`` takes the time from the result instead, if another process measures it. ``notes`` is
    called after each run, before the answer is checked; the largest value of each note is kept.
    ``expected`` replaces the benchmark's answer. ``pinned`` confines the run to one CPU. ``once``:
    too slow to repeat, so the first run counts. ``paper`` is the rate that the paper has for it, in
    rows a second."""

    name: str
    run: Callable[[], Any]
    answer: Callable[[Any], Answer]
    prepare: Callable[[], None] = _nothing
    expected: Answer | None = None
    seconds: Callable[[Any], float] | None = None
    notes: Callable[[Any], Mapping[str, float]] | None = None
    pinned: bool = False
    once: bool = False
    paper: float | None = None


@dataclass(frozen=True, slots=True)
class Ratio:
    """The speed of ``fast`` divided by that of ``slow``; ``goal`` is the least acceptable ratio."""

    fast: str
    slow: str
    goal: float | None = None


@dataclass(frozen=True, slots=True)
class Limit:
    """``contender`` should take less than ``most`` seconds, or its ``note`` be less than
    ``most``."""

    contender: str
    most: float
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Benchmark:
    """``rows`` is the number of rows that each contender reads (None: a rate is meaningless).
    ``kernel`` names the bare kernel for which the design states the rate ``kernel_rows_per_s``.
    ``bandwidth`` says whether memory bandwidth matters. ``threads`` is the number of cores that
    contenders could use. ``warm`` rounds come before the ``counted`` ones that count, unless the
    options say how many do. ``close`` releases what the contenders share."""

    name: str
    title: str
    rows: int | None
    expected: Answer
    contenders: Sequence[Contender]
    ratios: Sequence[Ratio] = ()
    limits: Sequence[Limit] = ()
    kernel: str | None = None
    kernel_rows_per_s: float | None = None
    bandwidth: bool = True
    threads: int = 1
    warm: int = 1
    counted: int = 5
    close: Callable[[], None] = _nothing


@dataclass(slots=True)
class Timing:
    """The times of one contender. ``first`` is not among ``runs`` unless it is the only run."""

    name: str
    first: float = 0.0
    runs: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    notes: dict[str, float] = field(default_factory=dict)

    @property
    def median(self) -> float:
        return median(self.runs)


@dataclass(frozen=True, slots=True)
class Options:
    """``runs``: rounds that count (None: as the benchmark says). ``cpu`` is the CPU of pinned
    contenders (None: not pinned). ``elements`` is the length of the arrays of the bandwidth
    measure, ``steps`` that of the arithmetic that counts cores."""

    runs: int | None = None
    cpu: int | None = None
    elements: int = 1 << 27
    steps: int = cores.STEPS
    console: Console = field(default_factory=Console)


# ----------------------------------------------------------------- measuring


def measure(benchmark: Benchmark, options: Options) -> dict[str, Any]:
    """Runs the benchmark; returns the record that ``save`` writes and ``show`` prints."""
    started = datetime.now(UTC).isoformat(timespec="seconds")
    loads = [machine.load()]
    speeds = [_speeds(benchmark, options)]
    timings = {c.name: Timing(c.name) for c in benchmark.contenders}
    given: list[float] = []
    for turn in range(1 - benchmark.warm, _counted(benchmark, options) + 1):
        if turn > 0 and benchmark.threads > 1:
            given.append(cores.given(benchmark.threads, options.steps))
        for contender in benchmark.contenders:
            if turn == 1 - benchmark.warm or not contender.once:
                _turn(benchmark, contender, timings[contender.name], turn, options)
    speeds.append(_speeds(benchmark, options))
    loads.append(machine.load())
    best = {name: max(speed[name] for speed in speeds) for name in speeds[0]}
    return {
        "format": FORMAT,
        "benchmark": benchmark.name,
        "title": benchmark.title,
        "started": started,
        "rows": benchmark.rows,
        "machine": machine.describe(),
        "load": loads,
        "bandwidth_gb_per_s": speeds,
        "pinned_to_cpu": options.cpu,
        "contenders": [_entry(c, timings[c.name], benchmark.rows) for c in benchmark.contenders],
        "ratios": [_ratio(r, timings) for r in benchmark.ratios],
        "limits": [_limit(limit, timings) for limit in benchmark.limits],
        "share": _share(benchmark, timings),
        "threads": benchmark.threads,
        "cores": given,
        "kernel": _kernel(benchmark, timings, best.get(READ)),
    }


def _counted(benchmark: Benchmark, options: Options) -> int:
    """The rounds that count."""
    return benchmark.counted if options.runs is None else options.runs


def _speeds(benchmark: Benchmark, options: Options) -> dict[str, float]:
    return bare.bandwidth(options.elements, (READ, COPY)) if benchmark.bandwidth else {}


def _turn(
    benchmark: Benchmark, contender: Contender, timing: Timing, turn: int, options: Options
) -> None:
    contender.prepare()
    with machine.pinned(options.cpu if contender.pinned else None):
        others = machine.others_cpu_seconds()
        cpu, start = time.process_time(), time.perf_counter()
        result = contender.run()
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        cpu += machine.others_cpu_seconds() - others
    if contender.seconds is not None:
        seconds = contender.seconds(result)
    if contender.notes is not None:
        for name, value in contender.notes(result).items():
            timing.notes[name] = max(value, timing.notes.get(name, value))
    expected = contender.expected or benchmark.expected
    given = contender.answer(result)
    if given != expected:
        timing.wrong.append(f"round {turn}: {given}, expected {expected}")
    first = turn == 1 - benchmark.warm
    if first:
        timing.first = seconds
    if turn > 0 or contender.once:
        timing.runs.append(seconds)
        timing.cpu.append(cpu)
    right = "" if given == expected else "  [bold red]WRONG[/]"
    what = "first" if first else "warm" if turn <= 0 else f"{turn}/{_counted(benchmark, options)}"
    options.console.print(
        f"[dim]{benchmark.name} {what:>5}[/] {escape(contender.name):<34} {seconds:9.4f} s{right}",
        highlight=False,
    )


def _entry(contender: Contender, timing: Timing, rows: int | None) -> dict[str, Any]:
    entry = asdict(timing) | {"median": timing.median, "paper": contender.paper}
    if rows is not None:
        entry["rows_per_s"] = rows / timing.median
        entry["ns_per_row"] = timing.median / rows * 1e9
    return entry


def _ratio(ratio: Ratio, timings: Mapping[str, Timing]) -> dict[str, Any]:
    fast, slow = timings[ratio.fast], timings[ratio.slow]
    value = slow.median / fast.median
    # Contenders in one round ran on the same machine state, so ratios spread less than times.
    rounds = [s / f for f, s in zip(fast.runs, slow.runs, strict=True)]
    met = None if ratio.goal is None else value >= ratio.goal
    spent = median(fast.cpu)
    by_cpu = median(slow.cpu) / spent if spent else None
    return asdict(ratio) | {"value": value, "rounds": rounds, "by_cpu": by_cpu, "met": met}


def _limit(limit: Limit, timings: Mapping[str, Timing]) -> dict[str, Any]:
    timing = timings[limit.contender]
    value = timing.median if limit.note is None else timing.notes[limit.note]
    return asdict(limit) | {"value": value, "met": value < limit.most}


def _share(benchmark: Benchmark, timings: Mapping[str, Timing]) -> float | None:
    """The least share of a CPU among the one-thread contenders."""
    alone = [timings[c.name] for c in benchmark.contenders if c.pinned]
    shares = [median(t.cpu) / t.median for t in alone]
    return min(1.0, *shares) if shares else None


def _kernel(
    benchmark: Benchmark, timings: Mapping[str, Timing], read: float | None
) -> dict[str, Any] | None:
    """Whether the bare kernel is as fast as the design expects at today's bandwidth."""
    if benchmark.kernel is None or benchmark.rows is None or read is None:
        return None
    assert benchmark.kernel_rows_per_s is not None
    rate = benchmark.rows / timings[benchmark.kernel].median
    share = _share(benchmark, timings)
    alone = share is None or share >= SHARE
    due = benchmark.kernel_rows_per_s * read / bare.DESIGN_READ_GB_PER_S
    return {
        "name": benchmark.kernel,
        "rows_per_s": rate,
        "due_rows_per_s": due,
        "counts": rate >= due * TOLERANCE and alone,
    }


# ----------------------------------------------------------------- telling


def show(record: Mapping[str, Any], console: Console) -> None:
    """Prints the record as tables."""
    machine_text = f"{record['machine']['cpu']}, {record['machine']['cores']} cores"
    console.print()
    console.print(f"[bold]{escape(record['title'])}[/]", highlight=False)
    load = " to ".join(f"{value:.1f}" for value in record["load"])
    speeds = "; ".join(
        f"{name} {record['bandwidth_gb_per_s'][0][name]:.1f} and {speed:.1f} GB/s"
        for name, speed in record["bandwidth_gb_per_s"][1].items()
    )
    console.print(f"{machine_text}; load {load}" + (f"; {speeds}" if speeds else ""))
    console.print(_times(record))
    if record["ratios"] or record["limits"]:
        console.print(_goals(record))
    if record["cores"]:
        console.print(
            f"{record['threads']} threads of arithmetic did {median(record['cores']):.2f} times"
            f" what one did (by round {min(record['cores']):.2f} to {max(record['cores']):.2f})",
            highlight=False,
        )
    if (busy := _busy(record)) is not None:
        console.print(
            f"[bold red]The machine was busy[/]: {busy}. Goals are not judged by such times.",
            highlight=False,
        )
    kernel = record["kernel"]
    if kernel is not None:
        verdict = "the run counts" if kernel["counts"] else "[bold red]the run does not count[/]"
        console.print(
            f"{escape(kernel['name'])}: {kernel['rows_per_s'] / 1e6:.0f}M rows/s, due at this "
            f"bandwidth {kernel['due_rows_per_s'] / 1e6:.0f}M: {verdict}",
            highlight=False,
        )
    for entry in record["contenders"]:
        for name, value in entry["notes"].items():
            console.print(f"{escape(entry['name'])}: {name} {value:,.4g}", highlight=False)
        for wrong in entry["wrong"]:
            console.print(f"[bold red]{escape(entry['name'])} is wrong[/]: {escape(wrong)}")


def _times(record: Mapping[str, Any]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("contender", min_width=24)
    rows = record["rows"]
    for name in ("median s", "min to max", "first", "CPU s"):
        table.add_column(name, justify="right", no_wrap=True)
    if rows is not None:
        table.add_column("Mrows/s", justify="right", no_wrap=True)
        table.add_column("ns/row", justify="right", no_wrap=True)
    papers = any(e["paper"] is not None for e in record["contenders"])
    if papers:
        table.add_column("paper's", justify="right", no_wrap=True)
    table.add_column("answer", no_wrap=True)
    for e in record["contenders"]:
        spread = f"{min(e['runs']):.4f} to {max(e['runs']):.4f}"
        cells = [f"{e['median']:.4f}", spread, f"{e['first']:.4f}", f"{median(e['cpu']):.3f}"]
        if rows is not None:
            cells += [f"{e['rows_per_s'] / 1e6:.1f}", f"{e['ns_per_row']:.2f}"]
        if papers:
            cells.append("" if e["paper"] is None else f"{e['paper'] / 1e6:.4g}")
        table.add_row(escape(e["name"]), *cells, "WRONG" if e["wrong"] else "right")
    return table


def _goals(record: Mapping[str, Any]) -> Table:
    judge = _met if _busy(record) is None else _unjudged
    columns = ("what", "value", "by round", "by CPU s", "goal", "met")
    table = Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False)
    for r in record["ratios"]:
        spread = f"{min(r['rounds']):.2f} to {max(r['rounds']):.2f}"
        goal = "" if r["goal"] is None else f"at least {r['goal']:g}×"
        what = f"{r['fast']} : {r['slow']}"
        by_cpu = "" if r["by_cpu"] is None else f"{r['by_cpu']:.2f}×"
        table.add_row(escape(what), f"{r['value']:.2f}×", spread, by_cpu, goal, judge(r["met"]))
    for limit in record["limits"]:
        what = limit["contender"] + ("" if limit["note"] is None else f", {limit['note']}")
        unit = " s" if limit["note"] is None else ""
        goal = f"under {limit['most']:,g}{unit}"
        value = f"{limit['value']:,.4g}{unit}"
        table.add_row(escape(what), value, "", "", goal, judge(limit["met"]))
    return table


def _busy(record: Mapping[str, Any]) -> str | None:
    """A sentence about missing CPU time or cores; None if nothing was missing."""
    share, given, threads = record["share"], record["cores"], record["threads"]
    if share is not None and share < SHARE:
        return f"a one-thread contender had a CPU for {share:.0%} of its time"
    if given and median(given) < SHARE * threads:
        return f"{threads} threads had {median(given):.2f} cores"
    return None


def _unjudged(met: bool | None) -> str:
    return "" if met is None else "–"


def _met(met: bool | None) -> str:
    return {None: "", True: "yes", False: "[red]no[/]"}[met]


def save(record: Mapping[str, Any], folder: Path = RESULTS) -> Path:
    """Writes the record as JSON under a unique name."""
    folder.mkdir(parents=True, exist_ok=True)
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
    path = folder / f"{record['benchmark']}-{stamp}.json"
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return path


def is_right(record: Mapping[str, Any]) -> bool:
    """Whether every answer was right."""
    return not any(entry["wrong"] for entry in record["contenders"])
