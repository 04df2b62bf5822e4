"""ORDER BY … LIMIT and OFFSET over the results of windows: equal to a stable sort of the results
without it, under every runtime."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

import cql
from cql.session.session import Session
from tests.support.run_checkpoints import plan_of, stop_and_continue

pytestmark = pytest.mark.usefixtures("shared_kernels")

RESULTS = """SELECT k, s, f, sum(v) AS n, window_end AS e
             FROM a [RANGE {length} SLIDE 40] GROUP BY k, s, f"""
#: Sort keys that leave ties, by the columns: a number that can be NULL, an aggregate, a text, a
#: number with NaN.
ORDERS = (
    "n DESC NULLS LAST",
    "n NULLS FIRST, k DESC",
    "s DESC, n",
    "f NULLS LAST, s NULLS FIRST",
    "k DESC NULLS FIRST, f DESC",
)
RUNTIMES: tuple[dict[str, Any], ...] = (
    {"runtime": "depth_first"},
    {"runtime": "depth_first", "fuse": False},
    {"runtime": "fifo"},
    {"runtime": "ordered", "workers": 1, "partitions": 1},
    {"runtime": "ordered", "workers": 2, "partitions": 3},
    {"runtime": "ordered", "workers": 2, "partitions": 8, "fuse": False},
)


def table_of(rng: random.Random, rows: int = 3_000) -> pa.Table:
    """Rows up to 30 out of order, some late."""
    times = [i // 5 + rng.randrange(30) for i in range(rows)]
    return pa.table(
        {
            "t": times,
            "k": pa.array([rng.choice((None, *range(12))) for _ in times], pa.int64()),
            "s": [rng.choice(("a", "b", "c", None)) for _ in times],
            "f": pa.array(
                [rng.choice((0.5, -0.0, 0.0, 7.0, float("nan"), None)) for _ in times], pa.float64()
            ),
            "v": pa.array([rng.choice((None, 1, 2, 3)) for _ in times], pa.int64()),
        }
    )


def first_rows(rows: list[dict[str, Any]], order: str, limit: int, offset: int) -> list[Any]:
    """The rows of each window, by a stable sort."""
    for key in reversed(order.split(", ")):
        column, *way = key.split()
        descends = "DESC" in way
        # As in Spark: NULLs are the least values, NaN is the largest.
        first = "FIRST" in way or ("LAST" not in way and not descends)

        def rank(row: dict[str, Any], column: str = column) -> Any:
            value = row[column]
            return (True,) if value != value else (False, value)

        nulls = [row for row in rows if row[column] is None]
        others = [row for row in rows if row[column] is not None]
        others.sort(key=rank, reverse=descends)  # a reversed sort is stable, too
        rows = nulls + others if first else others + nulls
    found = []
    for end in sorted({row["e"] for row in rows}):
        found += [row for row in rows if row["e"] == end][offset : offset + limit]
    return [repr(row) for row in found]


def opened(table: pa.Table, **settings: Any) -> Session:
    session = cql.connect(spark=False, **settings)
    session.create_stream("a", table, ordered_by="t", slack=20)
    return session


@pytest.mark.parametrize("seed", range(len(ORDERS)))
def test_equals_a_stable_sort(seed: int) -> None:
    rng = random.Random(seed)
    table, order = table_of(rng), ORDERS[seed]
    limit, offset = rng.choice(((1, 0), (4, 3), (20, 0), (1_000, 1)))
    results = RESULTS.format(length=rng.choice((40, 120)))
    with opened(table) as session:
        expected = first_rows(session.sql(results).to_arrow().to_pylist(), order, limit, offset)
    text = f"{results} ORDER BY {order} LIMIT {limit} OFFSET {offset}"
    for settings in RUNTIMES:
        with opened(table, morsel_rows=rng.choice((7, 300, 4096)), **settings) as session:
            assert list(map(repr, session.sql(text).to_arrow().to_pylist())) == expected, settings


def test_rows_wait_only_while_they_can_leave() -> None:
    """Of 4,000 results of a window, which all precede those before, about twice the LIMIT are
    held, and those behind are counted."""
    n = 20_000
    table = pa.table({"t": range(n), "k": range(n), "s": [f"{i:06}" for i in range(n)]})
    text = """SELECT k, s, count(*) AS c, window_end FROM a [RANGE 4000 SLIDE 4000] GROUP BY k, s
              ORDER BY s DESC LIMIT 10"""
    with opened(table, morsel_rows=4096) as session:
        query = session.sql(text)
        assert query.to_arrow().num_rows == 50
        (sort,) = (m for m in query.metrics() if str(m["operator"]).startswith("sort"))
    assert sort["rows_in"] == sort["rows_out"] + sort["over_limit"] == n
    assert sort["peak_bytes"] < 200_000


def test_an_aggregate_leaves_rows_out_below_a_projection() -> None:
    """Without fusion, the projection between the aggregate and the sort is an operator of its
    own."""
    table = table_of(random.Random(3))
    text = RESULTS.format(length=40) + " ORDER BY n DESC, k, f LIMIT 3"
    for settings in RUNTIMES[:2]:
        with opened(table, **settings) as session:
            query = session.sql(text)
            query.to_arrow()
            (made,) = (m for m in query.metrics() if str(m["operator"]).startswith("aggregate"))
        assert made["over_limit"] > 0


@pytest.mark.parametrize("order", ORDERS[:3])
def test_a_checkpoint_holds_the_rows_that_wait(order: str) -> None:
    text = f"{RESULTS.format(length=120)} ORDER BY {order} LIMIT 5 OFFSET 2"
    with opened(table_of(random.Random(order)), morsel_rows=50, fuse=False) as session:
        session.set("runtime", "depth_first")
        plan = plan_of(session, text)
        stop_and_continue(plan, session.settings, random.Random(order), stops=3)
