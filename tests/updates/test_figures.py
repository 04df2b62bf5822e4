"""The UpStream report's examples (figures 2, 6 and 12) tick by tick, its closed forms, and small
forms of its measured figures: the engine's kernels under a virtual clock."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from benchmarks import figure, update_queue, update_windows, updates
from benchmarks.figure import Figure
from benchmarks.update_simulation import (
    COST,
    Arrivals,
    Simulated,
    at_load,
    every,
    spread,
    tuples,
    windows,
    zipf,
)
from cql.executor.operators.updates.queue_state import Scheduler, Storage, Windows
from cql.planner.placement import update_cost

APPEND, SHED, FIFO = Scheduler.APPEND, Scheduler.SHED, Scheduler.FIFO
IN_PLACE, LINECUTTING = Scheduler.IN_PLACE, Scheduler.LINECUTTING


def arriving(times: Any, ids: Any, keys: int) -> Arrivals:
    return Arrivals(np.asarray(times, np.int64), np.asarray(ids, np.int64), keys)


def one_key(times: Any) -> Arrivals:
    return arriving(times, np.zeros(len(times)), 1)


def at_each_tick(
    first: int, until: int, run: Callable[[int], Simulated]
) -> tuple[list[float], list[float]]:
    """Application and queue staleness of key 0 in the middle of each tick; updates come from tick
    ``first`` on. Curves rise by one a tick and fall at ticks only, so that is the area of a tick.
    """
    areas = [run(end).areas for end in range(first + 1, until + 1)]
    none = [0.0] * (first + 1)
    application = np.diff([*none, *(area.application[0] for area in areas)])
    queue = np.diff([*none, *(area.queue[0] for area in areas)])
    return application.tolist(), queue.tolist()


# -- examples --------------------------------------------------------------------------------------


def test_figure_2() -> None:
    """Updates a, b, c … each 2 ticks, cost 3. When a' is delivered at 3, staleness falls to the
    time since b came, at 2; c is overwritten by d at 6."""
    arrivals = one_key(range(0, 20, 2))
    run = tuples(IN_PLACE, arrivals, 3, end=40)
    letters = ["abcdefghij"[k] for k in run.results[:, 1]]
    assert letters == ["a", "b", "d", "e", "g", "h", "j"]
    assert run.results[:, 2].tolist() == [0, 3, 6, 9, 12, 15, 18]
    assert run.results[:, 3].tolist() == [3, 6, 9, 12, 15, 18, 21]
    assert run.state.counters() == {
        "rows_in": 10,
        "taken": 7,
        "superseded": 3,
        "shed": 0,
        "held": 0,
    }
    # Tick -> arrival of the oldest update that is pending, or that waits, from then on.
    pending = {0: 0, 3: 2, 6: 4, 9: 8, 12: 10, 15: 14, 18: 16, 21: None}
    waiting = {0: None, 2: 2, 3: None, 4: 4, 6: None, 8: 8, 9: None, 10: 10, 12: None, 14: 14}
    waiting |= {15: None, 16: 16, 18: None}

    def run_until(end: int) -> Simulated:
        return tuples(IN_PLACE, arrivals, 3, end=end)

    application, queue = at_each_tick(0, 24, run_until)
    assert application == curve(pending, 24)
    assert queue == curve(waiting, 24)


def curve(since: dict[int, int | None], until: int) -> list[float]:
    """Staleness in the middle of each tick, counted from ``since[t]`` from tick ``t`` on."""
    found: list[float] = []
    now: int | None = None
    for tick in range(until):
        now = since.get(tick, now)
        found.append(0.0 if now is None else tick + 0.5 - now)
    return found


def test_figure_2_of_an_append_queue() -> None:
    """All updates are delivered, three ticks apart, so staleness grows by a tick an update."""
    run = tuples(APPEND, one_key(range(0, 20, 2)), 3, end=40)
    assert run.results[:, 1].tolist() == list(range(10))
    assert run.results[:, 3].tolist() == list(range(3, 33, 3))
    # Update k is pending, and the oldest, from the delivery before (3 k, never before it came).
    area = sum((3 * k + 3 - 2 * k) ** 2 - (3 * k - 2 * k) ** 2 for k in range(10)) / 2
    assert run.areas.application[0] == area


#: Figure 6: IBM1, other symbols, and a second update of IBM while all wait. Key 0 is served first.
BUSY, IBM, SUN, ORCL = range(4)


@pytest.mark.parametrize(
    ("scheduler", "order"),
    [
        (APPEND, ["BUSY0", "IBM1", "SUN2", "ORCL3", "IBM4"]),
        (FIFO, ["BUSY0", "SUN2", "ORCL3", "IBM4"]),
        (IN_PLACE, ["BUSY0", "IBM4", "SUN2", "ORCL3"]),
        (LINECUTTING, ["BUSY0", "IBM4", "SUN2", "ORCL3"]),
    ],
)
def test_figure_6(scheduler: Scheduler, order: list[str]) -> None:
    run = tuples(scheduler, arriving(range(5), [BUSY, IBM, SUN, ORCL, IBM], 4), 10, end=100)
    names = ("BUSY", "IBM", "SUN", "ORCL")
    assert [f"{names[key]}{event}" for key, event in run.results[:, :2].tolist()] == order


def windows_of_figure_12(end: int, *, eager: bool) -> Simulated:
    """Rows from tick 1 on; no window ends by 3, as in the report's figure."""
    return windows(Windows(3, 1, eager), one_key(range(1, 30)), 2, since=3, end=end)


