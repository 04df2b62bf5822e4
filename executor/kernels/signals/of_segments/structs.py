"""Segments of structs: their fields share the samples, and segments become the fields of one."""

from __future__ import annotations

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.memory import as_i8, as_i16, as_i32, words
from cql.executor.kernels.signals.layout import BASE, LENGTH, SEGMENT
from cql.executor.kernels.signals.of_segments.results import given, new
from cql.executor.kernels.signals.segments import copy_out, field_of, flat, sample_bytes


@njit("int64(int64, int64, int64, int64)", nogil=True, cache=True)
def segment_field(g: int, offset: int, kind: int, serial: int) -> int:
    """The field of a segment of structs that begins ``offset`` bytes behind them, and whose samples
    are of a ``kind``."""
    return given(g, field_of(g, offset, kind), serial)


@njit("int64(int64, int64)", nogil=True, cache=True)
def segment_of_structs(g: int, kind: int) -> int:
    """A new segment of as many structs as ``g`` has samples; 0: no room."""
    return new(g, kind, words(g, SEGMENT)[LENGTH])


@njit("int64(int64, int64, int64)", nogil=True, cache=True)
def segment_given(g: int, made: int, serial: int) -> int:
    """``results.given``."""
    return given(g, made, serial)


@njit("void(int64, int64, int64)", nogil=True, cache=True)
def with_field(h: int, g: int, offset: int) -> None:
    """Writes the samples of ``g`` as a field to the structs of ``h``."""
    n, size = words(g, SEGMENT)[LENGTH], sample_bytes(words(g, SEGMENT)[BASE])
    if h == 0 or n == 0:
        return
    target, source = flat(h) + offset, flat(g)
    step = sample_bytes(words(h, SEGMENT)[BASE])
    if source == 0:
        return
    if size == 8:
        wide, k = words(target, step // 8 * (n - 1) + 1), step // 8
        wide[::k] = words(source, n)
    elif size == 4:
        half, k = as_i32(target, step // 4 * (n - 1) + 1), step // 4
        half[::k] = as_i32(source, n)
    elif size == 2:
        small, k = as_i16(target, step // 2 * (n - 1) + 1), step // 2
        small[::k] = as_i16(source, n)
    elif size == 1:
        least = as_i8(target, step * (n - 1) + 1)
        least[::step] = as_i8(source, n)
    else:
        for i in range(n):
            copy_out(g, i, 1, target + step * i)
