"""Queries over update streams: which rows they see, in which order, and what they report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

import cql
from cql.errors import BindError, NotSupportedError
from cql.executor.operators.updates.bursts import Bursts
from cql.executor.strings import compaction
from cql.planner.nodes.catalog import Queue
from cql.session.session import Session
from tests.support.runtimes import RUNTIMES, Settings, apply, named

QUOTES = "CREATE OR REPLACE STREAM quotes (ts BIGINT, symbol STRING, price INT) ORDERED BY ts"
ROWS = [
    *((1, "IBM", 1), (2, "GM", 2), (3, "IBM", 3), (4, None, 4), (5, "SUN", 5)),
    *((6, "GM", 6), (7, None, 7), (8, "IBM", 8)),
]


@pytest.fixture
def session() -> Iterator[Session]:
    with cql.connect(spark=False) as made:
        yield made


def answers(
    session: Session, rows: Sequence[tuple[Any, ...]], query: str = "SELECT * FROM quotes"
) -> tuple[list[tuple[Any, ...]], dict[str, Any]]:
    """What ``query`` answers if all ``rows`` have come when it begins, and the metrics of its
    input."""
    asked: Any = session.sql(query)
    session.push("quotes", rows)
    read = iter(asked)
    found = [next(read)]
    session.end("quotes")
    found += read
    return [tuple(r.values()) for b in found for r in b.to_pylist()], asked.metrics()[0]


@pytest.mark.parametrize("settings", RUNTIMES, ids=named)
@pytest.mark.parametrize(
    ("queue", "prices"),
    [
        ("APPEND", [1, 2, 3, 4, 5, 6, 7, 8]),
        ("FIFO", [5, 6, 7, 8]),
        ("IN-PLACE", [8, 6, 7, 5]),
        ("LINECUTTING", [8, 6, 7, 5]),
    ],
)
def test_the_rows_that_a_query_sees(
    queue: str, prices: list[int], settings: Settings, session: Session
) -> None:
    apply(session, settings)
    session.sql(f"{QUOTES} UPDATE KEY (symbol) QUEUE {queue}")
    found, told = answers(session, ROWS)
    assert [price for _, _, price in found] == prices
    assert set(found) <= set(ROWS)
    assert told["rows_in"] == len(ROWS)
    assert told["rows_out"] == len(prices)
    assert told["superseded"] == len(ROWS) - len(prices)
    assert (told["shed"], told["held"]) == (0, 0)
    assert 0 <= told["queue_staleness"] <= told["staleness"] <= told["worst_staleness"]


@pytest.mark.parametrize("setting", ["append", "fifo", "in_place", "linecutting"])
def test_the_setting_wins(setting: str, session: Session) -> None:
    session.sql(f"{QUOTES} UPDATE KEY (symbol) QUEUE FIFO")
    session.sql(f"SET queue = '{setting}'")
    found, _ = answers(session, ROWS)
    expected = {"append": ROWS, "fifo": [ROWS[k] for k in (4, 5, 6, 7)]}
    assert found == expected.get(setting, [ROWS[k] for k in (7, 5, 6, 4)])
    assert f"queue = {setting}" in str(session.sql("EXPLAIN SELECT * FROM quotes"))


def test_in_place_is_the_default_and_explained(session: Session) -> None:
    session.sql(f"{QUOTES} UPDATE KEY (symbol)")
    told = str(session.sql("EXPLAIN SELECT price FROM quotes"))
    assert "queue in-place by symbol (least staleness" in told
    assert "[ts, symbol, price]" in told  # the queue needs its key and its time


def test_without_a_key_each_row_replaces_the_one_before(session: Session) -> None:
    session.sql(f"{QUOTES} QUEUE IN-PLACE")
    found, told = answers(session, ROWS)
    assert found == [ROWS[-1]]
    assert told["superseded"] == len(ROWS) - 1


def test_a_key_of_two_columns(session: Session) -> None:
    session.sql(f"{QUOTES} UPDATE KEY (symbol, price)")
    rows = [(1, "a", 1), (2, "a", 2), (3, "a", 1), (4, None, 1), (5, None, None), (6, None, 1)]
    found, _ = answers(session, rows)
    assert found == [rows[k] for k in (2, 1, 5, 4)]


def test_a_row_behind_the_newest_of_its_key_is_superseded(session: Session) -> None:
    session.sql(f"{QUOTES} WITHIN 10 UPDATE KEY (symbol)")
    found, told = answers(session, [(5, "a", 1), (3, "a", 2), (4, "b", 3), (5, "a", 4)])
    assert found == [(5, "a", 4), (4, "b", 3)]
    assert told["superseded"] == 2


def test_a_filter_does_not_bring_an_older_row_back(session: Session) -> None:
    session.sql(f"{QUOTES} UPDATE KEY (symbol)")
    rows = [(1, "a", 9), (2, "b", 9), (3, "a", 1)]
    found, told = answers(session, rows, "SELECT symbol FROM quotes WHERE price > 5")
    assert found == [("b",)]
    assert told["rows_out"] == 2


def test_texts_of_many_blocks(session: Session) -> None:
    """Rows of several blocks leave together: the texts that a query only carries have codes."""
    session.sql("CREATE STREAM quotes (ts BIGINT, k INT, note STRING) ORDERED BY ts UPDATE KEY (k)")
    asked: Any = session.sql("SELECT k, note, upper(note) AS loud FROM quotes")
    for start in range(0, 200, 7):
        session.push(
            "quotes",
            [(t, t % 50, None if t % 9 == 0 else f"né{t}") for t in range(start, start + 7)],
        )
    read = iter(asked)
    found = [next(read)]
    session.end("quotes")
    rows = [tuple(r.values()) for b in [*found, *read] for r in b.to_pylist()]
    newest = {t % 50: None if t % 9 == 0 else f"né{t}" for t in range(203)}
    assert {k: note for k, note, _ in rows} == newest
    assert len(rows) == 50
    assert all(loud == (note and note.upper()) for _, note, loud in rows)


@pytest.mark.parametrize("window", ["", " [RANGE 8 SLIDE 8] GROUP BY symbol, window_end"])
def test_texts_that_come_and_go(
    window: str, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dictionary forgets texts while rows and keys of the queue hold others."""
    monkeypatch.setattr(compaction, "LEAST", 0)
    session.sql(
        "CREATE STREAM quotes (ts BIGINT, symbol STRING, note STRING) ORDERED BY ts"
        " UPDATE KEY (symbol) WINDOWS LAZY"
    )
    shown = "symbol, max(note) AS note" if window else "symbol, note"
    asked: Any = session.sql(f"SELECT {shown} FROM quotes{window}")
    read, newest, found = None, {}, []
    for start in range(0, 3000, 150):
        rows = [(t, f"key {t % (t // 100 + 5)}", f"note {t:05}") for t in range(start, start + 150)]
        session.push("quotes", rows)
        newest |= {symbol: note for _, symbol, note in rows}
        read = read or iter(asked)
        found += next(read).to_pylist()
    session.end("quotes")
    assert read is not None
    found += [row for batch in read for row in batch.to_pylist()]
    assert {r["symbol"]: r["note"] for r in found} == newest


