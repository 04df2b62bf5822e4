"""Sessions: statements, names, settings, notices. Queries run on a fake engine."""

from __future__ import annotations

import datetime
import threading
import warnings
import weakref
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import cql
from cql.base.settings import Settings
from cql.catalog.local import LocalCatalog
from cql.errors import (
    BindError,
    CatalogError,
    CqlError,
    NotSupportedError,
    ParseError,
    PlanError,
    RunError,
    SettingError,
)
from cql.planner.nodes.catalog import Relation, TimeUnit
from cql.planner.nodes.physical import PhysicalPlan
from cql.query.query import Query
from cql.query.result import Result
from cql.session.session import CqlWarning, Session
from tests.support.fake_run import FakeRun

FLIGHTS = pa.table(
    {
        "ts": pa.array([0, 60_000_000], pa.timestamp("us", "UTC")),
        "origin": ["JFK", "LGA"],
        "delay": pa.array([5, None], pa.int64()),
        "n": pa.array([1, 2], pa.int64()),
    }
)


class Engine:
    """Stands in for the executor: every run gives ``batches``, and ``ran`` records the plans."""

    def __init__(self) -> None:
        self.ran: list[tuple[PhysicalPlan, Settings]] = []
        self.runs: list[FakeRun] = []
        self.endless = False
        self.batches: tuple[pa.RecordBatch, ...] = ()

    def __call__(self, plan: PhysicalPlan, settings: Settings) -> FakeRun:
        self.ran.append((plan, settings))
        self.runs.append(FakeRun(*self.batches, endless=self.endless))
        return self.runs[-1]


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def session(engine: Engine) -> Iterator[Session]:
    with Session(False, run=engine) as made:
        made.create_stream("flights", FLIGHTS, ordered_by="ts")
        yield made


def rows(result: Query | Result) -> list[dict[str, object]]:
    return result.to_arrow().to_pylist()


def select(session: Session, text: str, **parameters: object) -> Query:
    query = session.sql(text, **parameters)
    assert isinstance(query, Query)
    return query


# --------------------------------------------------------------------------- queries


def test_a_select_is_lazy(session: Session, engine: Engine) -> None:
    engine.batches = (pa.record_batch({"origin": ["JFK"]}),)
    query = select(session, "SELECT origin FROM flights")
    assert engine.ran == []
    assert query.columns == ["origin"]
    assert query.bounded
    assert rows(query) == [{"origin": "JFK"}]
    assert len(engine.ran) == 1


def test_parameters_and_constants(session: Session) -> None:
    session.sql("CREATE CONSTANT least = 3")
    query = select(session, "SELECT n + :k + least AS m FROM flights", k=2)
    assert query.columns == ["m"]
    with pytest.raises(BindError):
        session.sql("SELECT :missing FROM flights")
    with pytest.raises(BindError, match="exists already"):
        session.sql("CREATE CONSTANT LEAST = 4")
    session.sql("CREATE OR REPLACE CONSTANT LEAST = 4")
    assert [r["value"] for r in rows(session.sql("SHOW CONSTANTS"))] == ["4"]
    session.sql("DROP CONSTANT least")
    assert session._constants() == {}


def test_several_statements(session: Session) -> None:
    last = session.sql("SET morsel_rows = 7; CREATE VIEW v AS SELECT n FROM flights; DESCRIBE v;")
    assert rows(last)[0]["column"] == "n"
    assert session.settings.morsel_rows == 7


def test_statements_before_an_error_have_run(session: Session) -> None:
    with pytest.raises(BindError) as caught:
        session.sql("SET morsel_rows = 7;\nSELECT nope FROM flights")
    assert session.settings.morsel_rows == 7
    assert (caught.value.line, caught.value.column) == (2, 8)
    assert "SELECT nope FROM flights" in str(caught.value)


def test_no_statement(session: Session) -> None:
    with pytest.raises(ParseError):
        session.sql("  -- nothing\n")
    for run in (session.sql, session.query_set):
        with pytest.raises(ParseError, match="a statement is text, not NoneType"):
            run(None)


