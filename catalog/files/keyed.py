"""Tables of files with a PRIMARY KEY: one file with all rows, made anew by each epoch.

The newest ``rows-00000007.parquet`` holds the table. An epoch reads it, merges its own rows,
publishes the result under the next number by one link, and then removes the older files; until then
the folder holds both. Writers take turns (``sinks.one_writer``).

A reader may find that the file it has chosen was removed for a newer one. So it reads the file
whole before it gives the first row, and begins again with the newest file.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from cql.base.model import Schema
from cql.catalog.convert import pick
from cql.catalog.files.listing import list_files
from cql.catalog.files.source import FileSource
from cql.catalog.sinks import FolderSink, failing, make_folder, numbers, one_writer
from cql.catalog.sources import TableSource
from cql.catalog.upsert import merged
from cql.errors import CatalogError
from cql.executor.protocols import Offset, Reader
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
                f"{what}: {file.path} was not written by a table with a PRIMARY KEY",
                hint="declare a table without a key over these files, and INSERT its rows into a"
                " table with a key in another folder",
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


class KeyedFiles:
    """The files of a table with columns ``schema`` and a ``key``. ``source`` reads one file;
    ``style`` has the options of CSV files."""

    bounded = True
    rereadable = True
    replayable = True
    unsupported: Mapping[str, str] = {}

    def __init__(
        self,
        folder: str,
        format: str,
        schema: Schema,
        key: Sequence[str],
        source: Callable[[str], FileSource],
        style: Mapping[str, Any],
        what: str,
    ) -> None:
        self.schema = schema
        self._folder = folder
        self._format = format
        self._key = key
        self._source = source
        self._style = style
        self._what = what

    # as a source

    def open(self, columns: Sequence[str], offset: Offset | None = None) -> Reader:
        names = [f.name for f in pick(self.schema, columns, self._what)]
        table = self._rows(names or self._key[:1])
        return TableSource(table, what=self._what).open(names, offset)

    def statistics(self) -> Statistics:
        return self._newest(lambda path: self._source(path).statistics(), Statistics(rows=0))

    def version(self) -> Any:
        return self._newest(lambda path: self._source(path).version(), ())

    def _newest(self, read: Callable[[str], _T], nothing: _T) -> _T:
        return read_newest(self._folder, self._what, read, lambda: nothing)

    def _rows(self, names: Sequence[str]) -> pa.Table:
        arrow = Schema(pick(self.schema, names, self._what)).to_arrow()

        def read(path: str) -> pa.Table:
            reader, batches = self._source(path).open(names), []
            try:
                while (block := reader.next()) is not None:
                    if block.bad:
                        raise CatalogError(
                            f"{self._what}: {path}: {block.bad[0].reason}",
                            hint="the file was changed by hand: put it right",
                        )
                    batches.append(block.batch.cast(arrow))
            finally:
                reader.close()
            return pa.Table.from_batches(batches, arrow)

        return self._newest(read, arrow.empty_table())

    # as a target

    def publish(self, rows: pa.Table, gone: pa.Table) -> int:
        """Writes the table with ``rows`` and without the keys in ``gone`` as its next file, and
        returns the number of the file."""
        with failing(self._folder, self._what):
            make_folder(self._folder)
        with self._alone():
            before = newest(self._folder, self._what)
            if before is not None and not rows.num_rows and not gone.num_rows:
                return numbers([os.path.basename(before)], ROWS)[0]
            table = self._rows(self.schema.names)
            table = merged(table, rows, gone, self._key, self._what)
            epoch = self._written(table)
            self._remove_older(epoch)
            return epoch

    @contextlib.contextmanager
    def _alone(self) -> Any:
        with contextlib.ExitStack() as stack:
            with failing(self._folder, self._what):
                stack.enter_context(one_writer(self._folder))
            yield

    def _written(self, table: pa.Table) -> int:
        schema, what = self.schema, self._what
        sink = FolderSink(self._folder, self._format, schema, schema, what, self._style, ROWS)
        sink.begin()
        try:
            for batch in table.to_batches():
                sink.write(batch)
            return sink.commit()
        except BaseException:
            sink.abort()
            raise

    def _remove_older(self, epoch: int) -> None:
        """Removes the files before ``epoch``; what cannot be removed now, the next epoch
        removes."""
        for name in os.listdir(self._folder):
            if any(number < epoch for number in numbers([name], ROWS)):
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(self._folder, name))
