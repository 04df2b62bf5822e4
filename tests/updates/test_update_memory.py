"""The memory of update queues: on-demand paging (section 7.1), window buffers (section 7.2), and
traces after which nothing has grown."""

from __future__ import annotations

import random

import numpy as np
import pytest

from cql.errors import RunError
from cql.executor.kernels.morsel_layout import NEVER
from cql.executor.kernels.updates import layout
from cql.executor.operators.updates.queue_state import QueueState, Scheduler, Storage, Windows
from tests.support.updates.traces import ROW, Unlimited, window_progress_of
from tests.support.updates.walk import walk


def numbers(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, np.int64)


@pytest.mark.parametrize("scheduler", list(Scheduler))
def test_a_page_that_is_empty_goes_back(scheduler: Scheduler) -> None:
    state = QueueState("queue", Unlimited(), scheduler, page_rows=4)
    ids = np.arange(17, dtype=np.int64)
    for round_ in range(50):
        state.enqueue(ids, ids + 20 * round_, round_)
        assert state.words[layout.PAGES_USED] == 5
        state.dequeue(16, round_)
        assert state.words[layout.PAGES_USED] == 1
        assert state.effective_usage == 1.0
        state.dequeue(16, round_)
        assert state.words[layout.PAGES_USED] == 0
        assert state.effective_usage == 1.0
    assert state.words[layout.UNUSED] == 5  # pages that were ever used


