"""The columns of a data file in the types of its table.

Columns match by name, as Spark reads: a column that an older file lacks is NULL, a partition column
comes from the folder's name, and only types that widen without loss are accepted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cql.catalog.spark.tables.files import DataFile, Files, PartitionValue
from cql.catalog.spark.tables.types import limit_of
from cql.errors import CatalogError

# Before these, files in Spark 2's calendar (and ORC files of any version) mean another day than the
# one that Arrow reads: 15 October 1582 in days, and 1 January 1900 in microseconds (zones had odd
# offsets).
_FIRST_SAFE_DAY = -141_427
_FIRST_SAFE_MICROSECOND = -2_208_988_800_000_000


def stored_columns(files: Files, schema: pa.Schema, stored: Sequence[str]) -> list[str | None]:
    """The file's name of each column; None if the partition's name gives the column, or if the file
    is older than the column."""
    return [
        None if name in files.partition_columns else find_column(name, stored, files.case_sensitive)
        for name in schema.names
    ]


def find_column(name: str, names: Sequence[str], case_sensitive: bool) -> str | None:
    if name in names or case_sensitive:
        return name if name in names else None
    alike = [other for other in names if other.lower() == name.lower()]
    if len(alike) > 1:
        raise CatalogError(
            f"column {name!r} could be any of {', '.join(alike)}",
            hint="set spark.sql.caseSensitive to true, or rename one of them",
        )
    return alike[0] if alike else None


def shaped(
    files: Files,
    file: DataFile,
    schema: pa.Schema,
    found: Sequence[pa.Array[Any] | None],
    rows: int,
    legacy: bool,
) -> pa.RecordBatch:
    arrays = []
    for field, array in zip(schema, found, strict=True):
        if field.name in files.partition_columns:
            value = file.partition[files.partition_columns.index(field.name)]
            arrays.append(_filled(repeated(value, field.type, rows), field))
        elif array is None:
            arrays.append(nulls(rows, field.type))
        else:
            made = _filled(_converted(array, field, files, file), field)
            if legacy:
                _check_calendar(made, field, files, file)
            arrays.append(made)
    if not arrays:
        return rows_only(rows)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _filled(array: pa.Array[Any], field: pa.Field[Any]) -> pa.Array[Any]:
    """The values of a CHAR column, filled with the blanks that Spark adds when it reads."""
    limit = limit_of(field)
    if limit is None or not limit.padded:
        return array
    least = pc.min(pc.utf8_length(array)).as_py()
    if least is None or least >= limit.length:
        return array
    return pc.utf8_rpad(array, width=limit.length)


def rows_only(rows: int) -> pa.RecordBatch:
    """A batch without columns that keeps its number of rows."""
    return pa.record_batch({"rows": pa.nulls(rows)}).select([])


def nulls(rows: int, kind: Any) -> pa.Array[Any]:
    made: pa.Array[Any] = pa.nulls(rows, kind)
    return made


def repeated(value: PartitionValue, kind: Any, rows: int) -> pa.Array[Any]:
    """The column of a partition: one value as Spark holds it, or NULL."""
    if value is None:
        return nulls(rows, kind)
    scalar: Any
    if pa.types.is_date32(kind):
        scalar = pa.scalar(value, pa.int32()).cast(kind)
    elif pa.types.is_timestamp(kind):
        scalar = pa.scalar(value, pa.int64()).cast(kind)
    else:
        scalar = pa.scalar(value, kind)
    made: pa.Array[Any] = pa.repeat(scalar, rows)
    return made


def _converted(
    array: pa.Array[Any], field: pa.Field[Any], files: Files, file: DataFile
) -> pa.Array[Any]:
    kind = field.type
    if array.type == kind:
        return array
    if widens(array.type, kind):
        if pa.types.is_timestamp(kind) and pa.types.is_timestamp(array.type):
            # INT96 and ORC carry no zone; what they hold is UTC.
            return array.cast(pa.timestamp("us", array.type.tz)).view(pa.int64()).view(kind)
        return array.cast(kind)
    raise CatalogError(
        f"table {files.table}: column {field.name} is {kind} in the table and {array.type} in "
        f"its file {file.path}",
        hint="the table's schema was changed without its files: rewrite that file, or give the "
        "column its old type back",
    )


def widens(stored: Any, wanted: Any) -> bool:
    """Whether a file may hold a column in this type: the types that Spark's own readers accept."""
    t = pa.types
    if t.is_dictionary(stored):
        return bool(stored.value_type == wanted) or widens(stored.value_type, wanted)
    if t.is_integer(stored):
        if t.is_integer(wanted):
            return _holds_integer(stored, wanted)
        if t.is_timestamp(wanted):
            # ORC keeps a timestamp without zone as an integer.
            return wanted.tz is None and stored == pa.int64()
        return _decimal_holds(stored, wanted) or (t.is_float64(wanted) and stored.bit_width <= 32)
    if t.is_floating(stored):
        return t.is_floating(wanted) and bool(stored.bit_width <= wanted.bit_width)
    if t.is_decimal(stored) and t.is_decimal(wanted):
        return bool(
            stored.scale <= wanted.scale
            and stored.precision - stored.scale <= wanted.precision - wanted.scale
        )
    if t.is_timestamp(stored):
        return t.is_timestamp(wanted) and (stored.tz is None or wanted.tz is not None)
    if t.is_date(stored):
        return t.is_date32(wanted) or (t.is_timestamp(wanted) and wanted.tz is None)
    texts = (t.is_string, t.is_large_string, t.is_string_view)
    blobs = (t.is_binary, t.is_large_binary, t.is_binary_view, t.is_fixed_size_binary)
    if any(test(stored) for test in (*texts, *blobs)):
        return t.is_string(wanted) or (t.is_binary(wanted) and any(b(stored) for b in blobs))
    if t.is_list(stored) or t.is_large_list(stored):
        return t.is_list(wanted) and (
            stored.value_type == wanted.value_type or widens(stored.value_type, wanted.value_type)
        )
    if t.is_struct(stored) and t.is_struct(wanted):
        have = {stored.field(i).name: stored.field(i).type for i in range(stored.num_fields)}
        want = {wanted.field(i).name: wanted.field(i).type for i in range(wanted.num_fields)}
        return list(have) == list(want) and all(
            have[name] == kind or widens(have[name], kind) for name, kind in want.items()
        )
    return False


