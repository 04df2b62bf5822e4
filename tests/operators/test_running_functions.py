"""Running functions (``fir``, ``iir``, ``sta_lta``, ``cfar``, ``trigger``): against the slow model,
scipy and obspy, under all runtimes; what is refused."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from obspy.signal import trigger
from scipy import signal

import cql
from cql.errors import BindError, CqlError, NotSupportedError, RunError
from cql.planner.placement.scale_out import Whole, placement
from cql.session.session import Session
from tests.reference.naive_running import FUNCTIONS
from tests.support.runtimes import RUNTIMES, apply, named

Samples = np.ndarray[Any, np.dtype[np.float64]]
_MORSELS = (1, 2, 7, 100, 4096)
QUICK, FULL = 60, 3000


@pytest.fixture
def session() -> Iterator[Session]:
    with cql.connect(spark=False) as made:
        yield made


def _create(session: Session, x: list[float | None], **more: Any) -> None:
    times = pa.array(np.arange(len(x)) * 10_000, pa.timestamp("us", "UTC"))
    table = pa.table({"ts": times, "x": pa.array(x, pa.float64()), **more})
    session.create_stream("s", table, ordered_by="ts", replace=True)


def _column(session: Session, text: str, **parameters: Any) -> list[Any]:
    query: Any = session.sql(f"SELECT {text} AS y FROM s", **parameters)
    found: list[Any] = query.to_arrow()["y"].to_pylist()
    return found


def _noise(n: int, seed: int = 7) -> list[float | None]:
    """Noise that is louder now and then."""
    loud = 1 + 6 * (np.arange(n) // 200 % 3 == 2)
    values: list[float | None] = (np.random.default_rng(seed).normal(size=n) * loud).tolist()
    return values


# -- against the slow model ------------------------------------------------------------------------


def _call(choice: random.Random) -> tuple[str, str, tuple[tuple[float, ...], ...]]:
    """A call: its function, its text, and its constants."""

    def coefficients(most: float) -> tuple[float, ...]:
        return tuple(round(choice.uniform(-most, most), 3) for _ in range(choice.randint(1, 6)))

    def text(numbers: tuple[float, ...]) -> str:
        return ", ".join(map(str, numbers))

    fn = choice.choice(sorted(FUNCTIONS))
    if fn == "fir":
        b = coefficients(2)
        return fn, f"fir(x, {text(b)})", (b,)
    if fn == "iir":
        b, a = coefficients(2), (choice.choice((1.0, 2.0)), *coefficients(0.1))
        scaled = tuple(v / a[0] for v in b), tuple(v / a[0] for v in a)
        return fn, f"iir(x, array({text(b)}), array({text(a)}))", scaled
    if fn in ("sta_lta", "recursive_sta_lta"):
        short = choice.randint(1, 10)
        long = short + choice.choice((0, 1, 5, 40))
        return fn, f"{fn}(x, {short}, {long})", ((float(short), float(long)),)
    if fn == "cfar":
        omega = choice.choice((0.0, 0.5, 2.25, 4.0))
        return fn, f"cfar(x, {omega})", ((omega,),)
    off = round(choice.uniform(-1, 1), 2)
    on = off + choice.choice((0.0, 0.5))
    return fn, f"trigger(x, {on}, {off})", ((on, off),)


def test_random_calls(session: Session, full: bool, seed: int) -> None:
    for i in range(FULL if full else QUICK):
        choice = random.Random(f"running {seed + i}")
        n = choice.choice((0, 1, 5, 50, 300))
        x = [None if choice.random() < 0.1 else choice.gauss(0, 3) for _ in range(n)]
        calls = [_call(choice) for _ in range(choice.randint(1, 4))]
        session.sql("RESET")
        runtime, rows = choice.choice(RUNTIMES), choice.choice(_MORSELS)
        apply(session, runtime, {"morsel_rows": rows})
        _create(session, x)
        items = ", ".join(f"{text} AS y{k}" for k, (_, text, _) in enumerate(calls))
        query: Any = session.sql(f"SELECT ts, {items} FROM s")
        found = query.to_arrow()
        assert found["ts"].to_pylist() == sorted(found["ts"].to_pylist())
        known = [v for v in x if v is not None]
        for k, (fn, text, numbers) in enumerate(calls):
            values = iter(FUNCTIONS[fn](known, numbers))
            expected = [None if v is None else next(values) for v in x]
            own = found[f"y{k}"].to_pylist()
            case = f"case {seed + i}: {text}, {named(runtime)}, {rows} rows"
            assert own == pytest.approx(expected, rel=1e-9, abs=1e-12), case


@pytest.mark.parametrize("runtime", RUNTIMES, ids=named)
def test_each_runtime_gives_the_same(runtime: dict[str, Any], session: Session) -> None:
    _create(session, _noise(3000))
    text = "trigger(sta_lta(fir(x, 1, 0.5), 20, 300), 2, 1)"
    whole = _column(session, text)
    apply(session, runtime, {"morsel_rows": 7})
    assert _column(session, text) == whole
    assert 0 < sum(whole) < 3000


# -- against scipy and obspy -----------------------------------------------------------------------


def test_filters_are_those_of_scipy(session: Session) -> None:
    x = _noise(5000)
    _create(session, x)
    b, a = signal.butter(4, [0.1, 0.4], "bandpass")
    texts = (", ".join(f"{v:.17e}" for v in part) for part in (b, a))
    found = _column(session, f"iir(x, {', '.join(f'array({text})' for text in texts)})")
    np.testing.assert_allclose(found, signal.lfilter(b, a, x), rtol=1e-9, atol=1e-12)
    b = signal.firwin(31, 0.3)
    found = _column(session, f"fir(x, {', '.join(f'{v:.17e}' for v in b)})")
    np.testing.assert_allclose(found, signal.lfilter(b, 1, x), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("short", "long"), [(50, 1000), (3, 20), (5, 5)])
def test_ratios_are_those_of_obspy(short: int, long: int, session: Session) -> None:
    x = np.array(_noise(5000), np.float64)
    _create(session, x.tolist())
    expected = trigger.classic_sta_lta(x, short, long)
    found = _column(session, f"sta_lta(x, {short}, {long})")
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    expected = trigger.recursive_sta_lta(x, short, long)
    found = _column(session, f"recursive_sta_lta(x, {short}, {long})")
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_detections_are_those_of_obspy(session: Session) -> None:
    x = np.array(_noise(5000), np.float64)
    _create(session, x.tolist())
    ratio = trigger.classic_sta_lta(x, 20, 300)
    wanted = trigger.trigger_onset(ratio, 2, 1)
    found = np.array(_column(session, "trigger(sta_lta(x, 20, 300), 2, 1)"))
    change = np.diff(found.astype(int), prepend=0, append=0)
    on, off = np.flatnonzero(change == 1), np.flatnonzero(change == -1) - 1
    assert len(on) > 3
    assert np.stack([on, off], axis=1).tolist() == wanted.tolist()


# -- values and rows -------------------------------------------------------------------------------


def test_sums_do_not_drift(session: Session) -> None:
    """One huge sample is forgotten as soon as it has left the window."""
    x: list[float | None] = [1.0, 1e150, *(1.0 for _ in range(50))]
    _create(session, x)
    found = _column(session, "sta_lta(x, 2, 10)")
    assert found[-30:] == [1.0] * 30
    x[1] = float("nan")
    _create(session, x)
    assert _column(session, "sta_lta(x, 2, 10)")[-30:] == [1.0] * 30


def test_silence_has_no_ratio(session: Session) -> None:
    _create(session, [1.0, *(0.0 for _ in range(2000))])
    assert _column(session, "sta_lta(x, 2, 10)")[-1] == 0
    assert _column(session, "recursive_sta_lta(x, 2, 3)")[-1] == 0


def test_cfar_learns_from_the_noise_alone(session: Session) -> None:
    quiet = [1.0, -1.0] * 20
    _create(session, [*quiet, 50.0, *quiet, 50.0, float("nan"), 50.0])
    found = _column(session, "cfar(x, 3)")
    assert [k for k, hit in enumerate(found) if hit] == [40, 81, 83]


def test_null_leaves_the_state(session: Session) -> None:
    _create(session, [1.0, None, 2.0, None, None, 4.0])
    assert _column(session, "fir(x, 1, 10)") == [1.0, None, 12.0, None, None, 24.0]
    assert _column(session, "trigger(x, 1, 0)") == [False, None, True, None, None, True]


def test_constants_and_parameters(session: Session) -> None:
    _create(session, [1.0, 2.0])
    session.sql("CREATE CONSTANT half = 0.5")
    assert _column(session, "fir(x, half, :b)", b=2) == [0.5, 3.0]
    assert _column(session, "fir(x, array(half, 2))") == [0.5, 3.0]
    session.sql("CREATE CONSTANT taps = array(0.5, 2)")
    assert _column(session, "fir(x, taps)") == [0.5, 3.0]
    assert _column(session, "iir(x, array(half), array(1, :a))", a=-0.5) == [0.5, 1.25]
    session.sql("CREATE CONSTANT b = array(0.5); CREATE CONSTANT a = array(1, -0.5)")
    assert _column(session, "iir(x, b, a)") == [0.5, 1.25]


def test_integers_and_expressions(session: Session) -> None:
    _create(session, [1.0, 2.0], n=pa.array([3, 4], pa.int16()))
    assert _column(session, "1 + fir(n * 2, 1, 1)") == [7.0, 15.0]


def test_rows_keep_their_watermark(session: Session) -> None:
    _create(session, _noise(400))
    query: Any = session.sql("""
        SELECT window_start, max(r) AS r, count_if(c) AS n
        FROM (SELECT ts, sta_lta(x, 5, 20) AS r, cfar(x, 3) AS c FROM s) AS q
        [RANGE 1 SECOND SLIDE 1 SECOND]
    """)
    assert len(query.to_arrow()) == 4


def test_over_windows(session: Session) -> None:
    _create(session, [float(k) for k in range(40)])
    query: Any = session.sql("""
        SELECT window_start, fir(m, 1, -1) AS change
        FROM (SELECT window_start, max(x) AS m FROM s [ROWS 10 SLIDE 10]) AS w
    """)
    assert query.to_arrow()["change"].to_pylist() == [9.0, 10.0, 10.0, 10.0]


def test_over_windows_of_a_signal(session: Session) -> None:
    wave = (np.arange(4000) // 1000 % 2 * 100).astype(np.int16)
    session.create_stream("audio", pa.table({"ch0": wave}), rate=1000)
    query: Any = session.sql("SELECT cfar(max(ch0), 3) AS hit FROM audio [ROWS 500 SLIDE 500]")
    assert query.to_arrow()["hit"].to_pylist() == [False, False, True, True] * 2


def test_calls_over_the_same_rows_share_an_operator(session: Session) -> None:
    _create(session, [1.0])
    query = session.sql("SELECT fir(x, 1) AS a, fir(x, 1) + 1 AS b, cfar(x, 1) AS c FROM s")
    text = query.explain()
    assert text.count("Running") == 1
    assert text.count("fir(x, 1)") == 3  # twice in the select list


def test_a_call_that_nothing_reads_is_dropped(session: Session) -> None:
    _create(session, [1.0])
    query = session.sql("SELECT c FROM (SELECT fir(x, 1) AS f, cfar(x, 1) AS c FROM s) AS q")
    assert "fir(" not in query.explain()


def test_a_cluster_has_one_task_for_it(session: Session) -> None:
    _create(session, [1.0])
    placed = placement(session.sql("SELECT fir(x, 1) AS y FROM s")._plan)
    assert isinstance(placed, Whole)
    assert placed.why == "Running needs all rows"


def test_state_counts(session: Session) -> None:
    _create(session, [1.0])
    session.sql("SET max_state = '100 MB'")
    query: Any = session.sql("SELECT sta_lta(x, 1, 100000000) AS y FROM s")
    with pytest.raises(RunError, match="over max_state"):
        query.to_arrow()


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "place", "column"),
    [
        ("SELECT sum(fir(x, 1)) FROM s", "in an aggregate", 12),
        ("SELECT x FROM s WHERE cfar(x, 1)", "in WHERE", 23),
        ("SELECT max(x) FROM s HAVING cfar(max(x), 1)", "in HAVING", 29),
        ("SELECT fir(x, 1) AS y FROM s ORDER BY y", "in ORDER BY", 39),
        ("SELECT fir(x, 1) AS y FROM s ORDER BY 1", "in ORDER BY", 39),
        ("SELECT fir(x, 1) AS y, count(*) FROM s GROUP BY y", "in GROUP BY", 49),
        ("SELECT fir(x, 1) AS y, count(*) FROM s GROUP BY 1", "in GROUP BY", 49),
        ("SELECT fir(x, 1), count(*) FROM s GROUP BY x", "beside an aggregate", 8),
        ("SELECT fir(count(*), 1) FROM s", "beside an aggregate", 8),
        ("SELECT fir(x, 1) OVER (ORDER BY ts) FROM s", "with OVER", 8),
        ("SELECT count(*) FILTER (WHERE cfar(x, 1)) FROM s", "in FILTER", 31),
        ("SELECT a.x FROM s AS a JOIN s AS b ON cfar(a.x, 1)", "in ON", 39),
        ("SELECT fir(a.x, 1) FROM s AS a JOIN s AS b ON a.ts = b.ts", "over a join", 8),
        ("SELECT fir(x, 1) FROM (SELECT x FROM s UNION ALL SELECT x FROM s) AS u", "a union", 8),
        ("SELECT fir(x, 1) FROM s [RANGE 1 MINUTE]", "over a relation", 8),
        ("SELECT fir(x, 1) FROM t", "over a table", 8),
        ("SELECT fir(x, 1) FROM u", "over an update stream", 8),
        ("SELECT fir(x, 1) FROM c", "over a relation", 8),
        ("SELECT x FROM s WHERE EXISTS (SELECT fir(s.x, 1) FROM t)", "of a column of the row", 38),
    ],
)
def test_where_it_is_refused(text: str, place: str, column: int, session: Session) -> None:
    _create(session, [1.0])
    session.register_table("t", pa.table({"x": [1.0]}))
    session.sql("CREATE STREAM u (ts TIMESTAMP, x DOUBLE) UPDATE KEY (x) ORDERED BY ts")
    session.sql("CREATE STREAM c (ts TIMESTAMP, op STRING, x DOUBLE) CHANGELOG BY op ORDERED BY ts")
    with pytest.raises(NotSupportedError, match=place) as caught:
        session.sql(text)
    assert caught.value.position is not None
    assert caught.value.position.column == column, caught.value


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("fir(x)", "fir takes 2 or more arguments, not 1"),
        ("fir(x, x)", "argument 2 of fir must be a constant"),
        ("fir(x, 1, NULL)", "argument 3 of fir must be a finite number"),
        ("fir(ts, 1)", "argument 1 of fir must be a number, but is timestamp"),
        ("iir(x, 1, 2)", "argument 2 of iir must be an array of constant numbers"),
        ("iir(x, array(1), array())", "argument 3 of iir must be an array of constant numbers"),
        ("fir(x, array())", "argument 2 of fir must be an array of constant numbers"),
        ("iir(x, array(1), array(0, 1))", "the first of the coefficients a is 0"),
        ("iir(x, array(1e300), array(1e-300))", "the coefficients overflow"),
        ("sta_lta(x, 0, 1)", "argument 2 of sta_lta must be a whole number from 1 on, but is 0"),
        ("sta_lta(x, 1, 1.5)", "argument 3 of sta_lta must be a whole number from 1 on"),
        ("sta_lta(x, 1, 1e13)", "argument 3 of sta_lta must be a whole number"),
        ("sta_lta(x, 3, 2)", "the short window of sta_lta has 3 samples, and the long one 2"),
        ("cfar(x, -1)", "omega is below zero: -1"),
        ("trigger(x, 1, 2)", "off is above on: 2 > 1"),
        ("trigger(x, 1)", "trigger takes 3 arguments, not 2"),
    ],
)
def test_wrong_arguments(call: str, message: str, session: Session) -> None:
    _create(session, [1.0])
    with pytest.raises(CqlError) as caught:
        session.sql(f"SELECT {call} FROM s")
    assert isinstance(caught.value, BindError)
    assert message in str(caught.value)
    assert caught.value.position is not None


def test_users_cannot_take_the_names(session: Session) -> None:
    with pytest.raises(CqlError, match="fir"):
        session.register_function("fir", lambda x: x, ["double"], "double")


def test_functions_are_listed(session: Session) -> None:
    table = session.sql("SHOW FUNCTIONS LIKE 'cfar'")
    assert "cfar(x, omega)" in str(table)
