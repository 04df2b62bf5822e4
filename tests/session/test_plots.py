"""Pictures of queries: what the axes hold, against numpy."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pyarrow as pa
import pytest
from matplotlib import pyplot
from matplotlib.axes import Axes
from numpy.typing import NDArray

import cql
from cql.errors import CqlError, PlanError, RunError
from cql.repl.shell import Shell
from cql.session.session import Session
from cql.show.plots.image import Spectra
from cql.show.plots.trace import Curve, Envelope, Trace
from tests.support.terminal import Terminal

matplotlib.use("Agg")
RATE = 8_000
SAMPLES = np.random.default_rng(3).integers(-500, 500, 40_000).astype(np.int16)
DAY = 86_400_000_000
#: 100 Hz, with a gap of 1.5 seconds and a time that is early by 3 ms.
TIMES = 1_700_000_000_000_000 + np.r_[0:100, 250:400] * 10_000
TIMES[40] -= 3_000
Z = np.sin(np.arange(250) / 7)
WINDOWS = "audio [ROWS 500 SLIDE 250]"


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with cql.connect(spark=False) as made:
        table = pa.table({"a": SAMPLES, "b": -SAMPLES})
        made.create_stream("audio", table, rate=RATE)
        shaking = pa.table({"ts": pa.array(TIMES, pa.timestamp("us", "UTC")), "z": Z})
        made.create_stream("shaking", shaking, ordered_by="ts", rate=100)
        rows = pa.table({"t": [0, 1, 5, 6, 11], "k": ["x", "y", "x", "y", "x"], "v": range(5)})
        made.create_stream("rows", rows, ordered_by="t", unit="seconds")
        yield made


def panels(session: Session, text: str, **how: Any) -> list[Axes]:
    query: Any = session.sql(text)
    return [a for a in query.plot(**how).axes if a.get_label() != "<colorbar>"]


def curve(axes: Axes, number: int = 0) -> tuple[NDArray[Any], NDArray[Any]]:
    line = axes.lines[number]
    return np.asarray(line.get_xdata()), np.asarray(line.get_ydata())


# -- waveforms -------------------------------------------------------------------------------------


def test_all_samples_of_a_short_signal(session: Session) -> None:
    first, second = panels(session, "SELECT a, b FROM audio LIMIT 900 OFFSET 100")
    x, y = curve(first)
    assert np.allclose(x, np.arange(100, 1000) / RATE)
    assert np.array_equal(y, SAMPLES[100:1000])
    assert np.array_equal(curve(second)[1], -SAMPLES[100:1000])
    assert [a.get_ylabel() for a in (first, second)] == ["a", "b"]
    assert (first.get_xlabel(), second.get_xlabel()) == ("", "seconds")


def test_a_long_signal_loses_no_peak(session: Session) -> None:
    (axes,) = panels(session, "SELECT a FROM audio", marks=pa.table({"start": [1.5], "stop": [2]}))
    (shape,) = axes.patches
    data = shape.get_data()  # type: ignore[attr-defined]
    steps = np.rint(data.edges * RATE).astype(int)
    assert len(data.values) in range(2_000, 4_001)
    assert len(set(np.diff(steps))) == 1
    parts = list(pairwise(steps))
    assert np.array_equal(data.values, [SAMPLES[i:j].max() for i, j in parts])
    assert np.array_equal(data.baseline, [SAMPLES[i:j].min() for i, j in parts])
    (marks,) = axes.collections
    assert marks.get_label() == "1 mark"
    assert marks.get_paths()[0].get_extents().intervalx.tolist() == [1.5, 2.0]
    assert axes.get_xlim() == (0.0, 5.0)


def test_gaps_are_blank(session: Session) -> None:
    gaps = session.sql("SELECT * FROM GAPS(shaking)")
    (axes,) = panels(session, "SELECT ts, 2 * z AS double FROM shaking", marks=gaps)
    x, y = curve(axes)
    assert np.allclose(np.delete(x, 100) * DAY, TIMES, atol=1)
    assert np.array_equal(np.delete(y, 100), 2 * Z)
    assert np.isnan([x[100], y[100]]).all()
    extent = axes.collections[0].get_paths()[0].get_extents().intervalx * DAY
    assert np.allclose(extent, [TIMES[99] + 10_000, TIMES[100]], atol=1)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("ts (UTC)", "double")
    x, y = curve(*panels(session, "SELECT z, ts FROM shaking WHERE z > 0"))
    kept = Z > 0
    assert np.array_equal(y[~np.isnan(y)], Z[kept])
    apart = np.flatnonzero(np.diff(TIMES[kept]) > 15_000)
    assert np.flatnonzero(np.isnan(y)).tolist() == (apart + 1 + np.arange(len(apart))).tolist()


def test_windows_of_samples(session: Session) -> None:
    half, whole = panels(
        session,
        "SELECT window_end, resample(a, 1, 2) AS half, hann(a) AS h"
        " FROM audio [ROWS 300 SLIDE 400] LIMIT 3",
    )
    x, y = curve(whole)
    hann = np.hanning(301)[:300]
    starts = (0, 400, 800)
    wanted = np.concatenate([np.r_[SAMPLES[i : i + 300] * hann, np.nan] for i in starts])[:-1]
    assert np.allclose(y, wanted, equal_nan=True)
    places = np.concatenate([np.r_[i : i + 300, np.nan] for i in starts])[:-1] / RATE
    assert np.allclose(x, places, equal_nan=True)
    assert np.allclose(curve(half)[0][:150], np.arange(150) * 2 / RATE)
    (axes,) = panels(
        session,
        "SELECT window_start, z FROM shaking [RANGE 300 MILLISECONDS SLIDE 300 MILLISECONDS]",
    )
    x, y = curve(axes)
    assert np.isnan(y).sum() == 1
    assert set(y[~np.isnan(y)]) <= set(Z)


def test_windows_of_signals_from_functions(session: Session) -> None:
    """At the rate and the times of the new signal, whatever signal is below."""

    @session.operator({"twice": "signal<double>"})
    def doubled(state: Any, row: Any, emit: Any) -> None:
        emit(2.0 * row.a)

    session.sql("CREATE VIEW slow AS SELECT resample(a, 1, 2) AS half FROM audio"
                " [ROWS 80 SLIDE 80]; CREATE VIEW beside AS SELECT a AS c FROM audio")  # fmt: skip
    for function in ("SIGNAL", "CONCAT"):
        text = f"SELECT half, window_start FROM {function}(slow) AS s [ROWS 60 SLIDE 60] LIMIT 2"
        x, _ = curve(*panels(session, text))
        places = np.r_[np.arange(60), np.nan, np.arange(60, 120)] * 2 / RATE
        assert np.allclose(x[~np.isnan(x)], places[~np.isnan(places)])
    text = "SELECT a, c, window_start FROM ZIP(audio, beside) AS z [ROWS 60 SLIDE 60] LIMIT 2"
    for axes in panels(session, text):
        assert np.array_equal(curve(axes)[1][:60], SAMPLES[:60])
    (axes,) = panels(session, "SELECT twice, window_start FROM"
                              " doubled(TABLE audio [ROWS 60 SLIDE 90]) AS d LIMIT 2")  # fmt: skip
    x, y = curve(axes)
    assert np.array_equal(y[:60], 2.0 * SAMPLES[:60])
    assert np.allclose(x[61:121], np.arange(90, 150) / RATE)


@pytest.mark.parametrize("seed", range(6))
def test_a_trace_is_the_envelope(seed: int) -> None:
    """In random parts, with gaps, and in any order."""
    numbers = np.random.default_rng(seed)
    steps, count = int(numbers.integers(4, 40)), int(numbers.integers(1, 3_000))
    places = np.sort(numbers.choice(9_000, count, replace=False)) - 2_000
    if seed % 2:
        numbers.shuffle(places)
    values = numbers.normal(size=count)
    values[numbers.random(count) < 0.1] = np.nan
    trace = Trace(steps=steps)
    for part in np.array_split(np.arange(count), int(numbers.integers(1, 9))):
        trace.add(places[part], values[part])
    drawn = trace.drawn()
    if count <= steps:
        assert isinstance(drawn, Curve)
        kept = drawn.values[~np.isnan(drawn.values)]
        assert np.array_equal(kept, values[~np.isnan(values)])
        return
    assert isinstance(drawn, Envelope)
    assert len(drawn.low) <= steps
    for k, (begin, end) in enumerate(zip(drawn.edges[:-1], drawn.edges[1:], strict=True)):
        inside = values[(places >= begin) & (places < end) & ~np.isnan(values)]
        wanted = (inside.min(), inside.max()) if len(inside) else (np.nan, np.nan)
        assert np.array_equal([drawn.low[k], drawn.high[k]], wanted, equal_nan=True)
    known = places[~np.isnan(values)]
    assert drawn.edges[0] <= known.min()
    assert drawn.edges[-1] > known.max()


def test_channels_without_samples_are_empty(session: Session) -> None:
    shown = panels(session, "SELECT a, CAST(NULL AS DOUBLE) AS nothing FROM audio")
    assert shown[0].get_xlim() == (0.0, 5.0)
    text = "SELECT window_start, subseg(a, 0, 0) AS a FROM audio [ROWS 512 SLIDE 512]"
    assert curve(*panels(session, text))[0].tolist() == []


# -- spectrograms ----------------------------------------------------------------------------------


def decibels(first: int, windows: int, sizes: int = 500) -> NDArray[Any]:
    """Of windows of SAMPLES: a row for each frequency."""
    at = range(first * 250, (first + windows) * 250, 250)
    powers = [np.abs(np.fft.rfft(SAMPLES[i : i + sizes])) ** 2 for i in at]
    return np.asarray(10 * np.log10(np.array(powers).T))


def test_a_spectrogram(session: Session) -> None:
    shown = panels(
        session,
        "SELECT window_start, power_spectrum(a) AS p, magnitude(fft(a)) AS m, fft(-b) AS f,"
        " subseg(power_spectrum(a), 20, 900) AS part, rms(a) AS level"
        f" FROM {WINDOWS} LIMIT 40",
    )
    assert [a.get_title(loc="left") for a in shown] == ["p", "m", "f", "part"]
    assert [a.get_ylabel() for a in shown] == ["frequency (Hz)"] * 4
    wanted = decibels(0, 40)
    for axes in shown:
        (image,) = axes.images
        cells = np.asarray(image.get_array())
        left, right, low, high = image.get_extent()
        first = 20 if axes is shown[-1] else 0
        assert np.allclose(cells, wanted[first:])
        # The frequency k is at k * rate / samples, in the middle of its cells; so is the time.
        assert np.allclose([low, high], [(first - 0.5) * 16, 250.5 * 16])
        assert np.allclose([left, right], np.array([125, 125 + 40 * 250]) / RATE)
        assert image.get_clim()[1] == pytest.approx(wanted[first:].max())
    # Silence has a picture, too.
    (axes,) = panels(session, f"SELECT window_start, power_spectrum(a - a) AS p FROM {WINDOWS}")
    assert np.ptp(np.asarray(axes.images[0].get_array())) == 0
    # Windows that WHERE leaves out are blank.
    (axes,) = panels(
        session, f"SELECT power_spectrum(a) AS p, window_end FROM {WINDOWS} WHERE a[0] > 0"
    )
    cells = np.asarray(axes.images[0].get_array())
    chosen = [k for k in range(159) if SAMPLES[k * 250] > 0]
    begin = chosen[0]
    for k in range(begin, chosen[-1] + 1):
        column = cells[:, k - begin]
        if k in chosen:
            assert np.allclose(column, decibels(k, 1)[:, 0])
        else:
            assert np.isnan(column).all()


@pytest.mark.parametrize("seed", range(4))
def test_an_image_keeps_the_greatest_power(seed: int) -> None:
    numbers = np.random.default_rng(seed)
    count, columns = int(numbers.integers(1, 200)), int(numbers.integers(2, 30))
    places = np.flatnonzero(numbers.random(count) < 0.7)
    powers = numbers.random((len(places), 3)) + 0.1
    image = Spectra(3, columns)
    for part in np.array_split(np.arange(len(places)), 3):
        image.add((places[part] - places[0]).astype(float), powers[part])
    cells = image.cells()
    assert cells.shape[1] <= columns or not len(places)
    for k in range(cells.shape[1]):
        inside = powers[(places - places[0]) // image.width == k]
        wanted = 10 * np.log10(inside.max(0)) if len(inside) else [np.nan] * 3
        assert np.allclose(cells[:, k], wanted, equal_nan=True)


# -- lines -----------------------------------------------------------------------------------------


def test_lines(session: Session) -> None:
    level, crossings = panels(
        session,
        f"SELECT rms(a) AS level, window_start, zero_crossings(a) AS n FROM {WINDOWS}",
        kind="lines",
    )
    x, y = curve(level)
    assert np.allclose(x, np.arange(159) * 250 / RATE)
    squares = SAMPLES.astype(float) ** 2
    assert np.allclose(y, [np.sqrt(squares[i : i + 500].mean()) for i in range(0, 39_501, 250)])
    assert (crossings.get_ylabel(), crossings.get_xlabel()) == ("n", "seconds")


def test_a_line_for_each_text(session: Session) -> None:
    (axes,) = panels(session, "SELECT t, k, v FROM rows")
    assert [line.get_label() for line in axes.lines] == ["x", "y"]
    assert [curve(axes, n)[0].tolist() for n in (0, 1)] == [[0, 5, 11], [1, 6]]
    assert [curve(axes, n)[1].tolist() for n in (0, 1)] == [[0, 2, 4], [1, 3]]
    assert axes.get_xlabel() == "t"


def test_axes_of_the_user(session: Session) -> None:
    figure, axes = pyplot.subplots()
    query: Any = session.sql("SELECT t, v FROM rows")
    assert query.plot(ax=axes) is figure
    assert len(axes.lines) == 1
    with pytest.raises(RunError, match="2 panels, and there are 1 axes"):
        session.sql("SELECT a, b FROM audio").plot(ax=axes)  # type: ignore[union-attr]
    pyplot.close(figure)
    assert query.plot()._repr_png_().startswith(b"\x89PNG")
    assert pyplot.get_fignums() == []


# -- refusals --------------------------------------------------------------------------------------

REFUSED = {
    "SELECT a FROM audio WHERE a > 0": "some samples are left out",
    "SELECT z FROM shaking": "are in ts, which the query does not select",
    "SELECT power_spectrum(a) AS p FROM audio [ROWS 500 SLIDE 250]": "when a window begins",
    "SELECT window_start, power_spectrum(z) AS p FROM shaking [ROWS 60 SLIDE 60 WITH RESTS]":
        "different numbers of samples",
    "SELECT window_start, haarwavelet(a, 2) AS w FROM audio [ROWS 512 SLIDE 512]": "w is unknown",
    "SELECT window_start, phase(fft(a)) AS w FROM audio [ROWS 512 SLIDE 512]": "w is unknown",
    "SELECT window_start, subseg(fft(a), 900, 9) AS p FROM audio [ROWS 512 SLIDE 512]":
        "p has no frequencies",
    "SELECT window_start, fft(a - b) AS q FROM audio [RANGE 5100 MICROSECONDS SLIDE 1 SECOND]":
        "the frequencies of q are unknown",
    "SELECT k, v FROM rows": "no column has times",
    "SELECT t, k FROM rows": "no column has numbers",
}  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_what_has_no_picture(session: Session, text: str) -> None:
    with pytest.raises(PlanError, match=REFUSED[text]) as found:
        panels(session, text)
    assert found.value.hint
    assert found.value.position


def test_refusals_about_the_whole_query(session: Session) -> None:
    session.create_stream("endless", ({"t": k} for k in range(9)), ordered_by="t", bounded=False)
    for text, how, error in (
        ("SELECT t FROM endless", {}, "does not end by itself"),
        ("SELECT t, v FROM rows", {"kind": "waveform"}, "there is no waveform of these rows"),
        ("SELECT a FROM audio", {"kind": "spectrogram"}, "there is no spectrogram of these rows"),
        ("SELECT t, v FROM rows", {"kind": "pie"}, "there is no picture 'pie'"),
        ("SELECT t, v FROM rows WHERE v > 9", {}, "nothing to draw"),
        ("SELECT a FROM audio", {"marks": pa.table({"from": [1]})}, "no columns start and stop"),
        ("SELECT a FROM audio", {"marks": 5}, "marks are a query or a table, not int"),
        ("SELECT a FROM audio", {"marks": pa.table({"start": [1], "stop": ["b"]})}, "type string"),
        ("SELECT ts, z FROM shaking", {"marks": pa.table({"start": [1], "stop": [2]})}, "int64"),
        ("SELECT a FROM audio", {"marks": pa.table({"start": [1], "stop": [None]})}, "NULL"),
    ):
        with pytest.raises(CqlError, match=error):
            panels(session, text, **how)


def test_without_matplotlib(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(RunError, match="matplotlib is not installed") as found:
        panels(session, "SELECT a FROM audio")
    assert found.value.hint == "pip install 'cql-streams[plots]'"


# -- the shell -------------------------------------------------------------------------------------


def test_the_shell_draws_into_files(session: Session, tmp_path: Path) -> None:
    terminal = Terminal()
    shell = Shell(lambda: session, terminal.console)
    png, svg = tmp_path / "a b.png", tmp_path / "a.SVG"
    marks = "SELECT ts AS start, ts AS stop FROM shaking WHERE z > 0.99"
    assert shell.handle(f"\\plot '{png}' SELECT ts, z\nFROM shaking; {marks};")
    assert f"{png} written: waveform of z, 250 samples, " in terminal.text.replace("\n", "")
    assert png.read_bytes().startswith(b"\x89PNG")
    assert shell.handle(f"\\plot {svg} SELECT t, v FROM rows")
    assert "<svg" in svg.read_text()
    for text, message in (
        ("\\plot", "needs a file and a SELECT"),
        (f"\\plot {svg}", "needs a file and a SELECT"),
        (f"\\plot {svg} ;", "needs a SELECT"),
        ("\\plot a.txt SELECT 1", "writes no file a.txt (line 1, column 7)"),
        ("\\plot /no/such/a.png SELECT 1", "there is no folder /no/such (line 1, column 7)"),
        ("\\plot a.png SELECT t, w FROM rows", "no column w (line 1, column 23)"),
        ("\\plot a.png SELECT t,\nv FROM rose", "rose (line 2, column 8)"),
        ("\\plot a.png DROP STREAM rows", "takes a SELECT, and maybe one more"),
        ("\\plot a.png SELECT z FROM shaking", "does not select (line 1, column 27)"),
    ):
        before = len(terminal.text)
        assert shell.handle(text)
        assert message in " ".join(terminal.text[before:].split()), text
    assert not Path("a.png").exists()
    assert "rows" in str(session.sql("SHOW STREAMS"))
