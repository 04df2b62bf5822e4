"""Type rules: casts, common types and decimals, as Spark's ANSI mode has them.

One deviation: decimal values have at most 18 digits. If the type of a computed result needs more
digits, the type keeps its scale and is cut to 18 digits; a value that does not fit fails at run
time. A value that is only passed on (a column, a minimum or maximum, a branch of CASE, a row of
UNION) keeps the digits of its declared type, up to 38.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce

from cql.base.types import (
    BIGINT,
    BINARY,
    DATE,
    DOUBLE,
    MAX_DECIMAL_DIGITS,
    NULL,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    Kind,
    decimal,
)
from cql.errors import BindError, NotSupportedError, Position
from cql.planner.interpret.interpreter import EvaluationError, evaluate
from cql.planner.nodes.expr import Cast, Expr, Literal
from cql.planner.nodes.rewrite import replace

_WIDTHS = (Kind.TINYINT, Kind.SMALLINT, Kind.INT, Kind.BIGINT)
_DIGITS = {Kind.TINYINT: 3, Kind.SMALLINT: 5, Kind.INT: 10, Kind.BIGINT: MAX_DECIMAL_DIGITS}
_TIMES = (Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ)


def capped(precision: int, scale: int, pos: Position | None) -> DataType:
    """The decimal type, cut to 18 digits. Raises NotSupportedError for a scale above 18 digits."""
    if scale > MAX_DECIMAL_DIGITS:
        raise NotSupportedError(
            f"the exact result needs {scale} decimal places, and a decimal has "
            f"{MAX_DECIMAL_DIGITS} digits",
            position=pos,
            hint="cast an operand to a decimal of a smaller scale, or to double",
        )
    return decimal(max(1, min(precision, MAX_DECIMAL_DIGITS)), scale)


def as_decimal(expr: Expr) -> DataType:
    """The decimal type that holds an exact number; for an integer literal, it has as many digits as
    the literal."""
    kind = expr.type.kind
    if kind is Kind.DECIMAL:
        return expr.type
    if isinstance(expr, Literal) and expr.value is not None:
        return decimal(min(MAX_DECIMAL_DIGITS, len(str(abs(int(expr.value))))), 0)
    return decimal(_DIGITS[kind], 0)


def widest_decimal(a: DataType, b: DataType) -> DataType:
    """The decimal type for both: all digits after the point, and as many digits before the point as
    fit."""
    scale = max(a.scale, b.scale)
    whole = max(a.precision - a.scale, b.precision - b.scale)
    made = decimal(min(MAX_DECIMAL_DIGITS, whole + scale), scale)
    return max((made, *(t for t in (a, b) if t == made)), key=_declared)


def widest(a: DataType, b: DataType) -> DataType:
    """Of two equal types the one that holds the values of both: more digits, NULL in arrays,
    segments of any length."""
    if a.kind is Kind.SIGNAL:
        samples = a.samples if a.samples == b.samples else 0
        return replace(a, samples=samples, rate=a.rate if a.rate == b.rate else None)
    if not a.is_nested:
        return max(a, b, key=_declared)
    if a.element is not None and b.element is not None:
        contains_null = a.contains_null or b.contains_null
        return replace(a, element=widest(a.element, b.element), contains_null=contains_null)
    pairs = zip(a.fields, b.fields, strict=True)
    return replace(a, fields=tuple((name, widest(x, y)) for (name, x), (_, y) in pairs))


def _declared(kind: DataType) -> int:
    return kind.declared


def _numeric_pair(a: DataType, b: DataType) -> DataType:
    if a.is_integer and b.is_integer:
        return a if _WIDTHS.index(a.kind) >= _WIDTHS.index(b.kind) else b
    if a.is_fraction or b.is_fraction:
        return DOUBLE  # also for float with another number: neither type holds the other
    exact = [t if t.kind is Kind.DECIMAL else decimal(_DIGITS[t.kind], 0) for t in (a, b)]
    return widest_decimal(*exact)


def _text_pair(other: DataType) -> DataType | None:
    """The common type of a string and another type: the string is converted, not the other
    value."""
    if other.is_integer:
        return BIGINT
    if other.is_numeric:
        return DOUBLE
    return None if other.kind is Kind.INTERVAL or other.is_nested else other


def _nested_pair(a: DataType, b: DataType) -> DataType | None:
    """The common type of two arrays, or of two structs with the same names."""
    names = [n for n, _ in a.fields]
    pairs = parts_of(a, b)
    if pairs is None or names != [n for n, _ in b.fields]:
        return None
    kinds = [_pair(x, y) for x, y in pairs]
    found = [kind for kind in kinds if kind is not None]
    if len(found) < len(kinds):
        return None
    if a.element is not None:
        return replace(a, element=found[0], contains_null=a.contains_null or b.contains_null)
    return replace(a, fields=tuple(zip(names, found, strict=True)))


def _pair(a: DataType | None, b: DataType | None) -> DataType | None:
    if a is None or b is None:
        return None
    if a == b:
        return widest(a, b)
    if b.kind is Kind.NULL:
        return a
    if a.kind is Kind.NULL:
        return b
    if a.is_nested and b.is_nested:
        return _nested_pair(a, b)
    if a.is_numeric and b.is_numeric:
        return _numeric_pair(a, b)
    if a.kind is Kind.STRING or b.kind is Kind.STRING:
        return _text_pair(b if a.kind is Kind.STRING else a)
    if a.kind in _TIMES and b.kind in _TIMES:
        return TIMESTAMP if TIMESTAMP in (a, b) else TIMESTAMP_NTZ
    return None


def common_type(types: Iterable[DataType]) -> DataType | None:
    """The type that values of all ``types`` can be converted to; None if there is none."""
    start: DataType | None = NULL
    return reduce(_pair, types, start)


def _typed(expr: Expr, beside_decimal: bool) -> DataType:
    narrow = beside_decimal and isinstance(expr, Literal) and expr.type.is_integer
    return as_decimal(expr) if narrow else expr.type


def common_type_of(exprs: Sequence[Expr]) -> DataType | None:
    """``common_type`` of expressions. With a decimal among them, an integer literal counts as a
    decimal with the literal's digits."""
    decimals = any(e.type.kind is Kind.DECIMAL for e in exprs)
    return common_type(_typed(e, decimals) for e in exprs)


