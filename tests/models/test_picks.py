"""The scheduling heuristics: each chooses the task that a plain implementation of the
ordered-multicore paper's section 6 (equations 1-3) chooses on random tables, and the task that its
text names in particular cases."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from cql.executor.kernels.ordered import schedulers
from cql.executor.kernels.ordered import tables as tasks
from cql.executor.kernels.ordered.choice import expect, waits
from cql.executor.kernels.ordered.schedulers import (
    AHEAD,
    COUNT,
    CT,
    CT_PRINTED,
    ET,
    INPUTS,
    LP,
    NONE,
    OUTPUTS,
    QST,
    RECENT,
    TIME,
    WAITING,
    WORKERS,
)
from tests.support.models.interleave import Model
from tests.support.models.ordered_tables import Tables

SLICE = 100_000
CAPACITY = 64
TABLES = 2_000


def table(*rows: dict[int, int]) -> Any:
    numbers = np.zeros((len(rows), schedulers.OF), np.int64)
    for s, row in enumerate(rows):
        for k, value in row.items():
            numbers[s, k] = value
    return numbers


def pick(policy: int, numbers: Any, *, least: int = 1, admitted: int = 1) -> int:
    return int(schedulers.pick(policy, numbers, least, CAPACITY, SLICE, admitted))


def pipeline(rng: random.Random) -> tuple[Any, int]:
    """A random pipeline of tasks, and the number of admitted morsels. Each task has read all
    outputs of the task before it. One task in four is not schedulable."""
    count = admitted = rng.randint(1_000_000, 9_000_000)
    rows = []
    for _ in range(rng.randint(1, 6)):
        made = int(count * rng.choice((0.1, 0.5, 1, 1, 3, 50)))
        rows.append(
            {
                WAITING: rng.choice((0, rng.randint(1, 9), rng.randint(1, 99), 200)),
                WORKERS: rng.randint(0, 4),
                TIME: count * rng.randint(200, 90_000),
                COUNT: count,
                OUTPUTS: made,
                RECENT: rng.choice((0, rng.randint(1, 10**7))),
                AHEAD: rng.randint(0, CAPACITY),
                INPUTS: count,
            }
        )
        count = made
    return table(*rows), admitted


# -- the equations ---------------------------------------------------------------------------------


def schedulable(numbers: Any) -> list[int]:
    return [s for s in range(len(numbers)) if numbers[s, WAITING] > 0]


def cost(numbers: Any, s: int) -> Fraction:
    """c: nanoseconds per input."""
    return Fraction(int(numbers[s, TIME]), int(numbers[s, COUNT]))


def cumulative(numbers: Any, s: int) -> Fraction:
    """cs: the product of the selectivities since ingress."""
    product = Fraction(1)
    for k in range(s + 1):
        product *= Fraction(int(numbers[k, OUTPUTS]), int(numbers[k, COUNT]))
    return product


def threshold(numbers: Any, s: int) -> Fraction:
    """Equation 1: the threshold of QST, in outputs."""
    total = sum(cumulative(numbers, k) for k in range(len(numbers)))
    return CAPACITY * cumulative(numbers, s) / total


def priority(numbers: Any, s: int) -> Fraction:
    """Equation 2, for a schedulable task."""
    return int(numbers[s, WAITING]) * cost(numbers, s) / int(numbers[s, WORKERS] + 1)


def effective(numbers: Any, s: int) -> Fraction:
    """Equation 3, as meant: the number of admitted morsels that a task has processed."""
    time = int(numbers[s, RECENT] + numbers[s, WORKERS] * SLICE)
    return time / (cost(numbers, s) * cumulative(numbers, s - 1))


def effective_as_printed(numbers: Any, s: int) -> Fraction:
    time = int(numbers[s, RECENT] + numbers[s, WORKERS] * SLICE)
    return time / (cost(numbers, s) * cumulative(numbers, s))


#: Relative tolerance: a policy adds 1 to counts of about a million.
NEAR = Fraction(1, 10_000)


@pytest.mark.parametrize(
    ("policy", "of"), [(CT, effective), (CT_PRINTED, effective_as_printed)], ids=["ct", "printed"]
)
def test_ct_takes_the_lowest_normalised_throughput(policy: int, of: Any, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(TABLES):
        numbers, admitted = pipeline(rng)
        picked = pick(policy, numbers, admitted=admitted)
        among = {s: of(numbers, s) for s in schedulable(numbers)}
        if not among:
            assert picked == NONE
        else:
            assert among[picked] <= min(among.values()) * (1 + NEAR), numbers


def test_et_takes_the_worklist_that_would_take_longest(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(TABLES):
        numbers, _ = pipeline(rng)
        picked = pick(ET, numbers)
        among = {s: priority(numbers, s) for s in schedulable(numbers)}
        if not among:
            assert picked == NONE
        else:
            assert among[picked] >= max(among.values()) * (1 - NEAR), numbers


def test_qst_takes_the_earliest_below_its_threshold(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(TABLES):
        numbers, admitted = pipeline(rng)
        picked = pick(QST, numbers, admitted=admitted)
        among = schedulable(numbers)
        limits = {s: threshold(numbers, s) for s in among}
        if any(abs(limits[s] - int(numbers[s, AHEAD])) < NEAR for s in among):
            continue  # floats may differ
        below = [s for s in among if numbers[s, AHEAD] < limits[s]]
        expected = below[0] if below else among[-1] if among else NONE
        assert picked == expected, numbers


@pytest.mark.parametrize("least", [1, 2, 64])
def test_lp_takes_the_latest_that_waits(least: int, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(TABLES):
        numbers, _ = pipeline(rng)
        among = schedulable(numbers)
        enough = [s for s in among if numbers[s, WAITING] >= least]
        assert pick(LP, numbers, least=least) == (enough or among or [NONE])[-1], numbers


# -- cases that the paper's text describes ---------------------------------------------------------

POLICIES = {"ct": CT, "et": ET, "lp": LP, "qst": QST, "ct_printed": CT_PRINTED}


@pytest.mark.parametrize("policy", POLICIES)
def test_nothing_is_taken_where_nothing_waits(policy: str) -> None:
    busy = {WAITING: 0, COUNT: 9, TIME: 900, OUTPUTS: 9}
    assert pick(POLICIES[policy], table(busy, busy), admitted=9) == NONE
    assert pick(POLICIES[policy], table(busy, {**busy, WAITING: 1}, busy), admitted=9) == 1


@pytest.mark.parametrize("policy", POLICIES)
def test_the_first_morsel_is_taken_before_anything_is_known(policy: str) -> None:
    assert pick(POLICIES[policy], table({WAITING: 1}, {}, {}), admitted=0) == 0


def test_lp_goes_upstream_where_worklists_are_shorter_than_the_minimum() -> None:
    numbers = table({WAITING: 5}, {WAITING: 4}, {WAITING: 1})
    assert [pick(LP, numbers, least=least) for least in (1, 2, 4, 5)] == [2, 1, 1, 0]
    assert pick(LP, numbers, least=6) == 2  # the rest at the end of the input


def test_qst_stops_at_the_threshold() -> None:
    """Of two tasks with equal selectivity, the threshold of each is half the capacity."""
    known = {WAITING: 1, COUNT: 10, OUTPUTS: 10}
    for ahead, picked in ((0, 0), (CAPACITY // 2 - 1, 0), (CAPACITY // 2, 1)):
        assert pick(QST, table({**known, AHEAD: ahead}, known), admitted=10) == picked


def test_qst_goes_on_where_all_are_above_their_thresholds() -> None:
    full = {WAITING: 1, COUNT: 10, OUTPUTS: 10, AHEAD: CAPACITY}
    assert pick(QST, table(full, full, {**full, WAITING: 0}), admitted=10) == 1


def test_qst_lets_what_emits_next_to_nothing_emit_one() -> None:
    """The threshold of a task that rarely emits is above zero outputs and below one output."""
    rare = {WAITING: 1, COUNT: 1000, OUTPUTS: 1}
    often = {WAITING: 1, COUNT: 1000, OUTPUTS: 50_000}
    assert pick(QST, table(rare, often), admitted=1000) == 0
    assert pick(QST, table({**rare, AHEAD: 1}, often), admitted=1000) == 1


def test_et_shares_a_worklist_among_the_workers_at_it() -> None:
    one = {WAITING: 6, COUNT: 1000, TIME: 10**6}
    assert pick(ET, table(one, {**one, WAITING: 4})) == 0
    assert pick(ET, table({**one, WORKERS: 1}, {**one, WAITING: 4})) == 1
    assert pick(ET, table({**one, WORKERS: 1}, {**one, WAITING: 4, WORKERS: 1})) == 0


def test_et_compares_by_length_what_has_no_cost_yet() -> None:
    assert pick(ET, table({WAITING: 1}, {WAITING: 9}, {WAITING: 8})) == 1


@pytest.mark.parametrize("policy", [CT, CT_PRINTED])
def test_ct_counts_the_slices_of_the_workers_at_it(policy: int) -> None:
    one = {WAITING: 1, COUNT: 1000, INPUTS: 1000, TIME: 10**6, OUTPUTS: 1000, RECENT: SLICE}
    more = {**one, RECENT: 2 * SLICE - 1}
    assert pick(policy, table(one, more), admitted=1000) == 0
    assert pick(policy, table({**one, WORKERS: 1}, more), admitted=1000) == 1


def test_ct_goes_by_what_an_operator_has_to_do_and_not_by_what_comes_of_it() -> None:
    """CT counts the admitted morsels that a task has processed; the task's own selectivity does not
    matter. One of the two tasks has one output for ten inputs."""
    all_of_it = {WAITING: 1, COUNT: 10**6, INPUTS: 10**6, TIME: 10**9, OUTPUTS: 10**6}
    selective = {**all_of_it, OUTPUTS: 10**5}
    numbers = table({**all_of_it, RECENT: 5 * SLICE}, {**selective, RECENT: SLICE})
    assert pick(CT, numbers, admitted=10**6) == 1
    assert pick(CT_PRINTED, numbers, admitted=10**6) == 0


def test_ct_goes_back_to_what_it_left_behind() -> None:
    """CT counts waiting inputs as work: the task that is behind has processed a tenth of them."""
    level = {WAITING: 1, COUNT: 10**6, INPUTS: 10**6, TIME: 10**9, RECENT: 3 * SLICE}
    behind = {**level, WAITING: 9 * 10**5, COUNT: 10**5, TIME: 10**8}
    assert pick(CT, table(level, behind), admitted=10**6) == 0
    assert pick(CT, table(level, {**behind, RECENT: 2 * SLICE}), admitted=10**6) == 1


@pytest.mark.parametrize("count", [9, 999])
def test_the_printed_equation_divides_by_no_zero(count: int) -> None:
    """A task without outputs is rated as if its next input had the first output."""
    other = {WAITING: 1, COUNT: 999, TIME: 999_000, OUTPUTS: 999}
    silent = {WAITING: 1, COUNT: count, TIME: 1000 * count, OUTPUTS: 0, RECENT: SLICE}
    once = {WAITING: 1, COUNT: count + 1, TIME: 1000 * (count + 1), OUTPUTS: 1, RECENT: SLICE}
    for recent, picked in ((500 * SLICE, 1), (2000 * SLICE, 0)):
        for row in (silent, once):
            both = table(row, {**other, RECENT: recent})
            assert pick(CT_PRINTED, both, admitted=999) == picked
    both = table({**silent, RECENT: 0}, {**other, RECENT: 1})
    assert pick(CT_PRINTED, both, admitted=999) == 0


# -- estimates -------------------------------------------------------------------------------------


def test_what_comes_of_all_that_was_admitted() -> None:
    """Estimated inputs and outputs of a task for each of two inputs, of their join in three
    partitions, and of two tasks that both read the join; one of these has no output yet."""
    model = Model()
    tables = Tables(model, 5)
    made = [
        tables.task(tasks.STATELESS, edges=[(2, 0)]),
        tables.task(tasks.STATELESS, edges=[(2, 1)]),
        tables.task(tasks.PARTITIONED, ports=(0, 1), edges=[(3, 0), (4, 0)], parts=3),
        tables.task(tasks.SERIAL_ONE, ports=(2,), edges=[(-1, 0)]),
        tables.task(tasks.SERIAL_ONE, ports=(2,), edges=[(-1, 0)]),
    ]
    for task, given in zip(made, ([100], [60], [25, 600], [2], [2]), strict=True):
        for port, n in enumerate(given):
            model.put(tables.port(task, port), {tasks.GIVEN: n})
    model.put(made[0], {tasks.NEXT: 50})  # 50 inputs done, 50 wait; 25 outputs: 0.5 per input
    model.put(made[1], {tasks.NEXT: 60})  # 60 inputs done; 600 outputs: 10 per input
    model.put(made[2], {tasks.NEXT: 8, tasks.PUT: 10, tasks.MASTER_PUT: 25})
    model.put(made[3], {tasks.NEXT: 1, tasks.MADE: 3})
    model.put(made[4], {tasks.NEXT: 2})
    numbers = np.zeros((len(made), schedulers.OF), np.int64)
    for k in range(len(made)):
        model.run(expect, tables.plan, k, numbers)
    found = numbers[:, [INPUTS, OUTPUTS]].tolist()
    joined = round((50 + 600) * 2 / 8 + 0.1)
    assert found[:2] == [[100, 50], [60, 600]]
    assert found[2] == [650 * 25 // 10, joined]
    assert found[3:] == [[joined, 3 * joined], [joined, round(joined / 2 + 0.1)]]


# -- schedulable tasks -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [tasks.STATELESS, tasks.SERIAL_ONE, tasks.PARTITIONED])
def test_a_task_with_all_its_workers_has_nothing_waiting(kind: int) -> None:
    """A task with M workers is not schedulable (w < M of equation 2). M is 1 for a serial task, the
    number of partitions for a partitioned one, the number of workers for a stateless one."""
    most = 1 if kind == tasks.SERIAL_ONE else 3
    for at_it in range(most + 1):
        model = Model()
        tables = Tables(model, 1)
        task = tables.task(kind, parts=3 if kind == tasks.PARTITIONED else 0)
        limits = {tasks.MOST: most, tasks.ALLOTTED: at_it}
        model.put(task, {**limits, tasks.MASTER_PUT: 1, tasks.POOL: tables.pool(1)})
        tables.give(task, [tables.morsel(0)])
        assert model.run(waits, tables.plan, task) == (1 if at_it < most else 0)
