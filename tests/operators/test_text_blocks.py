"""Functions over texts that sources compute block by block give what tables by code give, for any
layout of the texts, runtime and ledger."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import cql
from cql.executor.run import execution
from cql.executor.texts.blocks import ComputedColumns
from cql.executor.texts.in_blocks import BlockColumns
from cql.planner.nodes.physical import ProjectExec, walk

ROWS = 5_000
QUERIES = (
    "SELECT ts, upper(k) AS a, length(k) AS n FROM s WHERE k LIKE '%u9%' AND v <> 3",
    "SELECT split_part(k, ' ', 2) AS p, count(*) AS n, max(length(k)) AS m"
    " FROM s [RANGE 1000 SLIDE 500] GROUP BY split_part(k, ' ', 2)",
    "SELECT ts, CASE WHEN n RLIKE '^[0-9]+$' THEN CAST(n AS INT) ELSE v END AS i FROM s",
    "SELECT CAST(n AS INT) AS i, k FROM s WHERE n RLIKE '^[0-9]+$'",
    "SELECT regexp_extract(k, 'user=(u[0-9]+)', 1) AS u, concat(k, '-', v) AS c, TRY_CAST(n AS INT)"
    " AS i FROM s",
    "SELECT k, count(*) FILTER (WHERE startswith(n, '1')) AS c FROM s [RANGE 1000 SLIDE 1000]"
    " GROUP BY k",
    "SELECT regexp_extract(k, '^(\\w+) /([^/]+)/(\\d+)?', 3) AS d, regexp_extract(k, '^(\\w+)"
    " /([^/]+)/(\\d+)?', 0) AS w, upper(regexp_extract(k, '^(\\w+) /([^/]+)/(\\d+)?', 1)) AS m"
    " FROM s WHERE k RLIKE '^(\\w+) /([^/]+)/(\\d+)?'",
    "SELECT concat_ws('/', k, n) AS c, coalesce(substring(k, 5, 3), n) AS d FROM s",
    "SELECT a.n AS x, b.v AS y FROM s AS a JOIN t AS b ON upper(a.n) = b.name AND b.ts BETWEEN"
    " a.ts - 2 AND a.ts",
    "SELECT count(*) AS c FROM s [RANGE 1000 SLIDE 1000] WHERE v > 2 AND k LIKE 'GET%'",
)
#: Rows on which CAST fails.
FAILING = (
    "SELECT ts, CAST(n AS INT) AS i FROM s",
    "SELECT ts, v, CAST(split_part(k, '=', 2) AS INT) + 1 AS i, upper(k) AS u FROM s WHERE v < 9",
)


def _table(distinct: int, *, encoded: bool) -> pa.Table:
    rng = np.random.default_rng(7)
    lines = [f"GET /étage/{i * 7919}?user=u{i % 97} {'漢' * (i % 3)}" for i in range(distinct)]
    numbers = [str(i * 31) if i % 7 else f"x{i}" for i in range(distinct)]
    picked = rng.integers(0, distinct, ROWS)
    null = rng.random(ROWS) < 0.05
    k = pa.array(lines).take(pa.array(picked, mask=null))
    n = pa.array(numbers).take(pa.array(picked))
    return pa.table(
        {
            "ts": np.arange(ROWS),
            "k": k.dictionary_encode() if encoded else k,
            "n": n.dictionary_encode() if encoded else n,
            "v": np.arange(ROWS) % 13,
        }
    )


def _small() -> pa.Table:
    return pa.table(
        {"ts": np.arange(ROWS), "name": [f"X{i % 50 * 7}" for i in range(ROWS)], "v": range(ROWS)}
    )


def _answers(table: pa.Table, runtime: str, *, fuse: bool) -> list[Any]:
    found: list[Any] = []
    with cql.connect(spark=False, runtime=runtime, workers=2, fuse=fuse) as session:
        session.create_stream("s", table, ordered_by="ts")
        session.create_stream("t", _small(), ordered_by="ts")
        found += [session.sql(text).to_arrow() for text in QUERIES]
        for text in FAILING:
            with pytest.raises(cql.CqlError) as refused:
                session.sql(text).to_arrow()
            found.append((str(refused.value), refused.value.position))
            kept = session.sql(f"{text} ON BAD ROW KEEP")
            found += [kept.to_arrow(), kept.bad_rows()]
    return found


@pytest.fixture(scope="module")
def by_code() -> Any:
    """The answers of tables by code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(execution, "in_blocks", lambda roots: BlockColumns(tuple(roots), {}))
        return {
            (distinct, fuse): _answers(_table(distinct, encoded=False), "depth_first", fuse=fuse)
            for distinct in (60, ROWS)
            for fuse in (True, False)
        }


