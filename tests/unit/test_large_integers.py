"""Whole numbers beyond 64 bits, and whole numbers beyond 2^53 in a column with fractions, become
doubles only if the type is declared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cql
from cql.base.model import Field, Schema
from cql.base.types import BIGINT, DOUBLE, STRING, DataType
from cql.catalog.files.source import FileSource
from cql.errors import BindError
from tests.support.catalog_tools import drain, read, rows_of

IDS = [18446744073709551615, 18446744073709551614, 1]


def written(path: Path, kind: str, texts: list[str], more: str = "x") -> Path:
    file = path / f"a.{kind}"
    if kind == "csv":
        file.write_text("id,s\n" + "".join(f"{t},{more}\n" for t in texts))
    else:
        file.write_text("".join(f'{{"id":{t or "null"},"s":"{more}"}}\n' for t in texts))
    return file


@pytest.mark.parametrize("kind", ["csv", "json"])
@pytest.mark.parametrize(
    ("texts", "why"),
    [
        (["18446744073709551615", "1"], "18446744073709551615, which no bigint holds"),
        (["1", "", "-9223372036854775809"], "-9223372036854775809, which no bigint holds"),
        (["9223372036854775808", "0"], "9223372036854775808, which no bigint holds"),  # 2^63
        (["9007199254740993", "0.5"], "9007199254740993, which no double holds, beside"),
        (["0.5", "-9007199254740993"], "-9007199254740993, which no double holds, beside"),
        (["18446744073709551615", "1e3"], "18446744073709551615, which no double holds"),
        (["1" * 500, "1"], "1…, which no bigint holds"),
    ],
)
def test_such_a_column_is_left_out_with_the_reason(
    tmp_path: Path, kind: str, texts: list[str], why: str
) -> None:
    path = written(tmp_path, kind, texts)
    source = FileSource({"path": path}, what="s")
    assert source.schema.names == ("s",)
    assert why in source.unsupported["id"]
    assert "declare it STRING, or DOUBLE" in source.unsupported["id"]
    assert len(read(source)) == len(texts)


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_what_a_double_holds_is_one(tmp_path: Path, kind: str) -> None:
    fine = [
        (["9007199254740992", "0.5"], DOUBLE),
        (["9007199254740994", "0.5"], DOUBLE),
        (["4611686018427387904", "0.5", ""], DOUBLE),  # 2^62
        (["1e300", "-2.5e18", "1"], DOUBLE),
        (["9007199254740993.5", "1"], DOUBLE),  # a fraction is rounded, as everywhere
        (["9223372036854775807", "-9223372036854775808", "9007199254740993"], BIGINT),
    ]
    for texts, expected in fine:
        source = FileSource({"path": written(tmp_path, kind, texts)}, what="s")
        assert (source.schema[0].name, source.schema[0].type) == ("id", expected)
        numbers = [None if not t else float(t) if expected == DOUBLE else int(t) for t in texts]
        assert [r["id"] for r in read(source)] == numbers


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_what_comes_after_the_sample(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A number behind the sample that the inferred type cannot hold makes its row a bad row, and no
    other row."""
    monkeypatch.setattr("cql.catalog.files.source.SAMPLES", 64)
    monkeypatch.setattr("cql.catalog.files.source.LEAST_SAMPLE", 64)
    plain = ["1"] * 50
    for first, late, expected in (
        ("1.5", "9007199254740993", "column id: 9007199254740993 is no double"),
        ("1.5", "18446744073709551615", "column id: 18446744073709551615 is no double"),
        ("7", "18446744073709551615", "column id: .*18446744073709551615.* is not a bigint"),
    ):
        texts = [first, *plain, late, "9007199254740992", "2"]
        source = FileSource({"path": written(tmp_path, kind, texts)}, what="s")
        blocks = drain(source.open(["id", "s"]), keep=True)
        bad = [b.reason for block in blocks for b in block.bad]
        assert len(bad) == 1
        assert cql_matches(bad[0], f"line {52 + (kind == 'csv')}: {expected}")
        rows = [r["id"] for r in rows_of(blocks)]
        assert rows == [float(first), *[1] * 50, 9007199254740992, 2]


def cql_matches(text: str, pattern: str) -> bool:
    import re

    return re.search(pattern, text) is not None


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_declared_types_are_obeyed(tmp_path: Path, kind: str) -> None:
    path = written(tmp_path, kind, [str(n) for n in IDS])

    def declared(kind_of: DataType) -> list[Any]:
        schema = Schema((Field("id", kind_of),))
        return [r["id"] for r in read(FileSource({"path": path}, what="s", declared=schema))]

    assert declared(STRING) == [str(n) for n in IDS]
    assert declared(DOUBLE) == [float(n) for n in IDS]  # rounded, as declared
    with pytest.raises(cql.CqlError, match="is not a bigint"):
        declared(BIGINT)


def test_queries(tmp_path: Path) -> None:
    session = cql.connect(spark=False)
    path = written(tmp_path, "csv", [str(n) for n in IDS])
    session.sql(f"CREATE STREAM f USING csv OPTIONS (path '{path}')")
    with pytest.raises(BindError, match=r"f\.id cannot be used: .*no bigint holds"):
        session.sql("SELECT count(DISTINCT id) AS n FROM f")
    session.sql(f"CREATE STREAM g (id STRING) USING csv OPTIONS (path '{path}')")
    assert session.sql("SELECT count(DISTINCT id) AS n FROM g").to_arrow()["n"][0].as_py() == 3


def test_unsigned_columns_of_parquet_files(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": pa.array(IDS, pa.uint64()), "k": [1, 2, 3]}), tmp_path / "a.pq")
    source = FileSource({"path": tmp_path / "a.pq"}, what="s")
    assert source.schema.names == ("k",)
    assert source.unsupported["id"] == "no column can hold values of type uint64"
