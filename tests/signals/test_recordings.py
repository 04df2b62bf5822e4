"""Recordings: the words of somebody who counts, and sounds that a Debian package has installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

import cql
from tests.support.paths import QUERIES

#: ``espeak-ng -v en -s 130 "one, . two, . three, . four, . five."``, with every other sample
#: interpolated: espeak-ng speaks 22,050 samples a second.
COUNT = Path(__file__).parent / "recordings" / "count.flac"
DEBIAN = Path("/usr/share/sounds/alsa")  # of alsa-utils: "front center" and others
#: Windows of 20 ms that are loud begin and end within this of the sound itself.
WINDOW = 0.02


def _words(path: Path, loud: int) -> list[tuple[float, float, Any]]:
    """Beginning and end in seconds of each word, and the samples in front of where it is known."""
    text = (QUERIES / "xstream" / "words.cql").read_text("utf-8")
    with cql.connect(spark=False) as session:
        session.create_stream("audio", path)
        session.sql(f"CREATE CONSTANT gamma = {loud}")
        query: Any = session.sql(text)
        rows = query.to_arrow().to_pylist()
    return [(r["start"].timestamp(), r["stop"].timestamp(), np.array(r["ch0"])) for r in rows]


def _sounds(path: Path, above: int, silence: float) -> list[tuple[float, float]]:
    """Beginnings and ends of what lies between silences of that many seconds."""
    samples, rate = soundfile.read(path, dtype="int16")
    at = np.flatnonzero(np.abs(samples.astype(int)) > above)
    breaks = np.flatnonzero(np.diff(at) > silence * rate)
    firsts, lasts = np.r_[at[0], at[breaks + 1]], np.r_[at[breaks], at[-1]]
    return list(zip((firsts / rate).tolist(), (lasts / rate).tolist(), strict=True))


def test_a_spoken_count_from_one_to_five_is_cut_into_words() -> None:
    words, sounds = _words(COUNT, 60), _sounds(COUNT, 60, 0.1)
    assert len(words) == len(sounds) == 5
    samples, rate = soundfile.read(COUNT, dtype="int16")
    assert rate == 44_100
    for (start, stop, heard), (first, last) in zip(words, sounds, strict=True):
        assert start == pytest.approx(first, abs=WINDOW)
        assert stop == pytest.approx(last, abs=WINDOW)
        known = round((stop - WINDOW + 0.1) * rate)
        np.testing.assert_array_equal(heard, samples[max(0, known - len(heard)) : known])


def test_a_sound_without_its_silence() -> None:
    text = (QUERIES / "xstream" / "silencefilter_concat.cql").read_text("utf-8")
    samples, _ = soundfile.read(COUNT, dtype="int16")
    windows = samples[: len(samples) // 4096 * 4096].reshape(-1, 4096)
    kept = windows[windows.std(axis=1, ddof=1) > 500].ravel()
    with cql.connect(spark=False) as session:
        session.create_stream("audio", COUNT)
        session.sql("CREATE CONSTANT gamma = 500")
        query: Any = session.sql(text)
        found = query.to_arrow()["ch0"].combine_chunks().values.to_numpy()
    assert 0.4 < len(kept) / len(samples) < 0.8
    np.testing.assert_array_equal(found, kept)


@pytest.mark.skipif(not DEBIAN.exists(), reason="alsa-utils of Debian is not installed")
def test_sounds_of_a_debian_package() -> None:
    for path in sorted(DEBIAN.glob("*_*.wav")):  # each says two words
        samples, rate = soundfile.read(path, dtype="int16")
        with cql.connect(spark=False) as session:
            session.create_stream("sound", path)
            query = session.sql("SELECT count(*) AS n, sum(ch0) AS s, max(ch0) AS m FROM sound")
            total = samples.astype(int).sum()
            assert query.to_arrow().to_pylist() == [
                {"n": len(samples), "s": total, "m": samples.max()}
            ]
            level = session.sql("SELECT rms(ch0) AS level FROM sound [ROWS 480 SLIDE 480]")
            found = level.to_arrow()["level"].to_numpy()
        whole = samples[: len(samples) // 480 * 480].reshape(-1, 480).astype(float)
        assert rate == 48_000
        np.testing.assert_allclose(found, np.sqrt((whole**2).mean(axis=1)))