def test_every_error_shows_its_place(session: Session) -> None:
    for text, message in (
        ("SELEC 1", "SELECT"),
        ("SELECT orign FROM flights", "origin"),
        ("SELECT * FROM flihgts", "flights"),
        ("SET runtme = fifo", "runtime"),
        ("SELECT /*+ runtme(fifo) */ n FROM flights", "runtime"),
        ("SELECT n FROM flights LATE OUTPUT INTO late", "no window of this query"),
    ):
        with pytest.raises(CqlError) as caught:
            session.sql(text)
        shown = str(caught.value)
        assert caught.value.line == 1, text
        assert "^" in shown, text
        assert message in shown, text


def test_a_failing_run_shows_its_query(session: Session, engine: Engine) -> None:
    query = select(session, "SELECT n FROM flights")
    run = FakeRun()
    run.error = RunError("overflow")
    session._run = lambda *_: run
    with pytest.raises(RunError) as caught:
        query.to_arrow()
    assert caught.value.text == "SELECT n FROM flights"


def test_hints_hold_for_their_statement(session: Session, engine: Engine) -> None:
    rows(select(session, "SELECT /*+ morsel_rows(7), fuse(off) */ n FROM flights"))
    assert (engine.ran[0][1].morsel_rows, engine.ran[0][1].fuse) == (7, False)
    rows(select(session, "SELECT n FROM flights"))
    assert engine.ran[1][1] == Settings()
    with pytest.raises(PlanError, match="first SELECT"):
        session.sql("SELECT n FROM (SELECT /*+ fuse(off) */ n FROM flights) AS x")
    with pytest.raises(PlanError, match="takes one value"):
        session.sql("SELECT /*+ fuse(on, off) */ n FROM flights")
    with pytest.raises(PlanError, match="first SELECT"):
        session.sql("CREATE VIEW v AS SELECT /*+ fuse(off) */ n FROM flights")


def test_a_hint_reaches_the_binder(session: Session) -> None:
    text = "count(*) FROM flights [RANGE 1 hour SLIDE 1 second]"
    session.sql(f"SELECT {text}")
    with pytest.raises(CqlError, match=r"3,?600"):
        session.sql(f"SELECT /*+ max_overlap(10) */ {text}")


def test_the_bad_row_clause_and_setting(session: Session, engine: Engine) -> None:
    for text in (
        "SELECT n FROM flights",
        "SELECT n FROM flights ON BAD ROW KEEP",
        "SET on_bad_row = keep; SELECT n FROM flights",
        "SELECT n FROM flights ON BAD ROW FAIL",
    ):
        rows(select(session, text))
    assert [plan.keep_bad_rows for plan, _ in engine.ran] == [False, True, True, False]


def test_unbounded(session: Session) -> None:
    session.sql("CREATE STREAM ticks USING rate OPTIONS (rows_per_second '10') ORDERED BY ts")
    query = select(session, "SELECT * FROM ticks")
    assert not query.bounded
    with pytest.raises(PlanError, match="does not end"):
        query.to_arrow()


def test_explain(session: Session, engine: Engine) -> None:
    text = "SELECT origin, count(*) AS c FROM flights [RANGE 1 hour SLIDE 1 hour] GROUP BY origin"
    assert "WidAggregate" in str(session.sql(f"EXPLAIN {text}"))
    assert engine.runs == []
    assert "Aggregate" in str(session.sql(f"EXPLAIN LOGICAL {text}"))
    assert str(session.sql(f"EXPLAIN MERMAID {text}")).startswith("flowchart")
    measured = str(session.sql(f"EXPLAIN ANALYZE {text}"))
    assert "rows in" in measured
    assert "0 rows in, 0 out in 2.0 s" in measured
    assert len(engine.runs) == 1
    assert "def kernel" in select(session, text).explain("kernel")
    session.sql("CREATE TABLE t (origin STRING, c BIGINT)")
    assert "flights" in str(session.sql(f"EXPLAIN INSERT INTO t {text}"))
    with pytest.raises(PlanError, match="SELECT or an INSERT"):
        session.sql("EXPLAIN SHOW TABLES")


def test_explain_logical_of_what_cannot_run(session: Session) -> None:
    text = "SELECT sum(n) OVER (PARTITION BY n) AS s FROM flights"
    assert "OVER" in str(session.sql(f"EXPLAIN LOGICAL {text}"))
    with pytest.raises(NotSupportedError):
        session.sql(text)