def test_figure_12a() -> None:
    """LAZY: window 1 to 3 has arrived at 3; its rows take until 9, when 7 to 9 is the latest."""
    run = windows_of_figure_12(28, eager=False)
    assert run.results[:, 1].tolist() == [1, 7, 13, 19]
    assert run.results[:, 2].tolist() == [3, 9, 15, 21]
    assert run.results[:, 3].tolist() == [9, 15, 21, 27]
    application, queue = at_each_tick(1, 27, lambda end: windows_of_figure_12(end, eager=False))
    # Windows 2, 8, 14 close a tick after the committed one, and make its result stale.
    waiting = {4: 4, 9: None, 10: 10, 15: None, 16: 16, 21: None, 22: 22}
    pending = {3: 3, 9: 4, 15: 10, 21: 16}
    assert queue == curve(waiting, 27)
    assert application == curve(pending, 27)


def test_figure_12b() -> None:
    """EAGER: opens at 1, its next window begins to wait at 2, its result is there at 7, and the
    window that closes at 4 makes that stale."""
    run = windows_of_figure_12(26, eager=True)
    assert run.results[:, 1].tolist() == [1, 7, 13, 19]
    assert run.results[:, 2].tolist() == [1, 7, 13, 19]
    assert run.results[:, 3].tolist() == [7, 13, 19, 25]
    application, queue = at_each_tick(1, 25, lambda end: windows_of_figure_12(end, eager=True))
    waiting = {2: 2, 7: None, 8: 8, 13: None, 14: 14, 19: None, 20: 20}
    pending = {3: 3, 7: 4, 13: 10, 19: 16}
    assert queue == curve(waiting, 25)
    assert application == curve(pending, 25)


# -- closed forms ----------------------------------------------------------------------------------


@pytest.mark.parametrize("scheduler", [FIFO, IN_PLACE])
@pytest.mark.parametrize("load", range(1, 11))
def test_steady_state_of_one_key(scheduler: Scheduler, load: int) -> None:
    """Section 5.1 with updates at even distances g = cost / load: wait = cost - g. A result takes
    a cost; application staleness rises from cost - g to 2 cost - g."""
    n = 100 * load + 1
    run = tuples(scheduler, at_load(load, np.zeros(n, np.int64), 1))
    wait = 1 - 1 / load
    # The first update does not wait: its triangles are smaller.
    assert run.queue / COST == pytest.approx(wait**2 / 2 * 99 / 100, abs=1e-2)
    assert run.application / COST == pytest.approx(1.5 - 1 / load, abs=2e-2)
    overlap = wait**2 / 2
    difference = wait + 0.5 - overlap
    assert (run.application - run.queue) / COST == pytest.approx(difference, abs=2e-2)
    assert 0 <= overlap <= 0.5


