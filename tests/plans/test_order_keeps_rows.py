"""An outer ORDER BY, LIMIT or select list does not change which rows a query gives."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import cql
from cql.errors import PlanError
from cql.planner.nodes.physical import OopJoinExec, PunctuatedSortExec, WindowJoinExec, walk
from tests.support.runtimes import RUNTIMES, apply

PAIRS = "SELECT a.ts AS t, b.ts AS u, a.k AS k, a.v AS v, b.v AS w FROM"
KEY = "WHERE a.k = b.k"
#: (query, its sort keys); all keys of a query together give a total order.
QUERIES = (
    (f"{PAIRS} a, b {KEY} WINDOW 3 MINUTES", "t u k v w greatest(t,u)"),
    (f"{PAIRS} a [RANGE 2 MINUTES], b [RANGE 5 MINUTES] {KEY}", "t u k v w greatest(t,u)"),
    (f"{PAIRS} a [NOW], b [RANGE 5 MINUTES] {KEY}", "t u k v w least(t,u)"),
    (f"{PAIRS} a [ROWS 3], b [ROWS 4] {KEY}", "t u k v w"),
    (f"{PAIRS} a, b {KEY} AND abs(a.ts - b.ts) < 90", "t u k v w greatest(t,u)"),
    (f"SELECT t, w FROM ({PAIRS} a, b {KEY} WINDOW 3 MINUTES ORDER BY a.ts) AS q", "t w"),
    (
        "SELECT a.ts AS t, b.ts AS u, c.ts AS v FROM a, b, c WHERE a.k = b.k AND b.k = c.k"
        " WINDOW 1 MINUTE",
        "t u v greatest(t,u,v)",
    ),
    ("SELECT ts AS t, k, v FROM a [RANGE 5 MINUTES]", "t k v"),
    ("SELECT ts AS t, k, v FROM a [ROWS 5] WHERE k > 1", "t k v"),
    (
        "SELECT ts AS t, k FROM a [RANGE 2 MINUTES] UNION ALL SELECT ts, k FROM b [NOW]",
        "t k",
    ),
    (
        f"SELECT t, k FROM ({PAIRS} a, b {KEY} WINDOW 2 MINUTES) AS q UNION ALL"
        " SELECT ts, k FROM c [NOW]",
        "t k",
    ),
    ("SELECT a.ts AS t, n FROM a [RANGE 2 MINUTES] JOIN names ON a.k = names.k", "t n"),
    ("SELECT DISTINCT k, v FROM a [RANGE 5 MINUTES]", "k v"),
    ("SELECT k, count(*) AS n FROM a [RANGE 5 MINUTES] GROUP BY k", "k n"),
    (
        "SELECT a.ts AS t, b.ts AS u FROM a [RANGE 2 MINUTES] LEFT JOIN b [RANGE 2 MINUTES]"
        " ON a.k = b.k",
        "t u",
    ),
    ("SELECT a.ts AS t, b.ts AS u FROM a LEFT JOIN b ON a.k = b.k AND abs(a.ts - b.ts) < 9", "t u"),
    (f"SELECT a.ts AS t, b.ts AS u, count(*) AS n FROM a, b {KEY} WINDOW 2 MINUTES"
     " GROUP BY a.ts, b.ts", "t u n"),
    (f"SELECT e, n FROM (SELECT count(*) AS n, window_end AS e FROM ({PAIRS} a, b {KEY}"
     " WINDOW 3 MINUTES ORDER BY a.ts) AS q [RANGE 9 MINUTES SLIDE 3 MINUTES WA t]) AS r", "e n"),
)  # fmt: skip
#: How many of the first queries every run compares; a full run compares all.
QUICK = 6


def _stream(r: np.random.Generator, rows: int) -> pa.Table:
    """Event times jump back by up to a minute; up to three rows are late."""
    times = np.sort(r.integers(0, rows * 30, rows)) + r.integers(0, 60, rows)
    times[r.integers(10, rows, 3)] -= 400
    values = pa.array([None if x == 3 else int(x) for x in r.integers(-3, 4, rows)], pa.int64())
    return pa.table({"ts": times, "k": r.integers(0, 5, rows), "v": values})


def _session(seed: int, rows: int = 40) -> cql.Session:
    made, r = cql.connect(spark=False), np.random.default_rng(seed)
    for name in "abc":
        slack = 60 if name != "b" else 0
        table = _stream(r, rows)
        if not slack:
            table = table.sort_by("ts")
        made.create_stream(name, table, ordered_by="ts", unit="seconds", slack=slack)
    made.register_table("names", pa.table({"k": [0, 1, 2, 2], "n": ["p", "q", "r", None]}))
    return made


@pytest.fixture
def session(seed: int) -> Iterator[cql.Session]:
    with _session(seed) as made:
        yield made


def _rows(session: cql.Session, text: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in session.sql(text).to_arrow().to_pylist()]


def _rank(value: Any) -> tuple[bool, Any]:
    return value is None, 0 if value is None else value


def _value(key: str, row: dict[str, Any]) -> Any:
    if "(" not in key:
        return row[key]
    name, _, rest = key.partition("(")
    values = [row[n] for n in rest.rstrip(")").split(",")]
    return {"greatest": max, "least": min}[name](values)


def _in_order(
    keys: list[tuple[str, bool, bool]], names: list[str], rows: list[tuple[Any, ...]]
) -> list[tuple[Any, ...]]:
    """Sorts the rows by ``keys`` (name, descending, nulls first): one stable sort per key, the last
    key first."""
    for key, descending, nulls_first in reversed(keys):
        found = [(_value(key, dict(zip(names, row, strict=True))), row) for row in rows]
        there = [pair for pair in found if pair[0] is not None]
        there.sort(key=lambda pair: _rank(pair[0]), reverse=descending)
        empty = [row for value, row in found if value is None]
        ordered = [row for _, row in there]
        rows = [*empty, *ordered] if nulls_first else [*ordered, *empty]
    return rows


def _compare(session: cql.Session, number: int, rng: random.Random) -> None:
    """ORDER BY gives the rows of the plain query, sorted; LIMIT and OFFSET give a slice of them."""
    text, given = QUERIES[number]
    query = session.sql(text)
    table = query.to_arrow()
    plain = [tuple(row.values()) for row in table.to_pylist()]
    names = given.split()
    total = [n for n in names if "(" not in n]
    first = rng.sample(names, rng.randint(1, len(names)))
    keys = [
        (name, rng.random() < 0.4, rng.random() < 0.5)
        for name in [*first, *(n for n in total if n not in first)]
    ]
    by = ", ".join(
        f"{n}{' DESC' if d else ''} NULLS {'FIRST' if nulls else 'LAST'}" for n, d, nulls in keys
    )
    expected = _in_order(keys, table.column_names, plain)
    wrapped = f"SELECT * FROM ({text}) AS x ORDER BY {by}"
    assert _rows(session, wrapped) == expected, wrapped
    count, offset = rng.randint(1, 9), rng.choice((0, 2))
    limited = f"{wrapped} LIMIT {count} OFFSET {offset}"
    assert _rows(session, limited) == expected[offset : offset + count], limited


@pytest.mark.sampled
@pytest.mark.parametrize("first", range(QUICK))
def test_with_order_by_equals_sorted(first: int, full: bool, seed: int) -> None:
    for number in range(first, len(QUERIES), QUICK) if full else (first,):
        for k in range(seed, seed + (8 if full else 2)):
            rng = random.Random(f"{k} {number}")
            with _session(k, rng.choice((20, 40, 90))) as session:
                apply(session, {"morsel_rows": rng.choice((7, 16, 65_536))}, rng.choice(RUNTIMES))
                _compare(session, number, rng)


@pytest.mark.sampled
@pytest.mark.parametrize("number", range(QUICK, len(QUERIES)))
def test_order_by_keeps_the_rows(session: cql.Session, number: int) -> None:
    text, keys = QUERIES[number]
    plain, first = _rows(session, text), keys.split()[0]
    assert plain
    for order in (first, f"{first} DESC NULLS FIRST"):
        assert Counter(_rows(session, f"{text} ORDER BY {order}")) == Counter(plain), order


def nodes(root: Any, kind: type[Any]) -> list[Any]:
    return [node for node in walk(root) if isinstance(node, kind)]


def sorts_above(root: Any) -> list[Any]:
    """The sorts between the root and the join; sorts of the join's inputs do not count."""
    found = []
    while not isinstance(root, WindowJoinExec | OopJoinExec):
        found += [root] if isinstance(root, PunctuatedSortExec) else []
        root = root.input
    return found


