"""Every benchmark on few rows: all contenders' answers, and the reports. No timing."""

from __future__ import annotations

import io
import itertools
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from rich.console import Console

from benchmarks import (
    access_log,
    bare,
    bids,
    compare,
    cores,
    dictionary,
    figure,
    first,
    flush,
    harness,
    join_skew,
    joins,
    machine,
    punctuation,
    q4,
    q7,
    run,
    skew,
    sliding,
    soak,
    soak_texts,
    spark_tables,
    spark_tasks,
    split,
    tpcxbb,
    tpcxbb_scaling,
    window_joins,
    workloads,
)
from benchmarks.figure import Check, Figure
from benchmarks.harness import Benchmark, Contender, Limit, Options, Ratio

ROWS = 20_000


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("benchmark-data")


@pytest.fixture
def options() -> Options:
    cpu = machine.last_cpu() if machine.can_pin() else None
    console = Console(file=io.StringIO(), width=110)
    return Options(runs=1, cpu=cpu, elements=1000, steps=1000, console=console)


def measured(benchmark: Benchmark, options: Options) -> dict[str, Any]:
    """The record of a run in which every answer was right; the record can be saved and shown."""
    try:
        record = harness.measure(benchmark, options)
    finally:
        benchmark.close()
    harness.show(record, options.console)
    wrong = {entry["name"]: entry["wrong"] for entry in record["contenders"] if entry["wrong"]}
    assert wrong == {}
    assert json.loads(json.dumps(record)) == record
    return record


def names(record: dict[str, Any]) -> list[str]:
    return [entry["name"] for entry in record["contenders"]]


def test_q4(data: Path, options: Options) -> None:
    record = measured(q4.q4(ROWS, data), options)
    assert names(record) == [
        "bare kernel",
        "ours",
        "duckdb, own table, 2 threads",
        "duckdb, arrow table, 2 threads",
    ]
    assert record["rows"] == ROWS
    assert [r["goal"] for r in record["ratios"]] == [0.6, 1.5, 1.5]


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("make", [sliding.q9, sliding.q9_groups, sliding.overlap, sliding.several])
def test_sliding_windows(make: Any, data: Path, options: Options) -> None:
    record = measured(make(ROWS, data), options)
    assert record["ratios"]


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("number", tpcxbb_scaling.KERNELS)
def test_kernels_of_tpcxbb(number: int) -> None:
    """The kernels against our answers, which ``test_tpcxbb`` compares with other engines."""
    name, make = tpcxbb_scaling.KERNELS[number]
    table = tpcxbb.TABLES[name](ROWS, 1)
    kernel, query = make(table), tpcxbb_scaling.Query(number, name, table)
    query.under("depth_first", 1)
    given = query.run()
    assert given.num_rows > 0
    assert kernel.answer(kernel.run()) == tpcxbb_scaling.answer(given)


def test_scaling(options: Options) -> None:
    record = measured(tpcxbb_scaling.scaling(4, ROWS), options)
    two, one, *_ = record["ratios"]
    assert "of the work is serial" in record["title"]
    assert two["goal"] == tpcxbb_scaling.FULL or 0.9 <= two["goal"] <= 1.8
    assert one["goal"] in (None, tpcxbb_scaling.ALONE)


@pytest.mark.slow
@pytest.mark.parametrize("make", [q7.q7, q7.q7_rare])
def test_q7(make: Any, data: Path, options: Options) -> None:
    record = measured(make(ROWS, data), options)
    assert record["rows"] == 2 * ROWS
    assert [r["goal"] for r in record["ratios"] if r["goal"] is not None] == [0.5, 2, 2]


def test_dictionary(options: Options) -> None:
    record = measured(dictionary.dictionary(ROWS), options)
    assert record["rows"] == ROWS
    assert [limit["most"] for limit in record["limits"]] == [pytest.approx(40e-9 * ROWS)] * 2


@pytest.mark.parametrize("make", [bids.q1, bids.q2])
def test_bids(make: Any, data: Path, options: Options) -> None:
    record = measured(make(ROWS, data), options)
    assert record["rows"] == ROWS * 46 // 50
    assert {"bare kernel", "ours"} < set(names(record))
    assert sum("polars" in name or "duckdb" in name for name in names(record)) == 3


