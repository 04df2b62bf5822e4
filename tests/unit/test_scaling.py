"""The chosen number of workers: a pure function of measured throughput."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise

import pytest

from cql.executor.run.worker_scaling import GAIN, LOSS, PERIOD, SETTLE, Climb, Scaling

Curve = Callable[[int], float]


def flat_from(n: int) -> Curve:
    return lambda w: 1e6 * min(w, n)


def amdahl(serial: float) -> Curve:
    return lambda w: 1e6 / (serial + (1 - serial) / w)


def contended(n: int) -> Curve:
    """Throughput grows up to ``n`` workers; each further worker costs a tenth of it."""
    return lambda w: 1e6 * (w if w <= n else n * 0.9 ** (w - n))


def run(climb: Climb, curve: Curve, periods: int) -> list[Climb]:
    found = [climb]
    for _ in range(periods):
        found.append(found[-1].next(curve(found[-1].workers)))
        assert 1 <= found[-1].workers <= climb.most
        assert 1 <= found[-1].best <= climb.most
    return found


@pytest.mark.parametrize("most", [1, 2, 3, 4, 8, 16, 64])
@pytest.mark.parametrize("enough", [1, 2, 3, 5, 6, 12, 40])
@pytest.mark.parametrize("shape", [flat_from, contended])
def test_it_finds_where_throughput_stops_rising(
    most: int, enough: int, shape: Callable[[int], Curve]
) -> None:
    curve = shape(enough)
    best = max(curve(w) for w in range(1, most + 1))
    early, late = (run(Climb(most), curve, n)[-1].best for n in (12, 800))
    assert curve(early) >= best / (1 + GAIN)
    assert curve(late) >= best / (1 + GAIN)
    if enough <= 8:  # beyond 8 a few workers change throughput little
        assert late <= max(enough, 1)


@pytest.mark.parametrize("serial", [0.05, 0.2, 0.5, 1.0])
def test_it_stops_where_more_bring_too_little(serial: float) -> None:
    """The last worker brings a share of its ideal gain; twice as many workers would bring
    little."""
    curve = amdahl(serial)
    n = run(Climb(64), curve, 800)[-1].best
    assert n == 1 or curve(n) >= curve(n - 1) * (1 + LOSS / (n - 1) / 4)
    assert n == 64 or curve(2 * n) < curve(n) * (1 + 2 * GAIN)


def test_noise_does_not_move_it(seed: int) -> None:
    rng = random.Random(seed)
    found = run(Climb(16), lambda w: flat_from(4)(w) * rng.uniform(0.97, 1.03), 4000)
    settled = [c.best for c in found[100:]]
    moves = sum(a != b for a, b in pairwise(settled))
    assert moves <= 40
    assert 3 <= min(settled) <= max(settled) <= 6


def test_a_probe_is_ever_less_often() -> None:
    found = run(Climb(8), flat_from(2), 4000)
    away = [k for k, c in enumerate(found) if c.workers != c.best]
    assert len([k for k in away if k < 500]) > 2 * len([k for k in away if k >= 3500]) > 0


@pytest.mark.parametrize(("before", "after"), [(6, 1), (1, 6)])
def test_another_load_is_found_out_anew(before: int, after: int) -> None:
    """The new load also changes the throughput of the current number of workers."""
    climb = run(Climb(8), flat_from(before), 300)[-1]
    curve = flat_from(after)
    assert run(climb, lambda w: 0.3 * curve(w), 600)[-1].best in range(after, after + 2)


def test_a_source_that_gives_no_more_is_one_worker_s() -> None:
    assert run(Climb(8), lambda w: 1e4, 40)[-1].best == 1
    assert run(Climb(8), lambda w: 0.0, 40)[-1].best <= 8


def test_measuring() -> None:
    """Rates are measured over whole periods, which begin SETTLE seconds after a change."""
    scaling, rows, now, seen = Scaling(2), 0, 0.0, []
    for _ in range(400):
        workers = scaling.climb.workers
        rows += 10 * workers
        now += 0.001
        seen.append(scaling.note(rows, now))
    assert seen[int(1000 * (SETTLE + PERIOD)) - 2] == 1
    assert seen[-1] == 2
    assert scaling.rates == {1: pytest.approx(1e4), 2: pytest.approx(2e4)}
    assert scaling.report() == (
        "workers: 2 of 2 cores; rows per second with each number tried: 1: 10,000, 2: 20,000"
    )
    assert Scaling(4).report() is None


def test_a_number_that_was_chosen_is_kept_at_first() -> None:
    found = run(Climb(8, 4, 4), flat_from(2), 100)
    assert {c.workers for c in found[:10]} == {4}
    assert found[-1].best == 2
