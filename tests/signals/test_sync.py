"""Ranges of signals against the slow model: in every runtime, however the rows and samples come."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import cql
from cql.base.settings import SETTINGS
from cql.session.session import Session
from tests.support.catalog_tools import blocks_of_eight
from tests.support.runtimes import RUNTIMES, apply, named
from tests.support.signals.cases import Case, random_case
from tests.support.signals.ranges import OPERATORS, Ranges, random_ranges

QUICK, FULL = 40, 3000
_MORSELS = (1, 2, 3, 7, 100, 4096)


@pytest.fixture
def session() -> Iterator[Session]:
    with cql.connect(spark=False) as made:
        yield made


def _expected(case: Case, ranges: Ranges, after: int, before: int) -> Counter[Any]:
    _, signal = case.expected()
    found: Counter[Any] = Counter()
    for number, start, stop in ranges.in_time():
        for run in signal.runs if stop is not None else ():
            assert stop is not None
            inside = [
                row[1]
                for n, row in enumerate(run.rows, run.first)
                if start + after <= run.time_of(n) // 1000 <= stop - before
            ]
            if inside:
                found[number, tuple(zip(*inside, strict=True))] += 1
    return found


@pytest.mark.parametrize("small", [False, True], ids=["whole", "eight"])
def test_random_ranges(small: bool, session: Session, full: bool, seed: int) -> None:
    for i in range(FULL if full else QUICK):
        choice = random.Random(f"sync {small} {seed + i}")
        case = random_case(choice)
        ranges = random_ranges(choice, case)
        session.sql("RESET")
        runtime, rows = choice.choice(RUNTIMES), choice.choice(_MORSELS)
        apply(session, runtime, {"morsel_rows": rows})
        case.declare(session, pushed=False)
        ranges.declare(session)
        condition, after, before = choice.choice(OPERATORS)
        condition = condition.format(t="ts" if case.timed else "time")
        channels = ", ".join(f"s.{name}" for name in case.names)
        items = choice.choice(("d, s", "s, d"))
        with blocks_of_eight() if small else nullcontext():
            query: Any = session.sql(f"SELECT d.k, {channels} FROM {items} WHERE {condition}")
            table = query.to_arrow()
        columns = [[tuple(v) for v in table[name].to_pylist()] for name in case.names]
        told = list(zip(table["k"].to_pylist(), zip(*columns, strict=True), strict=True))
        where = f"{seed + i}: {named(runtime)}, {rows} rows, {condition}, {case.rate} Hz"
        assert Counter(told) == _expected(case, ranges, after, before), where
        counts = next(m for m in query.metrics() if m["operator"].startswith("sync"))
        assert counts["late"] == len(ranges.rows) - len(ranges.in_time()), where
        assert (counts["rows_in"], counts["held"]) == (len(ranges.rows), 0), where
        assert counts["rows_out"] == len(told), where


SAMPLES = np.arange(400.0)


def _in_rows(table: pa.Table) -> None:
    """Windows of four samples, those of every other window, and a signal of the same times."""
    windows = SAMPLES.reshape(-1, 4)
    assert table["x"].to_pylist() == windows.tolist()
    assert table["some"].to_pylist() == [
        (2 * w).tolist() if k % 2 == 0 else None for k, w in enumerate(windows)
    ]
    assert table["z"].to_pylist() == (-windows).tolist()
    assert table["both"].to_pylist() == [-float(w @ w) for w in windows]


@pytest.mark.parametrize("small", [False, True], ids=["whole", "eight"])
@pytest.mark.parametrize("value", SETTINGS["segments"].choices)
@pytest.mark.parametrize("settings", RUNTIMES, ids=named)
def test_segments_in_rows_that_wait(
    settings: dict[str, Any], value: str, small: bool, session: Session
) -> None:
    """A row keeps its segments until another signal has come."""
    apply(session, settings, {"segments": value, "morsel_rows": 7})
    channels = {"x": SAMPLES, "y": 2 * SAMPLES}
    session.create_stream("a", pa.table(channels), rate=10)
    session.create_stream("b", pa.table({"z": -SAMPLES}), rate=10)
    windows = """SELECT window_start AS s, window_end AS e, x,
        CASE WHEN x[0] % 8 = 0 THEN y END AS some FROM a [ROWS 4 SLIDE 4]"""
    events = "SELECT window_start AS s, window_end AS e FROM a [ROWS 4 SLIDE 4]"
    with blocks_of_eight() if small else nullcontext():
        query: Any = session.sql(f"""SELECT d.x, d.some, b.z, dot(d.x, b.z) AS both
            FROM ({windows}) AS d, b WHERE b.time >= d.s AND b.time < d.e""")
        _in_rows(query.to_arrow())
        query = session.sql(f"""SELECT a.x, CASE WHEN a.x[0] % 8 = 0 THEN a.y END AS some, b.z,
            dot(a.x, b.z) AS both FROM ({events}) AS d, a, b
            WHERE a.time >= d.s AND a.time < d.e AND b.time >= d.s AND b.time < d.e""")
        _in_rows(query.to_arrow())


def test_a_range_waits_for_the_signal(session: Session) -> None:
    """A row leaves when the signal has passed the end of its range."""
    session.sql("CREATE STREAM s (ts TIMESTAMP, x INT) ORDERED BY ts RATE 1 HZ")
    session.sql("CREATE STREAM d (start TIMESTAMP, stop TIMESTAMP) ORDERED BY start")
    query: Any = session.sql("SELECT s.x FROM d, s WHERE s.ts BETWEEN d.start AND d.stop")
    second = 1_000_000
    kind = pa.timestamp("us", "UTC")

    def push(name: str, **columns: list[int]) -> None:
        arrays = {
            n: pa.array([v * second for v in c], kind) for n, c in columns.items() if n != "x"
        }
        more = {"x": pa.array(columns["x"], pa.int32())} if "x" in columns else {}
        session.push(name, pa.table({**arrays, **more}))

    push("d", start=[2], stop=[4])
    push("s", ts=[0, 1, 2, 3], x=[0, 1, 2, 3])
    push("s", ts=[4, 5], x=[4, 5])
    push("d", start=[3], stop=[100])
    answers = iter(query)
    assert next(answers).to_pylist() == [{"x": [2, 3, 4]}]
    session.end("s")
    session.end("d")
    assert [row for batch in answers for row in batch.to_pylist()] == [{"x": [3, 4, 5]}]


def test_without_a_range_samples_are_rows(session: Session) -> None:
    kind = pa.timestamp("us", "UTC")
    times = pa.array([0, 1_000_000, 2_000_000], kind)
    session.create_stream("s", pa.table({"ts": times, "x": [5, 6, 7]}), ordered_by="ts", rate=1)
    session.create_stream("t", pa.table({"at": times[1:], "k": [1, 2]}), ordered_by="at")
    query: Any = session.sql("SELECT k, x FROM t, s WHERE s.ts = t.at")
    assert sorted(map(tuple, (r.values() for r in query.to_arrow().to_pylist()))) == [
        (1, 6),
        (2, 7),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT n.x FROM d, n", "needs a range of its time"),
        ("SELECT s.x FROM d, s WHERE s.ts >= d.start AND d.k = 1", "needs a range of its ts"),
        ("SELECT s.x FROM d, s WHERE s.ts BETWEEN d.stop AND d.start", "has no watermark"),
        ("SELECT s.x FROM d, s WHERE s.ts BETWEEN 1 AND d.stop", "between two timestamps"),
        ("SELECT s.x FROM d LEFT JOIN s ON s.ts BETWEEN d.start AND d.stop", "LEFT JOIN"),
        ("SELECT s.x FROM d, d AS e, s WHERE s.ts BETWEEN d.start AND d.stop", "another number"),
    ],
)
def test_refused(text: str, message: str, session: Session) -> None:
    kind = pa.timestamp("us", "UTC")
    times = pa.array([0, 1_000_000], kind)
    session.create_stream("n", pa.table({"x": [5, 6]}), rate=1)
    session.create_stream("s", pa.table({"ts": times, "x": [5, 6]}), ordered_by="ts", rate=1)
    rows = pa.table({"k": [1, 2], "start": times, "stop": times})
    session.create_stream("d", rows, ordered_by="start")
    with pytest.raises(cql.errors.CqlError, match=message) as caught:
        session.sql(text)
    assert caught.value.position is not None
