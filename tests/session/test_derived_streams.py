"""Statements about streams that are queries with an update queue: names, plans, refusals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import cql
from cql.errors import BindError, NotSupportedError, PlanError
from cql.planner.nodes.catalog import Queue
from cql.session.session import Session
from cql.spark.job.job import Job
from tests.support.run_checkpoints import plan_of, run
from tests.support.updates.derived import (
    MEANS,
    SECOND,
    SYMBOLS,
    TRADES,
    behind,
    declared,
    loud,
    means,
    newest,
    rows_of,
    streams_at_work,
    told_of,
    trades,
)


@pytest.fixture
def session() -> Iterator[Session]:
    with cql.connect(spark=False) as made:
        made.sql(TRADES)
        yield made
    assert streams_at_work() == []


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        ("CREATE STREAM x ^UPDATE KEY (symbol) AS SELECT symbol, count(*) AS n"
         " FROM trades [RANGE UNBOUNDED] GROUP BY symbol",
         "UPDATE KEY over a relation, whose rows also leave, is not supported", "ISTREAM"),
        ("CREATE STREAM x ^UPDATE KEY (symbol) AS SELECT symbol, price FROM trades EMIT CHANGES",
         "UPDATE KEY over EMIT CHANGES is not supported", "ISTREAM"),
        ("CREATE STREAM x ^QUEUE FIFO AS SELECT count(*) AS n FROM trades [RANGE UNBOUNDED]",
         "QUEUE over a relation", "ISTREAM"),
        ("CREATE STREAM x UPDATE KEY (^k) AS SELECT symbol FROM trades",
         "there is no column k", "columns: symbol"),
        ("CREATE STREAM x ^UPDATE KEY AS SELECT symbol FROM trades", "names no column", "UPDATE"),
        ("CREATE STREAM x ^WINDOWS LAZY AS SELECT symbol FROM trades",
         "WINDOWS is for an update stream", "add UPDATE KEY"),
        ("CREATE STREAM x QUEUE APPEND ^STALENESS UNDER 1 s AS SELECT symbol FROM trades",
         "STALENESS UNDER is for an update stream", "add UPDATE KEY"),
        ("CREATE STREAM x UPDATE KEY (symbol) ^RATE 5 HZ AS SELECT symbol FROM trades",
         "RATE on a stream that is a query", "declare it on the query's inputs"),
        ("CREATE OR REPLACE STREAM means UPDATE KEY (symbol) AS SELECT * FROM ^means",
         "means refers to itself", None),
        ("INSERT INTO ^means SELECT 'a', 1, 1, 1", "means is a query", "CREATE TABLE"),
        ("SELECT * FROM ^means [RANGE 5] AS a JOIN means [RANGE 5] AS b ON a.symbol = b.symbol",
         "JOIN over the update stream means", "WHERE"),
        ("SELECT sum(total) AS t FROM means [RANGE 8 SLIDE 4^] GROUP BY n",
         "grouped by its update key", "GROUP BY symbol"),
    ],
)  # fmt: skip
def test_what_is_refused(text: str, said: str, hint: str | None, session: Session) -> None:
    declared(session)
    with pytest.raises((BindError, NotSupportedError, PlanError), match=said) as refused:
        session.sql(text.replace("^", ""))
    assert refused.value.position is not None
    if "^]" not in text:
        assert refused.value.column == text.index("^") + 1
    if hint is not None:
        assert hint in (refused.value.hint or "")


def test_a_view_below_that_becomes_a_relation(session: Session) -> None:
    session.sql("CREATE VIEW below AS SELECT symbol, price FROM trades")
    session.sql("CREATE STREAM above UPDATE KEY (symbol) AS SELECT symbol, price FROM below")
    session.sql("CREATE OR REPLACE VIEW below AS SELECT symbol, max(price) AS price"
                " FROM trades [RANGE UNBOUNDED] GROUP BY symbol")  # fmt: skip
    with pytest.raises(NotSupportedError, match="UPDATE KEY over a relation") as refused:
        session.sql("SELECT * FROM above")
    assert refused.value.column == 15
    session.sql("CREATE OR REPLACE VIEW below AS SELECT price AS symbol, ts AS price FROM trades")
    assert session.sql("SELECT * FROM above").columns == ["symbol", "price"]
    session.sql("CREATE OR REPLACE STREAM above UPDATE KEY (symbol) AS SELECT * FROM below")
    session.sql("CREATE OR REPLACE VIEW below AS SELECT price FROM trades")
    with pytest.raises(BindError, match=r"stream above has no column symbol \(any more\)"):
        session.sql("SELECT * FROM above")


def test_names_of_derived_streams(session: Session) -> None:
    assert str(session.sql(f"CREATE STREAM means UPDATE KEY (symbol) AS {MEANS}")) == (
        "stream means created"
    )
    with pytest.raises(BindError, match="stream means exists already"):
        session.sql(f"CREATE STREAM means UPDATE KEY (symbol) AS {MEANS}")
    session.sql("CREATE STREAM IF NOT EXISTS means UPDATE KEY (n) AS SELECT 1 AS n")
    roles = {row[0]: row[3] for row in session.sql("DESCRIBE means").rows}
    assert roles == {"symbol": "update key", "total": "", "n": "", "window_end": ""}
    assert "means" in [row[0] for row in session.sql("SHOW STREAMS").rows]
    session.sql("CREATE VIEW v AS SELECT symbol, total FROM Means WHERE total > 0")
    rows = trades(100)
    found, _ = behind(session, "SELECT * FROM v", rows)
    exact = [(symbol, total, end) for symbol, total, _, end in means(rows)]
    assert {s for s, _ in found} == {*SYMBOLS, "first"}
    assert dict(r for r in found if r[0] != "first") == {
        s: total for s, total, _ in newest(exact).values() if total > 0
    }
    session.sql("DROP STREAM means")
    with pytest.raises(BindError, match="there is no stream or table means"):
        session.sql("SELECT * FROM means")


def test_append_keeps_the_stream_as_it_was(session: Session) -> None:
    """QUEUE APPEND leaves no row out, so that the stream is expanded as without a clause."""
    declared(session, "QUEUE APPEND")
    assert "runs by itself" not in str(session.sql(f"EXPLAIN {SECOND}"))
    declared(session)
    session.sql("SET queue = 'append'")
    rows = trades(100)
    found, asked = behind(session, "SELECT symbol, total, n, window_end FROM means", rows)
    assert len(found) == len(means(rows)) + 6
    assert told_of(asked, "means")["superseded"] == 0


def test_a_query_keeps_the_stream_that_it_was_made_with(session: Session) -> None:
    declared(session)
    asked: Any = session.sql(SECOND)
    session.sql("CREATE OR REPLACE STREAM means UPDATE KEY (n) AS SELECT 1 AS n")
    session.push("trades", trades(30))
    session.end("trades")
    assert newest(rows_of(asked)) == newest(loud(means(trades(30))))


def test_an_insert_from_a_derived_stream(session: Session) -> None:
    declared(session)
    session.sql("CREATE TABLE kept (symbol STRING NOT NULL, total BIGINT, PRIMARY KEY (symbol))")
    rows = [row for row in trades(200) if row[1] is not None]
    asked: Any = session.sql("INSERT INTO kept SELECT symbol, total FROM means")
    session.push("trades", rows)
    session.end("trades")
    asked.await_termination()
    kept = session.sql("SELECT * FROM kept")
    assert isinstance(kept, cql.Query)
    exact = {symbol: row[1] for symbol, row in newest(means(rows)).items()}
    assert dict(rows_of(kept)) == exact


def test_parameters_and_constants_of_the_reader(session: Session) -> None:
    session.sql("CREATE CONSTANT least = 50")
    high = "SELECT symbol, price, ts FROM trades WHERE price > least + :more"
    session.sql(f"CREATE STREAM high UPDATE KEY (symbol) AS {high}", more=0)
    session.push("trades", trades(100))
    session.end("trades")
    asked = session.sql("SELECT price FROM high", more=20)
    assert min(row[0] for row in rows_of(asked)) > 70


def test_two_readers_have_a_queue_each(session: Session) -> None:
    declared(session)
    both = session.query_set("SELECT symbol, total FROM means; SELECT symbol, n FROM means")
    rows = trades(100)
    session.push("trades", rows)
    session.end("trades")
    found = [(query.name, row) for query, batch in both.batches() for row in rows_of([batch])]
    exact = newest(means(rows))
    for query, column in zip(both.queries, (1, 2), strict=True):
        last = dict(row for name, row in found if name == query.name)
        assert last == {symbol: row[column] for symbol, row in exact.items()}
    for query in both.queries:
        assert told_of(query, "means.trades")["rows_in"] == len(rows)
        assert told_of(query, "means")["rows_in"] == len(means(rows))
    assert str(both.explain()).count("its query runs by itself") == 2
    assert str(both.explain("mermaid")).count("Source trades") == 2


def test_staleness_is_shown(session: Session) -> None:
    declared(session, "UPDATE KEY (symbol) STALENESS UNDER 1 hour")
    rows = trades(100)
    _, asked = behind(session, SECOND, rows)
    told = told_of(asked, "means")
    assert (told["goal"], told["superseded"]) == (3600.0, 0)
    assert [row[1] for row in session.sql("SHOW STALENESS").rows] == ["means"]
    assert "means.aggregate#0" in str(asked._explain_run())


def test_the_plan(session: Session) -> None:
    declared(session)
    plan = str(session.sql(f"EXPLAIN {SECOND}"))
    source, query = plan.index("Source means"), plan.index("WidAggregate")
    assert source < query < plan.index("Source trades")
    assert "its query runs by itself and punctuates window_end; queue in-place by symbol" in plan
    assert "the runtime of its query: depth_first (" in plan
    logical = str(session.sql(f"EXPLAIN LOGICAL {SECOND}"))
    assert logical.index("Scan means") < logical.index("Aggregate") < logical.index("Scan trades")
    assert "trades" in str(session.sql(f"EXPLAIN MERMAID {SECOND}"))
    session.end("trades")
    kernels = str(session.sql(f"EXPLAIN KERNEL {SECOND}"))
    assert "# means.aggregate#0" in kernels


def test_settings_and_hints_hold_for_both_stages(session: Session) -> None:
    declared(session)
    hinted = f"EXPLAIN SELECT /*+ window_operator(panes) */ {SECOND.removeprefix('SELECT ')}"
    assert "not applied" not in str(session.sql(hinted))
    session.sql("SET window_operator = 'two_stacks'")
    plan = str(session.sql(f"EXPLAIN {SECOND}"))
    assert "TwoStacksAggregate" in plan
    assert "not applied here: window_operator" not in plan


def test_spark_is_refused(session: Session) -> None:
    session.push("trades", trades(3))
    session.end("trades")
    declared(session)
    session.sql("SET runtime = 'spark'")
    with pytest.raises(NotSupportedError) as refused:
        session.sql(SECOND)
    assert refused.value.column == SECOND.index("means") + 1


def test_a_job_has_the_clauses_of_the_queue(session: Session) -> None:
    session.create_stream("few", pa.table({"k": [1], "ts": [1]}), "ts")
    clauses = "UPDATE KEY (k) QUEUE FIFO STALENESS UNDER 1 s WINDOWS LAZY"
    session.sql(f"CREATE STREAM queued {clauses} AS SELECT k, ts FROM few")
    asked: Any = session.sql("SELECT k FROM queued")
    job = Job.from_json(asked._prepared.job().to_json())
    (spec,) = (named.updates for named in job.streams.values())
    assert spec == session._definitions.streams["queued",].updates
    assert spec is not None
    assert (spec.update_key, spec.queue, spec.lazy_windows) == (("k",), Queue.FIFO, True)


def test_a_checkpoint_is_refused(session: Session) -> None:
    declared(session)
    session.push("trades", trades(30))
    session.end("trades")
    with pytest.raises(NotSupportedError, match="reads the stream means") as refused:
        run(plan_of(session, SECOND), session.settings, stop=0)
    assert refused.value.column == SECOND.index("means") + 1
    assert streams_at_work() == []


def test_a_notice_of_the_first_stage(session: Session) -> None:
    session.sql("CREATE STREAM small (ts BIGINT, k INT) USING push OPTIONS (buffer '10')"
                " ORDERED BY ts")  # fmt: skip
    for start in range(0, 40, 10):
        session.push("small", [(t, t % 3) for t in range(start, start + 10)])
    session.end("small")
    told: list[str] = []
    session.on_notice = told.append
    session.sql("CREATE STREAM cut UPDATE KEY (k) AS SELECT k, ts FROM small")
    assert len(rows_of(session.sql("SELECT k FROM cut"))) == 10
    assert any("has forgotten its first 30 rows" in text for text in told)
