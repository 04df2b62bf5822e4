"""What is refused, where the caret stands, and what the hint says."""

# ruff: noqa: E501
from __future__ import annotations

import sys
import time

import pytest

from cql.dialect import parse
from cql.dialect.lexical import MAX_NESTING, MAX_TEXT, MAX_TOKENS
from cql.errors import ParseError

# (text, with ¦ before the offending token; part of the message; part of the hint)
CASES = [
    # misspelt words
    ("SELECT a FROM S ¦GRUP BY a", "unexpected 'GRUP'", "did you mean GROUP?"),
    ("SELECT a FROM S ¦WEHRE x > 1", "unexpected 'WEHRE'", "did you mean WHERE?"),
    ("SELECT a ¦FORM S", "unexpected 'FORM'", "did you mean FROM?"),
    ("SELECT a,\n  b ¦FORM S\nWHERE b", "unexpected 'FORM'", "did you mean FROM?"),
    ("SELECT a FROM S ¦ORDR BY a", "unexpected 'ORDR'", "did you mean ORDER?"),
    ("¦SELEC a FROM S", "'SELEC' is not a statement", "did you mean SELECT?"),
    ("CREATE ¦STREM s (a INT)", "after CREATE", "did you mean STREAM?"),
    ("CREATE STREAM s (a ¦INTT)", "'INTT' is not a type", "did you mean INT"),
    ("SELECT CAST(a AS ¦STRNG)", "'STRNG' is not a type", "STRING"),
    ("CREATE STREAM s (a INT) UPDATE ¦KYE (a)", "expected UPDATE KEY", "did you mean KEY?"),
    ("CREATE STREAM s (a INT) QUEUE ¦LIFO", "after QUEUE", "did you mean FIFO?"),
    ("CREATE STREAM s (a INT) ¦ORDRED BY a", "starts no clause", "did you mean ORDERED BY?"),
    ("CREATE STREAM s (a INT) ORDERED BY a IN ¦SECNDS", "no unit", "did you mean SECONDS"),
    ("CREATE STREAM s (a INT) QUEUE FIFO ¦SHED RANDOM", "only QUEUE APPEND sheds load", "APPEND SHED"),
    ("CREATE STREAM s (a INT) RATE 5 ¦GHZ", "expected one of HZ, KHZ, MHZ", ""),
    ("SHOW ¦STRAEMS", "after SHOW", "STREAMS"),
    ("SELECT a FROM S EMIT ¦CHANGS", "after EMIT", "did you mean CHANGES?"),
    ("SELECT a FROM S EMIT ¦SOON", "after EMIT", "CHANGES"),
    ("SELECT a FROM S ON BAD ROW ¦SKIP", "after ON BAD ROW", "write ON BAD ROW FAIL or ON BAD ROW KEEP"),
    ("SELECT a FROM S ON BAD ¦COLUMN FAIL", "expected ON BAD ROW", "write ON BAD ROW KEEP"),
    ("CREATE STREAM s (a INT) UPDATE ¦ON (a)", "expected UPDATE KEY", "write UPDATE KEY (column, …)"),
    ("CREATE STREAM s (a INT) ORDERED ¦a", "expected ORDERED BY", "write ORDERED BY column"),
    ("CREATE STREAM s (a INT) IDLE ¦5 s", "expected IDLE AFTER", "write IDLE AFTER 5 SECONDS"),
    ("CREATE STREAM s (a INT) MAX ¦5 s", "expected MAX ADVANCE", "write MAX ADVANCE 1 HOUR"),
    ("CREATE STREAM ¦ORDERED BY a", "a name is missing before ORDERED BY", ""),
    ("CREATE STREAM s FROM TABLE db.¦IDLE AFTER 5 s", "a name is missing before IDLE AFTER", ""),
    ("STOP ¦q1", "expected QUERY after STOP", "write STOP QUERY q1"),
    ("SELECT a FROM S GROUP ¦a", "unexpected 'a'", "did you mean GROUP BY?"),
    ("SELECT a count¦(*) FROM S", "unexpected '('", "comma is probably missing before 'count'"),
    # windows
    ("SELECT count(*) FROM S [RANGE 1 ¦minut]", "unknown unit of time 'minut'", "MINUTE"),
    ("SELECT count(*) FROM S [RANGE ¦'1 minut']", "unknown unit of time 'minut'", "MINUTE"),
    ("SELECT a FROM S [RANGE 1 min,\n  ¦SLYDE 1 min]", "'SLYDE' starts no part", "SLIDE"),
    ("SELECT count(*) FROM S ¦[]", "this window is empty", "[RANGE 1 MINUTE"),
    ("SELECT count(*) ¦[] FROM S", "empty", "[RANGE 1 MINUTE"),
    ("SELECT a FROM S [RANGE 1 min, ¦RANGE 2 min]", "two RANGE clauses", ""),
    ("SELECT a FROM S [¦5 minutes]", "'5' starts no part of a window", "RANGE"),
    ("SELECT a FROM S ¦[NOW, RANGE 5]", "[NOW] takes nothing else", ""),
    ("SELECT a FROM S ¦[SLIDE 5 s]", "no extent", "RANGE, ROWS, NOW or UNBOUNDED"),
    ("SELECT a FROM S [RANGE 1 minute SLIDE¦, WA ts]", "SLIDE needs a length of time", "1 MINUTE"),
    ("SELECT a FROM S [RANGE 5 s¦,]", "nothing stands behind this comma", "remove the comma"),
    ("SELECT a FROM S [RANGE 1 minute, WA ¦'ts']", "the name of a column after WA", ""),
    ("SELECT a FROM S ¦[RANGE 1 min, SLIDE 1 min", "this [ is not closed", "add ]"),
    ("SELECT a FROM S [ROWS ¦1.5]", "ROWS needs a whole number", "ROWS 100"),
    ("SELECT * FROM S [RANGE ¦1e3 s]", "not a length of time", ""),
    ("SELECT * FROM S [RANGE ¦1 month 2 days]", "do not add up", "days"),
    ("SELECT * FROM S [ROWS 1] AS x ¦[ROWS 2]", "two windows", "remove one"),
    ("SELECT * FROM S, T WINDOW ¦ten minutes", "'ten' is not a number", "10 MINUTES"),
    ("SELECT * FROM A UNION¦", "the name of a stream or table is missing", ""),
    ("SELECT * FROM A UNION B UNION ¦[ROWS 3]", "the name of a stream or table", ""),
    ("SELECT * FROM TABLE(TUMBLE(TABLE b, DESCRIPTOR(ts) ¦INTERVAL '1' MINUTE))", "expected )", ""),
    ("SELECT * FROM TABLE(¦TUMBLE(TABLE b, DESCRIPTOR(ts)))", "TUMBLE lacks its size", ""),
    ("SELECT * FROM TUMBLE(TABLE b, ts, ¦SIZ => 1 s)", "no argument SIZ", "did you mean SIZE?"),
    ("SELECT a FROM t GROUP BY ¦window(ts)", "WINDOW lacks its size", ""),
    ("¦ISTREAM(ISTREAM(SELECT a FROM S))", "ISTREAM of a stream", ""),
    ("SELECT ISTREAM(a)¦, b FROM S", "this list is closed", "whole select list"),
    ("SELECT * FROM S [RANGE ¦-5 s]", "RANGE cannot be negative", ""),
    ("SELECT * FROM S [RANGE 5 s SLIDE ¦INTERVAL '-1' SECOND]", "SLIDE cannot be negative", ""),
    ("CREATE STREAM s WATERMARK ts DELAY ¦-1", "DELAY cannot be negative", ""),
    ("SELECT * FROM a JOIN b ¦MATCH_CONDITION (a.ts >= b.ts)", "only an ASOF JOIN", "use ON"),
    ("SELECT a IN ¦b", "expected ( after IN", "IN (1, 2)"),
    ("SELECT a IN ¦()", "this list is empty", ""),
    # commas, parentheses, ends
    ("SELECT a b ¦c FROM S", "unexpected 'c'", "a comma is probably missing before 'c'"),
    ("SELECT a¦, FROM S", "nothing stands behind this comma", "remove the comma"),
    ("SELECT f(a¦,) FROM S", "nothing stands behind this comma", "remove the comma"),
    ("SELECT ¦, a FROM S", "nothing stands before this comma", "remove the comma"),
    ("SELECT a FROM S,¦", "the name of a stream or table is missing at the end", ""),
    ("SELECT ¦(a FROM S", "this ( is not closed", "add )"),
    ("SELECT a¦) FROM S", "this ) closes nothing", "remove it"),
    ("SELECT f(a¦] FROM S", "] cannot close the (", "close it with ) first"),
    ("CREATE STREAM s ¦(a INT", "this ( is not closed", "add )"),
    ("SELECT a FROM S WHERE¦", "missing at the end", ""),
    ("SELECT a FROM S JOIN T ON¦", "a condition is missing after ON", ""),
    ("SELECT a + ¦FROM S", "missing before 'FROM'", ""),
    ("SELECT CASE WHEN a THEN b¦", "expected END", ""),
    ("SELECT CASE a ¦END", "expected WHEN", ""),
    ("SELECT a FROM S GROUP BY¦", "missing after GROUP BY", ""),
    ("SELECT a BETWEEN 1 ¦2", "expected AND after BETWEEN", ""),
    ("SELECT CAST(a ¦INT)", "expected CAST(expression AS type)", ""),
    ("SELECT ¦5abc", "neither a number nor a name", ""),
    ("SELECT ¦1.5L", "'1.5L' is no BIGINT", ""),
    ("SELECT ¦X'0g'", "takes hexadecimal digits", "X'00FF'"),
    ("SELECT ¦r'a\\d'", "r in front of a string", "backslashes stand for themselves"),
    ("SELECT w FROM t GROUP BY window(ts, '1 minute') ¦AS w", "names no columns",
     "write SELECT window(…) AS w, … GROUP BY w"),
    ("SELECT w FROM t GROUP BY k, TUMBLE(ts, 1 s) ¦AS w HAVING a", "names no columns",
     "SELECT tumble(…) AS w"),
    ("SELECT w FROM t GROUP BY k + 1 ¦AS w", "names no columns", "SELECT … AS w, … GROUP BY w"),
    ("SELECT a FROM t LIMIT 2 ¦UNION ALL SELECT a FROM u LIMIT 3", "LIMIT in front of UNION ALL",
     "write (SELECT … LIMIT …) UNION ALL (SELECT …)"),
    ("SELECT a FROM t UNION SELECT a FROM u ORDER BY a ¦EXCEPT SELECT a FROM v",
     "ORDER BY in front of EXCEPT", "write (SELECT … ORDER BY …) EXCEPT (SELECT …)"),
    ("SELECT a FROM t OFFSET 1 ¦INTERSECT SELECT a FROM u", "OFFSET in front of INTERSECT", ""),
    ("SELECT a FROM t GROUP BY ALL b¦", "GROUP BY ALL takes no columns", ""),
    ("SELECT * ¦REPLACE (a + 1 AS a) FROM t", "* REPLACE is not part", "* EXCEPT"),
    ("SELECT count(¦* EXCEPT (a)) FROM t", "stands only in a select list", ""),
    ("SELECT a FROM ¦'x.csv'", "a file is no stream", "OPTIONS (path 'x.csv')"),
    ("CREATE ¦TEMP TABLE t (a INT)", "only views are created as temporary", "leave the word out"),
    ("CREATE ¦GLOBAL TEMP VIEW v AS SELECT 1", "GLOBAL is not supported", "CREATE VIEW"),
    ("SHOW ¦CREATE TABLE t", "no SHOW CREATE", "DESCRIBE"),
    ("SELECT arr[1¦, 2]", "expected ]", ""),
    ("SELECT ¦[1, 2]", "a list starts with its name", "ARRAY"),
    ("EXPLAIN¦", "a statement is missing", ""),
    ("SET a ¦1", "expected =", "SET a = value"),
    # characters
    ("SELECT ¦'abc FROM S", "this string is not closed", "add '"),
    ('SELECT ¦"abc FROM S', "this name is not closed", 'add "'),
    ("SELECT ¦`abc FROM S", "this name is not closed", "add `"),
    ("SELECT 1 ¦/* abc", "this comment is not closed", "add */"),
    ("SELECT ¦\x00a", "NUL", ""),
    ("SELECT '¦\ud800'", "lone surrogate (U+D800)", ""),
    ("SELECT n ¦'x' FROM t", "unexpected 'x'", "a comma is probably missing"),
    ("SELECT 1 ¦{# x #}", "unexpected '{'", ""),
    ("SELECT ¦? FROM t", "a parameter needs a name", ":n"),
    ("SELECT ¦@x FROM t", "'@' starts nothing", ":name"),
    ("SELECT a -¦> 1", "missing before '>'", ""),
    # hints
    ("SELECT a ¦/*+ x */ FROM t", "a hint stands right behind SELECT", "/* … */"),
    ("SELECT /*+ x¦(1 */ a", "this hint is not closed", "add )"),
    ("SELECT ¦/*+ */ a", "this hint is empty", "morsel_rows"),
    # streams and options
    ("CREATE STREAM s FROM TABLE t ¦USING csv", "a stream has one source", ""),
    ("CREATE STREAM s RATE 1 HZ ¦RATE 2 HZ", "two RATE clauses", ""),
    ("CREATE STREAM s (a INT, ¦A INT)", "column 'A' stands here twice", ""),
    ("CREATE STREAM s WITH ('a' = 1, ¦'A' = 2)", "option 'A' stands here twice", ""),
    ("CREATE STREAM s WITH ('a' ¦1)", "expected = after 'a'", "'key' = 'value'"),
    ("CREATE STREAM s (a INT) IDLE ¦5 s", "expected IDLE AFTER", ""),
    ("DROP ¦QUERY q", "after DROP", ""),
    ("STOP ¦q", "expected QUERY after STOP", ""),
    # not of this dialect
    ("SELECT * FROM t ¦LATERAL VIEW explode(a)", "LATERAL VIEW is not supported", ""),
    ("SELECT a FROM t ¦|> WHERE a", "unexpected '|'", ""),
    ("SELECT a FROM t ¦FETCH FIRST 3 ROWS ONLY", "FETCH FIRST is not supported", "LIMIT n"),
    ("SELECT a FROM t ORDER BY a OFFSET 2 ¦FETCH NEXT ROW ONLY", "FETCH NEXT is not", "OFFSET m"),
    ("SELECT a FROM t LIMIT 10 ¦PERCENT", "PERCENT is not supported", "a number of rows"),
    ("SELECT a FROM t WHERE a ¦FOR UPDATE", "FOR UPDATE is not supported", "locks no rows"),
    ("CREATE TABLE t (a INT NOT NULL ¦DEFAULT 5)", "DEFAULT is not supported", "coalesce(x, 5)"),
    ("CREATE TABLE t (a INT ¦GENERATED ALWAYS AS (1))", "GENERATED is not", "compute it"),
    ("CREATE TABLE t (a INT ¦REFERENCES b (a))", "REFERENCES is not supported", "no key"),
    ("CREATE TABLE t (a INT, CONSTRAINT c ¦CHECK (a > 0))", "CHECK is not supported", "WHERE"),
    ("CREATE TABLE t (a INT, ¦FOREIGN KEY (a) REFERENCES b)", "FOREIGN KEY is not", "no key"),
    ("CREATE TABLE t (check INT, unique STRING ¦UNIQUE)", "UNIQUE is not supported", "DISTINCT"),
    ("CREATE TABLE t (a INT) USING parquet ¦PARTITIONED BY (a)", "PARTITIONED BY is not", "Spark"),
    ("CREATE TABLE t ¦LIKE u", "LIKE is not supported", "LIMIT 0"),
    ("CREATE ¦EXTERNAL TABLE t (a INT)", "CREATE EXTERNAL is not supported", "LOCATION"),
    ("INSERT ¦OVERWRITE t SELECT 1", "OVERWRITE is not supported", "CREATE OR REPLACE TABLE"),
    ("INSERT INTO t ¦BY NAME SELECT 1 AS a", "BY NAME is not supported", "(b, a)"),
    ("INSERT INTO t ¦PARTITION (a = 1) SELECT 1", "PARTITION is not supported", "fill them"),
    ("SELECT k ¦** 2 FROM t", "** is not supported", "pow(x, y)"),
    ("SELECT (k)¦**(k + 1) FROM t", "** is not supported", "pow(x, y)"),
    ("SELECT k ¦** k FROM t", "** is not supported", "pow(x, y)"),
    ("SELECT k FROM t WHERE count(*) ¦** -1 > 0", "** is not supported", "pow(x, y)"),
    ("SELECT k ¦// 2 FROM t", "// is not supported", "x div y"),
    ("SET ¦TIME ZONE 'Europe/Prague'", "TIME ZONE is not supported", "always UTC"),
    ("RESET ¦TIME ZONE", "TIME ZONE is not supported", "always UTC"),
    ("SELECT * FROM t ¦TABLESAMPLE (10 PERCENT)", "TABLESAMPLE is not supported", "filter"),
    ("SELECT DISTINCT ¦ON (a) a, b FROM t", "DISTINCT ON is not supported", "GROUP BY"),
    ("SELECT ¦TOP 3 a FROM t", "TOP is not supported", "LIMIT n"),
]  # fmt: skip


