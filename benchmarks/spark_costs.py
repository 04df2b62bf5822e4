"""What a query in tasks on Spark costs, by its parts: measured on one core of this machine.

Executors: CPU seconds of Java (Spark's record of its stages) and Python (the tasks' own figures),
split by least squares into shares for each task, row, row group and piece of a shuffle. Driver:
footers and descriptions of tasks by the clock; scheduling by the CPU time of Spark's scheduling
threads (Linux).
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import cql
from benchmarks.spark_tables import SETTINGS
from benchmarks.workloads import T0
from cql.catalog.spark.tables.row_groups import groups_of
from cql.planner.nodes.statements import Name
from cql.planner.placement.scale_out import ByTime, placement
from cql.query.query import Query
from cql.spark.run.driver import SparkRun
from cql.spark.run.parts import Input, by_time
from cql.spark.task.sent import ROWS as SENT_ROWS

#: Rows of the tables by default, and their row groups: many small ones, few large ones.
ROWS = 4_000_000
GROUPS = {"fine": 200, "coarse": 8}
FILES = 8
#: Microseconds of all rows, of 200 windows, and the most that a row is out of order.
SPAN, DISORDER = 4_000_000_000, 2_000_000
#: Numbers of tasks over the table of small row groups, and over that of large ones.
TASKS = {"fine": (4, 16, 64, 200), "coarse": (2, 8)}
#: Queries of which few rows, one in a thousand, or some come back, and their ``tasks_by``.
QUERIES: Mapping[str, tuple[str, str]] = {
    "by time": (
        "time",
        "SELECT g, count(*) AS n, sum(v) AS s, window_end FROM {} [RANGE 20 SECONDS SLIDE"
        " 20 SECONDS] GROUP BY g",
    ),
    "by rows": ("time", "SELECT ts, k, v FROM {} WHERE v = 7"),
    "by key": (
        "key",
        "SELECT k, count(*) AS n, sum(v) AS s, window_end FROM {} [RANGE 1 HOUR SLIDE 1 HOUR]"
        " GROUP BY k",
    ),
}
_SCHEDULERS = ("dag-scheduler-e", "dispatcher-", "task-result-get")


@dataclass(frozen=True, slots=True)
class Stage:
    """Core seconds of a stage for each of its tasks, rows, row groups and pieces of a shuffle."""

    task: float
    row: float
    group: float = 0.0
    piece: float = 0.0

    def seconds(self, tasks: float, rows: float, groups: float = 0, pieces: float = 0) -> float:
        return self.task * tasks + self.row * rows + self.group * groups + self.piece * pieces


@dataclass(frozen=True, slots=True)
class WorkCosts:
    """``run`` is the stage that runs the query, ``split`` the one that splits the rows by key.
    ``result``: bytes that come back for each row."""

    run: Stage
    split: Stage | None
    result: float


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds, unless they are bytes. ``job``: starting and ending a wave. ``launch``: a core
    between two tasks. ``schedule``: Spark's scheduling of a task. ``receive``: the driver's Python
    for a report, for a byte of results. ``describe``: for a task, for a row group. ``footer``: for
    a file, for a row group. ``description``: bytes for a task and for a row group. ``report``:
    bytes of memory of the report of a task. ``spread``: ten quantiles of the durations of tasks, by
    their mean."""

    job: float
    launch: float
    schedule: float
    receive: tuple[float, float]
    describe: tuple[float, float]
    footer: tuple[float, float]
    description: tuple[float, float]
    report: float
    works: Mapping[str, WorkCosts]
    spread: Sequence[float]


@dataclass(slots=True)
class Measured:
    """One run in ``tasks`` tasks: seconds in all, before its first wave (``make``), of its waves
    beyond what the tasks took together (``between``), and of Python with the results; of each stage
    what ``Stage.seconds`` takes, and its CPU seconds; bytes of results; seconds of each task of the
    last stage."""

    name: str
    table: str
    tasks: int
    wall: float
    make: float
    waves: int
    between: float
    receive: float
    size: int
    rows_out: int
    stages: list[tuple[tuple[int, int, int, int], float]]
    durations: list[float]
    reports: list[dict[str, Any]] = field(repr=False)


