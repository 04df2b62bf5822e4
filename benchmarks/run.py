"""The command line: ``python -m benchmarks.run q4 bids --runs 5``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path

import click
from rich.console import Console

from benchmarks import (
    access_log,
    bare,
    bids,
    dictionary,
    engine_bench,
    figure,
    first,
    flush,
    function_calls,
    harness,
    join_skew,
    joins,
    latency,
    machine,
    multicore,
    offered_load,
    punctuation,
    q4,
    q7,
    relations,
    segment_managers,
    signal_figures,
    signals,
    skew,
    sliding,
    spark_simulation,
    spark_tables,
    spark_tasks,
    split,
    texts,
    tpcxbb_scaling,
    update_streams,
    updates,
    window_joins,
)
from benchmarks.figure import Figure
from benchmarks.harness import Benchmark, Options

#: Writes 5 GB; "all" leaves it out.
LARGE = "large"
#: Makes a benchmark from a number of rows and the folder of the data.
Make = Callable[[int | None, Path | None], Benchmark]
BENCHMARKS: dict[str, Sequence[Make]] = {
    "q4": (q4.q4,),
    "q4-spark": (spark_tables.q4_spark,),
    "q7": (q7.q7, q7.q7_rare),
    "q7-spark": (spark_tables.q7_spark,),
    "bids": (bids.q1, bids.q2),
    "q9": (sliding.q9, sliding.q9_groups),
    "q9-spark": (spark_tables.q9_spark,),
    "tasks": tuple(partial(spark_tasks.tasks, name) for name in spark_tasks.WORK),
    LARGE: tuple(partial(spark_tasks.tasks, name) for name in spark_tasks.LARGE),
    "overlap": (sliding.overlap,),
    "texts": (*(partial(texts.texts, name) for name in texts.WORK), texts.paths),
    "access-log": tuple(partial(access_log.query, name) for name in access_log.DUCKDB),
    "dictionary": (dictionary.dictionary,),
    "relations": tuple(partial(relations.relations, name) for name in relations.WORK),
    "several": (sliding.several,),
    "signals": signals.SIGNALS,
    "first": (first.first,),
    "tpcxbb-scaling": tuple(partial(tpcxbb_scaling.scaling, n) for n in tpcxbb_scaling.KERNELS),
    "calls": tuple(partial(function_calls.calls, kind) for kind in function_calls.FUNCTIONS),
    "engine": tuple(partial(engine_bench.engine, n) for n in engine_bench.SIZES),
    "passchain": tuple(partial(engine_bench.passchain, n) for n in engine_bench.CHAIN_SIZES),
}
#: Figures of the papers by name; each takes a number of rows (None: the paper's setting).
FIGURES: dict[str, Callable[[int | None], Iterator[Figure]]] = {
    "skew": skew.figures,
    "split": split.figures,
    "punctuation": punctuation.figures,
    "flush": flush.figures,
    "wjoin": window_joins.figures,
    "joins": joins.figures,
    "join-skew": join_skew.figures,
    "latency": latency.figures,
    "ordered": multicore.figures,
    "spark-scale": spark_simulation.figures,
    "offered-load": offered_load.figures,
    "segments": segment_managers.figures,
    "representations": signal_figures.figures,
    "updates": updates.figures,
    "updates-live": update_streams.figures,
}
#: Rows of a quick run of figures.
QUICK = 50_000
BANDWIDTH = "bandwidth"


@click.command()
@click.argument(
    "names",
    nargs=-1,
    required=True,
    type=click.Choice([*BENCHMARKS, *FIGURES, BANDWIDTH, "all", "figures"]),
)
@click.option("--runs", type=click.IntRange(1), help="Rounds that count (default 5; signals: 3).")
@click.option("--rows", type=click.IntRange(1000), help="Rows to make (default 10,000,000).")
@click.option("--quick", is_flag=True, help=f"A quick look at figures: --rows {QUICK}.")
@click.option("--data", type=click.Path(path_type=Path), help="Where the data is kept.")
@click.option(
    "--results",
    type=click.Path(path_type=Path),
    default=harness.RESULTS,
    help="Where the JSON goes.",
)
@click.option(
    "--plots", type=click.Path(path_type=Path), help="Where pictures of figures go (matplotlib)."
)
@click.option("--cpu", type=click.IntRange(0), help="CPU of one-thread runs (default: the last).")
def main(
    names: tuple[str, ...],
    runs: int | None,
    rows: int | None,
    quick: bool,
    data: Path | None,
    results: Path,
    plots: Path | None,
    cpu: int | None,
) -> None:
    """Runs benchmarks, prints medians and ratios, and writes JSON. Ends with 1 if an answer was
    wrong; a goal that was missed is only said."""
    console = console_of_width()
    if machine.can_pin():
        cpu = machine.last_cpu() if cpu is None else cpu
    elif cpu is not None:
        raise click.UsageError("this system cannot confine a thread to a CPU")
    options = Options(runs=runs, cpu=cpu, console=console)
    each = [name for name in BENCHMARKS if name != LARGE]
    groups = {"all": [*each, BANDWIDTH], "figures": list(FIGURES)}
    wanted = list(dict.fromkeys(one for name in names for one in groups.get(name, [name])))
    right = True
    for name in wanted:
        if name == BANDWIDTH:
            for what, speed in bare.bandwidth().items():
                console.print(f"{what:<26} {speed:6.1f} GB/s", highlight=False)
            continue
        if name in FIGURES:
            right &= _draw(
                FIGURES[name](rows or (QUICK if quick else None)), console, results, plots
            )
            continue
        for make in BENCHMARKS[name]:
            machine.give_back()
            right &= _run(make(rows, data), options, results)
    sys.exit(0 if right else 1)


def console_of_width() -> Console:
    """A console wide enough for the tables, if the output is not a terminal."""
    console = Console()
    return console if console.is_terminal else Console(width=110)


def _run(benchmark: Benchmark, options: Options, results: Path) -> bool:
    try:
        record = harness.measure(benchmark, options)
    finally:
        benchmark.close()
    harness.show(record, options.console)
    options.console.print(f"saved as {harness.save(record, results)}", highlight=False)
    return harness.is_right(record)


def _draw(figures: Iterator[Figure], console: Console, results: Path, plots: Path | None) -> bool:
    right = True
    for _, panels in groupby(figures, lambda made: made.sheet or made.name):
        sheet: list[Figure] = []
        for made in panels:
            figure.show(made, console, quoted=not sheet or made.quotes != sheet[-1].quotes)
            saved = harness.save(figure.record_of(made), results)
            console.print(f"saved as {saved}", highlight=False)
            right &= made.right
            sheet.append(made)
        if plots is not None:
            console.print(f"drawn as {figure.plot(sheet, plots)}", highlight=False)
    return right


if __name__ == "__main__":
    main()
