"""Random traces of update queues: each answer, counter, area and order is the slow model's.

``pytest tests/updates/test_update_traces.py --full`` runs 50,000 traces.
"""

from __future__ import annotations

import random

import pytest

from cql.executor.operators.updates.queue_state import Scheduler, Storage
from tests.support.updates.traces import (
    REFRESH_KINDS,
    ROW_KINDS,
    STEPS,
    WINDOW_KINDS,
    RowTrace,
    WindowTrace,
)

#: Traces of each kind; there are 10 kinds of rows, 6 of rows with REFRESH, and 12 of windows.
QUICK, FULL = 20, 1_800


@pytest.mark.sampled
@pytest.mark.parametrize(("scheduler", "storage"), ROW_KINDS)
def test_rows(scheduler: Scheduler, storage: Storage, full: bool, seed: int) -> None:
    for i in range(FULL if full else QUICK):
        name = f"{scheduler} {storage} {seed + i}"
        trace = RowTrace(random.Random(name), scheduler, storage)
        for step in range(STEPS):
            try:
                trace.step()
            except AssertionError as error:
                pytest.fail(f"{name}, step {step}: {error!r}")


@pytest.mark.parametrize(("scheduler", "storage"), REFRESH_KINDS)
def test_rows_with_refresh(scheduler: Scheduler, storage: Storage, full: bool, seed: int) -> None:
    for i in range(FULL if full else QUICK):
        name = f"refresh {scheduler} {storage} {seed + i}"
        trace = RowTrace(random.Random(name), scheduler, storage, refresh=True)
        for step in range(STEPS):
            try:
                trace.step()
            except AssertionError as error:
                raise AssertionError(f"{name}, step {step}") from error


@pytest.mark.sampled
@pytest.mark.parametrize(("scheduler", "eager", "by_key"), WINDOW_KINDS)
def test_windows(scheduler: Scheduler, eager: bool, by_key: bool, full: bool, seed: int) -> None:
    for i in range(FULL if full else QUICK):
        name = f"{scheduler} {eager} {by_key} {seed + i}"
        trace = WindowTrace(random.Random(name), scheduler, eager=eager, by_key=by_key)
        for step in range(STEPS):
            try:
                trace.step()
            except AssertionError as error:
                raise AssertionError(f"{name}, step {step}") from error
