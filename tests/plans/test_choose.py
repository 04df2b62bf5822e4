"""The operator that the planner chooses, and the operator that a setting forces."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest

import cql
from cql.base.settings import SETTINGS
from cql.base.window import WindowOperator
from cql.errors import NotSupportedError
from cql.executor.operators.windows.choose import _terminal_of
from cql.planner.explain.physical import physical_line
from cql.planner.nodes.physical import WidAggregateExec, walk
from cql.query.query import Query


def node_of(
    window: str, aggregate: str = "count(*)", *, rows: int = 1, **settings: Any
) -> WidAggregateExec:
    with cql.connect(False, **settings) as session:
        table = pa.table({"ts": [1] * rows, "v": [1] * rows})
        session.create_stream("s", table, ordered_by="ts", unit="seconds")
        query = session.sql(f"SELECT {aggregate} AS n FROM s [{window} WA ts]")
        assert isinstance(query, Query)
        return next(n for n in walk(query._plan.root) if isinstance(n, WidAggregateExec))


def chosen(operator: str, window: str, aggregate: str = "count(*)") -> tuple[str, int | None]:
    """The operator for a window, and the width of its panes in seconds (None for WID)."""
    node = node_of(window, aggregate, window_operator=operator)
    return node.operator.value, node.pane


@pytest.mark.parametrize(
    ("window", "auto", "pane"),
    [
        ("RANGE 10 SLIDE 10", "wid", None),
        ("RANGE 20 SLIDE 10", "wid", 10),
        ("RANGE 30 SLIDE 10", "panes", 10),
        ("RANGE 30 SLIDE 8", "panes", 2),
        ("RANGE 110 SLIDE 10", "panes", 10),
        ("RANGE 120 SLIDE 10", "subtract", 10),
        ("RANGE 95 SLIDE 8", "panes", 1),
        ("RANGE 97 SLIDE 8", "subtract", 1),
    ],
)
def test_overlap_decides(window: str, auto: str, pane: int | None) -> None:
    assert chosen("auto", window) == (auto, None if auto == "wid" else pane)
    for forced in ("panes", "two_stacks", "subtract"):
        assert chosen(forced, window) == ("wid" if pane is None else forced, pane)
    assert chosen("wid", window) == ("wid", None)


def test_each_operator_has_a_value_of_the_setting_a_name_and_code() -> None:
    assert SETTINGS["window_operator"].choices == ("auto", *(one.value for one in WindowOperator))
    code = set()
    for operator in WindowOperator:
        node = node_of("RANGE 30 SLIDE 10", window_operator=operator.value)
        assert node.operator is operator
        assert physical_line(node).name == operator.shown
        assert pickle.loads(pickle.dumps(operator)) is operator is WindowOperator(operator.value)
        code.add(_terminal_of(node))
    assert len(code) == len(WindowOperator) == len({one.shown for one in WindowOperator})


@pytest.mark.parametrize("window", ["RANGE 10 SLIDE 10", "RANGE 30 SLIDE 10"])
def test_two_levels_are_asked_for(window: str) -> None:
    """The planner never chooses ``two_level``; forced, it serves tumbling and sliding windows."""
    assert chosen("two_level", window) == ("two_level", None)
    with pytest.raises(NotSupportedError, match="in two levels is not supported") as caught:
        chosen("two_level", window, "count(DISTINCT v)")
    assert caught.value.position is not None


def test_buffered_where_a_window_has_more_panes_than_rows_can_come() -> None:
    """The planner chooses ``buffered`` unforced only where panes cannot be stacked."""
    for rows, operator in ((29, "buffered"), (30, "panes")):
        assert node_of("RANGE 300 SLIDE 10", "count(DISTINCT v)", rows=rows).operator == operator
    assert chosen("auto", "RANGE 300 SLIDE 10") == ("subtract", 10)
    assert chosen("buffered", "RANGE 10 SLIDE 10") == ("buffered", 10)
    assert chosen("buffered", "RANGE 30 SLIDE 8") == ("buffered", 2)


@pytest.mark.parametrize("aggregate", ["max(v)", "sum(CAST(v AS DOUBLE))", "avg(v)", "first(v)"])
def test_what_cannot_be_subtracted_is_stacked(aggregate: str) -> None:
    assert chosen("auto", "RANGE 300 SLIDE 10", aggregate) == ("two_stacks", 10)
    assert chosen("auto", "RANGE 300 SLIDE 10", f"count(*), {aggregate}") == ("two_stacks", 10)
    with pytest.raises(NotSupportedError, match="cannot be subtracted exactly") as caught:
        chosen("subtract", "RANGE 30 SLIDE 10", aggregate)
    assert caught.value.position is not None


def test_windows_that_may_change_over() -> None:
    """An adaptive aggregate starts as the chosen or forced one of wid, panes and buffered."""
    for window, operator in (
        ("RANGE 10 SLIDE 10", "wid"),
        ("RANGE 30 SLIDE 10", "panes"),
        ("RANGE 120 SLIDE 10", "panes"),
    ):
        node = node_of(window, adaptive_windows=True)
        assert (node.operator, node.adaptive, node.pane) == (operator, True, 10)
        assert "SET adaptive_windows" in node.why
    for operator in ("two_stacks", "two_level"):
        assert not node_of(
            "RANGE 30 SLIDE 10", adaptive_windows=True, window_operator=operator
        ).adaptive


def test_values_beside_groups_are_not_stacked() -> None:
    distinct = "count(DISTINCT v)"
    assert chosen("auto", "RANGE 30 SLIDE 10", distinct) == ("panes", 10)
    assert chosen("auto", "RANGE 300 SLIDE 10", distinct) == ("buffered", 10)  # s has one row
    with pytest.raises(NotSupportedError, match="in two stacks is not supported") as caught:
        chosen("two_stacks", "RANGE 30 SLIDE 10", distinct)
    assert caught.value.position is not None
