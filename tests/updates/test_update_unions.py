"""UNION ALL of update streams: its answers and counts under every runtime, and what is refused."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

import cql
from cql.dialect import parse_one
from cql.errors import BindError, CqlError, NotSupportedError
from cql.executor.operators.updates import newest
from cql.executor.strings import compaction
from cql.planner.bind.context import Context
from cql.planner.bind.statement import bind
from cql.planner.nodes.logical import Logical
from cql.planner.nodes.statements import Query
from cql.session.session import Session
from tests.support.run_checkpoints import (
    plan_of,
    query_of_case,
    session_of_case,
    stop_and_continue,
)
from tests.support.runtimes import ORDERED, RUNTIMES, Settings, apply, named

Row = tuple[Any, ...]


@pytest.fixture
def session() -> Iterator[Session]:
    with cql.connect(spark=False) as made:
        for name in ("a", "b"):
            made.sql(
                f"CREATE STREAM {name} (ts BIGINT, k INT, name STRING, v INT) ORDERED BY ts"
                " UPDATE KEY (name, k)"
            )
        yield made


def logical_of(session: Session, text: str) -> Logical:
    """The meaning of a SELECT, without the optimizer's rules."""
    bound = bind(parse_one(text), session._catalog, Context(settings=session.settings))
    assert isinstance(bound, Query)
    return bound.plan


@pytest.mark.parametrize(
    ("query", "key", "time"),
    [
        ("SELECT * FROM a", {1, 2}, 0),
        ("SELECT name, v, k, ts FROM a WHERE v > 1 LIMIT 3", {0, 2}, 3),
        ("SELECT k, k AS again, name FROM a", {0, 2}, None),
        ("SELECT k, v FROM a", None, None),
        ("SELECT k + 0 AS k, name, ts FROM a", None, 2),
        ("SELECT * FROM a UNION ALL SELECT * FROM b", {1, 2}, 0),
        ("SELECT ts, count(*) FROM a GROUP BY ts", None, None),
    ],
)
def test_the_update_key_of_a_query(
    query: str, key: set[int] | None, time: int | None, session: Session
) -> None:
    found = logical_of(session, query)
    assert (None if found.update_key is None else set(found.update_key)) == key
    assert found.update_time == time


# -- what leaves -----------------------------------------------------------------------------------


def rows_of(batches: Any) -> list[Row]:
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def taken(batches: Iterator[Any], count: int) -> list[Row]:
    """The next rows of a query, at least ``count``."""
    found: list[Row] = []
    while len(found) < count:
        found += rows_of([next(batches)])
    return found


def counts(query: Any) -> dict[str, int]:
    """Where the rows of the union went."""
    (told,) = (m for m in query.metrics() if m["operator"].startswith("newest"))
    assert told["rows_in"] == told["rows_out"] + told["superseded"] + told["late_rows"]
    return {name: told[name] for name in ("superseded", "conflicting", "late_rows")}


@pytest.mark.parametrize("settings", RUNTIMES, ids=named)
def test_it_delivers_what_is_ready(settings: Settings, session: Session) -> None:
    """A row of one input leaves while nothing is known of the other."""
    apply(session, settings)
    asked: Any = session.sql("SELECT * FROM a UNION ALL SELECT * FROM b")
    session.push("a", [(5, 1, "x", 1), (6, 1, None, 1)])
    read = iter(asked)
    assert taken(read, 2) == [(5, 1, "x", 1), (6, 1, None, 1)]
    session.push("b", [(4, 1, "x", 2), (5, 1, "y", 3), (6, 1, None, 1), (7, 2, "x", 4)])
    assert sorted(taken(read, 2)) == [(5, 1, "y", 3), (7, 2, "x", 4)]
    session.push("a", [(7, 2, "x", 5), (8, 1, None, 6)])
    assert taken(read, 1) == [(8, 1, None, 6)]
    session.end("a")
    session.end("b")
    assert rows_of(read) == []
    assert counts(asked) == {"superseded": 3, "conflicting": 1, "late_rows": 0}
    assert (
        "conflicting 1" in str(asked.explain_analyze()) if hasattr(asked, "explain_analyze") else 1
    )


