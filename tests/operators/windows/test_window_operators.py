"""The operators for windowed aggregates, step by step: no operator loses a row."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

import cql
from tests.support.runtimes import OPERATORS
from tests.support.script import Script

#: Operators that delay the groups of closed windows.
LATER = {"two_level, slow", "two_level, lazy", "two_level, in_order_slow"}
WINDOWS = (
    "RANGE 20 SLIDE 20",
    "RANGE 24 SLIDE 2",
    "RANGE 20 SLIDE 6",
    "RANGE 7 SLIDE 5",
    "RANGE 24 CUMULATE 4 OFFSET 3",
    "RANGE 20 CUMULATE 1",
)
#: The windows whose operators compile fastest.
FEW = ("RANGE 7 SLIDE 5", "RANGE 24 CUMULATE 4 OFFSET 3")


def rows_of(lines: list[str]) -> list[str]:
    return [line for line in lines if line.startswith("row")]


@pytest.mark.slow
@pytest.mark.parametrize("window", WINDOWS)
def test_pairs_are_conserved_after_every_punctuation(window: str, seed: int, full: bool) -> None:
    """Every (row, window) pair is emitted, late or held, in each operator; the groups that leave
    with a punctuation are the same in all operators."""
    if not full and window not in FEW:
        pytest.skip("with --full")
    text = f"SELECT k, count(*) AS n, sum(v) AS v, window_end FROM a [{window} WA ts] GROUP BY k"
    answers = {}
    for name, settings in OPERATORS.items():
        rng, script = random.Random(seed), Script(text, settings=settings)
        answers[name] = []
        time = 0
        for _ in range(40):
            time += rng.choice((0, 1, 3, 3, 10, 60))
            rows = [(time + rng.randint(-12, 8), rng.choice("abc"), 1) for _ in range(6)]
            script.push("\n".join(f"{max(t, 0)} {k} {v}" for t, k, v in rows))
            script.punctuate(time)
            for operator in script.operators:
                operator.conserve()
            answers[name].append(sorted(script.lines))
        script.end()
        answers[name].append(sorted(script.lines))
    for name, answer in answers.items():
        assert name in LATER or answer == answers["wid"], name
        assert rows_of(answer[-1]) == rows_of(answers["wid"][-1]), name
    assert len(answers["wid"][-1]) > 50


TUMBLING = "SELECT k, count(*) AS n, window_end FROM a [RANGE 10 SLIDE 10 WA ts] GROUP BY k"


def two_level(flush: str, **more: Any) -> Script:
    settings = {"window_operator": "two_level", "flush": flush, "low_level_entries": 64, **more}
    return Script(TUMBLING, settings=settings)


def test_slow_flush_gives_a_group_for_so_many_rows_and_all_after_m_windows() -> None:
    """The punctuation of a window's end waits for the window's last group."""
    s = two_level("slow", flush_every=2, flush_windows=1)
    s.push("1 x 1 \n 2 y 1 \n 3 x 1 \n 4 z 1").punctuate(10).expect("punct window_end 10")
    s.push("11 x 1").expect("").push("12 x 1").expect("row x 2 10")
    s.push("13 y 1 \n 14 y 1 \n 15 y 1").expect("row y 1 10")
    s.punctuate(20).expect("row z 1 10 \n punct window_end 20")
    s.push("25 x 1").end().expect("row x 2 20 \n row y 3 20 \n row x 1 30 \n end")


def test_lazy_flush_gives_two_groups_for_each_that_is_pushed_out() -> None:
    s = two_level("lazy", low_level_entries=1, flush_windows=2)
    s.push("1 x 1 \n 2 y 1 \n 3 x 1 \n 4 z 1").punctuate(10).expect("punct window_end 10")
    s.push("11 y 1").expect("row x 2 10 \n row y 1 10").push("12 y 1 \n 13 z 1").expect("")
    s.punctuate(20).expect("")
    s.push("21 x 1").expect("row z 1 10 \n row y 2 20 \n punct window_end 20")
    s.punctuate(30).expect("").punctuate(40).expect("row z 1 20 \n punct window_end 30")
    counted = s.end().operators[0].counters()
    s.expect("row x 1 30 \n end")
    assert (counted["evictions"], counted["old_evictions"], counted["most_at_once"]) == (6, 2, 2)


def test_in_order_slow_flush_gives_all_old_groups_where_new_ones_collide() -> None:
    """Figure 7: with one low-level entry, the second group of the new window flushes all old
    groups; with an entry for every group, old groups leave one by one."""
    rows = "\n".join(f"{t} {k} 1" for t, k in enumerate("abcdef", 1))
    s = two_level("in_order_slow", low_level_entries=1)
    s.push(rows).punctuate(10).push("11 a 1").expect("punct window_end 10 \n row a 1 10")
    s.push("12 b 1").expect("\n".join([f"row {k} 1 10" for k in "bcdef"] + ["punct window_end 20"]))
    s = two_level("in_order_slow", low_level_entries=1024)
    s.push(rows).punctuate(10).push("11 a 1").expect("punct window_end 10 \n row a 1 10")
    s.push("12 b 1").expect("row b 1 10")


def drifting(seed: int) -> pa.Table:
    """Rows out of order: 2,000 rows with ever-new keys, then 2,000 rows with three keys, twice."""
    rng = random.Random(seed)
    rows = [
        (n // 4 + rng.randrange(20), n if n // 2000 % 2 == 0 else n % 3, rng.randrange(9))
        for n in range(8000)
    ]
    return pa.table(list(zip(*rows, strict=True)), names=["ts", "k", "v"])


@pytest.mark.parametrize("morsel_rows", [7, 256])
def test_windows_change_over_as_groups_drift(seed: int, morsel_rows: int) -> None:
    """The metrics count each change; rows and late pairs equal those of the operator that never
    changes."""
    text = """SELECT k, count(*) AS n, sum(v) AS v, count(DISTINCT v) AS d, last(v) AS l, window_end
              FROM s [RANGE 200 SLIDE 40 WA ts] GROUP BY k"""
    answers = []
    for adaptive in (False, True):
        with cql.connect(
            False, window_operator="wid", adaptive_windows=adaptive, morsel_rows=morsel_rows
        ) as session:
            session.create_stream("s", drifting(seed), ordered_by="ts", slack=12, unit="seconds")
            run = session.sql(text)
            rows = sorted(map(repr, run.to_arrow().to_pylist()))
            answers.append((rows, run.late()["count"].to_pylist()))
            counted = run.metrics()[-1]
            if adaptive:
                assert counted["to_panes"] >= 2
                assert counted["to_buffered"] >= 2
    assert answers[0][1][-1] > 100
    assert answers[0] == answers[1]


#: The group index uses the low bits of the keys as long as these bits distinguish the keys.
KEYS = {
    "close to each other": [7_000_000 - k for k in range(3000)],
    "far from each other": [(k - 1500) << 20 for k in range(3000)],
    "random": [random.Random(k).randrange(-(2**63), 2**63) for k in range(3000)],
}


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("operator", ["wid", "panes", "two_stacks", "subtract", "buffered"])
@pytest.mark.parametrize("name", KEYS)
def test_groups_are_found_whatever_their_keys(name: str, operator: str, seed: int) -> None:
    """Windows are open when the index starts to hash and when the first NULL key comes."""
    rng = random.Random(seed)
    keys: list[int | None] = [
        *rng.choices(KEYS[name][:40], k=3000),
        *rng.choices(KEYS[name], k=6000),
    ]
    rows = [(n // 20 + rng.randrange(9), key) for n, key in enumerate(keys)]
    rows += [(n // 20, rng.choice([None, *KEYS[name]])) for n in range(9000, 300_000, 40)]
    ts, keys = (list(column) for column in zip(*rows, strict=True))
    table = pa.table({"ts": ts, "k": pa.array(keys, pa.int64())})
    expected = Counter((10 * w, k) for t, k in rows for w in range((t - 20) // 10 + 1, t // 10 + 1))
    with cql.connect(False, window_operator=operator, morsel_rows=256) as session:
        # a function: the engine knows nothing of its batches in advance
        session.create_stream("s", table.to_batches, ordered_by="ts", slack=10, unit="seconds")
        text = "SELECT window_start, k, count(*) AS n FROM s [RANGE 20 SLIDE 10 WA ts] GROUP BY k"
        found = session.sql(text).to_arrow().to_pylist()
    assert Counter({(row["window_start"], row["k"]): row["n"] for row in found}) == expected
    assert len(found) == len(expected)


NO_ROW = ("k IS NULL", "coalesce(k, 1) IS NULL", "k IS NULL OR k > 100", "k IS NULL AND v > 1")


@pytest.mark.sampled
@pytest.mark.parametrize("condition", NO_ROW)
@pytest.mark.parametrize(
    "window", ["RANGE 1 SECOND SLIDE 1 SECOND", "RANGE 4 SECONDS SLIDE 1 SECOND"]
)
@pytest.mark.parametrize("settings", OPERATORS.values(), ids=OPERATORS)
def test_a_filter_that_no_row_passes(settings: Any, window: str, condition: str) -> None:
    """The columns have no NULL, which the kernels know."""
    rows = pa.table({"ts": range(9), "k": [1, 2, 3] * 3, "v": [1] * 9})
    with cql.connect(spark=False, **settings) as session:
        session.create_stream("a", rows, ordered_by="ts", unit="seconds")
        text = (
            f"SELECT k, count(*) AS n, sum(v) AS v FROM a [{window}] WHERE {condition} GROUP BY k"
        )
        assert session.sql(text).to_arrow().num_rows == 0
