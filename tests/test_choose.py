"""Which operator the planner picks, and that a setting forces another."""

from __future__ import annotations

import pyarrow as pa
import pytest

import cql
from cql.errors import NotSupportedError
from cql.planner.physical import WidAggregateExec, walk


def chosen(operator: str, window: str, aggregate: str = "count(*)") -> tuple[str, int | None]:
    """The operator for a window, and the width of its panes (None for WID)."""
    with cql.connect(False, window_operator=operator) as session:
        session.create_stream("s", pa.table({"ts": [1], "v": [1]}), ordered_by="ts", unit="seconds")
        run = session.sql(f"SELECT {aggregate} AS n FROM s [{window} WA ts]")._recipe.run()
        node = next(n for n in walk(run.plan.root) if isinstance(n, WidAggregateExec))
        return node.operator.value, node.pane


@pytest.mark.parametrize(
    ("window", "auto", "pane"),
    [
        ("RANGE 10 SLIDE 10", "wid", None),
        ("RANGE 20 SLIDE 10", "wid", 10),
        ("RANGE 30 SLIDE 10", "panes", 10),
        ("RANGE 30 SLIDE 8", "panes", 2),
        ("RANGE 110 SLIDE 10", "panes", 10),
        ("RANGE 120 SLIDE 10", "two_stacks", 10),
        ("RANGE 95 SLIDE 8", "panes", 1),
        ("RANGE 97 SLIDE 8", "two_stacks", 1),
    ],
)
def test_overlap_decides(window: str, auto: str, pane: int | None) -> None:
    assert chosen("auto", window) == (auto, None if auto == "wid" else pane)
    for forced in ("panes", "two_stacks"):
        assert chosen(forced, window) == ("wid" if pane is None else forced, pane)
    assert chosen("wid", window) == ("wid", None)


@pytest.mark.parametrize("window", ["RANGE 10 SLIDE 10", "RANGE 30 SLIDE 10"])
def test_two_levels_are_asked_for(window: str) -> None:
    """Never chosen; a low level serves every window with bounds."""
    assert chosen("two_level", window) == ("two_level", None)
    with pytest.raises(NotSupportedError, match="in two levels is not supported") as caught:
        chosen("two_level", window, "count(DISTINCT v)")
    assert caught.value.position is not None


def test_values_beside_groups_are_not_stacked() -> None:
    distinct = "count(DISTINCT v)"
    assert chosen("auto", "RANGE 30 SLIDE 10", distinct) == ("panes", 10)
    assert chosen("auto", "RANGE 300 SLIDE 10", distinct) == ("panes", 10)
    with pytest.raises(NotSupportedError, match="in two stacks is not supported") as caught:
        chosen("two_stacks", "RANGE 30 SLIDE 10", distinct)
    assert caught.value.position is not None
