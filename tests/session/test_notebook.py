"""A notebook shows a query's columns and first rows, escaped, and never waits long."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import cql
from cql.session.session import Session
from cql.show import notebook


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    monkeypatch.setattr(notebook, "PATIENCE", 500.0)  # a slow machine must not fail the tests
    with cql.connect(spark=False) as made:
        rows = pa.table({"ts": range(50), "t": ["<script>alert(1)</script>", None] * 25})
        made.create_stream("s", rows, ordered_by="ts", unit="seconds")
        yield made


def html(shown: Any) -> str:
    text = shown._repr_html_()
    assert isinstance(text, str)
    return text


def test_columns_and_the_first_rows_escaped(session: Session) -> None:
    query: Any = session.sql('SELECT ts, t AS "a<b" FROM s')
    text = html(query)
    assert "<th>ts<br><small>bigint</small></th><th>a&lt;b<br><small>string</small></th>" in text
    assert "<td>0</td><td>&lt;script&gt;alert(1)&lt;/script&gt;</td>" in text
    assert "<td><em>NULL</em></td>" in text
    assert "<script>" not in text
    assert text.count("<tr>") == 1 + notebook.ROWS
    assert "the first 20 rows, and there are more" in text
    assert (query.status, query._has_run) == ("ready", False)  # a preview is no run
    few = html(session.sql("SELECT ts FROM s WHERE ts < 3"))
    assert few.count("<tr>") == 4
    assert "3 rows" in few
    assert "0 rows" in html(session.sql("SELECT ts, t FROM s WHERE ts > 90"))


def test_a_preview_disturbs_no_run(session: Session) -> None:
    query: Any = session.sql("SELECT ts, t FROM s")
    batches = iter(query)
    next(batches)
    assert "q1, running: the first 20 rows" in html(query)
    assert query.status == "running"
    batches.close()


def test_what_is_not_run_for_it(session: Session) -> None:
    """The preview runs no endless query, no INSERT, no query that writes late rows, and no query
    that reads a user's code."""
    calls: list[int] = []

    def rows() -> Iterator[dict[str, int]]:
        calls.append(1)
        return ({"ts": k} for k in itertools.count())

    declared: dict[str, Any] = {"ordered_by": "ts", "unit": "seconds"}
    session.create_stream("e", rows, bounded=False, **declared)
    session.create_stream("i", iter([{"ts": 1}, {"ts": 2}]), **declared)
    before = len(calls)
    endless = html(session.sql("SELECT ts FROM e"))
    assert "<th>ts<br><small>bigint</small></th>" in endless
    assert "does not end by itself" in endless
    assert len(calls) == before
    once: Any = session.sql("SELECT ts FROM i")
    assert "show() and to_arrow() give its rows" in html(once)
    assert once.to_arrow().num_rows == 2  # the preview took no row from the iterator
    session.sql("CREATE TABLE t (ts BIGINT)")
    insert: Any = next(session._statements("INSERT INTO t SELECT ts FROM s"))
    assert "an INSERT into t" in html(insert)
    assert insert.status == "ready"


def test_it_gives_up_what_takes_long(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notebook, "PATIENCE", 0.0)
    monkeypatch.setattr(notebook.threading.Thread, "start", lambda thread: None)
    monkeypatch.setattr(notebook.threading.Thread, "join", lambda thread, timeout: None)
    text = html(session.sql("SELECT ts FROM s"))
    assert "no row came within 0 seconds: show() and to_arrow() wait" in text


def test_an_error_of_the_query_is_shown(session: Session) -> None:
    text = html(session.sql("SELECT 1 % (ts - ts) AS z FROM s"))
    assert "<pre>division by zero" in text
    assert "^^^" in text


def test_results(session: Session) -> None:
    many = html(session.sql("SHOW FUNCTIONS"))
    assert many.count("<tr>") == 1 + notebook.RESULT_ROWS
    assert "(the first 100 are shown)" in many
    assert "<pre>" in html(session.sql("EXPLAIN SELECT ts FROM s"))
    assert html(session.sql("SET morsel_rows = 7")) == "<pre>morsel_rows = 7</pre>"
