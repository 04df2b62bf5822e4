"""Typed expressions, and clauses of streams, as short SQL text, for plans and error messages."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Sequence

from cql.base.model import Schema
from cql.base.types import BIGINT, TIMEBASE, DataType, Kind
from cql.planner.interpret.nested import parts_of
from cql.planner.nodes.catalog import Refresh
from cql.planner.nodes.expr import Call, Case, Cast, Column, Expr, Literal, substitute

INFIX = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "int_div": "DIV",
    "mod": "%",
    "eq": "=",
    "ne": "<>",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "null_safe_eq": "<=>",
    "is_distinct_from": "IS DISTINCT FROM",
    "and": "AND",
    "or": "OR",
    "like": "LIKE",
    "ilike": "ILIKE",
    "rlike": "RLIKE",
    "bit_and": "&",
    "bit_or": "|",
    "bit_xor": "^",
    "samples_add": "+",
    "samples_sub": "-",
    "samples_mul": "*",
    "samples_div": "/",
}
_EPOCH = datetime.date(1970, 1, 1)


def labels(*sides: Schema) -> list[list[str]]:
    """The column names of each side of a join; a name that occurs more than once is qualified with
    the name of its relation."""
    names = Counter(f.name.lower() for side in sides for f in side)
    labelled = [
        [f"{f.of}.{f.name}" if f.of and names[f.name.lower()] > 1 else f.name for f in side]
        for side in sides
    ]
    same = len(sides) > 1 and all(one == labelled[0] for one in labelled)  # a self-join
    return [list(side.names) for side in sides] if same else labelled


def show_of(expr: Expr, names: Sequence[str]) -> str:
    """``expr`` as text, with ``names`` as the names of its columns."""
    columns = [Column(k, name, BIGINT) for k, name in enumerate(names)]
    return show(substitute(expr, tuple(columns)))


def quoted(name: str) -> str:
    """A name as a query writes it: in backquotes, unless it is a word."""
    return name if name.isidentifier() else "`" + name.replace("`", "``") + "`"


def show(expr: Expr) -> str:
    """``expr`` as text; nested operators in parentheses."""
    match expr:
        case Column():
            return expr.name
        case Literal():
            return _literal(expr)
        case Cast():
            word = "TRY_CAST" if expr.safe else "CAST"
            return f"{word}({show(expr.arg)} AS {expr.type})"
        case Case():
            parts = [f"WHEN {show(c)} THEN {show(v)}" for c, v in expr.branches]
            if expr.otherwise is not None:
                parts.append(f"ELSE {show(expr.otherwise)}")
            return f"CASE {' '.join(parts)} END"
        case Call():
            return _call(expr)


def _call(call: Call) -> str:
    args = [_operand(a) for a in call.args]
    if call.fn in INFIX and len(args) >= 2:
        return f" {call.word or INFIX[call.fn]} ".join(args)
    match call.fn:
        case "neg":
            return f"-{args[0]}"
        case "not":
            return f"NOT {args[0]}"
        case "bit_not":
            return f"~{args[0]}"
        case "is_null":
            return f"{args[0]} IS NULL"
        case "is_not_null":
            return f"{args[0]} IS NOT NULL"
        case "in_list":
            return f"{args[0]} IN ({', '.join(args[1:])})"
        case "item" | "sample":
            return f"{args[0]}[{show(call.args[1])}]"
        case "field" | "samples_field":
            number = call.args[1]
            assert isinstance(number, Literal)
            assert isinstance(number.value, int)
            of = call.args[0].type.element or call.args[0].type
            return f"{args[0]}.{of.fields[number.value][0]}"
        case "timebase_word":
            number = call.args[1]
            assert isinstance(number, Literal)
            assert isinstance(number.value, int)
            return f"timebase({args[0]}).{TIMEBASE.fields[number.value][0]}"
        case "samples_struct":
            return f"struct({', '.join(show(a) for a in call.args)})"
    return f"{call.fn}({', '.join(show(a) for a in call.args)})"


def _operand(expr: Expr) -> str:
    nested = isinstance(expr, Call) and (expr.fn in INFIX or expr.fn in ("not", "in_list"))
    return f"({show(expr)})" if nested else show(expr)


def _literal(literal: Literal) -> str:
    value = literal.value
    match literal.type.kind, value:
        case _, None:
            return "NULL"
        case _, bool():
            return "TRUE" if value else "FALSE"
        case Kind.DECIMAL, int():
            sign, digits = "-" if value < 0 else "", str(abs(value)).zfill(literal.type.scale + 1)
            point = len(digits) - literal.type.scale
            return f"{sign}{digits[:point]}.{digits[point:]}".rstrip(".")
        case Kind.INTERVAL, int():
            return _interval(value)
        case Kind.DATE, int():
            try:
                return f"DATE '{_EPOCH + datetime.timedelta(value)}'"
            except OverflowError:
                return f"date({value})"
        case ((Kind.TIMESTAMP | Kind.TIMESTAMP_NTZ), int()):
            start = datetime.datetime(1970, 1, 1)
            try:
                return f"TIMESTAMP '{start + datetime.timedelta(microseconds=value)}'"
            except OverflowError:
                return f"timestamp_micros({value})"
        case Kind.ARRAY | Kind.STRUCT | Kind.SIGNAL, bytes():
            return _nested(value, literal.type)
        case _, bytes():
            return f"X'{value.hex().upper()}'"
        case _, str():
            return "'" + value.replace("'", "''") + "'"
    return repr(value)


def _nested(entry: bytes, kind: DataType) -> str:
    parts = [show(Literal(value, of)) for value, of in parts_of(entry, kind)]
    if kind.element is not None:
        return f"array({', '.join(parts)})"
    pairs = zip(parts, kind.fields, strict=True)
    return f"struct({', '.join(f'{part} AS {name}' for part, (name, _) in pairs)})"


def refresh_clause(items: Sequence[Refresh]) -> str:
    """``REFRESH k = 1 EVERY 1 MINUTE, EVERY 5 SECONDS``."""
    return "REFRESH " + ", ".join(
        " ".join(filter(None, (i.condition, "EVERY", _length(i.every)))) for i in items
    )


_UNITS = {
    "DAY": 86_400_000_000,
    "HOUR": 3_600_000_000,
    "MINUTE": 60_000_000,
    "SECOND": 1_000_000,
    "MILLISECOND": 1_000,
    "MICROSECOND": 1,
}


def _interval(micros: int) -> str:
    """The interval as text, in the largest unit that divides it."""
    return f"INTERVAL {_length(micros)}"


def _length(micros: int) -> str:
    unit = next(u for u, size in _UNITS.items() if micros % size == 0) if micros else "SECOND"
    count = micros // _UNITS[unit]
    return f"{count} {unit}{'' if count == 1 else 'S'}"
