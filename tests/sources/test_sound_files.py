"""Sound files as signals: the samples are those of the file, and its rate is that of the stream."""

from __future__ import annotations

import itertools
import sys
import wave
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
import soundfile

import cql
from cql.base.model import Field, Schema
from cql.base.types import BIGINT, DOUBLE, FLOAT, INT, SMALLINT, DataType
from cql.catalog.files.follow import FollowSource
from cql.catalog.files.source import FileSource
from cql.catalog.signals import sound
from cql.errors import CatalogError, CqlError
from cql.executor.protocols import Source
from tests.support import runtimes
from tests.support.catalog_tools import FakeClock, check_replay, drain, read

SUFFIXES = {"WAV": "wav", "WAVEX": "wav", "RF64": "wav", "FLAC": "flac", "AIFF": "aiff"}
#: Of each subtype: the type of the column, the type in which soundfile takes the samples, and the
#: bits by which soundfile scales them up.
EXACT: dict[str, tuple[DataType, str, int]] = {
    "PCM_S8": (SMALLINT, "int16", 8),
    "PCM_U8": (SMALLINT, "int16", 8),
    "PCM_16": (SMALLINT, "int16", 0),
    "PCM_24": (INT, "int32", 8),
    "PCM_32": (INT, "int32", 0),
    "FLOAT": (FLOAT, "float32", 0),
    "DOUBLE": (DOUBLE, "float64", 0),
}
LOSSY: dict[str, tuple[DataType, str]] = {
    "ULAW": (SMALLINT, "int16"),
    "ALAW": (SMALLINT, "int16"),
    "IMA_ADPCM": (SMALLINT, "int16"),
    "MS_ADPCM": (SMALLINT, "int16"),
    "VORBIS": (FLOAT, "float32"),
    "OPUS": (FLOAT, "float32"),
}
WRITABLE = [
    (format, subtype)
    for format in (*SUFFIXES, "OGG")
    for subtype in soundfile.available_subtypes(format)
    if subtype in EXACT or subtype in LOSSY
]

Samples = npt.NDArray[Any]


def samples(
    rows: int, channels: int, dtype: str, bits: int | None = None, seed: int = 0
) -> Samples:
    """Random samples, the least and the greatest value among them."""
    random = np.random.default_rng(seed)
    if dtype.startswith("float"):
        return random.uniform(-1, 1, (rows, channels)).astype(dtype)
    high = 2 ** ((bits or np.iinfo(dtype).bits) - 1)
    found = random.integers(-high, high, (rows, channels)).astype(dtype)
    if rows > 1:
        found[:2] = [[-high], [high - 1]]
    return found


def save(path: Path, data: Samples, rate: int = 44_100, subtype: str = "PCM_16") -> Path:
    format = {".wav": "WAV", ".flac": "FLAC", ".ogg": "OGG", ".aiff": "AIFF"}[path.suffix]
    soundfile.write(path, data, rate, subtype=subtype, format=format)
    return path


def columns_of(source: Source, names: Sequence[str] | None = None) -> Samples:
    """The rows of a source as an array, a column for each channel."""
    wanted = list(source.schema.names if names is None else names)
    blocks = drain_all(source, wanted)
    return np.stack([np.concatenate([b.column(k) for b in blocks]) for k in range(len(wanted))], 1)


def drain_all(source: Source, names: Sequence[str], offset: Any = None) -> list[pa.RecordBatch]:
    return [block.batch for block in drain(source.open(names, offset))]


