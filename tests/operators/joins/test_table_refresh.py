"""Tables that are read again while an endless stream looks rows up in them (SET table_refresh),
under the test's own clock."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cql
from cql.base.model import Field, Schema
from cql.base.types import BIGINT
from cql.catalog.sources import TableSource
from cql.errors import NotSupportedError, SettingError
from cql.executor.protocols import Block, Offset, Reader
from cql.executor.run.execution import Execution
from cql.executor.state.checkpoint import Checkpoint, from_ipc, to_ipc
from cql.planner.nodes.catalog import Statistics, StreamSpec
from cql.query.query import Query
from tests.support.live import STEADY, Clock, Live


@dataclass
class Dimension:
    """A table of one row: the number of 10-second steps of the clock. Its version changes every
    ``every`` seconds; if ``every`` is None, it has no version."""

    clock: Clock
    every: float | None
    bounded: bool = True
    opened: list[float] = field(default_factory=list)
    schema: Schema = field(default_factory=lambda: Schema((Field("v", BIGINT),)))
    unsupported: Mapping[str, str] = field(default_factory=dict)

    def statistics(self) -> Statistics:
        return Statistics()

    def version(self) -> Any:
        return None if self.every is None else (self.clock.time - 100) // self.every

    def open(self, columns: Sequence[str], offset: Offset | None = None) -> Reader:
        self.opened.append(self.clock.time - 100)
        table = pa.table({"v": pa.array([int(self.clock.time - 100) // 10], pa.int64())})
        return TableSource(table, what="v").open(["v"])


def seen(
    every: float | None, refresh: str, runtime: str = "depth_first", on: str = "t.v >= 0"
) -> tuple[list[tuple[int, int]], list[float], Query]:
    """(second of the stream, value of the table) of each row, the seconds at which the table was
    read, and the query."""
    live = Live()
    table = Dimension(live.clock, every)
    live.session._catalog.local.add_source(("t",), table, StreamSpec())
    live.stream("s", STEADY)
    live.session.set("table_refresh", refresh)
    live.session.set("runtime", runtime)
    query = live.session.sql(f"SELECT unix_seconds(s.ts) % 60 AS at, t.v FROM s JOIN t ON {on}")
    found = [(row["at"], row["v"]) for batch in query for row in batch.to_pylist()]
    return found, table.opened, query


def test_it_is_known_which_rows_saw_which_version(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[Execution] = []

    class Recorded(Execution):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            runs.append(self)

    monkeypatch.setattr("tests.support.live.Execution", Recorded)
    found, _, _ = seen(None, "20 seconds")
    (run,) = runs
    first = 0  # index of a stream row; positions also count the rows of the table
    for k, (name, at) in enumerate(run.rereading.switches):
        assert name == "t"
        rows = [v for _, v in found[first : at - (k + 2)]]
        assert set(rows) == {2 * k}
        first += len(rows)


@pytest.mark.parametrize("runtime", ["depth_first", "fifo", "ordered"])
def test_rows_see_the_version_that_they_come_after(runtime: str) -> None:
    """A row comes per second; the table is read again when the clock reaches 10, 20, … seconds."""
    found, opened, query = seen(None, "10 seconds", runtime)
    assert [at for at, _ in found] == list(range(60))
    assert [round(t) for t in opened] == [0, 10, 20, 30, 40, 50]
    # the run reads the clock between two turns: the row at 10 may come just before the refresh
    assert all(v in ((at - 1) // 10, at // 10) for at, v in found if at)
    (join,) = (m for m in query.metrics() if m["operator"].startswith("tablejoin"))
    assert (join["table_versions"], join["table_rows"]) == (6, 1)
    assert seen(None, "10 seconds", runtime)[0] == found


@dataclass
class Steady:
    """A row per second of the clock, 60 in all, which can be read again from any row."""

    clock: Clock
    bounded: bool = False
    replayable: bool = True
    schema: Schema = field(default_factory=lambda: Schema((Field("n", BIGINT),)))
    unsupported: Mapping[str, str] = field(default_factory=dict)

    def statistics(self) -> Statistics:
        return Statistics()

    def open(self, columns: Sequence[str], offset: Offset | None = None) -> Reader:
        return _Rows(self.clock, 0 if offset is None else int(offset["row"]))


@dataclass
class _Rows:
    clock: Clock
    row: int

    def next(self, timeout: float | None = None) -> Block | None:
        if self.row == 60:
            return None
        self.clock.time, self.row = 100 + self.row, self.row + 1
        return Block(pa.record_batch({"n": [self.row - 1]}), {"row": self.row})

    def close(self) -> None: ...


@pytest.mark.parametrize(("every", "versions"), [(None, 6), (30, 2)])
def test_a_checkpoint_has_the_version_that_was_read(every: float | None, versions: int) -> None:
    """The next refresh of the restored run is due when that of the first one would have been."""
    outcomes = []
    for stop in (None, 25, 41):
        live = Live()
        table = Dimension(live.clock, every)
        live.session._catalog.local.add_source(("t",), table, StreamSpec())
        live.session._catalog.local.add_source(("s",), Steady(live.clock), StreamSpec())
        live.session.set("table_refresh", "10 seconds")
        plan = live.session.sql("SELECT s.n, t.v FROM s JOIN t ON t.v >= 0")._plan
        saved: Checkpoint | None = None
        found: list[tuple[int, int]] = []
        for at in (stop, None) if stop else (None,):
            made = Execution(plan, live.session.settings, live.clock, resume=saved)
            taken: list[Checkpoint] = []

            def then(
                given: Checkpoint, made: Execution = made, taken: list[Checkpoint] = taken
            ) -> None:
                taken.append(from_ipc(to_ipc(given)))
                made.request_stop()

            if at is not None:
                made.request_checkpoint(then, at)
            found += [(r["n"], r["v"]) for _, batch in made.results() for r in batch.to_pylist()]
            saved = taken[0] if taken else None
        (join,) = (m for m in made.queries[0].metrics() if m["operator"].startswith("tablejoin"))
        assert [n for n, _ in found] == list(range(60))
        assert join["table_versions"] == versions
        outcomes.append((found, join["rows_out"], list(made.rereading.switches)))
    assert outcomes[0] == outcomes[1] == outcomes[2]


def test_it_is_read_again_when_its_version_has_changed() -> None:
    found, opened, _ = seen(30, "5 seconds")
    assert [round(t) for t in opened] == [0, 30]
    assert {v for at, v in found if at < 30} == {0}
    assert {v for at, v in found if at > 30} == {3}


def test_off_reads_it_once() -> None:
    found, opened, _ = seen(None, "off")
    assert opened == [0]
    assert {v for _, v in found} == {0}


def test_through_filters_and_projections() -> None:
    """The expressions below the join are computed again."""
    _, opened, _ = seen(None, "20 seconds", on="t.v * 2 = 2 * (t.v + 0 * unix_seconds(s.ts))")
    assert [round(t) for t in opened] == [0, 20, 40]


def test_bounded_queries_see_one_version() -> None:
    with cql.connect(spark=False, table_refresh="1 us") as session:
        times = pa.array(range(100_000), pa.timestamp("us"))
        session.create_stream("s", pa.table({"ts": times, "k": [1] * 100_000}), "ts")
        session.sql("CREATE TABLE t AS SELECT * FROM (VALUES (1, 'a')) AS v (k, name)")
        text = "SELECT s.ts, t.name FROM s JOIN t USING (k)"
        query = session.sql(text)
        assert query.to_arrow().num_rows == 100_000
        assert "read again" not in str(session.sql(f"EXPLAIN {text}"))


def test_what_cannot_be_read_again_is_refused() -> None:
    live = Live()
    live.stream("s", STEADY)
    live.session.sql("CREATE TABLE t AS SELECT * FROM (VALUES (1, 'a')) AS v (k, name)")
    live.session.set("table_refresh", "1 hour")
    with pytest.raises(NotSupportedError, match="aggregated before") as refused:
        live.session.sql(
            "SELECT s.ts FROM s JOIN (SELECT max(k) AS k FROM t) AS m ON m.k > 0"
        ).to_arrow()
    assert refused.value.position is not None
    assert "read again every 1 hour" in str(
        live.session.sql("EXPLAIN SELECT s.ts FROM s JOIN t ON t.k > 0")
    )
    with pytest.raises(SettingError, match="1000 rows"):
        live.session.set("table_refresh", "1000 rows")


def test_versions_of_files_and_of_tables_in_memory(tmp_path: Path) -> None:
    file = tmp_path / "t.parquet"
    pq.write_table(pa.table({"k": [1]}), file)
    with cql.connect(spark=False) as session:
        session.create_stream("files", str(file))
        session.sql("CREATE TABLE held (k INT)")
        for name, change in (
            ("files", lambda: os.utime(file, ns=(1, 1))),
            ("held", lambda: session.sql("INSERT INTO held VALUES (1)")),
        ):
            relation = session._catalog.find((name,))
            assert relation is not None
            before = relation.source().version()
            assert relation.source().version() == before
            change()
            assert relation.source().version() != before


@pytest.mark.spark
def test_versions_of_spark_tables(spark: Any) -> None:
    with cql.connect(spark=spark) as session:
        session.sql(
            "CREATE TABLE default.versioned (k INT); INSERT INTO default.versioned VALUES (1)"
        )
        relation = session._catalog.find(("default", "versioned"))
        assert relation is not None
        before = relation.source().version()
        assert relation.source().version() == before is not None
        session.sql("INSERT INTO default.versioned VALUES (2)")
        assert relation.source().version() != before
        session.sql("DROP TABLE default.versioned")
