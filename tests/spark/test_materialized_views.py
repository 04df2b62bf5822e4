"""Materialized views: after every refresh, their rows are those of their query."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cql
from cql.catalog.spark.tables import read as spark_read
from cql.catalog.spark.tables import staging
from cql.catalog.spark.tables.write import EpochWriter
from cql.errors import BindError, CatalogError, CqlError, NotSupportedError, RunError
from cql.session.session import Session
from tests.support.paths import ROOT

SECOND = 1_000_000
SCHEMA = pa.schema(
    [
        ("ts", pa.timestamp("us", tz="UTC")),
        ("k", pa.int64()),
        ("v", pa.int64()),
        ("w", pa.string()),
    ]
)
TUMBLING = (
    "SELECT k, count(*) AS n, sum(v) AS s, window_end FROM {s} [RANGE 1 MINUTE SLIDE 1 MINUTE]"
    " GROUP BY k"
)
#: Queries whose refresh computes what new files change.
GROWING = {
    "filter": "SELECT ts, k + 1 AS k, w FROM {s} WHERE v % 7 = 3",
    "tumbling": TUMBLING,
    "sliding": "SELECT k, max(v) AS m, w, window_start FROM {s} [RANGE 5 MINUTES SLIDE 1 MINUTE]"
    " WHERE v < 80 GROUP BY k, w",
    "uneven": "SELECT count(DISTINCT k) AS n, avg(v) AS a, window_end FROM {s}"
    " [RANGE 100 SECONDS SLIDE 40 SECONDS OFFSET 7 SECONDS]",
    "over gaps": "SELECT k, min(w) AS m, window_end FROM {s} [RANGE 10 SECONDS SLIDE 45 SECONDS]"
    " GROUP BY k",
    "cumulating": "SELECT k, count(*) AS n, window_end FROM {s} [RANGE 4 MINUTES CUMULATE 1 MINUTE]"
    " GROUP BY k",
    "top of each window": "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start,"
    " window_end ORDER BY n DESC, k) AS r FROM (SELECT k, count(*) AS n, window_start, window_end"
    " FROM {s} [RANGE 2 MINUTES SLIDE 1 MINUTE] GROUP BY k)) WHERE r <= 3",
    "windows of windows": "SELECT max_by(k, n) AS k, max(n) AS n, count(*) AS c, window_end FROM"
    " (SELECT k, count(*) AS n, window_time FROM {s} [RANGE 5 MINUTES SLIDE 1 MINUTE] GROUP BY k)"
    " [RANGE 2 MINUTES SLIDE 2 MINUTES WA window_time]",
    "in order": "SELECT k, first(v) AS f, string_agg(CAST(v AS STRING), ' ') AS vs, window_end"
    " FROM {s} [RANGE 2 MINUTES SLIDE 1 MINUTE] GROUP BY k",
    "band join": "SELECT a.ts, a.v, b.v AS w FROM {s} AS a LEFT JOIN {s} AS b ON a.k = b.k AND"
    " b.v < 20 AND b.ts BETWEEN a.ts - INTERVAL 20 SECONDS AND a.ts + INTERVAL 5 SECONDS",
}
#: Queries whose refresh computes all rows.
WHOLE = {
    "sessions": "SELECT k, count(*) AS n FROM {s} [SESSION 30 SECONDS] GROUP BY k",
    "no window": "SELECT k, count(*) AS n FROM {t} GROUP BY k",
    "a relation": "SELECT k, v FROM {s} [RANGE 1 MINUTE]",
    "the last rows": "SELECT k, v FROM {s} ORDER BY v, ts, k LIMIT 10",
}


class Base:
    """A table of Spark over Parquet files that the test adds, and a stream over it. Times rise by a
    second on average; about a third of the rows lie up to ``behind`` seconds back."""

    def __init__(
        self, spark: Any, session: Session, folder: Path, *, slack: int = 5, clause: str = ""
    ) -> None:
        self.folder, self.files = folder, 0
        self.table, self.stream = f"default.{folder.name}_t", f"default.{folder.name}_s"
        folder.mkdir()
        columns = "ts timestamp, k bigint, v bigint, w string"
        spark.sql(
            f"CREATE TABLE {self.table} ({columns}) USING parquet LOCATION '{folder.as_uri()}'"
        )
        session.sql(
            f"CREATE STREAM {self.stream} FROM TABLE {self.table}"
            f" WATERMARK FOR ts AS ts - INTERVAL {slack} SECONDS {clause}"
        )
        self._rng = np.random.default_rng(zlib.crc32(folder.name.encode()))
        self._now = 0

    def rows(self, count: int, *, behind: int = 8, ahead: float = 0.0) -> pa.Table:
        rng = self._rng
        now = self._now + np.cumsum(rng.integers(0, 2 * SECOND, count))
        self._now = int(now[-1])
        back = rng.integers(0, behind * SECOND + 1, count) * (rng.random(count) < 0.3)
        far = (rng.random(count) < ahead) * rng.integers(2, 9, count) * 3_600 * SECOND
        words = np.array(["a", "b", None], object)
        return pa.table(
            [
                pa.array(now - back + far).cast(SCHEMA.field("ts").type),
                pa.array(rng.integers(0, 5, count)),
                pa.array(rng.integers(0, 100, count)),
                pa.array(words[rng.integers(0, 3, count)], pa.string()),
            ],
            schema=SCHEMA,
        )

    def add(self, rows: pa.Table, *, files: int = 1, name: str = "part", group: int = 50) -> Path:
        share = -(-rows.num_rows // files)
        path = self.folder
        for n in range(files):
            path = self.folder / f"{name}-{self.files:05d}.parquet"
            pq.write_table(rows.slice(n * share, share), path, row_group_size=group)
            self.files += 1
        return path

    def clear(self) -> None:
        for file in self.folder.glob("*.parquet"):
            file.unlink()
        self.files = 0

    def text(self, query: str) -> str:
        return query.format(s=self.stream, t=self.table)


@pytest.fixture(scope="module")
def session(spark: Any) -> Iterator[Session]:
    with cql.connect(spark) as made:
        made.set("runtime", "depth_first")
        made.on_notice = lambda text: None
        yield made


@pytest.fixture
def base(
    spark: Any, session: Session, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Callable[..., Base]]:
    made: list[Base] = []

    def make(**options: Any) -> Base:
        name = f"b{zlib.crc32(request.node.nodeid.encode())}_{len(made)}"
        made.append(Base(spark, session, tmp_path / name, **options))
        return made[-1]

    yield make
    session.sql("DROP MATERIALIZED VIEW IF EXISTS default.v")
    for one in made:
        session.sql(f"DROP STREAM {one.stream}")
        spark.sql(f"DROP TABLE {one.table}")


def rows_of(session: Session, text: str) -> list[str]:
    return sorted(map(repr, session.sql(text).to_arrow().to_pylist()))


def check(session: Session, text: str, view: str = "default.v") -> int:
    """The rows of the view, here and in Spark, are those of ``text``; returns their number."""
    expected = rows_of(session, text)
    assert rows_of(session, f"SELECT * FROM {view}") == expected
    return len(expected)


def create(session: Session, text: str, clauses: str = "") -> str:
    return session.sql(f"CREATE MATERIALIZED VIEW default.v {clauses} AS {text}").message


def refreshed(session: Session, how: str = "") -> str:
    return session.sql(f"REFRESH MATERIALIZED VIEW default.v {how}").message


# --------------------------------------------------------------------------- rows


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
            one.rows(rng.choice([1, 20, 200]), behind=rng.choice([4, 8, 90])),
            files=rng.choice([1, 2]),
        )
        assert " refreshed: " in refreshed(session)
        check(session, text)
    assert "up to date" in refreshed(session)
    assert " computed: " in refreshed(session, "FULL")
    check(session, text)


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
        "CREATE STREAM default.days FROM TABLE default.parted"
        " WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS"
    )
    text = (
        "SELECT day, count(*) AS n, window_end FROM default.days [RANGE 2 MINUTES SLIDE 1 MINUTE]"
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
        session.sql("DROP STREAM default.days")
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


# --------------------------------------------------------------------------- crashes


class Crash(BaseException):
    """A process that ends here."""


class Steps:
    """``os`` for the module that commits; the call number ``fatal`` of those that change files
    raises Crash: before it, behind it, or (``dead``) with all calls that follow."""

    def __init__(self, fatal: int, how: str) -> None:
        self.count, self.name = 0, ""
        self._fatal, self._how = fatal, how

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in ("replace", "rename", "unlink", "rmdir", "mkdir", "fsync"):
            return real

        def step(*args: Any, **named: Any) -> Any:
            self.count += 1
            if self.count == self._fatal:
                self.name = name
            if self.count == self._fatal and self._how != "behind":
                raise Crash
            if self.count > self._fatal and self._how == "dead":
                raise Crash
            made = real(*args, **named)
            if self.count == self._fatal:
                raise Crash
            return made

        return step


@pytest.mark.parametrize("how", ["before", "behind", "dead"])
@pytest.mark.parametrize("name", ["part", "early"])
def test_a_crash_at_each_step(
    spark: Any,
    session: Session,
    base: Callable[..., Base],
    monkeypatch: pytest.MonkeyPatch,
    how: str,
    name: str,
) -> None:
    """A file ``part-…`` gives new rows; all rows are computed anew after a file ``early-…``."""
    one = base()
    one.add(one.rows(300))
    text = one.text(TUMBLING)
    create(session, text)
    names = set()
    with cql.connect(spark) as other:
        other.on_notice = lambda message: None
        for fatal in itertools.count(1):
            one.add(one.rows(150), name=name)
            steps = Steps(fatal, how)
            with monkeypatch.context() as patch, contextlib.suppress(Crash):
                patch.setattr(staging, "os", steps)
                if how == "dead":
                    patch.setattr(staging.shutil, "rmtree", lambda *args, **named: None)
                refreshed(session)
            if steps.count < fatal:
                break
            names.add(steps.name)
            if fatal % 2:  # others append before the next refresh
                one.add(one.rows(30), name=name)
            refreshed(other)
            check(other, text)
            if one.files > 8:  # few files, so that each refresh takes the same steps
                one.clear()
                one.add(one.rows(300))
                refreshed(other)
    assert names >= {"mkdir", "fsync", "replace", "rename", "unlink"}


def test_a_select_finishes_what_a_crash_has_left(
    spark: Any, session: Session, base: Callable[..., Base], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = base()
    one.add(one.rows(300))
    text = one.text(TUMBLING)
    create(session, text)
    one.add(one.rows(150))

    def crash(*args: Any, **named: Any) -> None:
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(staging.os, "rename", crash)
        with pytest.raises(Crash):
            refreshed(session)
    with cql.connect(spark) as other:
        check(other, text)
        assert "up to date" in refreshed(other)


KILLED = """
    import os, signal, sys
    from pathlib import Path
    from cql.catalog.spark.tables.staging import Staging, last_epoch

    folder, new, when = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    last = last_epoch(folder, "t")
    staging = Staging("t", folder)
    staged = staging.path / "000000"
    staged.mkdir()
    os.link(new, staged / "part-00000.parquet")
    def kill(*args, **named):
        os.kill(os.getpid(), signal.SIGKILL)
    if when == "committed":
        os.rename = kill
    elif when == "renamed":
        os.unlink = kill
    elif when == "removed":
        os.rmdir = kill
    name = "epoch-9999999999-new"
    notes = {**last.notes, "open": [f"{name}/part-00000.parquet"]}
    removed = [folder / file for file in last.notes["open"]]
    moves = [(staged, folder / name)]
    if when == "staged":
        kill()
    staging.commit(last.number + 1, moves, (), removed, notes)
