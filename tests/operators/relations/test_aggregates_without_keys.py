"""Aggregates of relations without keys: the one row exists from the first instant of the input on,
whatever the rows are."""

from __future__ import annotations

import random
from dataclasses import replace

import pyarrow as pa
import pytest

from tests.support.fuzz.random_cases import check, logical_plan
from tests.support.fuzz.random_data import SCHEMAS, Stream
from tests.support.operator_tools import session_over
from tests.support.relation_cases import case_of, difference_of_changes, expected_changes
from tests.support.run_checkpoints import plan_of, run

QUERIES = {
    "append_only": "SELECT count(*) AS c, sum(k) AS s, max(s) AS t FROM n [RANGE UNBOUNDED]"
    " WHERE k > 0",
    "retract": "SELECT count(*) AS c, count(k) AS n, sum(k) AS s FROM n [RANGE 3] WHERE k > 0",
    "two_stacks": "SELECT max(s) AS t, min(k) AS k, avg(v) AS m FROM n [RANGE 3] WHERE k > 0",
    "rescan": "SELECT max(c) AS c, sum(h) AS h FROM (SELECT k, count(*) AS c, max(v) AS h"
    " FROM n [RANGE 3] WHERE k > 0 GROUP BY k)",
    "values": "SELECT median(k) AS m, count(DISTINCT s) AS c, array_agg(s) AS l, mode(k) AS o,"
    " avg(DISTINCT v) AS a FROM n [RANGE 3] WHERE k > 0",
}
#: The times of the rows, and their ``k``.
ROWS = {
    "no rows": [],
    "no row at the first instant": [(-4, 0), (-3, None), (2, 1), (2, 2), (9, 0), (20, 1)],
    "no row passes": [(1, 0), (5, -1), (30, None)],
    "only late rows behind the first": [(50, 0), (1, 1), (2, 2), (3, 1)],
    "all rows leave": [(1, 1), (2, 2), (11, 0), (12, 1), (40, 0)],
    "NULLs": [(1, None), (1, None), (2, None)],
    "many rows of one instant": [*((7, k % 4) for k in range(40)), (9, 1)],
}


def _stream(rows: list[tuple[int, int | None]]) -> Stream:
    """The rows with these times and ``k``; a NULL ``k`` makes all other columns NULL."""
    fields, made = SCHEMAS["n"], []
    for time, k in rows:
        row: dict[str, object] = {"t": time, "k": k, "b": False}
        if k is not None:
            row |= {"v": 3 * k, "s": f"text {k}"}
        made.append(tuple(row.get(f.name) for f in fields))
    return Stream("n", tuple(made), 0)


@pytest.mark.sampled
@pytest.mark.usefixtures("shared_kernels")
@pytest.mark.parametrize("method", QUERIES)
@pytest.mark.parametrize("stream", ["", "ISTREAM", "DSTREAM"])
def test_edges(method: str, stream: str, seed: int) -> None:
    text = QUERIES[method]
    if stream:
        text = f"SELECT {stream}(*) FROM ({text})"
    for name, rows in ROWS.items():
        case = case_of(text, random.Random(f"{text} {name} {seed}"))
        case = replace(case, streams=(_stream(rows),), piecewise=False)
        for settings in ({"morsel_rows": 1}, {}):
            case = replace(case, settings={**case.settings, **settings})
            check(case)
            if not stream:
                found = difference_of_changes(expected_changes(case, logical_plan(case)), case)
                assert found is None, f"{name}: {found}\n{case.describe()}"


@pytest.mark.sampled
@pytest.mark.parametrize(
    "query",
    [
        "SELECT ISTREAM(count(*) AS n, sum(k) AS s) FROM a [RANGE 3 WA ts]",
        # the row exists although the filter removes all rows
        "SELECT ISTREAM(count(*) AS n, max(name) AS m) FROM a [RANGE 3 WA ts] WHERE k > 100",
        # no row enters the window: the row is missing until the end
        "SELECT ISTREAM(count(*) AS n) FROM (SELECT * FROM a WHERE k > 100) AS f [RANGE 3 WA ts]",
        "SELECT DSTREAM(count(*) AS n, max(name) AS m) FROM a [ROWS 2 WA ts] WHERE k < 2",
    ],
)
@pytest.mark.parametrize("runtime", ["depth_first", "ordered"])
def test_a_run_continues_behind_each_morsel(query: str, runtime: str) -> None:
    """Also while the row is missing, and the watermark waits for it."""
    table = pa.table(
        {
            "ts": pa.array([5, 5, 6, 9, 9, 20, 21, 40], pa.int64()),
            "k": pa.array([1, 2, None, 0, 1, 1, 5, 2], pa.int64()),
            "name": ["a", "b", "c", None, "e", "f", "g", "b"],
        }
    )
    settings = {"morsel_rows": 2, "runtime": runtime}
    with session_over({"a": table}, settings=settings) as session:
        plan = plan_of(session, query)
        whole = run(plan, session.settings)
        assert whole.error is None
        assert whole.morsels > 3
        assert whole.rows[0] or query.startswith("SELECT DSTREAM")
        for stop in range(whole.morsels):
            before = run(plan, session.settings, stop=stop)
            assert before.saved is not None
            ran = run(plan, session.settings, before.saved).behind(before)
            assert ran.rows == whole.rows, stop
