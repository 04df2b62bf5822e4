"""The text form of a slack: a duration, a number of event-time units or a number of rows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

_UNITS = {
    "microsecond": 1,
    "us": 1,
    "millisecond": 1_000,
    "ms": 1_000,
    "second": 1_000_000,
    "sec": 1_000_000,
    "s": 1_000_000,
    "minute": 60_000_000,
    "min": 60_000_000,
    "hour": 3_600_000_000,
    "h": 3_600_000_000,
    "day": 86_400_000_000,
}
_TEXT = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?)\s*([a-z]*)")
#: Largest slack in rows: the operator keeps one event time per row of slack.
MOST_ROWS = 100_000_000


@dataclass(frozen=True, slots=True)
class Slack:
    """How late a row may come and still count as in order.

    Exactly one is set: ``microseconds``, ``units`` of an integer event time, or ``rows`` that may
    overtake a row."""

    text: str
    microseconds: int | None = None
    units: int | None = None
    rows: int | None = None


def parse_slack(text: str) -> Slack | None:
    """Parses ``5 seconds``, ``1000 rows`` or ``500`` (units of an integer event time).

    Returns None for any other text.

    >>> parse_slack("1.5 Minutes").microseconds
    90000000
    >>> parse_slack("1000 rows").rows
    1000
    >>> parse_slack("soon")
    """
    found = _TEXT.fullmatch(text.strip().lower())
    if found is None:
        return None
    value, word = Fraction(found[1]), found[2]
    plain = " ".join(text.lower().split())
    if word in ("", "row", "rows"):
        if value.denominator != 1 or (word and value > MOST_ROWS):
            return None
        whole = value.numerator
        return Slack(plain, rows=whole) if word else Slack(plain, units=whole)
    length = _UNITS.get(word) or _UNITS.get(word.removesuffix("s"))
    if length is None or (value * length).denominator != 1:
        return None
    return Slack(plain, microseconds=(value * length).numerator)
