"""Materialized views in several sessions, and their statements."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cql
from cql.catalog.spark.tables import staging
from cql.errors import BindError, CatalogError, CqlError, NotSupportedError, RunError
from cql.session.session import Session
from tests.support.view_tables import TUMBLING, Base, check, create, refreshed, rows_of

# --------------------------------------------------------------------------- sessions


def test_two_sessions(
    spark: Any, session: Session, base: Callable[..., Base], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = base()
    one.add(one.rows(300))
    text = one.text(TUMBLING)
    create(session, text)
    with cql.connect(spark) as other:
        check(other, text)
        one.add(one.rows(100))
        assert " refreshed: " in refreshed(other)
        assert "up to date" in refreshed(session)
        one.add(one.rows(100))
        real = staging.Staging.commit

        def overtaken(self: Any, *args: Any, **named: Any) -> Any:
            monkeypatch.setattr(staging.Staging, "commit", real)
            assert " refreshed: " in refreshed(other)
            return real(self, *args, **named)

        monkeypatch.setattr(staging.Staging, "commit", overtaken)
        assert "was refreshed by another session meanwhile" in refreshed(session)
        check(session, text)


def test_spark_reads_the_same_rows(spark: Any, session: Session, base: Callable[..., Base]) -> None:
    one = base()
    text = one.text(TUMBLING)
    one.add(one.rows(300))
    create(session, text)
    for count in (100, 100):
        rows = spark.sql("SELECT k, n, s, window_end FROM default.v").toArrow().to_pylist()
        assert sorted(map(repr, rows)) == rows_of(session, text)
        one.add(one.rows(count))
        refreshed(session)


def test_what_a_definition_holds(spark: Any, session: Session, base: Callable[..., Base]) -> None:
    """Constants, parameters and views of the session that makes the view."""
    one = base()
    one.add(one.rows(300))
    with cql.connect(spark) as maker:
        maker.sql(f"CREATE CONSTANT most = 70; CREATE VIEW few AS SELECT * FROM {one.stream}")
        maker.sql(
            "CREATE MATERIALIZED VIEW default.v AS SELECT k, v, 'a;b''c' AS c, :least AS p"
            " FROM few WHERE v < most AND v > :least -- the rest; of the line",
            least=20,
        )
    text = f"SELECT k, v, 'a;b''c' AS c, 20 AS p FROM {one.stream} WHERE v < 70 AND v > 20"
    assert check(session, text) > 0
    one.add(one.rows(100))
    assert " refreshed: " in refreshed(session)
    check(session, text)


def test_settings_and_functions(spark: Any, session: Session, base: Callable[..., Base]) -> None:
    """The settings of the maker decide the plan; a function's name may be that of a column."""
    one = base()
    one.add(one.rows(300))
    divided = f"SELECT k, v AS twice, 100 / (v - 50) AS q FROM {one.table}"
    with cql.connect(spark, on_bad_row="keep") as maker:
        maker.register_function("twice", twice)
        create(maker, divided)
    assert check(session, f"{divided} ON BAD ROW KEEP") > 0
    one.add(one.rows(100))
    assert " refreshed: " in refreshed(session)
    check(session, f"{divided} ON BAD ROW KEEP")


def test_a_view_of_spark(spark: Any, session: Session, base: Callable[..., Base]) -> None:
    """Spark computes its rows, so nobody knows what it gained."""
    one = base()
    one.add(one.rows(300))
    spark.catalog.refreshTable(one.table)
    spark.sql(f"CREATE VIEW default.plain AS SELECT k, v FROM {one.table} WHERE v > 30")
    try:
        text = "SELECT k FROM default.plain"
        create(session, text)
        for _ in range(2):
            assert check(session, text) > 0
            one.add(one.rows(50))
            spark.catalog.refreshTable(one.table)
            assert "default.plain is no table of files" in refreshed(session)
    finally:
        session.sql("DROP MATERIALIZED VIEW default.v")
        spark.sql("DROP VIEW default.plain")


def test_freshness(spark: Any, session: Session, base: Callable[..., Base]) -> None:
    one = base()
    one.add(one.rows(300))
    text = one.text(TUMBLING)
    with cql.connect(spark) as other:
        now = [1000.0]
        other._now = lambda: now[0]
        create(other, text, "FRESHNESS 1 MINUTE")
        old = rows_of(other, text)
        one.add(one.rows(100))
        query = other.sql("SELECT * FROM default.v")
        now[0] += 60
        assert sorted(map(repr, query.to_arrow().to_pylist())) == old
        now[0] += 1
        assert sorted(map(repr, query.to_arrow().to_pylist())) == rows_of(other, text) != old
        one.add(one.rows(100))
        now[0] += 61
        other.sql("CREATE TABLE copied AS SELECT * FROM default.v")
        assert rows_of(other, "SELECT * FROM copied") == rows_of(other, text)
        now[0] += 61
        check(other, text)
        read = other.sql("SELECT count(*) AS n FROM default.v")
        one.add(one.rows(100))
        now[0] += 59  # the SELECT above has looked for new files
        assert read.to_arrow().to_pylist() != [{"n": len(rows_of(other, text))}]
        now[0] -= 1_000  # the clock was set back
        assert read.to_arrow().to_pylist() == [{"n": len(rows_of(other, text))}]


