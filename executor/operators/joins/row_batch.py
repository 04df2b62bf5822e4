"""Rows that an operator holds, as flat arrays: ``c<i>`` and ``m<i>``, data and mask of column i."""

from __future__ import annotations

from collections.abc import Callable, MutableSequence, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from cql.base.model import Schema
from cql.executor.kernels.morsel_layout import (
    ROWS,
    data_word,
    mask_word,
)
from cql.executor.morsel.egress import view_address
from cql.executor.morsel.morsel import Morsel, stored_dtype
from cql.executor.state.store import State

Array = npt.NDArray[Any]
Join: TypeAlias = Callable[[Sequence[State]], State]


def columns_of(schema: Schema) -> list[tuple[str, int, np.dtype[Any]]]:
    """For each array of rows of ``schema``: its name, its word in a morsel, its dtype."""
    found = []
    for i, f in enumerate(schema):
        dtype = stored_dtype(f.type.storage)
        found.append((f"c{i}", data_word(i), dtype))
        found.append((f"m{i}", mask_word(i), np.dtype(np.uint8)))
    return found


def rows_of(morsel: Morsel, schema: Schema) -> State:
    """A morsel's rows, copied."""
    words = morsel.words
    n = int(words[ROWS])
    return {name: view_address(int(words[w]), t, n).copy() for name, w, t in columns_of(schema)}


def count(rows: State) -> int:
    """The number of rows; rows have at least one column."""
    return int(rows["c0"].size)


def take(rows: State, which: Array | slice) -> State:
    return {name: column[which] for name, column in rows.items()}


def joined(parts: Sequence[State]) -> State:
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}


def append_part(parts: MutableSequence[State], rows: State, join: Join = joined) -> None:
    """Appends a part, and joins it with the part before while that part has at most twice its rows.
    This keeps the number of parts and the copies per row logarithmic in the number of rows."""
    parts.append(rows)
    while len(parts) > 1 and count(parts[-2]) <= 2 * count(parts[-1]):
        last = parts.pop()
        parts[-1] = join([parts[-1], last])


def nbytes(parts: Sequence[State]) -> int:
    return sum(a.nbytes for part in parts for a in list(part.values()))
