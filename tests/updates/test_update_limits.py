"""Update queues at the ends of what they may meet: nothing, many keys, far times, late calls."""

from __future__ import annotations

import time
from itertools import pairwise

import numpy as np
import pytest

from cql.executor.kernels.morsel_layout import NEVER
from cql.executor.kernels.updates import layout
from cql.executor.operators.updates.queue_state import QueueState, Scheduler, Windows
from tests.reference.naive_update_windows import NaiveWindowQueue
from tests.support.updates.traces import ROW, Unlimited, window_progress_of
from tests.support.updates.walk import walk

NOTHING = np.empty(0, np.int64)
FAR = 10**12


def queue(scheduler: Scheduler = Scheduler.IN_PLACE, windows: Windows | None = None) -> QueueState:
    return QueueState("queue", Unlimited(), scheduler, windows=windows)


def numbers(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, np.int64)


@pytest.mark.parametrize("scheduler", list(Scheduler))
def test_nothing(scheduler: Scheduler) -> None:
    state = queue(scheduler)
    for _ in range(2):
        assert len(state.enqueue(NOTHING, NOTHING, 0)) == 0
        assert len(state.dequeue(0, 0)) == 0
        assert len(state.dequeue(10**12, 0)) == 0
        state.deliver(0, 0)
    state.enqueue(numbers(0), numbers(0), 0)
    assert len(state.dequeue(0, 0)) == 0
    assert state.counters()["held"] == 1


@pytest.mark.parametrize("eager", [True, False])
def test_no_windows(eager: bool) -> None:
    state = queue(windows=Windows(4, 2, eager))
    assert len(state.enqueue_rows(NOTHING, NOTHING, NOTHING, 0)) == 0
    state.progress(100, 0)
    for limit in (0, 3):
        assert len(state.serve(limit, 0).rows) == 0
    state.forget(NOTHING)
    state.deliver_windows(NOTHING, 0)
    assert set(state.counters().values()) == {0}


@pytest.mark.parametrize("scheduler", list(Scheduler))
def test_100_000_keys(scheduler: Scheduler) -> None:
    """Two updates of each, in opposite orders."""
    n = 100_000
    state, ids = queue(scheduler), np.arange(n, dtype=np.int64)
    places = state.enqueue(ids, ids, 0)
    again = state.enqueue(ids[::-1].copy(), ids + n, 1)
    served = np.concatenate([state.dequeue(70_000, 2), state.dequeue(n, 3), state.dequeue(n, 4)])
    if scheduler in (Scheduler.APPEND, Scheduler.SHED):
        assert (served == np.concatenate([places, again])).all()
    else:
        assert (again == places[::-1]).all()
        expected = again if scheduler is Scheduler.FIFO else places
        assert (served == expected).all()
        assert state.counters()["superseded"] == n
    state.deliver(len(served), 5)
    areas = state.areas(10)
    assert (areas.application[:n] > 0).all()
    assert (areas.queue[:n] > 0).all()


@pytest.mark.parametrize("scheduler", ROW)
@pytest.mark.parametrize("eager", [True, False])
def test_windows_of_100_000_keys(scheduler: Scheduler, eager: bool) -> None:
    n = 100_000
    state, ids = queue(scheduler, Windows(10, 5, eager)), np.arange(n, dtype=np.int64)
    low = np.full(n, NEVER)
    state.enqueue_rows(ids, np.full(n, 0), low, 0)
    state.enqueue_rows(ids, np.full(n, 6), low, 1)
    state.progress(1_000, 2)
    found = state.serve(3 * n, 3)
    assert (found.marks == 3).all()
    assert (found.starts == 5).all()
    assert sorted(found.keys) == list(range(n))
    if eager:  # else the keys end their windows in the order of the active list
        assert (found.keys == ids).all()
    state.forget(found.keys)
    state.deliver_windows(found.keys, 4)
    assert state.words[layout.ROWS_HELD] == 0
    assert (state.areas(100).application[:n] == 2.0).all()  # from 2 to 4


@pytest.mark.parametrize("scheduler", list(Scheduler))
def test_negative_and_equal_times(scheduler: Scheduler) -> None:
    state = queue(scheduler)
    keys = numbers(0, 1, 0, 0, 2)
    places = state.enqueue(keys, numbers(-9, -9, -9, -10, -(10**18)), -(10**18))
    late = scheduler not in (Scheduler.APPEND, Scheduler.SHED)
    assert (places[3] == -1) == late
    state.dequeue(9, -(10**18))
    state.deliver(3, -(10**18))
    areas = state.areas(-(10**18))
    assert not areas.queue.any()
    assert not areas.application.any()


@pytest.mark.parametrize("eager", [True, False])
@pytest.mark.parametrize(("size", "slide"), [(5, 1), (5, 5), (7, 3), (2, 9)])
@pytest.mark.parametrize("base", [0, -(2**62), 2**62, -(2**63) + 100, 2**63 - 100])
def test_windows_far_from_zero(eager: bool, size: int, slide: int, base: int) -> None:
    """Times up to a few windows from the ends of int64, and progress at its very end."""
    windows = Windows(size, slide, eager, block_rows=2)
    state = queue(windows=windows)
    model = NaiveWindowQueue("IN_PLACE", size, slide, eager=eager)
    place_of = dict[int, int]()
    for i, step in enumerate((0, 1, 4, 4, 11, 13, 20, 22, 23)):
        event = base + step
        low = event - 2
        found = state.enqueue_rows(numbers(0), numbers(event), numbers(low), i)
        model.progress(low, i)
        assert model.enqueue_row(0, event, i, i) == (found[0] >= 0)
        place_of[int(found[0])] = i
        if i % 3 == 1:
            _serve_both(state, model, place_of, i)
    end = 2**63 - 1
    state.progress(end, 50)
    model.progress(end, 50)
    _serve_both(state, model, place_of, 51)
    assert state.counters() == model.counters
    assert walk(state).active == []


