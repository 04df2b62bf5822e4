"""Pulled answers: ``query.read(key)`` gives the newest answer for a key."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import cql
from cql.errors import BindError, CqlError, PlanError, RunError
from cql.session.session import Session
from tests.support.runtimes import RUNTIMES, Settings, apply, named

QUOTES = (
    "CREATE STREAM quotes (ts BIGINT, symbol STRING, price INT) ORDERED BY ts UPDATE KEY (symbol)"
)
WAIT = 60.0


@pytest.fixture
def session() -> Iterator[Session]:
    with cql.connect(spark=False) as made:
        made.sql(QUOTES)
        yield made


def until(asked: Callable[[], Any], wanted: Any) -> None:
    """Asks until the answer is the wanted one; the pull of a background query has no event."""
    found = asked()
    for _ in range(6000):
        if found == wanted:
            return
        time.sleep(0.01)
        found = asked()
    assert found == wanted


@pytest.mark.parametrize("settings", RUNTIMES, ids=named)
def test_the_newest_answer_of_a_key(settings: Settings, session: Session) -> None:
    apply(session, settings)
    asked: Any = session.sql("SELECT price + 1 AS more, symbol FROM quotes WHERE price > 3")
    assert asked.read("a") is None
    session.push("quotes", [(1, "a", 5), (2, None, 6), (3, "a", 7)])
    until(lambda: asked.read("a"), {"more": 8, "symbol": "a"})
    until(lambda: asked.read(None, timeout=WAIT), {"more": 7, "symbol": None})
    session.push("quotes", [(4, "a", 1), (5, "b", 9)])
    assert asked.read("b", timeout=WAIT) == {"more": 10, "symbol": "b"}
    assert asked.read("a") == {"more": 8, "symbol": "a"}  # the last answer stays
    session.end("quotes")
    assert asked.await_termination(WAIT)
    assert asked.read("b") == {"more": 10, "symbol": "b"}
    assert asked.read("c", timeout=WAIT) is None


def test_of_a_relation_an_answer_also_goes(session: Session) -> None:
    asked: Any = session.sql("SELECT symbol, price FROM quotes WHERE price > 3 EMIT CHANGES")
    assert asked.read("a") is None
    session.push("quotes", [(1, "a", 5), (2, "b", 6)])
    assert asked.read("a", timeout=WAIT)["price"] == 5
    session.push("quotes", [(3, "a", 1), (4, "b", 7)])
    until(lambda: asked.read("a"), None)
    session.end("quotes")
    assert asked.await_termination(WAIT)
    assert asked.read("b")["price"] == 7


def test_groups_and_windows(session: Session) -> None:
    dear: Any = session.sql(
        "SELECT price > 5 AS dear, count(*) AS n FROM quotes GROUP BY price > 5"
    )
    total: Any = session.sql("SELECT sum(price) AS total FROM quotes")
    means: Any = session.sql(
        "SELECT symbol, avg(price) AS mean, window_end FROM quotes [RANGE 4 SLIDE 4]"
        " GROUP BY symbol"
    )
    queries = dear, total, means
    for asked in queries:
        asked.read(*(None for _ in asked._prepared.answer_key))
    session.push("quotes", [(1, "a", 4), (2, "b", 6), (3, "a", 8), (4, "a", 10)])
    session.end("quotes")
    for asked in queries:
        assert asked.await_termination(WAIT)
    assert dear.read(True)["n"] == 2
    assert dear.read(False) is None
    assert total.read()["total"] == 16
    assert means.read("a") == {"symbol": "a", "mean": 10.0, "window_end": 8}
    assert means.read("b") == {"symbol": "b", "mean": 6.0, "window_end": 4}


def test_what_cannot_be_read(session: Session) -> None:
    for query in ("SELECT price FROM quotes", "SELECT ts FROM (VALUES (1)) AS v (ts)"):
        with pytest.raises(PlanError, match="no column tells the answers") as refused:
            session.sql(query).read("a")
        assert "the update key" in str(refused.value.hint)
    asked: Any = session.sql("SELECT symbol, price FROM quotes")
    asked.read("a")
    with pytest.raises(BindError, match="found by symbol, and 2 values"):
        asked.read("a", 1)
    with pytest.raises(RunError, match="running already"):
        next(asked.batches())
    assert asked.stop()
    assert asked.read("a") is None


def test_an_error_of_the_query_is_raised(session: Session) -> None:
    asked: Any = session.sql("SELECT symbol, 1 / price AS y FROM quotes ON BAD ROW FAIL")
    asked.read("a")
    session.push("quotes", [(1, "a", 0)])
    with pytest.raises(CqlError, match="divi"):
        asked.await_termination(WAIT)
    with pytest.raises(CqlError, match="divi"):
        asked.read("a")


def test_closing_the_session_stops_the_query() -> None:
    with cql.connect(spark=False) as session:
        session.sql(QUOTES)
        asked: Any = session.sql("SELECT symbol, price FROM quotes")
        asked.read("a")
        session.push("quotes", [(1, "a", 2)])
        assert asked.read("a", timeout=WAIT)["price"] == 2
    assert asked.await_termination(WAIT)
    assert asked.status == "stopped"
    assert asked.read("a")["price"] == 2
