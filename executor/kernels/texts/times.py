"""Dates and times as texts: what CAST, ``to_timestamp`` and ``date_format`` read and write
(``planner.interpret.datetime_patterns``). All times are UTC.

All kernels leave rows alone whose status is not VALID. Those that read set the status of a row
whose text does not convert to FAILED.
"""

from __future__ import annotations

from typing import Any

from numba import int64, uint64

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.calendar import (
    day_of,
    from_civil,
    month_length,
    month_of,
    year_of,
)
from cql.executor.kernels.texts.digits import digits_of, is_digit, put
from cql.executor.kernels.texts.numbers import NUMBERS, SPANS, sign, trimmed
from cql.executor.kernels.texts.search import BYTES, FLAGS, PLACES
from cql.executor.kernels.texts.status import FAILED, ODD, VALID

#: Bytes that the text of a date, of a timestamp and of a year take at most.
DATE_WIDTH, TIMESTAMP_WIDTH, YEAR_WIDTH = 16, 32, 8
_SECOND = 1_000_000
_DAY = 86_400 * _SECOND
#: Every time of the days within this distance of 1970-01-01 has an int64.
_DAYS = 106_751_990


# -- texts to values -----------------------------------------------------------------------------


@njit(nogil=True, error_model="numpy")
def _number(data: Any, at: int, end: int, most: int) -> tuple[int, int]:
    """(the number of up to ``most`` digits at ``at``, the place behind it)."""
    value, stop = 0, min(end, at + most)
    while at < stop and is_digit(data[at]):
        value = value * 10 + int64(data[at]) - 48
        at += 1
    return value, at


@njit(nogil=True, error_model="numpy")
def _micros(fraction: int, digits: int) -> int:
    """The microseconds of up to 9 digits of a second's fraction, cut down."""
    for _ in range(digits, 9):
        fraction *= 10
    return fraction // 1000


@njit(nogil=True, error_model="numpy")
def _scan_date(data: Any, at: int, end: int) -> tuple[bool, int, int]:
    """(whether a date lies at ``at``, its days since the epoch, the place behind it). Only a date
    with a day has something behind it."""
    negative, at = sign(data, at, end)
    month = day = 1
    year, behind = _number(data, at, end, 7)
    good = behind - at >= 4
    if good and behind < end:
        at = behind + 1
        month, behind = _number(data, at, end, 2)
        good = data[at - 1] == 45 and behind > at
        if good and behind < end:
            at = behind + 1
            day, behind = _number(data, at, end, 2)
            good = data[at - 1] == 45 and behind > at
    if negative:
        year = -year
    if not good or month < 1 or month > 12 or day < 1 or day > month_length(year, month):
        return False, 0, behind
    return True, from_civil(year, month, day), behind


@njit(f"void({BYTES}, {SPANS}, {SPANS}, int64[::1], {FLAGS})", nogil=True, cache=True)
def read_dates(data: Any, starts: Any, ends: Any, out: Any, status: Any) -> None:
    """Days since the epoch, in the range of int32."""
    for i in range(starts.size):
        if status[i] != VALID:
            continue
        at, end = trimmed(data, starts[i], ends[i])
        good, days, at = _scan_date(data, at, end)
        if at < end:
            good = good and (data[at] == 32 or data[at] == 84)
        if good and -(1 << 31) <= days < 1 << 31:
            out[i] = days
        else:
            status[i] = FAILED


@njit(nogil=True, error_model="numpy")
def _scan_zone(data: Any, at: int, end: int) -> tuple[bool, int]:
    """(whether the bytes are a zone, its offset in microseconds east of UTC)."""
    if end - at == 1 and data[at] == 90:
        return True, 0
    if end - at >= 3:
        a, b, c = data[at], data[at + 1], data[at + 2]
        if (a == 85 and b == 84 and c == 67) or (a == 71 and b == 77 and c == 84):  # UTC, GMT
            at += 3
            if at == end:
                return True, 0
    west, first = sign(data, at, end)
    if first == at:
        return False, 0
    at = first
    hours, behind = _number(data, at, end, 2)
    if behind == at + 2 and end - at == 3 and is_digit(data[at + 2]):  # +530
        hours, behind = _number(data, at, end, 1)
    good, minutes = behind > at and hours <= 18, 0
    if behind < end:
        at = behind + int64(data[behind] == 58)
        minutes, behind = _number(data, at, end, 2)
        good = good and behind == at + 2 and behind == end and minutes <= 59
    offset = (hours * 60 + minutes) * 60 * _SECOND
    return good, -offset if west else offset


