"""Joins of relations: random joins against the reference; instants, padding, rows that leave."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

import cql
from cql.errors import CqlError, PlanError
from cql.planner.optimize.changelog import changes
from tests.support.catalog_tools import blocks_of_eight
from tests.support.fuzz.random_cases import check, logical_plan
from tests.support.fuzz.random_joins import rooms
from tests.support.fuzz.random_relation_joins import SHAPES, relation_join_case
from tests.support.relation_cases import difference_of_changes, expected_changes
from tests.support.seconds import rows

pytestmark = pytest.mark.usefixtures("shared_kernels")

#: The number of shapes that run without --full: a shape takes a second or two to compile.
QUICK = 4


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("first", range(QUICK))
def test_random_joins_equal_the_reference(first: int, full: bool, seed: int) -> None:
    for index in range(first, SHAPES, QUICK) if full else (first,):
        for k in range(seed, seed + (40 if full else 3)):
            with rooms(k):
                case = relation_join_case(index, k)
                check(case)
                plan = logical_plan(case)
                if changes(plan):
                    found = difference_of_changes(expected_changes(case, plan), case)
                    assert found is None, f"{found}\n{case.describe()}"


@pytest.fixture
def session() -> Iterator[cql.Session]:
    with cql.connect(spark=False) as made:
        made.create_stream("a", rows(ts=[0, 1, 2, 3], k=[1, 2, 1, None], v=[10, 20, 30, 40]), "ts")
        made.create_stream("b", rows(at=[0, 1.5, 2.5, 9], k=[1, 2, None, 1], w=[1, 2, 3, 4]), "at")
        made.create_stream("t", pa.table({"k": [1, 1, 3], "x": ["p", "q", "r"]}))
        yield made


def told(session: cql.Session, text: str) -> list[tuple[Any, ...]]:
    """(second, weight, …) of each change, sorted."""
    found = []
    for row in session.sql(f"{text} EMIT CHANGES").to_arrow().to_pylist():
        time, weight, *values = row.values()
        second = (time.replace(tzinfo=None) - datetime(1970, 1, 1)).total_seconds()
        found.append((second, weight, *values))
    return sorted(found, key=str)


def last(session: cql.Session, text: str) -> list[tuple[Any, ...]]:
    """The rows of the final relation, sorted."""
    return sorted((tuple(r.values()) for r in session.sql(text).to_arrow().to_pylist()), key=str)


# Instants -----------------------------------------------------------------------------------------


def test_a_pair_is_there_while_both_rows_are(session: cql.Session) -> None:
    """Both ends of RANGE are inclusive: the pair leaves one microsecond after the end."""
    pairs = "SELECT v, w FROM a [RANGE 2 SECONDS], b [RANGE 1 SECOND] WHERE a.k = b.k"
    assert told(session, f"SELECT DISTINCT * FROM ({pairs})") == [
        (0.0, 1, 10, 1),
        (1.000001, -1, 10, 1),
        (1.5, 1, 20, 2),
        (2.500001, -1, 20, 2),
    ]
    assert told(session, f"SELECT count(*) AS n FROM ({pairs})") == [
        (0.0, 1, 1),
        (1.000001, -1, 1),
        (1.000001, 1, 0),
        (1.5, -1, 0),
        (1.5, 1, 1),
        (2.500001, -1, 1),
        (2.500001, 1, 0),
    ]


def test_rows_that_come_at_one_instant_meet_at_it(session: cql.Session) -> None:
    text = "SELECT DISTINCT v, w FROM a [NOW], b [NOW] WHERE a.k = b.k"
    assert told(session, text) == [(0.0, 1, 10, 1), (0.000001, -1, 10, 1)]


def test_what_is_replaced_at_an_instant_changes_once(session: cql.Session) -> None:
    """Each window holds the last row of its side, and an instant may replace either row."""
    text = "SELECT DISTINCT v, w FROM a [ROWS 1], b [ROWS 1]"
    assert told(session, text) == [
        (0.0, 1, 10, 1),
        (1.0, -1, 10, 1),
        (1.0, 1, 20, 1),
        (1.5, -1, 20, 1),
        (1.5, 1, 20, 2),
        (2.0, -1, 20, 2),
        (2.0, 1, 30, 2),
        (2.5, -1, 30, 2),
        (2.5, 1, 30, 3),
        (3.0, -1, 30, 3),
        (3.0, 1, 40, 3),
        (9.0, -1, 40, 3),
        (9.0, 1, 40, 4),
    ]


def test_a_pair_of_windows_of_rows_leaves_once(session: cql.Session) -> None:
    """At the top level, each pair that exists at some instant leaves once."""
    found = last(session, "SELECT v, w FROM a [ROWS 2], b [ROWS 1]")
    assert found == [
        *((10, 1), (10, 2), (20, 1), (20, 2), (20, 3)),
        *((30, 2), (30, 3), (30, 4), (40, 3), (40, 4)),
    ]


# Rows without a partner ---------------------------------------------------------------------------


def test_a_row_is_padded_while_it_has_no_partner(session: cql.Session) -> None:
    text = "SELECT v, w FROM a [RANGE 2 SECONDS] LEFT JOIN b [RANGE 1 SECOND] ON a.k = b.k"
    assert told(session, text) == [
        (0.0, 1, 10, 1),
        (1.0, 1, 20, None),
        (1.000001, -1, 10, 1),
        (1.000001, 1, 10, None),
        (1.5, -1, 20, None),
        (1.5, 1, 20, 2),
        (2.0, 1, 30, None),
        (2.000001, -1, 10, None),
        (2.500001, -1, 20, 2),
        (2.500001, 1, 20, None),
        (3.0, 1, 40, None),
        (3.000001, -1, 20, None),
        (4.000001, -1, 30, None),
        (5.000001, -1, 40, None),
    ]


def test_null_keys_meet_nothing_and_are_padded(session: cql.Session) -> None:
    text = "SELECT v, w FROM a {} JOIN b ON a.k = b.k"
    both = [(10, 1), (10, 4), (20, 2), (30, 1), (30, 4)]
    assert last(session, text.format("LEFT")) == sorted([*both, (40, None)], key=str)
    assert last(session, text.format("RIGHT")) == sorted([*both, (None, 3)], key=str)
    assert last(session, text.format("FULL")) == sorted([*both, (40, None), (None, 3)], key=str)


def test_using_shows_the_key_of_either_side(session: cql.Session) -> None:
    text = "SELECT k, v, x FROM a [RANGE UNBOUNDED] FULL JOIN t USING (k)"
    assert last(session, text) == sorted(
        [(1, 10, "p"), (1, 10, "q"), (1, 30, "p"), (1, 30, "q"), (2, 20, None), (None, 40, None),
         (3, None, "r")], key=str,
    )  # fmt: skip


def test_where_is_not_on(session: cql.Session) -> None:
    join = "SELECT v, w FROM a [RANGE 1 DAY] LEFT JOIN b [RANGE 1 DAY] ON a.k = b.k"
    assert last(session, f"{join} AND w > 1 AND v < 30") == [
        (10, 4), (20, 2), (30, None), (40, None)
    ]  # fmt: skip
    assert last(session, f"{join} WHERE w > 1 AND v < 30") == [(10, 4), (20, 2)]
    assert last(session, f"{join} WHERE w IS NULL") == [(40, None)]


@pytest.mark.parametrize("kind", ["JOIN", "LEFT JOIN"])
def test_a_row_without_another_time_than_that_of_the_window(kind: str) -> None:
    """A NULL in another time column makes no row bad, so that a filter below the join may drop the
    row."""
    fields = [pa.field("t", pa.int64(), nullable=False), ("u", pa.int64()), ("v", pa.int64())]
    rows = pa.table({"t": [1, 2, 3], "u": [None, 2, 3], "v": [1, 2, 3]}, schema=pa.schema(fields))
    with cql.connect(spark=False) as session:
        session.create_stream("a", rows, ["t", "u"])
        text = (
            f"SELECT max(a.v) AS most, count(*) AS n FROM a [RANGE 9 WA t] {kind} a [RANGE 9 WA t]"
            " AS b ON a.v = b.v WHERE a.v < 3 AND b.t + a.v <> 4 AND a.v <> 2"
        )
        assert session.sql(text).to_arrow().to_pylist()[-1] == {"most": 1, "n": 1}
        above = text.replace("a.v < 3", "a.v > 1")
        assert session.sql(above).to_arrow().to_pylist()[-1] == {"most": 3, "n": 1}


def test_a_partner_of_nulls_looks_like_none(session: cql.Session) -> None:
    """To replace the padded row by a partner of NULLs is no change."""
    inner = "(SELECT max(w) AS w FROM b [NOW] WHERE w > 1)"
    text = f"SELECT x, w FROM t LEFT JOIN {inner} m ON x = 'r'"
    assert [row for row in told(session, text) if row[0] >= 0] == [
        (1.5, -1, "r", None),
        (1.5, 1, "r", 2),
        (1.500001, -1, "r", 2),
        (1.500001, 1, "r", None),
        (2.5, -1, "r", None),
        (2.5, 1, "r", 3),
        (2.500001, -1, "r", 3),
        (2.500001, 1, "r", None),
        (9.0, -1, "r", None),
        (9.0, 1, "r", 4),
        (9.000001, -1, "r", 4),
        (9.000001, 1, "r", None),
    ]


# Multiplicity -------------------------------------------------------------------------------------


def test_equal_rows_keep_their_number(session: cql.Session) -> None:
    session.create_stream("d", rows(ts=[5, 5, 5, 6], k=[1, 1, None, 1]), "ts")
    text = "SELECT {} AS n FROM d [RANGE 2 SECONDS] p JOIN d [RANGE 2 SECONDS] q ON p.k = q.k"
    assert told(session, text.format("count(*)")) == [
        (5.0, 1, 4),
        (6.0, -1, 4),
        (6.0, 1, 9),
        (7.000001, -1, 9),
        (7.000001, 1, 1),
        (8.000001, -1, 1),
        (8.000001, 1, 0),
    ]


def test_tables_join_as_they_are(session: cql.Session) -> None:
    text = "SELECT t.x, u.x AS y FROM t LEFT JOIN t u ON t.k < u.k"
    assert last(session, text) == [("p", "r"), ("q", "r"), ("r", None)]
    counted = "SELECT count(*) AS n FROM a [ROWS 2] JOIN t ON a.k = t.k"
    assert told(session, counted) == [(0.0, 1, 2)]


# State --------------------------------------------------------------------------------------------


def many(n: int) -> pa.Table:
    return rows(ts=[t / 10 for t in range(n)], k=[t % 7 for t in range(n)], v=list(range(n)))


@pytest.mark.parametrize(
    ("kind", "window"),
    [("", "RANGE 1 SECOND"), ("FULL", "RANGE 1 SECOND"), ("LEFT", "ROWS 10")],
)
def test_rows_leave_with_their_window(session: cql.Session, kind: str, window: str) -> None:
    """Of 2,000 rows per side, ten or eleven are in the window at any time, with at most seven
    keys."""
    n = 2_000
    with blocks_of_eight():  # the inputs alternate after each block
        for name in ("p", "q"):
            session.create_stream(name, many(n).to_batches, "ts")
        query = session.sql(
            f"SELECT count(*) AS n, max(p.v) AS v FROM p [{window}] {kind} JOIN q [{window}]"
            " ON p.k = q.k AND p.v <= q.v"
        )
        assert query.to_arrow().num_rows == 1
    (join,) = (m for m in query.metrics() if m["operator"].startswith("relationjoin"))
    assert join["rows_in"] >= 4 * n - 40
    assert max(join["held_left"], join["held_right"]) <= 11
    assert join["groups"] <= 7
    assert join["peak_bytes"] < 160_000  # slabs of 1,024 slots


def endless(session: cql.Session, name: str, start: datetime) -> None:
    def made() -> Iterator[dict[str, Any]]:
        for n in count():
            yield {"ts": start + timedelta(seconds=n), "k": n % 3}

    session.create_stream(name, made, "ts", bounded=False)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT count(*) FROM p [NOW], q [RANGE UNBOUNDED] WHERE p.k = q.k",
        "SELECT count(*) FROM p [NOW] JOIN q ON p.k = q.k",
        "SELECT p.k FROM q LEFT JOIN p [RANGE 1 MINUTE] ON p.k = q.k",
        "SELECT p.k FROM q FULL JOIN p ON p.k = q.k",
    ],
)
def test_endless_rows_must_leave(session: cql.Session, text: str) -> None:
    for name in ("p", "q"):
        endless(session, name, datetime(2024, 1, 1))
    with pytest.raises(PlanError, match="endless input q for ever") as caught:
        session.sql(text).to_arrow()
    assert "PARTITION BY" in (caught.value.hint or "")
    assert caught.value.position is not None


@pytest.mark.slow
@pytest.mark.parametrize("word", ["EXISTS", "NOT EXISTS"])
def test_subqueries_that_would_keep_rows_are_joins(session: cql.Session, word: str) -> None:
    for name in ("p", "q"):
        endless(session, name, datetime(2024, 1, 1))
    near = "x.k + 1 = q.k AND abs(x.ts - q.ts) <= INTERVAL 1 SECOND"
    with pytest.raises(PlanError, match="kept for ever") as caught:
        session.sql(f"SELECT x.k FROM p x WHERE {word} (SELECT 1 FROM q WHERE {near})").to_arrow()
    assert caught.value.position is not None
    hint = caught.value.hint or ""
    assert "FROM p x [NOW] asks once" in hint
    assert "FROM p x LEFT SEMI JOIN q ON …" in hint
    assert "LEFT ANTI JOIN: NOT EXISTS" in hint
    kind, found = ("ANTI", [2, 2, 2]) if "NOT" in word else ("SEMI", [0, 1, 0])
    text = f"SELECT x.k, x.ts FROM p x LEFT {kind} JOIN q ON {near}"
    rows = next(iter(session.sql(text))).to_pylist()
    first = sorted(rows, key=lambda row: row["ts"])[:3]
    assert [row["k"] for row in first] == found


def test_the_latest_row_of_each_key_of_endless_input(session: cql.Session) -> None:
    for name in ("p", "q"):
        endless(session, name, datetime(2024, 1, 1))
    query = session.sql(
        "SELECT RSTREAM(p.k, q.ts) FROM p [NOW], q [PARTITION BY k ROWS 1] WHERE p.k = q.k"
    )
    found = []
    for batch in query.batches():
        found += batch.to_pylist()
        if len(found) >= 30:
            break
    query.stop()
    assert [row["k"] for row in found[:6]] == [0, 1, 2, 0, 1, 2]


# Refusals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "error", "hint"),
    [
        ("SELECT v FROM a [NOW] LEFT JOIN b [NOW] ON 10 / a.v < b.w", "can fail", "TRY_CAST"),
        ("SELECT v FROM a [NOW] LEFT JOIN b [NOW] ON a.v + b.w = 3", "can fail", "TRY_CAST"),
        ("SELECT v FROM a [NOW] JOIN i [NOW] ON a.k = i.k GROUP BY v", "count time differently",
         "CAST"),
        ("SELECT v FROM (SELECT v, k FROM a [ROWS 2]) p, b [ROWS 2]", "leaves out the time",
         "select it"),
        ("SELECT v FROM a [NOW], b [NOW] WHERE a.k = b.x", "has no column x", "its columns"),
        ("SELECT k FROM a [NOW], b [NOW] WHERE a.v = b.w", "k is ambiguous", "a.k or b.k"),
        ("SELECT v FROM a [NOW] LEFT JOIN b [NOW] ON a.k = b.at", "bigint.*timestamp", ""),
    ],
)  # fmt: skip
def test_refused(session: cql.Session, text: str, error: str, hint: str) -> None:
    session.create_stream("i", pa.table({"n": [1, 2], "k": [1, 2]}), "n")
    with pytest.raises(CqlError, match=error) as caught:
        session.sql(text).to_arrow()
    assert hint in (caught.value.hint or "")
    assert caught.value.position is not None


# Self-joins ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "SELECT count(*) AS n FROM a [RANGE 2 SECONDS] p JOIN a [ROWS 1] q ON p.k = q.k",
        "SELECT p.v, q.v AS w FROM a p JOIN a q ON p.k = q.k AND abs(p.ts - q.ts) <= INTERVAL"
        " 2 SECONDS",
        "SELECT p.v FROM a [NOW] p LEFT JOIN (SELECT k, max(v) AS m FROM a [ROWS 3] GROUP BY k) q"
        " ON q.m = p.v JOIN b [ROWS 1] ON w < p.v JOIN a [ROWS 2] r ON r.v = p.v",
    ],
)
@pytest.mark.parametrize("runtime", ["depth_first", "fifo"])
def test_a_stream_joined_with_itself_is_read_once(
    session: cql.Session, text: str, runtime: str
) -> None:
    session.set("runtime", runtime)
    opened = []

    def blocks() -> Iterator[pa.RecordBatch]:
        opened.append(1)
        yield from rows(ts=[0, 1, 2, 3], k=[1, 2, 1, None], v=[10, 20, 30, 40]).to_batches(
            max_chunksize=1
        )

    expected = last(session, text)
    session.create_stream("once", blocks, "ts")
    opened.clear()
    query = session.sql(re.sub(r"\ba ", "once ", text))
    assert "read once for its" in query.explain()
    assert sorted((tuple(r.values()) for r in query.to_arrow().to_pylist()), key=str) == expected
    assert opened == []  # the first run continues the read that found the columns
    read = [m for m in query.metrics() if m["operator"] == "once"]
    assert [m["rows_in"] for m in read] == [4]


def test_zeros_of_either_sign_are_one_row() -> None:
    """A row that leaves while an equal row enters is no change."""
    table = rows(ts=[1, 2, 3], x=[0.0, -0.0, 5.0], k=[7, 7, 8])
    with cql.connect(spark=False) as session:
        session.create_stream("z", table, "ts")
        query = session.sql("SELECT r.x FROM z [NOW] l FULL JOIN z [NOW] r ON l.k = r.k")
        assert query.to_arrow().to_pylist() == [{"x": 5.0}]


@pytest.mark.parametrize("kind", ["LEFT JOIN", "SEMI JOIN", "ANTI JOIN"])
def test_a_row_that_where_leaves_out_is_an_instant(kind: str) -> None:
    """The aggregate has a row from the first input row on, even if WHERE drops that row."""
    text = (
        f"SELECT count(*) AS n FROM a [RANGE 10] {kind} b [ROWS 2] ON a.k = b.k WHERE a.v > 9"
        " EMIT CHANGES"
    )
    with cql.connect(spark=False) as session:
        for name, first in (("a", 5), ("b", 1000)):
            session.create_stream(name, pa.table({"t": [first], "k": [1], "v": [2]}), "t")
        assert session.sql(text).to_arrow().to_pylist() == [{"_time": 5, "_weight": 1, "n": 0}]
