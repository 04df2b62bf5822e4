"""Response times of input rows (in-order join paper, section 7.1), on a clock that only the sources
move."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from cql.executor.run.execution import Execution
from cql.planner.nodes.catalog import StreamSpec
from cql.query.explanation import measured
from cql.query.query import Query
from cql.session.session import Session
from tests.support.live import Clock, Script
from tests.support.runtimes import apply, named

RUNTIMES: tuple[dict[str, Any], ...] = (
    {"runtime": "depth_first"},
    {"runtime": "fifo"},
    {"runtime": "ordered", "workers": 2, "partitions": 3},
)
Events = Sequence[tuple[float, Sequence[Any]]]
JOIN = "SELECT a.ts, b.ts AS other FROM a, b WHERE b.ts BETWEEN a.ts AND a.ts + INTERVAL 1 SECOND"


class Timed:
    """A session with its own clock."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.session = Session(
            False, run=lambda plan, settings: Execution(plan, settings, self.clock).queries[0]
        )

    def stream(self, name: str, events: Events, within: str = "") -> None:
        source = Script(self.clock, events, bounded=True)
        self.session._catalog.local.add_source((f"{name}_rows",), source, StreamSpec())
        self.session.sql(f"CREATE STREAM {name} FROM TABLE {name}_rows ORDERED BY ts {within}")

    def seconds(self, text: str) -> tuple[dict[str, float], str]:
        """The mean response time of each input's rows, in seconds, and the text of EXPLAIN
        ANALYZE."""
        query = self.session.sql(text)
        assert isinstance(query, Query)
        query.explain("analyze")
        found = {m["operator"]: m["response"] / 1e9 for m in query.metrics() if "response" in m}
        assert query._run is not None
        return found, measured(query._run)


@pytest.fixture
def timed() -> Iterator[Timed]:
    made = Timed()
    yield made
    made.session.close()


#: A run polls a waiting source every 0.05 seconds and looks for completed rows at each poll.
def about(seconds: float) -> Any:
    return pytest.approx(seconds, abs=0.11)


@pytest.mark.parametrize("settings", RUNTIMES, ids=named)
def test_a_row_of_one_input_waits_for_nothing(timed: Timed, settings: dict[str, Any]) -> None:
    apply(timed.session, settings)
    timed.stream("a", [(0, [1, 2]), (10, [3])])
    assert timed.seconds("SELECT ts FROM a")[0] == {"a": about(0)}


@pytest.mark.parametrize("settings", RUNTIMES, ids=named)
def test_a_row_of_a_join_waits_for_the_other_input(timed: Timed, settings: dict[str, Any]) -> None:
    """A row of ``a`` waits until ``b`` passes its time: ``b`` passes 1 at 10 and 2 at 30. The end
    of ``b``, also at 30, passes 3."""
    apply(timed.session, settings)
    timed.stream("a", [(0, [1, 2, 3])])
    timed.stream("b", [(0, [1]), (10, [2]), (30, [3])])
    found, text = timed.seconds(JOIN)
    assert found == {"a": about((10 + 30 + 30) / 3), "b": about(0)}
    assert re.search(r"^operator .* response ", text)
    assert re.search(r"^a .* 23\.[34] s", text, re.MULTILINE)


def test_rows_that_are_not_in_order(timed: Timed) -> None:
    """Each row waits by its own time; rows in the middle of a block may wait."""
    timed.stream("a", [(0, [3, 1, 6, 2])], "WITHIN 5 SECONDS")
    timed.stream("b", [(0, [1]), (10, [2.5]), (20, [4]), (40, [5])])
    found, _ = timed.seconds(JOIN)
    assert found["a"] == about((20 + 10 + 40 + 10) / 4)


def test_a_union_waits_for_nothing(timed: Timed) -> None:
    timed.stream("a", [(0, [1, 2, 3])])
    timed.stream("b", [(0, [1]), (10, [2])])
    found, _ = timed.seconds("SELECT ts FROM a UNION ALL SELECT ts FROM b")
    assert found == {"a": about(0), "b": about(0)}


def test_responses_are_of_explain_analyze_only(timed: Timed) -> None:
    timed.stream("a", [(0, [1, 2])])
    query = timed.session.sql("SELECT ts FROM a")
    assert isinstance(query, Query)
    query.to_arrow()
    assert not any("response" in entry for entry in query.metrics())


def test_markers(timed: Timed) -> None:
    """In the ordered runtime, markers pass all operators with an input's morsels; other runtimes
    have no markers."""
    apply(timed.session, {"runtime": "ordered", "workers": 2, "morsel_rows": 1})
    timed.stream("a", [(0, list(range(5))), (1, [5, 6])])
    query = timed.session.sql("SELECT ts FROM (SELECT ts FROM a ORDER BY ts) AS s")
    assert isinstance(query, Query)
    text = query.explain("analyze")
    assert query._run is not None
    timing = query._run.timing()
    assert timing is not None
    assert timing.markers is not None
    assert timing.markers.morsels >= 7
    assert 0 < timing.markers.p50 <= timing.markers.p99
    assert "\nmarkers: " in text
    timed.session.set("runtime", "depth_first")
    assert "markers: " not in timed.session.sql("SELECT ts FROM a").explain("analyze")