"""


@pytest.mark.parametrize("when", ["staged", "committed", "renamed", "removed"])
def test_a_killed_process(
    spark: Any, session: Session, base: Callable[..., Base], tmp_path: Path, when: str
) -> None:
    """The process replaces the rows that are open by themselves."""
    one = base()
    one.add(one.rows(300))
    text = one.text(TUMBLING)
    create(session, text)
    location = spark.sql("DESCRIBE TABLE EXTENDED default.v").collect()
    folder = Path(next(r.data_type for r in location if r.col_name == "Location")[5:])
    (opened,) = staging.last_epoch(folder, "t").notes["open"]  # type: ignore[index]
    new = tmp_path / "new.parquet"
    pq.write_table(pq.read_table(folder / opened), new)
    killed = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(KILLED), str(folder), str(new), when],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    check(session, text)
    one.add(one.rows(90))
    assert " refreshed: " in refreshed(session)
    check(session, text)


# --------------------------------------------------------------------------- sessions


def test_two_sessions(
    spark: Any, session: Session, base: Callable[..., Base], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = base()
    one.add(one.rows(300))
    text = one.text(TUMBLING)
    create(session, text)
    with cql.connect(spark) as other:
        check(other, text)
        one.add(one.rows(100))
        assert " refreshed: " in refreshed(other)
        assert "up to date" in refreshed(session)
        one.add(one.rows(100))
        real = staging.Staging.commit

        def overtaken(self: Any, *args: Any, **named: Any) -> Any:
            monkeypatch.setattr(staging.Staging, "commit", real)
            assert " refreshed: " in refreshed(other)
            return real(self, *args, **named)

        monkeypatch.setattr(staging.Staging, "commit", overtaken)
        assert "was refreshed by another session meanwhile" in refreshed(session)
        check(session, text)


def test_spark_reads_the_same_rows(spark: Any, session: Session, base: Callable[..., Base]) -> None:
    one = base()
    text = one.text(TUMBLING)
    one.add(one.rows(300))
    create(session, text)
    for count in (100, 100):
        rows = spark.sql("SELECT k, n, s, window_end FROM default.v").toArrow().to_pylist()
        assert sorted(map(repr, rows)) == rows_of(session, text)
        one.add(one.rows(count))
        refreshed(session)


def test_what_a_definition_holds(spark: Any, session: Session, base: Callable[..., Base]) -> None:
    """Constants, parameters and views of the session that makes the view."""
    one = base()
    one.add(one.rows(300))
    with cql.connect(spark) as maker:
        maker.sql(f"CREATE CONSTANT most = 70; CREATE VIEW few AS SELECT * FROM {one.stream}")
        maker.sql(
            "CREATE MATERIALIZED VIEW default.v AS SELECT k, v, 'a;b''c' AS c, :least AS p"
            " FROM few WHERE v < most AND v > :least -- the rest; of the line",
            least=20,
        )
    text = f"SELECT k, v, 'a;b''c' AS c, 20 AS p FROM {one.stream} WHERE v < 70 AND v > 20"
    assert check(session, text) > 0
    one.add(one.rows(100))
    assert " refreshed: " in refreshed(session)
    check(session, text)


def test_settings_and_functions(spark: Any, session: Session, base: Callable[..., Base]) -> None:
    """The settings of the maker decide the plan; a function's name may be that of a column."""
    one = base()
    one.add(one.rows(300))
    divided = f"SELECT k, v AS twice, 100 / (v - 50) AS q FROM {one.table}"
    with cql.connect(spark, on_bad_row="keep") as maker:
        maker.register_function("twice", twice)
        create(maker, divided)
    assert check(session, f"{divided} ON BAD ROW KEEP") > 0
    one.add(one.rows(100))
    assert " refreshed: " in refreshed(session)
    check(session, f"{divided} ON BAD ROW KEEP")


