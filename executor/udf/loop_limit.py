"""Time limit of compiled user functions: every loop checks the clock now and then.

A compiled loop cannot be interrupted from outside. Each round increments a word, which holds the
rounds in its bits below ``_ROUNDS`` and the microsecond of the first clock check above them. A
function over its limit raises; Python then calls it once more (``udf.compile``), where the watch
ends the call (``cql.base.call_timeout``).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from cql.base.call_timeout import Limit
from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.clock import nanoseconds

#: log2 of the rounds between two clock checks.
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
