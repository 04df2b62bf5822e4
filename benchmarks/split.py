"""Figure 3 of the out-of-order paper as a query: a cheap predicate splits packets, the failing ones
go through an expensive predicate, and windows of a second count the union of both.

The rows of the expensive path are delayed more and more, as if the path were that slow. Three
plans: out of order; a merging union; and a pass-through union under a count with slack of its own,
once too small for the delay and once too large. Measured are the peak state, the latency of results
(event time reached when a window's count leaves, less the window's end), and the share of packets
that the count loses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

import cql
from benchmarks.figure import Check, Figure
from benchmarks.ours import integers
from benchmarks.skew import replayed
from benchmarks.workloads import SECOND, T0, Column

ROWS = 2_000_000
SECONDS = 60
DELAYS = (0.0, 0.5, 1.0, 2.0, 3.0)
#: The settings of each plan.
OUT, MERGE, SMALL, LARGE = "out of order", "merge", "slack 1 s", "slack 4 s"
PLANS: Mapping[str, Mapping[str, str]] = {
    OUT: {},
    MERGE: {"union_operator": "merge"},
    SMALL: {"slack": "1 second"},
    LARGE: {"slack": "4 seconds"},
}
EXPENSIVE = "pow(sin(len * 1e0), 2e0) + sqrt(abs(cos(len / 7e0))) + ln(len + 1e0) % 1e0 > 1.2e0"
QUERY = f"""
WITH cheap AS (SELECT ts FROM packets WHERE len < 576),
     dear AS (SELECT ts FROM {{late}} WHERE NOT len < 576 AND {EXPENSIVE})
SELECT count(*) AS n, window_end
FROM cheap UNION dear AS m [RANGE 1 SECOND, SLIDE 1 SECOND, WA ts] ORDER BY window_end
"""
_QUOTE = (
    '"Either the Merge operator can enforce order and pay the associated memory and latency costs,'
    " or the Window Count operator can use slack. In contrast, in OOP, stream progress information"
    " (punctuation) is inserted into the streams as they arrive and is propagated through the"
    ' selections and Merge, thus providing Window Count precise progress information." (§5.2)'
)
_SLACK = (
    '"Tuples will be dropped if the slack parameter s is too small, while a latency penalty will be'
    " incurred if s is too large. […] Compared to Option 2, no tuples will be dropped and latency"
    ' will be minimal, without any a priori bounds on stream skew." (§2)'
)


def figures(rows: int | None = None) -> Iterator[Figure]:
    data = packets(rows or ROWS)
    expected = passing(data)
    state: dict[str, list[float]] = {name: [] for name in PLANS}
    latency: dict[str, list[float]] = {name: [] for name in PLANS}
    lost: dict[str, list[float]] = {name: [] for name in PLANS}
    right = True
    for delay in DELAYS:
        for name, settings in PLANS.items():
            taken, waited, counted, dropped = run(data, settings, delay)
            state[name].append(taken / 1e6)
            latency[name].append(waited)
            lost[name].append(100 * dropped / expected)
            right &= counted + dropped == expected
            right &= dropped == 0 or "slack" in settings
    where = "delay of the expensive path in seconds"
    title = (
        f"Figure 3: split, cheap and expensive predicate, union, count; {len(data['ts']):,} rows"
    )
    share = state[OUT][-1] / state[MERGE][-1]
    memory = Check("state, out of order : merge, at the end", share, "below 1", share < 1)
    yield Figure(
        "figure3-memory",
        title,
        (_QUOTE,),
        where,
        DELAYS,
        "peak state in MB",
        state,
        [memory],
        right,
    )
    gain = latency[LARGE][0] - latency[OUT][0]
    sooner = all(a <= b for a, b in zip(latency[OUT], latency[LARGE], strict=True))
    early = Check("seconds that a slack of 4 s waits in vain", gain, "above 0", sooner and gain > 0)
    yield Figure(
        "figure3-latency", title, (_QUOTE, _SLACK), where, DELAYS, "mean latency in s", latency,
        [early], right,
    )  # fmt: skip
    short = lost[SMALL][-1]
    checks = [
        Check("percent lost by a slack of 1 s at the end", short, "above 0", short > 0),
        Check("percent lost out of order", max(lost[OUT]), "0", max(lost[OUT]) == 0),
    ]
    yield Figure(
        "figure3-lost", title, (_SLACK,), where, DELAYS, "percent of the rows", lost, checks, right
    )


def packets(n: int) -> dict[str, Column]:
    rng = np.random.default_rng(3)
    ts = np.sort(rng.integers(0, SECONDS * SECOND, n)) + T0
    return {"ts": ts, "len": rng.integers(40, 1500, n).astype(np.int32)}


def passing(data: Mapping[str, Column]) -> int:
    """The number of packets that satisfy one of the predicates, computed by numpy."""
    n = data["len"].astype(np.float64)
    dear = np.sin(n) ** 2 + np.sqrt(np.abs(np.cos(n / 7))) + np.log(n + 1) % 1.0 > 1.2
    return int(((n < 576) | dear).sum())


def run(
    data: Mapping[str, Column], settings: Mapping[str, Any], delay: float
) -> tuple[int, float, int, int]:
    """Peak bytes of state, the mean latency in seconds, the rows counted and the rows lost."""
    with cql.connect(spark=False, **settings) as session:
        replayed(session, "packets", data, 0)
        replayed(session, "late", data, delay)
        query: Any = session.sql(QUERY.format(late="late"))
        counted = 0
        waits: list[float] = []
        last = int(data["ts"][-1])
        for batch in query:
            counted += int(integers(batch.column(0)).sum())
            reached = query.progress().event_time
            ends = integers(batch.column(1))
            ends = ends[ends <= last - 5 * SECOND]  # the end of the input closes the other windows
            if reached is not None:
                waits += ((reached - ends) / SECOND + delay).tolist()
        state = sum(entry.get("peak_bytes", 0) for entry in query.metrics())
        ledger = query.late().to_pylist()
    dropped = sum(entry["count"] for entry in ledger if entry["kind"] == "pairs")
    return state, float(np.mean(waits)) if waits else 0.0, counted, dropped