def _serve_both(
    state: QueueState, model: NaiveWindowQueue, place_of: dict[int, int], now: int
) -> None:
    while True:
        found, expected = state.serve(3, now), model.serve(3, now)
        rows = [None if p < 0 else place_of[p] for p in found.rows.tolist()]
        assert rows == [one.row for one in expected]
        assert found.starts.tolist() == [one.start for one in expected]
        assert found.marks.tolist() == [one.marks for one in expected]
        state.forget(found.keys)
        closed = found.keys[(found.marks & 2) != 0]
        state.deliver_windows(closed, now)
        model.deliver_windows(closed.tolist(), now)
        if not len(found.rows):
            return


@pytest.mark.parametrize("eager", [True, False])
@pytest.mark.parametrize("by_key", [True, False])
def test_far_rows_and_far_progress(eager: bool, by_key: bool) -> None:
    """Rows that are 10**12 windows ahead of the progress; the windows between take no time."""
    state = queue(windows=Windows(3, 1, eager))
    events = numbers(0, 1, FAR, FAR + 1, 2 * FAR, 3 * FAR)
    began = time.process_time()
    state.enqueue_rows(numbers(*[0] * 6), events, np.full(6, NEVER), 0)
    for to in (5, FAR, FAR + 2, 3 * FAR, 3 * FAR + 3, 10**15):
        if by_key:
            window_progress_of(state, 0, to, to)
        else:
            state.progress(to, to)
        walk(state)
    found = state.serve(100, 10**15)
    assert time.process_time() - began < 5
    assert found.starts.tolist() == [3 * FAR]
    assert found.marks.tolist() == [3]
    assert walk(state).active == []


@pytest.mark.parametrize("by_key", [True, False])
def test_eager_windows_without_rows_are_not_due(by_key: bool) -> None:
    """A key's rows pause for longer than a window, and the row behind the pause comes before the
    windows before it have ended: no result is due for the windows in the pause."""
    state = queue(windows=Windows(4, 2, eager=True))
    keys = numbers(0)

    def progress(to: int, now: int) -> None:
        if by_key:
            window_progress_of(state, 0, to, now)
        else:
            state.progress(to, now)

    state.enqueue_rows(keys, numbers(0), numbers(NEVER), 0)
    assert state.serve(9, 0).marks.tolist() == [1]
    state.enqueue_rows(keys, numbers(100), numbers(NEVER), 1)
    progress(4, 10)
    assert state.serve(1, 12).marks.tolist() == [2]
    progress(60, 15)
    state.deliver_windows(keys, 20)
    before = state.areas(20).application[0]
    assert before == 50.0  # 10 to 20
    progress(101, 30)
    assert state.areas(40).application[0] == before
    progress(102, 40)  # the end of the window that has begun at 98
    assert state.areas(44).application[0] == before + 8.0


def test_fifo_window_keys_enter_behind_older_updates() -> None:
    """A key that was served while it waited comes before keys whose latest updates are later."""
    state = queue(Scheduler.FIFO, Windows(2, 2, eager=True))

    def rows(key: int, event: int, now: int) -> None:
        state.enqueue_rows(numbers(key), numbers(event), numbers(NEVER), now)

    rows(0, 0, 0)
    state.serve(1, 0)
    rows(0, 2, 1)  # waits while it is served
    rows(1, 2, 2)
    state.progress(2, 3)
    closed = state.serve(1, 4)
    assert (closed.keys.tolist(), closed.marks.tolist()) == ([0], [2])
    state.deliver_windows(closed.keys, 5)
    assert walk(state).order == [0, 1]


def test_deliveries_out_of_turn() -> None:
    state = queue()
    state.enqueue(numbers(0, 1), numbers(0, 0), 0)
    with pytest.raises(ValueError, match="dequeued"):
        state.deliver(1, 1)
    state.dequeue(1, 1)
    for wrong in (2, -1):
        with pytest.raises(ValueError, match="dequeued"):
            state.deliver(wrong, 2)
    state.deliver(1, 2)
    windows = queue(windows=Windows(2, 2, eager=True))
    windows.enqueue_rows(numbers(0), numbers(0), numbers(NEVER), 0)
    windows.serve(1, 0)
    with pytest.raises(ValueError, match="closed"):
        windows.deliver_windows(numbers(0), 1)
    walk(windows)


def test_keys_that_never_return_stay_stale_only_while_they_wait() -> None:
    state = queue()
    n = 1_000
    for key in range(n):
        state.enqueue(numbers(key), numbers(key), 10 * key)
        state.dequeue(1, 10 * key + 2)
        state.deliver(1, 10 * key + 5)
    areas = state.areas(10**9)
    assert (areas.queue[:n] == 2.0).all()
    assert (areas.application[:n] == 12.5).all()
    assert all(a <= b for a, b in pairwise(areas.application[:n]))


def test_areas_are_exact_late_in_a_run() -> None:
    """A short wait that ends 100 days after an older one counts to the nanosecond squared."""
    state, day = queue(), 86_400 * 10**9
    state.enqueue(numbers(0), numbers(0), 100 * day)
    state.dequeue(1, 100 * day + 3)
    state.deliver(1, 100 * day + 5)
    areas = state.areas(200 * day)
    assert areas.queue[0] == 4.5
    assert areas.application[0] == 12.5
