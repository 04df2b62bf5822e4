"""Whether a file is still the one that was read: log rotation, overwriting, replacement.

A path says little: a log is renamed and made anew, a file is overwritten, or another one is renamed
over it. The volume and the inode tell a file that was renamed, and a fingerprint of its head and of
what stands before the place that was read to tells one that was overwritten (the inode of a file
that is gone may come again).
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

#: Bytes that a fingerprint is made from, at the head and before the place that was read to.
HEAD, TAIL = 4096, 1024
#: Files that are gone are remembered, as they may come back under another name: so many.
REMEMBERED = 1_000


def fingerprint(file: IO[bytes], end: int) -> str:
    """Of the first ``end`` bytes of a file."""
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
    """CatalogError where the first ``end`` bytes are not those whose fingerprint is ``mark``."""
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
    """The files that were read to their end, of a source that errors call ``what``."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._there: dict[str, _Left] = {}
        self._gone: dict[str, _Left] = {}

    def add(self, path: str) -> None:
        """The file as it is now; one that is gone already is nothing to remember."""
        with contextlib.suppress(FileNotFoundError), _readable(path), open(path, "rb") as file:
            status = os.fstat(file.fileno())
            self._there[path] = _left(status, fingerprint(file, status.st_size))

    def check(self) -> None:
        """CatalogError for one that changed. Files that were read may go."""
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
        """CatalogError for a file that was read under another name."""
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
    """As ``guarded``, but for a file that is gone."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        with guarded(path):
            raise error
