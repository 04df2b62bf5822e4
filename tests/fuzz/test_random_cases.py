"""Random cases against the reference. A failing case prints its name and shrinks.

``pytest tests/fuzz/test_random_cases.py --full`` runs 10,000 cases over all 300 shapes.
``--seed N`` repeats the cases of a seed; ``python -m tests.support.fuzz.random_cases SHAPE:SEED``
runs one case.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support.fuzz import random_cases
from tests.support.fuzz.random_cases import Case, cases, check, failing, make_case, shrink
from tests.support.fuzz.random_data import SCHEMAS, to_table
from tests.support.fuzz.random_shapes import SHAPES, shape

QUICK = (12, 2)  # cases, shapes: a shape costs up to a second to compile
FULL = (10_000, SHAPES)


def _report(case: Case) -> str:
    small = shrink(case, failing, tries=150)
    try:
        check(small)
    except AssertionError as error:
        return f"{case.seed} fails; shrunk:\n{error}"
    return f"{case.seed} fails now and then:\n{case.describe()}"


@pytest.mark.slow
def test_random_cases_equal_the_reference(full: bool, seed: int) -> None:
    count, shapes = FULL if full else QUICK
    print(f"{count} cases over {shapes} shapes, --seed {seed}")
    outcomes: Counter[str] = Counter()
    for case in cases(count, seed, shapes):
        try:
            outcomes[check(case)] += 1
        except AssertionError:
            pytest.fail(_report(case), pytrace=False)
    print(dict(outcomes))
    assert outcomes["same"] > count // 2


@pytest.mark.parametrize("index", range(0, SHAPES, 20))
def test_shapes_bind(index: int) -> None:
    for i in range(index, min(index + 20, SHAPES)):
        case = make_case(i, 0)
        assert len(random_cases.logical_plan(case).schema) > 0, case.text


def test_a_case_is_made_from_its_seed_alone() -> None:
    for i in range(20):
        a, b = make_case(i, 7), make_case(i, 7)
        assert a.describe() == b.describe()
        assert repr(a.streams) == repr(b.streams)
        assert [to_table(s).num_rows for s in a.streams] == [len(s.rows) for s in b.streams]


def test_shapes_are_a_fixed_set() -> None:
    texts = {shape(i).text for i in range(SHAPES)}
    assert len(texts) > SHAPES * 0.9
    assert any("UNION" in t for t in texts)
    assert any("LIMIT" in t for t in texts)
    assert any("OFFSET" in t for t in texts)
    assert any("FILTER" in t for t in texts)


def test_shrink_finds_the_row_that_matters() -> None:
    case = next(
        c
        for c in (make_case(i, s) for i in range(40) for s in range(40))
        if len(c.streams) == 1 and sum(row[1] == 3 for row in c.streams[0].rows) > 1
    )
    name = case.streams[0].name
    column = SCHEMAS[name].find("k")
    assert column is not None

    def fails(candidate: Case) -> bool:
        return any(row[column] == 3 for row in candidate.streams[0].rows)

    small = shrink(case, fails)
    assert len(small.streams[0].rows) == 1
    assert [v for v in small.streams[0].rows[0][1:] if v is not None] == [3]
