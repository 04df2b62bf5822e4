"""Random cases with user functions in place of the engine's functions."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

import pytest

import cql
from tests.support.fuzz import random_cases
from tests.support.fuzz.random_cases import Case, make_case
from tests.support.fuzz.random_shapes import SHAPES, shape


def _upper(s: str) -> str:
    return s.upper()


def _lower(s: str) -> str:
    return s.lower()


def _length(s):
    return len(s)


def _year(g):
    return g.year


def _hour(z):
    return z.hour


def _dayofweek(g):
    return g.isoweekday() % 7 + 1


TWINS = {
    "upper": cql.function("string", args=["string"], name="own_upper")(_upper),
    "lower": cql.function("string", args=["string"], name="own_lower")(_lower),
    "length": cql.function("int", args=["string"], name="own_length")(_length),
    "year": cql.function("int", args=["date"], name="own_year")(_year),
    "hour": cql.function("int", args=["timestamp"], name="own_hour")(_hour),
    "dayofweek": cql.function("int", args=["date"], name="own_dayofweek")(_dayofweek),
}
_CALLED = re.compile(rf"\b({'|'.join(TWINS)})\(")


def twin_of(case: Case) -> Case:
    """The case with user functions in place of the engine's functions."""
    text = _CALLED.sub(r"own_\1(", case.shape.text)
    return replace(case, shape=replace(case.shape, text=text))


def test_random_cases_are_the_same_with_twins_of_the_functions(
    full: bool, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine runs the queries with user functions and agrees with the reference, which runs
    them with the engine's functions. The cases cover all runtimes, panes, unions, late and bad
    rows."""
    engine = random_cases.open_session

    def with_functions(case: Case) -> cql.Session:
        session = engine(case)
        session.register_functions(TWINS.values())
        return session

    monkeypatch.setattr(random_cases, "open_session", with_functions)
    run = random_cases.run_engine
    monkeypatch.setattr(random_cases, "run_engine", lambda case: run(twin_of(case)))
    shapes = [i for i in range(SHAPES) if _CALLED.search(shape(i).text)]
    outcomes: Counter[str] = Counter()
    for k in range(3000 if full else 4):
        number = shapes[k % len(shapes if full else shapes[:4])]
        outcomes[random_cases.check(make_case(number, seed + k))] += 1
    print(len(shapes), dict(outcomes))
    assert outcomes["same"] > outcomes["fails"]
