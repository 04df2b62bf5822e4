"""Segments that an operator keeps, in a checkpoint: their samples, and their places in time.

Another process has another store, in which segments and timebases have other numbers. Each segment
is saved alone: what an operator keeps of a channel is in one segment for each run, and windows that
overlap are cut from it again.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from cql.executor.kernels.signals import kept
from cql.executor.kernels.signals.timebase import USES
from cql.executor.morsel.sample_types import dtype_of_kind, number_of_kind
from cql.executor.operators.signals.segment_store import SegmentStore, Timebase
from cql.executor.state.store import Snapshot

# The words of a segment.
_KIND = 0  # of its samples (``layout.KINDS``)
_TIMEBASE = 1  # ``Timebase.words``
_START = _TIMEBASE + USES  # the number of its first sample there
_LENGTH = _START + 1
_WORDS = _LENGTH + 1


def save(store: SegmentStore, numbers: Iterable[int]) -> Snapshot:
    """The segments with these numbers, in this order."""
    words, samples = list[list[int]](), [np.empty(0, np.uint8)]
    for number in numbers:
        g = int(kept.address_of(store.address, number))
        own = store.samples(g)
        words.append(
            [number_of_kind(own.dtype), *store.timebase(g).words, store.start(g), len(own)]
        )
        samples.append(own.view(np.uint8))
    return Snapshot(
        {"samples": np.concatenate(samples)}, np.array(words, np.int64).reshape(len(words) * _WORDS)
    )


def restore(store: SegmentStore, saved: Snapshot) -> list[int]:
    """The numbers of the segments of ``save`` in this store, each with one reference.

    Raises RunError if there is no room for them."""
    found, at, data = list[int](), 0, saved.arrays["samples"]
    for line in saved.words.reshape(-1, _WORDS).tolist():
        base = store.number_of(Timebase.of(line[_TIMEBASE:_START]))
        kind = dtype_of_kind(line[_KIND])
        size = kind.itemsize * line[_LENGTH]
        made = store.make(base, line[_START], data[at : at + size].view(kind))
        store.leave(base)
        found.append(int(kept.number_of(store.address, made)))
        at += size
    store.check()
    return found
