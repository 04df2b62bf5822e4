"""Queries of every kind of plan, and values of every setting other than the default, for tests of
the plans that each setting affects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

import cql
from cql.base.settings import SETTINGS, SettingType

JOIN = "SELECT a.ts AS t, b.ts AS u FROM a, b WHERE a.k = b.k"
QUERIES = {
    "rows": "SELECT ts, k FROM a WHERE k > 1",
    "sliding": "SELECT k, count(*) AS n FROM a [RANGE 600 SLIDE 60] GROUP BY k",
    "wide": "SELECT k, sum(v) AS n FROM a [RANGE 6000 SLIDE 60] GROUP BY k",
    "tumbling": "SELECT k, count(*) AS n FROM a [RANGE 60 SLIDE 60] GROUP BY k",
    "gaps": "SELECT k, count(*) AS n FROM a [RANGE 30 SLIDE 60] GROUP BY k",
    "rows of rows": "SELECT count(*) AS n FROM a [ROWS 9 SLIDE 3]",
    "sessions": "SELECT k, count(*) AS n FROM a [SESSION 60] GROUP BY k",
    "cumulate": "SELECT count(*) AS n, window_end FROM TABLE(CUMULATE(TABLE a, DESCRIPTOR(ts),"
    " INTERVAL '60' SECOND, INTERVAL '600' SECOND)) GROUP BY window_start, window_end",
    "whole": "SELECT k, count(*) AS n FROM named GROUP BY k",
    "closing": "SELECT ts, k, count(*) AS n FROM a GROUP BY ts, k",
    "relation": "SELECT count(DISTINCT k) AS n FROM a WINDOW 10 MINUTES",
    "relations": "SELECT count(*) AS n FROM a [RANGE 60], b [RANGE 60] WHERE a.k = b.k",
    "table": "SELECT ts, name FROM a JOIN named ON a.k = named.k",
    "band": f"{JOIN} AND abs(a.ts - b.ts) < 60",
    "window join": f"{JOIN} WINDOW 10 MINUTES",
    "ordered join": f"{JOIN} WINDOW 10 MINUTES ORDER BY greatest(a.ts, b.ts)",
    "three": "SELECT a.ts AS t FROM a, b, c WHERE a.k = b.k AND b.k = c.k WINDOW 60 SECONDS",
    "left": "SELECT a.ts AS t FROM a LEFT JOIN b ON a.k = b.k AND abs(a.ts - b.ts) < 60",
    "left relations": "SELECT a.ts AS t FROM a [RANGE 60] LEFT JOIN b [RANGE 60] ON a.k = b.k",
    "asof": "SELECT a.ts AS t FROM a ASOF JOIN b ON a.k = b.k AND a.ts >= b.ts",
    "pairs": f"SELECT t, u, count(*) AS n FROM ({JOIN} WINDOW 60 SECONDS) AS p GROUP BY t, u",
    "union": "SELECT ts, k FROM a UNION ALL SELECT ts, k FROM b",
    "union in order": "SELECT ts, k FROM a UNION ALL SELECT ts, k FROM b ORDER BY ts",
    "union of tables": "SELECT k FROM named UNION ALL SELECT k FROM named",
    "order": "SELECT ts, k FROM a ORDER BY ts",
    "other order": "SELECT ts, k FROM a ORDER BY k",
    "endless": "SELECT ts, name FROM live JOIN named ON live.k = named.k",
    "function": "SELECT ts, twice(k) AS k FROM a",
    "bad rows": "SELECT ts, 1 / k AS k FROM a ON BAD ROW KEEP",
}
#: Settings under which further settings have an effect.
BASES: tuple[dict[str, Any], ...] = (
    {},
    {"runtime": "ordered", "workers": 2},
    {"runtime": "ordered", "partitions": 4},
    {"runtime": "ordered", "scheduler": "lp"},
    {"runtime": "ordered", "scheduler": "qst"},
    {"runtime": "fifo_slice"},
    {"window_operator": "two_level", "flush": "at_once"},
    {"window_operator": "two_level"},
    {"join_operator": "sync_filter"},
    {"multiway_join": "pipeline", "join_operator": "adaptive"},
)
#: Values other than the default, of the settings that are no choices.
VALUES: dict[str, tuple[Any, ...]] = {
    "workers": (1, 2),
    "morsel_rows": (7,),
    "slice_us": (20,),
    "tuple_burst": (100,),
    "fuse": (False,),
    "shared_windows": (False,),
    "adaptive_windows": (True,),
    "flush_every": (3,),
    "flush_windows": (7,),
    "low_level_entries": (64,),
    "lp_threshold": (3,),
    "qst_capacity": (9,),
    "ct_window_us": (77,),
    "reorder_buffer": (17,),
    "slack": ("5 seconds", "9 rows"),
    "join_alpha": (0.7,),
    "join_cost": (900,),
    "table_refresh": ("1 hour",),
    "partitions": (3,),
    "function_timeout": ("1 second",),
    "max_state": (2_000_000,),
    "max_overlap": (99_999,),
    "epoch_ms": (7,),
    "kernel_cache": ("off",),
}


def values_of(name: str) -> tuple[Any, ...]:
    """The tested values of a setting other than its default."""
    setting = SETTINGS[name]
    if setting.type is SettingType.CHOICE:
        return tuple(c for c in setting.choices if c != setting.default)
    return VALUES[name]


def session() -> cql.Session:
    made = cql.connect(spark=False)
    made.on_notice = lambda text: None
    columns = pa.table({"ts": [1, 2], "k": [1, 1], "v": [5, 6]})
    for name in "abc":
        made.create_stream(name, columns, ordered_by="ts", unit="seconds")
    made.create_stream("live", iter([{"ts": 1, "k": 1}]), ordered_by="ts", bounded=False)
    made.register_table("named", pa.table({"k": [1, 2], "name": ["x", "y"]}))

    @made.function
    def twice(x: int) -> int:
        return 2 * x

    return made


def explained(session: cql.Session, text: str, settings: dict[str, Any]) -> list[str]:
    """The lines of EXPLAIN under these settings."""
    session.sql("RESET")
    for name, value in settings.items():
        session.set(name, value)
    return str(session.sql(text).explain()).splitlines()


def cases() -> Iterator[tuple[str, Any]]:
    for name in SETTINGS:
        for value in values_of(name):
            yield name, value
