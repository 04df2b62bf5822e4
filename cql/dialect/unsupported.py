"""Clauses of other dialects, each with its replacement in this dialect.

The parser looks for these clauses only where the grammar has no rule for a word, so that the words
stay free as names.
"""

from __future__ import annotations

from collections.abc import Mapping

from cql.base.settings import ALWAYS_UTC

Words = tuple[str, ...]
#: The first words of each clause, and the hint.
Clauses = Mapping[Words, str | None]

_BY_SPARK = "make the table in Spark; INSERT INTO writes into it from here, too"
_VALUE = "write the value in each INSERT: coalesce(x, 5) fills a NULL"
_FILTER = "a filter of the query that is inserted does the same: WHERE x > 0"
_COMPUTED = "the query that is inserted can compute it"
_KEYS = "leave it out: no key is enforced"
_PLAIN_FILES = "leave it out: the rows are in plain files, which every refresh adds to"
_DISTINCT = "SELECT DISTINCT keeps one row of several that are equal"

#: Clauses of a query. The parser could read the first word as the alias of a FROM item.
OF_QUERY: Clauses = {
    ("TABLESAMPLE",): "a filter on a key keeps the same part of a stream in every run: k % 10 = 0",
    ("FETCH", "FIRST"): "LIMIT n, OFFSET m",
    ("FETCH", "NEXT"): "LIMIT n, OFFSET m",
    ("FOR", "UPDATE"): "leave it out: a query locks no rows",
    ("LATERAL", "VIEW"): None,
    ("SORT", "BY"): "ORDER BY orders the whole result",
    ("CLUSTER", "BY"): "ORDER BY orders the whole result",
    ("DISTRIBUTE", "BY"): "ORDER BY orders the whole result",
    ("PIVOT", "("): "sum(v) FILTER (WHERE k = 'a') AS a, … makes a column of each value",
    ("MINUS", "SELECT"): "EXCEPT does the same",
    ("MINUS", "ALL"): "EXCEPT does the same",
}

#: Clauses behind the table of an operator.
OF_ARGUMENT: Clauses = {
    ("ORDER BY",): "FROM f(TABLE (SELECT … ORDER BY …)) puts the rows in order",
}

#: Two-sign operators, and the hint of each.
OPERATORS = {
    "**": "pow(x, y) is x to the power y",
    "//": "x div y divides and drops the rest",
}

#: Clauses after the type of a column.
OF_COLUMN: Clauses = {
    ("DEFAULT",): _VALUE,
    ("GENERATED",): _COMPUTED,
    ("AUTO_INCREMENT",): _COMPUTED,
    ("CONSTRAINT",): "leave it out, or filter in the query that is inserted",
    ("CHECK",): _FILTER,
    ("UNIQUE",): _DISTINCT,
    ("REFERENCES",): _KEYS,
    ("COLLATE",): "lower(x) compares without case",
}

#: Clauses in the column list of a table.
OF_COLUMNS: Clauses = {
    ("CHECK", "("): _FILTER,
    ("UNIQUE", "("): _DISTINCT,
    ("FOREIGN", "KEY"): _KEYS,
}

#: Clauses after the column list of a table.
OF_TABLE: Clauses = {
    ("CLUSTERED", "BY"): _BY_SPARK,
    ("TBLPROPERTIES",): _BY_SPARK,
    ("STORED", "AS"): "USING parquet OPTIONS (path 'folder') makes a table of files",
    ("COMMENT",): "a column takes one: k INT COMMENT 'text'",
    ("LIKE",): "CREATE TABLE t AS SELECT * FROM u LIMIT 0 takes the columns of u",
}

#: Clauses after the name of a materialized view.
OF_MATERIALIZED_VIEW: Clauses = {
    ("(",): "name the columns in the query: SELECT a AS b",
    ("PARTITIONED", "BY"): _PLAIN_FILES,
    ("PARTITIONED", "ON"): _PLAIN_FILES,
    ("CLUSTER", "BY"): _PLAIN_FILES,
    ("CLUSTERED", "BY"): _PLAIN_FILES,
    ("TBLPROPERTIES",): "ALTER TABLE … SET TBLPROPERTIES in Spark",
    ("USING",): "leave it out: a materialized view is a table of Parquet files",
    ("WITH",): "leave it out: a materialized view is a table of Parquet files",
    ("LOCATION",): "leave it out: Spark chooses the folder",
    ("SCHEDULE",): "FRESHNESS 1 HOUR, or REFRESH MATERIALIZED VIEW",
    ("REFRESH",): "FRESHNESS 1 HOUR, or REFRESH MATERIALIZED VIEW",
}

#: Clauses after SET or RESET.
OF_SET: Clauses = {("TIME", "ZONE"): ALWAYS_UTC}

#: Clauses after INSERT or after its table.
OF_INSERT: Clauses = {
    ("OVERWRITE",): "INSERT INTO adds rows; CREATE OR REPLACE TABLE t AS SELECT … makes it anew",
    ("BY", "NAME"): "name the columns: INSERT INTO t (b, a) SELECT …",
    ("PARTITION", "("): "the columns of the partition are columns of the table: fill them, too",
}
