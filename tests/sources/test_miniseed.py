"""MiniSEED files as signals: rows in the order of time, gaps and overlaps of traces, rates."""

from __future__ import annotations

import random
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import obspy
import pytest

import cql
from cql.base.model import Field, Schema
from cql.base.types import DOUBLE, FLOAT, INT, TIMESTAMP, DataType
from cql.catalog.files.source import FileSource
from cql.catalog.signals import miniseed, trace_rows
from cql.errors import CatalogError, CqlError
from tests.support import runtimes
from tests.support.catalog_tools import check_replay, read

#: 2024-01-01 in microseconds.
BEGIN = 1_704_067_200_000_000
RECORDS = Path(obspy.__file__).parent / "io" / "mseed" / "tests" / "data"


def trace(id: str, start: int, samples: Sequence[float], rate: float, dtype: str = "int32") -> Any:
    """A trace whose first sample is ``start`` microseconds after BEGIN."""
    network, station, location, channel = id.split(".")
    header = {
        "network": network,
        "station": station,
        "location": location,
        "channel": channel,
        "sampling_rate": rate,
        "starttime": obspy.UTCDateTime(ns=(BEGIN + start) * 1_000),
    }
    return obspy.Trace(np.asarray(samples, dtype), header)


def save(path: Path, *traces: Any, length: int = 512, **options: Any) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of files with several encodings
        obspy.Stream(list(traces)).write(str(path), format="MSEED", reclen=length, **options)
    return path


def plain(path: Path, **options: Any) -> list[tuple[int, ...]]:
    """The rows, with times in microseconds after BEGIN."""
    source = FileSource({"path": path, **options}, what="s")
    return [(micros(row.pop("time")) - BEGIN, *row.values()) for row in read(source)]


def micros(time: Any) -> int:
    return round(time.timestamp() * 1_000_000)


def value(channel: int, number: int) -> int:
    return (channel * 7_919 + number * 104_729) % 2_003 - 1_001


def random_traces(seed: int) -> tuple[list[Any], dict[int, list[int | None]]]:
    """Traces at 100 Hz with gaps and overlaps, and the rows that they make. A sample depends on its
    channel and time alone, so that it does not matter which of two that overlap is kept."""
    dice = random.Random(seed)
    traces: list[Any] = []
    rows: dict[int, list[int | None]] = {}
    for channel, name in enumerate(("BHE", "BHN", "BHZ")):
        at = dice.randrange(50)
        for _ in range(dice.randrange(1, 6)):
            length = dice.randrange(1, 900)
            numbers = range(at, at + length)
            samples = [value(channel, k) for k in numbers]
            traces.append(trace(f"XX.AAA.00.{name}", at * 10_000, samples, 100.0))
            for k, sample in zip(numbers, samples, strict=True):
                rows.setdefault(k * 10_000, [None, None, None])[channel] = sample
            at = max(0, at + length + dice.choice((-100, -1, 1, 2, 37, 500)))
    dice.shuffle(traces)
    return traces, rows


@pytest.mark.parametrize("case", range(12))
def test_rows_are_the_samples_in_the_order_of_time(case: int, tmp_path: Path, seed: int) -> None:
    traces, rows = random_traces(seed * 100 + case)
    path = save(tmp_path / "a.mseed", *traces)
    assert plain(path) == [(time, *samples) for time, samples in sorted(rows.items())]


@pytest.mark.parametrize("settings", runtimes.RUNTIMES, ids=runtimes.named)
def test_windows_are_of_samples_without_a_gap(
    settings: dict[str, Any], tmp_path: Path, seed: int
) -> None:
    traces, rows = random_traces(seed)
    path = save(tmp_path / "a.mseed", *traces)
    session = cql.Session()
    session.on_notice = lambda message: None  # of samples at the times of others
    runtimes.apply(session, settings)
    session.create_stream("shaking", path)
    found = session.sql(
        "SELECT window_start AS t, sum(BHE) AS e, sum(BHZ) AS z FROM shaking [ROWS 40 SLIDE 40]"
    ).to_arrow()
    times = [t for t, (e, _, z) in sorted(rows.items()) if e is not None and z is not None]
    expected = windows(times, 40)
    assert [micros(t) - BEGIN for t in found["t"].to_pylist()] == [part[0] for part in expected]
    for name, channel in (("e", 0), ("z", 2)):
        sums = [sum(rows[t][channel] or 0 for t in part) for part in expected]
        assert found[name].to_pylist() == sums


def windows(times: Sequence[int], size: int) -> list[list[int]]:
    """Windows of ``size`` samples, one after the other from the beginning of each part without a
    gap."""
    parts: list[list[int]] = []
    for time in times:
        if not parts or time - parts[-1][-1] > 10_000:
            parts.append([])
        parts[-1].append(time)
    return [part[k : k + size] for part in parts for k in range(0, len(part) - size + 1, size)]


