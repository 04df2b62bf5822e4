"""Constant lists beside segments, and the times of samples in nanoseconds: against numpy and exact
fractions, in every runtime."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import scipy.signal

import cql
from cql.base.settings import SETTINGS
from cql.errors import BindError, NotSupportedError, RunError
from cql.session.session import Session
from tests.support.runtimes import RUNTIMES, Settings, apply, named

SIZE = 8
X = np.random.default_rng(5).integers(-1000, 1000, SIZE * 25).astype(np.int16)
WEIGHTS = np.array([0.5, -1.25, 3, 0, 2.5e-3, 7, 1, -4])
LIST = f"array({', '.join(map(str, WEIGHTS.tolist()))})"
W = f"FROM s [ROWS {SIZE} SLIDE {SIZE}]"


@pytest.fixture
def session() -> Iterator[Session]:
    with cql.connect(spark=False) as made:
        made.create_stream("s", pa.table({"x": X}), rate=44_100)
        yield made


def _rows(session: Session, text: str, **parameters: Any) -> list[dict[str, Any]]:
    query: Any = session.sql(text, **parameters)
    rows: list[dict[str, Any]] = query.to_arrow().to_pylist()
    return rows


@pytest.mark.parametrize("runtime", RUNTIMES, ids=named)
def test_lists(runtime: Settings, session: Session) -> None:
    apply(session, runtime, {"morsel_rows": 3})
    rows = _rows(
        session,
        f"SELECT dot(x, {LIST}) AS dot, dot({LIST}, x) AS mirrored, x + {LIST} AS plus,"
        f" {LIST} + x AS more, x - {LIST} AS minus, {LIST} - x AS rest, x * {LIST} AS times,"
        f" {LIST} / (x + 2000) AS per, xcorr(x, array(1, 2), 3) AS xcorr,"
        f" delay(array(0, 0, 1), subseg(x, 0, 4), 2) AS delay,"
        f" timestamp_ns({LIST} / x) AS start {W}",
    )
    assert len(rows) == len(X) // SIZE
    for k, (x, row) in enumerate(zip(X.reshape(-1, SIZE).astype(float), rows, strict=True)):
        assert row["dot"] == pytest.approx(x @ WEIGHTS, rel=1e-12)
        assert row["mirrored"] == row["dot"]
        assert row["plus"] == row["more"] == (x + WEIGHTS).tolist()
        assert row["minus"] == (x - WEIGHTS).tolist()
        assert row["rest"] == (WEIGHTS - x).tolist()
        assert row["times"] == (x * WEIGHTS).tolist()
        assert row["per"] == (WEIGHTS / (x + 2000)).tolist()
        assert row["xcorr"] == [x[3] + 2 * x[4], x[2] + 2 * x[3], x[1] + 2 * x[2],
                                x[0] + 2 * x[1], 2 * x[0], 0, 0]  # fmt: skip
        lags = [x[2 + lag] if 0 <= 2 + lag < 4 else 0.0 for lag in range(-2, 3)]
        assert row["delay"] == int(np.argmax(lags)) - 2
        assert row["start"] == k * SIZE * 1_000_000_000 // 44_100


def test_constants_that_are_lists(session: Session) -> None:
    """They give what the list in their place gives, in any case, and can be replaced."""
    session.sql(f"CREATE CONSTANT weights = {LIST}; DECLARE taps = array(-1, 2)")
    made = "SELECT dot(x, {0}) AS dot, {0} - x AS rest, xcorr(x, {1}, 3) AS c, get({1}, 1) AS two"
    assert _rows(session, f"{made.format('weights', 'TAPS')} {W}") == _rows(
        session, f"{made.format(LIST, 'array(-1, 2)')} {W}"
    )
    shown = {row["constant"]: row for row in _rows(session, "SHOW CONSTANTS")}
    assert shown["taps"]["value"] == "array(-1, 2)"
    assert shown["weights"]["type"] == "array<double>"
    session.sql("CREATE VIEW v AS SELECT dot(x, taps) AS y FROM s [ROWS 2 SLIDE 2]")
    for taps in ((-1, 2), (0.1, 123456789012345.678), (1e-300, 3)):
        listed = ", ".join(f"{tap!r}" for tap in taps)
        session.sql(f"CREATE OR REPLACE CONSTANT taps = array({listed})")
        for row, x in zip(_rows(session, "SELECT y FROM v"), X.reshape(-1, 2), strict=True):
            assert row["y"] == pytest.approx(x @ np.array(taps), rel=1e-12)
    session.sql("DROP CONSTANT taps")
    with pytest.raises(BindError, match="there is no column taps"):
        session.sql("SELECT y FROM v")


@pytest.mark.parametrize("rate", ["44100", "8000", "29.97", "0.1", "3000000"])
def test_times(rate: str, session: Session) -> None:
    """Times are rounded down from the exact ones, also far from the beginning."""
    choice = random.Random(rate)
    origin, n = choice.choice((0, 1_600_000_000_123_456, -86_400_000_001)), 40
    exact = Fraction(rate)
    times = [origin + round(k * 1_000_000 / exact) for k in range(n)]
    table = pa.table({"ts": pa.array(times, pa.timestamp("us")), "x": np.arange(n)})
    session.create_stream("timed", table, ordered_by="ts", rate=float(rate), replace=True)
    rows = _rows(
        session,
        "SELECT timestamp_ns(x) AS first, timestamp_ns(x, 1) AS second, timestamp_ns(y) AS cut,"
        " timestamp_ns(x, CASE WHEN x[0] > 0 THEN size(x) END) AS end, timestamp_ns(f) AS f"
        " FROM (SELECT x, subseg(hann(x), 3, 2) AS y, fft(x) AS f"
        " FROM timed [ROWS 5 SLIDE 5]) AS w",
    )

    def time_of(number: int) -> int:
        return 1000 * origin + int(number * 1_000_000_000 / exact)

    for k, row in enumerate(rows):
        assert row["first"] == row["f"] == time_of(5 * k)
        assert row["second"] == time_of(5 * k + 1)
        assert row["cut"] == time_of(5 * k + 3)
        assert row["end"] == (time_of(5 * k + 5) if k else None)
    assert len(rows) == n // 5


@pytest.mark.parametrize("rate", ["44100", "29.97", "0.5"])
def test_tags_are_at_the_nearest_samples(rate: str, session: Session) -> None:
    """A tag is a row with a time; ``sample_at`` finds it in each segment that has its sample."""
    choice, n, exact = random.Random(rate), 400, Fraction(rate)
    origin = 1_600_000_000_123_456
    times = [origin + round(k * 1_000_000 / exact) for k in range(n)]
    table = pa.table({"ts": pa.array(times, pa.timestamp("us")), "x": np.arange(n)})
    session.create_stream("timed", table, ordered_by="ts", rate=float(rate), replace=True)
    around = (times[-1] - origin) // 4
    at = sorted(choice.randrange(origin - around, times[-1] + around) for _ in range(60))
    tags = pa.table({"at": pa.array([*at, *sorted(times[50:60])], pa.timestamp("us"))}).sort_by(
        "at"
    )
    session.create_stream("tags", tags, ordered_by="at", replace=True)
    wide = int(20_000_000 / exact)  # microseconds
    rows = _rows(
        session,
        f"""SELECT at, s.x AS samples, sample_at(s.x, at) AS number,
            sample_at(subseg(s.x, 5, 12), at) AS part, sample_at(s.x, NULL) AS none,
            sample_at(s.x, at) * 3 DIV 4 AS resampled
        FROM tags, timed AS s
        WHERE s.ts >= at - INTERVAL '{wide}' MICROSECOND
          AND s.ts < at + INTERVAL '{wide}' MICROSECOND""",
    )
    assert len(rows) > 20

    def time_of(number: int) -> int:
        return 1000 * origin + int(number * 1_000_000_000 / exact)

    for row in rows:
        samples, since = row["samples"], row["at"] - dt.datetime(1970, 1, 1)
        at_ns = since // dt.timedelta(microseconds=1) * 1000
        nearest = min(range(-1, n + 1), key=lambda k: abs(time_of(k) - at_ns))
        assert row["number"] == (nearest - samples[0] if nearest in samples else None)
        in_part = samples[5:17]
        assert row["part"] == (nearest - in_part[0] if nearest in in_part else None)
        assert row["none"] is None
        assert row["resampled"] == (None if row["number"] is None else row["number"] * 3 // 4)


@pytest.mark.parametrize("runtime", RUNTIMES, ids=named)
def test_samples_at_another_rate_have_its_times(runtime: Settings, session: Session) -> None:
    """Also behind a gap, in overlapping windows, and resampled twice."""
    apply(session, runtime, {"morsel_rows": 3})
    rate, origin = Fraction(8000), 1_600_000_000_123_456
    numbers = [*range(500), *range(700, 1200)]
    times = [origin + round(k * 1_000_000 / rate) for k in numbers]
    table = pa.table({"ts": pa.array(times, pa.timestamp("us")), "x": np.arange(len(times))})
    session.create_stream("timed", table, ordered_by="ts", rate=8000, replace=True)
    rows = _rows(
        session,
        "SELECT x[0] AS number, timestamp_ns(y, 0) AS first, timestamp_ns(y, 7) AS eighth,"
        " timestamp_ns(z, 3) AS fourth, sample_at(y, window_start) AS at, count(z) AS n,"
        " timestamp_ns(subseg(y, 2, 3), 1) AS cut, timestamp_ns(hann(y), 2) AS third"
        " FROM (SELECT x, window_start, resample(x, 147, 160) AS y,"
        " resample(resample(x, 147, 160), 10, 21) AS z FROM timed [ROWS 50 SLIDE 33]) AS w",
    )
    assert len(rows) > 20
    gap = round((times[500] - times[0]) * rate / 1_000_000) - 500
    for row in rows:
        begins = 1000 * origin + (row["number"] + gap * (row["number"] >= 500)) * 125_000
        y, z = rate * 147 / 160, rate * 147 * 10 / (160 * 21)

        def later(i: int, of: Fraction, begins: int = begins) -> int:
            return begins + int(i * 1_000_000_000 / of)

        assert (row["first"], row["eighth"], row["fourth"]) == (begins, later(7, y), later(3, z))
        assert (row["cut"], row["third"]) == (later(3, y), later(2, y))
        assert (row["at"], row["n"]) == (0, 22)


_LENGTHS = "dot takes as many samples on both sides, and these are"


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        (f"SELECT dot(x, array(1, 2)) {W}", f"{_LENGTHS} 8 and 2", "array"),
        (f"SELECT dot(array(1, 2), x) {W}", f"{_LENGTHS} 2 and 8", "array"),
        (f"SELECT dot(fft_power, array(1)) FROM (SELECT power_spectrum(hann(x * 2)) AS fft_power"
         f" {W}) AS p", f"{_LENGTHS} 5 and 1", "array"),
        (f"SELECT x + subseg(x, 1, 3) {W}", "+ takes as many samples", "x + subseg(x, 1, 3)"),
        (f"SELECT array(x, x) {W}", "a segment of a signal inside an array is not", "x"),
        (f"SELECT append(x, array(1)) {W}", "append does not take", "append"),
        (f"SELECT append(x, hann(x)) {W}", "two segments of one type", "append"),
        (f"SELECT append(fft(x), fft(x)) {W}", "of a transform", "fft"),
        (f"SELECT dot(append(x, x), array(1)) {W}", f"{_LENGTHS} 16 and 1", "array"),
        (f"SELECT x * array(1) {W}", "* takes as many samples on both sides, and", "array"),
        (f"SELECT dot(resample(x, 2, 3), haarwavelet(x, 1)) {W}", f"{_LENGTHS} 6 and 8", "dot"),
        (f"SELECT dot(xcorr(x, x, 2), ifft(fft(x))) {W}", f"{_LENGTHS} 5 and 8", "dot"),
        (f"SELECT dot(x, array(1, NULL)) {W}", "the list beside a segment in dot has a NULL",
         "array"),
        (f"SELECT dot(x, three) {W}", f"{_LENGTHS} 8 and 3", "three"),
        ("SELECT x FROM s [ROWS three SLIDE 8]", "three is not a", "three"),
        (f"SELECT x / array(1, max(x)) {W}", "the list beside a segment in / is not constant",
         "array"),
        (f"SELECT dot(x, array('a')) {W}", "dot takes a list of numbers, not array<string>",
         "array"),
        (f"SELECT x % array(1) {W}", "% does not take segments", "x % array(1)"),
        (f"SELECT dot(array(1), array(2)) {W}", "dot does not take", "dot"),
        (f"SELECT rms(array(1)) {W}", "rms does not take", "rms"),
        (f"SELECT sample_at(x, 1) {W}", "argument 2 of sample_at must be", "1"),
        (f"SELECT sample_at(fft(x), window_start) {W}", "of a transform", "fft"),
        (f"SELECT timestamp_ns(1) {W}", "timestamp_ns does not take", "timestamp_ns"),
        (f"SELECT timestamp_ns(x, x) {W}", "argument 2 of timestamp_ns must be", "x"),
        (f"SELECT timestamp_ns(f, 1) FROM (SELECT haarwavelet(x, 1) AS f {W}) AS r",
         "and these are of a transform", "1"),
        (f"SELECT timestamp_ns(resample(x, 1, 2) - subseg(x, 0, 4), 1) {W}", "of a transform", "1"),
        (f"SELECT resample(resample(x, 9973, 10000), 9967, 9949) {W}", "has times that 64 bits"
         " do not hold: as a fraction it is 43835792931", "resample"),
    ],
)  # fmt: skip
def test_refused(text: str, message: str, place: str, session: Session) -> None:
    session.sql("CREATE CONSTANT three = array(1, 2, 3)")
    with pytest.raises((BindError, NotSupportedError)) as caught:
        session.sql(text)
    assert message in caught.value.message
    at = caught.value.position
    assert at is not None
    assert text[at.column - 1 : at.column - 1 + at.length].lower() == place.lower()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT dot(x, array(1, 2)) FROM s [ROWS 7 SLIDE 7 WITH RESTS]", "have 7 and 2 samples"),
        ("SELECT dot(CASE WHEN x[0] > 0 THEN x ELSE subseg(x, 0, 3) END, array(1, 2))"
         " FROM s [ROWS 7 SLIDE 7]", "and 2 samples"),
        (f"SELECT append(subseg(x, 0, 3), subseg(x, 4, 1)) {W}", "does not go on there"),
        (f"SELECT append(x, x) {W}", "does not go on there, but begins at 0 "),
        (f"SELECT timestamp_ns(x, 9) {W}", "of the 8 samples, numbered from 0 on, none has"),
        (f"SELECT timestamp_ns(x, -1) {W}", "none has the number -1"),
    ],
)  # fmt: skip
def test_lengths_that_only_rows_show(text: str, message: str, session: Session) -> None:
    with pytest.raises(RunError, match=message) as caught:
        _rows(session, text)
    assert caught.value.position is not None


@pytest.mark.parametrize("first", [-9, -3, 0, 2, 7, 8, 9, 2**31 - 1])
@pytest.mark.parametrize("length", [-1, 0, 1, 3, 8, 2**31 - 1])
def test_parts_outside_the_samples(first: int, length: int, session: Session) -> None:
    (found,) = _rows(session, f"SELECT subseg(x, {first}, {length}) AS part, x {W}")[:1]
    inside = [v for k, v in enumerate(found["x"]) if first <= k < first + length]
    assert found["part"] == inside


def test_a_window_function_of_one_sample(session: Session) -> None:
    (found,) = _rows(session, f"SELECT hann(subseg(x, 3, 1)) AS h, x[3] AS x {W}")[:1]
    assert found["h"] == [found["x"]]


@pytest.mark.parametrize("manager", SETTINGS["segments"].choices)
def test_adjacent_segments(manager: str, session: Session) -> None:
    """Of one window, and of two ranges."""
    session.set("segments", manager)
    text = f"""SELECT x, append(subseg(x, 0, 3), subseg(x, 3, 5)) AS whole,
        append(append(subseg(x, 0, 0), subseg(x, 0, 2)), subseg(x, 2, 1)) AS three,
        timestamp_ns(append(subseg(x, 1, 3), subseg(x, 4, 5)), 4) - timestamp_ns(x, 5) AS off {W}"""
    for row in _rows(session, text):
        assert (row["whole"], row["three"], row["off"]) == (row["x"], row["x"][:3], 0)
    (found,) = _rows(session, f"SELECT hamming(x) AS h, blackman(x) AS b, x {W}")[:1]
    for name, made in (("hamming", found["h"]), ("blackman", found["b"])):
        weights = scipy.signal.get_window(name, 8)
        np.testing.assert_allclose(made, weights * found["x"], atol=1e-12)
