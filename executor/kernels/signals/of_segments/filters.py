"""Filters over the samples of a segment, which begin without earlier samples."""

from __future__ import annotations

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.memory import as_f64, words
from cql.executor.kernels.signals.layout import LENGTH, OWNER, SEGMENT
from cql.executor.kernels.signals.of_segments.results import DOUBLE, copy_doubles, given, new
from cql.executor.kernels.signals.segments import flat, make, release


@njit("int64(int64, int64, int64, int64, int64)", nogil=True, cache=True)
def segment_filtered(g: int, b: int, a: int, recursive: int, serial: int) -> int:
    """The samples through a filter with the coefficients ``b`` and, if it is ``recursive``, ``a``,
    of which the first is 1: in the transposed direct form II, as scipy.signal.lfilter."""
    n, size = words(g, SEGMENT)[LENGTH], words(b, SEGMENT)[LENGTH]
    poles = words(a, SEGMENT)[LENGTH] if recursive != 0 else 1
    order = max(size, poles) - 1
    h, sums = new(g, DOUBLE, n), int(make(words(g, SEGMENT)[OWNER], DOUBLE, 0, order + 1))
    if h != 0 and sums == 0:
        release(h)
        h = 0
    if h != 0 and n > 0:
        x, z = as_f64(flat(h), n), as_f64(flat(sums), order + 1)
        zeros, ones = as_f64(flat(b), size), as_f64(flat(a), poles)
        copy_doubles(g, x)
        z[:] = 0.0
        for i in range(n):
            v = x[i]
            w = zeros[0] * v + z[0]
            x[i] = w
            for k in range(order):
                z[k] = z[k + 1]
                if k + 1 < size:
                    z[k] += zeros[k + 1] * v
                if k + 1 < poles:
                    z[k] -= ones[k + 1] * w
    if sums != 0:
        release(sums)
    return given(g, h, serial)
