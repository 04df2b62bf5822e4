"""Values in storage form, for the reference: ranges, order, calendar, text.

Storage form: booleans ``bool``, integers ``int``, floats ``float``, decimals ``int`` scaled by
``10 ** scale``, dates ``int`` days, timestamps and intervals ``int`` microseconds, strings ``str``,
binaries ``bytes``, NULL ``None``. This module does not use numpy: it is slow and obvious, and
independent of the engine.
"""

from __future__ import annotations

import datetime
import decimal
import math
import re
import struct
from fractions import Fraction

from cql.base.types import DataType, Kind

BITS = {Kind.TINYINT: 8, Kind.SMALLINT: 16, Kind.INT: 32, Kind.BIGINT: 64}
SECOND = 1_000_000
DAY = 86_400 * SECOND
_CYCLE_DAYS = 146_097  # the Gregorian calendar repeats every 400 years
_EPOCH = datetime.date(1970, 1, 1).toordinal()


class BadRowError(Exception):
    """The evaluation of a row failed (ANSI); ``args[0]`` is the reason."""


def fits(value: int, bits: int) -> bool:
    return -(1 << (bits - 1)) <= value < (1 << (bits - 1))


def round_half_up(value: Fraction) -> int:
    """Rounds to the nearest integer, halves away from zero (SQL's rounding, not Python's)."""
    sign = -1 if value < 0 else 1
    return sign * math.floor(abs(value) + Fraction(1, 2))


def truncate(value: Fraction) -> int:
    return math.floor(value) if value >= 0 else math.ceil(value)


def to_float32(value: float) -> float:
    if math.isnan(value) or math.isinf(value):
        return value
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def number(value: int | float, kind: DataType) -> int | float | Fraction:
    """The number of a value in storage form."""
    if kind.kind is Kind.DECIMAL:
        assert isinstance(value, int)
        return Fraction(value, 10**kind.scale)
    return value


def stored(value: int | float | Fraction, kind: DataType) -> int | float:
    """A number in the storage form of ``kind``; BadRowError if it does not fit (ANSI overflow).

    >>> from cql.base.types import TINYINT, decimal
    >>> stored(127, TINYINT)
    127
    >>> stored(Fraction(5, 1000), decimal(5, 2))
    1
    """
    match kind.kind:
        case Kind.DOUBLE:
            return _as_float(value)
        case Kind.FLOAT:
            return to_float32(_as_float(value))
        case Kind.DECIMAL:
            scaled = round_half_up(Fraction(value) * 10**kind.scale)
            if abs(scaled) >= 10**kind.precision:
                raise BadRowError(f"overflow of {kind}")
            return scaled
        case Kind.TINYINT | Kind.SMALLINT | Kind.INT | Kind.BIGINT:
            bits = BITS[kind.kind]
        case Kind.DATE:
            bits = 32
        case _:
            bits = 64
    if isinstance(value, float) and not math.isfinite(value):
        raise BadRowError(f"overflow of {kind}")
    whole = int(value)
    if not fits(whole, bits):
        raise BadRowError(f"overflow of {kind}")
    return whole


