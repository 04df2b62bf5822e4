"""Tables of Spark with a PRIMARY KEY: Spark sees one row of each key."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import cql
from cql.base.model import Field, Schema
from cql.base.types import BIGINT, STRING
from cql.catalog import upsert_log
from cql.catalog.spark import registry
from cql.catalog.spark.catalog import SparkCatalog
from cql.errors import CatalogError, CqlError, RunError
from cql.planner.nodes.catalog import PLAIN, TableLayout

pytestmark = pytest.mark.spark
SCHEMA = Schema((Field("k", BIGINT), Field("v", BIGINT)))
KPV = Schema((Field("k", BIGINT), Field("v", BIGINT), Field("p", STRING)))


@pytest.fixture
def session(spark: Any) -> Iterator[cql.Session]:
    with cql.connect(spark) as made:
        yield made


@pytest.fixture
def name(spark: Any, request: pytest.FixtureRequest) -> Iterator[str]:
    """A table name of the test's own; the table and its folder are dropped afterwards."""
    own = "u_" + "".join(c if c.isalnum() else "_" for c in request.node.name)
    yield own
    registry.drop(spark, own)


def in_spark(spark: Any, name: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in spark.sql(f"select * from {name}").collect())


def here(session: cql.Session, name: str) -> list[tuple[Any, ...]]:
    table = session.sql(f"SELECT * FROM {name}").to_arrow()
    return sorted(tuple(row.values()) for row in table.to_pylist())


def test_rows_replace_rows(spark: Any, session: cql.Session, name: str) -> None:
    session.sql(f"CREATE TABLE {name} (k INT, v STRING, n INT, PRIMARY KEY (k)) USING parquet")
    assert in_spark(spark, name) == []
    session.sql(f"INSERT INTO {name} VALUES (1, 'a', 1), (2, 'b', 2), (1, 'c', 3)")
    session.sql(f"INSERT INTO {name} (v, k) VALUES ('d', 2), ('e', 3)")
    expected = [(1, "c", 3), (2, "d", None), (3, "e", None)]
    assert in_spark(spark, name) == here(session, name) == expected
    for row in ("(NULL, 'x', 1)", "(4, 'x', 1), (NULL, 'x', 1)"):
        with pytest.raises(CatalogError, match="NULL in column k"):
            session.sql(f"INSERT INTO {name} VALUES {row}")
    with pytest.raises(CatalogError, match="column k is NOT NULL"):
        session.sql(f"INSERT INTO {name} (v) VALUES ('x')")
    assert in_spark(spark, name) == expected
    described = session.sql(f"DESCRIBE {name}").rows
    assert [(row[0], row[3]) for row in described] == [("k", "primary key"), ("v", ""), ("n", "")]
    with cql.connect(spark) as other:  # the key is the table's
        other.sql(f"INSERT INTO {name} SELECT k, v, 9 FROM {name} WHERE k > 1")
    assert in_spark(spark, name) == [(1, "c", 3), (2, "d", 9), (3, "e", 9)]
    spark.sql(f"insert into {name} values (5, 'f', 5), (1, 'g', 1)")  # Spark knows no key
    with pytest.raises(CatalogError, match=r"several rows have the key 1 \(k\)"):
        session.sql(f"INSERT INTO {name} VALUES (1, 'h', 1)")
    session.sql(f"CREATE OR REPLACE TABLE {name} (k INT, v STRING)")
    session.sql(f"INSERT INTO {name} VALUES (1, 'a'), (1, 'a')")
    assert in_spark(spark, name) == [(1, "a"), (1, "a")]
    session.sql(f"DROP TABLE {name}")


