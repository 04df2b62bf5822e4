"""EMIT ON WINDOW CLOSE without a window: rows leave when the watermark has passed their time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import cql
from cql import Query
from cql.errors import BindError, NotSupportedError
from cql.session.session import Session

CLOSE = " EMIT ON WINDOW CLOSE"
A = [(1, 1), (5, 1), (3, 2), (9, 1), (30, 2), (2, 1)]  # the last one is late
B = [(2, 1), (4, 2), (8, 1), (40, 2)]


@pytest.fixture
def session() -> Iterator[Session]:
    with cql.connect(spark=False) as made:
        for name, rows in (("a", A), ("b", B)):
            table = pa.table({"t": [t for t, _ in rows], "k": [k for _, k in rows]})
            made.create_stream(name, table, ordered_by="t", slack=5)
            made.create_stream(
                f"live_{name}",
                lambda rows=rows: ({"t": t, "k": k} for t, k in rows),
                ordered_by="t",
                slack=5,
                bounded=False,
                max_advance=1000,
            )
        yield made


def rows(session: Session, text: str) -> list[tuple[Any, ...]]:
    query = session.sql(text)
    assert isinstance(query, Query)
    return [tuple(r.values()) for batch in query for r in batch.to_pylist()]


def plan(session: Session, text: str) -> str:
    query = session.sql(text)
    assert isinstance(query, Query)
    return str(query.explain())


@pytest.mark.parametrize(
    ("runtime", "live"),
    [("depth_first", ""), ("depth_first", "live_"), ("fifo", ""), ("ordered", "")],
)
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT t, k FROM {}a", [(1, 1), (3, 2), (5, 1), (9, 1), (30, 2)]),
        ("SELECT t FROM {}a WHERE k = 1", [(1,), (5,), (9,)]),
        ("SELECT k + 1 AS x FROM {}a WHERE t > 1", [(3,), (2,), (2,), (3,)]),
        (
            "SELECT t FROM (SELECT t FROM {}a WHERE k = 1 UNION ALL SELECT t FROM {}b) AS u",
            [(1,), (2,), (4,), (5,), (8,), (9,), (40,)],
        ),
    ],
)
def test_rows_are_held_and_leave_in_order(
    session: Session, runtime: str, live: str, text: str, expected: list[Any]
) -> None:
    session.set("runtime", runtime)
    query = session.sql(text.format(live, live) + CLOSE)
    assert isinstance(query, Query)
    found = [tuple(r.values()) for batch in query for r in batch.to_pylist()]
    assert found == expected
    late = {r["kind"]: r["count"] for r in query.late().to_pylist()}
    assert late["left out"] == 1


@pytest.mark.parametrize("operator", ["auto", "oop_join", "sync_filter"])
@pytest.mark.parametrize("live", ["", "live_"])
def test_pairs_wait_for_the_later_of_their_times(
    session: Session, live: str, operator: str
) -> None:
    session.set("join_operator", operator)
    text = (
        f"SELECT x.t, y.t AS u FROM {live}a x JOIN {live}b y ON x.k = y.k AND abs(x.t - y.t) <= 3"
    )
    found = rows(session, text + CLOSE)
    assert sorted(found) == [(1, 2), (3, 4), (5, 2), (5, 8), (9, 8)]
    later = [max(pair) for pair in found]
    assert later == sorted(later)


def test_nothing_leaves_before_the_watermark_has_passed_it() -> None:
    """When a row comes, only rows at least 5 behind the newest have left."""
    seen: list[tuple[int, int]] = []
    given: list[int] = []

    def source() -> Iterator[dict[str, int]]:
        for t in range(1, 40):
            given.append(t)
            yield {"t": t}

    with cql.connect(spark=False, morsel_rows=1) as session:
        session.create_stream("s", source, ordered_by="t", slack=5, bounded=False)
        query = session.sql("SELECT t FROM s" + CLOSE)
        assert isinstance(query, Query)
        for batch in query:
            seen += [(t, given[-1]) for t in batch.column(0).to_pylist()]
    assert [t for t, _ in seen] == list(range(1, 40))
    assert all(newest >= t + 5 or newest == 39 for t, newest in seen)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT count(*) AS n, window_end FROM a [RANGE 10 SLIDE 10]",
        "SELECT t, count(*) AS n FROM a GROUP BY t",
        "SELECT count(*) AS n FROM a",
        "SELECT n FROM (SELECT count(*) AS n FROM a [RANGE 10 SLIDE 10]) AS x WHERE n > 0",
        "SELECT t FROM a ORDER BY t",
    ],
)
def test_what_closes_by_itself_is_as_it_was(session: Session, text: str) -> None:
    assert plan(session, text) == plan(session, text + CLOSE)
    assert rows(session, text) == rows(session, text + CLOSE)


def test_rows_of_a_window_function_wait_for_its_end(session: Session) -> None:
    text = "SELECT t, window_end AS e FROM TABLE(TUMBLE(TABLE live_a, DESCRIPTOR(t), 10)) AS w"
    found = rows(session, text + CLOSE)
    assert sorted(found) == [(1, 10), (3, 10), (5, 10), (9, 10), (30, 40)]
    assert "PunctuatedSort by window_end" in plan(session, text + CLOSE)


@pytest.mark.parametrize(
    "made",
    [
        "CREATE VIEW v AS SELECT t, k FROM a WHERE k = 1" + CLOSE,
        "CREATE STREAM v AS SELECT t, k FROM a WHERE k = 1" + CLOSE,
        "CREATE TABLE v AS SELECT t, k FROM a WHERE k = 1" + CLOSE,
    ],
)
def test_views_streams_and_tables(session: Session, made: str) -> None:
    session.sql(made)
    assert rows(session, "SELECT t FROM v") == [(1,), (5,), (9,)]


def test_subqueries(session: Session) -> None:
    text = f"SELECT count(*) AS n, window_end AS e FROM (SELECT t FROM a WHERE k = 1{CLOSE}) AS x"
    assert rows(session, text + " [RANGE 10 SLIDE 10]") == [(3, 10)]
    assert rows(session, f"WITH c AS (SELECT t FROM a WHERE k = 2{CLOSE}) SELECT t FROM c") == [
        (3,),
        (30,),
    ]


def test_where_no_time_has_a_watermark_it_is_refused(session: Session) -> None:
    session.register_table("rows", pa.table({"x": [1, 2]}))
    with pytest.raises(BindError, match="EMIT ON WINDOW CLOSE waits until event time") as refusal:
        session.sql("SELECT x FROM rows" + CLOSE)
    assert refusal.value.position is not None
    assert refusal.value.position.column == len("SELECT x FROM rows ") + 1


def test_other_clauses_of_emit_stay_outside(session: Session) -> None:
    with pytest.raises(NotSupportedError, match="EMIT inside another query"):
        session.sql("SELECT t FROM (SELECT t FROM a EMIT CHANGES) AS x")


def test_a_join_without_a_later_time_is_refused_where_it_never_ends(session: Session) -> None:
    text = (
        "SELECT x.t FROM live_a x JOIN live_b y ON abs(x.t - y.t) <= 3 JOIN live_a z"
        " ON abs(y.t - z.t) <= 3" + CLOSE
    )
    with pytest.raises(NotSupportedError, match="EMIT ON WINDOW CLOSE over a join") as refusal:
        plan(session, text)
    assert refusal.value.position is not None
