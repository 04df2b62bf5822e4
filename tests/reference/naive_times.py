"""The reference's functions of dates and times, all in UTC."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any

from cql.base.types import Kind
from cql.planner.nodes.expr import Call
from tests.reference.naive_registry import function
from tests.reference.naive_values import (
    DAY,
    SECOND,
    BadRowError,
    civil,
    day_number,
    iso_week,
    stored,
)


def _days(call: Call, value: int) -> int:
    return value if call.args[0].type.kind is Kind.DATE else value // DAY


def _clock(call: Call, value: int) -> int:
    """Microseconds since midnight."""
    return 0 if call.args[0].type.kind is Kind.DATE else value % DAY


@function("year")
def _year(call: Call, value: Any) -> Any:
    return civil(_days(call, value))[0]


@function("month")
def _month(call: Call, value: Any) -> Any:
    return civil(_days(call, value))[1]


@function("day")
def _day(call: Call, value: Any) -> Any:
    return civil(_days(call, value))[2]


@function("quarter")
def _quarter(call: Call, value: Any) -> Any:
    return (civil(_days(call, value))[1] + 2) // 3


@function("dayofyear")
def _dayofyear(call: Call, value: Any) -> Any:
    days = _days(call, value)
    return days - day_number(civil(days)[0], 1, 1) + 1


@function("dayofweek")
def _dayofweek(call: Call, value: Any) -> Any:
    """1 is Sunday; day 0 was a Thursday."""
    return (_days(call, value) + 4) % 7 + 1


@function("weekday")
def _weekday(call: Call, value: Any) -> Any:
    """0 is Monday."""
    return (_days(call, value) + 3) % 7


@function("week")
def _week(call: Call, value: Any) -> Any:
    return iso_week(_days(call, value))


@function("hour")
def _hour(call: Call, value: Any) -> Any:
    return _clock(call, value) // (3600 * SECOND)


@function("minute")
def _minute(call: Call, value: Any) -> Any:
    return _clock(call, value) // (60 * SECOND) % 60


@function("second")
def _second(call: Call, value: Any) -> Any:
    return _clock(call, value) // SECOND % 60


_STEPS = {
    "microsecond": 1,
    "millisecond": 1000,
    "second": SECOND,
    "minute": 60 * SECOND,
    "hour": 3600 * SECOND,
}


def truncated(value: int, unit: str) -> int:
    """The start, in microseconds, of the unit of time that holds a timestamp."""
    if unit in _STEPS:
        return value - value % _STEPS[unit]
    days = value // DAY
    year, month, _ = civil(days)
    match unit:
        case "day":
            start = days
        case "week":
            start = days - (days + 3) % 7
        case "month":
            start = day_number(year, month, 1)
        case "quarter":
            start = day_number(year, (month - 1) // 3 * 3 + 1, 1)
        case "year":
            start = day_number(year, 1, 1)
        case _:
            raise AssertionError(f"no unit {unit}")
    return start * DAY


@function("date_trunc")
def _date_trunc(call: Call, unit: Any, value: Any) -> Any:
    dated = call.args[1].type.kind is Kind.DATE
    start = truncated(value * DAY if dated else value, str(unit).lower())
    return stored(start // DAY if call.type.kind is Kind.DATE else start, call.type)


@function("trunc")
def _trunc(call: Call, days: Any, unit: Any) -> Any:
    return truncated(days * DAY, str(unit).lower()) // DAY


@function("millisecond")
def _millisecond(call: Call, value: Any) -> Any:
    return value // 1000 % 1000


@function("unix_seconds", "unix_millis", "unix_micros")
def _unix(call: Call, value: Any) -> Any:
    return value // {"unix_seconds": SECOND, "unix_millis": 1000, "unix_micros": 1}[call.fn]


@function("timestamp_seconds", "timestamp_millis", "timestamp_micros")
def _of_unix(call: Call, value: Any) -> Any:
    units = {"timestamp_seconds": SECOND, "timestamp_millis": 1000, "timestamp_micros": 1}
    return stored(value * units[call.fn], call.type)


@function("add_months", "timestamp_add_months")
def _add_months(call: Call, value: Any, months: Any) -> Any:
    """The same day of another month, or the last day of that month if it is shorter."""
    days, clock = (value, 0) if call.type.kind is Kind.DATE else divmod(value, DAY)
    year, month, day = civil(days)
    year, month = divmod(year * 12 + month - 1 + months, 12)
    moved = min(day_number(year, month + 1, 1) + day - 1, _last_day_of(year, month + 1))
    return stored(moved if call.type.kind is Kind.DATE else moved * DAY + clock, call.type)


@function("whole_months")
def _whole_months(call: Call, start: Any, end: Any) -> Any:
    """The whole months between two times, by the algorithm of java.time.

    The end moves one day towards the start if the clock of the end has not reached the start's
    clock. The months are then counted as if each had 32 days."""
    (day, clock), (last, other) = divmod(start, DAY), divmod(end, DAY)
    if last > day and other < clock:
        last -= 1
    if last < day and other > clock:
        last += 1
    packed = [(y * 12 + m - 1) * 32 + d for y, m, d in (civil(day), civil(last))]
    apart = packed[1] - packed[0]
    return abs(apart) // 32 * (1 if apart > 0 else -1)


def _last_day_of(year: int, month: int) -> int:
    return day_number(year + month // 12, month % 12 + 1, 1) - 1


@function("last_day")
def _last_day(call: Call, days: Any) -> Any:
    year, month, _ = civil(days)
    return _last_day_of(year, month)


@function("date_add")
def _date_add(call: Call, value: Any, days: Any) -> Any:
    return stored(value + days, call.type)


@function("date_sub")
def _date_sub(call: Call, value: Any, days: Any) -> Any:
    return stored(value - days, call.type)


@function("datediff")
def _datediff(call: Call, end: Any, start: Any) -> Any:
    return stored(end - start, call.type)


@function("dayname")
def _dayname(call: Call, days: Any) -> Any:
    return ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"][(days + 3) % 7]


@function("monthname")
def _monthname(call: Call, days: Any) -> Any:
    names = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec"
    return names.split()[civil(days)[1] - 1]


@function("make_date")
def _make_date(call: Call, year: Any, month: Any, day: Any) -> Any:
    if not 1 <= year <= 9999:
        raise BadRowError("no such year")
    try:
        return day_number(year, month, day)
    except ValueError as error:
        raise BadRowError("no such day") from error


#: Runs of pattern letters that the query files use, as ``strptime`` has them.
_LETTERS = {"yyyy": "%Y", "MMM": "%b", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S", "Z": "%z"}
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@function("to_timestamp")
def _to_timestamp(call: Call, text: Any, pattern: Any) -> Any:
    """A text by a pattern; without a zone it is UTC."""
    format = re.sub(r"([A-Za-z])\1*", lambda run: _LETTERS[run[0]], pattern)
    try:
        read = dt.datetime.strptime(text, format)
    except ValueError as error:
        raise BadRowError("no such time") from error
    aware = read if read.tzinfo is not None else read.replace(tzinfo=dt.UTC)
    return (aware - _EPOCH) // dt.timedelta(microseconds=1)
