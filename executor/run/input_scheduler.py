"""Whose turn it is among the inputs of a running query, and the numbers of what they give.

Where rows of one input wait for those of another (a join), turns are short, so that no more waits
than time asks for; where progress is deduced from the order of arrival, bounded inputs are read in
the order of their times; otherwise an input gives whole blocks. Turns never depend on the size of
morsels.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np

from cql.executor.graph.graph import Edge
from cql.executor.kernels.ingest import cutter, input_scheduler
from cql.executor.kernels.morsel_layout import INFINITY
from cql.executor.morsel.ingest import Feed, Loaded
from cql.executor.morsel.morsel import Morsel, Words
from cql.executor.operators.stage.operator import CodeColumn

#: Rows of a short turn.
SHORT = 1 << 11


class InputScheduler:
    """``words`` is the table that kernels read (``kernels.ingest.input_scheduler``). ``most``
    blocks of an input may be read at once, by workers that are ahead and others that are behind; of
    the inputs ``ahead`` the runtime may have one more read (``read_ahead``). ``by_time``: inputs
    that have an end are read in the order of their times (out-of-order paper §2, option 2)."""

    def __init__(
        self,
        feeds: Sequence[Feed],
        entries: Sequence[Edge | None],
        short: bool,
        most: int = 1,
        ahead: Collection[int] = (),
        *,
        by_time: bool = False,
    ) -> None:
        self.feeds = feeds
        self.entries = entries
        self.words: Words = np.zeros(
            input_scheduler.HEADER + input_scheduler.INPUT * len(feeds), np.int64
        )
        self.words[input_scheduler.INPUTS] = len(feeds)
        self.words[input_scheduler.CURRENT] = -1
        self.words[input_scheduler.UNTIL] = INFINITY
        self.words[input_scheduler.TURN_ROWS] = SHORT if short and len(feeds) > 1 else INFINITY
        self._most, self._ahead, self._by_time = most, ahead, by_time
        #: Of each input the blocks that may be read, and the first serial number of each.
        self._blocks: list[list[tuple[int, Loaded]]] = [[] for _ in feeds]
        for k, (feed, edge) in enumerate(zip(feeds, entries, strict=False)):  # none: [None]
            record = self._record(k)
            record[input_scheduler.OF_CUTTER] = feed.cutter.ctypes.data
            record[input_scheduler.MORSEL] = feed.morsel.address
            if edge is not None:
                record[input_scheduler.OPERATOR], record[input_scheduler.PORT] = (
                    edge.target,
                    edge.port,
                )

    def _record(self, k: int) -> Words:
        first = input_scheduler.HEADER + input_scheduler.INPUT * k
        return self.words[first : first + input_scheduler.INPUT]

    def among(self, alive: set[int]) -> None:
        """These inputs take turns from now on. One without a block is waited for, unless some have
        no end."""
        for k in range(len(self.feeds)):
            self._record(k)[input_scheduler.ALIVE] = k in alive
        endless = not all(self.feeds[k].source.relation.bounded for k in alive)
        self.words[input_scheduler.ANY] = endless
        self.words[input_scheduler.BY_TIME] = self._by_time and not endless and len(alive) > 1

    def give_up(self, alive: set[int]) -> None:
        """The turn at hand ends, and only these inputs have any from now on; nothing is inside."""
        self.words[[input_scheduler.LEFT, input_scheduler.STOPPED]] = 0
        self.among(alive)

    def open(self, k: int) -> Loaded:
        """The pending block of an input is cut from now on; what ``leaving`` tells is through."""
        blocks, loaded = self._blocks[k], self.feeds[k].begin()
        blocks.append((self.serial, loaded))
        del blocks[: -self._most]
        self._record(k)[input_scheduler.OPEN], self._record(k)[input_scheduler.AHEAD] = (
            1,
            k in self._ahead,
        )
        return loaded

    def read_ahead(self) -> None:
        """The next block of an input is read while workers are busy with the one that is open."""
        self.feeds[int(self.words[input_scheduler.READS])].read_ahead()

    def leaving(self, k: int) -> int:
        """The last serial number of the block that is let go when input ``k`` opens another; -1:
        there is none. (Where a single one may be read, all has to be through.)"""
        blocks = self._blocks[k]
        return blocks[1][0] - 1 if len(blocks) == self._most else -1

    def hold(self, serial: int) -> None:
        """No morsel is cut that would have that serial number."""
        self.words[input_scheduler.UNTIL] = serial

    def stop(self) -> None:
        """No morsel is cut until ``go_on`` or ``give_up``."""
        self.words[input_scheduler.STOPPED] = 1

    def go_on(self) -> None:
        self.words[input_scheduler.STOPPED] = 0

    @property
    def stopped(self) -> int:
        """The address of the word that ``stop`` sets, for kernels."""
        return int(self.words[input_scheduler.STOPPED :].ctypes.data)

    def is_open(self, k: int) -> bool:
        """Whether a block of input ``k`` is being cut."""
        return bool(self._record(k)[input_scheduler.OPEN])

    def in_order(self, alive: set[int]) -> list[int]:
        """The inputs, those that are furthest behind first."""
        return sorted(
            alive, key=lambda k: (input_scheduler.position(self.feeds[k].cutter.ctypes.data), k)
        )

    def whose(self) -> int:
        """Whose turn it is; -1: there is none."""
        return int(input_scheduler.whose(self.words.ctypes.data))

    def take(self) -> bool:
        """Cuts the next morsel; False if the input whose turn it is has no block (any more)."""
        return bool(input_scheduler.take(self.words.ctypes.data))

    @property
    def is_over(self) -> bool:
        """Whether the next morsel begins another turn."""
        return int(self.words[input_scheduler.LEFT]) <= 0

    @property
    def current(self) -> int | None:
        """The input of the latest morsel."""
        k = int(self.words[input_scheduler.CURRENT])
        return k if k >= 0 else None

    def block_of(self, k: int | None, serial: int) -> tuple[int, Loaded | None]:
        """Input ``k``, and the block of it that the morsel of that number was cut off (None: the
        latest morsel); rows that stand in the query have none."""
        if k is None:
            k, serial = self.current, INFINITY
        if k is None or k >= len(self._blocks):
            return 0, None
        found = (block for first, block in reversed(self._blocks[k]) if first <= serial)
        return k, next(found, None)

    @property
    def first(self) -> int:
        """Stream position of the first row of the block, had it been read at once."""
        return int(self.feeds[int(self.words[input_scheduler.CURRENT])].cutter[cutter.FIRST])

    @property
    def began(self) -> int:
        """Serial number of the first morsel of this turn."""
        return int(self.words[input_scheduler.BEGAN])

    @property
    def serial(self) -> int:
        return int(self.words[input_scheduler.SERIAL])

    @property
    def sequence(self) -> int:
        return int(self.words[input_scheduler.SEQUENCE])

    def passed(self) -> None:
        """A morsel without rows has taken a number."""
        self.words[input_scheduler.SERIAL] += 1

    @property
    def morsel(self) -> Morsel:
        """The latest morsel."""
        return self.feeds[int(self.words[input_scheduler.CURRENT])].morsel

    @property
    def edge(self) -> Edge:
        """Who takes it."""
        edge = self.entries[int(self.words[input_scheduler.CURRENT])]
        assert edge is not None
        return edge

    def map_codes(self, change: Callable[[CodeColumn], CodeColumn]) -> None:
        """Changes the codes of texts in the blocks that are open or pending; nothing else is
        inside."""
        for k, (feed, blocks) in enumerate(zip(self.feeds, self._blocks, strict=True)):
            if feed.pending is not None:
                feed.map_codes(feed.pending, change)
            if blocks and self.is_open(k):
                _, block = blocks[-1]
                feed.map_codes(block, change)
                feed.give_columns(block)
