"""Conversions between the storage form of values and the Python objects of user functions.

int for the integer types, float for float and double, bool, str, bytes, ``datetime.date``,
``datetime.datetime`` (in UTC; without a zone for timestamp_ntz), ``datetime.timedelta`` and
``decimal.Decimal``; NULL is None.
"""

from __future__ import annotations

import datetime as dt
import numbers
import operator
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from cql.base.foreign import error_text, object_text, type_name
from cql.base.types import DataType, Kind
from cql.planner.interpret.error import EvaluationError
from cql.planner.nodes.expr import Value

_EPOCH = dt.datetime(1970, 1, 1)
_EPOCH_UTC = _EPOCH.replace(tzinfo=dt.UTC)
_DAY_ZERO = dt.date(1970, 1, 1).toordinal()
_MICROSECOND = dt.timedelta(microseconds=1)
_BITS = {Kind.TINYINT: 8, Kind.SMALLINT: 16, Kind.INT: 32, Kind.BIGINT: 64}

#: The Python type that a function must return for each SQL type, for error messages.
EXPECTED = {
    Kind.BOOLEAN: "a bool",
    Kind.FLOAT: "a float",
    Kind.DOUBLE: "a float",
    Kind.DECIMAL: "a Decimal",
    Kind.DATE: "a date",
    Kind.TIMESTAMP: "a datetime",
    Kind.TIMESTAMP_NTZ: "a datetime",
    Kind.INTERVAL: "a timedelta",
    Kind.STRING: "a str",
    Kind.BINARY: "bytes",
}


def to_python(value: Value, kind: DataType) -> object:
    """The Python object of a value in storage form. Raises EvaluationError for a time before year 1
    or after year 9999, which Python's types do not hold."""
    if value is None:
        return None
    try:
        match kind.kind:
            case Kind.TIMESTAMP:
                return _EPOCH_UTC + int(value) * _MICROSECOND
            case Kind.TIMESTAMP_NTZ:
                return _EPOCH + int(value) * _MICROSECOND
            case Kind.DATE:
                return dt.date.fromordinal(int(value) + _DAY_ZERO)
            case Kind.INTERVAL:
                return int(value) * _MICROSECOND
            case Kind.DECIMAL:
                return Decimal(int(value)).scaleb(-kind.scale)
    except (OverflowError, ValueError):
        raise EvaluationError("function", f"Python has no {kind} of year {_year(value)}") from None
    return value


def _year(value: Value) -> str:
    return "0 or less" if int(value or 0) < 0 else "10000 or more"


def from_python(value: object, kind: DataType, what: str) -> Value:
    """The storage form of ``value``; ``what`` begins the error message. Raises EvaluationError for
    an object of another type and for a value that ``kind`` does not hold. No value is rounded,
    except a float to binary32.

    The result has a built-in Python type. For an object of a subclass (of str, int, float,
    datetime, …) the value of its built-in base counts, not the results of the subclass's
    methods."""
    if value is None:
        return None
    try:
        return _CONVERT[kind.kind](value, kind, what)
    except TypeError:
        wanted = EXPECTED.get(kind.kind, "an int")
        raise EvaluationError(
            "function", f"{what} {object_text(value)}, which is {_article(value)}, not {wanted}"
        ) from None
    except (EvaluationError, KeyboardInterrupt):
        raise
    except BaseException as error:  # methods of a user's class may raise anything
        raise EvaluationError(
            "function", f"{what} {_article(value)} that cannot be read: {error_text(error)}"
        ) from None


def _article(value: object) -> str:
    name = type_name(value)
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def _misfit(value: object, kind: DataType, what: str) -> EvaluationError:
    article = "an" if str(kind)[0] in "aeiou" else "a"
    return EvaluationError(
        "function", f"{what} {object_text(value)}, which {article} {kind} cannot hold"
    )


