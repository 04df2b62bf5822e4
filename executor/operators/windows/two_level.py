"""Two-level aggregation: a small table takes the rows; the table of open windows takes the partial
aggregates that the small table evicts (out-of-order paper §6, figure 7; Gigascope's low-level and
high-level queries in one operator).

The *low level* is a table of fixed size, one place per hash, without chains or probes: a place
holds the partial aggregate of one group of one window. A row that finds another group in its place
evicts that group's partial aggregate into the *high level*, the windows of WID. A group has an
entry there from its first row on. So groups leave in the order of their first rows, whatever the
low level did, and an eviction needs no search for the group.

The groups of a window that punctuation has closed are *old*. To give an old group out, the operator
takes its partial aggregate from the low level, if it is still there, and sends its row. The flush
policy decides when:

- ``at_once``: all groups, when the window closes;
- ``slow``: one group for every ``every`` new rows; all groups that are left of a window when
  ``windows`` later windows have closed;
- ``lazy``: two groups for every old partial aggregate that a new group evicts (the second makes up
  for a group that was evicted while its window was open), with the same bound;
- ``in_order_slow``: figure 7, for comparison: the low level evicts in window order. With each row,
  one place is tested, and emptied if it is old, and one old group is given out. Where two groups of
  the new window collide in a place, all old partial aggregates leave first.

Under every policy windows leave one after the other, and punctuation on their columns waits. The
order of the rows alone decides which partial aggregates are merged.
"""

from __future__ import annotations

from dataclasses import dataclass

from cql.executor.kernels.morsel_layout import INFINITY, ROWS
from cql.executor.operators.windows.bounds import Spans
from cql.executor.operators.windows.group_table import AHEAD_ROWS
from cql.executor.operators.windows.wid import AggregateTerminal
from cql.planner.nodes.physical import Flush, FlushPolicy

#: Words of a place in the low level's directory: the id of the group's window (NEVER: the place is
#: empty), and the group's entry in that window.
PLACE = 2
#: The largest number of groups that left between two morsels, or of partial aggregates that were
#: evicted between two rows; the end of the input does not count.
LONGEST = "most_at_once"


def places_of(flush: Flush) -> int:
    """The number of places of the low level: its entries, rounded up to a power of two."""
    return 1 << max(0, flush.entries - 1).bit_length()