def test_a_refresher(spark: Any, session: Session, base: Callable[..., Base]) -> None:
    one = base()
    one.add(one.rows(300))
    text = one.text(TUMBLING)
    create(session, text)
    refreshes, goes_on = threading.Semaphore(0), threading.Semaphore(0)

    def wait(stop: threading.Event, seconds: float) -> None:
        assert seconds == 60
        refreshes.release()
        while not stop.is_set() and not goes_on.acquire(timeout=0.01):
            pass

    with cql.connect(spark) as other:
        other._wait = wait
        one.add(one.rows(100))
        query = other.sql("REFRESH MATERIALIZED VIEW default.v EVERY 1 MINUTE")
        for _ in range(3):
            assert refreshes.acquire(timeout=60)
            check(session, text)
            one.add(one.rows(100))
            goes_on.release()
        listed = other.sql("SHOW QUERIES").rows
        assert [(row[1], row[-1]) for row in listed] == [("running", query.text)]
        with pytest.raises(RunError, match=r"query q1 writes into default\.v"):
            other.sql("DROP MATERIALIZED VIEW default.v")
        assert refreshes.acquire(timeout=60)
        assert other.sql(f"STOP QUERY {query.name}").message == f"{query.name} has stopped"
        assert query.status == "stopped"
        check(session, text)
        failing = other.sql("REFRESH MATERIALIZED VIEW default.v EVERY 1 MINUTE")
        assert refreshes.acquire(timeout=60)
        session.sql("DROP MATERIALIZED VIEW default.v")
        goes_on.release()
        with pytest.raises(BindError, match="no materialized view"):
            failing.await_termination(60)
        assert failing.status == "failed"


def test_a_view_over_a_view(session: Session, base: Callable[..., Base]) -> None:
    one = base()
    one.add(one.rows(300))
    inner, outer = one.text(TUMBLING), "SELECT k, n + 1 AS n FROM default.v WHERE s > 10"
    create(session, inner)
    try:
        session.sql(f"CREATE MATERIALIZED VIEW default.w AS {outer}")
        for _ in range(2):
            check(session, outer, "default.w")
            one.add(one.rows(100))
            refreshed(session)
            made = session.sql("REFRESH MATERIALIZED VIEW default.w").message
            assert " of default.v was removed" in made
        for text in (one.text(TUMBLING), "SELECT k, n, n AS s, 1 AS window_end FROM default.w"):
            if "default.w" not in text:
                continue
            with pytest.raises(NotSupportedError, match="reads itself"):
                session.sql(f"CREATE OR REPLACE MATERIALIZED VIEW default.v AS {text}")
    finally:
        session.sql("DROP MATERIALIZED VIEW default.w")


# --------------------------------------------------------------------------- statements


def test_create_or_replace(session: Session, base: Callable[..., Base]) -> None:
    one = base()
    one.add(one.rows(300))
    text, other = one.text(TUMBLING), one.text(TUMBLING + " HAVING count(*) > 5")
    create(session, text, "COMMENT 'one'")
    with pytest.raises(BindError, match="exists already") as caught:
        create(session, text)
    assert "CREATE OR REPLACE MATERIALIZED VIEW" in (caught.value.hint or "")
    made = session.sql(f"CREATE MATERIALIZED VIEW IF NOT EXISTS default.v AS {other}").message
    assert made == "materialized view default.v exists already"
    check(session, text)
    replace = "CREATE OR REPLACE MATERIALIZED VIEW default.v"
    made = session.sql(f"{replace} FRESHNESS 1 HOUR AS {other}").message
    assert "its query is another one" in made
    check(session, other)
    described = dict(session.sql("DESCRIBE MATERIALIZED VIEW default.v").rows)
    assert (described["comment"], described["freshness"]) == ("", "3600 seconds")
    assert "up to date" in session.sql(f"{replace} AS {other}").message
    with pytest.raises(CqlError):
        session.sql(f"{replace} AS {one.text(TUMBLING + ' HAVING 1 / (count(*) - n) > 0')}")
    check(session, other)
    fewer = f"SELECT k FROM {one.table}"
    session.sql(f"{replace} AS {fewer}")
    check(session, fewer)
    with pytest.raises(CqlError, match="division by zero"):
        session.sql(f"{replace} AS SELECT 1 / (v - v) AS x FROM {one.table}")
    assert session._catalog.find(("default", "v")) is None


