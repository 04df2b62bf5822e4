"""A query is an Arrow C stream, which polars, pandas, DuckDB and pyarrow read directly."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import cql
from cql.query.query import Query
from cql.session.session import Session

ROWS = pa.table({"ts": [1, 2, 3], "v": [1, 0, 3], "t": ["a", None, "b"]})


def _by_duckdb(query: Any) -> list[Any]:
    rows = duckdb.connect().execute("SELECT * FROM query")
    names = [column[0] for column in rows.description or ()]
    return [dict(zip(names, row, strict=True)) for row in rows.fetchall()]


READERS: dict[str, Callable[[Any], list[Any]]] = {
    "polars": lambda query: pl.DataFrame(query).to_dicts(),
    "pyarrow": lambda query: pa.table(query).to_pylist(),
    "reader": lambda query: pa.RecordBatchReader.from_stream(query).read_all().to_pylist(),
    "pandas": lambda query: pa.table(query).to_pandas().to_dict("records"),
    "duckdb": _by_duckdb,
}


@pytest.fixture
def session() -> Iterator[Session]:
    with cql.connect(spark=False) as made:
        made.create_stream("s", ROWS, ordered_by="ts", unit="seconds")
        made.create_stream(
            "e",
            lambda: ({"ts": k} for k in itertools.count()),
            ordered_by="ts",
            unit="seconds",
            bounded=False,
        )
        yield made


def query_of(session: Session, text: str) -> Query:
    query = session.sql(text)
    assert isinstance(query, Query)
    return query


@pytest.mark.parametrize("reader", READERS)
def test_every_reader_takes_a_query(session: Session, reader: str) -> None:
    query = query_of(session, "SELECT ts, v FROM s")
    for _ in range(2):  # each reading is a new run
        assert READERS[reader](query) == ROWS.select(["ts", "v"]).to_pylist()
        assert query.status == "finished"
    assert query.row_count == 3


@pytest.mark.parametrize("reader", READERS)
def test_an_error_of_the_query_comes_with_its_place_and_hint_alone(
    session: Session, reader: str
) -> None:
    query = query_of(session, "SELECT 1 % v AS z FROM s")
    with pytest.raises(Exception, match="division by zero") as caught:
        READERS[reader](query)
    text = str(caught.value)
    assert str(query.exception) in text
    assert "  SELECT 1 % v AS z FROM s\n         ^^^^^\nhint: " in text
    assert "Traceback" not in text
    assert query.status == "failed"


def test_relations_inserts_and_results(session: Session) -> None:
    """The same as ``to_arrow``: a relation as of the end of its input, the row count of an INSERT,
    the lines of SHOW."""
    text = "SELECT v > 0 AS some, count(*) AS n FROM s [RANGE 10 SECONDS] GROUP BY v > 0"
    relation = query_of(session, text)
    assert pa.table(relation).equals(relation.to_arrow())
    assert sorted(pl.DataFrame(relation)["n"].to_list()) == [1, 2]
    into = query_of(session, "CREATE TABLE made AS SELECT v FROM s")
    assert pa.table(into).to_pylist() == [{"rows": 3}]
    shown: Any = session.sql("SHOW STREAMS")
    assert pl.DataFrame(shown)["stream"].to_list() == ["e", "s"]
    nothing = query_of(session, "SELECT ts FROM s WHERE ts > 9")
    assert pa.table(nothing).schema == nothing.to_arrow().schema


def test_other_types_are_asked_for(session: Session) -> None:
    query = query_of(session, "SELECT ts, t FROM s")
    asked = pa.schema({"ts": pa.float64(), "t": pa.large_string()})
    read = pa.RecordBatchReader.from_stream(query, asked).read_all()
    assert read.schema == asked
    assert read["ts"].to_pylist() == [1.0, 2.0, 3.0]
    with pytest.raises(ValueError, match="names are not matching"):
        pa.RecordBatchReader.from_stream(query, pa.schema({"u": pa.int64(), "t": pa.string()}))


def test_nothing_runs_before_a_batch_is_asked_for(session: Session) -> None:
    query = query_of(session, "SELECT ts FROM e")
    stream = pa.RecordBatchReader.from_stream(query)
    assert (stream.schema.names, query.status) == (["ts"], "ready")
    del stream
    assert query.status == "ready"


@pytest.mark.parametrize("leave", ["close", "del"])
def test_an_endless_query_ends_with_its_stream(session: Session, leave: str) -> None:
    query = query_of(session, "SELECT ts FROM e")
    stream = pa.RecordBatchReader.from_stream(query)
    first = stream.read_next_batch()
    assert first["ts"][0].as_py() == 0
    assert query.status == "running"
    if leave == "close":
        stream.close()
    else:
        del stream
    assert query.status == "stopped"


def test_an_endless_query_is_read_until_it_is_stopped(session: Session) -> None:
    query = query_of(session, "SELECT ts FROM e")
    stream = pa.RecordBatchReader.from_stream(query)
    rows = stream.read_next_batch().num_rows
    query.stop()
    rows += stream.read_all().num_rows
    assert (rows, query.status) == (query.row_count, "stopped")


def test_what_ends_it_from_outside(session: Session) -> None:
    """A second run of the query, and the end of its session, raise our errors in the reader."""
    query = query_of(session, "SELECT ts FROM e")
    stream = pa.RecordBatchReader.from_stream(query)
    stream.read_next_batch()
    with pytest.raises(pa.ArrowInvalid, match=f"query {query.name} is running already\\nhint: "):
        pa.table(query)
    session.close()
    with pytest.raises(pa.ArrowInvalid, match="session was closed before all rows had been read"):
        stream.read_all()
    with pytest.raises(pa.ArrowInvalid, match="session was closed before all rows had been read"):
        stream.read_next_batch()  # a failed stream keeps failing


def test_an_endless_insert_has_no_rows_to_give(session: Session) -> None:
    session.sql("CREATE TABLE rows_of_e (ts BIGINT)")
    query = next(session._statements("INSERT INTO rows_of_e SELECT ts FROM e"))
    with pytest.raises(cql.CqlError, match="does not end by itself"):
        pa.table(query)


def test_pandas_and_polars_by_the_methods(session: Session) -> None:
    query = query_of(session, "SELECT ts, v FROM s")
    assert isinstance(query.to_pandas(), pd.DataFrame)
    assert pl.DataFrame(query).equals(query.to_polars())
    with pytest.raises(cql.CqlError, match="no array") as caught:
        pd.DataFrame(query)
    assert "to_pandas()" in str(caught.value)


def test_ctrl_c_ends_the_query_and_its_stream(session: Session) -> None:
    """C passes no Python exception on: the reader raises an error of its own."""

    def rows() -> Iterator[dict[str, int]]:
        yield {"ts": 1}
        raise KeyboardInterrupt

    session.create_stream("k", rows, ordered_by="ts", unit="seconds")
    query = query_of(session, "SELECT ts FROM k")
    with pytest.raises(pa.ArrowInvalid, match="interrupted"):
        pa.table(query)
    assert query.status == "stopped"
