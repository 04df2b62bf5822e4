"""The input scheduler: which input gives the next morsels, and their serial numbers.

If rows of one input wait for those of another (a join), turns are short, so that few rows wait. If
watermarks are deduced from the order of arrival, bounded inputs are read in event-time order.
Otherwise an input gives whole blocks. Turns never depend on the morsel size.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from cql.executor.graph.graph import Edge
from cql.executor.kernels.ingest import cutter, input_scheduler
from cql.executor.kernels.morsel_layout import INFINITY
from cql.executor.morsel.ingest import Feed, Loaded
from cql.executor.morsel.morsel import Morsel, Words
from cql.executor.state.codes import Change
from cql.executor.state.store import Snapshot, plain_words, take_plain_words

#: Rows of a short turn.
SHORT = 1 << 11


class InputScheduler:
    """``words`` is the table that kernels read (``kernels.ingest.input_scheduler``). At most
    ``most`` blocks of an input stay readable at once, because some workers are ahead of others. The
    runtime may read one more block of the inputs ``ahead`` (``read_ahead``). ``by_time``: bounded
    inputs are read in event-time order (out-of-order paper §2, option 2)."""

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
        self.address = int(self.words.ctypes.data)
        self.words[input_scheduler.INPUTS] = len(feeds)
        self.words[input_scheduler.CURRENT] = -1
        self.words[input_scheduler.UNTIL] = INFINITY
        self.words[input_scheduler.TURN_ROWS] = SHORT if short and len(feeds) > 1 else INFINITY
        self._most, self._ahead, self._by_time = most, ahead, by_time
        #: Per input: its readable blocks, each with the serial number of its first morsel.
        self._blocks: list[list[tuple[int, Loaded]]] = [[] for _ in feeds]
        self._records = list(
            self.words[input_scheduler.HEADER :].reshape(-1, input_scheduler.INPUT)
        )
        for feed, edge, record in zip(feeds, entries, self._records, strict=False):  # none: [None]
            record[input_scheduler.OF_CUTTER] = feed.cutter.ctypes.data
            record[input_scheduler.MORSEL] = feed.morsel.address
            if edge is not None:
                record[input_scheduler.OPERATOR], record[input_scheduler.PORT] = (
                    edge.target,
                    edge.port,
                )

    def among(self, alive: set[int]) -> None:
        """Restricts turns to the inputs ``alive``. The scheduler waits for an input without a
        block, unless one of the inputs is unbounded."""
        for k, record in enumerate(self._records):
            record[input_scheduler.ALIVE] = k in alive
        endless = not all(self.feeds[k].source.relation.bounded for k in alive)
        self.words[input_scheduler.ANY] = endless
        self.words[input_scheduler.BY_TIME] = self._by_time and not endless and len(alive) > 1

    def give_up(self, alive: set[int]) -> None:
        """Ends the current turn and restricts turns to the inputs ``alive``. Call it while no
        morsel is inside."""
        self.words[[input_scheduler.LEFT, input_scheduler.STOPPED]] = 0
        self.among(alive)

    def open(self, k: int) -> Loaded:
        """Starts to cut the pending block of input ``k``. Call it when the morsels up to
        ``leaving(k)`` are through."""
        blocks, loaded = self._blocks[k], self.feeds[k].begin()
        blocks.append((self.serial, loaded))
        for _, left in blocks[: -self._most]:
            if left.leaves is not None:
                left.leaves()
        del blocks[: -self._most]
        record = self._records[k]
        record[input_scheduler.OPEN], record[input_scheduler.AHEAD] = 1, k in self._ahead
        return loaded

    def read_ahead(self) -> None:
        """Reads the next block of an input while workers process its open block."""
        self.feeds[int(self.words[input_scheduler.READS])].read_ahead()

    def leaving(self, k: int) -> int:
        """The last serial number of the block that input ``k`` drops when it opens another; -1 if
        it drops none. (If ``most`` is 1, all morsels must be through.)"""
        blocks = self._blocks[k]
        return blocks[1][0] - 1 if len(blocks) == self._most else -1

    def hold(self, serial: int) -> None:
        """Cuts no morsel with this serial number or a later one."""
        self.words[input_scheduler.UNTIL] = serial

    def stop(self) -> None:
        """Cuts no morsel until ``go_on`` or ``give_up``."""
        self.words[input_scheduler.STOPPED] = 1

    def go_on(self) -> None:
        self.words[input_scheduler.STOPPED] = 0

    @property
    def stopped(self) -> int:
        """The address of the word that ``stop`` sets, for kernels."""
        return int(self.words[input_scheduler.STOPPED :].ctypes.data)

    def is_open(self, k: int) -> bool:
        """Whether a block of input ``k`` is being cut."""
        return bool(self._records[k][input_scheduler.OPEN])

    def in_order(self, alive: set[int]) -> list[int]:
        """The inputs in ascending order of their positions in event time."""
        return sorted(
            alive, key=lambda k: (input_scheduler.position(self.feeds[k].cutter.ctypes.data), k)
        )

    def next_turn(self) -> int:
        """The input whose turn it is; -1 if none."""
        return int(input_scheduler.next_turn(self.address))

    def take(self) -> bool:
        """Cuts the next morsel; False if the input whose turn it is has no block (any more)."""
        return bool(input_scheduler.take(self.address))

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
        """Input ``k`` (None: the input of the latest morsel) and the block from which the morsel
        with this serial number was cut; constant rows of the query have no block."""
        if k is None:
            k, serial = self.current, INFINITY
        if k is None or k >= len(self._blocks):
            return 0, None
        found = (block for first, block in reversed(self._blocks[k]) if first <= serial)
        return k, next(found, None)

    @property
    def first(self) -> int:
        """Stream position of the block's first row, as if the block had been read without turns."""
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

    def count_empty_morsel(self) -> None:
        """Counts a morsel without rows, which takes a serial number, too."""
        self.words[input_scheduler.SERIAL] += 1

    @property
    def morsel(self) -> Morsel:
        """The latest morsel."""
        return self.feeds[int(self.words[input_scheduler.CURRENT])].morsel

    @property
    def edge(self) -> Edge:
        """The edge of the latest morsel."""
        edge = self.entries[int(self.words[input_scheduler.CURRENT])]
        assert edge is not None
        return edge

    def last_block(self, k: int) -> Loaded | None:
        """The block of input ``k`` that was opened last; None if none was."""
        return self._blocks[k][-1][1] if self._blocks[k] else None

    @property
    def is_in_turn(self) -> bool:
        """Whether rows of the current turn are left, in a block that is being cut."""
        k = self.current
        return k is not None and not self.is_over and self.is_open(k)

    def snapshot(self) -> Snapshot:
        """The turn, the numbers of the next morsel and row, and which blocks are open."""
        return Snapshot({}, plain_words(self.words, self._bound()))

    def restore(self, saved: Snapshot) -> None:
        """Continues with the turn of a run of the same plan. The open blocks have been opened
        again."""
        take_plain_words(saved.words, self.words, self._bound(), "the input scheduler")

    def _bound(self) -> list[int]:
        """The words that are addresses, or follow from the plan, the inputs and the requests."""
        found = list(input_scheduler.BOUND)
        for k in range(len(self.feeds)):
            first = input_scheduler.HEADER + input_scheduler.INPUT * k
            found += (first + word for word in input_scheduler.BOUND_OF_INPUT)
        return found

    def map_codes(self, change: Change) -> None:
        """Applies ``change`` to the text codes in the open and pending blocks. Call it while no
        morsel is inside."""
        for k, (feed, blocks) in enumerate(zip(self.feeds, self._blocks, strict=True)):
            if feed.pending is not None:
                feed.map_codes(feed.pending, change)
            if blocks and self.is_open(k):
                _, block = blocks[-1]
                feed.map_codes(block, change)
                feed.give_columns(block)
