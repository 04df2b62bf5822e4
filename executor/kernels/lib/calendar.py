"""Civil calendar arithmetic on int64 days and microseconds since 1970-01-01 (UTC, proleptic
Gregorian). The results are exact for the years 1 to 9999; divisions round down before the epoch
too. No function raises or allocates.

The algorithms are Howard Hinnant's. A year starts in March, so that the leap day is its last day.
"""

from __future__ import annotations

from numba import int64

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.intrinsics import add_flagged, mul_flagged

_DAY = 86_400_000_000


@njit(nogil=True, cache=True, error_model="numpy")
def _march(days: int) -> tuple[int, int, int]:
    """(year that starts in March, day of that year from 0, month of that year from 0)."""
    z = days + 719_468
    era = z // 146_097
    of_era = z - era * 146_097
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    return era * 400 + year, of_year, (5 * of_year + 2) // 153


@njit(nogil=True, cache=True, error_model="numpy")
def from_civil(year: int, month: int, day: int) -> int:
    """Days since the epoch of a date; ``day`` may lie outside the month."""
    y = year - int64(month <= 2)
    era = y // 400
    of_era = y - era * 400
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


@njit(nogil=True, cache=True, error_model="numpy")
def year_of(days: int) -> int:
    year, _, index = _march(days)
    return year + int64(index >= 10)


@njit(nogil=True, cache=True, error_model="numpy")
def month_of(days: int) -> int:
    _, _, index = _march(days)
    return index + 3 if index < 10 else index - 9


@njit(nogil=True, cache=True, error_model="numpy")
def day_of(days: int) -> int:
    _, of_year, index = _march(days)
    return of_year - (153 * index + 2) // 5 + 1


@njit(nogil=True, cache=True, error_model="numpy")
def quarter_of(days: int) -> int:
    return (month_of(days) + 2) // 3


@njit(nogil=True, cache=True, error_model="numpy")
def weekday_of(days: int) -> int:
    """The weekday from 0 (Monday) to 6."""
    return (days + 3) % 7


@njit(nogil=True, cache=True, error_model="numpy")
def dayofweek_of(days: int) -> int:
    """The weekday from 1 (Sunday) to 7."""
    return (days + 4) % 7 + 1


@njit(nogil=True, cache=True, error_model="numpy")
def dayofyear_of(days: int) -> int:
    return days - from_civil(year_of(days), 1, 1) + 1


@njit(nogil=True, cache=True, error_model="numpy")
def week_of(days: int) -> int:
    """The ISO week of the year, from 1."""
    return (dayofyear_of(days - (days + 3) % 7 + 3) - 1) // 7 + 1


@njit(nogil=True, cache=True, error_model="numpy")
def month_length(year: int, month: int) -> int:
    if month == 2:
        leap = (year % 4 == 0) and (year % 100 != 0 or year % 400 == 0)
        return 28 + int64(leap)
    return 30 + int64((month + (month >> 3)) & 1)


@njit(nogil=True, cache=True, error_model="numpy")
def add_months_days(days: int, months: int) -> int:
    """The same day of the month ``months`` months later, or the last day of that month."""
    count = year_of(days) * 12 + month_of(days) - 1 + months
    year, month = count // 12, count % 12 + 1
    day = min(day_of(days), month_length(year, month))
    return from_civil(year, month, day)


@njit(nogil=True, cache=True, error_model="numpy")
def add_months_micros(micros: int, months: int) -> tuple[int, bool]:
    days = micros // _DAY
    moved = add_months_days(days, months)
    clock = micros - days * _DAY
    if moved < 0:  # count from the next midnight: the midnight of the first day has no int64
        moved += 1
        clock -= _DAY
    start, bad = mul_flagged(moved, int64(_DAY))
    at, bad_too = add_flagged(start, clock)
    return at, bad or bad_too


@njit(nogil=True, cache=True, error_model="numpy")
def whole_months(start: int, end: int) -> int:
    """Whole months between two timestamps, truncated towards zero (``planner.interpret.time``)."""
    first, last = start // _DAY, end // _DAY
    clock, other = start - first * _DAY, end - last * _DAY
    if last > first and other < clock:
        last -= 1
    elif last < first and other > clock:
        last += 1
    months = (year_of(last) - year_of(first)) * 12 + month_of(last) - month_of(first)
    difference = months * 32 + day_of(last) - day_of(first)
    return difference // 32 if difference >= 0 else -(-difference // 32)


@njit(nogil=True, cache=True, error_model="numpy")
def last_day_of(days: int) -> int:
    year, month = year_of(days), month_of(days)
    return from_civil(year, month, month_length(year, month))


@njit(nogil=True, cache=True, error_model="numpy")
def trunc_months(days: int, size: int) -> int:
    """The first day of the month (``size`` 1), quarter (3) or year (12)."""
    first = (month_of(days) - 1) // size * size + 1
    return from_civil(year_of(days), first, 1)


@njit(nogil=True, cache=True, error_model="numpy")
def trunc_week(days: int) -> int:
    return days - (days + 3) % 7


@njit(nogil=True, cache=True, error_model="numpy")
def make_date_days(year: int, month: int, day: int) -> tuple[int, bool]:
    """(days since the epoch, whether the date does not exist)."""
    bad = year < 1 or year > 9999 or month < 1 or month > 12 or day < 1
    bad = bad or day > month_length(year, month)
    return from_civil(year, month, day), bad
