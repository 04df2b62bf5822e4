"""One schema for several files: a type holds the values of all files; files may lack columns."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cql
from cql.base.model import Field, Schema
from cql.base.types import BIGINT, DOUBLE, STRING
from cql.catalog.files.follow import FollowSource
from cql.catalog.files.source import FileSource
from cql.errors import CatalogError
from tests.support.catalog_tools import FakeClock, check_replay, read

Row = dict[str, Any]
KINDS = ("csv", "json", "parquet", "arrow")
UTC = dt.UTC


def write(path: Path, kind: str, rows: Sequence[Row], columns: Sequence[str]) -> None:
    """A column without values has the null type or, in CSV and JSON, no type."""
    if kind == "csv":
        shown = [",".join("" if r.get(c) is None else str(r[c]) for c in columns) for r in rows]
        path.write_text("\n".join([",".join(columns), *shown]) + "\n")
    elif kind == "json":
        path.write_text("".join(json.dumps(r, default=str) + "\n" for r in rows))
    else:
        table = pa.table({c: [r.get(c) for r in rows] for c in columns})
        if kind == "parquet":
            pq.write_table(table, path)
        else:
            with pa.ipc.new_file(path, table.schema) as writer:
                writer.write_table(table)


def folder(path: Path, kind: str, *files: tuple[Sequence[str], Sequence[Row]]) -> Path:
    path.mkdir()
    for number, (columns, rows) in enumerate(files):
        write(path / f"{number}.{kind}", kind, rows, columns)
    return path


def types(source: FileSource) -> dict[str, str]:
    return {f.name: str(f.type) for f in source.schema}


@pytest.mark.parametrize("kind", KINDS)
def test_files_without_values_say_nothing_of_the_types(tmp_path: Path, kind: str) -> None:
    files = folder(
        tmp_path / "f",
        kind,
        (["k", "v"], []),  # only a header, no row
        (["k", "v"], [{"k": "a", "v": None}]),
        (["k", "v"], [{"k": "b", "v": 9}, {"k": "c", "v": 10}, {"k": "d", "v": 100}]),
        (["k", "v"], [{"k": "e", "v": None}]),
    )
    source = FileSource({"path": files}, what="s")
    assert types(source) == {"k": "string", "v": "bigint"}
    assert [r["v"] for r in read(source)] == [None, 9, 10, 100, None]
    if kind == "csv":
        (files / "00.csv").write_text("")
        assert types(FileSource({"path": files}, what="s")) == {"k": "string", "v": "bigint"}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("declared", [False, True])
def test_a_column_that_some_files_lack_is_null_there(
    tmp_path: Path, kind: str, declared: bool
) -> None:
    files = folder(
        tmp_path / "f",
        kind,
        (["a"], [{"a": 1}]),
        (["b", "a"], [{"a": 2, "b": "x"}]),
        (["c", "B"], [{"c": 0.5, "B": "y"}, {"c": 1.5, "B": "z"}]),
    )
    fields = (Field("a", BIGINT), Field("b", STRING), Field("c", DOUBLE))
    source = FileSource({"path": files}, what="s", declared=Schema(fields) if declared else None)
    assert source.schema.names == ("a", "b", "c")
    assert all(f.nullable for f in source.schema)
    expected = [(1, None, None), (2, "x", None), (None, "y", 0.5), (None, "z", 1.5)]
    assert [(r["a"], r["b"], r["c"]) for r in check_replay(source)] == expected
    for k, name in enumerate("abc"):  # read alone, even from files that lack it
        assert [r[name] for r in read(source, [name])] == [e[k] for e in expected]
    assert sum(b.num_rows for b in _batches(source, [])) == 4
    assert source.statistics().nulls.get("b") in (None, 1)


def _batches(source: Any, columns: Sequence[str]) -> list[pa.RecordBatch]:
    reader, found = source.open(columns), []
    while (block := reader.next(0)) is not None and block.batch.num_rows:
        found.append(block.batch)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_followed_files_too(tmp_path: Path, kind: str) -> None:
    files = folder(tmp_path / "f", kind, (["a"], [{"a": 1}]), (["a", "b"], [{"a": 2, "b": "x"}]))
    source = FollowSource({"path": files}, what="s", clock=FakeClock())
    rows = [row for batch in _batches(source, ["b", "a"]) for row in batch.to_pylist()]
    assert rows == [{"b": None, "a": 1}, {"b": "x", "a": 2}]


def day(text: str) -> dt.date:
    return dt.date.fromisoformat(text)


@pytest.mark.parametrize(
    ("one", "other", "kind", "values"),
    [
        (1, 2.5, "double", [1.0, 2.5]),
        ("2024-01-01", "2024-01-02 10:00:00", "timestamp_ntz", None),
        ("2024-01-01", "2024-01-02T10:00:00Z", "timestamp", None),
        ("2024-01-01 09:00:00", "2024-01-02T10:00:00Z", "timestamp", None),
    ],
)
@pytest.mark.parametrize("form", ["csv", "json"])
def test_types_widen(
    tmp_path: Path, form: str, one: Any, other: Any, kind: str, values: list[Any] | None
) -> None:
    for first, second in ((one, other), (other, one)):
        files = folder(
            tmp_path / str(first), form, (["v"], [{"v": first}]), (["v"], [{"v": second}])
        )
        source = FileSource({"path": files}, what="s")
        assert types(source) == {"v": kind}
        found = sorted(r["v"] for r in read(source))
        if values is None:
            zone = UTC if kind == "timestamp" else None
            values = [dt.datetime.fromisoformat(str(t).replace("Z", "")) for t in (one, other)]
            values = [t.replace(tzinfo=zone) for t in values]
        assert found == values


def arrow_files(path: Path, *arrays: pa.Array[Any]) -> Path:
    path.mkdir()
    for number, values in enumerate(arrays):
        pq.write_table(pa.table({"v": values}), path / f"{number}.parquet")
    return path


def decimals(precision: int, scale: int, *texts: str) -> pa.Array[Any]:
    return pa.array(texts).cast(pa.decimal128(precision, scale))


def test_types_of_parquet_files_widen(tmp_path: Path) -> None:
    for number, (one, other, kind) in enumerate(
        [
            (pa.array([1], pa.int16()), pa.array([2**40]), "bigint"),
            (pa.array([1], pa.int32()), pa.array([0.5]), "double"),
            (pa.array([2**24 + 1], pa.int32()), pa.array([0.5], pa.float32()), "double"),
            (pa.array([0.5], pa.float32()), pa.array([0.1]), "double"),
            (decimals(5, 2, "1.25"), decimals(6, 4, "9.0001"), "decimal(7,4)"),
            (pa.array([70_000], pa.int32()), decimals(5, 2, "1.25"), "decimal(12,2)"),
        ]
    ):
        for turn, pair in enumerate([(one, other), (other, one)]):
            source = FileSource(
                {"path": arrow_files(tmp_path / f"{number}{turn}", *pair)}, what="s"
            )
            assert types(source) == {"v": kind}
            values = [x for part in pair for x in part.to_pylist()]
            assert [r["v"] for r in read(source)] == pytest.approx(values, rel=0)


def test_types_that_nothing_holds_are_refused_with_both_files(tmp_path: Path) -> None:
    big = pa.array([2**60])
    for number, (one, other) in enumerate(
        [
            (pa.array(["x"]), pa.array([1])),
            (big, pa.array([0.5])),  # a double cannot hold every bigint
            (big, decimals(18, 6, "1.5")),
            (pa.array([True]), pa.array([1])),
            (pa.array([2**63], pa.uint64()), pa.array([1])),
            (pa.array([{"x": 1}]), pa.array([1])),
        ]
    ):
        for turn, pair in enumerate([(one, other), (other, one)]):
            files = arrow_files(tmp_path / f"{number}{turn}", *pair)
            with pytest.raises(CatalogError, match=r"column v .*[01]\.parquet.*[01]\.parquet") as e:
                FileSource({"path": files}, what="stream s")
            assert "0.parquet" in e.value.message
            assert "1.parquet" in e.value.message
    for form in ("csv", "json"):
        files = folder(tmp_path / form, form, (["v"], [{"v": 9}]), (["v"], [{"v": "x"}]))
        with pytest.raises(CatalogError, match="column v") as caught:
            FileSource({"path": files}, what="stream s")
        assert f"0.{form}" in caught.value.message
        assert f"1.{form}" in caught.value.message
        assert "declare" in (caught.value.hint or "")
        declared = FileSource({"path": files}, what="s", declared=Schema((Field("v", STRING),)))
        assert read(declared) == [{"v": "9"}, {"v": "x"}]


def test_columns_that_no_query_can_use_stay_out(tmp_path: Path) -> None:
    nested = pa.array([{"x": 1}], pa.struct([("x", pa.uint64())]))
    source = FileSource(
        {"path": arrow_files(tmp_path / "a", pa.nulls(1), nested, pa.nulls(1))}, what="s"
    )
    assert set(source.unsupported) == {"v"}
    assert types(source) == {}


def test_names_that_differ_in_case(tmp_path: Path) -> None:
    """In every format, a name matches its exact spelling, or else the only other casing."""
    row = {"a": 1, "A": 2, "UserId": 3}
    for kind in KINDS:
        files = folder(tmp_path / kind, kind, (list(row), [row]))
        source = FileSource({"path": files}, what="s")
        assert read(source, ["A", "a", "UserId"]) == [{"A": 2, "a": 1, "UserId": 3}]
        exact = Schema((Field("A", BIGINT), Field("userid", BIGINT)))
        assert read(FileSource({"path": files}, what="s", declared=exact)) == [
            {"A": 2, "userid": 3}
        ]
    for kind in KINDS:
        unclear = folder(tmp_path / f"{kind}2", kind, (["Ab", "aB"], [{"Ab": 1, "aB": 2}]))
        declared = Schema((Field("ab", BIGINT),))
        with pytest.raises(CatalogError, match="column ab could be Ab or aB"):
            read(FileSource({"path": unclear}, what="s", declared=declared))


def test_many_files_are_looked_at_in_even_distances(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cql.catalog.files.source.LOOKED_AT", 3)
    values = [1, None, 2, None, 3.5]
    files = folder(tmp_path / "f", "csv", *[(["v", "k"], [{"v": v, "k": "x"}]) for v in values])
    source = FileSource({"path": files}, what="s")  # reads the first, middle and last file
    assert types(source) == {"v": "double", "k": "string"}
    assert [r["v"] for r in read(source)] == values


TEXT = 'k,v\ncafé,1\n"Größe, …",2\n'


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16", "utf-8", "UTF8", "utf-16-le"])
def test_encodings(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "a.csv"
    text = TEXT.replace("…", "-") if encoding == "latin-1" else TEXT
    path.write_bytes((text * 1 + "é,3\n" * 5_000).encode(encoding))
    source = FileSource({"path": path, "encoding": encoding}, what="s")
    assert types(source) == {"k": "string", "v": "bigint"}
    rows = read(source)
    assert rows[0] == {"k": "café", "v": 1}
    assert rows[1]["k"] == "Größe, …".replace("…", "-" if encoding == "latin-1" else "…")
    assert rows[-1] == {"k": "é", "v": 3}
    assert len(rows) == 5_002
    lines = tmp_path / "a.json"
    lines.write_bytes('{"schön": "ß"}\n'.encode(encoding))
    assert read(FileSource({"path": lines, "encoding": encoding}, what="s")) == [{"schön": "ß"}]


def test_followed_files_of_another_encoding(tmp_path: Path) -> None:
    path = tmp_path / "1.csv"
    path.write_bytes("größe,v\né,1\n".encode("latin-1"))
    source = FollowSource({"path": path, "encoding": "latin-1"}, what="s", clock=FakeClock())
    reader = source.open(["größe", "v"])
    with open(path, "ab") as file:
        file.write("ü,2\né".encode("latin-1"))
    block = reader.next(0)
    assert block is not None
    assert block.batch.to_pylist() == [{"größe": "é", "v": 1}, {"größe": "ü", "v": 2}]
    with open(path, "ab") as file:
        file.write("é,3\n".encode("latin-1"))
    again = source.open(["größe"], block.offset).next(0)
    assert again is not None
    assert again.batch.to_pylist() == [{"größe": "éé"}]
    path.write_bytes("größe,v\né,1\n".encode("utf-16"))
    with pytest.raises(CatalogError, match=r"utf-16 .*cannot be followed"):
        FollowSource({"path": path, "encoding": "utf-16"}, what="s")


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    """With inferred types, one error names file and byte; with declared types, the row is bad."""
    for kind, line in (("csv", b"caf\xe9,2\n"), ("json", b'{"k": "caf\xe9", "v": 2}\n')):
        good = b"k,v\nok,1\n" if kind == "csv" else b'{"k": "ok", "v": 1}\n'
        path = tmp_path / f"a.{kind}"
        path.write_bytes(good + line)
        at = len(good) + line.index(b"\xe9")
        number = (good + line).count(b"\n")
        match = rf"a\.{kind}, byte {at} \(line {number}\): 0xE9 is not UTF-8\n.*encoding 'latin-1'"
        with pytest.raises(CatalogError, match=match):
            FileSource({"path": path}, what="s")
        schema = Schema((Field("k", STRING), Field("v", BIGINT)))
        with pytest.raises(
            CatalogError, match=rf"line {number}: byte .*0xE9, is not UTF-8\n.*latin"
        ):
            read(FileSource({"path": path}, what="s", declared=schema))
        with pytest.raises(CatalogError, match=rf"a\.{kind}, byte {at}: 0xE9 is not ascii"):
            FileSource({"path": path, "encoding": "ascii"}, what="s")
        with pytest.raises(CatalogError, match=r"option encoding of s is 'klingon'\n.*latin-1"):
            FileSource({"path": path, "encoding": "klingon"}, what="s")
        with pytest.raises(CatalogError, match="option encoding of s is 'base64'"):
            FileSource({"path": path, "encoding": "base64"}, what="s")
    (tmp_path / "head.csv").write_bytes(b"gr\xf6sse\n1\n")
    with pytest.raises(CatalogError, match="byte 2"):
        FileSource({"path": tmp_path / "head.csv"}, what="s")


def test_json_values_under_string_are_their_text(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    values = ['"x"', "5", "true", "null", "1.50", "1e3", '{"b": [1, "\\u00e9"]}', "[]", '"5"']
    values += ["18446744073709551615", '""', '"\\n"', "-0"]
    path.write_text("".join(f'{{"n": {i}, "a": {v}}}\n' for i, v in enumerate(values)) + "{}\n")
    schema = Schema((Field("a", STRING), Field("n", BIGINT)))
    found = [r["a"] for r in read(FileSource({"path": path}, what="s", declared=schema))]
    expected = ["x", "5", "true", None, "1.50", "1e3", '{"b": [1, "\\u00e9"]}', "[]", "5"]
    assert found == [*expected, "18446744073709551615", "", "\n", "-0", None]


def told(session: Any, text: str) -> list[str]:
    found: list[str] = []
    session.on_notice = found.append
    session.sql(text).to_arrow()
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_declared_column_that_no_row_has_is_told(tmp_path: Path, kind: str) -> None:
    rows: list[Row] = [{"userId": 1, "n": None, "v": 2}, {"userId": 2, "n": None}]
    files = folder(tmp_path / "f", kind, (["userId", "n", "v"], rows), (["userId"], rows[:1]))
    session = cql.connect(spark=False)
    form = "arrow" if kind == "arrow" else kind
    columns = "userid BIGINT, n STRING, v BIGINT, valu BIGINT, user_id BIGINT"
    session.sql(f"CREATE STREAM f ({columns}) USING {form} OPTIONS (path '{files}')")
    what = "stream f: column user_id is in no row of its files, and NULL in all"
    (notice,) = told(session, "SELECT user_id, userid, n, v FROM f")
    assert notice.startswith(what)
    if kind != "json":  # JSON files do not list their column names
        assert notice == f"{what}; did you mean userId?"
    assert told(session, "SELECT userid, n, v FROM f") == []
    assert told(session, "SELECT count(*) AS n FROM f") == []
    assert [n.split(" is in")[0] for n in told(session, "SELECT valu FROM f")] == [
        "stream f: column valu"
    ]
    (tmp_path / "e").mkdir()
    session.sql(f"CREATE STREAM e ({columns}) USING {form} OPTIONS (path '{tmp_path}/e')")
    assert told(session, "SELECT user_id FROM e") == []  # no rows, no notice


def test_followed_files_tell_it_after_a_while(tmp_path: Path) -> None:
    path = tmp_path / "1.json"
    path.write_text('{"a": 1}\n' * 10)
    schema = Schema((Field("a", BIGINT), Field("b", BIGINT)))
    source = FollowSource({"path": tmp_path}, what="stream s", declared=schema, clock=FakeClock())
    reader: Any = source.open(["a", "b"])
    while (block := reader.next(0)) is not None and block.batch.num_rows:
        pass
    assert reader.notices == []
    (tmp_path / "2.json").write_text('{"a": 1}\n')
    reader.next(0)
    assert [n.split(" is in")[0] for n in reader.notices] == ["stream s: column b"]