def test_changes_are_applied(spark: Any, session: cql.Session, name: str) -> None:
    data = pa.table({"t": [1, 2, 3, 4], "k": ["a", "b", "a", "c"], "x": [1, 2, 3, 4]})
    session.create_stream("s", data, ordered_by="t", replace=True)
    text = "SELECT k, sum(x) AS x FROM s [RANGE 1] GROUP BY k"
    session.sql(f"CREATE TABLE {name} (PRIMARY KEY (k)) AS {text}")
    assert in_spark(spark, name) == [("a", 3), ("c", 4)]
    session.sql(f"INSERT INTO {name} SELECT k, count(*) FROM s GROUP BY k EMIT CHANGES")
    assert in_spark(spark, name) == here(session, name) == [("a", 2), ("b", 1), ("c", 1)]
    with pytest.raises(RunError, match="two rows with k = a"):
        session.sql(f"INSERT INTO {name} SELECT k, x FROM s [RANGE 5] EMIT CHANGES")
    session.sql(f"INSERT INTO {name} {text}")  # the keys that leave go, until nothing is left
    assert in_spark(spark, name) == [("a", 3), ("c", 4)]
    session.create_stream(
        "s", pa.table({"t": [1, 9], "k": ["a", "c"], "x": [1, 2]}), "t", replace=True
    )
    session.sql(f"INSERT INTO {name} {text} HAVING sum(x) < 2")
    assert in_spark(spark, name) == [("c", 4)]


LAYOUTS = {
    "whole": (("k",), PLAIN),
    "partitions": (("k", "p"), TableLayout(("p",))),
    "moving": (("k",), TableLayout(("p",))),
    "log": (("k",), TableLayout(log=True)),
}


