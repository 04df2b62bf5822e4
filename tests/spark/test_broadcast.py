"""Tables that each task of Spark reads whole, because rows are looked up in them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from cql.errors import NotSupportedError
from cql.planner.placement import broadcast
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


def test_bad_rows_of_a_table_are_not_counted_in_each_task(tables: Tables) -> None:
    text = QUERIES["rows"].format(s=tables.stream("few late")) + " ON BAD ROW KEEP"
    with pytest.raises(NotSupportedError, match="several tasks read a row"):
        answer(tables.session, text, "spark", 4)
