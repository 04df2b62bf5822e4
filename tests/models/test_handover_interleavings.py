"""The handover of morsels, under all schedules of a few threads (``interleave``): rings, pools,
worklists, and morsels with several readers. Each check must also find a mistake that is put into
the source. ``--full`` runs more threads."""

from __future__ import annotations

from typing import Any

import pytest

from cql.executor.kernels.lib.atomics import fetch_add, load_acquire, pause
from cql.executor.kernels.lib.memory import words
from cql.executor.kernels.lib.mpmc_queue import CELL, RING, offer, open_ring, poll
from cql.executor.kernels.morsel_layout import FOLLOWING, HEADER, PARENT, SERIAL
from cql.executor.kernels.ordered import tables as of
from cql.executor.kernels.ordered.handover import (
    lock,
    next_input,
    push,
    push_downstream,
    release,
    set_free,
    show,
    take_free,
    waiting,
)
from cql.executor.kernels.ordered.reorder import take_input
from cql.executor.kernels.ordered.tables import NEXT, PORT_WORDS, QUEUE_MASK, TICKET
from tests.support.models.interleave import Model, Scenario, explored, problem
from tests.support.models.lowered import Change
from tests.support.models.modelled_memory import require
from tests.support.models.ordered_tables import Tables

MODES = pytest.mark.parametrize("mode", ["races", "x86"])


# -- rings -----------------------------------------------------------------------------------------


def produces(ring: int, first: int, n: int) -> None:
    k = 0
    while k < n:
        k += offer(ring, first + k)


def consumes(ring: int, seen: int, n: int) -> None:
    k = 0
    while k < n:
        value = poll(ring)
        if value != 0:
            words(seen, n)[k] = value
            k += 1


