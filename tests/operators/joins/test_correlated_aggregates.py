"""Correlated scalar aggregates of streams, under every runtime: rows look a table up as they pass;
a changing source is read as the relation of all rows so far."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import cql
from cql.errors import CqlError, NotSupportedError
from tests.support.runtimes import RUNTIMES, named

M = [(1, 1, 3), (2, 2, 1), (3, None, 2), (4, 1, 5), (5, 2, 4), (6, 3, 6)]  # t, a, b
N = [(1, 1, 9), (2, None, 8), (3, 2, 7), (4, 1, 6), (5, 2, 5), (6, 2, 4)]  # t, a, x


@pytest.fixture
def session() -> Iterator[cql.Session]:
    """Streams ``m`` and ``n``, and ``u``, a table with the rows of ``n``."""
    with cql.connect(spark=False) as made:
        for name, rows, columns in (("m", M, "tab"), ("n", N, "tax")):
            data = pa.table({c: [row[k] for row in rows] for k, c in enumerate(columns)})
            made.create_stream(name, data, ordered_by="t", unit="seconds")
        made.register_table("u", data)
        yield made


def rows(query: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in query.to_arrow().to_pylist())


def counted(around: tuple[Any, ...]) -> int:
    return sum(a is not None and a == around[1] for _, a, _ in N)


def summed(around: tuple[Any, ...]) -> int | None:
    found = [x for _, _, x in N if x > around[2]]
    return sum(found) if found else None


@pytest.mark.sampled
@pytest.mark.parametrize("source", ["u", "n"])
@pytest.mark.parametrize("runtime", RUNTIMES, ids=named)
def test_each_row_has_the_value_of_its_own(
    session: cql.Session, source: str, runtime: dict[str, Any]
) -> None:
    """Subqueries correlate by an equality and by a comparison; over no rows, a count is 0, a sum
    NULL."""
    text = (
        f"SELECT t, (SELECT count(*) FROM {source} AS k WHERE k.a = m.a) AS c,"
        f" (SELECT sum(x) FROM {source} AS k WHERE k.x > m.b) AS s FROM m"
    )
    found = rows(session.sql(text, morsel_rows=2, **runtime))
    assert found == [(m[0], counted(m), summed(m)) for m in M]


def test_rows_pass_a_table_as_they_come(session: cql.Session) -> None:
    """An equality with a table keeps the result a stream: a window above it closes."""
    text = "SELECT t, (SELECT count(*) FROM u WHERE u.a = m.a) AS c FROM m"
    plan = str(session.sql(f"EXPLAIN {text}"))
    assert "TableJoin left a = key_0" in plan
    assert session.sql(text).to_arrow()["t"].to_pylist() == [m[0] for m in M]
    above = (
        "SELECT sum((SELECT count(*) FROM u WHERE u.a = m.a)) AS q, window_end AS w"
        " FROM m [RANGE 3 SECONDS SLIDE 3 SECONDS]"
    )
    wanted: dict[int, int] = {}
    for m in M:
        wanted[m[0] // 3 * 3 + 3] = wanted.get(m[0] // 3 * 3 + 3, 0) + counted(m)
    assert rows(session.sql(above)) == sorted((q, w) for w, q in wanted.items())


def test_in_having_and_in_where_of_windows(session: cql.Session) -> None:
    having = (
        "SELECT a, count(*) AS c, window_end AS w FROM m [RANGE 6 SECONDS SLIDE 6 SECONDS]"
        " GROUP BY a HAVING count(*) <= (SELECT count(*) FROM u WHERE u.a = m.a) AND a > 0"
    )
    assert rows(session.sql(having)) == [(1, 2, 6), (2, 2, 6)]
    where = (
        "SELECT a, count(*) AS c FROM m [RANGE 6 SECONDS SLIDE 6 SECONDS]"
        " WHERE (SELECT max(x) FROM u WHERE u.a = m.a) > 7 GROUP BY a"
    )
    assert rows(session.sql(where)) == [(1, 2)]


def test_windows_of_the_subquery(session: cql.Session) -> None:
    """A window without SLIDE is the relation at each instant; a window with SLIDE needs a query in
    FROM."""
    now = (
        "SELECT ISTREAM(t, (SELECT sum(x) FROM n [ROWS 2] AS k WHERE k.a = m.a) AS v) FROM m [NOW]"
    )
    values = []
    for m in M:
        last = [k for k in N if k[0] <= m[0]][-2:]
        found = [x for _, a, x in last if a is not None and a == m[1]]
        values.append((m[0], sum(found) if found else None))
    found_rows = [(row["t"], row["v"]) for row in session.sql(now).to_arrow().to_pylist()]
    assert sorted(found_rows, key=str) == sorted(values, key=str)
    sliding = "n [RANGE 2 SECONDS SLIDE 2 SECONDS]"
    derived = (
        "SELECT t, (SELECT max(c) FROM (SELECT a, count(*) AS c, window_end AS w FROM"
        f" {sliding} GROUP BY a) AS k WHERE k.a = m.a) AS v FROM m"
    )
    assert rows(session.sql(derived)) == [(1, 1), (2, 1), (3, None), (4, 1), (5, 1), (6, None)]
    with pytest.raises(NotSupportedError, match="over a window with SLIDE") as raised:
        session.sql(f"SELECT t, (SELECT sum(x) FROM {sliding} AS k WHERE k.a = m.a) AS v FROM m")
    assert raised.value.position is not None


def test_an_endless_stream_is_refused_where_it_would_be_kept(session: cql.Session) -> None:
    """An endless stream may only look up a table, by an equality."""

    def numbers() -> Iterator[dict[str, int]]:
        for k in range(100):
            yield {"t": k, "a": k % 3}

    session.create_stream("f", numbers(), ordered_by="t", unit="seconds", bounded=False)
    for text in (
        "SELECT t, (SELECT count(*) FROM u WHERE u.x < f.a) AS v FROM f",
        "SELECT t, (SELECT count(*) FROM n WHERE n.a = f.a) AS v FROM f",
    ):
        with pytest.raises(CqlError, match="for ever") as raised:
            session.sql(f"EXPLAIN {text}")
        assert raised.value.position is not None
    session.sql("EXPLAIN SELECT t, (SELECT count(*) FROM u WHERE u.a = f.a) AS v FROM f")
