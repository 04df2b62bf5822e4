"""The functions that users call by name: mathematics, date and time, text, conditional."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from cql.base.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    INTERVAL,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    Kind,
    decimal,
)
from cql.errors import BindError, Position, did_you_mean
from cql.planner.functions import operators as ops
from cql.planner.functions.coercion import cast
from cql.planner.functions.signature import (
    Builder,
    Signature,
    argument,
    fixed,
    literal_int,
    literal_text,
    strict,
    wrong,
)
from cql.planner.interpret.datetime_patterns import check_pattern
from cql.planner.interpret.interpreter import EvaluationError
from cql.planner.interpret.text import like_segments, rlike
from cql.planner.interpret.time import DAY, MICROS, MONTHS
from cql.planner.nodes.expr import Call, Expr, Literal

PI, E = 3.141592653589793, 2.718281828459045
UNITS = {
    "year": ("year", "years", "yyyy", "yy", "y"),
    "quarter": ("quarter", "quarters", "qtr"),
    "month": ("month", "months", "mon", "mons", "mm"),
    "week": ("week", "weeks"),
    "day": ("day", "days", "dd", "d", "dayofyear"),
    "hour": ("hour", "hours", "h"),
    "minute": ("minute", "minutes", "min", "mins", "m"),
    "second": ("second", "seconds", "sec", "secs", "s"),
    "millisecond": ("millisecond", "milliseconds", "ms"),
    "microsecond": ("microsecond", "microseconds", "us"),
}
_UNIT = {word: unit for unit, words in UNITS.items() for word in words}
_PARTS = {
    **{word: unit for word, unit in _UNIT.items() if unit != "microsecond"},
    "w": "week",
    "dow": "dayofweek",
    "dayofweek": "dayofweek",
    "doy": "dayofyear",
    "dayofyear": "dayofyear",
    "dayofmonth": "day",
    "epoch": "epoch",
}
_LENGTHS = {"week": 7 * DAY, **MICROS}
_CLOCK = ("hour", "minute", "second", "millisecond")


# -- mathematics -------------------------------------------------------------------------------


def _number(expr: Expr, usage: str, pos: Position | None) -> Expr:
    """The argument of a function that keeps its number type; text is converted to a double."""
    if expr.type.is_numeric:
        return expr
    return argument(expr, DOUBLE, usage, 1, pos)


def _abs(args: tuple[Expr, ...], pos: Position | None) -> Expr:
    a = args[0] if ops.is_interval(args[0]) else _number(args[0], "abs(number)", pos)
    return strict("abs", (a,), a.type, pos)


def _toward(fn: str) -> Builder:
    def build(args: tuple[Expr, ...], pos: Position | None) -> Expr:
        a = _number(args[0], f"{fn}(number)", pos)
        if a.type.is_integer:
            return cast(a, BIGINT, pos)
        if a.type.kind is Kind.DECIMAL:
            to = decimal(min(18, a.type.precision - a.type.scale + 1), 0)
            return strict(fn, (a,), to, pos)
        return strict(fn, (cast(a, DOUBLE, pos),), BIGINT, pos)

    return build


def _round(fn: str) -> Builder:
    usage = f"{fn}(number [, digits])"

    def build(args: tuple[Expr, ...], pos: Position | None) -> Expr:
        a = _number(args[0], usage, pos)
        digits = literal_int(args[1], "the number of digits", pos) if len(args) > 1 else 0
        if not -22 <= digits <= 22:
            raise BindError(f"{fn} rounds to -22 … 22 digits", position=pos)
        if digits < -18 and not a.type.is_fraction:
            raise BindError(f"{fn} rounds {a.type} to -18 … 18 digits", position=pos)
        if a.type.is_integer and digits >= 0:
            return a
        to = a.type
        if to.kind is Kind.DECIMAL:
            digits = min(digits, to.scale)
            whole = to.precision - to.scale + 1
            scale = max(digits, 0)
            to = decimal(min(18, max(whole, 1 - digits) + scale), scale)
        return strict(fn, (a, Literal(digits, INT, pos)), to, pos)

    return build


def _log(args: tuple[Expr, ...], pos: Position | None) -> Expr:
    usage = "log([base,] x)"
    typed = [argument(a, DOUBLE, usage, k, pos) for k, a in enumerate(args, 1)]
    return strict("log" if len(typed) == 2 else "ln", typed, DOUBLE, pos, nullable=True)


def _isnan(args: tuple[Expr, ...], pos: Position | None) -> Expr:
    return Call("isnan", (argument(args[0], DOUBLE, "isnan(x)", 1, pos),), BOOLEAN, False, pos)


def _reals(*functions: tuple[str, str]) -> tuple[Signature, ...]:
    return tuple(
        fixed(name, "math", f"{name}(x)", help, (DOUBLE,), DOUBLE, nullable=name.startswith("l"))
        for name, help in functions
    )


def _constant(name: str, value: float, help: str) -> Signature:
    return Signature(
        name, "math", f"{name}()", help, (0, 0), lambda args, pos: Literal(value, DOUBLE, pos)
    )


MATH: tuple[Signature, ...] = (
    Signature("abs", "math", "abs(number)", "Without its sign.", (1, 1), _abs),
    Signature("ceil", "math", "ceil(number)", "Least whole number above or at x.", (1, 1),
              _toward("ceil")),
    Signature("floor", "math", "floor(number)", "Largest whole number below or at x.", (1, 1),
              _toward("floor")),
    Signature("round", "math", "round(number [, digits])", "Rounded, ties away from zero.", (1, 2),
              _round("round")),
    Signature("bround", "math", "bround(number [, digits])", "Rounded, ties to even.", (1, 2),
              _round("bround")),
    *_reals(
        ("sqrt", "Square root; NaN below zero."),
        ("cbrt", "Cube root."),
        ("exp", "e to the power x."),
        ("ln", "Natural logarithm; NULL at and below zero."),
        ("log2", "Logarithm to base 2; NULL at and below zero."),
        ("log10", "Logarithm to base 10; NULL at and below zero."),
        ("sign", "-1.0, 0.0 or 1.0."),
        ("sin", "Sine."),
        ("cos", "Cosine."),
        ("tan", "Tangent."),
        ("asin", "Inverse sine."),
        ("acos", "Inverse cosine."),
        ("atan", "Inverse tangent."),
        ("sinh", "Hyperbolic sine."),
        ("cosh", "Hyperbolic cosine."),
        ("tanh", "Hyperbolic tangent."),
        ("degrees", "Radians to degrees."),
        ("radians", "Degrees to radians."),
    ),
    fixed("atan2", "math", "atan2(y, x)", "Angle of the point (x, y).", (DOUBLE, DOUBLE), DOUBLE),
    fixed("pow", "math", "pow(x, y)", "x to the power y.", (DOUBLE, DOUBLE), DOUBLE),
    Signature("log", "math", "log([base,] x)", "Logarithm, natural without a base.", (1, 2), _log),
    _constant("pi", PI, "The circle's number."),
    _constant("e", E, "Euler's number."),
    Signature("pmod", "math", "pmod(a, b)", "Remainder that is not negative for positive b.",
              (2, 2), ops.arithmetic("pmod")),
    Signature("isnan", "math", "isnan(x)", "Whether x is NaN (false for NULL).", (1, 1), _isnan),
    Signature("nanvl", "math", "nanvl(x, if_nan)", "x, or the other where x is NaN.", (2, 2),
              ops.nanvl),
    Signature("shiftleft", "math", "shiftleft(number, bits)", "Bits shifted left.", (2, 2),
              ops.shift("shiftleft")),
    Signature("shiftright", "math", "shiftright(number, bits)", "Bits shifted right, signed.",
              (2, 2), ops.shift("shiftright")),
)  # fmt: skip


# -- date and time -----------------------------------------------------------------------------


def _zoned(expr: Expr, usage: str, number: int, pos: Position | None) -> Expr:
    """A timestamp argument: keeps either timestamp type, casts dates and constant text to
    timestamps."""
    if expr.type.is_timestamp:
        return expr
    return argument(expr, TIMESTAMP, usage, number, pos)


def _unit(expr: Expr, fn: str, pos: Position | None) -> str:
    word = literal_text(expr, f"the unit of {fn}", pos).lower()
    if word not in _UNIT:
        raise BindError(
            f"{fn} does not know the unit {word!r}",
            position=expr.pos or pos,
            hint=did_you_mean(word, _UNIT) or "units: " + ", ".join(UNITS),
        )
    return _UNIT[word]


def _date_trunc(args: tuple[Expr, ...], pos: Position | None) -> Expr:
    unit = _unit(args[0], "date_trunc", pos)
    at = _zoned(args[1], "date_trunc('unit', timestamp)", 2, pos)
    return strict("date_trunc", (Literal(unit, STRING, pos), at), at.type, pos)


def _whole_units(args: tuple[Expr, ...], pos: Position | None) -> Expr:
    """``timestampdiff(unit, start, end)``: whole units, rounded towards zero, as in Spark and
    Flink."""
    usage = "timestampdiff(unit, start, end)"
    unit = _unit(args[0], "timestampdiff (datediff)", pos)
    start, end = (_zoned(a, usage, k, pos) for k, a in enumerate(args[1:], 2))
    if unit in MONTHS:
        difference, size = strict("whole_months", (start, end), BIGINT, pos), MONTHS[unit]
    else:
        micros = [strict("unix_micros", (a,), BIGINT, pos) for a in (end, start)]
        difference, size = strict("sub", micros, BIGINT, pos), _LENGTHS[unit]
    return strict("int_div", (difference, Literal(size, BIGINT, pos)), BIGINT, pos)


def _moved(args: tuple[Expr, ...], pos: Position | None) -> Expr:
    """``timestampadd(unit, n, timestamp)``; a date becomes a timestamp, as in Spark."""
    usage = "timestampadd(unit, n, timestamp)"
    unit = _unit(args[0], "timestampadd (dateadd)", pos)
    count = argument(args[1], BIGINT, usage, 2, pos)
    at = _zoned(args[2], usage, 3, pos)
    if unit in MONTHS:
        months = ops.arithmetic("mul")(
            (cast(args[1], INT, pos), Literal(MONTHS[unit], INT, pos)), pos
        )
        return strict("timestamp_add_months", (at, months), at.type, pos)
    span = ops.arithmetic("mul")((Literal(_LENGTHS[unit], INTERVAL, pos), count), pos)
    return ops.arithmetic("add")((at, span), pos)


def _or_days(with_unit: Builder, days: Signature) -> Signature:
    """The signature of a function of dates that also has a form with three arguments, the first of
    which is a unit."""

    def build(args: tuple[Expr, ...], pos: Position | None) -> Expr:
        return with_unit(args, pos) if len(args) == 3 else days.build(args, pos)

    return replace(days, arity=(2, 3), build=build)


def _trunc(args: tuple[Expr, ...], pos: Position | None) -> Expr:
    unit = _unit(args[1], "trunc", pos)
    if unit not in ("year", "quarter", "month", "week"):
        raise BindError(
            f"trunc of a date takes year, quarter, month or week, not {unit}",
            position=pos,
            hint="date_trunc('hour', ts) cuts timestamps",
        )
    day = argument(args[0], DATE, "trunc(date, 'unit')", 1, pos)
    return strict("trunc", (day, Literal(unit, STRING, pos)), DATE, pos)


def _part(name: str) -> Builder:
    def build(args: tuple[Expr, ...], pos: Position | None) -> Expr:
        usage = f"{name}({'timestamp' if name in _CLOCK else 'date'})"
        at = _zoned(args[0], usage, 1, pos) if name in _CLOCK else args[0]
        return strict(
            name, (at if name in _CLOCK else argument(at, DATE, usage, 1, pos),), INT, pos
        )

    return build


def _extract(args: tuple[Expr, ...], pos: Position | None) -> Expr:
    word = literal_text(args[0], "the field of extract", pos).lower()
    if word not in _PARTS:
        raise BindError(
            f"extract does not know the field {word!r}",
            position=args[0].pos or pos,
            hint=did_you_mean(word, _PARTS) or "fields: " + ", ".join(sorted(set(_PARTS.values()))),
        )
    if word == "epoch":
        return _epoch(args[1], pos)
    return _part(_PARTS[word])(args[1:], pos)


def _epoch(at: Expr, pos: Position | None) -> Expr:
    """Seconds since 1970, or the seconds of an interval, with their fraction (as in PostgreSQL and
    DuckDB)."""
    if ops.is_interval(at):
        at = ops.arithmetic("add")((Literal(0, TIMESTAMP, pos), at), pos)
    micros = strict(
        "unix_micros", (_zoned(at, "extract(epoch FROM timestamp)", 1, pos),), BIGINT, pos
    )
    return strict("div", (cast(micros, DOUBLE, pos), Literal(1e6, DOUBLE, pos)), DOUBLE, pos)


def _unix(fn: str, name: str) -> Builder:
    def build(args: tuple[Expr, ...], pos: Position | None) -> Expr:
        at = _zoned(args[0], f"{name}(timestamp)", 1, pos)
        return strict(fn, (at,), BIGINT, pos)

    return build


def _unix_timestamp(args: tuple[Expr, ...], pos: Position | None) -> Expr:
    """Whole seconds since 1970, rounded towards zero, as in Spark (unix_seconds rounds down)."""
    micros = _unix("unix_micros", "unix_timestamp")(args, pos)
    return strict("int_div", (micros, Literal(1_000_000, BIGINT, pos)), BIGINT, pos)


def _pattern(expr: Expr, what: str, pos: Position | None, *, reading: bool) -> Expr:
    typed = argument(expr, STRING, what, 2, pos)
    if isinstance(typed, Literal) and isinstance(typed.value, str):
        try:
            check_pattern(typed.value, reading=reading)
        except EvaluationError as e:
            raise BindError(e.message, position=expr.pos or pos) from None
    return typed


def _to_time(fn: str, to: DataType) -> Builder:
    usage = f"{fn}(text [, pattern])"

    def build(args: tuple[Expr, ...], pos: Position | None) -> Expr:
        if len(args) == 1:
            a = args[0]
            if a.type.kind not in (Kind.NULL, Kind.STRING) and not ops.is_time(a):
                raise wrong(usage, args, pos)
            return cast(a, to, pos)
        text = argument(args[0], STRING, usage, 1, pos)
        return strict(fn, (text, _pattern(args[1], usage, pos, reading=True)), to, pos)

    return build


def _date_format(args: tuple[Expr, ...], pos: Position | None) -> Expr:
    usage = "date_format(timestamp, pattern)"
    at = _zoned(args[0], usage, 1, pos)
    return strict("date_format", (at, _pattern(args[1], usage, pos, reading=False)), STRING, pos)


def _timestamp_add_months(args: tuple[Expr, ...], pos: Position | None) -> Expr:
    usage = "timestamp_add_months(timestamp, months)"
    at = _zoned(args[0], usage, 1, pos)
    months = argument(args[1], INT, usage, 2, pos)
    return strict("timestamp_add_months", (at, months), at.type, pos)


def _time(name: str, usage: str, help: str, count: tuple[int, int], build: Builder) -> Signature:
    return Signature(name, "date and time", f"{name}({usage})", help, count, build)


def _fixed_time(
    name: str, usage: str, help: str, params: tuple[DataType, ...], to: DataType
) -> Signature:
    return fixed(name, "date and time", f"{name}({usage})", help, params, to)


TIME: tuple[Signature, ...] = (
    *(
        _time(name, usage, help, (1, 1), _part(name))
        for name, usage, help in (
            ("year", "date", "The year."),
            ("quarter", "date", "1 to 4."),
            ("month", "date", "1 to 12."),
            ("day", "date", "Day of the month."),
            ("dayofweek", "date", "1 (Sunday) to 7."),
            ("weekday", "date", "0 (Monday) to 6."),
            ("dayofyear", "date", "1 to 366."),
            ("week", "date", "ISO week, 1 to 53."),
            ("hour", "timestamp", "0 to 23."),
            ("minute", "timestamp", "0 to 59."),
            ("second", "timestamp", "0 to 59, without a fraction."),
            ("millisecond", "timestamp", "0 to 999, within the second."),
        )
    ),
    _time("extract", "field FROM timestamp", "One field of a date or timestamp.", (2, 2), _extract),
    _time("date_trunc", "'unit', timestamp", "Cut down to a unit.", (2, 2), _date_trunc),
    _time("trunc", "date, 'unit'", "A date cut down to a unit.", (2, 2), _trunc),
    _or_days(
        _moved, _fixed_time("date_add", "date, days", "Days later.", (DATE, INT), DATE)
    ),
    _fixed_time("date_sub", "date, days", "Days earlier.", (DATE, INT), DATE),
    _or_days(
        _whole_units,
        _fixed_time("datediff", "end, start", "Days between two dates.", (DATE, DATE), INT),
    ),
    _time("timestampdiff", "unit, start, end", "Whole units between; datediff and date_diff, too.",
          (3, 3), _whole_units),
    _time("timestampadd", "unit, n, timestamp", "Units later; dateadd and date_add, too.", (3, 3),
          _moved),
    _fixed_time("add_months", "date, months", "Months later.", (DATE, INT), DATE),
    _time("timestamp_add_months", "timestamp, months", "Months later, same time of day.", (2, 2),
          _timestamp_add_months),
    _fixed_time("last_day", "date", "Last day of the month.", (DATE,), DATE),
    _fixed_time("make_date", "year, month, day", "A date of its parts.", (INT, INT, INT), DATE),
    _time("unix_timestamp", "timestamp", "Seconds since 1970.", (1, 1),
          _unix_timestamp),
    _time("unix_seconds", "timestamp", "Seconds since 1970.", (1, 1),
          _unix("unix_seconds", "unix_seconds")),
    _time("unix_millis", "timestamp", "Milliseconds since 1970.", (1, 1),
          _unix("unix_millis", "unix_millis")),
    _time("unix_micros", "timestamp", "Microseconds since 1970.", (1, 1),
          _unix("unix_micros", "unix_micros")),
    _fixed_time("timestamp_seconds", "n", "Timestamp of seconds since 1970.", (BIGINT,), TIMESTAMP),
    _fixed_time("timestamp_millis", "n", "Timestamp of milliseconds.", (BIGINT,), TIMESTAMP),
    _fixed_time("timestamp_micros", "n", "Timestamp of microseconds.", (BIGINT,), TIMESTAMP),
    _time("to_date", "text [, pattern]", "Text as a date.", (1, 2), _to_time("to_date", DATE)),
    _time("to_timestamp", "text [, pattern]", "Text as a timestamp.", (1, 2),
          _to_time("to_timestamp", TIMESTAMP)),
    _time("to_timestamp_ntz", "text", "Text as a timestamp without time zone.", (1, 1),
          lambda args, pos: cast(args[0], TIMESTAMP_NTZ, pos)),
    _time("date_format", "timestamp, pattern", "A timestamp as text.", (2, 2), _date_format),
    _fixed_time("dayname", "date", "Mon to Sun.", (DATE,), STRING),
    _fixed_time("monthname", "date", "Jan to Dec.", (DATE,), STRING),
)  # fmt: skip


# -- text --------------------------------------------------------------------------------------


def _checked(expr: Expr, test: Callable[[str], object], pos: Position | None) -> None:
    """Tests a constant pattern while binding, so that an error has a position in the query."""
    if isinstance(expr, Literal) and isinstance(expr.value, str):
        try:
            test(expr.value)
        except EvaluationError as e:
            raise BindError(e.message, position=expr.pos or pos) from None


def like(fn: str) -> Builder:
    usage = f"text {fn.upper()} pattern [ESCAPE 'c']"

    def build(args: tuple[Expr, ...], pos: Position | None) -> Expr:
        typed = [argument(a, STRING, usage, k, pos) for k, a in enumerate(args, 1)]
        escape = "\\"
        if len(typed) == 3:
            escape = literal_text(typed[2], "ESCAPE", pos)
            if len(escape) != 1 or escape in "%_":
                raise BindError("ESCAPE is one character, not % or _", position=pos)
        _checked(typed[1], lambda p: like_segments(p, escape), pos)
        return strict(fn, typed, BOOLEAN, pos)

    return build


def _matching(fn: str, usage: str, params: tuple[DataType, ...], to: DataType) -> Builder:
    """A function whose second argument is a regular expression."""

    def build(args: tuple[Expr, ...], pos: Position | None) -> Expr:
        typed = [
            argument(a, p, usage, k, pos)
            for k, (a, p) in enumerate(zip(args, params, strict=False), 1)
        ]
        _checked(typed[1], lambda p: rlike("", p), pos)
        if fn == "regexp_extract" and len(typed) == 2:
            typed.append(Literal(1, INT, pos))
        return strict(fn, typed, to, pos)

    return build


def _sized(fn: str) -> Builder:
    def build(args: tuple[Expr, ...], pos: Position | None) -> Expr:
        if args[0].type.kind is Kind.BINARY:
            return strict(fn, args, INT, pos)
        if args[0].type.kind is Kind.SIGNAL and fn == "length":
            return strict("count", args, BIGINT, pos)
        return strict(fn, (argument(args[0], STRING, f"{fn}(text)", 1, pos),), INT, pos)

    return build


def _hex(args: tuple[Expr, ...], pos: Position | None) -> Expr:
    """hex() of the 64 bits of a whole number, or of the bytes of a text."""
    (arg,) = args
    if not arg.type.is_text:
        arg = argument(arg, BIGINT, "hex(whole number or text)", 1, pos)
    return strict("hex", (arg,), STRING, pos)


def _concat_ws(args: tuple[Expr, ...], pos: Position | None) -> Expr:
    typed = [argument(a, STRING, "concat_ws(separator, text, …)", k, pos)
             for k, a in enumerate(args, 1)]  # fmt: skip
    return Call("concat_ws", tuple(typed), STRING, typed[0].nullable, pos)


def _swapped(args: tuple[Expr, ...], pos: Position | None) -> Expr:
    """instr(text, part) as locate(part, text)."""
    typed = [argument(a, STRING, "instr(text, part)", k, pos) for k, a in enumerate(args, 1)]
    return strict("locate", typed[::-1], INT, pos)


def _text(
    name: str,
    usage: str,
    help: str,
    params: tuple[DataType, ...] = (STRING,),
    to: DataType = STRING,
    least: int | None = None,
) -> Signature:
    return fixed(name, "text", f"{name}({usage})", help, params, to, least=least)


def _built(name: str, usage: str, help: str, count: tuple[int, int | None], build: Builder) -> (
    Signature
):  # fmt: skip
    return Signature(name, "text", usage, help, count, build)


TEXT: tuple[Signature, ...] = (
    _text("upper", "text", "In capital letters."),
    _text("lower", "text", "In small letters."),
    _text("initcap", "text", "Each word with a capital letter."),
    _text("reverse", "text", "Backwards."),
    _built("length", "length(text)", "Characters (bytes of a binary).", (1, 1), _sized("length")),
    _built("octet_length", "octet_length(text)", "Bytes in UTF-8.", (1, 1), _sized("octet_length")),
    *(
        _text(name, "text [, characters]", f"Without spaces (or characters) {where}.",
              (STRING, STRING), least=1)
        for name, where in (("trim", "at both ends"), ("ltrim", "in front"), ("rtrim", "behind"))
    ),
    _text("substring", "text, from [, length]", "A part; counts from 1, from the end below 0.",
          (STRING, INT, INT), least=2),
    _text("left", "text, n", "The first n characters.", (STRING, INT)),
    _text("right", "text, n", "The last n characters.", (STRING, INT)),
    _built("concat", "concat(text, …)", "Joined; NULL if a part is.", (1, None), ops.concat),
    _built("concat_ws", "concat_ws(separator, text, …)", "Joined by a separator, without NULLs.",
           (1, None), _concat_ws),
    _text("replace", "text, old [, new]", "Every old replaced.", (STRING, STRING, STRING), least=2),
    _text("translate", "text, from, to", "Characters replaced one by one.",
          (STRING, STRING, STRING)),
    _text("repeat", "text, n", "n times over.", (STRING, INT)),
    _text("lpad", "text, length [, fill]", "Filled in front to a length.",
          (STRING, INT, STRING), least=2),
    _text("rpad", "text, length [, fill]", "Filled behind to a length.",
          (STRING, INT, STRING), least=2),
    _built("instr", "instr(text, part)", "Where the part starts, from 1; 0: nowhere.", (2, 2),
           _swapped),
    _text("locate", "part, text [, from]", "Where the part starts, from 1; 0: nowhere.",
          (STRING, STRING, INT), INT, least=2),
    _text("startswith", "text, part", "Whether it starts so.", (STRING, STRING), BOOLEAN),
    _text("endswith", "text, part", "Whether it ends so.", (STRING, STRING), BOOLEAN),
    _text("contains", "text, part", "Whether the part is in it.", (STRING, STRING), BOOLEAN),
    _text("split_part", "text, delimiter, n", "The n-th part, from 1; the last is -1.",
          (STRING, STRING, INT)),
    _text("ascii", "text", "Code point of the first character.", (STRING,), INT),
    _text("chr", "n", "The character of a code below 256.", (BIGINT,)),
    _built("hex", "hex(whole number or text)", "In hexadecimal digits.", (1, 1), _hex),
    fixed("unhex", "text", "unhex(text)", "The bytes of hexadecimal digits; NULL if it has others.",
          (STRING,), BINARY, nullable=True),
    _built("like", "text LIKE pattern", "% any text, _ any character.", (2, 3), like("like")),
    _built("ilike", "text ILIKE pattern", "LIKE without regard to case.", (2, 3), like("ilike")),
    _built("rlike", "text RLIKE pattern", "Whether a regular expression (RE2) is found in it.",
           (2, 2), _matching("rlike", "rlike(text, pattern)", (STRING, STRING), BOOLEAN)),
    _built("regexp_extract", "regexp_extract(text, pattern [, group])",
           "What a group of the expression (RE2) matched.", (2, 3),
           _matching("regexp_extract", "regexp_extract(text, pattern [, group])",
                     (STRING, STRING, INT), STRING)),
    _built("regexp_replace", "regexp_replace(text, pattern, replacement)",
           "All matches (RE2) replaced; $1 is a group.", (3, 3),
           _matching("regexp_replace", "regexp_replace(text, pattern, replacement)",
                     (STRING, STRING, STRING), STRING)),
)  # fmt: skip


# -- conditional -------------------------------------------------------------------------------

CONDITIONAL: tuple[Signature, ...] = tuple(
    Signature(name, "conditional", usage, help, count, build)
    for name, usage, help, count, build in (
        ("coalesce", "coalesce(a, …)", "The first that is not NULL.", (1, None), ops.coalesce),
        ("nullif", "nullif(a, b)", "NULL where a = b, else a.", (2, 2), ops.nullif),
        ("isnull", "isnull(a)", "Whether a is NULL.", (1, 1), ops.null_test("is_null")),
        ("isnotnull", "isnotnull(a)", "Whether a is not NULL.", (1, 1),
         ops.null_test("is_not_null")),
        ("nvl", "nvl(a, b)", "a, or b where a is NULL.", (2, 2), ops.coalesce),
        ("nvl2", "nvl2(a, b, c)", "b where a is not NULL, else c.", (3, 3), ops.nvl2),
        ("if", "if(condition, a, b)", "a where the condition holds, else b.", (3, 3), ops.if_),
        ("least", "least(a, b, …)", "The least that is not NULL.", (2, None), ops.extreme("least")),
        ("greatest", "greatest(a, b, …)", "The greatest that is not NULL.", (2, None),
         ops.extreme("greatest")),
    )
)  # fmt: skip

ALIASES: dict[str, str] = {
    "ceiling": "ceil",
    "power": "pow",
    "signum": "sign",
    "dayofmonth": "day",
    "weekofyear": "week",
    "day_of_week": "dayofweek",
    "date_diff": "datediff",
    "dateadd": "date_add",
    "date_part": "extract",
    "datepart": "extract",
    "ucase": "upper",
    "lcase": "lower",
    "char_length": "length",
    "character_length": "length",
    "len": "length",
    "btrim": "trim",
    "substr": "substring",
    "position": "locate",
    "char": "chr",
    "strpos": "instr",
    "regexp": "rlike",
    "regexp_like": "rlike",
    "starts_with": "startswith",
    "ends_with": "endswith",
    "ifnull": "nvl",
    "iff": "if",
    "cardinality": "size",
    "array_size": "size",
}
