"""The rewrites of the logical plan, one test per rewrite."""

from __future__ import annotations

from textwrap import dedent

import pytest

from cql.base.types import DOUBLE
from cql.errors import Position
from cql.planner.nodes.expr import Call, Literal, rebuild
from cql.planner.nodes.logical import Scan
from cql.planner.nodes.rewrite import replace
from cql.planner.optimize import rules
from cql.planner.optimize.inner_orders import drop_inner_orders
from cql.planner.optimize.rules import Rule, optimize
from tests.support.bind_fixtures import tree, world

W = world()


def after(text: str, *applied: Rule) -> str:
    plan = W.plan(text)
    for rule in applied:
        plan = rule(plan)
    return tree(plan)


def check(text: str, expected: str) -> None:
    assert tree(optimize(W.plan(text))) == dedent(expected).strip()


def test_what_a_pass_leaves_alone_is_shared() -> None:
    """A rewrite without a change returns the same object. A new position or a zero's new sign is a
    change, although the nodes compare equal."""
    zero = Literal(0.0, DOUBLE, Position(1, 1))
    call = Call("add", (zero, zero), DOUBLE, False)
    assert replace(call, args=(zero, zero), fn="add") is call
    assert rebuild(call, lambda e: e) is call
    elsewhere = replace(zero, pos=Position(1, 2))
    assert elsewhere == zero
    moved = rebuild(call, lambda e: elsewhere)
    assert moved is not call
    assert isinstance(moved, Call)
    assert moved.args[0].pos == Position(1, 2)
    negative = replace(zero, value=-0.0)
    assert negative == zero
    assert str(negative.value) == "-0.0"
    plan = W.plan("SELECT a FROM s WHERE a > 1")
    assert rules.push_filters(plan) is plan


def test_constants_fold_and_true_filters_go() -> None:
    assert "(a#2 > 2)" in after("SELECT a FROM s WHERE a > 1 + 1 AND TRUE", rules.fold_constants)
    assert "filter" not in after("SELECT a FROM s WHERE 1 < 2", rules.fold_constants)
    assert "filter" in after("SELECT a FROM s WHERE 1 > 2", rules.fold_constants)


def test_a_constant_that_fails_stays() -> None:
    assert "div(1, 0)" in after("SELECT 1 / 0 FROM s", rules.fold_constants)


def test_filters_merge() -> None:
    check(
        "SELECT k FROM (SELECT * FROM s WHERE a > 1) WHERE x > 2e0",
        """
        project [k#0 AS k]
          filter [((a#1 > 1) AND (x#2 > 2.0))]
            scan [s, k, a, x]
        """,
    )


def test_a_filter_that_can_fail_does_not_merge_into_a_nullable_one() -> None:
    """NULL AND (1 / b > 0) evaluates its right side; the lower of two filters drops such a row."""
    text = "SELECT k FROM (SELECT * FROM s WHERE a <> 0) WHERE 10 / k > 1"
    assert after(text, rules.merge_filters).count("filter") == 2
    text = "SELECT a FROM (SELECT * FROM s WHERE k <> 0) WHERE 10 / k > 1"
    assert after(text, rules.merge_filters).count("filter") == 1


def test_filters_move_below_projections_and_unions() -> None:
    check(
        "SELECT * FROM (SELECT x + 0.5e0 AS b FROM s UNION ALL SELECT x FROM r) WHERE b > 1e0",
        """
        union
          project [(x#0 + 0.5) AS b]
            filter [((x#0 + 0.5) > 1.0)]
              scan [s, x]
          filter [(x#0 > 1.0)]
            scan [r, x]
        """,
    )


def test_filters_stay_above_projections_that_can_fail() -> None:
    lines = after("SELECT b FROM (SELECT a / k AS b, x FROM s) WHERE x > 1e0", rules.push_filters)
    assert lines.splitlines()[1].strip().startswith("filter")


def test_filters_on_keys_move_below_aggregates() -> None:
    check(
        "SELECT k, count(*) FROM s [RANGE 1 s, SLIDE 1 s] GROUP BY k HAVING k > 3 AND count(*) > 1",
        """
        project [k#0 AS k, count(*)#1 AS count(*)]
          filter [(count(*)#1 > 1)]
            aggregate [key k#1, count(), sliding wa=0 range=1000000 slide=1000000]
              filter [(k#1 > 3)]
                scan [s, ts, k]
        """,
    )


@pytest.mark.parametrize(
    "having",
    ["window_end > TIMESTAMP '2020-01-01'", "1 > 2", "10 / k > 1"],
    ids=["window", "constant", "failing"],
)
def test_other_filters_stay_above_aggregates(having: str) -> None:
    text = f"SELECT k FROM s [RANGE 1 s, SLIDE 1 s] GROUP BY k HAVING {having}"
    lines = after(text, rules.push_filters).splitlines()
    at = next(i for i, line in enumerate(lines) if "filter" in line)
    assert "aggregate" in lines[at + 1]


