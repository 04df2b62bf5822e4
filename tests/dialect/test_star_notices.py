"""``*`` leaves out columns that no query can use; a notice names each of them, once per session."""

from __future__ import annotations

import warnings
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cql
from cql.errors import BindError
from cql.session.session import CqlWarning, Session


@pytest.fixture
def session(tmp_path: Path) -> Session:
    made = cql.connect(spark=False)
    usual = {
        "id": [1],
        "user": pa.array([{"name": 1}], pa.struct([("name", pa.uint64())])),
        "m": [5],
        "tags": pa.array([[1]], pa.list_(pa.uint64())),
    }
    pq.write_table(pa.table(usual), tmp_path / "a.parquet")
    made.sql(f"CREATE STREAM f USING parquet OPTIONS (path '{tmp_path}/a.parquet')")
    odd = {
        "k": [1],
        "s": pa.array([{"x": 1}], pa.struct([("x", pa.uint64())])),
        "l": pa.array([[1, 2]], pa.list_(pa.uint64())),
        "m": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int32())),
        "d": pa.array([None], pa.decimal256(60, 2)),
        "u": pa.array([1], pa.uint64()),
        "a.b": pa.array([[1]], pa.list_(pa.uint64())),
    }
    pq.write_table(pa.table(odd), tmp_path / "odd.parquet")
    made.sql(f"CREATE STREAM p USING parquet OPTIONS (path '{tmp_path}/odd.parquet')")
    return made


def notices(session: Session, text: str) -> list[str]:
    found: list[str] = []
    session.on_notice = found.append
    session.sql(text)
    return found


USER = "* leaves out f.user: no column can hold values of type struct<name: uint64>"
TAGS = "* leaves out f.tags: no column can hold values of type list<element: uint64>"


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM f",
        "SELECT f.* FROM f",
        "CREATE TABLE t AS SELECT * FROM f",
        "SELECT * FROM (SELECT * FROM f) AS x",
        "CREATE VIEW v AS SELECT * FROM f; SELECT id FROM v",
        "WITH c AS (SELECT * FROM f) SELECT m FROM c",
        "SELECT a.* FROM f AS a, p",
    ],
)
def test_each_is_named(session: Session, text: str) -> None:
    found = notices(session, text)
    called = "a" if "f AS a" in text else "f"
    assert [n.split(" (")[0] for n in found] == [
        n.replace("f.", f"{called}.") for n in (USER, TAGS)
    ]
    assert "line 1" in found[0]
    session.sql(text.replace("TABLE t", "TABLE t2").replace("VIEW v", "OR REPLACE VIEW v"))
    assert len(found) == 2  # once in a session


def test_every_type_and_every_source(session: Session) -> None:
    found = notices(session, "SELECT * FROM p")
    assert [n.split(":")[0] for n in found] == [
        f"* leaves out p.{name}" for name in ("s", "l", "m", "d", "u", "a.b")
    ]
    table = pa.table({"k": [1], "s": pa.array([[1]], pa.list_(pa.uint64()))})
    session.create_stream("mem", table)
    assert notices(session, "SELECT * FROM mem")[0].startswith("* leaves out mem.s: ")


def test_no_notice_where_nothing_is_left_out_unasked(session: Session, tmp_path: Path) -> None:
    for text in (
        "SELECT id, m FROM f",
        "SELECT count(*) FROM f",
        "SELECT * EXCEPT (user, TAGS) FROM f",
        "SELECT p.* EXCEPT (s, l, m, d, u, `a.b`) FROM f, p",
        f"CREATE STREAM g (id BIGINT) USING parquet OPTIONS (path '{tmp_path}/a.parquet');"
        " SELECT * FROM g",  # declared: other fields of the files cause no notice
    ):
        assert notices(session, text) == []
    with pytest.raises(BindError, match="has no column other to leave out"):
        session.sql("SELECT * EXCEPT (user, other) FROM f")


def test_the_default_is_a_warning(session: Session) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        session.sql("CREATE TABLE t AS SELECT * FROM f")
    assert [w.category for w in caught] == [CqlWarning] * 2
    assert session.sql("SELECT * FROM t").to_arrow().column_names == ["id", "m"]
