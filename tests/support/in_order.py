"""Checks that a join outputs its rows in the order that the in-order paper requires."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tests.support.fuzz.random_cases import (
    IN_ORDER,
    Case,
    answer_of,
    held_against,
    plan_of,
)


def check_in_order(case: Case, ways: tuple[Mapping[str, Any], ...] = ({},)) -> None:
    """Compares each operator in ``IN_ORDER`` with the reference. The results must be in time
    order."""
    plan = plan_of(case)
    answer = answer_of(case, plan)
    for operator in IN_ORDER:
        for way in ways:
            one = replace(case, settings=case.settings | way | {"join_operator": operator})
            try:
                held_against(one, plan, answer)
            except Exception as error:  # reported with the case
                said = f"{type(error).__name__}: {error}\n{one.settings}\n{one.describe()}"
                raise AssertionError(said) from error
