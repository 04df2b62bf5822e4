"""Scalar user functions: every way to declare one and to call one."""

from __future__ import annotations

import datetime as dt
import os
import subprocess
import sys
import textwrap
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import cql
from cql.errors import BindError
from tests.support.function_fixtures import (
    FUNCTIONS,
    collatz,
    column,
    hypotenuse,
    in_python,
    later,
    session_of,
    shout,
    values,
)
from tests.support.paths import ROOT


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
        ("f", lambda a: a, ["decimal(40,2)"], "int", "is no type"),
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


SETTINGS: list[dict[str, Any]] = [
    {},
    {"morsel_rows": 1},
    {"morsel_rows": 7, "runtime": "fifo"},
    {"morsel_rows": 64, "runtime": "run_to_completion", "fuse": False},
    {"runtime": "fifo_slice", "fuse": False},
]


@pytest.mark.sampled
@pytest.mark.slow
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
    assert set(calls) - {""} == set("abcde")  # the dictionary always contains the empty text
    assert max(calls.values()) <= 2  # each stage that calls it has a table of its own


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


@pytest.mark.slow
def test_a_kernel_from_the_disk_calls_the_function_of_today(tmp_path: Path) -> None:
    """Two processes share one kernel cache and run one query; each calls its own ``moved``."""
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
