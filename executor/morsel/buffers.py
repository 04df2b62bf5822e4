"""Output buffers that come back: fresh memory costs a page fault per 4 KB, more than filling it.

A buffer that left inside an Arrow result returns to the pool when nothing holds the result any
more, the state of windows when it has been outgrown and when its query is over; the pool keeps a
bounded amount.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
KEPT_BYTES = 256 << 20
#: Smaller buffers are cheap to make, and come back too often to be worth a finalizer.
SMALLEST = 64 << 10
_BYTES = np.dtype(np.uint8)


class BufferPool:
    """Arrays by (dtype, length); safe to use from several threads (each step is one list call)."""

    def __init__(self) -> None:
        self._free: dict[tuple[str, int], list[Array]] = {}
        self.kept = 0

    def take(self, dtype: np.dtype[Any], n: int) -> Array:
        """An array of that shape with any content."""
        waiting = self._free.get((dtype.str, n))
        if waiting:
            try:
                array = waiting.pop()
            except IndexError:  # another thread was faster
                return np.empty(n, dtype)
            self.kept -= array.nbytes
            return array
        return np.empty(n, dtype)

    def zeros(self, dtype: np.dtype[Any], n: int) -> Array:
        """As ``numpy.zeros``; its memory returns here when the array and all views of it are
        gone."""
        nbytes = n * dtype.itemsize
        if nbytes < SMALLEST:
            return np.zeros(n, dtype)
        step = 1 << nbytes.bit_length() - 4  # few sizes, each of which comes back
        block = self.take(_BYTES, -(-nbytes // step) * step)
        block[:nbytes] = 0
        # All views refer to this one, since its own base is no array.
        shown = np.frombuffer(block.data[:nbytes], _BYTES)
        weakref.finalize(shown, self.give, block).atexit = False
        element, inner = dtype.subdtype or (dtype, ())
        return shown.view(element).reshape(n, *inner)

    def lend(self, array: Array, n: int) -> Array:
        """The first ``n`` values, for good: the array returns here when the view is gone."""
        view = array[:n]
        if array.nbytes >= SMALLEST:
            weakref.finalize(view, self.give, array).atexit = False
        return view

    def give(self, array: Array) -> None:
        """Takes back an array that nobody uses any more."""
        if self.kept + array.nbytes <= KEPT_BYTES:
            self.kept += array.nbytes
            self._free.setdefault((array.dtype.str, array.size), []).append(array)


POOL = BufferPool()
