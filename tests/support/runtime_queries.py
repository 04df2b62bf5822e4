"""Queries of the kinds of plans that runtimes execute differently, a stream for these queries, and
the comparison of runtimes."""

from __future__ import annotations

import random
import signal
import threading
from itertools import combinations, product
from typing import Any

import pyarrow as pa

from cql.session.session import Session

ROWS = 300


QUERIES = {
    "filter and project": "SELECT ts, k, v * 2 AS w, x FROM a WHERE v % 3 = 0",
    "sliding window": """
        SELECT k, count(*) AS n, sum(x) AS total, first(v) AS v, window_end
        FROM a [RANGE 40 SLIDE 10 WA ts] GROUP BY k HAVING count(*) > 1""",
    "union of unequal chains": """
        SELECT ts, v, k * 2 AS k FROM (
            SELECT ts, v + 1 AS v, k + 1 AS k FROM b WHERE v > 20) AS f WHERE v > 30
        UNION ALL SELECT ts, v, k FROM c""",
    "window over a union": """
        SELECT k, count(*) AS n, last(v) AS v, sum(x) AS total, window_end FROM (
            SELECT ts, k, v, x FROM a WHERE v > 20 UNION ALL SELECT ts, k, v, x FROM b) AS u
        [RANGE 30 SLIDE 10 WA ts] GROUP BY k""",
    "nested windows": """
        SELECT max(n) AS most, min(k) AS k, window_end FROM (
            SELECT k, count(*) AS n, window_time
            FROM a [RANGE 20 SLIDE 10 WA ts] GROUP BY k) AS w [RANGE 60 SLIDE 20 WA window_time]""",
    "sorted windows": """
        SELECT k, n, window_end FROM (
            SELECT k, count(*) AS n, window_end FROM a [RANGE 40 SLIDE 20 WA ts] GROUP BY k
            ORDER BY n DESC, k LIMIT 3) AS s WHERE n > 1""",
    "sorted input": "SELECT name, v FROM a WHERE v > 50 ORDER BY v, name DESC LIMIT 17",
    "text": """
        SELECT min(s) AS low, max(s) AS high, count(DISTINCT s) AS n, window_end FROM (
            SELECT ts, concat(name, CAST(v AS STRING)) AS s FROM a WHERE name LIKE '%1%'
            UNION ALL SELECT ts, name AS s FROM b) AS t
        [RANGE 40 SLIDE 20 WA ts] WHERE s > 'n2' GROUP BY window_end""",
    "constants": """
        SELECT v + 1 AS v, upper(name) AS name FROM (
            SELECT v, name FROM a UNION ALL VALUES (1, 'n1'), (NULL, 'neu'), (7, NULL)) AS u
        WHERE name LIKE 'n%'""",
    "bad rows": """
        SELECT k, sum(d) AS d, window_end FROM (SELECT ts, k, 100 / (v % 5) AS d FROM a) AS q
        [RANGE 40 SLIDE 20 WA ts] GROUP BY k""",
    "sessions": """
        SELECT k, count(*) AS n, last(v) AS v, sum(x) AS total, window_start, window_end FROM (
            SELECT ts, k, v, x FROM a WHERE v > 40 UNION ALL SELECT ts, k, v, x FROM b) AS u
        [SESSION 2, WA ts] GROUP BY k HAVING count(*) > 1""",
    "expander": """
        SELECT ts, v, window_start FROM TABLE(
            HOP(TABLE a, DESCRIPTOR(ts), INTERVAL '1' SECOND, INTERVAL '20' SECOND)) AS h
        WHERE (window_start + v) % 7 < 3""",
}


