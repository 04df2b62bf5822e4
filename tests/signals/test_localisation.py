"""Localisation (``queries/xstream/localisation.cql``): the places of calls, which a plain model
finds, too, under several runtimes and from a checkpoint."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy.optimize import least_squares

import cql
from cql.session.session import Session
from queries.xstream.localisation import NODES, SPEED
from queries.xstream.make_calls import RATE, SOUNDS, Sound, recordings
from tests.support.paths import QUERIES
from tests.support.run_checkpoints import plan_of, stop_and_continue
from tests.support.runtimes import RUNTIMES, apply

TEXT = (QUERIES / "xstream" / "localisation.cql").read_text("utf-8")
OMEGA, SHARE = 8, 0.7
WINDOW, GAP = 64, 960
#: From the end of an event, the samples around it.
BEGIN, END = -2_400, -320
MOST_DELAY, MOST_RESIDUAL = 720, 0.1
#: How far a call between the nodes is from where it is found, in metres and seconds.
NEAR, SOON = 0.1, 0.003
Samples = np.ndarray[Any, np.dtype[Any]]


@pytest.fixture
def session() -> Iterator[Session]:
    with cql.connect(spark=False, functions=QUERIES / "xstream" / "localisation.py") as made:
        made.sql(f"CREATE CONSTANT omega = {OMEGA}")
        made.sql(f"CREATE CONSTANT share = {SHARE}")
        yield made


def _declare(session: Session, nodes: Samples) -> None:
    for k, sound in enumerate(nodes):
        session.create_stream(f"node{k}", pa.table({"sound": sound}), rate=RATE, replace=True)


def _found(session: Session) -> list[Sequence[float]]:
    """The time, the place and the residual of each call."""
    query: Any = session.sql(TEXT)
    rows = query.to_arrow().to_pylist()
    return [(r["time"].timestamp(), r["x"], r["y"], r["residual"]) for r in rows]


def _expected(nodes: Samples) -> list[Sequence[float]]:
    """The calls by plain Python over numpy's arrays."""
    found = []
    for known in _events(nodes):
        begin, end = known + BEGIN, known + END
        if begin < 0 or end > nodes.shape[1]:
            continue
        sounds = nodes[:, begin:end].astype(float)
        if max(map(_in_band, sounds)) <= SHARE:
            continue
        further = [_delay(a, b) * SPEED / RATE for a, b in combinations(sounds, 2)]
        fit = least_squares(_misfit, NODES.mean(axis=0), args=(further,), xtol=1e-12, ftol=1e-12)
        residual = np.sqrt(np.mean(fit.fun**2))
        if residual <= MOST_RESIDUAL:
            heard = (begin + (sounds[0] ** 2).argmax()) / RATE
            time = heard - np.hypot(*(fit.x - NODES[0])) / SPEED
            found.append((time, *fit.x, residual))
    return found


def _events(nodes: Samples) -> Iterator[int]:
    """The samples at which sessions of the windows end that are loud for at least three nodes."""
    loud = sorted((at, node) for node, sound in enumerate(nodes) for at in _loud(sound))
    session: list[tuple[int, int]] = []
    for at, node in [*loud, (1 << 60, 0)]:
        if session and at - session[-1][0] > GAP:
            if len({node for _, node in session}) >= 3:
                yield session[-1][0] + GAP
            session = []
        session.append((at, node))


def _loud(sound: Samples) -> Iterator[int]:
    """The first samples of the windows that are louder than the noise before."""
    noise: list[float] = []
    for at in range(0, len(sound) - WINDOW + 1, WINDOW):
        level = np.sqrt(np.mean(sound[at : at + WINDOW].astype(float) ** 2))
        if len(noise) >= 2 and level > np.mean(noise) + OMEGA * np.std(noise, ddof=1):
            yield at
        else:
            noise.append(level)


def _in_band(sound: Samples) -> float:
    """The share of its energy, where it is loudest, from 2 to 4 kHz."""
    first = min(max(int((sound**2).argmax()) - 32, 0), len(sound) - 64)
    power = np.abs(np.fft.rfft(sound[first : first + 64] * np.hanning(64))) ** 2
    inside = power[9:16].sum() + power[[8, 16]].sum() / 2
    return float(inside / power.sum()) if power.any() else 0.0


def _delay(x: Samples, y: Samples) -> int:
    sums = np.correlate(y, x, "full")[len(x) - 1 - MOST_DELAY : len(x) + MOST_DELAY]
    return int(sums.argmax()) - MOST_DELAY


def _misfit(place: Samples, further: Sequence[float]) -> Samples:
    distances = np.hypot(*(place - NODES).T)
    return np.array([b - a for a, b in combinations(distances, 2)]) - further


def _is_near(found: Sequence[float], sound: Sound) -> bool:
    time, x, y, _ = found
    return abs(time - sound.time) < SOON and np.hypot(x - sound.x, y - sound.y) < NEAR


def _random_sounds(choice: random.Random) -> Sequence[Sound]:
    kinds = ("call", "call", "call", "thunder", "crack", "knock")
    return [
        Sound(
            0.4 * k + choice.uniform(0, 0.1),
            choice.uniform(0.5, 11.5),
            choice.uniform(0.5, 8.5),
            choice.choice(kinds),
        )
        for k in range(1, 5)
    ]


def test_calls(session: Session, seed: int, full: bool) -> None:
    nodes = recordings(4 * RATE)
    _declare(session, nodes)
    found = _found(session)
    calls = [sound for sound in SOUNDS if sound.kind == "call"]
    assert [_is_near(*pair) for pair in zip(found, calls, strict=True)] == [True] * 3
    _compare(found, _expected(nodes))

    for k in range(100 if full else len(RUNTIMES)):
        choice = random.Random(f"localisation {seed + k}")
        sounds = _random_sounds(choice)
        nodes = recordings(2 * RATE, sounds, seed + k)
        apply(session, RUNTIMES[k % len(RUNTIMES)], {"morsel_rows": choice.choice((7, 100, 4096))})
        _declare(session, nodes)
        found = _found(session)
        _compare(found, _expected(nodes))
        calls = [sound for sound in sounds if sound.kind == "call"]
        assert [_is_near(*pair) for pair in zip(found, calls, strict=True)] == [True] * len(calls)


def _compare(found: list[Sequence[float]], expected: list[Sequence[float]]) -> None:
    assert len(found) == len(expected)
    for row, other in zip(found, expected, strict=True):
        assert row == pytest.approx(other, abs=2e-6)


def test_a_silent_node(session: Session) -> None:
    """Three nodes hear the calls; the delays to the fourth one say nothing, and fit no place."""
    nodes = recordings(2 * RATE)
    nodes[3] = 0
    _declare(session, nodes)
    assert _found(session) == _expected(nodes) == []


def test_a_run_goes_on_from_a_checkpoint(session: Session) -> None:
    session.sql("SET morsel_rows = 100")
    _declare(session, recordings(2 * RATE))
    choice = random.Random(1)
    assert stop_and_continue(plan_of(session, TEXT), dict(session.settings), choice, stops=2)
