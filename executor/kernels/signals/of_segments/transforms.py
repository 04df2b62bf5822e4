"""Functions of a segment that give a segment of its samples. ``serial`` is the number of the morsel
for which it is made: it stays until that morsel is through (``segments.note_young``).
"""

from __future__ import annotations

import math

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.memory import as_f64, words
from cql.executor.kernels.signals.layout import LENGTH, OWNER, SEGMENT
from cql.executor.kernels.signals.of_segments.prepared import HEAD, keep, kept, leave, new_table
from cql.executor.kernels.signals.of_segments.results import DOUBLE, copy_doubles, given, new
from cql.executor.kernels.signals.segments import flat, subseg

_HANN = 5  # what a table is for


@njit("int64(int64, int64, int64, int64)", nogil=True, cache=True)
def segment_part(g: int, first: int, n: int, serial: int) -> int:
    """The samples from number ``first`` on, to ``first + n``, that the segment has."""
    length = words(g, SEGMENT)[LENGTH]
    end = min(max(first, 0) + max(n + min(first, 0), 0), length)
    first = min(max(first, 0), length)
    return given(g, subseg(g, first, max(end - first, 0)), serial)


@njit("int64(int64, int64)", nogil=True, cache=True)
def _hann(s: int, n: int) -> int:
    """The table of a Hann window of ``n`` samples; 0: no room."""
    found = kept(s, _HANN, n, 0)
    if found != 0:
        return found
    made = new_table(_HANN, n, 0, n)
    if made != 0:
        values = as_f64(made + 8 * HEAD, n)
        for i in range(n):
            values[i] = 0.5 - 0.5 * math.cos(2.0 * math.pi * i / n) if n > 1 else 1.0
        keep(s, made, n)
    return made


@njit("int64(int64, int64)", nogil=True, cache=True)
def segment_hann(g: int, serial: int) -> int:
    """The samples times a Hann window."""
    line = words(g, SEGMENT)
    n = line[LENGTH]
    table = _hann(line[OWNER], n)
    h = new(g, DOUBLE, n) if table != 0 else 0
    if h != 0 and n > 0:
        x, values = as_f64(flat(h), n), as_f64(table + 8 * HEAD, n)
        copy_doubles(g, x)
        for i in range(n):
            x[i] *= values[i]
    if table != 0:
        leave(table)
    return given(g, h, serial)
