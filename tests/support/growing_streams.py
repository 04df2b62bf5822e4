"""Queries over two out-of-order streams that keep bringing new texts."""

from __future__ import annotations

import random

import pyarrow as pa

ROWS = 800
QUERIES = {
    "filter to wid": """
        SELECT k, n, total, low, window_end FROM (
            SELECT k, count(*) AS n, sum(v) AS total, min(x) AS low, window_end
            FROM (SELECT * FROM a WHERE v > 10) AS f [RANGE 40 SLIDE 10 WA ts] GROUP BY k) AS g
        WHERE n > 0""",
    "union to wid": """
        SELECT k, count(*) AS n, sum(x) AS total, first(v) AS v, window_end FROM (
            SELECT ts, k, v, x FROM a WHERE v % 3 <> 0
            UNION ALL SELECT ts, k, v, x FROM b WHERE v > 20) AS m [RANGE 30 SLIDE 10 WA ts]
        GROUP BY k""",
    "nothing passes": """
        SELECT k, count(*) AS n, window_end
        FROM (SELECT * FROM a WHERE v < -1) AS f [RANGE 40 SLIDE 10 WA ts] GROUP BY k""",
    "expander": """
        SELECT ts, k, window_start FROM TABLE(
            HOP(TABLE a, DESCRIPTOR(ts), INTERVAL '1' SECOND, INTERVAL '50' SECOND)) AS h
        WHERE (window_start + v) % 7 < 3""",
    "growing keys": """
        SELECT s, count(*) AS n, min(t) AS low, max(s) AS high, window_end FROM (
            SELECT ts, concat(upper(name), CAST(v AS STRING)) AS s,
                   concat(name, CAST(ts AS STRING)) AS t FROM a) AS c
        [RANGE 400 SLIDE 20 WA ts] GROUP BY s""",
    "computed text": """
        SELECT ts, v, CASE WHEN v > 50 THEN s LIKE '%7%' END AS seven FROM (
            SELECT ts, v, concat(name, CAST(v AS STRING)) AS s FROM a) AS c""",
    "bad rows": """
        SELECT k, count(*) AS n, window_end FROM (SELECT ts, k, 100 / (v % 5) AS d FROM a) AS f
        [RANGE 40 SLIDE 10 WA ts] GROUP BY k""",
    "sessions": """
        SELECT k, count(*) AS n, sum(v) AS total, min(x) AS low,
               array_agg(DISTINCT v) AS vs, window_end FROM (
            SELECT ts, k, v, x FROM a WHERE v % 3 <> 0
            UNION ALL SELECT ts, k, v, x FROM b WHERE v > 20) AS m
        [SESSION 3, WA ts] GROUP BY k""",
    "sort": """
        SELECT k, count(*) AS n, window_end FROM a [RANGE 40 SLIDE 20 WA ts] GROUP BY k
        ORDER BY n DESC, k LIMIT 3""",
    "sort by time": "SELECT ts, k, name, x FROM a ORDER BY ts, name DESC, k NULLS LAST, x",
    "merge": """
        SELECT ts, k, name FROM (SELECT ts, k, concat(name, 'a') AS name FROM a WHERE v > 10
            UNION ALL SELECT ts, k, concat(name, 'b') AS name FROM b WHERE v > 3) AS m
        ORDER BY ts""",
    "merge to wid": """
        SELECT k, count(*) AS n, sum(x) AS total, last(v) AS v, window_end
        FROM a UNION b AS m [RANGE 30 SLIDE 10 WA ts] GROUP BY k""",
    "slack to wid": """
        SELECT k, count(*) AS n, sum(x) AS total, window_end
        FROM a [RANGE 30 SLIDE 10 WA ts] WHERE v > 5 GROUP BY k""",
}
SETTINGS = {
    "merge to wid": {"union_operator": "merge", "order_enforcement": "sort"},
    "slack to wid": {"slack": "4 rows", "order_enforcement": "sort"},
}


def stream(seed: int) -> pa.Table:
    """Rows out of order by less than 8 seconds, with NULL keys and mostly distinct names. Tests
    declare a slack of 5 seconds, so that some rows are late."""
    r = random.Random(seed)
    ts = [i // 2 + r.randrange(8) for i in range(ROWS)]
    return pa.table(
        {
            "ts": pa.array(ts, pa.int64()),
            "k": pa.array([r.choice([None, *range(9)]) for _ in ts], pa.int32()),
            "v": pa.array([r.randrange(100) for _ in ts], pa.int64()),
            "x": pa.array([r.uniform(-1, 1) for _ in ts], pa.float64()),
            "name": pa.array([f"n{r.randrange(10_000)}" for _ in ts]),
        }
    )
