"""The simulation of tasks on Spark, with costs of which the times follow by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.spark_costs import Costs, Stage, WorkCosts, from_table, pieces_of, to_table
from benchmarks.spark_simulation import Setup, Times, fails, simulate

FREE = Costs(
    job=0.0,
    launch=0.0,
    schedule=0.0,
    receive=(0.0, 0.0),
    describe=(0.0, 0.0),
    footer=(0.0, 0.0),
    description=(0.0, 0.0),
    report=0.0,
    works={
        "by rows": WorkCosts(Stage(0.5, 1e-6), None, 2.0),
        "by time": WorkCosts(Stage(0.5, 1e-6, 0.25), None, 1.0),
        "by key": WorkCosts(Stage(0.5, 1e-6, 0.0, 0.01), Stage(0.0, 1e-6, 0.0, 0.01), 2.0),
    },
    spread=[1.0],
)


def test_cores_share_the_work() -> None:
    """80 tasks of a second each on 16 cores: two waves, of four and of one task a core."""
    times = simulate(Setup("by rows", 4e7, 80, 16), FREE)
    assert sum(times) == pytest.approx(times.work) == pytest.approx(5.0)
    assert simulate(Setup("by rows", 4e7, 81, 16), FREE).idle > 0.9


def test_the_driver_starts_tasks_one_after_the_other() -> None:
    costs = replace(FREE, schedule=0.2)
    times = simulate(Setup("by rows", 5e8, 1000, 1000, writes=True), costs)
    assert sum(times) == pytest.approx(1000 * 0.2 + 1.0)
    assert times.scheduling == pytest.approx(1000 * 0.2)


def test_what_the_driver_does_alone_is_added() -> None:
    costs = replace(FREE, job=1.0, receive=(0.25, 1e-6), describe=(0.5, 0.01), footer=(1.0, 0.1))
    times = simulate(Setup("by rows", 4e7, 8, 1), costs)
    work = 8 * (0.5 + 5.0)
    assert times == pytest.approx(
        Times(4 * 1.0 + 40 * 0.1, 8 * 0.5 + 40 * 0.01, 2.0, work, 0.0, 8 * 0.25 + 80.0)
    )


def test_a_shuffle_has_pieces_from_each_first_to_each_second_task() -> None:
    assert pieces_of(4e6, 4, 8) == pytest.approx(4 * 16 * 8, rel=0.01)
    assert pieces_of(4e6, 4, 4_000_000) == pytest.approx(4e6, rel=0.15)  # of one row each
    times = simulate(Setup("by key", 4e6, 4, 4, writes=True), FREE)
    pieces = pieces_of(4e6, 4, 4)
    assert times.work == pytest.approx(0.5 + 2 * (1.0 + pieces / 4 * 0.01))


def test_results_that_the_driver_refuses() -> None:
    setup = Setup("by rows", 1e12, 100_000, 1000)
    assert "maxResultSize" in fails(setup, FREE)
    assert fails(replace(setup, writes=True), FREE) == ""
    assert fails(replace(setup, rows=1e9), FREE) == ""


def test_costs_are_kept_in_a_table() -> None:
    again = to_table(from_table(to_table(FREE)))
    assert again == pytest.approx(to_table(FREE))
    assert from_table(again).works["by rows"].split is None