# The operator of a join with ordered output -------------------------------------------------------

WINDOWED = (
    f"{PAIRS} b AS a, b {KEY} WINDOW 3 MINUTES",
    f"{PAIRS} b [RANGE 3 MINUTES] AS a, b [RANGE 3 MINUTES] {KEY}",
    f"{PAIRS} b AS a, b {KEY} AND abs(a.ts - b.ts) <= 180",
)


@pytest.mark.parametrize("text", WINDOWED)
def test_a_window_join_in_order_is_that_of_a_band(session: cql.Session, text: str) -> None:
    """No sort follows, and the operator is that of the equivalent band join (in-order paper §5)."""
    ordered = session.sql(f"{text} ORDER BY greatest(a.ts, b.ts)")
    (made,) = nodes(ordered._plan.root, WindowJoinExec)
    (band,) = nodes(
        session.sql(f"{WINDOWED[2]} ORDER BY greatest(a.ts, b.ts)")._plan.root, WindowJoinExec
    )
    assert (made.operator, made.bands, made.keys) == (band.operator, band.bands, band.keys)
    assert not ordered._plan.changelog
    assert not sorts_above(ordered._plan.root)


def test_all_operators_give_the_same_order(session: cql.Session) -> None:
    text, plain = (
        f"{WINDOWED[1]} ORDER BY greatest(a.ts, b.ts)",
        Counter(_rows(session, WINDOWED[1])),
    )
    for operator in ("sync_filter", "filter_order", "adaptive", "oop_join"):
        session.set("join_operator", operator)
        found = _rows(session, text)
        assert Counter(found) == plain, operator
        times = [max(row[:2]) for row in found]
        assert times == sorted(times), operator


