"""The simulated ordered runtime: laws that hold under all settings, and results that can be
computed by hand."""

from __future__ import annotations

import itertools
import random
from dataclasses import astuple, replace

import numpy as np
import pytest

from benchmarks.multicore_model import (
    HYBRID,
    LOCK_BASED,
    NEAR,
    NON_BLOCKING,
    PARTITIONED,
    QUEUES,
    SERIAL,
    SHARED,
    STATELESS,
    Machine,
    Simulated,
    Task,
)
from benchmarks.multicore_near import nearest
from benchmarks.multicore_simulation import simulate
from cql.executor.kernels.ordered import schedulers

SCHEDULERS = ("ct", "lp", "et", "qst", "ct_printed", NEAR)
FREE = Machine(1, choose=0, take=0, contend=0, send=0, lock=0, handover=0, wake=0)
EIGHT = (0.125,) * 8
SKEWED = (0.6, 0.2, 0.1, 0.1)


def drawn(rng: random.Random) -> list[Task]:
    """A random chain of tasks of all kinds."""
    chain: list[Task] = []
    for _ in range(rng.randint(1, 5)):
        kind = rng.choice((STATELESS, SERIAL, PARTITIONED))
        shares = rng.choice((EIGHT, SKEWED)) if kind == PARTITIONED else ()
        many = all(s.selectivity <= 1 for s in chain)
        selectivity = rng.choice((0, 0.3, 1, 1, 2.5, 7) if many else (0, 0.3, 1, 1))
        cost = rng.choice((100.0, 2e4))
        task = Task(kind, cost, selectivity, rng.choice((0, 1)), shares)
        if kind == PARTITIONED:
            task = replace(task, scattered=rng.random() < 0.5, fragment=10.0)
        chain.append(replace(task, fetch=rng.choice((0, 500)), host=kind == SERIAL))
    return chain


def machines(rng: random.Random, n: int) -> list[Machine]:
    every = itertools.product(
        (1, 2, 5, 16), SCHEDULERS, (HYBRID, QUEUES, SHARED), (NON_BLOCKING, LOCK_BASED)
    )
    made = []
    for workers, scheduler, worklist, reorder in rng.sample(list(every), n):
        machine = Machine(workers, scheduler, worklist, reorder, slice=rng.choice((1e3, 1e6)))
        deep = rng.random() < 0.3
        leader, interval = rng.random() < 0.3, rng.choice((0.0, 2e4))
        places = {"places": 1000, "slots": 64} if deep else {}
        group = rng.choice((0, 2))
        machine = replace(machine, leader=leader, interval=interval, group=group, **places)
        if leader:  # the leader reads while other workers find no work and fall asleep
            read, looks = rng.choice((0.0, 3e5)), rng.choice((1e3, 1e5))
            machine = replace(machine, read=read, looks=looks, rouse=1e4)
        made.append(machine)
    return made


def outputs(chain: list[Task], morsels: int) -> list[int]:
    """The number of inputs of each task, then the number of outputs of the last task."""
    counts = [morsels]
    for task in chain:
        counts.append(int(counts[-1] * task.selectivity + 1e-9))
    return counts


def check(chain: list[Task], machine: Machine, morsels: int, found: Simulated) -> None:
    counts = outputs(chain, morsels)
    assert [t.inputs for t in found.tasks] == counts[:-1]
    assert [t.outputs for t in found.tasks] == counts[1:]
    assert len(found.order) == counts[-1]
    assert found.order == sorted(found.order)  # the order of the inputs
    assert not np.isnan(found.left).any()
    assert (np.diff(found.left) >= 0).all()  # markers do not overtake each other
    assert (found.left > found.entered).all()
    # a worker works on a task, is idle, or looks for a task
    assert len(found.busy) == machine.workers
    for busy, idle in zip(found.busy, found.idle, strict=True):
        assert busy + idle <= found.time * (1 + 1e-9)
    # work that is unfinished at the end is not counted
    assert sum(t.busy for t in found.tasks) == pytest.approx(sum(found.busy))