@pytest.mark.sampled
@pytest.mark.parametrize("layout", LAYOUTS)
def test_random_epochs(
    spark: Any,
    session: cql.Session,
    name: str,
    seed: int,
    layout: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Against a dict."""
    monkeypatch.setattr(upsert_log, "LEAST_ROWS", 6)
    rng = random.Random(f"{seed} {layout}")
    catalog = SparkCatalog(spark)
    key, made = LAYOUTS[layout]
    schema = Schema((Field("p", STRING), Field("k", BIGINT), Field("v", BIGINT)))
    sink: Any = catalog.new_table((name,), schema, schema, key, made)
    expected: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for epoch in range(10):
        rows = [(rng.choice("xyz/ "), rng.randrange(6), epoch * 9 + n) for n in range(4)]
        rows = rows[: rng.randrange(5)]
        now = {(k, p)[: len(key)]: (k, p, v) for p, k, v in rows}
        gone = {(rng.randrange(6), rng.choice("xyz"))[: len(key)] for _ in range(3)} - now.keys()
        sink.begin()
        dicts = [dict(zip("pkv", row, strict=True)) for row in rows]
        sink.write(pa.RecordBatch.from_pylist(dicts, schema.to_arrow()))
        gone_keys = [dict(zip(key, values, strict=True)) for values in sorted(gone)]
        kinds = pa.schema([schema.to_arrow().field(column) for column in key])
        sink.delete(pa.RecordBatch.from_pylist(gone_keys, kinds))
        if epoch % 4 == 3:
            sink.abort()
            continue
        sink.commit()
        expected = {k: row for k, row in (expected | now).items() if k not in gone}
        columns = f"(SELECT k, p, v FROM {name}) AS t"
        assert in_spark(spark, columns) == here(session, columns) == sorted(expected.values())


class _KilledError(BaseException):
    """Ends a writer as the end of its process would."""


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("layout", "when", "calls"),
    [
        ("whole", "rename", 0),
        ("whole", "unlink", 0),
        ("partitions", "rename", 0),
        ("partitions", "rename", 1),
        ("partitions", "unlink", 0),
        ("partitions", "unlink", 1),
        ("log", "rename", 0),
        ("log", "unlink", 0),
        ("log", "unlink", 1),
    ],
)
def test_the_next_writer_finishes_an_epoch(
    spark: Any, name: str, layout: str, when: str, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process ends before a rename or a removal, when so many have been made."""
    monkeypatch.setattr(upsert_log, "LEAST_ROWS", 6)
    clauses = {"partitions": "PARTITIONED BY (p)", "log": "WITH ('upsert' = 'log')"}
    with cql.connect(spark) as session:
        keys = "k, p" if layout == "partitions" else "k"
        session.sql(
            f"CREATE TABLE {name} (k BIGINT, v BIGINT, p STRING, PRIMARY KEY ({keys}))"
            f" {clauses.get(layout, '')}"
        )
        session.sql(f"INSERT INTO {name} VALUES (1, 1, 'a'), (2, 1, 'b'), (3, 1, 'c')")
        gone: Any = SparkCatalog(spark).sink((name,), KPV, create=False)
        gone.begin()
        gone.write(pa.record_batch({"k": [1, 2], "v": [1, 2], "p": ["a", "b"]}))
        gone.delete(pa.record_batch({"k": [3], "p": ["c"]}).select(keys.split(", ")))
        gone.commit()

        real, left = getattr(os, when), calls

        def killed(*names: Any, **more: Any) -> None:
            nonlocal left
            if "epoch-" in str(names[-1]) and (when == "rename" or os.path.exists(names[-1])):
                left -= 1
                if left < 0:
                    raise _KilledError
            real(*names, **more)

        with monkeypatch.context() as patched:
            patched.setattr(os, when, killed)
            with pytest.raises(_KilledError):
                session.sql(f"INSERT INTO {name} VALUES (1, 3, 'a'), (2, 3, 'b'), (4, 3, 'd')")
        if layout == "log":  # the view has one row of each key, whatever is removed
            spark.catalog.refreshTable(f"{name}_log")
            before = [(1, 1, "a"), (2, 2, "b")]
            after = [(1, 3, "a"), (2, 3, "b"), (4, 3, "d")]
            assert in_spark(spark, name) == (before if when == "rename" else after)
        session.sql(f"INSERT INTO {name} VALUES (5, 5, 'b')")
        rows = [(1, 3, "a"), (2, 3, "b"), (4, 3, "d"), (5, 5, "b")]
        assert in_spark(spark, name) == here(session, name) == rows


def test_an_epoch_rewrites_its_partitions(spark: Any, session: cql.Session, name: str) -> None:
    session.sql(
        f"CREATE TABLE {name} (day DATE, k INT, v INT, PRIMARY KEY (k, day)) PARTITIONED BY (day)"
    )
    text = f"INSERT INTO {name} (k, v, day) VALUES "
    session.sql(text + "(1, 1, DATE '2024-01-01'), (1, 1, DATE '2024-01-02')")

    def files() -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for (file,) in spark.sql(f"select distinct input_file_name() from {name}").collect():
            found.setdefault(file.split("/")[-2], set()).add(file)
        return found

    before = files()
    session.sql(text + "(1, 2, DATE '2024-01-02'), (1, 2, DATE '2024-01-03')")
    after = files()
    assert sorted(before) == ["day=2024-01-01", "day=2024-01-02"]
    assert sorted(after) == ["day=2024-01-01", "day=2024-01-02", "day=2024-01-03"]
    assert after["day=2024-01-01"] == before["day=2024-01-01"]
    assert not after["day=2024-01-02"] & before["day=2024-01-02"]


def test_partitions_that_a_key_cannot_have(
    spark: Any, session: cql.Session, name: str, tmp_path: Path
) -> None:
    session.sql(f"CREATE TABLE {name} (k INT, p STRING, PRIMARY KEY (p)) PARTITIONED BY (p)")
    session.sql(f"INSERT INTO {name} VALUES (1, 'a')")
    with pytest.raises(CatalogError, match="the empty text in column p"):
        session.sql(f"INSERT INTO {name} VALUES (2, 'a'), (2, '')")
    spark.sql(f"alter table {name} add partition (p='b') location '{tmp_path}'")
    with pytest.raises(CatalogError, match=r"(?s)lies outside of its folder.*DROP PARTITION"):
        session.sql(f"INSERT INTO {name} VALUES (3, 'a'), (3, 'b')")
    assert in_spark(spark, name) == [(1, "a")]
    session.sql(f"INSERT INTO {name} VALUES (4, 'a')")
    assert in_spark(spark, name) == [(4, "a")]


def test_a_log_and_its_view(spark: Any, session: cql.Session, name: str) -> None:
    text = "k STRING, v INT NOT NULL, n INT, PRIMARY KEY (k)"
    made = f"CREATE TABLE {name} ({text}) USING parquet OPTIONS (upsert 'log')"
    session.sql(f"CREATE TABLE {name}_log (k INT)")
    with pytest.raises(CatalogError, match=rf"there is a table .*{name}_log` already"):
        session.sql(made)
    session.sql(f"DROP TABLE {name}_log")
    for column in ("_sequence", "_deleted", "_place"):
        with pytest.raises(CatalogError, match=f"has its own column {column}"):
            session.sql(made.replace("n INT", f"{column} INT"))
    session.sql(made)
    assert in_spark(spark, name) == here(session, name) == []
    session.sql(f"INSERT INTO {name} VALUES ('a', 1, 1), ('b', 2, 2), ('a', 3, 3)")
    session.sql(f"INSERT INTO {name} (v, k) SELECT v + 1, k FROM {name} WHERE v = 3")
    assert in_spark(spark, name) == here(session, name) == [("a", 4, None), ("b", 2, 2)]
    logged = [(1, False, "a", 3, 3), (1, False, "b", 2, 2), (2, False, "a", 4, None)]
    assert in_spark(spark, f"{name}_log") == logged
    for values, message in (
        ("(NULL, 1, 1)", "NULL in column k"),
        ("('c', NULL, 1)", "NULL in a column declared NOT NULL"),
    ):
        with pytest.raises(CqlError, match=message):
            session.sql(f"INSERT INTO {name} VALUES {values}")
    with pytest.raises(CatalogError, match=f"is the log of table {name}"):
        session.sql(f"DROP TABLE {name}_log")
    described = session.sql(f"DESCRIBE {name}").rows
    assert [(row[0], row[3]) for row in described] == [("k", "primary key"), ("v", ""), ("n", "")]

    data = pa.table({"t": [1, 2, 3], "k": ["a", "c", "a"], "x": [1, 2, 3]})
    session.create_stream("s", data, ordered_by="t", replace=True)
    session.sql(f"INSERT INTO {name} SELECT k, sum(x), 0 FROM s [RANGE 1] GROUP BY k")
    assert in_spark(spark, name) == here(session, name) == [("a", 3, 0), ("b", 2, 2), ("c", 2, 0)]
    text = "SELECT k, sum(x), 0 FROM s [RANGE 0] GROUP BY k HAVING sum(x) < 3"
    session.sql(f"INSERT INTO {name} {text}")  # a leaves
    assert in_spark(spark, name) == here(session, name) == [("b", 2, 2)]
    session.sql(f"CREATE OR REPLACE {made.removeprefix('CREATE ')}")
    assert in_spark(spark, f"{name}_log") == []
    session.sql(f"DROP TABLE {name}")
    assert not spark.catalog.tableExists(name)
    assert not spark.catalog.tableExists(f"{name}_log")


@pytest.mark.parametrize("layout", [PLAIN, TableLayout(log=True)])
def test_writers_lose_no_epoch(spark: Any, name: str, layout: TableLayout) -> None:
    catalog = SparkCatalog(spark)
    catalog.new_table((name,), SCHEMA, SCHEMA, ("k",), layout)
    errors: list[BaseException] = []

    def write(number: int) -> None:
        try:
            sink = catalog.sink((name,), SCHEMA, create=False)
            for epoch in range(5):
                sink.begin()
                sink.write(pa.record_batch({"k": [0, number], "v": [epoch, epoch]}))
                sink.commit()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(n,)) for n in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert errors == []
    assert in_spark(spark, name) == [(0, 4), (1, 4), (2, 4), (3, 4)]