def test_freed_places_are_used_first() -> None:
    """Residents that come and go in any order never need a page more than they would fill."""
    state = QueueState("queue", Unlimited(), Scheduler.LINECUTTING, page_rows=8)
    state.words[layout.GUARDED] = 0
    choice = random.Random(5)
    most = 0
    for now in range(1_000):
        ids = np.array([choice.randrange(100) for _ in range(choice.randint(0, 9))], np.int64)
        state.enqueue(ids, np.full(len(ids), now), now)
        most = max(most, int(state.words[layout.RESIDENTS]))
        assert state.words[layout.UNUSED] <= -(-most // 8)
        state.dequeue(choice.randint(0, 9), now)
    assert most > 8


def test_preallocated_keeps_a_place_per_key() -> None:
    state = QueueState("queue", Unlimited(), Scheduler.FIFO, Storage.PREALLOCATED, page_rows=4)
    first = state.enqueue(numbers(0, 1, 2, 3), numbers(0, 0, 0, 0), 0)
    assert state.dequeue(3, 1).tolist() == first[:3].tolist()
    assert state.words[layout.PLACES_USED] == 4
    assert state.effective_usage == 0.25
    assert state.enqueue(numbers(2, 0), numbers(1, 1), 2).tolist() == [first[2], first[0]]
    assert state.effective_usage == 0.75


@pytest.mark.parametrize(("size", "slide"), [(1, 1), (3, 1), (4, 4), (10, 3), (12, 5), (9, 8)])
@pytest.mark.parametrize("scheduler", ROW)
@pytest.mark.parametrize("eager", [True, False])
@pytest.mark.parametrize("by_key", [True, False])
def test_window_buffers_are_bounded(
    scheduler: Scheduler, eager: bool, by_key: bool, size: int, slide: int
) -> None:
    """Rows come one per key and unit of time. EAGER holds size + slide - 1 rows of a key once the
    operator's rows are forgotten. LAZY holds as many beside those of the window that is served;
    while one is, a part of two blocks more."""
    windows = Windows(size, slide, eager, block_rows=2)
    state = QueueState("queue", Unlimited(), scheduler, page_rows=2, windows=windows)
    choice = random.Random(f"{scheduler} {eager} {by_key} {size} {slide}")
    keys, longest = 3, 0
    ids = np.arange(keys, dtype=np.int64)
    for event in range(120):
        state.enqueue_rows(ids, np.full(keys, event), np.full(keys, NEVER), event)
        if by_key:
            for key in range(keys):
                window_progress_of(state, key, event + 1, event)
        else:
            state.progress(event + 1, event)
        if choice.random() < 0.7:
            found = state.serve(choice.choice((1, 3, 20)), event)
            state.forget(found.keys)
            closed = found.keys[(found.marks & 2) != 0]
            if choice.random() < 0.5:
                state.deliver_windows(closed, event)
            else:  # later in the burst
                again = state.serve(3, event)
                state.forget(again.keys)
                closed = np.concatenate([closed, again.keys[(again.marks & 2) != 0]])
                state.deliver_windows(closed, event)
        buffers = state.store.arrays["buffers"]
        for key, held in walk(state).held.items():
            rows = len(held)
            most = size + slide - 1
            if not eager and buffers[key, layout.STATE] == layout.READY:
                rows -= sum(event < buffers[key, layout.WE] for event in held)
                most += 2 * (windows.block_rows - 1)
            assert rows <= most, (key, held)
            longest = max(longest, rows)
    assert longest > size // 2


@pytest.mark.parametrize("scheduler", list(Scheduler))
@pytest.mark.parametrize("storage", list(Storage))
def test_rows_leave_nothing(scheduler: Scheduler, storage: Storage) -> None:
    account = Unlimited()
    state = QueueState("queue", account, scheduler, storage)
    choice = np.random.default_rng(1)
    sizes = []
    for now in range(4_000):
        state.enqueue(choice.integers(0, 50, 20), np.full(20, now), now)
        state.dequeue(20, now)
        state.deliver(int(state.words[layout.TAKEN] - state.words[layout.DELIVERED]), now)
        sizes.append(account.nbytes)
    assert sizes[-1] == sizes[100]
    assert sizes[-1] == state.store.nbytes


@pytest.mark.parametrize("scheduler", ROW)
@pytest.mark.parametrize("eager", [True, False])
@pytest.mark.parametrize("block_rows", [1, 16])
def test_windows_leave_nothing(scheduler: Scheduler, eager: bool, block_rows: int) -> None:
    account = Unlimited()
    windows = Windows(10, 3, eager, block_rows)
    state = QueueState("queue", account, scheduler, windows=windows)
    choice = np.random.default_rng(1)
    sizes = []
    for now in range(4_000):
        state.enqueue_rows(choice.integers(0, 20, 10), np.full(10, now), np.full(10, now), now)
        found = state.serve(12, now)
        state.forget(found.keys)
        state.deliver_windows(found.keys[(found.marks & 2) != 0], now)
        sizes.append(account.nbytes)
    assert state.counters()["taken"] > 500
    assert sizes[-1] == sizes[500]
    assert sizes[-1] == state.store.nbytes
    to = 4_000 + 10
    state.progress(to, to)  # the keys never return
    while len((found := state.serve(100, to)).keys):
        state.forget(found.keys)
        state.deliver_windows(found.keys[(found.marks & 2) != 0], to)
    assert state.words[layout.ROWS_HELD] == state.words[layout.PAGES_USED] == 0
    assert state.effective_usage == 1.0
    assert walk(state).active == []


class Refuses(Unlimited):
    """Refuses the ``left``-th growth from now on."""

    left = 10**9

    def resize(self, before: int, after: int, what: str) -> None:
        self.left -= 1
        if self.left < 0:
            raise RunError("max_state")
        super().resize(before, after, what)


_EAGER, _LAZY = Windows(4, 2, True, 2), Windows(4, 2, False, 2)


@pytest.mark.parametrize(
    ("windows", "left"),
    [*((None, n) for n in range(3)), *((w, n) for w in (_EAGER, _LAZY) for n in range(7))],
)
def test_a_refused_growth_leaves_a_queue_that_works(windows: Windows | None, left: int) -> None:
    """The tables that had grown before ``max_state`` refused one are where the kernels look."""
    account = Refuses()
    state = QueueState("queue", account, Scheduler.FIFO, page_rows=2, windows=windows)

    def enqueue(ids: range, now: int) -> None:
        keys, times = np.array(ids, np.int64), np.full(len(ids), now)
        if windows is None:
            state.enqueue(keys, times, now)
        else:
            state.enqueue_rows(keys, times, times, now)

    enqueue(range(3), 0)
    account.left = left
    with pytest.raises(RunError):
        enqueue(range(600), 1)
    walk(state)
    for name, word in (("cells", layout.CELLS), ("places", layout.PLACES)):
        assert state.words[word] == state.store.arrays[name].ctypes.data
    account.left = 10**9
    enqueue(range(600), 1)
    walk(state)
    assert state.counters()["held"] == (600 if windows is None or windows.eager else 0)


@pytest.mark.parametrize("scheduler", ROW)
def test_a_lazy_window_that_is_served_slowly_holds_no_others(scheduler: Scheduler) -> None:
    """Between its rows and those of the most recent window lies at most a part of two blocks."""
    size, slide, rows = 20, 5, 4
    state = QueueState("queue", Unlimited(), scheduler, windows=Windows(size, slide, False, rows))
    for event in range(2_000):
        state.enqueue_rows(numbers(0), numbers(event), numbers(event), event)
        if event % 200 == 50:
            state.forget(state.serve(1, event).keys)
        assert state.words[layout.ROWS_HELD] <= 2 * size + slide + 2 * rows
    walk(state)
