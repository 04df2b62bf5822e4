"""The methods of a session that push rows into streams."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from cql.base.model import Punctuation
from cql.errors import BindError, did_you_mean
from cql.session.declare import as_columns, is_spark_frame, parts_of

if TYPE_CHECKING:
    from cql.catalog.memory.pushed import PushedSource
    from cql.session.names import SessionCatalog


class Pushing(ABC):
    """A base class of ``Session``. Any thread may push. The rows of one push stay together, after
    the rows of all earlier pushes."""

    _catalog: SessionCatalog

    @abstractmethod
    def _check_open(self) -> None:
        """Raises CqlError if the session is closed."""

    def push(self, name: str, rows: Any, *, timeout: float | None = None) -> int:
        """Pushes rows into a stream that was created without a source; returns their number.

        ``rows`` is a list or other iterable of tuples, mappings, Arrow batches or
        ``cql.Punctuation``, an Arrow table, a frame, or a query that ends. The stream takes all
        rows or none. Raises CatalogError for a row that does not fit the columns, after the end of
        the stream, and after ``timeout`` seconds (None: 30) if the queries have not read enough of
        the earlier rows."""
        self._check_open()
        source, what = self._pushed(name), f"rows for {name}"
        if is_spark_frame(rows):
            from cql.catalog.spark.frame import BatchFrame

            rows = BatchFrame(rows, what).table()
        return source.push(as_columns(rows, what), timeout)

    def punctuate(self, name: str, value: Any, column: str | None = None) -> None:
        """Punctuates the stream: later rows with a time before ``value`` are late.

        ``column`` may be omitted if the stream has only one stored window attribute; otherwise
        raises BindError."""
        self._check_open()
        source = self._pushed(name)
        if column is None:
            relation = self._catalog.find(parts_of(name))
            spec = None if relation is None else relation.stream
            columns = list(dict.fromkeys(p.column for p in (spec.progress if spec else ())))
            computed = None if spec is None else spec.computed_progress
            if computed is not None and not columns:
                raise BindError(
                    f"{computed.column} of stream {name} is computed: it takes no punctuation",
                    hint=f"declare {computed.column} as a stored column, and push its values",
                )
            if len(columns) != 1:
                raise BindError(
                    f"stream {name} has {len(columns) or 'no'} columns with a watermark",
                    hint="name one: session.punctuate(name, value, column)"
                    if columns
                    else "ORDERED BY ts, or PUNCTUATE ON ts, in CREATE STREAM",
                )
            column = columns[0]
        source.push([Punctuation(column, value)])

    def end(self, name: str) -> None:
        """Ends the stream: no row follows. The queries that read the stream end; later queries read
        the rows that the stream keeps."""
        self._check_open()
        self._pushed(name).finish()

    def _pushed(self, name: str) -> PushedSource:
        found = self._catalog.local.pushed(parts_of(name))
        if found is None:
            relation = self._catalog.find(parts_of(name))
            if relation is not None:
                raise BindError(
                    f"{relation.kind} {name} takes no pushed rows",
                    hint="CREATE STREAM s (columns) without a source does",
                )
            known = [".".join(n) for n in self._catalog.local.names()]
            raise BindError(
                f"there is no stream {name}", hint=did_you_mean(name, known, what="there are")
            )
        return found