def test_a_view_of_spark(spark: Any, session: Session, base: Callable[..., Base]) -> None:
    """Spark computes its rows, so nobody knows what it gained."""
    one = base()
    one.add(one.rows(300))
    spark.catalog.refreshTable(one.table)
    spark.sql(f"CREATE VIEW default.plain AS SELECT k, v FROM {one.table} WHERE v > 30")
    try:
        text = "SELECT k FROM default.plain"
        create(session, text)
        for _ in range(2):
            assert check(session, text) > 0
            one.add(one.rows(50))
            spark.catalog.refreshTable(one.table)
            assert "default.plain is no table of files" in refreshed(session)
    finally:
        session.sql("DROP MATERIALIZED VIEW default.v")
        spark.sql("DROP VIEW default.plain")


def test_freshness(spark: Any, session: Session, base: Callable[..., Base]) -> None:
    one = base()
    one.add(one.rows(300))
    text = one.text(TUMBLING)
    with cql.connect(spark) as other:
        now = [1000.0]
        other._now = lambda: now[0]
        create(other, text, "FRESHNESS 1 MINUTE")
        old = rows_of(other, text)
        one.add(one.rows(100))
        query = other.sql("SELECT * FROM default.v")
        now[0] += 60
        assert sorted(map(repr, query.to_arrow().to_pylist())) == old
        now[0] += 1
        assert sorted(map(repr, query.to_arrow().to_pylist())) == rows_of(other, text) != old
        one.add(one.rows(100))
        now[0] += 61
        other.sql("CREATE TABLE copied AS SELECT * FROM default.v")
        assert rows_of(other, "SELECT * FROM copied") == rows_of(other, text)
        now[0] += 61
        check(other, text)
        read = other.sql("SELECT count(*) AS n FROM default.v")
        one.add(one.rows(100))
        now[0] += 59  # the SELECT above has looked for new files
        assert read.to_arrow().to_pylist() != [{"n": len(rows_of(other, text))}]
        now[0] -= 1_000  # the clock was set back
        assert read.to_arrow().to_pylist() == [{"n": len(rows_of(other, text))}]