def _integer(value: Any, kind: DataType, what: str) -> int:
    found = operator.index(value)
    bits = _BITS[kind.kind]
    if not -(1 << (bits - 1)) <= found < 1 << (bits - 1):
        raise (
            _misfit(found, kind, what)
            if found.bit_length() < 1000
            else EvaluationError(
                "function", f"{what} an int of {found.bit_length()} bits, which {kind} cannot hold"
            )
        )
    return found


def _real(value: object, kind: DataType, what: str) -> float:
    if not isinstance(value, numbers.Real):
        raise TypeError
    try:
        if isinstance(value, float):
            found = float.__float__(value)
        else:
            found = float.__float__(float(value))
    except OverflowError:
        raise _misfit(value, kind, what) from None
    if kind.kind is Kind.FLOAT:
        from cql.planner.interpret.interpreter import single

        return single(found)
    return found


def _boolean(value: object, kind: DataType, what: str) -> bool:
    if isinstance(value, bool) or type_name(value) in ("bool", "bool_"):  # also numpy's types
        return bool(value)
    raise TypeError


def _string(value: object, kind: DataType, what: str) -> str:
    if not isinstance(value, str):
        raise TypeError
    text = str.__str__(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise EvaluationError(
            "function", f"{what} text with half a character (a surrogate)"
        ) from None
    return text


def _binary(value: object, kind: DataType, what: str) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError
    return bytes(memoryview(value))


def _date(value: object, kind: DataType, what: str) -> int:
    if not isinstance(value, dt.date) or isinstance(value, dt.datetime):
        raise TypeError
    return dt.date.toordinal(value) - _DAY_ZERO


def _timestamp(value: object, kind: DataType, what: str) -> int:
    """Microseconds since 1970-01-01; a datetime without a zone counts as UTC."""
    if not isinstance(value, dt.datetime):
        raise TypeError
    naive = dt.datetime.utcoffset(value) is None
    if kind.kind is Kind.TIMESTAMP_NTZ and not naive:
        raise EvaluationError(
            "function", f"{what} a datetime with a time zone, which a timestamp_ntz has not"
        )
    if type_name(value) == "NaTType":  # pandas' NaT, which looks like a datetime of the year 1
        raise TypeError
    return dt.datetime.__sub__(value, _EPOCH if naive else _EPOCH_UTC) // _MICROSECOND


def _interval(value: object, kind: DataType, what: str) -> int:
    if not isinstance(value, dt.timedelta):
        raise TypeError
    found = dt.timedelta.__floordiv__(value, _MICROSECOND)
    if not -(1 << 63) <= found < 1 << 63:
        raise _misfit(value, kind, what)
    return found


def _decimal(value: object, kind: DataType, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, Decimal | int):
        raise TypeError
    number = Decimal(value)
    if number.is_zero():
        return 0
    if not number.is_finite() or number.copy_abs() >= 10 ** (kind.precision - kind.scale):
        raise _misfit(value, kind, what)
    sign, digits, exponent = number.as_tuple()
    shift = int(exponent) + kind.scale
    unscaled = int("".join(map(str, digits)))
    if shift < 0 and (-shift >= len(digits) or unscaled % 10**-shift):
        raise _misfit(value, kind, what)
    unscaled = unscaled * int(10**shift) if shift >= 0 else unscaled // int(10**-shift)
    return -unscaled if sign else unscaled


_CONVERT: dict[Kind, Callable[[object, DataType, str], Value]] = {
    **dict.fromkeys(_BITS, _integer),
    Kind.FLOAT: _real,
    Kind.DOUBLE: _real,
    Kind.BOOLEAN: _boolean,
    Kind.STRING: _string,
    Kind.BINARY: _binary,
    Kind.DATE: _date,
    Kind.TIMESTAMP: _timestamp,
    Kind.TIMESTAMP_NTZ: _timestamp,
    Kind.INTERVAL: _interval,
    Kind.DECIMAL: _decimal,
}
