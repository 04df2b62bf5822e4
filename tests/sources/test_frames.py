"""Frames and Python rows: what create_stream refuses or leaves out, and the rows that come back."""

from __future__ import annotations

import datetime as dt
import os
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
import pytest

import cql
from cql.errors import CqlError

DATA = pa.table({"ts": [1, 2], "v": [3, 4], "t": pa.array(["a", "b"]), "u": pa.array([[1], [2]])})


class OnlyArray:
    """Exports its rows through Arrow's C array interface alone."""

    def __init__(self, rows: Any) -> None:
        self._rows = rows

    def __arrow_c_array__(self, requested_schema: object | None = None) -> object:
        return self._rows.__arrow_c_array__(requested_schema)


class OnlyStream:
    """Exports its rows through Arrow's C stream interface, once."""

    def __init__(self, rows: pa.Table) -> None:
        self._reader = rows.to_reader()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._reader.__arrow_c_stream__(requested_schema)


#: Every kind of frame, each made from an Arrow table.
FRAMES: dict[str, Callable[[pa.Table], Any]] = {
    "arrow": lambda table: table,
    "batches": lambda table: table.to_batches(),
    "reader": lambda table: table.to_reader(),
    "pandas": lambda table: table.to_pandas(),
    "polars": pl.from_arrow,
    "lazy": lambda table: pl.from_arrow(table).lazy(),  # type: ignore[union-attr]
    "duckdb": lambda table: duckdb.connect().from_arrow(table),
    "dataset": pyarrow.dataset.dataset,
    "c array": lambda table: OnlyArray(table.to_batches()[0]),
    "structs": lambda table: OnlyArray(pa.array(table.to_pylist())),
    "c stream": OnlyStream,
    "c arrays": lambda table: iter([OnlyArray(table.to_batches()[0])]),
    "rows": lambda table: table.to_pylist(),
    "iterator": lambda table: iter(table.to_pylist()),
    "function": lambda table: table.to_pylist,
}
#: Arguments that create_stream refuses, each with a part of the message.
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"ordered_by": "tss", "unit": "seconds"}, "tss"),
    ({"ordered_by": "t"}, "t"),
    ({"ordered_by": "u"}, "u"),
    ({"watermark": {"tss": 5}}, "tss"),
    ({"watermark": {"u": 5}}, "u is an array<bigint> and cannot order a stream"),
    ({"ordered_by": "ts", "unit": "fortnights"}, "unit of time"),
    ({"ordered_by": "ts", "update_key": "kk"}, "kk"),
]


@pytest.mark.parametrize("frame", FRAMES)
def test_what_create_stream_refuses_is_refused_for_every_kind_of_frame(frame: str) -> None:
    for clauses, message in WRONG:
        with cql.connect(spark=False) as session, pytest.raises(CqlError, match=message):
            session.create_stream("s", FRAMES[frame](DATA), **clauses)


@pytest.mark.parametrize("frame", FRAMES)
def test_every_kind_of_frame_gives_its_rows(frame: str) -> None:
    with cql.connect(spark=False) as session:
        session.create_stream("s", FRAMES[frame](DATA), ordered_by="ts", unit="seconds")
        read = session.sql("SELECT ts, v, t FROM s").to_arrow()
        assert read.to_pylist() == DATA.select(["ts", "v", "t"]).to_pylist()
        if frame not in ("reader", "iterator", "c arrays"):
            assert session.sql("SELECT count(*) AS n FROM s").to_arrow().to_pylist() == [{"n": 2}]


def test_arrays_that_are_no_rows() -> None:
    class Raising:
        def __arrow_c_array__(self, requested_schema: object | None = None) -> object:
            raise KeyError("none")

    wrong = (OnlyArray(pa.array([1])), OnlyArray(pa.array([{"ts": 1}, None])), pa.array([1]))
    with cql.connect(spark=False) as session:
        for data in (*wrong, pl.Series("ts", [1]), Raising()):
            with pytest.raises(CqlError, match="stream s cannot be taken as Arrow columns"):
                session.create_stream("s", data, ordered_by="ts")
            with pytest.raises(CqlError, match="table s cannot be taken as Arrow columns"):
                session.register_table("s", data)


