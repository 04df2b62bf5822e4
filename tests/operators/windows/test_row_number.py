"""ROW_NUMBER() over the results of windows, against DuckDB."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import cql
from cql.errors import CqlError, NotSupportedError
from tests.support.run_checkpoints import plan_of, stop_and_continue

pytestmark = pytest.mark.usefixtures("shared_kernels")

QUERY = """
SELECT k, c, n, e, place FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY {by} ORDER BY n {way}, k, c) AS place
    FROM ({inner}) AS i
) AS r WHERE place <= {limit}"""
MINE = "SELECT k, c, sum(v) AS n, window_end AS e FROM s [RANGE 60 SLIDE {}] GROUP BY k, c"
THEIRS = """
SELECT k, c, sum(v)::bigint AS n, (t // {slide}) * {slide} + 60 - i * {slide} AS e
FROM s, range(0, 60 // {slide}) AS w(i) GROUP BY ALL"""


def table_of(rng: random.Random) -> pa.Table:
    times = [3 * i + rng.randint(0, 20) for i in range(600)]
    return pa.table(
        {
            "t": times,
            "k": [rng.choice(("a", "b", "c", "d", None)) for _ in times],
            "c": [rng.choice((0.5, -0.0, float("nan"), None)) for _ in times],
            "v": [rng.choice((None, 1, 2, 3)) for _ in times],
        }
    )


def shown(table: pa.Table) -> list[str]:
    rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
    return sorted(repr(tuple(0.0 if v == 0 else v for v in row)) for row in rows)


@pytest.mark.sampled
@pytest.mark.parametrize("slide", [60, 20])
@pytest.mark.parametrize(
    ("by", "way", "limit"),
    [
        ("e", "DESC NULLS LAST", 2),
        ("e, k", "NULLS FIRST", 1),
        ("c, e", "DESC NULLS FIRST", 3),
    ],
)
def test_equals_duckdb(by: str, way: str, limit: int, slide: int) -> None:
    rng = random.Random(f"{by} {slide}")
    table = table_of(rng)
    more: dict[str, Any] = {"by": by, "limit": limit}
    with cql.connect(morsel_rows=rng.choice((1, 64, 4096))) as session:
        session.create_stream("s", table, ordered_by="t", slack=20)
        text = QUERY.format(**more, way=way, inner=MINE.format(slide))
        mine = session.sql(text).to_arrow()
    with duckdb.connect() as connection:
        connection.register("s", table)
        connection.execute("SET default_null_order = 'nulls_first'")
        text = QUERY.format(**more, way=way, inner=THEIRS.format(slide=slide))
        theirs = connection.sql(text).to_arrow_table()
    assert len(mine) > 10
    assert shown(mine) == shown(theirs)


def test_over_the_aggregate_itself_and_over_groups_that_close() -> None:
    table = pa.table({"t": [1, 2, 11, 12, 13], "k": ["a", "b", "b", "b", "a"]})
    for source, by in (("s [RANGE 10 SLIDE 10]", "window_start"), ("s", "t / 10")):
        group = "k" if by == "window_start" else "t / 10, k"
        text = (
            f"SELECT k, ROW_NUMBER() OVER (PARTITION BY {by} ORDER BY count(*) DESC, k DESC) AS n"
            f" FROM {source} GROUP BY {group}"
        )
        with cql.connect() as session:
            session.create_stream("s", table, ordered_by="t")
            found = session.sql(text).to_arrow().to_pylist()
        assert [tuple(row.values()) for row in found] == [("b", 1), ("a", 2), ("b", 1), ("a", 2)]


@pytest.mark.parametrize(
    "over",
    [
        "row_number() OVER (PARTITION BY window_end)",
        "row_number() OVER (PARTITION BY n % 2 ORDER BY k)",
        "rank() OVER (PARTITION BY window_end ORDER BY n)",
        "row_number() OVER (PARTITION BY window_end ORDER BY n ROWS BETWEEN 1 PRECEDING AND"
        " CURRENT ROW)",
        "row_number() OVER (PARTITION BY window_end + 1 ORDER BY n)",
    ],
)
def test_other_functions_over_windows_are_refused(over: str) -> None:
    inner = "SELECT k, count(*) AS n, window_end FROM s [RANGE 10 SLIDE 10] GROUP BY k"
    with cql.connect() as session:
        session.create_stream("s", pa.table({"t": [1], "k": ["a"]}), ordered_by="t")
        with pytest.raises(NotSupportedError, match="OVER") as caught:
            session.sql(f"SELECT {over} AS r FROM ({inner}) AS i")
    assert caught.value.position is not None


@pytest.mark.parametrize("limit", [1, 3, 1000])
def test_the_first_rows_so_far(limit: int) -> None:
    """Flink's Top-N over a stream: the final relation equals DuckDB's result over the whole
    input."""
    table = table_of(random.Random(limit))
    text = f"""
        SELECT k, c, v, t, place FROM (
            SELECT *, row_number() OVER (PARTITION BY k ORDER BY v DESC NULLS LAST, t, c) AS place
            FROM s) AS r WHERE place <= {limit}"""
    early: Counter[str] = Counter()
    with cql.connect(morsel_rows=64) as session:
        session.create_stream("s", table, ordered_by="t", slack=20)
        mine = session.sql(text).to_arrow()
        for batch in session.sql(text + " EMIT CHANGES").batches():
            for row in batch.to_pylist():
                weight = row.pop("_weight")
                row.pop("_time")
                early[repr(tuple(0.0 if v == 0 else v for v in row.values()))] += weight
    with duckdb.connect() as connection:
        connection.register("s", table)
        connection.execute("SET default_null_order = 'nulls_first'")
        theirs = connection.sql(text).to_arrow_table()
    assert shown(mine) == shown(theirs)
    assert sorted(early.elements()) == shown(theirs)


def test_rows_behind_are_forgotten_where_none_leaves() -> None:
    """Of 6,000 rows, the operator holds the first two rows of each of three keys."""
    n = 6000
    table = pa.table(
        {"t": range(n), "k": [i % 3 for i in range(n)], "v": [i % 97 for i in range(n)]}
    )
    text = """
        SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY v DESC, t) AS place
                       FROM s) WHERE place <= 2"""
    with cql.connect(morsel_rows=64) as session:
        session.create_stream("s", table, ordered_by="t")
        query = session.sql(text)
        assert query.to_arrow().num_rows == 6
        (held,) = (m["held_rows"] for m in query.metrics() if "held_rows" in m)
        plan = "".join(r["plan"] for r in session.sql("EXPLAIN " + text).to_arrow().to_pylist())
    assert held == 6
    assert "those behind are forgotten" in plan


@pytest.mark.parametrize(
    ("text", "clause", "column"),
    [
        ("SELECT k FROM s [ROWS 6] WHERE {} < 3", "WHERE", 32),
        ("SELECT k FROM s [ROWS 6] WHERE k = 'a' AND {} < 3", "WHERE", 44),
        ("SELECT count(*) FROM s [ROWS 6] GROUP BY {}", "GROUP BY", 42),
        ("SELECT count(*) FROM s [ROWS 6] HAVING {} < 3", "HAVING", 40),
        ("SELECT sum({}) FROM s [ROWS 6]", "an aggregate", 12),
        ("SELECT k FROM s [ROWS 6] WHERE CASE WHEN {} < 3 THEN true END", "WHERE", 42),
        ("SELECT k FROM s [ROWS 6] WHERE CASE {} WHEN 1 THEN true END", "WHERE", 37),
        ("SELECT k FROM s [ROWS 6] WHERE abs({}) < 3", "WHERE", 36),
        ("SELECT count(*) FROM s [ROWS 6] GROUP BY CASE WHEN {} < 3 THEN 1 END", "GROUP BY", 52),
        ("SELECT count(*) FROM s [ROWS 6] HAVING CASE WHEN {} < 3 THEN true END", "HAVING", 50),
        ("SELECT sum(CASE WHEN {} < 3 THEN 1 END) FROM s [ROWS 6]", "an aggregate", 22),
        ("SELECT {} AS n FROM s [ROWS 6] GROUP BY n", "GROUP BY", 69),
        ("SELECT {} AS n FROM s [ROWS 6] GROUP BY 1", "GROUP BY", 69),
        ("SELECT k, {} AS n FROM s [ROWS 6] GROUP BY k, t HAVING n < 3", "HAVING", 84),
        ("SELECT k, {} AS n, count(*) FROM s [ROWS 6] GROUP BY ALL", "GROUP BY ALL", 11),
        ("SELECT rank() OVER (ORDER BY {}) FROM s [ROWS 6]", "OVER", 30),
    ],
)
def test_clauses_that_come_before_it(text: str, clause: str, column: int) -> None:
    """The query does not say whether rows are numbered before or after the clause applies."""
    with cql.connect() as session:
        rows = pa.table({"t": [1, 2, 3], "k": ["a", "b", "a"]})
        session.create_stream("s", rows, ordered_by="t")
        with pytest.raises(CqlError, match=f"^{clause} cannot hold a function with OVER") as caught:
            session.sql(text.format("ROW_NUMBER() OVER (ORDER BY t)"))
        assert caught.value.column == column


def test_rows_of_window_functions() -> None:
    """Flink's Window Top-N over a windowing TVF; a row that comes after its window has closed gets
    no number."""
    table = pa.table({"t": [1, 2, 12, 3, 4, 14, 11], "v": [3, 9, 7, 5, 4, 8, 6]})
    text = """
        SELECT v, window_end AS e, n FROM (
            SELECT *, row_number() OVER (PARTITION BY window_start, window_end ORDER BY v) AS n
            FROM TABLE(TUMBLE(TABLE s, DESCRIPTOR(t), 10))) WHERE n <= 2"""
    for slack, expected in (
        (9, [(3, 10, 1), (4, 10, 2), (6, 20, 1), (7, 20, 2)]),
        (0, [(3, 10, 1), (9, 10, 2), (6, 20, 1), (7, 20, 2)]),
    ):
        for fuse in (True, False):
            with cql.connect(fuse=fuse) as session:
                session.create_stream("s", table, ordered_by="t", slack=slack)
                query = session.sql(text)
                found = [tuple(row.values()) for row in query.to_arrow().to_pylist()]
                assert found == expected
                late = [row["count"] for row in query.late().to_pylist() if row["kind"] == "pairs"]
                assert sum(late) == (0 if slack else 2)


def test_rows_of_no_window_are_refused() -> None:
    with cql.connect() as session:
        session.create_stream("s", pa.table({"t": [1], "k": ["a"]}), ordered_by="t")
        with pytest.raises(NotSupportedError, match="OVER without a window below"):
            session.sql("SELECT row_number() OVER (PARTITION BY t ORDER BY k) AS r FROM s")


def test_more_state_than_allowed_is_told() -> None:
    """The error also comes where the limit refuses a query before its first row."""
    table = pa.table({"t": range(300_000), "x": range(300_000)})
    with cql.connect(max_state="5 MB") as session:
        session.create_stream("s", table, ordered_by="t")
        query = session.sql("""
            SELECT k, row_number() OVER (PARTITION BY window_end ORDER BY c) AS n FROM (
                SELECT x AS k, count(*) AS c, window_end FROM s [RANGE 9999999 SLIDE 9999999]
                GROUP BY x)""")
        with pytest.raises(CqlError, match="over max_state"):
            query.to_arrow()


NUMBERS = """SELECT k, n, e, place FROM (
    SELECT *, row_number() OVER (PARTITION BY e, {by} ORDER BY {order}) AS place FROM (
        SELECT k, c, f, sum(v) AS n, window_end AS e FROM s [RANGE 60 SLIDE 20] GROUP BY k, c, f))
{where}"""


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("by", "order", "where"),
    [
        ("k", "n DESC", "WHERE place <= 2"),
        ("k, c", "n, f", "WHERE place < 3 AND n > 0"),
        ("c", "f DESC NULLS LAST, n", ""),
        ("c, k", "f", "WHERE place = 2"),
        ("k", "n", "WHERE place <= 0"),
    ],
)
def test_partitions_keep_rows_and_order(by: str, order: str, where: str) -> None:
    """Rows that are equal in all keys are numbered in the order in which they come, by one operator
    or by partitions; a run continues with any number of these."""
    rng = random.Random(by + order)
    rows = 2_000
    times = [i // 2 + rng.randrange(30) for i in range(rows)]
    least = -(2**63)
    table = pa.table(
        {
            "t": pa.array([1_000_000 * t for t in times], pa.timestamp("us")),
            "k": pa.array([rng.choice((None, least, -1, *range(6))) for _ in times], pa.int64()),
            "c": pa.array([rng.choice((None, 1, 2)) for _ in times], pa.int32()),
            "f": [rng.choice((None, 0.5, -0.0, float("nan"))) for _ in times],
            "v": [rng.choice((None, 1, 2)) for _ in times],
        }
    )
    text = NUMBERS.format(by=by, order=order, where=where)
    text = text.replace("60 SLIDE 20", "60 SECONDS SLIDE 20 SECONDS")
    found, plans = [], []
    with cql.connect(spark=False, morsel_rows=70) as session:
        session.create_stream("s", table, ordered_by="t", slack=timedelta(seconds=20))
        for parts in (0, 1, 3, 8):
            session.set("runtime", "ordered" if parts else "depth_first")
            if parts:
                session.set("workers", 2)
                session.set("partitions", parts)
            query = session.sql(text)
            found.append(query.to_arrow())
            plans.append((plan_of(session, text), dict(session.settings)))
            sorts = [m for m in query.metrics() if str(m["operator"]).startswith("sort")]
            assert [m.get("partitions", 0) for m in sorts] == [parts]
            assert all(
                m["rows_in"] == m["rows_out"] + m["over_limit"] + m["late_rows"] for m in sorts
            )
        stop_and_continue(*plans[2], rng, stops=3, others=plans, partitions_differ=True)
    for other in found:
        assert repr(other.to_pylist()) == repr(found[0].to_pylist())
    assert found[0].num_rows or where == "WHERE place <= 0"


def test_rows_behind_the_limit_of_a_window_are_left_out() -> None:
    """Of 120,000 rows of one window in three partitions, those that wait are a few thousand."""
    n = 120_000
    table = pa.table({"t": range(n), "k": [i % 3 for i in range(n)]})
    text = """SELECT k, i, place FROM (
        SELECT *, row_number() OVER (PARTITION BY e, k ORDER BY i DESC) AS place FROM (
            SELECT k, t AS i, window_end AS e FROM s [RANGE 120000 SLIDE 120000] GROUP BY k, t))
        WHERE place <= 2"""
    with cql.connect(spark=False, morsel_rows=1024) as session:
        session.create_stream("s", table, ordered_by="t")
        query = session.sql(text)
        found = [tuple(row.values()) for row in query.to_arrow().to_pylist()]
        (sort,) = (m for m in query.metrics() if str(m["operator"]).startswith("sort"))
    assert found == [(k, n - 3 + k - 3 * i, i + 1) for k in range(3) for i in range(2)]
    assert sort["over_limit"] == n - 6
    assert sort["peak_bytes"] < 2_000_000
