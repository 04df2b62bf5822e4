"""Whether a sound file is whole, from its container: of a WAV, AIFF or Ogg file that was cut short,
libsndfile reads what is left without an error."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import IO, Literal

from cql.catalog.files.reading import guarded

#: Sizes that writers which cannot go back write for samples whose number they do not know.
_OPEN_ENDED = (range(0x7FFF0000, 0x80000001), range(0xFFFFFF00, 0x100000000))
#: Bytes at the end of an Ogg file with the head of its last page: a page has at most 65,307 bytes.
_LAST_PAGES = 1 << 17
_LAST_OF_STREAM = 4


def missing_bytes(path: str) -> int | None:
    """How many bytes of the samples of a WAV or AIFF file are missing; 0 for other files. None:
    its writer has not noted their number (yet)."""
    with guarded(path), open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        form = file.read(12)
        order: Literal["big", "little"] = "big" if form[:4] in (b"FORM", b"RIFX") else "little"
        if form[:4] not in (b"RIFF", b"RF64", b"RIFX", b"FORM"):
            return 0
        long = None
        for name, start, length in _chunks(file, order):
            if name == b"ds64":
                long = int.from_bytes(file.read(16)[8:], "little")
            elif name in (b"data", b"SSND"):
                if length == 0xFFFFFFFF and long is not None:
                    length = long
                short = start + length - size
                if short > 0 and any(length in sizes for sizes in _OPEN_ENDED):
                    return None
                begun = 8 + int.from_bytes(form[4:8], order) <= start < size
                return None if length == 0 and begun else max(0, short)
    return 0


def is_empty(path: str) -> bool:
    """Whether a FLAC file has no samples: it ends behind its metadata."""
    with guarded(path), open(path, "rb") as file:
        at, last = 4, False
        while not last:
            head = _at(file, at, 4)
            if len(head) < 4:
                return False
            last, at = bool(head[0] & 0x80), at + 4 + int.from_bytes(head[1:], "big")
        return at == os.fstat(file.fileno()).st_size


def _chunks(file: IO[bytes], order: Literal["big", "little"]) -> Iterator[tuple[bytes, int, int]]:
    """The name, place and length of each chunk; the file stands at the place."""
    start = 12
    while len(head := _at(file, start, 8)) == 8:
        length = int.from_bytes(head[4:], order)
        yield head[:4], start + 8, length
        start += 8 + length + length % 2


def _at(file: IO[bytes], place: int, count: int) -> bytes:
    file.seek(place)
    return file.read(count)


def ends(path: str) -> bool:
    """Whether the last page of an Ogg file is there, and the last of its stream."""
    with guarded(path), open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        tail = _at(file, max(0, size - _LAST_PAGES), _LAST_PAGES)
    at = tail.rfind(b"OggS")
    page = tail[at:]
    if at < 0 or len(page) < 27 or not page[5] & _LAST_OF_STREAM:
        return False
    parts = page[27 : 27 + page[26]]
    return len(parts) == page[26] and len(page) >= 27 + page[26] + sum(parts)
