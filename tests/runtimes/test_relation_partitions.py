"""Operators over relations, and ASOF joins, in partitions: the rows, and their order, are those of
one operator, for any number of partitions."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import pyarrow as pa
import pytest

import cql
from cql.session.session import Session

ROWS = 3_000


@cache
def rows_of(seed: int) -> pa.Table:
    """Rows out of order by up to 20, many at one time, with NULL keys."""
    r = random.Random(seed)
    times = sorted(r.randrange(ROWS // 5) for _ in range(ROWS))
    return pa.table(
        {
            "t": pa.array([max(0, t - r.randrange(21)) for t in times], pa.int64()),
            "k": pa.array([r.choice([None, *range(20)]) for _ in times], pa.int64()),
            "v": pa.array([r.randrange(100) for _ in times], pa.int64()),
            "s": pa.array([f"k{r.randrange(10)}" for _ in times], pa.string()),
        }
    )


#: Queries by name, and how many of their operators run in partitions.
QUERIES = {
    "last rows": ("SELECT ISTREAM(k, v, t) FROM a [PARTITION BY k ROWS 3]", 1),
    "rows that leave": ("SELECT DSTREAM(k, v, t) FROM a [PARTITION BY k ROWS 3]", 1),
    "aggregate": (
        "SELECT ISTREAM(k, s, count(*) AS c, sum(v) AS x, max(v) AS m) FROM a [RANGE 100]"
        " GROUP BY k, s",
        1,
    ),
    "aggregate of last rows": (
        "SELECT ISTREAM(s, k, count(*) AS c, min(v) AS v) FROM a [PARTITION BY k ROWS 9]"
        " GROUP BY s, k",
        2,
    ),
    "values": (
        "SELECT ISTREAM(k, median(v) AS m, count(DISTINCT s) AS c, array_agg(s) AS l,"
        " avg(DISTINCT v) AS d, last(v) AS v) FROM a [RANGE 30] GROUP BY k",
        1,
    ),
    "one row of last rows": ("SELECT ISTREAM(count(*) AS c) FROM a [PARTITION BY k ROWS 9]", 1),
    "whole relation": ("SELECT RSTREAM(k, count(*) AS c) FROM a [RANGE 20] GROUP BY k", 1),
    "distinct": ("SELECT ISTREAM(k, s) FROM (SELECT DISTINCT k, s FROM a [RANGE 20])", 1),
    "except": (
        "SELECT ISTREAM(k, s) FROM (SELECT k, s FROM a [RANGE 50]"
        " EXCEPT SELECT k, s FROM b [RANGE 20])",
        1,
    ),
    "latest row": (
        "SELECT ISTREAM(k, v) FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY t DESC)"
        " AS n FROM a [RANGE UNBOUNDED]) WHERE n = 1",
        1,
    ),
    "first row": (
        "SELECT ISTREAM(k, v) FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k, s ORDER BY t)"
        " AS n FROM a) WHERE n = 1",
        1,
    ),
    "asof join": (
        "SELECT l.t, l.v, r.v AS w FROM a l ASOF JOIN b r ON l.k = r.k AND l.s = r.s"
        " AND l.t > r.t AND l.t - r.t <= 50",
        1,
    ),
    "left asof join": (
        "SELECT l.t, l.v, r.v AS w FROM a l ASOF LEFT JOIN b r ON l.s = r.s AND l.t >= r.t",
        1,
    ),
    "latest rows of a join": (
        "SELECT ISTREAM(l.t, l.v, r.v AS w) FROM a [NOW] AS l JOIN b [PARTITION BY k ROWS 3] AS r"
        " ON l.k = r.k",
        1,
    ),
    "join": (
        "SELECT ISTREAM(l.k, l.v, r.v AS w) FROM a [RANGE 10] AS l JOIN b [RANGE 15] AS r"
        " ON l.k = r.k AND l.v < r.v",
        1,
    ),
    "full join": (
        "SELECT ISTREAM(l.k, l.v, r.v AS w) FROM a [RANGE 5] AS l FULL JOIN b [RANGE 7] AS r"
        " ON l.k = r.k AND l.s = r.s",
        1,
    ),
    "left join of last rows": (
        "SELECT DSTREAM(l.k, l.v, r.v AS w) FROM a [PARTITION BY k ROWS 2] AS l"
        " LEFT JOIN b [RANGE 7] AS r ON l.k = r.k",
        2,
    ),
    "rows with a partner": (
        "SELECT ISTREAM(k, v) FROM a [RANGE 5] WHERE k IN (SELECT k FROM b [RANGE 3] WHERE v > 50)",
        None,
    ),
    "exists": (
        "SELECT ISTREAM(k, v) FROM a [RANGE 5] AS a WHERE EXISTS"
        " (SELECT 1 FROM b [RANGE 3] AS b WHERE b.k = a.k AND b.s = a.s)",
        1,
    ),
    "in, without NULLs": (
        "SELECT DSTREAM(k, v, s) FROM a [RANGE 20]"
        " WHERE s NOT IN (SELECT s FROM b [RANGE 2] WHERE s IS NOT NULL AND v > 50)",
        None,
    ),
    "two operators meet": (
        "SELECT k, count(*) AS c, we FROM (SELECT k, window_end AS we FROM"
        " (SELECT k, count(*) AS c, window_end FROM a [RANGE 20 SLIDE 10] GROUP BY k) UNION ALL"
        " SELECT k, window_end AS we FROM"
        " (SELECT k, count(*) AS c, window_end FROM b [RANGE 30 SLIDE 10] GROUP BY k))"
        " [RANGE 100 SLIDE 100 WA we] GROUP BY k, we",
        3,
    ),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", QUERIES)
def test_partitions_keep_rows_and_order(name: str) -> None:
    text, split = QUERIES[name]
    expected, _ = run(text, {"runtime": "depth_first"})
    assert expected.num_rows
    for parts in (1, 3, 8):
        settings = {"runtime": "ordered", "workers": 2, "partitions": parts}
        found, counts = run(text, settings)
        assert found.equals(expected), parts
        assert counts == [parts] * (len(counts) if split is None else split)


def run(text: str, settings: dict[str, object]) -> tuple[pa.Table, list[int]]:
    """The result of a query, and the numbers of partitions of its operators."""
    with Session(False) as session:
        for name, seed in (("a", 1), ("b", 2)):
            session.create_stream(name, rows_of(seed), ordered_by="t", slack=20)
        for setting, value in {"morsel_rows": 300, **settings}.items():
            session.set(setting, value)
        query = session.sql(text)
        table = query.to_arrow()
        return table, [m["partitions"] for m in query.metrics() if "partitions" in m]


def test_the_outputs_of_many_partitions_take_little_memory() -> None:
    """Each partition of each join may hold an output morsel."""
    columns = ", ".join(f"c{k} BIGINT" for k in range(10))
    with cql.connect(spark=False) as session:
        for name in ("a", "b", "c"):
            session.sql(f"CREATE STREAM {name} (ts BIGINT, k BIGINT, {columns}) ORDERED BY ts")
            session.push(name, [(t, t % 7, *range(10)) for t in range(40)])
            session.end(name)
        for setting in ("runtime = 'ordered'", "partitions = 100", "max_state = '1 GB'"):
            session.sql(f"SET {setting}")
        total = " + ".join(f"a.c{k} + b.c{k} + c.c{k}" for k in range(10))
        asked: Any = session.sql(
            f"SELECT a.k, count(*) AS n, sum({total}) AS s FROM a [RANGE 9] JOIN b [RANGE 9] USING"
            " (k) JOIN c [RANGE 9] USING (k) GROUP BY a.k EMIT CHANGES"
        )
        assert sum(batch.num_rows for batch in asked.batches()) > 7