@pytest.mark.parametrize(("format", "subtype"), WRITABLE)
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_samples_are_those_of_the_file(
    format: str, subtype: str, channels: int, tmp_path: Path
) -> None:
    rate = (8_000, 16_000, 48_000, 24_000)[channels - 1]
    path = tmp_path / f"a.{SUFFIXES.get(format, 'ogg')}"
    if subtype in EXACT:
        kind, dtype, shift = EXACT[subtype]
        expected = samples(3_000, channels, dtype, np.dtype(dtype).itemsize * 8 - shift)
        given = expected << shift if shift else expected
        soundfile.write(path, given, rate, subtype=subtype, format=format)
    else:
        kind, dtype = LOSSY[subtype]
        if subtype.endswith("ADPCM") and channels > 2:
            pytest.skip("ADPCM has one channel or two")
        noise = samples(3_000, channels, "float64")
        soundfile.write(path, noise, rate, subtype=subtype, format=format)
        expected, _ = soundfile.read(path, dtype=dtype, always_2d=True)
    source = FileSource({"path": path}, what="s")
    assert source.schema == Schema(tuple(Field(f"ch{k}", kind, False) for k in range(channels)))
    found = columns_of(source)
    assert found.dtype == expected.dtype
    assert np.array_equal(found, expected)
    assert source.statistics().rows == len(expected)
    assert source.statistics().nulls == {f"ch{k}": 0 for k in range(channels)}
    assert np.array_equal(columns_of(source, [f"ch{channels - 1}"]), expected[:, [channels - 1]])


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_the_bytes_of_a_file_are_its_samples(width: int, tmp_path: Path) -> None:
    """The file is written byte by byte: 8 bits are unsigned around 128, more are signed."""
    expected = samples(500, 2, "int32", 8 * width)
    with wave.open(str(tmp_path / "a.wav"), "wb") as file:
        file.setparams((2, width, 22_050, 0, "NONE", ""))
        for value in expected.ravel().tolist():
            least = value + 128 if width == 1 else value % 2 ** (8 * width)
            file.writeframesraw(least.to_bytes(width, "little"))
    source = FileSource({"path": tmp_path / "a.wav"}, what="s")
    assert np.array_equal(columns_of(source), expected)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(
    ("name", "subtype"),
    [
        ("a.wav", "PCM_24"),
        ("a.flac", "PCM_16"),
        ("a.wav", "IMA_ADPCM"),
        ("a.ogg", "VORBIS"),
        ("a.ogg", "OPUS"),
    ],
)
def test_files_replay_from_every_block(
    name: str, subtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sound, "PIECE", 26)
    monkeypatch.setattr(sound, "LEAST_ROWS", 5)
    for number, rows in enumerate((21, 0 if name == "a.wav" else 1, 3, 50)):
        data = samples(rows, 2, "float64", seed=number)
        save(tmp_path / f"{number}{name[1:]}", data, 48_000, subtype)
    source = FileSource({"path": tmp_path}, what="s")
    paths = sorted(tmp_path.iterdir())
    expected = [row for path in paths for row in read(FileSource({"path": path}, what="s"))]
    assert check_replay(source, limit=6) == expected
    assert sum(batch.num_rows for batch in drain_all(source, [])) == len(expected)


@pytest.mark.parametrize("subtype", ["PCM_16", "ULAW", "MS_ADPCM", "VORBIS", "OPUS"])
def test_reading_from_a_sample_on(subtype: str, tmp_path: Path) -> None:
    path = tmp_path / ("a.ogg" if subtype in ("VORBIS", "OPUS") else "a.wav")
    save(path, samples(100_000, 1, "float64"), 48_000, subtype)
    source = FileSource({"path": path}, what="s")
    whole = columns_of(source)
    for row in (1, 33_333, 99_000, len(whole) - 3, len(whole)):
        offset = {"row": row, "file": str(path), "in_file": row}
        rest = [b.column(0).to_numpy() for b in drain_all(source, ["ch0"], offset)]
        assert np.array_equal(np.concatenate([*rest, whole[:0, 0]]), whole[row:, 0])
    offset = {"row": 200_000, "file": str(path), "in_file": 200_000}
    with pytest.raises(CatalogError, match=r"has \d+ rows, and the query had read 200000 of it"):
        drain_all(source, ["ch0"], offset)