class _Timed(SparkRun):
    """A run that tells when its waves ran."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.spans: list[tuple[float, float]] = []

    def _run_wave(self, tasks: Any, partitions: range) -> Any:
        begin = time.perf_counter()
        found = super()._run_wave(tasks, partitions)
        self.spans.append((begin, time.perf_counter()))
        return found


#: The names of single costs in a table of them.
_SINGLE = {
    "job": "a wave",
    "launch": "a core between two tasks",
    "schedule": "scheduling a task",
    "report": "memory of a report",
}
_PAIRS = {
    "receive": ("receiving a report", "receiving a byte of results"),
    "describe": ("describing a task", "describing a row group"),
    "footer": ("footer of a file", "footer of a row group"),
    "description": ("description of a task", "description of a row group"),
}
_STAGE = ("task", "row", "group", "piece")


def to_table(by: Costs) -> dict[str, float]:
    """The costs by names, in microseconds or bytes."""
    made = {name: getattr(by, each) * _unit(each) for each, name in _SINGLE.items()}
    for each, names in _PAIRS.items():
        made |= dict(zip(names, (x * _unit(each) for x in getattr(by, each)), strict=True))
    for name, work in by.works.items():
        for what, stage in (("split", work.split), ("run", work.run)):
            if stage is not None:
                made |= {f"{name}, {what}: a {n}": getattr(stage, n) * 1e6 for n in _STAGE}
        made[f"{name}: results of a row"] = work.result
    return made | {f"duration {n}": duration for n, duration in enumerate(by.spread)}


def from_table(table: Mapping[str, float]) -> Costs:
    """The costs of ``to_table``."""

    def stage(name: str, what: str) -> Stage | None:
        found = [table.get(f"{name}, {what}: a {n}") for n in _STAGE]
        return None if None in found else Stage(*(x / 1e6 for x in found if x is not None))

    works = {}
    for name in QUERIES:
        run = stage(name, "run")
        assert run is not None
        works[name] = WorkCosts(run, stage(name, "split"), table[f"{name}: results of a row"])
    single = {each: table[name] / _unit(each) for each, name in _SINGLE.items()}
    pairs = {
        each: (table[names[0]] / _unit(each), table[names[1]] / _unit(each))
        for each, names in _PAIRS.items()
    }
    spread = [value for name, value in table.items() if name.startswith("duration")]
    return Costs(**single, **pairs, works=works, spread=spread)  # type: ignore[arg-type]


def _unit(cost: str) -> float:
    return 1.0 if cost in ("report", "description") else 1e6


class Bench:
    """The tables of ``rows`` rows in a Spark session of ``cores`` cores on this machine."""

    def __init__(self, cores: int, folder: Path, rows: int) -> None:
        from cql.catalog.spark import session

        self.rows = rows
        self.spark = session.start(
            {
                **SETTINGS,
                "spark.master": f"local[{cores}]",
                "spark.default.parallelism": str(cores),
            },
            folder / f"warehouse{cores}",
        )
        self.session = cql.connect(spark=self.spark)
        for name in GROUPS:
            path = str(folder / name)
            self.spark.catalog.createTable(f"scale_{name}_rows", path=path, source="parquet")
            self.session.create_stream(
                f"scale_{name}", f"scale_{name}_rows", ordered_by="ts", slack="2 seconds"
            )

    def query(self, name: str, table: str) -> Query:
        by, text = QUERIES[name]
        self.session.set("tasks_by", by)
        query = self.session.sql(text.format(f"scale_{table}"))
        assert isinstance(query, Query)
        return query

    def run(self, name: str, table: str, tasks: int) -> Measured:
        query = self.query(name, table)
        before = self._jobs()
        run = _Timed(query._plan, query._prepared.job(), tasks)
        begin = time.perf_counter()
        for _ in run.batches():
            pass
        wall = time.perf_counter() - begin
        reports = run._reports
        splits = [effort for report in reports for effort in report["splits"]]
        efforts = [report["effort"] for report in reports]
        groups = sum(run._tasks.groups_read.values())
        ran = self._stages(before)
        stages = []
        for efforts_of, seconds in zip(
            [splits, efforts] if splits else [efforts], self._summed(ran, bool(splits)), strict=True
        ):
            first = efforts_of is not splits and bool(splits)
            rows = int(sum(effort["rows_in"] for effort in efforts_of))
            pieces = pieces_of(self.rows, len(splits), run._tasks.running) if splits else 0
            cpu = seconds + sum(effort["cpu"] for effort in efforts_of)
            stages.append(((len(efforts_of), rows, 0 if first else groups, pieces), cpu))
        waves = sum(end - start for start, end in run.spans)
        make = run.spans[0][0] - begin
        between = waves - sum(seconds for seconds, _ in ran)
        return Measured(
            name, table, tasks, wall, make, len(run.spans), between, wall - make - waves,
            int(sum(effort["bytes"] for effort in efforts)),
            int(sum(effort["rows_out"] for effort in efforts)),
            stages, [effort["seconds"] for effort in efforts], reports,
        )  # fmt: skip

    def _jobs(self) -> int:
        return int(self._store().jobsList(None).size())

    def _store(self) -> Any:
        return self.spark.sparkContext._jsc.sc().statusStore()

    def _stages(self, before: int) -> list[tuple[float, float]]:
        """The stages of the jobs after the first ``before`` ones: seconds of their tasks by the
        clock, and CPU seconds of their tasks in Java."""
        self.spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
        jobs = self._store().jobsList(None)
        numbers = set()
        for n in range(jobs.size()):
            job = jobs.apply(n)
            if job.jobId() >= before:
                ids = job.stageIds()
                numbers |= {int(ids.apply(k)) for k in range(ids.size())}
        found = []
        for number in sorted(numbers):
            stage = self._store().lastStageAttempt(number)
            if str(stage.status()) == "COMPLETE":
                found.append((stage.executorRunTime() / 1e3, stage.executorCpuTime() / 1e9))
        return found

    @staticmethod
    def _summed(stages: list[tuple[float, float]], split: bool) -> list[float]:
        """CPU seconds in Java of the stage that splits, which runs first and once, and of the
        others."""
        if split:
            return [stages[0][1], sum(seconds for _, seconds in stages[1:])]
        return [sum(seconds for _, seconds in stages)]

    def close(self) -> None:
        from cql.catalog.spark import session

        self.session.close()
        session.stop()


def pieces_of(rows: float, first: float, second: float) -> int:
    """Pieces of a shuffle of ``rows`` rows from ``first`` to ``second`` tasks
    (``task.shuffle.pieces``)."""
    collected = min(max(65_536, second * 8_192), 2_000_000)
    share = rows / first
    chunks = -(-share // collected)
    return int(first * chunks * second * -np.expm1(-share / chunks / second))


@contextmanager
def tables(rows: int) -> Iterator[Path]:
    """The folder of the two tables of ``rows`` rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = Path(tempfile.mkdtemp(prefix="cql-benchmark-"))
    rng = np.random.default_rng(11)
    times = T0 + np.arange(rows) * (SPAN // rows) - rng.integers(0, DISORDER, rows)
    table = pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us", tz="UTC")),
            "k": rng.integers(0, 65_536, rows),
            "g": rng.integers(0, 20, rows),
            "v": rng.integers(0, 1000, rows),
        }
    )
    try:
        for name, groups in GROUPS.items():
            (folder / name).mkdir()
            for k in range(FILES):
                part = table.slice(k * rows // FILES, rows // FILES)
                pq.write_table(
                    part, folder / name / f"{k:05d}.parquet", row_group_size=rows // groups
                )
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def costs(bench: Bench, runs: Sequence[Measured]) -> Costs:
    """The costs on a ``bench`` of one core, of which ``runs`` are."""
    counts = [(run.waves, sum(tasks for (tasks, *_), _ in run.stages)) for run in runs]
    job, launch = _fit(counts, [run.between for run in runs])
    works = {name: _work([run for run in runs if run.name == name], bench.rows) for name in QUERIES}
    receive = _fit([(len(r.reports), r.size) for r in runs], [r.receive for r in runs])
    durations = [
        duration / (sum(run.durations) / len(run.durations))
        for run in runs
        for duration in run.durations
        if run.name == "by rows" and run.tasks >= 16
    ]
    (one, per_group), sizes = _descriptions(bench)
    return Costs(
        job, launch, _schedule(bench), (receive[0], receive[1] + _byte(bench)), (one, per_group),
        _footers(bench), sizes, _memory(runs[0].reports[0]), works,
        np.quantile(durations, np.arange(0.05, 1.0, 0.1)).tolist(),
    )  # fmt: skip


def _fit(features: Sequence[Sequence[float]], seconds: Sequence[float]) -> list[float]:
    """Factors of no negative value that give ``seconds`` with the least relative errors."""
    x, y = np.asarray(features, float), np.maximum(np.asarray(seconds, float), 1e-6)
    left = list(range(x.shape[1]))
    while True:
        found, *_ = np.linalg.lstsq(x[:, left] / y[:, None], np.ones(len(y)), rcond=None)
        if (found >= 0).all() or len(left) == 1:
            break
        left.pop(int(found.argmin()))
    made = np.zeros(x.shape[1])
    made[left] = np.maximum(found, 0)
    return [float(value) for value in made]


def _work(runs: Sequence[Measured], rows: int) -> WorkCosts:
    stages = [
        Stage(*_fit([run.stages[n][0] for run in runs], [run.stages[n][1] for run in runs]))
        for n in range(len(runs[0].stages))
    ]
    result = sum(run.size for run in runs) / (rows * len(runs))
    return WorkCosts(stages[-1], stages[0] if len(stages) > 1 else None, result)


def nothing(tasks: Iterable[Any]) -> Iterator[tuple[str, bytes]]:
    for _ in tasks:  # to its end: else Spark starts another worker for the next task
        yield SENT_ROWS, b""


def much(tasks: Iterable[Any]) -> Iterator[tuple[str, bytes]]:
    for _ in tasks:
        yield SENT_ROWS, bytes(4 << 20)


def _schedule(bench: Bench) -> float:
    """CPU seconds of scheduling a task, by a job that does nothing."""
    context, count = bench.spark.sparkContext, 64
    tasks = context.parallelize([""] * count, count).mapPartitions(nothing)
    context.runJob(tasks, iter, range(count))
    before = _scheduling_cpu(context)
    for _ in range(3):
        context.runJob(tasks, iter, range(count))
    return (_scheduling_cpu(context) - before) / (3 * count)


def _scheduling_cpu(context: Any) -> float:
    """CPU seconds of Spark's scheduling threads."""
    ticks = 0
    for thread in Path(f"/proc/{context._gateway.proc.pid}/task").iterdir():
        try:
            name, _, rest = (thread / "stat").read_text().rpartition(")")
        except OSError:  # it has ended
            continue
        if name.partition("(")[2].startswith(_SCHEDULERS):
            used = rest.split()
            ticks += int(used[11]) + int(used[12])
    return ticks / 100


def _byte(bench: Bench) -> float:
    """Seconds of the driver for a byte of results, from Java to Python."""
    context = bench.spark.sparkContext
    took: dict[Callable[..., Any], float] = {}
    for work in (nothing, much):
        tasks = context.parallelize([""] * 8, 8).mapPartitions(work)
        found = []
        for _ in range(3):
            before, begin = bench._jobs(), time.perf_counter()
            context.runJob(tasks, iter, range(8))
            wall = time.perf_counter() - begin
            found.append(wall - sum(seconds for seconds, _ in bench._stages(before)))
        took[work] = median(found)
    return max(0.0, took[much] - took[nothing]) / (8 * (4 << 20))


def _input(bench: Bench, table: str) -> tuple[Input, Mapping[Name, tuple[int, int]], ByTime]:
    """The input of the query by time, its reach, and how tasks share it."""
    query = bench.query("by time", table)
    run = SparkRun(query._plan, query._prepared.job(), 4)
    run._tasks.make(lambda text: None, timed=False)
    placed = placement(query._plan, "time")
    assert isinstance(placed, ByTime)
    return run._tasks.inputs[0], run._shared.reach(placed), placed


def _footers(bench: Bench) -> tuple[float, float]:
    features, seconds = [], []
    for table in GROUPS:
        one, _, _ = _input(bench, table)
        for count in (2, FILES):
            files = replace(one.files, files=one.files.files[:count])
            took = []
            for _ in range(5):
                begin = time.perf_counter()
                groups = groups_of(files, "ts")
                took.append(time.perf_counter() - begin)
            features.append((count, len(groups)))
            seconds.append(median(took))
    made = _fit(features, seconds)
    return made[0], made[1]


def _descriptions(bench: Bench) -> tuple[tuple[float, float], tuple[float, float]]:
    """Seconds of describing a task and a row group of it, by time; and bytes."""
    one, reach, placed = _input(bench, "fine")
    times = 50
    groups = [
        replace(group, low=group.low + n * SPAN, high=group.high + n * SPAN)
        for n in range(times)
        for group in one.groups
        if group.low is not None and group.high is not None
    ]
    reached = [mark + n * SPAN for n in range(times) for mark in one.watermarks[1:]]
    long = replace(
        one,
        groups=tuple(groups),
        states=one.states[:1] + one.states[1:] * times,
        watermarks=(one.watermarks[0], *reached),
    )
    features, seconds, sizes = [], [], []
    for tasks in (100, 1000, 5000):
        begin = time.perf_counter()
        made = list(by_time([long], reach, placed, tasks))
        texts = list(map(json.dumps, made))
        seconds.append(time.perf_counter() - begin)
        sizes.append(float(sum(map(len, texts))))
        features.append((len(made), sum(len(task["parts"][0][1]["groups"]) for task in made)))
    took, size = _fit(features, seconds), _fit(features, sizes)
    return (took[0], took[1]), (size[0], size[1])


def _memory(report: Mapping[str, Any]) -> float:
    """Bytes of the report of a task as the driver keeps it."""
    text = json.dumps(report)
    tracemalloc.start()
    kept = [json.loads(text) for _ in range(100)]
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return size / len(kept)