def unify(
    exprs: Sequence[Expr], pos: Position | None, what: str, *, own_digits: bool = False
) -> list[Expr]:
    """``exprs`` cast to their common type. ``what`` names the place in the error message.
    ``own_digits`` (comparisons): see ``common_type_of``. Raises BindError without a common type."""
    to = common_type_of(exprs) if own_digits else common_type(e.type for e in exprs)
    if to is None:
        types = ", ".join(dict.fromkeys(str(e.type) for e in exprs))
        raise BindError(
            f"{what} needs values of one type, not {types}",
            position=pos,
            hint=_hint_of_types(exprs),
        )
    if not own_digits:
        return [cast(e, to, pos) for e in exprs]
    constant = all(isinstance(e, Literal) for e in exprs)
    return [_comparable(e, to, pos, constant) for e in exprs]


def _hint_of_types(exprs: Sequence[Expr]) -> str:
    segments = [e.type.kind is Kind.SIGNAL for e in exprs]
    if all(segments):
        return "arithmetic makes segments of doubles: x * 1"
    if any(segments):
        return "take a function of the segment, such as max(x) or x[0]"
    return "CAST the ones that differ"


def _comparable(expr: Expr, to: DataType, pos: Position | None, constant: bool) -> Expr:
    """``expr`` as ``to``, for a comparison. A literal with more digits than a decimal holds becomes
    ±10**18, so that all values of the column stay below or above the literal."""
    if expr.type == to:
        return expr
    made = cast(expr, to, pos)
    if constant or to.kind is not Kind.DECIMAL or not isinstance(expr, Literal):
        return made
    if not isinstance(made, Cast) or not isinstance(expr.value, int):
        return made
    sign = 1 if expr.value > 0 else -1
    return Literal(sign * 10**MAX_DECIMAL_DIGITS, to, expr.pos)


def castable(source: DataType, to: DataType) -> bool:
    """Whether a CAST between the types exists (Spark's ANSI table)."""
    a, b = source.kind, to.kind
    if source == to or a is Kind.NULL:
        return True
    if source.is_nested and to.is_nested:
        pairs = parts_of(source, to)
        return pairs is not None and all(castable(x, y) for x, y in pairs)
    if source.is_nested:
        return b is Kind.STRING and all(castable(x, to) for x in _parts(source))
    if b is Kind.NULL or to.is_nested or Kind.SIGNAL in (a, b):
        return False
    if a is Kind.STRING:
        return b is not Kind.INTERVAL
    if b is Kind.STRING:
        return True
    if a in _TIMES and b in _TIMES:
        return True
    if a is Kind.BOOLEAN or b is Kind.BOOLEAN:
        return source.is_numeric or to.is_numeric
    if source.is_numeric and to.is_numeric:
        return True
    if a is Kind.TIMESTAMP:
        return to.is_integer or to.is_fraction
    return b is Kind.TIMESTAMP and (source.is_integer or source.is_fraction)


def _parts(kind: DataType) -> list[DataType]:
    return [*(of for _, of in kind.fields), *([kind.element] if kind.element is not None else [])]