@pytest.mark.parametrize("rate", [1, 8_000, 44_100, 192_000])
def test_the_rate_of_the_file_is_that_of_the_stream(rate: int, tmp_path: Path, seed: int) -> None:
    data = samples(20_000, 2, "int16", seed=seed)
    path = save(tmp_path / "a.wav", data, rate)
    session = cql.Session()
    session.create_stream("audio", str(path))
    session.sql(f"CREATE STREAM again USING wav OPTIONS (path '{path}')")
    session.sql(f"CREATE STREAM told USING wav OPTIONS (path '{path}') RATE {rate} HZ")
    for name in ("audio", "again", "told"):
        result = session.sql(
            f"SELECT window_start AS s, sum(ch0) AS a, max(ch1) AS b"
            f" FROM {name} [ROWS 4096 SLIDE 1024]"
        ).to_arrow()
        starts = range(0, 20_000 - 4096 + 1, 1024)
        assert result["a"].to_pylist() == [int(data[k : k + 4096, 0].sum()) for k in starts]
        assert result["b"].to_pylist() == [int(data[k : k + 4096, 1].max()) for k in starts]
        micros = result["s"].cast(pa.int64()).to_pylist()
        assert micros == [k * 1_000_000 // rate for k in starts]
    assert session.sql("SELECT count(*) AS n FROM audio").to_arrow()["n"].to_pylist() == [20_000]
    with pytest.raises(CqlError, match=rf"RATE is 500 HZ, and file .* has {rate} samples a second"):
        session.sql(f"CREATE STREAM other USING wav OPTIONS (path '{path}') RATE 500 HZ")
    with pytest.raises(CqlError, match=rf"RATE is 500 HZ, and file .* has {rate} samples a second"):
        session.create_stream("other", path, rate=500)


@pytest.mark.parametrize("settings", runtimes.RUNTIMES, ids=runtimes.named)
def test_windows_over_a_folder_are_those_of_one_signal(
    settings: dict[str, Any], tmp_path: Path, seed: int
) -> None:
    random = np.random.default_rng(seed)
    data = samples(9_000, 2, "int16", seed=seed)
    cuts = [0, *sorted(random.integers(0, 9_000, 3).tolist()), 9_000]
    for number, (low, high) in enumerate(itertools.pairwise(cuts)):
        save(tmp_path / f"{number}.flac", data[low:high])
    session = cql.Session()
    runtimes.apply(session, settings)
    session.create_stream("audio", tmp_path)
    found = session.sql("SELECT sum(ch1) AS x FROM audio [ROWS 700 SLIDE 500]").to_arrow()["x"]
    expected = [int(data[k : k + 700, 1].sum()) for k in range(0, 9_000 - 700 + 1, 500)]
    assert found.to_pylist() == expected
    assert read_all(session, "SELECT sum(ch0) AS x FROM audio") == [{"x": int(data[:, 0].sum())}]


def read_all(session: cql.Session, text: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = session.sql(text).to_arrow().to_pylist()
    return rows


@pytest.mark.parametrize(
    ("name", "rows"), [("a.wav", 0), ("a.wav", 1), ("a.flac", 1), ("a.aiff", 0)]
)
def test_short_files(name: str, rows: int, tmp_path: Path) -> None:
    data = samples(rows, 2, "int16")
    path = save(tmp_path / name, data)
    session = cql.Session()
    session.create_stream("audio", path)
    assert session.sql("SELECT ch0, ch1 FROM audio").to_arrow().num_rows == rows
    found = session.sql("SELECT sum(ch0) AS x FROM audio [ROWS 1 SLIDE 1]").to_arrow()["x"]
    assert found.to_pylist() == data[:, 0].tolist()
    assert session.sql("SELECT ch0 FROM audio [ROWS 2 SLIDE 2]").to_arrow().num_rows == 0
    assert FileSource({"path": path}, what="s").format.complete(str(path))


@pytest.mark.parametrize("name", ["a.wav", "a.flac", "a.aiff", "a.ogg"])
@pytest.mark.parametrize("left", [0.97, 0.6, 0.0005, 0])
def test_a_file_that_is_cut_short_is_an_error(name: str, left: float, tmp_path: Path) -> None:
    subtype = "VORBIS" if name == "a.ogg" else "PCM_16"
    path = save(tmp_path / name, samples(100_000, 2, "float64"), subtype=subtype)
    source = FileSource({"path": path}, what="s")
    assert source.format.complete(str(path))
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * left)])
    assert not source.format.complete(str(path))
    with pytest.raises(
        CatalogError, match=rf"file .*{name}.* (cut short|cannot be read)"
    ) as caught:
        read(source)
    assert caught.value.hint