@pytest.mark.sampled
@pytest.mark.parametrize("distinct", [60, ROWS])
@pytest.mark.parametrize("encoded", [False, True])
@pytest.mark.parametrize(
    ("runtime", "fuse"),
    [("depth_first", True), ("depth_first", False), ("ordered", True), ("auto", True)],
)
def test_blocks_give_what_codes_give(
    by_code: Any, distinct: int, encoded: bool, runtime: str, fuse: bool
) -> None:
    answers = _answers(_table(distinct, encoded=encoded), runtime, fuse=fuse)
    for wanted, found in zip(by_code[distinct, fuse], answers, strict=True):
        assert found == wanted


def test_sources_compute_all_of_these() -> None:
    """No text of these queries has a code, except where keys need one."""
    with cql.connect(spark=False) as session:
        session.create_stream("s", _table(60, encoded=False), ordered_by="ts")
        session.create_stream("t", _small(), ordered_by="ts")
        for text in (*QUERIES[:5], *FAILING):
            (root,) = execution.in_blocks([session.sql(text)._plan.root]).roots
            assert any(isinstance(n, ProjectExec) and n.in_blocks for n in walk(root)), text


@pytest.mark.auto_runtime
def test_threads_compute_blocks_of_bounded_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is too light for several workers runs depth first behind threads that compute texts."""
    threads: set[str] = set()
    columns = ComputedColumns.columns

    def noted(self: ComputedColumns, batch: pa.RecordBatch) -> Any:
        threads.add(threading.current_thread().name)
        return columns(self, batch)

    monkeypatch.setattr(ComputedColumns, "columns", noted)
    table = pa.concat_tables([_table(60, encoded=False)] * 120)
    table = table.set_column(0, "ts", pa.array(range(len(table))))
    answers = []
    for runtime, workers, most in (("auto", 1, 0), ("depth_first", 2, 0), ("auto", 2, 2)):
        threads.clear()
        with cql.connect(spark=False, runtime=runtime, workers=workers) as session:
            session.create_stream("s", table, ordered_by="ts")
            query = session.sql("SELECT upper(k) AS a FROM s")
            answers.append(query.to_arrow())
            explained = str(session.sql("EXPLAIN SELECT upper(k) AS a FROM s"))
        assert "runtime: depth_first" in explained
        assert ("texts, for blocks of rows on up to 2 threads: upper(k)" in explained) == (most > 0)
        own = sum(name.startswith("cql-texts") for name in threads)  # a quick thread may do it all
        assert min(most, 1) <= own <= most, threads
        assert own == (len(threads) if most else 0), threads
    assert answers[0].equals(answers[1])
    assert answers[0].equals(answers[2])


def test_values_with_watermarks_of_their_own() -> None:
    """A column that only PUNCTUATE BY reads stands behind those of the query in a block: no row is
    late for its value."""
    v = np.arange(ROWS) % 2
    rows = pa.table({"ts": np.arange(ROWS) + 10_000 * v, "k": ["ab"] * ROWS, "v": v})
    with cql.connect(spark=False) as session:
        session.register_table("rows", rows)
        session.sql("CREATE STREAM s FROM TABLE rows ORDERED BY ts PUNCTUATE BY v")
        query = session.sql("SELECT length(k) AS a, ts FROM s WHERE upper(k) = 'AB'")
        assert query.to_arrow().num_rows == ROWS
        assert sum(query.late().column("count").to_pylist()) == 0