def declared(session: Session, tables: Sequence[pa.Table], key: str, slack: int) -> None:
    """Streams u0, u1, … with an update key, and p0, p1, … with the same rows and none."""
    for k, table in enumerate(tables):
        session.create_stream(
            f"u{k}", table, ordered_by="t", slack=slack, update_key=key.split(",")
        )
        session.create_stream(f"p{k}", table, ordered_by="t", slack=slack)


def disordered(count: int, seed: object, keys: int, slack: int) -> pa.Table:
    """Rows of every type with few keys and values, at most ``slack`` behind the highest time."""
    rng = random.Random(f"newest {seed}")
    times = [i // 3 + rng.randint(0, slack) for i in range(count)]
    return pa.table(
        {
            "t": pa.array(times, pa.int64()),
            "k": pa.array([rng.choice([None, *range(keys)]) for _ in times], pa.int32()),
            "x": pa.array(
                [rng.choice((0.0, -0.0, math.nan, -1.5, None)) for _ in times], pa.float64()
            ),
            "f": pa.array([rng.choice((-0.0, 0.0, -0.25, None)) for _ in times], pa.float32()),
            "name": pa.array([rng.choice(("a", "žluť", "", None)) for _ in times], pa.string()),
            "v": pa.array([rng.choice((1, 2, None)) for _ in times], pa.int16()),
            "b": pa.array([rng.choice((True, False)) for _ in times], pa.bool_()),
        }
    )


def content(value: Any) -> Any:
    """Equal for values that a key takes to be equal."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value + 0.0
    return value


def model(
    rows: Sequence[Row], key: Sequence[int], truth: bool = False
) -> tuple[list[Row], dict[str, int]]:
    """The rows of a union that leave, and what it counts, if ``rows`` come in this order and none
    is late. The first column is the time; with ``truth``, the last one is true of the first input,
    and does not leave."""
    newest_of: dict[Row, tuple[int, Row, bool]] = {}
    left, superseded, conflicting = [], 0, 0
    for whole in rows:
        row, wins = (whole[:-1], bool(whole[-1])) if truth else (whole, False)
        of = tuple(content(row[c]) for c in key)
        others = tuple(content(v) for v in row)
        known = newest_of.get(of)
        if known is not None and row[0] <= known[0]:
            same = row[0] == known[0]
            conflicting += same and others != known[1]
            replaces = same and wins and not known[2]
            if replaces:
                newest_of[of] = row[0], others, True
            if not replaces or others == known[1]:
                superseded += 1
                continue
        newest_of[of] = row[0], others, wins
        left.append(row)
    return left, {"superseded": superseded, "conflicting": conflicting, "late_rows": 0}


def shown(rows: Sequence[Row]) -> list[str]:
    return list(map(repr, rows))


KEYS = {"k": [1], "name,k": [1, 4], "x": [2], "f,b": [3, 6], "v": [5]}


@pytest.mark.sampled
@pytest.mark.parametrize("settings", RUNTIMES, ids=named)
@pytest.mark.parametrize("key", KEYS)
def test_random_inputs(key: str, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of the union without keys, which come in the same order, tell what must leave."""
    monkeypatch.setattr(newest, "EVERY", 50)
    rng = random.Random(f"{key} {settings}")
    slack = rng.choice((0, 4))
    tables = [disordered(rng.choice((0, 40, 900)), rng.random(), 30, slack) for _ in range(3)]
    with cql.connect(spark=False, morsel_rows=rng.choice((1, 16, 64)), **settings) as session:
        declared(session, tables, key, slack)
        asked: Any = session.sql(" UNION ALL ".join(f"SELECT * FROM u{k}" for k in range(3)))
        plain: Any = session.sql(" UNION ALL ".join(f"SELECT * FROM p{k}" for k in range(3)))
        came = rows_of(plain.to_arrow().to_batches())
        got = rows_of(asked.to_arrow().to_batches())
        expected, counted = model(came, KEYS[key])
        assert shown(got) == shown(expected)
        assert counts(asked) == counted
        assert_newest([row for t in tables for row in rows_of([t])], got, KEYS[key])


def assert_newest(given: Sequence[Row], got: Sequence[Row], key: Sequence[int]) -> None:
    """What is guaranteed whatever the order in which the inputs come: the times of a key rise, and
    its last row is the newest one of all inputs."""
    last: dict[Row, int] = {}
    assert set(shown(got)) <= set(shown(given))
    for row in got:
        of = tuple(content(row[c]) for c in key)
        assert row[0] > last.get(of, -1)
        last[of] = row[0]
    highest: dict[Row, int] = {}
    for row in given:
        of = tuple(content(row[c]) for c in key)
        highest[of] = max(row[0], highest.get(of, -1))
    assert last == highest


@pytest.mark.parametrize("settings", RUNTIMES, ids=named)
def test_the_first_input_is_the_truth(settings: Settings) -> None:
    rng = random.Random(f"truth {settings}")
    tables = [disordered(300, rng.random(), 5, 3) for _ in range(2)]
    hint = "/*+ union_truth('first_input') */"
    with cql.connect(spark=False, morsel_rows=16, **settings) as session:
        declared(session, tables, "k", 3)
        asked: Any = session.sql(f"SELECT {hint} * FROM u0 UNION ALL SELECT * FROM u1")
        plain: Any = session.sql("SELECT *, true FROM p0 UNION ALL SELECT *, false FROM p1")
        expected, counted = model(rows_of(plain.to_arrow().to_batches()), [1], truth=True)
        assert shown(rows_of(asked.to_arrow().to_batches())) == shown(expected)
        assert counts(asked) == counted
        assert counted["conflicting"] > 0


@pytest.mark.parametrize("settings", RUNTIMES, ids=named)
def test_late_rows_never_turn_a_key_back(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every runtime and every number of partitions leaves the same late rows out."""
    monkeypatch.setattr(newest, "EVERY", 50)
    tables = [disordered(900, f"late {k}", 400, 40) for k in range(2)]
    text = "SELECT t, k, name FROM u0 UNION ALL SELECT t, k, name FROM u1"
    found = []
    for other in (settings, {"runtime": "depth_first"}):
        with cql.connect(spark=False, morsel_rows=16, **other) as session:
            declared(session, tables, "k", 2)
            asked: Any = session.sql(text)
            rows = rows_of(asked.to_arrow().to_batches())
            found.append((rows, counts(asked)))
        last: dict[Any, int] = {}
        for t, k, _ in rows:
            assert t > last.get(k, -1)
            last[k] = t
    assert found[0] == found[1]
    assert found[0][1]["late_rows"] > 0


@pytest.mark.parametrize("settings", [RUNTIMES[0], RUNTIMES[-1]], ids=named)
def test_keys_that_never_return_are_forgotten(
    settings: Settings, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(newest, "EVERY", 1000)
    apply(session, settings)
    for name in ("c", "d"):
        session.sql(f"CREATE STREAM {name} (ts BIGINT, k INT) ORDERED BY ts UPDATE KEY (k)")
    asked: Any = session.sql("SELECT * FROM c UNION ALL SELECT * FROM d")
    read: Iterator[Any] | None = None
    for start in range(0, 100_000, 5000):
        rows = [(t, t) for t in range(start, start + 5000)]
        session.push("c", rows)
        session.push("d", rows)
        read = read or iter(asked)
        taken(read, 5000)
    session.end("c")
    session.end("d")
    assert read is not None
    assert rows_of(read) == []
    assert counts(asked) == {"superseded": 100_000, "conflicting": 0, "late_rows": 0}
    (told,) = (m for m in asked.metrics() if m["operator"].startswith("newest"))
    assert told["held"] == 0
    assert told["peak_bytes"] < 8_000_000


@pytest.mark.parametrize("case", ["newest", "newest names"])
def test_forgotten_keys_in_checkpoints(
    case: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each part of a run has a runtime, partitions and texts of its own."""
    monkeypatch.setattr(newest, "EVERY", 50)
    plans, choice = [], random.Random(f"{case} {seed}")
    for settings in (RUNTIMES[0], *({**ORDERED[-1], "partitions": n} for n in (0, 1, 3, 64))):
        one = session_of_case(case, morsel_rows=16, **settings)
        plans.append((plan_of(one, query_of_case(case)), one.settings))
    for first in plans:
        stop_and_continue(*first, choice, stops=4, others=plans, partitions_differ=True)


def test_texts_that_come_and_go(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """The dictionary forgets texts while keys are known: hashes are those of the content."""
    monkeypatch.setattr(compaction, "LEAST", 0)
    asked: Any = session.sql("SELECT * FROM a UNION ALL SELECT * FROM b")
    read = None
    for start in range(0, 2000, 100):
        rows = [(t, 0, f"key {t % (t // 100 + 5)}", t) for t in range(start, start + 100)]
        last = {row[2]: row for row in rows}
        session.push("a", rows)
        read = read or iter(asked)
        found: list[Row] = []
        while not set(last.values()) <= set(found):
            found += rows_of([next(read)])
        session.push("b", list(last.values()))
    session.end("a")
    session.end("b")
    assert read is not None
    assert rows_of(read) == []
    told = counts(asked)
    assert told["conflicting"] == 0


# -- above a union ---------------------------------------------------------------------------------


def test_a_union_is_an_update_stream(session: Session) -> None:
    """A filter above it does not bring an older row of another input back."""
    both = "(SELECT * FROM a UNION ALL SELECT * FROM b)"
    text = f"SELECT v + 1 AS more FROM {both} AS u WHERE v > 5 AND k < 9 AND name <> 'z' LIMIT 2"
    assert "Filter v > 5" in str(session.sql(f"EXPLAIN {text}")).split("Newest")[0]
    asked: Any = session.sql(text)
    session.push("a", [(5, 1, "x", 1), (6, 9, "x", 8), (6, 1, "z", 8)])
    session.push("b", [(4, 1, "x", 9), (4, 1, "y", 9), (7, 2, "x", 7)])
    session.end("a")
    session.end("b")
    assert sorted(rows_of(asked)) in ([(8,), (10,)], [(10,), (10,)])
    nested: Any = session.sql(f"SELECT * FROM {both} AS u UNION ALL SELECT * FROM a")
    found = nested.to_arrow().to_pylist()
    assert {(r["k"], r["name"]) for r in found} == {
        (1, "x"),
        (9, "x"),
        (1, "z"),
        (1, "y"),
        (2, "x"),
    }


@pytest.mark.parametrize("settings", RUNTIMES, ids=named)
def test_a_union_is_read_as_a_relation(settings: Settings) -> None:
    """At the end it has the newest row of each key of all inputs, without late rows."""
    tables = [disordered(600, f"relation {k}", 40, 9) for k in range(2)]
    with cql.connect(spark=False, morsel_rows=16, **settings) as session:
        declared(session, tables, "k", 9)
        both = "(SELECT t, k, v FROM u0 UNION ALL SELECT t, k, v FROM u1)"
        asked: Any = session.sql(f"SELECT k, max(t) AS t FROM {both} AS u GROUP BY k")
        found = rows_of(asked.to_arrow().to_batches())
        highest: dict[Any, int] = {}
        for table in tables:
            for t, k in zip(table["t"].to_pylist(), table["k"].to_pylist(), strict=True):
                highest[k] = max(t, highest.get(k, -1))
        assert dict(found) == highest
        assert len(found) == len(highest)


def test_without_a_key_each_row_replaces_the_one_before(session: Session) -> None:
    for name, rows in (("c", [(1, 1), (5, 2)]), ("d", [(3, 3), (4, 4), (6, 5)])):
        session.sql(f"CREATE STREAM {name} (ts BIGINT, v INT) ORDERED BY ts QUEUE IN-PLACE")
        session.push(name, rows)
        session.end(name)
    asked: Any = session.sql("SELECT ts FROM c UNION ALL SELECT ts FROM d")
    found = asked.to_arrow()["ts"].to_pylist()
    assert found == sorted(set(found))
    assert found[-1] == 6


def test_streams_that_keep_all_rows_have_a_plain_union(session: Session) -> None:
    session.sql("CREATE STREAM e (ts BIGINT, k INT) ORDERED BY ts UPDATE KEY (k)")
    for name in ("c", "d"):
        session.sql(
            f"CREATE STREAM {name} (ts BIGINT, k INT) ORDERED BY ts UPDATE KEY (k) QUEUE APPEND"
        )
        session.push(name, [(1, 1), (1, 1)])
        session.end(name)
    asked: Any = session.sql("SELECT * FROM c UNION ALL SELECT * FROM d")
    assert asked.to_arrow().num_rows == 4
    assert "Newest" not in asked.explain()
    mixed = session.sql("EXPLAIN SELECT ts, k FROM c UNION ALL SELECT ts, k FROM e")
    assert "Newest of k by ts" in str(mixed)


def test_explain(session: Session) -> None:
    told = str(session.sql("EXPLAIN SELECT * FROM a UNION ALL SELECT * FROM b"))
    assert "Newest of k, name by ts" in told
    assert "only rows with a later ts than the newest one of their key pass" in told
    assert "queue in-place by name, k" in told
    assert "Newest of k, name by ts" in str(
        session.sql("EXPLAIN LOGICAL SELECT * FROM a UNION ALL SELECT * FROM b")
    )
    session.sql("SET union_truth = 'first_input'")
    told = str(session.sql("EXPLAIN SELECT * FROM a UNION ALL SELECT * FROM b"))
    assert "the first input is the truth" in told


# -- refused ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "error", "told"),
    [
        ("SELECT * FROM a UNION SELECT * FROM b", NotSupportedError, "UNION of update streams"),
        ("SELECT ts, k, name FROM a UNION ALL SELECT ts, k, name FROM plain", BindError,
         "the second query is no update stream"),
        ("SELECT ts, k FROM a UNION ALL SELECT ts, k FROM b", BindError,
         "the first query leaves out name, the update key of a"),
        ("SELECT ts, k, name FROM a UNION ALL SELECT ts, k, upper(name) AS name FROM b", BindError,
         "the second query changes name, the update key of b"),
        ("SELECT k, name FROM a UNION ALL SELECT k, name FROM b", BindError,
         "the first query leaves out ts, the time of a"),
        ("SELECT ts, k, name FROM a UNION ALL SELECT ts + 1 AS ts, k, name FROM b", BindError,
         "the second query changes ts, the time of b"),
        ("SELECT ts, k, v, name FROM a UNION ALL SELECT ts, v, k, name FROM b", BindError,
         "the same update key: the first query has k int at 2, name string at 4, the second query"),
        ("SELECT ts, k, name FROM a UNION ALL SELECT ts, k, name FROM other", BindError,
         "the second query has k int at 2"),
        ("SELECT ts, k, name FROM a UNION ALL SELECT ts, k, name FROM wide", BindError,
         "the second query has k bigint at 2, name string at 3"),
        ("SELECT ts, k FROM untimed UNION ALL SELECT ts, k FROM untimed", BindError,
         "untimed has no time that says which row is newer"),
        ("SELECT ts, v, k, name FROM a UNION ALL SELECT ts, v FROM b", BindError, "columns"),
        ("SELECT count(*) FROM (SELECT * FROM a UNION ALL SELECT * FROM b) AS u [RANGE 5 SLIDE 5]",
         NotSupportedError, "an aggregate over the update stream a"),
        ("SELECT /*+ union_truth('first_input') */ k FROM a", CqlError, "no UNION ALL of update"),
    ],
)  # fmt: skip
def test_refused(query: str, error: type[CqlError], told: str, session: Session) -> None:
    columns = "(ts BIGINT, k INT, name STRING, v INT)"
    session.sql(f"CREATE STREAM plain {columns} ORDERED BY ts")
    session.sql(f"CREATE STREAM other {columns} ORDERED BY ts UPDATE KEY (k)")
    session.sql(f"CREATE STREAM untimed {columns} UPDATE KEY (k)")
    session.sql(
        "CREATE STREAM wide (ts BIGINT, k BIGINT, name STRING) ORDERED BY ts UPDATE KEY (name, k)"
    )
    with pytest.raises(error, match=told.replace("(", r"\(")) as raised:
        session.sql(query).explain()
    assert raised.value.position is not None
