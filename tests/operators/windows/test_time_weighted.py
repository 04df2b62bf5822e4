"""time_weighted_avg: against a plain model under every kind of operator and in every runtime, its
types, its edges, and its refusals."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

import cql
from cql.errors import BindError, CqlError, NotSupportedError
from tests.support.results import results
from tests.support.runtimes import RUNTIMES, Settings, apply, share

Row = tuple[float | None, int | None]

CALLS = """count(*) AS n, array_agg(i) AS rows, time_weighted_avg(v, at) AS held,
    time_weighted_avg(v, at, 'linear') AS even,
    time_weighted_avg(v, at, 'LOCF') FILTER (WHERE v > 2) AS high"""
#: Settings and the query of each operator.
QUERIES: dict[str, tuple[Settings, str]] = {
    "whole": ({}, f"SELECT {CALLS} FROM s GROUP BY k"),
    "wid": ({"window_operator": "wid"}, f"SELECT {CALLS} FROM s [RANGE 20 SLIDE 5] GROUP BY k"),
    "panes": ({"window_operator": "panes"}, f"SELECT {CALLS} FROM s [RANGE 20 SLIDE 5] GROUP BY k"),
    "buffered": ({"window_operator": "buffered"}, f"SELECT {CALLS} FROM s [RANGE 9 SLIDE 4]"),
    "cumulate": (
        {},
        f"SELECT {CALLS} FROM TABLE(CUMULATE(TABLE s, DESCRIPTOR(ts), 5, 20))"
        " GROUP BY k, window_start, window_end",
    ),
    "rows": ({}, f"SELECT {CALLS} FROM s [ROWS 9 SLIDE 4] GROUP BY k"),
    "rows of keys": ({}, f"SELECT {CALLS} FROM s [PARTITION BY k ROWS 5 SLIDE 3] GROUP BY k"),
    "sessions": ({}, f"SELECT {CALLS} FROM s [SESSION 2] GROUP BY k"),
    "relation": ({}, f"SELECT ISTREAM({CALLS}) FROM s [RANGE 9] GROUP BY k"),
}


def averages(rows: list[Row], *, linear: bool = False, above: float | None = None) -> float | None:
    """The model: ``rows`` are (value, time) in their order."""
    last = {
        time: value
        for value, time in rows
        if value is not None and time is not None and (above is None or value > above)
    }
    times = sorted(last)
    if len(times) < 2:
        return last[times[0]] if times else None
    area = 0.0
    for begin, end in pairwise(times):
        height = (last[begin] + last[end]) / 2 if linear else last[begin]
        area += height * (end - begin)
    return area / (times[-1] - times[0])


def random_table(rng: random.Random, count: int) -> pa.Table:
    """``at`` is near ``ts``, in another order, with repeated times."""
    ts = sorted(rng.randint(0, count // 3) for _ in range(count))
    return pa.table(
        {
            "ts": ts,
            "i": range(count),
            "k": pa.array([rng.choice((None, 0, 1)) for _ in ts], pa.int64()),
            "v": pa.array([rng.choice((None, 1.0, 2.5, -3.0, rng.random())) for _ in ts]),
            "at": pa.array([rng.choice((None, t, t + 1, t - rng.randint(0, 9))) for t in ts]),
        }
    )


@pytest.mark.usefixtures("shared_kernels")
@pytest.mark.parametrize("name", QUERIES)
def test_it_is_that_of_the_model(name: str, full: bool) -> None:
    rng = random.Random(f"time-weighted {name}")
    settings, text = QUERIES[name]
    for case, runtime in enumerate(share(RUNTIMES, list(QUERIES).index(name), 2, full=full)):
        table = random_table(rng, 120)
        given: list[dict[str, Any]] = table.to_pylist()
        with cql.connect(False, morsel_rows=rng.choice((1, 7, 64))) as session:
            apply(session, settings, runtime)
            session.create_stream("s", table, ordered_by="ts")
            found = session.sql(text).to_arrow().to_pylist()
        assert len(found) > 2, (case, runtime)
        for row in found:
            rows = [(given[i]["v"], given[i]["at"]) for i in row["rows"]]
            assert row["n"] == len(rows)
            assert row["held"] == pytest.approx(averages(rows))
            assert row["even"] == pytest.approx(averages(rows, linear=True))
            assert row["high"] == pytest.approx(averages(rows, above=2))


def test_types_and_edges() -> None:
    moments = pa.array([0, 1_000_000, 1_000_000, 4_000_000], pa.timestamp("us"))
    far = [-(2**63), 0, 2**63 - 1, None]
    table = pa.table({"ts": moments, "n": [4, 9, 1, 5], "far": far, "b": [True, False, True, None]})
    nan, inf = "CAST('NaN' AS DOUBLE)", "CAST('Infinity' AS DOUBLE)"
    with cql.connect(False) as session:
        session.create_stream("s", table, ordered_by="ts")
        calls = {
            "time_weighted_avg(n, ts)": 1.75,
            "time_weighted_avg(n, ts, 'Linear')": 2.875,
            "time_weighted_avg(CAST(n AS DECIMAL(8, 2)), ts)": 1.75,
            "time_weighted_avg(n, CAST(ts AS DATE))": 5.0,
            "time_weighted_avg(n, CAST(second(ts) AS DECIMAL(4, 1)))": 1.75,
            "time_weighted_avg(n, n)": 3.375,
            "time_weighted_avg(n, far)": 6.5,
            "time_weighted_avg(n, ts) FILTER (WHERE n = 9)": 9.0,
            "time_weighted_avg(n, ts) FILTER (WHERE n = 8)": None,
            "time_weighted_avg(NULL, ts)": None,
            f"time_weighted_avg(CASE WHEN n = 5 THEN {nan} ELSE n END, ts)": 1.75,
            f"time_weighted_avg(CASE WHEN n = 9 THEN {nan} ELSE n END, ts)": 1.75,
            f"time_weighted_avg(CASE WHEN n = 4 THEN {inf} ELSE n END, ts)": float("inf"),
        }
        assert results(session, f"SELECT {', '.join(calls)} FROM s") == [tuple(calls.values())]
        empty = "SELECT time_weighted_avg(n, ts) FROM s WHERE n > 9"
        assert results(session, empty) == [(None,)]
        (explained,) = results(session, "EXPLAIN SELECT time_weighted_avg(n, ts) FROM s")
        assert "time_weighted_avg(CAST(n AS double), ts, 'locf')" in explained[0]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        ("‹time_weighted_avg›(v)", BindError, "does not take 1 argument"),
        ("‹time_weighted_avg›(v, ts, 'locf', 1)", BindError, "does not take 4 arguments"),
        ("time_weighted_avg(‹x›, ts)", BindError, "argument 1 of .* must be a number, but is str"),
        ("time_weighted_avg(v, ‹v›)", BindError, "must be a time or an exact number, but is dou"),
        ("time_weighted_avg(v, ts, ‹'spline'›)", BindError, "is 'locf' or 'linear'"),
        ("time_weighted_avg(v, ts, ‹x›)", BindError, "the method of .* must be a constant string"),
        ("‹time_weighted_avg›(DISTINCT v, ts)", BindError, "takes no DISTINCT"),
        ("‹time_weighted_avg›(v, ts ORDER BY ts)", NotSupportedError, "ORDER BY in time_weighted"),
        ("‹time_weighted_avg›(v, ts) OVER ()", NotSupportedError, "OVER is not supported"),
    ],
)
def test_refusals(call: str, error: type[CqlError], message: str) -> None:
    text = f"SELECT {call} FROM s"
    with cql.connect(False) as session:
        session.create_stream("s", pa.table({"ts": [1], "v": [1.0], "x": ["a"]}), ordered_by="ts")
        with pytest.raises(error, match=message) as caught:
            session.sql(text.replace("‹", "").replace("›", ""))
    assert caught.value.column == text.index("‹") + 1
