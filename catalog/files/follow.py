"""Files that grow: a folder read in the order of its names, without end (option ``follow 'true'``).

The last file in order is the open one. Complete lines of a CSV or JSON-lines file are read as they
are appended; a Parquet or Arrow file is read as a whole, once it is complete. When a later file
exists and the open file is read to its end, reading leaves the open file for good (its last line
counts even without a line end).

A file is identified by its inode and by a fingerprint of its head and of the bytes before the read
position. Errors are: a file that is overwritten, replaced or cut short; a file that was read
already and has been renamed; a new file that comes before files already read; and a file that
changes after it was left. The rows of the last two could not be replayed in this order.

Offsets are ``{"row": n, "file": path, "in_file": rows of it, "byte": b, "line": l, "skip": k,
"print": fingerprint}``: reading goes on k rows after byte b of that file, where line l begins
(``byte`` is the length of a file that is read as a whole). Rows that cannot be read count as well.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import IO, Any

from cql.base.model import Field, Schema
from cql.catalog.blocks import BlockReader, End, Piece, row_of
from cql.catalog.convert import Shaper, pick
from cql.catalog.files.csv_lines import CsvFormat, first_line
from cql.catalog.files.identity import EMPTY, LeftFiles, check_read, fingerprint, replaced
from cql.catalog.files.listing import DataFile
from cql.catalog.files.reading import guarded, too_short
from cql.catalog.files.source import FileSource
from cql.catalog.files.text import CHUNK, TextFormat, Wanted, lines_in
from cql.catalog.memory.clock import Clock, SystemClock
from cql.catalog.memory.rows import Rows, joined
from cql.catalog.options import Options
from cql.catalog.signals.sampled import SampledFormat
from cql.errors import CatalogError
from cql.executor.protocols import Offset, Reader
from cql.planner.nodes.catalog import Statistics

FOLLOW_OPTIONS = ("follow", "poll")
#: Rows after which each declared column should have appeared.
SEEN = 1_000
#: Seconds to wait for an incomplete file that does not grow although a later file exists.
PATIENCE = 60


class FollowSource:
    """See the module. Options: those of FileSource, and poll ('500 ms'), the time to wait before
    looking again."""

    bounded = False
    replayable = True

    def __init__(
        self,
        options: Mapping[str, Any],
        *,
        what: str,
        format: str | None = None,
        declared: Schema | None = None,
        clock: Clock | None = None,
        envelopes: bool = False,
    ) -> None:
        own = Options({k: v for k, v in options.items() if k.lower() in FOLLOW_OPTIONS}, what)
        own.flag("follow")
        self._poll = own.duration("poll", 500_000) / 1e6
        rest = {k: v for k, v in options.items() if k.lower() not in FOLLOW_OPTIONS}
        self._files = FileSource(
            rest, what=what, format=format, declared=declared, growing=True, envelopes=envelopes
        )
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

    @property
    def samples(self) -> SampledFormat | None:
        return self._files.samples

    def statistics(self) -> Statistics:
        return Statistics()

    def open(self, columns: Sequence[str], offset: Offset | None = None) -> Reader:
        fields = pick(self.schema, columns, self._what)
        row = row_of(offset, self._what)
        feed = _FollowFeed(self._files, fields, self._what, self._clock, self._poll, offset)
        reader = BlockReader(feed, Shaper(fields), row=row, offset=offset or {"row": 0})
        reader.notices = feed.notices
        return reader


@dataclass(frozen=True, slots=True)
class _Place:
    """The read position: ``rows`` rows of the file are read, ``skip`` of them after ``byte``."""

    file: DataFile
    rows: int = 0
    byte: int = 0
    skip: int = 0
    line: int = 1  # number of the line that begins at ``byte``
    print: str = EMPTY  # fingerprint of the first ``byte`` bytes


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
        self._held: list[Field] = []  # the fields that the open file has
        self._what = what
        self._clock = clock
        self._poll = poll
        self._row = row_of(offset, what)
        self._known: set[str] = set()
        self._left = LeftFiles(what)
        self._place: _Place | None = None
        self._whole: Iterator[Rows] | None = None
        self._growth: tuple[int, float] = (-1, 0.0)  # size of an incomplete file, and since when
        self._ready: deque[Piece] = deque()
        #: Notices on columns that the first file with rows, or the first SEEN rows, did not have.
        self.notices: list[str] = []
        self._looked = offset is not None
        if offset is not None and "file" in offset:
            self._place = self._resume(offset)

    def _resume(self, offset: Offset) -> _Place:
        path = str(offset["file"])
        files = self._source.files()
        self._known = {f.path for f in files if f.path <= path}
        for file in files:
            if file.path == path:
                rows, byte, skip, line = (
                    int(offset[k]) for k in ("in_file", "byte", "skip", "line")
                )
                place = _Place(file, rows, byte, skip, line, str(offset["print"]))
                with guarded(path), open(path, "rb") as opened:
                    check_read(self._what, path, opened, place.byte, place.print)
                return place
            self._left.add(file.path)
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
        """One step: makes rows ready, or begins or leaves a file. False if there is nothing new."""
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
            # The later file shows that writing here has ended; rows that came meanwhile count.
            if self._read_lines(self._place, self._source.format, final=True):
                return True
        else:
            if self._whole is None and not self._complete(self._place.file):
                return False
            if self._read_whole(self._place):
                return True
            later = self._later(self._place.file)
            if later is None:
                return False
        self._left.add(self._place.file.path)
        self._look()
        self._begin(later)
        return True

    def _look(self) -> None:
        if not self._looked and self._row:
            self._looked = True
            self.notices += self._source.unmet(self._own)

    def _begin(self, file: DataFile) -> None:
        self._left.refuse_renamed(file.path)
        self._known.add(file.path)
        self._place = _Place(file)
        self._whole = None
        self._growth = (-1, 0.0)

    def _complete(self, file: DataFile) -> bool:
        """Whether a file that is read as a whole has been written to its end. Reading waits as long
        as the file grows or is the last one, then PATIENCE seconds more."""
        with guarded(file.path):
            if self._source.format.complete(file.path):
                return True
            size = os.stat(file.path).st_size
        now = self._clock.now()
        if size != self._growth[0]:
            self._growth = (size, now)
        if self._later(file) is not None and now - self._growth[1] > PATIENCE:
            raise CatalogError(
                f"{self._what}: file {file.path} is not complete, and has not grown for "
                f"{PATIENCE} seconds while a later file is there",
                hint="finish it or take it away; better rename files into the folder when complete",
            )
        return False

    def _later(self, file: DataFile | None) -> DataFile | None:
        """The file to read after ``file``; refuses new files that come before ``file``."""
        files = self._source.files()
        for other in files:
            if file is not None and other.path < file.path and other.path not in self._known:
                raise CatalogError(
                    f"{self._what}: file {other.path} appeared after {file.path} was begun",
                    hint="new files must come later in the order of names",
                )
        self._left.check()
        return next((f for f in files if file is None or f.path > file.path), None)

    def _read_whole(self, place: _Place) -> bool:
        path = place.file.path
        if self._whole is None:
            with guarded(path), open(path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                if place.print != EMPTY and size != place.byte:
                    raise replaced(self._what, path)
                place = replace(place, byte=size, print=fingerprint(file, size))
            self._held, names = self._source.columns_in(place.file, self._own)
            self._whole = self._source.format.read(path, self._held, names, place.rows)
            self._place = place
        rows = next(self._whole, None)
        if rows is None:
            with guarded(path), open(path, "rb") as file:
                if os.fstat(file.fileno()).st_size != place.byte:
                    raise replaced(self._what, path)
                check_read(self._what, path, file, place.byte, place.print)
            self.notices += self._source.told()
            return False
        self._add(place, rows, None)
        return True

    def _read_lines(self, place: _Place, text: TextFormat, *, final: bool) -> bool:
        path = place.file.path
        with guarded(path), open(path, "rb") as file:
            check_read(self._what, path, file, place.byte, place.print)
            start, line = place.byte, place.line
            if start == 0 and isinstance(text, CsvFormat) and text.header:
                file.seek(0)
                header = first_line(file, False, "")
                if not header.endswith(b"\n"):
                    return False
                start, line = len(header), 2
            data = _lines(file, start, final)
            if not data:
                return False
            end = start + len(data)
            mark = fingerprint(file, end)
        self._held, names = self._source.columns_in(place.file, self._own)
        wanted = Wanted(path, self._held, names, text.head(path))
        parts = list(text.rows(text.decoded(data, path, start), line, wanted))
        found = joined(self._held, parts) if parts else Rows(text.parse(b"", wanted))
        if found.count < place.skip:
            raise too_short(path, place.rows - place.skip + found.count, place.rows)
        begun = place
        if start != place.byte:  # the header belongs to the part of the file that was read
            begun = replace(place, byte=start, line=line, print=_print_of(path, start))
        after = replace(begun, byte=end, line=line + lines_in(data), print=mark)
        self._add(begun, found.slice(place.skip), after)
        return True

    def _add(self, place: _Place, rows: Rows, end: _Place | None) -> None:
        """Adds rows that follow ``place``; ``end`` is the place after them, None for files that are
        read as a whole."""
        raw = self._source.complete(place.file, self._fields, self._held, rows)
        row, count, path = self._row, raw.count, place.file.path

        def after(k: int) -> Offset:
            at, skip = place, 0 if end is None else place.skip + k
            if end is not None and k == count:
                at, skip = end, 0
            return {
                "row": row + k,
                "file": path,
                "in_file": place.rows + k,
                "byte": at.byte,
                "line": at.line,
                "skip": skip,
                "print": at.print,
            }

        if count:
            self._ready.append(Piece(raw, after, f"file {path}", place.rows))
        self._row += count
        if self._row >= SEEN:
            self._look()
        self._place = replace(end or place, rows=place.rows + count, skip=0)


def _lines(file: IO[bytes], start: int, final: bool) -> bytes:
    """Complete lines from byte ``start`` on, about CHUNK bytes; with ``final`` also the bytes after
    the last line end."""
    file.seek(start)
    data = b""
    while more := file.read(CHUNK):
        data += more
        if b"\n" in more:
            return data[: data.rindex(b"\n") + 1]
    return data if final else b""


def _print_of(path: str, end: int) -> str:
    with guarded(path), open(path, "rb") as file:
        return fingerprint(file, end)
