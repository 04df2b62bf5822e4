"""Casts between texts and other types, texts of times and lists of texts are computed in blocks:
row by row the same values and failures as the interpreter's."""

from __future__ import annotations

import contextlib
import random
import struct
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest

from cql.base.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    SMALLINT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    TINYINT,
    DataType,
    Kind,
    decimal,
)
from cql.executor.morsel.morsel import stored_dtype
from cql.executor.texts import evaluate as blocks
from cql.executor.texts.column import FAILED, NULL, ODD, VALID, Column, Texts, texts_from
from cql.planner.interpret.datetime_patterns import date_format
from cql.planner.interpret.interpreter import EvaluationError, evaluate
from cql.planner.nodes.expr import Call, Cast, Expr, Literal, children
from cql.planner.nodes.expr import Column as ColumnOf

DECIMALS = (decimal(1, 0), decimal(10, 2), decimal(18, 0), decimal(18, 18), decimal(38, 20))
READ = (TINYINT, SMALLINT, INT, BIGINT, BOOLEAN, FLOAT, DOUBLE, DATE, TIMESTAMP, TIMESTAMP_NTZ)
READ += (BINARY, *DECIMALS)
WRITTEN = (TINYINT, SMALLINT, INT, BIGINT, BOOLEAN, FLOAT, DOUBLE, DATE, TIMESTAMP, TIMESTAMP_NTZ)
WRITTEN += (BINARY, *DECIMALS)