# --------------------------------------------------------------------------- INSERT


def test_insert_runs_at_once(session: Session, engine: Engine) -> None:
    session.sql("CREATE TABLE t (origin STRING, n BIGINT)")
    engine.batches = (pa.record_batch({"n": [1, 2]}),)
    query = select(session, "INSERT INTO t (n) SELECT n FROM flights")
    assert (query.status, query.row_count) == ("finished", 2)
    assert [q.name for q in session.queries()] == [query.name]
    found = session._catalog.find(("t",))
    assert found is not None
    assert found.statistics.rows == 2


def test_insert_checks_the_target(session: Session) -> None:
    with pytest.raises(BindError, match="nowhere"):
        session.sql("INSERT INTO nowhere SELECT n FROM flights")
    with pytest.raises(CqlError, match="takes no rows"):
        session.sql("INSERT INTO flights SELECT * FROM flights")


def test_create_table_as(session: Session, engine: Engine) -> None:
    engine.batches = (pa.record_batch({"n": [1]}),)
    query = select(session, "CREATE TABLE t AS SELECT n FROM flights")
    assert query.row_count == 1
    with pytest.raises(BindError, match="exists already"):
        session.sql("CREATE TABLE t AS SELECT n FROM flights")
    assert "exists already" in str(session.sql("CREATE TABLE IF NOT EXISTS t (n INT)"))
    with pytest.raises(NotSupportedError, match="OR REPLACE"):
        session.sql("CREATE OR REPLACE TABLE t AS SELECT n FROM flights")
    session.sql("CREATE OR REPLACE TABLE t (other INT)")
    assert rows(session.sql("DESCRIBE t"))[0]["column"] == "other"
    with pytest.raises(CatalogError, match="USING parquet"):
        session.sql("CREATE TABLE u (n INT) USING parquet")


def test_a_failed_create_table_as_leaves_no_table(session: Session, engine: Engine) -> None:
    run = FakeRun()
    run.error = RunError("overflow")
    session._run = lambda *_: run
    with pytest.raises(RunError):
        session.sql("CREATE TABLE t AS SELECT n FROM flights")
    assert "t" not in session._names()


def test_an_unbounded_insert_runs_in_the_background(session: Session, engine: Engine) -> None:
    session.sql("CREATE STREAM ticks USING rate OPTIONS (rows_per_second '10') ORDERED BY ts")
    session.sql("CREATE TABLE t (n BIGINT); SET epoch_ms = 1")
    engine.endless = True
    engine.batches = (pa.record_batch({"n": [1, 2]}),)
    query = select(session, "INSERT INTO t SELECT 1 AS n FROM ticks")
    assert engine.runs[0].waiting.wait(60)
    assert query.is_active
    shown = rows(session.sql("SHOW QUERIES"))
    assert shown[0]["query"] == query.name
    assert shown[0]["status"] == "running"
    assert shown[0]["statement"] == "INSERT INTO t SELECT 1 AS n FROM ticks"
    with pytest.raises(BindError, match="no query q99"):
        session.sql("STOP QUERY q99")
    assert "has stopped" in str(session.sql(f"STOP QUERY {query.name}"))
    assert (query.status, query.row_count) == ("stopped", 2)
    again = str(session.sql(f"STOP QUERY {query.name}"))
    assert again == f"{query.name} is not running: it has been stopped"


def test_closing_stops_everything(engine: Engine) -> None:
    engine.endless = True
    session = Session(False, run=engine)
    session.sql("CREATE STREAM ticks USING rate OPTIONS (rows_per_second '10') ORDERED BY ts")
    session.sql("CREATE TABLE t (n BIGINT)")
    query = select(session, "INSERT INTO t SELECT 1 AS n FROM ticks")
    session.close()
    session.close()
    assert query.status == "stopped"
    with pytest.raises(CqlError, match="closed"):
        session.sql("SELECT 1")


