"""Table refresh: tables that an endless stream looks up are read again on a schedule.

A table changes for the stream between two turns: rows admitted before the change see the old
version, later rows the new one. If a source has versions, it is read again only when its version
has changed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cql.executor.morsel.ingest import Feed
from cql.executor.protocols import Source
from cql.executor.run.timers import Clock
from cql.executor.state.store import Snapshot
from cql.executor.state.texts import saved_texts, texts_of

#: The number of refreshes whose stream positions are kept.
_REMEMBERED = 1_000


@dataclass(slots=True)
class _State:
    """``due``: time of the next check, in seconds of the clock. ``version``: the version read last
    (None: the source has no versions)."""

    due: float
    version: Any


class Rereading:
    """The refreshed tables of a run. ``switches`` has (table, stream position of the first row that
    sees the new version), without the first version of each table."""

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
        """The tables to read now, each with its new source."""
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

    def snapshot(self) -> Snapshot:
        """The versions that were read, the microseconds until the next checks, and the switches.
        The rows of the tables are in the operators that hold them."""
        now = self._clock() if self._clock is not None else 0.0
        due = [int((state.due - now) * 1e6) for state in self._states.values()]
        parts = {
            "versions": saved_texts([_written(s.version) for s in self._states.values()]),
            "tables": saved_texts([name for name, _ in self.switches]),
        }
        switches = np.array([position for _, position in self.switches], np.int64)
        return Snapshot({"switches": switches}, np.array(due, np.int64), parts)

    def restore(self, saved: Snapshot) -> None:
        """Continues with the tables of a run of the same plan, in the versions that it had read.
        The next check compares these versions with the present ones."""
        now = self._clock() if self._clock is not None else 0.0
        versions = texts_of(saved.parts["versions"])
        states = zip(self._states.values(), saved.words.tolist(), versions, strict=True)
        for state, due, version in states:
            state.due = now + due / 1e6
            if version != _written(state.version):
                state.version = _Other()
        names = texts_of(saved.parts["tables"])
        for name, position in zip(names, saved.arrays["switches"].tolist(), strict=True):
            self.switches.append((name or "", position))

    def end(self) -> None:
        """Stops all refreshes at the end of the run."""
        self._feeds, self._states = (), {}


class _Other:
    """A version that equals no other."""


def _written(version: Any) -> str | None:
    """A version as a text, to be compared by another process; None if there is no version."""
    return None if version is None else repr(version)


def version_of(source: Source) -> Any:
    """A value that changes with the rows of a source; None if the source has no versions."""
    version = getattr(source, "version", None)
    return None if version is None else version()
