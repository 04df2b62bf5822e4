"""The bytes of an array or a struct: its entry in the dictionary, and its value in a literal.

Equal values have equal bytes. The entry of an array has these parts:

- the number of elements *n* as an int32, or its complement ``~n`` if some element is NULL,
- with NULLs only: a byte for each element, 0 for NULL,
- only for elements of variable length (texts, arrays, structs): the length of each as an int32,
- the elements one after the other, in the storage of their type.

The entry of a struct has, for each field, a byte (0 for NULL), the length as an int32 if it varies,
and the value. A boolean is one byte. NULL has length 0, or zeros. All NaNs are one NaN, and -0.0 is
0.0. Numbers are little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from cql.base.types import DataType, Kind
from cql.planner.nodes.expr import Value

_INT32 = struct.Struct("<i")
_FORMATS = {
    "bool": struct.Struct("<?"),
    "int8": struct.Struct("<b"),
    "int16": struct.Struct("<h"),
    "int32": struct.Struct("<i"),
    "int64": struct.Struct("<q"),
    "float32": struct.Struct("<f"),
    "float64": struct.Struct("<d"),
}


def width(kind: DataType) -> int:
    """Bytes of a value inside an entry; 0 for types whose values differ in length."""
    return 0 if kind.is_coded else _FORMATS[kind.storage].size


def empty_entry(kind: DataType) -> bytes:
    """The array without elements, or the struct of which each field is NULL."""
    if kind.kind is Kind.ARRAY:
        return _INT32.pack(0)
    return write_struct([None] * len(kind.fields), kind)


def write_array(values: Sequence[Value], element: DataType) -> bytes:
    n, nulls = len(values), any(v is None for v in values)
    raw = [_raw(v, element) for v in values]
    head = [_INT32.pack(~n if nulls else n)]
    if nulls:
        head.append(bytes(v is not None for v in values))
    if element.is_coded:
        head += [_INT32.pack(len(r)) for r in raw]
    return b"".join((*head, *raw))


def read_array(entry: bytes, element: DataType) -> list[Value]:
    (n,) = _INT32.unpack_from(entry)
    at, there = _INT32.size, None
    if n < 0:
        n = ~n
        there = entry[at : at + n]
        at += n
    sizes = [width(element)] * n
    if element.is_coded:
        sizes = [size for (size,) in _INT32.iter_unpack(entry[at : at + 4 * n])]
        at += 4 * n
    found: list[Value] = []
    for k, size in enumerate(sizes):
        valid = there is None or there[k] != 0
        found.append(_value(entry[at : at + size], element) if valid else None)
        at += size
    return found


def write_struct(values: Sequence[Value], kind: DataType) -> bytes:
    parts = []
    for value, (_, of) in zip(values, kind.fields, strict=True):
        raw = _raw(value, of)
        parts.append(bytes([value is not None]))
        if of.is_coded:
            parts.append(_INT32.pack(len(raw)))
        parts.append(raw)
    return b"".join(parts)


def read_struct(entry: bytes, kind: DataType) -> list[Value]:
    at = 0
    found: list[Value] = []
    for _, of in kind.fields:
        valid, size = entry[at] != 0, width(of)
        at += 1
        if of.is_coded:
            (size,) = _INT32.unpack_from(entry, at)
            at += _INT32.size
        found.append(_value(entry[at : at + size], of) if valid else None)
        at += size
    return found


def _raw(value: Value, kind: DataType) -> bytes:
    if value is None:
        return bytes(width(kind))
    if kind.is_coded:
        return value.encode() if isinstance(value, str) else bytes(_bytes(value))
    if isinstance(value, float):
        value = float("nan") if value != value else value + 0.0
    return _FORMATS[kind.storage].pack(value)


def _bytes(value: Value) -> bytes:
    assert isinstance(value, bytes)
    return value


def _value(raw: bytes, kind: DataType) -> Value:
    if kind.kind is Kind.STRING:
        return raw.decode(errors="replace")
    if kind.is_coded:
        return raw
    (value,) = _FORMATS[kind.storage].unpack(raw)
    found: Value = value
    return found
