"""Random queries that stop at a random morsel and continue from a checkpoint.

``pytest tests/fuzz/test_random_checkpoints.py --full`` runs 2,000 cases over all shapes.
"""

from __future__ import annotations

import random
import warnings
from collections import Counter

import pytest

from cql.errors import CqlError, NotSupportedError
from cql.session.session import CqlWarning
from tests.support.catalog_tools import blocks_of_eight
from tests.support.checkpoints import stop_and_continue
from tests.support.fuzz.random_cases import Case, make_case, open_session
from tests.support.fuzz.random_joins import join_case

QUICK, FULL = (6, 1), (2_000, 150)  # cases, shapes: a shape costs up to a second to compile


def outcome(case: Case) -> str:
    """``same``, or why there was nothing to compare."""
    choice = random.Random(f"checkpoint {case.seed}")
    with open_session(case) as session, warnings.catch_warnings(), blocks_of_eight():
        warnings.simplefilter("ignore", CqlWarning)
        try:
            root = session.sql(case.text, **case.params)._plan.root
        except CqlError:
            return "refused"
        try:
            stop_and_continue(root, choice.choice((7, 64)), choice)
        except NotSupportedError:
            return "not saved yet"
        except CqlError:
            return "failed"
    return "same"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["of one stream", "joins"])
def test_random_queries_continue(kind: str, full: bool, seed: int) -> None:
    count, shapes = FULL if full else QUICK
    make = make_case if kind == "of one stream" else join_case
    outcomes: Counter[str] = Counter()
    for i in range(count):
        case = make(i % shapes, seed + i // shapes)
        try:
            outcomes[outcome(case)] += 1
        except AssertionError as error:
            pytest.fail(f"{error}\n{case.describe()}", pytrace=False)
    print(dict(outcomes))
    assert outcomes["same"] > count // 2
