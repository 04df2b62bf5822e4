"""The reference agrees with DuckDB on plans that both can express.

DuckDB has no event time: the SQL computes windows with ``generate_series``, and the input is in
order, so that no row is late. DuckDB shares Spark's order of floats (NaN above all, -0.0 = 0.0) and
Spark's NULL rules; the SQL spells integer division, sums and deviations such that both engines
compute the same.
"""

from __future__ import annotations

import random
from typing import Any

import duckdb
import pytest

from cql.base.types import BIGINT, BOOLEAN, DOUBLE, INT, STRING
from cql.planner.nodes.expr import Call, Case, Expr
from cql.planner.nodes.logical import Filter, Logical, Project, Scan, Sort, SortKey, Union
from tests.reference.naive import evaluate
from tests.reference.naive_compare import difference
from tests.reference.naive_tables import call, column, literal, sliding, stream, tumbling, whole
from tests.support.fuzz.random_data import random_stream, to_table

COLUMNS = (
    "t bigint, k int, s string, b boolean, v int, w bigint, q int, x double, y double, h float, "
    "g date, z timestamp"
)
CASES = range(8)

#: One row for each pair of a row and a window that contains its t, by the definition of windows.
_WINDOWED = """
  (SELECT *, k_ * {slide} AS ws, k_ * {slide} + {range} AS we FROM
    (SELECT *, unnest(generate_series((t - {range}) // {slide} - 1, t // {slide} + 1)) AS k_ FROM n)
   WHERE k_ * {slide} <= t AND t < k_ * {slide} + {range})
"""


def _data(seed: int, name: str = "n") -> list[tuple[Any, ...]]:
    """Random rows in the order of t, without NULL times."""
    rng = random.Random(f"duckdb {name} {seed}")
    rows = [r for r in random_stream(rng, "n").rows if r[0] is not None]
    return sorted(rows, key=lambda row: row[0])


def _duck(sql: str, **tables: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The rows of a query in DuckDB; the query refers to ``tables`` by their names."""
    from tests.reference.naive_compare import storage_rows
    from tests.support.fuzz.random_data import Stream

    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET integer_division = true")
    for name, rows in tables.items():
        connection.register(name, to_table(Stream("n", tuple(rows), 0)))
    answer = connection.sql(sql).to_arrow_table()
    return storage_rows(answer)


def _assert_same(plan: Logical, sql: str, **tables: list[tuple[Any, ...]]) -> None:
    mine = evaluate(plan, tables)
    assert mine.late_pairs == 0
    found = difference(_plain(mine.rows), _plain(_duck(sql, **tables)))
    assert found is None, f"{sql}\n{found}"


def _plain(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The rows with integers as floats, because DuckDB's wider types turn 1 into 1.0."""
    return [tuple(float(v) if type(v) is int else v for v in row) for row in rows]


@pytest.fixture(scope="module")
def n() -> Scan:
    return stream("n", COLUMNS)


@pytest.mark.parametrize("seed", CASES)
@pytest.mark.parametrize(("range_", "slide"), [(10, 10), (10, 5), (30, 5), (7, 3), (5, 12)])
def test_windows(n: Scan, seed: int, range_: int, slide: int) -> None:
    plan = sliding(n, range_, slide, "k", c="count", a=("sum", "q"), m=("max", "y"), l=("min", "s"))
    source = _WINDOWED.format(range=range_, slide=slide)
    sql = (
        "SELECT k, count(*), sum(q)::BIGINT, max(y), min(s), ws, we, we - 1 "
        f"FROM {source} GROUP BY k, ws, we"
    )
    _assert_same(plan, sql, n=_data(seed))


KEYS = ["k", "s", "b", "x", "h", "g", "z", "w"]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("seed", range(3))
def test_group_keys_of_every_type(n: Scan, seed: int, key: str) -> None:
    plan = tumbling(n, 20, key, c="count")
    sql = (
        f"SELECT {key}, count(*), ws, we, we - 1 "
        f"FROM {_WINDOWED.format(range=20, slide=20)} GROUP BY {key}, ws, we"
    )
    _assert_same(plan, sql, n=_data(seed))


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        (("count", "s"), "count(s)"),
        (("sum", "v"), "sum(v)::BIGINT"),
        (("sum", "y"), "sum(y)"),
        (("avg", "q"), "avg(q)"),
        (("avg", "y"), "avg(y)"),
        (("min", "x"), "min(x)"),
        (("max", "x"), "max(x)"),
        (("max", "s"), "max(s)"),
        (("min", "w"), "min(w)"),
        (("max", "g"), "max(g)"),
        (("min", "z"), "min(z)"),
        (("bool_and", "b"), "bool_and(b)"),
        (("bool_or", "b"), "bool_or(b)"),
        (("count_if", "b"), "count(*) FILTER (WHERE b)"),
        (("var_samp", "q"), "var_samp(q)"),
        (("var_pop", "q"), "var_pop(q)"),
        (("stddev_samp", "q"), "stddev_samp(q)"),
        (("stddev_pop", "q"), "stddev_pop(q)"),
        (("first", "v"), "arg_min_null(v, i)"),
        (("last", "s"), "arg_max_null(s, i)"),
    ],
)
@pytest.mark.parametrize("seed", range(4))
def test_aggregates(n: Scan, seed: int, mine: Any, theirs: str) -> None:
    numbered = "(SELECT *, row_number() OVER () AS i FROM n)"
    rows = _data(seed)
    _assert_same(whole(n, a=mine), f"SELECT {theirs} FROM {numbered}", n=rows)
    _assert_same(whole(n, "k", a=mine), f"SELECT k, {theirs} FROM {numbered} GROUP BY k", n=rows)


