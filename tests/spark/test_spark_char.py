"""CHAR(n) and VARCHAR(n) of Spark's tables: compared, read and written as in Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cql

pytestmark = pytest.mark.spark

ROWS = """(1, 'ab', 'ab', 'ab', 'ab'), (2, 'abcde', 'abc', 'abcd', 'abcde'),
    (3, 'ab ', 'ab', 'ab ', 'ab '), (4, NULL, 'x', NULL, NULL), (5, 'a', 'a', 'a', 'ab   ')"""

#: Expressions over one row, whose values must equal Spark's.
EXPRESSIONS = """
    c | d | v | length(c) | c = 'ab' | c = 'ab ' | c = 'ab       ' | 'ab' = c | c <=> 'ab'
    c IS DISTINCT FROM 'ab' | c < 'ab' | c <= 'ab' | c <> 'ab' | c > 'ab' | c >= 'ab'
    c > 'ab     z' | c = d | d <=> c | c < d | c = s | c = v | v = 'ab' | v = 'ab ' | s = 'ab'
    c IN ('ab', 'abcde') | c IN ('ab ', 'zz       ') | c NOT IN ('ab') | c IN ('ab', s) | c IN (d)
    c IN ('ab', NULL) | c BETWEEN 'ab' AND 'ab' | CASE c WHEN 'ab' THEN 1 ELSE 0 END
    CASE WHEN c = 'ab' THEN c ELSE 'no' END = 'ab' | c = concat('a', 'b') | c LIKE 'ab'
    c LIKE 'ab%' | coalesce(c, 'z') = 'ab' | upper(c) = 'AB' | CAST(c AS STRING) = 'ab'
    concat(c, '|') | nullif(c, 'ab') | nullif(c, d) | greatest(c, 'ab') | if(c = 'ab', 1, 0)
    c = NULL | NOT c = 'ab'
