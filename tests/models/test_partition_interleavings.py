"""Workers process the fragments of each partition in order, under all schedules of a few workers
(``interleave``): with the hybrid queue (figure 7 of the ordered-multicore paper), partitioned
queues (section 4.2) and the shared queue (figure 5). Each check must also find a mistake that is
put into the source. ``--full`` runs more workers and inputs."""

from __future__ import annotations

from typing import Any

import pytest

from cql.executor.kernels import morsel_layout as of_morsel
from cql.executor.kernels.lib.atomics import load_acquire, pause, store_release
from cql.executor.kernels.lib.memory import words
from cql.executor.kernels.lib.mpmc_queue import poll
from cql.executor.kernels.ordered import tables as of
from cql.executor.kernels.ordered import worker as workers
from cql.executor.kernels.ordered.handover import push, set_free
from cql.executor.kernels.ordered.partitions import (
    NOBODY,
    _add_input,
    claim,
    dispatch,
    finish_fragment,
    keeps,
)
from cql.executor.kernels.ordered.partitions import _from_master as from_master
from cql.executor.kernels.ordered.partitions import _lock as lock_of_partition
from cql.executor.kernels.ordered.tables import (
    BUDGET,
    DONE_HERE,
    NEXT,
    ON,
    STOP,
    TICKET,
    WORKER,
    port_at,
)
from cql.executor.kernels.ordered.worker import FINISHED, _work_on_parts
from tests.support.models.interleave import Model, Scenario, explored, problem
from tests.support.models.lowered import Change
from tests.support.models.modelled_memory import require
from tests.support.models.ordered_tables import Tables

SCHEMES = {
    "hybrid": of.HYBRID,
    "partitioned": of.PARTITIONED_QUEUE,
    "shared": of.SHARED_QUEUE,
}
#: Number of rows by input and partition.
EVEN, SKEWED, LAST = [[1, 1], [1, 1]], [[1, 0], [1, 1], [1, 0]], [[1, 0], [1, 1]]


def works_on_parts(plan: int, worker: int, task: int, total: int, budget: int) -> None:
    """Works on the task, as a worker that ``choose`` sends there again, until all inputs have
    left."""
    me = words(worker, WORKER)
    while load_acquire(task + 8 * NEXT) < total:
        dispatch(plan, task)
        me[BUDGET], me[DONE_HERE], me[ON] = budget, 0, NOBODY
        _work_on_parts(plan, worker, task)
        pause()


def notes(plan: int, task: int, lane: int) -> int:
    """Replaces ``advance``, for an operator without outputs: logs the inputs of each partition."""
    s, at = words(task, of.TASK), words(lane, of.LANE)
    part = (lane - s[of.FIRST_LANE]) // (8 * of.LANE)
    log = words(s[of.COLUMNS], 16 * s[of.PARTS])[16 * part :]
    log[0] += 1
    log[log[0]] = at[TICKET] + 1
    return FINISHED