def test_an_aggregate_without_keys_keeps_its_filter() -> None:
    assert "filter" in after("SELECT count(*) FROM s HAVING count(*) > 1", rules.push_filters)


@pytest.mark.parametrize(("window", "moves"), [("RANGE 5 s", True), ("ROWS 5", False)])
def test_filters_pass_windows_of_time_only(window: str, moves: bool) -> None:
    lines = after(f"SELECT * FROM s [{window}] WHERE k > 1", rules.push_filters).splitlines()
    assert lines[0].startswith("windowed" if moves else "filter")


def test_filters_stay_above_limits() -> None:
    kept = after(
        "SELECT * FROM (SELECT k FROM s ORDER BY k LIMIT 5) WHERE k > 1", rules.push_filters
    )
    assert kept.startswith("filter")
    moved = after("SELECT * FROM (SELECT k FROM s ORDER BY k) WHERE k > 1", rules.push_filters)
    assert moved.startswith("sort")


def test_only_columns_of_the_row_pass_buckets() -> None:
    check(
        "SELECT k FROM TUMBLE(s, ts, INTERVAL '1' SECOND) WHERE k > 1 AND window_end > ts",
        """
        project [k#1 AS k]
          filter [(window_end#3 > ts#0)]
            bucket [sliding wa=0 range=1000000 slide=1000000]
              filter [(k#1 > 1)]
                scan [s, ts, k]
        """,
    )


def test_filters_stay_above_windows_whose_time_may_be_null() -> None:
    """A NULL event time is a bad row: a filter below the window would drop the row uncounted."""
    bucket = after("SELECT k FROM TUMBLE(r, ts, INTERVAL '1' SECOND) WHERE k > 1")
    assert bucket.index("filter") < bucket.index("bucket")
    groups = "SELECT k, count(*) FROM r [RANGE 1 s, SLIDE 1 s] GROUP BY k HAVING k > 3"
    moved = after(groups, rules.push_filters)
    assert moved.index("filter") < moved.index("aggregate")


def test_filters_of_one_side_stand_below_joins() -> None:
    """If the event time may be NULL, the moved filter keeps rows with NULL, as bad rows."""
    near = "abs(s.ts - r.ts) <= INTERVAL 1 SECOND"
    text = f"SELECT s.k FROM s, r [RANGE 1 s] WHERE s.k > 1 AND r.k > 2 AND {near}"
    moved = after(text, rules.push_filters)
    assert "filter [(k#1 > 1)]" in moved
    assert "filter [(is_null(ts#0) OR (k#1 > 2))]" in moved
    assert moved.index("windowed") < moved.index("is_null")


@pytest.mark.parametrize(
    ("source", "condition", "moves"),
    [
        ("s LEFT JOIN r ON s.ts = r.ts", "s.a > 1", True),
        ("s LEFT SEMI JOIN r ON s.ts = r.ts", "s.a > 1", True),
        ("s LEFT ANTI JOIN r ON abs(s.ts - r.ts) <= INTERVAL 1 HOUR", "s.a > 1", True),
        ("r RIGHT JOIN s ON s.ts = r.ts", "s.a > 1", True),
        ("s ASOF JOIN r ON s.ts >= r.ts", "s.a > 1", True),
        # joins of relations: each input row is an instant of its own
        ("s LEFT JOIN r ON s.k = r.k", "s.a > 1", False),
        ("s [NOW] LEFT JOIN r [NOW] ON s.ts = r.ts", "s.a > 1", False),
        # conditions on the other side or both sides, that can fail, or that guard one that can fail
        ("s LEFT JOIN r ON s.ts = r.ts", "r.a > 1", False),
        ("s FULL JOIN r ON s.ts = r.ts", "s.a > 1", False),
        ("s LEFT JOIN r ON s.ts = r.ts", "s.a + r.a > 1", False),
        ("s LEFT JOIN r ON s.ts = r.ts", "10 / s.a > 1", False),
        ("s LEFT JOIN r ON s.ts = r.ts", "10 / r.a > 1 AND s.a > 1", False),
        ("s LEFT JOIN r ON s.ts = r.ts", "s.a > 1 AND 10 / r.a > 1", False),
        ("s LEFT JOIN r ON s.ts = r.ts AND s.k / r.k = 2", "s.a > 1", False),
    ],
)
def test_filters_of_a_preserved_side_stand_below_outer_joins(
    source: str, condition: str, moves: bool
) -> None:
    moved = after(f"SELECT s.k FROM {source} WHERE {condition}", rules.push_filters)
    assert (moved.index("join") < moved.index("filter")) is moves


def test_filters_stay_above_unions_of_plain_inputs() -> None:
    moved = after("SELECT * FROM s UNION r AS u WHERE k > 1", rules.push_filters)
    assert moved.index("filter") < moved.index("union")


