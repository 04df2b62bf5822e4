"""Figures of the UpStream report (Moga, Botan, Tatbul: Storage-centric Load Management for Data
Streams with Update Semantics, 2009): staleness of update queues and the memory that they use, under
a virtual clock.

Updates arrive at even distances, so nothing waits below a load of 1. Figure 9 depends on it that
each key updates evenly too: a test for slow keys cannot gain where a key's next update comes at
random.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise, product

import numpy as np

from benchmarks import update_queue, update_windows
from benchmarks.figure import Check, Figure, slope
from benchmarks.update_simulation import (
    APPEND,
    COST,
    FIFO,
    IN_PLACE,
    LINECUTTING,
    NAMES,
    SHED,
    at_load,
    every,
    spread,
    tuples,
    zipf,
)
from benchmarks.workloads import Column
from cql.executor.operators.updates.queue_state import Storage

#: Updates of a run.
UPDATES = 100_000
_FIGURE_5 = (
    '"staleness grows in a similar way and the difference between the two staleness metrics is'
    " determined by the queue waiting time, which is solely a linear function of the load factor."
    " […] in Figure 5(b), the queue staleness is inflated by about a factor of 10 […]. However, the"
    ' number of keys does not affect the difference between application and queue staleness" (§5.1)'
)
_FIGURE_7 = (
    '"these baseline key scheduling policies significantly improve average staleness. […] IN-PLACE'
    " policy results in the lowest average staleness that can be achieved when the update"
    ' frequencies of the update keys are uniformly distributed." (§5.2)'
)
_FIGURE_8 = (
    '"More than 3000 different stock symbols (i.e., update keys) were involved, and the most active'
    " of these updated for 4305 times whereas the least active one updated for only once during the"
    ' corresponding day." (§5.3)'
)
_DAY = (
    '"Is IN-PLACE key scheduling policy still the best that we can do for such non-uniform update'
    ' frequencies?" (§5.3)'
)
_FIGURE_9 = (
    '"Figure 9 shows our result for when load factor was 5. […] When we have no/all slow updaters,'
    " both algorithms perform exactly the same. […] At 8 slow updaters, they have the highest"
    " benefit, and then we see some drop. […] we repeated this experiment for other load levels as"
    ' well, and obtained a similar result." (§5.3)'
)
_MEMORY = (
    '"A value of 1 means that no matter the distribution, this mechanism does not introduce dirty'
    " locations. On the other hand, while increasing skewdness, the naive approach uses the"
    " allocated space […] less efficiently […]. If we vary the load factor, the effective usage for"
    " the naive approach is low for small load factors but it improves while the time between two"
    ' dequeues increases." (§7.3)'
)


def figures(rows: int | None = None) -> Iterator[Figure]:
    """``rows``: updates of each run (None: 100,000; 50,000 rows of windows). Figures 8, 16 and 17
    have the report's sizes."""
    yield from both_metrics(rows or UPDATES)
    yield from schedulers(rows or UPDATES)
    yield symbols()
    yield day()
    yield linecutting(rows or UPDATES)
    yield from update_windows.figures(rows)
    yield from memory()
    yield update_queue.throughput(50 * (rows or UPDATES))


# -- figure 5 --------------------------------------------------------------------------------------


def both_metrics(updates: int) -> Iterator[Figure]:
    """Figure 5, in units of updates as in the report: the intervals between two arrivals."""
    loads = tuple(range(1, 11))
    found = {keys: _both(updates, keys, loads) for keys in (1, 10)}
    (_, one), (_, ten) = found[1], found[10]
    steep, explained = slope(loads, _times(_less(*found[1]), loads))
    for keys, (application, queue) in found.items():
        checks = [
            Check(
                "difference, share of the variance that a line over the load explains",
                slope(loads, _times(_less(application, queue), loads))[1],
                "the paper: solely a linear function of the load factor",
                explained > 0.99,
            )
        ]
        if keys == 1:
            goal = "1: the cost of an update"
            checks.append(Check("difference, per load", steep, goal, abs(steep - 1) < 0.05))
        else:
            ratios = [b / a for a, b in zip(one[1:], ten[1:], strict=True)]
            differences = [b / a for a, b in zip(_less(*found[1]), _less(*found[10]), strict=True)]
            checks += [
                Check(
                    "queue staleness, 10 keys : 1 key, from load 2 on, at least",
                    min(ratios),
                    "the paper: inflated by about a factor of 10",
                    min(ratios) > 9,
                ),
                Check(
                    "the same, at the most",
                    max(ratios),
                    "the paper: inflated by about a factor of 10",
                    max(ratios) < 11,
                ),
                Check(
                    f"difference, 10 keys : 1 key, load {loads[-1]}",
                    differences[-1],
                    "the paper: the number of keys does not affect the difference",
                    abs(differences[-1] - 1) < 0.1,
                ),
                Check(
                    "difference, 10 keys : 1 key, load 2",
                    differences[1],
                    "the paper: the number of keys does not affect the difference",
                    abs(differences[1] - 1) < 0.1,
                    "a key has no update that waits for much of the time, and adds nothing then",
                ),
            ]
        yield Figure(
            f"updates-5{'a' if keys == 1 else 'b'}",
            "Figure 5: application and queue staleness, IN-PLACE",
            (_FIGURE_5,),
            "load",
            loads,
            "average staleness in updates",
            {
                "application staleness": _times(application, loads),
                "queue staleness": _times(queue, loads),
                "difference": _times(_less(application, queue), loads),
            },
            checks,
            sheet="updates-5",
            panel="(a) one key" if keys == 1 else "(b) 10 keys",
        )


