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
from cql.executor.kernels.signals.segments import (
    append,
    flat,
    release,
    retain,
    subseg,
)

_WINDOW = 5  # what a table is for
#: Of a Hann, a Hamming and a Blackman window: the mean, and the shares of one and of two turns.
WINDOWS = ((0.5, 0.5, 0.0), (0.54, 0.46, 0.0), (0.42, 0.5, 0.08))


@njit("int64(int64, int64, int64, int64)", nogil=True, cache=True)
def segment_part(g: int, first: int, n: int, serial: int) -> int:
    """The samples from number ``first`` on, to ``first + n``, that the segment has."""
    length, n = words(g, SEGMENT)[LENGTH], max(n, 0)
    if first < 0:
        first, n = 0, max(n + first, 0)
    first = min(first, length)
    return given(g, subseg(g, first, min(n, length - first)), serial)


@njit("int64(int64, int64, int64)", nogil=True, cache=True)
def segment_appended(g: int, h: int, serial: int) -> int:
    """The samples of both; ``h`` begins where ``g`` ends."""
    retain(g)
    made = append(g, h)
    if made == 0:
        release(g)
    return given(g, made, serial)


@njit("int64(int64, int64, int64)", nogil=True, cache=True)
def _window(s: int, n: int, shape: int) -> int:
    """The table of a window of ``n`` samples; 0: no room."""
    found = kept(s, _WINDOW, n, shape)
    if found != 0:
        return found
    made = new_table(_WINDOW, n, shape, n)
    if made != 0:
        values = as_f64(made + 8 * HEAD, n)
        a, b, c = WINDOWS[shape]
        for i in range(n):
            turn = 2.0 * math.pi * i / n
            values[i] = a - b * math.cos(turn) + c * math.cos(2.0 * turn) if n > 1 else 1.0
        keep(s, made, n)
    return made


@njit("int64(int64, int64, int64)", nogil=True, cache=True)
def segment_window(g: int, shape: int, serial: int) -> int:
    """The samples times a window, whose place in WINDOWS is ``shape``."""
    line = words(g, SEGMENT)
    n = line[LENGTH]
    table = _window(line[OWNER], n, shape)
    h = new(g, DOUBLE, n) if table != 0 else 0
    if h != 0 and n > 0:
        x, values = as_f64(flat(h), n), as_f64(table + 8 * HEAD, n)
        copy_doubles(g, x)
        for i in range(n):
            x[i] *= values[i]
    if table != 0:
        leave(table)
    return given(g, h, serial)