def test_an_order_below_another_one_goes() -> None:
    """An order that drops rows stays: a LIMIT, or an order by time, which drops late rows."""
    s = "SELECT ts, k, x FROM s"
    for inner, kept in (
        ("ORDER BY k", 1),
        ("ORDER BY k LIMIT 3", 2),
        ("ORDER BY ts", 2),
    ):
        text = f"SELECT k FROM (SELECT * FROM ({s} {inner}) AS p WHERE k > 2) AS q ORDER BY x"
        assert after(text, drop_inner_orders).count("sort") == kept, inner
    windowed = "SELECT * FROM (SELECT ts, k FROM s [RANGE 5 SECONDS] ORDER BY ts) AS q ORDER BY k"
    assert after(windowed, drop_inner_orders).count("sort") == 1


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("SELECT p.k FROM ({}) AS p JOIN r ON p.k = r.k", 0),
        ("SELECT k FROM ({}) AS p UNION ALL SELECT k FROM r", 0),
        ("SELECT k FROM ({}) AS p EXCEPT SELECT k FROM r", 0),
        ("SELECT k FROM r WHERE k IN (SELECT k FROM ({}) AS p)", 0),
        ("SELECT count(*) FROM ({}) AS p [RANGE 9 SECONDS SLIDE 9 SECONDS WA ts]", 0),
        ("SELECT count(*) FROM ({}) AS p [RANGE 9 SECONDS WA ts]", 0),
        ("SELECT count(*) FROM ({}) AS p [ROWS 9 SLIDE 3]", 1),
        ("SELECT array_agg(k) FROM ({}) AS p", 1),
        ("SELECT k FROM ({}) AS p", 1),
    ],
)
def test_an_order_goes_below_what_does_not_go_by_it(text: str, kept: int) -> None:
    inner = "SELECT ts, k, x FROM s ORDER BY x, k"
    assert after(text.format(inner), drop_inner_orders).count("sort") == kept


def test_projections_merge() -> None:
    check(
        "SELECT b * 2e0 AS c FROM (SELECT x + 1e0 AS b, name FROM s)",
        """
        project [((x#0 + 1.0) * 2.0) AS c]
          scan [s, x]
        """,
    )


def test_projections_do_not_merge_where_that_computes_twice() -> None:
    text = "SELECT b + b AS c FROM (SELECT x * x AS b FROM s)"
    assert after(text, rules.merge_projections).count("project") == 2


def test_failing_projections_merge_only_where_they_are_always_computed() -> None:
    guarded = "SELECT CASE WHEN x > 0e0 THEN b END AS c FROM (SELECT a / k AS b, x FROM s)"
    assert after(guarded, rules.merge_projections).count("project") == 2
    plain = "SELECT x - b AS c FROM (SELECT a / k AS b, x FROM s)"
    assert after(plain, rules.merge_projections).count("project") == 1


def test_scans_keep_what_is_read() -> None:
    check(
        "SELECT n FROM (SELECT count(*) AS n, sum(a) AS t FROM s [RANGE 1 s SLIDE 1 s] GROUP BY k)",
        """
        project [count(*)#1 AS n]
          aggregate [key k#1, count(), sum(a#2), sliding wa=0 range=1000000 slide=1000000]
            scan [s, ts, k, a]
        """,
    )


def test_counting_rows_reads_the_narrowest_column() -> None:
    check("SELECT count(*) FROM s", "aggregate [count()]\n  scan [s, k]")


def test_expressions_that_can_fail_are_not_pruned() -> None:
    assert "int_div" in tree(optimize(W.plan("SELECT x FROM (SELECT a / k AS b, x FROM s)")))


def test_relation_windows_keep_what_orders_them() -> None:
    plan = optimize(W.plan("SELECT k FROM two [ROWS 5]"))
    while plan.inputs:
        plan = plan.inputs[0]
    assert isinstance(plan, Scan)
    assert plan.schema.names == ("t1", "t2", "k")


def test_union_members_give_the_same_columns() -> None:
    check(
        "SELECT k FROM (SELECT a, k, x FROM s UNION ALL SELECT k, a, x FROM r) WHERE x > 1e0",
        """
        union
          project [k#0 AS k]
            filter [(x#1 > 1.0)]
              scan [s, k, x]
          project [a#0 AS a]
            filter [(x#1 > 1.0)]
              scan [r, a, x]
        """,
    )


def test_optimizing_twice_changes_nothing_more() -> None:
    text = (
        "SELECT k, n FROM (SELECT k, count(*) AS n FROM s UNION r [RANGE 1 s, SLIDE 1 s]"
        " WHERE x > 1e0 GROUP BY k) WHERE k > 3 AND n > 2"
    )
    once = optimize(W.plan(text))
    assert optimize(once) == once


def test_deep_expressions() -> None:
    text = (
        "SELECT " + " + ".join(["x"] * 900) + " AS y FROM s WHERE " + " AND ".join(["a > 1"] * 900)
    )
    assert optimize(W.plan(text)).schema.names == ("y",)