def _both(updates: int, keys: int, loads: Sequence[float]) -> tuple[list[float], list[float]]:
    """Application staleness and queue staleness at each load, in units of the cost."""
    ids = zipf(updates, keys, 0)
    runs = [tuples(IN_PLACE, at_load(load, ids, keys)) for load in loads]
    return [run.application / COST for run in runs], [run.queue / COST for run in runs]


def _less(a: Sequence[float], b: Sequence[float]) -> list[float]:
    return [x - y for x, y in zip(a, b, strict=True)]


def _times(a: Sequence[float], b: Sequence[float]) -> list[float]:
    return [x * y for x, y in zip(a, b, strict=True)]


# -- figure 7 --------------------------------------------------------------------------------------


def schedulers(updates: int) -> Iterator[Figure]:
    """Figure 7. Random load shedding brings the load down to 1, where an append queue grows with
    the square root of time."""
    loads = (0.25, 0.5, 0.75, 0.9, 1, 1.5, 2, 3, 5, 8, 10)
    for keys in (1, 10):
        ids = zipf(updates, keys, 0)
        series = {
            NAMES[each]: [
                tuples(each, at_load(load, ids, keys)).application / COST for load in loads
            ]
            for each in (APPEND, SHED, FIFO, IN_PLACE)
        }
        under = [k for k, load in enumerate(loads) if load <= 1]
        over = [k for k, load in enumerate(loads) if load > 1]
        mine = series[NAMES[IN_PLACE]]
        apart = max(values[k] / mine[k] for values in series.values() for k in under)
        ratios = {
            name: [values[k] / mine[k] for k in over]
            for name, values in series.items()
            if name != NAMES[IN_PLACE]
        }
        yield Figure(
            f"updates-7{'a' if keys == 1 else 'b'}",
            f"Figure 7: append queues and update queues, {updates:,} updates, all keys alike",
            (_FIGURE_7,),
            "load",
            loads,
            "average application staleness in units of the cost",
            series,
            [
                Check("apart up to load 1, at the most", apart, "1: all alike", apart < 1 + 1e-9),
                *(
                    Check(
                        f"{name} : IN-PLACE from load 1.5 on, at least",
                        min(values),
                        "the paper: IN-PLACE results in the lowest average staleness",
                        min(values) >= 1,
                    )
                    for name, values in ratios.items()
                ),
            ],
            log_y=True,
            sheet="updates-7",
            panel="(a) one key" if keys == 1 else "(b) 10 keys",
        )


# -- figure 8 --------------------------------------------------------------------------------------

SYMBOLS, MOST = 3200, 4305


@cache
def symbol_counts() -> Column:
    """Updates of each symbol in a synthetic day, by rank: a Zipf law from 4,305 updates down to
    one."""
    theta = math.log(MOST) / math.log(SYMBOLS)
    ranks = np.arange(1, SYMBOLS + 1)
    return np.maximum(1, np.round(MOST * ranks**-theta)).astype(np.int64)


