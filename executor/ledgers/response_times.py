"""Response times of rows (in-order join paper, section 7.1): the time from reading a row to the end
of its processing. It includes the wait for rows of other inputs, the processing itself, and the
making of the output that the row contributes to."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from cql.executor.kernels.ingest import cutter
from cql.executor.kernels.morsel_layout import INFINITY
from cql.executor.morsel.ingest import Feed, Loaded
from cql.executor.run.input_scheduler import InputScheduler
from cql.executor.run.timers import Clock
from cql.executor.runtimes.protocol import Runtime


@dataclass(slots=True)
class _Block:
    """Rows read at time ``came`` (seconds), with their event ``times`` if inputs wait for each
    other. ``cuts`` has (rows cut so far, latest serial number then); the first ``through`` rows
    have left all operators. ``waiting`` flags the rows that are not done."""

    came: float
    rows: int
    times: npt.NDArray[np.int64] | None
    waiting: npt.NDArray[np.bool_]
    cuts: deque[tuple[int, int]] = field(default_factory=deque)
    cut: int = 0
    through: int = 0


class Responses:
    """Response times of a timed run. A row is done when all its output has left and, if inputs wait
    for each other (``waits``), when the watermarks of the other inputs have passed its time.
    Sampled between two morsels, over whole blocks: a row's response time ends at the first sample
    at which the row is done."""

    def __init__(self, feeds: Sequence[Feed], clock: Clock, *, waits: bool) -> None:
        self._feeds = feeds
        self._clock = clock
        self._waits = waits and len(feeds) > 1
        self._blocks: list[deque[_Block]] = [deque() for _ in feeds]
        self._rows = [0 for _ in feeds]
        self._seconds = [0.0 for _ in feeds]
        for k, feed in enumerate(feeds):
            feed.on_block = lambda loaded, k=k: self._came(k, loaded)

    def mean(self, k: int) -> float | None:
        """Mean response time per row of input ``k`` in nanoseconds; None if no row is done."""
        return 1e9 * self._seconds[k] / self._rows[k] if self._rows[k] else None

    def _came(self, k: int, loaded: Loaded) -> None:
        times = loaded.times[0] if self._waits and loaded.times else None
        waiting = np.ones(loaded.rows, np.bool_)
        self._blocks[k].append(_Block(self._clock(), loaded.rows, times, waiting))

    def note(self, scheduler: InputScheduler, runtime: Runtime, idle: Collection[int]) -> None:
        """Takes a sample. No input waits for ``idle`` inputs."""
        now = self._clock()
        for k, blocks in enumerate(self._blocks):
            if not blocks:
                continue
            bound = min(
                (self._reached(j, scheduler) for j in self._others(k, idle)), default=INFINITY
            )
            for n, block in enumerate(blocks):
                behind = len(blocks) - 1 - n - (self._feeds[k].pending is not None)
                self._goes_through(
                    block, self._cut(k, block, behind, scheduler), scheduler, runtime
                )
                done = self._done(block, bound)
                self._rows[k] += done
                self._seconds[k] += done * (now - block.came)
            while blocks and blocks[0].through == blocks[0].rows and not blocks[0].waiting.any():
                blocks.popleft()

    def _others(self, k: int, idle: Collection[int]) -> list[int]:
        if not self._waits:
            return []
        feeds = enumerate(self._feeds)
        return [j for j, feed in feeds if j != k and feed.attributes and j not in idle]

    def _reached(self, k: int, scheduler: InputScheduler) -> int:
        """The watermark of input ``k``: no later row of it lies below."""
        feed = self._feeds[k]
        if feed.ended and feed.pending is None and not scheduler.is_open(k):
            return INFINITY
        return feed.attributes[0].watermark()

    def _cut(self, k: int, block: _Block, behind: int, scheduler: InputScheduler) -> int:
        """The number of rows of a block that have been cut into morsels; ``behind`` later blocks of
        the same input have been opened."""
        if behind < 0:
            return 0
        if behind > 0 or not scheduler.is_open(k):
            return block.rows
        return min(int(self._feeds[k].cutter[cutter.NEXT]), block.rows)

    def _goes_through(
        self, block: _Block, rows: int, scheduler: InputScheduler, runtime: Runtime
    ) -> None:
        if rows > block.cut:
            block.cut = rows
            block.cuts.append((rows, scheduler.serial - 1))
        while block.cuts and runtime.is_through(block.cuts[0][1]):
            block.through, _ = block.cuts.popleft()

    @staticmethod
    def _done(block: _Block, bound: int) -> int:
        """The number of rows that are done now and were not done before."""
        done = block.waiting[: block.through]
        if block.times is not None and bound != INFINITY:
            done = done & (block.times[: block.through] < bound)
        count = int(done.sum())
        block.waiting[: block.through] &= ~done
        return count
