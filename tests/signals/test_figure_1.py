"""Figure 1 of the XStream paper: a sensor that is on for 100 ms of each second, sampled at 44 kHz,
and its samples as segments of 2,000. The time that it is off is a gap in their numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import cql
from cql.session.session import Session
from tests.support.runtimes import RUNTIMES, Settings, apply, named

RATE, ON, SIZE, SECONDS = 44_000, 4_400, 2_000, 5
#: Samples at the end of each run that are no whole segment.
REST = ON % SIZE


def _samples() -> pa.Table:
    """Sample k of a second has the value of its number since the beginning; times are rounded to
    microseconds."""
    numbers = np.concatenate([np.arange(ON) + RATE * second for second in range(SECONDS)])
    times = np.round(numbers * (1_000_000 / RATE)).astype(np.int64)
    return pa.table({"ts": pa.array(times, pa.timestamp("us", "UTC")), "x": numbers})


@pytest.fixture(params=RUNTIMES, ids=named)
def session(request: pytest.FixtureRequest) -> Iterator[Session]:
    settings: Settings = request.param
    with cql.connect(spark=False) as made:
        apply(made, settings)
        made.create_stream("sensor", _samples(), ordered_by="ts", rate=RATE)
        yield made


def _micros(values: pa.ChunkedArray) -> list[int]:
    found: list[int] = values.cast(pa.int64()).to_pylist()
    return found


def _time_of(number: int) -> int:
    """The time of a sample, in microseconds, rounded down."""
    return number * 1_000_000 // RATE


def test_windows_are_segments_of_the_time_that_the_sensor_is_on(session: Session) -> None:
    query: Any = session.sql(
        f"SELECT x, window_start, window_end, count(x) AS n FROM sensor [ROWS {SIZE} SLIDE {SIZE}]"
    )
    found = query.to_arrow()
    firsts = [RATE * second + SIZE * k for second in range(SECONDS) for k in range(ON // SIZE)]
    assert found["x"].to_pylist() == [list(range(first, first + SIZE)) for first in firsts]
    assert _micros(found["window_start"]) == [_time_of(first) for first in firsts]
    assert _micros(found["window_end"]) == [_time_of(first + SIZE) for first in firsts]
    assert found["n"].to_pylist() == [SIZE] * len(firsts)

    source, cut = query.metrics()[:2]
    names = ("samples", "gaps", "overlapping", "missing")
    assert [source[name] for name in names] == [ON * SECONDS, SECONDS - 1, 0, 0]
    assert (cut["runs"], cut["rests"]) == (SECONDS, REST * SECONDS)


def test_windows_of_the_whole_time_that_the_sensor_is_on(session: Session) -> None:
    """No window has samples of two seconds, and none begins while the sensor is off."""
    query = "SELECT x, window_start FROM sensor [RANGE 100 MILLISECONDS SLIDE 100 MILLISECONDS]"
    found = session.sql(query).to_arrow()
    seconds = range(SECONDS)
    assert found["x"].to_pylist() == [list(range(RATE * s, RATE * s + ON)) for s in seconds]
    assert _micros(found["window_start"]) == [1_000_000 * second for second in seconds]


def test_a_range_over_the_time_that_it_is_off_has_two_segments(session: Session) -> None:
    """From the middle of one time that the sensor is on to the middle of the next one."""
    starts = [1_000_000 * second + _time_of(ON // 2) for second in range(SECONDS - 1)]
    stops, kind = [start + 1_000_000 for start in starts], pa.timestamp("us", "UTC")
    ranges = {"start": pa.array(starts, kind), "stop": pa.array(stops, kind)}
    session.create_stream("ranges", pa.table(ranges), ordered_by="start")
    found = session.sql(
        "SELECT sensor.x FROM ranges, sensor WHERE sensor.ts >= ranges.start"
        " AND sensor.ts < ranges.stop"
    ).to_arrow()
    expected: list[list[int]] = []
    for second in range(SECONDS - 1):
        here, there = RATE * second, RATE * (second + 1)
        expected += [list(range(here + ON // 2, here + ON)), list(range(there, there + ON // 2))]
    assert found["x"].to_pylist() == expected
