"""Functions over texts that are computed in blocks give the interpreter's values, row by row."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cql.base.types import BIGINT, BINARY, BOOLEAN, INT, STRING, DataType
from cql.executor.texts import evaluate as blocks
from cql.executor.texts.column import FAILED, NULL, VALID, Column, Texts, texts_of
from cql.executor.texts.evaluate import evaluate_block
from cql.executor.texts.functions import (
    build,
    case,
    hexadecimal,
    measure,
    regular_expressions,
    search,
    slices,
)
from cql.executor.texts.functions.table import BLOCKS
from cql.planner.interpret.interpreter import EvaluationError, evaluate
from cql.planner.interpret.text import MAX_REPEAT
from cql.planner.nodes.expr import Call, Expr, Literal, Value
from cql.planner.nodes.expr import Column as ColumnOf

TEXT, OTHER, NUMBER, WIDE, RAW = (
    ColumnOf(k, name, kind)
    for k, (name, kind) in enumerate(
        [("s", STRING), ("t", STRING), ("n", INT), ("m", BIGINT), ("b", BINARY)]
    )
)
_KINDS = (STRING, STRING, INT, BIGINT, BINARY)
_PIECES = (
    *"abcdefXYZ019 %_./=&?-",
    *"  ab",
    *"éÉßİıΣσςÿŸµǅŉΐẞǆſK",
    *"漢字ｚＺⱥȺ",
    *"😀𐐀𐐨🀄",
    "e\u0301",
    "\u0307",
    "\0",
    "\n",
    "ΑΣ ",
    "user=",
    "aa",
)


def _text(rng: random.Random, most: int = 12) -> str:
    size = rng.choice([0, 1, 2, rng.randrange(most), rng.randrange(most)])
    if rng.random() < 0.4:
        return "".join(rng.choice("abcXYZ019 %_./=&?") for _ in range(size))
    return "".join(rng.choice(_PIECES) for _ in range(size))


def _column(values: list[Value], kind: DataType) -> Column:
    status = np.array([NULL if v is None else VALID for v in values], np.uint8)
    if kind.is_text:
        arrow = pa.array(values, pa.string() if kind == STRING else pa.binary())
        return Column(texts_of(arrow), status)
    return Column(np.array([v or 0 for v in values], kind.storage), status)


def _rows(rng: random.Random, n: int) -> list[list[Value]]:
    def value(kind: DataType) -> Value:
        if rng.random() < 0.1:
            return None
        if kind == STRING:
            return _text(rng, rng.choice([12, 40, 300]))
        if kind == BINARY:
            return rng.randbytes(rng.randrange(70))
        if kind == INT:
            return rng.choice(
                [rng.randrange(-6, 12), rng.randrange(-99, 400), 0, 2**31 - 1, -(2**31)]
            )
        return rng.choice([rng.randrange(-300, 600), rng.randrange(-(2**63), 2**63)])

    return [[value(kind) for kind in _KINDS] for _ in range(n)]


def _block(rows: list[list[Value]]) -> list[Column]:
    return [_column([row[k] for row in rows], kind) for k, kind in enumerate(_KINDS)]


def _expected(expr: Expr, row: list[Value]) -> tuple[Value, int]:
    try:
        value = evaluate(expr, row)
    except EvaluationError:
        return None, FAILED
    return value, NULL if value is None else VALID


def _value(made: Column, i: int, kind: DataType) -> Value:
    if isinstance(made.values, Texts):
        raw = made.values.text(i)
        return raw.decode() if kind == STRING else raw
    found: Value = made.values[i].item()
    return bool(found) if kind == BOOLEAN else found


def _check(expr: Call, rows: list[list[Value]]) -> None:
    made = evaluate_block(expr, _block(rows))
    assert len(made) == len(made.values) == len(rows)
    if isinstance(made.values, Texts):
        texts = made.values
        assert (texts.starts >= 0).all()
        assert (texts.starts <= texts.ends).all()
        assert (texts.ends <= texts.data.size).all()
    else:
        assert made.values.dtype == (np.uint8 if expr.type == BOOLEAN else expr.type.storage)
    for i, row in enumerate(rows):
        value, status = _expected(expr, row)
        assert made.status[i] == status, (expr, row)
        if status == VALID:
            assert _value(made, i, expr.type) == value, (expr, row)


# -- random calls ----------------------------------------------------------------------------------


def _number(rng: random.Random) -> Expr:
    if rng.random() < 0.3:
        return NUMBER
    n = rng.choice([rng.randrange(-6, 9), rng.randrange(-40, 120), 0, 1, 2**31 - 1, -(2**31)])
    return Literal(n, INT)


def _few(rng: random.Random) -> Expr:
    """A number of repetitions."""
    return Literal(rng.choice([-1, 0, 1, 2, 7, 40, MAX_REPEAT + 1]), INT)


def _width(rng: random.Random) -> Expr:
    return Literal(rng.choice([-1, 0, 1, 7, 40, 301, MAX_REPEAT + 1]), INT)


def _part(rng: random.Random) -> Literal:
    return Literal(_text(rng, 4), STRING)


def _either(rng: random.Random) -> Expr:
    """A part, or now and then a column."""
    return rng.choice(
        [_part(rng), _part(rng), OTHER, Call("left", (OTHER, Literal(1, INT)), STRING)]
    )


def _pattern(rng: random.Random) -> Literal:
    pieces = [_text(rng, 3).replace("\\", "") for _ in range(rng.randrange(1, 4))]
    return Literal(rng.choice(["%", "_", ""]).join(["", *pieces, ""]), STRING)


def _expression(rng: random.Random) -> Literal:
    return Literal(rng.choice(["a+", "[a-c]([^=]*)", "(é|X)(.)?", "^(.)", "=([^&]*)"]), STRING)


def _optional(rng: random.Random, *more: Expr) -> tuple[Expr, ...]:
    return more if rng.random() < 0.6 else ()


def _texts(rng: random.Random, text: Expr) -> tuple[Expr, ...]:
    some = [text, OTHER, Literal(_text(rng, 4), STRING), Literal(rng.choice(["", ", "]), STRING)]
    return tuple(rng.choice(some) for _ in range(rng.randrange(2, 6)))


Arguments = Callable[[random.Random, Expr], tuple[Expr, ...]]
_STRINGS: dict[str, Arguments] = {
    "substring": lambda r, s: (s, _number(r), *_optional(r, _number(r))),
    "left": lambda r, s: (s, _number(r)),
    "right": lambda r, s: (s, _number(r)),
    "trim": lambda r, s: (s, *_optional(r, _part(r))),
    "ltrim": lambda r, s: (s, *_optional(r, _part(r))),
    "rtrim": lambda r, s: (s, *_optional(r, _part(r))),
    "split_part": lambda r, s: (s, _either(r), _number(r)),
    "chr": lambda r, s: (WIDE,),
    "upper": lambda r, s: (s,),
    "lower": lambda r, s: (s,),
    "initcap": lambda r, s: (s,),
    "reverse": lambda r, s: (s,),
    "repeat": lambda r, s: (s, _few(r)),
    "lpad": lambda r, s: (s, _width(r), *_optional(r, _part(r))),
    "rpad": lambda r, s: (s, _width(r), *_optional(r, _part(r))),
    "replace": lambda r, s: (s, _either(r), *_optional(r, _either(r))),
    "translate": lambda r, s: (s, Literal(_text(r, 14), STRING), Literal(_text(r, 9), STRING)),
    "concat": _texts,
    "concat_ws": lambda r, s: (r.choice([OTHER, _part(r), Literal(None, STRING)]), *_texts(r, s)),
    "hex": lambda r, s: (s,),
    "regexp_extract": lambda r, s: (s, _expression(r), Literal(r.randrange(2), INT)),
    "regexp_replace": lambda r, s: (
        s,
        _expression(r),
        Literal(r.choice(["", "漢", "$0-"]), STRING),
    ),
}
_OTHERS: dict[str, tuple[DataType, Arguments]] = {
    "length": (INT, lambda r, s: (r.choice([s, RAW]),)),
    "octet_length": (INT, lambda r, s: (r.choice([s, RAW]),)),
    "ascii": (INT, lambda r, s: (s,)),
    "locate": (INT, lambda r, s: (_either(r), s, *_optional(r, _number(r)))),
    "unhex": (BINARY, lambda r, s: (r.choice([s, Call("hex", (s,), STRING)]),)),
    "like": (BOOLEAN, lambda r, s: (s, _pattern(r))),
    "ilike": (BOOLEAN, lambda r, s: (s, _pattern(r), *_optional(r, Literal("X", STRING)))),
    "contains": (BOOLEAN, lambda r, s: (s, _either(r))),
    "startswith": (BOOLEAN, lambda r, s: (s, _either(r))),
    "endswith": (BOOLEAN, lambda r, s: (s, _either(r))),
    "rlike": (BOOLEAN, lambda r, s: (s, _expression(r))),
}


def _call(rng: random.Random, name: str, text: Expr = TEXT) -> Call:
    if name in _STRINGS:
        return Call(name, _STRINGS[name](rng, text), STRING)
    kind, arguments = _OTHERS[name]
    return Call(name, arguments(rng, text), kind)


def test_every_function_has_random_calls() -> None:
    modules = (build, case, hexadecimal, measure, regular_expressions, search, slices)
    named = [name for module in modules for name in module.BLOCKS]
    assert sorted(named) == sorted([*_STRINGS, *_OTHERS])
    assert set(named) <= set(BLOCKS)


@pytest.mark.parametrize("name", [*_STRINGS, *_OTHERS])
def test_calls(name: str, seed: int, full: bool) -> None:
    rng = random.Random(f"{name} {seed}")
    for _ in range(60 if full else 6):
        _check(_call(rng, name), _rows(rng, 200))
    _check(_call(rng, name), [])


def test_binaries(seed: int, full: bool) -> None:
    rng = random.Random(seed)
    some = [RAW, Literal(b"\xff\x00", BINARY), Call("unhex", (TEXT,), BINARY)]
    for _ in range(20 if full else 3):
        rows = _rows(rng, 100)
        parts = tuple(rng.choice(some) for _ in range(3))
        joined = Call("concat", parts, BINARY)
        for call in (joined, Call("hex", (joined,), STRING), Call("length", (joined,), INT)):
            _check(call, rows)
        _check(Call("hex", (WIDE,), STRING), rows)


def test_calls_of_calls(seed: int, full: bool) -> None:
    """The argument of a function may be slices that overlap and are not in order, with failed
    rows."""
    rng = random.Random(seed)
    inner = [name for name in _STRINGS if name != "repeat"]
    count, rows = (100_000, 6) if full else (60, 30)
    for _ in range(count):
        text: Expr = TEXT
        for _ in range(rng.randrange(1, 3)):
            text = _call(rng, rng.choice(inner), text)
        _check(_call(rng, rng.choice([*inner, *_OTHERS]), text), _rows(rng, rows))


@pytest.mark.parametrize("name", ["upper", "lower", "initcap"])
def test_the_case_of_every_character(name: str) -> None:
    change = {"upper": str.upper, "lower": str.lower, "initcap": str.title}[name]
    some = [chr(c) for c in range(sys.maxunicode + 1) if not 0xD800 <= c < 0xE000]
    near, far = some[:0x20000], some[0x20000:]
    texts = near + ["".join(far[k : k + 100]) for k in range(0, len(far), 100)]
    made = evaluate_block(Call(name, (TEXT,), STRING), [_column([*texts], STRING)])
    assert isinstance(made.values, Texts)
    assert (made.status == VALID).all()
    for i, text in enumerate(texts):
        assert made.values.text(i).decode() == change(text), text


def test_the_longest_texts() -> None:
    """The interpreter's limit counts characters; blocks leave longer texts to it."""
    rows: list[list[Value]] = [["é", None, 0, 0, b""], ["", None, 0, 0, b""]]
    n = Literal(MAX_REPEAT, INT)
    _check(Call("repeat", (TEXT, n), STRING), rows)
    _check(Call("length", (Call("lpad", (TEXT, n, Literal("é", STRING)), STRING),), INT), rows)


