"""Atomics, rings, reference counts and the condition ("bed") of the ordered runtime under real
threads: no value is lost or duplicated, and no thread sleeps for ever. (``interleave`` checks small
cases under all schedules.)"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numba import types

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib import mpmc_queue
from cql.executor.kernels.lib.atomics import (
    compare_and_swap,
    exchange,
    fetch_add,
    load_acquire,
    load_relaxed,
    store_release,
)
from cql.executor.kernels.lib.condition import BED, SLEEPERS, lie_down, make_bed, wake, wakes
from cql.executor.kernels.lib.memory import words
from cql.executor.kernels.lib.mpmc_queue import offer, poll
from cql.executor.kernels.morsel_layout import HEADER, HOME, PARENT, REFERENCES, WIDTH
from cql.executor.kernels.ordered.handover import release, show

THREADS = 4

_sched_yield = types.ExternalFunction("sched_yield", types.int32())


def in_threads(*calls: Callable[[], Any]) -> None:
    """Runs the calls in threads at the same time; raises the first exception of a call."""
    raised: list[BaseException] = []

    def run(call: Callable[[], Any]) -> None:
        try:
            call()
        except BaseException as problem:
            raised.append(problem)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if raised:
        raise raised[0]


def address(array: Any) -> int:
    return int(array.ctypes.data)


class Memory:
    """Allocates zeroed arrays and keeps them alive."""

    def __init__(self) -> None:
        self._kept: list[Any] = []

    def words(self, n: int) -> Any:
        """``n`` zeros, aligned to a cache line."""
        raw = np.zeros(n + mpmc_queue.CACHE_LINE, np.int64)
        self._kept.append(raw)
        skip = -address(raw) // 8 % mpmc_queue.CACHE_LINE
        return raw[skip : skip + n]

    def ring(self, size: int) -> int:
        ring, cells = self.words(mpmc_queue.RING), self.words(mpmc_queue.CELL * size)
        mpmc_queue.open_ring(address(ring), address(cells), size)
        return address(ring)


def emptied(ring: int) -> list[int]:
    return list(iter(lambda: poll(ring), 0))


# -- atomics ---------------------------------------------------------------------------------------


@njit("void(int64, int64[::1], int64)", nogil=True)
def adds(word: int, seen: Any, apart: int) -> None:
    """Adds to one word with ``fetch_add``, to a second word with ``compare_and_swap``, and to a
    third word under a lock that ``exchange`` takes."""
    for k in range(seen.size):
        seen[k] = fetch_add(word, 1)
        other = word + 8 * apart
        while True:
            old = load_relaxed(other)
            if compare_and_swap(other, old, old + 1) == old:
                break
        lock = other + 8 * apart
        while exchange(lock, 1) != 0:
            _sched_yield()
        words(lock, 2)[1] += 1
        store_release(lock, 0)


def test_additions_are_not_lost() -> None:
    memory, n = Memory(), 50_000
    shared = memory.words(3 * mpmc_queue.CACHE_LINE)
    seen = [np.zeros(n, np.int64) for _ in range(THREADS)]
    in_threads(*(partial(adds, address(shared), mine, mpmc_queue.CACHE_LINE) for mine in seen))
    total = n * THREADS
    assert sorted(np.concatenate(seen).tolist()) == list(range(total))
    for mine in seen:
        assert (np.diff(mine) > 0).all()
    apart = mpmc_queue.CACHE_LINE
    assert [shared[0], shared[apart], shared[2 * apart + 1]] == [total, total, total]


# -- rings -----------------------------------------------------------------------------------------


@njit("void(int64, int64, int64)", nogil=True)
def produces(ring: int, first: int, n: int) -> None:
    for k in range(n):
        while offer(ring, first + k) == 0:
            _sched_yield()


@njit("void(int64, int64[::1])", nogil=True)
def consumes(ring: int, seen: Any) -> None:
    for k in range(seen.size):
        value = poll(ring)
        while value == 0:
            _sched_yield()
            value = poll(ring)
        seen[k] = value


def test_rings_of_several_producers_and_consumers() -> None:
    memory, n, first = Memory(), 50_000, 1_000_000
    for size in (2, 64):
        ring = memory.ring(size)
        seen = [np.zeros(n, np.int64) for _ in range(THREADS)]
        giving = [partial(produces, ring, first * (p + 1), n) for p in range(THREADS)]
        in_threads(*giving, *(partial(consumes, ring, mine) for mine in seen))
        given = [first * (p + 1) + k for p in range(THREADS) for k in range(n)]
        assert sorted(np.concatenate(seen).tolist()) == given
        for mine in seen:
            for p in range(THREADS):
                assert (np.diff(mine[mine // first == p + 1]) > 0).all()
        assert poll(ring) == 0
        assert mpmc_queue.held(ring) == 0


# -- morsels ---------------------------------------------------------------------------------------

VALUE = HEADER + 2  # the word behind the columns that views share


@njit("void(int64, int64, int64, int64, int64)", nogil=True)
def shows(morsels: int, views: int, readers: int, count: int, n: int) -> None:
    """Takes free morsels, writes them, and hands a view of each to each of ``count`` readers."""
    for k in range(n):
        morsel = poll(morsels)
        while morsel == 0:
            _sched_yield()
            morsel = poll(morsels)
        words(morsel, VALUE + 1)[VALUE] = k
        words(morsel, HEADER)[REFERENCES] = count
        for r in range(count):
            view = poll(views)
            while view == 0:
                _sched_yield()
                view = poll(views)
            show(morsel, view)
            words(view, HEADER)[PARENT] = morsel
            while offer(words(readers, count)[r], view) == 0:
                _sched_yield()


@njit("void(int64, int64[::1])", nogil=True)
def reads(ring: int, seen: Any) -> None:
    for k in range(seen.size):
        view = poll(ring)
        while view == 0:
            _sched_yield()
            view = poll(ring)
        seen[k] = words(words(view, HEADER)[PARENT], VALUE + 1)[VALUE]
        release(view)


def test_morsels_are_free_when_nobody_reads_them() -> None:
    memory, n, readers = Memory(), 50_000, 3
    morsels, views = memory.ring(4), memory.ring(8)
    free: dict[int, list[int]] = {morsels: [], views: []}
    for home, count in ((morsels, 2), (views, 5)):
        for _ in range(count):
            morsel = memory.words(VALUE + 1)
            morsel[HOME], morsel[WIDTH] = home, HEADER + 2
            free[home].append(address(morsel))
            offer(home, address(morsel))
    given = [memory.ring(8) for _ in range(readers)]
    of_reader = np.array(given, np.int64)
    seen = [np.zeros(n, np.int64) for _ in given]
    in_threads(
        partial(shows, morsels, views, address(of_reader), readers, n),
        *(partial(reads, ring, mine) for ring, mine in zip(given, seen, strict=True)),
    )
    for mine in seen:
        assert (mine == np.arange(n)).all()
    for home, all_of_it in free.items():
        assert sorted(emptied(home)) == sorted(all_of_it)


# -- sleep -----------------------------------------------------------------------------------------

#: Words of a sleeper's record: the number of values that it has found; 1 if it was forgotten (see
#: ``_MANY``); scratch of the clock.
FOUND, FORGOTTEN, SCRATCH = 0, 1, 2
#: Timeout of a sleep in nanoseconds, and the number of timeouts in a row after which the sleeper
#: counts as forgotten.
_LONG, _MANY = 900_000_000, 100


@njit("void(int64, int64, int64)", nogil=True)
def sleeps(bed: int, ring: int, me: int) -> None:
    """Takes values until one of them is 1; sleeps whenever the ring is empty."""
    mine = words(me, SCRATCH)
    while mine[FORGOTTEN] == 0:
        value = poll(ring)
        if value == 0:
            seen = wakes(bed)
            fetch_add(bed + 8 * SLEEPERS, 1)
            value = poll(ring)
            if value != 0:
                fetch_add(bed + 8 * SLEEPERS, -1)
            else:
                in_vain = 0
                lie_down(bed, seen, _LONG, me + 8 * SCRATCH)
                while wakes(bed) == seen and mine[FORGOTTEN] == 0:
                    in_vain += 1
                    if in_vain == _MANY:
                        mine[FORGOTTEN] = 1
                    fetch_add(bed + 8 * SLEEPERS, 1)
                    lie_down(bed, seen, _LONG, me + 8 * SCRATCH)
        if value == 1:
            return
        if value != 0:
            fetch_add(me + 8 * FOUND, 1)


@njit("int64(int64, int64, int64[::1], int64)", nogil=True)
def wakes_all(bed: int, ring: int, sleepers: Any, n: int) -> int:
    """Adds ``n`` values to the ring, each after the sleepers have found the one before; returns 1,
    or 0 if a sleeper was forgotten."""
    for k in range(n):
        offer(ring, 2)
        wake(bed)
        found = 0
        while found <= k:
            _sched_yield()
            found = 0
            for me in sleepers:
                found += load_acquire(me + 8 * FOUND)
                if load_acquire(me + 8 * FORGOTTEN) != 0:
                    return 0
    for _ in sleepers:
        offer(ring, 1)
        wake(bed)
    return 1


def test_nobody_is_left_sleeping() -> None:
    memory, n, sleepers = Memory(), 10_000, 3
    bed, ring = memory.words(BED), memory.ring(8)
    make_bed(address(bed))
    records = [memory.words(mpmc_queue.CACHE_LINE) for _ in range(sleepers)]
    addresses = np.array([address(r) for r in records], np.int64)
    answers: list[int] = []
    in_threads(
        lambda: answers.append(wakes_all(address(bed), ring, addresses, n)),
        *(partial(sleeps, address(bed), ring, address(record)) for record in records),
    )
    assert answers == [1]
    assert sum(int(r[FOUND]) for r in records) == n
    assert bed[SLEEPERS] == 0
    assert poll(ring) == 0
