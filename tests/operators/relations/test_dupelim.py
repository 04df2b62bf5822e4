"""Dupelim: DISTINCT over a stream passes the first of equal rows at once and purges it when the
watermark has passed its time (out-of-order paper §5.4)."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import cql
from cql.executor.operators.workspace import Workspace
from cql.executor.run import reading
from cql.executor.runtimes.depth_first import DepthFirst
from cql.executor.strings import compaction
from tests.support.checked import check_graph
from tests.support.operator_tools import Admissions, Recorder, graph_of, plan_of, workspace_of
from tests.support.runtimes import RUNTIMES

SLACK = 5


def disordered(count: int, seed: object, *, late: bool = False) -> pa.Table:
    """Rows of every type with many duplicates, at most ``SLACK`` behind the highest time; with
    ``late``, some rows are further behind."""
    rng = random.Random(f"dupelim {seed}")
    times = [i // 4 + rng.randint(0, 4) for i in range(count)]
    times = [t - 40 * (late and rng.random() < 0.03) for t in times]
    day = dt.date(2024, 2, 29)
    return pa.table(
        {
            "t": times,
            "k": [rng.choice(("a", "b", "žluť", "", None)) for _ in times],
            "x": [rng.choice((0.0, -0.0, float("nan"), 1.5, None)) for _ in times],
            "f": pa.array([rng.choice((-0.0, 0.0, 0.25, None)) for _ in times], pa.float32()),
            "b": [rng.choice((True, False, None)) for _ in times],
            "m": [rng.choice((Decimal("1.10"), Decimal("-2.00"), None)) for _ in times],
            "g": [rng.choice((day, None)) for _ in times],
            "ts": pa.array([1_000_000 * t for t in times], pa.timestamp("us", "UTC")),
        }
    )


def in_order(table: pa.Table, *names: str) -> list[str]:
    """The first of equal rows, in row order, with -0.0 as 0.0; no row is late."""
    rows = zip(*(table[name].to_pylist() for name in names), strict=True)
    plain = (tuple(v + 0.0 if isinstance(v, float) else v for v in row) for row in rows)
    return list(dict.fromkeys(map(repr, plain)))


def given(table: pa.Table) -> list[str]:
    return [repr(tuple(row.values())) for row in table.to_pylist()]


@pytest.mark.parametrize("runtime", RUNTIMES, ids=lambda r: "-".join(map(str, r.values())))
def test_first_rows_pass_in_the_order_of_rows(runtime: dict[str, Any]) -> None:
    table = disordered(900, "order")
    columns = {"t, k, x": "tkx", "k, f, b, t": "kfbt", "m, g, t": "mgt"}
    with cql.connect(morsel_rows=64, **runtime) as session:
        session.create_stream("s", table, ordered_by="t", slack=SLACK)
        for listed, names in columns.items():
            query = session.sql(f"SELECT DISTINCT {listed} FROM s")
            assert "Dupelim" in query.explain()
            assert given(query.to_arrow()) == in_order(table, *names)


@pytest.mark.parametrize("runtime", RUNTIMES[::4], ids=lambda r: "-".join(map(str, r.values())))
def test_texts_that_are_forgotten_stay_known(
    runtime: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compaction changes the text codes in the rows that the operator holds."""
    monkeypatch.setattr(compaction, "LEAST", 1)
    seen = []

    def watched(workspace: Workspace, operators: Any, others: Any) -> None:
        before = len(workspace.dictionary)
        compaction.compact(workspace, operators, others)
        seen.append(before - len(workspace.dictionary))

    monkeypatch.setattr(reading, "compact", watched)
    texts = [f"text {i // 7 if i % 2 else i % 13}" for i in range(4000)]
    table = pa.table({"t": [i // 50 for i in range(4000)], "k": texts})

    def blocks() -> Iterator[pa.RecordBatch]:
        yield from table.to_batches(max_chunksize=100)

    with cql.connect(morsel_rows=32, **runtime) as session:
        session.create_stream("s", blocks, ordered_by="t", bounded=True)
        got = session.sql("SELECT DISTINCT k, t FROM s").to_arrow()
    assert given(got) == in_order(table, "k", "t")
    assert sum(seen) > 100


@pytest.mark.sampled
@pytest.mark.parametrize("runtime", RUNTIMES, ids=lambda r: "-".join(map(str, r.values())))
def test_a_first_row_shows_before_the_watermark_has_passed_it(runtime: dict[str, Any]) -> None:
    """The slack is so large that punctuation never reaches the times of these rows. The input is
    never silent, and no result follows."""

    def endless() -> Iterator[pa.RecordBatch]:
        while True:
            yield pa.record_batch({"t": [3, 1, 3, 2], "k": ["a", "a", "a", "b"]})

    with cql.connect(**runtime) as session:
        session.create_stream("e", endless, ordered_by="t", slack=10**9, bounded=False)
        results = session.sql("SELECT DISTINCT t, k FROM e").batches()
        batch = next(iter(results))
        assert given(batch) == ["(3, 'a')", "(1, 'a')", "(2, 'b')"]


def test_late_rows_are_left_out_and_counted() -> None:
    """The watermark is 8 when 7 comes: t = 7 is late, and t / 5 = 1 is not."""
    table = pa.table({"t": [3, 13, 7, 8, 13, 9, 9]})
    with cql.connect() as session:
        session.create_stream("s", table, ordered_by="t", slack=SLACK)
        for text, found, late in (
            ("SELECT DISTINCT t FROM s", [3, 13, 8, 9], 1),
            ("SELECT DISTINCT t / 5 AS t FROM s", [0, 2, 1], 0),
        ):
            query = session.sql(text)
            assert query.to_arrow()["t"].to_pylist() == found
            counts = [e["count"] for e in query.late().to_pylist() if e["kind"] == "pairs"]
            assert sum(counts) == late


def test_state_does_not_grow_with_the_input() -> None:
    def peak(rows: int) -> int:
        table = pa.table({"t": [i // 8 for i in range(rows)], "k": [i % 5 for i in range(rows)]})
        with cql.connect(morsel_rows=64) as session:
            session.create_stream("s", table, ordered_by="t", slack=20)
            query = session.sql("SELECT DISTINCT t, k FROM s")
            assert query.to_arrow().num_rows > rows // 2
            found = next(e for e in query.metrics() if e["operator"].startswith("dupelim"))
            assert found["held"] == 0
            assert found["purged"] == found["rows_out"] == rows - found["duplicates"]
            return int(found["peak_bytes"])

    assert peak(2_000) == peak(40_000)


def test_a_row_without_a_time_is_bad() -> None:
    table = pa.table({"t": [1, None, 7], "k": ["a", "b", "a"]})
    with cql.connect() as session:
        session.create_stream("s", table, ordered_by="t")
        query = session.sql("SELECT DISTINCT t, k FROM s ON BAD ROW KEEP")
        assert given(query.to_arrow()) == ["(1, 'a')", "(7, 'a')"]
        bad = query.bad_rows().to_pylist()
    assert [(b["source"], b["offset"]) for b in bad] == [("s", 1)]


def test_an_operator_by_itself_keeps_the_contract() -> None:
    """Rows are conserved, late rows come in order, and no other row is below the watermark."""
    table = disordered(400, "contract", late=True).rename_columns(
        ["ts", "k", "x", "f", "b", "m", "g", "z"]
    )
    with cql.connect(False) as session:
        session.create_stream("s", table, ordered_by="ts", slack=SLACK)
        for text in ("SELECT DISTINCT ts, k FROM s", "SELECT DISTINCT ts / 9 AS n, ts, b FROM s"):
            root = plan_of(session, text).root
            workspace = workspace_of(16)
            graph = graph_of(root, workspace)
            admissions = Admissions.of(root, workspace)
            wrapped = check_graph(graph, root)
            sink = Recorder(root.schema, workspace.dictionary)
            runtime = DepthFirst(graph, sink, ones=int(workspace.ones.ctypes.data))
            for k, unit in admissions.morsels:
                edge = graph.entries[k]
                assert edge is not None
                runtime.admit(unit, edge)
                runtime.quiesce()
            for one in wrapped:
                one.conserve()
            assert wrapped[-1].counters()["duplicates"] > 0


#: Queries over ``s`` and ``r``, and their equivalents without DISTINCT over a stream.
ABOVE = {
    "SELECT count(*) AS n, window_end FROM (SELECT DISTINCT t, k FROM s) AS d [RANGE 9 SLIDE 3]":
    "SELECT count(*) AS n, window_end FROM (SELECT t, k FROM s GROUP BY t, k) AS d"
    " [RANGE 9 SLIDE 3]",
    "SELECT x.t, x.k, y.b FROM (SELECT DISTINCT t, k FROM s) AS x JOIN r AS y"
    " ON x.k = y.k AND y.t BETWEEN x.t AND x.t + 2":
    "SELECT x.t, x.k, y.b FROM (SELECT t, k FROM s GROUP BY t, k) AS x JOIN r AS y"
    " ON x.k = y.k AND y.t BETWEEN x.t AND x.t + 2",
    "SELECT DISTINCT x.t AS p, y.t AS q FROM s AS x JOIN r AS y"
    " ON x.k = y.k AND y.t BETWEEN x.t AND x.t + 2":
    "SELECT x.t AS p, y.t AS q FROM s AS x JOIN r AS y"
    " ON x.k = y.k AND y.t BETWEEN x.t AND x.t + 2 GROUP BY p, q",
    "SELECT t, k FROM s UNION SELECT t, k FROM r":
    "SELECT t, k FROM (SELECT t, k FROM s UNION ALL SELECT t, k FROM r) AS u GROUP BY t, k",
    "SELECT DISTINCT window_start, k FROM HOP(s, DESCRIPTOR(t), 5, 10)":
    "SELECT window_start, k FROM (SELECT window_start, k FROM HOP(s, DESCRIPTOR(t), 5, 10)) AS h"
    " GROUP BY window_start, k",
    "SELECT DISTINCT t FROM (SELECT DISTINCT t, k FROM s) AS d":
    "SELECT t FROM s GROUP BY t",
    "SELECT * FROM (SELECT t, k, ROW_NUMBER() OVER (PARTITION BY t ORDER BY k) AS n"
    " FROM (SELECT DISTINCT t, k FROM s) AS d) AS e WHERE n <= 2":
    "SELECT * FROM (SELECT t, k, ROW_NUMBER() OVER (PARTITION BY t ORDER BY k) AS n"
    " FROM (SELECT t, k FROM s GROUP BY t, k) AS d) AS e WHERE n <= 2",
}  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("text", ABOVE)
def test_what_stands_above_gets_the_same_rows(text: str) -> None:
    with cql.connect(morsel_rows=32) as session:
        for name in "sr":
            table = disordered(200, name, late=True).select(["t", "k", "b"])
            session.create_stream(name, table, ordered_by="t", slack=SLACK)
        session.sql("CREATE VIEW v AS SELECT DISTINCT t, k FROM s")
        mine, theirs = session.sql(text), session.sql(ABOVE[text])
        assert "Dupelim" in mine.explain()
        assert "Dupelim" not in theirs.explain()
        wanted = sorted(given(theirs.to_arrow()))
        assert sorted(given(mine.to_arrow())) == wanted
        if "(SELECT DISTINCT t, k FROM s)" in text:
            view = session.sql(text.replace("(SELECT DISTINCT t, k FROM s)", "v"))
            assert sorted(given(view.to_arrow())) == wanted


def test_order_and_limit() -> None:
    table = disordered(300, "sorted")
    rows = set(zip(table["t"].to_pylist(), table["b"].to_pylist(), strict=True))
    wanted = sorted(t for t, _ in rows)
    with cql.connect() as session:
        session.create_stream("s", table, ordered_by="t", slack=SLACK)
        text = "SELECT DISTINCT t, b FROM s ORDER BY t, b"
        assert session.sql(text).to_arrow()["t"].to_pylist() == wanted
        assert session.sql(f"{text} LIMIT 7").to_arrow()["t"].to_pylist() == wanted[:7]
        unsorted = session.sql("SELECT DISTINCT t, b FROM s LIMIT 7").to_arrow()
        assert given(unsorted) == in_order(table, "t", "b")[:7]


def test_emit_on_window_close_holds_rows() -> None:
    """The rows leave in order of time, as closed groups do."""
    table = disordered(300, "held")
    with cql.connect() as session:
        session.create_stream("s", table, ordered_by="t", slack=SLACK)
        for text in (
            "SELECT DISTINCT t, k FROM s",
            "SELECT t, k FROM (SELECT DISTINCT t, k FROM s) AS d WHERE t >= 0",
        ):
            query = session.sql(f"{text} EMIT ON WINDOW CLOSE")
            assert "Dupelim" not in query.explain()
            got = query.to_arrow()
            assert got["t"].to_pylist() == sorted(got["t"].to_pylist())
            assert sorted(given(got)) == sorted(in_order(table, "t", "k"))


@pytest.mark.auto_runtime
def test_explain_says_what_lets_rows_be_forgotten() -> None:
    with cql.connect() as session:
        session.create_stream("s", disordered(9, 1), ordered_by="t", slack=SLACK)
        session.create_stream(
            "p", disordered(9, 1).select(["t", "k"]), ordered_by="t", punctuated_by=("k", 9)
        )
        session.register_table("d", pa.table({"k": ["a", "a"], "t": [1, 1]}))
        text = "SELECT DISTINCT t, k FROM s"
        assert "forgotten when punctuation on t has passed it" in session.sql(text).explain()
        session.set("order_enforcement", "sort")
        ordered = session.sql(text)
        assert "forgotten when t advances" in ordered.explain()
        assert "not applied here" not in ordered.explain()
        assert sorted(given(ordered.to_arrow())) == sorted(in_order(disordered(9, 1), "t", "k"))
        session.set("order_enforcement", "none")
        for other in (
            "SELECT t, k FROM s GROUP BY t, k",
            "SELECT DISTINCT k FROM s",
            "SELECT DISTINCT t, k FROM s [RANGE 5]",
            "SELECT DISTINCT k FROM s [RANGE 5 SLIDE 5]",
            "SELECT DISTINCT t, k FROM s EMIT CHANGES",
            "SELECT DISTINCT t, k FROM d",
            "SELECT DISTINCT t, k FROM p",
        ):
            assert "Dupelim" not in session.sql(other).explain(), other