@pytest.mark.parametrize("case", range(12))
def test_nothing_is_lost_and_all_leaves_in_order(case: int, seed: int) -> None:
    rng = random.Random(f"{seed} {case}")
    chain, morsels = drawn(rng), rng.choice((1, 7, 60))
    answers = set()
    for machine in machines(rng, 12):
        found = simulate(chain, machine, morsels, seed=seed)
        check(chain, machine, morsels, found)
        answers.add(tuple(found.order))
        again = simulate(chain, machine, morsels, seed=seed)
        assert found.time == again.time
        assert np.array_equal(found.left, again.left)
        assert (found.order, found.tasks, found.busy) == (
            again.order,
            again.tasks,
            again.busy,
        )
    assert len(answers) == 1  # settings change times, not the output


def test_another_seed_is_another_run() -> None:
    chain = [Task(STATELESS, 1000, variation=1)]
    one, other = (simulate(chain, FREE, 50, seed=s).time for s in (1, 2))
    assert one != other


CHAIN = [
    Task(STATELESS, 4000),
    Task(PARTITIONED, 3000, shares=EIGHT),
    Task(SERIAL, 1000),
]


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("worklist", [HYBRID, QUEUES, SHARED])
@pytest.mark.parametrize("reorder", [NON_BLOCKING, LOCK_BASED])
def test_one_worker_takes_the_sum_of_the_costs(scheduler: str, worklist: str, reorder: str) -> None:
    machine = replace(FREE, scheduler=scheduler, worklist=worklist, reorder=reorder)
    found = simulate(CHAIN, machine, 200)
    assert found.time == pytest.approx(200 * 8000)
    assert found.throughput == pytest.approx(1e9 / 8000)
    assert [t.cost for t in found.tasks] == pytest.approx([4000, 3000, 1000])


def test_every_step_has_its_cost() -> None:
    """One worker pays for each input that it takes, for the work on it, and for each output that it
    sends; with long slices it looks for a task rarely."""
    chain = [Task(STATELESS, 1000, selectivity=3), Task(SERIAL, 100)]
    machine = replace(FREE, take=10, send=20)
    found = simulate(chain, machine, 90)
    assert found.time == pytest.approx(90 * (1000 + 10 + 3 * (20 + 100 + 10 + 20)))
    looks = simulate(chain, replace(machine, choose=7), 90).time - found.time
    assert looks > 0
    assert looks % 7 == pytest.approx(0)


@pytest.mark.parametrize("task", [Task(STATELESS, 5000), Task(PARTITIONED, 5000, shares=EIGHT)])
@pytest.mark.parametrize("workers", [2, 4])
def test_independent_work_is_shared(task: Task, workers: int) -> None:
    found = simulate([task], replace(FREE, workers=workers), 800)
    assert found.time == pytest.approx(800 * 5000 / workers, rel=0.06)


def test_a_serial_task_bounds_the_speedup() -> None:
    """Amdahl's law: with enough workers the serial task works all the time and sets the pace."""
    for workers in (1, 2, 4, 8, 16):
        found = simulate(CHAIN, replace(FREE, workers=workers), 800)
        assert found.time * min(workers, 8) * 1.001 >= 800 * 8000
        assert 800 * 8000 / found.time == pytest.approx(min(workers, 8), rel=0.12)


def test_python_runs_one_task_at_a_time() -> None:
    chain = [Task(SERIAL, 1000, host=True), Task(SERIAL, 1000, host=True)]
    both = simulate(chain, replace(FREE, workers=2), 100)
    assert both.time == pytest.approx(100 * 2000)
    free = [replace(task, host=False) for task in chain]
    assert simulate(free, replace(FREE, workers=2), 100).time == pytest.approx(101 * 1000)


def test_a_partition_is_worked_on_by_one() -> None:
    chain = [Task(PARTITIONED, 1000, shares=(1.0, 0.0))]
    for worklist in (HYBRID, QUEUES, SHARED):
        found = simulate(chain, replace(FREE, workers=4, worklist=worklist), 100)
        assert found.time == pytest.approx(100 * 1000)


