"""Tables of Spark with a PRIMARY KEY: Spark sees one row of each key."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import cql
from cql.base.model import Field, Schema
from cql.base.types import BIGINT
from cql.catalog.spark import registry
from cql.catalog.spark.catalog import SparkCatalog
from cql.errors import CatalogError, RunError

pytestmark = pytest.mark.spark
SCHEMA = Schema((Field("k", BIGINT), Field("v", BIGINT)))


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


def test_random_epochs(spark: Any, name: str, seed: int) -> None:
    rng = random.Random(seed)
    catalog = SparkCatalog(spark)
    sink: Any = catalog.new_table((name,), SCHEMA, SCHEMA, ("k",))
    expected: dict[int, int] = {}
    for epoch in range(12):
        sink.begin()
        keys = [rng.randrange(9) for _ in range(rng.randrange(6))]
        sink.write(
            pa.record_batch([pa.array(keys, pa.int64()), pa.array(range(len(keys)))], ["k", "v"])
        )
        gone = sorted({rng.randrange(9) for _ in range(3)} - set(keys))
        sink.delete(pa.record_batch([pa.array(gone, pa.int64())], ["k"]))
        if epoch % 4 == 3:
            sink.abort()
            continue
        sink.commit()
        expected |= dict(zip(keys, range(len(keys)), strict=True))
        expected = {k: v for k, v in expected.items() if k not in gone}
        assert in_spark(spark, name) == sorted(expected.items())


class _KilledError(BaseException):
    """Ends a writer as the end of its process would."""


@pytest.mark.parametrize("when", ["rename", "unlink"])
def test_the_next_writer_finishes_an_epoch(
    spark: Any, name: str, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cql.connect(spark) as session:
        session.sql(f"CREATE TABLE {name} (k BIGINT PRIMARY KEY, v INT)")
        session.sql(f"INSERT INTO {name} VALUES (1, 1)")

        real = getattr(os, when)

        def killed(*names: Any, **more: Any) -> None:
            if "epoch-" in str(names[-1]):
                raise _KilledError
            real(*names, **more)

        with monkeypatch.context() as patched:
            patched.setattr(os, when, killed)
            with pytest.raises(_KilledError):
                session.sql(f"INSERT INTO {name} VALUES (1, 2), (2, 2)")
        session.sql(f"INSERT INTO {name} VALUES (3, 3)")
        assert in_spark(spark, name) == here(session, name) == [(1, 2), (2, 2), (3, 3)]


def test_writers_lose_no_epoch(spark: Any, name: str) -> None:
    catalog = SparkCatalog(spark)
    catalog.new_table((name,), SCHEMA, SCHEMA, ("k",))
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
