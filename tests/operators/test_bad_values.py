"""Values with special cases: NULL keys, NaN and infinities, decimals that overflow, times at the
ends of the calendar; and state over its limit, in each stateful operator."""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import cql
from cql import Query, Session
from cql.errors import RunError

OPERATORS = ["wid", "panes", "two_stacks"]
WINDOW = "[RANGE 20 SLIDE 10]"


@pytest.fixture
def session() -> Iterator[Session]:
    with cql.connect() as made:
        yield made


def rows(session: Session, text: str) -> list[dict[str, Any]]:
    query = session.sql(text)
    assert isinstance(query, Query)
    found: list[dict[str, Any]] = query.to_arrow().to_pylist()
    return found


@pytest.mark.sampled
@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("kind", [pa.int32(), pa.string(), pa.bool_(), pa.float64()])
def test_null_keys_are_a_group_of_their_own(
    session: Session, operator: str, kind: pa.DataType
) -> None:
    session.set("window_operator", operator)
    values: dict[pa.DataType, list[Any]] = {
        pa.int32(): [0, None, 0, -1, None],
        pa.string(): ["", None, "", "NULL", None],
        pa.bool_(): [False, None, False, True, None],
        pa.float64(): [0.0, None, -0.0, math.nan, None],
    }
    keys = pa.array(values[kind], kind)
    session.create_stream("s", pa.table({"t": [1, 2, 3, 4, 15], "k": keys}), ordered_by="t")
    found = rows(session, f"SELECT k, count(*) AS n, window_end AS e FROM s {WINDOW} GROUP BY k")
    counts = sorted((r["e"], r["n"], r["k"] is None) for r in found)
    assert counts == [
        *((10, 1, False), (10, 1, True), (10, 2, False)),
        *((20, 1, False), (20, 2, False), (20, 2, True)),
        (30, 1, True),
    ]
    text = f"SELECT k, t < 0 AS neg, count(*) AS n FROM s {WINDOW} GROUP BY k, neg HAVING n > 1"
    pairs = rows(session, text)
    assert len(pairs) == 3


@pytest.mark.sampled
@pytest.mark.parametrize("operator", OPERATORS)
def test_nan_is_one_value_above_infinity(session: Session, operator: str) -> None:
    """As in Spark: NaN equals NaN and is larger than any other value; 0.0 and -0.0 are one
    group."""
    session.set("window_operator", operator)
    x = [math.inf, math.nan, -math.inf, 1.5, -0.0, 0.0, -math.nan, None]
    session.create_stream(
        "s", pa.table({"t": range(1, 9), "x": pa.array(x, pa.float64())}), ordered_by="t"
    )
    (found,) = rows(
        session,
        "SELECT min(x) AS low, max(x) AS high, count(x) AS n, count(DISTINCT x) AS d,"
        " sum(x) AS s, max(x) FILTER (WHERE x < 'NaN'::DOUBLE) AS finite"
        " FROM s [RANGE 10 SLIDE 10]",
    )
    assert found["low"] == -math.inf
    assert math.isnan(found["high"])
    assert math.isnan(found["s"])
    assert (found["n"], found["d"], found["finite"]) == (7, 5, math.inf)
    groups = rows(session, "SELECT x, count(*) AS n FROM s [RANGE 10 SLIDE 10] GROUP BY x")
    assert sorted(r["n"] for r in groups) == [1, 1, 1, 1, 2, 2]
    ordered = rows(session, "SELECT x FROM s ORDER BY x DESC")
    shown = ["nan", "nan", "inf", "1.5", "0", "0", "-inf", "None"]
    assert [f"{abs(r['x']) if r['x'] == 0 else r['x']:g}" if r["x"] is not None else "None"
            for r in ordered] == shown  # fmt: skip
    above = rows(session, "SELECT count(*) AS n FROM s [RANGE 10 SLIDE 10] WHERE x > 1e308")
    assert above[0]["n"] == 3


@pytest.mark.parametrize("operator", OPERATORS)
def test_a_sum_of_decimals_that_overflows_fails(session: Session, operator: str) -> None:
    session.set("window_operator", operator)
    most = decimal.Decimal("9" * 15 + ".99")
    table = pa.table(
        {"t": range(300), "d": pa.array([most] * 300, pa.decimal128(18, 2)), "k": [0] * 300}
    )
    session.create_stream("s", table, ordered_by="t")
    text = "SELECT k, sum(d) AS total FROM s [RANGE {0} SLIDE {0}] GROUP BY k"
    few = rows(session, text.format(5))
    assert few[0]["total"] == 5 * most
    query = session.sql(text.format(400) + " ON BAD ROW KEEP")
    assert isinstance(query, Query)
    with pytest.raises(RunError, match=r"overflow|not fit|out of range") as refusal:
        query.to_arrow()
    assert refusal.value.hint