_WORDS = """
0 1 -1 +1 -0 +0 007 -000 127 128 -128 -129 32767 32768 -32768 -32769 2147483647 2147483648
-2147483648 -2147483649 9223372036854775807 9223372036854775808 -9223372036854775808
-9223372036854775809 +9223372036854775807 18446744073709551615 18446744073709551616
9999999999999999999 99999999999999999999 00000000000000000000000000000000000000000012
-000000000000000000009223372036854775808 1_000 1e5 1E5 1e+5 1e-5 1e 1e+ e5 . +. -.e1 .5 5. -.5 +5.
5.e1 .5e1 0.5 1.5 2.5 -0.5 -2.5 0.005 0.015 0.025 0.0049999999999999999999 0.00500000000000000000
0.995 9.995 99999999.994 99999999.995 99999999.9949999999999999999999999 -99999999.995 1.2.3 1..2
1e22 1e23 1e-22 1e-23 9007199254740992 9007199254740993 9007199254740993e3 9007199254740991e22
9007199254740991e-22 123456789012345678 1234567890123456789 12345678901234567890 0.1 0.2
0.30000000000000004 3.4028235e38 3.4028236e38 1e39 1.17549435e-38 1e-46 16777217 16777219
33554433.0000001 1.7976931348623157e308 1.7976931348623159e308 1e309 4.9e-324 2e-324 1e999999999
1e-999999999 1e1000000000 1e0000000001 0e999999999 0e-999999999 1e18 1e17 999999999999999999
999999999999999999.5 0.999999999999999999 0.9999999999999999995 .0000000000000000005
.00000000000000000049 inf -inf +inf Infinity -infinity nan NaN +nan -nan INF infinit in i n na t f
T F true false TRUE FALSE tRuE fAlSe y n Y N yes no YES NO truee tru yess ja 1.0 00 0x10 1d 1f
2024-01-01 2024-1-1 2024-01 2024 2024- 2024-1- 2024-01-1 2024-02-29 2023-02-29 1900-02-29
2000-02-29 2024-13-01 2024-00-01 2024-01-00 2024-01-32 2024-04-31 0001-01-01 0000-01-01
-0001-01-01 +2024-01-01 9999-12-31 10000-01-01 +10000-01-01 294247-01-10 294246-12-31
-290308-12-21 -290308-12-22 999-01-01 5881580-07-11 5881580-07-12 -5877641-06-23 -5877641-06-22
9999999-12-31 -9999999-01-01 12345678-01-01 2024-001-01 2024-01-001 20240101 2024/01/01
--2024-01-01 2024-01-01T 2024-01-01Tx 2024-01-01x 2024-01-01T10:30 2024-01-01T10:30:15
2024-01-01T10:30:15.123456 2024-01-01T10:30:15.1234567 2024-01-01T10:30:15.123456789
2024-01-01T10:30:15.1234567890 2024-01-01T10:30:15. 2024-01-01T10:30:15.1 2024-01-01T1:2:3
2024-01-01T24:00:00 2024-01-01T23:60:00 2024-01-01T23:59:60 2024-01-01T23:59:59.999999
2024-01-01T10 2024-01-01T10: 2024-01-01T10:30: 2024-01-01T10:30Z 2024-01-01T10:30:15Z 2024-01-01Z
2024-01-01T10:30:15.5Z 2024-01-01T10:30:15UTC 2024-01-01T10:30:15GMT 2024-01-01T10:30:15utc
2024-01-01T10:30:15+01:00 2024-01-01T10:30:15-05:30 2024-01-01T10:30:15+0530
2024-01-01T10:30:15+530 2024-01-01T10:30:15+5 2024-01-01T10:30:15+05 2024-01-01T10:30:15+5:30
2024-01-01T10:30:15+18:59 2024-01-01T10:30:15+19 2024-01-01T10:30:15+05:60
2024-01-01T10:30:15+05:3 2024-01-01T10:30:15+ 2024-01-01T10:30:15+12345 2024-01-01T10:30:15+05:
2024-01-01T10:30:15UTC+1 2024-01-01T10:30:15GMT-03:30 2024-01-01T10:30:15UTCZ 2024-01-01T10:30:15X
2024-01-01T10:30:15.+01 2024-01-01T10:30:15.25-08 1969-12-31T23:59:59.999999 1582-10-15
0001-01-01T00:00:00 9999-12-31T23:59:59.999999 294247-01-10T04:00:54.775807
294247-01-10T04:00:54.775808 -290308-12-21T19:59:05.224192 -290308-12-21T19:59:05.224191
-290308-12-21T19:59:05.224192+01:00 294247-01-10T04:00:54.775807-01:00
１２３ ２０２４-01-01 １.５ ٣ ½ 1² ı
ſ İnf ñ 🙂 a ab 2024-01-01T１0:30
"""
PLAIN = [*_WORDS.split(), "\u212a"]
SPACED = [
    "",
    " ",
    "\t",
    "\x00",
    "\x7f",
    "\x1f \x7f",
    "\u00a0",
    "\u3000",
    "\x00 1\x7f\x0b",
    "1\u00a0",
]
SPACED += [
    "- 1",
    "+ 1",
    "1 2",
    "1\x002",
    "2024-01-01 10:30",
    "2024-01-01 10:30:15",
    "2024-01-01 10:30 Z",
]
SPACED += [
    "2024-01-01 10:30:15.5 +01:00",
    "2024-01-01 10:30:15  Z",
    "2024-01-01 \n\u3000",
    "2024 01",
]
SPACED += [
    f"{left}{x}{right}" for x in PLAIN[::5] for left, right in ((" ", ""), ("\n\x00", "\x7f "))
]
HOSTILE = PLAIN + SPACED
ALPHABET = "0123456789" * 3 + "+-.eE:TZ /_ " + "tfynoinfaUTCGM" + "\x00\x7f\té１"
INTEGERS = [0, 1, -1, 9, 10, 99, 100, 10**18 - 1, 1 - 10**18, 2**63 - 1, -(2**63), 2**53, 10**18]
DAYS = [0, -1, 19782, 2932896, 2932897, -719162, -719163, -719528, -719529, 2**31 - 1, -(2**31)]
MICROS = [d * 86_400_000_000 + t for d in DAYS[:-2] for t in (0, 1, -1, 100, 10**6, 45_296_123_450)]
MICROS += [2**63 - 1, -(2**63)]
REALS = [
    0.0,
    1.0,
    1.5,
    0.1,
    0.001,
    0.0009999,
    9999999.0,
    1e7,
    1.2345678e7,
    1e22,
    1e23,
    1e-5,
    5e-324,
]
REALS += [2.2250738585072014e-308, 1.7976931348623157e308, 2.0**53, 2.0**53 + 2, 1 / 3, 100.0, 0.3]
REALS += [float("inf"), float("nan"), 123456.789, 0.30000000000000004, 2.0**-44, 9.5e-7, 16777216.0]
REALS += [2.0**k for k in range(-1074, 1024, 7)]


