"""PUNCTUATE BY streams under operators that need one watermark for all values: joins, sorts,
relations, and windows that cannot close value by value. This watermark is the minimum over the
values, so that results equal those of a stream with the same rows and enough slack. A row is late
by its own value."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from cql import Punctuation
from cql.errors import PlanError
from cql.query.query import Query
from cql.session.session import Session
from tests.support import runtimes
from tests.support.fuzz.random_asof_joins import asof_case
from tests.support.fuzz.random_cases import Case, check
from tests.support.fuzz.random_data import TABLES, punctuated_by
from tests.support.fuzz.random_joins import join_case
from tests.support.fuzz.random_relation_joins import relation_join_case
from tests.support.groupwise import WINDOW, results, table
from tests.support.in_order import check_in_order
from tests.support.relation_cases import RELATIONS
from tests.support.relation_cases import case_of as relation_case

pytestmark = pytest.mark.usefixtures("shared_kernels")

WITHIN = 40
NAMES = ("t", "p", "k", "i")


@pytest.fixture
def session() -> Iterator[Session]:
    with Session(False) as made:
        yield made


def disordered(seed: int, n: int = 400, *, late: bool = False) -> list[tuple[Any, ...]]:
    """Rows that are in order within each value; values lag by up to 30. With ``late``, some rows
    lag further, behind their own value."""
    rng = random.Random(seed)
    rows: list[tuple[int, tuple[Any, ...]]] = []
    t = 0
    for i in range(n):
        t += rng.choice((0, 0, 1, 1, 2))
        v = rng.randrange(6)
        behind = 6 * v + (rng.choice((20, 90)) if late and rng.random() < 0.1 else 0)
        rows.append((t + behind, (t, f"p{v}" if v else None, rng.randrange(3), i)))
    rows.sort(key=lambda row: row[0])
    return [row for _, row in rows]


def on_time(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The rows that are not below the watermark of their own value."""
    kept, own, highest = [], dict[Any, int](), -WITHIN
    for row in rows:
        t, p = row[:2]
        if t >= max(own.get(p, -WITHIN), highest - WITHIN):
            kept.append(row)
        own[p], highest = max(own.get(p, t), t), max(highest, t)
    return kept


def streams(session: Session, by: bool, *, late: bool = False) -> None:
    """Creates ``s``, with PUNCTUATE BY or with enough slack, and ``u``, whose rows are in order."""
    rows = disordered(1, late=late)
    clauses: dict[str, Any] = {"slack": 1_000}
    if by:
        clauses = {"punctuated_by": ("p", WITHIN)}
    elif late:
        rows = on_time(rows)
    session.create_stream("s", table(rows, *NAMES), ordered_by="t", replace=True, **clauses)
    others = sorted(disordered(2), key=lambda row: row[0])
    session.create_stream("u", table(others, *NAMES), ordered_by="t", replace=True)
    session.register_table("d", pa.table({"k": [0, 0, 2], "x": ["a", "b", "c"]}), replace=True)


def found(session: Session, text: str) -> list[tuple[Any, ...]]:
    """The rows of the query; for a relation, its changelog."""
    query = session.sql(text)
    assert isinstance(query, Query)
    return [tuple(row.values()) for batch in query.batches() for row in batch.to_pylist()]


