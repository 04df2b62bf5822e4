"""Aggregates over windows of update streams: each result is a whole window, the newest ones come,
and older ones that waited do not."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

import cql
from cql.errors import NotSupportedError, PlanError
from cql.session.session import Session
from tests.support.runtimes import RUNTIMES, Settings, apply, named

QUOTES = (
    "CREATE OR REPLACE STREAM quotes (ts BIGINT, symbol STRING, price INT) ORDERED BY ts"
    " UPDATE KEY (symbol)"
)
TOTALS = "SELECT symbol, count(*) AS n, sum(price) AS p, min(ts) AS first, window_start, window_end"
Row = tuple[Any, ...]


@pytest.fixture
def session() -> Iterator[Session]:
    with cql.connect(spark=False) as made:
        yield made


def taken(read: Iterator[Any], n: int) -> list[Row]:
    """The next ``n`` rows."""
    found: list[Row] = []
    while len(found) < n:
        found += [tuple(r.values()) for r in next(read).to_pylist()]
    assert len(found) == n
    return found


def rest(read: Iterator[Any]) -> list[Row]:
    return [tuple(r.values()) for b in read for r in b.to_pylist()]


def windows_of(rows: Sequence[Row], size: int, slide: int) -> dict[tuple[Any, int], Row]:
    """The answer for each key and window with a row, by key and start."""
    found: dict[tuple[Any, int], list[Row]] = {}
    for row in rows:
        start = row[0] // slide * slide
        while start > row[0] - size:
            found.setdefault((row[1], start), []).append(row)
            start -= slide
    return {
        (key, start): (key, len(held), sum(r[2] for r in held), held[0][0], start, start + size)
        for (key, start), held in found.items()
    }


def test_a_query_that_keeps_up_answers_each_window(session: Session) -> None:
    session.sql(f"{QUOTES} WINDOWS LAZY")
    asked: Any = session.sql(f"{TOTALS} FROM quotes [RANGE 3 SLIDE 3] GROUP BY symbol")
    read = iter(asked)
    session.push("quotes", [(0, "a", 1), (1, "a", 2), (2, "b", 3)])
    session.push("quotes", [(3, "a", 4)])
    assert sorted(taken(read, 2)) == [("a", 2, 3, 0, 0, 3), ("b", 1, 3, 2, 0, 3)]
    session.push("quotes", [(7, "a", 5)])
    assert taken(read, 1) == [("a", 1, 4, 3, 3, 6)]
    session.end("quotes")
    assert rest(read) == [("a", 1, 5, 7, 6, 9)]
    told = asked.metrics()[0]
    assert (told["rows_in"], told["rows_out"]) == (5, 5)
    assert (told["windows"], told["superseded"], told["held"]) == (4, 0, 0)


def test_eager_leaves_out_a_window_when_the_next_one_has_begun(session: Session) -> None:
    session.sql(f"{QUOTES} WINDOWS EAGER")
    asked: Any = session.sql(f"{TOTALS} FROM quotes [RANGE 3 SLIDE 3] GROUP BY symbol")
    read = iter(asked)
    session.push("quotes", [(0, "a", 1), (1, "a", 2), (2, "b", 3)])
    session.push("quotes", [(3, "a", 4)])
    assert taken(read, 1) == [("b", 1, 3, 2, 0, 3)]
    session.push("quotes", [(4, "a", 5), (7, "a", 6)])
    assert taken(read, 1) == [("a", 2, 9, 3, 3, 6)]
    session.end("quotes")
    assert rest(read) == [("a", 1, 6, 7, 6, 9)]
    told = asked.metrics()[0]
    assert (told["windows"], told["superseded"], told["held"]) == (4, 1, 0)


@pytest.mark.sampled
@pytest.mark.parametrize("settings", RUNTIMES, ids=named)
@pytest.mark.parametrize("mode", ["LAZY", "EAGER"])
@pytest.mark.parametrize("bounds", [(4, 4), (4, 2), (5, 2), (2, 3)], ids=str)
@pytest.mark.filterwarnings("ignore:SLIDE 3 is larger than RANGE 2")
def test_windows_are_whole(
    bounds: tuple[int, int], mode: str, settings: Settings, session: Session
) -> None:
    """Whatever the query takes while rows come from another thread."""
    draw = random.Random(f"{bounds} {mode} {settings}")
    size, slide = bounds
    apply(session, settings)
    session.sql(f"{QUOTES} WINDOWS {mode}")
    asked: Any = session.sql(f"{TOTALS} FROM quotes [RANGE {size} SLIDE {slide}] GROUP BY symbol")
    pushed: list[Row] = []
    time = 0
    for _ in range(400):
        time += draw.choice((0, 1, 1, 1, 2, 9))
        pushed.append((time, draw.choice(("a", "b", None)), draw.randrange(100)))

    def push() -> None:
        for start in range(0, len(pushed), 10):
            session.push("quotes", pushed[start : start + 10])
        session.end("quotes")

    pusher = threading.Thread(target=push)
    read = iter(asked)
    session.push("quotes", [])
    pusher.start()
    found = rest(read)
    pusher.join()
    whole = windows_of(pushed, size, slide)
    places = [(row[0], row[4]) for row in found]
    assert len(set(places)) == len(places)
    assert [whole[place] for place in places] == found
    for key in ("a", "b", None):
        own = [start for k, start in places if k == key]
        assert own == sorted(own)
        last = max(start for k, start in whole if k == key)
        assert own[-1] == last or mode == "EAGER"
    told = asked.metrics()[0]
    assert told["rows_in"] == len(pushed)
    assert told["windows"] == len(found) + told["superseded"]
    assert told["held"] == 0


#: Update keys that no single column tells apart by its bits, and GROUP BY behind them.
KEYS = {
    "symbol, small": "symbol, small",
    "real": "real",
    "small, real": "real, small",
    "": "",
    "by another": "small",
}


@pytest.mark.sampled
@pytest.mark.parametrize("settings", RUNTIMES, ids=named)
@pytest.mark.parametrize("mode", ["LAZY", "EAGER"])
@pytest.mark.parametrize("key", KEYS)
def test_keys_with_numbers(key: str, mode: str, settings: Settings, session: Session) -> None:
    """Results are those of whole windows, and the last windows of all keys come. Keys come and go,
    so their numbers are used again."""
    draw = random.Random(f"{key} {mode} {settings}")
    apply(session, settings)
    declared = f"UPDATE KEY ({key})" if key in ("symbol, small", "real", "small, real") else ""
    session.sql(
        "CREATE STREAM quotes (ts BIGINT, symbol STRING, small INT, real DOUBLE, price INT)"
        f" ORDERED BY ts {declared} QUEUE IN-PLACE WINDOWS {mode}"
    )
    grouped = [name for name in KEYS[key].split(", ") if name]
    group = f" GROUP BY {', '.join(grouped)}" if grouped else ""
    shown = "".join(f"{name}, " for name in grouped)
    asked: Any = session.sql(
        f"SELECT {shown}count(*) AS n, sum(price) AS p, window_start FROM quotes"
        f" [RANGE 6 SLIDE 3] WHERE price <> 50{group}"
    )
    names = ("ts", "symbol", "small", "real", "price")
    pushed: list[Row] = []
    for n in range(600):
        real = draw.choice((None, 0.0, -0.0, float("nan"), 1.5, float(n // 50)))
        symbol = draw.choice(("a", None, f"n{n // 40}"))
        pushed.append((n // 2, symbol, draw.choice((None, 1, 2)), real, draw.randrange(100)))

    def push() -> None:
        for start in range(0, len(pushed), 10):
            session.push("quotes", pushed[start : start + 10])
        session.end("quotes")

    read = iter(asked)
    session.push("quotes", [])
    pusher = threading.Thread(target=push)
    pusher.start()
    found = rest(read)
    pusher.join()
    whole: dict[tuple[str, int], tuple[int, int]] = {}
    latest: dict[str, int] = {}
    for row in pushed:
        values = dict(zip(names, row, strict=True))
        own = repr([None if (v := values[c]) is None else v + 0.0 if c == "real" else v
                    for c in grouped])  # fmt: skip
        latest[own] = row[0] // 3 * 3
        for start in (row[0] // 3 * 3, row[0] // 3 * 3 - 3) if row[4] != 50 else ():
            n, p = whole.get((own, start), (0, 0))
            whole[own, start] = n + 1, p + row[4]
    places = [(repr([v + 0.0 if isinstance(v, float) else v for v in row[:-3]]), row[-1])
              for row in found]  # fmt: skip
    assert len(set(places)) == len(places)
    assert [whole[place] for place in places] == [tuple(row[-3:-1]) for row in found]
    if mode == "LAZY" and key != "by another":
        assert {place for place in latest.items() if place in whole} <= set(places)


def test_other_queues_and_expressions(session: Session) -> None:
    session.sql(
        "CREATE STREAM quotes (at TIMESTAMP, symbol STRING, price DOUBLE) ORDERED BY at"
        " WITHIN 1 SECOND UPDATE KEY (symbol) QUEUE LINECUTTING WINDOWS LAZY"
    )
    asked: Any = session.sql(
        "SELECT upper(symbol) AS s, avg(price * 2) AS mean, window_start, window_end"
        " FROM quotes [RANGE 10 SECONDS SLIDE 5 SECONDS] WHERE price > 1"
        " GROUP BY symbol HAVING count(*) > 1"
    )
    read = iter(asked)
    rows = [(f"2024-05-01 12:00:{s:02}", "ab"[s % 2], float(s)) for s in range(30)]
    values = ", ".join(f"(TIMESTAMP '{at}', '{k}', {price})" for at, k, price in rows)
    session.sql(f"INSERT INTO quotes VALUES {values}")
    session.end("quotes")
    found = rest(read)
    # The last window has the seconds 26 and 28 of a, and 25, 27 and 29 of b.
    assert {(s, mean) for s, mean, _, _ in found} >= {("A", 54.0), ("B", 54.0)}
    assert {(end - start).total_seconds() for _, _, start, end in found} == {10.0}


@pytest.mark.parametrize(
    ("query", "error", "told"),
    [
        ("SELECT count(*) FROM quotes [RANGE 4 SLIDE 2]", PlanError, "grouped by its update key"),
        ("SELECT price, count(*) FROM quotes [RANGE 4 SLIDE 2] GROUP BY price",
         PlanError, "grouped by its update key"),
        ("SELECT symbol, count(*) FROM quotes [SESSION 4] GROUP BY symbol",
         NotSupportedError, "other than RANGE with SLIDE"),
    ],
)  # fmt: skip
def test_windows_that_cannot_be_updates(
    query: str, error: type[Exception], told: str, session: Session
) -> None:
    session.sql(QUOTES)
    with pytest.raises(error, match=told):
        session.sql(query)


@pytest.mark.parametrize(
    ("clauses", "told"),
    [
        ("UPDATE KEY (symbol) QUEUE APPEND SHED RANDOM", "SHED RANDOM"),
        ("UPDATE KEY (symbol) PUNCTUATE BY symbol", "PUNCTUATE BY of the update stream"),
    ],
)
def test_streams_whose_windows_cannot_be_updates(clauses: str, told: str, session: Session) -> None:
    session.sql(f"CREATE STREAM s (ts BIGINT, symbol STRING, price INT) ORDERED BY ts {clauses}")
    with pytest.raises(NotSupportedError, match=told):
        session.sql("SELECT symbol, count(*) FROM s [RANGE 4 SLIDE 2] GROUP BY symbol")


def test_an_append_queue_takes_all_rows(session: Session) -> None:
    session.sql(f"{QUOTES} QUEUE APPEND")
    rows = [(t, "ab"[t % 2], t) for t in range(20)]
    asked: Any = session.sql(f"{TOTALS} FROM quotes [RANGE 4 SLIDE 2] GROUP BY symbol")
    joined: Any = session.sql(
        "SELECT a.ts, b.ts AS other FROM quotes [RANGE 1] AS a JOIN quotes [RANGE 1] AS b"
        " ON a.price = b.price"
    )
    session.push("quotes", rows)
    read, pairs = iter(asked), iter(joined)
    found = [next(read), next(pairs)]
    session.end("quotes")
    totals = [tuple(r.values()) for b in [found[0], *read] for r in b.to_pylist()]
    assert sorted(totals) == sorted(windows_of(rows, 4, 2).values())
    assert sum(b.num_rows for b in [found[1], *pairs]) == len(rows)


def test_rows_without_a_time_are_bad(session: Session) -> None:
    session.sql(f"{QUOTES} WINDOWS LAZY")
    asked: Any = session.sql(f"{TOTALS} FROM quotes [RANGE 4 SLIDE 4] GROUP BY symbol")
    read = iter(asked)
    session.push("quotes", [(1, "a", 1), (None, "a", 2), (2, "a", 3)])
    session.end("quotes")
    assert rest(read) == [("a", 2, 4, 1, 0, 4)]
    assert asked.metrics()[0]["bad"] == 1


def test_keys_that_never_return_take_no_memory(session: Session) -> None:
    session.sql("CREATE STREAM quotes (ts BIGINT, k INT) ORDERED BY ts UPDATE KEY (k) WINDOWS LAZY")
    asked: Any = session.sql("SELECT k, window_end FROM quotes [RANGE 10 SLIDE 10] GROUP BY k")
    read, seen, half = None, 0, 0
    for start in range(0, 120_000, 4_000):
        session.push("quotes", [(t, t) for t in range(start, start + 4_000)])
        read = read or iter(asked)
        while seen < start + 3_990:
            seen += next(read).num_rows
        if start == 60_000:
            half = sum(of.get("state_bytes", 0) for of in asked.metrics())
    session.end("quotes")
    assert read is not None
    assert seen + sum(b.num_rows for b in read) == 120_000
    assert sum(of.get("state_bytes", 0) for of in asked.metrics()) < 1.5 * half


@pytest.mark.parametrize(
    ("rate", "clause", "mode"),
    [
        (1000, "", "EAGER: one is taken with its first row (rows of a key are 5 milliseconds"),
        (2, "", "LAZY: one is taken when it has fully arrived (rows of a key are 2500 millisec"),
        (1000, "WINDOWS LAZY", "LAZY: one is taken when it has fully arrived (declared)"),
        (2, "WINDOWS EAGER", "EAGER: one is taken with its first row (declared)"),
    ],
)  # fmt: skip
def test_the_mode_follows_from_the_gaps(
    rate: int, clause: str, mode: str, session: Session
) -> None:
    session.sql(
        f"CREATE STREAM load USING rate OPTIONS (rows_per_second '{rate}', keys '5')"
        f" ORDERED BY ts UPDATE KEY (key) {clause}"
    )
    told = str(
        session.sql(
            "EXPLAIN SELECT key, count(*) FROM load [RANGE 8 SECONDS SLIDE 4 SECONDS] GROUP BY key"
        )
    )
    assert f"windows of 8 seconds every 4 seconds as updates, {mode}" in told


def test_unknown_gaps_are_lazy(session: Session) -> None:
    session.sql("CREATE STREAM quotes (ts BIGINT, k INT) ORDERED BY ts UPDATE KEY (k)")
    told = str(session.sql("EXPLAIN SELECT k, count(*) FROM quotes [RANGE 8 SLIDE 4] GROUP BY k"))
    assert "LAZY: one is taken when it has fully arrived (how far the rows of a key" in told
