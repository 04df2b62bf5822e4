"""Watermarks that come with the rows: a part of a stream gives its share of the results and of the
ledger (``catalog.memory.row_watermarks``)."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import cql
from cql.base.model import Field, Schema
from cql.base.types import BIGINT
from cql.catalog.memory.row_watermarks import RowWatermarks
from cql.catalog.sources import TableSource
from cql.errors import CatalogError
from cql.executor.morsel.row_watermarks import WatermarkPass
from cql.executor.protocols import BLOCK_ROWS
from cql.planner.nodes.catalog import Progress, Statistics, StreamSpec
from cql.session.session import Session
from cql.spark.job.job import TaskRelation
from tests.reference.naive_progress import NEVER, Column, believed
from tests.support.runtimes import RUNTIMES, named

KEYS = 9


def disordered(seed: object, rows: int = 1500, *, slack: int, far: float = 0.01) -> pa.Table:
    """Rows of KEYS keys; times rise with steps of up to 4 and lie up to twice the slack behind,
    and a share of ``far`` are far ahead or NULL: a row without a time is a bad row."""
    rng = random.Random(f"row watermarks {seed}")
    now, times = 0, []
    for _ in range(rows):
        now += rng.choice((0, 0, 1, 1, 2, 4))
        time: int | None = now - rng.choice((0, 0, rng.randint(0, 2 * slack + 3)))
        if rng.random() < far:
            time = rng.choice((None, now + 500, now + 5000))
        times.append(time)
    return pa.table(
        {
            "t": pa.array(times, pa.int64()),
            "k": [rng.randrange(KEYS) for _ in range(rows)],
            "v": [rng.randrange(100) for _ in range(rows)],
        }
    )


def with_watermarks(table: pa.Table, slack: int, most: int | None) -> pa.Table:
    """The stream with the watermark before each row in a column ``before``, by the reference."""
    progress = Progress("t", slack, max_advance=most)
    column, before = Column(progress, believed(BIGINT, progress)), []
    for time in table["t"].to_pylist():
        begins = time is not None and column.begins(time)  # the second row may confirm the first
        before.append(None if column.mark == NEVER else int(column.mark))
        if time is not None and not begins:
            column.row(time)
    return table.append_column("before", pa.array(before, pa.int64()))


def keys_of(table: pa.Table, parts: int, seed: object) -> list[pa.Table]:
    """The table cut by key, at random."""
    rng = random.Random(f"keys {seed}")
    home = np.array([rng.randrange(parts) for _ in range(KEYS)])
    part = home[table["k"].to_numpy()]
    return [table.filter(pa.array(part == p)) for p in range(parts)]


def times_of(table: pa.Table, every: int) -> list[pa.Table]:
    """The table cut at multiples of ``every``; rows without a time are a part."""
    part = [None if t is None else t // every for t in table["t"].to_pylist()]
    return [table.filter(pa.array([p == one for p in part])) for one in dict.fromkeys(part)]


class Stream:
    """A declared stream with its parts."""

    def __init__(self, name: str, whole: pa.Table, slack: int, most: int | None) -> None:
        self.name, self.slack, self.most = name, slack, most
        self.whole = whole
        self.marked = with_watermarks(whole, slack, most)

    def declare(self, session: Session, data: Any) -> None:
        session.create_stream(
            self.name,
            data,
            ordered_by="t",
            slack=self.slack,
            max_advance=self.most,
            replace=True,
        )

    def declare_part(self, session: Session, part: pa.Table) -> None:
        inner = TableSource(part, what=f"stream {self.name}")
        self.declare(session, RowWatermarks(inner, {"t": "before"}, what=f"stream {self.name}"))


@contextlib.contextmanager
def connected(**settings: Any) -> Iterator[Session]:
    """A session that counts rows without a time as bad, and tells nobody of rows far ahead."""
    with cql.connect(on_bad_row="keep", **settings) as session:
        session.on_notice = lambda text: None
        yield session


def rows_of(table: pa.Table) -> Counter[str]:
    return Counter(map(repr, table.to_pylist()))


def late_of(query: Any) -> Counter[tuple[str, str]]:
    counts: Counter[tuple[str, str]] = Counter()
    for entry in query.late().to_pylist():
        if entry["kind"] not in ("beyond MAX ADVANCE", "jump within MAX ADVANCE"):
            counts[entry["place"], entry["kind"]] += entry["count"]
    return counts


def lateness_of(query: Any) -> dict[str, int]:
    return {
        entry["place"]: entry["max_lateness"] or 0
        for entry in query.late().to_pylist()
        if entry["kind"] == "rows"
    }


def check(
    session: Session, text: str, streams: Sequence[Stream], parts: Sequence[Sequence[pa.Table]]
) -> None:
    """The parts, each with the watermarks of the whole, give the rows and the ledger of the
    whole."""
    for stream in streams:
        stream.declare(session, stream.whole)
    whole = session.sql(text)
    expected, late, lateness = rows_of(whole.to_arrow()), late_of(whole), lateness_of(whole)
    assert sum(late.values()) > 0
    assert expected
    found: Counter[str] = Counter()
    counted: Counter[tuple[str, str]] = Counter()
    furthest = dict.fromkeys(lateness, 0)
    for part in parts:
        for stream, rows in zip(streams, part, strict=True):
            stream.declare_part(session, rows)
        query = session.sql(text)
        found += rows_of(query.to_arrow())
        counted += late_of(query)
        for place, most in lateness_of(query).items():
            furthest[place] = max(furthest[place], most)
    assert found == expected
    assert +counted == +late
    assert furthest == lateness


#: Queries whose rows of one key do not depend on the rows of other keys.
BY_KEY = {
    "tumbling": "SELECT k, count(*) AS n, window_end FROM s [RANGE 20 SLIDE 20] GROUP BY k",
    "sliding": "SELECT k, max(v) AS m, window_end FROM s [RANGE 30 SLIDE 10] GROUP BY k",
    "cumulating": "SELECT k, sum(v) AS m, window_end FROM s [RANGE 40 CUMULATE 10] GROUP BY k",
    "session": "SELECT k, count(*) AS n, window_start, window_end FROM s [SESSION 7] GROUP BY k",
    "distinct": "SELECT DISTINCT t, k FROM s",
    "filtered": "SELECT k, sum(v) AS n, window_end FROM s [RANGE 20 SLIDE 20]"
    " WHERE v < 9 GROUP BY k",
    "relation": "SELECT ISTREAM k, count(*) AS n FROM s [RANGE 12] GROUP BY k",
    "self join": "SELECT a.k, a.t, b.t AS u, a.v, b.v AS w FROM s AS a JOIN s AS b"
    " ON a.k = b.k AND b.t BETWEEN a.t - 2 AND a.t",
}
JOINS = {
    "band join": "SELECT a.k, a.t, b.t AS u, a.v, b.v AS w FROM s AS a JOIN r AS b"
    " ON a.k = b.k AND b.t BETWEEN a.t - 3 AND a.t + 2",
    "left join": "SELECT a.k, a.t, b.t AS u, a.v, b.v AS w FROM s AS a LEFT JOIN r AS b"
    " ON a.k = b.k AND b.t BETWEEN a.t AND a.t + 2",
    "count above": "SELECT k, count(*) AS n, window_end FROM (SELECT a.k, a.t FROM s AS a"
    " JOIN r AS b ON a.k = b.k AND b.t BETWEEN a.t - 3 AND a.t + 2) AS j"
    " [RANGE 20 SLIDE 20 WA t] GROUP BY k",
    "asof": "SELECT a.k, a.t, a.v, b.v AS w FROM s AS a ASOF JOIN r AS b"
    " ON a.k = b.k AND a.t >= b.t",
}


@pytest.mark.sampled
@pytest.mark.parametrize("most", [None, 50])
@pytest.mark.parametrize("name", BY_KEY)
def test_parts_by_key_are_the_whole(name: str, most: int | None) -> None:
    stream = Stream("s", disordered(name, slack=4), 4, most)
    with connected() as session:
        for seed, count in enumerate((1, 2, 5)):
            parts = keys_of(stream.marked, count, seed)
            check(session, BY_KEY[name], [stream], [[part] for part in parts])


@pytest.mark.parametrize("name", JOINS)
def test_parts_of_both_inputs_by_key_are_the_whole(name: str) -> None:
    streams = [Stream(n, disordered(f"{n} {name}", slack=4), 4, None) for n in "sr"]
    with connected() as session:
        for seed, count in enumerate((1, 3)):
            cut = [keys_of(stream.marked, count, seed) for stream in streams]
            check(session, JOINS[name], streams, list(zip(*cut, strict=True)))


@pytest.mark.parametrize("every", [20, 60, 700])
def test_parts_by_time_are_the_whole(every: int) -> None:
    stream = Stream("s", disordered(every, slack=4), 4, None)
    parts = [[part] for part in times_of(stream.marked, every)]
    with connected() as session:
        check(session, BY_KEY["tumbling"], [stream], parts)


@pytest.mark.parametrize("runtime", RUNTIMES, ids=named)
def test_every_runtime_takes_them(runtime: dict[str, Any]) -> None:
    stream = Stream("s", disordered("runtimes", slack=4), 4, 50)
    parts = [[part] for part in keys_of(stream.marked, 2, 0)]
    with connected(morsel_rows=64, **runtime) as session:
        for name in ("tumbling", "session"):
            check(session, BY_KEY[name], [stream], parts)


def test_a_whole_stream_has_the_ledger_of_its_rows() -> None:
    """The distances behind the highest time are counted, too: the suggested slack is the same."""
    stream = Stream("s", disordered("slack", slack=4, far=0), 4, None)
    text = BY_KEY["tumbling"]
    with connected() as session:
        stream.declare(session, stream.whole)
        expected = session.sql(text)
        expected.to_arrow()
        stream.declare_part(session, stream.marked)
        found = session.sql(text)
        found.to_arrow()
        kept = [e for e in expected.late().to_pylist() if e["kind"] in ("rows", "pairs")]
        assert kept[0]["suggested_slack"] is not None
        assert [e for e in found.late().to_pylist() if e["kind"] in ("rows", "pairs")] == kept


@pytest.mark.parametrize("row", [2, BLOCK_ROWS])
def test_descending_watermarks_are_refused(row: int) -> None:
    """``row`` is the first that descends: within a block, or at its start."""
    before = [None, *range(5, row + 4), 4]
    table = pa.table({"t": range(5, row + 6), "before": pa.array(before, pa.int64())})
    source = RowWatermarks(TableSource(table, what="stream s"), {"t": "before"}, what="stream s")
    assert source.schema.names == ("t",)
    assert source.schema[0].type == BIGINT
    with connected() as session:
        session.create_stream("s", source, ordered_by="t")
        with pytest.raises(CatalogError, match="stream s: the watermarks of t descend"):
            session.sql("SELECT t FROM s").to_arrow()


def test_a_watermark_for_each_value_is_not_supported() -> None:
    table = pa.table({"t": [5, 6], "k": [1, 2], "before": pa.array([None, 5], pa.int64())})
    source = RowWatermarks(TableSource(table, what="stream s"), {"t": "before"}, what="stream s")
    with connected() as session:
        session.create_stream("s", source, ordered_by="t", punctuated_by="k")
        text = "SELECT k, count(*) AS n FROM s [RANGE 5 SLIDE 5] GROUP BY k"
        with pytest.raises(CatalogError, match="PUNCTUATE BY: rows that bring watermarks"):
            session.sql(text).to_arrow()


# ------------------------------------------------------------------ without a run


def relation_of(stream: Stream) -> TaskRelation:
    """The stream as a task knows it."""
    progress = Progress("t", stream.slack, max_advance=stream.most)
    schema = Schema((Field("t", BIGINT), Field("k", BIGINT), Field("v", BIGINT)))
    spec = StreamSpec((progress,))
    return TaskRelation(("s",), "stream", schema, spec, True, Statistics(), {})


def times_in(table: pa.Table) -> tuple[Any, Any]:
    column = table["t"].combine_chunks()
    return column.fill_null(0).to_numpy(), column.is_valid().cast(pa.uint8()).to_numpy()


@pytest.mark.parametrize("most", [None, 50])
@pytest.mark.parametrize("seed", range(5))
def test_a_pass_gives_the_watermarks_and_the_late_rows_of_a_run(
    seed: int, most: int | None
) -> None:
    """Cut anywhere, with the state behind each part given to the next one as numbers."""
    stream = Stream("s", disordered(f"pass {seed}", slack=4), 4, most)
    relation = relation_of(stream)
    assert relation.stream is not None
    (progress,) = relation.stream.progress
    rng = random.Random(seed)
    made, late, state = [], 0, None
    at = 0
    while at < stream.whole.num_rows:
        part = stream.whole.slice(at, rng.choice((1, 2, 3, 70)))
        watermarks = WatermarkPass(relation, progress)
        if state is not None:
            watermarks.state = state
        made += watermarks.take(*times_in(part)).tolist()
        late += watermarks.attribute.late_rows
        state = watermarks.state
        at += part.num_rows
    least = np.iinfo(np.int64).min
    assert [None if m == least else m for m in made] == stream.marked["before"].to_pylist()
    with connected() as session:
        stream.declare(session, stream.whole)
        query = session.sql("SELECT t, k FROM s")
        query.to_arrow()
    assert {"rows": late} == {kind: n for (_, kind), n in late_of(query).items()}


@pytest.mark.parametrize("most", [None, 50])
def test_the_greatest_time_of_a_part_gives_the_state_behind_it(most: int | None) -> None:
    """Where it does not suffice, ``skip`` says so."""
    skipped = 0
    for seed in range(40):
        stream = Stream("s", disordered(f"skip {seed}", 300, slack=4), 4, most)
        relation = relation_of(stream)
        assert relation.stream is not None
        (progress,) = relation.stream.progress
        taking, skipping = (WatermarkPass(relation, progress) for _ in range(2))
        for at in range(0, 300, 20):
            part = stream.whole.slice(at, 20)
            times, valid = times_in(part)
            before = taking.state
            taking.take(times, valid)
            skipping.state = before
            if skipping.skip(int(times[valid != 0].max())):
                skipped += 1
                assert skipping.attribute.watermark() == taking.attribute.watermark()
                rest = times_in(stream.whole.slice(at + 20))
                again = WatermarkPass(relation, progress)
                again.state = taking.state
                assert again.take(*rest).tolist() == skipping.take(*rest).tolist()
    assert skipped > 200