def test_a_refresher(spark: Any, session: Session, base: Callable[..., Base]) -> None:
    one = base()
    one.add(one.rows(300))
    text = one.text(TUMBLING)
    create(session, text)
    refreshes, goes_on = threading.Semaphore(0), threading.Semaphore(0)

    def wait(stop: threading.Event, seconds: float) -> None:
        assert seconds == 60
        refreshes.release()
        while not stop.is_set() and not goes_on.acquire(timeout=0.01):
            pass

    with cql.connect(spark) as other:
        other._wait = wait
        one.add(one.rows(100))
        query = other.sql("REFRESH MATERIALIZED VIEW default.v EVERY 1 MINUTE")
        for _ in range(3):
            assert refreshes.acquire(timeout=60)
            check(session, text)
            one.add(one.rows(100))
            goes_on.release()
        listed = other.sql("SHOW QUERIES").rows
        assert [(row[1], row[-1]) for row in listed] == [("running", query.text)]
        with pytest.raises(RunError, match=r"query q1 writes into default\.v"):
            other.sql("DROP MATERIALIZED VIEW default.v")
        assert refreshes.acquire(timeout=60)
        assert other.sql(f"STOP QUERY {query.name}").message == f"{query.name} has stopped"
        assert query.status == "stopped"
        check(session, text)
        failing = other.sql("REFRESH MATERIALIZED VIEW default.v EVERY 1 MINUTE")
        assert refreshes.acquire(timeout=60)
        session.sql("DROP MATERIALIZED VIEW default.v")
        goes_on.release()
        with pytest.raises(BindError, match="no materialized view"):
            failing.await_termination(60)
        assert failing.status == "failed"