@pytest.mark.parametrize(
    ("encoding", "dtype", "kind"),
    [
        ("INT16", "int16", INT),
        ("INT32", "int32", INT),
        ("STEIM1", "int32", INT),
        ("STEIM2", "int32", INT),
        ("FLOAT32", "float32", FLOAT),
        ("FLOAT64", "float64", DOUBLE),
    ],
)
@pytest.mark.parametrize("rate", [0.1, 1.0, 62.5, 100.0, 1_000.0])
def test_encodings_and_rates(
    encoding: str, dtype: str, kind: DataType, rate: float, tmp_path: Path
) -> None:
    samples = [value(0, k) for k in range(2_500)]
    given = trace("XX.AAA..BHZ", 123, samples, rate, dtype)
    path = save(tmp_path / "a.mseed", given, encoding=encoding)
    source = FileSource({"path": path}, what="s")
    assert source.schema == Schema((Field("time", TIMESTAMP, False), Field("BHZ", kind)))
    assert plain(path) == [
        (123 + round(k * 1_000_000 / rate), sample) for k, sample in enumerate(samples)
    ]
    session = cql.Session()
    session.create_stream("s", path)
    with pytest.raises(CqlError, match=rf"RATE is 7 HZ, and file .* has {rate:g} samples"):
        session.create_stream("t", path, rate=7)


def test_channels_at_slightly_other_times_share_rows(tmp_path: Path) -> None:
    path = save(
        tmp_path / "a.mseed",
        trace("XX.AAA.00.BHZ", 0, [1, 2, 3], 100.0),
        trace("XX.AAA.00.BHN", 14_000, [4, 5, 6], 100.0),  # nearest to 10 ms
        trace("XX.AAA.00.BHZ", 41_000, [7, 8], 100.0),  # follows the last of BHN
        trace("XX.AAA.00.BHZ", 79_000, [9], 100.0),  # nothing is near: a time of its own
    )
    assert plain(path) == [
        (0, None, 1),
        (10_000, 4, 2),
        (20_000, 5, 3),
        (30_000, 6, None),
        (40_000, None, 7),
        (50_000, None, 8),
        (79_000, None, 9),
    ]


def test_of_samples_at_one_time_the_first_trace_s_are_kept(tmp_path: Path) -> None:
    path = save(
        tmp_path / "a.mseed",
        trace("XX.AAA.00.BHZ", 20_000, [20, 21, 22, 23], 100.0),
        trace("XX.AAA.00.BHZ", 0, [10, 11, 12, 13], 100.0),
        trace("XX.AAA.00.BHZ", 10_000, [30, 31], 100.0),
    )
    values = [10, 11, 12, 13, 22, 23]
    assert plain(path) == [(10_000 * k, sample) for k, sample in enumerate(values)]
    session = cql.Session()
    notices: list[str] = []
    session.on_notice = notices.append
    session.create_stream("s", path)
    assert session.sql("SELECT BHZ FROM s").to_arrow()["BHZ"].to_pylist() == values
    assert notices == [
        f"stream s: file {path} has 4 samples of BHZ at the times of others: the others, of the"
        " trace that begins first, are kept"
    ]


def test_gaps_are_those_of_the_signal(tmp_path: Path) -> None:
    path = save(
        tmp_path / "a.mseed",
        trace("XX.AAA.00.BHZ", 0, range(250), 100.0),
        trace("XX.AAA.00.BHZ", 4_000_000, range(250, 500), 100.0),
    )
    session = cql.Session()
    session.create_stream("s", path)
    query = session.sql("SELECT window_start AS t, min(BHZ) AS low FROM s [ROWS 100 SLIDE 100]")
    rows = query.to_arrow().to_pylist()
    found = [(micros(row["t"]) - BEGIN, row["low"]) for row in rows]
    assert found == [(0, 0), (1_000_000, 100), (4_000_000, 250), (5_000_000, 350)]
    told = query.metrics()[0]
    assert (told["samples"], told["gaps"], told["overlapping"]) == (500, 1, 0)


def test_the_order_of_time_is_implied(tmp_path: Path) -> None:
    path = save(tmp_path / "a.mseed", trace("XX.AAA.00.BHZ", 0, range(10), 100.0))
    session = cql.Session()
    session.sql(f"CREATE STREAM a USING mseed OPTIONS (path '{path}')")
    session.sql(f"CREATE STREAM b USING miniseed OPTIONS (path '{path}') ORDERED BY time")
    role = "watermark (ORDERED BY time), times of samples (RATE 100 HZ; a gap beyond half a period)"
    for name in ("a", "b"):
        rows = session.sql(f"DESCRIBE {name}").rows
        assert rows[0][:4] == ("time", "timestamp", "not null", role)
    session.sql(
        f"CREATE STREAM c USING mseed OPTIONS (path '{path}') ORDERED BY time WITHIN 1 SECOND"
    )
    assert "WITHIN 1 SECOND" in str(session.sql("DESCRIBE c").rows[0])
    session.sql(f"CREATE STREAM d (BHZ INT) USING mseed OPTIONS (path '{path}')")
    assert session.sql("SELECT BHZ FROM d [ROWS 5 SLIDE 5]").to_arrow().num_rows == 2


