"""Random windows of days of a time zone."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

from cql.base.zones import DAY
from tests.support.fuzz.random_cases import MORSELS, Case, runtime_settings
from tests.support.fuzz.random_data import Stream, random_stream, ticks
from tests.support.fuzz.random_shapes import Shape

#: Two ordinary zones; two whose clocks go back over midnight; one that left out a day; one that
#: shifts by half an hour; two without clock changes near ``DAYS``.
ZONES = (
    "Europe/Prague",
    "America/New_York",
    "America/Sao_Paulo",
    "America/St_Johns",
    "Pacific/Apia",
    "Australia/Lord_Howe",
    "Asia/Kathmandu",
    "UTC",
)


HOUR = 3_600_000_000


#: The clock changes in most of the zones near one of these days.
DAYS = (date(2024, 3, 10), date(2024, 3, 31), date(2006, 10, 29), date(2011, 12, 30))


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def instant(*parts: int) -> int:
    return (datetime(*parts, tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)


WINDOWS = (
    "RANGE 1 DAY SLIDE 1 DAY",
    "RANGE 1 DAY SLIDE 1 DAY OFFSET 6 HOURS",
    "RANGE 3 DAYS SLIDE 1 DAY",
    "RANGE 7 DAYS SLIDE 2 DAYS OFFSET 90 MINUTES",
    "RANGE 1 DAY SLIDE 2 DAYS",
    "RANGE 6 DAYS CUMULATE 1 DAY",
)


def stretched(rng: random.Random) -> Stream:
    """A random stream whose ticks are hours, around a change of the clock."""
    made = random_stream(rng, "a")
    near = instant(*rng.choice(DAYS).timetuple()[:3])
    scale = rng.choice((1, 2, 5)) * HOUR // ticks("timestamp")
    first = min((r[0] for r in made.rows if r[0] is not None), default=0)

    def moved(row: tuple[object, ...]) -> tuple[object, ...]:
        time = row[0]
        if time is None:
            return row
        assert isinstance(time, int)
        hours, edge = divmod(time - first + ticks("timestamp") // 2, ticks("timestamp"))
        edge -= ticks("timestamp") // 2
        return (near - 2 * DAY + hours % 2_000 * scale * ticks("timestamp") + edge, *row[1:])

    return replace(made, rows=tuple(moved(r) for r in made.rows), slack=made.slack * scale)


def zone_case(window: str, zone: str, rng: random.Random) -> Case:
    calls = "count(*) AS n, sum(q) AS total, window_start, window_end"
    text = f"SELECT k, {calls} FROM a [{window}, TIME ZONE '{zone}', WA t] GROUP BY k"
    settings = {
        **runtime_settings(rng),
        "morsel_rows": rng.choice([m for m in MORSELS if m]),
        "window_operator": rng.choice(("auto", "wid", "panes")),
    }
    return Case("zones", Shape(-1, text, ("a",), ()), (stretched(rng),), {}, True, settings)
