"""Scalar user functions give the same results compiled and in Python."""

from __future__ import annotations

import functools
import math
from typing import Any

import pyarrow as pa
import pytest

import cql
from tests.support.function_fixtures import FUNCTIONS, forever, in_turn, session_of

#: (function, its result type); each compiled function is compared with its own Python code.
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


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(ARITHMETIC)))
def test_compiled_code_computes_as_python_does(number: int) -> None:
    """Every pair of edge numbers gives the same value, or a bad row in both."""
    from cql.planner.interpret.interpreter import EvaluationError

    function, gives = ARITHMETIC[number]
    pairs = [(a, b) for a in NUMBERS for b in NUMBERS]
    if number == 9:  # 1 << 10**9 would need too much memory
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
        declared = session._functions["f"]
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