def variants(rng: random.Random, texts: Sequence[str], count: int) -> list[str]:
    """Texts beside the given ones: with characters replaced, added and left out, or all random."""
    made = []
    for _ in range(count):
        if rng.random() < 0.2:
            made.append("".join(rng.choices(ALPHABET, k=rng.randrange(24))))
            continue
        text = list(rng.choice(texts))
        for _ in range(rng.choice((0, 1, 1, 2))):
            at = rng.randrange(len(text) + 1)
            text[at : at + rng.randrange(2)] = rng.choices(ALPHABET, k=rng.randrange(2))
        made.append("".join(text))
    return made


def common_reals(rng: random.Random, count: int) -> list[float]:
    return [round(rng.uniform(-1e6, 1e6), rng.randrange(7)) for _ in range(count)]


def values_of(kind: DataType, rng: random.Random, count: int) -> list[Any]:
    """Values in storage form: limits, round ones, and random ones of all sizes."""
    dtype = stored_dtype(kind.storage)
    if kind.kind is Kind.BOOLEAN:
        return [rng.random() < 0.5 for _ in range(count)]
    if kind.is_fraction:
        made = [x for real in REALS for x in (real, -real)] + common_reals(rng, count)
        made += [rng.uniform(-1, 1) * 10 ** rng.randrange(-12, 20) for _ in range(count)]
        form = "<f" if kind.kind is Kind.FLOAT else "<d"
        size = struct.calcsize(form)
        made += [struct.unpack(form, rng.randbytes(size))[0] for _ in range(count)]
        with np.errstate(all="ignore"):
            array = np.array(made).astype(dtype)
            beside = [np.nextafter(array, dtype.type(end)) for end in (np.inf, -np.inf)]
        return np.concatenate([array, *beside]).tolist()
    info = np.iinfo(dtype)
    made = list(INTEGERS)
    if kind.is_timestamp:
        made += MICROS + [rng.randrange(-(10**16), 10**17) for _ in range(count)]
    if kind.kind is Kind.DATE:
        made += DAYS
    made += [rng.randrange(-(2**63), 2**63) >> rng.randrange(64) for _ in range(count)]
    most = 10**18 - 1 if kind.kind is Kind.DECIMAL else info.max
    return [x for x in made if max(info.min, -most - 1) <= x <= most]


def block(
    values: Sequence[Any], kind: DataType, rng: random.Random, *, dense: bool = False
) -> tuple[Column, list[Any]]:
    """A column of these values, some of which are NULL or failed, and the values with None for
    those. Rows without a value have other ones; texts lie in any order and between other bytes."""
    status = np.array(
        [VALID if dense else rng.choice((VALID,) * 8 + (NULL, FAILED)) for _ in values]
    )
    status = status.astype(np.uint8)
    if not kind.is_text:
        return Column(np.array(values, stored_dtype(kind.storage)), status), list(values)
    raw = [x.encode() if isinstance(x, str) else x for x in values]
    if dense:
        return Column(texts_from(raw), status), list(values)
    order = rng.sample(range(len(raw)), len(raw))
    found = texts_from([b"7" + raw[k] + b"1" for k in order])
    back = np.argsort(np.array(order, np.int64), kind="stable")
    texts = Texts(found.data, found.starts[back] + 1, found.ends[back] - 1)
    return Column(texts, status), list(values)


def expected(expr: Expr, column: Column, values: Sequence[Any]) -> list[tuple[int, Any]]:
    made: list[tuple[int, Any]] = []
    for status, value in zip(column.status.tolist(), values, strict=True):
        if status == FAILED:
            made.append((FAILED, None))
            continue
        try:
            result = evaluate(expr, [value if status == VALID else None])
            made.append((NULL if result is None else VALID, result))
        except EvaluationError:
            made.append((FAILED, None))
    return made


def bits(value: Any, kind: DataType) -> Any:
    if kind.is_fraction:
        return "nan" if value != value else struct.pack("<d", value)
    if isinstance(value, str):
        return value.encode()
    return value


