"""Builds texts from parts of others: copies, joins, replacements."""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import njit
from cql.executor.kernels.texts.block import copy
from cql.executor.kernels.texts.search import BYTES, FLAGS, PLACES


@njit(f"void({BYTES}, {PLACES}, {PLACES}, {PLACES}, {FLAGS})", nogil=True, cache=True)
def gather(data: Any, starts: Any, ends: Any, offsets: Any, out: Any) -> None:
    """Copies text *i* to ``out[offsets[i]:]``, in this order."""
    begin, target = data.ctypes.data, out.ctypes.data
    source_end, target_end = begin + data.size, target + out.size
    for i in range(starts.size):
        n = ends[i] - starts[i]
        copy(begin + starts[i], source_end, target + offsets[i], target_end, n)


@njit(f"void({BYTES}, {PLACES}, {PLACES}, {PLACES}, {FLAGS})", nogil=True, cache=True)
def append(data: Any, starts: Any, ends: Any, at: Any, out: Any) -> None:
    """Copies text *i* to ``out[at[i]:]`` and moves ``at[i]`` behind it, byte by byte: what lies
    behind may be written already."""
    begin, target = data.ctypes.data, out.ctypes.data
    source_end = begin + data.size
    for i in range(starts.size):
        n = ends[i] - starts[i]
        copy(begin + starts[i], source_end, target + at[i], target + at[i] + n, n)
        at[i] += n
