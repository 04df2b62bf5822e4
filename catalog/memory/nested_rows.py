"""Columns of arrays and structs from Python's lists and mappings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from cql.base.foreign import object_text, type_name
from cql.base.model import Field
from cql.base.types import DataType
from cql.catalog.convert import Column, article
from cql.errors import CatalogError

#: Makes a column of Python values: (values, field, what, row).
Make = Callable[[list[Any], Field, str, int], Column]


def nested_column(values: list[Any], field: Field, what: str, row: int, make: Make) -> Column:
    """The values as a column of a nested type; ``make`` converts their parts. Raises CatalogError,
    which names the first row that does not fit."""
    try:
        return _column(values, field, what, row, make)
    except CatalogError:
        for i, value in enumerate(values):
            _check_one(value, field, what, row + i, make)
        raise


def _check_one(value: Any, field: Field, what: str, row: int, make: Make) -> None:
    try:
        _column([value], field, what, row, make)
    except CatalogError as error:
        raise CatalogError(
            f"{what}, row {row}, column {field.name}: {object_text(value)} ({type_name(value)}) is"
            f" not {article(field.type)}",
            hint=error.hint,
        ) from error


def _column(values: list[Any], field: Field, what: str, row: int, make: Make) -> Column:
    kind = field.type
    missing = [value is None for value in values]
    mask = pa.array(missing, pa.bool_()) if any(missing) else None
    if kind.element is not None:
        return _arrays(values, field, kind.element, mask, what, row, make)
    rows = [_members(value, kind, f"{what}, row {row}, column {field.name}") for value in values]
    parts = [
        make([members[k] for members in rows], Field(f"{field.name}.{name}", of), what, row)
        for k, (name, of) in enumerate(kind.fields)
    ]
    return pa.StructArray.from_arrays(parts, fields=list(kind.to_arrow()), mask=mask)


def _arrays(
    values: list[Any],
    field: Field,
    element: DataType,
    mask: Any,
    what: str,
    row: int,
    make: Make,
) -> Column:
    offsets, elements = [0], []
    for value in values:
        elements += _elements(value, f"{what}, row {row}, column {field.name}")
        offsets.append(len(elements))
    if not field.type.contains_null and any(e is None for e in elements):
        raise CatalogError(
            f"{what}, row {row}, column {field.name}: NULL in an array that holds none",
            hint="declare the column anew",
        )
    part = make(elements, Field(f"{field.name}[]", element), what, row)
    return pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32()), part, field.type.to_arrow(), mask=mask
    )


def _elements(value: Any, where: str) -> list[Any]:
    if value is None:
        return []
    if type_name(value) == "ndarray":
        value = value.tolist()
    if isinstance(value, list | tuple | set | frozenset):
        return list(value)
    raise CatalogError(
        f"{where}: {object_text(value)} ({type_name(value)}) is no list", hint="give a list"
    )


def _members(value: Any, kind: DataType, where: str) -> Sequence[Any]:
    """The values of the fields: of a mapping by their names, of a tuple in order."""
    names = [name for name, _ in kind.fields]
    if value is None:
        return [None] * len(names)
    if isinstance(value, Mapping):
        extra = next((str(k) for k in value if k not in names), None)
        if extra is None:
            return [value.get(name) for name in names]
        raise CatalogError(
            f"{where}: {extra} is no field of {kind}", hint="declare the field, or leave it out"
        )
    if isinstance(value, tuple | list) and len(value) == len(names):
        return list(value)
    raise CatalogError(
        f"{where}: {object_text(value)} ({type_name(value)}) is no struct",
        hint="give a mapping of names to values, None for NULL",
    )
