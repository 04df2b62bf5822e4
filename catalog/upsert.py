"""Tables with a PRIMARY KEY: a row that is written replaces the row of the same key.

A key has at most one row. Rows stand in the order in which their keys were written last. Each epoch
makes all rows of the table anew, which costs time in proportion to the table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cql.base.model import Field, Schema
from cql.base.types import NULL
from cql.catalog.convert import pick
from cql.catalog.sinks import Epoch
from cql.errors import CatalogError


def with_key(schema: Schema, key: Sequence[str], what: str) -> tuple[Schema, tuple[str, ...]]:
    """``schema`` with key columns that take no NULL, and the names of these columns as the schema
    spells them. Raises CatalogError for a key that the columns cannot have."""
    found = pick(schema, key, what)
    for field in found:
        if field.type.is_nested or field.type == NULL:
            raise CatalogError(
                f"{what}: column {field.name} is {field.type}, which is no PRIMARY KEY",
                hint="a key consists of columns with single values",
            )
    names = tuple(f.name for f in found)
    fields = tuple(replace(f, nullable=False) if f.name in names else f for f in schema)
    return Schema(fields), names


def key_numbers(columns: Sequence[pa.ChunkedArray]) -> npt.NDArray[np.int64]:
    """A number for each row, equal for rows with equal values in all ``columns`` (at least one).
    The numbers are dense, from 0. NULL equals NULL, NaN equals NaN, and -0.0 equals 0.0."""
    numbers: npt.NDArray[np.int64] | None = None
    for column in columns:
        codes = _codes(column)
        if numbers is None:
            numbers = codes
        else:  # both factors are at most the number of rows
            wide = numbers * (codes.max(initial=0) + 1) + codes
            numbers = _codes(pa.chunked_array([pa.array(wide)]))
    assert numbers is not None
    return numbers


def _codes(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    kind: Any = column.type
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
    elif pa.types.is_floating(kind):
        column = pc.add(column, pa.scalar(0.0, kind))
    elif pa.types.is_nested(kind):  # Arrow numbers no lists
        column = pa.chunked_array([pa.array([repr(v) for v in column.to_pylist()], pa.string())])
    encoded: Any = column.dictionary_encode(null_encoding="encode")
    parts = [chunk.indices.to_numpy() for chunk in encoded.chunks]
    return np.concatenate(parts).astype(np.int64) if parts else np.empty(0, np.int64)


def merged(
    table: pa.Table, rows: pa.Table, gone: pa.Table, key: Sequence[str], what: str
) -> pa.Table:
    """``table`` after ``rows``, of which the last one of each key counts, and without the keys in
    ``gone`` (columns ``key``). All tables have the types of ``table``.

    Raises CatalogError if two rows of ``table`` itself have one key."""
    names = list(key)
    keys = pa.concat_tables([table.select(names), rows.select(names), gone.select(names)])
    numbers = key_numbers(keys.columns)
    before = table.num_rows
    counts = np.bincount(numbers[:before])
    if counts.max(initial=0) > 1:
        at = int(np.flatnonzero(counts[numbers[:before]] > 1)[0])
        values = ", ".join(str(column[at]) for column in table.select(names).columns)
        raise CatalogError(
            f"{what}: several rows have the key {values} ({', '.join(names)})",
            hint="they were written by a table with another PRIMARY KEY: declare that key",
        )
    last = np.full(numbers.max(initial=-1) + 1, -1, np.int64)
    last[numbers] = np.arange(numbers.size)
    kept = np.zeros(before + rows.num_rows, np.bool_)
    kept[last[last < kept.size]] = True
    return pa.concat_tables([table, rows]).filter(pa.array(kept)).combine_chunks()


class UpsertSink(Epoch):
    """The sink of a table with a PRIMARY KEY. ``publish`` takes the rows of an epoch, in order, and
    the keys that leave the table, and returns the number of the epoch."""

    def __init__(
        self,
        source: Schema,
        target: Schema,
        key: Sequence[str],
        publish: Callable[[pa.Table, pa.Table], int],
        what: str,
    ) -> None:
        super().__init__(source, target, what)
        self._publish = publish
        self._arrow = target.to_arrow()
        self._keys = [Field(f.name, f.type, False) for f in pick(target, key, what)]
        self._rows: list[pa.RecordBatch] = []
        self._gone: list[pa.RecordBatch] = []
        self._places = [source.find(f.name) for f in self._keys]

    def begin(self) -> None:
        self._begin()
        self._rows, self._gone = [], []

    def write(self, batch: pa.RecordBatch) -> None:
        """Raises CatalogError for NULL in a column of the key."""
        for field, place in zip(self._keys, self._places, strict=True):
            column: Any = pa.nulls(0) if place is None else batch.column(place)
            if column.null_count:
                at = self._number + column.is_null().index(True).as_py()
                raise CatalogError(
                    f"{self._what}, row {at}: NULL in column {field.name}, which is of the PRIMARY"
                    " KEY",
                    hint=f"leave such rows out: WHERE {field.name} IS NOT NULL",
                )
        cast = self._cast(batch)
        if cast.num_rows:
            self._rows.append(cast)

    def delete(self, keys: pa.RecordBatch) -> None:
        """Removes the rows of the ``keys`` (the columns of the key, with the types of the table)
        from the table. A key without a row is no error."""
        self._gone.append(keys.drop_null())

    def commit(self) -> int:
        self._end()
        rows = pa.Table.from_batches(self._rows, self._arrow)
        keys = pa.schema([self._arrow.field(f.name) for f in self._keys])
        gone = pa.Table.from_batches([k.cast(keys) for k in self._gone], keys)
        self._rows, self._gone = [], []
        return self._publish(rows, gone)

    def abort(self) -> None:
        self._open = False
        self._rows, self._gone = [], []