def partitions(
    threads: int,
    inputs: list[list[int]],
    scheme: str,
    *,
    size: int = 2,
    budget: int = 2,
    **options: Any,
) -> Scenario:
    """``budget``: fragments of a time slice (the hybrid queue exceeds it on a single partition)."""
    model = Model(replaced={id(workers.advance): notes}, **options)
    parts, total = len(inputs[0]), len(inputs)
    tables = Tables(model, 1, workers=threads, SCHEME=SCHEMES[scheme])
    task = tables.task(of.PARTITIONED, size=size, queue=4, parts=parts)
    home = tables.ring(4)
    morsels = [tables.split_morsel(k, rows, home) for k, rows in enumerate(inputs)]
    tables.give(task, morsels)
    log = model.words(16 * parts)
    model.put(task, {of.COLUMNS: log})
    for w in range(threads):
        model.start(works_on_parts, tables.plan, tables.worker(w), task, total, budget)

    def final() -> None:
        for part in range(parts):
            wanted = [k + 1 for k, rows in enumerate(inputs) if rows[part] > 0]
            done = tables.values(log + 8 * 16 * part, 16)
            require(done[: done[0] + 1] == [len(wanted), *wanted], f"{part}: {done}")
            held = model.get(tables.part(task, part), of.HELD)
            require(held == 0, f"{part} is not given up")
        freed = sorted(model.run(poll, home) for _ in morsels)
        require(freed == sorted(morsels), "morsels are not free")

    return model, final


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("scheme", SCHEMES)
def test_partitions_are_worked_on_in_order(scheme: str, full: bool) -> None:
    explored(partitions(2, [[1], [1]], scheme))
    explored(partitions(2, SKEWED if scheme == "hybrid" else LAST, scheme, mode="x86"))
    if full or scheme == "hybrid":
        explored(partitions(2, [[1, 1]], scheme))
    if full:
        explored(partitions(2, SKEWED, scheme))
        explored(partitions(2, SKEWED, scheme, mode="x86"))
        explored(partitions(2, [*EVEN, [0, 1], [1, 1]], scheme, budget=8, mode="values"))
        explored(partitions(3, [[1], [1]], scheme, mode="x86"))
        explored(partitions(3, [[1, 1]], scheme, mode="x86"))
        explored(partitions(3, EVEN, scheme, mode="values"))


HYBRID_CLAIM = "fetch_add(list_at(task, q) + 8 * HELD, 1) == 0"
MISTAKES = {
    "figure 7, line 10: whoever comes": ("hybrid", claim, HYBRID_CLAIM, HYBRID_CLAIM[:-4] + ">= 0"),
    "figure 7, line 14: one too many": ("hybrid", keeps, "-1) > 1", "-1) >= 1"),
    "figure 7, line 14: one too few": ("hybrid", keeps, "-1) > 1", "-1) > 2"),
    "figure 7, line 5 before line 4": (
        "hybrid",
        _add_input,
        "        waiting[FIRST_SERIAL + (put & (s[SIZE] - 1))] = serial\n",
        "        store_release(task + 8 * MASTER_PUT, s[MASTER_PUT] + 1)\n"
        "        waiting[FIRST_SERIAL + (put & (s[SIZE] - 1))] = serial\n",
    ),
    "two take one": (
        "hybrid",
        from_master,
        "compare_and_swap(task + 8 * MASTER_TAKEN, at, at + 1) == at",
        "exchange(task + 8 * MASTER_TAKEN, at + 1) >= 0",
    ),
    "two dispatch": (
        "hybrid",
        dispatch,
        "if exchange(task + 8 * DISPATCHING, 1) != 0:",
        "if load(task + 8 * DISPATCHING) != 0:",
    ),
    "a queue that became empty": (
        "partitioned",
        claim,
        "if load_acquire(queue + 8 * LIST_PUT) > load_acquire(queue + 8 * LIST_GOT):",
        "if load_acquire(queue + 8 * LIST_PUT) > -1:",
    ),
    "a partition is not given up": ("partitioned", keeps, "store(queue + 8 * HELD, 0)", "pass"),
    "a partition that others have": (
        "partitioned",
        claim,
        "if compare_and_swap(queue + 8 * HELD, 0, 1) != 0:",
        "if exchange(queue + 8 * HELD, 1) > 1:",
    ),
    "a lock that is not taken": (
        "shared",
        claim,
        "_lock(plan, list_at(task, q) + 8 * HELD) == 0",
        "task == 0",
    ),
    "more inputs than slots": (
        "hybrid",
        dispatch,
        "while s[PUT] < load_acquire(task + 8 * NEXT) + s[SIZE]:",
        "while s[PUT] < 3:",
    ),
    "done before the last": ("hybrid", finish_fragment, "-1) == 1", "-1) == 2"),
}


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes(mistake: str) -> None:
    scheme, *change = MISTAKES[mistake]
    inputs = SKEWED if "slots" in mistake else LAST
    assert problem(partitions(2, inputs, scheme, mode="values", changes=[Change(*change)]))


# -- a morsel that returns to its pool -------------------------------------------------------------