NEAR = "s.k = u.k AND u.t BETWEEN s.t - 3 AND s.t + 2"
EACH = "SELECT s.i, u.i AS j, s.t AS st, u.t AS ut"
#: Queries that join, sort or hold rows: they drop a row that is late by its own value.
OF_ROWS = {
    "join": f"{EACH} FROM s JOIN u ON {NEAR}",
    "left join": f"{EACH} FROM s LEFT JOIN u ON {NEAR}",
    "full join": f"{EACH} FROM u FULL JOIN s ON {NEAR}",
    "windows": f"{EACH} FROM s [RANGE 3], u [RANGE 5] WHERE s.k = u.k",
    "asof join": f"{EACH} FROM u ASOF JOIN s ON s.k = u.k AND u.t >= s.t",
    "asof left": f"{EACH} FROM s ASOF LEFT JOIN u ON s.k = u.k AND s.t >= u.t",
    "itself": "SELECT a.i, b.i AS j FROM s a JOIN s b ON a.p = b.p AND b.t = a.t + 2",
    "subquery": "SELECT i FROM s [NOW] WHERE EXISTS (SELECT 1 FROM u [RANGE 1] WHERE u.k = s.k)",
    "inside": "SELECT i FROM u [NOW] WHERE k IN (SELECT k FROM s [RANGE 1] WHERE p = 'p1')",
    "relation": "SELECT p, count(*) AS n, sum(i) AS m FROM s [RANGE 9] GROUP BY p",
    "changes": "ISTREAM (SELECT k, max(t) AS m FROM s [ROWS 5] GROUP BY k)",
    "order": "SELECT t, i FROM s ORDER BY t, i",
    "a window": "SELECT t, i FROM s [RANGE 5]",
    "first": "SELECT t, i FROM s ORDER BY t, i LIMIT 9",
    "merge": "SELECT t, i FROM s UNION ALL SELECT t, i FROM u",
}
#: Windows: they drop a late row if the watermark of its own value has reached the window's end.
OF_WINDOWS = {
    "by another": f"SELECT k, count(*) AS n, sum(i) AS m, window_end FROM s {WINDOW} GROUP BY k",
    "of all": f"SELECT count(*) AS n, max(p) AS m, window_end FROM s {WINDOW}",
    "panes": "SELECT p, sum(i) AS m, window_end FROM s [RANGE 20 SLIDE 5] GROUP BY p",
    "session": "SELECT p, count(*) AS n, window_end FROM s [SESSION 2] GROUP BY p",
    "cumulate": "SELECT p, count(*) AS n, window_end FROM s [RANGE 20 CUMULATE 10] GROUP BY p",
    "computed": "SELECT t / 10 AS c, p, count(*) AS n FROM s GROUP BY t / 10, p",
    "distinct": "SELECT DISTINCT t, k FROM s",
    "numbers": "SELECT p, sum(i) AS m FROM s [ROWS 5 SLIDE 2] GROUP BY p",
    "emit": f"SELECT p, count(*) AS n FROM s {WINDOW} GROUP BY p EMIT CHANGES",
    "united": f"SELECT k, count(*) AS n, window_end FROM u UNION s AS x {WINDOW} GROUP BY k",
    "joined": f"SELECT d.x, count(*) AS n, window_end FROM s {WINDOW} JOIN d ON s.k = d.k"
    " GROUP BY d.x",
    "of pairs": f"SELECT count(*) AS n, st / 10 AS c FROM ({EACH} FROM s JOIN u ON {NEAR}) AS j"
    " GROUP BY st / 10",
    "limit": "SELECT i FROM s LIMIT 7",
}
SETTINGS = {"merge": {"union_operator": "merge"}, "panes": {"window_operator": "panes"}}


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("name", [*OF_ROWS, *OF_WINDOWS])
def test_rows_are_those_of_a_stream_with_slack(session: Session, name: str, late: bool) -> None:
    if late and name in OF_WINDOWS:
        late = False
        session.set("morsel_rows", 7)
    runtimes.apply(session, SETTINGS.get(name, {}))
    text = (OF_ROWS | OF_WINDOWS)[name]
    streams(session, by=False, late=late)
    expected = found(session, text)
    assert len(expected) > 0
    streams(session, by=True, late=late)
    given = found(session, text)
    assert Counter(given) == Counter(expected)
    if name in ("order", "first", "limit"):
        assert given == expected
    if name == "merge":
        assert [row[0] for row in given] == sorted(row[0] for row in given)


@pytest.mark.parametrize("name", ["left join", "order"])
def test_in_every_runtime(session: Session, name: str) -> None:
    streams(session, by=False, late=True)
    expected = Counter(found(session, OF_ROWS[name]))
    streams(session, by=True, late=True)
    for case, settings in enumerate(runtimes.RUNTIMES):
        runtimes.apply(session, settings, {"morsel_rows": 13 if case % 2 else 4_096})
        assert Counter(found(session, OF_ROWS[name])) == expected, settings


@pytest.mark.parametrize("operator", ["sync_filter", "filter_order", "adaptive"])
def test_joins_in_order_sort_such_a_stream_first(session: Session, operator: str) -> None:
    streams(session, by=False, late=True)
    expected = Counter(found(session, OF_ROWS["join"]))
    streams(session, by=True, late=True)
    session.set("join_operator", operator)
    given = found(session, OF_ROWS["join"])
    assert Counter(given) == expected
    latest = [max(st, ut) for _, _, st, ut in given]
    assert latest == sorted(latest)
    assert "the join takes them in order" in str(session.sql(f"EXPLAIN {OF_ROWS['join']}"))


