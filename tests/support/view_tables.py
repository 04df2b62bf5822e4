"""Tables that grow, and materialized views over them."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cql
from cql.session.session import Session

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
    "rows in time": "SELECT k, v FROM {s} [RANGE 1 MINUTE]",
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
    "looked up": "SELECT a.k, b.v FROM {s} AS a JOIN {t} AS b ON a.k = b.v",
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