def check(expr: Expr, column: Column, values: Sequence[Any]) -> None:
    made = blocks.evaluate_block(expr, [column])
    kind = expr.type
    assert len(made) == len(values)
    assert not (made.status == ODD).any()
    if isinstance(made.values, Texts):
        got: Iterable[Any] = map(made.values.text, range(len(values)))
    else:
        assert made.values.dtype == stored_dtype(kind.storage)
        got = made.values.tolist()
    for value, found, status, wanted in zip(
        values, got, made.status.tolist(), expected(expr, column, values), strict=True
    ):
        assert status == wanted[0], (expr, value, found, wanted)
        if status == VALID:
            assert bits(found, kind) == bits(wanted[1], kind), (expr, value, found, wanted)


def cast(source: DataType, to: DataType, *, safe: bool = False) -> Cast:
    return Cast(ColumnOf(0, "x", source, True), to, True, safe)


def call(fn: str, source: DataType, to: DataType, *more: Any) -> Call:
    literals = [Literal(x, BINARY if isinstance(x, bytes) else STRING) for x in more]
    return Call(fn, (ColumnOf(0, "x", source, True), *literals), to, True)


@pytest.fixture
def rng(seed: int) -> random.Random:
    return random.Random(seed)


@pytest.fixture
def count(full: bool) -> int:
    return 20_000 if full else 400


@pytest.mark.sampled
@pytest.mark.parametrize("to", READ, ids=str)
@pytest.mark.parametrize("safe", [False, True])
def test_texts_as_values(to: DataType, safe: bool, rng: random.Random, count: int) -> None:
    texts = HOSTILE + variants(rng, HOSTILE, count)
    check(cast(STRING, to, safe=safe), *block(texts, STRING, rng))


@pytest.mark.parametrize("to", [*DECIMALS, FLOAT, DOUBLE], ids=str)
def test_numbers_as_values(to: DataType, rng: random.Random, count: int) -> None:
    """Random digits with a point and an exponent, halves among them."""
    texts = []
    for _ in range(2 * count):
        whole, part = ("".join(rng.choices("0123456789", k=rng.randrange(n))) for n in (12, 24))
        end = rng.choice(("", "5", "50", "499999999999999999999", "5000000000000000000001"))
        power = f"e{rng.randrange(-30, 30)}" if rng.random() < 0.4 else ""
        texts.append(f"{rng.choice(('', '-', '+'))}{whole}.{part[: rng.randrange(24)]}{end}{power}")
    check(cast(STRING, to), *block(texts, STRING, rng))


@pytest.mark.parametrize("to", [DATE, TIMESTAMP, TIMESTAMP_NTZ], ids=str)
def test_times_as_values(to: DataType, rng: random.Random, count: int) -> None:
    texts = []
    for _ in range(count):
        year = rng.choice((rng.randrange(10000), rng.randrange(-9999999, 10**7)))
        date = f"{year:04}-{rng.randrange(14):02}-{rng.randrange(33)}"
        clock = f"{rng.randrange(25)}:{rng.randrange(61):02}:{rng.randrange(61)}"
        digits = "".join(rng.choices("0123456789", k=rng.randrange(11)))
        sign, hours, minutes = rng.choice("+-"), rng.randrange(20), rng.randrange(62)
        zone = rng.choice(("", "Z", " Z", f"{sign}{hours}:{minutes:02}", f"UTC{sign}{hours:02}"))
        texts.append(f"{date}{rng.choice(' T')}{clock}.{digits}{zone}"[: rng.randrange(4, 60)])
    check(cast(STRING, to), *block(texts, STRING, rng))


@pytest.mark.parametrize("source", WRITTEN, ids=str)
def test_values_as_texts(source: DataType, rng: random.Random, count: int) -> None:
    if source == BINARY:
        values: list[Any] = [x.encode() for x in HOSTILE] + [b"\xff", b"a\xc3", b"\xed\xa0\x80"]
        values += [rng.randbytes(rng.randrange(6)) for _ in range(count)]
    else:
        values = values_of(source, rng, count)
    check(cast(source, STRING), *block(values, source, rng))


