"""EXISTS, IN and scalar subqueries over relations and over tables: NULLs, rows and keys that leave,
many rows at one instant, output morsels of one row."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from cql.executor.operators.relations import grouped
from cql.session.session import Session
from tests.support.fuzz.random_cases import check, logical_plan
from tests.support.fuzz.random_data import SCHEMAS, Stream
from tests.support.operator_tools import session_over
from tests.support.relation_cases import case_of, difference_of_changes, expected_changes
from tests.support.run_checkpoints import plan_of, run

OVER_RELATIONS = (
    "SELECT k, s, v IN (SELECT v FROM m [RANGE 3]) AS i FROM n [RANGE 5]",
    "SELECT s FROM n [RANGE 5] WHERE k NOT IN (SELECT k FROM m [RANGE 3])",
    "SELECT k, s FROM n [RANGE 5] AS n WHERE NOT EXISTS"
    " (SELECT 1 FROM m [RANGE 3] AS m WHERE m.k = n.k AND m.s = n.s)",
    "SELECT k, EXISTS (SELECT 1 FROM m [RANGE 3]) AS e FROM n [RANGE 5]",
    "SELECT k, (SELECT max(v) FROM m [RANGE 3]) AS h FROM n [RANGE 5]",
    "SELECT k, (SELECT min(s) FROM m [ROWS 2]) AS h FROM n [NOW]",
)
OVER_TABLES = (
    "SELECT k, k IN (SELECT * FROM (VALUES (1), (NULL)) AS x (k)) AS i, s FROM n",
    "SELECT k, s FROM n WHERE k NOT IN (SELECT * FROM (VALUES (1), (1), (3)) AS x (k))",
    "SELECT k, EXISTS (SELECT 1 FROM (VALUES (1), (2)) AS x (k) WHERE x.k = n.k) AS e FROM n",
    "SELECT k, EXISTS (SELECT 1 FROM (VALUES (1)) AS x (k) WHERE x.k > 1) AS e FROM n",
    "SELECT k, (SELECT max(s) FROM (VALUES ('a'), ('c'), ('b')) AS x (s)) AS h FROM n",
    "SELECT k, (SELECT k FROM (VALUES (1)) AS x (k) WHERE k > 1) AS h FROM n",
    "SELECT k, k NOT IN (SELECT * FROM (VALUES (NULL), (2)) AS x (k) WHERE k > 5) AS i FROM n",
)
#: The times of the rows, and their ``k``: of the rows outside, then of those of the subquery.
ROWS = {
    "no rows": ([], []),
    "no subquery": ([(1, 1), (2, None), (9, 2)], []),
    "a NULL comes and goes": ([(k, k % 3) for k in range(20)], [(5, None), (12, 1), (19, None)]),
    "rows of NULLs": ([(1, None), (1, None), (4, 1)], [(2, None), (3, 1), (30, None)]),
    "keys come again": ([(k, 1) for k in range(0, 30, 2)], [(k, 1) for k in range(0, 30, 7)]),
    "one instant": ([(7, k % 4) for k in range(40)], [(7, k % 5) for k in range(9)]),
    "all at once": ([(7, k) for k in range(20)], [(8, 1), (8, None), (20, 2)]),
}


def stream(name: str, rows: list[tuple[int, int | None]]) -> Stream:
    """The rows with these times and ``k``; a NULL ``k`` makes all other columns NULL."""
    fields, made = SCHEMAS[name], []
    for time, k in rows:
        row: dict[str, object] = {"t": time, "k": k, "b": False}
        if k is not None:
            row |= {"v": 3 * k, "s": f"text {k}"}
        made.append(tuple(row.get(f.name) for f in fields))
    return Stream(name, tuple(made), 0)


@pytest.mark.sampled
@pytest.mark.usefixtures("shared_kernels")
@pytest.mark.parametrize("text", [*OVER_RELATIONS, *OVER_TABLES])
def test_edges(text: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grouped, "_PIECE", 3)
    for name, rows in ROWS.items():
        case = case_of(text, random.Random(f"{text} {name} {seed}"))
        streams = tuple(stream(s.name, rows[s.name == "m"]) for s in case.streams)
        for settings in ({"morsel_rows": 1}, {}):
            case = replace(
                case, streams=streams, piecewise=False, settings={**case.settings, **settings}
            )
            check(case)
            if text in OVER_RELATIONS:
                found = difference_of_changes(expected_changes(case, logical_plan(case)), case)
                assert found is None, f"{name}: {found}\n{case.describe()}"


def table(seed: int, rows: int = 400) -> pa.Table:
    """Rows in order, many at one time, with keys that come and go."""
    r = random.Random(seed)
    times = sorted(r.randrange(rows // 4) for _ in range(rows))
    return pa.table(
        {
            "t": pa.array(times, pa.int64()),
            "k": pa.array([r.choice([None, *(t // 8 + j for j in range(4))]) for t in times]),
            "x": pa.array([r.choice([-0.0, 0.0, -1.5, float("nan"), 2.5]) for _ in times]),
            "s": pa.array([f"text {t // 5 + r.randrange(3)}" for t in times]),
        }
    )


ORDERED = (
    "SELECT ISTREAM(k, s) FROM a [RANGE 9] WHERE k NOT IN (SELECT k FROM b [RANGE 2])",
    "SELECT DSTREAM(k, x IN (SELECT x FROM b [ROWS 2]) AS i, s) FROM a [RANGE 7]",
    "SELECT ISTREAM(k, x, (SELECT max(s) FROM b [RANGE 1]) AS h) FROM a [RANGE 4]",
    "SELECT ISTREAM(s, x) FROM a [RANGE 9] AS a WHERE EXISTS"
    " (SELECT 1 FROM b [RANGE 2] AS b WHERE b.x = a.x AND b.k = a.k)",
)


@pytest.mark.sampled
@pytest.mark.parametrize("text", ORDERED)
def test_the_order_depends_on_nothing_but_the_rows(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not on the size of morsels, of pieces, or on the number of partitions. At the end the state
    has no row."""
    expected = None
    for piece, settings in (
        (1 << 13, {"runtime": "depth_first", "morsel_rows": 1000}),
        (3, {"runtime": "depth_first", "morsel_rows": 1000}),
        (5, {"runtime": "depth_first", "morsel_rows": 1}),
        (3, {"runtime": "ordered", "workers": 2, "morsel_rows": 16, "partitions": 3}),
    ):
        monkeypatch.setattr(grouped, "_PIECE", piece)
        found, metrics = answers(text, settings)
        assert found.num_rows
        expected = found if expected is None else expected
        assert repr(found.to_pydict()) == repr(expected.to_pydict()), settings
        (one,) = (m for m in metrics if m["operator"].startswith("subquery"))
        assert (one["held_rows"], one["groups"]) <= (30, 30)


