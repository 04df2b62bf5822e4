"""The folder of a table of files with a PRIMARY KEY. Writers take turns (``sinks.one_writer``).

A reader may find that a file it has chosen was removed for a newer one. So it reads the files whole
before it gives the first row, and begins again with the newest files.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from cql.base.model import Schema
from cql.catalog.convert import pick
from cql.catalog.files.source import FileSource
from cql.catalog.sinks import FolderSink, failing, make_folder, one_writer
from cql.catalog.sources import TableSource
from cql.errors import CatalogError
from cql.executor.protocols import Offset, Reader


class KeyedFolder(ABC):
    """A table with columns ``schema`` and a ``key``, whose files have the columns ``stored``.
    ``source`` reads one file; ``style`` has the options of CSV files."""

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
        source: Callable[[Schema, str], FileSource],
        style: Mapping[str, Any],
        what: str,
    ) -> None:
        self.schema = schema
        self._stored = schema
        self._folder = folder
        self._format = format
        self._key = key
        self._source = source
        self._style = style
        self._what = what

    def open(self, columns: Sequence[str], offset: Offset | None = None) -> Reader:
        names = [f.name for f in pick(self.schema, columns, self._what)]
        table = self._rows(names or self._key[:1])
        return TableSource(table, what=self._what).open(names, offset)

    @abstractmethod
    def _rows(self, names: Sequence[str]) -> pa.Table:
        """The rows of the table, with at least these columns."""

    def _read(self, path: str, names: Sequence[str]) -> pa.Table:
        """The rows of one file."""
        arrow = Schema(pick(self._stored, names, self._what)).to_arrow()
        reader, batches = self._source(self._stored, path).open(names), []
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

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """In the ``with`` block, no other session writes into the folder, which exists."""
        with contextlib.ExitStack() as stack:
            with failing(self._folder, self._what):
                make_folder(self._folder)
                stack.enter_context(one_writer(self._folder))
            yield

    def _write(self, table: pa.Table, word: str, number: int | None = None) -> int:
        """Publishes a file with the rows of ``table``, and returns its number (default: the
        next)."""
        schema, what = self._stored, self._what
        sink = FolderSink(
            self._folder, self._format, schema, schema, what, self._style, word, number
        )
        sink.begin()
        try:
            for batch in table.to_batches():
                sink.write(batch)
            return sink.commit()
        except BaseException:
            sink.abort()
            raise