@pytest.mark.parametrize("policy", ["FAIL", "KEEP"])
def test_decimals_that_overflow_in_a_row(session: Session, policy: str) -> None:
    values = [decimal.Decimal("1.50"), decimal.Decimal("9" * 16 + ".99")]
    table = pa.table({"t": [1, 2], "d": pa.array(values, pa.decimal128(18, 2))})
    session.create_stream("s", table, ordered_by="t")
    query = session.sql(f"SELECT CAST(d AS DECIMAL(5, 2)) AS d FROM s ON BAD ROW {policy}")
    assert isinstance(query, Query)
    if policy == "KEEP":
        assert query.to_arrow().to_pylist() == [{"d": values[0]}]
        assert query.progress().bad == 1
    else:
        with pytest.raises(RunError, match="offset 1"):
            query.to_arrow()


def test_the_ends_of_the_calendar(session: Session) -> None:
    texts = ["0001-01-01 00:00:00", "1582-10-15 00:00:00", "1899-12-31 23:59:59"]
    texts += ["1900-03-01 00:00:00", "2000-02-29 12:00:00", "2100-03-01 00:00:00"]
    texts += ["9999-12-31 23:59:59.999999"]
    times = [datetime.datetime.fromisoformat(t + "+00:00") for t in texts]
    session.create_stream("s", pa.table({"ts": times}), ordered_by="ts")
    query = "SELECT window_start AS w, count(*) AS n FROM s [RANGE 1 HOUR SLIDE 1 HOUR]"
    found = rows(session, query)[:-1]  # the last window ends after the year 9999
    starts = [t.replace(minute=0, second=0, microsecond=0) for t in times[:-1]]
    assert [(r["w"], r["n"]) for r in found] == [(t, 1) for t in starts]
    days = "SELECT day(ts) AS d, month(ts) AS m FROM s WHERE month(ts) = 2 OR day(ts) = 29"
    assert rows(session, days) == [{"d": 29, "m": 2}]


def test_a_clock_that_goes_backwards_for_good(session: Session) -> None:
    """The clock is set back: every row is late, and counted, until time has caught up."""
    times = [*range(100), *range(20, 130)]
    session.create_stream("s", pa.table({"t": times}), ordered_by="t", slack=5)
    query = session.sql("SELECT count(*) AS n, window_end AS e FROM s [RANGE 10 SLIDE 10]")
    assert isinstance(query, Query)
    found = {r["e"]: r["n"] for r in query.to_arrow().to_pylist()}
    assert found == {**dict.fromkeys(range(10, 91, 10), 10), 100: 20, 110: 10, 120: 10, 130: 10}
    late = {(r["kind"]): r for r in query.late().to_pylist()}
    assert (late["rows"]["count"], late["pairs"]["count"]) == (74, 70)
    assert late["rows"]["max_lateness"] == 74
    assert late["rows"]["suggested_slack"] == 79


MANY = 60_000
STATE = {
    "window": f"SELECT k, count(*) AS n FROM s [RANGE {MANY} SLIDE {MANY}] GROUP BY k",
    "many windows": "SELECT count(*) AS n, k FROM s [RANGE 50000 SLIDE 10] GROUP BY k",
    "session": "SELECT k, count(*) AS n FROM s [SESSION 100000] GROUP BY k",
    "values": f"SELECT median(k) AS n FROM s [RANGE {MANY} SLIDE {MANY}]",
    "relation": "SELECT k, count(*) AS n FROM s [RANGE 50000] GROUP BY k",
    "rows": "SELECT DISTINCT k FROM s [ROWS 50000]",
    "sort": "SELECT k, t FROM s ORDER BY k",
}


@pytest.mark.sampled
@pytest.mark.parametrize("what", STATE)
def test_state_beyond_its_limit_is_an_error(session: Session, what: str) -> None:
    session.set("morsel_rows", 1024)
    session.set("max_state", "1 MB")
    session.create_stream("s", pa.table({"t": range(MANY), "k": range(MANY)}), ordered_by="t")
    query = session.sql(STATE[what])
    assert isinstance(query, Query)
    with pytest.raises(RunError, match="over max_state = 1,000,000") as refusal:
        query.to_arrow()
    assert "SET max_state" in (refusal.value.hint or "")
    if what != "session":  # later queries still run
        session.set("max_state", "1 GB")
        assert session.sql("SELECT k FROM s WHERE k < 3").to_arrow().num_rows == 3