BESIDE_SPARK = (spark_tables.q4_spark, spark_tables.q7_spark, spark_tables.q9_spark)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("make", BESIDE_SPARK)
def test_beside_spark(make: Any, spark: Any, data: Path, options: Options, full: bool) -> None:
    if not full and make is not spark_tables.q4_spark:
        pytest.skip("with --full")
    record = measured(make(ROWS, data, spark), options)
    assert {spark_tables.OURS, spark_tables.SPARK} <= set(names(record))
    assert all(limit["value"] > 0 for limit in record["limits"])
    assert not [t.name for t in spark.catalog.listTables() if t.name.startswith("bench_")]


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("name", spark_tasks.WORK)
def test_tasks(name: str, spark: Any, data: Path, options: Options, full: bool) -> None:
    if not full and name != "tumbling":
        pytest.skip("with --full")
    record = measured(replace(spark_tasks.tasks(name, ROWS, data, spark), warm=1), options)
    assert {spark_tasks.TASKS, spark_tasks.SPARK, spark_tasks.HERE} == set(names(record))
    assert not [t.name for t in spark.catalog.listTables() if t.name.startswith("bench_")]


@pytest.mark.slow
def test_first(data: Path, options: Options, full: bool) -> None:
    benchmark = first.first(None, data, nothing_cached=full)
    once = [replace(contender, once=True) for contender in benchmark.contenders]
    record = measured(replace(benchmark, contenders=once), options)
    assert names(record)[:3] == ["import cql", "kernel cached", "library cached"]
    assert len(record["limits"]) == len(names(record)) == (4 if full else 3)


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("name", access_log.DUCKDB)
def test_access_log(name: str, options: Options) -> None:
    record = measured(access_log.query(name, 5_000), options)
    assert record["rows"] == 5_000
    assert names(record)[2:] == ["duckdb, own table, 2 threads", "duckdb, arrow table, 2 threads"]


def test_cores() -> None:
    assert cores.given(2, 1000) > 0


def test_bandwidth() -> None:
    assert len(bare.bandwidth(1000)) == 10
    assert set(bare.bandwidth(1000, (harness.READ,))) == {harness.READ}


# ----------------------------------------------------------------- the figures


def drawn(made: Figure, options: Options) -> Figure:
    """A figure with right answers, which can be shown, and whose record is JSON."""
    assert made.right
    assert made.quotes
    assert all(len(values) == len(made.x) for values in made.series.values())
    record = figure.record_of(made)
    assert json.loads(json.dumps(record))["series"].keys() == made.series.keys()
    figure.show(made, options.console)
    return made


@pytest.mark.parametrize("setting", [skew.Q5, skew.INTRODUCTION, skew.Q9], ids=lambda s: s.name)
def test_figures_1_and_13(setting: skew.Setting, options: Options, full: bool) -> None:
    if not full and setting is not skew.INTRODUCTION:
        pytest.skip("with --full")
    made = drawn(skew.measured(setting.scaled(ROWS), (1, 40)), options)
    flat, rising = made.series[skew.OUT_OF_ORDER], made.series[skew.IN_ORDER]
    assert flat[1] <= 1.2 * flat[0]
    assert rising[1] >= rising[0]


@pytest.mark.slow
def test_figure_3(options: Options) -> None:
    memory, latency, lost = (drawn(made, options) for made in split.figures(ROWS))
    assert memory.series.keys() == latency.series.keys() == lost.series.keys()
    assert all(check.met for check in (*latency.checks, *lost.checks))


@pytest.mark.slow
def test_figures_of_joins(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"BANDS": (1, 5), "SKEWS": (1, 5), "SECONDS": 30, "SLOWLY": 100}.items():
        monkeypatch.setattr(joins, name, value)
    monkeypatch.setattr(joins, "WIDER", (1,))
    made = [drawn(one, options) for one in joins.figures(1_000)]
    assert [one.name for one in made][:4] == ["figure5", "figure6", "figure8", "figure10"]
    assert made[2].checks[0].met


