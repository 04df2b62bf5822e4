"""Tables of files with a PRIMARY KEY as logs of changes (``catalog.upsert_log``): an epoch adds one
Parquet file with its rows and deleted keys.

Epochs have numbers from 0, without a gap. ``log-00000007.parquet`` is an epoch that appends,
``base-00000008.parquet`` one that also compacts: it holds the whole table, and older files do not
count any more. They are removed oldest first, so that a deleted key stays deleted for readers that
merge all files. What a crash leaves, the next epoch removes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from cql.base.model import Schema
from cql.catalog.files.keyed.folder import KeyedFolder
from cql.catalog.files.listing import list_files
from cql.catalog.files.source import FileSource
from cql.catalog.sinks import numbers
from cql.catalog.upsert_log import (
    DELETED,
    SEQUENCE,
    changes,
    compacted,
    is_due,
    log_schema,
    newest,
)
from cql.errors import CatalogError
from cql.planner.nodes.catalog import Statistics

_T = TypeVar("_T")
#: The first words of the names of the files.
LOG, BASE = "log", "base"


@dataclass(frozen=True, slots=True)
class Files:
    """The files of a log by their numbers: those that count, and ``older`` ones."""

    base: tuple[int, str] | None
    log: tuple[tuple[int, str], ...]
    older: tuple[tuple[int, str], ...]

    @property
    def paths(self) -> list[str]:
        """The files that count, in the order of their epochs."""
        return [path for _, path in (() if self.base is None else (self.base,)) + self.log]

    @property
    def last(self) -> int:
        """The number of the last epoch; -1 before the first."""
        if self.log:
            return self.log[-1][0]
        return -1 if self.base is None else self.base[0]

    @property
    def missing(self) -> int | None:
        """The number of an epoch that is not there, or None. A listing may miss a file that is
        published or removed meanwhile."""
        first = 0 if self.base is None else self.base[0] + 1
        there = [number for number, _ in self.log]
        return next((n for n, t in enumerate(there, first) if n != t), None)


def list_log(folder: str, what: str) -> Files:
    """Raises CatalogError for files that are not of a log of changes."""
    found: dict[str, dict[int, str]] = {BASE: {}, LOG: {}}
    for file in list_files([folder], what):
        name = os.path.basename(file.path)
        word = next((word for word in found if numbers([name], word)), None)
        if word is None or file.partitions:
            raise CatalogError(
                f"{what}: {file.path} was not written by a table with a PRIMARY KEY and the option"
                " upsert 'log'",
                hint="declare a table without this option over these files, and INSERT its rows"
                " into one with it in another folder",
            )
        found[word][numbers([name], word)[0]] = file.path
    base = max(found[BASE].items(), default=None)
    first = -1 if base is None else base[0]
    every = sorted([*found[BASE].items(), *found[LOG].items()])
    log = tuple(sorted(f for f in found[LOG].items() if f[0] > first))
    return Files(base, log, tuple(f for f in every if f[0] < first))


def read_log(folder: str, what: str, read: Callable[[Files], _T]) -> _T:
    """What ``read`` returns for the files of the log. Begins again if a writer has published or
    removed files meanwhile."""
    while True:
        files = list_log(folder, what)
        try:
            if files.missing is not None:
                raise CatalogError(
                    f"{what}: epoch {files.missing} is missing in {folder}",
                    hint="its file was removed by hand: put it back",
                )
            return read(files)
        except (CatalogError, FileNotFoundError) as error:
            if list_log(folder, what) != files:
                continue
            if isinstance(error, CatalogError):
                raise
            raise CatalogError(
                f"{what}: {error.filename} is gone", hint="run the query again"
            ) from error


def table_schema(folder: str, what: str, source: Callable[[str], FileSource]) -> Schema | None:
    """The columns of the table that a log has; None if there are no files. Those that are never
    NULL are the columns of its key."""

    def read(files: Files) -> Schema | None:
        if not files.paths:
            return None
        fields = source(files.paths[-1]).schema
        return Schema(tuple(f for f in fields if f.name not in (SEQUENCE, DELETED)))

    return read_log(folder, what, read)


def check_key(stored: Schema, key: Sequence[str], what: str) -> None:
    """Raises CatalogError unless a log with the table's columns ``stored`` has that ``key``: by
    another one, deleted rows would come back."""
    own = [f.name for f in stored if not f.nullable]
    if sorted(name.lower() for name in own) != sorted(name.lower() for name in key):
        raise CatalogError(
            f"{what}: its log was written with PRIMARY KEY ({', '.join(own)})",
            hint="declare that key, or choose another folder",
        )


class LoggedFiles(KeyedFolder):
    """See the module."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._stored = log_schema(self.schema, self._key, self._what)
        self._counts: dict[str, int] = {}

    def statistics(self) -> Statistics:
        return Statistics()

    def version(self) -> Any:
        def read(files: Files) -> Any:
            found = [(path, os.stat(path)) for path in files.paths]
            return tuple((path, stat.st_size, stat.st_mtime_ns) for path, stat in found)

        return read_log(self._folder, self._what, read)

    def _rows(self, names: Sequence[str]) -> pa.Table:
        wanted = [f.name for f in self.schema if f.name in names or f.name in self._key]
        log = read_log(self._folder, self._what, lambda files: self._log(files, wanted))
        rows = newest(log, self._key, self._what)
        own = self.schema.to_arrow()
        return rows.cast(pa.schema([own.field(name) for name in wanted]))

    def _log(self, files: Files, names: Sequence[str]) -> pa.Table:
        every = [SEQUENCE, DELETED, *names]
        arrow = self._stored.to_arrow()
        nothing = pa.schema([arrow.field(name) for name in every]).empty_table()
        return pa.concat_tables([nothing, *(self._read(path, every) for path in files.paths)])

    def publish(self, rows: pa.Table, gone: pa.Table) -> int:
        """Adds the epoch to the log, and returns its number."""
        key, what = self._key, self._what
        with self._alone():
            files = read_log(self._folder, what, lambda found: found)
            if files.last >= 0 and not rows.num_rows and not gone.num_rows:
                return files.last
            number = files.last + 1
            epoch = changes(rows, gone, key, number, what)
            kept = 0 if files.base is None else self._count(files.base[1])
            appended = sum(self._count(path) for _, path in files.log) + epoch.num_rows
            if is_due(kept, appended, len(files.log) + 1):
                before = self._log(files, self.schema.names)
                self._write(compacted(before, epoch, number, key, what), BASE, number)
                files = list_log(self._folder, what)
            else:
                self._write(epoch, LOG, number)
            self._remove(files.older)
            return number

    def _count(self, path: str) -> int:
        if path not in self._counts:
            try:
                self._counts[path] = pq.read_metadata(path).num_rows
            except (OSError, pa.ArrowException) as error:
                raise CatalogError(
                    f"{self._what}: {path} cannot be read: {error}",
                    hint="the file was changed by hand: put it right",
                ) from error
        return self._counts[path]

    def _remove(self, older: Sequence[tuple[int, str]]) -> None:
        """Removes files, oldest first. What cannot be removed now, the next epoch removes."""
        for _, path in older:
            try:
                os.unlink(path)
            except FileNotFoundError:
                continue
            except OSError:
                return
            self._counts.pop(path, None)
