"""Compiled functions of users under a time limit: every loop looks at the clock now and then.

Nothing outside can end a compiled loop. A word is counted up at each round; it holds the rounds
below ``_ROUNDS`` and, above them, the microsecond of the first look at the clock. A function that
is over its limit raises, and is called once more in Python (``user_code``), where the watch ends it
(``cql.base.call_timeout``).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from cql.base.call_timeout import Limit
from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.clock import nanoseconds

#: Between two looks at the clock; a power of two.
_BITS = 8
_ROUNDS = 1 << _BITS


@cache
def counter(limit: Limit) -> Any:
    """``f(word)``: the word after one more round; raises TimeoutError over the limit."""
    most = limit.microseconds

    @njit("int64(int64)", nogil=True)
    def look(word: int) -> Any:
        clock = np.empty(2, np.int64)
        now = nanoseconds(clock.ctypes.data) // 1000
        began = word >> _BITS
        if began == 0:
            return now << _BITS
        if now - began > most:
            raise TimeoutError
        return began << _BITS

    @njit("int64(int64)", nogil=True)
    def round_of_a_loop(word: int) -> Any:
        word += 1
        return word if word & (_ROUNDS - 1) else look(word - _ROUNDS)

    return round_of_a_loop
