"""Python iterables as sources: generators, callables and lists of batches, mappings or tuples."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa

from cql.base.foreign import error_text, object_text, type_name
from cql.base.model import Field, Punctuation, Schema
from cql.base.reentrancy import inherited
from cql.base.types import BIGINT, DOUBLE, DataType, Kind, from_arrow
from cql.base.waiting import interruptible
from cql.catalog.blocks import END, BlockReader, End, Feed, IteratorFeed, Piece, row_of
from cql.catalog.convert import (
    Column,
    Shaper,
    article,
    assignable,
    batch_of,
    cast,
    empty_batch,
    empty_columns,
    fit,
    join,
    pick,
    read_schema,
)
from cql.catalog.memory.nested_rows import nested_column
from cql.catalog.memory.punctuation import PutBack, first_rows, row_punctuation_of
from cql.catalog.memory.rows import SHOWN, TOGETHER, Rows, bad_input, salvage, shape
from cql.catalog.sources import as_table, behind, read_once, row_piece
from cql.errors import CatalogError, did_you_mean
from cql.executor.protocols import BLOCK_ROWS, Offset, Reader
from cql.planner.nodes.catalog import Statistics

#: Items that a live iterable may be ahead of the query; and rows, as an item may be a whole batch.
AHEAD = 4_096
ROWS_AHEAD = BLOCK_ROWS
#: Seconds that the end of a query waits for the next item of a live iterable; and for the
#: ``finally`` of one that is not making an item.
PATIENCE = 0.2
_CLOSING = 5.0


class IterableSource:
    """Rows from Python, in the order in which they are made; offsets are ``{"row": n}``.

    ``data`` is a list (or other sequence) of items, an iterator, or a function of no arguments
    that returns a new iterable at each call. An item is an Arrow batch or table, a frame, a mapping
    (column to value; a missing column is NULL), a tuple (needs ``schema``), or a ``Punctuation``,
    which counts from the next row on. A list or a function can be opened again and at an offset; an
    iterator is read once.

    Without ``schema``, the types are those of the first item (of all items, for a list): an int is
    a BIGINT, a float a DOUBLE, an aware datetime a TIMESTAMP, a naive one a TIMESTAMP_NTZ. This
    waits for the first item; give ``schema`` where that may take long.

    With ``bounded=False`` a thread runs the iterable at most AHEAD items and ROWS_AHEAD rows ahead,
    so that the query can do other work while no item comes."""

    def __init__(
        self,
        data: Any,
        *,
        what: str,
        declared: Schema | None = None,
        bounded: bool = True,
    ) -> None:
        self._what = what
        self.bounded = bounded
        self._again: Callable[[], Iterable[Any]] | None = None
        self._items: Iterator[Any] | None = None
        if isinstance(data, Sequence):
            self._again = lambda: data
        elif callable(data):
            self._again = data
        else:
            self._items = self._begin(lambda: data, "it must be an iterable")
        sample: Iterable[Any] = () if declared is not None else self._sample(data)
        found, self.unsupported = (
            (declared, {}) if declared is not None else self._infer(list(sample))
        )
        self.schema = found
        self._closed_names = declared is None

    def _sample(self, data: Any) -> Iterable[Any]:
        """The items from which types are inferred; those taken from an iterator are put back."""
        if isinstance(data, Sequence):
            items = guarded(self._start(), self._what)
            return [item for item in items if not isinstance(item, Punctuation)]
        if self._again is not None:
            items = self._start()
            self._again_first(items)
        assert self._items is not None
        first = first_rows(guarded(self._items, self._what))
        self._items = PutBack(first, self._items)
        return [item for item in first if not isinstance(item, Punctuation)]

    def _again_first(self, items: Iterator[Any]) -> None:
        """Keeps the inspected iterator for the first open: a user who counts the effects of the
        function would not expect two calls for one pass."""
        self._items = items

    def _start(self) -> Iterator[Any]:
        assert self._again is not None
        hint = "the function must take no arguments and return an iterable"
        return self._begin(self._again, hint)

    def _begin(self, make: Callable[[], Iterable[Any]], hint: str) -> Iterator[Any]:
        """The iterator over ``make()``; any error of either becomes a CatalogError."""
        try:
            return iter(make())
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise CatalogError(
                f"{self._what} cannot start: {error_text(error)}", hint=hint
            ) from error

    def _infer(self, sample: list[Any]) -> tuple[Schema, dict[str, str]]:
        if not sample:
            raise CatalogError(
                f"{self._what} is empty, so its columns are unknown", hint="declare its schema"
            )
        if not all(isinstance(item, Mapping) for item in sample):
            table = None if isinstance(sample[0], list | tuple) else as_table(sample[0], self._what)
            if table is None:
                raise CatalogError(
                    f"{self._what} gives {type(sample[0]).__name__} items without column names",
                    hint="declare its schema, or give mappings or Arrow batches",
                )
            return read_schema(table.schema, self._what)
        with reading(f"{self._what}, row 0"):
            names = list(dict.fromkeys(name for item in sample for name in item))
            columns = [[item.get(name) for item in sample] for name in names]
        fields: list[Field] = []
        unsupported: dict[str, str] = {}
        for name, values in zip(names, columns, strict=True):
            reason = _unreadable(values)
            if reason is not None:
                unsupported[str(name)] = reason
                continue
            kind = _infer_type(values, str(name), self._what)
            if kind.kind is Kind.NULL:
                raise CatalogError(
                    f"{self._what}: column {name} is NULL in the first item: its type is unknown",
                    hint="declare the schema",
                )
            if kind.holds_null_type:
                raise CatalogError(
                    f"{self._what}: column {name} is {kind} in the first item: a type in it is"
                    " unknown",
                    hint="declare the schema",
                )
            fields.append(Field(str(name), kind))
        return Schema(tuple(fields)), unsupported

    @property
    def replayable(self) -> bool:
        """Whether the rows are in a list, or a function gives them again."""
        return self.bounded and self._again is not None

    def statistics(self) -> Statistics:
        return Statistics()

    def open(self, columns: Sequence[str], offset: Offset | None = None) -> Reader:
        fields = pick(self.schema, columns, self._what)
        row = row_of(offset, self._what)
        if self._items is not None and (row == 0 or self._again is not None):
            items, self._items = self._items, None
        elif self._again is not None:
            items = self._start()
        else:
            raise read_once(self._what, "Python iterator")
        names = frozenset((*self.schema.names, *self.unsupported))
        rows = _Rows(self.schema, fields, self._what, names if self._closed_names else None)
        feed: Feed
        if self.bounded:
            feed = IteratorFeed(_pieces(items, rows, self._what, row), _closer(items, self._what))
        else:
            feed = _LiveFeed(items, rows, self._what, row)
        return BlockReader(feed, Shaper(fields), row=row, offset={"row": row})


def _closer(items: Iterator[Any], what: str) -> Callable[[], None]:
    """A function that closes a generator, so that its ``finally`` runs when the query stops. Any
    error of closing becomes a CatalogError."""

    def close() -> None:
        try:
            stop = getattr(items, "close", None)
            if stop is not None:
                stop()
        except (CatalogError, KeyboardInterrupt):
            raise
        except BaseException as error:
            raise CatalogError(f"{what} failed when it was closed: {error_text(error)}") from error

    return close


@contextlib.contextmanager
def reading(where: str) -> Iterator[None]:
    """Turns any error that a user's objects raise when they are read into a CatalogError."""
    try:
        yield
    except (CatalogError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise CatalogError(
            f"{where} cannot be read: {error_text(error)}",
            hint="what its own methods raise; give plain mappings, tuples or lists",
        ) from error


def guarded(items: Iterator[Any], what: str, rows: Callable[[], int] = lambda: 0) -> Iterator[Any]:
    """The items; any error of the iterator becomes a CatalogError."""
    while True:
        try:
            item = next(items)
        except StopIteration:
            return
        except (CatalogError, KeyboardInterrupt):
            raise
        except BaseException as error:  # whatever the user's iterable raises
            raise CatalogError(f"{what} failed after row {rows()}: {error_text(error)}") from error
        yield item


def _pieces(items: Iterator[Any], rows: _Rows, what: str, skip: int) -> Iterator[Piece]:
    """Gathers single rows into batches; batches pass as they come. Rows before a failure come out
    before it is raised."""
    pending: list[Any] = []
    given = guarded(items, what, lambda: rows.seen + len(pending))
    failure: CatalogError | None = None
    while True:
        try:
            pending.append(next(given))
        except StopIteration:
            break
        except CatalogError as error:
            failure = error
            break
        if _is_row(pending[-1]) and len(pending) < BLOCK_ROWS:
            continue
        yield from behind(rows.take(pending), skip)
        pending.clear()
    yield from behind(rows.take(pending), skip)
    if failure is not None:
        raise failure
    if rows.seen < skip:
        raise _too_short(what, rows.seen, skip)


def _too_short(what: str, rows: int, skip: int) -> CatalogError:
    return CatalogError(
        f"{what} ended after {rows} rows, and the position is row {skip}",
        hint="the data is not what the query ran on: start the query anew",
    )


class _Rows:
    """Turns items into batches of the requested columns, and counts rows."""

    def __init__(
        self, schema: Schema, fields: Sequence[Field], what: str, names: frozenset[str] | None
    ) -> None:
        """``names``: the keys that a mapping may have; None: any."""
        self._schema = schema
        self._fields = tuple(fields)
        self._places = [schema.find(f.name) for f in fields]
        self._names = names
        self._what = what
        self.seen = 0

    def take(self, items: Sequence[Any]) -> Iterator[Piece]:
        """Pieces of any mixture of items; runs of single rows (and punctuation) stay together."""
        for single, run in itertools.groupby(items, _is_row):
            if single:
                yield from self._run(list(run))
            else:
                yield from (self._piece(rows) for item in run for rows in self._batches(item))

    def _run(self, items: list[Any]) -> Iterator[Piece]:
        """Single rows with the punctuation between them."""
        rows = [item for item in items if not isinstance(item, Punctuation)]
        if len(rows) == len(items):
            yield from self._single(rows)
            return
        row_punctuation = row_punctuation_of(
            items, self._schema, f"{self._what}, after row {self.seen}", _column
        )
        if not rows:
            yield self._piece(Rows(empty_batch(self._fields), (), row_punctuation))
            return
        whole = Rows(empty_columns(len(rows)), (), row_punctuation)
        first = self.seen
        for piece in self._single(rows):
            own = whole.slice(piece.first - first, piece.rows.count).row_punctuation
            yield replace(piece, rows=replace(piece.rows, row_punctuation=own))

    def _piece(self, rows: Rows) -> Piece:
        piece = row_piece(rows, self.seen, self._what)
        self.seen += rows.count
        return piece

    def _single(self, rows: list[Any]) -> Iterator[Piece]:
        try:
            batch = self._convert(rows, self.seen)
        except CatalogError:
            for first in range(0, len(rows), TOGETHER):
                yield self._piece(self._salvaged(rows[first : first + TOGETHER]))
        else:
            yield self._piece(Rows(batch))

    def _salvaged(self, rows: list[Any]) -> Rows:
        good, bad = salvage(
            len(rows),
            lambda start, stop: self._convert(rows[start:stop], self.seen + start),
            lambda row, error: bad_input(row, error, object_text(rows[row], SHOWN)),
        )
        return Rows(join(self._fields, good) if good else empty_batch(self._fields), tuple(bad))

    def _batches(self, item: Any) -> list[Rows]:
        table = as_table(item, f"{self._what}, row {self.seen}")
        if table is None:
            error = CatalogError(
                f"{self._what}, row {self.seen}: cannot read a {type_name(item)} as rows",
                hint="give mappings, tuples, Arrow batches or frames",
            )
            return [
                Rows(empty_batch(self._fields), (bad_input(0, error, object_text(item, SHOWN)),))
            ]
        actual, unsupported = read_schema(table.schema, self._what)
        where = f"the batch at row {self.seen} of {self._what}"
        fit(Schema(self._fields), actual, where, unsupported)
        names = [f.name for f in pick(actual, [f.name for f in self._fields], where)]
        batches = table.select(names).to_batches() if names else [empty_columns(table.num_rows)]
        return [Rows(batch) for batch in batches]

    def _convert(self, rows: list[Any], first: int) -> pa.RecordBatch:
        """The rows as a batch; ``first`` is the number of the first row."""
        with reading(f"{self._what}, row {first}"):
            self._check_shapes(rows, first)
            arrays = []
            for field, place in zip(self._fields, self._places, strict=True):
                assert place is not None
                values = [_value(row, field.name, place) for row in rows]
                arrays.append(_column(values, field, self._what, first))
            return batch_of(self._fields, arrays, len(rows))

    def _check_shapes(self, rows: list[Any], first: int) -> None:
        for i, row in enumerate(rows):
            if isinstance(row, Mapping):
                if self._names is not None and not self._names.issuperset(row):
                    extra = next(k for k in row if k not in self._names)
                    raise CatalogError(
                        f"{self._what}, row {first + i}: unknown column {extra}",
                        hint=did_you_mean(str(extra), self._names)
                        or "declare the schema: it came from the first item",
                    )
            elif len(row) != len(self._schema):
                raise CatalogError(
                    f"{self._what}, row {first + i}: {len(row)} values for "
                    f"{len(self._schema)} columns",
                    hint="each tuple holds one value for each column, None for NULL",
                )


_ROWS = (Mapping, tuple, list, Punctuation)


def _is_row(item: Any) -> bool:
    return issubclass(type(item), _ROWS)


def _rows_in(item: Any) -> int:
    """Number of rows in an item; 1 also for an item without rows, so that AHEAD bounds these."""
    if _is_row(item):
        return 1
    try:
        return max(1, len(item))
    except Exception:  # it has no length, or a user's class fails to give it
        return 1


def _value(row: Any, name: str, place: int) -> Any:
    return row.get(name) if isinstance(row, Mapping) else row[place]


_SCALARS = (bool, int, float, str, bytes, Decimal, date, timedelta)


def _unreadable(values: list[Any]) -> str | None:
    """The reason why no column can hold the values, if one is not a scalar (a dict, a list, a UUID,
    a time); else None."""
    for value in values:
        if value is None or issubclass(type(value), _SCALARS):
            continue
        array = _guess([value])
        if array is None or from_arrow(array.type) is None:
            return f"no column can hold {type_name(value)} values"
    return None


def _infer_type(values: list[Any], column: str, what: str) -> DataType:
    try:
        found = from_arrow(pa.array(values, from_pandas=False).type)
    except Exception as error:  # Arrow's own errors, and those of the values' methods
        raise CatalogError(
            f"{what}, column {column}: no type holds all its values: {error_text(error)}",
            hint="declare the schema, and make the values of one type",
        ) from error
    if found is None:
        raise CatalogError(
            f"{what}, column {column}: no column can hold {type_name(values[0])} values"
        )
    return found


#: Whether a Python value may be stored as ``target``, beyond what Arrow's types say: a Python float
#: is a DOUBLE, whatever precision its writer meant.
def _accepts(found: DataType, target: DataType) -> bool:
    if found == DOUBLE and target.is_fraction:
        return True
    return assignable(found, target) and not (found == BIGINT and target.kind is Kind.NULL)


def _column(values: list[Any], field: Field, what: str, row: int) -> Column:
    """Arrow guesses the type and a safe cast follows. Asked for the target type directly, Arrow
    would silently cut 1.5 to 1 and a datetime to its date."""
    if field.type.is_nested:
        return nested_column(values, field, what, row, _column)
    target = field.type.to_arrow()
    array = _guess(values) if _alike(values) else None
    found = None if array is None else from_arrow(array.type)
    if array is None or found is None or not _accepts(found, field.type):
        return _one_by_one(values, field, what, row)
    return cast(array, target, column=field.name, where=what, row=row)


def _alike(values: list[Any]) -> bool:
    """Whether Arrow may convert all values at once. From several types (or from times with and
    without a zone) it would take the type of the first value and bend the others to it."""
    kinds = set(map(type, values)) - {type(None)}
    if kinds == {datetime}:
        return len({value.tzinfo is None for value in values if value is not None}) == 1
    return len(kinds) <= 1 or kinds == {int, float}


def _guess(values: list[Any]) -> Column | None:
    """The values in the type that Arrow infers; None if it infers none."""
    try:
        return pa.array(values, from_pandas=False)
    except Exception:  # Arrow's own errors, and those of the values' methods
        return None


def _one_by_one(values: list[Any], field: Field, what: str, row: int) -> Column:
    """For values of several Python types. Each may fit alone (an int among Decimals); the error
    names the first value that does not."""
    parts = []
    for i, value in enumerate(values):
        array = _guess([value])
        found = None if array is None else from_arrow(array.type)
        if array is None or found is None or not _accepts(found, field.type):
            raise CatalogError(
                f"{what}, row {row + i}, column {field.name}: {object_text(value)} "
                f"({type_name(value)}) is not {article(field.type)}",
                hint="convert the value, or declare the column with the type that fits all values",
            )
        target = field.type.to_arrow()
        parts.append(cast(array, target, column=field.name, where=what, row=row + i))
    return pa.concat_arrays(parts)


def whole_rows(data: Any, schema: Schema, what: str) -> list[Rows]:
    """The rows of ``data`` (an iterable of items, or an object with columns) in the types of
    ``schema``, and the punctuation between them. Raises CatalogError for the first row that does
    not fit."""
    table = as_table(data, what)
    if table is not None:
        items: list[Any] = [table]
    elif hasattr(data, "__iter__") and not isinstance(data, str | bytes):
        items = list(guarded(iter(data), what))
    else:
        raise CatalogError(
            f"{what}: cannot read a {type_name(data)} as rows",
            hint="give a list of tuples or mappings, an Arrow table or a frame",
        )
    for item in items:
        _check_columns(item, schema, what)
    rows = _Rows(schema, schema.fields, what, frozenset(schema.names))
    shaper = Shaper(schema.fields)
    found = []
    for piece in rows.take(items):
        if piece.rows.bad:
            first = piece.rows.bad[0]
            raise CatalogError(first.reason, hint=first.hint)
        found.append(shape(shaper, piece.rows, row=piece.first, where=what))
    return found


def _check_columns(item: Any, schema: Schema, what: str) -> None:
    """Raises CatalogError for columns of an item that the schema lacks."""
    table = None if _is_row(item) else as_table(item, what)
    for name in () if table is None else table.column_names:
        if schema.find(name) is None:
            raise CatalogError(
                f"{what}: unknown column {name}",
                hint=did_you_mean(name, schema.names, what="columns are"),
            )


class _LiveFeed:
    """Runs the iterable in a daemon thread, at most AHEAD items ahead of the reader, and no further
    once these items have ROWS_AHEAD rows.

    ``close`` waits until the thread has ended and the iterable is closed. A thread in user code
    cannot be interrupted: if its next item does not come within PATIENCE seconds, ``close``
    returns, and the thread ends at that item and closes the iterable then."""

    def __init__(self, items: Iterator[Any], rows: _Rows, what: str, skip: int) -> None:
        self._items = items
        self._rows = rows
        self._what = what
        self._skip = skip
        self._ready: deque[Any] = deque()
        self._ready_rows = 0
        self._change = threading.Condition()
        self._made = 0
        self._ended = False
        self._stopped = False
        self._waits = False  # for room, not for user code
        self._error: CatalogError | None = None
        self._pieces: deque[Piece] = deque()
        run = inherited(self._run)
        self._thread = threading.Thread(target=run, name=f"cql-{what}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            for item in guarded(self._items, self._what, lambda: self._made):
                with self._change:
                    self._waits = True
                    self._change.wait_for(lambda: self._has_room() or self._stopped)
                    self._waits = self._stopped
                    if self._stopped:
                        break
                    self._ready.append(item)
                    self._ready_rows += _rows_in(item)
                    self._made += 1
                    self._change.notify_all()
        except CatalogError as error:
            with self._change:
                self._error = error
        finally:
            with self._change:
                self._ended = True
                self._change.notify_all()
        if self._stopped:
            with contextlib.suppress(CatalogError):  # no caller waits for the iterable any more
                _closer(self._items, self._what)()

    def _has_room(self) -> bool:
        return len(self._ready) < AHEAD and self._ready_rows < ROWS_AHEAD

    def _taken(self, limit: int) -> list[Any]:
        """Items of about ``limit`` rows."""
        taken: list[Any] = []
        while self._ready and limit > 0:
            taken.append(self._ready.popleft())
            rows = _rows_in(taken[-1])
            self._ready_rows -= rows
            limit -= rows
        return taken

    def take(self, limit: int, timeout: float | None) -> Piece | End | None:
        while not self._pieces:
            with self._change:
                come = partial(self._change.wait_for, lambda: self._ready or self._ended)
                interruptible(come, timeout)
                taken = self._taken(limit)
                over, error = self._ended and not self._ready, self._error
                self._change.notify_all()
            if not taken:
                if error is not None:
                    raise error
                if over and self._rows.seen < self._skip:
                    raise _too_short(self._what, self._rows.seen, self._skip)
                return END if over else None
            self._pieces.extend(behind(self._rows.take(taken), self._skip))
        return self._pieces.popleft()

    def close(self) -> None:
        with self._change:
            self._stopped = True
            self._ready.clear()
            self._change.notify_all()
            waits = self._waits
        if self._thread is not threading.current_thread():
            self._thread.join(_CLOSING if waits else PATIENCE)
