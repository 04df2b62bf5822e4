"""Signals computed from signals: their windows and ranges are those of the samples, and running
functions begin anew behind each gap."""

from __future__ import annotations

import random
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import cql
from cql.errors import NotSupportedError
from cql.session.session import Session
from tests.reference.naive_running import computed, in_runs
from tests.support.paths import ROOT
from tests.support.run_checkpoints import plan_of, stop_and_continue
from tests.support.runtimes import RUNTIMES, apply, named
from tests.support.signals.cases import Case, random_case

QUICK, FULL = 40, 2000
_MORSELS = (1, 2, 3, 7, 100, 4096)
#: A random gap may be longer than MAX ADVANCE; computed signals are read as rows.
_JUMPS = pytest.mark.filterwarnings("ignore:.*jumped by more than 1 hour")


@pytest.fixture
def session() -> Iterator[Session]:
    with cql.connect(spark=False) as made:
        yield made


@pytest.fixture
def shaking(session: Session) -> Session:
    """100 Hz, with a gap."""
    times = np.r_[0:100, 250:400] * 10_000
    table = pa.table({"ts": pa.array(times, pa.timestamp("us", "UTC")), "z": np.arange(250)})
    session.create_stream("shaking", table, ordered_by="ts", rate=100)
    return session


def _rows(session: Session, text: str) -> list[dict[str, Any]]:
    query: Any = session.sql(text)
    found: list[dict[str, Any]] = query.to_arrow().to_pylist()
    return found


def _chosen(session: Session, choice: random.Random) -> str:
    session.sql("RESET")
    runtime, rows = choice.choice(RUNTIMES), choice.choice(_MORSELS)
    apply(session, runtime, {"morsel_rows": rows})
    return f"{named(runtime)}, {rows} rows"


def _computed(case: Case) -> str:
    """A query that computes each channel anew, of the same type."""
    items = [f"CASE WHEN {n} > 0 THEN {n} ELSE {n} END AS {n}" for n in case.names]
    time = ["ts"] if case.timed else []
    return f"SELECT {', '.join([*items, *time])} FROM s"


@_JUMPS
def test_windows_are_those_of_the_samples(session: Session, full: bool, seed: int) -> None:
    for i in range(FULL if full else QUICK):
        choice = random.Random(f"computed signal {seed + i}")
        case = random_case(choice)
        case.declare(session, pushed=False)
        how = f"case {seed + i}, {_chosen(session, choice)}: {case}"
        query: Any = session.sql(f"SELECT * FROM ({_computed(case)}) AS q {case.window}")
        found = query.to_arrow()
        windows, signal = case.expected()
        for k, name in enumerate(case.names):
            expected = [[row[1][k] for row in w.rows] for w in windows]
            assert found[name].to_pylist() == expected, how
        starts = found["window_start"].cast(pa.int64()).to_pylist()
        assert starts == [w.start for w in windows], how
        counts = next(row for row in query.metrics() if row["operator"].startswith("segments"))
        for name in ("samples", "gaps", "overlapping", "missing"):
            assert counts[name] == getattr(signal, name), how


_CALLS = {
    "fir(a, 1, 0.5, 0.25)": ("fir", ((1.0, 0.5, 0.25),)),
    "iir(a, array(0.5), array(1, -0.25))": ("iir", ((0.5,), (1.0, -0.25))),
    "sta_lta(a, 2, 5)": ("sta_lta", ((2.0, 5.0),)),
    "recursive_sta_lta(a, 2, 3)": ("recursive_sta_lta", ((2.0, 3.0),)),
    "trigger(a, 1, 0)": ("trigger", ((1.0, 0.0),)),
}


@_JUMPS
def test_functions_begin_anew_behind_a_gap(session: Session, full: bool, seed: int) -> None:
    for i in range(FULL if full else QUICK):
        choice = random.Random(f"running over gaps {seed + i}")
        case = random_case(choice)
        while not case.timed or "float" in case.types[0] or not case.rows:
            case = random_case(choice)
        case.declare(session, pushed=False)
        how = f"case {seed + i}, {_chosen(session, choice)}: {case}"
        items = ", ".join(f"{text} AS y{k}" for k, text in enumerate(_CALLS))
        query: Any = session.sql(f"SELECT {items} FROM s")
        found = query.to_arrow()
        runs = in_runs([time for time, _ in case.rows], Fraction(case.rate), case.tolerance)
        x = [row[0] for _, row in case.rows]
        for k, (fn, numbers) in enumerate(_CALLS.values()):
            expected = computed(fn, x, numbers, runs)
            values = found[f"y{k}"].to_pylist()
            assert values == pytest.approx(expected, rel=1e-9, abs=1e-12), (how, fn)


def test_windows_of_running_functions(shaking: Session) -> None:
    inner = "SELECT ts, fir(z, 1, 1) AS f, z FROM shaking"
    found = _rows(
        shaking, f"SELECT min(f) AS f, max(z) AS z FROM ({inner}) AS q [ROWS 60 SLIDE 60]"
    )
    assert found == [{"f": 0, "z": 59}, {"f": 100, "z": 159}, {"f": 319, "z": 219}]


def test_where_makes_gaps(shaking: Session) -> None:
    inner = "SELECT ts, z FROM shaking WHERE z < 50 OR z > 70"
    found = _rows(shaking, f"SELECT min(z) AS z FROM ({inner}) AS q [ROWS 20 SLIDE 20]")
    assert [row["z"] for row in found] == [0, 20, 71, 100, 120, 140, 160, 180, 200, 220]