def test_stop_by_number(session: Session, engine: Engine) -> None:
    session.sql("CREATE STREAM ticks USING rate OPTIONS (rows_per_second '10') ORDERED BY ts")
    session.sql("CREATE TABLE t (n BIGINT)")
    engine.endless = True
    query = select(session, "INSERT INTO t SELECT 1 AS n FROM ticks")
    assert session.stop(int(query.name[1:]))
    assert query.status == "stopped"


# --------------------------------------------------------------------------- names


def test_views_and_derived_streams(session: Session) -> None:
    session.sql("CREATE VIEW v (a) AS SELECT n FROM flights")
    session.sql("CREATE STREAM d AS SELECT ts, n FROM flights")
    assert session._names() == ["d", "flights", "v"]
    assert select(session, "SELECT A FROM V").columns == ["a"]
    assert [r["view"] for r in rows(session.sql("SHOW VIEWS"))] == ["v"]
    assert [r["stream"] for r in rows(session.sql("SHOW STREAMS"))] == ["flights", "d"]
    with pytest.raises(BindError, match="view V exists already"):
        session.sql("CREATE VIEW V AS SELECT 1 AS b")
    session.sql("CREATE OR REPLACE VIEW v AS SELECT 1 AS b")
    assert rows(session.sql("DESCRIBE v"))[0]["column"] == "b"
    with pytest.raises(BindError, match="there is no stream v"):
        session.sql("DROP STREAM v")
    session.sql("DROP VIEW v; DROP STREAM d")
    assert session._names() == ["flights"]


def test_drop(session: Session) -> None:
    with pytest.raises(BindError, match="there is no table flihgts") as caught:
        session.sql("DROP TABLE flihgts")
    assert "flights" in str(caught.value)
    assert "there is no" in str(session.sql("DROP TABLE IF EXISTS flihgts"))
    session.sql("DROP STREAM flights")
    assert session._names() == []


def test_a_mistyped_name_starts_no_spark() -> None:
    with Session() as session:
        with pytest.raises(BindError):
            session.sql("SELECT * FROM nowhere")
        assert not session._catalog.spark_started


class SparkStandIn(LocalCatalog):
    """Spark's catalog without a JVM; ``find`` completes a bare name with ``default``."""

    def find(self, name: tuple[str, ...]) -> Relation | None:
        return super().find(name if len(name) > 1 else ("default", *name))


def test_which_names_are_spark(monkeypatch: pytest.MonkeyPatch, engine: Engine) -> None:
    spark = SparkStandIn()
    spark.create_table(("default", "remote"), FLIGHTS)
    started: list[bool] = []

    def start() -> LocalCatalog:
        started.append(True)
        return spark

    monkeypatch.setattr(
        "cql.session.names._starter", lambda given: None if given is False else start
    )
    # The names that Spark knows must not come from this machine's own warehouse.
    monkeypatch.setattr("cql.session.names.is_unknown", lambda name: spark.find(name) is None)
    monkeypatch.setattr("cql.session.names.registered", spark.names)
    monkeypatch.setattr("cql.session.names.SessionCatalog.close", lambda self: None)
    with Session(run=engine) as session:
        session.sql("CREATE TABLE here (n BIGINT); DROP TABLE IF EXISTS gone; SHOW TABLES")
        for unknown in ("SELECT n FROM remote", "INSERT INTO remote SELECT n FROM here"):
            with pytest.raises(BindError):
                session.sql(unknown)
        assert started == []
        session.sql("SELECT n FROM default.remote")
        assert started == [True]
        session.sql("SELECT n FROM remote")
        assert "default.remote" in session._names()
        session.sql("CREATE TABLE late (n BIGINT)")
        assert session._catalog.local.find(("late",)) is not None
    with Session(object(), run=engine) as session:
        session.sql("SELECT n FROM remote")
    with Session(False, run=engine) as session, pytest.raises(BindError):
        session.sql("SELECT n FROM default.remote")


def test_the_last_session_ends_the_local_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[bool] = []
    monkeypatch.setattr("cql.session.names._starter", lambda _: SparkStandIn)
    monkeypatch.setattr("cql.session.names._sharing", weakref.WeakSet())  # no sessions yet
    monkeypatch.setattr("cql.session.names.is_unknown", lambda name: False)
    monkeypatch.setattr("cql.catalog.spark.session.stop", lambda: ended.append(True))
    one, two, idle = Session(), Session(), Session()
    for session in (one, two):
        assert session._catalog.find(("default", "nope")) is None
    idle.close()
    one.close()
    assert ended == []
    two.close()
    assert ended == [True]


