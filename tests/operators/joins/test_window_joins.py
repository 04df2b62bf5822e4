"""The in-order window joins: random joins against the reference, in order; several inputs, in one
operator or in a pipeline; when they are chosen, and the rows that they keep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import count
from typing import Any
from unittest import mock

import pytest

import cql
from cql.errors import PlanError
from cql.executor.operators.joins import in_order_join
from tests.support.catalog_tools import blocks_of_eight
from tests.support.fuzz.random_cases import (
    IN_ORDER,
    Case,
    case_of,
)
from tests.support.fuzz.random_joins import SHAPES, join_case, join_shape, legal_join_operators
from tests.support.fuzz.random_shapes import Shape
from tests.support.in_order import check_in_order
from tests.support.live import STEADY, Live, late
from tests.support.seconds import rows

pytestmark = pytest.mark.usefixtures("shared_kernels")

SECOND = 1_000_000


@pytest.fixture
def session() -> Iterator[cql.Session]:
    with cql.connect(spark=False) as made:
        made.create_stream("a", rows(ts=[0, 1, 2, 3], k=[1, 2, 1, 2], v=[10, 20, 30, 40]), "ts")
        made.create_stream("b", rows(at=[0.5, 1.5, 2.5, 9], k=[1, 2, 1, 2], w=[1, 2, 3, 4]), "at")
        yield made


def plan(session: cql.Session, text: str) -> str:
    return str(session.sql(f"EXPLAIN {text}"))


#: The number of random shapes that run without --full.
PARTS = 2


def small(monkeypatch: pytest.MonkeyPatch, seed: int) -> dict[str, Any]:
    """Makes rings and tables grow and shrink; under these settings, Adaptive switches now and
    then."""
    for name in ("_ROWS", "_KEYS"):
        monkeypatch.setattr(in_order_join, name, 2 if seed % 3 else 1024)
    return {"join_cost": 1_000_000 * (seed % 5), "join_alpha": 0.2 * (seed % 3)}


@pytest.mark.parametrize("part", range(PARTS))
def test_random_joins_equal_the_reference_in_order(
    part: int, full: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    legal = [k for k in range(SHAPES) if len(legal_join_operators(join_shape(k))) > 1]
    for index in legal[part::PARTS] if full else [legal[2 * part + 1]]:
        for seed in range(60 if full else 4):
            check_in_order(join_case(index, seed), (small(monkeypatch, seed),))


_SEVERAL = (
    "SELECT l.t AS lt, r.t AS rt, m.t AS mt, l.v AS c0, r.s AS c1, m.w AS c2"
    " FROM a [RANGE 5 SECONDS] l, b [RANGE 20 SECONDS] r, c [NOW] m WHERE l.k = r.k AND r.k = m.k",
    "SELECT l.t AS lt, r.t AS rt, m.t AS mt, l.q AS c0, r.g AS c1, m.s AS c2 FROM a l JOIN b r ON"
    " l.k = r.k AND abs(l.t - r.t) <= INTERVAL 10 SECONDS JOIN c m ON r.q = m.q AND l.b = m.b AND"
    " m.t BETWEEN r.t - INTERVAL 5 SECONDS AND r.t + INTERVAL 20 SECONDS AND l.y < m.y",
    "SELECT l.t AS lt, r.t AS rt, m.t AS mt FROM a l, b r, c m WHERE l.v < m.v"
    " AND l.t >= r.t AND l.t <= r.t + INTERVAL 3 SECONDS AND m.t = l.t",
    "SELECT l.t AS lt, r.t AS rt, m.t AS mt, o.t AS ot, o.s AS c0, m.s AS c1 FROM"
    " a [RANGE 5 SECONDS] l, b [RANGE 5 SECONDS] r, c [RANGE 5 SECONDS] m, a [RANGE 9 SECONDS] o"
    " WHERE l.k = r.k AND l.s = m.s AND r.q = o.q AND m.k = o.k",
)


def several_case(index: int, seed: int) -> Case:
    text = _SEVERAL[index]
    case = case_of(Shape(f"several/{index}", text, ("a", "b", "c"), ()), seed)
    settings = {k: v for k, v in case.settings.items() if k != "slack"}
    streams = tuple(replace(s, rows=s.rows[:40], splits=()) for s in case.streams)
    return replace(case, settings=settings, streams=streams, piecewise=False)


def test_several_inputs_both_ways(full: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without --full, one of the queries runs: each takes ten seconds to compile."""
    for index in range(len(_SEVERAL) if full else 1):
        for seed in range(100 if full else 5):
            way = small(monkeypatch, seed)
            ways = tuple(way | {"multiway_join": name} for name in ("single", "pipeline"))
            check_in_order(several_case(index, seed), ways)


