"""Groups without a window that punctuation closes, because a key rises with a progressing
column."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import cql
from cql.errors import PlanError

pytestmark = pytest.mark.usefixtures("shared_kernels")

SLACK = 40


def disordered(count: int, seed: object) -> pa.Table:
    """Rows at most ``SLACK`` behind the highest time: no row is late."""
    rng = random.Random(f"closing {seed}")
    times = [-500 + 3 * i + rng.randint(0, SLACK) for i in range(count)]
    return pa.table(
        {
            "t": times,
            "ts": pa.array([t * 1_000_000 for t in times], pa.timestamp("us", "UTC")),
            "k": [rng.choice(("a", "b", None)) for _ in times],
            "v": [rng.randint(-9, 9) for _ in times],
        }
    )


def rows_of(table: pa.Table, text: str, order: str, slack: Any, **settings: Any) -> list[str]:
    with cql.connect(**settings) as session:
        session.create_stream("s", table, ordered_by=order, slack=slack)
        return sorted(map(repr, session.sql(text).to_arrow().to_pylist()))


#: Each key, and the same expression in DuckDB.
KEYS = {
    "t / 60": "trunc(t / 60.0)::bigint",
    "t - t % 60": "t - t % 60",
    "floor(t / 60e0)": "floor(t / 60.0)::bigint",
    "t": "t",
    "-7 + 2 * t": "-7 + 2 * t",
    "date_trunc('minute', ts)": "date_trunc('minute', ts)",
    "CAST(ts AS DATE)": "ts::date",
    "year(ts)": "year(ts)::int",
}


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("key", KEYS)
def test_equals_duckdb(key: str) -> None:
    table = disordered(700, key)
    order, slack = ("ts", f"{SLACK} seconds") if "ts" in key else ("t", SLACK)
    text = "SELECT {} AS g, k, count(*) AS n, sum(v) AS total, max(v) AS high FROM s GROUP BY {}, k"
    for rows in (1, 64, 4096):
        mine = rows_of(table, text.format(key, key), order, slack, morsel_rows=rows)
        with duckdb.connect() as connection:
            connection.register("s", table)
            connection.execute("SET TimeZone = 'UTC'")
            theirs = connection.sql(
                text.format(KEYS[key], 1).replace("sum(v)", "sum(v)::bigint")
            ).to_arrow_table()
        names = ("g", "k", "n", "total", "high")
        lists = [theirs[name].to_pylist() for name in names]
        assert len(mine) > 1
        assert mine == sorted(
            repr(dict(zip(names, row, strict=True))) for row in zip(*lists, strict=True)
        )


def test_late_rows_are_left_out_and_counted() -> None:
    """The watermark is 125 when 119 and 121 come: group 1 is closed, group 2 is open."""
    table = pa.table({"t": [10, 125, 119, 121, 59, 190]})
    with cql.connect() as session:
        session.create_stream("s", table, ordered_by="t")
        query = session.sql("SELECT t / 60 AS g, count(*) AS n FROM s GROUP BY t / 60")
        found = query.to_arrow().to_pylist()
        late = [e["count"] for e in query.late().to_pylist() if e["kind"] == "pairs"]
    assert found == [{"g": 0, "n": 1}, {"g": 2, "n": 2}, {"g": 3, "n": 1}]
    assert sum(late) == 2


def endless() -> Iterator[pa.RecordBatch]:
    start = 0
    while True:
        yield pa.record_batch({"t": range(start, start + 100), "k": ["a", "b"] * 50})
        start += 100


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("SELECT t / 60 AS g, k, count(*) AS n FROM e GROUP BY t / 60, k", (0, "a", 30)),
        ("SELECT DISTINCT t - t % 60 AS g, k FROM e", (0, "a")),
        (
            "SELECT g, n FROM (SELECT t / 60 AS g, count(*) AS n FROM e GROUP BY g) AS i"
            " ORDER BY g",
            (0, 60),
        ),
        (
            "SELECT sum(n) AS n, window_end AS e FROM"
            " (SELECT t / 60 AS g, count(*) AS n FROM e GROUP BY g) AS i [RANGE 5 SLIDE 5, WA g]",
            (300, 5),
        ),
    ],
)
def test_endless_input_gives_its_groups(text: str, first: tuple[Any, ...]) -> None:
    with cql.connect() as session:
        session.create_stream("e", endless, ordered_by="t", bounded=False)
        batch = next(iter(session.sql(text).batches()))
    assert tuple(batch.slice(0, 1).to_pylist()[0].values()) == first


def test_state_does_not_grow_with_the_input() -> None:
    def peak(rows: int) -> int:
        table = pa.table({"t": range(rows), "k": [i % 7 for i in range(rows)]})
        with cql.connect(morsel_rows=64) as session:
            session.create_stream("s", table, ordered_by="t")
            query = session.sql("SELECT t / 10 AS g, k, count(*) AS n FROM s GROUP BY g, k")
            assert query.to_arrow().num_rows > rows // 2
            return max(entry.get("peak_bytes", 0) for entry in query.metrics())

    assert peak(2_000) == peak(40_000)


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("SELECT k, count(*) AS n FROM e GROUP BY k", "an aggregate", "group by what rises"),
        ("SELECT t % 60 AS g, count(*) AS n FROM e GROUP BY g", "an aggregate", "EMIT CHANGES"),
        ("SELECT DISTINCT k FROM e", "DISTINCT", "select what rises with time: t"),
    ],
)
def test_what_never_closes_is_refused(text: str, message: str, hint: str) -> None:
    with cql.connect() as session:
        session.create_stream("e", endless, ordered_by="t", bounded=False)
        with pytest.raises(PlanError) as caught:
            session.sql(text)
    assert f"{message} without a window over unbounded input (e) never ends" in str(caught.value)
    assert hint in str(caught.value)
    assert caught.value.position is not None


def test_a_row_without_a_time_is_bad() -> None:
    table = pa.table({"t": [1, None, 70]})
    with cql.connect() as session:
        session.create_stream("s", table, ordered_by="t")
        text = "SELECT t / 60 AS g, count(*) AS n FROM s GROUP BY g ON BAD ROW KEEP"
        query = session.sql(text)
        assert query.to_arrow().to_pylist() == [{"g": 0, "n": 1}, {"g": 1, "n": 1}]
        assert query.bad_rows().num_rows == 1
