"""The choice of the runtime: estimated costs, one core or several, the reason in EXPLAIN."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from cql.base.settings import Settings
from cql.executor.graph.build import build
from cql.executor.operators.stage.operator import StageOperator
from cql.executor.operators.workspace import Workspace
from cql.executor.strings.dictionary import Dictionary
from cql.planner.nodes.physical import Physical, RuntimeChoice
from cql.planner.placement import cost as costs
from cql.planner.placement.choose_runtime import LIGHT, choose_runtime
from cql.planner.placement.cost import Cost, Keyed, cost
from cql.query import prepared
from cql.session.session import Session
from tests.support.runtime_queries import stream

pytestmark = pytest.mark.auto_runtime

#: 21 calls of functions of doubles: expensive per row.
HEAVY = " + ".join(f"sin(value + {k}) * exp(value * {k}) + pow(value, {k}.5)" for k in range(7))
PLANS = {
    "light": "SELECT key, value * 2 AS v FROM {} WHERE value > 0.5",
    "counted": "SELECT key, count(*) AS n FROM {} [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY key",
    "heavy": f"SELECT key, {HEAVY} AS v FROM {{}}",
    "heavy, counted": (
        f"SELECT key, sum(v) AS n FROM (SELECT ts, key, {HEAVY} AS v FROM {{}}) AS h"
        " [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY key"
    ),
    "many windows": (
        "SELECT /*+ window_operator(wid) */ key, sum(value) AS v"
        " FROM {} [RANGE 1 HOUR SLIDE 1 MINUTE] GROUP BY key"
    ),
    "joined": (
        "SELECT a.key, a.value, b.value AS other FROM {} AS a JOIN others AS b"
        " ON a.key = b.key AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '1' SECOND"
        " AND sin(a.value) * cos(b.value) + exp(a.value) * ln(b.value)"
        " > pow(a.value, b.value) + sqrt(b.value)"
    ),
    "sorted": "SELECT key, value FROM {} ORDER BY value LIMIT 7",
    "in one group": f"SELECT sum({HEAVY}) AS v FROM {{}} [RANGE 1 MINUTE SLIDE 1 MINUTE]",
    "read twice": (
        f"WITH h AS (SELECT ts, key, count(*) AS n, sum({HEAVY}) AS v FROM {{}}"
        " [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY key, ts)"
        " SELECT a.key, a.n, b.v FROM h AS a, h AS b WHERE a.key = b.key AND a.ts = b.ts"
    ),
}


MANY = "rows '100000000'"


@pytest.fixture(scope="module")
def session() -> Session:
    session = Session(False)
    for name, rows in {"many": MANY, "others": MANY, "few": "rows '700'", "endless": ""}.items():
        options = f"OPTIONS ({rows})" if rows else ""
        session.sql(f"CREATE STREAM {name} USING rate {options} ORDERED BY ts")
    batches = pa.RecordBatchReader.from_batches(
        pa.schema({"ts": pa.timestamp("us"), "key": pa.int64(), "value": pa.float64()}), iter(())
    )
    session.create_stream("unknown", batches, ordered_by="ts")
    return session


def root(session: Session, plan: str, stream: str = "many") -> Physical:
    return session.sql(PLANS[plan].format(stream))._plan.root


def chosen(session: Session, plan: str, stream: str, cores: int, **settings: Any) -> RuntimeChoice:
    wanted = Settings.of(**settings)
    return choose_runtime([root(session, plan, stream)], wanted, cores)


@pytest.mark.parametrize(
    ("plan", "stream", "cores", "settings", "expected"),
    [
        ("light", "many", 8, {}, ("depth_first", 1, 0)),
        ("counted", "many", 8, {}, ("depth_first", 1, 0)),
        ("heavy", "many", 1, {}, ("depth_first", 1, 0)),
        ("heavy", "many", 2, {}, ("ordered", 2, 0)),
        ("heavy", "many", 8, {}, ("ordered", 8, 0)),
        ("heavy, counted", "many", 2, {}, ("ordered", 2, 4)),
        ("heavy, counted", "many", 8, {}, ("ordered", 8, 16)),
        ("heavy, counted", "many", 8, {"partitions": 5}, ("ordered", 8, 5)),
        ("many windows", "many", 2, {}, ("ordered", 2, 4)),
        ("joined", "many", 2, {}, ("ordered", 2, 0)),
        ("joined", "many", 8, {}, ("ordered", 8, 16)),
        ("read twice", "many", 8, {}, ("depth_first", 1, 0)),
        ("sorted", "many", 8, {}, ("depth_first", 1, 0)),
        ("in one group", "many", 8, {}, ("depth_first", 1, 0)),
        ("heavy", "few", 8, {}, ("depth_first", 1, 0)),
        ("heavy", "unknown", 8, {}, ("depth_first", 1, 0)),
        ("heavy", "endless", 8, {}, ("depth_first", 1, 0)),
        ("heavy", "few", 8, {"workers": 2}, ("ordered", 2, 0)),
        ("heavy", "unknown", 8, {"workers": 2}, ("ordered", 2, 0)),
        ("heavy", "endless", 1, {"workers": 2}, ("ordered", 2, 0)),
        ("heavy", "many", 8, {"workers": 1}, ("depth_first", 1, 0)),
        ("light", "many", 8, {"workers": 2}, ("depth_first", 1, 0)),
        ("light", "few", 2, {"runtime": "ordered"}, ("ordered", 2, 0)),
        ("counted", "few", 2, {"runtime": "ordered"}, ("ordered", 2, 0)),
        ("counted", "few", 1, {"runtime": "ordered"}, ("ordered", 1, 0)),
        ("counted", "few", 8, {"runtime": "ordered", "workers": 3}, ("ordered", 3, 6)),
        ("counted", "few", 8, {"runtime": "ordered", "workers": 64}, ("ordered", 64, 64)),
        ("heavy", "many", 8, {"runtime": "depth_first"}, ("depth_first", 1, 0)),
        ("heavy", "many", 8, {"runtime": "fifo"}, ("fifo", 1, 0)),
    ],
)
def test_what_is_chosen(
    session: Session,
    plan: str,
    stream: str,
    cores: int,
    settings: dict[str, Any],
    expected: tuple[str, int, int],
) -> None:
    found = chosen(session, plan, stream, cores, **settings)
    assert (found.name, found.workers, found.partitions) == expected, found.why


@pytest.mark.parametrize(
    ("plan", "stream", "cores", "settings", "why"),
    [
        ("light", "many", 8, {}, "about 3 ns a row: under 50"),
        (
            "sorted",
            "many",
            8,
            {},
            "about 180 ns a row, which workers would not take 1.25 times as fast",
        ),
        ("heavy", "few", 1, {}, "about 130 ns a row, 700 rows: soon done"),
        ("heavy", "unknown", 8, {}, "about 130 ns a row, of how many rows is not known"),
        ("heavy", "endless", 8, {}, "about 130 ns a row, without an end: under 500"),
        ("heavy", "many", 1, {}, "about 130 ns a row, and one core"),
        ("heavy", "many", 2, {"workers": 1}, "SET workers = 1"),
        ("heavy", "many", 2, {}, "2 workers: about 130 ns a row, 2.0 times as fast"),
        (
            "joined",
            "many",
            2,
            {},
            "2 workers, each operator whole: about 51 ns a row, 1.6 times as fast",
        ),
        (
            "read twice",
            "many",
            8,
            {},
            "about 350 ns a row, but some part of the plan is read by several others",
        ),
        (
            "heavy, counted",
            "many",
            2,
            {},
            "2 workers, partitions by skew: about 140 ns a row, 1.8 times as fast",
        ),
        ("heavy", "many", 2, {"runtime": "fifo"}, "SET runtime = 'fifo'"),
        ("heavy", "few", 2, {"runtime": "ordered"}, "SET runtime = 'ordered': 2 workers"),
        (
            "counted",
            "few",
            1,
            {"runtime": "ordered", "partitions": 1},
            "SET runtime = 'ordered': 1 worker, 1 partition",
        ),
    ],
)
def test_why(
    session: Session, plan: str, stream: str, cores: int, settings: dict[str, Any], why: str
) -> None:
    assert chosen(session, plan, stream, cores, **settings).why == why


def test_explain(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared, "cores", lambda: 2)
    text = PLANS["heavy, counted"].format("many")
    explained = str(session.sql(f"EXPLAIN {text}")).split("\n")
    why = "2 workers, partitions by skew: about 140 ns a row, 1.8 times as fast"
    assert f"runtime: ordered ({why})" in explained
    forced = str(session.sql(f"EXPLAIN {text.replace('SELECT', 'SELECT /*+ workers(1) */', 1)}"))
    assert "runtime: depth_first (SET workers = 1)" in forced.split("\n")


def test_statistics_are_asked_for_only_where_they_decide(session: Session) -> None:
    """Statistics may have to be read from many files."""
    asked: list[str] = []

    def watch(plan: str) -> list[str]:
        found = root(session, plan)
        for source in costs.sources(found):
            kept = source.relation
            object.__setattr__(source, "relation", _Watched(kept, asked))
        asked.clear()
        choose_runtime([found], Settings(), 8)
        return asked

    assert watch("counted") == []
    assert watch("heavy") != []


class _Watched:
    def __init__(self, relation: Any, asked: list[str]) -> None:
        self._relation, self._asked = relation, asked

    @property
    def statistics(self) -> Any:
        self._asked.append("statistics")
        return self._relation.statistics

    def __getattr__(self, name: str) -> Any:
        return getattr(self._relation, name)


def test_what_was_chosen_runs(seed: int) -> None:
    text = """
        SELECT k, count(*) AS n, sum(x) AS total, window_end
        FROM a [RANGE 40 SLIDE 1 WA ts] GROUP BY k"""
    with Session(False) as session:
        session.create_stream("a", stream(seed, [0, 1, 2]), ordered_by="ts", slack=5)
        session.set("window_operator", "wid")
        alone = session.sql(text)
        session.set("workers", 2)
        shared = session.sql(text)
        assert (alone._plan.runtime.name, shared._plan.runtime.name) == ("depth_first", "ordered")
        assert shared.to_arrow().equals(alone.to_arrow())
        assert [e["partitions"] for e in shared.metrics() if "partitions" in e] == [4]
        assert not any("partitions" in entry for entry in alone.metrics())


# --------------------------------------------------------------------------- costs


@pytest.mark.parametrize("plan", PLANS)
def test_shares_are_shares(session: Session, plan: str) -> None:
    found = cost([root(session, plan)], read_statistics=True)
    assert 0 <= found.python + found.alone <= found.row
    assert all(0 < keyed.row < found.row for keyed in found.keyed)
    assert found.more >= 0
    assert found.rows == (200_000_000 if plan == "joined" else 100_000_000)


def test_costs_grow_with_what_there_is_to_do(session: Session) -> None:
    row = {plan: cost([root(session, plan)], read_statistics=False).row for plan in PLANS}
    assert row["light"] < row["heavy"] < row["heavy, counted"]
    assert row["counted"] < LIGHT < row["many windows"]


def test_more_workers_are_faster_where_they_share() -> None:
    """The time per row falls with the workers, down to the heaviest operator that one worker runs
    at a time, or to the part that holds the interpreter."""
    for found, wanted in (
        (Cost(None, 100, 0, 0, 0), [100, 50, 25, 10]),
        (Cost(None, 100, 0, 0, 20), [100, 60, 30, 12]),
        (Cost(None, 100, 30, 0, 0), [100, 50, 30, 30]),
        (Cost(None, 100, 5, 40, 20), [100, 60, 40, 40]),
    ):
        assert [found.among(w) for w in (1, 2, 4, 10)] == wanted


def test_only_operators_that_hold_others_up_are_split() -> None:
    """In a plan of 100 ns per row, two operators of 45 ns keep two workers busy without a split; an
    operator of 80 ns needs a split; more workers need more splits."""
    even = [Keyed(1, 45, 10, is_join=True), Keyed(2, 45, 10, is_join=False)]
    found = Cost(None, 100, 0, 0, 0, tuple(even))
    assert [{k.node for k in found.split(w)} for w in (2, 3, 8)] == [set(), {1, 2}, {1, 2}]
    assert [found.among(w) for w in (2, 3, 8)] == [50, 40, 15]
    light = Keyed(2, 15, 10, is_join=False)
    heavy = Cost(None, 100, 0, 0, 0, (Keyed(1, 80, 20, is_join=True), light))
    assert [{k.node for k in heavy.split(w)} for w in (2, 3)] == [{1}, {1}]
    costly = Cost(None, 100, 0, 0, 0, (Keyed(1, 80, 80, is_join=True),))
    assert [len(costly.split(w)) for w in (2, 3)] == [0, 1]


def test_no_other_split_is_better(seed: int) -> None:
    """No split of the n heaviest operators is faster than the chosen split."""
    rng = random.Random(seed)
    for _ in range(300):
        parts = [
            Keyed(k, rng.uniform(1, 50), rng.uniform(0, 30), is_join=False)
            for k in range(rng.randint(0, 5))
        ]
        row = sum(k.row for k in parts) + rng.uniform(1, 40)
        found = Cost(None, row, rng.uniform(0, row / 4), 0, rng.uniform(0, 5), tuple(parts))
        for workers in (2, 3, 8):

            def time(split: Sequence[Keyed], w: int = workers, found: Cost = found) -> float:
                more = found.more + sum(k.more for k in split)
                whole = [k.row for k in found.keyed if k not in split]
                return max([(found.row + more) / w, found.python, found.alone, *whole])

            assert found.among(workers) == pytest.approx(time(found.split(workers)))
            heaviest = sorted(parts, key=lambda k: -k.row)
            best = min(time(heaviest[:n]) for n in range(len(parts) + 1))
            assert found.among(workers) == pytest.approx(best)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "text",
    [
        "SELECT k, v * 2 AS w FROM s WHERE v > 3",
        "SELECT k, count(*) AS n FROM s [RANGE 5 SLIDE 5] GROUP BY k ORDER BY n, k LIMIT 2",
        "SELECT k, median(v) AS m FROM s [RANGE 5 SLIDE 5] GROUP BY k",
        "SELECT s.v FROM s JOIN r ON s.k = r.k AND r.t BETWEEN s.t AND s.t + 9",
        "SELECT /*+ join_operator(sync_filter) */ s.v FROM s [RANGE 4], r [NOW] WHERE s.k = r.k",
        "SELECT s.v FROM s ASOF JOIN r ON s.k = r.k AND s.t >= r.t",
        "SELECT v FROM s UNION ALL SELECT v FROM r",
        "SELECT k FROM s WHERE k IN (SELECT x FROM (VALUES (1), (2)) AS y (x))",
        "SELECT DISTINCT k FROM s [ROWS 3]",
        "SELECT k, sum(v) AS n FROM s [ROWS 3] GROUP BY k",
        "SELECT k FROM s [ROWS 3] EXCEPT SELECT k FROM r [ROWS 3]",
        "SELECT k, v FROM s [ROWS 9] ORDER BY v LIMIT 2 EMIT CHANGES",
        "SELECT k FROM s [ROWS 3] WHERE k IN (SELECT k FROM r [ROWS 3])",
        "SELECT s.v, r.v AS w FROM s [ROWS 3] JOIN r [ROWS 3] ON s.k = r.k",
        "SELECT RSTREAM(k) FROM s [ROWS 3]",
    ],
)
def test_what_python_runs_is_known(text: str) -> None:
    """The cost model knows which plans the executor runs with Python operators or value logs."""
    columns = pa.table({"t": [1, 2], "k": [1, 1], "v": [5, 6]})
    with Session(False) as session:
        for name in "sr":
            session.create_stream(name, columns, ordered_by="t", unit="seconds")
        root = session.sql(text)._plan.root
    workspace = Workspace(Dictionary(), "on", 64, 1 << 30)
    graph = build([root], workspace, fuse=True, nulls=[set() for _ in costs.sources(root)])
    asked = any(
        op.address == 0 or (isinstance(op, StageOperator) and bool(op.code.logs))
        for op in graph.running()
    )
    assert costs.calls_python(root) == asked
