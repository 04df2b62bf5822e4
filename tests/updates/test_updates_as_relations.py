"""An update stream as a relation, that of the last row of each key: aggregates, joins, subqueries,
and their changelogs, compared with plain Python."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, TypeAlias

import pytest

import cql
from cql.errors import NotSupportedError
from cql.session.session import Session
from tests.support.runtimes import RUNTIMES, Settings, apply, named

Quote: TypeAlias = "tuple[int, str | None, int | None]"
Last: TypeAlias = "dict[str | None, Quote]"
Rows: TypeAlias = "Counter[tuple[Any, ...]]"

STREAM = "CREATE STREAM {} (ts BIGINT, symbol STRING, {} INT) ORDERED BY ts WITHIN 5"


@pytest.fixture
def session() -> Iterator[Session]:
    with cql.connect(spark=False) as made:
        made.sql("CREATE TABLE names AS SELECT * FROM (VALUES ('a', 'A'), ('b', 'B')) AS v (k, n)")
        yield made


def _average(last: Last) -> float:
    prices = [p for _, _, p in last.values() if p is not None]
    return sum(prices) / len(prices) if prices else float("inf")


def _counts(last: Last) -> Rows:
    groups: dict[bool | None, list[int | None]] = {}
    for _, _, price in last.values():
        groups.setdefault(None if price is None else price > 50, []).append(price)
    return Counter((dear, len(found)) for dear, found in groups.items())


#: Queries over ``quotes`` and ``sales``, with their rows by the last rows of both.
ANSWERS: dict[str, Callable[[Last, Last], Rows]] = {
    "SELECT symbol, price FROM quotes WHERE price > 50 EMIT CHANGES": lambda q, s: Counter(
        (k, p) for _, k, p in q.values() if p is not None and p > 50
    ),
    "SELECT price > 50 AS dear, count(*) AS n FROM quotes GROUP BY price > 50": lambda q, s: (
        _counts(q)
    ),
    "SELECT DISTINCT price FROM quotes": lambda q, s: Counter({(p,) for _, _, p in q.values()}),
    "SELECT symbol FROM quotes WHERE price > (SELECT avg(price) FROM quotes)": lambda q, s: Counter(
        (k,) for _, k, p in q.values() if p is not None and p > _average(q)
    ),
    "SELECT q.symbol, price, sold FROM quotes q JOIN sales s ON q.symbol = s.symbol"
    " EMIT CHANGES": lambda q, s: Counter(
        (k, p, s[k][2]) for _, k, p in q.values() if k is not None and k in s
    ),
    "SELECT q.symbol, price, sold FROM quotes q LEFT JOIN sales s USING (symbol)": lambda q, s: (
        Counter((k, p, s[k][2] if k is not None and k in s else None) for _, k, p in q.values())
    ),
    "SELECT symbol, price FROM quotes WHERE symbol NOT IN (SELECT symbol FROM sales WHERE"
    " sold > 50 AND symbol IS NOT NULL)": lambda q, s: Counter(
        (k, p)
        for _, k, p in q.values()
        if (k is not None and not (k in s and (s[k][2] or 0) > 50))
        or (k is None and not any(x is not None and (y or 0) > 50 for _, x, y in s.values()))
    ),
    "SELECT n, price FROM names LEFT JOIN quotes ON k = symbol": lambda q, s: Counter(
        (k.upper(), q[k][2] if k in q else None) for k in ("a", "b")
    ),
    "SELECT symbol FROM quotes EXCEPT SELECT symbol FROM sales": lambda q, s: Counter(
        (k,) for k in q if k not in s
    ),
    "SELECT sum(p) AS p FROM (SELECT price + 1 AS p FROM quotes WHERE price < 90)": lambda q, s: (
        Counter([(sum((p + 1 for _, _, p in q.values() if p is not None and p < 90)) or None,)])
    ),
}


def _drawn(rng: random.Random, n: int) -> list[Quote]:
    rows, time = list[Quote](), 5
    for _ in range(n):
        time += rng.choice((0, 1, 1, 2))
        key = rng.choice(("a", "b", "c", "d", "e", None))
        value = None if rng.random() < 0.1 else rng.randrange(100)
        rows.append((time - rng.randrange(3), key, value))
    return rows


def _last(rows: list[Quote]) -> Last:
    """Of each key, the row with the latest time, and of those the one that came last."""
    last: Last = {}
    for row in rows:
        if row[1] not in last or row[0] >= last[row[1]][0]:
            last[row[1]] = row
    return last


def _final(query: Any) -> Rows:
    """The relation of the last instant, from its changelog."""
    found: Rows = Counter()
    for batch in query.batches():
        for row in batch.to_pylist():
            found[tuple(row.values())[2:]] += row["_weight"]
    assert all(count >= 0 for count in found.values())
    return +found


@pytest.mark.sampled
@pytest.mark.parametrize("settings", RUNTIMES, ids=named)
@pytest.mark.parametrize("query", ANSWERS)
def test_the_last_row_of_each_key(query: str, settings: Settings, session: Session) -> None:
    apply(session, settings)
    number = list(ANSWERS).index(query) + RUNTIMES.index(settings)
    queue = ("IN-PLACE", "FIFO", "LINECUTTING", "APPEND")[number % 4]
    for stream, value in (("quotes", "price"), ("sales", "sold")):
        session.sql(f"{STREAM.format(stream, value)} UPDATE KEY (symbol) QUEUE {queue}")
    rng = random.Random(f"{query} {queue}")
    rows = {"quotes": _drawn(rng, 400), "sales": _drawn(rng, 100)}

    def push() -> None:
        waiting = {stream: iter(rows[stream]) for stream in rows}
        order = [*["quotes"] * 10, *["sales"] * 5]
        rng.shuffle(order)
        for stream in order:
            session.push(stream, list(islice(waiting[stream], len(rows[stream]) // 10)))
        for stream, left in waiting.items():
            session.push(stream, list(left))
            session.end(stream)

    asked: Any = session.sql(query)
    pushing = threading.Thread(target=push)
    pushing.start()
    found = _final(asked)
    pushing.join()
    assert found == ANSWERS[query](_last(rows["quotes"]), _last(rows["sales"]))


def _declare(session: Session) -> None:
    for stream, value in (("quotes", "price"), ("sales", "sold")):
        session.sql(f"{STREAM.format(stream, value)} UPDATE KEY (symbol)")


def test_update_streams_are_joined_on_their_key(session: Session) -> None:
    _declare(session)
    on = "ON price > sold AND {} = {}"
    with pytest.warns(UserWarning, match="joined on their update key, too: symbol"):
        told = str(
            session.sql("EXPLAIN LOGICAL SELECT * FROM quotes q JOIN sales s ON price > sold")
        )
    assert "symbol <=> symbol" in told
    for one, two in (("q.symbol", "s.symbol"), ("s.symbol", "q.symbol")):
        session.sql(f"EXPLAIN SELECT * FROM quotes q JOIN sales s {on.format(one, two)}")
    session.sql("EXPLAIN SELECT * FROM quotes JOIN sales USING (symbol)")


def test_with_a_window_the_condition_is_as_written(session: Session) -> None:
    _declare(session)
    last = "[PARTITION BY symbol ROWS 1]"
    asked: Any = session.sql(
        f"SELECT q.symbol, s.symbol AS other FROM quotes {last} q JOIN sales {last} s"
        " ON price > sold EMIT CHANGES"
    )
    session.push("quotes", [(1, "a", 5), (2, "b", 9)])
    session.push("sales", [(1, "a", 3), (2, "c", 7)])
    for stream in ("quotes", "sales"):
        session.end(stream)
    assert _final(asked) == Counter([("a", "a"), ("b", "a"), ("b", "c")])


@pytest.mark.parametrize(
    ("query", "clause"),
    [
        ("SELECT * FROM quotes [RANGE 5] q JOIN sales s USING (symbol)", "JOIN"),
        ("SELECT * FROM quotes [ROWS 2]", "a window"),
        ("SELECT * FROM quotes [PARTITION BY symbol ROWS 2]", "a window"),
        ("SELECT * FROM quotes [PARTITION BY price ROWS 1]", "a window"),
        ("SELECT * FROM quotes ASOF JOIN sales USING (symbol, ts)", "JOIN"),
    ],
)  # fmt: skip
def test_what_would_need_older_rows_is_refused(query: str, clause: str, session: Session) -> None:
    _declare(session)
    with pytest.raises(NotSupportedError, match=f"{clause} over the update stream"):
        session.sql(query)


def test_without_a_time_there_is_no_relation(session: Session) -> None:
    session.sql("CREATE STREAM bare (symbol STRING, price INT) UPDATE KEY (symbol)")
    with pytest.raises(NotSupportedError, match="an aggregate over the update stream bare"):
        session.sql("SELECT sum(price) FROM bare")


def test_a_lookup_keeps_the_stream(session: Session) -> None:
    _declare(session)
    asked: Any = session.sql("SELECT n, price FROM quotes JOIN names ON k = symbol WHERE price > 5")
    session.push("quotes", [(1, "a", 7), (2, "b", 9), (3, "a", 8), (4, "b", 5)])
    session.end("quotes")
    assert [tuple(row.values()) for batch in asked for row in batch.to_pylist()] == [("A", 8)]
    assert asked.metrics()[0]["superseded"] == 2


def test_a_row_that_is_not_selected_takes_the_older_one_out(session: Session) -> None:
    _declare(session)
    session.sql("SET queue = 'append'")
    asked: Any = session.sql("SELECT symbol, price FROM quotes WHERE price > 5 EMIT CHANGES")
    session.push("quotes", [(1, "a", 7), (2, "a", 3), (3, "a", 8)])
    session.end("quotes")
    found = [tuple(row.values()) for batch in asked.batches() for row in batch.to_pylist()]
    assert found == [(1, 1, "a", 7), (2, -1, "a", 7), (3, 1, "a", 8)]
