"""The traces of figures 1, 3 and 4 of the in-order paper: when each result leaves, and which rows
are held until then. A tick of event time is a second; rows of T arrive in time, a8 of S arrives
three seconds late."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.join_simulation import Arrivals, Simulated, operators, simulate
from cql.planner.lower.joins.in_order_join_cost import filter_order, improvement, load, sync_filter

SECOND = 1_000_000
DAY = 86_400
#: Stream, letter, time, arrival in seconds. Rows with the same letter join (figure 1).
ROWS = (
    *(("T", "a", 1, 1), ("S", "d", 2, 2), ("S", "c", 4, 4), ("T", "a", 5, 5), ("S", "b", 6, 6)),
    *(("T", "b", 9, 9), ("T", "c", 10, 10), ("S", "a", 8, 11), ("S", "a", 12, 12)),
)
W = 6
#: The time to join a row, in seconds (t_p).
TP = 0.01


def traced(operator: str, rows: tuple[tuple[str, str, int, float], ...] = ROWS) -> Simulated:
    arrivals = Arrivals(
        np.array([int(stream == "T") for stream, *_ in rows]),
        np.array([ts * SECOND for _, _, ts, _ in rows]),
        np.array([float(at) for *_, at in rows]),
        np.array([ord(letter) for _, letter, *_ in rows]),
    )
    joins = operators(operator, W, queries=1, alpha=0.3, cost=1e-6)
    return simulate(joins, arrivals, 0.0, overhead=TP, keep_results=True)


def pairs(found: Simulated) -> list[tuple[str, int, int]]:
    return [(chr(k), lt // SECOND, rt // SECOND) for lt, k, rt, _ in found.results[0]]


def delays(found: Simulated) -> dict[str, float]:
    names = [f"{letter}{ts}" for _, letter, ts, _ in ROWS]
    return dict(zip(names, found.response.tolist(), strict=True))


def test_rows_in_time_join_in_their_order() -> None:
    """Figure 1(B): a8 drops a1 and finds a5; b9 and c10 drop d2 and find b6 and c4."""
    in_time = sorted(((s, k, ts, float(ts)) for s, k, ts, _ in ROWS), key=lambda row: row[2])
    for operator in ("sync_filter", "filter_order", "adaptive"):
        found = traced(operator, tuple(in_time))
        assert pairs(found) == [("a", 8, 5), ("b", 6, 9), ("c", 4, 10)]


def test_sync_filter_waits_for_the_late_row() -> None:
    """Figure 3: b9 and c10 stay in the input queue until a12 comes."""
    found = traced("sync_filter")
    assert pairs(found) == [("a", 8, 5), ("b", 6, 9), ("c", 4, 10)]
    taken = delays(found)
    assert taken["a8"] == pytest.approx(TP)
    assert taken["b9"] == pytest.approx(3 + TP)
    assert taken["c10"] == pytest.approx(2 + 2 * TP)
    assert np.isnan(taken["a12"])
    before = traced("sync_filter", ROWS[:7]).counters
    assert (before["queued"], before["held_results"], before["rows_out"]) == (2, 0, 0)
    assert found.counters["peak_hold_buffer"] == 0


def test_filter_order_holds_results_until_the_late_row() -> None:
    """Figure 4: the results <b6, b9> and <c4, c10> are held when a8 comes; a8's result leaves
    first."""
    found = traced("filter_order")
    assert pairs(found) == [("a", 8, 5), ("b", 6, 9), ("c", 4, 10)]
    taken = delays(found)
    assert taken["a8"] == pytest.approx(TP)
    assert taken["b9"] == pytest.approx(3)
    assert taken["c10"] == pytest.approx(2)
    before = traced("filter_order", ROWS[:7]).counters
    assert (before["queued"], before["held_results"], before["rows_out"]) == (0, 2, 0)
    after = traced("filter_order", ROWS[:8]).counters
    assert (after["held_results"], after["rows_out"]) == (2, 1)
    assert found.counters["peak_input_queues"] == 0


def test_filter_order_is_ahead_by_three_times_the_service() -> None:
    names = ("a8", "b9", "c10")
    total = {
        operator: sum(delays(traced(operator))[name] for name in names)
        for operator in ("sync_filter", "filter_order")
    }
    assert total["sync_filter"] - total["filter_order"] == pytest.approx(3 * TP)


def test_adaptive_changes_over_as_rates_change() -> None:
    """The slow stream has 0.1, 2 and 0.1 rows per second: c·w·λ1·λ2 is 0.03, 0.6 and 0.03. The
    results and their order are the same for every operator."""
    slow = [10.0 * n for n in range(300)] + [3000 + n / 2 for n in range(2000)]
    slow += [4000 + 10.0 * n for n in range(300)]
    at = np.concatenate([slow, np.arange(70_000) / 10 + 0.001])
    port = np.repeat(np.arange(2), [len(slow), 70_000])
    order = np.argsort(at, kind="stable")
    at, port = at[order], port[order]
    key = np.arange(at.size) * 7 % 101
    arrivals = Arrivals(port, np.round(at * SECOND).astype(np.int64), at, key)
    found = {}
    for operator in ("sync_filter", "filter_order", "adaptive"):
        joins = operators(operator, 60, queries=1, alpha=0.3, cost=5e-4)
        found[operator] = simulate(joins, arrivals, 5e-4, keep_results=True)
        counters = found[operator].counters
        changes = counters["to_filter_order"], counters["to_sync_filter"]
        assert changes == ((1, 1) if operator == "adaptive" else (0, 0))
    results = [one.results[0] for one in found.values()]
    assert len(results[0]) > 10_000
    assert results[0] == results[1] == results[2]
    assert found["adaptive"].counters["peak_hold_buffer"] > 0


def test_equations_give_the_numbers_of_the_paper() -> None:
    """§5.2, example 2 (from 10 seconds to 5); §6 (0.47 at α = 0.9); §7.2.1 (0.3 at 0.5 ms)."""
    assert sync_filter(1e-4, DAY, 0.1, 1) == pytest.approx(10.252)
    assert filter_order(0.1, 1) == pytest.approx(5.5)
    assert improvement(0.9) == pytest.approx(0.47, abs=0.005)
    assert improvement(1.0) == 0.5
    assert load(5e-4, 60, 1, 10) == pytest.approx(0.3)
    for cost in (1e-8, 1e-7, 5e-7):
        spared = 1 - filter_order(1, 10) / sync_filter(cost, DAY, 1, 10)
        assert spared == pytest.approx(improvement(load(cost, DAY, 1, 10)))
