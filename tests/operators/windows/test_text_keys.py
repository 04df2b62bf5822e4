"""GROUP BY the text of a time closes its groups like GROUP BY the time itself."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import cql
from cql import Query, Session
from cql.errors import PlanError
from cql.planner.interpret.datetime_patterns import date_format, unit_of
from cql.planner.interpret.time import days_from_civil, trunc_micros
from tests.support.runtimes import RUNTIMES, Settings, apply, named

ROWS = 600
START = dt.datetime(2024, 1, 30, 22, tzinfo=dt.UTC)


def bids(bounded: bool = True) -> Iterator[dict[str, Any]]:
    """A bid every 37 minutes; some come up to five hours late, and the slack is two hours. Unless
    ``bounded``, up to 300,000 rows with one time, ten days later, follow."""
    r = random.Random(5)
    for i in range(ROWS):
        late = dt.timedelta(hours=r.choice((0, 0, 0, 1, 2, 5)))
        ts = START + i * dt.timedelta(minutes=37) - late
        yield {"ts": ts, "channel": f"c{i % 2}", "bidder": i * i % 7, "price": 37 * i % 11_000}
    for _ in range(0 if bounded else 300_000):
        yield {"ts": START + dt.timedelta(days=26), "channel": "", "bidder": 0, "price": 0}
    assert bounded, "groups of endless input have not left"


@pytest.fixture
def session() -> Iterator[Session]:
    with cql.connect(spark=False) as made:
        for name, bounded in (("bid", True), ("endless", False)):
            made.create_stream(
                name,
                lambda bounded=bounded: bids(bounded),
                ordered_by="ts",
                slack="2 hours",
                max_advance="100 days",
                bounded=bounded,
            )
        yield made


def outcome(query: Any) -> tuple[Counter[tuple[Any, ...]], int]:
    assert isinstance(query, Query)
    rows = query.to_arrow().to_pylist()
    return Counter(tuple(row.values()) for row in rows), sum(query.late()["count"].to_pylist())


DAY = "date_format(ts, 'yyyy-MM-dd')"
PLAIN = "SELECT {} AS g, channel, count(*) AS n FROM bid GROUP BY g, channel"


@pytest.mark.sampled
@pytest.mark.parametrize("runtime", RUNTIMES, ids=named)
def test_the_same_rows_are_late_and_counted(session: Session, runtime: Settings) -> None:
    apply(session, runtime, {"morsel_rows": 16})
    counted, late = outcome(session.sql(PLAIN.format("date_trunc('day', ts)")))
    expected = Counter({(f"{g:%Y-%m-%d}", c, n): k for (g, c, n), k in counted.items()})
    assert late > 5
    assert len(expected) > 20
    assert outcome(session.sql(PLAIN.format(DAY))) == (expected, late)


CLOSED = {
    "several counts": f"""SELECT channel, {DAY} AS day, max(date_format(ts, 'HH:mm')) AS minute,
        count(*) FILTER (WHERE price < 10000) AS low, count(DISTINCT bidder) AS bidders FROM {{}}
        GROUP BY channel, {DAY}""",
    "having": f"SELECT count(*) AS n FROM {{}} GROUP BY {DAY} HAVING max({DAY}) > '2024-02-02'",
    "distinct": f"SELECT DISTINCT {DAY} AS day, channel FROM {{}}",
    "alias in a subquery": f"""SELECT concat('d', day) AS d, count(*) AS n FROM (SELECT {DAY} AS
        day, bidder FROM {{}} WHERE price > 30) AS b WHERE bidder < 5 GROUP BY day""",
    "text of a date": "SELECT CAST(to_date(ts) AS STRING) AS d, count(*) AS n FROM {} GROUP BY 1",
    "date": "SELECT to_date(ts) AS d, count(*) AS n FROM {} GROUP BY to_date(ts)",
    "start of a text": """SELECT substr(CAST(ts AS STRING), 1, 10) AS d, count(*) AS n FROM {}
        GROUP BY 1""",
    "parts": """SELECT year(ts) AS y, month(ts) AS m, day(ts) AS d, channel, count(*) AS n FROM {}
        GROUP BY year(ts), month(ts), day(ts), channel""",
    "hours": "SELECT date_format(ts, 'dd.MM.yyyy HH') AS d, count(*) AS n FROM {} GROUP BY 1",
}  # fmt: skip


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("text", CLOSED.values(), ids=CLOSED)
def test_groups_leave_endless_input(session: Session, text: str) -> None:
    """Every group leaves except the last row's group, whose end the watermark never reaches."""
    expected, _ = outcome(session.sql(text.format("bid")))
    query = session.sql(text.format("endless"))
    assert isinstance(query, Query)
    found: Counter[tuple[Any, ...]] = Counter()
    for batch in query.batches():
        found.update(tuple(row.values()) for row in batch.to_pylist())
        if found.total() >= expected.total():
            break
    query.stop()
    extra = found - expected
    assert not expected - found
    assert extra.total() <= 1  # DISTINCT also outputs the last row