def test_a_dataset_of_files_is_scanned_by_each_query(tmp_path: Path) -> None:
    """A scan reads only the needed columns, whatever their names; partitions are columns."""
    for k in (1, 2):
        folder = tmp_path / f"day={k}"
        folder.mkdir()
        rows = pa.table({"ts": [2 * k, 2 * k + 1], "a.b": [k, 5], "list": [[k], None]})
        pyarrow.parquet.write_table(rows, folder / "rows.parquet")
    data = pyarrow.dataset.dataset(tmp_path, partitioning="hive")
    with cql.connect(spark=False) as session:
        with pytest.raises(CqlError, match="a dataset has an end"):
            session.create_stream("s", data, ordered_by="ts", unit="seconds", bounded=False)
        session.create_stream("s", data, ordered_by="ts", unit="seconds")
        for _ in range(2):
            rows = session.sql('SELECT ts, "a.b" AS x, day FROM s').to_arrow().to_pylist()
            assert [tuple(row.values()) for row in rows] == [
                (2, 1, 1),
                (3, 5, 1),
                (4, 2, 2),
                (5, 5, 2),
            ]
        (tmp_path / "day=2" / "rows.parquet").unlink()
        with pytest.raises(CqlError, match="stream s failed after row"):
            session.sql("SELECT ts FROM s").to_arrow()


def test_a_function_is_called_once_for_each_query() -> None:
    """The first query reads the rows that ``create_stream`` took the column types from."""
    calls: list[int] = []

    def rows() -> list[dict[str, int]]:
        calls.append(1)
        return [{"ts": 1}, {"ts": 2}]

    with cql.connect(spark=False) as session:
        session.create_stream("s", rows, ordered_by="ts")
        for expected in (1, 2):
            assert session.sql("SELECT ts FROM s").to_arrow().num_rows == 2
            assert len(calls) == expected


def test_a_query_is_a_frame() -> None:
    with cql.connect(spark=False) as session:
        session.create_stream("s", DATA, ordered_by="ts", unit="seconds")
        session.create_stream("t", session.sql("SELECT ts, v FROM s"), ordered_by="ts")
        assert session.sql("SELECT v FROM t").to_arrow().to_pylist() == [{"v": 3}, {"v": 4}]
        endless = {"ordered_by": "ts", "unit": "seconds", "bounded": False}
        session.create_stream("e", lambda: iter(DATA.to_pylist()), **endless)
        for take in (session.create_stream, session.register_table):
            query = session.sql("SELECT ts FROM e")
            with pytest.raises(CqlError, match=r"does not end by itself.*\nhint: CREATE STREAM"):
                take("u", query)
            assert query.status == "ready"


def test_a_key_that_no_column_holds_is_left_out_alone() -> None:
    values: list[Any] = [{}, [dt.time(1)], uuid.uuid4(), dt.time(1), {"a": object()}, object()]
    with cql.connect(spark=False) as session:
        for value in values:
            rows = [{"ts": 1, "u": value}, {"ts": 2, "u": None}, {"ts": 3, "u": value}]
            session.create_stream("s", rows, ordered_by="ts", unit="seconds", replace=True)
            assert session.sql("SELECT ts FROM s").to_arrow()["ts"].to_pylist() == [1, 2, 3]
            with pytest.raises(CqlError, match="u"):
                session.sql("SELECT u FROM s").to_arrow()


def test_two_columns_of_one_name_in_every_frame() -> None:
    with cql.connect(spark=False) as session:
        session.register_table("a", pa.table({"id": [1], "id_1": [10]}))
        session.register_table("b", pa.table({"id": [1], "v": [100]}))
        query = session.sql("SELECT * FROM a JOIN b ON a.id = b.id")
        assert query.to_arrow().column_names == ["id", "id_1", "id", "v"]
        assert query.to_polars().row(0, named=True) == {"id": 1, "id_1": 10, "id_2": 1, "v": 100}
        assert isinstance(query.to_pandas(), pd.DataFrame)
        assert list(query.to_pandas().columns) == ["id", "id_1", "id", "v"]


@pytest.mark.slow
def test_a_stdout_that_cannot_print_a_character() -> None:
    for more in ([], ["--format", "csv"]):
        done = subprocess.run(
            [sys.executable, "-m", "cql", "-c", "SELECT '\u00fc\u65e5x' AS x", *more],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONIOENCODING": "ascii"},
            check=False,
        )
        assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
        assert "??x" in done.stdout
