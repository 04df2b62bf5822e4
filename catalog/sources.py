"""Sources over Arrow data of other libraries, and the common parts of this package's sources."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import pyarrow as pa

from cql.base.foreign import error_text
from cql.base.model import Schema
from cql.catalog.blocks import BlockReader, IteratorFeed, Piece, row_of
from cql.catalog.convert import Shaper, empty_columns, fit, pick, read_schema
from cql.catalog.memory.rows import Rows, shape, shape_what_fits
from cql.errors import CatalogError
from cql.executor.protocols import Block, Offset, Reader, Source
from cql.planner.nodes.catalog import Statistics


class DataSource(Protocol):
    """A Source that can also describe itself; LocalCatalog builds relations from it."""

    @property
    def schema(self) -> Schema: ...
    @property
    def bounded(self) -> bool: ...
    @property
    def unsupported(self) -> Mapping[str, str]:
        """Columns of the data that no query can use, each with the reason."""
        ...

    def statistics(self) -> Statistics: ...
    def open(self, columns: Sequence[str], offset: Offset | None = None) -> Reader: ...


class TableSource:
    """An Arrow table, replayable by row: offsets are ``{"row": n}``.

    Blocks are slices of the table. Only a block that spans chunks is copied, and columns of types
    that the engine does not have (timestamps in ns, large strings, unsigned numbers)."""

    bounded = True
    rereadable = True
    replayable = True

    def __init__(
        self,
        table: pa.Table,
        *,
        what: str,
        declared: Schema | None = None,
        version: int | None = None,
    ) -> None:
        self._table = table
        self._version = table.num_rows if version is None else version
        self._what = what
        self._actual, self.unsupported = read_schema(table.schema, what)
        if declared is not None:
            fit(declared, self._actual, what, self.unsupported)
        self.schema = self._actual if declared is None else declared
        own = pick(self._actual, self.schema.names, what)
        #: The table's own spelling of the columns.
        self._own = {f.name: o.name for f, o in zip(self.schema, own, strict=True)}

    def version(self) -> Any:
        """The number given to the constructor, or that of the rows, for tables that only grow."""
        return self._version

    def statistics(self) -> Statistics:
        nulls = {name: self._table.column(own).null_count for name, own in self._own.items()}
        return Statistics(rows=self._table.num_rows, nulls=nulls)

    def open(self, columns: Sequence[str], offset: Offset | None = None) -> Reader:
        fields = pick(self.schema, columns, self._what)
        row = row_of(offset, self._what)
        if row > self._table.num_rows:
            raise CatalogError(
                f"{self._what} has {self._table.num_rows} rows, and the position is row {row}",
                hint="the data is not what the query ran on: start the query anew",
            )
        pieces = self._pieces([self._own[f.name] for f in fields], row)
        return BlockReader(IteratorFeed(pieces), Shaper(fields), row=row, offset={"row": row})

    def _pieces(self, names: list[str], row: int) -> Iterator[Piece]:
        rest = self._table.select(names).slice(row)
        batches: Sequence[pa.RecordBatch]
        batches = rest.to_batches() if names else [empty_columns(self._table.num_rows - row)]
        for batch in batches:
            yield row_piece(Rows(batch), row, self._what)
            row += batch.num_rows


def row_piece(rows: Rows, row: int, where: str) -> Piece:
    """Rows of a source whose offsets are plain row numbers."""
    return Piece(rows, lambda k: {"row": row + k}, where, row)


class ReaderSource:
    """A RecordBatchReader: one pass, from the start. No run can resume at its offsets."""

    bounded = True

    def __init__(
        self, reader: pa.RecordBatchReader, *, what: str, declared: Schema | None = None
    ) -> None:
        self._reader: pa.RecordBatchReader | None = reader
        self._what = what
        self._actual, self.unsupported = read_schema(reader.schema, what)
        if declared is not None:
            fit(declared, self._actual, what, self.unsupported)
        self.schema = self._actual if declared is None else declared

    def statistics(self) -> Statistics:
        return Statistics()

    def open(self, columns: Sequence[str], offset: Offset | None = None) -> Reader:
        fields = pick(self.schema, columns, self._what)
        if self._reader is None or row_of(offset, self._what) > 0:
            raise read_once(self._what, "batch reader")
        reader, self._reader = self._reader, None
        names = [f.name for f in pick(self._actual, columns, self._what)]
        feed = IteratorFeed(_pieces(reader, names, self._what), reader.close)
        return BlockReader(feed, Shaper(fields), row=0, offset={"row": 0})


class DatasetSource:
    """A ``pyarrow.dataset.Dataset``. Each run scans only the columns that it needs; offsets are
    ``{"row": n}``, in the order of the dataset's fragments."""

    bounded = True
    rereadable = True
    replayable = True

    def __init__(self, dataset: Any, *, what: str, declared: Schema | None = None) -> None:
        self._dataset = dataset
        self._what = what
        self._actual, self.unsupported = read_schema(dataset.schema, what)
        if declared is not None:
            fit(declared, self._actual, what, self.unsupported)
        self.schema = self._actual if declared is None else declared

    def statistics(self) -> Statistics:
        return Statistics()

    def open(self, columns: Sequence[str], offset: Offset | None = None) -> Reader:
        import pyarrow.dataset as ds

        fields = pick(self.schema, columns, self._what)
        row = row_of(offset, self._what)
        names = [f.name for f in pick(self._actual, columns, self._what)]
        try:
            scanned = {name: ds.field(name) for name in names}
            reader = self._dataset.scanner(columns=scanned).to_reader()
        except Exception as error:  # Arrow's own errors, and those of file systems
            raise CatalogError(
                f"{self._what} cannot be scanned: {error_text(error)}",
                hint="are the files of the dataset still there?",
            ) from error
        feed = IteratorFeed(behind(_pieces(reader, names, self._what), row), reader.close)
        return BlockReader(feed, Shaper(fields), row=row, offset={"row": row})