@pytest.mark.parametrize("keys", [1, 2, 10])
@pytest.mark.parametrize("scheduler", [FIFO, IN_PLACE, LINECUTTING])
def test_area_between_the_two_metrics(scheduler: Scheduler, keys: int) -> None:
    """Δ = (wait + cost)² / 2 - wait² / 2 - O with 0 <= O <= cost² / 2 for each delivered update of
    a key, exactly, with updates at random ticks (section 5.1)."""
    cost = 7
    for seed in range(20):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(1, 60))
        times = np.cumsum(rng.integers(0, int(rng.choice([2, 5, 15])), n)) + 1
        arrivals = arriving(times, rng.integers(0, keys, n), keys)
        end = int(times[-1]) + (n + 1) * cost
        run = tuples(scheduler, arrivals, cost, end=end)
        assert run.state.counters()["held"] == 0
        for key in range(keys):
            arrived = times[arrivals.ids == key].tolist()
            application = queue = Fraction(0)
            for dequeued, delivered in run.results[run.results[:, 0] == key][:, 2:4].tolist():
                wait = dequeued - arrived[0]
                arrived = [t for t in arrived if t > dequeued]
                overlap = Fraction(0)
                if arrived and arrived[0] < delivered:
                    overlap = Fraction((delivered - arrived[0]) ** 2, 2)
                assert 0 <= overlap <= Fraction(cost**2, 2)
                queue += Fraction(wait**2, 2)
                application += Fraction((wait + cost) ** 2, 2) - overlap
            assert not arrived
            assert run.areas.queue[key] == queue
            assert run.areas.application[key] == application


@pytest.mark.parametrize("keys", [1, 3, 10])
def test_nothing_is_superseded_below_saturation(keys: int) -> None:
    """Updates that never wait for another one of their key: all schedulers deliver the same."""
    for seed in range(5):
        rng = np.random.default_rng(seed)
        times = np.cumsum(rng.integers(9, 14, 300))
        arrivals = arriving(times, rng.integers(0, keys, 300), keys)
        end = int(times[-1]) + 20
        append, *others = (tuples(each, arrivals, 9, end=end) for each in Scheduler)
        assert len(append.results) == 300
        for other in others:
            assert np.array_equal(other.results[:, :4], append.results[:, :4])
            assert np.array_equal(other.areas.application, append.areas.application)
            assert np.array_equal(other.areas.queue, append.areas.queue)


@pytest.mark.parametrize("load", [1.25, 2, 3, 5, 8])
def test_in_place_is_lowest_for_uniform_rates(load: float) -> None:
    """Section 5.2. The argument is about expected arrivals: in one run LINECUTTING, whose keys are
    all about as fast under high load, may be lower by chance."""
    totals = dict.fromkeys(Scheduler, 0.0)
    for seed in range(8):
        arrivals = at_load(load, zipf(10_000, 10, 0, seed), 10)
        runs = {each: tuples(each, arrivals) for each in Scheduler}
        mine = runs[IN_PLACE]
        for each, run in runs.items():
            chance = 0.98 if each is LINECUTTING else 1.0
            totals[each] += run.queue
            assert run.queue >= chance * mine.queue
            assert run.application >= chance * mine.application
    assert totals[LINECUTTING] > 0.995 * totals[IN_PLACE]
    assert totals[IN_PLACE] < totals[FIFO] < totals[SHED] < totals[APPEND]


# -- the cost of windows ---------------------------------------------------------------------------


def test_cost_of_a_window() -> None:
    """The sum of section 6.1.2, and its bounds. The printed upper bound is below the sum where the
    slide does not divide the size."""
    for size in range(1, 25):
        for slide in range(1, 30):
            o = update_cost.overlap(size, slide)
            assert (o - 1) * slide < size <= o * slide
            cost = update_cost.window_cost(size, slide, 3)
            assert cost == 3 * sum(size - i * slide for i in range(o))
            assert update_cost.lone_window_cost(size, 3) <= cost
            assert cost == o * 3 * (size - (o - 1) * slide / 2)
            printed = (o + 1) * 3 * (size - o * slide / 2)
            assert (printed == cost) == (size % slide == 0)
            assert printed <= cost
    assert update_cost.window_cost(5, 2) == 9
    assert update_cost.window_cost(10, 10) == update_cost.lone_window_cost(10) == 10
    with pytest.raises(ValueError, match="positive"):
        update_cost.overlap(5, 0)


def test_load_of_an_append_queue() -> None:
    """Where each row costs one tick per window, the queue of figure 13 keeps up to a load of 1."""
    for size, gap in ((4, 4), (4, 5)):
        assert update_cost.load(size, 1, 1, gap) == size / gap
    assert update_cost.load(60, 60, 1, 1) == 1


