"""Cumulating windows of one size that grow by steps: out of order, with late rows, against
DuckDB."""

from __future__ import annotations

import random
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import cql
from cql.errors import CqlError

pytestmark = pytest.mark.usefixtures("shared_kernels")

OPERATORS = ("auto", "wid")


def answer(table: pa.Table, text: str, slack: int = 0, **settings: Any) -> list[dict[str, Any]]:
    with cql.connect(**settings) as session:
        session.create_stream("s", table, ordered_by="t", slack=slack)
        rows: list[dict[str, Any]] = session.sql(text).to_arrow().to_pylist()
    return rows


@pytest.mark.parametrize("operator", OPERATORS)
def test_each_window_holds_the_one_before_it(operator: str) -> None:
    table = pa.table({"t": [0, 3, 12, 21], "v": [1, 2, 3, 4]})
    text = "SELECT sum(v) AS v, window_start AS a, window_end AS b FROM s [RANGE 15 CUMULATE 5]"
    found = [tuple(row.values()) for row in answer(table, text, window_operator=operator)]
    assert found == [(3, 0, 5), (3, 0, 10), (6, 0, 15), (4, 15, 25), (4, 15, 30)]


@pytest.mark.parametrize("operator", OPERATORS)
def test_a_late_row_is_in_the_windows_that_have_not_left(operator: str) -> None:
    """The row at 1 comes when the watermark is 7: [0, 5) is closed, the other windows are open."""
    table = pa.table({"t": [0, 7, 1, 16, 2], "v": [1, 10, 100, 1000, 10_000]})
    with cql.connect(window_operator=operator) as session:
        session.create_stream("s", table, ordered_by="t")
        query = session.sql("SELECT sum(v) AS v, window_end AS b FROM s [RANGE 15 CUMULATE 5]")
        found = [tuple(row.values()) for row in query.to_arrow().to_pylist()]
        late = [e["count"] for e in query.late().to_pylist() if e["kind"] == "pairs"]
    assert found == [(1, 5), (111, 10), (111, 15), (1000, 20), (1000, 25), (1000, 30)]
    assert sum(late) == 1 + 3


SPELLINGS = (
    "s [RANGE 12 CUMULATE 4 OFFSET 5 WA t]",
    "s [CUMULATE 4, WA t, OFFSET -7, RANGE 12]",
    "TABLE(CUMULATE(TABLE s, DESCRIPTOR(t), 4, 12, 5))",
    "TABLE(CUMULATE(DATA => TABLE s, TIMECOL => DESCRIPTOR(t), STEP => 4, SIZE => 12,"
    " OFFSET => 5))",
)


@pytest.mark.parametrize("source", SPELLINGS)
def test_every_spelling_and_offsets(source: str) -> None:
    table = pa.table({"t": [-3, 4, 5, 6, 30]})
    by = " GROUP BY window_start, window_end" if "TABLE(" in source else ""
    text = f"SELECT count(*) AS n, window_start AS a, window_end AS b FROM {source}{by}"
    found = [tuple(row.values()) for row in answer(table, text)]
    assert found == [
        (1, -7, 1),
        (2, -7, 5),
        (2, 5, 9),
        (2, 5, 13),
        (2, 5, 17),
        (1, 29, 33),
        (1, 29, 37),
        (1, 29, 41),
    ]


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("case", range(3))
def test_equals_duckdb(case: int, operator: str) -> None:
    """DuckDB joins rows with the bounds of the windows that hold them."""
    rng = random.Random(f"cumulate {case}")
    size, step, offset = rng.choice(((60, 10, 0), (30, 6, 7), (20, 1, -4)))
    slack = 25
    times = [4 * i + rng.randint(-slack // 2, slack // 2) for i in range(400)]
    table = pa.table(
        {
            "t": times,
            "k": [rng.choice(("a", "b", None)) for _ in times],
            "v": [rng.choice((None, 1, 2, 3, 50)) for _ in times],
        }
    )
    text = (
        "SELECT k, count(*) AS n, sum(v) AS total, count(DISTINCT v) AS many, max(v) AS high,"
        " median(v) AS middle,"
        f" window_start AS a, window_end AS b FROM s [RANGE {size} CUMULATE {step} OFFSET {offset}]"
        " GROUP BY k"
    )
    mine = answer(table, text, slack, window_operator=operator, morsel_rows=rng.choice((1, 7, 64)))
    with duckdb.connect() as connection:
        connection.register("s", table)
        theirs = connection.sql(f"""
            WITH begun AS (
                SELECT *, floor((t - {offset}) / {size}.0)::bigint * {size} + {offset} AS a FROM s
            )
            SELECT k, count(*) AS n, sum(v)::bigint AS total, count(DISTINCT v) AS many,
                   max(v) AS high, median(v) AS middle, a, a + i * {step} AS b
            FROM begun, range(1, {size // step} + 1) AS steps(i)
            WHERE t < a + i * {step} GROUP BY k, a, i""").to_arrow_table()
    assert sorted(map(repr, mine)) == sorted(map(repr, theirs.to_pylist()))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("s [RANGE 20 CUMULATE 6]", "RANGE must be a multiple of CUMULATE"),
        ("s [RANGE 20 CUMULATE 5 SLIDE 5]", "either slides or cumulates"),
        ("s [ROWS 20 CUMULATE 5]", "CUMULATE needs RANGE"),
        ("s [RANGE 20 CUMULATE 0]", "must be longer than zero"),
        ("s [PARTITION BY t RANGE 20 CUMULATE 5]", "PARTITION BY does not go with CUMULATE"),
        ("TABLE(CUMULATE(TABLE s, DESCRIPTOR(t), 6, 20))", "SIZE must be a multiple of STEP"),
        ("s [RANGE 1000000 CUMULATE 1]", "1,000,000 windows"),
    ],
)
def test_bad_windows_are_refused(source: str, message: str) -> None:
    with pytest.raises(CqlError, match=message) as caught:
        answer(pa.table({"t": [1]}), f"SELECT count(*) AS n FROM {source}")
    assert caught.value.position is not None
