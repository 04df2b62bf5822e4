"""Durations: ``1 minute``, ``1.5 hours``, ``INTERVAL '5' SECOND``, ``'10 seconds'``, ``:param``.

In the tree, a duration is a :class:`~cql.dialect.nodes.Duration`, an ``exp.Literal`` number (in
units of the window attribute), an ``exp.Placeholder`` (``:w``), or an ``exp.Column`` (the name of a
declared constant).
"""

from __future__ import annotations

import re
from decimal import Decimal

from sqlglot import exp

from cql.dialect.nodes import MICROSECONDS, Duration

_SPELLINGS = {
    "NANOSECOND": "NS NANOSECOND NANOSECONDS",
    "MICROSECOND": "US USEC USECS MICROSECOND MICROSECONDS",
    "MILLISECOND": "MS MSEC MSECS MILLISECOND MILLISECONDS",
    "SECOND": "S SEC SECS SECOND SECONDS",
    "MINUTE": "MIN MINS MINUTE MINUTES",
    "HOUR": "H HR HRS HOUR HOURS",
    "DAY": "D DAY DAYS",
    "WEEK": "W WEEK WEEKS",
    "MONTH": "MON MONS MONTH MONTHS",
    "QUARTER": "QUARTER QUARTERS",
    "YEAR": "Y YEAR YEARS",
}
UNITS: dict[str, str] = {word: unit for unit, words in _SPELLINGS.items() for word in words.split()}
"""Every accepted spelling in upper case, to the singular unit."""

UNIT_WORDS = tuple(w for words in _SPELLINGS.values() for w in words.split() if len(w) > 2)
CLOCK_UNITS = tuple(MICROSECONDS)
"""The units that a time column may be counted in (``ORDERED BY ts IN SECONDS``)."""

_PART = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*")
_NUMBER = re.compile(r"\d+(\.\d+)?")


def plain(value: Decimal) -> str:
    """The number as text without exponent and without trailing zeros: ``1.50`` is ``1.5``."""
    text = format(value, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def is_duration_number(text: str) -> bool:
    return _NUMBER.fullmatch(text) is not None


def make_duration(value: Decimal, unit: str) -> Duration:
    # not Literal.number, which turns -5 into a Neg of 5
    return Duration(this=exp.Literal(this=plain(value), is_string=False), unit=unit)


def read_text(text: str) -> list[tuple[Decimal, str]] | None:
    """The parts of ``'1 hour 30 minutes'``: pairs of number and unit.

    An unknown unit stays as written. The result is None if the text is no duration.
    """
    parts: list[tuple[Decimal, str]] = []
    at = 0
    while at < len(text):
        match = _PART.match(text, at)
        if match is None:
            return None
        word = match.group(2)
        parts.append((Decimal(match.group(1)), UNITS.get(word.upper(), word)))
        at = match.end()
    return parts or None


def combine(parts: list[tuple[Decimal, str]]) -> tuple[Decimal, str] | None:
    """Adds the parts in their finest unit: ``1 hour 30 minutes`` is 90 minutes.

    The result is None if the parts mix months with other units.
    """
    if len({unit for _, unit in parts}) == 1:
        return sum((value for value, _ in parts), Decimal(0)), parts[0][1]
    if any(unit not in MICROSECONDS for _, unit in parts):
        return None
    finest = min((unit for _, unit in parts), key=MICROSECONDS.__getitem__)
    total = sum((value * MICROSECONDS[unit] for value, unit in parts), Decimal(0))
    return total / MICROSECONDS[finest], finest


def to_duration(node: exp.Expr) -> Duration | None:
    """A Duration from any spelling in an expression (``INTERVAL '5' SECOND``, ``'5 s'``)."""
    if isinstance(node, Duration):
        return node
    if isinstance(node, exp.Neg):
        inner = to_duration(node.this)
        return make_duration(-Decimal(inner.this.name), inner.unit) if inner else None
    if isinstance(node, exp.Interval):
        unit = node.text("unit").upper()
        name = node.this.name if isinstance(node.this, exp.Literal) else ""
        if unit in UNITS and re.fullmatch(r"[+-]?\d+(\.\d+)?", name):
            return make_duration(Decimal(name), UNITS[unit])
        return None
    if isinstance(node, exp.Literal) and node.is_string:
        both = combine(parts) if (parts := read_text(node.name)) else None
        return make_duration(*both) if both and both[1] in _SPELLINGS else None
    return None
