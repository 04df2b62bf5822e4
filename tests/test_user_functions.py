"""Scalar functions of users: every way to call one, and every way in which one can misbehave."""

from __future__ import annotations

import datetime as dt
import functools
import math
import os
import re
import subprocess
import sys
import textwrap
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import random_cases
from random_cases import Case, make_case
from random_shapes import SHAPES, shape

import cql
from cql.errors import BindError, CatalogError, RunError

ROOT = Path(__file__).resolve().parent.parent
ROWS = 40
STREAM = pa.table(
    {
        "ts": pa.array(range(ROWS), pa.int64()),
        "n": pa.array([None if i % 7 == 3 else i * 3 - 20 for i in range(ROWS)], pa.int64()),
        "x": pa.array([None if i % 5 == 2 else i / 4 - 3 for i in range(ROWS)], pa.float64()),
        "w": pa.array([None if i % 6 == 1 else "abcde"[i % 5] for i in range(ROWS)]),
        "b": pa.array([i % 3 == 0 for i in range(ROWS)]),
        "i": pa.array(range(ROWS), pa.int32()),
        "at": pa.array([i * 3_600_000_000 for i in range(ROWS)], pa.timestamp("us", tz="UTC")),
        "d": pa.array(range(ROWS), pa.int32()).cast(pa.date32()),
        "m": pa.array([Decimal(i) / 4 for i in range(ROWS)], pa.decimal128(10, 2)),
    }
)


def session_of(**settings: Any) -> cql.Session:
    session = cql.connect(spark=False, **settings)
    session.create_stream("s", STREAM, ordered_by="ts")
    return session


def values(query: Any) -> list[Any]:
    """The first column of a query."""
    return query.to_arrow().column(0).to_pylist()


def column(name: str) -> list[Any]:
    return STREAM[name].to_pylist()


# -- declaring ---------------------------------------------------------------------------------


def test_types_come_from_annotations_or_are_given() -> None:
    @cql.function
    def plain(a: int, b: float, c: str, d: bool, e: dt.date, f: dt.datetime) -> bytes:
        """Says nothing.

        More of it."""
        return b""

    assert plain.usage == (
        "plain(a bigint, b double, c string, d boolean, e date, f timestamp) → binary"
    )
    assert plain.help == "Says nothing."

    @cql.function("decimal(10,2)", args=["int", "timestamp_ntz", dt.timedelta], name="Given")
    def given(a: Any, *more: Any) -> Any:
        return a

    assert given.usage == "Given(a int, a2 timestamp_ntz, a3 interval) → decimal(10,2)"
    assert given(1, 2) == 1

    @cql.function(args=[float])
    def half(a) -> "double":  # noqa: F821, UP037 (an SQL type)
        return a / 2

    assert half.usage == "half(a double) → double"

    @cql.function
    def maybe(a: int | None, scale=2.0) -> float | None:
        return None if a is None else a * scale

    assert maybe.usage == "maybe(a bigint) → double"


def generator(a: int) -> int:
    yield a


@pytest.mark.parametrize(
    ("name", "function", "args", "returns", "message"),
    [
        ("upper", abs, ["int"], "int", "is a function of the engine"),
        ("SUM", abs, ["int"], "int", "is a function of the engine"),
        ("median", abs, ["int"], "int", "is a function of the engine"),
        ("int_div", abs, ["int"], "int", "is a function of the engine"),
        ("timestamp_add_months", abs, ["int"], "int", "is a function of the engine"),
        ("row_number", abs, ["int"], "int", "is a function of the engine"),
        ("window", abs, ["int"], "int", "is a function of the engine"),
        ("now", abs, [], "int", "is a function of the engine"),
        ("select", abs, ["int"], "int", "is a word of the language"),
        ("tumble", abs, ["int"], "int", "is a word of the language"),
        ("case", abs, ["int"], "int", "is a word of the language"),
        ("a b", abs, ["int"], "int", "is no name of a function"),
        ("", abs, ["int"], "int", "is no name of a function"),
        ("f", lambda a: a, None, "int", "the type of argument a of f is not known"),
        ("f", lambda a: a, ["int"], None, "the type of the result of f is not known"),
        ("f", lambda a: a, ["list<int>"], "int", "is no type"),
        ("f", lambda a: a, ["int"], list, "is no type of a column"),
        ("f", lambda a: a, ["null"], "int", "void is no type of a function"),
        ("f", lambda a: a, [Decimal], "int", "needs its digits"),
        ("f", lambda a: a, ["decimal(30,2)"], "int", "is no type"),
        ("f", lambda a: a, ["int", "int"], "int", "takes 1 argument, and 2 types are given"),
        ("f", lambda a, b: a, ["int"], "int", "takes 2 arguments, and 1 type is given"),
        ("f", lambda *a: a, None, "int", "takes any number of arguments"),
        ("f", lambda a, *, b: a, ["int"], "int", "needs b by keyword"),
        ("f", generator, None, None, "a coroutine or a generator"),
        ("f", 7, ["int"], "int", "a function is needed, not 7"),
        ("f", "drop table", ["int"], "int", "a function is needed"),
    ],
)
def test_a_bad_declaration_is_refused(
    name: str, function: Any, args: Any, returns: Any, message: str
) -> None:
    with session_of() as session, pytest.raises(BindError, match=message):
        session.register_function(name, function, args, returns)


