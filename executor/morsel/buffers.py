"""A pool of output buffers: a page fault per 4 KB of fresh memory costs more than filling it.

A buffer inside an Arrow result returns to the pool when the last reference to the result is gone.
The state of windows returns when it has been outgrown and when its query ends. The pool keeps a
bounded number of bytes.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
KEPT_BYTES = 256 << 20
#: Smaller buffers are cheap to allocate, and too frequent for a finalizer each.
SMALLEST = 64 << 10
_BYTES = np.dtype(np.uint8)


class BufferPool:
    """Arrays by (dtype, length). Thread-safe, because each step is one list call."""

    def __init__(self) -> None:
        self._free: dict[tuple[str, int], list[Array]] = {}
        self.kept = 0

    def take(self, dtype: np.dtype[Any], n: int) -> Array:
        """An array of ``n`` values with arbitrary content."""
        waiting = self._free.get((dtype.str, n))
        if waiting:
            try:
                array = waiting.pop()
            except IndexError:  # another thread was faster
                return np.empty(n, dtype)
            self.kept -= array.nbytes
            return array
        return np.empty(n, dtype)

    def empty(self, dtype: npt.DTypeLike, n: int) -> Array:
        """Like ``numpy.empty``; the memory returns to the pool when the array and all its views
        are gone."""
        dtype = np.dtype(dtype)
        nbytes = n * dtype.itemsize
        if nbytes < SMALLEST:
            return np.empty(n, dtype)
        step = 1 << nbytes.bit_length() - 4  # rounds to few sizes, so that buffers are reused
        block = self.take(_BYTES, -(-nbytes // step) * step)
        # All views refer to ``shown``, because its own base is not an array.
        shown = np.frombuffer(block.data[:nbytes], _BYTES)
        weakref.finalize(shown, self.give, block).atexit = False
        return _shaped(shown, dtype, n)

    def zeros(self, dtype: npt.DTypeLike, n: int) -> Array:
        """``empty`` with zeros, written as bytes: numpy sets records field by field."""
        dtype = np.dtype(dtype)
        block = self.empty(_BYTES, n * dtype.itemsize)
        block[:] = 0
        return _shaped(block, dtype, n)

    def lend(self, array: Array, n: int) -> Array:
        """A view of the first ``n`` values; ``array`` returns to the pool when the view is
        gone."""
        view = array[:n]
        if array.nbytes >= SMALLEST:
            weakref.finalize(view, self.give, array).atexit = False
        return view

    def give(self, array: Array) -> None:
        """Takes back an unused array. A full pool first forgets all arrays, for it may be full of
        sizes that nobody takes any more."""
        if self.kept + array.nbytes > KEPT_BYTES:
            self._free, self.kept = {}, 0
        if array.nbytes <= KEPT_BYTES:
            self.kept += array.nbytes
            self._free.setdefault((array.dtype.str, array.size), []).append(array)


def _shaped(block: Array, dtype: np.dtype[Any], n: int) -> Array:
    """The bytes of ``block`` as ``n`` values."""
    element, inner = dtype.subdtype or (dtype, ())
    return block.view(element).reshape(n, *inner)


POOL = BufferPool()
