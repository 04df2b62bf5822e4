"""Types the calls of operators and conditional functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from cql.base.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    INTERVAL,
    NULL,
    STRING,
    TIMESTAMP,
    DataType,
    Kind,
    decimal,
)
from cql.errors import BindError, NotSupportedError, Position
from cql.planner.functions.char_padding import padded
from cql.planner.functions.coercion import as_decimal, capped, cast, common_type_of, unify
from cql.planner.functions.signals import is_segment, of_samples
from cql.planner.functions.signature import (
    Builder,
    Signature,
    argument,
    check_ordered,
    refuse_segment,
    strict,
    wrong,
)
from cql.planner.nodes.expr import Call, Case, Expr, Literal
from cql.planner.nodes.show import INFIX

MAX_LIST = 256
DAY = 86_400_000_000


def is_time(expr: Expr) -> bool:
    return expr.type.is_timestamp or expr.type.kind is Kind.DATE


def is_interval(expr: Expr) -> bool:
    return expr.type.kind is Kind.INTERVAL


# -- arithmetic --------------------------------------------------------------------------------


def _numbers(fn: str, args: tuple[Expr, ...], pos: Position | None) -> tuple[Expr, Expr, DataType]:
    """Both operands, and their common number type (text beside a number is converted). Raises
    BindError if there is no such type."""
    a, b = args
    to = common_type_of((a, b))
    if to == NULL:
        to = INT if fn != "div" else DOUBLE
    if to is None or not to.is_numeric:
        given = f"{args[0].type} and {args[1].type}"
        raise BindError(
            f"{_symbol(fn)} does not take {given}",
            position=pos,
            hint="it takes numbers; timestamps and dates take + and - an INTERVAL",
        )
    return a, b, to


def _symbol(fn: str) -> str:
    return INFIX.get(fn, fn)


def _same_scale(a: Expr, b: Expr, pos: Position | None) -> tuple[Expr, Expr, DataType, DataType]:
    """Two exact numbers as decimals of one scale, and their original decimal types."""
    left, right = as_decimal(a), as_decimal(b)
    scale = max(left.scale, right.scale)
    scaled = [capped(t.precision - t.scale + scale, scale, pos) for t in (left, right)]
    return cast(a, scaled[0], pos), cast(b, scaled[1], pos), left, right


def _decimal_call(fn: str, a: Expr, b: Expr, pos: Position | None) -> Expr:
    if fn == "mul":
        left, right = as_decimal(a), as_decimal(b)
        to = capped(left.precision + right.precision + 1, left.scale + right.scale, pos)
        return strict(fn, (cast(a, left, pos), cast(b, right, pos)), to, pos)
    if fn == "div":
        left, right = as_decimal(a), as_decimal(b)
        to = _quotient(left, right, pos)
        return strict(fn, (cast(a, left, pos), cast(b, right, pos)), to, pos)
    a, b, left, right = _same_scale(a, b, pos)
    scale = max(left.scale, right.scale)
    if fn == "int_div":
        return strict(fn, (a, b), BIGINT, pos)
    whole = (left.precision - left.scale, right.precision - right.scale)
    if fn in ("mod", "pmod"):
        # A result of mod has no more digits than either operand; of pmod, than the divisor.
        to = decimal(min(18, (min(whole) if fn == "mod" else whole[1]) + scale), scale)
    else:
        to = capped(max(whole) + scale + 1, scale, pos)
    return strict(fn, (a, b), to, pos)


def _quotient(left: DataType, right: DataType, pos: Position | None) -> DataType:
    """Spark's type of a decimal division, with 18 digits in place of 38: if the digits do not fit,
    the type has fewer digits after the point, but at least six. Raises NotSupportedError if the
    division needs more than 36 digits on the way."""
    scale = max(6, left.scale + right.precision + 1)
    whole = left.precision - left.scale + right.scale
    if whole + scale > 18:
        scale = max(18 - whole, min(scale, 6))
    if scale - left.scale + right.scale > 18:
        raise NotSupportedError(
            f"{left} / {right} needs more than 36 digits on the way",
            position=pos,
            hint="cast the divisor to a smaller scale, or divide doubles",
        )
    return decimal(min(18, whole + scale), scale)


def arithmetic(fn: str) -> Callable[[tuple[Expr, ...], Position | None], Expr]:
    def build(args: tuple[Expr, ...], pos: Position | None) -> Expr:
        if any(map(is_segment, args)):
            return of_samples(fn, args, pos)
        timed = _time_arithmetic(fn, args, pos)
        if timed is not None:
            return timed
        a, b, to = _numbers(fn, args, pos)
        if fn == "div" and to.is_integer:
            whole = strict("int_div", (cast(a, to, pos), cast(b, to, pos)), to, pos)
            return replace(whole, word="/")
        if fn == "int_div" and not to.is_fraction:
            to = BIGINT if to.is_integer else to
        elif fn == "int_div":
            raise BindError(
                "DIV takes whole numbers and decimals", position=pos, hint="a / b divides doubles"
            )
        if to.kind is Kind.DECIMAL:
            return _decimal_call(fn, a, b, pos)
        return strict(fn, (cast(a, to, pos), cast(b, to, pos)), to, pos)

    return build


def _time_arithmetic(fn: str, args: tuple[Expr, ...], pos: Position | None) -> Expr | None:
    """Arithmetic with dates, timestamps and intervals; None for other operands."""
    a, b = args
    if fn == "add" and (is_time(b) or (is_interval(b) and not is_interval(a) and not is_time(a))):
        a, b = b, a
    if is_time(a):
        return _from_time(fn, a, b, pos)
    if is_interval(a) and fn in ("add", "sub"):
        if b.type.kind is Kind.NULL or is_interval(b):
            return strict(fn, (a, cast(b, INTERVAL, pos)), INTERVAL, pos)
        return None
    if fn == "mul" and is_interval(b):
        a, b = b, a
    if is_interval(a) and fn in ("mul", "div") and (b.type.is_numeric or b.type == NULL):
        if fn == "mul" and (b.type.is_fraction or b.type.kind is Kind.DECIMAL):
            raise NotSupportedError(
                "an interval times a fraction is not exact",
                position=pos,
                hint="multiply by a whole number, or divide: INTERVAL 3 SECONDS / 2",
            )
        number = cast(
            b, DOUBLE if b.type.is_fraction or b.type.kind is Kind.DECIMAL else BIGINT, pos
        )
        return strict(fn, (a, number), INTERVAL, pos)
    return None


def _from_time(fn: str, a: Expr, b: Expr, pos: Position | None) -> Expr | None:
    if fn == "sub" and is_time(b):
        to = common_type_of((a, b))
        if to == DATE:
            to = TIMESTAMP
        assert to is not None
        return strict("sub", (cast(a, to, pos), cast(b, to, pos)), INTERVAL, pos)
    if fn not in ("add", "sub"):
        return None
    if is_interval(b):
        constant = b.value if isinstance(b, Literal) else None
        if a.type == DATE and isinstance(constant, int) and constant % DAY == 0:
            days = Literal(constant // DAY, INT, b.pos)
            return strict("date_add" if fn == "add" else "date_sub", (a, days), DATE, pos)
        moved = cast(a, TIMESTAMP, pos) if a.type == DATE else a
        return strict(fn, (moved, b), moved.type, pos)
    if a.type == DATE and (b.type.is_integer or b.type == NULL):
        usage = "date + days (int)"
        count = argument(b, INT, usage, 2, pos) if b.type != INT else b
        return strict("date_add" if fn == "add" else "date_sub", (a, count), DATE, pos)
    if b.type == NULL:
        return strict(fn, (a, cast(b, INTERVAL, pos)), a.type, pos)
    raise BindError(
        f"{_symbol(fn)} does not take {a.type} and {b.type}",
        position=pos,
        hint="write the unit: ts + INTERVAL 5 SECONDS",
    )


def negate(args: tuple[Expr, ...], pos: Position | None) -> Expr:
    (a,) = args
    if is_segment(a):
        return of_samples("mul", (a, Literal(-1.0, DOUBLE, pos)), pos)
    if a.type.kind is Kind.STRING:
        a = cast(a, DOUBLE, pos)
    if a.type == NULL:
        a = cast(a, INT, pos)
    if not (a.type.is_numeric or is_interval(a)):
        raise wrong("-(number or interval)", args, pos)
    if isinstance(a, Literal) and isinstance(a.value, int | float):
        return _negated(a, pos or a.pos)
    return strict("neg", (a,), a.type, pos)


def _negated(a: Literal, pos: Position | None) -> Expr:
    """The negated literal. The negation of a type's least value stays a call, which overflows at
    run time."""
    assert isinstance(a.value, int | float)
    if a.type == BIGINT and a.value == 1 << 31:
        return Literal(-(1 << 31), INT, pos)  # 2147483648 alone is a bigint
    bits = {Kind.TINYINT: 8, Kind.SMALLINT: 16, Kind.INT: 32}.get(a.type.kind, 64)
    if not a.type.is_fraction and a.value == -(1 << (bits - 1)):
        return strict("neg", (a,), a.type, pos)
    return Literal(-a.value, a.type, pos)


def bitwise(fn: str) -> Callable[[tuple[Expr, ...], Position | None], Expr]:
    def build(args: tuple[Expr, ...], pos: Position | None) -> Expr:
        to = common_type_of(args)
        to = INT if to == NULL else to
        if to is None or not to.is_integer:
            given = " and ".join(str(a.type) for a in args)
            raise BindError(
                f"{_symbol(fn)} does not take {given}", position=pos, hint="it takes whole numbers"
            )
        return strict(fn, [cast(a, to, pos) for a in args], to, pos)

    return build


def shift(fn: str) -> Callable[[tuple[Expr, ...], Position | None], Expr]:
    usage = f"{fn}(int or bigint, bits int)"

    def build(args: tuple[Expr, ...], pos: Position | None) -> Expr:
        a = argument(args[0], BIGINT if args[0].type == BIGINT else INT, usage, 1, pos)
        return strict(fn, (a, argument(args[1], INT, usage, 2, pos)), a.type, pos)

    return build


# -- comparison and logic ----------------------------------------------------------------------


def comparison(fn: str) -> Callable[[tuple[Expr, ...], Position | None], Expr]:
    """The builder of a comparison that pads CHAR columns."""
    raw = raw_comparison(fn)
    return lambda args, pos: raw(padded(args), pos)


def raw_comparison(fn: str) -> Callable[[tuple[Expr, ...], Position | None], Expr]:
    """The builder of a comparison without padding: Spark pads no CHAR in BETWEEN and nullif."""

    def build(args: tuple[Expr, ...], pos: Position | None) -> Expr:
        a, b = unify(args, pos, _symbol(fn), own_digits=True)
        refuse_segment(a, _symbol(fn), pos)
        if fn in ("null_safe_eq", "is_distinct_from"):
            return Call(fn, (a, b), BOOLEAN, False, pos)
        if fn not in ("eq", "ne"):
            check_ordered(a, _symbol(fn), pos)
        return strict(fn, (a, b), BOOLEAN, pos)

    return build


def logic(fn: str) -> Callable[[tuple[Expr, ...], Position | None], Expr]:
    def build(args: tuple[Expr, ...], pos: Position | None) -> Expr:
        usage = f"{fn.upper()}(boolean, …)"
        typed = [argument(a, BOOLEAN, usage, k, pos) for k, a in enumerate(args, 1)]
        return strict(fn, typed, BOOLEAN, pos)

    return build


def null_test(fn: str) -> Callable[[tuple[Expr, ...], Position | None], Expr]:
    return lambda args, pos: Call(fn, args, BOOLEAN, False, pos)


def in_list(args: tuple[Expr, ...], pos: Position | None) -> Expr:
    """IN of (value, candidates…): a list of literals stays a list, other candidates become
    comparisons joined by OR. Raises NotSupportedError for too many candidates."""
    if len(args) - 1 > MAX_LIST:
        raise NotSupportedError(
            f"IN takes at most {MAX_LIST} values, not {len(args) - 1}",
            position=pos,
            hint="compare with a range, or keep the values in a table",
        )
    typed = unify(padded(args), pos, "IN", own_digits=True)
    if all(isinstance(a, Literal) for a in typed[1:]):
        return strict("in_list", typed, BOOLEAN, pos)
    tests = [strict("eq", (typed[0], a), BOOLEAN, pos) for a in typed[1:]]
    return tests[0] if len(tests) == 1 else strict("or", tests, BOOLEAN, pos)


# -- conditional -------------------------------------------------------------------------------


def coalesce(args: tuple[Expr, ...], pos: Position | None) -> Expr:
    typed = unify(args, pos, "COALESCE")
    first = next((k for k, a in enumerate(typed) if not a.nullable), None)
    typed = typed if first is None else typed[: first + 1]
    typed = [a for a in typed if not (isinstance(a, Literal) and a.value is None)] or typed[:1]
    if len(typed) == 1:
        return typed[0]
    return Call("coalesce", tuple(typed), typed[0].type, all(a.nullable for a in typed), pos)


def case(
    branches: tuple[tuple[Expr, Expr], ...], otherwise: Expr | None, pos: Position | None
) -> Expr:
    """A searched CASE; casts conditions to boolean and values to their common type."""
    values = [v for _, v in branches] + ([] if otherwise is None else [otherwise])
    typed = unify(values, pos, "CASE")
    conditions = [argument(c, BOOLEAN, "CASE(WHEN boolean THEN …)", 1, pos) for c, _ in branches]
    last = typed[len(branches)] if otherwise is not None else None
    nullable = last is None or any(v.nullable for v in typed)
    pairs = tuple(zip(conditions, typed[: len(branches)], strict=True))
    return Case(pairs, last, typed[0].type, nullable, pos)


def if_(args: tuple[Expr, ...], pos: Position | None) -> Expr:
    return case(((args[0], args[1]),), args[2], pos)


def nullif(args: tuple[Expr, ...], pos: Position | None) -> Expr:
    a, b = args
    same = raw_comparison("eq")((a, b), pos)
    return Case(((same, Literal(None, a.type, pos)),), a, a.type, True, pos)


def nvl2(args: tuple[Expr, ...], pos: Position | None) -> Expr:
    return case(((Call("is_not_null", args[:1], BOOLEAN, False, pos), args[1]),), args[2], pos)


def extreme(fn: str) -> Callable[[tuple[Expr, ...], Position | None], Expr]:
    def build(args: tuple[Expr, ...], pos: Position | None) -> Expr:
        typed = unify(args, pos, fn)
        check_ordered(typed[0], fn, pos)
        return Call(fn, tuple(typed), typed[0].type, all(a.nullable for a in typed), pos)

    return build


def nanvl(args: tuple[Expr, ...], pos: Position | None) -> Expr:
    typed = [argument(a, DOUBLE, "nanvl(x, if_nan)", k, pos) for k, a in enumerate(args, 1)]
    return case(((Call("isnan", (typed[0],), BOOLEAN, False, pos), typed[1]),), typed[0], pos)


# -- text --------------------------------------------------------------------------------------


def concat(args: tuple[Expr, ...], pos: Position | None) -> Expr:
    usage = "concat(text, …)"
    binary = all(a.type.kind is Kind.BINARY for a in args)
    to = args[0].type if binary else STRING
    typed = [argument(a, to, usage, k, pos) for k, a in enumerate(args, 1)]
    return typed[0] if len(typed) == 1 else strict("concat", typed, to, pos)


def _operator(
    name: str, usage: str, help: str, arity: tuple[int, int | None], build: Builder
) -> Signature:
    return Signature(name, "operator", usage, help, arity, build)


OPERATORS: tuple[Signature, ...] = (
    *(
        _operator(name, f"a {symbol} b", help, (2, 2), arithmetic(name))
        for name, symbol, help in (
            ("add", "+", "Sum; also date + days, timestamp + interval."),
            ("sub", "-", "Difference; of timestamps an interval."),
            ("mul", "*", "Product; also interval * whole number."),
            ("div", "/", "Quotient; of whole numbers truncated to a whole number."),
            ("int_div", "DIV", "Whole part of the quotient, as bigint."),
            ("mod", "%", "Remainder, with the sign of the dividend."),
        )
    ),
    *(
        _operator(name, f"a {symbol} b", help, (2, 2), comparison(name))
        for name, symbol, help in (
            ("eq", "=", "Equal (NaN equals NaN)."),
            ("ne", "<>", "Not equal."),
            ("lt", "<", "Less; NaN is above all numbers, text compares by its UTF-8 bytes."),
            ("le", "<=", "Less or equal."),
            ("gt", ">", "Greater."),
            ("ge", ">=", "Greater or equal."),
            ("null_safe_eq", "<=>", "Equal, where two NULLs are equal."),
            ("is_distinct_from", "IS DISTINCT FROM", "Not equal, where two NULLs are equal."),
        )
    ),
    *(
        _operator(name, f"a {symbol} b", help, (2, 2), bitwise(name))
        for name, symbol, help in (
            ("bit_and", "&", "Bits set in both."),
            ("bit_or", "|", "Bits set in either."),
            ("bit_xor", "^", "Bits set in one of them."),
        )
    ),
    _operator("bit_not", "~a", "Bits flipped.", (1, 1), bitwise("bit_not")),
    _operator("neg", "-a", "Negated number or interval.", (1, 1), negate),
    _operator("and", "a AND b", "Both; b is not evaluated when a is false.", (2, None),
              logic("and")),
    _operator("or", "a OR b", "Either; b is not evaluated when a is true.", (2, None), logic("or")),
    _operator("not", "NOT a", "Negation.", (1, 1), logic("not")),
    _operator("is_null", "a IS NULL", "Whether a is NULL.", (1, 1), null_test("is_null")),
    _operator("is_not_null", "a IS NOT NULL", "Whether a is not NULL.", (1, 1),
              null_test("is_not_null")),
    _operator("in_list", "a IN (x, …)", "Whether a is one of the values.", (2, None), in_list),
)  # fmt: skip
