"""Segments that functions make for a morsel, and the samples of any kind as doubles.

A function that finds no room gives the empty segment of the store; the run fails behind the block.
"""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.atomics import load_acquire
from cql.executor.kernels.lib.memory import as_f32, as_f64, as_i8, as_i16, as_i32, words
from cql.executor.kernels.signals.layout import (
    BASE,
    EMPTY,
    FLAT,
    KIND,
    KINDS,
    LENGTH,
    OWNER,
    SEGMENT,
    START,
    STORE,
)
from cql.executor.kernels.signals.segments import (
    flat,
    in_rows,
    let_go,
    make,
    note_young,
    release,
)

DOUBLE = KINDS.index("float64")
COMPLEX = KINDS.index("complex128")


@njit("int64(int64, int64, int64)", nogil=True, cache=True)
def given(g: int, made: int, serial: int) -> int:
    """``made`` for the morsel with the number ``serial``, or the empty segment. ``g``: a segment of
    the same store."""
    if made == 0:
        return int(words(words(g, SEGMENT)[OWNER], STORE)[EMPTY])
    note_young(made, serial)
    return made


@njit("int64(int64, int64, int64)", nogil=True, cache=True)
def new(g: int, kind: int, n: int) -> int:
    """A new segment of ``n`` samples at the beginning of a segment in time; 0: no room."""
    line = words(g, SEGMENT)
    return int(make(line[OWNER], (line[BASE] & ~KIND) | kind, line[START], n))


@njit("void(int64, int64, int64, float64[::1])", nogil=True, cache=True)
def _copy_from_rows(kind: int, at: int, step: int, target: Any) -> None:
    """Samples that are ``step`` bytes apart, which is a multiple of their size."""
    n = target.size
    if kind == 0:
        target[:] = as_i8(at, step * (n - 1) + 1)[::step]
    elif kind == 1:
        target[:] = as_i16(at, step // 2 * (n - 1) + 1)[:: step // 2]
    elif kind == 2:
        target[:] = as_i32(at, step // 4 * (n - 1) + 1)[:: step // 4]
    elif kind == 3:
        target[:] = words(at, step // 8 * (n - 1) + 1)[:: step // 8]
    elif kind == 4:
        target[:] = as_f32(at, step // 4 * (n - 1) + 1)[:: step // 4]
    else:
        target[:] = as_f64(at, step // 8 * (n - 1) + 1)[:: step // 8]


@njit("void(int64, float64[::1])", nogil=True, cache=True)
def copy_doubles(g: int, target: Any) -> None:
    """The samples of a segment as doubles. Samples in rows stay there."""
    line = words(g, SEGMENT)
    n, kind = line[LENGTH], line[BASE] & KIND
    if load_acquire(g + 8 * FLAT) == 0:
        block, at, step = in_rows(g)
        if block >= 0:
            _copy_from_rows(kind, at, step, target[:n])
            let_go(line[OWNER], block)
            return
    at = flat(g)
    if at == 0:
        target[:n] = 0.0
    elif kind == 0:
        target[:n] = as_i8(at, n)
    elif kind == 1:
        target[:n] = as_i16(at, n)
    elif kind == 2:
        target[:n] = as_i32(at, n)
    elif kind == 3:
        target[:n] = words(at, n)
    elif kind == 4:
        target[:n] = as_f32(at, n)
    else:
        target[:n] = as_f64(at, n)


@njit("UniTuple(int64, 3)(int64)", nogil=True, cache=True)
def doubles(g: int) -> tuple[int, int, int]:
    """How many samples there are, the address of the first as a double, and what the caller gives
    to ``done``. Without room there are none."""
    line = words(g, SEGMENT)
    n = line[LENGTH]
    if n == 0:
        return 0, 0, 0
    if line[BASE] & KIND == DOUBLE:
        at = flat(g)
        return (n if at != 0 else 0), at, 0
    work = make(line[OWNER], DOUBLE, 0, n)
    if work == 0:
        return 0, 0, 0
    at = flat(work)
    copy_doubles(g, as_f64(at, n))
    return n, at, work


@njit("void(int64)", nogil=True, cache=True)
def done(work: int) -> None:
    """The caller no longer reads what ``doubles`` gave it."""
    if work != 0:
        release(work)
