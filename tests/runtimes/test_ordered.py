"""The ordered multicore runtime gives the output of depth first, row for row."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import cql
from cql.errors import RunError
from cql.executor.kernels.ordered import tables, worker
from cql.executor.run.execution import Execution
from cql.executor.runtimes.ordered import POLICIES, Ordered
from cql.executor.runtimes.tables import Tasks
from cql.session.session import Session
from tests.support.catalog_tools import blocks_of_eight
from tests.support.growing_streams import QUERIES as GROWING
from tests.support.growing_streams import SETTINGS as OF_GROWING
from tests.support.growing_streams import stream as growing
from tests.support.runtime_queries import (
    CHOICES,
    JOINED,
    QUERIES,
    compare,
    left_over,
    open_session,
    outcome,
    pairwise,
    stream,
)


@pytest.fixture(scope="module")
def session(seed: int) -> Session:
    return open_session(seed)


ALL = {**QUERIES, **JOINED}
#: Queries that ``--full`` runs with every combination of settings.
FULL = ("window over a union", "joined and counted", "many keys")


def every() -> list[dict[str, Any]]:
    return [dict(zip(CHOICES, values, strict=True)) for values in product(*CHOICES.values())]


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("query", ALL)
def test_the_output_of_depth_first(
    session: Session, stress: None, query: str, seed: int, full: bool
) -> None:
    """A query runs with a third of the pairwise settings, the next query with another third."""
    choices = every() if query in FULL else pairwise(seed)
    compare(
        session, ALL[query], choices if full else pairwise(seed)[list(ALL).index(query) % 3 :: 3]
    )


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("query", ALL)
def test_buffers_of_one_slot(
    session: Session, stress: None, monkeypatch: pytest.MonkeyPatch, query: str, seed: int
) -> None:
    monkeypatch.setattr(Tasks, "slots", 1)
    compare(session, ALL[query], pairwise(seed)[1::7])


def test_parts_that_come_together_again() -> None:
    """The query runs depth first: all parts at one port would have to wait for all parts at another
    port, and there is no room for them."""
    told: list[str] = []
    session = Session(False)
    session.on_notice = told.append
    for name in "ab":
        session.create_stream(name, stream(3, [0, 1, 2]), ordered_by="ts", unit="seconds", slack=5)
    text = """SELECT ISTREAM(k, v NOT IN (SELECT v FROM b [RANGE 9 WA ts] WHERE b.k = a.k) AS i)
              FROM a [ROWS 6 WA ts]"""
    session.set("morsel_rows", 1)
    compare(session, text, [{"workers": 2, "morsel_rows": 1}])
    reason = "what one operator gives in parts comes together again"
    assert told == [f"this query runs depth first: {reason}"]
    assert f"\nit ran depth first: {reason}" in session.sql(text).explain("analyze")
    session.close()


@pytest.fixture(scope="module")
def skewed(seed: int) -> Session:
    """Most rows have one key; the input that is read later has keys beyond those of the first."""
    session = Session(False)
    keys: dict[str, list[int | None]] = {
        "a": [None, *range(9), *[4] * 30],
        "b": [-(2**31), 1, 4, 4, 4, 2**31 - 1],
    }
    for i, name in enumerate(keys):
        table = stream(seed + i, keys[name])
        session.create_stream(name, table, ordered_by="ts", unit="seconds", slack=5)
    session.set("on_bad_row", "keep")
    return session


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "by"),
    [
        ("window over a union", ("HASH", "RANGE(k)")),
        ("many keys", ("HASH(v, k)", "RANGE(v)")),
        ("joined", ("HASH(b.k)", "RANGE(a.k)")),
    ],
)
def test_partition_by(skewed: Session, stress: None, query: str, by: tuple[str, ...]) -> None:
    """PARTITION BY changes no row: not for NULL keys, not for keys beyond its ranges, and not if
    most rows are in one partition."""
    rows, workers = CHOICES["morsel_rows"], (2, 1, 4)
    for k, (scheme, parts) in enumerate(product(by, (1, 3, 8, 64))):
        clause = f"{ALL[query]} PARTITION BY {scheme} INTO {parts}"
        skewed.set("morsel_rows", rows[k % len(rows)])
        skewed.set("workers", workers[k % len(workers)])
        skewed.set("runtime", "depth_first")
        expected = outcome(skewed, ALL[query])
        assert outcome(skewed, clause) == expected
        skewed.set("runtime", "ordered")
        assert outcome(skewed, clause) == expected, clause
        run = skewed.sql(clause)
        run.to_arrow()
        split = [m for m in run.metrics() if "partitions" in m]
        assert [m["partitions"] for m in split] == [parts]
        assert (split[0]["largest"] == 1) == (parts == 1)


@pytest.fixture
def growing_session(seed: int) -> Session:
    session = Session(False)
    for k, name in enumerate("ab"):
        session.create_stream(name, growing(seed + k), ordered_by="ts", unit="seconds", slack=5)
    session.set("on_bad_row", "keep")
    return session


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("query", [q for q in GROWING if q not in OF_GROWING])
def test_ever_new_texts(growing_session: Session, stress: None, query: str, seed: int) -> None:
    compare(growing_session, GROWING[query], pairwise(seed)[::5])


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("query", "event", "least"),
    [
        ("growing keys", worker.NEEDS, 3),
        ("bad rows", worker.FAILED, 50),
        ("modes of a relation", worker.NEEDS, 20),
    ],
)
def test_python_is_asked_in_mid_run(
    growing_session: Session,
    monkeypatch: pytest.MonkeyPatch,
    query: str,
    event: int,
    least: int,
) -> None:
    """Workers leave the compiled loop for the event that a query above is meant to cover."""
    seen, answer = [], Ordered._answer

    def noted(runtime: Ordered, w: int, given: int) -> None:
        seen.append(given)
        answer(runtime, w, given)

    monkeypatch.setattr(Ordered, "_answer", noted)
    for name, value in {"runtime": "ordered", "workers": 2, "morsel_rows": 7}.items():
        growing_session.set(name, value)
    growing_session.sql({**GROWING, **JOINED}[query]).to_arrow()
    assert seen.count(event) >= least


@pytest.mark.parametrize("worklist", CHOICES["worklist"])
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_a_failing_query_ends_all_workers(
    growing_session: Session, workers: int, worklist: str
) -> None:
    """All workers end whichever of them fails, and whatever the failing worker holds."""
    for name, value in {"runtime": "ordered", "workers": workers, "morsel_rows": 7}.items():
        growing_session.set(name, value)
    growing_session.set("on_bad_row", "fail")
    growing_session.set("worklist", worklist)
    for _ in range(10):
        with pytest.raises(RunError, match="division by zero"):
            growing_session.sql(GROWING["bad rows"]).to_arrow()
        assert left_over() == []


def test_a_run_may_end_at_any_time(session: Session, full: bool, seed: int) -> None:
    """A run that is abandoned after some batches leaves no thread, and the next run is complete."""
    rng = random.Random(seed)
    text = JOINED["joined"]
    session.set("runtime", "depth_first")
    session.set("morsel_rows", 7)
    expected = session.sql(text).to_arrow()
    session.set("runtime", "ordered")
    for k in range(1000 if full else 30):
        session.set("workers", rng.choice((1, 2, 4)))
        session.set("partitions", rng.choice((0, 3)))
        batches = iter(session.sql(text))
        for _ in range(rng.randrange(6)):
            next(batches)
        batches.close()
        assert left_over() == []
        if k % 10 == 0:
            assert session.sql(text).to_arrow().equals(expected)


@pytest.mark.parametrize("after", [0, 1, 3, 5])
def test_an_error_in_a_worker_ends_the_run(
    session: Session, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    """The run raises the exception that Python raises while it answers a worker."""
    answer, answered = Ordered._answer, []

    def failing(runtime: Ordered, w: int, event: int) -> None:
        answered.append(w)
        if len(answered) > after:
            raise MemoryError(f"worker {w}")
        answer(runtime, w, event)

    session.set("runtime", "ordered")
    session.set("workers", 3)
    session.set("partitions", 0)
    session.set("morsel_rows", 7)
    with monkeypatch.context() as patched:
        patched.setattr(Ordered, "_answer", failing)
        query = session.sql(QUERIES["sorted windows"])
        with pytest.raises(MemoryError, match="worker"):
            query.to_arrow()
    assert left_over() == []
    assert session.sql(QUERIES["sorted windows"]).to_arrow().num_rows > 0


# -- rows that multiply ----------------------------------------------------------------------------

#: Each row of these leaves with rows of a table, or elements of a list, in several workers.
MULTIPLIED = {
    "inner": "SELECT a.v, t.x, a.w FROM a JOIN t ON a.k = t.k AND t.x % 7 < a.v % 7",
    "left": "SELECT a.v, t.x FROM a LEFT JOIN t ON a.w = t.w AND t.x < a.v",
    "semi": "SELECT a.v FROM a SEMI JOIN t ON a.w = t.w AND t.x > a.v",
    "anti": "SELECT a.v FROM a ANTI JOIN t ON a.w = t.w AND t.x > a.v",
    "each row": "SELECT a.v, t.x FROM a JOIN t ON t.x >= 0 WHERE a.v % 97 = 5",
    "limit": "SELECT a.v, t.x FROM a JOIN t ON t.x >= 0 LIMIT 25000",
    "failing": "SELECT a.v, 1 / (t.x - a.v) AS y FROM a JOIN t ON a.k = t.k ON BAD ROW KEEP",
    "window": """SELECT k, sum(x) AS s, first_value(x) AS f FROM (SELECT a.ts, a.k, t.x
                 FROM a JOIN t ON a.w = t.w) [RANGE 1 SECOND SLIDE 1 SECOND] GROUP BY k""",
    "subquery": """SELECT v FROM a WHERE k IN (SELECT k FROM t WHERE x % 3 = 1)
                   OR v > (SELECT max(x) FROM t) OR w NOT IN (SELECT w FROM t)""",
    "lists": """SELECT k, u.e, x.e AS f FROM (SELECT k, array_agg(v) AS ns, window_end AS until
                FROM a [RANGE 1 SECOND SLIDE 1 SECOND] GROUP BY k) AS g, UNNEST(g.ns) AS u (e),
                UNNEST(g.ns) AS x (e) WHERE u.e < x.e""",
    "texts": """SELECT k, u.e FROM (SELECT k, array_agg(concat(w, v)) AS ns, window_end AS until
                FROM a [RANGE 1 SECOND SLIDE 1 SECOND] GROUP BY k) AS g
                LEFT JOIN UNNEST(g.ns) AS u (e) ON TRUE""",
}


@pytest.fixture(scope="module")
def multiplying() -> Iterator[Session]:
    """A stream of 3,000 rows and a table of 10,000, of which a text has 770."""
    with cql.connect(spark=False) as session:
        v, x = np.arange(3000), np.arange(10_000)
        columns = {
            "ts": pa.array(v * 1000, pa.timestamp("us", "UTC")),
            "k": pa.array(v * v % 37, mask=v % 41 == 0),
            "v": v,
            "w": [f"t{n % 17}" for n in v],
        }
        session.create_stream("a", pa.table(columns), "ts")
        rows = {"k": x % 50, "x": x, "w": [f"t{n % 13}" for n in x]}
        session.create_stream("t", pa.table(rows))
        yield session


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("query", MULTIPLIED)
def test_several_workers_multiply_rows(multiplying: Session, stress: None, query: str) -> None:
    """One input has more outputs than it may hold before it is next in order."""
    session, text = multiplying, MULTIPLIED[query]
    session.set("runtime", "depth_first")
    session.set("morsel_rows", 256)
    expected = session.sql(text)
    rows = expected.to_arrow()
    session.set("runtime", "ordered")
    for workers, morsel_rows, partitions in ((1, 256, 0), (2, 33, 3), (4, 7, 3), (4, 256, 64)):
        session.set("workers", workers)
        session.set("morsel_rows", morsel_rows)
        session.set("partitions", partitions)
        found = session.sql(text)
        assert found.to_arrow().equals(rows)
        if query != "limit":
            assert flows(found) == flows(expected)


def flows(query: Any) -> list[tuple[int, ...]]:
    """The rows in and out of each join with a table and each UNNEST, and the rows of the table."""
    kinds, names = ("tablejoin", "unnest", "lookup"), ("rows_in", "rows_out", "table_rows")
    wanted = (m for m in query.metrics() if m["operator"].startswith(kinds))
    return [tuple(m.get(name) or 0 for name in names) for m in wanted]


@pytest.mark.parametrize(("text", "kind"), [("inner", "tablejoin"), ("lists", "unnest")])
def test_workers_are_at_one_operator_at_once(multiplying: Session, text: str, kind: str) -> None:
    """The runtime has a lane for each of four workers."""
    kinds: list[int] = []

    class Seen:
        def begun(self, tasks: Tasks) -> None:
            named = enumerate(tasks.graph.operators[k].name for k in tasks.order)
            kinds.extend(int(tasks.task(s)[tables.KIND]) for s, n in named if kind in n)

        def ended(self, tasks: Tasks) -> None: ...

    multiplying.set("runtime", "ordered")
    multiplying.set("workers", 4)
    query = multiplying.sql(MULTIPLIED[text])
    list(Execution(query._plan, multiplying.settings, observer=Seen()).results())
    assert set(kinds) == {tables.STATELESS}


@pytest.mark.sampled
@pytest.mark.parametrize("scheduler", list(POLICIES))
@pytest.mark.parametrize("workers", [1, 2])
def test_a_parked_input_waits_for_room(scheduler: str, workers: int) -> None:
    """An input with more outputs than there is room for does not keep its worker from handing out
    results."""
    rows, table = 150, 400
    stream = pa.table({"t": pa.array(range(rows), pa.int64()), "k": [t % 5 for t in range(rows)]})
    other = pa.table({"k": [n % 7 for n in range(table)], "v": list(range(table))})
    with blocks_of_eight(), cql.connect(spark=False) as session:
        session.create_stream("s", stream, ordered_by="t")
        session.create_stream("u", other)
        text = "SELECT s.t, u.v FROM s JOIN u ON s.k = u.k"
        expected = session.sql(text, runtime="depth_first").to_arrow()
        for name, value in (("runtime", "ordered"), ("morsel_rows", 7), ("workers", workers)):
            session.set(name, value)
        session.set("scheduler", scheduler)
        assert session.sql(text).to_arrow().equals(expected)
