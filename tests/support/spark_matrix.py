"""The table features of Spark's SQL reference, each run in Spark and in the engine.

``pytest tests/spark/test_spark_matrix.py --rewrite`` writes the results to
``docs/spark-matrix.md``.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import cql
from tests.support.paths import ROOT

DOCUMENT = ROOT / "docs" / "spark-matrix.md"
RIGHT = "as Spark"
OURS, SPARKS = "matrix_ours", "matrix_sparks"


@dataclass(frozen=True)
class Feature:
    """``table`` is the text after the table's name in CREATE TABLE; ``insert`` is the text after
    INSERT INTO {t}; ``after`` are statements over {t} that Spark runs; ``read`` is a query over
    {t}; ``conf`` are settings of the Spark session."""

    title: str
    table: str
    insert: str
    after: Sequence[str] = ()
    read: str = "SELECT * FROM {t}"
    conf: dict[str, str] = field(default_factory=dict)


def of_type(kind: str, *values: str) -> Feature:
    rows = ", ".join(f"({k}, {v})" for k, v in enumerate([*values, "NULL"]))
    return Feature(f"`{kind}`", f"(k INT, x {kind}) USING parquet", f"VALUES {rows}")


def of_types(title: str, kinds: Sequence[str], values: Sequence[str]) -> Feature:
    columns = ", ".join(f"x{n} {kind}" for n, kind in enumerate(kinds))
    rows = f"VALUES (0, {', '.join(values)}), (1, {', '.join(['NULL'] * len(kinds))})"
    return Feature(title, f"(k INT, {columns}) USING parquet", rows)


TYPES = (
    of_types(
        "`BOOLEAN`, `TINYINT`, `SMALLINT`, `INT`, `BIGINT`",
        ("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT"),
        ("true", "-128", "-32768", "2147483647", "9223372036854775807"),
    ),
    of_types("`FLOAT`, `DOUBLE`", ("FLOAT", "DOUBLE"), ("CAST(0.1 AS FLOAT)", "0.1D")),
    of_types(
        "`DECIMAL(10,2)`, `DECIMAL(18,4)`",
        ("DECIMAL(10,2)", "DECIMAL(18,4)"),
        ("12345678.91", "CAST(1.5 AS DECIMAL(18,4))"),
    ),
    of_type("DECIMAL(38,4)", "CAST(1.5 AS DECIMAL(38,4))"),
    of_types("`STRING`, `BINARY`", ("STRING", "STRING", "BINARY"), ("''", "'ü'", "X'00FF'")),
    of_type("STRING COLLATE UTF8_LCASE", "'a'"),
    of_types(
        "`CHAR(n)`, `VARCHAR(n)`",
        ("CHAR(4)", "CHAR(4)", "VARCHAR(4)", "VARCHAR(4)"),
        ("'ab'", "'ab     '", "'ab'", "'ab     '"),
    ),
    of_types(
        "`DATE`, `TIMESTAMP`, `TIMESTAMP_NTZ`",
        ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ"),
        (
            "DATE '2026-01-02'",
            "TIMESTAMP '2026-01-02 03:04:05.678901Z'",
            "TIMESTAMP_NTZ '2026-01-02 03:04:05.678901'",
        ),
    ),
    of_type("TIME(6)", "TIME '03:04:05'"),
    of_type("INTERVAL YEAR TO MONTH", "INTERVAL '1-2' YEAR TO MONTH"),
    of_type("INTERVAL DAY TO SECOND", "INTERVAL '1 02:03:04' DAY TO SECOND"),
    of_type("ARRAY<INT>", "array(1, 2)"),
    of_type("MAP<STRING,INT>", "map('a', 1)"),
    of_type("STRUCT<a:INT>", "named_struct('a', 1)"),
    of_type("VARIANT", "parse_json('1')"),
)
PLAIN = "VALUES (1, 'a'), (2, NULL)"
COLUMNS = (
    Feature("`NOT NULL`", "(k INT NOT NULL, x STRING) USING parquet", PLAIN),
    Feature("`NOT NULL`, a NULL is inserted", "(k INT NOT NULL) USING parquet", "VALUES (NULL)"),
    Feature("`DEFAULT`, left out", "(k INT, x STRING DEFAULT 'd') USING parquet", "(k) VALUES (1)"),
    Feature(
        "`DEFAULT` as a value",
        "(k INT, x STRING DEFAULT concat('d', 'e')) USING parquet",
        "VALUES (1, DEFAULT), (2, 'b'), (3, NULL)",
    ),
    Feature(
        "`DEFAULT current_date()`",
        "(k INT, x DATE DEFAULT current_date()) USING parquet",
        "(k) VALUES (1)",
    ),
    Feature(
        "columns in another order", "(k INT, x STRING) USING parquet", "(x, k) VALUES ('a', 1)"
    ),
    Feature("fewer values than columns", "(k INT, x STRING) USING parquet", "VALUES (1)"),
    Feature(
        "a value that does not fit", "(k TINYINT, x STRING) USING parquet", "VALUES (300, 'a')"
    ),
    Feature("a text that is too long", "(k INT, x VARCHAR(2)) USING parquet", "VALUES (1, 'abc')"),
    Feature("`COMMENT` of a column", "(k INT COMMENT 'key', x STRING) USING parquet", PLAIN),
    Feature(
        "names with blanks, dots, quotes",
        '(k INT, `a b.c"d` STRING) USING parquet',
        PLAIN,
        read='SELECT k, `a b.c"d` FROM {t}',
    ),
    Feature("names in other letters", "(k INT, Größe STRING) USING parquet", PLAIN),
    Feature("names in another case", "(K INT, X STRING) USING parquet", "(k, x) VALUES (1, 'a')"),
    Feature(
        "`GENERATED ALWAYS AS`",
        "(k INT, x INT GENERATED ALWAYS AS (k + 1)) USING parquet",
        "(k) VALUES (1)",
    ),
    Feature(
        "`GENERATED ALWAYS AS IDENTITY`",
        "(k BIGINT GENERATED ALWAYS AS IDENTITY, x INT) USING parquet",
        "(x) VALUES (1)",
    ),
    Feature("`CHECK`", "(k INT, CONSTRAINT c CHECK (k > 0)) USING parquet", "VALUES (1)"),
    Feature("`PRIMARY KEY`", "(k INT PRIMARY KEY) USING parquet", "VALUES (1)"),
    Feature("`UNIQUE`", "(k INT UNIQUE) USING parquet", "VALUES (1)"),
    Feature("`FOREIGN KEY`", "(k INT REFERENCES other (k)) USING parquet", "VALUES (1)"),
)


def altered(title: str, *after: str) -> Feature:
    return Feature(title, "(k INT, x STRING) USING parquet", f"(k, x) {PLAIN}", after)


TABLES = (
    Feature("`USING parquet`", "(k INT, x STRING) USING parquet", PLAIN),
    Feature("`USING orc`", "(k INT, x STRING) USING orc", PLAIN),
    Feature("`USING csv`", "(k INT, x STRING) USING csv", PLAIN),
    Feature("`USING json`", "(k INT, x STRING) USING json", PLAIN),
    Feature("`USING text`", "(x STRING) USING text", "VALUES ('a')"),
    Feature("no `USING`", "(k INT, x STRING)", PLAIN),
    Feature("`STORED AS parquet`", "(k INT, x STRING) STORED AS parquet", PLAIN),
    Feature("`AS SELECT`", "USING parquet AS SELECT 1 AS k, 'a' AS x", PLAIN),
    Feature("`OPTIONS`", "(k INT, x STRING) USING parquet OPTIONS (compression 'gzip')", PLAIN),
    Feature("`TBLPROPERTIES`", "(k INT, x STRING) USING parquet TBLPROPERTIES ('a' = 'b')", PLAIN),
    Feature("`COMMENT`", "(k INT, x STRING) USING parquet COMMENT 'a table'", PLAIN),
    Feature(
        "`PARTITIONED BY` texts and numbers",
        "(k INT, x STRING, y INT, z CHAR(3)) USING parquet PARTITIONED BY (x, y, z)",
        "VALUES (1, 'a b/c=d%', 7, 'a'), (2, NULL, NULL, NULL)",
    ),
    Feature(
        "`PARTITIONED BY` times and decimals",
        "(k INT, x DATE, y TIMESTAMP, z DECIMAL(4,2)) USING parquet PARTITIONED BY (x, y, z)",
        "VALUES (1, DATE '2026-01-02', TIMESTAMP '2026-01-02 03:04:05Z', 1.5)",
    ),
    Feature(
        "`PARTITIONED BY` doubles",
        "(k INT, x DOUBLE) USING parquet PARTITIONED BY (x)",
        "VALUES (1, 1.5D)",
    ),
    Feature(
        "`CLUSTERED BY … INTO BUCKETS`",
        "(k INT, x STRING) USING parquet CLUSTERED BY (k) INTO 2 BUCKETS",
        PLAIN,
    ),
    Feature("`CLUSTER BY`", "(k INT, x STRING) USING parquet CLUSTER BY (k)", PLAIN),
    altered("`CACHE TABLE`", "CACHE TABLE {t}"),
    altered("`ADD COLUMNS`", "ALTER TABLE {t} ADD COLUMNS (y INT)"),
    altered("`ADD COLUMNS … DEFAULT`", "ALTER TABLE {t} ADD COLUMNS (y INT DEFAULT 5)"),
    altered("`RENAME COLUMN`", "ALTER TABLE {t} RENAME COLUMN x TO y"),
    altered("`DROP COLUMN`", "ALTER TABLE {t} DROP COLUMN x"),
    altered("`ALTER COLUMN … SET DEFAULT`", "ALTER TABLE {t} ALTER COLUMN x SET DEFAULT 'n'"),
    altered("`ALTER COLUMN … COMMENT`", "ALTER TABLE {t} ALTER COLUMN x COMMENT 'n'"),
    altered("`TRUNCATE TABLE`", "TRUNCATE TABLE {t}"),
    altered("`INSERT OVERWRITE`", "INSERT OVERWRITE {t} VALUES (9, 'z')"),
    altered("`INSERT … REPLACE WHERE`", "INSERT INTO {t} REPLACE WHERE k = 1 VALUES (9, 'z')"),
    altered("`UPDATE`", "UPDATE {t} SET x = 'z'"),
    altered("`DELETE FROM`", "DELETE FROM {t} WHERE k = 1"),
    altered("`ANALYZE TABLE`", "ANALYZE TABLE {t} COMPUTE STATISTICS"),
    altered(
        "`SET TBLPROPERTIES` with column mapping",
        "ALTER TABLE {t} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
    ),
    Feature(
        "`DROP PARTITION`",
        "(k INT, x STRING) USING parquet PARTITIONED BY (x)",
        "VALUES (1, 'a'), (2, 'b')",
        ("ALTER TABLE {t} DROP PARTITION (x = 'a')",),
    ),
    Feature(
        "`RENAME PARTITION`",
        "(k INT, x STRING) USING parquet PARTITIONED BY (x)",
        "VALUES (1, 'a'), (2, 'b')",
        ("ALTER TABLE {t} PARTITION (x = 'a') RENAME TO PARTITION (x = 'c')",),
    ),
)


def viewed(title: str, *after: str, read: str = "SELECT * FROM {t}_v") -> Feature:
    return Feature(title, "(k INT, x STRING) USING parquet", PLAIN, after, read)


VIEWS = (
    viewed("`CREATE VIEW`", "CREATE OR REPLACE VIEW {t}_v AS SELECT k + 1 AS k, x FROM {t}"),
    viewed(
        "… with names and comments",
        "CREATE OR REPLACE VIEW {t}_v (a COMMENT 'c', b) AS SELECT * FROM {t}",
    ),
    viewed(
        "… over a view",
        "CREATE OR REPLACE VIEW {t}_w AS SELECT * FROM {t}",
        "CREATE OR REPLACE VIEW {t}_v AS SELECT k FROM {t}_w",
    ),
    viewed(
        "… that is cached", "CREATE OR REPLACE VIEW {t}_v AS SELECT * FROM {t}", "CACHE TABLE {t}_v"
    ),
    viewed("`CREATE TEMP VIEW`", "CREATE OR REPLACE TEMP VIEW {t}_v AS SELECT x FROM {t}"),
    viewed(
        "`CREATE GLOBAL TEMP VIEW`",
        "CREATE OR REPLACE GLOBAL TEMP VIEW {t}_v AS SELECT x FROM {t}",
        read="SELECT * FROM global_temp.{t}_v",
    ),
    viewed("`CACHE TABLE … AS SELECT`", "CACHE TABLE {t}_v AS SELECT x FROM {t}"),
    viewed("`CREATE MATERIALIZED VIEW`", "CREATE MATERIALIZED VIEW {t}_v AS SELECT x FROM {t}"),
)
_ZONED = {"spark.sql.session.timeZone": "America/New_York"}
ZONES = tuple(
    Feature(
        f"`{kind}` in another time zone",
        f"(k INT, x {kind}) USING parquet",
        f"VALUES (1, {value})",
        read=f"SELECT k, x, {part} AS y FROM {{t}}",
        conf=_ZONED,
    )
    for kind, value, part in (
        ("TIMESTAMP", "TIMESTAMP '2026-07-02 03:04:05Z'", "unix_micros(x)"),
        ("TIMESTAMP_NTZ", "TIMESTAMP_NTZ '2026-07-02 03:04:05'", "hour(x)"),
        ("DATE", "DATE '2026-07-02'", "day(x)"),
    )
)
SECTIONS = {
    "Types": TYPES,
    "Columns and INSERT": COLUMNS,
    "Tables": TABLES,
    "Views": VIEWS,
    "The session's time zone": ZONES,
}

#: Statements about tables, for the engine. The table {t} has the columns k INT, x STRING.
STATEMENTS = (
    "SELECT * FROM {t}",
    "INSERT INTO {t} VALUES (3, 'c')",
    "INSERT INTO TABLE {t} SELECT 4, 'd'",
    "INSERT INTO {t} BY NAME SELECT 'e' AS x, 5 AS k",
    "INSERT OVERWRITE {t} VALUES (9, 'z')",
    "INSERT INTO {t} PARTITION (x = 'a') VALUES (1)",
    "INSERT OVERWRITE DIRECTORY '/nowhere' USING parquet SELECT 1",
    "CREATE TABLE {t}_new (k INT, x STRING) USING parquet",
    "DROP TABLE {t}_new",
    "CREATE TABLE {t}_new (k INT) USING orc",
    "CREATE TABLE {t}_new (k INT, x STRING DEFAULT 'a') USING parquet",
    "CREATE TABLE {t}_new (k INT, x CHAR(3)) USING parquet",
    "CREATE TABLE {t}_new (k INT, x STRING) USING parquet PARTITIONED BY (x)",
    "DROP TABLE {t}_new",
    "CREATE TABLE {t}_new (k INT) USING parquet CLUSTERED BY (k) INTO 2 BUCKETS",
    "CREATE TABLE {t}_new (k INT) USING parquet LOCATION 's3://bucket/t'",
    "CREATE TABLE {t}_new (k INT) USING parquet TBLPROPERTIES ('a' = 'b')",
    "CREATE TABLE {t}_new (k INT) USING parquet COMMENT 'c'",
    "CREATE TABLE {t}_new LIKE {t}",
    "CREATE EXTERNAL TABLE {t}_new (k INT)",
    "CREATE OR REPLACE TABLE {t}_new (k INT) USING parquet",
    "CREATE OR REPLACE TABLE {t}_new (k INT PRIMARY KEY) USING parquet",
    "ALTER TABLE {t} ADD COLUMNS (y INT)",
    "ALTER TABLE {t} SET TBLPROPERTIES ('a' = 'b')",
    "TRUNCATE TABLE {t}",
    "UPDATE {t} SET x = 'z'",
    "DELETE FROM {t}",
    "MERGE INTO {t} USING {t} AS s ON {t}.k = s.k WHEN MATCHED THEN DELETE",
    "LOAD DATA INPATH '/nowhere' INTO TABLE {t}",
    "COPY INTO {t} FROM '/nowhere' FILEFORMAT = PARQUET",
    "CACHE TABLE {t}",
    "UNCACHE TABLE {t}",
    "CLEAR CACHE",
    "REFRESH TABLE {t}",
    "ANALYZE TABLE {t} COMPUTE STATISTICS",
    "MSCK REPAIR TABLE {t}",
    "COMMENT ON TABLE {t} IS 'c'",
    "DESCRIBE TABLE {t}",
    "DESCRIBE EXTENDED {t}",
    "SHOW TABLES LIKE '{t}'",
    "SHOW COLUMNS IN {t}",
    "SHOW CREATE TABLE {t}",
    "SHOW PARTITIONS {t}",
    "SHOW TBLPROPERTIES {t}",
    "SHOW DATABASES",
    "USE default",
    "CREATE DATABASE matrix_db",
    "DROP DATABASE matrix_db",
    "DROP VIEW {t}",
)


def rows_of(table: Any) -> list[str]:
    """The rows of an Arrow table, each as the text of its Python values, sorted."""
    return sorted(repr(tuple(row.values())) for row in table.to_pylist())


def stored(spark: Any, *tables: str) -> list[list[str]]:
    """The rows of each table in Spark, each as JSON (for columns of any type), sorted."""
    frames = [
        spark.table(t).selectExpr(f"{n} AS n", "to_json(struct(*)) AS row")
        for n, t in enumerate(tables)
    ]
    rows = functools.reduce(lambda one, other: one.union(other), frames).collect()
    return [sorted(r.row for r in rows if r.n == n) for n in range(len(tables))]


def said(error: Exception) -> str:
    """The table cell of an error of the engine."""
    assert isinstance(error, cql.CqlError)
    text = error.message.replace(OURS, "t").replace(SPARKS, "t")
    return "refused: " + text.replace("|", "\\|").replace("\n", " ")


def sparks(error: Exception) -> str:
    """The name of an error of Spark: its error condition, else its class."""
    condition = getattr(error, "getCondition", lambda: None)()
    return str(condition or type(error).__name__)


@contextlib.contextmanager
def configured(spark: Any, conf: dict[str, str]) -> Iterator[None]:
    before = {key: spark.conf.get(key) for key in conf}
    for key, value in conf.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, value in before.items():
            spark.conf.set(key, value)


def clean(spark: Any, *, views: bool = True) -> None:
    for t in (OURS, SPARKS):
        for view in (f"{t}_v", f"{t}_w") if views else ():
            spark.catalog.dropTempView(view)
            spark.catalog.dropGlobalTempView(view)
            spark.sql(f"DROP VIEW IF EXISTS {view}")
        spark.sql(f"DROP TABLE IF EXISTS {t}")


def tried(spark: Any, session: Any, feature: Feature) -> tuple[str, str, list[str]]:
    """The cells of a feature (read, written), and its faults: results that are neither as in Spark
    nor refused."""
    try:
        with configured(spark, feature.conf):
            return _tried(spark, session, feature)
    finally:
        clean(spark, views=any("{t}_" in text for text in feature.after))


def _tried(spark: Any, session: Any, feature: Feature) -> tuple[str, str, list[str]]:
    faults: list[str] = []
    for t in (OURS, SPARKS):
        try:
            spark.sql(f"CREATE TABLE {t} {feature.table}")
            for text in feature.after:
                spark.sql(f"INSERT INTO {t} {feature.insert}")
                spark.sql(text.format(t=t))
        except Exception as error:  # whatever Spark raises
            none = f"Spark refuses it: {sparks(error)}"
            return none, none, []
    written = _written(spark, session, feature, faults)
    return _read(spark, session, feature, faults), written, faults


def _written(spark: Any, session: Any, feature: Feature, faults: list[str]) -> str:
    refused = theirs = None
    text = f"INSERT INTO {{t}} {feature.insert}"
    filled = feature.after or "AS SELECT" in feature.table
    before = stored(spark, OURS)[0] if filled else []
    try:
        spark.sql(text.format(t=SPARKS))
    except Exception as error:  # whatever Spark raises
        theirs = sparks(error)
    try:
        session.sql(text.format(t=OURS))
    except cql.CqlError as error:
        refused = said(error)
    ours, expected = stored(spark, OURS, SPARKS)
    if refused is not None:
        if ours != before:
            faults.append(f"{feature.title}: refused, and rows are there: {ours}")
        return refused + (f" (Spark: {theirs})" if theirs else "")
    if theirs is not None or ours != expected:
        faults.append(f"{feature.title}: stored {ours}, Spark: {theirs or expected}")
    return RIGHT


def _read(spark: Any, session: Any, feature: Feature, faults: list[str]) -> str:
    text = feature.read.format(t=SPARKS)
    frame = spark.sql(text)
    try:
        query = session.sql(text)
        found = query.to_arrow()
    except cql.CqlError as error:
        return said(error)
    left_out = [c for c in frame.columns if c not in found.column_names]
    named = re.search(r"FROM (\S+)", text)
    relation = session._catalog.find(tuple(named[1].split("."))) if named else None
    why = relation.unsupported if relation is not None else {}
    silent = [column for column in left_out if column not in why]
    faults += [f"{feature.title}: column {c} is left out without a word" for c in silent]
    expected = rows_of(frame.drop(*left_out).toArrow())
    if rows_of(found) != expected:
        faults.append(f"{feature.title}: read {rows_of(found)}, Spark: {expected}")
    if left_out:
        return f"all but {', '.join(left_out)}: " + "; ".join(why.get(c, "") for c in left_out)
    return RIGHT


def stated(session: Any, text: str) -> str:
    """The table cell of a statement."""
    try:
        made = session.sql(text.format(t=OURS))
        if hasattr(made, "to_arrow"):
            made.to_arrow()
    except cql.CqlError as error:
        return said(error)
    return "runs"


def document(
    features: dict[str, list[tuple[str, str, str]]], statements: list[tuple[str, str]]
) -> str:
    """The text of ``docs/spark-matrix.md``."""
    lines = [
        "# Spark's tables, feature by feature",
        "",
        "Each line was run in Spark 4.3 and here by `tests/spark/test_spark_matrix.py`, which",
        "holds this file (`pytest tests/spark --rewrite` writes it anew). *As Spark*:",
        "the same rows; *refused*: by the error that is cited, and nothing is stored; *all but x*:",
        "the other columns can be read, and the reason is what `DESCRIBE` says of `x`.",
    ]
    for section, rows in features.items():
        lines += ["", f"## {section}", "", "| feature | read | written |", "|---|---|---|"]
        lines += [f"| {title} | {read} | {written} |" for title, read, written in rows]
    lines += ["", "## Statements", ""]
    lines += ["Said here, over a table of Spark:", "", "| statement | here |", "|---|---|"]
    lines += [f"| `{text}` | {cell} |" for text, cell in statements]
    return "\n".join(lines) + "\n"
