"""The native function of LATE OUTPUT: passes rows by reference. If a morsel has late rows, the
function first returns NEED, so that Python handles them."""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import cfunc
from cql.executor.kernels.drive.passing import pass_rows
from cql.executor.kernels.lib.memory import words
from cql.executor.kernels.morsel_layout import (
    DETAIL,
    DONE,
    HEADER,
    LATE_ROW_ADDRESS,
    LATE_ROWS,
    NEED,
    OUT,
    PHASE,
    PUNCTUATION_ADDRESS,
    PUNCTUATION_WORDS,
    PUNCTUATIONS,
    ROWS,
)

# Descriptor.
COLUMNS = 0
ROWS_SEEN = 1
WORDS = 2


@cfunc("int64(int64, int64)", nopython=True, cache=True)
def late_rows(desc: Any, morsel: Any) -> Any:
    d = words(desc, WORDS)
    width = HEADER + 2 * d[COLUMNS]
    u = words(morsel, width)
    if u[PHASE] == 0 and u[LATE_ROWS] > 0:
        u[DETAIL] = 0
        return NEED
    o = words(u[OUT], width)
    pass_rows(u, o, width)
    for k in (LATE_ROWS, LATE_ROW_ADDRESS, PUNCTUATIONS):
        o[k] = u[k]
    count = PUNCTUATION_WORDS * u[PUNCTUATIONS]
    arrived, leaving = words(u[PUNCTUATION_ADDRESS], count), words(o[PUNCTUATION_ADDRESS], count)
    for k in range(count):
        leaving[k] = arrived[k]
    d[ROWS_SEEN] += u[ROWS]
    return DONE
