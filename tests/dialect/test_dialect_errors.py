"""Refused texts: the message, the position of the caret and the hint."""

from __future__ import annotations

import sys
import time

import pytest

from cql.dialect import parse
from cql.dialect.lexical import MAX_NESTING, MAX_TEXT, MAX_TOKENS
from cql.errors import ParseError
from tests.support.refused_texts import DIALECT_CASES, FOREIGN


def expected_place(marked: str) -> tuple[str, int, int]:
    at = marked.index("¦")
    before = marked[:at]
    return marked.replace("¦", "", 1), before.count("\n") + 1, at - (before.rfind("\n") + 1) + 1


@pytest.mark.parametrize(("marked", "message", "hint"), DIALECT_CASES)
def test_refused(marked: str, message: str, hint: str) -> None:
    text, line, column = expected_place(marked)
    with pytest.raises(ParseError) as caught:
        parse(text)
    error = caught.value
    assert (error.line, error.column) == (line, column), str(error)
    assert message in error.message
    assert hint in (error.hint or "")
    assert "^" in str(error)


@pytest.mark.parametrize("text", FOREIGN)
def test_other_statements_are_named(text: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse("SELECT 1;\n " + text)
    error = caught.value
    word = text.split()[0].rstrip(";")
    assert f"'{word}' is not a statement of this dialect" in error.message
    assert (error.line, error.column) == (2, 2)
    assert error.hint is not None
    assert "CREATE" in error.hint or "did you mean" in error.hint


#: CPU seconds that no text may take. On a quiet machine a text takes at most one second; other
#: processes that use the same caches make parsing several times slower.
HANG = 5.0


def seconds(text: str) -> tuple[float, ParseError | None]:
    refusal = None
    start = time.thread_time()
    try:
        parse(text)
    except ParseError as error:
        refusal = error
    taken = time.thread_time() - start
    assert refusal is None or refusal.position is not None
    return taken, refusal


NESTED = {
    "parentheses": ("SELECT {}1{}", "(", ")"),
    "functions": ("SELECT {}1{}", "f(", ")"),
    "casts": ("SELECT {}1{}", "CAST(", " AS INT)"),
    "cases": ("SELECT {}1{}", "CASE WHEN a THEN ", " END"),
    "case operands": ("SELECT {}1{}", "CASE ", " WHEN 1 THEN 2 END"),
    "subqueries": ("SELECT * FROM {}t{}", "(SELECT * FROM ", ") AS x"),
    "scalar subqueries": ("SELECT {}1{}", "(SELECT ", ")"),
    "in": ("SELECT {}1{}", "a IN (", ")"),
    "exists": ("SELECT {}1{}", "EXISTS(SELECT ", ")"),
    "indices": ("SELECT {}1{}", "a[", "]"),
    "joins": ("SELECT * FROM {}t{}", "(", " JOIN u ON a)"),
    "types": ("SELECT CAST(a AS {}INT{})", "ARRAY<", ">"),
    "windows": ("SELECT {}1{}", "TUMBLE(", ", 5)"),
    "queries": ("{}SELECT 1{}", "(", ")"),
    "unions": ("{}SELECT 1{}", "(", " UNION SELECT 2)"),
    "ctes": ("{}SELECT 1{}", "WITH x AS (", ") SELECT 2"),
}


@pytest.mark.parametrize("kind", NESTED)
@pytest.mark.parametrize("depth", [MAX_NESTING // 2, 10_000])
def test_nesting(kind: str, depth: int) -> None:
    shape, opening, closing = NESTED[kind]
    taken, error = seconds(shape.format(opening * depth, closing * depth))
    assert taken < HANG
    if depth > MAX_NESTING:
        assert error is not None
        assert error.message
    else:
        assert error is None, str(error)


def test_two_hundred_levels_work_from_a_deep_caller() -> None:
    def call(levels: int) -> None:
        if levels:
            call(levels - 1)
        else:
            parse("SELECT " + "(" * MAX_NESTING + "1" + ")" * MAX_NESTING)

    call(500)
    assert sys.getrecursionlimit() < 20_000


CHAINS = {
    "plus": ("SELECT a{}", " + a"),
    "and": ("SELECT a{}", " AND a = 1"),
    "or": ("SELECT a{}", " OR a"),
    "concat": ("SELECT a{}", " || a"),
    "equal": ("SELECT a{}", " = a"),
    "is": ("SELECT a{}", " IS NULL"),
    "in": ("SELECT a{}", " IN (1)"),
    "like": ("SELECT a{}", " LIKE 'x'"),
    "between": ("SELECT a{}", " BETWEEN 1 AND 2"),
    "cast": ("SELECT a{}", "::INT"),
    "index": ("SELECT a{}", "[1]"),
    "dot": ("SELECT a{}", ".b"),
    "not": ("SELECT {}a", "NOT "),
    "equal not": ("SELECT a{}", " = NOT a"),
    "minus": ("SELECT {}a", "- "),
    "tilde": ("SELECT {}a", "~ "),
    "positive": ("SELECT {}a", "+ "),
    "union": ("SELECT 1{}", " UNION ALL SELECT 1"),
    "intersect": ("SELECT 1{}", " UNION SELECT 1 INTERSECT SELECT 2"),
    "from union": ("SELECT * FROM a{}", " UNION a"),
    "bare union": ("a{}", " UNION a"),
    "join": ("SELECT * FROM a{}", " JOIN b"),
    "comma join": ("SELECT * FROM a{}", ", b"),
    "join on": ("SELECT * FROM a{}", " JOIN b ON a.x = b.x"),
    "select list": ("SELECT a{}", ", a"),
    "arguments": ("SELECT f(a{})", ", a"),
    "when": ("SELECT CASE{} END", " WHEN a THEN b"),
    "interval": ("SELECT {}1", "INTERVAL "),
    "at time zone": ("SELECT a{}", " AT TIME ZONE b"),
    "over": ("SELECT f(x){}", " OVER (PARTITION BY a)"),
    "select": ("{}1", "SELECT "),
    "with": ("{}1", "WITH "),
    "explain": ("{}SELECT 1", "EXPLAIN "),
    "istream": ("{}SELECT 1", "ISTREAM("),
    "distinct": ("SELECT {}a", "DISTINCT "),
    "aliases": ("SELECT a{}", " AS b"),
    "strings": ("SELECT a{}", " 'x'"),
    "colons": ("SELECT a{}", ":b"),
    "statements": ("SELECT 1{}", "; SELECT 1"),
    "window parts": ("SELECT * FROM s [ROWS 1{}]", " WA ts"),
    "options": ("CREATE STREAM s WITH ('k' = 1{})", ", 'k' = 2"),
    "columns": ("CREATE STREAM s (a INT{})", ", a INT"),
    "types": ("CREATE STREAM s (a {}INT)", "ARRAY<"),
    "units": ("SELECT * FROM s [RANGE {}]", "1 s "),
    "dates": ("SELECT {}'x'", "DATE "),
    "exists": ("SELECT {}1", "EXISTS "),
    "filters": ("SELECT sum(a){}", " FILTER (WHERE a)"),
}


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("kind", CHAINS)
@pytest.mark.parametrize("length", [150, 5_000])
def test_long_chains(kind: str, length: int) -> None:
    shape, link = CHAINS[kind]
    taken, error = seconds(shape.format(link * length))
    assert taken < HANG, error
    if length == 150 and kind in ("plus", "and", "or", "union", "select list", "not", "minus"):
        assert error is None, str(error)


def test_size_limits() -> None:
    taken, error = seconds("SELECT " + " " * MAX_TEXT + "1")
    assert error is not None
    assert "characters" in error.message
    assert taken < HANG
    taken, error = seconds("SELECT 'x" + "y" * (MAX_TEXT - 100) + "'")
    assert error is None
    assert taken < HANG
    taken, error = seconds("SELECT a IN (" + "1," * MAX_TOKENS + "1)")
    assert error is not None
    assert "words and signs" in error.message
    assert taken < HANG
    for text in (
        "a." * 400_000,
        "_ " * 400_000,
        "/*+ a */" * 1_000,
        "SELECT /*+ " + "a " * 400_000 + "*/ 1",
    ):
        taken, error = seconds(text)
        assert error is not None
        assert taken < HANG
    taken, error = seconds("SELECT a IN (" + "1, " * (MAX_TOKENS // 2 - 10) + "1)")
    assert error is None
    assert taken < HANG
