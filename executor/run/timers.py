"""Timers of unbounded inputs: idleness and heartbeats (out-of-order paper §5.1 and A.1.1). They run
only after a source had no rows to give, so a replay of any duration is never affected."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from cql.executor.kernels.morsel_layout import IDLE, NEVER, PUNCTUATIONS
from cql.executor.morsel.ingest import Feed
from cql.executor.morsel.morsel import Morsel
from cql.executor.state.store import Snapshot

Clock = Callable[[], float]
#: Seconds of IDLE AFTER, unless declared.
IDLE_AFTER = 5.0


@dataclass(slots=True)
class _State:
    """``received``: when data came last, in seconds of the clock. ``times``: the highest event
    times then. ``beats``: heartbeats since."""

    received: float
    times: list[int]
    beats: int = 0
    idle: bool = False


class Timers:
    """The timers of a query; bounded inputs have none."""

    def __init__(self, clock: Clock) -> None:
        self._feeds: Sequence[Feed] = ()
        self._clock = clock
        self._states: dict[int, _State] = {}

    def begin(self, feeds: Sequence[Feed]) -> None:
        """Starts the timers of the inputs ``feeds``: data of each have come now."""
        self._feeds, now = feeds, self._clock()
        self._states = {
            k: _State(now, [NEVER] * len(feed.attributes))
            for k, feed in enumerate(feeds)
            if not feed.source.relation.bounded
        }

    def is_idle(self, k: int) -> bool:
        state = self._states.get(k)
        return state is not None and state.idle

    def received(self, k: int) -> bool:
        """Notes a new block of input ``k``; returns whether the input was idle before."""
        state = self._states.get(k)
        if state is None:
            return False
        state.received, state.beats = self._clock(), 0
        woken, state.idle = state.idle, False
        return woken

    def taken(self, k: int) -> None:
        """Notes that the block of input ``k`` has been admitted entirely."""
        if k in self._states:
            self._states[k].times = [a.highest for a in self._feeds[k].attributes]

    def falls_idle(self, k: int) -> bool:
        """Whether input ``k``, which has no rows to give, becomes idle now. A single input never
        does, nor one that keeps rows for later, and an input with a heartbeat only if IDLE AFTER is
        declared: the heartbeat advances its watermark in silence."""
        state, feed = self._states.get(k), self._feeds[k]
        if state is None or state.idle or len(self._feeds) < 2 or feed.keeps_rows:
            return False
        after = self._idle_after(feed)
        state.idle = after is not None and self._clock() - state.received >= after
        return state.idle

    @staticmethod
    def _idle_after(feed: Feed) -> float | None:
        spec = feed.source.relation.stream
        if spec is not None and spec.idle_after is not None:
            return spec.idle_after / 1e6
        return None if spec is not None and spec.heartbeat is not None else IDLE_AFTER

    def beat(self, k: int) -> bool:
        """Raises the watermark of input ``k`` to last data time + elapsed - slack, if its heartbeat
        is due; returns whether it was due. Rows that the input keeps for later hold it back."""
        state, feed = self._states.get(k), self._feeds[k]
        spec = feed.source.relation.stream
        if state is None or spec is None or spec.heartbeat is None or feed.keeps_rows:
            return False
        elapsed, every = int((self._clock() - state.received) * 1e6), spec.heartbeat.every
        if elapsed // every == state.beats:
            return False
        state.beats = elapsed // every
        for attribute, time in zip(feed.attributes, state.times, strict=True):
            if attribute.field.type.is_timestamp and time != NEVER:
                attribute.punctuate(time + elapsed - spec.heartbeat.slack)
        return True

    def snapshot(self) -> Snapshot:
        """The timers, with the microseconds since data came last."""
        now = self._clock()
        states = self._states.values()
        arrays = {f"times {k}": np.array(s.times, np.int64) for k, s in self._states.items()}
        words = [(int((now - s.received) * 1e6), s.beats, s.idle) for s in states]
        return Snapshot(arrays, np.array(words, np.int64).ravel())

    def restore(self, saved: Snapshot) -> None:
        """Continues with the timers of a run of the same plan: the time between the two runs does
        not count."""
        now = self._clock()
        words = saved.words.reshape(-1, 3).tolist()
        for (k, state), (elapsed, beats, idle) in zip(self._states.items(), words, strict=True):
            state.received, state.beats, state.idle = now - elapsed / 1e6, beats, bool(idle)
            state.times = saved.arrays[f"times {k}"].tolist()


def reported_idle(feed: Feed, serial: int, sequence: int, *, idle: bool) -> Morsel:
    """A morsel without rows whose punctuation reports input idle or active again."""
    morsel = feed.empty_morsel(serial, sequence)
    morsel.words[PUNCTUATIONS] = 1
    morsel.punctuations[:3] = IDLE, int(idle), -1
    return morsel
