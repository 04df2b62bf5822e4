"""PIPELINE (``queries/xstream/pipeline.cql``): leaks that a plain model finds, too, under several
runtimes and from a checkpoint."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import cql
from cql.session.session import Session
from queries.xstream.make_vibrations import RATE, SENSORS, WAVES, Wave, vibrations
from tests.support.paths import QUERIES
from tests.support.run_checkpoints import plan_of, stop_and_continue
from tests.support.runtimes import BY_NAME, apply

TEXT = (QUERIES / "xstream" / "pipeline.cql").read_text("utf-8")
OMEGA, WINDOW = 8, 512
Samples = np.ndarray[Any, np.dtype[Any]]
Found = tuple[int | None, bool | None, bool, float]


@pytest.fixture
def session() -> Iterator[Session]:
    with cql.connect(spark=False, functions=QUERIES / "xstream" / "pipeline.py") as made:
        made.sql(f"CREATE CONSTANT omega = {OMEGA}")
        yield made


def _declare(session: Session, sensors: Samples) -> None:
    table = pa.table({f"s{k}": samples for k, samples in enumerate(sensors)})
    session.create_stream("pipe", table, rate=RATE, replace=True)


def _found(session: Session) -> list[Found]:
    query: Any = session.sql(TEXT)
    rows = query.to_arrow().to_pylist()
    return [(r["leak"], r["up"], r["trans"], r["time"].timestamp()) for r in rows]


def _expected(sensors: Samples) -> list[Found]:
    """The leaks by plain Python over numpy's arrays."""
    found: list[Found] = []
    noise, windows = [0.0] * SENSORS, 0
    for begin in range(0, sensors.shape[1] - WINDOW + 1, WINDOW):
        peaks, places, echoes = zip(
            *(_trimmed(samples[begin : begin + WINDOW]) for samples in sensors), strict=True
        )
        loud = [k for k in range(SENSORS) if peaks[k] > OMEGA * noise[k]]
        if windows < 4 or not loud:
            windows += 1
            noise = [n + (p - n) / windows for n, p in zip(noise, peaks, strict=True)]
            continue
        first = min(loud, key=lambda k: (places[k], k))
        up = None
        if 0 < first < SENSORS - 1:
            above, below = (places[k] if k in loud else math.inf for k in (first - 1, first + 1))
            up = above < below
        has_echo = echoes[first] > OMEGA * noise[first]
        time = round(begin * 1e6 / RATE + 800 * places[first]) / 1e6
        found.append((first if has_echo else None, up, len(loud) == SENSORS, time))
    return found


def _trimmed(samples: Samples) -> tuple[float, int, float]:
    """The peak of the third level of the wavelet transform, its place, and the peak behind it."""
    rest = samples.astype(float)
    for _ in range(3):
        details = (rest[::2] - rest[1::2]) / math.sqrt(2)
        rest = (rest[::2] + rest[1::2]) / math.sqrt(2)
    energy = details**2
    place = int(energy.argmax())
    behind = energy[place + 2 :]
    echo = float((behind * np.hanning(len(behind))).max()) if len(behind) else math.nan
    return float(energy[place]), place, echo


def _random_waves(choice: random.Random) -> Sequence[Wave]:
    return [
        Wave(
            WINDOW * k + choice.randrange(60),
            round(choice.uniform(0, SENSORS - 1), 1),
            choice.choice((1.3, 3.0, 20.0)),
            choice.random() < 0.5,
        )
        for k in range(6, 40, choice.choice((2, 3, 5)))
    ]


def test_leaks(session: Session, seed: int, full: bool) -> None:
    _declare(session, vibrations(25_600))
    found = _found(session)
    assert found == _expected(vibrations(25_600))
    assert [leak for leak, *_ in found] == [3, None, 8, None]
    assert [trans for *_, trans, _ in found] == [False, True, True, False]
    for (*_, time), wave in zip(found, WAVES, strict=True):
        assert abs(time - wave.start / RATE) < 0.003

    runtimes = ("depth_first", "fifo", "ordered-4-2")
    for k in range(200 if full else 6):
        choice = random.Random(f"pipeline {seed + k}")
        sensors = vibrations(40 * WINDOW, _random_waves(choice), seed + k)
        apply(session, BY_NAME[runtimes[k % 3]], {"morsel_rows": choice.choice((1, 5, 4096))})
        _declare(session, sensors)
        assert _found(session) == _expected(sensors), k


def test_a_run_goes_on_from_a_checkpoint(session: Session) -> None:
    session.sql("SET morsel_rows = 2")
    _declare(session, vibrations(25_600))
    choice = random.Random(1)
    assert stop_and_continue(plan_of(session, TEXT), dict(session.settings), choice, stops=2)
