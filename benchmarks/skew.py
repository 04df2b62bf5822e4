"""Figures 1 and 13 of the out-of-order paper: the peak state of a count over a union, in order and
out of order, as one input becomes later.

The in-order plan is ``SET union_operator = 'merge'``: rows of the early inputs wait in the union,
and for a sliding window in the buffer of the window. The out-of-order plan is the default. The
inputs are replayed in the order of arrival of their rows, a tenth of a second at a time, without a
clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import cql
from benchmarks.figure import Check, Figure, slope
from benchmarks.ours import integers
from benchmarks.workloads import SECOND, T0, Answer, Column, checksum

SKEWS = (1, 5, 10, 20, 30, 40)
IN_ORDER, OUT_OF_ORDER = "in order", "out of order"
STEP = "100 milliseconds"
#: Limits for the shape of the figures, from the issue.
FLAT, SHARE, LINEAR = 0.2, 0.3, 0.95


@dataclass(frozen=True, slots=True)
class Setting:
    """``rates`` are rows per second of event time, by link; ``late`` is the delayed link. ``total``
    is the column of the result whose sum is the number of rows (times ``overlap``)."""

    name: str
    title: str
    quotes: Sequence[str]
    query: str
    rates: Mapping[str, float]
    late: str
    seconds: int
    overlap: int = 1
    groups: int = 1

    @property
    def full_title(self) -> str:
        rates = ", ".join(f"{name} {rate:,.6g}/s" for name, rate in self.rates.items())
        groups = f", {self.groups:,} groups" if self.groups > 1 else ""
        return f"{self.title}{groups}; {rates}"

    def scaled(self, rows: int | None) -> Setting:
        """The same duration with about ``rows`` rows: lower rates and fewer groups."""
        if rows is None:
            return self
        share = rows / (sum(self.rates.values()) * self.seconds)
        rates = {name: max(rate * share, 0.2) for name, rate in self.rates.items()}
        groups = self.groups if self.groups == 1 else max(2, round(self.groups * min(1.0, share)))
        return replace(self, rates=rates, groups=groups)


_FIGURE_1 = (
    '"As Figure 1 shows, as the delay of the late stream increases from 1 second to 40 seconds, the'
    " memory usage for IOP evaluation increases significantly. The memory usage for OOP evaluation"
    " starts below that of IOP and grows slowly as skew increases. At a 40-second delay, OOP"
    ' requires only 30% of the memory that IOP requires." (§1)'
)
_G2 = (
    '"OOP generally uses less memory than IOP; as arrival skew increases, the memory usage of OOP'
    ' remains relatively flat, while that of IOP increases dramatically." (§8.1, experiment G2)'
)
_FIGURE_13 = (
    '"Figure 13 shows that the memory usage of IOP grows significantly as the delay of C increases,'
    " while that of OOP is relative stable. Here, the memory benefit of OOP is due to OOP"
    " aggregation directly reducing tuples into aggregates without first buffering and sorting the"
    ' input." (§8.2, experiment N3)'
)
Q5 = Setting(
    "figure1-q5",
    "Figure 1, Q5: a count of 1 minute",
    (_FIGURE_1, _G2),
    """SELECT srcIP, destIP, count(*) AS n FROM M1 UNION M2
       [RANGE 1 min, SLIDE 1 min, WA ts] GROUP BY srcIP, destIP""",
    {"M1": 110_000, "M2": 110_000},
    "M2",
    150,
    groups=65_536,
)
INTRODUCTION = Setting(
    "figure1-count",
    "Figure 1 as introduced: a count of 10 seconds",
    (_FIGURE_1,),
    "SELECT count(*) AS n FROM M1 UNION M2 [RANGE 10 seconds, SLIDE 10 seconds, WA ts]",
    {"M1": 110_000, "M2": 110_000},
    "M2",
    100,
)
Q9 = Setting(
    "figure13-q9",
    "Figure 13, Q9: 5 minutes by 1 minute",
    (_FIGURE_13,),
    "SELECT count(*) AS n FROM M1 UNION M2 UNION C [RANGE 5 min, SLIDE 1 min, WA ts]",
    {"M1": 4_000, "M2": 4_000, "C": 40},
    "C",
    420,
    overlap=5,
)


def figures(rows: int | None = None) -> Iterator[Figure]:
    for setting in (Q5, INTRODUCTION, Q9):
        yield measured(setting.scaled(rows))


def measured(setting: Setting, skews: Sequence[int] = SKEWS) -> Figure:
    """Runs each plan at each skew. Every answer must add up, and the two plans must agree."""
    links = {
        name: link(seed, rate, setting.seconds, setting.groups)
        for seed, (name, rate) in enumerate(setting.rates.items())
    }
    packets = setting.overlap * sum(len(columns["ts"]) for columns in links.values())
    series: dict[str, list[float]] = {OUT_OF_ORDER: [], IN_ORDER: []}
    right = True
    for skew in skews:
        answers = []
        for name, taken in series.items():
            bytes_, counted, answer = _run(setting, links, skew, in_order=name == IN_ORDER)
            taken.append(bytes_ / 1e6)
            right &= counted == packets
            answers.append(answer)
        right &= answers[0] == answers[1]
    return Figure(
        setting.name,
        setting.full_title,
        setting.quotes,
        f"skew of {setting.late} in seconds",
        skews,
        "peak state in MB",
        series,
        _checks(skews, series[OUT_OF_ORDER], series[IN_ORDER]),
        right,
    )


def _checks(skews: Sequence[int], out: Sequence[float], in_: Sequence[float]) -> list[Check]:
    growth, share = out[-1] / out[0] - 1, out[-1] / in_[-1]
    steepness, explained = slope(skews, in_)
    linear = explained >= LINEAR and steepness > 0
    last = f"at a skew of {skews[-1]} s"
    return [
        Check(f"growth of out of order {last}", growth, f"at most {FLAT}", growth <= FLAT),
        Check(f"out of order : in order {last}", share, f"at most {SHARE}", share <= SHARE),
        Check(
            f"in order grows by {steepness:,.3g} MB a second of skew, on a line (R²)",
            explained,
            f"at least {LINEAR}",
            linear,
        ),
    ]


def link(seed: int, rate: float, seconds: int, groups: int) -> dict[str, Column]:
    """Packets of one link in time order, spread evenly over ``groups`` pairs of addresses."""
    rng = np.random.default_rng(seed)
    n = max(1, round(rate * seconds))
    ts = np.sort(rng.integers(0, seconds * SECOND, n)) + T0
    columns: dict[str, Column] = {"ts": ts}
    if groups > 1:
        pair = rng.integers(0, groups, n)
        columns["srcIP"] = (pair >> 8).astype(np.int32)
        columns["destIP"] = (pair & 255).astype(np.int32)
    return columns


def _run(
    setting: Setting, links: Mapping[str, Mapping[str, Column]], skew: int, *, in_order: bool
) -> tuple[int, int, Answer]:
    """Peak bytes of state, the sum of all counts, and the answer."""
    settings = plan_settings(in_order=in_order, sliding=setting.overlap > 1)
    with cql.connect(spark=False, **settings) as session:
        for name, columns in links.items():
            late = skew if name == setting.late else 0
            replayed(session, name, columns, late)
        query: Any = session.sql(setting.query)
        table = query.to_arrow()
        state = sum(entry.get("peak_bytes", 0) for entry in query.metrics())
    columns_ = [integers(column) for column in table.columns]
    return state, int(columns_[-1].sum()), checksum(*columns_)


def plan_settings(*, in_order: bool, sliding: bool) -> dict[str, str]:
    """The settings of a plan. In order, a sliding window is buffered, as in a system that relies on
    order (§4.1)."""
    if not in_order:
        return {"union_operator": "pass_through"}
    return {"union_operator": "merge", "window_operator": "buffered" if sliding else "auto"}


def replayed(
    session: Any, name: str, columns: Mapping[str, Column], skew: float, speed: int = 0
) -> None:
    """Creates stream ``name``, whose rows arrive ``skew`` seconds late, on a clock with ``speed``
    times real time (0: without a clock)."""
    import pyarrow as pa

    arrays = {k: pa.array(v) for k, v in columns.items()}
    arrays["ts"] = arrays["ts"].view(pa.timestamp("us", "UTC"))
    session.create_stream(f"{name}_rows", pa.table(arrays), ordered_by="ts")
    typed = ", ".join(f"{k} {'timestamp' if k == 'ts' else 'int'}" for k in columns)
    pace = f", speed '{speed}'" if speed else ""
    session.sql(f"""
        CREATE STREAM {name} ({typed}) ORDERED BY ts USING replay
        OPTIONS (table '{name}_rows', time 'ts', step '{STEP}', skew '{skew} seconds'{pace})""")
