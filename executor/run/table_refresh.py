"""Tables that are read again on a schedule, while a stream without an end looks rows up in them.

A table changes for the stream between two turns: the rows that were admitted before see its old
version, those after it the new one. Where a source can tell its version, it is read again only when
that has changed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cql.executor.morsel.ingest import Feed
from cql.executor.protocols import Source
from cql.executor.run.timers import Clock

#: Of so many reads it is known from which row on the stream saw them.
_REMEMBERED = 1_000


@dataclass(slots=True)
class _State:
    """``due``: when it is looked at again, in seconds of the clock; ``version``: what was read
    (None: its source cannot tell)."""

    due: float
    version: Any


class Rereading:
    """``switches``: (table, stream position of the first row that can see it) of each version but
    the first."""

    def __init__(
        self, feeds: Sequence[Feed] = (), sources: Sequence[Source] = (), clock: Clock | None = None
    ) -> None:
        self.switches: deque[tuple[str, int]] = deque(maxlen=_REMEMBERED)
        self._feeds = feeds
        self._clock = clock
        self._states = {
            k: _State(clock() + refresh / 1e6, version_of(source))
            for k, (feed, source) in enumerate(zip(feeds, sources, strict=True))
            if (refresh := feed.source.refresh) is not None and clock is not None
        }

    def due(self) -> list[tuple[int, Source]]:
        """The tables that are to be read now, and what gives their rows."""
        found = []
        for k, state in self._states.items():
            assert self._clock is not None
            now = self._clock()
            if now < state.due:
                continue
            every = (self._feeds[k].source.refresh or 0) / 1e6
            state.due += every * (1 + (now - state.due) // every)
            source = self._feeds[k].source.relation.source()
            version = version_of(source)
            if version is None or version != state.version:
                state.version = version
                found.append((k, source))
        return found

    def end(self) -> None:
        """The run is over: nothing is read any more."""
        self._feeds, self._states = (), {}


def version_of(source: Source) -> Any:
    """What differs when the rows of a source do; None where it cannot tell."""
    version = getattr(source, "version", None)
    return None if version is None else version()
