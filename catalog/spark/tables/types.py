"""Spark schemas as Arrow schemas and back: one type each way, nullability and comments kept."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import types as spark

from cql.base import types
from cql.base.model import Field, Schema
from cql.catalog.convert import read_schema
from cql.errors import CatalogError

COMMENT = "comment"
"""The key of a column's comment, in Spark's field metadata and in Arrow's."""

_WHY = b"cql.unreadable"
_LIMIT = b"cql.limit"
_SPARKS_LIMIT = "__CHAR_VARCHAR_TYPE_STRING"

_SIMPLE: dict[Any, pa.DataType] = {
    spark.BooleanType: pa.bool_(),
    spark.ByteType: pa.int8(),
    spark.ShortType: pa.int16(),
    spark.IntegerType: pa.int32(),
    spark.LongType: pa.int64(),
    spark.FloatType: pa.float32(),
    spark.DoubleType: pa.float64(),
    spark.DateType: pa.date32(),
    spark.TimestampType: pa.timestamp("us", tz="UTC"),
    spark.TimestampNTZType: pa.timestamp("us"),
    spark.BinaryType: pa.binary(),
}

_KNOWN = (
    "boolean, byte, short, int, long, float, double, decimal, date, timestamp, timestamp_ntz, "
    "string, binary, and arrays and structs of them"
)


def to_arrow(schema: spark.StructType) -> pa.Schema:
    """The Arrow schema in which a table of this Spark schema is read (timestamps: µs, UTC)."""
    return pa.schema([_arrow_field(field, field.name) for field in schema.fields])


def to_arrow_loosely(schema: spark.StructType) -> pa.Schema:
    """Like ``to_arrow``, but with a stand-in (``is_stand_in``) for each column of a type that Arrow
    or this engine does not have: the other columns of such a table can be read."""
    return pa.schema([_field_or_stand_in(field) for field in schema.fields])


def is_stand_in(field: pa.Field[Any]) -> bool:
    return bool(pa.types.is_interval(field.type))


def unreadable(field: pa.Field[Any]) -> str:
    """The reason why a stand-in is there."""
    return ((field.metadata or {}).get(_WHY) or b"").decode()


def _field_or_stand_in(field: Any) -> pa.Field[Any]:
    try:
        return _arrow_field(field, field.name)
    except CatalogError as error:
        why = {_WHY: error.message.encode()}
        return pa.field(field.name, pa.month_day_nano_interval(), field.nullable, why)


@dataclass(frozen=True, slots=True)
class Limit:
    """The number of characters that a text column holds: exactly ``length`` (``padded``, CHAR), or
    at most ``length`` (VARCHAR)."""

    length: int
    padded: bool

    def __str__(self) -> str:
        return f"{'char' if self.padded else 'varchar'}({self.length})"


def limit_of(field: pa.Field[Any]) -> Limit | None:
    """The limit of a CHAR or VARCHAR column; None for every other column."""
    text = ((field.metadata or {}).get(_LIMIT) or b"").decode()
    found = re.fullmatch(r"(var)?char\((\d+)\)", text, re.IGNORECASE)
    return Limit(int(found[2]), padded=found[1] is None) if found is not None else None


def usable_columns(schema: pa.Schema, what: str) -> tuple[Schema, dict[str, str]]:
    """The columns that queries can use, of a schema made here, and for each other one the reason.
    ``what`` names the data in errors. Raises CatalogError when two columns share one name."""
    found, unsupported = read_schema(schema, what)
    fields = []
    for field in found:
        column = schema.field(field.name)
        comment = (column.metadata or {}).get(COMMENT.encode())
        limit = limit_of(column)
        kind = types.char(limit.length) if limit is not None and limit.padded else field.type
        note = comment.decode() if comment else None
        fields.append(Field(field.name, kind, field.nullable, note))
    for name in unsupported:
        if is_stand_in(schema.field(name)):
            unsupported[name] = unreadable(schema.field(name))
    return Schema(tuple(fields)), unsupported


