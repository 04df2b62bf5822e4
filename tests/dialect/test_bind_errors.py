"""Statements that do not bind: what is wrong, where, and what to do."""

from __future__ import annotations

from datetime import timedelta

import pytest

from cql.errors import BindError, CqlError, NotSupportedError, PlanError
from tests.support.bind_fixtures import world

W = world()
MIN = "RANGE 1 min, SLIDE 1 min"


def refused(text: str, **parameters: object) -> CqlError:
    with pytest.raises(CqlError) as caught:
        W.bind(text.replace("^", ""), **parameters)
    error = caught.value
    assert error.position is not None, error
    assert isinstance(error, BindError | PlanError)
    return error


CASES = [
    # functions
    ("SELECT ^medan(a) FROM s", "unknown function medan", "did you mean median"),
    ("SELECT ^isnull(a) FROM s", "unknown function isnull", "x IS NULL"),
    ("SELECT ^time_bucket('1 minute', ts) FROM s", "unknown function time_bucket", "window(ts"),
    ("SELECT ^approx_count_distinct(a) FROM s", "is not supported yet", "count(DISTINCT x)"),
    ("SELECT ^version()", "unknown function version", "SHOW FUNCTIONS lists them"),
    ("SELECT ^cuont(a) FROM s", "unknown function cuont", "did you mean count"),
    ("SELECT ^zzz(a) FROM s", "unknown function zzz", "SHOW FUNCTIONS"),
    ("SELECT ^row_numbr() OVER (ORDER BY ts) FROM s", "before OVER", "did you mean row_number?"),
    ("SELECT ^zzz() OVER (ORDER BY ts) FROM s", "before OVER", "window functions: row_number"),
    ("SELECT ^corr(a, x) FROM s", "the aggregate corr is not supported", "count, sum"),
    ("SELECT ^bit_and(a) FROM s", "the aggregate bit_and is not supported", "median, percentile"),
    ("SELECT ^bit_and(a, ts) FROM s", "& does not take int and timestamp", "whole numbers"),
    # names
    ("SELECT a FROM ^st", "there is no stream or table st", "did you mean s?"),
    ("SELECT a FROM ^db.fligts", "there is no stream or table db.fligts", "db.flights"),
    ("SELECT ^nam FROM s", "there is no column nam", "did you mean name?"),
    ("SELECT ^foo FROM s", "there is no column foo", "columns: a, k, name, ts, x"),
    ("SELECT ^foo", "there is no column foo", "there is no FROM"),
    ("SELECT ^s.foo FROM s", "s has no column foo", "its columns"),
    ("SELECT ^q.a FROM s", "there is no q in FROM", "FROM has: s"),
    ("SELECT ^s.a FROM s AS q", "there is no s in FROM", "FROM has: q"),
    ("SELECT ^s.a.b FROM s", "column a has no parts", "not a struct"),
    ("SELECT ^k FROM s, r", "column k is ambiguous", "write s.k or r.k"),
    ("SELECT a FROM s, ^s", "FROM names s twice", "AS x"),
    ("SELECT a AS b FROM s WHERE ^b > 1", "b is an alias of the select list", "repeat"),
    ("SELECT a b, x b FROM s ORDER BY ^b", "b is the alias of 2 columns", ""),
    ("WITH c AS (SELECT ^foo FROM s) SELECT 1", "there is no column foo", ""),
    ("WITH c AS (SELECT 1), ^c AS (SELECT 2) SELECT 3", "WITH names c twice", ""),
    ("SELECT * FROM s ^t (b)", "1 names cannot name 5 columns", ""),
    ("SELECT a FROM s WHERE name = ^:n", "parameter :n has no value", "n=…"),
    ("SELECT ^*", "* needs a FROM", ""),
    # types
    ("SELECT a FROM s WHERE ^a", "WHERE needs a condition", ""),
    ("SELECT ^TIMESTAMP '2024-02-30'", "not a timestamp", "YYYY-MM-DD hh:mm:ss"),
    ("SELECT ^99999999999999999999", "does not fit in 64 bits", "e0"),
    ("SELECT ^0.1234567890123456789", "19 digits", "e0"),
    ("SELECT CAST(a AS ^STRUCT<a INT>) FROM s", "is not supported", "columns are"),
    ("SELECT a FROM s ^UNION SELECT a, k FROM s", "as many columns", ""),
    ("SELECT ts FROM secs ^UNION ALL SELECT ts FROM millis", "counts seconds", "convert"),
    ("SELECT name FROM s ^UNION ALL SELECT ts FROM s EXCEPT SELECT x FROM s", "", ""),
    # functions
    ("SELECT ^reflect('java.lang.Runtime', 'exec') FROM s", "unknown function reflect", ""),
    ("SELECT ^java_method('a', 'b')", "unknown function java_method", ""),
    ("SELECT ^now() FROM s", "not deterministic", "parameter"),
    ("SELECT ^row_number() FROM s", "needs OVER", ""),
    ("SELECT ^EXTRACT(SQRT FROM x) FROM s", "extract does not know the field 'sqrt'", "epoch"),
    ("SELECT a FROM ^read_csv('/etc/passwd')", "the table function read_csv", "TUMBLE"),
    # aggregates
    ("SELECT k, ^a, count(*) FROM s GROUP BY k", "column a is neither grouped", "GROUP BY"),
    ("SELECT ^*, count(*) FROM s", "column ts is neither grouped", ""),
    ("SELECT ^a + 1 FROM s GROUP BY a + 2", "column a is neither grouped", ""),
    ("SELECT k FROM s GROUP BY k ORDER BY ^x", "column x is neither grouped", ""),
    ("SELECT a FROM s WHERE ^count(*) > 1", "WHERE cannot hold the aggregate", "HAVING"),
    ("SELECT sum(^count(*)) FROM s", "an aggregate cannot hold", ""),
    ("SELECT count(*) FROM s GROUP BY ^count(*)", "GROUP BY cannot hold the aggregate", ""),
    ("SELECT k FROM s GROUP BY ^2", "GROUP BY 2: the select list has 1 columns", ""),
    ("SELECT k FROM s ORDER BY ^0", "ORDER BY 0", ""),
    ("SELECT DISTINCT k FROM s ORDER BY ^a", "ORDER BY takes columns of the select list", ""),
    ("SELECT k FROM s LIMIT ^'x'", "LIMIT needs a whole number", ""),
    ("SELECT ^(SELECT a, k FROM s)", "needs one column, not 2", ""),
    # windows
    ("SELECT count(*) FROM s [RANGE 1 min, SLIDE ^0 s]", "SLIDE must be longer than zero", ""),
    ("SELECT count(*) FROM s [RANGE ^0 s, SLIDE 1 s]", "RANGE must be longer than zero", "NOW"),
    ("SELECT count(*) FROM s [RANGE ^100, SLIDE 10]", "RANGE 100 has no unit", "RANGE 100 SECONDS"),
    ("SELECT count(*) FROM ticks [RANGE ^1 min, SLIDE 1 s]", "unit is not declared",
     "ORDERED BY ts IN SECONDS"),
    ("SELECT count(*) FROM secs [RANGE 1 min, SLIDE ^500 ms]", "not a whole number of seconds", ""),
    ("SELECT count(*) FROM days [RANGE ^12 hours, SLIDE 1 day]", "whole number of days", ""),
    ("SELECT count(*) FROM s [RANGE ^1 month, SLIDE 1 day]", "a window of 1 month", "in days"),
    ("SELECT count(*) FROM s [RANGE ^7 days, SLIDE 1 ms]",
     "604,800,000,000 / 1,000 = 604,800,000 windows; at most 100,000", "max_overlap"),
    (f"SELECT count(*) FROM s [{MIN}, WA ^a]", "column a does not progress", "WA ts progresses"),
    (f"SELECT count(*) FROM s [{MIN}, WA ^x]", "x is a double", ""),
    (f"SELECT count(*) FROM s [{MIN}, WA ^nope]", "there is no column nope", ""),
    (f"SELECT count(*) FROM dim ^[{MIN}]", "no column of the window's input progresses",
     "declare dim with ORDERED BY ts"),
    (f"SELECT count(*) FROM dim [{MIN}, WA ^ts]", "column ts does not progress",
     "WATERMARK FOR ts AS ts - INTERVAL"),
    (f"SELECT count(*) FROM (SELECT a FROM s) ^[{MIN}]", "no column", "select ts in the subquery"),
    (
        f"SELECT count(*) FROM (SELECT a FROM s UNION ALL SELECT a FROM s) ^[{MIN}]",
        "no column",
        "select ts in the subquery",
    ),
    (f"SELECT count(*) FROM (SELECT -unix_micros(ts) AS t FROM s) [{MIN}, WA ^t]",
     "column t does not progress", ""),
    (f"SELECT count(*) FROM two ^[{MIN}]", "several columns progress", "WA t1 or WA t2"),
    ("SELECT count(*) FROM s [RANGE ^w, SLIDE 1 s]", "there is no constant w", ":w"),
    ("SELECT ^window_start FROM s", "there is no window", "TUMBLE"),
    (f"SELECT ^window_start, a FROM s [{MIN}]", "needs an aggregate over the window", "TUMBLE"),
    (f"SELECT count(*) ^[{MIN}] FROM s [{MIN}]", "both have a window", ""),
    (f"SELECT ^window_end, count(*) FROM (SELECT window_end FROM s [{MIN}] GROUP BY k) q [{MIN}]",
     "window_end is ambiguous", "q.window_end, or window.end"),
    ("SELECT ^window(ts, '1 minute').end, count(*) FROM s", "not in GROUP BY", "GROUP BY WINDOW"),
    ("SELECT max(^window), count(*) FROM s GROUP BY window(ts, '1 minute')", "a window as a value",
     "window.start"),
    ("SELECT TUMBLE_START(ts, INTERVAL '2' MINUTE) FROM s GROUP BY"
     " ^TUMBLE(ts, INTERVAL '1' MINUTE)", "two different windows", ""),
    ("SELECT count(*) FROM s GROUP BY window(^ts + INTERVAL '1' SECOND, '1 minute')",
     "a window needs the name of a column", "subquery"),
    (f"SELECT count(*) FROM s [{MIN}] WHERE ^window_end > ts", "WHERE cannot name window_end",
     "HAVING"),
    ("SELECT * FROM s [NOW], r ^WINDOW 10 min", "a FROM item a window of its own", ""),
    ("SELECT a FROM s [ROWS ^0]", "ROWS needs a whole number above zero", ""),
    (f"SELECT max(^window_end) FROM s [{MIN}]", "cannot be read inside the aggregate", "subquery"),
    (f"SELECT count(*) FROM s [{MIN}] GROUP BY k + hour(^window_end)", "cannot be read inside", ""),
    # VALUES
    ("VALUES (1, 2), (^3)", "this row has 1 value, the first has 2", ""),
    ("^VALUES ()", "a row of VALUES needs a value", ""),
    ("^VALUES (1), (DATE '2024-01-01')", "column 1 of VALUES needs values of one type", "CAST"),
    ("VALUES (1), (^1 / 0)", "division by zero", ""),
    ("VALUES (^a)", "there is no column a", "there is no FROM"),
    ("VALUES (^count(*))", "VALUES cannot hold the aggregate count", ""),
    # joins
    ("SELECT 1 FROM s ^LEFT JOIN dim", "LEFT JOIN needs ON or USING", ""),
    ("SELECT 1 FROM s JOIN dim USING (^label)", "there is no column label in s", ""),
    ("SELECT 1 FROM s JOIN (SELECT 1 AS q) USING (^k)", "no column k in the subquery", "q"),
    ("SELECT 1 FROM s ^NATURAL JOIN dim ON s.k = 1", "NATURAL JOIN takes no condition", "USING"),
    ("SELECT 1 FROM s JOIN dim ON ^foo = 1", "there is no column foo", ""),
    # statements
    ("INSERT INTO ^nowhere SELECT a FROM s", "there is no stream or table nowhere", ""),
    ("SELECT ^128Y", "128Y does not fit: a tinyint ends at 127", ""),
    ("SELECT datediff(^'day', ts, ts) FROM s", "a word without quotes", "datediff(day, …)"),
    ("SELECT dateadd(^dya, 1, ts) FROM s", "does not know the unit 'dya'", "did you mean day"),
    ("SELECT ^struct(1, 2)", "struct() is not supported: values have no parts", ""),
    ("SELECT hex(^x) FROM s", "argument 1 of hex must be bigint, but is double", "whole number"),
    ('SELECT a FROM s WHERE name = ^"home"', "there is no column home", "'home' in single quotes"),
    ("SELECT * EXCEPT (a, ^b) FROM s", "no column b to leave out", ""),
    ("INSERT INTO dim ^SELECT k, name FROM s", "2 columns, and the table takes 3", "k, label, ts"),
    ("INSERT INTO dim SELECT ^name, name, ts FROM s", "column k has type int", "CAST(name AS int)"),
    ("INSERT INTO dim (^label) SELECT name FROM s", "column k takes no NULL", ""),
    ("INSERT INTO dim (k, ^k) SELECT k, k FROM s", "column k is filled twice", ""),
    ("INSERT INTO dim (k, ^lable) SELECT k, name FROM s", "there is no column lable", "label"),
    ("CREATE VIEW v AS ^SELECT a, a FROM s", "two columns are called a", "AS"),
    ("CREATE VIEW v (^p) AS SELECT a, k FROM s", "1 names cannot name 2 columns", ""),
    ("CREATE STREAM x (ts TIMESTAMP) ORDERED BY ^t", "there is no column t", "did you mean ts?"),
    ("CREATE STREAM x (n STRING) ORDERED BY ^n", "n is a string and cannot order", "timestamp"),
    ("CREATE STREAM x (ts TIMESTAMP) ORDERED BY ^ts IN SECONDS", "is for integers", ""),
    ("CREATE STREAM x (ts BIGINT) ORDERED BY ts WITHIN ^5 s", "unit is not declared", "IN SECONDS"),
    ("CREATE STREAM x (ts TIMESTAMP) WATERMARK FOR ts AS ^ts + INTERVAL '5' SECOND",
     "takes ts or ts - INTERVAL", ""),
    ("CREATE STREAM x (ts TIMESTAMP) ORDERED BY ts WITHIN 5 s WATERMARK ^ts DELAY 5 s",
     "declared twice", ""),
    ("CREATE STREAM x (k INT) ^QUEUE FIFO", "there is no key", "UPDATE KEY"),
    ("CREATE STREAM x (k INT) UPDATE KEY (^j)", "there is no column j", ""),
    ("CREATE TABLE x (^k INT PRIMARY KEY)", "PRIMARY KEY of a table", "leave it out"),
    ("CREATE TABLE x (k INT, PRIMARY KEY (^k))", "PRIMARY KEY of a table", "leave it out"),
    ("CREATE STREAM x ^IDLE AFTER 5 SECONDS AS SELECT a FROM s", "on a stream that is a query", ""),
    ("CREATE STREAM x ORDERED BY ^b AS SELECT a FROM s", "there is no column b", "columns: a"),
    ("SELECT a FROM (SELECT a FROM s) WATERMARK a DELAY OF ^INTERVAL 5 SECONDS",
     "an integer whose unit is not declared", ""),
    ("CREATE STREAM x FROM TABLE ^nope", "there is no stream or table nope", ""),
    ("CREATE CONSTANT c = ^abc", "abc is not a constant", "'abc'"),
    ("SELECT a FROM (SELECT a FROM s ^EMIT CHANGES)", "EMIT inside another query", "outermost"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message", "hint"), CASES, ids=[c[0][:60] for c in CASES])
def test_refusals(text: str, message: str, hint: str) -> None:
    error = refused(text)
    assert message in error.message
    assert hint in (error.hint or "")
    assert error.position is not None


# Where the first word of the clause is what the caret shows.
@pytest.mark.parametrize("text", [c[0] for c in CASES if "UNION" not in c[0]])
def test_the_caret_stands_at_the_fault(text: str) -> None:
    error = refused(text)
    assert (error.line, error.column) == (1, text.index("^") + 1)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT count(*) FROM s GROUP BY ROLLUP(a)",
        "SELECT a FROM s QUALIFY row_number() OVER (ORDER BY a) = 1",
        "WITH RECURSIVE x AS (SELECT 1) SELECT * FROM x",
        "SELECT kurtosis(a) FROM s",
        "(SELECT a FROM s) WHERE a > 1",
        "SELECT * FROM s FOR SYSTEM_TIME AS OF TIMESTAMP '2020-01-01'",
        "SELECT a FROM s WHERE (a, name) IN (SELECT a, name FROM s)",
        "SELECT s.a FROM s JOIN dim ON s.a IN (SELECT a FROM s)",
        "SELECT INTERVAL '1' MONTH",
    ],
)
def test_what_has_no_plan_is_not_supported(text: str) -> None:
    assert isinstance(refused(text), NotSupportedError)