JOIN = "FROM a JOIN b ON a.k = b.k AND abs(a.ts - b.at) <= INTERVAL 1 SECOND"
WIDER = JOIN.replace("1 SECOND", "2 SECONDS")


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("order", "shown"),
    [
        (f"SELECT v, w, greatest(a.ts, b.at) AS t {JOIN} ORDER BY t", "v, w, _time AS t"),
        (f"SELECT v, w {JOIN} ORDER BY greatest(b.at, a.ts)", "WindowJoin a.k = b.k"),
        (f"SELECT v, w {JOIN} AND b.at >= a.ts ORDER BY b.at", "at - ts from 0 seconds"),
        (f"SELECT b.at, w {WIDER} AND b.at <= a.ts ORDER BY a.ts", "to 0 seconds"),
    ],
)
def test_results_are_ordered_by_their_time_without_a_sort(
    session: cql.Session, order: str, shown: str
) -> None:
    found = plan(session, order)
    assert shown in found
    assert "Adaptive: Filter-Order while c·w·λ1·λ2 ≥ α = 0.3" in found
    assert "Sort" not in found[: found.index("WindowJoin")]
    in_order = session.sql(order).to_arrow()
    assert in_order.num_rows > 1
    session.set("join_operator", "oop_join")
    assert session.sql(order).to_arrow().equals(in_order)


@pytest.mark.parametrize(
    "text",
    [
        f"SELECT v, w {JOIN}",  # no ORDER BY
        f"SELECT v, w {JOIN} ORDER BY a.ts",  # an order that the join does not give
        f"SELECT v, w {JOIN} ORDER BY b.at DESC",
        f"SELECT count(*) {JOIN}",
        "SELECT v FROM a JOIN late l ON a.k = l.k AND abs(a.ts - l.ts) <= INTERVAL 1 SECOND"
        " ORDER BY greatest(a.ts, l.ts)",  # not declared in order
    ],
)
def test_oop_join_runs_where_nothing_needs_the_order(session: cql.Session, text: str) -> None:
    late = rows(ts=[1, 0, 2], k=[1, 1, 1])
    session.create_stream("late", late, "ts", slack=timedelta(seconds=2))
    found = plan(session, text)
    assert "OopJoin" in found
    assert "WindowJoin" not in found


def test_inputs_that_are_not_declared_in_order_are_sorted_below(session: cql.Session) -> None:
    late = rows(ts=[1, 0, 2, 1.5], k=[1, 1, 1, 1], x=[1, 2, 3, 4])
    session.create_stream("late", late, "ts", slack=timedelta(seconds=2))
    text = (
        "SELECT a.ts AS lt, l.ts AS rt, x FROM a JOIN late l ON a.k = l.k"
        " AND abs(a.ts - l.ts) <= INTERVAL 1 SECOND"
    )
    expected = session.sql(text).to_arrow().to_pylist()
    assert len(expected) == 5
    for operator in IN_ORDER:
        session.set("join_operator", operator)
        assert (
            plan(session, text).count("PunctuatedSort by ts") == 2
        )  # also of a, for rows far ahead (MAX ADVANCE)
        found = session.sql(text).to_arrow().to_pylist()
        latest = [max(row["lt"], row["rt"]) for row in found]
        assert latest == sorted(latest)
        assert sorted(map(str, found)) == sorted(map(str, expected))


@pytest.mark.parametrize(
    ("cost", "rate", "operator", "said"),
    [
        (500_000, 10, "Sync-Filter", "= 0.1 < α = 0.3"),
        (500_000, 30, "Filter-Order", "= 0.9 ≥ α = 0.3"),
        (0, 1000, "Sync-Filter", "< α = 0.3"),
        (0, 10_000_000, "Filter-Order", "spares 50% of the response time"),
    ],
)
def test_the_rates_of_both_inputs_decide(
    session: cql.Session, cost: int, rate: int, operator: str, said: str
) -> None:
    """c·w·λ1·λ2 = 0.5 ms · 2 s · 10/s · 10/s (or 30/s · 30/s)."""
    for name in ("p", "q"):
        options = f"rows_per_second {rate}, rows 10"
        session.sql(f"CREATE STREAM {name} ORDERED BY ts USING rate OPTIONS ({options})")
    session.set("join_cost", cost)
    found = plan(
        session,
        "SELECT p.key FROM p JOIN q ON p.key = q.key AND abs(p.ts - q.ts) <= INTERVAL 2 SECONDS"
        " ORDER BY greatest(p.ts, q.ts)",
    )
    assert f"why: {operator}: " in found
    assert said in found


def endless(session: cql.Session, name: str) -> None:
    def made() -> Iterator[dict[str, Any]]:
        for n in count():
            yield {"ts": datetime(2024, 1, 1) + timedelta(seconds=n), "k": n % 3}

    session.create_stream(name, made, "ts", bounded=False)