def symbols() -> Figure:
    """Figure 8: the TAQ data is not public, so the day is made up."""
    counts = symbol_counts()
    most, least = int(counts[0]), int(counts[-1])
    ranks = np.unique(np.geomspace(1, SYMBOLS, 25).astype(np.int64))
    return Figure(
        "updates-8",
        "Figure 8: updates of each symbol in a day (synthetic)",
        (_FIGURE_8,),
        "rank of the symbol",
        ranks.tolist(),
        "updates",
        {"updates of the symbol": counts[ranks - 1].astype(float).tolist()},
        [
            Check("symbols", SYMBOLS, "the paper: more than 3,000", SYMBOLS > 3000),
            Check("updates of the most active", most, "the paper: 4,305", most == MOST),
            Check("updates of the least active", least, "the paper: 1", least == 1),
            Check("updates of the day", float(counts.sum())),
        ],
        log_x=True,
        log_y=True,
    )


def day() -> Figure:
    """How stale the symbols of that day are, in random order."""
    counts = symbol_counts()
    ids = np.random.default_rng(8).permutation(np.repeat(np.arange(SYMBOLS), counts))
    loads = (1.1, 1.5, 2, 3, 5, 10)
    runs = [at_load(load, ids, SYMBOLS) for load in loads]
    mine = [tuples(IN_PLACE, run).application for run in runs]
    series = {
        f"{NAMES[each]} : IN-PLACE": [
            tuples(each, run).application / base for run, base in zip(runs, mine, strict=True)
        ]
        for each in (FIFO, LINECUTTING)
    }
    return Figure(
        "updates-8-day",
        f"The day of figure 8, {ids.size:,} updates at even distances",
        (_DAY,),
        "load",
        loads,
        "ratio of average application staleness",
        series,
        [
            check
            for name, values in series.items()
            for check in (
                Check(f"{name}, at least", min(values)),
                Check(f"{name}, at the most", max(values)),
            )
        ],
    )


# -- figure 9 --------------------------------------------------------------------------------------

SLOW_OF, FASTER, DRAWS = 10, 10, 10


def slow_share(slow: int) -> float:
    """The share of the updates that ``slow`` of the ten keys have."""
    return slow / (slow + FASTER * (SLOW_OF - slow))


def linecutting(updates: int) -> Figure:
    """Figure 9, as the report's test is printed and guarded (``kernels.updates.queue_of_keys``), at
    its load of 5 and at 3. A ratio is that of two averages over ``DRAWS`` runs that begin at random
    phases of the keys."""
    slow = tuple(range(SLOW_OF + 1))
    rng = np.random.default_rng(9)
    evenly, drawn = [], []
    for x in slow:
        rates, n = np.repeat([1.0, FASTER], [x, SLOW_OF - x]), updates // DRAWS
        evenly.append([spread(n, rates, rng.random(SLOW_OF)) for _ in range(DRAWS)])
        drawn.append([rng.choice(SLOW_OF, updates, p=rates / rates.sum()).astype(np.int64)])
    series = {}
    for load, guarded in product((3, 5), (False, True)):
        label = f"load {load}, {'guarded' if guarded else 'as printed'}"
        series[label] = [_benefit(load, each, guarded) for each in evenly]
    ends = max(abs(values[x] - 1) for values in series.values() for x in (0, SLOW_OF))
    series["in random order, load 5, as printed"] = [_benefit(5, each, False) for each in drawn]
    printed3, printed5 = series["load 3, as printed"], series["load 5, as printed"]
    guarded3, guarded5 = (min(series[f"load {load}, guarded"]) for load in (3, 5))
    best3, best5 = int(np.argmax(printed3)), int(np.argmax(printed5))
    return Figure(
        "updates-9",
        "Figure 9: LINECUTTING, 10 keys of which some update a tenth as often as the others",
        (_FIGURE_9,),
        "slow keys",
        slow,
        "queue staleness, IN-PLACE : LINECUTTING",
        series,
        [
            Check(
                "from 1 with no and all slow keys, at the most",
                ends,
                "the paper: both algorithms perform exactly the same",
                ends < 0.01,
            ),
            Check("highest at load 3, slow keys", best3, "the paper: 8", best3 == 8),
            Check("benefit there", printed3[best3]),
            Check(
                "highest at load 5, slow keys",
                best5,
                "the paper: 8",
                best5 == 8,
                f"7 slow keys that cut in take {5 * slow_share(7):.2f} of the server at load 5 and"
                f" three fast keys starve; 8 ask for {5 * slow_share(8):.2f}, so most of them fail"
                f" the test (at load 3: {3 * slow_share(8):.2f}). The report does not tell how its"
                " updates arrive",
            ),
            Check("benefit there", printed5[best5]),
            Check("load 3, as printed, at least", min(printed3)),
            Check("load 3, guarded, at least", guarded3, "above that", guarded3 > min(printed3)),
            Check("load 5, as printed, at least", min(printed5)),
            Check("load 5, guarded, at least", guarded5, "above that", guarded5 > min(printed5)),
        ],
    )


