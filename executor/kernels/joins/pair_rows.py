"""The rows of pairs as output: the values of two rows, each in the slab of its side, or NULLs.

The slots of the pairs' rows are at the PLACES of both sides, below 0 where a side has no row. Each
output column has OF_OUTPUT words.
"""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.memory import as_i32, as_u8
from cql.executor.kernels.morsel_layout import HEADER
from cql.executor.kernels.order.row_slab import CHOSEN, PLACES, SLOTS
from cql.executor.kernels.order.sort_keys import DATA, MASK, column_at, move_values, size_of

LEFT, RIGHT = range(2)
OF_OUTPUT = 3
#: Words of an output column: the side (LEFT or RIGHT), its column there, and whether the output may
#: be NULL.
SIDE, COLUMN, NULLABLE = range(OF_OUTPUT)


@njit("void(int64[::1], int64[::1], int64[::1], int64[::1], int64)", nogil=True, cache=True)
def give_pairs(left: Any, right: Any, outputs: Any, o: Any, n: int) -> None:
    """Copies the rows of ``n`` pairs to the output columns; their slots below 0 become 0.
    ``outputs`` has OF_OUTPUT words per column."""
    to = as_i32(left[CHOSEN], n)
    for i in range(n):
        to[i] = i
    for k in range(outputs.size // OF_OUTPUT):
        at = OF_OUTPUT * k
        if outputs[at + NULLABLE] == 0:
            continue
        s = left if outputs[at + SIDE] == LEFT else right
        places, mask = as_i32(s[PLACES], n), s[column_at(s, outputs[at + COLUMN]) + MASK]
        given = as_u8(o[HEADER + 2 * k + 1], n)
        there = as_u8(mask, s[SLOTS] if mask != 0 else 0)
        for i in range(n):
            given[i] = places[i] >= 0 and (mask == 0 or there[places[i]] != 0)
    for s in (left, right):
        places = as_i32(s[PLACES], n)
        for i in range(n):
            places[i] = max(places[i], 0)
    for k in range(outputs.size // OF_OUTPUT):
        at = OF_OUTPUT * k
        s = left if outputs[at + SIDE] == LEFT else right
        c, places = outputs[at + COLUMN], as_i32(s[PLACES], n)
        move_values(size_of(s, c), s[column_at(s, c) + DATA], o[HEADER + 2 * k], places, to, n)
