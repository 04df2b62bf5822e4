"""Which operator the planner picks, and that a setting forces another."""

from __future__ import annotations

import pyarrow as pa
import pytest

import cql
from cql.planner.physical import WidAggregateExec, walk


def pane_of(operator: str, window: str, aggregate: str = "count(*)") -> int | None:
    """The width of the panes that a window is computed in, None for WID."""
    with cql.connect(False, window_operator=operator) as session:
        session.create_stream("s", pa.table({"ts": [1], "v": [1]}), ordered_by="ts", unit="seconds")
        run = session.sql(f"SELECT {aggregate} AS n FROM s [{window} WA ts]")._recipe.run()
        return next(n.pane for n in walk(run.plan.root) if isinstance(n, WidAggregateExec))


@pytest.mark.parametrize(
    ("window", "auto", "forced"),
    [
        ("RANGE 10 SLIDE 10", None, None),
        ("RANGE 20 SLIDE 10", None, 10),
        ("RANGE 30 SLIDE 10", 10, 10),
        ("RANGE 30 SLIDE 8", 2, 2),
    ],
)
def test_panes_where_windows_overlap(window: str, auto: int | None, forced: int | None) -> None:
    assert pane_of("auto", window) == auto
    assert pane_of("panes", window) == forced
    assert pane_of("wid", window) is None
