"""What has state: it declares the objects that hold parts of it, and where it has codes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cql.executor.state.codes import Change, Codes, renumber


class Stateful:
    """An operator, or an object that holds a part of its state."""

    @property
    def parts(self) -> Sequence[Stateful]:
        """The objects that hold its state, such as a store of arrays or an index of keys."""
        return ()

    @property
    def nbytes(self) -> int:
        """Bytes of the state. Other threads may ask."""
        return sum(part.nbytes for part in self.parts)

    def codes(self) -> Iterator[Codes]:
        """All dictionary codes in the state. Call it only while no morsel is inside: what is left
        of the last one goes, and so do texts that no row has any more."""
        for part in self.parts:
            yield from part.codes()

    def recoded(self) -> None:
        """Rebuilds what follows from codes, which have changed."""
        for part in self.parts:
            part.recoded()

    def map_codes(self, change: Change) -> None:
        """Replaces all dictionary codes in the state by ``change(codes)``."""
        if renumber(self.codes(), change):
            self.recoded()