def test_names_of_channels(tmp_path: Path) -> None:
    def names(*ids: str, **options: Any) -> list[str]:
        path = save(tmp_path / "a.mseed", *(trace(id, 0, [1, 2], 100.0) for id in ids))
        return list(FileSource({"path": path, **options}, what="s").schema.names[1:])

    assert names("XX.AAA.00.BHZ", "XX.AAA.00.BHE") == ["BHE", "BHZ"]
    assert names("XX.AAA.00.BHZ", "XX.AAA.10.BHE") == ["BHZ", "BHE"]
    twice = "XX.AAA.00.BHZ", "XX.AAA.10.BHZ"
    assert names(*twice) == ["XX_AAA_00_BHZ", "XX_AAA_10_BHZ"]
    two = "XX.AAA..BHZ", "XX.BBB..BHN"
    assert names(*two) == ["XX_AAA__BHZ", "XX_BBB__BHN"]
    assert names(*two, channel="bhz") == ["BHZ"]
    assert names(*two, channel="BH?") == ["XX_AAA__BHZ", "XX_BBB__BHN"]
    assert names(*twice, channel="XX.AAA.10.*") == ["BHZ"]
    assert names(*twice, channel="XX_AAA_10_BHZ, XX.AAA.00.BHZ") == [
        "XX_AAA_00_BHZ",
        "XX_AAA_10_BHZ",
    ]
    with pytest.raises(CatalogError, match="has no channel LHZ") as caught:
        names(*two, channel="LHZ")
    assert caught.value.hint == "its channels are XX.AAA..BHZ, XX.BBB..BHN"


def test_channels_have_one_rate(tmp_path: Path) -> None:
    path = save(
        tmp_path / "a.mseed",
        trace("XX.AAA.00.BHZ", 0, range(200), 100.0),
        trace("XX.AAA.00.LHZ", 0, range(2), 1.0),
    )
    with pytest.raises(
        CatalogError, match="channels of several rates, in hertz: LHZ 1, BHZ 100"
    ) as caught:
        FileSource({"path": path}, what="s")
    assert caught.value.hint == "the option channel 'BH?' reads some of them"
    session = cql.Session()
    session.sql(f"CREATE STREAM s USING mseed OPTIONS (path '{path}', channel 'LHZ')")
    found = session.sql("SELECT sum(LHZ) AS x FROM s [ROWS 2 SLIDE 2]").to_arrow()
    assert found["x"].to_pylist() == [1]


def test_a_channel_of_texts_is_left_out(tmp_path: Path) -> None:
    log = trace("XX.AAA.00.LOG", 0, [], 0.0)
    log.data = np.frombuffer(b"the clock is locked", dtype="S1")
    path = save(tmp_path / "a.mseed", trace("XX.AAA.00.BHZ", 0, range(9), 100.0), log)
    source = FileSource({"path": path}, what="s")
    assert source.schema.names == ("time", "BHZ")
    assert source.unsupported == {"LOG": "its samples are texts"}
    assert [sample for _, sample in plain(path)] == list(range(9))


def test_a_channel_has_one_type(tmp_path: Path) -> None:
    path = save(
        tmp_path / "a.mseed",
        trace("XX.AAA.00.BHZ", 0, range(9), 100.0),
        trace("XX.AAA.00.BHZ", 90_000, range(9), 100.0, "float64"),
    )
    with pytest.raises(
        CatalogError, match=r"(has samples of BHZ of the types|s has no column BHZ)"
    ):
        read(FileSource({"path": path}, what="s"), ["BHZ"])


@pytest.mark.usefixtures("small_blocks")
def test_files_replay_from_every_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_rows, "PIECE", 5)
    expected = []
    for number, (low, high) in enumerate(((0, 21), (21, 24), (30, 60))):
        first = trace("XX.AAA.00.BHZ", low * 10_000, range(low, high), 100.0)
        second = trace("XX.AAA.00.BHN", (low + 2) * 10_000, range(low + 2, high), 100.0)
        save(tmp_path / f"{number}.mseed", first, second)
        expected += [(k * 10_000, k if k >= low + 2 else None, k) for k in range(low, high)]
    rows = check_replay(FileSource({"path": tmp_path}, what="s"))
    assert [(micros(row.pop("time")) - BEGIN, *row.values()) for row in rows] == expected
    session = cql.Session()
    session.create_stream("s", tmp_path)
    query = session.sql("SELECT min(BHZ) AS x FROM s [ROWS 10 SLIDE 10]")
    assert query.to_arrow()["x"].to_pylist() == [0, 10, 30, 40, 50]
    offset = {"row": 30, "file": str(tmp_path / "1.mseed"), "in_file": 9}
    with pytest.raises(CatalogError, match="has 3 rows, and the query had read 9 of it"):
        read(FileSource({"path": tmp_path}, what="s"), ["BHZ"], offset)


