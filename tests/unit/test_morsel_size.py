"""The size of the ordered runtime's morsels, in rows: a pure function of measured work."""

from __future__ import annotations

import pytest

from cql.executor.kernels.ordered.admission import rows_for

#: The wanted work of a morsel, in nanoseconds.
WANTED = 60_000


@pytest.mark.parametrize(
    ("cost", "now", "rows"),
    [
        (30, 2_000, 2_000),  # unchanged
        (1_000, 100, 60),
        (1_000, 256, 128),  # at most halved: the measurement lags behind the cutting
        (1, 256, 512),
        (10_000, 10, 6),
        (1_000_000, 2, 1),  # at least one row
        (1_000_000, 1, 1),
    ],
)
def test_morsels_are_about_as_much_work_as_is_wanted(cost: int, now: int, rows: int) -> None:
    assert rows_for(WANTED, 1_000 * cost, 1_000, now) == rows


@pytest.mark.parametrize("cost", [1, 35, 1_000, 50_000])
def test_they_come_to_that_size_from_any_other(cost: int) -> None:
    for start in (1, 256, 4_096):
        now = start
        for _ in range(20):
            now = min(rows_for(WANTED, 500 * cost, 500, now), 4_096)
        assert now == max(min(WANTED // cost, 4_096), 1)


def test_work_that_is_not_known_lets_morsels_grow() -> None:
    assert rows_for(WANTED, 0, 100, 256) == 512