def test_a_literal_null_gives_null() -> None:
    rows = _rows(random.Random(1), 20)
    none = Literal(None, STRING)
    for call in (Call("concat", (TEXT, none), STRING), Call("replace", (TEXT, none), STRING)):
        _check(call, rows)


# -- no Python for common calls --------------------------------------------------------------------


def _s(text: str) -> Literal:
    return Literal(text, STRING)


def _n(number: int) -> Literal:
    return Literal(number, INT)


_COMMON: list[Call] = [
    *(
        Call(name, (TEXT, *more), STRING)
        for name, more in [
            ("upper", ()),
            ("lower", ()),
            ("initcap", ()),
            ("reverse", ()),
            ("trim", ()),
            ("ltrim", (_s("/G"),)),
            ("rtrim", (_s("01"),)),
            ("left", (_n(7),)),
            ("right", (_n(7),)),
            ("left", (NUMBER,)),
            ("substring", (_n(5), _n(9))),
            ("substring", (_n(-9),)),
            ("substring", (NUMBER, NUMBER)),
            ("split_part", (_s(" "), _n(2))),
            ("split_part", (_s("/"), _n(-1))),
            ("split_part", (OTHER, _n(1))),
            ("replace", (_s("user="), _s("u:"))),
            ("replace", (OTHER, _s(""))),
            ("translate", (_s("&=?"), _s("  "))),
            ("repeat", (_n(3),)),
            ("repeat", (NUMBER,)),
            ("lpad", (_n(150),)),
            ("rpad", (_n(150), _s("-+"))),
            ("concat", (_s("-"), OTHER)),
            ("concat_ws", (OTHER, TEXT)),
            ("hex", ()),
            ("regexp_extract", (_s("user=([^&]*)"), _n(1))),
            ("regexp_replace", (_s("[0-9]+"), _s("N"))),
        ]
    ),
    Call("concat_ws", (_s("-"), TEXT, OTHER, TEXT), STRING),
    Call("chr", (WIDE,), STRING),
    Call("hex", (WIDE,), STRING),
    Call("hex", (RAW,), STRING),
    Call("unhex", (Call("hex", (TEXT,), STRING),), BINARY),
    *(
        Call(name, args, INT)
        for name, args in [
            ("length", (TEXT,)),
            ("length", (RAW,)),
            ("octet_length", (TEXT,)),
            ("ascii", (TEXT,)),
            ("locate", (_s("q="), TEXT)),
            ("locate", (OTHER, TEXT, NUMBER)),
        ]
    ),
    *(
        Call(name, (TEXT, _s(part)), BOOLEAN)
        for name, part in [
            ("like", "GET%user=%"),
            ("ilike", "get%_USER=%"),
            ("contains", "user=u7"),
            ("startswith", "GET"),
            ("endswith", "1.1"),
            ("rlike", "item/[0-9]+"),
        ]
    ),
    Call("contains", (TEXT, OTHER), BOOLEAN),
    Call("startswith", (TEXT, OTHER), BOOLEAN),
    Call("endswith", (TEXT, OTHER), BOOLEAN),
]


@pytest.mark.parametrize("call", _COMMON, ids=lambda call: call.fn)
def test_python_computes_no_row(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> Any:
        raise AssertionError(f"Python computes {call.fn}")

    rows: list[list[Value]] = [
        [f"GET /item/{k}?user=u{k % 7}&q=abc HTTP/1.1", f"u{k}", k + 1, k, bytes([k])]
        for k in range(90)
    ]
    _check(call, rows)
    monkeypatch.setattr(blocks, "evaluate", refused)
    evaluate_block(call, _block(rows))
