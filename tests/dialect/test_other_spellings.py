"""Spellings that users of other engines write first."""

from __future__ import annotations

import pytest

import cql
from cql.errors import did_you_mean


@pytest.fixture
def session() -> cql.Session:
    made = cql.connect(spark=False)
    made.register_table("t", {"a": [1, 2, 3]})
    return made


@pytest.mark.parametrize("words", ["TEMP", "TEMPORARY", "temp"])
def test_views_of_other_kinds_are_views(session: cql.Session, words: str) -> None:
    session.sql(f"CREATE {words} VIEW v AS SELECT a FROM t WHERE a > 1")
    session.sql(f"CREATE OR REPLACE {words} VIEW v AS SELECT a FROM t WHERE a > 2")
    assert session.sql("SELECT a FROM v").to_arrow().to_pylist() == [{"a": 3}]
    with pytest.raises(cql.CqlError, match="v"):
        session.sql(f"CREATE {words} VIEW v AS SELECT a FROM t")
    session.sql(f"CREATE {words} VIEW IF NOT EXISTS v AS SELECT a FROM t")
    assert session.sql("SELECT a FROM v").to_arrow().to_pylist() == [{"a": 3}]
    session.sql("DROP VIEW v")
    with pytest.raises(cql.CqlError, match="no stream or table v"):
        session.sql("SELECT a FROM v")


def test_names_are_never_suggested_for_themselves() -> None:
    assert did_you_mean("vv", ["vv"]) is None
    assert did_you_mean("1", ["1", "12345"], what="columns") == "columns: 12345"


def test_a_stream_over_a_view_is_told_how(session: cql.Session) -> None:
    session.sql("CREATE VIEW vv AS SELECT a FROM t")
    with pytest.raises(cql.CqlError) as caught:
        session.sql("CREATE STREAM s FROM TABLE VV ORDERED BY a")
    assert "is a view" in caught.value.message
    assert "AS SELECT * FROM" in (caught.value.hint or "")


def test_following_the_hint_of_an_ambiguous_window_end(session: cql.Session) -> None:
    session.create_stream("e", {"ts": [1, 5, 50], "k": [1, 1, 1]}, ordered_by="ts", unit="seconds")
    inner = "(SELECT count(*) AS n, window_end FROM e [RANGE 10 SECONDS, SLIDE 10 SECONDS])"
    outer = "[RANGE 1 MINUTE, SLIDE 1 MINUTE]"
    with pytest.raises(cql.CqlError, match="window_end is ambiguous") as caught:
        session.sql(f"SELECT sum(n) AS n, window_end FROM {inner} {outer}")
    hint = caught.value.hint or ""
    assert "x.window_end, or window.end" in hint
    session.sql(f"SELECT sum(n) AS n, max(x.window_end) AS w FROM {inner} AS x {outer}")
    got = session.sql(f"SELECT sum(n) AS n, window.end AS w FROM {inner} {outer}").to_arrow()
    assert got.to_pylist() == [{"n": 3, "w": 60}]