def _holds_integer(stored: Any, wanted: Any) -> bool:
    signed = pa.types.is_signed_integer
    if signed(stored) == signed(wanted):
        return bool(stored.bit_width <= wanted.bit_width)
    return signed(wanted) and bool(stored.bit_width < wanted.bit_width)


_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}


def _decimal_holds(stored: Any, wanted: Any) -> bool:
    return pa.types.is_decimal(wanted) and bool(
        wanted.precision - wanted.scale >= _DIGITS[stored.bit_width]
    )


def _check_calendar(
    array: pa.Array[Any], field: pa.Field[Any], files: Files, file: DataFile
) -> None:
    numbers: Any
    if pa.types.is_date32(field.type):
        first = _FIRST_SAFE_DAY
        numbers = array.view(pa.int32())
    elif pa.types.is_timestamp(field.type):
        first = _FIRST_SAFE_MICROSECOND
        numbers = array.view(pa.int64())
    else:
        return
    least = pc.min(numbers).as_py()
    if least is not None and least < first:
        raise CatalogError(
            f"table {files.table}: column {field.name} of its file {file.path} has dates so old "
            "that they stand in another calendar there",
            hint="rewrite the table with Spark as parquet, or read it through a view",
        )


def limited(array: pa.Array[Any], field: pa.Field[Any], table: str) -> pa.Array[Any]:
    """Values as a CHAR or VARCHAR column stores them: blanks beyond its length are cut off, CHAR is
    filled with blanks. Raises CatalogError for a value that is too long without these blanks, as
    Spark does."""
    limit = limit_of(field)
    if limit is None:
        return array
    lengths = pc.utf8_length(array)
    longest = pc.max(lengths).as_py()
    if longest is not None and longest > limit.length:
        rest = pc.utf8_rtrim(pc.utf8_slice_codeunits(array, start=limit.length), characters=" ")
        wrong = pc.index(pc.greater(pc.utf8_length(rest), 0), True).as_py()
        if wrong >= 0:
            value = array[wrong].as_py()
            raise CatalogError(
                f"table {table}: column {field.name} is {limit}, and a value has "
                f"{len(value)} characters: {value[:40]!r}",
                hint=f"shorten it in the query: left({field.name}, {limit.length})",
            )
        array = pc.utf8_slice_codeunits(array, start=0, stop=limit.length)
    return _filled(array, field)