def test_a_view_over_a_view(session: Session, base: Callable[..., Base]) -> None:
    one = base()
    one.add(one.rows(300))
    inner, outer = one.text(TUMBLING), "SELECT k, n + 1 AS n FROM default.v WHERE s > 10"
    create(session, inner)
    try:
        session.sql(f"CREATE MATERIALIZED VIEW default.w AS {outer}")
        for _ in range(2):
            check(session, outer, "default.w")
            one.add(one.rows(100))
            refreshed(session)
            made = session.sql("REFRESH MATERIALIZED VIEW default.w").message
            assert " of default.v was removed" in made
        for text in (one.text(TUMBLING), "SELECT k, n, n AS s, 1 AS window_end FROM default.w"):
            if "default.w" not in text:
                continue
            with pytest.raises(NotSupportedError, match="reads itself"):
                session.sql(f"CREATE OR REPLACE MATERIALIZED VIEW default.v AS {text}")
    finally:
        session.sql("DROP MATERIALIZED VIEW default.w")


# --------------------------------------------------------------------------- statements


def test_create_or_replace(session: Session, base: Callable[..., Base]) -> None:
    one = base()
    one.add(one.rows(300))
    text, other = one.text(TUMBLING), one.text(TUMBLING + " HAVING count(*) > 5")
    create(session, text, "COMMENT 'one'")
    with pytest.raises(BindError, match="exists already") as caught:
        create(session, text)
    assert "CREATE OR REPLACE MATERIALIZED VIEW" in (caught.value.hint or "")
    made = session.sql(f"CREATE MATERIALIZED VIEW IF NOT EXISTS default.v AS {other}").message
    assert made == "materialized view default.v exists already"
    check(session, text)
    replace = "CREATE OR REPLACE MATERIALIZED VIEW default.v"
    made = session.sql(f"{replace} FRESHNESS 1 HOUR AS {other}").message
    assert "its query is another one" in made
    check(session, other)
    described = dict(session.sql("DESCRIBE MATERIALIZED VIEW default.v").rows)
    assert (described["comment"], described["freshness"]) == ("", "3600 seconds")
    assert "up to date" in session.sql(f"{replace} AS {other}").message
    with pytest.raises(CqlError):
        session.sql(f"{replace} AS {one.text(TUMBLING + ' HAVING 1 / (count(*) - n) > 0')}")
    check(session, other)
    fewer = f"SELECT k FROM {one.table}"
    session.sql(f"{replace} AS {fewer}")
    check(session, fewer)
    with pytest.raises(CqlError, match="division by zero"):
        session.sql(f"{replace} AS SELECT 1 / (v - v) AS x FROM {one.table}")
    assert session._catalog.find(("default", "v")) is None


