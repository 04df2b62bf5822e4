"""Constants: literals of the text and values of parameters, as typed ``Literal`` nodes.

No value is rounded: BindError refuses a value that its type cannot hold exactly.
"""

from __future__ import annotations

import numbers
import struct
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

from sqlglot import exp

from cql.base import types as t
from cql.base.types import MAX_DECIMAL_DIGITS, MAX_DECLARED_DIGITS, DataType, decimal
from cql.dialect.duration import to_duration
from cql.errors import BindError, CqlError, NotSupportedError, Position
from cql.planner.nodes.expr import Literal, Value

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_INT32 = 2**31
_INT64 = 2**63
_MOST_DIGITS = 1000


def number(text: str, pos: Position | None) -> Literal:
    """The literal of a number: ``7`` is an int (or bigint), ``1.5`` a decimal(2,1), ``1e3`` a
    double."""
    lowered = text.lower()
    if "e" in lowered:
        return Literal(float(lowered), t.DOUBLE, pos)
    if "." in lowered:
        return _decimal(Decimal(lowered), text, pos)
    digits = lowered.lstrip("-").lstrip("0")
    value = int(lowered) if len(digits) <= 19 else _INT64
    if -_INT32 <= value < _INT32:
        return Literal(value, t.INT, pos)
    if -_INT64 <= value < _INT64:
        return Literal(value, t.BIGINT, pos)
    raise BindError(
        f"the integer {_short(text)} does not fit in 64 bits",
        position=pos,
        hint=f"write {_short(text)}e0 for a double",
    )


_RANGES = {"Y": (t.TINYINT, 2**7), "S": (t.SMALLINT, 2**15), "L": (t.BIGINT, _INT64)}


def typed_number(text: str, kind: str, pos: Position | None) -> Literal:
    """Spark's ``1L``, ``2.0D``: the number ``text`` in the type of ``kind``."""
    if kind == "BD":
        return _decimal(Decimal(text), text, pos)
    if kind in "FD":
        double = float(text)
        stored = double if kind == "D" else struct.unpack("f", struct.pack("f", double))[0]
        return Literal(stored, t.DOUBLE if kind == "D" else t.FLOAT, pos)
    to, limit = _RANGES[kind]
    value = int(text) if len(text) <= 40 else limit
    if not -limit <= value < limit:
        raise BindError(
            f"{_short(text)}{kind} does not fit: a {to} ends at {limit - 1}", position=pos
        )
    return Literal(value, to, pos)


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."


def _decimal(value: Decimal, text: str, pos: Position | None) -> Literal:
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    if len(digits) + abs(exponent) > _MOST_DIGITS:  # checked before the digits are written out
        raise BindError(
            f"the number {_short(text)} has more than {MAX_DECIMAL_DIGITS} digits",
            position=pos,
            hint="pass a float for a double",
        )
    scale = max(0, -exponent)
    unscaled = int("".join(map(str, digits))) * (-1 if sign else 1) * 10 ** max(0, exponent)
    precision = max(len(str(abs(unscaled))), scale, 1)
    if precision > MAX_DECIMAL_DIGITS:
        raise BindError(
            f"the number {_short(text)} has {precision} digits; decimals hold {MAX_DECIMAL_DIGITS}",
            position=pos,
            hint=f"write {_short(text)}e0 for a double",
        )
    return Literal(unscaled, decimal(precision, scale), pos)


def interval(node: exp.Expr, pos: Position | None) -> Literal:
    """``INTERVAL '5' SECOND`` in microseconds; months and years have no fixed length."""
    duration = to_duration(node)
    if duration is None:
        raise BindError(
            "this is not an interval", position=pos, hint="for example INTERVAL '5' SECOND"
        )
    if duration.unit in ("MONTH", "QUARTER", "YEAR"):
        raise NotSupportedError(
            f"an interval of {duration.unit.lower()}s is not supported: its length varies",
            position=pos,
            hint="write it in days",
        )
    if duration.microseconds is None:
        raise BindError("this interval is finer than a microsecond", position=pos)
    if not -_INT64 <= duration.microseconds < _INT64:
        raise BindError("this interval does not fit in 64 bits", position=pos)
    return Literal(duration.microseconds, t.INTERVAL, pos)


def from_python(value: object, what: str, pos: Position | None) -> Literal:
    """The value of a parameter, in Python or as a Literal of another process. A datetime without
    time zone is taken as UTC."""
    try:
        return _from_python(value, pos)
    except CqlError as error:
        error.message = f"{what}: {error.message}"
        raise


def _encodable(value: str, pos: Position | None) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise BindError(
            f"the text holds half a character (a surrogate) at {error.start}",
            position=pos,
            hint="decode its bytes as UTF-8, or pass them as bytes",
        ) from None
    return value


def _in_64_bits(value: int, pos: Position | None) -> int:
    if not -_INT64 <= value < _INT64:
        size = f"of {value.bit_length()} bits"
        raise BindError(f"a value {size} does not fit in 64", position=pos, hint="pass a float")
    return value