@njit(nogil=True, error_model="numpy")
def _scan_clock(data: Any, at: int, end: int) -> tuple[bool, int, int]:
    """(whether the bytes are a time of the day, that in microseconds, the offset of its zone)."""
    hour, behind = _number(data, at, end, 2)
    if behind == at or behind >= end or data[behind] != 58:
        return False, 0, 0
    at = behind + 1
    minute, behind = _number(data, at, end, 2)
    good = behind > at
    second = part = 0
    if behind < end and data[behind] == 58:
        at = behind + 1
        second, behind = _number(data, at, end, 2)
        good = good and behind > at
        if behind < end and data[behind] == 46:
            at = behind + 1
            part, behind = _number(data, at, end, 9)
            part = _micros(part, behind - at)
    offset = 0
    if behind < end:
        at = behind + int64(data[behind] == 32)
        zone, offset = _scan_zone(data, at, end)
        good = good and zone
    good = good and hour <= 23 and minute <= 59 and second <= 59
    return good, ((hour * 60 + minute) * 60 + second) * _SECOND + part, offset


@njit(f"void({BYTES}, {SPANS}, {SPANS}, boolean, int64[::1], {FLAGS})", nogil=True, cache=True)
def read_timestamps(data: Any, starts: Any, ends: Any, zoned: bool, out: Any, status: Any) -> None:
    """Microseconds since the epoch. The zone in a text counts only if ``zoned``. The first and the
    last days that int64 holds are ODD, as all beyond."""
    for i in range(starts.size):
        if status[i] != VALID:
            continue
        at, end = trimmed(data, starts[i], ends[i])
        good, days, at = _scan_date(data, at, end)
        clock = offset = 0
        if good and at < end:
            good = data[at] == 32 or data[at] == 84
            if good:
                good, clock, offset = _scan_clock(data, at + 1, end)
        if not good:
            status[i] = FAILED
        elif -_DAYS < days < _DAYS:
            out[i] = days * _DAY + clock - (offset if zoned else 0)
        else:
            status[i] = ODD


@njit(
    f"void({BYTES}, {SPANS}, {SPANS}, {SPANS}, {SPANS}, {SPANS}, {BYTES}, {SPANS}, int64[::1],"
    f" {FLAGS})",
    nogil=True,
    cache=True,
)
def read_pattern(
    data: Any,
    starts: Any,
    ends: Any,
    fields: Any,
    least: Any,
    most: Any,
    literals: Any,
    names: Any,
    out: Any,
    status: Any,
) -> None:
    """Microseconds since the epoch, of texts by a pattern of ``to_timestamp``. A field is the byte
    of its letter and the least and the largest number of its digits, or 0 and (``most``) the number
    of its bytes, which ``literals`` has one after the other. The field L is the name of a month:
    three letters of ``names``, as a number. The field X is a zone and the last one."""
    for i in range(starts.size):
        if status[i] != VALID:
            continue
        at, end = starts[i], ends[i]
        year, month, day = 1970, 1, 1
        hour = minute = second = part = offset = literal = 0
        good = True
        for k in range(fields.size):
            field = fields[k]
            if field == 0:
                good = good and end - at >= most[k]
                for _ in range(most[k]):
                    good = good and data[at] == literals[literal]
                    literal += 1
                    at += 1
            elif field == 76:  # L
                good = good and end - at >= 3
                if good:
                    name = int64(data[at]) << 16 | int64(data[at + 1]) << 8 | int64(data[at + 2])
                    month = 1
                    while month <= 12 and names[month - 1] != name:
                        month += 1
                    at += 3
            elif field == 88:  # X
                utc = end - at == 1 and data[at] == 90
                digits = end - at >= 3 and is_digit(data[at + 1]) and is_digit(data[at + 2])
                zone, offset = _scan_zone(data, at, end)
                signed = digits and (data[at] == 43 or data[at] == 45)
                good = good and zone and (utc or (signed and end - at != 4))
                at = end
            else:
                value, behind = _number(data, at, end, most[k])
                good = good and behind - at >= least[k]
                if field == 121:  # y
                    year = value
                elif field == 117:  # u: two digits
                    year = 2000 + value
                elif field == 77:  # M
                    month = value
                elif field == 100:  # d
                    day = value
                elif field == 72:  # H
                    hour = value
                elif field == 109:  # m
                    minute = value
                elif field == 115:  # s
                    second = value
                else:  # S
                    part = _micros(value, behind - at)
                at = behind
            if not good:
                break
        good = good and at == end and hour <= 23 and minute <= 59 and second <= 59
        good = good and 1 <= month <= 12 and day >= 1
        if not good or day > month_length(year, month):
            status[i] = FAILED
            continue
        days = from_civil(year, month, day)
        if -_DAYS < days < _DAYS:
            clock = ((hour * 60 + minute) * 60 + second) * _SECOND + part
            out[i] = days * _DAY + clock - offset
        else:
            status[i] = ODD


