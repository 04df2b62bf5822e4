"""Windows of signals against the slow model: in every runtime, however the samples come."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import cql
from cql.executor.kernels.signals import layout
from cql.session.session import Session
from tests.support.runtimes import RUNTIMES, apply, named
from tests.support.signals.cases import Case, random_case

QUICK, FULL = 40, 3000  # cases of each way in which samples come
_RANGE = "RANGE 700 MILLISECONDS SLIDE 300 MILLISECONDS WITH RESTS"
_MORSELS = (1, 2, 3, 7, 100, 4096)


@pytest.fixture
def session() -> Iterator[Session]:
    with cql.connect(spark=False) as made:
        yield made


def _chosen(session: Session, choice: random.Random) -> str:
    """Chooses a runtime and the rows of morsels."""
    session.sql("RESET")
    runtime, rows = choice.choice(RUNTIMES), choice.choice(_MORSELS)
    apply(session, runtime, {"morsel_rows": rows})
    return f"{named(runtime)}, {rows} rows"


def _answer(session: Session, case: Case, pieces: list[pa.Table]) -> None:
    query: Any = session.sql(f"SELECT * FROM s {case.window}")
    if not pieces:
        case.check(query, query.to_arrow())
        return
    batches = []
    read = iter(query)
    for piece in pieces:
        session.push("s", piece)
    session.end("s")
    batches += list(read)
    case.check(query, pa.Table.from_batches(batches, query.schema.to_arrow()))


@pytest.mark.parametrize("blocks", ["whole", "eight", "pushed"])
def test_random_signals(
    blocks: str, session: Session, full: bool, seed: int, request: pytest.FixtureRequest
) -> None:
    if blocks == "eight":
        request.getfixturevalue("small_blocks")
    for i in range(FULL if full else QUICK):
        choice = random.Random(f"rewindow {blocks} {seed + i}")
        case = random_case(choice)
        case.declare(session, pushed=blocks == "pushed")
        pieces = _pieces(case.table, choice) if blocks == "pushed" else []
        how = _chosen(session, choice)
        try:
            _answer(session, case, pieces)
        except Exception as error:
            raise AssertionError(f"case {seed + i}, {how}: {case}") from error


def _pieces(table: pa.Table, choice: random.Random) -> list[pa.Table]:
    found, at = [], 0
    while at < len(table):
        n = choice.choice((1, 2, 5, 30))
        found.append(table.slice(at, n))
        at += n
    return found or [table]


@pytest.mark.parametrize(
    "window",
    ["ROWS 1 SLIDE 100", "ROWS 1 SLIDE 1", "ROWS 3 SLIDE 2", "ROWS 3 SLIDE 2 WITH RESTS", _RANGE],
)
@pytest.mark.parametrize("times", ["window_time", "window_start AS window_time"])
def test_no_window_is_late(window: str, times: str, session: Session) -> None:
    """A run may begin before the next window of the run before it would have."""
    found: list[int] = []
    for first in (0, 11, 30, 31.4, 200):
        found += [round((first + k) * 100_000) for k in range(10)]
    samples = {"ts": pa.array(found, pa.timestamp("us", "UTC")), "x": [1] * len(found)}
    session.create_stream("s", pa.table(samples), rate=10, ordered_by="ts")
    session.sql("SET morsel_rows = 1")
    inner = f"SELECT {times}, sum(x) AS n FROM s [{window}]"
    windows: Any = session.sql(inner)
    query: Any = session.sql(
        f"SELECT count(*) AS c FROM ({inner}) [RANGE 1 SECOND SLIDE 1 SECOND, WA window_time]"
        " GROUP BY window_start"
    )
    count = sum(query.to_arrow()["c"].to_pylist())
    assert count == len(windows.to_arrow())
    assert all(row["count"] == 0 for row in query.late().to_pylist())


def test_rests(session: Session) -> None:
    """Runs of 7 and of 2 samples, of which the second begins in the middle of a second."""
    times = [10, 11, 12, 13, 14, 15, 16, 25, 26]
    samples = {"ts": pa.array([100_000 * t for t in times], pa.timestamp("us")), "x": times}
    session.create_stream("s", pa.table(samples), rate=10, ordered_by="ts")
    query = "SELECT x, unix_millis(window_start) AS a, unix_millis(window_end) AS b FROM s [{}]"

    def told(window: str) -> list[tuple[Any, ...]]:
        found: Any = session.sql(query.format(window))
        return [tuple(row.values()) for row in found.to_arrow().to_pylist()]

    assert told("ROWS 4 SLIDE 2 WITH RESTS") == [
        ([10, 11, 12, 13], 1000, 1400),
        ([12, 13, 14, 15], 1200, 1600),
        ([16], 1600, 1800),
        ([25, 26], 2500, 2900),
    ]
    assert told("RANGE 500 MILLISECONDS SLIDE 500 MILLISECONDS WITH RESTS") == [
        ([10, 11, 12, 13, 14], 1000, 1500),
        ([15, 16], 1500, 2000),
        ([25, 26], 2500, 3000),
    ]
    assert told("RANGE 100 MILLISECONDS SLIDE 400 MILLISECONDS WITH RESTS") == [
        ([12], 1200, 1300),
        ([16], 1600, 1700),
    ]
    assert told("RANGE 700 MILLISECONDS SLIDE 700 MILLISECONDS WITH RESTS") == [
        ([10, 11, 12, 13], 1000, 1400),
        ([14, 15, 16], 1400, 2100),
        ([25, 26], 2500, 2800),
    ]


def test_tolerance(session: Session) -> None:
    """At 10 Hz, samples that are 30 milliseconds late, and early."""
    late = [0, 100, 230, 330, 430, 500, 600, 700, 1000, 1099, 1201]
    kind = pa.timestamp("us", "UTC")
    samples = pa.table({"ts": pa.array([1000 * t for t in late], kind), "x": late})

    def told(tolerance: str | None) -> list[list[int]]:
        given: Any = {} if tolerance is None else {"tolerance": tolerance}
        session.create_stream("s", samples, rate=10, ordered_by="ts", replace=True, **given)
        query: Any = session.sql("SELECT x FROM s [ROWS 100 SLIDE 100 WITH RESTS]")
        return [row["x"] for row in query.to_arrow().to_pylist()]

    assert told(None) == told("50 ms") == told("40 ms") == [late[:8], late[8:]]
    assert told("1 ms")[-1] == [1000, 1099, 1201]
    # 500 milliseconds is within the time of the sample before it: it is left out
    assert told("20 ms") == [[0, 100], [230, 330, 430], [600, 700], [1000, 1099, 1201]]
    query: Any = session.sql("SELECT window_start FROM s [ROWS 2 SLIDE 2]")
    starts = [row["window_start"].microsecond for row in query.to_arrow().to_pylist()]
    assert starts == [0, 240_000, 600_000, 0]  # the phase of a run is a multiple of the tolerance
    source = next(m for m in query.metrics() if "overlapping" in m)
    assert (source["gaps"], source["overlapping"]) == (3, 1)


def test_the_cases_meet_everything() -> None:
    counts = dict.fromkeys(("windows", "gaps", "overlapping", "missing", "rests"), 0)
    for k in range(100):
        windows, signal = random_case(random.Random(f"rewindow eight {k}")).expected()
        counts["windows"] += len(windows) > 1
        for name in ("gaps", "overlapping", "missing", "rests"):
            counts[name] += getattr(signal, name) > 0
    assert min(counts.values()) >= 10, counts


def test_an_output_has_few_samples(session: Session) -> None:
    """So that results of long windows do not fill the memory, whatever morsel_rows is."""
    size, slide = 1 << 18, 1 << 10
    x = np.arange(1 << 19).astype(np.int8)
    session.create_stream("s", pa.table({"x": x}), rate=1000)
    windows = f"s [ROWS {size} SLIDE {slide}]"
    ranges = f"(SELECT window_start, window_end FROM {windows}) AS w, s"
    when = "s.time >= w.window_start AND s.time < w.window_end"
    for text in (f"SELECT x FROM {windows}", f"SELECT s.x FROM {ranges} WHERE {when}"):
        query: Any = session.sql(text)
        number = 0
        for batch in query.batches():
            assert batch.num_rows <= layout.MOST_SAMPLES // size
            for window in batch.column(0):
                first = slide * number
                np.testing.assert_array_equal(window.values, x[first : first + size])
                number += 1
        assert number == (len(x) - size) // slide + 1