def _benefit(load: float, orders: Sequence[Column], guarded: bool) -> float:
    runs = [at_load(load, ids, SLOW_OF) for ids in orders]
    mine = sum(tuples(IN_PLACE, run).queue for run in runs)
    return mine / sum(tuples(LINECUTTING, run, guarded=guarded).queue for run in runs)


# -- figures 16 and 17 -----------------------------------------------------------------------------

THETAS = (0.0, 0.3, 0.6, 0.9)
#: Updates a second; ten are dequeued a second, until 1,000 results. A tick is a microsecond.
RATES, DEQUEUES, RESULTS, KEYS = (20, 50, 100, 200, 500, 1000), 10, 1000, 100
SECOND = 1_000_000
#: Places of a page: a tenth of the keys.
PAGE_ROWS = 10
STORAGES = {Storage.PAGED: "on demand", Storage.PREALLOCATED: "preallocated"}
WHOLE = "on demand, whole pages"


def memory() -> Iterator[Figure]:
    """Figures 16 and 17: one grid, averaged over the rates and over the distributions."""
    effective: dict[str, Column] = {}
    places: dict[str, Column] = {}
    for storage, name in STORAGES.items():
        grid = np.array([[used(storage, theta, rate) for rate in RATES] for theta in THETAS])
        effective[name], places[name] = grid[:, :, 0], grid[:, :, 1]
        if storage is Storage.PAGED:
            places[WHOLE] = grid[:, :, 2]
    for axis, number, label, x in (
        (1, "16", "θ of the Zipf distribution", THETAS),
        (0, "17", "updates a second", RATES),
    ):
        over = "rates" if axis == 1 else "distributions"
        title = f"Figure {number}: 100 keys, 10 dequeues a second, averages over the {over}"
        shares = {name: each.mean(axis=axis).tolist() for name, each in effective.items()}
        taken = {name: each.mean(axis=axis).tolist() for name, each in places.items()}
        yield Figure(
            f"updates-{number}a",
            title,
            (_MEMORY,),
            label,
            x,
            "share of the places used that hold an update",
            shares,
            _effective(effective, shares["preallocated"], falls=axis == 1),
            log_x=axis == 0,
            sheet=f"updates-{number}",
            panel="(a) effective usage",
        )
        most = max(a / b for a, b in zip(taken["on demand"], taken["preallocated"], strict=True))
        whole = max(a / b for a, b in zip(taken[WHOLE], taken["preallocated"], strict=True))
        yield Figure(
            f"updates-{number}b",
            title,
            (_MEMORY,),
            label,
            x,
            "places used",
            taken,
            [
                Check("on demand : preallocated, at the most", most, "below 1", most < 1),
                Check(f"on demand, whole pages of {PAGE_ROWS} : preallocated, at the most", whole),
            ],
            log_x=axis == 0,
            sheet=f"updates-{number}",
            panel="(b) average usage",
        )


def used(storage: Storage, theta: float, rate: int) -> tuple[float, float, float]:
    """Averages over the dequeues of a run: the share of the used places that hold an update, the
    places used, and the places of the used pages."""
    cost = SECOND // DEQUEUES
    ids = zipf(2 * RESULTS * rate // DEQUEUES, KEYS, theta, seed=16)
    run = tuples(
        IN_PLACE,
        every(SECOND / rate, ids, KEYS),
        cost,
        storage=storage,
        page_rows=PAGE_ROWS,
        end=RESULTS * 2 * cost,
        results=RESULTS,
    )
    assert len(run.results) == RESULTS
    residents, places, pages = run.results[:, 4:7].T
    return (
        float((residents / places).mean()),
        float(places.mean()),
        float(pages.mean()) * PAGE_ROWS,
    )


def _effective(grid: dict[str, Column], naive: Sequence[float], *, falls: bool) -> list[Check]:
    least = float(grid["on demand"].min())
    steps = [b - a for a, b in pairwise(naive)]
    met = all(step < 0 for step in steps) if falls else all(step > 0 for step in steps)
    goal = "the paper: less efficiently with skew" if falls else "the paper: improves with the load"
    return [
        Check("on demand, at least", least, "the paper: 1", least == 1),
        Check("preallocated, last : first", naive[-1] / naive[0], goal, met),
    ]