@pytest.mark.parametrize("of", ["k", "s", "x", "b", "z"])
@pytest.mark.parametrize("seed", range(3))
def test_distinct_counts(n: Scan, seed: int, of: str) -> None:
    from dataclasses import replace

    plan = whole(n, "q", c=("count", of))
    plan = replace(plan, calls=(replace(plan.calls[0], distinct=True),))
    _assert_same(plan, f"SELECT q, count(DISTINCT {of}) FROM n GROUP BY q", n=_data(seed))


def _expressions(n: Scan) -> dict[str, Expr]:
    """Expressions of the reference by equivalent SQL text for DuckDB."""

    def c(name: str) -> Expr:
        return column(n, name)

    def typed(fn: str, kind: Any, *args: Any) -> Call:
        return Call(fn, tuple(literal(a) if isinstance(a, int | str) else a for a in args), kind)

    return {
        "q + 1": typed("add", BIGINT, c("q"), 1),
        "q % 7": typed("mod", BIGINT, c("q"), 7),
        "q // 7": typed("int_div", BIGINT, c("q"), 7),
        "abs(q)": call("abs", c("q")),
        "x = x": call("eq", c("x"), c("x")),
        "x < y": call("lt", c("x"), c("y")),
        "y <= x": call("le", c("y"), c("x")),
        "x > 0.0::DOUBLE": call("gt", c("x"), 0.0),
        "s < 'a'": call("lt", c("s"), "a"),
        "k IN (0, 2, NULL)": typed("in_list", BOOLEAN, c("k"), 0, 2, call("neg", _null())),
        "b AND q > 0": call("and", c("b"), call("gt", c("q"), 0)),
        "b OR q > 0": call("or", c("b"), call("gt", c("q"), 0)),
        "NOT b": call("not", c("b")),
        "k IS NOT DISTINCT FROM q": call("null_safe_eq", c("k"), c("q")),
        "coalesce(k, q)": call("coalesce", c("k"), c("q")),
        "CASE WHEN b THEN q WHEN q > 5 THEN k END": Case(
            ((c("b"), c("q")), (call("gt", c("q"), 5), c("k"))), None, INT
        ),
        "upper(s)": call("upper", c("s")),
        "length(s)": typed("length", INT, c("s")),
        "substring(s, 2, 1)": typed("substring", STRING, c("s"), 2, 1),
        "trim(s)": call("trim", c("s")),
        "replace(s, 'a', 'bb')": call("replace", c("s"), "a", "bb"),
        "s || '-'": call("concat", c("s"), "-"),
        "s LIKE '%a_'": call("like", c("s"), "%a_"),
        "year(g)": typed("year", INT, c("g")),
        "month(z)": typed("month", INT, c("z")),
        "dayofyear(g)": typed("dayofyear", INT, c("g")),
        "isodow(g) - 1": typed("weekday", INT, c("g")),
        "week(g)": typed("week", INT, c("g")),
        "quarter(g)": typed("quarter", INT, c("g")),
        "hour(z)": typed("hour", INT, c("z")),
        "minute(z)": typed("minute", INT, c("z")),
        "date_trunc('month', z)": typed("date_trunc", c("z").type, "month", c("z")),
        "date_trunc('week', z)": typed("date_trunc", c("z").type, "week", c("z")),
        "g + 40": typed("date_add", c("g").type, c("g"), 40),
        "greatest(k, q)": call("greatest", c("k"), c("q")),
        "least(x, y)": call("least", c("x"), c("y")),
        "sqrt(abs(y))": typed("sqrt", DOUBLE, call("abs", c("y"))),
        "exp(y / 1000)": typed("exp", DOUBLE, typed("div", DOUBLE, c("y"), literal(1000.0))),
        "floor(y)": typed("floor", DOUBLE, c("y")),
        "round(y, 1)": typed("round", DOUBLE, c("y"), 1),
    }


def _null() -> Expr:
    from cql.planner.nodes.expr import Literal

    return Literal(None, BIGINT)


@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(4))
def test_expressions(n: Scan, seed: int) -> None:
    rows = _data(seed)
    for sql, expr in _expressions(n).items():
        mine = Project(n, (column(n, "t"), expr), ("t", "e"))
        _assert_same(mine, f"SELECT t, {sql} FROM n", n=rows)


@pytest.mark.parametrize("seed", range(4))
def test_filters_unions_and_order(n: Scan, seed: int) -> None:
    m = stream("m", COLUMNS)
    tables = {"n": _data(seed), "m": _data(seed, "m")}
    kept = Filter(n, call("gt", column(n, "q"), column(n, "k")))
    _assert_same(kept, "SELECT * FROM n WHERE q > k", **tables)
    both = "(SELECT * FROM n UNION ALL SELECT * FROM m)"
    _assert_same(Union((n, m)), f"SELECT * FROM {both}", **tables)
    grouped = whole(Union((n, m)), "s k", c="count")
    keys = (
        SortKey(column(grouped, "c"), True, False),
        SortKey(column(grouped, "s"), False, False),
        SortKey(column(grouped, "k"), True, True),
    )
    ordered = Sort(grouped, keys, 5, 2, None)
    sql = (
        f"SELECT s, k, count(*) AS c FROM {both} GROUP BY s, k ORDER BY c DESC NULLS LAST, "
        "s NULLS LAST, k DESC NULLS FIRST LIMIT 5 OFFSET 2"
    )
    mine = evaluate(ordered, tables)
    assert not mine.undetermined
    assert _plain(mine.rows) == _plain(_duck(sql, **tables))
