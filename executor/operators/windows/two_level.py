"""Two-level aggregation: a small table takes the rows, the table of open windows what it gives up
(out-of-order paper §6, figure 7; Gigascope's low-level and high-level queries in one operator).

The *low level* is a table of fixed size, one place per hash, without chains or probes: a place
holds the partial aggregate of one group of one window. A row that finds another group in its place
puts that one's partial aggregate out, into the *high level*, the windows of WID. There the group
has had an entry since it first came, so that groups leave in the order of their first row, whatever
the low level did, and a partial aggregate is put out without looking its group up.

The groups of a window that punctuation has closed are *old*. To give one out means to take its
partial aggregate from the low level, if it is still there, and to send its row. When this happens
is the policy:

- ``at_once``: all of them, when the window closes;
- ``slow``: one for every ``every`` new rows, and all that are left of a window when ``windows``
  later ones have closed;
- ``lazy``: one for every old partial aggregate that a new group pushed out of its place, and with
  it one of those that had been pushed out while their window was open, with the same bound;
- ``in_order_slow``: figure 7, for comparison: what the low level puts out is in the order of the
  windows. With each row one old place is looked at and emptied, and one old group given out; where
  two groups of the new window want one place, all old ones have to leave first.

Windows leave one after the other under all of them, and what is promised of their columns waits.
Which partial aggregates are merged with which depends on the order of the rows alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from cql.executor.kernels.morsel_layout import INFINITY, ROWS
from cql.executor.operators.windows.bounds import Spans
from cql.executor.operators.windows.group_table import AHEAD_ROWS
from cql.executor.operators.windows.wid import AggregateTerminal
from cql.planner.nodes.physical import Flush, FlushPolicy

#: Words of a place in the low level's directory: whose window it is (NEVER: it is empty), and which
#: entry of that window.
PLACE = 2
#: The most groups that left between two morsels, or partial aggregates that did between two rows;
#: the end of the input is left out.
LONGEST = "most_at_once"


def places_of(flush: Flush) -> int:
    """Places of the low level: its entries, rounded up to a power of two."""
    return 1 << max(0, flush.entries - 1).bit_length()


@dataclass(slots=True)
class TwoLevelTerminal(AggregateTerminal):
    """Ends a stage with a windowed aggregate of two levels. The partial aggregates of the low level
    are the first entries of the slab; ``places`` says whose they are."""

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
        return False  # the low level wants a hash anyway

    @property
    def _one_group(self) -> bool:
        return False

    def _word(self, name: str) -> str:
        return self.writer.kernel.word(name)

    def _place(self, hashed: str) -> str:
        """A group has the same place in each tumbling window: the new window's rows push out the
        old one's. Windows that overlap have places of their own."""
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
            # Codes of texts have changed, and with them hashes: nothing would be found again.
            body.lines("w = NEVER", f"{self._word('emptying')} = 0")
            with body.block(f"for q in range({self._low_size}):"):
                self._look_at("q")
                with body.block("if resident != NEVER:"):
                    self._put_out()

    def _look_ahead_at(self) -> list[str]:
        """The place, and the group that may be in it."""
        at = f"((ahead_hashed >> 8) & ({self._low_size} - 1))"
        low = self.writer.kernel.declare("low_at", self._word("low"))
        records = self.writer.kernel.declare("records_at", self._word("records"))
        width = len(self.tables[0].columns)
        return [f"{low} + {8 * PLACE} * {at}", f"{records} + {8 * width} * {at}"]

    def _look_ahead_to(self) -> str:
        return f"n - {AHEAD_ROWS}"

    def _update(self, arguments: list[str | None], leave: list[str]) -> None:
        """The row goes to its group's place of the low level; a new group gets an entry in its
        window first, and the group that was there is put out."""
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
        """Sets ``at``, and whose window is ``resident`` there."""
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
        """SlowFlush(): one place is looked at."""
        body, flush_at = self.writer.kernel.body, self._word("flush_at")
        with body.block(f"if {flush_at} < {self._low_size}:"):
            self._look_at(flush_at)
            body.line(f"{flush_at} += 1")
            with body.block(f"if resident != NEVER and resident < {self._word('newest')}:"):
                self._put_out()
                with body.block("if status != 0:"):
                    body.line(leave[0])

    def _flush_old(self, leave: list[str]) -> None:
        """Puts out what is left of older windows than the newest."""
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

    def _punctuated(self) -> None:
        """Which windows are closed, which of these have to leave now, and how many groups of the
        others may."""
        writer, window, flush = self.writer, self.node.window, self._flush_of
        assert window is not None
        body, watermark = writer.kernel.body, self._word("watermark")
        closed, due, credit, steps = map(self._word, ("closed_below", "due", "credit", "steps"))
        if flush.policy is FlushPolicy.LAZY:
            body.lines(f"{steps} = {credit}", f"{credit} = 0")
        else:
            every = writer.window_constant("every", 1 if self._in_order else flush.every)
            # Rows that come while nothing is old give no right to send later what will be.
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
        """A window that has to leave, or one that punctuation has closed while there is leave."""
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
        """Entry ``i`` of the window, which is ``g``: takes its partial aggregate from the low
        level, unless it has to wait."""
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

    def _passed(self) -> str:
        """Windows that are closed and have not left hold promises back."""
        window = self.node.window
        assert window is not None
        body, opened, closed = (
            self.writer.kernel.body,
            self._word("open"),
            self._word("closed_below"),
        )
        body.line(f"passed = {self._word('watermark')}")
        with body.block(f"if {opened} > 0 and heap[0] < {closed}:"):
            body.line(f"passed = {Spans(self.writer, window).end('heap[0]')} - 1")
        return "passed"


#: What the terminal keeps in the descriptor, beside its counters.
_STATE = (
    "closed_below",  # windows before it are closed
    "due",  # windows before it have to leave now
    "credit",  # rows (lazily: old partial aggregates pushed out) that gave no leave yet
    "steps",  # groups that may leave
    "burst",  # groups that left since the latest morsel's punctuation
    "newest",  # figure 7: the latest window of a row
    "flush_at",  # the place that is looked at next
    "urgent",  # windows before it have to leave, if they are closed
    "emptying",  # whether the low level is to be emptied before the next row
)
