"""Calendar functions over storage values: days and microseconds since 1970-01-01, UTC, in the
proleptic Gregorian calendar. Times before 1970 round down. All values are plain integers: years
outside 1-9999 are no special case.
"""

from __future__ import annotations

from collections.abc import Callable

from cql.planner.interpret.error import EvaluationError

SECOND = 1_000_000
DAY = 86_400 * SECOND
MONTHS = {"year": 12, "quarter": 3, "month": 1}
MICROS = {
    "day": DAY,
    "hour": 3600 * SECOND,
    "minute": 60 * SECOND,
    "second": SECOND,
    "millisecond": 1000,
    "microsecond": 1,
}


def days_from_civil(year: int, month: int, day: int) -> int:
    """Days since the epoch; ``day`` may lie outside the month."""
    year -= month <= 2
    era, of_era = divmod(year, 400)
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def civil_from_days(days: int) -> tuple[int, int, int]:
    """(year, month, day) of a number of days since the epoch."""
    era, of_era = divmod(days + 719_468, 146_097)
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    index = (5 * of_year + 2) // 153
    month = (index + 2) % 12 + 1
    return era * 400 + year + (month <= 2), month, of_year - (153 * index + 2) // 5 + 1


def month_length(year: int, month: int) -> int:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in (4, 6, 9, 11) else 31


def quarter(days: int) -> int:
    return (civil_from_days(days)[1] + 2) // 3


def weekday(days: int) -> int:
    """The day of the week; 0 is Monday."""
    return (days + 3) % 7


def dayofyear(days: int) -> int:
    return days - days_from_civil(civil_from_days(days)[0], 1, 1) + 1


def week(days: int) -> int:
    """ISO week: the week belongs to the year of its Thursday."""
    thursday = days - weekday(days) + 3
    return (dayofyear(thursday) - 1) // 7 + 1


def add_months(days: int, months: int) -> int:
    """The same day ``months`` later, or the last day of the resulting month if it is shorter."""
    year, month, day = civil_from_days(days)
    year, month = divmod(year * 12 + month - 1 + months, 12)
    return days_from_civil(year, month + 1, min(day, month_length(year, month + 1)))


def whole_months(start: int, end: int) -> int:
    """The number of whole months from one timestamp to another, rounded towards zero. As java.time,
    the function first drops an incomplete day at ``end``, and then compares the days of the
    month."""
    (first, clock), (last, other) = divmod(start, DAY), divmod(end, DAY)
    last += (last < first and other > clock) - (last > first and other < clock)
    a, b = civil_from_days(first), civil_from_days(last)
    difference = ((b[0] - a[0]) * 12 + b[1] - a[1]) * 32 + b[2] - a[2]
    return difference // 32 if difference >= 0 else -(-difference // 32)


def last_day(days: int) -> int:
    year, month, _ = civil_from_days(days)
    return days_from_civil(year, month, month_length(year, month))


def trunc_days(days: int, unit: str) -> int:
    if unit == "week":
        return days - weekday(days)
    if unit == "day":
        return days
    year, month, _ = civil_from_days(days)
    size = MONTHS[unit]
    return days_from_civil(year, (month - 1) // size * size + 1, 1)


def trunc_micros(unit: str, micros: int) -> int:
    if unit in MICROS:
        return micros // MICROS[unit] * MICROS[unit]
    return trunc_days(micros // DAY, unit) * DAY


def make_date(year: int, month: int, day: int) -> int:
    fits = 1 <= year <= 9999 and 1 <= month <= 12 and 1 <= day <= month_length(year, month)
    if not fits:
        raise EvaluationError("value", "make_date: there is no such date")
    return days_from_civil(year, month, day)


#: Functions whose results always fit their types.
NEVER_FAIL: dict[str, Callable[..., int]] = {
    "year": lambda d: civil_from_days(d)[0],
    "quarter": quarter,
    "month": lambda d: civil_from_days(d)[1],
    "day": lambda d: civil_from_days(d)[2],
    "dayofweek": lambda d: (d + 4) % 7 + 1,
    "weekday": weekday,
    "dayofyear": dayofyear,
    "week": week,
    "hour": lambda us: us // (3600 * SECOND) % 24,
    "minute": lambda us: us // (60 * SECOND) % 60,
    "second": lambda us: us // SECOND % 60,
    "millisecond": lambda us: us // 1000 % 1000,
    "date_trunc": trunc_micros,
    "trunc": trunc_days,
    "whole_months": whole_months,
    "unix_seconds": lambda us: us // SECOND,
    "unix_millis": lambda us: us // 1000,
    "unix_micros": lambda us: us,
    "timestamp_micros": lambda n: n,
}
#: Functions that fail, or whose results do not fit their types, for some arguments.
MAY_FAIL: dict[str, Callable[..., int]] = {
    "date_add": lambda d, n: d + n,
    "date_sub": lambda d, n: d - n,
    "datediff": lambda end, start: end - start,
    "add_months": add_months,
    "timestamp_add_months": lambda us, n: add_months(us // DAY, n) * DAY + us % DAY,
    "last_day": last_day,
    "timestamp_seconds": lambda n: n * SECOND,
    "timestamp_millis": lambda n: n * 1000,
    "make_date": make_date,
}
