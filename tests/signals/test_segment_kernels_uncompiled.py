"""Random programs through the kernels of segments as plain Python: no index is out of its bounds,
no sum overflows, and the lock is given back."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import numpy as np
import pytest

from cql.executor.kernels.signals import segments, timebase
from cql.executor.operators.signals.segment_store import Manager, Timebase
from tests.support.signals import uncompiled
from tests.support.signals.programs import STEPS, Program, check_empty, new_store

QUICK, FULL = 5, 200  # programs for each manager


@pytest.mark.parametrize("manager", Manager)
def test_programs(manager: Manager, full: bool, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    uncompiled.use(monkeypatch)
    store, account = new_store(manager)
    for table in store.tables:
        table.fill(0x5A5A5A5A5A5A5A5A)
    for i in range(FULL if full else QUICK):
        program = Program(random.Random(f"uncompiled segments {manager} {seed + i}"), store)
        for _ in range(STEPS):
            program.step()
        program.end()
        check_empty(store, account)
    store.close()


def test_timebases(full: bool, seed: int) -> None:
    """Times of samples, and samples at times, against fractions: up to the ends of what signals
    may have."""
    twin = uncompiled.kernels()[timebase]
    for i in range(20_000 if full else 1000):
        choice = random.Random(f"timebases {seed + i}")
        rate = Fraction(choice.choice(("1e-6", "0.01", "29.97", "44100", "1e9", "44100.5", "1/3")))
        origin = choice.choice((0, 2**62, -(2**62), choice.randint(-(2**50), 2**50)))
        phase = choice.choice((Fraction(0), 1 / rate / choice.randint(2, 9)))
        base = Timebase(rate, origin, phase)
        assert Timebase.of(base.words) == base
        line = np.array(base.words, np.int64)
        number = choice.randint(0, min(int(2**60 * rate / 10**9), 2**63 // base.words[1] - 2))
        exact = origin + math.floor(10**9 * (number / rate + phase))
        for kernels in (twin, timebase):
            assert kernels.time_of(line.ctypes.data, number) == exact
            for time in (exact, exact + 1, exact - 1):
                first = kernels.sample_at(line.ctypes.data, time)
                assert kernels.time_of(line.ctypes.data, first) >= time
                assert kernels.time_of(line.ctypes.data, first - 1) < time


def test_all_kernels_are_uncompiled() -> None:
    """A twin calls twins."""
    twins = uncompiled.kernels()
    scope = twins[segments].append.__closure__[0].cell_contents.__globals__
    assert scope["_joined"].__globals__ is scope
    assert Timebase(Fraction(1)).origin == 0
