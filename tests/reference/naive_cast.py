"""ANSI casts of the reference: one function per target type, a row of the type matrix."""

from __future__ import annotations

import math
import re
from fractions import Fraction

from cql.base.types import DataType, Kind
from tests.reference.naive_values import (
    DAY,
    SECOND,
    BadRowError,
    date_text,
    decimal_text,
    float_text,
    interval_text,
    number,
    parse_date,
    parse_timestamp,
    stored,
    timestamp_text,
    truncate,
)

_TRUE = ("t", "true", "y", "yes", "1")
_FALSE = ("f", "false", "n", "no", "0")
_INTEGER = re.compile(r"[+-]?\d+")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_SPACE = "".join(map(chr, range(33))) + "\x7f"  # the characters that UTF8String.trimAll removes


def cast(value: object, source: DataType, target: DataType) -> object:
    """``value`` (not NULL) of type ``source`` as a value of ``target``; BadRowError if there is
    none.

    >>> from cql.base.types import BOOLEAN, DOUBLE, INT, STRING
    >>> cast(-2.9, DOUBLE, INT), cast(" 7 ", STRING, INT), cast(True, BOOLEAN, STRING)
    (-2, 7, 'true')
    """
    if source == target:
        return value
    match target.kind:
        case Kind.STRING:
            return to_text(value, source)
        case Kind.BINARY:
            return str(value).encode("utf-8")
        case Kind.BOOLEAN:
            return _to_boolean(value, source)
        case Kind.DATE:
            return _to_date(value, source)
        case Kind.TIMESTAMP | Kind.TIMESTAMP_NTZ:
            return _to_timestamp(value, source, target)
        case _:
            return _to_number(value, source, target)


def to_text(value: object, source: DataType) -> str:
    match source.kind, value:
        case Kind.BOOLEAN, bool():
            return "true" if value else "false"
        case ((Kind.FLOAT | Kind.DOUBLE), float()):
            return float_text(value, single=source.kind is Kind.FLOAT)
        case Kind.DECIMAL, int():
            return decimal_text(value, source.scale)
        case Kind.DATE, int():
            return date_text(value)
        case ((Kind.TIMESTAMP | Kind.TIMESTAMP_NTZ), int()):
            return timestamp_text(value)
        case Kind.INTERVAL, int():
            return interval_text(value)
        case Kind.BINARY, bytes():
            return value.decode("utf-8", "replace")
        case _:
            return str(value)


def _to_boolean(value: object, source: DataType) -> bool:
    if not isinstance(value, str):
        return bool(value)
    word = value.strip(_SPACE).lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise BadRowError("no boolean")


def _to_date(value: object, source: DataType) -> int:
    if isinstance(value, str):
        day = parse_date(value)
        if day is None:
            raise BadRowError("no date")
        return day
    assert isinstance(value, int)
    return value // DAY


def _to_timestamp(value: object, source: DataType, target: DataType) -> object:
    if isinstance(value, str):
        micros = parse_timestamp(value)
        if micros is None:
            raise BadRowError("no timestamp")
        return stored(micros, target)
    if source.kind is Kind.DATE:
        assert isinstance(value, int)
        return stored(value * DAY, target)
    if source.is_timestamp:  # both timestamp types are stored in UTC
        return value
    if source.kind is Kind.BOOLEAN:
        return int(bool(value))
    assert isinstance(value, int | float)
    if isinstance(value, float) and not math.isfinite(value):
        raise BadRowError("no timestamp")
    return stored(truncate(Fraction(number(value, source)) * SECOND), target)


def _to_number(value: object, source: DataType, target: DataType) -> object:
    if isinstance(value, str):
        return _parse_number(value, target)
    assert isinstance(value, int | float)
    if source.is_timestamp:
        seconds = Fraction(value, SECOND) if isinstance(value, int) else Fraction(value)
        whole = not (target.is_fraction or target.kind is Kind.DECIMAL)
        return stored(math.floor(seconds) if whole else seconds, target)
    exact = number(int(value) if isinstance(value, bool) else value, source)
    if target.is_fraction:
        return stored(exact, target)
    if isinstance(exact, float):
        if not math.isfinite(exact):
            raise BadRowError(f"overflow of {target}")
        if target.kind is Kind.DECIMAL:  # Spark converts by the shortest decimal text
            return stored(Fraction(repr(exact)), target)
        return stored(truncate(Fraction(exact)), target)
    if target.kind is Kind.DECIMAL:
        return stored(exact, target)
    return stored(truncate(Fraction(exact)), target)


def _parse_number(text: str, target: DataType) -> object:
    word = text.strip(_SPACE)
    if target.is_fraction:
        named = {"nan": math.nan, "inf": math.inf, "infinity": math.inf}
        bare = word.lower().removeprefix("+").removeprefix("-")
        if bare in named:
            return -named[bare] if word.startswith("-") else named[bare]
    pattern = _INTEGER if target.is_integer else _NUMBER
    if not pattern.fullmatch(word):
        raise BadRowError(f"no {target}")
    return stored(float(word) if target.is_fraction else Fraction(word), target)
