"""Sliding windows: Q9 of the out-of-order paper (three links, one of them late), and windows with
sixty-fold overlap."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import bare, peers
from benchmarks.harness import Benchmark, Contender, Ratio
from benchmarks.ours import Ours, integers
from benchmarks.workloads import (
    FINE,
    FULL,
    LATE,
    RANGE,
    SECOND,
    SLIDE,
    Answer,
    Workload,
    checksum,
    links,
    load,
    to_arrow,
)

COUNT = """
SELECT window_start, count(*) AS packets
FROM A UNION B UNION C AS m [RANGE 5 minutes, SLIDE 1 minute, WA ts]
"""
GROUPS = """
SELECT window_start, srcIP, count(*) AS packets, sum(len), min(len), max(len), avg(len)
FROM A UNION B UNION C AS m [RANGE 5 minutes, SLIDE 1 minute, WA ts]
GROUP BY srcIP
"""
FINE_QUERY = """
SELECT /*+ window_operator({}) */ window_start, srcIP, count(*) AS packets, sum(len)
FROM m [RANGE 5 minutes, SLIDE {}, WA ts] GROUP BY srcIP
"""
PANES, WID, TUMBLING = "ours, panes", "ours, plain WID", "ours, tumbling"


class Links(Ours):
    """Three streams. C arrives 30 seconds behind the others: its rows are in order, but its
    watermark is lower, so that windows stay open for it."""

    def __init__(self, query: str, workload: Workload) -> None:
        super().__init__(query)
        table = to_arrow(workload)
        link = workload.columns["link"]
        for number, name in enumerate("ABC", 1):
            mine = table.filter(link == number).select(["srcIP", "len", "ts"]).combine_chunks()
            slack = f"{LATE // SECOND} seconds" if name == "C" else None
            self.session.create_stream(name, mine, ordered_by="ts", slack=slack)


def q9(rows: int | None = None, folder: Path | None = None) -> Benchmark:
    workload = load(links, rows or FULL, folder)
    kernel, ours = bare.links_count(workload), Links(COUNT, workload)
    query = f"""
        WITH p AS (SELECT ts // {SLIDE} AS pane, count(*) AS c FROM {{m}} GROUP BY ALL)
        SELECT (pane - r.off) * {SLIDE} AS w, sum(c)::BIGINT AS packets
        FROM p, range({RANGE // SLIDE}) r(off) GROUP BY ALL"""
    return _benchmark(
        "q9", "Q9: 5 minutes by 1, one of three links late", workload, "count",
        {"bare kernel": (kernel, None), "ours": (ours, None)}, query, {"duckdb": 1.0}, 2,
    )  # fmt: skip


def q9_groups(rows: int | None = None, folder: Path | None = None) -> Benchmark:
    """avg, a double, is not compared."""
    workload = load(links, rows or FULL, folder)
    kernel, ours = bare.links_groups(workload), Links(GROUPS, workload)
    query = f"""
        WITH p AS (SELECT ts // {SLIDE} AS pane, srcIP, count(*) AS c, sum(len) AS s,
                          min(len) AS mn, max(len) AS mx FROM {{m}} GROUP BY ALL)
        SELECT (pane - r.off) * {SLIDE} AS w, srcIP, sum(c)::BIGINT AS packets, sum(s)::BIGINT,
               min(mn), max(mx), sum(s) / sum(c)
        FROM p, range({RANGE // SLIDE}) r(off) GROUP BY w, srcIP"""
    return _benchmark(
        "q9-groups", "Q9 with sum, avg, min and max by 1,000 addresses", workload, "groups",
        {"bare kernel": (kernel, None), "ours": (ours, None)}, query, {"bare kernel": 0.6}, 6,
    )  # fmt: skip


def overlap(rows: int | None = None, folder: Path | None = None) -> Benchmark:
    """Each row belongs to 60 windows. Compared with plain WID, the tumbling query, and hand-written
    panes in numba and in DuckDB."""
    workload = _in_order(load(links, rows or FULL, folder))
    table = to_arrow(workload)
    slide = f"{FINE // SECOND} seconds"
    ours = {
        PANES: (Ours(FINE_QUERY.format("auto", slide), m=table), None),
        WID: (Ours(FINE_QUERY.format("wid", slide), m=table), None),
        TUMBLING: (Ours(FINE_QUERY.format("auto", "5 minutes"), m=table), "tumbling"),
        "bare kernel": (bare.links_fine(workload), None),
    }
    query = f"""
        WITH p AS (SELECT ts // {FINE} AS pane, srcIP, count(*) AS c, sum(len) AS s
                   FROM {{m}} GROUP BY ALL)
        SELECT (pane - r.off) * {FINE} AS w, srcIP, sum(c)::BIGINT AS packets, sum(s)::BIGINT
        FROM p, range({RANGE // FINE}) r(off) GROUP BY ALL"""
    goals = {WID: 30.0, TUMBLING: 0.5, "duckdb": 5.0}
    return _benchmark(
        "overlap", "5 minutes by 5 seconds, by 1,000 addresses", workload, "fine", ours, query,
        goals, 4,
    )  # fmt: skip


#: Windows that differ only in their lengths: (range, slide) in minutes.
LENGTHS = ((1, 1), (2, 1), (5, 1), (5, 5), (10, 5), (15, 15))
OF_LENGTH = """
SELECT window_start, srcIP, count(*) AS packets, sum(len)
FROM m [RANGE {} minutes, SLIDE {} minutes, WA ts] GROUP BY srcIP"""


class Several:
    """The queries of ``LENGTHS``, as a query set or one after the other."""

    def __init__(self, *, together: bool, shared: bool, **streams: Any) -> None:
        self.session = Ours("", **streams).session
        self.session.set("shared_windows", shared)
        self._queries = [OF_LENGTH.format(*lengths) for lengths in LENGTHS]
        self._together = together

    def run(self) -> list[Any]:
        if self._together:
            return self.session.query_set(";".join(self._queries)).to_arrow()
        return [self.session.sql(query).to_arrow() for query in self._queries]


def several(rows: int | None = None, folder: Path | None = None) -> Benchmark:
    """Six queries in a query set, against the same queries one after the other."""
    workload = _in_order(load(links, rows or FULL, folder))
    table = to_arrow(workload)
    own = {
        "together, panes shared": Several(together=True, shared=True, m=table),
        "together, scan shared": Several(together=True, shared=False, m=table),
        "one after the other": Several(together=False, shared=False, m=table),
    }

    def answer(tables: list[Any]) -> Answer:
        columns = (np.concatenate([integers(t.column(i)) for t in tables]) for i in range(4))
        return checksum(*columns)

    expected = answer(own["one after the other"].run())
    contenders = [
        Contender(label, each.run, answer, expected=expected, pinned=True)
        for label, each in own.items()
    ]
    first, *others = own
    ratios = [Ratio(first, other, None) for other in others]
    title = f"six windows that differ in their lengths; {workload.rows:,} packets"
    return Benchmark("several", title, workload.rows, expected, contenders, ratios)


def _in_order(workload: Workload) -> Workload:
    order = np.argsort(workload.columns["ts"], kind="stable")
    columns = {name: column[order] for name, column in workload.columns.items()}
    return Workload(workload.name, workload.size, columns, workload.answers)


def _benchmark(
    name: str,
    title: str,
    workload: Workload,
    answer: str,
    own: Mapping[str, tuple[Any, str | None]],
    query: str,
    goals: Mapping[str, float],
    compared: int,
) -> Benchmark:
    """``own`` are contenders on one thread, each with the name of its answer if it differs from
    ``answer``. The first ``compared`` columns of a result are compared. Each ratio is that of
    PANES, if there is such a contender, or else of "ours"."""

    def of_table(made: Any) -> Answer:
        return checksum(*(integers(made.column(i)) for i in range(compared)))

    contenders = []
    for label, (each, other) in own.items():
        expected = None if other is None else workload.answers[other]
        check = of_table if isinstance(each, Ours) else each.answer
        notes = each.notes if isinstance(each, Ours) else None
        contenders.append(
            Contender(label, each.run, check, expected=expected, notes=notes, pinned=True)
        )
    table = to_arrow(workload)
    plain = table.set_column(table.schema.get_field_index("ts"), "ts", table["ts"].cast("int64"))
    runs = peers.duckdb_runs(query, m=plain)
    contenders += [Contender(label, run, of_table) for label, run in runs.items()]
    mine = PANES if PANES in own else "ours"
    others = [label for label in (*own, *runs) if label != mine]
    ratios = [Ratio(mine, o, goals.get(o, goals.get(o.split(",")[0]))) for o in others]
    full = f"{title}; {workload.rows:,} packets"
    return Benchmark(name, full, workload.rows, workload.answers[answer], contenders, ratios)
