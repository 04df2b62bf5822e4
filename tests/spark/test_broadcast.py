"""Tables that each task of Spark reads whole, because rows are looked up in them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cql.errors import NotSupportedError
from cql.planner.placement import broadcast
from cql.spark.run import looked_up
from tests.support.task_tables import Tables, answer

NAMES = [(k, f"name {k}", k % 3) for k in range(7)]  # keys 7 and 8 have none
QUERIES = {
    "rows": "SELECT a.ts, a.v, b.name FROM {s} AS a JOIN default.names AS b ON a.k = b.k",
    "rows without a name": "SELECT a.ts, a.v, b.name FROM {s} AS a LEFT JOIN default.names AS b"
    " ON a.k = b.k AND b.kind = 1",
    "rows by a subquery": "SELECT ts, k FROM {s} WHERE k IN (SELECT k FROM default.names WHERE"
    " kind = 2)",
    "rows by a value": "SELECT ts, k FROM {s} WHERE k = (SELECT max(k) FROM default.names)",
    "windows": "SELECT b.name, sum(a.v) AS s, window_end FROM {s} [RANGE 2 MINUTES SLIDE 1 MINUTE]"
    " AS a JOIN default.names AS b ON a.k = b.k GROUP BY b.name",
    "windows by a subquery": "SELECT k, count(*) AS n, window_end FROM {s} [RANGE 1 MINUTE SLIDE"
    " 1 MINUTE] WHERE k NOT IN (SELECT k FROM default.names WHERE kind = 0) GROUP BY k",
    "pairs": "SELECT a.k, a.v, b.v AS other, c.name FROM {s} AS a JOIN {s} AS b ON a.k = b.k AND"
    " b.ts BETWEEN a.ts - INTERVAL 5 SECONDS AND a.ts JOIN default.names AS c ON c.k = b.k",
    "sessions": "SELECT a.k, count(*) AS n, window_end FROM {s} [SESSION 20 SECONDS] AS a"
    " JOIN default.names AS b ON a.k = b.k WHERE b.kind > 0 GROUP BY a.k",
}


@pytest.fixture(scope="module")
def tables(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tables]:
    made = Tables(spark, tmp_path_factory.mktemp("looked_up"))
    spark.createDataFrame(NAMES, "k bigint, name string, kind int").write.saveAsTable(
        "default.names"
    )
    yield made
    made.session.close()


@pytest.mark.sampled
@pytest.mark.parametrize("name", QUERIES)
def test_tables_are_looked_up_in(tables: Tables, name: str) -> None:
    text = QUERIES[name].format(s=tables.stream("many late"))
    rows, late = answer(tables.session, text, "depth_first")
    assert rows.num_rows > 0
    for count in (1, 4):
        made, ledger = answer(tables.session, text, "spark", count)
        assert ledger == late
        assert sorted(map(repr, made.to_pylist())) == sorted(map(repr, rows.to_pylist()))


def test_a_large_table_is_shuffled(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broadcast, "BROADCAST_ROWS", 3)
    text = QUERIES["rows"].format(s=tables.stream("few late"))
    rows, _ = answer(tables.session, text, "depth_first")
    made, _ = answer(tables.session, text, "spark", 4)
    assert sorted(map(repr, made.to_pylist())) == sorted(map(repr, rows.to_pylist()))
    assert "tasks by key k" in tables.session.sql(text).explain()


LOCAL = "SELECT a.ts, a.v, b.name FROM {s} AS a JOIN {names} AS b ON a.k = b.k"


def test_views_and_local_rows_are_looked_up_in(spark: Any, tables: Tables, tmp_path: Path) -> None:
    """Sources that are no tables of files are read here, and sent to the tasks."""
    spark.sql("CREATE VIEW default.named AS SELECT k, upper(name) AS name FROM default.names")
    (tmp_path / "part-0.csv").write_text("k,name\n1,one\n3,three\n", "utf-8")
    session = tables.session
    session.register_table("held", pa.table({"k": [2, 4], "name": ["two", "four"]}))
    session.sql(
        "CREATE TABLE listed (k BIGINT, name STRING)"
        f" WITH (format = 'csv', header = 'true', path = '{tmp_path}')"
    )
    session.register_table("framed", spark.table("default.names"))
    for names in ("default.named", "held", "listed", "framed"):
        for text in (LOCAL, QUERIES["windows"].replace("default.names", "{names}")):
            wanted = text.format(s=tables.stream("few late"), names=names)
            rows, late = answer(session, wanted, "depth_first")
            assert rows.num_rows > 0
            for tasks_by in ("time", "key") if text == LOCAL else ("time",):
                session.set("tasks_by", tasks_by)
                made, ledger = answer(session, wanted, "spark", 3)
                session.set("tasks_by", "auto")
                assert ledger == late
                assert sorted(map(repr, made.to_pylist())) == sorted(map(repr, rows.to_pylist()))


def test_many_local_rows_are_refused(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    tables.session.register_table("many", pa.table({"k": range(50), "name": ["x"] * 50}))
    monkeypatch.setattr(looked_up, "BROADCAST_ROWS", 30)
    with pytest.raises(NotSupportedError, match="many, which has more than 30 rows"):
        answer(tables.session, LOCAL.format(s=tables.stream("few late"), names="many"), "spark")


def test_bad_rows_of_a_table_are_not_counted_in_each_task(tables: Tables) -> None:
    text = QUERIES["rows"].format(s=tables.stream("few late")) + " ON BAD ROW KEEP"
    with pytest.raises(NotSupportedError, match="several tasks read a row"):
        answer(tables.session, text, "spark", 4)