def test_null_handling_takes_two_words() -> None:
    with pytest.raises(BindError, match="'default' or 'call'"):
        cql.function("int", args=["int"], name="f", null_handling="ignore")(lambda a: a)


def test_a_lambda_needs_a_name() -> None:
    with pytest.raises(BindError, match="a lambda is no name"):
        cql.function("int", args=["int"])(lambda a: a)


# -- calling -----------------------------------------------------------------------------------


def collatz(n: int) -> int:
    steps = 0
    while n > 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps


def hypotenuse(a: float, b: float) -> float:
    return math.sqrt(a * a + b * b)


def later(at: dt.datetime, days: int) -> dt.date:
    return (at + dt.timedelta(days=days)).date()


def shout(w: str) -> str:
    return w.upper() + "!"


def repeated(w: str, n: int) -> str:
    return w * max(0, n)


def in_python(n: int) -> int:
    return len({"a": n}) + n


def doubled(m):
    return m * 2


FUNCTIONS = [
    *(collatz, hypotenuse, later, shout, repeated, in_python),
    cql.function("decimal(12,2)", args=["decimal(10,2)"])(doubled),
]
SETTINGS: list[dict[str, Any]] = [
    {},
    {"morsel_rows": 1},
    {"morsel_rows": 7, "runtime": "fifo"},
    {"morsel_rows": 64, "runtime": "run_to_completion", "fuse": False},
    {"runtime": "fifo_slice", "fuse": False},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_a_function_stands_wherever_an_expression_does(settings: dict[str, Any]) -> None:
    with session_of(**settings) as session:
        session.register_functions(FUNCTIONS)
        lifted = {
            "collatz(i)": [collatz(i) for i in column("i")],
            "hypotenuse(x, i)": [
                None if x is None else hypotenuse(x, i)
                for x, i in zip(column("x"), column("i"), strict=True)
            ],
            "later(at, i)": [later(a, i) for a, i in zip(column("at"), column("i"), strict=True)],
            "shout(w)": [None if w is None else shout(w) for w in column("w")],
            "shout(shout(w))": [None if w is None else w.upper() + "!!" for w in column("w")],
            "shout(upper(w)) || '?'": [None if w is None else shout(w) + "?" for w in column("w")],
            "length(repeated(w, i))": [
                None if w is None else i for w, i in zip(column("w"), column("i"), strict=True)
            ],
            "in_python(collatz(in_python(i)))": [
                in_python(collatz(in_python(i))) for i in column("i")
            ],
            "doubled(m)": [m * 2 for m in column("m")],
            "CASE WHEN in_python(i) % 2 = 0 THEN collatz(i) END": [
                collatz(i) if in_python(i) % 2 == 0 else None for i in column("i")
            ],
            "coalesce(shout(w), 'none')": ["none" if w is None else shout(w) for w in column("w")],
        }
        for text, expected in lifted.items():
            assert values(session.sql(f"SELECT {text} FROM s")) == expected, text
        filtered = values(session.sql("SELECT i FROM s WHERE collatz(i) > 10 AND shout(w) > 'B'"))
        assert filtered == [
            i
            for i, w in zip(column("i"), column("w"), strict=True)
            if collatz(i) > 10 and w is not None and shout(w) > "B"
        ]
        counted = session.sql(
            "SELECT shout(w) AS k, count(*), max(collatz(i)) FILTER (WHERE in_python(i) > 3),"
            " in_python(sum(i)) AS t FROM s [RANGE 10 SLIDE 5] GROUP BY shout(w)"
            " HAVING collatz(count(*)) < 100 ORDER BY shout(w)"
        ).to_arrow()
        assert counted.num_rows > 10
        plain = session.sql(
            "SELECT upper(w) || '!' AS k, count(*), sum(i) + 1 AS t FROM s [RANGE 10 SLIDE 5]"
            " GROUP BY w ORDER BY upper(w)"
        ).to_arrow()
        assert counted.column("t").to_pylist() == plain.column("t").to_pylist()
        assert counted.column("k").to_pylist() == plain.column("k").to_pylist()


def test_null_is_not_handed_over_unless_asked_for() -> None:
    seen: list[Any] = []

    def strict(n: int, w: str) -> int:
        seen.append((n, w))
        return 1

    with session_of() as session:
        session.register_function("strict", strict)
        session.register_function("given", lambda n: n or 0, ["bigint"], "bigint",
                                  null_handling="call")  # fmt: skip
        session.register_function("shown", lambda w: w or "?", [str], str, null_handling="call")
        session.register_function("none", lambda n: None if n > 5 else n, ["int"], "int")
        made = values(session.sql("SELECT strict(n, w) FROM s"))
        assert made == [
            None if n is None or w is None else 1
            for n, w in zip(column("n"), column("w"), strict=True)
        ]
        assert all(None not in pair for pair in seen)
        assert values(session.sql("SELECT given(n) FROM s")) == [n or 0 for n in column("n")]
        assert values(session.sql("SELECT shown(w) FROM s")) == [w or "?" for w in column("w")]
        assert values(session.sql("SELECT none(i) FROM s")) == [
            None if i > 5 else i for i in column("i")
        ]
        assert values(session.sql("SELECT count(none(i)) FROM s")) == [6]
        assert values(session.sql("SELECT strict(NULL, w) FROM s LIMIT 1")) == [None]


def test_text_is_computed_once_per_distinct_value() -> None:
    calls: Counter[str] = Counter()

    def counted(w: str) -> str:
        calls[w] += 1
        return w + w

    with session_of(morsel_rows=7) as session:
        session.register_function("counted", counted)
        assert len(values(session.sql("SELECT counted(w) FROM s WHERE counted(w) <> ''"))) == 33
    assert set(calls) - {""} == set("abcde")  # and a text that the dictionary always has
    assert max(calls.values()) <= 2  # a table for each stage that asks


def test_functions_call_one_another() -> None:
    @cql.function
    def one_more(n: int) -> int:
        return n + 1

    @cql.function
    def two_more(n: int) -> int:
        return one_more(one_more(n))

    with session_of() as session:
        session.register_functions([one_more, two_more])
        assert values(session.sql("SELECT two_more(i) FROM s")) == [i + 2 for i in column("i")]
        assert (
            "function two_more: compiled" in session.sql("EXPLAIN SELECT two_more(i) FROM s").text
        )


# -- what goes wrong ---------------------------------------------------------------------------


def forever(n: int) -> int:
    return forever(n + 1)


def in_turn(n: int) -> int:
    return forever_in_turn(n)


def forever_in_turn(n: int) -> int:
    return in_turn(n + 1)


def seven(n: int) -> int:
    if n == 7:
        raise ValueError(f"seven is {n}")
    return n


def eighth(w: str) -> int:
    return {"a": 1}[w]


def leaves(n: int) -> int:
    sys.exit(3)


class Odd:
    def __repr__(self) -> str:
        raise RuntimeError("no")


HOSTILE: list[tuple[Any, str, str, str, str, int]] = [
    # function, type of its argument, of its result, argument, message, offset of the row
    (seven, "bigint", "bigint", "i", "f raised ValueError: seven is 7", 7),
    (lambda n: 1 // (n - 3), "bigint", "bigint", "i", "f raised ZeroDivisionError", 3),
    (lambda n: n * 2**62, "bigint", "bigint", "i", "which a bigint cannot hold", 2),
    (lambda n: n * 1000, "int", "smallint", "i", "f returned 33000, which a smallint cannot", 33),
    (lambda n: 10**4000, "int", "bigint", "i", "an int of 13288 bits", 0),
    (lambda n: n + 0.5, "int", "bigint", "i", "0.5, which is a float, not an int", 0),
    (lambda n: "x", "int", "bigint", "i", "'x', which is a str, not an int", 0),
    (lambda n: [n], "int", "string", "i", "[0], which is a list, not a str", 0),
    (lambda n: Odd(), "int", "date", "i", "<Odd>, which is an Odd, not a date", 0),
    (lambda n: 1, "int", "boolean", "i", "1, which is an int, not a bool", 0),
    (lambda n: "\ud800", "int", "string", "i", "half a character", 0),
    (lambda m: m / 3, "decimal(10,2)", "decimal(10,2)", "m", "which a decimal(10,2) cannot", 1),
    (lambda at: at, "timestamp", "timestamp_ntz", "at", "with a time zone", 0),
    (lambda x: math.sqrt(x), "double", "double", "x", "f raised ValueError", 0),
    (lambda x: int(x * 1e300), "double", "bigint", "x", "cannot hold", 0),
    (lambda x: int(x / 0.0), "double", "bigint", "x", "f raised ZeroDivisionError", 0),
    (lambda x: x ** 0.5, "double", "double", "x", "is a complex, not a float", 0),
    (eighth, "string", "bigint", "w", "f raised KeyError: 'c'", 2),
    (forever, "bigint", "bigint", "i", "f raised RecursionError", 0),
    (in_turn, "bigint", "bigint", "i", "f raised RecursionError", 0),
    (leaves, "bigint", "bigint", "i", "f raised SystemExit: 3", 0),
    (lambda n: n << 62, "bigint", "bigint", "i", "cannot hold", 2),
    (lambda n: 10**n, "bigint", "bigint", "i", "cannot hold", 19),
    (lambda n: n**13, "bigint", "bigint", "i", "cannot hold", 29),
    (lambda n: -n - 2**63, "bigint", "bigint", "i", "cannot hold", 1),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(HOSTILE)))
def test_what_a_function_does_wrong_is_a_bad_row(number: int) -> None:
    function, takes, gives, argument, message, offset = HOSTILE[number]
    with session_of(morsel_rows=7) as session:
        session.register_function("f", function, [takes], gives)
        text = f"SELECT {argument}, f({argument}) FROM s"
        with pytest.raises(RunError, match=re.escape(message)) as caught:
            session.sql(text).to_arrow()
        assert f"in the row at offset {offset} of s" in str(caught.value)
        assert caught.value.column == text.index("f(") + 1
        query = session.sql(f"{text} ON BAD ROW KEEP")
        kept = query.to_arrow()
        bad = query.bad_rows().to_pylist()
        assert kept.num_rows + len(bad) == ROWS
        assert bad[0]["offset"] == offset
        assert message in bad[0]["reason"]


def test_a_guarded_call_is_not_made() -> None:
    with session_of() as session:
        session.register_function("seven", seven)
        text = "CASE WHEN i <> 7 THEN seven(i) END"
        assert values(session.sql(f"SELECT {text} FROM s")) == [
            None if i == 7 else i for i in column("i")
        ]
        assert 7 not in values(session.sql("SELECT i FROM s WHERE i <> 7 AND seven(i) >= 0"))


def test_an_error_over_a_result_names_the_function() -> None:
    with session_of() as session:
        session.register_function("seven", seven)
        text = "SELECT seven(count(*) - 3) FROM s [RANGE 10 SLIDE 10]"
        with pytest.raises(RunError, match="seven raised ValueError: seven is 7"):
            session.sql(text).to_arrow()
        query = session.sql(f"{text} ON BAD ROW KEEP")
        assert query.to_arrow().num_rows == 0
        assert query.progress().bad == 4


def test_mutating_what_it_captures_changes_no_result_of_sql() -> None:
    held = [0]

    def mutates(n: int) -> int:
        held[0] += 1
        return n

    with session_of() as session:
        session.register_function("mutates", mutates)
        assert values(session.sql("SELECT mutates(i) FROM s")) == column("i")


def test_calls_and_types_are_checked_with_the_usage() -> None:
    with session_of() as session:
        session.register_functions(FUNCTIONS)
        for text, message in {
            "hypotenuse(x)": r"hypotenuse takes 2 arguments, not 1",
            "hypotenuse(x, w)": r"argument 2 of hypotenuse must be a number, but is string",
            "shuot(w)": r"did you mean shout\?",
            "shout(*)": r"shout\(\*\) is not a function",
        }.items():
            with pytest.raises(BindError, match=message) as caught:
                session.sql(f"SELECT {text} FROM s")
            assert caught.value.line == 1
        with pytest.raises(BindError, match="there is no function shuot of yours"):
            session.drop_function("shuot")
        session.drop_function("SHOUT")
        with pytest.raises(BindError, match="unknown function shout"):
            session.sql("SELECT shout(w) FROM s")


# -- compiled or not ---------------------------------------------------------------------------

#: Functions and whether numba compiles them; each is compared with its own Python.
ARITHMETIC: list[tuple[Any, str]] = [
    (lambda a, b: a + b, "bigint"),
    (lambda a, b: a - b * 3, "bigint"),
    (lambda a, b: a * b, "bigint"),
    (lambda a, b: a // b, "bigint"),
    (lambda a, b: a % b, "bigint"),
    (lambda a, b: a / b, "double"),
    (lambda a, b: -a, "bigint"),
    (lambda a, b: abs(a), "bigint"),
    (lambda a, b: a**3, "bigint"),
    (lambda a, b: a << b, "bigint"),
    (lambda a, b: a >> b, "bigint"),
    (lambda a, b: a & b | a ^ ~b, "bigint"),
    (lambda a, b: min(a, b) + max(a, b), "bigint"),
    (lambda a, b: a if a > b else None, "bigint"),
    (lambda a, b: a < b, "boolean"),
    (lambda a, b: sum(range(a % 50)), "bigint"),
    (lambda a, b: float(a), "double"),
    (lambda a, b: round(a / 7), "bigint"),
    (lambda a, b: math.floor(a / 7) + math.ceil(b / 3) - math.trunc(a / 5), "bigint"),
    (lambda a, b: int(a / 7), "bigint"),
    (lambda a, b: math.sqrt(a) + math.log(b), "double"),
    (lambda a, b: math.exp(a) - math.sin(b), "double"),
    (lambda a, b: math.pow(a, b), "double"),
    (lambda a, b: float(a) ** float(b), "double"),
    (lambda a, b: math.hypot(a, b), "double"),
]
NUMBERS = [0, 1, -1, 2, 3, -7, 62, 63, 64, 10**9, -(10**9) - 1, 3 * 10**9, 2**62, 2**63 - 1]
NUMBERS += [-(2**63), -(2**63) + 1]


@pytest.mark.parametrize("number", range(len(ARITHMETIC)))
def test_compiled_code_computes_as_python_does(number: int) -> None:
    """Numbers at the edges, each against each: the same value, or a bad row in both."""
    from cql.planner.evaluation import EvaluationError

    function, gives = ARITHMETIC[number]
    pairs = [(a, b) for a in NUMBERS for b in NUMBERS]
    if number == 9:  # 1 << 10**9 would fill the memory
        pairs = [(a, b) for a, b in pairs if b < 1000]
    with cql.connect(spark=False) as session:
        session.create_stream(
            "p",
            pa.table(
                {
                    "t": pa.array(range(len(pairs)), pa.int64()),
                    "a": pa.array([a for a, _ in pairs], pa.int64()),
                    "b": pa.array([b for _, b in pairs], pa.int64()),
                }
            ),
            ordered_by="t",
        )
        session.register_function("f", function, ["bigint", "bigint"], gives)
        query = session.sql("SELECT t, f(a, b) AS v FROM p ON BAD ROW KEEP")
        assert "function f: compiled" in query.explain()
        found = {row["t"]: row["v"] for row in query.to_arrow().to_pylist()}
        declared = session.functions()["f"]
        for t, pair in enumerate(pairs):
            try:
                expected = declared.evaluate(pair)
            except EvaluationError:
                assert t not in found, pair
                continue
            value = found[t]
            same = value == expected or (value is not None and math.isclose(value, expected))
            assert same, (pair, value, expected)


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda n: len({n: 1}), None),
        (lambda n: eval("n"), "eval"),
        (forever, "forever calls itself"),
        (in_turn, "in_turn calls itself"),
        (lambda n: n / 2, "it returns float64 as numba sees it, not bigint"),
        (lambda n: n**n, "an int to the power of an int"),
        (functools.partial(max, 3), "is no function written in Python"),
    ],
)
def test_explain_says_why_a_function_is_not_compiled(function: Any, why: str | None) -> None:
    with session_of() as session:
        session.register_function("f", function, ["bigint"], "bigint")
        text = session.sql("EXPLAIN SELECT f(i) FROM s").text
        assert text is not None
        line = next(line for line in text.splitlines() if line.startswith("function f"))
        if why is None:
            assert line == "function f: compiled, called from the kernel"
        else:
            assert line.startswith("function f: in Python, once per row that gets there: ")
            assert why in line