def test_figure_6(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    """With both inputs at second 6, the in-order join buffers 9 results: S0 at 5 with S1 from 2 to
    6, and S0 at 6 with S1 from 3 to 6. Two rows per second give four times as many."""
    monkeypatch.setattr(joins, "WIDER", (1, 2))
    for rate, times in ((100, 1), (200, 4)):
        made = drawn(joins.buffered(rate), options)
        assert made.series == {
            "in order": [9 * times, 34 * times],
            "out of order": [0, 0],
            "the area of the figure": [9 * times, 34 * times],
        }
        assert [check.value for check in made.checks] == [2, 1, 0, 0]
        assert all(check.met for check in made.checks)


@pytest.mark.slow
def test_skewed_joins(options: Options) -> None:
    made = [drawn(one, options) for one in join_skew.figures(500)]
    assert [one.name for one in made] == ["join-keys", "join-far", "join-wide", "join-crowd"]


def test_figure_9(options: Options) -> None:
    made = [drawn(figure, options) for figure in flush.figures(ROWS)]
    assert len(made) == 2 * len(flush.SIZES)
    assert all(figure.series.keys() == flush.POLICIES.keys() for figure in made)
    assert all(v > 0 for figure in made for values in figure.series.values() for v in values)


def test_a_ring_bears_what_its_readings_allow() -> None:
    """Readings of 4,096 packets per millisecond are four million packets per second. A pause of
    16 ms fills the ring at that rate; a longer pause lowers the highest rate."""
    run = object.__new__(flush.Run)
    run.taken = np.full(1000, 1e-3)
    assert run.highest_rate() == pytest.approx(4.096e6, rel=0.2)
    before = run.highest_rate()
    run.taken[500] = 0.2
    assert run.highest_rate() < before / 2
    assert run.longest_pause() == 0.2


def test_figures_5_to_10_of_the_in_order_paper(options: Options) -> None:
    """On windows of at most 90 seconds: the equations hold for windows of any size."""
    made = [drawn(figure, options) for figure in window_joins.figures(2000)]
    assert len(made) == 11
    assert all(check.met for figure in made for check in figure.checks)


def test_punctuation_overhead(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(punctuation, "ROUNDS", 1)
    monkeypatch.setattr(punctuation, "SHARES", (0.0, 15.0))
    (made,) = punctuation.figures(ROWS)
    drawn(made, options)


def test_the_soak_of_fresh_keys(options: Options) -> None:
    made = drawn_soak(soak.keys(3.0, ["sessions", "istream"]), options)
    assert made.checks[3].met  # the query gave rows


@pytest.mark.slow
def test_the_soak_of_texts(options: Options) -> None:
    made = drawn_soak(soak_texts.texts(3.0, ["like", "sessions by upper"]), options)
    assert made.checks[3].met  # each query gave rows under both runtimes


@pytest.mark.slow
@pytest.mark.parametrize("variant", [soak.idle, soak.heartbeat])
def test_the_soak_of_silence(
    variant: Callable[[float], Figure], options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(soak, "IDLE", 0.5)
    drawn_soak(variant(6.0), options)


@pytest.mark.slow
def test_the_soak_of_stalls(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is lost; the stall of ten seconds is shortened to two, still above IDLE AFTER."""
    monkeypatch.setattr(soak, "STALL", 2.0)
    made = drawn_soak(soak.stall(5.0), options)
    assert all(check.met for check in made.checks[3:])


def drawn_soak(made: Figure, options: Options) -> Figure:
    """A run of seconds is too short to judge its slopes."""
    assert made.right
    figure.show(made, options.console)
    assert max(made.series["state"]) > 0
    return made


def test_a_figure_is_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    made = Figure("toy", "A toy", ("It grows.",), "x", (1, 2), "y", {"a": (1.0, 2.0)})
    assert figure.plot([made], tmp_path / "new").read_bytes().startswith(b"\x89PNG")


def test_a_sheet_has_its_figures_as_panels(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    lines = Figure(
        "one", "Toys: one", (), "x", (1, 2), "y", {"a, b": (1.0, nan), "a": (1, 2)},
        sheet="toys", panel="(a)", points=["a, b"],
    )  # fmt: skip
    bars = Figure(
        "two", "Toys: two", (), "x", (0, 1), "y", {"a": (1.0, 2.0), "b": (2.0, nan)},
        log_y=True, sheet="toys", panel="(b)", names=("p", "q"),
    )  # fmt: skip
    path = figure.plot([lines, bars], tmp_path)
    assert path.name == "toys.png"
    assert path.read_bytes().startswith(b"\x89PNG")


def test_many_series_are_rows(options: Options) -> None:
    series = {f"s{k}": (float(k), nan) for k in range(4)}
    told = [
        Check("growth", 3.0, "the paper: none", met=False, why="it grows"),
        Check("size", 2.0),
    ]
    figure.show(Figure("toy", "A toy", ("Q",), "x", (1, 2), "y", series, told), options.console)
    assert isinstance(options.console.file, io.StringIO)
    shown = options.console.file.getvalue()
    assert "y, by x   1   2" in shown
    assert "growth: 3 (the paper: none): no, because it grows" in shown
    assert "size: 2\n" in shown


def test_a_figure_tells_what_it_misses(options: Options) -> None:
    missed = Check("growth", 3.0, "at most 1", met=False)
    figure.show(
        Figure("toy", "A toy", (), "x", (1,), "y", {"a": (1.0,)}, [missed], right=False),
        options.console,
    )
    assert isinstance(options.console.file, io.StringIO)
    shown = options.console.file.getvalue()
    assert "growth: 3 (goal: at most 1): no" in shown
    assert "toy: an answer is wrong" in shown
    assert figure.slope((1, 2, 3), (2, 4, 6)) == pytest.approx((2.0, 1.0))


# ----------------------------------------------------------------- the data


def test_the_data_is_made_once_and_always_the_same(data: Path) -> None:
    for make in (workloads.packets, workloads.bids):
        made, kept = make(ROWS), workloads.load(make, ROWS, data)
        again = workloads.load(make, ROWS, data)
        assert made.answers == kept.answers == again.answers
        for name, column in made.columns.items():
            assert column.dtype == kept.columns[name].dtype
            assert np.array_equal(column, kept.columns[name])


def test_the_data_is_that_of_the_fixed_generator() -> None:
    """Checksums of the data that the fixed generators make for 1000 rows."""
    p, b = workloads.packets(1000), workloads.bids(1000)
    assert workloads.checksum(*p.columns.values()) == PACKETS
    assert workloads.checksum(*b.columns.values()) == BIDS


PACKETS = (1000, "053e9a078882f58c")
BIDS = (920, "715c5963dbfbc98d")


def test_other_data_at_the_full_size_is_refused() -> None:
    made = workloads.packets(1000)
    with pytest.raises(RuntimeError, match="differ from the fixed ones"):
        workloads._check_fixed(replace(made, size=workloads.FULL))


def test_checksums_ignore_the_order_and_nothing_else() -> None:
    a, b = np.arange(100), np.arange(100) % 7
    order = np.random.default_rng(0).permutation(100)
    same = workloads.checksum(a, b)
    assert workloads.checksum(a[order], b[order]) == same
    assert workloads.checksum(a, b[order]) != same
    assert workloads.checksum(b, a) != same
    assert workloads.checksum(a[:0]) == (0, "0" * 16)


def test_parts_are_in_order_of_name_and_time(data: Path) -> None:
    import pyarrow.parquet as pq

    place, answers = workloads.parquet_parts(workloads.packets, ROWS, data)
    files = sorted(place.iterdir())
    assert files == sorted(files, key=lambda file: file.stat().st_mtime)
    ts = np.concatenate([pq.read_table(f)["ts"].cast("int64").to_numpy() for f in files])
    assert np.array_equal(ts, workloads.packets(ROWS).columns["ts"])
    # The last window ends after the last packet, so it stays open.
    assert answers["closed"][0] < answers["counts"][0]


def test_half_made_data_is_not_kept(data: Path) -> None:
    def fail() -> None:
        with workloads._Built(data / "broken") as aside:
            (aside / "x").touch()
            raise InterruptedError

    with pytest.raises(InterruptedError):
        fail()
    assert not (data / "broken").exists()
    assert not [entry for entry in data.iterdir() if entry.name.startswith(".")]


# ----------------------------------------------------------------- the harness


def toy(calls: list[str], answers: Iterator[tuple[int, str]] | None = None) -> Benchmark:
    """Contenders with scripted run times; ``b`` gives ``answers``."""

    def runner(name: str, *seconds: float) -> Contender:
        left = iter(seconds)
        return Contender(
            name,
            lambda: calls.append(name) or next(left),
            lambda _: next(answers) if answers and name == "b" else (1, "right"),
            seconds=lambda result: result,
            notes=lambda result: {"size": result * 2},
        )

    return Benchmark(
        "toy",
        "A [toy]",
        100,
        (1, "right"),
        [runner("a", 9.0, 1.0, 2.0, 3.0), runner("b", 9.0, 2.0, 3.0, 10.0)],
        [Ratio("a", "b", 1.5), Ratio("b", "a", 1.0)],
        [Limit("b", 3.5), Limit("a", 10, "size")],
    )


def test_a_benchmark_says_how_many_rounds_count_and_what_the_paper_has(options: Options) -> None:
    calls: list[str] = []
    toys = toy(calls)
    first = replace(toys.contenders[0], paper=71.4e6)
    made = replace(toys, contenders=[first, toys.contenders[1]], warm=2, counted=2)
    record = harness.measure(made, replace(options, runs=None))
    assert calls == ["a", "b"] * 4
    assert [len(entry["runs"]) for entry in record["contenders"]] == [2, 2]
    harness.show(record, options.console)
    assert isinstance(options.console.file, io.StringIO)
    shown = options.console.file.getvalue()
    assert "paper's" in shown
    assert "71.4" in shown


def test_contenders_take_turns_and_the_first_round_does_not_count(options: Options) -> None:
    calls: list[str] = []
    record = harness.measure(toy(calls), replace(options, runs=3))
    assert calls == ["a", "b"] * 4
    a, b = record["contenders"]
    assert (a["first"], a["runs"], a["median"], a["rows_per_s"]) == (9.0, [1.0, 2.0, 3.0], 2.0, 50)
    assert (b["median"], b["ns_per_row"]) == (3.0, 3e7)
    assert [(r["value"], r["met"]) for r in record["ratios"]] == [(1.5, True), (2 / 3, False)]
    assert record["ratios"][0]["rounds"] == [2.0, 1.5, 10 / 3]
    assert [(m["value"], m["met"]) for m in record["limits"]] == [(3.0, True), (18.0, False)]
    assert harness.is_right(record)


def test_rounds_that_warm_up_do_not_count(options: Options) -> None:
    calls: list[str] = []
    record = harness.measure(replace(toy(calls), warm=3), replace(options, runs=1))
    assert calls == ["a", "b"] * 4
    assert [(c["first"], c["runs"]) for c in record["contenders"]] == [(9.0, [3.0]), (9.0, [10.0])]


def test_a_wrong_answer_is_told(options: Options) -> None:
    answers = iter([(1, "right"), (1, "wrong"), (1, "right"), (1, "right")])
    record = harness.measure(toy([], answers), replace(options, runs=3))
    assert not harness.is_right(record)
    harness.show(record, options.console)
    assert isinstance(options.console.file, io.StringIO)
    text = options.console.file.getvalue()
    assert "b is wrong: round 1: (1, 'wrong'), expected (1, 'right')" in text
    assert "A [toy]" in text


@pytest.mark.parametrize("busy", [True, False])
def test_a_busy_machine_is_told(
    busy: bool, options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bare, "bandwidth", lambda *_: {harness.READ: 20.0, harness.COPY: 20.0})
    clock = itertools.count(0.0, 0.5)
    monkeypatch.setattr(time, "process_time", lambda: next(clock))  # half a CPU-second per run
    monkeypatch.setattr(machine, "others_cpu_seconds", lambda: 0.0)
    wall = 1.0 if busy else 0.5
    alone = Contender("k", lambda: None, lambda _: (1, ""), seconds=lambda _: wall, pinned=True)
    record = harness.measure(Benchmark("toy", "toy", 100, (1, ""), [alone]), options)
    assert record["share"] == (0.5 if busy else 1.0)
    harness.show(record, options.console)
    assert isinstance(options.console.file, io.StringIO)
    assert ("The machine was busy" in options.console.file.getvalue()) is busy


@pytest.mark.parametrize(("given", "judged"), [(1.9, True), (1.2, False)])
def test_cores_that_were_not_there_are_told(
    given: float, judged: bool, options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cores, "given", lambda threads, steps: given * threads / 2)
    both = [Contender(n, lambda: None, lambda _: (1, ""), seconds=lambda _: 1.0) for n in "ab"]
    benchmark = Benchmark(
        "toy", "toy", 100, (1, ""), both, [Ratio("a", "b", 1.5)], bandwidth=False, threads=2
    )
    record = harness.measure(benchmark, replace(options, runs=3))
    assert record["cores"] == [given] * 3
    harness.show(record, options.console)
    assert isinstance(options.console.file, io.StringIO)
    text = options.console.file.getvalue()
    assert f"2 threads of arithmetic did {given:.2f} times what one did" in text
    assert ("The machine was busy: 2 threads had 1.20 cores" in text) is not judged
    assert ("at least 1.5×   no" in text) is judged


@pytest.mark.parametrize(("seconds", "counts"), [(0.5, True), (2.0, False)])
def test_a_slow_kernel_makes_a_run_not_count(
    seconds: float, counts: bool, options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    # At half the design's bandwidth, half the kernel's rate is due: 100 rows in 1 s.
    monkeypatch.setattr(bare, "bandwidth", lambda *_: {harness.READ: 20.0, harness.COPY: 20.0})
    kernel = Contender("k", lambda: None, lambda _: (1, ""), seconds=lambda _: seconds)
    benchmark = Benchmark("toy", "toy", 100, (1, ""), [kernel], kernel="k", kernel_rows_per_s=200.0)
    record = harness.measure(benchmark, options)
    assert record["kernel"]["due_rows_per_s"] == 100.0
    assert record["kernel"]["counts"] is counts


@pytest.mark.skipif(not machine.can_pin(), reason="threads cannot be confined here")
def test_pinned_runs_have_one_cpu() -> None:
    import os
    import threading

    before = os.sched_getaffinity(0)
    seen: list[set[int]] = []
    with machine.pinned(machine.last_cpu()):
        thread = threading.Thread(target=lambda: seen.append(os.sched_getaffinity(0)))
        thread.start()
        thread.join()
        assert os.sched_getaffinity(0) == {machine.last_cpu()} == seen[0]
    assert os.sched_getaffinity(0) == before


# ----------------------------------------------------------------- the commands


def test_the_command_saves_what_compare_reads(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bare, "bandwidth", lambda *_: {harness.READ: 20.0, harness.COPY: 20.0})
    arguments = ["q4", "--runs", "1", "--rows", str(ROWS), "--data", str(data)]
    for _ in range(2):
        done = CliRunner().invoke(run.main, [*arguments, "--results", str(tmp_path)])
        assert done.exit_code == 0, done.output
    files = sorted(str(path) for path in tmp_path.iterdir())
    assert len(files) == 2
    done = CliRunner().invoke(compare.main, files)
    assert done.exit_code == 0, done.output
    assert "bare kernel" in done.output
    assert "ours : bare kernel" in done.output


def test_compare_refuses_what_is_not_alike(tmp_path: Path) -> None:
    record = {"format": harness.FORMAT, "benchmark": "q4", "rows": 1, "load": [1.0], "started": "",
              "machine": {"commit": None}, "contenders": [], "ratios": []}  # fmt: skip
    good, other, bad = (tmp_path / name for name in ("good.json", "other.json", "bad.json"))
    good.write_text(json.dumps(record))
    other.write_text(json.dumps(record | {"rows": 2}))
    bad.write_text("{")
    refused = CliRunner().invoke(compare.main, [str(good), str(other)])
    assert refused.exit_code == 1
    assert "rows differs: 1 and 2" in refused.output
    refused = CliRunner().invoke(compare.main, [str(good), str(bad)])
    assert refused.exit_code == 1
    assert "is not JSON" in refused.output