@dataclass(slots=True)
class TwoLevelTerminal(AggregateTerminal):
    """Ends a stage with a windowed aggregate of two levels. The partial aggregates of the low level
    are the first entries of the slab; ``places`` holds the window and the entry of each."""

    @property
    def _flush_of(self) -> Flush:
        assert self.node.flush is not None
        return self.node.flush

    @property
    def _in_order(self) -> bool:
        return self._flush_of.policy is FlushPolicy.IN_ORDER_SLOW

    @property
    def _low_size(self) -> str:
        return self.writer.window_constant("low_size", places_of(self._flush_of))

    @property
    def _direct(self) -> bool:
        return False  # the low level needs a hash anyway

    @property
    def _one_group(self) -> bool:
        return False

    def _word(self, name: str) -> str:
        return self.writer.kernel.word(name)

    def _place(self, hashed: str) -> str:
        """The place of a group. In tumbling windows a group has the same place in each window, so
        that the new window's rows evict the old window's groups. In overlapping windows the place
        depends on the window."""
        at = f"({hashed} >> 8)" if self._single_window else f"(({hashed} >> 8) + w)"
        return f"({at} & ({self._low_size} - 1))"

    def _declare_state(self) -> None:
        AggregateTerminal._declare_state(self)
        kernel = self.writer.kernel
        for name in (*_STATE, LONGEST):
            kernel.layout.slot(name)
        kernel.declare("places", f"words({self._word('low')}, {PLACE} * {self._low_size})")

    # -- one row ---------------------------------------------------------------------------------

    def before_rows(self) -> None:
        AggregateTerminal.before_rows(self)
        body = self.writer.kernel.body
        with body.block(f"if {self._word('emptying')} != 0:"):
            # Codes of texts have changed, and with them the hashes: no search would find a group.
            body.lines("w = NEVER", f"{self._word('emptying')} = 0")
            with body.block(f"for q in range({self._low_size}):"):
                self._look_at("q")
                with body.block("if resident != NEVER:"):
                    self._put_out()

    def _look_ahead_at(self) -> list[str]:
        """The addresses of the place and of the partial aggregate in it."""
        at = f"((ahead_hashed >> 8) & ({self._low_size} - 1))"
        low = self.writer.kernel.declare("low_at", self._word("low"))
        records = self.writer.kernel.declare("records_at", self._word("records"))
        width = len(self.tables[0].columns)
        return [f"{low} + {8 * PLACE} * {at}", f"{records} + {8 * width} * {at}"]

    def _look_ahead_to(self) -> str:
        return f"n - {AHEAD_ROWS}"

    def _update(self, arguments: list[str | None], leave: list[str]) -> None:
        """Puts the row into its group's place of the low level. A group that is not there first
        gets an entry in its window, then evicts the group in its place."""
        body = self.writer.kernel.body
        if self._in_order:
            self._new_window(leave)
        body.lines(f"place = {self._place('hashed')}", "g = uint64(place)")
        same = [f"places[uint64({PLACE} * place)] == w"]
        same += [f"key{k}[g] == kw{k}" for k in range(self._words)]
        same += ["nulls[g] == kn"] if self._compares_nulls else []
        with body.block(f"if unlikely(not ({' and '.join(same)})):"):
            self._find_group(leave)
            if self._in_order:
                with body.block(f"if w >= {self._word('newest')}:"):
                    self._take_place(leave)
            else:
                self._take_place(leave)
        for k, code in enumerate(self._codes):
            with body.block(f"if {arguments[k] or 'True'}:"):
                self._emit(k, code.update, leave[0])
        if self._in_order:
            self._slow_flush(leave)

    def _take_place(self, leave: list[str]) -> None:
        body, counter = self.writer.kernel.body, self.writer.kernel.counter
        body.line("entry = int64(g) - base")
        self._look_at("place")
        with body.block("if resident != NEVER:"):
            if self._in_order:
                newest = self._word("newest")
                with body.block(f"if resident == {newest}:"):
                    with body.block(f"if {self._word('flush_at')} < {self._low_size}:"):
                        body.line(f"{counter('forced_flushes')} += 1")
                    self._flush_old(leave)
                    body.line(f"{self._word('urgent')} = {newest}")
                    self._look_at("place")
            body.line(f"{counter('evictions')} += 1")
            with body.block(f"if resident < {self._word('closed_below')}:"):
                body.line(f"{counter('old_evictions')} += 1")
                if self._flush_of.policy is FlushPolicy.LAZY:
                    body.line(f"{self._word('credit')} += 2")
            self._put_out()
            with body.block("if status != 0:"):
                body.line(leave[0])
        body.lines("g = uint64(place)", f"places[uint64({PLACE} * place)] = w")
        body.line(f"places[uint64({PLACE} * place + 1)] = entry")
        body.lines(*(f"key{k}[g] = kw{k}" for k in range(self._words)))
        if self._nullable_keys:
            body.line(f"nulls[g] = {'kn' if self._compares_nulls else '0'}")
        body.lines(*self._init_lines())

    def _look_at(self, place: str) -> None:
        """Sets ``at``, and ``resident``, the id of the window in that place."""
        resident = f"resident = places[uint64({PLACE} * at)]"
        self.writer.kernel.body.lines(f"at = int64({place})", resident)

    def _put_out(self) -> None:
        """Adds the partial aggregate in place ``at`` to its group in the window ``resident``."""
        body = self.writer.kernel.body
        find = f"call_operator({self._word('find_window')}, desc, resident)"
        body.line(f"source = slot if resident == w else {find}")
        body.line(f"g = uint64(bases[source] + places[uint64({PLACE} * at + 1)])")
        body.lines("m = uint64(at)", f"places[uint64({PLACE} * at)] = NEVER")
        with body.block("for once in range(1):"):
            for k, code in enumerate(self._codes):
                self._emit(k, code.merge, "break")

    # -- figure 7 --------------------------------------------------------------------------------

    def _new_window(self, leave: list[str]) -> None:
        body, newest = self.writer.kernel.body, self._word("newest")
        with body.block(f"if unlikely(w > {newest}):"):
            self._flush_old(leave)
            body.lines(f"{self._word('urgent')} = {newest}", f"{newest} = w")
            body.line(f"{self._word('flush_at')} = 0")

    def _slow_flush(self, leave: list[str]) -> None:
        """SlowFlush(): tests one place, and empties it if it is old."""
        body, flush_at = self.writer.kernel.body, self._word("flush_at")
        with body.block(f"if {flush_at} < {self._low_size}:"):
            self._look_at(flush_at)
            body.line(f"{flush_at} += 1")
            with body.block(f"if resident != NEVER and resident < {self._word('newest')}:"):
                self._put_out()
                with body.block("if status != 0:"):
                    body.line(leave[0])

    def _flush_old(self, leave: list[str]) -> None:
        """Evicts all partial aggregates of windows older than the newest."""
        body, flush_at, most = self.writer.kernel.body, self._word("flush_at"), self._word(LONGEST)
        body.line("gone = 0")
        with body.block(f"for q in range({flush_at}, {self._low_size}):"):
            self._look_at("q")
            with body.block(f"if resident != NEVER and resident < {self._word('newest')}:"):
                self._put_out()
                body.line("gone += 1")
        body.lines(f"{flush_at} = {self._low_size}", f"{most} = max({most}, gone)")
        with body.block("if status != 0:"):
            body.line(leave[0])

    # -- closing ---------------------------------------------------------------------------------

    def _on_punctuation(self) -> None:
        """Sets which windows are closed, which closed windows have to leave now, and how many
        groups of the other closed windows may leave."""
        writer, window, flush = self.writer, self.node.window, self._flush_of
        assert window is not None
        body, watermark = writer.kernel.body, self._word("watermark")
        closed, due, credit, steps = map(self._word, ("closed_below", "due", "credit", "steps"))
        if flush.policy is FlushPolicy.LAZY:
            body.lines(f"{steps} = {credit}", f"{credit} = 0")
        else:
            every = writer.window_constant("every", 1 if self._in_order else flush.every)
            # Rows that come while no group is old give no credit for groups that become old later.
            waiting = f"{self._word('open')} > 0 and heap[0] < {closed}"
            body.line(f"{credit} = {credit} + n if {waiting} else 0")
            body.lines(f"{steps} = {credit} // {every}", f"{credit} -= {steps} * {every}")
        body.line(f"{self._word('burst')} = 0")
        with body.block(f"if {watermark} == {INFINITY}:"):
            body.lines(f"{closed} = {INFINITY}", f"{due} = {INFINITY}")
        with body.block(f"elif {watermark} > NEVER:"):
            body.line(f"{closed} = {Spans(writer, window).first(watermark)}")
            delay = 0 if flush.policy is FlushPolicy.AT_ONCE else flush.windows
            body.line(f"{due} = {closed} - {writer.window_constant('delay', delay)}")
            if self._in_order:
                body.line(f"{due} = max({due}, min({closed}, {self._word('urgent')}))")

    def _flush(self) -> None:
        body, burst, most = self.writer.kernel.body, self._word("burst"), self._word(LONGEST)
        body.lines("paused = False", f"steps = {self._word('steps')}")
        AggregateTerminal._flush(self)
        body.lines(f"{self._word('steps')} = steps", f"{burst} += o[{ROWS}] - before")
        with body.block(f"if {self._word('watermark')} < {INFINITY}:"):
            body.line(f"{most} = max({most}, {burst})")

    def _next_window(self, closing: str, group: str) -> None:
        """Finds a window that has to leave, or a closed window while ``steps`` are left."""
        body = self.writer.kernel.body
        opened, closed = self._word("open"), self._word("closed_below")
        with body.block(f"if {opened} == 0 or heap[0] >= {closed}:"):
            body.line("break")
        body.line("w = heap[0]")
        with body.block(f"if w >= {self._word('due')} and steps <= 0:"):
            body.line("break")
        body.line(f"{closing} = call_operator({self._word('find_window')}, desc, w)")
        body.line(f"{group} = 0")

    def _before_group(self) -> None:
        """Takes the partial aggregate of group ``g``, entry ``i`` of its window, from the low
        level; pauses if the group has to wait."""
        body = self.writer.kernel.body
        with body.block(f"if w >= {self._word('due')}:"):
            with body.block("if steps <= 0:"):
                body.lines("paused = True", "break")
            body.line("steps -= 1")
        self._words_of("g")
        self._look_at(self._place("hashed"))
        with body.block(f"if resident == w and places[uint64({PLACE} * at + 1)] == i:"):
            self._put_out()
            with body.block("if status != 0:"):
                body.line("break")

    def _end_of_window(self, closing: str, group: str) -> None:
        body = self.writer.kernel.body
        with body.block("if paused:"):
            body.lines(f"{group} = i", "break")
        AggregateTerminal._end_of_window(self, closing, group)

    def _output_watermark(self) -> str:
        """Closed windows that have not left hold punctuation back."""
        window = self.node.window
        assert window is not None
        body, opened, closed = (
            self.writer.kernel.body,
            self._word("open"),
            self._word("closed_below"),
        )
        body.line(f"output_watermark = {self._word('watermark')}")
        with body.block(f"if {opened} > 0 and heap[0] < {closed}:"):
            body.line(f"output_watermark = {Spans(self.writer, window).end('heap[0]')} - 1")
        return "output_watermark"


#: The terminal's words of the descriptor, besides its counters.
_STATE = (
    "closed_below",  # windows below this id are closed
    "due",  # windows below this id have to leave now
    "credit",  # rows (lazy: two per evicted old partial aggregate) that gave no steps yet
    "steps",  # groups that may leave
    "burst",  # groups that left since the latest morsel's punctuation
    "newest",  # figure 7: the latest window of a row
    "flush_at",  # the place that is tested next
    "urgent",  # windows below this id have to leave, if they are closed
    "emptying",  # whether the low level is to be emptied before the next row
)
