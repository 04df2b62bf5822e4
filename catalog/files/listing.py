"""The files that a path stands for, and the partition values in the names of their folders.

A path may be a file, a folder (with all its files, also in sub-folders), a glob pattern (``*``,
``?``, ``[...]``, and ``**`` for any number of folders), or a list of these. Files and folders whose
name starts with ``_`` or ``.`` are hidden, as in Hive and Spark. Links to files are files. Links to
folders are followed where the path itself or a pattern other than ``**`` leads through them; inside
a folder and under ``**`` they are not, because they may lead back to a folder above them.

Only regular files are read: a FIFO, a socket or a device would block its reader.
"""

from __future__ import annotations

import fnmatch
import glob
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from cql.base.model import Field
from cql.base.types import BIGINT, INT, STRING
from cql.errors import CatalogError

_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_KINDS = (
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file, and the partition values in the names of its folders (text, None for NULL)."""

    path: str
    partitions: Mapping[str, str | None]


def list_files(paths: Sequence[str], what: str) -> list[DataFile]:
    """All files of the paths, sorted by path. Raises CatalogError for a path that does not exist, a
    folder that cannot be listed, and a path that is neither a file nor a folder."""
    found: dict[str, DataFile] = {}
    for path in paths:
        if "://" in path:
            raise CatalogError(
                f"{what}: {path} is not a local path", hint="mount it, or copy the files here"
            )
        for file in _expand(os.path.expanduser(path), what):
            found.setdefault(file.path, file)
    return sorted(found.values(), key=lambda f: f.path)


def _expand(path: str, what: str) -> Iterator[DataFile]:
    if os.path.isdir(path):
        yield from _walk(path, path, what)
    elif os.path.lexists(path) and _is_file(path, what):  # false if it vanishes meanwhile
        yield DataFile(path, {})
    elif glob.has_magic(path):
        root = os.path.dirname(path[: min(path.index(c) for c in "*?[" if c in path)])
        parts = [part for part in path[len(root) :].split(os.sep) if part]
        for match in _matches(root, parts, what):
            if os.path.isdir(match):
                yield from _walk(match, root, what)
            elif _is_file(match, what):
                yield DataFile(match, _partitions(match, root))
    else:
        raise CatalogError(
            f"{what}: there is no file or folder {path}",
            hint=f"paths are relative to {os.getcwd()}" if not os.path.isabs(path) else None,
        )


def _walk(folder: str, root: str, what: str) -> Iterator[DataFile]:
    """All files below the folder."""
    for path in _folders(folder, what):
        for name, entry in _entries(path, what):
            if not entry.is_dir():
                file = os.path.join(path, name)
                if entry.is_file() or _is_file(file, what):
                    yield DataFile(file, _partitions(file, root))


def _folders(folder: str, what: str) -> Iterator[str]:
    """The folder and all below it."""
    waiting = [folder]
    while waiting:
        path = waiting.pop()
        yield path
        below = (n for n, e in _entries(path, what) if e.is_dir(follow_symlinks=False))
        waiting += [os.path.join(path, name) for name in below]


def _matches(folder: str, parts: Sequence[str], what: str, links: bool = True) -> Iterator[str]:
    """The paths in a folder that the rest of a pattern matches, some of them twice if there are
    several ``**``. Without ``links``, links to folders are left out."""
    part, rest = parts[0], parts[1:]
    if part == "**":
        for path in _folders(folder, what):
            yield from _matches(path, rest or ["*"], what, links=False)
    elif glob.has_magic(part):
        for name, entry in _entries(folder, what):
            if fnmatch.fnmatch(name, part) and (
                links or not (entry.is_symlink() and entry.is_dir())
            ):
                path = os.path.join(folder, name)
                if not rest:
                    yield path
                elif entry.is_dir():
                    yield from _matches(path, rest, what, links)
    else:
        path = os.path.join(folder, part)
        if _hidden(part) or (not links and os.path.islink(path) and os.path.isdir(path)):
            return
        if not rest and os.path.lexists(path):
            yield path
        elif rest and os.path.isdir(path):
            yield from _matches(path, rest, what, links)


def _entries(folder: str, what: str) -> list[tuple[str, os.DirEntry[str]]]:
    """The entries of a folder that are not hidden; none if the folder does not exist."""
    try:
        with os.scandir(folder or os.curdir) as entries:
            return [(e.name, e) for e in entries if not _hidden(e.name)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise CatalogError(
            f"{what}: folder {folder or os.curdir} cannot be listed: {error.strerror}",
            hint="its owner has to grant read permission; or name its files by a pattern",
        ) from error


def _is_file(path: str, what: str) -> bool:
    """Whether a regular file is there; False if it has vanished. CatalogError for other kinds."""
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        if not os.path.islink(path):
            return False
        raise CatalogError(
            f"{what}: the link {path} leads nowhere: {error.strerror}",
            hint="remove it, or put back what it leads to",
        ) from error
    if stat.S_ISREG(mode):
        return True
    kind = next((name for test, name in _KINDS if test(mode)), "of an unknown kind")
    raise CatalogError(
        f"{what}: {path} is {kind}, and only files are read",
        hint="take it away, or name the files by a pattern, as in path 'folder/*.csv'; Python can "
        "read a pipe and give the rows: create_stream(name, generator)",
    )


def _hidden(name: str) -> bool:
    return name.startswith((".", "_")) and name not in (".", "..") and "=" not in name


def _partitions(path: str, root: str) -> dict[str, str | None]:
    parts = os.path.relpath(os.path.dirname(path) or ".", root or ".").split(os.sep)
    pairs = (part.split("=", 1) for part in parts if "=" in part)
    return {unquote(k): None if v == _NULL_PARTITION else unquote(v) for k, v in pairs}


def partition_fields(files: Sequence[DataFile], what: str) -> list[Field]:
    """The partition columns: integers if all values are, else texts (as Spark guesses them).

    Raises CatalogError for files under different partition columns."""
    names = list(files[0].partitions) if files else []
    for file in files:
        if list(file.partitions) != names:
            raise CatalogError(
                f"{what}: the folders of {file.path} name the partitions "
                f"{', '.join(file.partitions) or '(none)'}, others {', '.join(names) or '(none)'}",
                hint="all files must lie under the same levels of column=value",
            )
    fields = []
    for name in names:
        values = [v for f in files if (v := f.partitions[name]) is not None]
        numbers = [int(v) for v in values if v.removeprefix("-").isdecimal() and v.isascii()]
        whole = bool(values) and len(numbers) == len(values)
        narrow = whole and all(-(2**31) <= n < 2**31 for n in numbers)
        wide = whole and all(-(2**63) <= n < 2**63 for n in numbers)
        fields.append(Field(name, INT if narrow else BIGINT if wide else STRING))
    return fields
