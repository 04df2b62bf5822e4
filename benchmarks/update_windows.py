"""Figures 13 and 14 of the UpStream report: windows as updates.

The append queue of figure 13 is one FIFO of rows without shared panes: a row takes C_t once for
each window that it is in, and the result of a window is there when its last row has been processed.
Random window shedding is the same queue, in which each window is kept with the probability that
drops as many windows as LAZY does; a row in no such window takes no time.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from benchmarks.figure import Check, Figure, slope
from benchmarks.update_simulation import Simulated, every, windows, zipf
from benchmarks.workloads import Column
from cql.executor.operators.updates.queue_state import Windows
from cql.planner.placement.update_cost import load, lone_window_cost

SIZES = (1, 2, 5, 10, 20, 50, 100)
#: Runs of random window shedding. Its load is 1, so its queue grows with the square root of time.
DRAWS = 10
LAZY, EAGER, APPEND, RANDOM = "LAZY", "EAGER", "append", "random window shedding"
KEYS, THETAS, IN_TURN = 10, (0.0, 0.5, 0.9), "1, 2, 1, 2, …"
_TUMBLING = (
    '"for the latter one [LAZY], staleness grows linearly with the window size. […] by taking the'
    " average while increasing window sizes, staleness for the EAGER case decreases"
    ' asymptotically." (§6.3.1)'
)
_OVERLAPPING = (
    '"The results clearly show that the latter [EAGER and LAZY] outperform even the random window'
    " shedding which would drop more or less the same amount of windows as the update semantics"
    ' would." (§6.3.1)'
)
_PATTERNS = (
    '"EAGER performs worse than LAZY for the ZipF distributions. […] the difference between EAGER'
    " and LAZY is more prominent in the first part of the x-axis than in the second one. […] for"
    ' the uniform arrival order distribution, EAGER outperforms LAZY." (§6.3.2)'
)


def figures(rows: int | None = None) -> Iterator[Figure]:
    """``rows`` of each run; None: 50,000."""
    for made in (tumbling, overlapping, patterns):
        yield made(rows or 50_000)


def tumbling(rows: int) -> Figure:
    """Figure 13(a)."""
    lazy = [one_key(rows, size, size, eager=False).application for size in SIZES]
    eager = [one_key(rows, size, size, eager=True).application for size in SIZES]
    steep, explained = slope(SIZES, lazy)
    flat = [size * value for size, value in zip(SIZES, eager, strict=True)]
    off = max(abs(value / 0.5 - 1) for value in flat)
    return Figure(
        "updates-13a",
        "Figure 13: one key, a row each tick, C_t = 1: tumbling windows",
        (_TUMBLING, _OVERLAPPING),
        "size of a window in ticks",
        SIZES,
        "average application staleness in ticks",
        {LAZY: lazy, EAGER: eager},
        [
            Check("LAZY, staleness per tick of size", steep, "0.5: C_t/2", abs(steep - 0.5) < 0.02),
            Check(
                "LAZY, share of the variance that a line explains",
                explained,
                "the paper: staleness grows linearly with the window size",
                explained > 0.999,
            ),
            Check(
                "EAGER from 1 / (2ω), at the most",
                off,
                "the paper: decreases asymptotically (C_t²/2 for each window)",
                off < 0.02,
            ),
        ],
        log_x=True,
        log_y=True,
        sheet="updates-13",
        panel="(a) tumbling windows",
    )  # fmt: skip


def overlapping(rows: int) -> Figure:
    """Figure 13(b): a slide of 1."""
    series: dict[str, list[float]] = {name: [] for name in (LAZY, EAGER, APPEND, RANDOM)}
    spent = []
    for size in SIZES:
        lazy = one_key(rows, size, 1, eager=False)
        results = len(lazy.results)
        drawn = np.random.default_rng(size).random((DRAWS, rows)) < results / rows
        shed = [append_staleness(keeps, size) for keeps in drawn]
        series[APPEND].append(append_staleness(np.ones(rows, np.bool_), size))
        series[RANDOM].append(float(np.mean(shed)))
        series[LAZY].append(lazy.application)
        series[EAGER].append(one_key(rows, size, 1, eager=True).application)
        spent.append(rows / results / lone_window_cost(size))
    worse = [
        min(series[APPEND][k], series[RANDOM][k]) / max(series[LAZY][k], series[EAGER][k])
        for k, size in enumerate(SIZES)
        if size > 1
    ]
    eager = [e / w for e, w in zip(series[EAGER], series[LAZY], strict=True)]
    off = max(abs(value - 1) for value in spent)
    return Figure(
        "updates-13b",
        "Figure 13: one key, a row each tick, C_t = 1: a slide of 1",
        (_TUMBLING, _OVERLAPPING),
        "size of a window in ticks",
        SIZES,
        "average application staleness in ticks",
        series,
        [
            Check(
                "the better of append and random window shedding : the worse of LAZY and EAGER,"
                " from size 2 on, at least",
                min(worse),
                "the paper: EAGER and LAZY outperform even the random window shedding",
                min(worse) > 1,
            ),
            Check("EAGER : LAZY, at the most", max(eager), "at most 1", max(eager) <= 1),
            Check("time for a result of LAZY from C_t·ω, at most", off, "at most 0.05", off < 0.05),
            Check("load of the append queue at the largest size", load(SIZES[-1], 1, 1, 1)),
        ],
        log_x=True,
        log_y=True,
        sheet="updates-13",
        panel="(b) a slide of 1",
    )  # fmt: skip


def one_key(rows: int, size: int, slide: int, *, eager: bool) -> Simulated:
    """A row each tick, each of which takes a tick."""
    arrivals = every(1, np.zeros(rows, np.int64), 1)
    return windows(Windows(size, slide, eager), arrivals)


def append_staleness(keeps: npt.NDArray[np.bool_], size: int, cost: int = 1) -> float:
    """Average application staleness in ticks of a FIFO of rows that come each tick; windows of
    ``size`` rows start with each row. ``keeps``: whether the window that starts with the row is
    kept, shape: (rows,)."""
    rows = keeps.size
    kept = np.concatenate([[0], np.cumsum(keeps)])
    first = np.maximum(np.arange(rows) - size + 1, 0)
    costs = cost * (kept[1:] - kept[first])
    ended = np.cumsum(costs)
    finished = ended + np.maximum.accumulate(np.arange(rows) - ended + costs)
    starts = np.flatnonzero(keeps[: max(rows - size + 1, 0)])
    delivered = finished[starts + size - 1]
    known = delivered < rows
    starts, delivered = starts[known], delivered[known]
    # Between two deliveries staleness counts from the end of the window behind the last result.
    since = np.concatenate([[size - 1], starts + size])
    begin = np.maximum(np.concatenate([[0], delivered]), since)
    end = np.maximum(np.concatenate([delivered, [rows]]), begin)
    return float(((end - since) ** 2 - (begin - since) ** 2).sum()) / 2 / rows


def patterns(rows: int) -> Figure:
    """Figure 14. Each key has its own event time, so windows have ``size`` rows of a key."""
    sizes = SIZES[1:]
    orders = {f"Zipf, θ = {theta:g}": zipf(rows, KEYS, theta, seed=3) for theta in THETAS}
    orders[IN_TURN] = np.arange(rows) % KEYS
    series = {name: [_eager_to_lazy(ids, size) for size in sizes] for name, ids in orders.items()}
    skewed = [values for name, values in series.items() if name != IN_TURN]
    first, least = min(v[0] for v in skewed), min(map(min, skewed))
    fall = max(v[-1] / v[0] for v in skewed)
    turn = max(series[IN_TURN])
    return Figure(
        "updates-14",
        "Figure 14: 10 keys, a row each tick, C_t = 1, a slide of 1, IN-PLACE",
        (_PATTERNS,),
        "rows of a window",
        sizes,
        "application staleness, EAGER : LAZY",
        series,
        [
            Check(
                f"EAGER : LAZY, Zipf, {sizes[0]} rows, at least",
                first,
                "the paper: EAGER performs worse for the ZipF distributions",
                first > 1,
            ),
            Check(
                "EAGER : LAZY, Zipf, all sizes, at least",
                least,
                "the paper: EAGER performs worse for the ZipF distributions",
                least > 1,
                "gaps even out in a window of many rows: with θ = 0 its rows take about as long as"
                " if keys took turns, and EAGER wins; with θ = 0.9 rare keys keep it behind",
            ),
            Check(
                f"the same, {sizes[-1]} rows : {sizes[0]} rows, at the most",
                fall,
                "the paper: more prominent in the first part of the x-axis",
                fall < 0.8,
            ),
            Check(
                f"EAGER : LAZY, {IN_TURN}, at the most",
                turn,
                "the paper: EAGER outperforms LAZY",
                turn < 1,
            ),
        ],
        log_x=True,
    )


def _eager_to_lazy(ids: Column, size: int) -> float:
    arrivals = every(1, ids, KEYS)
    eager, lazy = (
        windows(Windows(size, 1, eager), arrivals, by_key=True).application
        for eager in (True, False)
    )
    return eager / lazy
