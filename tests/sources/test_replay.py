"""A replay gives another input's rows again, in steps or paced by their event times."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

import cql
from cql.catalog.memory.replay import ReplaySource
from cql.catalog.sources import TableSource
from cql.errors import CatalogError
from tests.support.catalog_tools import (
    FakeClock,
    check_replay,
    read,
)

UTC = dt.UTC


def replayed() -> TableSource:
    stamps = [0, 2, 1, 10, None, 11]
    times = pa.array(
        [None if s is None else s * 1_000_000 for s in stamps], pa.timestamp("us", "UTC")
    )
    return TableSource(pa.table({"ts": times, "n": list(range(6))}), what="t")


def test_replay_paces_by_event_time() -> None:
    clock = FakeClock()
    options = {"time": "ts", "speed": "2", "skew": "4 seconds"}
    source = ReplaySource(replayed(), options, what="s", clock=clock)
    reader = source.open(["n"])
    seen = []
    while (block := reader.next()) is not None:
        seen += [(clock.now(), r["n"]) for r in block.batch.to_pylist()]
        again = source.open(["n"], block.offset)
        rest = []
        while (more := again.next()) is not None:
            rest += [r["n"] for r in more.batch.to_pylist()]
        assert rest == list(range(block.offset["row"], 6))
        clock.time = seen[-1][0]
    assert [n for _, n in seen] == [0, 1, 2, 3, 4, 5]
    assert [t for t, _ in seen] == [2, 3, 3, 7, 7, 7.5]


def test_replay_timeout_shift_and_refusals() -> None:
    clock = FakeClock()
    source = ReplaySource(
        replayed(), {"time": "ts", "speed": 1, "skew": "4 s"}, what="s", clock=clock
    )
    block = source.open(["n"]).next(timeout=1)
    assert block is not None
    assert block.batch.num_rows == 0
    shifted = ReplaySource(replayed(), {"time": "ts", "shift": "1 s"}, what="s")
    assert read(shifted)[0]["ts"] == dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert check_replay(shifted) == read(shifted)
    with pytest.raises(CatalogError, match="origin needs a speed"):
        ReplaySource(replayed(), {"time": "ts", "origin": "2024-01-01"}, what="s")
    with pytest.raises(CatalogError, match="need the option time"):
        ReplaySource(replayed(), {"skew": "1 s"}, what="s")
    with pytest.raises(CatalogError, match="need the option time"):
        ReplaySource(replayed(), {"speed": "1"}, what="s")
    with pytest.raises(CatalogError, match="not a timestamp"):
        ReplaySource(replayed(), {"speed": "1", "time": "n"}, what="s")


def test_steps_end_blocks_at_fixed_times() -> None:
    """Row 4 has no time and comes with row 3; an offset within a step gives its rest."""
    source = ReplaySource(replayed(), {"time": "ts", "step": "2 seconds"}, what="s")
    assert check_replay(source) == read(source)
    reader, found = source.open(["n"]), []
    while (block := reader.next()) is not None:
        found.append([r["n"] for r in block.batch.to_pylist()])
    assert [rows for rows in found if rows] == [[0], [1, 2], [3, 4, 5]]


def test_skew_without_a_clock_orders_the_inputs() -> None:
    """The query reads in the order of arrival: b's row of second s comes after a's row of s + 3 and
    before a's row of s + 5."""
    stamps = pa.array([s * 1_000_000 for s in range(8)], pa.timestamp("us", "UTC"))
    with cql.connect(False) as session:
        session.create_stream("t", pa.table({"ts": stamps, "n": range(8)}), ordered_by="ts")
        for name, skew in (("a", "0 seconds"), ("b", "3 seconds")):
            session.sql(f"""
                CREATE STREAM {name} (ts timestamp, n bigint) ORDERED BY ts USING replay
                OPTIONS (table 't', time 'ts', step '1 second', skew '{skew}')""")
        rows = session.sql(
            "SELECT ts, n, 'a' AS s FROM a UNION ALL SELECT ts, n, 'b' FROM b"
        ).to_arrow()
    order = [f"{r['s']}{r['n']}" for r in rows.to_pylist()]
    assert len(order) == 16
    for second in range(4):
        at = order.index(f"b{second}")
        assert order.index(f"a{second + 3}") < at
        assert second + 5 > 7 or at < order.index(f"a{second + 5}")
    assert order[-3:] == ["b5", "b6", "b7"]


def test_results_of_a_paced_replay_come_while_it_runs() -> None:
    """The first results come at once, although the last row is due in two minutes."""
    stamps = pa.array([0, 1, 2, 3, 4, 5, 120_000], pa.timestamp("ms", "UTC"))
    with cql.connect(False) as session:
        session.create_stream("t", pa.table({"ts": stamps}), ordered_by="ts")
        session.sql("""CREATE STREAM r (ts timestamp) ORDERED BY ts USING replay
                       OPTIONS (table 't', time 'ts', speed '1')""")
        text = "SELECT count(*) AS n FROM {} [RANGE 1 MILLISECOND SLIDE 1 MILLISECOND]"
        whole = session.sql(text.format("t"))
        assert [batch.num_rows for batch in whole.batches()] == [7]
        paced = session.sql(text.format("r")).batches()
        assert next(paced).num_rows < 6
        paced.close()
