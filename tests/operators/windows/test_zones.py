"""Windows of whole days in a time zone: a day has 23 or 25 hours when the clock changes."""

from __future__ import annotations

import random
import zoneinfo
from datetime import UTC, date, datetime, timedelta

import duckdb
import pyarrow as pa
import pytest

import cql
from cql.base.window import Window, WindowKind
from cql.base.zones import DAY, days_of
from cql.errors import CqlError
from tests.reference.naive_windows import day_start
from tests.support.fuzz.random_cases import check
from tests.support.fuzz.random_zones import _EPOCH, DAYS, HOUR, WINDOWS, ZONES, instant, zone_case

pytestmark = pytest.mark.usefixtures("shared_kernels")


@pytest.mark.parametrize("zone", ZONES)
def test_days_follow_the_local_date(zone: str) -> None:
    """The day of an instant is its local date, or one day later where the clock goes back to the
    previous date."""
    info, days, rng = zoneinfo.ZoneInfo(zone), days_of(zone), random.Random(zone)
    assert list(days.firsts) == sorted(days.firsts)
    for _ in range(2_000):
        second = rng.randint(-3_700_000_000, 7_000_000_000)
        if len(days.instants) > 1 and rng.random() < 0.5:  # near a clock change
            second = rng.choice(days.instants[1:]) // 1_000_000 + rng.randint(-90_000, 90_000)
        local = (_EPOCH + timedelta(seconds=second)).astimezone(info).date()
        day = days.day(1_000_000 * second)
        assert (date(1970, 1, 1) + timedelta(days=day) - local).days in (0, 1)
        assert days.start(day) <= 1_000_000 * second < days.start(day + 1)


@pytest.mark.parametrize("shift", [0, 6 * HOUR, -HOUR // 2])
@pytest.mark.parametrize("zone", ZONES)
def test_days_begin_where_a_search_finds_them(zone: str, shift: int) -> None:
    window = Window(WindowKind.SLIDING, 0, range=DAY, slide=DAY, offset=shift, zone=zone)
    days = days_of(zone, shift)
    for near in DAYS:
        number = (near - date(1970, 1, 1)).days
        for day in range(number - 2, number + 3):
            assert days.start(day) == day_start(window, day)


def test_zones_know_only_names() -> None:
    for name in ("Europe/Atlantis", "Europe", "../etc/passwd", "/etc/localtime", "", "\0"):
        with pytest.raises(ValueError, match="no time zone is called"):
            days_of(name)


@pytest.mark.sampled
@pytest.mark.parametrize(("window", "zone"), list(zip(WINDOWS, ZONES, strict=False)))
def test_random_cases(window: str, zone: str, seed: int, full: bool) -> None:
    """Results equal the reference: out of order, with late rows, under every operator."""
    found = set()
    for number in range(100 if full else 3):
        found.add(check(zone_case(window, zone, random.Random(f"{window} {seed} {number}"))))
    assert "same" in found


def test_days_of_one_zone_within_those_of_another() -> None:
    """31 March ends at 22:00 UTC in Prague; the Tokyo day that contains this instant ends at 15:00
    UTC."""
    table = pa.table({"t": pa.array([instant(2024, 3, 31, 21)], pa.timestamp("us", "UTC"))})
    day = "RANGE 1 DAY SLIDE 1 DAY"
    inner = f"SELECT count(*) AS n, window_time FROM s [{day} TIME ZONE 'Europe/Prague']"
    text = f"SELECT sum(n) AS n, window_end FROM ({inner}) AS i [{day} TIME ZONE 'Asia/Tokyo']"
    with cql.connect() as session:
        session.create_stream("s", table, ordered_by="t")
        (row,) = session.sql(text).to_arrow().to_pylist()
    assert row == {"n": 1, "window_end": datetime(2024, 4, 1, 15, tzinfo=UTC)}


@pytest.mark.parametrize("zone", ["Europe/Prague", "America/New_York", "Asia/Kathmandu"])
def test_equals_duckdb(zone: str) -> None:
    rng = random.Random(zone)
    start = instant(2023, 12, 20)
    times = sorted(start + rng.randrange(400 * 24 * 60) * 60_000_000 for _ in range(4_000))
    table = pa.table(
        {
            "t": pa.array(times, pa.timestamp("us", "UTC")),
            "k": [rng.choice("abc") for _ in times],
        }
    )
    with cql.connect() as session:
        session.create_stream("s", table, ordered_by="t")
        mine = session.sql(
            "SELECT k, count(*) AS n, window_start AS a, window_end AS b"
            f" FROM s [RANGE 1 DAY SLIDE 1 DAY TIME ZONE '{zone}'] GROUP BY k"
        ).to_arrow()
    with duckdb.connect() as connection:
        connection.register("s", table)
        connection.execute(f"SET TimeZone = '{zone}'")
        theirs = connection.sql(
            """SELECT k, count(*) AS n, epoch_us(date_trunc('day', t)) AS a,
                      epoch_us(date_trunc('day', t) + INTERVAL 1 DAY) AS b
               FROM s GROUP BY ALL"""
        ).to_arrow_table()
    rows = zip(*(mine[c].cast(pa.int64()).to_pylist() for c in "nab"), strict=True)
    got = sorted(zip(mine["k"].to_pylist(), rows, strict=True))
    rows = zip(*(theirs[c].to_pylist() for c in "nab"), strict=True)
    assert got == sorted(zip(theirs["k"].to_pylist(), rows, strict=True))
    assert {b - a for _, (_, a, b) in got} == (
        {24 * HOUR} if zone == "Asia/Kathmandu" else {23 * HOUR, 24 * HOUR, 25 * HOUR}
    )


@pytest.mark.parametrize(
    ("window", "message"),
    [
        ("RANGE 1 DAY SLIDE 1 HOUR TIME ZONE 'Europe/Prague', WA t", "SLIDE must be whole days"),
        ("RANGE 1 HOUR SLIDE 1 HOUR TIME ZONE 'Europe/Prague', WA t", "RANGE must be whole days"),
        ("RANGE 1 DAY TIME ZONE 'Europe/Prague', WA t", "TIME ZONE needs SLIDE or CUMULATE"),
        ("ROWS 3 TIME ZONE 'Europe/Prague', WA t", "TIME ZONE needs RANGE"),
        ("RANGE 1 DAY SLIDE 1 DAY TIME ZONE 'Europe/Prag', WA t", "did you mean Europe/Prague"),
        ("RANGE 1 DAY SLIDE 1 DAY TIME ZONE Europe, WA t", "TIME ZONE needs a text"),
        ("RANGE 1 SLIDE 1 TIME ZONE 'Europe/Prague', WA i", "only a timestamp tells when it was"),
    ],
)
def test_bad_windows_are_refused(window: str, message: str) -> None:
    table = pa.table({"t": pa.array([0], pa.timestamp("us", "UTC")), "i": [0]})
    with cql.connect() as session:
        name = "i" if "WA i" in window else "t"
        session.create_stream("s", table, ordered_by=name)
        with pytest.raises(CqlError) as caught:
            session.sql(f"SELECT count(*) AS n FROM s [{window}]").to_arrow()
    assert message in str(caught.value)
    assert caught.value.position is not None
