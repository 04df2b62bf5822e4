"""Arrays and structs from and into every source: Arrow, frames, files, Python rows, tables."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import cql
from cql.errors import BindError, CatalogError, CqlError, NotSupportedError, RunError

ROWS: list[dict[str, Any]] = [
    {"id": 1, "items": [1, 2], "user": {"name": "ann", "age": 41}, "tags": [{"t": ["a", None]}]},
    {"id": 2, "items": [], "user": None, "tags": [None, {"t": None}]},
    {"id": 3, "items": [3, None], "user": {"name": "bob", "age": None}, "tags": []},
    {"id": 4, "items": None, "user": {"name": None, "age": 7}, "tags": None},
]
DDL = (
    "id BIGINT, items ARRAY<BIGINT>, user STRUCT<name: STRING, age: BIGINT>,"
    " tags ARRAY<STRUCT<t: ARRAY<STRING>>>"
)
TYPES = {
    "items": "array<bigint>",
    "user": "struct<name:string,age:bigint>",
    "tags": "array<struct<t:array<string>>>",
}
PARTS = "SELECT id, items[0] AS i, r.user.age, tags FROM r WHERE size(items) > 0"
PARTS_OF = [(1, 1, 41, ROWS[0]["tags"]), (3, 3, None, [])]


@pytest.fixture
def session() -> Iterator[cql.Session]:
    with cql.connect(spark=False) as made:
        yield made


def told(session: cql.Session, text: str) -> list[dict[str, Any]]:
    return session.sql(text).to_arrow().to_pylist()


def check(session: cql.Session, name: str) -> None:
    """The rows and types of ROWS under ``name``, and parts of them."""
    assert told(session, f"SELECT * FROM {name}") == ROWS
    kinds = {r["column"]: r["type"] for r in told(session, f"DESCRIBE {name}")}
    assert {n: kinds[n] for n in TYPES} == TYPES
    found = told(session, PARTS.replace("FROM r", f"FROM {name} AS r"))
    assert [tuple(row.values()) for row in found] == PARTS_OF


def as_lines(path: Path) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return str(path)


@pytest.mark.parametrize(
    "make",
    [
        pa.Table.from_pylist,
        lambda rows: pl.from_arrow(pa.Table.from_pylist(rows)),
        lambda rows: rows,
        lambda rows: lambda: iter(rows),
        lambda rows: [pa.RecordBatch.from_pylist(rows[:2]), pa.RecordBatch.from_pylist(rows)[2:]],
    ],
    ids=["arrow", "polars", "rows", "function", "batches"],
)
def test_objects_in_memory(session: cql.Session, make: Any) -> None:
    session.create_stream("s", make(ROWS))
    check(session, "s")


def test_pandas_and_numpy(session: cql.Session) -> None:
    frame = pd.DataFrame({"k": [1, 2], "v": [np.array([1.5, 2.5]), [None]], "d": [{"a": 1}, None]})
    session.create_stream("s", frame)
    wanted = [{"k": 1, "v": [1.5, 2.5], "d": {"a": 1}}, {"k": 2, "v": [None], "d": None}]
    assert told(session, "SELECT * FROM s") == wanted
    back = session.sql("SELECT v, d FROM s").to_pandas()
    assert list(back["v"][0]) == [1.5, 2.5]
    session.sql("CREATE STREAM r (v ARRAY<INT>, t STRUCT<a: INT, b: STRING>)")
    query = iter(session.sql("SELECT * FROM r"))
    session.push("r", [{"v": np.array([1, 2]), "t": (3, "x")}])
    assert next(query).to_pylist() == [{"v": [1, 2], "t": {"a": 3, "b": "x"}}]


@pytest.mark.parametrize("format", ["parquet", "arrow", "json"])
def test_tables_of_files(session: cql.Session, tmp_path: Path, format: str) -> None:
    session.create_stream("s", pa.Table.from_pylist(ROWS))
    session.sql(f"CREATE TABLE t USING {format} LOCATION '{tmp_path}/t' AS SELECT * FROM s")
    check(session, "t")
    session.sql(f"CREATE TABLE u ({DDL}) USING {format} LOCATION '{tmp_path}/u'")
    session.sql("INSERT INTO u SELECT * FROM s")
    check(session, "u")
    session.sql(f"CREATE STREAM f USING {format} OPTIONS (path '{tmp_path}/u')")
    check(session, "f")


def test_tables_in_memory(session: cql.Session) -> None:
    session.create_stream("s", ROWS)
    session.sql(f"CREATE TABLE t ({DDL})")
    session.sql("INSERT INTO t SELECT * FROM s")
    check(session, "t")
    session.sql("INSERT INTO t SELECT 5, array(1, NULL), named_struct('a', 'x', 'b', 1), NULL")
    added = {"id": 5, "items": [1, None], "user": {"name": "x", "age": 1}, "tags": None}
    assert told(session, "SELECT * FROM t WHERE id = 5") == [added]
    with pytest.raises(BindError, match="the query gives array<string>"):
        session.sql("INSERT INTO t (id, items) SELECT 5, array('x')")
    session.sql("CREATE TABLE small (v ARRAY<TINYINT>)")
    with pytest.raises(RunError, match=r"does not fit|not a valid|overflow"):
        session.sql("INSERT INTO small SELECT array(300)")


def test_arrays_without_null_take_none(session: cql.Session) -> None:
    """array_agg never gives NULL, so the table declares that it holds none."""
    session.create_stream("s", ROWS)
    session.sql("CREATE TABLE t AS SELECT array_agg(id) AS ids FROM s")
    session.sql("INSERT INTO t SELECT items FROM s WHERE id < 3")
    assert [r["ids"] for r in told(session, "SELECT * FROM t")] == [[1, 2, 3, 4], [1, 2], []]
    with pytest.raises(CqlError, match="NULL in an array that holds none"):
        session.sql("INSERT INTO t SELECT items FROM s")
    both = session.sql("SELECT ids FROM t UNION ALL SELECT items AS ids FROM s WHERE id = 3")
    assert both.to_arrow().to_pylist()[-1] in ({"ids": [3, None]}, {"ids": []})


# -- JSON lines ------------------------------------------------------------------------------------


def test_json_lines(session: cql.Session, tmp_path: Path) -> None:
    path = as_lines(tmp_path / "a.jsonl")
    session.sql(f"CREATE STREAM guessed USING json OPTIONS (path '{path}')")
    check(session, "guessed")
    session.sql(f"CREATE STREAM declared ({DDL}) USING json OPTIONS (path '{path}')")
    check(session, "declared")
    session.sql(f"CREATE STREAM texts (id INT, user STRING) USING json OPTIONS (path '{path}')")
    assert told(session, "SELECT user FROM texts")[0] == {"user": '{"name": "ann", "age": 41}'}


def test_times_in_json_are_declared(session: cql.Session, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(
        '{"at": ["2024-05-01T10:00:00+02:00", null], "d": {"day": "2024-05-01"}, "e": []}\n'
        '{"at": ["2024-05-01 10:00:00"], "d": {}, "e": [null]}\n'
    )
    session.sql(f"CREATE STREAM g USING json OPTIONS (path '{path}')")
    kinds = {r["column"]: r["type"] for r in told(session, "DESCRIBE g")}
    assert kinds == {"at": "array<string>", "d": "struct<day:string>", "e": "array<string>"}
    ddl = "at ARRAY<TIMESTAMP>, d STRUCT<day: DATE>"
    session.sql(f"CREATE STREAM s ({ddl}) USING json OPTIONS (path '{path}')")
    utc = datetime.UTC
    assert told(session, "SELECT * FROM s") == [
        {"at": [datetime.datetime(2024, 5, 1, 8, tzinfo=utc), None],
         "d": {"day": datetime.date(2024, 5, 1)}},
        {"at": [datetime.datetime(2024, 5, 1, 10, tzinfo=utc)], "d": {"day": None}},
    ]  # fmt: skip


def test_bad_rows_of_json(session: cql.Session, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(
        '{"id": 1, "v": [1.5, "x"], "u": null}\n'
        '{"id": 2, "v": 3, "u": {"at": "soon"}}\n'
        '{"id": 3, "v": [4], "u": {"at": "2024-05-01", "other": 1}}\n'
    )
    ddl = "id INT, v ARRAY<DOUBLE>, u STRUCT<at: DATE>"
    session.sql(f"CREATE STREAM s ({ddl}) USING json OPTIONS (path '{path}')")
    with pytest.raises(CqlError, match=r"line 1: column v: \[1.5, 'x'\] is not an array<double>"):
        told(session, "SELECT * FROM s")
    query = session.sql("SELECT * FROM s ON BAD ROW KEEP")
    kept = {"id": 3, "v": [4.0], "u": {"at": datetime.date(2024, 5, 1)}}
    assert query.to_arrow().to_pylist() == [kept]
    assert query.bad_rows().num_rows == 2


def test_files_of_one_stream_agree(session: cql.Session, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"v": [1]}\n')
    (tmp_path / "b.jsonl").write_text('{"v": [1.5]}\n')
    session.sql(f"CREATE STREAM s USING json OPTIONS (path '{tmp_path}/*.jsonl')")
    assert told(session, "SELECT * FROM s") == [{"v": [1.0]}, {"v": [1.5]}]
    (tmp_path / "c.jsonl").write_text('{"v": {"a": 1}}\n')
    with pytest.raises(CatalogError, match="column v is a struct<a:bigint> in file"):
        session.sql(f"CREATE STREAM t USING json OPTIONS (path '{tmp_path}/*.jsonl')")


def test_json_takes_no_nan(session: cql.Session, tmp_path: Path) -> None:
    session.create_stream("s", [{"v": [1.0, float("nan")]}])
    with pytest.raises(CqlError, match="column v: JSON cannot hold nan"):
        session.sql(f"CREATE TABLE t USING json LOCATION '{tmp_path}/t' AS SELECT * FROM s")


# -- Arrow and Python ------------------------------------------------------------------------------


def test_types_of_arrow(session: cql.Session) -> None:
    word = pa.dictionary(pa.int8(), pa.string())
    columns = {
        "fixed": pa.array([[1, 2], None], pa.list_(pa.uint8(), 2)),
        "large": pa.array([["a"], []], pa.large_list(pa.large_string())),
        "words": pa.array([["a", "b"], ["a", None]], pa.list_(word)),
        "known": pa.array([[1], []], pa.list_(pa.field("x", pa.int32(), nullable=False))),
        "money": pa.array([[Decimal("1.50")], None], pa.list_(pa.decimal128(30, 2))),
        "s": pa.array([{"d": 1}, None], pa.struct([("d", pa.date32())])),
    }
    session.create_stream("s", pa.table(columns))
    kinds = [r["type"] for r in told(session, "DESCRIBE s")]
    assert kinds == ["array<smallint>", "array<string>", "array<string>", "array<int>",
                     "array<decimal(30,2)>", "struct<d:date>"]  # fmt: skip
    wanted = [
        {"fixed": [1, 2], "large": ["a"], "words": ["a", "b"], "known": [1],
         "money": [Decimal("1.50")], "s": {"d": datetime.date(1970, 1, 2)}},
        {"fixed": None, "large": [], "words": ["a", None], "known": [], "money": None, "s": None},
    ]  # fmt: skip
    assert told(session, "SELECT * FROM s") == wanted
    for name in columns:
        grouped = told(session, f"SELECT {name}, count(*) AS n FROM s GROUP BY {name}")
        assert grouped == [{name: row[name], "n": 1} for row in wanted]


def test_what_no_column_holds(session: cql.Session) -> None:
    odd = {
        "m": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int32())),
        "u": pa.array([[1]], pa.list_(pa.uint64())),
        "t": pa.array([{"at": 1}], pa.struct([("at", pa.time64("us"))])),
        "n": pa.array([{}], pa.struct([])),
        "d": pa.array([[None]], pa.list_(pa.decimal128(38, 20))),
    }
    found: list[str] = []
    session.on_notice = found.append
    session.create_stream("s", pa.table({"k": [1], **odd}))
    assert told(session, "SELECT * FROM s") == [{"k": 1}]
    assert [n.split(":")[0] for n in found] == [f"* leaves out s.{name}" for name in odd]
    assert "decimal(38,20) has 20 decimal places" in found[-1]


def test_decimals_of_too_many_digits(session: cql.Session) -> None:
    money = pa.array([[Decimal(1)], [None, Decimal(10**20)]], pa.list_(pa.decimal128(30, 0)))
    session.create_stream("s", pa.table({"k": [1, 2], "v": money}))
    with pytest.raises(CqlError, match=r"row 1, column v: 1.*0 has more than 18 digits"):
        told(session, "SELECT * FROM s")
    kept = session.sql("SELECT k FROM s WHERE size(v) > 0 ON BAD ROW KEEP")
    assert kept.to_arrow().to_pylist() == [{"k": 1}]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"v": [1, "x"]}, r"\[1, 'x'\] \(list\) is not an array<int>"),
        ({"v": [1.5]}, r"\[1.5\] \(list\) is not an array<int>"),
        ({"v": "ab"}, r"'ab' \(str\) is not an array<int>"),
        ({"v": {"a": 1}}, "is not an array<int>"),
        ({"u": {"a": 1, "c": 2}}, "is not a struct<a:int,b:string>"),
        ({"u": {"a": "x"}}, "is not a struct<a:int,b:string>"),
        ({"u": [1]}, "is not a struct<a:int,b:string>"),
        ({"u": 5}, "is not a struct<a:int,b:string>"),
    ],
)
def test_python_values_that_do_not_fit(session: cql.Session, value: Any, message: str) -> None:
    session.sql("CREATE STREAM s (v ARRAY<INT>, u STRUCT<a: INT, b: STRING>)")
    rows = [{"v": [1], "u": {"a": 1}}, {"v": None, "u": None} | value]
    with pytest.raises(CatalogError, match=f"row 1, column [vu]: .*{message}"):
        session.push("s", rows)


def test_the_first_row_must_tell_the_types(session: cql.Session) -> None:
    with pytest.raises(CatalogError, match=r"column v is array<void> in the first item"):
        session.create_stream("s", [{"v": []}, {"v": None}])


def test_push(session: cql.Session) -> None:
    session.sql("CREATE STREAM s (ts BIGINT, v ARRAY<INT>, u STRUCT<a: INT>) ORDERED BY ts")
    query = session.sql("SELECT u.a, v[0] AS e, v FROM s")
    answers = iter(query)
    session.push("s", [(1, [4, 5], {"a": 7}), {"ts": 2, "v": [None], "u": None}])
    assert next(answers).to_pylist() == [
        {"a": 7, "e": 4, "v": [4, 5]}, {"a": None, "e": None, "v": [None]},
    ]  # fmt: skip
    with pytest.raises(CatalogError, match=r"\['x'\] \(list\) is not an array<int>"):
        session.push("s", [(3, ["x"], None)])
    query.stop()


# -- refusals and display --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("CREATE STREAM c (a ARRAY<INT>) USING csv OPTIONS (path '{0}/a.csv')", CatalogError,
         "a CSV file holds no values of type array<int>"),
        ("CREATE TABLE t (a STRUCT<b: INT>) USING csv LOCATION '{0}/t'", CatalogError,
         "csv files cannot hold column a struct<b:int>"),
        ("CREATE TABLE t (a ARRAY<BINARY>) USING json LOCATION '{0}/t'", CatalogError,
         "json files cannot hold column a array<binary>"),
        ("CREATE TABLE t (a ARRAY<INT>, PRIMARY KEY (a))", CatalogError, "is no PRIMARY KEY"),
        ("CREATE TABLE t (a MAP<STRING, INT>)", NotSupportedError, "MAP<STRING, INT>"),
        ("CREATE TABLE t (a ARRAY<VARCHAR(3)>)", NotSupportedError, "as a column of a table"),
        ("CREATE TABLE t (a STRUCT<b: INT NOT NULL>)", CqlError, ""),
        ("CREATE TABLE t (a STRUCT<b: INT, B: INT>)", BindError, "two fields named B"),
        ("CREATE TABLE t (a STRUCT<>)", CqlError, ""),
        ("CREATE TABLE t (a ARRAY)", CqlError, ""),
    ],
)  # fmt: skip
def test_refusals(
    session: cql.Session, tmp_path: Path, text: str, error: type[CqlError], message: str
) -> None:
    (tmp_path / "a.csv").write_text("a\n1\n")
    with pytest.raises(error) as refused:
        session.sql(f"{text.format(tmp_path)}; SELECT * FROM c")
    assert message in str(refused.value)


def test_functions_of_users_take_single_values(session: cql.Session) -> None:
    with pytest.raises(BindError, match="take and return single values"):
        session.register_function("f", lambda a: a, args=["array<int>"], returns="int")


def test_display(session: cql.Session, capsys: pytest.CaptureFixture[str]) -> None:
    session.create_stream("s", pa.Table.from_pylist(ROWS))
    session.sql("SELECT items, user, tags FROM s").show()
    shown = capsys.readouterr().out
    for text in ("[3, NULL]", "{bob, NULL}", "[{[a, NULL]}]", "[NULL, {NULL}]", "array<bigint>"):
        assert text in shown
    assert "{bob, NULL}" in session.sql("SELECT user FROM s")._repr_html_()
    texts = told(session, "SELECT CAST(items AS STRING) AS i, CAST(tags AS STRING) AS t FROM s")
    assert texts[0] == {"i": "[1, 2]", "t": "[{[a, null]}]"}
