"""Hostile texts: each tries to reach a file, a shell, Python or Spark's SQL through a query.

Every piece of text that could reach another system contains ``MARK``, which no audit event of the
process may show. ``@dir@`` is a folder with the files ``secret`` and ``secret.parquet``.
``@touch@`` is a shell command that would create a file in the folder.
"""

from __future__ import annotations

import re

MARK = "mark_7f3a9c"
SECRET = "secret_51d0e2"


def filled(text: str, /, **words: str) -> str:
    """``text`` with each ``@word@`` in ``words`` replaced, once: replacements are not searched
    again."""
    return re.sub(r"@(\w+)@", lambda m: words.get(m.group(1), m.group()), text)


PYTHON = (
    "__import__('os').system('@touch@')",
    "open('@dir@/pwned', 'w')",
    "eval(compile('@touch@', '', 'exec'))",
    "x\n    import os; os.system('@touch@')\n",
    '"""\n__import__("os").system("@touch@")\n"""',
    "{0.__class__.__mro__[1].__subclasses__}",
    "{self.__init__.__globals__}",
    "%(os)s %n {} ${env:HOME} ${spark.driver.host}",
    "d[0]); __import__('os').system('@touch@') #",
    "\\'; __import__('os'); '",
    "\u202e\u2066name\u2069",
    "\ufeffn\u200b",
)
SQL = (
    "x; DROP TABLE t; --",
    "x`; DROP TABLE t; --",
    "x``; DROP TABLE t; --",
    'x"; DROP TABLE t; --',
    "x'; DROP TABLE t; --",
    "x\n; DROP TABLE t",
    "x /* */ UNION SELECT * FROM parquet.`@dir@/secret.parquet` --",
    "reflect('java.lang.Runtime', 'getRuntime')",
    "java_method('java.lang.System', 'exit', 1)",
    "../../@dir@/secret",
    "file:@dir@/secret",
    "@dir@/secret.parquet",
    "${env:PATH}",
)

#: Statements that are refused, each with a position.
REFUSED = (
    "SELECT * FROM parquet.`@dir@/secret.parquet`",
    'SELECT * FROM parquet."@dir@/secret.parquet"',
    "SELECT * FROM text.`@dir@/secret`",
    "SELECT * FROM csv.`@dir@/secret`",
    "SELECT * FROM json.`file://@dir@/secret`",
    "SELECT * FROM binaryFile.`@dir@/secret`",
    "SELECT * FROM delta.`@dir@/secret`",
    "SELECT * FROM `@dir@/secret.parquet`",
    "SELECT * FROM '@dir@/secret.parquet'",
    'SELECT * FROM "@dir@/secret.parquet"',
    "SELECT * FROM read_csv('@dir@/secret')",
    "SELECT * FROM read_files('@dir@/secret')",
    "SELECT * FROM range(10)",
    "SELECT * FROM TABLE(read_text('@dir@/secret'))",
    "SELECT reflect('java.lang.Runtime', 'getRuntime', '@mark@') FROM t",
    "SELECT java_method('java.lang.Runtime', 'exec', '@touch@') FROM t",
    "SELECT try_reflect('java.lang.System', 'getenv', '@mark@') FROM t",
    "SELECT system('@touch@') FROM t",
    "SELECT __import__('os').system('@touch@') FROM t",
    "SELECT n.__class__ FROM t",
    "SELECT :p.__class__ FROM t",
    "SELECT input_file_name(), current_user(), version() FROM t",
    "SELECT TRANSFORM(n) USING 'sh -c @touch@' AS (x) FROM t",
    "FROM t MAP n USING 'sh -c @touch@' AS x",
    "FROM t SELECT TRANSFORM(n) USING '@touch@'",
    "ADD JAR '@dir@/secret'",
    "ADD FILE '@dir@/secret'",
    "LIST JARS",
    "CREATE FUNCTION f AS '@mark@.Evil' USING JAR '@dir@/secret'",
    "CREATE TEMPORARY FUNCTION f AS '@mark@.Evil'",
    "CREATE TABLE u (n BIGINT) USING parquet LOCATION 's3://@mark@/x'",
    "CREATE TABLE u (n BIGINT) USING parquet LOCATION 'file:@dir@/new'",
    "CREATE TABLE u (n BIGINT) USING parquet OPTIONS (path '@dir@/secret.parquet')",
    "CREATE EXTERNAL TABLE u (n BIGINT) LOCATION '@dir@'",
    "CREATE DATABASE @mark@",
    "LOAD DATA INPATH '@dir@/secret' INTO TABLE t",
    "INSERT OVERWRITE DIRECTORY '@dir@' SELECT n FROM t",
    "INSERT INTO parquet.`@dir@/pwned` SELECT n FROM t",
    "INSERT INTO `@dir@/pwned` SELECT n FROM t",
    "EXPORT TABLE t TO '@dir@/pwned'",
    "COPY t TO '@dir@/pwned'",
    "ATTACH '@dir@/secret' AS x",
    "PRAGMA database_list",
    "CALL system.@mark@()",
    "EXECUTE IMMEDIATE 'DROP TABLE t -- @mark@'",
    "SET spark.sql.warehouse.dir = '@dir@'",
    "SET hive.exec.pre.hooks = @mark@",
    "SET runtime = '@mark@.__class__'",
    'SET max_state = \'__import__("os").system("@touch@")\'',
    "SET time_zone = '@dir@/secret'",
    "SET time_zone = '../../../@dir@/secret'",
    "SET `runtime; import @mark@` = 1",
    "SELECT /*+ runtime(@mark@) */ n FROM t",
    "SELECT /*+ BROADCAST(@mark@) */ n FROM t",
    "CREATE STREAM u USING `os.system` OPTIONS (path '@touch@')",
    "CREATE STREAM u USING python OPTIONS (code 'import @mark@')",
    "CREATE STREAM u USING jdbc OPTIONS (url 'jdbc:h2:@dir@/pwned;INIT=@mark@')",
    "CREATE STREAM u USING csv OPTIONS (path 'http://127.0.0.1:9/@mark@')",
    "CREATE STREAM u USING csv OPTIONS (path 's3://@mark@/x')",
    "CREATE STREAM u USING rate OPTIONS (rows_per_second '__import__(\"@mark@\")')",
    "CREATE STREAM u USING rate OPTIONS (start '{0.__class__}@mark@')",
    "CREATE STREAM u USING rate OPTIONS (columns '@mark@; import os')",
    "SELECT date_format(ts, '{0.__class__}@mark@') FROM t",
    "SELECT date_format(ts, '%s%n@mark@') FROM t",
    "SELECT to_timestamp(s, '(?P<x>@mark@)+') FROM t",
    "SELECT date_format(ts, '" + "-/" * 100_000 + "') FROM t",
    "SELECT s RLIKE '((((@mark@{1,1000}){1,1000}){1,1000}){1,1000})' FROM t",
    "SELECT regexp_replace(s, '(', '@mark@') FROM t",
    "SELECT regexp_replace(s, '(?{ system })', '@mark@') FROM t",
    "SELECT CAST(s AS `@mark@`) FROM t",
    "SELECT '@mark@\x00' FROM t",
    "SELECT '@mark@\ud800' FROM t",
    "SELECT " + "a" * 1_000_000 + " FROM t",
    "SELECT " + "a" * 900_000 + " FROM t",
    'SELECT n FROM "' + "a" * 900_000 + '"',
    "SELECT " + "9" * 900_000 + " FROM t",
    "SELECT 1e" + "9" * 900_000 + " FROM t",
    "SELECT " + "(" * 10_000 + "1" + ")" * 10_000,
    "SELECT " + "-" * 900_000 + "1",
    "SELECT " + "/*" * 400_000 + " 1",
    "SELECT replace(repeat('a', 1000000), 'a', repeat('b', 1000000))",
    "SELECT regexp_replace(repeat('a', 1000000), '', repeat('b', 100000))",
    "SELECT concat(" + ", ".join(["repeat('a', 16000000)"] * 100) + ")",
    "SELECT repeat('a', 2147483647)",
    "SELECT lpad('a', 2147483647, 'b')",
)