def test_show_and_describe(session: Session) -> None:
    (stream,) = rows(session.sql("SHOW STREAMS"))
    assert stream["stream"] == "flights"
    assert "ORDERED BY" in str(stream["watermark"])
    first = rows(session.sql("DESCRIBE flights"))[0]
    assert (first["column"], first["type"]) == ("ts", "timestamp")
    assert "watermark" in str(first["role"])
    assert rows(session.sql("SHOW TABLES")) == []
    assert rows(session.sql("SHOW STREAMS LIKE 'x%'")) == []
    assert len(rows(session.sql("SHOW STREAMS LIKE 'FLIGHT_'"))) == 1
    names = [r["function"] for r in rows(session.sql("SHOW FUNCTIONS LIKE 'coun%'"))]
    assert "count" in names
    with pytest.raises(BindError, match="flihgts"):
        session.sql("DESCRIBE flihgts")


def test_ledgers_of_the_latest_query(session: Session) -> None:
    with pytest.raises(PlanError, match="no query has run"):
        session.sql("SHOW LATE")
    rows(select(session, "SELECT n FROM flights"))
    assert rows(session.sql("SHOW LATE")) == [{"a": 7}]
    for _ in range(2):  # EXPLAIN is no run, so SHOW LATE still reports the last run
        session.sql("EXPLAIN SELECT n FROM flights")
    assert rows(session.sql("SHOW LATE")) == [{"a": 7}]
    assert rows(session.sql("SHOW BAD ROWS")) == [{"reason": "overflow"}]


# --------------------------------------------------------------------------- settings


def test_set_show_reset(session: Session) -> None:
    assert "morsel_rows = 7" in str(session.sql("SET morsel_rows = 7"))
    (row,) = rows(session.sql("SET morsel_rows"))
    assert (row["value"], row["default"]) == ("7", "65536")
    session.sql("SET max_state = '2 GB'")
    assert session.settings.max_state == 2_000_000_000
    session.sql("SET fuse = off; SET runtime = fifo")
    assert (session.settings.fuse, session.settings.runtime) == (False, "fifo")
    session.sql("RESET morsel_rows")
    assert session.settings.morsel_rows == 65_536
    session.sql("RESET")
    assert session.settings == Settings()
    shown = rows(session.sql("SHOW SETTINGS"))
    assert [row["setting"] for row in shown] == list(Settings())
    assert (shown[0]["category"], shown[-1]["category"]) == ("for use", "for experiments")
    (row,) = rows(session.sql("SET worklist"))
    assert row["category"] == "for experiments"
    session.set("workers", 1)
    with pytest.raises(NotSupportedError):
        session.sql("SET runtime = simulation")


def test_connect_checks_settings() -> None:
    with cql.connect(spark=False, runtime="fifo") as session:
        assert session.settings.runtime == "fifo"
    with pytest.raises(SettingError):
        cql.connect(spark=False, runtme="fifo")


def test_notices_come_once(session: Session) -> None:
    text = "SELECT count(*) FROM flights [RANGE 1 second SLIDE 1 hour]"
    with pytest.warns(CqlWarning, match="SLIDE"):
        session.sql(text)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session.sql(text)
    seen: list[str] = []
    session.on_notice = seen.append
    session._noticed.clear()
    session.sql(text)
    assert len(seen) == 1


# --------------------------------------------------------------------------- create_stream


def spec_of(session: Session, name: str = "s") -> object:
    found = session._catalog.find((name,))
    assert found is not None
    assert found.stream is not None
    return found.stream


@pytest.mark.parametrize(
    ("slack", "micros"),
    [("5 seconds", 5_000_000), (datetime.timedelta(minutes=1), 60_000_000), (0, 0), (None, 0)],
)
def test_slack(session: Session, slack: object, micros: int) -> None:
    session.create_stream("s", FLIGHTS, "ts", slack=slack)
    (progress,) = spec_of(session).progress
    assert (progress.column, progress.slack) == ("ts", micros)
    assert ":slack" not in progress.declared


