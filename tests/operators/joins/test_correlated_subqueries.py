"""Correlated scalar aggregates over tables, against DuckDB: every kind of FROM, equalities and
comparisons, in every place of a query. A refusal names the position."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import cql
from cql.errors import BindError, CqlError, NotSupportedError

pytestmark = pytest.mark.usefixtures("shared_kernels")


def table(seed: int, rows: int) -> pa.Table:
    rng = random.Random(seed)
    return pa.table(
        {
            "a": pa.array([rng.choice((None, 1, 2, 3, 4)) for _ in range(rows)], pa.int64()),
            "b": pa.array([rng.randrange(8) for _ in range(rows)], pa.int64()),
            "x": pa.array([rng.choice((None, *range(10))) for _ in range(rows)], pa.int64()),
            "s": pa.array([rng.choice((None, "p", "q")) for _ in range(rows)], pa.string()),
        }
    )


TABLES = {"m": table(1, 9), "n": table(2, 14), "e": table(3, 0)}

#: FROM of the subquery, with the columns a, b and x; a query correlates by = and by <.
SOURCES = {
    "table": "n",
    "no rows": "e AS n",
    "derived table": "(SELECT x, b, a FROM n WHERE x > 2) AS n",
    "computed columns": "(SELECT a + 0 AS a, b - 1 AS b, x * 2 AS x FROM n) AS n",
    "aggregate": "(SELECT a, b, max(x) AS x FROM n GROUP BY a, b) AS n",
    "join": "(SELECT o.a, n.b, n.x FROM n JOIN m AS o ON n.b = o.b) AS n",
    "outer join": "(SELECT n.a, n.b, o.x FROM n LEFT JOIN m AS o ON n.b = o.b AND o.a = n.a) AS n",
    "union": "(SELECT a, b, x FROM n UNION ALL SELECT b, a, x FROM m) AS n",
    "except": "(SELECT a, b, x FROM n EXCEPT SELECT a, b, x FROM m) AS n",
    "values": "(VALUES (1, 3, 10), (1, 5, 20), (NULL, 2, 30), (3, 1, NULL)) AS n(a, b, x)",
    "cte": "c AS n",
    "view": "v AS n",
    "distinct": "(SELECT DISTINCT a, b, x FROM n) AS n",
}

#: Other queries: the place of a subquery, its aggregate, its correlation.
TEXTS = (
    "SELECT a, b FROM m WHERE (SELECT count(*) FROM n WHERE n.b < m.b AND n.x <> m.x) > 1",
    "SELECT a, b FROM m WHERE b = (SELECT min(o.b) FROM m AS o WHERE o.a = m.a)"
    " OR (SELECT count(*) FROM n WHERE n.b > m.b + 2) < 3",
    "SELECT a, count(*) AS c FROM m GROUP BY a HAVING count(*) > (SELECT count(*) FROM n"
    " WHERE n.a < m.a)",
    "SELECT a, b FROM m ORDER BY (SELECT count(*) FROM n WHERE n.a = m.a) DESC, b, a LIMIT 5",
    "SELECT sum((SELECT count(*) FROM n WHERE n.a = m.a)) AS v FROM m",
    "SELECT DISTINCT (SELECT max(x) FROM n WHERE n.a = m.a) AS v FROM m",
    "SELECT a, CASE WHEN (SELECT count(*) FROM n WHERE n.a = m.a) > 2 THEN 'many' END AS v FROM m",
    # nested subqueries, each correlated with the query directly around it
    "SELECT a, (SELECT max(x) FROM n WHERE n.b < m.b AND n.x > (SELECT avg(o.x) FROM n AS o"
    " WHERE o.a = n.a)) AS v FROM m",
    "SELECT a FROM m WHERE EXISTS (SELECT 1 FROM n WHERE n.a = m.a AND n.x > (SELECT min(o.x)"
    " FROM n AS o WHERE o.b < n.b))",
    # expressions over several aggregates and the outer row
    "SELECT a, (SELECT max(x) - min(x) + count(*) FROM n WHERE n.a IS NOT DISTINCT FROM m.a) AS v"
    " FROM m",
    "SELECT a, (SELECT max(x) + m.b FROM n WHERE n.a = m.a HAVING count(*) > 2) AS v FROM m",
    "SELECT a, (SELECT max(x) + m.b FROM n) AS v FROM m",
    "SELECT a, (SELECT sum(n.x * m.b) FROM n WHERE n.a = m.a) AS v FROM m",
    "SELECT a, (SELECT count(*) FILTER (WHERE n.x > m.x) FROM n WHERE n.s = m.s) AS v FROM m",
    "SELECT a, (SELECT count(DISTINCT n.x) FROM n WHERE n.a <> m.a) AS v FROM m",
    "SELECT a, (SELECT count(*) FROM n WHERE n.a = m.a OR n.b = m.b) AS v FROM m",
    "SELECT a, (SELECT count(*) FROM n WHERE m.b > 3) AS v FROM m",
    "SELECT a, (SELECT avg(x) FROM n WHERE n.b BETWEEN m.b - 1 AND m.b + 1) AS v FROM m",
    # the outer row comes from a join, also with USING
    "SELECT m.a, o.b, (SELECT count(*) FROM n WHERE n.a = m.a AND n.b > o.b) AS v"
    " FROM m JOIN n AS o ON m.b = o.b",
    "SELECT b, (SELECT count(*) FROM n WHERE n.a = b) AS v FROM m FULL JOIN n AS o USING (b)",
)


@pytest.fixture(scope="module")
def session() -> Iterator[cql.Session]:
    with cql.connect(spark=False) as made:
        for name, data in TABLES.items():
            made.register_table(name, data)
        made.sql("CREATE VIEW v AS SELECT a, b, x FROM n WHERE x IS NOT NULL")
        yield made


@pytest.fixture(scope="module")
def database() -> Iterator[Any]:
    with duckdb.connect() as made:
        for name, data in TABLES.items():
            made.register(name, data)
        made.execute("CREATE VIEW v AS SELECT a, b, x FROM n WHERE x IS NOT NULL")
        yield made


def bag(rows: Any) -> Counter[tuple[Any, ...]]:
    return Counter(
        tuple(round(float(v), 6) if isinstance(v, int | float) else v for v in row) for row in rows
    )


def compare(session: cql.Session, database: Any, text: str) -> None:
    found = [tuple(row.values()) for row in session.sql(text).to_arrow().to_pylist()]
    assert bag(found) == bag(database.sql(text).fetchall()), text


#: Sources that run without --full: each query is compiled.
SOME = ("no rows", "derived table", "outer join", "union", "values", "view")


@pytest.mark.sampled
@pytest.mark.parametrize("name", SOURCES)
def test_every_kind_of_from(session: cql.Session, database: Any, name: str, full: bool) -> None:
    if not (full or name in SOME):
        pytest.skip("with --full")
    source = SOURCES[name]
    compare(
        session,
        database,
        "WITH c AS (SELECT a, max(b) AS b, sum(x) AS x FROM n GROUP BY a)"
        f" SELECT a, (SELECT count(*) FROM {source} WHERE n.a = m.a) AS c,"
        f" (SELECT sum(x) FROM {source} WHERE n.b < m.b AND n.x > 1) AS s FROM m",
    )


@pytest.mark.sampled
@pytest.mark.parametrize("number", range(len(TEXTS)))
def test_where_it_stands_and_what_it_computes(
    session: cql.Session, database: Any, number: int
) -> None:
    compare(session, database, TEXTS[number])


REFUSED = (
    ("SELECT a, (SELECT x FROM n WHERE n.a = m.a) AS v FROM m", "that is no aggregate"),
    ("SELECT a, (SELECT max(x) FROM n WHERE n.a = m.a GROUP BY b) AS v FROM m", "with GROUP BY"),
    ("SELECT a, (SELECT max(x) FROM n WHERE n.a = m.a LIMIT 1) AS v FROM m", "or LIMIT"),
    ("SELECT a, (SELECT array_agg(x) FROM n WHERE n.a = m.a) AS v FROM m", "with array_agg"),
    ("SELECT a, (SELECT max(x) FROM n WHERE n.a = m.a AND n.x < (SELECT max(o.x) FROM n AS o"
     " WHERE o.b = m.b)) AS v FROM m", "the column b of the query around it"),
    ("SELECT a FROM m WHERE EXISTS (SELECT 1 FROM n WHERE n.a = m.a AND EXISTS (SELECT 1"
     " FROM n AS o WHERE o.b = n.b AND o.a = m.a))", "the column a of the query around it"),
    ("SELECT a, (SELECT max(n.x) FROM n JOIN m AS o ON n.a = o.a AND o.b = m.b) AS v FROM m",
     "the column b of the query around it"),
    ("SELECT a, (SELECT max(x) FROM (SELECT x FROM n UNION SELECT b FROM m) AS u WHERE u.x IN"
     " (SELECT b FROM n AS o WHERE o.a = m.a)) AS v FROM m", "the column a of the query around it"),
)  # fmt: skip


@pytest.mark.parametrize(("text", "said"), REFUSED)
def test_what_is_refused_says_where(session: cql.Session, text: str, said: str) -> None:
    with pytest.raises(NotSupportedError, match=said) as raised:
        session.sql(text).to_arrow()
    assert raised.value.position is not None
    assert raised.value.hint


def test_a_query_in_from_does_not_see_the_row_around(session: cql.Session) -> None:
    text = "SELECT (SELECT max(y) FROM (SELECT x AS y FROM n WHERE n.a = m.a) AS z) AS v FROM m"
    with pytest.raises(BindError, match="there is no m in FROM"):
        session.sql(text)


def test_many_subqueries_do_not_multiply_their_inputs(session: cql.Session) -> None:
    """Each subquery reads the outer input once more, not the results of earlier subqueries."""
    many = ", ".join(f"(SELECT count(*) FROM n WHERE n.b < m.b + {k}) AS v{k}" for k in range(12))
    plan = str(session.sql(f"EXPLAIN SELECT {many} FROM m"))
    assert plan.count("Source m") == 13


def test_a_failure_inside_is_ours(session: cql.Session) -> None:
    query = session.sql("SELECT (SELECT sum(9223372036854775807) FROM n WHERE n.b < m.b) FROM m")
    with pytest.raises(CqlError, match="overflow in sum"):
        query.to_arrow()