# -- the append queue of windows -------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.0, 0.2, 0.6, 1.0])
@pytest.mark.parametrize(("size", "cost"), [(1, 1), (1, 3), (2, 1), (3, 2), (7, 1)])
def test_append_queue_of_windows(share: float, size: int, cost: int) -> None:
    """Against a loop over ticks."""
    for seed in range(5):
        rows = 40
        keeps = np.random.default_rng(seed).random(rows) < share
        free, delivered = 0, {}
        for row in range(rows):
            kept = sum(keeps[max(row - size + 1, 0) : row + 1])
            free = max(free, row) + cost * kept
            if row - size + 1 >= 0 and keeps[row - size + 1]:
                delivered[row - size + 1] = free
        area = 0.0
        for tick in range(rows):
            shown = max((s for s, at in delivered.items() if at <= tick), default=-1)
            closed = shown + 1 + size - 1
            area += tick + 0.5 - closed if closed <= tick else 0.0
        found = update_windows.append_staleness(keeps, size, cost)
        assert found == pytest.approx(area / rows)


# -- small forms of the figures --------------------------------------------------------------------


@pytest.fixture(scope="module")
def small() -> dict[str, Figure]:
    """All figures of 10,000 updates, which can be shown and recorded."""
    console = Console(file=io.StringIO(), width=110)
    made = {}
    sources = (
        updates.both_metrics(10_000),
        updates.schedulers(10_000),
        [updates.symbols(), updates.day(), updates.linecutting(10_000)],
        update_windows.figures(10_000),
        updates.memory(),
        [update_queue.throughput(200_000, rounds=1)],
    )
    for source in sources:
        for each in source:
            figure.show(each, console)
            record = json.loads(json.dumps(figure.record_of(each)))
            assert record["series"].keys() == each.series.keys()
            assert all(len(values) == len(each.x) for values in each.series.values())
            assert each.quotes
            made[each.name] = each
    return made


#: Statements of the report that do not hold here, by figure.
MISSED = {
    "updates-5b": ["difference, 10 keys : 1 key, load 2"],
    "updates-9": ["highest at load 5, slow keys"],
    "updates-14": ["EAGER : LAZY, Zipf, all sizes, at least"],
}


def test_what_the_report_says(small: dict[str, Figure]) -> None:
    assert [*small] == [
        *(f"updates-{n}" for n in ("5a", "5b", "7a", "7b", "8", "8-day", "9", "13a", "13b", "14")),
        *(f"updates-{n}" for n in ("16a", "16b", "17a", "17b", "queue")),
    ]
    for name, made in small.items():
        if name == "updates-queue":
            continue  # times of a busy machine
        missed = [check for check in made.checks if not check.met]
        assert [check.what for check in missed] == MISSED.get(name, []), name
        assert all(check.why for check in missed)


def test_figure_9(small: dict[str, Figure]) -> None:
    """As printed, the highest is at 8 slow keys for load 3, and earlier for load 5, where 7 that
    cut in leave the fast keys a twentieth of the server."""
    series = small["updates-9"].series
    three, five = series["load 3, as printed"], series["load 5, as printed"]
    assert max(three) == three[8] > 2
    assert max(five) == max(five[5:7]) > 1.4
    assert five[7] < 0.5 < series["load 5, guarded"][7]
    assert three[9] < 0.5 < series["load 3, guarded"][9]
    rates = np.repeat([1.0, 10.0], [7, 3])
    ids = spread(20_000, rates, np.random.default_rng(0).random(10))
    run = tuples(LINECUTTING, at_load(5, ids, 10), guarded=False)
    assert np.mean(run.results[:, 0] >= 7) < 0.1
    assert np.mean(tuples(IN_PLACE, at_load(5, ids, 10)).results[:, 0] >= 7) > 0.3


def test_figure_14(small: dict[str, Figure]) -> None:
    """EAGER is worse the more skewed the rates are."""
    none, some, much, turn = small["updates-14"].series.values()
    for k in range(len(none)):
        assert turn[k] < 1
        assert none[k] < some[k] < much[k]
        assert much[k] > 1


def test_figures_16_and_17(small: dict[str, Figure]) -> None:
    for name in ("updates-16a", "updates-17a"):
        series = small[name].series
        assert set(series["on demand"]) == {1.0}
        assert all(0 < share < 1 for share in series["preallocated"])
    assert max(small["updates-17b"].series["preallocated"]) <= 100


@pytest.mark.parametrize("storage", Storage)
def test_storage_does_not_change_results(storage: Storage) -> None:
    """Figures 16 and 17 compare runs with the same deliveries."""
    arrivals = every(1000, zipf(2000, 30, 0.6), 30)
    for scheduler in (FIFO, IN_PLACE, LINECUTTING):
        paged = tuples(scheduler, arrivals, 2500)
        other = tuples(scheduler, arrivals, 2500, storage=storage, page_rows=4)
        assert np.array_equal(paged.results[:, :4], other.results[:, :4])
        assert paged.application == other.application