def _as_float(value: int | float | Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.copysign(math.inf, value)


def order_key(value: object) -> tuple[int, object]:
    """The sort key of non-NULL values of one type: NaN is above all numbers and equal to itself,
    -0.0 = 0.0, strings sort by their UTF-8 bytes.

    >>> sorted([float("nan"), math.inf, -1.0], key=order_key)
    [-1.0, inf, nan]
    """
    if isinstance(value, float) and math.isnan(value):
        return (1, 0.0)
    if isinstance(value, str):
        return (0, value.encode("utf-8"))
    if isinstance(value, float):
        return (0, value + 0.0)
    if isinstance(value, list | tuple):
        return (0, tuple(map(group_key, value)))
    return (0, value)


def group_key(value: object) -> tuple[int, object] | None:
    """The key of a group: equal exactly for values that SQL groups together; NULLs are one
    group."""
    return None if value is None else order_key(value)


# The proleptic Gregorian calendar, for any int64 -------------------------------------------------


def civil(days: int) -> tuple[int, int, int]:
    """(year, month, day) of a day number; the year may be zero or negative.

    >>> civil(0), civil(-1)
    ((1970, 1, 1), (1969, 12, 31))
    """
    cycles, rest = divmod(days, _CYCLE_DAYS)
    date = datetime.date.fromordinal(_EPOCH + rest)
    return date.year + 400 * cycles, date.month, date.day


def day_number(year: int, month: int, day: int) -> int:
    """The inverse of ``civil``; ValueError for an invalid date."""
    cycles, rest = divmod(year - 1970, 400)
    return datetime.date(1970 + rest, month, day).toordinal() - _EPOCH + cycles * _CYCLE_DAYS


def iso_week(days: int) -> int:
    rest = days % _CYCLE_DAYS
    return datetime.date.fromordinal(_EPOCH + rest).isocalendar().week


# Text ---------------------------------------------------------------------------------------------


def date_text(days: int) -> str:
    year, month, day = civil(days)
    sign = "" if 0 <= year <= 9999 else ("+" if year > 0 else "-")
    return f"{sign}{abs(year):04d}-{month:02d}-{day:02d}"


def timestamp_text(micros: int) -> str:
    """The text of Spark's cast in UTC, without trailing zeros in the fraction.

    >>> timestamp_text(1_500_000)
    '1970-01-01 00:00:01.5'
    """
    days, rest = divmod(micros, DAY)
    seconds, fraction = divmod(rest, SECOND)
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    tail = f".{fraction:06d}".rstrip("0") if fraction else ""
    return f"{date_text(days)} {clock}{tail}"


def float_text(value: float, *, single: bool = False) -> str:
    """Java's ``Double.toString``: plain from 1e-3 to 1e7, else ``d.dddEn``.

    >>> float_text(1e10), float_text(0.001), float_text(-5.0)
    ('1.0E10', '0.001', '-5.0')
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    if value == 0:
        return sign + "0.0"
    exact = decimal.Decimal(repr(_shortest(abs(value)) if single else abs(value)))
    text = "".join(str(d) for d in exact.as_tuple().digits).rstrip("0")
    power = exact.adjusted()
    if -3 <= power < 0:
        return f"{sign}0.{'0' * (-power - 1)}{text}"
    if 0 <= power < 7:
        whole = text[: power + 1].ljust(power + 1, "0")
        return f"{sign}{whole}.{text[power + 1 :] or '0'}"
    return f"{sign}{text[0]}.{text[1:] or '0'}E{power}"


def _shortest(value: float) -> float:
    """The shortest decimal text of a float32, as a double."""
    candidates = (float(f"{value:.{digits}g}") for digits in range(1, 18))
    return next(c for c in candidates if to_float32(c) == value)


def interval_text(micros: int) -> str:
    """
    >>> interval_text(-90_500_000)
    "INTERVAL '-0 00:01:30.5' DAY TO SECOND"
    """
    days = abs(micros) // DAY
    clock = timestamp_text(abs(micros) % DAY).partition(" ")[2]
    return f"INTERVAL '{'-' if micros < 0 else ''}{days} {clock}' DAY TO SECOND"


def decimal_text(value: int, scale: int) -> str:
    sign, digits = ("-" if value < 0 else ""), str(abs(value)).rjust(scale + 1, "0")
    return sign + (f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits)


_DATE = re.compile(r"([+-]?\d{4,7})(?:-(\d{1,2})(?:-(\d{1,2}))?)?")
_TIME = re.compile(r"(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{0,9}))?)?")
_ZONE = re.compile(r"(?:Z|UTC|([+-])(\d{1,2}):?(\d{2})?)")


def parse_date(text: str) -> int | None:
    """The day number of ``yyyy[-m[-d]]``; ignores the text after a ``T`` or a space."""
    found = _DATE.match(text.strip(" \t\r\n"))
    rest = "" if found is None else text.strip(" \t\r\n")[found.end() :]
    if found is None or (rest and rest[0] not in "T "):
        return None
    if rest and found.group(3) is None:
        return None
    try:
        return day_number(int(found.group(1)), int(found.group(2) or 1), int(found.group(3) or 1))
    except ValueError:
        return None


def parse_timestamp(text: str) -> int | None:
    """The microseconds UTC of a date with an optional time and an optional zone offset."""
    text = text.strip(" \t\r\n")
    found = _DATE.match(text)
    if found is None:
        return None
    day, rest = parse_date(found.group()), text[found.end() :]
    if day is None or not rest:
        return None if day is None else day * DAY
    clock = _TIME.match(rest, 1) if rest[0] in "T " and found.group(3) else None
    if clock is None:
        return None
    hour, minute, second = (int(clock.group(i) or 0) for i in (1, 2, 3))
    zone = rest[clock.end() :].strip(" ")
    offset = _zone_micros(zone) if zone else 0
    if offset is None or hour > 23 or minute > 59 or second > 59:
        return None
    fraction = int((clock.group(4) or "0")[:6].ljust(6, "0"))
    return day * DAY + (hour * 3600 + minute * 60 + second) * SECOND + fraction - offset


def _zone_micros(zone: str) -> int | None:
    found = _ZONE.fullmatch(zone)
    if found is None:
        return None
    if found.group(1) is None:
        return 0
    minutes = int(found.group(2)) * 60 + int(found.group(3) or 0)
    return (minutes if found.group(1) == "+" else -minutes) * 60 * SECOND
