"""The arguments of a text function: columns, or literals that are the same in all rows."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from cql.executor.texts.column import ROOM, Column, Places, Texts
from cql.planner.nodes.expr import Literal

if TYPE_CHECKING:
    from cql.executor.texts.functions.table import Argument


def constant(arg: Argument) -> str | None:
    """The text of a literal; None for a column, or a literal that is no text."""
    return arg.value if isinstance(arg, Literal) and isinstance(arg.value, str) else None


def texts_in(arg: Argument, rows: int) -> Texts | None:
    """The texts or binaries of an argument; None if it has none."""
    if isinstance(arg, Column):
        return arg.values if isinstance(arg.values, Texts) else None
    raw = arg.value.encode() if isinstance(arg.value, str) else arg.value
    if not isinstance(raw, bytes):
        return None
    data = np.frombuffer(raw + bytes(ROOM), np.uint8)
    return Texts(data, _every(0, rows), _every(len(raw), rows))


def numbers_in(arg: Argument, rows: int) -> Places | None:
    """The whole numbers of an argument; None if it has none."""
    if isinstance(arg, Column):
        if isinstance(arg.values, Texts) or arg.values.dtype.kind != "i":
            return None
        return np.ascontiguousarray(arg.values, np.int64)
    if not isinstance(arg.value, int):
        return None
    return _every(arg.value, rows)


@lru_cache(maxsize=32)
def _every(value: int, rows: int) -> Places:
    """An array that all blocks share and nobody writes: kernels take no array that is read-only."""
    return np.full(rows, value, np.int64)
