"""Random queries whose runs stop at random morsels and continue from checkpoints, under random
runtimes.

``pytest tests/fuzz/test_random_run_checkpoints.py --full`` runs 29,800 cases, each as it was and
with other partitions: TRIES for each query and its rows, with other stops, texts and runtimes.
"""

from __future__ import annotations

import random
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from unittest.mock import patch

import pytest

from cql.errors import CqlError, NotSupportedError
from cql.executor.strings import compaction
from cql.planner.nodes.physical import (
    Physical,
    PhysicalPlan,
    SortExec,
    walk,
)
from cql.session.session import CqlWarning, Session
from tests.support.catalog_tools import blocks_of_eight
from tests.support.fuzz.random_asof_joins import asof_case
from tests.support.fuzz.random_cases import Case, make_case, open_session
from tests.support.fuzz.random_joins import join_case
from tests.support.fuzz.random_relation_joins import relation_join_case
from tests.support.fuzz.random_running import running_case
from tests.support.fuzz.random_table_joins import table_case
from tests.support.fuzz.random_unnest import unnest_case
from tests.support.relation_cases import subquery_case
from tests.support.run_checkpoints import plan_of, stop_and_continue
from tests.support.signals.random_queries import SignalCase, signal_case, signal_session
from tests.support.updates.arrivals import UpdateCase, update_case, update_session

#: By kind of query: the cases and the shapes of ``--full``; a shape costs up to a second to
#: compile.
FULL = {
    "of one stream": (12_000, 400),
    "joins": (3_000, 150),
    "asof joins": (1_600, 75),
    "lookup joins": (1_600, 75),
    "joins of relations": (2_000, 100),
    "subqueries": (1_600, 28),
    "lists": (1_000, 25),
    "running functions": (1_000, 25),
    "update streams": (3_000, 75),
    "signals": (3_000, 75),
}
TURNS = 25
TRIES = 8
MOST_FAILURES = 5
AnyCase = Case | UpdateCase | SignalCase
MAKE: dict[str, Callable[[int, int], AnyCase]] = {
    "of one stream": make_case,
    "joins": join_case,
    "asof joins": asof_case,
    "lookup joins": table_case,
    "joins of relations": relation_join_case,
    "subqueries": subquery_case,
    "lists": unnest_case,
    "running functions": running_case,
    "update streams": update_case,
    "signals": signal_case,
}


def outcomes(case: AnyCase, elsewhere: bool, tries: int) -> Counter[str]:
    """How many of the ``tries`` were the ``same``, or why there was nothing to compare.
    ``elsewhere``: the run continues with other partitions."""
    choice = random.Random(f"run checkpoint {case.seed}")
    small = case.piecewise or choice.random() < 0.5
    with (
        blocks_of_eight() if small else nullcontext(),
        patch.object(compaction, "LEAST", 0) if choice.random() < 0.3 else nullcontext(),
        _session(case) as session,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", CqlWarning)
        try:
            plan = plan_of(session, case.text, **case.params)
        except CqlError:
            return Counter({"refused": tries})
        plans = [(plan, dict(session.settings))]
        if elsewhere:
            if any(map(keeps_partitions, walk(plan.root))):
                return Counter({"keeps its partitions": tries})
            plans = list(divided(session, case))
        found: Counter[str] = Counter()
        for _ in range(tries):
            try:
                made = stop_and_continue(
                    *choice.choice(plans),
                    choice,
                    stops=choice.choice((1, 2, 3)),
                    others=plans,
                    partitions_differ=elsewhere,
                )
            except NotSupportedError:
                found["not saved yet"] += 1
            else:
                found["same" if made else "never stopped"] += 1
    return found


def _session(case: AnyCase) -> AbstractContextManager[Session]:
    if isinstance(case, UpdateCase):
        return update_session(case)
    return signal_session(case) if isinstance(case, SignalCase) else open_session(case)


def keeps_partitions(node: Physical) -> bool:
    """Whether the counts depend on partitions: top-n pushdown drops results in each of them."""
    return isinstance(node, SortExec) and node.limit is not None


def divided(session: Session, case: AnyCase) -> Iterator[tuple[PhysicalPlan, dict[str, Any]]]:
    """Plans of a case with several numbers of partitions, and their settings."""
    for partitions in (0, 1, 2, 3, 7, 64):
        session.set("runtime", "ordered" if partitions else "depth_first")
        session.set("partitions", partitions)
        session.set("workers", 1 + partitions % 3)
        yield plan_of(session, case.text, **case.params), dict(session.settings)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Divides the full counts among tests that take some minutes each."""
    if "turn" in metafunc.fixturenames:
        metafunc.parametrize("turn", range(TURNS if metafunc.config.getoption("--full") else 1))


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("elsewhere", [False, True], ids=["as it was", "with other partitions"])
@pytest.mark.parametrize("kind", MAKE)
def test_random_runs_continue(kind: str, elsewhere: bool, turn: int, full: bool, seed: int) -> None:
    count, shapes = (n // TURNS for n in FULL[kind]) if full else (3, 1)
    tries = TRIES if full else 1
    found: Counter[str] = Counter()
    failed = list[str]()
    for i in range(count // tries):
        case = MAKE[kind](turn * shapes + i % shapes, seed + i // shapes)
        try:
            found += outcomes(case, elsewhere, tries)
        except AssertionError as error:
            failed.append(f"{error}\n{case.describe()}")
            if len(failed) == MOST_FAILURES:
                break
    print(dict(found))
    assert not failed, "\n\n".join(failed)
    assert found["same"] >= count // (4 if elsewhere else 2)