# -- values to texts -----------------------------------------------------------------------------


@njit(nogil=True, error_model="numpy")
def _put_year(out: Any, at: int, year: int, width: int) -> int:
    """Writes a year with at least ``width`` digits. It has a sign if it is negative, or above 9999
    where ``width`` is 4 or more."""
    if year < 0 or (year > 9999 and width >= 4):
        out[at] = 45 if year < 0 else 43
        at += 1
    size = uint64(abs(year))
    return put(out, at, size, max(width, digits_of(size)))


@njit(nogil=True, error_model="numpy")
def _put_date(out: Any, at: int, days: int) -> int:
    at = _put_year(out, at, year_of(days), 4)
    out[at] = out[at + 3] = 45
    put(out, at + 1, uint64(month_of(days)), 2)
    return put(out, at + 4, uint64(day_of(days)), 2)


@njit(f"void({NUMBERS}, {FLAGS}, {PLACES}, {PLACES}, {FLAGS})", nogil=True, cache=True)
def write_dates(days: Any, out: Any, starts: Any, ends: Any, status: Any) -> None:
    """``out`` has DATE_WIDTH bytes for each row; the days are in the range of int32."""
    at = 0
    for i in range(days.size):
        starts[i] = at
        if status[i] == VALID:
            at = _put_date(out, at, days[i])
        ends[i] = at


@njit(f"void({NUMBERS}, {FLAGS}, {PLACES}, {PLACES}, {FLAGS})", nogil=True, cache=True)
def write_timestamps(micros: Any, out: Any, starts: Any, ends: Any, status: Any) -> None:
    """``out`` has TIMESTAMP_WIDTH bytes for each row."""
    at = 0
    for i in range(micros.size):
        starts[i] = at
        if status[i] == VALID:
            days = micros[i] // _DAY
            rest = micros[i] - days * _DAY
            seconds = rest // _SECOND
            part = rest - seconds * _SECOND
            at = _put_date(out, at, days)
            out[at] = 32
            out[at + 3] = out[at + 6] = 58
            put(out, at + 1, uint64(seconds // 3600), 2)
            put(out, at + 4, uint64(seconds // 60 % 60), 2)
            at = put(out, at + 7, uint64(seconds % 60), 2)
            if part > 0:
                out[at] = 46
                at = put(out, at + 1, uint64(part), 6)
                while out[at - 1] == 48:
                    at -= 1
        ends[i] = at


@njit(
    f"void({NUMBERS}, {SPANS}, {SPANS}, {BYTES}, {FLAGS}, {PLACES}, {PLACES}, {FLAGS})",
    nogil=True,
    cache=True,
)
def write_pattern(
    micros: Any,
    fields: Any,
    widths: Any,
    literals: Any,
    out: Any,
    starts: Any,
    ends: Any,
    status: Any,
) -> None:
    """Writes the fields of a pattern of ``date_format``: the byte of its letter and its width, or
    0 and the number of its bytes, which ``literals`` has one after the other. ``out`` has for each
    row the literals' bytes, YEAR_WIDTH for a year, and 2 or the width for another letter."""
    at = 0
    for i in range(micros.size):
        starts[i] = at
        if status[i] == VALID:
            days = micros[i] // _DAY
            rest = micros[i] - days * _DAY
            literal = 0
            for k in range(fields.size):
                field, width = fields[k], widths[k]
                if field == 0:
                    for _ in range(width):
                        out[at] = literals[literal]
                        literal += 1
                        at += 1
                    continue
                value = int64(0)
                if field == 121:  # y
                    if width != 2:
                        at = _put_year(out, at, year_of(days), width)
                        continue
                    value = year_of(days) % 100
                elif field == 77:  # M
                    value = month_of(days)
                elif field == 100:  # d
                    value = day_of(days)
                elif field == 72:  # H
                    value = rest // (3600 * _SECOND)
                elif field == 109:  # m
                    value = rest // (60 * _SECOND) % 60
                elif field == 115:  # s
                    value = rest // _SECOND % 60
                else:  # S
                    value = rest % _SECOND * 1000
                    for _ in range(width, 9):
                        value //= 10
                size = uint64(value)
                at = put(out, at, size, max(width, digits_of(size)))
        ends[i] = at


@njit(f"void({NUMBERS}, {PLACES}, {FLAGS})", nogil=True, cache=True)
def months(days: Any, out: Any, status: Any) -> None:
    """The month from 1 to 12."""
    for i in range(days.size):
        if status[i] == VALID:
            out[i] = month_of(days[i])
