"""Functions of segments in SQL against the reference, in every runtime, and what they refuse."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import cql
from cql.base.types import DOUBLE, signal
from cql.errors import BindError, CqlError, RunError
from cql.executor.operators.signals.segment_store import SegmentStore
from cql.planner.nodes.expr import Call, Column
from cql.session.session import Session
from tests.reference import naive_segments
from tests.reference.naive_registry import FUNCTIONS
from tests.support.runtimes import RUNTIMES, Settings, apply, named

#: Functions by their SQL: the name in the reference, and constants behind the arguments x or x, y.
CALLS: dict[str, tuple[str, str, tuple[Any, ...]]] = {
    "peak(x)": ("peak", "x", ()),
    "trough(x)": ("trough", "x", ()),
    "dot(x, y)": ("dot", "xy", ()),
    "x[3]": ("sample", "x", (3,)),
    "y[min(x) - min(x)]": ("sample", "y", (0,)),
    "x + 2": ("samples_add", "x", (2,)),
    "x - y": ("samples_sub", "xy", ()),
    "x * y": ("samples_mul", "xy", ()),
    "y / 4": ("samples_div", "y", (4,)),
    "x * 0.5": ("samples_mul", "x", (0.5,)),
    "fir(x, 0.5, -0.25, 0.125)": ("fir", "x", ((0.5, -0.25, 0.125),)),
    "fir(x, array(2))": ("fir", "x", ((2.0,),)),
    "iir(y, array(1, 0.5), array(1, -0.3, 0.2))": ("iir", "y", ((1.0, 0.5), (1.0, -0.3, 0.2))),
    "iir(x, array(1, 2, 3), array(2, 0.5))": ("iir", "x", ((0.5, 1.0, 1.5), (1.0, 0.25))),
    "-x": ("samples_mul", "x", (-1,)),
    "size(x)": ("count", "x", ()),
    "length(x)": ("count", "x", ()),
    "power_spectrum(x)": ("power_spectrum", "x", ()),
    "xcorr(x, y, 4)": ("xcorr", "xy", (4,)),
    "delay(x, y, 9)": ("delay", "xy", (9,)),
    "resample(x, 6, 4)": ("resample", "x", (3, 2)),
    "haarwavelet(subseg(x, 0, 16), 3)": ("haarwavelet", "x", (3,)),
    "band_energy(subseg(x, 0, 16), 2)": ("band_energy", "x", (2,)),
}
assert naive_segments.__name__  # registers its functions
SIZE = 21


def _table(seed: int) -> pa.Table:
    numbers = np.random.default_rng(seed)
    x = numbers.integers(-1000, 1000, 40 * SIZE + 5).astype(np.int16)
    return pa.table({"x": x, "y": numbers.normal(0, 10, len(x)).astype(np.float32)})


@pytest.fixture
def session() -> Iterator[Session]:
    with cql.connect(spark=False) as made:
        yield made


@pytest.mark.parametrize("runtime", RUNTIMES, ids=named)
def test_all_functions(runtime: Settings, session: Session, seed: int) -> None:
    """Windows overlap, so that segments have several parts of the blocks."""
    choice = random.Random(f"{named(runtime)} {seed}")
    apply(session, runtime, {"morsel_rows": choice.choice((1, 5, 4096))})
    table = _table(seed)
    session.create_stream("s", table, rate=100)
    columns = ", ".join(f"{text} AS c{k}" for k, text in enumerate(CALLS))
    query: Any = session.sql(f"SELECT {columns} FROM s [ROWS {SIZE} SLIDE 13]")
    rows = query.to_arrow().to_pylist()
    firsts = range(0, len(table) - SIZE + 1, 13)
    assert len(rows) == len(firsts)
    call = Call("", (Column(0, "x", signal(DOUBLE), False),), DOUBLE, False, None)
    for first, row in zip(firsts, rows, strict=True):
        part = {n: table[n].to_pylist()[first : first + SIZE] for n in "xy"}
        for k, (text, (fn, names, constants)) in enumerate(CALLS.items()):
            size = 16 if "subseg" in text else SIZE
            given = [part[n][:size] for n in names]
            named_call = Call(fn, call.args, DOUBLE, False, None)
            expected = FUNCTIONS[fn](named_call, *given, *constants)
            found = row[f"c{k}"]
            if isinstance(expected, tuple):
                expected = list(expected)
            assert found == pytest.approx(expected, rel=1e-9, abs=1e-6), text


def test_spectra(session: Session, seed: int) -> None:
    table = _table(seed)
    session.create_stream("s", table, rate=100)
    query: Any = session.sql(
        "SELECT x, f, real(f) AS re, imag(f) AS im, magnitude(f) AS m, phase(f) AS p,"
        " ifft(f, count(x)) AS back, ifft(subseg(f, 0, 5)) AS low, count(f) AS bins"
        f" FROM (SELECT x, fft(x) AS f FROM s [ROWS {SIZE} SLIDE {SIZE}])"
    )
    found = query.to_arrow()
    assert [str(f.type) for f in query.schema][1] == "signal<struct<re:double,im:double>>"
    assert pa.types.is_struct(found.schema.field("f").type.value_type)
    for row in found.to_pylist():
        expected = np.fft.rfft(row["x"])
        f = np.array([complex(v["re"], v["im"]) for v in row["f"]])
        np.testing.assert_allclose(f, expected, rtol=1e-9, atol=1e-8)
        assert row["re"] == f.real.tolist()
        assert row["im"] == f.imag.tolist()
        np.testing.assert_allclose(row["m"], np.abs(f), rtol=1e-12)
        np.testing.assert_allclose(row["p"], np.angle(f), rtol=1e-12)
        np.testing.assert_allclose(row["back"], row["x"], atol=1e-9)
        np.testing.assert_allclose(row["low"], np.fft.irfft(f[:5]), atol=1e-9)
        assert row["bins"] == SIZE // 2 + 1


W = "FROM s [ROWS 21 SLIDE 21]"


_SPECTRA: dict[str, Any] = {
    "f * g": lambda f, g: f * g,
    "f / g": lambda f, g: f / g,
    "f - g": lambda f, g: f - g,
    "f + magnitude(g)": lambda f, g: f + np.abs(g),
    "magnitude(f) - g": lambda f, g: np.abs(f) - g,
    "magnitude(f) / g": lambda f, g: np.abs(f) / g,
    "f * 2": lambda f, g: f * 2,
    "1 - f": lambda f, g: 1 - f,
    "-f": lambda f, g: -f,
    "3 / f": lambda f, g: 3 / f,
    "f / 0.5": lambda f, g: f / 0.5,
    "conj(f)": lambda f, g: np.conj(f),
    "f * array(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)": lambda f, g: f * np.arange(1, 12),
    "array(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11) - g": lambda f, g: np.arange(1, 12) - g,
    "subseg(f, 2, 4) * conj(subseg(g, 2, 4))": lambda f, g: (f * np.conj(g))[2:6],
}


def test_arithmetic_of_spectra(session: Session, seed: int) -> None:
    """Complex samples with complex ones, with numbers, and with lists."""
    table = _table(seed)
    session.create_stream("s", table, rate=100)
    listed = ", ".join(f"{text} AS c{k}" for k, text in enumerate(_SPECTRA))
    text = (
        f"SELECT x, y, {listed}, ifft(f * conj(g), count(x)) AS crossed"
        f" FROM (SELECT x, y, fft(x) AS f, fft(y) AS g FROM s [ROWS {SIZE} SLIDE {SIZE}])"
    )
    query: Any = session.sql(text)
    rows = query.to_arrow().to_pylist()
    assert len(rows) == 40
    for row in rows:
        x, y = (np.array(row[n], float) for n in "xy")
        f, g = np.fft.rfft(x), np.fft.rfft(y)
        for k, (name, expected) in enumerate(_SPECTRA.items()):
            found = [complex(v["re"], v["im"]) for v in row[f"c{k}"]]
            np.testing.assert_allclose(found, expected(f, g), rtol=1e-6, atol=1e-6, err_msg=name)
        crossed = [np.dot(np.roll(x, -lag), y) for lag in range(SIZE)]
        np.testing.assert_allclose(row["crossed"], crossed, rtol=1e-6, atol=1e-4)


@pytest.mark.parametrize("text", ["f + subseg(g, 1, 3)", "x * f", "f * array(1, 2)"])
def test_spectra_of_different_lengths(text: str, session: Session) -> None:
    session.create_stream("s", _table(0), rate=100)
    inner = f"SELECT x, fft(x) AS f, fft(y) AS g FROM s [ROWS {SIZE} SLIDE {SIZE}]"
    with pytest.raises(BindError, match="takes as many samples on both sides"):
        session.sql(f"SELECT {text} AS z FROM ({inner})")


@pytest.mark.parametrize("fn", ["avg", "sum", "stddev", "min", "max", "rms", "hann", "fft", "peak",
                                "trough", "zero_crossings", "power_spectrum"])  # fmt: skip
def test_complex_samples_are_refused(fn: str, session: Session) -> None:
    session.create_stream("s", _table(0), rate=100)
    with pytest.raises(BindError, match=rf"{fn} does not take segments of complex samples") as got:
        session.sql(f"SELECT {fn}(fft(x)) {W}")
    assert got.value.position is not None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dot(x, fft(x))", "dot does not take segments of complex samples"),
        ("haarwavelet(x, 1)", "with level 1 takes a multiple of 2 samples, and these are 21"),
        ("band_energy(x, 2)", "with level 2 takes a multiple of 4 samples, and these are 21"),
        ("fir(x)", "fir takes 2 or more arguments, not 1"),
        ("fir(fft(x), 1)", "fir does not take segments of complex samples"),
        ("iir(x, array(1), array(0))", "the first of the coefficients a is 0"),
        ("fir(x, array(size(x)))", "must be a constant"),
        ("peak(fft(x))", "does not take segments of complex samples"),
        ("ifft(x)", "ifft does not take .signal<smallint>."),
        ("magnitude(x)", "magnitude does not take .signal<smallint>."),
        ("x % 2", "% does not take segments of a signal"),
        ("x + DATE '2020-01-01'", "argument 2 of [+] must be a number"),
        ("x + true", "argument 2 of [+] must be a number"),
        ("dot(x, 1)", "dot does not take .signal<smallint>, int."),
        ("haarwavelet(x, 0)", "argument 2 of haarwavelet is between 1 and 30, not 0"),
        ("haarwavelet(x, min(x))", "argument 2 of haarwavelet must be a constant whole number"),
        ("band_energy(x, 31)", "argument 2 of band_energy is between 1 and 30, not 31"),
        ("resample(x, 0, 1)", "argument 2 of resample is between 1 and 10,000, not 0"),
        ("resample(x, 1, 1.5)", "argument 3 of resample must be a constant whole number"),
        ("xcorr(x, y, -1)", "argument 3 of xcorr is between 0 and 1,000,000, not -1"),
        ("delay(x, y)", "delay takes 3 arguments|delay"),
        ("peak(1)", "peak does not take .int."),
        ("x['a']", "the number of a sample is a whole number, not a value of type string"),
    ],
)
def test_refused(text: str, message: str, session: Session) -> None:
    session.create_stream("s", _table(0), rate=100)
    with pytest.raises(CqlError, match=message) as caught:
        session.sql(f"SELECT {text} AS a {W}").to_arrow()
    assert caught.value.position is not None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "dot(x, subseg(x, 0, size(y) - 16))",
            r"the segments have 21 and 5 samples: dot\(x, subseg",
        ),
        ("x + subseg(y, 1, 99 * size(x))", r"the segments have 21 and 20 samples: x \+ subseg"),
        ("x[21]", r"of the 21 samples, numbered from 0 on, none has the number 21: x\[21\]"),
        ("x[-1]", r"none has the number -1: x\[-1\]"),
        (
            "haarwavelet(subseg(x, 0, size(y)), 1)",
            "samples, 21, is no multiple of 2 to the power 1: haarwavelet",
        ),
        (
            "band_energy(subseg(x, 0, size(y)), 2)",
            "samples, 21, is no multiple of 2 to the power 2: band_energy",
        ),
        ("ifft(fft(x), 23)", "the spectrum has 11 values, which are not those of 23 samples: ifft"),
        ("ifft(fft(x), -1)", "the spectrum has 11 values, which are not those of -1 samples"),
    ],
)
def test_rows_that_fail(text: str, message: str, session: Session) -> None:
    session.create_stream("s", _table(0), rate=100)
    with pytest.raises(RunError, match=message) as caught:
        session.sql(f"SELECT {text} AS a {W}").to_arrow()
    assert caught.value.position is not None
    kept: Any = session.sql(f"SELECT {text} AS a {W} ON BAD ROW KEEP")
    assert len(kept.to_arrow()) == 0
    query: Any = session.sql(f"SELECT 1 AS a {W} WHERE window_start IS NULL AND ({text}) IS NULL")
    assert len(query.to_arrow()) == 0


def test_empty_segments(session: Session) -> None:
    """Functions of no samples: NULL where no number is an answer."""
    session.create_stream("s", _table(0), rate=100)
    e = "subseg(x, 99, 1)"
    query: Any = session.sql(
        f"SELECT peak({e}) AS p, trough({e}) AS t, delay({e}, x, 3) AS d, dot({e}, {e}) AS o,"
        f" fft({e}) AS f, ifft(fft({e})) AS i, power_spectrum({e}) AS w, {e} * 2 AS m,"
        f" resample({e}, 3, 2) AS r, haarwavelet({e}, 2) AS h, band_energy({e}, 2) AS b,"
        f" xcorr({e}, x, 1) AS c, size({e}) AS n, x + NULL AS z, sum({e}) AS ns, avg({e}) AS na,"
        f" min({e}) AS nl, max({e}) AS nh, rms({e}) AS nr, stddev_pop({e}) AS np,"
        f" max(subseg(y, 99, 1)) AS ny, stddev(subseg(x, 0, 1)) AS n1, variance({e}) AS n2,"
        f" stddev_pop(subseg(x, 0, 1)) AS s {W}"
    )
    row = query.to_arrow().to_pylist()[0]
    several = ("ns", "na", "nl", "nh", "nr", "np", "ny", "n1", "n2")
    none: dict[str, Any] = dict.fromkeys((*"ptdz", *several))
    lists: dict[str, Any] = {k: [] for k in "fiwmrh"}
    assert row == {**none, **lists, "o": 0.0, "b": 0.0, "c": [0.0, 0.0, 0.0], "n": 0, "s": 0.0}


def test_sums_beyond_64_bits(session: Session) -> None:
    """As the aggregate over rows, the sum fails; sums that come back into 64 bits do not."""
    most = 2**63 - 1
    for samples, total in (
        ([most, 1, -1, 0], most),
        ([-most, -1, most, 1], 0),
        ([most, most, -most, -most - 1], -1),
    ):
        session.create_stream("s", pa.table({"x": samples}), rate=1, replace=True)
        size = len(samples)
        query: Any = session.sql(f"SELECT sum(x) AS n FROM s [ROWS {size} SLIDE {size}]")
        assert query.to_arrow()["n"].to_pylist() == [total]
    for samples in ([most, 1], [-most - 1, -1], [most] * 9):
        session.create_stream("s", pa.table({"x": samples}), rate=1, replace=True)
        n = len(samples)
        with pytest.raises(RunError, match=f"the sum of the {n} samples has more than 64 bits"):
            session.sql(f"SELECT sum(x) AS n FROM s [ROWS {n} SLIDE {n}]").to_arrow()


def test_segments_inside_a_call_are_gone(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that only another function reads go before the next row: a morsel of 400 windows holds
    the samples of one at a time, and those of its results."""
    most = [0]
    sweep, close = SegmentStore.sweep, SegmentStore.close

    def swept(store: SegmentStore, through: int) -> None:
        most[0] = max(most[0], store.counts["bytes"])
        sweep(store, through)

    def closed(store: SegmentStore) -> None:
        most[0] = max(most[0], store.counts["bytes"])
        close(store)

    monkeypatch.setattr(SegmentStore, "sweep", swept)
    monkeypatch.setattr(SegmentStore, "close", closed)
    session.create_stream("s", pa.table({"x": np.arange(1400) % 97}), rate=1000)
    query: Any = session.sql(
        "SELECT max(magnitude(fft(hann(x) * 2))) AS a, dot(-x, x + 1) AS d,"
        " subseg(hann(subseg(x, 0, 500)), 10, 5) AS h FROM s [ROWS 1000 SLIDE 1]"
    )
    found = query.to_arrow().to_pylist()
    assert len(found) == 401
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(1000) / 1000)
    for k, row in enumerate(found):
        x = (np.arange(k, k + 1000) % 97).astype(float)
        assert row["a"] == pytest.approx(np.abs(np.fft.rfft(x * window * 2)).max(), rel=1e-9)
        assert row["d"] == pytest.approx(float((-x * (x + 1)).sum()), rel=1e-12)
        hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(500) / 500)
        assert row["h"] == pytest.approx((x[:500] * hann)[10:15].tolist(), rel=1e-9)
    assert 0 < most[0] < 401 * 500 * 8 + 100_000  # the results share the blocks of hann(…)


def test_what_a_query_leaves(session: Session) -> None:
    """The segments of a morsel are gone when it is through: a long signal stays in its bound."""
    samples = np.random.default_rng(1).normal(size=400_000)
    session.create_stream("s", pa.table({"x": samples}), rate=1000)
    apply(session, {"morsel_rows": 8, "max_state": "24 MB"})
    query: Any = session.sql(
        "SELECT max(magnitude(fft(x * hann(x)))) AS a, rms(resample(x, 2, 1)) AS r,"
        " band_energy(haarwavelet(x, 3), 1) AS e FROM s [ROWS 1000 SLIDE 20]"
    )
    assert len(query.to_arrow()) == (400_000 - 1000) // 20 + 1
