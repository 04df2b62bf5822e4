"""The value types of the dialect (Spark SQL's) and how each is stored in a column.

Every type is stored in one numpy dtype; a nullable column has a byte mask beside it (1 = valid).
Timestamps and day-time intervals are int64 microseconds, dates int32 days, decimals a
scaled int64 of at most 18 digits, also where more are declared. Strings, binaries and arrays are
int32 codes of the query's dictionary.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

#: Digits of a decimal that are held, and that may be declared.
MAX_DECIMAL_DIGITS = 18
MAX_DECLARED_DIGITS = 38


class Kind(Enum):
    NULL = "void"
    BOOLEAN = "boolean"
    TINYINT = "tinyint"
    SMALLINT = "smallint"
    INT = "int"
    BIGINT = "bigint"
    FLOAT = "float"
    DOUBLE = "double"
    DECIMAL = "decimal"
    DATE = "date"
    TIMESTAMP = "timestamp"
    TIMESTAMP_NTZ = "timestamp_ntz"
    INTERVAL = "interval"
    STRING = "string"
    BINARY = "binary"
    ARRAY = "array"


_STORAGE = {
    Kind.NULL: "bool",
    Kind.BOOLEAN: "bool",
    Kind.TINYINT: "int8",
    Kind.SMALLINT: "int16",
    Kind.INT: "int32",
    Kind.BIGINT: "int64",
    Kind.FLOAT: "float32",
    Kind.DOUBLE: "float64",
    Kind.DECIMAL: "int64",
    Kind.DATE: "int32",
    Kind.TIMESTAMP: "int64",
    Kind.TIMESTAMP_NTZ: "int64",
    Kind.INTERVAL: "int64",
    Kind.STRING: "int32",
    Kind.BINARY: "int32",
    Kind.ARRAY: "int32",
}
_INTEGERS = (Kind.TINYINT, Kind.SMALLINT, Kind.INT, Kind.BIGINT)
_FRACTIONS = (Kind.FLOAT, Kind.DOUBLE)


@dataclass(frozen=True, slots=True)
class DataType:
    """A type; ``precision`` and ``scale`` belong to decimals only, ``element`` to arrays.

    ``precision`` is how many digits values have at most (18 or less). A decimal of more digits has
    those in ``declared``, else 0: results and sinks have that type, and nothing else depends on it,
    so that such a type equals the one of 18 digits.

    ``length`` is n for a column of CHAR(n), else 0. Such a type equals STRING: the length only says
    how the column compares (``planner.functions.registry.char_padding``)."""

    kind: Kind
    precision: int = 0
    scale: int = 0
    element: DataType | None = None
    length: int = field(default=0, compare=False)
    declared: int = field(default=0, compare=False)

    @property
    def without_length(self) -> DataType:
        return replace(self, length=0) if self.length else self

    @property
    def storage(self) -> str:
        """The numpy dtype of a column of this type, inside kernels."""
        return _STORAGE[self.kind]

    @property
    def is_integer(self) -> bool:
        return self.kind in _INTEGERS

    @property
    def is_fraction(self) -> bool:
        """Binary floating point."""
        return self.kind in _FRACTIONS

    @property
    def is_numeric(self) -> bool:
        return self.is_integer or self.is_fraction or self.kind is Kind.DECIMAL

    @property
    def is_text(self) -> bool:
        """A string or binary: bytes with an order, which is not that of their codes."""
        return self.kind in (Kind.STRING, Kind.BINARY)

    @property
    def is_coded(self) -> bool:
        """Stored as codes of the dictionary, which are the same where the values are."""
        return self.is_text or self.kind is Kind.ARRAY

    @property
    def is_timestamp(self) -> bool:
        return self.kind in (Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ)

    @property
    def can_progress(self) -> bool:
        """Whether a column of this type can be a window attribute."""
        return self.is_timestamp or self.is_integer or self.kind is Kind.DATE

    def __str__(self) -> str:
        if self.kind is Kind.DECIMAL:
            return f"decimal({self.declared or self.precision},{self.scale})"
        if self.element is not None:
            return f"array<{self.element}>"
        return str(self.kind.value)

    @property
    def with_limit(self) -> str:
        """The type for messages about values that it does not hold."""
        return f"{self}, of which {self.precision} digits are held" if self.declared else f"{self}"

    def to_arrow(self) -> pa.DataType:
        """The Arrow type that results and sinks carry."""
        import pyarrow as pa

        match self.kind:
            case Kind.NULL:
                return pa.null()
            case Kind.BOOLEAN:
                return pa.bool_()
            case Kind.TINYINT:
                return pa.int8()
            case Kind.SMALLINT:
                return pa.int16()
            case Kind.INT:
                return pa.int32()
            case Kind.BIGINT:
                return pa.int64()
            case Kind.FLOAT:
                return pa.float32()
            case Kind.DOUBLE:
                return pa.float64()
            case Kind.DECIMAL:
                return pa.decimal128(self.declared or self.precision, self.scale)
            case Kind.DATE:
                return pa.date32()
            case Kind.TIMESTAMP:
                return pa.timestamp("us", tz="UTC")
            case Kind.TIMESTAMP_NTZ:
                return pa.timestamp("us")
            case Kind.INTERVAL:
                return pa.duration("us")
            case Kind.STRING:
                return pa.string()
            case Kind.BINARY:
                return pa.binary()
            case Kind.ARRAY:
                assert self.element is not None
                return pa.list_(pa.field("element", self.element.to_arrow(), nullable=False))


NULL = DataType(Kind.NULL)
BOOLEAN = DataType(Kind.BOOLEAN)
TINYINT = DataType(Kind.TINYINT)
SMALLINT = DataType(Kind.SMALLINT)
INT = DataType(Kind.INT)
BIGINT = DataType(Kind.BIGINT)
FLOAT = DataType(Kind.FLOAT)
DOUBLE = DataType(Kind.DOUBLE)
DATE = DataType(Kind.DATE)
TIMESTAMP = DataType(Kind.TIMESTAMP)
TIMESTAMP_NTZ = DataType(Kind.TIMESTAMP_NTZ)
INTERVAL = DataType(Kind.INTERVAL)
STRING = DataType(Kind.STRING)
BINARY = DataType(Kind.BINARY)


def decimal(precision: int, scale: int) -> DataType:
    """DECIMAL(precision, scale) of up to 38 digits, of which values have at most 18."""
    declared = precision if precision > MAX_DECIMAL_DIGITS else 0
    return DataType(Kind.DECIMAL, min(precision, MAX_DECIMAL_DIGITS), scale, declared=declared)


def char(length: int) -> DataType:
    """CHAR(length): text of exactly so many characters."""
    return DataType(Kind.STRING, length=length)


def array(element: DataType) -> DataType:
    """Arrays of values that are never NULL."""
    return DataType(Kind.ARRAY, element=element)


def from_arrow(arrow: pa.DataType) -> DataType | None:
    """Our type for an Arrow type, None where no column can hold it (lists, structs, maps)."""
    import pyarrow.types as t

    if t.is_dictionary(arrow):
        return from_arrow(arrow.value_type)
    if t.is_timestamp(arrow):
        return TIMESTAMP if arrow.tz is not None else TIMESTAMP_NTZ
    if t.is_decimal128(arrow):
        return decimal(arrow.precision, arrow.scale)
    tests = (
        (t.is_null, NULL),
        (t.is_boolean, BOOLEAN),
        (t.is_int8, TINYINT),
        (t.is_int16, SMALLINT),
        (t.is_uint8, SMALLINT),
        (t.is_int32, INT),
        (t.is_uint16, INT),
        (t.is_int64, BIGINT),
        (t.is_uint32, BIGINT),
        (t.is_float16, FLOAT),
        (t.is_float32, FLOAT),
        (t.is_float64, DOUBLE),
        (t.is_date, DATE),
        (t.is_duration, INTERVAL),
        (t.is_string, STRING),
        (t.is_large_string, STRING),
        (t.is_string_view, STRING),
        (t.is_binary, BINARY),
        (t.is_large_binary, BINARY),
        (t.is_binary_view, BINARY),
        (t.is_fixed_size_binary, BINARY),
    )
    return next((ours for test, ours in tests if test(arrow)), None)