def parts_of(source: DataType, to: DataType) -> list[tuple[DataType, DataType]] | None:
    """The types of elements or fields of two nested types; None if the types are not alike. (Fields
    stand in one order; their names may differ.)"""
    mine, theirs = _parts(source), _parts(to)
    alike = source.kind is to.kind and len(mine) == len(theirs)
    return list(zip(mine, theirs, strict=True)) if alike else None


def cast_can_fail(source: DataType, to: DataType) -> bool:
    """Whether the cast to ``to`` fails for some value of ``source``."""
    a, b = source.kind, to.kind
    if source == to or a is Kind.NULL:
        return False
    if source.is_nested:
        pairs = parts_of(source, to) or [(x, to) for x in _parts(source)]
        return any(cast_can_fail(x, y) for x, y in pairs)
    if b in (Kind.STRING, Kind.BOOLEAN):
        return a is Kind.BINARY or a is Kind.STRING
    if a is Kind.STRING:
        return b is not Kind.BINARY
    if b is Kind.DECIMAL:
        whole = to.precision - to.scale
        if a is Kind.DECIMAL:
            grown = source.precision - source.scale + (source.scale > to.scale)
            return whole < grown
        return not source.is_integer or whole < (19 if a is Kind.BIGINT else _DIGITS[a])
    if to.is_integer:
        if source.is_integer:
            return _WIDTHS.index(b) < _WIDTHS.index(a)
        if a is Kind.DECIMAL:
            return source.precision - source.scale >= _DIGITS[b]
        return not (a is Kind.BOOLEAN or (a is Kind.TIMESTAMP and b is Kind.BIGINT))
    if b in _TIMES:
        if a is Kind.DATE:
            return True  # no timestamp holds a date of the year 300,000
        return source.is_numeric
    return False


def _implicit(expr: Expr, to: DataType) -> bool:
    """Whether a function argument is cast to ``to`` implicitly (ANSI)."""
    source = expr.type
    a, b = source.kind, to.kind
    if source.is_nested:
        return False
    if a is Kind.NULL or b is Kind.STRING:
        return True
    if a is Kind.STRING:
        return isinstance(expr, Literal) or to == BINARY
    if source.is_integer and to.is_integer:
        return _WIDTHS.index(b) >= _WIDTHS.index(a)
    if source.is_numeric and to.is_numeric:
        return to.is_fraction or (source.is_integer and b is Kind.DECIMAL)
    return a in _TIMES and b in _TIMES


def cast(
    expr: Expr, to: DataType, pos: Position | None, *, safe: bool = False, implicit: bool = False
) -> Expr:
    """``expr`` as ``to``. Converts a literal immediately; a literal that does not convert stays a
    Cast, which fails at run time. ``safe`` is TRY_CAST. ``implicit`` allows only the implicit casts
    of function arguments. Raises BindError at ``pos`` if there is no such cast. The Cast node has
    the position of ``expr``."""
    if expr.type == to:
        if expr.type.is_nested or to.kind is Kind.SIGNAL:
            return replace(expr, type=to)
        if expr.type.declared != to.declared:
            if isinstance(expr, Literal):
                return replace(expr, type=to)
            return Cast(expr, to, expr.nullable, safe, expr.pos or pos)
        return replace(expr, type=to) if expr.type.length and not to.length else expr
    if not castable(expr.type, to):
        raise BindError(
            f"cannot cast {expr.type} to {to}", position=pos, hint=_detour(expr.type, to)
        )
    if implicit and not _implicit(expr, to):
        raise BindError(
            f"expected {to}, not {expr.type}", position=pos, hint=f"CAST(… AS {to}) says so"
        )
    nullable = expr.nullable or (safe and cast_can_fail(expr.type, to))
    made = Cast(expr, to, nullable, safe, expr.pos or pos)
    if isinstance(expr, Literal):
        try:
            return Literal(evaluate(made, ()), to, expr.pos or pos)
        except EvaluationError:
            return made
    return made


def _detour(source: DataType, to: DataType) -> str | None:
    if to.is_nested:
        return None
    if source.is_numeric and to == DATE:
        return "date_add(DATE '1970-01-01', n) counts days"
    if to.kind is Kind.INTERVAL and source.is_numeric:
        return "multiply: n * INTERVAL 1 SECOND"
    if source.kind is Kind.INTERVAL and to.is_numeric:
        return "subtract numbers instead of timestamps: unix_micros(b) - unix_micros(a)"
    if source.kind is Kind.DATE and to.is_numeric:
        return "datediff(d, DATE '1970-01-01') counts days"
    if source.kind is Kind.DECIMAL and to.is_timestamp:
        return "CAST(CAST(x AS DOUBLE) AS TIMESTAMP)"
    return f"CAST(CAST(… AS {STRING}) AS {to}) goes through text" if source.is_text else None