def _pieces(reader: pa.RecordBatchReader, names: list[str], what: str) -> Iterator[Piece]:
    """The columns ``names`` of the reader's batches; any error of it becomes a CatalogError."""
    row = 0
    while True:
        try:
            batch = reader.read_next_batch()
        except StopIteration:
            return
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a reader may be made of Python objects
            raise CatalogError(f"{what} failed after row {row}: {error_text(error)}") from error
        yield row_piece(Rows(batch.select(names)), row, what)
        row += batch.num_rows


def behind(pieces: Iterable[Piece], skip: int) -> Iterator[Piece]:
    """The pieces without the rows before row ``skip``."""
    for piece in pieces:
        before = min(max(skip - piece.first, 0), piece.rows.count)
        if before < piece.rows.count or (piece.first >= skip and piece.rows.row_punctuation):
            yield row_piece(piece.rows.slice(before), piece.first + before, piece.where)


def read_once(what: str, kind: str) -> CatalogError:
    return CatalogError(
        f"{what} is a {kind}, which can be read only once, from its start",
        hint="give a table, a list, or a function that makes a new one each time",
    )


class DeclaredSource:
    """Another source under a declared schema: some of its columns, in wider types."""

    def __init__(
        self, inner: Source, declared: Schema, *, what: str, unsupported: Mapping[str, str]
    ) -> None:
        fit(declared, inner.schema, what, unsupported)
        self._inner = inner
        self._what = what
        self.schema = declared

    @property
    def bounded(self) -> bool:
        return self._inner.bounded

    @property
    def replayable(self) -> bool:
        return bool(getattr(self._inner, "replayable", False))

    def version(self) -> Any:
        own = getattr(self._inner, "version", None)
        return None if own is None else own()

    def open(self, columns: Sequence[str], offset: Offset | None = None) -> Reader:
        fields = pick(self.schema, columns, self._what)
        inner = self._inner.open(columns, offset)
        start = offset.get("row") if offset is not None else 0
        return _ShapedReader(
            inner, Shaper(fields), self._what, start if isinstance(start, int) else 0
        )


class _ShapedReader:
    def __init__(self, inner: Reader, shaper: Shaper, what: str, row: int) -> None:
        self._inner = inner
        self._shaper = shaper
        self._what = what
        self._row = row

    def next(self, timeout: float | None = None) -> Block | None:
        block = self._inner.next(timeout)
        if block is None:
            return None
        raw = Rows(block.batch, block.bad, block.row_punctuation)
        try:
            rows = shape(self._shaper, raw, row=self._row, where=self._what)
        except CatalogError:
            rows = shape_what_fits(self._shaper, raw, row=self._row, where=self._what)
        self._row += rows.count
        return replace(block, batch=rows.batch, bad=rows.bad)

    def close(self) -> None:
        self._inner.close()


def as_table(data: Any, what: str) -> pa.Table | None:
    """``data`` as an Arrow table if it is one or can lend its columns: Arrow tables, batches and
    lists of batches, pandas and polars frames, mappings of columns, any object with Arrow's C
    stream, or an array of structs with Arrow's C array interface. None for anything else (readers,
    datasets, iterables, paths)."""
    kind = type(data)  # not isinstance, which reads the __class__ of a user's object
    if issubclass(kind, pa.Table):
        return data
    if issubclass(kind, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if issubclass(kind, pa.RecordBatchReader):
        return None
    try:
        if issubclass(kind, list | tuple) and data:
            if all(isinstance(item, pa.RecordBatch) for item in data):
                return pa.Table.from_batches(list(data))
            if all(isinstance(item, pa.Table) for item in data):
                return pa.concat_tables(list(data))
            return None
        if issubclass(kind, Mapping):
            return pa.table(dict(data))
        return _frame(data)
    except Exception as error:  # Arrow's own errors, and those of the data's methods
        raise CatalogError(
            f"{what} cannot be taken as Arrow columns: {error_text(error)}",
            hint="convert the columns to one type each, or give a pyarrow table",
        ) from error


def is_dataset(data: Any) -> bool:
    """Whether ``data`` is a pyarrow dataset, without importing ``pyarrow.dataset``."""
    kind = type(data)
    return kind.__module__ == "pyarrow._dataset" and hasattr(kind, "scanner")


def _frame(data: Any) -> pa.Table | None:
    """Recognises pandas and polars by the name of their module, without importing either."""
    home = type(data).__module__.partition(".")[0]
    if home == "pandas" and hasattr(data, "columns"):
        named = any(name is not None for name in data.index.names)
        return pa.Table.from_pandas(data, preserve_index=named).replace_schema_metadata(None)
    if home == "polars" and hasattr(data, "collect"):
        data = data.collect()
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        return pa.table(data)
    return None
