"""Descriptors of sort orders (``kernels.order.sort_keys``)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cql.base.model import Schema
from cql.base.types import DataType
from cql.executor.kernels.order import sort_keys as kernel
from cql.executor.morsel.morsel import Words, value_bytes
from cql.planner.nodes.expr import Column
from cql.planner.nodes.logical import SortKey


def order_words(
    schema: Schema, keys: Sequence[SortKey], first: int, *, ranked: bool = True
) -> Words:
    """The descriptor of a sort by ``keys``, each a column of ``schema``. The words of the columns
    begin at word ``first``. Without ``ranked``, texts are in the order of their codes."""
    sizes = first + kernel.COLUMN_WORDS * len(schema)
    behind = sizes + len(schema)
    d = np.zeros(behind + kernel.KEY_WORDS * len(keys), np.int64)
    d[[kernel.COLUMNS, kernel.KEYS, kernel.AT]] = len(schema), len(keys), first
    d[kernel.WIDTH] = d.size
    d[kernel.TEXTS] = ranked and any(k.expr.type.is_text for k in keys)
    d[sizes:behind] = [value_bytes(f.type) for f in schema]
    for k, key in enumerate(keys):
        assert isinstance(key.expr, Column)
        at = behind + kernel.KEY_WORDS * k
        words = key.expr.index, _kind(key.expr.type, ranked), key.descending, key.nulls_first
        d[at : at + kernel.KEY_WORDS] = words
    return d


def _kind(kind: DataType, ranked: bool) -> int:
    if kind.is_text:
        return kernel.TEXT if ranked else kernel.INTEGER
    if kind.is_fraction:
        return kernel.DOUBLE if kind.storage == "float64" else kernel.FLOAT
    return kernel.INTEGER
