"""The queries of ``queries/access_log`` over generated lines in memory: each parses all lines."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks import peers
from benchmarks.harness import Benchmark, Contender, Ratio
from benchmarks.ours import Ours, integers
from benchmarks.workloads import Answer, Column, checksum
from queries.access_log.make_log import access_log

ROWS = 2_000_000
FOLDER = Path(__file__).resolve().parent.parent / "queries" / "access_log"
TWO = "ours, 2 workers"

#: The query of each file in DuckDB's SQL; ``row`` is the number of a line. A session ends half an
#: hour behind its last request.
DUCKDB: Mapping[str, str] = {
    "requests": "SELECT * EXCLUDE (row) FROM parsed",
    "errors": """
        SELECT method, count(*) AS errors,
               time_bucket(INTERVAL 1 MINUTE, ts) + INTERVAL 1 MINUTE AS window_end
        FROM parsed WHERE status >= 500 GROUP BY ALL""",
    "visits": """
        SELECT client, count(*) AS requests, sum(bytes)::BIGINT AS bytes,
               first(path ORDER BY ts, row) AS entered, last(path ORDER BY ts, row) AS left_from,
               count_if(status >= 400)::BIGINT AS errors, min(ts) AS window_start,
               max(ts) + INTERVAL 30 MINUTES AS window_end
        FROM (
            SELECT *, count(*) FILTER (pause > INTERVAL 30 MINUTES)
                      OVER (PARTITION BY client ORDER BY ts, row) AS visit
            FROM (SELECT *, ts - lag(ts) OVER (PARTITION BY client ORDER BY ts, row) AS pause
                  FROM parsed))
        GROUP BY client, visit""",
    "top_paths": """
        SELECT path, count(*) AS requests,
               time_bucket(INTERVAL 1 MINUTE, ts) + INTERVAL 1 MINUTE AS window_end
        FROM parsed GROUP BY path, window_end
        QUALIFY row_number() OVER (PARTITION BY window_end ORDER BY requests DESC, path) <= 10""",
    "robots": """
        SELECT count_if(regexp_matches(agent, '(?i)bot|crawl|spider|scrapy|curl'))::BIGINT
                   AS by_robots,
               count(*) AS requests, by_robots / requests AS share,
               time_bucket(INTERVAL 1 HOUR, ts) + INTERVAL 1 HOUR AS window_end
        FROM parsed GROUP BY window_end""",
}
#: The requests of the table ``{log}``; one match of the pattern gives all parts of a line.
_REQUESTS = r"""
    WITH matched AS (
        SELECT row, regexp_extract(line, '{pattern}', ['client', 'user', 'time', 'method',
                    'target', 'status', 'bytes', 'referer', 'agent']) AS part
        FROM {log} WHERE regexp_matches(line, '{pattern}')
    ), parsed AS (
        SELECT row, strptime(part.time, '%d/%b/%Y:%H:%M:%S %z') AS ts, part.client AS client,
               nullif(part.user, '-') AS user, part.method AS method,
               split_part(part.target, '?', 1) AS path, part.status::INT AS status,
               nullif(part.bytes, '-')::BIGINT AS bytes, nullif(part.referer, '-') AS referer,
               nullif(part.agent, '-') AS agent
        FROM matched
    )"""


def statements(name: str) -> tuple[str, str, str, str]:
    """The statements of a query file: the stream of lines, the constant of the pattern, the
    stream of requests, the query."""
    text = (FOLDER / f"{name}.cql").read_text(encoding="utf-8")
    lines, pattern, requests, query = text.split(";\n")
    return lines, pattern, requests, query


def duckdb_text(name: str) -> str:
    """A query for DuckDB over ``{log}``, which has the columns ``row`` and ``line``."""
    pattern = statements(name)[1].split("'")[1]
    # Braces of the pattern stand for themselves when the table's name is set in.
    doubled = pattern.replace("{", "{{").replace("}", "}}")
    return _REQUESTS.replace("{pattern}", doubled) + DUCKDB[name]


def session_over(name: str, table: Any, workers: int = 1) -> Ours:
    """Our engine with the streams of a query file over the lines of a table."""
    _, pattern, requests, query = statements(name)
    ours = Ours(query, workers)
    ours.session.create_stream("log", table)
    ours.session.sql(f"{pattern}; {requests}")
    return ours


@cache
def _log(rows: int) -> pa.Table:
    return access_log(rows)


def query(name: str, rows: int | None = None, folder: Path | None = None) -> Benchmark:
    """``folder`` is unused: the rows are generated."""
    rows = rows or ROWS
    table = _log(rows)
    one, two = (session_over(name, table, workers) for workers in (1, 2))
    numbered = table.append_column("row", pa.array(np.arange(rows)))
    runs = peers.duckdb_runs(duckdb_text(name), log=numbered)
    answers = [answer(run()) for run in runs.values()]
    return Benchmark(
        f"access-log-{name}",
        f"{FOLDER.name}/{name}.cql: {rows:,} lines of an access log in memory",
        rows,
        answers[0] if answers else answer(one.run()),
        [
            Contender("ours", one.run, answer, pinned=True),
            Contender(TWO, two.run, answer),
            *(Contender(n, run, answer) for n, run in runs.items()),
        ],
        [*(Ratio("ours", n) for n in runs), Ratio(TWO, "ours")],
        threads=2,
    )


def answer(table: Any) -> Answer:
    return checksum(*(_numbers(column) for column in table.columns))


def _numbers(column: Any) -> Column:
    """A column as integers: texts as their CRC, fractions in units of 1e-9, NULL as -1."""
    if pa.types.is_string(column.type):
        coded = column.combine_chunks().dictionary_encode()
        crcs = [crc32(text.encode()) for text in coded.dictionary.to_pylist()]
        column = pa.array(crcs, pa.int64()).take(coded.indices)
    elif pa.types.is_floating(column.type):
        column = pc.round(pc.multiply(column, 1e9))
    return integers(pc.fill_null(column.cast(pa.int64()), -1))
