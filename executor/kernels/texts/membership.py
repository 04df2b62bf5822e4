"""A set of texts, and which texts of a block are in it."""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.dictionary import text_hash
from cql.executor.kernels.lib.memory import same_bytes
from cql.executor.kernels.texts.numbers import SPANS
from cql.executor.kernels.texts.search import BYTES, FLAGS, PLACES


@njit(inline="always")
def _place(
    set_data: Any, set_starts: Any, set_ends: Any, slots: Any, data: Any, start: int, end: int
) -> int:
    """The place in ``slots`` of a text: it has the number of an equal text of the set plus 1, or
    0."""
    mask = slots.size - 1
    begin, here = set_data.ctypes.data, data.ctypes.data
    place = text_hash(here, start, end) & mask
    while slots[place] != 0:
        k = slots[place] - 1
        size = set_ends[k] - set_starts[k]
        if size == end - start and same_bytes(begin + set_starts[k], here + start, size):
            break
        place = (place + 1) & mask
    return place


@njit(f"void({BYTES}, {SPANS}, {SPANS}, {PLACES})", nogil=True, cache=True)
def build(data: Any, starts: Any, ends: Any, slots: Any) -> None:
    """Puts the numbers of the texts, from 1, into ``slots``: zeros, a power of two of them that is
    above the number of texts."""
    for k in range(starts.size):
        place = _place(data, starts, ends, slots, data, starts[k], ends[k])
        if slots[place] == 0:
            slots[place] = k + 1


@njit(
    f"void({BYTES}, {SPANS}, {SPANS}, {SPANS}, {BYTES}, {SPANS}, {SPANS}, {FLAGS})",
    nogil=True,
    cache=True,
)
def contained(
    set_data: Any,
    set_starts: Any,
    set_ends: Any,
    slots: Any,
    data: Any,
    starts: Any,
    ends: Any,
    out: Any,
) -> None:
    """Whether each text is in the set."""
    for i in range(starts.size):
        start, end = starts[i], max(starts[i], ends[i])
        place = _place(set_data, set_starts, set_ends, slots, data, start, end)
        out[i] = slots[place] != 0