def test_a_bounded_stream_is_pulled(session: Session) -> None:
    session.sql(f"{QUOTES} UPDATE KEY (symbol)")
    session.push("quotes", ROWS)
    session.end("quotes")
    asked: Any = session.sql("SELECT * FROM quotes")
    assert [tuple(r.values()) for r in asked.to_arrow().to_pylist()] == ROWS
    assert "unused: a bounded input is read as fast as the query takes its rows" in str(
        session.sql("EXPLAIN SELECT * FROM quotes")
    )


@pytest.mark.parametrize("time", ["ORDERED BY ts", ""])
def test_keys_that_never_return_are_forgotten(time: str, session: Session) -> None:
    session.sql(f"CREATE STREAM quotes (ts BIGINT, k INT) {time} UPDATE KEY (k)")
    asked: Any = session.sql("SELECT k FROM quotes")
    read, seen, most = None, 0, 0
    for start in range(0, 200_000, 5_000):
        session.push("quotes", [(t, t) for t in range(start, start + 5_000)])
        read = read or iter(asked)
        while seen < start + 5_000:
            seen += next(read).num_rows
        if start == 50_000:
            most = asked.metrics()[0]["state_bytes"]
    session.end("quotes")
    assert read is not None
    assert list(read) == []
    told = asked.metrics()[0]
    assert (told["rows_in"], told["rows_out"], told["superseded"]) == (200_000, 200_000, 0)
    assert told["state_bytes"] < 2 * most  # how blocks are cut depends on the clock


