"""An update queue that goes on in a fresh one, from a snapshot at any place of a trace."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from cql.executor.operators.updates.queue_state import QueueState, Scheduler, Storage
from cql.executor.state.checkpoint import Checkpoint, from_ipc, to_ipc
from cql.executor.state.store import Snapshot
from tests.support.updates.traces import (
    REFRESH_KINDS,
    ROW_KINDS,
    STEPS,
    WINDOW_KINDS,
    RowTrace,
    Unlimited,
    WindowTrace,
)

QUICK, FULL = 5, 300  # traces of each kind


def through_a_file(saved: Snapshot) -> Snapshot:
    codes, depths = np.zeros(0, np.int32), np.zeros(0, np.uint8)
    whole = Checkpoint({"queue": saved}, codes, pa.array([], pa.large_binary()), depths)
    return from_ipc(to_ipc(whole)).operators["queue"]


def continued(state: QueueState, now: int, then: int, *, by_file: bool) -> QueueState:
    """A new queue with the same declaration and the state at ``now``, which goes on at ``then`` of
    another clock; the old one is destroyed."""
    saved = state.snapshot(now)
    if by_file:
        saved = through_a_file(saved)
    fresh = QueueState(
        "queue",
        Unlimited(),
        state.scheduler,
        state.storage,
        windows=state.windows,
        every=state.every,
    )
    fresh.restore(saved, then)
    for array in (*state.store.arrays.values(), state.words):
        array[...] = 0x5A5A5A5A5A5A5A5A
    return fresh


def _run(trace: RowTrace | WindowTrace, choice: random.Random) -> None:
    def renew(state: QueueState, now: int) -> tuple[QueueState, int]:
        drawn = choice.random()
        if drawn >= 0.3:
            return state, now
        then = choice.choice((now, 0, 10**15, choice.randrange(-(10**6), 10**6)))
        return continued(state, now, then, by_file=drawn < 0.05), then

    trace.renew = renew
    for _ in range(STEPS):
        trace.step()


@pytest.mark.parametrize(("scheduler", "storage"), ROW_KINDS)
def test_rows(scheduler: Scheduler, storage: Storage, full: bool, seed: int) -> None:
    for i in range(FULL if full else QUICK):
        choice = random.Random(f"saved {scheduler} {storage} {seed + i}")
        _run(RowTrace(choice, scheduler, storage), choice)


@pytest.mark.parametrize(("scheduler", "storage"), REFRESH_KINDS)
def test_rows_with_refresh(scheduler: Scheduler, storage: Storage, full: bool, seed: int) -> None:
    for i in range(FULL if full else QUICK):
        choice = random.Random(f"saved refresh {scheduler} {storage} {seed + i}")
        _run(RowTrace(choice, scheduler, storage, refresh=True), choice)


@pytest.mark.parametrize(("scheduler", "eager", "by_key"), WINDOW_KINDS)
def test_windows(scheduler: Scheduler, eager: bool, by_key: bool, full: bool, seed: int) -> None:
    for i in range(FULL if full else QUICK):
        choice = random.Random(f"saved {scheduler} {eager} {by_key} {seed + i}")
        _run(WindowTrace(choice, scheduler, eager=eager, by_key=by_key), choice)


def test_a_snapshot_holds_no_address() -> None:
    """Nor a time of the clock: snapshots of equal queues at different addresses are equal."""
    saved = []
    for base in (0, 10**15):
        state = QueueState("queue", Unlimited(), Scheduler.IN_PLACE)
        keep = np.zeros(1_000_000)  # moves what is allocated next
        ids = np.arange(100, dtype=np.int64)
        state.enqueue(ids, ids, base + 5)
        state.dequeue(10, base + 6)
        saved.append(state.snapshot(base + 7))
        assert keep.size
    assert (saved[0].words == saved[1].words).all()
    assert (saved[0].arrays["cells"][:100] == saved[1].arrays["cells"][:100]).all()