def test_drop(spark: Any, session: Session, base: Callable[..., Base]) -> None:
    one = base()
    one.add(one.rows(300))
    create(session, one.text(TUMBLING))
    location = spark.sql("DESCRIBE TABLE EXTENDED default.v").collect()
    folder = Path(next(r.data_type for r in location if r.col_name == "Location")[5:])
    assert folder.is_dir()
    for text in ("DROP TABLE default.v", "DROP VIEW default.v"):
        with pytest.raises(BindError) as caught:
            session.sql(text)
        assert caught.value.hint == "it is a materialized view: DROP MATERIALIZED VIEW default.v"
    with pytest.raises(BindError, match="no materialized view"):
        session.sql(f"DROP MATERIALIZED VIEW {one.table}")
    session.sql("DROP MATERIALIZED VIEW default.v")
    assert not folder.exists()
    assert not spark.catalog.tableExists("default.v")
    made = session.sql("DROP MATERIALIZED VIEW IF EXISTS default.v").message
    assert made == "there is no materialized view default.v"


def test_a_view_takes_no_rows(spark: Any, session: Session, base: Callable[..., Base]) -> None:
    one = base()
    one.add(one.rows(300))
    text = one.text("SELECT k FROM {s}")
    create(session, text)
    for insert in (
        "INSERT INTO default.v VALUES (1)",
        f"SELECT k, count(*) AS n FROM {one.stream} [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY k"
        " LATE OUTPUT INTO default.v",
    ):
        with pytest.raises(CatalogError, match="is a materialized view"):
            session.sql(insert).to_arrow()
    with pytest.raises(BindError, match="is a materialized view"):
        session.sql("CREATE OR REPLACE TABLE default.v (k BIGINT)")
    check(session, text)
    spark.sql("INSERT INTO default.v VALUES (1)")  # the engine cannot refuse this
    refreshed(session, "FULL")
    check(session, text)


def test_hostile_names(spark: Any, session: Session) -> None:
    comment = 'it\'s a "comment"; DROP TABLE `x` -- ${env:HOME} \\'
    session.register_table("odd", {"a `b`; c'": [1, 2], 'd"e': ["x';", "`"]}, replace=True)
    session.sql("CREATE TABLE default.odd AS SELECT * FROM odd")
    text = 'SELECT `a ``b``; c\'`, "d""e" FROM default.odd WHERE "d""e" <> \'y\'\';`\''
    quoted = comment.replace("'", "''")
    try:
        session.sql(f"CREATE MATERIALIZED VIEW default.v COMMENT '{quoted}' AS {text}")
        assert check(session, text) == 2
        session.sql("INSERT INTO default.odd SELECT * FROM odd")
        assert " refreshed: " in refreshed(session)
        assert check(session, text) == 4
        described = dict(session.sql("DESCRIBE MATERIALIZED VIEW default.v").rows)
        assert (described["comment"], described["query"]) == (comment, text)
        shown = session.sql("SHOW MATERIALIZED VIEWS IN default").rows
        assert ("default.v", text) in [row[:2] for row in shown]
        with pytest.raises(CatalogError, match="cannot be named"):
            session.sql(f"CREATE MATERIALIZED VIEW default.`v;'` AS {text}")
    finally:
        session.sql("DROP MATERIALIZED VIEW IF EXISTS default.v")
        session.sql("DROP TABLE default.odd")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("SELECT k FROM here", "here, which only this session has, in materialized view"),
        ("SELECT k FROM passing", "passing, a temporary view of Spark, in materialized view"),
        ("SELECT k FROM {e}", "which has no end, in materialized view"),
        ("SELECT twice(k) AS k FROM {s}", r"a function of yours \(twice\) in materialized view"),
        ("SELECT k FROM queued", "queued, a query with an update queue, in materialized view"),
        ("SELECT 1 AS x", "a query that reads no table in materialized view"),
        ("SELECT k, count(*) AS n FROM {s} GROUP BY k EMIT CHANGES", "a relation that changes"),
        (
            "SELECT count(*) AS n FROM {s} [RANGE 1 MINUTE SLIDE 1 MINUTE] LATE OUTPUT INTO l",
            "LATE OUTPUT in materialized view",
        ),
    ],
)
def test_what_is_refused(
    spark: Any, session: Session, base: Callable[..., Base], text: str, why: str
) -> None:
    one = base()
    with cql.connect(spark) as other:
        other.register_function("twice", twice)
        spark.range(3).selectExpr("id AS k").createOrReplaceTempView("passing")
        other.register_table("here", {"k": [1]})
        other.sql(
            f"CREATE STREAM {one.stream}_e FROM TABLE {one.table} OPTIONS (follow 'true')"
            " ORDERED BY ts"
        )
        other.sql(one.text("CREATE STREAM queued UPDATE KEY (k) AS SELECT k FROM {s}"))
        made = one.text(text.replace("{e}", f"{one.stream}_e"))
        with pytest.raises(NotSupportedError, match=why) as caught:
            create(other, made)
        assert caught.value.position is not None
        other.sql(f"DROP STREAM {one.stream}_e")
    assert session._catalog.find(("default", "v")) is None


def twice(x: int) -> int:
    return x * 2


def test_without_spark() -> None:
    for session, name in ((cql.connect(spark=False), "default.v"), (cql.connect(), "v")):
        with session:
            session.register_table("t", {"k": [1]})
            with pytest.raises(NotSupportedError, match="outside of Spark's catalog"):
                session.sql(f"CREATE MATERIALIZED VIEW {name} AS SELECT k FROM t")
