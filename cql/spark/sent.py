"""What tasks send to the driver, as Arrow streams and JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
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


def results(run: Run, inputs: Callable[[], list[Any]]) -> Iterator[Sent]:
    """Runs the query and sends its results and its report. ``inputs`` gives, when the run has
    ended, for each input its name and, for each time that it was opened, ``counts_of`` it."""
    notices: list[str] = []
    run.on_notice = notices.append
    for rows in _packed(run.batches()):
        yield ROWS, rows
    yield REPORT, json.dumps(_report(run, inputs(), notices)).encode()


def _packed(batches: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        waiting.append(batch)
        size += batch.nbytes
        if size >= SENT_BYTES:
            yield stream_of(waiting)
            waiting, size = [], 0
    if waiting:
        yield stream_of(waiting)


def stream_of(batches: list[pa.RecordBatch]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    made: bytes = sink.getvalue().to_pybytes()
    return made


def unpacked(sent: bytes) -> Iterator[pa.RecordBatch]:
    yield from pa.ipc.open_stream(sent)


def _report(run: Run, inputs: list[Any], notices: list[str]) -> dict[str, Any]:
    """The figures of a task. ``operators``: what each operator left out. ``bad``: the number of bad
    rows, and the ledger of the first ones."""
    progress = run.progress()
    return {
        "rows_in": progress.rows_in,
        "inputs": inputs,
        "operators": [
            [entry["place"], entry["kind"], entry["count"]]
            for entry in run.late().to_pylist()
            if entry["kind"] in ("pairs", "left out")
        ],
        "bad": progress.bad,
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