ALIKE = {
    "month": ["year(ts), month(ts)", "month(ts), extract(YEAR FROM ts), quarter(ts)",
              "left(CAST(ts AS STRING), 7)", "substring(CAST(to_date(ts) AS STRING), 1, 8)"],
    "day": ["year(ts), dayofyear(ts)", "day(ts), month(ts), year(ts)",
            "left(CAST(ts AS STRING), 11)"],
    "hour": ["year(ts), month(ts), day(ts), hour(ts)", "substr(CAST(ts AS STRING), 1, 13)"],
}  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("unit", ALIKE)
def test_parts_and_starts_close_as_their_unit_does(session: Session, unit: str) -> None:
    text = "SELECT min(ts) AS first, count(*) AS n FROM bid GROUP BY {}"
    expected = outcome(session.sql(text.format(f"date_trunc('{unit}', ts)")))
    assert len(expected[0]) > 1
    assert expected[1] > 0
    for keys in ALIKE[unit]:
        assert outcome(session.sql(text.format(keys))) == expected, keys


def test_years_of_more_or_fewer_digits(session: Session) -> None:
    """Texts of different years can begin with the same characters."""
    years = (-12, -11, -1, 0, 1, 999, 9999, 10_000, 10_001, 12_345)
    micros = [days_from_civil(year, 1, 1) * 86_400_000_000 for year in years]
    session.create_stream(
        "odd", pa.table({"ts": pa.array(micros, pa.timestamp("us", "UTC"))}), ordered_by="ts"
    )
    for length in (4, 5, 7, 10):
        key = f"left(CAST(ts AS STRING), {length})"
        texts = session.sql(f"SELECT {key} AS g FROM odd").to_arrow()["g"].to_pylist()
        found = session.sql(f"SELECT {key} AS g, count(*) AS n FROM odd GROUP BY {key}").to_arrow()
        assert {r["g"]: r["n"] for r in found.to_pylist()} == Counter(texts)
        assert found.num_rows == len(set(texts))


@pytest.mark.parametrize(
    "key",
    [
        "date_format(ts, 'HH:mm')",
        "date_format(ts, 'yyyyMd')",
        "hour(ts)",
        "left(CAST(ts AS STRING), 3)",
        "substr(CAST(ts AS STRING), 6, 5)",
    ],
)
def test_texts_that_come_again_close_nothing(session: Session, key: str) -> None:
    assert sum(n for _, _, n in outcome(session.sql(PLAIN.format(key)))[0]) == ROWS
    with pytest.raises(PlanError, match="an aggregate without a window over unbounded input"):
        session.sql(PLAIN.format(key).replace("bid", "endless"))


UNITS = {
    "yyyy": "year", "yyyy-Q": "quarter", "yyyy-MM": "month", "MMM yyyy": "month",
    "yyyy-MM-dd": "day", "dd.MM.yyyy": "day", "d.M.yyyy": "day", "yyyyMMdd": "day",
    "yyyy/DDD": "day", "E, d MMM yyyy": "day", "yyyy-MM-dd HH": "hour", "yyyy-MM-dd hh a": "hour",
    "MM/dd/yyyy HH:mm": "minute", "yyyyMMddHHmmss": "second", "yyyy-MM-dd HH:mm:ssXXX": "second",
    "yyyy-MM-dd'T'HH:mm:ss.SSS": "millisecond", "yyyy-MM-dd HH:mm:ss.SSSSSS": "microsecond",
    "yy-MM-dd": None, "HH:mm": None, "yyyyMd": None, "dd": None, "yyyy-MM-dd HH:mm:ss.SS": None,
    "yyyy-MM-dd hh": None, "yyyy-MM-dd a": None, "yyyy-dd": None, "MMMMyyyy": None, "Dyyyy": None,
    "d1yyyy": None, "'year'": None,
}  # fmt: skip


@pytest.mark.parametrize("pattern", UNITS)
def test_the_unit_that_a_pattern_tells(pattern: str) -> None:
    """Two times have the same text if and only if they lie in the same unit."""
    unit, r = unit_of(pattern), random.Random(pattern)
    assert unit == UNITS[pattern]
    if unit is None:
        return
    known: dict[str, int] = {}
    for _ in range(800):
        year = r.choice((2024, 2011, 201, 20, 2, 11, 1, -1, -11, 12_011, r.randint(1, 9999)))
        days = days_from_civil(year, r.choice((1, 2, 11, 12)), r.choice((1, 2, 11, 12, 21)))
        clock = [r.choice((0, 1, 11, 12)) * n for n in (3_600_000_000, 60_000_000, 1_000_000)]
        micros = days * 86_400_000_000 + sum(clock) + r.choice((0, 1, 1_000, 123_456))
        start = trunc_micros(unit, micros)
        assert known.setdefault(date_format(micros, pattern), start) == start
        assert date_format(micros, pattern) == date_format(start, pattern)