def test_drop(spark: Any, session: Session, base: Callable[..., Base]) -> None:
    one = base()
    one.add(one.rows(300))
    create(session, one.text(TUMBLING))
    location = spark.sql("DESCRIBE TABLE EXTENDED default.v").collect()
    folder = Path(next(r.data_type for r in location if r.col_name == "Location")[5:])
    assert folder.is_dir()
    for text in ("DROP TABLE default.v", "DROP VIEW default.v"):
        with pytest.raises(BindError) as caught:
            session.sql(text)
        assert caught.value.hint == "it is a materialized view: DROP MATERIALIZED VIEW default.v"
    with pytest.raises(BindError, match="no materialized view"):
        session.sql(f"DROP MATERIALIZED VIEW {one.table}")
    session.sql("DROP MATERIALIZED VIEW default.v")
    assert not folder.exists()
    assert not spark.catalog.tableExists("default.v")
    made = session.sql("DROP MATERIALIZED VIEW IF EXISTS default.v").message
    assert made == "there is no materialized view default.v"


def test_a_view_takes_no_rows(spark: Any, session: Session, base: Callable[..., Base]) -> None:
    one = base()
    one.add(one.rows(300))
    text = one.text("SELECT k FROM {s}")
    create(session, text)
    for insert in (
        "INSERT INTO default.v VALUES (1)",
        f"SELECT k, count(*) AS n FROM {one.stream} [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY k"
        " LATE OUTPUT INTO default.v",
    ):
        with pytest.raises(CatalogError, match="is a materialized view"):
            session.sql(insert).to_arrow()
    with pytest.raises(BindError, match="is a materialized view"):
        session.sql("CREATE OR REPLACE TABLE default.v (k BIGINT)")
    check(session, text)
    spark.sql("INSERT INTO default.v VALUES (1)")  # the engine cannot refuse this
    refreshed(session, "FULL")
    check(session, text)


