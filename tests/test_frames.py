"""Frames and rows of Python: what create_stream refuses, leaves out, and what comes back."""

from __future__ import annotations

import datetime as dt
import os
import subprocess
import sys
import uuid
from collections.abc import Callable
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import cql
from cql.errors import CqlError

DATA = pa.table({"ts": [1, 2], "v": [3, 4], "t": pa.array(["a", "b"]), "u": pa.array([[1], [2]])})

#: Every kind of frame, made of an Arrow table.
FRAMES: dict[str, Callable[[pa.Table], Any]] = {
    "arrow": lambda table: table,
    "batches": lambda table: table.to_batches(),
    "reader": lambda table: table.to_reader(),
    "pandas": lambda table: table.to_pandas(),
    "polars": pl.from_arrow,
    "lazy": lambda table: pl.from_arrow(table).lazy(),  # type: ignore[union-attr]
    "duckdb": lambda table: duckdb.connect().from_arrow(table),
    "rows": lambda table: table.to_pylist(),
    "iterator": lambda table: iter(table.to_pylist()),
    "function": lambda table: table.to_pylist,
}
#: Arguments of create_stream that are refused, and what the message says.
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"ordered_by": "tss", "unit": "seconds"}, "tss"),
    ({"ordered_by": "t"}, "t"),
    ({"ordered_by": "u"}, "u"),
    ({"watermark": {"tss": 5}}, "tss"),
    ({"watermark": {"u": 5}}, "column u is no time"),
    ({"ordered_by": "ts", "unit": "fortnights"}, "unit of time"),
    ({"ordered_by": "ts", "update_key": "kk"}, "kk"),
]


@pytest.mark.parametrize("frame", FRAMES)
def test_what_create_stream_refuses_is_refused_for_every_kind_of_frame(frame: str) -> None:
    for clauses, message in WRONG:
        with cql.connect(spark=False) as session, pytest.raises(CqlError, match=message):
            session.create_stream("s", FRAMES[frame](DATA), **clauses)


def test_a_key_that_no_column_holds_is_left_out_alone() -> None:
    values: list[Any] = [{"a": 1}, [1], (1, 2), uuid.uuid4(), dt.time(1), {1}, object()]
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
