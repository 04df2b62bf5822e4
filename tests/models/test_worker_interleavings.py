"""Workers choose tasks and sleep, under all schedules (``interleave``): no task has more workers
than it may, and every worker that sleeps for lack of work is woken. Each check must also find a
mistake that is put into the source. ``--full`` runs more workers."""

from __future__ import annotations

from typing import Any

import pytest

from cql.executor.kernels.lib.atomics import (
    compare_and_swap,
    fetch_add,
    load_acquire,
    pause,
    store_release,
)
from cql.executor.kernels.lib.condition import lie_down, wake
from cql.executor.kernels.lib.memory import words
from cql.executor.kernels.ordered import tables as of
from cql.executor.kernels.ordered import worker as workers
from cql.executor.kernels.ordered.choice import choose, has_room
from cql.executor.kernels.ordered.schedulers import LP, NONE
from cql.executor.kernels.ordered.tables import SLEEPING, STOP
from cql.executor.kernels.ordered.worker import (
    SLICE_OVER,
    _leave,
    found,
    rest,
    work,
)
from tests.support.models.interleave import Model, Scenario, explored, problem
from tests.support.models.lowered import Change
from tests.support.models.modelled_memory import require
from tests.support.models.ordered_tables import Tables

# -- the choice of a task -------------------------------------------------------------------------


def chooses(plan: int, worker: int, task: int, times: int, busy: int) -> None:
    for _ in range(times):
        if choose(plan, worker) != NONE:
            s = words(task, of.TASK)
            require(fetch_add(busy, 1) < s[of.MOST], "more workers than there may be")
            fetch_add(busy, -1)
            _leave(plan, worker)


def choosing(threads: int, most: int, times: int, **options: Any) -> Scenario:
    """Workers choose a task with waiting morsels and leave it, ``times`` times."""
    model = Model("values", replaced={id(has_room): always}, **options)
    tables = Tables(model, 1, workers=threads, POLICY=LP, LEAST=1)
    kind = of.SERIAL_ONE if most == 1 else of.STATELESS
    task = tables.task(kind, lanes=most)
    model.put(task, {of.MOST: most, of.MORSELS: 0})
    tables.give(task, [tables.morsel(k) for k in range(2)])
    model.put(task, {of.POOL: tables.pool(1)})
    busy = model.words(1)
    for w in range(threads):
        model.start(chooses, tables.plan, tables.worker(w), task, times, busy)

    def final() -> None:
        require(model.get(task, of.ALLOTTED) == 0, "who has left is still counted")
        at = model.run(choose, tables.plan, tables.worker(0))
        require(at == 0, "nobody can come any more")

    return model, final


def always(plan: int, task: int) -> int:
    return 1


@pytest.mark.parametrize("most", [1, 2])
def test_no_task_has_more_workers_than_it_may(most: int, full: bool) -> None:
    explored(choosing(most + 1, most, 2 if full or most == 1 else 1))


BAD_CHOICES = {
    "one too many": (choose, "< s[MOST]", "<= s[MOST]"),
    "who comes in vain stays counted": (choose, "fetch_add(task + 8 * ALLOTTED, -1)", "pass"),
    "who leaves stays counted": (_leave, "fetch_add(task + 8 * ALLOTTED, -1)", "pass"),
}


@pytest.mark.parametrize("mistake", BAD_CHOICES)
def test_mistakes_of_choices(mistake: str) -> None:
    assert problem(choosing(2, 1, 1, changes=[Change(*BAD_CHOICES[mistake])]))


# -- sleep -----------------------------------------------------------------------------------------

#: Words of the header that the sleep model uses: the amount of work to do, and of work done.
TO_DO, DONE = of.ADMITTED, of.WINDOW_BEGAN


def finds(plan: int, worker: int) -> int:
    """Replaces ``work_once``."""
    n = load_acquire(plan + 8 * TO_DO)
    if n == 0 or compare_and_swap(plan + 8 * TO_DO, n, n - 1) != n:
        return NONE
    fetch_add(plan + 8 * DONE, 1)
    return SLICE_OVER


def wakes_up(plan: int, n: int) -> None:
    for k in range(n):
        while load_acquire(plan + 8 * DONE) < k:  # an earlier store would undo a decrement
            pause()
        store_release(plan + 8 * TO_DO, 1)
        wake(plan + 8 * SLEEPING)
    while load_acquire(plan + 8 * DONE) < n:
        pause()
    store_release(plan + 8 * STOP, 1)
    wake(plan + 8 * SLEEPING)


def sleeping(sleepers: int, n: int, looks: int, **options: Any) -> Scenario:
    """Workers that look for work ``looks`` times before they sleep; their sleep has no timeout."""
    model = Model("x86", replaced={id(workers.work_once): finds}, **options)
    tables = Tables(model, 0, workers=sleepers, LOOKS=looks)
    for w in range(sleepers):
        model.start(work, tables.plan, w)
    model.start(wakes_up, tables.plan, n)

    def final() -> None:
        require(model.get(tables.plan, SLEEPING) == 0, "who is awake counts as a sleeper")

    return model, final


@pytest.mark.parametrize(("sleepers", "n", "looks"), [(1, 2, 1), (1, 2, 2), (2, 1, 1)])
def test_no_sleeper_is_forgotten(sleepers: int, n: int, looks: int, full: bool) -> None:
    explored(sleeping(sleepers, n, looks))
    if full:
        explored(sleeping(sleepers, n + 1, looks))
        explored(sleeping(sleepers + 1, 1, looks))


BAD_SLEEP = {
    "counted when it sleeps": (
        rest,
        "fetch_add(bed + 8 * SLEEPERS, 1)\n        return",
        "fetch_add(bed + 8 * SLEEPERS, 1)",
    ),
    "wakes are noted too late": (
        rest,
        "    lie_down(bed, me[SEEN]",
        "    me[SEEN] = wakes(bed)\n    lie_down(bed, me[SEEN]",
    ),
    "no look at what was noted": (lie_down, "if wakes(bed) == seen:", "if seen >= 0:"),
    "without the mutex": (wake, "_lock(bed + 8 * _MUTEX)", "pass"),
    "stores that wait in a buffer": (wake, "fence()", "pass"),
    "a sleeper that stays counted": (found, "fetch_add(plan", "max(plan"),
}


@pytest.mark.parametrize("mistake", BAD_SLEEP)
def test_mistakes_of_sleep(mistake: str) -> None:
    assert problem(sleeping(1, 2, 1, changes=[Change(*BAD_SLEEP[mistake])]))
