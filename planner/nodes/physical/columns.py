"""Columns that operators append to their input or pass on from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from cql.base.model import Field, Schema
from cql.base.types import BIGINT
from cql.base.window import Window
from cql.planner.nodes.expr import Column, Expr, columns_of
from cql.planner.nodes.logical import WINDOW_COLUMNS
from cql.planner.nodes.watermarks import Wanted, add_wanted


def window_fields(schema: Schema, window: Window) -> list[Field]:
    """The columns with the bounds of ``window`` over an input of ``schema``."""
    assert window.wa is not None
    wa = schema[window.wa].type
    kind = BIGINT if wa.is_integer else wa
    return [Field(name, kind, False) for name in WINDOW_COLUMNS]


def forwarded_columns(shown: Sequence[int], columns: Iterable[int]) -> dict[int, int]:
    """The ``columns`` that are in ``shown``, by their indices in ``shown``."""
    live = frozenset(columns)
    return {k: c for k, c in enumerate(shown) if c in live}


def wanted_of(forwarded: Mapping[int, int], wanted: Wanted) -> Wanted:
    """The boundaries to await of the input columns that are ``forwarded`` to output columns, if
    ``wanted`` is awaited of the output."""
    below: Wanted = {}
    for column, origin in forwarded.items():
        if column in wanted:
            add_wanted(below, origin, wanted[column])
    return below


def column_at(schema: Schema, place: int) -> Column:
    """The expression that reads a column of ``schema``."""
    field = schema[place]
    return Column(place, field.name, field.type, field.nullable)


def coded_columns(schema: Schema) -> frozenset[int]:
    """The columns that kernels read as codes of the dictionary, once they are encoded."""
    return frozenset([k for k, f in enumerate(schema) if f.type.is_coded])


def coded_in(exprs: Iterable[Expr], schema: Schema) -> frozenset[int]:
    """The columns of ``coded_columns`` that ``exprs`` read."""
    return frozenset([c for c in columns_of(*exprs) if schema[c].type.is_coded])
