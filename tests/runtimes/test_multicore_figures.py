"""The data of the figures of the ordered-multicore paper: runs that time marked morsels, and
pipelines that are simulated with the measured costs."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from benchmarks.multicore_model import HYBRID, PARTITIONED, QUEUES, SERIAL, STATELESS
from benchmarks.multicore_operators import gaussian, range_shares
from benchmarks.multicore_queries import total
from benchmarks.multicore_runs import Run, chain_of, first, partitions, run, whole
from benchmarks.multicore_tuples import keys_of, session_of, tuples

QUERY = "SELECT k, sum(x) AS y FROM s [RANGE 1 DAY SLIDE 1 DAY WA ts] GROUP BY k"
#: Number of tuples of each of eight partitions.
COUNTS = (1, 0, 7, 3, 20, 0, 2, 5)


@pytest.fixture(scope="module")
def made() -> dict[tuple[int, str], Run]:
    """Runs by workers and worklist; a tuple has four rows."""
    keys = np.repeat(keys_of(8), COUNTS)
    np.random.default_rng(5).shuffle(keys)
    table = tuples(keys, 4)
    settings = {"morsel_rows": 4, "partitions": 8}
    with session_of(table) as session:
        return {
            (n, worklist): run(
                session, QUERY, len(table), partitions, workers=n, worklist=worklist, **settings
            )
            for n, worklist in ((1, HYBRID), (2, HYBRID), (2, QUEUES))
        }


def test_tasks_tell_what_they_did(made: dict[tuple[int, str], Run]) -> None:
    tuples_in = sum(COUNTS)
    for each in made.values():
        assert each.answer.equals(made[1, HYBRID].answer)
        split, parted, last = each.uses
        assert [split.kind, parted.kind, last.kind] == [STATELESS, PARTITIONED, STATELESS]
        # the end of the input is a morsel of its own
        assert split.inputs == split.outputs == parted.inputs == tuples_in + 1
        assert split.borrows
        assert not split.host
        assert list(parted.parts) == [4 * n for n in COUNTS]  # each key is in its partition
        assert parted.fragments >= tuples_in
        assert all(use.busy > 0 for use in each.uses)
        assert each.path == each.uses


def test_morsels_are_timed_on_their_way(made: dict[tuple[int, str], Run]) -> None:
    for each in made.values():
        assert 0 < each.latency < 1e9 * each.seconds
        assert each.pace > 0
        assert each.throughput == pytest.approx(4 * sum(COUNTS) / each.seconds)


def test_morsels_are_timed_between_any_tasks(made: dict[tuple[int, str], Run]) -> None:
    """Morsels leave the first task earlier than the last task."""
    table = tuples(np.repeat(keys_of(8), COUNTS), 4)
    with session_of(table) as session:
        at_first, at_last = (
            run(session, QUERY, len(table), ends, workers=1, morsel_rows=4, partitions=8)
            for ends in (first, whole)
        )
    assert 0 < at_first.latency < at_last.latency


def test_what_is_simulated_takes_what_was_measured(made: dict[tuple[int, str], Run]) -> None:
    one = made[1, HYBRID]
    chain = chain_of(one, one, 8, 0.0)
    assert [task.kind for task in chain] == [STATELESS, PARTITIONED, STATELESS]
    assert [task.shows for task in chain] == [True, False, True]
    assert chain[1].shares == pytest.approx(np.array(COUNTS) / sum(COUNTS))
    assert chain[0].selectivity == 1
    alone = sum(use.busy for use in one.uses) / one.uses[0].inputs
    assert total(chain) == pytest.approx(alone, rel=0.01)
    kinds = [STATELESS, PARTITIONED, SERIAL]
    assert [task.kind for task in chain_of(one, one, 4, 0.0, kinds)] == kinds


def test_ranges_of_a_gaussian() -> None:
    for sigma in (0.2, 2.0):
        drawn, shares = gaussian(20_000, sigma), range_shares(8, sigma)
        assert sum(shares) == pytest.approx(1)
        assert all(a < b for a, b in pairwise(shares[:4]))
        found = np.histogram(drawn, np.linspace(-1, 1, 9))[0] / drawn.size
        assert found == pytest.approx(np.array(shares), abs=0.012)