def test_damaged_bytes_are_an_error(tmp_path: Path) -> None:
    for name, subtype in (("a.flac", "PCM_16"), ("a.ogg", "VORBIS")):
        path = save(tmp_path / name, samples(100_000, 1, "float64"), subtype=subtype)
        data = bytearray(path.read_bytes())
        middle = len(data) // 2
        data[middle : middle + 50] = bytes(50)
        path.write_bytes(data)
        with pytest.raises(CatalogError, match=rf"file .*{name}, sample \d+, cannot be read: \w"):
            read(FileSource({"path": path}, what="s"))
    (tmp_path / "b.wav").write_bytes(b"no sound at all" * 100)
    with pytest.raises(CatalogError, match=r"file .*b\.wav cannot be read: Format not recognised"):
        FileSource({"path": tmp_path / "b.wav"}, what="s")


def test_the_content_is_of_the_format_that_is_named(tmp_path: Path) -> None:
    save(tmp_path / "a.flac", samples(10, 1, "int16"))
    path = (tmp_path / "a.flac").rename(tmp_path / "a.wav")
    with pytest.raises(CatalogError, match=r"a\.wav is a file of format flac by its content") as e:
        FileSource({"path": path}, what="s")
    assert e.value.hint == "format 'flac'"
    assert len(read(FileSource({"path": path, "format": "flac"}, what="s"))) == 10
    soundfile.write(tmp_path / "b.au", samples(10, 1, "int16"), 8_000, format="AU")
    with pytest.raises(CatalogError, match="format au by its content"):
        FileSource({"path": tmp_path / "b.au", "format": "wav"}, what="s")
    soundfile.write(tmp_path / "c.wav", samples(999, 1, "int16"), 8_000, subtype="GSM610")
    with pytest.raises(CatalogError, match="stores samples as GSM610, which is not supported"):
        FileSource({"path": tmp_path / "c.wav"}, what="s")


@pytest.mark.parametrize("size", [0xFFFFFFFF, 0x7FFFF000, 0x7FFFFFFF])
def test_a_wav_file_from_a_pipe_is_read_to_its_end(size: int, tmp_path: Path) -> None:
    """Its writer did not know the number of samples, and wrote a placeholder."""
    data = samples(1_000, 2, "int16")
    path = save(tmp_path / "a.wav", data)
    content = bytearray(path.read_bytes())
    at = content.index(b"data") + 4
    content[at : at + 4] = content[4:8] = size.to_bytes(4, "little")
    path.write_bytes(content)
    source = FileSource({"path": path}, what="s")
    assert np.array_equal(columns_of(source), data)
    assert not source.format.complete(str(path))
    content[at : at + 4] = content[4:8] = bytes(4)  # as a recorder writes it before it is done
    path.write_bytes(content)
    assert not source.format.complete(str(path))


def test_a_flac_file_that_does_not_tell_its_length_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path / "a.flac", samples(1_000, 1, "int16"))
    content = bytearray(path.read_bytes())
    content[21] &= 0xF0
    content[22:26] = bytes(4)
    path.write_bytes(content)
    with pytest.raises(CatalogError, match="does not tell how many samples it has"):
        FileSource({"path": path}, what="s")
    content[4] |= 0x80  # the first block of metadata is the last one, and nothing follows it
    path.write_bytes(content[:42])
    source = FileSource({"path": path}, what="s")
    assert read(source) == []
    assert source.statistics().rows == 0


def test_the_files_of_a_signal_agree(tmp_path: Path) -> None:
    save(tmp_path / "1.wav", samples(10, 1, "int16"), 44_100)
    other = save(tmp_path / "2.wav", samples(10, 1, "int16"), 48_000)
    with pytest.raises(
        CatalogError,
        match=r"2\.wav has 48000 samples a second, and file .*1\.wav has 44100",
    ):
        FileSource({"path": tmp_path}, what="s")
    save(other, samples(10, 2, "int16"), 44_100)
    with pytest.raises(
        CatalogError,
        match=r"2\.wav has the columns ch0 smallint, ch1 smallint, and file .* has ch0 smallint",
    ):
        FileSource({"path": tmp_path}, what="s")
    save(other, samples(10, 1, "int32"), 44_100, "PCM_24")
    declared = Schema((Field("ch0", BIGINT),))
    source = FileSource({"path": tmp_path}, what="s", declared=declared)
    with pytest.raises(CatalogError, match=r"2\.wav has the columns ch0 int, and file"):
        read(source)
    other.unlink()
    source = FileSource({"path": tmp_path}, what="s")
    save(tmp_path / "1.wav", samples(10, 1, "int16"), 8_000)  # written anew
    with pytest.raises(CatalogError, match=r"1\.wav has 8000 samples a second, and .* has 44100"):
        read(source)


