"""Converts Arrow columns of any kind to the engine's types, and casts safely between those types.

Rows in messages count from 0, as offsets do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from cql.base.model import Field, Schema
from cql.base.types import (
    DATE,
    DOUBLE,
    MAX_DECIMAL_DIGITS,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    Kind,
    array,
    decimal,
    from_arrow,
    struct,
)
from cql.errors import CatalogError, did_you_mean

#: An Arrow array of any type; the stubs' generic Array lacks members that this module uses.
Column: TypeAlias = Any

#: Remedy for a column whose values the engine cannot hold.
CONVERT = "convert the column where the data is made, or leave it out"
#: Key in a column's metadata for the reason why the engine cannot hold the column.
UNREADABLE = b"cql.unreadable"
#: Remedy for a decimal that has too many digits.
SHORTEN = (
    f"values are held in {MAX_DECIMAL_DIGITS} digits: declare fewer decimal places, or convert the "
    "column to double where the data is made"
)
_BEYOND = 10**MAX_DECIMAL_DIGITS
_INTEGER_ORDER = (Kind.TINYINT, Kind.SMALLINT, Kind.INT, Kind.BIGINT)
_INTEGER_DIGITS = {Kind.TINYINT: 3, Kind.SMALLINT: 5, Kind.INT: 10, Kind.BIGINT: 19}


def named(schema: pa.Schema) -> pa.Schema:
    """The schema, after a check that the names in it (of columns, parts of columns, time zones) are
    text: damaged data may hold any bytes there. Raises UnicodeDecodeError, a ValueError."""
    for field in schema:
        _read_names(field)
    return schema


def _read_names(field: pa.Field[Any]) -> None:
    _, kind = field.name, field.type
    while pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_timestamp(kind):
        _ = kind.tz
    for part in range(kind.num_fields):
        _read_names(kind.field(part))


def read_schema(arrow: pa.Schema, what: str) -> tuple[Schema, dict[str, str]]:
    """The engine's schema of Arrow columns, and for each column left out the reason.

    ``what`` names the data in errors. Raises CatalogError when two columns share one name, and when
    a name is no text."""
    try:
        named(arrow)
    except UnicodeDecodeError as error:
        raise CatalogError(
            f"{what} has a name of a column, of a part of one, or of a time zone that is no text: "
            f"{error}",
            hint="names are UTF-8: write the data anew with other names",
        ) from error
    seen: set[str] = set()
    fields: list[Field] = []
    unsupported: dict[str, str] = {}
    for column in arrow:
        if column.name in seen:
            raise CatalogError(
                f"{what} has two columns named {column.name}",
                hint="rename one of them: a query could not tell them apart",
            )
        seen.add(column.name)
        ours = from_arrow(column.type)
        reason = (column.metadata or {}).get(UNREADABLE)
        if reason is not None:
            unsupported[column.name] = reason.decode(errors="replace")
        elif ours is None:
            unsupported[column.name] = f"no column can hold values of type {column.type}"
        elif (long := _unheld(ours)) is not None:
            unsupported[column.name] = (
                f"{long} has {long.scale} decimal places, and values are held in "
                f"{MAX_DECIMAL_DIGITS} digits"
            )
        else:
            fields.append(Field(column.name, ours, column.nullable))
    return Schema(tuple(fields)), unsupported


def _unheld(kind: DataType) -> DataType | None:
    """A decimal of too many places in ``kind``; None if there is none."""
    parts = [of for _, of in kind.fields]
    if kind.element is not None:
        parts.append(kind.element)
    if kind.kind is Kind.DECIMAL and kind.scale > MAX_DECIMAL_DIGITS:
        return kind
    return next((found for of in parts if (found := _unheld(of)) is not None), None)


def widens(source: DataType, target: DataType) -> bool:
    """Whether every value of ``source`` is a value of ``target``."""
    if source == target or source.kind is Kind.NULL:
        return True
    if source.is_nested:
        return _each(widens, source, target)
    if source.is_integer and target.is_integer:
        return _INTEGER_ORDER.index(source.kind) < _INTEGER_ORDER.index(target.kind)
    if source.is_integer and target.kind is Kind.DECIMAL:
        return target.precision - target.scale >= _INTEGER_DIGITS[source.kind]
    if source.is_integer and target.is_fraction:
        bits = {Kind.TINYINT: 8, Kind.SMALLINT: 16, Kind.INT: 32, Kind.BIGINT: 64}[source.kind]
        return bits <= (24 if target.kind is Kind.FLOAT else 53)
    if source.kind is Kind.DECIMAL and target.kind is Kind.DECIMAL:
        whole = target.precision - target.scale >= source.precision - source.scale
        return whole and target.scale >= source.scale
    return source.kind is Kind.FLOAT and target.kind is Kind.DOUBLE


def _each(test: Callable[[DataType, DataType], bool], source: DataType, target: DataType) -> bool:
    """Whether two arrays, or two structs with the same names, have parts that pass the test."""
    if source.element is not None and target.element is not None:
        return test(source.element, target.element)
    if not source.fields or [n for n, _ in source.fields] != [n for n, _ in target.fields]:
        return False
    pairs = zip(source.fields, target.fields, strict=True)
    return all(test(of, to) for (_, of), (_, to) in pairs)


def common(one: DataType, other: DataType, *, text: bool) -> DataType | None:
    """The narrowest type that holds the values of both; None if there is none. With ``text`` the
    types are guessed and the values may be read again: whole numbers among fractions as DOUBLE (a
    number that a double cannot hold is refused then), days among times, and times without a zone
    among times with one."""
    if one.is_nested and other.is_nested:
        return _common_nested(one, other, text=text)
    if one == other:
        return max(one, other, key=lambda kind: kind.declared)
    for source, target in ((one, other), (other, one)):
        if widens(source, target):
            return target
        if text and source.is_integer and target.is_fraction:
            return DOUBLE
        if text and (source, target) in _EARLIER_TIMES:
            return target
        if target.kind is Kind.DECIMAL and source.is_integer:
            whole = max(target.precision - target.scale, _INTEGER_DIGITS[source.kind])
            return _decimal(whole, target.scale)
    if one.kind is other.kind is Kind.DECIMAL:
        whole = max(one.precision - one.scale, other.precision - other.scale)
        return _decimal(whole, max(one.scale, other.scale))
    small = (Kind.TINYINT, Kind.SMALLINT, Kind.INT, Kind.FLOAT)
    return DOUBLE if one.kind in small and other.kind in small else None


def _common_nested(one: DataType, other: DataType, *, text: bool) -> DataType | None:
    if one.element is not None and other.element is not None:
        element = common(one.element, other.element, text=text)
        contains_null = one.contains_null or other.contains_null
        return None if element is None else array(element, contains_null=contains_null)
    if [n for n, _ in one.fields] != [n for n, _ in other.fields]:
        return None
    found: list[tuple[str, DataType]] = []
    for (name, a), (_, b) in zip(one.fields, other.fields, strict=True):
        kind = common(a, b, text=text)
        if kind is None:
            return None
        found.append((name, kind))
    return struct(tuple(found)) if found else None


_EARLIER_TIMES = ((DATE, TIMESTAMP_NTZ), (DATE, TIMESTAMP), (TIMESTAMP_NTZ, TIMESTAMP))


def _decimal(whole: int, scale: int) -> DataType | None:
    return decimal(whole + scale, scale) if whole + scale <= MAX_DECIMAL_DIGITS else None


def assignable(source: DataType, target: DataType) -> bool:
    """Whether values may be stored as ``target`` after a check of each: none changes silently."""
    if widens(source, target):
        return True
    if source.is_nested:
        return _each(assignable, source, target)
    if source.is_integer:
        return target.is_numeric
    return source.kind is Kind.DECIMAL and target.kind is Kind.DECIMAL


def article(kind: DataType) -> str:
    """The type with its article, for messages."""
    return f"an {kind}" if str(kind)[0] in "aeiou" else f"a {kind}"


def fit(declared: Schema, actual: Schema, what: str, unsupported: Mapping[str, str]) -> None:
    """Raises CatalogError for declared columns that ``actual`` lacks or holds in another type."""
    for field in declared:
        index = actual.find(field.name)
        if index is None:
            if field.name in unsupported:
                raise CatalogError(
                    f"column {field.name} of {what}: {unsupported[field.name]}", hint=CONVERT
                )
            raise CatalogError(
                f"{what} has no column {field.name}",
                hint=did_you_mean(field.name, actual.names, what="its columns are"),
            )
        found = actual[index].type
        if not assignable(found, field.type):
            raise CatalogError(
                f"column {field.name} of {what} holds {found}, declared is {field.type}",
                hint=f"declare {field.name} {found} and convert it in the query with CAST",
            )


def shown(value: Any) -> str:
    """An Arrow scalar as text, also if Python has no such value (nanoseconds)."""
    if not value.is_valid:
        return "NULL"
    try:
        return str(value.cast(pa.string()).as_py())
    except pa.ArrowException:
        return str(value)


def first_failure(array: Column, attempt: Callable[[Column], object]) -> int:
    """Index of the first value that ``attempt`` refuses, given that it refuses the array."""
    low, high = 0, len(array)  # array[:low] passes, array[:high] fails
    while high - low > 1:
        middle = (low + high) // 2
        try:
            attempt(array.slice(low, middle - low))
        except (pa.ArrowException, ValueError):
            high = middle
        else:
            low = middle
    return low


def cast(array: Column, target: pa.DataType, *, column: str, where: str, row: int) -> Column:
    """A safe cast; CatalogError names the first value that does not fit, and its row."""
    try:
        return _cast(array, target)
    except (pa.ArrowException, ValueError) as error:
        bad = first_failure(array, lambda part: _cast(part, target))
        raise CatalogError(
            f"{where}, row {row + bad}, column {column}: {shown(array[bad])} does not fit {target}",
            hint=_cast_hint(array.type, target),
        ) from error


def _cast(array: Column, target: pa.DataType) -> Column:
    if pa.types.is_integer(array.type) and pa.types.is_decimal128(target):
        # Arrow demands room for every integer of the type; the values are checked one step later.
        array = array.cast(pa.decimal128(38, target.scale))
    return array.cast(target)


def first_too_long(array: Column) -> int | None:
    """Index of the first decimal (128 bits) with more than MAX_DECIMAL_DIGITS digits, or None."""
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return None
    pairs = np.frombuffer(buffer, np.int64, 2 * len(array), array.offset * 16)
    low, high = pairs[::2], pairs[1::2]
    wrong = (high != low >> 63) | (low <= -_BEYOND) | (low >= _BEYOND)
    if array.null_count:
        wrong &= array.is_valid().to_numpy(zero_copy_only=False)
    return int(wrong.argmax()) if wrong.any() else None


class TooLongError(ValueError):
    """A decimal has more digits than are held."""


def check_digits(array: Column, field: Field) -> None:
    """Raises TooLongError for a value of more than 18 digits in a column that declares more."""
    at = first_too_long(array) if field.type.declared else None
    if at is not None:
        raise TooLongError(_too_long(array[at], field))


def _too_long(value: Any, field: Field) -> str:
    return f"column {field.name}: {shown(value)} has more than {MAX_DECIMAL_DIGITS} digits"


def _has_limits(kind: DataType) -> bool:
    """Whether some values of a nested type must be refused: NULL in arrays, decimals."""
    if kind.element is not None:
        return not kind.contains_null or kind.element.declared > 0 or _has_limits(kind.element)
    return any(of.declared > 0 or _has_limits(of) for _, of in kind.fields)


def check_parts(array: Column, field: Field, where: Callable[[int], str]) -> None:
    """Raises CatalogError for the first array or struct that has NULL where none is allowed, or a
    decimal of too many digits; ``where`` names a row."""
    for part, rows, kind, nullable in _parts(array, np.arange(len(array)), field.type):
        if part.null_count and not nullable:
            at = int(rows[part.is_null().index(True).as_py()])
            raise CatalogError(
                f"{where(at)}, column {field.name}: NULL in an array that holds none",
                hint="leave such rows out, or make the column anew: its arrays take NULL then",
            )
        at_part = first_too_long(part) if kind.declared else None
        if at_part is not None:
            what = _too_long(part[at_part], field)
            raise CatalogError(f"{where(int(rows[at_part]))}, {what}", hint=SHORTEN)


def _parts(
    column: Column, rows: Any, kind: DataType
) -> Iterator[tuple[Column, Any, DataType, bool]]:
    """All elements and fields inside a column of arrays or structs, at any depth, with the row of
    each value, their type, and whether they may be NULL."""
    found: list[tuple[Column, Any, DataType, bool]] = []
    if kind.element is not None:
        lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        each = np.repeat(rows, lengths)
        found.append((column.flatten(), each, kind.element, kind.contains_null))
    elif kind.fields:
        pairs = zip(column.flatten(), kind.fields, strict=True)
        found += ((part, rows, of, True) for part, (_, of) in pairs)
    for part, each, of, nullable in found:
        yield part, each, of, nullable
        yield from _parts(part, each, of)


def _cast_hint(source: pa.DataType, target: pa.DataType) -> str:
    if pa.types.is_timestamp(source) and pa.types.is_timestamp(target):
        if source.unit == "ns":
            return (
                "the engine keeps microseconds: round the column first, in Arrow with "
                "pyarrow.compute.floor_temporal(column, unit='microsecond')"
            )
        return "the time is outside the years that microseconds in 64 bits can hold"
    if pa.types.is_date64(source):
        return "a date64 with a time of day is not a date: make it a timestamp"
    return "convert or filter such values first, or choose a wider type"


class Shaper:
    """Turns raw columns, in the order of ``fields``, into columns of the engine's types.

    A column that already fits is passed on without a copy. Strings may come out dictionary-encoded
    (int32 indices, plain string values, no NULL among the values)."""

    def __init__(self, fields: Sequence[Field]) -> None:
        self.fields = tuple(fields)
        self._targets = tuple(f.type.to_arrow() for f in fields)
        self._limited = tuple(_has_limits(f.type) for f in fields)
        named = zip(fields, self._targets, strict=True)
        self._schema = pa.schema([pa.field(f.name, t, f.nullable) for f, t in named])
        checked = any(not f.nullable or f.type.declared for f in fields) or any(self._limited)
        self._any_fits = bool(fields) and not checked  # each column of the right type does
        self._dictionaries: list[tuple[tuple[int, ...], Column, Column] | None] = [None] * len(
            self.fields
        )

    def shape(self, raw: pa.RecordBatch, *, row: int, where: str) -> pa.RecordBatch:
        """``row`` is the number of the first row within ``where`` (both for messages)."""
        if self._any_fits and raw.schema.equals(self._schema, check_metadata=True):
            return raw
        arrays = [self._column(i, raw.column(i), row, where) for i in range(len(self.fields))]
        if arrays and [a.type for a in arrays] == self._schema.types:
            return pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        return batch_of(self.fields, arrays, raw.num_rows)

    def _column(self, index: int, array: Column, row: int, where: str) -> Column:
        field, target = self.fields[index], self._targets[index]
        if array.type != target:
            if pa.types.is_dictionary(array.type) and field.type == STRING:
                array = self._dictionary(index, array)
            else:
                if pa.types.is_dictionary(array.type):
                    array = array.dictionary_decode()
                array = cast(array, target, column=field.name, where=where, row=row)
        if field.type.declared:
            at = first_too_long(array)
            if at is not None:
                what = _too_long(array[at], field)
                raise CatalogError(f"{where}, row {row + at}, {what}", hint=SHORTEN)
        elif self._limited[index]:
            check_parts(array, field, lambda at: f"{where}, row {row + at}")
        if not field.nullable and array.null_count:
            at = row + array.is_null().index(True).as_py()
            raise CatalogError(
                f"{where}, row {at}, column {field.name}: NULL in a column declared NOT NULL",
                hint="declare the column nullable, or filter the NULLs out",
            )
        return array

    def _dictionary(self, index: int, array: Any) -> Column:
        """Dictionary<int32, string>; a dictionary that batches share is converted once."""
        target = pa.dictionary(pa.int32(), pa.string())
        values = array.dictionary
        if values.null_count:  # NULL by index and by value: decoded, both are one
            return array.dictionary_decode().cast(pa.string())
        if array.type == target:
            return array
        key = tuple(b.address if b is not None else 0 for b in values.buffers())
        key = (*key, values.offset, len(values))
        known = self._dictionaries[index]
        if known is None or known[0] != key:
            known = (key, values, values.cast(pa.string()))
            self._dictionaries[index] = known
        indices = array.indices.cast(pa.int32())
        return pa.DictionaryArray.from_arrays(indices, known[2], safe=False)


def batch_of(fields: Sequence[Field], arrays: Sequence[Column], rows: int) -> pa.RecordBatch:
    """A batch that keeps its row count even with no columns (count(*) needs only that)."""
    if not arrays:
        return empty_columns(rows)
    named = [pa.field(f.name, a.type, f.nullable) for f, a in zip(fields, arrays, strict=True)]
    return pa.RecordBatch.from_arrays(list(arrays), schema=pa.schema(named))


def empty_columns(rows: int) -> pa.RecordBatch:
    return pa.record_batch({"_": pa.nulls(rows)}).select([])


def empty_batch(fields: Sequence[Field]) -> pa.RecordBatch:
    return batch_of(fields, [pa.nulls(0, f.type.to_arrow()) for f in fields], 0)


def join(fields: Sequence[Field], parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """The parts as one batch without chunks; a single part is returned as it is."""
    if len(parts) == 1:
        return parts[0]
    rows = sum(p.num_rows for p in parts)
    return batch_of(
        fields, [_concat([p.column(i) for p in parts]) for i in range(len(fields))], rows
    )


def _concat(arrays: list[Column]) -> Column:
    if any(a.type != arrays[0].type for a in arrays):  # plain and dictionary-encoded strings
        arrays = [a.dictionary_decode() if pa.types.is_dictionary(a.type) else a for a in arrays]
    return pa.concat_arrays(arrays)


def find_name(name: str, names: Sequence[str], others: Sequence[str], where: str) -> str | None:
    """The spelling that ``names`` has for column ``name``: the same, or the only one that differs
    in case alone and is not one of ``others``, the other requested columns. None if there is none.

    Raises CatalogError if there are several."""
    if name in names:
        return name
    folded = name.lower()
    alike = [n for n in names if n.lower() == folded and n not in others]
    if len(alike) > 1:
        raise CatalogError(
            f"{where}: column {name} could be {' or '.join(alike)}",
            hint="names match without regard to case: declare the column as it is spelt there",
        )
    return alike[0] if alike else None


def pick(schema: Schema, columns: Sequence[str], what: str) -> tuple[Field, ...]:
    """The fields of the requested columns. Raises CatalogError for a column that does not exist."""
    chosen: list[Field] = []
    for name in columns:
        index = schema.find(name)
        if index is None:
            raise CatalogError(
                f"{what} has no column {name}",
                hint=did_you_mean(name, schema.names, what="its columns are"),
            )
        chosen.append(schema[index])
    return tuple(chosen)
