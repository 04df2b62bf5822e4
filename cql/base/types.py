"""The value types of the dialect (Spark SQL's) and how each is stored in a column.

Every type is stored in one numpy dtype; a nullable column has a byte mask beside it (1 = valid).
Timestamps and day-time intervals are int64 microseconds, dates are int32 days. Decimals are scaled
int64 of at most 18 digits, even where the declaration allows more. Strings, binaries, arrays and
structs are int32 codes of the query's dictionary. Segments of signals are addresses in
the query's segment store.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

#: Maximal digits of a decimal's values, and of its declaration.
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
    SIGNAL = "signal"
    STRUCT = "struct"


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
    Kind.SIGNAL: "int64",
    Kind.STRUCT: "int32",
}
_INTEGERS = (Kind.TINYINT, Kind.SMALLINT, Kind.INT, Kind.BIGINT)
_FRACTIONS = (Kind.FLOAT, Kind.DOUBLE)
_NUMERIC = (*_INTEGERS, *_FRACTIONS, Kind.DECIMAL)
_TEXTS = (Kind.STRING, Kind.BINARY)
_NESTED = (Kind.ARRAY, Kind.STRUCT)
_CODED = (*_TEXTS, *_NESTED)
_TIMESTAMPS = (Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ)
_PROGRESSING = (*_TIMESTAMPS, *_INTEGERS, Kind.DATE)


@dataclass(frozen=True, slots=True)
class DataType:
    """A type; ``precision`` and ``scale`` belong to decimals only, ``element`` to arrays
    and signals, ``fields`` (names and types) to structs.

    ``precision`` is the maximal number of digits of a value, 18 or less. ``declared`` is the
    declared number of digits of a decimal with more than 18 digits, else 0. Only the types of
    results and sinks depend on ``declared``, so such a type equals the type with 18 digits.

    ``length`` is n for a column of CHAR(n), else 0. Such a type equals STRING: the length only
    decides how the column compares (``planner.functions.registry.char_padding``).

    ``contains_null``: elements of the array may be NULL. Such a type equals the type without. Any
    field of a struct may be NULL.

    ``samples``: how many samples each segment of a signal has; 0: unknown. ``rate``: how many of
    them a second of the signal has, at whose times they are, as a numerator and a denominator;
    None: they are those of a transform.
    Types that differ in these are equal."""

    kind: Kind
    precision: int = 0
    scale: int = 0
    element: DataType | None = None
    length: int = field(default=0, compare=False)
    declared: int = field(default=0, compare=False)
    contains_null: bool = field(default=False, compare=False)
    fields: tuple[tuple[str, DataType], ...] = ()
    samples: int = field(default=0, compare=False)
    rate: tuple[int, int] | None = field(default=None, compare=False)

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
        return self.kind in _NUMERIC

    @property
    def is_text(self) -> bool:
        """A string or binary: its bytes have an order, its codes have not."""
        return self.kind in _TEXTS

    @property
    def is_coded(self) -> bool:
        """Stored as codes of the dictionary; equal values have equal codes."""
        return self.kind in _CODED

    @property
    def is_nested(self) -> bool:
        """An array or a struct: its values have parts, and no order."""
        return self.kind in _NESTED

    @property
    def is_sample(self) -> bool:
        """A number, or a struct of numbers and timestamps: what a channel of a signal has."""
        return self.kind in (*_INTEGERS, *_FRACTIONS) or (
            self.kind is Kind.STRUCT
            and all(of.is_sample or of.is_timestamp for _, of in self.fields)
        )

    @property
    def is_of_structs(self) -> bool:
        """Whether the elements, or the samples of each segment, are structs."""
        return self.element is not None and self.element.kind is Kind.STRUCT

    @property
    def struct_fields(self) -> tuple[tuple[str, DataType], ...]:
        """The fields of structs, or of the structs that the samples of segments are."""
        of = self.element if self.kind is Kind.SIGNAL else self
        return () if of is None else of.fields

    @property
    def holds_null_type(self) -> bool:
        """Whether the type is NULL, or has parts of this type."""
        parts = [of for _, of in self.fields] if self.element is None else [self.element]
        return self.kind is Kind.NULL or any(of.holds_null_type for of in parts)

    @property
    def is_timestamp(self) -> bool:
        return self.kind in _TIMESTAMPS

    @property
    def can_progress(self) -> bool:
        """Whether a column of this type can be a window attribute."""
        return self.kind in _PROGRESSING

    def __str__(self) -> str:
        if self.kind is Kind.DECIMAL:
            return f"decimal({self.declared or self.precision},{self.scale})"
        if self.element is not None:
            return f"{self.kind.value}<{self.element}>"
        if self.fields:
            return f"struct<{','.join(f'{name}:{kind}' for name, kind in self.fields)}>"
        return str(self.kind.value)

    @property
    def with_limit(self) -> str:
        """The type, with its limit, for messages about values that do not fit."""
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
            case Kind.ARRAY | Kind.SIGNAL:
                assert self.element is not None
                element = self.element.to_arrow()
                return pa.list_(pa.field("element", element, nullable=self.contains_null))
            case Kind.STRUCT:
                return pa.struct([pa.field(name, kind.to_arrow()) for name, kind in self.fields])


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
    """DECIMAL(precision, scale): up to 38 declared digits, at most 18 digits in a value."""
    declared = precision if precision > MAX_DECIMAL_DIGITS else 0
    return DataType(Kind.DECIMAL, min(precision, MAX_DECIMAL_DIGITS), scale, declared=declared)


def char(length: int) -> DataType:
    """CHAR(length): text of exactly ``length`` characters."""
    return DataType(Kind.STRING, length=length)


def array(element: DataType, *, contains_null: bool = False) -> DataType:
    """An array of ``element`` values; with ``contains_null``, some of them may be NULL."""
    return DataType(Kind.ARRAY, element=element, contains_null=contains_null)


def struct(fields: tuple[tuple[str, DataType], ...]) -> DataType:
    """A struct of the ``fields`` (at least one), each with its name and type."""
    return DataType(Kind.STRUCT, fields=fields)


def signal(sample: DataType, samples: int = 0, rate: tuple[int, int] | None = None) -> DataType:
    """Segments of a signal: ``sample`` values at regular times. Results have them as lists."""
    return DataType(Kind.SIGNAL, element=sample, samples=samples, rate=rate)


#: A complex sample: the real and the imaginary part.
COMPLEX = struct((("re", DOUBLE), ("im", DOUBLE)))
#: The timebase of a segment (``executor.kernels.signals.timebase``): sample ``i`` is
#: (i * per + phase) / rate seconds behind ``origin``, which is in nanoseconds since 1970.
TIMEBASE = struct(tuple((name, BIGINT) for name in ("rate", "per", "origin", "phase")))


def list_of(kind: DataType) -> DataType:
    """The type that the segments of a signal have in results and tables; others stay."""
    if kind.kind is not Kind.SIGNAL or kind.element is None:
        return kind
    return array(kind.element)


def from_arrow(arrow: pa.DataType) -> DataType | None:
    """The engine's type for an Arrow type; None where no column can hold it."""
    import pyarrow.types as t

    if t.is_dictionary(arrow):
        return from_arrow(arrow.value_type)
    if t.is_timestamp(arrow):
        return TIMESTAMP if arrow.tz is not None else TIMESTAMP_NTZ
    if t.is_decimal128(arrow):
        return decimal(arrow.precision, arrow.scale)
    if t.is_list(arrow) or t.is_large_list(arrow) or t.is_fixed_size_list(arrow):
        element = from_arrow(arrow.value_type)
        nullable = arrow.value_field.nullable
        return None if element is None else array(element, contains_null=nullable)
    if t.is_struct(arrow):
        return _struct_from_arrow(arrow)
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


def _struct_from_arrow(arrow: pa.StructType) -> DataType | None:
    """None if it has no fields, two fields of one name, or a field that no column can hold."""
    found: list[tuple[str, DataType]] = []
    for field_ in arrow:
        kind = from_arrow(field_.type)
        if kind is None:
            return None
        found.append((field_.name, kind))
    names = {name.lower() for name, _ in found}
    return struct(tuple(found)) if found and len(names) == len(found) else None
