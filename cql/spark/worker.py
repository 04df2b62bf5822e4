"""What Spark's Python workers run: one task of a job, from JSON text to Arrow bytes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from functools import lru_cache
from typing import Any

import pyarrow as pa

from cql.catalog.memory.row_watermarks import RowWatermarks
from cql.errors import CqlError
from cql.executor.morsel.row_watermarks import WatermarkPass
from cql.executor.protocols import Source
from cql.planner.nodes.statements import Name
from cql.query.run import Run
from cql.spark.job import Job
from cql.spark.task import run_of
from cql.spark.task_rows import BEFORE, NUMBER, Part, PartSource

#: What a task sends: results as an Arrow stream, and at its end its report or its error as JSON.
ROWS, REPORT, ERROR = "rows", "report", "error"
#: Bytes of results that a task collects before it sends them.
SENT_BYTES = 32 << 20


def run_tasks(job: str, tasks: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    """Runs the tasks of one partition. An error of ours is sent, so that Spark does not try the
    task again."""
    for task in tasks:
        try:
            yield from _run_task(job_from(job), json.loads(task))
        except CqlError as error:
            yield ERROR, error_to_json(error)


@lru_cache(maxsize=8)
def job_from(text: str) -> Job:
    """``Job.from_json``, once for the tasks of a process."""
    return Job.from_json(text)


def open_task(job: Job, task: Mapping[str, Any]) -> tuple[Run, Mapping[Name, PartSource]]:
    """The run of a task, and the parts that it reads, by their names in the text."""
    parts: dict[Name, PartSource] = {}
    for name, described in task["parts"]:
        relation = job.relations[tuple(name)]
        assert relation is not None
        parts[tuple(name)] = PartSource(relation, Part.from_json(described))
    sources = {name: _timed(name, part) for name, part in parts.items()}
    return run_of(job, sources, task["low"], task["high"]), parts


def _run_task(job: Job, task: Mapping[str, Any]) -> Iterator[tuple[str, bytes]]:
    run, parts = open_task(job, task)
    notices: list[str] = []
    run.on_notice = notices.append
    for rows in _packed(run.batches()):
        yield ROWS, rows
    yield REPORT, json.dumps(_report(run, parts, notices)).encode()


def _timed(name: Name, part: PartSource) -> Source:
    columns = {} if part.time is None else {part.time: BEFORE}
    return RowWatermarks(part, columns, what=f"stream {'.'.join(name)}", numbers=NUMBER)


def _packed(batches: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        waiting.append(batch)
        size += batch.nbytes
        if size >= SENT_BYTES:
            yield _stream(waiting)
            waiting, size = [], 0
    if waiting:
        yield _stream(waiting)


def _stream(batches: list[pa.RecordBatch]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    made: bytes = sink.getvalue().to_pybytes()
    return made


def unpacked(sent: bytes) -> Iterator[pa.RecordBatch]:
    yield from pa.ipc.open_stream(sent)


def _report(run: Run, parts: Mapping[Name, PartSource], notices: list[str]) -> dict[str, Any]:
    """The figures of a task. ``inputs``: by the name of an input, for each time that it was opened,
    the rows that the task owns, its late rows, their greatest lateness, and rows by their distance
    below the highest time. ``operators``: what each operator left out. ``bad``: the number of bad
    rows, and the ledger of the first ones."""
    progress = run.progress()
    return {
        "rows_in": progress.rows_in,
        "inputs": [[name, list(map(_counts, part.counted))] for name, part in parts.items()],
        "operators": [
            [entry["place"], entry["kind"], entry["count"]]
            for entry in run.late().to_pylist()
            if entry["kind"] in ("pairs", "left out")
        ],
        "bad": progress.bad,
        "bad_rows": run.bad_rows().to_pylist(),
        "notices": notices,
    }


def _counts(counted: WatermarkPass | None) -> list[Any] | None:
    if counted is None:
        return None
    made = counted.attribute
    return [counted.rows, made.late_rows, made.max_lateness, made.behind.tolist()]


def error_to_json(error: CqlError) -> bytes:
    place = error.position
    return json.dumps(
        {
            "kind": type(error).__name__,
            "message": error.message,
            "hint": error.hint,
            "position": None if place is None else asdict(place),
        }
    ).encode()