def test_skew_holds_up_queues_without_an_order() -> None:
    """Figure 9: one queue per worker, with most inputs in one of the queues, is slower than the
    hybrid queue with finer partitions."""
    fine = (0.6 / 8,) * 8 + (0.4 / 24,) * 24
    hybrid = simulate([Task(PARTITIONED, 1e4, shares=fine)], Machine(4), 400)
    queues = [Task(PARTITIONED, 1e4, shares=SKEWED)]
    partitioned = simulate(queues, Machine(4, worklist=QUEUES), 400)
    assert hybrid.throughput > 1.5 * partitioned.throughput
    assert hybrid.latency < partitioned.latency


def test_who_waits_for_whom() -> None:
    """Without locks no worker waits, except a worker that holds an output without a slot
    (figure 4)."""
    chain = [Task(STATELESS, 1000, 10, variation=1), Task(STATELESS, 100)]
    machine = Machine(8, places=10_000, slots=64)
    waits = {}
    for name, settings in {
        "none": {},
        "lock": {"reorder": LOCK_BASED},
        "slot": {"slots": 8, "retries": True},
        "taken": {"slots": 8},
    }.items():
        totals = simulate(chain, replace(machine, **settings), 300).tasks[0]
        waits[name] = totals.lock_wait > 0, totals.slot_wait > 0
    assert waits == {
        "none": (False, False),
        "lock": (True, False),
        "slot": (False, True),
        "taken": (False, False),
    }


def test_workers_can_wait_for_each_other() -> None:
    """Workers that may take inputs without a slot can deadlock: each holds an output that waits for
    an input in a queue that no worker works on. The engine therefore takes no such input."""
    chain = [Task(PARTITIONED, 1000, shares=EIGHT)]
    machine = Machine(2, worklist=QUEUES, slots=2, places=1000, retries=True)
    with pytest.raises(RuntimeError, match="no worker can go on"):
        simulate(chain, machine, 400)
    assert simulate(chain, replace(machine, retries=False), 400).order == list(range(400))


def test_a_stream_comes_at_its_pace() -> None:
    machine = replace(FREE, workers=2, interval=5000)
    found = simulate([Task(STATELESS, 1000)], machine, 50)
    assert found.entered.tolist() == [5000 * k for k in range(50)]
    assert found.latency == 1000


@pytest.mark.parametrize(("looks", "waits"), [(1e6, 20), (1000, 700)])
def test_who_finds_nothing_for_long_sleeps(looks: float, waits: float) -> None:
    """A morsel arrives every 5 µs and takes 1 µs of work: a worker that is awake sees it at once, a
    sleeping worker has to be woken."""
    machine = replace(FREE, interval=5000, wake=20, looks=looks, rouse=700)
    found = simulate([Task(STATELESS, 1000)], machine, 50)
    assert found.entered[1:].tolist() == [5000 * k + waits for k in range(1, 50)]


def test_morsels_are_timed_from_any_task() -> None:
    found = simulate(CHAIN, FREE, 50, timed=2)
    assert (found.left - found.entered == 1000).all()


def test_what_others_made_is_fetched() -> None:
    chain = [Task(STATELESS, 1000), Task(STATELESS, 1000, fetch=300)]
    near = simulate(chain, replace(FREE, workers=4), 400)
    far = simulate(chain, replace(FREE, workers=4, group=2, far=9), 400)
    assert astuple(simulate(chain, FREE, 10).tasks[1])[:3] == (10, 10, 10_000)
    assert 1000 < near.tasks[1].cost <= 1300 < far.tasks[1].cost


def test_the_nearest() -> None:
    """Without distances it picks the task that CT picks; with distances it picks the nearest
    task."""
    rng = np.random.default_rng(4)
    for _ in range(200):
        numbers = rng.integers(0, 50, (4, schedulers.OF))
        ct = schedulers.current_throughput(numbers, 10, 7, 0)
        assert nearest(numbers, [0.0] * 4, 10, 7) == ct
        waiting = np.flatnonzero(numbers[:, schedulers.WAITING])
        if len(waiting) and (numbers[waiting, schedulers.RECENT] > 0).all():
            last = int(waiting[-1])
            farther = [1e9] * 4
            farther[last] = -1e9
            assert nearest(numbers, farther, 10, 7) == last
