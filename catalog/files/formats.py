"""File formats: how to describe, count and read one file of each, from a given row on.

A format raises only CatalogError, which names the file and, if it is known, the row. Text formats
give rows that cannot be read as bad rows.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa

from cql.base.model import Field
from cql.catalog.convert import named
from cql.catalog.files.csv_lines import CsvFormat
from cql.catalog.files.json_lines import JsonFormat
from cql.catalog.files.parquet_footer import row_groups
from cql.catalog.files.reading import guarded, skipped, too_short, trusted
from cql.catalog.memory.rows import Rows
from cql.catalog.options import Options
from cql.catalog.signals.miniseed import MiniSeedFormat
from cql.catalog.signals.sound import SoundFormat
from cql.errors import CatalogError, did_you_mean
from cql.executor.protocols import BLOCK_ROWS


class Format(Protocol):
    @property
    def name(self) -> str: ...
    def infer(self, path: str, size: int) -> pa.Schema:
        """The file's columns, none for a file without any. Text formats read its first rows, about
        ``size`` bytes; a column without a value there is of the null type."""
        ...

    def check(self, path: str) -> pa.Schema | None:
        """The columns that a file declares itself; None if only its rows could show them."""
        ...

    def read(
        self, path: str, fields: Sequence[Field], names: Sequence[str], skip: int
    ) -> Iterator[Rows]:
        """The columns ``names`` (the file's spelling), without the first ``skip`` rows; texts are
        checked. ``fields`` are the types that the columns get later. Raises CatalogError if the
        file has fewer rows."""
        ...

    def complete(self, path: str) -> bool:
        """Whether the file is written to its end, as far as its bytes tell; True for text formats,
        whose lines tell it."""
        ...

    def count(self, path: str) -> tuple[int, Mapping[str, int]] | None:
        """Rows, and NULLs by column, from metadata; None if only reading could tell them."""
        ...


class ParquetFormat:
    name = "parquet"

    def _open(self, path: str) -> Any:
        import pyarrow.parquet as pq

        return pq.ParquetFile(path, memory_map=False, coerce_int96_timestamp_unit="us")

    def infer(self, path: str, size: int = 0) -> pa.Schema:
        del size
        with guarded(path), self._open(path) as file:
            return named(file.schema_arrow)

    def check(self, path: str) -> pa.Schema | None:
        return self.infer(path)

    def complete(self, path: str) -> bool:
        head, tail = _ends(path, 4, 8)
        length = int.from_bytes(tail[:4], "little")
        return head == tail[4:] == b"PAR1" and length + 12 <= os.stat(path).st_size

    def count(self, path: str) -> tuple[int, Mapping[str, int]] | None:
        with guarded(path):
            groups = row_groups(path, columns=True)
        nulls: dict[str, int | None] = {}
        for group in groups:
            for name, more in group.nulls.items():
                before = nulls.get(name, 0)
                nulls[name] = None if before is None or more is None else before + more
        rows = sum(group.rows for group in groups)
        return rows, {k: v for k, v in nulls.items() if v is not None}

    def read(
        self, path: str, fields: Sequence[Field], names: Sequence[str], skip: int
    ) -> Iterator[Rows]:
        """Skips row groups that lie wholly before row ``skip``."""
        with contextlib.ExitStack() as stack:
            with guarded(path):
                file = stack.enter_context(self._open(path))
                lengths = [g.rows for g in row_groups(path)] if skip else []
            if skip > sum(lengths):
                raise too_short(path, sum(lengths), skip)
            for group in range(file.num_row_groups):
                if lengths and skip >= lengths[group]:
                    skip -= lengths[group]
                    continue
                yield from skipped(self._group(path, file, group, names), skip, path)
                skip = 0

    def _group(self, path: str, file: Any, group: int, names: Sequence[str]) -> Iterator[Rows]:
        place = f", row group {group},"
        with guarded(path, place):
            batches = file.iter_batches(BLOCK_ROWS, row_groups=[group], columns=list(names))
        while True:
            with guarded(path, place):
                batch = next(batches, None)
                if batch is None:
                    return
                rows = Rows(trusted(batch.select(list(names))))
            yield rows


class ArrowFormat:
    """Arrow IPC, the file and the stream form alike, memory-mapped: nothing is copied. (Cutting a
    file short while it is mapped kills the process: replace files, do not truncate them.)"""

    name = "arrow"

    def infer(self, path: str, size: int = 0) -> pa.Schema:
        del size
        with guarded(path):
            return named(self._open(path)[0])

    def check(self, path: str) -> pa.Schema | None:
        return self.infer(path)

    def complete(self, path: str) -> bool:
        """A file ends as it begins, a stream with eight bytes of their own."""
        head, tail = _ends(path, 6, 8)
        return tail[2:] == head if head == b"ARROW1" else tail == b"\xff" * 4 + bytes(4)

    def count(self, path: str) -> tuple[int, Mapping[str, int]] | None:
        return None

    def _open(self, path: str) -> tuple[pa.Schema, Any, int | None]:
        """Schema, reader, and the number of batches (None: a stream, read until its end)."""
        with open(path, "rb") as file:
            is_file = file.read(6) == b"ARROW1"
        mapped = pa.memory_map(path)
        if is_file:
            reader = pa.ipc.open_file(mapped)
            return reader.schema, reader, reader.num_record_batches
        stream = pa.ipc.open_stream(mapped)
        return stream.schema, stream, None

    def read(
        self, path: str, fields: Sequence[Field], names: Sequence[str], skip: int
    ) -> Iterator[Rows]:
        return skipped(self._batches(path, list(names)), skip, path)

    def _batches(self, path: str, names: list[str]) -> Iterator[Rows]:
        with guarded(path):
            _, reader, batches = self._open(path)
        number = 0
        while batches is None or number < batches:
            with guarded(path, f", batch {number},"):
                try:
                    batch = (
                        reader.read_next_batch() if batches is None else reader.get_batch(number)
                    )
                except StopIteration:
                    return
                batch = batch.select(names)
                # Full validation: the file states its NULL counts, and readers rely on them.
                batch.validate(full=True)
            yield Rows(batch)
            number += 1


def _ends(path: str, first: int, last: int) -> tuple[bytes, bytes]:
    """The first bytes of a file, and the last ones."""
    with guarded(path), open(path, "rb") as file:
        head = file.read(first)
        file.seek(max(0, os.fstat(file.fileno()).st_size - last))
        return head, file.read(last)


SUFFIXES = {
    "parquet": "parquet",
    "pq": "parquet",
    "csv": "csv",
    "tsv": "csv",
    "json": "json",
    "jsonl": "json",
    "ndjson": "json",
    "arrow": "arrow",
    "arrows": "arrow",
    "feather": "arrow",
    "ipc": "arrow",
    "wav": "wav",
    "wave": "wav",
    "flac": "flac",
    "ogg": "ogg",
    "oga": "ogg",
    "opus": "ogg",
    "aiff": "aiff",
    "aif": "aiff",
    "aifc": "aiff",
    "mseed": "mseed",
    "miniseed": "mseed",
}
#: Formats of files that CREATE STREAM … USING accepts, each with the format's own name.
NAMES = {
    "parquet": "parquet",
    "csv": "csv",
    "json": "json",
    "jsonl": "json",
    "ndjson": "json",
    "arrow": "arrow",
    "ipc": "arrow",
    "feather": "arrow",
    "wav": "wav",
    "flac": "flac",
    "ogg": "ogg",
    "aiff": "aiff",
    "mseed": "mseed",
    "miniseed": "mseed",
}


def format_of(path: str) -> str | None:
    """The format that a file's suffix names; suffixes of compression (``.gz``, …) are ignored."""
    parts = path.lower().rsplit("/", 1)[-1].split(".")
    while len(parts) > 1:
        last = parts.pop()
        if last in SUFFIXES:
            return SUFFIXES[last]
        if last not in ("gz", "bz2", "zst", "lz4"):
            return None
    return None


def make_format(
    name: str, options: Options, path: str | None, columns: Sequence[Field] | None
) -> Format:
    """The format of that name, with its options; ``path`` is one of its files (a .tsv has tabs)."""
    match NAMES.get(name.lower()):
        case "parquet":
            return ParquetFormat()
        case "arrow":
            return ArrowFormat()
        case "csv":
            tabs = path is not None and ".tsv" in path.lower()
            return CsvFormat(options, "\t" if tabs else ",", columns)
        case "json":
            return JsonFormat(options, columns)
        case "wav" | "flac" | "ogg" | "aiff" as sound:
            return SoundFormat(sound)
        case "mseed":
            return MiniSeedFormat(options)
    raise CatalogError(
        f"unknown format {name}",
        hint=did_you_mean(name, NAMES, what="formats of files are", few=len(NAMES)),
    )