def test_declared_columns(tmp_path: Path) -> None:
    data = samples(100, 3, "int16")
    path = save(tmp_path / "a.wav", data)
    session = cql.Session()
    session.sql(f"CREATE STREAM audio (ch2 BIGINT) USING wav OPTIONS (path '{path}')")
    found = session.sql("SELECT sum(ch2) AS x FROM audio [ROWS 50 SLIDE 50]").to_arrow()["x"]
    assert found.to_pylist() == [int(data[:50, 2].sum()), int(data[50:, 2].sum())]
    with pytest.raises(CqlError, match="does not fit column ch0 date"):
        session.sql(f"CREATE STREAM b (ch0 DATE) USING wav OPTIONS (path '{path}')")
    with pytest.raises(CqlError, match="has no option header"):
        session.sql(f"CREATE STREAM b USING wav OPTIONS (path '{path}', header 'true')")
    with pytest.raises(CqlError, match="a file of wav has no Debezium envelopes"):
        session.sql(f"CREATE STREAM b USING wav OPTIONS (path '{path}') CHANGELOG DEBEZIUM")


def test_tables_of_sound_files_are_only_read(tmp_path: Path) -> None:
    data = samples(100, 2, "int16")
    save(tmp_path / "a.wav", data)
    session = cql.Session()
    session.sql(f"CREATE TABLE t USING wav OPTIONS (path '{tmp_path}')")
    assert read_all(session, "SELECT sum(ch0) AS x FROM t") == [{"x": int(data[:, 0].sum())}]
    session.sql("CREATE STREAM s FROM TABLE t")
    found = session.sql("SELECT sum(ch1) AS x FROM s [ROWS 100 SLIDE 100]").to_arrow()["x"]
    assert found.to_pylist() == [int(data[:, 1].sum())]
    with pytest.raises(CqlError, match="RATE is 8 HZ, and file"):
        session.sql("CREATE STREAM r FROM TABLE t RATE 8 HZ")
    with pytest.raises(CqlError, match="cannot write format wav"):
        session.sql("INSERT INTO t SELECT ch0, ch1 FROM s")
    with pytest.raises(CqlError, match="cannot write format wav"):
        session.sql(f"CREATE TABLE u (ch0 SMALLINT) USING wav OPTIONS (path '{tmp_path}')")


def test_a_followed_folder_is_one_signal(tmp_path: Path) -> None:
    with pytest.raises(CqlError, match="no file yet to tell the rate of the samples") as caught:
        cql.Session().sql(
            f"CREATE STREAM audio (ch0 SMALLINT) USING wav"
            f" OPTIONS (path '{tmp_path}', follow 'true')"
        )
    assert caught.value.hint == "declare it, as in RATE 44100 HZ"
    data = samples(30, 1, "int16")
    save(tmp_path / "1.wav", data[:10])
    source = FollowSource({"path": tmp_path}, what="s", clock=FakeClock())
    reader = source.open(["ch0"])
    first = reader.next(timeout=0)
    assert first is not None
    whole = save(tmp_path / "x.wav", data[10:]).rename(tmp_path / "whole").read_bytes()
    (tmp_path / "whole").unlink()
    (tmp_path / "2.wav").write_bytes(whole[:-5])
    waiting = reader.next(timeout=1)
    assert waiting is not None
    assert waiting.batch.num_rows == 0
    (tmp_path / "2.wav").write_bytes(whole)
    second = reader.next(timeout=1)
    assert second is not None
    found = [b.batch.column(0).to_pylist() for b in (first, second)]
    assert found == [data[:10, 0].tolist(), data[10:, 0].tolist()]
    save(tmp_path / "3.wav", data, 8_000)
    with pytest.raises(CatalogError, match=r"3\.wav has 8000 samples a second"):
        reader.next(timeout=1)


def test_a_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(tmp_path / "a.wav", samples(10, 1, "int16"))
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(CatalogError, match="read by the library soundfile") as caught:
        FileSource({"path": path}, what="s")
    assert caught.value.hint == "pip install 'cql-streams[sound]'"