def test_views_and_computed_columns(shaking: Session) -> None:
    shaking.sql("CREATE VIEW v AS SELECT ts AS at, z * 2 AS y FROM shaking")
    query = "SELECT max(y) AS y, count(y) AS n FROM {} [RANGE 1 SECOND SLIDE 1 SECOND]"
    assert [row["y"] for row in _rows(shaking, query.format("v"))] == [198, 498]
    shaking.sql("CREATE STREAM more (ts TIMESTAMP, z INT, y AS z * 2) ORDERED BY ts RATE 100 HZ")
    times = pa.array(np.arange(200) * 10_000, pa.timestamp("us", "UTC"))
    shaking.push("more", pa.table({"ts": times, "z": pa.array(range(200), pa.int32())}))
    shaking.end("more")
    assert [row["y"] for row in _rows(shaking, query.format("more"))] == [198, 398]


def test_signals_without_times(session: Session) -> None:
    session.create_stream("audio", pa.table({"ch0": np.arange(1000, dtype=np.int16)}), rate=1000)
    session.sql("SET morsel_rows = 7")
    window = "[RANGE 100 MILLISECONDS SLIDE 500 MILLISECONDS]"
    found = _rows(
        session,
        "SELECT window_start, max(y) AS y, min(f) AS f FROM"
        f" (SELECT ch0 * 2 AS y, fir(ch0, 0, 1) AS f FROM audio) AS q {window}",
    )
    assert [(row["y"], row["f"]) for row in found] == [(198, 0), (1198, 499)]


@pytest.mark.parametrize("runtime", RUNTIMES[::4], ids=named)
def test_ranges(runtime: dict[str, Any], shaking: Session) -> None:
    apply(shaking, runtime, {"morsel_rows": 16})
    found = _rows(
        shaking,
        "SELECT q.y FROM (SELECT window_start AS b, window_end AS e FROM shaking"
        " [ROWS 3 SLIDE 90]) AS d, (SELECT ts, z * 2 AS y FROM shaking) AS q"
        " WHERE q.ts >= d.b AND q.ts < d.e",
    )
    assert [row["y"] for row in found] == [
        [0, 2, 4],
        [180, 182, 184],
        [200, 202, 204],
        [380, 382, 384],
    ]


def test_samples_of_a_signal_may_say_the_ranges(shaking: Session) -> None:
    found = _rows(
        shaking,
        "SELECT a.z FROM (SELECT ts FROM shaking WHERE z % 100 = 7) AS d, shaking AS a"
        " WHERE a.ts >= d.ts AND a.ts < d.ts + INTERVAL '20' MILLISECONDS",
    )
    assert [row["z"] for row in found] == [[7, 8], [107, 108], [207, 208]]


def test_without_a_range_it_is_joined_as_rows(shaking: Session) -> None:
    shaking.register_table("t", pa.table({"z": [3, 4]}))
    inner = "SELECT ts, z FROM shaking"
    found = _rows(shaking, f"SELECT q.z FROM ({inner}) AS q JOIN t ON q.z = t.z")
    assert [row["z"] for row in found] == [3, 4]


@pytest.mark.parametrize(
    ("inner", "message"),
    [
        ("SELECT x FROM plain WHERE x > 1", "segments of the samples of plain that WHERE chooses"),
        ("SELECT ts, z > 1 AS b FROM shaking", "whose column b is a boolean"),
        ("SELECT ts, ts AS other, z FROM shaking", "whose column other is a timestamp"),
        ("SELECT ts FROM shaking", "has no channel"),
    ],
)
def test_refused(inner: str, message: str, shaking: Session) -> None:
    shaking.create_stream("plain", pa.table({"x": [1, 2]}), rate=10)
    with pytest.raises(NotSupportedError if "has no" not in message else cql.CqlError) as caught:
        shaking.sql(f"SELECT * FROM ({inner}) AS q [ROWS 2 SLIDE 2]")
    assert message in str(caught.value)
    assert caught.value.position is not None


def test_a_run_goes_on_from_a_checkpoint(shaking: Session) -> None:
    """Amid a run: how far the signal is belongs to the state."""
    shaking.sql("SET morsel_rows = 16")
    text = "SELECT ts, fir(z, 1, 1, 1) AS f, sta_lta(z, 5, 20) AS r FROM shaking"
    plan, settings = plan_of(shaking, text), dict(shaking.settings)
    for k in range(3):
        choice = random.Random(k)
        assert stop_and_continue(plan, settings, choice, stops=2, others=[(plan, settings)])


def test_detect_audio(session: Session) -> None:
    """Four channels at 48 kHz; the first has two bursts of a tone above its noise."""
    n, of = 48_000, np.random.default_rng(3)
    channels = of.normal(0, 100, (4, n))
    for first in (16_000, 32_000):
        tone = np.sin(2 * np.pi * 9_000 * np.arange(640) / 48_000)
        channels[:, first : first + 640] += 4000 * tone
    table = pa.table({f"ch{k}": c.astype(np.int16) for k, c in enumerate(channels)})
    session.create_stream("audio", table, rate=48_000)
    session.sql("CREATE CONSTANT omega = 8")
    found = _rows(session, (ROOT / "queries/xstream/detectaudio.cql").read_text("utf-8"))
    false = [row for row in found if row["window_start"].microsecond < 100_000]
    assert len(false) < 5  # of few values, the estimate of the noise is poor
    found = found[len(false) :]
    firsts = [first + 32 * k for first in (16_000, 32_000) for k in range(20)]
    assert len(found) == len(firsts)
    for row, first in zip(found, firsts, strict=True):
        for k in range(4):
            assert row[f"ch{k}"] == table[f"ch{k}"][first : first + 32].to_pylist()