def to_spark(schema: pa.Schema) -> spark.StructType:
    """The Spark schema of a table that takes rows of this Arrow schema.

    Types without a Spark twin widen to the next one that holds all their values (uint8 to short);
    dictionaries become their values; any timestamp becomes one of microseconds.
    """
    return spark.StructType([_spark_field(field, field.name) for field in schema])


def _arrow_field(field: Any, path: str) -> pa.Field[Any]:
    notes = field.metadata or {}
    kept = {COMMENT: notes.get(COMMENT), _LIMIT: notes.get(_SPARKS_LIMIT)}
    return pa.field(
        field.name,
        _arrow_type(field.dataType, path),
        nullable=field.nullable,
        metadata={key: text for key, text in kept.items() if text} or None,
    )


def _arrow_type(kind: Any, path: str) -> pa.DataType:
    simple = _SIMPLE.get(type(kind))
    if simple is not None:
        return simple
    if isinstance(kind, spark.StringType):
        # CHAR and VARCHAR are strings too; a collation is not: it changes what equals what.
        if getattr(kind, "collation", "UTF8_BINARY") == "UTF8_BINARY":
            return pa.string()
    elif isinstance(kind, spark.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    elif isinstance(kind, spark.ArrayType):
        element = _arrow_type(kind.elementType, f"{path}[]")
        return pa.list_(pa.field("element", element, nullable=kind.containsNull))
    elif isinstance(kind, spark.StructType):
        return pa.struct([_arrow_field(f, f"{path}.{f.name}") for f in kind.fields])
    raise CatalogError(
        f"column {path} has the Spark type {kind.simpleString()}, which this engine cannot read",
        hint=f"leave the column out, or CAST it in a view; known types are {_KNOWN}",
    )


def _spark_field(field: pa.Field[Any], path: str) -> Any:
    comment = (field.metadata or {}).get(COMMENT.encode())
    metadata = {COMMENT: comment.decode()} if comment else None
    return spark.StructField(
        field.name, _spark_type(field.type, path), nullable=field.nullable, metadata=metadata
    )


def _spark_type(kind: pa.DataType, path: str) -> Any:
    t = pa.types
    if t.is_dictionary(kind):
        return _spark_type(kind.value_type, path)
    if t.is_boolean(kind):
        return spark.BooleanType()
    if t.is_int8(kind):
        return spark.ByteType()
    if t.is_int16(kind) or t.is_uint8(kind):
        return spark.ShortType()
    if t.is_int32(kind) or t.is_uint16(kind):
        return spark.IntegerType()
    if t.is_int64(kind) or t.is_uint32(kind):
        return spark.LongType()
    if t.is_float16(kind) or t.is_float32(kind):
        return spark.FloatType()
    if t.is_float64(kind):
        return spark.DoubleType()
    if t.is_decimal(kind) and kind.precision <= 38 and 0 <= kind.scale <= kind.precision:
        return spark.DecimalType(kind.precision, kind.scale)
    if t.is_date(kind):
        return spark.DateType()
    if t.is_timestamp(kind):
        return spark.TimestampNTZType() if kind.tz is None else spark.TimestampType()
    if t.is_string(kind) or t.is_large_string(kind) or t.is_string_view(kind):
        return spark.StringType()
    if (
        t.is_binary(kind)
        or t.is_large_binary(kind)
        or t.is_binary_view(kind)
        or t.is_fixed_size_binary(kind)
    ):
        return spark.BinaryType()
    if t.is_list(kind) or t.is_large_list(kind) or t.is_fixed_size_list(kind):
        element = kind.value_field
        return spark.ArrayType(_spark_type(element.type, f"{path}[]"), element.nullable)
    if t.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        return spark.StructType([_spark_field(f, f"{path}.{f.name}") for f in fields])
    raise CatalogError(
        f"column {path} has the Arrow type {kind}, which Spark tables cannot hold",
        hint=f"CAST it to one of: {_KNOWN}",
    )