ZONES = ["Z", "+01", "-0530", "+05:30", "+5", "+530", "+5:30", "UTC", "+18:59", "+19", "+05:60", ""]
PATTERNS = [
    "yyyy-MM-dd",
    "yyyy-MM-dd HH:mm:ss",
    "dd.MM.yy",
    "y/M/d H:m:s",
    "'Tag 🙂 'd",
    "uuuu'T'L''",
]
PATTERNS += [
    "HH:mm:ss.SSSSSSSSS",
    "S SSS",
    "yyyyyy",
    "EEEE d MMMM",
    "hh:mm a",
    "D",
    "Q",
    "XXX",
    "",
    "'",
]
PATTERNS += ["ss" * 2, "yyyy" + "-" * 200, "MMM"]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_times_by_pattern(pattern: str, rng: random.Random, count: int) -> None:
    values = values_of(TIMESTAMP, rng, count // 4)
    check(call("date_format", TIMESTAMP, STRING, pattern), *block(values, TIMESTAMP, rng))


_READ_PATTERNS = """
yyyy-MM-dd yyyyMMdd yyyy-MM-dd'T'HH:mm:ss.SSSSSS dd/MMM/yyyy:HH:mm:ssX d.M.y
H:m:s.S yy/M/d yMMdd d'5'M dd5M dMy MMM dd/MMMM/yyyy yyyy-MM-ddXXX X Xyyyy yyyyX-MM HH'h'mm hh:mm
a yyyy-yyyy MM/LL uuuu-LL-dd SSSSSSSSS S SSS 'Tag🙂'd ' D Q E Z sZ yyyyyy-MM
"""


@pytest.mark.parametrize("to", [DATE, TIMESTAMP], ids=str)
@pytest.mark.parametrize(
    "pattern", [*_READ_PATTERNS.split(), "", "yyyy-MM-dd HH:mm:ss", "d MMM y H"]
)
def test_texts_by_pattern(pattern: str, to: DataType, rng: random.Random, count: int) -> None:
    texts = []
    for _ in range(count // 4):
        micros = rng.choice((rng.randrange(-(10**17), 10**18), rng.choice(MICROS[:-2])))
        with contextlib.suppress(EvaluationError):
            text = date_format(micros, pattern)
            if pattern.endswith(("X", "Z")):
                text = text.removesuffix("Z").removesuffix("+0000") + rng.choice(ZONES)
            texts.append(text)
    texts = texts + variants(
        rng, [*texts, "9999999", "31/Mai/2024", "1.2.0002024", "1.2.12345678"], count // 4
    )
    fn = "to_date" if to == DATE else "to_timestamp"
    check(call(fn, STRING, to, pattern), *block(texts, STRING, rng))


@pytest.mark.parametrize("name", ["dayname", "monthname"])
def test_names_of_days_and_months(name: str, rng: random.Random, count: int) -> None:
    check(call(name, DATE, STRING), *block(values_of(DATE, rng, count), DATE, rng))


@pytest.mark.parametrize("null", [False, True])
@pytest.mark.parametrize("size", [0, 1, 17, 255])
def test_lists(null: bool, size: int, rng: random.Random, count: int) -> None:
    pool = variants(rng, HOSTILE, count)
    items: list[Any] = [*rng.sample(pool, size), *(["", "a\x00"] if size else [])]
    items += [None] if null or not size else []
    values = pool + [x for x in items if x is not None] + ["a", "a\x00\x00"]
    check(call("in_list", STRING, BOOLEAN, *items), *block(values, STRING, rng))
    binary = [x if x is None else x.encode() for x in items]
    raw = [x.encode() for x in values]
    check(call("in_list", BINARY, BOOLEAN, *binary), *block(raw, BINARY, rng))


def test_blocks_without_rows_and_without_bytes(rng: random.Random) -> None:
    for to in READ:
        check(cast(STRING, to), *block([], STRING, rng))
        check(cast(STRING, to), *block([""], STRING, rng, dense=True))
    for source in WRITTEN:
        check(cast(source, STRING), *block([], source, rng))
    check(call("date_format", TIMESTAMP, STRING, "yyyy"), *block([], TIMESTAMP, rng))
    for items in ([], [None], ["a"]):
        check(call("in_list", STRING, BOOLEAN, *items), *block([], STRING, rng))
        check(call("in_list", STRING, BOOLEAN, *items), *block([""], STRING, rng, dense=True))


def test_rows_without_a_value_have_any_place() -> None:
    """Kernels read no text of a row that is NULL or failed: its places may even lie reversed."""
    texts = Texts(np.frombuffer(b"12x", np.uint8), np.array([0, 3, 2]), np.array([2, 0, 3]))
    column = Column(texts, np.array([VALID, NULL, FAILED], np.uint8))
    for to in (t for t in READ if t != BINARY):
        made = blocks.evaluate_block(cast(STRING, to), [column])
        assert made.status.tolist()[1:] == [NULL, FAILED]
    made = blocks.evaluate_block(call("in_list", STRING, BOOLEAN, "12", "13"), [column])
    assert (made.status.tolist(), made.values[0]) == ([VALID, NULL, FAILED], 1)


def common(rng: random.Random) -> list[tuple[Expr, list[Any]]]:
    """Expressions with values in the forms that most data has."""
    numbers = [rng.randrange(-(2**63), 2**63) >> rng.randrange(64) for _ in range(500)]
    small = [n % 10**8 - 5 * 10**7 for n in numbers]
    reals = [*common_reals(rng, 500), *(rng.uniform(-1, 1) * 10.0**k for k in range(-90, 90))]
    reals += [float(x) for x in ("nan", "inf", "-inf", "-0.0")]
    floats = np.array(common_reals(rng, 500), np.float32).tolist()
    days = [f"{rng.randrange(1, 9999):04}-{rng.randrange(1, 13):02}-{d:02}" for d in range(1, 29)]
    clocks = [f"{rng.randrange(24):02}:{m:02}:{rng.randrange(60):02}" for m in range(60)]
    times = [f"{rng.choice(days)}{s}{c}" for c in clocks for s in " T"]
    times += [f"{t}{end}" for t in times for end in (".5", ".123456", "Z", "+05:30", "x")]
    bad = ["", "x", "12x", "--1", "1.2.3"]
    return [
        *((cast(STRING, to), list(map(str, numbers)) + bad) for to in (TINYINT, INT, BIGINT)),
        *(
            (cast(STRING, to), list(map(str, reals[:-4])) + bad)
            for to in (FLOAT, DOUBLE, decimal(10, 2))
        ),
        (cast(STRING, decimal(18, 3)), list(map(str, numbers)) + bad),
        (cast(STRING, BOOLEAN), ["true", "false", "TRUE", "no", "1", " f ", *bad]),
        (cast(STRING, DATE), days + times + bad),
        *((cast(STRING, to), days + times + bad) for to in (TIMESTAMP, TIMESTAMP_NTZ)),
        (cast(STRING, BINARY), bad),
        (cast(BINARY, STRING), [b"a", b"\xff"]),
        (cast(BOOLEAN, STRING), [True, False]),
        (cast(TINYINT, STRING), [0, -128]),
        (cast(BIGINT, STRING), numbers),
        (cast(FLOAT, STRING), floats),
        (cast(DOUBLE, STRING), reals),
        (cast(decimal(18, 4), STRING), small),
        (cast(DATE, STRING), small),
        (cast(TIMESTAMP, STRING), numbers),
        (cast(TIMESTAMP_NTZ, STRING), numbers),
        (call("to_timestamp", STRING, TIMESTAMP, "yyyy-MM-dd HH:mm:ss"), times),
        (call("to_date", STRING, DATE, "yyyy-MM-dd"), days + bad),
        (call("dayname", DATE, STRING), small),
        (call("monthname", DATE, STRING), small),
        (call("date_format", TIMESTAMP, STRING, "yyyy-MM-dd'T'HH:mm:ss.SSS"), numbers),
        (call("in_list", STRING, BOOLEAN, *days, None), days + times),
    ]


def test_python_computes_no_common_row(rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [(e, *block(values, children(e)[0].type, rng)) for e, values in common(rng)]
    seen: list[tuple[Expr, Any]] = []

    def recorded(expr: Expr, row: Sequence[Any]) -> Any:
        seen.append((expr, row))
        return evaluate(expr, row)

    monkeypatch.setattr(blocks, "evaluate", recorded)
    for case in cases:
        check(*case)
    assert seen == []