def test_explain_says_how_text_is_computed() -> None:
    with session_of() as session:
        session.register_functions(FUNCTIONS)
        text = session.sql("EXPLAIN SELECT shout(w), repeated(w, i), later(at, i) FROM s").text
        assert text is not None
        assert "function shout: in Python, once per distinct text: a string is" in text
        assert "function repeated: in Python, once per distinct row of a morsel: a string" in text
        assert "function later: in Python, once per row that gets there: a timestamp" in text
        assert "function" not in str(session.sql("EXPLAIN SELECT i FROM s").text)


# -- registered again --------------------------------------------------------------------------


def test_a_changed_function_is_used_at_once() -> None:
    with session_of() as session:
        for added in (1, 2):
            session.register_function("f", lambda n, added=added: n + added, ["int"], "int")
            assert values(session.sql("SELECT f(i) FROM s")) == [i + added for i in column("i")]
        before = session.sql("SELECT f(i) FROM s")
        session.register_function("f", lambda w: w + "?", ["string"], "string")
        assert values(session.sql("SELECT f(w) FROM s WHERE w = 'a'"))[0] == "a?"
        assert values(before) == [i + 2 for i in column("i")]
        session.sql("CREATE VIEW v AS SELECT f(w) AS k FROM s WHERE w = 'a'")
        session.register_function("f", lambda w: w + "!", ["string"], "string")
        assert values(session.sql("SELECT k FROM v"))[0] == "a!"