def expected_place(marked: str) -> tuple[str, int, int]:
    at = marked.index("¦")
    before = marked[:at]
    return marked.replace("¦", "", 1), before.count("\n") + 1, at - (before.rfind("\n") + 1) + 1


@pytest.mark.parametrize(("marked", "message", "hint"), CASES)
def test_refused(marked: str, message: str, hint: str) -> None:
    text, line, column = expected_place(marked)
    with pytest.raises(ParseError) as caught:
        parse(text)
    error = caught.value
    assert (error.line, error.column) == (line, column), str(error)
    assert message in error.message
    assert hint in (error.hint or "")
    assert "^" in str(error)


FOREIGN = (
    "ALTER TABLE t ADD COLUMN a INT",
    "COPY t FROM 'x'",
    "TRANSFORM x",
    "GRANT ALL ON t TO u",
    "PRAGMA x",
    "ATTACH 'x'",
    "MERGE INTO t USING u ON t.a = u.a",
    "CACHE TABLE t",
    "ADD JAR 'x.jar'",
    "DELETE FROM t",
    "UPDATE t SET a = 1",
    "TRUNCATE TABLE t",
    "BEGIN",
    "COMMIT",
    "CALL f()",
    "VACUUM",
    "LOAD DATA INPATH 'x' INTO TABLE t",
    "REFRESH TABLE t",
    "KILL 3",
    "FROM t SELECT a",
    "SUMMARIZE t",
    "WHILE x BEGIN END",
)


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


#: Seconds of computing that no text may take: on a quiet machine it is one, and others that use a
#: machine's caches make it several times slower.
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
