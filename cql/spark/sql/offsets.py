"""Offsets of streams inside Spark: the files of a table that a query has read, as small JSON data.

Of files that come in the order in which the query reads them, an offset has the number, the last
one, and a digest of all. Of others it has two short hashes of each file, in the order in which they
came. Spark keeps offsets in the checkpoint of a query.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from cql.catalog.spark.tables.files import DataFile, Files
from cql.errors import CatalogError

#: JSON data for the files of one table.
Read: TypeAlias = Mapping[str, Any]
#: Bytes of the hash of a path, and of the hash of what else is known of a file.
_PATH, _FACTS = 8, 4

ANEW = "start the stream with another checkpointLocation: it then reads all files"


def read_of(files: Files, *, arrival: bool) -> dict[str, Any]:
    """The offset behind ``files``, in their order. ``arrival``: later ones may lie between them in
    the order of the table."""
    made: dict[str, Any] = {"files": len(files.files)}
    if arrival:
        joined = b"".join(_path(file) + _facts(file) for file in files.files)
        return {**made, "hashes": base64.b64encode(joined).decode()}
    last = files.files[-1].path if files.files else ""
    newest = max((file.modified_ns for file in files.files), default=0)
    return {**made, "last": last, "newest": newest, "digest": files.digest}


def files_read(read: Read, listed: Files, known: Sequence[DataFile]) -> Files:
    """Of the ``listed`` files of a table those that an offset names, in its order. ``known`` are
    files that this process has listed before: messages name them.

    Raises CatalogError if a file was removed or written again, and for an offset that ``read_of``
    did not make."""
    try:
        named = _by_hashes if "hashes" in read else _by_digest
        return replace(listed, files=tuple(named(read, listed, known)))
    except (KeyError, TypeError, ValueError) as error:
        raise CatalogError(
            f"the checkpoint has an offset of table {listed.table} that cannot be read: {error}",
            hint=ANEW,
        ) from error


def _by_digest(read: Read, listed: Files, known: Sequence[DataFile]) -> Sequence[DataFile]:
    """The first files, but for those that came between them later."""
    count, last, newest = int(read["files"]), str(read["last"]), int(read["newest"])
    digest = str(read["digest"])
    first = listed.files[:count]
    if replace(listed, files=first).digest == digest:
        return first
    paths = [file.path for file in listed.files]
    until = listed.files[: paths.index(last) + 1] if last in paths else ()
    older = tuple(file for file in until if file.modified_ns <= newest)
    if replace(listed, files=older).digest == digest:
        return older
    before = known[:count]
    if replace(listed, files=tuple(before)).digest == digest:
        _raise_changed(listed, before)
    if not until:
        raise _changed(f"file {last} of {listed.table} was removed")
    for file in until:
        if file.modified_ns > newest:
            raise _changed(f"file {file.path} of {listed.table} was written again")
    gone = f"{count - len(older):,} of the {count:,} files" if len(older) < count else "files"
    raise _changed(f"{gone} of {listed.table} up to {last} were removed or written again")


def _by_hashes(read: Read, listed: Files, known: Sequence[DataFile]) -> Iterator[DataFile]:
    joined = base64.b64decode(read["hashes"], validate=True)
    if len(joined) != int(read["files"]) * (_PATH + _FACTS):
        raise ValueError("it is cut off")
    held = {_path(file): file for file in listed.files}
    for at in range(0, len(joined), _PATH + _FACTS):
        path, facts = joined[at : at + _PATH], joined[at + _PATH : at + _PATH + _FACTS]
        file = held.get(path)
        if file is None:
            name = next((f"file {f.path}" for f in known if _path(f) == path), "a file")
            raise _changed(f"{name} of {listed.table} was removed")
        if _facts(file) != facts:
            raise _changed(f"file {file.path} of {listed.table} was written again")
        yield file


def _raise_changed(listed: Files, before: Sequence[DataFile]) -> None:
    """Names the first of the files ``before`` that the listing does not have as it was."""
    held = {file.path: file for file in listed.files}
    for file in before:
        if file.path not in held:
            raise _changed(f"file {file.path} of {listed.table} was removed")
        if held[file.path] != file:
            raise _changed(f"file {file.path} of {listed.table} was written again")


def _changed(why: str) -> CatalogError:
    return CatalogError(
        f"{why}, and the stream has read it",
        hint=f"put the file back as it was, or {ANEW}",
    )


def _path(file: DataFile) -> bytes:
    return hashlib.blake2b(file.path.encode("utf-8", "surrogateescape"), digest_size=_PATH).digest()


def _facts(file: DataFile) -> bytes:
    facts = repr((file.size, file.modified_ns, file.partition)).encode()
    return hashlib.blake2b(facts, digest_size=_FACTS).digest()