def test_the_time_that_is_always_the_latest(session: cql.Session) -> None:
    """With [NOW] on side ``a``, ``a.ts`` is the latest time of every pair: ORDER BY a.ts needs no
    sort."""
    text = f"{PAIRS} b [NOW] AS a, b [RANGE 5 MINUTES] {KEY} ORDER BY a.ts"
    plan = session.sql(text)._plan.root
    assert nodes(plan, WindowJoinExec)
    assert not sorts_above(plan)
    other = session.sql(text.replace("BY a.ts", "BY b.ts"))._plan.root
    assert nodes(other, OopJoinExec)
    assert sorts_above(other)


def test_an_order_below_another_one_is_not_waited_for(session: cql.Session) -> None:
    session.sql(f"CREATE VIEW pairs AS {WINDOWED[0]} ORDER BY a.ts")
    query = session.sql("SELECT t, u FROM pairs ORDER BY greatest(t, u)")
    assert nodes(query._plan.root, WindowJoinExec)
    assert not sorts_above(query._plan.root)
    found = [tuple(row.values()) for row in query.to_arrow().to_pylist()]
    assert Counter(found) == Counter(_rows(session, "SELECT t, u FROM pairs"))
    assert [max(row) for row in found] == sorted(max(row) for row in found)


def test_an_endless_window_join_in_order_is_no_relation() -> None:
    with cql.connect(spark=False) as session:
        for name in "ab":
            rows = iter([{"t": 1, "k": 1}])
            session.create_stream(name, rows, ordered_by="t", unit="seconds", bounded=False)
        text = "SELECT a.t AS t, b.t AS u FROM a, b WHERE a.k = b.k WINDOW 10 SECONDS"
        query = session.sql(f"{text} ORDER BY greatest(a.t, b.t)")
        assert not query._plan.changelog
        assert nodes(query._plan.root, WindowJoinExec)
        with pytest.raises(PlanError, match="no end to wait for") as raised:
            session.sql(f"{text} ORDER BY a.k")
        assert "EMIT CHANGES" in (raised.value.hint or "")
        assert session.sql(f"{text} ORDER BY a.k LIMIT 3 EMIT CHANGES")._plan.changelog


OVER_ORDERED = (
    "SELECT k, count(*) AS n, sum(v) AS s FROM ({}) AS q GROUP BY k",
    "SELECT count(*) AS n, window_end FROM ({}) AS q [RANGE 600 SLIDE 300 WA t]",
    "SELECT DISTINCT k FROM ({}) AS q",
    "SELECT k FROM ({}) AS q EXCEPT SELECT k FROM c [RANGE 60]",
    "SELECT ts FROM c [RANGE 60] WHERE k IN (SELECT k FROM ({}) AS q)",
    "SELECT q.t, c.ts FROM ({}) AS q, c WHERE q.k = c.k AND abs(q.t - c.ts) < 60",
    "SELECT t FROM ({}) AS q UNION ALL SELECT ts FROM c",
    "WITH q AS ({}) SELECT t, count(*) AS n FROM q GROUP BY t",
    "SELECT k, v, row_number() OVER (PARTITION BY k ORDER BY v, t, u) AS n FROM ({}) AS q",
)


@pytest.mark.sampled
@pytest.mark.parametrize("text", OVER_ORDERED)
def test_an_order_inside_changes_nothing_above(session: cql.Session, text: str) -> None:
    """Even an inner ORDER BY that would block until the input ends, or hide times of windows."""
    inner = QUERIES[0][0]
    expected = Counter(_rows(session, text.format(inner)))
    assert expected
    for order in ("a.ts", "a.v DESC", "greatest(a.ts, b.ts)"):
        found = _rows(session, text.format(f"{inner} ORDER BY {order}"))
        assert Counter(found) == expected, order


def test_late_output_beside_an_order(session: cql.Session) -> None:
    """The late rows of a window are the same under every ORDER BY above the window."""
    text = "SELECT k, count(*) AS n, window_end FROM a [RANGE 60 SLIDE 60 WA ts] GROUP BY k"
    found = []
    for k, order in enumerate(("", "ORDER BY window_end, k", "ORDER BY n DESC")):
        rows = _rows(session, f"{text} {order} LATE OUTPUT INTO late{k}")
        found.append((Counter(rows), Counter(_rows(session, f"SELECT * FROM late{k}"))))
    assert found[0][1]
    assert found.count(found[0]) == len(found)
