"""Functions over texts that are nearly all new: request lines of a web server, from memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks import peers
from benchmarks.harness import Benchmark, Contender, Ratio
from benchmarks.ours import Ours, integers
from benchmarks.workloads import Answer, sums

ROWS = 5_000_000
TWO = "ours, 2 workers"
_DUCKDB = f"duckdb, arrow table, {peers.DUCKDB_THREADS} threads"


@dataclass(frozen=True, slots=True)
class Work:
    """``expr`` over column ``k``, in the dialect of DuckDB too if ``duckdb`` is None. ``rate``:
    the least rate, in rows/s; ``goal``: the least ratio to DuckDB. ``where``: it is a filter."""

    expr: str
    duckdb: str | None = None
    rate: float = 10e6
    goal: float = 1.0
    where: bool = False


WORK: Mapping[str, Work] = {
    "like": Work("k LIKE '%user=u9%'", where=True),
    "upper": Work("upper(k)"),
    "substring": Work("substring(k, 5, 20)"),
    "concat": Work("concat(k, ' ', n)"),
    "split-part": Work("split_part(k, ' ', 2)"),
    "length": Work("length(k)"),
    "replace": Work("replace(k, 'user=', 'u:')"),
    "cast-to-int": Work("CAST(n AS INT)"),
    "cast-to-text": Work("CAST(v AS STRING)"),
    "regexp-extract": Work("regexp_extract(k, 'user=(u[0-9]+)', 1)", rate=3e6, goal=0.5),
    "rlike": Work(
        "k RLIKE 'u[0-9]*7&'", "regexp_matches(k, 'u[0-9]*7&')", rate=3e6, goal=0.5, where=True
    ),
}
#: The requests of each first folder, counted by windows.
PATHS = "SELECT count(*) AS n, split_part(k, '/', 2) AS p FROM s [RANGE 1 MINUTE SLIDE 1 MINUTE]"
PATHS += " GROUP BY split_part(k, '/', 2)"


def paths_of(rng: np.random.Generator) -> npt.NDArray[np.str_]:
    """Two thousand paths of one to eleven folders."""
    words = np.array(["list", "item", "cart", "search", "étage", "help", "api", "v2", "images"])
    return np.array(["/".join(rng.choice(words, rng.integers(1, 12))) for _ in range(2000)])


def request_lines(
    numbers: pa.Array, paths: npt.NDArray[np.str_], rng: np.random.Generator
) -> pa.Array:
    """For each of ``numbers``, which are texts, a request line of 40 to 200 bytes that has it."""
    n = len(numbers)
    users = pa.array(rng.integers(0, 977, n)).cast(pa.string())
    parts = [
        "GET /", pa.array(paths[rng.integers(0, paths.size, n)]), "/", numbers, "?user=u", users,
        "&q=", pa.array(rng.integers(0, 1 << 40, n)).cast(pa.string()), " HTTP/1.1",
    ]  # fmt: skip
    return pc.binary_join_element_wise(*parts, "").cast(pa.string())


@cache
def requests(rows: int, distinct: int) -> pa.Table:
    """``rows`` request lines of 40 to 200 bytes, of which ``distinct`` differ, in the order of
    time; ``n`` is a number as text, ``v`` a number."""
    rng = np.random.default_rng(5)
    numbers = pa.array(np.arange(distinct) * 7919 % distinct).cast(pa.string())
    lines = request_lines(numbers, paths_of(rng), rng)
    rows_of = np.arange(rows) if rows == distinct else rng.integers(0, distinct, rows)
    times = np.arange(rows) * 100
    return pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us", tz="UTC")),
            "k": lines.take(pa.array(rows_of)),
            "n": numbers.take(pa.array(rows_of)),
            "v": rows_of * 7919,
        }
    )


def texts(name: str, rows: int | None = None, folder: Path | None = None) -> Benchmark:
    """``folder`` is unused: the rows are generated."""
    work, rows = WORK[name], rows or ROWS
    table = requests(rows, rows)
    query = f"SELECT {work.expr} AS r FROM {{}}"
    if work.where:
        query = f"SELECT ts FROM {{}} WHERE {work.expr}"
    other = query.replace(work.expr, work.duckdb or work.expr)
    one, two = (Ours(query.format("s"), workers, "auto", s=table) for workers in (1, 2))
    runs = peers.duckdb_runs(other.format("{s}"), s=table)
    return Benchmark(
        f"texts-{name}",
        f"{query.format('s')}: {rows:,} request lines in memory",
        rows,
        _answer(one.run()),
        [
            Contender("ours", one.run, _answer, pinned=True),
            Contender(TWO, two.run, _answer),
            *(Contender(n, run, _answer) for n, run in runs.items()),
        ],
        [
            *(Ratio("ours", n, work.goal if n == _DUCKDB else None) for n in runs),
            Ratio(TWO, "ours", 1.6),
        ],
        threads=2,
    )


def paths(rows: int | None = None, folder: Path | None = None) -> Benchmark:
    """Counts by a part of the text, in windows, over few distinct parts."""
    rows = rows or ROWS
    table = requests(rows, rows)
    one, two = (Ours(PATHS, workers, "auto", s=table) for workers in (1, 2))
    contenders = [
        Contender("ours", one.run, _counted, pinned=True),
        Contender(TWO, two.run, _counted),
    ]
    expected = _counted(one.run())
    title = f"{PATHS}: {rows:,} request lines in memory"
    return Benchmark("texts-paths", title, rows, expected, contenders, [Ratio(TWO, "ours", 1.6)])


def _counted(table: Any) -> Answer:
    return sums(integers(table.column("n")), integers(pc.binary_length(table.column("p"))))


def _answer(table: Any) -> Answer:
    column = table.column(0)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return sums(integers(pc.binary_length(column)))
    return sums(integers(column))