def test_errors_inside_a_view_point_at_its_use() -> None:
    w = world().run("CREATE VIEW v AS SELECT a, name FROM s; CREATE VIEW w AS SELECT a FROM v")
    del w.catalog.relations[("s",)]
    with pytest.raises(BindError) as caught:
        w.bind("SELECT a\nFROM w")
    assert caught.value.message.startswith("in view w: there is no stream or table s")
    assert (caught.value.line, caught.value.column) == (2, 6)


def test_a_view_that_refers_to_itself() -> None:
    w = world().run("CREATE VIEW v AS SELECT a FROM s")
    with pytest.raises(BindError, match="refers to itself"):
        w.bind("CREATE OR REPLACE VIEW v AS SELECT a FROM v")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT x + x AS b0, "
        + ", ".join(f"b{i} + b{i} AS b{i + 1}" for i in range(60))
        + " FROM s",
        "SELECT a FROM s WHERE " + "(" * 60 + "a > 1" + ") BETWEEN false AND true" * 60,
        "WITH c0 AS (SELECT x FROM s), "
        + ", ".join(f"c{i + 1} AS (SELECT a.x FROM c{i} a, c{i} b)" for i in range(30))
        + " SELECT x FROM c30",
        "WITH c0 AS (SELECT x FROM s), "
        + ", ".join(f"c{i + 1} AS (SELECT x FROM c{i})" for i in range(150))
        + " SELECT x FROM c150",
    ],
    ids=["aliases", "between", "doubling", "chain"],
)
def test_statements_that_explode_are_refused(text: str) -> None:
    assert isinstance(refused(text), PlanError)


@pytest.mark.parametrize(
    ("window", "message"),
    [
        ("RANGE :d, SLIDE 1 s", "RANGE must be longer than zero"),
        ("RANGE 1 s, SLIDE :d", "SLIDE must be longer than zero"),
        ("RANGE :d", "RANGE must not be negative"),
    ],
)
def test_negative_lengths(window: str, message: str) -> None:
    error = refused(f"SELECT count(*) FROM s [{window}]", d=timedelta(seconds=-1))
    assert message in error.message


def test_a_parameter_without_a_sql_type() -> None:
    error = refused("SELECT :p", p=object())
    assert error.message.startswith("parameter :p: a value of type object")
