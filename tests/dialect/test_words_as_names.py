"""Words of the grammar as names of columns and tables, unquoted where Spark allows it."""

from __future__ import annotations

import pytest
from sqlglot import exp

import cql
from cql.dialect import parse
from cql.dialect.lexical import words
from cql.dialect.tokens import RESERVED

LATE = words("CROSS END ESCAPE FULL INNER INTO LEFT LIMIT NATURAL OUTER OVER RIGHT USING")
OTHERS = words(
    "ALL AND BETWEEN ELSE EXCEPT FROM HAVING ILIKE IN INTERSECT INTERVAL IS JOIN LIKE ON OR "
    "QUALIFY THEN UNION WHEN WHERE"
)
NEVER = words("AS CASE DISTINCT EXISTS FALSE NOT NULL REGEXP RLIKE SELECT TRUE VALUES WITH")
PLACES = (
    "SELECT {} FROM t",
    "SELECT {}, b FROM t",
    "SELECT b, {} FROM t",
    "SELECT max({}) AS m FROM t",
    "SELECT t.{} FROM t",
)
LATE_PLACES = (
    "SELECT b AS {} FROM t",
    "SELECT {} AS b FROM t",
    "SELECT {} + 1 FROM t",
    "SELECT 1 - {} FROM t",
    "SELECT * FROM t WHERE {} > 1 AND 2 < {}",
    "SELECT * FROM t WHERE b = {}",
    "SELECT * FROM t WHERE {} IS NULL OR {} IN (1, 2) OR {} BETWEEN 1 AND {}",
    "SELECT CASE WHEN {} > 1 THEN {} ELSE {} END AS x FROM t",
    "SELECT {} FROM t GROUP BY {} ORDER BY {}",
    "SELECT b FROM t ORDER BY {} DESC, b",
    "SELECT {}::INT FROM t",
    "SELECT * FROM {}",
    "SELECT {}.b FROM t AS {}",
    "SELECT * FROM t JOIN u AS {} ON t.b = {}.b",
    "CREATE STREAM s ({} TIMESTAMP, b INT) ORDERED BY {}",
    "CREATE STREAM s (b INT, {} BIGINT) WATERMARK {} DELAY OF 5 SECONDS",
    "SELECT count(*) FROM t [RANGE 1 MINUTE, SLIDE 1 MINUTE, WA {}]",
    "INSERT INTO t ({}, b) VALUES (1, 2)",
)


def same(text: str, word: str) -> None:
    """Checks that the bare word and the word in backticks give equal trees."""
    bare, quoted = (
        parse(text.replace("{}", written))[0] for written in (word.lower(), f"`{word.lower()}`")
    )
    for tree in (bare, quoted):
        again = parse(tree.sql(dialect="cql"))[0]
        assert again.sql(dialect="cql") == tree.sql(dialect="cql")
        for node in tree.find_all(exp.Identifier):
            node.set("quoted", False)
    assert bare == quoted, text


@pytest.mark.parametrize("word", LATE + OTHERS)
def test_a_word_is_a_column_where_nothing_else_can_stand(word: str) -> None:
    for place in PLACES + (LATE_PLACES if word in LATE else ()):
        same(place, word)


def test_every_reserved_word_is_sorted_into_a_list() -> None:
    single = {w for w in RESERVED if " " not in w}
    assert single == {*LATE, *OTHERS, *NEVER}


@pytest.mark.parametrize("word", sorted({*NEVER} - {"FALSE", "NULL", "TRUE"}))
def test_the_others_are_told_to_be_quoted(word: str) -> None:
    parse(f"SELECT `{word.lower()}` FROM t")
    with pytest.raises(cql.CqlError) as caught:
        parse(f"SELECT {word.lower()} FROM t")
    assert f"`{word.lower()}`" in (caught.value.hint or "")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT left(a, 2), right(a, 1) FROM t LEFT JOIN u ON t.a = u.a",
        "SELECT * FROM a FULL OUTER JOIN b USING (k) LIMIT 3",
        "SELECT CASE WHEN a THEN b END, CASE a WHEN 1 THEN 2 ELSE 3 END AS x FROM t",
        "SELECT a FROM t WHERE EXISTS (SELECT 1 FROM u) AND NOT a IN (1) LIMIT 5",
        "SELECT a FROM t CROSS JOIN u NATURAL JOIN v",
    ],
)
def test_clauses_stay_clauses(text: str) -> None:
    assert "`" not in parse(text)[0].sql()


def test_rows_of_columns_called_end_left_and_limit() -> None:
    session = cql.connect(spark=False)
    session.register_table("f", {"start": [1, 4], "end": [3, 9], "left": [7, 8], "limit": [5, 6]})
    got = session.sql("SELECT end - start AS left, limit FROM f WHERE end > 2 ORDER BY end LIMIT 1")
    assert got.to_arrow().to_pylist() == [{"left": 2, "limit": 5}]
    got = session.sql("SELECT CASE WHEN left > 7 THEN end ELSE start END AS end FROM f")
    assert sorted(r["end"] for r in got.to_arrow().to_pylist()) == [1, 9]
