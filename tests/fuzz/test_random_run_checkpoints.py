"""Random queries whose runs stop at random morsels and continue from checkpoints, under random
runtimes.

``pytest tests/fuzz/test_random_run_checkpoints.py --full`` runs 20,000 cases.
"""

from __future__ import annotations

import random
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from unittest.mock import patch

import pytest

from cql.errors import CqlError, NotSupportedError
from cql.executor.strings import compaction
from cql.session.session import CqlWarning
from tests.support.catalog_tools import blocks_of_eight
from tests.support.fuzz.random_asof_joins import asof_case
from tests.support.fuzz.random_cases import Case, make_case, open_session
from tests.support.fuzz.random_joins import join_case
from tests.support.fuzz.random_relation_joins import relation_join_case
from tests.support.fuzz.random_table_joins import table_case
from tests.support.run_checkpoints import plan_of, stop_and_continue

#: By kind of query: the cases and the shapes of ``--full``; a shape costs up to a second to
#: compile.
FULL = {
    "of one stream": (12_000, 400),
    "joins": (3_000, 150),
    "asof joins": (1_500, 75),
    "lookup joins": (1_500, 75),
    "joins of relations": (2_000, 100),
}
MAKE: dict[str, Callable[[int, int], Case]] = {
    "of one stream": make_case,
    "joins": join_case,
    "asof joins": asof_case,
    "lookup joins": table_case,
    "joins of relations": relation_join_case,
}


def outcome(case: Case) -> str:
    """``same``, or why there was nothing to compare."""
    choice = random.Random(f"run checkpoint {case.seed}")
    small = case.piecewise or choice.random() < 0.5
    with (
        blocks_of_eight() if small else nullcontext(),
        patch.object(compaction, "LEAST", 0) if choice.random() < 0.3 else nullcontext(),
        open_session(case) as session,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", CqlWarning)
        try:
            plan = plan_of(session, case.text, **case.params)
        except CqlError:
            return "refused"
        try:
            stops = choice.choice((1, 2, 3))
            made = stop_and_continue(plan, session.settings, choice, stops=stops)
        except NotSupportedError:
            return "not saved yet"
    return "same" if made else "never stopped"


@pytest.mark.slow
@pytest.mark.parametrize("kind", MAKE)
def test_random_runs_continue(kind: str, full: bool, seed: int) -> None:
    count, shapes = FULL[kind] if full else (3, 1)
    outcomes: Counter[str] = Counter()
    for i in range(count):
        case = MAKE[kind](i % shapes, seed + i // shapes)
        try:
            outcomes[outcome(case)] += 1
        except AssertionError as error:
            pytest.fail(f"{error}\n{case.describe()}", pytrace=False)
    print(dict(outcomes))
    assert outcomes["same"] >= count // 2
