"""The monotonic clock, for kernels."""

from __future__ import annotations

from typing import Any

from numba import njit, types

from cql.executor.kernels.memory import words

_clock_gettime = types.ExternalFunction("clock_gettime", types.int32(types.int32, types.int64))
_MONOTONIC = 1


@njit(inline="always")
def nanoseconds(address: int) -> Any:
    """The time, which is written to the two words at ``address`` first: seconds, nanoseconds."""
    _clock_gettime(_MONOTONIC, address)
    scratch = words(address, 2)
    return scratch[0] * 1_000_000_000 + scratch[1]
