"""Dates and timestamps as text: the ISO forms that CAST reads, and Java's pattern letters.

All times are UTC. A pattern is compiled once into fields; EvaluationError names a letter outside
the documented set.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from cql.planner.interpret.error import EvaluationError
from cql.planner.interpret.time import (
    DAY,
    SECOND,
    civil_from_days,
    dayofyear,
    days_from_civil,
    month_length,
    quarter,
    weekday,
)

DAY_NAMES = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTH_NAMES = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_DATE = r"(?P<y>[+-]?[0-9]{4,7})(?:-(?P<m>[0-9]{1,2})(?:-(?P<d>[0-9]{1,2})%s)?)?\Z"
_READ_DATE = re.compile(_DATE % r"(?:[ T].*)?", re.DOTALL)
_CLOCK = (
    r"(?:[ T](?P<h>[0-9]{1,2}):(?P<min>[0-9]{1,2})(?::(?P<s>[0-9]{1,2})(?:\.(?P<f>[0-9]{0,9}))?)?"
    r" ?(?P<zone>Z|UTC|GMT|(?:UTC|GMT)?[+-][0-9]{1,2}(?::?[0-9]{2})?)?)?"
)
_READ_TIMESTAMP = re.compile(_DATE % _CLOCK)
_ZONE = re.compile(r"(?:UTC|GMT)?([+-])([0-9]{1,2})(?::?([0-9]{2}))?\Z")


def civil(year: int, month: int, day: int) -> int | None:
    """The days since 1970-01-01 of a date; None for a date that does not exist."""
    if 1 <= month <= 12 and 1 <= day <= month_length(year, month):
        return days_from_civil(year, month, day)
    return None


def read_date(text: str) -> int | None:
    """``yyyy[-m[-d[T…]]]`` as days since 1970-01-01; None for any other text."""
    found = _READ_DATE.match(text)
    if found is None:
        return None
    days = civil(int(found["y"]), int(found["m"] or 1), int(found["d"] or 1))
    return days if days is not None and -(1 << 31) <= days < 1 << 31 else None


def _offset(zone: str | None) -> int | None:
    """The offset of a zone in microseconds east of UTC; None for any other text."""
    if zone in (None, "Z", "UTC", "GMT"):
        return 0
    found = _ZONE.match(zone)
    if found is None or int(found[2]) > 18 or int(found[3] or 0) > 59:
        return None
    sign = -1 if found[1] == "-" else 1
    return sign * (int(found[2]) * 3600 + int(found[3] or 0) * 60) * SECOND


def read_timestamp(text: str, *, zoned: bool) -> int | None:
    """An ISO timestamp as microseconds since 1970-01-01; None for any other text. Further digits
    are cut off; the zone in the text counts only if ``zoned``."""
    found = _READ_TIMESTAMP.match(text)
    if found is None:
        return None
    days = civil(int(found["y"]), int(found["m"] or 1), int(found["d"] or 1))
    offset = _offset(found["zone"])
    clock = clock_micros(int(found["h"] or 0), int(found["min"] or 0), int(found["s"] or 0))
    if days is None or offset is None or clock is None:
        return None
    micros = days * DAY + clock + int((found["f"] or "")[:6].ljust(6, "0"))
    return _stored(micros - (offset if zoned else 0))


def _stored(micros: int) -> int | None:
    return micros if -(1 << 63) <= micros < 1 << 63 else None


def clock_micros(hour: int, minute: int, second: int) -> int | None:
    if hour > 23 or minute > 59 or second > 59:
        return None
    return ((hour * 60 + minute) * 60 + second) * SECOND


def write_date(days: int) -> str:
    year, month, day = civil_from_days(days)
    return f"{_year(year, 4)}-{month:02}-{day:02}"


def _year(year: int, width: int) -> str:
    sign = "-" if year < 0 else "+" if width >= 4 and year > 9999 else ""
    return sign + str(abs(year)).zfill(width)


def write_timestamp(micros: int) -> str:
    days, rest = divmod(micros, DAY)
    seconds, part = divmod(rest, SECOND)
    text = f"{write_date(days)} {seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{text}.{part:06}".rstrip("0") if part else text


# -- patterns ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PatternField:
    """A field of a pattern: ``letter`` repeated ``width`` times, or, if ``letter`` is empty, the
    literal ``text``."""

    letter: str
    width: int
    text: str = ""


MAX_PATTERN = 1000
_LETTERS = {  # letter: the widths that exist
    "y": (1, 2, 3, 4, 5, 6),
    "u": (1, 4),
    "M": (1, 2, 3, 4),
    "L": (1, 2, 3, 4),
    "d": (1, 2),
    "D": (1, 2, 3),
    "E": (1, 2, 3, 4),
    "Q": (1, 2),
    "q": (1, 2),
    "a": (1,),
    "H": (1, 2),
    "h": (1, 2),
    "m": (1, 2),
    "s": (1, 2),
    "S": tuple(range(1, 10)),
    "X": (1, 2, 3),
    "Z": (1, 2, 3),
}


@lru_cache(maxsize=512)
def compile_pattern(pattern: str) -> tuple[PatternField, ...]:
    """The fields of a pattern. Raises EvaluationError for an unknown letter, an open quote and a
    pattern that is too long."""
    if len(pattern) > MAX_PATTERN:
        raise EvaluationError("value", f"the pattern has more than {MAX_PATTERN} characters")
    fields: list[PatternField] = []
    at = 0
    while at < len(pattern):
        c = pattern[at]
        if c == "'":
            end = pattern.find("'", at + 1)
            if end < 0:
                raise EvaluationError("value", f"the pattern {pattern!r} has an open quote")
            fields.append(PatternField("", 0, pattern[at + 1 : end] or "'"))
            at = end + 1
            continue
        width = len(pattern[at:]) - len(pattern[at:].lstrip(c))
        if c.isascii() and c.isalpha():
            if width not in _LETTERS.get(c, ()):
                known = "y M d D E Q a H h m s S X Z"
                shown = c * min(width, 12)
                raise EvaluationError(
                    "value", f"{shown} is no pattern of a date or time (letters: {known})"
                )
            fields.append(PatternField(c, width))
        else:
            fields.append(PatternField("", 0, c * width))
        at += width
    return tuple(fields)


_UNITS = (
    "year",
    "quarter",
    "month",
    "day",
    "hour",
    "minute",
    "second",
    "millisecond",
    "microsecond",
)
#: (unit, coarser unit, groups of letters): if the text determines the coarser unit, any one of the
#: groups determines the unit.
_MAKES = (
    ("quarter", "year", ("Q", "q")),
    ("month", "year", ("M", "L")),
    ("day", "month", ("d",)),
    ("day", "year", ("D",)),
    ("hour", "day", ("H", "ha")),
    ("minute", "hour", ("m",)),
    ("second", "minute", ("s",)),
    ("millisecond", "second", ("3",)),
    ("microsecond", "second", ("6",)),
)
#: The unit within which the text of a letter does not change.
_OF = {
    **{letter: unit for unit, _, groups in _MAKES for group in groups for letter in group},
    "y": "year",
    "u": "year",
    "E": "day",
    "1": "millisecond",
    "4": "microsecond",
    "X": "year",
    "Z": "year",
    "": "year",
}


def unit_of(pattern: str) -> str | None:
    """The unit for which ``date_format`` with this pattern is one-to-one with ``date_trunc``: two
    times have the same text exactly if they are in the same unit. None if there is no such unit:
    ``dd`` alone is the same in every month, ``d.M`` lacks the year."""
    fields = compile_pattern(pattern)
    written = {_letter(f) for f in fields}
    if not any(f.letter in ("y", "u") and f.width != 2 for f in fields) or not _distinguishes(
        fields
    ):
        return None
    known = {"year"}
    for unit, needed, groups in _MAKES:
        if needed in known and any(written.issuperset(group) for group in groups):
            known.add(unit)
    finest = max(map(_UNITS.index, known))
    return None if any(_UNITS.index(_OF[c]) > finest for c in written) else _UNITS[finest]


def _letter(field: PatternField) -> str:
    """The letter of ``field``. A fraction has a digit instead: "6" for microseconds, "3" for
    milliseconds, "4" and "1" for fewer digits than microseconds and milliseconds."""
    if field.letter != "S":
        return field.letter
    return next(str(n) for n in (6, 4, 3, 1) if field.width >= n)


def _distinguishes(fields: tuple[PatternField, ...]) -> bool:
    """Whether a text shows where each of its fields ends. A run of fields between two separators
    may have one field of varying width, if all its other fields are numbers of fixed width; the
    separator behind such a run is neither a digit nor a letter."""
    run: list[PatternField] = []
    for field in (*fields, PatternField("", 0, ".")):
        if field.letter:
            run.append(field)
            continue
        loose = [f for f in run if _varies(f)]
        numbers = all(_is_number(f) for f in run)
        if loose and (len(loose) > 1 or field.text[0].isalnum() or (len(run) > 1 and not numbers)):
            return False
        run = []
    return True


def _is_number(field: PatternField) -> bool:
    return not (field.letter in "EaXZ" or (field.letter in "ML" and field.width >= 3))


def _varies(field: PatternField) -> bool:
    """Whether the texts of ``field`` differ in length."""
    if field.letter in "yu":
        return field.width != 2
    if not _is_number(field):
        return field.letter in "MLE" and field.width == 4
    return field.width < {"D": 3, "Q": 1, "q": 1, "S": 1}.get(field.letter, 2)


def date_format(micros: int, pattern: str) -> str:
    days, rest = divmod(micros, DAY)
    return "".join(f.text or _written(f, days, rest) for f in compile_pattern(pattern))


def _written(field: PatternField, days: int, rest: int) -> str:
    year, month, day = civil_from_days(days)
    hour, width = rest // (3600 * SECOND), field.width
    match field.letter:
        case "y" | "u":
            return f"{year % 100:02}" if width == 2 else _year(year, width)
        case "M" | "L" if width >= 3:
            name = MONTH_NAMES[month - 1]
            return name if width == 4 else name[:3]
        case "E":
            name = DAY_NAMES[weekday(days)]
            return name if width == 4 else name[:3]
        case "a":
            return "PM" if hour >= 12 else "AM"
        case "S":
            return f"{rest % SECOND:06}000"[:width]
        case "X":
            return "Z"
        case "Z":
            return "+0000"
    number = {
        "M": month,
        "L": month,
        "d": day,
        "D": dayofyear(days),
        "Q": quarter(days),
        "q": quarter(days),
        "H": hour,
        "h": (hour + 11) % 12 + 1,
        "m": rest // (60 * SECOND) % 60,
        "s": rest // SECOND % 60,
    }[field.letter]
    return str(number).zfill(width)


def _reader(field: PatternField, followed: bool) -> str:
    """The regular expression for one field; a number with another field right behind it
    (``followed``) has exactly its width."""
    match field.letter, field.width:
        case "", _:
            return re.escape(field.text)
        case (("M" | "L"), width) if width >= 3:
            return "(" + "|".join(n if width == 4 else n[:3] for n in MONTH_NAMES) + ")"
        case "E", width:
            return "(" + "|".join(n if width == 4 else n[:3] for n in DAY_NAMES) + ")"
        case "a", _:
            return "([AaPp][Mm])"
        case (("X" | "Z"), _):
            return "(Z|[+-][0-9]{2}(?::?[0-9]{2})?)"
        case (("Q" | "q" | "D"), _):
            raise EvaluationError("value", f"{field.letter} can be written, not read")
        case letter, width:
            if width > 1 or followed:
                return f"([0-9]{{{width}}})"
            return "([0-9]{1,7})" if letter in "yu" else "([0-9]{1,2})"


@lru_cache(maxsize=512)
def _compiled_reader(pattern: str) -> tuple[re.Pattern[str], tuple[str, ...]]:
    fields = compile_pattern(pattern)
    follows = [k + 1 < len(fields) and fields[k + 1].letter != "" for k in range(len(fields))]
    text = "".join(_reader(f, n) for f, n in zip(fields, follows, strict=True))
    letters = tuple(
        f.letter + ("2" if f.letter in "yu" and f.width == 2 else "") for f in fields if f.letter
    )
    return re.compile(text + r"\Z"), letters


def check_pattern(pattern: str, *, reading: bool) -> None:
    """Raises EvaluationError if the pattern is invalid, or (``reading``) cannot read text."""
    if reading:
        _compiled_reader(pattern)
    else:
        compile_pattern(pattern)


def _parse(text: str, pattern: str) -> int | None:
    expression, letters = _compiled_reader(pattern)
    found = expression.match(text)
    if found is None:
        return None
    part = dict(zip(letters, found.groups(), strict=True))
    month = part.get("M", part.get("L", "1"))
    if not month.isdigit():
        month = str(next(k for k, n in enumerate(MONTH_NAMES, 1) if n.startswith(month)))
    year = part.get("y", part.get("u", "1970"))
    short = part.get("y2", part.get("u2"))
    days = civil(2000 + int(short) if short else int(year), int(month), int(part.get("d", "1")))
    hour = int(part.get("H", "0"))
    if "h" in part:
        if not 1 <= int(part["h"]) <= 12:
            return None
        hour = int(part["h"]) % 12 + (12 if part.get("a", "am").lower() == "pm" else 0)
    clock = clock_micros(hour, int(part.get("m", "0")), int(part.get("s", "0")))
    offset = _offset(part.get("X", part.get("Z")))
    if days is None or clock is None or offset is None:
        return None
    fraction = int(part.get("S", "0")[:6].ljust(6, "0"))
    return _stored(days * DAY + clock + fraction - offset)


def parse_timestamp(text: str, pattern: str) -> int:
    micros = _parse(text, pattern)
    if micros is None:
        raise EvaluationError("cast", f"the text {text[:40]!r} does not match {pattern!r}")
    return micros


def parse_date(text: str, pattern: str) -> int:
    return parse_timestamp(text, pattern) // DAY
