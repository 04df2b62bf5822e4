"""Whether a file is still the one that was read: log rotation, overwriting, replacement.

A path alone does not identify a file: a log is renamed and made anew, a file is overwritten, or
another file is renamed over it. The volume and the inode identify a renamed file. A fingerprint of
the head and of the bytes before the read position shows that a file was overwritten (a new file may
get the inode of a deleted one).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

from cql.catalog.files.reading import guarded
from cql.errors import CatalogError

#: Bytes that a fingerprint covers, at the head and before the read position.
HEAD, TAIL = 4096, 1024
#: Number of deleted files that are remembered, because they may come back under another name.
REMEMBERED = 1_000


def fingerprint(file: IO[bytes], end: int) -> str:
    """Fingerprint of the first ``end`` bytes of a file."""
    file.seek(0)
    head = file.read(min(HEAD, end))
    start = max(0, end - TAIL)
    file.seek(start)
    return _digest(head, file.read(end - start))


def _digest(head: bytes, tail: bytes) -> str:
    return hashlib.blake2b(head + tail, digest_size=12).hexdigest()


#: The fingerprint of no bytes.
EMPTY = _digest(b"", b"")


def check_read(what: str, path: str, file: IO[bytes], end: int, mark: str) -> None:
    """Raises CatalogError if ``mark`` is not the fingerprint of the first ``end`` bytes."""
    if os.fstat(file.fileno()).st_size < end:
        raise CatalogError(
            f"{what}: file {path} was cut short below byte {end}, already read",
            hint="append to files, or write new ones",
        )
    if fingerprint(file, end) != mark:
        raise replaced(what, path)


def replaced(what: str, path: str) -> CatalogError:
    return CatalogError(
        f"{what}: file {path} was overwritten or replaced after it was read",
        hint="append to files, or write new ones, later in the order of names; give logs that are "
        "rotated their own names from the start",
    )


@dataclass(frozen=True, slots=True)
class _Left:
    inode: tuple[int, int]
    size: int
    modified_ns: int
    mark: str


class LeftFiles:
    """The files of a source that were read to their end; errors call the source ``what``."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._there: dict[str, _Left] = {}
        self._gone: dict[str, _Left] = {}

    def add(self, path: str) -> None:
        """Remembers the file as it is now, unless it is deleted already."""
        with contextlib.suppress(FileNotFoundError), _readable(path), open(path, "rb") as file:
            status = os.fstat(file.fileno())
            self._there[path] = _left(status, fingerprint(file, status.st_size))

    def check(self) -> None:
        """Raises CatalogError for a file that changed. A file that was read may be deleted."""
        for path, left in list(self._there.items()):
            try:
                status = os.stat(path)
            except FileNotFoundError:
                self._gone[path] = self._there.pop(path)
                while len(self._gone) > REMEMBERED:
                    del self._gone[next(iter(self._gone))]
                continue
            if _left(status, left.mark) == left:
                continue
            with guarded(path), open(path, "rb") as file:
                same = status.st_size == left.size and fingerprint(file, left.size) == left.mark
            if not same:
                raise CatalogError(
                    f"{self._what}: file {path} changed after a later file was begun",
                    hint="finish a file before the next one appears",
                )
            self._there[path] = _left(status, left.mark)

    def refuse_renamed(self, path: str) -> None:
        """Raises CatalogError for a file that was read under another name."""
        with guarded(path), open(path, "rb") as file:
            status = os.fstat(file.fileno())
            inode = status.st_dev, status.st_ino
            for other, left in (*self._there.items(), *self._gone.items()):
                if left.inode == inode and left.size and fingerprint(file, left.size) == left.mark:
                    raise CatalogError(
                        f"{self._what}: file {path} is {other}, already read, under another name",
                        hint="renamed files and links would be read twice: name the files by a "
                        "pattern that leaves one of the two out",
                    )


def _left(status: os.stat_result, mark: str) -> _Left:
    return _Left((status.st_dev, status.st_ino), status.st_size, status.st_mtime_ns, mark)


@contextlib.contextmanager
def _readable(path: str) -> Iterator[None]:
    """Like ``guarded``, but lets FileNotFoundError pass."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        with guarded(path):
            raise error
