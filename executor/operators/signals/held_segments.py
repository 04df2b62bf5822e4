"""What operators over one signal share that keep a segment of each channel."""

from __future__ import annotations

import numpy as np

from cql.executor.morsel.morsel import Morsel, Words
from cql.executor.operators.contract import Operator
from cql.executor.operators.signals import saved_segments
from cql.executor.operators.workspace import Workspace
from cql.executor.state.store import Snapshot, plain_words, take_plain_words


class HoldsSegments(Operator):
    """The descriptor's words ``addresses`` are of this process. From the word ``first`` on stand
    the numbers of the segments of the ``channels``, -1 for none."""

    def __init__(
        self, name: str, workspace: Workspace, first: int, channels: int, addresses: tuple[int, ...]
    ) -> None:
        self.name, self._store = name, workspace.signals
        self._first, self._addresses = first, addresses
        self.descriptor: Words = np.zeros(first + channels, np.int64)
        self.descriptor[first:] = -1

    @property
    def fills(self) -> bool:
        return True

    def provide(self, morsel: Morsel) -> None:
        """The store is full: raises RunError."""
        self._store.check()

    def snapshot(self) -> Snapshot:
        """The words, and the segments that are kept."""
        held = [n for n in self.descriptor[self._first :].tolist() if n >= 0]
        parts = {"segments": saved_segments.save(self._store, held)}
        return Snapshot({}, plain_words(self.descriptor, self._bound()), parts)

    def restore(self, saved: Snapshot) -> None:
        """Continues with the state of an operator of the same plan."""
        take_plain_words(saved.words, self.descriptor, self._bound(), self.name)
        held = saved_segments.restore(self._store, saved.parts["segments"])
        self.descriptor[self._first : self._first + len(held)] = held

    def _bound(self) -> list[int]:
        """The words that belong to this process: addresses, and the numbers of segments."""
        return [*self._addresses, *range(self._first, self.descriptor.size)]
