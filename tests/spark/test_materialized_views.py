"""Materialized views: after every refresh, their rows are those of their query."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cql
from cql.catalog.spark.tables import read as spark_read
from cql.catalog.spark.tables.write import EpochWriter
from cql.errors import CqlError, NotSupportedError
from cql.session.session import Session
from tests.support.view_tables import (
    GROWING,
    SCHEMA,
    SECOND,
    TUMBLING,
    WHOLE,
    Base,
    check,
    create,
    refreshed,
)


@pytest.mark.sampled
@pytest.mark.parametrize("name", GROWING)
def test_rows_after_each_append(
    session: Session, base: Callable[..., Base], name: str, full: bool
) -> None:
    one = base()
    one.add(one.rows(300), files=2)
    text = one.text(GROWING[name])
    assert "it has no rows yet" in create(session, text)
    assert check(session, text) > 0
    rng = random.Random(name)
    for _ in range(12 if full else 4):
        one.add(
            one.rows(rng.choice([1, 20, 200]), behind=rng.choice([4, 8, 90, 900])),
            files=rng.choice([1, 2]),
        )
        assert " refreshed: " in refreshed(session)
        check(session, text)
    assert "up to date" in refreshed(session)
    assert " computed: " in refreshed(session, "FULL")
    check(session, text)


@pytest.mark.sampled
@pytest.mark.parametrize("name", WHOLE)
def test_other_queries_are_computed_anew(
    session: Session, base: Callable[..., Base], name: str
) -> None:
    one = base()
    one.add(one.rows(300))
    text = one.text(WHOLE[name])
    create(session, text)
    for count in (20, 100):
        assert check(session, text) > 0
        one.add(one.rows(count))
        assert " computed: " in refreshed(session)
    check(session, text)
    assert "up to date" in refreshed(session)


@pytest.mark.parametrize("name", ["tumbling", "sliding", "cumulating"])
def test_max_advance(session: Session, base: Callable[..., Base], name: str) -> None:
    one = base(clause="MAX ADVANCE 30 MINUTES")
    one.add(one.rows(200, ahead=0.02))
    text = one.text(GROWING[name])
    create(session, text)
    for count in (1, 3, 150, 30):
        one.add(one.rows(count, ahead=0.02))
        assert " refreshed: " in refreshed(session)
        check(session, text)


@pytest.mark.parametrize(("second", "closed"), [(124, False), (125, True)])
def test_a_window_is_final_from_its_watermark_on(
    session: Session, base: Callable[..., Base], second: int, closed: bool
) -> None:
    """With a slack of 5 seconds, a row of second 125 closes the window that ends at 120."""
    one = base()
    text = one.text("SELECT count(*) AS n, window_end FROM {s} [RANGE 1 MINUTE SLIDE 1 MINUTE]")
    last = 120 * SECOND - 1

    def at(*times: int) -> pa.Table:
        none = pa.nulls(len(times), pa.int64())
        stamps = pa.array(times, pa.int64()).cast(SCHEMA.field("ts").type)
        return pa.table([stamps, none, none, none.cast(pa.string())], schema=SCHEMA)

    one.add(at(61 * SECOND, second * SECOND))
    create(session, text)
    one.add(at(last, last))
    assert " refreshed: " in refreshed(session)
    check(session, text)
    first = session.sql("SELECT min_by(n, window_end) AS n FROM default.v").to_arrow()
    assert first.to_pylist() == [{"n": 1 if closed else 3}]


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("kind", "sql", "clause", "window"),
    [
        (pa.int64(), "bigint", "ORDERED BY ts WITHIN 3", "[RANGE 100 SLIDE 20]"),
        (pa.int32(), "int", "ORDERED BY ts IN SECONDS WITHIN 3 SECONDS", "[RANGE 60 SLIDE 60]"),
        (pa.date32(), "date", "ORDERED BY ts WITHIN 2 DAYS", "[RANGE 14 DAYS SLIDE 7 DAYS]"),
    ],
    ids=str,
)
def test_times_of_other_types(
    spark: Any, session: Session, tmp_path: Path, kind: Any, sql: str, clause: str, window: str
) -> None:
    rng, folder = np.random.default_rng(5), tmp_path / "rows"
    folder.mkdir()
    now = 1000 + np.arange(900) // 3 - rng.integers(0, 6, 900)

    def add(first: int, last: int) -> None:
        times = pa.array(now[first:last])
        times = times.cast(pa.int32()).cast(kind) if kind == pa.date32() else times.cast(kind)
        part = pa.table({"ts": times, "k": pa.array(now[first:last] % 5)})
        pq.write_table(part, folder / f"{first:04d}.parquet", row_group_size=70)

    add(0, 400)
    spark.sql(
        f"CREATE TABLE default.timed (ts {sql}, k bigint) USING parquet"
        f" LOCATION '{folder.as_uri()}'"
    )
    try:
        session.sql(f"CREATE STREAM default.stimed FROM TABLE default.timed {clause}")
        text = f"SELECT k, count(*) AS n, window_end FROM default.stimed {window} GROUP BY k"
        create(session, text)
        for first in (400, 401, 600):
            add(first, {400: 401, 401: 600, 600: 900}[first])
            assert " refreshed: " in refreshed(session)
            assert check(session, text) > 10
    finally:
        session.sql("DROP MATERIALIZED VIEW IF EXISTS default.v")
        session.sql("DROP STREAM IF EXISTS default.stimed")
        spark.sql("DROP TABLE default.timed")


def test_several_files_in_an_epoch(
    session: Session, base: Callable[..., Base], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(EpochWriter.__init__.__kwdefaults__, "max_rows_per_file", 7)
    one = base()
    text = one.text(GROWING["sliding"])
    one.add(one.rows(300))
    create(session, text)
    for how in ("", "", "FULL"):
        one.add(one.rows(100))
        refreshed(session, how)
        check(session, text)


def test_two_inputs(session: Session, base: Callable[..., Base]) -> None:
    """The watermark is that of the slower input."""
    one, other = base(), base()
    text = (
        f"SELECT k, count(*) AS n, window_end FROM (SELECT ts, k FROM {one.stream} UNION ALL"
        f" SELECT ts, k FROM {other.stream}) [RANGE 2 MINUTES SLIDE 1 MINUTE WA ts] GROUP BY k"
    )
    join = (
        f"SELECT a.ts, a.v, b.v AS w FROM {one.stream} AS a JOIN {other.stream} AS b ON a.k = b.k"
        " AND b.ts BETWEEN a.ts - INTERVAL 9 SECONDS AND a.ts + INTERVAL 20 SECONDS"
    )
    for query in (text, join):
        one.add(one.rows(300))
        create(session, query)
        for grows, count in ((other, 100), (one, 10), (other, 400), (one, 500)):
            grows.add(grows.rows(count))
            assert " refreshed: " in refreshed(session)
            check(session, query)
        session.sql("DROP MATERIALIZED VIEW default.v")


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["filter", "sliding", "cumulating", "band join"])
def test_on_executors(session: Session, base: Callable[..., Base], name: str) -> None:
    one = base()
    one.add(one.rows(300), files=2)
    text = one.text(GROWING[name])
    try:
        for tasks, count in ((4, 0), (0, 100), (5, 400)):
            session.set("runtime", "spark")
            session.set("partitions", tasks)
            if count:
                one.add(one.rows(count))
                assert " refreshed: " in refreshed(session)
            else:
                create(session, text)
            session.set("runtime", "depth_first")
            assert check(session, text) > 0
        session.set("runtime", "spark")
        with pytest.raises(NotSupportedError, match="runtime = 'spark' is not supported"):
            session.sql(
                "CREATE OR REPLACE MATERIALIZED VIEW default.v AS"
                f" SELECT k, v FROM {one.table} LIMIT 3"
            )
    finally:
        session.set("runtime", "depth_first")
        session.set("partitions", 0)


def test_only_the_row_groups_that_new_rows_change_are_read(
    session: Session, base: Callable[..., Base], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = base()
    one.add(one.rows(5_000), files=4)  # 100 groups of 50 seconds
    text = one.text(GROWING["sliding"])
    create(session, text)
    read: list[tuple[str, int]] = []
    real = spark_read._group_batches

    def counted(files: Any, file: Any, schema: Any, group: int) -> Iterator[Any]:
        read.append((file.path, group))
        return real(files, file, schema, group)

    monkeypatch.setattr(spark_read, "_group_batches", counted)
    one.add(one.rows(100))
    assert " refreshed: " in refreshed(session)
    assert 2 <= len(set(read)) <= 12  # a window of five minutes, and two groups of new rows
    check(session, text)


def test_partitioned_tables(spark: Any, session: Session, base: Callable[..., Base]) -> None:
    """Files of a new partition may be read before others: then all rows are computed anew."""
    one = base()
    spark.sql(
        "CREATE TABLE default.parted (ts timestamp, v bigint, k bigint, day int) USING parquet"
        " PARTITIONED BY (day)"
    )
    session.sql(
        "CREATE STREAM default.parted_days FROM TABLE default.parted"
        " WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS"
    )
    text = (
        "SELECT day, count(*) AS n, window_end FROM default.parted_days"
        " [RANGE 2 MINUTES SLIDE 1 MINUTE]"
        " GROUP BY day"
    )
    try:
        for day, how in ((1, "no rows yet"), (1, " refreshed: "), (2, " refreshed: "), (1, "read")):
            session.register_table("more", one.rows(100), replace=True)
            session.sql(f"INSERT INTO default.parted SELECT ts, v, k, {day} FROM more")
            made = create(session, text) if how == "no rows yet" else refreshed(session)
            assert how in made
            check(session, text)
    finally:
        session.sql("DROP MATERIALIZED VIEW IF EXISTS default.v")
        session.sql("DROP STREAM default.parted_days")
        spark.sql("DROP TABLE default.parted")


def test_rows_without_a_time(session: Session, base: Callable[..., Base]) -> None:
    one = base()
    filtered, windows = one.text("SELECT * FROM {s} WHERE v < 50"), one.text(TUMBLING)
    one.add(one.rows(100))
    create(session, filtered)
    some = one.rows(60)
    times = some["ts"].to_pylist()
    times[7] = times[55] = None
    bad = some.set_column(0, "ts", pa.array(times, SCHEMA.field("ts").type))
    path = one.add(bad)
    assert " refreshed: " in refreshed(session)
    check(session, filtered)
    path.unlink()
    session.sql(f"CREATE OR REPLACE MATERIALIZED VIEW default.v AS {windows}")
    one.add(bad)
    with pytest.raises(CqlError, match=r"in materialized view default\.v"):
        refreshed(session)
    with pytest.raises(CqlError):
        session.sql(windows).to_arrow()
    keeps = f"{windows} ON BAD ROW KEEP"
    session.sql(f"CREATE OR REPLACE MATERIALIZED VIEW default.v AS {keeps}")
    one.add(bad)
    assert " refreshed: " in refreshed(session)
    check(session, keeps)


def test_an_empty_table(session: Session, base: Callable[..., Base]) -> None:
    one = base()
    text = one.text(TUMBLING)
    create(session, text)
    assert check(session, text) == 0
    one.add(one.rows(200))
    assert " refreshed: " in refreshed(session)
    assert check(session, text) > 0


# --------------------------------------------------------------------------- other changes


def test_changed_files(session: Session, base: Callable[..., Base]) -> None:
    one = base()
    text = one.text(TUMBLING)
    paths = [one.add(one.rows(100)) for _ in range(4)]
    create(session, text)
    pq.write_table(one.rows(90), paths[1])
    assert f"file {paths[1]} of {one.stream} was written again" in refreshed(session)
    check(session, text)
    paths[2].unlink()
    assert f"file {paths[2]} of {one.stream} was removed" in refreshed(session)
    check(session, text)
    early = one.add(one.rows(50), name="early")
    made = refreshed(session)
    assert f"the new file {early} of {one.stream} is read before older ones" in made
    check(session, text)
    rows = one.text(GROWING["filter"])
    session.sql(f"CREATE OR REPLACE MATERIALIZED VIEW default.v AS {rows}")
    one.add(one.rows(50), name="early")
    assert " refreshed: " in refreshed(session)  # without a state, rows may come in any order
    check(session, rows)
    in_time = one.text(GROWING["rows in time"])
    session.sql(f"CREATE OR REPLACE MATERIALIZED VIEW default.v AS {in_time}")
    one.add(one.rows(50), name="early")
    assert "is read before older ones" in refreshed(session)  # rows behind it may be late now
    check(session, in_time)


def test_another_declaration(session: Session, base: Callable[..., Base]) -> None:
    one = base()
    text = one.text(TUMBLING)
    one.add(one.rows(300))
    create(session, text)
    session.sql(
        f"CREATE OR REPLACE STREAM {one.stream} FROM TABLE {one.table}"
        " WATERMARK FOR ts AS ts - INTERVAL 1 SECONDS"
    )
    assert "its plan is another one now" in refreshed(session)
    check(session, text)


def test_reasons_are_told(session: Session, base: Callable[..., Base]) -> None:
    one = base()
    one.add(one.rows(100))
    told: list[str] = []
    with cql.connect(session._catalog.spark.session()) as other:
        other.on_notice = told.append
        create(other, one.text(WHOLE["sessions"]))
        assert not told
        one.add(one.rows(100))
        refreshed(other)
        described = dict(other.sql("DESCRIBE MATERIALIZED VIEW default.v").rows)
        shown = other.sql("EXPLAIN REFRESH MATERIALIZED VIEW default.v").text or ""
        growing = "CREATE OR REPLACE MATERIALIZED VIEW default.v AS " + one.text(TUMBLING)
        other.sql(growing)
        shown_growing = other.sql("EXPLAIN REFRESH MATERIALIZED VIEW default.v").text or ""
    assert shown_growing.endswith("refresh: computes the windows that rows of new files can change")
    why = "sessions have no bounds that are known beforehand"
    assert told == [f"materialized view default.v was computed anew: {why}"]
    assert described["refresh"] == f"computes all rows: {why}"
    assert shown.splitlines()[-1] == f"refresh: computes all rows: {why}"