@pytest.mark.parametrize(
    ("query", "clause"),
    [
        ("SELECT * FROM quotes [RANGE 5] AS a JOIN quotes [RANGE 5] AS b ON a.symbol = b.symbol",
         "update stream quotes"),
    ],
)  # fmt: skip
def test_what_needs_all_rows_is_refused(query: str, clause: str, session: Session) -> None:
    session.sql(f"{QUOTES} UPDATE KEY (symbol)")
    with pytest.raises(NotSupportedError, match=clause) as refused:
        session.sql(query)
    assert refused.value.column == query.index("quotes") + 1


def test_the_same_in_python(session: Session) -> None:
    session.create_stream(
        "s",
        [{"ts": 1, "k": 1}],
        ordered_by="ts",
        update_key=["k"],
        queue="in_place",
        windows="lazy",
        bounded=False,
    )
    relation = session._catalog.find(("s",))
    assert relation is not None
    assert relation.stream is not None
    spec = relation.stream
    assert (spec.update_key, spec.queue, spec.lazy_windows) == (("k",), Queue.IN_PLACE, True)
    for given in ({"queue": "lifo"}, {"windows": "late"}, {"queue": 5}):
        with pytest.raises(BindError, match="cannot be"):
            session.create_stream("t", [{"ts": 1}], ordered_by="ts", **given)


def test_a_run_shows_its_staleness(session: Session) -> None:
    session.sql(f"{QUOTES} UPDATE KEY (symbol)")
    asked: Any = session.sql("SELECT symbol FROM quotes")
    read = iter(asked)
    session.push("quotes", ROWS)
    next(read)
    session.end("quotes")
    assert list(read)
    header, line = str(asked._explain_run()).split("operator", 1)[1].splitlines()[:2]
    assert "in queue" in header
    assert "stale  stalest" in header
    assert line.startswith("quotes")
    assert "quotes: superseded 4" in str(asked._explain_run())


def test_a_burst_grows_while_it_is_short_or_gains() -> None:
    bursts = Bursts(most=1024)
    for _ in range(20):
        bursts.note(bursts.size, 1_000 * bursts.size)
    assert bursts.size == 1024  # a millisecond of work
    slow = Bursts(most=1024)
    for _ in range(40):
        slow.note(slow.size, 400_000 * slow.size)
    assert 2 <= slow.size <= 8  # twice the rows take twice the time
    fixed = Bursts(most=1024)
    for _ in range(20):
        fixed.note(fixed.size, 20_000_000 + 1_000 * fixed.size)
    assert fixed.size == 1024  # nearly all the time is that of the burst itself
    before = fixed.size
    fixed.note(3, 10**12)  # the queue had only 3
    assert fixed.size == before


def test_show_staleness(session: Session) -> None:
    session.sql(f"{QUOTES} UPDATE KEY (symbol) STALENESS UNDER 1 hour")
    session.sql("SET queue = 'in_place'")
    asked: Any = session.sql("SELECT symbol FROM quotes")
    session.push("quotes", ROWS)
    session.end("quotes")
    assert sum(batch.num_rows for batch in asked) == 4
    for said in ("SHOW STALENESS", f"SHOW STALENESS {asked.name}"):
        (row,) = session.sql(said).to_arrow().to_pylist()
        queue, application, worst = (
            row.pop(f"{name}staleness") for name in ("queue_", "", "worst_")
        )
        assert 0 <= queue <= application <= worst > 0
        assert row == {
            "query": asked.name,
            "stream": "quotes",
            "queue": "in-place",
            "rows_in": 8,
            "superseded": 4,
            "shed": 0,
            "held": 0,
            "resting": 0,
            "goal": 3600.0,
        }
    plain: Any = session.sql("SELECT 1")
    assert plain.to_arrow().num_rows == 1
    assert session.sql(f"SHOW STALENESS {plain.name}").to_arrow().num_rows == 0
