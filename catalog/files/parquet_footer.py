"""Decodes the row groups in the footer of a Parquet file.

Arrow's Python classes for row groups, column chunks and statistics call C++ that may throw where
nothing catches it: one damaged byte in a footer ends the whole process. Here the byte raises
ValueError.

Source: the Parquet format (``parquet.thrift``), the compact protocol of Apache Thrift.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

_MAGIC = b"PAR1"
#: Deepest nesting that is decoded: the format has 6 levels, a damaged footer may claim any number.
_DEEPEST = 16
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 11, 12
_INTEGERS = (4, 5, 6)

#: The fields of a struct to keep, by number: None keeps the value as it is; a mapping gives the
#: fields to keep of a struct, or of each struct in a list.
_Fields: TypeAlias = "Mapping[int, _Fields | None]"

_STATISTICS: Final[_Fields] = {3: None, 5: None, 6: None}  # null_count, max_value, min_value
#: meta_data: type, path_in_schema, statistics
_COLUMN: Final[_Fields] = {3: {1: None, 3: None, 12: _STATISTICS}}
_GROUPS: Final[_Fields] = {3: None, 4: {3: None}}  # num_rows; row_groups: num_rows
_ALL: Final[_Fields] = {3: None, 4: {1: _COLUMN, 3: None}}


@dataclass(frozen=True, slots=True)
class RowGroup:
    """``nulls`` is the number of NULLs by column path (names joined by dots), None if the file does
    not state it. ``bounds`` has the least and the greatest value of columns of integers that have
    one, as stored. Both are empty unless they were requested."""

    rows: int
    nulls: Mapping[str, int | None]
    bounds: Mapping[str, tuple[int, int]]


def row_groups(path: str, *, columns: bool = False) -> list[RowGroup]:
    """The row groups of the file, in order; with the statistics of their ``columns``. Raises
    OSError, and ValueError for a footer that cannot be understood (a damaged or an encrypted
    one)."""
    footer = _Decoder(_footer(path)).struct(_ALL if columns else _GROUPS, 0)
    groups = [_group(group) for group in _structs(footer.get(4, []))]
    if sum(group.rows for group in groups) != _count(footer.get(3)):
        raise ValueError("the row groups do not have the rows that the file should have")
    return groups


def _footer(path: str) -> bytes:
    with open(path, "rb") as file:
        end = os.fstat(file.fileno()).st_size
        file.seek(max(0, end - 8))
        tail = file.read(8)
        length = int.from_bytes(tail[:4], "little")
        if tail[4:] != _MAGIC or length > end - 8:
            raise ValueError("there is no Parquet footer at its end")
        file.seek(end - 8 - length)
        return file.read(length)


def _group(group: dict[int, Any]) -> RowGroup:
    nulls: dict[str, int | None] = {}
    bounds: dict[str, tuple[int, int]] = {}
    for column in _structs(group.get(1, [])):
        (chunk,) = _structs([column.get(3, {})])
        path = chunk.get(3, [])
        if not isinstance(path, list) or not all(isinstance(name, bytes) for name in path):
            raise ValueError("a column has no path")
        (statistics,) = _structs([chunk.get(12, {})])
        known = statistics.get(3)
        name = b".".join(path).decode()
        nulls[name] = None if known is None else _count(known)
        ends = [_integer(chunk.get(1), statistics.get(number)) for number in (6, 5)]
        if ends[0] is not None and ends[1] is not None:
            bounds[name] = ends[0], ends[1]
    return RowGroup(_count(group.get(3)), nulls, bounds)


def _integer(kind: Any, value: Any) -> int | None:
    """A value of the types INT32 and INT64 in the plain encoding; None for another type."""
    if not isinstance(value, bytes) or len(value) != {1: 4, 2: 8}.get(kind):
        return None
    return int.from_bytes(value, "little", signed=True)


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError("a number of rows is missing or negative")
    return value


def _structs(values: Any) -> list[dict[int, Any]]:
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise ValueError("a part of the footer has another type than the format gives it")
    return values


class _Decoder:
    """The compact protocol: each struct is a run of (field number, type, value), each value as
    long as its type says. Fields that are not requested are skipped."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def struct(self, fields: _Fields, depth: int) -> dict[int, Any]:
        self._check(depth)
        found: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            kind, step = head & 15, head >> 4
            number = number + step if step else self._signed()
            if number in fields:
                found[number] = self._value(kind, fields[number] or {}, depth + 1)
            else:
                self._skip(kind, depth + 1)
        return found

    def _value(self, kind: int, fields: _Fields, depth: int) -> Any:
        self._check(depth)
        if kind in _INTEGERS:
            return self._signed()
        if kind == _STRUCT:
            return self.struct(fields, depth)
        if kind == _BINARY:
            return self._bytes(self._unsigned())
        if kind in (_LIST, _SET):
            size, inner = self._list()
            if inner in (_TRUE, _FALSE):
                raise ValueError("the footer has booleans where the format has none")
            return [self._value(inner, fields, depth + 1) for _ in range(size)]
        self._skip(kind, depth)
        return None

    def _skip(self, kind: int, depth: int) -> None:
        if kind in (_TRUE, _FALSE):
            return
        if kind in _INTEGERS:
            self._unsigned()
        elif kind == _BINARY:
            self._bytes(self._unsigned())
        elif kind == _BYTE:
            self._bytes(1)
        elif kind == _DOUBLE:
            self._bytes(8)
        elif kind == _STRUCT:
            self.struct({}, depth)
        elif kind in (_LIST, _SET):
            size, inner = self._list()
            for _ in range(size):  # an item has at least a byte: a damaged size cannot take long
                self._item(inner, depth + 1)
        elif kind == _MAP:
            size = self._unsigned()
            kinds = self._byte() if size else 0
            for _ in range(size):
                self._item(kinds >> 4, depth + 1)
                self._item(kinds & 15, depth + 1)
        else:
            raise ValueError(f"the footer has a value of the unknown type {kind}")

    def _item(self, kind: int, depth: int) -> None:
        """An element of a list or a map: booleans take a byte there."""
        self._check(depth)
        self._skip(_BYTE if kind in (_TRUE, _FALSE) else kind, depth)

    def _check(self, depth: int) -> None:
        if depth > _DEEPEST:
            raise ValueError("the footer is nested too deeply")

    def _list(self) -> tuple[int, int]:
        head = self._byte()
        size = head >> 4
        return self._unsigned() if size == 15 else size, head & 15

    def _byte(self) -> int:
        if self._at >= len(self._data):
            raise ValueError("the footer ends too early")
        self._at += 1
        return self._data[self._at - 1]

    def _bytes(self, count: int) -> bytes:
        if count > len(self._data) - self._at:
            raise ValueError("the footer ends too early")
        self._at += count
        return self._data[self._at - count : self._at]

    def _unsigned(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift > 63:
                raise ValueError("the footer holds a number of more than 64 bits")

    def _signed(self) -> int:
        value = self._unsigned()
        return (value >> 1) ^ -(value & 1)