def ring_of_two(producers: int, consumers: int, each: int, **options: Any) -> Scenario:
    """Threads share a ring of two cells. ``each``: values of a producer."""
    model = Model(**options)
    ring = model.words(RING)
    model.run(open_ring, ring, model.words(CELL * 2), 2)
    for p in range(producers):
        model.start(produces, ring, 10 * p + 10, each)
    takes = producers * each // consumers
    seen = [model.words(takes) for _ in range(consumers)]
    for at in seen:
        model.start(consumes, ring, at, takes)

    def final() -> None:
        taken = [[model.get(at, k) for k in range(takes)] for at in seen]
        given = [10 * p + 10 + k for p in range(producers) for k in range(each)]
        require(sorted(v for values in taken for v in values) == given, f"taken: {taken}")
        for values in taken:
            for p in range(producers):
                of_one = [v for v in values if v // 10 == p + 1]
                require(of_one == sorted(of_one), f"out of order: {taken}")
        require(model.run(poll, ring) == 0, "it is not empty")
        answers = [model.run(offer, ring, value) for value in (1, 2, 3)]
        require(answers == [1, 1, 0], "it takes more or less than two")
        answers = [model.run(poll, ring) for _ in range(3)]
        require(answers == [1, 2, 0], "what is in it does not come out")

    return model, final


@MODES
@pytest.mark.parametrize("sizes", [(1, 1, 4), (2, 1, 2), (1, 2, 4), (2, 2, 1)], ids=str)
def test_rings(sizes: tuple[int, int, int], mode: str) -> None:
    explored(ring_of_two(*sizes, mode=mode))


@MODES
def test_rings_of_more_values_and_threads(mode: str, full: bool) -> None:
    if full or mode == "x86":
        explored(ring_of_two(2, 2, 2, mode=mode))
    explored(ring_of_two(3, 1, 2 if full else 1, mode=mode))
    if full:
        explored(ring_of_two(3, 3, 1, mode=mode))


BAD_RINGS = {
    "the turn is given before the value": (
        offer,
        "words(cell, CELL)[1] = value\n                store_release(cell, at + 1)",
        "store_release(cell, at + 1)\n                words(cell, CELL)[1] = value",
    ),
    "the value is read after the turn was given": (
        poll,
        "value: Any = words(cell, CELL)[1]\n                store_release(cell, at + mask + 1)",
        "store_release(cell, at + mask + 1)\n                value: Any = words(cell, CELL)[1]",
    ),
    "the turn is stored without release": (offer, "store_release", "store_relaxed"),
    "the turn is read without acquire": (poll, "load_acquire", "load_relaxed"),
    "who claims does not look": (
        poll,
        "if compare_and_swap(ring + 8 * HEAD, at, at + 1) == at:",
        "if fetch_add(ring + 8 * HEAD, 1) >= 0:",
    ),
    "a cell is free too late": (poll, "at + mask + 1)", "at + mask + 2)"),
    "an empty cell counts as full": (poll, "if turn == at + 1:", "if turn >= at:"),
}


@pytest.mark.parametrize("mistake", BAD_RINGS)
def test_mistakes_of_rings(mistake: str) -> None:
    assert problem(ring_of_two(1, 2, 4, changes=[Change(*BAD_RINGS[mistake])]))


# -- a pool has more morsels than cells ------------------------------------------------------------


def uses(pool: int, morsels: int, n: int) -> None:
    """Takes the morsels that one input needs, and returns all of them to the pool, ``n`` times."""
    for _ in range(n):
        first = 0
        for k in range(morsels):
            morsel = take_free(pool)
            while morsel == 0:
                pause()
                morsel = take_free(pool)
            words(morsel, HEADER)[SERIAL] += k  # no other thread has the morsel
            words(morsel, HEADER)[FOLLOWING] = first
            first = morsel
        while first != 0:
            morsel = first
            first = words(morsel, HEADER)[FOLLOWING]
            set_free(pool, morsel)


def pool_of_two_cells(threads: int, each: int, n: int, **options: Any) -> Scenario:
    """``each``: morsels that a thread holds at once; the pool has ``each`` morsels per thread."""
    model = Model(**options)
    tables = Tables(model, 0)
    pool, total = tables.ring(2), threads * each
    for _ in range(total):
        model.run(set_free, pool, tables.morsel(0))
    for _ in range(threads):
        model.start(uses, pool, each, n)

    def final() -> None:
        free = [model.run(take_free, pool) for _ in range(total)]
        require(0 not in free and len(set(free)) == total, "one is lost, or free twice")
        require(model.run(take_free, pool) == 0, "there are more than there were")
        numbers = sum(model.get(morsel, SERIAL) for morsel in free)
        require(numbers == threads * n * sum(range(each)), "two had one at once")

    return model, final


@MODES
def test_pools_with_more_morsels_than_cells(mode: str, full: bool) -> None:
    explored(pool_of_two_cells(3, 1, 1, mode=mode))
    explored(pool_of_two_cells(2, 2, 2 if full else 1, mode=mode))


BAD_POOLS = {
    "the chain is changed without the lock": (set_free, "lock(pool + 8 * CHANGING)", "pass"),
    "it is read without the lock": (take_free, "lock(pool + 8 * CHANGING)", "pass"),
    "the lock is given back too early": (
        set_free,
        "store_relaxed(pool + 8 * CHAIN, morsel)",
        "store_release(pool + 8 * CHANGING, 0)\n        store_relaxed(pool + 8 * CHAIN, morsel)",
    ),
    "it is given back without release": (set_free, "store_release", "store_relaxed"),
    "nobody looks whether somebody has it": (lock, "exchange(word, 1) != 0", "False"),
}


@pytest.mark.parametrize("mistake", BAD_POOLS)
def test_mistakes_of_pools(mistake: str) -> None:
    assert problem(pool_of_two_cells(2, 2, 1, changes=[Change(*BAD_POOLS[mistake])]))


# -- a worklist is filled while several threads read it --------------------------------------------


def gives(plan: int, port: int, morsels: int, n: int) -> None:
    """Fills a worklist whenever it has room."""
    for k in range(n):
        while waiting(port) > words(port, PORT_WORDS)[QUEUE_MASK]:
            pause()
        push(plan, port, words(morsels, n)[k])


def takes(plan: int, task: int, lane: int, seen: int, total: int) -> None:
    while load_acquire(task + 8 * NEXT) < total:
        morsel = take_input(plan, task, lane)
        if morsel == 0:
            pause()
            continue
        words(seen, total)[words(lane, TICKET + 1)[TICKET]] = morsel
        fetch_add(task + 8 * NEXT, 1)


def worklist(threads: int, total: int, places: int, **options: Any) -> Scenario:
    """Workers of a stateless task whose worklist has few places note each morsel under its ticket;
    ticket k must belong to the k-th morsel."""
    model = Model(**options)
    tables = Tables(model, 1)
    task = tables.task(of.STATELESS, size=2, queue=places, lanes=threads)
    morsels = tables.list_of([tables.morsel(k) for k in range(total)])
    seen = model.words(total)
    model.start(gives, tables.plan, tables.port(task), morsels, total)
    for k in range(threads):
        model.start(takes, tables.plan, task, tables.lane(task, k), seen, total)

    def final() -> None:
        require(tables.values(seen, total) == tables.values(morsels, total), "lost or doubled")

    return model, final


@MODES
@pytest.mark.parametrize("places", [1, 2])
def test_worklists(places: int, mode: str, full: bool) -> None:
    explored(worklist(2, 3, places, mode=mode))
    if full:
        explored(worklist(3, 3, places, mode=mode))


BAD_WORKLISTS = {
    "the place is given up before it is read": (
        take_input,
        "morsel = load_relaxed(p[QUEUE] + 8 * (n & p[QUEUE_MASK]))\n"
        "        if compare_and_swap(port + 8 * GOT, n, n + 1) == n:\n",
        "if compare_and_swap(port + 8 * GOT, n, n + 1) == n:\n"
        "            morsel = load_relaxed(p[QUEUE] + 8 * (n & p[QUEUE_MASK]))\n",
    ),
    "a plain read of a place that may be filled again": (
        take_input,
        "load_relaxed(p[QUEUE] + 8 * (n & p[QUEUE_MASK]))",
        "words(p[QUEUE], 8)[n & p[QUEUE_MASK]]",
    ),
    "given before it is there": (
        push,
        "store_relaxed(p",
        "store_release(port + 8 * GIVEN, at + 1)\n    store_relaxed(p",
    ),
    "more than there is room for": (gives, "> words", "> 1 + words"),
}


@pytest.mark.parametrize("mistake", BAD_WORKLISTS)
def test_mistakes_of_worklists(mistake: str) -> None:
    mode = "races" if "plain" in mistake else "values"
    assert problem(worklist(2, 3, 1, mode=mode, changes=[Change(*BAD_WORKLISTS[mistake])]))


# -- a morsel becomes free when its last reader releases it ----------------------------------------


def fills(plan: int, task: int, total: int) -> None:
    """Writes outputs to free morsels and sends them downstream, as ``advance`` does."""
    pool = words(task, of.TASK)[of.POOL]
    for k in range(total):
        morsel = poll(pool)
        while morsel == 0:
            pause()
            morsel = poll(pool)
        words(morsel, HEADER + 1)[HEADER] = k
        while push_downstream(plan, task, morsel) == 0:
            pause()


def reads(plan: int, task: int, seen: int, n: int) -> None:
    k = 0
    while k < n:
        morsel = next_input(plan, task)
        if morsel == 0:
            pause()
        else:
            words(seen, n)[k] = words(words(morsel, HEADER)[PARENT], HEADER + 1)[HEADER]
            release(morsel)
            k += 1


def two_readers(total: int, morsels: int, views: int, **options: Any) -> Scenario:
    """Two tasks read the outputs of a third task, each through its own views."""
    model = Model(**options)
    tables = Tables(model, 3)
    above = tables.task(of.SERIAL_ONE, edges=[(1, 0), (2, 0)], views=views)
    below = [tables.task(of.SERIAL_ONE, ports=[0]) for _ in range(2)]
    pool = tables.pool(morsels)
    model.put(above, {of.POOL: pool})
    model.start(fills, tables.plan, above, total)
    seen = [model.words(total) for _ in below]
    for task, at in zip(below, seen, strict=True):
        model.start(reads, tables.plan, task, at, total)

    def final() -> None:
        for at in seen:
            require(tables.values(at, total) == list(range(total)), "not what was written")
        for ring, n in ((pool, morsels), *((tables.views(above, k), views) for k in range(2))):
            free = {model.run(poll, ring) for _ in range(n)}
            require(0 not in free and len(free) == n, "one is not free")
            require(model.run(poll, ring) == 0, "one is free twice")

    return model, final


@MODES
def test_morsels_of_several_readers(mode: str, full: bool) -> None:
    explored(two_readers(2, 2, 1, mode=mode))
    if full:
        explored(two_readers(3, 1, 2, mode=mode))
        explored(two_readers(3, 2, 1, mode=mode))


ONE_MORSEL, ONE_VIEW = (1, 2), (2, 1)
BAD_READERS = {
    "free when the first has read it": (ONE_MORSEL, release, ") != 1", ") != 2"),
    "one reader too few": (
        ONE_MORSEL,
        push_downstream,
        "u[REFERENCES] = edges",
        "u[REFERENCES] = 1",
    ),
    "what a view shows is not released": (ONE_MORSEL, release, "morsel = parent", "morsel = 0"),
    "free before its parent is noted": (
        ONE_VIEW,
        release,
        "    parent: Any = u[PARENT]\n        u[PARENT] = 0\n        set_free(u[HOME], morsel)\n",
        "    set_free(u[HOME], morsel)\n        parent: Any = u[PARENT]\n        u[PARENT] = 0\n",
    ),
    "a view on its way back is not waited for": (ONE_VIEW, push_downstream, "poll_held", "poll"),
    "a view without a reader": (ONE_VIEW, show, "v[REFERENCES], v[FOLLOWING] = 1, 0", "pass"),
}


@pytest.mark.sampled
@pytest.mark.parametrize("mistake", BAD_READERS)
def test_mistakes_of_readers(mistake: str) -> None:
    free, *change = BAD_READERS[mistake]
    assert problem(two_readers(2, *free, changes=[Change(*change)]))