def fills_again(home: int, offsets: int, parts: int) -> None:
    """Takes a morsel from its pool and gives its only row to the last partition."""
    morsel = poll(home)
    while morsel == 0:
        pause()
        morsel = poll(home)
    words(offsets, parts + 1)[1] = 0
    set_free(home, morsel)


def filled_again(**options: Any) -> Scenario:
    """An input has a fragment in the first partition alone; the task that has made it takes its
    morsel again as soon as it is free."""
    model = Model(replaced={id(workers.advance): notes}, **options)
    tables = Tables(model, 1, workers=1, SCHEME=of.HYBRID)
    task = tables.task(of.PARTITIONED, size=2, queue=4, parts=2)
    home = tables.ring(4)
    morsel = tables.split_morsel(0, [1, 0], home)
    tables.give(task, [morsel])
    log = model.words(16 * 2)
    model.put(task, {of.COLUMNS: log})
    offsets = model.get(morsel, of_morsel.data_word(1))
    model.start(dispatch, tables.plan, task)
    model.start(works_on_parts, tables.plan, tables.worker(0), task, 1, 2)
    model.start(fills_again, home, offsets, 2)

    def final() -> None:
        require(model.get(task, of.MASTER_PUT) == 1, "a fragment too many")

    return model, final


def test_a_morsel_is_not_read_behind_its_last_fragment() -> None:
    explored(filled_again(mode="races"))
    change = Change(_add_input, "if count == 0:", "if count < 0:")
    assert problem(filled_again(mode="races", changes=[change]))


# -- no input is left behind -----------------------------------------------------------------------


def gives_one(plan: int, task: int, morsel: int) -> None:
    push(plan, port_at(task, 0), morsel)
    dispatch(plan, task)


def frees_one(plan: int, task: int) -> None:
    store_release(task + 8 * NEXT, 1)
    dispatch(plan, task)


def dispatching(given: int, **options: Any) -> Scenario:
    """A task with one slot: an input arrives after ``given`` (0 or 1) earlier inputs, whose slot
    becomes free at the same time."""
    model = Model(**options)
    tables = Tables(model, 1, SCHEME=of.HYBRID)
    task = tables.task(of.PARTITIONED, size=1, queue=2, parts=1)
    morsels = [tables.split_morsel(k, [1], 0) for k in range(2)]
    tables.give(task, morsels[:given])
    model.run(dispatch, tables.plan, task)
    model.start(gives_one, tables.plan, task, morsels[given])
    if given:
        model.start(frees_one, tables.plan, task)
    model.start(dispatch, tables.plan, task)

    def final() -> None:
        require(model.get(task, of.PUT) == given + 1, "one stays behind")

    return model, final


@pytest.mark.parametrize("mode", ["races", "x86"])
@pytest.mark.parametrize("given", [0, 1])
def test_dispatch_leaves_nothing(given: int, mode: str) -> None:
    explored(dispatching(given, mode=mode))
    again = "if full or ready_inputs(plan, task) == 0:\n            return"
    change = Change(dispatch, again, "return")
    assert problem(dispatching(given, mode=mode, changes=[change])) == "one stays behind"


# -- the end of a query ----------------------------------------------------------------------------


def holds_for_ever(plan: int, task: int) -> None:
    claim(plan, task, 0)


def ends(plan: int) -> None:
    store_release(plan + 8 * STOP, 1)


def held(**options: Any) -> Scenario:
    model = Model(**options)
    tables = Tables(model, 1, SCHEME=of.SHARED_QUEUE)
    task = tables.task(of.PARTITIONED, size=2, parts=1)
    tables.give(task, [tables.split_morsel(k, [1], 0) for k in range(2)])
    model.run(dispatch, tables.plan, task)
    for _ in range(2):
        model.start(holds_for_ever, tables.plan, task)
    model.start(ends, tables.plan)
    return model, lambda: None


def test_a_query_ends_though_a_partition_is_held() -> None:
    explored(held())
    change = Change(lock_of_partition, "load_relaxed(plan + 8 * STOP) != 0", "word == 0")
    assert problem(held(changes=[change])) == "from here on there is no end"