#: Statements that run, and in which every piece of text stays text. ``@name@`` is a hostile name.
RUN = (
    'SELECT n AS "@name@" FROM t',
    'CREATE VIEW "@name@" AS SELECT n FROM t',
    'SELECT * FROM "@name@"',
    'DROP VIEW "@name@"',
    'CREATE TABLE "@name@" (n BIGINT)',
    'INSERT INTO "@name@" SELECT n FROM t',
    'SELECT n FROM "@name@"',
    'DESCRIBE "@name@"',
    'DROP TABLE "@name@"',
    "EXPLAIN SELECT n AS \"@name@\" FROM t WHERE s = '@mark@'",
    "CREATE CONSTANT \"@name@\" = '@mark@'",
    'DROP CONSTANT "@name@"',
    "SHOW TABLES LIKE '@text@'",
)
#: Statements that compile one kernel each.
COMPILED = (
    "SELECT n, \"@column@\" AS \"@column@\" FROM t WHERE s <> '@literal@' AND s LIKE '%@literal@%'",
    'SELECT "@column@", count(*) AS "@column@ 2", max(concat(s, \'@literal@\'))'
    ' FROM t [RANGE 1 minute SLIDE 1 minute] GROUP BY "@column@"',
    "SELECT CASE WHEN s = '@literal@' THEN :p ELSE upper(s) END AS \"@column@\""
    " FROM t WHERE s IN ('@literal@', :p) OR n > 0",
)
#: Patterns that make a backtracking matcher hang.
BOMBS = (
    "SELECT s LIKE '" + "%a" * 5000 + "b' FROM t",
    "SELECT repeat('a', 100000) LIKE '" + "%a" * 5000 + "b' FROM t",
    "SELECT repeat('a', 100000) RLIKE '^(a+)+$b' FROM t",
    "SELECT repeat('a', 100000) RLIKE '(a|a)*(a|a)*(a|a)*b' FROM t",
    "SHOW TABLES LIKE '" + "%a" * 40 + "b'",
    "SHOW SETTINGS LIKE '" + "%e" * 40 + "b'",
    "SHOW FUNCTIONS LIKE '" + "%e" * 4000 + "b'",
)