def stream(seed: int, keys: list[int | None]) -> pa.Table:
    """Rows out of order by less than 12 seconds. Tests declare a slack of 5 seconds, so that some
    rows are late."""
    r = random.Random(seed)
    ts = [i // 2 + r.randrange(12) for i in range(ROWS)]
    return pa.table(
        {
            "ts": pa.array(ts, pa.int64()),
            "k": pa.array([r.choice(keys) for _ in ts], pa.int32()),
            "v": pa.array([r.randrange(100) for _ in ts], pa.int64()),
            "x": pa.array([r.uniform(-1, 1) for _ in ts], pa.float64()),
            "name": pa.array([f"n{r.randrange(99)}" for _ in ts]),
        }
    )


def open_session(seed: int) -> Session:
    """A session with three streams ``a``, ``b`` and ``c`` that the queries read."""
    session = Session(False)
    keys: dict[str, list[int | None]] = {"a": [None, 0, 1, 2, 3], "b": [0, 1, 2], "c": [0, 1, 2]}
    for i, name in enumerate(keys):
        table = stream(seed + i, keys[name])
        session.create_stream(name, table, ordered_by="ts", unit="seconds", slack=5)
    session.set("on_bad_row", "keep")
    return session


JOINED = {
    "joined": """
        SELECT a.ts AS t, a.k, a.v, b.v AS w, b.name FROM a JOIN b ON a.k = b.k
        AND b.ts BETWEEN a.ts - 7 AND a.ts + 4""",
    "joined and counted": """
        SELECT k, count(*) AS n, sum(w) AS total, window_end FROM (
            SELECT a.ts AS ts, a.k AS k, b.v AS w FROM a JOIN b ON a.k = b.k
            AND b.ts BETWEEN a.ts AND a.ts + 5 WHERE a.v > 10) AS j
        [RANGE 20 SLIDE 10 WA ts] GROUP BY k""",
    "left join": """
        SELECT a.ts AS t, a.k, a.v, b.v AS w FROM a LEFT JOIN b ON a.k = b.k AND a.v = b.v
        AND b.ts BETWEEN a.ts - 7 AND a.ts + 4""",
    "many keys": """
        SELECT k, name, v, count(*) AS n, avg(x) AS x, first(v) AS one, last(x) AS other, window_end
        FROM a [RANGE 40 SLIDE 20 WA ts] WHERE v > 3 GROUP BY k, name, v""",
    "groups without windows": "SELECT k, v, count(*) AS n, max(x) AS x FROM a GROUP BY k, v",
    "sets of values": """
        SELECT v, count(DISTINCT k) AS n, array_agg(k) AS ks, median(x) AS m, window_end
        FROM a [RANGE 30 SLIDE 30 WA ts] GROUP BY v""",
    "relation": "SELECT ISTREAM(k, v) FROM a [PARTITION BY k ROWS 3 WA ts]",
    "union with itself": """
        WITH u AS (SELECT ts, k, v FROM a WHERE v > 40 UNION ALL SELECT ts, v % 4, v FROM a)
        SELECT x.ts AS t, x.k, x.v, y.v AS w FROM u AS x JOIN u AS y
        ON x.k = y.k AND y.ts BETWEEN x.ts - 2 AND x.ts""",
    "union of unions with another": """
        WITH u AS (SELECT ts, k, v FROM a WHERE v > 60 UNION ALL SELECT ts, k, v FROM b),
        w AS (SELECT ts, k, v FROM u WHERE v % 3 < 2 UNION ALL SELECT ts, k, -v AS v FROM u
              UNION ALL SELECT ts, k, v * 100 AS v FROM a WHERE v < 30)
        SELECT x.ts AS t, x.v, y.v AS w FROM w AS x ASOF JOIN u AS y ON x.k = y.k AND x.ts > y.ts
        """,
    "relation with itself": """
        SELECT ISTREAM(x.k, x.v, y.v AS w) FROM a [NOW WA ts] AS x
        JOIN a [PARTITION BY k ROWS 2 WA ts] AS y ON x.k = y.k""",
    "modes of a relation": """
        SELECT ISTREAM(k, mode(v) AS m) FROM a [PARTITION BY k ROWS 3 WA ts] GROUP BY k""",
}


CHOICES: dict[str, tuple[Any, ...]] = {
    "workers": (1, 2, 4, 8),
    "partitions": (0, 3, 64),
    "morsel_rows": (1, 7, 65_536),
    "worklist": ("hybrid", "partitioned", "shared"),
    "reorder": ("non_blocking", "lock_based"),
    "scheduler": ("ct", "lp", "et", "qst", "ct_printed"),
}


def pairwise(seed: int) -> list[dict[str, Any]]:
    """Combinations of ``CHOICES`` that contain each pair of values of two settings."""
    rng, found = random.Random(seed), []
    pairs = {
        (a, x, b, y)
        for a, b in combinations(CHOICES, 2)
        for x, y in product(CHOICES[a], CHOICES[b])
    }
    while pairs:
        drawn = [{n: rng.choice(v) for n, v in CHOICES.items()} for _ in range(40)]
        new = [{p for p in pairs if d[p[0]] == p[1] and d[p[2]] == p[3]} for d in drawn]
        best = max(range(len(drawn)), key=lambda k: len(new[k]))
        found.append(drawn[best])
        pairs -= new[best]
    return found


def outcome(session: Session, text: str) -> tuple[Any, ...]:
    """The output in order, the bad rows, and the counts of late rows."""
    run = session.sql(text)
    table = run.to_arrow()
    late = run.late().to_pydict()
    names = [name.split("#")[0] for name in late.pop(next(iter(late)))]
    counts = zip(names, *late.values(), strict=True)
    bad = run.bad_rows().drop_columns("operator")  # the stages depend on the runtime
    return table, bad, sorted(map(repr, counts))


def left_over() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("cql-worker")]


WORKLISTS = ("hybrid", "partitioned", "shared")


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


def compare(session: Session, text: str, choices: list[dict[str, Any]]) -> None:
    """Compares the ordered runtime under each of ``choices`` with depth first. Both use the same
    ``morsel_rows``, which decides when rows without a partner leave."""
    session.set("runtime", "depth_first")
    expected = {}
    for rows in {settings["morsel_rows"] for settings in choices}:
        session.set("morsel_rows", rows)
        expected[rows] = outcome(session, text)
    session.set("runtime", "ordered")
    for settings in choices:
        for name, value in settings.items():
            session.set(name, value)
        answer = outcome(session, text)
        for given, wanted in zip(answer, expected[settings["morsel_rows"]], strict=True):
            assert given == wanted, settings
