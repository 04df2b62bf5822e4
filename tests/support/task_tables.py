"""Streams over tables of Parquet files of Spark, with rows in several kinds of disorder."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

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

#: Kinds of tables: rows, slack in seconds, rows of a row group, share of rows far ahead. Of those
#: in ``VERY_LATE``, a quarter of the rows and whole row groups lie up to so many seconds behind.
KINDS = {
    "few late": (4000, 3.0, 250, 0.0),
    "many late": (4000, 60.0, 333, 0.0),
    "ordered": (3000, 0.0, 500, 0.0),
    "far ahead": (3000, 3.0, 200, 0.01),
    "one group": (700, 3.0, 10_000, 0.0),
    "very late": (4000, 3.0, 100, 0.0),
}
VERY_LATE = {"very late": 1200}


def disordered(seed: str, rows: int, *, slack: float, jump: float = 0.0) -> pa.Table:
    """Rows whose times rise by a second on average and lie up to twice the ``slack`` (in seconds)
    behind; a share of ``jump`` lies days ahead."""
    rng = np.random.default_rng(random.Random(seed).randrange(2**32))
    now = np.cumsum(rng.integers(0, 2 * SECOND, rows))
    back = rng.integers(0, int(2 * slack * SECOND) + 1, rows) * (rng.random(rows) < 0.3)
    far = (rng.random(rows) < jump) * rng.integers(2, 9, rows) * 86_400 * SECOND
    words = np.array(["a", "b", "c", None], object)
    return pa.table(
        [
            pa.array(now - back + far).cast(SCHEMA.field("ts").type),
            pa.array(rng.integers(0, 9, rows)),
            pa.array(rng.integers(0, 100, rows)),
            pa.array(words[rng.integers(0, 4, rows)], pa.string()),
        ],
        schema=SCHEMA,
    )


def very_late(seed: str, rows: int, *, slack: float, groups: int, behind: int) -> pa.Table:
    """Rows whose times rise by a second on average and leap by ten minutes now and then. A quarter
    of them lies up to ``behind`` seconds behind, and so do all rows of every fifth group of
    ``groups`` rows."""
    table = disordered(seed, rows, slack=slack / 2)
    rng = np.random.default_rng(random.Random(f"{seed} late").randrange(2**32))
    at = np.arange(rows)
    late = (rng.random(rows) < 0.24) | (at // groups % 5 == 4)
    leaps = 600 * SECOND * (at // (9 * groups + 17))
    times = table["ts"].cast(pa.int64()).to_numpy() + leaps
    times = times - late * rng.integers(0, behind * SECOND, rows)
    return table.set_column(0, SCHEMA.field("ts"), pa.array(times).cast(SCHEMA.field("ts").type))


def stored(spark: Any, folder: Path, table: pa.Table, groups: int, files: int = 3) -> str:
    """A table of Spark over ``files`` Parquet files with row groups of ``groups`` rows."""
    name = f"default.{folder.parent.name}_{folder.name}_rows"
    folder.mkdir()
    share = -(-table.num_rows // files)
    for n in range(files):
        part = table.slice(n * share, share)
        pq.write_table(part, folder / f"part-{n:05d}.parquet", row_group_size=groups)
    columns = "ts timestamp, k bigint, v bigint, w string"
    spark.sql(f"CREATE TABLE {name} ({columns}) USING parquet LOCATION '{folder.as_uri()}'")
    return name


class Tables:
    """Streams over tables of Spark, by what their rows are like."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.session = cql.connect(spark)
        self.session.on_notice = lambda text: None
        self._spark, self._folder = spark, folder
        self._made: dict[str, str] = {}

    def table(self, kind: str) -> str:
        """The table below a stream."""
        folder = kind.replace(" ", "_")
        self.stream(kind)
        return f"default.{self._folder.name}_{folder}_rows"

    def stream(self, kind: str) -> str:
        if kind not in self._made:
            rows, slack, groups, jump = KINDS[kind]
            if kind in VERY_LATE:
                behind = VERY_LATE[kind]
                rows_of = very_late(kind, rows, slack=slack, groups=groups, behind=behind)
            else:
                rows_of = disordered(kind, rows, slack=slack, jump=jump)
            table = stored(self._spark, self._folder / kind.replace(" ", "_"), rows_of, groups)
            name = f"default.{self._folder.name}_{kind.replace(' ', '_')}"
            self.session.sql(
                f"CREATE OR REPLACE STREAM {name} FROM TABLE {table}"
                f" WATERMARK FOR ts AS ts - INTERVAL {slack / 2} SECONDS"
            )
            self._made[kind] = name
        return self._made[kind]


def answer(session: Session, text: str, runtime: str, tasks: int = 0) -> tuple[pa.Table, list[Any]]:
    """The rows, and the ledger of lateness without what concerns MAX ADVANCE alone."""
    session.set("runtime", runtime)
    session.set("partitions", tasks)
    query = session.sql(text)
    rows = query.to_arrow()
    kinds = ("rows", "pairs", "left out")
    return rows, [entry for entry in query.late().to_pylist() if entry["kind"] in kinds]