def _from_python(value: object, pos: Position | None) -> Literal:
    match value:
        case Literal():
            return replace(value, pos=pos)
        case None:
            return Literal(None, t.NULL, pos)
        case bool():
            return Literal(value, t.BOOLEAN, pos)
        case str():
            return Literal(_encodable(value, pos), t.STRING, pos)
        case bytes():
            return Literal(value, t.BINARY, pos)
        case datetime():
            zoned = value if value.tzinfo else value.replace(tzinfo=UTC)
            return Literal((zoned - _EPOCH) // _MICROSECOND, t.TIMESTAMP, pos)
        case date():
            return Literal((value - _EPOCH.date()).days, t.DATE, pos)
        case timedelta():
            return Literal(_in_64_bits(value // _MICROSECOND, pos), t.INTERVAL, pos)
        case Decimal() if value.is_finite():
            return _decimal(value, str(value), pos)
        case numbers.Integral():
            return number(str(_in_64_bits(int(value), pos)), pos)
        case numbers.Real():
            return Literal(float(value), t.DOUBLE, pos)
    raise BindError(
        f"a value of type {type(value).__name__} has no SQL type",
        position=pos,
        hint="pass an int, float, str, bytes, bool, None, datetime, date, timedelta or Decimal",
    )


_TYPES: dict[exp.DType, DataType] = {
    exp.DType.BOOLEAN: t.BOOLEAN,
    exp.DType.TINYINT: t.TINYINT,
    exp.DType.SMALLINT: t.SMALLINT,
    exp.DType.INT: t.INT,
    exp.DType.BIGINT: t.BIGINT,
    exp.DType.FLOAT: t.FLOAT,
    exp.DType.DOUBLE: t.DOUBLE,
    exp.DType.DATE: t.DATE,
    exp.DType.DATE32: t.DATE,
    exp.DType.TIMESTAMP: t.TIMESTAMP,
    exp.DType.TIMESTAMPTZ: t.TIMESTAMP,
    exp.DType.TIMESTAMPLTZ: t.TIMESTAMP,
    exp.DType.TIMESTAMPNTZ: t.TIMESTAMP_NTZ,
    exp.DType.INTERVAL: t.INTERVAL,
    exp.DType.TEXT: t.STRING,
    exp.DType.VARCHAR: t.STRING,
    exp.DType.CHAR: t.STRING,
    exp.DType.BINARY: t.BINARY,
    exp.DType.VARBINARY: t.BINARY,
    exp.DType.NULL: t.NULL,
}


def data_type(node: exp.Expr, pos: Position | None) -> DataType:
    """The type that ``node`` names. Lengths of strings and precisions of timestamps are ignored, as
    in Spark: columns hold strings of any length, and microseconds."""
    kind = node.this if isinstance(node, exp.DataType) else None
    if kind == exp.DType.DECIMAL:
        return _decimal_type(node, pos)
    if isinstance(kind, exp.DType) and kind in _TYPES:
        return _TYPES[kind]
    if kind == exp.DType.ARRAY and len(node.expressions) == 1:
        return t.array(data_type(node.expressions[0], pos), contains_null=True)
    if kind == exp.DType.STRUCT and node.expressions:
        return _struct_type(node, pos)
    raise NotSupportedError(
        f"the type {node.sql()} is not supported",
        position=pos,
        hint="columns are boolean, tinyint, smallint, int, bigint, float, double, decimal(p,s),"
        " date, timestamp, timestamp_ntz, interval, string, binary, array<type> or"
        " struct<name: type, …>",
    )


def _struct_type(node: exp.Expr, pos: Position | None) -> DataType:
    fields: list[tuple[str, DataType]] = []
    for part in node.expressions:
        if not isinstance(part, exp.ColumnDef) or part.args.get("constraints"):
            raise NotSupportedError(
                f"{part.sql()} as a field of a struct is not supported",
                position=pos,
                hint="a field has a name and a type, and may be NULL: STRUCT<a: INT, b: STRING>",
            )
        if any(name.lower() == part.name.lower() for name, _ in fields):
            raise BindError(f"the struct has two fields named {part.name}", position=pos)
        fields.append((part.name, data_type(part.args["kind"], pos)))
    return t.struct(tuple(fields))


def _decimal_type(node: exp.Expr, pos: Position | None) -> DataType:
    sizes = [int(p.name) for p in node.expressions if p.name.isdecimal()] or [10]
    precision, scale = sizes[0], sizes[1] if len(sizes) > 1 else 0
    if not 1 <= precision <= MAX_DECLARED_DIGITS:
        raise NotSupportedError(
            f"decimal({precision},{scale}) is not supported",
            position=pos,
            hint=f"decimals have 1 to {MAX_DECLARED_DIGITS} digits",
        )
    if scale > precision:
        raise BindError(f"decimal({precision},{scale}) has more decimals than digits", position=pos)
    if scale > MAX_DECIMAL_DIGITS:
        raise NotSupportedError(
            f"decimal({precision},{scale}) is not supported: values are held in "
            f"{MAX_DECIMAL_DIGITS} digits",
            position=pos,
            hint=f"decimal({precision},{MAX_DECIMAL_DIGITS // 2}) keeps "
            f"{MAX_DECIMAL_DIGITS // 2} decimal places, and as many digits before them",
        )
    return decimal(precision, scale)


def as_int(value: Value) -> int | None:
    """The value of an integer literal; None for any other value, booleans included."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None
