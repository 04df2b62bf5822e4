"""What tasks send to the driver, as Arrow streams and JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, TypeAlias

import pyarrow as pa

from cql.errors import CqlError
from cql.executor.morsel.row_watermarks import WatermarkPass
from cql.query.run import Run

#: What a task sends: results as an Arrow stream, and at its end its report or its error as JSON.
ROWS, REPORT, ERROR = "rows", "report", "error"
Sent: TypeAlias = tuple[str, bytes]
#: Bytes of results that a task collects before it sends them.
SENT_BYTES = 32 << 20


class Effort:
    """What a task takes from its begin on: seconds of the clock and of its process, and the rows
    and bytes that it ``gives``."""

    def __init__(self) -> None:
        self._clock, self._process = time.perf_counter(), time.process_time()
        self._rows = self._bytes = 0

    def gives(self, rows: int, size: int) -> None:
        self._rows += rows
        self._bytes += size

    def figures(self, rows_in: int) -> dict[str, float]:
        return {
            "rows_in": rows_in,
            "rows_out": self._rows,
            "bytes": self._bytes,
            "seconds": time.perf_counter() - self._clock,
            "cpu": time.process_time() - self._process,
        }


def results(
    run: Run,
    effort: Effort,
    inputs: Callable[[], list[Any]],
    first_tasks: Sequence[Mapping[str, Any]] = (),
    *,
    of_parts: bool = False,
) -> Iterator[Sent]:
    """Runs the query and sends its results and its report. ``inputs`` gives, when the run has
    ended, for each input its name and, for each time that it was opened, ``counts_of`` it;
    ``first_tasks`` are the reports of the tasks before a shuffle, with the first part.
    ``of_parts``: the run takes parts of rows, whose late pairs the first tasks have counted."""
    notices: list[str] = []
    run.on_notice = notices.append
    for batches in _packed(run.batches()):
        sent = stream_of(batches)
        effort.gives(sum(batch.num_rows for batch in batches), len(sent))
        yield ROWS, sent
    yield (
        REPORT,
        json.dumps(
            _report(run, effort, inputs(), first_tasks, notices, of_parts=of_parts)
        ).encode(),
    )


def _packed(batches: Iterator[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        waiting.append(batch)
        size += batch.nbytes
        if size >= SENT_BYTES:
            yield waiting
            waiting, size = [], 0
    if waiting:
        yield waiting


def stream_of(batches: list[pa.RecordBatch], compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    made: bytes = sink.getvalue().to_pybytes()
    return made


def unpacked(sent: bytes | pa.Buffer) -> Iterator[pa.RecordBatch]:
    yield from pa.ipc.open_stream(sent)


def _report(
    run: Run,
    effort: Effort,
    inputs: list[Any],
    first_tasks: Sequence[Mapping[str, Any]],
    notices: list[str],
    *,
    of_parts: bool,
) -> dict[str, Any]:
    """The figures of a task, and those of the ``first_tasks``."""
    own = figures_of(run, notices)
    if of_parts:
        own["left_out"] = [[p, k, 0 if k == "pairs" else n] for p, k, n in own["left_out"]]
    for figures in first_tasks:
        for name, value in figures.get("figures", {}).items():
            own[name] += value
    return {
        "effort": effort.figures(run.progress().rows_in),
        "splits": [task["effort"] for task in first_tasks],
        "inputs": inputs,
        "metrics": [
            {name: v if isinstance(v, str) else float(v) for name, v in entry.items()}
            for entry in run.metrics()
        ],
        **own,
    }


def figures_of(run: Run, notices: list[str]) -> dict[str, Any]:
    """``left_out``: the rows that each operator left out. ``bad``: the number of bad rows, and the
    ledger of the first ones."""
    return {
        "left_out": [
            [entry["place"], entry["kind"], entry["count"]]
            for entry in run.late().to_pylist()
            if entry["kind"] in ("pairs", "left out")
        ],
        "bad": run.progress().bad,
        "bad_rows": run.bad_rows().to_pylist(),
        "notices": notices,
    }


def counts_of(counted: WatermarkPass | None) -> list[Any] | None:
    """The rows that a task owns, those that are late, the greatest lateness, and rows by their
    distance below the highest time; None for an input without times."""
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
