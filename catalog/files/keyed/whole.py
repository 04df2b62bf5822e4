"""Tables of files with a PRIMARY KEY: one file with all rows, made anew by each epoch.

The newest ``rows-00000007.parquet`` holds the table. An epoch reads it, merges its own rows,
publishes the result under the next number by one link, and then removes the older files; until then
the folder holds both.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from cql.base.model import Schema
from cql.catalog.convert import pick
from cql.catalog.files.keyed.folder import KeyedFolder
from cql.catalog.files.listing import list_files
from cql.catalog.sinks import numbers
from cql.catalog.upsert import merged
from cql.errors import CatalogError
from cql.planner.nodes.catalog import Statistics

_T = TypeVar("_T")
#: The first word of the names of the files.
ROWS = "rows"


def newest(folder: str, what: str) -> str | None:
    """The file with the table's rows; None if there is none yet. Raises CatalogError for files that
    no table with a PRIMARY KEY has written: it would remove them."""
    found: dict[int, str] = {}
    for file in list_files([folder], what):
        number = numbers([os.path.basename(file.path)], ROWS)
        if not number or file.partitions:
            raise CatalogError(
                f"{what}: {file.path} was not written by a table with a PRIMARY KEY that rewrites"
                " its rows",
                hint="declare a table without a key over these files, and INSERT its rows into a"
                " table with a key in another folder; OPTIONS (upsert 'log') reads a log of"
                " changes",
            )
        found[number[0]] = file.path
    return found[max(found)] if found else None


def read_newest(folder: str, what: str, read: Callable[[str], _T], nothing: Callable[[], _T]) -> _T:
    """What ``read`` returns for the newest file, or ``nothing()`` if there is no file. Begins again
    if a writer has published a newer file meanwhile."""
    while True:
        path = newest(folder, what)
        try:
            return nothing() if path is None else read(path)
        except CatalogError:
            if newest(folder, what) == path:
                raise


class KeyedFiles(KeyedFolder):
    """See the module."""

    def statistics(self) -> Statistics:
        return self._newest(
            lambda path: self._source(self.schema, path).statistics(), Statistics(rows=0)
        )

    def version(self) -> Any:
        return self._newest(lambda path: self._source(self.schema, path).version(), ())

    def _newest(self, read: Callable[[str], _T], nothing: _T) -> _T:
        return read_newest(self._folder, self._what, read, lambda: nothing)

    def _rows(self, names: Sequence[str]) -> pa.Table:
        arrow = Schema(pick(self.schema, names, self._what)).to_arrow()
        return self._newest(lambda path: self._read(path, names), arrow.empty_table())

    def publish(self, rows: pa.Table, gone: pa.Table) -> int:
        """Writes the table with ``rows`` and without the keys in ``gone`` as its next file, and
        returns the number of the file."""
        with self._alone():
            before = newest(self._folder, self._what)
            if before is not None and not rows.num_rows and not gone.num_rows:
                return numbers([os.path.basename(before)], ROWS)[0]
            table = self._rows(self.schema.names)
            table = merged(table, rows, gone, self._key, self._what)
            epoch = self._write(table, ROWS)
            self._remove_older(epoch)
            return epoch

    def _remove_older(self, epoch: int) -> None:
        """Removes the files before ``epoch``; what cannot be removed now, the next epoch
        removes."""
        for name in os.listdir(self._folder):
            if any(number < epoch for number in numbers([name], ROWS)):
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(self._folder, name))
