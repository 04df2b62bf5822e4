"""ASOF joins and temporal joins: random joins against the reference, DuckDB, and the rows kept."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import count
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import cql
from cql.errors import BindError, CqlError, NotSupportedError, PlanError
from cql.executor.morsel.buffers import BufferPool
from cql.executor.operators.joins import asof_join
from cql.executor.strings import compaction
from tests.support.catalog_tools import blocks_of_eight
from tests.support.fuzz.random_asof_joins import SHAPES, asof_case
from tests.support.fuzz.random_cases import check
from tests.support.live import STEADY, Live, late
from tests.support.results import results

pytestmark = pytest.mark.usefixtures("shared_kernels")

#: The number of shapes that run without --full.
SMALL = 4


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("first", range(SMALL))
def test_random_joins_equal_the_reference(first: int, full: bool) -> None:
    for index in range(first, SHAPES, SMALL) if full else (first,):
        for seed in range(60 if full else 5):
            check(asof_case(index, seed))


def stream(**columns: list[Any]) -> pa.Table:
    """A table whose ``ts``, in seconds, becomes a timestamp."""
    times = pa.array([int(t * 1_000_000) for t in columns.pop("ts")], pa.timestamp("us"))
    return pa.table({"ts": times, **columns})


@pytest.fixture
def session() -> Iterator[cql.Session]:
    with cql.connect(spark=False) as made:
        trades = stream(ts=[1, 2, 5, 4, 9], k=[1, 2, None, 1, 1], v=[1, 2, 3, 4, 5])
        quotes = stream(ts=[0.5, 2, 1, 1, 3, 8], k=[1, 2, 1, 1, 2, 1], w=[10, 20, 30, 40, 50, 60])
        made.create_stream("trades", trades, "ts", slack=timedelta(seconds=1))
        made.create_stream("quotes", quotes, "ts", slack=timedelta(seconds=1))
        made.create_stream("names", pa.table({"k": [1, 2, 2], "name": ["one", "two", "zwei"]}))
        yield made


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("ASOF JOIN quotes q ON t.k = q.k AND t.ts >= q.ts",
         [(1, 40), (2, 20), (4, 40), (5, 60)]),
        ("ASOF LEFT JOIN quotes q USING (k, ts)",
         [(1, 40), (2, 20), (4, 40), (3, None), (5, 60)]),
        ("ASOF JOIN quotes q MATCH_CONDITION (t.ts >= q.ts) ON t.k = q.k",
         [(1, 40), (2, 20), (4, 40), (3, None), (5, 60)]),
        ("ASOF LEFT JOIN quotes q"
         " ON q.ts < t.ts AND t.k = q.k AND t.ts - q.ts <= INTERVAL 1 SECOND",
         [(1, 10), (2, None), (4, None), (3, None), (5, 60)]),
        ("ASOF LEFT JOIN quotes q ON t.k = q.k AND t.ts <= q.ts",
         [(1, 40), (2, 20), (4, 60), (3, None), (5, None)]),
        ("ASOF JOIN quotes q ON t.k = q.k AND t.ts < q.ts AND q.ts <= t.ts + INTERVAL 1 SECOND",
         [(2, 50)]),
        ("ASOF JOIN quotes q ON t.ts >= q.ts",
         [(1, 40), (2, 20), (4, 50), (3, 50), (5, 60)]),
        ("ASOF JOIN quotes q ON t.k = q.k AND t.ts >= q.ts + INTERVAL 1 SECOND",
         [(4, 40), (5, 60)]),
        ("JOIN quotes FOR SYSTEM_TIME AS OF t.ts q ON t.k = q.k",
         [(1, 40), (2, 20), (4, 40), (5, 60)]),
        ("LEFT JOIN quotes FOR TIMESTAMP AS OF t.ts AS q ON t.k = q.k",
         [(1, 40), (2, 20), (4, 40), (3, None), (5, 60)]),
    ],
)  # fmt: skip
def test_left_rows_leave_in_their_order(
    session: cql.Session, source: str, expected: list[Any]
) -> None:
    """The trades at 5 and 4 arrive out of order; of two quotes at 1, the last one counts."""
    assert results(session, f"SELECT t.v, q.w FROM trades t {source}") == expected


def test_a_condition_is_asked_of_the_version_that_holds(session: cql.Session) -> None:
    """If the version fails the condition, no older version replaces it."""
    source = "JOIN quotes FOR SYSTEM_TIME AS OF t.ts q ON t.k = q.k AND q.w <> 40 AND t.v + q.w > 0"
    assert results(session, f"SELECT t.v, q.w FROM trades t {source}") == [(2, 20), (5, 60)]
    found = [(1, None), (2, 20), (4, None), (3, None), (5, 60)]
    assert results(session, f"SELECT t.v, q.w FROM trades t LEFT {source}") == found
    near = f"{source.split(' AND ')[0]} AND t.ts - q.ts <= INTERVAL 1 SECOND"
    found = [(1, 40), (2, 20), (4, None), (3, None), (5, 60)]
    assert results(session, f"SELECT t.v, q.w FROM trades t LEFT {near}") == found


def test_a_table_has_one_version(session: cql.Session) -> None:
    text = "SELECT v, name FROM trades t LEFT JOIN names FOR SYSTEM_TIME AS OF t.ts n USING (k)"
    found = [(1, "one"), (2, "two"), (2, "zwei"), (3, None), (4, "one"), (5, "one")]
    assert results(session, text) == found


def test_windows_above_close_by_the_left_time(session: cql.Session) -> None:
    text = (
        "SELECT count(*) AS n, sum(w) AS w, window_end [RANGE 4 SECONDS SLIDE 4 SECONDS, WA t.ts]"
        " FROM trades t ASOF LEFT JOIN quotes q ON t.k = q.k AND t.ts >= q.ts"
    )
    found = [(n, w, end.second) for n, w, end in results(session, text)]
    assert found == [(2, 60, 4), (2, 40, 8), (1, 60, 12)]


@pytest.mark.parametrize("op", [">=", ">", "<=", "<"])
@pytest.mark.parametrize("kind", ["ASOF", "ASOF LEFT"])
def test_the_same_as_duckdb(op: str, kind: str) -> None:
    """No two quotes of a key have the same time: DuckDB would choose either of them."""
    rng = random.Random(op)
    n, m = 6_000, 5_000
    times = sorted(rng.randrange(100_000) for _ in range(n))
    arrival = sorted(range(n), key=lambda i: i + rng.randrange(50))
    trades = stream(
        ts=[times[i] for i in arrival],
        k=[rng.choice((None, *range(40))) for _ in range(n)],
        v=list(range(n)),
    )
    told = sorted({(rng.randrange(100_000), rng.choice((None, *range(45)))) for _ in range(m)},
                  key=lambda pair: pair[0])  # fmt: skip
    quotes = stream(ts=[t for t, _ in told], k=[k for _, k in told], w=list(range(len(told))))
    text = f"SELECT t.v, q.w FROM t {kind} JOIN q ON t.k = q.k AND t.ts {op} q.ts"
    near = " AND abs(t.ts - q.ts) <= INTERVAL 30 MINUTES"
    connection = duckdb.connect()
    connection.register("t", trades)
    connection.register("q", quotes)
    with cql.connect(spark=False, morsel_rows=500) as session:
        session.create_stream("t", trades.to_batches, "ts", slack=timedelta(hours=2))
        session.create_stream("q", quotes.to_batches, "ts")
        expected = connection.sql(text).fetchall()
        assert len(expected) > n // 2
        assert sorted(results(session, text), key=str) == sorted(expected, key=str)
        if kind == "ASOF":  # either the nearest quote is within the tolerance, or no quote is
            far = text.replace("SELECT t.v, q.w", "SELECT t.v, q.w, t.ts - q.ts AS apart")
            inside = f"SELECT v, w FROM ({far}) WHERE abs(epoch(apart)) <= 1800"
            expected = connection.sql(inside).fetchall()
            assert sorted(results(session, text + near)) == sorted(expected)


@pytest.mark.parametrize("runtime", ["depth_first", "fifo"])
@pytest.mark.parametrize(("tolerance", "most"), [("", 2 * 5_000), ("5 SECONDS", 1_000)])
def test_what_is_kept(runtime: str, tolerance: str, most: int, monkeypatch: Any) -> None:
    """With ever-new keys, a tolerance purges the keys whose latest row is too old."""
    monkeypatch.setattr(asof_join, "_KEYS", 64)
    n = 5_000
    within = f" AND a.ts - b.ts <= INTERVAL {tolerance}" if tolerance else ""
    with blocks_of_eight(), cql.connect(spark=False, runtime=runtime) as session:
        for name in "ab":
            table = stream(ts=[t / 10 for t in range(n)], k=list(range(n)))
            session.create_stream(name, table.to_batches, "ts")
        session.create_stream("end", stream(ts=[n / 10 + 1], k=[0]), "ts")
        text = f"FROM a ASOF JOIN b ON a.k = b.k AND a.ts >= b.ts{within}"
        query = session.sql(f"SELECT a.k {text}")
        assert query.to_arrow().num_rows == n
        (join,) = (m for m in query.metrics() if m["operator"].startswith("asofjoin"))
        assert join["held_left"] + join["held_right"] == 0
        row_bytes = 100
        assert join["peak_bytes"] < row_bytes * most
        grows = "grows with the number of keys" in str(session.sql(f"EXPLAIN SELECT a.k {text}"))
        assert grows == (not tolerance)


@pytest.mark.parametrize("direction", [">=", "<="])
def test_few_keys_need_little(direction: str) -> None:
    n = 4_000
    with blocks_of_eight(), cql.connect(spark=False) as session:
        for name in "ab":
            table = stream(ts=[t / 10 for t in range(n)], k=[t % 7 for t in range(n)])
            session.create_stream(name, table.to_batches, "ts")
        query = session.sql(f"SELECT a.k FROM a ASOF JOIN b ON a.k = b.k AND a.ts {direction} b.ts")
        assert query.to_arrow().num_rows == n
        (join,) = (m for m in query.metrics() if m["operator"].startswith("asofjoin"))
        assert join["peak_bytes"] < 120_000
        assert join["purged"] == n


def test_texts_outlive_the_block_that_they_came_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "LEAST", 1_000)
    n = 1_000
    texts = ["rare" if k % 100 == 0 else f"fresh {k}" for k in range(n)]
    with blocks_of_eight(), cql.connect(spark=False) as session:
        for name in "ab":
            table = stream(ts=list(range(n)), k=texts, x=[f"{name} {k}" for k in range(n)])
            session.create_stream(name, table.to_batches, "ts")
        text = "SELECT a.x AS ax, b.x AS bx FROM a ASOF JOIN b ON a.k = b.k AND a.ts > b.ts"
        expected = [(f"a {k}", f"b {k - 100}") for k in range(100, n, 100)]
        assert results(session, text) == expected


def test_an_idle_input_holds_nothing_back() -> None:
    """b sends a row at 1 and is idle 5 seconds later; its row below the watermark is late."""
    live = Live()
    live.stream("a", STEADY)
    live.stream("b", [(0, [0]), (1, [1]), (40, [3, 40]), (60, [60])])
    found, query = live.run("SELECT 1 AS n, a.ts AS window_end FROM a ASOF JOIN b USING (ts)")
    assert len(found) == 60
    assert late(query)["b", "idle"] == 1


def endless(session: cql.Session, name: str) -> None:
    def given() -> Iterator[dict[str, Any]]:
        for n in count():
            yield {"ts": datetime(2024, 1, 1) + timedelta(seconds=n), "k": n % 3}

    session.create_stream(name, given, "ts", bounded=False)


def test_endless_inputs_give_results(session: cql.Session) -> None:
    endless(session, "p")
    endless(session, "q")
    query = session.sql("SELECT p.ts, q.ts AS qt FROM p ASOF JOIN q ON p.k = q.k AND p.ts > q.ts")
    coming = (row for batch in query for row in batch.to_pylist())
    for row, _ in zip(coming, range(10), strict=False):
        assert row["ts"] - row["qt"] == timedelta(seconds=3)


@pytest.mark.parametrize(
    ("condition", "error", "said", "hint"),
    [
        ("t.k = q.k", PlanError, "needs an inequality", "a.ts >= b.ts"),
        ("t.ts >= q.ts AND t.ts <= q.ts", PlanError, "this is a second one", "difference"),
        ("t.ts >= q.ts AND t.v > q.w", PlanError, "this is a second one", "difference"),
        ("t.ts >= q.ts AND t.v <> q.w", NotSupportedError, "v <> w", "how far apart"),
        ("t.ts >= q.ts AND 1 / q.w > 0", NotSupportedError, "(1 / w) > 0", "how far apart"),
        ("t.ts >= q.v", BindError, "v", "w"),
    ],
)
def test_errors_of_conditions(
    session: cql.Session, condition: str, error: type[CqlError], said: str, hint: str
) -> None:
    with pytest.raises(error) as caught:
        session.sql(f"SELECT t.v FROM trades t ASOF JOIN quotes q ON {condition}").to_arrow()
    assert said in str(caught.value)
    assert hint in (caught.value.hint or "")
    assert caught.value.position is not None


@pytest.mark.parametrize(
    ("right", "kind", "step", "length"),
    [
        ("q", pa.timestamp("us"), 1_000_000_000, "INTERVAL 1 HOUR"),
        ("p", pa.int64(), 1000, "3600"),
    ],
)
def test_the_hint_says_what_the_query_can_say(
    right: str, kind: pa.DataType, step: int, length: str
) -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        for n in count():
            times = pa.array(range(8 * n * step, (8 * n + 8) * step, step), pa.int64()).cast(kind)
            yield pa.record_batch({"t": times, "k": pa.array([0, 1] * 4)})

    with cql.connect(spark=False) as session:
        for name in ("p", "q"):
            session.create_stream(name, rows, "t", bounded=False)
        text = f"SELECT x.t, y.t AS u FROM p x ASOF JOIN {right} y ON x.k = y.k AND x.t < y.t"
        with pytest.raises(PlanError) as caught:
            session.sql(text).to_arrow()
        said = (caught.value.hint or "").removeprefix("say how long:")
        assert said == f" AND y.t - x.t <= {length}"
        assert next(iter(session.sql(text + said))).num_rows > 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELECT v FROM trades ASOF RIGHT JOIN quotes USING (k, ts)", "ASOF RIGHT JOIN"),
        ("SELECT v FROM trades [NOW] ASOF JOIN quotes USING (k, ts)", "ASOF JOIN of a window"),
        ("SELECT v FROM trades t FULL JOIN quotes FOR SYSTEM_TIME AS OF t.ts USING (k)",
         "a temporal FULL JOIN"),
        ("SELECT v FROM trades t JOIN now FOR SYSTEM_TIME AS OF t.ts q USING (k)",
         "a relation whose rows leave"),
        ("SELECT p.k FROM p ASOF JOIN q ON p.k = q.k AND p.ts <= q.ts", "wait for ever"),
        ("SELECT p.k FROM p ASOF JOIN r ON p.k = r.k AND p.ts >= r.ts", "ts has no watermark"),
    ],
)  # fmt: skip
def test_what_is_refused_is_named(session: cql.Session, text: str, said: str) -> None:
    endless(session, "p")
    endless(session, "q")

    def rows() -> Iterator[dict[str, Any]]:
        yield {"ts": datetime(2024, 1, 1), "k": 1}

    session.create_stream("r", rows, bounded=False)
    session.sql("CREATE VIEW now AS SELECT * FROM quotes [NOW]")
    with pytest.raises(CqlError, match=said) as caught:
        session.sql(text).to_arrow()
    assert caught.value.position is not None


@pytest.mark.parametrize("runtime", ["depth_first", "fifo"])
def test_a_stream_joined_with_itself_is_read_once(session: cql.Session, runtime: str) -> None:
    session.set("runtime", runtime)
    given = stream(ts=[1, 2, 5, 4, 9], k=[1, 2, None, 1, 1], v=[1, 2, 3, 4, 5])
    session.create_stream("once", iter(given.to_batches(1)), "ts", slack=timedelta(seconds=1))
    query = session.sql(
        "SELECT a.v, b.v AS before FROM once a ASOF LEFT JOIN once b ON a.k = b.k AND a.ts > b.ts"
    )
    assert "read once for its 2 mentions" in query.explain()
    found = [tuple(row.values()) for row in query.to_arrow().to_pylist()]
    assert found == [(1, None), (2, None), (4, 1), (3, None), (5, 4)]
    assert [m["rows_in"] for m in query.metrics() if m["operator"] == "once"] == [5]


def test_a_right_row_before_the_first_left_row_of_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both rows are looked up in one piece. Memory that is not cleared holds anything, such as the
    time of the right row."""
    held, empty = 0x01010101_01010101, BufferPool.empty

    def unclear(pool: BufferPool, dtype: Any, n: int) -> Any:
        made = empty(pool, dtype, n)
        made.reshape(-1).view(np.uint8)[:] = 1
        return made

    monkeypatch.setattr(BufferPool, "empty", unclear)
    with cql.connect(spark=False) as session:
        left = pa.table({"t": [held + 5, held + 6, held + 7], "k": ["y", "x", "z"]})
        right = pa.table({"t": [held, held + 8], "k": ["x", "x"], "w": [1, 2]})
        for name, table in (("l", left), ("r", right)):
            session.create_stream(name, table, "t", unit="seconds", slack=100)
        text = "SELECT l.k, w FROM l LEFT ASOF JOIN r MATCH_CONDITION (l.t <= r.t) ON l.k = r.k"
        assert results(session, text) == [("y", None), ("x", 2), ("z", None)]
