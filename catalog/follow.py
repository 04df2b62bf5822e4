"""Files that grow: a folder read in the order of its names, for ever (option ``follow 'true'``).

The last file in order is the open one. Of a CSV or JSON-lines file, complete lines are read as they
are appended; Parquet and Arrow files are taken whole, so their writers must rename them into place.
When a later file is there and the open one is read to its end, it is left for good (its last line
counts even without a line end). A file that appears before the ones already read, one that grows
after it was left, and one that shrinks are errors: their rows could not be replayed in this order.

Offsets are ``{"row": n, "file": path, "in_file": rows of it, "byte": b, "line": l, "skip": k}``:
reading goes on k rows after byte b of that file, where line l begins (``byte`` is 0 for files that
are taken whole). Rows that cannot be read count like others.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cql.catalog.blocks import BlockReader, End, Piece, row_of
from cql.catalog.clock import Clock, SystemClock
from cql.catalog.convert import Shaper, pick
from cql.catalog.csv_lines import CsvFormat, first_line
from cql.catalog.file_list import DataFile
from cql.catalog.files import FileSource
from cql.catalog.options import Options
from cql.catalog.reading import guarded, too_short
from cql.catalog.rows import Rows, joined
from cql.catalog.text import CHUNK, TextFormat, Wanted, lines_in
from cql.errors import CatalogError
from cql.executor.protocols import Offset, Reader
from cql.model import Field, Schema
from cql.planner.catalog import Statistics

FOLLOW_OPTIONS = ("follow", "poll")


class FollowSource:
    """See the module. Options: those of FileSource, and poll ('500 ms'), how long to wait before
    looking again."""

    bounded = False

    def __init__(
        self,
        options: Mapping[str, Any],
        *,
        what: str,
        format: str | None = None,
        declared: Schema | None = None,
        clock: Clock | None = None,
    ) -> None:
        own = Options({k: v for k, v in options.items() if k.lower() in FOLLOW_OPTIONS}, what)
        own.flag("follow")
        self._poll = own.duration("poll", 500_000) / 1e6
        rest = {k: v for k, v in options.items() if k.lower() not in FOLLOW_OPTIONS}
        self._files = FileSource(rest, what=what, format=format, declared=declared)
        if isinstance(self._files.format, CsvFormat) and self._files.format.multiline:
            raise CatalogError(
                f"{what}: follow and multiline exclude each other",
                hint="a value with line ends cannot be told from an incomplete line",
            )
        if isinstance(self._files.format, TextFormat) and not self._files.format.ends_lines:
            raise CatalogError(
                f"{what}: line ends of {self._files.format.encoding} are several bytes: such files "
                "cannot be followed",
                hint="write them in UTF-8, or read the folder without follow",
            )
        packed = [f.path for f in self._files.files() if f.path.endswith((".gz", ".bz2", ".zst"))]
        if packed:
            raise CatalogError(
                f"{what}: {packed[0]} is compressed, and cannot be followed",
                hint="unpack it, or read the folder without follow",
            )
        self._what = what
        self._clock = clock or SystemClock()
        self.schema = self._files.schema
        self.unsupported = self._files.unsupported

    def statistics(self) -> Statistics:
        return Statistics()

    def open(self, columns: Sequence[str], offset: Offset | None = None) -> Reader:
        fields = pick(self.schema, columns, self._what)
        row = row_of(offset, self._what)
        feed = _FollowFeed(self._files, fields, self._what, self._clock, self._poll, offset)
        return BlockReader(feed, Shaper(fields), row=row, offset=offset or {"row": 0})


@dataclass(frozen=True, slots=True)
class _Place:
    """Where reading goes on: ``rows`` of the file are read, ``skip`` of them after ``byte``."""

    file: DataFile
    rows: int = 0
    byte: int = 0
    skip: int = 0
    line: int = 1  # number of the line that begins at ``byte``


class _FollowFeed:
    def __init__(
        self,
        source: FileSource,
        fields: Sequence[Field],
        what: str,
        clock: Clock,
        poll: float,
        offset: Offset | None,
    ) -> None:
        self._source = source
        self._fields = fields
        self._own = source.wanted(fields)
        self._held: list[Field] = []  # those of them that the open file has
        self._what = what
        self._clock = clock
        self._poll = poll
        self._row = row_of(offset, what)
        self._known: set[str] = set()
        self._place: _Place | None = None
        self._left: tuple[str, int] | None = None
        self._whole: Iterator[Rows] | None = None
        self._ready: deque[Piece] = deque()
        if offset is not None and "file" in offset:
            self._place = self._resume(offset)

    def _resume(self, offset: Offset) -> _Place:
        path = str(offset["file"])
        files = self._source.files()
        self._known = {f.path for f in files if f.path <= path}
        for file in files:
            if file.path == path:
                numbers = (int(offset[k]) for k in ("in_file", "byte", "skip", "line"))
                return _Place(file, *numbers)
        raise CatalogError(
            f"{self._what}: file {path}, where the query stood, is gone",
            hint="put it back, or start the query anew",
        )

    def take(self, limit: int, timeout: float | None) -> Piece | End | None:
        deadline = None if timeout is None else self._clock.now() + timeout
        while not self._ready:
            if self._advance():
                continue
            now = self._clock.now()
            if deadline is not None and now >= deadline:
                return None
            wait = self._poll if deadline is None else min(self._poll, deadline - now)
            self._clock.sleep(wait)
        return self._ready.popleft()

    def close(self) -> None:
        self._ready.clear()
        self._whole = None

    def _advance(self) -> bool:
        """One step: rows made ready, or a file begun or left. False when there is nothing new."""
        if self._place is None:
            later = self._later(None)
            if later is None:
                return False
            self._begin(later)
            return True
        if isinstance(self._source.format, TextFormat):
            if self._read_lines(self._place, self._source.format, final=False):
                return True
            later = self._later(self._place.file)
            if later is None:
                return False
            # Only now is it known that nobody writes here any more: what came meanwhile counts.
            if self._read_lines(self._place, self._source.format, final=True):
                return True
        else:
            if self._read_whole(self._place):
                return True
            later = self._later(self._place.file)
            if later is None:
                return False
        self._left = (self._place.file.path, _size(self._place.file.path))
        self._begin(later)
        return True

    def _begin(self, file: DataFile) -> None:
        self._known.add(file.path)
        self._place = _Place(file)
        self._whole = None

    def _later(self, file: DataFile | None) -> DataFile | None:
        """The file to read after ``file``; refuses files that would have had to come before."""
        files = self._source.files()
        for other in files:
            if file is not None and other.path < file.path and other.path not in self._known:
                raise CatalogError(
                    f"{self._what}: file {other.path} appeared after {file.path} was begun",
                    hint="new files must come later in the order of names",
                )
        if self._left is not None and _size(self._left[0], gone=self._left[1]) != self._left[1]:
            raise CatalogError(
                f"{self._what}: file {self._left[0]} changed after a later file was begun",
                hint="finish a file before the next one appears",
            )
        return next((f for f in files if file is None or f.path > file.path), None)

    def _read_whole(self, place: _Place) -> bool:
        if self._whole is None:
            self._held, names = self._source.columns_in(place.file, self._own)
            self._whole = self._source.format.read(place.file.path, self._held, names, place.rows)
        rows = next(self._whole, None)
        if rows is None:
            return False
        self._add(place, rows, None)
        return True

    def _read_lines(self, place: _Place, text: TextFormat, *, final: bool) -> bool:
        path = place.file.path
        start, line = place.byte, place.line
        if start == 0 and isinstance(text, CsvFormat) and text.header:
            with guarded(path), open(path, "rb") as file:
                header = first_line(file, False, "")
            if not header.endswith(b"\n"):
                return False
            start, line = len(header), 2
        data = self._lines_from(path, start, final)
        if not data:
            return False
        self._held, names = self._source.columns_in(place.file, self._own)
        wanted = Wanted(path, self._held, names, text.head(path))
        parts = list(text.rows(text.decoded(data, path, start), line, wanted))
        found = joined(self._held, parts) if parts else Rows(text.parse(b"", wanted))
        if found.count < place.skip:
            raise too_short(path, place.rows - place.skip + found.count, place.rows)
        end = (start + len(data), line + lines_in(data))
        self._add(replace(place, byte=start, line=line), found.slice(place.skip), end)
        return True

    def _lines_from(self, path: str, start: int, final: bool) -> bytes:
        """Complete lines from byte ``start`` on, about CHUNK bytes; with ``final`` also what
        stands after the last line end."""
        with guarded(path), open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size < start:
                raise CatalogError(
                    f"{self._what}: file {path} was cut short below byte {start}, already read",
                    hint="append to files, or write new ones",
                )
            file.seek(start)
            data = b""
            while more := file.read(CHUNK):
                data += more
                if b"\n" in more:
                    return data[: data.rindex(b"\n") + 1]
            return data if final else b""

    def _add(self, place: _Place, rows: Rows, end: tuple[int, int] | None) -> None:
        """Rows that follow ``place``; ``end`` is the byte after them and the number of its line,
        None for whole files."""
        raw = self._source.complete(place.file, self._fields, self._held, rows)
        row, count, path = self._row, raw.count, place.file.path

        def after(k: int) -> Offset:
            at = {"row": row + k, "file": path, "in_file": place.rows + k}
            if end is not None and k == count:
                return {**at, "byte": end[0], "line": end[1], "skip": 0}
            skip = 0 if end is None else place.skip + k
            return {**at, "byte": place.byte, "line": place.line, "skip": skip}

        if count:
            self._ready.append(Piece(raw, after, f"file {path}", place.rows))
        self._row += count
        byte, line = (place.byte, place.line) if end is None else end
        self._place = _Place(place.file, place.rows + count, byte, 0, line)


def _size(path: str, gone: int = -1) -> int:
    """Bytes of the file; ``gone`` if it is no longer there (files that were read may go)."""
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return gone