"""
LISTED = [e.strip() for line in EXPRESSIONS.strip().splitlines() for e in line.split(" | ")]

#: Queries whose rows must be Spark's, as bags.
QUERIES = (
    "SELECT a.id, b.id AS other FROM {t} a LEFT JOIN {t} b ON a.c = b.d AND b.c = 'ab'",
    "SELECT a.id, b.id AS other FROM {t} a JOIN (SELECT id, d AS c FROM {t}) b USING (c)",
    "SELECT id FROM (SELECT id, max(c) AS x FROM {t} GROUP BY id) WHERE x = 'ab'",
    "SELECT id FROM (SELECT id, c AS x FROM {t} GROUP BY id, c HAVING c < 'b') WHERE x = 'ab'",
    "SELECT id FROM (SELECT id, c AS x FROM {t} UNION ALL SELECT id, d FROM {t}) WHERE x = 'ab'",
    "SELECT id FROM (SELECT id, s AS x FROM {t} UNION ALL SELECT id, c FROM {t}) WHERE x = 'ab'",
    "SELECT id FROM {t} WHERE c IN (SELECT d FROM {t})",
    "SELECT id FROM {t} a WHERE EXISTS (SELECT 1 FROM {t} b WHERE b.d = a.c)",
)


def rows(found: Any) -> list[tuple[Any, ...]]:
    return [tuple(r.values()) for r in found.to_arrow().to_pylist()]


def bag(found: Any) -> list[str]:
    return sorted(repr(tuple(r)) for r in found)


@pytest.fixture(scope="module")
def session(spark: Any) -> Any:
    names = "chars", "chars_csv", "chars_by", "chars_bare"
    for name in names:
        spark.sql(f"DROP TABLE IF EXISTS {name}")
    columns = "id INT, c CHAR(5), d CHAR(3), v VARCHAR(4), s STRING"
    spark.sql(f"CREATE TABLE chars ({columns}) USING parquet")
    spark.sql(f"CREATE TABLE chars_csv ({columns}) USING csv")
    spark.sql(f"CREATE TABLE chars_by ({columns}) USING parquet PARTITIONED BY (c)")
    for name in ("chars", "chars_csv"):
        spark.sql(f"INSERT INTO {name} VALUES {ROWS}")
    spark.sql(f"INSERT INTO chars_by (id, c, d, v, s) VALUES {ROWS}")
    spark.sql("CREATE OR REPLACE VIEW chars_view AS SELECT id, c, d, v, s FROM chars")
    spark.sql("CREATE OR REPLACE TEMP VIEW chars_temp AS SELECT id, c, d, v, s FROM chars")
    yield cql.connect(spark)
    for name in ("chars_view", "chars_temp"):
        spark.sql(f"DROP VIEW {name}")
    for name in names:
        spark.sql(f"DROP TABLE IF EXISTS {name}")


def test_expressions_are_those_of_spark(session: Any, spark: Any) -> None:
    for start in range(0, len(LISTED), 12):
        part = ", ".join(f"{e} AS e{k}" for k, e in enumerate(LISTED[start : start + 12]))
        text = f"SELECT id, {part} FROM chars ORDER BY id"
        expected = [tuple(r) for r in spark.sql(text).collect()]
        assert rows(session.sql(text)) == expected, LISTED[start : start + 12]


@pytest.mark.parametrize("table", ["chars_csv", "chars_by", "chars_view", "chars_temp"])
def test_every_kind_of_table_knows_its_char_columns(session: Any, spark: Any, table: str) -> None:
    text = f"SELECT id, c, d FROM {table} WHERE c = 'ab' OR c = d OR c IN ('abcde ', 'x')"
    assert bag(rows(session.sql(text))) == bag(spark.sql(text).collect())


@pytest.mark.sampled
@pytest.mark.parametrize("text", QUERIES)
def test_queries_give_the_rows_of_spark(session: Any, spark: Any, text: str) -> None:
    text = text.format(t="chars")
    assert bag(rows(session.sql(text))) == bag(spark.sql(text).collect())


def test_a_stream_over_a_table_keeps_its_char_columns(spark: Any) -> None:
    spark.sql("CREATE TABLE char_times (ts TIMESTAMP, c CHAR(3)) USING parquet")
    spark.sql("INSERT INTO char_times VALUES (TIMESTAMP '2026-01-01 00:00:00Z', 'a')")
    session = cql.connect(spark)
    session.sql("CREATE STREAM char_s (ts TIMESTAMP, c STRING) FROM TABLE char_times ORDERED BY ts")
    assert rows(session.sql("SELECT c FROM char_s WHERE c = 'a'")) == [("a  ",)]
    spark.sql("DROP TABLE char_times")


def test_files_of_others_are_filled_when_they_are_read(spark: Any, tmp_path: Any) -> None:
    pq.write_table(pa.table({"id": [1, 2], "c": ["ab", None]}), tmp_path / "x.parquet")
    spark.sql(f"CREATE TABLE chars_bare (id BIGINT, c CHAR(5)) USING parquet LOCATION '{tmp_path}'")
    text = "SELECT id, c FROM chars_bare ORDER BY id"
    assert rows(cql.connect(spark).sql(text)) == [tuple(r) for r in spark.sql(text).collect()]
    assert rows(cql.connect(spark).sql(text)) == [(1, "ab   "), (2, None)]


def test_text_is_written_as_spark_writes_it(spark: Any) -> None:
    given = "(1, 'ab', 'ab'), (2, 'ab      ', 'ab      '), (3, NULL, NULL), (4, 'äöüß', 'äöüß')"
    for name in ("char_ours", "char_sparks"):
        spark.sql(f"CREATE TABLE {name} (id INT, c CHAR(4), v VARCHAR(4)) USING parquet")
    session = cql.connect(spark)
    session.sql(f"INSERT INTO char_ours VALUES {given}")
    spark.sql(f"INSERT INTO char_sparks VALUES {given}")
    text = "SELECT id, concat(c, '|'), concat(v, '|') FROM {} ORDER BY id"
    ours, sparks = (spark.sql(text.format(n)).collect() for n in ("char_ours", "char_sparks"))
    assert ours == sparks
    for column in ("c", "v"):
        with pytest.raises(
            cql.CqlError, match=rf"column {column} is (var)?char\(4\), and a value has 5"
        ):
            session.sql(f"INSERT INTO char_ours (id, {column}) VALUES (9, 'abcde')")
    assert spark.table("char_ours").count() == 4
    for name in ("char_ours", "char_sparks"):
        spark.sql(f"DROP TABLE {name}")