def test_a_kernel_from_the_disk_calls_the_function_of_today(tmp_path: Path) -> None:
    """Two processes, one cache of kernels, the same query, two functions of one name."""
    script = tmp_path / "run.py"
    script.write_text(
        textwrap.dedent(
            """
            import os, sys
            import pyarrow as pa
            import cql

            OFFSET = int(sys.argv[1])

            @cql.function
            def moved(n: int) -> int:
                return n + OFFSET

            session = cql.connect(functions=[moved], spark=False, kernel_cache=sys.argv[2])
            session.register_table("t", pa.table({"n": [1, 2, 3]}))
            query = session.sql("SELECT moved(n) AS m FROM t")
            print(query.to_arrow().column(0).to_pylist())
            assert "compiled" in query.explain(), query.explain()
            """
        )
    )
    cache = tmp_path / "cache"
    cache.mkdir()
    found = []
    for offset in ("10", "20"):
        done = subprocess.run(
            [sys.executable, str(script), offset, str(cache)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        )
        found.append(done.stdout.strip())
    assert found == ["[11, 12, 13]", "[21, 22, 23]"]
    assert len(list(cache.rglob("cql_kernel_*.py"))) == 1


# -- modules, the command line, the shell --------------------------------------------------------

MODULE = """
import cql

@cql.function
def thrice(n: int) -> int:
    "Three times."
    return 3 * n

def helper(n: int) -> int:
    return n
"""


def test_a_module_of_functions(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(MODULE)
    for given in (path, str(path), cql.functions.load(path), {"thrice": lambda n: 3 * n}):
        if isinstance(given, dict):
            given["thrice"].__annotations__ = {"n": int, "return": int}
        with cql.connect(spark=False, functions=given) as session:
            session.register_table("t", {"n": [1, 2]})
            assert values(session.sql("SELECT thrice(n) FROM t")) == [3, 6]
            assert sorted(session.functions()) == ["thrice"]
    path.write_text("x = 1\n")
    with pytest.raises(BindError, match="declares no function"):
        cql.connect(spark=False, functions=path)
    path.write_text("import cql\n1 / 0\n")
    with pytest.raises(CatalogError, match=r"raised ZeroDivisionError in line 2"):
        cql.connect(spark=False, functions=path)
    with pytest.raises(CatalogError, match="cannot read"):
        cql.connect(spark=False, functions=tmp_path / "none.py")
    with pytest.raises(CatalogError, match="raised ModuleNotFoundError"):
        cql.connect(spark=False, functions="no_such_module_of_functions")


def test_the_command_line_takes_functions(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from cql.__main__ import cli

    path = tmp_path / "mine.py"
    path.write_text(MODULE)
    text = "SELECT thrice(n) AS t FROM (VALUES (2), (5)) AS v(n)"
    done = CliRunner().invoke(cli, ["-c", text, "--functions", str(path)])
    assert (done.exit_code, done.stdout) == (0, "t\n6\n15\n"), done.output
    done = CliRunner().invoke(cli, ["-c", text, "--functions", str(tmp_path / "none.py")])
    assert done.exit_code == 1
    assert "cannot read" in done.output


def test_the_shell_loads_functions(tmp_path: Path) -> None:
    import io

    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document
    from rich.console import Console

    from cql.repl.completer import CqlCompleter
    from cql.repl.shell import Shell

    path = tmp_path / "mine.py"
    path.write_text(MODULE)
    out = io.StringIO()
    shell = Shell(lambda: cql.connect(spark=False), Console(file=out, width=100))
    try:
        assert shell.handle(f"\\load {path}")
        assert shell.handle("SELECT thrice(14) AS t;")
        assert shell.handle("\\load")
        offered = CqlCompleter(shell).get_completions(Document("SELECT thr"), CompleteEvent())
        assert [c.text for c in offered] == ["thrice"]
    finally:
        shell.close()
    assert "loaded thrice" in out.getvalue()
    assert "42" in out.getvalue()
    assert "\\load needs a Python file" in out.getvalue()


def test_show_functions_lists_them() -> None:
    with session_of() as session:
        session.register_functions(FUNCTIONS)
        result = session.sql("SHOW FUNCTIONS LIKE 'collatz'")
        assert result.rows == (
            ("collatz", "user", "collatz(n bigint) → bigint", "A function of yours."),
        )


# -- random cases ------------------------------------------------------------------------------


def _upper(s: str) -> str:
    return s.upper()


def _lower(s: str) -> str:
    return s.lower()


def _length(s):
    return len(s)


def _year(g):
    return g.year


def _hour(z):
    return z.hour


def _dayofweek(g):
    return g.isoweekday() % 7 + 1


TWINS = {
    "upper": cql.function("string", args=["string"], name="own_upper")(_upper),
    "lower": cql.function("string", args=["string"], name="own_lower")(_lower),
    "length": cql.function("int", args=["string"], name="own_length")(_length),
    "year": cql.function("int", args=["date"], name="own_year")(_year),
    "hour": cql.function("int", args=["timestamp"], name="own_hour")(_hour),
    "dayofweek": cql.function("int", args=["date"], name="own_dayofweek")(_dayofweek),
}
_CALLED = re.compile(rf"\b({'|'.join(TWINS)})\(")


def twin_of(case: Case) -> Case:
    """The case with functions of the user in the place of the engine's."""
    text = _CALLED.sub(r"own_\1(", case.shape.text)
    return replace(case, shape=replace(case.shape, text=text))


def test_random_cases_are_the_same_with_twins_of_the_functions(
    full: bool, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Queries under every runtime, with panes, unions, late and bad rows; the reference computes
    with the engine's functions, the engine with the user's."""
    engine = random_cases.open_session

    def with_functions(case: Case) -> cql.Session:
        session = engine(case)
        session.register_functions(TWINS.values())
        return session

    monkeypatch.setattr(random_cases, "open_session", with_functions)
    run = random_cases.run_engine
    monkeypatch.setattr(random_cases, "run_engine", lambda case: run(twin_of(case)))
    shapes = [i for i in range(SHAPES) if _CALLED.search(shape(i).text)]
    outcomes: Counter[str] = Counter()
    for k in range(3000 if full else 30):
        number = shapes[k % len(shapes if full else shapes[:4])]
        outcomes[random_cases.check(make_case(number, seed + k))] += 1
    print(len(shapes), dict(outcomes))
    assert outcomes["same"] > outcomes["open"] + outcomes["fails"]