def test_windows_by_the_latest_time(session: cql.Session) -> None:
    text = (
        "SELECT count(*) AS n, window_end [RANGE 2 SECONDS, SLIDE 2 SECONDS, WA t]"
        f" FROM (SELECT greatest(a.ts, b.at) AS t {JOIN}) AS j"
    )
    expected = session.sql(text).to_arrow()
    assert expected["n"].to_pylist() == [2, 1]
    session.set("join_operator", "filter_order")
    assert session.sql(text).to_arrow().equals(expected)
    with pytest.raises(PlanError, match="has no watermark") as caught:
        session.sql(text.replace("greatest", "least"))
    assert "oop_join" in (caught.value.hint or "")


@pytest.mark.parametrize("operator", IN_ORDER)
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT v FROM a JOIN t ON a.k = t.k AND a.v < t.n", "no column of t has a watermark"),
        ("SELECT p.k FROM p JOIN q ON p.k = q.k AND q.ts > p.ts", "keep their rows for ever"),
        (
            "SELECT v FROM a LEFT JOIN b ON a.k = b.k AND abs(a.ts - b.at) < INTERVAL 1 SECOND",
            "gives pairs of rows only, no LEFT JOIN",
        ),
    ],
)
def test_what_cannot_be_joined_in_order_is_refused(
    session: cql.Session, operator: str, text: str, message: str
) -> None:
    endless(session, "p")
    endless(session, "q")
    session.create_stream("t", lambda: iter([{"k": 1, "n": 2}]), bounded=False)
    session.set("join_operator", operator)
    with pytest.raises(PlanError, match=message) as caught:
        session.sql(text).to_arrow()
    assert caught.value.position is not None


def test_rows_far_ahead_do_not_break_the_order(session: cql.Session) -> None:
    """An input's clock may be wrong for a moment (MAX ADVANCE, an hour by default): a row far ahead
    waits below the join until the watermark reaches it."""
    endless(session, "p")
    endless(session, "q")
    text = (
        "SELECT p.ts, q.ts AS qt FROM p JOIN q ON p.k = q.k AND abs(p.ts - q.ts) <= INTERVAL 1"
        " SECOND ORDER BY greatest(p.ts, q.ts)"
    )
    found = plan(session, text)
    assert found.count("PunctuatedSort by ts") == 2
    assert "WindowJoin" in found
    coming = (row for batch in session.sql(text) for row in batch.to_pylist())
    for n, row in zip(range(10), coming, strict=False):
        assert row["ts"] == row["qt"] == datetime(2024, 1, 1) + timedelta(seconds=n)


@pytest.mark.parametrize("operator", IN_ORDER)
def test_an_idle_input_holds_nothing_back(operator: str) -> None:
    """b sends a row at 1 and is idle 5 seconds later; its row below the watermark is late."""
    live = Live()
    live.session.set("join_operator", operator)
    live.stream("a", STEADY)
    live.stream("b", [(0, [0]), (1, [1]), (40, [3, 40]), (60, [60])])
    found, query = live.run(
        "SELECT 1 AS n, a.ts AS window_end FROM a JOIN b ON abs(a.ts - b.ts) <= INTERVAL 2 SECONDS"
    )
    live.session.close()
    at = [(clock, int(ts)) for clock, _, ts in found]
    assert at[:7] == [(1, 0), (1, 1), (2, 0), (2, 1), (6, 2), (6, 2), (6, 3)]
    assert at[7:] == [(41, 38), (41, 39), (41, 40), (45, 41), (45, 42), (60, 58), (60, 59)]
    assert late(query)["b", "idle"] == 1


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("operator", IN_ORDER)
@pytest.mark.parametrize("runtime", ["depth_first", "fifo"])
def test_what_is_kept_depends_on_the_band(
    session: cql.Session, operator: str, runtime: str
) -> None:
    """Of 10,000 rows per side, about 20 lie within the band at any time. The dictionary drops texts
    without references meanwhile."""
    n = 10_000
    session.set("runtime", runtime)
    session.set("join_operator", operator)
    session.set("morsel_rows", 64)
    with blocks_of_eight(), mock.patch("cql.executor.strings.compaction.LEAST", 1000):
        for name in ("p", "q"):
            keys = [f"key {t // 7}" for t in range(n)]
            table = rows(ts=[t / 10 for t in range(n)], k=keys)
            session.create_stream(name, table.to_batches, "ts")
        query = session.sql(
            "SELECT p.k FROM p JOIN q ON p.k = q.k AND abs(p.ts - q.ts) <= INTERVAL 1 SECOND"
        )
        last = n - n % 7  # the last key has fewer rows
        expected = Counter({f"key {t // 7}": 49 if t < last else (n % 7) ** 2 for t in range(n)})
        assert Counter(query.to_arrow()["k"].to_pylist()) == expected
    (join,) = (m for m in query.metrics() if m["operator"].startswith("windowjoin"))
    assert join["peak_join_windows"] < 100
    assert join["held"] + join["queued"] + join["purged"] == join["rows_in"] == 2 * n
    assert join["held_results"] == 0
    assert join["peak_bytes"] < 400_000
