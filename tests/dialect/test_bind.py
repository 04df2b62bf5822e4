"""Statements that bind, and their plans."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from cql.base.types import DATE, DOUBLE, INTERVAL, STRING, TIMESTAMP, decimal
from cql.dialect import nodes, to_sql
from cql.errors import NotSupportedError
from cql.functions.declare import collect
from cql.planner.bind.statement import bind
from cql.planner.lower.refuse import refuse
from cql.planner.nodes import statements as st
from cql.planner.nodes.catalog import Queue, TimeUnit
from cql.planner.nodes.expr import Literal
from cql.planner.nodes.logical import Project, Scan, Windowed
from cql.planner.optimize.rules import optimize
from tests.support import dialect_corpus
from tests.support.bind_fixtures import World, tree, world

W = world()


def check(text: str, expected: str, **parameters: Any) -> None:
    """Compares the optimized plan of ``text`` with ``expected``. The rules drop unused columns and
    keep the schema of the result."""
    plan = W.plan(text, **parameters)
    optimized = optimize(plan)
    assert [(f.name, f.type) for f in optimized.schema] == [(f.name, f.type) for f in plan.schema]
    assert tree(optimized) == dedent(expected).strip()


# ------------------------------------------------------------------ names


def test_columns_match_without_case_and_are_called_as_declared() -> None:
    assert W.plan("SELECT TS, S.K AS Key FROM S").schema.names == ("ts", "Key")


def test_star_and_qualified_star() -> None:
    assert W.plan("SELECT * FROM s").schema.names == ("ts", "k", "a", "x", "name")
    names = W.plan("SELECT d.*, s.a FROM s JOIN dim d ON s.k = d.k").schema.names
    assert names == ("k", "label", "ts", "a")


def test_star_except() -> None:
    assert W.plan("SELECT * EXCEPT (ts, K), 1 AS one FROM s").schema.names == (
        *("a", "x", "name", "one"),
    )
    names = W.plan("SELECT s.* EXCLUDE (ts), d.label FROM s JOIN dim d ON s.k = d.k").schema.names
    assert names == ("k", "a", "x", "name", "label")


def test_tables_have_up_to_three_parts() -> None:
    for name in ("flights", "db.flights", "SPARK_CATALOG.db.flights"):
        assert W.plan(f"SELECT origin FROM {name}").schema.names == ("origin",)
    W.plan("SELECT db.flights.origin FROM spark_catalog.db.flights")


def test_exact_spelling_wins_between_columns_that_differ_in_case() -> None:
    small = world("CREATE TABLE t (a INT);").catalog
    upper = world('CREATE TABLE u ("A" INT);').catalog
    small.relations.update(upper.relations)
    w = World(catalog=small)
    assert tree(w.plan("SELECT A FROM t, u")).startswith("project [A#1 AS A]")


def test_ctes_see_the_ones_before_them_and_rename() -> None:
    check(
        "WITH c AS (SELECT k, a FROM s), d (u) AS (SELECT a FROM c) SELECT u FROM d",
        """
        project [a#0 AS u]
          scan [s, a]
        """,
    )


def test_views_are_expanded_and_their_errors_point_at_the_use() -> None:
    w = world().run("CREATE VIEW hot (key, n) AS SELECT k, count(*) FROM s GROUP BY k")
    plan = w.plan("SELECT key FROM hot WHERE n > 3")
    assert plan.schema.names == ("key",)
    scan = plan
    while scan.inputs:
        scan = scan.inputs[0]
    assert isinstance(scan, Scan)
    assert scan.pos is not None
    assert (scan.pos.line, scan.pos.column) == (1, 17)


def test_select_aliases_in_group_having_and_order() -> None:
    check(
        "SELECT a % 10 AS d, count(*) AS n FROM s GROUP BY d HAVING n > 1 ORDER BY n DESC, d",
        """
        sort [n#1 desc nulls last, d#0 asc nulls first]
          project [d#0 AS d, count(*)#1 AS n]
            filter [(count(*)#1 > 1)]
              aggregate [key (a#0 % 10), count()]
                scan [s, a]
        """,
    )


def test_a_column_of_the_input_wins_over_an_alias_in_group_by() -> None:
    assert "key a#" in tree(W.plan("SELECT k AS a2, a AS k2, a + 1 AS b FROM s GROUP BY a, k"))


def test_an_alias_is_known_in_later_columns() -> None:
    assert "((a#2 + 1) * 2) AS c" in tree(W.plan("SELECT a + 1 AS b, b * 2 AS c FROM s"))


def test_ordinals() -> None:
    text = "SELECT k, a + 1, sum(x) FROM s GROUP BY 1, 2 ORDER BY 3"
    assert "key k#1, key (a#2 + 1)" in tree(W.plan(text))


def test_group_by_all() -> None:
    text = "SELECT k, a + 1 AS b, sum(x), window_end FROM s [RANGE 1 s SLIDE 1 s] GROUP BY"
    assert W.plan(f"{text} ALL") == W.plan(f"{text} 1, 2, 4")
    assert W.plan("SELECT sum(x) FROM s GROUP BY ALL").schema.names == ("sum(x)",)


def test_grouped_expressions_match_by_structure() -> None:
    assert "(a + 1#0 * 2)" in tree(W.plan("SELECT (a + 1) * 2 FROM s GROUP BY a + 1"))


def test_parameters_and_constants_stand_behind_columns() -> None:
    w = world().run("CREATE CONSTANT syn = 2; CREATE CONSTANT a = 7;")
    assert "(a#2 = 2)" in tree(w.plan("SELECT k FROM s WHERE a = SYN"))
    assert "(k#1 = 5)" in tree(w.plan("SELECT k FROM s WHERE k = n", n=5))


@pytest.mark.parametrize(
    ("value", "literal"),
    [
        ("x", Literal("x", STRING)),
        (2.5, Literal(2.5, DOUBLE)),
        (Decimal("1.50"), Literal(150, decimal(3, 2))),
        (date(1970, 1, 3), Literal(2, DATE)),
        (datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), Literal(1_000_000, TIMESTAMP)),
        (timedelta(milliseconds=5), Literal(5_000, INTERVAL)),
    ],
)
def test_values_of_parameters(value: object, literal: Literal) -> None:
    plan = W.plan("SELECT :p AS v", p=value)
    assert isinstance(plan, Project)
    assert plan.exprs == (literal,)


def test_literals() -> None:
    text = "SELECT 7, 3000000000, 1.5, .5, 1e3, 'a', TRUE, NULL, -9223372036854775808"
    types = " ".join(str(f.type) for f in W.plan(text).schema)
    assert types == "int bigint decimal(2,1) decimal(1,1) double string boolean void bigint"
    text = "SELECT 1Y, 2S, 3L, .5F, 1D, 12.50BD, -128Y, X'00fF'"
    plan = W.plan(text)
    types = " ".join(str(f.type) for f in plan.schema)
    assert types == "tinyint smallint bigint float double decimal(4,2) tinyint binary"
    assert isinstance(plan, Project)
    values = [e.value for e in plan.exprs if isinstance(e, Literal)]
    assert values == [1, 2, 3, 0.5, 1.0, 1250, -128, b"\x00\xff"]
    dated = "SELECT DATE '1970-01-02', TIMESTAMP '1970-01-01 01:00:00.000001+01:00'"
    plan = W.plan(dated + ", INTERVAL '1.5' SECOND")
    assert isinstance(plan, Project)
    assert [e.value for e in plan.exprs if isinstance(e, Literal)] == [1, 1, 1_500_000]


@pytest.mark.parametrize(
    ("condition", "bound"),
    [
        ("name NOT LIKE 'a%'", "not(like(name#4, 'a%'))"),
        ("name NOT ILIKE 'a!%' ESCAPE '!'", "not(ilike(name#4, 'a!%', '!'))"),
        ("a NOT IN (1, 2)", "not(in_list(a#2, 1, 2))"),
        ("a NOT BETWEEN 1 AND 2", "not(((a#2 >= 1) AND (a#2 <= 2)))"),
        ("a IS NOT NULL", "not(is_null(a#2))"),
        ("(a > 1) IS NOT TRUE", "not(null_safe_eq((a#2 > 1), True))"),
        ("a IS NOT DISTINCT FROM k", "null_safe_eq(a#2, k#1)"),
        ("NOT a = 1", "not((a#2 = 1))"),
    ],
)
def test_negations(condition: str, bound: str) -> None:
    assert f"filter [{bound}]" in tree(W.plan(f"SELECT a FROM s WHERE {condition}"))


def test_names_of_expressions() -> None:
    assert W.plan("SELECT COUNT(*), Sum(a + 1) FROM s").schema.names == ("count(*)", "sum(a + 1)")


# ------------------------------------------------------------------ unions


def test_from_union_matches_by_position_under_one_window() -> None:
    check(
        "SELECT k, count(*) FROM s UNION r AS m [RANGE 1 min, SLIDE 1 min, WA ts] GROUP BY m.k",
        """
        project [k#0 AS k, count(*)#1 AS count(*)]
          aggregate [key k#1, count(), sliding wa=0 range=60000000 slide=60000000]
            union
              scan [s, ts, k]
              scan [r, ts, k]
        """,
    )


def test_union_casts_to_common_types() -> None:
    check(
        "SELECT a FROM s UNION ALL SELECT x FROM r UNION ALL SELECT k FROM r",
        """
        union
          project [a#0::double AS a]
            scan [s, a]
          scan [r, x]
          project [k#0::double AS a]
            scan [r, k]
        """,
    )


def test_union_and_distinct_group_by_all_columns() -> None:
    assert tree(W.plan("SELECT a FROM s UNION SELECT a FROM r")).startswith("aggregate [key a#0]")
    assert tree(W.plan("SELECT DISTINCT a, k FROM s")).startswith("aggregate [key a#0, key k#1]")


def test_distinct_over_a_window_is_distinct_within_it() -> None:
    check(
        "SELECT DISTINCT k FROM s [RANGE 1 min, SLIDE 1 min]",
        """
        project [k#0 AS k]
          aggregate [key k#1, sliding wa=0 range=60000000 slide=60000000]
            scan [s, ts, k]
        """,
    )


# ------------------------------------------------------------------ windows

TUMBLING = "sliding wa=0 range=60000000 slide=60000000"
HOPPING = "sliding wa=0 range=60000000 slide=10000000"


@pytest.mark.parametrize(
    ("text", "window"),
    [
        ("SELECT count(*) FROM s [RANGE 1 min, SLIDE 1 min, WA ts]", TUMBLING),
        ("SELECT count(*) FROM s [RANGE 1 min SLIDE 10 s] AS q", HOPPING),
        ("SELECT count(*) [RANGE 1 min, SLIDE 10 s, WA s.ts] FROM s", HOPPING),
        ("SELECT count(*) FROM s [RANGE :w, SLIDE '10 seconds']", HOPPING),
        (
            "SELECT count(*) FROM TABLE(TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '1' MINUTE))"
            " GROUP BY window_start, window_end",
            TUMBLING,
        ),
        (
            "SELECT t.window_end FROM HOP(s, ts, INTERVAL '10' SECOND, INTERVAL '1' MINUTE) AS t"
            " GROUP BY t.window_end",
            HOPPING,
        ),
        ("SELECT window.start, count(*) FROM s GROUP BY window(ts, '1 minute')", TUMBLING),
        ("SELECT window(ts, '1 minute', '10 seconds').end FROM s GROUP BY"
         " window(ts, '1 minute', '10 seconds')", HOPPING),
        ("SELECT count(*) FROM s GROUP BY window(ts, '1 minute', '1 minute', '70 seconds')",
         TUMBLING + " offset=10000000"),
        ("SELECT TUMBLE_END(ts, INTERVAL '1' MINUTE) FROM s GROUP BY"
         " TUMBLE(ts, INTERVAL '1' MINUTE)", TUMBLING),
        ("SELECT count(*) FROM s GROUP BY hop(INTERVAL '10' SECOND, INTERVAL '1' MINUTE)", HOPPING),
        ("SELECT count(*) FROM secs [RANGE 1.5 min, SLIDE 10 s]", "sliding wa=0 range=90 slide=10"),
        ("SELECT count(*) FROM millis [RANGE 2 s, SLIDE 500]", "sliding wa=0 range=2000 slide=500"),
        ("SELECT count(*) FROM ticks [RANGE 100, SLIDE 10]", "sliding wa=0 range=100 slide=10"),
        ("SELECT count(*) FROM days [RANGE 1 week, SLIDE 1 day]", "sliding wa=0 range=7 slide=1"),
        ("SELECT count(*) FROM two [RANGE 1 s, SLIDE 1 s, WA t2]",
         "sliding wa=1 range=1000000 slide=1000000"),
        ("SELECT count(*) FROM (SELECT a, date_trunc('hour', ts) FROM s) [RANGE 1 h SLIDE 1 h]",
         "sliding wa=1 range=3600000000 slide=3600000000"),
    ],
)  # fmt: skip
def test_all_spellings_become_one_window(text: str, window: str) -> None:
    plan = tree(W.plan(text, w=timedelta(minutes=1)))
    assert f"{window}]" in plan


def test_window_columns_in_select_having_and_order() -> None:
    check(
        "SELECT window_end AS e, k FROM s [RANGE 1 min, SLIDE 1 min] GROUP BY k, window_start"
        " HAVING window_start > TIMESTAMP '1970-01-02' ORDER BY count(*) DESC LIMIT 3",
        """
        project [e#0 AS e, k#1 AS k]
          sort [order_1#3 desc nulls last, limit 3, per window #2]
            project [window_end#3 AS e, k#0 AS k, window_end#3 AS window_end, count(*)#1 AS order_1]
              filter [(window_start#2 > 86400000000)]
                aggregate [key k#1, count(), sliding wa=0 range=60000000 slide=60000000]
                  scan [s, ts, k]
        """,
    )


def test_keys_made_of_the_window_are_implied() -> None:
    check(
        "SELECT hour(window_end), k FROM s [RANGE 1 s, SLIDE 1 s] GROUP BY hour(window_end), k",
        """
        project [hour(window_end#2) AS hour(window_end), k#0 AS k]
          aggregate [key k#1, sliding wa=0 range=1000000 slide=1000000]
            scan [s, ts, k]
        """,
    )


def test_order_by_without_a_window_sorts_the_whole_input() -> None:
    assert tree(W.plan("SELECT a FROM s ORDER BY a NULLS LAST LIMIT 2 OFFSET 1")).startswith(
        "sort [a#0 asc nulls last, limit 2, offset 1]"
    )


def test_a_derived_stream_carries_its_window_columns() -> None:
    check(
        "SELECT max(n) FROM (SELECT k, count(*) AS n FROM s [RANGE 1 MIN, SLIDE 1 MIN] GROUP BY k)"
        " WHERE n > 1",
        """
        aggregate [max(n#0)]
          project [count(*)#1 AS n]
            filter [(count(*)#1 > 1)]
              aggregate [key k#1, count(), sliding wa=0 range=60000000 slide=60000000]
                scan [s, ts, k]
        """,
    )
    plan = W.plan(
        "SELECT max(n) FROM (SELECT count(*) AS n FROM s [RANGE 1 MIN, SLIDE 1 MIN] GROUP BY k)"
        " [RANGE 1 HOUR, SLIDE 1 HOUR]"
    )
    outer = plan.inputs[0]
    wa = outer.window.wa
    assert isinstance(wa, int)
    assert outer.inputs[0].schema[wa].name == "window_time"


def test_star_does_not_show_the_columns_of_a_derived_window() -> None:
    text = "SELECT * FROM (SELECT count(*) AS n FROM s [RANGE 1 MIN, SLIDE 1 MIN])"
    assert W.plan(text).schema.names == ("n",)


def test_table_functions_without_grouping_keep_rows() -> None:
    check(
        "SELECT a, window_end FROM TUMBLE(s, ts, INTERVAL '1' MINUTE) WHERE window_end > ts",
        """
        project [a#1 AS a, window_end#3 AS window_end]
          filter [(window_end#3 > ts#0)]
            bucket [sliding wa=0 range=60000000 slide=60000000]
              scan [s, ts, a]
        """,
    )
    star = W.plan("SELECT * FROM TUMBLE(s, ts, INTERVAL '1' MINUTE)").schema.names
    assert star[-3:] == ("window_start", "window_end", "window_time")


def test_slide_above_range_is_a_warning() -> None:
    W.plan("SELECT count(*) FROM s [RANGE 1 s, SLIDE 1 min]")
    assert len(W.warnings()) == 1
    assert "belong to none" in W.warnings()[0]


def test_integer_division_is_a_notice_in_sparks_spelling() -> None:
    W.plan("SELECT k / 2 FROM s")
    assert not W.warnings()
    W.plan("SELECT k / 2, count(*) FROM s GROUP BY k, window(ts, '1 minute')")
    assert W.warnings() == ["an integer divided by an integer is an integer here, unlike in Spark"]


def test_watermark_on_an_item() -> None:
    plan = W.plan(
        "SELECT window.end, count(*) FROM dim WATERMARK ts DELAY OF INTERVAL 5 SECONDS"
        " GROUP BY window(ts, '10 seconds')"
    )
    while plan.inputs:
        plan = plan.inputs[0]
    assert isinstance(plan, Scan)
    assert plan.relation.stream is not None
    (progress,) = plan.relation.stream.progress
    assert (progress.column, progress.slack) == ("ts", 5_000_000)
    assert plan.relation.kind == "stream"


def test_what_has_a_watermark() -> None:
    def names(text: str) -> list[str]:
        plan = W.plan(text)
        return [plan.schema[i].name for i in plan.progressing]

    assert names("SELECT ts, ts AS again, a FROM s WHERE a > 1") == ["ts", "again"]
    assert names("SELECT ts + INTERVAL '1' SECOND AS later, -a AS b FROM s") == ["later"]
    assert names("SELECT ts, a FROM s UNION ALL SELECT ts, a FROM r") == ["ts"]
    assert names("SELECT ts FROM s UNION ALL SELECT ts FROM dim") == []
    assert names("SELECT window_end, k FROM s [RANGE 1 s, SLIDE 1 s] GROUP BY k") == ["window_end"]
    assert names("SELECT k, max(ts) FROM s GROUP BY k") == []
    assert names("SELECT s.ts, r.ts FROM s, r") == ["ts", "ts"]
    assert names("SELECT s.ts AS a, r.ts AS b FROM s LEFT JOIN r ON s.k = r.k") == ["a"]


def test_units_survive_shifts_only() -> None:
    plan = W.plan("SELECT ts + 5 AS a, ts / 10 AS b, CAST(ts AS BIGINT) AS c FROM secs")
    units = {plan.schema[i].name: info.unit for i, info in plan.progressing.items()}
    assert units == {"a": TimeUnit.SECONDS, "b": None, "c": TimeUnit.SECONDS}


# ------------------------------------------------------------------ clauses that cannot run


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("SELECT a FROM s [ROWS 10 SLIDE 5]", "number"),
        ("SELECT a FROM s [PARTITION BY k ROWS 3]", "windowed [rows wa=0 rows=3 by=[1]]"),
        ("SELECT a FROM s [NOW]", "windowed [now wa=0 range=0]"),
        ("SELECT a FROM s [UNBOUNDED]", "windowed [unbounded wa=0]"),
        ("SELECT a FROM s [RANGE 5 s]", "windowed [range wa=0 range=5000000]"),
        ("SELECT count(*) FROM s, r WINDOW 10 s", "windowed [range wa=0 range=10000000]"),
        ("SELECT ISTREAM(a) FROM s [NOW]", "relationtostream [ISTREAM]"),
        ("SELECT sum(a) OVER (PARTITION BY k ORDER BY ts) FROM s", "unsupported [OVER]"),
        ("SELECT rank() OVER w FROM s WINDOW w AS (ORDER BY a)", "unsupported [OVER]"),
        ("SELECT (SELECT max(k) FROM dim) FROM s", "subqueryjoin [scalar]"),
        ("SELECT a FROM s WHERE k IN (SELECT k FROM dim)", "subqueryjoin [in, k#1]"),
        ("SELECT a FROM s WHERE EXISTS (SELECT 1 FROM dim d WHERE d.k = s.k)",
         "subqueryjoin [exists, k#1]"),
        ("SELECT a FROM s EXCEPT SELECT a FROM r", "windowed [unbounded wa=0]"),
        ("SELECT * FROM s ASOF JOIN r MATCH_CONDITION (s.ts >= r.ts) ON s.k = r.k",
         "join [asof left, ((ts#0 >= ts#5) AND (k#1 = k#6))]"),
        ("SELECT * FROM s JOIN dim FOR SYSTEM_TIME AS OF s.ts AS d ON s.k = d.k",
         "join [inner, (k#1 = k#5)]"),
        ("SELECT * FROM s LEFT JOIN r FOR SYSTEM_TIME AS OF s.ts ON s.k = r.k",
         "join [asof left, ((k#1 = k#6) AND (ts#0 >= ts#5))]"),
        ("SELECT * FROM s ASOF JOIN r USING (k, ts)",
         "join [asof, ((k#1 = k#6) AND (ts#0 >= ts#5))]"),
    ],
)  # fmt: skip
def test_clauses_that_bind_and_cannot_run(text: str, line: str) -> None:
    plan = W.plan(text)
    assert line in tree(plan)
    assert optimize(plan).schema == plan.schema


def test_subqueries_above_an_aggregate() -> None:
    plan = W.plan("SELECT k FROM s GROUP BY k HAVING count(*) > (SELECT max(k) FROM dim)")
    assert "filter [(count(*)#1 > (SELECT max(k) FROM dim)#2::bigint)]" in tree(plan)


def test_using_merges_columns() -> None:
    inner = W.plan("SELECT * FROM s JOIN dim USING (k)")
    assert inner.schema.names == ("k", "ts", "a", "x", "name", "label", "ts")
    assert "k#5 AS k" in tree(W.plan("SELECT k FROM s RIGHT JOIN dim USING (k)"))
    assert "coalesce(k#1, k#5) AS k" in tree(W.plan("SELECT k FROM s FULL JOIN dim USING (k)"))
    assert "inner, ((k#1 = k#5) AND (ts#0 = ts#7))" in tree(
        W.plan("SELECT * FROM s NATURAL JOIN dim")
    )


def test_outer_joins_make_columns_nullable() -> None:
    schema = W.plan("SELECT s.k AS a, d.k AS b FROM s LEFT JOIN dim d ON s.k = d.k").schema
    assert [f.nullable for f in schema] == [False, True]


# ------------------------------------------------------------------ statements


def test_query_clauses() -> None:
    made = W.bind(
        "SELECT /*+ window_operator(wid), morsel_rows(7) */ a FROM s"
        " EMIT CHANGES ON BAD ROW KEEP LATE OUTPUT INTO db.late"
    )
    assert isinstance(made, st.Query)
    assert made.hints == (st.Hint("window_operator", ("wid",)), st.Hint("morsel_rows", ("7",)))
    assert made.keep_bad_rows
    assert made.emit_changes is not None
    assert made.late_output == st.LateTarget(("db", "late"))
    assert isinstance(made.plan, Windowed | Project)


def test_insert_names_and_casts_columns_by_position() -> None:
    made = W.bind("INSERT INTO dim (label, k) SELECT name, v FROM s, ticks")
    assert isinstance(made, st.Insert)
    assert made.columns == ("label", "k")
    assert [str(f) for f in made.query.schema] == ["label string", "k int"]


def test_create_stream() -> None:
    made = W.bind(
        "CREATE STREAM IF NOT EXISTS t (ts BIGINT, k INT NOT NULL COMMENT 'key',"
        " WATERMARK FOR ts AS ts - INTERVAL '5' SECOND, PRIMARY KEY (k))"
        " USING csv OPTIONS (path '/x', header true) ORDERED BY ts IN MILLISECONDS"
        " UPDATE KEY QUEUE IN-PLACE WINDOWS LAZY RATE 2 KHZ IDLE AFTER 5 s ON BAD ROW KEEP"
    )
    assert isinstance(made, st.CreateStream)
    definition = made.definition
    assert (definition.format, definition.options) == ("csv", {"path": "/x", "header": True})
    (progress,) = definition.spec.progress
    assert (progress.column, progress.slack, progress.unit) == ("ts", 5000, TimeUnit.MILLISECONDS)
    assert definition.spec.update_key == ("k",)
    assert definition.spec.queue is Queue.IN_PLACE
    assert (definition.spec.lazy_windows, definition.spec.rate_hz) == (True, 2000.0)
    assert definition.spec.keep_bad_rows
    assert definition.spec.idle_after == 5_000_000
    assert made.if_not_exists
    assert definition.schema is not None
    assert definition.schema[1].comment == "key"


def test_create_stream_from_a_table_and_with_flink_options() -> None:
    made = W.bind("CREATE STREAM f FROM TABLE db.flights ORDERED BY at WITHIN 1 hour")
    assert isinstance(made, st.CreateStream)
    assert (made.definition.schema, made.definition.table) == (None, ("db", "flights"))
    assert made.definition.spec.progress[0].slack == 3_600_000_000
    made = W.bind("CREATE STREAM f (a INT) WITH ('connector'='files', 'format'='csv', 'path'='/x')")
    assert isinstance(made, st.CreateStream)
    assert (made.definition.format, made.definition.options) == ("csv", {"path": "/x"})


def test_other_statements() -> None:
    assert W.bind("DROP VIEW IF EXISTS v") == st.Drop("view", ("v",), True)
    assert W.bind("SET workers = 4") == st.Set("workers", 4)
    assert W.bind("SET fuse = off") == st.Set("fuse", "off")
    assert W.bind("SET workers") == st.Set("workers", None)
    assert W.bind("RESET workers") == st.Reset("workers")
    assert W.bind("SHOW STREAMS LIKE 'a%'") == st.Show("streams", "a%")
    assert W.bind("DESCRIBE db.flights") == st.Describe(("db", "flights"))
    assert W.bind("STOP QUERY 3") == st.StopQuery("3")
    explained = W.bind("EXPLAIN ANALYZE SELECT a FROM s")
    assert isinstance(explained, st.Explain)
    assert explained.mode == "analyze"
    constant = W.bind("CREATE CONSTANT d = INTERVAL '5' SECOND")
    assert isinstance(constant, st.CreateConstant)
    assert constant.value == Literal(5_000_000, INTERVAL)
    table = W.bind("CREATE TABLE t USING parquet AS SELECT k, count(*) AS n FROM s GROUP BY k")
    assert isinstance(table, st.CreateTable)
    assert (table.format, table.schema.names) == ("parquet", ("k", "n"))


def test_intermediate_streams_keep_watermarks() -> None:
    w = world().run(
        "CREATE STREAM counts AS SELECT k, count(*) AS n FROM s [RANGE 1 s, SLIDE 1 s] GROUP BY k"
    )
    assert "wa=4" in tree(w.plan("SELECT max(n) FROM counts [RANGE 1 min, SLIDE 1 min]"))


# ------------------------------------------------------------------ the query files


@pytest.mark.parametrize(
    "path", dialect_corpus.query_files(), ids=lambda p: f"{p.parent.name}/{p.stem}"
)
def test_every_query_file_binds(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    w = World()
    for line in text.splitlines():
        if line.startswith("-- streams:"):
            w.run(line.removeprefix("-- streams:"))
        if line.startswith("-- functions:"):
            found = collect(path.parent / line.removeprefix("-- functions:").strip())
            w.functions |= {f.name: f for f in found}
    before, statement = dialect_corpus.script(text)
    for declared in before:
        w.run(to_sql(declared))
    if isinstance(statement, nodes.InsertInto) and w.catalog.find((statement.this.name,)) is None:
        columns = bind(statement.args["query"], w.catalog, w.fresh())
        assert isinstance(columns, st.Query)
        listed = ", ".join(f"{f.name} {f.type}" for f in columns.schema)
        w.run(f"CREATE TABLE {statement.this.name} ({listed})")
    plan = w.plan(to_sql(statement) if before else text)
    assert optimize(plan).schema.names == plan.schema.names
    if "-- expect: runs" in text:
        refuse(optimize(plan))
    else:
        with pytest.raises(NotSupportedError):
            refuse(optimize(plan))
