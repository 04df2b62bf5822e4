"""Sound files (WAV, FLAC, Ogg, AIFF): a row is a sample of each channel, in the columns ch0, ch1, …

Whole numbers are those of the file, never scaled: 8 bits are -128 to 127 (a file may store them
without a sign, around 128), 24 bits are -8388608 to 8388607.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from cql.base.model import Field
from cql.catalog.files.reading import guarded, too_short
from cql.catalog.memory.rows import Rows
from cql.catalog.signals.sampled import Header, SampledFormat
from cql.catalog.signals.sound_length import ends, is_empty, missing_bytes
from cql.errors import CatalogError

#: libsndfile's number of samples of a FLAC file that does not tell it.
_UNKNOWN = 2**63 - 1
#: Samples of all channels together that are decoded at a time.
PIECE = 1 << 22
#: The least number of rows of a piece, however many channels there are.
LEAST_ROWS = 1 << 12


@dataclass(frozen=True, slots=True)
class _Coding:
    """How samples are stored. ``dtype`` is the type in which libsndfile gives them, ``shift`` the
    number of bits by which it scales them up. ``exact``: decoding from any place gives the samples
    that decoding from the beginning gives."""

    dtype: str
    shift: int = 0
    exact: bool = True


_CODINGS = {
    "PCM_S8": _Coding("int16", 8),
    "PCM_U8": _Coding("int16", 8),
    "PCM_16": _Coding("int16"),
    "PCM_24": _Coding("int32", 8),
    "PCM_32": _Coding("int32"),
    "FLOAT": _Coding("float32"),
    "DOUBLE": _Coding("float64"),
    "ULAW": _Coding("int16"),
    "ALAW": _Coding("int16"),
    "IMA_ADPCM": _Coding("int16", exact=False),
    "MS_ADPCM": _Coding("int16", exact=False),
    "VORBIS": _Coding("float32", exact=False),
    "OPUS": _Coding("float32", exact=False),
}
#: libsndfile's names of the containers of each format.
_CONTAINERS = {
    "wav": ("WAV", "WAVEX", "RF64"),
    "flac": ("FLAC",),
    "ogg": ("OGG",),
    "aiff": ("AIFF",),
}


class SoundFormat(SampledFormat):
    """``name`` is wav, flac, ogg or aiff. No column has NULLs."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def header(self, path: str) -> Header:
        with self._open(path) as (file, coding):
            if self._frames(file, path) == _UNKNOWN:
                raise CatalogError(
                    f"file {path} does not tell how many samples it has: its writer did not"
                    " complete it",
                    hint="write it again, into a file: ffmpeg -i old.flac new.flac",
                )
            missing = missing_bytes(path)
            if missing or (self.name == "ogg" and not ends(path)):
                what = f" by {missing} bytes" if missing else ", its last page is missing"
                raise CatalogError(
                    f"file {path} is cut short{what}", hint="restore it or take it away"
                )
            kind = pa.from_numpy_dtype(np.dtype(coding.dtype))
            names = [f"ch{k}" for k in range(file.channels)]
            columns = pa.schema([pa.field(n, kind, nullable=False) for n in names])
            return Header(float(file.samplerate), columns)

    def complete(self, path: str) -> bool:
        _library()
        try:
            self.header(path)
            with self._open(path) as (file, coding), _decoded(path):
                if missing_bytes(path) is None:
                    return False
                frames = self._frames(file, path)
                if not coding.exact or not frames:
                    return True
                file.seek(frames - 1)
                return len(file.read(1, dtype=coding.dtype)) == 1
        except CatalogError:
            return False

    def count(self, path: str) -> tuple[int, Mapping[str, int]] | None:
        with self._open(path) as (file, _):
            return self._frames(file, path), {f"ch{k}": 0 for k in range(file.channels)}

    def read(
        self, path: str, fields: Sequence[Field], names: Sequence[str], skip: int
    ) -> Iterator[Rows]:
        del fields
        channels = [int(name.removeprefix("ch")) for name in names]
        with self._open(path) as (file, coding):
            frames = self._frames(file, path)
            if skip > frames:
                raise too_short(path, frames, skip)
            step = max(LEAST_ROWS, PIECE // file.channels)
            at = skip if coding.exact else 0
            if at:
                with _decoded(path, f", sample {at},"):
                    file.seek(at)
            while at < frames:
                first, wanted = at, min(step, frames - at)
                with _decoded(path, f", sample {at},"):
                    samples = file.read(wanted, dtype=coding.dtype, always_2d=True)
                    if len(samples) < wanted:
                        raise ValueError(f"it ends after {at + len(samples)} of {frames} samples")
                at += wanted
                if at > skip:
                    yield _rows(samples[max(0, skip - first) :], channels, names, coding.shift)

    @staticmethod
    def _frames(file: Any, path: str) -> int:
        """The number of samples of each channel. A FLAC file without any does not tell it."""
        empty = file.frames == _UNKNOWN and file.format == "FLAC" and is_empty(path)
        return 0 if empty else int(file.frames)

    @contextlib.contextmanager
    def _open(self, path: str) -> Iterator[tuple[Any, _Coding]]:
        """The file, and how its samples are stored. Raises CatalogError for other formats."""
        library = _library()
        with guarded(path), open(path, "rb"):
            pass  # libsndfile's errors do not tell a missing file from a damaged one
        with contextlib.ExitStack() as stack:
            with _decoded(path):
                file = stack.enter_context(library.SoundFile(path))
            if file.format not in _CONTAINERS[self.name]:
                known = (k for k, names in _CONTAINERS.items() if file.format in names)
                other = next(known, None)
                raise CatalogError(
                    f"file {path} is a file of format {file.format.lower()} by its content, and"
                    f" not of {self.name}",
                    hint="convert it to WAV or FLAC" if other is None else f"format '{other}'",
                )
            coding = _CODINGS.get(file.subtype)
            if coding is None:
                raise CatalogError(
                    f"file {path} stores samples as {file.subtype}, which is not supported",
                    hint="convert it to WAV or FLAC: ffmpeg -i old.wav new.flac",
                )
            yield file, coding


def _rows(samples: Any, channels: Sequence[int], names: Sequence[str], shift: int) -> Rows:
    """The chosen channels of ``samples``, of which libsndfile gives a row for each time."""
    arrays = []
    for k in channels:
        channel = np.ascontiguousarray(samples[:, k])
        arrays.append(pa.array(channel >> shift if shift else channel))
    return Rows(pa.RecordBatch.from_arrays(arrays, names=list(names)))


def _library() -> Any:
    """The library soundfile. Raises CatalogError if it is not installed."""
    try:
        import soundfile
    except (ImportError, OSError) as error:  # OSError: its libsndfile is missing
        raise CatalogError(
            "sound files are read by the library soundfile, which cannot be loaded: "
            + str(error).split("\n", 1)[0],
            hint="pip install 'cql-streams[sound]'",
        ) from error
    return soundfile


@contextlib.contextmanager
def _decoded(path: str, place: str = "") -> Iterator[None]:
    """Turns errors of libsndfile into a CatalogError that names the file."""
    with guarded(path, place):
        try:
            yield
        except _library().SoundFileError as error:
            text = getattr(error, "error_string", "") or str(error)
            raise ValueError(text.removeprefix("Error : ").strip()) from error
