"""Every fault of a scalar user function becomes a bad row or an error that names the function."""

from __future__ import annotations

import math
import re
import sys
from typing import Any

import pytest

from cql.errors import BindError, RunError
from tests.support.function_fixtures import (
    FUNCTIONS,
    ROWS,
    column,
    forever,
    in_turn,
    session_of,
    values,
)


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
    # (function, argument type, result type, argument, message, offset of the first bad row)
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


@pytest.mark.sampled
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