def test_integer_time(session: Session) -> None:
    session.create_stream("s", FLIGHTS, ordered_by="n", unit="second", slack="2 minutes")
    (progress,) = spec_of(session).progress
    assert (progress.unit, progress.slack) == (TimeUnit.SECONDS, 120)
    session.create_stream("u", FLIGHTS, ordered_by="n", slack=10)
    assert spec_of(session, "u").progress[0].slack == 10


def test_watermarks_and_keys(session: Session) -> None:
    session.create_stream(
        "s", FLIGHTS, watermark={"ts": "5 seconds", "n": 3}, update_key=["origin"]
    )
    spec = spec_of(session)
    assert [(p.column, p.slack) for p in spec.progress] == [("ts", 5_000_000), ("n", 3)]
    assert spec.update_key == ("origin",)
    session.create_stream("r", FLIGHTS, watermark="ts", slack="1 s", rate=48_000)
    assert spec_of(session, "r").progress[0].slack == 1_000_000
    assert spec_of(session, "r").rate_hz == 48_000


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"ordered_by": "tss"}, "ts"),
        ({"ordered_by": "origin"}, "cannot order"),
        ({"ordered_by": "ts", "unit": "fortnight"}, "fortnight"),
        ({"ordered_by": "ts", "unit": "seconds"}, "integers"),
        ({"ordered_by": "ts", "slack": "a while"}, "length of time"),
        ({"slack": "5 s"}, "slack belongs"),
        ({"unit": "seconds"}, "unit belongs"),
        ({"update_key": "k"}, "no column k"),
        ({"ordered_by": 'ts" UPDATE KEY (n) --'}, "no column"),
        ({"ordered_by": 5}, "5 does not name columns"),
        ({"ordered_by": [5]}, r"\[5\] does not name columns"),
        ({"ordered_by": "ts", "unit": 5}, "'5' is not a unit"),
        ({"ordered_by": "ts", "slack": -1}, "WITHIN slack has no unit"),
        ({"ordered_by": "n", "slack": float("nan")}, "^slack is not a length of time"),
        ({"ordered_by": "ts", "slack": [1]}, "^slack: a value of type list"),
        ({"watermark": 5}, "watermark=5 names no column"),
        ({"watermark": {5: 1}}, "does not name columns"),
        ({"ordered_by": "ts", "idle_after": 5}, "idle_after has no unit"),
        ({"ordered_by": "ts", "heartbeat": "1 second"}, "heartbeat='1 second' is no pair"),
        ({"ordered_by": "ts", "punctuated_by": 5}, "punctuated_by=5 is no pair"),
        ({"punctuated": {"ts": 5}}, "5 does not name a column"),
    ],
)
def test_clauses_that_do_not_fit(session: Session, given: dict[str, str], message: str) -> None:
    with pytest.raises(BindError, match=message) as caught:
        session.create_stream("s", FLIGHTS, **given)
    assert caught.value.position is None
    assert "s" not in session._names()


@pytest.mark.parametrize("name", [None, 5, "", "a..b"])
def test_a_name_that_is_none(session: Session, name: object) -> None:
    for act in (lambda: session.create_stream(name, FLIGHTS), lambda: session._schema_of(name)):
        with pytest.raises(BindError, match="name"):
            act()
    with pytest.raises(BindError, match="there is no function"):
        session.drop_function(name)
    with pytest.raises(SettingError, match="setting"):
        session.set(name, 1)


def test_kinds_of_data(session: Session, tmp_path: Path) -> None:
    import pandas as pd
    import polars as pl

    path = tmp_path / "rows.csv"
    path.write_text("a,b\n1,x\n")
    for number, data in enumerate(
        (
            FLIGHTS,
            FLIGHTS.to_batches()[0],
            FLIGHTS.to_reader(),
            pl.DataFrame({"a": [1]}),
            pd.DataFrame({"a": [1]}),
            [{"a": 1}],
            ({"a": i} for i in range(3)),
            lambda: iter([{"a": 1}]),
            path,
            str(path),
        )
    ):
        session.create_stream(f"s{number}", data)
        found = session._catalog.find((f"s{number}",))
        assert found is not None
        assert found.schema[0].name in ("a", "ts")