def answers(text: str, settings: dict[str, Any]) -> tuple[pa.Table, list[dict[str, Any]]]:
    with Session(False) as session:
        for name, seed in (("a", 1), ("b", 2)):
            session.create_stream(name, table(seed), ordered_by="t")
        for setting, value in settings.items():
            session.set(setting, value)
        query = session.sql(text)
        return query.to_arrow(), query.metrics()


@pytest.mark.parametrize("runtime", ["depth_first", "ordered"])
@pytest.mark.parametrize("morsel_rows", [1, 3, 1000])
def test_a_second_row_of_a_scalar_subquery(morsel_rows: int, runtime: str) -> None:
    """It may follow another row at the next instant, but not stand beside it."""
    rows = pa.table({"ts": pa.array([1, 2, 3, 9], pa.int64()), "k": [1, 2, 3, 4]})
    text = "SELECT ISTREAM(k, (SELECT v FROM b [NOW]) AS v) FROM a [NOW]"
    for times, fails in (([2, 3, 3, 9], True), ([2, 3, 4, 9], False)):
        asked = pa.table({"ts": pa.array(times, pa.int64()), "v": [5, 6, 7, 8]})
        settings = {"morsel_rows": morsel_rows, "runtime": runtime}
        with session_over({"a": rows, "b": asked}, settings=settings) as session:
            ran = run(plan_of(session, text), session.settings)
        if fails:
            assert ran.error is not None
            assert "the subquery gives more than one row" in ran.error
        else:
            found = ["{'k': 1, 'v': None}", "{'k': 2, 'v': 5}", "{'k': 3, 'v': 6}"]
            assert ran.rows == [[*found, "{'k': 4, 'v': 8}"]]
