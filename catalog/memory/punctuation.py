"""Punctuation among the items of a Python iterable (``cql.Punctuation``)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from cql.base.model import Field, Punctuation, Schema
from cql.catalog.convert import Column, article
from cql.errors import CatalogError, did_you_mean
from cql.executor.protocols import Mark

#: Makes a column of (values, their field, a place for messages, number of the first row).
Convert: TypeAlias = Callable[[list[Any], Field, str, int], Column]


def first_rows(items: Iterator[Any]) -> list[Any]:
    """The items up to and with the first that is not punctuation."""
    found: list[Any] = []
    for item in items:
        found.append(item)
        if not isinstance(item, Punctuation):
            break
    return found


class PutBack:
    """``items``, preceded by the items that were taken from it for inspection. ``close`` closes
    ``items``, because a generator's ``finally`` must run when a query stops."""

    def __init__(self, first: Sequence[Any], items: Iterator[Any]) -> None:
        self._first = deque(first)
        self._items = items

    def __iter__(self) -> PutBack:
        return self

    def __next__(self) -> Any:
        return self._first.popleft() if self._first else next(self._items)

    def close(self) -> None:
        self._first.clear()
        stop = getattr(self._items, "close", None)
        if stop is not None:
            stop()


def row_punctuation_of(
    items: Sequence[Any], schema: Schema, where: str, convert: Convert
) -> tuple[Mark, ...]:
    """The punctuation among single rows, with values in storage units. ``convert`` makes a column
    of Python values."""
    found: list[tuple[int, Punctuation]] = []
    rows = 0
    for item in items:
        if isinstance(item, Punctuation):
            found.append((rows, item))
        else:
            rows += 1
    values: dict[str, deque[int]] = {}
    for name in dict.fromkeys(mark.column for _, mark in found):
        at = schema.find(name)
        if at is None:
            raise CatalogError(
                f"{where}: punctuation on {name}, which is no column",
                hint=did_you_mean(name, schema.names, what="columns"),
            )
        if not schema[at].type.can_progress:
            raise CatalogError(
                f"{where}: punctuation on {name}, which is {article(schema[at].type)}",
                hint="a timestamp, a date or an integer can have a watermark",
            )
        given = [mark.value for _, mark in found if mark.column == name]
        column = convert(given, schema[at], f"{where}, punctuation", 0)
        if column.null_count:
            raise CatalogError(f"{where}: punctuation on {name} has no value")
        width = pa.int32() if column.type.bit_width == 32 else pa.int64()
        storage = column.view(width) if column.type.bit_width in (32, 64) else column
        values[name] = deque(storage.to_pylist())
    return tuple((row, mark.column, values[mark.column].popleft()) for row, mark in found)