def test_an_iterator_keeps_its_first_item(session: Session) -> None:
    session.create_stream("s", ({"a": i} for i in range(3)), ordered_by="a")
    found = session._catalog.find(("s",))
    assert found is not None
    reader = found.source().open(["a"])
    block = reader.next()
    assert block is not None
    assert block.batch.column(0).to_pylist() == [0, 1, 2]
    reader.close()


def test_over_a_table(session: Session) -> None:
    session.register_table("t", FLIGHTS)
    session.create_stream("s", "t", ordered_by="ts", slack="1 s")
    assert spec_of(session).progress[0].slack == 1_000_000
    with pytest.raises(BindError, match="no table nowhere"):
        session.create_stream("u", "nowhere")
    with pytest.raises(CatalogError, match="only a table of Spark takes options"):
        session.create_stream("u", "t", bounded=False)


def test_names_are_checked(session: Session) -> None:
    for bad in ("", "a..b", "a.b.c.d"):
        with pytest.raises(BindError):
            session.create_stream(bad, FLIGHTS)
    with pytest.raises(CatalogError, match="exists already"):
        session.create_stream("flights", FLIGHTS)
    session.create_stream("flights", FLIGHTS, replace=True)


def test_pyspark_spellings(session: Session) -> None:
    session.createStream("s", FLIGHTS)
    session.registerTable("t", FLIGHTS)
    assert session._names() == ["flights", "s", "t"]


# --------------------------------------------------------------------------- the real engine


def test_on_the_real_engine() -> None:
    with cql.connect(spark=False) as session:
        session.create_stream("flights", FLIGHTS, ordered_by="ts")
        query = select(
            session,
            "SELECT origin, sum(n) AS n FROM flights [RANGE 1 hour SLIDE 1 hour] GROUP BY 1",
        )
        found = sorted(rows(query), key=lambda r: str(r["origin"]))
        assert found == [{"origin": "JFK", "n": 1}, {"origin": "LGA", "n": 2}]
        assert query.progress().rows_in == 2
        assert query.late().num_rows > 0
        session.sql("CREATE TABLE t (origin STRING, n BIGINT)")
        assert select(session, "INSERT INTO t SELECT origin, n FROM flights").row_count == 2
        assert len(rows(session.sql("SELECT * FROM t"))) == 2
        assert "def " in select(session, "SELECT n + 1 AS m FROM t").explain("kernel")
        session.sql("CREATE STREAM r USING rate OPTIONS (rows_per_second '1000') ORDERED BY ts")
        live = select(session, "SELECT ts FROM r")
        assert next(iter(live)).num_rows > 0
        session.sql("CREATE TABLE u (ts TIMESTAMP)")
        running = select(session, "INSERT INTO u SELECT ts FROM r")
        assert running.stop()
        assert running.status == "stopped"


def test_a_table_that_a_query_writes_into_stays() -> None:
    """A table cannot be dropped while a query writes into it: the query's rows would be lost."""
    gate = threading.Event()

    def rows() -> Iterator[dict[str, int]]:
        yield {"t": 1}
        gate.wait(60)

    with Session(False) as session:
        session.create_stream("s", rows(), ordered_by="t", bounded=False)
        session.sql("CREATE TABLE kept (t BIGINT)")
        query = session.sql("INSERT INTO kept SELECT t FROM s")
        for text in ("DROP TABLE kept", "CREATE OR REPLACE TABLE Kept (x STRING)"):
            with pytest.raises(RunError, match=f"query {query.name} writes into") as caught:
                session.sql(text)
            assert caught.value.column is not None
        gate.set()
        query.stop()
        session.sql("DROP TABLE kept")


def test_rows_that_a_closed_session_does_not_give_are_missed() -> None:
    session = Session(False)
    session.create_stream("s", pa.table({"t": range(200_000)}), ordered_by="t")
    batches = session.sql("SELECT t FROM s").batches()
    assert next(batches).num_rows
    session.close()
    with pytest.raises(RunError, match="closed before all rows had been read"):
        list(batches)