def test_hostile_names(spark: Any, session: Session) -> None:
    comment = 'it\'s a "comment"; DROP TABLE `x` -- ${env:HOME} \\'
    session.register_table("odd", {"a `b`; c'": [1, 2], 'd"e': ["x';", "`"]}, replace=True)
    session.sql("CREATE TABLE default.odd AS SELECT * FROM odd")
    text = 'SELECT `a ``b``; c\'`, "d""e" FROM default.odd WHERE "d""e" <> \'y\'\';`\''
    quoted = comment.replace("'", "''")
    try:
        session.sql(f"CREATE MATERIALIZED VIEW default.v COMMENT '{quoted}' AS {text}")
        assert check(session, text) == 2
        session.sql("INSERT INTO default.odd SELECT * FROM odd")
        assert " refreshed: " in refreshed(session)
        assert check(session, text) == 4
        described = dict(session.sql("DESCRIBE MATERIALIZED VIEW default.v").rows)
        assert (described["comment"], described["query"]) == (comment, text)
        shown = session.sql("SHOW MATERIALIZED VIEWS IN default").rows
        assert ("default.v", text) in [row[:2] for row in shown]
        with pytest.raises(CatalogError, match="cannot be named"):
            session.sql(f"CREATE MATERIALIZED VIEW default.`v;'` AS {text}")
    finally:
        session.sql("DROP MATERIALIZED VIEW IF EXISTS default.v")
        session.sql("DROP TABLE default.odd")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("SELECT k FROM here", "here, which only this session has, in materialized view"),
        ("SELECT k FROM passing", "passing, a temporary view of Spark, in materialized view"),
        ("SELECT k FROM {e}", "which has no end, in materialized view"),
        ("SELECT twice(k) AS k FROM {s}", r"a function of yours \(twice\) in materialized view"),
        ("SELECT 1 AS x", "a query that reads no table in materialized view"),
        ("SELECT k, count(*) AS n FROM {s} GROUP BY k EMIT CHANGES", "a relation that changes"),
        (
            "SELECT count(*) AS n FROM {s} [RANGE 1 MINUTE SLIDE 1 MINUTE] LATE OUTPUT INTO l",
            "LATE OUTPUT in materialized view",
        ),
    ],
)
def test_what_is_refused(
    spark: Any, session: Session, base: Callable[..., Base], text: str, why: str
) -> None:
    one = base()
    with cql.connect(spark) as other:
        other.register_function("twice", twice)
        spark.range(3).selectExpr("id AS k").createOrReplaceTempView("passing")
        other.register_table("here", {"k": [1]})
        other.sql(
            f"CREATE STREAM {one.stream}_e FROM TABLE {one.table} OPTIONS (follow 'true')"
            " ORDERED BY ts"
        )
        made = one.text(text.replace("{e}", f"{one.stream}_e"))
        with pytest.raises(NotSupportedError, match=why) as caught:
            create(other, made)
        assert caught.value.position is not None
        other.sql(f"DROP STREAM {one.stream}_e")
    assert session._catalog.find(("default", "v")) is None


def twice(x: int) -> int:
    return x * 2


def test_without_spark() -> None:
    for session, name in ((cql.connect(spark=False), "default.v"), (cql.connect(), "v")):
        with session:
            session.register_table("t", {"k": [1]})
            with pytest.raises(NotSupportedError, match="outside of Spark's catalog"):
                session.sql(f"CREATE MATERIALIZED VIEW {name} AS SELECT k FROM t")