def test_no_plan_takes_such_a_stream_for_one_in_order(session: Session) -> None:
    """This holds although each value is in order and the declaration has no WITHIN."""
    text = f"{OF_ROWS['join']} ORDER BY greatest(s.t, u.t)"
    rows = sorted(disordered(1), key=lambda row: row[0])
    for by in (None, "p"):
        for name in ("s", "u"):
            clauses: dict[str, Any] = {"ordered_by": "t", "punctuated_by": by, "replace": True}
            session.create_stream(name, table(rows, *NAMES), **clauses)
        assert ("WindowJoin" in str(session.sql(f"EXPLAIN {text}"))) == (by is None)


# Against the reference ----------------------------------------------------------------------------


def drawn(made: Case, seed: int) -> Case:
    """The case over streams in which each value of a column has its own watermark."""
    rng = random.Random(f"whole {seed}")
    by = rng.choice("ksgb")
    named = (s if s.name in TABLES else punctuated_by(rng, s, by) for s in made.streams)
    return replace(made, streams=tuple(named), seed=f"{made.seed} by {by}")


RANDOM: dict[str, Callable[[int], Case]] = {
    "join": lambda seed: join_case(0, seed),
    "outer join": lambda seed: join_case(48, seed),
    "asof join": lambda seed: asof_case(0, seed),
    "relation join": lambda seed: relation_join_case(1, seed),
    "relation": lambda seed: relation_case(RELATIONS[0], random.Random(seed)),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", RANDOM)
def test_random_cases(name: str, full: bool) -> None:
    outcomes = Counter(check(drawn(RANDOM[name](seed), seed)) for seed in range(60 if full else 3))
    assert outcomes["same"] > 0


def test_random_joins_in_order(full: bool) -> None:
    for seed in range(60 if full else 2):
        check_in_order(drawn(join_case(1, seed), seed))


# State, and input without a watermark -------------------------------------------------------------


def test_a_join_forgets_rows_while_a_value_is_silent(session: Session) -> None:
    """Rows more than WITHIN behind are purged although b sends no rows any more."""
    held = []
    session.set("morsel_rows", 64)
    for n in (5_000, 20_000):
        rows = [(0, "b", 0, 0), *((i // 4, "a", i % 3, i) for i in range(n))]
        session.create_stream(
            "s", table(rows, *NAMES), ordered_by="t", punctuated_by=("p", 100), replace=True
        )
        session.create_stream("u", table(rows, *NAMES), ordered_by="t", replace=True)
        query = session.sql(OF_ROWS["join"])
        assert isinstance(query, Query)
        assert query.to_arrow().num_rows > n
        held.append(next(m for m in query.metrics() if m["operator"].startswith("join")))
    assert held[0]["peak_bytes"] == held[1]["peak_bytes"]


def endless() -> Iterator[dict[str, Any]]:
    yield {"t": 1, "p": "a"}


@pytest.mark.parametrize(
    "text",
    [
        "SELECT p FROM s ORDER BY t",
        "SELECT s.p FROM s JOIN w ON s.p = w.p AND w.t BETWEEN s.t - 1 AND s.t + 1",
        "SELECT w.p FROM w ASOF JOIN s ON s.p = w.p AND w.t >= s.t",
        "SELECT p, count(*) FROM s [SESSION 5] GROUP BY p",
        f"SELECT count(*) FROM s {WINDOW}",
        "SELECT p, count(*) FROM s [RANGE 5] GROUP BY p EMIT CHANGES",
        "SELECT DISTINCT t FROM s",
    ],
)
def test_endless_input_says_how_far_values_may_be_apart(session: Session, text: str) -> None:
    """Every query that waits for a watermark needs the distance."""
    for name, by in (("s", "p"), ("w", ("p", 5))):
        session.create_stream(name, endless, ordered_by="t", bounded=False, punctuated_by=by)
    with pytest.raises(PlanError, match="how far its values may be apart") as error:
        session.sql(text)
    assert error.value.position is not None
    session.create_stream(
        "s", endless, ordered_by="t", bounded=False, punctuated_by=("p", 5), replace=True
    )
    session.sql(f"EXPLAIN {text}")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT p FROM s",
        "SELECT p FROM s LIMIT 1",
        "SELECT p FROM (SELECT p, t + 1 AS c FROM s) AS x WATERMARK c DELAY OF 5 ORDER BY c",
        "SELECT max(p) AS p FROM s [ROWS 1 SLIDE 1]",
    ],
)
def test_what_awaits_no_watermark_of_the_stream_runs(session: Session, text: str) -> None:
    session.create_stream("s", endless, ordered_by="t", bounded=False, punctuated_by="p")
    query = session.sql(text)
    assert isinstance(query, Query)
    assert [row for batch in query for row in batch.column("p").to_pylist()] == ["a"]


def test_promises_of_the_source_need_no_distance(session: Session) -> None:
    """Only punctuation advances this watermark, so that WITHIN would have no effect."""

    def items() -> Iterator[Any]:
        yield {"t": 5, "p": "a"}
        yield {"t": 3, "p": "b"}
        yield Punctuation("t", 10)

    clauses: dict[str, Any] = {"punctuated": "t", "punctuated_by": "p", "bounded": False}
    session.create_stream("s", items, **clauses)
    query = session.sql("SELECT t FROM s ORDER BY t")
    assert isinstance(query, Query)
    assert [t for batch in query for t in batch.column("t").to_pylist()] == [3, 5]


# EXPLAIN ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "who"),
    [
        (OF_ROWS["join"], "a join"),
        (OF_ROWS["windows"], "a join"),
        (OF_ROWS["asof left"], "a join"),
        (OF_ROWS["subquery"], "a subquery"),
        (OF_ROWS["relation"], "a relation"),
        (OF_ROWS["order"], "a sort by time"),
        (OF_WINDOWS["by another"], "an aggregate that is not grouped by p"),
        (OF_WINDOWS["session"], "session windows"),
        (OF_WINDOWS["cumulate"], "windows with CUMULATE"),
        (OF_WINDOWS["computed"], "windows over t / 10, which is computed"),
        (OF_WINDOWS["joined"], "a window behind a join"),
    ],
)
def test_explain_says_who_takes_all_values_together(session: Session, text: str, who: str) -> None:
    streams(session, by=True)
    said = (
        f"each p for itself (PUNCTUATE BY), but all together for {who}: the watermark is 40 behind"
    )
    assert said in str(session.sql(f"EXPLAIN {text}"))


@pytest.mark.parametrize(
    ("setting", "who"),
    [
        ("window_operator = 'panes'", "SET window_operator = 'panes'"),
        ("adaptive_windows = on", "SET adaptive_windows = on"),
        ("union_operator = 'merge'", "a union in order"),
        ("order_enforcement = 'sort'", "a sort by time"),
        ("slack = '5'", "SET slack"),
    ],
)
def test_explain_names_settings(session: Session, setting: str, who: str) -> None:
    """EXPLAIN names each setting under which windows do not close value by value."""
    streams(session, by=True)
    session.sql(f"SET {setting}")
    item = "u UNION s AS x" if "union" in setting else "s"
    plan = str(session.sql(f"EXPLAIN SELECT p, count(*) FROM {item} {WINDOW} GROUP BY p"))
    assert who in plan
    assert "has its own watermark" not in plan


def test_without_within_nothing_has_passed_before_the_end(session: Session) -> None:
    session.create_stream("s", table(disordered(1), *NAMES), ordered_by="t", punctuated_by="p")
    text = "SELECT t, i FROM s ORDER BY t, i"
    assert "no watermark before the end, without WITHIN" in str(session.sql(f"EXPLAIN {text}"))
    rows = sorted((t, i) for t, _, _, i in disordered(1))
    assert results(session, text) == rows


def test_late_output_of_a_window_that_lets_no_value_go(session: Session) -> None:
    """LATE OUTPUT holds the rows whose own value's watermark has reached the window's end."""
    rows = [(1, "a", 0, 0), (21, "a", 0, 1), (2, "b", 0, 2), (3, "a", 0, 3), (1, "b", 0, 4)]
    session.create_stream("s", table(rows, *NAMES), ordered_by="t", punctuated_by=("p", WITHIN))
    text = f"SELECT p, count(*) AS n, window_end AS e FROM s {WINDOW} GROUP BY p LATE OUTPUT INTO x"
    assert Counter(results(session, text)) == Counter([("a", 1, 10), ("a", 1, 30), ("b", 2, 10)])
    assert results(session, "SELECT i FROM x") == [(3,)]