def test_the_files_of_a_signal_agree(tmp_path: Path) -> None:
    save(tmp_path / "1.mseed", trace("XX.AAA.00.BHZ", 0, range(9), 100.0))
    other = save(tmp_path / "2.mseed", trace("XX.AAA.00.BHZ", 90_000, range(9), 200.0))
    with pytest.raises(CatalogError, match=r"2\.mseed has 200 samples a second, and .* has 100"):
        FileSource({"path": tmp_path}, what="s")
    save(other, trace("XX.AAA.00.BHN", 90_000, range(9), 100.0))
    with pytest.raises(
        CatalogError, match=r"2\.mseed has the columns time timestamp, BHN int, and"
    ):
        FileSource({"path": tmp_path}, what="s")


def test_damaged_files_are_errors(tmp_path: Path) -> None:
    noise = np.random.default_rng(5).integers(-9_999, 9_999, 5_000)
    path = save(tmp_path / "a.mseed", trace("XX.AAA.00.BHZ", 0, noise.tolist(), 100.0))
    whole = path.read_bytes()
    source = FileSource({"path": path}, what="s")
    assert source.format.complete(str(path))
    for left, text in (
        (len(whole) - 100, r"is cut short: its last record has 412 of 512 bytes"),
        (300, "cannot be read: it has no whole record of samples"),
        (40, "cannot be read: "),
        (0, "cannot be read: "),
    ):
        path.write_bytes(whole[:left])
        assert not source.format.complete(str(path))
        with pytest.raises(CatalogError, match=rf"file .*a\.mseed {text}"):
            read(source)
        with pytest.raises(CatalogError, match=rf"file .*a\.mseed {text}"):
            FileSource({"path": path}, what="s")
    for at in (512 * 3, 512 * 3 + 100):  # the header of a record, and its samples
        damaged = bytearray(whole)
        damaged[at : at + 60] = b"\xff" * 60
        path.write_bytes(damaged)
        with pytest.raises(CatalogError, match=r"file .*a\.mseed cannot be read: ") as caught:
            read(source)
        assert caught.value.hint
    path.write_bytes(b"no record" * 500)
    with pytest.raises(CatalogError, match=r"file .*a\.mseed cannot be read: "):
        FileSource({"path": path}, what="s")


@pytest.mark.parametrize(
    "name",
    [
        "gaps.mseed",
        "BW.BGLD.__.EHE.D.2008.001.first_10_records",
        "CH.BALST..LH_two_channels",
        "RJOB.BW.EHZ.D.300806.0000.fullseed",
        "GEOSCOPE16_4_encoding.mseed",
        "CDSN_encoding.mseed",
    ],
)
def test_records_of_real_stations(name: str) -> None:
    """Each sample that obspy reads is in the row of its time."""
    path = RECORDS / name
    if not path.exists():
        pytest.skip("this obspy comes without its records")
    rows = read(FileSource({"path": path, "format": "mseed"}, what="s"))
    by_channel: dict[str, dict[int, float]] = {}
    for row in rows:
        time = micros(row.pop("time"))
        for channel, sample in row.items():
            if sample is not None:
                by_channel.setdefault(channel, {})[time] = sample
    expected: dict[str, dict[int, float]] = {}
    slack = 0.0
    with open(path, "rb") as file:
        for found in obspy.read(file, format="MSEED"):
            stats = found.stats
            slack = 500_000 / stats.sampling_rate
            for k, sample in enumerate(found.data.tolist()):
                time = round(stats.starttime.ns / 1_000 + k * 1_000_000 / stats.sampling_rate)
                expected.setdefault(stats.channel, {})[time] = sample
    assert by_channel.keys() == expected.keys()
    for channel, samples in expected.items():
        ours = by_channel[channel]
        assert list(ours.values()) == list(samples.values())
        assert all(abs(a - b) <= slack for a, b in zip(ours, samples, strict=True))


def test_a_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(tmp_path / "a.mseed", trace("XX.AAA.00.BHZ", 0, range(9), 100.0))
    monkeypatch.setitem(sys.modules, "obspy", None)
    miniseed._library.cache_clear()
    with pytest.raises(CatalogError, match="read by the library obspy") as caught:
        FileSource({"path": path}, what="s")
    assert caught.value.hint == "pip install 'cql-streams[seismic]'"
