"""What each kernel of signals does with its output morsel: it opens it, and ends it with the
punctuations that it passes on."""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import njit
from cql.executor.kernels.drive.passing import send
from cql.executor.kernels.lib.memory import words
from cql.executor.kernels.morsel_layout import (
    END_OF_INPUT,
    EPOCH,
    IDLE,
    LATE_ROWS,
    PUNCTUATION_ADDRESS,
    PUNCTUATION_WORDS,
    PUNCTUATIONS,
    ROWS,
    SEQUENCE,
    SERIAL,
)


@njit(inline="always")
def begin(u: Any, o: Any, rows_out: int) -> None:
    """Opens output ``o`` of input ``u``, or goes on with it; ``rows_out``: rows that have left."""
    o[SERIAL], o[EPOCH], o[LATE_ROWS] = u[SERIAL], u[EPOCH], 0
    if o[ROWS] == 0:
        o[SEQUENCE] = rows_out


@njit("void(int64[::1], int64[::1], int64)", nogil=True, cache=True)
def pass_ends(u: Any, o: Any, n: int) -> None:
    """Passes the end of input ``u`` on, and that it is idle, behind the first ``n`` punctuations of
    output ``o``. Other punctuations do not pass: segments say themselves when they begin."""
    count = u[PUNCTUATIONS]
    arrived = words(u[PUNCTUATION_ADDRESS], PUNCTUATION_WORDS * count)
    leaving = words(o[PUNCTUATION_ADDRESS], PUNCTUATION_WORDS * (n + count))
    for p in range(count):
        attribute = arrived[PUNCTUATION_WORDS * p]
        if attribute in (END_OF_INPUT, IDLE):
            n = send(leaving, n, attribute, arrived[PUNCTUATION_WORDS * p + 1])
    o[PUNCTUATIONS] = n
