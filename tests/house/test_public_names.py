"""The names that ``dir`` shows of users' objects: a new name must be added here on purpose."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

import cql

RUN = "await_termination exception is_active is_insert is_paused pause resume start status stop"
NAMES = {
    "cql": "CqlError Punctuation Query Session __version__ aggregate connect function operator",
    "session": "aggregate close create_stream drop_function end function on_notice operator"
    " punctuate push queries query_set register_function register_functions register_in_spark"
    " register_table set settings sql stop together warm_up",
    "query": f"{RUN} bad_rows batches bounded columns explain insert late metrics name plot"
    " progress read row_count schema show summary text to_arrow to_pandas to_polars"
    " to_spark workers write_to",
    "statement set": "await_termination batches bounded explain insert is_active is_insert name"
    " queries show start stop summary to_arrow",
    "result": "columns message rows show text to_arrow to_pandas",
    "schema": "fields find names padded part to_arrow",
    "error": "column hint line message position text with_text",
    "punctuation": "column value",
}


@pytest.fixture(scope="module")
def held() -> Iterator[dict[str, object]]:
    with cql.connect(spark=False) as session:
        session.register_table("t", {"a": [1, 2]})
        query = session.sql("SELECT a FROM t")
        yield {
            "cql": cql,
            "session": session,
            "query": query,
            "statement set": session.query_set("SELECT a FROM t; SELECT a + 1 AS b FROM t"),
            "result": session.sql("SHOW TABLES"),
            "schema": query.schema,
            "error": cql.CqlError("no"),
            "punctuation": cql.Punctuation("ts", 1),
        }


@pytest.mark.parametrize("what", NAMES)
def test_public_names(held: dict[str, object], what: str) -> None:
    """The names listed here, plus PySpark's spelling of each for objects with PySpark methods."""
    shown = set(dir(held[what])) - set(dir(Exception))
    public = {name for name in shown if what == "cql" or not name.startswith("_")}
    names = set(NAMES[what].split())
    if what in ("session", "query", "statement set", "result"):
        names |= {_pyspark(name) for name in names} - {"onNotice"}  # users assign this one
    assert public == names


def _pyspark(name: str) -> str:
    return re.sub(r"_([a-z])", lambda m: m[1].upper(), name)
