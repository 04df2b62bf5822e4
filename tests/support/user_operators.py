"""Operators of the user for tests, and a session with a stream for them. As a program, it continues
a run from a checkpoint."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import cql
from cql.executor.state.checkpoint import from_ipc
from cql.session.session import Session
from tests.support.run_checkpoints import other_codes, plan_of, run

Emit = Callable[..., None]
MANY = "SELECT * FROM many(TABLE (SELECT ts, k, name, v FROM s), 3) AS m"
RECENT = "SELECT * FROM recent(TABLE s PARTITION BY (name, k), 4) AS r"
LEVELS = """
    SELECT window_start, level, rises FROM levels(TABLE audio [ROWS 64 SLIDE 48]) AS x
    WHERE level > 0"""

STEPS = """
    WITH filtered AS (SELECT step, ch0 * 2 AS twice FROM steps(TABLE audio [ROWS 64 SLIDE 64]) AS x)
    SELECT window_start, step, stddev(twice) AS spread
    FROM SIGNAL(filtered) AS s [ROWS 100 SLIDE 50 WITH RESTS]"""


@cql.operator(
    {"number": "bigint", "text": "string", "total": "double", "odd": "boolean", "at": "timestamp"},
    state={"n": "int64", "by_key": ("float64", 4), "seen": ("bool", (2, 4))},
)
def many(state: Any, row: Any, emit: Emit, most: int) -> None:
    """As many rows as the key says, up to a number."""
    state.n += 1
    if row.k is None:
        return
    state.by_key[row.k] += row.v or 0.0
    state.seen[state.n % 2, row.k] = True
    for k in range(min(row.k, most)):
        text = None if row.name is None else f"{row.name} {k}"
        emit(state.n, text, state.by_key[row.k], odd=state.seen[1, row.k], at=row.ts)


@cql.operator({"level": "double", "rises": "int"}, state={"before": "float32", "rises": "int32"})
def levels(state: Any, row: Any, emit: Emit) -> None:
    """The loudness of each segment, and how often it rose."""
    level = float(np.abs(row.ch0.astype(np.float64)).mean())
    state.rises += level > state.before
    state.before = level
    emit(rises=state.rises, level=level)


@cql.operator({"step": "signal<double>", "ch0": "signal<smallint>"}, state={"before": "int64"})
def steps(state: Any, row: Any, emit: Emit) -> None:
    """How far each sample is from the one before it, beside the samples."""
    emit(np.diff(row.ch0.astype(np.int64), prepend=state.before), row.ch0)
    state.before = row.ch0[-1]


def recent_rest(state: Any, emit: Emit, most: int) -> None:
    """Two rows for a key whose state is left."""
    if state.n > 1:
        emit(-state.n, state.last.sum())
        emit(most)


@cql.operator(
    {"n": "bigint", "sum": "double"},
    state={"n": "int64", "last": ("float64", 3)},
    finish=recent_rest,
)
def recent(state: Any, row: Any, emit: Emit, most: int) -> None:
    """The sum of the last three values; each row whose number is ``most`` ends the state."""
    state.last[state.n % 3] = row.v or 0.0
    state.n += 1
    emit(state.n, state.last.sum())
    if state.n == most:
        state.clear()


@cql.operator({"v2": "double"})
def same(state: Any, row: Any, emit: Emit) -> None:
    """Each row as it is."""
    emit(row.v)


def rows_of(seed: int, count: int) -> list[tuple[int, int | None, str | None, float | None]]:
    """Rows of the stream: microseconds, key, name, value."""
    choice = random.Random(f"operators {seed}")

    def or_null(value: Any) -> Any:
        return None if choice.random() < 0.1 else value

    return [
        (
            1000 * (i + choice.randrange(-4, 5)),
            or_null(choice.randrange(4)),
            or_null(f"n{choice.randrange(9)}"),
            or_null(float(choice.randrange(100))),
        )
        for i in range(count)
    ]


@contextmanager
def operator_session(seed: int, count: int = 400, **settings: Any) -> Iterator[Session]:
    """A session with the operators over the streams ``s`` and ``audio``."""
    functions = [many, levels, steps, recent, same]
    with cql.connect(spark=False, functions=functions, **settings) as session:
        ts, k, name, v = zip(*rows_of(seed, count), strict=True) if count else ((),) * 4
        table = pa.table(
            {
                "ts": pa.array([max(t, 0) for t in ts], pa.timestamp("us", "UTC")),
                "k": pa.array(k, pa.int32()),
                "name": pa.array(name, pa.string()),
                "v": pa.array(v, pa.float64()),
            }
        )
        session.create_stream("s", table, watermark={"ts": "5 milliseconds"})
        wave = np.random.default_rng(seed).normal(0, 100, 8 * count).astype(np.int16)
        session.create_stream("audio", pa.table({"ch0": wave}), rate=1000)
        yield session


def continue_elsewhere(text: str, folder: str) -> None:
    """Reads ``run.arrow``, continues, and writes what came of it."""
    with operator_session(3, morsel_rows=7) as session, other_codes(["x", "y"]):
        saved = from_ipc(Path(folder, "run.arrow").read_bytes())
        ran = run(plan_of(session, text), session.settings, saved)
    Path(folder, "rest").write_text(repr((ran.rows, ran.ledgers)), "utf-8")


if __name__ == "__main__":
    continue_elsewhere(*sys.argv[1:])
