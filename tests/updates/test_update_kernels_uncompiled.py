"""Traces through the kernels as plain Python: no index is out of its bounds, no sum overflows, and
nothing is read that was not written."""

from __future__ import annotations

import random

import pytest

from cql.executor.kernels.updates import pages, windows
from cql.executor.operators.updates.queue_state import Scheduler, Storage
from tests.support.updates import uncompiled
from tests.support.updates.traces import (
    REFRESH_KINDS,
    ROW_KINDS,
    STEPS,
    WINDOW_KINDS,
    RowTrace,
    WindowTrace,
)
from tests.support.updates.uncompiled import Poisoned

QUICK, FULL = 3, 100  # traces of each kind


@pytest.fixture(autouse=True)
def _uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    uncompiled.use(monkeypatch)


@pytest.mark.parametrize(("scheduler", "storage"), ROW_KINDS)
def test_rows(scheduler: Scheduler, storage: Storage, full: bool, seed: int) -> None:
    for i in range(FULL if full else QUICK):
        choice = random.Random(f"uncompiled {scheduler} {storage} {seed + i}")
        trace = RowTrace(choice, scheduler, storage, Poisoned)
        for _ in range(STEPS):
            trace.step()


@pytest.mark.parametrize(("scheduler", "storage"), REFRESH_KINDS)
def test_rows_with_refresh(scheduler: Scheduler, storage: Storage, full: bool, seed: int) -> None:
    for i in range(FULL if full else QUICK):
        choice = random.Random(f"uncompiled refresh {scheduler} {storage} {seed + i}")
        trace = RowTrace(choice, scheduler, storage, Poisoned, refresh=True)
        for _ in range(STEPS):
            trace.step()


@pytest.mark.parametrize(("scheduler", "eager", "by_key"), WINDOW_KINDS)
def test_windows(scheduler: Scheduler, eager: bool, by_key: bool, full: bool, seed: int) -> None:
    for i in range(FULL if full else QUICK):
        choice = random.Random(f"uncompiled {scheduler} {eager} {by_key} {seed + i}")
        trace = WindowTrace(choice, scheduler, eager=eager, by_key=by_key, make=Poisoned)
        for _ in range(STEPS):
            trace.step()


def test_all_kernels_are_uncompiled() -> None:
    """A twin calls twins."""
    twins = uncompiled.kernels()
    scope = twins[windows].serve.__closure__[0].cell_contents.__globals__
    assert scope["_commit"].__globals__ is scope
    assert scope["drop_front"].__globals__["mem_rem"] is not pages.mem_rem
